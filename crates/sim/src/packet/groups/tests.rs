//! A packet that is sent to a group once comes to each member once, over every link of its tree once.

mod offers;

use std::collections::{BTreeMap, BTreeSet};

use headwater_baseline as baseline;
use headwater_fabric::{FabricSpec, HostId, LinkId, Metric, PointId, Routes};
use headwater_machine::Packet;
use headwater_switch::{Choice, ClassMap, Limit, LinkChange, PortConfig, QueueConfig, Service, WhenFull};
use headwater_units::{
    BitRate, BlockIndex, Bytes, Duration, Esi, FlowId, PacketNumber, PathId, SymbolId, Time,
};
use headwater_wire::{Body, Class, Datagram, Ecn, SymbolHeader};
use proptest::prelude::*;

use crate::packet::delivery::Delivery;
use crate::packet::frame::{FrameSizes, SimFrame};
use crate::packet::segments::End;
use crate::packet::{ControlPlane, DecodeModel, Event, Jitter, Setup, Transport, switch_divisors};

const FAT_TREE: &str = "kind = 'fat-tree'\nk = 4\nrate = '1 Gbit/s'\ndelay = '10 us'";
const LEAF_SPINE: &str =
    "kind = 'leaf-spine'\nleaves = 4\nhosts_per_leaf = 4\nspines = 4\nrate = '1 Gbit/s'\ndelay = '10 us'";
const BIG_SWITCH: &str = "kind = 'big-switch'\nhosts = 16\nrate = '1 Gbit/s'\ndelay = '10 us'";

/// 1500 bytes at 1 Gbit/s.
const SLOT: u64 = 12_000;

fn unlimited() -> PortConfig {
    PortConfig::fifo(BitRate::ZERO, None, None)
}

fn trims_beyond(packets: u32) -> PortConfig {
    let port = PortConfig::fifo(BitRate::ZERO, Some(Limit::Packets(packets)), None);
    PortConfig { when_full: WhenFull::Trim, ..port }
}

/// A network with an endpoint on every host that says nothing by itself.
struct Field {
    setup: Setup,
    delivery: Delivery,
    now: Time,
    /// Packets that came: host, packet number, whether it was cut.
    had: Vec<(u32, u64, bool)>,
    /// Datagrams that came beside symbols, and their flow.
    heard: Vec<(u32, FlowId, Body)>,
    sent: u64,
}

impl Field {
    fn new(fabric: &str, routing: &str, port: PortConfig, seed: u64) -> Self {
        Field::with_nic(fabric, routing, unlimited(), port, seed)
    }

    fn with_nic(fabric: &str, routing: &str, nic: PortConfig, port: PortConfig, seed: u64) -> Self {
        let spec: FabricSpec = toml::from_str(fabric).unwrap_or_else(|error| panic!("{error}\n{fabric}"));
        let topology = spec.build(Bytes::new(1500)).unwrap();
        let routes = match routing {
            "d-mod-k" => Routes::d_mod_k(&topology),
            _ => Routes::all(&topology, Metric::Hops),
        }
        .unwrap();
        let divisors = switch_divisors(&topology, &routes);
        let routing = routing.to_owned();
        let choice = move |switch: u32| match routing.as_str() {
            "spray" => Choice::Spray { seed: seed ^ (u64::from(switch) << 32) },
            "source-spray" => Choice::Path { divisor: divisors[switch as usize] },
            "ecmp" => Choice::Hash { salt: u64::from(switch) << 32 | seed },
            _ => Choice::First,
        };
        let rate = BitRate::new(1_000_000_000);
        let nic = PortConfig { rate, ..nic };
        let port = PortConfig { rate, ..port };
        let ndp = baseline::Scheme::Ndp(baseline::NdpConfig { class: Class::Bulk, headroom: Bytes::ZERO });
        let sender = baseline::SenderConfig::data_centre(ndp);
        let setup = Setup {
            routes,
            port: Box::new(move |_, is_nic| if is_nic { nic.clone() } else { port.clone() }),
            choice: Box::new(choice),
            sizes: FrameSizes {
                data: Some(Bytes::new(1500)),
                ack: Some(Bytes::new(64)),
                around: Bytes::new(66),
                symbol: 1424,
            },
            jitter: Jitter::None,
            control: ControlPlane::Beside { delay: Duration::ZERO },
            transport: Transport::Baseline { receiver: baseline::ReceiverConfig::of(&sender), sender },
            tasks: Vec::new(),
            changes: Vec::new(),
            sample: None,
            until: Some(Time::ZERO + Duration::from_secs(1)),
            // Both ends of every link are counted.
            drain: Some(Duration::from_secs(1)),
            decode: DecodeModel { overhead: Some(0), ns_per_byte: 0.0, ns_per_byte_whole: 0.0 },
            carry_bytes: false,
            seed,
            topology,
        };
        let mut delivery = Delivery::new(&setup).unwrap();
        (0..setup.topology.hosts().len() as u32).for_each(|host| delivery.settle(host));
        Field { setup, delivery, now: Time::ZERO, had: Vec::new(), heard: Vec::new(), sent: 0 }
    }

    /// One data packet on a path.
    fn send(&mut self, from: u32, path: PathId) {
        let symbol = SymbolId { block: BlockIndex(0), esi: Esi(0) };
        let header = SymbolHeader::new(PacketNumber(self.sent), symbol);
        self.sent += 1;
        self.say(from, path, FlowId(7), Body::Symbol(header));
    }

    fn say(&mut self, from: u32, path: PathId, flow: FlowId, body: Body) {
        let datagram = Datagram { class: Class::Bulk, key_epoch: 0, flow, body };
        let packet = Packet { path, ecn: Ecn::NotEct, datagram };
        self.delivery.send(&self.setup, self.now, from, packet);
    }

    /// Until nothing is in flight, or until then.
    fn run(&mut self, until: Time) {
        while let Some((at, event)) = self.delivery.agenda.pop() {
            self.now = Time::from_nanos(at);
            match event {
                Event::Arrive { link, frame } => self.arrive(link, frame),
                Event::Serve { link } => {
                    if let Some(frame) = self.delivery.serve(self.now, link) {
                        self.arrive(link, frame);
                    }
                }
                Event::Deliver { body } => self.take(body, u32::MAX, false),
                other => panic!("nobody asked for {other:?}"),
            }
            if self.now >= until {
                break;
            }
        }
    }

    fn arrive(&mut self, link: u32, frame: SimFrame) {
        if self.delivery.arrive(self.now, link, frame) {
            self.take(frame.body(), link, !frame.is_whole());
        }
    }

    fn take(&mut self, body: u32, link: u32, cut: bool) {
        let to = self.delivery.bodies.get(body).to;
        let packet = self.delivery.take(body, Ecn::NotEct, cut);
        let Some(End::Endpoint(to)) = self.delivery.end(to, link) else { panic!("{to} is no endpoint") };
        let Body::Symbol(header) = packet.datagram.body else {
            return self.heard.push((to, packet.datagram.flow, packet.datagram.body));
        };
        assert_eq!(header.trimmed, cut);
        // Endpoints are numbered as their hosts.
        assert!(link == u32::MAX || self.downlink(to) == LinkId(link));
        self.had.push((to, header.number.0, cut));
    }

    /// Frames that left over each link, by its ends.
    fn carried(&mut self) -> BTreeMap<LinkId, u64> {
        let links = 0..self.delivery.network.link_count();
        let (now, network) = (self.now, &mut self.delivery.network);
        links.map(|link| (LinkId(link), network.stats(now, link).frames_out)).collect()
    }

    /// The numbers of the packets that a host had whole, in order.
    fn of_host(&self, host: u32) -> Vec<u64> {
        let whole = self.had.iter().filter(|(to, _, cut)| *to == host && !cut);
        let mut numbers: Vec<u64> = whole.map(|(_, number, _)| *number).collect();
        numbers.sort_unstable();
        numbers
    }

    fn link(&self, from: PointId, to: PointId) -> LinkId {
        let fabric = self.setup.topology.fabric();
        let links = fabric.leaving(from).iter().copied();
        links.clone().find(|link| fabric.link(*link).unwrap().to == to).expect("they are neighbours")
    }

    /// The link that leads to a host.
    fn downlink(&self, host: u32) -> LinkId {
        let point = self.setup.topology.point_of(HostId(host)).unwrap();
        self.setup.topology.fabric().entering(point)[0]
    }

    /// Packets that come to a switch leave it; those that leave one end of a link come to the other or are lost there.
    fn conserved(&mut self) {
        let fabric = self.setup.topology.fabric();
        // A frame that its link will lose is forgotten when it is queued, and its line is busy with it a moment longer.
        let now = self.now + Duration::from_secs(1);
        let stats: Vec<_> =
            (0..fabric.link_count() as u32).map(|link| self.delivery.network.stats(now, link)).collect();
        let tallies = &self.delivery.network.tallies;
        for (link, (port, ends)) in stats.iter().zip(tallies).enumerate() {
            assert_eq!(ends.offered.frames, port.frames_in, "link {link}");
            assert_eq!(port.frames_in, port.frames_out + port.dropped, "link {link}");
            assert_eq!(port.frames_out + ends.duplicated.frames, ends.arrived.frames + ends.lost.frames);
        }
        for point in (0..fabric.point_count() as u32).map(PointId) {
            if self.setup.topology.hosts().contains(&point) {
                continue;
            }
            let sum = |links: &[LinkId], of: &dyn Fn(usize) -> u64| -> u64 {
                links.iter().map(|link| of(link.0 as usize)).sum()
            };
            let come = sum(fabric.entering(point), &|link| {
                tallies[link].arrived.frames + tallies[link].copied.frames - tallies[link].stray.frames
            });
            assert_eq!(come, sum(fabric.leaving(point), &|link| tallies[link].offered.frames));
        }
        assert_eq!(self.delivery.bodies.len(), 0, "no message is forgotten");
    }
}

/// Links of one packet's tree: up once for all, and apart as late as can be.
fn tree(field: &Field, from: u32, members: &[u32]) -> u64 {
    let place = |host: u32| {
        let host = HostId(host);
        (field.setup.topology.pod_of(host), field.setup.topology.rack_of(host))
    };
    let (pod, rack) = place(from);
    let racks: BTreeSet<_> = members.iter().map(|host| place(*host)).collect();
    let racks: Vec<_> = racks.into_iter().filter(|it| *it != (pod, rack)).collect();
    let pods: BTreeSet<_> = racks.iter().map(|(pod, _)| *pod).collect();
    let others = pods.iter().filter(|it| **it != pod && it.is_some()).count() as u64;
    let up = u64::from(!racks.is_empty()) + u64::from(others > 0);
    1 + up + others + racks.len() as u64 + members.len() as u64
}

#[test]
fn a_packet_crosses_every_link_of_its_tree_once_and_comes_to_every_member() {
    let groups: [(u32, &[u32]); 5] =
        [(0, &[1, 2, 5, 9, 15]), (3, &[0]), (6, &[7]), (0, &[8, 9, 10, 11]), (2, &[4, 5, 12, 13, 14])];
    for fabric in [FAT_TREE, LEAF_SPINE, BIG_SWITCH] {
        for routing in ["spray", "source-spray", "ecmp", "first", "d-mod-k"] {
            if routing == "d-mod-k" && fabric != FAT_TREE {
                continue;
            }
            for (from, members) in groups {
                let mut field = Field::new(fabric, routing, unlimited(), 1);
                let path = field.delivery.group(members);
                (0..40).for_each(|_| field.send(from, path));
                field.run(Time::MAX);
                let all: Vec<u64> = (0..40).collect();
                for &member in members {
                    assert_eq!(field.of_host(member), all, "{fabric} {routing} {from}");
                }
                assert_eq!(field.had.len(), 40 * members.len());
                let carried = field.carried();
                // Where each member has a path of its own, copies part where those do.
                if routing != "d-mod-k" {
                    let expected = 40 * tree(&field, from, members);
                    assert_eq!(carried.values().sum::<u64>(), expected, "{fabric} {routing} {from}");
                }
                for &member in members {
                    assert_eq!(carried[&field.downlink(member)], 40);
                }
                field.conserved();
            }
        }
    }
}

/// Four hosts of a rack that spread each packet's one way up over two switches, and of each over two more.
#[test]
fn sprayed_packets_take_every_way_up_evenly_and_copies_share_it() {
    for (fabric, paths) in [(FAT_TREE, 2), (LEAF_SPINE, 4)] {
        for routing in ["spray", "source-spray"] {
            let mut field = Field::new(fabric, routing, unlimited(), 3);
            let path = field.delivery.group(&[5, 9, 13]);
            (0..400).for_each(|_| field.send(0, path));
            field.run(Time::MAX);
            let host = field.setup.topology.point_of(HostId(0)).unwrap();
            let uplink = field.setup.topology.fabric().leaving(host)[0];
            let rack = field.setup.topology.fabric().link(uplink).unwrap().to;
            let hosts = field.setup.topology.hosts().to_vec();
            let carried = field.carried();
            let fabric = field.setup.topology.fabric();
            let up =
                fabric.leaving(rack).iter().filter(|link| !hosts.contains(&fabric.link(**link).unwrap().to));
            let up: Vec<u64> = up.map(|link| carried[link]).collect();
            assert_eq!((up.len(), up.iter().sum::<u64>()), (paths, 400));
            assert!(up.iter().all(|frames| frames.abs_diff(400 / paths as u64) <= 1), "{up:?}");
        }
    }
}

#[test]
fn loss_on_a_branch_is_loss_for_those_behind_it() {
    let mut field = Field::new(LEAF_SPINE, "first", unlimited(), 1);
    let topology = &field.setup.topology;
    let rack = |host: u32| {
        let link = topology.fabric().leaving(topology.point_of(HostId(host)).unwrap())[0];
        topology.fabric().link(link).unwrap().to
    };
    let spine = {
        let first = field.setup.routes.next(rack(0), HostId(4))[0];
        topology.fabric().link(first).unwrap().to
    };
    // Hosts 4 and 5 are behind one link, 8 and 9 behind another.
    let branch = field.link(spine, rack(4));
    let last = field.downlink(9);
    field.delivery.change(Time::ZERO, branch.0, LinkChange::DropNext(10));
    field.delivery.change(Time::ZERO, last.0, LinkChange::DropNext(3));
    let path = field.delivery.group(&[1, 4, 5, 8, 9]);
    (0..30).for_each(|_| field.send(0, path));
    field.run(Time::MAX);
    let from = |first: u64| (first..30).collect::<Vec<_>>();
    for (host, first) in [(1, 0), (4, 10), (5, 10), (8, 0), (9, 3)] {
        assert_eq!(field.of_host(host), from(first), "host {host}");
    }
    field.conserved();
    assert_eq!(field.delivery.network.faults.lost, 13);
}

#[test]
fn a_full_port_trims_the_copies_that_leave_by_it_and_no_others() {
    let own =
        |limit| QueueConfig { limit: Some(Limit::Packets(limit)), mark_threshold: None, shares_pool: false };
    let port = PortConfig {
        queues: vec![own(1000), own(4)],
        classes: ClassMap::by(|class| usize::from(class != Class::Control)),
        service: Service::FirstAgainstRest { first: 10, rest: 1 },
        ..trims_beyond(4)
    };
    for drain in [true, false] {
        let mut field = Field::new(BIG_SWITCH, "spray", port.clone(), 1);
        if !drain {
            // Ports are asked late where nobody counts at both ends.
            field.setup.drain = None;
            field.delivery = Delivery::new(&field.setup).unwrap();
            (0..16).for_each(|host| field.delivery.settle(host));
        }
        let group = field.delivery.group(&[1, 2, 3]);
        for _ in 0..40 {
            field.send(0, group);
            // Host 2 hears from another one as well, so that its link is asked for twice what it carries.
            field.send(9, PathId(2));
            let next = field.now + Duration::from_nanos(SLOT);
            field.run(next);
            field.now = next;
        }
        field.run(Time::MAX);
        let cut = |host: u32| field.had.iter().filter(|(to, _, cut)| *to == host && *cut).count();
        assert_eq!((cut(1), cut(3)), (0, 0));
        assert!((20..=40).contains(&cut(2)), "{} of 80", cut(2));
        assert_eq!(field.of_host(2).len() + cut(2), 80, "what is cut comes as a header");
        assert_eq!((field.of_host(1).len(), field.of_host(3).len()), (40, 40));
        if drain {
            field.conserved();
        }
        assert_eq!(field.delivery.bodies.len(), 0);
    }
}

#[test]
fn a_member_on_the_senders_host_has_it_without_the_network() {
    let mut field = Field::new(FAT_TREE, "spray", unlimited(), 1);
    let path = field.delivery.group(&[4, 0, 9]);
    field.send(0, path);
    let alone = field.delivery.group(&[0]);
    field.send(0, alone);
    field.send(0, PathId(1 << 31 | 77));
    field.run(Time::MAX);
    let mut had = field.had.clone();
    had.sort_unstable();
    assert_eq!(had, [(0, 0, false), (0, 1, false), (4, 0, false), (9, 0, false)]);
    field.conserved();
}

#[test]
fn members_behind_a_cut_link_are_left_out_and_counted() {
    let mut field = Field::new(BIG_SWITCH, "spray", unlimited(), 1);
    let down = field.downlink(2);
    field.delivery.network.keep_frames(down.0);
    field.delivery.change(Time::ZERO, down.0, LinkChange::Down(true));
    let path = field.delivery.group(&[1, 2]);
    let gone = field.delivery.group(&[2]);
    (0..5).for_each(|_| field.send(0, path));
    (0..2).for_each(|_| field.send(0, gone));
    field.run(Time::MAX);
    assert_eq!((field.of_host(1).len(), field.of_host(2).len()), (5, 0));
    assert_eq!(field.delivery.network.faults.unroutable, 7);
    field.conserved();
}

#[test]
#[should_panic(expected = "a host is in a group once")]
fn two_members_on_one_host_are_refused() {
    let mut field = Field::new(BIG_SWITCH, "spray", unlimited(), 1);
    field.delivery.settle(3);
    field.delivery.group(&[3, 16]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever groups, routing and losses: a member misses a packet only if a link on the path lost it, nobody has one twice or
    /// that was not for him, and every count adds up.
    #[test]
    fn every_count_adds_up_whatever_is_lost(
        fabric in prop::sample::select(vec![FAT_TREE, LEAF_SPINE, BIG_SWITCH]),
        routing in prop::sample::select(vec!["spray", "source-spray", "ecmp"]),
        trims: bool,
        seed: u64,
        sends in prop::collection::vec((0u32..16, prop::collection::btree_set(0u32..16, 1..16), 1u64..20), 1..6),
        losses in prop::collection::vec((any::<prop::sample::Index>(), 0.0f64..1.0), 0..4),
    ) {
        let port = match trims {
            true => trims_beyond(3),
            false => unlimited(),
        };
        let mut field = Field::new(fabric, routing, port, seed);
        let links = field.delivery.network.link_count() as usize;
        for (link, chance) in &losses {
            let link = link.index(links) as u32;
            field.delivery.change(Time::ZERO, link, LinkChange::Loss(*chance));
        }
        let mut expected = BTreeSet::new();
        for (from, members, packets) in &sends {
            let members: Vec<u32> = members.iter().copied().collect();
            let path = field.delivery.group(&members);
            for _ in 0..*packets {
                expected.extend(members.iter().map(|member| (*member, field.sent)));
                field.send(*from, path);
            }
        }
        field.run(Time::MAX);
        let had: BTreeSet<(u32, u64)> = field.had.iter().map(|(to, number, _)| (*to, *number)).collect();
        prop_assert_eq!(had.len(), field.had.len(), "nobody has a packet twice");
        prop_assert!(had.is_subset(&expected), "nobody has what was not for him");
        let (now, links) = (field.now, 0..field.delivery.network.link_count());
        let dropped: u64 = links.map(|link| field.delivery.network.stats(now, link).dropped).sum();
        if field.delivery.network.faults.lost + dropped == 0 {
            prop_assert_eq!(had, expected);
        }
        field.conserved();
    }
}
