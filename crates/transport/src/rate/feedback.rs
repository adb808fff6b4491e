//! When a receiver tells its source what the path would grant (PAM Alg. 1).
//!
//! ```text
//!   offer --min(b*)--> differs by gamma, or a random draw, or ... --> waits a random time in [0, RTT] --> the newest offer leaves
//!                      `--- nothing new --> kept                      at most one waits
//! ```
//! b* is what the receiver can take in. A NACK takes the place of the feedback that waits, and leaves at once (lines 2-4).
//!
//! Differs from the paper, whose lost feedback is made good by random draws alone:
//! - A source that sends faster than the last offer has not heard it: it is said again after two round trips.
//! - A source that probes although something was offered may not have heard it either, or waits for others: the fourth such probe is
//!   answered again, the eighth, the sixteenth, and so on.
//! - Something is said every [`keep_alive`](RateReceiverConfig::keep_alive) at least.

use headwater_units::{BitRate, Duration, Time};
use headwater_wire::{RateFeedback, Scheduling};
use rand::Rng;
use rand_chacha::ChaCha12Rng;

use super::RateReceiverConfig;
use super::arrivals::RESTART;

/// Number of probes without news after which they are not answered again; a source that waits for others sends some.
const FIRST_REPEAT: u32 = 4;

/// The offers of one flow.
#[derive(Debug)]
pub(super) struct Feedback {
    config: RateReceiverConfig,
    /// τ_i = τ_b / |D_i|.
    tau: f64,
    /// The offer in the last feedback, or in the one that is due (PAM b_last).
    last: BitRate,
    newest: Option<Newest>,
    /// When feedback leaves that waits.
    pending: Option<Time>,
    said_at: Option<Time>,
    /// Probes since an offer was news.
    probes: u32,
}

/// The newest datagram.
#[derive(Clone, Copy, Debug)]
struct Newest {
    number: u32,
    at: Time,
    scheduling: Scheduling,
}

/// A datagram as far as feedback is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offered {
    pub(super) number: u32,
    pub(super) is_probe: bool,
    /// With the receiver's own limit on the offer (Alg. 1, line 1).
    pub(super) scheduling: Scheduling,
    /// The longest round trip to any receiver, as the source says.
    pub(super) round_trip: Duration,
}

impl Feedback {
    /// Of a transfer to `receivers` receivers.
    pub(super) fn new(config: RateReceiverConfig, receivers: u16) -> Self {
        let tau = (config.tau / f64::from(receivers.max(1))).clamp(0.0, 1.0);
        Feedback { config, tau, last: BitRate::ZERO, newest: None, pending: None, said_at: None, probes: 0 }
    }

    /// When feedback is due.
    pub(super) fn due(&self) -> Option<Time> {
        self.pending
    }

    /// Whether there is an offer that feedback could carry.
    pub(super) fn has_offer(&self) -> bool {
        self.newest.is_some()
    }

    /// A datagram has come (Alg. 1, lines 5-7).
    pub(super) fn on_datagram(&mut self, now: Time, it: &Offered, rng: &mut ChaCha12Rng) {
        // One that was overtaken says nothing of the path as it is now.
        if self.newest.is_some_and(|newest| (1..RESTART).contains(&newest.number.wrapping_sub(it.number))) {
            return;
        }
        self.newest = Some(Newest { number: it.number, at: now, scheduling: it.scheduling });
        let offer = it.scheduling.offer();
        let is_news = self.is_news(offer);
        self.probes = if is_news { 0 } else { self.probes.saturating_add(u32::from(it.is_probe)) };
        if self.pending.is_none() && (is_news || self.is_unheard(now, it) || self.draws(rng)) {
            let delay = rng.random_range(0..=it.round_trip.as_nanos());
            self.pending = Some(now + Duration::from_nanos(delay));
        }
        if self.pending.is_some() {
            self.last = offer;
        }
    }

    fn is_news(&self, offer: BitRate) -> bool {
        offer.get().abs_diff(self.last.get()) as f64 >= self.config.gamma * self.last.get() as f64
    }

    fn draws(&self, rng: &mut ChaCha12Rng) -> bool {
        rng.random_bool(self.tau)
    }

    /// Whether the source does not know the last feedback, as it seems, or has to hear something.
    fn is_unheard(&self, now: Time, it: &Offered) -> bool {
        let Some(said_at) = self.said_at else { return true };
        let span = now.since(said_at);
        let is_too_fast = it.scheduling.rate() > self.last && span >= it.round_trip * 2;
        is_too_fast
            || it.is_probe && self.probes >= FIRST_REPEAT && self.probes.is_power_of_two()
            || span >= self.config.keep_alive
    }

    /// The feedback that is due now, about the newest datagram; `None` if none has come.
    pub(super) fn say(&mut self, now: Time, lost: u64) -> Option<RateFeedback> {
        let Newest { number, at, scheduling } = self.newest?;
        (self.pending, self.said_at) = (None, Some(now));
        self.last = scheduling.offer();
        Some(RateFeedback { number, held: now.since(at), lost: lost as u32, scheduling })
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::Rank;
    use headwater_wire::RateUnit;
    use rand::SeedableRng;

    use super::*;

    const RTT: Duration = Duration::from_micros(100);
    const UNIT: u64 = 128;

    fn rng() -> ChaCha12Rng {
        ChaCha12Rng::from_seed([5; 32])
    }

    fn at(us: u64) -> Time {
        Time::ZERO + Duration::from_micros(us)
    }

    /// A symbol, or a probe, sent at `rate` units, that is offered `offer` units.
    fn offered(number: u32, is_probe: bool, rate: u64, offer: u64) -> Offered {
        let link = BitRate::new(2_000_000_000);
        let rates = [rate, offer].map(|units| BitRate::new(units * UNIT));
        let scheduling = Scheduling::new(RateUnit::finest(link), Rank::FIRST, rates[0], rates[1]);
        Offered { number, is_probe, scheduling, round_trip: RTT }
    }

    /// Feedback that leaves when a datagram comes every 10 us: the offers in units, and when.
    fn said(config: RateReceiverConfig, datagrams: impl IntoIterator<Item = Offered>) -> Vec<(u64, u64)> {
        let (mut feedback, mut rng, mut said) = (Feedback::new(config, 1), rng(), Vec::new());
        for (nth, it) in datagrams.into_iter().enumerate() {
            let now = at(10 * nth as u64);
            while let Some(due) = feedback.due().filter(|due| *due <= now) {
                let it = feedback.say(due, 0).unwrap();
                said.push((due.since(Time::ZERO).as_micros(), it.scheduling.offer().get() / UNIT));
                assert_eq!(feedback.due(), None, "one waits at a time");
            }
            feedback.on_datagram(now, &it, &mut rng);
        }
        said
    }

    fn no_draws() -> RateReceiverConfig {
        RateReceiverConfig { tau: 0.0, keep_alive: Duration::from_secs(1), ..RateReceiverConfig::default() }
    }

    #[test]
    fn only_an_offer_that_changes_by_gamma_is_fed_back() {
        let steady = (0..1000).map(|nth| offered(nth, false, 1000, 1000 + u64::from(nth % 49)));
        assert_eq!(said(no_draws(), steady).len(), 1, "the first of all; the others are within a twentieth");
        let changes = (0..1000).map(|nth| offered(nth, false, 0, if nth < 500 { 1000 } else { 1050 }));
        let said = said(no_draws(), changes);
        assert_eq!(said.iter().map(|it| it.1).collect::<Vec<_>>(), [1000, 1050]);
        assert!((5000..5100).contains(&said[1].0), "within a round trip");
    }

    #[test]
    fn what_waits_leaves_with_the_newest_offer() {
        let rising = (0..200).map(|nth| offered(nth, false, 0, 1000 + 100 * u64::from(nth)));
        for (us, offer) in said(no_draws(), rising) {
            assert_eq!(offer, 1000 + 100 * (us / 10), "at {us} us");
        }
    }

    #[test]
    fn delays_are_random_and_at_most_a_round_trip() {
        let mut rng = rng();
        let delay = |rng: &mut ChaCha12Rng| {
            let mut feedback = Feedback::new(no_draws(), 1);
            feedback.on_datagram(at(0), &offered(0, false, 0, 1), rng);
            feedback.due().unwrap().since(at(0))
        };
        let delays: Vec<_> = (0..1000).map(|_| delay(&mut rng).as_nanos()).collect();
        assert!(delays.iter().all(|delay| *delay <= RTT.as_nanos()));
        let mean = delays.iter().sum::<u64>() / 1000;
        assert!((47_000..53_000).contains(&mean), "{mean}");
    }

    #[test]
    fn a_packet_is_answered_with_the_probability_of_tau_shared_by_the_group() {
        let answers = |receivers| {
            let config = RateReceiverConfig { tau: 0.2, ..no_draws() };
            let (mut feedback, mut rng) = (Feedback::new(config, receivers), rng());
            (0..10_000)
                .filter(|&nth| {
                    // Far apart, so that none waits when the next one comes.
                    feedback.on_datagram(at(u64::from(nth)), &offered(nth, false, 0, 1000), &mut rng);
                    feedback.due().is_some() && feedback.say(at(u64::from(nth)), 0).is_some()
                })
                .count()
        };
        assert!((1850..2150).contains(&answers(1)), "{}", answers(1));
        assert!((160..240).contains(&answers(10)), "{}", answers(10));
    }

    #[test]
    fn a_source_that_is_faster_than_the_offer_is_told_again() {
        let deaf = (0..200).map(|nth| offered(nth, false, 1000, 500));
        let said = said(no_draws(), deaf);
        assert!((6..=10).contains(&said.len()), "every two round trips and the delay, for 2 ms: {said:?}");
    }

    #[test]
    fn probes_that_bring_nothing_new_are_answered_ever_more_rarely() {
        let probes = |offer| (0..100).map(move |nth| offered(nth, true, 0, offer));
        let told = said(no_draws(), probes(1000)).len();
        assert!((3..=9).contains(&told), "{told}");
        // Algorithm 1 answers whenever zero is offered again, since any change is a twentieth of nothing.
        assert!(said(no_draws(), probes(0)).len() > 9);
    }

    #[test]
    fn something_is_said_every_tenth_of_a_second() {
        let config = RateReceiverConfig { tau: 0.0, ..RateReceiverConfig::default() };
        let steady = (0..100_000).map(|nth| offered(nth, false, 1000, 1000));
        let said = said(config, steady);
        assert_eq!(said.len(), 10, "{said:?}");
    }

    #[test]
    fn a_datagram_that_was_overtaken_says_nothing() {
        let (mut feedback, mut rng) = (Feedback::new(no_draws(), 1), rng());
        feedback.on_datagram(at(0), &offered(u32::MAX, false, 0, 10), &mut rng);
        feedback.on_datagram(at(10), &offered(1, false, 0, 20), &mut rng);
        feedback.on_datagram(at(20), &offered(0, false, 0, 90), &mut rng);
        assert_eq!(feedback.newest.unwrap().number, 1);
        let said = feedback.say(at(25), 3).unwrap();
        assert_eq!((said.number, said.lost, said.held), (1, 3, Duration::from_micros(15)));
        assert_eq!(said.scheduling.offer().get(), 20 * UNIT);
    }
}
