//! A switch driven step by step from bytes: what arrives where, how time passes, which links flap, which rates change.
//!
//! Nothing panics, every poll ends and no wake lies in the past; departures of a port are in order, no copy goes back where
//! its frame came from, nothing is lost or invented in any port or between them, and in the end every queue is empty.

use std::collections::VecDeque;

use headwater_switch::{
    Allocator, AllocatorVariant, Choice, Claim, ClassMap, Destination, Forwarding, Limit, PortConfig,
    PortIndex, QueueConfig, RateAllocatorConfig, Service, Switch, SwitchOutput, Threshold, WhenFull,
};
use headwater_units::{BitRate, Bytes, Duration, FlowId, Rank, Time};
use headwater_wire::{Class, Ecn, SchedulingKind};

use crate::common::TestFrame;

const HOSTS: u32 = 4;
const GROUPS: u32 = 3;
/// Enough for every kind of event, few enough for a fast fuzzer.
const STEPS: usize = 600;

/// Bytes as choices; after the end all are zero.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }
    fn below(&mut self, end: u64) -> u64 {
        u64::from(self.byte()) % end
    }
    fn yes(&mut self) -> bool {
        self.byte() & 1 == 1
    }
    /// Of any size, small ones more often.
    fn number(&mut self, bits: u64) -> u64 {
        let shift = self.below(bits);
        (1 << shift) + (u64::from(self.byte()) << shift >> 8)
    }
    fn ports(&mut self, count: usize) -> Vec<PortIndex> {
        // One port more than there is: a route may lead nowhere.
        let set = self.byte();
        (0..=count as u16).filter(|port| set >> port & 1 == 1).map(PortIndex).collect()
    }
}

/// State of a switch's driver.
struct Driver {
    switch: Switch<TestFrame>,
    now: Time,
    wake: Option<Time>,
    /// No frame may be handed out before its time.
    held: bool,
    came: u64,
    went: u64,
    dropped: u64,
    /// Frames on each line that were handed out ahead of their time, by departure.
    on_line: Vec<VecDeque<Time>>,
    last: Vec<Time>,
    is_up: Vec<bool>,
}

/// One run.
pub(crate) fn run(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let ports = 1 + choices.below(5) as usize;
    let configs = (0..ports).map(|_| port(&mut choices)).collect();
    let choice = match choices.below(3) {
        0 => Choice::Hash { salt: choices.byte().into() },
        1 => Choice::Spray { seed: choices.byte().into() },
        _ => Choice::First,
    };
    let mut driver = Driver {
        switch: Switch::new(configs, Forwarding::new(HOSTS as usize).with_choice(choice))
            .expect("every such port can be made"),
        now: Time::ZERO,
        wake: None,
        held: choices.yes(),
        came: 0,
        went: 0,
        dropped: 0,
        on_line: vec![VecDeque::new(); ports],
        last: vec![Time::ZERO; ports],
        is_up: vec![true; ports],
    };
    if driver.held {
        driver.switch.hold_frames();
    }
    for host in 0..HOSTS {
        driver.route(host, &mut choices);
    }
    for _ in 0..STEPS {
        if choices.is_empty() {
            break;
        }
        driver.step(&mut choices);
        driver.check();
    }
    driver.finish();
}

fn port(choices: &mut Choices<'_>) -> PortConfig {
    let limit = |choices: &mut Choices<'_>| match choices.below(4) {
        0 => None,
        1 => Some(Limit::Bytes(Bytes::new(choices.number(15)))),
        _ => Some(Limit::Packets(choices.below(12) as u32)),
    };
    let rate = BitRate::new(choices.number(50).clamp(1_000, 1_000_000_000_000_000));
    let mark = match choices.below(3) {
        0 => None,
        1 => Some(Threshold::Bytes(Bytes::new(choices.number(13)))),
        _ => Some(Threshold::Packets(choices.below(8) as u32)),
    };
    let count = 1 + choices.below(5) as usize;
    let fifo = PortConfig::fifo(rate, limit(choices), mark);
    let pool = if choices.yes() { limit(choices) } else { None };
    let queues = (0..count).map(|_| QueueConfig {
        limit: limit(choices),
        mark_threshold: mark,
        shares_pool: pool.is_some() && choices.yes(),
    });
    let queues = if count == 1 { fifo.queues.clone() } else { queues.collect() };
    let places = [(); 3].map(|()| choices.below(count as u64) as usize);
    PortConfig {
        queues,
        classes: ClassMap::by(|class| places[class as usize % 3]),
        limit: limit(choices),
        pool,
        service: match choices.below(3) {
            0 => Service::Strict,
            1 => Service::FirstAgainstRest { first: 1 + u32::from(choices.byte()), rest: 1 },
            _ => Service::Weighted((0..count).map(|_| 1 + choices.below(9) as u32).collect()),
        },
        when_full: if choices.yes() { WhenFull::Trim } else { WhenFull::Drop },
        allocator: allocator(rate),
        ..fifo
    }
}

/// Chosen by what is chosen anyway, so that bytes that were found to matter keep their meaning.
fn allocator(rate: BitRate) -> Allocator {
    let variant = match rate.get() % 5 {
        0 => AllocatorVariant::Simple,
        1 => AllocatorVariant::Optimal,
        2 => AllocatorVariant::Hardware { shifts: 4, filter_cells: 64 },
        _ => return Allocator::None,
    };
    let config = RateAllocatorConfig::new(variant, Duration::from_micros(40));
    Allocator::Pam(RateAllocatorConfig { max_transfers: 8, ..config })
}

/// Every other frame is one of sixteen transfers'.
fn claim(number: u64, what: u8, hash: u8) -> Option<Claim> {
    let kinds = [SchedulingKind::Data, SchedulingKind::Last, SchedulingKind::Probe, SchedulingKind::Fin];
    number.is_multiple_of(2).then(|| Claim {
        transfer: FlowId(u64::from(hash) % 16),
        kind: kinds[usize::from(what >> 3) % 4],
        rank: Rank::new(u32::from(what & 7).wrapping_sub(1)),
        rate: BitRate::new(1 << (hash >> 2)),
        offer: BitRate::new(u64::MAX),
    })
}

impl Driver {
    fn step(&mut self, choices: &mut Choices<'_>) {
        let count = self.switch.port_count();
        let port = |choices: &mut Choices<'_>| PortIndex(choices.below(count as u64) as u16);
        match choices.below(16) {
            // Time passes: to the next wake, or anywhere.
            0..=2 => self.go_to(self.wake.unwrap_or(self.now)),
            3 | 4 => {
                let later = Time::from_nanos(self.now.as_nanos().saturating_add(choices.number(44)));
                self.go_to(later);
            }
            5 => {
                let port = port(choices);
                let rate = BitRate::new(choices.number(50));
                let _ = self.switch.port_mut(port).set_rate(self.now, rate);
            }
            6 => {
                let port = port(choices);
                self.flap(port);
            }
            7 => {
                let host = choices.below(u64::from(HOSTS)) as u32;
                self.route(host, choices);
            }
            8 => {
                let group = choices.below(u64::from(GROUPS)) as u32;
                let members = choices.ports(count);
                self.switch.forwarding_mut().set_group(group, &members);
            }
            9 if !self.held => {
                let (port, plain) = (port(choices), choices.yes());
                self.switch.port_mut(port).make_plain(plain);
            }
            _ => {
                for _ in 0..1 + choices.below(8) {
                    let ingress = PortIndex(choices.below(count as u64 + 1) as u16);
                    let frame = self.frame(ingress, choices);
                    self.came += 1;
                    self.switch.handle(self.now, ingress, frame);
                }
            }
        }
        self.poll();
    }

    fn frame(&self, ingress: PortIndex, choices: &mut Choices<'_>) -> TestFrame {
        let what = choices.byte();
        let len = if what & 1 == 0 { 1500 } else { choices.number(63) };
        let hash = choices.byte();
        TestFrame {
            id: self.came,
            len,
            class: Class::ALL[usize::from(what >> 1) % 3],
            ecn: Ecn::from_tos(what >> 3),
            to: match what >> 5 {
                number @ 0..5 => Destination::Host(number.into()),
                number => Destination::Group(u32::from(number) - 5),
            },
            hash: hash.into(),
            marked: 0,
            cut: 0,
            ingress: ingress.0,
            claim: claim(self.came, what, hash),
        }
    }

    fn route(&mut self, host: u32, choices: &mut Choices<'_>) {
        let ports = choices.ports(self.switch.port_count());
        self.switch.forwarding_mut().set_routes(host, &ports).expect("the table has this host");
    }

    fn flap(&mut self, port: PortIndex) {
        let up = !std::mem::replace(&mut self.is_up[usize::from(port.0)], false);
        self.is_up[usize::from(port.0)] = up;
        let taken_back = self.switch.set_port_up(self.now, port, up);
        if !up {
            let line = &mut self.on_line[usize::from(port.0)];
            let before = line.len();
            line.retain(|&at| at <= self.now);
            assert_eq!((before - line.len()) as u64, taken_back, "what the driver drops is what is counted");
            self.went -= taken_back;
            self.dropped += taken_back;
            self.last[usize::from(port.0)] = self.now;
        }
    }

    fn go_to(&mut self, time: Time) {
        self.now = self.now.max(time);
        for line in &mut self.on_line {
            line.retain(|&at| at > self.now);
        }
        self.poll();
    }

    /// The law of the two verbs: poll until a wake, which lies ahead.
    fn poll(&mut self) {
        // Every frame that came can be told of once per port, and no more.
        for _ in 0..=(self.came + 1) * self.on_line.len() as u64 {
            match self.switch.poll(self.now) {
                SwitchOutput::Transmit { port, at, frame } => self.sent(port, at, &frame),
                SwitchOutput::Dropped { .. } => self.dropped += 1,
                SwitchOutput::Wake(wake) => {
                    assert!(wake.is_none_or(|wake| wake > self.now), "a wake in the past: {wake:?}");
                    self.wake = wake;
                    return;
                }
            }
        }
        panic!("the switch does not stop talking");
    }

    fn sent(&mut self, port: PortIndex, at: Time, frame: &TestFrame) {
        let index = usize::from(port.0);
        assert!(!self.held || at <= self.now, "a frame came out before its time");
        assert!(at >= self.last[index], "departures of a port are in order");
        assert!(
            matches!(frame.to, Destination::Host(_)) || frame.ingress != port.0,
            "a copy goes back where it came from"
        );
        assert!(frame.marked <= 1 && (frame.marked == 0 || frame.ecn == Ecn::Ce));
        self.last[index] = at;
        self.went += 1;
        if at > self.now {
            self.on_line[index].push_back(at);
        }
    }

    fn check(&self) {
        let mut offered = 0;
        let mut inside = 0;
        for index in 0..self.switch.port_count() {
            // A copy, since a port that was lent out is asked again when its next frame is due.
            let mut port = self.switch.port(PortIndex(index as u16)).clone();
            let (len, bytes) = (port.queue_len(self.now), port.queue_bytes(self.now));
            let stats = port.stats();
            assert_eq!(stats.frames_in, stats.frames_out + stats.dropped + len);
            // Impossible lengths make the totals of bytes stop at their end.
            if stats.bytes_in.get() < u64::MAX {
                let gone = stats.bytes_out + stats.bytes_dropped + stats.bytes_trimmed;
                assert_eq!(stats.bytes_in, gone + bytes);
            }
            assert!(stats.high_water >= len);
            offered += stats.frames_in;
            // Frames that were handed out ahead of their time are still in the port, and have been told of.
            inside += len - self.on_line[index].len() as u64;
        }
        let stats = self.switch.stats();
        assert_eq!(stats.frames_in, self.came);
        assert_eq!(stats.frames_in + stats.copies, offered + stats.unroutable);
        assert_eq!(self.came + stats.copies, self.went + self.dropped + inside);
    }

    /// Without arrivals, every queue empties by itself.
    fn finish(mut self) {
        self.poll();
        while let Some(wake) = self.wake {
            self.go_to(wake);
        }
        self.go_to(Time::MAX);
        self.check();
        for index in 0..self.switch.port_count() {
            assert_eq!(self.switch.port_mut(PortIndex(index as u16)).queue_len(self.now), 0);
        }
        assert_eq!(self.came + self.switch.stats().copies, self.went + self.dropped);
    }
}
