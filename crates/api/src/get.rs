//! `headwater get`: an object, a range of it, or a folder, from many sources at once.

mod display;
mod folder;
mod options;
mod output;
mod results;
mod several;
mod stream;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use headwater_controller::ControllerConfig;
use headwater_store::StoreError;
use headwater_store::manifest::{self, Manifest};
use headwater_transport::push::receiver::{ReceiverConfig, ReceiverStats};
use headwater_transport::tree::TreeReceiverConfig;
use headwater_units::{BlockIndex, BlockLayout, Bytes, NodeId, ObjectId, PathId, Theta};
use headwater_wire::{Class, Delivery, Precedence, TransferOrder, Urgency};

use super::drain::Draining;
use super::fetch::{Arrivals, Destination, Fetch, Fetched, Follower, Here};
use super::host::{Host, HostConfig, LOCAL};
use super::own::{self, OwnObject};
use super::{
    AppError, GetResult, Output, Phase, Progress, Shutdown, Watch, Where, data_config, start_line, tape,
    unpaced, wildcard,
};
use headwater_driver::{NodeConfig, monotonic_nanos};
use results::{host_dropped, wanted_bytes};

pub(super) use display::Display;
pub(super) use folder::Sum;
pub(super) use options::GetOptions;
pub(super) use results::result_of;
pub(super) use several::{each_of, get_several};
pub(super) use stream::{Outlet, Writer, Written};

/// Number of a folder's newest objects that others can read until the job is over.
const KEPT: usize = 16;
/// Files of a folder that are fetched at the same time.
pub(super) const FILES_AT_ONCE: usize = 4;
/// Maximum wait for a controller if this machine has an object of that name itself.
const CONTROLLER_PATIENCE: std::time::Duration = std::time::Duration::from_secs(3);
/// Maximum wait for the slower sources of `--from` once the first has answered.
const LATECOMERS: std::time::Duration = std::time::Duration::from_millis(300);

/// Fetches what the options say. `ready` is called before a wait for the start, if there is one. The caller, after
/// showing the result, must let others finish who are served from it ([`Draining::end`]).
///
/// # Errors
/// [`AppError`]; what is finished stays on the disk, and the same call goes on from there.
pub(super) async fn get(
    options: &GetOptions,
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
    ready: impl FnOnce(),
) -> Result<(GetResult, Draining), AppError> {
    let created = output::check(&options.output, options.overwrite)?;
    let result = get_to(options, shutdown, watch, ready).await;
    if result.is_err() {
        output::undo(created);
    }
    result
}

/// The same, where the output can be.
async fn get_to(
    options: &GetOptions,
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
    ready: impl FnOnce(),
) -> Result<(GetResult, Draining), AppError> {
    watch.progress(&Progress { object: options.what.clone(), ..Progress::default() });
    #[allow(clippy::disallowed_methods)] // The result says how long it took.
    let now = Instant::now;
    let mut started = now();
    let outlet = within(options, started, Outlet::open(options, shutdown, watch)).await?;
    let own = own_object(options).await;
    let here_only = || GetOptions { at: Where::Here, ..options.clone() };
    if options.at == Where::Here {
        let Some(own) = own else { return Err(nobody_known()) };
        return once(options, (shutdown, started), outlet, Some(own), watch).await;
    }
    // An object that is asked for by its id can only be this. Output to a stream cannot be begun again.
    if let Some(own) = own.as_ref().filter(|own| names_it(options, own)) {
        match once(&here_only(), (shutdown, started), outlet.clone(), Some(own.clone()), watch).await {
            Err(error) if matches!(error, AppError::Verification(_)) && outlet.is_none() => {
                watch.note(&format!("{error}; what is missing is fetched from others"));
            }
            ended => return ended,
        }
    }
    let reached = match own.is_some() {
        true => {
            tokio::time::timeout(CONTROLLER_PATIENCE, connect(options, watch)).await.unwrap_or_else(|_| {
                Err(AppError::Unreachable {
                    who: "the controller".to_owned(),
                    reason: "no answer".to_owned(),
                })
            })
        }
        false => within(options, started, connect(options, watch)).await,
    };
    let (host, path) = match (reached, &own) {
        (Err(error @ AppError::Unreachable { .. }), Some(own)) => {
            watch.note(&format!(
                "{error}; '{}' is {} in this machine's own store, and is taken from there",
                options.what,
                own.id.short()
            ));
            return once(&here_only(), (shutdown, started), outlet, Some(own.clone()), watch).await;
        }
        (reached, _) => reached?,
    };
    if options.wait_for_start {
        ready();
        if let Err(error) = start_line::wait(shutdown).await {
            host.close().await;
            return Err(error);
        }
        started = now();
    }
    let start_ns = monotonic_nanos();
    let mut job = Job::new(options, &host, path, shutdown, started);
    (job.outlet, job.own) = (outlet.clone(), own.clone());
    let result = within(options, started, job.object(watch)).await;
    let unknown = matches!(&result, Err(AppError::NotFound(_) | AppError::Unreachable { .. }));
    if let (Err(error), Some(own), true) = (&result, own, unknown) {
        watch.note(&format!(
            "{error}; '{}' is {} in this machine's own store, and is taken from there",
            options.what,
            own.id.short()
        ));
        drop(job.over(result).await);
        return once(&here_only(), (shutdown, started), outlet, Some(own), watch).await;
    }
    let result = result.map(|result| result.begun(start_ns, options.deadline));
    job.over(result).await
}

/// The same by a node that has a link to its controller (`path`) and goes on afterwards. Nobody is served from what comes before it is
/// here.
pub(super) async fn get_at(
    (host, path): (&Host, PathId),
    options: &GetOptions,
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
) -> Result<GetResult, AppError> {
    let created = output::check(&options.output, options.overwrite)?;
    #[allow(clippy::disallowed_methods)] // The result says how long it took.
    let started = Instant::now();
    let work = async {
        let outlet = Outlet::open(options, shutdown, watch).await?;
        // By a name that its store has, a node means what that stands for there: the controller has granted it.
        let own = own_object(options).await;
        let here = GetOptions { at: Where::Here, ..options.clone() };
        let start_ns = monotonic_nanos();
        let mut result = None;
        if own.is_some() {
            match at_node((host, path), &here, (shutdown, started), (&outlet, &own), watch).await {
                Err(error) if matches!(error, AppError::Verification(_)) && outlet.is_none() => {
                    watch.note(&format!("{error}; what is missing is fetched from others"));
                }
                ended => result = Some(ended),
            }
        }
        let result = match result {
            Some(result) => result,
            None => at_node((host, path), options, (shutdown, started), (&outlet, &own), watch).await,
        };
        result.map(|result| result.begun(start_ns, options.deadline))
    };
    let result = within(options, started, work).await;
    if result.is_err() {
        output::undo(created);
    }
    result
}

/// One try of [`get_at`].
async fn at_node(
    (host, path): (&Host, PathId),
    options: &GetOptions,
    (shutdown, started): (&Shutdown, Instant),
    (outlet, own): (&Option<Arc<Outlet>>, &Option<OwnObject>),
    watch: &mut dyn Watch,
) -> Result<GetResult, AppError> {
    let mut job = Job::new(options, host, path, shutdown, started);
    (job.outlet, job.own, job.passes_on) = (outlet.clone(), own.clone(), false);
    tokio::select! {
        result = job.object(watch) => result,
        () = shutdown.wait() => Err(AppError::Interrupted { resumable: true }),
    }
}

/// One try, with all that goes with it.
async fn once(
    options: &GetOptions,
    (shutdown, started): (&Shutdown, Instant),
    outlet: Option<Arc<Outlet>>,
    own: Option<OwnObject>,
    watch: &mut dyn Watch,
) -> Result<(GetResult, Draining), AppError> {
    let (host, path) = within(options, started, connect(options, watch)).await?;
    let start_ns = monotonic_nanos();
    let mut job = Job::new(options, &host, path, shutdown, started);
    (job.outlet, job.own) = (outlet, own);
    let result = within(options, started, job.object(watch)).await;
    let result = result.map(|result| result.begun(start_ns, options.deadline));
    job.over(result).await
}

/// Object of this machine's own store with this name or id, unless other sources are named.
async fn own_object(options: &GetOptions) -> Option<OwnObject> {
    if matches!(options.at, Where::From(_)) || options.wait_for_start {
        return None;
    }
    let found = own::find(&options.common.state, std::slice::from_ref(&options.what)).await.pop()??;
    options.hash.is_none_or(|hash| hash == found.id).then_some(found)
}

/// Whether no controller need be asked what is meant.
fn names_it(options: &GetOptions, own: &OwnObject) -> bool {
    options.hash == Some(own.id) || options.what.eq_ignore_ascii_case(&own.id.to_string())
}

fn nobody_known() -> AppError {
    AppError::Usage(
        "who has it? Give --from ADDR,... (sources) or --controller ADDR; no daemon of this state folder named one, and this \
         machine's own store does not have it"
            .to_owned(),
    )
}

/// Whether it takes whole objects, as fast as they come: then others may be served from what it receives.
fn takes_all(options: &GetOptions) -> bool {
    options.range.is_none() && options.common.limit.is_none() && !stream::is_stream(&options.output)
}

/// Gives up when the time is over that counts from `since`.
pub(super) async fn within<T>(
    options: &GetOptions,
    since: Instant,
    work: impl Future<Output = Result<T, AppError>>,
) -> Result<T, AppError> {
    let Some(limit) = options.timeout else { return work.await };
    match tokio::time::timeout_at((since + std::time::Duration::from(limit)).into(), work).await {
        Ok(result) => result,
        Err(_) => Err(AppError::TimedOut {
            after: limit,
            state: "what is finished is kept; run the same command again to resume".to_owned(),
        }),
    }
}

/// Reaches the controller, or every source that can be reached.
pub(super) async fn connect(options: &GetOptions, watch: &mut dyn Watch) -> Result<(Host, PathId), AppError> {
    let common = &options.common;
    let addresses = match &options.at {
        Where::Controller(at) => std::slice::from_ref(at),
        Where::From(at) => at,
        Where::Here => &[],
    };
    let record_receivers = tape(options.record.as_deref())?;
    let asks = matches!(options.at, Where::Controller(_));
    let bind = bind_towards(addresses, asks, common.data_port).await;
    // Unless it is told to pull, it is pushed to: it cannot have seen anything trimmed that would speak for pulls.
    let sees_trimmed = matches!(options.delivery, Some(Delivery::Pull { .. }));
    let node = NodeConfig { sees_trimmed, record_receivers, ..data_config(common, bind)? };
    let controller = match &options.at {
        Where::Controller(_) => None,
        Where::From(at) => {
            let most = u8::try_from(at.len()).unwrap_or(u8::MAX);
            let fixed_theta = options.theta.map(Theta::new);
            let config = common.experiments.controller_config(fixed_theta);
            Some((ControllerConfig { max_sources: most, ..config }, None))
        }
        Where::Here => Some((common.experiments.controller_config(None), None)),
    };
    // Others know of it only where the controller is everybody's.
    let passes_on = matches!(options.at, Where::Controller(_)) && takes_all(options);
    let host = Host::start(HostConfig { common, listen: None, controller, node: Some(node), passes_on })?;
    if let Some(hint) = host.node().buffer_hint() {
        watch.note(hint);
    }
    if let Some(hint) = unpaced(common, options.delivery) {
        watch.note(hint);
    }
    match &options.at {
        Where::Controller(at) => {
            let path = host.new_path();
            host.keep_dialled(path, at, false).await?;
            Ok((host, path))
        }
        Where::Here => Ok((host, LOCAL)),
        Where::From(sources) => {
            let mut dialling = tokio::task::JoinSet::new();
            for at in sources {
                let (host, at) = (host.clone(), at.clone());
                dialling.spawn(async move {
                    let path = host.new_path();
                    host.keep_source(path, &at).await?;
                    host.introduce(path).await
                });
            }
            let (mut reached, mut failed) = (0, Vec::new());
            loop {
                let next = match reached {
                    0 => dialling.join_next().await,
                    _ => tokio::time::timeout(LATECOMERS, dialling.join_next()).await.unwrap_or(None),
                };
                match next {
                    None => break,
                    Some(Ok(Ok(_))) => reached += 1,
                    Some(Ok(Err(error))) if error.is_about_trust() => return Err(error),
                    Some(Ok(Err(error))) => failed.push(error),
                    Some(Err(error)) => failed.push(AppError::Failed(error.to_string())),
                }
            }
            dialling.detach_all();
            for error in &failed {
                watch.note(&format!("going on without a source: {error}"));
            }
            match (reached, failed.pop()) {
                (0, Some(error)) => Err(error),
                (0, None) => Err(AppError::Usage("--from needs at least one address".to_owned())),
                _ => Ok((host, LOCAL)),
            }
        }
    }
}

/// The wildcard address of the family in which the peers are reached. A controller on this machine says nothing about the family of
/// the sources that it names: then it is that of both.
async fn bind_towards(peers: &[String], asks: bool, port: u16) -> SocketAddr {
    let mut both = false;
    for peer in peers {
        if let Ok(mut found) = tokio::net::lookup_host(peer.as_str()).await {
            both |= found.any(|at| at.is_ipv6() || (asks && at.ip().is_loopback()));
        }
    }
    if both { wildcard(port) } else { SocketAddr::from(([0u8; 4], port)) }
}

/// One `get`.
pub(super) struct Job<'a> {
    pub(super) options: &'a GetOptions,
    pub(super) host: &'a Host,
    pub(super) path: PathId,
    pub(super) shutdown: &'a Shutdown,
    pub(super) started: Instant,
    /// The number of its first request, if it was told one.
    pub(super) request: Option<u64>,
    /// Where it is written to as it comes, if it does not become a file.
    outlet: Option<Arc<Outlet>>,
    /// Object of this machine's store with that name.
    own: Option<OwnObject>,
    /// Others may be served from what comes.
    passes_on: bool,
    /// Bytes of symbol that a path carried less than it should: what the next file of a folder begins with.
    narrowest: AtomicU16,
    /// Sources that fell silent: nobody waits for their goodbye.
    silent: Mutex<Vec<NodeId>>,
    /// The last arrivals, as others may read them.
    kept: Mutex<VecDeque<Arc<Arrivals>>>,
}

impl<'a> Job<'a> {
    pub(super) fn new(
        options: &'a GetOptions,
        host: &'a Host,
        path: PathId,
        shutdown: &'a Shutdown,
        started: Instant,
    ) -> Self {
        Job {
            options,
            host,
            path,
            shutdown,
            started,
            request: None,
            outlet: None,
            own: None,
            passes_on: host.passes_on() && takes_all(options),
            narrowest: AtomicU16::new(u16::MAX),
            silent: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    pub(super) fn receiver(&self, what: &str) -> ReceiverConfig {
        let (options, host) = (self.options, self.host);
        let mut config = ReceiverConfig::new(what, host.id(), self.path, rand::random());
        config.trees = TreeReceiverConfig::on_hosts();
        config.room = host.room_on(self.path).min(self.narrowest.load(Ordering::Relaxed));
        config.class = if options.common.gentle { Class::Gentle } else { Class::Bulk };
        config.delivery = options.delivery;
        config.trims = host.node().snapshot().trimmed > 0;
        config.passes_on = self.passes_on;
        config.spread = options.spread;
        config.max_sources = options.max_sources;
        config.urgency = options.deadline.map(|within| Urgency {
            precedence: Precedence { order: TransferOrder::EarliestDeadline, drops_late: false },
            deadline: Some(within),
        });
        config.limit = options.common.limit;
        config.busy_patience = Some(options.common.patience);
        config.receive_window = host.node().receive_window(config.room);
        config.pads_openings = true;
        options.common.experiments.tune_receiver(&mut config);
        config
    }

    pub(super) fn learn(&self, fetched: &Fetched) {
        if fetched.stats.narrowed > 0 {
            self.narrowest.fetch_min(fetched.stats.room, Ordering::Relaxed);
        }
        let silent = fetched.stats.flows.iter().filter(|flow| flow.silent).map(|flow| flow.node);
        self.silent.lock().unwrap_or_else(PoisonError::into_inner).extend(silent);
        if self.passes_on {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.truncate(KEPT - 1);
            kept.push_front(fetched.arrivals.clone());
        }
    }

    /// Sources that fell silent, and what others may still read.
    fn take_parts(&mut self) -> (Vec<NodeId>, VecDeque<Arc<Arrivals>>) {
        let silent = self.silent.get_mut().unwrap_or_else(PoisonError::into_inner);
        let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(silent), std::mem::take(kept))
    }

    /// The job of a process of its own is done: with what it brought, others may still be served; else they are told at once.
    pub(super) async fn over(
        mut self,
        result: Result<GetResult, AppError>,
    ) -> Result<(GetResult, Draining), AppError> {
        let stays = self.options.drain && result.is_ok();
        let (silent, kept) = self.take_parts();
        let draining = Draining::new(self.host.clone(), silent, kept, stays);
        match result {
            Ok(result) => Ok((result, draining)),
            Err(error) => {
                draining.leave().await;
                Err(error)
            }
        }
    }

    fn state_folder(&self) -> PathBuf {
        self.options.common.state.join("partial")
    }

    /// The path to a controller of all, if there is one.
    pub(super) fn controller(&self) -> Option<PathId> {
        (self.path != LOCAL).then_some(self.path)
    }

    /// Name in the result of a stream that is not standard output.
    fn stream_name(&self) -> Option<String> {
        match &self.options.output {
            Output::File(path) => Some(path.display().to_string()),
            _ => None,
        }
    }

    /// The fetch of the object itself, to a file or a stream.
    fn fetch(&self) -> Fetch {
        let options = self.options;
        let destination = match &options.output {
            _ if self.outlet.is_some() => Destination::Passing(stream::LEAD),
            Output::File(path) if path.is_dir() => Destination::Named(path.clone()),
            Output::File(path) => Destination::Path(path.clone()),
            Output::Default => Destination::Named(PathBuf::from(".")),
            Output::Stdout => unreachable!("it was opened as a stream"),
            Output::Store => unreachable!("what goes into the store is kept by `Job::keep`"),
        };
        let local_only = options.at == Where::Here;
        let certain = local_only || self.own.as_ref().is_some_and(|own| names_it(options, own));
        Fetch {
            config: match self.outlet.is_some() {
                true => self.passing(),
                false => self.receiver(&options.what),
            },
            destination,
            state_folder: self.state_folder(),
            range: options.range,
            overwrite: options.overwrite,
            hash: options.hash,
            here: Here { own: self.own.clone(), certain, local_only, earlier: None },
        }
    }

    async fn object(&self, watch: &mut dyn Watch) -> Result<GetResult, AppError> {
        let options = self.options;
        let fetch = self.fetch();
        let mut display = Display::new(options, self.host, self.path, self.outlet.clone(), watch);
        let fetched = fetch.run(self.host, self.controller(), self.shutdown, &mut display).await;
        let written = display.end(fetched.is_ok(), self.shutdown).await;
        let (fetched, written) = match (fetched, written) {
            // Why the stream takes no more is why the fetch was ended.
            (Err(AppError::Interrupted { .. }), Err(error)) => return Err(error),
            (fetched, written) => (fetched?, written?),
        };
        if let Some(own) = self.own.as_ref().filter(|own| own.id != fetched.object) {
            watch.note(&format!(
                "'{}' is {} by the controller's word, and was fetched; this machine's own store has {} under that name",
                options.what,
                fetched.object.short(),
                own.id.short()
            ));
        }
        self.learn(&fetched);
        if let (Some(outlet), Some(manifest)) = (&self.outlet, &written.manifest) {
            return self.tar(outlet, &fetched, manifest, watch).await;
        }
        if options.range.is_none()
            && self.outlet.is_none()
            && let Some(manifest) = read_manifest(&fetched.arrivals)?
        {
            return self.folder(&fetched, manifest, watch).await;
        }
        if fetched.arrivals.is_aside() {
            fetched.arrivals.partial().remove()?;
            return Err(AppError::Usage(format!(
                "'{}' is a file, and a folder is where it should go: name a file with -o",
                options.what
            )));
        }
        watch.progress(&Progress {
            object: options.what.clone(),
            phase: Phase::Finishing,
            ..Progress::default()
        });
        let output = match self.outlet {
            Some(_) => self.stream_name(),
            None => {
                let arrivals = fetched.arrivals.clone();
                let path = blocking(move || arrivals.partial().finish()).await??;
                Some(path.display().to_string())
            }
        };
        let (seconds, finish_ns) = (self.started.elapsed().as_secs_f64(), monotonic_nanos());
        let names = self.names(&fetched.stats).await;
        let mut result = result_of(&fetched, &fetched.stats, seconds, &names);
        (result.received_ns, result.finish_ns) = (fetched.received_ns, finish_ns);
        result.bytes = wanted_bytes(&fetched, options.range);
        result.mb_per_s = result.bytes as f64 / seconds / 1e6;
        result.name = (options.what != result.object).then(|| options.what.clone());
        result.sha256 = written.sha256;
        result.dropped_on_purpose = host_dropped(self.host);
        result.output = output;
        let _ = fetched.goodbye.await;
        Ok(result)
    }

    /// Addresses of the sources, as far as the controller tells.
    pub(super) async fn names(&self, stats: &ReceiverStats) -> Vec<(NodeId, String)> {
        self.host.learn_labels(self.path, stats.flows.iter().map(|flow| flow.node)).await;
        self.host.labels()
    }
}

pub(super) struct Quiet;

impl Follower for Quiet {
    fn opened(&mut self, _: &Arc<Arrivals>, _: ObjectId, _: Bytes) {}
    /// Nobody looks, and where many nodes share a machine, ten wake-ups a second of each add up.
    fn interval(&self) -> std::time::Duration {
        std::time::Duration::from_secs(1)
    }
    fn tick(&mut self, _: &ReceiverStats) {}
    fn note(&mut self, line: &str) {
        tracing::warn!("{line}");
    }
}

/// Waits for the first of some futures; says which it was.
pub(super) async fn first_of<F: Future + Unpin>(running: &mut [F]) -> (F::Output, usize) {
    std::future::poll_fn(|context| {
        for (index, future) in running.iter_mut().enumerate() {
            if let std::task::Poll::Ready(output) = std::pin::Pin::new(future).poll(context) {
                return std::task::Poll::Ready((output, index));
            }
        }
        std::task::Poll::Pending
    })
    .await
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, AppError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| AppError::Failed(e.to_string()))
}

/// The manifest that the object is, if it is one.
pub(super) fn read_manifest(arrivals: &Arrivals) -> Result<Option<Manifest>, AppError> {
    let partial = arrivals.partial();
    manifest_of(arrivals.hashes().layout(), |block, buffer| partial.read_block(block, buffer))
}

/// The manifest that an object is, if it is one, read from its blocks.
pub(super) fn manifest_of(
    layout: BlockLayout,
    mut read: impl FnMut(BlockIndex, &mut Vec<u8>) -> Result<(), StoreError>,
) -> Result<Option<Manifest>, AppError> {
    let size = layout.object_bytes();
    if size == Bytes::ZERO || size.get() > manifest::MAX_MANIFEST_BYTES as u64 {
        return Ok(None);
    }
    let (mut block, mut bytes) = (Vec::new(), Vec::new());
    for index in 0..layout.block_count() {
        read(BlockIndex(index), &mut block)?;
        bytes.extend_from_slice(&block);
        if index == 0 && !manifest::is_manifest(&bytes) {
            return Ok(None);
        }
    }
    Ok(Some(Manifest::parse(&bytes)?))
}
