//! The lanes' connections: dialled when first needed, and counted from one break to the next.

use std::collections::BTreeMap;

use headwater_transport::courier::{LaneId, PairId};
use headwater_units::{Duration, Time};

/// A connection without flows is closed after this time: its next use pays a handshake.
const IDLE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Lane {
    epoch: u64,
    is_up: bool,
    /// Since when it has not been up, once that was noticed.
    down_since: Option<Time>,
    idle_since: Option<Time>,
    bytes: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<LaneId, Lane>,
    /// Lanes that were dialled.
    dialled: u64,
    resets: u64,
}

impl Lanes {
    /// Which connection of a lane it is, if the lane is in use: no other has the same number.
    pub(super) fn current(&self, lane: LaneId) -> Option<u64> {
        self.lanes.get(&lane).map(|it| it.epoch)
    }

    /// A lane is used from now on; its epoch if it is to be dialled.
    pub(super) fn dial(&mut self, lane: LaneId) -> Option<u64> {
        if self.lanes.contains_key(&lane) {
            return None;
        }
        // Each counts its connections from a number far beyond those of the one before.
        self.dialled += 1;
        let epoch = self.dialled << 32;
        let it = Lane { epoch, is_up: false, down_since: None, idle_since: None, bytes: 0 };
        self.lanes.insert(lane, it);
        Some(epoch)
    }

    /// The first lane of a pair that there is, or would be.
    pub(super) fn any_of(&self, pair: PairId) -> LaneId {
        let lane = |class, number| LaneId { pair, class, number };
        let mut lanes = self.lanes.range(lane(0, 0)..=lane(u8::MAX, u32::MAX));
        lanes.next().map_or(lane(0, 0), |(id, _)| *id)
    }

    pub(super) fn up(&mut self, lane: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            (lane.is_up, lane.down_since) = (true, None);
        }
    }

    /// A connection has ended; for how long the lane has been without one.
    pub(super) fn down(&mut self, now: Time, lane: LaneId) -> Duration {
        let Some(lane) = self.lanes.get_mut(&lane) else { return Duration::ZERO };
        self.resets += u64::from(lane.is_up);
        lane.epoch += 1;
        lane.is_up = false;
        let since = *lane.down_since.get_or_insert(now);
        now.since(since)
    }

    pub(super) fn count(&mut self, lane: LaneId, bytes: u64) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.bytes += bytes;
        }
    }

    /// Forgets those that have not been needed for long, and gives them.
    pub(super) fn take_idle(&mut self, now: Time, is_needed: impl Fn(PairId) -> bool) -> Vec<LaneId> {
        let mut idle = Vec::new();
        self.lanes.retain(|id, lane| {
            if is_needed(id.pair) {
                lane.idle_since = None;
                return true;
            }
            let keeps = now < *lane.idle_since.get_or_insert(now) + IDLE;
            if !keeps {
                idle.push(*id);
            }
            keeps
        });
        idle
    }

    pub(super) fn each(&self) -> impl Iterator<Item = (LaneId, bool, u64)> + '_ {
        self.lanes.iter().map(|(id, lane)| (*id, lane.is_up, lane.bytes))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    pub(super) fn resets(&self) -> u64 {
        self.resets
    }
}
