//! Commands about this machine's store and about the cluster: `rm`, `gc`, `ls`, `status`; and the desk at which a daemon answers
//! them, `put` ([`super::put`]) and `get --keep` ([`super::keep`]).
//!
//! The store belongs to one process. While a daemon runs on the state folder the commands ask it over a socket in that
//! folder (one JSON object per line, question and answer); else they open the store themselves.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use headwater_store::{Store, StoreOptions};
use headwater_units::{Bytes, PathId};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::cast_agent::CastAgent;
use super::desk::{LONGEST_LINE, Question, Reply, SOCKET, Wanted, answer, say, unexpected};
use super::host::{Host, HostConfig};
use super::keep::Keeper;
use super::names;
use super::put;
use super::{
    AppError, Common, GcOptions, GcResult, GetResult, ObjectLine, Progress, QueryOptions, RmOptions,
    RmResult, StatusReport, Watch, own,
};

/// An address that others on this machine can dial: the wildcard address is none. IPv6's takes IPv4 too, and a machine where IPv6 is
/// switched off may have that wildcard without a loopback address.
pub(super) fn reachable(listen: SocketAddr) -> SocketAddr {
    let any = listen.ip().is_unspecified();
    SocketAddr::new(if any { Ipv4Addr::LOCALHOST.into() } else { listen.ip() }, listen.port())
}

// ---- the daemon's side ---------------------------------------------------------------------------------------------

/// Answers the commands of this machine.
pub(super) struct Desk {
    listener: UnixListener,
    store: Arc<Store>,
    host: Host,
    keeper: Arc<Keeper>,
    cast_agent: CastAgent,
}

impl Desk {
    pub(super) fn open(
        common: &Common,
        store: Arc<Store>,
        host: Host,
        controller: PathId,
    ) -> Result<Self, AppError> {
        let path = common.state.join(SOCKET);
        // The store is ours, so a socket that is still there belongs to a process that is not.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(|e| AppError::state(&path, e))?;
        let keeper = Arc::new(Keeper::new(common, store.clone(), host.clone(), controller));
        let cast_agent = CastAgent::new(keeper.clone(), host.clone(), controller);
        Ok(Desk { listener, store, host, keeper, cast_agent })
    }

    /// Keeper that it fetches with.
    pub(super) fn keeper(&self) -> Arc<Keeper> {
        self.keeper.clone()
    }

    pub(super) async fn run(self) {
        let naming = names::look_after(self.store.clone(), self.host.clone(), self.host.hear_names());
        let attending = Desk::attend(self.listener, self.store, self.host, self.keeper);
        tokio::join!(self.cast_agent.run(), attending, naming);
    }

    async fn attend(listener: UnixListener, store: Arc<Store>, host: Host, keeper: Arc<Keeper>) {
        // They end with the desk.
        let mut attended = JoinSet::new();
        loop {
            while attended.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => {
                    attended.spawn(attend(stream, store.clone(), host.clone(), keeper.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a local command could not be accepted");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// The daemon goes away.
pub(super) fn close_desk(state: &Path) {
    let _ = std::fs::remove_file(state.join(SOCKET));
}

async fn attend(stream: UnixStream, store: Arc<Store>, host: Host, keeper: Arc<Keeper>) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read).take(LONGEST_LINE);
    let mut line = String::new();
    if read.read_line(&mut line).await.is_err() {
        return;
    }
    let reply = match serde_json::from_str(&line) {
        Ok(Question::Get(wanted)) => match attend_get(&wanted, &keeper, &mut read, &mut write).await {
            Some(result) => result.map(|got| Reply::Got(Box::new(got))),
            // The asking program has gone, and its request with it.
            None => return,
        },
        Ok(Question::Put(asked)) => {
            // A stream is as long as it is.
            read.set_limit(u64::MAX);
            let asker = host.clone();
            match put::attend(asked, store, host, &mut read, &mut write).await {
                Some(worked) => {
                    asker.ops().puts.count(&worked);
                    note(&worked);
                    worked
                }
                None => return,
            }
        }
        Ok(question) => {
            let worked = work_aside(store, Some(host), question).await;
            note(&worked);
            worked
        }
        Err(error) => Err(AppError::Usage(format!("not a question: {error}"))),
    };
    let reply = reply.unwrap_or_else(Reply::refusal);
    let _ = say(&mut write, &reply).await;
}

/// Logs the change that a local command has made.
fn note(worked: &Result<Reply, AppError>) {
    match worked {
        Ok(Reply::Put { object, name, bytes, placed, .. }) => {
            let (name, bytes) = (name.as_deref().unwrap_or_default(), bytes.get());
            tracing::info!(%object, name, bytes, placed, "object put");
        }
        Ok(Reply::Rm { object, names, freed, .. }) => {
            tracing::info!(%object, names = names.join(" "), freed_bytes = freed.get(), "object or name removed");
        }
        Ok(_) => {}
        Err(error) => tracing::info!(%error, "a local command was refused"),
    }
}

/// Fetches while telling how far it is; `None` if the asker goes away, which ends the fetch.
async fn attend_get(
    wanted: &Wanted,
    keeper: &Keeper,
    read: &mut (impl AsyncRead + Unpin),
    write: &mut OwnedWriteHalf,
) -> Option<Result<GetResult, AppError>> {
    let (news, mut heard) = unbounded_channel();
    let mut teller = Teller { news };
    let fetching = keeper.fetch(wanted, None, &mut teller);
    tokio::pin!(fetching);
    let mut ignored = [0; 64];
    loop {
        tokio::select! {
            kept = &mut fetching => return Some(kept.map(|kept| kept.result)),
            Some(reply) = heard.recv() => say(write, &reply).await.ok()?,
            more = read.read(&mut ignored) => if !matches!(more, Ok(1..)) { return None },
        }
    }
}

/// Passes on what a fetch tells its user.
struct Teller {
    news: UnboundedSender<Reply>,
}

impl Watch for Teller {
    fn progress(&mut self, progress: &Progress) {
        let _ = self.news.send(Reply::Progress(progress.clone()));
    }
    fn note(&mut self, line: &str) {
        let _ = self.news.send(Reply::Note(line.to_owned()));
    }
}

fn work(store: &Store, host: Option<&Host>, question: Question) -> Result<Reply, AppError> {
    match question {
        Question::Get(_) | Question::Put(_) => unreachable!("these do not end while one waits"),
        Question::Rm { what } => {
            let removed = store.rm(&what)?;
            host.inspect(|host| names::withdraw(host, &removed));
            Ok(Reply::Rm {
                object: removed.id,
                names: removed.names,
                freed: removed.freed.unwrap_or(Bytes::ZERO),
                objects: removed.objects.len() as u64,
            })
        }
        Question::Find { what } => Ok(Reply::Found { objects: own::look(store, &what) }),
        Question::Gc { dry_run } => Ok(Reply::Gc(names::gc(store, host, dry_run)?)),
        Question::Ls => {
            let holders: Vec<String> =
                host.and_then(Host::listen).map(|l| l.to_string()).into_iter().collect();
            let lines = store.ls()?.into_iter().flat_map(|o| {
                let holders = holders.clone();
                let line =
                    move |name| ObjectLine { object: o.id, name, bytes: o.size, holders: holders.clone() };
                match o.names.is_empty() {
                    true => vec![line(None)],
                    false => o.names.into_iter().map(Some).map(line).collect(),
                }
            });
            Ok(Reply::Ls { objects: lines.collect() })
        }
    }
}

// ---- the command's side --------------------------------------------------------------------------------------------

/// Asks the daemon of the state folder, or does the work here if there is none.
async fn ask(common: &Common, question: Question) -> Result<Reply, AppError> {
    let path = common.state.join(SOCKET);
    let reply = match UnixStream::connect(&path).await {
        Ok(stream) => {
            let failed = |e| AppError::io(format!("cannot ask the daemon at {}", path.display()), e);
            let (read, mut write) = stream.into_split();
            let mut text = serde_json::to_string(&question).expect("a question can be written");
            text.push('\n');
            write.write_all(text.as_bytes()).await.map_err(failed)?;
            let mut line = String::new();
            BufReader::new(read).take(LONGEST_LINE).read_line(&mut line).await.map_err(failed)?;
            serde_json::from_str(&line)
                .map_err(|_| AppError::Failed("the daemon ended before it answered".to_owned()))?
        }
        Err(_) => {
            let store = own::open_store(&common.state.join("store"), StoreOptions::default())?;
            if matches!(question, Question::Rm { .. }) {
                names::clear_up(&store);
            }
            work(&store, None, question)?
        }
    };
    answer(reply)
}

/// Objects in a store of this process.
pub(super) async fn objects(store: Arc<Store>, host: Option<Host>) -> Result<Vec<ObjectLine>, AppError> {
    match work_aside(store, host, Question::Ls).await? {
        Reply::Ls { objects } => Ok(objects),
        _ => Err(unexpected()),
    }
}

/// Removes an object, or a name of it, from a store of this process.
pub(super) async fn remove(
    store: Arc<Store>,
    host: Option<Host>,
    what: String,
) -> Result<RmResult, AppError> {
    removed(work_aside(store, host, Question::Rm { what }).await?)
}

/// Where it holds up nobody.
async fn work_aside(store: Arc<Store>, host: Option<Host>, question: Question) -> Result<Reply, AppError> {
    let worked = tokio::task::spawn_blocking(move || work(&store, host.as_ref(), question)).await;
    worked.unwrap_or_else(|e| Err(AppError::Failed(e.to_string())))
}

/// Removes an object, or a name of it, from this machine's store.
///
/// # Errors
/// There is no such object.
pub async fn rm(options: RmOptions) -> Result<RmResult, AppError> {
    let question = Question::Rm { what: options.what.clone() };
    removed(ask(&options.common, question).await?)
}

fn removed(reply: Reply) -> Result<RmResult, AppError> {
    match reply {
        Reply::Rm { object, names, freed, objects } => Ok(RmResult {
            object: object.to_string(),
            name: names.into_iter().next(),
            freed_bytes: freed.get(),
            objects,
        }),
        _ => Err(unexpected()),
    }
}

/// Removes from this machine's store what nothing needs: files of folders that are gone, transfers that nobody goes on with.
///
/// # Errors
/// The store cannot be opened.
pub async fn gc(options: GcOptions) -> Result<GcResult, AppError> {
    let question = Question::Gc { dry_run: options.dry_run };
    match ask(&options.common, question).await? {
        Reply::Gc(result) => Ok(result),
        _ => Err(unexpected()),
    }
}

/// Objects that can be fetched: by the controller's word, or those in this machine's store.
///
/// # Errors
/// The controller cannot be reached, or the store cannot be opened.
pub async fn ls(options: QueryOptions) -> Result<Vec<ObjectLine>, AppError> {
    match &options.controller {
        Some(at) => Ok(asked(&options, at, Host::report).await?.objects),
        None => stored(&options.common).await,
    }
}

async fn stored(common: &Common) -> Result<Vec<ObjectLine>, AppError> {
    match ask(common, Question::Ls).await? {
        Reply::Ls { objects } => Ok(objects),
        _ => Err(unexpected()),
    }
}

/// Everything a controller knows.
///
/// # Errors
/// It cannot be reached.
pub async fn status(options: QueryOptions) -> Result<StatusReport, AppError> {
    match &options.controller {
        Some(at) => asked(&options, at, Host::status).await,
        None => Ok(StatusReport { objects: stored(&options.common).await?, ..StatusReport::default() }),
    }
}

async fn asked(
    options: &QueryOptions,
    at: &str,
    question: impl AsyncFnOnce(&Host, PathId) -> Result<StatusReport, AppError>,
) -> Result<StatusReport, AppError> {
    let asking = async {
        let host = Host::start(HostConfig {
            common: &options.common,
            listen: None,
            controller: None,
            node: None,
            passes_on: false,
        })?;
        let path = host.new_path();
        host.keep_dialled(path, at, false).await?;
        let mut report = question(&host, path).await?;
        report.controller = at.to_owned();
        host.close().await;
        Ok(report)
    };
    match tokio::time::timeout(options.timeout.into(), asking).await {
        Ok(report) => report,
        Err(_) => Err(AppError::Unreachable {
            who: at.to_owned(),
            reason: format!(
                "no answer within {}: is headwater running there (`headwater up` listens on UDP port 7000), and does no firewall \
                 drop that port? One that is only busy may need a longer --timeout",
                options.timeout
            ),
        }),
    }
}
