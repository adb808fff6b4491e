//! Settings that a running daemon can change.

use std::collections::BTreeMap;
use std::future::pending;

use headwater_units::{BitRate, Bytes, Duration};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// New settings of a running daemon. Any other changed setting needs a restart.
#[derive(Clone, Debug, PartialEq)]
pub struct Reload {
    /// As in [`Common::limit`](super::Common::limit).
    pub limit: Option<BitRate>,
    /// As in [`Common::gentle`](super::Common::gentle), of what is fetched from now on.
    pub gentle: bool,
    /// As in [`Common::rack`](super::Common::rack).
    pub rack: Option<(String, Option<BitRate>)>,
    /// As in [`Common::labels`](super::Common::labels).
    pub labels: BTreeMap<String, String>,
    /// The most the store may hold; what is there stays.
    pub quota: Option<Bytes>,
    /// As in [`Config::drain`](crate::Config::drain).
    pub drain: Duration,
}

/// The channel of new settings for a daemon.
#[derive(Debug)]
pub struct Reloads(UnboundedReceiver<Reload>);

/// The other end of [`Reloads`].
#[derive(Clone, Debug)]
pub struct ReloadTrigger(UnboundedSender<Reload>);

impl Reloads {
    /// No new settings yet, and the means to hand them over.
    pub fn channel() -> (ReloadTrigger, Reloads) {
        let (to, from) = unbounded_channel();
        (ReloadTrigger(to), Reloads(from))
    }

    /// The next ones; never if nobody can send any.
    pub async fn next(&mut self) -> Reload {
        match self.0.recv().await {
            Some(reload) => reload,
            None => pending().await,
        }
    }
}

impl ReloadTrigger {
    /// Hands new settings over; a daemon that has ended needs none.
    pub fn send(&self, reload: Reload) {
        let _ = self.0.send(reload);
    }
}
