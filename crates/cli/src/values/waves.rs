//! Waves of a rollout, as people write them: `5%,25%,100%`, or `1,10,100%`.

use std::str::FromStr;

use headwater_api::Wave;

use super::{ValueError, bad};

/// One wave: a part of all receivers, or a number of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WaveEnd(pub(crate) Wave);

impl FromStr for WaveEnd {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let text = text.trim();
        let wave = match text.strip_suffix('%') {
            Some(percent) => percent
                .trim()
                .parse::<f64>()
                .ok()
                .filter(|percent| *percent > 0.0 && *percent <= 100.0)
                .map(|percent| Wave::Part(percent / 100.0)),
            None => text.parse::<u32>().ok().filter(|nodes| *nodes > 0).map(Wave::Nodes),
        };
        match wave {
            Some(wave) => Ok(WaveEnd(wave)),
            None => bad(format!(
                "'{text}' is no wave: a part of the receivers, as in 5%, or a number of them, as in 3, is expected"
            )),
        }
    }
}

/// Whether each wave is larger than the one before, as far as that is known without the number of receivers.
///
/// # Errors
/// One is not.
pub(crate) fn growing(waves: &[WaveEnd]) -> Result<Vec<Wave>, ValueError> {
    let grows = |pair: &[WaveEnd]| match (pair[0].0, pair[1].0) {
        (Wave::Part(a), Wave::Part(b)) => a < b,
        (Wave::Nodes(a), Wave::Nodes(b)) => a < b,
        _ => true,
    };
    match waves.windows(2).all(grows) {
        true => Ok(waves.iter().map(|wave| wave.0).collect()),
        false => bad(
            "each wave says how much of the receivers have the object after it: as in 5%,25%,100% they grow",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waves(text: &str) -> Result<Vec<Wave>, String> {
        let waves: Result<Vec<WaveEnd>, ValueError> = text.split(',').map(str::parse).collect();
        waves.and_then(|waves| growing(&waves)).map_err(|error| error.to_string())
    }

    #[test]
    fn waves_are_parts_or_numbers_that_grow() {
        assert_eq!(waves("5%, 25 %,100%"), Ok(vec![Wave::Part(0.05), Wave::Part(0.25), Wave::Part(1.0)]));
        assert_eq!(waves("1,10,100%"), Ok(vec![Wave::Nodes(1), Wave::Nodes(10), Wave::Part(1.0)]));
        for text in ["0%", "101%", "0", "-1", "5.5", "five", "%", "", "nan%"] {
            assert!(waves(text).unwrap_err().contains("is no wave"), "{text}");
        }
        assert!(waves("25%,5%").unwrap_err().contains("they grow"));
        assert!(waves("3,3").unwrap_err().contains("they grow"));
    }
}
