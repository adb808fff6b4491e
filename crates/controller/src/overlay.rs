//! Overlays: receivers of an object pass on to each other what arrives, where nothing but unicast works, so that the source sends about
//! one copy.
//!
//! ```text
//!             class 0          passed on
//!          .----------> r0 ---------------> r1, r2
//!   source +----------> r1 ---------------> r0, r2       n receivers, n classes of each block's symbols (SCDP §III-F)
//!          `----------> r2 ---------------> r0, r1
//! ```
//! Each class has a tree of depth 2: receiver i has class i from the source and class j from receiver j, which sends it on as it
//! arrives (SCDP). Each receives every byte once and sends (n - 1) / n of the object. All of them pull, so each takes from each
//! other one as much as that one brings. The class of a slow receiver arrives slower at the others, which take more of the other
//! classes instead; the slow one takes from them what it can.
//!
//! When a receiver dies, its class is lost, and the others are asked for more of theirs. A receiver that comes late has a flow
//! from one receiver of each class and takes over one of their classes ([`super::overlay_membership`]). Receivers that fetch the
//! object already when an overlay begins belong to it too ([`super::swarm_detection`]).
//!
//! Where receivers state their racks, a class goes to one receiver of each other rack, which hands it on there ([`super::racks`]).
//! A receiver still has a flow for each class, but most of them from within its rack.

use headwater_units::{NodeId, ObjectId};
use headwater_wire::{CastRoute, CastWish, Delivery, Request, WhyUnicast};

use crate::catalog::Catalog;
use crate::overlay_membership::{Beginner, Overlays};
use crate::racks;
use crate::selection::{Known, Placement, is_free};

/// How a cast is said to travel whose receivers these are.
pub(crate) fn route_of(catalog: &Catalog, receivers: &[NodeId], why: WhyUnicast) -> CastRoute {
    let racks: Vec<Option<&str>> = receivers.iter().map(|node| catalog.rack_of(*node)).collect();
    let count = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    CastRoute::Overlay { members: count(receivers.len()), why, racks: count(racks::shared(&racks)) }
}

/// Receivers that begin an overlay, each with the source from which its class is to come: those of a rack in a row, so that they stay
/// together where there are several meshes. There is a source.
pub(crate) fn beginners(catalog: &Catalog, sources: &[NodeId], receivers: &[NodeId]) -> Vec<Beginner> {
    let rack_of = |node: &NodeId| catalog.rack_of(*node);
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
pub(crate) fn rooms(catalog: &Catalog, sources: &[NodeId]) -> Option<u16> {
    sources.iter().filter_map(|node| Some(catalog.node(*node)?.info.room)).min()
}

/// Where a receiver is put, and with symbols of which size, that asks for an object when others pass it on to each other already.
pub(crate) fn place_among(
    known: Known<'_>,
    overlays: &Overlays,
    object: ObjectId,
    (node, room): (NodeId, u16),
    passes_on: bool,
) -> Option<(Placement, u16)> {
    let Known { catalog, tasks, .. } = known;
    let symbol_size = overlays.symbol_size(object).filter(|size| *size <= room)?;
    let receives = |relay| tasks.wanting(object).any(|task| tasks.is_of(task, relay));
    let may = |relay| {
        let is_here = catalog.path_of(relay).is_some();
        is_here && (receives(relay) || catalog.holds(relay, object))
    };
    let passes_on = passes_on && catalog.path_of(node).is_some();
    let mut role = overlays.place(object, (node, catalog.rack_of(node)), passes_on, may)?;
    if let Some(class) = role.orphan() {
        let others = |it| it != node && role.relays.iter().all(|giver| giver.node != it);
        role.source = known.sources_of(object, symbol_size, others).first().map(|it| (*it, class));
    }
    Some((Placement::Overlay(role), symbol_size))
}

/// A request for an object that others pass on to each other at this moment is served by them, unless it says otherwise: its place
/// among them, and the request as it is then.
pub(crate) fn joins(
    known: Known<'_>,
    overlays: &Overlays,
    mut request: Request,
) -> (Request, Option<Placement>) {
    let object = known.catalog.resolve(&request.name).filter(|_| is_free(&request));
    let receiver = (request.receiver, request.room);
    let place = object.and_then(|it| place_among(known, overlays, it, receiver, request.passes_on));
    let Some((place, room)) = place else { return (request, None) };
    request.room = room;
    request.delivery = Some(Delivery::Pull { initial_window: place.window(known.config) });
    (request, Some(place))
}

/// Whether whoever asked for a cast is content with receivers that pass on.
pub(crate) fn may_overlay(wish: CastWish) -> bool {
    matches!(wish, CastWish::Best | CastWish::Overlay)
}
