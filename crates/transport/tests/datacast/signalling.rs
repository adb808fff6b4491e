//! One message for many nodes, split down a tree of them over a network that loses, repeats and disorders: every node
//! that is not named at the end has been told, and nobody waits for the dead for ever.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::net::SocketAddr;

use headwater_transport::tree::{Say, Signalling, SignallingConfig};
use headwater_units::{Duration, FlowId, FlowKey, Time};
use headwater_wire::{
    Body, Control, FlowSecret, HeaderKey, Signal, SignalBranch, Signalled, ToNode, answer_key, parse,
};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The sender above the first node.
const CONTROLLER: usize = usize::MAX;

/// A tree of nodes: the teller of each; the first is told by the controller.
struct Tree {
    by: Vec<usize>,
}

fn secret(node: usize) -> FlowSecret {
    FlowSecret { flow: FlowId(node as u64), key: FlowKey([node as u8; 32]) }
}

fn address(node: usize) -> SocketAddr {
    ([10, 0, (node >> 8) as u8, node as u8], 7001).into()
}

fn node_at(at: SocketAddr) -> usize {
    let SocketAddr::V4(at) = at else { panic!("{at}") };
    usize::from(u16::from_be_bytes([at.ip().octets()[2], at.ip().octets()[3]]))
}

impl Tree {
    fn below(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        (node + 1..self.by.len()).filter(move |it| self.by[*it] == node)
    }

    /// Signal for a node, the nodes that it tells in the order of answers, and the number of levels.
    fn signal(&self, node: usize) -> (Signal, Vec<usize>, u8) {
        let mut signal =
            Signal { flow: FlowId(node as u64), number: 1, updates: Vec::new(), below: Vec::new() };
        let (mut members, mut levels) = (vec![node], 1);
        for below in self.below(node) {
            let (inside, of_branch, depth) = self.signal(below);
            signal.below.push(SignalBranch {
                to: address(below),
                flow: inside.flow,
                number: inside.number,
                answers: answer_key(&secret(below).key),
                members: of_branch.len() as u16,
                levels: depth,
                datagram: inside.into_datagram(&secret(below)),
            });
            members.extend(of_branch);
            levels = levels.max(depth + 1);
        }
        (signal, members, levels)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Message {
    Datagram(Vec<u8>),
    Answer(Signalled),
}

/// Nodes and what is under way between them.
struct Net {
    nodes: Vec<Signalling<usize>>,
    dead: BTreeSet<usize>,
    told: Vec<bool>,
    agenda: BinaryHeap<Reverse<(Time, u64)>>,
    in_flight: Vec<(usize, usize, Message)>,
    /// Chances that a datagram is lost, and that it comes twice.
    chances: (f64, f64),
    rng: ChaCha8Rng,
    /// Datagrams sent.
    sent: usize,
}

impl Net {
    fn new(nodes: usize, dead: BTreeSet<usize>, chances: (f64, f64), seed: u64) -> Net {
        Net {
            nodes: vec![Signalling::new(SignallingConfig::default()); nodes],
            dead,
            told: vec![false; nodes],
            agenda: BinaryHeap::new(),
            in_flight: Vec::new(),
            chances,
            rng: ChaCha8Rng::seed_from_u64(seed),
            sent: 0,
        }
    }

    fn send(&mut self, now: Time, from: usize, to: usize, message: Message) {
        self.sent += 1;
        let (lost, twice) = self.chances;
        let copies =
            usize::from(!self.rng.random_bool(lost)) * (1 + usize::from(self.rng.random_bool(twice)));
        for _ in 0..copies {
            let takes = Duration::from_micros(self.rng.random_range(50..5_000));
            self.agenda.push(Reverse((now + takes, self.in_flight.len() as u64)));
            self.in_flight.push((from, to, message.clone()));
        }
    }

    /// Polls a node; the answer of the first one to the controller, if it gives one that is final.
    fn drive(&mut self, now: Time, node: usize) -> Option<Signalled> {
        let mut last = None;
        while let Some(say) = self.nodes[node].poll(now) {
            match say {
                Say::Forward { to, datagram } => {
                    self.send(now, node, node_at(to), Message::Datagram(datagram.to_vec()));
                }
                Say::Answer { to: CONTROLLER, answer } => last = Some(answer).filter(|it| !it.open).or(last),
                Say::Answer { to, answer } => self.send(now, node, to, Message::Answer(answer)),
            }
        }
        last
    }

    fn hand_in(&mut self, now: Time, from: usize, to: usize, message: Message) {
        match message {
            Message::Datagram(bytes) => {
                let parsed = parse(&bytes, &HeaderKey::new(&secret(to).key)).expect("it is its node's");
                let Body::Control(control) = parsed.datagram.body else { panic!("no control message") };
                let Control::Node(ToNode::Signal(signal)) = *control else { panic!("no signal") };
                self.told[to] = true;
                self.nodes[to].hear(now, from, *signal, true);
            }
            Message::Answer(answer) => {
                let key = self.nodes[to].answers_on(answer.flow);
                assert!(key.is_none() || key == Some(answer_key(&secret(from).key)));
                self.nodes[to].answered(now, &answer);
            }
        }
    }

    /// Runs until the first node has answered; when, and what.
    fn run(&mut self, signal: Signal) -> (Time, Signalled) {
        let mut now = Time::ZERO;
        self.told[0] = true;
        self.nodes[0].hear(now, CONTROLLER, signal, true);
        loop {
            for node in (0..self.nodes.len()).filter(|node| !self.dead.contains(node)).collect::<Vec<_>>() {
                if let Some(answer) = self.drive(now, node) {
                    return (now, answer);
                }
            }
            let wake = self.nodes.iter().filter_map(Signalling::wake).min();
            let arrival = self.agenda.peek().map(|Reverse((at, _))| *at);
            now = wake.into_iter().chain(arrival).min().expect("somebody is waited for");
            while let Some(Reverse((_, message))) = self.agenda.peek().copied().filter(|it| it.0.0 <= now) {
                self.agenda.pop();
                let (from, to, message) = self.in_flight[message as usize].clone();
                if !self.dead.contains(&to) {
                    self.hand_in(now, from, to, message);
                }
            }
        }
    }
}

fn tree(by: &[usize]) -> Tree {
    let by = by.iter().enumerate().map(|(n, by)| if n == 0 { CONTROLLER } else { by % n }).collect();
    Tree { by }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Every node that is not named at the end was told, whatever the network does; and it ends in the time that the
    /// tree's depth allows.
    #[test]
    fn whoever_is_not_named_at_the_end_was_told(
        by in proptest::collection::vec(any::<usize>(), 1..60),
        dead in proptest::collection::btree_set(1usize..60, 0..6),
        loss in 0.0..0.4f64,
        twice in 0.0..0.5f64,
        seed in any::<u64>(),
    ) {
        let tree = tree(&by);
        let (signal, members, levels) = tree.signal(0);
        let mut net = Net::new(by.len(), dead, (loss, twice), seed);
        let (ended, answer) = net.run(signal);
        for (place, node) in members.iter().enumerate() {
            prop_assert!(net.told[*node] || answer.untold.contains(&(place as u16)), "node {node}");
            prop_assert!(!net.dead.contains(node) || !net.told[*node]);
        }
        let longest = SignallingConfig::default().patience() * u64::from(levels);
        prop_assert!(ended <= Time::ZERO + longest, "{ended:?} for {levels} levels");
    }

    /// Where nothing is lost, those are named who are dead or behind one, and nobody else.
    #[test]
    fn where_nothing_is_lost_the_dead_and_those_behind_them_are_named(
        by in proptest::collection::vec(any::<usize>(), 1..60),
        dead in proptest::collection::btree_set(1usize..60, 0..6),
        twice in 0.0..0.5f64,
        seed in any::<u64>(),
    ) {
        let tree = tree(&by);
        let (signal, members, _) = tree.signal(0);
        let mut net = Net::new(by.len(), dead, (0.0, twice), seed);
        let (_, answer) = net.run(signal);
        let named: BTreeSet<usize> = answer.untold.iter().map(|place| members[usize::from(*place)]).collect();
        let mut behind: BTreeSet<usize> = BTreeSet::new();
        for node in 0..by.len() {
            if net.dead.contains(&node) || behind.contains(&tree.by[node]) {
                behind.insert(node);
            }
        }
        prop_assert_eq!(named, behind);
    }
}

/// Goal: without loss and faster than the first wait, each node is sent one datagram and answers with one.
#[test]
fn each_node_is_sent_one_datagram_and_answers_with_one() {
    let by: Vec<usize> = (0..50).map(|n: usize| n.saturating_sub(1) / 7).collect();
    let (signal, _, levels) = tree(&by).signal(0);
    let mut net = Net::new(by.len(), BTreeSet::new(), (0.0, 0.0), 1);
    let (ended, answer) = net.run(signal);
    assert_eq!((net.sent, &answer.untold[..], levels), (2 * 49, &[][..], 3));
    assert!(ended < Time::ZERO + Duration::from_millis(25), "{ended:?}");
}
