//! Messages between agents and their controller about coflows and their order (Courier §IV, S.schedule()).

use headwater_units::{Bytes, Rank};
use serde::{Deserialize, Serialize};

use super::limits::{MAX_NAME, check};

/// Coflows in one message at most, and the pairs of hosts of all of them.
pub const MAX_COFLOWS: usize = 256;
/// See there.
pub const MAX_PAIRS: usize = 1_024;

/// The name of a coflow: the same on all hosts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CoflowName {
    /// Its application.
    pub application: String,
    /// Its number there.
    pub number: u64,
}

/// Everything that one host's agent fetches now. It replaces what the agent has said before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoflowTotals {
    /// The host that fetches, as other hosts' reports name it.
    pub host: String,
    /// At most [`MAX_COFLOWS`].
    pub coflows: Vec<CoflowTotal>,
}

/// A coflow at the host that fetches it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoflowTotal {
    /// The name.
    pub name: CoflowName,
    /// Bytes of it that have come to this host.
    pub here: Bytes,
    /// Where the rest is to come from; [`MAX_PAIRS`] in one message.
    pub pairs: Vec<PairTotal>,
}

/// Bytes left of a coflow between two hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairTotal {
    /// The host that sends.
    pub from: String,
    /// Bytes that are left, if that is known of all its flows.
    pub left: Option<Bytes>,
}

/// The rank of a coflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoflowRank {
    /// The name.
    pub name: CoflowName,
    /// The smaller, the more important.
    pub rank: Rank,
}

impl CoflowTotals {
    pub(super) fn within_bounds(&self) -> Result<(), &'static str> {
        check(self.host.len() <= MAX_NAME, "too long a name")?;
        check(self.coflows.len() <= MAX_COFLOWS, "too many coflows")?;
        let pairs = || self.coflows.iter().flat_map(|it| &it.pairs);
        check(pairs().count() <= MAX_PAIRS, "too many pairs of hosts")?;
        check(pairs().all(|it| it.from.len() <= MAX_NAME), "too long a name")?;
        check(self.coflows.iter().all(|it| it.name.application.len() <= MAX_NAME), "too long a name")
    }
}

pub(super) fn ranks_within_bounds(ranks: &[CoflowRank]) -> Result<(), &'static str> {
    check(ranks.len() <= MAX_COFLOWS, "too many coflows")?;
    check(ranks.iter().all(|it| it.name.application.len() <= MAX_NAME), "too long a name")
}
