//! Arrivals of one flow, and when to acknowledge them (docs/decisions/0023).

use headwater_units::{BlockIndex, Duration, PacketNumber, Time};
use headwater_wire::{Ack, AckRange, Ecn, MAX_ACK_RANGES, MAX_OWED, SymbolHeader};

/// The longest run that one ACK names; older packets were acknowledged long before.
const LONGEST_RUN: u64 = u16::MAX as u64;

/// How long ACKs wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckWaits {
    /// Since the oldest packet that is not acknowledged, at most.
    pub(super) most: Duration,
    /// Once one is due for other reasons, for what comes together with the packet that made it due.
    pub(super) gather: Duration,
}

/// The receiving side of one flow's packet numbers.
#[derive(Debug, Default)]
pub(super) struct Acks {
    /// Runs of received numbers, inclusive, ascending; bounded.
    runs: Vec<(u64, u64)>,
    /// The runs below the newest as an ACK names them, kept because they change rarely.
    older: Vec<AckRange>,
    older_changed: bool,
    /// Runs below were forgotten: whether such a number is new cannot be told any more.
    floor: u64,
    largest_at: Time,
    received: u64,
    ect0: u32,
    ce: u32,
    not_ect: u32,
    unacknowledged: u32,
    /// When the oldest unacknowledged packet came.
    waiting_since: Option<Time>,
    interval: u8,
    at_once: bool,
    /// Since when as many are unacknowledged as the source wants acknowledged, or one that it wants at once.
    wanted_since: Option<Time>,
    /// Blocks touched since the last ACK.
    pub(super) touched: Vec<BlockIndex>,
}

impl Acks {
    /// Notes an arrival. `false` if this packet number was seen before, or is too old to tell: a replay.
    // Called at one place, once for every symbol; a call costs a fifth of what it does.
    #[inline(always)]
    pub(super) fn on_packet(&mut self, now: Time, header: &SymbolHeader, ecn: Ecn) -> bool {
        let number = header.expand(self.largest()).0;
        if !self.insert(number) {
            return false;
        }
        if self.largest() == Some(PacketNumber(number)) {
            self.largest_at = now;
        }
        self.received += 1;
        let counter = match ecn {
            Ecn::Ect0 => &mut self.ect0,
            Ecn::Ce => &mut self.ce,
            Ecn::NotEct | Ecn::Ect1 => &mut self.not_ect,
        };
        *counter = counter.wrapping_add(1);
        self.unacknowledged += 1;
        self.waiting_since.get_or_insert(now);
        self.interval = header.ack_interval;
        self.at_once |= header.ack_now;
        if self.at_once || self.unacknowledged >= u32::from(self.interval) {
            self.wanted_since.get_or_insert(now);
        }
        self.touch(header.symbol.block);
        true
    }

    /// The next ACK speaks of this block, if there is room.
    pub(super) fn touch(&mut self, block: BlockIndex) {
        if !self.touched.contains(&block) && self.touched.len() < MAX_OWED {
            self.touched.push(block);
        }
    }

    /// Whether an ACK should leave now.
    pub(super) fn due(&self, now: Time, waits: AckWaits) -> bool {
        self.deadline(waits).is_some_and(|at| now >= at)
    }

    /// When an ACK must leave at the latest.
    pub(super) fn deadline(&self, waits: AckWaits) -> Option<Time> {
        let waiting = self.waiting_since? + waits.most;
        Some(self.wanted_since.map_or(waiting, |since| waiting.min(since + waits.gather)))
    }

    /// The acknowledgment of everything so far; without `owed`, which the caller knows. `None` before any arrival.
    // Called at one place, with as good as every symbol.
    #[inline(always)]
    pub(super) fn take(&mut self, now: Time, first_undecoded: BlockIndex) -> Option<Box<Ack>> {
        let &(first, largest) = self.runs.last()?;
        self.unacknowledged = 0;
        (self.waiting_since, self.wanted_since) = (None, None);
        self.at_once = false;
        if std::mem::take(&mut self.older_changed) {
            self.name_older();
        }
        let mut ack = Box::new(Ack {
            largest: PacketNumber(largest),
            delay: now.since(self.largest_at),
            first_run: run_length(first, largest),
            ranges: Default::default(),
            ect0: self.ect0,
            ce: self.ce,
            not_ect: self.not_ect,
            first_undecoded,
            owed: Default::default(),
        });
        if largest - first < LONGEST_RUN {
            ack.ranges.try_extend_from_slice(&self.older).expect("no more are named than an ACK holds");
        }
        Some(ack)
    }

    fn name_older(&mut self) {
        self.older.clear();
        for pair in self.runs.windows(2).rev().take(MAX_ACK_RANGES) {
            let [(first, last), above] = [pair[0], pair[1]];
            let gap = above.0 - last - 1;
            // A run that is cut short would shift the gap below it, so nothing follows one.
            if gap > LONGEST_RUN || above.1 - above.0 >= LONGEST_RUN {
                break;
            }
            self.older.push(AckRange { gap: gap as u16, run: run_length(first, last) });
        }
    }

    /// Packets that came.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Packets that were sent before the newest and have not come.
    pub(super) fn lost(&self) -> u64 {
        self.largest().map_or(0, |largest| (largest.0 + 1).saturating_sub(self.received))
    }

    /// Packets that came marked.
    pub(super) fn marked(&self) -> u32 {
        self.ce
    }

    fn largest(&self) -> Option<PacketNumber> {
        self.runs.last().map(|&(_, last)| PacketNumber(last))
    }

    /// Adds a number to the runs; `false` if it is in one, or below all of them when no more fit.
    fn insert(&mut self, number: u64) -> bool {
        // Most packets extend the newest run.
        if let Some((_, last)) = self.runs.last_mut()
            && *last + 1 == number
        {
            *last = number;
            return true;
        }
        if number < self.floor {
            return false;
        }
        // The first run that lies wholly above the number; new ones are near the end.
        let at = self.runs.iter().rposition(|&(first, _)| first <= number).map_or(0, |below| below + 1);
        if at > 0 && number <= self.runs[at - 1].1 {
            return false;
        }
        self.older_changed = true;
        let joins_below = at > 0 && self.runs[at - 1].1 + 1 == number;
        let joins_above = at < self.runs.len() && self.runs[at].0 == number + 1;
        match (joins_above, joins_below) {
            (true, true) => {
                self.runs[at - 1].1 = self.runs[at].1;
                self.runs.remove(at);
            }
            (true, false) => self.runs[at].0 = number,
            (false, true) => self.runs[at - 1].1 = number,
            (false, false) => {
                self.runs.insert(at, (number, number));
                if self.runs.len() > 2 * MAX_ACK_RANGES {
                    let (_, last) = self.runs.remove(0);
                    self.floor = last + 1;
                }
            }
        }
        true
    }
}

/// As much of a run as an ACK can name.
fn run_length(first: u64, last: u64) -> u16 {
    (last - first + 1).min(LONGEST_RUN) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_units::SymbolId;
    use proptest::prelude::*;

    fn header(number: u64) -> SymbolHeader {
        SymbolHeader {
            number: PacketNumber(number),
            symbol: SymbolId::default(),
            ack_interval: 4,
            ack_now: false,
            assignment: 0,
            starved: false,
            syn: false,
            trimmed: false,
        }
    }

    #[test]
    fn gaps_appear_in_the_ack_and_replays_do_not_count() {
        let mut acks = Acks::default();
        for number in [0, 1, 2, 5, 6, 9, 1] {
            acks.on_packet(Time::from_nanos(number), &header(number), Ecn::Ect0);
        }
        assert_eq!((acks.received(), acks.lost()), (6, 4));
        let ack = acks.take(Time::from_nanos(3_009), BlockIndex(0)).unwrap();
        assert_eq!(ack.runs().collect::<Vec<_>>(), [(9, 9), (5, 6), (0, 2)]);
        assert_eq!((ack.ect0, ack.delay), (6, Duration::from_nanos(3_000)));
    }

    #[test]
    fn an_ack_is_due_after_the_interval_or_the_delay_or_when_asked_for() {
        let delay = Duration::from_millis(5);
        let waits = AckWaits { most: delay, gather: Duration::ZERO };
        let mut acks = Acks::default();
        acks.on_packet(Time::ZERO, &header(0), Ecn::Ect0);
        assert!(!acks.due(Time::ZERO, waits));
        assert!(acks.due(Time::ZERO + delay, waits));
        for number in 1..4 {
            acks.on_packet(Time::ZERO, &header(number), Ecn::Ce);
        }
        assert!(acks.due(Time::ZERO, waits));
        acks.take(Time::ZERO, BlockIndex(0));
        assert!(!acks.due(Time::MAX, waits));
        acks.on_packet(Time::ZERO, &SymbolHeader { ack_now: true, ..header(9) }, Ecn::Ect0);
        assert!(acks.due(Time::ZERO, waits));
    }

    #[test]
    fn packets_that_come_at_one_time_have_one_ack() {
        let gather = Duration::from_nanos(1);
        let waits = AckWaits { most: Duration::from_millis(5), gather };
        let (at, mut acks) = (Time::from_nanos(7), Acks::default());
        for number in 0..20 {
            acks.on_packet(at, &header(number), Ecn::Ect0);
            assert!(!acks.due(at, waits), "{number}");
        }
        assert_eq!(acks.deadline(waits), Some(at + gather));
        assert!(acks.due(at + gather, waits));
        acks.take(at + gather, BlockIndex(0));
        assert_eq!(acks.deadline(waits), None);
    }

    proptest! {
        #[test]
        fn what_an_ack_says_came_did_come(numbers in proptest::collection::vec(0u64..300, 1..400)) {
            let mut acks = Acks::default();
            let mut seen = std::collections::BTreeSet::new();
            for &number in &numbers {
                if acks.on_packet(Time::ZERO, &header(number), Ecn::Ect0) {
                    prop_assert!(seen.insert(number), "a replay was taken for new");
                }
                let ack = acks.take(Time::ZERO, BlockIndex(0)).unwrap();
                prop_assert_eq!(Some(&ack.largest.0), seen.last());
                prop_assert_eq!(ack.runs().count(), acks.runs.len().min(1 + MAX_ACK_RANGES));
                for (run, known) in ack.runs().zip(acks.runs.iter().rev()) {
                    prop_assert_eq!(run, *known);
                    prop_assert!((run.0..=run.1).all(|n| seen.contains(&n)));
                }
            }
        }
    }
}
