//! Coflow traces from anybody: nothing panics, what is read reads back the same, and every coflow of a small one comes to its end.
#![no_main]

use headwater_experiment::coflow::{Clock, Setup, complete};
use headwater_experiment::workload::coflow_trace::CoflowTrace;
use headwater_units::BitRate;
use libfuzzer_sys::fuzz_target;

/// Larger ones take longer than a fuzzer should wait.
const FLOWS: usize = 200;

fuzz_target!(|bytes: &[u8]| {
    let Ok(trace) = CoflowTrace::parse(bytes) else { return };
    assert_eq!(CoflowTrace::parse(trace.to_text().as_bytes()).as_ref(), Ok(&trace), "one trace, one meaning");
    if trace.coflows.iter().map(|coflow| coflow.width()).sum::<usize>() > FLOWS || trace.ports > 200 {
        return;
    }
    let setup = Setup { ports: trace.ports, rate: BitRate::new(1_000_000_000), clock: Clock::Exact };
    for policy in ["fair", "fifo", "varys", "aalo-order", "sincronia"] {
        let policy = policy.parse().expect("a policy of ours");
        let seconds = complete(&trace, &setup, policy).expect("what was read can be run");
        assert_eq!(seconds.len(), trace.coflows.len());
    }
});
