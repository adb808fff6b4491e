//! A controller that follows a script: for experiments that state every flow and its weight, and for all whose receivers pull.
//!
//! Answers a request for a named object with the flows, weights and sources that were written down for it. Everything else
//! about a task is the machines' own business; nothing is planned. The experiments on single flows (PPUSH Fig. 2 to 5) and
//! those of SCDP run on it; whatever depends on Algorithm 1 runs on the real controller.
//!
//! Where a group is served by trees (Datacast), each is a flow of its source, and the same one to every receiver.
//!
//! Several receivers of one source are a group (SCDP §III-E): the source is told of the group's flow, with the flows of all of
//! them, by the first of their requests, and by each of its receiver's. Who asks again after a new start has a flow of its own.

use std::collections::{BTreeMap, VecDeque};

use headwater_controller::{ControllerCommand, ControllerEvent};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_units::{
    BitRate, Bytes, Duration, FlowId, FlowKey, NodeId, ObjectId, PathId, TaskId, Theta, Time,
};
use headwater_wire::{Body, Control, FlowGrant, FlowRole, Push, Request, ToController, ToReceiver, ToSource};

/// Delivery of one object.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) object: ObjectId,
    pub(super) bytes: Bytes,
    pub(super) symbol_size: u16,
    /// Source, where it is, weight: one flow each to every receiver.
    pub(super) flows: Vec<(NodeId, PathId, Theta)>,
    pub(super) receivers: Vec<NodeId>,
    /// Trees that serve all of them, and what the links of each carry; none where each has flows.
    pub(super) trees: Vec<Option<BitRate>>,
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
    /// The place of a flow in a task of `sources` sources.
    pub(super) fn of(flow: FlowId, sources: usize, receivers: usize) -> Self {
        let number = (flow.0 & 0xff) as usize;
        match number < sources * receivers {
            true => FlowPlace::Between { source: number % sources, receiver: number / sources },
            false => FlowPlace::Group,
        }
    }
}

/// Which of its group's trees a flow is.
pub(super) fn tree_of(flow: FlowId) -> usize {
    (flow.0 & 0xff) as usize
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
    outputs: VecDeque<Output<ControllerEvent>>,
}

impl Director {
    pub(super) fn new(parts: BTreeMap<String, Part>, feedback_every: Duration) -> Self {
        Director { parts, feedback_every, groups: BTreeMap::new(), outputs: VecDeque::new() }
    }

    fn say(&mut self, path: PathId, control: impl Into<Control>) {
        self.outputs.push_back(Output::Transmit(Packet::control(path, control)));
    }

    fn on_request(&mut self, path: PathId, request: Request) {
        let Some(part) = self.parts.get(&request.name).cloned() else { return };
        let Some(receiver) = part.receivers.iter().position(|node| *node == request.receiver) else { return };
        if !part.trees.is_empty() {
            let flows = self.push_trees(&part, &request);
            return self.accept(path, &part, &request, flows);
        }
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
        self.accept(path, &part, &request, flows);
    }

    /// Sends a receiver the grants of its flows.
    fn accept(&mut self, path: PathId, part: &Part, request: &Request, flows: Vec<FlowGrant>) {
        let accepted = Control::Receiver(ToReceiver::Accepted {
            request: request.request,
            // The request's number names the task: a repeated request gets the same answer.
            task: TaskId(request.request),
            object: part.object,
            bytes: part.bytes,
            symbol_size: part.symbol_size,
            feedback_every: self.feedback_every,
            version: 0,
            flows,
            delivery: request.delivery.unwrap_or_default(),
        });
        self.say(path, accepted);
    }

    /// Sends the source the orders of the group's trees, in the words of the first request; returns the grants for its
    /// receivers.
    fn push_trees(&mut self, part: &Part, request: &Request) -> Vec<FlowGrant> {
        let opened_by = *self.groups.entry(part.object).or_insert(request.request);
        let first = Request { request: opened_by, receiver: part.receivers[0], ..request.clone() };
        // Nothing depends on the flow's own weight and place but its number.
        let of_trees = Part { flows: vec![part.flows[0]; part.trees.len()], ..part.clone() };
        let group = flow(opened_by, 0);
        let push = |(index, most): (usize, &Option<BitRate>)| {
            let role = FlowRole::Tree { group, most: *most };
            self.push(&of_trees, &first, index, flow(opened_by, index), role)
        };
        part.trees.iter().enumerate().map(push).collect()
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

    /// Sends a source the order of a flow; returns the grant for its receiver.
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
            FlowRole::Single | FlowRole::Group { .. } | FlowRole::Tree { .. } | FlowRole::Relay => None,
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
        self.say(source, ToSource::Push(push));
        FlowGrant { flow, node, at: Vec::new(), key, index, of, group, relays: false }
    }
}

impl Endpoint for Director {
    type Command = ControllerCommand;
    type Event = ControllerEvent;

    fn handle(&mut self, _now: Time, input: Input<ControllerCommand>) {
        let Input::Packet(Packet { path, datagram, .. }) = input else { return };
        let Body::Control(control) = datagram.body else { return };
        match *control {
            Control::Controller(ToController::Request(request)) => self.on_request(path, request),
            Control::Controller(ToController::Fin { task, .. }) => {
                self.say(path, ToReceiver::FinAck { task })
            }
            _ => {}
        }
    }

    fn poll(&mut self, _now: Time) -> Output<ControllerEvent> {
        self.outputs.pop_front().unwrap_or(Output::Wake(None))
    }
}

#[cfg(test)]
mod tests {
    use headwater_wire::{Class, Delivery, SpreadRule};

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

    #[test]
    fn every_receiver_of_a_group_is_granted_the_same_trees_and_the_source_hears_the_same_of_them() {
        let node = |n: u8| NodeId([n; 32]);
        let part = Part {
            object: ObjectId([1; 32]),
            bytes: Bytes::mib(1),
            symbol_size: 1024,
            flows: vec![(node(1), PathId(7), Theta::ONE)],
            receivers: vec![node(2), node(3)],
            trees: vec![Some(BitRate::new(7)), None],
        };
        let parts = BTreeMap::from([("object".to_owned(), part)]);
        let mut director = Director::new(parts, Duration::from_secs(1));
        let mut asks = |receiver: u8, request: u64| {
            let delivery = Some(Delivery::Trees { credit: 16 });
            let request = Request {
                request,
                name: "object".to_owned(),
                receiver: node(receiver),
                room: 1024,
                class: Class::Bulk,
                spread: SpreadRule::Residue,
                max_sources: None,
                delivery,
                trims: false,
                passes_on: false,
            };
            director.handle(
                Time::ZERO,
                Input::Packet(Packet::control(PathId(9), ToController::Request(request))),
            );
            let (mut pushes, mut granted) = (Vec::new(), Vec::new());
            while let Output::Transmit(packet) = director.poll(Time::ZERO) {
                let Body::Control(control) = packet.datagram.body else { panic!("{packet:?}") };
                match *control {
                    Control::Source(ToSource::Push(push)) => pushes.push((packet.path, push)),
                    Control::Receiver(ToReceiver::Accepted { flows, .. }) => {
                        granted = flows.iter().map(|it| (it.flow, it.index)).collect()
                    }
                    other => panic!("{other:?}"),
                }
            }
            (pushes, granted)
        };
        let (first, second) = (asks(2, 0x100), asks(3, 0x200));
        assert_eq!(first, second);
        assert_eq!(
            first.1.iter().map(|(flow, index)| (tree_of(*flow), *index)).collect::<Vec<_>>(),
            [(0, 0), (1, 1)]
        );
        let role = |most| FlowRole::Tree { group: flow(0x100, 0), most };
        let roles = first.0.iter().map(|(_, push)| push.role.clone());
        assert!(roles.eq([role(Some(BitRate::new(7))), role(None)]));
        assert!(first.0.iter().all(|(path, push)| *path == PathId(7) && push.of == 2));
    }
}
