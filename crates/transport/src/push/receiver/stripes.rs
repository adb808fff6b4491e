//! Stripes: in an overlay each source brings the blocks of one stripe, those whose number leaves its index modulo the number of stripes
//! (docs/decisions/0037).
//!
//! ```text
//!   served --its source is silent, over or distrusted--> unserved --for long, and nobody new--> adopted by one of the others
//!     ^                                                     |                                        | for long: by the next one
//!     `-------------- another source has it ----------------+----------------------------------------'
//! ```
//! Sources of other stripes have all blocks too, but perhaps by way of this very host. So a stripe is adopted only if
//! the controller finds nobody else in time, and by one after the other.

use headwater_units::{Duration, FlowId, Time};

/// Time for the controller to find another source of a stripe; and for a source that has adopted it, to bring
/// something.
const PATIENCE: Duration = Duration::from_secs(2);
/// A flow that brings less than this part of what is due is slow.
const SLOW: f64 = 0.5;
/// A flow that owes no more than this many blocks is ahead of one that owes more and is slow.
const AHEAD: u64 = 2;
/// So is one that brings what is due, and owes less by this part of a block.
const LEAD: u64 = 2;
/// Time without any arrival after which all that owe something are behind.
const STANDSTILL: Duration = Duration::from_secs(1);

/// The blocks of one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stripe {
    index: u32,
    of: u32,
}

impl Stripe {
    /// All blocks: without an overlay there is but one.
    pub(super) const ALL: Stripe = Stripe { index: 0, of: 1 };

    /// The stripe `index` of `of`.
    pub(super) fn new(index: u8, of: u8) -> Self {
        Stripe { index: u32::from(index), of: u32::from(of.max(1)) }
    }

    /// Its place among all.
    pub(super) fn index(self) -> usize {
        self.index as usize
    }

    /// Whether it has a block.
    #[inline]
    pub(super) fn has(self, block: u32) -> bool {
        block % self.of == self.index
    }

    /// Its first block that is not below this one.
    pub(super) fn first_from(self, block: u32) -> u32 {
        block.saturating_add((self.index + self.of - block % self.of) % self.of)
    }

    /// The block that follows one of it.
    pub(super) fn next(self, block: u32) -> u32 {
        block.saturating_add(self.of)
    }
}

/// The source of each stripe.
#[derive(Debug)]
pub(super) struct Stripes {
    of: u8,
    /// By stripe: since when nobody brings it.
    unserved: Vec<Option<Time>>,
    /// Stripes that are asked of flows which bring others.
    adopted: Vec<(Stripe, FlowId)>,
    /// Flows that hold up the others, and since when.
    behind: Vec<(FlowId, Time)>,
    /// The most that all flows together have brought, in symbols a second.
    peak: f64,
}

/// How a flow does, compared with others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) flow: FlowId,
    /// Symbols that have yet to come.
    pub(super) owed: u64,
    /// Symbols a second lately.
    pub(super) rate: f64,
}

impl Stripes {
    pub(super) fn new(of: u8) -> Self {
        Stripes {
            of: of.max(1),
            unserved: vec![None; usize::from(of.max(1))],
            adopted: Vec::new(),
            behind: Vec::new(),
            peak: 0.0,
        }
    }

    /// How many there are.
    pub(super) fn of(&self) -> u8 {
        self.of
    }

    /// The most that all flows together have brought, in symbols a second.
    pub(super) fn peak(&self) -> f64 {
        self.peak
    }

    /// These flows can be asked, each for a stripe. Returns what is not to be asked of some of them any more.
    pub(super) fn assign(&mut self, now: Time, flows: &[(FlowId, u8)]) -> Vec<(Stripe, FlowId)> {
        let before = std::mem::take(&mut self.adopted);
        for (index, unserved) in (0..).zip(&mut self.unserved) {
            if flows.iter().any(|(_, its)| *its == index) {
                *unserved = None;
                continue;
            }
            let since = *unserved.get_or_insert(now);
            let turn = now.since(since).as_nanos() / PATIENCE.as_nanos();
            if turn > 0 && !flows.is_empty() {
                let (flow, _) = flows[(usize::from(index) + turn as usize) % flows.len()];
                self.adopted.push((Stripe::new(index, self.of), flow));
            }
        }
        before.into_iter().filter(|it| !self.adopted.contains(it)).collect()
    }

    /// Compares the flows that can be asked; a block has at most `block` symbols. Those that are ahead have little
    /// more to bring before the stripe that is behind comes on, and at the end, when all is asked for, nothing at all. One that is behind, but
    /// catches up, brings as much as its stripe is of all, or more.
    pub(super) fn compare(&mut self, now: Time, last_useful: Time, flows: &[Pace], block: u64, is_end: bool) {
        self.peak = self.peak.max(flows.iter().map(|pace| pace.rate).sum());
        let due = self.peak / f64::from(self.of);
        let waits = |pace: &Pace| pace.owed <= if is_end { 0 } else { AHEAD * block };
        let is_slow = |pace: &&Pace| !waits(pace) && pace.rate < SLOW * due;
        let least = flows.iter().filter(is_slow).map(|pace| pace.owed).min();
        let leads = |pace: &Pace| least.is_some_and(|least| pace.owed + block / LEAD <= least);
        let is_ahead = |pace: &&Pace| waits(pace) || !is_slow(pace) && leads(pace);
        let before = std::mem::take(&mut self.behind);
        // Where all are slow it is not for one of them, unless all stand still; and one that brings what is due is on its way.
        let (ahead, slow) = (flows.iter().filter(is_ahead).count(), flows.iter().filter(is_slow).count());
        let nothing_comes = now.since(last_useful) > STANDSTILL;
        if nothing_comes || ahead > 0 && ahead + slow == flows.len() {
            let since = |flow| before.iter().find(|(its, _)| *its == flow).map_or(now, |(_, since)| *since);
            self.behind = flows.iter().filter(is_slow).map(|pace| (pace.flow, since(pace.flow))).collect();
        }
    }

    /// For how long this flow has held up the others.
    pub(super) fn behind(&self, now: Time, flow: FlowId) -> Duration {
        let its = self.behind.iter().find(|(its, _)| *its == flow);
        its.map_or(Duration::ZERO, |(_, since)| now.since(*since))
    }

    /// The stripes that are asked of a flow: its own, and those that it has adopted.
    pub(super) fn of_flow(&self, flow: FlowId, own: u8) -> impl Iterator<Item = Stripe> {
        let adopted = self.adopted.iter().filter(move |(_, by)| *by == flow).map(|(stripe, _)| *stripe);
        core::iter::once(Stripe::new(own, self.of)).chain(adopted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_is_every_nth_block() {
        let stripe = Stripe::new(2, 5);
        assert_eq!([0, 2, 3, 7, 8].map(|block| stripe.first_from(block)), [2, 2, 7, 7, 12]);
        assert!(stripe.has(12) && !stripe.has(13) && stripe.next(12) == 17);
        assert!(Stripe::ALL.has(13) && Stripe::ALL.first_from(13) == 13 && Stripe::ALL.next(13) == 14);
    }

    #[test]
    fn what_nobody_brings_for_long_goes_from_one_to_the_next() {
        let mut stripes = Stripes::new(3);
        let at = |seconds: u64| Time::ZERO + Duration::from_secs(seconds);
        let [a, b] = [(FlowId(7), 0), (FlowId(8), 2)];
        assert!(stripes.assign(at(0), &[a, b]).is_empty() && stripes.adopted.is_empty());
        assert!(stripes.assign(at(2), &[a, b]).is_empty());
        let lost = Stripe::new(1, 3);
        assert_eq!(stripes.adopted, [(lost, a.0)]);
        assert_eq!(stripes.of_flow(a.0, 0).collect::<Vec<_>>(), [Stripe::new(0, 3), lost]);
        assert_eq!(stripes.assign(at(4), &[a, b]), [(lost, a.0)]);
        assert_eq!(stripes.adopted, [(lost, b.0)]);
        assert_eq!(stripes.assign(at(5), &[a, b, (FlowId(9), 1)]), [(lost, b.0)]);
        assert!(stripes.adopted.is_empty());
        stripes.assign(at(6), &[]);
        assert!(stripes.assign(at(60), &[]).is_empty() && stripes.adopted.is_empty());
    }

    #[test]
    fn who_owes_more_than_a_block_and_brings_little_is_behind_where_others_are_ahead() {
        let mut stripes = Stripes::new(2);
        let at = |seconds: u64| Time::ZERO + Duration::from_secs(seconds);
        let [a, b] = [(FlowId(7), 0), (FlowId(8), 1)];
        let compare = |stripes: &mut Stripes, (last, seconds), owed: [u64; 2], rates: [f64; 2]| {
            let pace = |at: usize, flow| Pace { flow, owed: owed[at], rate: rates[at] };
            stripes.compare(at(seconds), at(last), &[pace(0, a.0), pace(1, b.0)], 185, false);
            [a.0, b.0].map(|flow| stripes.behind(at(seconds), flow))
        };
        let behind = |stripes: &mut Stripes, last: u64, seconds, owed, rate| {
            compare(stripes, (last, seconds), owed, [rate, 10.0])
        };
        let none = [Duration::ZERO; 2];
        assert_eq!(behind(&mut stripes, 5, 5, [1000, 100], 90.0), none, "it catches up");
        assert_eq!(behind(&mut stripes, 6, 6, [1000, 100], 20.0), none);
        assert_eq!(behind(&mut stripes, 7, 7, [900, 185], 20.0), [Duration::from_secs(1), Duration::ZERO]);
        assert_eq!(behind(&mut stripes, 8, 8, [900, 700], 20.0), none);
        assert_eq!(behind(&mut stripes, 9, 9, [0, 700], 0.0), [Duration::ZERO, Duration::ZERO]);
        assert_eq!(behind(&mut stripes, 9, 12, [900, 100], 0.0), none, "now all stand still");
        assert_eq!(behind(&mut stripes, 9, 13, [900, 100], 0.0), [Duration::from_secs(1), Duration::ZERO]);
        // Who brings what is due is ahead before it has nothing more to bring, but not by a few symbols.
        assert_eq!(compare(&mut stripes, (14, 14), [900, 850], [10.0, 50.0]), none);
        assert_eq!(compare(&mut stripes, (15, 15), [900, 800], [10.0, 50.0]), none);
        let first = [Duration::from_secs(1), Duration::ZERO];
        assert_eq!(compare(&mut stripes, (16, 16), [890, 750], [10.0, 50.0]), first);
        assert_eq!(
            compare(&mut stripes, (17, 17), [880, 700], [30.0, 50.0]),
            none,
            "it is not slow any more"
        );
    }

    #[test]
    fn at_the_beginning_of_a_small_object_nobody_is_behind_though_all_is_asked_for() {
        let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
        let behind = |owed: [u64; 2]| {
            let mut stripes = Stripes::new(2);
            let paces = [(7, owed[0], 1.0), (8, owed[1], 60.0)];
            let paces = paces.map(|(flow, owed, rate)| Pace { flow: FlowId(flow), owed, rate });
            stripes.compare(at(100), at(100), &paces, 185, true);
            stripes.behind(at(500), FlowId(7))
        };
        assert_eq!(behind([370, 350]), Duration::ZERO, "it comes by more hosts than the other stripe");
        assert_eq!(behind([370, 270]), Duration::from_millis(400));
        assert_eq!(behind([20, 0]), Duration::from_millis(400), "the other is here, and all wait for it");
    }
}
