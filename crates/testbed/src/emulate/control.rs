//! How other processes of the same user ask a running network, and change it: a line of JSON each way over a socket.
//!
//! The socket is named after the run and stands in a folder that is the user's alone: `/run/headwater` of root, else
//! `headwater` in `$XDG_RUNTIME_DIR`. A socket that nobody answers at is left of a run that died, and is removed by the
//! next that finds it.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{EmulateError, EmulatedNet, Status};

/// The longest question or answer, in bytes: thousands of links.
const LONGEST: u64 = 4 << 20;
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(2);
const ENDING: &str = "sock";

/// Requests to a running network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// Everything: [`Status`].
    Status,
    /// A link changes, as [`EmulatedNet::fault`] reads it.
    Fault {
        /// From and to.
        link: String,
        /// Changes of the link.
        what: Vec<String>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer<T> {
    Done(T),
    Error(String),
}

/// Where a running network is asked. Dropping it removes it.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Opens it, for this user alone; removes those of dead runs.
    ///
    /// # Errors
    /// [`EmulateError::Socket`], or [`EmulateError::NoRun`] where there is no folder for it.
    pub fn open(run_id: &str) -> Result<ControlSocket, EmulateError> {
        let folder = folder()?;
        Runs { folder: folder.clone() }.ids();
        let path = folder.join(format!("{run_id}.{ENDING}"));
        let opened = || -> io::Result<UnixListener> {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            let listener = UnixListener::bind(&path)?;
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        match opened() {
            Ok(listener) => Ok(ControlSocket { listener, path }),
            Err(source) => Err(EmulateError::Socket { path, source }),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits at most for the time `timeout` for a request, and answers at most one.
    ///
    /// Somebody who asks and falls silent holds it up for two seconds.
    pub fn serve(&self, net: &EmulatedNet, timeout: Duration) {
        let timeout =
            Timespec { tv_sec: timeout.as_secs().cast_signed(), tv_nsec: timeout.subsec_nanos().into() };
        // A signal ends the wait early, which is as well.
        let _ = poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&timeout));
        if let Ok((stream, _)) = self.listener.accept() {
            // A program that went away meanwhile needs no answer.
            let _ = answer(stream, net);
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn answer(stream: UnixStream, net: &EmulatedNet) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let line = read_line(&stream)?;
    let answered = match serde_json::from_str(&line) {
        Err(error) => serde_json::to_vec(&Answer::<()>::Error(error.to_string())),
        Ok(Request::Status) => serde_json::to_vec(&told(net.status())),
        Ok(Request::Fault { link, what }) => serde_json::to_vec(&told(net.fault(&link, &what))),
    };
    write_line(&stream, answered?)
}

fn told<T>(result: Result<T, EmulateError>) -> Answer<T> {
    result.map_or_else(|error| Answer::Error(error.to_string()), Answer::Done)
}

fn read_line(stream: &UnixStream) -> io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line)?;
    Ok(line)
}

fn write_line(mut stream: &UnixStream, mut line: Vec<u8>) -> io::Result<()> {
    line.push(b'\n');
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&line)
}

/// The networks of this user that are running.
#[derive(Clone, Debug)]
pub struct Runs {
    folder: PathBuf,
}

impl Runs {
    /// Those whose sockets are where this user's are.
    ///
    /// # Errors
    /// [`EmulateError::NoRun`] where there is no folder for them.
    pub fn of_this_user() -> Result<Runs, EmulateError> {
        Ok(Runs { folder: folder()? })
    }

    /// Their ids, sorted. Sockets of dead ones are removed.
    pub fn ids(&self) -> Vec<String> {
        // No folder means that nothing ever ran.
        let entries =
            fs::read_dir(&self.folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let mut ids = Vec::new();
        for path in entries.filter(|path| path.extension().is_some_and(|it| it == ENDING)) {
            match UnixStream::connect(&path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    let _ = fs::remove_file(&path);
                }
                Err(_) => {}
                Ok(_) => ids.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned)),
            }
        }
        ids.sort();
        ids
    }

    /// The one that is meant: by its id, or the only one.
    ///
    /// # Errors
    /// [`EmulateError::NoRun`] if it is none, or may be several.
    pub fn choose(&self, wanted: Option<&str>) -> Result<String, EmulateError> {
        let ids = self.ids();
        let no_run = |text: String| Err(EmulateError::NoRun(text));
        match (wanted, &ids[..]) {
            (_, []) => no_run(
                "no emulated network of this user is running; `headwater emulate FILE` starts one".into(),
            ),
            (Some(wanted), ids) if ids.iter().any(|id| id == wanted) => Ok(wanted.to_owned()),
            (Some(wanted), ids) => no_run(format!("no run '{wanted}'; there are: {}", ids.join(", "))),
            (None, [only]) => Ok(only.clone()),
            (None, ids) => {
                no_run(format!("several networks are running; say which with --run: {}", ids.join(", ")))
            }
        }
    }

    /// Status of a running network.
    ///
    /// # Errors
    /// See [`EmulateError`].
    pub fn status(&self, run: &str) -> Result<Status, EmulateError> {
        self.ask(run, &Request::Status)
    }

    /// Changes a link of a running network.
    ///
    /// # Errors
    /// See [`EmulateError`].
    pub fn fault(&self, run: &str, link: &str, what: &[String]) -> Result<(), EmulateError> {
        self.ask(run, &Request::Fault { link: link.to_owned(), what: what.to_vec() })
    }

    fn ask<T: DeserializeOwned>(&self, run: &str, request: &Request) -> Result<T, EmulateError> {
        let path = self.folder.join(format!("{run}.{ENDING}"));
        let asked = || -> io::Result<Answer<T>> {
            let stream = UnixStream::connect(&path)?;
            write_line(&stream, serde_json::to_vec(request)?)?;
            Ok(serde_json::from_str(&read_line(&stream)?)?)
        };
        match asked() {
            Ok(Answer::Done(answer)) => Ok(answer),
            Ok(Answer::Error(reason)) => Err(EmulateError::Refused(reason)),
            Err(source) => Err(EmulateError::Socket { path, source }),
        }
    }
}

fn folder() -> Result<PathBuf, EmulateError> {
    if rustix::process::geteuid().is_root() {
        return Ok("/run/headwater".into());
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) if Path::new(&folder).is_absolute() => Ok(Path::new(&folder).join("headwater")),
        _ => Err(EmulateError::NoRun(
            "there is no folder for control sockets: XDG_RUNTIME_DIR is not set, and this is not root"
                .to_owned(),
        )),
    }
}
