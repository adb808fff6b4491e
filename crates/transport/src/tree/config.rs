//! What the two ends can be told.

use headwater_units::{BitRate, Bytes, Duration};
use serde::{Deserialize, Serialize};

use super::RateConfig;
use crate::flow::rtt::RttConfig;

/// What the source of trees can be told.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TreeSourceConfig {
    /// The rate rule of each tree.
    pub rate: RateConfig,
    /// Bytes of a symbol that the rate counts; `None`: those of its datagram.
    pub packet: Option<Bytes>,
    /// A driver that comes late catches up on so much of the schedule: the depth of the token bucket, in time. What leaves at once then
    /// is bounded too, by the interests that wait (a receiver's credit), and by a quarter of what stores keep.
    pub catch_up: Duration,
    /// Blocks of one tree that are kept ready: the newest ones. What is asked for of others is read again.
    pub ready_blocks: usize,
    /// At most so many repeated symbols wait to leave; a receiver whose interest found no room asks again.
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

/// What a receiver of trees can be told.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TreeReceiverConfig {
    /// w: interests that may be out in one tree. 16: fills 1 Gbit/s at a round trip of 200 us (§V-B).
    pub credit: u32,
    /// The timer of an interest: that of TCP (RFC 6298), but never below 2 ms, and never so long that the symbol has left the
    /// stores meanwhile.
    pub rtt: RttConfig,
}

impl Default for TreeReceiverConfig {
    fn default() -> Self {
        let ms = Duration::from_millis;
        let rtt =
            RttConfig { initial_rto: ms(100), min_rto: ms(2), max_rto: ms(100), ..RttConfig::default() };
        TreeReceiverConfig { credit: 16, rtt: RttConfig { granularity: Duration::from_micros(100), ..rtt } }
    }
}

impl TreeReceiverConfig {
    /// On hosts whose nodes are programs: their scheduler may hold one up for longer than a symbol takes, and who asks again too early
    /// has it sent twice. Between the paper's 2 ms and PPUSH's 50 ms, since a store does not remember for long.
    pub fn on_hosts() -> Self {
        let defaults = TreeReceiverConfig::default();
        let ms = Duration::from_millis;
        let rtt = RttConfig { min_rto: ms(20), max_rto: ms(200), granularity: ms(1), ..defaults.rtt };
        TreeReceiverConfig { rtt, ..defaults }
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
