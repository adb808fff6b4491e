//! A frame for tests, networks for it, and drivers that poll.

use headwater_fabric::{FabricSpec, HostId, LinkId, Metric, Routes, Topology};
use headwater_switch::{
    Choice, ClassMap, Destination, Frame, Limit, LinkChange, PortConfig, QueueConfig, Service, Threshold,
    WhenFull,
};
use headwater_testbed::soft_switch::{DropReason, EmulatedFabric, FabricOutput};
use headwater_units::{BitRate, Bytes, Duration, Time};
use headwater_wire::{Class, Ecn};
use proptest::prelude::*;

/// Bytes that a trimmed frame keeps.
pub(crate) const HEADER: u64 = 64;
/// After everything.
pub(crate) const LATE: Time = Time::from_nanos(u64::MAX / 2);

/// A frame that remembers what was done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestFrame {
    pub(crate) id: u64,
    pub(crate) len: u64,
    pub(crate) class: Class,
    pub(crate) marked: bool,
    /// Bytes that were cut off.
    pub(crate) cut: u64,
    pub(crate) to: Destination,
}

impl TestFrame {
    pub(crate) fn symbol(id: u64, len: u64, to: u32) -> Self {
        TestFrame { id, len, class: Class::Bulk, marked: false, cut: 0, to: Destination::Host(to) }
    }
    pub(crate) fn for_group(id: u64, group: u32) -> Self {
        TestFrame { to: Destination::Group(group), ..Self::symbol(id, 1000, 0) }
    }
}

impl Frame for TestFrame {
    fn len(&self) -> Bytes {
        Bytes::new(self.len)
    }
    fn class(&self) -> Class {
        self.class
    }
    fn ecn(&self) -> Ecn {
        if self.marked { Ecn::Ce } else { Ecn::Ect0 }
    }
    fn mark(&mut self) {
        self.marked = true;
    }
    fn trim(&mut self) -> bool {
        if self.class == Class::Control || self.len <= HEADER {
            return false;
        }
        self.cut = self.len - HEADER;
        (self.len, self.class) = (HEADER, Class::Control);
        true
    }
    fn flow_hash(&self) -> u32 {
        (self.id % 7) as u32
    }
    fn destination(&self) -> Destination {
        self.to
    }
}

pub(crate) type Net = EmulatedFabric<TestFrame>;

pub(crate) fn ns(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

/// Of a specification in TOML.
pub(crate) fn topology(spec: &str) -> Topology {
    toml::from_str::<FabricSpec>(spec).unwrap().build(Bytes::new(1500)).unwrap()
}

/// Every link at its own rate.
pub(crate) fn at_link_rate(
    topology: &Topology,
    config: &PortConfig,
) -> impl Fn(LinkId, bool) -> PortConfig + use<> {
    let rates: Vec<BitRate> = (0..topology.fabric().link_count() as u32)
        .map(|link| topology.fabric().link(LinkId(link)).unwrap().capacity.unwrap())
        .collect();
    let config = config.clone();
    move |link, _| PortConfig { rate: rates[link.index()], ..config.clone() }
}

pub(crate) fn fabric(topology: &Topology, config: &PortConfig, choice: Choice) -> Net {
    let routes = Routes::all(topology, Metric::Hops).unwrap();
    let port = at_link_rate(topology, config);
    EmulatedFabric::new(topology, &routes, &port, &|_| choice, 1).unwrap()
}

/// One queue without bounds.
pub(crate) fn unbounded() -> PortConfig {
    PortConfig::fifo(BitRate::ZERO, None, None)
}

/// All that the network has to say by `now`, and when it has more.
pub(crate) fn poll(net: &mut Net, now: Time) -> (Vec<FabricOutput<TestFrame>>, Option<Time>) {
    let mut said = Vec::new();
    loop {
        match net.poll(now) {
            FabricOutput::Wake(wake) => return (said, wake),
            output => said.push(output),
        }
    }
}

/// Frames that arrive by `now`, as (time, host, frame); anything else may not happen.
pub(crate) fn delivered(net: &mut Net, now: Time) -> Vec<(u64, u32, u64)> {
    let arrived = |output: FabricOutput<TestFrame>| match output {
        FabricOutput::Deliver { host, due, frame, .. } => (due.as_nanos(), host.0, frame.id),
        other => panic!("{other:?}"),
    };
    poll(net, now).0.into_iter().map(arrived).collect()
}

/// Frames that are dropped by `now`, as (link, why, frame).
pub(crate) fn drops(net: &mut Net, now: Time) -> Vec<(Option<LinkId>, DropReason, u64)> {
    let dropped = |output: FabricOutput<TestFrame>| match output {
        FabricOutput::Dropped { link, why, frame } => Some((link, why, frame.id)),
        _ => None,
    };
    poll(net, now).0.into_iter().filter_map(dropped).collect()
}

/// Something that is put in.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Frame(HostId, TestFrame),
    Change(LinkId, LinkChange),
    Group(u32, Vec<HostId>),
}

/// Puts it in. An impossible input is refused and may do no harm.
pub(crate) fn put(net: &mut Net, now: Time, input: Input) {
    match input {
        Input::Frame(host, frame) => net.inject(now, host, frame),
        Input::Change(link, change) => drop(net.change(now, link, change)),
        Input::Group(group, members) => net.set_group(now, group, &members),
    }
}

/// A network and what is put into it, by time.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) topology: Topology,
    port: PortConfig,
    choice: Choice,
    pub(crate) inputs: Vec<(Time, Input)>,
}

impl Run {
    pub(crate) fn net(&self) -> Net {
        fabric(&self.topology, &self.port, self.choice)
    }
}

/// Two cables between two switches, a loop of three switches, and a host with two links.
pub(crate) const PARALLEL: &str = "kind = 'graph'
    switches = ['s', 't', 'u']
    hosts = ['a on s, 1 Gbit/s, 1 us', 'b on s, 1 Gbit/s, 1 us', 'c on t, 1 Gbit/s, 1 us', 'd on u, 10 Mbit/s, 0 us']
    links = [
        { a = 's', b = 't', rate = '1 Gbit/s', delay = '1 us' },
        { a = 's', b = 't', rate = '10 Gbit/s', delay = '1 us' },
        { a = 't', b = 'u', rate = '1 Gbit/s', delay = '10 us' },
        { a = 'u', b = 's', rate = '1 Gbit/s', delay = '1 us' },
        { a = 'c', b = 'u', rate = '1 Gbit/s', delay = '1 us' },
    ]";

fn shape() -> impl Strategy<Value = Topology> {
    let spec = prop_oneof![
        (1u32..6).prop_map(|hosts| format!("kind = 'big-switch'\nhosts = {hosts}")),
        (1u32..4, 1u32..4, 1u32..4).prop_map(|(leaves, spines, hosts)| {
            format!("kind = 'leaf-spine'\nleaves = {leaves}\nspines = {spines}\nhosts_per_leaf = {hosts}")
        }),
        Just("kind = 'fat-tree'\nk = 4".to_owned()),
        // Hosts with several links, of which the network is made; they do not forward here.
        Just("kind = 'bcube'\nn = 2\nlevels = 1".to_owned()),
        Just("kind = 'torus'\nn = 3\nd = 1".to_owned()),
    ];
    let delay = prop::sample::select(&[0u64, 1, 1_000, 40_000][..]);
    let rate = prop::sample::select(&["10 Mbit/s", "1 Gbit/s", "100 Gbit/s", "100000 Gbit/s"][..]);
    let regular = (spec, delay, rate)
        .prop_map(|(spec, delay, rate)| topology(&format!("{spec}\nrate = '{rate}'\ndelay = '{delay} ns'")));
    prop_oneof![8 => regular, 1 => Just(topology(PARALLEL))]
}

/// Small queues, so that there is marking, dropping and trimming.
fn port() -> impl Strategy<Value = PortConfig> {
    let fifo = PortConfig::fifo(BitRate::ZERO, Some(Limit::Packets(4)), Some(Threshold::Packets(2)));
    let classes = PortConfig {
        queues: vec![
            QueueConfig { limit: Some(Limit::Bytes(Bytes::new(130))), ..QueueConfig::default() },
            QueueConfig { limit: Some(Limit::Packets(3)), ..QueueConfig::default() },
        ],
        classes: ClassMap::by(|class| usize::from(class != Class::Control)),
        service: Service::FirstAgainstRest { first: 10, rest: 1 },
        when_full: WhenFull::Trim,
        ..fifo.clone()
    };
    prop::sample::select(vec![unbounded(), fifo, classes])
}

fn change() -> impl Strategy<Value = LinkChange> {
    let chance = || prop_oneof![Just(0.0), Just(0.3), Just(1.0), Just(f64::NAN), Just(-1.0)];
    let by = prop_oneof![Just(0), Just(5_000), Just(3_000_000)].prop_map(Duration::from_nanos);
    let rate = prop_oneof![Just(0), Just(5_000_000), Just(10_000_000_000), Just(u64::MAX)];
    prop_oneof![
        chance().prop_map(LinkChange::Loss),
        chance().prop_map(LinkChange::Duplicate),
        (chance(), by).prop_map(|(chance, by)| LinkChange::Reorder(chance, by)),
        prop_oneof![Just(1), Just(3), Just(u64::MAX)].prop_map(LinkChange::DropNext),
        rate.prop_map(|rate| LinkChange::Rate(BitRate::new(rate))),
        any::<bool>().prop_map(LinkChange::Down),
    ]
}

/// Numbers one past the last host and link are among those used, and so are groups that nobody has set.
fn input(hosts: u32, links: u32) -> impl Strategy<Value = Input> {
    let class = prop::sample::select(&Class::ALL[..]);
    let to = prop_oneof![
        // Many for one, so that not only NICs are full.
        3 => Just(Destination::Host(0)),
        4 => (0..=hosts).prop_map(Destination::Host),
        1 => (0u32..3).prop_map(Destination::Group),
    ];
    let len = prop_oneof![Just(1500), Just(64), 1u64..3_000, Just(1 << 41)];
    let frame = (class, to, len, 0..=hosts).prop_map(|(class, to, len, host)| {
        Input::Frame(HostId(host), TestFrame { class, to, ..TestFrame::symbol(0, len, 0) })
    });
    prop_oneof![
        20 => frame,
        2 => (0..=links, change()).prop_map(|(link, change)| Input::Change(LinkId(link), change)),
        1 => (0u32..2, prop::collection::vec((0..=hosts).prop_map(HostId), 0..8))
            .prop_map(|(group, members)| Input::Group(group, members)),
    ]
}

/// Any network with any traffic and faults; frames are numbered from zero.
pub(crate) fn any_run() -> impl Strategy<Value = Run> {
    let choice = prop_oneof![
        (0..4u64).prop_map(|salt| Choice::Hash { salt }),
        (0..4u64).prop_map(|seed| Choice::Spray { seed }),
        Just(Choice::First)
    ];
    let gap = prop_oneof![4 => Just(0u64), 4 => 0u64..2_000, 1 => 0u64..2_000_000];
    (shape(), port(), choice).prop_flat_map(move |(topology, port, choice)| {
        let (hosts, links) = (topology.hosts().len() as u32, topology.fabric().link_count() as u32);
        prop::collection::vec((gap.clone(), input(hosts, links)), 1..120).prop_map(move |steps| {
            let (mut now, mut frames) = (Time::ZERO, 0..);
            let number = |(gap, mut input)| {
                now += Duration::from_nanos(gap);
                if let Input::Frame(_, frame) = &mut input {
                    frame.id = frames.next().unwrap();
                }
                (now, input)
            };
            let inputs = steps.into_iter().map(number).collect();
            Run { topology: topology.clone(), port: port.clone(), choice, inputs }
        })
    })
}
