//! `headwater plan`: how long a cast will take, before it is asked for.
//!
//! The bound is that of peer-assisted file distribution (Kumar, Ross: Peer-assisted file distribution: the minimum distribution time,
//! HOTWEB 2006, eq. 1): with F bytes, holders that send u_s together, n receivers that receive at d_i and pass on at u_i,
//!
//! ```text
//!   T >= max( F / u_s,  F / min d_i,  n F / (u_s + sum u_i) )
//! ```
//! The overlay comes within a tenth of it where rates are equal (docs/one-to-many.md). Headers of packets are counted, disks and
//! processors are not.

use std::collections::BTreeSet;

use headwater_units::{BitRate, Bytes, Duration, NodeId};
use serde::Serialize;

use super::cast::in_order;
use super::local::status;
use super::requests::Cast;
use super::{AppError, NodeLine, ObjectLine, QueryOptions, StatusReport};

/// Bytes of a packet for each byte of payload: 1,430 of 1,500.
const HEADERS: f64 = 1500.0 / 1430.0;
/// The controller's memory for each receiver of a running cast (docs/one-to-many.md).
const RECEIVER_MEMORY: Bytes = Bytes::new(7_500);

/// Estimate of a cast.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PlanResult {
    /// The object's id.
    pub object: String,
    /// Its name, if it was named.
    pub name: Option<String>,
    /// Its size.
    pub bytes: u64,
    /// Nodes that it was asked for.
    pub receivers: usize,
    /// Of these, the ones that have it.
    pub have_it: usize,
    /// Number of receivers that are not connected, or keep no objects.
    pub away: usize,
    /// Nodes that can send it.
    pub holders: usize,
    /// Racks of those that have to be sent it; zero if none states one.
    pub racks: usize,
    /// Nodes whose rates are not known and were not assumed.
    pub unknown_rates: usize,
    /// The least time that the network allows, with the pauses of a rollout; absent if no rate is known.
    pub least_seconds: Option<f64>,
    /// Bottleneck that decides it.
    pub bound_by: Option<String>,
    /// All that is sent, over all links together.
    pub network_bytes: u64,
    /// The controller's memory while it goes on, beside what it takes now.
    pub controller_bytes: u64,
    /// By wave; one if there are none.
    pub waves: Vec<PlannedWave>,
}

/// A wave of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PlannedWave {
    /// Its receivers.
    pub receivers: usize,
    /// Those that do not have the object.
    pub to_serve: usize,
    /// Racks that these stand in.
    pub racks: usize,
    /// The least time that the network allows; absent if no rate is known.
    pub least_seconds: Option<f64>,
    /// Bottleneck that decides it: `sources`, `slowest receiver` or `all uplinks`.
    pub bound_by: Option<String>,
    /// The receiver with the slowest downlink.
    pub slowest: Option<String>,
}

/// Says what a cast will take. Rates that nodes neither state nor have shown are `assumed`, if anything is.
///
/// # Errors
/// The controller cannot be reached, knows no such object, or no such node.
pub async fn plan(
    query: QueryOptions,
    cast: &Cast,
    assumed: Option<BitRate>,
) -> Result<PlanResult, AppError> {
    let report = status(query).await?;
    planned(&report, cast, assumed)
}

fn planned(report: &StatusReport, cast: &Cast, assumed: Option<BitRate>) -> Result<PlanResult, AppError> {
    let object = object(report, &cast.what)?;
    let (to, _) = cast.to.ids(report)?;
    let receivers = in_order(report, &cast.what, &to);
    let holders: BTreeSet<NodeId> =
        nodes(report).filter(|node| object.holders.contains(&node.listen)).map(|node| node.id).collect();
    if !nodes(report).any(|node| node.up && holders.contains(&node.id)) {
        return Err(AppError::NoSource {
            object: cast.what.clone(),
            missing: object.bytes,
            hint: "it is known, but no node that holds it is online".to_owned(),
        });
    }
    let lines: Vec<&NodeLine> =
        receivers.iter().filter_map(|id| nodes(report).find(|node| node.id == *id)).collect();
    let is_away = |node: &&&NodeLine| !(holders.contains(&node.id) || node.up && node.keeps);
    let ends = match &cast.rollout {
        None => vec![lines.len()],
        Some(rollout) => rollout.waves.iter().map(|wave| wave.end(lines.len())).collect(),
    };
    let pause = cast.rollout.as_ref().map_or(Duration::ZERO, |rollout| rollout.pause);
    let network = Network { report, bytes: object.bytes, assumed };
    let (mut waves, mut from, mut sources) = (Vec::new(), 0, holders.clone());
    for end in ends {
        if end > from {
            let served: Vec<&NodeLine> = lines[from..end]
                .iter()
                .filter(|node| !holders.contains(&node.id) && node.up && node.keeps)
                .copied()
                .collect();
            waves.push(network.wave(end - from, &served, &sources));
            sources.extend(served.iter().map(|node| node.id));
            from = end;
        }
    }
    let served: usize = waves.iter().map(|wave| wave.to_serve).sum();
    let pauses =
        pause.as_secs_f64() * waves.iter().filter(|wave| wave.to_serve > 0).count().saturating_sub(1) as f64;
    let times: Option<Vec<f64>> = waves.iter().map(|wave| wave.least_seconds).collect();
    let longest =
        waves.iter().max_by(|a, b| a.least_seconds.unwrap_or(0.0).total_cmp(&b.least_seconds.unwrap_or(0.0)));
    let sending = sources.iter().filter_map(|id| nodes(report).find(|node| node.id == *id));
    let unknown = sending.filter(|node| network.up(node).is_none() || network.down(node).is_none()).count();
    Ok(PlanResult {
        object: object.object.to_string(),
        name: object.name.clone(),
        bytes: object.bytes.get(),
        receivers: lines.len(),
        have_it: lines.iter().filter(|node| holders.contains(&node.id)).count(),
        away: lines.iter().filter(is_away).count(),
        holders: nodes(report).filter(|node| node.up && holders.contains(&node.id)).count(),
        racks: racks(lines.iter().filter(|node| !holders.contains(&node.id)).copied()),
        unknown_rates: unknown,
        least_seconds: times.map(|times| times.iter().sum::<f64>() + pauses),
        bound_by: longest.and_then(|wave| wave.bound_by.clone()),
        network_bytes: (object.bytes.get() as f64 * HEADERS * served as f64) as u64,
        controller_bytes: RECEIVER_MEMORY.get()
            * waves.iter().map(|wave| wave.to_serve as u64).max().unwrap_or(0),
        waves,
    })
}

fn nodes(report: &StatusReport) -> impl Iterator<Item = &NodeLine> {
    report.nodes.iter()
}

/// The object that a name or the beginning of an id stands for.
fn object<'a>(report: &'a StatusReport, what: &str) -> Result<&'a ObjectLine, AppError> {
    let named = report.objects.iter().find(|line| line.name.as_deref() == Some(what));
    let by_id = || {
        let mut found = report.objects.iter().filter(|line| line.object.to_string().starts_with(what));
        let first = found.next().filter(|_| !what.is_empty())?;
        found.all(|line| line.object == first.object).then_some(first)
    };
    by_id().or(named).ok_or_else(|| {
        AppError::NotFound(format!(
            "the controller knows no object '{what}'; `headwater ls` lists them, `headwater put` adds one"
        ))
    })
}

/// How many racks these stand in.
fn racks<'a>(nodes: impl Iterator<Item = &'a NodeLine>) -> usize {
    nodes.filter_map(|node| node.rack.as_deref()).collect::<BTreeSet<_>>().len()
}

struct Network<'a> {
    report: &'a StatusReport,
    bytes: Bytes,
    /// Of nodes whose rates are not known.
    assumed: Option<BitRate>,
}

impl Network<'_> {
    fn up(&self, node: &NodeLine) -> Option<f64> {
        node.uplink.or(self.assumed).map(|rate| rate.get() as f64)
    }

    fn down(&self, node: &NodeLine) -> Option<f64> {
        node.downlink.or(self.assumed).map(|rate| rate.get() as f64)
    }

    /// A wave of `receivers`, of which `served` have to be served, by `sources`.
    fn wave(&self, receivers: usize, served: &[&NodeLine], sources: &BTreeSet<NodeId>) -> PlannedWave {
        let mut wave = PlannedWave {
            receivers,
            to_serve: served.len(),
            racks: racks(served.iter().copied()),
            ..PlannedWave::default()
        };
        if served.is_empty() {
            wave.least_seconds = Some(0.0);
            return wave;
        }
        let bits = self.bytes.get() as f64 * 8.0 * HEADERS;
        let sending: Option<Vec<f64>> = nodes(self.report)
            .filter(|node| node.up && sources.contains(&node.id))
            .map(|node| self.up(node))
            .collect();
        let passing_on: Option<Vec<f64>> = served.iter().map(|node| self.up(node)).collect();
        let receiving: Option<Vec<f64>> = served.iter().map(|node| self.down(node)).collect();
        let (Some(sending), Some(passing_on), Some(receiving)) = (sending, passing_on, receiving) else {
            return wave;
        };
        let of_sources: f64 = sending.iter().sum();
        let all_uplinks = of_sources + passing_on.iter().sum::<f64>();
        let slowest = receiving.iter().copied().fold(f64::INFINITY, f64::min);
        let bounds = [
            (bits / slowest, "slowest receiver"),
            (bits / of_sources, "sources"),
            (bits * served.len() as f64 / all_uplinks, "all uplinks"),
        ];
        let (seconds, by) =
            bounds.into_iter().fold((0.0, ""), |most, it| if it.0 > most.0 { it } else { most });
        (wave.least_seconds, wave.bound_by) = (Some(seconds), Some(by.to_owned()));
        let slow = served.iter().zip(&receiving).find(|(_, rate)| **rate == slowest);
        wave.slowest = slow.map(|(node, _)| node.listen.clone());
        wave
    }
}

#[cfg(test)]
mod tests {

    use headwater_units::ObjectId;

    use super::*;
    use crate::requests::{Receivers, Rollout, Wave};

    fn line(n: u8, up: u64, down: u64) -> NodeLine {
        let rate = |mbit: u64| (mbit > 0).then(|| BitRate::new(mbit * 1_000_000));
        let rack = (n > 2).then(|| format!("r{}", n % 2));
        let (uplink, downlink) = (rate(up), rate(down));
        NodeLine { uplink, downlink, rack, ..NodeLine::example(n, &format!("n{n}")) }
    }

    /// Node 1 has an object of 143 MB, which is 1.2 Gbit with headers.
    fn report(nodes: Vec<NodeLine>) -> StatusReport {
        let object = ObjectLine {
            object: ObjectId([0xab; 32]),
            name: Some("model".to_owned()),
            bytes: Bytes::new(143_000_000),
            holders: vec!["10.0.0.1:7001".to_owned()],
        };
        StatusReport { nodes, objects: vec![object], ..StatusReport::default() }
    }

    fn seconds(plan: &PlanResult) -> (f64, &str) {
        ((plan.least_seconds.unwrap() * 1e6).round() / 1e6, plan.bound_by.as_deref().unwrap())
    }

    #[test]
    fn the_least_time_is_that_of_the_tightest_of_three_bounds() {
        let cast = Cast::new("model", Receivers::All);
        let plan = |nodes: &[(u64, u64)]| {
            let nodes = (1..).zip(nodes).map(|(n, (up, down))| line(n, *up, *down)).collect();
            planned(&report(nodes), &cast, None).unwrap()
        };
        let even = plan(&[(100, 100); 5]);
        assert_eq!(seconds(&even), (12.0, "slowest receiver"));
        assert_eq!((even.receivers, even.have_it, even.holders, even.racks), (5, 1, 1, 2));
        assert_eq!(even.network_bytes, 600_000_000, "each of four once, with headers");
        let slow_source = plan(&[(50, 50), (100, 100), (100, 100)]);
        assert_eq!(seconds(&slow_source), (24.0, "sources"));
        // Five receivers with 20 Mbit/s up each, beside a source with 100: 200 in all.
        let asymmetric = plan(&[(100, 100), (20, 100), (20, 100), (20, 100), (20, 100), (20, 100)]);
        assert_eq!(seconds(&asymmetric), (30.0, "all uplinks"));
        let slow = plan(&[(100, 100), (100, 100), (100, 10)]);
        assert_eq!(seconds(&slow), (120.0, "slowest receiver"));
        assert_eq!(slow.waves[0].slowest.as_deref(), Some("10.0.0.3:7001"));
    }

    #[test]
    fn what_is_not_known_is_said_or_assumed() {
        let nodes = || vec![line(1, 100, 100), line(2, 0, 0), line(3, 100, 100)];
        let cast = Cast::new("model", Receivers::All);
        let plan = planned(&report(nodes()), &cast, None).unwrap();
        assert_eq!((plan.least_seconds, plan.unknown_rates), (None, 1));
        let plan = planned(&report(nodes()), &cast, Some(BitRate::new(50_000_000))).unwrap();
        assert_eq!((seconds(&plan), plan.unknown_rates), ((24.0, "slowest receiver"), 0));
        let mut away = report(nodes());
        away.nodes[0].up = false;
        let error = planned(&away, &cast, None).unwrap_err().to_string();
        assert!(error.contains("no node that holds it is online"), "{error}");
        let error = planned(&away, &Cast::new("other", Receivers::All), None).unwrap_err().to_string();
        assert!(error.contains("knows no object 'other'"), "{error}");
    }

    #[test]
    fn later_waves_have_more_sources() {
        let nodes: Vec<NodeLine> = (1..=9).map(|n| line(n, if n == 1 { 25 } else { 100 }, 100)).collect();
        let rollout = Rollout {
            waves: vec![Wave::Nodes(1), Wave::Nodes(3), Wave::Part(1.0)],
            pause: Duration::from_secs(60),
            max_failures: 0,
        };
        let plan =
            planned(&report(nodes), &Cast::new("model", Receivers::All).rollout(rollout), None).unwrap();
        let served: Vec<usize> = plan.waves.iter().map(|wave| wave.to_serve).collect();
        assert_eq!(served, [0, 2, 6], "the first is the source itself");
        assert_eq!(plan.waves[1].bound_by.as_deref(), Some("sources"));
        assert_eq!(plan.waves[2].bound_by.as_deref(), Some("slowest receiver"));
        assert_eq!(seconds(&plan).0, 48.0 + 12.0 + 60.0, "one pause");
    }
}
