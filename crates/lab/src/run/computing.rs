//! Has runs computed by threads, and follows how far they are.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Instant;

use super::{Batch, RunOptions, TICK, conclude, estimate_of};
use crate::estimate::Estimate;
use crate::models::Models;
use crate::pool::{News, Outcome, Pool, Task, threads_for};
use crate::run::ExperimentRun;
use crate::{LabError, LabProgress, LabWatch};

/// Has all runs computed; every experiment is judged as soon as its last run is over.
#[allow(clippy::disallowed_methods, reason = "a bar tells people how long it takes")]
pub(super) fn compute(
    options: &RunOptions,
    batches: Vec<Batch>,
    models: Arc<dyn Models>,
    stop: &dyn Fn() -> bool,
    watch: &mut dyn LabWatch,
) -> Result<Vec<ExperimentRun>, LabError> {
    let tasks: Vec<Task> = batches.iter().flat_map(|batch| batch.tasks.iter().cloned()).collect();
    let threads = threads_for(&tasks, options.threads);
    let total = tasks.len();
    let mut pool = Pool::start(tasks, threads, models).map_err(LabError::Threads)?;
    let mut computing = Computing::new(options, batches, threads, Instant::now());
    while computing.over < total {
        let mut news = match pool.news.recv_timeout(TICK) {
            Ok(news) => Some(news),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                unreachable!("threads end only when no run is left or after this loop")
            }
        };
        while let Some((number, what)) = news {
            computing.hear(number, what, watch)?;
            news = pool.news.try_recv().ok();
        }
        computing.show(total, watch);
        if computing.over < total && stop() {
            pool.stop();
            computing.tell_the_rest(&pool, watch);
            return Err(LabError::Stopped { done: computing.over, jobs: total, out: options.out.clone() });
        }
    }
    Ok(computing.finished.into_iter().flatten().collect())
}

/// How far a computation is.
struct Computing<'a> {
    options: &'a RunOptions,
    batches: Vec<Batch>,
    /// The batch of each task, and which run of that it is.
    places: Vec<(usize, usize)>,
    estimate: Estimate,
    /// By batch.
    finished: Vec<Option<ExperimentRun>>,
    began: Instant,
    /// Runs that are over, the skipped ones included.
    over: usize,
    skipped: usize,
    /// Batches whose result was told.
    told: usize,
    /// The experiment that is shown beside the bar.
    current: String,
}

impl<'a> Computing<'a> {
    fn new(options: &'a RunOptions, batches: Vec<Batch>, threads: usize, began: Instant) -> Self {
        let runs = |(batch, it): (usize, &Batch)| (0..it.tasks.len()).map(move |run| (batch, run));
        Computing {
            options,
            places: batches.iter().enumerate().flat_map(runs).collect(),
            estimate: estimate_of(&batches, threads),
            finished: batches.iter().map(|_| None).collect(),
            batches,
            began,
            over: 0,
            skipped: 0,
            told: 0,
            current: String::new(),
        }
    }

    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Takes in what a thread says of a run.
    fn hear(&mut self, number: usize, what: News, watch: &mut dyn LabWatch) -> Result<(), LabError> {
        let now = self.now();
        let (at, run) = self.places[number];
        let batch = &mut self.batches[at];
        match what {
            News::Begun => {
                self.estimate.begun(number, now);
                batch.busy.get_or_insert((now, now));
            }
            News::Reached(part) => self.estimate.reached(number, part),
            News::Over(Outcome::Unwritable(path, source)) => {
                return Err(LabError::write(&path, "--out", source));
            }
            News::Over(outcome) => {
                let seconds = if let Outcome::Ran(seconds) = outcome { Some(seconds) } else { None };
                self.estimate.done(number, seconds);
                self.over += 1;
                if let Some((_, end)) = &mut batch.busy {
                    *end = now;
                }
                if let Some(note) = batch.remark(run, &outcome) {
                    watch.note(&note);
                }
                self.skipped += usize::from(matches!(outcome, Outcome::Skipped(_)));
                batch.note(run, outcome)?;
                if batch.open == 0 {
                    self.finished[at] = Some(conclude(batch, self.options)?);
                }
            }
        }
        Ok(())
    }

    /// Tells of experiments that are finished, in order, and how far all are.
    fn show(&mut self, total: usize, watch: &mut dyn LabWatch) {
        while let Some(Some(run)) = self.finished.get(self.told) {
            watch.concluded(run);
            self.told += 1;
        }
        let outlook = self.estimate.outlook(self.now());
        if let Some(run) = outlook.oldest {
            self.current.clone_from(&self.batches[self.places[run].0].experiment.id);
        }
        watch.progress(&LabProgress {
            runs: total,
            done: outlook.done,
            skipped: self.skipped,
            part: outlook.part,
            left: outlook.left,
            experiment: self.current.clone(),
        });
    }

    /// A run that was told to stop may have left something behind, and says so; experiments that are finished are told out of order.
    fn tell_the_rest(&self, pool: &Pool, watch: &mut dyn LabWatch) {
        for (number, news) in pool.news.try_iter() {
            let (batch, run) = self.places[number];
            if let News::Over(outcome) = news
                && let Some(note) = self.batches[batch].remark(run, &outcome)
            {
                watch.note(&note);
            }
        }
        self.finished.iter().skip(self.told).flatten().for_each(|run| watch.concluded(run));
    }
}
