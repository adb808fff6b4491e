//! The queues of a port: first in, first out, each with its limit and its mark threshold, some sharing a pool.
//!
//! A frame counts in its queue from its arrival until its last bit has left the line: taking it out for transmission
//! frees nothing, [`Queues::release`] does.

use std::collections::VecDeque;

use crate::config::{Bound, Occupancy};
use crate::service::QueueSet;
use crate::{ClassMap, PortConfig};

#[derive(Clone, Debug)]
struct Queue<F> {
    waiting: VecDeque<(F, u64)>,
    /// Those that wait, and the one in transmission.
    here: Occupancy,
    room: Bound,
    mark: Bound,
    shares_pool: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Queues<F> {
    queues: Vec<Queue<F>>,
    classes: ClassMap,
    pool: Bound,
    in_pool: Occupancy,
    here: Occupancy,
    /// Those with a frame waiting.
    ready: QueueSet,
}

impl Occupancy {
    fn add(&mut self, len: u64) {
        self.packets += 1;
        self.bytes += len;
    }
    fn remove(&mut self, len: u64) {
        self.packets -= 1;
        self.bytes -= len;
    }
    /// Totals of bytes stop at their end: a dropped frame may have claimed any length.
    pub(crate) fn plus(self, other: Occupancy) -> Self {
        let bytes = self.bytes.saturating_add(other.bytes);
        Occupancy { packets: self.packets + other.packets, bytes }
    }
}

impl<F> Queues<F> {
    pub(crate) fn new(config: &PortConfig) -> Self {
        let queues = config.queues.iter().map(|it| Queue {
            waiting: VecDeque::new(),
            here: Occupancy::default(),
            room: Bound::room(it.limit.or(config.limit)),
            mark: Bound::mark(it.mark_threshold),
            shares_pool: it.shares_pool,
        });
        Queues {
            queues: queues.collect(),
            classes: config.classes,
            pool: Bound::room(config.pool),
            in_pool: Occupancy::default(),
            here: Occupancy::default(),
            ready: 0,
        }
    }
    pub(crate) fn classes(&self) -> &ClassMap {
        &self.classes
    }
    /// The first queue's limit and threshold.
    pub(crate) fn first_bounds(&self) -> (Bound, Bound) {
        (self.queues[0].room, self.queues[0].mark)
    }
    /// Whether a frame of `len` bytes fits into a queue, where `ahead` is on the line besides what the queue knows of; and if so
    /// whether it is to be marked.
    #[inline]
    pub(crate) fn admits(&self, queue: usize, ahead: Occupancy, len: u64) -> Option<bool> {
        let it = &self.queues[queue];
        let found = it.here.plus(ahead);
        let pool_is_full = it.shares_pool && self.pool.passed_by(self.in_pool, len);
        let fits = !pool_is_full && !it.room.passed_by(found, len);
        fits.then(|| it.mark.passed_by(found, len))
    }
    /// Puts a frame at a queue's end.
    #[inline]
    pub(crate) fn push(&mut self, queue: usize, frame: F, len: u64) {
        self.count(queue, len).push_back((frame, len));
        self.ready |= 1 << queue;
    }
    /// Counts a frame of a queue, whether it waits there or goes to the line at once.
    #[inline]
    pub(crate) fn count(&mut self, queue: usize, len: u64) -> &mut VecDeque<(F, u64)> {
        let it = &mut self.queues[queue];
        it.here.add(len);
        self.here.add(len);
        if it.shares_pool {
            self.in_pool.add(len);
        }
        &mut it.waiting
    }
    /// The queues with a frame to send.
    pub(crate) fn ready(&self) -> QueueSet {
        self.ready
    }
    /// Takes a ready queue's first frame to the line; it still counts.
    #[inline]
    pub(crate) fn take(&mut self, queue: usize) -> (F, u64) {
        let waiting = &mut self.queues[queue].waiting;
        let taken = waiting.pop_front().expect("a ready queue has a frame");
        if waiting.is_empty() {
            self.ready &= !(1 << queue);
        }
        taken
    }
    /// Stops counting a frame that was taken from a queue.
    #[inline]
    pub(crate) fn release(&mut self, queue: usize, len: u64) {
        let it = &mut self.queues[queue];
        it.here.remove(len);
        self.here.remove(len);
        if it.shares_pool {
            self.in_pool.remove(len);
        }
    }
    /// All that count.
    pub(crate) fn here(&self) -> Occupancy {
        self.here
    }
    /// What counts in one queue; nothing if there is no such queue.
    pub(crate) fn in_queue(&self, queue: usize) -> Occupancy {
        self.queues.get(queue).map_or(Occupancy::default(), |it| it.here)
    }
    /// Empties all queues, the first one first.
    pub(crate) fn drain_into(&mut self, out: &mut Vec<F>) {
        for queue in 0..self.queues.len() {
            while !self.queues[queue].waiting.is_empty() {
                let (frame, len) = self.take(queue);
                self.release(queue, len);
                out.push(frame);
            }
        }
    }
}
