//! A node's part in spreading one message to many (Datacast §III: messages are split down a tree, ACKs are aggregated up it).
//!
//! ```text
//!                         .-- no answer ---> the same again, after twice the wait --- too often --> its nodes count as not told
//!   Signal -- split --> branch -- Signalled, open ---> it is there; those below it are not through: asked again
//!                         `------ Signalled ---------> who was not told below it
//!   all branches -----> Signalled, to whoever the signal came from
//! ```
//! **Answers.** An answer lists the nodes that may not have obeyed; all others have. A listed node may have obeyed too, since its answer
//! may be lost. So the sender of a signal tells the listed nodes by other means, and an order that is repeated must do no harm.
//!
//! **Timeouts.** A branch that does not answer is given up after [`SignallingConfig::tries`] attempts. A branch that answers that it is
//! still open is asked on, because nodes below it may have to be given up first; but for no longer than that takes for each node between
//! here and the last one.
//!
//! Not here: what the message says, keys, and which tree it goes down (`tree_installation/signals` of the controller).

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::sync::Arc;

use headwater_units::{Duration, FlowId, Time};
use headwater_wire::{Signal, SignalBranch, Signalled};

/// Timeouts of signalling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignallingConfig {
    /// A branch is told again after this wait, then after twice that, and so on: 25 ms, more than a full queue of a slow port holds a
    /// packet up.
    pub first_wait: Duration,
    /// Number of attempts before it is given up: 4. With the wait above that takes 375 ms.
    pub tries: u32,
    /// Signals that wait for answers, and answers that may be asked for again, at most: 64 each. The oldest one makes room.
    pub most: usize,
}

impl Default for SignallingConfig {
    fn default() -> Self {
        SignallingConfig { first_wait: Duration::from_millis(25), tries: 4, most: 64 }
    }
}

impl SignallingConfig {
    /// After which a branch without an answer is given up.
    pub fn patience(&self) -> Duration {
        self.first_wait * ((1 << self.tries.min(16)) - 1)
    }
}

/// Something to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say<A> {
    /// These bytes to another node, as they are.
    Forward {
        /// Its data socket.
        to: SocketAddr,
        /// A datagram.
        datagram: Arc<[u8]>,
    },
    /// An answer to the sender above.
    Answer {
        /// The receiver of the message.
        to: A,
        /// The answer.
        answer: Signalled,
    },
}

/// The signals that pass a node. `A` is the sender above it: another node, or a controller.
#[derive(Clone, Debug)]
pub struct Signalling<A> {
    config: SignallingConfig,
    /// The oldest first.
    open: VecDeque<Open<A>>,
    answered: VecDeque<Signalled>,
    out: VecDeque<Say<A>>,
}

/// A signal that waits for answers.
#[derive(Clone, Debug)]
struct Open<A> {
    flow: FlowId,
    number: u32,
    above: A,
    branches: Vec<Branch>,
    untold: Vec<u16>,
}

#[derive(Clone, Debug)]
struct Branch {
    to: SocketAddr,
    flow: FlowId,
    number: u32,
    answers: [u8; 16],
    /// Number of the first node in the answer.
    first: u16,
    members: u16,
    datagram: Arc<[u8]>,
    /// When it is told, or given up.
    next: Time,
    wait: Duration,
    tries_left: u32,
    until: Time,
}

impl<A: Clone> Signalling<A> {
    /// Nothing has come.
    pub fn new(config: SignallingConfig) -> Self {
        Signalling { config, open: VecDeque::new(), answered: VecDeque::new(), out: VecDeque::new() }
    }

    /// A signal has come; `obeyed`: this node does as its own part says.
    pub fn hear(&mut self, now: Time, above: A, signal: Signal, obeyed: bool) {
        let Signal { flow, number, below, .. } = signal;
        if let Some(open) = self.open.iter_mut().find(|open| open.is(flow, number)) {
            open.above = above.clone();
            let answer = Signalled { flow, number, open: true, untold: Vec::new() };
            return self.out.push_back(Say::Answer { to: above, answer });
        }
        if let Some(answer) = self.answered.iter().find(|it| (it.flow, it.number) == (flow, number)) {
            return self.out.push_back(Say::Answer { to: above, answer: answer.clone() });
        }
        let mut first = 1;
        let mut branches = Vec::with_capacity(below.len());
        for branch in below {
            let SignalBranch { to, flow, number, answers, members, levels, datagram } = branch;
            let (datagram, next, wait) = (datagram.into(), now, self.config.first_wait);
            // Messages on their way when those at the end are given up need a little time, too.
            let until = now + self.config.patience() * u64::from(levels) + self.config.first_wait;
            let tries_left = self.config.tries;
            branches.push(Branch {
                to,
                flow,
                number,
                answers,
                first,
                members,
                datagram,
                next,
                wait,
                tries_left,
                until,
            });
            first = first.saturating_add(members);
        }
        let untold = if obeyed { Vec::new() } else { vec![0] };
        self.open.push_back(Open { flow, number, above, branches, untold });
        if self.open.len() > self.config.most {
            self.open.pop_front();
        }
        self.close();
    }

    /// The key of the answers of a node below, if one is waited for on this flow.
    pub fn answers_on(&self, flow: FlowId) -> Option<[u8; 16]> {
        let mut branches = self.open.iter().flat_map(|open| &open.branches);
        branches.find(|branch| branch.flow == flow).map(|branch| branch.answers)
    }

    /// A node below has answered.
    pub fn answered(&mut self, now: Time, answer: &Signalled) {
        let its = |branch: &Branch| (branch.flow, branch.number) == (answer.flow, answer.number);
        for open in &mut self.open {
            let Some(place) = open.branches.iter().position(its) else { continue };
            if answer.open {
                let branch = &mut open.branches[place];
                (branch.tries_left, branch.wait) = (self.config.tries, self.config.first_wait);
                branch.next = now + branch.wait;
            } else {
                let branch = open.branches.swap_remove(place);
                let untold = answer.untold.iter().filter(|place| **place < branch.members);
                open.untold.extend(untold.map(|place| branch.first.saturating_add(*place)));
            }
        }
        self.close();
    }

    /// When there is something to say, if no one speaks before.
    pub fn wake(&self) -> Option<Time> {
        match self.out.is_empty() {
            false => Some(Time::ZERO),
            true => self.open.iter().flat_map(|open| &open.branches).map(|branch| branch.next).min(),
        }
    }

    /// Returns the next message to send now; call it until it returns nothing.
    pub fn poll(&mut self, now: Time) -> Option<Say<A>> {
        if let Some(say) = self.out.pop_front() {
            return Some(say);
        }
        for open in &mut self.open {
            let mut place = 0;
            while place < open.branches.len() {
                let branch = &mut open.branches[place];
                if now < branch.next {
                    place += 1;
                    continue;
                }
                if branch.tries_left == 0 || now >= branch.until {
                    let branch = open.branches.swap_remove(place);
                    open.untold.extend(branch.first..branch.first.saturating_add(branch.members));
                    continue;
                }
                branch.tries_left -= 1;
                (branch.next, branch.wait) = (now + branch.wait, branch.wait * 2);
                return Some(Say::Forward { to: branch.to, datagram: branch.datagram.clone() });
            }
        }
        self.close();
        self.out.pop_front()
    }

    /// Answers signals whose branches are all through.
    fn close(&mut self) {
        while let Some(place) = self.open.iter().position(|open| open.branches.is_empty()) {
            let Open { flow, number, above, mut untold, .. } =
                self.open.remove(place).expect("it was found there");
            untold.sort_unstable();
            untold.dedup();
            let answer = Signalled { flow, number, open: false, untold };
            self.answered.push_back(answer.clone());
            if self.answered.len() > self.config.most {
                self.answered.pop_front();
            }
            self.out.push_back(Say::Answer { to: above, answer });
        }
    }
}

impl<A> Open<A> {
    fn is(&self, flow: FlowId, number: u32) -> bool {
        (self.flow, self.number) == (flow, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: FlowId = FlowId(1);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn address(n: u8) -> SocketAddr {
        ([10, 0, 0, n], 7001).into()
    }

    fn branch(n: u8, members: u16, levels: u8) -> SignalBranch {
        SignalBranch {
            to: address(n),
            flow: FlowId(n.into()),
            number: n.into(),
            answers: [n; 16],
            members,
            levels,
            datagram: vec![n],
        }
    }

    fn signal(below: Vec<SignalBranch>) -> Signal {
        Signal { flow: HERE, number: 5, updates: Vec::new(), below }
    }

    fn answer(n: u8, open: bool, untold: &[u16]) -> Signalled {
        Signalled { flow: FlowId(n.into()), number: n.into(), open, untold: untold.to_vec() }
    }

    fn all(machine: &mut Signalling<char>, now: Time) -> Vec<Say<char>> {
        core::iter::from_fn(|| machine.poll(now)).collect()
    }

    fn forward(n: u8) -> Say<char> {
        Say::Forward { to: address(n), datagram: vec![n].into() }
    }

    fn answers(to: char, open: bool, untold: &[u16]) -> Say<char> {
        let untold = untold.to_vec();
        Say::Answer { to, answer: Signalled { flow: HERE, number: 5, open, untold } }
    }

    #[test]
    fn a_leaf_answers_at_once_and_as_often_as_it_is_asked() {
        let mut machine = Signalling::new(SignallingConfig::default());
        machine.hear(at(0), 'a', signal(Vec::new()), true);
        assert_eq!(all(&mut machine, at(0)), [answers('a', false, &[])]);
        machine.hear(at(1), 'b', signal(Vec::new()), true);
        assert_eq!(all(&mut machine, at(1)), [answers('b', false, &[])]);
        assert_eq!(machine.wake(), None);
        let mut other = Signalling::new(SignallingConfig::default());
        other.hear(at(0), 'a', signal(Vec::new()), false);
        assert_eq!(all(&mut other, at(0)), [answers('a', false, &[0])], "it could not do as told");
    }

    #[test]
    fn answers_of_branches_become_one_that_counts_as_whoever_is_above_does() {
        let mut machine = Signalling::new(SignallingConfig::default());
        machine.hear(at(0), 'a', signal(vec![branch(2, 3, 2), branch(3, 2, 2)]), true);
        assert_eq!(all(&mut machine, at(0)), [forward(2), forward(3)]);
        assert_eq!((machine.answers_on(FlowId(3)), machine.answers_on(FlowId(4))), (Some([3; 16]), None));
        machine.answered(at(1), &answer(3, false, &[1, 9]));
        assert_eq!(all(&mut machine, at(1)), [], "one is missing; 9 is nobody");
        machine.hear(at(2), 'b', signal(Vec::new()), true);
        assert_eq!(all(&mut machine, at(2)), [answers('b', true, &[])]);
        machine.answered(at(3), &answer(2, false, &[]));
        assert_eq!(all(&mut machine, at(3)), [answers('b', false, &[5])]);
        machine.answered(at(4), &answer(2, false, &[2]));
        assert_eq!(all(&mut machine, at(4)), [], "too late");
    }

    #[test]
    fn who_never_answers_is_told_four_times_and_then_given_up_with_all_behind_it() {
        let mut machine = Signalling::new(SignallingConfig::default());
        machine.hear(at(0), 'a', signal(vec![branch(2, 3, 2)]), true);
        for ms in [0, 25, 75, 175] {
            assert_eq!(machine.wake(), Some(at(ms)));
            assert_eq!(all(&mut machine, at(ms)), [forward(2)]);
        }
        assert_eq!(machine.wake(), Some(at(375)));
        assert_eq!(all(&mut machine, at(375)), [answers('a', false, &[1, 2, 3])]);
    }

    #[test]
    fn who_says_that_it_is_open_is_asked_on_but_not_for_ever() {
        let mut machine = Signalling::new(SignallingConfig::default());
        machine.hear(at(0), 'a', signal(vec![branch(2, 2, 2)]), true);
        let (mut now, mut asked) = (at(0), 0);
        let last = loop {
            let said = all(&mut machine, now);
            if said != [forward(2)] {
                break said;
            }
            asked += 1;
            machine.answered(now, &answer(2, true, &[]));
            now = machine.wake().unwrap();
        };
        assert_eq!(last, [answers('a', false, &[1, 2])]);
        assert!((at(750)..at(850)).contains(&now) && asked > 20, "{now:?} {asked}");
    }

    #[test]
    fn more_signals_than_a_node_waits_for_make_room() {
        let mut machine = Signalling::new(SignallingConfig { most: 2, ..SignallingConfig::default() });
        for number in 1..=3 {
            let signal = Signal { number, ..signal(vec![branch(number as u8 + 1, 1, 1)]) };
            machine.hear(at(0), 'a', signal, true);
        }
        assert_eq!(all(&mut machine, at(0)), [forward(3), forward(4)]);
    }
}
