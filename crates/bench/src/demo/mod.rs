//! `headwater demo`: several sources, a controller and a receiver on this machine, and how well they did.
//!
//! Everybody is a process of this very binary. Where it may, the demo gives each of them a host of its own in a network
//! of namespaces, with limits in the middle ([`headwater_testbed::netns`]): as root, or else as root of a user namespace. Where
//! that is not to be had all run on loopback, and the result says so. Whatever was made is gone afterwards, however it ends.

mod environment;
mod options;
mod progress;
pub(crate) mod script;
mod stage;
mod table;
mod transfer;
mod unprivileged;

use std::path::PathBuf;

use headwater_testbed::netns::{Capability, Unavailable};
use headwater_wire::Class;
use serde::{Deserialize, Serialize};

use headwater_api::{AppError, Common, GetResult, Shutdown, Watch};
pub use options::DemoOptions;
use script::Script;
use stage::Stage;

/// Chooses the network instead of finding out: `namespaces` or `loopback`.
const NETWORK_VARIABLE: &str = "HEADWATER_DEMO_NETWORK";
/// The end of a demo.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DemoResult {
    /// The receiver's result, with ideal and ratio; `sources` are all of them, in the order of their numbers, and
    /// `cpu_seconds` is of all processes.
    #[serde(flatten)]
    pub get: GetResult,
    /// `namespaces` or `loopback`.
    pub network: String,
    /// Initial rates of the sources, bits per second.
    pub source_rates: Vec<u64>,
    /// Share of the packets that were to be lost.
    pub loss: f64,
    /// Packets that were lost on purpose; `None` where nobody counted.
    pub loss_dropped: Option<u64>,
    /// Everything random came from it.
    pub seed: u64,
    /// Sources that joined.
    pub joined: Vec<Joined>,
    /// Sources that vanished.
    pub killed: Vec<Killed>,
    /// Sources whose uplinks have changed.
    pub rerated: Vec<Rerated>,
    /// Where files and logs are, if they were to be kept.
    pub kept: Option<String>,
}

/// A source that joined.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Joined {
    /// Its number.
    pub source: usize,
    /// When its process was started, after the first request.
    pub at_seconds: f64,
    /// How long after that it was ready: it had read the object and told the controller.
    pub ready_after_seconds: Option<f64>,
    /// How long after its start the receiver had useful bytes from it, as far as progress lines tell; `None`: never.
    pub used_after_seconds: Option<f64>,
}

/// A source that vanished.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Killed {
    /// Its number.
    pub source: usize,
    /// When, after the first request.
    pub at_seconds: f64,
}

/// A source whose uplink has changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rerated {
    /// Its number.
    pub source: usize,
    /// Its new rate in bit/s.
    pub rate: u64,
    /// When, after the first request.
    pub at_seconds: f64,
}

/// Runs the demo.
///
/// # Errors
/// [`AppError`]; nothing is left behind, unless it was to be kept.
pub async fn demo(
    options: DemoOptions,
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
) -> Result<DemoResult, AppError> {
    let program = std::env::current_exe()
        .map_err(|source| AppError::Io { doing: "cannot find this program's own file".to_owned(), source })?;
    let script = Script::of(&options)?;
    let network = match std::env::var(NETWORK_VARIABLE).unwrap_or_default().as_str() {
        "loopback" => Network::Loopback,
        "namespaces" => match probe().await? {
            Ok(capability) => Network::Namespaces { loss: capability.loss },
            Err(why) => return Err(AppError::Failed(format!("{}{why}", unprivileged::UNAVAILABLE))),
        },
        _ => match probe().await? {
            Ok(capability) => Network::Namespaces { loss: capability.loss },
            Err(why) => {
                if why.user_namespace
                    && let Some(result) =
                        unprivileged::demo_inside(&program, &options, shutdown, watch).await?
                {
                    return Ok(result);
                }
                watch.note(&why.to_string());
                Network::Loopback
            }
        },
    };
    let run = Run { options: &options, script, network, program };
    tokio::select! {
        result = run.run(watch) => result,
        // Files and namespaces of the run go when it is dropped.
        () = shutdown.wait() => Err(AppError::Interrupted { resumable: false }),
    }
}

/// Network to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Namespaces {
        /// The network can lose packets.
        loss: bool,
    },
    Loopback,
}

async fn probe() -> Result<Result<Capability, Unavailable>, AppError> {
    tokio::task::spawn_blocking(Capability::probe).await.map_err(|error| AppError::Failed(error.to_string()))
}

/// One demo in this process.
struct Run<'a> {
    options: &'a DemoOptions,
    script: Script,
    network: Network,
    program: PathBuf,
}

impl Run<'_> {
    async fn run(&self, watch: &mut dyn Watch) -> Result<DemoResult, AppError> {
        let mut stage = Stage::prepare(self, watch).await?;
        let kept = stage.kept();
        let result = self.transfer(&mut stage, watch).await;
        // Not on the runtime's threads: namespaces take a while to go.
        let _ = tokio::task::spawn_blocking(move || drop(stage)).await;
        if let (Some(kept), Err(_)) = (kept, &result) {
            watch.note(&format!("files and logs are in {kept}"));
        }
        result
    }
}

/// The user's settings of packets, as flags for a child.
fn sending_flags(common: &Common) -> Vec<String> {
    let dscp = |class: Class| common.dscp.of(class);
    let mut flags = vec![
        format!("--dscp={}", dscp(Class::Bulk)),
        format!("--dscp-control={}", dscp(Class::Control)),
        format!("--dscp-levels={},{},{}", dscp(Class::First), dscp(Class::Second), dscp(Class::Third)),
        format!("--dscp-trimmed={}", common.dscp.trimmed()),
    ];
    flags.extend(common.mtu.map(|mtu| format!("--mtu={mtu}")));
    flags.extend(common.gentle.then(|| "--gentle".to_owned()));
    flags.extend(common.loss_response_ignore.then(|| "--loss-response=ignore".to_owned()));
    flags
}

/// The error of a child, with its exit code and message.
fn failure(code: u64, message: String) -> AppError {
    match code {
        2 => AppError::Usage(message),
        3 => AppError::NotFound(message),
        5 => AppError::Verification(message),
        6 => AppError::NoRoom(message),
        7 => AppError::Identity(message),
        130 => AppError::Interrupted { resumable: false },
        _ => AppError::Failed(message),
    }
}

/// Work that reads and writes files, where it holds nobody up.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AppError> + Send + 'static,
) -> Result<T, AppError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(AppError::Failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests;
