//! One flow that a program fetches.

use std::ops::Deref;

use headwater_transport::courier::{LaneId, PairId};
use headwater_units::{Bytes, FlowId};

use crate::delivery::Delivery;
use crate::fields::Name;
use crate::peer_frames::FromFetcher;
use crate::registry::Proof;

/// A connection of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionId(pub(crate) u64);

/// Wanted output, and its host.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) application: Name,
    pub(crate) proof: Proof,
    pub(crate) coflow: u64,
    pub(crate) host: Name,
    pub(crate) output: Name,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// A coflow, on all hosts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CoflowId {
    pub(crate) application: Name,
    pub(crate) number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its source is asked how long it is.
    Opening,
    /// Courier knows it.
    Running,
}

#[derive(Debug)]
pub(super) struct Flow<B> {
    pub(super) session: SessionId,
    /// As its program calls it.
    pub(super) name: u64,
    pub(super) user: u32,
    pub(super) pair: PairId,
    wanted: Wanted,
    coflow: CoflowId,
    pub(super) state: State,
    /// Zero until it runs.
    pub(super) length: u64,
    pub(super) stamp: u64,
    pub(super) delivery: Delivery<B>,
    /// Bytes from the beginning that its program has room for, that Courier may ask for, that were written to the program.
    pub(super) credit: u64,
    pub(super) granted: u64,
    pub(super) drained: u64,
    /// It is in the line for memory.
    pub(super) waits: bool,
    /// The connections in which it was opened.
    opened_in: Vec<(LaneId, u64)>,
}

impl<B: Deref<Target = [u8]>> Flow<B> {
    pub(super) fn new(
        (session, name, user): (SessionId, u64, u32),
        pair: PairId,
        wanted: Wanted,
        credit: Bytes,
    ) -> Self {
        let coflow = CoflowId { application: wanted.application.clone(), number: wanted.coflow };
        Flow {
            session,
            name,
            user,
            pair,
            wanted,
            coflow,
            state: State::Opening,
            length: 0,
            stamp: 0,
            delivery: Delivery::default(),
            credit: credit.get(),
            granted: 0,
            drained: 0,
            waits: false,
            opened_in: Vec::new(),
        }
    }

    pub(super) fn coflow(&self) -> &CoflowId {
        &self.coflow
    }

    pub(super) fn host(&self) -> &Name {
        &self.wanted.host
    }

    /// Whether this connection of a lane has not seen it; from now on it has.
    pub(super) fn is_new_in(&mut self, lane: LaneId, epoch: u64) -> bool {
        match self.opened_in.iter_mut().find(|(it, _)| *it == lane) {
            Some((_, seen)) => std::mem::replace(seen, epoch) != epoch,
            None => {
                self.opened_in.push((lane, epoch));
                true
            }
        }
    }

    pub(super) fn was_opened_in(&self, lane: LaneId) -> bool {
        self.opened_in.iter().any(|(it, _)| *it == lane)
    }

    pub(super) fn opened_in(&self) -> impl Iterator<Item = (LaneId, u64)> + '_ {
        self.opened_in.iter().copied()
    }

    pub(super) fn open(&self, flow: FlowId) -> FromFetcher {
        FromFetcher::Open {
            flow: flow.0,
            application: self.wanted.application.clone(),
            proof: *self.wanted.proof.as_bytes(),
            output: self.wanted.output.clone(),
            first: self.wanted.first,
            count: self.wanted.count,
        }
    }

    /// All that its program has room for is here, and there is more.
    pub(super) fn is_stalled(&self) -> bool {
        self.state == State::Running && self.granted < self.length && self.delivery.passed() == self.granted
    }
}
