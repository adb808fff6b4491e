//! Claims: what a paper says, how it is measured, how near we must come, and the verdict.
//!
//! A [`Claim`] has a [`Metric`], an expression over the result tables that is evaluated seed by seed, so that its mean
//! comes with a Student t interval; a published value; and a [`Tolerance`]. The verdict is computed from raw rows and
//! nothing else, so it can be computed again. What has no rows is pending; what has rows that do not say it is a miss.

use serde::{Deserialize, Serialize};

use crate::axis::Axis;
use crate::engine::{Engine, Scale};
use crate::stats;
use crate::table::Tables;
use crate::text::fnv1a;

mod check;
mod eval;
mod formula;
mod metric;
mod points;
mod rows;
mod series;
mod tolerance;
mod value;

pub(crate) use check::{Names, Shape};
pub(crate) use eval::{evaluate, rows, time_series};
pub use metric::{Across, Best, Direction, Metric, Pick, Selector, Stat};
pub use tolerance::{ParseToleranceError, Tolerance};
pub use value::{EvalError, Value};

/// A paper's statement, and how we check it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The catalogue's, with a part after a slash where one row holds several: `P-8a`, `P-8f/dctcp`.
    pub id: String,
    /// Quantity that is measured, in words.
    pub about: String,
    /// The paper's words or place.
    pub source: String,
    /// The published value.
    #[serde(default)]
    pub published: Option<Published>,
    /// How near we must come.
    pub within: Tolerance,
    /// How near we must come at small scale, where `within` is too narrow for so few tasks.
    #[serde(default)]
    pub within_small: Option<Tolerance>,
    /// The engines of which it is made; all of the experiment's if absent.
    #[serde(default)]
    pub engines: Option<Vec<Engine>>,
    /// The scales at which it is judged; all of the experiment's if absent.
    #[serde(default)]
    pub scales: Option<Vec<Scale>>,
    /// The verdict is `report` if the 95 % interval covers this value.
    #[serde(default)]
    pub report_if_covers: Option<f64>,
    /// Scheme and axis values that hold for the whole metric, where it does not say otherwise.
    #[serde(default)]
    pub on: Selector,
    /// Metric.
    pub metric: Metric,
}

/// A published value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Published {
    /// A number.
    Number(f64),
    /// Words.
    Words(String),
}

/// The end of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Within the tolerance.
    Pass,
    /// Not.
    Miss,
    /// The 95 % interval crosses the line.
    Undecided,
    /// Our number, without a pass line.
    Report,
    /// Not run, or not runnable yet.
    Pending,
}

/// A claim, judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The experiment's id.
    pub experiment: String,
    /// The claim's id.
    pub claim: String,
    /// Quantity that was measured, in words.
    pub about: String,
    /// The paper's words or place.
    pub source: String,
    /// Engine that computed the runs.
    pub engine: Engine,
    /// How large they were.
    pub scale: Scale,
    /// How many seeds had a value; 0 for a formula.
    pub seeds: u32,
    /// The published value, if there is one.
    pub published: Option<Published>,
    /// Ours: the mean over seeds; 1 or 0 for a claim that is true or false; nothing if there is no number.
    pub measured: Option<f64>,
    /// The 95 % interval of `measured`, from two seeds on.
    pub ci95: Option<(f64, f64)>,
    /// The lowest and the highest value of a seed, from two seeds on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64)>,
    /// How near it had to be.
    pub tolerance: String,
    /// A hash of the metric that was evaluated; results of before this was kept have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// The end of it.
    pub verdict: Outcome,
    /// The numbers behind a claim that is true or false, or why there is no number.
    pub note: String,
}

/// Context by which claims are judged.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The experiment's id.
    pub experiment: &'a str,
    /// Engine that computed the runs.
    pub engine: Engine,
    /// How large they were.
    pub scale: Scale,
    /// The rows of all jobs, with coordinates.
    pub tables: &'a Tables,
    /// The axes with the values of this scale.
    pub axes: &'a [Axis],
}

impl Claim {
    /// Whether it is judged for this engine at this scale.
    pub fn is_made_of(&self, engine: Engine, scale: Scale) -> bool {
        self.engines.as_ref().is_none_or(|list| list.contains(&engine))
            && self.scales.as_ref().is_none_or(|list| list.contains(&scale))
    }

    /// The tolerance at that scale.
    pub fn tolerance(&self, scale: Scale) -> &Tolerance {
        match (scale, &self.within_small) {
            (Scale::Small, Some(small)) => small,
            _ => &self.within,
        }
    }

    /// A hash of what is measured and on which runs.
    fn metric_hash(&self) -> String {
        format!("{:016x}", fnv1a(format!("{:?} {:?}", self.on, self.metric).as_bytes()))
    }

    /// Whether a verdict is of this claim as it is today: its id, published value, tolerance and metric.
    pub fn has_verdict(&self, verdict: &Verdict) -> bool {
        verdict.claim == self.id
            && verdict.published == self.published
            && verdict.tolerance == self.tolerance(verdict.scale).to_string()
            && verdict.metric.as_ref().is_none_or(|metric| *metric == self.metric_hash())
    }

    /// The verdict `pending`, for that reason.
    pub fn pending(&self, experiment: &str, engine: Engine, scale: Scale, reason: String) -> Verdict {
        Verdict {
            experiment: experiment.to_owned(),
            claim: self.id.clone(),
            about: self.about.clone(),
            source: self.source.clone(),
            engine,
            scale,
            seeds: 0,
            published: self.published.clone(),
            measured: None,
            ci95: None,
            range: None,
            tolerance: self.tolerance(scale).to_string(),
            metric: Some(self.metric_hash()),
            verdict: Outcome::Pending,
            note: reason,
        }
    }

    /// Judges it by the tables.
    pub fn judge(&self, context: &Context<'_>) -> Verdict {
        let blank = |note: String| self.pending(context.experiment, context.engine, context.scale, note);
        let (value, note) = match eval::evaluate(&self.metric, &self.on, context) {
            Ok(found) => found,
            Err(error) => {
                let verdict = if error.is_pending() { Outcome::Pending } else { Outcome::Miss };
                return Verdict { verdict, ..blank(error.to_string()) };
            }
        };
        let (measured, ci95, range, seeds) = match &value {
            Value::Truth(truth, seeds) => (f64::from(u8::from(*truth)), None, None, *seeds),
            Value::Number(number, seeds) => (*number, None, None, *seeds),
            Value::Seeds(by_seed) => {
                let values: Vec<f64> = by_seed.values().copied().collect();
                let mean = stats::mean(&values).unwrap_or(f64::NAN);
                let range = (values.len() > 1).then(|| (Stat::Min.of(&values), Stat::Max.of(&values)));
                (mean, stats::interval95(&values), range, values.len() as u32)
            }
        };
        let finite = |x: f64| x.is_finite().then_some(x);
        let both_finite = |(low, high): &(f64, f64)| low.is_finite() && high.is_finite();
        let (ci95, range) = (ci95.filter(both_finite), range.filter(both_finite));
        let verdict = self.outcome(context.scale, measured, ci95);
        let note = match (note.is_empty(), measured.is_finite(), self.is_covered_by(ci95)) {
            (false, ..) => note,
            (_, false, _) => "there is no finite value: unfinished tasks, or a division by zero".to_owned(),
            (.., true) => "the 95 % interval covers the value that would decide".to_owned(),
            _ => String::new(),
        };
        Verdict { seeds, measured: finite(measured), ci95, range, verdict, ..blank(note) }
    }

    /// Outcome of a claim for a measured value and its 95 % interval.
    ///
    /// At small scale the mean decides: two seeds give no interval that says anything.
    pub fn outcome(&self, scale: Scale, measured: f64, ci95: Option<(f64, f64)>) -> Outcome {
        let (tolerance, published) = (self.tolerance(scale), self.published_number());
        let judged = ci95.filter(|_| scale == Scale::Paper);
        if *tolerance == Tolerance::Report || self.is_covered_by(ci95) {
            Outcome::Report
        } else if judged.is_some_and(|interval| tolerance.is_crossed_by(interval, published)) {
            Outcome::Undecided
        } else if tolerance.holds(measured, published) {
            Outcome::Pass
        } else {
            Outcome::Miss
        }
    }

    fn is_covered_by(&self, ci95: Option<(f64, f64)>) -> bool {
        let covers = |(low, high): (f64, f64)| {
            self.report_if_covers.is_some_and(|value| low <= value && value <= high)
        };
        ci95.is_some_and(covers)
    }

    /// The published value, where it is a number.
    pub fn published_number(&self) -> Option<f64> {
        match self.published {
            Some(Published::Number(number)) => Some(number),
            _ => None,
        }
    }
}

impl Verdict {
    /// Puts a remark behind the note.
    pub fn add_note(&mut self, remark: &str) {
        if !self.note.is_empty() {
            self.note += "; ";
        }
        self.note += remark;
    }
}
