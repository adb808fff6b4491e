//! When a receiver says what it misses, and what that is (PAM §III).
//!
//! ```text
//!   something is lost --> NACK at once, or a round trip and a random part of one after the last --> again after two round trips, four,
//!                                                                                  eight ... until nothing is missing
//! ```
//! A NACK says all of it each time, as of the newest packet that has come, so any of them may be lost, and the source counts nothing twice
//! ([`super::super::supply`]).

use core::num::NonZeroU16;

use headwater_units::{BlockIndex, Duration, Esi, Time};
use headwater_wire::{MAX_MISSING, Missing};
use rand::Rng;
use rand_chacha::ChaCha12Rng;

use super::super::Repair;
use super::LEAST_WAIT;
use headwater_flow::task::ledger::{Here, Ledger};

/// Most doublings of the interval between NACKs of the same, and the longest interval.
const MOST_DOUBLINGS: u32 = 10;
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// When NACKs leave.
#[derive(Debug, Default)]
pub(super) struct Nacks {
    round_trip: Duration,
    /// When the next one is due, if something is missing.
    due: Option<Time>,
    said_at: Option<Time>,
    doublings: u32,
}

impl Nacks {
    /// The longest round trip to any receiver, as the source says.
    pub(super) fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = round_trip.max(LEAST_WAIT);
    }

    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Something is missing that was not before. Whatever many receivers have lost together, no one's NACKs follow each other closely.
    pub(super) fn something_is_lost(&mut self, now: Time, rng: &mut ChaCha12Rng) {
        let at = self.said_at.map_or(now, |said_at| {
            let random = Duration::from_nanos(rng.random_range(0..=self.round_trip.as_nanos()));
            now.max(said_at + self.round_trip + random)
        });
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// One has left.
    pub(super) fn on_said(&mut self, now: Time) {
        self.said_at = Some(now);
        let wait = self.round_trip.max(LEAST_WAIT) * (2 << self.doublings);
        self.due = Some(now + wait.min(LONGEST_WAIT));
        self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
    }

    /// Nothing is missing; it is looked again then.
    pub(super) fn settle(&mut self, again: Option<Time>) {
        (self.due, self.doublings) = (again, 0);
    }

    /// Something of what was missing has come.
    pub(super) fn on_repair(&mut self) {
        self.doublings = 0;
    }
}

/// Missing symbols of the blocks that the source has begun, in their order; at most as many as a NACK holds. Blocks
/// beyond the first `open` that are not done are left out: nothing of them could be kept.
pub(super) fn missing(
    ledger: &mut Ledger<()>,
    begun: u32,
    open: u32,
    repair: Repair,
    extra: u32,
) -> Vec<Missing> {
    let first = ledger.first_undone().0;
    let end = begun.min(first.saturating_add(open)).min(ledger.wanted().end);
    let mut runs = Vec::new();
    for block in first..end {
        if runs.len() >= MAX_MISSING {
            break;
        }
        if ledger.is_done(block) {
            continue;
        }
        let source_symbols = ledger.source_symbols(block);
        let is_passed = block + 1 < begun;
        match ledger.get_mut(block).map(|open| &mut open.here) {
            Some(here) if !here.is_filling() => {}
            Some(here) if here.symbols() > 0 => match repair {
                Repair::Coded => {
                    if is_passed {
                        here.want_extra(extra);
                    }
                    runs.extend(run(block, here.next_repair(), here.missing()));
                }
                Repair::Retransmitted => runs.extend(gaps(block, here)),
            },
            // Nothing of it has come: by name, so that it need not be decoded.
            _ => runs.extend(run(block, 0, source_symbols)),
        }
    }
    runs.truncate(MAX_MISSING);
    runs
}

fn run(block: u32, first: u32, count: u32) -> Option<Missing> {
    let count = NonZeroU16::new(u16::try_from(count).unwrap_or(u16::MAX))?;
    Some(Missing { block: BlockIndex(block), first: Esi(first), count })
}

/// Source symbols that are not here.
fn gaps(block: u32, here: &Here) -> impl Iterator<Item = Missing> + '_ {
    let mut next = 0;
    core::iter::from_fn(move || {
        let first = (next..here.source_symbols()).find(|esi| !here.has(*esi))?;
        let end = (first..here.source_symbols()).find(|esi| here.has(*esi));
        next = end.unwrap_or(here.source_symbols());
        run(block, first, next - first)
    })
}

#[cfg(test)]
mod tests {
    use headwater_units::{Bytes, Geometry};
    use rand::SeedableRng;

    use super::*;

    /// Four blocks of 64 symbols: of the first two all but three, of the others nothing.
    fn ledger() -> Ledger<()> {
        let geometry = Geometry::new(Bytes::kib(1024), 4096).unwrap();
        let mut ledger = Ledger::new(geometry, 0..4, &[]);
        for block in 0..2 {
            let at = ledger.open(block, ());
            (0..64).filter(|esi| ![7, 8, 30].contains(esi)).for_each(|esi| _ = ledger[at].here.insert(esi));
        }
        ledger
    }

    fn runs(begun: u32, open: u32, repair: Repair) -> Vec<(u32, u32, u16)> {
        let missing = missing(&mut ledger(), begun, open, repair, 2);
        missing.iter().map(|it| (it.block.0, it.first.0, it.count.get())).collect()
    }

    #[test]
    fn coded_blocks_lack_a_number_of_symbols_and_others_lack_these() {
        assert_eq!(runs(2, 9, Repair::Coded), [(0, 64, 5), (1, 64, 3)], "two more of a block that is over");
        assert_eq!(runs(3, 9, Repair::Coded), [(0, 64, 5), (1, 64, 5), (2, 0, 64)]);
        assert_eq!(runs(1, 9, Repair::Retransmitted), [(0, 7, 2), (0, 30, 1)]);
        assert_eq!(runs(9, 1, Repair::Retransmitted), [(0, 7, 2), (0, 30, 1)], "no room for more");
        assert_eq!(runs(0, 9, Repair::Coded), []);
    }

    #[test]
    fn nacks_keep_their_distance_and_grow_rare_without_an_answer() {
        let us = Duration::from_micros;
        let at = |n| Time::ZERO + us(n);
        let (mut nacks, mut rng) = (Nacks::default(), ChaCha12Rng::from_seed([1; 32]));
        nacks.set_round_trip(us(100));
        nacks.something_is_lost(at(0), &mut rng);
        assert_eq!(nacks.due(), Some(at(0)));
        nacks.on_said(at(0));
        assert_eq!(nacks.due(), Some(at(200)));
        nacks.something_is_lost(at(10), &mut rng);
        assert!(nacks.due() >= Some(at(100)) && nacks.due() <= Some(at(200)));
        nacks.on_said(at(200));
        assert_eq!(nacks.due(), Some(at(600)));
        nacks.on_repair();
        nacks.on_said(at(600));
        assert_eq!(nacks.due(), Some(at(800)));
        nacks.settle(None);
        assert_eq!(nacks.due(), None);
    }
}
