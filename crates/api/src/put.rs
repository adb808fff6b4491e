//! `headwater put`: a file, a folder or a stream into this machine's store, by the daemon that owns it or, without one, by this process.
//!
//! Either way [`work`] runs on a thread of its own, is told to stop when the user is gone, and then leaves nothing behind. The bytes of
//! a stream come to it through a channel of a few pieces, so that one of any length takes little memory. The daemon gets them in frames
//! behind the question, and they end with an empty one; a connection that ends before is a put that was given up:
//! ```text
//! {"Put":{...}}\n   length (4 bytes, little-endian), so many bytes   ...   0
//! ```

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use headwater_store::{
    FolderListing, Placed, PutMode, PutOptions as StorePut, Store, StoreError, StoreOptions, Stored,
};
use headwater_units::{BitRate, Bytes, ObjectId};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, channel, unbounded_channel};
use tokio::task::JoinHandle;

use super::desk::{self, Asked, Question, Reply, SOCKET, What, say, unexpected};
use super::events::TransferKind;
use super::host::Host;
use super::names;
use super::own::{self, offer};
use super::requests::{Put, PutSource};
use super::{AppError, LeftOut, Phase, Progress, PutResult, Shutdown, Watch};

/// Bytes of a stream that are read at a time, and the most of a frame.
const PIECE: usize = 256 << 10;
/// Pieces of a stream that wait for the store.
const PIECES: usize = 4;
/// How often a user is told how far it is.
const NEWS: Duration = Duration::from_millis(50);
/// How long a daemon may take to clean up after a put that was interrupted.
const CLEANING: Duration = Duration::from_secs(10);

// ---- the work, with or without a daemon ----------------------------------------------------------------------------

/// A part of a stream.
enum Piece {
    Bytes(Vec<u8>),
    End,
    Failed(io::Error),
}

/// A stream as the store reads it.
struct Feed {
    pieces: Receiver<Piece>,
    current: io::Cursor<Vec<u8>>,
    ended: bool,
}

impl Read for Feed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let n = Read::read(&mut self.current, buffer)?;
            if n > 0 || self.ended || buffer.is_empty() {
                return Ok(n);
            }
            match self.pieces.blocking_recv() {
                Some(Piece::Bytes(bytes)) => self.current = io::Cursor::new(bytes),
                Some(Piece::End) => self.ended = true,
                Some(Piece::Failed(error)) => return Err(error),
                None => return Err(io::Error::other("it broke off before its end")),
            }
        }
    }
}

/// A running put. Dropping it gives it up.
struct Putting {
    worker: JoinHandle<Result<Reply, AppError>>,
    news: UnboundedReceiver<Progress>,
    stop: Arc<AtomicBool>,
}

impl Drop for Putting {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Putting {
    /// Begins a put; a stream's pieces go into the sender.
    fn begin(store: Arc<Store>, host: Option<Host>, asked: Asked) -> (Putting, Sender<Piece>) {
        let (to_news, news) = unbounded_channel();
        let (pour, pieces) = channel(PIECES);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let worker = tokio::task::spawn_blocking(move || {
            let feed = Feed { pieces, current: io::Cursor::default(), ended: false };
            let mut pace = NewsPace::new(asked.label.clone());
            let mut tell = |done, total| {
                if let Some(progress) = pace.progress(done, total) {
                    let _ = to_news.send(progress);
                }
            };
            let ongoing = host.as_ref().map(|host| host.events().begin(TransferKind::Put, &asked.label));
            let worked = work(&store, host.as_ref(), &asked, feed, &stopped, &mut tell);
            if let Some(ongoing) = ongoing {
                ongoing.end(&worked, named);
            }
            worked
        });
        (Putting { worker, news, stop }, pour)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Makes news of what a put says, not too often.
struct NewsPace {
    label: String,
    began: Instant,
    last: Option<Instant>,
}

impl NewsPace {
    #[allow(clippy::disallowed_methods, reason = "a user is told how fast it goes")]
    fn new(label: String) -> Self {
        NewsPace { label, began: Instant::now(), last: None }
    }

    /// `total` is zero while nobody knows it.
    #[allow(clippy::disallowed_methods, reason = "a user is told how fast it goes")]
    fn progress(&mut self, done: Bytes, total: Bytes) -> Option<Progress> {
        let now = Instant::now();
        if self.last.is_some_and(|last| now.duration_since(last) < NEWS) {
            return None;
        }
        self.last = Some(now);
        let rate = done.get() as f64 * 8.0 / now.duration_since(self.began).as_secs_f64().max(1e-3);
        let left = total.get().saturating_sub(done.get()) as f64 * 8.0 / rate;
        let eta = (total > Bytes::ZERO && rate > 0.0).then(|| headwater_units::Duration::from_secs_f64(left));
        Some(Progress {
            object: self.label.clone(),
            bytes_done: done.get(),
            bytes_total: total.get(),
            rate: BitRate::new(rate as u64),
            eta,
            phase: Phase::Hashing,
            ..Progress::default()
        })
    }
}

fn work(
    store: &Store,
    host: Option<&Host>,
    asked: &Asked,
    mut feed: Feed,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Bytes, Bytes),
) -> Result<Reply, AppError> {
    asked.name.as_deref().map_or(Ok(()), headwater_store::check_name)?;
    // Until it has its name it is nothing that stays.
    let gathering = store.gather(false);
    let options = StorePut {
        mode: if asked.link { PutMode::HardLink } else { PutMode::ReflinkOrCopy },
        added_unix_secs: names::unix_seconds(),
        part_of: Some(&gathering),
        stop: Some(stop),
        ..StorePut::default()
    };
    let mut put = || {
        let done = match &asked.what {
            What::Stream => {
                let label = Path::new(&asked.label);
                Done::of(store.put_reader(&mut feed, label, &options, &mut |n| tell(n, Bytes::ZERO))?)
            }
            What::Path(path) => {
                let path = PathBuf::from(OsString::from_vec(path.clone()));
                match std::fs::metadata(&path) {
                    Ok(there) if there.is_dir() => put_folder(store, host, &path, asked, &options, tell)?,
                    there => {
                        let total = Bytes::new(there.map_or(0, |m| m.len()));
                        Done::of(store.put(&path, &options, &mut |n| tell(n, total))?)
                    }
                }
            }
        };
        let object = done.stored.hashes.root();
        offer(store, host, object)?;
        let given = names::give(store, host, asked.name.as_deref(), object, asked.replace)?;
        // By its name as well.
        offer(store, host, object)?;
        Ok((done, given))
    };
    let (done, given) = match put() {
        Ok(put) => put,
        Err(error) => {
            names::give_up(store, host, gathering);
            return Err(error);
        }
    };
    Ok(Reply::Put {
        object: done.stored.hashes.root(),
        name: asked.name.clone(),
        bytes: done.bytes,
        placed: if done.stored.healed { "healed" } else { placed(done.stored.placed) }.to_owned(),
        left_out: done.left_out,
        generation: given.generation,
        replaced: given.replaced,
    })
}

/// The object that was put, and its size.
fn named(reply: &Reply) -> (String, u64) {
    match reply {
        Reply::Put { object, bytes, .. } => (object.to_string(), bytes.get()),
        _ => unreachable!("a put is answered so"),
    }
}

struct Done {
    stored: Stored,
    /// Of a folder, those of its files.
    bytes: Bytes,
    left_out: Vec<LeftOut>,
}

impl Done {
    fn of(stored: Stored) -> Self {
        Done { bytes: stored.hashes.size(), stored, left_out: Vec::new() }
    }
}

/// A folder goes in as its files and a manifest.
fn put_folder(
    store: &Store,
    host: Option<&Host>,
    folder: &Path,
    asked: &Asked,
    options: &StorePut<'_>,
    tell: &mut dyn FnMut(Bytes, Bytes),
) -> Result<Done, AppError> {
    let listing = FolderListing::of(folder)?;
    let left_out = left_out(&listing, &asked.label, asked.skip_special)?;
    let total = listing.total_bytes();
    let mut files = BTreeSet::new();
    let mut each = |path: &Path, progress: &mut dyn FnMut(Bytes)| {
        // A file that was here before counts as hashed at once: a stop must not wait for a read.
        if options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(StoreError::Stopped);
        }
        let Stored { hashes, .. } = store.put(path, options, progress)?;
        files.insert(hashes.root());
        Ok(hashes)
    };
    let manifest = listing.scan(asked.times, &mut each, &mut |n| tell(n, total))?;
    let stored = store.put_reader(&mut manifest.encode().as_slice(), folder, options, &mut |_| {})?;
    for object in files {
        offer(store, host, object)?;
    }
    Ok(Done { stored, bytes: manifest.total_bytes(), left_out })
}

/// The name of a file or folder that nobody has named: what it is called. None if that looks like an id, which is no name: it is asked
/// for by its own id then.
///
/// # Errors
/// It is called nothing that is text.
pub(super) fn own_name(path: &Path) -> Result<Option<String>, AppError> {
    let absolute = std::fs::canonicalize(path)
        .map_err(|e| AppError::io(format!("cannot read {}", path.display()), e))?;
    let name = path.file_name().or(absolute.file_name()).and_then(|n| n.to_str());
    let name = name.ok_or_else(|| {
        AppError::Usage(format!(
            "{} has no name that others could ask for; give one with --name",
            path.display()
        ))
    })?;
    Ok(Some(name.to_owned()).filter(|name| name.parse::<ObjectId>().is_err()))
}

/// Entries that are not in a folder's manifest, in words.
///
/// # Errors
/// [`AppError::Undeliverable`] if there is any and nobody said that it may be left out.
pub(super) fn left_out(
    listing: &FolderListing,
    label: &str,
    skip_special: bool,
) -> Result<Vec<LeftOut>, AppError> {
    let words = |it: &headwater_store::Skipped| LeftOut {
        path: it.path.display().to_string(),
        reason: it.reason.clone(),
    };
    let left_out: Vec<LeftOut> = listing.skipped().iter().map(words).collect();
    match left_out.is_empty() || skip_special {
        true => Ok(left_out),
        false => Err(AppError::Undeliverable { folder: label.to_owned(), left_out }),
    }
}

fn placed(placed: Placed) -> &'static str {
    match placed {
        Placed::Reflinked => "reflinked",
        Placed::Copied => "copied",
        Placed::HardLinked => "linked",
        Placed::Received => "received",
        Placed::AlreadyHere => "known",
    }
}

fn joined(result: Result<Result<Reply, AppError>, tokio::task::JoinError>) -> Result<Reply, AppError> {
    result.unwrap_or_else(|e| Err(AppError::Failed(e.to_string())))
}

// ---- the daemon's side ---------------------------------------------------------------------------------------------

/// Puts while telling how far it is; `None` if the asker goes away, which gives the put up.
pub(super) async fn attend(
    asked: Asked,
    store: Arc<Store>,
    host: Host,
    read: &mut (impl AsyncRead + Unpin),
    write: &mut OwnedWriteHalf,
) -> Option<Result<Reply, AppError>> {
    let streams = matches!(asked.what, What::Stream);
    let (mut putting, pour) = Putting::begin(store, Some(host), asked);
    let listening = listen(read, streams.then_some(pour));
    tokio::pin!(listening);
    let mut gone = false;
    loop {
        tokio::select! {
            result = &mut putting.worker => return (!gone).then(|| joined(result)),
            Some(progress) = putting.news.recv() => {
                // A listener that has gone is noticed by listening.
                let _ = say(write, &Reply::Progress(progress)).await;
            }
            () = &mut listening, if !gone => {
                gone = true;
                putting.stop();
            }
        }
    }
}

/// Takes in a stream, if one is to come, and returns when the asker is gone.
async fn listen(read: &mut (impl AsyncRead + Unpin), pour: Option<Sender<Piece>>) {
    if let Some(pour) = pour {
        loop {
            let Ok(len) = read.read_u32_le().await else { return };
            if len as usize > PIECE {
                return;
            }
            let mut bytes = vec![0; len as usize];
            if read.read_exact(&mut bytes).await.is_err() {
                return;
            }
            let piece = if len == 0 { Piece::End } else { Piece::Bytes(bytes) };
            // One that has failed takes no more; the asker hears of it.
            if pour.send(piece).await.is_err() || len == 0 {
                break;
            }
        }
    }
    let mut ignored = [0; 4096];
    while matches!(read.read(&mut ignored).await, Ok(1..)) {}
}

// ---- the command's side --------------------------------------------------------------------------------------------

/// Takes a file, a folder or a stream into the store of a state folder: by its daemon, or by this process if none runs.
///
/// # Errors
/// It cannot be read, there is no room for it, a folder holds what cannot be delivered, or the user stops it. Nothing of it is in the
/// store then.
pub(super) async fn put(
    (state, quota): (&Path, Option<Bytes>),
    put: Put,
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
) -> Result<PutResult, AppError> {
    let (asked, input) = asked(put)?;
    let socket = state.join(SOCKET);
    let reply = match UnixStream::connect(&socket).await {
        Ok(stream) => by_daemon(stream, &socket, asked, input, shutdown, watch).await?,
        Err(_) => {
            let store = own::open_store(&state.join("store"), StoreOptions { quota })?;
            names::clear_up(&store);
            here(Arc::new(store), None, asked, input, shutdown, watch).await?
        }
    };
    result_of(desk::answer(reply)?, watch)
}

/// The same into the store of a node of this process, which offers it.
pub(super) async fn put_at(
    (store, host): (Arc<Store>, &Host),
    put: Put,
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
) -> Result<PutResult, AppError> {
    let (asked, input) = asked(put)?;
    let worked = here(store, Some(host.clone()), asked, input, shutdown, watch).await;
    host.ops().puts.count(&worked);
    result_of(worked?, watch)
}

fn result_of(reply: Reply, watch: &mut dyn Watch) -> Result<PutResult, AppError> {
    match reply {
        Reply::Put { object, name, bytes, placed, left_out, generation, replaced } => {
            left_out.iter().for_each(|it| watch.note(&format!("left out: {it}")));
            Ok(PutResult {
                object: object.to_string(),
                name,
                bytes: bytes.get(),
                placed,
                generation,
                replaced: replaced.map(|object| object.to_string()),
                left_out,
            })
        }
        _ => Err(unexpected()),
    }
}

/// The source of a put, and the stream if it is one.
fn asked(put: Put) -> Result<(Asked, Option<Receiver<Piece>>), AppError> {
    let label = put.label();
    let Put { from, name, replace, link, skip_special, times } = put;
    let cannot = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => AppError::NotFound(format!("no such file: {label}")),
        _ => AppError::io(format!("cannot read {label}"), e),
    };
    let asked = |what, name| Asked { what, label: label.clone(), name, link, skip_special, times, replace };
    let no_file =
        || AppError::Usage(format!("--link needs a file, and {label} is a stream: leave --link out"));
    match from {
        PutSource::Reader { .. } if link => Err(no_file()),
        PutSource::Reader { reader, .. } => Ok((asked(What::Stream, name), Some(pour(move || Ok(reader))))),
        PutSource::Path(path) => {
            let kind = std::fs::metadata(&path).map_err(cannot)?.file_type();
            if kind.is_fifo() || kind.is_block_device() {
                if link {
                    return Err(no_file());
                }
                let input = pour(move || Ok(Box::new(File::open(path)?)));
                return Ok((asked(What::Stream, name), Some(input)));
            }
            let name = match name {
                Some(name) => Some(name),
                None => own_name(&path)?,
            };
            // A daemon has another current folder.
            let path = std::fs::canonicalize(&path).map_err(cannot)?;
            Ok((asked(What::Path(path.as_os_str().as_bytes().to_vec()), name), None))
        }
    }
}

/// Reads a stream on a thread of its own: one that has nothing to read must not keep the process from its end.
fn pour(open: impl FnOnce() -> io::Result<Box<dyn Read + Send>> + Send + 'static) -> Receiver<Piece> {
    let (to, pieces) = channel(PIECES);
    std::thread::spawn(move || {
        let mut input = match open() {
            Ok(input) => input,
            Err(error) => return drop(to.blocking_send(Piece::Failed(error))),
        };
        loop {
            let mut bytes = vec![0; PIECE];
            let piece = match input.read(&mut bytes) {
                Ok(0) => Piece::End,
                Ok(n) => {
                    bytes.truncate(n);
                    Piece::Bytes(bytes)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Piece::Failed(error),
            };
            let goes_on = matches!(piece, Piece::Bytes(_));
            if to.blocking_send(piece).is_err() || !goes_on {
                return;
            }
        }
    });
    pieces
}

/// The next piece of a stream; never, if there is none.
async fn next(input: &mut Option<Receiver<Piece>>) -> Piece {
    match input {
        // The reader says how it ends, or has panicked.
        Some(pieces) => {
            let broken = || Piece::Failed(io::Error::other("it could not be read to its end"));
            pieces.recv().await.unwrap_or_else(broken)
        }
        None => std::future::pending().await,
    }
}

/// Puts by this process; `host` offers what is put.
async fn here(
    store: Arc<Store>,
    host: Option<Host>,
    asked: Asked,
    mut input: Option<Receiver<Piece>>,
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
) -> Result<Reply, AppError> {
    let (mut putting, pour) = Putting::begin(store, host, asked);
    let mut pour = Some(pour);
    loop {
        tokio::select! {
            result = &mut putting.worker => return joined(result),
            Some(progress) = putting.news.recv() => watch.progress(&progress),
            piece = next(&mut input) => {
                if !matches!(piece, Piece::Bytes(_)) {
                    input = None;
                }
                // One that has failed takes no more, and says why.
                if let Some(pour) = &pour && pour.send(piece).await.is_err() {
                    input = None;
                }
            }
            () = shutdown.wait(), if pour.is_some() => {
                putting.stop();
                // The work may be waiting for a piece.
                (input, pour) = (None, None);
            }
        }
    }
}

/// Has the daemon put it.
async fn by_daemon(
    stream: UnixStream,
    socket: &Path,
    asked: Asked,
    mut input: Option<Receiver<Piece>>,
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
) -> Result<Reply, AppError> {
    let failed = |e| AppError::io(format!("cannot ask the daemon at {}", socket.display()), e);
    let label = asked.label.clone();
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    let mut text = serde_json::to_string(&Question::Put(asked)).expect("a question can be written");
    text.push('\n');
    write.write_all(text.as_bytes()).await.map_err(failed)?;
    loop {
        tokio::select! {
            line = lines.next_line() => {
                let ended = || AppError::Failed("the daemon ended before it answered; run this again when it is back".into());
                let line = line.map_err(failed)?.ok_or_else(ended)?;
                match serde_json::from_str(&line).map_err(|_| unexpected())? {
                    Reply::Progress(progress) => watch.progress(&progress),
                    reply => return Ok(reply),
                }
            }
            piece = next(&mut input) => {
                let sent = match piece {
                    Piece::Bytes(bytes) => frame(&mut write, &bytes).await,
                    Piece::End => {
                        input = None;
                        frame(&mut write, &[]).await
                    }
                    // The daemon sees the connection end, and gives the put up.
                    Piece::Failed(error) => return Err(AppError::io(format!("cannot read {label}"), error)),
                };
                // A daemon that takes no more has said why, or is gone: the next line shows it.
                if sent.is_err() {
                    input = None;
                }
            }
            () = shutdown.wait() => {
                let _ = write.shutdown().await;
                // It closes the connection when nothing of the put is left.
                let cleaned = async { while let Ok(Some(_)) = lines.next_line().await {} };
                let _ = tokio::time::timeout(CLEANING, cleaned).await;
                return Err(AppError::Interrupted { resumable: false });
            }
        }
    }
}

/// At most [`PIECE`] bytes of a stream; none are its end.
async fn frame(write: &mut OwnedWriteHalf, bytes: &[u8]) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).expect("a piece is short");
    write.write_all(&len.to_le_bytes()).await?;
    write.write_all(bytes).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &Path, skip_special: bool) -> Asked {
        Asked {
            what: What::Path(path.as_os_str().as_bytes().to_vec()),
            label: "set".into(),
            name: Some("set".into()),
            link: false,
            skip_special,
            times: true,
            replace: false,
        }
    }

    fn no_stream() -> Feed {
        Feed { pieces: channel(1).1, current: io::Cursor::default(), ended: false }
    }

    #[test]
    fn a_folder_that_is_stopped_in_its_midst_leaves_none_of_its_files_but_what_was_there_before() {
        let folder = tempfile::tempdir().unwrap();
        let set = folder.path().join("set");
        std::fs::create_dir(&set).unwrap();
        for (name, content) in [("a", "known"), ("b", "new"), ("c", "last")] {
            std::fs::write(set.join(name), content).unwrap();
        }
        let store = Store::open(&folder.path().join("store"), StoreOptions::default()).unwrap();
        store.put(&set.join("a"), &StorePut::default(), &mut |_| {}).unwrap();
        let stop = AtomicBool::new(false);
        // "known" and "new" are in the store when it is told to stop.
        let mut tell = |done: Bytes, total: Bytes| {
            assert_eq!(total, Bytes::new(12));
            stop.store(done == Bytes::new(8), Ordering::Relaxed);
        };
        let stopped = work(&store, None, &asked(&set, false), no_stream(), &stop, &mut tell);
        assert!(matches!(stopped, Err(AppError::Interrupted { resumable: false })), "{:?}", stopped.err());
        let left = store.ls().unwrap();
        assert_eq!((left.len(), left[0].size), (1, Bytes::new(5)), "{left:?}");

        let stop = AtomicBool::new(false);
        let put = work(&store, None, &asked(&set, false), no_stream(), &stop, &mut |_, _| {}).unwrap();
        let Reply::Put { bytes, name, .. } = put else { panic!("something else was done") };
        assert_eq!((bytes, name.as_deref(), store.ls().unwrap().len()), (Bytes::new(12), Some("set"), 4));
    }

    #[test]
    fn paths_of_any_bytes_pass_the_daemons_socket() {
        let path = Path::new(std::ffi::OsStr::from_bytes(b"/b\xfccher\n/caf\xe9"));
        let line = serde_json::to_string(&Question::Put(asked(path, false))).unwrap();
        assert!(!line.contains('\n'));
        let Question::Put(Asked { what: What::Path(bytes), .. }) = serde_json::from_str(&line).unwrap()
        else {
            panic!("something else came")
        };
        assert_eq!(bytes, path.as_os_str().as_bytes());
    }

    #[tokio::test]
    async fn a_stream_that_breaks_off_is_an_error_and_not_an_end() {
        let (pour, pieces) = channel(PIECES);
        let read = tokio::task::spawn_blocking(move || {
            let mut all = Vec::new();
            let mut feed = Feed { pieces, current: io::Cursor::default(), ended: false };
            feed.read_to_end(&mut all).map(|_| all)
        });
        // Two frames, and then the asker is gone.
        let mut sent: &[u8] = &[2, 0, 0, 0, b'a', b'b', 1, 0, 0, 0, b'c'];
        listen(&mut sent, Some(pour)).await;
        assert!(read.await.unwrap().is_err());

        let (pour, pieces) = channel(PIECES);
        let read = tokio::task::spawn_blocking(move || {
            let mut all = Vec::new();
            Feed { pieces, current: io::Cursor::default(), ended: false }.read_to_end(&mut all).map(|_| all)
        });
        let mut sent: &[u8] = &[2, 0, 0, 0, b'a', b'b', 1, 0, 0, 0, b'c', 0, 0, 0, 0];
        listen(&mut sent, Some(pour)).await;
        assert_eq!(read.await.unwrap().unwrap(), b"abc");
    }
}
