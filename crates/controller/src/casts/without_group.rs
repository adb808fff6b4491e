//! A cast without a group and without trees: its receivers form an overlay ([`overlay`](crate::overlay)), or are served one by one.

use headwater_units::{FlowId, Geometry, NodeId};
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
        let asking = self.asking();
        let (catalog, config) = (below.catalog, below.turn.config);
        if below.deliveries.overlays().symbol_size(self.object).is_some() {
            // They come late to one that has begun.
            let nodes: Vec<NodeId> = asking.keys().copied().collect();
            let group = self.goes_by_overlay(below, overlay::route_of(catalog, &nodes, why));
            self.serve_waiting(below);
            return self.abandon(below, group);
        }
        let known = below.deliveries.known(catalog, config);
        let mut running = known.regroupable(self.object);
        running.retain(|it| !asking.contains_key(&it.receiver));
        if asking.len() + running.len() < 2 {
            return self.serve_each(below, WhyUnicast::TooFew);
        }
        let sources = known.sources_of(self.object, 0, |node| !asking.contains_key(&node));
        let Some(least) = overlay::rooms(catalog, &sources) else {
            return self.serve_each(below, WhyUnicast::Source);
        };
        // What is passed on as it comes is cut alike for all.
        let rooms = asking.values().copied().chain(running.iter().map(|it| it.room));
        let room = rooms.fold(least, u16::min);
        let symbol_size = Geometry::fitting(self.bytes, room).symbol_size();
        let nodes: Vec<NodeId> = asking.keys().copied().chain(running.iter().map(|it| it.receiver)).collect();
        let group = self.goes_by_overlay(below, overlay::route_of(catalog, &nodes, why));
        self.symbol_size = symbol_size;
        let beginners = overlay::beginners(catalog, &nodes);
        let places = below.deliveries.begin_overlay(self.object, symbol_size, &sources, &beginners);
        for (node, parents) in places {
            match running.iter().find(|it| it.receiver == node) {
                Some(it) => {
                    below.deliveries.regroup(&mut below.turn, catalog, it.task, parents, symbol_size);
                }
                None => {
                    self.serve(below, node, Some((Placement::Overlay(parents), symbol_size)));
                }
            }
        }
        self.abandon(below, group);
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
