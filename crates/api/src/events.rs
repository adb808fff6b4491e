//! Events of a node, for a watcher ([`crate::Node::watch`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater_units::{Bytes, ObjectId};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender, channel};

use super::AppError;

/// Events that wait for one watcher; one that falls further behind is told how many it has missed.
const WAITING: usize = 1024;

/// An event at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An object is offered to others from now on, or under other names than before.
    ObjectOffered {
        /// Its id.
        object: ObjectId,
        /// Its size.
        bytes: Bytes,
        /// Its names, in alphabetical order; a file of a folder has none.
        names: Vec<String>,
    },
    /// An object is offered no longer: it was removed, or its copy is not what it was.
    ObjectWithdrawn {
        /// Its id.
        object: ObjectId,
    },
    /// A put, get or cast has begun.
    TransferBegun(TransferId),
    /// A transfer has ended.
    TransferEnded {
        /// Which one.
        transfer: TransferId,
        /// Its outcome.
        outcome: Outcome,
    },
    /// The node was invited to a cast, and fetches the object now; this is a transfer too.
    CastJoined {
        /// The object.
        object: ObjectId,
        /// The name by which it is cast.
        name: String,
    },
    /// The node is connected to its controller.
    ControllerConnected {
        /// Its address, `host:port`.
        at: String,
    },
    /// The connection to the controller is lost; it is dialled again until it answers.
    ControllerLost {
        /// Its address, `host:port`.
        at: String,
        /// The reason.
        reason: String,
    },
    /// The watcher was too slow: this many events before the next one are lost to it.
    Missed(u64),
    /// The node was closed; this is the last event.
    Closed,
}

/// The kind of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    /// Something becomes an object of this node.
    Put,
    /// An object is fetched by this node.
    Get,
    /// An object goes to many nodes, by this node's wish.
    Cast,
}

/// A transfer of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferId {
    /// Counts the node's transfers since it was opened, from 1.
    pub number: u64,
    /// Its kind.
    pub kind: TransferKind,
    /// The name or id of the object, or what is put.
    pub what: String,
}

/// The outcome of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The transfer is complete.
    Done {
        /// The object's id, 64 hex digits.
        object: String,
        /// The object's size.
        bytes: Bytes,
    },
    /// The transfer failed or was cancelled.
    Failed {
        /// One word for programs, as [`AppError::kind`]; `interrupted` if it was cancelled.
        kind: &'static str,
        /// The error, and what to do.
        message: String,
    },
}

/// The events of a node as they come, from the moment it is watched.
#[derive(Debug)]
pub struct Events {
    heard: Receiver<Event>,
    over: bool,
}

impl Events {
    /// The next event; `None` once the node is closed. May be dropped and asked again: nothing is lost.
    pub async fn next(&mut self) -> Option<Event> {
        if self.over {
            return None;
        }
        match self.heard.recv().await {
            Ok(event) => {
                self.over = event == Event::Closed;
                Some(event)
            }
            Err(RecvError::Lagged(missed)) => Some(Event::Missed(missed)),
            Err(RecvError::Closed) => None,
        }
    }
}

/// Where events are told, and transfers numbered. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct EventFeed {
    to: Sender<Event>,
    transfers: Arc<AtomicU64>,
}

impl EventFeed {
    pub(crate) fn new() -> Self {
        EventFeed { to: channel(WAITING).0, transfers: Arc::default() }
    }

    /// Tells all who watch; nobody need.
    pub(crate) fn tell(&self, event: Event) {
        let _ = self.to.send(event);
    }

    pub(crate) fn watch(&self) -> Events {
        Events { heard: self.to.subscribe(), over: false }
    }

    /// A transfer begins; it ends with [`Ongoing::end`], or is cancelled by dropping that.
    pub(crate) fn begin(&self, kind: TransferKind, what: &str) -> Ongoing {
        let number = self.transfers.fetch_add(1, Ordering::Relaxed) + 1;
        let transfer = TransferId { number, kind, what: what.to_owned() };
        self.tell(Event::TransferBegun(transfer.clone()));
        Ongoing { feed: self.clone(), transfer: Some(transfer) }
    }
}

/// A transfer that has begun.
#[derive(Debug)]
pub(crate) struct Ongoing {
    feed: EventFeed,
    /// Until it has ended.
    transfer: Option<TransferId>,
}

impl Ongoing {
    /// `done` names the object, and its size.
    pub(crate) fn end<T>(mut self, result: &Result<T, AppError>, done: impl FnOnce(&T) -> (String, u64)) {
        self.tell(match result {
            Ok(value) => {
                let (object, bytes) = done(value);
                Outcome::Done { object, bytes: Bytes::new(bytes) }
            }
            Err(error) => Outcome::Failed { kind: error.kind(), message: error.to_string() },
        });
    }

    fn tell(&mut self, outcome: Outcome) {
        if let Some(transfer) = self.transfer.take() {
            self.feed.tell(Event::TransferEnded { transfer, outcome });
        }
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        let error = AppError::Interrupted { resumable: true };
        self.tell(Outcome::Failed { kind: error.kind(), message: error.to_string() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_watcher_is_told_how_much_it_missed_and_hears_the_rest_to_the_end() {
        let feed = EventFeed::new();
        let mut events = feed.watch();
        for at in 0..WAITING + 10 {
            feed.tell(Event::ControllerConnected { at: at.to_string() });
        }
        feed.tell(Event::Closed);
        assert_eq!(events.next().await, Some(Event::Missed(11)));
        assert_eq!(events.next().await, Some(Event::ControllerConnected { at: "11".to_owned() }));
        let mut last = None;
        while let Some(event) = events.next().await {
            last = Some(event);
        }
        assert_eq!(last, Some(Event::Closed));
    }

    #[tokio::test]
    async fn a_transfer_that_is_dropped_has_ended_too() {
        let feed = EventFeed::new();
        let mut events = feed.watch();
        drop(feed.begin(TransferKind::Get, "x"));
        feed.begin(TransferKind::Put, "y").end(&Ok(()), |()| ("id".to_owned(), 7));
        let mut outcomes = Vec::new();
        for _ in 0..4 {
            if let Some(Event::TransferEnded { transfer, outcome }) = events.next().await {
                outcomes.push((transfer.number, outcome));
            }
        }
        let [(1, Outcome::Failed { kind: "interrupted", .. }), (2, Outcome::Done { object, bytes })] =
            &outcomes[..]
        else {
            panic!("{outcomes:?}")
        };
        assert_eq!((object.as_str(), *bytes), ("id", Bytes::new(7)));
    }
}
