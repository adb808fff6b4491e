//! Courier's agents, one on each host, and their lanes.

use std::collections::BTreeMap;

use headwater_machine::{Endpoint, Input, Output};
use headwater_policy::coflow::courier::Limits;
use headwater_transport::courier::{
    Arrival, ByPolicy, Courier, CourierCommand, CourierConfig, CourierEvent, LaneId, PairId, Request,
    Schedule, Share, Want,
};
use headwater_units::{Bytes, FlowId, FluidRate, PathId, Time};

use super::super::world::node;
use super::hadoop::Flow;

/// All agents.
pub(super) struct Agents {
    hosts: Vec<Agent>,
    /// Connections of lanes, by receiving host.
    lanes: BTreeMap<(u32, LaneId), u32>,
    pub(super) pinned: bool,
    /// Whether lanes of each class have connections of their own.
    per_class: bool,
    /// Whether flows of a pair of hosts are one.
    merges: bool,
}

struct Agent {
    courier: Courier<ByPolicy>,
    wake: u64,
}

/// Request of an agent to the world.
pub(super) enum Wish {
    /// A block is to come by this lane.
    Block(Request),
    /// A lane runs at most at this rate.
    Lane { lane: LaneId, rate: Option<FluidRate> },
    /// All of a flow is here.
    Done(u32),
    /// It is to be woken.
    Wake(Time),
}

impl Agents {
    pub(super) fn new(
        hosts: usize,
        limits: Limits,
        config: CourierConfig,
        (pinned, per_class, merges): (bool, bool, bool),
    ) -> Self {
        let selection = ByPolicy::new(limits).expect("the limits were checked");
        let agent = || Agent { courier: Courier::new(config, selection.clone()), wake: u64::MAX };
        let hosts = std::iter::repeat_with(agent).take(hosts).collect();
        Agents { hosts, lanes: BTreeMap::new(), pinned, per_class, merges }
    }

    /// A reducer begins to fetch. Its disk has room for all of it.
    pub(super) fn want(&mut self, now: Time, number: u32, flow: &Flow, share: Share) {
        let size = Bytes::new(flow.bytes);
        // Flows of different paths are not merged.
        let path = (!self.merges).then_some(PathId(number));
        let pair = PairId { peer: node(flow.from), path };
        let flow_id = FlowId(u64::from(number));
        let want = Want { flow: flow_id, pair, size: Some(size), credit: size, share };
        self.tell(now, flow.to, CourierCommand::Want(want));
    }

    pub(super) fn schedule(&mut self, now: Time, host: u32, schedule: Schedule) {
        self.tell(now, host, CourierCommand::Schedule(schedule));
    }

    /// A block is here.
    pub(super) fn arrived(&mut self, now: Time, host: u32, block: &Request) {
        let Request { flow, offset, bytes, .. } = *block;
        self.tell(now, host, CourierCommand::Arrived(Arrival { flow, offset, bytes, last: false }));
    }

    fn tell(&mut self, now: Time, host: u32, command: CourierCommand) {
        self.hosts[host as usize].courier.handle(now, Input::Command(command));
    }

    /// The next thing that a host's agent wants, if it wants any more now.
    pub(super) fn next(&mut self, now: Time, host: u32) -> Option<Wish> {
        let agent = &mut self.hosts[host as usize];
        loop {
            return match agent.courier.poll(now) {
                Output::Transmit(packet) => panic!("an agent sends no packets itself: {packet:?}"),
                Output::Event(CourierEvent::Request(request)) => Some(Wish::Block(request)),
                Output::Event(CourierEvent::Lane { lane, rate }) => Some(Wish::Lane { lane, rate }),
                // Its connection stays open.
                Output::Event(CourierEvent::Idle(_)) => continue,
                Output::Event(CourierEvent::Done { flow }) => Some(Wish::Done(flow.0 as u32)),
                Output::Wake(Some(at)) if at.as_nanos() < agent.wake => {
                    agent.wake = at.as_nanos();
                    Some(Wish::Wake(at))
                }
                Output::Wake(_) => None,
            };
        }
    }

    /// Whether an agent's time has come.
    pub(super) fn is_due(&mut self, now: Time, host: u32) -> bool {
        let wake = &mut self.hosts[host as usize].wake;
        let is_due = *wake == now.as_nanos();
        if is_due {
            *wake = u64::MAX;
        }
        is_due
    }

    /// The connection of a lane, if it was opened.
    pub(super) fn connection(&self, host: u32, lane: LaneId) -> Option<u32> {
        self.lanes.get(&(host, self.shared(lane))).copied()
    }

    /// The lane whose connection it uses.
    fn shared(&self, lane: LaneId) -> LaneId {
        if self.per_class { lane } else { LaneId { class: 0, ..lane } }
    }

    pub(super) fn open(&mut self, host: u32, lane: LaneId, connection: u32) {
        self.lanes.insert((host, self.shared(lane)), connection);
    }

    /// The most lanes that any host had at once.
    pub(super) fn most_lanes(&self) -> u64 {
        self.hosts.iter().map(|agent| agent.courier.stats().most_lanes).max().unwrap_or(0)
    }
}
