//! Threads for what must not stop the data thread: disks, decoders, hashes.

use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::socket::Waker;

type Job<R> = Box<dyn FnOnce() -> R + Send>;

/// Jobs wait here at most; the machines bound them far lower (blocks in flight, blocks prepared ahead).
const QUEUE: usize = 4096;

/// A fixed number of threads that run jobs and hand results back to the data thread.
pub(super) struct Workers<R> {
    jobs: Option<SyncSender<Job<R>>>,
    threads: Vec<JoinHandle<()>>,
}

impl<R: Send + 'static> Workers<R> {
    /// Starts `count` threads; results go to `results`, and `waker` tells the data thread so.
    pub(super) fn start(count: usize, results: &Sender<R>, waker: &Waker) -> std::io::Result<Self> {
        let (jobs, queue) = sync_channel::<Job<R>>(QUEUE);
        let queue = Arc::new(Mutex::new(queue));
        let threads = (0..count.max(1))
            .map(|n| {
                let (queue, results, waker) = (queue.clone(), results.clone(), waker.clone());
                std::thread::Builder::new()
                    .name(format!("worker-{n}"))
                    .spawn(move || work(&queue, &results, &waker))
            })
            .collect::<Result<_, _>>()?;
        Ok(Workers { jobs: Some(jobs), threads })
    }

    /// Hands a job over. Runs it here and now should the queue be full, which the machines' bounds prevent.
    pub(super) fn submit(&mut self, job: impl FnOnce() -> R + Send + 'static) -> Option<R> {
        let jobs = self.jobs.as_ref().expect("workers live until dropped");
        match jobs.try_send(Box::new(job)) {
            Ok(()) => None,
            Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => Some(job()),
        }
    }
}

fn work<R>(queue: &Mutex<Receiver<Job<R>>>, results: &Sender<R>, waker: &Waker) {
    loop {
        let job = match queue.lock() {
            Ok(queue) => queue.recv(),
            Err(_) => return,
        };
        let Ok(job) = job else { return };
        if results.send(job()).is_err() {
            return;
        }
        waker.wake();
    }
}

impl<R> Drop for Workers<R> {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
