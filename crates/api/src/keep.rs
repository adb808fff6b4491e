//! `headwater get --keep`: an object into this machine's store, by the daemon that owns it or, without one, by itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use headwater_node::{BLOCKS_IN_FLIGHT, BLOCKS_OF_A_CAST};
use headwater_store::manifest::Manifest;
use headwater_store::{Gathering, NameStanding, PutOptions, Store, StoreError, StoreOptions};
use headwater_transport::push::receiver::{FlowStats, ReceiverConfig};
use headwater_units::{ObjectId, PathId};
use headwater_wire::Delivery;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::desk::{self, Daemon, Reply, Wanted};
use super::drain::Draining;
use super::events::TransferKind;
use super::fetch::{Arrivals, Destination, Fetch, Fetched, Here};
use super::get::{
    Display, FILES_AT_ONCE, GetOptions, Job, Quiet, Sum, blocking, connect, first_of, manifest_of,
    read_manifest, result_of, within,
};
use super::host::Host;
use super::names;
use super::ops::rounded;
use super::{
    AppError, Common, GetResult, Output, Phase, Progress, Reload, Shutdown, ShutdownTrigger, Watch, Where,
    own, unpaced,
};
use headwater_driver::monotonic_nanos;

/// Objects that a daemon receives at the same time; further ones wait for their turn. Many at once share the same links,
/// and each running one takes memory.
const FETCHES_AT_ONCE: usize = 32;

/// Result of a fetch into the store.
pub(super) struct Kept {
    pub(super) result: GetResult,
    /// Flows of it, and of a folder's files.
    pub(super) flows: Vec<FlowStats>,
    /// As [`Fetched::goodbye`]; `None` where nobody was asked.
    goodbye: Option<JoinHandle<()>>,
}

impl Kept {
    /// Waits until those who sent know that the transfer is over, or do not answer. The object is here without that.
    pub(super) async fn left(&mut self) {
        if let Some(goodbye) = self.goodbye.take() {
            let _ = goodbye.await;
        }
    }
}

/// `headwater get --keep`, as the command runs it.
pub(super) async fn get(
    options: &GetOptions,
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
) -> Result<(GetResult, Draining), AppError> {
    watch.progress(&Progress { object: options.what.clone(), ..Progress::default() });
    #[allow(clippy::disallowed_methods)] // The result says how long it took.
    let started = Instant::now();
    let state = &options.common.state;
    let wanted = Wanted {
        what: options.what.clone(),
        hash: options.hash,
        anew: options.overwrite,
        gentle: options.common.gentle,
        delivery: options.delivery,
        spread: options.spread,
        max_sources: options.max_sources,
    };
    if let Some(daemon) = Daemon::asked_to_get(state, wanted).await? {
        // The daemon stays.
        return within(options, started, follow(daemon, shutdown, watch))
            .await
            .map(|it| (it, Draining::default()));
    }
    let store = Arc::new(own::open_store(&state.join("store"), StoreOptions::default())?);
    let (host, path) = within(options, started, connect(options, watch)).await?;
    let job = Job::new(options, &host, path, shutdown, started);
    let mut kept = within(options, started, job.keep(&store, false, watch)).await;
    if let Ok(kept) = &mut kept {
        // This process ends with its transfer: those who sent hear so first.
        kept.left().await;
    }
    job.over(kept.map(|kept| kept.result)).await
}

/// Into the store one after the other: the daemon has the link and takes care that they do not get into each other's way.
pub(super) async fn get_each(
    each: &[GetOptions],
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
    done: &mut (dyn FnMut(&str, Result<GetResult, AppError>) + Send),
) -> Draining {
    let mut last = Draining::default();
    for options in each {
        let result = match shutdown.is_set() {
            true => Err(AppError::Interrupted { resumable: true }),
            false => get(options, shutdown, watch).await,
        };
        let result = match result {
            Ok((result, draining)) => {
                std::mem::replace(&mut last, draining).leave().await;
                Ok(result)
            }
            Err(error) => Err(error),
        };
        done(&options.what, result);
    }
    last
}

/// Shows what the daemon says until it is done.
pub(super) async fn follow(
    mut daemon: Daemon,
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
) -> Result<GetResult, AppError> {
    loop {
        let reply = tokio::select! {
            reply = daemon.next() => reply?,
            () = shutdown.wait() => return Err(AppError::Interrupted { resumable: true }),
        };
        match reply {
            Reply::Progress(progress) => watch.progress(&progress),
            Reply::Note(line) => watch.note(&line),
            Reply::Got(result) => return Ok(*result),
            Reply::Refused { code, message } => return Err(AppError::Daemon { code, message }),
            _ => return Err(desk::unexpected()),
        }
    }
}

/// A daemon's fetches into its store.
pub(super) struct Keeper {
    common: Mutex<Common>,
    store: Arc<Store>,
    host: Host,
    controller: PathId,
    turns: Semaphore,
    /// Two who want the same wait for each other: the second then finds it in the store.
    wanted: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    shutdown: Shutdown,
    /// Never triggered: a fetch of the daemon ends with the command that asked for it.
    _trigger: ShutdownTrigger,
}

impl Keeper {
    pub(super) fn new(common: &Common, store: Arc<Store>, host: Host, controller: PathId) -> Self {
        let (_trigger, shutdown) = Shutdown::channel();
        let turns = Semaphore::new(FETCHES_AT_ONCE);
        let common = Mutex::new(common.clone());
        Keeper { common, store, host, controller, turns, wanted: Mutex::default(), shutdown, _trigger }
    }

    fn common(&self) -> MutexGuard<'_, Common> {
        self.common.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies new settings to fetches that begin from now on.
    pub(super) fn restate(&self, reload: &Reload) {
        let mut common = self.common();
        (common.limit, common.gentle) = (reload.limit, reload.gentle);
    }

    fn lock_of(&self, what: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.retain(|_, lock| Arc::strong_count(lock) > 1);
        wanted.entry(what.to_owned()).or_default().clone()
    }

    /// How it is to come; the constants that the daemon was given are those of its fetches.
    fn tuned(&self, wanted: &Wanted) -> Option<Delivery> {
        let window = self.common().experiments.pulled_window(wanted.max_sources == Some(1));
        match (wanted.delivery, window) {
            (Some(Delivery::Pull { .. }), Some(initial_window)) => Some(Delivery::Pull { initial_window }),
            (delivery, _) => delivery,
        }
    }

    /// Whether the object is here.
    pub(super) fn has(&self, object: ObjectId) -> bool {
        self.store.lookup(&object.to_string()).is_ok()
    }

    /// The manifest that an object in the store is, if it is one.
    pub(super) fn manifest(&self, object: ObjectId) -> Result<Option<Manifest>, AppError> {
        let (file, hashes) = self.store.open_object(object)?;
        manifest_of(hashes.layout(), |block, buffer| file.read_block(block, buffer))
    }

    /// Fetches, keeps and offers; dropping the future ends it. `request`: the number to ask the controller by, if it is to know it
    /// again.
    pub(super) async fn fetch(
        &self,
        wanted: &Wanted,
        request: Option<u64>,
        watch: &mut dyn Watch,
    ) -> Result<Kept, AppError> {
        #[allow(clippy::disallowed_methods)] // The result says how long it took.
        let started = Instant::now();
        let lock = self.lock_of(&wanted.what);
        let _only = lock.lock().await;
        let common = self.common().clone();
        if let Some(hint) = unpaced(&common, wanted.delivery) {
            watch.note(&format!("the daemon of this machine was started so: {hint}"));
        }
        let _turn = self.turns.acquire().await.map_err(|e| AppError::Failed(e.to_string()))?;
        let options = GetOptions {
            common: Common { gentle: wanted.gentle || common.gentle, ..common },
            what: wanted.what.clone(),
            // The link is there already.
            at: Where::Controller(String::new()),
            output: Output::Store,
            range: None,
            hash: wanted.hash,
            sha256: false,
            overwrite: wanted.anew,
            delivery: self.tuned(wanted),
            spread: wanted.spread,
            max_sources: wanted.max_sources,
            theta: None,
            record: None,
            wait_for_start: false,
            deadline: None,
            timeout: None,
            drain: true,
        };
        let (host, path, shutdown) = (&self.host, self.controller, &self.shutdown);
        let mut job = Job::new(&options, host, path, shutdown, started);
        job.request = request;
        let attempt = self.host.ops().gets.begin();
        let ongoing = self.host.events().begin(TransferKind::Get, &wanted.what);
        tracing::info!(wanted = wanted.what, "fetch begun");
        let outcome = job.keep(&self.store, true, watch).await;
        attempt.end(&outcome);
        ongoing.end(&outcome, |got| (got.result.object.clone(), got.result.bytes));
        match &outcome {
            Ok(Kept { result: got, .. }) => {
                let GetResult { object, bytes, seconds, resumed_bytes, .. } = got;
                self.host.ops().keep(bytes.saturating_sub(*resumed_bytes));
                let (sources, mbit_per_s) = (got.sources.len(), rounded(got.mb_per_s * 8.0));
                let seconds = rounded(*seconds);
                let name = got.name.as_deref().unwrap_or_default();
                tracing::info!(
                    object,
                    name,
                    bytes,
                    resumed_bytes,
                    seconds,
                    mbit_per_s,
                    sources,
                    via = got.transport,
                    "fetch done"
                );
            }
            Err(error) => tracing::warn!(wanted = wanted.what, %error, kind = error.kind(), "fetch failed"),
        }
        outcome
    }
}

impl Job<'_> {
    /// Fetches an object, or a folder's objects, into the store, and offers what is kept if asked to.
    async fn keep(&self, store: &Arc<Store>, offer: bool, watch: &mut dyn Watch) -> Result<Kept, AppError> {
        let start_ns = monotonic_nanos();
        let mut rotten = None;
        match self.is_here(store).await? {
            InStore::Sound(result) => return Ok(Kept { result: *result, flows: Vec::new(), goodbye: None }),
            InStore::Not => {}
            InStore::Rotten(object) => {
                watch.note(&format!(
                    "the copy of {} in this machine's store is rotten; it is fetched anew",
                    object.short()
                ));
                // Nobody is to be served from it, this fetch itself included.
                if offer {
                    self.host.withdraw(object);
                }
                rotten = Some(object);
            }
        }
        let result = self.keep_anew(store, offer, start_ns, watch).await;
        match (result, rotten) {
            (Err(error), Some(object)) if matches!(error.exit_code(), 3 | 4) => {
                Err(AppError::Verification(format!(
                    "the copy of {} in this machine's store is rotten, and it could not be fetched anew ({error}): put it \
                     again, or remove it with: headwater rm {}",
                    object.short(),
                    self.options.what
                )))
            }
            (result, _) => result,
        }
    }

    async fn keep_anew(
        &self,
        store: &Arc<Store>,
        offer: bool,
        start_ns: u64,
        watch: &mut dyn Watch,
    ) -> Result<Kept, AppError> {
        let options = self.options;
        // Files of a folder are only parts until its manifest is here.
        let gathering = store.gather(true);
        let mut display = Display::new(options, self.host, self.path, None, watch);
        let mut fetch = self.fetch_of(store, &options.what, options.hash);
        if let Some(request) = self.request {
            fetch.config.request = request;
            fetch.config.blocks_in_flight = BLOCKS_OF_A_CAST;
        }
        let fetched = fetch.run(self.host, self.controller(), self.shutdown, &mut display);
        let fetched = fetched.await?;
        self.learn(&fetched);
        let mut sum = Sum {
            bytes: fetched.arrivals.hashes().size(),
            resumed: fetched.resumed,
            stats: fetched.stats.clone(),
            received_ns: fetched.received_ns,
        };
        if let Some(manifest) = read_manifest(&fetched.arrivals)? {
            sum.bytes = manifest.total_bytes();
            self.keep_files(store, &manifest, offer, &gathering, &mut sum).await?;
        }
        watch.progress(&Progress {
            object: options.what.clone(),
            phase: Phase::Finishing,
            ..Progress::default()
        });
        let by_id = fetched.object.to_string().starts_with(&options.what);
        let name = (!by_id).then(|| options.what.clone());
        self.take(store, &fetched, name.clone(), None, offer).await?;
        drop(gathering);
        let (seconds, finish_ns) = (self.started.elapsed().as_secs_f64(), monotonic_nanos());
        let mut result = result_of(&fetched, &sum.stats, seconds, &self.names(&sum.stats).await);
        result.bytes = sum.bytes.get();
        result.resumed_bytes = sum.resumed.get();
        result.mb_per_s = result.bytes as f64 / seconds / 1e6;
        result.name = name;
        result.output = Some(store.folder().display().to_string());
        (result.start_ns, result.received_ns, result.finish_ns) = (start_ns, sum.received_ns, finish_ns);
        Ok(Kept { result, flows: sum.stats.flows, goodbye: Some(fetched.goodbye) })
    }

    /// Whether the object is in the store, with every byte of it and of a folder's files; what is to be fetched all the same is not.
    async fn is_here(&self, store: &Arc<Store>) -> Result<InStore, AppError> {
        let options = self.options;
        let Ok(found) = store.lookup(&options.what) else { return Ok(InStore::Not) };
        if options.overwrite || options.hash.is_some_and(|hash| hash != found.id) {
            return Ok(InStore::Not);
        }
        let (checked, id) = (store.clone(), found.id);
        let bytes = match blocking(move || checked.verify_all(id)).await? {
            Ok(bytes) => bytes,
            // It, or a file of the folder that it is.
            Err(StoreError::ObjectDamaged { id, .. }) => return Ok(InStore::Rotten(id)),
            Err(StoreError::NotFound { .. }) => return Ok(InStore::Not),
            Err(error) => return Err(error.into()),
        };
        Ok(InStore::Sound(Box::new(GetResult {
            object: found.id.to_string(),
            bytes: bytes.get(),
            seconds: self.started.elapsed().as_secs_f64(),
            verified: true,
            name: found.names.into_iter().find(|name| *name == options.what),
            transport: "none".to_owned(),
            resumed_bytes: bytes.get(),
            output: Some(store.folder().display().to_string()),
            ..GetResult::default()
        })))
    }

    fn fetch_of(&self, store: &Arc<Store>, what: &str, hash: Option<ObjectId>) -> Fetch {
        Fetch {
            config: ReceiverConfig { blocks_in_flight: BLOCKS_IN_FLIGHT, ..self.receiver(what) },
            destination: Destination::Store(store.clone()),
            state_folder: store.folder().to_owned(),
            range: None,
            overwrite: true,
            hash,
            here: Here::default(),
        }
    }

    async fn keep_files(
        &self,
        store: &Arc<Store>,
        manifest: &Manifest,
        offer: bool,
        gathering: &Gathering,
        sum: &mut Sum,
    ) -> Result<(), AppError> {
        let mut waiting = manifest.files().map(|(_, _, size, object)| (size, object));
        let mut running = Vec::new();
        loop {
            while running.len() < FILES_AT_ONCE
                && let Some((size, object)) = waiting.next()
            {
                gathering.pin(object);
                let checked = store.clone();
                if blocking(move || checked.verify(object)).await?.is_ok() {
                    sum.resumed += size;
                } else {
                    running.push(Box::pin(self.keep_file(store, object, offer, gathering)));
                }
            }
            if running.is_empty() {
                return Ok(());
            }
            let (done, index) = first_of(&mut running).await;
            drop(running.swap_remove(index));
            let fetched = done?;
            sum.resumed += fetched.resumed;
            sum.received_ns = sum.received_ns.max(fetched.received_ns);
            sum.add(&fetched.stats);
        }
    }

    async fn keep_file(
        &self,
        store: &Arc<Store>,
        object: ObjectId,
        offer: bool,
        gathering: &Gathering,
    ) -> Result<Fetched, AppError> {
        if offer {
            self.host.withdraw(object); // If a copy is here, it is rotten.
        }
        let fetch = self.fetch_of(store, &object.to_string(), Some(object));
        let fetched = fetch.run(self.host, self.controller(), self.shutdown, &mut Quiet).await?;
        self.learn(&fetched);
        self.take(store, &fetched, None, Some(gathering), offer).await?;
        Ok(fetched)
    }

    /// Enters what came among the objects.
    async fn take(
        &self,
        store: &Arc<Store>,
        fetched: &Fetched,
        name: Option<String>,
        part_of: Option<&Gathering>,
        offer: bool,
    ) -> Result<(), AppError> {
        let part_of = part_of.cloned();
        let (store, arrivals, object) = (store.clone(), fetched.arrivals.clone(), fetched.object);
        let host = offer.then(|| self.host.clone());
        blocking(move || {
            take(&store, &arrivals, name.as_deref(), part_of.as_ref())?;
            own::offer(&store, host.as_ref(), object)
        })
        .await?
    }
}

fn take(
    store: &Store,
    arrivals: &Arrivals,
    name: Option<&str>,
    part_of: Option<&Gathering>,
) -> Result<(), AppError> {
    let (added_unix_secs, naming) = (names::unix_seconds(), NameStanding::Copied);
    let options = PutOptions { name, added_unix_secs, naming, part_of, ..PutOptions::default() };
    store.take(arrivals.partial(), &options)?;
    Ok(())
}

/// The part of an object that is in the store already.
enum InStore {
    /// Nothing, or not all of it.
    Not,
    /// All, and every byte was read and compared with its id.
    Sound(Box<GetResult>),
    /// Bytes that are not the object's any more.
    Rotten(ObjectId),
}
