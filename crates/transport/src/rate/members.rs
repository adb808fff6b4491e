//! The receivers of a transfer: what each would take, how far away it is, and whether it is there (PAM §III-A).
//!
//! ```text
//!   receiver 1:  offers 400 Mbit/s  \
//!   receiver 2:  offers 250 Mbit/s   > r = min of the offers = 0, until receiver 3 has said something, or is left behind
//!   receiver 3:  has said nothing   /
//! ```

use headwater_units::{BitRate, Duration, FlowId, Time};

use super::watch::{Heard, Watch};
use super::{FallbackConfig, RateSourceConfig};
use headwater_flow::WhyFallback;
use headwater_flow::rtt::{Rtt, RttConfig};

/// The receivers that are served together. One alone is served by its own flow.
#[derive(Debug)]
pub(super) struct Members {
    attached: Vec<Member>,
    /// Flows that belong to the group and are not over, attached or not.
    known: Vec<FlowId>,
    /// Silence after which a receiver is behind, while others are not silent.
    patience: Duration,
    /// Since when some of them have been heard without such a gap.
    speaking_since: Option<Time>,
}

#[derive(Debug)]
struct Member {
    flow: FlowId,
    /// Rate that it would take (PAM b_x); none before it has said so.
    offer: Option<BitRate>,
    /// The newest packet that it has answered.
    number: u64,
    rtt: Rtt,
    /// When it said something last.
    heard: Option<Time>,
    watch: Watch,
}

/// Members to be left behind, and when to look for such members again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Silence {
    pub(super) detached: Vec<FlowId>,
    pub(super) look_at: Option<Time>,
}

impl Members {
    pub(super) fn new(flows: &[FlowId], patience: Duration) -> Self {
        let member = |&flow| Member {
            flow,
            offer: None,
            number: 0,
            rtt: Rtt::new(RttConfig::default()),
            heard: None,
            watch: Watch::default(),
        };
        Members {
            attached: flows.iter().map(member).collect(),
            known: flows.to_vec(),
            patience,
            speaking_since: None,
        }
    }

    fn find(&mut self, flow: FlowId) -> Option<&mut Member> {
        self.attached.iter_mut().find(|member| member.flow == flow)
    }

    /// Receivers that are served.
    pub(super) fn len(&self) -> usize {
        self.attached.len()
    }

    /// The rate at which all of them may be sent to: the least offer (PAM §III-A).
    pub(super) fn rate(&self) -> BitRate {
        let offers = self.attached.iter().map(|member| member.offer.unwrap_or(BitRate::ZERO));
        offers.min().unwrap_or(BitRate::ZERO)
    }

    /// The receiver that offers least, and how much, once all have offered something.
    pub(super) fn least(&self) -> Option<(FlowId, BitRate)> {
        let offers: Option<Vec<_>> =
            self.attached.iter().map(|member| Some((member.flow, member.offer?))).collect();
        offers?.into_iter().min_by_key(|(_, offer)| *offer)
    }

    /// The longest round trip to any of them, as far as they are known.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.attached.iter().filter_map(|member| member.rtt.smoothed()).max()
    }

    /// The shortest that was ever measured to the farthest of them.
    pub(super) fn min_round_trip(&self) -> Option<Duration> {
        self.attached.iter().filter_map(|member| member.rtt.min()).max()
    }

    /// When any of them was heard last.
    pub(super) fn heard(&self) -> Option<Time> {
        self.attached.iter().filter_map(|member| member.heard).max()
    }

    /// One of them says something. False if it is none of them.
    pub(super) fn on_word(&mut self, now: Time, flow: FlowId) -> bool {
        let all_were_silent = self.heard().is_none_or(|newest| now.since(newest) >= self.patience);
        let Some(member) = self.find(flow) else { return false };
        member.heard = Some(now);
        if all_were_silent {
            self.speaking_since = Some(now);
        }
        true
    }

    /// How far away one of them is, as its path has shown before it was sent anything.
    pub(super) fn on_distance(&mut self, now: Time, flow: FlowId, round_trip: Duration) {
        if let Some(member) = self.find(flow).filter(|member| member.rtt.smoothed().is_none()) {
            member.rtt.on_sample(now, round_trip, Duration::ZERO);
        }
    }

    /// One of them answers a packet that was sent, and makes an offer. The rate may be another one now.
    pub(super) fn on_answer(
        &mut self,
        now: Time,
        flow: FlowId,
        heard: &Heard,
        offer: BitRate,
        fallback: Option<&FallbackConfig>,
    ) -> Option<WhyFallback> {
        let is_sent = self.rate() > BitRate::ZERO;
        let member = self.find(flow)?;
        if let Some(sample) = heard.sample {
            member.rtt.on_sample(now, sample, Duration::ZERO);
        }
        // An answer that was overtaken says nothing of the path as it is now.
        if member.offer.is_some() && heard.number < member.number {
            return None;
        }
        (member.offer, member.number) = (Some(offer), heard.number);
        if !is_sent {
            member.watch.on_pause();
            return None;
        }
        let rtt = member.rtt.smoothed()?;
        member.watch.on_answer(now, heard, rtt, fallback?)
    }

    /// Nothing was sent for a while, so nobody could answer.
    pub(super) fn forgive_silence(&mut self, now: Time) {
        self.attached.iter_mut().filter_map(|member| member.heard.as_mut()).for_each(|heard| *heard = now);
        self.speaking_since = self.speaking_since.map(|_| now);
    }

    /// Nobody has answered for long: nothing is offered any more.
    pub(super) fn withdraw_offers(&mut self) {
        self.attached.iter_mut().for_each(|member| member.offer = None);
    }

    /// One of them is served by its own flow from now on.
    pub(super) fn detach(&mut self, flow: FlowId) {
        self.attached.retain(|member| member.flow != flow);
    }

    /// A receiver's flow is over. True if it was the last one.
    pub(super) fn on_leave(&mut self, flow: FlowId) -> bool {
        self.detach(flow);
        self.known.retain(|known| *known != flow);
        self.known.is_empty()
    }

    /// Members that have been silent for too long while others spoke.
    pub(super) fn silent(&self, now: Time, config: &RateSourceConfig) -> Silence {
        let mut silence = Silence { detached: Vec::new(), look_at: None };
        let (Some(since), Some(newest)) = (self.speaking_since, self.heard()) else { return silence };
        let mut look_at = |at: Time| silence.look_at = silence.look_at.into_iter().chain([at]).min();
        for member in &self.attached {
            let until = match member.heard {
                // When all were silent, and some have come back, the others have as long to do so.
                Some(heard) => heard.max(since) + self.patience,
                None => since + config.assemble_for,
            };
            if now < until {
                look_at(until);
            } else if newest >= until {
                // Others have spoken until then. Where all are silent, nobody is behind the others.
                silence.detached.push(member.flow);
            } else {
                look_at(now + self.patience / 4);
            }
        }
        silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(flows: &[FlowId]) -> Members {
        Members::new(flows, RateSourceConfig::default().detach_after)
    }

    const A: FlowId = FlowId(1);
    const B: FlowId = FlowId(2);

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn at(n: u64) -> Time {
        Time::ZERO + ms(n)
    }

    fn answer(members: &mut Members, now: Time, flow: FlowId, number: u64, mbps: u64) {
        assert!(members.on_word(now, flow));
        let heard = Heard { number, lost: 0, sample: Some(ms(flow.0)), is_symbol: true };
        members.on_answer(now, flow, &heard, BitRate::new(mbps * 1_000_000), None);
    }

    #[test]
    fn the_rate_is_the_least_offer_and_zero_before_all_have_offered() {
        let mut members = served(&[A, B]);
        answer(&mut members, at(1), A, 0, 400);
        assert_eq!(members.rate(), BitRate::ZERO);
        answer(&mut members, at(1), B, 0, 250);
        assert_eq!(members.rate(), BitRate::new(250_000_000));
        answer(&mut members, at(2), A, 1, 100);
        assert_eq!(members.rate(), BitRate::new(100_000_000));
        assert_eq!(members.round_trip(), Some(ms(2)));
        answer(&mut members, at(3), A, 0, 900);
        assert_eq!(members.rate(), BitRate::new(100_000_000), "it was overtaken");
        assert!(!members.on_word(at(3), FlowId(3)), "a stranger");
        assert_eq!(served(&[]).rate(), BitRate::ZERO);
    }

    #[test]
    fn who_is_silent_while_others_speak_is_left_behind() {
        let config = RateSourceConfig::default();
        let mut members = served(&[A, B]);
        assert_eq!(members.silent(at(10_000), &config).look_at, None, "nobody has been there");
        answer(&mut members, at(0), A, 0, 400);
        assert_eq!(members.silent(at(0), &config).look_at, Some(at(500)));
        answer(&mut members, at(400), A, 1, 400);
        answer(&mut members, at(800), A, 2, 400);
        assert_eq!(members.silent(at(800), &config), Silence { detached: vec![], look_at: Some(at(1000)) });
        assert_eq!(members.silent(at(1100), &config).detached, [], "A has not been heard for as long");
        answer(&mut members, at(1100), A, 3, 400);
        assert_eq!(members.silent(at(1100), &config).detached, [B], "it has never been there");
        answer(&mut members, at(1150), B, 3, 400);
        answer(&mut members, at(1200), A, 4, 400);
        assert_eq!(members.silent(at(1800), &config).detached, [], "nobody speaks");
        answer(&mut members, at(1800), A, 5, 400);
        assert_eq!(members.silent(at(1800), &config).detached, [], "B may come back as well");
        answer(&mut members, at(2200), A, 6, 400);
        answer(&mut members, at(2300), A, 7, 400);
        assert_eq!(members.silent(at(2300), &config).detached, [B]);
        members.detach(B);
        assert_eq!(members.rate(), BitRate::new(400_000_000));
        assert!(
            !members.on_leave(A) && members.on_leave(B),
            "the one that was left behind still belongs to it"
        );
    }
}
