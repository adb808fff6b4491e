//! One program's connection: what it says is checked here, and what it gets is written here.

use std::io::{self, IoSlice, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use headwater_units::{Bytes, FlowId};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use crate::blocks::Block;
use crate::client_frames::{DATA, FromAgent, FromProgram, Index, LONGEST_FROM_PROGRAM, VERSIONS, length};
use crate::driver::ToHub;
use crate::fields::{FrameError, Name, data_head};
use crate::hub::{Fetch, HubCommand, SessionId, Wanted};
use crate::index;
use crate::outbox::{Outbox, Outgoing, ToProgram, outbox};
use crate::peers::Peers;
use crate::refusal::Refusal;
use crate::registry::{Output, Proof, Registry, proof};
use crate::roots::Roots;
use crate::status::AgentStatus;

/// Items that are written with one system call at most.
const AT_ONCE: usize = 16;
/// Bytes that the socket holds for a program, if the kernel allows it.
const SOCKET_BUFFER: usize = 1 << 20;
/// A program must say who it is within this time.
const HELLO_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

/// State that all sessions share.
pub(crate) struct Shared {
    pub(crate) hub: mpsc::Sender<ToHub>,
    pub(crate) registry: Arc<Mutex<Registry>>,
    pub(crate) roots: Roots,
    pub(crate) peers: Peers,
    pub(crate) block: Bytes,
    pub(crate) malformed: AtomicU64,
    /// Fills in the part of the agent's status that the hub does not know.
    pub(crate) complete: Box<dyn Fn(&mut AgentStatus) + Send + Sync>,
}

impl Shared {
    pub(crate) fn registry(&self) -> std::sync::MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the hub listens.
    async fn tell(&self, command: HubCommand<Block>) -> Result<(), SessionError> {
        let told = self.hub.send(ToHub::Command(command)).await;
        told.map_err(|_| SessionError::Refused(Refusal::Stopping))
    }

    /// How the agent is; none if it stops.
    pub(crate) async fn status(&self) -> Option<AgentStatus> {
        let (answer, answered) = oneshot::channel();
        self.hub.send(ToHub::Status(answer)).await.ok()?;
        let mut status = answered.await.ok()?;
        (self.complete)(&mut status);
        Some(status)
    }
}

#[derive(Debug, Error)]
enum SessionError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Refused(Refusal),
}

/// A program's connection.
pub(crate) struct Session {
    id: SessionId,
    user: u32,
    shared: Arc<Shared>,
    application: Option<(Name, Proof)>,
}

impl Session {
    pub(crate) fn new(id: SessionId, user: u32, shared: Arc<Shared>) -> Self {
        Session { id, user, shared, application: None }
    }

    pub(crate) async fn run(mut self, stream: UnixStream) {
        let _ = socket2::SockRef::from(&stream).set_send_buffer_size(SOCKET_BUFFER);
        let (read, write) = stream.into_split();
        let (outbox, outgoing) = outbox();
        let writing = tokio::spawn(write_all(write, outgoing, self.shared.hub.clone()));
        let end = tokio::select! {
            end = self.listen(read, &outbox) => end,
            // A program that cannot be written to is gone.
            () = outbox.closed() => Ok(()),
        };
        if let Err(error) = &end {
            let refusal = match error {
                SessionError::Refused(refusal) => Some(*refusal),
                SessionError::Frame(_) => {
                    self.shared.malformed.fetch_add(1, Ordering::Relaxed);
                    Some(Refusal::Malformed)
                }
                SessionError::Io(_) => None,
            };
            tracing::debug!(user = self.user, %error, "a program's connection ended");
            if let Some(refusal) = refusal {
                outbox.say(FromAgent::Refused { request: 0, refusal, text: error.to_string() });
            }
        }
        let _ = self.shared.tell(HubCommand::Gone { session: self.id }).await;
        if let Some((name, _)) = &self.application {
            self.shared.registry().leave(name);
        }
        // The hub lets go of it as well, and then what is left is written.
        drop(outbox);
        let _ = tokio::time::timeout(HELLO_WITHIN, writing).await;
    }

    async fn listen(&mut self, mut read: OwnedReadHalf, outbox: &Outbox) -> Result<(), SessionError> {
        let mut buffer: Vec<u8> = Vec::with_capacity(4096);
        loop {
            while let Some(length) = length(&buffer, LONGEST_FROM_PROGRAM)?.filter(|it| *it <= buffer.len()) {
                let frame = FromProgram::parse(&buffer[..length])?;
                buffer.drain(..length);
                outbox.has_room().await;
                self.handle(frame, outbox).await?;
            }
            let reading = read.read_buf(&mut buffer);
            let count = match self.application {
                Some(_) => reading.await?,
                None => tokio::time::timeout(HELLO_WITHIN, reading)
                    .await
                    .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??,
            };
            if count == 0 {
                return Ok(());
            }
        }
    }

    async fn handle(&mut self, frame: FromProgram, outbox: &Outbox) -> Result<(), SessionError> {
        let session = self.id;
        if let FromProgram::Status { request } = frame {
            let status = self.shared.status().await.ok_or(SessionError::Refused(Refusal::Stopping))?;
            let json = serde_json::to_string(&status).expect("a status can be written");
            outbox.say(FromAgent::State { request, json });
            return Ok(());
        }
        if let FromProgram::Hello { lowest, highest, application, token } = frame {
            return self.enter((lowest, highest), application, &token, outbox).await;
        }
        let (application, proof) =
            self.application.clone().ok_or(SessionError::Refused(Refusal::NotYours))?;
        match frame {
            FromProgram::Hello { .. } | FromProgram::Status { .. } => unreachable!("they were dealt with"),
            FromProgram::Register { request, output, path, index } => {
                let registered = self.register(&application, output, path, index).await;
                answer(outbox, request, registered);
            }
            FromProgram::Unregister { request, output } => {
                let output = self.shared.registry().unregister(&application, &output);
                answer(outbox, request, close(output).await);
            }
            FromProgram::Drop { request } => {
                let outputs = self.shared.registry().drop_outputs(&application);
                answer(outbox, request, close(Ok(outputs)).await);
            }
            FromProgram::Fetch { flow, coflow, host, output, first, count, credit } => {
                let peer = self.shared.peers.find(&host).map(|peer| peer.node);
                let wanted = Wanted { application, proof, coflow, host, output, first, count };
                let (name, user) = (flow, self.user);
                let fetch = Fetch { session, name, user, peer, wanted, credit };
                self.shared.tell(HubCommand::Fetch(Box::new(fetch))).await?;
            }
            FromProgram::Credit { flow, bytes } => {
                self.shared.tell(HubCommand::Credit { session, name: flow, bytes }).await?;
            }
            FromProgram::Cancel { flow } => {
                self.shared.tell(HubCommand::Cancel { session, name: flow }).await?;
            }
        }
        Ok(())
    }

    async fn enter(
        &mut self,
        versions: (u8, u8),
        application: Name,
        token: &[u8],
        outbox: &Outbox,
    ) -> Result<(), SessionError> {
        if self.application.is_some() {
            return Err(SessionError::Refused(Refusal::Exists));
        }
        let version = versions.1.min(VERSIONS.1);
        if version < versions.0 || version < VERSIONS.0 {
            return Err(SessionError::Refused(Refusal::Version));
        }
        let proof = proof(token);
        self.shared.registry().enter(self.user, &application, proof).map_err(SessionError::Refused)?;
        self.application = Some((application, proof));
        let enter = ToHub::Enter { session: self.id, outbox: outbox.clone() };
        self.shared.hub.send(enter).await.map_err(|_| SessionError::Refused(Refusal::Stopping))?;
        outbox.say(FromAgent::Welcome { version, block: self.shared.block });
        Ok(())
    }

    async fn register(
        &self,
        application: &Name,
        output: Name,
        path: String,
        index: Index,
    ) -> Result<(), Refusal> {
        let (shared, user) = (self.shared.clone(), self.user);
        let opening = tokio::task::spawn_blocking(move || open(&shared.roots, user, &path, index));
        let file = Arc::new(opening.await.unwrap_or(Err(Refusal::Io))?);
        let replaced = self.shared.registry().register(application, output, file.clone());
        close(replaced).await
    }
}

fn answer(outbox: &Outbox, request: u32, result: Result<(), Refusal>) {
    outbox.say(match result {
        Ok(()) => FromAgent::Done { request },
        Err(refusal) => FromAgent::Refused { request, refusal, text: String::new() },
    });
}

/// Closes what the registry has let go of. The disk may have to free a deleted file's blocks then, for which only this program waits.
async fn close(outputs: Result<impl Send + 'static, Refusal>) -> Result<(), Refusal> {
    let outputs = outputs?;
    tokio::task::spawn_blocking(move || drop(outputs)).await.map_err(|_| Refusal::Failed)
}

/// Opens an output and reads its index.
fn open(roots: &Roots, user: u32, path: &str, index: Index) -> Result<Output, Refusal> {
    let read = |path: &str| {
        let mut bytes = Vec::new();
        let file = roots.file(user, path)?;
        file.take(index::LONGEST + 1).read_to_end(&mut bytes).map_err(|_| Refusal::Io)?;
        if bytes.len() as u64 > index::LONGEST { Err(Refusal::BadIndex) } else { Ok(bytes) }
    };
    // A NodeManager deletes map outputs when the job is over, and nobody else says so; executors delete theirs too early.
    let while_named = matches!(index, Index::Hadoop(_));
    let ranges = match index {
        Index::Ranges(ranges) => index::bounded(ranges)?,
        Index::Hadoop(path) => index::hadoop(&read(&path)?)?,
        Index::Spark(path) => index::spark(&read(&path)?)?,
    };
    let output = Output::new(roots.file(user, path)?, ranges)?;
    Ok(if while_named { output.while_named() } else { output })
}

/// Writes what the program gets until nothing more will come or the program is gone; what it does not get is released as well.
async fn write_all(mut write: OwnedWriteHalf, mut outgoing: Outgoing, hub: mpsc::Sender<ToHub>) {
    let mut items = Vec::with_capacity(AT_ONCE);
    let mut frames = Vec::new();
    loop {
        items.clear();
        if outgoing.take(&mut items, AT_ONCE).await == 0 {
            break;
        }
        let written = write_items(&mut write, &items, &mut frames).await;
        if !release(&items, &hub).await || written.is_err() {
            break;
        }
    }
    let rest = outgoing.close();
    release(&rest, &hub).await;
}

/// Tells the hub of the data among these; whether it listens.
async fn release(items: &[ToProgram], hub: &mpsc::Sender<ToHub>) -> bool {
    let data = items.iter().filter_map(|item| match item {
        ToProgram::Data { flow, block, .. } => Some((*flow, block.len() as u64)),
        ToProgram::Frame(_) => None,
    });
    let drained: Vec<(FlowId, u64)> = data.collect();
    drained.is_empty() || hub.send(ToHub::Command(HubCommand::Drained(drained))).await.is_ok()
}

/// Writes these with as few system calls as the socket allows; blocks are not copied.
async fn write_items(
    write: &mut OwnedWriteHalf,
    items: &[ToProgram],
    frames: &mut Vec<u8>,
) -> io::Result<()> {
    frames.clear();
    // Where the head of each item ends in `frames`, and what follows it.
    let mut ends = [0; AT_ONCE];
    for (item, end) in items.iter().zip(&mut ends) {
        match item {
            ToProgram::Frame(frame) => frame.emit(frames),
            ToProgram::Data { name, offset, block, .. } => {
                frames.extend_from_slice(&data_head(DATA, *name, offset.get(), block.len()));
            }
        }
        *end = frames.len();
    }
    let mut slices = [IoSlice::new(&[]); 2 * AT_ONCE];
    let mut start = 0;
    for (at, (item, end)) in items.iter().zip(ends).enumerate() {
        slices[2 * at] = IoSlice::new(&frames[start..end]);
        if let ToProgram::Data { block, .. } = item {
            slices[2 * at + 1] = IoSlice::new(block);
        }
        start = end;
    }
    let mut left = &mut slices[..2 * items.len()];
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match write.write_vectored(left).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => IoSlice::advance_slices(&mut left, count),
        }
    }
    Ok(())
}
