//! A folder: its manifest, then its files, into a draft that becomes the folder when all of it is there.
//!
//! The same command resumes what an earlier one left: finished files are hashed and kept, unfinished ones keep their blocks. `-o` means
//! the same as the first time: see [`Job::folder_target`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headwater_store::manifest::Manifest;
use headwater_store::{FolderDraft, compare, tree};
use headwater_transport::push::receiver::ReceiverStats;
use headwater_units::{BitRate, Bytes, ObjectId};

use super::{FILES_AT_ONCE, Job, blocking, first_of, result_of};
use crate::fetch::{Arrivals, Destination, Fetch, Fetched, Follower, Here, file_name};
use crate::own::{self, OwnObject};
use crate::{AppError, GetResult, Output, Phase, Progress, Watch, Where};
use headwater_driver::monotonic_nanos;

/// Interval of progress reports on all files.
const TELL: Duration = Duration::from_millis(100);

/// Where a folder goes.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// Here, where nothing is, or something that may be replaced.
    At(PathBuf),
    /// It is there already, every file hashed.
    There(PathBuf),
}

impl Job<'_> {
    /// Receives the files of a folder whose manifest has come.
    pub(super) async fn folder(
        &self,
        root: &Fetched,
        manifest: Manifest,
        watch: &mut dyn Watch,
    ) -> Result<GetResult, AppError> {
        let manifest = Arc::new(manifest);
        let arrivals = root.arrivals.clone();
        let checked = manifest.clone();
        let (output, name) = (self.options.output.clone(), file_name(&self.options.what, root.object));
        let (object, overwrite) = (root.object, self.options.overwrite);
        watch.progress(&Progress {
            object: self.options.what.clone(),
            phase: Phase::Checking,
            ..Progress::default()
        });
        let target = blocking(move || {
            // The folder itself is what is wanted, not the list of what is in it.
            arrivals.partial().remove()?;
            folder_target(&output, &name, object, &checked, overwrite)
        })
        .await??;
        let total = manifest.total_bytes();
        let mut sum = Sum::of_root(root);
        let target = match target {
            Target::There(path) => {
                (sum.bytes, sum.resumed) = (total, total);
                let path = std::path::absolute(&path).unwrap_or(path);
                let swept = path.clone();
                blocking(move || FolderDraft::sweep(&swept)).await??;
                path
            }
            Target::At(path) => self.fill(path, root.object, &manifest, &mut sum, watch).await?,
        };
        let names = self.names(&sum.stats).await;
        let (seconds, finish_ns) = (self.started.elapsed().as_secs_f64(), monotonic_nanos());
        let mut result = result_of(root, &sum.stats, seconds, &names);
        (result.received_ns, result.finish_ns) = (sum.received_ns, finish_ns);
        result.resumed_bytes = sum.resumed.get();
        result.bytes = total.get();
        result.mb_per_s = result.bytes as f64 / seconds / 1e6;
        result.name = Some(self.options.what.clone());
        result.output = Some(target.display().to_string());
        Ok(result)
    }

    /// Fills the draft and gives it its name.
    async fn fill(
        &self,
        target: PathBuf,
        object: ObjectId,
        manifest: &Arc<Manifest>,
        sum: &mut Sum,
        watch: &mut dyn Watch,
    ) -> Result<PathBuf, AppError> {
        let (wanted, place) = (manifest.clone(), target.clone());
        let draft = blocking(move || FolderDraft::open(&place, object, &wanted)).await??;
        let own = self.own_files(manifest).await;
        let mut waiting = manifest.files().map(|(path, _, size, object)| (path, size, object));
        let mut running = Vec::new();
        let coming = Arc::new(AtomicU64::new(0));
        let mut tell = tokio::time::interval(TELL);
        loop {
            while running.len() < FILES_AT_ONCE
                && let Some((path, size, object)) = waiting.next()
            {
                let part = Part { all: coming.clone(), arrivals: None, counted: 0 };
                let here = Here {
                    own: own.get(&object).cloned(),
                    // Of a folder that is replaced, what has not changed is taken over.
                    earlier: Some(target.join(path)),
                    ..self.here_of_file()
                };
                running.push(Box::pin(self.file(draft.path().join(path), (size, object), here, part)));
            }
            if running.is_empty() {
                break;
            }
            tokio::select! {
                (done, index) = first_of(&mut running) => {
                    drop(running.swap_remove(index));
                    match done? {
                        (size, None) => (sum.bytes, sum.resumed) = (sum.bytes + size, sum.resumed + size),
                        (size, Some(fetched)) => sum.count(size, &fetched),
                    }
                }
                _ = tell.tick() => {}
            }
            watch.progress(&Progress {
                object: self.options.what.clone(),
                bytes_done: sum.bytes.get() + coming.load(Ordering::Relaxed),
                bytes_total: manifest.total_bytes().get(),
                rate: sum.rate(self.started),
                phase: Phase::Receiving,
                ..Progress::default()
            });
        }
        let (manifest, overwrite) = (manifest.clone(), self.options.overwrite);
        Ok(blocking(move || draft.finish(&manifest, overwrite)).await??)
    }

    /// One file of a folder; `None` if it was there already.
    async fn file(
        &self,
        path: PathBuf,
        (size, object): (Bytes, ObjectId),
        here: Here,
        mut part: Part,
    ) -> Result<(Bytes, Option<Fetched>), AppError> {
        let there = path.clone();
        if there.is_file() && blocking(move || tree::holds(&there, object, size, &mut |_| {})).await?? {
            return Ok((size, None));
        }
        let fetch = Fetch {
            config: self.receiver(&object.to_string()),
            destination: Destination::Path(path),
            state_folder: self.state_folder(),
            range: None,
            overwrite: true,
            hash: Some(object),
            here,
        };
        let fetched = fetch.run(self.host, self.controller(), self.shutdown, &mut part).await?;
        self.learn(&fetched);
        let arrivals = fetched.arrivals.clone();
        blocking(move || arrivals.partial().finish()).await??;
        Ok((size, Some(fetched)))
    }

    /// Files of a folder that the store of this machine has.
    pub(super) async fn own_files(&self, manifest: &Manifest) -> BTreeMap<ObjectId, OwnObject> {
        if matches!(self.options.at, Where::From(_)) {
            return BTreeMap::new();
        }
        let mut ids: Vec<String> = manifest.files().map(|(.., object)| object.to_string()).collect();
        ids.sort_unstable();
        ids.dedup();
        let found = own::find(&self.options.common.state, &ids).await;
        found.into_iter().flatten().map(|own| (own.id, own)).collect()
    }

    /// A file is wanted by its id.
    pub(super) fn here_of_file(&self) -> Here {
        Here { certain: true, local_only: self.options.at == Where::Here, ..Here::default() }
    }
}

/// Counts what has come of a file that is not whole yet.
struct Part {
    /// Of all files that are coming.
    all: Arc<AtomicU64>,
    arrivals: Option<Arc<Arrivals>>,
    counted: u64,
}

impl Follower for Part {
    fn opened(&mut self, arrivals: &Arc<Arrivals>, _: ObjectId, _: Bytes) {
        self.arrivals = Some(arrivals.clone());
    }
    fn tick(&mut self, _: &ReceiverStats) {
        let Some(arrivals) = &self.arrivals else { return };
        let layout = arrivals.hashes().layout();
        let here = (layout.block_bytes() * u64::from(arrivals.count())).min(layout.object_bytes()).get();
        self.all.fetch_add(here - self.counted, Ordering::Relaxed);
        self.counted = here;
    }
    fn note(&mut self, line: &str) {
        tracing::warn!("{line}");
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.all.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

/// Where a folder of this name goes.
///
/// Into `-o FOLDER`, where that is there, under its own name; else it becomes what `-o` says. But a folder that a run of the same command
/// has made is there, too, and then it is what is meant: one in which everything is named by the manifest, or has all of it.
fn folder_target(
    output: &Output,
    name: &str,
    object: ObjectId,
    manifest: &Manifest,
    overwrite: bool,
) -> Result<Target, AppError> {
    let path = match output {
        Output::File(path) if path.is_dir() => {
            let found = compare(manifest, path)?;
            let inside = path.join(name);
            if found.begun && !found.foreign {
                path.clone()
            } else if inside.symlink_metadata().is_ok() || FolderDraft::is_begun(&inside, object) {
                inside
            } else if found.complete && found.begun && found.is_verified(manifest, path, &mut |_| {})? {
                return Ok(Target::There(path.clone()));
            } else {
                inside
            }
        }
        Output::File(path) => path.clone(),
        Output::Default | Output::Stdout | Output::Store => PathBuf::from(name),
    };
    checked_target(path, manifest, overwrite)
}

/// Looks at what is where a folder goes.
fn checked_target(path: PathBuf, manifest: &Manifest, overwrite: bool) -> Result<Target, AppError> {
    let Ok(there) = path.symlink_metadata() else { return Ok(Target::At(path)) };
    let mut what = "is something else than a folder";
    if there.is_dir() {
        let found = compare(manifest, &path)?;
        // A user who replaces a folder wants nothing else in it.
        if (!overwrite || !found.foreign) && found.is_verified(manifest, &path, &mut |_| {})? {
            return Ok(Target::There(path));
        }
        what = "has another content";
    }
    if overwrite && (there.is_dir() || there.is_file() || there.is_symlink()) {
        return Ok(Target::At(path));
    }
    Err(AppError::Failed(format!(
        "{} exists already and {what}: --force replaces it, -o names another place",
        path.display()
    )))
}

/// Sum of the results of several objects.
#[derive(Default)]
pub(crate) struct Sum {
    pub(crate) bytes: Bytes,
    pub(crate) resumed: Bytes,
    pub(crate) received_ns: u64,
    pub(crate) stats: ReceiverStats,
}

impl Sum {
    /// Of a folder whose manifest has come.
    pub(super) fn of_root(root: &Fetched) -> Sum {
        Sum { stats: root.stats.clone(), received_ns: root.received_ns, ..Sum::default() }
    }

    /// One more object of this size has come.
    pub(super) fn count(&mut self, size: Bytes, fetched: &Fetched) {
        self.bytes += size;
        self.resumed += fetched.resumed;
        self.received_ns = self.received_ns.max(fetched.received_ns);
        self.add(&fetched.stats);
    }

    pub(crate) fn add(&mut self, other: &ReceiverStats) {
        let sum = &mut self.stats;
        sum.source_symbols += other.source_symbols;
        sum.arrivals += other.arrivals;
        sum.useless += other.useless;
        sum.repair_used += other.repair_used;
        sum.timeouts += other.timeouts;
        sum.flows.extend(other.flows.iter().cloned());
    }

    /// Bytes that came by the network, over the time since then.
    pub(super) fn rate(&self, started: Instant) -> BitRate {
        let came = (self.bytes - self.resumed).get() as f64 * 8.0;
        BitRate::new((came / started.elapsed().as_secs_f64()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use headwater_store::{Entry, Kind};

    use super::*;

    fn manifest() -> Manifest {
        let file = |path: &str, content: &str| Entry {
            path: path.into(),
            kind: Kind::File {
                mode: 0o644,
                size: Bytes::new(content.len() as u64),
                object: ObjectId(*blake3::hash(content.as_bytes()).as_bytes()),
            },
            modified: None,
        };
        Manifest::new(vec![file("a", "first"), file("b", "second")]).unwrap()
    }

    fn make(folder: &Path, files: &[(&str, &str)]) {
        std::fs::create_dir_all(folder).unwrap();
        files.iter().for_each(|(name, content)| std::fs::write(folder.join(name), content).unwrap());
    }

    fn target(output: &Path, overwrite: bool) -> Result<Target, AppError> {
        let output = Output::File(output.to_owned());
        folder_target(&output, "set", ObjectId([1; 32]), &manifest(), overwrite)
    }

    const ALL: &[(&str, &str)] = &[("a", "first"), ("b", "second")];

    #[test]
    fn what_an_output_meant_the_first_time_it_means_again() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        assert_eq!(target(&out, false).unwrap(), Target::At(out.clone()), "nothing is there");
        make(&out, &[]);
        assert_eq!(target(&out, false).unwrap(), Target::At(out.join("set")), "a folder is there: into it");
        make(&out, &[("diary", "mine")]);
        assert_eq!(target(&out, false).unwrap(), Target::At(out.join("set")));
        make(&out.join("set"), ALL);
        assert_eq!(target(&out, false).unwrap(), Target::There(out.join("set")));
        let copy = folder.path().join("copy");
        make(&copy, ALL);
        assert_eq!(target(&copy, false).unwrap(), Target::There(copy.clone()), "made by the same command");
        make(&copy, &[("diary", "mine")]);
        assert_eq!(
            target(&copy, false).unwrap(),
            Target::There(copy.clone()),
            "somebody has put more into it"
        );
    }

    #[test]
    fn a_folder_of_another_content_is_replaced_only_if_asked_and_never_one_with_anything_else_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        make(&out, &[("a", "other"), ("b", "second")]);
        let error = target(&out, false).unwrap_err().to_string();
        assert!(error.contains("--force"), "{error}");
        assert_eq!(target(&out, true).unwrap(), Target::At(out.clone()));
        // With a file in it that the folder does not have it is a folder to put things into.
        make(&out, &[("diary", "mine")]);
        assert_eq!(target(&out, true).unwrap(), Target::At(out.join("set")));
        let file = folder.path().join("file");
        std::fs::write(&file, "mine").unwrap();
        assert!(target(&file, false).is_err());
        assert_eq!(target(&file, true).unwrap(), Target::At(file));
    }
}
