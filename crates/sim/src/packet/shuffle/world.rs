//! Events, one after the other.

mod orders;

use std::collections::BTreeMap;

use headwater_baseline::SenderCommand;
use headwater_machine::{Endpoint, Input, Output};
use headwater_transport::courier::{Request, Share};
use headwater_units::{BitRate, Duration, FlowId, FluidRate, Time};

use super::super::Event;
use super::super::setup::SetupError;
use super::agents::Agents;
use super::connection::{Connection, Load};
use super::hadoop::{Changes, Hadoop};
use super::records::ShuffleOutcome;
use super::scheduler::Scheduler;
use super::setup::{Carrier, ShuffleSetup};
use super::transit::Transit;

/// Slots of wake-ups from here on are agents, by host; below, connections.
const AGENTS: u32 = 1 << 31;

/// Something that takes [`ShuffleSetup::delay`].
enum Message {
    /// A flow's source hears of its fetch.
    Fetch(u32),
    /// A lane's source hears of a block.
    Block(u32, Request),
    /// A lane's source hears how it runs.
    Lane { connection: u32, class: u8, rate: Option<FluidRate> },
}

pub(super) struct World {
    setup: ShuffleSetup,
    now: Time,
    /// Jobs that wait for the end of another.
    followers: BTreeMap<u32, Vec<u32>>,
    transit: Transit,
    hadoop: Hadoop,
    scheduler: Scheduler,
    agents: Option<Agents>,
    /// By number; those that are over are gone.
    connections: Vec<Option<Box<Connection>>>,
    /// By flow: its connection.
    connection_of: Vec<u32>,
    messages: Vec<Option<Message>>,
    free_messages: Vec<u32>,
    /// A plan is due at this time.
    plan_due: bool,
    /// The next time at which the scheduler hears what was sent is on the agenda.
    ticks: bool,
    busy: u64,
    outcome: ShuffleOutcome,
}

impl World {
    pub(super) fn new(setup: ShuffleSetup) -> Result<Self, SetupError> {
        let transit = Transit::new(&setup)?;
        let hadoop = Hadoop::new(&setup)?;
        let hosts = setup.topology.hosts().len();
        let uplinks = setup.topology.hosts().iter().flat_map(|host| setup.topology.fabric().leaving(*host));
        let rate = uplinks.map(|link| (setup.port)(*link, true).rate).min().unwrap_or(BitRate::ZERO);
        let scheduler = Scheduler::new(&setup.order, hosts as u16, rate, &hadoop)?;
        let agents = match &setup.carrier {
            Carrier::Flows => None,
            Carrier::Courier { limits, agent, pinned, per_class, merges } => {
                limits.check()?;
                let config =
                    headwater_transport::courier::CourierConfig { classes: setup.classes.count, ..*agent };
                Some(Agents::new(hosts, *limits, config, (*pinned, *per_class, *merges)))
            }
        };
        let mut followers: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (task, job) in (0..).zip(&setup.jobs) {
            if let Some(after) = job.after {
                followers.entry(after.job as u32).or_default().push(task);
            }
        }
        Ok(World {
            now: Time::ZERO,
            followers,
            transit,
            connection_of: vec![u32::MAX; hadoop.flows.len()],
            hadoop,
            scheduler,
            agents,
            connections: Vec::new(),
            messages: Vec::new(),
            free_messages: Vec::new(),
            plan_due: false,
            ticks: false,
            busy: 0,
            outcome: ShuffleOutcome::default(),
            setup,
        })
    }

    pub(super) fn run(mut self, watch: &mut dyn FnMut(usize, u64)) -> ShuffleOutcome {
        for (task, job) in (0..).zip(&self.setup.jobs).filter(|(_, job)| job.after.is_none()) {
            self.transit.agenda.push(job.at.as_nanos(), Event::Start { task });
        }
        let until = self.setup.until.map_or(u64::MAX, Time::as_nanos);
        while self.hadoop.left > 0 {
            let Some((at, event)) = self.transit.agenda.advance() else { break };
            if at > until {
                break;
            }
            let event = *event;
            self.now = Time::from_nanos(at);
            self.outcome.events += 1;
            if self.outcome.events & 0xf_ffff == 0 {
                watch(self.hadoop.left, self.outcome.events);
            }
            self.happen(event);
        }
        self.finish()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { link, frame } => {
                if let Some(packet) = self.transit.arrive(self.now, link, frame) {
                    self.deliver(packet);
                }
            }
            Event::Serve { link } => {
                if let Some(frame) = self.transit.serve(self.now, link) {
                    self.happen(Event::Arrive { link, frame });
                }
            }
            Event::Wake { slot: AGENTS.. } => self.wake_agent(slot_host(event)),
            Event::Wake { slot } => self.wake_sender(slot),
            Event::Deliver { body } => self.hear(body),
            Event::Start { task } => {
                let changes = self.hadoop.arrive(self.now, task);
                self.plan_soon(self.scheduler.follows_jobs());
                self.apply(changes);
            }
            Event::Sample => self.plan(),
            Event::Midway => self.tick(),
            other => unreachable!("nobody asks for {other:?} here"),
        }
    }

    // ---- connections

    fn deliver(&mut self, packet: headwater_machine::Packet) {
        let (number, is_ack) = (packet.path.0 >> 1, packet.path.0 & 1 == 1);
        // A connection that is over hears nothing more.
        let Some(mut connection) = self.connections[number as usize].take() else { return };
        let mut changes = Changes::default();
        let mut is_over = false;
        if is_ack {
            connection.sender.handle(self.now, Input::Packet(packet));
            is_over = self.drive_sender(number, &mut connection);
        } else {
            let before = connection.receiver.stats().next;
            connection.receiver.handle(self.now, Input::Packet(packet));
            while let Output::Transmit(ack) = connection.receiver.poll(self.now) {
                self.transit.send(self.now, &connection, ack);
            }
            let next = connection.receiver.stats().next;
            if next > before {
                changes = self.progress(&mut connection, before, next);
            }
        }
        let to = connection.to;
        if !is_over {
            self.connections[number as usize] = Some(connection);
        }
        self.apply(changes);
        if !is_ack {
            self.drive_agent(to);
        }
    }

    /// More of what crosses a connection is there, up to this packet.
    fn progress(&mut self, connection: &mut Connection, before: u64, next: u64) -> Changes {
        match &mut connection.load {
            Load::Fetch(flow) => {
                let flow = *flow;
                self.hadoop.deliver(flow, (next - before) * self.setup.payload.get());
                if next < self.packets(self.hadoop.flows[flow as usize].bytes) {
                    return Changes::default();
                }
                connection.is_busy = false;
                self.busy -= 1;
                let timed_out = connection.sender.stats().timeouts > 0;
                self.end_flow(flow, timed_out)
            }
            Load::Lane { blocks, packets } => {
                if *packets == next {
                    connection.is_busy = false;
                    self.busy -= 1;
                }
                while let Some((block, _)) = blocks.front().filter(|(_, end)| *end <= next) {
                    self.hadoop.deliver(block.flow.0 as u32, block.bytes.get());
                    if let Some(agents) = &mut self.agents {
                        agents.arrived(self.now, connection.to, block);
                    }
                    blocks.pop_front();
                }
                Changes::default()
            }
        }
    }

    fn end_flow(&mut self, flow: u32, timed_out: bool) -> Changes {
        let changes = self.hadoop.end(self.now, flow, timed_out);
        self.plan_soon(self.scheduler.follows_flows() && !self.hadoop.active.is_empty());
        changes
    }

    /// Number of packets that carry `bytes`.
    fn packets(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.setup.payload.get())
    }

    /// Lets a sender say what it has to say; whether its connection is over.
    fn drive_sender(&mut self, number: u32, connection: &mut Connection) -> bool {
        loop {
            match connection.sender.poll(self.now) {
                Output::Transmit(packet) => self.transit.send(self.now, connection, packet),
                Output::Event(_) => {
                    self.count(connection);
                    return true;
                }
                Output::Wake(None) => return false,
                Output::Wake(Some(at)) => {
                    let at = at.max(self.now).as_nanos();
                    if at < connection.wake {
                        connection.wake = at;
                        self.transit.agenda.push(at, Event::Wake { slot: number });
                    }
                    return false;
                }
            }
        }
    }

    /// Does something to a connection and lets its sender speak.
    fn with(&mut self, number: u32, of: impl FnOnce(&mut Self, &mut Connection)) {
        let Some(mut connection) = self.connections[number as usize].take() else { return };
        of(self, &mut connection);
        if !self.drive_sender(number, &mut connection) {
            self.connections[number as usize] = Some(connection);
        }
    }

    fn wake_sender(&mut self, number: u32) {
        let now = self.now.as_nanos();
        let is_due = |it: &Connection| it.wake == now;
        if self.connections[number as usize].as_deref().is_some_and(is_due) {
            self.with(number, |_, connection| connection.wake = u64::MAX);
        }
    }

    fn open(&mut self, connection: Connection) -> u32 {
        let number = self.connections.len() as u32;
        assert!(number < AGENTS >> 1, "connections have numbers of 30 bits");
        self.connections.push(Some(Box::new(connection)));
        self.outcome.connections += 1;
        number
    }

    fn now_busy(&mut self) {
        self.busy += 1;
        self.outcome.most_busy = self.outcome.most_busy.max(self.busy);
    }

    /// Adds up what a connection has done.
    fn count(&mut self, connection: &Connection) {
        let stats = connection.sender.stats();
        self.outcome.sent += stats.sent;
        self.outcome.resent += stats.resent;
        self.outcome.timeouts += stats.timeouts;
    }

    // ---- flows of jobs

    /// A job has ended: those that wait for it are on their way.
    fn start_followers(&mut self, job: u32) {
        for task in self.followers.remove(&job).unwrap_or_default() {
            let pause = self.setup.jobs[task as usize].after.map_or(Duration::ZERO, |after| after.pause);
            self.transit.agenda.push((self.now + pause).as_nanos(), Event::Start { task });
        }
    }

    fn apply(&mut self, changes: Changes) {
        self.plan_soon(self.scheduler.follows_flows() && !changes.begin.is_empty());
        self.plan_soon(self.scheduler.follows_jobs() && !changes.ended.is_empty());
        changes.ended.iter().for_each(|job| self.start_followers(*job));
        for flow in changes.begin {
            match &mut self.agents {
                None => self.post(Message::Fetch(flow)),
                Some(agents) => {
                    let it = self.hadoop.flows[flow as usize];
                    let share = match () {
                        () if self.scheduler.gives_rates() => Share::Rate(FluidRate::ZERO),
                        () if self.scheduler.gives_ranks() => Share::Rank(self.scheduler.rank(it.job)),
                        () => Share::Even,
                    };
                    agents.want(self.now, flow, &it, share);
                    // A plan comes at this same time, and with it the lanes.
                    if !self.plan_due {
                        self.drive_agent(it.to);
                    }
                }
            }
        }
    }

    fn begin_fetch(&mut self, flow: u32) {
        let it = self.hadoop.flows[flow as usize];
        let packets = self.packets(it.bytes);
        let number = self.connections.len() as u32;
        let mut connection = Connection::fetch(self.setup.sender, number, (it.from, it.to), flow, packets);
        connection.class = self.class_of(it.job);
        if self.scheduler.gives_rates() {
            let every = self.interval(self.scheduler.rate(flow));
            connection.sender.handle(self.now, Input::Command(SenderCommand::Pace { every: Some(every) }));
        }
        self.open(connection);
        self.connection_of[flow as usize] = number;
        self.now_busy();
        self.with(number, |_, _| ());
    }

    fn class_of(&self, job: u32) -> u8 {
        self.scheduler.rank(job).get().min(u32::from(self.setup.classes.count) - 1) as u8
    }

    /// The time of a frame at this rate; without end at none.
    fn interval(&self, rate: FluidRate) -> Duration {
        let bits = self.transit.data().get() as f64 * 8.0;
        match rate.get() > 0.0 {
            true => Duration::from_secs_f64((bits / rate.get()).min(1e6)),
            false => Duration::MAX,
        }
    }

    // ---- messages

    fn post(&mut self, message: Message) {
        let body = match self.free_messages.pop() {
            Some(at) => {
                self.messages[at as usize] = Some(message);
                at
            }
            None => {
                self.messages.push(Some(message));
                (self.messages.len() - 1) as u32
            }
        };
        self.transit.agenda.push((self.now + self.setup.delay).as_nanos(), Event::Deliver { body });
    }

    fn hear(&mut self, body: u32) {
        self.free_messages.push(body);
        match self.messages[body as usize].take().expect("a message is heard once") {
            Message::Fetch(flow) => self.begin_fetch(flow),
            Message::Block(number, block) => self.supply(number, block),
            Message::Lane { connection, class, rate } => self.run_lane(connection, class, rate),
        }
    }

    fn supply(&mut self, number: u32, block: Request) {
        let more = self.packets(block.bytes.get());
        self.with(number, |world, connection| {
            let Load::Lane { blocks, packets } = &mut connection.load else { return };
            *packets += more;
            blocks.push_back((block, *packets));
            let extend = SenderCommand::Extend { flow: FlowId(u64::from(number)), packets: *packets };
            if !std::mem::replace(&mut connection.is_busy, true) {
                world.now_busy();
            }
            connection.sender.handle(world.now, Input::Command(extend));
        });
    }

    fn run_lane(&mut self, number: u32, class: u8, rate: Option<FluidRate>) {
        let every = rate.map(|rate| self.interval(rate));
        self.with(number, |world, connection| world.reclass(connection, class, Some(every)));
    }

    /// A connection goes on in this class, and at this pace if one is given.
    fn reclass(&self, connection: &mut Connection, class: u8, pace: Option<Option<Duration>>) {
        if std::mem::replace(&mut connection.class, class) != class && self.setup.classes.restart_window {
            connection.sender.handle(self.now, Input::Command(SenderCommand::RestartWindow));
        }
        if let Some(every) = pace {
            connection.sender.handle(self.now, Input::Command(SenderCommand::Pace { every }));
        }
    }

    // ---- the end

    fn finish(mut self) -> ShuffleOutcome {
        for connection in std::mem::take(&mut self.connections).into_iter().flatten() {
            self.count(&connection);
        }
        let fabric = self.setup.topology.fabric();
        let is_host = |point| self.setup.topology.hosts().contains(&point);
        for number in 0..self.transit.network.link_count() {
            let link = fabric.link(headwater_fabric::LinkId(number));
            if link.is_none_or(|link| is_host(link.from)) {
                continue;
            }
            let stats = self.transit.network.stats(self.now, number);
            self.outcome.dropped += stats.dropped;
            self.outcome.longest_queue = self.outcome.longest_queue.max(stats.high_water);
        }
        self.outcome.jobs = self.hadoop.jobs.iter().map(|job| job.row).collect();
        self.outcome.flows = self.hadoop.begun;
        self.outcome.most_flows = self.hadoop.most_active;
        self.outcome.plans = self.scheduler.plans;
        self.outcome.most_lanes = self.agents.as_ref().map_or(0, Agents::most_lanes);
        self.outcome
    }
}

fn slot_host(event: Event) -> u32 {
    match event {
        Event::Wake { slot } => slot & !AGENTS,
        _ => unreachable!("asked of wake-ups only"),
    }
}
