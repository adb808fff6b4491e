//! A controller on a bench: inputs by hand, outputs sorted by who gets them.

use std::collections::{BTreeMap, BTreeSet};

use headwater_controller::{
    Controller, ControllerCommand, ControllerConfig, ControllerEvent, ControllerView, FlowStatus, TaskRecord,
};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_testkit::messages::node_info;
use headwater_units::{
    BitRate, BlockIndex, Bytes, Duration, FlowId, NodeId, ObjectId, Packets, PathId, Symbols, TaskId, Theta,
    Time,
};
use headwater_wire::{
    Body, CastWish, Class, Control, Delivery, Ecn, FlowGrant, FlowReport, FlowView, Holding, MarkSignal,
    NodeInfo, Push, Request, SpreadRule, ToController, ToReceiver, ToSource, Urgency,
};

pub(crate) fn node(n: u8) -> NodeId {
    NodeId([n; 32])
}

pub(crate) fn object(n: u8) -> ObjectId {
    ObjectId([n; 32])
}

/// Node `n` speaks over path `n`.
pub(crate) fn path(n: u8) -> PathId {
    PathId(u32::from(n))
}

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Introduction of node `n` in its first life.
pub(crate) fn info(n: u8) -> NodeInfo {
    node_info(node(n), format!("node-{n}"), n)
}

pub(crate) fn in_rack(n: u8, rack: &str) -> NodeInfo {
    NodeInfo { rack: Some((rack.to_owned(), None)), ..info(n) }
}

/// Object `n` is named "object-n" and 10 MiB long.
pub(crate) fn holding(n: u8) -> Holding {
    Holding { object: object(n), bytes: Bytes::mib(10), name: Some(format!("object-{n}")) }
}

pub(crate) fn request(receiver: u8, request: u64, name: &str) -> Request {
    Request {
        request,
        name: name.to_owned(),
        receiver: node(receiver),
        room: 1424,
        class: Class::Bulk,
        spread: SpreadRule::Listed,
        max_sources: None,
        delivery: Some(Delivery::Push),
        trims: false,
        passes_on: false,
    }
}

/// Content of the answer to a receiver's accepted request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Accepted {
    pub(crate) task: TaskId,
    pub(crate) object: ObjectId,
    pub(crate) symbol_size: u16,
    pub(crate) flows: Vec<FlowGrant>,
}

pub(crate) struct Bench {
    pub(crate) controller: Controller,
    pub(crate) now: Time,
    /// Since the last look.
    pub(crate) sent: Vec<(PathId, Control)>,
    /// Since the last look.
    pub(crate) events: Vec<ControllerEvent>,
    pub(crate) wake: Option<Time>,
    /// Under which numbers nodes have followed invitations.
    pub(crate) requests: Vec<(u8, u64)>,
    /// How casts by trees are asked for.
    pub(crate) wish: CastWish,
    /// Paths that were opened already.
    opened: BTreeSet<PathId>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Bench::with(ControllerConfig::default())
    }

    pub(crate) fn with(config: ControllerConfig) -> Self {
        let controller = Controller::new(config, [7; 32]);
        Bench {
            controller,
            now: Time::ZERO,
            sent: Vec::new(),
            events: Vec::new(),
            wake: None,
            requests: Vec::new(),
            wish: CastWish::Best,
            opened: BTreeSet::new(),
        }
    }

    /// Nodes `from..` hold object 1 and are here.
    pub(crate) fn holders(mut self, nodes: impl IntoIterator<Item = u8>) -> Self {
        for n in nodes {
            self.join(n);
            self.say(n, ToController::Hold(holding(1)));
        }
        self
    }

    pub(crate) fn join(&mut self, n: u8) {
        self.say(n, ToController::Hello(info(n)));
    }

    pub(crate) fn say(&mut self, n: u8, control: impl Into<Control>) {
        self.say_at(path(n), control);
    }

    /// Opens a path by the key of its node ([`path`]), if it is not open.
    fn open(&mut self, path: PathId) {
        self.open_as(path, path.0 as u8);
    }

    /// Opens a path by the key of node `n`, if it is not open.
    pub(crate) fn open_as(&mut self, path: PathId, n: u8) {
        if self.opened.insert(path) {
            self.command(ControllerCommand::PathOpened { path, node: node(n), network: None });
        }
    }

    /// Opens the paths of these nodes, which speak from a network.
    pub(crate) fn open_from(&mut self, network: [u8; 4], nodes: impl IntoIterator<Item = u8>) {
        for n in nodes {
            self.opened.insert(path(n));
            let opened =
                ControllerCommand::PathOpened { path: path(n), node: node(n), network: Some(network.into()) };
            self.command(opened);
        }
    }

    pub(crate) fn say_at(&mut self, path: PathId, control: impl Into<Control>) {
        self.open(path);
        self.controller.handle(self.now, Input::Packet(Packet::control(path, control)));
        self.poll();
    }

    pub(crate) fn lose_path(&mut self, n: u8) {
        self.opened.remove(&path(n));
        self.command(ControllerCommand::PathLost { path: path(n) });
    }

    pub(crate) fn command(&mut self, command: ControllerCommand) {
        self.controller.handle(self.now, Input::Command(command));
        self.poll();
    }

    fn poll(&mut self) {
        for _ in 0..10_000 {
            match self.controller.poll(self.now) {
                Output::Transmit(Packet { path, ecn, datagram }) => {
                    assert_eq!(
                        (ecn, datagram.class, datagram.flow),
                        (Ecn::NotEct, Class::Control, FlowId(0))
                    );
                    let Body::Control(control) = datagram.body else {
                        panic!("a controller sends control messages only")
                    };
                    assert_eq!(
                        Control::parse(&control.to_bytes()).as_ref(),
                        Ok(&*control),
                        "it is within bounds"
                    );
                    self.sent.push((path, *control));
                }
                Output::Event(event) => self.events.push(event),
                Output::Wake(wake) => {
                    assert!(wake.is_none_or(|at| at > self.now), "nothing is left to do now");
                    self.wake = wake;
                    return;
                }
            }
        }
        panic!("the controller does not come to rest");
    }

    /// Lets time pass, waking the controller exactly when it wants to be.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.wake.filter(|at| *at <= end) {
            self.now = at;
            self.poll();
        }
        self.now = end;
        self.poll();
    }

    /// Messages to node `n` since the last look.
    pub(crate) fn heard(&mut self, n: u8) -> Vec<Control> {
        let (mine, rest) = std::mem::take(&mut self.sent).into_iter().partition(|(p, _)| *p == path(n));
        self.sent = rest;
        let mine: Vec<(PathId, Control)> = mine;
        mine.into_iter().map(|(_, control)| control).collect()
    }

    /// The orders to push that node `n` was sent since the last look.
    pub(crate) fn pushes(&mut self, n: u8) -> Vec<Push> {
        let push =
            |control| if let Control::Source(ToSource::Push(push)) = control { Some(push) } else { None };
        self.heard(n).into_iter().filter_map(push).collect()
    }

    /// The flows that node `n` was told to stop since the last look.
    pub(crate) fn stops(&mut self, n: u8) -> Vec<FlowId> {
        let stop =
            |control| if let Control::Source(ToSource::Stop { flow }) = control { Some(flow) } else { None };
        self.heard(n).into_iter().filter_map(stop).collect()
    }

    /// The weights that node `n` was told since the last look.
    pub(crate) fn thetas(&mut self, n: u8) -> Vec<f64> {
        let theta = |c| {
            if let Control::Source(ToSource::SetTheta { theta, .. }) = c { Some(theta.get()) } else { None }
        };
        self.heard(n).into_iter().filter_map(theta).collect()
    }

    /// The newest list of flows that node `n` was sent since the last look.
    pub(crate) fn list(&mut self, n: u8) -> Option<(u32, Vec<NodeId>)> {
        let list = |control| match control {
            Control::Receiver(ToReceiver::Flows { version, flows, .. }) => {
                Some((version, flows.iter().map(|f| f.node).collect()))
            }
            _ => None,
        };
        self.heard(n).into_iter().filter_map(list).next_back()
    }

    /// Receiver `n` asks for object 1.
    pub(crate) fn get(&mut self, n: u8) -> Accepted {
        self.ask(n, request(n, 1, "object-1"))
    }

    pub(crate) fn ask(&mut self, n: u8, request: Request) -> Accepted {
        self.say(n, ToController::Request(request));
        self.begun(n)
    }

    pub(crate) fn ask_urgently(&mut self, n: u8, request: Request, urgency: Urgency) -> Accepted {
        self.say(n, ToController::UrgentRequest(request, urgency));
        self.begun(n)
    }

    fn begun(&mut self, n: u8) -> Accepted {
        let mut rest = Vec::new();
        let mut found = None;
        for control in self.heard(n) {
            match control {
                Control::Receiver(ToReceiver::Accepted { task, object, symbol_size, flows, .. }) => {
                    found = Some(Accepted { task, object, symbol_size, flows });
                }
                other => rest.push((path(n), other)),
            }
        }
        self.sent.extend(rest);
        found.expect("the request is accepted")
    }

    /// Every source says that it pushes.
    pub(crate) fn confirm(&mut self) {
        for flow in self.flows() {
            self.say(flow.node.0[0], ToController::Pushing { flow: flow.flow });
        }
    }

    pub(crate) fn feedback(&mut self, n: u8, task: TaskId, needed: u64, version: u32, flows: Vec<FlowView>) {
        let feedback = Control::Controller(ToController::Feedback {
            task,
            first_undecoded: BlockIndex(0),
            needed: Symbols::new(needed),
            flows_version: version,
            flows,
            held_up: false,
        });
        self.say(n, feedback);
    }

    /// Time passes while receiver `n` reports every 100 ms that these flows do what is said of them.
    pub(crate) fn pass_with_feedback(&mut self, n: u8, task: TaskId, span: Duration, flows: &[FlowView]) {
        let end = self.now + span;
        while self.now < end {
            self.pass(ms(100));
            let version = self.task(task).flows_version;
            self.feedback(n, task, 1000, version, flows.to_vec());
        }
    }

    pub(crate) fn view(&self) -> ControllerView {
        self.controller.view(self.now)
    }

    pub(crate) fn task(&self, task: TaskId) -> headwater_controller::TaskView {
        self.view().tasks.into_iter().find(|t| t.task == task).expect("the task is running")
    }

    /// All flows of all tasks.
    pub(crate) fn flows(&self) -> Vec<FlowStatus> {
        self.view().tasks.into_iter().flat_map(|t| t.flows).collect()
    }

    /// The sources of a task, in the order of their flows.
    pub(crate) fn sources(&self, task: TaskId) -> Vec<u8> {
        self.task(task).flows.iter().map(|f| f.node.0[0]).collect()
    }

    /// The newest record that was to be kept.
    pub(crate) fn kept(&mut self) -> Option<TaskRecord> {
        let kept = |event| if let ControllerEvent::Persist(record) = event { Some(*record) } else { None };
        std::mem::take(&mut self.events).into_iter().filter_map(kept).next_back()
    }
}

pub(crate) fn silent(flow: FlowId, silent: Duration) -> FlowView {
    FlowView { flow, bytes: Bytes::ZERO, rate: BitRate::ZERO, silent, behind: Duration::ZERO }
}

pub(crate) fn delivering(flow: FlowId, rate: u64) -> FlowView {
    FlowView {
        flow,
        bytes: Bytes::mib(1),
        rate: BitRate::new(rate),
        silent: Duration::ZERO,
        behind: Duration::ZERO,
    }
}

pub(crate) fn report(flow: FlowId, theta: f64, rtt: Option<Duration>) -> Control {
    let report = FlowReport {
        flow,
        theta: Theta::new(theta),
        window: Packets::new(20.0),
        rtt,
        mark_fraction: 0.1,
        signal: MarkSignal::Ecn,
        lost: Symbols::ZERO,
        starved: false,
    };
    Control::Controller(ToController::Report { flows: vec![report] })
}

/// By stripe: who sends it.
pub(crate) fn by_stripe(flows: &[FlowGrant]) -> Vec<u8> {
    let mut flows: Vec<&FlowGrant> = flows.iter().collect();
    flows.sort_by_key(|flow| flow.index);
    let of = flows[0].of;
    assert!(
        flows.iter().map(|flow| (flow.index, flow.of)).eq((0..of).map(|stripe| (stripe, of))),
        "{flows:?}"
    );
    flows.iter().map(|flow| flow.node.0[0]).collect()
}

/// By receiver and stripe, who sends it: the source sends each stripe once, and all ways lead to it.
pub(crate) fn assert_trees(source: u8, parents: &BTreeMap<u8, Vec<u8>>) {
    for stripe in 0..parents.first_key_value().map_or(0, |(_, its)| its.len()) {
        let first = parents.values().filter(|its| its[stripe] == source);
        assert_eq!(first.count(), 1, "stripe {stripe} of {parents:?}");
        for node in parents.keys() {
            let way = std::iter::successors(Some(*node), |at| Some(parents.get(at)?[stripe]));
            assert!(way.take(parents.len() + 1).any(|at| at == source), "stripe {stripe} of {parents:?}");
        }
    }
}
