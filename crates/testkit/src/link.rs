//! One direction of a path: a queue before a line, a delay, and faults.

use std::collections::VecDeque;

use headwater_machine::Packet;
use headwater_units::{BitRate, Bytes, Duration, Time};
use headwater_wire::{Body, Ecn};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Packets that links carry. Unless a type says otherwise, they can be neither marked nor trimmed.
pub trait Carried: Clone {
    /// The queue marks it, if it may be marked.
    fn mark(&mut self) {}

    /// The queue cuts its payload off; false if it has none.
    fn trim(&mut self) -> bool {
        false
    }
}

impl Carried for Packet {
    fn mark(&mut self) {
        if self.ecn != Ecn::NotEct {
            self.ecn = Ecn::Ce;
        }
    }

    fn trim(&mut self) -> bool {
        match &mut self.datagram.body {
            Body::Symbol(header) => {
                header.trimmed = true;
                true
            }
            Body::ScheduledSymbol(header) => {
                header.trimmed = true;
                true
            }
            _ => false,
        }
    }
}

/// A packet, and its ends.
#[derive(Clone, Debug)]
pub struct Addressed {
    /// Which host has sent it.
    pub from: usize,
    /// Which host it is for.
    pub to: usize,
    /// The packet.
    pub packet: Packet,
}

impl Carried for Addressed {
    fn mark(&mut self) {
        self.packet.mark();
    }

    fn trim(&mut self) -> bool {
        self.packet.trim()
    }
}

/// Fate of a packet that the queue has let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Arrives,
    /// It does not.
    Lost,
    /// It comes later than it should by this time.
    Late(Duration),
    /// It comes, and once more later by this time.
    Twice(Duration),
    /// It comes with the mark, if it may be marked.
    Marked,
    /// It comes without its payload, or not at all if it has none.
    Trimmed,
}

/// Decides on a packet by how many the link has let through before it, and by what it is. It may alter it.
pub type Faults<P> = Box<dyn FnMut(u64, &mut P) -> Fate>;

/// Every packet arrives.
pub fn no_faults<P>() -> Faults<P> {
    Box::new(|_, _| Fate::Arrives)
}

/// Shares of packets, each in `0.0..=1.0`, that a link loses, delays, doubles or marks at random; the first that applies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Lost.
    pub loss: f64,
    /// Doubled.
    pub twice: f64,
    /// Late, so that others overtake them.
    pub late: f64,
    /// Marked.
    pub marked: f64,
    /// How much later a late packet or a second copy comes, at most.
    pub by: Duration,
}

impl Weather {
    /// A link's faults in this weather.
    pub fn faults<P>(self, seed: u64) -> Faults<P> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        Box::new(move |_, _| {
            let by = Duration::from_nanos(random.random_range(0..=self.by.as_nanos()));
            if random.random_bool(self.loss) {
                Fate::Lost
            } else if random.random_bool(self.twice) {
                Fate::Twice(by)
            } else if random.random_bool(self.late) {
                Fate::Late(by)
            } else if random.random_bool(self.marked) {
                Fate::Marked
            } else {
                Fate::Arrives
            }
        })
    }
}

/// How long a packet is on the line.
#[derive(Clone, Copy, Debug)]
pub enum Line {
    /// No time at all.
    Free,
    /// A fixed time per packet, whatever its size.
    Each(Duration),
    /// As its size says.
    Rate(BitRate),
}

/// A first-in, first-out queue, a line, a delay, and faults.
pub struct Link<P> {
    /// How long a packet is on the line.
    pub line: Line,
    /// How long it is on its way after that.
    pub delay: Duration,
    /// Packets that are in the queue or on the line, at most.
    pub room: usize,
    /// Number of waiting packets from which on an arriving one is marked.
    pub mark_from: usize,
    /// A packet without room is trimmed, and then overtakes the queue; else it is dropped.
    pub trims: bool,
    /// Faults for packets that the queue lets through.
    pub faults: Faults<P>,
    /// Packets that the queue has let through whole.
    pub carried: u64,
    /// Packets that the queue has dropped.
    pub dropped: u64,
    /// Packets that the queue has trimmed.
    pub trimmed: u64,
    /// Current backlog.
    pub backlog: Backlog,
}

/// The packets in a link's queue and on its line.
#[derive(Debug, Default)]
pub struct Backlog {
    busy_until: Time,
    /// When each of them will have left.
    leaving: VecDeque<Time>,
}

impl<P: Carried> Link<P> {
    /// A link without limit.
    pub fn new(delay: Duration) -> Self {
        Link {
            line: Line::Free,
            delay,
            room: usize::MAX,
            mark_from: usize::MAX,
            trims: false,
            faults: no_faults(),
            carried: 0,
            dropped: 0,
            trimmed: 0,
            backlog: Backlog::default(),
        }
    }

    /// The same with these faults.
    pub fn with_faults(self, faults: Faults<P>) -> Self {
        Link { faults, ..self }
    }

    /// Takes a packet; says when it arrives, once, twice or never.
    pub fn carry(&mut self, now: Time, size: Bytes, mut packet: P, mut arrives: impl FnMut(Time, P)) {
        let Backlog { busy_until, leaving } = &mut self.backlog;
        while leaving.front().is_some_and(|left| *left <= now) {
            leaving.pop_front();
        }
        if leaving.len() >= self.room {
            if self.trims && packet.trim() {
                self.trimmed += 1;
                arrives(now + self.delay, packet);
            } else {
                self.dropped += 1;
            }
            return;
        }
        if leaving.len() >= self.mark_from {
            packet.mark();
        }
        let takes = match self.line {
            Line::Free => Duration::ZERO,
            Line::Each(span) => span,
            Line::Rate(rate) => size / rate,
        };
        *busy_until = (*busy_until).max(now) + takes;
        if *busy_until > now {
            leaving.push_back(*busy_until);
        }
        let at = *busy_until + self.delay;
        let fate = (self.faults)(self.carried, &mut packet);
        self.carried += 1;
        match fate {
            Fate::Arrives => arrives(at, packet),
            Fate::Lost => {}
            Fate::Late(by) => arrives(at + by, packet),
            Fate::Twice(by) => {
                arrives(at, packet.clone());
                arrives(at + by, packet);
            }
            Fate::Marked => {
                packet.mark();
                arrives(at, packet);
            }
            Fate::Trimmed => {
                if packet.trim() {
                    arrives(at, packet);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Letter(&'static str);

    impl Carried for Letter {
        fn mark(&mut self) {
            self.0 = "marked";
        }

        fn trim(&mut self) -> bool {
            self.0 = "trimmed";
            true
        }
    }

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// Four packets at once on a line that takes 10 us for each; when each arrives, in us.
    fn four(mut link: Link<Letter>) -> Vec<(u64, &'static str)> {
        let mut came = Vec::new();
        for _ in 0..4 {
            link.carry(Time::ZERO, Bytes::new(1250), Letter("whole"), |at, letter| {
                came.push((at.since(Time::ZERO).as_nanos() / 1000, letter.0));
            });
        }
        came
    }

    #[test]
    fn queue_marks_from_its_threshold_and_drops_or_trims_what_has_no_room() {
        let rate = Line::Rate(BitRate::new(1_000_000_000));
        let link = || Link { line: rate, room: 3, mark_from: 2, ..Link::new(us(5)) };
        assert_eq!(four(link()), [(15, "whole"), (25, "whole"), (35, "marked")]);
        let trims = Link { trims: true, ..link() };
        assert_eq!(four(trims), [(15, "whole"), (25, "whole"), (35, "marked"), (5, "trimmed")]);
        assert_eq!(four(Link::new(us(5))), [(5, "whole"); 4], "no queue without a line");
    }

    #[test]
    fn fates_are_what_they_say() {
        let fates =
            [Fate::Twice(us(1)), Fate::Lost, Fate::Late(us(2)), Fate::Trimmed].map(|fate| move |_: &_| fate);
        let link = Link::new(us(5)).with_faults(Box::new(move |nth, letter| fates[nth as usize](letter)));
        assert_eq!(four(link), [(5, "whole"), (6, "whole"), (7, "whole"), (5, "trimmed")]);
    }

    #[test]
    fn faults_may_alter_what_they_let_pass() {
        let link = Link::new(us(5)).with_faults(Box::new(|nth, letter: &mut Letter| {
            letter.0 = if nth == 2 { "forged" } else { letter.0 };
            Fate::Arrives
        }));
        assert_eq!(four(link), [(5, "whole"), (5, "whole"), (5, "forged"), (5, "whole")]);
    }

    #[test]
    fn weather_is_a_function_of_its_seed() {
        let weather = Weather { loss: 0.2, twice: 0.2, late: 0.2, marked: 0.2, by: us(50) };
        let fates = |seed| {
            let mut faults = weather.faults(seed);
            (0..1000).map(|nth| faults(nth, &mut Letter(""))).collect::<Vec<_>>()
        };
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
        for fate in [Fate::Lost, Fate::Marked, Fate::Arrives] {
            assert!(fates(1).iter().filter(|it| **it == fate).count() > 50, "{fate:?}");
        }
    }
}
