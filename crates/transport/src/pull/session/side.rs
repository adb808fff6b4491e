//! The session as a side of a fetch.

use core::iter;

use headwater_machine::{Output, Packet};
use headwater_units::{BlockIndex, FlowId, NodeId, SymbolId, Symbols, Time};
use headwater_wire::{Delivery, FlowGrant};

use super::blocks::Blocks;
use super::{Ask, Session};
use crate::pull::queue::PullQueue;
use crate::{FromFetch, ReceiverCommand, ReceiverFailure};
use headwater_flow::task::blame::Trust;
use headwater_flow::task::ledger::Ledger;
use headwater_flow::task::session::Progress;
use headwater_flow::task::side::{FetchSide, HandedOn};
use headwater_flow::task::{ReceiverStats, SessionConfig};

impl FetchSide for Session {
    type Host = PullQueue<Ask>;

    fn set_flows(&mut self, now: Time, grants: Vec<FlowGrant>, pulls: &mut PullQueue<Ask>) {
        self.set_flows(now, grants, pulls);
    }

    #[inline]
    fn on_packet(&mut self, now: Time, packet: Packet, pulls: &mut PullQueue<Ask>) {
        self.on_packet(now, packet, pulls);
    }

    fn on_command(&mut self, now: Time, command: ReceiverCommand, _: bool, pulls: &mut PullQueue<Ask>) {
        self.on_command(now, command, pulls);
    }

    fn resume(&mut self, now: Time, ledger: Ledger<()>, pulls: &mut PullQueue<Ask>) {
        let SessionConfig { extra, open_blocks, .. } = self.config;
        self.receive(now, Blocks::resume(ledger, extra, open_blocks), pulls);
    }

    fn fail(&mut self, now: Time, failure: ReceiverFailure, pulls: &mut PullQueue<Ask>) {
        self.fail(now, failure, pulls);
    }

    #[inline]
    fn take_kept(&mut self) -> Option<(FlowId, SymbolId)> {
        self.outbox.take_kept()
    }

    #[inline]
    fn poll(&mut self, now: Time, _: bool, pulls: &mut PullQueue<Ask>) -> Output<FromFetch> {
        self.poll(now, pulls)
    }

    fn hand_on(self) -> HandedOn {
        let live = self.flows.iter().filter(|flow| !flow.stand.is_over());
        let of =
            |flow: &super::Flow| iter::once(flow.id()).chain(flow.group.as_ref().map(|group| group.flow));
        let bound = live.flat_map(of).collect();
        HandedOn { ledger: self.blocks.map(Blocks::into_ledger), trust: self.trust, bound }
    }

    fn trust(&mut self, trust: Trust) {
        self.trust = trust;
    }

    fn is_distrusted(&self, node: NodeId) -> bool {
        self.trust.is_distrusted(node)
    }

    fn has_ended(&self) -> bool {
        self.has_ended()
    }

    fn progress(&mut self, now: Time) -> Progress {
        let symbol = u64::from(self.geometry.symbol_size());
        let live = self.flows.iter_mut().filter(|flow| flow.is_live());
        let blocks = self.blocks.as_ref();
        Progress {
            first_undecoded: blocks.map_or(BlockIndex(0), Blocks::first_undecoded),
            needed: blocks.map_or(self.geometry.total_symbols(), |blocks| Symbols::new(blocks.missing())),
            blocks_behind: blocks.map_or(0, Blocks::decoding),
            flows: live.map(|flow| flow.view(now, symbol)).collect(),
        }
    }

    fn stats(&mut self, _now: Time) -> ReceiverStats {
        let by = Delivery::Pull { initial_window: self.window as u16 };
        ReceiverStats::of_session(Session::stats(self), by, self.geometry.symbol_size())
    }

    fn useful(&self) -> Box<dyn Iterator<Item = (FlowId, u64)> + '_> {
        Box::new(self.flows.iter().map(|flow| (flow.id(), flow.brought.useful)))
    }

    fn useful_of_ended(&self, flow: FlowId) -> Option<u64> {
        let flow = self.flows.iter().find(|it| it.id() == flow && !it.is_live())?;
        (flow.brought.symbols > 0).then_some(flow.brought.useful)
    }
}
