//! Signals that pass this node: it does as its own part says, sends the others on, and answers for all of them.
//!
//! [`Signalling`] decides. A part that comes by way of another node is believed by the tag that the controller made; what nodes below
//! answer, by the key that came with their part.

use std::net::SocketAddr;

use headwater_machine::SortedMap;
use headwater_transport::tree::{Say, Signalling, SignallingConfig};
use headwater_units::{FlowId, PathId, Time};
use headwater_wire::{Body, Control, FlowSecret, HeaderKey, Signal, answer_key, answer_tags, parse};

use super::Engine;
use crate::node::Said;
use crate::socket::PathAddr;

/// Who told this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Above {
    Controller(PathId),
    Node(SocketAddr),
}

/// The flow of this node for the signals of a cast.
struct Own {
    /// Of what comes.
    signals: HeaderKey,
    /// Of what it answers.
    answers: HeaderKey,
}

/// The signals of a node.
pub(super) struct Signals {
    own: SortedMap<FlowId, Box<Own>>,
    machine: Signalling<Above>,
}

impl Default for Signals {
    fn default() -> Self {
        Signals { own: SortedMap::default(), machine: Signalling::new(SignallingConfig::default()) }
    }
}

impl Signals {
    /// A tree has been planted whose orders may come by signals.
    pub(super) fn open(&mut self, secret: &FlowSecret) {
        let (signals, answers) = (HeaderKey::new(&secret.key), answer_tags(answer_key(&secret.key)));
        self.own.insert(secret.flow, Box::new(Own { signals, answers }));
    }

    /// No tree has that flow any more.
    pub(super) fn close(&mut self, flow: FlowId) {
        self.own.remove(&flow);
    }

    pub(super) fn wake(&self) -> Option<Time> {
        self.machine.wake()
    }
}

impl Engine {
    /// A datagram of a flow that is no tree's and no transfer's; whether it is one of signals.
    pub(super) fn on_signal_datagram(
        &mut self,
        now: Time,
        flow: FlowId,
        bytes: &[u8],
        from: SocketAddr,
    ) -> bool {
        let signals = &mut self.relays.signals;
        let lent = signals.machine.answers_on(flow).map(answer_tags);
        let own = signals.own.get(&flow);
        let read = |key: &HeaderKey| match parse(bytes, key).ok()?.datagram.body {
            Body::Control(control) => Some(*control),
            _ => None,
        };
        if let Some(Control::Signal(signal)) = own.and_then(|own| read(&own.signals))
            && signal.flow == flow
        {
            self.on_signal(now, Above::Node(from), *signal);
            return true;
        }
        if let Some(Control::Signalled(answer)) = lent.as_ref().and_then(read)
            && answer.flow == flow
        {
            signals.machine.answered(now, &answer);
            self.drive_signals(now);
            return true;
        }
        false
    }

    /// The controller tells this node, and others through it.
    pub(super) fn on_controllers_signal(&mut self, now: Time, path: PathId, signal: Signal) {
        self.on_signal(now, Above::Controller(path), signal);
    }

    fn on_signal(&mut self, now: Time, above: Above, signal: Signal) {
        let mut obeyed = true;
        for way in &signal.ways {
            obeyed &= self.lead(now, signal.flow, way);
        }
        self.relays.signals.machine.hear(now, above, signal, obeyed);
        self.drive_signals(now);
    }

    /// Sends what is to be sent.
    pub(super) fn drive_signals(&mut self, now: Time) {
        while let Some(say) = self.relays.signals.machine.poll(now) {
            match say {
                Say::Forward { to, datagram } => self.send_bytes(PathAddr::to(to), &datagram),
                Say::Answer { to: Above::Controller(path), answer } => {
                    let _ = self.said.send(Said::Control(path, Control::Signalled(answer)));
                }
                Say::Answer { to: Above::Node(at), answer } => {
                    let Some(own) = self.relays.signals.own.get(&answer.flow) else { continue };
                    let (flow, key) = (answer.flow, own.answers.clone());
                    let body = Body::Control(Box::new(Control::Signalled(answer)));
                    self.send_alone(PathAddr::to(at), flow, body, &key);
                }
            }
        }
    }
}
