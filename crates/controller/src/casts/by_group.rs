//! A cast to a multicast group: the source probes which receivers hear the group and opens a flow for it, and each member pulls by a flow
//! of its own.

use std::collections::BTreeMap;

use headwater_units::{FlowId, Geometry, NodeId, Theta};
use headwater_wire::{
    Delivery, FlowRole, GroupQuestion, Push, SYMBOL_OVERHEAD, ToNode, ToSource, WhyUnicast,
};

use super::Below;
use super::cast::{Cast, Multicast, OpenGroup, Route, Stage};
use crate::TaskGroup;
use crate::selection::Placement;

impl Cast {
    /// Everybody is here who is waited for: asks the source who of them hears the group.
    pub(super) fn probe(&mut self, below: &mut Below<'_>) {
        let asking = self.members.rooms_asked();
        let towards = asking.keys().find_map(|node| below.catalog.data_of(*node));
        let room = below.catalog.node(self.source).map(|node| node.info.room);
        let (Route::Multicast(Multicast::Probed { at, asked }), Some(towards), Some(room), 2..) =
            (&self.route, towards, room, asking.len())
        else {
            return self.serve_without_group(below, WhyUnicast::TooFew);
        };
        let members = self.members.open_members().filter(|(node, _)| asking.contains_key(node));
        let room = asking.values().fold(room, |least, room| least.min(*room));
        let symbol_size = Geometry::fitting(self.bytes, room).symbol_size();
        let question = GroupQuestion {
            at: *at,
            towards,
            asked: asked.clone(),
            members: members.map(|(_, member)| member.own.clone()).collect(),
            bytes: symbol_size.saturating_add(SYMBOL_OVERHEAD as u16),
        };
        self.symbol_size = symbol_size;
        self.stage = Stage::Probing { until: below.turn.now + below.turn.config.silent_limit };
        below.turn.tell(self.source, ToNode::ProbeGroup(Box::new(question)));
    }

    /// The source knows who of the receivers hears the group.
    pub(super) fn group_probed(&mut self, below: &mut Below<'_>, heard: &[FlowId]) -> bool {
        if !matches!(self.stage, Stage::Probing { .. }) {
            return false;
        }
        let asking = || self.members.open_members().filter(|(_, member)| member.asks.is_some());
        let of = u16::try_from(asking().count()).unwrap_or(u16::MAX);
        let hearing = asking().filter(|(_, member)| heard.contains(&member.own.flow));
        let hearing: Vec<NodeId> = hearing.map(|(node, _)| node).collect();
        match hearing.len() {
            2.. => self.open_group(below, &hearing, of),
            _ => self.serve_without_group(below, WhyUnicast::Unheard { of }),
        }
        true
    }

    fn open_group(&mut self, below: &mut Below<'_>, hearing: &[NodeId], of: u16) {
        let Route::Multicast(Multicast::Probed { at, .. }) = self.route else { return };
        let (tasks, draws) = (below.deliveries.tasks(), &mut *below.turn.draws);
        let flow = tasks.secret(draws);
        let own: BTreeMap<NodeId, FlowId> =
            hearing.iter().map(|node| (*node, tasks.unused_flow(draws))).collect();
        let member_at = hearing.first().and_then(|node| below.catalog.data_of(*node));
        let push = Push {
            task: tasks.unused_task(draws),
            flow: flow.flow,
            object: self.object,
            bytes: self.bytes,
            symbol_size: self.symbol_size,
            key: flow.key,
            theta: Theta::ONE,
            class: self.class,
            receiver: self.source,
            delivery: Delivery::Pull { initial_window: below.turn.config.cast_window },
            index: 0,
            of: 1,
            at: core::iter::once(at).chain(member_at).collect(),
            start: None,
            role: FlowRole::Group { members: own.values().copied().collect() },
        };
        self.stage = Stage::Opening { until: below.turn.now + below.turn.config.silent_limit };
        self.flows.insert(flow.flow);
        let members = hearing.len() as u16;
        self.route = Route::Multicast(Multicast::Open(OpenGroup { at, flow, own, members, of }));
        below.turn.stats.casts_grouped += 1;
        below.turn.tell(self.source, ToSource::Push(push));
    }

    /// The source has opened the group's flow: its members may have theirs.
    pub(super) fn group_opened(&mut self, below: &mut Below<'_>) -> bool {
        let (Stage::Opening { .. }, Route::Multicast(Multicast::Open(group))) = (self.stage, &mut self.route)
        else {
            return false;
        };
        let given = TaskGroup { flow: group.flow.flow, key: group.flow.key, at: group.at };
        let own = std::mem::take(&mut group.own);
        self.stage = Stage::Running;
        let (source, room) = (self.source, self.symbol_size);
        for (node, flow) in own {
            if self.members.get(node).is_some_and(|member| !member.has_ended()) {
                let place = Placement::Group { node: source, flow, group: given.clone() };
                self.serve(below, node, Some((place, room)));
            }
        }
        self.serve_waiting(below);
        true
    }

    /// The group's flow is over, or was refused.
    pub(super) fn group_over(&mut self, below: &mut Below<'_>) {
        if let Route::Multicast(Multicast::Open(group)) = &self.route {
            let (OpenGroup { at, members, of, .. }, flow) = (group, group.flow.flow);
            let over = Multicast::Over { at: *at, members: *members, of: *of };
            self.flows.remove(&flow);
            self.route = Route::Multicast(over);
        }
        if self.stage != Stage::Running {
            self.serve_without_group(below, WhyUnicast::Source);
        }
    }
}
