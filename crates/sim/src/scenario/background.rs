//! What is sent beside the workload: flows of other rules, without an end of their own.

use headwater_units::Duration;
use serde::{Deserialize, Serialize};

use super::{Scheme, text};

/// A flow that sends as much as its rules let it, beside the workload and whatever its scheme.
///
/// It has a row among the flows and samples under its name, as the workload's have. It is no task: it has no row among the
/// tasks, no part in a run's `goodput` and completion times, and no run waits for its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// What the claims call it; no task's name.
    pub name: String,
    /// The host that sends.
    pub from: u32,
    /// The host that receives.
    pub to: u32,
    /// Its rules: `reno`, `cubic`, `dctcp`, `dccp` or `ndp`.
    pub scheme: Scheme,
    /// When it starts; at once if absent.
    #[serde(default, with = "text::one")]
    pub start: Duration,
    /// When it stops; with the run if absent.
    #[serde(default, with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub stop: Option<Duration>,
}

/// Long flows at the lowest priority beside the workload, for the whole run (SCDP §IV-A).
///
/// Each is a [`Background`] of the scenario's own scheme in its gentle class; they are called `background-0` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermutedBackground {
    /// Of all hosts so many, drawn by the seed, each send to one other of them and receive from one other; 0.3 in the paper.
    pub share: f64,
}
