//! How a port is set up: plain data, checked once when the port is made.

use headwater_units::{BitRate, Bytes};
use headwater_wire::Class;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{RateAllocatorConfig, RateAllocatorError};

/// No queue holds more (1 TiB), whatever its limit: so that a departure can be computed without overflow.
pub const MAX_QUEUE_BYTES: Bytes = Bytes::new(1 << 40);
/// No port has more queues; switches have four to eight (PPUSH §II), SCDP §IV uses five.
pub const MAX_QUEUES: usize = 32;

/// How much a queue or a pool holds; an arrival that would take it above is trimmed or dropped.
///
/// The frame in transmission counts until its last bit has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// In frames: an arrival that finds as many is refused (PPUSH §V-A: "once the occupancy reaches 100").
    Packets(u32),
    /// In bytes, the arriving frame's included.
    Bytes(Bytes),
}

/// The mark threshold (PPUSH K): an arrival that takes its queue's occupancy above it is marked.
///
/// The occupancy counts the frame in transmission and the arriving one, so with `Packets(30)` the arrival that finds 30
/// frames is the first to be marked. PPUSH says that twice, once as "reaches the threshold of 30" on enqueue (§IV-B)
/// and once as "larger than 30" (§V-A); Eq. 3 has `q > K`. DCTCP and RFC 8257 §3.1 compare the queue that the arrival
/// finds, without the arrival, so that their first mark comes one frame later for the same K.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Threshold {
    /// In frames.
    Packets(u32),
    /// In bytes, the arriving frame's included.
    Bytes(Bytes),
}

/// One queue of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueConfig {
    /// Its own limit; none: the port's.
    pub limit: Option<Limit>,
    /// From where it marks; none: never.
    pub mark_threshold: Option<Threshold>,
    /// Whether its frames also take room in the port's shared pool.
    pub shares_pool: bool,
}

/// Which queue takes the frames of a class; at first all go to queue 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassMap([u8; Class::ALL.len()]);

impl ClassMap {
    /// A map that sends each class to the queue that `queue` names (at most 255; larger ones are taken as 255, which no
    /// port has).
    pub fn by(queue: impl Fn(Class) -> usize) -> Self {
        ClassMap(Class::ALL.map(|class| u8::try_from(queue(class)).unwrap_or(u8::MAX)))
    }
    /// Three queues: control first, gentle last, and all other symbols between them, whatever their level.
    pub fn without_levels() -> Self {
        Self::by(|class| match class {
            Class::Control => 0,
            Class::Gentle => 2,
            _ => 1,
        })
    }
    /// Six queues: control first, then the levels in their order ([`Class::LEVELS`]).
    pub fn levels() -> Self {
        Self::by(|class| Class::LEVELS.iter().position(|level| *level == class).map_or(0, |at| at + 1))
    }
    /// The queue of a class.
    pub fn queue(&self, class: Class) -> usize {
        usize::from(self.0[class as usize])
    }
}

/// Which queue sends next. Queues are served by number, 0 first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Service {
    /// The first queue that has a frame.
    #[default]
    Strict,
    /// Round robin: in each round queue `i` sends up to `weights[i]` frames, one after the other.
    Weighted(Vec<u32>),
    /// Queue 0 and all the others take turns, `first` frames to `rest`; strict among the others.
    ///
    /// SCDP §III-C: headers and pulls against symbols, 10 to 1 in NDP and here, so that headers alone never fill a line.
    FirstAgainstRest {
        /// Frames of queue 0 in each round.
        first: u32,
        /// Frames of the other queues in each round.
        rest: u32,
    },
}

/// Treatment of an arrival whose queue, or whose pool, is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhenFull {
    /// It is dropped.
    #[default]
    Drop,
    /// The arrival, not a frame that waits, is trimmed, and its header goes to the queue of its new class under that
    /// queue's limit; it is dropped if it cannot be trimmed or finds no room there either (SCDP §III-B, -C).
    Trim,
}

/// The per-port logic that grants rates to transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Allocator {
    /// There is none.
    #[default]
    None,
    /// PAM's (§III-C), which lowers the offers of scheduled frames ([`Port::allocate`](crate::Port::allocate)).
    Pam(RateAllocatorConfig),
}

/// A port: four independent parts, and the line they feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortConfig {
    /// The line's rate, within [`MIN_RATE`](crate::MIN_RATE)..=[`MAX_RATE`](crate::MAX_RATE).
    pub rate: BitRate,
    /// The queues, at least one.
    pub queues: Vec<QueueConfig>,
    /// Which class goes to which of them.
    pub classes: ClassMap,
    /// The limit of every queue that has none of its own; none: [`MAX_QUEUE_BYTES`].
    pub limit: Option<Limit>,
    /// Limit of all queues that [share the pool](QueueConfig::shares_pool) together, besides their own limits.
    pub pool: Option<Limit>,
    /// Which queue sends next.
    pub service: Service,
    /// Treatment of an arrival that finds no room.
    pub when_full: WhenFull,
    /// Allocator that grants rates.
    pub allocator: Allocator,
}

impl PortConfig {
    /// One queue for all classes that drops what finds no room.
    pub fn fifo(rate: BitRate, limit: Option<Limit>, mark_threshold: Option<Threshold>) -> Self {
        PortConfig {
            rate,
            queues: vec![QueueConfig { limit, mark_threshold, shares_pool: false }],
            classes: ClassMap::default(),
            limit: None,
            pool: None,
            service: Service::Strict,
            when_full: WhenFull::Drop,
            allocator: Allocator::None,
        }
    }
    /// Whether a frame's departure is known when it arrives: one queue, and nothing is ever trimmed.
    pub(crate) fn is_plain(&self) -> bool {
        self.queues.len() == 1 && self.pool.is_none() && self.when_full == WhenFull::Drop
    }
    /// All but the rate, which the line checks.
    pub(crate) fn check(&self) -> Result<(), PortError> {
        let queues = self.queues.len();
        if queues == 0 || queues > MAX_QUEUES {
            return Err(PortError::QueueCount(queues));
        }
        for class in Class::ALL {
            let queue = self.classes.queue(class);
            if queue >= queues {
                return Err(PortError::NoSuchQueue { class, queue, queues });
            }
        }
        if self.pool.is_none()
            && let Some(queue) = self.queues.iter().position(|it| it.shares_pool)
        {
            return Err(PortError::NoPool { queue });
        }
        match &self.service {
            Service::Strict => Ok(()),
            Service::Weighted(weights) if weights.len() != queues => {
                Err(PortError::WeightCount { weights: weights.len(), queues })
            }
            Service::Weighted(weights) => match weights.iter().position(|&weight| weight == 0) {
                Some(queue) => Err(PortError::ZeroWeight { queue }),
                None => Ok(()),
            },
            Service::FirstAgainstRest { first: 0, .. } => Err(PortError::ZeroWeight { queue: 0 }),
            Service::FirstAgainstRest { rest: 0, .. } => Err(PortError::ZeroWeight { queue: 1 }),
            Service::FirstAgainstRest { .. } => Ok(()),
        }
    }
}

/// A port cannot be set up so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PortError {
    /// A line that would take longer than forever, or less than nothing.
    #[error("a line cannot run at {0}: 1 kbit/s to 1 Pbit/s are possible")]
    Rate(BitRate),
    /// No queue, or more than [`MAX_QUEUES`].
    #[error("a port has 1 to {MAX_QUEUES} queues, not {0}")]
    QueueCount(usize),
    /// The class map names a queue that is not there.
    #[error("class {class:?} goes to queue {queue}, but there are {queues}, counted from 0")]
    NoSuchQueue {
        /// The class.
        class: Class,
        /// Where it would go.
        queue: usize,
        /// How many there are.
        queues: usize,
    },
    /// A queue would share a pool that there is not.
    #[error("queue {queue} shares a pool, but the port has none")]
    NoPool {
        /// The queue.
        queue: usize,
    },
    /// The rate allocator cannot be set up so.
    #[error(transparent)]
    Allocator(#[from] RateAllocatorError),
    /// Weighted service needs one weight per queue.
    #[error("{weights} weights for {queues} queues")]
    WeightCount {
        /// How many weights there are.
        weights: usize,
        /// How many queues.
        queues: usize,
    },
    /// A queue that would never be served.
    #[error("queue {queue} has weight 0 and would never be served")]
    ZeroWeight {
        /// The queue.
        queue: usize,
    },
}

/// How much is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Occupancy {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// A limit or a threshold, ready to be compared; what is not bounded has the largest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Bound {
    /// Passed by every frame.
    pub(crate) const ZERO: Bound = Bound { packets: 0, bytes: 0 };
    /// Above everything.
    pub(crate) const NONE: Bound = Bound { packets: u64::MAX, bytes: u64::MAX };

    /// The bound of a queue or a pool.
    pub(crate) fn room(limit: Option<Limit>) -> Self {
        match limit {
            None => Bound { packets: u64::MAX, bytes: MAX_QUEUE_BYTES.get() },
            Some(Limit::Packets(n)) => Bound { packets: n.into(), bytes: MAX_QUEUE_BYTES.get() },
            Some(Limit::Bytes(n)) => Bound { packets: u64::MAX, bytes: n.min(MAX_QUEUE_BYTES).get() },
        }
    }
    /// From where a queue marks.
    pub(crate) fn mark(threshold: Option<Threshold>) -> Self {
        match threshold {
            None => Bound::NONE,
            Some(Threshold::Packets(n)) => Bound { packets: n.into(), ..Bound::NONE },
            Some(Threshold::Bytes(n)) => Bound { bytes: n.get(), ..Bound::NONE },
        }
    }
    /// The bound that is passed as soon as one of the two is.
    pub(crate) fn or(self, other: Bound) -> Self {
        Bound { packets: self.packets.min(other.packets), bytes: self.bytes.min(other.bytes) }
    }
    /// Whether one more frame of `len` bytes would take what is `found` above this bound.
    #[inline]
    pub(crate) fn passed_by(&self, found: Occupancy, len: u64) -> bool {
        found.packets >= self.packets || found.bytes.saturating_add(len) > self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_queues() -> PortConfig {
        let fifo = PortConfig::fifo(BitRate::new(1_000_000), None, None);
        PortConfig { queues: vec![QueueConfig::default(); 2], ..fifo }
    }

    #[test]
    fn wrong_ports_are_refused_with_the_value_that_is_wrong() {
        let check = |change: fn(&mut PortConfig)| {
            let mut config = two_queues();
            change(&mut config);
            config.check()
        };
        assert_eq!(check(|_| ()), Ok(()));
        assert_eq!(check(|it| it.queues.clear()), Err(PortError::QueueCount(0)));
        assert_eq!(check(|it| it.queues.resize(33, it.queues[0])), Err(PortError::QueueCount(33)));
        assert_eq!(
            check(|it| it.classes = ClassMap::without_levels()),
            Err(PortError::NoSuchQueue { class: Class::Gentle, queue: 2, queues: 2 })
        );
        assert_eq!(
            check(|it| it.classes = ClassMap::by(|_| 1000)),
            Err(PortError::NoSuchQueue { class: Class::Control, queue: 255, queues: 2 })
        );
        assert_eq!(check(|it| it.queues[1].shares_pool = true), Err(PortError::NoPool { queue: 1 }));
        assert_eq!(
            check(|it| it.service = Service::Weighted(vec![1])),
            Err(PortError::WeightCount { weights: 1, queues: 2 })
        );
        assert_eq!(
            check(|it| it.service = Service::Weighted(vec![1, 0])),
            Err(PortError::ZeroWeight { queue: 1 })
        );
        assert_eq!(
            check(|it| it.service = Service::FirstAgainstRest { first: 0, rest: 1 }),
            Err(PortError::ZeroWeight { queue: 0 })
        );
    }

    #[test]
    fn each_level_has_a_queue_of_its_own_behind_control() {
        let queues = |map: ClassMap| Class::ALL.map(|class| map.queue(class));
        assert_eq!(queues(ClassMap::levels()), [0, 4, 5, 1, 2, 3]);
        assert_eq!(queues(ClassMap::without_levels()), [0, 1, 2, 1, 1, 1]);
        assert_eq!(queues(ClassMap::default()), [0; 6]);
    }

    #[test]
    fn threshold_of_30_is_passed_by_the_frame_that_finds_30() {
        let bound = Bound::mark(Some(Threshold::Packets(30)));
        assert!(!bound.passed_by(Occupancy { packets: 29, bytes: 0 }, 1));
        assert!(bound.passed_by(Occupancy { packets: 30, bytes: 0 }, 1));
        let bound = Bound::mark(Some(Threshold::Bytes(Bytes::new(3000))));
        assert!(!bound.passed_by(Occupancy { packets: 1, bytes: 1500 }, 1500));
        assert!(bound.passed_by(Occupancy { packets: 1, bytes: 1500 }, 1501));
    }

    #[test]
    fn even_a_queue_without_a_limit_ends() {
        let bound = Bound::room(None);
        assert!(!bound.passed_by(Occupancy { packets: 1 << 40, bytes: 0 }, 1 << 40));
        assert!(bound.passed_by(Occupancy { packets: 0, bytes: 1 }, 1 << 40));
        assert!(bound.passed_by(Occupancy { packets: 0, bytes: 1 }, u64::MAX));
    }
}
