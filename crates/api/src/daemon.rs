//! `headwater controller`, `node` and `up`: processes that stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_controller::{ControllerConfig, GroupRange};
use headwater_store::{NameFacts, Store, StoreOptions};
use headwater_units::{ObjectId, Theta};

use super::host::{Held, Host, HostConfig, LOCAL};
use super::local::{self, Desk};
use super::{
    AppError, Common, ControllerOptions, Listening, NodeOptions, Reload, Reloads, Shutdown, Watch,
    data_config, drain, metrics_page, own, remember_controller, serve, service,
};

fn settings(
    common: &Common,
    equal_theta: bool,
    max_sources: Option<u8>,
    groups: Option<Vec<GroupRange>>,
) -> ControllerConfig {
    let config = common.experiments.controller_config(equal_theta.then_some(Theta::ONE));
    ControllerConfig {
        max_sources: max_sources.unwrap_or(config.max_sources),
        groups: groups.unwrap_or_else(|| config.groups.clone()),
        ..config
    }
}

/// Runs a controller until told to stop.
///
/// # Errors
/// An address or the state folder cannot be used.
pub async fn controller(
    options: ControllerOptions,
    shutdown: &Shutdown,
    reloads: Reloads,
    watch: &mut dyn Watch,
    ready: impl FnOnce(&Listening),
) -> Result<(), AppError> {
    let _ = watch;
    let common = &options.common;
    let tasks = common.state.join("controller").join("tasks.redb");
    let settings = settings(common, options.equal_theta, options.max_sources, options.groups);
    let settings = ControllerConfig { network: options.network, ..settings };
    let controller = Some((settings, Some(tasks)));
    let host = Host::start(HostConfig {
        common,
        listen: Some(options.listen),
        controller,
        node: None,
        passes_on: false,
    })?;
    if let Some(at) = &options.metrics {
        metrics_page::start(*at, host.clone(), "controller").await?;
    }
    ready(&serve::listening(&host, std::iter::empty()));
    service::ready();
    service::keep_alive(&host);
    // What a controller was started with stays; its log is not its own affair.
    drain::stay(shutdown, reloads, |_| {}).await;
    // It serves nobody with data, and its tasks go on without it.
    host.ops().drain();
    service::stopping("stopping");
    host.close().await;
    Ok(())
}

/// Runs a node with its store, and a controller too for `up`, until told to stop.
///
/// # Errors
/// An address, the store or the state folder cannot be used.
pub async fn node(
    options: NodeOptions,
    shutdown: &Shutdown,
    reloads: Reloads,
    watch: &mut dyn Watch,
    ready: impl FnOnce(&Listening),
) -> Result<(), AppError> {
    let common = &options.common;
    let store = open_store(common, &options)?;
    for problem in store.problems()? {
        watch.note(&format!("in the store: {problem:?}"));
    }
    let controller = options.controller_too.then(|| {
        let tasks = common.state.join("controller").join("tasks.redb");
        let groups = options.groups.clone();
        (settings(common, options.equal_theta, options.max_sources, groups), Some(tasks))
    });
    let mut bind = options.listen;
    bind.set_port(common.data_port);
    let node = data_config(common, bind)?;
    let host = Host::start(HostConfig {
        common,
        listen: Some(options.listen),
        controller,
        node: Some(node),
        passes_on: true,
    })?;
    if let Some(hint) = host.node().buffer_hint() {
        watch.note(hint);
    }
    let mut names: BTreeMap<ObjectId, BTreeMap<String, NameFacts>> = BTreeMap::new();
    for (name, facts) in store.names()? {
        names.entry(facts.object).or_default().insert(name, facts);
    }
    let controller_path = options.join.as_ref().map_or(LOCAL, |_| host.new_path());
    host.asks_for_names(controller_path);
    let mut offered: Vec<(ObjectId, Held)> = Vec::new();
    for info in store.ls()? {
        match store.open_object(info.id) {
            Ok((file, hashes)) => {
                let names = names.remove(&info.id).unwrap_or_default();
                let held = Held { file: Arc::new(file), hashes, names };
                host.hold(info.id, held.clone());
                offered.push((info.id, held));
            }
            Err(error) => watch.note(&format!("{} is not offered: {error}", info.id)),
        }
    }
    if let Some(at) = &options.metrics {
        let role = if options.controller_too { "up" } else { "node" };
        metrics_page::start(*at, host.clone(), role).await?;
    }
    let (controller, controller_at) = match &options.join {
        Some(at) => {
            host.ops().join(controller_path, at);
            host.keep_dialled(controller_path, at, true).await?;
            (controller_path, at.clone())
        }
        None => (LOCAL, local::reachable(host.listen().expect("a node listens")).to_string()),
    };
    remember_controller(&common.state, &controller_at).map_err(|e| AppError::state(&common.state, e))?;
    let store = Arc::new(store);
    host.ops().stores_in(store.clone());
    let desk = Desk::open(common, store.clone(), host.clone(), controller)?;
    let keeper = desk.keeper();
    let working = tokio::spawn(desk.run());
    host.ops().depends_on("the desk of local commands", working.abort_handle());
    ready(&serve::listening(&host, offered.iter().map(|(id, held)| (*id, held))));
    service::ready();
    service::keep_alive(&host);
    let mut patience = options.drain;
    let apply = |reload: Reload| {
        patience = reload.drain;
        store.set_quota(reload.quota);
        keeper.restate(&reload);
        serve::restate(&host, reload);
    };
    drain::stay(shutdown, reloads, apply).await;
    host.ops().drain();
    // What it fetches itself goes on when it is back.
    working.abort();
    local::close_desk(&common.state);
    drain::drain(&host, patience.into()).await;
    host.close().await;
    Ok(())
}

fn open_store(common: &Common, options: &NodeOptions) -> Result<Store, AppError> {
    Ok(own::open_store(&common.state.join("store"), StoreOptions { quota: options.quota })?)
}
