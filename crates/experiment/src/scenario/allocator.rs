//! Rates that a port grants to scheduled transfers (PAM §III-C).

use headwater_switch::{AllocatorVariant, RateAllocatorConfig};
use headwater_units::{Bytes, Duration};
use serde::{Deserialize, Serialize};

use crate::text;

/// The rate allocator of a port; the paper's constants where they are left out (PAM footnote 4, §III-C, §IV-A).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AllocatorSpec {
    /// How it does its work.
    pub variant: Variant,
    /// The round trip that all its times follow from, serialization included; the longest of the fabric without load if absent.
    #[serde(with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<Duration>,
    /// Queue that is tolerated (PAM q0); what the line sends in a round trip, at least two packets, if absent.
    #[serde(with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub queue_target: Option<Bytes>,
    /// Times a round trip, in which what the queue holds above its target is taken off (PAM beta, in round trips); 2.
    pub queue_gain: u16,
    /// Part of the room that may lie idle before alpha rises (PAM eta_0); 0.02.
    pub idle_share: f64,
    /// Whether alpha follows the load (PAM Eq. 3); yes.
    pub adapts: bool,
    /// Interval at which measured loads decay (PAM T_dre); a tenth of a round trip if absent.
    #[serde(with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub tick: Option<Duration>,
    /// Part of a load by which it decays then (PAM gamma of §IV-A); 0.1.
    pub decay: f64,
    /// Interval of updates of what is available (PAM Eq. 2); two round trips if absent.
    #[serde(with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub update_interval: Option<Duration>,
    /// Silence after which a transfer is forgotten (PAM T_expired); ten round trips if absent.
    #[serde(with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Duration>,
    /// Time for which an offer to the first in line is kept (docs/decisions/0039); two round trips if absent, none by
    /// the letter of the paper.
    #[serde(with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub settling: Option<Duration>,
    /// Right shifts that a division adds up, where the variant is `hardware`; 4.
    pub shifts: u8,
    /// Cells of each array of a filter of active transfers, likewise; 2^16.
    pub filter_cells: u32,
}

/// How a rate allocator does its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// Algorithm 2 in floating point.
    #[default]
    Simple,
    /// All active transfers in the exact order of their ranks (PAM §V-A).
    Optimal,
    /// Algorithm 2 with what programmable switches have (PAM §IV-A).
    Hardware,
}

impl Default for AllocatorSpec {
    /// As each field says.
    fn default() -> Self {
        AllocatorSpec {
            variant: Variant::Simple,
            round_trip: None,
            queue_target: None,
            queue_gain: 2,
            idle_share: 0.02,
            adapts: true,
            tick: None,
            decay: 0.1,
            update_interval: None,
            idle_timeout: None,
            settling: None,
            shifts: 4,
            filter_cells: 1 << 16,
        }
    }
}

impl AllocatorSpec {
    /// The allocator of the port with this number, in a network with this round trip.
    pub fn config(&self, round_trip: Duration, port: u32) -> RateAllocatorConfig {
        let variant = match self.variant {
            Variant::Simple => AllocatorVariant::Simple,
            Variant::Optimal => AllocatorVariant::Optimal,
            Variant::Hardware => {
                AllocatorVariant::Hardware { shifts: self.shifts, filter_cells: self.filter_cells }
            }
        };
        let usual = RateAllocatorConfig::new(variant, self.round_trip.unwrap_or(round_trip));
        RateAllocatorConfig {
            queue_target: self.queue_target,
            queue_gain: self.queue_gain,
            idle_share: per_mille(self.idle_share),
            adapts: self.adapts,
            tick: self.tick.unwrap_or(usual.tick),
            decay: per_mille(self.decay),
            update_interval: self.update_interval.unwrap_or(usual.update_interval),
            idle_timeout: self.idle_timeout.unwrap_or(usual.idle_timeout),
            settling: self.settling.unwrap_or(usual.settling),
            port,
            ..usual
        }
    }
}

fn per_mille(share: f64) -> u16 {
    (share * 1000.0).round() as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_word_it_has_the_constants_of_the_paper() {
        let round_trip = Duration::from_micros(80);
        let usual = RateAllocatorConfig::new(AllocatorVariant::Simple, round_trip);
        assert_eq!(AllocatorSpec::default().config(round_trip, 0), usual);
    }

    #[test]
    fn each_constant_arrives_at_the_port() {
        let text = "variant = 'hardware'\nround_trip = '1 ms'\nqueue_target = '9 KB'\nqueue_gain = 1\nidle_share = 0.03\n\
                    adapts = false\ntick = '2 ms'\ndecay = 0.2\nupdate_interval = '3 ms'\nidle_timeout = '4 ms'\nsettling = '0 s'\n\
                    shifts = 5\nfilter_cells = 1024";
        let config = toml::from_str::<AllocatorSpec>(text).unwrap().config(Duration::from_secs(1), 7);
        let expected = RateAllocatorConfig {
            variant: AllocatorVariant::Hardware { shifts: 5, filter_cells: 1024 },
            round_trip: Duration::from_millis(1),
            queue_target: Some(Bytes::new(9_000)),
            queue_gain: 1,
            idle_share: 30,
            adapts: false,
            tick: Duration::from_millis(2),
            decay: 200,
            update_interval: Duration::from_millis(3),
            idle_timeout: Duration::from_millis(4),
            settling: Duration::ZERO,
            max_transfers: config.max_transfers,
            port: 7,
        };
        assert_eq!(config, expected);
    }
}
