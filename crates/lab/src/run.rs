//! `lab run`: expands experiments into runs, has them computed, joins their rows and judges the claims.
//!
//! Below the output folder each experiment has `<experiment>/<engine>-<scale>/` with
//!
//! * `jobs/<key>.arrow`: a finished run; what is here and fits is not computed again,
//! * `tasks.arrow`, `flows.arrow`, `samples.arrow`, `measures.arrow`: the rows of all runs, in the order of the runs,
//! * `verdicts.json`: a line per claim,
//! * `summary.json`: the same with means per run and the points of the plots, for `lab report`,
//! * `times`: what each run took.
//!
//! Only `times` differs from one time to the next, and what was measured in real time.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headwater_experiment::claim::{Outcome as Verdicted, Verdict};
use headwater_experiment::experiment::{Engine, Experiment, Job, Scale};
use serde::Serialize;

use super::catalogue::{Catalogue, Chosen};
use super::estimate::{Estimate, Kind};
use super::files::{Claimed, claim_folder, remove_unfinished, write_whole};
use super::machine::Machine;
use super::models::Models;
use super::pool::{Outcome, Task};
use super::results::{self, Drawn, Heading, Means, SkippedRun, StoredRun};
use super::run_file::Origin;
use super::{LabError, LabWatch, freshness};

mod computing;
mod join;

use self::computing::compute;
use self::join::join;

/// Experiments to run, and how.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Files, experiments and claims.
    pub what: Vec<String>,
    /// Every experiment there is.
    pub all: bool,
    /// The engine; each experiment's main one if absent.
    pub engine: Option<Engine>,
    /// How large.
    pub scale: Scale,
    /// Seeds 1 to this; as the experiment says if absent.
    pub seeds: Option<u32>,
    /// Threads.
    pub threads: usize,
    /// Where everything is written.
    pub out: PathBuf,
    /// Whether finished runs are computed again.
    pub fresh: bool,
    /// Where each run's packets are kept, in `<experiment>/<key>/`; only for engines that have packets of their own.
    pub pcap: Option<PathBuf>,
    /// Where a summary is kept, if it is.
    pub store: Option<PathBuf>,
    /// The commit that is checked out, for the verdicts.
    pub commit: Option<String>,
}

/// Result of one experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExperimentRun {
    /// Its id.
    pub experiment: String,
    /// Its title.
    pub title: String,
    /// Engine that computed it.
    pub engine: Engine,
    /// How large.
    pub scale: Scale,
    /// Seeds per point and scheme.
    pub seeds: u32,
    /// Where its files are.
    pub folder: PathBuf,
    /// Runs that were computed now.
    pub ran: usize,
    /// Runs that were there already.
    pub kept: usize,
    /// Runs that the engine cannot do.
    pub not_modelled: usize,
    /// Runs that could not be made here and now: which, and why. They count for nothing and are tried again the next time.
    pub skipped: Vec<SkippedRun>,
    /// Tries whose timing was invalid, before a valid one, of all runs.
    pub invalid_tries: u64,
    /// From the beginning of the first computed run to the end of the last, seconds; other experiments may have run
    /// meanwhile.
    pub seconds: f64,
    /// Sum of the durations of the computed runs, seconds.
    pub added_seconds: f64,
    /// The claims, judged; none if a run failed.
    pub verdicts: Vec<Judged>,
    /// Runs that went wrong: which, and how.
    pub failures: Vec<String>,
    /// Where a summary was kept.
    pub stored: Option<PathBuf>,
}

/// A verdict and the commit that it is of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The commit that was checked out, if any.
    pub commit: Option<String>,
}

/// An experiment being run.
struct Batch {
    experiment: Experiment,
    engine: Engine,
    seeds: u32,
    code: String,
    folder: PathBuf,
    tasks: Vec<Task>,
    times: BTreeMap<String, f64>,
    /// Runs that are not over.
    open: usize,
    /// When the first computed run began and when the last was over, seconds since the start.
    busy: Option<(f64, f64)>,
    outcomes: Vec<Option<Outcome>>,
    _claimed: Claimed,
}

/// How often a bar moves, and a stop is noticed.
const TICK: Duration = Duration::from_millis(100);

/// Runs experiments, judges their claims and writes all of it.
///
/// `watch` hears of every experiment as soon as it is judged, so that one that never ends does not hide the others.
///
/// # Errors
/// [`LabError`]; single runs that went wrong are in the result, as are claims that miss.
pub fn run(
    options: &RunOptions,
    catalogue: &Catalogue,
    models: Arc<dyn Models>,
    stop: &dyn Fn() -> bool,
    watch: &mut dyn LabWatch,
) -> Result<Vec<ExperimentRun>, LabError> {
    if options.store.is_some() && options.scale != Scale::Paper {
        return Err(LabError::StoreSmall);
    }
    let chosen = choose(options, catalogue, watch)?;
    if let Some((_, engine)) =
        chosen.iter().find(|(_, engine)| options.pcap.is_some() && !engine.is_real_time())
    {
        return Err(LabError::Captures { engine: *engine });
    }
    let mut batches = Vec::new();
    for (experiment, engine) in chosen {
        let code = models.code(engine);
        batches.push(prepare(experiment, engine, options, code)?);
    }
    compute(options, batches, models, stop, watch)
}

/// The experiments that were asked for, each with the engine that runs it; none twice.
fn choose(
    options: &RunOptions,
    catalogue: &Catalogue,
    watch: &mut dyn LabWatch,
) -> Result<Vec<(Experiment, Engine)>, LabError> {
    let mut chosen: Vec<(Experiment, Engine)> = Vec::new();
    let mut add = |experiment: Experiment, engine: Engine| {
        if !chosen.iter().any(|(other, on)| other.id == experiment.id && *on == engine) {
            chosen.push((experiment, engine));
        }
    };
    if options.all {
        for experiment in catalogue.all() {
            let experiment = experiment?;
            let engine = options.engine.unwrap_or_else(|| main_engine(&experiment));
            if experiment.engines.contains(&engine) && experiment.scales.contains(&options.scale) {
                add(experiment, engine);
            } else {
                let (id, scale) = (&experiment.id, options.scale);
                watch.note(&format!("left out: {id} does not run on the {engine} engine at {scale} scale"));
            }
        }
    } else if options.what.is_empty() {
        return Err(LabError::Nothing);
    }
    for word in &options.what {
        for Chosen { experiment, claim } in catalogue.find(word)? {
            let engine = options.engine.unwrap_or_else(|| match &claim {
                Some(claim) => engine_of_claim(&experiment, claim, options.scale),
                None => main_engine(&experiment),
            });
            add(experiment, engine);
        }
    }
    if chosen.is_empty() {
        let engine = options.engine.map_or("main", Engine::name).to_owned();
        return Err(LabError::NothingFits { engine, scale: options.scale.to_string() });
    }
    Ok(chosen)
}

/// The engine that an experiment names first; a file with none cannot be read.
fn main_engine(experiment: &Experiment) -> Engine {
    experiment.engines.first().copied().unwrap_or(Engine::Packet)
}

/// The first engine that a claim is made of.
fn engine_of_claim(experiment: &Experiment, claim: &str, scale: Scale) -> Engine {
    let claim = experiment.claims.iter().find(|c| c.id == claim);
    let judged = |engine: &&Engine| claim.is_some_and(|claim| claim.is_made_of(**engine, scale));
    experiment.engines.iter().find(judged).copied().unwrap_or_else(|| main_engine(experiment))
}

/// Expands an experiment into runs and makes room for them.
fn prepare(
    experiment: Experiment,
    engine: Engine,
    options: &RunOptions,
    code: &str,
) -> Result<Batch, LabError> {
    let scale = options.scale;
    let jobs = experiment.jobs(engine, scale, options.seeds)?;
    let folder = options.out.join(&experiment.id).join(format!("{engine}-{scale}"));
    let claimed = claim_folder(&folder)?;
    let kept = folder.join("jobs");
    let failed = |source| LabError::write(&folder, "--out", source);
    if options.fresh && kept.exists() {
        fs::remove_dir_all(&kept).map_err(failed)?;
    }
    fs::create_dir_all(&kept).map_err(failed)?;
    for folder in [&folder, &kept] {
        remove_unfinished(folder).map_err(failed)?;
    }
    let task = |job: Job| {
        let key = job.key();
        Task {
            job: Arc::new(job),
            path: kept.join(format!("{key}.arrow")),
            pcap: options.pcap.as_ref().map(|to| to.join(&experiment.id).join(&key)),
            logs: folder.join("logs").join(&key),
            origin: Origin { key, code: code.to_owned() },
        }
    };
    let tasks: Vec<Task> = jobs.into_iter().map(task).collect();
    Ok(Batch {
        seeds: options.seeds.unwrap_or_else(|| experiment.seeds(engine, scale)),
        code: code.to_owned(),
        times: read_times(&folder),
        open: tasks.len(),
        busy: None,
        outcomes: tasks.iter().map(|_| None).collect(),
        experiment,
        engine,
        folder,
        tasks,
        _claimed: claimed,
    })
}

/// Estimate before anything begins.
fn estimate_of(batches: &[Batch], threads: usize) -> Estimate {
    let mut numbers = BTreeMap::new();
    let (mut kinds, mut known, mut there) = (Vec::new(), Vec::new(), Vec::new());
    for (experiment, batch) in batches.iter().enumerate() {
        for task in &batch.tasks {
            let next = numbers.len();
            let name = (experiment, &task.job.point, &task.job.scheme);
            let kind = *numbers.entry(name).or_insert(next);
            kinds.push(Kind { experiment, kind });
            known.push(batch.times.get(&task.origin.key).copied());
            there.push(task.path.exists() && task.pcap.as_ref().is_none_or(|folder| folder.exists()));
        }
    }
    let mut estimate = Estimate::new(kinds, known, threads);
    // A file that turns out to be damaged or of other code begins anew when a thread comes to it.
    for run in there.iter().enumerate().filter(|(_, there)| **there).map(|(run, _)| run) {
        estimate.done(run, None);
    }
    estimate
}

impl Batch {
    /// Point, scheme, seed and key of a run.
    fn name(&self, run: usize) -> String {
        let task = &self.tasks[run];
        let point: Vec<String> = task.job.point.iter().map(|(axis, at)| format!("{axis} {at}, ")).collect();
        let (id, point) = (&self.experiment.id, point.concat());
        format!("{id} at {point}{}, seed {} ({})", task.job.scheme, task.job.seed, task.origin.key)
    }

    /// Remark that the user should see at once about a run's end.
    fn remark(&self, run: usize, outcome: &Outcome) -> Option<String> {
        match outcome {
            Outcome::Failed(reason) => Some(format!("failed: {}: {reason}", self.name(run))),
            Outcome::Skipped(reason) => Some(format!("skipped: {}: {reason}", self.name(run))),
            _ => None,
        }
    }

    /// Takes down what became of a run.
    fn note(&mut self, run: usize, outcome: Outcome) -> Result<(), LabError> {
        if let Outcome::Ran(seconds) = outcome {
            let path = self.folder.join("times");
            let line = format!("{} {seconds:.3}\n", self.tasks[run].origin.key);
            let file = OpenOptions::new().create(true).append(true).open(&path);
            let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
            written.map_err(|source| LabError::write(&path, "--out", source))?;
        }
        self.outcomes[run] = Some(outcome);
        self.open -= 1;
        Ok(())
    }
}

/// Duration of runs, the latest of each; a file that cannot be read holds none.
fn read_times(folder: &Path) -> BTreeMap<String, f64> {
    let text = fs::read_to_string(folder.join("times")).unwrap_or_default();
    let entry = |line: &str| {
        let (key, seconds) = line.split_once(' ')?;
        Some((key.to_owned(), seconds.parse().ok().filter(|s: &f64| s.is_finite() && *s >= 0.0)?))
    };
    text.lines().filter_map(entry).collect()
}

/// Result of the runs of a batch; and why those that were not computed were not, where no engine models them.
fn tally(batch: &Batch, options: &RunOptions) -> (ExperimentRun, Option<String>) {
    let (mut ran, mut kept, mut added_seconds) = (0, 0, 0.0);
    let (mut failures, mut not_modelled, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
    for (run, outcome) in batch.outcomes.iter().enumerate() {
        match outcome {
            Some(Outcome::Ran(took)) => {
                ran += 1;
                added_seconds += took;
            }
            Some(Outcome::Kept) => kept += 1,
            Some(Outcome::NotModelled(reason)) => not_modelled.push(reason.clone()),
            Some(Outcome::Skipped(reason)) => {
                skipped.push(SkippedRun { run: batch.name(run), reason: reason.clone() });
            }
            Some(Outcome::Failed(reason)) => failures.push(format!("{}: {reason}", batch.name(run))),
            Some(Outcome::Unwritable(..)) | None => unreachable!("every run of it is over"),
        }
    }
    let result = ExperimentRun {
        experiment: batch.experiment.id.clone(),
        title: batch.experiment.title.clone(),
        engine: batch.engine,
        scale: options.scale,
        seeds: batch.seeds,
        folder: batch.folder.clone(),
        ran,
        kept,
        not_modelled: not_modelled.len(),
        skipped,
        invalid_tries: 0,
        seconds: batch.busy.map_or(0.0, |(begin, end)| end - begin),
        added_seconds,
        verdicts: Vec::new(),
        failures,
        stored: None,
    };
    (result, not_modelled.into_iter().next())
}

/// Joins the rows of all runs and judges the claims.
fn conclude(batch: &mut Batch, options: &RunOptions) -> Result<ExperimentRun, LabError> {
    let (mut result, not_modelled) = tally(batch, options);
    // Means over fewer seeds than asked for would be judged as if nothing had happened.
    if !result.failures.is_empty() {
        return Ok(result);
    }
    let is_empty = result.ran + result.kept == 0;
    let (experiment, engine, scale) = (&batch.experiment, batch.engine, options.scale);
    let (tables, means) = join(batch, options.scale)?;
    result.invalid_tries = means.iter().map(Means::invalid_tries).sum();
    let skipped = result.skipped.first().map(SkippedRun::to_string);
    let verdicts = match not_modelled.as_ref().or(skipped.as_ref()) {
        Some(reason) if is_empty => experiment.pending(engine, scale, reason),
        _ => {
            let mut verdicts = experiment.judge(engine, scale, &tables);
            let runs = batch.tasks.len();
            verdicts.iter_mut().for_each(|verdict| say_what_was_skipped(verdict, &result.skipped, runs));
            verdicts
        }
    };
    result.verdicts =
        verdicts.iter().cloned().map(|verdict| Judged { verdict, commit: options.commit.clone() }).collect();
    let path = batch.folder.join("verdicts.json");
    write_whole(&path, |file| file.write_all(lines_of_json(&result.verdicts)?.as_bytes()))
        .map_err(|source| LabError::write(&path, "--out", source))?;
    if is_empty {
        return Ok(result);
    }
    let axes = experiment.axes_at(engine, scale);
    let draw = |plot: &headwater_experiment::experiment::Plot| {
        Drawn::of(&plot.figure(engine, scale, &tables, &axes, &experiment.schemes))
    };
    let run = StoredRun {
        engine,
        scale,
        seeds: batch.seeds,
        commit: options.commit.clone(),
        code: batch.code.clone(),
        provenance: freshness::provenance(experiment, engine, scale, batch.seeds),
        machine: engine.is_real_time().then(Machine::of_now),
        skipped: result.skipped.clone(),
        verdicts,
        means,
        figures: experiment.plots.iter().map(draw).collect(),
    };
    results::summarise(&batch.folder, Heading::of(experiment), &run)?;
    if let Some(folder) = &options.store {
        result.stored = Some(results::store(folder, &experiment.id, run)?);
    }
    Ok(result)
}

/// A number from fewer runs than were asked for says so, and so does a claim for which none is left.
fn say_what_was_skipped(verdict: &mut Verdict, skipped: &[SkippedRun], runs: usize) {
    let Some(first) = skipped.first() else { return };
    // A formula has no runs.
    if verdict.seeds > 0 {
        verdict.add_note(&format!("{} of {runs} runs skipped", skipped.len()));
    } else if verdict.verdict == Verdicted::Pending {
        verdict.add_note(&format!("{} of {runs} runs skipped, the first: {first}", skipped.len()));
    }
}

/// A JSON list with an element per line.
fn lines_of_json(values: &[impl Serialize]) -> io::Result<String> {
    let lines = values.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}

impl ExperimentRun {
    /// Runs in all, whatever became of them.
    pub fn runs(&self) -> usize {
        self.ran + self.kept + self.not_modelled + self.skipped.len() + self.failures.len()
    }

    /// Claims that miss.
    pub fn misses(&self) -> usize {
        self.verdicts.iter().filter(|judged| judged.verdict.verdict == Verdicted::Miss).count()
    }
}

#[cfg(test)]
mod tests;
