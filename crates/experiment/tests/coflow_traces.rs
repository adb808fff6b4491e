//! The reader of coflow traces: the public trace, what it refuses, and policies on what it has read.

use headwater_experiment::coflow::{Clock, Group, NAMES, PolicyName, Setup, Summary, complete};
use headwater_experiment::workload::coflow_trace::{
    CoflowTrace, MAX_BYTES, MAX_FLOWS, Problem, TraceCoflow, TraceError,
};
use headwater_policy::coflow::Port;
use headwater_units::{BitRate, Bytes, TaskId, Time};
use proptest::prelude::*;

/// The public trace (data/SOURCES.md).
const PUBLIC: &[u8] = include_bytes!("../data/fb2010-1hr-150-0.txt");

fn public() -> CoflowTrace {
    CoflowTrace::parse(PUBLIC).unwrap()
}

#[test]
fn the_public_trace_has_its_published_totals() {
    let trace = public();
    assert_eq!((trace.ports, trace.coflows.len()), (150, 526));
    let widths: Vec<usize> = trace.coflows.iter().map(TraceCoflow::width).collect();
    assert_eq!(widths.iter().sum::<usize>(), 706_397);
    assert_eq!(widths.iter().filter(|width| **width == 1).count(), 123);
    assert_eq!(widths.iter().max(), Some(&21_170));
    let bytes = |coflow: &TraceCoflow| coflow.reducers.iter().map(|(_, bytes)| bytes.get()).sum::<u64>();
    assert_eq!(trace.bytes().get(), 35_533_534 << 20);
    assert_eq!(trace.coflows.iter().map(bytes).max(), Some(8_501_205 << 20));
    let last = trace.coflows.iter().map(|coflow| coflow.arrival).max();
    assert_eq!(last, Some(Time::from_nanos(3_629_235_000_000)));
    let specs = trace.specs(trace.ports);
    let sent: u64 = specs.iter().flat_map(|spec| &spec.flows).map(|flow| flow.bytes.get()).sum();
    assert_eq!(sent, 35_533_534 << 20, "parts of a reducer's megabytes add up to the byte");
    let groups = Group::EACH.map(|group| trace.coflows.iter().filter(|coflow| group.holds(coflow)).count());
    assert_eq!(groups[0], groups[1..].iter().sum::<usize>(), "each coflow is in one group");
}

#[test]
fn a_trace_reads_back_from_its_own_text() {
    let trace = public();
    assert_eq!(CoflowTrace::parse(trace.to_text().as_bytes()), Ok(trace));
}

#[test]
fn a_trace_folds_onto_fewer_hosts() {
    let trace = CoflowTrace::parse(b"5 1\n7 20 2 1 4 2 3:1.0 0:0.5\n").unwrap();
    let flows: Vec<_> =
        trace.specs(3)[0].flows.iter().map(|it| (it.source.0, it.receiver.0, it.bytes.get())).collect();
    let half = 1 << 19;
    assert_eq!(flows, [(1, 0, half), (1, 0, half), (1, 0, half / 2), (1, 0, half / 2)]);
}

fn error(text: &str) -> TraceError {
    CoflowTrace::parse(text.as_bytes()).unwrap_err()
}

#[test]
fn wrong_fields_are_named_by_line_with_a_remedy() {
    let of = |line: &str| format!("9 2\n1 0 1 2 1 3:1.0\n{line}\n");
    for (text, line, field, must_say) in [
        (String::new(), 1, "number of ports", "the line ends before it"),
        ("150".to_owned(), 1, "number of coflows", "truncated"),
        ("0 1".to_owned(), 1, "number of ports", "not within 1 and 65535"),
        ("9 0".to_owned(), 1, "number of coflows", "not within 1"),
        ("9 1 1".to_owned(), 1, "end of line", "'1' follows"),
        ("9 2\n1 0 1 2 1 3:1.0".to_owned(), 3, "line", "there are 1 coflows, and the first line says 2"),
        (of("2 0 1 2 1 3:1.0\n3 0 1 2 1 3:1.0"), 4, "line", "remove what follows"),
        (of(""), 3, "coflow id", "the line ends before it"),
        (of("2 0 1 2 1"), 3, "reducer 1", "truncated"),
        (of("2 0 3 2 1"), 3, "port of mapper 3", "truncated"),
        (of("2 0 1 2 1 3:1.0 4:1.0"), 3, "end of line", "'4:1.0' follows"),
        (of("x 0 1 2 1 3:1.0"), 3, "coflow id", "'x' is not a number"),
        (of("1 0 1 2 1 3:1.0"), 3, "coflow id", "coflow 1 is on line 2 already"),
        (of("2 -5 1 2 1 3:1.0"), 3, "arrival in ms", "'-5' is negative"),
        (of("2 1.5 1 2 1 3:1.0"), 3, "arrival in ms", "'1.5' is not a number"),
        (of("2 99999999999999999999 1 2 1 3:1.0"), 3, "arrival in ms", "not within 0 and 2592000000"),
        (of("2 0 0 1 3:1.0"), 3, "number of mappers", "not within 1 and 9"),
        (of("2 0 1 9 1 3:1.0"), 3, "port of mapper 1", "port 9 does not exist: the first line gives 9 ports"),
        (of("2 0 2 4 4 1 3:1.0"), 3, "port of mapper 2", "port 4 is listed already; merge"),
        (of("2 0 1 4 2 3:1.0 3:2.0"), 3, "port of reducer 2", "port 3 is listed already; merge"),
        (of("2 0 1 4 1 3"), 3, "reducer 1", "write <port>:<MB>"),
        (of("2 0 1 4 1 -3:1.0"), 3, "port of reducer 1", "'-3' is negative"),
        (of("2 0 1 4 1 3:-1.0"), 3, "MB of reducer 1", "'-1.0' is negative"),
        (of("2 0 1 4 1 3:NaN"), 3, "MB of reducer 1", "'NaN' is not a number"),
        (of("2 0 1 4 1 3:inf"), 3, "MB of reducer 1", "'inf' is not a number"),
        (of("2 0 1 4 1 3:1e9"), 3, "MB of reducer 1", "'1e9' is not a number"),
        (of("2 0 1 4 1 3:"), 3, "MB of reducer 1", "'' is not a number"),
        (of("2 0 1 4 1 3:."), 3, "MB of reducer 1", "'.' is not a number"),
        ("9 1\n1 0 1 2 1 3:1".to_owned(), 2, "end of file", "does not end with a newline"),
        (of("2 0 1 4 1 3:9999999999.0"), 3, "MB of reducer 1", "scale them down"),
    ] {
        let error = error(&text);
        assert_eq!((error.line, error.field.as_str()), (line, field), "{text:?}: {error}");
        assert!(error.to_string().contains(must_say), "{text:?}: {error}");
    }
}

#[test]
fn sums_of_sizes_that_overflow_and_bytes_that_are_no_text_are_refused() {
    let largest = MAX_BYTES >> 20;
    let two = format!("9 2\n1 0 1 2 1 3:{largest}\n2 0 1 2 1 3:0.000001\n");
    assert_eq!(error(&two).line, 3, "each fits, both do not");
    let raw = CoflowTrace::parse(b"9 2\n1 0 1 2 1 3:1.0\n2 \xff").unwrap_err();
    assert_eq!((raw.line, raw.problem), (3, Problem::NotText));
}

#[test]
fn more_flows_than_fit_into_memory_are_refused_on_the_line_that_brings_them() {
    let half = MAX_FLOWS / 2;
    let (mappers, reducers) = (half / 2_500, 2_500);
    let line = |id: u64, reducers: u64| {
        let mapper = |port: u64| format!(" {port}");
        let reducer = |port: u64| format!(" {port}:1");
        let (from, to): (String, String) =
            ((0..mappers).map(mapper).collect(), (0..reducers).map(reducer).collect());
        format!("{id} 0 {mappers}{from} {reducers}{to}\n")
    };
    let most = format!("3000 2\n{}{}", line(1, reducers), line(2, reducers));
    let trace = CoflowTrace::parse(most.as_bytes()).unwrap();
    let flows: usize = trace.coflows.iter().map(TraceCoflow::width).sum();
    assert_eq!(flows as u64, MAX_FLOWS, "as many as may be");
    let error = error(&format!("3000 2\n{}{}", line(1, reducers), line(2, reducers + 1)));
    assert_eq!((error.line, error.field.as_str()), (3, "line"), "{error}");
    assert_eq!(error.problem, Problem::TooManyFlows { flows: MAX_FLOWS + mappers });
    assert!(error.to_string().contains("split it into several files"), "{error}");
}

/// Every prefix of a trace is refused: a truncated file is never taken for a short one.
#[test]
fn no_prefix_of_a_trace_is_one() {
    let text = "9 2\n1 0 1 2 1 3:1.0\n2 10 2 4 5 2 3:2.0 6:7.0\n";
    for end in 0..text.len() {
        assert!(CoflowTrace::parse(&text.as_bytes()[..end]).is_err(), "{:?}", &text[..end]);
    }
    assert!(CoflowTrace::parse(text.as_bytes()).is_ok());
}

fn any_trace() -> impl Strategy<Value = CoflowTrace> {
    let ports = prop::collection::btree_set(0..12_u16, 1..5);
    let sizes = prop::collection::btree_map(0..12_u16, 0..30_000_000_u64, 1..5);
    let one = (0..4_u64, ports, sizes);
    prop::collection::vec(one, 1..6).prop_map(|list| {
        let make = |(id, (arrival, mappers, reducers)): (u64, (u64, std::collections::BTreeSet<u16>, _))| {
            let reducers: std::collections::BTreeMap<u16, u64> = reducers;
            TraceCoflow {
                id: TaskId(id),
                arrival: Time::from_nanos(arrival * 5_000_000),
                mappers: mappers.into_iter().map(Port).collect(),
                reducers: reducers.into_iter().map(|(port, bytes)| (Port(port), Bytes::new(bytes))).collect(),
            }
        };
        CoflowTrace { ports: 12, coflows: (0..).zip(list).map(make).collect() }
    })
}

fn setup(ports: u16) -> Setup {
    Setup { ports, rate: BitRate::new(1_000_000_000), clock: Clock::Exact }
}

proptest! {
    #[test]
    fn what_is_written_reads_back_the_same(trace in any_trace()) {
        prop_assert_eq!(CoflowTrace::parse(trace.to_text().as_bytes()), Ok(trace));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(text in "[0-9 :.\\-\n]{0,60}") {
        let _ = CoflowTrace::parse(text.as_bytes());
    }

    /// Every policy ends every coflow, alone and under Courier, no sooner than its own bottleneck allows.
    #[test]
    fn every_policy_ends_every_coflow(trace in any_trace()) {
        for (_, scheduler) in NAMES {
            for policy in [PolicyName::Alone(scheduler), PolicyName::Courier(scheduler), PolicyName::DjangoLike(2)] {
                let seconds = complete(&trace, &setup(12), policy).unwrap();
                for (coflow, seconds) in trace.coflows.iter().zip(&seconds) {
                    let inbound = coflow.reducers.iter().map(|(port, bytes)| match coflow.mappers.contains(port) {
                        true => bytes.get() as f64 * (1.0 - 1.0 / coflow.mappers.len() as f64) - 1.0,
                        false => bytes.get() as f64,
                    });
                    let least = inbound.fold(0.0, f64::max) * 8.0 / 1e9;
                    prop_assert!(*seconds >= least - 2e-9, "{policy}: {seconds} of {least}");
                }
            }
        }
    }
}

/// The order of the claim, on the public trace's first coflows: Varys and Sincronia below Aalo, Aalo below fair.
///
/// The whole trace takes a minute; `headwater lab coflow` runs it, and docs/coflows.md has its figures.
#[test]
fn clairvoyant_policies_are_faster_than_aalo_and_aalo_than_fair_sharing() {
    let mut trace = public();
    trace.coflows.truncate(120);
    let mean = |name: &str| {
        let seconds = complete(&trace, &setup(150), name.parse().unwrap()).unwrap();
        Summary::of(&trace, &seconds).unwrap().all.mean
    };
    let (fair, aalo) = (mean("fair"), mean("aalo"));
    assert!(aalo < fair, "{aalo} and {fair}");
    for name in ["varys", "sincronia"] {
        let mean = mean(name);
        assert!(mean < aalo, "{name}: {mean} and {aalo}");
    }
}
