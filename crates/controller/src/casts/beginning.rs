//! The beginning of a cast: its receivers, and the choice of a route.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use headwater_machine::Taker;
use headwater_units::{Bytes, Duration, NodeId, PathId};
use headwater_wire::{
    Cast as Wanted, CastWish, MAX_FLOWS, MemberStanding, Refusal, Urgency, WhyUnicast, WhyUnscheduled,
};

use super::by_rates;
use super::cast::{Cast, GroupPace, Multicast, Route, Stage, Trees};
use super::invitations::Invitations;
use super::member::Member;
use super::roster::Roster;
use super::{Below, Casts};
use crate::ControllerConfig;
use crate::catalog::Catalog;
use crate::tree_installation;

/// Round trips to the farthest receiver in which it has answered an invitation, also one that had to be sent again.
const GATHER_TRIPS: u64 = 4;
/// The longest that others wait for it.
const LONGEST_GATHER: Duration = Duration::from_secs(3);

impl Casts {
    pub(super) fn begin(
        &self,
        below: &mut Below<'_>,
        (asker, taker): (Option<PathId>, Taker),
        (wanted, urgency): (Wanted, Option<Urgency>),
        nodes_may_come: bool,
    ) -> Result<Cast, Refusal> {
        let (now, config, catalog) = (below.turn.now, below.turn.config, below.catalog);
        let unresolved = || catalog.why_unresolved(&wanted.name);
        let object = catalog.resolve(&wanted.name).ok_or_else(unresolved)?;
        let bytes = catalog.object(object).ok_or(Refusal::UnknownObject)?.bytes;
        let sources = below.deliveries.known(catalog, config).sources_of(object, 0, |_| true);
        let source = *sources.first().ok_or_else(|| catalog.no_source_of(object))?;
        if wanted.wish == CastWish::Trees && below.network.is_none() {
            return Err(Refusal::NoNetwork);
        }
        let computes_rates = below.network.as_ref().is_some_and(|network| network.computes_rates);
        if wanted.wish == CastWish::Rates && !computes_rates {
            return Err(Refusal::Unscheduled(WhyUnscheduled::NotStated));
        }
        if !self.shares.has_room(&taker, 1, config.max_casts) {
            return Err(Refusal::Full);
        }
        let receivers = receivers(catalog, config, source, wanted.to)?;
        let trips = catalog.farthest(&receivers).unwrap_or_default() * GATHER_TRIPS;
        let gather = config.cast_gather.max(trips.min(LONGEST_GATHER));
        let mut cast = Cast {
            number: wanted.cast,
            asker,
            taker,
            name: wanted.name,
            object,
            bytes,
            class: wanted.class,
            source,
            source_at: catalog.data_of(source),
            begun: now,
            stage: Stage::Gathering { until: now + gather },
            wish: wanted.wish,
            urgency,
            unscheduled: None,
            behind: None,
            route: Route::Overlay(None),
            flows: BTreeSet::new(),
            symbol_size: 0,
            files: Bytes::ZERO,
            to_group: Bytes::ZERO,
            given: BTreeMap::new(),
            between_racks: None,
            members: Roster::default(),
            invitations: Invitations::default(),
            lapse_at: None,
            news_at: now + config.cast_news,
            over_at: None,
        };
        let mut here = Vec::with_capacity(receivers.len());
        for node in receivers {
            let own = below.deliveries.tasks().secret(below.turn.draws);
            cast.members.insert(node, Member::new(now, below.turn.draws.request(), own, config));
            // A receiver that cannot take part is reported at once.
            match catalog.node(node) {
                _ if catalog.holds(node, object) => cast.end(now, node, MemberStanding::Had),
                Some(known) if known.path.is_some() && !known.keeps => {
                    let reason = "it keeps no objects: it is not run by `headwater node` or `up`";
                    cast.end(now, node, MemberStanding::Failed(reason.to_owned()));
                }
                Some(known) if known.path.is_some() => here.push(node),
                _ if nodes_may_come => cast.members.look_after(node, Some(now)),
                _ => cast.end(now, node, MemberStanding::Away),
            }
        }
        cast.invitations = Invitations::of(here);
        let has_rack = |node: &NodeId| catalog.rack_of(*node).is_some();
        cast.between_racks = cast.members.nodes().any(|node| has_rack(&node)).then_some(Bytes::ZERO);
        cast.route = self.first_route(below, &cast)?;
        match &cast.route {
            // Nobody has to be waited for.
            Route::Unicast(_) => cast.stage = Stage::Running,
            Route::Multicast(Multicast::Probed { asked, .. }) => _ = cast.flows.insert(asked.flow),
            _ => {}
        }
        Ok(cast)
    }

    /// The first route to try, by what was wished for and what is possible.
    fn first_route(&self, below: &mut Below<'_>, cast: &Cast) -> Result<Route, Refusal> {
        let at =
            cast.source_at.and_then(|source| self.unused_group(below, is_ipv4(below.catalog, source, cast)));
        let are_few = cast.members.open() <= MAX_FLOWS;
        let may_use_trees = are_few && matches!(cast.wish, CastWish::Best | CastWish::Trees) && {
            let open = cast.members.open_members().map(|(node, _)| node);
            tree_installation::may_install(below.network.as_ref(), below.catalog, cast.source, open)
        };
        let open = cast.members.open_members().map(|(node, _)| node);
        let may_use_rates = matches!(cast.wish, CastWish::Best | CastWish::Rates)
            && by_rates::may_go(below.network.as_ref(), below.catalog, cast.source, open);
        Ok(match (cast.wish, at) {
            (CastWish::Unicast, _) => Route::Unicast(WhyUnicast::Wished),
            (CastWish::Rates, _) if !are_few => return Err(Refusal::TooMany),
            (CastWish::Rates, _) if !may_use_rates => return Err(Refusal::OffNetwork),
            (CastWish::Rates, None) => Route::Unicast(WhyUnicast::NoGroups),
            (CastWish::Rates, Some(at)) => probed(below, at, GroupPace::Computed(None)),
            _ if cast.members.open() < 2 => Route::Unicast(WhyUnicast::TooFew),
            (CastWish::Best, Some(at)) if are_few && may_use_rates => {
                probed(below, at, GroupPace::Computed(None))
            }
            _ if may_use_trees => Route::Trees(Trees::Planned),
            (CastWish::Trees, _) if !are_few => return Err(Refusal::TooMany),
            (CastWish::Trees, _) => return Err(Refusal::OffNetwork),
            (CastWish::Multicast, _) if !are_few => Route::Unicast(WhyUnicast::TooMany),
            (CastWish::Multicast, None) => Route::Unicast(WhyUnicast::NoGroups),
            (CastWish::Overlay, _) | (_, None) => Route::Overlay(None),
            _ if !are_few => Route::Overlay(None),
            (_, Some(at)) => probed(below, at, GroupPace::Pulled),
        })
    }

    /// A group address that no running cast has.
    fn unused_group(&self, below: &mut Below<'_>, ipv4: bool) -> Option<SocketAddr> {
        let range = *below.turn.config.groups.iter().find(|range| range.first.is_ipv4() == ipv4)?;
        let start = below.turn.draws.start();
        let tries = u32::try_from(self.casts.len()).unwrap_or(u32::MAX).saturating_add(1).min(range.count);
        let is_used = |at: &SocketAddr| self.groups.values().any(|its| its == at);
        (0..tries).map(|n| range.nth(start.wrapping_add(n))).find(|at| !is_used(at))
    }
}

/// A group at this address, whose members are to be probed.
fn probed(below: &mut Below<'_>, at: SocketAddr, pace: GroupPace) -> Route {
    let asked = below.deliveries.tasks().secret(below.turn.draws);
    Route::Multicast(Multicast::Probed { at, asked, pace })
}

/// The receivers: the named ones, else all connected nodes that keep objects.
fn receivers(
    catalog: &Catalog,
    config: &ControllerConfig,
    source: NodeId,
    named: Vec<NodeId>,
) -> Result<Vec<NodeId>, Refusal> {
    let mut to = named;
    if to.is_empty() {
        let keepers = catalog.nodes().filter(|node| node.keeps && node.path.is_some());
        to = keepers.map(|node| node.info.node).filter(|node| *node != source).collect();
    }
    match to.len() {
        0 => Err(Refusal::Nobody),
        n if n > config.max_receivers => Err(Refusal::TooMany),
        _ => Ok(to),
    }
}

/// Whether a group is one of IPv4. A source beside its controller may be reached by both: then its receivers decide.
fn is_ipv4(catalog: &Catalog, source: SocketAddr, cast: &Cast) -> bool {
    let theirs = cast.members.nodes().filter_map(|node| catalog.data_of(node));
    let mut known = core::iter::once(source).chain(theirs).filter(|at| !at.ip().is_unspecified());
    known.next().is_none_or(|at| at.is_ipv4())
}
