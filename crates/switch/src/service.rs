//! Which queue sends next: strict, or in turns.
//!
//! Queues form groups; groups take turns by frames, and within a group the first queue with a frame goes first. Strict
//! service is one group of all, weighted round robin a group per queue, SCDP §III-C a group of one and a group of the rest.

use std::collections::VecDeque;

use crate::Service;

/// A set of queues, one bit each.
pub(crate) type QueueSet = u32;

#[derive(Clone, Copy, Debug)]
struct Group {
    queues: QueueSet,
    /// Frames per turn.
    weight: u32,
}

/// The state of the turns. Two groups are at hand without another look at memory; more are rare.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    /// Group whose turn it is.
    turn: Group,
    /// Group that is next: the same, if there is but one.
    next: Group,
    /// Frames that are left of the turn.
    left: u32,
    /// Those after the next one, in order.
    further: VecDeque<Group>,
}

impl Turns {
    /// For a service that was checked to fit `queues`.
    pub(crate) fn new(service: &Service, queues: usize) -> Self {
        let all = QueueSet::MAX >> (QueueSet::BITS as usize - queues);
        let groups = match service {
            Service::Strict => vec![Group { queues: all, weight: 1 }],
            Service::Weighted(weights) => weights
                .iter()
                .enumerate()
                .map(|(queue, &weight)| Group { queues: 1 << queue, weight })
                .collect(),
            Service::FirstAgainstRest { first, rest } => {
                vec![Group { queues: 1, weight: *first }, Group { queues: all & !1, weight: *rest }]
            }
        };
        let turn = groups[0];
        let next = groups.get(1).copied().unwrap_or(turn);
        let further = groups.into_iter().skip(2).collect();
        Turns { turn, left: turn.weight, next, further }
    }
    /// The queue that sends next, of those that have a frame.
    ///
    /// A group without a frame gives up the rest of its turn: turns are not saved up.
    #[inline(always)]
    pub(crate) fn next(&mut self, ready: QueueSet) -> Option<usize> {
        if self.turn.queues & ready == 0 || self.left == 0 {
            self.pass_on();
            if ready == 0 {
                // All give up their turns, the one that began does so twice, and the one after it may begin.
                return None;
            }
            // Every queue is in a group.
            while self.turn.queues & ready == 0 {
                self.pass_on();
            }
        }
        self.left -= 1;
        Some((self.turn.queues & ready).trailing_zeros() as usize)
    }
    /// The next group's turn begins.
    #[inline(always)]
    fn pass_on(&mut self) {
        std::mem::swap(&mut self.turn, &mut self.next);
        self.left = self.turn.weight;
        if !self.further.is_empty() {
            self.pass_on_further();
        }
    }
    #[inline(never)]
    fn pass_on_further(&mut self) {
        self.further.push_back(self.next);
        self.next = self.further.pop_front().expect("one was just put in");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(service: Service, queues: usize, ready: QueueSet, count: usize) -> Vec<usize> {
        let mut turns = Turns::new(&service, queues);
        (0..count).map_while(|_| turns.next(ready)).collect()
    }

    #[test]
    fn strict_service_takes_the_first_queue_that_has_a_frame() {
        assert_eq!(order(Service::Strict, 5, 0b10100, 3), [2, 2, 2]);
        assert_eq!(order(Service::Strict, 5, 0, 3), [0; 0]);
    }

    #[test]
    fn five_queues_share_by_their_weights() {
        let weighted = || Service::Weighted(vec![3, 1, 2, 1, 1]);
        assert_eq!(order(weighted(), 5, 0b11111, 10), [0, 0, 0, 1, 2, 2, 3, 4, 0, 0]);
        assert_eq!(order(weighted(), 5, 0b00101, 7), [0, 0, 0, 2, 2, 0, 0], "who has nothing is passed over");
        assert_eq!(order(weighted(), 5, 0b00010, 3), [1, 1, 1], "who is alone never waits");
    }

    #[test]
    fn ten_headers_to_one_symbol_and_symbols_by_priority() {
        let scdp = Service::FirstAgainstRest { first: 10, rest: 1 };
        let mut expected = vec![0; 10];
        expected.push(2);
        assert_eq!(order(scdp.clone(), 5, 0b11101, 22), expected.repeat(2));
        assert_eq!(order(scdp.clone(), 5, 0b11000, 2), [3, 3]);
        assert_eq!(order(scdp, 1, 0b1, 2), [0, 0], "a rest of no queues is no one's turn");
    }

    #[test]
    fn thirty_two_queues_fit() {
        assert_eq!(order(Service::Strict, 32, 1 << 31, 1), [31]);
    }
}
