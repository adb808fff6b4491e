//! The environment of the demo: on hosts in network namespaces, or all on this machine's loopback.
//!
//! In namespaces the limits are token buckets in the middle of the network, and a source that vanishes is simply silent.
//! On loopback the sources cap themselves, the receiver throws packets away, and the kernel answers for a dead source
//! with "port unreachable": good enough to see it work, not to measure by.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use headwater_api::AppError;
use headwater_testbed::netns::{HostSpec, Link, Net, NetError, Spec};
use headwater_units::BitRate;

use super::script::Script;
use crate::subprocess::without_settings;

/// Tells the receiver to throw away symbols: `PROBABILITY:SEED`.
const DROP_VARIABLE: &str = "HEADWATER_DROP";
/// Where controller and sources listen on hosts of their own.
const PORT: u16 = 7000;

/// Someone who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Source(usize),
    Controller,
    Receiver,
}

/// The environment that they all run in.
pub(super) enum Environment {
    /// Each on a host of its own: sources first, then the controller, then the receiver.
    Namespaces {
        net: Arc<Net>,
        sources: usize,
        /// The network loses packets; else the receiver has to.
        lossy: bool,
    },
    Loopback,
}

impl Environment {
    /// A network with these sources. Losses strike on the receiver's downlink, behind every queue: each data packet
    /// once, and no acknowledgment. Downlinks have no limit.
    pub(super) async fn namespaces(script: &Script, loss: f64, kernel_loses: bool) -> Result<Self, AppError> {
        let sources = script.rates.len();
        let limited = script.rates.iter().map(|rate| HostSpec { uplink: Some(*rate), ..HostSpec::default() });
        let hosts = limited.chain([HostSpec::default(); 2]).collect();
        let lossy = loss > 0.0 && kernel_loses;
        let net = blocking(move || {
            let net = Net::build(&Spec { hosts, ..Spec::default() })?;
            if lossy {
                net.loss(Link::Downlink(sources + 1), loss)?;
            }
            Ok(net)
        })
        .await?;
        Ok(Environment::Namespaces { net: Arc::new(net), sources, lossy })
    }

    /// One word, as in the result.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Environment::Namespaces { .. } => "namespaces",
            Environment::Loopback => "loopback",
        }
    }

    /// A command that runs `program` where this role is at home.
    pub(super) fn command(&self, role: Role, program: &Path) -> Result<Command, AppError> {
        let mut command = match self {
            Environment::Namespaces { net, .. } => {
                net.command(self.host(role), program).map_err(in_network)?
            }
            Environment::Loopback => Command::new(program),
        };
        without_settings(&mut command);
        Ok(command)
    }

    /// Makes the receiver's command lose packets, where the network does not.
    pub(super) fn lose(&self, command: &mut Command, loss: f64, seed: u64) {
        let network_does = matches!(self, Environment::Namespaces { lossy: true, .. });
        if loss > 0.0 && !network_does {
            command.env(DROP_VARIABLE, format!("{loss}:{seed}"));
        }
    }

    /// Where this role is to listen.
    pub(super) fn listen(&self, role: Role) -> SocketAddr {
        match self {
            Environment::Namespaces { net, .. } => {
                SocketAddr::new(IpAddr::V4(net.ipv4(self.host(role))), PORT)
            }
            Environment::Loopback => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
        }
    }

    /// Whether sources must keep to their rates themselves.
    pub(super) fn sources_cap_themselves(&self) -> bool {
        matches!(self, Environment::Loopback)
    }

    /// Lets the host of a source vanish; on loopback there is only its process to kill.
    pub(super) async fn vanish(&self, source: usize) -> Result<(), AppError> {
        match self {
            Environment::Namespaces { net, .. } => {
                let net = net.clone();
                blocking(move || net.vanish(source)).await
            }
            Environment::Loopback => Ok(()),
        }
    }

    /// Gives a source another uplink.
    pub(super) async fn rerate(&self, source: usize, rate: BitRate) -> Result<(), AppError> {
        match self {
            Environment::Namespaces { net, .. } => {
                let net = net.clone();
                blocking(move || net.set_rate(Link::Uplink(source), Some(rate))).await
            }
            Environment::Loopback => Err(AppError::Usage("--rerate needs network namespaces".to_owned())),
        }
    }

    /// Packets that the network has lost at random.
    pub(super) async fn lost(&self) -> Result<Option<u64>, AppError> {
        match self {
            Environment::Namespaces { net, sources, lossy: true } => {
                let (net, receiver) = (net.clone(), Link::Downlink(sources + 1));
                blocking(move || net.counters(receiver)).await.map(|counters| Some(counters.lost))
            }
            _ => Ok(None),
        }
    }

    fn host(&self, role: Role) -> usize {
        let sources = match self {
            Environment::Namespaces { sources, .. } => *sources,
            Environment::Loopback => 0,
        };
        match role {
            Role::Source(source) => source,
            Role::Controller => sources,
            Role::Receiver => sources + 1,
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NetError> + Send + 'static,
) -> Result<T, AppError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(in_network),
        Err(error) => Err(AppError::Failed(error.to_string())),
    }
}

fn in_network(error: NetError) -> AppError {
    AppError::Failed(format!("the demo's network: {error}"))
}
