//! The sending end of TCP: NewReno (RFC 5681, RFC 6582), and on top DCTCP (RFC 8257), or the windows of BIC or Vegas ([`Avoidance`]).
//!
//! ```text
//!            third duplicate ACK, unless the ACK is below `recover`
//!    Open ------------------------------------------------------------> Recovering
//!      ^                                                                 |   partial ACK: send the next hole again
//!      +-----------------------------------------------------------------+
//!            ACK of all that was out when it began, or a timeout
//! ```
//! After a timeout everything that is not acknowledged is sent again in slow start (go-back-N): without SACK the sender
//! cannot know better. With it ([`Scoreboard`], RFC 6675) recovery begins too when three packets above the oldest one are here, keeps as
//! much in the network as the window allows, what is lost first, and a timeout passes over what is said to be here after it. Of the variants that RFC 6582 allows: the timer restarts at the first partial ACK only (§3.2, "impatient"), the
//! window after recovery is the flight plus one (step 3, first choice), and a timeout moves `recover` (§4.1). Limited
//! transmit (RFC 3042) and ECN without DCTCP are not here.
//!
//! A flow may grow while it is open: a *relay* sends what [`SenderCommand::Extend`] says is there, and is idle until there is more. Its
//! window grows only while it bounds what is sent (RFC 7661 §4.4), and begins anew after an idle time of more than a timeout (RFC 5681
//! §4.1). A flow may be paced: then a packet leaves at most once in an interval, and again the window grows only while it is what bounds.

use headwater_machine::{Input, Output};
use headwater_units::{Duration, FlowId, Packets, PathId, Time};
use headwater_wire::{Body, Cumulative, Ecn};

use super::avoidance::{Avoidance, Bic, Vegas};
use super::clock::Clock;
use super::commands::{SenderCommand, SenderEvent};
use super::ends::{End, Route};
use super::marks::Marks;
use super::scoreboard::Scoreboard;
use super::window::Window;
use super::{Scheme, SenderConfig, SenderStats, whole};

/// Duplicate ACKs that stand for a loss (RFC 5681 §3.2).
const DUPLICATES: u32 = 3;

/// The interval of a flow that waits.
const NEVER: Duration = Duration::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// `partial`: a partial ACK has come.
    Recovering {
        partial: bool,
    },
}

/// One flow's sender.
#[derive(Debug)]
pub(super) struct TcpSender {
    /// Every packet below is acknowledged (SND.UNA).
    acked: u64,
    /// The packet to send next (SND.NXT); behind `highest` after a timeout.
    next: u64,
    /// Packets below this may be sent: `acked` and the window, but not beyond the flow.
    edge: u64,
    /// One above the largest packet ever sent.
    highest: u64,
    /// The oldest packet is sent again before anything else.
    resend: bool,
    end: End,
    phase: Phase,
    duplicates: u32,
    route: Route,
    clock: Clock,
    window: Window,
    marks: Option<Marks>,
    /// Packets that are here above a gap, with SACK; and how many packets more may leave in a recovery.
    board: Option<Box<Scoreboard>>,
    room: u64,
    /// How the window grows behind slow start, if not as NewReno's.
    avoidance: Option<Box<Avoidance>>,
    packets: u64,
    /// Packets below this are there to be sent; all of them but in a relay.
    ready: u64,
    /// The least time between two packets, if there is any, and when the last one left that it counts from.
    pace: Option<Duration>,
    paced_since: Option<Time>,
    /// Since when a relay has had nothing out, if it has sent anything.
    idle_since: Option<Time>,
    /// The window at the start.
    first_window: f64,
    /// Packets that had been sent when recovery or the last timeout began; no other recovery begins below it (RFC 6582
    /// §3.2).
    recover: u64,
    /// `acked` at the last timeout, to tell the first timeout of a packet from the next.
    timed_out_at: Option<u64>,
    stats: SenderStats,
}

impl TcpSender {
    pub(super) fn new(config: &SenderConfig, flow: FlowId, path: PathId, packets: u64, ready: u64) -> Self {
        let threshold = config.initial_threshold.map_or(f64::INFINITY, |t| t.get());
        let dctcp = match config.scheme {
            Scheme::Dctcp(dctcp) => Some(dctcp),
            _ => None,
        };
        let avoidance = match config.scheme {
            Scheme::Bic => Some(Avoidance::Bic(Bic::NEW)),
            Scheme::Vegas => Some(Avoidance::Vegas(Vegas::NEW)),
            _ => None,
        };
        let ecn = if dctcp.is_some() { Ecn::Ect0 } else { Ecn::NotEct };
        let mut sender = TcpSender {
            acked: 0,
            next: 0,
            edge: 0,
            highest: 0,
            resend: false,
            end: if packets == 0 { End::Due } else { End::Open },
            phase: Phase::Open,
            duplicates: 0,
            route: Route { flow, path, ecn },
            clock: Clock::new(config.rtt),
            window: Window::new(whole(config.initial_window), threshold, config.limit()),
            marks: dctcp.map(Marks::new),
            board: config.sack.then(|| Box::new(Scoreboard::new(config.limit() as u64))),
            room: 0,
            avoidance: avoidance.map(Box::new),
            packets,
            ready: ready.min(packets),
            pace: None,
            paced_since: None,
            idle_since: None,
            first_window: whole(config.initial_window),
            recover: 0,
            timed_out_at: None,
            stats: SenderStats::default(),
        };
        sender.move_edge();
        sender
    }

    pub(super) fn stats(&self) -> SenderStats {
        SenderStats {
            window: Packets::new(self.window.size()),
            threshold: Packets::new(self.window.threshold()),
            mark_fraction: self.marks.map_or(0.0, |m| m.fraction()),
            rtt: self.clock.smoothed(),
            timeout: self.clock.timeout(),
            in_flight: self.in_flight(),
            acked: self.acked,
            ..self.stats
        }
    }

    // Inlined, and what it leads to not: so a driver's packet is looked at where it is.
    #[inline(always)]
    pub(super) fn handle(&mut self, now: Time, input: Input<SenderCommand>) {
        match input {
            Input::Packet(ref packet) if packet.datagram.flow == self.route.flow => {
                match packet.datagram.body {
                    Body::Cumulative(ack) => self.on_ack(now, ack),
                    Body::Fin(_) => self.stop(),
                    _ => self.stats.unexpected += 1,
                }
            }
            Input::Command(SenderCommand::Withdraw) => self.stop(),
            Input::Command(SenderCommand::Extend { flow, packets }) if flow == self.route.flow => {
                self.extend(now, packets);
            }
            Input::Command(SenderCommand::Pace { every }) => self.pace = every,
            Input::Command(SenderCommand::RestartWindow) => {
                self.restart_window();
                self.move_edge();
            }
            Input::Packet(_) | Input::Command(_) => self.stats.unexpected += 1,
        }
    }

    #[inline(always)]
    pub(super) fn poll(&mut self, now: Time) -> Output<SenderEvent> {
        if self.clock.is_due(now) {
            self.on_timeout();
        }
        if let Some(every) = self.pace
            && (self.resend || self.room > 0 || self.next < self.edge)
        {
            let due = match every {
                NEVER => Time::MAX,
                every => self.paced_since.map_or(Time::ZERO, |since| since + every),
            };
            if now < due {
                let wakes = [self.clock.wake(), Some(due).filter(|due| *due < Time::MAX)];
                return Output::Wake(wakes.into_iter().flatten().min());
            }
            self.paced_since = Some(now);
        }
        if self.resend {
            self.resend = false;
            return self.transmit(now, self.acked);
        }
        if self.room > 0 {
            self.room -= 1;
            match self.next_to_repair() {
                Some(number) => return self.transmit(now, number),
                None => self.room = 0,
            }
        }
        while self.next < self.edge {
            self.next += 1;
            let number = self.next - 1;
            // After a timeout.
            let is_here =
                number < self.highest && self.board.as_ref().is_some_and(|board| board.is_here(number));
            if !is_here {
                return self.transmit(now, number);
            }
        }
        self.end.say(self.route.flow).unwrap_or_else(|| Output::Wake(self.clock.wake()))
    }

    #[inline(always)]
    fn transmit(&mut self, now: Time, number: u64) -> Output<SenderEvent> {
        let fresh = number == self.highest;
        if fresh {
            self.highest += 1;
        } else {
            self.stats.resent += 1;
        }
        self.stats.sent += 1;
        self.clock.on_send(now, number, fresh);
        self.route.data(number)
    }

    #[inline(never)]
    fn on_ack(&mut self, now: Time, ack: Cumulative) {
        let next = ack.next.0;
        if self.end != End::Open {
            return; // A duplicate, or late.
        }
        if next > self.highest {
            self.stats.unexpected += 1;
            return;
        }
        self.stats.marked += u64::from(ack.echo);
        if let (Some(board), Some(block)) = (&mut self.board, ack.block) {
            let [from, to] = [block.from, block.to].map(|offset| next.saturating_add(offset.into()));
            if to > self.highest {
                self.stats.unexpected += 1;
                return;
            }
            board.on_block(self.acked, from, to);
        }
        if next > self.acked {
            self.on_progress(now, next, ack.echo);
        } else if next == self.acked && self.next > self.acked {
            self.on_duplicate();
        }
    }

    /// An ACK for something new.
    fn on_progress(&mut self, now: Time, next: u64, echo: bool) {
        let packets = next - self.acked;
        let bounds = self.window_bounds();
        if let Some(board) = &mut self.board {
            board.on_cumulative(self.acked, next);
        }
        self.acked = next;
        // After a timeout an old packet's ACK may overtake the sending again.
        self.next = self.next.max(next);
        self.duplicates = 0;
        self.resend = false;
        let sample = self.clock.on_cumulative(now, next);
        let cut = self.marks.as_mut().is_some_and(|marks| marks.on_ack(packets, echo, next, self.next));
        let mut restart = true;
        match self.phase {
            Phase::Open if cut => self.cut(),
            Phase::Open => match &mut self.avoidance {
                Some(avoidance) => avoidance.on_ack(&mut self.window, packets, sample, bounds),
                None if bounds => self.window.grow(packets),
                None => {}
            },
            Phase::Recovering { .. } if next >= self.recover => {
                self.phase = Phase::Open;
                self.window.leave_recovery(self.in_flight());
            }
            Phase::Recovering { partial } => {
                self.phase = Phase::Recovering { partial: true };
                restart = !partial;
                if self.board.is_none() {
                    self.window.deflate(packets);
                    self.resend = true;
                }
            }
        }
        if self.acked >= self.packets {
            self.end = End::Due;
        }
        if self.acked == self.next {
            self.clock.stop();
            self.idle_since = Some(now);
        } else if restart {
            self.clock.restart(now);
        }
        self.move_edge();
    }

    fn cut(&mut self) {
        if let Some(marks) = &mut self.marks {
            self.window.cut(marks.fraction());
            marks.on_cut(self.next);
            self.stats.cuts += 1;
        }
    }

    /// An ACK for nothing new while packets are out.
    fn on_duplicate(&mut self) {
        self.duplicates += 1;
        let has_lost = self.board.as_ref().is_some_and(|board| board.has_lost(self.acked));
        match self.phase {
            Phase::Recovering { .. } if self.board.is_some() => {}
            Phase::Recovering { .. } => self.window.inflate(),
            Phase::Open if (self.duplicates == DUPLICATES || has_lost) && self.acked >= self.recover => {
                self.phase = Phase::Recovering { partial: false };
                self.recover = self.highest;
                let threshold = self.threshold_after_loss();
                match &mut self.board {
                    None => self.window.enter_recovery(threshold),
                    Some(board) => {
                        board.begin(self.acked + 1);
                        self.window.reduce_to(threshold);
                    }
                }
                self.resend = true;
                self.clock.forget_timed();
                self.stats.fast_recoveries += 1;
            }
            Phase::Open => return,
        }
        self.move_edge();
    }

    fn threshold_after_loss(&mut self) -> f64 {
        let own = self.avoidance.as_mut().and_then(|avoidance| avoidance.on_loss(&self.window));
        own.unwrap_or(Window::half_of(self.in_flight()))
    }

    /// The oldest packet was not acknowledged in time (RFC 6298 §5.4 to §5.6, RFC 5681 §3.1, RFC 6582 §3.2 step 4).
    fn on_timeout(&mut self) {
        self.stats.timeouts += 1;
        let threshold = (self.timed_out_at != Some(self.acked)).then(|| self.threshold_after_loss());
        self.window.collapse(threshold);
        self.timed_out_at = Some(self.acked);
        self.recover = self.highest;
        if let Some(marks) = &mut self.marks {
            // Marks of what was out are answered with it (RFC 3168 §6.1.2); while TCP recovers, none are answered anyway.
            marks.on_cut(self.highest);
        }
        if let Some(board) = &mut self.board {
            board.forget(self.acked, self.highest);
        }
        self.phase = Phase::Open;
        self.duplicates = 0;
        self.resend = false;
        self.next = self.acked;
        self.clock.back_off();
        self.move_edge();
    }

    fn stop(&mut self) {
        if self.end == End::Open {
            self.end = End::Due;
            self.resend = false;
            (self.edge, self.room) = (0, 0);
            self.clock.stop();
        }
    }

    fn in_flight(&self) -> u64 {
        self.next - self.acked
    }

    fn move_edge(&mut self) {
        self.edge = self.acked.saturating_add(self.window.whole()).min(self.ready);
        if let (Some(board), Phase::Recovering { .. }) = (&self.board, self.phase) {
            let pipe = board.pipe(self.acked, self.highest);
            // Packets that the pipe has room for leave by `next_to_repair`.
            (self.room, self.edge) = (self.window.whole().saturating_sub(pipe), 0);
        } else {
            self.room = 0;
        }
    }

    /// In a recovery with SACK: what is lost, else something new, else what is missing below what is here (RFC 6675 §4, NextSeg).
    fn next_to_repair(&mut self) -> Option<u64> {
        let may_send_more = self.next < self.ready && self.in_flight() < self.window.limit();
        let board = self.board.as_mut()?;
        if let Some(lost) = board.next(self.acked, false) {
            return Some(lost);
        }
        if may_send_more {
            self.next += 1;
            return Some(self.next - 1);
        }
        board.next(self.acked, true)
    }

    /// More of a relayed flow is there.
    fn extend(&mut self, now: Time, packets: u64) {
        if self.end != End::Open {
            return;
        }
        self.ready = self.ready.max(packets.min(self.packets));
        if self.in_flight() == 0
            && self.idle_since.is_some_and(|since| now.since(since) > self.clock.timeout())
        {
            self.window.shrink_to(self.first_window);
            self.idle_since = None;
        }
        self.move_edge();
    }

    /// Whether the window is what bounds what is sent: always, unless it may be what there is or how fast it may leave.
    fn window_bounds(&self) -> bool {
        (self.ready == self.packets && self.pace.is_none()) || self.in_flight() + 1 >= self.window.whole()
    }

    /// Begins with the first window again; what is out stays out.
    fn restart_window(&mut self) {
        self.window.restart(self.first_window);
        self.phase = Phase::Open;
        self.duplicates = 0;
        self.recover = self.highest;
        if let Some(marks) = &mut self.marks {
            // Marks of what is out are answered with it.
            marks.on_cut(self.highest);
        }
    }
}
