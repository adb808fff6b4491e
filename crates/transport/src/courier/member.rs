//! One flow of a pair: what is asked for, what is here, and how much its consumer has room for.

use std::collections::BTreeMap;

use headwater_units::{Bytes, Rank};

use super::{LaneId, Share, Want};

/// A flow that is not complete.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) share: Share,
    /// None until the peer has said where it ends.
    size: Option<u64>,
    /// Bytes below this may be asked for: all that the consumer has ever granted.
    granted: u64,
    /// Everything below was asked for once.
    next: u64,
    /// Blocks that were lost: where each begins and how long it is.
    again: BTreeMap<u64, u64>,
    /// Blocks that are asked for and not here: where each begins, how long it is, by which lane it is to come.
    out: BTreeMap<u64, (u64, LaneId)>,
    /// Bytes that are here.
    here: u64,
}

/// Effect of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Landed {
    /// The lane that has a block less out.
    pub(super) lane: LaneId,
    pub(super) complete: bool,
}

impl Member {
    pub(super) fn new(want: &Want) -> Self {
        Member {
            share: want.share,
            size: want.size.map(Bytes::get),
            granted: want.credit.get(),
            next: 0,
            again: BTreeMap::new(),
            out: BTreeMap::new(),
            here: 0,
        }
    }

    pub(super) fn grant(&mut self, bytes: Bytes) {
        self.granted = self.granted.saturating_add(bytes.get());
    }

    /// The next block to ask for: those that were lost first. None if everything is asked for, or the consumer has no room for it.
    pub(super) fn next_block(&self, block: u64) -> Option<(u64, u64)> {
        if let Some((offset, len)) = self.again.first_key_value() {
            return Some((*offset, *len));
        }
        let end = self.next.saturating_add(block).min(self.size.unwrap_or(u64::MAX));
        (end > self.next && end <= self.granted).then(|| (self.next, end - self.next))
    }

    /// The next block is asked for in this lane.
    pub(super) fn ask(&mut self, (offset, len): (u64, u64), lane: LaneId) -> bool {
        self.out.insert(offset, (len, lane));
        let again = self.again.remove(&offset).is_some();
        self.next = self.next.max(offset + len);
        again
    }

    /// Notes that `bytes` from `offset` have arrived; none if nobody asked for a block there.
    pub(super) fn land(&mut self, offset: u64, bytes: u64, last: bool) -> Option<Landed> {
        let (len, lane) = self.out.remove(&offset)?;
        let bytes = bytes.min(len);
        self.here += bytes;
        if last && self.size.is_none() {
            self.size = Some(offset + bytes);
            self.again.retain(|at, _| *at < offset + bytes);
        }
        let ends = self.size.is_some_and(|size| offset + bytes >= size);
        if bytes < len && !ends {
            self.again.insert(offset + bytes, len - bytes);
        }
        Some(Landed { lane, complete: self.is_complete() })
    }

    fn is_complete(&self) -> bool {
        self.size == Some(self.here) && self.out.is_empty()
    }

    /// Nothing of it was to come: a flow of no bytes.
    pub(super) fn is_empty(&self) -> bool {
        self.size == Some(0)
    }

    /// Requeues the blocks asked for in this lane; returns whether the flow is complete by that.
    pub(super) fn lose(&mut self, lane: LaneId) -> bool {
        let lost: Vec<(u64, u64)> =
            self.out.iter().filter(|(_, (_, by))| *by == lane).map(|(at, (len, _))| (*at, *len)).collect();
        for (offset, len) in lost {
            self.out.remove(&offset);
            // Behind the end of a flow there is nothing to ask for.
            if self.size.is_none_or(|size| offset < size) {
                self.again.insert(offset, len);
            }
        }
        self.is_complete()
    }

    /// The lanes by which blocks are to come, one for each.
    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.out.values().map(|(_, lane)| *lane)
    }

    /// Bytes that are not here; `unknown` where the size is not known.
    pub(super) fn left(&self, unknown: u64) -> u64 {
        self.size.map_or(unknown, |size| size - self.here.min(size))
    }

    /// How long the block is that is under way at this offset.
    pub(super) fn awaited(&self, offset: u64) -> Option<u64> {
        self.out.get(&offset).map(|(len, _)| *len)
    }

    /// Whether blocks are asked for and not here.
    pub(super) fn is_awaited(&self) -> bool {
        !self.out.is_empty()
    }

    /// Which ring it takes its turns in, and its weight there; none if it waits for a rate.
    pub(super) fn place(&self) -> Option<(Rank, f64)> {
        match self.share {
            Share::Even => Some((Rank::FIRST, 1.0)),
            Share::Rank(rank) => Some((rank, 1.0)),
            Share::Rate(rate) if rate.get() > 0.0 => Some((Rank::FIRST, rate.get())),
            Share::Rate(_) => None,
        }
    }
}
