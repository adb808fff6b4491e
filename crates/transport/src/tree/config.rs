//! Configuration of the source of trees.

use headwater_units::{BitRate, Bytes, Duration};
use serde::{Deserialize, Serialize};

use super::RateConfig;

/// Configuration of the source of trees.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TreeSourceConfig {
    /// The rate rule of each tree.
    pub rate: RateConfig,
    /// Bytes of a symbol that the rate counts; `None`: those of its datagram.
    pub packet: Option<Bytes>,
    /// Part of the schedule that a late driver catches up on: the depth of the token bucket, in time. The symbols that
    /// leave at once then are bounded too, by the interests that wait (a receiver's credit), and by a quarter of what
    /// stores keep.
    pub catch_up: Duration,
    /// Blocks of one tree that are kept ready: the newest ones. Other blocks that are asked for are read again.
    pub ready_blocks: usize,
    /// Maximum number of repeated symbols that wait to be sent; a receiver whose interest found no room asks again.
    pub repeats: usize,
}

impl Default for TreeSourceConfig {
    /// Datacast's testbed (§VII-B): delta 125 Mbit/s, T 1 ms.
    fn default() -> Self {
        TreeSourceConfig {
            rate: RateConfig::default(),
            packet: None,
            catch_up: Duration::ZERO,
            ready_blocks: 8,
            repeats: 1024,
        }
    }
}

impl Default for RateConfig {
    fn default() -> Self {
        let mbps = |n: u64| BitRate::new(n * 1_000_000);
        RateConfig {
            initial: mbps(500),
            step: mbps(125),
            every: Duration::from_millis(1),
            least: mbps(1),
            most: mbps(100_000),
        }
    }
}
