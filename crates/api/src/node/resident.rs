//! A node that stays: its host, its store, and the desk at which it answers the commands of its machine.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use headwater_store::{NameFacts, Store, StoreOptions};
use headwater_units::{Duration, ObjectId, PathId};
use tokio::task::AbortHandle;

use super::config::{Config, ControllerAt};
use crate::desk::Wanted;
use crate::get::{self, GetOptions, within};
use crate::host::{Held, Host, HostConfig, LOCAL};
use crate::keep::Keeper;
use crate::local::{self, Desk};
use crate::{
    AppError, Cast, CastResult, Common, Get, GetResult, Listening, Output, Put, PutResult, Reload, Shutdown,
    Watch, Where, cast, data_config, drain, metrics_page, own, put, remember_controller, serve,
};

/// The parts of a resident node. Clones are the same one.
#[derive(Clone)]
pub(super) struct Resident {
    common: Common,
    pub(super) host: Host,
    pub(super) store: Arc<Store>,
    keeper: Arc<Keeper>,
    /// The link to its controller, and where that is.
    pub(super) controller: PathId,
    pub(super) controller_at: String,
    desk: AbortHandle,
    state: PathBuf,
    drain: Arc<Mutex<Duration>>,
}

/// Further facts about a resident node once it is open.
pub(super) struct Opened {
    pub(super) listening: Listening,
    pub(super) warnings: Vec<String>,
}

impl Resident {
    /// Opens the store, binds the sockets, offers what the store holds, and joins or starts the controller.
    pub(super) async fn open(config: &Config, place: &ResidentPlace) -> Result<(Resident, Opened), AppError> {
        let common = &config.common;
        let store = own::open_store(&common.state.join("store"), StoreOptions { quota: config.quota })?;
        let mut warnings: Vec<String> =
            store.problems()?.iter().map(|problem| format!("in the store: {problem:?}")).collect();
        let listen = Config::listens_at(&place.controller, place.listen);
        let host = start_host(common, &place.controller, listen)?;
        match Resident::settle(host.clone(), store, common, place, &mut warnings).await {
            Ok((resident, listening)) => Ok((resident, Opened { listening, warnings })),
            Err(error) => {
                host.end().await;
                Err(error)
            }
        }
    }

    async fn settle(
        host: Host,
        store: Store,
        common: &Common,
        place: &ResidentPlace,
        warnings: &mut Vec<String>,
    ) -> Result<(Resident, Listening), AppError> {
        warnings.extend(host.node().buffer_hint().map(str::to_owned));
        let here = matches!(place.controller, ControllerAt::Here(_));
        let controller = if here { LOCAL } else { host.new_path() };
        host.asks_for_names(controller);
        let offered = offer_all(&store, &host, warnings)?;
        if let Some(at) = place.metrics {
            metrics_page::start(at, host.clone(), if here { "up" } else { "node" }).await?;
        }
        let controller_at = match &place.controller {
            ControllerAt::Elsewhere(at) => {
                host.ops().join(controller, at);
                host.keep_dialled(controller, at, true).await?;
                at.clone()
            }
            ControllerAt::Here(_) => {
                local::reachable(host.listen().expect("a resident node listens")).to_string()
            }
        };
        remember_controller(&common.state, &controller_at).map_err(|e| AppError::state(&common.state, e))?;
        let store = Arc::new(store);
        host.ops().stores_in(store.clone());
        let desk = Desk::open(common, store.clone(), host.clone(), controller)?;
        let keeper = desk.keeper();
        let working = host.depends_on("the desk of local commands", desk.run());
        let listening = serve::listening(&host, offered.iter().map(|(id, held)| (*id, held)));
        let resident = Resident {
            common: common.clone(),
            host,
            store,
            keeper,
            controller,
            controller_at,
            desk: working,
            state: common.state.clone(),
            drain: Arc::new(Mutex::new(place.drain)),
        };
        Ok((resident, listening))
    }

    pub(super) async fn put(
        &self,
        put: Put,
        shutdown: &Shutdown,
        watch: &mut dyn Watch,
    ) -> Result<PutResult, AppError> {
        put::put_at((self.store.clone(), &self.host), put, shutdown, watch).await
    }

    pub(super) async fn get(
        &self,
        get: Get,
        output: Output,
        shutdown: &Shutdown,
        watch: &mut dyn Watch,
    ) -> Result<GetResult, AppError> {
        if get.wait_for_line || get.theta.is_some() || get.record.is_some() {
            return Err(AppError::Usage(
                "theta, record and wait_for_line are for guests: a resident node has a socket for all its transfers".to_owned(),
            ));
        }
        let at = Where::Controller(self.controller_at.clone());
        let options = GetOptions::of(&self.common, at, output, get);
        if options.output != Output::Store {
            return get::get_at((&self.host, self.controller), &options, shutdown, watch).await;
        }
        let wanted = Wanted {
            what: options.what.clone(),
            hash: options.hash,
            anew: options.overwrite,
            gentle: options.common.gentle,
            delivery: options.delivery,
            spread: options.spread,
            max_sources: options.max_sources,
        };
        #[allow(clippy::disallowed_methods)] // A limit of patience.
        let started = std::time::Instant::now();
        let fetching = async {
            tokio::select! {
                kept = self.keeper.fetch(&wanted, None, watch) => kept.map(|kept| kept.result),
                () = shutdown.wait() => Err(AppError::Interrupted { resumable: true }),
            }
        };
        within(&options, started, fetching).await
    }

    pub(super) async fn cast(
        &self,
        cast: &Cast,
        shutdown: &Shutdown,
        watch: &mut dyn Watch,
    ) -> Result<CastResult, AppError> {
        cast::cast_at((&self.host, self.controller, &self.controller_at), cast, shutdown, watch).await
    }

    /// Takes over what can change while it runs.
    pub(super) fn reload(&self, reload: Reload) {
        *self.drain.lock().unwrap_or_else(PoisonError::into_inner) = reload.drain;
        self.store.set_quota(reload.quota);
        self.keeper.restate(&reload);
        serve::restate(&self.host, reload);
    }

    /// Takes nothing new, and goes on for those who are served, for as long as it may; what it fetches itself goes on when it is back.
    pub(super) async fn drain(&self) {
        self.host.ops().drain();
        self.desk.abort();
        local::close_desk(&self.state);
        let patience = *self.drain.lock().unwrap_or_else(PoisonError::into_inner);
        drain::drain(&self.host, patience.into()).await;
    }

    /// Says goodbye to everybody, and lets go of sockets, threads and the store.
    pub(super) async fn end(self) {
        self.desk.abort();
        local::close_desk(&self.state);
        let Resident { host, store, keeper, .. } = self;
        drop((store, keeper));
        host.close().await;
        host.end().await;
    }
}

/// [`super::NodeKind::Resident`], by itself.
pub(super) struct ResidentPlace {
    pub(super) controller: ControllerAt,
    pub(super) listen: Option<SocketAddr>,
    pub(super) metrics: Option<SocketAddr>,
    pub(super) drain: Duration,
}

fn start_host(common: &Common, controller: &ControllerAt, listen: SocketAddr) -> Result<Host, AppError> {
    let mut bind = listen;
    bind.set_port(common.data_port);
    let controller = match controller {
        ControllerAt::Here(settings) => {
            let tasks = common.state.join("controller").join("tasks.redb");
            Some((settings.config(common), Some(tasks)))
        }
        ControllerAt::Elsewhere(_) => None,
    };
    let node = Some(data_config(common, bind)?);
    Host::start(HostConfig { common, listen: Some(listen), controller, node, passes_on: true })
}

/// Offers everything in the store to everybody.
fn offer_all(
    store: &Store,
    host: &Host,
    warnings: &mut Vec<String>,
) -> Result<Vec<(ObjectId, Held)>, AppError> {
    let mut names: BTreeMap<ObjectId, BTreeMap<String, NameFacts>> = BTreeMap::new();
    for (name, facts) in store.names()? {
        names.entry(facts.object).or_default().insert(name, facts);
    }
    let mut offered = Vec::new();
    for info in store.ls()? {
        match store.open_object(info.id) {
            Ok((file, hashes)) => {
                let names = names.remove(&info.id).unwrap_or_default();
                let held = Held { file: Arc::new(file), hashes, names };
                host.hold(info.id, held.clone());
                offered.push((info.id, held));
            }
            Err(error) => warnings.push(format!("{} is not offered: {error}", info.id)),
        }
    }
    Ok(offered)
}
