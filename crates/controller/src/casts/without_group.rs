//! A cast without a group and without trees: its receivers form an overlay ([`overlay`](crate::overlay)), or are served one by one.

use std::collections::BTreeMap;

use headwater_units::{FlowId, Geometry, NodeId, TaskId};
use headwater_wire::{CastRoute, CastWish, WhyUnicast};

use super::Below;
use super::cast::{Cast, Multicast, Route, Stage, Trees};
use crate::overlay::{self, may_overlay};
use crate::selection::Placement;

impl Cast {
    /// There is no group, for this reason: those who have asked pass on to each other what comes, if they may and are two.
    pub(super) fn serve_without_group(&mut self, below: &mut Below<'_>, why: WhyUnicast) {
        if self.wish == CastWish::Trees && why != WhyUnicast::TooFew {
            return self.fail_without_trees(below, why);
        }
        if !may_overlay(self.wish) {
            return self.serve_each(below, why);
        }
        let (catalog, config) = (below.catalog, below.turn.config);
        if below.deliveries.overlays().symbol_size(self.object).is_some() {
            // They come late to one that has begun.
            let nodes: Vec<NodeId> = self.members.rooms_asked().into_keys().collect();
            let group = self.goes_by_overlay(below, overlay::route_of(catalog, &nodes, why));
            self.serve_waiting(below);
            return self.abandon(below, group);
        }
        let rooms = self.rooms_here(below);
        let known = below.deliveries.known(catalog, config);
        let mut running = known.regroupable(self.object);
        running.retain(|it| !rooms.contains_key(&it.receiver));
        if rooms.len() + running.len() < 2 {
            return self.serve_each(below, WhyUnicast::TooFew);
        }
        let sources = known.sources_of(self.object, 0, |node| !rooms.contains_key(&node));
        let Some(least) = overlay::rooms(catalog, &sources) else {
            return self.serve_each(below, WhyUnicast::Source);
        };
        // An object that is passed on as it comes is cut alike for all.
        let each = rooms.values().copied().chain(running.iter().map(|it| it.room));
        let room = each.fold(least, u16::min);
        let symbol_size = Geometry::fitting(self.bytes, room).symbol_size();
        let nodes: Vec<NodeId> = rooms.keys().copied().chain(running.iter().map(|it| it.receiver)).collect();
        let group = self.goes_by_overlay(below, overlay::route_of(catalog, &nodes, why));
        self.symbol_size = symbol_size;
        let beginners = overlay::beginners(catalog, &nodes);
        let places = below.deliveries.begin_overlay(self.object, symbol_size, &sources, &beginners);
        let running: BTreeMap<NodeId, TaskId> = running.iter().map(|it| (it.receiver, it.task)).collect();
        for (node, parents) in places {
            match running.get(&node) {
                Some(task) => {
                    below.deliveries.regroup(&mut below.turn, catalog, *task, parents, symbol_size);
                }
                None if self.members.get(node).is_some_and(|member| member.asks.is_some()) => {
                    self.serve(below, node, Some((Placement::Overlay(parents), symbol_size)));
                }
                // It has been told of the cast, and will ask any moment.
                None => {
                    below.deliveries.keep_place(self.object, node);
                    self.lapse_at = Some(below.turn.now + config.cast_gather);
                }
            }
        }
        if self.invitations.are_left() {
            self.invitations.put_in_order(below.deliveries.overlays().in_sending_order(self.object));
        }
        self.abandon(below, group);
    }

    /// Receivers that have asked, or are here and will, each with the bytes of symbol that it takes.
    fn rooms_here(&self, below: &Below<'_>) -> BTreeMap<NodeId, u16> {
        let mut rooms = self.members.rooms_asked();
        for (node, _) in self.members.open_members().filter(|(_, member)| member.task.is_none()) {
            let here = below.catalog.node(node).filter(|it| it.path.is_some() && it.keeps && !it.leaving);
            if let Some(here) = here.filter(|here| !here.info.data.is_empty()) {
                rooms.entry(node).or_insert(here.info.room);
            }
        }
        rooms
    }

    /// Whether two receivers or more are here, or on their way to the object already.
    pub(super) fn may_begin(&self, below: &Below<'_>) -> bool {
        let running = below.deliveries.known(below.catalog, below.turn.config).regroupable(self.object);
        self.rooms_here(below).len() + running.len() >= 2
    }

    /// Receivers that have places in an overlay and do not ask have had time enough: those below them turn to others.
    pub(super) fn take_unclaimed_places(&mut self, below: &mut Below<'_>) {
        let now = below.turn.now;
        if self.lapse_at.is_none_or(|at| at > now) {
            return;
        }
        // Those that have not been invited yet cannot ask.
        self.lapse_at = self.invitations.are_left().then(|| now + below.turn.config.cast_gather);
        if self.lapse_at.is_none() {
            below.deliveries.take_unclaimed_places(self.object);
        }
    }

    /// From now on receivers are served by an overlay, and not by trees. The group that was to be used is still to be abandoned.
    fn goes_by_overlay(&mut self, below: &mut Below<'_>, route: CastRoute) -> Route {
        let mut before = std::mem::replace(&mut self.route, Route::Overlay(Some(route)));
        self.stage = Stage::Running;
        below.turn.stats.casts_overlaid += 1;
        if let Route::Trees(trees) = &mut before {
            let trees = std::mem::replace(trees, Trees::Planned);
            self.abandon(below, Route::Trees(trees));
        }
        before
    }

    /// All that have asked are served one by one, and so are those who will.
    pub(super) fn serve_each(&mut self, below: &mut Below<'_>, why: WhyUnicast) {
        let before = std::mem::replace(&mut self.route, Route::Unicast(why));
        self.stage = Stage::Running;
        self.serve_waiting(below);
        self.abandon(below, before);
    }

    /// The cast has left a route: nothing is sent by it any more.
    pub(super) fn abandon(&mut self, below: &mut Below<'_>, route: Route) {
        match route {
            Route::Multicast(Multicast::Open(group)) => {
                self.flows.remove(&group.flow.flow);
                self.stop_at_source(below, group.flow.flow);
            }
            Route::Trees(Trees::Installed(_, mut trees)) => {
                let (stops, _) = trees.stop();
                stops.into_iter().for_each(|flow| self.stop_at_source(below, flow));
                trees.remove(&mut below.turn);
            }
            _ => {}
        }
    }

    /// The source is to stop a flow to many.
    pub(super) fn stop_at_source(&self, below: &mut Below<'_>, flow: FlowId) {
        below.deliveries.stop_flow(&mut below.turn, below.catalog, self.source, flow);
    }
}
