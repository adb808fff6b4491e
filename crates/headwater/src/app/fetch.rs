//! One object from its sources to the disk: the machine's events, the partial file, and whoever follows the prefix.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use headwater_store::{BlockHashes, Partial, PartialSpec, Store, StoreError};
use headwater_transport::ppush::receiver::{ReceiverConfig, ReceiverStats};
use headwater_units::{BlockIndex, Bytes, FetchId, NodeId, ObjectId, PathId};

use super::host::Host;
use super::{AppError, Shutdown};
use crate::node::{BlockSink, FetchEvent};

/// Counters are read this often.
const TICK: Duration = Duration::from_millis(100);
/// How long the goodbyes to sources and controller may take once everything is here.
const GOODBYE: Duration = Duration::from_millis(150);
/// How long a fetch that was given up may hold its partial object, and how often it is looked whether it does.
const LETTING_GO: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Block hashes are asked for this often before giving up.
const HASH_TRIES: u32 = 10;

/// What to fetch, and where to.
pub(crate) struct Fetch {
    pub(crate) config: ReceiverConfig,
    pub(crate) destination: Destination,
    pub(crate) state_folder: PathBuf,
    pub(crate) range: Option<(Bytes, Option<Bytes>)>,
    pub(crate) overwrite: bool,
    /// The only id accepted.
    pub(crate) hash: Option<ObjectId>,
}

/// The final name.
pub(crate) enum Destination {
    /// Given by the user.
    Path(PathBuf),
    /// In this folder, by the object's name or id.
    Named(PathBuf),
    /// Kept only until it was passed on.
    Passing(PathBuf),
    /// In this machine's store.
    Store(Arc<Store>),
}

/// Sees a task while it runs.
pub(crate) trait Follower: Send {
    /// The partial file is open; blocks will come.
    fn opened(&mut self, partial: &Arc<Arrivals>, object: ObjectId, bytes: Bytes);
    /// Ten times a second.
    fn tick(&mut self, stats: &ReceiverStats);
    /// A line for the user.
    fn note(&mut self, line: &str);
}

/// What came of it. The partial is complete, but not yet under its final name.
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

/// The partial file as the data thread's workers fill it, with a way to wait for blocks in order.
pub(crate) struct Arrivals {
    pub(crate) partial: Partial,
    /// The file stays as it is when all is here.
    stays: bool,
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// Threads that wait for a block. Mostly nobody does, and calling nobody is a system call for each block.
    threads: usize,
    /// No more blocks will come.
    stopped: bool,
}

impl Arrivals {
    fn new(partial: Partial, stays: bool) -> Self {
        Arrivals { partial, stays, waiting: Mutex::default(), arrived: Condvar::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no holder of this lock panics")
    }

    /// Waits until `block` is here; `false` if it never will be.
    pub(crate) fn wait_for(&self, block: BlockIndex) -> bool {
        let mut waiting = self.waiting();
        waiting.threads += 1;
        let goes_on = |w: &mut Waiting| !w.stopped && !self.partial.have().contains(block);
        let mut waiting = self.arrived.wait_while(waiting, goes_on).expect("no holder of this lock panics");
        waiting.threads -= 1;
        self.partial.have().contains(block)
    }

    /// No more blocks will come.
    pub(crate) fn stop(&self) {
        self.waiting().stopped = true;
        self.arrived.notify_all();
    }
}

impl BlockSink for Arrivals {
    fn keep(&self, block: BlockIndex, bytes: &[u8]) -> Result<(), StoreError> {
        self.partial.write_block(block, bytes)?;
        if self.stays {
            self.partial.write_out();
        }
        // Under the lock, or a waiter that just looked would miss it.
        if self.waiting().threads > 0 {
            self.arrived.notify_all();
        }
        Ok(())
    }

    fn read(&self, block: BlockIndex, buffer: &mut Vec<u8>) -> Result<(), StoreError> {
        self.partial.read_block(block, buffer)
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
        let what = self.config.name.clone();
        let (id, mut events) = host.node().fetch(self.config.clone());
        let mut guard = CancelOnDrop { host, id, armed: true };
        let mut open: Option<Open> = None;
        let mut broken: Option<StoreError> = None;
        let mut cancelled = false;
        let (mut ticks, mut held_up) = (0u32, 0u32);
        let mut tick = tokio::time::interval(TICK);
        let result = loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(FetchEvent::Accepted { object, bytes, symbol_size }) => {
                        if let Some(expected) = self.hash && expected != object {
                            break Err(AppError::Verification(format!(
                                "'{what}' is {object} there, not {expected} as --hash demands; nothing was fetched"
                            )));
                        }
                        let opened = match &open {
                            // Asked anew after the controller forgot: the file is still open.
                            Some(open) if open.object == object => Ok(open.arrivals.clone()),
                            _ => self.open(host, controller, object, bytes, follower).await,
                        };
                        let arrivals = match opened {
                            Ok(arrivals) => arrivals,
                            Err(error) => break Err(error),
                        };
                        let wanted = arrivals.partial.wanted();
                        let have: Vec<BlockIndex> = arrivals.partial.have().here(wanted.clone()).collect();
                        if let Some(open) = &mut open {
                            if symbol_size < open.symbol_size {
                                follower.note(&format!(
                                    "a path carries shorter packets than its ends: going on with symbols of \
                                     {symbol_size} bytes instead of {}",
                                    open.symbol_size
                                ));
                            }
                            open.symbol_size = symbol_size;
                        } else {
                            let layout = arrivals.partial.hashes().layout();
                            let resumed = have.iter().map(|&b| layout.len(b)).sum();
                            open = Some(Open { object, symbol_size, arrivals: arrivals.clone(), resumed });
                        }
                        host.node().start_fetch(id, wanted, have, arrivals);
                    }
                    Some(FetchEvent::Distrusted(node)) => follower.note(&format!(
                        "source {} sent bytes that are not the object's; nothing of it is taken any more",
                        node.short()
                    )),
                    Some(FetchEvent::Broken(error)) => broken = Some(error),
                    Some(FetchEvent::Done { stats, at_ns }) => break Ok((stats, at_ns)),
                    Some(FetchEvent::Failed(failure, _)) => {
                        let block = open.as_ref().map_or(Bytes::ZERO, |o| {
                            o.arrivals.partial.hashes().layout().block_bytes()
                        });
                        break Err(match broken.take() {
                            Some(error) => error.into(),
                            None => AppError::of_failure(failure, &what, block),
                        });
                    }
                    Some(FetchEvent::Ended) | None => {
                        break Err(AppError::Failed("the data thread has ended; see the log above".to_owned()));
                    }
                },
                _ = tick.tick() => {
                    if let Some(stats) = host.node().snapshot().receivers.get(&id) {
                        ticks += 1;
                        held_up += u32::from(stats.blocks_behind > 8);
                        follower.tick(stats);
                    }
                }
                () = shutdown.wait(), if !cancelled => {
                    cancelled = true;
                    host.node().cancel(id);
                }
            }
        };
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
            let said = async { while !matches!(events.recv().await, Some(FetchEvent::Ended) | None) {} };
            let _ = tokio::time::timeout(GOODBYE, said).await;
        });
        Ok(Fetched {
            goodbye,
            object,
            symbol_size,
            stats: *stats,
            received_ns,
            arrivals,
            resumed,
            held_up: held_up * 2 > ticks,
        })
    }

    async fn open(
        &self,
        host: &Host,
        controller: Option<PathId>,
        object: ObjectId,
        bytes: Bytes,
        follower: &mut dyn Follower,
    ) -> Result<Arc<Arrivals>, AppError> {
        let hashes = self.hashes(host, controller, object).await?;
        if hashes.size() != bytes {
            return Err(AppError::Verification(format!(
                "the controller says that {object} has {bytes}, its hashes say {}",
                hashes.size()
            )));
        }
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
        let spec = match &self.destination {
            Destination::Path(path) | Destination::Passing(path) => file(path.clone()),
            Destination::Named(folder) => file(folder.join(file_name(&self.config.name, object))),
            Destination::Store(store) => store.incoming(hashes.clone())?,
        };
        let in_store = matches!(self.destination, Destination::Store(_));
        let mut waited = Duration::ZERO;
        let partial = loop {
            let spec = spec.clone();
            let opened =
                tokio::task::spawn_blocking(move || Partial::open_or_create(spec, &mut |_| {})).await;
            match opened.map_err(|e| AppError::Failed(e.to_string()))? {
                // In the store it is held by a fetch of this very process that has just been given up: its last blocks
                // are still being written.
                Err(StoreError::Busy { .. }) if in_store && waited < LETTING_GO => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                    waited += LOOK_AGAIN;
                }
                opened => break opened?,
            }
        };
        // Of a range only a copy stays; what is passed on is thrown away.
        let stays = self.range.is_none() && !matches!(self.destination, Destination::Passing(_));
        let arrivals = Arc::new(Arrivals::new(partial, stays));
        follower.opened(&arrivals, object, bytes);
        Ok(arrivals)
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

struct Open {
    object: ObjectId,
    symbol_size: u16,
    arrivals: Arc<Arrivals>,
    resumed: Bytes,
}

/// A fetch that nobody waits for any more is ended, so that the sources stop.
struct CancelOnDrop<'a> {
    host: &'a Host,
    id: FetchId,
    armed: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.host.node().cancel(self.id);
        }
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

/// A source, for people, when nothing better is known.
pub(crate) fn source_label(node: NodeId) -> String {
    format!("node {}", node.short())
}
