//! Queue of frames and data to be written to a program. Data in it is bounded by the agent's memory, frames by the
//! program: while many wait, nothing more is read from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use headwater_units::{Bytes, FlowId};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::blocks::Block;
use crate::client_frames::FromAgent;

/// Items that may wait before nothing more is read.
const MOST: usize = 4_096;

/// Something for a program.
#[derive(Debug)]
pub(crate) enum ToProgram {
    Frame(FromAgent),
    Data { flow: FlowId, name: u64, offset: Bytes, block: Block },
}

#[derive(Debug, Default)]
struct Queued {
    count: AtomicUsize,
    fell: Notify,
}

/// The end where things are put in.
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    sender: UnboundedSender<ToProgram>,
    queued: Arc<Queued>,
}

/// The end where they are taken out.
#[derive(Debug)]
pub(crate) struct Outgoing {
    receiver: UnboundedReceiver<ToProgram>,
    queued: Arc<Queued>,
}

pub(crate) fn outbox() -> (Outbox, Outgoing) {
    let (sender, receiver) = unbounded_channel();
    let queued = Arc::new(Queued::default());
    (Outbox { sender, queued: queued.clone() }, Outgoing { receiver, queued })
}

impl Outbox {
    pub(crate) fn say(&self, frame: FromAgent) {
        // A program that is gone has no use for it.
        self.put(ToProgram::Frame(frame));
    }

    /// Whether it waits now: a program that is gone takes nothing.
    pub(crate) fn put(&self, item: ToProgram) -> bool {
        self.queued.count.fetch_add(1, Ordering::Relaxed);
        self.sender.send(item).is_ok()
    }

    /// Returns when not too much waits.
    pub(crate) async fn has_room(&self) {
        loop {
            let fell = self.queued.fell.notified();
            if self.queued.count.load(Ordering::Acquire) < MOST {
                return;
            }
            fell.await;
        }
    }

    pub(crate) async fn closed(&self) {
        self.sender.closed().await;
    }
}

impl Outgoing {
    /// The next items, at most `most`; none if nobody will put anything in.
    pub(crate) async fn take(&mut self, into: &mut Vec<ToProgram>, most: usize) -> usize {
        let count = self.receiver.recv_many(into, most).await;
        let before = self.queued.count.fetch_sub(count, Ordering::AcqRel);
        if before >= MOST && before - count < MOST {
            self.queued.fell.notify_waiters();
        }
        count
    }

    /// Takes nothing in any more, and gives what is still there.
    pub(crate) fn close(&mut self) -> Vec<ToProgram> {
        self.receiver.close();
        std::iter::from_fn(|| self.receiver.try_recv().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_puts_something_in_hears_that_nobody_takes_it() {
        let (outbox, mut outgoing) = outbox();
        let end = || ToProgram::Frame(FromAgent::End { flow: 1 });
        assert!(outbox.put(end()) && outbox.put(end()));
        assert_eq!(outgoing.close().len(), 2, "what was there is given back");
        assert!(!outbox.put(end()));
    }
}
