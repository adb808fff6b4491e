//! The lanes' connections: started when first needed, and counted from one break to the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_transport::courier::{LaneId, PairId};
use headwater_units::{Duration, Time};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::link::{self, Dialling, News, ToPeer};
use crate::peer_frames::FromFetcher;

/// A connection without flows is closed after this time: its next use pays a handshake.
const IDLE: Duration = Duration::from_secs(60);

struct Link {
    frames: UnboundedSender<ToPeer>,
    epoch: u64,
    is_up: bool,
    /// Since when it has not been up, once that was noticed.
    down_since: Option<Time>,
    idle_since: Option<Time>,
    bytes: u64,
}

/// All of them.
pub(super) struct Links {
    dialling: Arc<Dialling>,
    news: UnboundedSender<News>,
    links: BTreeMap<LaneId, Link>,
    /// Links that were started.
    started: u64,
    resets: u64,
}

impl Links {
    pub(super) fn new(dialling: Arc<Dialling>) -> (Links, UnboundedReceiver<News>) {
        let (news, heard) = unbounded_channel();
        (Links { dialling, news, links: BTreeMap::new(), started: 0, resets: 0 }, heard)
    }

    pub(super) fn dialling(&self) -> &Dialling {
        &self.dialling
    }

    /// Which connection of a lane it is, if the lane was ever used: no other has the same number.
    pub(super) fn current(&self, lane: LaneId) -> Option<u64> {
        self.links.get(&lane).map(|it| it.epoch)
    }

    /// The same of a lane that is used from now on.
    pub(super) fn epoch(&mut self, lane: LaneId) -> u64 {
        self.link(lane).epoch
    }

    fn link(&mut self, lane: LaneId) -> &mut Link {
        let Links { dialling, news, links, started, .. } = self;
        links.entry(lane).or_insert_with(|| {
            // Each counts its connections from a number far beyond those of the one before.
            *started += 1;
            let epoch = *started << 32;
            Link {
                frames: link::start(lane, epoch, dialling.clone(), news.clone()),
                epoch,
                is_up: false,
                down_since: None,
                idle_since: None,
                bytes: 0,
            }
        })
    }

    /// The first lane of a pair that there is, or would be.
    pub(super) fn any_of(&self, pair: PairId) -> LaneId {
        let lane = |class, number| LaneId { pair, class, number };
        let mut lanes = self.links.range(lane(0, 0)..=lane(u8::MAX, u32::MAX));
        lanes.next().map_or(lane(0, 0), |(id, _)| *id)
    }

    pub(super) fn send(&mut self, lane: LaneId, frame: FromFetcher) {
        let link = self.link(lane);
        // A link ends only when this end is dropped.
        let _ = link.frames.send(ToPeer { epoch: link.epoch, frame });
    }

    pub(super) fn up(&mut self, lane: LaneId) {
        if let Some(link) = self.links.get_mut(&lane) {
            (link.is_up, link.down_since) = (true, None);
        }
    }

    /// A connection has ended; for how long the lane has been without one.
    pub(super) fn down(&mut self, now: Time, lane: LaneId, reason: &str) -> Duration {
        let Some(link) = self.links.get_mut(&lane) else { return Duration::ZERO };
        self.resets += u64::from(link.is_up);
        tracing::debug!(peer = %lane.pair.peer, reason, "a lane is down");
        link.epoch += 1;
        link.is_up = false;
        let since = *link.down_since.get_or_insert(now);
        now.since(since)
    }

    pub(super) fn count(&mut self, lane: LaneId, bytes: u64) {
        if let Some(link) = self.links.get_mut(&lane) {
            link.bytes += bytes;
        }
    }

    /// Closes those that have not been needed for long.
    pub(super) fn close_idle(&mut self, now: Time, is_needed: impl Fn(PairId) -> bool) {
        self.links.retain(|id, link| {
            if is_needed(id.pair) {
                link.idle_since = None;
                return true;
            }
            now < *link.idle_since.get_or_insert(now) + IDLE
        });
    }

    pub(super) fn each(&self) -> impl Iterator<Item = (LaneId, bool, u64)> + '_ {
        self.links.iter().map(|(id, link)| (*id, link.is_up, link.bytes))
    }

    pub(super) fn resets(&self) -> u64 {
        self.resets
    }
}
