//! Fetches of one host, all by one pull queue: a session of that queue is a fetch, however many sources it has (SCDP §III-D).

use std::collections::BTreeMap;

use headwater_machine::{Endpoint, Packet};
use headwater_testkit::content::over_the_wire;
use headwater_testkit::messages;
use headwater_testkit::{
    Command, Event, Line, Link, Machine, Network, Preparation, Reception, Role, Simulation, receivers,
};
use headwater_transport::pull::{PullFlowConfig, SessionConfig};
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::source::{Source, SourceConfig};
use headwater_transport::{FromFetch, ReceiverCommand, ReceiverEvent, SourceCommand, ToFetch};
use headwater_units::{BitRate, Bytes, FetchId, FlowId, FlowKey, NodeId, ObjectId, PathId, TaskId, Time};
use headwater_wire::{Body, Delivery, Push, ToSource};

use crate::net::*;

const CONTROLLER: PathId = PathId(1000);
const HOST_PATH: PathId = PathId(500);
const KEY: FlowKey = FlowKey([0; 32]);
/// Symbols that wait before the host's link and on it; the others are trimmed.
const ROOM: usize = 9;
/// The host; sources come behind it.
const HOST: usize = 0;
/// Both ways from source to host and back, and the link before the host.
const WAY: usize = 0;
const LAST: usize = 1;

/// One fetch, and its result.
#[derive(Clone, Copy)]
struct Fetch {
    id: u64,
    /// Its sources begin with this one; nobody else has them.
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

/// One host, its link, and sources that serve one fetch each.
struct Host {
    network: Network<Addressed, Fetch>,
    machines: Vec<Machine>,
    preparations: Vec<Preparation>,
    /// Those that are yet to begin.
    awaited: usize,
    fetches: BTreeMap<u64, (Fetch, Reception)>,
    /// Whole symbols, and when they came.
    came: Vec<(Time, FlowId)>,
}

impl Host {
    fn new(sources: usize) -> Self {
        let config = SourceConfig { pull: PullFlowConfig::data_centre(), ..SourceConfig::default() };
        let source = |seed| Role::Source(Source::new(config.clone(), [seed as u8; 32]));
        let host = Role::Receiver(receivers(BitRate::new(1_000_000_000)));
        let last = Link { line: Line::Each(PACKET), room: ROOM, trims: true, ..Link::new(DELAY) };
        Host {
            network: Network::new(vec![Link::new(DELAY), last]),
            machines: core::iter::once(host).chain((0..sources).map(source)).collect(),
            preparations: (0..=sources).map(|_| Preparation::default()).collect(),
            awaited: 0,
            fetches: BTreeMap::new(),
            came: Vec::new(),
        }
    }

    fn begins(&mut self, at: Time, fetch: Fetch) {
        self.awaited += 1;
        self.network.at(at, fetch);
    }

    /// Runs until every fetch that was to begin is done.
    fn run(&mut self) {
        while self.awaited > 0 || self.fetches.values().any(|(_, got)| got.done().is_none()) {
            assert!(self.step(Time::MAX), "not everything is here");
        }
    }

    fn done(&self, fetch: Fetch) -> Time {
        self.fetches[&fetch.id].1.done_at()
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

impl Simulation for Host {
    type Command = Command;
    type Event = Event;
    type Carried = Addressed;
    type Act = Fetch;

    fn network(&mut self) -> &mut Network<Addressed, Fetch> {
        &mut self.network
    }

    fn machine(&mut self, host: usize) -> impl Endpoint<Command = Command, Event = Event> {
        &mut self.machines[host]
    }

    /// The controller tells everybody.
    fn act(&mut self, fetch: Fetch) {
        self.awaited -= 1;
        self.fetches.insert(fetch.id, (fetch, Reception::default()));
        let request = fetch.id * 1000;
        let config = ReceiverConfig {
            room: T,
            delivery: Some(fetch.delivery()),
            pull: SessionConfig { opens_flows: true, ..SessionConfig::data_centre() },
            ..ReceiverConfig::new(format!("object {}", fetch.id), NodeId([100; 32]), CONTROLLER, request)
        };
        let begin = ReceiverCommand::Fetch(Box::new(config));
        self.tell(HOST, Role::Receiver(ToFetch(FetchId(fetch.id), begin)));
        let (object, of) = (object(fetch.object(), fetch.bytes()), fetch.sources as u8);
        let mut grants = Vec::new();
        for (source, index) in fetch.all().zip(0..) {
            let (flow, task) = (fetch.flow(source), TaskId(fetch.id));
            let hold = SourceCommand::Hold { object: object.id, bytes: object.bytes };
            self.tell(1 + source, Role::Source(hold));
            let push = object.push(task, flow, KEY, NodeId([100; 32]), fetch.delivery());
            let push = ToSource::Push(Push { index, of, ..push });
            self.hear(1 + source, Packet::control(CONTROLLER, push));
            grants.push(messages::grant(flow, node(source), KEY, index, of));
        }
        let accepted = object.accepted(request, TaskId(fetch.id), ms(100), fetch.delivery(), grants);
        self.hear(HOST, Packet::control(CONTROLLER, accepted));
    }

    fn transmit(&mut self, from: usize, packet: Packet) {
        if packet.path == CONTROLLER {
            return;
        }
        let packet = over_the_wire(packet);
        self.preparations[from].sends(&packet.datagram);
        let (to, path) = match from {
            HOST => (1 + packet.path.0 as usize, HOST_PATH),
            source => (HOST, PathId(source as u32 - 1)),
        };
        self.network.send(WAY, Bytes::ZERO, Addressed { from, to, packet: Packet { path, ..packet } });
    }

    fn arrive(&mut self, link: usize, it: Addressed) {
        if link == WAY && it.to == HOST && matches!(it.packet.datagram.body, Body::Symbol(_)) {
            return self.network.send(LAST, Bytes::ZERO, it);
        }
        if it.to == HOST
            && let Some((_, got)) = self.fetches.get_mut(&(it.packet.datagram.flow.0 / 100))
        {
            got.hands_in(&it.packet);
        }
        self.hear(it.to, it.packet);
    }

    fn on_event(&mut self, host: usize, event: Event) {
        let now = self.network.now();
        let answer = match event {
            Role::Source(event) => self.preparations[host].answer(&event).map(Role::Source),
            Role::Receiver(FromFetch(fetch, event)) => {
                if let ReceiverEvent::Symbol { flow, .. } = event {
                    self.came.push((now, flow));
                }
                let (_, got) = self.fetches.get_mut(&fetch.0).expect("it has begun");
                let answer = got.answer(now, event, |bind| PathId((bind.flow.0 % 100) as u32));
                answer.map(|answer| Role::Receiver(ToFetch(fetch, answer)))
            }
            Role::Controller(_) => unreachable!("nobody controls here"),
        };
        if let Some(command) = answer {
            self.handle(host, headwater_machine::Input::Command(command));
        }
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
    host.begins(Time::ZERO, many);
    host.begins(begins, single);
    host.run();

    let of = |by_flow: &BTreeMap<FlowId, u64>, fetch: Fetch| {
        fetch.all().map(|source| by_flow.get(&fetch.flow(source)).copied().unwrap_or(0)).collect::<Vec<_>>()
    };
    let ends = host.done(single);
    assert!(ends > begins + ms(15) && host.done(many) > ends + ms(5), "{ends}");
    // Packets that the link carries in a millisecond: 83.
    let (mut at, mut shared, mut alone) = (Time::ZERO + ms(2), 0, 0);
    while at + ms(1) < host.done(many) {
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
    // A round trip after it has begun, two turns of the pull queue, and the queue before the link.
    let first = host.came.iter().find(|(_, flow)| *flow == single.flow(8)).expect("it is done").0;
    assert!(first < begins + DELAY * 3 + PACKET * (ROOM as u64 + 2), "its first symbol came at {first}");
    // Inside a fetch, its sources take turns as they answer.
    let each = of(&host.came(begins + ms(1), ends - ms(1)), many);
    let mean = each.iter().sum::<u64>() / 8;
    assert!(each.iter().all(|came| came.abs_diff(mean) * 10 <= mean * 2), "{each:?}");
}
