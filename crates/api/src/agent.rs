//! The daemon `headwater agent`: Courier's agent of a host, with its key, its counters and its end.

mod order;
mod page;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use headwater_agent::{Agent, AgentConfig, AgentError, Name, Peer};
use headwater_control::Identity;

use super::{AgentListening, AppError, Common, Reloads, Shutdown, Watch, drain, service};

/// The TCP port of agents.
pub const AGENT_PORT: u16 = 7010;
/// An agent that does not answer within this time is not healthy.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Reads the list of the agents of other hosts, now and whenever the daemon is told to read its settings anew.
pub type ReadPeers = Box<dyn Fn() -> Result<Vec<(Name, Peer)>, AppError> + Send>;

/// `headwater agent`.
pub struct AgentOptions {
    /// Options of every command; the agent's key is in the state folder.
    pub common: Common,
    /// Address of the controller that orders coflows, as `host:port`; without one there is no order.
    pub controller: Option<String>,
    /// Configuration of the agent itself. Its peers are those that `peers` reads.
    pub config: AgentConfig,
    /// The agents of other hosts.
    pub peers: ReadPeers,
    /// Address for Prometheus and health checks.
    pub metrics: Option<SocketAddr>,
}

/// Runs an agent until told to stop.
///
/// # Errors
/// Its key, an address, the socket, a root or the list of peers cannot be used.
pub async fn agent(
    options: AgentOptions,
    shutdown: &Shutdown,
    reloads: Reloads,
    watch: &mut dyn Watch,
    ready: impl FnOnce(&AgentListening),
) -> Result<(), AppError> {
    let key = options.common.state.join("keys").join("agent");
    let identity = Identity::load_or_create(&key)?;
    let peers = options.config.peers.clone();
    peers.set((options.peers)()?);
    if options.config.roots.is_empty() {
        watch.note("no --root: programs of this host can fetch, and have nothing fetched");
    }
    let socket = options.config.socket.clone();
    let agent = Arc::new(Agent::open(options.config, Arc::new(identity)).map_err(failed)?);
    let page = match options.metrics {
        Some(at) => Some(page::start(at, agent.clone()).await?),
        None => None,
    };
    let order = match &options.controller {
        Some(at) => Some(order::follow(&options.common, at, agent.clone(), peers.clone()).await?),
        None => None,
    };
    let congestion = agent.status().await.congestion;
    let (address, fingerprint) = (agent.address(), agent.node());
    ready(&AgentListening { address, socket, fingerprint, congestion });
    service::ready();
    let watched = agent.clone();
    let alive = service::keep_alive_while(move || {
        let agent = watched.clone();
        async move { tokio::time::timeout(ANSWER_WITHIN, agent.status()).await.is_ok() }
    });
    let again = |_| match (options.peers)() {
        Ok(list) => {
            tracing::info!(hosts = list.len(), "the list of agents was read anew");
            peers.set(list);
        }
        Err(error) => tracing::error!(%error, "the list of agents was not read anew; the old one holds"),
    };
    let ending = agent.clone();
    let ended = async move {
        ending.ended().await;
        "the agent"
    };
    drain::stay(ended, shutdown, reloads, again).await?;
    service::stopping("stopping");
    for task in [page, alive].into_iter().flatten() {
        task.abort();
        let _ = task.await;
    }
    if let Some(order) = order {
        order.end().await;
    }
    // Programs fetch elsewhere what is not theirs yet.
    agent.end().await;
    Ok(())
}

fn failed(error: AgentError) -> AppError {
    match error {
        AgentError::Listen { address, source } => AppError::no_socket(
            "listen for agents",
            "--listen",
            super::occupant::Protocol::Tcp,
            address,
            &source,
        ),
        AgentError::Socket { path, source } => {
            AppError::Io { doing: format!("cannot use the socket {}", path.display()), source }
        }
        other => AppError::Failed(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_for_which_the_disk_has_no_room_is_the_exit_code_of_full_disks() {
        let source = std::io::ErrorKind::StorageFull.into();
        let error = failed(AgentError::Socket { path: "/full/agent.sock".into(), source });
        assert_eq!(error.exit_code(), 6);
        assert!(error.to_string().contains("/full/agent.sock"), "{error}");
    }
}
