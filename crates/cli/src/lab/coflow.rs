//! `headwater lab coflow`: its options and its table.

use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::{Args, ValueHint};
use headwater_api::Shutdown;
use headwater_experiment::coflow::{Clock, PolicyName, Setup};
use headwater_lab::{self as lab, CoflowOptions, CoflowOutcome};
use headwater_units::{Bytes, Duration};

use crate::Failure;
use crate::output::Terminal;
use crate::tables::Table;
use crate::values::Rate;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater lab coflow trace.txt                               six policies, as a table
  headwater lab coflow trace.txt --plot cct.svg                and the distribution of completion times
  headwater lab coflow trace.txt --policy sincronia,aalo --ports 16 --rate 10Gbit/s
  headwater lab coflow trace.txt --policy sincronia,sincronia+courier --ports 16
  headwater lab coflow trace.txt --policy varys --emulate-epochs 10240ms,8ms --rate 1073741824bit/s

The trace has the format of the public coflow benchmark: a line `PORTS COFLOWS`, then a line per coflow: id, arrival in ms, number of
mappers, the port of each, number of reducers, and PORT:MB of each (ports count from 0, a MB is 2^20 bytes, mappers send even parts).

Policies: fair (per flow, max-min), fifo, scf (the coflow with the least left first), varys (SEBF and MADD), aalo (D-CLAS as rates),
aalo-order (D-CLAS as an order), sincronia (BSSI at each arrival and end), sincronia-offline (BSSI once, over the whole trace), each also
as NAME+courier (Courier's agents, 10 lanes per host; they ask at every end of a flow, which suits traces of some thousand flows), and
django-like:N (Varys with N flows per host at most).

The network is one switch that never blocks. Flows that stay on their port take no time. A coflow of at most 50 flows is narrow, one
whose flows are all below 5 MB is short.

With --json, one line per policy: policy, coflows, mean_cct_s, p50_cct_s, p90_cct_s, p99_cct_s, max_cct_s, deciles_s (10 % to 100 %),
cpu_seconds, peak_rss_bytes. All but the last two are the same, byte for byte, on every run and for every --jobs.")]
pub(crate) struct CoflowArgs {
    /// File of coflows
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath)]
    trace: PathBuf,
    /// Policies to compare, in this order
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "fair,fifo,scf,varys,aalo,sincronia"
    )]
    policy: Vec<PolicyName>,
    /// Number of hosts; port p of the trace is host p modulo N [default: as many as the trace has ports]
    #[arg(long, value_name = "N")]
    ports: Option<NonZero<u16>>,
    /// Rate at which each host can send, and receive, as in 1Gbit/s (bits) or 125MB/s (bytes)
    #[arg(long, value_name = "RATE", default_value = "1Gbit/s")]
    rate: Rate,
    /// Go on by steps, as CoflowSim does: coflows begin at whole epochs, and flows end at whole steps
    #[arg(long, value_name = "EPOCH,STEP")]
    emulate_epochs: Option<Epochs>,
    /// Draw the distribution of completion times to this file: .svg or .png
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    plot: Option<PathBuf>,
    /// Number of policies to compute at once; the peak of memory is then that of all together
    #[arg(short, long, value_name = "N", default_value = "1")]
    jobs: NonZero<usize>,
}

/// `10240ms,8ms`: the lengths of epochs and steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Epochs {
    epoch: Duration,
    step: Duration,
}

impl FromStr for Epochs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (epoch, step) =
            text.split_once(',').ok_or("write the epoch, a comma and the step: 10240ms,8ms")?;
        let time = |text: &str| text.parse::<Duration>().map_err(|error| error.to_string());
        let (epoch, step) = (time(epoch)?, time(step)?);
        if step == Duration::ZERO || epoch == Duration::ZERO {
            return Err("epoch and step must be above zero".to_owned());
        }
        if !epoch.as_nanos().is_multiple_of(step.as_nanos()) {
            return Err(format!("an epoch of {epoch} is not a whole number of steps of {step}"));
        }
        Ok(Epochs { epoch, step })
    }
}

impl fmt::Display for Epochs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epochs of {} in steps of {}", self.epoch, self.step)
    }
}

pub(super) fn act(args: &CoflowArgs, terminal: &Terminal, shutdown: &Shutdown) -> Result<(), Failure> {
    if let Some(plot) = &args.plot {
        lab::plot_format(plot)?;
    }
    let trace = Arc::new(lab::read_trace(&args.trace)?);
    let clock = args
        .emulate_epochs
        .map_or(Clock::Exact, |epochs| Clock::Epochs { epoch: epochs.epoch, step: epochs.step });
    let ports = args.ports.map_or(trace.ports, NonZero::get);
    let setup = Setup { ports, rate: args.rate.0, clock };
    let mut policies: Vec<PolicyName> = Vec::new();
    for policy in &args.policy {
        if !policies.contains(policy) {
            policies.push(*policy);
        }
    }
    let options = CoflowOptions { policies, setup, threads: args.jobs.get() };
    let stop = || shutdown.is_set();
    let mut over = |line: &lab::CoflowLine| {
        if !terminal.json() {
            let seconds = line.cpu_seconds.map_or_else(String::new, |s| format!(" after {s:.1} s"));
            terminal.note(&format!("{} is over{seconds}", line.policy));
        }
    };
    let outcomes = lab::run_coflows(&trace, &options, &stop, &mut over)?;
    if let Some(plot) = &args.plot {
        lab::draw_coflows(&outcomes, plot)?;
    }
    if terminal.json() {
        outcomes.iter().try_for_each(|outcome| terminal.json_line(&outcome.line))?;
        return Ok(());
    }
    let flows: usize = trace.coflows.iter().map(|coflow| coflow.width()).sum();
    let how = args.emulate_epochs.map_or_else(|| "exact to the event".to_owned(), |it| it.to_string());
    let mut text = format!(
        "{} coflows, {flows} flows, {ports} hosts at {}, {how}; completion times in seconds\n\n",
        trace.coflows.len(),
        args.rate.0
    );
    text += &table(&outcomes);
    if let Some(plot) = &args.plot {
        text += &format!("\nplot: {}\n", plot.display());
    }
    terminal.out(&text)?;
    Ok(())
}

/// A line per policy and group of coflows; processor time and memory are those of the policy's whole run.
fn table(outcomes: &[CoflowOutcome]) -> String {
    let headings = [
        "POLICY",
        "COFLOWS",
        " N",
        " MEAN",
        " P10",
        " P20",
        " P30",
        " P40",
        " P50",
        " P60",
        " P70",
        " P80",
        " P90",
        " P99",
        " MAX",
        " CPU",
        " PEAK RSS",
    ];
    let mut table = Table::new(&headings);
    for outcome in outcomes {
        for (place, (group, spread)) in outcome.summary.groups.iter().enumerate() {
            let unknown = || "-".to_owned();
            let of_run = |known: Option<String>| {
                if place == 0 { known.unwrap_or_else(unknown) } else { String::new() }
            };
            let decile = |at: usize| lab::digits(spread.deciles[at]);
            table.row([
                outcome.line.policy.clone(),
                group.to_string(),
                spread.coflows.to_string(),
                lab::digits(spread.mean),
                decile(0),
                decile(1),
                decile(2),
                decile(3),
                decile(4),
                decile(5),
                decile(6),
                decile(7),
                decile(8),
                lab::digits(spread.p99),
                decile(9),
                of_run(outcome.line.cpu_seconds.map(|seconds| format!("{seconds:.1} s"))),
                of_run(outcome.line.peak_rss_bytes.map(|bytes| Bytes::new(bytes).to_string())),
            ]);
        }
    }
    table.render("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_two_times_of_which_one_measures_the_other() {
        let epochs: Epochs = "10240ms,8ms".parse().unwrap();
        assert_eq!((epochs.epoch, epochs.step), (Duration::from_millis(10_240), Duration::from_millis(8)));
        for (text, must_say) in [
            ("8ms", "a comma"),
            ("10ms,0s", "above zero"),
            ("10ms,3ms", "not a whole number of steps"),
            ("x,1s", "'x'"),
        ] {
            let error = text.parse::<Epochs>().unwrap_err();
            assert!(error.contains(must_say), "{text}: {error}");
        }
    }
}
