//! A source, a switch that lowers offers to what each of its ports is said to have left, and receivers.
//!
//! ```text
//!   source ==uplink==> switch ==port 0==> receiver 0 ----------+
//!     ^                  `====port 1==> receiver 1 ---------+  |
//!     +---- answers <---------------------------------------+--+
//! ```
//! A double line has a rate and a queue. The test is the controller.

use headwater_machine::{Endpoint, Input, Packet};
use headwater_testkit::messages::{Object, grant};
use headwater_testkit::{
    Addressed, Command, Event, Line, Link, Machine, Network, Preparation, Reception, Role, Simulation,
    Weather, no_faults, receivers,
};
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::rate::{RateReceiverConfig, RateSourceConfig};
use headwater_transport::receiver::Receivers;
use headwater_transport::source::{Source, SourceConfig};
use headwater_transport::{
    Bind, FromFetch, ReceiverCommand, SourceCommand, SourceEvent, ToFetch, WhyFallback,
};
use headwater_units::{
    BitRate, Bytes, Duration, FetchId, FlowId, FlowKey, Geometry, NodeId, ObjectId, PathId, TaskId, Time,
};
use headwater_wire::{
    Body, Control, Delivery, FlowGrant, FlowRole, Push, Refusal, Start, ToController, ToReceiver, ToSource,
};

pub(crate) const SYMBOL: u16 = 4096;
pub(crate) const GROUP: FlowId = FlowId(1000);
pub(crate) const FETCH: FetchId = FetchId(1);
const CONTROLLER: PathId = PathId(999);
const KEY: FlowKey = FlowKey([2; 32]);
const OBJECT: ObjectId = ObjectId([1; 32]);
const SOURCE: usize = 0;
/// Where the source reaches the group.
const GROUP_PATH: PathId = PathId(500);
/// By pulls, after a fallback.
const BEYOND: u64 = 2000;

pub(crate) fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn at(span: Duration) -> Time {
    Time::ZERO + span
}

pub(crate) fn mbps(n: u64) -> BitRate {
    BitRate::new(n * 1_000_000)
}

/// The flow of a receiver.
pub(crate) fn flow(receiver: usize) -> FlowId {
    FlowId(1 + receiver as u64)
}

#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) receivers: usize,
    /// Several are served by a group's flow; one can be, too.
    pub(crate) group: bool,
    pub(crate) blocks: u64,
    /// Rate of every line.
    pub(crate) link: BitRate,
    /// From one end to the other, twice that there and back.
    pub(crate) delay: Duration,
    /// Of a port, in packets.
    pub(crate) room: usize,
    /// Faults behind each port, and of answers.
    pub(crate) down: Weather,
    pub(crate) up: Weather,
    pub(crate) seed: u64,
    /// Rate that the switch leaves a transfer at each port; `None`: it computes nothing.
    pub(crate) ports: Option<BitRate>,
    pub(crate) source: RateSourceConfig,
    pub(crate) receiver: RateReceiverConfig,
    pub(crate) deadline: Option<Duration>,
    /// Duration of decoding.
    pub(crate) decoding: Duration,
    pub(crate) limit: Option<BitRate>,
    pub(crate) blocks_in_flight: usize,
    /// What the controller takes the round trip for, where it says so.
    pub(crate) said_rtt: Option<Duration>,
    /// Is not there at the beginning.
    pub(crate) absent: Option<usize>,
}

impl Default for Setup {
    fn default() -> Self {
        let link = mbps(1000);
        Setup {
            receivers: 1,
            group: false,
            blocks: 8,
            link,
            delay: us(50),
            room: 100,
            down: Weather::default(),
            up: Weather::default(),
            seed: 1,
            ports: Some(mbps(800)),
            source: RateSourceConfig::data_centre(link),
            receiver: RateReceiverConfig::default(),
            deadline: None,
            decoding: Duration::ZERO,
            limit: None,
            blocks_in_flight: 256,
            said_rtt: None,
            absent: None,
        }
    }
}

impl Setup {
    pub(crate) fn group(receivers: usize) -> Self {
        Setup { receivers, group: true, ..Setup::default() }
    }

    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::kib(256) * self.blocks
    }

    pub(crate) fn net(self) -> Net {
        Net::new(self)
    }

    fn delivery(&self) -> Delivery {
        Delivery::Rate { receivers: self.receivers as u16, deadline: self.deadline, terms: None }
    }
}

/// Action that a test or a driver schedules.
pub(crate) enum Act {
    /// The decoder has this block of a receiver.
    Decoded(usize, headwater_units::BlockIndex),
    Call(Box<dyn FnOnce(&mut Net)>),
}

/// Changes a datagram on its way to a receiver; false loses it.
pub(crate) type Meddler = Box<dyn FnMut(usize, &mut Body) -> bool>;

/// Something that left a host.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    pub(crate) at: Time,
    pub(crate) flow: FlowId,
    pub(crate) body: Body,
}

pub(crate) struct Net {
    pub(crate) setup: Setup,
    pub(crate) network: Network<Addressed, Act>,
    machines: Vec<Machine>,
    pub(crate) preparation: Preparation,
    pub(crate) receptions: Vec<Reception>,
    /// Rate that the switch leaves the transfer at each port.
    pub(crate) ports: Vec<Option<BitRate>>,
    /// Sits behind the switch.
    pub(crate) meddler: Meddler,
    /// Answers that are lost.
    lost_answers: fn(&Body) -> bool,
    /// All answers of this receiver are lost.
    pub(crate) mute: Option<usize>,
    pub(crate) down: Vec<bool>,
    /// Datagrams that have left the source, and the receivers.
    pub(crate) sent: Vec<Left>,
    pub(crate) answers: Vec<Left>,
    pub(crate) fell_back: Vec<(FlowId, WhyFallback)>,
    pub(crate) told_controller: Vec<ToController>,
    pub(crate) closed: Vec<FlowId>,
}

impl Net {
    fn new(setup: Setup) -> Self {
        let count = setup.receivers;
        let line = || Line::Rate(setup.link);
        let quarter = setup.delay / 2;
        let mut links = vec![Link { line: line(), ..Link::new(quarter) }];
        for place in 0..count as u64 {
            let faults = setup.down.faults(setup.seed ^ place << 8);
            let faults =
                if setup.down.loss + setup.down.late + setup.down.twice > 0.0 { faults } else { no_faults() };
            links.push(Link { line: line(), room: setup.room, ..Link::new(quarter) }.with_faults(faults));
        }
        for place in 0..count as u64 {
            links.push(Link::new(setup.delay).with_faults(setup.up.faults(setup.seed ^ 77 ^ place << 16)));
        }
        let config = SourceConfig { rate: setup.source, ..SourceConfig::paper() };
        let receiver = |_| Role::Receiver(receivers(setup.link));
        let machines = core::iter::once(Role::Source(Source::new(config, [7; 32])));
        let mut net = Net {
            network: Network::new(links),
            machines: machines.chain((0..count).map(receiver)).collect(),
            preparation: Preparation::default(),
            receptions: (0..count).map(|_| Reception::default()).collect(),
            ports: vec![setup.ports; count],
            meddler: Box::new(|_, _| true),
            lost_answers: |_| false,
            mute: None,
            down: vec![false; count + 1],
            sent: Vec::new(),
            answers: Vec::new(),
            fell_back: Vec::new(),
            told_controller: Vec::new(),
            closed: Vec::new(),
            setup,
        };
        net.begin();
        net
    }

    fn object(&self) -> Object {
        Object { id: OBJECT, bytes: self.setup.bytes(), symbol_size: SYMBOL }
    }

    fn begin(&mut self) {
        self.tell(SOURCE, Role::Source(SourceCommand::Hold { object: OBJECT, bytes: self.setup.bytes() }));
        let delivery = self.setup.delivery();
        self.order(delivery, 0);
        for receiver in 0..self.setup.receivers {
            match self.setup.absent == Some(receiver) {
                true => self.freeze(receiver),
                false => self.ask(receiver),
            }
        }
    }

    /// A receiver asks for the object.
    pub(crate) fn ask(&mut self, receiver: usize) {
        let delivery = self.setup.delivery();
        let config = ReceiverConfig::new("object", NodeId([20 + receiver as u8; 32]), CONTROLLER, 5);
        let config = ReceiverConfig {
            delivery: Some(delivery),
            rate: self.setup.receiver,
            limit: self.setup.limit,
            blocks_in_flight: self.setup.blocks_in_flight,
            ..config
        };
        let fetch = ReceiverCommand::Fetch(Box::new(config));
        self.tell(1 + receiver, Role::Receiver(ToFetch(FETCH, fetch)));
        self.grant(receiver, delivery, 0, 0);
    }

    /// The source is to serve all, by flows with numbers that are higher by `beyond`.
    fn order(&mut self, delivery: Delivery, beyond: u64) {
        let beyond = |flow: FlowId| FlowId(flow.0 + beyond);
        let members: Vec<FlowId> = (0..self.setup.receivers).map(|it| beyond(flow(it))).collect();
        let own = |role: FlowRole, flow| {
            let push = self.object().push(TaskId(1), flow, KEY, NodeId([3; 32]), delivery);
            let rate = self.setup.link;
            let start = self.setup.said_rtt.map(|rtt| Start { rtt, rate });
            Packet::control(CONTROLLER, ToSource::Push(Push { role, start, ..push }))
        };
        let group = beyond(GROUP);
        let role = |_| if self.setup.group { FlowRole::Member { group } } else { FlowRole::Single };
        let mut orders: Vec<Packet> = members.iter().map(|&flow| own(role(flow), flow)).collect();
        if self.setup.group {
            orders.push(own(FlowRole::Group { members: members.clone() }, group));
        }
        orders.into_iter().for_each(|order| self.hear(SOURCE, order));
    }

    /// A receiver's flows bring the object, in this version of the task.
    pub(crate) fn grant(&mut self, receiver: usize, delivery: Delivery, version: u32, beyond: u64) {
        let one = |flow: FlowId| grant(FlowId(flow.0 + beyond), NodeId([6; 32]), KEY, 0, 1);
        let group = self.setup.group.then(|| one(GROUP));
        let own = FlowGrant { group: group.as_ref().map(|group| group.flow), ..one(flow(receiver)) };
        let flows = core::iter::once(own).chain(group).collect();
        let rarely = Duration::from_secs(1000);
        let accepted = self.object().accepted(5, TaskId(1), rarely, delivery, flows);
        let accepted = match accepted {
            Control::Receiver(ToReceiver::Accepted {
                request,
                task,
                object,
                bytes,
                symbol_size,
                feedback_every,
                flows,
                delivery,
                ..
            }) => ToReceiver::Accepted {
                request,
                task,
                object,
                bytes,
                symbol_size,
                feedback_every,
                version,
                flows,
                delivery,
            },
            _ => unreachable!("it is an answer"),
        };
        self.hear(1 + receiver, Packet::control(CONTROLLER, accepted));
    }

    // ---- what happens

    pub(crate) fn call(&mut self, after: Duration, call: impl FnOnce(&mut Net) + 'static) {
        self.network.at(at(after), Act::Call(Box::new(call)));
    }

    pub(crate) fn run(&mut self, until: Duration) {
        while self.step(at(until)) {}
        self.network.wait_until(at(until));
    }

    /// Runs until all have everything and nothing is left to say.
    pub(crate) fn finish(&mut self) {
        self.finish_but(&[]);
        while self.step(at(Duration::from_secs(200))) {}
    }

    /// Runs until all but these have everything.
    pub(crate) fn finish_but(&mut self, others: &[usize]) {
        while (0..self.setup.receivers)
            .any(|it| !others.contains(&it) && self.receptions[it].done().is_none())
        {
            assert!(self.step(at(Duration::from_secs(100))), "it does not end: {:?}", self.state());
        }
    }

    /// A receiver is heard and hears nothing from now on.
    pub(crate) fn freeze(&mut self, receiver: usize) {
        self.down[1 + receiver] = true;
    }

    pub(crate) fn thaw(&mut self, receiver: usize) {
        self.down[1 + receiver] = false;
        self.drain(1 + receiver);
    }

    pub(crate) fn drop_answers(&mut self, which: fn(&Body) -> bool) {
        self.lost_answers = which;
    }

    /// A user stops a fetch.
    pub(crate) fn cancel(&mut self, receiver: usize) {
        self.tell(1 + receiver, Role::Receiver(ToFetch(FETCH, ReceiverCommand::Cancel)));
    }

    fn state(&self) -> String {
        let kept: Vec<_> = self.receptions.iter().map(|it| (it.kept, it.whole.len())).collect();
        format!("{kept:?} at {}", self.network.now())
    }

    // ---- what is known

    pub(crate) fn source(&self) -> &Source {
        let Role::Source(source) = &self.machines[SOURCE] else { unreachable!() };
        source
    }

    pub(crate) fn receiver(&mut self, receiver: usize) -> &mut Receivers {
        let Role::Receiver(receivers) = &mut self.machines[1 + receiver] else { unreachable!() };
        receivers
    }

    /// The flow that all are served by.
    pub(crate) fn main_flow(&self) -> FlowId {
        if self.setup.group { GROUP } else { flow(0) }
    }

    pub(crate) fn symbols(&self, flow: FlowId) -> Vec<&Left> {
        let is = |it: &&Left| it.flow == flow && matches!(it.body, Body::ScheduledSymbol(_));
        self.sent.iter().filter(is).collect()
    }

    pub(crate) fn probes(&self, flow: FlowId) -> Vec<Time> {
        let is = |it: &&Left| it.flow == flow && matches!(it.body, Body::RateProbe(_));
        self.sent.iter().filter(is).map(|it| it.at).collect()
    }

    /// Rates that the transfer's symbols have stated, each once as long as it lasts, and since when.
    pub(crate) fn rates(&self) -> Vec<(Time, BitRate)> {
        let mut rates: Vec<(Time, BitRate)> = Vec::new();
        for it in self.symbols(self.main_flow()) {
            let Body::ScheduledSymbol(symbol) = &it.body else { continue };
            let rate = symbol.scheduling.rate();
            if rates.last().is_none_or(|(_, last)| *last != rate) {
                rates.push((it.at, rate));
            }
        }
        rates
    }

    pub(crate) fn nacks(&self) -> usize {
        self.answers.iter().filter(|it| matches!(it.body, Body::Nack(_))).count()
    }

    pub(crate) fn total(&self) -> u64 {
        Geometry::new(self.setup.bytes(), SYMBOL).unwrap().total_symbols().get()
    }

    /// Every receiver has every block, and nothing is left anywhere.
    pub(crate) fn is_settled(&mut self) {
        assert!(self.receptions.iter().all(|it| it.done().is_some() && it.ended), "{}", self.state());
        assert_eq!(self.source().flows().count(), 0, "flows end");
        assert!(self.preparation.is_empty(), "blocks are let go");
        assert!(self.network.is_quiet());
    }

    fn path_of(&self, flow: FlowId) -> PathId {
        match flow.0 % BEYOND {
            1000 => GROUP_PATH,
            own => PathId(own as u32),
        }
    }

    /// The network does not schedule: the controller finds another transport.
    fn pull_instead(&mut self) {
        let delivery = Delivery::Pull { initial_window: 16 };
        self.order(delivery, BEYOND);
        (0..self.setup.receivers).for_each(|receiver| self.grant(receiver, delivery, 1, BEYOND));
    }
}

impl Simulation for Net {
    type Command = Command;
    type Event = Event;
    type Carried = Addressed;
    type Act = Act;

    fn network(&mut self) -> &mut Network<Addressed, Act> {
        &mut self.network
    }

    fn machine(&mut self, host: usize) -> impl Endpoint<Command = Command, Event = Event> {
        &mut self.machines[host]
    }

    fn is_up(&self, host: usize) -> bool {
        !self.down[host]
    }

    fn transmit(&mut self, host: usize, packet: Packet) {
        let now = self.network.now();
        if let Body::Control(control) = packet.datagram.body {
            if let Control::Controller(said) = *control {
                if let ToController::PushRefused { reason: Refusal::Unscheduled(_), .. } = said {
                    self.network.after(ms(1), Act::Call(Box::new(Net::pull_instead)));
                }
                self.told_controller.push(said);
            }
            return;
        }
        let left = Left { at: now, flow: packet.datagram.flow, body: packet.datagram.body.clone() };
        let size = Bytes::new(packet.datagram.len(SYMBOL) as u64);
        // As bytes, and back: numbers travel in 32 bits, and lists have bounds.
        let packet = headwater_testkit::content::over_the_wire(packet);
        if host == SOURCE {
            self.sent.push(left);
            self.preparation.sends(&packet.datagram);
            self.network.send(0, size, Addressed { from: SOURCE, to: usize::MAX, packet });
        } else {
            if (self.lost_answers)(&left.body) || self.mute.is_some_and(|it| host == 1 + it) {
                return;
            }
            self.answers.push(left);
            let link = self.setup.receivers + host;
            self.network.send(link, size, Addressed { from: host, to: SOURCE, packet });
        }
    }

    fn on_event(&mut self, host: usize, event: Event) {
        let now = self.network.now();
        match event {
            Role::Source(event) => {
                match &event {
                    SourceEvent::Opened(opened) => {
                        let path = self.path_of(opened.flow);
                        let command = SourceCommand::FlowPath { flow: opened.flow, path };
                        self.handle(host, Input::Command(Role::Source(command)));
                    }
                    SourceEvent::FellBack { flow, why } => self.fell_back.push((*flow, *why)),
                    SourceEvent::Closed { flow } => self.closed.push(*flow),
                    _ => {}
                }
                if let Some(ready) = self.preparation.answer(&event) {
                    self.handle(host, Input::Command(Role::Source(ready)));
                }
            }
            Role::Receiver(FromFetch(fetch, event)) => {
                if let headwater_transport::ReceiverEvent::Decode { block } = event
                    && self.setup.decoding > Duration::ZERO
                {
                    self.receptions[host - 1].on_event(now, event);
                    self.network.after(self.setup.decoding, Act::Decoded(host, block));
                    return;
                }
                let to_source = |_: &Bind| PathId(0);
                if let Some(command) = self.receptions[host - 1].answer(now, event, to_source) {
                    self.handle(host, Input::Command(Role::Receiver(ToFetch(fetch, command))));
                }
            }
            Role::Controller(_) => unreachable!("the test is the controller"),
        }
    }

    fn arrive(&mut self, link: usize, Addressed { from, to, packet }: Addressed) {
        if link == 0 {
            // At the switch.
            let group = packet.path == GROUP_PATH;
            for receiver in 0..self.setup.receivers {
                if !group && packet.path != PathId(1 + receiver as u32) {
                    continue;
                }
                let mut packet = packet.clone();
                if let (Some(most), Some(it)) = (self.ports[receiver], packet.datagram.body.negotiated_mut())
                {
                    it.lower_offer(most);
                }
                if (self.meddler)(receiver, &mut packet.datagram.body) {
                    let size = Bytes::new(packet.datagram.len(SYMBOL) as u64);
                    let packet = Packet { path: PathId(0), ..packet };
                    self.network.send(1 + receiver, size, Addressed { from, to: 1 + receiver, packet });
                }
            }
        } else if to == usize::MAX || link <= self.setup.receivers {
            if self.is_up(link) {
                self.receptions[link - 1].hands_in(&packet);
            }
            self.hear(link, packet);
        } else {
            self.hear(SOURCE, Packet { path: PathId(from as u32), ..packet });
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Decoded(host, block) => {
                if let Some(command) = self.receptions[host - 1].decode(block, |_| Ok(())) {
                    self.tell(host, Role::Receiver(ToFetch(FETCH, command)));
                }
            }
            Act::Call(call) => call(self),
        }
    }
}
