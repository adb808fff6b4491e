//! The constants of PAM's sources and receivers.

use headwater_policy::pam::{Late, Order, Ranking};
use headwater_transport::rate::{RateReceiverConfig, Repair};
use headwater_units::{Bytes, Duration, Rank};
use serde::{Deserialize, Serialize};

use crate::text;

/// The constants of PAM's sources and receivers; those of its simulations (PAM §III, §V) if left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PamSpec {
    /// Order of transfers (PAM Table I); `srsf`, or `edf`, `fifo`, `fair`, or the rank of all as a number.
    pub policy: RankPolicy,
    /// A transfer whose deadline cannot be met ends (PAM §III-A), under any policy; else it goes on, last under `edf`.
    pub drops_late: bool,
    /// Offers that differ by this part are fed back (PAM gamma); 0.05.
    pub gamma: f64,
    /// Probability with which a packet is answered all the same, over the receivers (PAM tau_b); 0.01.
    pub tau: f64,
    /// A paused source asks once a round trip for each of these that are left to send (PAM I_i); 100 MB.
    #[serde(with = "text::one")]
    pub probe_per: Bytes,
    /// And never more often than this; 20 us.
    #[serde(with = "text::one")]
    pub probe_interval: Duration,
    /// It asks again after this while it knows no round trip; 10 ms.
    #[serde(with = "text::one")]
    pub first_probe: Duration,
    /// A rate at which a packet would have to wait for longer counts as none: the source asks instead, and hears of a better one sooner;
    /// 100 ms.
    #[serde(with = "text::one")]
    pub longest_gap: Duration,
    /// A transfer that will be complete within a round trip gives its share back early (PAM footnote 3); no, as in §V.
    pub early_start: bool,
    /// How lost packets are made good; again, as in the paper.
    pub repair: RepairBy,
}

/// How lost packets are made good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RepairBy {
    /// They are sent again.
    #[default]
    Retransmission,
    /// By coded symbols, which serve all receivers.
    Coding,
}

/// Order of transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct RankPolicy(pub Order);

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(untagged, expecting = "a policy is srsf, edf, fifo, fair or a number")]
enum Written {
    Named(Named),
    Rank(u32),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Named {
    Srsf,
    Edf,
    Fifo,
    Fair,
}

impl From<Written> for RankPolicy {
    fn from(written: Written) -> Self {
        RankPolicy(match written {
            Written::Named(Named::Srsf) => Order::SmallestRemaining,
            Written::Named(Named::Edf) => Order::EarliestDeadline,
            Written::Named(Named::Fifo) => Order::FirstCome,
            Written::Named(Named::Fair) => Order::Fair,
            Written::Rank(rank) => Order::Stated(Rank::new(rank)),
        })
    }
}

impl From<RankPolicy> for Written {
    fn from(policy: RankPolicy) -> Self {
        match policy.0 {
            Order::SmallestRemaining => Written::Named(Named::Srsf),
            Order::EarliestDeadline => Written::Named(Named::Edf),
            Order::FirstCome => Written::Named(Named::Fifo),
            Order::Fair => Written::Named(Named::Fair),
            Order::Stated(rank) => Written::Rank(rank.get()),
        }
    }
}

impl Default for PamSpec {
    /// As each field says.
    fn default() -> Self {
        PamSpec {
            policy: RankPolicy::default(),
            drops_late: false,
            gamma: 0.05,
            tau: 0.01,
            probe_per: Bytes::new(100_000_000),
            probe_interval: Duration::from_micros(20),
            first_probe: Duration::from_millis(10),
            longest_gap: Duration::from_millis(100),
            early_start: false,
            repair: RepairBy::Retransmission,
        }
    }
}

impl PamSpec {
    // Left out of a scenario's canonical text, so that runs from before keep their names.
    pub(super) fn is_default(&self) -> bool {
        *self == PamSpec::default()
    }

    /// How a source ranks its transfers.
    pub(super) fn ranking(&self) -> Ranking {
        let late = if self.drops_late { Late::Dropped } else { Late::RanksLast };
        Ranking { order: self.policy.0, late }
    }

    /// How receivers answer.
    pub(super) fn receiver_config(&self) -> RateReceiverConfig {
        let repair = match self.repair {
            RepairBy::Retransmission => Repair::Retransmitted,
            RepairBy::Coding => Repair::Coded,
        };
        RateReceiverConfig { gamma: self.gamma, tau: self.tau, repair, ..RateReceiverConfig::paper() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_words_or_ranks() {
        for (text, order) in [
            ("'srsf'", Order::SmallestRemaining),
            ("'edf'", Order::EarliestDeadline),
            ("'fifo'", Order::FirstCome),
            ("'fair'", Order::Fair),
            ("7", Order::Stated(Rank::new(7))),
        ] {
            let spec: PamSpec = toml::from_str(&format!("policy = {text}")).unwrap();
            assert_eq!(spec.policy.0, order, "{text}");
            assert_eq!(toml::from_str::<PamSpec>(&toml::to_string(&spec).unwrap()).unwrap(), spec);
        }
        let error = toml::from_str::<PamSpec>("policy = 'lifo'").unwrap_err().to_string();
        assert!(error.contains("srsf, edf, fifo, fair or a number"), "{error}");
    }
}
