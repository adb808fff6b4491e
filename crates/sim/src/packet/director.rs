//! A controller that follows a script: for experiments that state every flow and its weight, and for all whose receivers pull.
//!
//! Answers a request for a named object with the flows, weights and sources that were written down for it. Everything else
//! about a task is the machines' own business; nothing is planned. The experiments on single flows (PPUSH Fig. 2 to 5) and
//! those of SCDP run on it; whatever depends on Algorithm 1 runs on the real controller.
//!
//! Several receivers of one source are a group (SCDP §III-E): the source is told of the group's flow, with the flows of all of
//! them, by the first of their requests, and by each of its receiver's. Who asks again after a new start has a flow of its own.

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
    /// Source, where it is, weight: one flow each to every receiver.
    pub(super) flows: Vec<(NodeId, PathId, Theta)>,
    pub(super) receivers: Vec<NodeId>,
}

/// Which of a task's flows one is: its number's last eight bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowPlace {
    /// From this source to this receiver, by their places in the task.
    Between { source: usize, receiver: usize },
    /// To all receivers.
    Group,
}

impl FlowPlace {
    /// The place of a flow in a task of so many sources.
    pub(super) fn of(flow: FlowId, sources: usize, receivers: usize) -> Self {
        let number = (flow.0 & 0xff) as usize;
        match number < sources * receivers {
            true => FlowPlace::Between { source: number % sources, receiver: number / sources },
            false => FlowPlace::Group,
        }
    }
}

/// The flow of a request that has this number within its task.
fn flow(request: u64, number: usize) -> FlowId {
    FlowId(request << 8 | number as u64)
}

/// The scripted controller.
pub(super) struct Director {
    parts: BTreeMap<String, Part>,
    feedback_every: Duration,
    /// The request that opened each group.
    groups: BTreeMap<ObjectId, u64>,
    outputs: VecDeque<Output>,
}

impl Director {
    pub(super) fn new(parts: BTreeMap<String, Part>, feedback_every: Duration) -> Self {
        Director { parts, feedback_every, groups: BTreeMap::new(), outputs: VecDeque::new() }
    }

    fn say(&mut self, path: PathId, control: Control) {
        self.outputs.push_back(Output::Transmit(Packet::control(path, control)));
    }

    fn on_request(&mut self, path: PathId, request: Request) {
        let Some(part) = self.parts.get(&request.name).cloned() else { return };
        let Some(receiver) = part.receivers.iter().position(|node| *node == request.receiver) else { return };
        let (of, receivers) = (part.flows.len(), part.receivers.len());
        let number = |index: usize| receiver * of + index;
        let group = self.group_of(&part, &request);
        let of_group = group.map(|group| {
            let members = (0..receivers).map(|member| flow(request.request, member)).collect();
            // Said in the same words with each request.
            let request = Request { receiver: part.receivers[0], ..request.clone() };
            self.push(&part, &request, 0, group, FlowRole::Group { members })
        });
        let mut flows = Vec::new();
        for index in 0..of {
            let flow = flow(request.request, number(index));
            let role = group.map_or(FlowRole::Single, |group| FlowRole::Member { group });
            flows.push(self.push(&part, &request, index, flow, role));
        }
        flows.extend(of_group);
        let accepted = Control::Accepted {
            request: request.request,
            // The request's number names the task: said again, it is answered in the same words.
            task: TaskId(request.request),
            object: part.object,
            bytes: part.bytes,
            symbol_size: part.symbol_size,
            feedback_every: self.feedback_every,
            flows,
            delivery: request.delivery.unwrap_or_default(),
        };
        self.say(path, accepted);
    }

    /// The flow of the group that the receiver belongs to.
    fn group_of(&mut self, part: &Part, request: &Request) -> Option<FlowId> {
        let (sources, receivers) = (part.flows.len(), part.receivers.len());
        if sources > 1 || receivers < 2 {
            return None;
        }
        let opened_by = *self.groups.entry(part.object).or_insert(request.request);
        (opened_by == request.request).then(|| flow(opened_by, receivers))
    }

    /// Tells a source of a flow; says what its receiver is told of it.
    fn push(
        &mut self,
        part: &Part,
        request: &Request,
        index: usize,
        flow: FlowId,
        role: FlowRole,
    ) -> FlowGrant {
        let (node, source, theta) = part.flows[index];
        let (index, of) = (index as u8, part.flows.len() as u8);
        let key = FlowKey([flow.0 as u8; 32]);
        let group = match role {
            FlowRole::Member { group } => Some(group),
            FlowRole::Single | FlowRole::Group { .. } | FlowRole::Tree { .. } => None,
        };
        let push = Push {
            task: TaskId(request.request),
            flow,
            object: part.object,
            bytes: part.bytes,
            symbol_size: part.symbol_size,
            key,
            theta,
            class: request.class,
            receiver: request.receiver,
            delivery: request.delivery.unwrap_or_default(),
            index,
            of,
            at: Vec::new(),
            start: None,
            role,
        };
        self.say(source, Control::Push(push));
        FlowGrant { flow, node, at: Vec::new(), key, index, of, group }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_has_its_place_in_the_last_bits_of_its_number() {
        let request = 7 << 24 | 3 << 8;
        let place = |number, sources, receivers| FlowPlace::of(flow(request, number), sources, receivers);
        assert_eq!(place(2, 3, 1), FlowPlace::Between { source: 2, receiver: 0 });
        assert_eq!(place(5, 2, 3), FlowPlace::Between { source: 1, receiver: 2 });
        assert_eq!(place(2, 1, 3), FlowPlace::Between { source: 0, receiver: 2 });
        assert_eq!(place(3, 1, 3), FlowPlace::Group);
    }
}
