//! One object from its sources to the disk: the machine's events, the partial file, and readers of the verified prefix.

mod running;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use headwater_store::manifest::MAX_MANIFEST_BYTES;
use headwater_store::{BlockHashes, Partial, PartialSpec, SourceFile, Store, StoreError};
use headwater_transport::push::receiver::{ReceiverConfig, ReceiverStats};
use headwater_units::{BlockIndex, Bytes, NodeId, ObjectId, PathId};
use tokio::sync::Notify;

use super::host::Host;
use super::own::OwnObject;
use super::spool::{Spool, Taken};
use super::{AppError, Shutdown};
use headwater_driver::{BlockSink, FetchEvent};
use running::{CancelOnDrop, Open, Running};

/// Interval between looks at the counters.
const TICK: Duration = Duration::from_millis(100);
/// Maximum time for closing flows and task once everything is here.
const GOODBYE: Duration = Duration::from_millis(150);
/// How long a fetch that was given up may hold its partial object, and how often it is looked whether it does.
const LETTING_GO: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Interval at which a thread that waits for a block checks whether it is still worth it.
const WAIT: Duration = Duration::from_millis(200);
/// Prefix of the names of files that are kept aside.
const ASIDE: &str = "manifest-";
/// Number of requests for block hashes before giving up.
const HASH_TRIES: u32 = 10;

/// Object to fetch, and its destination.
pub(crate) struct Fetch {
    pub(crate) config: ReceiverConfig,
    pub(crate) destination: Destination,
    pub(crate) state_folder: PathBuf,
    pub(crate) range: Option<(Bytes, Option<Bytes>)>,
    pub(crate) overwrite: bool,
    /// The only id accepted.
    pub(crate) hash: Option<ObjectId>,
    /// The part that this machine has: nobody is asked for that.
    pub(crate) here: Here,
}

/// Copies that this machine may have of an object before anybody is asked. They are hashed completely.
#[derive(Clone, Default)]
pub(crate) struct Here {
    /// The object of that name or id in its own store.
    pub(crate) own: Option<OwnObject>,
    /// It certainly is what is wanted: nobody need be asked which object that is.
    pub(crate) certain: bool,
    /// There is nobody to ask.
    pub(crate) local_only: bool,
    /// A file that may have the same blocks: an earlier version.
    pub(crate) earlier: Option<PathBuf>,
}

/// The final name.
pub(crate) enum Destination {
    /// Given by the user.
    Path(PathBuf),
    /// In this folder, by the object's name or id.
    Named(PathBuf),
    /// None: it is passed on, in order. Bytes that may be here ahead of their consumer, beside those in flight.
    Passing(Bytes),
    /// In this machine's store.
    Store(Arc<Store>),
}

/// Sees a task while it runs.
pub(crate) trait Follower: Send {
    /// The partial file is open; blocks will come.
    fn opened(&mut self, partial: &Arc<Arrivals>, object: ObjectId, bytes: Bytes);
    /// How often it is told how the fetch does.
    fn interval(&self) -> Duration {
        TICK
    }
    /// As often as that.
    fn tick(&mut self, stats: &ReceiverStats);
    /// A line for the user.
    fn note(&mut self, line: &str);
}

/// The result of a fetch. The partial is complete, but not yet under its final name.
pub(crate) struct Fetched {
    pub(crate) object: ObjectId,
    /// T, that of the last part if it changed.
    pub(crate) symbol_size: u16,
    pub(crate) stats: ReceiverStats,
    /// When the last block was verified and kept, nanoseconds of CLOCK_MONOTONIC.
    pub(crate) received_ns: u64,
    pub(crate) arrivals: Arc<Arrivals>,
    pub(crate) resumed: Bytes,
    /// Blocks had to wait for decoder, hash or disk most of the time.
    pub(crate) held_up: bool,
    /// Ends when sources and controller know that the task is over, or do not answer.
    pub(crate) goodbye: tokio::task::JoinHandle<()>,
}

/// An object as the data thread's workers fill it in, with a way to wait for blocks in order.
pub(crate) struct Arrivals {
    place: BlockTarget,
    /// The file stays as it is when all is here.
    stays: bool,
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    /// The consumer of the blocks has caught up, or wants no more.
    moved: Notify,
    given_up: AtomicBool,
}

/// Where arriving blocks go.
enum BlockTarget {
    File(Partial),
    Passing(Spool),
}

#[derive(Default)]
struct Waiting {
    /// Threads that wait for a block. Mostly nobody does, and calling nobody is a system call for each block.
    threads: usize,
    /// No more blocks will come.
    stopped: bool,
}

impl Arrivals {
    fn new(place: BlockTarget, stays: bool) -> Self {
        Arrivals {
            place,
            stays,
            waiting: Mutex::default(),
            arrived: Condvar::new(),
            moved: Notify::new(),
            given_up: AtomicBool::new(false),
        }
    }

    /// The file that becomes the object; `None` if it is only passed on.
    pub(crate) fn file(&self) -> Option<&Partial> {
        match &self.place {
            BlockTarget::File(partial) => Some(partial),
            BlockTarget::Passing(_) => None,
        }
    }

    /// Whether what came was taken for the list of a folder, because a folder is where it should go.
    pub(crate) fn is_aside(&self) -> bool {
        let name = self.file().and_then(|partial| partial.spec().destination.file_name());
        let state = self.file().map(|partial| partial.spec().state_folder.clone());
        name.is_some_and(|name| name.as_encoded_bytes().starts_with(ASIDE.as_bytes()))
            && self.file().and_then(|partial| partial.spec().destination.parent()) == state.as_deref()
    }

    /// The file of what does not go to standard output.
    pub(crate) fn partial(&self) -> &Partial {
        self.file().expect("only what goes to a stream has no file, and then nobody asks for it")
    }

    pub(crate) fn hashes(&self) -> &BlockHashes {
        match &self.place {
            BlockTarget::File(partial) => partial.hashes(),
            BlockTarget::Passing(spool) => spool.hashes(),
        }
    }

    /// The blocks that cover what is wanted.
    pub(crate) fn wanted(&self) -> Range<u32> {
        match &self.place {
            BlockTarget::File(partial) => partial.wanted(),
            BlockTarget::Passing(spool) => spool.wanted(),
        }
    }

    /// The bytes wanted.
    pub(crate) fn range(&self) -> Range<u64> {
        match &self.place {
            BlockTarget::File(partial) => {
                partial.spec().range.clone().unwrap_or(0..partial.hashes().size().get())
            }
            BlockTarget::Passing(spool) => spool.range(),
        }
    }

    /// The wanted blocks that need not come any more.
    fn have(&self) -> Vec<BlockIndex> {
        match &self.place {
            BlockTarget::File(partial) => partial.have().here(partial.wanted()).collect(),
            BlockTarget::Passing(spool) => spool.have(),
        }
    }

    /// Number of blocks that need not arrive any more.
    pub(crate) fn count(&self) -> u32 {
        match &self.place {
            BlockTarget::File(partial) => partial.have().count(),
            BlockTarget::Passing(spool) => spool.count(),
        }
    }

    fn contains(&self, block: BlockIndex) -> bool {
        match &self.place {
            BlockTarget::File(partial) => partial.have().contains(block),
            BlockTarget::Passing(spool) => spool.contains(block),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no holder of this lock panics")
    }

    /// Waits for `block`, the next in the order, and takes it; false if it never will be here, or it is not `worth_it` any more.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn next(
        &self,
        block: BlockIndex,
        buffer: &mut Vec<u8>,
        worth_it: &mut dyn FnMut() -> bool,
    ) -> Result<bool, StoreError> {
        let mut waiting = self.waiting();
        waiting.threads += 1;
        while !waiting.stopped && !self.contains(block) {
            let (again, waited) =
                self.arrived.wait_timeout(waiting, WAIT).expect("no holder of this lock panics");
            waiting = again;
            if waited.timed_out() && !worth_it() {
                break;
            }
        }
        waiting.threads -= 1;
        drop(waiting);
        if !self.contains(block) {
            return Ok(false);
        }
        match &self.place {
            BlockTarget::File(partial) => partial.read_block(block, buffer).map(|()| true),
            BlockTarget::Passing(spool) => match spool.take(block)? {
                Taken::NotHere => Ok(false),
                Taken::Block(bytes, held_back) => {
                    *buffer = bytes;
                    if held_back {
                        self.moved.notify_one();
                    }
                    Ok(true)
                }
            },
        }
    }

    /// No more blocks will come.
    pub(crate) fn stop(&self) {
        self.waiting().stopped = true;
        self.arrived.notify_all();
    }

    /// No more blocks are wanted: nobody takes them.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        self.moved.notify_one();
    }
}

impl BlockSink for Arrivals {
    fn keep(&self, block: BlockIndex, bytes: &[u8]) -> Result<(), StoreError> {
        match &self.place {
            BlockTarget::File(partial) => {
                partial.write_block(block, bytes)?;
                if self.stays {
                    partial.write_out();
                }
            }
            BlockTarget::Passing(spool) => spool.keep(block, bytes)?,
        }
        // Under the lock, or a waiter that just looked would miss it.
        if self.waiting().threads > 0 {
            self.arrived.notify_all();
        }
        Ok(())
    }

    fn read(&self, block: BlockIndex, buffer: &mut Vec<u8>) -> Result<(), StoreError> {
        match &self.place {
            BlockTarget::File(partial) => partial.read_block(block, buffer),
            BlockTarget::Passing(_) => Err(StoreError::BlockMissing { block }),
        }
    }

    fn is_ahead(&self, block: BlockIndex) -> bool {
        match &self.place {
            BlockTarget::File(_) => false,
            BlockTarget::Passing(spool) => spool.is_ahead(block),
        }
    }
}

impl Fetch {
    /// Runs until everything is here, or it failed. `controller` is the path to ask for block hashes.
    pub(crate) async fn run(
        self,
        host: &Host,
        controller: Option<PathId>,
        shutdown: &Shutdown,
        follower: &mut dyn Follower,
    ) -> Result<Fetched, AppError> {
        let mut open: Option<Open> = None;
        if self.here.certain
            && let Some(own) = self.here.own.clone()
        {
            let arrivals = self.open_with(&own.hashes, follower).await?;
            let begun = Open::of(own.id, 0, arrivals);
            if begun.is_complete() {
                return Ok(begun.without_asking());
            }
            if self.here.local_only {
                begun.arrivals.stop();
                return Err(own.damaged());
            }
            open = Some(begun);
        }
        let (id, events) = host.node().fetch(self.config.clone());
        let mut guard = CancelOnDrop { host, id, armed: true };
        let mut running = Running::new(&self, host, controller, (id, events), open);
        let result = running.until_over(shutdown, follower).await;
        let held_up = running.was_held_up();
        let Running { open, mut events, .. } = running;
        if let Some(open) = &open
            && result.is_err()
        {
            open.arrivals.stop();
        }
        let (stats, received_ns) = result?;
        guard.armed = false;
        let Some(Open { object, symbol_size, arrivals, resumed }) = open else {
            return Err(AppError::Failed("the object came before it was accepted".to_owned()));
        };
        // The goodbyes go out while the caller finishes the file; a dead source is not waited for long.
        let goodbye = tokio::spawn(async move {
            let ended = async { while !matches!(events.recv().await, Some(FetchEvent::Ended) | None) {} };
            let _ = tokio::time::timeout(GOODBYE, ended).await;
        });
        Ok(Fetched { goodbye, object, symbol_size, stats: *stats, received_ns, arrivals, resumed, held_up })
    }

    async fn open(
        &self,
        host: &Host,
        controller: Option<PathId>,
        object: ObjectId,
        bytes: Bytes,
        follower: &mut dyn Follower,
    ) -> Result<Arc<Arrivals>, AppError> {
        let own = self.here.own.as_ref().filter(|own| own.id == object);
        let hashes = match own {
            Some(own) => own.hashes.clone(),
            None => self.hashes(host, controller, object).await?,
        };
        if hashes.size() != bytes {
            return Err(AppError::Verification(format!(
                "the controller says that {object} has {bytes}, its hashes say {}",
                hashes.size()
            )));
        }
        self.open_with(&hashes, follower).await
    }

    /// Opens the place where the object goes, with what this machine has of it in place.
    async fn open_with(
        &self,
        hashes: &BlockHashes,
        follower: &mut dyn Follower,
    ) -> Result<Arc<Arrivals>, AppError> {
        let (object, bytes) = (hashes.root(), hashes.size());
        let range = self.range.map(|(from, to)| from.get()..to.unwrap_or(bytes).min(bytes).get());
        if range.as_ref().is_some_and(|r| r.start >= r.end) {
            return Err(AppError::Usage(format!(
                "--range begins at or behind the end of the object ({bytes})"
            )));
        }
        let file = |destination| PartialSpec {
            hashes: hashes.clone(),
            destination,
            state_folder: self.state_folder.clone(),
            range: range.clone(),
            overwrite: self.overwrite,
        };
        let copies = self.copies(object);
        let spec = match &self.destination {
            Destination::Path(path) => file(self.place(path.clone(), bytes)?),
            Destination::Named(folder) => {
                file(self.place(folder.join(file_name(&self.config.name, object)), bytes)?)
            }
            Destination::Store(store) => store.incoming(hashes.clone())?,
            Destination::Passing(lead) => {
                let mut spool = Spool::new(hashes.clone(), range, *lead);
                let work = move || {
                    if let Some(copy) = copies.first().and_then(|path| SourceFile::open(path).ok()) {
                        spool.find_in(copy);
                    }
                    spool
                };
                let spool =
                    tokio::task::spawn_blocking(work).await.map_err(|e| AppError::Failed(e.to_string()))?;
                let arrivals = Arc::new(Arrivals::new(BlockTarget::Passing(spool), false));
                follower.opened(&arrivals, object, bytes);
                return Ok(arrivals);
            }
        };
        let in_store = matches!(self.destination, Destination::Store(_));
        let mut waited = Duration::ZERO;
        let partial = loop {
            let (spec, copies) = (spec.clone(), copies.clone());
            let opened = tokio::task::spawn_blocking(move || {
                let partial = Partial::open_or_create(spec, &mut |_| {})?;
                for copy in copies.iter().filter_map(|path| SourceFile::open(path).ok()) {
                    partial.fill_from(&copy, &mut |_| {})?;
                }
                Ok(partial)
            });
            match opened.await.map_err(|e| AppError::Failed(e.to_string()))? {
                // In the store it is held by a fetch of this very process that has just been given up: its last blocks
                // are still being written.
                Err(StoreError::Busy { .. }) if in_store && waited < LETTING_GO => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                    waited += LOOK_AGAIN;
                }
                opened => break opened?,
            }
        };
        // Of a range only a copy stays.
        let stays = self.range.is_none();
        let arrivals = Arc::new(Arrivals::new(BlockTarget::File(partial), stays));
        follower.opened(&arrivals, object, bytes);
        Ok(arrivals)
    }

    /// Where a file is received. Where a folder is, only a folder can be meant: what comes is the list of what is in it, and kept aside.
    fn place(&self, path: PathBuf, bytes: Bytes) -> Result<PathBuf, AppError> {
        let is_list = bytes.get() <= MAX_MANIFEST_BYTES as u64 && self.range.is_none();
        if !is_list || !path.is_dir() {
            return Ok(path);
        }
        let state = &self.state_folder;
        std::fs::create_dir_all(state).map_err(|e| AppError::state(state, e))?;
        let path = std::path::absolute(path).map_err(|e| AppError::io("cannot find the output", e))?;
        let key = blake3::hash(path.as_os_str().as_encoded_bytes()).to_hex();
        Ok(state.join(format!("{ASIDE}{}", &key.as_str()[..16])))
    }

    /// Files of this machine that may have blocks of the object.
    fn copies(&self, object: ObjectId) -> Vec<PathBuf> {
        let own = self.here.own.as_ref().filter(|own| own.id == object).map(|own| own.path.clone());
        own.into_iter().chain(self.here.earlier.clone()).collect()
    }

    async fn hashes(
        &self,
        host: &Host,
        controller: Option<PathId>,
        object: ObjectId,
    ) -> Result<BlockHashes, AppError> {
        for attempt in 0..HASH_TRIES {
            if let Some(hashes) = host.hashes(object, controller).await {
                return Ok(hashes);
            }
            tokio::time::sleep(TICK * (attempt + 1)).await;
        }
        Err(AppError::NoSource {
            object: object.to_string(),
            missing: Bytes::ZERO,
            hint: "nobody could tell its block hashes; is a source online?".to_owned(),
        })
    }
}

/// The last part of an object's name, or its id: never a path out of the folder.
pub(crate) fn file_name(name: &str, object: ObjectId) -> String {
    let last = name.rsplit('/').find(|part| !part.is_empty()).unwrap_or("");
    match last {
        "" | "." | ".." => object.to_string(),
        _ if last.contains('\0') => object.to_string(),
        _ => last.to_owned(),
    }
}

/// A source, for people: where it is reached, if that is known.
fn label(host: &Host, node: NodeId) -> String {
    host.label(node).unwrap_or_else(|| source_label(node))
}

/// A source, for people, when nothing better is known.
pub fn source_label(node: NodeId) -> String {
    format!("node {}", node.short())
}
