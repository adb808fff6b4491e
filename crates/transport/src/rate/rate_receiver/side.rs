//! The receiver of a scheduled transfer as a side of a fetch.

use headwater_machine::{Output, Packet};
use headwater_units::{BlockIndex, FlowId, NodeId, SymbolId, Symbols, Time};
use headwater_wire::{Body, FlowGrant, Nack};

use super::flow::LOOKS_AGAIN;
use super::{RateReceiver, lacking};
use crate::{FromFetch, ReceiverCommand, ReceiverFailure};
use headwater_flow::task::ReceiverStats;
use headwater_flow::task::blame::Trust;
use headwater_flow::task::close_handshake::Step;
use headwater_flow::task::ledger::Ledger;
use headwater_flow::task::session::Progress;
use headwater_flow::task::side::{FetchSide, HandedOn};

impl RateReceiver {
    /// Says what is due, or else when something will be.
    fn speak(&mut self, now: Time) -> Option<Time> {
        let place = self.live().filter(|_| self.ledger.is_some() && !self.over)?;
        let path = self.flows[place].path?;
        let nack_at = self.nacks.due().filter(|_| self.flows[place].feedback.has_offer());
        if nack_at.is_some_and(|at| now >= at) {
            let missing = self.missing(now, place);
            if missing.is_empty() {
                let again = self.flows[place].is_detached().then(|| now + LOOKS_AGAIN);
                self.nacks.settle(again);
            } else {
                self.nacks.on_said(now);
                self.stats.timeouts += 1;
                let flow = &mut self.flows[place];
                let nack = Nack { feedback: flow.say(now), missing: missing.into_iter().collect() };
                self.outbox.send(path, flow.id(), Body::Nack(Box::new(nack)));
            }
        }
        let flow = &mut self.flows[place];
        let is_due = |at: Option<Time>| at.is_some_and(|at| now >= at);
        if is_due(flow.feedback.due()) || is_due(flow.speaks_at()) {
            if is_due(flow.speaks_at()) {
                flow.on_spoken(now);
            }
            let feedback = flow.say(now);
            self.outbox.send(path, flow.id(), Body::RateFeedback(Box::new(feedback)));
        }
        let nack_at = self.nacks.due().filter(|_| flow.feedback.has_offer());
        [nack_at, flow.feedback.due(), flow.speaks_at()].into_iter().flatten().min()
    }

    fn missing(&mut self, now: Time, place: usize) -> Vec<headwater_wire::Missing> {
        let begun = self.flows[place].asks_below(now, self.begun, self.geometry.layout().block_count());
        let Some(ledger) = &mut self.ledger else { return Vec::new() };
        lacking::missing(ledger, begun, self.session.open_blocks, self.config.repair, self.session.extra)
    }

    /// Tells flows that they are over, and says when again.
    fn close(&mut self, now: Time) -> Option<Time> {
        for place in 0..self.flows.len() {
            let flow = &mut self.flows[place];
            match flow.stand.step(now, flow.path, false) {
                Step::Wait => {}
                Step::Over => self.unbind(place),
                Step::Say(path, reason) => {
                    let id = flow.id();
                    self.outbox.send(path, id, Body::Fin(reason));
                }
            }
        }
        self.flows.iter().filter_map(|flow| flow.stand.next()).min()
    }

    /// Gives up if nothing useful has come for long; else says when it would.
    fn lose_patience(&mut self, now: Time) -> Option<Time> {
        let ledger = self.ledger.as_ref().filter(|ledger| !self.over && ledger.decoding() == 0)?;
        let (until, missing) = (self.last_useful + self.session.source_patience, ledger.undone());
        if now < until {
            return Some(until);
        }
        self.fail_with(now, ReceiverFailure::NoSource { missing });
        None
    }
}

impl FetchSide for RateReceiver {
    type Host = ();

    fn set_flows(&mut self, now: Time, grants: Vec<FlowGrant>, _: &mut ()) {
        self.grant(now, grants);
    }

    #[inline]
    fn on_packet(&mut self, now: Time, packet: Packet, _: &mut ()) {
        self.on_datagram(now, &packet);
    }

    fn on_command(&mut self, now: Time, command: ReceiverCommand, _: bool, _: &mut ()) {
        RateReceiver::on_command(self, now, command);
    }

    fn resume(&mut self, now: Time, ledger: Ledger<()>, _: &mut ()) {
        self.receive(now, ledger);
    }

    fn fail(&mut self, now: Time, failure: ReceiverFailure, _: &mut ()) {
        self.fail_with(now, failure);
    }

    #[inline]
    fn take_kept(&mut self) -> Option<(FlowId, SymbolId)> {
        self.outbox.take_kept()
    }

    fn poll(&mut self, now: Time, _: bool, _: &mut ()) -> Output<FromFetch> {
        if let Some(output) = self.outbox.pop() {
            return output;
        }
        let wakes = [self.speak(now), self.close(now), self.lose_patience(now)];
        match self.outbox.pop() {
            Some(output) => output,
            None => Output::Wake(wakes.into_iter().flatten().min()),
        }
    }

    fn hand_on(self) -> HandedOn {
        let bound = self.flows.iter().flat_map(super::Flow::bound).collect();
        HandedOn { ledger: self.ledger, trust: self.trust, bound }
    }

    fn trust(&mut self, trust: Trust) {
        self.trust = trust;
    }

    fn is_distrusted(&self, node: NodeId) -> bool {
        self.trust.is_distrusted(node)
    }

    fn has_ended(&self) -> bool {
        self.over && self.flows.iter().all(|flow| flow.stand.is_over())
    }

    fn progress(&mut self, now: Time) -> Progress {
        let symbol = u64::from(self.geometry.symbol_size());
        let ledger = self.ledger.as_ref();
        Progress {
            first_undecoded: ledger.map_or(BlockIndex(0), Ledger::first_undone),
            needed: ledger.map_or(self.geometry.total_symbols(), |ledger| Symbols::new(ledger.needed())),
            blocks_behind: ledger.map_or(0, Ledger::decoding),
            flows: self.flows.iter_mut().filter(|it| it.is_live()).map(|it| it.view(now, symbol)).collect(),
        }
    }

    fn stats(&mut self, _now: Time) -> ReceiverStats {
        let mut stats = self.stats.clone();
        if let Some(ledger) = &self.ledger {
            stats.blocks = ledger.wanted_blocks();
            stats.blocks_done = ledger.wanted_blocks() - ledger.undone();
            stats.blocks_behind = ledger.decoding() as u32;
            stats.needed = ledger.needed();
        }
        stats.flows = self.flows.iter().map(super::Flow::stats).collect();
        stats.flows.sort_by_key(|flow| flow.flow);
        ReceiverStats::of_session(stats, self.delivery, self.geometry.symbol_size())
    }

    fn useful(&self) -> Box<dyn Iterator<Item = (FlowId, u64)> + '_> {
        Box::new(self.flows.iter().map(|flow| (flow.id(), flow.brought.useful)))
    }

    fn useful_of_ended(&self, flow: FlowId) -> Option<u64> {
        let ended = self.flows.iter().find(|it| it.id() == flow && !it.is_live())?;
        (ended.brought.symbols > 0).then_some(ended.brought.useful)
    }
}
