//! Formulas that claims check exactly, by name; each is the very function that the rest of the code uses.

use std::collections::BTreeMap;

use headwater_fabric::LinkId;
use headwater_policy::{Coflow, Demand, PathedFlow, Share, theta};
use headwater_switch::{AllocatorVariant, Claim, RateAllocator, RateAllocatorConfig, accuracy};
use headwater_units::{BitRate, Bytes, Duration, FlowId, Packets, Rank, TaskId, Theta, Time};
use headwater_wire::SchedulingKind;
use thiserror::Error;

use crate::workload::SizeTable;
use headwater_sim::fluid::datacast::bounds::{self, SlowestReceiver};
use headwater_sim::fluid::ppush::steady::Bottleneck;

/// A formula that cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub(super) enum FormulaError {
    /// No such name.
    #[error("there is no formula '{name}'; there are {}", NAMES.join(", "))]
    Unknown {
        /// As given.
        name: String,
    },
    /// The wrong arguments.
    #[error("formula '{name}' takes {takes}; given: {given}")]
    Arguments {
        /// The formula.
        name: &'static str,
        /// Arguments that it takes.
        takes: &'static str,
        /// Arguments that were given.
        given: String,
    },
    /// Arguments outside the formula's domain.
    #[error("formula '{name}': {reason}")]
    Domain {
        /// The formula.
        name: &'static str,
        /// Why not.
        reason: String,
    },
}

const NAMES: [&str; 16] = [
    "mark_fraction",
    "theta_ceiling",
    "token_theta",
    "websearch_share",
    "websearch_mean",
    "datamining_share",
    "datamining_mean",
    "datacast_cache",
    "datacast_duplicates",
    "datacast_goodput",
    "datacast_trees",
    "pam_division_error",
    "pam_share_error",
    "pam_false_positives",
    "pam_measured_false_positives",
    "pam_header",
];

/// The value of a formula.
///
/// * `mark_fraction { thetas, bdp, threshold }`: PPUSH Eq. 18, for weights that sum to `thetas`, a path that holds `bdp`
///   packets (C d) and a mark threshold K of `threshold` packets.
/// * `theta_ceiling { rtt_s, pps }`: PPUSH Eq. 20, for a loaded round trip and a rate in packets per second.
/// * `token_theta { flows, ceiling }`: PPUSH Alg. 1, the weight of the smallest of so many one-flow tasks on a link.
/// * `websearch_share { from_bytes, to_bytes }` and `datamining_share`: SCDP Table I, the part of all flows that is larger than
///   the one and at most the other; `websearch_mean` and `datamining_mean`, of nothing: the mean in bytes.
/// * `datacast_cache { rate_mbps, increase_mbps, interval_s, credit, packet_bytes, rtt_s }`: Datacast Theorem 1, bytes; negative
///   where no cache is needed. `datacast_duplicates { rate_mbps, increase_mbps, interval_s, packet_bytes, rtt_s }`: Theorem 2.
/// * `datacast_goodput { rate_mbps, packet_bytes, header_bytes }`: Mbit/s of payload in full packets.
/// * `datacast_trees { memory_bytes, cache_bytes }`: how many trees' caches a memory holds (Datacast §V-C).
/// * `pam_division_error { shifts }`: by how much a division by sums of right shifts is too small at most, as a part, over the divisors 1 to
///   1,024 (PAM Fig. 7). `pam_share_error { shifts, rate_kbps, transfers }`: by how much the fair share that a port made of such means
///   offers is below that of Algorithm 2 in floating point at most, with 2 to so many transfers on a link of this rate.
/// * `pam_false_positives { transfers, fanout, cells }`: the chance that a filter of three hashes and so many cells in all takes a transfer
///   for another one (PAM §IV-B); `pam_measured_false_positives { transfers, fanout, cells, others }`: the same as measured with so many
///   other transfers, and so many cells in each of three arrays, a power of two.
///
/// # Errors
/// [`FormulaError`] for an unknown name, arguments that are missing or too many, or values without an answer.
pub(super) fn value(name: &str, args: &BTreeMap<String, f64>) -> Result<f64, FormulaError> {
    match name {
        "mark_fraction" => {
            let [thetas, bdp, threshold] = given("mark_fraction", ["thetas", "bdp", "threshold"], args)?;
            mark_fraction(thetas, bdp, threshold)
        }
        "theta_ceiling" => {
            let [rtt, pps] = given("theta_ceiling", ["rtt_s", "pps"], args)?;
            // One byte a packet: a rate in packets then is the rate in bytes.
            let rate = BitRate::new((pps * 8.0) as u64);
            Ok(theta::theta_ceiling(Duration::from_secs_f64(rtt), rate, Bytes::new(1)).get())
        }
        "token_theta" => {
            let [flows, ceiling] = given("token_theta", ["flows", "ceiling"], args)?;
            token_theta(flows, ceiling)
        }
        "websearch_share" => share("websearch_share", SizeTable::Websearch, args),
        "datamining_share" => share("datamining_share", SizeTable::Datamining, args),
        "websearch_mean" => {
            let [] = given("websearch_mean", [], args)?;
            Ok(SizeTable::Websearch.mean().get() as f64)
        }
        "datamining_mean" => {
            let [] = given("datamining_mean", [], args)?;
            Ok(SizeTable::Datamining.mean().get() as f64)
        }
        "datacast_cache" => {
            let takes = ["rate_mbps", "increase_mbps", "interval_s", "credit", "packet_bytes", "rtt_s"];
            let [rate, increase, interval, credit, packet, rtt] = given("datacast_cache", takes, args)?;
            Ok(slowest("datacast_cache", [rate, increase, interval, credit, packet, rtt])?.cache_bound())
        }
        "datacast_duplicates" => {
            let takes = ["rate_mbps", "increase_mbps", "interval_s", "packet_bytes", "rtt_s"];
            let [rate, increase, interval, packet, rtt] = given("datacast_duplicates", takes, args)?;
            let receiver = slowest("datacast_duplicates", [rate, increase, interval, 1.0, packet, rtt])?;
            Ok(receiver.duplicate_bound())
        }
        "datacast_goodput" => {
            let takes = ["rate_mbps", "packet_bytes", "header_bytes"];
            let [rate, packet, header] = given("datacast_goodput", takes, args)?;
            let rate = BitRate::new((rate * 1e6).round() as u64);
            let goodput = bounds::goodput(rate, Bytes::new(packet as u64), Bytes::new(header as u64));
            Ok(goodput.get() as f64 / 1e6)
        }
        "datacast_trees" => {
            let [memory, cache] = given("datacast_trees", ["memory_bytes", "cache_bytes"], args)?;
            Ok(bounds::trees_cached(Bytes::new(memory as u64), Bytes::new(cache as u64)) as f64)
        }
        "pam_division_error" => {
            let [shifts] = given("pam_division_error", ["shifts"], args)?;
            Ok(accuracy::division_error(shifts_of("pam_division_error", shifts)?))
        }
        "pam_share_error" => {
            let takes = ["shifts", "rate_kbps", "transfers"];
            let [shifts, rate, transfers] = given("pam_share_error", takes, args)?;
            share_error(shifts_of("pam_share_error", shifts)?, rate, transfers)
        }
        "pam_header" => {
            let [] = given("pam_header", [], args)?;
            Ok(headwater_wire::SCHEDULING as f64)
        }
        "pam_false_positives" => {
            let takes = ["transfers", "fanout", "cells"];
            let [transfers, fanout, cells] = given("pam_false_positives", takes, args)?;
            Ok(accuracy::false_positives(transfers * fanout, cells))
        }
        "pam_measured_false_positives" => {
            let takes = ["transfers", "fanout", "cells", "others"];
            let [transfers, fanout, cells, others] = given("pam_measured_false_positives", takes, args)?;
            let is_array = cells >= 64.0 && cells <= f64::from(1 << 24) && (cells as u32).is_power_of_two();
            if !is_array || [transfers, fanout, others].iter().any(|it| !(1.0..=1e7).contains(it)) {
                let reason = "cells must be a power of two from 64 to 2^24, all else 1 to 10^7".to_owned();
                return Err(FormulaError::Domain { name: "pam_measured_false_positives", reason });
            }
            let (transfers, others) = (transfers as u64, others as u64);
            Ok(accuracy::measured_false_positives(fanout as u32, transfers, cells as u32, others))
        }
        other => Err(FormulaError::Unknown { name: other.to_owned() }),
    }
}

fn given<const N: usize>(
    name: &'static str,
    takes: [&'static str; N],
    args: &BTreeMap<String, f64>,
) -> Result<[f64; N], FormulaError> {
    let fail = || {
        let takes = match name {
            "mark_fraction" => "thetas, bdp, threshold",
            "theta_ceiling" => "rtt_s, pps",
            "token_theta" => "flows, ceiling",
            "websearch_share" | "datamining_share" => "from_bytes, to_bytes",
            "datacast_cache" => "rate_mbps, increase_mbps, interval_s, credit, packet_bytes, rtt_s",
            "datacast_duplicates" => "rate_mbps, increase_mbps, interval_s, packet_bytes, rtt_s",
            "datacast_goodput" => "rate_mbps, packet_bytes, header_bytes",
            "datacast_trees" => "memory_bytes, cache_bytes",
            "pam_division_error" => "shifts",
            "pam_share_error" => "shifts, rate_kbps, transfers",
            "pam_false_positives" => "transfers, fanout, cells",
            "pam_measured_false_positives" => "transfers, fanout, cells, others",
            _ => "nothing",
        };
        let given: Vec<&str> = args.keys().map(String::as_str).collect();
        FormulaError::Arguments { name, takes, given: given.join(", ") }
    };
    if args.len() != N {
        return Err(fail());
    }
    let mut values = [0.0; N];
    for (value, arg) in values.iter_mut().zip(takes) {
        *value = *args.get(arg).ok_or_else(fail)?;
    }
    Ok(values)
}

fn shifts_of(name: &'static str, shifts: f64) -> Result<u8, FormulaError> {
    if !(1.0..=8.0).contains(&shifts) {
        return Err(FormulaError::Domain { name, reason: format!("{shifts} shifts; write 1 to 8") });
    }
    Ok(shifts as u8)
}

/// Both allocators hear of one transfer more at a time, each of which shares fairly and sends nothing to speak of.
fn share_error(shifts: u8, rate_kbps: f64, transfers: f64) -> Result<f64, FormulaError> {
    let domain = |reason: String| FormulaError::Domain { name: "pam_share_error", reason };
    if !(2.0..=1e5).contains(&transfers) {
        return Err(domain(format!("{transfers} transfers; write 2 to 100000")));
    }
    let line = BitRate::new((rate_kbps * 1e3) as u64);
    // Nothing expires meanwhile.
    let config = |variant| RateAllocatorConfig {
        max_transfers: u32::MAX,
        ..RateAllocatorConfig::new(variant, Duration::from_secs(100))
    };
    let new = |variant| RateAllocator::new(&config(variant), line).map_err(|error| domain(error.to_string()));
    let mut exact = new(AllocatorVariant::Simple)?;
    let mut shifted = new(AllocatorVariant::Hardware { shifts, filter_cells: 1 << 20 })?;
    let mut worst: f64 = 0.0;
    for transfer in 1..=transfers as u64 {
        let claim = Claim {
            transfer: FlowId(transfer),
            kind: SchedulingKind::Data,
            rank: Rank::LAST,
            rate: BitRate::ZERO,
            offer: line,
        };
        let offer = |it: &mut RateAllocator| {
            let offer = it.pass(Time::ZERO, Bytes::ZERO, Bytes::ZERO, Some(&claim));
            offer.map_or(0.0, |offer| offer.get() as f64)
        };
        let (of_exact, of_shifted) = (offer(&mut exact), offer(&mut shifted));
        worst = worst.max(1.0 - of_shifted / of_exact);
    }
    Ok(worst)
}

fn share(name: &'static str, table: SizeTable, args: &BTreeMap<String, f64>) -> Result<f64, FormulaError> {
    let [from, to] = given(name, ["from_bytes", "to_bytes"], args)?;
    if !(from >= 0.0 && to >= from) {
        let reason = format!("from {from} to {to} bytes is no range");
        return Err(FormulaError::Domain { name, reason });
    }
    Ok(table.share(from, to))
}

fn slowest(
    name: &'static str,
    [rate, increase, interval, credit, packet, rtt]: [f64; 6],
) -> Result<SlowestReceiver, FormulaError> {
    let positive = [rate, increase, interval, credit, packet].iter().all(|it| *it > 0.0 && it.is_finite());
    if !(positive && rtt >= 0.0 && rtt.is_finite()) {
        let reason = "rtt_s must not be negative, all else must be positive".to_owned();
        return Err(FormulaError::Domain { name, reason });
    }
    Ok(SlowestReceiver {
        rate: BitRate::new((rate * 1e6).round() as u64),
        increase: BitRate::new((increase * 1e6).round() as u64),
        interval: Duration::from_secs_f64(interval),
        credit: Packets::new(credit),
        packet: Bytes::new(packet as u64),
        rtt: Duration::from_secs_f64(rtt),
    })
}

fn mark_fraction(thetas: f64, bdp: f64, threshold: f64) -> Result<f64, FormulaError> {
    if !(thetas >= 0.0 && bdp >= 0.0 && threshold > 0.0) {
        let reason = "thetas and bdp must not be negative, threshold must be positive".to_owned();
        return Err(FormulaError::Domain { name: "mark_fraction", reason });
    }
    // One packet a microsecond: a path of as many microseconds holds bdp packets.
    let bottleneck = Bottleneck {
        capacity: BitRate::new(8_000_000),
        packet: Bytes::new(1),
        propagation: Duration::from_secs_f64(bdp * 1e-6),
        mark_threshold: Packets::new(threshold),
    };
    Ok(bottleneck.mean_mark_fraction(&[Theta::new(thetas)]))
}

fn token_theta(flows: f64, ceiling: f64) -> Result<f64, FormulaError> {
    let domain = |reason: String| FormulaError::Domain { name: "token_theta", reason };
    if !(1.0..=10_000.0).contains(&flows) {
        return Err(domain(format!("{flows} flows; write 1 to 10000")));
    }
    let link = LinkId(0);
    let coflows = (0..flows as u64).map(|n| {
        let flow = PathedFlow::pooled(FlowId(n), [link].into_iter().collect());
        Coflow::sized(TaskId(n), Bytes::new(n + 1), vec![flow])
    });
    let bounds =
        theta::Bounds { ceilings: BTreeMap::from([(link, Some(Theta::new(ceiling)))]), ..Default::default() };
    let plan = theta::plan(&Demand { coflows: coflows.collect() }, &bounds)
        .map_err(|error| domain(error.to_string()))?;
    let Some(Share::Weight(theta)) = plan.share(FlowId(0)) else {
        return Err(domain("the plan has no weight for the smallest task".to_owned()));
    };
    Ok(theta.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formula(name: &str, args: &[(&str, f64)]) -> Result<f64, FormulaError> {
        value(name, &args.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect())
    }

    #[test]
    fn every_printed_value_of_the_paper_comes_out() {
        let alpha = |thetas| {
            formula("mark_fraction", &[("thetas", thetas), ("bdp", 0.0), ("threshold", 30.0)]).unwrap()
        };
        assert!((alpha(1.0) - 0.258).abs() < 5e-4 && (alpha(5.0) - 0.577).abs() < 5e-4);
        let with_delay =
            formula("mark_fraction", &[("thetas", 1.0), ("bdp", 80.0), ("threshold", 30.0)]).unwrap();
        assert!((with_delay - (2.0f64 / 110.0).sqrt()).abs() < 1e-9, "{with_delay}");
        assert_eq!(formula("theta_ceiling", &[("rtt_s", 110e-6), ("pps", 1e6)]), Ok(55.0));
        assert_eq!(formula("token_theta", &[("flows", 9.0), ("ceiling", 55.0)]), Ok(51.0));
        assert_eq!(formula("token_theta", &[("flows", 10.0), ("ceiling", 55.0)]), Ok(50.5));
    }

    #[test]
    fn published_sizes_have_their_means_and_shares() {
        let mean = |name| formula(name, &[]).unwrap() / 1e6;
        assert!(
            (mean("websearch_mean") - 1.666).abs() < 1e-3 && (mean("datamining_mean") - 7.47).abs() < 1e-3
        );
        let share = |name, from, to| formula(name, &[("from_bytes", from), ("to_bytes", to)]).unwrap();
        assert!((share("websearch_share", 1e6, 1e12) - 0.297).abs() < 6e-4);
        assert!((share("datamining_share", 0.0, 1e4) - 0.796).abs() < 6e-4);
        assert!(formula("websearch_share", &[("from_bytes", 2.0), ("to_bytes", 1.0)]).is_err());
        assert!(
            formula("websearch_mean", &[("from_bytes", 2.0)]).unwrap_err().to_string().contains("nothing")
        );
    }

    #[test]
    fn datacasts_theorems_have_their_printed_values() {
        let all = |credit, rtt| {
            [
                ("rate_mbps", 100.0),
                ("increase_mbps", 5.0),
                ("interval_s", 1e-3),
                ("credit", credit),
                ("packet_bytes", 1_500.0),
                ("rtt_s", rtt),
            ]
        };
        assert_eq!(formula("datacast_cache", &all(16.0, 80e-6)), Ok(102_000.0));
        let without_credit: Vec<_> =
            all(0.0, 0.0).into_iter().filter(|(name, _)| *name != "credit").collect();
        let duplicates = formula("datacast_duplicates", &without_credit).unwrap();
        assert!((duplicates - 0.01186).abs() < 5e-6, "{duplicates}");
        let of = [("rate_mbps", 100.0), ("packet_bytes", 1_500.0), ("header_bytes", 16.0)];
        assert!((formula("datacast_goodput", &of).unwrap() - 98.933).abs() < 5e-4);
        assert_eq!(formula("datacast_trees", &[("memory_bytes", 4e9), ("cache_bytes", 125e3)]), Ok(32_000.0));
        assert!(formula("datacast_cache", &all(-1.0, 0.0)).unwrap_err().to_string().contains("positive"));
        let error = formula("datacast_goodput", &[]).unwrap_err().to_string();
        assert!(error.contains("header_bytes"), "{error}");
    }

    #[test]
    fn shifts_and_filters_err_as_little_as_the_paper_says() {
        let error = |shifts| formula("pam_division_error", &[("shifts", shifts)]).unwrap();
        assert!(error(3.0) < 0.124 && error(4.0) < 0.061 && error(5.0) < 0.03);
        let of = [("transfers", 1e3), ("fanout", 20.0), ("cells", 8e6)];
        assert!((formula("pam_false_positives", &of).unwrap() - 4.17e-7).abs() < 1e-9);
        for rate in [500.0, 1e6, 1e8] {
            let of = [("shifts", 4.0), ("rate_kbps", rate), ("transfers", 1024.0)];
            let error = formula("pam_share_error", &of).unwrap();
            assert!((0.05..=0.08).contains(&error), "{rate} kbit/s: {error}");
        }
        assert!(formula("pam_division_error", &[("shifts", 9.0)]).is_err());
        let of = [("transfers", 1e3), ("fanout", 20.0), ("cells", 1000.0), ("others", 1e3)];
        assert!(formula("pam_measured_false_positives", &of).is_err());
    }

    #[test]
    fn unknown_names_and_wrong_arguments_say_what_there_is() {
        assert!(formula("alpha", &[]).unwrap_err().to_string().contains("mark_fraction"));
        let error = formula("token_theta", &[("flows", 1.0)]).unwrap_err().to_string();
        assert!(error.contains("flows, ceiling"), "{error}");
        assert!(formula("mark_fraction", &[("thetas", 1.0), ("bdp", -1.0), ("threshold", 30.0)]).is_err());
        assert!(formula("token_theta", &[("flows", f64::NAN), ("ceiling", 1.0)]).is_err());
        assert!(formula("token_theta", &[("flows", 2.0), ("ceiling", f64::NAN)]).is_err());
    }
}
