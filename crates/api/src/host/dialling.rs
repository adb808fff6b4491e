//! Log lines about a connection that is dialled again and again: each cause once, with the next try, and once when it is back.

use headwater_control::Link;
use headwater_units::{Duration, PathId};

use super::Host;
use crate::AppError;
use crate::events::Event;

/// The connection of one path, as the log has heard of it.
pub(super) struct Dialling {
    host: Host,
    path: PathId,
    at: String,
    /// Why it was not to be had the last time, since it was there last.
    cause: Option<String>,
}

impl Dialling {
    pub(super) fn new(host: &Host, path: PathId, at: &str) -> Self {
        Dialling { host: host.clone(), path, at: at.to_owned(), cause: None }
    }

    /// A daemon dials its controller; a command shows by itself what it waits for.
    fn is_of_daemon(&self) -> bool {
        self.host.listen().is_some()
    }

    /// A try went well.
    pub(super) fn connected(&mut self) {
        self.host.ops().tried(self.path, None);
        let again = self.cause.take().is_some();
        if self.is_of_daemon() {
            self.host.events().tell(Event::ControllerConnected { at: self.at.clone() });
        }
        match self.is_of_daemon() {
            true if again => tracing::info!(controller = self.at, "the controller is back"),
            true => tracing::info!(controller = self.at, "joined the controller"),
            false => tracing::debug!(at = self.at, "connected"),
        }
    }

    /// A try failed; the next one comes after `wait`.
    pub(super) fn failed(&mut self, error: &AppError, wait: Duration) {
        let cause = error.to_string();
        self.host.ops().tried(self.path, Some(cause.clone()));
        let next_try_s = wait.as_secs_f64();
        if self.cause.as_deref() == Some(&cause) || !self.is_of_daemon() {
            tracing::debug!(at = self.at, cause, next_try_s, "not connected");
        } else {
            self.tell_lost(&cause);
            let controller = &self.at;
            tracing::warn!(
                controller,
                cause,
                next_try_s,
                "the controller cannot be reached; it is tried again until it answers"
            );
        }
        self.cause = Some(cause);
    }

    fn tell_lost(&self, reason: &str) {
        let (at, reason) = (self.at.clone(), reason.to_owned());
        self.host.events().tell(Event::ControllerLost { at, reason });
    }

    /// The connection has ended; the next try comes after `wait`.
    pub(super) fn lost(&mut self, link: &Link, wait: Duration) {
        let cause = ending(link);
        self.host.ops().tried(self.path, Some(cause.clone()));
        let next_try_s = wait.as_secs_f64();
        if self.is_of_daemon() && !self.host.is_leaving() {
            self.tell_lost(&cause);
        }
        match self.is_of_daemon() && !self.host.is_leaving() {
            true => tracing::warn!(controller = self.at, cause, next_try_s, "the controller is gone"),
            false => tracing::debug!(at = self.at, cause, next_try_s, "connection lost"),
        }
        self.cause = Some(cause);
    }
}

/// Why a link has ended, in words. One whose last message was that there are no more has no other reason.
pub(super) fn ending(link: &Link) -> String {
    link.end().map_or_else(|| "closed by the peer".to_owned(), |end| end.to_string())
}
