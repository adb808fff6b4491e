//! A network under any frames and faults, driven step by step from bytes: shared by the tests here and the fuzz target
//! `emulated_fabric`.
//!
//! At every step each frame that was ever put in is delivered, counted as gone, or still inside, and the same holds for
//! bytes; each that is delivered is a frame that the next switch would read as this one does, at a host that it was for; what
//! leaves a port is seen once. In the end the network is empty, and all buffers are back in their pool.

use std::net::{Ipv4Addr, Ipv6Addr};

use headwater_experiment::run::{NetworkSetup, network_setup};
use headwater_experiment::scenario::Scenario;
use headwater_fabric::{HostId, LinkId};
use headwater_switch::{Destination, Frame as _, LinkChange, PortStats, Seen};
use headwater_units::{BitRate, Duration, Time};

use super::address::AddressBook;
use super::buffer::{FramePool, MAX_FRAME};
use super::fabric::{DropReason, EmulatedFabric, FabricCounts, FabricOutput, Tap};
use super::frame::RawFrame;
use super::laws;
use super::layout::NotForwarded;

#[path = "../../tests/frames/mod.rs"]
mod frames;
use frames::{Kind, Network, frame};

/// Small queues, so that there is marking, dropping and trimming; a network with several paths, and one in which a host has
/// two cables.
const NETWORKS: [&str; 4] = [
    "fabric = { kind = 'dumbbell', left = 2, right = 2, rate = '100 Mbit/s', delay = '10 us' }
     port = { queue = '4 packets', mark_threshold = '2 packets' }",
    "fabric = { kind = 'leaf-spine', leaves = 2, spines = 2, hosts_per_leaf = 2, rate = '1 Gbit/s', delay = '1 us' }
     routing = 'spray'
     [port]
     queue = '20 KiB'
     mark_threshold = '3 KiB'
     when_full = 'trim'
     classes = [{ of = [0], queue = '2 KiB' }, { of = [1], queue = '9 KiB' }, { of = [2], queue = '3 packets' }]",
    "[fabric]
     kind = 'graph'
     switches = ['s', 't']
     hosts = ['a on s, 1 Gbit/s, 0 us', 'b on t, 10 Mbit/s, 1 us', 'c on t, 1 Gbit/s, 1 us']
     links = [
         { a = 's', b = 't', rate = '1 Gbit/s', delay = '1 us' },
         { a = 's', b = 't', rate = '10 Gbit/s', delay = '1 us' },
         { a = 'c', b = 's', rate = '1 Gbit/s', delay = '1 us' },
     ]",
    "fabric = { kind = 'big-switch', hosts = 3, rate = '1 Gbit/s', delay = '1 us' }
     port = { queue = '8 KiB', mark_threshold = '4 KiB', when_full = 'trim' }",
];
const GROUPS: u32 = 2;
/// Enough for every kind of event, few enough for a fast fuzzer.
const STEPS: usize = 200;
/// More than any storm has frames.
const KEEP: usize = 1 << 20;
/// After everything, however slow a link has become.
const LATE: Time = Time::from_nanos(u64::MAX / 2);

thread_local! {
    static SETUPS: Vec<NetworkSetup> = NETWORKS.iter().map(|text| {
        let scenario = Scenario::of_network(text).expect("written here");
        network_setup(&scenario, 1).expect("written here")
    }).collect();
}

/// Result of a storm: how many frames of each sort.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    pub(super) counts: FabricCounts,
    pub(super) marked: u64,
    pub(super) trimmed: u64,
    pub(super) not_forwarded: [u64; NotForwarded::ALL.len()],
}

/// Tries bytes as choices.
pub(super) fn run(bytes: &[u8]) -> Reached {
    SETUPS.with(|setups| {
        let mut choices = Choices(bytes);
        let pool = FramePool::new(KEEP);
        let setup = &setups[choices.below(setups.len() as u32) as usize];
        let mut storm = Storm::new(setup, pool);
        for _ in 0..STEPS {
            if choices.0.is_empty() {
                break;
            }
            storm.step(&mut choices);
            storm.check();
        }
        storm.end()
    })
}

/// Bytes as choices; after the end all are zero.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn below(&mut self, end: u32) -> u32 {
        let width = if end <= 1 << 8 { 1 } else { 3 };
        let (here, rest) = self.0.split_at(width.min(self.0.len()));
        self.0 = rest;
        here.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)) % end.max(1)
    }

    /// As it comes: any bytes at all.
    fn take(&mut self, len: usize) -> Vec<u8> {
        let (here, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        here.to_vec()
    }
}

/// How often something left each link's port.
struct Left(Vec<u64>);

impl Tap<RawFrame> for Left {
    fn left(&mut self, link: LinkId, _: Time, _: &RawFrame) {
        self.0[link.index()] += 1;
    }
}

/// Counts of the network's outputs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    delivered: u64,
    dropped: u64,
    lost: u64,
    unroutable: u64,
}

struct Storm {
    net: EmulatedFabric<RawFrame, Left>,
    book: AddressBook,
    members: Vec<Vec<u32>>,
    pool: FramePool,
    now: Time,
    hosts: u32,
    links: u32,
    offered: u64,
    refused: [u64; NotForwarded::ALL.len()],
    heard: Heard,
}

impl Storm {
    fn new(setup: &NetworkSetup, pool: FramePool) -> Storm {
        let (hosts, links) =
            (setup.topology.hosts().len() as u32, setup.topology.fabric().link_count() as u32);
        let mut book = AddressBook::new();
        for host in 0..hosts {
            let low = host as u16 + 1;
            let v6 = Ipv6Addr::new(0xfd00, 0x99, 0, 0, 0, 0, 0, low);
            let v4 = Ipv4Addr::new(10, 99, 0, low as u8);
            book.insert_host(v4.into(), host).expect("a host's address");
            book.insert_host(v6.into(), host).expect("a host's address");
        }
        for group in 0..GROUPS {
            let v6 = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, group as u16);
            let v4 = Ipv4Addr::new(239, 1, 1, group as u8);
            book.insert_group(v4.into(), group).expect("a group's address");
            book.insert_group(v6.into(), group).expect("a group's address");
        }
        let tap = Left(vec![0; links as usize]);
        let net =
            EmulatedFabric::with_tap(&setup.topology, &setup.routes, &*setup.port, &*setup.choice, 1, tap);
        Storm {
            net: net.expect("written here"),
            book,
            members: vec![Vec::new(); GROUPS as usize],
            pool,
            now: Time::ZERO,
            hosts,
            links,
            offered: 0,
            refused: Default::default(),
            heard: Heard::default(),
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.below(16) {
            0..=8 => {
                let (kind, from) = (choices.below(Kind::ALL.len() as u32), choices.below(self.hosts));
                let net = Network { hosts: self.hosts, groups: GROUPS, longest: MAX_FRAME };
                let bytes = frame(Kind::ALL[kind as usize], net, from, &mut |end| choices.below(end));
                self.offer(from, &bytes);
            }
            9 => {
                // One past the last host too.
                let (from, len) = (choices.below(self.hosts + 1), choices.below(256) as usize);
                let bytes = choices.take(len);
                self.offer(from, &bytes);
            }
            10 | 11 => {
                let nanos = 1 << choices.below(26);
                self.now += Duration::from_nanos(nanos + u64::from(choices.below(256)));
                self.poll(self.now);
            }
            12 | 13 => self.now += Duration::from_nanos(choices.below(50_000).into()),
            14 => {
                let link = LinkId(choices.below(self.links + 1));
                let change = change(choices);
                // An impossible change is refused, and may do no harm.
                let _ = self.net.change(self.now, link, change);
            }
            _ => {
                let group = choices.below(GROUPS);
                let chosen = choices.below(256);
                let members: Vec<u32> = (0..=self.hosts).filter(|host| chosen >> host & 1 == 1).collect();
                let ids: Vec<HostId> = members.iter().copied().map(HostId).collect();
                self.net.set_group(self.now, group, &ids);
                // Those that arrived before.
                self.poll(self.now);
                self.members[group as usize] = members;
            }
        }
    }

    /// As the driver does with what it reads.
    fn offer(&mut self, from: u32, bytes: &[u8]) {
        let Some(buffer) = self.pool.gather(&[bytes]) else { return };
        self.offered += 1;
        match RawFrame::parse(buffer, &self.book) {
            Ok(frame) => self.net.inject(self.now, HostId(from), frame),
            Err(reason) => self.refused[reason as usize] += 1,
        }
    }

    fn poll(&mut self, now: Time) -> Option<Time> {
        loop {
            match self.net.poll(now) {
                FabricOutput::Deliver { host, due, mut frame, .. } => {
                    assert!(due <= now, "nothing arrives before it is due");
                    self.heard.delivered += 1;
                    assert!(self.is_for(host.0, frame.destination()), "{host:?} {:?}", frame.destination());
                    frame.set_destination_mac([2, 0, 0, 0, 0, 1]);
                    laws::agrees_with_its_bytes(&frame, &self.book);
                }
                FabricOutput::Dropped { why, .. } => match why {
                    DropReason::Full | DropReason::Cut => self.heard.dropped += 1,
                    DropReason::Lost => self.heard.lost += 1,
                    DropReason::Unroutable => self.heard.unroutable += 1,
                },
                FabricOutput::Wake(at) => {
                    assert!(at.is_none_or(|at| at > now), "a wake lies ahead");
                    return at;
                }
            }
        }
    }

    fn is_for(&self, host: u32, destination: Destination) -> bool {
        match destination {
            Destination::Host(to) => to == host,
            Destination::Group(group) => self.members[group as usize].contains(&host),
        }
    }

    /// In frames and in bytes, of which ports trim some away.
    fn check(&mut self) {
        // Tells it the time, before what is on links is counted.
        self.net.queue_len(self.now, LinkId(0));
        let (mut inside, mut trimmed) = (self.net.in_flight(), 0);
        for link in (0..self.links).map(LinkId) {
            let PortStats { frames_out, bytes_in, bytes_out, bytes_dropped, bytes_trimmed, .. } =
                self.net.stats(self.now, link);
            inside.frames += self.net.queue_len(self.now, link);
            inside.bytes += (bytes_in - bytes_out - bytes_dropped - bytes_trimmed).get();
            trimmed += bytes_trimmed.get();
            assert_eq!(self.net.tap_mut().0[link.index()], frames_out, "{link:?}");
        }
        let counts = self.net.counts();
        let sum = |of: &[Seen], what: fn(&Seen) -> u64| of.iter().map(what).sum::<u64>();
        let made = [counts.injected, counts.copied, counts.duplicated];
        let gone = [counts.delivered, counts.dropped, counts.lost, counts.unroutable, inside];
        assert_eq!(sum(&made, |it| it.frames), sum(&gone, |it| it.frames), "{counts:?}");
        assert_eq!(sum(&made, |it| it.bytes), sum(&gone, |it| it.bytes) + trimmed, "{counts:?}");
        assert_eq!(self.offered, counts.injected.frames + self.refused.iter().sum::<u64>());
    }

    fn end(mut self) -> Reached {
        self.now = LATE;
        assert_eq!(self.poll(LATE), None, "everything comes to an end");
        self.check();
        let counts = self.net.counts();
        let [delivered, dropped, lost, unroutable] =
            [counts.delivered, counts.dropped, counts.lost, counts.unroutable].map(|it| it.frames);
        assert_eq!(self.heard, Heard { delivered, dropped, lost, unroutable });
        assert_eq!(self.net.in_flight(), Seen::default());
        assert!((0..self.links).all(|link| self.net.queue_len(LATE, LinkId(link)) == 0));
        assert_eq!(self.pool.lent(), 0, "all buffers are back");
        let ports: Vec<PortStats> = (0..self.links).map(|link| self.net.stats(LATE, LinkId(link))).collect();
        Reached {
            counts,
            marked: ports.iter().map(|port| port.marked).sum(),
            trimmed: ports.iter().map(|port| port.trimmed).sum(),
            not_forwarded: self.refused,
        }
    }
}

fn change(choices: &mut Choices<'_>) -> LinkChange {
    let chance = [0.0, 0.3, 1.0, -1.0, f64::NAN][choices.below(5) as usize];
    match choices.below(6) {
        0 => LinkChange::Loss(chance),
        1 => LinkChange::Duplicate(chance),
        2 => LinkChange::Reorder(chance, Duration::from_nanos(choices.below(1 << 22).into())),
        3 => LinkChange::DropNext(choices.below(6).into()),
        4 => LinkChange::Rate(BitRate::new(
            [0, 1, 1_000_000, 10_000_000_000, u64::MAX][choices.below(5) as usize],
        )),
        _ => LinkChange::Down(choices.below(2) == 0),
    }
}
