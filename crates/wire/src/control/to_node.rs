//! Messages of a controller to a node, beside the orders about its flows: casts, groups, trees and names.

use core::net::SocketAddr;

use headwater_units::FlowId;
use serde::{Deserialize, Serialize};

use super::address::resolve_address;
use super::coflows::ranks_within_bounds;
use super::{
    AtRates, CastNews, CoflowRank, GroupQuestion, Invitation, NameStands, Refusal, Signal, TreeOrder,
    WhyUnnamed,
};

/// A message to a node, or to the asker of a cast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToNode {
    /// The node is to fetch an object.
    Fetch(Box<Invitation>),
    /// The node is not to fetch it, or no more.
    StopFetch {
        /// The invitation's number.
        request: u64,
    },
    /// The node is to find out who hears a group.
    ProbeGroup(Box<GroupQuestion>),
    /// Installs a tree at the node, or replaces its order for a tree that it is on.
    InstallTree(Box<TreeOrder>),
    /// Removes a tree from the node: the tree has ended, or does not lead through the node any more.
    RemoveTree {
        /// The tree.
        tree: FlowId,
    },
    /// Trees were rerouted. The node sends the parts that are for others on.
    Signal(Box<Signal>),
    /// Result of a claim.
    NameStands(Box<NameStands>),
    /// How a cast goes that was asked for.
    Casting(Box<CastNews>),
    /// A cast that was asked for is not granted.
    CastRefused {
        /// The cast.
        cast: u64,
        /// The reason.
        reason: Refusal,
    },
    /// A standing cast has begun or ended, as was asked for.
    StandingCastChanged {
        /// The number of the question.
        number: u64,
    },
    /// How a cast does at computed rates that was asked for.
    CastAtRates {
        /// The cast.
        cast: u64,
        /// How it does.
        how: AtRates,
    },
    /// In which order an agent's coflows go: those of its last report that have a rank. At most
    /// [`MAX_COFLOWS`](super::MAX_COFLOWS).
    CoflowRanks(Vec<CoflowRank>),
    /// A claim is not granted although nobody else has the name. Since version 4 of messages.
    NameRefused {
        /// The claim.
        claim: u64,
        /// Why.
        why: WhyUnnamed,
    },
}

impl ToNode {
    /// Orders about trees carry the addresses of the controller's network, which are stated.
    pub(super) fn resolve(&mut self, sender: SocketAddr) {
        let resolve = |at: &mut SocketAddr| *at = resolve_address(*at, sender);
        match self {
            ToNode::Fetch(invitation) => {
                invitation.group.iter_mut().map(|group| &mut group.source).for_each(resolve);
            }
            ToNode::ProbeGroup(question) => resolve(&mut question.towards),
            ToNode::StopFetch { .. }
            | ToNode::InstallTree(_)
            | ToNode::RemoveTree { .. }
            | ToNode::Signal(_)
            | ToNode::NameStands(_)
            | ToNode::Casting(_)
            | ToNode::CastRefused { .. }
            | ToNode::StandingCastChanged { .. }
            | ToNode::CastAtRates { .. }
            | ToNode::CoflowRanks(_)
            | ToNode::NameRefused { .. } => {}
        }
    }

    pub(super) fn within_bounds(&self) -> Result<(), &'static str> {
        match self {
            ToNode::Fetch(invitation) => invitation.within_bounds(),
            ToNode::ProbeGroup(question) => question.within_bounds(),
            ToNode::InstallTree(order) => order.within_bounds(),
            ToNode::Signal(signal) => signal.within_bounds(),
            ToNode::NameStands(stands) => stands.within_bounds(),
            ToNode::Casting(news) => news.within_bounds(),
            ToNode::CoflowRanks(ranks) => ranks_within_bounds(ranks),
            ToNode::StopFetch { .. }
            | ToNode::RemoveTree { .. }
            | ToNode::CastRefused { .. }
            | ToNode::StandingCastChanged { .. }
            | ToNode::CastAtRates { .. }
            | ToNode::NameRefused { .. } => Ok(()),
        }
    }
}
