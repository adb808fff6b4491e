//! The sending end of NDP (Handley et al., SIGCOMM 2017; as SCDP §II, §III-D and §IV describe it).
//!
//! ```text
//!                     pulled, or within the first window
//!   waits its turn -----------------------------------------> in flight ---receipt of the whole---> here
//!         ^                                                    |
//!         +------------- receipt of its header: in line <------+---no receipt in time: sent at once
//! ```
//! The first window is pushed at once; the NIC makes line rate of it. After it every packet is answer to a pull: first those
//! of which only the header came, in that order, then new ones. Each packet in flight has a timeout of its own (RFC 6298,
//! with one timed packet per round trip): the last resort, for headers and receipts that were lost. It counts from whatever
//! the receiver said last (RFC 6298 §5.3), since hundreds of headers may queue for longer than a timeout where hundreds of
//! first windows meet; but a packet that others overtake for four timeouts is lost. Where nothing is in flight and something
//! in line, four timeouts of silence send it unasked: the receiver may have it and have said so in vain.
//!
//! A relay's sender may send what has come to the relay so far ([`SenderCommand::Extend`]); pulls that find nothing to send
//! are kept.

use std::collections::VecDeque;

use headwater_machine::{Input, Output};
use headwater_transport::flow::rtt::Rtt;
use headwater_transport::pull::queue::Served;
use headwater_units::{Duration, FlowId, Packets, PathId, Time};
use headwater_wire::{Body, Class, Ecn, Pull, Receipt};

use super::commands::{SenderCommand, SenderEvent};
use super::ends::{End, Route};
use super::{NdpConfig, SenderConfig, SenderStats, whole};

/// Number of timeouts after which a packet is sent again at the latest, whatever else is heard.
const MOST_TIMEOUTS: u64 = 4;

/// State of a packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// It left then, and nothing is known of it.
    InFlight(Time),
    /// It must be sent again.
    InLine,
    /// It is there.
    Here,
}

/// One flow's sender.
#[derive(Debug)]
pub(super) struct NdpSender {
    route: Route,
    class: Class,
    packets: u64,
    /// Packets below this one may be sent.
    available: u64,
    /// Every packet below is there.
    base: u64,
    /// The first packet that was never sent.
    next: u64,
    /// From `base` to `next`.
    sent: VecDeque<Sent>,
    /// New packets that may leave without a pull.
    pushes: u64,
    /// Packets that were asked for and have not been sent.
    asked: u64,
    served: Served,
    /// Of which only the header came; perhaps some that are there by now.
    again: VecDeque<u64>,
    /// Of which nothing was heard in time; likewise.
    overdue: VecDeque<u64>,
    /// Every sending, in order; those that no longer agree with `sent` are stale.
    log: VecDeque<(Time, u64)>,
    timed: Option<(u64, Time)>,
    rtt: Rtt,
    timeout: Duration,
    /// When the receiver said anything last.
    heard: Time,
    in_flight: u64,
    end: End,
    limit: u64,
    window: u64,
    stats: SenderStats,
}

impl NdpSender {
    pub(super) fn new(
        config: &SenderConfig,
        ndp: NdpConfig,
        flow: FlowId,
        path: PathId,
        packets: u64,
        available: u64,
    ) -> Self {
        let rtt = Rtt::new(config.rtt);
        let window = whole(config.initial_window) as u64;
        NdpSender {
            route: Route { flow, path, ecn: Ecn::NotEct },
            class: ndp.class,
            packets,
            available: available.min(packets),
            base: 0,
            next: 0,
            sent: VecDeque::new(),
            pushes: window,
            asked: 0,
            served: Served::default(),
            again: VecDeque::new(),
            overdue: VecDeque::new(),
            log: VecDeque::new(),
            timed: None,
            timeout: rtt.rto(),
            rtt,
            heard: Time::ZERO,
            in_flight: 0,
            end: if packets == 0 { End::Due } else { End::Open },
            limit: config.limit() as u64,
            window,
            stats: SenderStats::default(),
        }
    }

    pub(super) fn stats(&self) -> SenderStats {
        SenderStats {
            window: Packets::new(self.window as f64),
            threshold: Packets::new(f64::INFINITY),
            rtt: self.rtt.smoothed(),
            timeout: self.timeout,
            in_flight: self.in_flight,
            ..self.stats
        }
    }

    // Inlined, and what it leads to not: so a driver's packet is looked at where it is.
    #[inline(always)]
    pub(super) fn handle(&mut self, now: Time, input: Input<SenderCommand>) {
        match input {
            Input::Packet(ref packet) if packet.datagram.flow == self.route.flow => {
                match packet.datagram.body {
                    Body::Receipt(receipt) => self.on_receipt(now, receipt),
                    Body::Pull(pull) => self.on_pull(now, pull),
                    Body::Fin(_) => self.stop(),
                    _ => self.stats.unexpected += 1,
                }
            }
            Input::Command(SenderCommand::Withdraw) => self.stop(),
            Input::Command(SenderCommand::Extend { flow, packets }) if flow == self.route.flow => {
                self.available = self.available.max(packets.min(self.packets));
            }
            Input::Packet(_) | Input::Command(_) => self.stats.unexpected += 1,
        }
    }

    pub(super) fn poll(&mut self, now: Time) -> Output<SenderEvent> {
        if self.end != End::Open {
            return self.end.say(self.route.flow).unwrap_or(Output::Wake(None));
        }
        if self.deadline().is_some_and(|at| at <= now) {
            self.on_timer(now);
        }
        match self.choose() {
            Some((number, syn)) => self.transmit(now, number, syn),
            None => Output::Wake(self.deadline()),
        }
    }

    /// The packet to send now, and whether nobody asked for it.
    fn choose(&mut self) -> Option<(u64, bool)> {
        while let Some(number) = self.overdue.pop_front() {
            if self.is_in_line(number) {
                return Some((number, false));
            }
        }
        if self.asked > 0 {
            while let Some(number) = self.again.pop_front() {
                if self.is_in_line(number) {
                    self.asked -= 1;
                    return Some((number, false));
                }
            }
        }
        if self.next >= self.available || self.next - self.base >= self.limit {
            return None;
        }
        let syn = self.pushes > 0;
        match syn {
            true => self.pushes -= 1,
            false => self.asked = self.asked.checked_sub(1)?,
        }
        Some((self.next, syn))
    }

    fn transmit(&mut self, now: Time, number: u64, syn: bool) -> Output<SenderEvent> {
        if number == self.next {
            self.next += 1;
            self.sent.push_back(Sent::InFlight(now));
            self.timed.get_or_insert((number, now));
        } else {
            *self.state(number).expect("only what was sent is sent again") = Sent::InFlight(now);
            self.stats.resent += 1;
            self.timed = self.timed.filter(|&(timed, _)| timed != number);
        }
        self.log.push_back((now, number));
        self.in_flight += 1;
        self.stats.sent += 1;
        self.route.data_of(self.class, number, syn)
    }

    fn state(&mut self, number: u64) -> Option<&mut Sent> {
        self.sent.get_mut(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    fn is_in_line(&mut self, number: u64) -> bool {
        self.state(number).is_some_and(|state| *state == Sent::InLine)
    }

    #[inline(never)]
    fn on_receipt(&mut self, now: Time, receipt: Receipt) {
        let number = receipt.number.0;
        if self.end != End::Open {
            return; // A duplicate, or late.
        }
        if number >= self.next {
            self.stats.unexpected += 1;
            return;
        }
        self.heard = now;
        self.ask(receipt.sequence);
        let Some(state) = self.state(number) else { return };
        let before = *state;
        match (receipt.trimmed, before) {
            (_, Sent::Here) | (true, Sent::InLine) => return,
            // Of a packet that was sent twice it may be the first copy's header. Then a third one is sent.
            (true, Sent::InFlight(_)) => {
                *state = Sent::InLine;
                self.again.push_back(number);
                self.stats.lost += 1;
                self.timed = self.timed.filter(|&(timed, _)| timed != number);
            }
            (false, _) => {
                *state = Sent::Here;
                self.stats.acked += 1;
            }
        }
        self.in_flight -= u64::from(before != Sent::InLine);
        if let Some((timed, at)) = self.timed
            && timed == number
            && !receipt.trimmed
        {
            self.rtt.on_sample(now, now.since(at), Duration::ZERO);
            self.rtt.on_progress();
            self.timeout = self.rtt.rto();
            self.timed = None;
        }
        while self.sent.front() == Some(&Sent::Here) {
            self.sent.pop_front();
            self.base += 1;
        }
        self.forget_stale();
        if self.base >= self.packets {
            self.end = End::Due;
        }
    }

    #[inline(never)]
    fn on_pull(&mut self, now: Time, pull: Pull) {
        if self.end == End::Open {
            self.heard = now;
            self.ask(pull.sequence);
        }
    }

    /// A receiver that asks for more than the flow may have in flight asks for that much.
    fn ask(&mut self, sequence: u32) {
        let more = u64::from(self.served.on_pull(sequence));
        self.asked = (self.asked + more).min(self.limit);
    }

    /// When the timer fires.
    fn deadline(&self) -> Option<Time> {
        match self.log.front() {
            Some(&(at, _)) => Some(self.overdue_at(at)),
            None => (!self.again.is_empty()).then(|| self.heard + self.timeout * MOST_TIMEOUTS),
        }
    }

    /// When a packet that left at `at` is overdue.
    fn overdue_at(&self, at: Time) -> Time {
        let silent = self.heard + self.timeout;
        silent.clamp(at + self.timeout, at + self.timeout * MOST_TIMEOUTS)
    }

    /// Puts in line what is overdue.
    fn on_timer(&mut self, now: Time) {
        let mut fired = false;
        if self.log.is_empty() {
            while let Some(number) = self.again.pop_front() {
                if self.is_in_line(number) {
                    self.overdue.push_back(number);
                    self.stats.timeouts += 1;
                    fired = true;
                    break;
                }
            }
        }
        while let Some(&(at, number)) = self.log.front() {
            let is_current = self.state(number).is_some_and(|state| *state == Sent::InFlight(at));
            if is_current {
                if self.overdue_at(at) > now {
                    break;
                }
                *self.state(number).expect("just seen") = Sent::InLine;
                self.in_flight -= 1;
                self.overdue.push_back(number);
                self.stats.timeouts += 1;
                fired = true;
            }
            self.log.pop_front();
        }
        if fired {
            // A round of timeouts backs off once (RFC 6298 §5.5).
            self.rtt.back_off();
            self.timeout = self.rtt.rto();
            self.timed = None;
        }
    }

    /// The timer is that of the oldest packet in flight.
    fn forget_stale(&mut self) {
        while let Some(&(at, number)) = self.log.front() {
            if self.state(number).is_some_and(|state| *state == Sent::InFlight(at)) {
                return;
            }
            self.log.pop_front();
        }
    }

    fn stop(&mut self) {
        if self.end == End::Open {
            self.end = End::Due;
        }
    }
}
