//! Which source sent wrong symbols: one liar told from many honest sources (docs/decisions/0026).
//!
//! ```text
//!   a block fails its hash --one source sent all of it--> the liar
//!                          --several did--> thrown away, and asked of one source alone: it comes right, and whoever took part
//!                                           before, but not now, is suspicious; or it fails, and the one is the liar
//! ```
//! Symbols that come down a tree are hearsay: a node that passes them on cannot know whether they are true. Hearsay
//! convicts nobody, and makes nobody suspicious.

use std::collections::{BTreeMap, BTreeSet};

use headwater_units::{FlowId, NodeId};

/// A source that took part in this many blocks that came right only without it is not believed any more.
const SUSPICIONS: u32 = 3;

/// The conclusion from a failed hash.
#[derive(Debug, PartialEq, Eq)]
pub enum Blame {
    /// One source sent all of it: the liar.
    Liar(NodeId),
    /// One of several; the block is to be asked of one alone.
    Unclear,
}

/// The sources that took part in one block.
#[derive(Debug, Default)]
pub struct Trial {
    /// Senders of the symbols that are here.
    contributors: Vec<Contributor>,
    /// After a failed hash: symbols are taken from one flow alone.
    sole: Option<Box<SoleSource>>,
}

#[derive(Debug)]
struct Contributor {
    flow: FlowId,
    node: NodeId,
    hearsay: bool,
}

#[derive(Debug)]
struct SoleSource {
    /// The flow that the block is asked of, once there is one.
    flow: Option<FlowId>,
    /// Nodes that took part when it failed.
    suspects: BTreeSet<NodeId>,
}

impl Trial {
    /// A symbol of the block came from this source; `hearsay`: by way of others, who pass on what they cannot verify.
    pub fn on_symbol(&mut self, flow: FlowId, node: NodeId, hearsay: bool) {
        match self.contributors.iter_mut().find(|known| known.flow == flow) {
            Some(known) => known.hearsay &= hearsay,
            None => self.contributors.push(Contributor { flow, node, hearsay }),
        }
    }

    /// Whether a symbol of this node is here.
    pub fn has_from(&self, node: NodeId) -> bool {
        self.contributors.iter().any(|it| it.node == node)
    }

    /// Symbols of a liar are here, so that it begins anew.
    pub(crate) fn clear(&mut self) {
        self.contributors.clear();
    }

    /// Whether the block is asked of one flow alone.
    pub fn has_sole_source(&self) -> bool {
        self.sole.is_some()
    }

    /// Of which, once somebody took it.
    pub fn sole_source(&self) -> Option<FlowId> {
        self.sole.as_ref()?.flow
    }

    /// Whether a flow's symbols are taken.
    #[inline]
    pub fn admits(&self, flow: FlowId) -> bool {
        self.sole.as_ref().is_none_or(|sole| sole.flow == Some(flow))
    }

    /// The flow is asked for symbols of the block: all of them, if it is asked of one alone.
    pub fn give(&mut self, flow: FlowId) {
        if let Some(sole) = &mut self.sole {
            sole.flow = Some(flow);
        }
    }

    /// The flow brings nothing more. True if the block was asked of it alone: it is to be asked of another, from the start.
    pub(crate) fn release(&mut self, flow: FlowId) -> bool {
        match &mut self.sole {
            Some(sole) if sole.flow == Some(flow) => {
                sole.flow = None;
                self.contributors.clear();
                true
            }
            _ => false,
        }
    }

    /// The block decoded but is wrong: everything of it is thrown away and asked of one source alone.
    pub(crate) fn on_corrupt(&mut self) -> Blame {
        let by_hearsay = self.contributors.iter().any(|it| it.hearsay);
        let senders: BTreeSet<NodeId> = self.contributors.drain(..).map(|it| it.node).collect();
        let mut suspects = match self.sole.take() {
            Some(sole) => sole.suspects,
            // The sources of the other symbols may have told the truth.
            None if by_hearsay => BTreeSet::new(),
            None => senders.clone(),
        };
        let blame = match senders.first() {
            Some(&one) if senders.len() == 1 && !by_hearsay => {
                suspects.remove(&one);
                Blame::Liar(one)
            }
            _ => Blame::Unclear,
        };
        self.sole = Some(Box::new(SoleSource { flow: None, suspects }));
        blame
    }

    /// The block came right. Returns the sources that took part when it failed before, but not now: that makes them
    /// suspicious.
    pub fn on_verified(&self) -> BTreeSet<NodeId> {
        let Some(sole) = &self.sole else { return BTreeSet::new() };
        let takes_part = |node: &NodeId| self.contributors.iter().any(|it| it.node == *node);
        sole.suspects.iter().filter(|node| !takes_part(node)).copied().collect()
    }
}

/// The sources that a task trusts.
#[derive(Debug, Default)]
pub struct Trust {
    suspicions: BTreeMap<NodeId, u32>,
    distrusted: BTreeSet<NodeId>,
}

impl Trust {
    /// A block came right without them ([`Trial::on_verified`]). Returns who was suspicious once too often.
    pub fn suspect(&mut self, nodes: BTreeSet<NodeId>) -> Vec<NodeId> {
        let suspicions = &mut self.suspicions;
        let mut is_too_much = |node: &NodeId| {
            let count = suspicions.entry(*node).or_default();
            *count += 1;
            *count >= SUSPICIONS
        };
        nodes.into_iter().filter(|node| is_too_much(node)).collect()
    }

    /// Nothing of this source is believed any more; false if nothing was before.
    pub fn distrust(&mut self, node: NodeId) -> bool {
        self.distrusted.insert(node)
    }

    /// Whether nothing of it is believed.
    pub fn is_distrusted(&self, node: NodeId) -> bool {
        self.distrusted.contains(&node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOWS: [(FlowId, NodeId); 2] = [(FlowId(1), NodeId([1; 32])), (FlowId(2), NodeId([2; 32]))];

    #[test]
    fn the_only_source_of_a_wrong_block_is_the_liar() {
        let mut trial = Trial::default();
        trial.on_symbol(FLOWS[0].0, FLOWS[0].1, false);
        assert_eq!(trial.on_corrupt(), Blame::Liar(FLOWS[0].1));
    }

    #[test]
    fn of_two_sources_the_one_without_which_it_comes_right_is_suspicious_and_distrusted_the_third_time() {
        let mut trust = Trust::default();
        for distrusted in [vec![], vec![], vec![FLOWS[1].1]] {
            let mut trial = Trial::default();
            FLOWS.iter().for_each(|(flow, node)| trial.on_symbol(*flow, *node, false));
            assert_eq!(trial.on_corrupt(), Blame::Unclear);
            assert!(trial.has_sole_source() && !trial.admits(FLOWS[0].0));
            trial.give(FLOWS[0].0);
            assert!(trial.admits(FLOWS[0].0) && !trial.admits(FLOWS[1].0));
            trial.on_symbol(FLOWS[0].0, FLOWS[0].1, false);
            assert_eq!(trust.suspect(trial.on_verified()), distrusted);
        }
        assert!(trust.distrust(FLOWS[1].1) && !trust.distrust(FLOWS[1].1));
        assert!(trust.is_distrusted(FLOWS[1].1) && !trust.is_distrusted(FLOWS[0].1));
    }

    #[test]
    fn whoever_falls_silent_alone_hands_the_block_on_without_blame() {
        let mut trial = Trial::default();
        FLOWS.iter().for_each(|(flow, node)| trial.on_symbol(*flow, *node, false));
        trial.on_corrupt();
        trial.give(FLOWS[1].0);
        trial.on_symbol(FLOWS[1].0, FLOWS[1].1, false);
        assert!(!trial.release(FLOWS[0].0) && trial.release(FLOWS[1].0));
        trial.give(FLOWS[0].0);
        trial.on_symbol(FLOWS[0].0, FLOWS[0].1, false);
        assert_eq!(trial.on_verified().into_iter().collect::<Vec<_>>(), [FLOWS[1].1]);
    }

    #[test]
    fn beside_hearsay_nobody_is_suspicious() {
        let [tree, source] = FLOWS;
        let mut trial = Trial::default();
        trial.on_symbol(tree.0, tree.1, true);
        trial.on_symbol(source.0, source.1, false);
        assert_eq!(trial.on_corrupt(), Blame::Unclear);
        let other = (FlowId(3), NodeId([3; 32]));
        trial.give(other.0);
        trial.on_symbol(other.0, other.1, false);
        assert!(trial.on_verified().is_empty());
    }

    #[test]
    fn hearsay_convicts_nobody_and_what_a_source_sends_when_it_is_asked_alone_does() {
        let [tree, source] = FLOWS;
        let mut trial = Trial::default();
        trial.on_symbol(tree.0, tree.1, true);
        assert_eq!(trial.on_corrupt(), Blame::Unclear, "all of it came by the tree, through many hands");
        trial.give(source.0);
        trial.on_symbol(source.0, source.1, false);
        assert!(trial.on_verified().is_empty());
        assert_eq!(trial.on_corrupt(), Blame::Liar(source.1));
    }
}
