//! The schemes that are compared (PPUSH Table II; SCDP §IV), and the kernel's own TCP.

use std::fmt;
use std::str::FromStr;

use headwater_wire::Delivery;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Scheme that decides what a source sends, and when (PPUSH Table II); written `ppush(1,0)`, `dctcp` and so on.
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
    /// TCP whose window goes half of the way to that of the last loss (BIC, INFOCOM 2004), equal parts.
    Bic,
    /// TCP that keeps few packets in queues by its round trips (Vegas, JSAC 1995), equal parts.
    Vegas,
    /// SCDP: pulls, trimming, MLFQ.
    Scdp,
    /// NDP: pulls, trimming, retransmission, no coding (SCDP §IV); equal parts. Not in PPUSH Table II.
    Ndp,
    /// Datacast: interests and caches along disjoint trees. Not in PPUSH Table II.
    Datacast,
    /// PAM: the rate that switches compute, one group a task. Not in PPUSH Table II.
    Pam,
    /// BitTorrent without choking, peers by lot (Datacast §VI-C, BT-Cornet): rates only. Not in PPUSH Table II.
    BtCornet,
    /// The same with peers by distance (Datacast §VI-C, BT-Optimized).
    BtOptimized,
    /// Each host passes blocks on to the next (rates only): the first has the object. Not in PPUSH Table II.
    Chain,
    /// TCP CUBIC (RFC 9438), equal parts: the kernel's own, so on real packets only. Not in PPUSH Table II.
    Cubic,
    /// The product's controller and a node on each host, for workloads of kind `cast`. Not in PPUSH Table II.
    Cast,
    /// Hadoop's reducers that fetch map outputs over DCTCP, for workloads of kind `shuffle` (Courier §V). Not in PPUSH Table II.
    Shuffle {
        /// Scheduler that orders flows.
        order: ShuffleOrder,
        /// Courier's agents carry flows; else each has a connection.
        courier: bool,
    },
}

/// Scheduler that orders the flows of a shuffle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShuffleOrder {
    /// Nobody.
    None,
    /// Aalo, by rates.
    Aalo,
    /// Sincronia, by classes.
    Sincronia,
    /// The stand-in for Django, by rates of a bounded number of flows.
    DjangoLike,
}

/// A name that is not a [`Scheme`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown scheme '{0}'; there are {list}", list = names())]
pub struct ParseSchemeError(pub String);

const fn shuffle(order: ShuffleOrder, courier: bool) -> Scheme {
    Scheme::Shuffle { order, courier }
}

const fn ppush(pool: bool, weigh: bool) -> Scheme {
    Scheme::Ppush { pool, weigh }
}

/// Name of each in experiments; those of PPUSH Table II first, in its order.
const NAMES: &[(Scheme, &str)] = &[
    (ppush(false, false), "ppush(0,0)"),
    (ppush(false, true), "ppush(0,1)"),
    (ppush(true, false), "ppush(1,0)"),
    (ppush(true, true), "ppush(1,1)"),
    (Scheme::Dctcp, "dctcp"),
    (Scheme::Dccp, "dccp"),
    (Scheme::Reno, "reno"),
    (Scheme::Scdp, "scdp"),
    (Scheme::Ndp, "ndp"),
    (Scheme::Datacast, "datacast"),
    (Scheme::Pam, "pam"),
    (Scheme::BtCornet, "bt-cornet"),
    (Scheme::BtOptimized, "bt-optimized"),
    (Scheme::Chain, "chain"),
    (Scheme::Cubic, "cubic"),
    (Scheme::Bic, "bic"),
    (Scheme::Vegas, "vegas"),
    (Scheme::Cast, "cast"),
    (shuffle(ShuffleOrder::None, false), "hadoop"),
    (shuffle(ShuffleOrder::None, true), "courier"),
    (shuffle(ShuffleOrder::Aalo, false), "aalo+hadoop"),
    (shuffle(ShuffleOrder::Aalo, true), "aalo+courier"),
    (shuffle(ShuffleOrder::Sincronia, false), "sincronia+hadoop"),
    (shuffle(ShuffleOrder::Sincronia, true), "sincronia+courier"),
    (shuffle(ShuffleOrder::DjangoLike, false), "django-like"),
    (shuffle(ShuffleOrder::DjangoLike, true), "django-like+courier"),
];

fn names() -> String {
    NAMES.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

impl Scheme {
    /// All eight of PPUSH Table II, in its order.
    pub const TABLE_II: [Scheme; 8] = [
        ppush(false, false),
        ppush(false, true),
        ppush(true, false),
        ppush(true, true),
        Scheme::Dctcp,
        Scheme::Dccp,
        Scheme::Reno,
        Scheme::Scdp,
    ];

    /// By which transport of the product its symbols come; `None` for what is only compared with, and for casts, whose controller
    /// chooses.
    pub(crate) fn delivery(self) -> Option<Delivery> {
        match self {
            Scheme::Ppush { .. } => Some(Delivery::Push),
            Scheme::Scdp => Some(Delivery::Pull { initial_window: 1 }),
            Scheme::Pam => Some(Delivery::Rate { receivers: 1, deadline: None, terms: None }),
            Scheme::Datacast => Some(Delivery::Trees { credit: 1 }),
            _ => None,
        }
    }

    /// Whether it brings one object to many and nothing else (Datacast §VI-C).
    pub(crate) fn is_for_groups(self) -> bool {
        matches!(self, Scheme::Datacast | Scheme::BtCornet | Scheme::BtOptimized | Scheme::Chain)
    }

    /// Whether it is for shuffles and nothing else (Courier §V).
    pub(crate) fn is_shuffle(self) -> bool {
        matches!(self, Scheme::Shuffle { .. })
    }

    /// Whether it can be named for flows beside a workload of another scheme.
    pub(crate) fn may_be_beside(self) -> bool {
        self.delivery().is_none() && !self.is_for_groups() && self != Scheme::Cast && !self.is_shuffle()
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = NAMES.iter().find(|(scheme, _)| scheme == self);
        f.write_str(named.expect("every scheme has a name").1)
    }
}
impl FromStr for Scheme {
    type Err = ParseSchemeError;
    fn from_str(text: &str) -> Result<Self, ParseSchemeError> {
        let named = NAMES.iter().find(|(_, name)| *name == text);
        named.map(|(scheme, _)| *scheme).ok_or_else(|| ParseSchemeError(text.to_owned()))
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
    fn every_scheme_is_written_by_its_name_and_those_of_table_two_come_first() {
        for (scheme, name) in NAMES {
            assert_eq!((scheme.to_string().as_str(), name.parse()), (*name, Ok(*scheme)));
        }
        assert!(NAMES.iter().zip(Scheme::TABLE_II).all(|((scheme, _), listed)| *scheme == listed));
        assert_eq!("ppush(1,0)".parse(), Ok(Scheme::Ppush { pool: true, weigh: false }));
        assert!("ppush(2,0)".parse::<Scheme>().unwrap_err().to_string().contains("ppush(0,0), ppush(0,1)"));
    }
}
