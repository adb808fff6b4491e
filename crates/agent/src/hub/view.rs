//! The hub's reports, for people and for a scheduler.

use std::collections::BTreeMap;
use std::ops::Deref;

use headwater_transport::courier::LaneId;
use headwater_units::{Bytes, NodeId, Time};

use super::flow::State;
use super::{CoflowId, Hub};
use crate::fields::Name;
use crate::status::{AgentStatus, CoflowDemand, CoflowStatus, LaneStatus};

impl<B: Deref<Target = [u8]>> Hub<B> {
    /// Running fetches, by coflow and source.
    pub(crate) fn demand(&self) -> Vec<CoflowDemand> {
        let mut coflows: BTreeMap<CoflowId, CoflowDemand> = BTreeMap::new();
        for it in self.flows.values() {
            let id = it.coflow();
            let demand = coflows.entry(id.clone()).or_insert_with(|| CoflowDemand {
                application: id.application.clone(),
                coflow: id.number,
                here: Bytes::new(self.coflows.bytes(id)),
                from: BTreeMap::new(),
            });
            let left = (it.state == State::Running).then(|| Bytes::new(it.length - it.delivery.passed()));
            demand
                .from
                .entry(it.host().clone())
                .and_modify(|sum| *sum = sum.zip(left).map(|(sum, left)| sum + left))
                .or_insert(left);
        }
        coflows.into_values().collect()
    }

    /// How it is; of the agent around it, it knows nothing.
    pub(crate) fn status(&self, now: Time, name_of: impl Fn(NodeId) -> Option<Name>) -> AgentStatus {
        let stats = self.courier.stats();
        let ordered = self.coflows.is_ordered(now);
        let mut coflows: BTreeMap<CoflowId, CoflowStatus> = BTreeMap::new();
        for it in self.flows.values() {
            let id = it.coflow();
            let rank = self.coflows.rank(id).filter(|_| ordered).map(|rank| rank.get());
            let status = coflows.entry(id.clone()).or_insert_with(|| CoflowStatus {
                application: id.application.clone(),
                coflow: id.number,
                rank,
                flows: 0,
                stalled: 0,
                bytes: self.coflows.bytes(id),
                left: 0,
                from: Vec::new(),
            });
            status.flows += 1;
            status.stalled += usize::from(it.is_stalled());
            status.left += it.length - it.delivery.passed();
            let host = it.host().to_string();
            if !status.from.contains(&host) {
                status.from.push(host);
            }
        }
        let mut coflows: Vec<CoflowStatus> = coflows.into_values().collect();
        coflows.sort_by_key(|it| it.rank.unwrap_or(u32::MAX));
        let lane = |(id, up, bytes): (LaneId, bool, u64)| LaneStatus {
            host: name_of(id.pair.peer).map_or_else(|| id.pair.peer.short(), |it| it.to_string()),
            class: id.class,
            number: id.number,
            up,
            bytes,
        };
        AgentStatus {
            ordered,
            coflows,
            lanes: self.lanes.each().map(lane).collect(),
            memory_used: self.budget.used().get(),
            memory_most: self.budget.most().get(),
            flows_done: self.done,
            flows_broken: self.broken,
            blocks_again: stats.again,
            resets: self.lanes.resets(),
            malformed: self.malformed,
            silences: stats.silences,
            ..AgentStatus::default()
        }
    }
}
