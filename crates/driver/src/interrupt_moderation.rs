//! Rests of the data thread, so that not every packet wakes it.
//!
//! A wake-up costs more than a packet: a few microseconds of CPU time, and 26 in some virtual machines. While the rounds are many, the
//! thread rests after each one, and then finds several packets at once, like a network card's driver that moderates its interrupts. It
//! rests no longer than the machines of both directions tolerate: by paced flows that are half a millisecond, and their round trip grows
//! by a third at most; by flows of an overlay, a part of what their window lasts. Pulls and trees, where each packet asks for the next,
//! are never held up. A short transfer is over before any rest begins, and packets that come by the hundred in a millisecond arrive
//! together anyway.

use headwater_units::{Duration, Time};

/// Rounds are counted over this.
const SPAN: Duration = Duration::from_millis(10);
/// Number of rounds in a rest from which on the thread rests, and below which it stops.
const MANY: f64 = 1.0;
const FEW: f64 = 0.25;
/// Number of datagrams in it from which on there are many in each round anyway, and both ends are busy: 2.4 Gbit/s in
/// packets of 1500 B.
const CROWDED: u64 = 2000;
/// A rest is at most this.
const LONGEST: Duration = Duration::from_millis(8);
/// Rounds are counted as in a rest of this length where one is shorter.
const LEAST_COUNTED: Duration = Duration::from_micros(500);
/// A shorter one costs what it saves.
const SHORTEST: Duration = Duration::from_micros(50);

/// When to rest, and for how long.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InterruptModeration {
    since: Time,
    rounds: u64,
    /// The socket's count of them, then.
    datagrams: u64,
    length: Option<Duration>,
    /// No round begins earlier.
    due: Time,
}

impl InterruptModeration {
    /// Notes that a round is over, and that the socket has moved `datagrams` since it was opened. For how long to rest
    /// before the next; `slack` says what the machines can bear.
    pub(crate) fn after_round(
        &mut self,
        now: Time,
        datagrams: u64,
        slack: impl FnOnce() -> Option<Duration>,
    ) -> Option<Duration> {
        self.rounds += 1;
        let elapsed = now.since(self.since);
        if elapsed >= SPAN {
            let often = if self.length.is_some() { FEW } else { MANY };
            let are_many = |length: &Duration| {
                self.rounds as f64 * length.max(&LEAST_COUNTED).as_secs_f64() >= often * elapsed.as_secs_f64()
            };
            let are_sparse = (datagrams - self.datagrams) * SPAN.as_nanos() < CROWDED * elapsed.as_nanos();
            let length = if are_sparse { slack() } else { None };
            let length = length.map(|slack| slack.min(LONGEST)).filter(|length| *length >= SHORTEST);
            self.length = length.filter(are_many);
            (self.since, self.rounds, self.datagrams) = (now, 0, datagrams);
        }
        let length = self.length?;
        let rest = self.due.since(now);
        self.due = self.due.max(now) + length;
        (rest >= SHORTEST / 2).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// Rounds of a thread that always has something to do after that time, over 100 ms; of these, the rests of the last
    /// 50 ms.
    fn rests(
        moderation: &mut InterruptModeration,
        every: Duration,
        slack: Option<Duration>,
    ) -> (u32, Vec<Duration>) {
        rests_among(moderation, every, slack, 30_000)
    }

    /// With this many datagrams a second.
    fn rests_among(
        moderation: &mut InterruptModeration,
        every: Duration,
        slack: Option<Duration>,
        datagrams: u64,
    ) -> (u32, Vec<Duration>) {
        let begin = moderation.since + SPAN;
        let (mut now, mut rounds, mut rests) = (begin, 0, Vec::new());
        while now < begin + us(100_000) {
            let moved = now.since(Time::ZERO).as_micros() * datagrams / 1_000_000;
            let rest = moderation.after_round(now, moved, || slack);
            if now >= begin + us(50_000) {
                rounds += 1;
                rests.extend(rest);
            }
            now = now + rest.unwrap_or_default() + every;
        }
        (rounds, rests)
    }

    #[test]
    fn whoever_is_woken_all_the_time_rests_as_long_as_its_flows_bear() {
        let mut moderation = InterruptModeration::default();
        let (rounds, rested) = rests(&mut moderation, us(40), Some(us(500)));
        assert!((99..=101).contains(&rounds), "{rounds}");
        assert!(rested.iter().all(|rest| *rest == us(460)), "{rested:?}");
        let (rounds, _) = rests(&mut moderation, us(40), Some(us(100)));
        assert!((499..=501).contains(&rounds), "{rounds}");
    }

    #[test]
    fn who_bears_more_is_woken_less() {
        let mut moderation = InterruptModeration::default();
        let (rounds, _) = rests(&mut moderation, us(600), Some(us(2000)));
        assert!((24..=26).contains(&rounds), "{rounds}");
        let (rounds, _) = rests(&mut moderation, us(600), Some(us(1_000_000)));
        assert!((6..=7).contains(&rounds), "{rounds}");
    }

    #[test]
    fn nobody_rests_who_is_woken_seldom_or_is_busy_or_must_not_be_late() {
        assert_eq!(rests(&mut InterruptModeration::default(), us(1100), Some(us(1000))).1, []);
        assert_eq!(
            rests(&mut InterruptModeration::default(), us(600), Some(us(500))).1,
            [],
            "each round takes longer than a rest"
        );
        assert_eq!(rests(&mut InterruptModeration::default(), us(40), Some(Duration::ZERO)).1, []);
        assert_eq!(rests(&mut InterruptModeration::default(), us(40), None).1, []);
    }

    #[test]
    fn nobody_rests_while_datagrams_come_in_bursts() {
        assert_eq!(rests_among(&mut InterruptModeration::default(), us(40), Some(us(1000)), 300_000).1, []);
        assert!(
            !rests_among(&mut InterruptModeration::default(), us(40), Some(us(1000)), 100_000).1.is_empty()
        );
    }

    #[test]
    fn it_stops_when_there_is_less_to_do_and_not_because_it_rests() {
        let mut moderation = InterruptModeration::default();
        assert!(!rests(&mut moderation, us(40), Some(us(500))).1.is_empty());
        assert!(
            !rests(&mut moderation, us(400), Some(us(500))).1.is_empty(),
            "2500 rounds a second, rested or not"
        );
        assert_eq!(rests(&mut moderation, us(5000), Some(us(500))).1, []);
    }

    #[test]
    fn the_first_milliseconds_are_not_slowed_down() {
        let mut moderation = InterruptModeration::default();
        let begin = Time::ZERO + us(1_000_000);
        assert_eq!(moderation.after_round(begin, 0, || Some(us(500))), None, "one round in a second");
        for round in 1..200 {
            assert_eq!(
                moderation.after_round(begin + us(round * 40), round, || Some(us(500))),
                None,
                "round {round}"
            );
        }
    }
}
