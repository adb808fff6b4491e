//! The rows of the papers' evaluations (`experiments/catalogue.toml`), and what the stored verdicts make of them.
//!
//! A row is a figure, a table or a number of a paper. Its parts name the claims that decide it; it passes if all of them do.

use headwater_experiment::claim::{Outcome, Tolerance, Verdict};
use headwater_experiment::experiment::Engine;
use serde::{Deserialize, Serialize};

use crate::LabError;

/// All rows, in the papers' order.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// Each.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
}

/// A figure, a table or a number of a paper.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Letter of the paper and figure or section: `P-8a`.
    pub id: String,
    /// Whether it must pass for a system to count as reproduced.
    #[serde(default)]
    pub heart: bool,
    /// Setup that runs.
    pub setup: String,
    /// Metric that is measured.
    pub metric: String,
    /// Value that the paper states, with its place.
    pub published: String,
    /// How near an honest reproduction should come, in words.
    pub tolerance: String,
    /// How many seeds the paper has, where seeds matter.
    #[serde(default)]
    pub seeds: Option<u32>,
    /// How many tasks a run of the paper has, where it says so.
    #[serde(default)]
    pub size: Option<u64>,
    /// Why there is nothing to run, if so.
    #[serde(default)]
    pub without: Option<String>,
    /// Parts that decide it.
    #[serde(default)]
    pub parts: Vec<Part>,
}

/// Claims that a row needs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// A claim's id, or how the ids of several begin: `A-10/*`.
    pub claim: String,
    /// On these engines only.
    #[serde(default)]
    pub engines: Option<Vec<Engine>>,
    /// Which of several values counts; without it, each.
    #[serde(default)]
    pub pick: Option<Extreme>,
    /// The published value, where it is a number.
    #[serde(default)]
    pub published: Option<f64>,
    /// How near each must come.
    pub within: Tolerance,
}

/// One of several values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extreme {
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

/// Outcome of a row, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RowOutcome {
    /// Every part passes.
    Pass,
    /// There is no pass line.
    Report,
    /// An interval crosses a line, and nothing is worse.
    Undecided,
    /// A part has no result.
    Absent,
    /// A part misses.
    Miss,
}

/// A row, decided.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowResult {
    /// Its id.
    pub row: String,
    /// Its outcome.
    pub verdict: RowOutcome,
    /// How many of its claims pass, of how many.
    pub passed: usize,
    /// How many claims decide it.
    pub claims: usize,
    /// The fewest seeds behind a claim; 0 if there is none.
    pub seeds: u32,
    /// Those of the paper.
    pub seeds_wanted: Option<u32>,
    /// The fewest tasks of a run behind a claim.
    pub size: Option<u64>,
    /// Those of the paper.
    pub size_wanted: Option<u64>,
    /// Whether a claim is of other code than today's.
    pub stale: bool,
    /// Measured values, one per claim.
    #[serde(skip)]
    pub measured: Vec<(String, Option<f64>, String)>,
    /// Claims that do not pass.
    #[serde(skip)]
    pub failed: Vec<String>,
}

/// How many rows are what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RowCounts {
    /// All.
    pub rows: usize,
    /// Every part passes.
    pub pass: usize,
    /// A part misses.
    pub miss: usize,
    /// Not decided.
    pub undecided: usize,
    /// Without a pass line.
    pub report: usize,
    /// A part has no result.
    pub absent: usize,
    /// Of those, rows with a claim of other code than today's.
    pub stale: usize,
}

/// A stored verdict as rows need it.
#[derive(Clone, Debug)]
pub(super) struct Known<'a> {
    pub(super) verdict: &'a Verdict,
    /// Tasks of a run, at least.
    pub(super) size: Option<u64>,
    pub(super) stale: bool,
}

impl Rows {
    /// Parses the catalogue's text.
    ///
    /// # Errors
    /// [`LabError::Rows`] with line and reason.
    pub fn parse(text: &str) -> Result<Rows, LabError> {
        toml::from_str(text).map_err(|error| LabError::Rows { reason: error.to_string() })
    }

    /// Decides each by what is known.
    pub(super) fn decide(&self, known: &[Known<'_>]) -> Vec<RowResult> {
        self.rows.iter().map(|row| row.decide(known)).collect()
    }
}

impl Part {
    /// Whether it is about a claim.
    pub fn names(&self, claim: &str) -> bool {
        match self.claim.strip_suffix('*') {
            Some(start) => claim.starts_with(start),
            None => claim == self.claim,
        }
    }

    fn is_about(&self, verdict: &Verdict) -> bool {
        self.names(&verdict.claim)
            && self.engines.as_ref().is_none_or(|engines| engines.contains(&verdict.engine))
    }

    /// Outcome of one value of several: the picked one, if all are there.
    fn picked(&self, extreme: Extreme, found: &[&Known<'_>]) -> RowOutcome {
        let values: Option<Vec<f64>> = found.iter().map(|known| known.verdict.measured).collect();
        let best = values.into_iter().flatten().reduce(match extreme {
            Extreme::Max => f64::max,
            Extreme::Min => f64::min,
        });
        match best {
            Some(value) if self.within.holds(value, self.published) => RowOutcome::Pass,
            Some(_) => RowOutcome::Miss,
            None => RowOutcome::Absent,
        }
    }
}

impl From<Outcome> for RowOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Pass => RowOutcome::Pass,
            Outcome::Report => RowOutcome::Report,
            Outcome::Undecided => RowOutcome::Undecided,
            Outcome::Pending => RowOutcome::Absent,
            Outcome::Miss => RowOutcome::Miss,
        }
    }
}

impl Row {
    fn decide(&self, known: &[Known<'_>]) -> RowResult {
        let mut result = RowResult {
            row: self.id.clone(),
            verdict: RowOutcome::Pass,
            passed: 0,
            claims: 0,
            seeds: 0,
            seeds_wanted: self.seeds,
            size: None,
            size_wanted: self.size,
            stale: false,
            measured: Vec::new(),
            failed: Vec::new(),
        };
        if self.parts.is_empty() {
            result.verdict = if self.without.is_some() { RowOutcome::Report } else { RowOutcome::Absent };
        }
        let mut seeds = None;
        for part in &self.parts {
            let found: Vec<&Known<'_>> = known.iter().filter(|known| part.is_about(known.verdict)).collect();
            let outcomes: Vec<(String, RowOutcome)> = match part.pick {
                _ if found.is_empty() => vec![(part.claim.clone(), RowOutcome::Absent)],
                Some(extreme) => vec![(part.claim.clone(), part.picked(extreme, &found))],
                None => found
                    .iter()
                    .map(|known| (known.verdict.claim.clone(), known.verdict.verdict.into()))
                    .collect(),
            };
            for (claim, outcome) in outcomes {
                result.claims += 1;
                match outcome {
                    RowOutcome::Pass => result.passed += 1,
                    _ => result.failed.push(claim),
                }
                result.verdict = result.verdict.max(outcome);
            }
            for known in found {
                let verdict = known.verdict;
                let name = format!("{} ({})", verdict.claim, verdict.engine);
                result.measured.push((name, verdict.measured, verdict.tolerance.clone()));
                result.stale |= known.stale && verdict.verdict != Outcome::Pending;
                // Formulas and equations have no seeds, nor tasks.
                if verdict.seeds > 0 && verdict.engine != Engine::Fluid {
                    seeds = Some(seeds.map_or(verdict.seeds, |least: u32| least.min(verdict.seeds)));
                    result.size = [result.size, known.size].into_iter().flatten().min();
                }
            }
        }
        result.seeds = seeds.unwrap_or(0);
        result
    }
}

impl RowResult {
    /// Whether it is of fewer seeds or tasks than the paper has.
    pub fn is_reduced(&self) -> bool {
        let fewer = |ours: u64, wanted: Option<u64>| wanted.is_some_and(|wanted| ours > 0 && ours < wanted);
        fewer(self.seeds.into(), self.seeds_wanted.map(u64::from))
            || fewer(self.size.unwrap_or(0), self.size_wanted)
    }
}

impl RowCounts {
    /// Of some rows.
    pub fn of<'a>(results: impl IntoIterator<Item = &'a RowResult>) -> RowCounts {
        let mut counts = RowCounts::default();
        for result in results {
            counts.rows += 1;
            counts.stale += usize::from(result.stale);
            match result.verdict {
                RowOutcome::Pass => counts.pass += 1,
                RowOutcome::Miss => counts.miss += 1,
                RowOutcome::Undecided => counts.undecided += 1,
                RowOutcome::Report => counts.report += 1,
                RowOutcome::Absent => counts.absent += 1,
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests;
