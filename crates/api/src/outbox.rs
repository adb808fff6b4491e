//! The bounded queue of messages to a peer.

use headwater_control::Link;
use headwater_node::Role;
use headwater_wire::Control;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Messages that may wait for a peer that has dialled this process: it may be anybody, and there are many.
const FOR_A_CALLER: usize = 4096;
/// The same for those that this process has dialled: a node sends its controller all that it holds at once.
const FOR_OTHERS: usize = 1 << 18;

/// Queue of messages to one peer. Clones are the same.
#[derive(Clone)]
pub(crate) struct Outbox {
    queue: Sender<Control>,
    /// `None`: this process itself.
    link: Option<Link>,
}

impl Outbox {
    /// For the other end of a link.
    pub(crate) fn to(link: &Link, role: Role) -> (Outbox, Receiver<Control>) {
        let most = match role {
            Role::Caller => FOR_A_CALLER,
            Role::Controller | Role::Source => FOR_OTHERS,
        };
        let (queue, messages) = channel(most);
        (Outbox { queue, link: Some(link.clone()) }, messages)
    }

    /// Within this process.
    pub(crate) fn here() -> (Outbox, Receiver<Control>) {
        let (queue, messages) = channel(FOR_OTHERS);
        (Outbox { queue, link: None }, messages)
    }

    /// Says something; false if nobody will hear it. The link of a peer that does not read its messages is closed.
    pub(crate) fn say(&self, control: impl Into<Control>) -> bool {
        let control = control.into();
        if self.link.as_ref().is_some_and(|link| control.version() > link.version()) {
            return true;
        }
        let sent = self.queue.try_send(control);
        if let (Err(tokio::sync::mpsc::error::TrySendError::Full(_)), Some(link)) = (&sent, &self.link) {
            tracing::warn!(peer = %link.peer(), "link closed: the peer does not read what is said to it");
            link.close("messages are not read");
        }
        sent.is_ok()
    }
}
