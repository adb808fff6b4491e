//! `headwater get`: an object, a range of it, or a folder, from many sources at once.

mod results;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use headwater_store::manifest::{self, Manifest};
use headwater_store::tree;
use headwater_transport::datacast::TreeReceiverConfig;
use headwater_transport::ppush::controller::ControllerConfig;
use headwater_transport::ppush::receiver::{ReceiverConfig, ReceiverStats};
use headwater_units::{BitRate, BlockIndex, Bytes, NodeId, ObjectId, PathId, Theta};
use headwater_wire::{Class, Delivery};

use super::display::Display;
use super::fetch::{Arrivals, Destination, Fetch, Fetched, Follower};
use super::host::{Host, HostConfig, LOCAL};
use super::keep;
use super::linger::Linger;
use super::{
    AppError, GetOptions, GetResult, Output, Phase, Progress, Shutdown, Watch, Where, data_config,
    start_line, tape, unpaced,
};
use crate::node::{NodeConfig, monotonic_nanos};
use results::{host_dropped, wanted_bytes};

pub(super) use results::result_of;

/// So many objects can be read by others until a job is over: those of a folder that came last.
const KEPT: usize = 16;
/// Files of a folder that are fetched at the same time.
pub(super) const FILES_AT_ONCE: usize = 4;
/// How long the slower sources of `--from` may take to answer once the first has.
const LATECOMERS: std::time::Duration = std::time::Duration::from_millis(300);

/// Fetches what the options say. `ready` is called before a wait for the start, if there is one. Whoever shows the result then has to
/// let others finish who are served from it ([`Linger::end`]).
///
/// # Errors
/// [`AppError`]; what is finished stays on the disk, and the same call goes on from there.
pub async fn get(
    options: GetOptions,
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
    ready: impl FnOnce(),
) -> Result<(GetResult, Linger), AppError> {
    watch.progress(&Progress { object: options.what.clone(), ..Progress::default() });
    if options.output == Output::Store {
        return keep::get(&options, shutdown, watch).await;
    }
    #[allow(clippy::disallowed_methods)] // The result says how long it took.
    let now = Instant::now;
    let mut started = now();
    let (host, path) = within(&options, started, connect(&options, watch)).await?;
    if options.wait_for_start {
        ready();
        if let Err(error) = start_line::wait(shutdown).await {
            host.close().await;
            return Err(error);
        }
        started = now();
    }
    let start_ns = monotonic_nanos();
    let job = Job::new(&options, &host, path, shutdown, started);
    let result = within(&options, started, job.object(watch)).await;
    let result = result.map(|result| GetResult { start_ns, ..result });
    job.over(result).await
}

/// Whether it takes whole objects, as fast as they come: then others may be served from what it receives.
fn takes_all(options: &GetOptions) -> bool {
    options.range.is_none() && options.common.limit.is_none()
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
            state: "what is finished is kept; run the same command again to go on".to_owned(),
        }),
    }
}

/// Reaches the controller, or every source that can be reached.
pub(super) async fn connect(options: &GetOptions, watch: &mut dyn Watch) -> Result<(Host, PathId), AppError> {
    let common = &options.common;
    let addresses = match &options.at {
        Where::Controller(at) => std::slice::from_ref(at),
        Where::From(at) => at,
    };
    let record_receivers = tape(options.record.as_deref())?;
    let bind = bind_towards(addresses, common.data_port).await;
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
        Where::From(sources) => {
            let mut dialling = tokio::task::JoinSet::new();
            for at in sources {
                let (host, at) = (host.clone(), at.clone());
                dialling.spawn(async move {
                    let path = host.new_path();
                    host.keep_dialled(path, &at, false).await?;
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

/// The wildcard address of the family in which the first of the peers is reached.
async fn bind_towards(peers: &[String], port: u16) -> SocketAddr {
    let mut v6 = false;
    for peer in peers {
        if let Ok(found) = tokio::net::lookup_host(peer.as_str()).await {
            v6 |= found.into_iter().any(|a| a.is_ipv6());
        }
    }
    if v6 { SocketAddr::from(([0u16; 8], port)) } else { SocketAddr::from(([0u8; 4], port)) }
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
    /// Bytes of symbol that a path carried less than it should: what the next file of a folder begins with.
    narrowest: AtomicU16,
    /// Sources that fell silent: nobody waits for their goodbye.
    silent: Mutex<Vec<NodeId>>,
    /// What came last, as others may read it.
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
        config.passes_on = host.passes_on() && takes_all(options);
        config.spread = options.spread;
        config.max_sources = options.max_sources;
        config.limit = options.common.limit;
        config.receive_window = host.node().receive_window(config.room);
        options.common.experiments.tune_receiver(&mut config);
        config
    }

    pub(super) fn learn(&self, fetched: &Fetched) {
        if fetched.stats.narrowed > 0 {
            self.narrowest.fetch_min(fetched.stats.room, Ordering::Relaxed);
        }
        let silent = fetched.stats.flows.iter().filter(|flow| flow.silent).map(|flow| flow.node);
        self.silent.lock().unwrap_or_else(PoisonError::into_inner).extend(silent);
        // What goes to standard output is thrown away when it has gone there.
        if self.host.passes_on() && self.options.output != Output::Stdout {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.truncate(KEPT - 1);
            kept.push_front(fetched.arrivals.clone());
        }
    }

    /// The job of a process of its own is done: with what it brought, others may still be served; else they are told at once.
    pub(super) async fn over(
        self,
        result: Result<GetResult, AppError>,
    ) -> Result<(GetResult, Linger), AppError> {
        let stays = self.options.linger && result.is_ok();
        let silent = self.silent.into_inner().unwrap_or_else(PoisonError::into_inner);
        let kept = self.kept.into_inner().unwrap_or_else(PoisonError::into_inner);
        let linger = Linger::new(self.host.clone(), silent, kept, stays);
        match result {
            Ok(result) => Ok((result, linger)),
            Err(error) => {
                linger.leave().await;
                Err(error)
            }
        }
    }

    fn state_folder(&self) -> PathBuf {
        self.options.common.state.join("partial")
    }

    async fn object(&self, watch: &mut dyn Watch) -> Result<GetResult, AppError> {
        let options = self.options;
        let destination = match &options.output {
            Output::File(path) if path.is_dir() => Destination::Named(path.clone()),
            Output::File(path) => Destination::Path(path.clone()),
            Output::Default => Destination::Named(PathBuf::from(".")),
            Output::Store => unreachable!("what goes into the store is kept by `Job::keep`"),
            Output::Stdout => {
                let folder = options.common.state.join("passing");
                std::fs::create_dir_all(&folder).map_err(|e| AppError::state(&folder, e))?;
                let name: String =
                    options.what.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
                let range = options.range.map_or(String::new(), |(a, b)| {
                    format!("-{}-{}", a.get(), b.map_or(String::new(), |b| b.get().to_string()))
                });
                Destination::Passing(folder.join(format!("{name}{range}")))
            }
        };
        let fetch = Fetch {
            config: self.receiver(&options.what),
            destination,
            state_folder: self.state_folder(),
            range: options.range,
            overwrite: options.overwrite || options.output == Output::Stdout,
            hash: options.hash,
        };
        let mut display = Display::new(options, self.host, self.path, watch);
        let controller = (self.path != LOCAL).then_some(self.path);
        let fetched = fetch.run(self.host, controller, self.shutdown, &mut display).await;
        let followed = display.join();
        let fetched = fetched?;
        self.learn(&fetched);
        if options.range.is_none()
            && options.output != Output::Stdout
            && let Some(manifest) = read_manifest(&fetched.arrivals)?
        {
            return self.folder(&fetched, manifest, watch).await;
        }
        let (sha256, _) = followed?;
        watch.progress(&Progress {
            object: options.what.clone(),
            phase: Phase::Finishing,
            ..Progress::default()
        });
        let arrivals = fetched.arrivals.clone();
        let keep = options.output != Output::Stdout;
        let output = blocking(move || {
            if keep {
                return arrivals.partial.finish().map(Some);
            }
            // Passed on already.
            match Arc::try_unwrap(arrivals) {
                Ok(arrivals) => arrivals.partial.discard().map(|()| None),
                Err(shared) => {
                    let _ = std::fs::remove_file(shared.partial.data_path());
                    Ok(None)
                }
            }
        })
        .await??;
        let (seconds, finish_ns) = (self.started.elapsed().as_secs_f64(), monotonic_nanos());
        let names = self.names().await;
        let mut result = result_of(&fetched, &fetched.stats, seconds, &names);
        (result.received_ns, result.finish_ns) = (fetched.received_ns, finish_ns);
        result.bytes = wanted_bytes(&fetched, options.range);
        result.mb_per_s = result.bytes as f64 / seconds / 1e6;
        result.name = (options.what != result.object).then(|| options.what.clone());
        result.sha256 = sha256;
        result.dropped_on_purpose = host_dropped(self.host);
        result.output = output.map(|p| p.display().to_string());
        let _ = fetched.goodbye.await;
        Ok(result)
    }

    /// Addresses of the sources, as far as the controller tells.
    pub(super) async fn names(&self) -> Vec<(NodeId, String)> {
        let report = self.host.report(self.path).await;
        report.map_or_else(|_| Vec::new(), |r| r.nodes.into_iter().map(|n| (n.id, n.listen)).collect())
    }

    // ---- folders -------------------------------------------------------------------------------------------------

    async fn folder(
        &self,
        root: &Fetched,
        manifest: Manifest,
        watch: &mut dyn Watch,
    ) -> Result<GetResult, AppError> {
        let target = root.arrivals.partial.spec().destination.clone();
        let _ = std::fs::remove_file(root.arrivals.partial.data_path());
        if target.exists() && !target.is_dir() {
            return Err(AppError::Usage(format!(
                "{} is a folder there and a file here; choose another name with -o",
                target.display()
            )));
        }
        std::fs::create_dir_all(&target)
            .map_err(|e| AppError::io(format!("cannot create {}", target.display()), e))?;
        manifest.make_folders(&target)?;
        let total = manifest.total_bytes();
        let files: Vec<(String, Bytes, ObjectId)> =
            manifest.files().map(|(path, _, size, object)| (path.to_owned(), size, object)).collect();
        let mut sum = Sum { stats: root.stats.clone(), received_ns: root.received_ns, ..Sum::default() };
        let mut waiting = files.into_iter();
        let mut running = Vec::new();
        let names = self.names().await;
        loop {
            while running.len() < FILES_AT_ONCE
                && let Some((path, size, object)) = waiting.next()
            {
                running.push(Box::pin(self.file(target.join(&path), size, object)));
            }
            if running.is_empty() {
                break;
            }
            let (done, index) = first_of(&mut running).await;
            drop(running.swap_remove(index));
            let done = done?;
            sum.bytes += done.bytes;
            sum.resumed += done.resumed;
            if let Some((stats, received_ns)) = done.came {
                sum.add(&stats);
                sum.received_ns = sum.received_ns.max(received_ns);
            }
            let elapsed = self.started.elapsed().as_secs_f64();
            watch.progress(&Progress {
                object: self.options.what.clone(),
                bytes_done: sum.bytes.get(),
                bytes_total: total.get(),
                rate: BitRate::new(((sum.bytes - sum.resumed).get() as f64 * 8.0 / elapsed) as u64),
                phase: Phase::Receiving,
                ..Progress::default()
            });
        }
        let last = target.clone();
        blocking(move || manifest.complete(&last)).await??;
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

    /// One file of a folder, unless it is there already.
    async fn file(&self, path: PathBuf, size: Bytes, object: ObjectId) -> Result<FileDone, AppError> {
        let there = path.clone();
        if there.is_file() && blocking(move || tree::holds(&there, object, size, &mut |_| {})).await?? {
            return Ok(FileDone { bytes: size, resumed: size, came: None });
        }
        let fetch = Fetch {
            config: self.receiver(&object.to_string()),
            destination: Destination::Path(path),
            state_folder: self.state_folder(),
            range: None,
            overwrite: true,
            hash: Some(object),
        };
        let controller = (self.path != LOCAL).then_some(self.path);
        let fetched = fetch.run(self.host, controller, self.shutdown, &mut Quiet).await?;
        self.learn(&fetched);
        let arrivals = fetched.arrivals.clone();
        blocking(move || arrivals.partial.finish()).await??;
        Ok(FileDone {
            bytes: size,
            resumed: fetched.resumed,
            came: Some((fetched.stats, fetched.received_ns)),
        })
    }
}

struct FileDone {
    bytes: Bytes,
    resumed: Bytes,
    /// What was counted and when the last block came, unless it was there already.
    came: Option<(ReceiverStats, u64)>,
}

#[derive(Default)]
pub(super) struct Sum {
    pub(super) bytes: Bytes,
    pub(super) resumed: Bytes,
    pub(super) received_ns: u64,
    pub(super) stats: ReceiverStats,
}

impl Sum {
    pub(super) fn add(&mut self, other: &ReceiverStats) {
        let sum = &mut self.stats;
        sum.source_symbols += other.source_symbols;
        sum.arrivals += other.arrivals;
        sum.useless += other.useless;
        sum.repair_used += other.repair_used;
        sum.timeouts += other.timeouts;
        sum.flows.extend(other.flows.iter().cloned());
    }
}

pub(super) struct Quiet;

impl Follower for Quiet {
    fn opened(&mut self, _: &Arc<Arrivals>, _: ObjectId, _: Bytes) {}
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
    let size = arrivals.partial.hashes().size();
    if size == Bytes::ZERO || size.get() > manifest::MAX_MANIFEST_BYTES as u64 {
        return Ok(None);
    }
    let (mut block, mut bytes) = (Vec::new(), Vec::new());
    for index in 0..arrivals.partial.hashes().layout().block_count() {
        arrivals.partial.read_block(BlockIndex(index), &mut block)?;
        bytes.extend_from_slice(&block);
        if index == 0 && !manifest::is_manifest(&bytes) {
            return Ok(None);
        }
    }
    Ok(Some(Manifest::parse(&bytes)?))
}
