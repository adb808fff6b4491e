//! A cast to a multicast group: the source probes which receivers hear the group and opens a flow for it, and each member has a flow of its
//! own, by which it pulls, or answers what switches grant ([`by_rates`](super::by_rates)).

use core::net::SocketAddr;
use std::collections::BTreeMap;

use headwater_units::{FlowId, Geometry, NodeId, Theta};
use headwater_wire::{
    Delivery, FlowRole, GroupQuestion, Push, SCHEDULED_OVERHEAD, SYMBOL_OVERHEAD, ToNode, ToSource,
    WhyUnicast,
};

use super::Below;
use super::cast::{Cast, GroupPace, Multicast, OpenGroup, Route, Stage};
use crate::TaskGroup;
use crate::selection::Placement;

impl Cast {
    /// Everybody is here who is waited for: asks the source who of them hears the group.
    pub(super) fn probe(&mut self, below: &mut Below<'_>) {
        let asking = self.members.rooms_asked();
        let towards = asking.keys().find_map(|node| below.catalog.data_of(*node));
        let room = below.catalog.node(self.source).map(|node| node.info.room);
        let (Route::Multicast(Multicast::Probed { at, asked, pace }), Some(towards), Some(room)) =
            (&self.route, towards, room)
        else {
            return self.serve_without_group(below, WhyUnicast::TooFew);
        };
        if asking.len() < pace.least_members() {
            return self.serve_without_group(below, WhyUnicast::TooFew);
        }
        let members = self.members.open_members().filter(|(node, _)| asking.contains_key(node));
        let room = asking.values().fold(room, |least, room| least.min(*room));
        let more = match pace {
            GroupPace::Pulled => 0,
            GroupPace::Computed(_) => SCHEDULED_OVERHEAD - SYMBOL_OVERHEAD,
        } as u16;
        let symbol_size = Geometry::fitting(self.bytes, room.saturating_sub(more)).symbol_size();
        let question = GroupQuestion {
            at: *at,
            towards,
            asked: asked.clone(),
            members: members.map(|(_, member)| member.own.clone()).collect(),
            bytes: symbol_size.saturating_add(SYMBOL_OVERHEAD as u16 + more),
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
        let Route::Multicast(Multicast::Probed { at, pace, .. }) = self.route else { return false };
        match hearing.len() >= pace.least_members() {
            true => self.open_group(below, (at, pace), &hearing, of),
            false => self.serve_without_group(below, WhyUnicast::Unheard { of }),
        }
        true
    }

    /// Has the source open a flow for a group of these.
    pub(super) fn open_group(
        &mut self,
        below: &mut Below<'_>,
        (at, pace): (SocketAddr, GroupPace),
        hearing: &[NodeId],
        of: u16,
    ) {
        let (delivery, start) = match pace {
            GroupPace::Pulled => (Delivery::Pull { initial_window: below.turn.config.cast_window }, None),
            GroupPace::Computed(_) => {
                (self.delivery_by_rates(below, hearing.len()), self.first_round_trip(below, hearing))
            }
        };
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
            delivery,
            index: 0,
            of: 1,
            at: core::iter::once(at).chain(member_at).collect(),
            start,
            role: FlowRole::Group { members: own.values().copied().collect() },
        };
        self.stage = Stage::Opening { until: below.turn.now + below.turn.config.silent_limit };
        self.flows.insert(flow.flow);
        let members = hearing.len() as u16;
        self.route =
            Route::Multicast(Multicast::Open(OpenGroup { at, flow, own, members, of, delivery, pace }));
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
        let (own, delivery) = (group.own.clone(), group.delivery);
        self.stage = Stage::Running;
        let (source, room) = (self.source, self.symbol_size);
        for (node, flow) in own {
            let Some(member) = self.members.get(node).filter(|member| !member.has_ended()) else { continue };
            let place = Placement::Group { node: source, flow, group: given.clone(), delivery };
            match member.task {
                // It has been served at computed rates until now.
                Some(task) => {
                    below.deliveries.pull_instead(&mut below.turn, below.catalog, task, Some(place))
                }
                None => self.serve(below, node, Some((place, room))),
            }
        }
        self.serve_waiting(below);
        true
    }

    /// The group's flow is over, or was refused.
    pub(super) fn group_over(&mut self, below: &mut Below<'_>) {
        if let Route::Multicast(Multicast::Open(group)) = &self.route {
            let (OpenGroup { at, members, of, pace, .. }, flow) = (group, group.flow.flow);
            let over = Multicast::Over { at: *at, members: *members, of: *of, pace: *pace };
            self.flows.remove(&flow);
            self.route = Route::Multicast(over);
        }
        if self.stage != Stage::Running {
            self.give_up_group(below);
        }
    }

    /// The source does not open the group's flow.
    pub(super) fn give_up_group(&mut self, below: &mut Below<'_>) {
        match self.unscheduled {
            None => self.serve_without_group(below, WhyUnicast::Source),
            Some(_) => self.pull_apart(below),
        }
    }
}
