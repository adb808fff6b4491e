//! How quantities are written by people: `256MiB`, `100 Mbit/s`, `2s`, `40 us`.

use std::str::FromStr;

use thiserror::Error;

use crate::{BitRate, Bytes, Duration};

/// A quantity could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseQuantityError {
    /// No number at the front.
    #[error("'{text}' does not start with a number; write for example {example}")]
    NoNumber {
        /// What was given.
        text: String,
        /// A valid one.
        example: &'static str,
    },
    /// The unit is not known.
    #[error("unknown unit '{unit}' in '{text}'; write for example {example}")]
    UnknownUnit {
        /// What was given.
        text: String,
        /// The part that is not a unit.
        unit: String,
        /// A valid one.
        example: &'static str,
    },
    /// The value does not fit.
    #[error("'{text}' is out of range")]
    OutOfRange {
        /// What was given.
        text: String,
    },
}

fn scaled(
    text: &str,
    example: &'static str,
    unit_of: impl Fn(&str) -> Option<f64>,
) -> Result<u64, ParseQuantityError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let value: f64 =
        number.parse().map_err(|_| ParseQuantityError::NoNumber { text: text.to_owned(), example })?;
    let unit = unit.trim();
    let factor = unit_of(unit).ok_or_else(|| ParseQuantityError::UnknownUnit {
        text: text.to_owned(),
        unit: unit.to_owned(),
        example,
    })?;
    let result = value * factor;
    if result.is_finite() && result < u64::MAX as f64 {
        Ok(result.round() as u64)
    } else {
        Err(ParseQuantityError::OutOfRange { text: text.to_owned() })
    }
}

impl FromStr for Bytes {
    type Err = ParseQuantityError;
    /// Reads `1234`, `64KiB`, `256 MiB`, `10G` (binary) or `10GB` (decimal).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        scaled(text, "256MiB", |unit| {
            Some(match unit.to_ascii_lowercase().as_str() {
                "" | "b" => 1.0,
                "k" | "kib" => 1024.0,
                "kb" => 1e3,
                "m" | "mib" => 1048576.0,
                "mb" => 1e6,
                "g" | "gib" => 1073741824.0,
                "gb" => 1e9,
                "t" | "tib" => 1099511627776.0,
                "tb" => 1e12,
                _ => return None,
            })
        })
        .map(Bytes::new)
    }
}

impl FromStr for BitRate {
    type Err = ParseQuantityError;
    /// Reads `100 Mbit/s`, `100Mbit`, `1.5G`, `800k`; a bare number is bits per second.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        scaled(text, "100Mbit/s", |unit| {
            let unit = unit.to_ascii_lowercase();
            let unit = unit.strip_suffix("/s").or(unit.strip_suffix("ps")).unwrap_or(&unit);
            Some(match unit.strip_suffix("bit").or(unit.strip_suffix("b")).unwrap_or(unit) {
                "" => 1.0,
                "k" => 1e3,
                "m" => 1e6,
                "g" => 1e9,
                _ => return None,
            })
        })
        .map(BitRate::new)
    }
}

impl FromStr for Duration {
    type Err = ParseQuantityError;
    /// Reads `2s`, `1.5 s`, `250ms`, `40 us`, `5min`; a bare number is seconds.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        scaled(text, "2s", |unit| {
            Some(match unit {
                "ns" => 1.0,
                "us" => 1e3,
                "ms" => 1e6,
                "" | "s" => 1e9,
                "min" => 60e9,
                "h" => 3600e9,
                _ => return None,
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
        assert_eq!("100 Mbit/s".parse(), Ok(BitRate::new(100_000_000)));
        assert_eq!("1.5G".parse(), Ok(BitRate::new(1_500_000_000)));
        assert_eq!("20Mbps".parse(), Ok(BitRate::new(20_000_000)));
        assert_eq!("2s".parse(), Ok(Duration::from_secs(2)));
        assert_eq!("40 us".parse(), Ok(Duration::from_micros(40)));
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        assert!(matches!("fast".parse::<BitRate>(), Err(ParseQuantityError::NoNumber { .. })));
        assert!(matches!("3 miles".parse::<Bytes>(), Err(ParseQuantityError::UnknownUnit { .. })));
        assert!("99999999999999999999999".parse::<Bytes>().is_err());
        assert!("-1s".parse::<Duration>().unwrap_err().to_string().contains("2s"));
    }
}
