//! The driver's answers about blocks: wanted, decoded, or wrong, and whose fault that is.

use core::ops::Range;

use headwater_units::{BlockIndex, FlowId, NodeId, Time};
use headwater_wire::{FinReason, SpreadRule};

use super::blocks::Blocks;
use super::{Flow, Receiver};
use crate::{DecodeFailure, ReceiverEvent, ReceiverFailure};
use headwater_flow::task::blame::Blame;
use headwater_flow::task::ledger::Ledger;

impl Receiver {
    pub(super) fn start(&mut self, now: Time, wanted: Range<u32>, have: &[BlockIndex], is_running: bool) {
        if self.over || self.blocks.is_some() {
            return;
        }
        // Even where the controller has forgotten the task meanwhile: it goes on when that has answered again.
        let blocks = Blocks::new(self.geometry, wanted, have);
        self.stats.source_symbols += blocks.needed();
        self.receive(now, blocks, is_running);
    }

    /// Goes on with what came by another transport.
    pub(crate) fn resume(&mut self, now: Time, ledger: Ledger<()>) {
        self.receive(now, Blocks::resume(ledger), true);
    }

    fn receive(&mut self, now: Time, mut blocks: Blocks, is_running: bool) {
        self.last_useful = now;
        let done = blocks.all_done();
        if let Some(stripes) = &self.stripes {
            blocks.set_stripes(stripes.of());
        }
        self.blocks = Some(blocks);
        self.plan_soon = true;
        if done && is_running {
            self.complete(now);
        }
    }

    pub(super) fn on_decoded(&mut self, now: Time, block: BlockIndex, is_running: bool) {
        let Some(blocks) = &mut self.blocks else { return };
        let Some(entry) = blocks.get(block) else { return };
        if entry.here.is_filling() {
            return;
        }
        self.stats.repair_used += u64::from(entry.here.source_symbols_missing());
        self.last_useful = now;
        let suspects = blocks.finish(block);
        self.plan_soon |= self.stripes.is_some();
        let done = blocks.all_done();
        for node in self.trust.suspect(suspects) {
            self.distrust(now, node);
        }
        if done && is_running {
            self.complete(now);
        }
    }

    pub(super) fn on_decode_failed(&mut self, now: Time, block: BlockIndex, failure: DecodeFailure) {
        let Some(blocks) = &mut self.blocks else { return };
        if blocks.get(block).is_none_or(|b| b.here.is_filling()) {
            return;
        }
        self.last_useful = now;
        match failure {
            DecodeFailure::NeedMore => {
                self.stats.need_more += 1;
                if self.rule != SpreadRule::Listed {
                    // Sources have been told that the block is done; repeated until they answer.
                    self.flows.values_mut().for_each(|f| f.assigning.change());
                }
                if let Some((owing, n)) = blocks.need_more(block)
                    && let Some(flow) = self.flows.get_mut(&owing)
                {
                    flow.give_beside(block, n);
                }
            }
            DecodeFailure::Corrupt => {
                self.stats.corrupt += 1;
                let blame = blocks.corrupt(block);
                let attempts = blocks.attempts(block);
                self.outbox.event(ReceiverEvent::Discard { block });
                // One source alone can be asked only by listing.
                if self.rule != SpreadRule::Listed {
                    self.rule = SpreadRule::Listed;
                    self.flows.values_mut().for_each(|f| f.assigning.change());
                }
                if let Some(Blame::Liar(node)) = blame {
                    self.distrust(now, node);
                }
                if attempts >= self.config.attempts {
                    self.fail(now, ReceiverFailure::Corrupt { block });
                }
            }
        }
        self.plan_soon = true;
    }

    fn distrust(&mut self, now: Time, node: NodeId) {
        if !self.trust.distrust(node) {
            return;
        }
        let theirs: Vec<FlowId> =
            self.flows.values().filter(|f| f.grant.node == node).map(Flow::id).collect();
        for flow in theirs {
            self.end_flow(now, flow, FinReason::Distrusted);
        }
        // They would fail as well, once the rest is here.
        let spoiled = self.blocks.as_mut().map(|blocks| blocks.forget_from(node)).unwrap_or_default();
        spoiled.into_iter().for_each(|block| self.outbox.event(ReceiverEvent::Discard { block }));
        self.outbox.event(ReceiverEvent::Distrusted { node });
    }
}
