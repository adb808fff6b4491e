//! Quantities in files are text: `"40 us"`, `"1210 B"`. Rates are `fabric`'s.
//!
//! [`one`] and [`maybe`] are for `#[serde(with = ...)]`. What is written back is exact, so that a scenario's canonical
//! text, and with it the key of a job, does not depend on rounding.

use std::fmt;
use std::str::FromStr;

use headwater_units::{Bytes, Duration};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A quantity that can be written exactly.
pub(crate) trait Written: FromStr<Err: fmt::Display> {
    fn written(&self) -> String;
}

impl Written for Duration {
    fn written(&self) -> String {
        match self.as_nanos() {
            0 => "0 s".to_owned(),
            n if n % 1_000_000_000 == 0 => format!("{} s", n / 1_000_000_000),
            n if n % 1_000_000 == 0 => format!("{} ms", n / 1_000_000),
            n if n % 1_000 == 0 => format!("{} us", n / 1_000),
            n => format!("{n} ns"),
        }
    }
}
impl Written for Bytes {
    fn written(&self) -> String {
        format!("{} B", self.get())
    }
}

/// A quantity that must be there.
pub(crate) mod one {
    use super::*;

    pub(crate) fn serialize<T: Written, S: Serializer>(value: &T, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&value.written())
    }

    pub(crate) fn deserialize<'de, T: Written, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A quantity that may be left out.
pub(crate) mod maybe {
    use super::*;

    pub(crate) fn serialize<T: Written, S: Serializer>(value: &Option<T>, out: S) -> Result<S::Ok, S::Error> {
        value.as_ref().map(Written::written).serialize(out)
    }

    pub(crate) fn deserialize<'de, T: Written, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
        one::deserialize(from).map(Some)
    }
}

/// FNV-1a, 64 bits: stable over builds and machines, and enough for names that nobody forges.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_written_exactly() {
        for nanos in [0, 1, 999, 40_000, 10_000_000, 3_000_000_000, 3_000_000_001] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(duration.written().parse(), Ok(duration));
        }
        assert_eq!(Bytes::new(1210).written().parse(), Ok(Bytes::new(1210)));
    }
}
