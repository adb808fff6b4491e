//! For tests: a small experiment and models that make up its runs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use headwater_experiment::claim::{Outcome, Published, Verdict};
use headwater_experiment::experiment::{Engine, Job, Scale};
use headwater_experiment::table::{MeasureRow, SampleRow, Tables, TaskRow};

use super::models::{ModelError, Models, RunContext};
use super::{Provenance, StoredRun};

/// Two points, two schemes and two seeds at small scale; a claim that passes, one that can miss, plots of four kinds.
pub(super) const EXPERIMENT: &str = r#"
title = "Completion times under load"
source = "A paper, Fig. 0"
about = ["Push flows finish sooner."]
choices = ["The paper does not say how long the cable is; here it is short."]
engines = ["packet", "fluid", "netns"]
schemes = ["ppush(1,1)", "dctcp"]

[scale.small]
seeds = 2
[scale.paper]
seeds = 3

[[vary]]
name = "load"
points = [
  { label = 0.5, set = { until = "5 s" } },
  { label = 0.9, set = { until = "9 s" } },
]

[scenario]
fabric = { kind = "dumbbell", left = 1, right = 1, rate = "20 Mbit/s", delay = "40 us" }
workload = { kind = "long-flows", flows = [{ name = "f1", from = 0, to = 1, theta = 1.0 }] }

[[claim]]
id = "T-1"
about = "gain at load 0.9"
source = "abstract"
published = 2.0
within = "10 %"
on = { at = { load = 0.9 } }
metric = { kind = "ratio_of_means", of = "dctcp", over = "ppush(1,1)" }

[[claim]]
id = "T-2/small"
about = "nothing is lost"
source = "Fig. 0"
within = "at most 0"
on = { scheme = "ppush(1,1)", at = { load = 0.5 } }
metric = { kind = "measure", name = "drops" }

[[plot]]
title = "Mean completion time"
kind = "lines"
x = "load"
x_label = "load"
y_label = "completion time (s)"
metric = { kind = "column", column = "tct_s" }

[[plot]]
title = "Window"
kind = "series"
quantity = "window"
entities = ["f1"]
on = { at = { load = 0.9 } }
x_label = "time (s)"
y_label = "window (packets)"
"#;

/// Makes up runs: each is a function of its job, as a model's is.
#[derive(Debug, Default)]
pub(super) struct Fake {
    /// Runs that were computed.
    pub(super) ran: AtomicUsize,
    /// From this run on nothing ends any more: as if the process were killed there. 0 means never.
    pub(super) stuck_from: usize,
    /// A scheme that is not modelled; an empty name stands for all.
    pub(super) unknown: Option<&'static str>,
    /// A key of a run that fails, and how: with an error, or a panic.
    pub(super) fails: Option<(&'static str, u64, bool)>,
    /// A scheme and a seed whose runs are skipped; an empty name stands for all.
    pub(super) skips: Option<(&'static str, Option<u64>)>,
    /// Tries before each run that were invalid.
    pub(super) invalid_tries: f64,
    /// How many runs are at work.
    pub(super) at_work: AtomicUsize,
    /// Runs in real time that were not alone at some time.
    pub(super) disturbed: AtomicUsize,
    /// Runs in real time go on until they are told to stop, and count themselves here then.
    pub(super) endless: Option<AtomicUsize>,
    /// Contexts of runs, as they were told.
    pub(super) contexts: Mutex<Vec<RunContext>>,
    /// The code that it claims to be.
    pub(super) code: &'static str,
    /// Packets that are lost.
    pub(super) drops: f64,
    /// Held while a run is stuck.
    pub(super) stuck: Mutex<()>,
}

#[allow(clippy::disallowed_methods, reason = "time must pass for runs to be beside each other")]
fn wait(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}

impl Models for Fake {
    fn run(&self, job: &Job, context: &RunContext, watch: &mut dyn FnMut(f64)) -> Result<Tables, ModelError> {
        self.at_work.fetch_add(1, Ordering::SeqCst);
        self.contexts.lock().unwrap().push(context.clone());
        // Long enough for others to begin meanwhile, if they may.
        wait(2);
        let ran = self.tables(job, context, watch);
        if self.at_work.fetch_sub(1, Ordering::SeqCst) > 1 && job.engine().is_real_time() {
            self.disturbed.fetch_add(1, Ordering::SeqCst);
        }
        ran
    }

    fn code(&self, _: Engine) -> &str {
        self.code
    }
}

impl Fake {
    fn tables(
        &self,
        job: &Job,
        context: &RunContext,
        watch: &mut dyn FnMut(f64),
    ) -> Result<Tables, ModelError> {
        if let Some((scheme, seed)) = self.skips
            && (scheme.is_empty() || scheme == job.scheme)
            && seed.is_none_or(|seed| seed == job.seed)
        {
            return Err(ModelError::Skipped("invalid: machine too busy".into()));
        }
        if let Some(ended) = self.endless.as_ref().filter(|_| job.engine().is_real_time()) {
            self.ran.fetch_add(1, Ordering::SeqCst);
            while !context.stop() {
                wait(5);
            }
            ended.fetch_add(1, Ordering::SeqCst);
            return Err(ModelError::Stopped);
        }
        if self.unknown.is_some_and(|unknown| unknown.is_empty() || unknown == job.scheme) {
            return Err(ModelError::NotModelled(format!("{} comes later", job.scheme)));
        }
        if let Some((scheme, seed, by_panic)) = self.fails
            && (scheme, seed) == (job.scheme.as_str(), job.seed)
        {
            assert!(!by_panic, "the queue has a negative length");
            return Err(ModelError::Failed("no path from 0 to 1".into()));
        }
        let number = self.ran.fetch_add(1, Ordering::SeqCst) + 1;
        if self.stuck_from > 0 && number >= self.stuck_from {
            // The test that started it holds this for as long as it lasts.
            drop(self.stuck.lock());
        }
        watch(0.5);
        // Different in length, so that many threads end them in another order.
        std::thread::yield_now();
        let mut tables = tables(job, self.drops);
        if job.engine().is_real_time() {
            MeasureRow { name: "invalid_tries".into(), value: self.invalid_tries }.push(&mut tables.measures);
        }
        Ok(tables)
    }
}

fn tables(job: &Job, drops: f64) -> Tables {
    let load: f64 = job.point.iter().find_map(|(_, label)| label.parse().ok()).unwrap_or(0.5);
    let slow = if job.scheme == "dctcp" { 2.0 } else { 1.0 };
    let mut tables = Tables::default();
    for task in 0..4 {
        let tct_s = slow / (1.0 - load) + f64::from(task) * 0.01 + job.seed as f64 * 0.001;
        TaskRow {
            task: format!("t{task}"),
            arrival_s: f64::from(task),
            finish_s: f64::from(task) + tct_s,
            tct_s,
            normalised: tct_s * 10.0,
            packets: 1024,
            receiver: 1,
            fanout: 3,
            timeouts: 0,
            ..TaskRow::default()
        }
        .push(&mut tables.tasks);
        let value = 10.0 * slow + f64::from(task);
        SampleRow { t_s: f64::from(task), entity: "f1".into(), quantity: "window".into(), value }
            .push(&mut tables.samples);
    }
    MeasureRow { name: "drops".into(), value: drops }.push(&mut tables.measures);
    MeasureRow { name: "utilisation a-b".into(), value: load }.push(&mut tables.measures);
    tables
}

/// A pass, a miss, a report and a claim that is pending.
pub(super) fn verdicts(experiment: &str, engine: Engine) -> Vec<Verdict> {
    let verdict = |claim: &str, measured: Option<f64>, verdict: Outcome, note: &str| Verdict {
        experiment: experiment.into(),
        claim: claim.into(),
        about: format!("what {claim} measures"),
        source: "abstract".into(),
        engine,
        scale: Scale::Paper,
        seeds: 5,
        published: Some(Published::Number(1.586)),
        measured,
        ci95: measured.map(|m| (m - 0.02, m + 0.02)),
        range: measured.map(|m| (m - 0.05, m + 0.05)),
        tolerance: "10 %".into(),
        metric: None,
        verdict,
        note: note.into(),
    };
    vec![
        verdict("P-8a", Some(1.601), Outcome::Pass, ""),
        verdict("P-8b", Some(1.3), Outcome::Miss, ""),
        verdict("P-8c", Some(1.25), Outcome::Report, "the 95 % interval covers the value that would decide"),
        verdict("P-8d", None, Outcome::Pending, "not run: scdp"),
    ]
}

/// Stored record of the runs.
pub(super) fn run(engine: Engine) -> StoredRun {
    StoredRun {
        engine,
        scale: Scale::Paper,
        seeds: 5,
        commit: None,
        code: "c0de".into(),
        provenance: Provenance::default(),
        machine: None,
        skipped: Vec::new(),
        verdicts: verdicts("ppush/fig8", engine),
        means: Vec::new(),
        figures: Vec::new(),
    }
}
