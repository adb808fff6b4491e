//! The queues of a port: first in, first out, each with its limit and its mark threshold, some sharing a pool.
//!
//! A frame counts in its queue from its arrival until its last bit has left the line: taking it out for transmission
//! frees nothing, [`Queues::release`] does.

use crate::config::{Bound, Occupancy};
use crate::ring::Ring;
use crate::service::QueueSet;
use crate::{ClassMap, Frame, PortConfig};

/// One cache line where frames come and go; what is needed only near a bound is in [`Bounds`].
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Queue<F> {
    waiting: Ring<F>,
    /// Those that wait, and the one in transmission.
    here: Occupancy,
    /// Below it a frame has room and is not marked, but for the pool.
    quiet: Bound,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    room: Bound,
    mark: Bound,
}

/// In the order of use: see [`Port`](crate::Port).
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Queues<F> {
    /// Those with a frame waiting.
    ready: QueueSet,
    /// Those that share the pool.
    sharing: QueueSet,
    /// All frames that count.
    packets: u64,
    queues: Box<[Queue<F>]>,
    classes: ClassMap,
    in_pool: Occupancy,
    pool: Bound,
    bounds: Box<[Bounds]>,
}

impl Occupancy {
    #[inline]
    fn add(&mut self, len: u64) {
        self.packets += 1;
        self.bytes += len;
    }
    #[inline]
    fn remove(&mut self, len: u64) {
        self.packets -= 1;
        self.bytes -= len;
    }
    /// Totals of bytes stop at their end: a dropped frame may have claimed any length.
    #[inline]
    pub(crate) fn plus(self, other: Occupancy) -> Self {
        let bytes = self.bytes.saturating_add(other.bytes);
        Occupancy { packets: self.packets + other.packets, bytes }
    }
}

impl<F: Frame> Queues<F> {
    pub(crate) fn new(config: &PortConfig) -> Self {
        let bounds = config.queues.iter().map(|it| Bounds {
            room: Bound::room(it.limit.or(config.limit)),
            mark: Bound::mark(it.mark_threshold),
        });
        let bounds: Box<[Bounds]> = bounds.collect();
        let queues = bounds.iter().map(|it| Queue {
            waiting: Ring::new(),
            here: Occupancy::default(),
            quiet: it.room.or(it.mark),
        });
        let sharing = config.queues.iter().enumerate().filter(|(_, it)| it.shares_pool);
        Queues {
            ready: 0,
            sharing: sharing.fold(0, |set, (queue, _)| set | 1 << queue),
            packets: 0,
            pool: Bound::room(config.pool),
            in_pool: Occupancy::default(),
            queues: queues.collect(),
            classes: config.classes,
            bounds,
        }
    }
    #[inline]
    pub(crate) fn classes(&self) -> &ClassMap {
        &self.classes
    }
    /// The first queue's limit and threshold.
    pub(crate) fn first_bounds(&self) -> (Bound, Bound) {
        (self.bounds[0].room, self.bounds[0].mark)
    }
    /// Whether a frame of `len` bytes fits into a queue, where `ahead` is on the line besides what the queue knows of; and if so
    /// whether it is to be marked.
    pub(crate) fn admits(&self, queue: usize, ahead: Occupancy, len: u64) -> Option<bool> {
        let it = &self.queues[queue];
        let found = it.here.plus(ahead);
        if self.shares(queue) && self.pool.passed_by(self.in_pool, len) {
            return None;
        }
        if !it.quiet.passed_by(found, len) {
            return Some(false);
        }
        let Bounds { room, mark } = &self.bounds[queue];
        (!room.passed_by(found, len)).then(|| mark.passed_by(found, len))
    }
    /// Counts a frame in a queue that is far from all bounds, whether it waits there or goes to the line at once. False if it is
    /// to be looked at more closely.
    // All in one, since a queue is found once then.
    #[inline(always)]
    pub(crate) fn count_if_quiet(&mut self, queue: usize, len: u64) -> bool {
        let shares = self.shares(queue);
        let it = &mut self.queues[queue];
        if it.quiet.passed_by(it.here, len) || shares && self.pool.passed_by(self.in_pool, len) {
            return false;
        }
        it.here.add(len);
        self.packets += 1;
        if shares {
            self.in_pool.add(len);
        }
        true
    }
    /// Counts a frame that was admitted.
    pub(crate) fn count(&mut self, queue: usize, len: u64) {
        self.queues[queue].here.add(len);
        self.packets += 1;
        if self.shares(queue) {
            self.in_pool.add(len);
        }
    }
    #[inline(always)]
    fn shares(&self, queue: usize) -> bool {
        self.sharing >> queue & 1 != 0
    }
    /// Puts a frame that counts at its queue's end.
    #[inline(always)]
    pub(crate) fn push(&mut self, queue: usize, frame: F) {
        self.queues[queue].waiting.push(frame);
        self.ready |= 1 << queue;
    }
    /// The queues with a frame to send.
    #[inline]
    pub(crate) fn ready(&self) -> QueueSet {
        self.ready
    }
    /// Takes a ready queue's first frame to the line; it still counts.
    #[inline(always)]
    pub(crate) fn take(&mut self, queue: usize) -> F {
        let waiting = &mut self.queues[queue].waiting;
        let taken = waiting.pop().expect("a ready queue has a frame");
        if waiting.is_empty() {
            self.ready &= !(1 << queue);
        }
        taken
    }
    /// Stops counting a frame that was taken from a queue.
    #[inline(always)]
    pub(crate) fn release(&mut self, queue: usize, len: u64) {
        self.queues[queue].here.remove(len);
        self.packets -= 1;
        if self.shares(queue) {
            self.in_pool.remove(len);
        }
    }
    /// How many frames count.
    #[inline]
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }
    /// All that count.
    pub(crate) fn here(&self) -> Occupancy {
        self.queues.iter().fold(Occupancy::default(), |sum, it| sum.plus(it.here))
    }
    /// Occupancy of one queue; zero if there is no such queue.
    pub(crate) fn in_queue(&self, queue: usize) -> Occupancy {
        self.queues.get(queue).map_or(Occupancy::default(), |it| it.here)
    }
    /// Empties all queues, the first one first.
    pub(crate) fn drain_into(&mut self, out: &mut Vec<F>) {
        for queue in 0..self.queues.len() {
            while !self.queues[queue].waiting.is_empty() {
                let frame = self.take(queue);
                self.release(queue, frame.len().get());
                out.push(frame);
            }
        }
    }
}
