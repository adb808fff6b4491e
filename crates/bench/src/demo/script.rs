//! Events of a demo, and how fast the object could have come at best.

use headwater_api::AppError;
use headwater_units::{BitRate, Bytes, Duration};

use super::DemoOptions;

/// Something happens to a source. Sources count from zero, those of `--rates` first, then those of `--join`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// It vanishes without a word.
    Vanish,
    /// It appears.
    Join,
    /// Its uplink changes.
    Rerate(BitRate),
}

/// A happening, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Since the first request.
    pub(crate) at: Duration,
    pub(crate) source: usize,
    pub(crate) what: Happening,
}

/// The sources and everything that happens to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    /// Uplinks at first, of those that are there from the start and of those that join.
    pub(crate) rates: Vec<BitRate>,
    /// How many are there from the start.
    pub(crate) present: usize,
    /// In the order of their times.
    pub(crate) events: Vec<Event>,
}

impl Script {
    /// Reads it off the options.
    ///
    /// # Errors
    /// [`AppError::Usage`] for a source that does not exist, or not yet or no longer when something happens to it.
    pub(crate) fn of(options: &DemoOptions) -> Result<Self, AppError> {
        let present = options.rates.len();
        if present == 0 {
            return Err(AppError::Usage("a demo needs at least one source: --rates 100".to_owned()));
        }
        let joins = options.joins.iter().enumerate();
        let joins = joins.map(|(i, (_, at))| Event { at: *at, source: present + i, what: Happening::Join });
        let rerates = options.rerates.iter();
        let rerates = rerates.map(|(source, at, rate)| Event {
            at: *at,
            source: *source,
            what: Happening::Rerate(*rate),
        });
        let kills = options.kills.iter();
        let kills = kills.map(|(source, at)| Event { at: *at, source: *source, what: Happening::Vanish });
        let mut events: Vec<Event> = joins.chain(rerates).chain(kills).collect();
        // Stable: what happens at the same time happens in the order join, change, end.
        events.sort_by_key(|event| event.at);
        let rates: Vec<BitRate> =
            options.rates.iter().chain(options.joins.iter().map(|(rate, _)| rate)).copied().collect();
        let script = Script { rates, present, events };
        script.check()?;
        Ok(script)
    }

    fn check(&self) -> Result<(), AppError> {
        let mut there: Vec<bool> = (0..self.rates.len()).map(|source| source < self.present).collect();
        for Event { at, source, what } in &self.events {
            let Some(there) = there.get_mut(*source) else {
                return Err(AppError::Usage(format!(
                    "no source {source}: there are {}, counted from 0, those of --rates first, then those of --join",
                    self.rates.len()
                )));
            };
            match what {
                Happening::Join => *there = true,
                _ if !*there => {
                    let at = at.as_secs_f64();
                    return Err(AppError::Usage(format!(
                        "source {source} is not there at {at} s, so nothing can happen to it"
                    )));
                }
                Happening::Vanish => *there = false,
                Happening::Rerate(_) => {}
            }
        }
        Ok(())
    }

    /// How long `size` takes if every source sends at its full rate from the first request, or from when it joins, until it
    /// vanishes, and the receiver takes all it has room for on its downlink (`None`: no limit). `None` if that never moves
    /// all of it.
    pub(crate) fn ideal_seconds(&self, size: Bytes, downlink: Option<BitRate>) -> Option<f64> {
        self.ideal_after(&self.events, size, downlink)
    }

    /// The same with these events, in the order of their times, instead of the script's.
    pub(crate) fn ideal_after(
        &self,
        events: &[Event],
        size: Bytes,
        downlink: Option<BitRate>,
    ) -> Option<f64> {
        let most = downlink.map_or(f64::INFINITY, |rate| rate.get() as f64);
        let mut rates: Vec<f64> = self.rates.iter().map(|rate| rate.get() as f64).collect();
        let mut now: Vec<f64> = rates.clone();
        now[self.present..].fill(0.0);
        let (mut at, mut left) = (0.0, size.get() as f64 * 8.0);
        for event in events {
            let moved = now.iter().sum::<f64>().min(most) * (event.at.as_secs_f64() - at);
            if left <= moved {
                break;
            }
            left -= moved;
            at = event.at.as_secs_f64();
            match event.what {
                Happening::Join => now[event.source] = rates[event.source],
                Happening::Vanish => now[event.source] = 0.0,
                Happening::Rerate(rate) => {
                    rates[event.source] = rate.get() as f64;
                    now[event.source] = rates[event.source];
                }
            }
        }
        let sum = now.iter().sum::<f64>().min(most);
        (sum > 0.0).then(|| at + left / sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(n: u64) -> BitRate {
        BitRate::new(n * 1_000_000)
    }

    fn at(source: usize, seconds: u64, what: Happening) -> Event {
        Event { at: Duration::from_secs(seconds), source, what }
    }

    /// 500 Mbit, that is one second of all three together.
    const SIZE: Bytes = Bytes::new(62_500_000);

    fn ideal(seconds_of_size: u64, joining: usize, events: Vec<Event>) -> Option<f64> {
        let mut rates = vec![mbit(100), mbit(100), mbit(300)];
        rates.extend(vec![mbit(500); joining]);
        let script = Script { rates, present: 3, events };
        script.check().unwrap();
        script.ideal_seconds(SIZE * seconds_of_size, None)
    }

    #[test]
    fn ideal_is_size_over_the_sum_of_the_rates() {
        assert_eq!(ideal(4, 0, vec![]), Some(4.0));
    }

    #[test]
    fn what_happens_after_the_ideal_end_does_not_count() {
        assert_eq!(ideal(2, 0, vec![at(2, 3, Happening::Vanish)]), Some(2.0));
    }

    #[test]
    fn ideal_counts_each_source_only_while_it_is_there() {
        // 2 s at 500, then 1000 Mbit more at 200.
        assert_eq!(ideal(4, 0, vec![at(2, 2, Happening::Vanish)]), Some(7.0));
        // 2 s at 500, then at 1000.
        assert_eq!(ideal(4, 1, vec![at(3, 2, Happening::Join)]), Some(3.0));
        // 1 s at 500, 1 s at 1000, 500 Mbit more at 250.
        let both = vec![
            at(3, 1, Happening::Join),
            at(3, 2, Happening::Vanish),
            at(2, 2, Happening::Rerate(mbit(50))),
        ];
        assert_eq!(ideal(4, 1, both), Some(4.0));
    }

    #[test]
    fn a_receiver_with_less_room_than_the_sources_sets_the_ideal_while_it_has_less() {
        let rates = vec![mbit(100), mbit(100), mbit(300)];
        let script = Script { rates, present: 3, events: vec![at(2, 2, Happening::Vanish)] };
        assert_eq!(script.ideal_seconds(SIZE, Some(mbit(250))), Some(2.0));
        // 2 s at 250, then 500 Mbit more at 200.
        assert_eq!(script.ideal_seconds(SIZE * 2, Some(mbit(250))), Some(4.5));
    }

    #[test]
    fn without_sources_it_never_ends() {
        let all = (0..3).map(|source| at(source, 1, Happening::Vanish)).collect();
        assert_eq!(ideal(4, 0, all), None);
    }

    #[test]
    fn nothing_happens_to_sources_that_are_not_there() {
        let refused = |events: Vec<Event>| {
            let script = Script { rates: vec![mbit(1); 3], present: 2, events };
            script.check().unwrap_err().to_string()
        };
        assert!(refused(vec![at(3, 1, Happening::Vanish)]).contains("no source 3"));
        assert!(
            refused(vec![at(2, 1, Happening::Vanish), at(2, 2, Happening::Join)])
                .contains("source 2 is not there")
        );
        assert!(
            refused(vec![at(1, 1, Happening::Vanish), at(1, 2, Happening::Rerate(mbit(2)))])
                .contains("not there at 2 s")
        );
    }
}
