//! A port: a device's egress, from the arrival of a frame to the departure of its last bit.
//!
//! Four independent parts, none of which knows the others: queues with limits and mark thresholds (PPUSH Eq. 3), service
//! between them (SCDP §III-C), what happens when full (drop, or trim the arrival), and a rate allocator, which acts before the others
//! ([`Port::allocate`]) and so leaves a plain port plain.
//!
//! ```text
//!            Drop | Trim         queue 0  [x x x]  \
//!  enqueue -> has it room? ----> queue 1  [x]       > service -> line -> left, for dequeue
//!                 mark           queue 2  []       /
//! ```
//!
//! Occupancy, wherever it is compared or reported, counts frames from arrival until the last bit has left the line. At one
//! and the same nanosecond a departure comes before an arrival, and the line picks its next frame before the arrival too.
//!
//! A port of one queue that never trims is *plain*: a frame's departure is known when it arrives. [`Port::pass`] then does
//! all at once and leaves the frame with its owner, which is what makes a simulation fast. Everything else takes the general
//! way, [`Port::enqueue`] and [`Port::dequeue`]; both agree wherever both apply.
//!
//! Time given to a port never runs backwards; if it does, the port acts as if it had stood still.

use std::collections::VecDeque;

use headwater_units::{BitRate, Bytes, Time};
use headwater_wire::Ecn;

use crate::config::{Bound, Occupancy};
use crate::departures::Departures;
use crate::queue::Queues;
use crate::service::Turns;
use crate::{Allocator, Claim, Frame, Line, PortConfig, PortError, PortStats, RateAllocator, WhenFull};

/// Result of offering a frame to [`Port::enqueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Offered<F> {
    /// It waits, perhaps marked or trimmed.
    Queued,
    /// It found no room. If it was trimmed first and its header found none either, this is the header.
    Dropped(F),
}

/// Result of offering a frame to [`Port::pass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Passed {
    /// Its last bit leaves then; perhaps it was marked.
    Leaves(Time),
    /// It found no room.
    Dropped,
}

/// Frames that a port had not yet sent when it was cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Cleared<F> {
    /// Frames that were queued or in transmission.
    pub frames: Vec<F>,
    /// How many passed frames will not leave after all: those whose promised departure is after the clearing.
    pub promised: u64,
}

/// Totals of what is rare.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    dropped: Occupancy,
    trimmed: Occupancy,
    marked: u64,
}

/// A device's egress. See the module's description.
///
/// The fields that the general way touches for every frame come first and together: a network has more ports than a
/// processor's caches hold, and then a frame costs what it costs to fetch its port.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Port<F> {
    line: Line,
    /// When the last bit of the frame on the line leaves; the end of time while there is none.
    sent_at: Time,
    /// The frame whose bits are on the line, and the queue in which it counts.
    sending: Option<F>,
    sending_from: u32,
    plain: bool,
    can_be_plain: bool,
    /// The port can be plain, or frames have left that were not collected yet: then it keeps more than its queues do.
    keeps_more: bool,
    when_full: WhenFull,
    service: Turns,
    /// Taken in by [`Port::enqueue`] and gone, by their length then.
    sent: Occupancy,
    high_water: u64,
    queues: Queues<F>,

    /// Of what is here, counting frames that have left since somebody looked: below it a frame passes without another question.
    calm: Bound,
    departures: Departures,
    /// The first queue's, at hand for the plain way.
    room: Bound,
    mark: Bound,
    counters: Counters,
    /// Frames that have left and were not collected yet.
    left: VecDeque<(Time, F)>,
    /// Asked before a frame is offered, and only by those who know that there is one.
    allocator: Option<Box<RateAllocator>>,
}

impl<F: Frame> Port<F> {
    /// An empty port; a plain one where the configuration allows it.
    ///
    /// # Errors
    /// See [`PortError`].
    pub fn new(config: PortConfig) -> Result<Self, PortError> {
        config.check()?;
        let queues = Queues::new(&config);
        let (room, mark) = queues.first_bounds();
        let allocator = match &config.allocator {
            Allocator::None => None,
            Allocator::Pam(allocator) => Some(Box::new(RateAllocator::new(allocator, config.rate)?)),
        };
        let mut port = Port {
            line: Line::new(config.rate)?,
            sent_at: Time::MAX,
            plain: false,
            can_be_plain: config.is_plain(),
            keeps_more: config.is_plain(),
            when_full: config.when_full,
            sending: None,
            sending_from: 0,
            service: Turns::new(&config.service, config.queues.len()),
            sent: Occupancy::default(),
            high_water: 0,
            queues,
            calm: Bound::ZERO,
            departures: Departures::default(),
            room,
            mark,
            counters: Counters::default(),
            left: VecDeque::new(),
            allocator,
        };
        port.make_plain(true);
        Ok(port)
    }

    /// Whether the port grants rates: then each frame goes by [`Port::allocate`] before it is offered.
    #[inline]
    pub fn has_allocator(&self) -> bool {
        self.allocator.is_some()
    }

    /// The port's grant to a frame of `len` bytes that is about to be offered, if it claims anything: the offer that it
    /// travels on with. Frames that claim nothing are told too, for their load counts. No port without an allocator
    /// grants or counts anything.
    ///
    /// It acts on what is offered, also if the frame is dropped then: what the port knows of a transfer does not depend on its queue.
    pub fn allocate(&mut self, now: Time, len: Bytes, claim: Option<&Claim>) -> Option<BitRate> {
        self.allocator.as_ref()?;
        if self.sent_at <= now {
            self.settle(now);
        } else {
            self.departures.settle(now);
        }
        let queued = Bytes::new(self.here().bytes);
        self.allocator.as_mut()?.pass(now, len, queued, claim)
    }

    /// The allocator, to look at.
    pub fn allocator(&self) -> Option<&RateAllocator> {
        self.allocator.as_deref()
    }

    /// Offers a frame to a plain port: says at once when its last bit leaves, marks it if it is due, and keeps nothing but
    /// that time and the length.
    ///
    /// # Panics
    /// If the port is not plain: see [`Port::is_plain`].
    // Once for every hop of every packet; a call costs a seventh of what it does.
    #[inline(always)]
    pub fn pass(&mut self, now: Time, frame: &mut F) -> Passed {
        let len = frame.len().get();
        if self.line.free_at() <= self.departures.tell(now) {
            self.departures.settle_all();
        }
        if self.calm.passed_by(self.departures.here(), len) && !self.admit(now, len, frame) {
            return Passed::Dropped;
        }
        let at = self.line.send_raw(now, len);
        self.departures.push(at, len);
        Passed::Leaves(at)
    }

    /// Lets go of what has left, and drops or marks a passing frame that still finds much; whether it may pass.
    #[inline(never)]
    fn admit(&mut self, now: Time, len: u64, frame: &mut F) -> bool {
        assert!(self.plain, "only a plain port knows a departure on arrival; others take frames by enqueue");
        self.departures.settle(now);
        let found = self.departures.here();
        if self.room.passed_by(found, len) {
            self.count_drop(len);
            return false;
        }
        if self.mark.passed_by(found, len) {
            self.mark_if_capable(frame);
        }
        self.high_water = self.high_water.max(found.packets + 1);
        // Below its high-water mark a frame leaves this as it is.
        let packets = self.high_water.min(self.departures.make_room());
        self.calm = self.room.or(self.mark).or(Bound { packets, ..Bound::NONE });
        true
    }

    /// Offers a frame to the queue of its class, to leave in its turn by [`Port::dequeue`].
    ///
    /// A plain port is plain no longer after this, until [`Port::make_plain`].
    #[inline(always)]
    pub fn enqueue(&mut self, now: Time, frame: F) -> Offered<F> {
        if self.can_be_plain {
            return self.enqueue_behind_departures(now, frame);
        }
        if self.sent_at <= now {
            self.settle(now);
        }
        let len = frame.len().get();
        let queue = frame.queue(self.queues.classes());
        if self.queues.count_if_quiet(queue, len) {
            self.take_in(now, queue, len, frame, 0)
        } else {
            self.enqueue_at_bounds(now, frame, Occupancy::default())
        }
    }

    /// The same where there may be frames on the line that the queue, of which there is but one then, knows nothing of.
    #[inline(never)]
    fn enqueue_behind_departures(&mut self, now: Time, frame: F) -> Offered<F> {
        if self.plain {
            self.make_plain(false);
        }
        self.settle(now);
        let ahead = self.departures.here();
        self.enqueue_at_bounds(now, frame, ahead)
    }

    /// A frame comes that may find much.
    #[inline(never)]
    fn enqueue_at_bounds(&mut self, now: Time, frame: F, ahead: Occupancy) -> Offered<F> {
        let frame = match self.admit_at_bounds(ahead, frame) {
            Ok(admitted) => admitted,
            Err(dropped) => return Offered::Dropped(dropped),
        };
        let len = frame.len().get();
        let queue = frame.queue(self.queues.classes());
        self.queues.count(queue, len);
        self.take_in(now, queue, len, frame, ahead.packets)
    }

    /// A frame that counts goes to its queue, or to the line if that is free; `ahead` frames are there besides those that count.
    #[inline(always)]
    fn take_in(&mut self, now: Time, queue: usize, len: u64, frame: F, ahead: u64) -> Offered<F> {
        if self.sending.is_some() {
            self.queues.push(queue, frame);
        } else {
            // Then nothing waits, and the frame need not either.
            let turn = self.service.next(1 << queue);
            debug_assert_eq!(turn, Some(queue), "who is alone never waits");
            self.send(now, queue, len, frame);
        }
        self.high_water = self.high_water.max(self.queues.packets() + ahead);
        Offered::Queued
    }

    /// Marks or trims a frame that finds much, or else gives it back to be dropped, and counts that.
    fn admit_at_bounds(&mut self, ahead: Occupancy, mut frame: F) -> Result<F, F> {
        let arrived = frame.len().get();
        let queue = frame.queue(self.queues.classes());
        let mut admitted = self.queues.admits(queue, ahead, arrived);
        let mut saved = Occupancy::default();
        if admitted.is_none() && self.when_full == WhenFull::Trim && frame.trim() {
            let len = frame.len().get();
            assert!(len <= arrived, "trimming made a frame of {arrived} bytes longer: {len}");
            let queue = frame.queue(self.queues.classes());
            admitted = self.queues.admits(queue, ahead, len);
            saved = Occupancy { packets: 1, bytes: arrived - len };
        }
        let Some(marks) = admitted else {
            self.count_drop(arrived);
            return Err(frame);
        };
        self.counters.trimmed = self.counters.trimmed.plus(saved);
        if marks {
            self.mark_if_capable(&mut frame);
        }
        Ok(frame)
    }

    /// The next frame whose last bit has left the line by `now`, with the time when it did; none if there is none yet.
    ///
    /// However late it is asked, frames leave in the order and at the times of a port that was asked at every moment.
    #[inline(always)]
    pub fn dequeue(&mut self, now: Time) -> Option<(Time, F)> {
        if self.keeps_more { self.dequeue_settled(now) } else { self.departure(now) }
    }

    /// The same of a port that keeps more than the frames that have not left.
    #[inline(never)]
    fn dequeue_settled(&mut self, now: Time) -> Option<(Time, F)> {
        if self.left.is_empty() {
            self.departures.settle(now);
            return self.departure(now);
        }
        self.settle(now);
        let first = self.left.pop_front();
        self.keeps_more = self.can_be_plain || !self.left.is_empty();
        first
    }

    /// When [`Port::dequeue`] has the next frame, which may be in the past; none if no frame was enqueued that has not been
    /// collected. A plain port has said all its departures already, so it has none.
    pub fn next_departure(&self) -> Option<Time> {
        if self.keeps_more
            && let Some((at, _)) = self.left.front()
        {
            return Some(*at);
        }
        self.sending.as_ref().map(|_| self.sent_at)
    }

    /// Whether frames go by [`Port::pass`]: the port has one queue and never trims, nobody has asked for the general way,
    /// and nothing is queued.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// Chooses between the plain way and the general one; says whether the port is plain now.
    ///
    /// To go general is always possible: what was promised stays promised, and counts until it has left. To go plain takes a
    /// port whose configuration allows it and that holds no frame.
    pub fn make_plain(&mut self, plain: bool) -> bool {
        self.plain = plain && self.can_be_plain && self.queues.packets() == 0;
        self.calm = Bound::ZERO;
        self.plain
    }

    /// Goes on at another rate.
    ///
    /// The bits of enqueued frames that have not left by `now` leave at the new rate. Departures that [`Port::pass`] has
    /// promised stay as promised, and the new rate counts from the next frame on: where that is too coarse, make the port
    /// [general](Port::make_plain) before it is used.
    ///
    /// # Errors
    /// [`PortError::Rate`] outside [`MIN_RATE`](crate::MIN_RATE)..=[`MAX_RATE`](crate::MAX_RATE); nothing has changed then.
    pub fn set_rate(&mut self, now: Time, rate: BitRate) -> Result<(), PortError> {
        self.settle(now);
        // Only what follows the last promise is still open to change.
        let from = self.departures.last().map_or(now, |promised| promised.max(now));
        self.line.set_rate(from, rate)?;
        if let Some(allocator) = &mut self.allocator {
            allocator.set_line(now, rate);
        }
        if self.sending.is_some() {
            self.sent_at = self.line.free_at();
        }
        Ok(())
    }

    /// The line's rate.
    pub fn rate(&self) -> BitRate {
        self.line.rate()
    }

    /// Drops all that has not left by `now`: the link is down. The line is free again at once.
    ///
    /// Frames that have left and were not collected are still there for [`Port::dequeue`].
    pub fn clear(&mut self, now: Time) -> Cleared<F> {
        self.settle(now);
        let queued = self.queues.here();
        let revoked = self.departures.revoke();
        let mut frames = Vec::new();
        if let Some(sending) = self.sending.take() {
            self.sent_at = Time::MAX;
            self.queues.release(self.sending_from as usize, sending.len().get());
            frames.push(sending);
        }
        self.queues.drain_into(&mut frames);
        self.counters.dropped = self.counters.dropped.plus(queued).plus(revoked);
        self.line.cut(now);
        if let Some(allocator) = &mut self.allocator {
            allocator.queue_cleared(now);
        }
        Cleared { frames, promised: revoked.packets }
    }

    /// How many frames are here at `now`, the one in transmission included.
    pub fn queue_len(&mut self, now: Time) -> u64 {
        self.settle(now);
        self.here().packets
    }

    /// How many bytes are here at `now`, all of the frame in transmission included.
    pub fn queue_bytes(&mut self, now: Time) -> Bytes {
        self.settle(now);
        Bytes::new(self.here().bytes)
    }

    /// How many frames of one queue are here at `now`, the one in transmission included; none if there is no such queue.
    pub fn len_of_queue(&mut self, now: Time, queue: usize) -> u64 {
        self.settle(now);
        let promised = if queue == 0 { self.departures.here().packets } else { 0 };
        self.queues.in_queue(queue).packets + promised
    }

    /// Counters, as of the last call that told the time. Frames that passed count as here until somebody asks how much is.
    pub fn stats(&self) -> PortStats {
        let Counters { dropped, trimmed, marked } = self.counters;
        let out = self.sent.plus(self.departures.gone());
        let taken_in = out.plus(self.here());
        PortStats {
            frames_in: taken_in.packets + dropped.packets,
            bytes_in: Bytes::new(taken_in.bytes.saturating_add(dropped.bytes).saturating_add(trimmed.bytes)),
            frames_out: out.packets,
            bytes_out: Bytes::new(out.bytes),
            dropped: dropped.packets,
            bytes_dropped: Bytes::new(dropped.bytes),
            marked,
            trimmed: trimmed.packets,
            bytes_trimmed: Bytes::new(trimmed.bytes),
            high_water: self.high_water,
        }
    }

    fn here(&self) -> Occupancy {
        self.queues.here().plus(self.departures.here())
    }

    /// Brings the line's schedule up to `now`: every frame that has left by then, and the one that follows it.
    #[inline(never)]
    fn settle(&mut self, now: Time) {
        self.departures.settle(now);
        while let Some(departure) = self.departure(now) {
            self.left.push_back(departure);
            self.keeps_more = true;
        }
    }

    /// The frame on the line, if it has left by `now`; the one that follows it is on the line then.
    #[inline(always)]
    fn departure(&mut self, now: Time) -> Option<(Time, F)> {
        if self.sent_at > now {
            return None;
        }
        let at = std::mem::replace(&mut self.sent_at, Time::MAX);
        let frame = self.sending.take()?;
        let len = frame.len().get();
        self.queues.release(self.sending_from as usize, len);
        self.sent.packets += 1;
        self.sent.bytes += len;
        // Rounded down, `at` may be a fraction early; the line itself knows better.
        if let Some(queue) = self.service.next(self.queues.ready()) {
            let next = self.queues.take(queue);
            self.send(at, queue, next.len().get(), next);
        }
        Some((at, frame))
    }

    /// Puts a frame that counts on the free line.
    #[inline(always)]
    fn send(&mut self, now: Time, queue: usize, len: u64, frame: F) {
        self.sent_at = self.line.send_raw(now, len);
        self.sending = Some(frame);
        self.sending_from = queue as u32;
    }

    /// RFC 3168 §5: a frame that is not ECN-capable is left as it is.
    #[inline]
    fn mark_if_capable(&mut self, frame: &mut F) {
        if frame.ecn() != Ecn::NotEct {
            frame.mark();
            self.counters.marked += 1;
        }
    }

    #[inline]
    fn count_drop(&mut self, len: u64) {
        self.counters.dropped = self.counters.dropped.plus(Occupancy { packets: 1, bytes: len });
    }
}
