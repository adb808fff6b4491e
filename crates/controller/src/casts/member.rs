//! One receiver of a cast.

use headwater_units::{Bytes, Duration, PathId, TaskId, Time};
use headwater_wire::{FlowSecret, MemberStanding, Request};

use crate::ControllerConfig;
use crate::retry::Retry;

/// The route by which a receiver is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// By flows of its own, or not yet.
    Unicast,
    /// As one of a group or an overlay.
    Shared,
    ByTrees,
}

/// One receiver of a cast.
pub(crate) struct Member {
    /// The number of its invitation, by which it asks.
    pub(super) request: u64,
    /// On which it answers probes.
    pub(super) own: FlowSecret,
    /// The path and the life of the node in which it was told last.
    pub(super) told: Option<(PathId, u64)>,
    pub(super) invite: Retry,
    /// Its request, until that is answered; and the path that it came by.
    pub(super) asks: Option<(PathId, Request)>,
    pub(super) served: Served,
    pub(super) task: Option<TaskId>,
    pub(crate) standing: MemberStanding,
    pub(super) away_since: Option<Time>,
    pub(super) bytes: Bytes,
    /// Those of a folder's files, once they are there.
    pub(super) files: Bytes,
    pub(super) by_group: Bytes,
    pub(super) by_unicast: Bytes,
    pub(super) relayed: Bytes,
    /// When it ended, from the cast's beginning.
    pub(super) ended: Option<Duration>,
}

impl Member {
    pub(super) fn new(now: Time, request: u64, own: FlowSecret, config: &ControllerConfig) -> Self {
        Member {
            request,
            own,
            told: None,
            invite: Retry::at(now, config.retry_first),
            asks: None,
            served: Served::Unicast,
            task: None,
            standing: MemberStanding::Invited,
            away_since: None,
            bytes: Bytes::ZERO,
            files: Bytes::ZERO,
            by_group: Bytes::ZERO,
            by_unicast: Bytes::ZERO,
            relayed: Bytes::ZERO,
            ended: None,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Whether it was invited, went away, and is not waited for, but may come back.
    pub(super) fn may_come_back(&self) -> bool {
        self.told.is_some() && self.standing == MemberStanding::Away
    }
}
