//! Completion times in numbers: over all coflows, and by width and length.

use std::fmt;

use headwater_units::Bytes;

use crate::stats::{mean, quantile};
use crate::workload::coflow_trace::{CoflowTrace, TraceCoflow};

/// A coflow of more flows is wide (Varys' evaluation).
const NARROW: usize = 50;
/// A coflow whose largest flow is at least this large is long (Varys' evaluation: 5 MB).
const LONG: Bytes = Bytes::new(5_000_000);

/// Coflows of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// All.
    All,
    /// At most 50 flows, all of less than 5 MB.
    ShortNarrow,
    /// At most 50 flows, the largest of 5 MB or more.
    LongNarrow,
    /// More than 50 flows, all of less than 5 MB.
    ShortWide,
    /// More than 50 flows, the largest of 5 MB or more.
    LongWide,
}

impl Group {
    /// All coflows first.
    pub const EACH: [Group; 5] =
        [Group::All, Group::ShortNarrow, Group::LongNarrow, Group::ShortWide, Group::LongWide];

    /// Whether a coflow is in it.
    pub fn holds(self, coflow: &TraceCoflow) -> bool {
        let (wide, long) = (coflow.width() > NARROW, coflow.length() >= LONG);
        match self {
            Group::All => true,
            Group::ShortNarrow => !long && !wide,
            Group::LongNarrow => long && !wide,
            Group::ShortWide => !long && wide,
            Group::LongWide => long && wide,
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Group::All => "all",
            Group::ShortNarrow => "short narrow",
            Group::LongNarrow => "long narrow",
            Group::ShortWide => "short wide",
            Group::LongWide => "long wide",
        })
    }
}

/// Completion times of some coflows, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// How many coflows.
    pub coflows: usize,
    /// The mean.
    pub mean: f64,
    /// 99 %.
    pub p99: f64,
    /// 10 %, 20 % and so on; the last is the largest. Linear between neighbours.
    pub deciles: [f64; 10],
}

impl Spread {
    /// Of these; `None` of nothing.
    fn of(seconds: &[f64]) -> Option<Spread> {
        let mut deciles = [0.0; 10];
        for (place, decile) in (1..).zip(&mut deciles) {
            *decile = quantile(seconds, f64::from(place) / 10.0)?;
        }
        Some(Spread { coflows: seconds.len(), mean: mean(seconds)?, p99: quantile(seconds, 0.99)?, deciles })
    }

    /// The median.
    pub fn p50(&self) -> f64 {
        self.deciles[4]
    }

    /// 90 %.
    pub fn p90(&self) -> f64 {
        self.deciles[8]
    }

    /// The largest.
    pub fn max(&self) -> f64 {
        self.deciles[9]
    }
}

/// Completion times of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// All coflows.
    pub all: Spread,
    /// Every group that has a coflow, all of them first.
    pub groups: Vec<(Group, Spread)>,
}

impl Summary {
    /// Of a trace's coflows and their seconds, in its order; `None` of an empty trace.
    pub fn of(trace: &CoflowTrace, seconds: &[f64]) -> Option<Summary> {
        let spread = |group: Group| {
            let pairs = trace.coflows.iter().zip(seconds);
            let own: Vec<f64> = pairs.filter(|(coflow, _)| group.holds(coflow)).map(|(_, s)| *s).collect();
            Some((group, Spread::of(&own)?))
        };
        let groups: Vec<(Group, Spread)> = Group::EACH.into_iter().filter_map(spread).collect();
        Some(Summary { all: groups.first()?.1.clone(), groups })
    }
}
