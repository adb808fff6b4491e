//! A stop that leaves nobody in the middle of an object: of a daemon that is asked to stop, and of a `get` that has its object.
//!
//! ```text
//!   serving -- asked to stop --> draining -- nobody is served any more, or the time is over --> gone
//!             tells controllers: nothing new for me      others take over what they hold
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_units::NodeId;

use super::fetch::Arrivals;
use super::host::Host;
use super::ops::rounded;
use super::{AppError, Reload, Reloads, Shutdown, service};

/// Time within which an order to send arrives that was on its way when the controller heard that this process stops.
const ON_ITS_WAY: Duration = Duration::from_millis(100);
/// Interval at which a process checks whether it still serves somebody.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Time within which the last answers to receivers are on their way.
const LAST_WORDS: Duration = Duration::from_millis(20);
/// Most time that a process whose job is done stays for others,
const AFTER_A_JOB: Duration = Duration::from_secs(2);
/// and the interval at which it checks whether somebody is still served.
const LOOK_SOON: Duration = Duration::from_millis(20);

/// Stays until the process is to stop. `apply` is told of new settings.
///
/// # Errors
/// A part without which the process is of no use has ended, which `end_of_a_part` says.
pub(super) async fn stay(
    end_of_a_part: impl Future<Output = &'static str>,
    shutdown: &Shutdown,
    mut reloads: Reloads,
    mut apply: impl FnMut(Reload),
) -> Result<(), AppError> {
    let mut end_of_a_part = std::pin::pin!(end_of_a_part);
    loop {
        tokio::select! {
            () = shutdown.wait() => return Ok(()),
            part = &mut end_of_a_part => {
                let what = format!("{part} has ended, which is a defect of headwater; start the process again");
                return Err(AppError::Failed(what));
            }
            reload = reloads.next() => {
                apply(reload);
                service::reloaded();
            }
        }
    }
}

/// Takes no new tasks, and goes on for those who are served until they have all, others have taken them over, or the time is over.
pub(super) async fn drain(host: &Host, within: Duration) {
    host.ops().drain();
    hand_over(host).await;
    if within.is_zero() {
        return;
    }
    let heard = host.leave();
    #[allow(clippy::disallowed_methods)] // A limit of patience.
    let began = Instant::now();
    let mut told = false;
    if heard {
        tokio::time::sleep(ON_ITS_WAY.min(within)).await;
    }
    loop {
        let serving = host.serves_now().await;
        if serving.is_empty() {
            break;
        }
        let (flows, receivers) = (serving.flows, serving.receivers);
        if !told {
            told = true;
            tracing::info!(flows, receivers, within_s = within.as_secs_f64(), "draining");
        }
        if began.elapsed() >= within {
            tracing::warn!(flows, receivers, "not all were served within the time to drain");
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    if told {
        tracing::info!(seconds = rounded(began.elapsed().as_secs_f64()), "drained");
        tokio::time::sleep(LAST_WORDS).await;
    }
}

/// A process whose job is done, with what others may still read.
#[derive(Default)]
#[must_use = "others are served from it until it has left"]
pub(super) struct Draining {
    host: Option<Host>,
    /// Nobody waits for these.
    silent: Vec<NodeId>,
    kept: VecDeque<Arc<Arrivals>>,
    stays: bool,
}

impl Draining {
    pub(super) fn new(
        host: Host,
        silent: Vec<NodeId>,
        kept: VecDeque<Arc<Arrivals>>,
        stays: bool,
    ) -> Draining {
        Draining { host: Some(host), silent, kept, stays }
    }

    /// Stays until all who are served have what they need, or it has been long enough.
    pub(super) async fn wait(&self) {
        if let Some(host) = self.host.as_ref().filter(|_| self.stays) {
            let _ = tokio::time::timeout(AFTER_A_JOB, all_served(host)).await;
        }
    }

    /// Hands those who are served over to others, and goes.
    pub(super) async fn leave(self) {
        let Draining { host, silent, kept, .. } = self;
        if let Some(host) = host {
            hand_over(&host).await;
            drop(kept);
            host.close_but(&silent).await;
            host.abandon();
        }
    }
}

fn serves(host: &Host) -> bool {
    host.snapshot().is_some_and(|snapshot| !snapshot.flows.is_empty())
}

async fn all_served(host: &Host) {
    while serves(host) {
        tokio::time::sleep(LOOK_SOON).await;
    }
}

/// Those who are served from what a process has received and does not hold turn to others at once.
pub(super) async fn hand_over(host: &Host) {
    if serves(host) {
        host.node().hand_over().await;
        tokio::time::sleep(LAST_WORDS).await;
    }
}
