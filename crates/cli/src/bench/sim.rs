//! `headwater bench sim`: its options and its table.

use clap::Args;
use headwater_bench::figures::sim::{self, SimBench};
use headwater_units::Bytes;

use crate::Failure;
use crate::output::Terminal;
use crate::tables::Table;
use crate::usage::UsageError;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater bench sim
  headwater bench sim --job A1 --repeat 5 --json
  valgrind --tool=callgrind headwater bench sim --job B     instructions of the whole process

A packet-hop is one packet sent over one link, ACKs included. A1: 128 hosts of a fat-tree send 1382 packets each to another
one by DCTCP. A2: the same by NDP, with switches that trim. B: 16 hosts send 6907 packets each to one. ppush: 60 push tasks on one big switch, with the machines of the product.
S-7: 60 sessions of SCDP beside background on a fat-tree of 54 hosts, likewise (scdp/fig7 at small scale, its first run).

With --json, one object per job: job, flows_done, packet_hops, events, cpu_seconds, hops_per_cpu_second, peak_rss_bytes,
drops, marks, trims, timeouts, fct_us (mean, p50, p99, max).")]
pub(crate) struct SimArgs {
    /// Only this job, exactly once unless repeated: A1, A2, B, ppush or S-7
    #[arg(long, value_name = "JOB")]
    job: Option<String>,

    /// Number of runs of each job, of whose CPU times the median is taken
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
}

/// Runs it.
pub(super) fn act(args: &SimArgs, terminal: &Terminal) -> Result<(), Failure> {
    let mut printed = Ok(());
    let results = sim::run(args.job.as_deref(), args.repeat, |result| {
        if terminal.json() && printed.is_ok() {
            printed = terminal.json_line(result);
        }
    });
    printed?;
    let results = results.map_err(|error| UsageError::Options(error.to_string()))?;
    if !terminal.json() {
        terminal.out(&table(&results))?;
    }
    Ok(())
}

fn table(results: &[SimBench]) -> String {
    let mut table = Table::new(&[
        "JOB",
        "PACKET-HOPS",
        "EVENTS",
        "CPU",
        "M HOPS/CPU S",
        "PEAK",
        "DROPS",
        "MARKS",
        "MEAN FCT",
        "MAX FCT",
    ]);
    for r in results {
        table.row([
            r.job.to_owned(),
            r.packet_hops.to_string(),
            r.events.to_string(),
            format!("{:.3} s", r.cpu_seconds),
            format!("{:.2}", r.hops_per_cpu_second / 1e6),
            Bytes::new(r.peak_rss_bytes).to_string(),
            r.drops.to_string(),
            r.marks.to_string(),
            format!("{:.1} us", r.fct_us.mean),
            format!("{:.1} us", r.fct_us.max),
        ]);
    }
    table.render("")
}
