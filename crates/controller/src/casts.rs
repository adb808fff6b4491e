//! The running casts: one object, many receivers that were all told of it at the same moment (SCDP §III-E).
//!
//! ```text
//!   Gathering -- all have asked, or it took too long --> Probing -- who has heard the group --> Opening -- Pushing --> Running
//!       |  one by itself, or by wish           no group     |  fewer than two                      |  refused, silent
//!       |                                    `--------------+--------------------------------------+--> by overlay: Running
//!       `---------------------------------------------------------------------------------------------------------> Running
//! ```
//! A group whose rate switches are to compute, and do not, goes from Running to Opening once, as a pulled one ([`by_rates`]).
//!
//! The receivers fetch by ordinary tasks. The cast chooses the route that serves them ([`cast::Route`]), one at a time. A cast does
//! not survive a restart of its controller. Its tasks do, and a receiver that is asked again does not fetch what it has.

mod beginning;
mod by_group;
mod by_rates;
mod by_trees;
mod cast;
mod invitations;
mod member;
mod members;
mod news;
mod partial;
mod roster;
mod steps;
mod without_group;

use core::net::SocketAddr;
use std::collections::BTreeMap;

use headwater_machine::{Shares, Taker};
use headwater_units::{Duration, FlowId, NodeId, PathId, Symbols, Time};
use headwater_wire::{
    Cast as Wanted, Fetched, MemberStanding, Refusal, Request, Signalled, ToNode, TransferReport, Urgency,
};

pub(crate) use self::cast::Cast;
use self::partial::PartialCasts;

use crate::catalog::Catalog;
use crate::deliveries::Deliveries;
use crate::network::Network;
use crate::swarm_detection::Swarms;
use crate::turn::Turn;
use crate::{CastBegun, ControllerEvent};

/// The parts that casts work with.
pub(crate) struct Below<'a> {
    pub(crate) turn: Turn<'a>,
    pub(crate) catalog: &'a Catalog,
    pub(crate) deliveries: &'a mut Deliveries,
    pub(crate) swarms: &'a mut Swarms,
    /// If it is known.
    pub(crate) network: &'a mut Option<Network>,
}

/// All casts.
#[derive(Default)]
pub(crate) struct Casts {
    casts: BTreeMap<u64, Cast>,
    shares: Shares,
    /// Casts of which not all receivers have been named yet.
    partial: PartialCasts,
    /// The groups of running casts, whether or not they came to be used: no two have the same.
    groups: BTreeMap<u64, SocketAddr>,
}

impl Casts {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Cast> {
        self.casts.values()
    }

    /// Whether a request answers an invitation.
    pub(crate) fn has_invited(&self, receiver: NodeId, request: u64) -> bool {
        self.of_request(receiver, request).is_some()
    }

    /// Whether it is the flow of a group that this node serves.
    pub(crate) fn serves(&self, source: NodeId, flow: FlowId) -> bool {
        self.casts.values().any(|cast| cast.source == source && cast.is_open_group(flow))
    }

    /// Whether it is a tree that this node is the source of.
    pub(crate) fn has_tree(&self, source: NodeId, flow: FlowId) -> bool {
        self.casts.values().any(|cast| cast.source == source && cast.has_tree(flow))
    }

    fn of_request(&self, receiver: NodeId, request: u64) -> Option<u64> {
        self.casts.values().find(|cast| cast.has_invited(receiver, request)).map(|cast| cast.number)
    }

    /// The cast that a source's flow belongs to, or that is probed on it.
    fn of_flow(&self, source: NodeId, flow: FlowId) -> Option<u64> {
        let has = |cast: &&Cast| cast.source == source && cast.flows.contains(&flow);
        self.casts.values().find(has).map(|cast| cast.number)
    }

    /// Has a cast do something, and looks after it if that returns true.
    fn have(
        &mut self,
        below: &mut Below<'_>,
        number: Option<u64>,
        act: impl FnOnce(&mut Cast, &mut Below<'_>) -> bool,
    ) {
        let Some((number, cast)) = number.and_then(|it| Some((it, self.casts.get_mut(&it)?))) else { return };
        if act(cast, below) && cast.tick(below) {
            self.shares.give_back(&cast.taker, 1);
            self.casts.remove(&number);
            self.groups.remove(&number);
        }
    }

    // ---- the asker

    /// Somebody asks for a cast, perhaps once more. `nodes_may_come`: after a restart, so that nobody is given up at once.
    pub(crate) fn ask(
        &mut self,
        below: &mut Below<'_>,
        path: PathId,
        (wanted, urgency): (Wanted, Option<Urgency>),
        nodes_may_come: bool,
    ) {
        let number = wanted.cast;
        let Some(taker) = below.catalog.taker_at(path) else {
            below.turn.stats.strangers += 1;
            return;
        };
        if self.casts.contains_key(&number) {
            return self.have(below, Some(number), |cast, below| {
                if wanted.first > 0 {
                    return false;
                }
                let is_its = cast.taker.node == taker.node;
                match is_its {
                    true => {
                        (cast.asker, cast.news_at) = (Some(path), below.turn.now);
                        cast.members.tell_all();
                    }
                    false => below.turn.stats.strangers += 1,
                }
                is_its
            });
        }
        let begun = match self.partial.whole(below.turn.now, below.turn.config, (path, taker), wanted) {
            Ok(Some(wanted)) => self.begin(below, (Some(path), taker), (wanted, urgency), nodes_may_come),
            // Those that follow say the rest.
            Ok(None) => return,
            Err(reason) => Err(reason),
        };
        match begun {
            Ok(cast) => self.accept(below, cast),
            Err(reason) => {
                below.turn.stats.casts_refused += 1;
                below.turn.answer(path, ToNode::CastRefused { cast: number, reason });
            }
        }
    }

    /// Nodes that have come lack what a standing cast is to supply them with: nobody waits for the answer. Gives the nodes back if there
    /// is no room for another cast now.
    pub(crate) fn supply(
        &mut self,
        below: &mut Below<'_>,
        by: NodeId,
        wanted: Wanted,
        nodes_may_come: bool,
    ) -> Vec<NodeId> {
        let to = wanted.to.clone();
        match self.begin(below, (None, Taker::of_key(by)), (wanted, None), nodes_may_come) {
            Ok(cast) => self.accept(below, cast),
            Err(reason) => {
                below.turn.stats.casts_refused += 1;
                if reason == Refusal::Full {
                    return to;
                }
                // They are served when they come again.
            }
        }
        Vec::new()
    }

    fn accept(&mut self, below: &mut Below<'_>, cast: Cast) {
        let number = cast.number;
        below.turn.stats.casts_accepted += 1;
        below.turn.event(ControllerEvent::CastBegun(Box::new(CastBegun {
            cast: number,
            name: cast.name.clone(),
            object: cast.object,
            bytes: cast.bytes,
            receivers: cast.members.len(),
        })));
        self.shares.take(&cast.taker, 1);
        self.groups.extend(cast.group_at().map(|at| (number, at)));
        self.casts.insert(number, cast);
        self.have(below, Some(number), |_, _| true);
    }

    /// Whoever was naming receivers is gone.
    pub(crate) fn path_lost(&mut self, path: PathId) {
        self.partial.path_lost(path);
    }

    pub(crate) fn is_known(&self, number: u64) -> bool {
        self.casts.contains_key(&number)
    }

    /// The node that asked for a cast does not want it any more.
    pub(crate) fn stop(&mut self, below: &mut Below<'_>, path: PathId, number: u64) {
        self.have(below, Some(number), |cast, below| {
            if !below.catalog.is_from(path, cast.taker.node) {
                below.turn.stats.strangers += 1;
                return false;
            }
            cast.end_open_members(below, &MemberStanding::Failed("stopped".to_owned()));
            true
        });
    }

    // ---- receivers

    /// A receiver asks for what it was told of.
    pub(crate) fn asked_by_receiver(&mut self, below: &mut Below<'_>, path: PathId, request: Request) {
        let number = self.of_request(request.receiver, request.request);
        self.have(below, number, |cast, below| cast.asked(below, path, request));
    }

    /// A receiver is through.
    pub(crate) fn fetched(&mut self, below: &mut Below<'_>, node: NodeId, fetched: Fetched) {
        let number = self.of_request(node, fetched.request);
        self.have(below, number, |cast, below| {
            cast.fetched(below, node, fetched);
            true
        });
    }

    // ---- groups

    /// The source knows who of the receivers hears the group.
    pub(crate) fn group_probed(
        &mut self,
        below: &mut Below<'_>,
        source: NodeId,
        asked: FlowId,
        heard: &[FlowId],
    ) {
        let number = self.of_flow(source, asked);
        self.have(below, number, |cast, below| cast.group_probed(below, heard));
    }

    /// The source has opened a group's flow: its members may have theirs.
    pub(crate) fn group_opened(&mut self, below: &mut Below<'_>, source: NodeId, flow: FlowId) {
        let number = self.of_flow(source, flow);
        self.have(below, number, |cast, below| cast.group_opened(below));
    }

    /// A group's flow is over, or was refused.
    pub(crate) fn group_over(&mut self, below: &mut Below<'_>, source: NodeId, flow: FlowId) {
        let number = self.of_flow(source, flow);
        self.have(below, number, |cast, below| {
            cast.group_over(below);
            true
        });
    }

    /// A group's flow cannot go at computed rates. False if that is not what it was refused for.
    pub(crate) fn group_refused(
        &mut self,
        below: &mut Below<'_>,
        (source, flow): (NodeId, FlowId),
        reason: &Refusal,
    ) {
        match *reason {
            Refusal::Unscheduled(why) => {
                let number = self.of_flow(source, flow);
                self.have(below, number, |cast, below| cast.fall_back(below, why));
            }
            _ => self.group_over(below, source, flow),
        }
    }

    /// A source says how its transfers at computed rates do.
    pub(crate) fn transfers(&mut self, now: Time, source: NodeId, transfers: &[TransferReport]) {
        for report in transfers {
            let number = self.of_flow(source, report.flow);
            if let Some(cast) = number.and_then(|number| self.casts.get_mut(&number)) {
                cast.transfer_reported(now, *report);
            }
        }
        by_rates::put_in_line(&mut self.casts);
    }

    /// A source reports how many symbols it has sent on a flow to many. False if no cast knows the flow.
    pub(crate) fn sent(&mut self, source: NodeId, flow: FlowId, sent: Symbols) -> bool {
        let number = self.of_flow(source, flow);
        let cast = number.and_then(|number| self.casts.get_mut(&number));
        cast.map(|cast| cast.has_sent(flow, sent)).is_some()
    }

    // ---- trees

    /// The source has opened a tree's flow.
    pub(crate) fn tree_pushing(&mut self, below: &mut Below<'_>, source: NodeId, flow: FlowId) {
        let number = self.of_flow(source, flow);
        self.have(below, number, |cast, below| cast.tree_opened(below, flow));
    }

    /// A tree's flow is over, or was refused.
    pub(crate) fn tree_over(&mut self, below: &mut Below<'_>, source: NodeId, flow: FlowId) {
        let number = self.of_flow(source, flow);
        self.have(below, number, |cast, below| cast.tree_closed(below, flow));
    }

    /// A node does as its order says.
    pub(crate) fn tree_ready(&mut self, below: &mut Below<'_>, node: NodeId, tree: FlowId, version: u32) {
        let number = self.of_order(below, node, tree);
        self.have(below, number, |cast, below| cast.tree_ready(below, node, tree, version));
    }

    /// A node does not hear of neighbours on a tree.
    pub(crate) fn silent(
        &mut self,
        below: &mut Below<'_>,
        (node, tree): (NodeId, FlowId),
        neighbours: &[SocketAddr],
        since: Duration,
    ) {
        let number = self.of_order(below, node, tree);
        self.have(below, number, |cast, below| {
            let trees = cast.trees_mut();
            trees.map(|trees| trees.silent(below.turn.now, node, tree, neighbours, since)).is_some()
        });
    }

    /// Nodes say who was told.
    pub(crate) fn signalled(&mut self, below: &mut Below<'_>, node: NodeId, answer: &Signalled) {
        let has = |cast: &&Cast| cast.trees().is_some_and(|it| it.signals_on(node, answer.flow));
        let number = self.casts.values().find(has).map(|cast| cast.number);
        self.have(below, number, |cast, below| cast.signalled(below, node, answer));
    }

    /// The cast that has given a node an order of this tree; if there is none, nobody knows what it is for, and the node is told.
    fn of_order(&self, below: &mut Below<'_>, node: NodeId, tree: FlowId) -> Option<u64> {
        let has = |cast: &&Cast| cast.trees().is_some_and(|it| it.has_order(node, tree));
        let found = self.casts.values().find(has).map(|cast| cast.number);
        if found.is_none() {
            below.turn.tell(node, ToNode::RemoveTree { tree });
        }
        found
    }

    // ---- time

    /// A node has come or gone: the casts that it is a receiver of look after it.
    pub(crate) fn node_changed(&mut self, below: &mut Below<'_>, node: NodeId) {
        let is_here = below.catalog.node(node).is_some_and(|it| it.path.is_some());
        let mut casts = Vec::new();
        for cast in self.casts.values_mut() {
            let is_open = cast.members.get(node).is_some_and(|member| !member.has_ended());
            if is_open || (is_here && cast.members.reopen(node)) {
                casts.push(cast.number);
            }
        }
        for number in casts {
            self.have(below, Some(number), |cast, below| {
                cast.members.look_after(node, Some(below.turn.now));
                true
            });
        }
    }

    /// Looks after a cast.
    pub(crate) fn tick(&mut self, below: &mut Below<'_>, number: u64) {
        self.have(below, Some(number), |_, _| true);
    }
}
