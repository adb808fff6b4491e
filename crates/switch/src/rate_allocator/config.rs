//! How a rate allocator is set up: plain data, checked once.

use headwater_units::{BitRate, Bytes, Duration};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How the data plane does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllocatorVariant {
    /// Algorithm 2 in floating point, with exact tables of active transfers.
    Simple,
    /// All active transfers in the exact order of their ranks (PAM §V-A).
    Optimal,
    /// Algorithm 2 with what programmable switches have (PAM §IV-A).
    Hardware {
        /// Right shifts that a division adds up, 1 to 8; 4 in the paper's prototype (Fig. 7).
        shifts: u8,
        /// Cells of each of the three arrays of a filter of active transfers: a power of two, 64 to 2^24.
        filter_cells: u32,
    },
}

impl AllocatorVariant {
    /// Four shifts, as in the paper's prototype; 2^16 cells an array, as many as a port of 40 has of the paper's two megabytes.
    pub const HARDWARE: AllocatorVariant = AllocatorVariant::Hardware { shifts: 4, filter_cells: 1 << 16 };
}

/// A rate allocator. Shares are per mille, so that configurations can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateAllocatorConfig {
    /// How the data plane does its work.
    pub variant: AllocatorVariant,
    /// Round-trip time of the network, serialization included (PAM RTT).
    pub round_trip: Duration,
    /// Queue that is tolerated (PAM q0); none: what the line sends in a round trip, at least 3,000 bytes, which is two packets.
    pub queue_target: Option<Bytes>,
    /// Times a round trip, in which what the queue holds above its target is taken off (PAM β RTT); 2 by footnote 4.
    pub queue_gain: u16,
    /// Per mille of the room that may lie idle before α rises (PAM η0); 20 by footnote 4.
    pub idle_share: u16,
    /// Whether α follows the load (PAM Eq. 3). Else it is 1, which leaves links idle whose transfers are held up elsewhere (PAM Fig. 3a).
    pub adapts: bool,
    /// Interval of ticks (PAM T_dre), at which measured loads decay; all other intervals are rounded down to whole ticks.
    pub tick: Duration,
    /// Per mille of a load by which it decays with each tick (PAM γ). A load follows its rate within `tick / decay`.
    pub decay: u16,
    /// Interval of updates of what is available; 2 RTT by §III-C.
    pub update_interval: Duration,
    /// Idle time after which a critical transfer is removed, and interval at which the tables of active transfers are swapped
    /// (PAM T_expired).
    pub idle_timeout: Duration,
    /// Time for which the offer of a probe that would go first is kept from other probes that rank behind it; zero takes Algorithm 2 by the letter.
    /// See docs/decisions/0039.
    pub settling: Duration,
    /// Maximum number of transfers in each table, where tables are exact. Further transfers are not counted as active.
    pub max_transfers: u32,
    /// Number of the port in its device, by which filters of its ports differ.
    pub port: u32,
}

impl RateAllocatorConfig {
    /// The paper's constants, for a network with this round-trip time.
    ///
    /// γ is 0.1 as in the experiments' catalogue, and a tick is a tenth of a round trip: then loads follow their rates within one round
    /// trip, without which α lags behind what it does. The idle timeout is 10 RTT; 4,096 transfers a port are several times as many
    /// as the paper expects.
    pub fn new(variant: AllocatorVariant, round_trip: Duration) -> Self {
        RateAllocatorConfig {
            variant,
            round_trip,
            queue_target: None,
            queue_gain: 2,
            idle_share: 20,
            adapts: true,
            tick: round_trip / 10,
            decay: 100,
            update_interval: round_trip * 2,
            idle_timeout: round_trip * 10,
            settling: round_trip * 2,
            max_transfers: 4096,
            port: 0,
        }
    }

    /// # Errors
    /// [`RateAllocatorError`]
    pub(crate) fn check(&self) -> Result<(), RateAllocatorError> {
        let wrong = |what| Err(RateAllocatorError { what });
        if self.tick == Duration::ZERO {
            return wrong("a tick takes no time: the round trip is below 10 ns");
        }
        if !(1..=1000).contains(&self.decay) {
            return wrong("a decay is 1 to 1000 per mille");
        }
        // Each frame runs the ticks of two idle timeouts at most.
        if self.ticks(self.idle_timeout) > 1 << 16 || self.ticks(self.update_interval) > 1 << 16 {
            return wrong("an interval is longer than 65,536 ticks");
        }
        if let AllocatorVariant::Hardware { shifts, filter_cells } = self.variant {
            if !(1..=8).contains(&shifts) {
                return wrong("a division adds up 1 to 8 shifts");
            }
            if !filter_cells.is_power_of_two() || !(64..=1 << 24).contains(&filter_cells) {
                return wrong("the cells of a filter are a power of two, 64 to 2^24");
            }
        }
        Ok(())
    }

    /// Whole ticks of an interval, at least one.
    pub(super) fn ticks(&self, interval: Duration) -> u64 {
        (interval.as_nanos() / self.tick.as_nanos().max(1)).max(1)
    }

    /// The queue that is tolerated before a line of this rate (PAM q0).
    pub(super) fn queue_target(&self, line: BitRate) -> Bytes {
        self.queue_target.unwrap_or_else(|| (line * self.round_trip).max(Bytes::new(3_000)))
    }
}

/// A rate allocator cannot be set up so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("rate allocator: {what}")]
pub struct RateAllocatorError {
    /// Why not.
    pub what: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_never_end_or_divides_by_nothing_is_refused() {
        let good = RateAllocatorConfig::new(AllocatorVariant::HARDWARE, Duration::from_micros(40));
        assert_eq!(good.check(), Ok(()));
        assert_eq!(good.ticks(good.update_interval), 20);
        assert_eq!(good.queue_target(BitRate::new(2_000_000_000)), Bytes::new(10_000));
        assert_eq!(good.queue_target(BitRate::new(500_000)), Bytes::new(3_000));
        let no_time = RateAllocatorConfig::new(AllocatorVariant::Simple, Duration::from_nanos(9));
        let hardware = |shifts, filter_cells| RateAllocatorConfig {
            variant: AllocatorVariant::Hardware { shifts, filter_cells },
            ..good
        };
        for bad in [
            no_time,
            RateAllocatorConfig { decay: 0, ..good },
            RateAllocatorConfig { decay: 1001, ..good },
            RateAllocatorConfig { idle_timeout: Duration::MAX, ..good },
            RateAllocatorConfig { update_interval: Duration::MAX, ..good },
            hardware(0, 64),
            hardware(9, 64),
            hardware(4, 100),
            hardware(4, 32),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
