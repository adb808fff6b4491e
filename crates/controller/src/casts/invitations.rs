//! Invitations of a cast's receivers: of many, a few at a time.
//!
//! ```text
//!   waiting --there is room in the window--> begins --something has come, it has ended, or it is away--> is not counted any more
//! ```
//! Whoever is invited asks, and is granted flows, of which each source is told: more than a hundred datagrams for each receiver. Where a
//! thousand nodes share few processors all of them at once take so long that everybody's timers run out, and what they say then fills the
//! processors. So no more than a window of receivers begin at one time. A receiver begins until something has come: until then it and its
//! sources are what keeps the processors busy. The window grows as a sender's does (slow start, RFC 5681 §3.1), by what is answered soon: ten
//! thousand that answer within a few milliseconds are invited in seven rounds. Answers that take long make it smaller again. Where nothing
//! comes to anybody, and those that began give up, their source is the cause and not the processors: the others begin soon, so that they
//! end soon.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headwater_units::{Duration, NodeId, Time};
use headwater_wire::MAX_FLOWS;

/// The first window, which is also the smallest.
const FIRST: usize = 128;
/// A receiver whose orders are answered within this time makes the window grow by [`STEP`].
const SOON: Duration = Duration::from_millis(100);
/// One that takes longer than this makes it smaller by as much.
const LATE: Duration = Duration::from_secs(1);
/// So that the number of those that begin doubles with each round.
const STEP: usize = 2;
/// While some wait, how soon it is asked again who has begun: at first, and at the most. Each look that finds no room doubles it.
const LOOK_AFTER: Duration = Duration::from_micros(250);
const LOOK_LONGEST: Duration = Duration::from_millis(64);

/// How far a receiver is that has been invited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It has not asked yet, or not all of its sources have answered.
    Asks,
    /// Its sources have answered.
    Answered,
    /// Something has come to it.
    HasBegun,
    /// It has given up.
    Failed,
    /// It is away, or was dismissed.
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Beginner {
    since: Time,
    is_answered: bool,
}

/// The receivers that are still to be invited, and those that begin.
#[derive(Debug, Default)]
pub(crate) struct Invitations {
    /// In the order in which they are invited.
    waiting: VecDeque<NodeId>,
    left: BTreeSet<NodeId>,
    beginning: BTreeMap<NodeId, Beginner>,
    window: usize,
    /// Something has come to one of them.
    has_any_begun: bool,
    look_at: Time,
    look_after: Duration,
}

impl Invitations {
    /// All of these are to be invited, by id.
    pub(super) fn of(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let left: BTreeSet<NodeId> = nodes.into_iter().collect();
        let waiting = left.iter().copied().collect();
        // So few may become a group, which begins when all are here.
        let window = if left.len() <= MAX_FLOWS { MAX_FLOWS } else { FIRST };
        Invitations { waiting, left, window, look_after: LOOK_AFTER, ..Invitations::default() }
    }

    /// They are invited in this order, and those that are not in it last.
    pub(super) fn put_in_order(&mut self, order: impl IntoIterator<Item = NodeId>) {
        let place: BTreeMap<NodeId, usize> = order.into_iter().zip(0..).collect();
        let place_of = |node: &NodeId| place.get(node).copied().unwrap_or(usize::MAX);
        self.waiting.make_contiguous().sort_by_key(place_of);
    }

    /// Whether some are still to be invited.
    pub(super) fn are_left(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether this receiver is still to be invited.
    pub(super) fn is_left(&self, node: NodeId) -> bool {
        self.left.contains(&node)
    }

    /// When to invite more.
    pub(super) fn due(&self) -> Option<Time> {
        self.are_left().then_some(self.look_at)
    }

    /// Those that are invited now, by how far each is that has been.
    pub(super) fn next(&mut self, now: Time, progress: impl Fn(NodeId) -> Progress) -> Vec<NodeId> {
        if self.waiting.is_empty() || now < self.look_at {
            return Vec::new();
        }
        let (window, has_any_begun) = (&mut self.window, &mut self.has_any_begun);
        self.beginning.retain(|node, beginner| {
            let progress = progress(*node);
            *has_any_begun |= progress == Progress::HasBegun;
            let answers = matches!(progress, Progress::Answered | Progress::HasBegun);
            if answers && !beginner.is_answered {
                beginner.is_answered = true;
                match now.since(beginner.since) {
                    after if after <= SOON => *window += STEP,
                    after if after > LATE => *window = window.saturating_sub(STEP).max(FIRST),
                    _ => {}
                }
            }
            if progress == Progress::Failed && !*has_any_begun {
                *window = window.saturating_mul(2);
            }
            matches!(progress, Progress::Asks | Progress::Answered)
        });
        let room = self.window.saturating_sub(self.beginning.len()).min(self.waiting.len());
        let invited: Vec<NodeId> = self.waiting.drain(..room).collect();
        invited.iter().for_each(|node| _ = self.left.remove(node));
        let beginner = Beginner { since: now, is_answered: false };
        self.beginning.extend(invited.iter().map(|node| (*node, beginner)));
        self.look_after = match invited.is_empty() {
            true => (self.look_after * 2).min(LOOK_LONGEST),
            false => LOOK_AFTER,
        };
        self.look_at = now + self.look_after;
        invited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: u16) -> Vec<NodeId> {
        let id = |n: u16| {
            let mut id = [0; 32];
            id[..2].copy_from_slice(&n.to_be_bytes());
            NodeId(id)
        };
        (0..count).map(id).collect()
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// Numbers invited at these times, in milliseconds, if all are that far.
    fn invited<const N: usize>(invitations: &mut Invitations, steps: [(u64, Progress); N]) -> [usize; N] {
        steps.map(|(ms, progress)| invitations.next(at(ms), |_| progress).len())
    }

    #[test]
    fn few_are_invited_at_once() {
        let all = nodes(MAX_FLOWS as u16);
        let mut invitations = Invitations::of(all.clone());
        let invited = invitations.next(at(0), |_| Progress::Asks);
        assert_eq!((invited, invitations.due()), (all, None));
    }

    #[test]
    fn many_whose_sources_answer_soon_are_invited_within_few_rounds() {
        let mut invitations = Invitations::of(nodes(10_000));
        let rounds = [0, 10, 20, 30, 40, 50, 60].map(|ms| (ms, Progress::Answered));
        assert_eq!(invited(&mut invitations, rounds), [128, 256, 512, 1024, 2048, 4096, 1936]);
        assert!(!invitations.are_left());
    }

    #[test]
    fn where_answers_take_long_something_must_have_come() {
        let mut invitations = Invitations::of(nodes(1000));
        let busy = [(0, Progress::Asks), (500, Progress::Answered), (60_000, Progress::Answered)];
        assert_eq!(invited(&mut invitations, busy), [128, 0, 0]);
        let first: Vec<NodeId> = nodes(128);
        let ten = |node: NodeId| match first[..10].contains(&node) {
            true => Progress::HasBegun,
            false => Progress::Answered,
        };
        assert_eq!(invitations.next(at(61_000), ten), nodes(138)[128..]);
    }

    #[test]
    fn who_is_gone_makes_room_for_one_and_no_more() {
        let mut invitations = Invitations::of(nodes(1000));
        assert_eq!(invited(&mut invitations, [(0, Progress::Asks), (10, Progress::Gone)]), [128, 128]);
    }

    #[test]
    fn where_nothing_comes_and_some_give_up_all_others_begin() {
        let mut invitations = Invitations::of(nodes(1000));
        assert_eq!(
            invited(&mut invitations, [(0, Progress::Answered), (30_000, Progress::Failed)]),
            [128, 872]
        );
    }

    #[test]
    fn where_something_comes_one_that_gives_up_makes_room_for_one() {
        let mut invitations = Invitations::of(nodes(2000));
        let steps = [(0, Progress::Asks), (500, Progress::HasBegun), (600, Progress::Failed)];
        assert_eq!(invited(&mut invitations, steps), [128, 128, 128]);
    }

    #[test]
    fn an_order_that_is_given_is_kept() {
        let all = nodes(300);
        let mut invitations = Invitations::of(all.clone());
        invitations.put_in_order(all[200..].iter().rev().copied());
        let invited = invitations.next(at(0), |_| Progress::Asks);
        let wanted: Vec<NodeId> = all[200..].iter().rev().chain(&all[..28]).copied().collect();
        assert_eq!(invited, wanted);
    }

    #[test]
    fn late_answers_make_the_window_smaller_again() {
        let mut invitations = Invitations::of(nodes(2000));
        let steps = [(0, Progress::Asks), (100, Progress::HasBegun), (1200, Progress::HasBegun)];
        assert_eq!(invited(&mut invitations, steps), [128, 384, 128]);
    }

    #[test]
    fn those_that_wait_are_looked_for_less_and_less_often() {
        let mut invitations = Invitations::of(nodes(1000));
        let mut looks = Vec::new();
        let mut now = Time::ZERO;
        while now < at(300) {
            invitations.next(now, |_| Progress::Asks);
            let due = invitations.due().unwrap();
            looks.push(due.since(now).as_nanos() / 250_000);
            now = due;
        }
        assert_eq!(looks, [1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 256, 256]);
    }

    #[test]
    fn a_receiver_is_left_until_it_is_invited() {
        let all = nodes(1000);
        let mut invitations = Invitations::of(all.clone());
        invitations.next(at(0), |_| Progress::Asks);
        assert_eq!([all[127], all[128]].map(|node| invitations.is_left(node)), [false, true]);
    }
}
