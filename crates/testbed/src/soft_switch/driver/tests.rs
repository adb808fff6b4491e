//! The thread's rounds on cables of memory and a clock that is told.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::thread;

use etherparse::{IpNumber, PacketBuilder};
use headwater_experiment::run::network_setup;
use headwater_experiment::scenario::Scenario;
use headwater_fabric::{HostId, LinkId};
use headwater_switch::LinkChange;
use headwater_units::{Duration, Time};

use super::mover::{Cable, Mover};
use super::{NotForwarded, Round, Sampling, Snapshot, SoftSwitch};
use crate::soft_switch::{
    AddressBook, EmulatedFabric, FramePool, FramePort, Groups, MacAddress, RawBuffer, RingStats, TrimRule,
};

/// 1000 bytes take 8 us at the edges and 80 us in the middle, and 100 us from host to host.
const NETWORK: &str = r#"
    fabric = { kind = "dumbbell", left = 1, right = 1, rate = "100 Mbit/s", edge_rate = "1 Gbit/s", delay = "100 us" }
    port = { queue = "3 packets", mark_threshold = "none" }
"#;
const MACS: [MacAddress; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Frames that a host has sent and was sent.
#[derive(Default)]
struct Memory {
    sent: Vec<Vec<u8>>,
    got: Vec<Vec<u8>>,
    /// Frames that it still takes.
    room: usize,
    /// Frames that found no slot in its ring.
    unread: u64,
}

/// A frame from host 0 to host 1, of this length.
fn frame(len: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let packet = PacketBuilder::ethernet2(MACS[0], [0xff; 6]).ipv4([10, 99, 0, 1], [10, 99, 0, 2], 64);
    packet.udp(9, 9).write(&mut frame, &vec![7; len - 42]).unwrap();
    frame
}

fn us(n: u64) -> Time {
    Time::ZERO + Duration::from_micros(n)
}

/// Shared with the test, which plays the hosts.
type End = Rc<RefCell<Memory>>;

impl FramePort for End {
    fn receive(&mut self, pool: &FramePool, out: &mut Vec<RawBuffer>) -> io::Result<usize> {
        let sent = std::mem::take(&mut self.borrow_mut().sent);
        out.extend(sent.iter().map(|bytes| pool.gather(&[bytes]).unwrap()));
        Ok(sent.len())
    }

    fn send<F: AsRef<[u8]>>(&mut self, frames: &[F]) -> io::Result<usize> {
        let mut memory = self.borrow_mut();
        let done = frames.len().min(memory.room);
        memory.room -= done;
        memory.got.extend(frames[..done].iter().map(|frame| frame.as_ref().to_vec()));
        Ok(done)
    }
}

impl Cable for End {
    fn counters(&mut self) -> RingStats {
        RingStats { kernel_drops: self.borrow().unread, ..RingStats::default() }
    }

    fn waited(&self) -> Option<Duration> {
        Some(Duration::from_micros(7))
    }
}

struct Bench {
    mover: Mover<End>,
    hosts: [End; 2],
    middle: LinkId,
}

impl Bench {
    fn new(changes: &[(Time, LinkChange)]) -> Bench {
        let scenario = Scenario::of_network(NETWORK).unwrap();
        let setup = network_setup(&scenario, 1).unwrap();
        let fabric =
            EmulatedFabric::with_tap(&setup.topology, &setup.routes, &*setup.port, &*setup.choice, 1, None)
                .unwrap();
        let links = setup.topology.fabric().link_count() as u32;
        let middle = setup.topology.link_between("left", "right").unwrap();
        let mut book = AddressBook::new();
        (0..2).for_each(|host: u8| book.insert_host([10, 99, 0, host + 1].into(), host.into()).unwrap());
        let hosts: [End; 2] = Default::default();
        hosts.iter().for_each(|host| host.borrow_mut().room = 1_000);
        let ends = (0..).map(|host| (HostId(host), 0));
        let cables = ends.zip(hosts.iter().cloned().zip(MACS)).collect();
        let changes = changes.iter().map(|(at, change)| (*at, middle, *change)).collect();
        let mut mover = Mover::new(fabric, links, cables, book, changes, Duration::from_micros(50));
        mover.begin(Time::ZERO);
        Bench { mover, hosts, middle }
    }

    fn send(&self, frames: Vec<Vec<u8>>) {
        self.hosts[0].borrow_mut().sent = frames;
    }

    fn round(&mut self, at: Time) -> Round {
        self.mover.round(&mut || at)
    }

    fn snapshot(&mut self, at: Time) -> Snapshot {
        self.mover.snapshot(&mut || at)
    }

    fn got(&self) -> usize {
        self.hosts[1].borrow().got.len()
    }
}

#[test]
fn a_frame_comes_out_when_it_is_due_with_the_address_of_its_host_and_the_same_bytes() {
    let mut bench = Bench::new(&[]);
    bench.send(vec![frame(1_000)]);
    // 8 us, 80 us and 8 us on the lines, 100 us on the middle link.
    assert_eq!(bench.round(us(10)), Round { busy: true, next: Some(us(18)) });
    assert_eq!((bench.round(us(205)).busy, bench.got()), (false, 0));
    assert_eq!((bench.round(us(216)).next, bench.got()), (None, 1));
    let got = bench.hosts[1].borrow().got[0].clone();
    assert_eq!((&got[..6], &got[6..]), (&MACS[1][..], &frame(1_000)[6..]));
    let seen = bench.snapshot(us(300));
    let about =
        |it: Duration, wanted: u64| it.abs_diff(Duration::from_micros(wanted)) < Duration::from_micros(1);
    assert!(about(seen.validity.max, 10) && about(seen.validity.read_p99, 7), "{:?}", seen.validity);
    assert!(seen.validity.valid && seen.validity.sent == 1 && seen.counts.delivered.frames == 1);
}

#[test]
fn what_cannot_be_forwarded_or_sent_or_was_never_read_is_counted() {
    let mut bench = Bench::new(&[]);
    let mut arp = frame(60);
    arp[12..14].copy_from_slice(&[8, 6]);
    bench.send(vec![arp, frame(100), vec![0; 5], frame(100)]);
    bench.hosts[1].borrow_mut().room = 1;
    bench.hosts[0].borrow_mut().unread = 3;
    bench.round(us(0));
    bench.round(us(1_000));
    let seen = bench.snapshot(us(1_000));
    let wanted = [NotForwarded::TooShort, NotForwarded::Arp].map(|it| seen.not_forwarded[it as usize]);
    assert_eq!((wanted, seen.not_forwarded.iter().sum::<u64>()), ([1, 1], 2));
    assert_eq!((seen.unsent, seen.validity.sent, seen.counts.delivered.frames), (1, 1, 2));
    assert_eq!((seen.validity.missed, seen.validity.valid), (4, false));
    bench.mover.forget_lateness();
    let seen = bench.snapshot(us(1_000)).validity;
    assert_eq!((seen.missed, seen.sent, seen.valid), (0, 0, true));
}

#[test]
fn changes_and_samples_have_their_times_however_late_the_round_is() {
    let mut bench = Bench::new(&[(us(150), LinkChange::Loss(1.0)), (us(250), LinkChange::Loss(0.0))]);
    let sampling = Sampling { every: Duration::from_micros(40), links: vec![bench.middle], most: 5 };
    bench.mover.sample(us(0), sampling);
    bench.send(vec![frame(1_000); 3]);
    bench.round(us(0));
    // In the middle from 8, 16 and 24 us on; they leave it at 88, 168 and 248 us, and two of them are lost there.
    bench.send(vec![frame(1_000)]);
    bench.round(us(5_000));
    bench.round(us(6_000));
    let seen = bench.snapshot(us(6_000));
    assert_eq!((seen.links[bench.middle.index()].lost, seen.counts.lost.frames, bench.got()), (2, 2, 2));
    let samples: Vec<(u64, u64)> =
        bench.mover.take_samples().iter().map(|it| (it.at.as_nanos() / 1_000, it.packets)).collect();
    assert_eq!(samples, [(0, 0), (40, 3), (80, 3), (120, 2), (160, 2)]);
    assert!(bench.mover.take_samples().is_empty());
}

#[test]
fn a_script_happens_at_its_times_since_its_beginning_and_anew_when_it_begins_again() {
    let mut bench = Bench::new(&[(us(0), LinkChange::Loss(1.0)), (us(400), LinkChange::Loss(0.0))]);
    // Each leaves the middle 88 us after it was read: the first one is lost, and the second after the end of the loss not.
    let one_more = |bench: &mut Bench, at| {
        bench.send(vec![frame(1_000)]);
        bench.round(us(at));
        bench.round(us(at + 300));
        bench.got()
    };
    bench.mover.begin(us(10_000));
    assert_eq!(one_more(&mut bench, 10_010), 0);
    assert_eq!(one_more(&mut bench, 10_350), 1);
    bench.mover.begin(us(20_000));
    assert_eq!(one_more(&mut bench, 20_010), 1);
    // Begun once more before the loss was over: it lasts 400 us from here.
    bench.mover.begin(us(20_390));
    assert_eq!(one_more(&mut bench, 20_400), 1);
    assert_eq!(one_more(&mut bench, 20_710), 2);
}

/// A report of IGMPv2 from host 1 (RFC 2236 §2): it joins 239.1.1.7, or leaves it.
fn report(joins: bool) -> Vec<u8> {
    let mut message = [if joins { 0x16 } else { 0x17 }, 0, 0, 0, 239, 1, 1, 7];
    let sum = [message[0], message[4], message[6]].map(u32::from).iter().sum::<u32>() * 256 + 1 + 7;
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = Vec::new();
    let packet = PacketBuilder::ethernet2(MACS[1], [1, 0, 0x5e, 1, 1, 7]);
    packet.ipv4([10, 99, 0, 2], [239, 1, 1, 7], 1).write(&mut frame, IpNumber::IGMP, &message).unwrap();
    frame
}

/// A frame from host 0 to that group.
fn to_group(address: [u8; 4]) -> Vec<u8> {
    let mut frame = Vec::new();
    let packet = PacketBuilder::ethernet2(MACS[0], [1, 0, 0x5e, 1, 1, 7]);
    packet.ipv4([10, 99, 0, 1], address, 64).udp(9, 9).write(&mut frame, &[7; 100]).unwrap();
    frame
}

#[test]
fn a_group_is_known_from_its_first_report_to_its_last_leave() {
    let mut bench = Bench::new(&[]);
    let mut at = 0;
    let mut after = |bench: &mut Bench, said: Option<bool>| {
        bench.hosts[1].borrow_mut().sent.extend(said.map(report));
        bench.round(us(at));
        bench.send(vec![to_group([239, 1, 1, 7])]);
        bench.round(us(at + 100));
        bench.round(us(at + 1_000));
        at += 1_000;
        let seen = bench.snapshot(us(at));
        (bench.got(), seen.groups, seen.memberships, seen.counts.unroutable.frames)
    };
    assert_eq!(after(&mut bench, None), (0, 0, 0, 1));
    // A host's messages about its groups go to nobody.
    assert_eq!(after(&mut bench, Some(true)), (1, 1, 1, 2));
    assert_eq!(bench.hosts[1].borrow().got[0], to_group([239, 1, 1, 7]), "it keeps the group's MAC address");
    assert_eq!(after(&mut bench, Some(true)), (2, 1, 1, 3));
    assert_eq!(after(&mut bench, Some(false)), (2, 0, 0, 5));
}

#[test]
fn groups_that_are_named_are_as_they_were_named_whatever_hosts_say() {
    let mut bench = Bench::new(&[]);
    bench.hosts[1].borrow_mut().sent = vec![report(true)];
    bench.round(us(0));
    bench.mover.set_group(us(10), [239, 1, 1, 7].into(), 3, &[]).unwrap();
    bench.send(vec![to_group([239, 1, 1, 7])]);
    bench.round(us(20));
    bench.round(us(1_000));
    assert_eq!((bench.got(), bench.snapshot(us(1_000)).groups), (0, 0));
    bench.mover.set_group(us(1_000), [239, 1, 1, 7].into(), 3, &[HostId(1)]).unwrap();
    bench.send(vec![to_group([239, 1, 1, 7])]);
    bench.round(us(1_020));
    bench.round(us(2_000));
    assert_eq!(bench.got(), 1);
}

#[test]
fn a_flooded_group_gets_to_all_others_and_those_of_a_link_to_nobody() {
    let mut bench = Bench::new(&[]);
    bench.mover.set_rules(TrimRule::default(), Groups::Flooded);
    bench.send(vec![to_group([239, 1, 1, 8]), to_group([224, 0, 0, 251]), to_group([239, 1, 1, 8])]);
    bench.round(us(0));
    bench.round(us(1_000));
    let seen = bench.snapshot(us(1_000));
    assert_eq!((bench.got(), seen.groups, seen.counts.unroutable.frames), (2, 1, 1));
}

#[test]
fn a_thread_that_panicked_is_an_error_with_its_words() {
    let (commands, inbox) = channel();
    let thread = thread::spawn(move || -> Snapshot {
        drop(inbox);
        panic!("a broken invariant")
    });
    let switch = SoftSwitch { commands, thread: Some(thread) };
    while !switch.thread.as_ref().unwrap().is_finished() {
        thread::yield_now();
    }
    assert!(switch.snapshot().unwrap_err().to_string().contains("has stopped"));
    assert!(switch.stop().unwrap_err().to_string().contains("a broken invariant"));
}
