//! One push flow at its source: what may leave now, and what an ACK or a timer changes (PPUSH §III-A, §III-B).
//!
//! ```text
//!            first Assign              nothing heard for `silent_pause`, or Pause
//!  Opened ----------------> Sending <---------------------------------------------> Paused
//!                              |        any datagram, or Resume
//!                              v
//!                  window full | pacer | work done or blocks not ready | receiver's or address limit
//! ```
//! One that is paused before anything was assigned is opened again by Resume.
//!
//! Two timers watch packets in flight, and a third one a challenge that has not been answered. The probe timeout (RFC 9002
//! §6.2) repeats a tail without touching the window; one probe per silence. The retransmission timeout (RFC 6298) gives up
//! everything in flight and resets the window.

mod discovery;
mod esi_set;
mod heartbeat;
mod listed;
mod pick;
mod refresh;
mod residue;
mod serve;
mod start;
mod state;
mod supply;
mod timers;
mod work;

use headwater_machine::{Output, Packet};
use headwater_units::{BlockIndex, Bytes, Esi, Geometry, PacketNumber, PathId, Symbols, Time};
use headwater_wire::{
    Ack, Assign, Body, Class, Datagram, Delivery, Ecn, HEADER, MarkSignal, OPENING, Push, SymbolHeader,
};

use super::stripe_window::{INITIAL_RTO, MAX_ACK_DELAY};
use crate::push::congestion::Congestion;
use crate::push::feedback::Feedback;
use crate::push::{AckInterval, PushFlowConfig};
use discovery::Discovery;
use headwater_flow::in_flight::{AckOutcome, InFlight};
use headwater_flow::marks::Marks;
use headwater_flow::pacer::Pacer;
use headwater_flow::paths::{KnownMin, PathNews, Paths};
use headwater_flow::rtt::{Rtt, RttConfig};
use headwater_flow::{FlowCounters, Shared, SourceFlow};
use heartbeat::Heartbeat;
pub(crate) use heartbeat::LONGEST as LONGEST_HEARTBEAT;
use pick::Pick;
use refresh::Refresh;
use start::FirstWindow;
use state::{Assigned, By, State};
use supply::{Choice, Supply};
use timers::{Challenge, Timers};

/// One flow.
#[derive(Debug)]
pub(crate) struct PushFlow {
    config: PushFlowConfig,
    push: Push,
    state: State,
    paths: Paths,
    challenge: Challenge,
    congestion: Congestion,
    rtt: Rtt,
    known_min: KnownMin,
    pacer: Option<Pacer>,
    packets: InFlight,
    largest_acked: Option<PacketNumber>,
    timers: Timers,
    marks: Marks,
    refresh: Refresh,
    supply: Supply,
    pace_at: Option<Time>,
    /// Something else than window and pacer held the flow back last.
    app_limited: bool,
    first: FirstWindow,
    /// How long a datagram the path carries, if that is looked after.
    discovery: Option<Discovery>,
    /// Of a flow of an overlay.
    heartbeat: Option<Heartbeat>,
    counters: FlowCounters,
}

impl PushFlow {
    pub(crate) fn new(
        now: Time,
        config: PushFlowConfig,
        push: Push,
        geometry: Geometry,
        shared: &Shared,
    ) -> Self {
        let is_of_overlay = matches!(push.delivery, Delivery::Overlay { .. });
        // Where the receiver sets the window, marks say nothing.
        let delay_mark = config.delay_mark.filter(|_| !is_of_overlay);
        let rtt = match is_of_overlay {
            true => {
                let initial_rto = config.rtt.initial_rto.min(INITIAL_RTO);
                RttConfig { max_ack_delay: MAX_ACK_DELAY, initial_rto, ..config.rtt }
            }
            false => config.rtt,
        };
        let mut flow = PushFlow {
            state: State::Opened,
            paths: Paths::default(),
            challenge: Challenge::new(now),
            congestion: Congestion::new(&config, &push),
            rtt: Rtt::new(rtt),
            known_min: KnownMin::default(),
            pacer: config.pacer.filter(|_| !is_of_overlay).map(Pacer::new),
            packets: InFlight::new(config.lost_memory),
            largest_acked: None,
            timers: Timers::new(now, config.tail_probe.map(|probe| probe.packets)),
            marks: Marks::new(delay_mark),
            refresh: Refresh::new(delay_mark),
            supply: Supply::new(&config, push.flow, geometry),
            pace_at: None,
            app_limited: true,
            first: FirstWindow::default(),
            discovery: None,
            heartbeat: is_of_overlay.then(|| Heartbeat::new(now)),
            counters: FlowCounters::default(),
            push,
            config,
        };
        if flow.congestion.is_gentle() {
            flow.refresh.leave_one();
        }
        flow.begin_discovery(shared);
        flow.begin_at_known_rate(shared);
        flow.set_pace();
        flow
    }

    // ---- what the receiver and the driver say

    pub(crate) fn on_assign(&mut self, now: Time, path: PathId, assign: &Assign, shared: &mut Shared) {
        self.heard(now);
        let unanswered = self.paths.unanswered().is_some();
        let came = if assign.padded { OPENING } else { HEADER };
        let earned = self.config.unanswered.earned(came as u64, self.packet_bytes());
        let news = self.paths.on_opening(path, assign.nonce, earned, &mut shared.rng);
        if unanswered && self.paths.unanswered().is_none() {
            self.challenge.on_answered(now);
        }
        self.on_path(now, news, path, shared);
        let before = self.state.assigned();
        let ahead = before.map_or(1, |before| assign.version.wrapping_sub(before.version) as i32);
        if ahead >= 0 {
            let most = self.config.max_in_flight;
            let receive_window = assign.receive_window.min(most);
            self.congestion.grant(receive_window);
            // Windows that an overlay grants are for short paths.
            let receive_window = if self.congestion.is_striped() { most } else { receive_window };
            self.state.assign(Assigned { version: assign.version, receive_window });
        }
        let next = (ahead > 0).then(|| self.packets.next_number());
        self.counters.bad_work += self.supply.on_assign(assign, next, self.congestion.window(), shared);
        self.look_for_mtu(now, shared);
    }

    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        path: PathId,
        ack: &Ack,
        outcome: &mut AckOutcome,
        shared: &mut Shared,
    ) {
        self.heard(now);
        let news = self.paths.on_other(path, &mut shared.rng);
        if news != PathNews::None {
            self.on_path(now, news, path, shared);
        }
        let before = self.packets.in_flight();
        if self.packets.on_ack(now, ack, outcome).is_err() {
            self.counters.bad_acks += 1;
            return;
        }
        let acked = (outcome.acked.len() + outcome.late.len()) as u64;
        let rtt = outcome.rtt.map(|sample| {
            let adjusted = self.rtt.on_sample(now, sample, ack.delay);
            let known = self.known_min.on_sample(now, sample, self.push.receiver, &mut shared.memory);
            (adjusted, self.rtt.min().unwrap_or(sample).min(known))
        });
        if acked > 0 {
            self.timers.on_progress(now);
            self.rtt.on_progress();
            self.discovery.iter_mut().for_each(Discovery::on_acknowledged);
        }
        self.counters.acked += Symbols::new(acked);
        self.counters.spurious += Symbols::new(outcome.late.len() as u64);
        self.supply.on_landed(&outcome.acked);
        self.take_losses(outcome, shared);

        if let Some((sample, min)) = rtt {
            self.on_first_sample(min);
            self.refresh.on_sample(now, sample, min, self.rtt.smoothed().unwrap_or(sample));
        }
        let marked = self.marks.on_ack(ack, acked, self.packets.next_number().0, rtt);
        self.counters.bad_counters = self.marks.disbelieved();
        self.counters.marked += Symbols::new(marked);
        let window = self.congestion.window().get();
        let filled = before as f64 + 1.0 > window;
        let half_filled = self.congestion.in_slow_start() && 2.0 * before as f64 >= window;
        let feedback = Feedback {
            acked,
            marked,
            lost: outcome.lost.len() as u64,
            largest: outcome.largest.unwrap_or_default(),
            next: self.packets.next_number(),
            limited: !self.app_limited || filled || half_filled,
            by_routers: self.marks.signal() == MarkSignal::Ecn,
        };
        if acked > 0 || feedback.lost > 0 {
            self.congestion.on_ack(now, &feedback, rtt);
            self.set_pace();
        }
        let by_delay = self.marks.signal() == MarkSignal::Delay || self.congestion.is_gentle();
        if by_delay && !self.congestion.in_slow_start() {
            let rtt = self.rtt.smoothed().unwrap_or_default();
            self.refresh.proceed(now, rtt, self.packets.in_flight());
        } else {
            self.refresh.stop();
        }

        let newest = self.largest_acked.is_none_or(|largest| ack.largest >= largest);
        self.largest_acked = self.largest_acked.max(Some(ack.largest));
        self.supply.on_ack(ack, newest, outcome, self.congestion.window(), shared);
    }

    fn heard(&mut self, now: Time) {
        self.timers.heard_at = now;
        if self.state.resume(By::Silence) {
            self.timers.armed_at = now;
        }
    }

    fn on_path(&mut self, now: Time, news: PathNews, path: PathId, shared: &mut Shared) {
        match news {
            PathNews::None => {}
            PathNews::Challenge(nonce) => {
                self.challenge.said_at = now;
                self.say(path, Body::Challenge { nonce }, shared);
            }
            PathNews::Moved => {
                // Knowledge of the old path says nothing about the new one (RFC 9000 §9.4).
                self.challenge = Challenge::new(now);
                self.rtt = Rtt::new(self.config.rtt);
                self.congestion.on_new_path(&self.config);
                self.marks.on_new_path();
                self.set_pace();
                self.forget_mtu(now, shared);
            }
        }
    }

    fn take_losses(&mut self, outcome: &AckOutcome, shared: &mut Shared) {
        self.counters.lost += Symbols::new(outcome.lost.len() as u64);
        self.supply.on_losses(outcome, &mut self.packets, shared);
    }

    /// A block that it waits for is here up to this symbol.
    pub(crate) fn on_partly_here(&mut self, block: BlockIndex, below: Esi) {
        self.supply.on_partly_here(block, below);
    }

    // ---- sending

    /// Whether it brings a stripe of an overlay.
    #[inline]
    fn is_of_overlay(&self) -> bool {
        self.heartbeat.is_some()
    }

    // Once or twice for every symbol; a call costs a third of what it does.
    #[inline(always)]
    fn choose(&mut self, now: Time, shared: &mut Shared) -> Option<Choice> {
        let State::Sending(Assigned { receive_window, .. }) = self.state else { return None };
        if self.too_long().is_some() {
            return None;
        }
        let in_flight = self.packets.in_flight();
        let room = self.paths.allowance(self.config.unanswered) > 0
            && (in_flight as u64) < u64::from(receive_window);
        if room
            && self.timers.take_probe()
            && let Some(probe) = self.supply.probe(&self.packets)
        {
            return Some(probe);
        }
        if !self.congestion.allows(in_flight) {
            return self.hold(now, false);
        }
        if !self.refresh.allows(in_flight) {
            return self.hold(now, true);
        }
        let Some(choice) = (if room { self.next_symbol(now, shared) } else { None }) else {
            self.app_limited = true;
            return None;
        };
        match self.pacer.as_ref().map(|pacer| pacer.ready_at(now)) {
            Some(at) if at > now => {
                self.pace_at = Some(at);
                self.hold(now, false)
            }
            _ => Some(choice),
        }
    }

    /// It is not for want of blocks that nothing leaves.
    #[inline]
    fn hold(&mut self, now: Time, app_limited: bool) -> Option<Choice> {
        self.app_limited = app_limited;
        self.end_starving(now);
        None
    }

    #[inline]
    fn next_symbol(&mut self, now: Time, shared: &mut Shared) -> Option<Choice> {
        self.supply.next(now, &mut self.packets, self.congestion.window(), shared)
    }

    fn send(&mut self, now: Time, choice: Choice, shared: &mut Shared) -> Packet {
        self.timers.on_sent(now, self.packets.in_flight() == 0);
        let starved = shared.limited || self.supply.says_starved(now);
        let mut ack_now = false;
        let (symbol, attempt, copy_of) = match choice {
            Choice::New(Pick { symbol, attempt }) => (symbol, attempt, None),
            Choice::Again(sent) => {
                self.counters.resent += Symbols::new(1);
                (sent.symbol, sent.attempt, Some(sent.number))
            }
            Choice::Probe(sent) => {
                self.counters.probes += Symbols::new(1);
                ack_now = true;
                (sent.symbol, sent.attempt, Some(sent.number))
            }
        };
        let number = self.packets.send(now, symbol, attempt, copy_of);
        self.counters.sent += Symbols::new(1);
        self.supply.commit(choice, self.congestion.window(), shared);
        self.paths.on_sent();
        if let Some(pacer) = &mut self.pacer {
            pacer.on_sent(now);
        }
        let assigned = self.state.assigned().expect("nothing leaves before it is assigned");
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.on_symbol(now, assigned.version);
        }
        let ack_interval = self.ack_interval();
        // Where each symbol is acknowledged anyway, it is not worth looking whether this is the last one.
        ack_now |= self.is_held_back(assigned) || (ack_interval > 1 && self.nothing_follows(now, shared));
        let header = SymbolHeader {
            number,
            symbol,
            ack_interval,
            ack_now,
            assignment: assigned.version as u8,
            starved,
            syn: false,
            trimmed: false,
        };
        let class = if self.first.has(number) { Class::First } else { self.push.class };
        let body = Body::Symbol(header);
        Packet {
            path: self.paths.current().expect("an assignment gave the path"),
            ecn: Ecn::Ect0,
            datagram: Datagram { class, key_epoch: 0, flow: self.push.flow, body },
        }
    }

    /// Whether its address or its receiver allows no more: then an ACK is wanted at once.
    fn is_held_back(&self, assigned: Assigned) -> bool {
        self.paths.allowance(self.config.unanswered) == 0
            || self.packets.in_flight() as u64 >= u64::from(assigned.receive_window)
    }

    /// Whether the window has room and there is nothing to fill it with: likewise.
    fn nothing_follows(&mut self, now: Time, shared: &mut Shared) -> bool {
        self.congestion.allows(self.packets.in_flight())
            && self.refresh.allows(self.packets.in_flight())
            && self.next_symbol(now, shared).is_none()
    }

    fn ack_interval(&self) -> u8 {
        match self.config.ack_interval {
            AckInterval::EverySymbol => 1,
            // While it looks for the empty path, the flow has no more than a few packets out.
            AckInterval::WindowPart { .. } if self.refresh.holds_back() => 1,
            AckInterval::WindowPart { parts, most } => {
                let parts = if self.is_of_overlay() { 2.0 } else { f64::from(parts.max(1)) };
                let part = self.congestion.window().get() / parts;
                (part as u64).clamp(1, u64::from(most.max(1))) as u8
            }
        }
    }

    fn say(&self, path: PathId, body: Body, shared: &mut Shared) {
        let packet = Packet::of_flow(path, self.push.flow, Class::Control, body);
        shared.out.push_back(Output::Transmit(packet));
    }

    fn set_pace(&mut self) {
        let packet = Bytes::new(self.packet_bytes());
        let (window, slow_start) = (self.congestion.window(), self.congestion.in_slow_start());
        if let Some(pacer) = &mut self.pacer {
            pacer.set_rate(window, self.rtt.pace(), slow_start, packet);
        }
    }

    fn end_starving(&mut self, now: Time) {
        self.counters.starved += self.supply.end_starving(now, self.rtt.smoothed());
    }

    // ---- timers

    /// When the receiver is to hear that the flow lives.
    fn heartbeat_at(&self) -> Option<Time> {
        let State::Sending(assigned) = self.state else { return None };
        Some(self.heartbeat?.due(assigned.version, self.supply.starved_since()?))
    }

    fn say_heartbeat(&mut self, now: Time, shared: &mut Shared) {
        let (Some(path), Some(assigned)) = (self.paths.current(), self.state.assigned()) else { return };
        self.say(path, Body::Heartbeat { assignment: assigned.version as u8 }, shared);
        self.heartbeat.iter_mut().for_each(|heartbeat| heartbeat.on_heartbeat(now, assigned.version));
    }

    /// Whether something is expected of the receiver: ACKs, or the answer to a challenge.
    fn watches(&self) -> bool {
        let expecting = self.packets.in_flight() > 0 || self.paths.unanswered().is_some();
        expecting && matches!(self.state, State::Sending(_))
    }

    fn do_what_is_due(&mut self, now: Time, outcome: &mut AckOutcome, shared: &mut Shared) {
        self.look_for_mtu(now, shared);
        if self.heartbeat_at().is_some_and(|at| now >= at) {
            self.say_heartbeat(now, shared);
        }
        if !self.watches() {
            return;
        }
        if now >= self.timers.heard_at + self.config.silent_pause {
            self.state.pause(By::Silence);
            self.end_starving(now);
            self.give_up_flight(now, outcome, shared);
            return;
        }
        if let Some((path, nonce)) = self.paths.unanswered()
            && now >= self.challenge.repeat_at(&self.rtt)
        {
            self.challenge.repeats += 1;
            self.on_path(now, PathNews::Challenge(nonce), path, shared);
        }
        let in_flight = self.packets.in_flight();
        if in_flight > 0 && self.timers.expire(now, &self.rtt, in_flight) {
            self.counters.timeouts += 1;
            self.rtt.back_off();
            self.give_up_flight(now, outcome, shared);
            self.doubt_mtu(now, shared);
        }
    }

    /// Everything in flight is lost, and the window begins anew.
    fn give_up_flight(&mut self, now: Time, outcome: &mut AckOutcome, shared: &mut Shared) {
        self.packets.lose_all(outcome);
        outcome.cancelled.clear();
        self.take_losses(outcome, shared);
        self.congestion.on_rto(now, outcome.lost.len() as u64);
        self.refresh.stop();
        self.set_pace();
        self.timers.on_given_up(now);
    }
}
