//! The schemes that are compared (PPUSH Table II; SCDP §IV), and the kernel's own TCP.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Who decides what a source sends, and when (PPUSH Table II); written `ppush(1,0)`, `dctcp` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Scheme {
    /// Push flows; `ppush(a,b)` with a for `pool` and b for `weigh`.
    Ppush {
        /// All sources draw on one pool of symbols; else each has its equal part, rounded up.
        pool: bool,
        /// Weights by Algorithm 1; else every theta is 1.
        weigh: bool,
    },
    /// DCTCP (RFC 8257), equal parts.
    Dctcp,
    /// DCCP with TCP-like congestion control (RFC 4341), equal parts.
    Dccp,
    /// TCP NewReno (RFC 6582), equal parts.
    Reno,
    /// SCDP: pulls, trimming, MLFQ.
    Scdp,
    /// NDP: pulls, trimming, retransmission, no coding (SCDP §IV); equal parts. Not in PPUSH Table II.
    Ndp,
    /// Datacast: interests and caches along disjoint trees. Not in PPUSH Table II.
    Datacast,
    /// BitTorrent without choking, peers by lot (Datacast §VI-C, BT-Cornet): rates only. Not in PPUSH Table II.
    BtCornet,
    /// The same with peers by distance (Datacast §VI-C, BT-Optimized).
    BtOptimized,
    /// TCP CUBIC (RFC 9438), equal parts: the kernel's own, so on real packets only. Not in PPUSH Table II.
    Cubic,
    /// The product's controller and a node on each host, for workloads of kind `cast`. Not in PPUSH Table II.
    Cast,
}

/// A name that is not a [`Scheme`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "unknown scheme '{0}'; there are ppush(0,0), ppush(0,1), ppush(1,0), ppush(1,1), dctcp, dccp, reno, scdp, ndp, datacast, bt-cornet, bt-optimized, cubic, cast"
)]
pub struct ParseSchemeError(pub String);

impl Scheme {
    /// Those that are not in PPUSH Table II.
    const FURTHER: [Scheme; 6] =
        [Scheme::Ndp, Scheme::Datacast, Scheme::BtCornet, Scheme::BtOptimized, Scheme::Cubic, Scheme::Cast];

    /// All eight of PPUSH Table II, in its order.
    pub const TABLE_II: [Scheme; 8] = [
        Scheme::Ppush { pool: false, weigh: false },
        Scheme::Ppush { pool: false, weigh: true },
        Scheme::Ppush { pool: true, weigh: false },
        Scheme::Ppush { pool: true, weigh: true },
        Scheme::Dctcp,
        Scheme::Dccp,
        Scheme::Reno,
        Scheme::Scdp,
    ];

    /// Whether it brings one object to many and nothing else (Datacast §VI-C).
    pub(crate) fn is_for_groups(self) -> bool {
        matches!(self, Scheme::Datacast | Scheme::BtCornet | Scheme::BtOptimized)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheme::Ppush { pool, weigh } => write!(f, "ppush({},{})", u8::from(*pool), u8::from(*weigh)),
            Scheme::Dctcp => f.write_str("dctcp"),
            Scheme::Dccp => f.write_str("dccp"),
            Scheme::Reno => f.write_str("reno"),
            Scheme::Scdp => f.write_str("scdp"),
            Scheme::Ndp => f.write_str("ndp"),
            Scheme::Datacast => f.write_str("datacast"),
            Scheme::BtCornet => f.write_str("bt-cornet"),
            Scheme::BtOptimized => f.write_str("bt-optimized"),
            Scheme::Cubic => f.write_str("cubic"),
            Scheme::Cast => f.write_str("cast"),
        }
    }
}
impl FromStr for Scheme {
    type Err = ParseSchemeError;
    fn from_str(text: &str) -> Result<Self, ParseSchemeError> {
        let mut known = Scheme::TABLE_II.into_iter().chain(Scheme::FURTHER);
        known.find(|scheme| scheme.to_string() == text).ok_or_else(|| ParseSchemeError(text.to_owned()))
    }
}
impl TryFrom<String> for Scheme {
    type Error = ParseSchemeError;
    fn try_from(text: String) -> Result<Self, ParseSchemeError> {
        text.parse()
    }
}
impl From<Scheme> for String {
    fn from(scheme: Scheme) -> String {
        scheme.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eight_schemes_are_written_as_in_table_two() {
        for scheme in Scheme::TABLE_II {
            assert_eq!(scheme.to_string().parse(), Ok(scheme));
        }
        assert_eq!("ppush(1,0)".parse(), Ok(Scheme::Ppush { pool: true, weigh: false }));
        for scheme in Scheme::FURTHER {
            assert_eq!(scheme.to_string().parse(), Ok(scheme));
            assert!(!Scheme::TABLE_II.contains(&scheme));
        }
        assert!("ppush(2,0)".parse::<Scheme>().unwrap_err().to_string().contains("ppush(0,0)"));
    }
}
