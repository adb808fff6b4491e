//! Threads that compute runs, one after the other, and leave each finished one on disk.
//!
//! A run in real time is alone: it waits until all others that have begun are over, and none begins meanwhile. When the
//! user stops it is told so and waited for, since it has things to remove. The other runs are not waited for: such a run
//! cannot be cut short, and what it would still do is lost with the process without harm, since files appear whole or not
//! at all.

use std::any::Any;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use headwater_experiment::experiment::Job;

use super::models::{ModelError, Models, RunContext};
use super::run_file::{self, Origin};

/// One run to do.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) job: Arc<Job>,
    /// Where it is kept.
    pub(super) path: PathBuf,
    pub(super) origin: Origin,
    /// The folder for captures, if they are wanted.
    pub(super) pcap: Option<PathBuf>,
    /// The folder for logs.
    pub(super) logs: PathBuf,
}

/// A thread's news of a run.
#[derive(Debug)]
pub(super) enum News {
    /// It has to be computed, and begins.
    Begun,
    /// This part of it is done.
    Reached(f64),
    /// It is over.
    Over(Outcome),
}

/// Outcome of a run.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was there already.
    Kept,
    /// Computed and written, in this many seconds.
    Ran(f64),
    /// The engine cannot do it.
    NotModelled(String),
    /// It could not be made here and now.
    Skipped(String),
    /// It went wrong.
    Failed(String),
    /// It could not be written.
    Unwritable(PathBuf, io::Error),
}

struct Shared {
    tasks: Vec<Task>,
    next: AtomicUsize,
    stopping: Arc<AtomicBool>,
    /// Runs hold it to read, a run in real time to write.
    machine: RwLock<()>,
    /// Whether a run in real time is at work.
    in_real_time: AtomicBool,
    models: Arc<dyn Models>,
}

/// The threads at work.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Number of the task and what is new about it.
    pub(super) news: Receiver<(usize, News)>,
}

impl Task {
    /// Whether it was there already, with all that is asked for now.
    pub(super) fn is_kept(&self) -> bool {
        self.pcap.as_ref().is_none_or(|folder| folder.exists())
            && run_file::read(&self.path, &self.origin).is_ok()
    }

    fn is_alone(&self) -> bool {
        self.job.engine().is_real_time()
    }
}

impl Pool {
    /// Starts at most `threads` threads on these tasks, in their order.
    pub(super) fn start(tasks: Vec<Task>, threads: usize, models: Arc<dyn Models>) -> io::Result<Pool> {
        let (send, news) = channel();
        let threads = threads_for(&tasks, threads);
        let shared = Arc::new(Shared {
            tasks,
            next: AtomicUsize::new(0),
            stopping: Arc::default(),
            machine: RwLock::new(()),
            in_real_time: AtomicBool::new(false),
            models,
        });
        // From here on dropping it ends the threads that were started.
        let mut pool = Pool { shared: shared.clone(), threads: Vec::new(), news };
        for number in 0..threads {
            let (shared, send) = (shared.clone(), send.clone());
            let thread = thread::Builder::new().name(format!("lab {number}"));
            pool.threads.push(thread.spawn(move || work(&shared, &send))?);
        }
        Ok(pool)
    }

    /// Lets the threads end after the run that each is at; a run in real time stops at once and is waited for.
    pub(super) fn stop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Either this sees that such a run is at work, or its thread sees that it must not begin.
        if self.shared.in_real_time.load(Ordering::SeqCst) {
            for thread in self.threads.drain(..) {
                // Panics of runs are caught, and one of the thread itself has nothing left to end.
                drop(thread.join());
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}

/// More threads than could ever be at work would only wait.
pub(super) fn threads_for(tasks: &[Task], threads: usize) -> usize {
    if tasks.iter().all(Task::is_alone) { 1 } else { threads.min(tasks.len()).max(1) }
}

fn work(shared: &Shared, send: &Sender<(usize, News)>) {
    while !shared.stopping.load(Ordering::SeqCst) {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let Some(task) = shared.tasks.get(number) else { return };
        // Nobody listens after a stop.
        let tell = |news: News| drop(send.send((number, news)));
        let outcome = match task.is_kept() {
            true => Some(Outcome::Kept),
            false => in_turn(task, shared, &tell),
        };
        match outcome {
            Some(outcome) => tell(News::Over(outcome)),
            None => return,
        }
    }
}

/// Computes a run when the machine is free for it; `None` if it was stopped meanwhile.
fn in_turn(task: &Task, shared: &Shared, tell: &dyn Fn(News)) -> Option<Outcome> {
    // There is nothing behind the lock that a panic could have left unfinished.
    if !task.is_alone() {
        let _beside = shared.machine.read().unwrap_or_else(PoisonError::into_inner);
        return perform(task, shared, tell);
    }
    let _alone = shared.machine.write().unwrap_or_else(PoisonError::into_inner);
    shared.in_real_time.store(true, Ordering::SeqCst);
    let outcome = perform(task, shared, tell);
    shared.in_real_time.store(false, Ordering::SeqCst);
    outcome
}

#[allow(clippy::disallowed_methods, reason = "how long a run took is no part of its result")]
fn perform(task: &Task, shared: &Shared, tell: &dyn Fn(News)) -> Option<Outcome> {
    // It may have waited for its turn.
    if shared.stopping.load(Ordering::SeqCst) {
        return None;
    }
    tell(News::Begun);
    let begun = Instant::now();
    let mut watch = |part: f64| tell(News::Reached(part));
    let mut context = RunContext::stopped_by(shared.stopping.clone());
    (context.pcap, context.logs) = (task.pcap.clone(), Some(task.logs.clone()));
    let run = || shared.models.run(&task.job, &context, &mut watch);
    // One broken run among thousands must not take the others with it.
    let ran = panic::catch_unwind(AssertUnwindSafe(run));
    let tables = match ran {
        Ok(Ok(tables)) => tables,
        Ok(Err(ModelError::NotModelled(reason))) => return Some(Outcome::NotModelled(reason)),
        Ok(Err(ModelError::Skipped(reason))) => return Some(Outcome::Skipped(reason)),
        Ok(Err(ModelError::Stopped)) if context.stop() => return None,
        Ok(Err(ModelError::Stopped)) => return Some(Outcome::Failed("it stopped untold".to_owned())),
        Ok(Err(ModelError::Failed(reason))) => return Some(Outcome::Failed(reason)),
        Err(panic) => return Some(Outcome::Failed(format!("it panicked: {}", said(&*panic)))),
    };
    if context.stop() {
        return None;
    }
    Some(match run_file::write(&task.path, &task.origin, &tables) {
        Ok(()) => Outcome::Ran(begun.elapsed().as_secs_f64()),
        Err(error) => Outcome::Unwritable(task.path.clone(), error),
    })
}

/// Text of a panic.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}
