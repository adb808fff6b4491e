//! One push flow at its source: what may leave now, and what an ACK or a timer changes (PPUSH §III-A, §III-B).
//!
//! ```text
//!            first Assign              nothing heard for `silent_pause`, or Pause
//!  Opened ----------------> Sending <---------------------------------------------> Paused
//!                              |        any datagram, or Resume
//!                              v
//!                  window full | pacer | work done or blocks not ready | receiver's or address limit
//! ```
//!
//! Two timers watch packets in flight, and a third one a challenge that has not been answered. The probe timeout (RFC 9002 §6.2) repeats a tail without touching the window;
//! one probe per silence. The retransmission timeout (RFC 6298) gives up everything in flight and resets the window.

mod discovery;
mod esi_set;
mod listed;
mod pick;
mod refresh;
mod residue;
mod serve;
mod start;
mod work;

use headwater_machine::{Output, Packet};
use headwater_units::{
    BlockIndex, Bytes, Duration, Geometry, NodeId, PacketNumber, PathId, SymbolId, Symbols, Time,
};
use headwater_wire::{
    Ack, Assign, Body, Class, Datagram, Ecn, HEADER, MarkSignal, OPENING, Push, Start, SymbolHeader,
};

use crate::flow::blocks::BlockTable;
use crate::flow::in_flight::{AckOutcome, InFlight, Sent};
use crate::flow::marks::Marks;
use crate::flow::pacer::Pacer;
use crate::flow::path_mtu::PathMtu;
use crate::flow::paths::{PathNews, Paths};
use crate::flow::rtt::Rtt;
use crate::flow::{FlowCounters, Shared, SourceFlow};
use crate::push::congestion::Congestion;
use crate::push::feedback::Feedback;
use crate::push::{AckInterval, LostSymbols, PushFlowConfig};
use pick::Pick;
use refresh::Refresh;
use work::Work;

/// The memory of paths is asked so often per window of the minimum that it keeps.
const MEMORY_LOOKS: u64 = 1000;

/// One flow.
#[derive(Debug)]
pub(crate) struct PushFlow {
    config: PushFlowConfig,
    push: Push,
    paths: Paths,
    congestion: Congestion,
    rtt: Rtt,
    pacer: Option<Pacer>,
    packets: InFlight,
    marks: Marks,
    refresh: Refresh,
    blocks: BlockTable,
    work: Work,
    /// What its receiver has assigned; nothing yet: it is opened.
    assigned: Option<Assigned>,
    largest_acked: Option<PacketNumber>,
    /// By the controller.
    paused: bool,
    /// By the receiver's silence.
    silent: bool,
    heard_at: Time,
    /// Since when the retransmission timer runs.
    armed_at: Time,
    sent_at: Time,
    tail: Tail,
    /// When the address was challenged last, and how often in vain.
    challenged_at: Time,
    challenges: u32,
    pace_at: Option<Time>,
    /// Something else than window and pacer held the flow back last.
    app_limited: bool,
    supply: Supply,
    last_block: Option<BlockIndex>,
    /// The new symbol that comes next, if that is known: good for as long as nothing but sending happens.
    ahead: Option<Pick>,
    /// What [`crate::flow::paths::PathMemory`] said last, and until when that will do.
    known_min: (Duration, Time),
    /// How long a datagram the path carries, if that is looked after.
    pub(super) mtu: Option<PathMtu>,
    /// What the controller knew of the path, until a round trip is measured.
    pub(super) start: Option<Start>,
    /// Packets below this one are of its first window, which goes before others where levels are served.
    pub(super) young_below: PacketNumber,
    /// From a challenge to its answer.
    pub(super) echo_rtt: Option<Duration>,
    /// Whether a search of the path's MTU has begun because none of the first symbols was acknowledged.
    pub(super) doubted: bool,
    /// The window for which blocks were prepared.
    prepared_for: f64,
    counters: FlowCounters,
}

/// The assignment in force.
#[derive(Clone, Copy, Debug)]
struct Assigned {
    version: u32,
    receive_window: u32,
}

/// Whether the tail of what is in flight was probed since something was acknowledged last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    Unprobed,
    /// The tail was probed, or a probe would be of no use; counts the probe's packets that have yet to leave.
    Probed {
        due: u8,
    },
}

/// Whether there is a block to send from.
#[derive(Clone, Copy, Debug)]
enum Supply {
    /// There is. Its symbols say that it starved until this moment, a round trip after it did.
    Fed { starved_until: Time },
    /// There has been none since then, although the window was open.
    Starved { since: Time },
}

/// Something that leaves now.
enum Choice {
    New(Pick),
    Again(Sent),
    Probe(Sent),
}

impl PushFlow {
    pub(crate) fn new(
        now: Time,
        config: PushFlowConfig,
        push: Push,
        geometry: Geometry,
        shared: &Shared,
    ) -> Self {
        let mut flow = PushFlow {
            congestion: Congestion::new(&config, &push),
            push,
            paths: Paths::default(),
            rtt: Rtt::new(config.rtt),
            pacer: config.pacer.map(Pacer::new),
            packets: InFlight::new(config.lost_memory),
            marks: Marks::new(config.delay_mark),
            refresh: Refresh::new(config.delay_mark),
            blocks: BlockTable::default(),
            work: Work::new(geometry, config.look_ahead),
            assigned: None,
            largest_acked: None,
            paused: false,
            silent: false,
            heard_at: now,
            armed_at: now,
            sent_at: now,
            tail: Tail::Unprobed,
            challenged_at: now,
            challenges: 0,
            pace_at: None,
            app_limited: true,
            supply: Supply::Fed { starved_until: Time::ZERO },
            last_block: None,
            ahead: None,
            known_min: (Duration::MAX, Time::ZERO),
            mtu: None,
            start: None,
            young_below: PacketNumber(0),
            echo_rtt: None,
            doubted: false,
            prepared_for: 0.0,
            counters: FlowCounters::default(),
            config,
        };
        if flow.is_gentle() {
            flow.refresh.leave_one();
        }
        flow.begin_mtu(shared);
        flow.begin_at_known_rate(shared);
        flow.set_pace();
        flow
    }

    /// The receiver.
    pub(crate) fn receiver(&self) -> NodeId {
        self.push.receiver
    }

    /// Whether its address has answered.
    pub(crate) fn is_path_validated(&self) -> bool {
        self.paths.current().is_some() && self.paths.unanswered().is_none()
    }

    /// Whether symbols are in flight, and none was ever acknowledged.
    pub(crate) fn awaits_first_ack(&self) -> bool {
        self.largest_acked.is_none() && self.packets.in_flight() > 0
    }

    /// Since when something has been in flight without an answer.
    pub(crate) fn flight_since(&self) -> Time {
        self.armed_at
    }

    pub(crate) fn smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// Whether it takes only what others leave.
    fn is_gentle(&self) -> bool {
        self.congestion.is_gentle()
    }

    pub(crate) fn count_path_probe(&mut self) {
        self.counters.path_probes += 1;
    }

    // ---- orders of the controller

    // ---- what the receiver and the driver say

    pub(crate) fn on_assign(&mut self, now: Time, path: PathId, assign: &Assign, shared: &mut Shared) {
        self.heard(now);
        let unanswered = self.paths.unanswered().is_some();
        let came = if assign.padded { OPENING } else { HEADER };
        let earned = self.config.unanswered.earned(came as u64, self.packet_bytes());
        let news = self.paths.on_opening(path, assign.nonce, earned, &mut shared.rng);
        if unanswered && self.paths.unanswered().is_none() && self.challenges == 0 {
            self.echo_rtt = Some(now.since(self.challenged_at));
        }
        self.on_path(now, news, path, shared);
        let ahead = self.assigned.map(|before| assign.version.wrapping_sub(before.version) as i32);
        let newer = ahead.is_none_or(|ahead| ahead > 0);
        if newer {
            let refused = self.work.assign(&assign.assignment, self.packets.next_number());
            self.counters.bad_work += refused;
        }
        if newer || ahead == Some(0) {
            let receive_window = assign.receive_window.min(self.config.max_in_flight);
            self.assigned = Some(Assigned { version: assign.version, receive_window });
        }
        if self.work.decoded_below(assign.first_undecoded) || newer {
            self.release_done(shared);
            self.prepare(shared);
        }
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
        if self.packets.on_ack(now, ack, outcome).is_ok() {
            self.take_outcome(now, ack, before, outcome, shared);
        } else {
            self.counters.bad_acks += 1;
        }
    }

    pub(crate) fn heard(&mut self, now: Time) {
        self.heard_at = now;
        if self.silent {
            self.silent = false;
            self.armed_at = now;
        }
    }

    fn on_path(&mut self, now: Time, news: PathNews, path: PathId, shared: &mut Shared) {
        match news {
            PathNews::None => {}
            PathNews::Challenge(nonce) => {
                self.challenged_at = now;
                let datagram = self.datagram(Class::Control, Body::Challenge { nonce });
                shared.out.push_back(Output::Transmit(Packet { path, ecn: Ecn::NotEct, datagram }));
            }
            PathNews::Moved => {
                // What was learnt about the old path says nothing about the new one (RFC 9000 §9.4).
                self.challenges = 0;
                self.rtt = Rtt::new(self.config.rtt);
                self.congestion.on_new_path(&self.config);
                self.marks.on_new_path();
                self.set_pace();
                self.forget_mtu(now, shared);
            }
        }
    }

    fn take_outcome(
        &mut self,
        now: Time,
        ack: &Ack,
        before: usize,
        outcome: &AckOutcome,
        shared: &mut Shared,
    ) {
        let acked = (outcome.acked.len() + outcome.late.len()) as u64;
        let rtt = outcome.rtt.map(|sample| {
            let adjusted = self.rtt.on_sample(now, sample, ack.delay);
            (adjusted, self.rtt.min().unwrap_or(sample).min(self.remember(now, sample, shared)))
        });
        if acked > 0 {
            self.armed_at = now;
            self.tail = Tail::Unprobed;
            self.rtt.on_progress();
            if let Some(mtu) = &mut self.mtu {
                mtu.on_full_size_acknowledged();
            }
        }
        self.counters.acked += Symbols::new(acked);
        self.counters.spurious += Symbols::new(outcome.late.len() as u64);
        for sent in &outcome.acked {
            self.blocks.landed(sent.symbol.block);
        }
        self.take_losses(outcome, shared);

        if let Some((_, min)) = rtt {
            self.on_first_sample(min);
        }
        if let Some((sample, min)) = rtt {
            self.refresh.on_sample(now, sample, min, self.rtt.smoothed().unwrap_or(sample));
        }
        let seen = self.marks.on_ack(ack, acked, self.packets.next_number().0, rtt);
        self.counters.bad_counters = self.marks.disbelieved();
        self.counters.marked += Symbols::new(seen.marked);
        let filled = before as f64 + 1.0 > self.congestion.window().get();
        let half_filled =
            self.congestion.in_slow_start() && 2.0 * before as f64 >= self.congestion.window().get();
        let feedback = Feedback {
            acked,
            marked: seen.marked,
            lost: outcome.lost.len() as u64,
            largest: outcome.largest.unwrap_or_default(),
            next: self.packets.next_number(),
            limited: !self.app_limited || filled || half_filled,
            queueing: seen.queueing,
        };
        if acked > 0 || feedback.lost > 0 {
            let by_routers = self.marks.signal() == MarkSignal::Ecn;
            self.congestion.on_ack(now, &feedback, by_routers, rtt);
            self.set_pace();
        }
        let by_delay = self.marks.signal() == MarkSignal::Delay || self.is_gentle();
        if by_delay && !self.congestion.in_slow_start() {
            let rtt = self.rtt.smoothed().unwrap_or_default();
            self.refresh.proceed(now, rtt, self.packets.in_flight());
        } else {
            self.refresh.stop();
        }

        let newest = self.largest_acked.is_none_or(|largest| ack.largest >= largest);
        self.largest_acked = self.largest_acked.max(Some(ack.largest));
        let delivered = outcome.acked.iter().chain(&outcome.late).map(|s| s.symbol.block);
        self.work.on_ack(ack, newest, delivered);
        let news = self.work.decoded_below(ack.first_undecoded);
        if news || ack.owed.iter().any(|o| o.symbols == Symbols::ZERO) {
            self.release_done(shared);
        } else {
            for sent in outcome.acked.iter().chain(&outcome.cancelled) {
                self.release_if_done(sent.symbol.block, shared);
            }
        }
        if news || self.congestion.window().get() > 1.5 * self.prepared_for {
            self.prepare(shared);
        }
    }

    /// The smallest round-trip time that any flow to this receiver has seen. The memory they share is asked when the
    /// sample is news, else now and then: it is a table of all receivers.
    fn remember(&mut self, now: Time, sample: Duration, shared: &mut Shared) -> Duration {
        let (known, until) = self.known_min;
        if sample >= known && now < until {
            return known;
        }
        let known = shared.memory.record(now, self.push.receiver, sample);
        self.known_min = (known, now + self.config.rtt.min_window / MEMORY_LOOKS);
        known
    }

    fn take_losses(&mut self, outcome: &AckOutcome, shared: &mut Shared) {
        self.counters.lost += Symbols::new(outcome.lost.len() as u64);
        for lost in &outcome.lost {
            let Sent { number, symbol, attempt, .. } = lost.sent;
            if lost.resend && self.wants(symbol, attempt) {
                self.blocks.resend_wanted(symbol.block);
            } else if lost.resend {
                self.packets.drop_resend(number);
            }
            self.blocks.landed(symbol.block);
            self.release_if_done(symbol.block, shared);
        }
        for sent in &outcome.cancelled {
            self.blocks.resend_settled(sent.symbol.block);
        }
    }

    fn wants(&self, symbol: SymbolId, attempt: u8) -> bool {
        let again = self.config.lost_symbols == LostSymbols::Resend || self.work.names_symbols();
        again && self.work.wants(symbol, attempt)
    }

    // ---- blocks

    /// Asks for the blocks that come next.
    fn prepare(&mut self, shared: &mut Shared) {
        let window = self.congestion.window().get();
        self.prepared_for = window;
        let flow = self.push.flow;
        let symbols = self.config.prepare_windows * window;
        self.work.prepare(&mut self.blocks, self.config.prepare_ahead, symbols, |blocks, upcoming| {
            blocks.prepare(flow, upcoming.block, upcoming.repair, &mut shared.out);
        });
    }

    fn release_done(&mut self, shared: &mut Shared) {
        let work = &self.work;
        self.blocks.release_all(self.push.flow, |block| work.has_left(block), &mut shared.out);
    }

    fn release_if_done(&mut self, block: BlockIndex, shared: &mut Shared) {
        if !self.blocks.is_in_use(block) && !self.work.has_left(block) {
            self.blocks.release(self.push.flow, block, &mut shared.out);
        }
    }

    // ---- sending

    fn choose(&mut self, now: Time, shared: &mut Shared) -> Option<Choice> {
        let Assigned { receive_window, .. } = self.assigned?;
        if self.paused || self.silent || self.is_too_long() {
            return None;
        }
        let in_flight = self.packets.in_flight();
        let room = self.paths.allowance(self.config.unanswered) > 0
            && (in_flight as u64) < u64::from(receive_window);
        if let Tail::Probed { due } = &mut self.tail
            && *due > 0
            && room
        {
            *due -= 1;
            if let Some(sent) = self.choose_probe() {
                return Some(Choice::Probe(sent));
            }
        }
        if !self.congestion.allows(in_flight) {
            self.app_limited = false;
            self.end_starving(now);
            return None;
        }
        if !self.refresh.allows(in_flight) {
            self.app_limited = true;
            self.end_starving(now);
            return None;
        }
        let choice = if room { self.choose_symbol(now, shared) } else { None };
        if choice.is_none() {
            self.app_limited = true;
            return None;
        }
        if let Some(pacer) = &self.pacer {
            let at = pacer.ready_at(now);
            if at > now {
                self.app_limited = false;
                self.end_starving(now);
                self.pace_at = Some(at);
                return None;
            }
        }
        choice
    }

    /// Lost symbols first, then new ones.
    #[inline]
    fn choose_symbol(&mut self, now: Time, shared: &mut Shared) -> Option<Choice> {
        match self.ahead {
            Some(pick) => Some(Choice::New(pick)),
            None => self.find_symbol(now, shared),
        }
    }

    fn find_symbol(&mut self, now: Time, shared: &mut Shared) -> Option<Choice> {
        while let Some(sent) = self.packets.next_resend() {
            let wanted = self.wants(sent.symbol, sent.attempt);
            if wanted && self.work.needs(sent.symbol, &self.blocks) {
                return Some(Choice::Again(sent));
            }
            self.packets.drop_resend(sent.number);
            self.blocks.resend_settled(sent.symbol.block);
            self.release_if_done(sent.symbol.block, shared);
        }
        let (pick, skipped) = self.work.peek(&self.blocks);
        if skipped {
            self.prepare(shared);
        }
        if pick.is_none()
            && skipped
            && let Supply::Fed { .. } = self.supply
        {
            self.supply = Supply::Starved { since: now };
        }
        self.ahead = pick;
        pick.map(Choice::New)
    }

    /// The oldest symbol in flight that is still asked for, or else the oldest: any ACK will do.
    fn choose_probe(&self) -> Option<Sent> {
        let wanted = self.packets.uncopied().find(|s| self.work.wants(s.symbol, s.attempt));
        wanted.or_else(|| self.packets.uncopied().next())
    }

    fn send(&mut self, now: Time, choice: Choice, shared: &mut Shared) -> Packet {
        if self.packets.in_flight() == 0 {
            self.armed_at = now;
        }
        self.sent_at = now;
        self.ahead = None;
        let starved = shared.limited
            || match self.supply {
                Supply::Starved { .. } => true,
                Supply::Fed { starved_until } => now < starved_until,
            };
        let mut ack_now = false;
        let (symbol, number) = match choice {
            Choice::New(pick) => {
                self.work.commit(pick);
                (pick.symbol, self.packets.send(now, pick.symbol, pick.attempt, None))
            }
            Choice::Again(sent) => {
                self.counters.resent += Symbols::new(1);
                self.blocks.resend_settled(sent.symbol.block);
                (sent.symbol, self.packets.send(now, sent.symbol, sent.attempt, Some(sent.number)))
            }
            Choice::Probe(sent) => {
                self.counters.probes += Symbols::new(1);
                ack_now = true;
                (sent.symbol, self.packets.send(now, sent.symbol, sent.attempt, Some(sent.number)))
            }
        };
        self.counters.sent += Symbols::new(1);
        self.blocks.sent(symbol.block);
        self.paths.on_sent();
        if let Some(pacer) = &mut self.pacer {
            pacer.on_sent(now);
        }
        if self.last_block.replace(symbol.block) != Some(symbol.block) {
            self.prepare(shared);
        }
        let ack_interval = self.ack_interval();
        // Where each symbol is acknowledged anyway, it is not worth looking whether this is the last one.
        ack_now |= self.is_held_back() || (ack_interval > 1 && self.nothing_follows(now, shared));
        let class = if number < self.young_below { Class::First } else { self.push.class };
        let header = SymbolHeader {
            number,
            symbol,
            ack_interval,
            ack_now,
            assignment: self.assigned.map_or(0, |assigned| assigned.version) as u8,
            starved,
            syn: false,
            trimmed: false,
        };
        Packet {
            path: self.paths.current().expect("an assignment gave the path"),
            ecn: Ecn::Ect0,
            datagram: self.datagram(class, Body::Symbol(header)),
        }
    }

    /// Whether its address or its receiver allows no more: then an ACK is wanted at once.
    fn is_held_back(&self) -> bool {
        self.paths.allowance(self.config.unanswered) == 0
            || self.packets.in_flight() as u64 >= self.assigned.map_or(0, |it| u64::from(it.receive_window))
    }

    /// Whether the window has room and there is nothing to fill it with: likewise.
    fn nothing_follows(&mut self, now: Time, shared: &mut Shared) -> bool {
        self.congestion.allows(self.packets.in_flight())
            && self.refresh.allows(self.packets.in_flight())
            && self.choose_symbol(now, shared).is_none()
    }

    fn ack_interval(&self) -> u8 {
        match self.config.ack_interval {
            AckInterval::EverySymbol => 1,
            // While it looks for the empty path, the flow has no more than a few packets out.
            AckInterval::WindowPart { .. } if self.refresh.holds_back() => 1,
            AckInterval::WindowPart { parts, most } => {
                let part = self.congestion.window().get() / f64::from(parts.max(1));
                (part as u64).clamp(1, u64::from(most.max(1))) as u8
            }
        }
    }

    pub(crate) fn datagram(&self, class: Class, body: Body) -> Datagram {
        Datagram { class, key_epoch: 0, flow: self.push.flow, body }
    }

    fn set_pace(&mut self) {
        let packet = Bytes::new(self.packet_bytes());
        let (window, slow_start) = (self.congestion.window(), self.congestion.in_slow_start());
        if let Some(pacer) = &mut self.pacer {
            pacer.set_rate(window, self.rtt.pace(), slow_start, packet);
        }
    }

    fn end_starving(&mut self, now: Time) {
        if let Supply::Starved { since } = self.supply {
            self.counters.starved += now.since(since);
            self.supply = Supply::Fed { starved_until: now + self.rtt.smoothed().unwrap_or_default() };
        }
    }

    // ---- timers

    /// Whether something is expected of the receiver: ACKs, or the answer to a challenge.
    fn watches(&self) -> bool {
        let expecting = self.packets.in_flight() > 0 || self.paths.unanswered().is_some();
        expecting && !self.paused && !self.silent
    }

    /// A challenge may be lost, or its answer: said again after a probe timeout, then after twice as long, and so on.
    fn repeat_challenge_at(&self) -> Option<Time> {
        self.paths.unanswered().map(|_| self.challenged_at + self.rtt.pto() * (1 << self.challenges.min(16)))
    }

    fn timeout_at(&self) -> Time {
        self.armed_at + self.rtt.rto()
    }

    /// A probe goes out before the timeout would; the timeout then runs anew (as RFC 8985 §7.3).
    fn probe_at(&self) -> Option<Time> {
        let due = self.armed_at.max(self.sent_at) + self.rtt.pto();
        (self.config.tail_probe.is_some() && self.tail == Tail::Unprobed).then(|| due.min(self.timeout_at()))
    }

    fn do_what_is_due(&mut self, now: Time, outcome: &mut AckOutcome, shared: &mut Shared) {
        self.look_for_mtu(now, shared);
        if !self.watches() {
            return;
        }
        if now >= self.heard_at + self.config.silent_pause {
            self.silent = true;
            self.end_starving(now);
            self.give_up_flight(now, outcome, shared);
            return;
        }
        if self.repeat_challenge_at().is_some_and(|at| now >= at)
            && let Some((path, nonce)) = self.paths.unanswered()
        {
            self.challenges += 1;
            self.on_path(now, PathNews::Challenge(nonce), path, shared);
        }
        if self.packets.in_flight() == 0 {
            return;
        }
        if self.probe_at().is_some_and(|at| now >= at) {
            let packets = self.config.tail_probe.map_or(0, |p| p.packets);
            self.tail = Tail::Probed { due: packets.min(self.packets.in_flight().min(255) as u8) };
            self.armed_at = now;
        } else if now >= self.timeout_at() {
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
        self.tail = Tail::Probed { due: 0 };
        self.armed_at = now;
    }
}
