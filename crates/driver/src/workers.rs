//! Worker threads for what must not block the data thread: disks, decoders, hashes.
//!
//! Jobs come one by one and results are fetched all at once. A lock is held only for as long as it takes to move one of
//! them, and a thread is called only if it sleeps: while the threads are busy, handing over costs no system call.
//! A job that panics ends the data thread too: without its result a block would stay unfinished for ever, and nobody would know.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use headwater_udp::Waker;

type Job<R> = Box<dyn FnOnce() -> R + Send>;

/// Jobs wait here at most; the machines bound them far lower (blocks in flight, blocks prepared ahead).
const QUEUE: usize = 4096;

/// A fixed number of threads that run jobs and hand results back to the data thread.
pub(crate) struct Workers<R> {
    desk: Arc<Desk<R>>,
    threads: Vec<JoinHandle<()>>,
}

/// Where the data thread and the others meet.
struct Desk<R> {
    jobs: Mutex<Jobs<R>>,
    more: Condvar,
    results: Mutex<Results<R>>,
    waker: Waker,
}

struct Results<R> {
    done: Vec<R>,
    /// The message of a job that panicked.
    panic: Option<Box<dyn Any + Send>>,
}

struct Jobs<R> {
    waiting: VecDeque<Job<R>>,
    /// Threads that sleep.
    asleep: usize,
    /// Of these, threads that were called and have not come yet.
    called: usize,
    ended: bool,
}

impl<R: Send + 'static> Workers<R> {
    /// Starts `count` threads; `waker` tells the data thread of results.
    pub(crate) fn start(count: usize, waker: &Waker) -> std::io::Result<Self> {
        let jobs = Jobs { waiting: VecDeque::new(), asleep: 0, called: 0, ended: false };
        let desk = Arc::new(Desk {
            jobs: Mutex::new(jobs),
            more: Condvar::new(),
            results: Mutex::new(Results { done: Vec::new(), panic: None }),
            waker: waker.clone(),
        });
        // Those that were started end with this value, should another fail to start.
        let mut workers = Workers { desk, threads: Vec::new() };
        for n in 0..count.max(1) {
            let desk = workers.desk.clone();
            let thread =
                std::thread::Builder::new().name(format!("worker-{n}")).spawn(move || desk.work_or_tell())?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Hands a job over. Runs it here and now should the queue be full, which the machines' bounds prevent.
    pub(crate) fn submit(&self, job: impl FnOnce() -> R + Send + 'static) {
        let mut jobs = lock(&self.desk.jobs);
        if jobs.waiting.len() >= QUEUE {
            drop(jobs);
            return self.desk.hand_back(job());
        }
        jobs.waiting.push_back(Box::new(job));
        let call = jobs.asleep > jobs.called;
        jobs.called += usize::from(call);
        drop(jobs);
        if call {
            self.desk.more.notify_one();
        }
    }

    /// Swaps the results so far for `emptied`, so that neither list is allocated anew.
    ///
    /// # Panics
    /// A job has panicked.
    pub(crate) fn take_results(&self, emptied: &mut Vec<R>) {
        debug_assert!(emptied.is_empty(), "results of the last time were dealt with");
        let mut results = lock(&self.desk.results);
        std::mem::swap(&mut results.done, emptied);
        if let Some(panic) = results.panic.take() {
            drop(results);
            resume_unwind(panic);
        }
    }
}

impl<R> Desk<R> {
    fn work_or_tell(&self) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work())) {
            lock(&self.results).panic = Some(panic);
            self.waker.wake();
        }
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            self.hand_back(job());
        }
    }

    /// Sleeps until there is a job; `None` when all is over.
    fn next(&self) -> Option<Job<R>> {
        let mut jobs = lock(&self.jobs);
        loop {
            if jobs.ended {
                return None;
            }
            if let Some(job) = jobs.waiting.pop_front() {
                return Some(job);
            }
            jobs.asleep += 1;
            let woken = self.more.wait_while(jobs, |jobs| jobs.called == 0 && !jobs.ended);
            jobs = woken.unwrap_or_else(PoisonError::into_inner);
            jobs.asleep -= 1;
            jobs.called = jobs.called.saturating_sub(1);
        }
    }

    fn hand_back(&self, result: R) {
        let mut results = lock(&self.results);
        results.done.push(result);
        let first = results.done.len() == 1;
        drop(results);
        // The worker that put in the first has woken the data thread, and that takes all of them.
        if first {
            self.waker.wake();
        }
    }
}

impl<R> Drop for Workers<R> {
    fn drop(&mut self) {
        let mut jobs = lock(&self.desk.jobs);
        jobs.ended = true;
        jobs.waiting.clear();
        drop(jobs);
        self.desk.more.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Nothing that can panic runs under these locks, so a poisoned one holds no half-made change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    /// Everything that comes until there are `count`.
    fn collect(workers: &Workers<usize>, count: usize) -> Vec<usize> {
        let (mut all, mut some) = (Vec::new(), Vec::new());
        while all.len() < count {
            workers.take_results(&mut some);
            all.append(&mut some);
            std::thread::yield_now();
        }
        all
    }

    #[test]
    fn every_job_is_run_once_however_they_come() {
        let workers = Workers::start(3, &Waker::new().unwrap()).unwrap();
        for round in 0..200 {
            // From one job, where threads have fallen asleep, to more than the queue holds.
            let count = if round == 100 { QUEUE + 100 } else { round % 7 };
            (0..count).for_each(|n| workers.submit(move || n));
            let results = collect(&workers, count);
            assert_eq!(results.len(), count);
            assert_eq!(results.into_iter().collect::<BTreeSet<_>>(), (0..count).collect());
        }
    }

    #[test]
    fn a_slow_job_holds_up_no_other() {
        let workers = Workers::start(2, &Waker::new().unwrap()).unwrap();
        let (go, gone) = channel::<()>();
        workers.submit(move || gone.recv().map_or(0, |()| 1000));
        (1..50).for_each(|n| workers.submit(move || n));
        assert_eq!(collect(&workers, 49), (1..50).collect::<Vec<_>>());
        go.send(()).unwrap();
        assert_eq!(collect(&workers, 1), [1000]);
    }

    #[test]
    fn what_waits_at_the_end_is_given_up() {
        let workers = Workers::start(1, &Waker::new().unwrap()).unwrap();
        let ran = Arc::new(AtomicBool::new(false));
        let (witness, seen) = (Arc::new(()), ran.clone());
        let waits = Arc::downgrade(&witness);
        workers.submit(move || {
            // The only thread is busy until the job behind this one is thrown away.
            while waits.strong_count() > 0 {
                std::thread::yield_now();
            }
            0
        });
        workers.submit(move || {
            let _witness = witness;
            seen.store(true, Ordering::Relaxed);
            1
        });
        drop(workers);
        assert!(!ran.load(Ordering::Relaxed));
    }

    #[test]
    #[should_panic(expected = "no such block")]
    fn the_data_thread_hears_of_a_job_that_panics() {
        let workers = Workers::start(1, &Waker::new().unwrap()).unwrap();
        workers.submit(|| panic!("no such block"));
        collect(&workers, 1);
    }
}
