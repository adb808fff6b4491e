//! The constants of Datacast.

use headwater_fabric::LinkRate;
use headwater_units::{BitRate, Bytes, Duration};
use serde::{Deserialize, Serialize};

use super::text;

/// The constants of Datacast's source, receivers and caches; those of its micro benchmarks (Datacast §VI-B) if left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DatacastSpec {
    /// By how much the source goes faster after each interval without a duplicate interest (Datacast delta); 5 Mbit/s.
    pub increase: LinkRate,
    /// That interval (Datacast T); 1 ms.
    #[serde(with = "text::one")]
    pub interval: Duration,
    /// Interests that a receiver may have in the network (Datacast w); 16.
    pub credit: u32,
    /// Of each tree in each branching node (Datacast C); 128 KB.
    #[serde(with = "text::one")]
    pub cache: Bytes,
    /// What the source begins with; 500 Mbit/s.
    pub initial_rate: LinkRate,
    /// Of each packet; 16 B.
    #[serde(with = "text::one")]
    pub header: Bytes,
}

impl Default for DatacastSpec {
    /// As each field says.
    fn default() -> Self {
        DatacastSpec {
            increase: BitRate::new(5_000_000).into(),
            interval: Duration::from_millis(1),
            credit: 16,
            cache: Bytes::new(128_000),
            initial_rate: BitRate::new(500_000_000).into(),
            header: Bytes::new(16),
        }
    }
}

impl DatacastSpec {
    // Left out of a scenario's canonical text, so that runs from before keep their names.
    pub(super) fn is_default(&self) -> bool {
        *self == DatacastSpec::default()
    }
}
