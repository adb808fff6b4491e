//! Many objects into one node's store at once, by its daemon: what `bench delivery --scenario many` measures.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headwater_units::ObjectId;
use headwater_wire::SpreadRule;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::desk::{Daemon, Wanted};
use crate::keep::follow;
use crate::{AppError, GetResult, Progress, QueryOptions, Shutdown, Watch, local};

/// A source may not have told the controller yet what it has.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which objects, and when to begin.
#[derive(Clone, Debug, PartialEq)]
pub struct KeepManyOptions {
    /// The daemon's state folder and controller.
    pub query: QueryOptions,
    /// Objects to fetch, all asked for at the same time.
    pub objects: Vec<ObjectId>,
    /// Number of holders that each object must have before the start.
    pub holders: usize,
}

/// The result of many gets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeepManyResult {
    /// From the first request until the last object was kept.
    pub seconds: f64,
    /// Of all objects together.
    pub bytes: u64,
    /// When each object was kept, seconds after the first request, in the order of the request.
    pub each_seconds: Vec<f64>,
    /// The most memory that the daemon had resident.
    pub peak_rss_bytes: u64,
}

/// Has the daemon of the state folder fetch all objects into its store.
///
/// # Errors
/// There is no daemon, or a fetch fails: the first that does ends all.
pub async fn keep_many(options: &KeepManyOptions, shutdown: &Shutdown) -> Result<KeepManyResult, AppError> {
    let (state, objects) = (&options.query.common.state, &options.objects);
    known(options).await?;
    #[allow(clippy::disallowed_methods)] // The result says how long it took.
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for (index, &object) in objects.iter().enumerate() {
        let (state, shutdown) = (state.clone(), shutdown.clone());
        tasks.spawn(async move {
            let result = one(&state, object, &shutdown).await?;
            Ok::<_, AppError>((index, started.elapsed().as_secs_f64(), result))
        });
    }
    let mut all = KeepManyResult { each_seconds: vec![0.0; objects.len()], ..KeepManyResult::default() };
    while let Some(done) = tasks.join_next().await {
        let (index, seconds, result) = done.map_err(|e| AppError::Failed(e.to_string()))??;
        all.each_seconds[index] = seconds;
        all.seconds = all.seconds.max(seconds);
        all.bytes += result.bytes;
        all.peak_rss_bytes = all.peak_rss_bytes.max(result.peak_rss_bytes);
    }
    Ok(all)
}

/// Waits until enough hold each object.
async fn known(options: &KeepManyOptions) -> Result<(), AppError> {
    #[allow(clippy::disallowed_methods)] // A limit of patience.
    let began = Instant::now();
    loop {
        let listed = local::ls(options.query.clone()).await?;
        let held =
            |id: &ObjectId| listed.iter().any(|l| l.object == *id && l.holders.len() >= options.holders);
        let missing = options.objects.iter().filter(|id| !held(id)).count();
        if missing == 0 {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            let holders = options.holders;
            return Err(AppError::NotFound(format!(
                "{missing} of the objects have not {holders} holders yet"
            )));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn one(state: &Path, object: ObjectId, shutdown: &Shutdown) -> Result<GetResult, AppError> {
    let wanted = Wanted {
        what: object.to_string(),
        hash: Some(object),
        anew: false,
        gentle: false,
        delivery: None,
        spread: SpreadRule::Listed,
        max_sources: None,
    };
    let daemon = Daemon::asked_to_get(state, wanted).await?;
    let daemon = daemon.ok_or_else(|| no_daemon(state.to_owned()))?;
    follow(daemon, shutdown, &mut Nobody).await
}

fn no_daemon(state: PathBuf) -> AppError {
    AppError::Usage(format!("no daemon runs on {}; start one: headwater node", state.display()))
}

struct Nobody;

impl Watch for Nobody {
    fn progress(&mut self, _: &Progress) {}
    fn note(&mut self, _: &str) {}
}
