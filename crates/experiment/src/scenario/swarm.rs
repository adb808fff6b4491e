//! The constants of swarms.

use headwater_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::text;
use headwater_sim::flow::swarm::Ties;

/// The constants of the schemes whose hosts bring an object to one another (Datacast §VI-C, BT-Cornet and BT-Optimized).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SwarmSpec {
    /// Members that each member chooses to exchange blocks with, all if there are fewer; 10.
    pub peers: u32,
    /// Bytes asked of one peer at a time; 108 KB (Cornet's own is 4 MB).
    #[serde(with = "text::one")]
    pub block: Bytes,
    /// Choice of bt-optimized among members that are equally near; by lot.
    pub ties: Ties,
}

impl Default for SwarmSpec {
    /// As each field says.
    fn default() -> Self {
        SwarmSpec { peers: 10, block: Bytes::new(108_000), ties: Ties::Lot }
    }
}

impl SwarmSpec {
    // Left out of a scenario's canonical text, so that runs from before keep their names.
    pub(super) fn is_default(&self) -> bool {
        *self == SwarmSpec::default()
    }
}
