//! Faults as people type them.

use headwater_fabric::LinkRate;
use headwater_switch::LinkChange;
use headwater_units::{Bytes, Duration};

use super::EmulateError;

const FORMS: &str = "loss 1%, rate 5Mbit/s, down, up, duplicate 1%, reorder 1% 2ms, drop-next 100";

/// Reads one; `packet` is the length that rates in packets per second are for.
pub(super) fn read(words: &[String], packet: Bytes) -> Result<LinkChange, EmulateError> {
    let wrong = |what: String| EmulateError::Fault(format!("{what}; write one of: {FORMS}"));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let quantity = |error: headwater_units::ParseQuantityError| wrong(error.to_string());
    Ok(match words[..] {
        ["loss", share] => LinkChange::Loss(chance(share).map_err(wrong)?),
        ["duplicate", share] => LinkChange::Duplicate(chance(share).map_err(wrong)?),
        ["reorder", share, by] => {
            LinkChange::Reorder(chance(share).map_err(wrong)?, by.parse::<Duration>().map_err(quantity)?)
        }
        ["rate", rate] => LinkChange::Rate(rate.parse::<LinkRate>().map_err(quantity)?.resolve(packet)),
        ["drop-next", count] => {
            let no_count = |_| wrong(format!("'{count}' is no number of packets"));
            LinkChange::DropNext(count.parse().map_err(no_count)?)
        }
        ["down"] => LinkChange::Down(true),
        ["up"] => LinkChange::Down(false),
        _ => return Err(wrong(format!("'{}' is no fault", words.join(" ")))),
    })
}

/// `1%` or `0.01`.
fn chance(text: &str) -> Result<f64, String> {
    let (number, of) = text.trim().strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = number.trim().parse::<f64>().map(|number| number / of).ok();
    share.filter(|share| (0.0..=1.0).contains(share)).ok_or(format!("'{text}' is no share of packets"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_units::BitRate;

    fn of(text: &str) -> Result<LinkChange, EmulateError> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        read(&words, Bytes::new(1250))
    }

    #[test]
    fn every_form_is_read() {
        for (text, wanted) in [
            ("loss 1%", LinkChange::Loss(0.01)),
            ("loss 0", LinkChange::Loss(0.0)),
            ("loss 100%", LinkChange::Loss(1.0)),
            ("rate 5Mbit/s", LinkChange::Rate(BitRate::new(5_000_000))),
            ("rate 1kpps", LinkChange::Rate(BitRate::new(10_000_000))),
            ("down", LinkChange::Down(true)),
            ("up", LinkChange::Down(false)),
            ("duplicate 0.5", LinkChange::Duplicate(0.5)),
            ("reorder 2% 2ms", LinkChange::Reorder(0.02, Duration::from_millis(2))),
            ("drop-next 100", LinkChange::DropNext(100)),
        ] {
            assert_eq!(of(text).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_fault_is_named_with_the_forms_that_are() {
        for bad in [
            "",
            "lose 1%",
            "loss",
            "loss 101%",
            "loss x",
            "loss NaN",
            "rate fast",
            "drop-next -1",
            "down now",
        ] {
            let error = of(bad).unwrap_err().to_string();
            assert!(error.contains(FORMS), "{bad}: {error}");
        }
    }
}
