//! The trees of an overlay, one for each stripe, over receivers that are all there when it begins (SplitStream, SOSP 2003, with a bound
//! on what a node sends; docs/decisions/0037).
//!
//! ```text
//!   slots    node 0: 0 0 0 0 | node 1: 0 0 0 | node 2: 0 0 1 1 | node 3: 1 1 1 | ...      10 nodes, 4 stripes of 9 edges: each node has
//!                                                                                        3 or 4 slots, and a stripe takes the next 9
//!   trees    stripe 0: source - 0 - {1, 2, 3, 4}, 1 - {5, 6, 7}, 2 - {8, 9}      stripe 1: source - 2 - {3, 4}, 3 - ...
//! ```
//! A node's slots are the edges by which it sends, each a stripe to a child: as many as stripes, so that it sends the object once, and
//! more or fewer by its uplink. Stripes take the slots that they need in the order of the nodes. So a node stands inside two trees or so,
//! and at the edge of all others; what it costs when it dies is little; and trees are as flat as they can be.
//!
//! Racks come first: a rack is to other racks what a node is to other nodes, and sends each stripe but to the racks that its slots allow.
//! Within it the nodes spread what comes. So each byte enters a rack once.

use std::collections::VecDeque;

/// Stripes of few receivers. A block that comes is sent to as many children side by side, and each has it only when all have: fewer
/// stripes are faster, as long as trees are not deep.
const FEW: u8 = 4;
/// Stripes of many: trees of 10,000 are six hops deep.
const MANY: u8 = 8;
/// Number of receivers from which on they count as many.
const MANY_RECEIVERS: usize = 64;

/// A receiver at the beginning.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Receiver {
    /// Those with the same number stand in one rack; a receiver whose rack is not known has a number of its own.
    pub(crate) rack: usize,
    /// Its uplink, compared with those of others.
    pub(crate) weight: f64,
}

/// Where a stripe comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parent {
    /// The source of the stripe.
    Source,
    /// This receiver.
    Receiver(usize),
}

/// The trees.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Striping {
    /// By receiver and stripe.
    pub(crate) parents: Vec<Vec<Parent>>,
    /// By receiver and stripe: how many children it may have.
    pub(crate) slots: Vec<Vec<u32>>,
}

/// Number of stripes that `receivers` receivers begin with.
pub(crate) fn stripes(receivers: usize) -> u8 {
    match receivers {
        // With one for each, nobody stands inside two trees, and nobody sends a whole copy.
        3 | 5..=9 => receivers as u8,
        ..MANY_RECEIVERS => FEW,
        _ => MANY,
    }
}

impl Striping {
    /// Builds the trees of `stripes` stripes.
    pub(crate) fn new(receivers: &[Receiver], stripes: u8) -> Self {
        let stripes = usize::from(stripes);
        let racks = racks(receivers);
        let capacity = |rack: &Vec<usize>| match rack[..] {
            [alone] => receivers[alone].weight,
            // Its links to the others carry the object once, like a node's, however many nodes it has.
            _ => 1.0,
        };
        let weights: Vec<f64> = racks.iter().map(capacity).collect();
        let between = deal(&weights, &vec![racks.len() as u32 - 1; stripes]);
        // By stripe and rack: the edges to other racks.
        let lent: Vec<Vec<u32>> = between.iter().map(|dealt| by_place(dealt, racks.len())).collect();
        // By rack and stripe: the edges within it, and those to other racks.
        let within: Vec<Vec<Vec<(usize, u32)>>> = (0..racks.len())
            .map(|rack| {
                let own = racks[rack].len() as u32 - 1;
                let demand: Vec<u32> = lent.iter().map(|lent| own + lent[rack]).collect();
                let weights: Vec<f64> = racks[rack].iter().map(|node| receivers[*node].weight).collect();
                deal(&weights, &demand)
            })
            .collect();
        let mut striping = Striping {
            parents: vec![vec![Parent::Source; stripes]; receivers.len()],
            slots: vec![vec![0; stripes]; receivers.len()],
        };
        for stripe in 0..stripes {
            let between = (&between[stripe][..], &lent[stripe][..]);
            striping.build(stripe, &racks, between, |rack| &within[rack][stripe]);
        }
        striping
    }

    /// Builds the tree of one stripe: racks inside the tree first, and in each rack the nodes that send it.
    fn build<'a>(
        &mut self,
        stripe: usize,
        racks: &[Vec<usize>],
        (between, lent): (&[(usize, u32)], &[u32]),
        within: impl Fn(usize) -> &'a Vec<(usize, u32)>,
    ) {
        let mut open = VecDeque::from([(Parent::Source, 1)]);
        let inner = between.iter().map(|(rack, _)| *rack);
        let outer = (0..racks.len()).filter(|rack| lent[*rack] == 0);
        for rack in inner.chain(outer) {
            let (nodes, senders) = (&racks[rack], within(rack));
            let slots = by_place(senders, nodes.len());
            let others = (0..nodes.len()).filter(|at| slots[*at] == 0);
            let order: Vec<usize> = senders.iter().map(|(at, _)| *at).chain(others).collect();
            let mut here: VecDeque<(Parent, u32)> = VecDeque::new();
            let mut to_others = lent[rack];
            for (place, at) in order.into_iter().enumerate() {
                let node = nodes[at];
                if place == senders.len() {
                    // Those that send within the rack have their place: now the other racks, then the rest of this one.
                    lend(&mut here, &mut to_others, &mut open);
                }
                let from = if place == 0 { &mut open } else { &mut here };
                self.parents[node][stripe] = take(from);
                if slots[at] > 0 {
                    self.slots[node][stripe] = slots[at];
                    here.push_back((Parent::Receiver(node), slots[at]));
                }
            }
            lend(&mut here, &mut to_others, &mut open);
        }
    }
}

/// Takes one slot of the parent that has been waiting for children longest.
fn take(open: &mut VecDeque<(Parent, u32)>) -> Parent {
    while let Some((parent, left)) = open.front_mut() {
        if *left > 0 {
            *left -= 1;
            return *parent;
        }
        open.pop_front();
    }
    // There are as many slots as edges.
    Parent::Source
}

/// Gives slots of nodes of a rack to other racks.
fn lend(here: &mut VecDeque<(Parent, u32)>, count: &mut u32, open: &mut VecDeque<(Parent, u32)>) {
    while *count > 0 {
        let Some((parent, left)) = here.front_mut() else { return };
        let lent = (*count).min(*left);
        if lent > 0 {
            open.push_back((*parent, lent));
        }
        (*left, *count) = (*left - lent, *count - lent);
        if *left == 0 {
            here.pop_front();
        }
    }
}

/// By place: the slots that each has of what was dealt.
fn by_place(dealt: &[(usize, u32)], places: usize) -> Vec<u32> {
    let mut slots = vec![0; places];
    dealt.iter().for_each(|(place, count)| slots[*place] += count);
    slots
}

/// The receivers of each rack, in the order of the first of each.
fn racks(receivers: &[Receiver]) -> Vec<Vec<usize>> {
    let mut racks: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut place = std::collections::BTreeMap::new();
    for (node, receiver) in receivers.iter().enumerate() {
        let at = *place.entry(receiver.rack).or_insert_with(|| {
            racks.push((receiver.rack, Vec::new()));
            racks.len() - 1
        });
        racks[at].1.push(node);
    }
    racks.into_iter().map(|(_, nodes)| nodes).collect()
}

/// Deals what each stripe needs to nodes by their weights, in their order: who has how many slots of it.
fn deal(weights: &[f64], demand: &[u32]) -> Vec<Vec<(usize, u32)>> {
    let capacities = capacities(weights, demand.iter().sum());
    let (mut node, mut left) = (0, capacities.first().copied().unwrap_or(0));
    let mut dealt = Vec::with_capacity(demand.len());
    for &needed in demand {
        let (mut needed, mut slots) = (needed, Vec::new());
        while needed > 0 && node < capacities.len() {
            let taken = needed.min(left);
            if taken > 0 {
                slots.push((node, taken));
            }
            (needed, left) = (needed - taken, left - taken);
            if left == 0 {
                node += 1;
                left = capacities.get(node).copied().unwrap_or(0);
            }
        }
        dealt.push(slots);
    }
    dealt
}

/// Splits `total` slots by weight; none is left over.
fn capacities(weights: &[f64], total: u32) -> Vec<u32> {
    let sum: f64 = weights.iter().sum();
    if sum <= 0.0 {
        return capacities(&vec![1.0; weights.len()], total);
    }
    // Each is rounded where the sum up to it is: so what is lost at one the next one has.
    let mut before = 0.0;
    let mut given = 0;
    let each = weights.iter().map(|weight| {
        before += weight;
        let upto = (f64::from(total) * before / sum).round() as u32;
        let slots = upto - given;
        given = upto;
        slots
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(count: usize) -> Vec<Receiver> {
        (0..count).map(|rack| Receiver { rack, weight: 1.0 }).collect()
    }

    /// Hops from the source.
    fn depth(striping: &Striping, stripe: usize, node: usize) -> usize {
        let mut hops = 1;
        let mut at = node;
        while let Parent::Receiver(parent) = striping.parents[at][stripe] {
            (at, hops) = (parent, hops + 1);
            assert!(hops <= striping.parents.len(), "stripe {stripe} of {node} goes in a circle");
        }
        hops
    }

    /// By receiver: how many copies it sends; and the most hops.
    fn figures(striping: &Striping) -> (Vec<f64>, usize) {
        let (nodes, stripes) = (striping.parents.len(), striping.parents[0].len());
        let mut sent = vec![0.0; nodes];
        let mut deepest = 0;
        for stripe in 0..stripes {
            let mut roots = 0;
            let mut children = vec![0; nodes];
            for node in 0..nodes {
                deepest = deepest.max(depth(striping, stripe, node));
                match striping.parents[node][stripe] {
                    Parent::Source => roots += 1,
                    Parent::Receiver(parent) => {
                        sent[parent] += 1.0 / stripes as f64;
                        children[parent] += 1;
                    }
                }
            }
            assert_eq!(roots, 1, "the source sends stripe {stripe} once");
            assert!((0..nodes).all(|node| children[node] <= striping.slots[node][stripe]));
        }
        (sent, deepest)
    }

    #[test]
    fn nobody_sends_more_than_a_copy_however_many_there_are() {
        for count in 2..=100 {
            let striping = Striping::new(&plain(count), stripes(count));
            let (sent, deepest) = figures(&striping);
            let most = sent.iter().copied().fold(0.0, f64::max);
            assert!(most <= 1.0, "{count}: {sent:?}");
            let hops = match count {
                0..10 => 2,
                10..21 => 4,
                _ => 5,
            };
            assert!(deepest <= hops, "{count}: {deepest} hops");
            let inside = |node: usize| striping.slots[node].iter().filter(|slots| **slots > 0).count();
            assert!(count < 10 || (0..count).all(|node| inside(node) <= 2), "{count}");
        }
    }

    #[test]
    fn ten_thousand_are_six_hops_apart() {
        let (sent, deepest) = figures(&Striping::new(&plain(10_000), stripes(10_000)));
        assert!(deepest <= 6 && sent.iter().all(|copies| *copies <= 1.0), "{deepest}");
    }

    #[test]
    fn who_has_a_larger_uplink_sends_more_and_who_has_none_nothing() {
        let mut receivers = plain(20);
        receivers[3].weight = 3.0;
        receivers[7].weight = 0.0;
        let (sent, _) = figures(&Striping::new(&receivers, 8));
        assert_eq!(sent[7], 0.0);
        assert!((sent[3] / sent[0] - 3.0).abs() < 0.6, "{sent:?}");
        receivers.iter_mut().for_each(|it| it.weight = 0.0);
        figures(&Striping::new(&receivers, 8));
    }

    #[test]
    fn each_stripe_enters_each_rack_once_and_leaves_them_as_often_as_they_have_slots() {
        for sizes in [&[4, 4][..], &[1, 7], &[2, 6], &[3, 1, 2], &[32; 12], &[20, 1, 1, 1, 9], &[2; 50]] {
            let racks = sizes.iter().enumerate().flat_map(|(rack, size)| std::iter::repeat_n(rack, *size));
            let receivers: Vec<Receiver> = racks.map(|rack| Receiver { rack, weight: 1.0 }).collect();
            let striping = Striping::new(&receivers, stripes(receivers.len()));
            let stripes = striping.parents[0].len();
            let (sent, deepest) = figures(&striping);
            let mut entered = vec![0.0; sizes.len()];
            let mut left = vec![0.0; sizes.len()];
            for (node, parents) in striping.parents.iter().enumerate() {
                for parent in parents {
                    let to = receivers[node].rack;
                    match parent {
                        Parent::Source => entered[to] += 1.0 / stripes as f64,
                        Parent::Receiver(parent) if receivers[*parent].rack != to => {
                            entered[to] += 1.0 / stripes as f64;
                            left[receivers[*parent].rack] += 1.0 / stripes as f64;
                        }
                        Parent::Receiver(_) => {}
                    }
                }
            }
            assert!(entered.iter().all(|copies| (copies - 1.0).abs() < 1e-9), "{sizes:?}: {entered:?}");
            assert!(left.iter().all(|copies| *copies <= 1.13), "{sizes:?}: {left:?}");
            // Symbols that a node sends for its rack come on top.
            assert!(sent.iter().all(|copies| *copies <= 1.26), "{sizes:?}: {sent:?}");
            assert!(deepest <= 10, "{sizes:?}: {deepest} hops");
        }
    }
}
