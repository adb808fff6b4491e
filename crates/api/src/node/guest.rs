//! A node that serves nobody: each of its transfers has sockets of its own, for as long as it takes.

use std::sync::Arc;

use headwater_units::Bytes;
use tokio::sync::Mutex;

use crate::drain::Draining;
use crate::get::{self, GetOptions};
use crate::transfer::Reporter;
use crate::{
    AppError, Cast, CastResult, Common, Get, GetResult, Output, Put, PutResult, Shutdown, Watch, Where, cast,
    keep, put,
};

/// The parts of a guest. Clones are the same one.
#[derive(Clone)]
pub(super) struct Guest {
    pub(super) common: Common,
    pub(super) at: Where,
    pub(super) quota: Option<Bytes>,
    /// Objects that its transfers have left: others are served from them.
    left: Arc<Mutex<Vec<Draining>>>,
}

impl Guest {
    pub(super) fn new(common: Common, at: Where, quota: Option<Bytes>) -> Self {
        Guest { common, at, quota, left: Arc::default() }
    }

    pub(super) async fn put(
        &self,
        put: Put,
        shutdown: &Shutdown,
        watch: &mut dyn Watch,
    ) -> Result<PutResult, AppError> {
        put::put((&self.common.state, self.quota), put, shutdown, watch).await
    }

    pub(super) async fn get(
        &self,
        get: Get,
        output: Output,
        shutdown: &Shutdown,
        reporter: &Reporter,
    ) -> Result<GetResult, AppError> {
        let options = GetOptions::of(&self.common, self.at.clone(), output, get);
        let mut watch = reporter.teller();
        let (result, left) = match options.output {
            Output::Store => keep::get(&options, shutdown, &mut watch).await?,
            _ => get::get(&options, shutdown, &mut watch, || reporter.ready()).await?,
        };
        self.left.lock().await.push(left);
        Ok(result)
    }

    pub(super) async fn get_several(
        &self,
        what: &[String],
        get: Get,
        output: Output,
        shutdown: &Shutdown,
        reporter: &Reporter,
    ) -> Result<(), AppError> {
        let options = GetOptions::of(&self.common, self.at.clone(), output, get);
        let each = get::each_of(&options, what)?;
        let mut watch = reporter.teller();
        let mut done = |what: &str, result| reporter.ended(what, result);
        let left = match options.output {
            Output::Store => keep::get_each(&each, shutdown, &mut watch, &mut done).await,
            _ => get::get_several(&options, &each, shutdown, &mut watch, &mut done).await?,
        };
        self.left.lock().await.push(left);
        Ok(())
    }

    pub(super) async fn cast(
        &self,
        cast: &Cast,
        shutdown: &Shutdown,
        watch: &mut dyn Watch,
    ) -> Result<CastResult, AppError> {
        let Where::Controller(controller) = &self.at else {
            return Err(AppError::Usage("a cast needs a controller: give its address".to_owned()));
        };
        cast::cast((&self.common, controller), cast, shutdown, watch).await
    }

    /// Stays for those who are served from what came.
    pub(super) async fn drain(&self) {
        for left in self.left.lock().await.iter() {
            left.wait().await;
        }
    }

    /// Hands those who are served over to others.
    pub(super) async fn end(self) {
        for left in std::mem::take(&mut *self.left.lock().await) {
            left.leave().await;
        }
    }
}
