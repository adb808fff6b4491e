//! How patient the controller is with the flows of an overlay before it gives their stripes to others.
//!
//! A source that seems silent is mostly dead, or its host is. But where a thousand nodes begin at once, or the machines
//! are busy, all seem silent, and moving stripes then makes it worse: each move costs an order, a list and a handshake.
//! So a receiver whose stripe has moved waits twice as long before the next one does, unless most of its stripes come
//! ([`Mending`]), and only a part of an overlay moves at a time ([`Budget`]). Nor is a source dead that has not answered its
//! order where none answers sooner ([`Answers`]).

use headwater_units::{Duration, Symbols, Time};

/// Most doublings of the patience: 500 ms become 16 s.
const DOUBLINGS: u32 = 5;
/// Multiple of its patience without a move after which a receiver has the least patience again.
const CALM: u64 = 8;
/// Number of stripes that move within one silence whatever the size of the overlay ...
const LEAST_MOVES: usize = 64;
/// ... or this part of all its edges: a machine with 20 receivers dies, not half of the network.
const PART: usize = 16;
/// An order may take so many times as long as others did ...
const ANSWERS: u64 = 4;
/// ... each of which counts this part of all before, ...
const GAIN: u64 = 16;
/// ... but no longer than this.
const LONGEST_ANSWER: Duration = Duration::from_secs(16);

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

    /// The same before another one takes its place, where so many of the receiver's flows are silent, of `all`. Where most of them come,
    /// no machine is busy: whoever is silent is gone.
    pub(crate) fn patience_beside(&self, now: Time, least: Duration, silent: usize, all: usize) -> Duration {
        if silent * 2 < all { least } else { self.patience(now, least) }
    }

    /// Whether a stripe may move that comes, but slowly: what its last source sent may still be on a slow way.
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

/// How long sources take to answer orders.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers {
    smoothed: Duration,
}

impl Answers {
    /// An order was answered after this time.
    pub(crate) fn on_answer(&mut self, after: Duration) {
        self.smoothed = self.smoothed - self.smoothed / GAIN + after / GAIN;
    }

    /// How long an order may be unanswered: at least so long, and longer where the machines are busy.
    pub(crate) fn patience(&self, least: Duration) -> Duration {
        least.max((self.smoothed * ANSWERS).min(LONGEST_ANSWER))
    }
}

/// The moves of one overlay. Where most moves are in vain and the budget is used up all the same, the next one is for twice the time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    since: Time,
    moved: usize,
    /// Those of them after whose last move nothing had come.
    vain: usize,
    doublings: u32,
}

impl Budget {
    /// Whether one more may move, in an overlay of `edges` edges; false if enough have within the last `span`, or longer.
    pub(crate) fn allows(&mut self, now: Time, edges: usize, span: Duration) -> bool {
        let most = LEAST_MOVES.max(edges / PART);
        if now >= self.opens(span) {
            let is_busy = self.moved >= most && self.vain * 2 >= self.moved;
            let doublings = if is_busy { (self.doublings + 1).min(DOUBLINGS) } else { 0 };
            *self = Budget { since: now, moved: 0, vain: 0, doublings };
        }
        self.moved < most
    }

    /// When as many may move again.
    pub(crate) fn opens(&self, span: Duration) -> Time {
        self.since + span * (1 << self.doublings)
    }

    /// One has.
    pub(crate) fn on_moved(&mut self, is_in_vain: bool) {
        self.moved += 1;
        self.vain += usize::from(is_in_vain);
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
    fn who_is_silent_beside_many_that_are_not_is_given_no_longer() {
        let mut mending = Mending::default();
        mending.on_moved(at(500), LEAST, NEEDED);
        let patience = [0, 1, 2, 3, 4].map(|silent| mending.patience_beside(at(600), LEAST, silent, 4));
        assert_eq!(patience, [LEAST, LEAST, LEAST * 2, LEAST * 2, LEAST * 2]);
        assert_eq!(mending.patience_beside(at(600), LEAST, 1, 1), LEAST * 2);
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
    fn where_orders_take_long_one_may() {
        let mut answers = Answers::default();
        let patience = |answers: &Answers| answers.patience(LEAST).as_nanos() / 1_000_000;
        assert_eq!(patience(&answers), 500);
        (0..100).for_each(|_| answers.on_answer(Duration::from_millis(1)));
        assert_eq!(patience(&answers), 500, "they come soon");
        (0..100).for_each(|_| answers.on_answer(Duration::from_secs(1)));
        assert!((3900..=4000).contains(&patience(&answers)), "{}", patience(&answers));
        (0..100).for_each(|_| answers.on_answer(Duration::from_secs(60)));
        assert_eq!(patience(&answers), 16_000);
        (0..100).for_each(|_| answers.on_answer(Duration::from_millis(1)));
        assert_eq!(patience(&answers), 500, "the machines are idle again");
    }

    #[test]
    fn a_part_of_an_overlay_moves_at_a_time() {
        let mut budget = Budget::default();
        let mut moves = |ms, edges| {
            let more = |_: &u32| {
                let may = budget.allows(at(ms), edges, LEAST);
                budget.on_moved(false);
                may
            };
            (0..10_000).filter(more).count()
        };
        assert_eq!([moves(500, 8), moves(700, 8), moves(1000, 8000)], [64, 0, 500]);
    }

    #[test]
    fn where_moves_are_in_vain_fewer_and_fewer_follow() {
        let mut budget = Budget::default();
        let mut moves = |ms, is_in_vain| {
            let more = |_: &u32| {
                let may = budget.allows(at(ms), 8, LEAST);
                may.then(|| budget.on_moved(is_in_vain)).is_some()
            };
            (0..100).filter(more).count()
        };
        assert_eq!(
            [moves(500, true), moves(1000, true), moves(1999, true), moves(2000, true)],
            [64, 64, 0, 64]
        );
        assert_eq!([moves(3999, false), moves(4000, false), moves(7999, false)], [0, 64, 0]);
        assert_eq!([moves(8000, false), moves(8500, false)], [64, 64], "they have helped");
    }
}
