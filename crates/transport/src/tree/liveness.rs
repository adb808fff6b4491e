//! Liveness of neighbours on a tree (Datacast §III, "a simple heartbeat protocol").
//!
//! At every heartbeat this node sends a message to each neighbour. A neighbour that was not heard for three heartbeats counts as silent,
//! and is reported at every heartbeat while it is. Any packet from a neighbour counts as a sign of life. The controller decides what
//! follows from silence.

use headwater_units::{Duration, Time};

/// Missed heartbeats until a neighbour counts as silent.
const MISSES: u64 = 3;

/// The neighbours of one node on one tree. `N` is what one is called.
#[derive(Clone, Debug)]
pub struct Liveness<N> {
    every: Duration,
    neighbours: Vec<(N, Time)>,
    next: Time,
}

/// Actions at a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat<N> {
    /// Neighbours that get a heartbeat.
    pub tell: Vec<N>,
    /// Silent neighbours, the longest silent first, and for how long that one has been silent.
    pub silent: Option<(Vec<N>, Duration)>,
}

impl<N: Clone + PartialEq> Liveness<N> {
    /// All neighbours count as heard just now. With an interval of zero there is no heartbeat.
    pub fn new(now: Time, every: Duration, neighbours: impl IntoIterator<Item = N>) -> Self {
        Liveness { every, neighbours: neighbours.into_iter().map(|it| (it, now)).collect(), next: now }
    }

    /// The neighbours are others now; those that stay have been heard when they were.
    pub fn replace(&mut self, now: Time, neighbours: impl IntoIterator<Item = N>) {
        let known = std::mem::take(&mut self.neighbours);
        let heard = |it: &N| known.iter().find(|(known, _)| known == it).map_or(now, |(_, at)| *at);
        self.neighbours = neighbours.into_iter().map(|it| (it.clone(), heard(&it))).collect();
        self.next = now;
    }

    /// Something came from a peer; returns whether that is a neighbour.
    pub fn heard(&mut self, now: Time, from: &N) -> bool {
        let found = self.neighbours.iter_mut().find(|(it, _)| it == from);
        found.map(|(_, at)| *at = now).is_some()
    }

    /// When the next heartbeat is.
    pub fn wake(&self) -> Option<Time> {
        (self.every > Duration::ZERO && !self.neighbours.is_empty()).then_some(self.next)
    }

    /// Returns what to do, if a heartbeat is due.
    pub fn heartbeat(&mut self, now: Time) -> Option<Heartbeat<N>> {
        if self.wake().is_none_or(|at| now < at) {
            return None;
        }
        // A driver that was held up does not make up for what it has missed, and does not blame its neighbours at once.
        let late = now.since(self.next) > self.every;
        self.next = now + self.every;
        let limit = self.every * MISSES;
        let silence = |at: &Time| now.since(*at);
        let mut silent: Vec<(N, Duration)> = self
            .neighbours
            .iter()
            .filter(|(_, at)| !late && silence(at) >= limit)
            .map(|(it, at)| (it.clone(), silence(at)))
            .collect();
        silent.sort_by_key(|(_, since)| core::cmp::Reverse(*since));
        let longest = silent.first().map(|(_, since)| *since);
        Some(Heartbeat {
            tell: self.neighbours.iter().map(|(it, _)| it.clone()).collect(),
            silent: longest.map(|since| (silent.into_iter().map(|(it, _)| it).collect(), since)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn at(n: u64) -> Time {
        Time::ZERO + ms(n)
    }

    #[test]
    fn who_is_not_heard_for_three_heartbeats_is_reported_silent_at_each_heartbeat() {
        let mut liveness = Liveness::new(at(0), ms(100), ['a', 'b']);
        for n in 0..3 {
            let heartbeat = liveness.heartbeat(at(100 * n)).unwrap();
            assert_eq!(heartbeat, Heartbeat { tell: vec!['a', 'b'], silent: None });
            assert!(liveness.heard(at(100 * n + 50), &'a'));
        }
        assert_eq!(liveness.heartbeat(at(300)).unwrap().silent, Some((vec!['b'], ms(300))));
        assert_eq!(liveness.heartbeat(at(399)), None);
        liveness.heard(at(399), &'a');
        assert_eq!(liveness.heartbeat(at(400)).unwrap().silent, Some((vec!['b'], ms(400))));
        liveness.heard(at(420), &'b');
        assert_eq!(liveness.heartbeat(at(500)).unwrap().silent, None);
        assert!(!liveness.heard(at(500), &'c'), "a stranger");
    }

    #[test]
    fn a_node_that_was_held_up_itself_blames_nobody_at_once() {
        let mut liveness = Liveness::new(at(0), ms(100), ['a']);
        liveness.heartbeat(at(0));
        assert_eq!(liveness.heartbeat(at(900)).unwrap().silent, None);
        assert_eq!(liveness.heartbeat(at(1000)).unwrap().silent, Some((vec!['a'], ms(1000))));
    }

    #[test]
    fn new_neighbours_have_time_to_be_heard_and_old_ones_keep_theirs() {
        let mut liveness = Liveness::new(at(0), ms(100), ['a']);
        (0..3).for_each(|n| drop(liveness.heartbeat(at(100 * n))));
        liveness.replace(at(250), ['a', 'b']);
        liveness.heartbeat(at(250));
        assert_eq!(liveness.heartbeat(at(350)).unwrap().silent, Some((vec!['a'], ms(350))));
        assert_eq!(Liveness::<char>::new(at(0), ms(100), []).wake(), None);
        assert_eq!(Liveness::new(at(0), Duration::ZERO, ['a']).wake(), None);
    }
}
