//! Orders that follow from a plan: the scheduler is asked, and senders and agents are told.

use headwater_transport::courier::{LaneId, Schedule};
use headwater_units::{FlowId, NodeId};

use super::super::super::Event;
use super::super::super::path_numbers::paths_between;
use super::super::super::world::host_of;
use super::super::agents::Wish;
use super::super::connection::Connection;
use super::super::scheduler::Planned;
use super::{AGENTS, Message, World};

impl World {
    /// The scheduler is asked at this same time, after what happens at it already.
    pub(super) fn plan_soon(&mut self, is_due: bool) {
        if is_due && !self.plan_due {
            self.plan_due = true;
            self.transit.agenda.push(self.now.as_nanos(), Event::Sample);
        }
        if let (true, false, Some(period)) = (is_due, self.ticks, self.scheduler.period()) {
            self.ticks = true;
            self.transit.agenda.push((self.now + period).as_nanos(), Event::Midway);
        }
    }

    pub(super) fn tick(&mut self) {
        self.ticks = false;
        let matters = self.scheduler.hear(&self.hadoop);
        self.plan_soon(matters);
        if let (false, false, Some(period)) =
            (self.ticks, self.hadoop.active.is_empty(), self.scheduler.period())
        {
            self.ticks = true;
            self.transit.agenda.push((self.now + period).as_nanos(), Event::Midway);
        }
    }

    pub(super) fn plan(&mut self) {
        self.plan_due = false;
        let planned = self.scheduler.plan(self.now, &self.hadoop);
        match (planned, self.agents.is_some()) {
            (Planned::Nothing, _) => {}
            (planned, true) => self.tell_agents(&planned),
            (planned, false) => self.tell_senders(&planned),
        }
    }

    fn tell_senders(&mut self, planned: &Planned) {
        let open: Vec<(u32, u32)> =
            self.hadoop.active.iter().map(|(job, _, _, flow)| (*job, *flow)).collect();
        for (job, flow) in open {
            if matches!(planned, Planned::Rates) && !self.scheduler.is_news(flow) {
                continue;
            }
            let number = self.connection_of[flow as usize];
            if number == u32::MAX {
                continue; // Its fetch is on its way, and takes the plan with it.
            }
            let (class, rate) = (self.class_of(job), self.scheduler.rate(flow));
            let pace = matches!(planned, Planned::Rates).then(|| Some(self.interval(rate)));
            self.with(number, |world, connection| world.reclass(connection, class, pace));
        }
    }

    fn tell_agents(&mut self, planned: &Planned) {
        let hosts = self.setup.topology.hosts().len();
        let (mut rates, mut ranks) = (vec![Vec::new(); hosts], vec![Vec::new(); hosts]);
        let mut has_news = vec![!matches!(planned, Planned::Rates); hosts];
        for (job, _, to, flow) in &self.hadoop.active {
            let id = FlowId(u64::from(*flow));
            match planned {
                Planned::Rates => {
                    rates[usize::from(*to)].push((id, self.scheduler.rate(*flow)));
                    has_news[usize::from(*to)] |= self.scheduler.is_news(*flow);
                }
                Planned::Ranks => ranks[usize::from(*to)].push((id, self.scheduler.rank(*job))),
                Planned::Nothing => {}
            }
        }
        for (host, (rates, ranks)) in (0..).zip(rates.into_iter().zip(ranks)) {
            let schedule = match planned {
                Planned::Rates => Schedule::Rates(rates),
                _ => Schedule::Ranks(ranks),
            };
            if let Some(agents) = self.agents.as_mut().filter(|_| has_news[host as usize]) {
                agents.schedule(self.now, host, schedule);
            }
            self.drive_agent(host);
        }
    }

    pub(super) fn wake_agent(&mut self, host: u32) {
        if self.agents.as_mut().is_some_and(|agents| agents.is_due(self.now, host)) {
            self.drive_agent(host);
        }
    }

    pub(super) fn drive_agent(&mut self, host: u32) {
        while let Some(wish) = self.agents.as_mut().and_then(|agents| agents.next(self.now, host)) {
            match wish {
                Wish::Block(block) => {
                    let number = self.lane(host, block.lane);
                    self.post(Message::Block(number, block));
                }
                Wish::Lane { lane, rate } => {
                    let connection = self.lane(host, lane);
                    self.post(Message::Lane { connection, class: lane.class, rate });
                }
                Wish::Done(flow) => {
                    let changes = self.end_flow(flow, false);
                    self.apply(changes);
                }
                Wish::Wake(at) => {
                    let at = at.max(self.now).as_nanos();
                    self.transit.agenda.push(at, Event::Wake { slot: AGENTS | host });
                }
            }
        }
    }

    /// The connection of a lane, which is opened if it was not.
    fn lane(&mut self, host: u32, lane: LaneId) -> u32 {
        let agents = self.agents.as_ref().expect("lanes are agents'");
        if let Some(number) = agents.connection(host, lane) {
            return number;
        }
        let NodeId(peer) = lane.pair.peer;
        let from = host_of(NodeId(peer));
        let paths = || paths_between(&self.setup.topology, &self.setup.routes, from, host);
        let path = agents.pinned.then(|| (from + lane.number) % u32::from(paths().max(1)));
        let number = self.connections.len() as u32;
        self.open(Connection::lane(self.setup.sender, number, (from, host), lane.class, path));
        if let Some(agents) = &mut self.agents {
            agents.open(host, lane, number);
        }
        number
    }
}
