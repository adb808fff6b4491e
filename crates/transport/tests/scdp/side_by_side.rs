//! Fetches of one host, all by one pull queue: a session of that queue is a fetch, however many sources it has (SCDP §III-D).

use std::collections::{BTreeMap, VecDeque};

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_transport::pull::queue::PullConfig;
use headwater_transport::pull::{PullFlowConfig, SessionConfig};
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::receiver::{HostReceiverConfig, Receivers};
use headwater_transport::source::{Source, SourceConfig};
use headwater_transport::{FromFetch, ReceiverCommand, ReceiverEvent, SourceCommand, SourceEvent, ToFetch};
use headwater_units::{
    BitRate, Bytes, Duration, FetchId, FlowId, FlowKey, NodeId, ObjectId, PathId, TaskId, Theta, Time,
};
use headwater_wire::{Body, Class, Control, Delivery, FlowGrant, FlowRole, Push, ToReceiver, ToSource};

use crate::net::*;

const CONTROLLER: PathId = PathId(1000);
const HOST: PathId = PathId(500);
/// Symbols that wait before the host's link; the others are trimmed.
const ROOM: usize = 8;

/// What one fetch is, and what became of it.
#[derive(Clone, Copy)]
struct Fetch {
    id: u64,
    /// Its sources are so many, from this one on; nobody else's.
    first: usize,
    sources: usize,
    window: u16,
    blocks: u32,
}

impl Fetch {
    fn flow(self, source: usize) -> FlowId {
        FlowId(self.id * 100 + source as u64)
    }

    fn object(self) -> ObjectId {
        ObjectId([self.id as u8; 32])
    }

    fn bytes(self) -> Bytes {
        Bytes::new(u64::from(self.blocks) * (256 << 10))
    }

    fn delivery(self) -> Delivery {
        Delivery::Pull { initial_window: self.window }
    }

    fn all(self) -> core::ops::Range<usize> {
        self.first..self.first + self.sources
    }
}

enum Happening {
    Begin(Fetch),
    Queue(Packet),
    Line,
    ToHost(Packet),
    ToSource(usize, Packet),
    Wake(Who),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Host,
    Source(usize),
}

/// One host, its link, and sources that serve one fetch each.
struct Host {
    now: Time,
    receivers: Receivers,
    sources: Vec<Source>,
    fetches: BTreeMap<u64, Fetch>,
    line: VecDeque<Packet>,
    happenings: BTreeMap<(Time, u64), Happening>,
    happened: u64,
    wakes: BTreeMap<Who, Time>,
    /// Whole symbols, and when they came.
    came: Vec<(Time, FlowId)>,
    done: BTreeMap<u64, Time>,
}

impl Host {
    fn new(sources: usize) -> Self {
        let (rate, packet) = (BitRate::new(1_000_000_000), Bytes::new(1500));
        let config = SourceConfig { pull: PullFlowConfig::data_centre(), ..SourceConfig::default() };
        Host {
            now: Time::ZERO,
            receivers: Receivers::new(HostReceiverConfig {
                pull: PullConfig { rate, packet, catch_up: Duration::ZERO },
            }),
            sources: (0..sources).map(|seed| Source::new(config.clone(), [seed as u8; 32])).collect(),
            fetches: BTreeMap::new(),
            line: VecDeque::new(),
            happenings: BTreeMap::new(),
            happened: 0,
            wakes: BTreeMap::new(),
            came: Vec::new(),
            done: BTreeMap::new(),
        }
    }

    fn at(&mut self, time: Time, happening: Happening) {
        self.happened += 1;
        self.happenings.insert((time, self.happened), happening);
    }

    /// As a lazy driver: an older wake that comes earlier is good enough.
    fn wake(&mut self, who: Who, at: Option<Time>) {
        let Some(at) = at else { return };
        if self.wakes.get(&who).is_none_or(|earlier| at < *earlier) {
            self.wakes.insert(who, at);
            self.at(at, Happening::Wake(who));
        }
    }

    /// Runs until every fetch that was to begin is done.
    fn run(&mut self) {
        for _ in 0..1_000_000 {
            let Some(((at, _), happening)) = self.happenings.pop_first() else { break };
            self.now = at;
            self.happen(happening);
            let is_over = |fetch: &u64| self.done.contains_key(fetch);
            let more = self.happenings.values().any(|it| matches!(it, Happening::Begin(_)));
            if !more && self.fetches.keys().all(is_over) {
                return;
            }
        }
        panic!("not everything is here: {:?}", self.done);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Begin(fetch) => self.begin(fetch),
            Happening::Queue(packet) if self.line.len() > ROOM => {
                let mut packet = packet;
                if let Body::Symbol(header) = &mut packet.datagram.body {
                    header.trimmed = true;
                }
                self.at(self.now + DELAY, Happening::ToHost(packet));
            }
            Happening::Queue(packet) => {
                self.line.push_back(packet);
                if self.line.len() == 1 {
                    self.at(self.now + PACKET, Happening::Line);
                }
            }
            Happening::Line => {
                let packet = self.line.pop_front().expect("a busy line has a packet");
                self.at(self.now + DELAY, Happening::ToHost(packet));
                if !self.line.is_empty() {
                    self.at(self.now + PACKET, Happening::Line);
                }
            }
            Happening::ToHost(packet) => {
                self.receivers.handle(self.now, Input::Packet(packet));
                self.poll_host();
            }
            Happening::ToSource(source, packet) => self.hand_to_source(source, Input::Packet(packet)),
            Happening::Wake(who) => {
                if self.wakes.get(&who) == Some(&self.now) {
                    self.wakes.remove(&who);
                }
                match who {
                    Who::Host => self.poll_host(),
                    Who::Source(source) => self.poll_source(source),
                }
            }
        }
    }

    /// The controller tells everybody.
    fn begin(&mut self, fetch: Fetch) {
        self.fetches.insert(fetch.id, fetch);
        let request = fetch.id * 1000;
        let config = ReceiverConfig {
            room: T,
            delivery: Some(fetch.delivery()),
            pull: SessionConfig { opens_flows: true, ..SessionConfig::data_centre() },
            ..ReceiverConfig::new(format!("object {}", fetch.id), NodeId([100; 32]), CONTROLLER, request)
        };
        let command = ReceiverCommand::Fetch(Box::new(config));
        self.receivers.handle(self.now, Input::Command(ToFetch(FetchId(fetch.id), command)));
        self.poll_host();
        for source in fetch.all() {
            let hold = SourceCommand::Hold { object: fetch.object(), bytes: fetch.bytes() };
            self.hand_to_source(source, Input::Command(hold));
            let push = Push {
                task: TaskId(fetch.id),
                flow: fetch.flow(source),
                object: fetch.object(),
                bytes: fetch.bytes(),
                symbol_size: T,
                key: FlowKey([0; 32]),
                theta: Theta::ONE,
                class: Class::Bulk,
                receiver: NodeId([100; 32]),
                delivery: fetch.delivery(),
                index: (source - fetch.first) as u8,
                of: fetch.sources as u8,
                at: vec![],
                start: None,
                role: FlowRole::Single,
            };
            self.hand_to_source(source, Input::Packet(Packet::control(CONTROLLER, ToSource::Push(push))));
        }
        let grant = |source: usize| FlowGrant {
            flow: fetch.flow(source),
            node: node(source),
            at: vec![],
            key: FlowKey([0; 32]),
            index: (source - fetch.first) as u8,
            of: fetch.sources as u8,
            group: None,
            relays: false,
            passed_on: true,
        };
        let accepted = Control::Receiver(ToReceiver::Accepted {
            request,
            task: TaskId(fetch.id),
            object: fetch.object(),
            bytes: fetch.bytes(),
            symbol_size: T,
            feedback_every: ms(100),
            version: 0,
            delivery: fetch.delivery(),
            flows: fetch.all().map(grant).collect(),
        });
        self.receivers.handle(self.now, Input::Packet(Packet::control(CONTROLLER, accepted)));
        self.poll_host();
    }

    fn poll_host(&mut self) {
        loop {
            match self.receivers.poll(self.now) {
                Output::Transmit(Packet { path: CONTROLLER, .. }) => {}
                Output::Transmit(packet) => {
                    let packet = wired(packet);
                    let source = packet.path.0 as usize;
                    let there = Happening::ToSource(source, Packet { path: HOST, ..packet });
                    self.at(self.now + DELAY, there);
                }
                Output::Event(FromFetch(FetchId(fetch), event)) => self.on_event(fetch, event),
                Output::Wake(at) => return self.wake(Who::Host, at),
            }
        }
    }

    fn on_event(&mut self, fetch: u64, event: ReceiverEvent) {
        let answer = match event {
            ReceiverEvent::Accepted { .. } => {
                ReceiverCommand::Start { wanted: 0..self.fetches[&fetch].blocks, have: vec![] }
            }
            ReceiverEvent::Bind(bind) => {
                ReceiverCommand::FlowPath { flow: bind.flow, path: PathId((bind.flow.0 % 100) as u32) }
            }
            ReceiverEvent::Decode { block } => ReceiverCommand::BlockDecoded { block },
            ReceiverEvent::Symbol { flow, .. } => return self.came.push((self.now, flow)),
            ReceiverEvent::Done => {
                self.done.insert(fetch, self.now);
                return;
            }
            ReceiverEvent::Moved(_) | ReceiverEvent::Unbind { .. } | ReceiverEvent::Ended => return,
            other => panic!("{other:?}"),
        };
        self.receivers.handle(self.now, Input::Command(ToFetch(FetchId(fetch), answer)));
    }

    fn hand_to_source(&mut self, source: usize, input: Input<SourceCommand>) {
        self.sources[source].handle(self.now, input);
        self.poll_source(source);
    }

    fn poll_source(&mut self, index: usize) {
        loop {
            match self.sources[index].poll(self.now) {
                Output::Transmit(Packet { path: CONTROLLER, .. }) => {}
                Output::Transmit(packet) => {
                    let packet = Packet { path: PathId(index as u32), ..wired(packet) };
                    let happening = match packet.datagram.body {
                        Body::Symbol(_) => Happening::Queue(packet),
                        _ => Happening::ToHost(packet),
                    };
                    self.at(self.now + DELAY, happening);
                }
                Output::Event(SourceEvent::Prepare { flow, block, repair }) => {
                    let ready = SourceCommand::BlockReady { flow, block, repair };
                    self.sources[index].handle(self.now, Input::Command(ready));
                }
                Output::Event(_) => {}
                Output::Wake(at) => return self.wake(Who::Source(index), at),
            }
        }
    }

    /// Symbols of each flow that came in a span of time.
    fn came(&self, from: Time, to: Time) -> BTreeMap<FlowId, u64> {
        let mut by_flow = BTreeMap::new();
        for (_, flow) in self.came.iter().filter(|(at, _)| (from..to).contains(at)) {
            *by_flow.entry(*flow).or_default() += 1;
        }
        by_flow
    }
}

/// Goal: a fetch with eight sources that has long filled the pull queue leaves half of the link to one that comes later and has a
/// single source, at once and for as long as both go on; and takes it back.
#[test]
fn fetches_of_a_host_have_equal_shares_of_its_pulls_however_many_sources_each_has() {
    let many = Fetch { id: 1, first: 0, sources: 8, window: 12, blocks: 60 };
    let single = Fetch { id: 2, first: 8, sources: 1, window: 24, blocks: 12 };
    let mut host = Host::new(9);
    let begins = Time::ZERO + ms(10);
    host.at(Time::ZERO, Happening::Begin(many));
    host.at(begins, Happening::Begin(single));
    host.run();

    let of = |by_flow: &BTreeMap<FlowId, u64>, fetch: Fetch| {
        fetch.all().map(|source| by_flow.get(&fetch.flow(source)).copied().unwrap_or(0)).collect::<Vec<_>>()
    };
    let ends = host.done[&single.id];
    assert!(ends > begins + ms(15) && host.done[&many.id] > ends + ms(5), "{:?}", host.done);
    // Packets that the link carries in a millisecond: 83.
    let (mut at, mut shared, mut alone) = (Time::ZERO + ms(2), 0, 0);
    while at + ms(1) < host.done[&many.id] {
        let came = host.came(at, at + ms(1));
        let [of_many, of_single] = [many, single].map(|fetch| of(&came, fetch).iter().sum::<u64>());
        assert!((82..=84).contains(&(of_many + of_single)), "{at}: {of_many} and {of_single}");
        if at + ms(1) <= begins || at >= ends {
            assert_eq!(of_single, 0, "{at}");
            alone += 1;
        } else if at > begins && at + ms(1) < ends {
            assert!(of_many.abs_diff(of_single) <= 2, "{at}: {of_many} and {of_single}");
            shared += 1;
        }
        at += ms(1);
    }
    assert!(shared >= 15 && alone >= 30, "{shared} and {alone}");
    // A round trip after it has begun, and the queue before the link.
    let first = host.came.iter().find(|(_, flow)| *flow == single.flow(8)).expect("it is done").0;
    assert!(first < begins + DELAY * 3 + PACKET * (ROOM as u64 + 2), "its first symbol came at {first}");
    // Inside a fetch, its sources take turns as they answer.
    let each = of(&host.came(begins + ms(1), ends - ms(1)), many);
    let mean = each.iter().sum::<u64>() / 8;
    assert!(each.iter().all(|came| came.abs_diff(mean) * 10 <= mean * 2), "{each:?}");
}
