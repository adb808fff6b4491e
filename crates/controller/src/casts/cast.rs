//! One cast: its object, its receivers and its route.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use headwater_machine::Taker;
use headwater_units::{Bytes, FlowId, NodeId, ObjectId, PathId, Symbols, Time};
use headwater_wire::{
    CastRoute, CastWish, Class, Delivery, FlowSecret, GroupInvitation, Invitation, MemberStanding,
    TransferReport, Urgency, WhyUnicast, WhyUnscheduled,
};

use super::invitations::Invitations;
use super::member::Member;
use super::roster::Roster;
use crate::tree_installation::InstalledTrees;

/// One cast.
pub(crate) struct Cast {
    pub(crate) number: u64,
    /// Path to the asker, which is told how the cast goes; none of a standing cast.
    pub(super) asker: Option<PathId>,
    /// The asker, whose place in the table of casts it takes: by another key nobody may stop the cast, or hear of it.
    pub(super) taker: Taker,
    pub(crate) name: String,
    pub(crate) object: ObjectId,
    pub(crate) bytes: Bytes,
    pub(super) class: Class,
    pub(crate) source: NodeId,
    /// Where its data socket is.
    pub(super) source_at: Option<SocketAddr>,
    pub(crate) begun: Time,
    pub(super) stage: Stage,
    pub(super) wish: CastWish,
    /// How much it matters beside others, if that was said.
    pub(crate) urgency: Option<Urgency>,
    /// It does not go at computed rates although it should have.
    pub(crate) unscheduled: Option<WhyUnscheduled>,
    /// The cast that goes before it and is being sent, while its own source waits.
    pub(super) behind: Option<u64>,
    pub(super) route: Route,
    /// Flows of its source that were drawn for it, and are not known to be over.
    pub(super) flows: BTreeSet<FlowId>,
    /// T of what is sent to many, or passed on.
    pub(super) symbol_size: u16,
    /// The most that a receiver says the files of the folder have; zero if it is none.
    pub(super) files: Bytes,
    pub(crate) to_group: Bytes,
    /// Useful payload that receivers have got by flows of their own, by who sent it.
    pub(super) given: BTreeMap<NodeId, Bytes>,
    /// Of that, what came from another rack; if any receiver says in which it stands.
    pub(super) between_racks: Option<Bytes>,
    pub(crate) members: Roster,
    /// Who of them is still to be invited.
    pub(super) invitations: Invitations,
    /// When the asker gets news next.
    pub(super) news_at: Time,
    /// Places in an overlay that nobody has asked for until then are given up.
    pub(super) lapse_at: Option<Time>,
    /// Everybody has ended, and the group's flow is waited for no longer than this.
    pub(super) over_at: Option<Time>,
}

/// Progress of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Receivers are told, and ask.
    Gathering { until: Time },
    /// The source asks who hears the group.
    Probing { until: Time },
    /// The source is to open the group's flow.
    Opening { until: Time },
    /// Receivers have their flows, or will have one each when they ask.
    Running,
}

/// The route by which receivers are served; those who come late may be served otherwise.
pub(super) enum Route {
    /// Each by itself, for this reason.
    Unicast(WhyUnicast),
    /// By a flow to a group.
    Multicast(Multicast),
    /// By each other; and how, once they are.
    Overlay(Option<CastRoute>),
    /// By trees of the network.
    Trees(Trees),
}

/// A group.
pub(super) enum Multicast {
    /// It has an address, on which its members are probed by this flow.
    Probed { at: SocketAddr, asked: FlowSecret, pace: GroupPace },
    /// Its source has a flow for it, or is to open it.
    Open(OpenGroup),
    /// Its flow has ended.
    Over { at: SocketAddr, members: u16, of: u16, pace: GroupPace },
}

/// Rule for when the next symbol leaves for a group.
#[derive(Clone, Copy, Debug)]
pub(super) enum GroupPace {
    /// Its members, who ask for each (SCDP).
    Pulled,
    /// Switches, by the rate that they grant (PAM); and what the source has said last, and when.
    Computed(Option<(Time, TransferReport)>),
}

impl GroupPace {
    /// Fewer members are no group.
    pub(super) fn least_members(self) -> usize {
        match self {
            GroupPace::Pulled => 2,
            GroupPace::Computed(_) => 1,
        }
    }
}

/// A group that has a flow.
pub(super) struct OpenGroup {
    pub(super) at: SocketAddr,
    pub(super) flow: FlowSecret,
    /// The flow of each member that has heard the group, unless its node has begun anew.
    pub(super) own: BTreeMap<NodeId, FlowId>,
    pub(super) members: u16,
    pub(super) of: u16,
    pub(super) delivery: Delivery,
    pub(super) pace: GroupPace,
}

/// The trees of a cast.
pub(super) enum Trees {
    /// They are computed when the receivers have asked.
    Planned,
    Installed(CastRoute, Box<InstalledTrees>),
    /// There are none, or none any more.
    Over(CastRoute),
}

impl Route {
    /// The route in the words of the wire.
    fn to_wire(&self) -> CastRoute {
        match self {
            Route::Unicast(why) => CastRoute::Unicast(*why),
            Route::Multicast(Multicast::Probed { .. }) | Route::Trees(Trees::Planned) => CastRoute::Open,
            Route::Multicast(Multicast::Open(OpenGroup { at, members, of, pace, .. }))
            | Route::Multicast(Multicast::Over { at, members, of, pace }) => match pace {
                GroupPace::Pulled => CastRoute::Multicast { at: *at, members: *members, of: *of },
                GroupPace::Computed(_) => CastRoute::Rates { at: *at, members: *members, of: *of },
            },
            Route::Overlay(route) => route.unwrap_or(CastRoute::Open),
            Route::Trees(Trees::Installed(route, _) | Trees::Over(route)) => *route,
        }
    }
}

impl Cast {
    /// Its route, in the words of the wire.
    pub(crate) fn route(&self) -> CastRoute {
        self.route.to_wire()
    }

    pub(super) fn has_invited(&self, receiver: NodeId, request: u64) -> bool {
        self.members.get(receiver).is_some_and(|member| member.request == request)
    }

    pub(super) fn group_at(&self) -> Option<SocketAddr> {
        match &self.route {
            Route::Multicast(Multicast::Probed { at, .. }) => Some(*at),
            _ => None,
        }
    }

    pub(super) fn is_open_group(&self, flow: FlowId) -> bool {
        matches!(&self.route, Route::Multicast(Multicast::Open(group)) if group.flow.flow == flow)
    }

    pub(super) fn has_tree(&self, flow: FlowId) -> bool {
        self.trees().is_some_and(|trees| trees.has_tree(flow))
    }

    pub(super) fn trees(&self) -> Option<&InstalledTrees> {
        match &self.route {
            Route::Trees(Trees::Installed(_, trees)) => Some(trees),
            _ => None,
        }
    }

    pub(super) fn trees_mut(&mut self) -> Option<&mut InstalledTrees> {
        match &mut self.route {
            Route::Trees(Trees::Installed(_, trees)) => Some(trees),
            _ => None,
        }
    }

    /// A source reports how many symbols it has sent on a flow to many.
    pub(super) fn has_sent(&mut self, flow: FlowId, sent: Symbols) {
        let sent = self.trees_mut().map_or(sent, |trees| trees.has_sent(flow, sent));
        self.to_group = Bytes::new(sent.get().saturating_mul(u64::from(self.symbol_size)));
    }

    /// The invitation of a receiver.
    pub(super) fn invitation(&self, member: &Member) -> Invitation {
        let group = match &self.route {
            Route::Multicast(Multicast::Probed { at, asked, .. }) => Some((at, asked)).zip(self.source_at),
            _ => None,
        };
        Invitation {
            request: member.request,
            name: self.name.clone(),
            object: self.object,
            class: self.class,
            group: group.map(|((at, asked), source)| GroupInvitation {
                at: *at,
                source,
                asked: asked.clone(),
                own: member.own.clone(),
            }),
        }
    }

    /// A receiver is through.
    pub(super) fn end(&mut self, now: Time, node: NodeId, standing: MemberStanding) {
        let (after, bytes) = (now.since(self.begun), self.bytes);
        self.members.change(node, |member| {
            if member.has_ended() {
                return;
            }
            (member.standing, member.ended, member.asks) = (standing, Some(after), None);
            if matches!(member.standing, MemberStanding::Kept | MemberStanding::Had) {
                member.bytes = bytes;
            }
        });
    }
}
