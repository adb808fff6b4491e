//! Timeouts of a session, and the end of its flows and its task.

use headwater_units::Time;
use headwater_wire::{Body, FinReason};

use super::blocks::Blocks;
use super::flow::Overdue;
use super::{Ask, Phase, Session, Why};
use crate::pull::queue::PullQueue;
use crate::{ReceiverEvent, ReceiverFailure};
use headwater_flow::task::close_handshake::{Stand, Step};

impl Session {
    // ---- the end

    pub(super) fn end_flow(&mut self, now: Time, place: usize, reason: FinReason) {
        let flow = &mut self.flows[place];
        if !flow.is_live() {
            return;
        }
        flow.stand.end(now, reason);
        flow.expected.coming = 0;
        if let Some(blocks) = &mut self.blocks {
            for block in blocks.release(place) {
                self.outbox.event(ReceiverEvent::Discard { block });
            }
        }
        self.look_soon(now);
    }

    pub(super) fn complete(&mut self, now: Time, pulls: &mut PullQueue<Ask>) {
        self.outbox.event(ReceiverEvent::Done);
        self.finish(now, FinReason::Done, pulls);
    }

    /// The source goes: what was asked of it is asked of others at once, and nothing is left to say to it.
    pub(super) fn on_farewell(&mut self, now: Time, place: usize, pulls: &mut PullQueue<Ask>) {
        if !self.flows[place].is_live() || self.is_over() {
            return;
        }
        self.end_flow(now, place, FinReason::Cancelled);
        self.unbind(place);
        self.refill(now, pulls);
    }

    pub(crate) fn fail(&mut self, now: Time, failure: ReceiverFailure, pulls: &mut PullQueue<Ask>) {
        if self.is_over() {
            return;
        }
        self.outbox.event(ReceiverEvent::Failed(failure));
        self.finish(now, FinReason::Cancelled, pulls);
    }

    pub(super) fn finish(&mut self, now: Time, reason: FinReason, pulls: &mut PullQueue<Ask>) {
        self.phase = Phase::Ending;
        pulls.clear(self.turn);
        self.waiting = 0;
        for flow in self.flows.iter_mut().filter(|flow| flow.is_live()) {
            flow.stand.end(now, reason);
        }
        self.look_soon(now);
    }

    /// A flow that ends is over.
    pub(super) fn unbind(&mut self, place: usize) {
        let flow = &mut self.flows[place];
        if flow.is_live() {
            self.stats.strays += 1;
            return;
        }
        flow.stand = Stand::Over;
        let (id, group) = (flow.id(), flow.group.as_ref().map(|group| group.flow));
        self.outbox.event(ReceiverEvent::Unbind { flow: id });
        if let Some(group) = group {
            self.outbox.event(ReceiverEvent::Unbind { flow: group });
        }
    }

    // ---- time

    pub(super) fn look_soon(&mut self, now: Time) {
        self.look_at = self.look_at.min(now);
    }

    pub(super) fn look(&mut self, now: Time, pulls: &mut PullQueue<Ask>) {
        self.look_at = Time::MAX;
        if self.phase == Phase::Receiving {
            self.look_for_silence(now, pulls);
        }
        if self.phase == Phase::Receiving && self.blocks.as_ref().is_some_and(|blocks| blocks.decoding() == 0)
        {
            let until = self.last_useful + self.config.source_patience;
            if now >= until {
                let missing = self.blocks.as_ref().map_or(0, Blocks::undone);
                self.fail(now, ReceiverFailure::NoSource { missing }, pulls);
            } else {
                self.look_at = self.look_at.min(until);
            }
        }
        self.part(now);
    }

    pub(super) fn look_for_silence(&mut self, now: Time, pulls: &mut PullQueue<Ask>) {
        if !self.blocks.as_ref().is_some_and(Blocks::is_filling) {
            return;
        }
        for place in 0..self.flows.len() {
            let flow = &mut self.flows[place];
            if !flow.is_live() || !flow.has_begun() {
                continue;
            }
            if flow.waiting > 0 {
                // Its pulls have yet to leave.
                self.look_at = self.look_at.min(now + flow.rtt.rto());
                continue;
            }
            if flow.overdue_at().is_some_and(|at| at <= now) {
                self.on_overdue(now, place, pulls);
            }
            let flow = &self.flows[place];
            let next = flow.overdue_at().unwrap_or(now + flow.rtt.rto());
            self.look_at = self.look_at.min(next);
        }
        self.refill(now, pulls);
    }

    /// Nothing has come for too long.
    pub(super) fn on_overdue(&mut self, now: Time, place: usize, pulls: &mut PullQueue<Ask>) {
        let flow = &mut self.flows[place];
        let lost = u64::from(flow.expected.coming);
        let overdue = flow.on_overdue(now);
        self.stats.timeouts += u64::from(matches!(overdue, Overdue::Repeat | Overdue::GiveUp));
        let why = match overdue {
            Overdue::Reopen | Overdue::Repeat => Why::Repeat,
            Overdue::ReopenWider | Overdue::GiveUp => Why::Overdue,
        };
        if flow.is_attached() && flow.silence(now) >= self.config.group_patience {
            return self.leave_group(now, place, pulls);
        }
        flow.waiting += 1;
        pulls.push(now, self.turn, Ask { place: place as u32, why });
        let Some(blocks) = self.blocks.as_mut().filter(|_| overdue == Overdue::GiveUp) else { return };
        self.stats.lost += lost;
        blocks.lose_all(place);
        if self.flows[place].is_gone() {
            for block in blocks.hand_on(place) {
                self.outbox.event(ReceiverEvent::Discard { block });
            }
        }
    }

    /// Tells flows that they are over.
    pub(super) fn part(&mut self, now: Time) {
        for place in 0..self.flows.len() {
            let flow = &mut self.flows[place];
            let (id, step) = (flow.id(), flow.stand.step(now, flow.path, flow.expected.is_silent()));
            match step {
                Step::Wait => {}
                Step::Say(path, reason) => self.outbox.send(path, id, Body::Fin(reason)),
                Step::Over => self.unbind(place),
            }
            self.look_at = self.look_at.min(self.flows[place].stand.next().unwrap_or(Time::MAX));
        }
        if self.phase == Phase::Ending && self.flows.iter().all(|flow| flow.stand.is_over()) {
            self.phase = Phase::Ended;
        }
    }
}
