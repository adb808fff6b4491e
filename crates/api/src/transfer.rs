//! A running put, get or cast: its caller follows it, cancels it, or awaits its result.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::{AppError, GetResult, Progress, Shutdown, ShutdownTrigger, Watch};

/// Lines that wait for the follower; of more, the oldest are left out.
const NOTES: usize = 256;

/// News of a running transfer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Update {
    /// Its progress. An unread update is replaced by the next one.
    Progress(Progress),
    /// Something its user should know now, one line.
    Note(String),
    /// It is connected, and begins after a line on standard input ([`crate::Get::wait_for_line`]).
    Ready,
    /// Of a transfer of several objects ([`crate::Node::get_several`]): one has ended.
    Ended {
        /// The object, as it was asked for.
        what: String,
        /// Its result.
        result: Box<Result<GetResult, AppError>>,
    },
}

/// A running transfer. It is a future: what it returns is the result. Dropping it cancels the transfer.
#[derive(Debug)]
#[must_use = "dropping a transfer cancels it"]
pub struct Transfer<T> {
    task: JoinHandle<Result<T, AppError>>,
    updates: Arc<Updates>,
    stop: Arc<ShutdownTrigger>,
}

impl<T: Send + 'static> Transfer<T> {
    /// Runs what `work` makes as a task; it ends soon once the shutdown is asked for, and leaves nothing half done.
    pub(crate) fn spawn<F>(work: impl FnOnce(Shutdown, Reporter) -> F) -> Self
    where
        F: Future<Output = Result<T, AppError>> + Send + 'static,
    {
        let (stop, shutdown) = Shutdown::channel();
        let updates = Arc::new(Updates::default());
        let reporter = Reporter(updates.clone());
        let task = tokio::spawn(work(shutdown, reporter));
        Transfer { task, updates, stop: Arc::new(stop) }
    }
}

impl<T> Transfer<T> {
    /// Another hand on its end.
    pub(crate) fn trigger(&self) -> Arc<ShutdownTrigger> {
        self.stop.clone()
    }

    /// The next news; `None` once the transfer has ended. Safe to drop and call again: nothing is lost.
    pub async fn next(&mut self) -> Option<Update> {
        self.updates.next().await
    }

    /// Asks it to end. Finished parts are kept: the same request goes on from there. Wait for the transfer to know that
    /// it has.
    pub fn cancel(&self) {
        self.stop.set();
    }

    /// Follows it to its end: `hear` is told everything as it comes.
    ///
    /// # Errors
    /// As awaiting it.
    pub async fn follow(mut self, mut hear: impl FnMut(Update)) -> Result<T, AppError> {
        while let Some(update) = self.next().await {
            hear(update);
        }
        self.await
    }
}

impl<T> Future for Transfer<T> {
    type Output = Result<T, AppError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.task).poll(context).map(|ended| match ended {
            Ok(result) => result,
            Err(error) => Err(AppError::Failed(error.to_string())),
        })
    }
}

impl<T> Drop for Transfer<T> {
    fn drop(&mut self) {
        self.stop.set();
    }
}

/// Updates that wait for the follower of a transfer.
#[derive(Debug, Default)]
struct Updates {
    waiting: Mutex<Waiting>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Never more than the objects of the transfer.
    ended: VecDeque<(String, Result<GetResult, AppError>)>,
    notes: VecDeque<String>,
    ready: bool,
    progress: Option<Progress>,
    over: bool,
}

impl Waiting {
    fn take(&mut self) -> Option<Update> {
        if let Some(line) = self.notes.pop_front() {
            return Some(Update::Note(line));
        }
        if std::mem::take(&mut self.ready) {
            return Some(Update::Ready);
        }
        if let Some((what, result)) = self.ended.pop_front() {
            return Some(Update::Ended { what, result: Box::new(result) });
        }
        self.progress.take().map(Update::Progress)
    }
}

impl Updates {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        change(&mut self.waiting());
        self.more.notify_one();
    }

    async fn next(&self) -> Option<Update> {
        loop {
            {
                let mut waiting = self.waiting();
                if let Some(update) = waiting.take() {
                    return Some(update);
                }
                if waiting.over {
                    return None;
                }
            }
            self.more.notified().await;
        }
    }
}

/// The side of the work; when it is dropped, the transfer has ended.
#[derive(Debug)]
pub(crate) struct Reporter(Arc<Updates>);

impl Reporter {
    pub(crate) fn ready(&self) {
        self.0.change(|waiting| waiting.ready = true);
    }

    pub(crate) fn ended(&self, what: &str, result: Result<GetResult, AppError>) {
        self.0.change(|waiting| waiting.ended.push_back((what.to_owned(), result)));
    }

    /// Another handle for the same follower; only the first one tells it of the end.
    pub(crate) fn teller(&self) -> Teller {
        Teller(self.0.clone())
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.0.change(|waiting| waiting.over = true);
    }
}

/// Tells the follower of a transfer how far it is.
#[derive(Debug)]
pub(crate) struct Teller(Arc<Updates>);

impl Watch for Teller {
    fn progress(&mut self, progress: &Progress) {
        self.0.change(|waiting| waiting.progress = Some(progress.clone()));
    }

    fn note(&mut self, line: &str) {
        self.0.change(|waiting| {
            waiting.notes.push_back(line.to_owned());
            if waiting.notes.len() > NOTES {
                waiting.notes.pop_front();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_follower_hears_every_line_the_newest_progress_and_the_end() {
        let mut transfer = Transfer::spawn(|_, reporter| async move {
            let mut teller = reporter.teller();
            for bytes_done in 1..=3 {
                teller.progress(&Progress { bytes_done, ..Progress::default() });
            }
            teller.note("first");
            teller.note("second");
            Ok(7)
        });
        let mut heard = Vec::new();
        // The task has done all of its work before anything is read.
        while !transfer.task.is_finished() {
            tokio::task::yield_now().await;
        }
        while let Some(update) = transfer.next().await {
            heard.push(match update {
                Update::Note(line) => line,
                Update::Progress(progress) => progress.bytes_done.to_string(),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(heard, ["first", "second", "3"]);
        assert_eq!(transfer.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_transfer_that_is_cancelled_or_dropped_is_asked_to_stop() {
        let waits = |shutdown: Shutdown, _: Reporter| async move {
            shutdown.wait().await;
            Err::<(), _>(AppError::Interrupted { resumable: true })
        };
        let transfer = Transfer::spawn(waits);
        transfer.cancel();
        assert!(matches!(transfer.await, Err(AppError::Interrupted { .. })));
        let (done, ended) = tokio::sync::oneshot::channel();
        drop(Transfer::spawn(|shutdown, reporter| async move {
            let result = waits(shutdown, reporter).await;
            let _ = done.send(());
            result
        }));
        ended.await.unwrap();
    }
}
