//! How what goes wrong below becomes what the user is told.

use std::fmt::Display;
use std::io;
use std::path::Path;

use headwater_transport::ReceiverFailure;
use headwater_units::Bytes;
use headwater_wire::Refusal;

use super::AppError;
use crate::control::ControlError;

impl AppError {
    /// Something in the state folder cannot be used.
    pub(crate) fn state(path: &Path, reason: impl Display) -> Self {
        AppError::Failed(format!(
            "cannot use {}: {reason}; choose another folder with --state",
            path.display()
        ))
    }

    /// Reading or writing failed.
    pub(crate) fn io(doing: impl Into<String>, source: io::Error) -> Self {
        AppError::Io { doing: doing.into(), source }
    }

    /// Whether it is about who answered, not about whether somebody did: trying again does not help.
    pub(crate) fn is_about_trust(&self) -> bool {
        matches!(self, AppError::Identity(_))
    }

    /// Why a receiver gave up, in the user's words.
    pub(crate) fn of_failure(failure: ReceiverFailure, what: &str, block: Bytes) -> Self {
        let no_source = |missing: Bytes, hint: &str| AppError::NoSource {
            object: what.to_owned(),
            missing,
            hint: hint.to_owned(),
        };
        match failure {
            ReceiverFailure::NoController => AppError::Unreachable {
                who: "the controller".to_owned(),
                reason: "it did not answer the request; is it running, and is the address right?".to_owned(),
            },
            ReceiverFailure::Refused(Refusal::UnknownObject) => AppError::NotFound(format!(
                "no object '{what}' is known there; `headwater ls` with the same --controller shows what is"
            )),
            ReceiverFailure::Refused(Refusal::NoSource) => no_source(
                Bytes::ZERO,
                "it is known, but every node that holds it is offline; start one of them and run this again",
            ),
            ReceiverFailure::Refused(reason) => {
                AppError::Failed(format!("the controller refused: {reason:?}"))
            }
            ReceiverFailure::NoSource { missing } => no_source(
                block * u64::from(missing),
                "every source has fallen silent; what is finished is kept, run this again when one is back",
            ),
            ReceiverFailure::Corrupt { block } => AppError::Verification(format!(
                "block {} of {what} never matched its hash, whichever source sent it; the sources' copies are damaged",
                block.0
            )),
            ReceiverFailure::Changed => AppError::Verification(format!(
                "'{what}' now stands for another object than when this began; run this again to fetch the new one"
            )),
            ReceiverFailure::Cancelled => AppError::Interrupted { resumable: true },
        }
    }
}

impl From<ControlError> for AppError {
    fn from(error: ControlError) -> Self {
        let text = error.to_string();
        match error {
            ControlError::KeyChanged { .. } | ControlError::PinMismatch { .. } => AppError::Identity(text),
            ControlError::CannotReach { addr, reason } => {
                AppError::Unreachable { who: addr.to_string(), reason: reason.to_string() }
            }
            _ => AppError::Failed(text),
        }
    }
}
