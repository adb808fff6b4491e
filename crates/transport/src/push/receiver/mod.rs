//! The receiver of one task (PPUSH §III-A).
//!
//! ```text
//!   Preparing --Start--> Receiving --all blocks--> closing
//!                            |
//!                            +--- a path is too narrow ---> every flow ended; cut anew, Preparing   (see `narrow`)
//! ```
//!
//! Binds the flows that the controller grants, acknowledges every symbol to its source, and ends every flow when all
//! blocks are verified. `spread` plans which source sends what, and `blocks` keeps the requests to each. Knows nothing
//! of the controller: the fetch that it is a side of speaks to that ([`crate::receiver`]), and says with each poll
//! whether a task is running; while none is, sources are not asked for anything.
//!
//! Differs from the paper: with the default rule the receiver lists what each source should send, by measured rate
//! (docs/decisions/0025), so that blocks rarely need decoding; the paper's residue classes remain as a rule.

mod acks;
mod arriving;
mod blocks;
mod decoding;
mod flow;
mod narrow;
mod rate;
mod side;
mod spread;
mod stripes;

use headwater_machine::{Output, SortedMap};
use headwater_units::{BitRate, Bytes, FetchId, FlowId, Geometry, Time};
use headwater_wire::{Assign, Assignment, Body, Delivery, FinReason, FlowGrant, MarkSignal, SpreadRule};

use super::stripe_window::MAX_ACK_DELAY;
use crate::{Bind, FromFetch, ReceiverCommand, ReceiverEvent, ReceiverFailure};
use acks::AckWaits;
use blocks::{Blocks, Inflow};
use flow::Flow;
use headwater_flow::task::blame::Trust;
use headwater_flow::task::close_handshake::Step;
use headwater_flow::task::outbox::Outbox;
pub use headwater_flow::task::{FlowStats, ReceiverConfig, ReceiverStats};
pub(crate) use narrow::room_for;
use stripes::{Stripe, Stripes};

/// The receiving machine of one task.
#[derive(Debug)]
pub(crate) struct Receiver {
    config: ReceiverConfig,
    geometry: Geometry,
    /// Wanted and arrived blocks; none before the driver has named them.
    blocks: Option<Blocks>,
    flows: SortedMap<FlowId, Flow>,
    /// In force: the listed one replaces any other once a block failed its hash.
    rule: SpreadRule,
    /// In an overlay.
    stripes: Option<Stripes>,
    /// Packets that each source may have in flight.
    window_each: Option<u32>,
    outbox: Outbox,
    /// Before this moment nothing is due: a poll costs one comparison. Every input but a plain symbol resets it.
    quiet_until: Time,
    next_plan: Time,
    plan_soon: bool,
    /// A stripe has fallen silent.
    alarm: bool,
    last_plan: Option<Time>,
    last_useful: Time,
    /// Symbols that may be asked for now under the limit, and when that was reckoned.
    allowance: (f64, Time),
    trust: Trust,
    /// Datagrams longer than this do not arrive from one of the sources, as was heard just now.
    narrow: Option<u16>,
    /// Flows are told that it is over.
    over: bool,
    stats: ReceiverStats,
    ended_flows: Vec<FlowStats>,
    ack_waits: AckWaits,
    /// The live flows together, counted anew when one comes or goes.
    inflow: Inflow,
}

impl Receiver {
    /// A receiver of an object that is cut like this. `by_stripes`: of an overlay, where each source brings one and has
    /// this many packets in flight.
    pub(crate) fn new(
        fetch: FetchId,
        config: ReceiverConfig,
        geometry: Geometry,
        by_stripes: Option<u16>,
    ) -> Self {
        let most = if by_stripes.is_some() { MAX_ACK_DELAY } else { config.max_ack_delay };
        Receiver {
            geometry,
            rule: if by_stripes.is_some() { SpreadRule::Listed } else { config.spread },
            stripes: by_stripes.map(|_| Stripes::new(1)),
            window_each: by_stripes.map(u32::from),
            blocks: None,
            flows: SortedMap::default(),
            outbox: Outbox::new(fetch),
            quiet_until: Time::ZERO,
            next_plan: Time::ZERO,
            plan_soon: false,
            alarm: false,
            last_plan: None,
            last_useful: Time::ZERO,
            allowance: (0.0, Time::ZERO),
            trust: Trust::default(),
            narrow: None,
            over: false,
            stats: ReceiverStats::default(),
            ended_flows: Vec::new(),
            inflow: Inflow::default(),
            ack_waits: AckWaits { most, gather: config.ack_gather },
            config,
        }
    }

    // ---- from the controller -------------------------------------------------------------------------------------

    /// Something was heard that is no symbol.
    pub(crate) fn stir(&mut self) {
        self.quiet_until = Time::ZERO;
    }

    /// The blocks are cut otherwise from now on: those that are finished will be told with what is wanted.
    pub(crate) fn recut(&mut self, now: Time, geometry: Geometry) {
        self.last_useful = now;
        self.geometry = geometry;
        let needed = self.blocks.take().map_or(0, |blocks| blocks.needed());
        self.stats.source_symbols = self.stats.source_symbols.saturating_sub(needed);
    }

    /// The flows of the task are these now.
    pub(crate) fn set_flows(&mut self, now: Time, grants: Vec<FlowGrant>) {
        if self.over {
            return;
        }
        let gone: Vec<FlowId> = self
            .flows
            .values()
            .filter(|f| f.is_live() && grants.iter().all(|g| g.flow != f.id()))
            .map(Flow::id)
            .collect();
        for flow in gone {
            self.end_flow(now, flow, FinReason::Cancelled);
        }
        if let (Some(stripes), Some(grant)) = (&self.stripes, grants.first())
            && grant.of != stripes.of()
        {
            self.set_stripes(grant.of);
        }
        for grant in grants {
            if self.trust.is_distrusted(grant.node) {
                continue;
            }
            if let Some(flow) = self.flows.get_mut(&grant.flow) {
                let moved = flow.is_live().then(|| ReceiverEvent::moved(&mut flow.grant.at, &grant));
                moved.flatten().into_iter().for_each(|moved| self.outbox.event(moved));
            } else {
                self.outbox.event(ReceiverEvent::Bind(Box::new(Bind::from(&grant))));
                self.flows.insert(grant.flow, Flow::new(grant));
            }
        }
        self.count_inflow();
        self.plan_soon = true;
    }

    /// The object comes in `of` stripes from now on.
    fn set_stripes(&mut self, of: u8) {
        let stripes = Stripes::new(of);
        self.blocks.iter_mut().for_each(|blocks| blocks.set_stripes(stripes.of()));
        self.stripes = Some(stripes);
    }

    fn end_flow(&mut self, now: Time, id: FlowId, reason: FinReason) {
        self.release(id);
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.stand.end(now, reason);
        }
        self.count_inflow();
    }

    fn unbind(&mut self, now: Time, id: FlowId) {
        let symbol = self.geometry.symbol_size();
        if let Some(mut flow) = self.flows.remove(&id) {
            if flow.arrivals > 0 {
                self.ended_flows.push(flow_stats(&mut flow, now, symbol));
            }
            self.outbox.event(ReceiverEvent::Unbind { flow: id });
            self.count_inflow();
        }
    }

    // ---- to the sources -------------------------------------------------------------------------------------------

    fn live_flows(&self) -> u32 {
        self.flows.values().filter(|f| f.is_live()).count() as u32
    }

    /// Has the flows that should bring something, and do not, asked again.
    fn remind(&mut self, now: Time) {
        let Some(blocks) = self.blocks.as_ref().filter(|_| self.rule != SpreadRule::Listed) else { return };
        for flow in self.flows.values_mut() {
            let due = flow.path.is_some() && flow.is_live() && flow.remind_at().is_some_and(|at| now >= at);
            if due && blocks.expects(flow, self.rule) {
                flow.assigning.change();
            } else if due {
                flow.silence.expecting_since = Some(now);
            }
        }
    }

    fn send_assignments(&mut self, now: Time) {
        let Some(blocks) = &self.blocks else { return };
        let live = self.live_flows().max(1);
        let mut ready = Vec::new();
        for flow in self.flows.values_mut() {
            let Some(path) = flow.path else { continue };
            if !flow.assigning.is_due(now) || !flow.is_live() {
                continue;
            }
            flow.assigning.say(now, blocks.expects(flow, self.rule));
            let (index, of) = (flow.grant.index, flow.grant.of);
            let assignment = match self.rule {
                SpreadRule::Listed => Assignment::Listed(spread::list(blocks, flow)),
                SpreadRule::Residue => Assignment::Residue { index, of },
                SpreadRule::Equal => Assignment::Equal { index, of },
            };
            let assign = Assign {
                version: flow.assigning.version,
                nonce: flow.nonce,
                receive_window: self.window_each.unwrap_or((self.config.receive_window / live).max(2)),
                first_undecoded: blocks.first_undecoded(),
                assignment,
                padded: self.config.pads_openings && flow.nonce.is_none() && !flow.silence.heard,
            };
            ready.push((path, flow.id(), assign));
        }
        for (path, flow, assign) in ready {
            self.outbox.send(path, flow, Body::Assign(Box::new(assign)));
        }
    }

    // ---- from the driver -----------------------------------------------------------------------------------------

    /// A command of the driver; and whether a task is running.
    pub(crate) fn on_command(&mut self, now: Time, command: ReceiverCommand, is_running: bool) {
        match command {
            ReceiverCommand::Start { wanted, have } => self.start(now, wanted, &have, is_running),
            ReceiverCommand::FlowPath { flow, path } => {
                if let Some(flow) = self.flows.get_mut(&flow) {
                    if flow.path.replace(path).is_some() {
                        // It has moved: it is asked there at once.
                        flow.assigning.change();
                    }
                    flow.silence.expecting_since = Some(now);
                    self.plan_soon = true;
                }
            }
            ReceiverCommand::BlockDecoded { block } => self.on_decoded(now, block, is_running),
            ReceiverCommand::DecodeFailed { block, failure } => self.on_decode_failed(now, block, failure),
            ReceiverCommand::Cancel => self.fail(now, ReceiverFailure::Cancelled),
            // It has begun.
            ReceiverCommand::Fetch(_) => self.stats.strays += 1,
        }
    }

    /// Everything that a flow owes goes back to the pool.
    fn release(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.asked.outstanding = 0;
        flow.asked.order.clear();
        flow.assigning.change();
        if let Some(blocks) = &mut self.blocks {
            for block in blocks.release(id, Stripe::ALL).0 {
                self.outbox.event(ReceiverEvent::Discard { block });
            }
        }
        self.plan_soon = true;
    }

    fn complete(&mut self, now: Time) {
        self.outbox.event(ReceiverEvent::Done);
        self.finish(now, FinReason::Done);
    }

    /// Gives up, and tells the driver.
    pub(crate) fn fail(&mut self, now: Time, failure: ReceiverFailure) {
        if !self.over {
            self.outbox.event(ReceiverEvent::Failed(failure));
            self.finish(now, FinReason::Cancelled);
        }
    }

    fn finish(&mut self, now: Time, reason: FinReason) {
        self.over = true;
        for flow in self.flows.values_mut().filter(|f| f.is_live()) {
            flow.stand.end(now, reason);
        }
        self.count_inflow();
    }

    // ---- time ----------------------------------------------------------------------------------------------------

    fn on_time(&mut self, now: Time, is_running: bool) {
        if is_running && self.blocks.is_some() {
            if self.rule == SpreadRule::Listed && now >= self.plan_at() {
                self.plan(now);
            }
            if now.since(self.last_useful) >= self.config.source_patience
                && self.blocks.as_ref().is_some_and(|b| b.decoding() == 0)
            {
                let missing = self.blocks.as_ref().map_or(0, Blocks::undone);
                return self.fail(now, ReceiverFailure::NoSource { missing });
            }
        }
        if is_running {
            self.acknowledge_all(now);
            self.remind(now);
            self.send_assignments(now);
        }
        self.say_fins(now);
    }

    /// When the work is planned next: soon after something changed, and every turnaround or so anyway.
    fn plan_at(&self) -> Time {
        let soon = self.last_plan.map_or(Time::ZERO, |last| last + spread::RESPITE);
        if self.plan_soon { soon.min(self.next_plan) } else { self.next_plan }
    }

    fn say_fins(&mut self, now: Time) {
        let mut fins = Vec::new();
        let mut over = Vec::new();
        for flow in self.flows.values_mut() {
            match flow.stand.step(now, flow.path, flow.silence.is_silent()) {
                Step::Wait => {}
                Step::Say(path, reason) => fins.push((path, flow.id(), reason)),
                Step::Over => over.push(flow.id()),
            }
        }
        for (path, flow, reason) in fins {
            self.outbox.send(path, flow, Body::Fin(reason));
        }
        for flow in over {
            self.unbind(now, flow);
        }
    }

    fn next_wake(&self, is_running: bool) -> Option<Time> {
        let mut wake: Option<Time> = None;
        let mut at = |time: Time| wake = Some(wake.map_or(time, |w| w.min(time)));
        if is_running && self.blocks.is_some() {
            // Nobody can be blamed for silence while the decoder or the disk has the next word.
            if self.blocks.as_ref().is_none_or(|b| b.decoding() == 0) {
                at(self.last_useful + self.config.source_patience);
            }
            if self.rule == SpreadRule::Listed {
                at(self.plan_at());
            }
        }
        for flow in self.flows.values() {
            if let Some(next) = flow.stand.next() {
                at(next);
            } else if is_running && flow.path.is_some() && self.blocks.is_some() {
                flow.acks.deadline(self.ack_waits).into_iter().for_each(&mut at);
                flow.assigning.retry_at.into_iter().for_each(&mut at);
                if self.rule != SpreadRule::Listed {
                    flow.remind_at().into_iter().for_each(&mut at);
                }
            }
        }
        wake
    }

    /// The next output; [`Output::Wake`] when there is nothing more to do now. `is_running`: a task is.
    pub(crate) fn poll(&mut self, now: Time, is_running: bool) -> Output<FromFetch> {
        if let Some(output) = self.outbox.pop() {
            return output;
        }
        if now >= self.quiet_until {
            self.on_time(now, is_running);
            if let Some(output) = self.outbox.pop() {
                self.quiet_until = Time::ZERO;
                return output;
            }
            self.quiet_until = self.next_wake(is_running).unwrap_or(Time::MAX);
        }
        Output::Wake(Some(self.quiet_until).filter(|at| *at < Time::MAX))
    }
}

fn rate_of(flow: &mut Flow, now: Time, symbol: u64) -> BitRate {
    let per_second = flow.rate.per_second(now).unwrap_or(0.0);
    BitRate::new((per_second * symbol as f64 * 8.0) as u64)
}

fn flow_stats(flow: &mut Flow, now: Time, symbol: u16) -> FlowStats {
    FlowStats {
        flow: flow.id(),
        node: flow.grant.node,
        came_by: Delivery::Push,
        bytes: flow.bytes,
        symbols: flow.arrivals,
        useful: flow.useful,
        by_group: Bytes::ZERO,
        relays: flow.grant.relays,
        lost: flow.acks.lost(),
        marked: flow.acks.marked(),
        rate: rate_of(flow, now, u64::from(symbol)),
        starved: flow.starved,
        outstanding: flow.asked.outstanding,
        turnaround: flow.assigning.turnaround,
        live: flow.is_live() && !flow.silence.is_silent(),
        silent: flow.silence.is_silent(),
        signal: match (flow.acks.received(), flow.acks.marked()) {
            (0, _) => MarkSignal::Unknown,
            (_, 0) => MarkSignal::Delay,
            _ => MarkSignal::Ecn,
        },
    }
}
