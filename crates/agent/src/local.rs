//! The socket for programs of this host: mode 0660, and the kernel says who connects.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::hub::SessionId;
use crate::session::{Session, Shared};
use crate::status::AgentError;

/// Programs at once, of all users.
const PROGRAMS: usize = 16_384;

/// The socket.
pub(crate) struct Local {
    listener: UnixListener,
    path: PathBuf,
}

impl Local {
    /// Takes the place of a socket that nobody listens at.
    ///
    /// # Errors
    /// [`AgentError::Socket`], also if another agent listens there.
    pub(crate) fn open(path: &Path) -> Result<Local, AgentError> {
        let failed = |source| AgentError::Socket { path: path.to_owned(), source };
        if std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket()) {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(failed(io::Error::other("another agent listens there")));
            }
            std::fs::remove_file(path).map_err(failed)?;
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(failed)?;
        Ok(Local { listener, path: path.to_owned() })
    }

    /// Attends to programs until it is dropped.
    pub(crate) async fn run(self, shared: Arc<Shared>) {
        let mut programs = JoinSet::new();
        let mut next = 1;
        loop {
            while programs.try_join_next().is_some() {}
            match self.listener.accept().await {
                Ok((stream, _)) if programs.len() < PROGRAMS => {
                    let Some(user) = user_of(&stream) else { continue };
                    let session = Session::new(SessionId(next), user, shared.clone());
                    next += 1;
                    programs.spawn(session.run(stream));
                }
                Ok(_) => tracing::warn!("{PROGRAMS} programs are connected, and no more are let in"),
                Err(error) => {
                    tracing::warn!(%error, "a program could not be let in");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The user whose process has connected, by SO_PEERCRED.
fn user_of(stream: &UnixStream) -> Option<u32> {
    stream.peer_cred().ok().map(|it| it.uid())
}
