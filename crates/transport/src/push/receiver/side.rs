//! The receiver as a side of a fetch.

use headwater_machine::{Output, Packet};
use headwater_units::{BlockIndex, Duration, FlowId, NodeId, SymbolId, Symbols, Time};
use headwater_wire::{FlowGrant, FlowView};

use super::blocks::Blocks;
use super::flow::Flow;
use super::{Receiver, flow_stats, rate_of};
use crate::push::stripe_window::LATE_PARTS;
use crate::{FromFetch, ReceiverCommand, ReceiverFailure};
use headwater_flow::pacer::slack_of;
use headwater_flow::task::ReceiverStats;
use headwater_flow::task::blame::Trust;
use headwater_flow::task::ledger::Ledger;
use headwater_flow::task::session::Progress;
use headwater_flow::task::side::{FetchSide, HandedOn};

impl FetchSide for Receiver {
    type Host = ();

    fn set_flows(&mut self, now: Time, grants: Vec<FlowGrant>, _: &mut ()) {
        self.set_flows(now, grants);
    }

    #[inline(always)]
    fn on_packet(&mut self, now: Time, packet: Packet, _: &mut ()) {
        self.on_packet(now, packet);
    }

    fn on_command(&mut self, now: Time, command: ReceiverCommand, is_running: bool, _: &mut ()) {
        self.on_command(now, command, is_running);
    }

    fn resume(&mut self, now: Time, ledger: Ledger<()>, _: &mut ()) {
        self.resume(now, ledger);
    }

    fn go_on(&mut self, now: Time) {
        self.last_useful = now;
        // The last block may have come while nobody was there to be told.
        if !self.over && self.blocks.as_ref().is_some_and(Blocks::all_done) {
            self.complete(now);
        }
    }

    fn fail(&mut self, now: Time, failure: ReceiverFailure, _: &mut ()) {
        self.fail(now, failure);
    }

    #[inline]
    fn take_kept(&mut self) -> Option<(FlowId, SymbolId)> {
        self.outbox.take_kept()
    }

    #[inline]
    fn take_packet(&mut self) -> Option<Packet> {
        // The fetch looks at a path that is too narrow before anything leaves.
        if self.narrow.is_none() { self.outbox.take_packet() } else { None }
    }

    fn poll(&mut self, now: Time, is_running: bool, _: &mut ()) -> Output<FromFetch> {
        self.poll(now, is_running)
    }

    #[inline]
    fn quiet_until(&self, now: Time) -> Option<Time> {
        let is_quiet = self.outbox.is_empty() && now < self.quiet_until;
        is_quiet.then_some(self.quiet_until)
    }

    fn take_alarm(&mut self) -> bool {
        std::mem::take(&mut self.alarm)
    }

    fn stir(&mut self) {
        self.stir();
    }

    fn hand_on(self) -> HandedOn {
        let bound = self.flows.values().map(Flow::id).collect();
        HandedOn { ledger: self.blocks.map(Blocks::into_ledger), trust: self.trust, bound }
    }

    fn trust(&mut self, trust: Trust) {
        self.trust = trust;
    }

    fn is_distrusted(&self, node: NodeId) -> bool {
        self.trust.is_distrusted(node)
    }

    fn has_begun(&self) -> bool {
        self.blocks.is_some()
    }

    fn has_ended(&self) -> bool {
        self.flows.is_empty()
    }

    fn progress(&mut self, now: Time) -> Progress {
        let symbol = u64::from(self.geometry.symbol_size());
        let (blocks, rule) = (&self.blocks, self.rule);
        // A source that brings a stripe is waited for even when it is asked for nothing any more: it is to be replaced.
        let is_of_overlay = self.stripes.is_some();
        let is_lost = |flow: &Flow| is_of_overlay && flow.silence.is_silent();
        let since =
            |flow: &Flow| if is_of_overlay { flow.silence.since() } else { flow.silence.expecting_since };
        let expects = |flow: &Flow| is_lost(flow) || blocks.as_ref().is_some_and(|b| b.expects(flow, rule));
        let view = |f: &mut Flow| FlowView {
            flow: f.id(),
            bytes: f.bytes,
            rate: rate_of(f, now, symbol),
            silent: match since(f) {
                Some(since) if expects(f) => now.since(since),
                _ => Duration::ZERO,
            },
            behind: self.stripes.as_ref().map_or(Duration::ZERO, |it| it.behind(now, f.id())),
        };
        Progress {
            first_undecoded: blocks.as_ref().map_or(BlockIndex(0), Blocks::first_undecoded),
            needed: blocks.as_ref().map_or(self.geometry.total_symbols(), |it| Symbols::new(it.needed())),
            blocks_behind: blocks.as_ref().map_or(0, Blocks::decoding),
            flows: self.flows.values_mut().filter(|f| f.is_live()).map(view).collect(),
        }
    }

    fn stats(&mut self, now: Time) -> ReceiverStats {
        let mut stats = self.stats.clone();
        if let Some(blocks) = &self.blocks {
            stats.blocks = blocks.wanted();
            stats.blocks_done = blocks.wanted() - blocks.undone();
            stats.blocks_behind = blocks.decoding() as u32;
            stats.needed = blocks.needed();
        }
        let symbol = self.geometry.symbol_size();
        stats.flows = self.ended_flows.clone();
        stats.flows.extend(self.flows.values_mut().map(|flow| flow_stats(flow, now, symbol)));
        stats.flows.sort_by_key(|f| f.flow);
        stats
    }

    fn slack(&self) -> Option<Duration> {
        let turnarounds = self.flows.values().filter_map(|flow| flow.assigning.turnaround);
        let of_turnaround = turnarounds.min().map(slack_of);
        let fastest = self.flows.values().filter_map(|flow| flow.rate.last_known()).fold(0.0, f64::max);
        let Some(window) = self.window_each.filter(|_| fastest > 0.0) else { return of_turnaround };
        let of_window = Duration::from_secs_f64(f64::from(window) / fastest) / LATE_PARTS;
        of_turnaround.max(Some(of_window))
    }

    fn useful(&self) -> Box<dyn Iterator<Item = (FlowId, u64)> + '_> {
        Box::new(self.flows.values().map(|flow| (flow.id(), flow.useful)))
    }

    fn useful_of_ended(&self, flow: FlowId) -> Option<u64> {
        self.ended_flows.iter().rev().find(|ended| ended.flow == flow).map(|ended| ended.useful)
    }
}
