//! Several objects by one command: one process, one link to the controller, a bounded number in parallel.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headwater_units::{BitRate, ObjectId, PathId};

use super::{
    CONTROLLER_PATIENCE, FILES_AT_ONCE, GetOptions, Job, connect, first_of, nobody_known, output, within,
};
use crate::drain::Draining;
use crate::fetch::file_name;
use crate::host::Host;
use crate::own::{self, OwnObject};
use crate::{AppError, GetResult, Phase, Progress, ProgressSource, Shutdown, Watch, Where};

/// Interval of progress reports on all objects.
const TELL: Duration = Duration::from_millis(100);

/// Fetches several objects ([`each_of`]); `done` hears what came of each. One that fails does not hold up the others.
/// The caller, after showing all results, must let others finish who are served from them ([`Draining::end`]).
///
/// # Errors
/// [`AppError`] of what concerns all of them: then nothing was fetched.
pub(crate) async fn get_several(
    options: &GetOptions,
    each: &[GetOptions],
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
    done: &mut (dyn FnMut(&str, Result<GetResult, AppError>) + Send),
) -> Result<Draining, AppError> {
    let created = output::check(&options.output, options.overwrite)?;
    let ended = all(options, each, shutdown, watch, done).await;
    output::undo(created);
    ended
}

/// The same for each of several objects.
///
/// # Errors
/// [`AppError::Usage`] if two of them would have the same file.
pub(crate) fn each_of(options: &GetOptions, what: &[String]) -> Result<Vec<GetOptions>, AppError> {
    check_names(what)?;
    let one = |what: &String| GetOptions { what: what.clone(), hash: what.parse().ok(), ..options.clone() };
    Ok(what.iter().map(one).collect())
}

/// Two objects under one name would replace each other.
fn check_names(what: &[String]) -> Result<(), AppError> {
    let mut names = BTreeMap::new();
    for what in what {
        let name = file_name(what, ObjectId([0; 32]));
        if let Some(other) = names.insert(name.clone(), what) {
            return Err(AppError::Usage(format!(
                "'{other}' and '{what}' would both become {name}: fetch them by two commands, into two folders"
            )));
        }
    }
    Ok(())
}

/// The machine that fetches them and the link to the peer to ask; and why nobody can be asked, if only what this
/// machine has can be had.
async fn reach(
    options: &GetOptions,
    has_some: bool,
    started: Instant,
    watch: &mut dyn Watch,
) -> Result<(Host, PathId, Option<AppError>), AppError> {
    // Nobody may be there to ask, and this machine have some of them all the same.
    let reached = match has_some {
        true => {
            tokio::time::timeout(CONTROLLER_PATIENCE, connect(options, watch)).await.unwrap_or_else(|_| {
                Err(AppError::Unreachable {
                    who: "the controller".to_owned(),
                    reason: "no answer".to_owned(),
                })
            })
        }
        false if options.at == Where::Here => return Err(nobody_known()),
        false => within(options, started, connect(options, watch)).await,
    };
    match reached {
        Err(error @ AppError::Unreachable { .. }) if has_some => {
            watch.note(&format!("{error}; what this machine's own store has is taken from there"));
            let (host, path) = connect(&GetOptions { at: Where::Here, ..options.clone() }, watch).await?;
            Ok((host, path, Some(error)))
        }
        reached => reached.map(|(host, path)| (host, path, None)),
    }
}

async fn all(
    options: &GetOptions,
    each: &[GetOptions],
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
    done: &mut (dyn FnMut(&str, Result<GetResult, AppError>) + Send),
) -> Result<Draining, AppError> {
    #[allow(clippy::disallowed_methods)] // The results say how long it took.
    let started = Instant::now();
    let own: Vec<Option<OwnObject>> = match options.at {
        Where::From(_) => vec![None; each.len()],
        _ => {
            let what: Vec<String> = each.iter().map(|it| it.what.clone()).collect();
            own::find(&options.common.state, &what).await
        }
    };
    let (host, path, fallback) = reach(options, own.iter().any(Option::is_some), started, watch).await?;
    let nobody = fallback.is_some() || options.at == Where::Here;
    let each: Vec<GetOptions> = each
        .iter()
        .map(|it| GetOptions { at: if nobody { Where::Here } else { it.at.clone() }, ..it.clone() })
        .collect();
    let shared = Arc::new(Mutex::new(Shared { progress: BTreeMap::new(), notes: Vec::new(), ended: 0 }));
    let mut waiting = each.iter().zip(own).enumerate();
    let mut running = Vec::new();
    let (mut silent, mut kept) = (Vec::new(), VecDeque::new());
    let mut tell = tokio::time::interval(TELL);
    loop {
        while running.len() < FILES_AT_ONCE
            && let Some((index, (options, own))) = waiting.next()
        {
            if shutdown.is_set() {
                done(&options.what, Err(AppError::Interrupted { resumable: true }));
                continue;
            }
            if nobody && own.is_none() {
                let error = fallback.as_ref().map_or_else(nobody_known, |error| AppError::Daemon {
                    code: error.exit_code(),
                    message: error.to_string(),
                });
                done(&options.what, Err(error));
                continue;
            }
            let mut job = Job::new(options, &host, path, shutdown, started);
            job.own = own;
            let part = Part { index, shared: shared.clone() };
            running.push(Box::pin(one(job, &host, part)));
        }
        if running.is_empty() {
            break;
        }
        tokio::select! {
            ((index, result, mut job), at) = first_of(&mut running) => {
                drop(running.swap_remove(at));
                let (more_silent, more_kept) = job.take_parts();
                silent.extend(more_silent);
                kept.extend(more_kept);
                shared.tell(each.len(), watch);
                shared.lock_it().end(index);
                done(&each[index].what, result);
            }
            _ = tell.tick() => shared.tell(each.len(), watch),
        }
    }
    shared.tell(each.len(), watch);
    let stays = options.drain && !shutdown.is_set();
    drop(running);
    Ok(Draining::new(host.clone(), silent, kept, stays))
}

/// One of them; and if nobody else knows it, from this machine's own store.
async fn one<'a>(
    job: Job<'a>,
    host: &'a Host,
    mut part: Part,
) -> (usize, Result<GetResult, AppError>, Job<'a>) {
    let index = part.index;
    let result = within(job.options, job.started, job.object(&mut part)).await;
    if let (Err(error @ AppError::NotFound(_)), Some(own)) = (&result, job.own.clone()) {
        part.note(&format!("{error}; it is taken from this machine's own store"));
        let options = GetOptions { at: Where::Here, ..job.options.clone() };
        let mut file = Job::new(&options, host, job.path, job.shutdown, job.started);
        file.own = Some(own);
        let result = within(&options, job.started, file.object(&mut part)).await;
        return (index, result, job);
    }
    (index, result, job)
}

/// Progress of all of them, and messages to show.
struct Shared {
    progress: BTreeMap<usize, Progress>,
    notes: Vec<String>,
    ended: usize,
}

impl Shared {
    /// One is through: its bytes count, its sources are not shown any more.
    fn end(&mut self, index: usize) {
        self.ended += 1;
        if let Some(progress) = self.progress.get_mut(&index) {
            progress.sources.clear();
            progress.rate = BitRate::ZERO;
            progress.bytes_done = progress.bytes_total;
        }
    }

    /// All of them as one.
    fn sum(&self, objects: usize) -> Progress {
        let mut sum = Progress {
            object: format!("{} of {objects} objects done", self.ended),
            phase: Phase::Asking,
            ..Progress::default()
        };
        let mut sources: Vec<ProgressSource> = Vec::new();
        for progress in self.progress.values() {
            sum.bytes_done += progress.bytes_done;
            sum.bytes_total += progress.bytes_total;
            sum.rate = BitRate::new(sum.rate.get() + progress.rate.get());
            if progress.bytes_total > 0 {
                sum.phase = Phase::Receiving;
            }
            for source in &progress.sources {
                match sources.iter_mut().find(|it| it.node == source.node) {
                    Some(known) => {
                        known.rate = BitRate::new(known.rate.get() + source.rate.get());
                        known.live |= source.live;
                    }
                    None => sources.push(source.clone()),
                }
            }
        }
        let rates: u64 = sources.iter().map(|it| it.rate.get()).sum();
        for source in &mut sources {
            source.share = if rates == 0 { 0.0 } else { source.rate.get() as f64 / rates as f64 };
        }
        sum.sources = sources;
        sum
    }
}

trait Tell {
    fn lock_it(&self) -> MutexGuard<'_, Shared>;

    fn tell(&self, objects: usize, watch: &mut dyn Watch) {
        let (notes, sum) = {
            let mut shared = self.lock_it();
            (std::mem::take(&mut shared.notes), shared.sum(objects))
        };
        notes.iter().for_each(|note| watch.note(note));
        watch.progress(&sum);
    }
}

impl Tell for Arc<Mutex<Shared>> {
    fn lock_it(&self) -> MutexGuard<'_, Shared> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Progress of one of them.
struct Part {
    index: usize,
    shared: Arc<Mutex<Shared>>,
}

impl Watch for Part {
    fn progress(&mut self, progress: &Progress) {
        let mut shared = self.shared.lock_it();
        let known = shared.progress.entry(self.index).or_default();
        // The last word of a phase that counts no bytes must not take back what was counted.
        let (done, total) = (known.bytes_done, known.bytes_total);
        *known = progress.clone();
        if progress.bytes_total == 0 {
            (known.bytes_done, known.bytes_total) = (done, total);
        }
    }

    fn note(&mut self, line: &str) {
        self.shared.lock_it().notes.push(line.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_would_replace_each_other_are_refused() {
        let names = |what: &[&str]| check_names(&what.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
        assert!(names(&["a", "b", "sets/c"]).is_ok());
        assert!(names(&["a", "sets/a"]).is_err());
        assert!(names(&["a", "a"]).is_err());
    }

    #[test]
    fn what_all_have_done_is_shown_as_one() {
        let shared = Arc::new(Mutex::new(Shared { progress: BTreeMap::new(), notes: Vec::new(), ended: 0 }));
        let source = |rate| ProgressSource {
            node: "10.0.0.1:7001".into(),
            rate: BitRate::new(rate),
            share: 1.0,
            theta: None,
            live: true,
        };
        for (index, rate) in [(0, 100), (1, 300)] {
            let mut part = Part { index, shared: shared.clone() };
            part.progress(&Progress {
                bytes_done: 10,
                bytes_total: 50,
                rate: BitRate::new(rate),
                sources: vec![source(rate)],
                ..Progress::default()
            });
        }
        let sum = shared.lock_it().sum(3);
        assert_eq!((sum.bytes_done, sum.bytes_total, sum.rate), (20, 100, BitRate::new(400)));
        assert_eq!((sum.sources.len(), sum.sources[0].rate), (1, BitRate::new(400)));
        shared.lock_it().end(0);
        let sum = shared.lock_it().sum(3);
        assert_eq!((&*sum.object, sum.bytes_done, sum.rate), ("1 of 3 objects done", 60, BitRate::new(300)));
    }
}
