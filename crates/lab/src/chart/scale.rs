//! From numbers to places on an axis: ranges, ticks and their labels.

/// An axis: which numbers it spans, and what is written on it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    /// Place and label.
    pub(super) ticks: Vec<(f64, String)>,
    /// Places between them that get a short mark.
    pub(super) minor: Vec<f64>,
    /// A factor that all labels leave out, as in `×1e6`; empty for 1.
    pub(super) factor: String,
}

/// More ticks than this crowd an axis.
const MOST_TICKS: f64 = 7.0;

impl Scale {
    /// An axis for these numbers; those that cannot be shown on it (not finite, or not positive on a logarithmic one)
    /// do not count. `from_zero` has it begin at zero, for bars.
    pub(super) fn for_values(values: impl Iterator<Item = f64>, log: bool, from_zero: bool) -> Scale {
        let shown = values.filter(|v| v.is_finite() && (!log || *v > 0.0));
        let (low, high) =
            shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        match (low <= high, log) {
            (false, true) => Scale::logarithmic(0.1, 10.0),
            (false, false) => Scale::linear(0.0, 1.0, true),
            (true, true) => Scale::logarithmic(low, high),
            (true, false) => Scale::linear(low, high, from_zero),
        }
    }

    /// Places 0, 1, ... with names, half a place of room at each side.
    pub(super) fn for_names(names: &[String]) -> Scale {
        let ticks = names.iter().enumerate().map(|(place, name)| (place as f64, name.clone())).collect();
        let high = names.len().max(1) as f64 - 0.5;
        Scale { low: -0.5, high, log: false, ticks, minor: Vec::new(), factor: String::new() }
    }

    fn linear(low: f64, high: f64, from_zero: bool) -> Scale {
        let (mut low, mut high) = (low, high);
        if from_zero {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if low == high {
            // One value: room for it on either side, and none that hides its size.
            let room = if low == 0.0 { 1.0 } else { low.abs() * 0.5 };
            (low, high) = (low - room, high + room);
        }
        // A few per cent of room, but none below an axis that begins at zero.
        let room = (high - low) * 0.04;
        let near_zero = |end: f64| end.abs() < (high - low) * 0.5;
        let bottom = if low >= 0.0 && near_zero(low) { 0.0 } else { low - room };
        let top = if high <= 0.0 && near_zero(high) { 0.0 } else { high + room };
        let step = nice_step((top - bottom) / MOST_TICKS);
        let power = common_power(bottom.abs().max(top.abs()));
        let unit = 10_f64.powi(power);
        let first = (bottom / step - 1e-9).ceil() as i64;
        let last = (top / step + 1e-9).floor() as i64;
        let decimals = decimals_of(step / unit);
        let tick = |i: i64| {
            let value = i as f64 * step;
            // Zero without a sign.
            (value, format!("{:.decimals$}", value / unit + 0.0))
        };
        Scale {
            low: bottom,
            high: top,
            log: false,
            ticks: (first..=last).map(tick).collect(),
            minor: Vec::new(),
            factor: if power == 0 { String::new() } else { format!("×1e{power}") },
        }
    }

    fn logarithmic(low: f64, high: f64) -> Scale {
        let (low, high) = (low.log10(), high.log10());
        let room = if high > low { (high - low) * 0.04 } else { 0.15 };
        let (bottom, top) = (10_f64.powf(low - room), 10_f64.powf(high + room));
        let decades = (bottom.log10().floor() as i32)..=(top.log10().ceil() as i32);
        let inside = |v: &f64| (bottom..=top).contains(v);
        let full: Vec<f64> = decades.clone().map(|d| 10_f64.powi(d)).filter(inside).collect();
        // Decades alone would leave a short axis nearly blank, and a long one crowded.
        let every = full.len().div_ceil(8).max(1);
        let multiples: &[f64] = match full.len() {
            0 | 1 => &[1.0, 2.0, 3.0, 5.0],
            2 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let ticks = decades.clone().flat_map(|d| multiples.iter().map(move |m| (d, m * 10_f64.powi(d))));
        let ticks = ticks.filter(|(d, v)| inside(v) && (every == 1 || d.rem_euclid(every as i32) == 0));
        let ticks: Vec<(f64, String)> = ticks.map(|(_, v)| (v, log_label(v))).collect();
        let minor = decades.flat_map(|d| (1..10).map(move |m| f64::from(m) * 10_f64.powi(d)));
        let minor = minor.filter(|v| inside(v) && !ticks.iter().any(|(t, _)| (t - v).abs() < v * 1e-9));
        let minor = if every == 1 { minor.collect() } else { full };
        Scale { low: bottom, high: top, log: true, ticks, minor, factor: String::new() }
    }

    /// Where a number is, 0 at the low end and 1 at the high end; nothing if it cannot be shown.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let part = if self.log {
            if value <= 0.0 {
                return None;
            }
            (value.log10() - self.low.log10()) / (self.high.log10() - self.low.log10())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        // A little beyond is kept: it is cut at the frame.
        part.is_finite().then(|| part.clamp(-1.0, 2.0))
    }
}

/// The least of 1, 2, 2.5, 5 times a power of ten that is no less than this.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps.iter().map(|s| s * power).find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

/// A power of a thousand for numbers too long to be written at every tick.
fn common_power(largest: f64) -> i32 {
    let power = largest.log10().floor();
    if (-3.0..5.0).contains(&power) { 0 } else { (power / 3.0).floor() as i32 * 3 }
}

fn decimals_of(step: f64) -> usize {
    (0..9)
        .find(|d| {
            let scaled = step * 10_f64.powi(*d);
            (scaled - scaled.round()).abs() < 1e-6 * scaled
        })
        .unwrap_or(9) as usize
}

fn log_label(value: f64) -> String {
    let power = (value.log10() + 1e-9).floor() as i32;
    if (-3..4).contains(&power) {
        return format!("{value:.*}", usize::try_from(-power).unwrap_or(0));
    }
    // Few fonts have raised digits and a raised minus.
    format!("{}e{power}", (value / 10_f64.powi(power)).round())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64], log: bool, from_zero: bool) -> Vec<String> {
        let scale = Scale::for_values(values.iter().copied(), log, from_zero);
        scale.ticks.into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_their_labels_as_long_as_needed() {
        assert_eq!(labels(&[0.0, 1.0], false, false), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&[1.0, 9.0], false, false), ["0", "2", "4", "6", "8"]);
        assert_eq!(labels(&[0.5, 0.99], false, false), ["0.5", "0.6", "0.7", "0.8", "0.9", "1.0"]);
        assert_eq!(labels(&[1.4, 1.6], false, true)[0], "0.00", "bars begin at zero");
        assert_eq!(labels(&[-3.0, 2.0], false, false)[0], "-3");
    }

    #[test]
    fn large_numbers_leave_out_a_common_factor() {
        let scale = Scale::for_values([0.0, 2e6].into_iter(), false, false);
        assert_eq!((scale.factor.as_str(), scale.ticks.last().unwrap().1.as_str()), ("×1e6", "2.0"));
        let scale = Scale::for_values([2e-5, 9e-5].into_iter(), false, false);
        assert_eq!(scale.factor, "×1e-6");
        assert_eq!(scale.ticks[1].1, "20");
    }

    #[test]
    fn logarithmic_ticks_are_decades_or_finer_where_there_are_few() {
        assert_eq!(labels(&[1e-5, 0.1], true, false), ["1e-5", "1e-4", "0.001", "0.01", "0.1"]);
        assert_eq!(labels(&[1.0, 30.0], true, false), ["1", "2", "5", "10", "20"]);
        assert!(labels(&[1e-9, 1e9], true, false).len() <= 9);
        let scale = Scale::for_values([0.0, -1.0, 10.0, 1000.0].into_iter(), true, false);
        assert_eq!(scale.place(0.0), None);
        assert!(scale.place(10.0).unwrap() > 0.0 && scale.place(1000.0).unwrap() < 1.0);
    }

    #[test]
    fn every_value_lies_within_its_axis() {
        for values in [[3.0, 3.0], [0.0, 0.0], [1e9, 1.0], [-5.0, -4.9], [1e-12, 2e-12]] {
            let scale = Scale::for_values(values.into_iter(), false, false);
            for value in values {
                let place = scale.place(value).unwrap();
                assert!((0.0..=1.0).contains(&place), "{values:?}: {place}");
            }
            assert!((1..=9).contains(&scale.ticks.len()), "{values:?}: {:?}", scale.ticks);
        }
    }

    #[test]
    fn nothing_to_show_is_an_empty_frame() {
        assert_eq!(labels(&[f64::NAN], false, false).len(), 6);
        assert!(!labels(&[], true, false).is_empty());
    }
}
