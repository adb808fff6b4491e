//! How near a measured value must come to the published one.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use thiserror::Error;

/// How near a measured value must come to the published one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub enum Tolerance {
    /// `exact`: equal but for the last bits of the arithmetic.
    Exact,
    /// `as printed (0.258)`: equal once rounded to the digits that the paper prints.
    AsPrinted {
        /// The paper's digits.
        text: String,
        /// How many of them follow the point.
        decimals: usize,
    },
    /// `10 %`: the ratio to the published value is at most this many per cent from 1.
    Percent(f64),
    /// `+- 4`: the distance to the published value at most this.
    PlusMinus(f64),
    /// `at least 0.95`.
    AtLeast(f64),
    /// `at most 50`.
    AtMost(f64),
    /// `0.55..0.70`: between the two, both included.
    Band(f64, f64),
    /// `order`: the schemes stand in the stated order; the metric is true.
    Order,
    /// `shape`: the stated trend; the metric is true.
    Shape,
    /// `report`: no pass line.
    Report,
}

/// A text that is not a [`Tolerance`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{0}' is not a tolerance; write exact, as printed (0.258), 10 %, +- 4, at least 0.95, at most 50, 0.55..0.70, order, shape or report"
)]
pub struct ParseToleranceError(String);

impl Tolerance {
    /// Whether `measured` is near enough. What is compared to a published value fails without one; NaN always fails.
    pub fn holds(&self, measured: f64, published: Option<f64>) -> bool {
        // A mean over seeds is off by its last bits: a value at the edge must not fall over it.
        let room = 1e-12 * measured.abs().max(1.0);
        let near = |distance: f64| published.is_some_and(|p| (measured - p).abs() <= distance + room);
        match self {
            Tolerance::Exact => near(1e-9 * published.unwrap_or(1.0).abs().max(1.0)),
            Tolerance::AsPrinted { text, decimals } => {
                measured.is_finite() && format!("{measured:.decimals$}") == *text
            }
            Tolerance::Percent(percent) => near(percent / 100.0 * published.unwrap_or(0.0).abs()),
            Tolerance::PlusMinus(distance) => near(*distance),
            Tolerance::AtLeast(least) => measured >= *least - room,
            Tolerance::AtMost(most) => measured <= *most + room,
            Tolerance::Band(low, high) => (*low - room..=*high + room).contains(&measured),
            Tolerance::Order | Tolerance::Shape => measured == 1.0,
            Tolerance::Report => false,
        }
    }

    /// The least and the most that is near enough; `None` where nearness is not of an interval, or there is no published number
    /// to be near to.
    pub fn accepted(&self, published: Option<f64>) -> Option<(f64, f64)> {
        let around = |distance: f64| published.map(|p| (p - distance, p + distance));
        match self {
            Tolerance::Exact => around(0.0),
            Tolerance::Percent(percent) => around(percent / 100.0 * published.unwrap_or(0.0).abs()),
            Tolerance::PlusMinus(distance) => around(*distance),
            Tolerance::AtLeast(least) => Some((*least, f64::INFINITY)),
            Tolerance::AtMost(most) => Some((f64::NEG_INFINITY, *most)),
            Tolerance::Band(low, high) => Some((*low, *high)),
            Tolerance::AsPrinted { .. } | Tolerance::Order | Tolerance::Shape | Tolerance::Report => None,
        }
    }

    /// Whether an interval of measured values crosses the line between near enough and not: its ends do not say which it is.
    pub fn is_crossed_by(&self, (low, high): (f64, f64), published: Option<f64>) -> bool {
        // An exact claim holds in the mean or not.
        if *self == Tolerance::Exact {
            return false;
        }
        let Some((least, most)) = self.accepted(published) else { return false };
        let is_within = self.holds(low, published) && self.holds(high, published);
        !is_within && low <= most && high >= least
    }

    /// Whether all that is near enough to `published` is near enough to `other` by the tolerance `than`.
    pub fn is_as_tight_as(&self, published: Option<f64>, than: &Tolerance, other: Option<f64>) -> bool {
        match (self.accepted(published), than.accepted(other)) {
            (Some((least, most)), Some((low, high))) => {
                // The last bits of the arithmetic do not count.
                let room = |end: f64| if end.is_finite() { 1e-9 * end.abs() } else { 0.0 };
                least >= low - room(low) && most <= high + room(high)
            }
            _ => self == than || *than == Tolerance::Report,
        }
    }

    /// Whether it compares with a published number.
    pub fn needs_published(&self) -> bool {
        matches!(self, Tolerance::Exact | Tolerance::Percent(_) | Tolerance::PlusMinus(_))
    }

    /// Whether it asks for a metric that is true or false.
    pub fn needs_truth(&self) -> bool {
        matches!(self, Tolerance::Order | Tolerance::Shape)
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tolerance::Exact => f.write_str("exact"),
            Tolerance::AsPrinted { text, .. } => write!(f, "as printed ({text})"),
            Tolerance::Percent(percent) => write!(f, "{percent} %"),
            Tolerance::PlusMinus(distance) => write!(f, "+- {distance}"),
            Tolerance::AtLeast(least) => write!(f, "at least {least}"),
            Tolerance::AtMost(most) => write!(f, "at most {most}"),
            Tolerance::Band(low, high) => write!(f, "{low}..{high}"),
            Tolerance::Order => f.write_str("order"),
            Tolerance::Shape => f.write_str("shape"),
            Tolerance::Report => f.write_str("report"),
        }
    }
}

impl FromStr for Tolerance {
    type Err = ParseToleranceError;
    fn from_str(given: &str) -> Result<Self, ParseToleranceError> {
        let fail = || ParseToleranceError(given.to_owned());
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|x| x.is_finite()).ok_or_else(fail);
        let positive = |text: &str| number(text).and_then(|x| if x >= 0.0 { Ok(x) } else { Err(fail()) });
        let text = given.trim();
        match text {
            "exact" => return Ok(Tolerance::Exact),
            "order" => return Ok(Tolerance::Order),
            "shape" => return Ok(Tolerance::Shape),
            "report" => return Ok(Tolerance::Report),
            _ => {}
        }
        if let Some(rest) = text.strip_prefix("as printed") {
            let digits = rest.trim().strip_prefix('(').and_then(|r| r.strip_suffix(')')).ok_or_else(fail)?;
            number(digits)?;
            let decimals = digits.split_once('.').map_or(0, |(_, after)| after.len());
            return Ok(Tolerance::AsPrinted { text: digits.to_owned(), decimals });
        }
        if let Some(rest) = text.strip_prefix("at least") {
            return number(rest).map(Tolerance::AtLeast);
        }
        if let Some(rest) = text.strip_prefix("at most") {
            return number(rest).map(Tolerance::AtMost);
        }
        if let Some(rest) = text.strip_prefix("+-") {
            return positive(rest).map(Tolerance::PlusMinus);
        }
        if let Some(rest) = text.strip_suffix('%') {
            return positive(rest).map(Tolerance::Percent);
        }
        let (low, high) = text.split_once("..").ok_or_else(fail)?;
        match (number(low)?, number(high)?) {
            (low, high) if low <= high => Ok(Tolerance::Band(low, high)),
            _ => Err(fail()),
        }
    }
}
impl TryFrom<String> for Tolerance {
    type Error = ParseToleranceError;
    fn try_from(text: String) -> Result<Self, ParseToleranceError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(tolerance: &str, measured: f64, published: f64) -> bool {
        tolerance.parse::<Tolerance>().unwrap().holds(measured, Some(published))
    }

    #[test]
    fn each_kind_of_tolerance_holds_at_its_edge_and_not_beyond() {
        assert!(holds("10 %", 1.7446, 1.586) && !holds("10 %", 1.745, 1.586) && !holds("10 %", 1.42, 1.586));
        assert!(holds("+- 4", 34.0, 30.0) && !holds("+- 4", 25.9, 30.0));
        assert!(holds("exact", 51.0 + 1e-9, 51.0) && !holds("exact", 51.001, 51.0));
        assert!(holds("as printed (0.258)", 0.25819, 0.258) && !holds("as printed (0.258)", 0.2586, 0.258));
        assert!(holds("as printed (0.50)", 0.5, 0.5));
        assert!(holds("at least 0.95", 0.95, 1.0) && !holds("at least 0.95", 0.9499, 1.0));
        assert!(holds("at most 50", 50.0, 1.0) && !holds("at most 50", 50.1, 1.0));
        assert!(holds("+- 0.02", 0.05, 0.03), "0.05 - 0.03 is a little more than 0.02 in binary");
        assert!(holds("0.55..0.70", 0.7, 0.62) && !holds("0.55..0.70", 0.71, 0.62));
        assert!(holds("shape", 1.0, 0.0) && !holds("order", 0.0, 0.0));
        assert!(holds("5 %", -10.4, -10.0) && !holds("5 %", 10.0, -10.0), "a negative value keeps its sign");
    }

    #[test]
    fn an_interval_across_the_line_decides_nothing() {
        let crossed = |text: &str, interval: (f64, f64), published: f64| {
            text.parse::<Tolerance>().unwrap().is_crossed_by(interval, Some(published))
        };
        assert!(crossed("10 %", (1.70, 1.80), 1.586) && crossed("10 %", (1.3, 1.9), 1.586));
        assert!(!crossed("10 %", (1.5, 1.7), 1.586) && !crossed("10 %", (1.75, 1.9), 1.586));
        assert!(crossed("at least 1", (0.9, 1.2), 0.0) && !crossed("at least 1", (1.0, 1.2), 0.0));
        assert!(!crossed("at most 0.02", (0.021, 0.03), 0.0) && crossed("at most 0.02", (0.01, 0.03), 0.0));
        assert!(!crossed("exact", (-0.1, 0.1), 0.0), "what must be equal is equal in the mean or not");
        assert!(!crossed("shape", (0.5, 1.0), 0.0) && !crossed("report", (0.0, 1.0), 0.5));
    }

    #[test]
    fn a_tolerance_is_as_tight_as_one_that_takes_all_that_it_takes() {
        let tight = |one: (&str, f64), than: (&str, f64)| {
            let [a, b] = [one.0, than.0].map(|text| text.parse::<Tolerance>().unwrap());
            a.is_as_tight_as(Some(one.1), &b, Some(than.1))
        };
        assert!(tight(("10 %", 1.5), ("10 %", 1.5)) && tight(("5 %", 1.5), ("10 %", 1.5)));
        assert!(
            !tight(("15 %", 1.5), ("10 %", 1.5)) && !tight(("at least 0.9", 0.0), ("at least 0.95", 0.0))
        );
        assert!(
            tight(("0.30..0.60", 0.45), ("0.25..0.65", 0.45)) && tight(("0.28..0.32", 0.3), ("+- 0.02", 0.3))
        );
        assert!(tight(("order", 0.0), ("order", 0.0)) && !tight(("report", 0.0), ("order", 0.0)));
        assert!(tight(("10 %", 1.0), ("report", 1.0)));
    }

    #[test]
    fn nothing_holds_of_what_is_not_a_number() {
        for text in ["10 %", "+- 4", "exact", "at least 0", "at most 0", "-1..1", "shape", "as printed (1)"] {
            assert!(!holds(text, f64::NAN, 1.0), "{text}");
        }
        assert!(!Tolerance::Percent(10.0).holds(1.0, None));
    }

    #[test]
    fn tolerances_are_written_as_they_are_read() {
        for text in [
            "exact",
            "as printed (0.258)",
            "10 %",
            "+- 4",
            "at least 0.95",
            "at most 50",
            "0.55..0.7",
            "report",
        ] {
            assert_eq!(text.parse::<Tolerance>().unwrap().to_string(), text);
        }
        for bad in ["", "10", "about 3", "-5 %", "+- x", "0.7..0.5", "nan..1", "as printed 3", "at least inf"]
        {
            assert!(bad.parse::<Tolerance>().unwrap_err().to_string().contains("at most 50"), "{bad}");
        }
    }
}
