//! How quantities are written by people: `256MiB`, `100 Mbit/s`, `2s`, `40 us`.

use std::str::FromStr;

use thiserror::Error;

use crate::{BitRate, Bytes, Duration};

/// A quantity could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseQuantityError {
    /// No number at the front.
    #[error("'{text}' does not start with a number; write {example}")]
    NoNumber {
        /// The text as given.
        text: String,
        /// A valid one.
        example: &'static str,
    },
    /// The unit is not known.
    #[error("unknown unit '{unit}' in '{text}'; write {example}")]
    UnknownUnit {
        /// The text as given.
        text: String,
        /// The part that is not a unit.
        unit: String,
        /// A valid one.
        example: &'static str,
    },
    /// A rate that does not say whether it counts bits or bytes.
    #[error("'{text}' does not say bits or bytes: add a unit, as in {number}Mbit/s or {number}MB/s")]
    NoUnit {
        /// The text as given.
        text: String,
        /// Its number.
        number: String,
    },
    /// The value does not fit.
    #[error("'{text}' is out of range")]
    OutOfRange {
        /// The text as given.
        text: String,
    },
}

/// Why a unit is none.
enum Unit {
    /// It does not say what is counted.
    Missing,
    /// Nobody knows it.
    Unknown,
}

fn scaled(
    text: &str,
    example: &'static str,
    unit_of: impl Fn(&str) -> Result<f64, Unit>,
) -> Result<u64, ParseQuantityError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let value: f64 =
        number.parse().map_err(|_| ParseQuantityError::NoNumber { text: text.to_owned(), example })?;
    let unit = unit.trim();
    let factor = unit_of(unit).map_err(|wrong| match wrong {
        Unit::Missing => ParseQuantityError::NoUnit { text: text.to_owned(), number: number.to_owned() },
        Unit::Unknown => {
            ParseQuantityError::UnknownUnit { text: text.to_owned(), unit: unit.to_owned(), example }
        }
    })?;
    let result = value * factor;
    if result.is_finite() && result < u64::MAX as f64 {
        Ok(result.round() as u64)
    } else {
        Err(ParseQuantityError::OutOfRange { text: text.to_owned() })
    }
}

/// Forms in which sizes may be written.
const SIZES: &str = "1234B, 64KiB, 256MiB, 500GiB (powers of 1024) or kB, MB, GB, TB (powers of 1000)";
/// Forms in which rates may be written.
const RATES: &str = "50Mbit/s or 50Mbps (bits), 50MB/s or 50MiB/s (bytes), with k, M, G or T";

/// The factor of `k`, `M`, `G`, `T` and, with an `i`, of `Ki` to `Ti`; 1 of nothing. A small `m`, `g` or `t` counts only if
/// `any_case`: alone before a `b` or `B` it is too easily something else.
fn prefix(text: &str, any_case: bool) -> Option<f64> {
    let (letter, step) = match text.strip_suffix('i') {
        Some(letter) if !letter.is_empty() => (letter, 1024.0),
        Some(_) => return None,
        None => (text, 1000.0_f64),
    };
    Some(match letter {
        "" => 1.0,
        "k" | "K" => step,
        "M" => step.powi(2),
        "G" => step.powi(3),
        "T" => step.powi(4),
        "m" | "g" | "t" if any_case => return prefix(&text.to_ascii_uppercase().replace('I', "i"), false),
        _ => return None,
    })
}

impl FromStr for Bytes {
    type Err = ParseQuantityError;
    /// Reads `1234` and `1234B` (bytes), `64KiB`, `256 MiB`, `10G` (binary) or `10GB` (decimal). Nothing that ends in `b`: that
    /// is a bit elsewhere.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        scaled(text, SIZES, |unit| match unit.strip_suffix('B') {
            Some(letters) => prefix(letters, true).ok_or(Unit::Unknown),
            None if unit.is_empty() => Ok(1.0),
            None if unit.ends_with('i') => Err(Unit::Unknown),
            None => prefix(&format!("{unit}i"), true).ok_or(Unit::Unknown),
        })
        .map(Bytes::new)
    }
}

impl FromStr for BitRate {
    type Err = ParseQuantityError;
    /// Reads `100 Mbit/s`, `100Mbit`, `100Mbps` and `100Mb/s` (bits), `12.5MB/s` and `12MiB/s` (bytes, eight bits each). A number
    /// alone, or one with a prefix alone, does not say which of the two it counts, and is refused.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        scaled(text, RATES, |unit| {
            let amount = unit.strip_suffix("/s").or(unit.strip_suffix("ps")).unwrap_or(unit);
            if let Some(letters) = ["bits", "bit", "Bit"].iter().find_map(|word| amount.strip_suffix(word)) {
                return prefix(letters, true).ok_or(Unit::Unknown);
            }
            match (amount.strip_suffix('b'), amount.strip_suffix('B')) {
                (Some(letters), _) => prefix(letters, false).ok_or(Unit::Unknown),
                (_, Some(letters)) => prefix(letters, false).map(|bytes| 8.0 * bytes).ok_or(Unit::Unknown),
                _ if prefix(amount, true).is_some() => Err(Unit::Missing),
                _ => Err(Unit::Unknown),
            }
        })
        .map(BitRate::new)
    }
}

impl FromStr for Duration {
    type Err = ParseQuantityError;
    /// Reads `2s`, `1.5 s`, `250ms`, `40 us`, `5min`; a bare number is seconds.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        scaled(text, "250ms, 2s, 5min or 1h", |unit| {
            Ok(match unit {
                "ns" => 1.0,
                "us" => 1e3,
                "ms" => 1e6,
                "" | "s" => 1e9,
                "min" => 60e9,
                "h" => 3600e9,
                _ => return Err(Unit::Unknown),
            })
        })
        .map(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_quantities_in_many_ways() {
        assert_eq!("256MiB".parse(), Ok(Bytes::mib(256)));
        assert_eq!("64 k".parse(), Ok(Bytes::kib(64)));
        assert_eq!("1G".parse(), Ok(Bytes::mib(1024)));
        assert_eq!("40 KB".parse(), Ok(Bytes::new(40_000)));
        assert_eq!("1.5 kB".parse(), Ok(Bytes::new(1500)));
        assert_eq!("1210 B".parse(), Ok(Bytes::new(1210)));
        assert_eq!("77".parse(), Ok(Bytes::new(77)));
        assert_eq!("2s".parse(), Ok(Duration::from_secs(2)));
        assert_eq!("40 us".parse(), Ok(Duration::from_micros(40)));
    }

    #[test]
    fn a_rate_counts_bits_or_bytes_as_it_is_written() {
        for (text, bits) in [
            ("100 Mbit/s", 100e6),
            ("100Mbit", 100e6),
            ("100mbit/s", 100e6),
            ("20Mbps", 20e6),
            ("20Mb/s", 20e6),
            ("1.5 Gbit/s", 1.5e9),
            ("800 bit/s", 800.0),
            ("800bps", 800.0),
            ("10MB/s", 80e6),
            ("10MBps", 80e6),
            ("10MiB/s", 8.0 * 10.0 * 1048576.0),
            ("10Mibit/s", 10.0 * 1048576.0),
            ("300kB/s", 2.4e6),
            ("300KB/s", 2.4e6),
            ("2TB/s", 16e12),
            ("900B/s", 7200.0),
        ] {
            assert_eq!(text.parse(), Ok(BitRate::new(bits as u64)), "{text}");
        }
    }

    #[test]
    fn a_rate_that_does_not_say_bits_or_bytes_is_told_to() {
        for (text, number) in [("50", "50"), ("1.5G", "1.5"), ("10M/s", "10"), ("0", "0"), ("10m", "10")] {
            let error = text.parse::<BitRate>().unwrap_err();
            assert!(matches!(error, ParseQuantityError::NoUnit { .. }), "{text}: {error:?}");
            let said = error.to_string();
            assert!(said.contains(&format!("as in {number}Mbit/s or {number}MB/s")), "{said}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_forms_that_are_not() {
        assert!(matches!("fast".parse::<BitRate>(), Err(ParseQuantityError::NoNumber { .. })));
        assert!(matches!("3 miles".parse::<Bytes>(), Err(ParseQuantityError::UnknownUnit { .. })));
        assert!("99999999999999999999999".parse::<Bytes>().is_err());
        assert!("-1s".parse::<Duration>().unwrap_err().to_string().contains("2s"));
        // Lower case before B or b: milli, mega, or a slip of the shift key.
        for text in ["10mb/s", "10mB/s", "10gbps", "5 MBits/h", "1iB/s", "10Mbit/h"] {
            let said = text.parse::<BitRate>().unwrap_err().to_string();
            assert!(said.contains("Mbit/s") && said.contains("MB/s"), "{said}");
        }
        for text in ["500Gb", "10gb", "7iB", "3Mi B", "1Gbit"] {
            let said = text.parse::<Bytes>().unwrap_err().to_string();
            assert!(said.contains("GiB") && said.contains("GB"), "{text}: {said}");
        }
    }
}
