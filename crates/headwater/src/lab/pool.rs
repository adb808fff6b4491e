//! Threads that compute runs, one after the other, and leave each finished one on disk.
//!
//! The threads are not waited for when the user stops: a run in progress cannot be cut short, and what it would still
//! do is lost with the process without harm, since files appear whole or not at all.

use std::any::Any;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use headwater_sim::experiment::Job;

use super::models::{ModelError, Models};
use super::run_file::{self, Origin};

/// One run to do.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) job: Arc<Job>,
    /// Where it is kept.
    pub(super) path: PathBuf,
    pub(super) origin: Origin,
}

/// What a thread says of a run.
#[derive(Debug)]
pub(super) enum News {
    /// It has to be computed, and begins.
    Begun,
    /// This part of it is done.
    Reached(f64),
    /// It is over.
    Over(Outcome),
}

/// What became of a run.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was there already.
    Kept,
    /// Computed and written, in so many seconds.
    Ran(f64),
    /// The engine cannot do it.
    NotModelled(String),
    /// It went wrong.
    Failed(String),
    /// It could not be written.
    Unwritable(PathBuf, io::Error),
}

struct Shared {
    tasks: Vec<Task>,
    next: AtomicUsize,
    stopping: AtomicBool,
    models: Arc<dyn Models>,
}

/// The threads at work.
pub(super) struct Pool {
    shared: Arc<Shared>,
    /// Number of the task and what is new about it.
    pub(super) news: Receiver<(usize, News)>,
}

impl Pool {
    /// Starts so many threads on these tasks, in their order.
    pub(super) fn start(tasks: Vec<Task>, threads: usize, models: Arc<dyn Models>) -> io::Result<Pool> {
        let (send, news) = channel();
        let shared = Shared { tasks, next: AtomicUsize::new(0), stopping: AtomicBool::new(false), models };
        let shared = Arc::new(shared);
        for number in 0..threads {
            let (shared, send) = (shared.clone(), send.clone());
            thread::Builder::new().name(format!("lab {number}")).spawn(move || work(&shared, &send))?;
        }
        Ok(Pool { shared, news })
    }
}

impl Drop for Pool {
    /// Lets the threads end after the run that each is at.
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
    }
}

fn work(shared: &Shared, send: &Sender<(usize, News)>) {
    while !shared.stopping.load(Ordering::Relaxed) {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let Some(task) = shared.tasks.get(number) else { return };
        // Nobody listens after a stop.
        let tell = |news: News| drop(send.send((number, news)));
        match perform(task, shared, &tell) {
            Some(outcome) => tell(News::Over(outcome)),
            None => return,
        }
    }
}

/// Does one run unless it is there already; `None` if it was stopped meanwhile.
#[allow(clippy::disallowed_methods, reason = "how long a run took is no part of its result")]
fn perform(task: &Task, shared: &Shared, tell: &dyn Fn(News)) -> Option<Outcome> {
    if run_file::read(&task.path, &task.origin).is_ok() {
        return Some(Outcome::Kept);
    }
    tell(News::Begun);
    let begun = Instant::now();
    let mut watch = |part: f64| tell(News::Reached(part));
    let run = || shared.models.run(&task.job, &mut watch);
    // One broken run among thousands must not take the others with it.
    let ran = panic::catch_unwind(AssertUnwindSafe(run));
    let tables = match ran {
        Ok(Ok(tables)) => tables,
        Ok(Err(ModelError::NotModelled(reason))) => return Some(Outcome::NotModelled(reason)),
        Ok(Err(ModelError::Failed(reason))) => return Some(Outcome::Failed(reason)),
        Err(panic) => return Some(Outcome::Failed(format!("it panicked: {}", said(&*panic)))),
    };
    if shared.stopping.load(Ordering::Relaxed) {
        return None;
    }
    Some(match run_file::write(&task.path, &task.origin, &tables) {
        Ok(()) => Outcome::Ran(begun.elapsed().as_secs_f64()),
        Err(error) => Outcome::Unwritable(task.path.clone(), error),
    })
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}
