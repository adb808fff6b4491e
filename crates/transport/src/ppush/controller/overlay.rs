//! Casts where nothing but unicast works: receivers pass on to each other what comes, so that the source sends about one copy.
//!
//! ```text
//!             class 0          passed on
//!          .----------> r0 ---------------> r1, r2
//!   source +----------> r1 ---------------> r0, r2       n receivers, n classes of each block's symbols (SCDP §III-F)
//!          `----------> r2 ---------------> r0, r1
//! ```
//! A tree of depth 2 for each class: receiver i has class i from the source and class j from receiver j, which sends it on as it
//! comes ([`crate::scdp`]). Each receives every byte once and sends (n - 1) / n of the object. All of them pull, so each takes as
//! much from each as that brings: a slow receiver's class comes slower to the others, who take more of the other classes instead,
//! and it takes from them what it can.
//!
//! A receiver that dies takes its class along; the others are asked for more of theirs, which is the same. Who comes late has a flow
//! from each of those that pass on, none from the source, and passes nothing on.
//!
//! Where receivers say in which rack they stand, a class goes to one receiver of each other rack, who hands it on there ([`super::racks`]):
//! a flow for each class all the same, but most of them from within the rack.

use headwater_units::{Geometry, NodeId, Time};
use headwater_wire::{CastWay, CastWish, Delivery, Request, WhyUnicast};

use super::casts::{Cast, Member, Stage, Stripe};
use super::selection::{Circle, Giver, Place};
use super::{Controller, racks};

impl Controller {
    /// There is no group, for this reason: those who have asked pass on to each other what comes, if they may and are two.
    pub(super) fn serve_without_group(&mut self, now: Time, number: u64, why: WhyUnicast) {
        let cast = self.casts.get(number).expect("the caller has found it");
        if cast.wish == CastWish::Trees && why != WhyUnicast::TooFew {
            return self.fail_without_trees(now, number, why);
        }
        let mut asking: Vec<(NodeId, u16)> = cast
            .open_members()
            .filter_map(|(node, member)| Some((node, member.asks.as_ref()?.1.room)))
            .collect();
        let may = matches!(cast.wish, CastWish::Best | CastWish::Overlay);
        if !may || asking.len() < 2 {
            return self.serve_each(now, number, if may { WhyUnicast::TooFew } else { why });
        }
        let object = cast.object;
        let sources = self.sources_of(object, 0, |node| asking.iter().all(|(its, _)| *its != node));
        let Some(rooms) = self.rooms(&sources) else {
            return self.serve_each(now, number, WhyUnicast::Source);
        };
        // What is passed on as it comes is cut alike for all.
        let room = asking.iter().map(|(_, room)| *room).fold(rooms, u16::min);
        // Those of a rack stay together where there are several circles.
        let rack_of = |node: NodeId| self.registry.rack_of(node);
        asking.sort_by_cached_key(|(node, _)| (rack_of(*node).is_none(), rack_of(*node).map(str::to_owned)));
        let racks: Vec<Option<&str>> = asking.iter().map(|(node, _)| rack_of(*node)).collect();
        let near: Vec<Option<&str>> = sources.iter().map(|source| rack_of(*source)).collect();
        let mut chosen = racks::spread(&racks, &near).into_iter().map(|source| sources[source]);
        let cast = self.casts.get_mut(number).expect("looked up above");
        cast.symbol_size = Geometry::fitting(cast.bytes, room).symbol_size();
        let count = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        cast.way =
            CastWay::Overlay { members: count(asking.len()), why, racks: count(racks::shared(&racks)) };
        cast.stage = Stage::Running;
        let room = cast.symbol_size;
        let circles = asking.len().div_ceil(usize::from(self.config.overlay_circle));
        let size = asking.len().div_ceil(circles);
        let mut served = Vec::with_capacity(asking.len());
        for (circle, (nodes, racks)) in asking.chunks(size).zip(racks.chunks(size)).enumerate() {
            let of = nodes.len() as u8;
            for ((index, (node, _)), enters) in (0..of).zip(nodes).zip(racks::entries(racks)) {
                let member = cast.members.get_mut(node).expect("it has asked");
                member.stripe = Some(Stripe { circle, index, of, enters });
                let source = chosen.next().expect("one for each");
                served.push((*node, circle, (source, index), of));
            }
        }
        drop(chosen);
        self.stats.casts_overlaid += 1;
        self.fell(now, number);
        for (node, circle, own, of) in served {
            let cast = self.casts.get(number).expect("looked up above");
            let relays = self.givers(cast, circle, node, |_, _| true);
            let place = match relays.is_empty() {
                // Left over from the others.
                true => None,
                false => Some((Place::Overlay(Circle { source: Some(own), relays, of }), room)),
            };
            self.serve(now, number, node, place);
        }
        if let Some(flow) = self.casts.close(number) {
            self.stop_group(now, number, flow.flow);
        }
    }

    /// The least room of sources; none if there are none.
    fn rooms(&self, sources: &[NodeId]) -> Option<u16> {
        sources.iter().filter_map(|node| Some(self.registry.node(*node)?.info.room)).min()
    }

    /// Where somebody is put who asks when others pass on already what comes.
    pub(super) fn late_place(&self, number: u64, node: NodeId) -> Option<(Place, u16)> {
        let cast = self.casts.get(number)?;
        if !matches!(cast.way, CastWay::Overlay { .. }) {
            return None;
        }
        let rack = self.registry.rack_of(node);
        let stripes =
            || cast.members.iter().filter_map(|(node, member)| Some((*node, member.stripe.as_ref()?)));
        let is_near = |(mate, _): &(NodeId, &Stripe)| rack.is_some() && self.registry.rack_of(*mate) == rack;
        let (_, Stripe { circle, of, .. }) =
            *stripes().find(is_near).or_else(|| stripes().find(|(_, stripe)| stripe.circle == 0)).as_ref()?;
        let here = |relay: NodeId, member: &Member| {
            let may_go_on = member.task.is_some() || self.registry.holds(relay, cast.object);
            may_go_on && self.registry.path_of(relay).is_some()
        };
        let (relays, of) = (self.givers(cast, *circle, node, here), *of);
        // One alone would have to bring everything.
        (relays.len() >= 2).then_some((Place::Overlay(Circle { source: None, relays, of }), cast.symbol_size))
    }

    /// A request for an object that others pass on to each other at this moment is served by them, unless it says otherwise.
    pub(super) fn joins(&mut self, mut request: Request) -> (Request, Option<Place>) {
        let object = self.registry.resolve(&request.name);
        let free = request.delivery.is_none() && request.max_sources.is_none();
        let running = self.casts.overlaid().find(|cast| Some(cast.object) == object && free);
        let number = running.filter(|cast| cast.symbol_size <= request.room).map(|cast| cast.number);
        let Some((place, room)) = number.and_then(|number| self.late_place(number, request.receiver)) else {
            return (request, None);
        };
        request.room = room;
        request.delivery = Some(Delivery::Pull { initial_window: place.window(&self.config) });
        (request, Some(place))
    }

    /// Who of a circle passes each class on to one receiver, of those who may: whose own it is, if that one stands in the same rack; else
    /// who has taken it into this rack; else whose own it is.
    fn givers(
        &self,
        cast: &Cast,
        circle: usize,
        to: NodeId,
        may: impl Fn(NodeId, &Member) -> bool,
    ) -> Vec<Giver> {
        let stripe_of = |member: &'_ Member| member.stripe.clone().filter(|stripe| stripe.circle == circle);
        let own = cast.members.get(&to).and_then(stripe_of);
        let rack = self.registry.rack_of(to);
        let is_near = |node: NodeId| rack.is_some() && self.registry.rack_of(node) == rack;
        let others: Vec<(NodeId, Stripe)> = cast
            .members
            .iter()
            .filter(|(node, member)| **node != to && may(**node, member))
            .filter_map(|(node, member)| Some((*node, stripe_of(member)?)))
            .collect();
        let of = others.first().map_or(0, |(_, stripe)| stripe.of);
        let giver = |class: u8| {
            let owner = others.iter().find(|(_, stripe)| stripe.index == class).map(|(node, _)| *node);
            let enters =
                |(node, stripe): &&(NodeId, Stripe)| is_near(*node) && stripe.enters.contains(&class);
            let near = owner.filter(|node| is_near(*node));
            let near = near.or_else(|| others.iter().find(enters).map(|(node, _)| *node));
            let passed_on = near.is_none() && own.as_ref().is_some_and(|own| own.enters.contains(&class));
            Some(Giver { node: near.or(owner)?, class, passed_on })
        };
        (0..of).filter_map(giver).collect()
    }
}
