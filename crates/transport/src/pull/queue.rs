//! The pulls of a whole host, paced together (SCDP §III-D, §IV-H; NDP).
//!
//! A receiver that pulls asks for one packet for each that arrives. If it asked faster than its own link carries packets, a queue would
//! grow at the last switch. So a host has one queue of pulls for all its sessions: pulls leave one after the other, a packet's time on
//! the host's link apart, and sessions take turns, however many pulls each has waiting.
//!
//! ```text
//!   session 1:  [x x x]  \
//!   session 2:  [x]       > round robin -> pace -> poll
//!   session 3:  [x x]    /
//! ```
//! The pace is a schedule, as a line's: while pulls wait, each is due a packet's time after the one before it, whenever the
//! driver comes; one that comes late loses no rate, up to [`PullConfig::catch_up`].
//!
//! The contents of pulls are not known here. [`Asked`] and [`Served`] are the two ends of a pull's sequence number: it counts all
//! packets that were ever asked for, so that a pull which overtakes others, or is the first one to get through, stands for them too
//! (SCDP §III-D). The caller must bound the number of sessions, and of waiting pulls per session.

use std::collections::VecDeque;

use headwater_units::{BitRate, Bytes, Duration, Time};
use serde::{Deserialize, Serialize};

/// Pace of a host's pulls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullConfig {
    /// The rate of the host's link, at least 1 bit/s; of all its links together if it has several ("multi-homed communication", SCDP
    /// §III-A): a symbol is asked for where one has come, so each link gets what it carries.
    pub rate: BitRate,
    /// Bytes that one pull brings over the link, all headers included, at least one. NDP's authors count the header of
    /// one trimmed packet beside each packet (csg-htsim, `NdpPullPacer`): without that room headers make the queue
    /// longer and longer.
    pub packet: Bytes,
    /// A driver that is late catches up on this much. Nothing in a simulation; 1 ms where `epoll_wait` is the clock.
    pub catch_up: Duration,
}

/// Binary digits below a nanosecond that a departure keeps, so that no rounding adds up.
const FRACTION: u32 = 32;

/// Pulls that wait, each with what its session wants to remember of it.
#[derive(Clone, Debug)]
pub struct PullQueue<T> {
    /// Between two pulls, rounded up: never faster than the link.
    interval: u128,
    catch_up: u128,
    /// When the next one may leave; and the nanosecond in which that is.
    next: u128,
    due: Time,
    /// Sessions with a pull waiting, each once, in the order of their turns; perhaps some without.
    turns: VecDeque<u32>,
    sessions: Vec<Session<T>>,
    waiting: usize,
}

#[derive(Clone, Debug)]
struct Session<T> {
    waiting: VecDeque<T>,
    /// It is in the list of turns.
    has_turn: bool,
}

impl<T> PullQueue<T> {
    /// An empty queue: the first pull may leave at once.
    pub fn new(config: PullConfig) -> Self {
        let bits = u128::from(config.packet.get().max(1)) * 8_000_000_000;
        PullQueue {
            interval: (bits << FRACTION).div_ceil(u128::from(config.rate.get().max(1))),
            catch_up: u128::from(config.catch_up.as_nanos()) << FRACTION,
            next: 0,
            due: Time::ZERO,
            turns: VecDeque::new(),
            sessions: Vec::new(),
            waiting: 0,
        }
    }

    /// One more pull of a session. Sessions are small numbers of the caller's choice, counted from zero and used again.
    pub fn push(&mut self, now: Time, session: u32, what: T) {
        let at = session as usize;
        if self.sessions.len() <= at {
            let none = || Session { waiting: VecDeque::new(), has_turn: false };
            self.sessions.resize_with(at + 1, none);
        }
        if self.waiting == 0 {
            // Time in which there was nothing to pull is not made up for.
            self.leave_at(self.next.max(fixed(now)));
        }
        self.waiting += 1;
        let it = &mut self.sessions[at];
        it.waiting.push_back(what);
        if !std::mem::replace(&mut it.has_turn, true) {
            self.turns.push_back(session);
        }
    }

    /// The next pull, if one is due.
    // Asked several times for every packet.
    #[inline]
    pub fn poll(&mut self, now: Time) -> Option<(u32, T)> {
        if self.waiting == 0 || self.due > now { None } else { Some(self.leave(now)) }
    }

    fn leave(&mut self, now: Time) -> (u32, T) {
        let taken = self.take();
        self.leave_at(self.next.max(fixed(now).saturating_sub(self.catch_up)) + self.interval);
        taken
    }

    fn leave_at(&mut self, next: u128) {
        self.next = next;
        // A pull due within a nanosecond is due when the clock shows that nanosecond.
        self.due = Time::from_nanos(u64::try_from(next >> FRACTION).unwrap_or(u64::MAX));
    }

    /// When [`PullQueue::poll`] has the next one, which may be in the past; none if no pull waits.
    #[inline]
    pub fn wake(&self) -> Option<Time> {
        (self.waiting > 0).then_some(self.due)
    }

    /// Forgets what a session has waiting: it is over.
    pub fn clear(&mut self, session: u32) {
        if let Some(it) = self.sessions.get_mut(session as usize) {
            self.waiting -= it.waiting.len();
            it.waiting.clear();
        }
    }

    /// Number of waiting pulls of a session.
    pub fn waiting(&self, session: u32) -> usize {
        self.sessions.get(session as usize).map_or(0, |it| it.waiting.len())
    }

    /// Number of waiting pulls.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether no pull waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The first pull of the session whose turn it is, while one waits.
    fn take(&mut self) -> (u32, T) {
        loop {
            let session = self.turns.pop_front().expect("a session with a pull waiting has a turn");
            let it = &mut self.sessions[session as usize];
            it.has_turn = false;
            let Some(what) = it.waiting.pop_front() else { continue };
            self.waiting -= 1;
            if !it.waiting.is_empty() {
                it.has_turn = true;
                self.turns.push_back(session);
            }
            return (session, what);
        }
    }
}

fn fixed(time: Time) -> u128 {
    u128::from(time.as_nanos()) << FRACTION
}

/// A receiver's count of what it has asked one source for; wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked(u32);

impl Asked {
    /// Asks for one more packet: the sequence number of that pull.
    pub fn one_more(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(1);
        self.0
    }
    /// The sequence number of the last pull; zero before the first.
    pub fn sequence(self) -> u32 {
        self.0
    }
}

/// A source's count of what it was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served(u32);

impl Served {
    /// How many packets a pull asks for beyond all pulls before it: none if it is old, more than one if it has overtaken
    /// others or they were lost. Any number below 2^31 if the receiver lies, so bound what follows from it.
    pub fn on_pull(&mut self, sequence: u32) -> u32 {
        let ahead = sequence.wrapping_sub(self.0);
        if ahead >= 1 << 31 {
            return 0;
        }
        self.0 = sequence;
        ahead
    }
    /// The sequence number of the newest pull; zero before the first.
    pub fn sequence(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn queue(rate: u64, packet: u64, catch_up: u64) -> PullQueue<u32> {
        PullQueue::new(PullConfig {
            rate: BitRate::new(rate),
            packet: Bytes::new(packet),
            catch_up: Duration::from_nanos(catch_up),
        })
    }

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    /// Polls at every wake until nothing waits; when each pull left, and whose it was.
    fn drain(pulls: &mut PullQueue<u32>, from: u64) -> Vec<(u64, u32)> {
        let (mut now, mut left) = (at(from), Vec::new());
        while let Some(wake) = pulls.wake() {
            now = now.max(wake);
            left.extend(pulls.poll(now).map(|(session, _)| (now.as_nanos(), session)));
        }
        left
    }

    #[test]
    fn pulls_leave_a_packets_time_apart_and_the_first_at_once() {
        let mut pulls = queue(1_000_000_000, 1500, 0);
        (0..4).for_each(|n| pulls.push(at(500), 0, n));
        assert_eq!(drain(&mut pulls, 500), [(500, 0), (12_500, 0), (24_500, 0), (36_500, 0)]);
        pulls.push(at(40_000), 0, 4);
        assert_eq!(drain(&mut pulls, 40_000), [(48_500, 0)], "the last one still counts");
        pulls.push(at(90_000), 0, 5);
        assert_eq!(drain(&mut pulls, 90_000), [(90_000, 0)]);
    }

    /// 1564 bytes at 100 Gbit/s are 125.12 ns.
    #[test]
    fn the_pace_keeps_fractions_of_a_nanosecond() {
        let mut pulls = queue(100_000_000_000, 1564, 0);
        (0..=100).for_each(|n| pulls.push(at(0), 0, n));
        assert_eq!(drain(&mut pulls, 0)[100], (12_512, 0));
    }

    #[test]
    fn sessions_take_turns_however_many_pulls_they_have() {
        let mut pulls = queue(1_000_000_000, 125, 0);
        for (session, count) in [(3, 4), (0, 2), (7, 1)] {
            (0..count).for_each(|n| pulls.push(at(0), session, n));
        }
        let order: Vec<u32> = drain(&mut pulls, 0).into_iter().map(|it| it.1).collect();
        assert_eq!(order, [3, 0, 7, 3, 0, 3, 3]);
    }

    #[test]
    fn pulls_of_one_session_keep_their_order() {
        let mut pulls = queue(1_000_000_000, 125, 0);
        for n in 0..5 {
            pulls.push(at(0), n % 2, n);
        }
        let order: Vec<u32> = std::iter::from_fn(|| {
            let wake = pulls.wake()?;
            Some(pulls.poll(wake)?.1)
        })
        .collect();
        assert_eq!(order, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn what_a_session_had_waiting_is_forgotten_and_it_has_one_turn_after_it() {
        let mut pulls = queue(1_000_000_000, 125, 0);
        (0..3).for_each(|n| pulls.push(at(0), 1, n));
        pulls.push(at(0), 2, 0);
        pulls.clear(1);
        assert_eq!((pulls.len(), pulls.waiting(1), pulls.waiting(2)), (1, 0, 1));
        (0..2).for_each(|n| pulls.push(at(0), 1, n));
        let order: Vec<u32> = drain(&mut pulls, 0).into_iter().map(|it| it.1).collect();
        assert_eq!(order, [1, 2, 1]);
        pulls.clear(9);
        assert!(pulls.is_empty() && pulls.wake().is_none() && pulls.poll(Time::MAX).is_none());
    }

    #[test]
    fn late_driver_catches_up_no_further_than_it_may() {
        let mut pulls = queue(1_000_000_000, 1500, 30_000);
        (0..100).for_each(|n| pulls.push(at(0), 0, n));
        let burst = |pulls: &mut PullQueue<u32>, now| std::iter::from_fn(|| pulls.poll(at(now))).count();
        assert_eq!(burst(&mut pulls, 25_000), 3, "due at 0, 12 and 24 us");
        assert_eq!(pulls.wake(), Some(at(36_000)));
        assert_eq!(burst(&mut pulls, 500_000), 3, "of 39 only what 30 us carry, and the one that is due");
    }

    proptest! {
        /// Whatever comes when, in any stretch of time no more pulls leave than the link carries, and one more; and with
        /// pulls waiting, no fewer.
        #[test]
        fn the_host_is_asked_for_what_its_link_carries(
            steps in prop::collection::vec((0u64..40_000, 0u32..5, 1u32..4), 1..200),
        ) {
            let mut pulls = queue(1_000_000_000, 1500, 0);
            let (mut now, mut pushed, mut left) = (0, 0, Vec::new());
            for (gap, session, count) in steps {
                let until = now + gap;
                while let Some(wake) = pulls.wake().filter(|wake| wake.as_nanos() <= until) {
                    let at = wake.max(at(now));
                    prop_assert!(pulls.poll(at).is_some(), "due when it said");
                    left.push(at.as_nanos());
                }
                now = until;
                (0..count).for_each(|n| pulls.push(at(now), session, n));
                pushed += count as usize;
            }
            let waiting = pulls.len();
            let rest = drain(&mut pulls, now);
            prop_assert_eq!(rest.len(), waiting);
            prop_assert_eq!(left.len() + rest.len(), pushed);
            left.extend(rest.into_iter().map(|it| it.0));
            prop_assert!(left.windows(2).all(|pair| pair[1] - pair[0] >= 12_000));
        }

        /// Pulls that are lost, doubled and reordered: at any moment the source was asked for as much as the newest of those
        /// that came says, and for nothing twice.
        #[test]
        fn any_order_of_pulls_asks_for_what_the_newest_says(
            start: u32, order in prop::collection::vec(0u32..300, 1..400),
        ) {
            let mut served = Served(start);
            let (mut newest, mut sum) = (0, 0);
            for pull in order {
                sum += served.on_pull(start.wrapping_add(pull));
                newest = newest.max(pull);
                prop_assert_eq!(sum, newest);
            }
        }
    }

    #[test]
    fn sequences_count_from_one() {
        let (mut asked, mut served) = (Asked::default(), Served::default());
        assert_eq!((asked.sequence(), served.on_pull(0)), (0, 0));
        assert_eq!((asked.one_more(), asked.one_more(), asked.sequence()), (1, 2, 2));
        assert_eq!((served.on_pull(2), served.on_pull(1), served.on_pull(2)), (2, 0, 0));
    }
}
