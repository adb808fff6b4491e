//! Signals that pass this node: it obeys its own part, sends the other parts on, and answers for all of them.
//!
//! [`Signalling`] decides. A part that comes from another node is trusted if it has the controller's tag; an answer from a node below,
//! if it has the key that came with that node's part.

use core::net::SocketAddr;

use headwater_machine::SortedMap;
use headwater_transport::tree::{Say, Signalling, SignallingConfig};
use headwater_units::{FlowId, PathId, Time};
use headwater_wire::{
    Body, Control, FlowSecret, HeaderKey, Signal, Signalled, ToController, ToNode, answer_key, answer_tags,
    parse,
};

/// The sender of a signal to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Above {
    /// The controller, by its link.
    Controller(PathId),
    /// Another node.
    Node(SocketAddr),
}

/// The flow of this node for the signals of a cast.
struct Own {
    /// Key of what comes.
    signals: HeaderKey,
    /// Key of what this node answers.
    answers: HeaderKey,
}

/// The signals of a node.
pub(crate) struct Signals {
    own: SortedMap<FlowId, Box<Own>>,
    machine: Signalling<Above>,
}

impl Default for Signals {
    fn default() -> Self {
        Signals { own: SortedMap::default(), machine: Signalling::new(SignallingConfig::default()) }
    }
}

impl Signals {
    /// There is a tree whose orders may come by signals on this flow.
    pub(crate) fn open(&mut self, secret: &FlowSecret) {
        let (signals, answers) = (HeaderKey::new(&secret.key), answer_tags(answer_key(&secret.key)));
        self.own.insert(secret.flow, Box::new(Own { signals, answers }));
    }

    /// No tree has that flow any more.
    pub(crate) fn close(&mut self, flow: FlowId) {
        self.own.remove(&flow);
    }

    /// The key of this node's answers on a flow.
    pub(crate) fn answer_key(&self, flow: FlowId) -> Option<&HeaderKey> {
        self.own.get(&flow).map(|own| &own.answers)
    }

    pub(crate) fn wake(&self) -> Option<Time> {
        self.machine.wake()
    }

    /// The signal or the answer in a datagram of this flow, if its tag is right.
    pub(crate) fn read(&self, flow: FlowId, bytes: &[u8]) -> Option<Control> {
        let under = |key: &HeaderKey| match parse(bytes, key).ok()?.datagram.body {
            Body::Control(control) => Some(*control),
            _ => None,
        };
        let signal = self.own.get(&flow).and_then(|own| under(&own.signals));
        if let Some(Control::Node(ToNode::Signal(signal))) = signal
            && signal.flow == flow
        {
            return Some(Control::Node(ToNode::Signal(signal)));
        }
        match self.machine.answers_on(flow).map(answer_tags).as_ref().and_then(under) {
            Some(Control::Controller(ToController::Signalled(answer))) if answer.flow == flow => {
                Some(Control::Controller(ToController::Signalled(answer)))
            }
            _ => None,
        }
    }

    /// A signal has come; `obeyed`: this node does as its own part says.
    pub(crate) fn hear(&mut self, now: Time, above: Above, signal: Signal, obeyed: bool) {
        self.machine.hear(now, above, signal, obeyed);
    }

    /// A node below has answered.
    pub(crate) fn answered(&mut self, now: Time, answer: &Signalled) {
        self.machine.answered(now, answer);
    }

    /// Returns the next message to send now; call it until it returns nothing.
    pub(crate) fn poll(&mut self, now: Time) -> Option<Say<Above>> {
        self.machine.poll(now)
    }
}
