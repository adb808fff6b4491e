//! Of which block a flow is asked for its next symbol where receivers pass symbols on to each other ([`crate::pull::relay`]).
//!
//! Every flow has its part of every block, as with several sources (SCDP §III-F): one flow's, of the source or of whoever passed it on
//! before, is that which this receiver passes on itself; relay j's is that which j passes on, or hands on in its rack. A flow goes on to
//! the next blocks while it has its part of the old ones, up to [`LEAD`] blocks, and then helps where others are behind: so a slow relay
//! costs its part and no time, and one that is silent costs its part at once.
//!
//! What a flow has lost of a part that is passed on, it is asked for again, so that each receiver comes to have what others count on;
//! and what they want beyond that of such a class, the flow is asked for too ([`Blocks::want_for_others`]). So nobody waits for a symbol
//! that nobody asks for.

use headwater_units::{BlockIndex, NodeId};

use super::Blocks;
use super::asking::Take;
use super::block::{Block, FlowView};
use crate::pull::{class_of, part};

/// A flow runs ahead of the others by at most so many blocks that lack symbols: at 256 KiB they are 8 MiB, a third of a second at
/// 200 Mbit/s, more than a busy host is late.
const LEAD: usize = 32;
/// What a block lacks beyond the parts that are left, one more flow makes up for whenever the flows are so many blocks further.
const STEP: usize = 4;

impl Blocks {
    /// Whether a flow can be asked for a symbol at all.
    pub(in crate::pull::session) fn has_work_for(&mut self, place: usize) -> bool {
        !self.relayed || self.pick(place).is_some()
    }

    /// The relays that took part in a block when it failed its hash, and not when it came right.
    pub(in crate::pull::session) fn suspicious_relays(&self, block: BlockIndex) -> Vec<NodeId> {
        let Some(entry) = self.ledger.get(block.0).filter(|_| self.relayed) else { return Vec::new() };
        let suspects = entry.here.trial.on_verified(true);
        let relays = |node: &NodeId| self.places.iter().any(|it| it.node == *node && it.relays);
        suspects.into_iter().filter(relays).collect()
    }

    /// Others want a number of symbols of a class of a block that this receiver passes on.
    pub(in crate::pull::session) fn want_for_others(&mut self, block: BlockIndex, class: u8, symbols: u32) {
        if !self.places.iter().any(|it| it.passed_on && it.class_in(block.0) == class) {
            return;
        }
        let Some(at) = self.open_through(block.0).filter(|&at| self.ledger[at].here.is_filling()) else {
            return;
        };
        self.ledger[at].want_for_others(class, symbols);
        self.wanted_by_others.insert((block.0, class));
    }

    /// Whether others want symbols of this flow's class that may have to be asked for.
    #[cold]
    pub(super) fn is_wanted_by_others(&self, place: usize) -> bool {
        self.first_wanted_of(place).is_some()
    }

    fn first_wanted_of(&self, place: usize) -> Option<(u32, u8)> {
        let it = &self.places[place];
        let is_its = |(block, class): &&(u32, u8)| it.class_in(*block) == *class;
        self.wanted_by_others.iter().find(is_its).copied().filter(|_| it.passed_on)
    }

    /// The first block of which others want a symbol of its class that this flow has not been asked for.
    fn pick_for_others(&mut self, place: usize) -> Option<usize> {
        while let Some((block, class)) = self.first_wanted_of(place) {
            if let Some(at) = self.ledger.find(block) {
                let entry = &self.ledger[at];
                let lacks = entry.brought_by(place, &self.places[place]) < entry.asked.wanted_of(class);
                if lacks && entry.here.is_filling() && !entry.here.trial.has_sole_source() {
                    return Some(at);
                }
            }
            self.wanted_by_others.remove(&(block, class));
        }
        None
    }

    /// A flow is asked for so many more symbols, all of the same block: a pull tells of no more than that and the oldest. Returns how
    /// many it can be, and of which block.
    pub(in crate::pull::session) fn assign_some(
        &mut self,
        place: usize,
        most: u32,
    ) -> Option<(u32, BlockIndex)> {
        let block = self.assign(place)?;
        let mut asked = 1;
        while asked < most
            && let Some(at) = self.pick(place).filter(|at| self.ledger[*at].number == block.0)
            && self.assign_of(at, place).is_some()
        {
            asked += 1;
        }
        Some((asked, block))
    }

    pub(super) fn pick_relayed(&mut self, place: usize) -> Option<usize> {
        if !self.wanted_by_others.is_empty()
            && let Some(at) = self.pick_for_others(place)
        {
            return Some(at);
        }
        self.walk(place, LEAD, |block, places| {
            let has_part = block.part_left(place, &places[place]) > 0;
            match has_part || (block.is_short(places) && block.is_made_up_by(place, places)) {
                true => Take::Now,
                false => Take::Later,
            }
        })
    }
}

impl Block {
    fn part_of(&self, it: &FlowView) -> u32 {
        part(self.here.source_symbols(), class_of(self.number, it.index, it.of), it.of)
    }

    /// How many of its part a flow has yet to be asked for.
    fn part_left(&self, place: usize, it: &FlowView) -> u32 {
        self.part_of(it).saturating_sub(self.brought_by(place, it))
    }

    /// How many symbols a flow was asked for; without those that are to be made good because others count on them.
    fn brought_by(&self, place: usize, it: &FlowView) -> u32 {
        let run = self.asked.runs.get(place).copied().unwrap_or_default();
        run.gone + run.coming - if it.passed_on { run.lost.min(run.gone) } else { 0 }
    }

    /// Whether all parts that are left to be asked for do not make up what is needed: those who are silent bring nothing.
    fn is_short(&self, places: &[FlowView]) -> bool {
        let mut live = places.iter().enumerate().filter(|(_, it)| it.heard);
        // No further than to the first parts that do.
        let all_but =
            |short: u32, (place, it)| short.checked_sub(self.part_left(place, it)).filter(|&it| it > 0);
        live.try_fold(self.needs(), all_but).is_some_and(|short| short > 0)
    }

    /// Whether this flow is asked for more than its part of a block that is short. All who lack symbols ask that of the lowest class
    /// first, and so they come to want the same ones, each of which leaves the source once; the next class where this flow is [`STEP`]
    /// blocks further, and so on.
    fn is_made_up_by(&self, place: usize, places: &[FlowView]) -> bool {
        let it = &places[place];
        let class = it.class_in(self.number);
        let before = places.iter().filter(|it| it.heard && it.class_in(self.number) < class).count();
        it.newest.saturating_sub(self.number) as usize >= before * STEP
    }
}
