//! Values of `headwater demo`: what its sources can do, and what happens to them.

use std::str::FromStr;

use headwater_units::{BitRate, Duration};

use super::{Rate, ValueError, bad};

/// A rate above zero; a bare number is Mbit/s, as in `--rates 100,100,300`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DemoRate(pub(crate) BitRate);

impl FromStr for DemoRate {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let bare = text.trim().bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let Rate(rate) = if bare { format!("{text}Mbit/s").parse()? } else { text.parse()? };
        Ok(DemoRate(rate))
    }
}

/// A share of packets, below all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Loss(pub(crate) f64);

impl FromStr for Loss {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let share = match text.trim().strip_suffix('%') {
            Some(percent) => number(percent).map(|percent| percent / 100.0),
            None => number(text),
        };
        match share {
            Some(share) if (0.0..1.0).contains(&share) => Ok(Loss(share)),
            _ => bad(format!("'{text}' is no share of packets below all of them: write 1% or 0.01")),
        }
    }
}

/// A source vanishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kill {
    pub(crate) source: usize,
    pub(crate) at: Duration,
}

impl FromStr for Kill {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (source, at) = at_time(text, "I@T, as in 2@2s")?;
        Ok(Kill { source: index(source)?, at: at.parse()? })
    }
}

/// A further source appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Join {
    pub(crate) rate: BitRate,
    pub(crate) at: Duration,
}

impl FromStr for Join {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (rate, at) = at_time(text, "RATE@T, as in 200@2s")?;
        Ok(Join { rate: rate.parse::<DemoRate>()?.0, at: at.parse()? })
    }
}

/// A source's uplink changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rerate {
    pub(crate) source: usize,
    pub(crate) at: Duration,
    pub(crate) rate: BitRate,
}

impl FromStr for Rerate {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        const SHAPE: &str = "I@T=RATE, as in 2@2s=20";
        let (source, rest) = at_time(text, SHAPE)?;
        let Some((at, rate)) = rest.split_once('=') else {
            return bad(format!("'{text}' is not {SHAPE}"));
        };
        Ok(Rerate { source: index(source)?, at: at.parse()?, rate: rate.parse::<DemoRate>()?.0 })
    }
}

fn at_time<'a>(text: &'a str, shape: &str) -> Result<(&'a str, &'a str), ValueError> {
    text.split_once('@').ok_or_else(|| ValueError(format!("'{text}' is not {shape}")))
}

fn index(text: &str) -> Result<usize, ValueError> {
    text.trim().parse().or_else(|_| bad(format!("'{text}' is not the number of a source, counted from 0")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(n: u64) -> BitRate {
        BitRate::new(n * 1_000_000)
    }

    #[test]
    fn rates_of_a_demo_are_mbit_unless_they_say_otherwise() {
        assert_eq!("100".parse(), Ok(DemoRate(mbit(100))));
        assert_eq!("1.5".parse(), Ok(DemoRate(BitRate::new(1_500_000))));
        assert_eq!("2Gbit/s".parse(), Ok(DemoRate(mbit(2000))));
        assert!("0".parse::<DemoRate>().is_err() && "".parse::<DemoRate>().is_err());
        assert!("100".parse::<Rate>().unwrap_err().to_string().contains("100Mbit/s"));
        assert_eq!("10MB/s".parse(), Ok(DemoRate(mbit(80))));
    }

    #[test]
    fn what_happens_in_a_demo_has_a_source_and_a_time() {
        assert_eq!("2@2s".parse(), Ok(Kill { source: 2, at: Duration::from_secs(2) }));
        assert_eq!("0@250ms".parse(), Ok(Kill { source: 0, at: Duration::from_millis(250) }));
        assert_eq!("200@2".parse(), Ok(Join { rate: mbit(200), at: Duration::from_secs(2) }));
        let rerate = Rerate { source: 1, at: Duration::from_millis(1500), rate: mbit(20) };
        assert_eq!("1@1.5s=20".parse(), Ok(rerate));
        for text in ["2", "@2s", "x@2s", "-1@2s", "2@", "2@soon"] {
            assert!(text.parse::<Kill>().is_err(), "{text}");
        }
        for text in ["1@2s", "1@=20", "1=20@2s", "1@2s=", "1@2s=0"] {
            assert!(text.parse::<Rerate>().is_err(), "{text}");
        }
        assert!("100".parse::<Join>().is_err() && "fast@2s".parse::<Join>().is_err());
    }

    #[test]
    fn loss_is_a_percentage_or_a_fraction_and_never_ambiguous() {
        assert_eq!("1%".parse(), Ok(Loss(0.01)));
        assert_eq!("0.01".parse(), Ok(Loss(0.01)));
        assert_eq!("0".parse(), Ok(Loss(0.0)));
        for text in ["1", "100%", "-1%", "some", "%", "NaN"] {
            assert!(text.parse::<Loss>().is_err(), "{text}");
        }
    }
}
