//! A cast by trees of the network, and receivers whose trees fail.
//!
//! ```text
//!   Receiving by trees -- no path leads to it, its source stopped, its fetch failed --> StopFetch, Fetch under another number
//!                                                                                         |
//!                                                       served by itself, as by any request <-'
//! ```
//! This happens once: the second failure is final. The receiver keeps what it has. If the asker insists on trees, the first failure is
//! final.

use headwater_units::{FlowId, NodeId, Time};
use headwater_wire::{
    CastRoute, CastWish, FlowGrant, MemberStanding, Outcome, Signalled, ToNode, WhyUnicast,
};

use super::Below;
use super::cast::{Cast, Route, Stage, Trees};
use super::member::Served;
use crate::deliveries::TreesGiven;
use crate::tree_installation::{Cargo, InstalledTrees};

impl Cast {
    /// All are here who are waited for: finds the trees, and tells everybody on them.
    pub(super) fn install_trees(&mut self, below: &mut Below<'_>) {
        let Cast { object, bytes, class, source, begun, .. } = *self;
        let asking = self.members.rooms_asked();
        let of = u16::try_from(self.members.open()).unwrap_or(u16::MAX);
        let Below { turn, catalog, deliveries, network, .. } = below;
        let Some(network) = network else { return self.serve_without_group(below, WhyUnicast::TooFew) };
        let cargo = Cargo { object, bytes, class, source, begun };
        let made = InstalledTrees::install(turn, catalog, deliveries.tasks(), network, (cargo, &asking));
        let (trees, shape) = match made {
            Ok(made) => made,
            Err(why) => return self.serve_without_group(below, why),
        };
        self.symbol_size = trees.symbol_size;
        self.stage = Stage::Opening { until: turn.now + turn.config.silent_limit };
        self.flows.extend(trees.flows());
        let route = CastRoute::Trees { trees: shape.trees, members: shape.members, of, hops: shape.hops };
        self.route = Route::Trees(Trees::Installed(route, Box::new(trees)));
    }

    /// The source has opened a tree's flow.
    pub(super) fn tree_opened(&mut self, below: &mut Below<'_>, flow: FlowId) -> bool {
        let Some(trees) = self.trees_mut() else { return false };
        trees.opened(flow);
        self.look_whether_ready(below);
        true
    }

    /// A tree's flow is over, or was refused.
    pub(super) fn tree_closed(&mut self, below: &mut Below<'_>, flow: FlowId) -> bool {
        let stage = self.stage;
        let Some(trees) = self.trees_mut() else { return false };
        match (trees.closed(flow), stage) {
            (false, _) => {}
            (true, Stage::Running) => {
                for node in trees.receivers() {
                    self.leave_trees(below, node, "its source has it no more");
                }
            }
            (true, _) => self.serve_without_group(below, WhyUnicast::Source),
        }
        true
    }

    /// A node does as its order says.
    pub(super) fn tree_ready(
        &mut self,
        below: &mut Below<'_>,
        node: NodeId,
        tree: FlowId,
        version: u32,
    ) -> bool {
        let Some(trees) = self.trees_mut() else { return false };
        trees.ready(below.turn.now, node, tree, version);
        self.look_whether_ready(below);
        true
    }

    /// Nodes say who was told by a signal.
    pub(super) fn signalled(&mut self, below: &mut Below<'_>, node: NodeId, answer: &Signalled) -> bool {
        let Some(trees) = self.trees_mut() else { return false };
        if !trees.signalled(&mut below.turn, node, answer) {
            return false;
        }
        self.look_whether_ready(below);
        true
    }

    /// Once everybody on the trees knows, receivers have them.
    fn look_whether_ready(&mut self, below: &mut Below<'_>) {
        let (Stage::Opening { .. }, Some(trees)) = (self.stage, self.trees()) else { return };
        if !trees.is_ready() {
            return;
        }
        let (grants, receivers) = (trees.grants(), trees.receivers());
        self.stage = Stage::Running;
        for node in receivers {
            self.serve_by_trees(below, node, grants.clone());
        }
        self.serve_waiting(below);
    }

    /// Answers what a receiver has asked, with a task that has the cast's trees.
    fn serve_by_trees(&mut self, below: &mut Below<'_>, node: NodeId, trees: Vec<FlowGrant>) {
        let id = below.deliveries.tasks().unused_task(below.turn.draws);
        let asked = self.members.change(node, |member| member.asks.take());
        let Some((path, mut request)) = asked.flatten() else { return };
        request.name.clone_from(&self.name);
        let (object, bytes, symbol_size) = (self.object, self.bytes, self.symbol_size);
        let given = TreesGiven { id, object, bytes, symbol_size, trees };
        if below.deliveries.answer_by_trees(&mut below.turn, below.catalog, path, &request, given) {
            self.members.change(node, |member| {
                (member.task, member.standing, member.served) =
                    (Some(id), MemberStanding::Receiving, Served::ByTrees);
            });
        }
    }

    /// Says orders again, and repairs what was reported. Returns when there is more to do.
    pub(super) fn look_after_trees(&mut self, below: &mut Below<'_>) -> Option<Time> {
        let mut next = self.trees()?.repair_at(below.turn.config.tree_heartbeat);
        if next.is_some_and(|at| below.turn.now >= at) {
            self.repair_trees(below);
            next = None;
        }
        let say = self.trees_mut().and_then(|trees| trees.say_orders(&mut below.turn));
        next.into_iter().chain(say).min()
    }

    fn repair_trees(&mut self, below: &mut Below<'_>) {
        let Cast { members, route: Route::Trees(Trees::Installed(_, trees)), .. } = self else { return };
        let Some(network) = below.network else { return };
        let is_open = |node: NodeId| {
            members.get(node).is_some_and(|it| it.served == Served::ByTrees && !it.has_ended())
        };
        let repaired = trees.repair(&mut below.turn, below.catalog, network, is_open);
        let Some(repaired) = repaired else { return };
        for node in &repaired.lost {
            self.leave_trees(below, *node, "no path leads to it that is not cut");
        }
        if let (Some(trees), Some(network)) = (self.trees_mut(), &mut below.network) {
            let tasks = below.deliveries.tasks();
            trees.tell_repair(&mut below.turn, below.catalog, tasks, network, &repaired);
        }
    }

    /// A receiver's trees bring it nothing any more, for this reason: it is to fetch once more, by itself.
    pub(super) fn leave_trees(&mut self, below: &mut Below<'_>, node: NodeId, reason: &str) {
        let member = self.members.get(node);
        if !member.is_some_and(|it| it.served == Served::ByTrees && !it.has_ended()) {
            return;
        }
        if self.wish == CastWish::Trees {
            return self.end_member(below, node, MemberStanding::Failed(reason.to_owned()));
        }
        let anew = below.turn.draws.request();
        let before = self.members.change(node, |member| {
            (member.served, member.asks, member.told) = (Served::Unicast, None, None);
            member.standing = MemberStanding::Invited;
            (std::mem::replace(&mut member.request, anew), member.task.take())
        });
        let Some((request, task)) = before else { return };
        below.turn.stats.receivers_off_trees += 1;
        below.turn.tell(node, ToNode::StopFetch { request });
        if let Some(task) = task {
            below.deliveries.end_task(&mut below.turn, below.catalog, task, Outcome::Failed);
        }
        if let Some(trees) = self.trees_mut() {
            trees.leave_out(node);
        }
        self.members.look_after(node, Some(below.turn.now));
        self.look_after_members(below);
    }

    /// There are no trees, and the asker wants nothing else.
    pub(super) fn fail_without_trees(&mut self, below: &mut Below<'_>, why: WhyUnicast) {
        let reason = match why {
            WhyUnicast::NoTrees => "no tree of the network leads to two receivers",
            _ => "the source could not open the trees",
        };
        self.stage = Stage::Running;
        self.end_open_members(below, &MemberStanding::Failed(reason.to_owned()));
        let over = Route::Trees(Trees::Over(self.route()));
        let before = std::mem::replace(&mut self.route, over);
        self.abandon(below, before);
    }

    /// The source is to send nothing more down trees; true if it does not.
    pub(super) fn stop_trees(&mut self, below: &mut Below<'_>) -> bool {
        self.trees_mut().map(InstalledTrees::stop).is_none_or(|(stops, over)| {
            stops.into_iter().for_each(|flow| self.stop_at_source(below, flow));
            over
        })
    }
}
