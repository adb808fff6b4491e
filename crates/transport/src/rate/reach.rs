//! Where the receiver of a flow is, and whether that was proved (docs/decisions/0030).

use headwater_machine::{Output, Packet};
use headwater_units::{Duration, FlowId, PathId, Time};
use headwater_wire::{Body, Class};

use headwater_flow::Shared;
use headwater_flow::paths::{PathNews, Paths, Unanswered};

/// The path to one receiver, or to a group.
#[derive(Debug)]
pub(super) struct Reach {
    path: Option<PathId>,
    /// Which addresses have answered, where that is asked.
    paths: Option<Paths>,
    challenged_at: Option<Time>,
    /// It has been challenged more than once: which of these an answer answers is not known.
    again: bool,
    rechallenge: Duration,
}

impl Reach {
    pub(super) fn new(validates: bool, rechallenge: Duration) -> Self {
        let paths = validates.then(Paths::default);
        Reach { path: None, paths, challenged_at: None, again: false, rechallenge }
    }

    pub(super) fn path(&self) -> Option<PathId> {
        self.path
    }

    /// A group's address answers nobody.
    pub(super) fn fix(&mut self, path: PathId) {
        (self.path, self.paths) = (Some(path), None);
    }

    /// The receiver is, or says that it is, at this path, perhaps with the nonce of a challenge. Returns the round trip if this is the
    /// answer to the first one.
    pub(super) fn hear(
        &mut self,
        now: Time,
        path: PathId,
        echo: Option<u64>,
        flow: FlowId,
        shared: &mut Shared,
    ) -> Option<Duration> {
        let Some(paths) = &mut self.paths else {
            self.path = Some(path);
            return None;
        };
        let known = paths.current() == Some(path);
        let awaited = paths.unanswered().is_some_and(|(asked, nonce)| asked == path && echo == Some(nonce));
        let news = paths.on_opening(path, echo, 0, &mut shared.rng);
        self.path = paths.current();
        let PathNews::Challenge(nonce) = news else {
            let asked_at = self.challenged_at.filter(|_| awaited && !self.again);
            return asked_at.map(|at| now.since(at));
        };
        let due = self.challenged_at.is_none_or(|at| now >= at + self.rechallenge);
        if !known || due {
            self.again = self.challenged_at.is_some();
            self.challenged_at = Some(now);
            let packet = Packet::of_flow(path, flow, Class::Control, Body::Challenge { nonce });
            shared.out.push_back(Output::Transmit(packet));
        }
        None
    }

    /// Whether a packet may go there.
    pub(super) fn may_send(&self, unanswered: Unanswered) -> bool {
        self.path.is_some() && self.paths.as_ref().is_none_or(|paths| paths.allowance(unanswered) > 0)
    }

    /// A packet goes there.
    pub(super) fn on_sent(&mut self) {
        if let Some(paths) = &mut self.paths {
            paths.on_sent();
        }
    }
}
