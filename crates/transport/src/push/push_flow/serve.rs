//! The flow as its source sees it.

use headwater_machine::Packet;
use headwater_units::{BlockIndex, Duration, PathId, Theta, Time};
use headwater_wire::{Body, Push};

use super::PushFlow;
use super::state::By;
use crate::push::stripe_window::LATE_PARTS;
use headwater_flow::in_flight::AckOutcome;
use headwater_flow::pacer::slack_of;
use headwater_flow::{FlowCounters, FlowStats, QUANTUM, Shared, SourceFlow};

impl SourceFlow for PushFlow {
    type Common = ();

    fn order(&self) -> &Push {
        &self.push
    }

    #[inline]
    fn look_again(&mut self) {
        self.supply.look_again();
    }

    #[inline]
    fn quantum(&self) -> u64 {
        match &self.pacer {
            Some(pacer) => pacer.quantum(),
            None => ((self.congestion.window().get() / 2.0) as u64).clamp(1, QUANTUM),
        }
    }

    fn slack(&self) -> Option<Duration> {
        let round_trip = self.rtt.smoothed()?;
        let of_window = self.congestion.window_lasts(self.packets.in_flight(), round_trip) / LATE_PARTS;
        let slack = slack_of(round_trip);
        Some(if self.is_of_overlay() { slack.max(of_window) } else { slack })
    }

    #[inline]
    fn is_flight_new(&self) -> bool {
        self.packets.in_flight() == 1
    }

    fn open_path(&self) -> Option<PathId> {
        self.paths.current().filter(|_| !self.state.is_paused())
    }

    fn set_theta(&mut self, theta: Theta) {
        self.congestion.set_theta(theta);
    }

    fn pause(&mut self, now: Time) {
        self.state.pause(By::Controller);
        self.end_starving(now);
    }

    fn resume(&mut self, now: Time) {
        if self.state.resume(By::Controller) {
            (self.timers.armed_at, self.timers.heard_at) = (now, now);
        }
    }

    fn stats(&self) -> FlowStats {
        FlowStats {
            flow: self.push.flow,
            task: self.push.task,
            object: self.push.object,
            receiver: self.push.receiver,
            theta: self.congestion.theta(),
            window: self.congestion.window(),
            mark_fraction: self.congestion.mark_fraction(),
            rtt: self.rtt.smoothed(),
            min_rtt: self.rtt.min(),
            signal: self.marks.signal(),
            in_flight: self.packets.in_flight(),
            starved: self.supply.is_starved(),
            paused: self.state.is_paused(),
            symbol_size: self.push.symbol_size,
            fits: self.too_long(),
            counters: FlowCounters { yields: self.congestion.yields(), ..self.counters },
            tree: None,
        }
    }

    /// A receiver that does not pull says itself where it is, with the work that it has.
    fn on_flow_path(&mut self, _now: Time, path: PathId, _shared: &mut Shared) {
        self.paths.vouch(path);
    }

    fn on_block_ready(&mut self, block: BlockIndex, repair: bool) {
        self.supply.on_block_ready(block, repair);
    }

    #[inline]
    fn hear(
        &mut self,
        now: Time,
        path: PathId,
        body: &Body,
        shared: &mut Shared,
        outcome: &mut AckOutcome,
        _: &mut (),
    ) -> bool {
        match body {
            Body::Assign(assign) => self.on_assign(now, path, assign, shared),
            Body::Ack(ack) => self.on_ack(now, path, ack, outcome, shared),
            Body::ProbeAck(ack) => self.on_probe_ack(now, *ack, shared),
            _ => return false,
        }
        true
    }

    #[inline]
    fn next(&mut self, now: Time, shared: &mut Shared, _: &mut ()) -> Option<Packet> {
        self.pace_at = None;
        let Some(choice) = self.choose(now, shared) else {
            if let Some(pacer) = &mut self.pacer
                && self.pace_at.is_none()
            {
                pacer.on_blocked();
            }
            return None;
        };
        Some(self.send(now, choice, shared))
    }

    #[inline]
    fn deadline(&self) -> Option<Time> {
        let mut at = self.pace_at.unwrap_or(Time::MAX);
        if self.watches() {
            at = at.min(self.timers.heard_at + self.config.silent_pause);
            if self.packets.in_flight() > 0 {
                at = at.min(self.timers.deadline(&self.rtt));
            }
            if self.paths.unanswered().is_some() {
                at = at.min(self.challenge.repeat_at(&self.rtt));
            }
        }
        if let Some(mtu_at) = self.mtu_deadline() {
            at = at.min(mtu_at);
        }
        if let Some(heartbeat_at) = self.heartbeat_at() {
            at = at.min(heartbeat_at);
        }
        (at < Time::MAX).then_some(at)
    }

    fn on_timer(&mut self, now: Time, outcome: &mut AckOutcome, shared: &mut Shared) -> bool {
        self.do_what_is_due(now, outcome, shared);
        // The pacer's deadline has come: the flow says anew what it waits for when its turn comes.
        self.pace_at = None;
        false
    }
}
