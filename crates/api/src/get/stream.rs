//! Objects that are written to a stream as they arrive: to standard output, a device or a pipe; a folder as a tar.
//!
//! A thread takes the blocks in their order and writes them ([`super::super::spool`] holds the others). It may wait for its reader
//! without limit: the end of the command does not wait for it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use headwater_store::manifest::{self, Kind, Manifest};
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::push::receiver::ReceiverStats;
use headwater_units::{BlockIndex, Bytes, ObjectId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::folder::Sum;
use super::{FILES_AT_ONCE, GetOptions, Job, first_of, result_of};
use crate::fetch::{Arrivals, Destination, Fetch, Fetched, Follower, Here, file_name};
use crate::own::OwnObject;
use crate::{AppError, GetResult, Output, Phase, Progress, Shutdown, Watch};
use headwater_driver::monotonic_nanos;

/// Bytes of one object that may be here ahead of the writer, beside what is in flight.
pub(super) const LEAD: Bytes = Bytes::mib(16);
/// Blocks of 256 KiB in flight of what goes to a stream: 32 MiB.
pub(super) const IN_FLIGHT: usize = 128;
/// The same of each file of a tar, of which several come at once.
const FILE_LEAD: Bytes = Bytes::mib(4);
const FILE_IN_FLIGHT: usize = 32;
/// Files of a tar that are coming, or are here and not written.
const FILES_AHEAD: usize = 8;
/// Interval at which a pipe is tried again until somebody reads from it.
const NO_READER: Duration = Duration::from_millis(50);
/// Time for a writer that has been told to end to say how far it came.
const LAST_WORD: Duration = Duration::from_millis(200);
const BUFFER: usize = 256 << 10;

/// Whether the output is written on as it comes, instead of becoming a file.
pub(super) fn is_stream(output: &Output) -> bool {
    match output {
        Output::Stdout => true,
        Output::File(path) => std::fs::metadata(path).is_ok_and(|m| is_special(m.file_type())),
        Output::Default | Output::Store => false,
    }
}

fn is_special(kind: std::fs::FileType) -> bool {
    kind.is_char_device() || kind.is_block_device() || kind.is_fifo() || kind.is_socket()
}

/// Where a stream goes.
#[derive(Debug)]
pub(crate) struct Outlet {
    file: File,
    /// Its name in messages.
    label: String,
    /// Size of a block device.
    room: Option<Bytes>,
}

impl Outlet {
    /// Opens what the output is, if it is a stream. A pipe is waited for until somebody reads from it.
    pub(super) async fn open(
        options: &GetOptions,
        shutdown: &Shutdown,
        watch: &mut dyn Watch,
    ) -> Result<Option<Arc<Outlet>>, AppError> {
        let path = match &options.output {
            Output::Stdout => {
                let file = io::stdout().as_fd().try_clone_to_owned();
                let file: OwnedFd = file.map_err(|e| AppError::io("cannot write to standard output", e))?;
                let label = "standard output".to_owned();
                return Ok(Some(Arc::new(Outlet { file: file.into(), label, room: None })));
            }
            Output::File(path) if is_stream(&options.output) => path,
            _ => return Ok(None),
        };
        let kind = std::fs::metadata(path).map_err(|e| cannot_write(path, e))?.file_type();
        if kind.is_socket() {
            return Err(AppError::Usage(format!(
                "{} is a socket, into which no object can be written; use -o - and a program that talks to it",
                path.display()
            )));
        }
        if kind.is_block_device() && !options.overwrite {
            return Err(AppError::Usage(format!(
                "{} is a block device, and what is on it would be lost; --force writes the object onto it",
                path.display()
            )));
        }
        let mut file = match kind.is_fifo() {
            true => open_pipe(path, shutdown, watch).await?,
            false => OpenOptions::new().write(true).open(path).map_err(|e| cannot_write(path, e))?,
        };
        let mut room = None;
        if kind.is_block_device() {
            let size = file.seek(SeekFrom::End(0)).and_then(|size| file.rewind().map(|()| size));
            room = Some(Bytes::new(size.map_err(|e| cannot_write(path, e))?));
        }
        Ok(Some(Arc::new(Outlet { file, label: path.display().to_string(), room })))
    }

    /// Whether an object fits where it goes, as far as that can be known.
    fn check_room(&self, bytes: Bytes) -> Result<(), AppError> {
        match self.room {
            Some(room) if room < bytes => {
                Err(AppError::NoRoom(format!("{} holds {room}, the object has {bytes}", self.label)))
            }
            _ => Ok(()),
        }
    }

    /// Whether somebody may still read what is written.
    fn has_reader(&self) -> bool {
        let mut fds = [PollFd::new(&self.file, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut fds, Some(&at_once)) {
            Ok(_) => !fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL),
            Err(_) => true,
        }
    }

    fn failed(&self, error: io::Error) -> AppError {
        AppError::io(format!("cannot write to {}", self.label), error)
    }

    /// Has a disk keep what was written.
    fn sync(&self) -> Result<(), AppError> {
        match self.room {
            Some(_) => self.file.sync_all().map_err(|e| self.failed(e)),
            None => Ok(()),
        }
    }
}

fn cannot_write(path: &Path, error: io::Error) -> AppError {
    AppError::io(format!("cannot write to {}", path.display()), error)
}

/// Opens a pipe for writing as soon as it has a reader, without waiting inside the kernel, where nothing could end the wait.
async fn open_pipe(path: &Path, shutdown: &Shutdown, watch: &mut dyn Watch) -> Result<File, AppError> {
    let mut told = false;
    loop {
        let no_wait = OFlags::NONBLOCK.bits() as i32;
        match OpenOptions::new().write(true).custom_flags(no_wait).open(path) {
            Ok(file) => {
                let flags = rustix::fs::fcntl_getfl(&file).map_err(|e| cannot_write(path, e.into()))?;
                let waits = rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK);
                waits.map_err(|e| cannot_write(path, e.into()))?;
                return Ok(file);
            }
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                if !std::mem::replace(&mut told, true) {
                    watch.note(&format!("waiting until somebody reads from {}", path.display()));
                }
                tokio::select! {
                    () = tokio::time::sleep(NO_READER) => {}
                    () = shutdown.wait() => return Err(AppError::Interrupted { resumable: false }),
                }
            }
            Err(error) => return Err(cannot_write(path, error)),
        }
    }
}

/// Result of a writer at its end.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) sha256: Option<String>,
    /// The object is a folder: nothing of it was written.
    pub(crate) manifest: Option<Manifest>,
}

/// A thread that takes an object's blocks in their order.
pub(crate) struct Writer {
    arrivals: Arc<Arrivals>,
    ended: oneshot::Receiver<Result<Written, AppError>>,
}

impl Writer {
    /// Starts one: it writes to the outlet, if there is one, and computes SHA-256, if asked to.
    pub(crate) fn start(arrivals: &Arc<Arrivals>, outlet: Option<Arc<Outlet>>, sha256: bool) -> Writer {
        let (end, ended) = oneshot::channel();
        let taken = arrivals.clone();
        std::thread::spawn(move || {
            let result = write_blocks(&taken, outlet.as_deref(), sha256);
            if result.is_err() {
                taken.give_up();
            }
            let _ = end.send(result);
        });
        Writer { arrivals: arrivals.clone(), ended }
    }

    /// Waits until all is written, which is here now if the fetch has `succeeded`; else not for long.
    pub(crate) async fn end(self, succeeded: bool, shutdown: &Shutdown) -> Result<Written, AppError> {
        let Writer { arrivals, ended } = self;
        arrivals.stop();
        let given_up = async {
            if succeeded {
                shutdown.wait().await;
            }
            // It may wait in the kernel for a reader that takes nothing: then it ends with the process.
            tokio::time::sleep(LAST_WORD).await;
        };
        tokio::select! {
            result = ended => result.unwrap_or_else(|_| {
                Err(AppError::Failed("passing the object on has failed".to_owned()))
            }),
            () = given_up => Err(AppError::Interrupted { resumable: false }),
        }
    }
}

/// Passes the blocks on in their order as they become verified. A folder's are looked at only.
fn write_blocks(arrivals: &Arrivals, outlet: Option<&Outlet>, sha256: bool) -> Result<Written, AppError> {
    let range = arrivals.range();
    let size = arrivals.hashes().size();
    let mut blocks = Blocks::new(arrivals, outlet);
    let mut hasher = Sha256::new();
    let may_be_folder = outlet.is_some() && range == (0..size.get());
    let mut folder: Option<Vec<u8>> = None;
    let mut first = true;
    while let Some(bytes) = blocks.next()? {
        if std::mem::take(&mut first) {
            let is_folder = may_be_folder
                && size.get() <= manifest::MAX_MANIFEST_BYTES as u64
                && manifest::is_manifest(bytes);
            if is_folder {
                folder = Some(Vec::new());
            } else if let Some(outlet) = outlet {
                outlet.check_room(Bytes::new(range.end - range.start))?;
            }
        }
        match (&mut folder, outlet) {
            (Some(all), _) => all.extend_from_slice(bytes),
            (None, Some(outlet)) => (&outlet.file).write_all(bytes).map_err(|e| outlet.failed(e))?,
            (None, None) => {}
        }
        if sha256 {
            hasher.update(bytes);
        }
    }
    if let Some(outlet) = outlet {
        outlet.sync()?;
    }
    Ok(Written {
        sha256: sha256.then(|| hasher.finalize().iter().map(|b| format!("{b:02x}")).collect()),
        manifest: folder.map(|bytes| Manifest::parse(&bytes)).transpose()?,
    })
}

/// The wanted bytes of an object, block by block.
struct Blocks<'a> {
    arrivals: &'a Arrivals,
    outlet: Option<&'a Outlet>,
    next: u32,
    block: Vec<u8>,
}

impl<'a> Blocks<'a> {
    fn new(arrivals: &'a Arrivals, outlet: Option<&'a Outlet>) -> Blocks<'a> {
        Blocks { arrivals, outlet, next: arrivals.wanted().start, block: Vec::new() }
    }

    /// The wanted part of the next block; `None` behind the last.
    fn next(&mut self) -> Result<Option<&[u8]>, AppError> {
        let index = BlockIndex(self.next);
        if index.0 >= self.arrivals.wanted().end {
            return Ok(None);
        }
        let mut gone = false;
        let outlet = self.outlet;
        let came = self.arrivals.next(index, &mut self.block, &mut || {
            gone = outlet.is_some_and(|outlet| !outlet.has_reader());
            !gone
        })?;
        if let (true, Some(outlet)) = (gone, outlet) {
            return Err(outlet.failed(io::ErrorKind::BrokenPipe.into()));
        }
        if !came {
            return Err(AppError::Interrupted { resumable: outlet.is_none() });
        }
        self.next += 1;
        let offset = self.arrivals.hashes().layout().offset(index).get();
        let (range, len) = (self.arrivals.range(), self.block.len() as u64);
        let from = range.start.saturating_sub(offset).min(len) as usize;
        let to = (range.end - offset).min(len) as usize;
        Ok(Some(&self.block[from..to]))
    }
}

// ---- a folder as a tar ---------------------------------------------------------------------------------------------

/// When it was last written to, in seconds since 1970 if that is known, and one thing for the tar, in its order.
type Dated = (Option<u64>, Item);

enum Item {
    Folder { path: PathBuf, mode: u32 },
    Link { path: PathBuf, target: OsString },
    File { path: PathBuf, mode: u32, size: Bytes, coming: Coming },
}

/// A file that is being fetched.
struct Coming {
    arrivals: mpsc::Receiver<Arc<Arrivals>>,
    /// Given back when it is written.
    _turn: OwnedSemaphorePermit,
}

/// Hands a file's blocks to the thread that writes the tar.
struct Handing {
    to: mpsc::Sender<Arc<Arrivals>>,
    opened: Option<Arc<Arrivals>>,
}

impl Follower for Handing {
    fn opened(&mut self, arrivals: &Arc<Arrivals>, _: ObjectId, _: Bytes) {
        self.opened = Some(arrivals.clone());
        // A writer that has ended takes nothing any more.
        let _ = self.to.send(arrivals.clone());
    }
    fn tick(&mut self, _: &ReceiverStats) {}
    fn note(&mut self, line: &str) {
        tracing::warn!("{line}");
    }
}

/// The blocks that have come are here for the writer to take; no others will be.
impl Drop for Handing {
    fn drop(&mut self) {
        if let Some(arrivals) = &self.opened {
            arrivals.stop();
        }
    }
}

impl Job<'_> {
    /// How an object is fetched that goes to a stream.
    pub(super) fn passing(&self) -> ReceiverConfig {
        ReceiverConfig {
            blocks_in_flight: IN_FLIGHT,
            counts_asked_for: true,
            ..self.receiver(&self.options.what)
        }
    }

    /// Writes a folder as a tar, below its own name.
    pub(super) async fn tar(
        &self,
        outlet: &Arc<Outlet>,
        root: &Fetched,
        manifest: &Manifest,
        watch: &mut dyn Watch,
    ) -> Result<GetResult, AppError> {
        let total = manifest.total_bytes();
        outlet.check_room(total)?;
        let base = PathBuf::from(file_name(&self.options.what, root.object));
        let own = self.own_files(manifest).await;
        let (items, queue) = mpsc::channel();
        let (end, mut ended) = oneshot::channel();
        let target = outlet.clone();
        std::thread::spawn(move || {
            let result = write_tar(&target, &queue);
            // The senders and the turns hear of it first.
            drop(queue);
            let _ = end.send(result);
        });
        // A writer that has ended says why below.
        let _ = items.send((None, Item::Folder { path: base.clone(), mode: 0o755 }));
        let mut sum = Sum::of_root(root);
        let files = (manifest, base.as_path(), &own);
        let early = self.files_of_tar(files, &items, &mut ended, &mut sum, watch).await;
        drop(items);
        tokio::select! {
            result = tar_written(&early, ended) => result?,
            () = self.shutdown.wait() => return Err(AppError::Interrupted { resumable: false }),
        }
        if let Some(Err(error)) = early {
            return Err(error.without_resuming());
        }
        outlet.sync()?;
        let (seconds, finish_ns) = (self.started.elapsed().as_secs_f64(), monotonic_nanos());
        let names = self.names(&sum.stats).await;
        let mut result = result_of(root, &sum.stats, seconds, &names);
        (result.received_ns, result.finish_ns) = (sum.received_ns, finish_ns);
        (result.bytes, result.resumed_bytes) = (total.get(), sum.resumed.get());
        result.mb_per_s = result.bytes as f64 / seconds / 1e6;
        result.name = Some(self.options.what.clone());
        result.output = self.stream_name();
        Ok(result)
    }

    /// Fetches a tar's files, a few at a time, and hands over all entries in their order. Ends before that with an error, or when the
    /// writer has ended.
    async fn files_of_tar(
        &self,
        (manifest, base, own): (&Manifest, &Path, &BTreeMap<ObjectId, OwnObject>),
        items: &mpsc::Sender<(Option<u64>, Item)>,
        ended: &mut oneshot::Receiver<Result<(), AppError>>,
        sum: &mut Sum,
        watch: &mut dyn Watch,
    ) -> Option<Result<(), AppError>> {
        let turns = Arc::new(Semaphore::new(FILES_AHEAD));
        let mut waiting = manifest.entries().iter().peekable();
        let mut running = Vec::new();
        loop {
            while running.len() < FILES_AT_ONCE
                && let Some(entry) = waiting.peek()
            {
                let path = base.join(&entry.path);
                let item = match &entry.kind {
                    Kind::Folder { mode, .. } => Item::Folder { path, mode: *mode },
                    Kind::Symlink { target, .. } => Item::Link { path, target: target.clone() },
                    Kind::File { mode, size, object, .. } => {
                        let Ok(turn) = turns.clone().try_acquire_owned() else { break };
                        let (to, arrivals) = mpsc::channel();
                        let here = Here { own: own.get(object).cloned(), ..self.here_of_file() };
                        running.push(Box::pin(self.file_of_tar(*object, *size, here, to)));
                        let coming = Coming { arrivals, _turn: turn };
                        Item::File { path, mode: *mode, size: *size, coming }
                    }
                    // A kind that this version does not know was not parsed.
                    _ => unreachable!("a manifest has files, folders and links"),
                };
                let modified = entry.modified.and_then(|modified| u64::try_from(modified.secs).ok());
                let _ = items.send((modified, item));
                waiting.next();
            }
            if running.is_empty() && waiting.peek().is_none() {
                return None;
            }
            let wants_turn = running.len() < FILES_AT_ONCE && waiting.peek().is_some();
            tokio::select! {
                (done, index) = first_of(&mut running), if !running.is_empty() => {
                    drop(running.swap_remove(index));
                    let (size, fetched): (Bytes, Fetched) = match done {
                        Ok(done) => done,
                        Err(error) => return Some(Err(error)),
                    };
                    sum.count(size, &fetched);
                    watch.progress(&Progress {
                        object: self.options.what.clone(),
                        bytes_done: sum.bytes.get(),
                        bytes_total: manifest.total_bytes().get(),
                        rate: sum.rate(self.started),
                        phase: Phase::Receiving,
                        ..Progress::default()
                    });
                }
                turn = turns.acquire(), if wants_turn => drop(turn),
                result = &mut *ended => return Some(result.unwrap_or(Ok(()))),
            }
        }
    }

    async fn file_of_tar(
        &self,
        object: ObjectId,
        size: Bytes,
        here: Here,
        to: mpsc::Sender<Arc<Arrivals>>,
    ) -> Result<(Bytes, Fetched), AppError> {
        let fetch = Fetch {
            config: ReceiverConfig {
                blocks_in_flight: FILE_IN_FLIGHT,
                counts_asked_for: true,
                ..self.receiver(&object.to_string())
            },
            destination: Destination::Passing(FILE_LEAD),
            state_folder: self.state_folder(),
            range: None,
            overwrite: true,
            hash: Some(object),
            here,
        };
        let mut handing = Handing { to, opened: None };
        let fetched = fetch.run(self.host, self.controller(), self.shutdown, &mut handing).await?;
        self.learn(&fetched);
        Ok((size, fetched))
    }
}

/// Waits until a tar is written. The writer's own trouble is why files stopped coming `early`, if it has any.
async fn tar_written(
    early: &Option<Result<(), AppError>>,
    ended: oneshot::Receiver<Result<(), AppError>>,
) -> Result<(), AppError> {
    match early {
        None => ended.await.unwrap_or_else(|_| Err(AppError::Failed("the tar was not written".to_owned()))),
        Some(Ok(())) => Err(AppError::Failed("the tar ended before its files".to_owned())),
        Some(Err(_)) => match tokio::time::timeout(LAST_WORD, ended).await {
            Ok(Ok(Err(error @ AppError::Io { .. }))) => Err(error),
            _ => Ok(()),
        },
    }
}

impl AppError {
    /// A get to a stream begins anew when the command is run again.
    pub(super) fn without_resuming(self) -> AppError {
        match self {
            AppError::Interrupted { .. } => AppError::Interrupted { resumable: false },
            other => other,
        }
    }
}

/// Writes what comes down the queue, until its end.
fn write_tar(outlet: &Outlet, queue: &mpsc::Receiver<Dated>) -> Result<(), AppError> {
    let failed = |e: io::Error| match e.get_ref().is_some_and(|inner| inner.is::<AppError>()) {
        true => {
            let inner = e.into_inner().and_then(|inner| inner.downcast().ok());
            inner.map_or(AppError::Interrupted { resumable: false }, |error: Box<AppError>| *error)
        }
        false => outlet.failed(e),
    };
    let mut tar = tar::Builder::new(BufWriter::with_capacity(BUFFER, &outlet.file));
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    // A manifest need not have times, and programs warn of 1970.
    #[allow(clippy::disallowed_methods)] // When the tar was made is a date, not a step of a machine.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let header = |kind, mode: u32, size: u64, modified: Option<u64>| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_mtime(modified.unwrap_or(now));
        header.set_uid(u64::from(user));
        header.set_gid(u64::from(group));
        header
    };
    for (modified, item) in queue {
        match item {
            Item::Folder { path, mode } => {
                let mut header = header(tar::EntryType::Directory, mode, 0, modified);
                tar.append_data(&mut header, path, io::empty()).map_err(failed)?;
            }
            Item::Link { path, target } => {
                let mut header = header(tar::EntryType::Symlink, 0o777, 0, modified);
                tar.append_link(&mut header, path, target).map_err(failed)?;
            }
            Item::File { path, mode, size, coming } => {
                // A fetch that failed before it began says why itself.
                let arrivals =
                    coming.arrivals.recv().map_err(|_| AppError::Interrupted { resumable: false })?;
                let mut header = header(tar::EntryType::Regular, mode, size.get(), modified);
                let reader = BlockReader { blocks: Blocks::new(&arrivals, Some(outlet)), at: 0, len: 0 };
                let written = tar.append_data(&mut header, path, reader).map_err(failed);
                if written.is_err() {
                    arrivals.give_up();
                }
                written?;
            }
        }
    }
    tar.into_inner().and_then(|mut out| out.flush()).map_err(failed)
}

/// Reader of an object's bytes.
struct BlockReader<'a> {
    blocks: Blocks<'a>,
    at: usize,
    len: usize,
}

impl Read for BlockReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.len {
            let next = self.blocks.next().map_err(io::Error::other)?;
            (self.at, self.len) = (0, next.map_or(0, <[u8]>::len));
        }
        let part = (self.len - self.at).min(buffer.len());
        buffer[..part].copy_from_slice(&self.blocks.block[self.at..self.at + part]);
        self.at += part;
        Ok(part)
    }
}
