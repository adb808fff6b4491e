//! The daemons `headwater controller`, `node` and `up`.

use headwater_controller::ControllerConfig;

use super::host::{Host, HostConfig};
use super::{
    AppError, Config, ControllerOptions, Listening, Node, Reloads, Shutdown, Watch, drain, metrics_page,
    serve, service,
};

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
    let common = &options.common;
    let tasks = common.state.join("controller").join("tasks.redb");
    let settings = ControllerConfig { network: options.network, ..options.settings.config(common) };
    let controller = Some((settings, Some(tasks)));
    let host = Host::start(HostConfig {
        common,
        listen: Some(options.listen),
        controller,
        node: None,
        passes_on: false,
    })?;
    host.control_buffer_hint().iter().for_each(|hint| watch.note(hint));
    if let Some(at) = &options.metrics {
        metrics_page::start(*at, host.clone(), "controller").await?;
    }
    ready(&serve::listening(&host, std::iter::empty()));
    service::ready();
    service::keep_alive(&host);
    // The settings that a controller was started with stay; its log is not its own affair.
    drain::stay(host.ops().end_of_a_part(), shutdown, reloads, |_| {}).await?;
    // It serves nobody with data, and its tasks go on without it.
    host.ops().drain();
    service::stopping("stopping");
    host.close().await;
    Ok(())
}

/// Runs a node until told to stop, for a service manager if one has started the process.
///
/// # Errors
/// As [`Node::open`].
pub async fn node(
    config: Config,
    shutdown: &Shutdown,
    reloads: Reloads,
    watch: &mut dyn Watch,
    ready: impl FnOnce(&Listening),
) -> Result<(), AppError> {
    let node = Node::open(config).await?;
    node.warnings().iter().for_each(|warning| watch.note(warning));
    let (Some(host), Some(listening)) = (node.host(), node.listening()) else {
        return Err(AppError::Usage("a guest serves nobody, and is no daemon".to_owned()));
    };
    ready(listening);
    service::ready();
    service::keep_alive(&host);
    drain::stay(host.ops().end_of_a_part(), shutdown, reloads, |reload| node.reload(reload)).await?;
    drop(host);
    service::stopping("draining");
    node.close().await;
    Ok(())
}
