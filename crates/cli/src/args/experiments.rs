//! Options that measure or change how flows are driven, for experiments.

use std::path::PathBuf;

use clap::Args;
use headwater_units::Duration;

use super::EXPERIMENT;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TimelineFlags {
    /// Write what each flow does to this file, as CSV
    ///
    /// The header is t_ns,object,flow,quantity,value; rows ascend in t_ns, nanoseconds of CLOCK_MONOTONIC, which all
    /// processes of a machine share. Of flows sent: window, in_flight (packets), rtt (s), mark_fraction, theta, rate
    /// (packets/s), and the counts sent, lost, marked, timeouts, yields (of a gentle flow to others). Of flows received: goodput
    /// (useful symbols/s) and the count useful. The last rows of a flow, at its end, have its totals.
    #[arg(long, value_name = "FILE", help_heading = EXPERIMENT, value_hint = clap::ValueHint::FilePath)]
    pub(crate) timeline: Option<PathBuf>,

    /// Time from sample to sample; samples lie on whole multiples of it [default: 10ms]
    #[arg(long, value_name = "TIME", requires = "timeline", help_heading = EXPERIMENT)]
    pub(crate) timeline_every: Option<Duration>,
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TuningFlag {
    /// Run the machines with the constants of a paper: the `transport` table of a scenario, as a file or as text
    ///
    /// TOML with any of initial_window, gain, min_rto, assignment, loss_response, theta_floor, theta_ceiling,
    /// feedback_every, as in 'gain = 0.0625, min_rto = "1 s"'. Constants that are left out have a scenario's values (PPUSH's
    /// evaluation: an ACK per symbol, no pacing, only CE marks), not the product's. Pulled flows have the table `pull`,
    /// as in 'pull = { levels = ["20 KB", "200 KB", "2 MB", "20 MB"], window = 12 }', with many_window, min_rto, headroom and
    /// detach_after; trees have `datacast`. Of a whole scenario or experiment file, the `transport` table is used. block_symbols,
    /// base_rtt and decode are for simulated hosts and change nothing here; settings that only simulations have (`swarm`, caches of
    /// `datacast`), duplicate_acks other than 3 and ack_every other than 1 are refused. Give it to every process of an experiment;
    /// --spread, --loss-response and --limit win over it.
    #[arg(long, value_name = "FILE|TEXT", help_heading = EXPERIMENT)]
    pub(crate) tuning: Option<String>,
}
