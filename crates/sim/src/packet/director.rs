//! A controller that follows a script: for experiments that state every flow and its weight.
//!
//! Answers a request for a named object with the flows, weights and sources that were written down for it, and changes
//! weights when told. Everything else about a task is the machines' own business; nothing is planned. The experiments on
//! single flows (PPUSH Fig. 2 to 5) run on it; whatever depends on Algorithm 1 runs on the real controller.

use std::collections::{BTreeMap, VecDeque};

use headwater_transport::{Endpoint, Input, Output, Packet};
use headwater_units::{Bytes, Duration, FlowId, FlowKey, NodeId, ObjectId, PathId, TaskId, Theta, Time};
use headwater_wire::{Body, Control, FlowGrant, FlowRole, Push, Request};

/// What is written down for one object.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) object: ObjectId,
    pub(super) bytes: Bytes,
    pub(super) symbol_size: u16,
    /// Source, where it is, weight: one flow each.
    pub(super) flows: Vec<(NodeId, PathId, Theta)>,
}

/// The scripted controller.
pub(super) struct Director {
    parts: BTreeMap<String, Part>,
    feedback_every: Duration,
    outputs: VecDeque<Output>,
}

impl Director {
    pub(super) fn new(parts: BTreeMap<String, Part>, feedback_every: Duration) -> Self {
        Director { parts, feedback_every, outputs: VecDeque::new() }
    }

    fn say(&mut self, path: PathId, control: Control) {
        self.outputs.push_back(Output::Transmit(Packet::control(path, control)));
    }

    fn on_request(&mut self, path: PathId, request: Request) {
        let Some(part) = self.parts.get(&request.name).cloned() else { return };
        // The request's number names the task: said again, it is answered in the same words.
        let task = TaskId(request.request);
        let of = part.flows.len() as u8;
        let mut flows = Vec::new();
        for (index, &(node, source, theta)) in part.flows.iter().enumerate() {
            let flow = FlowId(request.request << 8 | index as u64);
            let key = FlowKey([index as u8; 32]);
            self.say(
                source,
                Control::Push(Push {
                    task,
                    flow,
                    object: part.object,
                    bytes: part.bytes,
                    symbol_size: part.symbol_size,
                    key,
                    theta,
                    class: request.class,
                    receiver: request.receiver,
                    delivery: request.delivery,
                    index: index as u8,
                    of,
                    at: Vec::new(),
                    role: FlowRole::Single,
                }),
            );
            flows.push(FlowGrant { flow, node, at: Vec::new(), key, index: index as u8, of, group: None });
        }
        let accepted = Control::Accepted {
            request: request.request,
            task,
            object: part.object,
            bytes: part.bytes,
            symbol_size: part.symbol_size,
            feedback_every: self.feedback_every,
            flows,
            delivery: request.delivery,
        };
        self.say(path, accepted);
    }
}

impl Endpoint for Director {
    fn handle(&mut self, _now: Time, input: Input) {
        let Input::Packet(Packet { path, datagram, .. }) = input else { return };
        let Body::Control(control) = datagram.body else { return };
        match *control {
            Control::Request(request) => self.on_request(path, request),
            Control::Fin { task, .. } => self.say(path, Control::FinAck { task }),
            _ => {}
        }
    }

    fn poll(&mut self, _now: Time) -> Output {
        self.outputs.pop_front().unwrap_or(Output::Wake(None))
    }
}
