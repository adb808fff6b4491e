//! The fault drill: scenarios in which something goes wrong, run with real processes and packets on the user's own
//! machine, each with a goal that it meets or not.
//!
//! A drill is an experiment file below `experiments/drill/` (their numbers give the order). Its first claim is its
//! goal; it passes if that and all others hold, nothing of it is left on the machine, and the runs were possible at
//! all. [`headwater_lab`] runs and judges them; drills that the engine could not run here and now are skipped with the
//! reason.
//!
//! Drills say nothing about a network other than the emulated one. They try the product, this machine's kernel and its
//! processors.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use headwater_experiment::claim::Outcome as Verdicted;
use headwater_experiment::experiment::{Engine, Experiment, Scale};
use headwater_lab::{
    self as lab, Catalogue, ExperimentRun, LabError, LabProgress, LabWatch, Models, RunOptions,
};
use headwater_units::Duration;
use serde::Serialize;
use thiserror::Error;

/// A drill, before it is run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drill {
    /// Its name: its file without number and ending.
    pub name: String,
    /// The experiment's id.
    pub experiment: String,
    /// The fault, in a line.
    pub title: String,
    /// The same in sentences.
    pub about: Vec<String>,
    /// How near to what it must come: `at most 1.1 of the ideal time`.
    pub goal: String,
    /// The longest that a try may take, seconds.
    pub limit_s: f64,
}

/// Which drills, and how.
#[derive(Clone, Debug)]
pub struct DrillOptions {
    /// By name or id, in any order; all if empty.
    pub names: Vec<String>,
    /// Engine that runs them: netns, or a model to compare with.
    pub engine: Engine,
    /// No drill begins that might not be over by then.
    pub limit: Duration,
    /// The folder for rows and logs.
    pub out: PathBuf,
    /// The commit that is checked out, if any.
    pub commit: Option<String>,
}

/// Outcome of a drill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The goal is met.
    Passed,
    /// It is not, or something else went wrong.
    Failed,
    /// It could not be tried, which says nothing about the product.
    Skipped,
}

/// A drill that is over.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Its name.
    pub drill: String,
    /// The experiment's id.
    pub experiment: String,
    /// Outcome.
    pub outcome: Outcome,
    /// The figure, if there is one.
    pub measured: Option<f64>,
    /// Meaning of the figure: `of the ideal time`.
    pub of: String,
    /// Goal: `at most 1.1`.
    pub goal: String,
    /// Why it failed or was skipped.
    pub reasons: Vec<String>,
    /// Tries before it whose timing was invalid.
    pub invalid_tries: u64,
    /// Duration, with all tries and set-up.
    pub seconds: f64,
    /// Where its rows and logs are.
    pub folder: Option<PathBuf>,
}

/// Listener to the progress of drills.
pub trait DrillWatch {
    /// Number `number` of `of`, counted from 1, begins.
    fn begun(&mut self, drill: &Drill, number: usize, of: usize);
    /// A part of the drill at hand is done, 0..=1.
    fn progress(&mut self, part: f64);
    /// It is over.
    fn over(&mut self, finding: &Finding);
}

/// Why there was no drill.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DrillError {
    /// Nothing has that name.
    #[error("there is no drill '{name}'; there are {}", names.join(", "))]
    Unknown {
        /// As typed.
        name: String,
        /// All.
        names: Vec<String>,
    },
    /// The user stopped it.
    #[error("stopped after {done} of {all} drills")]
    Stopped {
        /// Those that are over.
        done: usize,
        /// Those that were asked for.
        all: usize,
    },
    /// A file is wrong.
    #[error(transparent)]
    Lab(#[from] LabError),
}

/// The drills of a catalogue, in their order.
///
/// # Errors
/// An error of a file.
pub fn drills(catalogue: &Catalogue) -> Result<Vec<Drill>, LabError> {
    catalogue.drills().into_iter().map(|parsed| drill(&parsed?)).collect()
}

fn drill(experiment: &Experiment) -> Result<Drill, LabError> {
    let file = experiment.id.rsplit('/').next().unwrap_or(&experiment.id);
    let name = file.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches('-');
    let goal =
        experiment.claims.first().map(|claim| format!("{} {}", claim.tolerance(Scale::Small), claim.about));
    let engine = experiment.engines.first().copied().unwrap_or(Engine::Netns);
    let jobs = experiment.jobs(engine, Scale::Small, None)?;
    Ok(Drill {
        name: if name.is_empty() { file } else { name }.to_owned(),
        experiment: experiment.id.clone(),
        title: experiment.title.clone(),
        about: experiment.about.clone(),
        goal: goal.unwrap_or_default(),
        limit_s: jobs.iter().filter_map(|job| job.scenario.until).map(Duration::as_secs_f64).sum(),
    })
}

/// Runs drills one after the other. `left_behind` names what of ours is on the machine now; a drill after which there is
/// more has failed.
///
/// # Errors
/// [`DrillError`]; a drill that goes wrong is in the result.
#[allow(clippy::disallowed_methods, reason = "drills take the user's time")]
pub fn run(
    options: &DrillOptions,
    catalogue: &Catalogue,
    models: &Arc<dyn Models>,
    left_behind: &dyn Fn() -> Vec<String>,
    stop: &dyn Fn() -> bool,
    watch: &mut dyn DrillWatch,
) -> Result<Vec<Finding>, DrillError> {
    let chosen = choose(drills(catalogue)?, &options.names)?;
    let all = chosen.len();
    let start = Instant::now();
    let mut findings = Vec::new();
    for (number, drill) in chosen.into_iter().enumerate() {
        let stopped = DrillError::Stopped { done: number, all };
        if stop() {
            return Err(stopped);
        }
        watch.begun(&drill, number + 1, all);
        let begun = Instant::now();
        let before: BTreeSet<String> = left_behind().into_iter().collect();
        let no_time = start.elapsed().as_secs_f64() + drill.limit_s > options.limit.as_secs_f64();
        let ran = match no_time {
            true => Err(None),
            false => match one(options, &drill, catalogue, models, stop, watch) {
                Err(LabError::Stopped { .. }) => return Err(stopped),
                ran => ran.map_err(Some),
            },
        };
        let left: Vec<String> = left_behind().into_iter().filter(|name| !before.contains(name)).collect();
        let mut finding = match ran {
            Ok(ran) => judged(&drill, &ran),
            Err(Some(error)) => {
                Finding { outcome: Outcome::Failed, reasons: vec![error.to_string()], ..blank(&drill) }
            }
            Err(None) => {
                let reason =
                    format!("it might not be over within {}, the limit of all drills", options.limit);
                Finding { reasons: vec![reason], ..blank(&drill) }
            }
        };
        if !left.is_empty() {
            finding.outcome = Outcome::Failed;
            finding.reasons.push(format!("left behind on this machine: {}", left.join(", ")));
        }
        finding.seconds = begun.elapsed().as_secs_f64();
        watch.over(&finding);
        findings.push(finding);
    }
    Ok(findings)
}

/// Those that are named, by name or id, in the order of all and none twice; all if none is named.
///
/// # Errors
/// [`DrillError::Unknown`].
pub fn choose(all: Vec<Drill>, names: &[String]) -> Result<Vec<Drill>, DrillError> {
    let is_called = |drill: &Drill, name: &String| drill.name == *name || drill.experiment == *name;
    for name in names {
        if !all.iter().any(|drill| is_called(drill, name)) {
            let names = all.into_iter().map(|drill| drill.name).collect();
            return Err(DrillError::Unknown { name: name.clone(), names });
        }
    }
    let wanted = |drill: &Drill| names.is_empty() || names.iter().any(|name| is_called(drill, name));
    Ok(all.into_iter().filter(wanted).collect())
}

/// Runs one as the experiment that it is.
fn one(
    options: &DrillOptions,
    drill: &Drill,
    catalogue: &Catalogue,
    models: &Arc<dyn Models>,
    stop: &dyn Fn() -> bool,
    watch: &mut dyn DrillWatch,
) -> Result<ExperimentRun, LabError> {
    let run = RunOptions {
        what: vec![drill.experiment.clone()],
        all: false,
        engine: Some(options.engine),
        scale: Scale::Small,
        seeds: None,
        threads: 1,
        out: options.out.clone(),
        // A drill of yesterday says nothing about today.
        fresh: true,
        pcap: None,
        store: None,
        commit: options.commit.clone(),
    };
    let mut ran = lab::run(&run, catalogue, models.clone(), stop, &mut Heard(watch))?;
    ran.pop().ok_or(LabError::Nothing)
}

/// Passes on how far it is; everything else is in the finding.
struct Heard<'a>(&'a mut dyn DrillWatch);

impl LabWatch for Heard<'_> {
    fn progress(&mut self, progress: &LabProgress) {
        self.0.progress(progress.part);
    }
    fn note(&mut self, _: &str) {}
    fn concluded(&mut self, _: &ExperimentRun) {}
}

fn blank(drill: &Drill) -> Finding {
    Finding {
        drill: drill.name.clone(),
        experiment: drill.experiment.clone(),
        outcome: Outcome::Skipped,
        measured: None,
        of: String::new(),
        goal: drill.goal.clone(),
        reasons: Vec::new(),
        invalid_tries: 0,
        seconds: 0.0,
        folder: None,
    }
}

/// Verdict on the runs.
fn judged(drill: &Drill, run: &ExperimentRun) -> Finding {
    let mut finding =
        Finding { invalid_tries: run.invalid_tries, folder: Some(run.folder.clone()), ..blank(drill) };
    let verdicts = || run.verdicts.iter().map(|judged| &judged.verdict);
    if let Some(goal) = verdicts().next() {
        finding.measured = goal.measured;
        (finding.of, finding.goal) = (goal.about.clone(), goal.tolerance.clone());
    }
    let missed = verdicts().enumerate().filter(|(_, verdict)| verdict.verdict == Verdicted::Miss);
    // The figure beside its goal says enough.
    let missed = missed.filter(|(place, verdict)| *place > 0 || verdict.measured.is_none());
    let mut failed: Vec<String> = run.failures.clone();
    failed.extend(missed.map(|(place, verdict)| match place {
        0 => format!("no figure: {}", verdict.note),
        _ => format!("not so: {} ({})", verdict.about, verdict.note),
    }));
    if !failed.is_empty() || run.misses() > 0 {
        return Finding { outcome: Outcome::Failed, reasons: failed, ..finding };
    }
    let mut skipped: Vec<String> = run.skipped.iter().map(|skipped| skipped.reason.clone()).collect();
    let pending = verdicts().filter(|verdict| verdict.verdict == Verdicted::Pending);
    if skipped.is_empty() {
        skipped.extend(pending.map(|verdict| verdict.note.clone()));
    }
    skipped.dedup();
    if !skipped.is_empty() || run.verdicts.is_empty() {
        return Finding { reasons: skipped, ..finding };
    }
    Finding { outcome: Outcome::Passed, ..finding }
}

#[cfg(test)]
mod tests;
