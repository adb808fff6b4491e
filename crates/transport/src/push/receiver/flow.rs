//! One flow as the receiver sees it.

use std::collections::VecDeque;

use core::net::SocketAddr;
use headwater_units::{BlockIndex, Bytes, Duration, FlowId, NodeId, PathId, Time};
use headwater_wire::FlowGrant;

use super::acks::Acks;
use super::rate::Rate;
use crate::task::close_handshake::CloseHandshake;

/// A flow that never answered is asked again after this long, doubled each time.
const FIRST_RETRY: Duration = Duration::from_millis(30);
const LAST_RETRY: Duration = Duration::from_secs(1);
/// A flow without a list that has brought nothing for so long is asked again.
const LONG_SILENCE: Duration = Duration::from_secs(1);
/// A revocation without work left is repeated this often without an echo; the source then finds out by being useless.
const REPEATS_WITHOUT_WORK: u32 = 3;

/// State of one flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) id: FlowId,
    pub(super) node: NodeId,
    pub(super) at: Vec<SocketAddr>,
    pub(super) index: u8,
    pub(super) of: u8,
    pub(super) path: Option<PathId>,
    pub(super) acks: Acks,
    pub(super) rate: Rate,
    pub(super) nonce: Option<u64>,
    /// Blocks that this flow has shares of, in the order in which it was asked; may name finished ones.
    pub(super) order: VecDeque<BlockIndex>,
    /// Symbols asked for that have not come.
    pub(super) outstanding: u64,
    /// Version of the newest assignment.
    pub(super) version: u32,
    /// The assignment changed and was not sent yet.
    pub(super) changed: bool,
    /// When the newest assignment was first sent, until its echo comes.
    pub(super) sent_at: Option<Time>,
    pub(super) retry_at: Option<Time>,
    retries: u32,
    /// From sending an assignment to the first symbol that follows it; includes every queue on the path.
    pub(super) turnaround: Option<Duration>,
    pub(super) last_heard: Option<Time>,
    /// Since when something has been expected.
    pub(super) expecting_since: Option<Time>,
    pub(super) silent: bool,
    /// When a silent flow is tried again, and how often it was.
    pub(super) revive_at: Option<Time>,
    pub(super) revivals: u32,
    /// Its list is longer than one message.
    pub(super) truncated: bool,
    /// Below this many outstanding symbols it should be given more.
    pub(super) low_water: u64,
    /// Since when it has had nothing to do while others had.
    pub(super) idle_since: Option<Time>,
    pub(super) ending: Option<CloseHandshake>,
    pub(super) distrusted: bool,
    pub(super) starved: u64,
    pub(super) useful: u64,
    pub(super) arrivals: u64,
    /// Arrivals lately: halved together with those of all other flows, see [`super::arriving::RECENT`].
    pub(super) recent: u32,
    pub(super) bytes: Bytes,
    /// Blocks touched since the last ACK.
    pub(super) touched: Vec<BlockIndex>,
}

impl Flow {
    pub(super) fn new(grant: FlowGrant) -> Self {
        Flow {
            id: grant.flow,
            node: grant.node,
            at: grant.at,
            index: grant.index,
            of: grant.of,
            path: None,
            acks: Acks::default(),
            rate: Rate::default(),
            nonce: None,
            order: VecDeque::new(),
            outstanding: 0,
            version: 0,
            changed: true,
            sent_at: None,
            retry_at: None,
            retries: 0,
            turnaround: None,
            last_heard: None,
            expecting_since: None,
            silent: false,
            revive_at: None,
            revivals: 0,
            truncated: false,
            low_water: 0,
            idle_since: None,
            ending: None,
            distrusted: false,
            starved: 0,
            useful: 0,
            arrivals: 0,
            recent: 0,
            bytes: Bytes::ZERO,
            touched: Vec::new(),
        }
    }

    /// Whether work may be given to it.
    pub(super) fn is_usable(&self) -> bool {
        self.path.is_some() && self.ending.is_none() && !self.distrusted && !self.silent
    }

    /// Whether it is neither over nor ending.
    pub(super) fn is_live(&self) -> bool {
        self.ending.is_none() && !self.distrusted
    }

    /// When it is asked again if nothing comes of it although something should, under the rules by which it is asked once
    /// for all: it may never have heard, or taken us for gone.
    pub(super) fn remind_at(&self) -> Option<Time> {
        self.expecting_since.filter(|_| self.retry_at.is_none()).map(|since| since + LONG_SILENCE)
    }

    /// An assignment is about to leave; something is to come of it, or not.
    pub(super) fn on_assign(&mut self, now: Time, expected: bool) {
        if self.changed {
            self.version += 1;
            self.changed = false;
            self.sent_at = Some(now);
            self.retries = 0;
        } else {
            self.retries += 1;
        }
        let echo_expected = expected || self.retries < REPEATS_WITHOUT_WORK;
        let floor = self.turnaround.map_or(FIRST_RETRY, |t| FIRST_RETRY.max(t * 2));
        self.retry_at =
            echo_expected.then(|| now + (floor * (1 << self.retries.min(6))).min(LAST_RETRY.max(floor)));
    }

    /// A symbol says which assignment its source works by.
    pub(super) fn on_echo(&mut self, now: Time, echo: u8) {
        if self.changed || echo != self.version as u8 {
            return;
        }
        self.retry_at = None;
        if let Some(sent) = self.sent_at.take()
            && self.retries == 0
        {
            let sample = now.since(sent);
            let smoothed = self.turnaround.map_or(sample, |old| (old * 7 + sample) / 8);
            self.turnaround = Some(smoothed);
            self.rate.set_turnaround(smoothed);
        }
    }
}
