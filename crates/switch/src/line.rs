//! The link's serializer: when the last bit of each frame has left.
//!
//! The line keeps its own departure schedule: while frames wait, each departure is the previous one plus length / rate,
//! whenever somebody asks. A driver that wakes late catches up and loses no rate.
//!
//! Times are reported in whole nanoseconds, rounded down; the schedule itself keeps 2^-64 ns, so that no rounding adds up:
//! after an exabyte of backlog the schedule is less than 0.1 ns behind length / rate, and never ahead of it.
//!
//! Not here: which frame is next, and the link's delay.

use headwater_units::{BitRate, Bytes, Time};

use crate::PortError;

/// The slowest line.
pub const MIN_RATE: BitRate = BitRate::new(1_000);
/// The fastest line.
pub const MAX_RATE: BitRate = BitRate::new(1_000_000_000_000_000);

/// Fixed point: nanoseconds above, 2^-64 ns below.
const FRACTION: u32 = 64;

/// The end of a link that sends, one frame at a time.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Line {
    /// When the last bit of all frames so far has left.
    free: u128,
    /// Time of a byte, rounded up, so that the line is never faster than its rate. At most 2^87.
    per_byte: u128,
    rate: BitRate,
}

impl Line {
    /// An idle line.
    ///
    /// # Errors
    /// [`PortError::Rate`] for a rate outside [`MIN_RATE`]..=[`MAX_RATE`].
    pub fn new(rate: BitRate) -> Result<Self, PortError> {
        Ok(Line { rate, per_byte: per_byte(rate)?, free: 0 })
    }
    /// Sends a frame after all that were sent before, at `now` at the earliest; says when its last bit has left.
    ///
    /// Frames longer than [`MAX_QUEUE_BYTES`](crate::MAX_QUEUE_BYTES) count as that long. Past the end of time,
    /// [`Time::MAX`].
    #[inline]
    pub fn send(&mut self, now: Time, len: Bytes) -> Time {
        self.send_raw(now, len.min(crate::MAX_QUEUE_BYTES).get())
    }
    /// As [`Line::send`], of a frame that a queue had room for.
    #[inline]
    pub(crate) fn send_raw(&mut self, now: Time, len: u64) -> Time {
        let start = self.free.max(fixed(now));
        // 87 bits times 40: the product fits.
        self.free = start.saturating_add(self.per_byte * u128::from(len));
        self.free_at()
    }
    /// When the last bit of all frames so far has left, or will have.
    #[inline]
    pub fn free_at(&self) -> Time {
        Time::from_nanos((self.free >> FRACTION) as u64)
    }
    /// The rate at which the next bit is sent.
    pub fn rate(&self) -> BitRate {
        self.rate
    }
    /// Goes on at another rate: bits that have not left at `now` leave at the new one.
    ///
    /// # Errors
    /// [`PortError::Rate`] as in [`Line::new`]; nothing has changed then. A line that stands still is a link that is down:
    /// see [`Port::clear`](crate::Port::clear).
    pub fn set_rate(&mut self, now: Time, rate: BitRate) -> Result<(), PortError> {
        let per_byte = per_byte(rate)?;
        let left = self.free.saturating_sub(fixed(now));
        if left > 0 {
            self.free = fixed(now).saturating_add(scaled(left, self.rate.get(), rate.get()));
        }
        (self.rate, self.per_byte) = (rate, per_byte);
        Ok(())
    }
    /// Forgets what it has not yet sent.
    pub(crate) fn cut(&mut self, now: Time) {
        self.free = self.free.min(fixed(now));
    }
}

#[inline]
fn fixed(time: Time) -> u128 {
    u128::from(time.as_nanos()) << FRACTION
}

fn per_byte(rate: BitRate) -> Result<u128, PortError> {
    if !(MIN_RATE..=MAX_RATE).contains(&rate) {
        return Err(PortError::Rate(rate));
    }
    Ok((8_000_000_000_u128 << FRACTION).div_ceil(u128::from(rate.get())))
}

/// `span * times / over`, rounded up; both factors are rates of lines, below 2^50.
fn scaled(span: u128, times: u64, over: u64) -> u128 {
    let (times, over) = (u128::from(times), u128::from(over));
    let (whole, part) = (span >> FRACTION, span & u128::from(u64::MAX));
    let product = whole * times;
    let below = (((product % over) << FRACTION) + part * times).div_ceil(over);
    match product / over {
        q if q >> FRACTION == 0 => (q << FRACTION).saturating_add(below),
        _ => u128::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn time(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    #[test]
    fn frames_of_1500_bytes_leave_a_10_gigabit_line_every_1200_ns() {
        let mut line = Line::new(BitRate::new(10_000_000_000)).unwrap();
        let departures: Vec<u64> =
            (0..4).map(|_| line.send(time(100), Bytes::new(1500)).as_nanos()).collect();
        assert_eq!(departures, [1300, 2500, 3700, 4900]);
        assert_eq!(line.send(time(10_000), Bytes::new(1500)), time(11_200), "an idle line starts at once");
    }

    #[test]
    fn five_acks_of_3_ns_and_a_fifth_take_16_ns() {
        let mut line = Line::new(BitRate::new(100_000_000_000)).unwrap();
        let departures: Vec<u64> = (0..5).map(|_| line.send(time(0), Bytes::new(40)).as_nanos()).collect();
        assert_eq!(departures, [3, 6, 9, 12, 16]);
    }

    #[test]
    fn rest_of_a_frame_leaves_at_the_new_rate() {
        let mut line = Line::new(BitRate::new(8_000_000)).unwrap();
        assert_eq!(line.send(time(0), Bytes::new(10)), time(10_000));
        line.set_rate(time(4_000), BitRate::new(2_000_000)).unwrap();
        assert_eq!(line.free_at(), time(4_000 + 6 * 4_000));
        line.set_rate(time(100_000), BitRate::new(8_000_000)).unwrap();
        assert_eq!(line.send(time(100_000), Bytes::new(1)), time(101_000), "an idle line has no rest");
    }

    #[test]
    fn rates_at_which_no_line_runs_are_refused() {
        for rate in [0, 999, 1_000_000_000_000_001, u64::MAX].map(BitRate::new) {
            assert_eq!(Line::new(rate).unwrap_err(), PortError::Rate(rate));
            let mut line = Line::new(MIN_RATE).unwrap();
            assert_eq!(line.set_rate(time(5), rate), Err(PortError::Rate(rate)));
            assert_eq!(line.rate(), MIN_RATE);
        }
    }

    #[test]
    fn end_of_time_is_reached_and_not_passed() {
        let mut line = Line::new(MIN_RATE).unwrap();
        assert_eq!(line.send(Time::MAX, Bytes::new(1)), Time::MAX);
        assert_eq!(line.send(Time::ZERO, Bytes::new(u64::MAX)), Time::MAX);
        line.set_rate(Time::ZERO, MAX_RATE).unwrap();
        line.set_rate(Time::ZERO, MIN_RATE).unwrap();
        assert!(line.free_at() > Time::ZERO);
    }

    proptest! {
        /// Work conserving and never faster than the rate: against exact integer arithmetic, to the nanosecond.
        #[test]
        fn backlog_leaves_in_exactly_length_by_rate(
            rate in prop_oneof![1_000u64..10_000_000, 1_000_000u64..=1_000_000_000_000_000],
            start in 0u64..1 << 40,
            lens in prop::collection::vec(0u64..10_000, 1..200),
        ) {
            let mut line = Line::new(BitRate::new(rate)).unwrap();
            let mut bytes = 0u128;
            for len in lens {
                let left = line.send(time(start), Bytes::new(len)).as_nanos();
                bytes += u128::from(len);
                prop_assert_eq!(u128::from(left - start), bytes * 8_000_000_000 / u128::from(rate));
            }
        }

        /// A terabyte in one go, where rounding per frame or per byte would have added up.
        #[test]
        fn long_backlogs_do_not_drift(rate in 1_000_000u64..=400_000_000_000, len in 40u64..9_000) {
            let mut line = Line::new(BitRate::new(rate)).unwrap();
            let mut last = Time::ZERO;
            for _ in 0..1_000 {
                last = line.send(Time::ZERO, Bytes::new(len * 100_000));
            }
            let exact = u128::from(len) * 100_000_000 * 8_000_000_000 / u128::from(rate);
            prop_assert_eq!(u128::from(last.as_nanos()), exact);
        }

        /// There and back again: no time is won by changing the rate.
        #[test]
        fn changing_the_rate_and_back_at_once_changes_nothing(
            rate in 1_000_000u64..400_000_000_000, other in 1_000_000u64..400_000_000_000, len in 1u64..100_000,
        ) {
            let mut line = Line::new(BitRate::new(rate)).unwrap();
            let before = line.send(time(7), Bytes::new(len)).as_nanos();
            line.set_rate(time(7), BitRate::new(other)).unwrap();
            line.set_rate(time(7), BitRate::new(rate)).unwrap();
            prop_assert!(line.free_at().as_nanos() - before <= 1);
        }
    }
}
