//! Turns of equal flows (Courier §IV-A): deficit round robin (Shreedhar and Varghese, SIGCOMM 1995) in blocks.
//!
//! A turn is worth one block for the lightest flow and more in proportion for others, at most [`MOST_BLOCKS`]. A flow that has nothing
//! to ask for leaves the ring and keeps no deficit.

use std::collections::BTreeMap;
use std::ops::Bound;

use headwater_units::FlowId;

/// The most blocks that a turn is worth, whatever the weights.
const MOST_BLOCKS: f64 = 16.0;

/// Flows that take turns, by weight.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    flows: BTreeMap<FlowId, Turn>,
    /// Flow whose turn it is, if it has begun.
    turn: Option<FlowId>,
    /// The least weight; none if it is to be looked up.
    least: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    weight: f64,
    /// Bytes that it may still ask for in its turn.
    deficit: f64,
}

impl Ring {
    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// A flow joins, or goes on with another weight, above zero.
    pub(super) fn join(&mut self, flow: FlowId, weight: f64) {
        let turn = self.flows.entry(flow).or_insert(Turn { weight, deficit: 0.0 });
        turn.weight = weight;
        self.least = None;
    }

    /// A flow leaves; whether it was there.
    pub(super) fn leave(&mut self, flow: FlowId) -> bool {
        self.least = None;
        self.flows.remove(&flow).is_some()
    }

    /// The flow that asks next, whose next block is as long as `len` says, at most `block`.
    pub(super) fn next(&mut self, block: u64, len: impl Fn(FlowId) -> u64) -> Option<FlowId> {
        let least = self.least();
        let mut begun = self.turn;
        // A turn is worth at least a block, so the second flow that is looked at asks at the latest.
        loop {
            let (flow, fresh) = match begun {
                Some(flow) if self.flows.contains_key(&flow) => (flow, false),
                before => (self.after(before)?, true),
            };
            let turn = self.flows.get_mut(&flow).expect("it was found in the ring");
            if fresh {
                turn.deficit += block as f64 * (turn.weight / least).min(MOST_BLOCKS);
            }
            let len = len(flow) as f64;
            if turn.deficit >= len {
                turn.deficit -= len;
                self.turn = Some(flow);
                return Some(flow);
            }
            // The rest of its turn is below a block, and counts in its next one.
            begun = Some(self.after(Some(flow))?);
            let next = self.flows.get_mut(&begun?).expect("it was found in the ring");
            next.deficit += block as f64 * (next.weight / least).min(MOST_BLOCKS);
        }
    }

    /// The flow behind this one, around the end.
    fn after(&self, flow: Option<FlowId>) -> Option<FlowId> {
        let behind = flow.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.flows.range((behind, Bound::Unbounded)).next();
        next.or_else(|| self.flows.first_key_value()).map(|(flow, _)| *flow)
    }

    fn least(&mut self) -> f64 {
        let of_all = || self.flows.values().map(|turn| turn.weight).fold(f64::INFINITY, f64::min);
        *self.least.get_or_insert_with(of_all)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const BLOCK: u64 = 65_536;

    proptest! {
        /// Two flows that always have something get their parts within two blocks and a turn.
        #[test]
        fn backlogged_flows_share_by_weight(ratio in 1.0_f64..16.0, blocks in 1_usize..2_000) {
            let mut ring = Ring::default();
            ring.join(FlowId(1), 1.0);
            ring.join(FlowId(2), ratio);
            let mut got: BTreeMap<FlowId, f64> = BTreeMap::new();
            for _ in 0..blocks {
                *got.entry(ring.next(BLOCK, |_| BLOCK).unwrap()).or_default() += BLOCK as f64;
            }
            let total = (blocks as u64 * BLOCK) as f64;
            for (flow, part) in [(1, 1.0 / (1.0 + ratio)), (2, ratio / (1.0 + ratio))] {
                let got = got.get(&FlowId(flow)).copied().unwrap_or(0.0);
                let bound = BLOCK as f64 * (2.0 + ratio);
                prop_assert!((got - part * total).abs() <= bound, "{flow}: {got} of {total}");
            }
        }
    }

    #[test]
    fn a_flow_that_leaves_keeps_no_deficit_and_the_others_go_on() {
        let mut ring = Ring::default();
        (1..=3).for_each(|flow| ring.join(FlowId(flow), 1.0));
        let next = |ring: &mut Ring| ring.next(BLOCK, |_| BLOCK).unwrap().0;
        assert_eq!([next(&mut ring), next(&mut ring)], [1, 2]);
        assert!(ring.leave(FlowId(2)) && !ring.leave(FlowId(2)));
        assert_eq!([next(&mut ring), next(&mut ring), next(&mut ring)], [3, 1, 3]);
        ring.join(FlowId(2), 1.0);
        assert_eq!([next(&mut ring), next(&mut ring), next(&mut ring)], [1, 2, 3]);
        (1..=3).for_each(|flow| assert!(ring.leave(FlowId(flow))));
        assert_eq!(ring.next(BLOCK, |_| BLOCK), None);
    }
}
