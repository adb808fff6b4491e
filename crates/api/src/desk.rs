//! The protocol between commands and the daemon of a state folder, over a socket in that folder: one JSON object per line, question
//! and answer.

use std::path::{Path, PathBuf};

use headwater_units::{Bytes, ObjectId};
use headwater_wire::{Delivery, SpreadRule};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;

use super::{AppError, GcResult, GetResult, LeftOut, ObjectLine, Progress};

pub(super) const SOCKET: &str = "daemon.sock";
/// No question or answer is longer (a listing of a hundred thousand objects).
pub(super) const LONGEST_LINE: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
pub(super) enum Question {
    Put(Asked),
    Rm { what: String },
    Gc { dry_run: bool },
    Ls,
    Find { what: Vec<String> },
    Get(Wanted),
}

/// The object to put.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Asked {
    pub(super) what: What,
    /// The user's name for it.
    pub(super) label: String,
    pub(super) name: Option<String>,
    pub(super) link: bool,
    pub(super) skip_special: bool,
    pub(super) times: bool,
    /// Take the name over from another node that is away.
    pub(super) replace: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum What {
    /// The bytes of an absolute path, which need not be UTF-8.
    Path(Vec<u8>),
    /// The bytes that follow the question.
    Stream,
}

/// An object that the daemon is asked to fetch into its store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Wanted {
    pub(super) what: String,
    pub(super) hash: Option<ObjectId>,
    /// Fetch it although an object of that name is here.
    pub(super) anew: bool,
    pub(super) gentle: bool,
    pub(super) delivery: Option<Delivery>,
    pub(super) spread: SpreadRule,
    pub(super) max_sources: Option<u8>,
}

/// Replies of the daemon; to a `Get` or a `Put` first any number of `Progress` and `Note`.
#[derive(Serialize, Deserialize)]
pub(super) enum Reply {
    Put {
        object: ObjectId,
        name: Option<String>,
        bytes: Bytes,
        placed: String,
        left_out: Vec<LeftOut>,
        generation: Option<u64>,
        replaced: Option<ObjectId>,
    },
    Rm {
        object: ObjectId,
        names: Vec<String>,
        freed: Bytes,
        objects: u64,
    },
    Gc(GcResult),
    Ls {
        objects: Vec<ObjectLine>,
    },
    Found {
        objects: Vec<Option<Told>>,
    },
    Progress(Progress),
    Note(String),
    Got(Box<GetResult>),
    Undeliverable {
        folder: String,
        left_out: Vec<LeftOut>,
    },
    Refused {
        code: u8,
        message: String,
    },
}

impl Reply {
    pub(super) fn refusal(error: AppError) -> Reply {
        match error {
            AppError::Undeliverable { folder, left_out } => Reply::Undeliverable { folder, left_out },
            error => Reply::Refused { code: error.exit_code(), message: error.to_string() },
        }
    }
}

/// The answer, unless it is a refusal.
pub(super) fn answer(reply: Reply) -> Result<Reply, AppError> {
    match reply {
        Reply::Refused { code, message } => Err(AppError::Daemon { code, message }),
        Reply::Undeliverable { folder, left_out } => Err(AppError::Undeliverable { folder, left_out }),
        reply => Ok(reply),
    }
}

/// An object in the store of this machine, as a daemon tells it.
#[derive(Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) id: ObjectId,
    pub(super) size: Bytes,
    /// 64 hex digits for each block.
    pub(super) hashes: String,
    pub(super) path: PathBuf,
}

/// Sends a reply to the asking command.
pub(super) async fn say(write: &mut OwnedWriteHalf, reply: &Reply) -> std::io::Result<()> {
    let mut text = serde_json::to_string(reply).expect("a reply can be written");
    text.push('\n');
    write.write_all(text.as_bytes()).await
}

/// Asks the daemon of the state folder which of these its store has; `None` if there is no daemon.
pub(super) async fn find(state: &Path, what: &[String]) -> Option<Vec<Option<Told>>> {
    let stream = UnixStream::connect(state.join(SOCKET)).await.ok()?;
    let question = Question::Find { what: what.to_vec() };
    match over(stream, &question).await {
        Ok(Reply::Found { objects }) => Some(objects),
        // Of another version, perhaps: then its store is not looked at.
        _ => Some(Vec::new()),
    }
}

/// Says a question, and reads the one line of the answer.
async fn over(stream: UnixStream, question: &Question) -> std::io::Result<Reply> {
    let (read, mut write) = stream.into_split();
    let mut text = serde_json::to_string(question).expect("a question can be written");
    text.push('\n');
    write.write_all(text.as_bytes()).await?;
    let mut line = String::new();
    BufReader::new(read).take(LONGEST_LINE).read_line(&mut line).await?;
    serde_json::from_str(&line).map_err(std::io::Error::from)
}

/// The daemon of a state folder, if one runs, with what it says as it comes.
pub(super) struct Daemon {
    lines: Lines<BufReader<UnixStream>>,
    socket: PathBuf,
}

impl Daemon {
    /// Asks it to fetch something into its store; `None` if there is no daemon.
    pub(super) async fn asked_to_get(state: &Path, wanted: Wanted) -> Result<Option<Daemon>, AppError> {
        let socket = state.join(SOCKET);
        let Ok(mut stream) = UnixStream::connect(&socket).await else { return Ok(None) };
        let mut text = serde_json::to_string(&Question::Get(wanted)).expect("a question can be written");
        text.push('\n');
        let sent = stream.write_all(text.as_bytes()).await;
        sent.map_err(|e| AppError::io(format!("cannot ask the daemon at {}", socket.display()), e))?;
        Ok(Some(Daemon { lines: BufReader::new(stream).lines(), socket }))
    }

    /// Its next reply.
    pub(super) async fn next(&mut self) -> Result<Reply, AppError> {
        let ended =
            || AppError::Failed("the daemon ended before it was done; run this again when it is back".into());
        let line = self.lines.next_line().await;
        let line = line
            .map_err(|e| AppError::io(format!("cannot hear the daemon at {}", self.socket.display()), e))?;
        serde_json::from_str(&line.ok_or_else(ended)?).map_err(|_| unexpected())
    }
}

pub(super) fn unexpected() -> AppError {
    AppError::Failed(
        "the daemon answered something else than was asked; is it of another version?".to_owned(),
    )
}
