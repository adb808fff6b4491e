//! Overlays: receivers of an object pass on to each other what arrives, where nothing but unicast works, so that the source sends about
//! one copy.
//!
//! ```text
//!             stripe 0: blocks 0, 3, 6 ...
//!          .----------> r0 -------------> r1, r2
//!   source +----------> r1 -------------> r0, r2       n receivers, up to 9 stripes of blocks, a tree for each
//!          `----------> r2 -------------> r0, r1
//! ```
//! Each receiver has a flow for each stripe ([`headwater_wire::Delivery::Overlay`]), from the source or from a receiver that passes
//! symbols on as they come. It receives every byte once, and sends the object about once, however many there are
//! ([`super::striping`]). Receivers come later, go, and are replaced ([`super::overlay_membership`]). Those that fetch the object already
//! when an overlay begins belong to it too ([`super::swarm_detection`]).

use headwater_units::NodeId;
use headwater_wire::{CastRoute, CastWish, WhyUnicast};

use crate::catalog::Catalog;
use crate::overlay_membership::Beginner;
use crate::racks;

/// How a cast is said to travel whose receivers these are.
pub(crate) fn route_of(catalog: &Catalog, receivers: &[NodeId], why: WhyUnicast) -> CastRoute {
    let racks: Vec<Option<&str>> = receivers.iter().map(|node| catalog.rack_of(*node)).collect();
    let count = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    CastRoute::Overlay { members: count(receivers.len()), why, racks: count(racks::shared(&racks)) }
}

/// Receivers that begin an overlay, those with the largest uplinks first: they stand nearer to the source.
pub(crate) fn beginners(catalog: &Catalog, receivers: &[NodeId]) -> Vec<Beginner> {
    let uplink =
        |node: &NodeId| catalog.node(*node).and_then(|node| node.info.uplink).map(|it| it.get() as f64);
    let known: Vec<f64> = receivers.iter().filter_map(uplink).collect();
    // Of whom nothing is known counts like the others.
    let mean = if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
    let beginner = |node: &NodeId| Beginner {
        node: *node,
        rack: catalog.rack_of(*node).map(str::to_owned),
        weight: uplink(node).unwrap_or(mean) / mean.max(1.0),
    };
    let mut beginners: Vec<Beginner> = receivers.iter().map(beginner).collect();
    beginners.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    beginners
}

/// The least room of sources; none if there are none.
pub(crate) fn rooms(catalog: &Catalog, sources: &[NodeId]) -> Option<u16> {
    sources.iter().filter_map(|node| Some(catalog.node(*node)?.info.room)).min()
}

/// Whether the asker is content with receivers that pass on.
pub(crate) fn may_overlay(wish: CastWish) -> bool {
    matches!(wish, CastWish::Best | CastWish::Overlay)
}
