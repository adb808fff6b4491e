//! A program that fetches, and what it must never see.

use std::collections::BTreeMap;

use headwater_units::NodeId;

use super::peer::{Output, Peer};
use crate::client_frames::FromAgent;
use crate::refusal::Refusal;

/// A flow, as its program knows it.
#[derive(Debug)]
pub(super) struct Fetched {
    /// None: the agent does not know the host.
    pub(super) peer: Option<NodeId>,
    pub(super) held: Output,
    pub(super) credit: u64,
    /// Bytes that have come.
    got: u64,
    is_open: bool,
    /// Or was cancelled.
    pub(super) has_ended: bool,
}

impl Fetched {
    pub(super) fn new(peer: Option<NodeId>, held: Output, credit: u64) -> Self {
        Fetched { peer, held, credit, got: 0, is_open: false, has_ended: false }
    }
}

/// A program.
pub(super) struct Program {
    pub(super) user: u32,
    pub(super) is_alive: bool,
    /// The hub has heard that it is gone.
    pub(super) is_forgotten: bool,
    pub(super) is_stalled: bool,
    pub(super) flows: BTreeMap<u64, Fetched>,
    /// Names that were in use when they were given again.
    pub(super) refused_names: Vec<u64>,
}

impl Program {
    pub(super) fn new(user: u32) -> Self {
        Program {
            user,
            is_alive: true,
            is_forgotten: false,
            is_stalled: false,
            flows: BTreeMap::new(),
            refused_names: Vec::new(),
        }
    }

    /// Flows that it still waits for.
    pub(super) fn open(&self) -> Vec<u64> {
        let open = self.flows.iter().filter(|(_, it)| self.is_alive && !it.has_ended);
        open.map(|it| *it.0).collect()
    }

    /// How many of its flows have not ended.
    pub(super) fn count(&self) -> usize {
        self.flows.values().filter(|it| !it.has_ended).count()
    }

    /// Bytes have come.
    pub(super) fn take(&mut self, name: u64, offset: u64, block: &[u8], peers: &BTreeMap<NodeId, Peer>) {
        let it = self.flows.get_mut(&name).unwrap();
        assert!(it.is_open && !it.has_ended, "{it:?}");
        assert_eq!(offset, it.got, "in order");
        it.got += block.len() as u64;
        assert!(it.got <= it.credit, "beyond its credit: {it:?}");
        if it.peer.is_some_and(|peer| !peers[&peer].lies) {
            let is_right = (offset..).zip(block).all(|(at, byte)| it.held.byte(at) == *byte);
            assert!(is_right, "wrong bytes at {offset}: {it:?}");
        }
    }

    /// The agent has said something.
    pub(super) fn hear(
        &mut self,
        frame: FromAgent,
        peers: &BTreeMap<NodeId, Peer>,
        was_away: impl Fn(NodeId) -> bool,
        is_full: bool,
    ) {
        assert!(!self.is_forgotten, "nobody is told who is gone: {frame:?}");
        match frame {
            FromAgent::Broken { flow, refusal: Refusal::Exists, .. } => {
                let at =
                    self.refused_names.iter().position(|name| *name == flow).expect("the name is in use");
                self.refused_names.remove(at);
            }
            FromAgent::Opened { flow, length, .. } => {
                let it = self.flows.get_mut(&flow).unwrap();
                assert!(!it.is_open && !it.has_ended, "{it:?}");
                it.is_open = true;
                match peers[&it.peer.unwrap()].lies {
                    true => it.held.size = length.get(),
                    false => assert_eq!(length.get(), it.held.size),
                }
            }
            FromAgent::End { flow } => {
                let it = self.flows.get_mut(&flow).unwrap();
                // A dead program has taken nothing more.
                assert!(it.is_open && !it.has_ended, "{it:?}");
                assert!(it.got == it.held.size || !self.is_alive, "{it:?}");
                it.has_ended = true;
            }
            FromAgent::Broken { flow, refusal, .. } => {
                let it = self.flows.get_mut(&flow).unwrap();
                assert!(!it.has_ended, "{it:?}");
                it.has_ended = true;
                let may = match (refusal, it.peer) {
                    (Refusal::UnknownHost, peer) => peer.is_none(),
                    (Refusal::Quota, _) => is_full,
                    (_, Some(peer)) if peers[&peer].lies => true,
                    (Refusal::Unreachable, Some(peer)) => was_away(peer),
                    (Refusal::Unknown, _) => it.held.cut == Some(0) && !it.is_open,
                    (Refusal::Truncated, _) => it.held.cut.is_some_and(|cut| cut < it.held.size),
                    _ => false,
                };
                assert!(may, "{refusal:?} of {it:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}
