//! The flows from one peer: the first rank goes first, and equals take turns.

use std::collections::BTreeMap;

use headwater_units::{FlowId, FluidRate, Rank};

use super::deficit::Ring;
use super::member::{Landed, Member};
use super::{LaneId, Share};

/// All members of a pair.
#[derive(Clone, Debug, Default)]
pub(super) struct Pair {
    members: BTreeMap<FlowId, Member>,
    /// Of those that can ask for a block: the ring of each rank.
    ready: BTreeMap<Rank, Ring>,
    /// In which ring each of them is.
    ring_of: BTreeMap<FlowId, Rank>,
}

impl Pair {
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (FlowId, &Member)> {
        self.members.iter().map(|(flow, member)| (*flow, member))
    }

    /// Changes a member; whether it is known.
    pub(super) fn change<T>(
        &mut self,
        flow: FlowId,
        block: u64,
        of: impl FnOnce(&mut Member) -> T,
    ) -> Option<T> {
        let changed = of(self.members.get_mut(&flow)?);
        self.place(flow, block);
        Some(changed)
    }

    pub(super) fn insert(&mut self, flow: FlowId, member: Member, block: u64) {
        self.members.insert(flow, member);
        self.place(flow, block);
    }

    pub(super) fn remove(&mut self, flow: FlowId) -> Option<Member> {
        self.leave(flow);
        self.members.remove(&flow)
    }

    /// How long the block is that is under way at this offset.
    pub(super) fn awaited(&self, flow: FlowId, offset: u64) -> Option<u64> {
        self.members.get(&flow)?.awaited(offset)
    }

    /// Whether any member can ask for a block.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next block, which is asked for in this lane: flow, offset, length, and whether it was lost before.
    pub(super) fn ask(&mut self, lane: LaneId, block: u64) -> Option<(FlowId, u64, u64, bool)> {
        let Pair { members, ready, .. } = self;
        let mut first = ready.first_entry()?;
        let len = |flow| members[&flow].next_block(block).map_or(0, |(_, len)| len);
        let flow = first.get_mut().next(block, len)?;
        let member = self.members.get_mut(&flow)?;
        let (offset, len) = member.next_block(block).expect("who is in a ring can ask");
        let again = member.ask((offset, len), lane);
        self.place(flow, block);
        Some((flow, offset, len, again))
    }

    /// A block of a flow is here.
    pub(super) fn land(
        &mut self,
        flow: FlowId,
        (offset, bytes): (u64, u64),
        last: bool,
        block: u64,
    ) -> Option<Landed> {
        let landed = self.change(flow, block, |member| member.land(offset, bytes, last)).flatten()?;
        if landed.complete {
            self.remove(flow);
        }
        Some(landed)
    }

    /// Requeues the blocks asked for in a lane that has failed. Returns the flows that are complete: those that waited
    /// only for blocks behind their end.
    pub(super) fn lose(&mut self, lane: LaneId, block: u64) -> Vec<FlowId> {
        let flows: Vec<FlowId> = self.members.keys().copied().collect();
        let lose = |pair: &mut Self, flow| pair.change(flow, block, |member| member.lose(lane)) == Some(true);
        let complete: Vec<FlowId> = flows.into_iter().filter(|flow| lose(self, *flow)).collect();
        complete.iter().for_each(|flow| drop(self.remove(*flow)));
        complete
    }

    /// Members that can ask for a block, or wait for one: who waits for credit alone needs no lane.
    pub(super) fn wanting(&self) -> impl Iterator<Item = (FlowId, &Member)> {
        self.members().filter(|(flow, member)| self.ring_of.contains_key(flow) || member.is_awaited())
    }

    /// The first rank that can ask for a block.
    pub(super) fn first_rank(&self) -> Option<Rank> {
        self.ready.keys().next().copied()
    }

    /// The sum of its members' rates (Eq. 2), of those that have something left to ask for; none if nobody gives rates.
    pub(super) fn rate(&self) -> Option<FluidRate> {
        let rate = |member: &Member| match member.share {
            Share::Rate(rate) if member.left(1) > 0 => Some(rate.get()),
            _ => None,
        };
        self.members.values().filter_map(rate).reduce(|a, b| a + b).map(FluidRate::new)
    }

    /// Puts a member into the ring where it belongs now.
    fn place(&mut self, flow: FlowId, block: u64) {
        let Some(member) = self.members.get(&flow) else { return };
        let place = member.place().filter(|_| member.next_block(block).is_some());
        if self.ring_of.get(&flow).copied() != place.map(|(rank, _)| rank) {
            self.leave(flow);
        }
        let Some((rank, weight)) = place else { return };
        // An unchanged member keeps its turn.
        self.ready.entry(rank).or_default().join(flow, weight);
        self.ring_of.insert(flow, rank);
    }

    fn leave(&mut self, flow: FlowId) {
        let Some(rank) = self.ring_of.remove(&flow) else { return };
        let Some(ring) = self.ready.get_mut(&rank) else { return };
        ring.leave(flow);
        if ring.is_empty() {
            self.ready.remove(&rank);
        }
    }
}
