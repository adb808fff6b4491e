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
//! Does not look at where receivers are: each has a flow from each other one of its circle.

use headwater_units::{Geometry, NodeId, Time};
use headwater_wire::{CastWay, CastWish, Delivery, Request, WhyUnicast};

use super::Controller;
use super::casts::{Cast, Stage, Stripe};
use super::selection::{Circle, Place};

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
        let cast = self.casts.get_mut(number).expect("looked up above");
        cast.symbol_size = Geometry::fitting(cast.bytes, room).symbol_size();
        cast.way = CastWay::Overlay { members: u16::try_from(asking.len()).unwrap_or(u16::MAX), why };
        cast.stage = Stage::Running;
        let room = cast.symbol_size;
        self.stats.casts_overlaid += 1;
        self.fell(now, number);
        let circles = asking.len().div_ceil(usize::from(self.config.overlay_circle));
        let mut served = Vec::with_capacity(asking.len());
        for (circle, nodes) in asking.chunks(asking.len().div_ceil(circles)).enumerate() {
            let of = nodes.len() as u8;
            let cast = self.casts.get_mut(number).expect("looked up above");
            for (index, (node, _)) in (0..of).zip(nodes) {
                let member = cast.members.get_mut(node).expect("it has asked");
                member.stripe = Some(Stripe { circle, index, of });
                let source = sources[served.len() % sources.len()];
                served.push((*node, circle, (source, index), of));
            }
        }
        for (node, circle, own, of) in served {
            let cast = self.casts.get(number).expect("looked up above");
            let relays = relays(cast, circle, node);
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
        let relays = relays(cast, 0, node);
        let here = |(relay, _): &(NodeId, u8)| {
            let member = &cast.members[relay];
            let may_go_on = member.task.is_some() || self.registry.holds(*relay, cast.object);
            may_go_on && self.registry.path_of(*relay).is_some()
        };
        let relays: Vec<(NodeId, u8)> = relays.into_iter().filter(here).collect();
        let of =
            cast.members.values().filter_map(|member| member.stripe).find(|stripe| stripe.circle == 0)?.of;
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
}

/// Those of a circle that pass on what comes, but for one, each with its class.
fn relays(cast: &Cast, circle: usize, but: NodeId) -> Vec<(NodeId, u8)> {
    let its = |stripe: &Stripe| stripe.circle == circle;
    let members = cast.members.iter().filter(|(node, _)| **node != but);
    members.filter_map(|(node, member)| Some((*node, member.stripe.filter(its)?.index))).collect()
}
