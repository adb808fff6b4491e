//! Objects whose receivers pass on to each other what comes, because nothing but unicast works: so that the source sends about one copy.
//!
//! ```text
//!             class 0          passed on
//!          .----------> r0 ---------------> r1, r2
//!   source +----------> r1 ---------------> r0, r2       n receivers, n classes of each block's symbols (SCDP §III-F)
//!          `----------> r2 ---------------> r0, r1
//! ```
//! A tree of depth 2 for each class: receiver i has class i from the source and class j from receiver j, which sends it on as it
//! comes (SCDP). Each receives every byte once and sends (n - 1) / n of the object. All of them pull, so each takes as
//! much from each as that brings: a slow receiver's class comes slower to the others, who take more of the other classes instead,
//! and it takes from them what it can.
//!
//! A receiver that dies takes its class along; the others are asked for more of theirs, which is the same. Who comes late has a flow
//! from one of each class and takes over one of their classes ([`super::overlay_membership`]). Whoever fetches the object
//! already when an overlay begins belongs to it too ([`super::swarm_detection`]).
//!
//! Where receivers say in which rack they stand, a class goes to one receiver of each other rack, who hands it on there ([`super::racks`]):
//! a flow for each class all the same, but most of them from within the rack.

use headwater_units::{Geometry, NodeId, ObjectId, TaskId, Time};
use headwater_wire::{CastWay, CastWish, Delivery, Request, WhyUnicast};

use super::casts::Stage;
use super::overlay_membership::{Beginner, Circle, Giver};
use super::selection::{FlowPlan, Place};
use super::{Controller, racks};

impl Controller {
    /// There is no group, for this reason: those who have asked pass on to each other what comes, if they may and are two.
    pub(super) fn serve_without_group(&mut self, now: Time, number: u64, why: WhyUnicast) {
        let cast = self.casts.get(number).expect("the caller has found it");
        if cast.wish == CastWish::Trees && why != WhyUnicast::TooFew {
            return self.fail_without_trees(now, number, why);
        }
        let asking: Vec<(NodeId, u16)> = cast
            .open_members()
            .filter_map(|(node, member)| Some((node, member.asks.as_ref()?.1.room)))
            .collect();
        let (object, bytes) = (cast.object, cast.bytes);
        if !may_overlay(cast.wish) {
            return self.serve_each(now, number, why);
        }
        if self.overlays.symbol_size(object).is_some() {
            // They come late to one that has begun.
            let nodes: Vec<NodeId> = asking.iter().map(|(node, _)| *node).collect();
            let way = self.way_of(&nodes, why);
            self.goes_by_overlay(now, number, way);
            return self.serve_waiting(now, number);
        }
        let mut running = self.regroupable(object);
        running.retain(|(node, ..)| asking.iter().all(|(its, _)| its != node));
        if asking.len() + running.len() < 2 {
            return self.serve_each(now, number, WhyUnicast::TooFew);
        }
        let sources = self.sources_of(object, 0, |node| asking.iter().all(|(its, _)| *its != node));
        let Some(rooms) = self.rooms(&sources) else {
            return self.serve_each(now, number, WhyUnicast::Source);
        };
        // What is passed on as it comes is cut alike for all.
        let rooms = asking.iter().map(|(_, room)| *room).fold(rooms, u16::min);
        let room = running.iter().map(|(_, _, room)| *room).fold(rooms, u16::min);
        let symbol_size = Geometry::fitting(bytes, room).symbol_size();
        let running: Vec<(NodeId, TaskId)> =
            running.into_iter().map(|(node, task, _)| (node, task)).collect();
        let nodes: Vec<NodeId> =
            asking.iter().map(|(node, _)| *node).chain(running.iter().map(|(node, _)| *node)).collect();
        let way = self.way_of(&nodes, why);
        self.goes_by_overlay(now, number, way);
        self.casts.get_mut(number).expect("looked up above").symbol_size = symbol_size;
        let beginners = self.beginners(&sources, &nodes);
        let largest = self.config.overlay_circle;
        let places = self.overlays.begin(object, symbol_size, &beginners, largest);
        for (node, circle) in places {
            match running.iter().find(|(its, _)| *its == node) {
                Some((_, task)) => self.regroup(now, *task, circle, symbol_size),
                None => {
                    // Who is left over from the others is served as by any request.
                    let place = (!circle.relays.is_empty()).then_some((Place::Overlay(circle), symbol_size));
                    self.serve(now, number, node, place);
                }
            }
        }
        if let Some(flow) = self.casts.close(number) {
            self.stop_group(now, number, flow.flow);
        }
    }

    /// From now on a cast's receivers are served by an overlay.
    fn goes_by_overlay(&mut self, now: Time, number: u64, way: CastWay) {
        let cast = self.casts.get_mut(number).expect("the caller has found it");
        (cast.way, cast.stage) = (way, Stage::Running);
        self.stats.casts_overlaid += 1;
        self.remove_trees(now, number);
    }

    /// How a cast is said to travel whose receivers these are.
    fn way_of(&self, receivers: &[NodeId], why: WhyUnicast) -> CastWay {
        let racks: Vec<Option<&str>> = receivers.iter().map(|node| self.registry.rack_of(*node)).collect();
        let count = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        CastWay::Overlay { members: count(receivers.len()), why, racks: count(racks::shared(&racks)) }
    }

    /// Receivers that begin an overlay, each with the source from which its class is to come: those of a rack in a row, so that they stay
    /// together where there are several circles. There is a source.
    pub(super) fn beginners(&self, sources: &[NodeId], receivers: &[NodeId]) -> Vec<Beginner> {
        let rack_of = |node: &NodeId| self.registry.rack_of(*node);
        let mut receivers = receivers.to_vec();
        receivers.sort_by_key(|node| (rack_of(node).is_none(), rack_of(node)));
        let racks: Vec<Option<&str>> = receivers.iter().map(rack_of).collect();
        let near: Vec<Option<&str>> = sources.iter().map(rack_of).collect();
        let chosen = racks::spread(&racks, &near);
        let beginner = |((node, rack), source): ((&NodeId, &Option<&str>), usize)| Beginner {
            node: *node,
            rack: rack.map(str::to_owned),
            source: sources[source],
        };
        receivers.iter().zip(&racks).zip(chosen).map(beginner).collect()
    }

    /// The least room of sources; none if there are none.
    pub(super) fn rooms(&self, sources: &[NodeId]) -> Option<u16> {
        sources.iter().filter_map(|node| Some(self.registry.node(*node)?.info.room)).min()
    }

    /// Where a receiver of a cast is put who asks when others pass on already what comes.
    pub(super) fn late_place(&self, number: u64, node: NodeId) -> Option<(Place, u16)> {
        let cast = self.casts.get(number)?;
        let room = cast.members.get(&node)?.asks.as_ref()?.1.room;
        if !may_overlay(cast.wish) {
            return None;
        }
        self.place_among(cast.object, node, room, true)
    }

    /// The same of whoever asks for the object.
    fn place_among(
        &self,
        object: ObjectId,
        node: NodeId,
        room: u16,
        passes_on: bool,
    ) -> Option<(Place, u16)> {
        let symbol_size = self.overlays.symbol_size(object).filter(|size| *size <= room)?;
        let receives = |relay| self.tasks.wanting(object).any(|task| self.tasks.is_of(task, relay));
        let may = |relay| {
            let is_here = self.registry.path_of(relay).is_some();
            is_here && (receives(relay) || self.registry.holds(relay, object))
        };
        let passes_on = passes_on && self.registry.path_of(node).is_some();
        let mut circle = self.overlays.place(object, (node, self.registry.rack_of(node)), passes_on, may)?;
        if let Some(class) = circle.orphan() {
            let others = |it| it != node && circle.relays.iter().all(|giver| giver.node != it);
            circle.source = self.sources_of(object, symbol_size, others).first().map(|it| (*it, class));
        }
        Some((Place::Overlay(circle), symbol_size))
    }

    /// A request for an object that others pass on to each other at this moment is served by them, unless it says otherwise.
    pub(super) fn joins(&mut self, mut request: Request) -> (Request, Option<Place>) {
        let object = self.registry.resolve(&request.name).filter(|_| is_free(&request));
        let place = object
            .and_then(|object| self.place_among(object, request.receiver, request.room, request.passes_on));
        let Some((place, room)) = place else { return (request, None) };
        self.stats.overlays_joined += 1;
        request.room = room;
        request.delivery = Some(Delivery::Pull { initial_window: place.window(&self.config) });
        (request, Some(place))
    }

    /// Opens the flows of a task that belongs to a circle.
    pub(super) fn open_circle(&mut self, now: Time, id: TaskId, circle: Circle) {
        let task = self.tasks.get(id).expect("flows are opened for running tasks");
        self.overlays.enter(task.object, task.receiver, &circle);
        let distrusted = task.distrusted.clone();
        let own = circle.source.map(|(node, class)| FlowPlan::of_source(node, class));
        let relayed = circle.relays.into_iter().map(|Giver { node, class, passed_on }| FlowPlan {
            relays: true,
            passed_on,
            ..FlowPlan::of_source(node, class)
        });
        for plan in own.into_iter().chain(relayed).filter(|plan| !distrusted.contains(&plan.node)) {
            let flow = self.unused_flow_id();
            self.open_flow_as(now, id, flow, plan, None);
        }
    }
}

/// Whether whoever asked for a cast is content with receivers that pass on.
pub(super) fn may_overlay(wish: CastWish) -> bool {
    matches!(wish, CastWish::Best | CastWish::Overlay)
}

/// Whether a request leaves it to the controller how it is served.
pub(super) fn is_free(request: &Request) -> bool {
    request.delivery.is_none() && request.max_sources.is_none()
}
