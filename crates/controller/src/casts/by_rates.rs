//! A cast to a group at the rate that switches compute (PAM): where it may go so, what its source is told, and what becomes of it where
//! the network does not do what it was said to do.
//!
//! ```text
//!   Computed -- the source has seen losses or a standing queue --> Opening, Pulled --> Running
//! ```
//! Every transfer believes what the datagrams on its way say, and where no switch computes a rate these say what the source's own link
//! carries. So a cast goes so only on a network of which its operator has said that its ports grant rates, and only to hosts on it. The
//! source finds out if that is wrong. Then the cast becomes a pulled group, once, and its receivers go on with what they have.

use std::collections::BTreeMap;

use headwater_units::{Duration, NodeId, Rank, Time};
use headwater_wire::{
    AtRates, Delivery, MemberStanding, Precedence, RateNews, RateTerms, Start, TransferOrder, TransferReport,
    Urgency, WhyUnicast, WhyUnscheduled,
};

use super::Below;
use super::cast::{Cast, GroupPace, Multicast, OpenGroup, Route, Stage};
use super::member::Served;
use crate::catalog::Catalog;
use crate::network::Network;

/// Whether a cast from this source to these receivers may go at computed rates: all of them are where the network has a host, and the
/// network's ports grant rates.
pub(super) fn may_go(
    network: Option<&Network>,
    catalog: &Catalog,
    source: NodeId,
    receivers: impl Iterator<Item = NodeId>,
) -> bool {
    let Some(network) = network.filter(|network| network.computes_rates) else { return false };
    let stands = |node: NodeId| catalog.node(node).is_some_and(|it| network.host_of(&it.info).is_some());
    stands(source) && receivers.into_iter().all(stands)
}

/// Says of each cast that waits for an offer which one goes before it: of those that are being sent and rank before it, the first.
pub(super) fn put_in_line(casts: &mut BTreeMap<u64, Cast>) {
    let sent = |cast: &Cast| {
        let report = cast.transfer()?.1;
        (report.paused.is_none() && report.rate.get() > 0).then_some((report.rank, cast.number))
    };
    let first = casts.values().filter_map(sent).min();
    for cast in casts.values_mut() {
        let waits = cast.transfer().filter(|(_, report)| report.paused.is_some());
        let before = |(rank, number): (Rank, u64)| {
            waits.is_some_and(|(_, report)| rank <= report.rank) && number != cast.number
        };
        cast.behind = first.filter(|it| before(*it)).map(|(_, number)| number);
    }
}

impl Cast {
    /// Which transport brings it to that many receivers at computed rates.
    pub(super) fn delivery_by_rates(&self, below: &Below<'_>, receivers: usize) -> Delivery {
        let Urgency { precedence: Precedence { order, drops_late }, deadline } =
            self.urgency.unwrap_or_default();
        let order = match order {
            // The clocks of sources have nothing to do with each other.
            TransferOrder::FirstCome => {
                TransferOrder::Stated(Rank::of(self.begun.since(Time::ZERO).as_micros()))
            }
            order => order,
        };
        let node = below.catalog.node(self.source).map(|node| &node.info);
        let network = below.network.as_ref();
        let host = node.zip(network).and_then(|(info, network)| network.host_of(info));
        let line = host.zip(network).and_then(|(host, network)| network.line_of(host));
        let terms = RateTerms {
            precedence: Precedence { order, drops_late },
            link: node.and_then(|info| info.uplink).into_iter().chain(line).min(),
            around: network.map_or(0, |network| network.around().get() as u16),
            queue: network.map_or(Duration::ZERO, |network| network.tolerated_queue),
        };
        Delivery::Rate {
            receivers: u16::try_from(receivers).unwrap_or(u16::MAX),
            deadline: deadline.map(|all| all.saturating_sub(below.turn.now.since(self.begun))),
            terms: Some(terms),
        }
    }

    /// First estimate of the path to its receivers, before anything was sent: the longest of their round trips to the
    /// controller, with that of the source.
    pub(super) fn first_round_trip(&self, below: &Below<'_>, receivers: &[NodeId]) -> Option<Start> {
        let farthest = below.catalog.farthest(receivers)?;
        let info = &below.catalog.node(self.source)?.info;
        let rate = info.uplink.unwrap_or_default();
        Some(Start { rate, rtt: farthest.max(info.rtt.unwrap_or_default()) })
    }

    /// The source's last report about a transfer at computed rates, and its time.
    pub(super) fn transfer(&self) -> Option<(Time, TransferReport)> {
        match &self.route {
            Route::Multicast(Multicast::Open(OpenGroup { pace: GroupPace::Computed(report), .. })) => *report,
            _ => None,
        }
    }

    /// The source says how its transfer does.
    pub(super) fn transfer_reported(&mut self, now: Time, report: TransferReport) {
        if let Route::Multicast(Multicast::Open(group)) = &mut self.route
            && let GroupPace::Computed(last) = &mut group.pace
            && group.flow.flow == report.flow
        {
            *last = Some((now, report));
        }
    }

    /// How it does at computed rates, if it goes so.
    pub(crate) fn rate_news(&self, now: Time) -> Option<RateNews> {
        let (at, report) = self.transfer()?;
        let Route::Multicast(Multicast::Open(group)) = &self.route else { return None };
        let node_of = |flow| group.own.iter().find(|(_, its)| **its == flow).map(|(node, _)| *node);
        let sends = report.rate.get() > 0;
        Some(RateNews {
            rate: report.rate,
            least: report.least.and_then(|(flow, offer)| Some((node_of(flow)?, offer))),
            paused: report.paused.map(|paused| paused + now.since(at)),
            behind: self.behind,
            finish: sends.then(|| at.since(self.begun) + report.left / report.rate),
        })
    }

    /// News about that for the node that asked, if the cast goes at rates.
    pub(super) fn at_rates(&self, now: Time) -> Option<AtRates> {
        let left = self.unscheduled.map(AtRates::Left);
        left.or_else(|| self.rate_news(now).map(AtRates::Goes))
    }

    /// The source has found that no switch computes its rate: it opens a pulled group for the same receivers. Nobody falls back twice.
    pub(super) fn fall_back(&mut self, below: &mut Below<'_>, why: WhyUnscheduled) -> bool {
        let Route::Multicast(Multicast::Open(group)) = &self.route else { return false };
        let (at, of, flow) = (group.at, group.of, group.flow.flow);
        if !matches!((group.pace, self.stage), (GroupPace::Computed(_), Stage::Running)) {
            return false;
        }
        self.unscheduled = Some(why);
        self.behind = None;
        below.turn.stats.casts_unscheduled += 1;
        self.flows.remove(&flow);
        self.stop_at_source(below, flow);
        let is_served = |node: NodeId| {
            let member = self.members.get(node);
            member.is_some_and(|it| !it.has_ended() && it.served == Served::Shared && it.task.is_some())
        };
        let left: Vec<NodeId> = group.own.keys().copied().filter(|node| is_served(*node)).collect();
        match left.len() >= GroupPace::Pulled.least_members() {
            true => self.open_group(below, (at, GroupPace::Pulled), &left, of),
            false => {
                self.route = Route::Unicast(WhyUnicast::TooFew);
                self.pull_apart(below);
            }
        }
        true
    }

    /// Those that came at computed rates go on by pulls, each by itself.
    pub(super) fn pull_apart(&mut self, below: &mut Below<'_>) {
        self.stage = Stage::Running;
        for task in self.members.open_members().filter_map(|(_, member)| member.task) {
            below.deliveries.pull_instead(&mut below.turn, below.catalog, task, None);
        }
    }

    /// When receivers that do not have it by then are given up, if that was wished for.
    pub(super) fn drops_at(&self) -> Option<Time> {
        let drops = self.urgency.filter(|urgency| urgency.precedence.drops_late);
        drops.and_then(|urgency| Some(self.begun + urgency.deadline?))
    }

    /// Gives up receivers whose deadline has passed, where that was wished for.
    pub(super) fn drop_if_late(&mut self, below: &mut Below<'_>) {
        if self.drops_at().is_some_and(|at| below.turn.now >= at) && self.members.open() > 0 {
            self.end_open_members(below, &MemberStanding::Failed(LATE.to_owned()));
        }
    }
}

/// Why a receiver does not have what it was to have in time.
const LATE: &str = "its deadline has passed";
