//! An agent: its sockets, and the tasks behind them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use headwater_control::Identity;
use headwater_units::{NodeId, Rank};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::blocks::Pool;
use crate::config::AgentConfig;
use crate::driver::{Driver, ToHub};
use crate::fields::Name;
use crate::hub::{CoflowId, HubCommand, HubConfig};
use crate::link::Dialling;
use crate::local::Local;
use crate::peer_frames::ALPN;
use crate::registry::Registry;
use crate::roots::Roots;
use crate::serving::{Counters, Serving};
use crate::session::Shared;
use crate::status::{AgentError, AgentStatus, CoflowDemand};
use crate::{sweep, tcp};

/// Messages of programs that wait for the hub; more wait in the programs' sockets.
const TOLD: usize = 1_024;

/// A running agent. Dropping it ends it at once; its socket's file goes with it.
pub struct Agent {
    address: SocketAddr,
    node: NodeId,
    shared: Arc<Shared>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent")
            .field("node", &self.node)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Agent {
    /// Opens its sockets and begins. Inside a tokio runtime only.
    ///
    /// # Errors
    /// [`AgentError`]: a root, the socket or the address cannot be used, or a limit makes no sense.
    pub fn open(config: AgentConfig, identity: Arc<Identity>) -> Result<Agent, AgentError> {
        let roots = Roots::open(&config.roots)?;
        let tls = identity.tls_server(ALPN)?;
        let node = identity.node();
        let block = config.courier.block;
        let dialling = Arc::new(Dialling {
            identity,
            peers: config.peers.clone(),
            congestion: config.congestion.clone(),
            classes: config.courier.classes,
            pool: Pool::default(),
            block,
            received: AtomicU64::new(0),
        });
        let hub = HubConfig {
            courier: config.courier,
            limits: config.limits,
            memory: config.memory,
            flows_per_user: config.quotas.flows,
            patience: config.patience,
        };
        let (driver, news) = Driver::new(hub, dialling)?;
        let failed = |source| AgentError::Listen { address: config.listen, source };
        let listener = tcp::listen(config.listen, &config.congestion).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let congestion = tcp::congestion(&listener);
        let local = Local::open(&config.socket)?;
        let registry = Arc::new(Mutex::new(Registry::new(config.quotas)));
        let counters = Counters::default();
        let serving =
            Arc::new(Serving { tls, peers: config.peers, registry: registry.clone(), block, counters });
        let (told, heard) = mpsc::channel(TOLD);
        let complete = completion(serving.clone(), node, congestion);
        let sweeping = tokio::spawn(sweep::run(registry.clone(), config.keep_unused));
        let malformed = AtomicU64::new(0);
        let peers = serving.peers.clone();
        let shared = Arc::new(Shared { hub: told, registry, roots, peers, block, malformed, complete });
        let tasks = Mutex::new(vec![
            tokio::spawn(driver.run(heard, news)),
            tokio::spawn(serving.run(listener)),
            tokio::spawn(local.run(shared.clone())),
            sweeping,
        ]);
        Ok(Agent { address, node, shared, tasks })
    }

    /// Where it listens for other agents, with the port that the kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its key's hash.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Waits until what moves its bytes has ended, which only [`Agent::end`] or a defect does.
    pub async fn ended(&self) {
        self.shared.hub.closed().await;
    }

    /// How it is.
    pub async fn status(&self) -> AgentStatus {
        let mut status = self.shared.status().await.unwrap_or_default();
        status.malformed += self.shared.malformed.load(Ordering::Relaxed);
        status
    }

    /// Coflows that its programs fetch, for a scheduler.
    pub async fn demand(&self) -> Vec<CoflowDemand> {
        let (answer, answered) = oneshot::channel();
        let told = self.shared.hub.send(ToHub::Demand(answer)).await;
        if told.is_err() { Vec::new() } else { answered.await.unwrap_or_default() }
    }

    /// A scheduler has ranked these coflows, by application and number; others go last. Its word counts for a second.
    pub async fn order(&self, ranks: impl IntoIterator<Item = ((Name, u64), Rank)>) {
        let ranks = ranks.into_iter();
        let ranks = ranks.map(|((application, number), rank)| (CoflowId { application, number }, rank));
        // An agent that ends needs no order.
        let _ = self.shared.hub.send(ToHub::Command(HubCommand::Ranks(ranks.collect()))).await;
    }

    /// Ends it and waits until its sockets are closed.
    pub async fn end(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.iter().for_each(JoinHandle::abort);
        for task in tasks {
            let _ = task.await;
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Fills in the part of the agent's status that the hub does not know.
fn completion(
    serving: Arc<Serving>,
    node: NodeId,
    congestion: String,
) -> Box<dyn Fn(&mut AgentStatus) + Send + Sync> {
    let ecn = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_ecn").is_ok_and(|it| it.trim() == "1");
    Box::new(move |status| {
        let counters = &serving.counters;
        let (applications, outputs) = serving.registry.lock().unwrap_or_else(PoisonError::into_inner).count();
        status.host = serving.peers.name_of(node);
        status.ecn = ecn || congestion == "dctcp";
        status.congestion.clone_from(&congestion);
        status.serving = counters.connections.load(Ordering::Relaxed);
        (status.applications, status.outputs) = (applications, outputs);
        status.bytes_sent = counters.sent.load(Ordering::Relaxed);
        status.strangers = counters.strangers.load(Ordering::Relaxed);
        status.malformed += counters.malformed.load(Ordering::Relaxed);
    })
}
