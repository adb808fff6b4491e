//! How a port queues: limits, the mark threshold, classes.

use std::str::FromStr;

use headwater_units::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::AllocatorSpec;
use crate::text;

/// A number of packets, a number of bytes, or no bound at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Amount {
    /// In packets.
    Packets(u32),
    /// In bytes.
    Bytes(Bytes),
    /// `"unlimited"`, or `"none"` for a threshold.
    Unlimited,
}

/// A text that is not an [`Amount`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not an amount; write for example \"100 packets\", \"256 KiB\" or \"unlimited\"")]
pub struct ParseAmountError(String);

/// The queues of a port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortSpec {
    /// The most that waits, the packet in transmission included; 100 packets by PPUSH §V-A.
    #[serde(default = "PortSpec::paper_queue")]
    pub queue: Amount,
    /// Arrivals are marked that make the queue longer than this (PPUSH K); 30 packets by §IV-B.
    #[serde(default = "PortSpec::paper_threshold")]
    pub mark_threshold: Amount,
    /// Queues of their own for some classes; one FIFO for all if empty.
    #[serde(default)]
    pub classes: Vec<PortClass>,
    /// Which queue is served next, where there are several.
    #[serde(default)]
    pub service: Service,
    /// Treatment of a packet that finds its queue full.
    #[serde(default)]
    pub when_full: WhenFull,
    /// Rule of trimming for real packets, at all ports of an emulated network. Simulated ones keep the header alone.
    #[serde(default, skip_serializing_if = "Trim::is_usual")]
    pub trim: Trim,
    /// Rates that it grants to scheduled transfers (PAM); none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocator: Option<AllocatorSpec>,
}

/// Rule of trimming for real packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trim {
    /// Bytes of the frame that are kept, from the destination's MAC address on, though never less than 56 bytes of UDP
    /// payload; 128 B, the usual size of switches that trim.
    #[serde(default = "Trim::usual_size", with = "text::one")]
    pub to: Bytes,
    /// State of UDP's length and checksum; IP's are always right.
    #[serde(default)]
    pub udp: StaleOrRepaired,
}

/// Fields that a switch makes right again, or does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StaleOrRepaired {
    /// They are those of the whole packet still, as most switches leave them: ordinary sockets do not see it.
    #[default]
    Stale,
    /// They are those of what is left.
    Repaired,
}

/// A queue of some classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortClass {
    /// The wire's class numbers that use this queue: 0 control, 1 bulk, 2 gentle, 3 to 5 the levels above bulk. A level that no
    /// queue names is where bulk is; every other class that none names is in the first.
    pub of: Vec<u8>,
    /// The most that waits in it; with the port's `queue` as a pool that all share but those `apart`.
    pub queue: Amount,
    /// Its own threshold; the port's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark_threshold: Option<Amount>,
    /// Its packets take no room in the pool.
    #[serde(default, skip_serializing_if = "is_false")]
    pub apart: bool,
    /// Its share under weighted service.
    #[serde(default = "PortClass::equal")]
    pub weight: u32,
}

/// Which queue is served next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// The first that has a packet.
    #[default]
    Strict,
    /// Round robin by weight.
    Weighted,
    /// The first class and all others take turns, by the weights of the first and of the second; among the others the first
    /// that has a packet (SCDP §III-C: headers and pulls against symbols).
    FirstAgainstRest,
}

/// Treatment of a packet that finds its queue full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    /// It is dropped.
    #[default]
    Drop,
    /// Its payload is cut off and its header queued (SCDP, NDP).
    Trim,
}

impl PortSpec {
    fn paper_queue() -> Amount {
        Amount::Packets(100)
    }
    fn paper_threshold() -> Amount {
        Amount::Packets(30)
    }
}

impl Default for PortSpec {
    /// 100 packets, marks above 30, one FIFO, drops the tail (PPUSH §IV-B, §V-A).
    fn default() -> Self {
        PortSpec {
            queue: Self::paper_queue(),
            mark_threshold: Self::paper_threshold(),
            classes: Vec::new(),
            service: Service::default(),
            when_full: WhenFull::default(),
            trim: Trim::default(),
            allocator: None,
        }
    }
}

impl Trim {
    fn usual_size() -> Bytes {
        Bytes::new(128)
    }

    fn is_usual(&self) -> bool {
        *self == Trim::default()
    }
}

impl Default for Trim {
    fn default() -> Self {
        Trim { to: Self::usual_size(), udp: StaleOrRepaired::default() }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl PortClass {
    fn equal() -> u32 {
        1
    }
}

impl FromStr for Amount {
    type Err = ParseAmountError;
    fn from_str(text: &str) -> Result<Self, ParseAmountError> {
        let fail = || ParseAmountError(text.to_owned());
        let trimmed = text.trim();
        if matches!(trimmed, "unlimited" | "none") {
            return Ok(Amount::Unlimited);
        }
        match trimmed.strip_suffix("packets").or(trimmed.strip_suffix("packet")) {
            Some(number) => number.trim().parse().map(Amount::Packets).map_err(|_| fail()),
            // A bare number would be read as bytes; here that is a mistake rather than a wish.
            None if trimmed.bytes().all(|b| b.is_ascii_digit()) => Err(fail()),
            None => trimmed.parse().map(Amount::Bytes).map_err(|_| fail()),
        }
    }
}
impl TryFrom<String> for Amount {
    type Error = ParseAmountError;
    fn try_from(text: String) -> Result<Self, ParseAmountError> {
        text.parse()
    }
}
impl From<Amount> for String {
    fn from(amount: Amount) -> String {
        match amount {
            Amount::Packets(n) => format!("{n} packets"),
            Amount::Bytes(bytes) => format!("{} B", bytes.get()),
            Amount::Unlimited => "unlimited".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_packets_or_bytes_but_never_bare_numbers() {
        assert_eq!("100 packets".parse(), Ok(Amount::Packets(100)));
        assert_eq!("256 KiB".parse(), Ok(Amount::Bytes(Bytes::kib(256))));
        assert_eq!("unlimited".parse(), Ok(Amount::Unlimited));
        for bad in ["100", "", "-1 packets", "many packets", "100 boxes"] {
            assert!(bad.parse::<Amount>().unwrap_err().to_string().contains("100 packets"), "{bad}");
        }
        for amount in [Amount::Packets(7), Amount::Bytes(Bytes::new(30_000)), Amount::Unlimited] {
            assert_eq!(Amount::try_from(String::from(amount)), Ok(amount));
        }
    }
}
