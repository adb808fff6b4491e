//! Metric of a claim: an expression over the result tables.
//!
//! Leaves read rows; a [`Selector`] on a leaf, or on anything around it, says of which scheme and axis values. Every leaf
//! has a value per seed and operators work seed by seed, so a ratio of two schemes is paired. An axis or a scheme of
//! which there are several must be fixed by a selector or run over by an operator; the file is refused otherwise.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Tolerance;
use crate::scenario::Scheme;
use crate::table::Which;

/// Which runs: a scheme and axis values.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selector {
    /// The scheme; any, where there is only one.
    #[serde(default)]
    pub scheme: Option<Scheme>,
    /// Axis and value.
    #[serde(default)]
    pub at: BTreeMap<String, toml::Value>,
}

/// Metric of a claim.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Metric {
    /// A statistic of a column over a run's rows. NaN if any row has NaN (an unfinished task).
    Column {
        /// Of which table; tasks if absent.
        #[serde(default = "tasks")]
        table: Which,
        /// Of which column.
        column: String,
        /// Which statistic; the mean if absent.
        #[serde(default)]
        stat: Stat,
        /// Only rows in which these columns read so; of numbers also `{ from = 1, to = 69 }`, both included.
        #[serde(default, rename = "where")]
        filter: BTreeMap<String, toml::Value>,
        /// Of which runs.
        #[serde(default)]
        on: Selector,
    },
    /// The share of a run's rows whose value is at least `x`.
    ShareAtLeast {
        /// Of which table.
        table: Which,
        /// Of which column.
        column: String,
        /// The least value that counts.
        x: f64,
        /// Only rows in which these columns read so.
        #[serde(default, rename = "where")]
        filter: BTreeMap<String, toml::Value>,
        /// Of which runs.
        #[serde(default)]
        on: Selector,
    },
    /// In how many of the quantiles of a column, 1 % to 99 %, one scheme is below another, as a part: whether its distribution is
    /// the better one nearly everywhere.
    QuantilesBelow {
        /// Of which table; tasks if absent.
        #[serde(default = "tasks")]
        table: Which,
        /// Of which column.
        column: String,
        /// The scheme that should be below.
        of: Scheme,
        /// The scheme that should be above.
        than: Scheme,
        /// Only rows in which these columns read so.
        #[serde(default, rename = "where")]
        filter: BTreeMap<String, toml::Value>,
        /// Of which runs.
        #[serde(default)]
        on: Selector,
    },
    /// A scalar of a run.
    Measure {
        /// Its name.
        name: String,
        /// Of which runs.
        #[serde(default)]
        on: Selector,
    },
    /// A statistic of a time series in a window of time.
    Samples {
        /// Entities that it is of; with several, the statistics of each are put together by `across`.
        entities: Vec<String>,
        /// Of what.
        quantity: String,
        /// Start of the window, seconds, included.
        #[serde(default)]
        from_s: f64,
        /// End of the window, seconds, included; the end of the run if absent.
        #[serde(default)]
        to_s: Option<f64>,
        /// Which statistic of each entity.
        #[serde(default)]
        stat: Stat,
        /// How several entities are put together.
        #[serde(default)]
        across: Across,
        /// Of which runs.
        #[serde(default)]
        on: Selector,
    },
    /// How long after `from_s` a time series, or the ratio of two, comes within a band around its final value and stays
    /// there until `to_s`. The final value is the mean of the window's last quarter.
    Settle {
        /// Entity that it is of.
        entity: String,
        /// Divided by whose, if given.
        #[serde(default)]
        over: Option<String>,
        /// Of what.
        quantity: String,
        /// Start of the window, seconds.
        from_s: f64,
        /// End of the window, seconds.
        to_s: f64,
        /// Half the width of the band, as a part of the final value.
        band: f64,
        /// Samples that are averaged, the latest and those before it; 1 if absent.
        #[serde(default = "one")]
        smooth: usize,
        /// Whether it must stay in the band from then on; yes if absent. Where the final value itself is noisy, the first time
        /// is the answer.
        #[serde(default = "yes")]
        stay: bool,
        /// Seconds in the unit of the answer (a round trip, for instance); 1 if absent.
        #[serde(default = "unit")]
        unit_s: f64,
        /// Of which runs.
        #[serde(default)]
        on: Selector,
    },
    /// The smallest number, among entities that are numbers, whose value reaches `at_least` (PPUSH incast: flows).
    FirstEntity {
        /// Of what.
        quantity: String,
        /// The least value that counts.
        at_least: f64,
        /// Of which runs.
        #[serde(default)]
        on: Selector,
    },
    /// Mean `tct_s` of one scheme over that of another, seed by seed: the gain of the second (PPUSH §V-B).
    RatioOfMeans {
        /// The worse scheme.
        of: Scheme,
        /// The better scheme.
        over: Scheme,
        /// Of which runs.
        #[serde(default)]
        on: Selector,
    },
    /// One divided by the other.
    Ratio {
        /// Above the line.
        of: Box<Metric>,
        /// Below the line.
        over: Box<Metric>,
    },
    /// One less the other.
    Difference {
        /// From this.
        of: Box<Metric>,
        /// Take this.
        less: Box<Metric>,
    },
    /// All multiplied.
    Product {
        /// The factors.
        of: Vec<Metric>,
    },
    /// A number.
    Constant {
        /// It.
        value: f64,
    },
    /// The number of the axis value at hand.
    Axis {
        /// Which axis.
        name: String,
    },
    /// The lowest value among schemes, seed by seed.
    BestOf {
        /// Which schemes.
        schemes: Vec<Scheme>,
        /// Of what.
        of: Box<Metric>,
    },
    /// A pure function of this code, by name; see `claim/formula.rs` for the list.
    Formula {
        /// Which function.
        name: String,
        /// Its arguments.
        #[serde(default)]
        args: BTreeMap<String, f64>,
    },
    /// One value out of those along an axis.
    OverPoints {
        /// Which axis.
        axis: String,
        /// From this number of the axis on.
        #[serde(default)]
        from: Option<f64>,
        /// Up to this number of the axis.
        #[serde(default)]
        to: Option<f64>,
        /// Which value.
        pick: Pick,
        /// Value from which `farthest` is measured.
        #[serde(default)]
        target: Option<f64>,
        /// Of what.
        of: Box<Metric>,
    },
    /// The first number along an axis at which the value falls below, or reaches, a limit.
    FirstWhere {
        /// Which axis.
        axis: String,
        /// Less than this counts.
        #[serde(default)]
        below: Option<f64>,
        /// At least this counts.
        #[serde(default)]
        at_least: Option<f64>,
        /// Value to compare: the mean over seeds, or the median seed; mean if absent.
        #[serde(default)]
        stat: Stat,
        /// Of what.
        of: Box<Metric>,
    },
    /// Where along an axis the mean over seeds first passes a level from below, by interpolation (logarithmic along
    /// the axis if all its numbers are positive).
    Crossing {
        /// Which axis.
        axis: String,
        /// The level.
        level: f64,
        /// Of what.
        of: Box<Metric>,
    },
    /// A statistic over seeds of a value that each seed has: the median run, the worst one.
    OverSeeds {
        /// Which statistic.
        stat: Stat,
        /// Of what.
        of: Box<Metric>,
    },
    /// Whether the schemes stand in this order, best first, by their means over seeds.
    Ordering {
        /// Best first.
        schemes: Vec<Scheme>,
        /// Whether low or high is best.
        #[serde(default)]
        best: Best,
        /// By how much each must beat the next, as a part; a negative margin allows that much the other way.
        #[serde(default)]
        margin: f64,
        /// Of what.
        of: Box<Metric>,
    },
    /// Whether the mean over seeds moves so along an axis.
    Trend {
        /// Which axis.
        axis: String,
        /// From this number of the axis on.
        #[serde(default)]
        from: Option<f64>,
        /// Up to this number of the axis.
        #[serde(default)]
        to: Option<f64>,
        /// How it moves.
        direction: Direction,
        /// How far a single step may go the other way, as a part of the value; for `linear`, the share of variance that
        /// a line may leave unexplained.
        #[serde(default = "little")]
        slack: f64,
        /// How far it must move from end to end, as a part of the first value.
        #[serde(default)]
        least: f64,
        /// Of what.
        of: Box<Metric>,
    },
    /// Whether a value is within a tolerance.
    Holds {
        /// Operand.
        of: Box<Metric>,
        /// The value it is compared with, where the tolerance needs one.
        #[serde(default)]
        published: Option<f64>,
        /// How near.
        within: Tolerance,
    },
    /// Whether all are true.
    All {
        /// Of these.
        of: Vec<Metric>,
    },
    /// Whether every task of every listed scheme is done, and each scheme has at least one.
    Finished {
        /// Which schemes.
        schemes: Vec<Scheme>,
        /// Of which runs.
        #[serde(default)]
        on: Selector,
    },
}

/// A statistic of rows; written `mean`, `sum`, `min`, `max`, `median`, `count`, `last` or `p99`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum Stat {
    /// The mean.
    #[default]
    Mean,
    /// The sum.
    Sum,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The number of rows.
    Count,
    /// The last in the order of the rows.
    Last,
    /// The quantile, 0..=1.
    Quantile(f64),
}

/// How the values of several entities are put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Across {
    /// Added.
    #[default]
    Sum,
    /// Their mean.
    Mean,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// Jain's fairness index: 1 if all are alike, 1/n if one has it all.
    Jain,
}

/// Which value along an axis is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pick {
    /// The one with the largest mean over seeds.
    Max,
    /// The one with the smallest mean over seeds.
    Min,
    /// The one whose mean over seeds is farthest from the target.
    Farthest,
    /// Not one of them: the mean, seed by seed.
    Mean,
    /// Not one of them: the largest over the smallest less 1, of the means over seeds.
    Spread,
}

/// Whether low or high is best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Best {
    /// Low.
    #[default]
    Low,
    /// High.
    High,
}

/// How a value moves along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Up.
    Rising,
    /// Down.
    Falling,
    /// Up or down along a line.
    Linear,
}

fn tasks() -> Which {
    Which::Tasks
}
fn yes() -> bool {
    true
}

fn one() -> usize {
    1
}
fn unit() -> f64 {
    1.0
}
fn little() -> f64 {
    0.02
}

impl Stat {
    /// The statistic of these values, in the order of the rows; NaN of nothing (but a count of 0), and if a value is
    /// NaN.
    pub fn of(self, values: &[f64]) -> f64 {
        use crate::stats;
        if let Stat::Count = self {
            return values.len() as f64;
        }
        if values.is_empty() || values.iter().any(|x| x.is_nan()) {
            return f64::NAN;
        }
        match self {
            Stat::Mean => stats::mean(values).unwrap_or(f64::NAN),
            Stat::Sum => values.iter().sum(),
            Stat::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Stat::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Stat::Last => values[values.len() - 1],
            Stat::Quantile(q) => stats::quantile(values, q).unwrap_or(f64::NAN),
            Stat::Count => unreachable!("counted above"),
        }
    }
}

impl TryFrom<String> for Stat {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let fail =
            || format!("unknown statistic '{text}'; write mean, sum, min, max, median, count, last or p99");
        Ok(match text.as_str() {
            "mean" => Stat::Mean,
            "sum" => Stat::Sum,
            "min" => Stat::Min,
            "max" => Stat::Max,
            "median" => Stat::Quantile(0.5),
            "count" => Stat::Count,
            "last" => Stat::Last,
            other => {
                let percent = other.strip_prefix('p').and_then(|p| p.parse::<f64>().ok()).ok_or_else(fail)?;
                if !(0.0..=100.0).contains(&percent) {
                    return Err(fail());
                }
                Stat::Quantile(percent / 100.0)
            }
        })
    }
}
