//! Errors of commands, and their exit codes.

use std::io;

use headwater_store::StoreError;
use headwater_units::{Bytes, Duration};
use thiserror::Error;

use super::LeftOut;

/// Maximum number of undeliverable entries that are listed; the others are only counted.
const LISTED: usize = 20;

/// A command did not do what was asked. The exit code says which way, the message what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AppError {
    /// The options do not go together, seen only while acting on them.
    #[error("{0}")]
    Usage(String),
    /// No such object, or no such file.
    #[error("{0}")]
    NotFound(String),
    /// The controller or every source is out of reach.
    #[error("cannot reach {who}: {reason}")]
    Unreachable {
        /// Address or addresses.
        who: String,
        /// The operation, and its answer.
        reason: String,
    },
    /// Reachable, but nobody has what is missing.
    #[error("no source left for {object}: {missing} missing; {hint}")]
    NoSource {
        /// Name or id.
        object: String,
        /// Bytes that are missing.
        missing: Bytes,
        /// Advice.
        hint: String,
    },
    /// The bytes that came or that are here are not the object asked for.
    #[error("{0}")]
    Verification(String),
    /// No room, by disk or by quota.
    #[error("{0}")]
    NoRoom(String),
    /// The answering peer is not the expected one.
    #[error("{0}")]
    Identity(String),
    /// Not done within `--timeout`.
    #[error("not done after {after}: {state}")]
    TimedOut {
        /// The time given.
        after: Duration,
        /// Progress so far, and what to do.
        state: String,
    },
    /// The user stopped it.
    #[error("interrupted{}", if *resumable { "; what is finished is kept, run the same command again to resume" } else { "" })]
    Interrupted {
        /// Whether running the same command again goes on where this stopped.
        resumable: bool,
    },
    /// Reading or writing failed.
    #[error("{doing}: {source}{}", not_allowed(source))]
    Io {
        /// The operation, as in "cannot write out.bin".
        doing: String,
        /// The system's error.
        source: io::Error,
    },
    /// A folder holds what cannot be delivered, and nobody said that it may be left out.
    #[error("{}", undeliverable(folder, left_out))]
    Undeliverable {
        /// The folder, as the user calls it.
        folder: String,
        /// The entries.
        left_out: Vec<LeftOut>,
    },
    /// The daemon of this machine could not do it.
    #[error("{message}")]
    Daemon {
        /// Its own exit code for that.
        code: u8,
        /// Its own words.
        message: String,
    },
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl AppError {
    /// The exit code of a process that ends with this, as `--help` lists them.
    pub fn exit_code(&self) -> u8 {
        match self {
            AppError::Io { source, .. } if no_room(source) => 6,
            AppError::Io { .. }
            | AppError::Failed(_)
            | AppError::TimedOut { .. }
            | AppError::Undeliverable { .. } => 1,
            AppError::Usage(_) => 2,
            AppError::NotFound(_) => 3,
            AppError::Unreachable { .. } | AppError::NoSource { .. } => 4,
            AppError::Verification(_) => 5,
            AppError::NoRoom(_) => 6,
            AppError::Identity(_) => 7,
            AppError::Interrupted { .. } => 130,
            AppError::Daemon { code, .. } => *code,
        }
    }

    /// One word for programs: the `kind` of a `--json` error.
    pub fn kind(&self) -> &'static str {
        match self.exit_code() {
            2 => "usage",
            3 => "not_found",
            4 => "no_source",
            5 => "verification",
            6 => "no_room",
            7 => "identity",
            130 => "interrupted",
            _ => "failed",
        }
    }
}

fn undeliverable(folder: &str, left_out: &[LeftOut]) -> String {
    let mut text = format!("{folder} holds what cannot be delivered, so nothing was done:\n");
    left_out.iter().take(LISTED).for_each(|it| text += &format!("  {it}\n"));
    if let more @ 1.. = left_out.len().saturating_sub(LISTED) {
        text += &format!("  and {more} more\n");
    }
    text + "move it away, or leave it out with --skip-special"
}

/// Advice where the system does not allow something.
fn not_allowed(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; run this as a user who may, or choose another place (-o for what is fetched, --state for headwater's own files)"
        }
        _ => "",
    }
}

fn no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl From<StoreError> for AppError {
    fn from(error: StoreError) -> Self {
        let text = error.to_string();
        match error {
            StoreError::DiskFull { .. } | StoreError::QuotaExceeded { .. } => AppError::NoRoom(text),
            StoreError::NotFound { .. } => AppError::NotFound(text),
            StoreError::HashesMismatch { .. }
            | StoreError::BlockMismatch { .. }
            | StoreError::ObjectChanged { .. }
            | StoreError::ObjectDamaged { .. } => AppError::Verification(text),
            StoreError::Stopped => AppError::Interrupted { resumable: false },
            StoreError::BadName { .. } | StoreError::Ambiguous { .. } | StoreError::PartOfFolder { .. } => {
                AppError::Usage(text)
            }
            StoreError::Io { source, .. } => AppError::Failed(text + not_allowed(&source)),
            _ => AppError::Failed(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_things_in_the_way_some_are_listed_and_the_others_counted() {
        let one = |n: usize| LeftOut { path: format!("set/{n}"), reason: "it is a socket".into() };
        let text = AppError::Undeliverable { folder: "set".into(), left_out: (0..25).map(one).collect() }
            .to_string();
        assert!(text.contains("set/19 (it is a socket)") && text.contains("and 5 more"), "{text}");
        assert!(!text.contains("set/20") && text.ends_with("--skip-special"), "{text}");
    }

    #[test]
    fn full_disks_have_their_own_exit_code_wherever_they_show() {
        let source = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(AppError::Io { doing: "cannot write".into(), source }.exit_code(), 6);
        let error =
            StoreError::QuotaExceeded { quota: Bytes::kib(1), used: Bytes::ZERO, needed: Bytes::kib(2) };
        assert_eq!(AppError::from(error).exit_code(), 6);
    }
}
