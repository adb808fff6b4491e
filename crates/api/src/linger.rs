//! What a process does for others when it has what it wanted: it stays while they are served from it, but not for long.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use headwater_units::NodeId;

use super::Shutdown;
use super::fetch::Arrivals;
use super::host::Host;

/// It stays at most so long.
const LINGER: Duration = Duration::from_secs(2);
/// And looks so often whether somebody is still served.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// What was said last is on its way after so long.
const LAST_WORDS: Duration = Duration::from_millis(20);

/// A process whose job is done, with what others may still read.
#[derive(Default)]
#[must_use = "others are served from it until it has ended"]
pub struct Linger {
    host: Option<Host>,
    /// Nobody waits for these.
    silent: Vec<NodeId>,
    kept: VecDeque<Arc<Arrivals>>,
    stays: bool,
}

impl Linger {
    pub(super) fn new(host: Host, silent: Vec<NodeId>, kept: VecDeque<Arc<Arrivals>>, stays: bool) -> Linger {
        Linger { host: Some(host), silent, kept, stays }
    }

    /// Stays until all who are served have what they need, or it has been long enough, or the process is to stop; then hands those who
    /// are left over to others.
    pub async fn end(self, shutdown: &Shutdown) {
        if let Some(host) = self.host.as_ref().filter(|_| self.stays) {
            tokio::select! {
                () = all_served(host) => {}
                () = tokio::time::sleep(LINGER) => {}
                () = shutdown.wait() => {}
            }
        }
        self.leave().await;
    }

    /// Hands those who are served over to others, and goes.
    pub(super) async fn leave(self) {
        let Linger { host, silent, kept, .. } = self;
        if let Some(host) = host {
            hand_over(&host).await;
            drop(kept);
            host.close_but(&silent).await;
        }
    }
}

fn serves(host: &Host) -> bool {
    host.snapshot().is_some_and(|snapshot| !snapshot.flows.is_empty())
}

async fn all_served(host: &Host) {
    while serves(host) {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Those who are served from what a process has received and does not hold turn to others at once.
pub(super) async fn hand_over(host: &Host) {
    if serves(host) {
        host.node().hand_over().await;
        tokio::time::sleep(LAST_WORDS).await;
    }
}
