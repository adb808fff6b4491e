//! How a daemon stays, and how it stops without leaving anybody in the middle of an object.
//!
//! ```text
//!   serving -- asked to stop --> draining -- nobody is served any more, or the time is over --> gone
//!             tells controllers: nothing new for me      others take over what they hold
//! ```

use std::time::{Duration, Instant};

use super::host::Host;
use super::ops::rounded;
use super::{Reload, Reloads, Shutdown, linger, service};

/// An order to send that was on its way when the controller heard that this process stops has come after so long.
const ON_ITS_WAY: Duration = Duration::from_millis(100);
/// It is looked so often whether somebody is still served.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The last answers to receivers are on their way after so long.
const LAST_WORDS: Duration = Duration::from_millis(20);

/// Stays until the process is to stop. `apply` is told of new settings.
pub(super) async fn stay(shutdown: &Shutdown, mut reloads: Reloads, mut apply: impl FnMut(Reload)) {
    loop {
        tokio::select! {
            () = shutdown.wait() => return,
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
    service::stopping("draining");
    linger::hand_over(host).await;
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
