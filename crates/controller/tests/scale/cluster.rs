//! Many nodes around one controller. Each answers as a real one does, and nothing moves but messages.

use std::collections::{BTreeMap, BTreeSet};

use headwater_controller::{Controller, ControllerCommand, ControllerConfig};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_units::{
    BitRate, BlockIndex, Bytes, Duration, FlowId, NodeId, ObjectId, Packets, PathId, Symbols, TaskId, Theta,
    Time,
};
use headwater_wire::{
    Body, Cast, CastNews, CastWish, Class, Control, FetchEnd, Fetched, FlowGrant, FlowReport, FlowView,
    Holding, MarkSignal, NodeInfo, Outcome, Request, SpreadRule, ToController, ToNode, ToReceiver, ToSource,
};

/// Has the object.
pub(crate) const SOURCE: u32 = 0;
/// The asker for the cast is no node.
const ASKER: u32 = u32::MAX;
const OBJECT: ObjectId = ObjectId([9; 32]);
const BYTES: Bytes = Bytes::mib(1024);
/// Nodes of a rack.
const RACK: u32 = 32;
/// One way between a node and the controller.
const DELAY: Duration = Duration::from_micros(100);
/// One of this many receivers is slow to hear of the cast.
const SLOW: u32 = 100;
const LATE: Duration = Duration::from_millis(400);
/// Interval of the sources' reports (`SourceConfig::report_every`).
const REPORT_EVERY: Duration = Duration::from_millis(200);
/// Of a receiver that reports less often than this, a flow is reported on with every tenth of its reports
/// (`headwater_node`).
const OFTEN: Duration = Duration::from_millis(100);
const RATIO: u64 = 10;

fn node(number: u32) -> NodeId {
    let mut id = [7; 32];
    id[..4].copy_from_slice(&number.to_be_bytes());
    NodeId(id)
}

/// Messages, and their bytes as they are encoded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Count {
    fn add(&mut self, control: &Control) {
        self.messages += 1;
        self.bytes += control.encoded_len() as u64;
    }
}

/// Counts of messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// By nodes.
    pub(crate) to_controller: Count,
    /// To nodes.
    pub(crate) from_controller: Count,
    /// To the asker.
    pub(crate) news: Count,
}

/// Events that are due.
enum Due {
    Said(u32, Box<Control>),
    Feedback(u32),
    Report(u32),
    Finish(u32),
}

/// A node that receives, and passes on.
#[derive(Default)]
struct Standing {
    request: u64,
    task: Option<TaskId>,
    version: u32,
    flows: Vec<FlowId>,
    feedback_every: Duration,
    /// Flows of its source.
    sends: BTreeSet<FlowId>,
    reports: bool,
    done: bool,
}

pub(crate) struct Cluster {
    pub(crate) controller: Controller,
    pub(crate) now: Time,
    pub(crate) tally: Tally,
    /// The last word on the cast.
    pub(crate) over: Option<CastNews>,
    /// Receivers that know by which flows the object comes.
    pub(crate) served: u32,
    /// How long sources take to answer.
    pub(crate) answers_after: Duration,
    /// What has come by each flow.
    pub(crate) brought: Bytes,
    nodes: Vec<Standing>,
    /// By flow: who sends it.
    senders: BTreeMap<FlowId, u32>,
    due: BTreeMap<(Time, u64), Due>,
    count: u64,
    wake: Option<Time>,
}

impl Cluster {
    /// A cluster of `receivers` and their source, in racks. All have introduced themselves.
    pub(crate) fn new(receivers: u32) -> Self {
        let mut cluster = Cluster {
            controller: Controller::new(
                ControllerConfig { groups: Vec::new(), ..Default::default() },
                [7; 32],
            ),
            now: Time::ZERO,
            tally: Tally::default(),
            over: None,
            served: 0,
            answers_after: DELAY,
            brought: Bytes::mib(10),
            nodes: (0..=receivers).map(|_| Standing::default()).collect(),
            senders: BTreeMap::new(),
            due: BTreeMap::new(),
            count: 0,
            wake: None,
        };
        cluster.open(ASKER);
        for number in 0..=receivers {
            cluster.open(number);
            cluster.say(number, ToController::Hello(info(number)));
            cluster.say(number, ToController::Keeps);
        }
        cluster.say(SOURCE, ToController::Hold(holding()));
        cluster
    }

    /// Somebody asks for a cast to all.
    pub(crate) fn cast(&mut self) {
        let (name, to) = ("model".to_owned(), Vec::new());
        let cast = Cast { cast: 1, name, to, first: 0, of: 0, class: Class::Bulk, wish: CastWish::Overlay };
        self.say(ASKER, ToController::Cast(cast));
    }

    /// So many receivers that know their flows are not there any more.
    pub(crate) fn lose(&mut self, count: usize) {
        let served = (0..).zip(&self.nodes).filter(|(_, node)| node.task.is_some()).map(|(number, _)| number);
        for number in served.take(count).collect::<Vec<u32>>() {
            let closed = ControllerCommand::PathLost { path: PathId(number) };
            self.controller.handle(self.now, Input::Command(closed));
        }
        self.poll();
    }

    /// All receivers finish, `apart` from each other.
    pub(crate) fn finish(&mut self, apart: Duration) {
        for number in 1..self.nodes.len() as u32 {
            self.put(apart * u64::from(number), Due::Finish(number));
        }
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let next = self.due.keys().next().map(|(at, _)| *at);
            let at = next.into_iter().chain(self.wake).min().filter(|at| *at <= end);
            let Some(at) = at else { break };
            self.now = at;
            match self.due.first_entry().filter(|first| first.key().0 <= at) {
                Some(first) => {
                    let due = first.remove();
                    self.happen(due);
                }
                None => self.poll(),
            }
        }
        self.now = end;
    }

    fn put(&mut self, after: Duration, due: Due) {
        self.count += 1;
        self.due.insert((self.now + after, self.count), due);
    }

    fn open(&mut self, number: u32) {
        let (path, node) = (PathId(number), node(number));
        self.controller
            .handle(self.now, Input::Command(ControllerCommand::PathOpened { path, node, network: None }));
    }

    fn say(&mut self, number: u32, word: impl Into<Control>) {
        let control = word.into();
        self.tally.to_controller.add(&control);
        self.controller.handle(self.now, Input::Packet(Packet::control(PathId(number), control)));
        self.poll();
    }

    fn say_later(&mut self, number: u32, word: impl Into<Control>) {
        self.put(DELAY, Due::Said(number, Box::new(word.into())));
    }

    fn poll(&mut self) {
        loop {
            match self.controller.poll(self.now) {
                Output::Event(_) => {}
                Output::Wake(wake) => return self.wake = wake,
                Output::Transmit(packet) => {
                    let Body::Control(control) = packet.datagram.body else {
                        unreachable!("it is a controller")
                    };
                    match packet.path.0 {
                        ASKER => self.on_news(*control),
                        number => {
                            self.tally.from_controller.add(&control);
                            self.hear(number, *control);
                        }
                    }
                }
            }
        }
    }

    fn on_news(&mut self, control: Control) {
        self.tally.news.add(&control);
        assert_eq!(Control::parse(&control.to_bytes()).as_ref(), Ok(&control), "it is within bounds");
        match control {
            Control::Node(ToNode::Casting(news)) if news.over => self.over = Some(*news),
            Control::Node(ToNode::Casting(_)) => {}
            other => panic!("{other:?}"),
        }
    }

    fn hear(&mut self, number: u32, control: Control) {
        match control {
            Control::Node(ToNode::Fetch(invitation)) => {
                let it = &mut self.nodes[number as usize];
                if it.request != invitation.request {
                    it.request = invitation.request;
                    let asked = request(number, invitation.request, invitation.name);
                    let late = if number % SLOW == SLOW - 1 { LATE } else { DELAY };
                    self.put(late, Due::Said(number, Box::new(ToController::Request(asked).into())));
                }
            }
            Control::Receiver(ToReceiver::Accepted { task, version, flows, feedback_every, .. }) => {
                let it = &mut self.nodes[number as usize];
                let is_new = it.task.is_none();
                (it.task, it.version, it.feedback_every) = (Some(task), version, feedback_every);
                it.flows = names(&flows);
                if is_new {
                    self.served += 1;
                    self.put(DELAY, Due::Feedback(number));
                }
            }
            Control::Receiver(ToReceiver::Flows { version, flows, .. }) => {
                let it = &mut self.nodes[number as usize];
                (it.version, it.flows) = (version, names(&flows));
            }
            Control::Source(ToSource::Push(push)) => {
                self.senders.insert(push.flow, number);
                let it = &mut self.nodes[number as usize];
                it.sends.insert(push.flow);
                if !std::mem::replace(&mut it.reports, true) {
                    self.put(REPORT_EVERY, Due::Report(number));
                }
                let pushing = ToController::Pushing { flow: push.flow };
                self.put(self.answers_after, Due::Said(number, Box::new(pushing.into())));
            }
            Control::Source(ToSource::Stop { flow }) => {
                self.nodes[number as usize].sends.remove(&flow);
                self.say_later(number, ToController::Stopped { flow });
            }
            Control::Receiver(ToReceiver::FinAck { .. }) | Control::Source(ToSource::Pause { .. }) => {}
            other => panic!("{other:?}"),
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Said(number, control) => self.say(number, *control),
            Due::Feedback(number) => {
                let it = &self.nodes[number as usize];
                let Some(task) = it.task.filter(|_| !it.done) else { return };
                let every = it.feedback_every;
                let feedback = ToController::Feedback {
                    task,
                    first_undecoded: BlockIndex(1000),
                    needed: Symbols::new(100_000),
                    flows_version: it.version,
                    flows: it.flows.iter().map(|flow| view(flow, self.brought)).collect(),
                    held_up: false,
                };
                self.say(number, feedback);
                self.put(every, Due::Feedback(number));
            }
            Due::Report(number) => {
                let flows: Vec<FlowReport> = self.nodes[number as usize].sends.iter().map(report).collect();
                self.nodes[number as usize].reports = !flows.is_empty();
                if !flows.is_empty() {
                    let every = self.nodes[number as usize].feedback_every;
                    let every = if every > OFTEN { every * RATIO } else { REPORT_EVERY };
                    self.say(number, ToController::Report { flows });
                    self.put(every, Due::Report(number));
                }
            }
            Due::Finish(number) => self.end(number),
        }
    }

    /// A receiver has all of it: it says goodbye to those who send to it and to the controller, keeps the object, and says so.
    fn end(&mut self, number: u32) {
        let it = &mut self.nodes[number as usize];
        it.done = true;
        let (task, request, flows) = (it.task.expect("it is served"), it.request, it.flows.clone());
        for flow in flows {
            let sender = self.senders[&flow];
            if self.nodes[sender as usize].sends.remove(&flow) {
                self.say_later(sender, ToController::Stopped { flow });
            }
        }
        self.say_later(number, ToController::Fin { task, outcome: Outcome::Done });
        self.say_later(number, ToController::Hold(holding()));
        let fetched = Fetched {
            request,
            end: FetchEnd::Kept,
            by_group: Bytes::ZERO,
            by_unicast: BYTES,
            relayed: BYTES,
            from: (0..8).map(|n| (node(n), Bytes::mib(128))).collect(),
            files: Bytes::ZERO,
        };
        self.say_later(number, ToController::Fetched(fetched));
    }
}

fn info(number: u32) -> NodeInfo {
    let [a, b, c, d] = number.to_be_bytes();
    NodeInfo {
        data: vec![([10 + a, b, c, d], 7000).into()],
        uplink: Some(BitRate::new(10_000_000_000)),
        downlink: Some(BitRate::new(10_000_000_000)),
        rack: Some((format!("rack-{}", number / RACK), None)),
        seen: Some([10 + a, b, c, d].into()),
        ..NodeInfo::new(node(number), format!("node-{number}"), 1424)
    }
}

fn holding() -> Holding {
    Holding { object: OBJECT, bytes: BYTES, name: Some("model".to_owned()) }
}

fn request(number: u32, request: u64, name: String) -> Request {
    Request {
        request,
        name,
        receiver: node(number),
        room: 1424,
        class: Class::Bulk,
        spread: SpreadRule::Listed,
        max_sources: None,
        delivery: None,
        trims: false,
        passes_on: true,
    }
}

fn names(flows: &[FlowGrant]) -> Vec<FlowId> {
    flows.iter().map(|grant| grant.flow).collect()
}

fn view(flow: &FlowId, bytes: Bytes) -> FlowView {
    FlowView {
        flow: *flow,
        bytes,
        rate: BitRate::new(1_200_000_000),
        silent: Duration::ZERO,
        behind: Duration::ZERO,
    }
}

fn report(flow: &FlowId) -> FlowReport {
    FlowReport {
        flow: *flow,
        theta: Theta::ONE,
        window: Packets::new(6.0),
        rtt: Some(Duration::from_micros(200)),
        mark_fraction: 0.0,
        signal: MarkSignal::Ecn,
        lost: Symbols::ZERO,
        starved: false,
    }
}
