//! The sending of a transfer: symbols at the rate that its receivers' paths grant, probes while that is none (PAM §III-A).
//!
//! ```text
//!   Running:  rate 0, or nothing to send --> a probe every I round trips
//!             else                       --> symbols at the rate, what is missing first
//!   Early:    the same after a FIN; the switches count it no more (footnote 3)
//!   Ending:   FINs only, until they have been said often enough
//! ```
//! Every datagram states rank and rate, and carries the rate of this host's link as its offer. Switches and receivers lower it; what comes
//! back is the path's to that receiver.
//!
//! Differs from the paper: probes become rarer while nobody answers, and when everything was sent and only receivers can tell that
//! something is missing. A rate of less than a symbol per [`longest_gap`](RateSourceConfig::longest_gap), and than a quarter of the link's,
//! counts as none: no packet would come in time to hear of a better one.

use headwater_machine::Output;
use headwater_policy::pam::{self, Late, Standing};
use headwater_units::{BitRate, BlockIndex, Bytes, Duration, FlowId, Rank, SymbolId, Time};
use headwater_wire::{
    Body, Missing, RateFeedback, RateProbe, RateUnit, RoundTrip, ScheduledFin, ScheduledSymbol, Scheduling,
    TransferEnd, TransferReport,
};

use super::members::Members;
use super::sent::Sent;
use super::supply::Supply;
use super::watch::Heard;
use super::{OPENING_HELD, RateSourceConfig};
use crate::SourceEvent;
use headwater_flow::WhyFallback;

/// Number of FINs that are sent, since nobody confirms one.
const FIN_TRIES: u32 = 6;
/// Interval between FINs: a round trip, or at least this; doubled each time.
const FIN_AGAIN: Duration = Duration::from_millis(1);
/// On a slow link a rate is one to send at from this part of the link's on, however long a symbol waits. Two that share the link would else
/// be granted nothing that counts.
const LEAST_SHARE: u64 = 4;
/// Most doublings of the interval between probes.
const MOST_DOUBLINGS: u32 = 16;

/// One transfer.
#[derive(Debug)]
pub(super) struct Transfer {
    config: RateSourceConfig,
    symbol_size: u16,
    /// Bytes of a symbol, as the rate counts them.
    packet: Bytes,
    unit: RateUnit,
    pub(super) members: Members,
    pub(super) supply: Supply,
    sent: Sent,
    started: Time,
    deadline: Option<Time>,
    /// The round trip as the controller knows it.
    first_round_trip: Option<Duration>,
    rate: BitRate,
    /// When the last symbol was due, and the next one is.
    left_at: Time,
    next_at: Time,
    probe_at: Time,
    /// Probes since anybody answered, or since there was something to send.
    doublings: u32,
    stage: Stage,
    /// Since when it has waited for an offer, or else since it last began to.
    paused_since: Time,
    /// When silent receivers are looked for.
    look_at: Time,
    rank: Rank,
    counts: Counts,
}

/// Counters of departures.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) symbols: u64,
    pub(super) probes: u64,
    /// Answers to what was never sent.
    pub(super) bad_answers: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits for an offer, or has nothing to send.
    Paused,
    Sending,
    /// Its share was given back already.
    Early,
    Ending {
        end: TransferEnd,
        next: Time,
        tries: u32,
    },
}

/// Facts about it when it begins.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) symbol_size: u16,
    /// Bytes of a symbol's datagram.
    pub(super) packet: Bytes,
    pub(super) deadline: Option<Time>,
    pub(super) round_trip: Option<Duration>,
    /// The number of the first packet.
    pub(super) first_number: u64,
}

impl Transfer {
    pub(super) fn new(
        now: Time,
        config: RateSourceConfig,
        plan: &Plan,
        members: Members,
        supply: Supply,
    ) -> Self {
        let packet = config.packet.unwrap_or(plan.packet);
        let longest_gap = config.longest_gap.max(packet * LEAST_SHARE / config.link);
        let config = RateSourceConfig { longest_gap, ..config };
        Transfer {
            symbol_size: plan.symbol_size,
            packet,
            unit: RateUnit::finest(config.link),
            members,
            supply,
            sent: Sent::new(plan.first_number),
            started: now,
            deadline: plan.deadline,
            first_round_trip: plan.round_trip,
            rate: BitRate::ZERO,
            left_at: now,
            next_at: now,
            probe_at: now,
            doublings: 0,
            stage: Stage::Paused,
            paused_since: now,
            look_at: now + config.detach_after,
            rank: Rank::LAST,
            counts: Counts::default(),
            config,
        }
    }

    /// The rate at which symbols leave now.
    pub(super) fn rate(&self) -> BitRate {
        match self.stage {
            Stage::Sending | Stage::Early => self.rate,
            Stage::Paused | Stage::Ending { .. } => BitRate::ZERO,
        }
    }

    /// How it does, for the controller.
    pub(super) fn report(&self, now: Time, flow: FlowId) -> TransferReport {
        let waits = self.stage == Stage::Paused && self.supply.left() > 0;
        TransferReport {
            flow,
            rate: self.rate(),
            rank: self.rank,
            left: self.remaining(),
            paused: waits.then(|| now.since(self.paused_since)),
            least: self.members.least(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether it has something to send and may, but the driver has not read it yet.
    pub(super) fn is_starved(&self) -> bool {
        self.may_send() && self.supply.first().is_none()
    }

    fn may_send(&self) -> bool {
        self.supply.left() > 0 && self.packet / self.rate <= self.config.longest_gap
    }

    fn bytes_left(&self) -> Bytes {
        self.packet * self.supply.left()
    }

    // ---- what receivers say

    /// The packet that an answer means, given the lower half of its number.
    pub(super) fn answers(&self, low: u32) -> Option<u64> {
        self.sent.expand(low)
    }

    /// A receiver says something that answers no packet. False if it is none of this transfer's.
    pub(super) fn on_word(&mut self, now: Time, member: FlowId) -> bool {
        if self.supply.left() > 0 {
            self.doublings = 0;
        }
        self.members.on_word(now, member)
    }

    /// A receiver answers a packet (PAM §III-A), and says what it misses as of that.
    pub(super) fn on_answer(
        &mut self,
        now: Time,
        member: FlowId,
        feedback: &RateFeedback,
        missing: &[Missing],
        out: &mut impl Extend<Output<SourceEvent>>,
    ) -> Option<WhyFallback> {
        let is_opening = feedback.held >= OPENING_HELD;
        let number = self.sent.expand(feedback.number);
        if number.is_none() && !is_opening {
            // A member that answers only what was never sent is as good as silent.
            self.counts.bad_answers += 1;
            return None;
        }
        let is_served = self.on_word(now, member) && !matches!(self.stage, Stage::Ending { .. });
        let number = number.filter(|_| is_served && !is_opening)?;
        let sent = self.sent.get(number);
        let round_trip = sent.map(|(at, _)| now.since(at)).filter(|trip| *trip >= feedback.held);
        let sample = round_trip.map(|trip| trip.saturating_sub(feedback.held));
        let is_symbol = sent.is_some_and(|(_, symbol)| symbol.is_some());
        let recent = if missing.is_empty() { Vec::new() } else { self.sent.after(number) };
        missing.iter().for_each(|run| self.supply.on_missing(run, &recent, out));
        // A device on the path may have raised it, or the receiver.
        let offer = feedback.scheduling.offer().min(self.config.link);
        let heard = Heard { number, lost: feedback.lost, sample, is_symbol };
        let why = self.members.on_answer(now, member, &heard, offer, self.config.fallback.as_ref());
        self.reckon(now);
        why
    }

    /// A receiver's path has answered, after a round trip: one that was only guessed matters no more.
    pub(super) fn on_distance(&mut self, now: Time, member: FlowId, round_trip: Duration) {
        self.members.on_distance(now, member, round_trip);
        self.reckon(now);
    }

    /// The rate, or what there is to send, may be another one.
    pub(super) fn reckon(&mut self, now: Time) {
        let rate = self.members.rate();
        if rate != self.rate {
            self.rate = rate;
            self.next_at = now.max(self.left_at + self.packet / rate);
        }
        match (self.stage, self.may_send()) {
            // The interval may have become shorter, now that the round trip is known.
            (Stage::Paused, false) => self.probe_at = self.probe_at.min(now + self.probe_interval()),
            (Stage::Paused, true) => {
                self.stage = Stage::Sending;
                self.doublings = 0;
                self.next_at = now.max(self.left_at + self.packet / rate);
            }
            (Stage::Sending | Stage::Early, false) => {
                // At once, so that the switches know: the probe gives the share back.
                self.stage = Stage::Paused;
                self.paused_since = now;
                self.doublings = 0;
                self.probe_at = now;
            }
            _ => {}
        }
    }

    // ---- what leaves

    /// The datagram that may leave now.
    pub(super) fn next(&mut self, now: Time, out: &mut impl Extend<Output<SourceEvent>>) -> Option<Body> {
        if self.hopeless_at().is_some_and(|at| now > at) {
            self.end(now, TransferEnd::Late);
        }
        match self.stage {
            Stage::Ending { end, next, tries } if now >= next && tries < FIN_TRIES => {
                let again = self.members.round_trip().unwrap_or(FIN_AGAIN).max(FIN_AGAIN);
                self.stage = Stage::Ending { end, next: now + again * (1 << tries), tries: tries + 1 };
                Some(self.fin(now, end))
            }
            Stage::Ending { .. } => None,
            Stage::Paused => {
                let is_due = now >= self.probe_at && self.members.len() > 0;
                is_due.then(|| self.probe(now))
            }
            Stage::Sending if self.is_last_round_trip() => {
                self.stage = Stage::Early;
                Some(self.fin(now, TransferEnd::Early))
            }
            Stage::Sending | Stage::Early => {
                let symbol = self.supply.first().filter(|_| now >= self.next_at)?;
                Some(self.symbol(now, symbol, out))
            }
        }
    }

    fn symbol(&mut self, now: Time, symbol: SymbolId, out: &mut impl Extend<Output<SourceEvent>>) -> Body {
        // As a line does: while there is something to send, departures follow from each other, not from the driver.
        let earliest = Time::ZERO + now.since(Time::ZERO).saturating_sub(self.config.catch_up);
        self.left_at = self.next_at.max(earliest);
        self.next_at = self.left_at + self.packet / self.rate;
        let scheduling = self.scheduling(now, self.rate);
        let number = self.sent.push(now, Some(symbol));
        self.supply.on_sent(symbol, out);
        self.counts.symbols += 1;
        let last = self.stage == Stage::Early;
        let round_trip = self.told_round_trip();
        self.reckon(now);
        Body::ScheduledSymbol(ScheduledSymbol {
            number: number as u32,
            symbol,
            scheduling,
            round_trip,
            last,
            trimmed: false,
        })
    }

    fn probe(&mut self, now: Time) -> Body {
        self.probe_at = now + self.probe_interval();
        let silent = self.members.heard().is_none_or(|heard| now.since(heard) >= self.config.detach_after);
        let waits_long = now.since(self.started) >= self.config.detach_after;
        if self.supply.left() == 0 || silent && waits_long {
            self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
        }
        let scheduling = self.scheduling(now, BitRate::ZERO);
        self.counts.probes += 1;
        let number = self.sent.push(now, None) as u32;
        Body::RateProbe(RateProbe { number, round_trip: self.told_round_trip(), scheduling })
    }

    fn fin(&mut self, now: Time, end: TransferEnd) -> Body {
        let scheduling = Scheduling::new(self.unit, self.rank, BitRate::ZERO, self.config.link);
        let number = self.sent.push(now, None) as u32;
        Body::ScheduledFin(ScheduledFin { number, end, scheduling })
    }

    fn scheduling(&mut self, now: Time, rate: BitRate) -> Scheduling {
        // One that is dropped ends before the next datagram.
        if let Standing::Ranked(rank) = self.config.ranking.standing(now, &self.ranked(), self.remaining()) {
            self.rank = rank;
        }
        Scheduling::new(self.unit, self.rank, rate, self.config.link)
    }

    /// The quantities that its rank follows from.
    fn ranked(&self) -> pam::Transfer {
        let payload = f64::from(self.symbol_size) / self.packet.get() as f64;
        pam::Transfer {
            started: self.started.since(Time::ZERO),
            deadline: self.deadline,
            receivers: u32::try_from(self.members.len()).unwrap_or(u32::MAX),
            link: self.config.link.mul_f64(payload),
        }
    }

    /// Bytes of symbols that are left to send, repairs too.
    fn remaining(&self) -> Bytes {
        Bytes::new(self.supply.left() * u64::from(self.symbol_size))
    }

    fn told_round_trip(&self) -> RoundTrip {
        let guess = if self.members.len() > 1 { self.config.probes.spread } else { Duration::ZERO };
        // A controller's guess may be much too long, and each receiver may wait for all of it.
        let guess = self.first_round_trip.map_or(guess, |said| said.min(self.config.probes.spread));
        RoundTrip::of(self.members.round_trip().unwrap_or(guess))
    }

    /// I round trips, I by the remaining size (PAM §III-A): probes of a long transfer weigh little, and it loses little by waiting.
    pub(super) fn probe_interval(&self) -> Duration {
        let probes = &self.config.probes;
        let Some(round_trip) = self.members.round_trip().or(self.first_round_trip) else {
            return self.backed_off(probes.first);
        };
        let times = self.bytes_left().get() / probes.per.get().max(1);
        let times = times.clamp(1, u64::from(probes.most.max(1)));
        self.backed_off(round_trip.max(probes.shortest) * times)
    }

    fn backed_off(&self, interval: Duration) -> Duration {
        (interval * (1 << self.doublings)).min(self.config.probes.longest_idle.max(interval))
    }

    fn is_last_round_trip(&self) -> bool {
        let within = |round_trip| self.bytes_left() / self.rate <= round_trip;
        self.config.early_start && self.members.round_trip().is_some_and(within)
    }

    /// From then on the deadline cannot be met, even at the rate of the link (PAM §III-A). Symbols that were sent may
    /// still arrive.
    fn hopeless_at(&self) -> Option<Time> {
        let ends_late =
            self.config.ranking.late == Late::Dropped && !matches!(self.stage, Stage::Ending { .. });
        let runs = ends_late && self.deadline.is_some() && self.supply.left() > 0;
        runs.then(|| self.ranked().last_moment(self.remaining())).flatten()
    }

    /// Nothing more is sent, and everybody is told so.
    pub(super) fn end(&mut self, now: Time, end: TransferEnd) {
        if !matches!(self.stage, Stage::Ending { .. }) {
            self.stage = Stage::Ending { end, next: now, tries: 0 };
        }
    }

    /// The last datagram, if the flow ends at once and has not sent one.
    pub(super) fn last_word(&mut self) -> Option<Body> {
        if matches!(self.stage, Stage::Ending { .. }) {
            return None;
        }
        let end = if self.supply.left() == 0 { TransferEnd::Done } else { TransferEnd::Cancelled };
        Some(self.fin(self.left_at, end))
    }

    // ---- time

    /// When [`Transfer::next`] has something, if nothing happens before.
    pub(super) fn due(&self) -> Option<Time> {
        let next = match self.stage {
            Stage::Ending { next, .. } => return Some(next),
            Stage::Paused => Some(self.probe_at).filter(|_| self.members.len() > 0),
            Stage::Sending | Stage::Early => self.supply.first().map(|_| self.next_at),
        };
        let hopeless = self.hopeless_at().map(|at| at + Duration::from_nanos(1));
        next.into_iter().chain(hopeless).min()
    }

    /// When [`Transfer::look`] has something to do.
    pub(super) fn look_at(&self) -> Time {
        self.look_at
    }

    /// Whether all FINs have been sent.
    pub(super) fn is_over(&self, now: Time) -> bool {
        matches!(self.stage, Stage::Ending { next, tries: FIN_TRIES, .. } if now >= next)
    }

    /// Looks for receivers that are silent. Leaves behind those of a group that are, while others are not; where all are, nothing is
    /// sent but probes.
    pub(super) fn look(&mut self, now: Time, is_group: bool, detached: &mut Vec<FlowId>) {
        if now < self.look_at {
            return;
        }
        let silence = self.members.silent(now, &self.config);
        let soon = now + self.config.detach_after / 4;
        self.look_at = silence.look_at.unwrap_or(soon).max(now + Duration::from_nanos(1));
        if is_group {
            for flow in silence.detached {
                self.members.detach(flow);
                detached.push(flow);
            }
            if self.members.len() == 0 {
                self.end(now, TransferEnd::Done);
            }
        }
        if self.members.heard().is_some_and(|heard| now.since(heard) >= self.config.detach_after) {
            self.members.withdraw_offers();
        }
        self.reckon(now);
    }

    /// The transfer may be sent again, after it was not for a while.
    pub(super) fn resume(&mut self, now: Time) {
        self.members.forgive_silence(now);
        self.look_at = now + self.config.detach_after;
        self.probe_at = self.probe_at.max(now);
        self.next_at = self.next_at.max(now);
    }

    pub(super) fn on_block_ready(&mut self, block: BlockIndex, repair: bool) {
        self.supply.on_ready(block, repair);
    }
}
