//! One flow as the receiver sees it.
//!
//! ```text
//!   what it is to send:    Changed --said--> Said, again and again until it is echoed --> Changed ...
//!   whether it sends:      heard <--a symbol, or tried again-- silent: nothing has come of what it was asked for
//!   whether it goes on:    Live --the task is over, or goes on without it--> Ending --answered, or said often enough--> (gone)
//! ```

use std::collections::VecDeque;

use headwater_units::{BlockIndex, Bytes, Duration, FlowId, PathId, Time};
use headwater_wire::FlowGrant;

use super::acks::Acks;
use super::rate::Rate;
use crate::push::push_flow::LONGEST_HEARTBEAT;
use headwater_flow::task::close_handshake::Stand;

/// Time after which a flow that never answered is asked again, doubled each time.
const FIRST_RETRY: Duration = Duration::from_millis(30);
const LAST_RETRY: Duration = Duration::from_secs(1);
/// Time after which a flow without a list that has brought nothing is asked again.
const LONG_SILENCE: Duration = Duration::from_secs(1);
/// Number of repetitions of a revocation without work left that is not echoed; the source then finds out by being
/// useless.
const REPEATS_WITHOUT_WORK: u32 = 3;
/// Time after which a silent flow is tried again, then twice as long, up to eight times.
pub(super) const REVIVAL: Duration = Duration::from_secs(1);

/// State of one flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) grant: FlowGrant,
    pub(super) path: Option<PathId>,
    pub(super) nonce: Option<u64>,
    pub(super) stand: Stand,
    pub(super) assigning: Assigning,
    pub(super) asked: Asked,
    pub(super) silence: Silence,
    pub(super) acks: Acks,
    pub(super) rate: Rate,
    pub(super) starved: u64,
    pub(super) useful: u64,
    pub(super) arrivals: u64,
    /// Arrivals lately: halved together with those of all other flows, see [`super::arriving::RECENT`].
    pub(super) recent: u32,
    pub(super) bytes: Bytes,
}

/// How its source is told what to send.
#[derive(Debug)]
pub(super) struct Assigning {
    /// The newest.
    pub(super) version: u32,
    told: Told,
    /// When it is repeated.
    pub(super) retry_at: Option<Time>,
    /// From sending an assignment to the first symbol that follows it; includes every queue on the way.
    pub(super) turnaround: Option<Duration>,
}

/// Whether the newest assignment was sent.
#[derive(Clone, Copy, Debug)]
enum Told {
    /// It has changed since.
    Changed,
    /// Number of further times to send it. When it was sent but once, `at` is the time of that, until its echo comes.
    Said { at: Option<Time>, repeats: u32 },
}

/// Requests to it.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Blocks that this flow has shares of, in the order in which it was asked; may name finished ones.
    pub(super) order: VecDeque<BlockIndex>,
    /// Symbols that have not come.
    pub(super) outstanding: u64,
    /// Below this many outstanding symbols it should be given more.
    pub(super) low_water: u64,
    /// Its list is longer than one message.
    pub(super) truncated: bool,
    /// Since when it has had nothing to do while others had.
    pub(super) idle_since: Option<Time>,
}

/// Whether it brings what it should.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// Something has come from its source.
    pub(super) heard: bool,
    /// Since when something has been expected.
    pub(super) expecting_since: Option<Time>,
    /// Between the last two heartbeats, if nothing else has come since.
    heartbeats: Option<Duration>,
    /// Since when something has been expected for which it was tried again in vain.
    in_vain_since: Option<Time>,
    /// While it is silent, when it is tried again.
    revive_at: Option<Time>,
    revivals: u32,
}

impl Flow {
    pub(super) fn new(grant: FlowGrant) -> Self {
        Flow {
            grant,
            path: None,
            nonce: None,
            stand: Stand::Live,
            assigning: Assigning { version: 0, told: Told::Changed, retry_at: None, turnaround: None },
            asked: Asked::default(),
            silence: Silence::default(),
            acks: Acks::default(),
            rate: Rate::default(),
            starved: 0,
            useful: 0,
            arrivals: 0,
            recent: 0,
            bytes: Bytes::ZERO,
        }
    }

    pub(super) fn id(&self) -> FlowId {
        self.grant.flow
    }

    /// Whether work may be given to it.
    pub(super) fn is_usable(&self) -> bool {
        self.path.is_some() && self.is_live() && !self.silence.is_silent()
    }

    /// Whether it is neither over nor ending.
    pub(super) fn is_live(&self) -> bool {
        self.stand.is_live()
    }

    /// It is asked for `symbols` more symbols of a block.
    pub(super) fn give(&mut self, block: BlockIndex, symbols: u32) {
        if !self.asked.order.contains(&block) {
            self.asked.order.push_back(block);
        }
        self.asked.outstanding += u64::from(symbols);
        self.assigning.change();
    }

    /// The same, of a block that others are asked for too.
    pub(super) fn give_beside(&mut self, block: BlockIndex, symbols: u32) {
        self.asked.order.push_back(block);
        self.asked.outstanding += u64::from(symbols);
        self.assigning.change();
    }

    /// When it is asked again if nothing comes of it although something should, under the rules by which it is asked once
    /// for all: it may never have heard, or taken us for gone.
    pub(super) fn remind_at(&self) -> Option<Time> {
        let since = self.silence.expecting_since.filter(|_| self.assigning.retry_at.is_none())?;
        Some(since + LONG_SILENCE)
    }

    /// A symbol has come, which says by which assignment its source works. Returns whether it was silent.
    #[inline]
    pub(super) fn on_symbol(&mut self, now: Time, echo: u8) -> bool {
        self.rate.on_arrival(now, 1);
        if let Some(turnaround) = self.assigning.on_echo(now, echo) {
            self.rate.set_turnaround(turnaround);
        }
        self.silence.on_symbol(now)
    }

    /// Its source is there, but has nothing to send yet. Returns whether it was silent.
    pub(super) fn on_heartbeat(&mut self, now: Time, echo: u8) -> bool {
        self.assigning.on_echo(now, echo);
        self.silence.on_heartbeat(now)
    }
}

impl Assigning {
    /// It is another one.
    pub(super) fn change(&mut self) {
        self.told = Told::Changed;
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        matches!(self.told, Told::Changed) || self.retry_at.is_some_and(|at| now >= at)
    }

    /// It is about to leave; something is to come of it, or not.
    pub(super) fn say(&mut self, now: Time, expected: bool) {
        let repeats = match self.told {
            Told::Changed => {
                self.version += 1;
                self.told = Told::Said { at: Some(now), repeats: 0 };
                0
            }
            Told::Said { repeats, .. } => {
                self.told = Told::Said { at: None, repeats: repeats + 1 };
                repeats + 1
            }
        };
        let echo_expected = expected || repeats < REPEATS_WITHOUT_WORK;
        let floor = self.turnaround.map_or(FIRST_RETRY, |t| FIRST_RETRY.max(t * 2));
        self.retry_at =
            echo_expected.then(|| now + (floor * (1 << repeats.min(6))).min(LAST_RETRY.max(floor)));
    }

    /// A source works by this one. Returns the turnaround if that was measured by it.
    fn on_echo(&mut self, now: Time, echo: u8) -> Option<Duration> {
        let Told::Said { at, .. } = &mut self.told else { return None };
        if echo != self.version as u8 {
            return None;
        }
        self.retry_at = None;
        let sample = now.since(at.take()?);
        self.turnaround = Some(self.turnaround.map_or(sample, |old| (old * 7 + sample) / 8));
        self.turnaround
    }
}

impl Silence {
    /// Returns whether it was silent.
    #[inline]
    fn on_symbol(&mut self, now: Time) -> bool {
        self.revivals = 0;
        self.heartbeats = None;
        self.in_vain_since = None;
        self.expecting_since = Some(now);
        self.revive_at.take().is_some()
    }

    /// The same.
    fn on_heartbeat(&mut self, now: Time) -> bool {
        self.in_vain_since = None;
        let before = self.expecting_since.replace(now);
        self.heartbeats = before.map(|before| now.since(before).min(LONGEST_HEARTBEAT));
        self.revive_at.take().is_some()
    }

    pub(super) fn is_silent(&self) -> bool {
        self.revive_at.is_some()
    }

    /// Whether nothing has come for the time `limit`, or for four heartbeats of a source that waits itself.
    pub(super) fn is_longer_than(&self, limit: Duration, now: Time) -> bool {
        let limit = self.heartbeats.map_or(limit, |interval| limit.max(interval * 4));
        self.expecting_since.is_some_and(|since| now.since(since) > limit)
    }

    /// Nothing has come for too long; it is tried again after this time, or longer if that has been in vain before. Returns whether it
    /// has not.
    pub(super) fn begin(&mut self, now: Time, revival: Duration) -> bool {
        let is_news = self.in_vain_since.is_none();
        self.in_vain_since = self.in_vain_since.or(self.expecting_since);
        self.revive_at = Some(now + revival * (1 << self.revivals.min(3)));
        is_news
    }

    /// Since when nothing has come, however often it was tried again.
    pub(super) fn since(&self) -> Option<Time> {
        self.in_vain_since.or(self.expecting_since)
    }

    /// It is tried again if it is time.
    pub(super) fn revive(&mut self, now: Time) {
        if self.revive_at.take_if(|at| now >= *at).is_some() {
            self.revivals += 1;
            self.expecting_since = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_itself_may_be_silent_for_four_of_its_heartbeats() {
        let ms = Duration::from_millis;
        let at = |after: u64| Time::ZERO + ms(after);
        let mut silence = Silence { expecting_since: Some(at(0)), ..Silence::default() };
        assert!(!silence.is_longer_than(ms(400), at(400)) && silence.is_longer_than(ms(400), at(401)));
        silence.on_heartbeat(at(100));
        silence.on_heartbeat(at(300));
        assert!(!silence.is_longer_than(ms(400), at(1100)) && silence.is_longer_than(ms(400), at(1101)));
        silence.on_heartbeat(at(60_300));
        assert!(
            silence.is_longer_than(ms(400), at(63_501)),
            "lost ones do not make it longer than the longest"
        );
        silence.on_symbol(at(63_600));
        assert!(silence.is_longer_than(ms(400), at(64_001)));
    }

    #[test]
    fn who_is_tried_again_in_vain_is_as_silent_as_before() {
        let ms = Duration::from_millis;
        let at = |after: u64| Time::ZERO + ms(after);
        let mut silence = Silence { expecting_since: Some(at(0)), ..Silence::default() };
        for (begins, revived) in [(400, 500), (900, 1100), (1500, 1900), (2300, 3100), (3500, 4300)] {
            assert_eq!(silence.begin(at(begins), ms(100)), begins == 400);
            silence.revive(at(revived - 1));
            assert!(silence.is_silent(), "{begins}");
            silence.revive(at(revived));
            assert_eq!((silence.is_silent(), silence.since()), (false, Some(at(0))), "{begins}");
            assert!(!silence.is_longer_than(ms(400), at(revived + 400)), "it has time to answer");
        }
        silence.on_symbol(at(4400));
        assert_eq!(silence.since(), Some(at(4400)));
    }
}
