//! How patient the controller is with the flows of an overlay before it gives their stripes to others.
//!
//! A source that seems silent is mostly dead, or its host is. But where a thousand nodes begin at once, or the machines
//! are busy, all seem silent, and moving stripes then makes it worse: each move costs an order, a list and a handshake.
//! So a receiver whose stripe has moved waits twice as long before the next one does ([`Mending`]), and only a part of
//! an overlay moves at a time ([`Budget`]).

use headwater_units::{Duration, Symbols, Time};

/// Most doublings of the patience: 500 ms become 16 s.
const DOUBLINGS: u32 = 5;
/// Multiple of its patience without a move after which a receiver has the least patience again.
const CALM: u64 = 8;
/// Number of stripes that move within one silence whatever the size of the overlay ...
const LEAST_MOVES: usize = 64;
/// ... or this part of all its edges: a machine with 20 receivers dies, not half of the network.
const PART: usize = 16;

/// The moves of one receiver's stripes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mending {
    times: u32,
    last: Time,
    /// Moves in a row after which nothing has come, and the number of symbols that were needed at the last one.
    vain: u32,
    needed: Symbols,
}

impl Mending {
    /// How long a source may be silent, where `least` is the first time.
    pub(crate) fn patience(&self, now: Time, least: Duration) -> Duration {
        let patience = least * (1 << self.times.min(DOUBLINGS));
        if self.times > 0 && now < self.last + patience * CALM { patience } else { least }
    }

    /// Whether a stripe may move that comes, but slowly.
    pub(crate) fn may_move(&self, now: Time, least: Duration) -> bool {
        self.times == 0 || now >= self.last + self.patience(now, least)
    }

    /// A stripe has moved of a receiver that needs so many symbols. Stripes that move together count once.
    pub(crate) fn on_moved(&mut self, now: Time, least: Duration, needed: Symbols) {
        if self.times > 0 && now < self.last + least {
            return;
        }
        let is_calm = self.patience(now, least) == least;
        let vain = if is_calm { 0 } else { self.moves_in_vain(needed) };
        *self = Mending { times: if is_calm { 1 } else { self.times + 1 }, last: now, vain, needed };
    }

    /// Number of moves in a row after which nothing has come, for a receiver that needs so many symbols.
    pub(crate) fn moves_in_vain(&self, needed: Symbols) -> u32 {
        if self.times > 0 && needed >= self.needed { self.vain + 1 } else { 0 }
    }
}

/// The moves of one overlay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    since: Time,
    moved: usize,
}

impl Budget {
    /// Whether one more may move, in an overlay of `edges` edges; false if enough have within the last `span`.
    pub(crate) fn allows(&mut self, now: Time, edges: usize, span: Duration) -> bool {
        if now >= self.since + span {
            *self = Budget { since: now, moved: 0 };
        }
        self.moved < LEAST_MOVES.max(edges / PART)
    }

    /// One has.
    pub(crate) fn on_moved(&mut self) {
        self.moved += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(500);
    const NEEDED: Symbols = Symbols::new(100);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn patience_doubles_with_each_move_until_there_was_none_for_long() {
        let mut mending = Mending::default();
        let mut now = 0;
        let patience: Vec<u64> = (0..7)
            .map(|_| {
                let patience = mending.patience(at(now), LEAST).as_nanos() / 1_000_000;
                now += patience;
                mending.on_moved(at(now), LEAST, NEEDED);
                mending.on_moved(at(now + 100), LEAST, NEEDED);
                patience
            })
            .collect();
        assert_eq!(patience, [500, 1000, 2000, 4000, 8000, 16_000, 16_000]);
        assert_eq!(mending.patience(at(now + 127_999), LEAST), LEAST * 32);
        assert_eq!(mending.patience(at(now + 128_000), LEAST), LEAST);
        mending.on_moved(at(now + 128_000), LEAST, NEEDED);
        assert_eq!(mending.patience(at(now + 128_001), LEAST), LEAST * 2);
    }

    #[test]
    fn moves_are_in_vain_until_something_comes() {
        let mut mending = Mending::default();
        assert_eq!(mending.moves_in_vain(NEEDED), 0, "none has moved");
        mending.on_moved(at(0), LEAST, NEEDED);
        mending.on_moved(at(100), LEAST, NEEDED);
        assert_eq!(mending.moves_in_vain(NEEDED), 1, "two at one time");
        mending.on_moved(at(1000), LEAST, NEEDED);
        assert_eq!((mending.moves_in_vain(NEEDED), mending.moves_in_vain(Symbols::new(99))), (2, 0));
        mending.on_moved(at(3000), LEAST, Symbols::new(99));
        assert_eq!(mending.moves_in_vain(Symbols::new(99)), 1);
    }

    #[test]
    fn a_part_of_an_overlay_moves_at_a_time() {
        let mut budget = Budget::default();
        let mut moves = |ms, edges| {
            let more = |_: &u32| {
                let may = budget.allows(at(ms), edges, LEAST);
                budget.on_moved();
                may
            };
            (0..10_000).filter(more).count()
        };
        assert_eq!([moves(500, 8), moves(700, 8), moves(1000, 8000)], [64, 0, 500]);
    }
}
