//! The receiver of one task (PPUSH §III-A).
//!
//! ```text
//!   Asking --Accepted--> Preparing --Start--> Receiving --all blocks--> Ending --FIN acknowledged--> Ended
//!      ^                                          |
//!      +----------- UnknownTask ------------------+   (the controller forgot: ask again, keep what is here)
//!      +----------- a path is too narrow ---------+   (leave the task, ask with less room: see [`narrow`])
//! ```
//!
//! Asks the controller for the object, binds the flows that it grants, acknowledges every symbol to its source, reports
//! progress to the controller, and ends every flow when all blocks are verified. Which source sends what is planned in
//! [`spread`]; what is here is kept in [`blocks`].
//!
//! Differs from the paper: with the default rule the receiver lists what each source should send, by measured rate
//! (architecture decision 10), so that blocks rarely need decoding; the paper's residue classes remain as a rule.

mod acks;
mod blocks;
mod config;
mod flow;
mod narrow;
mod rate;
mod spread;

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headwater_units::{
    BitRate, BlockIndex, Bytes, Duration, FlowId, Geometry, NodeId, ObjectId, PathId, SymbolId, Symbols,
    TaskId, Time,
};
use headwater_wire::{
    Assign, Assignment, Body, Class, Control, Datagram, Ecn, FinReason, FlowGrant, FlowView, MAX_OWED,
    MarkSignal, Outcome, Owed, Refusal, Request, SpreadRule, SymbolHeader,
};

use crate::ppush::sorted_map::SortedMap;
use crate::ppush::source::LOOK_AHEAD;
use crate::{
    Bind, Command, DecodeFailure, Endpoint, Event, Input, Output, Packet, ReceiverCommand, ReceiverEvent,
    ReceiverFailure,
};
use blocks::{Arrival, Blame, Blocks, Inflow};
pub use config::{FlowStats, ReceiverConfig, ReceiverStats};
use flow::{Ending, Flow};

#[derive(Debug)]
enum Phase {
    Asking { since: Time, next: Time, tries: u32 },
    Preparing,
    Receiving,
    Ending { outcome: Outcome, next: Time, tries: u32 },
    Ended,
}

/// The receiving machine of one task.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    phase: Phase,
    request: u64,
    task: Option<TaskId>,
    /// The task that was left for one with smaller symbols, until the controller has understood.
    left: Option<TaskId>,
    object: Option<ObjectId>,
    geometry: Option<Geometry>,
    blocks: Option<Blocks>,
    flows: SortedMap<FlowId, Flow>,
    flows_version: u32,
    /// In force: the listed one replaces any other once a block failed its hash.
    rule: SpreadRule,
    outputs: VecDeque<Output>,
    /// The symbol to keep: the first output of all. Most symbols cause no other, and so none goes through the queue.
    keep: Option<(FlowId, SymbolId)>,
    /// Before this moment nothing is due: a poll costs one comparison. Every input but a plain symbol resets it.
    quiet_until: Time,
    next_plan: Time,
    plan_soon: bool,
    last_plan: Option<Time>,
    next_feedback: Time,
    feedback_every: Duration,
    last_useful: Time,
    /// Symbols that may be asked for now under the limit, and when that was reckoned.
    allowance: (f64, Time),
    suspicion: BTreeMap<NodeId, u32>,
    distrusted: BTreeSet<NodeId>,
    stats: ReceiverStats,
    ended_flows: Vec<FlowStats>,
    /// The live flows together, counted anew when one comes or goes.
    inflow: Inflow,
}

/// Of so many arrivals lately the flows' parts are taken, when it is estimated what each still owes of a block: one to
/// two blocks of a thousand symbols.
const RECENT: u32 = 1024;
/// From so many waiting blocks on, decoder or disk hold the task up.
const HELD_UP: usize = 8;
/// The end is said this often.
const FIN_TRIES: u32 = 6;
const FIN_RETRY: Duration = Duration::from_millis(40);
/// A source that took part in this many blocks that came right only without it is not believed any more.
const SUSPICIONS: u32 = 3;

impl Receiver {
    /// A receiver that asks at its first poll.
    pub fn new(config: ReceiverConfig) -> Self {
        Receiver {
            phase: Phase::Asking { since: Time::MAX, next: Time::ZERO, tries: 0 },
            request: config.request,
            rule: config.spread,
            task: None,
            left: None,
            object: None,
            geometry: None,
            blocks: None,
            flows: SortedMap::default(),
            flows_version: 0,
            outputs: VecDeque::new(),
            keep: None,
            quiet_until: Time::ZERO,
            next_plan: Time::ZERO,
            plan_soon: false,
            last_plan: None,
            next_feedback: Time::ZERO,
            feedback_every: Duration::from_millis(100),
            last_useful: Time::ZERO,
            allowance: (0.0, Time::ZERO),
            suspicion: BTreeMap::new(),
            distrusted: BTreeSet::new(),
            stats: ReceiverStats::default(),
            ended_flows: Vec::new(),
            inflow: Inflow::default(),
            config,
        }
    }

    /// Whether nothing is left to do; the machine may be dropped.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// The counters at this moment.
    pub fn stats(&mut self, now: Time) -> ReceiverStats {
        let mut stats = self.stats.clone();
        stats.room = self.config.room;
        if let Some(blocks) = &self.blocks {
            stats.blocks = blocks.wanted();
            stats.blocks_done = blocks.wanted() - blocks.undone();
            stats.blocks_behind = blocks.decoding() as u32;
            stats.needed = blocks.needed();
        }
        let symbol = self.geometry.map_or(0, |g| g.symbol_size());
        stats.flows = self.ended_flows.clone();
        stats.flows.extend(self.flows.values_mut().map(|flow| flow_stats(flow, now, symbol)));
        stats.flows.sort_by_key(|f| f.flow);
        stats
    }

    /// Useful symbols so far of each flow that is not over, by id: what a time series needs, without moving any estimate.
    pub fn useful(&self) -> impl Iterator<Item = (FlowId, u64)> + '_ {
        self.flows.values().map(|flow| (flow.id, flow.useful))
    }

    /// Useful symbols of a flow that is over; `None` if nothing ever came by it.
    pub fn useful_of_ended(&self, flow: FlowId) -> Option<u64> {
        self.ended_flows.iter().rev().find(|ended| ended.flow == flow).map(|ended| ended.useful)
    }

    fn send(&mut self, path: PathId, flow: FlowId, body: Body) {
        let datagram = Datagram { class: Class::Control, key_epoch: 0, flow, body };
        self.outputs.push_back(Output::Transmit(Packet { path, ecn: Ecn::NotEct, datagram }));
    }

    fn say(&mut self, control: Control) {
        self.outputs.push_back(Output::Transmit(Packet::control(self.config.controller, control)));
    }

    fn event(&mut self, event: ReceiverEvent) {
        self.outputs.push_back(Output::Event(Event::Receiver(event)));
    }

    // ---- from the controller -------------------------------------------------------------------------------------

    fn on_control(&mut self, now: Time, control: Control) {
        match control {
            Control::Accepted { request, task, object, bytes, symbol_size, feedback_every, flows } => {
                if request == self.request && matches!(self.phase, Phase::Asking { .. }) {
                    self.on_accepted(now, task, object, bytes, symbol_size, feedback_every, flows);
                }
            }
            Control::Refused { request, reason } => {
                let Phase::Asking { since, .. } = self.phase else { return };
                if request != self.request {
                    return;
                }
                // Somebody who has it may come back any moment; nobody who never had it will.
                // A controller that has restarted learns only by and by what it knew when it accepted us.
                let known = self.object.is_some() && reason == Refusal::UnknownObject;
                let waiting_helps = known || matches!(reason, Refusal::NoSource | Refusal::Full);
                if !waiting_helps || now.since(since) >= self.config.patience {
                    self.fail(now, ReceiverFailure::Refused(reason));
                }
            }
            Control::Flows { task, version, flows } => {
                if self.task == Some(task) && version > self.flows_version && self.is_running() {
                    self.flows_version = version;
                    self.set_flows(now, flows);
                }
            }
            Control::UnknownTask { task } => {
                if self.task == Some(task) && matches!(self.phase, Phase::Receiving | Phase::Preparing) {
                    self.ask_again(now);
                }
            }
            Control::FinAck { task } => {
                self.left = self.left.filter(|left| *left != task);
                if self.task == Some(task)
                    && let Phase::Ending { tries, .. } = &mut self.phase
                {
                    *tries = FIN_TRIES;
                }
            }
            _ => self.stats.strays += 1,
        }
    }

    fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Preparing | Phase::Receiving)
    }

    #[allow(clippy::too_many_arguments)] // The fields of one message.
    fn on_accepted(
        &mut self,
        now: Time,
        task: TaskId,
        object: ObjectId,
        bytes: Bytes,
        symbol_size: u16,
        feedback_every: Duration,
        flows: Vec<FlowGrant>,
    ) {
        let Ok(geometry) = Geometry::new(bytes, symbol_size) else {
            self.stats.strays += 1;
            return;
        };
        let again = self.object.is_some();
        let same_layout = self.geometry.is_none_or(|g| g.layout() == geometry.layout());
        if again && (self.object != Some(object) || !same_layout) {
            return self.fail(now, ReceiverFailure::Changed);
        }
        self.task = Some(task);
        self.flows_version = 0;
        self.feedback_every = feedback_every.max(Duration::from_millis(1));
        self.last_useful = now;
        if again && self.geometry == Some(geometry) {
            // What is here stays; only the flows are new.
            self.phase = if self.blocks.is_some() { Phase::Receiving } else { Phase::Preparing };
            // The last block may have come while nobody was there to be told.
            if self.blocks.as_ref().is_some_and(Blocks::all_done) {
                return self.complete(now);
            }
        } else {
            // Another symbol size cuts blocks differently: begin anew with the blocks that are finished.
            self.phase = Phase::Preparing;
            let needed = self.blocks.take().map_or(0, |blocks| blocks.needed());
            self.stats.source_symbols = self.stats.source_symbols.saturating_sub(needed);
            self.object = Some(object);
            self.geometry = Some(geometry);
            self.event(ReceiverEvent::Accepted { task, object, bytes, symbol_size });
        }
        self.set_flows(now, flows);
        self.next_feedback = now;
    }

    fn ask_again(&mut self, now: Time) {
        self.request = self.request.wrapping_add(1);
        self.task = None;
        self.phase = Phase::Asking { since: now, next: now, tries: 0 };
    }

    fn set_flows(&mut self, now: Time, grants: Vec<FlowGrant>) {
        let gone: Vec<FlowId> = self
            .flows
            .values()
            .filter(|f| f.is_live() && grants.iter().all(|g| g.flow != f.id))
            .map(|f| f.id)
            .collect();
        for flow in gone {
            self.end_flow(now, flow, FinReason::Cancelled);
        }
        for grant in grants {
            if self.distrusted.contains(&grant.node) {
                if let Some(task) = self.task {
                    self.say(Control::Distrust { task, node: grant.node });
                }
                continue;
            }
            if !self.flows.contains_key(&grant.flow) {
                let flow = Flow::new(grant);
                self.event(ReceiverEvent::Bind(Box::new(Bind {
                    flow: flow.id,
                    node: flow.node,
                    at: flow.at.clone(),
                    key: flow.key,
                })));
                self.flows.insert(flow.id, flow);
            }
        }
        self.count_inflow();
        self.plan_soon = true;
    }

    fn end_flow(&mut self, now: Time, id: FlowId, reason: FinReason) {
        self.release(id);
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.distrusted |= reason == FinReason::Distrusted;
            flow.ending = Some(Ending { reason, next: now, tries: 0 });
        }
        self.count_inflow();
    }

    fn unbind(&mut self, now: Time, id: FlowId) {
        let symbol = self.geometry.map_or(0, |g| g.symbol_size());
        if let Some(mut flow) = self.flows.remove(&id) {
            if flow.arrivals > 0 {
                self.ended_flows.push(flow_stats(&mut flow, now, symbol));
            }
            self.event(ReceiverEvent::Unbind { flow: id });
            self.count_inflow();
        }
    }

    // ---- from the sources ----------------------------------------------------------------------------------------

    fn on_packet(&mut self, now: Time, packet: Packet, quiet_until: Time) {
        let Packet { path, ecn, datagram } = packet;
        if let Body::Control(control) = datagram.body {
            if path == self.config.controller {
                self.on_control(now, *control);
            } else {
                self.stats.strays += 1;
            }
            return;
        }
        let Some(flow) = self.flows.get_mut(&datagram.flow) else {
            self.stats.strays += 1;
            return;
        };
        if flow.path.is_some_and(|known| known != path) {
            // The key says that it is the source; the address it sends from is its own affair.
            flow.path = Some(path);
        }
        flow.last_heard = Some(now);
        match datagram.body {
            Body::Symbol(header) => self.on_symbol(now, datagram.flow, header, ecn, quiet_until),
            Body::Challenge { nonce } => {
                flow.nonce = Some(nonce);
                flow.retry_at = Some(now);
            }
            Body::FinAck => self.unbind(now, datagram.flow),
            Body::Probe(probe) => self.on_probe(now, path, datagram.flow, probe),
            Body::Ack(_)
            | Body::Assign(_)
            | Body::Fin(_)
            | Body::Control(_)
            | Body::Cumulative(_)
            | Body::AckVector(_)
            | Body::ProbeAck(_)
            | Body::Pull(_)
            | Body::Receipt(_) => self.stats.strays += 1,
        }
    }

    fn on_symbol(&mut self, now: Time, id: FlowId, header: SymbolHeader, ecn: Ecn, quiet_until: Time) {
        let (Some(blocks), Some(geometry)) = (&mut self.blocks, self.geometry) else { return };
        let open_blocks = self.config.open_blocks(geometry.layout().block_bytes());
        let flow = self.flows.get_mut(&id).expect("the caller found it");
        if header.trimmed || flow.ending.is_some() || flow.distrusted {
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
                // Sources go through the blocks by themselves, and what one sends nobody else has: there is room for all
                // that they look ahead. What is still too early is not acknowledged, so that it comes again.
                let room = open_blocks.max(LOOK_AHEAD);
                if !blocks.open_through(block, room) && blocks.is_too_early(block) {
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
        let was_silent = std::mem::take(&mut flow.silent);
        flow.revivals = 0;
        flow.expecting_since = Some(now);
        flow.rate.on_arrival(now, 1);
        flow.on_echo(now, header.assignment);
        if !flow.touched.contains(&block) && flow.touched.len() < MAX_OWED {
            flow.touched.push(block);
        }
        let (node, of) = (flow.node, flow.of);
        let flows = &mut self.flows;
        let settle = |owing: FlowId, n: u32| {
            if let Some(flow) = flows.get_mut(&owing) {
                flow.outstanding = flow.outstanding.saturating_sub(u64::from(n));
            }
        };
        let arrival = blocks.arrive(id, node, header.symbol, self.rule, of, settle);
        if arrival == Arrival::Useless {
            self.stats.useless += 1;
            return;
        }
        self.last_useful = now;
        let flow = self.flows.get_mut(&id).expect("the caller found it");
        flow.useful += 1;
        flow.bytes += Bytes::new(u64::from(geometry.symbol_size()));
        let listed = self.rule == SpreadRule::Listed;
        self.plan_soon |= listed && spread::is_hungry(flow);
        if !(listed && self.plan_soon || was_silent) {
            self.quiet_until = quiet_until;
        }
        if self.outputs.is_empty() && self.keep.is_none() {
            self.keep = Some((id, header.symbol));
        } else {
            self.event(ReceiverEvent::Symbol { flow: id, symbol: header.symbol });
        }
        if arrival == Arrival::Complete {
            self.event(ReceiverEvent::Decode { block });
            let behind = self.blocks.as_ref().map_or(0, |b| b.decoding() as u32);
            self.stats.blocks_behind_most = self.stats.blocks_behind_most.max(behind);
        }
        self.acknowledge_symbol(now, id);
    }

    /// What a symbol makes due at once, so that a poll need not look for it among all flows.
    fn acknowledge_symbol(&mut self, now: Time, id: FlowId) {
        let inflow = self.inflow();
        let Receiver { blocks: Some(blocks), flows, outputs, rule, config, .. } = self else { return };
        let Some(flow) = flows.get_mut(&id) else { return };
        if flow.acks.due(now, config.max_ack_delay) {
            acknowledge(now, flow, blocks, *rule, inflow, outputs);
        }
        let deadline = flow.acks.deadline(config.max_ack_delay).unwrap_or(Time::MAX);
        self.quiet_until = self.quiet_until.min(deadline);
    }

    fn acknowledge_all(&mut self, now: Time) {
        let inflow = self.inflow();
        let Receiver { blocks: Some(blocks), flows, outputs, rule, config, .. } = self else { return };
        for flow in flows.values_mut().filter(|flow| flow.acks.due(now, config.max_ack_delay)) {
            acknowledge(now, flow, blocks, *rule, inflow, outputs);
        }
    }

    fn live_flows(&self) -> u32 {
        self.flows.values().filter(|f| f.is_live()).count() as u32
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

    fn count_inflow(&mut self) {
        let live = self.flows.values().filter(|f| f.is_live());
        self.inflow =
            live.fold(Inflow::default(), |s, f| Inflow { flows: s.flows + 1, recent: s.recent + f.recent });
    }

    /// Has the flows that should bring something, and do not, asked again.
    fn remind(&mut self, now: Time) {
        let Some(blocks) = self.blocks.as_ref().filter(|_| self.rule != SpreadRule::Listed) else { return };
        for flow in self.flows.values_mut() {
            let due = flow.path.is_some() && flow.is_live() && flow.remind_at().is_some_and(|at| now >= at);
            if due && blocks.expects(flow, self.rule) {
                flow.changed = true;
            } else if due {
                flow.expecting_since = Some(now);
            }
        }
    }

    fn send_assignments(&mut self, now: Time) {
        let Some(blocks) = &self.blocks else { return };
        let live = self.live_flows().max(1);
        let mut ready = Vec::new();
        for flow in self.flows.values_mut() {
            let Some(path) = flow.path else { continue };
            let due = flow.changed || flow.retry_at.is_some_and(|at| now >= at);
            if !due || !flow.is_live() {
                continue;
            }
            flow.on_assign(now, blocks.expects(flow, self.rule));
            let (index, of) = (flow.index, flow.of);
            let assignment = match self.rule {
                SpreadRule::Listed => Assignment::Listed(spread::list(blocks, flow)),
                SpreadRule::Residue => Assignment::Residue { index, of },
                SpreadRule::Equal => Assignment::Equal { index, of },
            };
            let assign = Assign {
                version: flow.version,
                nonce: flow.nonce,
                receive_window: (self.config.receive_window / live).max(2),
                first_undecoded: blocks.first_undecoded(),
                assignment,
            };
            ready.push((path, flow.id, assign));
        }
        for (path, flow, assign) in ready {
            self.send(path, flow, Body::Assign(Box::new(assign)));
        }
    }

    // ---- from the driver -----------------------------------------------------------------------------------------

    fn on_command(&mut self, now: Time, command: ReceiverCommand) {
        match command {
            ReceiverCommand::Start { wanted, have } => self.start(now, wanted, &have),
            ReceiverCommand::FlowPath { flow, path } => {
                if let Some(flow) = self.flows.get_mut(&flow) {
                    flow.path = Some(path);
                    flow.expecting_since = Some(now);
                    self.plan_soon = true;
                }
            }
            ReceiverCommand::BlockDecoded { block } => self.on_decoded(now, block),
            ReceiverCommand::DecodeFailed { block, failure } => self.on_decode_failed(now, block, failure),
            ReceiverCommand::Cancel => self.fail(now, ReceiverFailure::Cancelled),
            ReceiverCommand::Expect(_) | ReceiverCommand::Abandon { .. } => self.stats.strays += 1,
        }
    }

    fn start(&mut self, now: Time, wanted: Range<u32>, have: &[BlockIndex]) {
        let (Phase::Preparing, Some(geometry)) = (&self.phase, self.geometry) else { return };
        let blocks = Blocks::new(geometry, wanted, have);
        self.stats.source_symbols += blocks.needed();
        self.phase = Phase::Receiving;
        self.last_useful = now;
        let done = blocks.all_done();
        self.blocks = Some(blocks);
        self.plan_soon = true;
        if done {
            self.complete(now);
        }
    }

    fn on_decoded(&mut self, now: Time, block: BlockIndex) {
        let Some(blocks) = &mut self.blocks else { return };
        let Some(entry) = blocks.get(block) else { return };
        if entry.is_filling() {
            return;
        }
        self.stats.repair_used += u64::from(entry.source_symbols_missing());
        self.last_useful = now;
        let suspects = blocks.finish(block);
        let done = blocks.all_done();
        for node in suspects {
            let count = self.suspicion.entry(node).or_default();
            *count += 1;
            if *count >= SUSPICIONS {
                self.distrust(now, node);
            }
        }
        if done && matches!(self.phase, Phase::Receiving) {
            self.complete(now);
        }
    }

    fn on_decode_failed(&mut self, now: Time, block: BlockIndex, failure: DecodeFailure) {
        let Some(blocks) = &mut self.blocks else { return };
        if blocks.get(block).is_none_or(|b| b.is_filling()) {
            return;
        }
        self.last_useful = now;
        match failure {
            DecodeFailure::NeedMore => {
                self.stats.need_more += 1;
                if self.rule != SpreadRule::Listed {
                    // Sources have been told that the block is done; repeated until they answer.
                    self.flows.values_mut().for_each(|f| f.changed = true);
                }
                if let Some((owing, n)) = blocks.need_more(block)
                    && let Some(flow) = self.flows.get_mut(&owing)
                {
                    flow.outstanding += u64::from(n);
                    flow.order.push_back(block);
                    flow.changed = true;
                }
            }
            DecodeFailure::Corrupt => {
                self.stats.corrupt += 1;
                let blame = blocks.corrupt(block);
                let attempts = blocks.attempts(block);
                self.event(ReceiverEvent::Discard { block });
                // One source alone can be asked only by listing.
                if self.rule != SpreadRule::Listed {
                    self.rule = SpreadRule::Listed;
                    self.flows.values_mut().for_each(|f| f.changed = true);
                }
                if let Some(Blame::Liar(node)) = blame {
                    self.distrust(now, node);
                }
                if attempts >= self.config.attempts {
                    self.fail(now, ReceiverFailure::Corrupt { block });
                }
            }
        }
        self.plan_soon = true;
    }

    fn distrust(&mut self, now: Time, node: NodeId) {
        if !self.distrusted.insert(node) {
            return;
        }
        let theirs: Vec<FlowId> = self.flows.values().filter(|f| f.node == node).map(|f| f.id).collect();
        for flow in theirs {
            self.end_flow(now, flow, FinReason::Distrusted);
        }
        self.event(ReceiverEvent::Distrusted { node });
        if let Some(task) = self.task {
            self.say(Control::Distrust { task, node });
        }
    }

    /// Everything that a flow owes goes back to the pool.
    fn release(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.outstanding = 0;
        flow.order.clear();
        flow.changed = true;
        if let Some(blocks) = &mut self.blocks {
            for block in blocks.release(id) {
                self.event(ReceiverEvent::Discard { block });
            }
        }
        self.plan_soon = true;
    }

    fn complete(&mut self, now: Time) {
        self.event(ReceiverEvent::Done);
        self.finish(now, Outcome::Done);
    }

    fn fail(&mut self, now: Time, failure: ReceiverFailure) {
        if matches!(self.phase, Phase::Ending { .. } | Phase::Ended) {
            return;
        }
        let outcome = match failure {
            ReceiverFailure::Cancelled => Outcome::Cancelled,
            _ => Outcome::Failed,
        };
        self.event(ReceiverEvent::Failed(failure));
        self.finish(now, outcome);
    }

    fn finish(&mut self, now: Time, outcome: Outcome) {
        let reason = if outcome == Outcome::Done { FinReason::Done } else { FinReason::Cancelled };
        for flow in self.flows.values_mut().filter(|f| f.ending.is_none()) {
            flow.ending = Some(Ending { reason, next: now, tries: 0 });
        }
        self.count_inflow();
        self.phase = Phase::Ending { outcome, next: now, tries: 0 };
    }

    // ---- time ----------------------------------------------------------------------------------------------------

    fn on_time(&mut self, now: Time) {
        if let Phase::Asking { since, next, tries } = &mut self.phase {
            let first = *since == Time::MAX;
            if first {
                *since = now;
            }
            if now.since(*since) >= self.config.patience {
                return self.fail(now, ReceiverFailure::NoController);
            }
            if first || now >= *next {
                *next = now + (self.config.retry * (1 << (*tries).min(3)));
                *tries += 1;
                let request = Request {
                    request: self.request,
                    name: match (self.object, self.blocks.is_some()) {
                        // A name may move while we wait; the object that we began does not.
                        (Some(object), true) => object.to_string(),
                        _ => self.config.name.clone(),
                    },
                    receiver: self.config.node,
                    room: self.config.room,
                    class: self.config.class,
                    spread: self.config.spread,
                    max_sources: self.config.max_sources,
                };
                self.say_left();
                self.say(Control::Request(request));
            }
        }
        if matches!(self.phase, Phase::Receiving) {
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
        if self.is_running() {
            self.acknowledge_all(now);
            self.remind(now);
            self.send_assignments(now);
            if now >= self.next_feedback {
                self.feedback(now);
            }
        }
        self.say_fins(now);
    }

    /// When the work is planned next: soon after something changed, and every turnaround or so anyway.
    fn plan_at(&self) -> Time {
        let soon = self.last_plan.map_or(Time::ZERO, |last| last + spread::RESPITE);
        if self.plan_soon { soon.min(self.next_plan) } else { self.next_plan }
    }

    fn feedback(&mut self, now: Time) {
        self.next_feedback = now + self.feedback_every;
        let (Some(task), Some(geometry)) = (self.task, self.geometry) else { return };
        self.say_left();
        let symbol = u64::from(geometry.symbol_size());
        let (blocks, rule) = (&self.blocks, self.rule);
        let expects = |flow: &Flow| blocks.as_ref().is_some_and(|b| b.expects(flow, rule));
        let flows = self
            .flows
            .values_mut()
            .filter(|f| f.ending.is_none())
            .map(|f| FlowView {
                flow: f.id,
                bytes: f.bytes,
                rate: rate_of(f, now, symbol),
                silent: match f.expecting_since {
                    Some(since) if expects(f) => now.since(since),
                    _ => Duration::ZERO,
                },
            })
            .collect();
        let (first_undecoded, needed) = match &self.blocks {
            Some(blocks) => (blocks.first_undecoded(), Symbols::new(blocks.needed())),
            None => (BlockIndex(0), geometry.total_symbols()),
        };
        let flows_version = self.flows_version;
        let held_up = self.blocks.as_ref().is_some_and(|b| b.decoding() >= HELD_UP);
        self.say(Control::Feedback { task, first_undecoded, needed, flows_version, flows, held_up });
    }

    fn say_fins(&mut self, now: Time) {
        let mut fins = Vec::new();
        let mut over = Vec::new();
        for flow in self.flows.values_mut() {
            let Some(ending) = &mut flow.ending else { continue };
            if now < ending.next {
                continue;
            }
            // A source that has fallen silent is told once and not waited for: the controller stops its flow too.
            let tries = if flow.silent { 1 } else { FIN_TRIES };
            match flow.path {
                Some(path) if ending.tries < tries => {
                    fins.push((path, flow.id, ending.reason));
                    ending.next = if flow.silent { now } else { now + FIN_RETRY * (1 << ending.tries) };
                    ending.tries += 1;
                }
                _ => over.push(flow.id),
            }
        }
        for (path, flow, reason) in fins {
            self.send(path, flow, Body::Fin(reason));
        }
        for flow in over {
            self.unbind(now, flow);
        }
        if let Phase::Ending { outcome, next, tries } = &mut self.phase {
            let outcome = *outcome;
            if *tries < FIN_TRIES && now >= *next {
                *next = now + FIN_RETRY * (1 << *tries);
                *tries += 1;
                match self.task {
                    Some(task) => {
                        self.say_left();
                        self.say(Control::Fin { task, outcome });
                    }
                    None => self.phase = Phase::Ending { outcome, next: now, tries: FIN_TRIES },
                }
            }
            if matches!(self.phase, Phase::Ending { tries: FIN_TRIES, .. }) && self.flows.is_empty() {
                self.phase = Phase::Ended;
            }
        }
    }

    fn next_wake(&self) -> Option<Time> {
        let mut wake: Option<Time> = None;
        let mut at = |time: Time| wake = Some(wake.map_or(time, |w| w.min(time)));
        match &self.phase {
            Phase::Asking { next, since, .. } => at((*next).min(*since + self.config.patience)),
            Phase::Preparing => at(self.next_feedback),
            Phase::Receiving => {
                at(self.next_feedback);
                // Nobody can be blamed for silence while the decoder or the disk has the next word.
                if self.blocks.as_ref().is_none_or(|b| b.decoding() == 0) {
                    at(self.last_useful + self.config.source_patience);
                }
                if self.rule == SpreadRule::Listed {
                    at(self.plan_at());
                }
            }
            Phase::Ending { next, tries, .. } if *tries < FIN_TRIES => at(*next),
            Phase::Ending { .. } | Phase::Ended => {}
        }
        for flow in self.flows.values() {
            if let Some(ending) = &flow.ending {
                at(ending.next);
            } else if self.is_running() && flow.path.is_some() && self.blocks.is_some() {
                flow.acks.deadline(self.config.max_ack_delay).into_iter().for_each(&mut at);
                if flow.is_live() {
                    flow.retry_at.into_iter().for_each(&mut at);
                    if self.rule != SpreadRule::Listed {
                        flow.remind_at().into_iter().for_each(&mut at);
                    }
                }
            }
        }
        wake
    }
}

impl Endpoint for Receiver {
    fn handle(&mut self, now: Time, input: Input) {
        let quiet_until = std::mem::take(&mut self.quiet_until);
        match input {
            Input::Packet(packet) => self.on_packet(now, packet, quiet_until),
            Input::Command(Command::Receiver(command)) => self.on_command(now, command),
            Input::Command(_) => self.stats.strays += 1,
        }
    }

    fn poll(&mut self, now: Time) -> Output {
        if let Some((flow, symbol)) = self.keep.take() {
            return Output::Event(Event::Receiver(ReceiverEvent::Symbol { flow, symbol }));
        }
        if let Some(output) = self.outputs.pop_front() {
            return output;
        }
        if now >= self.quiet_until {
            self.on_time(now);
            if let Some(output) = self.outputs.pop_front() {
                self.quiet_until = Time::ZERO;
                return output;
            }
            self.quiet_until = self.next_wake().unwrap_or(Time::MAX);
        }
        Output::Wake(Some(self.quiet_until).filter(|at| *at < Time::MAX))
    }
}

/// Sends the ACK that a flow is due, unless nothing came, or nobody knows where its source is.
fn acknowledge(
    now: Time,
    flow: &mut Flow,
    blocks: &Blocks,
    rule: SpreadRule,
    inflow: Inflow,
    outputs: &mut VecDeque<Output>,
) {
    let Some(path) = flow.path else { return };
    let first = blocks.first_undecoded();
    let Some(mut ack) = flow.acks.take(now, first) else { return };
    // What is wanted next, also if nothing of it came from this source: else it learns that a whole queue too late.
    if rule == SpreadRule::Residue && !flow.touched.contains(&first) && flow.touched.len() < MAX_OWED {
        flow.touched.push(first);
    }
    flow.touched.sort_unstable();
    for &block in &flow.touched {
        let symbols = Symbols::new(blocks.owed(block, flow, rule, inflow));
        ack.owed.push(Owed { block, symbols });
    }
    flow.touched.clear();
    let datagram = Datagram { class: Class::Control, key_epoch: 0, flow: flow.id, body: Body::Ack(ack) };
    outputs.push_back(Output::Transmit(Packet { path, ecn: Ecn::NotEct, datagram }));
}

fn rate_of(flow: &mut Flow, now: Time, symbol: u64) -> BitRate {
    let per_second = flow.rate.per_second(now).unwrap_or(0.0);
    BitRate::new((per_second * symbol as f64 * 8.0) as u64)
}

fn flow_stats(flow: &mut Flow, now: Time, symbol: u16) -> FlowStats {
    FlowStats {
        flow: flow.id,
        node: flow.node,
        bytes: flow.bytes,
        symbols: flow.arrivals,
        useful: flow.useful,
        lost: flow.acks.lost(),
        marked: flow.acks.marked(),
        rate: rate_of(flow, now, u64::from(symbol)),
        starved: flow.starved,
        outstanding: flow.outstanding,
        turnaround: flow.turnaround,
        live: flow.is_live() && !flow.silent,
        silent: flow.silent,
        signal: match (flow.acks.received(), flow.acks.marked()) {
            (0, _) => MarkSignal::Unknown,
            (_, 0) => MarkSignal::Delay,
            _ => MarkSignal::Ecn,
        },
    }
}
