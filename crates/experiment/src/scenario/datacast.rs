//! The constants of Datacast.

use headwater_fabric::LinkRate;
use headwater_switch::Replacement as StoreReplacement;
use headwater_units::{BitRate, Bytes, Duration};
use serde::{Deserialize, Serialize};

use crate::text;

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
    /// Initial rate of the source; 500 Mbit/s.
    pub initial_rate: LinkRate,
    /// Of each packet; 16 B.
    #[serde(with = "text::one")]
    pub header: Bytes,
    /// Most trees of a group, the first ones; all that there are if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trees: Option<u32>,
    /// Which packet goes from a full cache; the first that came (Datacast §V-C).
    #[serde(skip_serializing_if = "Replacement::is_fifo")]
    pub replacement: Replacement,
    /// Whether an interest for what is in flight waits in a branching node, as in CCN; yes (the paper does not say).
    #[serde(skip_serializing_if = "is_yes")]
    pub gathers: bool,
    /// The least timeout of an interest; 5 ms. The paper has that of TCP, but 200 ms are longer than a cache remembers: 128 KB
    /// are what 100 Mbit/s bring in 10 ms. Half of it: with 2 ms interests are repeated that wait at a source whose rate was
    /// halved a few times.
    #[serde(with = "text::one", skip_serializing_if = "is_usual_timeout")]
    pub min_rto: Duration,
}

/// Which packet goes from a full cache (Datacast §VI-B).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Replacement {
    /// The one that came first.
    #[default]
    Fifo,
    /// The one that was not used for longest.
    Lru,
    /// The one that was used least.
    Lfu,
}

impl Replacement {
    fn is_fifo(&self) -> bool {
        *self == Replacement::Fifo
    }
}

impl From<Replacement> for StoreReplacement {
    fn from(replacement: Replacement) -> StoreReplacement {
        match replacement {
            Replacement::Fifo => StoreReplacement::Fifo,
            Replacement::Lru => StoreReplacement::Lru,
            Replacement::Lfu => StoreReplacement::Lfu,
        }
    }
}

const USUAL_TIMEOUT: Duration = Duration::from_millis(5);

fn is_yes(yes: &bool) -> bool {
    *yes
}

fn is_usual_timeout(timeout: &Duration) -> bool {
    *timeout == USUAL_TIMEOUT
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
            trees: None,
            replacement: Replacement::Fifo,
            gathers: true,
            min_rto: USUAL_TIMEOUT,
        }
    }
}

impl DatacastSpec {
    // Left out of a scenario's canonical text, so that runs from before keep their names.
    pub(super) fn is_default(&self) -> bool {
        *self == DatacastSpec::default()
    }
}
