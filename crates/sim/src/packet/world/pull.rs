//! Flows of the baselines, and pulling receivers: one endpoint for everything that a host receives, and relays.

use headwater_baseline::{
    self as baseline, Expect, NdpConfig, PullReceiver, PullReceiverConfig, ReceiverStats, SenderCommand,
    SinkCommand,
};
use headwater_fabric::HostId;
use headwater_transport::pull::queue::PullConfig;
use headwater_units::{BitRate, Bytes, Duration, FlowId, PathId};

use super::machine::Command;
use super::{Flowing, Machine, World};
use crate::packet::setup::TaskPlan;

/// One flow of a task: source, receiver, amount.
struct Leg {
    source: u32,
    receiver: u32,
    packets: u64,
    /// The source has it from another leg.
    relays: bool,
    /// The receiver gives it to another one.
    relayed: bool,
}

impl World {
    pub(super) fn start_baseline(&mut self, task: u32, plan: &TaskPlan, config: baseline::SenderConfig) {
        for (index, leg) in legs(plan).into_iter().enumerate() {
            let flow = FlowId(u64::from(task) << 8 | index as u64);
            let (sink, from) = match config.scheme {
                baseline::Scheme::Ndp(ndp) => self.start_pulled(task, flow, &leg, &config, ndp),
                _ => self.start_acknowledged(task, flow, &leg, &config),
            };
            let running = &mut self.tasks[task as usize];
            running.receivers.push(sink);
            running.senders.push(from);
            let (source, start) = (leg.source, self.now);
            running.flows.push(Flowing { flow, source, receiver: None, start, last: None });
            running.unfinished += 1;
            running.open += 1;
            self.drain(sink);
            self.drain(from);
        }
    }

    /// A flow with a receiver of its own.
    fn start_acknowledged(
        &mut self,
        task: u32,
        flow: FlowId,
        leg: &Leg,
        config: &baseline::SenderConfig,
    ) -> (u32, u32) {
        let receiver = baseline::ReceiverConfig::of(config);
        let there = self.endpoints.len() as u32;
        let sink = baseline::Receiver::new(receiver, flow, PathId(there + 1), leg.packets);
        let sink = self.add(Machine::Sink(Box::new(sink)), leg.receiver, task);
        let from = baseline::Sender::new(*config, flow, PathId(sink), leg.packets);
        (sink, self.add(Machine::Sender(Box::new(from)), leg.source, task))
    }

    /// A flow that its host pulls together with its others.
    fn start_pulled(
        &mut self,
        task: u32,
        flow: FlowId,
        leg: &Leg,
        config: &baseline::SenderConfig,
        ndp: NdpConfig,
    ) -> (u32, u32) {
        let sink = match self.pullers[leg.receiver as usize] {
            Some(puller) => puller,
            None => {
                let pull = self.pull_config(leg.receiver, ndp.headroom);
                let receiver = PullReceiver::new(PullReceiverConfig::of(config, pull));
                let puller = self.add(Machine::Puller(Box::new(receiver)), leg.receiver, u32::MAX);
                self.pullers[leg.receiver as usize] = Some(puller);
                puller
            }
        };
        let make = if leg.relays { baseline::Sender::relay } else { baseline::Sender::new };
        let from = make(*config, flow, PathId(sink), leg.packets);
        let from = self.add(Machine::Sender(Box::new(from)), leg.source, task);
        let expect = Expect {
            flow,
            path: PathId(from),
            packets: leg.packets,
            window: config.first_window(),
            relayed: leg.relayed,
        };
        // Polled once the task knows of the flow.
        self.tell_later(sink, Command::Sink(SinkCommand::Expect(expect)));
        (sink, from)
    }

    /// A host pulls as fast as its links bring packets, all together (SCDP §III-A).
    pub(super) fn pull_config(&self, host: u32, headroom: Bytes) -> PullConfig {
        let topology = &self.setup.topology;
        let links = topology.point_of(HostId(host)).map_or(&[][..], |at| topology.fabric().entering(at));
        // One without a rate holds nobody back.
        let rate = links.iter().map(|link| topology.fabric().link(*link)?.capacity).sum::<Option<BitRate>>();
        let symbol = u64::from(self.setup.sizes.symbol) + headwater_wire::SYMBOL_OVERHEAD as u64;
        let true_size = self.setup.sizes.around + Bytes::new(symbol);
        PullConfig {
            rate: rate.filter(|_| !links.is_empty()).unwrap_or(BitRate::new(1_000_000_000_000)),
            packet: self.setup.sizes.data.unwrap_or(true_size) + headroom,
            catch_up: Duration::ZERO,
        }
    }

    /// A flow of a host that pulls is complete.
    pub(super) fn on_complete(&mut self, flow: FlowId) {
        let (task, index) = place_of(flow);
        let now = self.now;
        let running = &mut self.tasks[task as usize];
        running.flows[index].last = Some(now);
        running.unfinished = running.unfinished.saturating_sub(1);
        if running.unfinished == 0 && running.finished.is_none() {
            self.note_end(task, false);
        }
    }

    /// A relay has more of a flow, and the next one in line wants it.
    pub(super) fn on_progress(&mut self, flow: FlowId, packets: u64) {
        let (task, index) = place_of(flow);
        if let Some(&next) = self.tasks[task as usize].senders.get(index + 1) {
            let command = SenderCommand::Extend { flow: FlowId(flow.0 + 1), packets };
            self.tell(next, Command::Sender(command));
        }
    }

    /// A task that is broken off is pulled no longer.
    pub(super) fn abandon(&mut self, task: u32) {
        let running = &self.tasks[task as usize];
        let pulled = running
            .receivers
            .iter()
            .zip(&running.flows)
            .filter(|(endpoint, _)| matches!(self.machine(**endpoint), Machine::Puller(_)));
        for (endpoint, flow) in pulled.map(|(&e, flowing)| (e, flowing.flow)).collect::<Vec<_>>() {
            self.tell(endpoint, Command::Sink(SinkCommand::Abandon { flow }));
        }
    }

    /// Counters of the receiver of a baseline's flow.
    pub(super) fn received(&self, task: usize, index: usize) -> Option<ReceiverStats> {
        let running = &self.tasks[task];
        match self.machine(*running.receivers.get(index)?) {
            Machine::Sink(sink) => Some(sink.stats()),
            Machine::Puller(puller) => puller.flow(running.flows.get(index)?.flow),
            _ => None,
        }
    }
}

/// The task of a baseline's flow, and its place among the task's flows.
fn place_of(flow: FlowId) -> (u32, usize) {
    ((flow.0 >> 8) as u32, (flow.0 & 0xff) as usize)
}

/// The flows of a task. Of several sources each sends an equal part, rounded up (catalogue, "Choices").
fn legs(plan: &TaskPlan) -> Vec<Leg> {
    let packets = plan.packets.div_ceil(plan.sources.len() as u64);
    let mut legs = Vec::new();
    let receivers: Vec<u32> = std::iter::once(plan.receiver).chain(plan.further.iter().copied()).collect();
    for (place, &receiver) in receivers.iter().enumerate() {
        let relays = plan.relayed && place > 0;
        let relayed = plan.relayed && place + 1 < receivers.len();
        let sources = if relays { &receivers[place - 1..place] } else { &plan.sources[..] };
        legs.extend(sources.iter().map(|&source| Leg { source, receiver, packets, relays, relayed }));
    }
    legs
}
