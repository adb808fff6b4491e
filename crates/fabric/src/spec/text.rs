//! Rates and delays as people write them.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use headwater_units::{BitRate, Bytes, Duration, ParseQuantityError};
use serde::de::{Deserializer, Error, Visitor};

const RATE_EXAMPLE: &str = "\"10 Gbit/s\" or \"200000 pps\"";

/// The rate of a link: `"10 Gbit/s"`, or `"200000 pps"` as PPUSH gives rates (packets per second).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LinkRate {
    /// In bits per second.
    Bits(BitRate),
    /// In packets per second, whatever a packet's size.
    Packets(f64),
}

impl LinkRate {
    /// In bits per second, if packets have this size on the line; rounded, at most what a [`BitRate`] holds.
    pub fn resolve(self, packet: Bytes) -> BitRate {
        match self {
            LinkRate::Bits(rate) => rate,
            LinkRate::Packets(rate) => BitRate::new((rate * packet.get() as f64 * 8.0).round() as u64),
        }
    }
}

impl From<BitRate> for LinkRate {
    fn from(rate: BitRate) -> Self {
        LinkRate::Bits(rate)
    }
}

impl FromStr for LinkRate {
    type Err = ParseQuantityError;
    /// Reads what [`BitRate`] reads, and `200000 pps`, `2e5 pps`, `200 kpps`, `1.5 Mpps`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let lower = text.trim().to_ascii_lowercase();
        let Some(number) = lower.strip_suffix("pps") else { return text.parse().map(LinkRate::Bits) };
        let (number, factor) = match number.strip_suffix(['k', 'm']) {
            Some(scaled) if number.ends_with('k') => (scaled, 1e3),
            Some(scaled) => (scaled, 1e6),
            None => (number, 1.0),
        };
        let value: f64 = number
            .trim()
            .parse()
            .map_err(|_| ParseQuantityError::NoNumber { text: text.to_owned(), example: RATE_EXAMPLE })?;
        let rate = value * factor;
        if rate.is_finite() && rate > 0.0 {
            Ok(LinkRate::Packets(rate))
        } else {
            Err(ParseQuantityError::OutOfRange { text: text.to_owned() })
        }
    }
}

impl fmt::Display for LinkRate {
    /// Exact, unlike that of [`BitRate`]: it can be read back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkRate::Packets(rate) => write!(f, "{rate} pps"),
            LinkRate::Bits(rate) => exact(
                f,
                rate.get(),
                &[("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000), ("bit/s", 1)],
            ),
        }
    }
}

/// How long a bit takes over a link, one way: `"40 us"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkDelay(pub Duration);

impl LinkDelay {
    /// Over at once.
    pub const ZERO: LinkDelay = LinkDelay(Duration::ZERO);

    pub(super) fn is_zero(&self) -> bool {
        *self == LinkDelay::ZERO
    }
}

impl From<Duration> for LinkDelay {
    fn from(delay: Duration) -> Self {
        LinkDelay(delay)
    }
}

impl FromStr for LinkDelay {
    type Err = ParseQuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(LinkDelay)
    }
}

impl fmt::Display for LinkDelay {
    /// Exact, unlike that of [`Duration`]: it can be read back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        exact(f, self.0.as_nanos(), &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)])
    }
}

/// In the largest unit of which it is a whole number; the last unit is 1.
fn exact(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = |unit: &&(&str, u64)| value != 0 && value.is_multiple_of(unit.1);
    let (unit, size) = units.iter().find(fits).unwrap_or(&units[units.len() - 1]);
    write!(f, "{} {unit}", value / size)
}

/// Reads a quoted quantity and says how to write one if it is something else.
struct Quoted<T>(&'static str, PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Quoted<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// Reads a quoted quantity; `expecting` says how to write one.
pub(super) fn from_quoted<'de, T, D>(deserializer: D, expecting: &'static str) -> Result<T, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_str(Quoted(expecting, PhantomData))
}

/// Written and read as its `Display` and `FromStr` have it.
macro_rules! serde_as_text {
    ($name:ty, $expecting:expr) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::spec::text::from_quoted(deserializer, $expecting)
            }
        }
    };
}
pub(super) use serde_as_text;

serde_as_text!(LinkRate, "a rate in quotes, such as \"10 Gbit/s\" or \"200000 pps\"");
serde_as_text!(LinkDelay, "a delay in quotes, such as \"40 us\"");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_are_bits_or_packets() {
        let packet = Bytes::new(1_210);
        let bits = |text: &str| text.parse::<LinkRate>().unwrap().resolve(packet).get();
        assert_eq!(bits("20 Mbit/s"), 20_000_000);
        assert_eq!(bits("200000 pps"), 200_000 * 1_210 * 8);
        assert_eq!(
            (bits("2e5 pps"), bits("200 kpps"), bits("0.2Mpps")),
            (1_936_000_000, 1_936_000_000, 1_936_000_000)
        );
        assert_eq!(LinkRate::Packets(f64::INFINITY).resolve(packet).get(), u64::MAX);
        assert_eq!(LinkRate::Packets(f64::NAN).resolve(packet).get(), 0);
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in
            ["", "pps", "kpps", "fast pps", "-5 pps", "0 pps", "nan pps", "inf pps", "1e999 pps", "3 miles"]
        {
            assert!(text.parse::<LinkRate>().is_err(), "{text}");
        }
    }

    #[test]
    fn quantities_are_written_in_the_unit_that_keeps_them_whole() {
        let rate = |n| LinkRate::Bits(BitRate::new(n)).to_string();
        assert_eq!(
            [rate(10_000_000_000), rate(1_500_000), rate(7), rate(0)],
            ["10 Gbit/s", "1500 kbit/s", "7 bit/s", "0 bit/s"]
        );
        assert_eq!(LinkDelay(Duration::from_nanos(6_666)).to_string(), "6666 ns");
        assert_eq!(LinkDelay(Duration::from_micros(40)).to_string(), "40 us");
        assert_eq!(LinkDelay::ZERO.to_string(), "0 ns");
    }

    proptest! {
        #[test]
        fn quantities_survive_being_written_and_read(bits in 0u64..1 << 53, packets in 1e-9f64..1e15, nanos in 0u64..1 << 53) {
            let rate = LinkRate::Bits(BitRate::new(bits));
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            let rate = LinkRate::Packets(packets);
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            let delay = LinkDelay(Duration::from_nanos(nanos));
            prop_assert_eq!(delay.to_string().parse(), Ok(delay));
        }

        #[test]
        fn any_text_is_a_rate_or_an_error(text in ".{0,24}") {
            let _ = text.parse::<LinkRate>();
            let _ = text.parse::<LinkDelay>();
        }
    }
}
