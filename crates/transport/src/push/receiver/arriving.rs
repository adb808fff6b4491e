//! Symbols that arrive: which are kept, and their acknowledgement.

use headwater_machine::Packet;
use headwater_units::{Bytes, FlowId, Symbols, Time};
use headwater_wire::{Body, Ecn, Owed, SpreadRule, SymbolHeader};

use super::blocks::{Arrival, Blocks, Inflow};
use super::flow::Flow;
use super::{Receiver, spread};
use crate::ReceiverEvent;
use crate::push::LOOK_AHEAD;
use headwater_flow::task::outbox::Outbox;

/// Number of recent arrivals of which the flows' parts are taken, when it is estimated what each still owes of a block:
/// one to two blocks of a thousand symbols.
pub(super) const RECENT: u32 = 1024;

impl Receiver {
    /// Takes a packet of one of its flows.
    // Once for every symbol; a call would copy the packet.
    #[inline(always)]
    pub(crate) fn on_packet(&mut self, now: Time, packet: Packet) {
        let quiet_until = std::mem::take(&mut self.quiet_until);
        let Packet { path, ecn, datagram } = packet;
        let Some(flow) = self.flows.get_mut(&datagram.flow) else {
            self.stats.strays += 1;
            return;
        };
        if flow.path.is_some_and(|known| known != path) && !datagram.body.is_trimmed() {
            // The key says that it is the source; the address it sends from is its own affair. A header alone may be an
            // old one, repeated by anybody.
            flow.path = Some(path);
        }
        flow.silence.heard = true;
        match datagram.body {
            Body::Symbol(header) => self.on_symbol(now, datagram.flow, header, ecn, quiet_until),
            Body::Challenge { nonce } => {
                flow.nonce = Some(nonce);
                flow.assigning.retry_at = Some(now);
            }
            Body::FinAck => self.unbind(now, datagram.flow),
            Body::Heartbeat { assignment } => {
                let was_silent = flow.on_heartbeat(now, assignment);
                self.plan_soon |= was_silent;
            }
            Body::Probe(probe) => self.on_probe(path, datagram.flow, probe),
            Body::Ack(_)
            | Body::Assign(_)
            | Body::Fin(_)
            | Body::Control(_)
            | Body::Cumulative(_)
            | Body::AckVector(_)
            | Body::ProbeAck(_)
            | Body::Pull(_)
            | Body::Receipt(_)
            | Body::Detached
            | Body::Interest(_)
            | Body::Announcement(_)
            | Body::ScheduledSymbol(_)
            | Body::RateProbe(_)
            | Body::ScheduledFin(_)
            | Body::RateFeedback(_)
            | Body::Nack(_) => self.stats.strays += 1,
        }
    }

    fn on_symbol(&mut self, now: Time, id: FlowId, header: SymbolHeader, ecn: Ecn, quiet_until: Time) {
        let (Some(blocks), geometry) = (&mut self.blocks, self.geometry) else { return };
        let open_blocks = || self.config.open_blocks(geometry.layout().block_bytes());
        let flow = self.flows.get_mut(&id).expect("the caller found it");
        if header.trimmed || !flow.is_live() {
            return;
        }
        let block = header.symbol.block;
        match self.rule {
            SpreadRule::Listed => {}
            SpreadRule::Residue => {
                blocks.open_through(block, open_blocks);
                flow.recent += 1;
                self.inflow.recent += 1;
            }
            SpreadRule::Equal => {
                // Sources go through the blocks by themselves, and what one sends nobody else has: there is room for
                // all that they look ahead. A symbol that is still too early is not acknowledged, so that it comes
                // again.
                blocks.open_through(block, || open_blocks().max(LOOK_AHEAD));
                if !blocks.is_open(block) && blocks.is_too_early(block) {
                    self.stats.useless += 1;
                    return;
                }
            }
        }
        self.stats.arrivals += 1;
        flow.arrivals += 1;
        flow.starved += u64::from(header.starved);
        if !flow.acks.on_packet(now, &header, ecn) {
            self.stats.useless += 1;
            return;
        }
        let was_silent = flow.on_symbol(now, header.assignment);
        let (node, of) = (flow.grant.node, (flow.grant.of, flow.grant.relays));
        let flows = &mut self.flows;
        let settle = |owing: FlowId, n: u32| {
            if let Some(flow) = flows.get_mut(&owing) {
                flow.asked.outstanding = flow.asked.outstanding.saturating_sub(u64::from(n));
            }
        };
        let arrival = blocks.arrive(id, node, header.symbol, self.rule, of, settle);
        if arrival == Arrival::Useless {
            self.stats.useless += 1;
            return;
        }
        self.last_useful = now;
        let inflow = self.inflow();
        let (Some(blocks), Some(flow)) = (&self.blocks, self.flows.get_mut(&id)) else { return };
        flow.useful += 1;
        flow.bytes += Bytes::new(u64::from(geometry.symbol_size()));
        let listed = self.rule == SpreadRule::Listed;
        let was_idle = self.next_plan > now + spread::MOST_INTERVAL;
        self.plan_soon |= listed && (was_idle || spread::is_hungry(flow));
        if !(listed && self.plan_soon || was_silent) {
            self.quiet_until = quiet_until;
        }
        self.outbox.keep(id, header.symbol);
        if arrival == Arrival::Complete {
            self.outbox.event(ReceiverEvent::Decode { block });
            self.stats.blocks_behind_most = self.stats.blocks_behind_most.max(blocks.decoding() as u32);
        }
        // The ACK that it makes due leaves at once, so that a poll need not look for it among all flows.
        if flow.acks.due(now, self.ack_waits) {
            acknowledge(now, flow, blocks, self.rule, inflow, &mut self.outbox);
        }
        let deadline = flow.acks.deadline(self.ack_waits).unwrap_or(Time::MAX);
        self.quiet_until = self.quiet_until.min(deadline);
    }

    pub(super) fn acknowledge_all(&mut self, now: Time) {
        let inflow = self.inflow();
        let Receiver { blocks: Some(blocks), flows, outbox, rule, ack_waits, .. } = self else { return };
        for flow in flows.values_mut().filter(|flow| flow.acks.due(now, *ack_waits)) {
            acknowledge(now, flow, blocks, *rule, inflow, outbox);
        }
    }

    /// How many flows there are to share what is missing, and how much they brought lately.
    fn inflow(&mut self) -> Inflow {
        if self.rule != SpreadRule::Residue {
            return Inflow::default();
        }
        while self.inflow.recent >= 2 * RECENT {
            self.flows.values_mut().for_each(|f| f.recent /= 2);
            self.count_inflow();
        }
        self.inflow
    }

    pub(super) fn count_inflow(&mut self) {
        let live = self.flows.values().filter(|f| f.is_live());
        self.inflow =
            live.fold(Inflow::default(), |s, f| Inflow { flows: s.flows + 1, recent: s.recent + f.recent });
    }
}

/// Sends the ACK that a flow is due, unless nothing came, or nobody knows where its source is.
fn acknowledge(
    now: Time,
    flow: &mut Flow,
    blocks: &Blocks,
    rule: SpreadRule,
    inflow: Inflow,
    outbox: &mut Outbox,
) {
    let Some(path) = flow.path else { return };
    let first = blocks.first_undecoded();
    let Some(mut ack) = flow.acks.take(now, first) else { return };
    // The source learns what is wanted next, also if nothing of it came from this source: else it learns that a whole
    // queue too late.
    if rule == SpreadRule::Residue {
        flow.acks.touch(first);
    }
    flow.acks.touched.sort_unstable();
    for &block in &flow.acks.touched {
        let symbols = Symbols::new(blocks.owed(block, flow, rule, inflow));
        ack.owed.push(Owed { block, symbols });
    }
    flow.acks.touched.clear();
    outbox.send(path, flow.id(), Body::Ack(ack));
}
