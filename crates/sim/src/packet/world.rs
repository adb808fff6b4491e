//! Endpoints on hosts, driven by events: the third driver of the loop that sockets and tests run.

use std::collections::BTreeMap;

use headwater_transport::baseline;
use headwater_transport::ppush::controller::Controller;
use headwater_transport::ppush::receiver::Receiver;
use headwater_transport::ppush::source::Source;
use headwater_transport::{
    Command, ControllerCommand, ControllerEvent, DecodeFailure, Endpoint, Event as Said, Input, Output,
    Packet, ReceiverCommand, ReceiverEvent, ReceiverFailure, SourceCommand, SourceEvent, TaskRecord,
};
use headwater_units::{BlockIndex, Duration, FlowId, Geometry, NodeId, ObjectId, PathId, TaskId, Time};
use headwater_wire::{Body, Control, Ecn, Holding, NodeInfo, Refusal};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::agenda::Agenda;
use super::assembly::Assembly;
use super::carry::Cargo;
use super::director::{Director, Part};
use super::frame::{Bodies, Carried, SimFrame};
use super::network::Network;
use super::records::{Counts, FlowRow, Records, SampleRow, TaskRow};
use super::setup::{Change, ControlPlane, Jitter, PpushSetup, Setup, SetupError, TaskPlan, Transport};
use super::{Event, Ran};

/// How often hosts say who they are, on average, where nobody acknowledges it.
const INTRODUCE_EVERY: Duration = Duration::from_millis(500);

/// How long lines have for their last frames: so many steps of so long.
const LAST_FRAMES: u32 = 100;
const LAST_FRAMES_STEP: Duration = Duration::from_millis(100);

/// A state machine at one end.
pub(super) enum Machine {
    Source(Box<Source>),
    Receiver(Box<Receiver>),
    Controller(Box<Controller>),
    Director(Box<Director>),
    Sender(Box<baseline::Sender>),
    Sink(Box<baseline::Receiver>),
    /// Over, or not there yet.
    Nobody,
}

impl Machine {
    #[inline]
    fn endpoint(&mut self) -> Option<&mut dyn Endpoint> {
        Some(match self {
            Machine::Sender(m) => m.as_mut(),
            Machine::Sink(m) => m.as_mut(),
            Machine::Source(m) => m.as_mut(),
            Machine::Receiver(m) => m.as_mut(),
            Machine::Controller(m) => m.as_mut(),
            Machine::Director(m) => m.as_mut(),
            Machine::Nobody => return None,
        })
    }
}

struct Slot {
    machine: Machine,
    host: u32,
    /// When it is woken next; `u64::MAX`: not at all.
    wake: u64,
    /// Its host is paused.
    paused: bool,
    /// Its task, if it serves only one.
    task: u32,
}

/// A task as it goes.
struct Running {
    /// Endpoints of its receivers: one, or one per sub-flow of a baseline.
    receivers: Vec<u32>,
    /// The sending ends of a baseline.
    senders: Vec<u32>,
    /// Receivers that have not finished.
    unfinished: u32,
    /// Senders that have not closed.
    open: u32,
    finished: Option<Time>,
    closed: Option<Time>,
    failed: bool,
    /// Its row is written.
    over: bool,
    failure: Option<ReceiverFailure>,
    assembly: Option<Assembly>,
    /// Symbols or packets that were new.
    useful: u64,
    /// Flows that its receiver was given, in order.
    flows: Vec<Flowing>,
}

/// A flow of a task.
struct Flowing {
    flow: FlowId,
    /// Host.
    source: u32,
    start: Time,
    /// When its last useful packet came.
    last: Option<Time>,
}

/// The simulated world.
pub(super) struct World {
    setup: Setup,
    now: Time,
    agenda: Agenda<Event>,
    bodies: Bodies,
    network: Network,
    slots: Vec<Slot>,
    tasks: Vec<Running>,
    /// The source endpoint of each host (PPUSH).
    sources: Vec<u32>,
    controller: Option<u32>,
    /// What the controller asked to be kept.
    kept: BTreeMap<TaskId, TaskRecord>,
    /// Starts of anything so far: seeds and numbers of a new start are new.
    incarnations: u64,
    /// Which of them was each host's last.
    starts: Vec<u64>,
    /// By host; one more for whoever is at none.
    paused: Vec<bool>,
    /// Nothing is said or heard any more; what is under way still arrives.
    muted: bool,
    /// Changes that have not happened yet.
    changes_left: usize,
    corrupt: u64,
    rng: ChaCha8Rng,
    /// When each host's last packet leaves its machines.
    launched: Vec<u64>,
    /// By pair of hosts, once it was asked for.
    jitters: Vec<u32>,
    cargo: Option<Cargo>,
    left: usize,
    sampled: Vec<u64>,
    records: Records,
    events: u64,
}

/// The name of a host.
pub(super) fn node(host: u32) -> NodeId {
    let mut id = [0; 32];
    id[..4].copy_from_slice(&(host + 1).to_be_bytes());
    NodeId(id)
}

fn host_of(node: NodeId) -> u32 {
    u32::from_be_bytes(node.0[..4].try_into().expect("4 bytes")).wrapping_sub(1)
}

/// The object of a task.
fn object(task: u32) -> ObjectId {
    let mut id = [7; 32];
    id[..4].copy_from_slice(&task.to_be_bytes());
    ObjectId(id)
}

fn name(task: u32) -> String {
    format!("object-{task}")
}

impl World {
    pub(super) fn new(setup: Setup) -> Result<Self, SetupError> {
        check(&setup)?;
        let hosts = setup.topology.hosts().len();
        let mut network = Network::new(&setup)?;
        let agenda = Agenda::new();
        for (_, change) in &setup.changes {
            if let Change::Link(link, super::LinkChange::Rate(_) | super::LinkChange::Down(_)) = change {
                network.keep_frames(link.0);
            }
        }
        let mut world = World {
            now: Time::ZERO,
            agenda,
            bodies: Bodies::default(),
            network,
            slots: Vec::new(),
            tasks: Vec::new(),
            sources: Vec::new(),
            controller: None,
            kept: BTreeMap::new(),
            incarnations: 1,
            starts: vec![1; hosts],
            paused: vec![false; hosts + 1],
            muted: false,
            changes_left: setup.changes.len(),
            corrupt: 0,
            rng: ChaCha8Rng::seed_from_u64(setup.seed ^ 0x6a69_7474_6572),
            launched: vec![0; hosts],
            jitters: if setup.jitter == Jitter::PacketOnPath {
                vec![u32::MAX; hosts * hosts]
            } else {
                Vec::new()
            },
            cargo: setup.carry_bytes.then(|| Cargo::new(setup.seed)),
            left: setup.tasks.len(),
            sampled: vec![0; setup.tasks.len()],
            records: Records::default(),
            events: 0,
            setup,
        };
        world.prepare()?;
        Ok(world)
    }

    /// Everything that is there before the first task, and the agenda of what comes.
    fn prepare(&mut self) -> Result<(), SetupError> {
        for index in 0..self.setup.tasks.len() {
            let plan = &self.setup.tasks[index];
            self.agenda.push(plan.at.as_nanos(), Event::Start { task: index as u32 });
            if let Some(stop) = plan.stop {
                self.agenda.push(stop.as_nanos(), Event::Stop { task: index as u32 });
            }
            self.tasks.push(Running {
                receivers: Vec::new(),
                senders: Vec::new(),
                unfinished: 0,
                open: 0,
                finished: None,
                closed: None,
                failed: false,
                over: false,
                failure: None,
                assembly: None,
                useful: 0,
                flows: Vec::new(),
            });
        }
        for (index, (at, _)) in self.setup.changes.iter().enumerate() {
            self.agenda.push(at.as_nanos(), Event::Change { index: index as u32 });
        }
        if let Some(sampling) = &self.setup.sample {
            self.agenda.push(sampling.every.as_nanos(), Event::Sample);
        }
        if let Transport::Ppush(ppush) = &self.setup.transport {
            let ppush = (**ppush).clone();
            self.prepare_ppush(&ppush)?;
        }
        Ok(())
    }

    fn prepare_ppush(&mut self, ppush: &PpushSetup) -> Result<(), SetupError> {
        let hosts = self.setup.topology.hosts().len() as u32;
        let controller_host = match self.setup.control {
            ControlPlane::AtHost { host } => host,
            ControlPlane::Beside { .. } => hosts,
        };
        let scripted = self.setup.tasks.iter().any(|t| t.thetas.is_some());
        let mut parts = BTreeMap::new();
        for host in 0..hosts {
            let endpoint = self.add(self.source(ppush, host), host, u32::MAX);
            self.sources.push(endpoint);
        }
        let mut holders: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (index, plan) in self.setup.tasks.iter().enumerate() {
            let index = index as u32;
            let bytes = plan.object_bytes(ppush.symbol_size);
            Geometry::new(bytes, ppush.symbol_size).map_err(|why| SetupError::Object {
                task: plan.name.clone(),
                packets: plan.packets,
                symbol: ppush.symbol_size,
                why,
            })?;
            if let Some(cargo) = &mut self.cargo {
                cargo.exists(object(index), bytes);
            }
            for &source in &plan.sources {
                holders.entry(source).or_default().push(index);
            }
            if let Some(thetas) = &plan.thetas {
                let flows = plan.sources.iter().zip(thetas);
                let flows = flows.map(|(&s, &theta)| (node(s), PathId(self.sources[s as usize]), theta));
                let part = Part {
                    object: object(index),
                    bytes,
                    symbol_size: ppush.symbol_size,
                    flows: flows.collect(),
                };
                parts.insert(name(index), part);
            }
        }
        let machine = if scripted {
            Machine::Director(Box::new(Director::new(parts, ppush.controller.feedback_every)))
        } else {
            Machine::Controller(Box::new(self.new_controller(ppush)))
        };
        self.controller = Some(self.add(machine, controller_host, u32::MAX));
        for host in 0..hosts {
            for &task in holders.get(&host).into_iter().flatten() {
                self.hold(host, task);
            }
            match self.setup.control {
                ControlPlane::Beside { .. } => self.introduce(host),
                ControlPlane::AtHost { .. } => self.introduce_soon(host, INTRODUCE_EVERY / 64),
            }
        }
        Ok(())
    }

    fn source(&self, ppush: &PpushSetup, host: u32) -> Machine {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.setup.seed.to_be_bytes());
        seed[8..12].copy_from_slice(&host.to_be_bytes());
        seed[12..20].copy_from_slice(&self.incarnations.to_be_bytes());
        Machine::Source(Box::new(Source::new(ppush.source.clone(), seed)))
    }

    fn new_controller(&self, ppush: &PpushSetup) -> Controller {
        let mut seed = [1; 32];
        seed[..8].copy_from_slice(&self.setup.seed.to_be_bytes());
        seed[8..16].copy_from_slice(&self.incarnations.to_be_bytes());
        Controller::new(ppush.controller.clone(), seed)
    }

    fn add(&mut self, machine: Machine, host: u32, task: u32) -> u32 {
        let paused = self.paused[host as usize];
        self.slots.push(Slot { machine, host, wake: u64::MAX, paused, task });
        (self.slots.len() - 1) as u32
    }

    /// A host's source is told that it holds the object of a task.
    fn hold(&mut self, host: u32, task: u32) {
        let Transport::Ppush(ppush) = &self.setup.transport else { return };
        let bytes = self.setup.tasks[task as usize].object_bytes(ppush.symbol_size);
        let command = SourceCommand::Hold { object: object(task), bytes };
        self.tell(self.sources[host as usize], Command::Source(command));
    }

    /// The tasks whose objects a host holds.
    fn holds(&self, host: u32) -> Vec<u32> {
        let tasks = 0..self.setup.tasks.len() as u32;
        tasks.filter(|&task| self.setup.tasks[task as usize].sources.contains(&host)).collect()
    }

    /// A host says to the controller who it is and what it holds, as nodes do when they connect.
    fn introduce(&mut self, host: u32) {
        let (Transport::Ppush(ppush), Some(controller)) = (&self.setup.transport, self.controller) else {
            return;
        };
        let info = NodeInfo {
            node: node(host),
            name: format!("host {host}"),
            listen: None,
            data: Vec::new(),
            uplink: ppush.host_rate,
            downlink: ppush.host_rate,
            rack: ppush.racks.get(host as usize).cloned().flatten().map(|(name, rate)| (name, Some(rate))),
            room: ppush.symbol_size,
            incarnation: self.starts[host as usize],
        };
        let symbol = ppush.symbol_size;
        let mut words = vec![Control::Hello(info)];
        words.extend(self.holds(host).into_iter().map(|task| {
            let bytes = self.setup.tasks[task as usize].object_bytes(symbol);
            Control::Hold(Holding { object: object(task), bytes, name: Some(name(task)) })
        }));
        let from = self.sources[host as usize];
        for control in words {
            match self.setup.control {
                // Connections are made at once: the control plane beside the network has a delay for messages alone.
                ControlPlane::Beside { .. } => {
                    self.input(controller, Input::Packet(Packet::control(PathId(from), control)));
                }
                ControlPlane::AtHost { .. } if self.paused[host as usize] => {}
                ControlPlane::AtHost { .. } => self.send(from, Packet::control(PathId(controller), control)),
            }
        }
    }

    /// At a random time: of hosts that speak all at once the same ones would find the controller's queue full each time.
    fn introduce_soon(&mut self, host: u32, within: Duration) {
        let wait = self.rng.random_range(0..within.as_nanos());
        self.agenda.push(self.now.as_nanos() + wait, Event::Introduce { host });
    }

    // ---- the loop

    /// Runs to the end. Calls `watch` now and then with the simulated time and the tasks done.
    pub(super) fn run(mut self, watch: &mut dyn FnMut(Ran)) -> Records {
        let until = self.setup.until.map_or(u64::MAX, Time::as_nanos);
        while self.left > 0 || self.setup.until.is_some() {
            let Some((at, event)) = self.agenda.pop() else { break };
            if at > until {
                self.now = Time::from_nanos(until);
                break;
            }
            self.now = Time::from_nanos(at);
            self.events += 1;
            if self.events & 0xf_ffff == 0 {
                let done = self.tasks.len() - self.left;
                watch(Ran { at: self.now, tasks_done: done, tasks: self.tasks.len(), events: self.events });
            }
            self.happen(event);
        }
        if let Some(longest) = self.setup.drain {
            self.rest(longest);
        }
        self.finish()
    }

    /// Goes on until all machines are at rest, or so long; then nobody says anything more, and what is under way arrives.
    fn rest(&mut self, longest: Duration) {
        let until = (self.now + longest).as_nanos();
        while !self.muted || self.bodies.len() > 0 {
            let Some((at, event)) = self.agenda.pop() else { break };
            self.now = Time::from_nanos(at);
            self.events += 1;
            self.muted |= at > until;
            self.happen(event);
            self.muted |= self.is_at_rest();
        }
        // A frame that its link will lose is forgotten when it is queued; its line is busy with it a moment longer.
        let links = 0..self.network.link_count();
        for _ in 0..LAST_FRAMES {
            if links.clone().all(|link| self.network.queue_len(self.now, link) == 0) {
                break;
            }
            self.now += LAST_FRAMES_STEP;
        }
    }

    /// Whether nothing is under way, no source has a flow, the controller no task, and every receiver has said its
    /// farewells. Hosts that will not wake up again do not count.
    fn is_at_rest(&self) -> bool {
        let awake = |slot: &&Slot| !self.paused[slot.host as usize];
        self.bodies.len() == 0
            && self.changes_left == 0
            && self.slots.iter().filter(awake).all(|slot| match &slot.machine {
                Machine::Source(source) => source.flows().next().is_none(),
                Machine::Receiver(receiver) => receiver.has_ended(),
                Machine::Controller(controller) => controller.running_tasks() == 0,
                _ => true,
            })
    }

    #[inline]
    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { link, frame } => {
                let World { network, agenda, bodies, .. } = self;
                if let Some(frame) = network.arrive(self.now, link, frame, agenda, bodies) {
                    self.deliver(frame.body, frame.ecn, frame.is_cut());
                }
            }
            Event::Wake { endpoint } => {
                let slot = &mut self.slots[endpoint as usize];
                if slot.wake == self.now.as_nanos() {
                    slot.wake = u64::MAX;
                    self.drain(endpoint);
                }
            }
            Event::Serve { link } => {
                let World { network, agenda, bodies, .. } = self;
                network.serve_due(self.now, link, agenda, bodies);
            }
            Event::Deliver { body } => self.deliver(body, Ecn::NotEct, false),
            Event::Start { task } => self.start(task),
            Event::Stop { task } => self.stop(task),
            Event::Decoded { endpoint, block } => self.on_decoded(endpoint, BlockIndex(block)),
            Event::Change { index } => self.change(index),
            Event::Introduce { host } => {
                if !self.muted {
                    self.introduce(host);
                    self.introduce_soon(host, INTRODUCE_EVERY * 2);
                }
            }
            Event::Sample => {
                if !self.muted {
                    self.sample();
                }
            }
        }
    }

    /// A message has come to its end.
    #[inline]
    fn deliver(&mut self, body: u32, ecn: Ecn, cut: bool) {
        let Carried { mut packet, from, to, .. } = self.bodies.take(body);
        if cut && let Body::Symbol(header) = &mut packet.datagram.body {
            header.trimmed = true;
        }
        if let Some(cargo) = &mut self.cargo {
            packet = cargo.arrived(body, packet);
        }
        packet.path = PathId(from);
        packet.ecn = ecn;
        self.input(to, Input::Packet(packet));
    }

    #[inline]
    fn input(&mut self, endpoint: u32, input: Input) {
        let slot = &mut self.slots[endpoint as usize];
        // What the network brings to a paused host is gone; its own disk and decoder wait for it.
        if self.muted || (slot.paused && matches!(input, Input::Packet(_))) {
            return;
        }
        let Some(machine) = slot.machine.endpoint() else { return };
        machine.handle(self.now, input);
        self.drain(endpoint);
    }

    fn tell(&mut self, endpoint: u32, command: Command) {
        self.input(endpoint, Input::Command(command));
    }

    /// Polls a machine until it waits.
    fn drain(&mut self, endpoint: u32) {
        loop {
            let slot = &mut self.slots[endpoint as usize];
            if self.muted || slot.paused {
                return;
            }
            let Some(machine) = slot.machine.endpoint() else { return };
            match machine.poll(self.now) {
                Output::Transmit(packet) => self.send(endpoint, packet),
                Output::Wake(None) => return,
                Output::Wake(Some(at)) => {
                    let at = at.as_nanos().max(self.now.as_nanos());
                    if at < slot.wake {
                        slot.wake = at;
                        self.agenda.push(at, Event::Wake { endpoint });
                    }
                    return;
                }
                Output::Event(event) => self.on_event(endpoint, event),
            }
        }
    }

    /// A machine sends.
    #[inline]
    fn send(&mut self, from: u32, packet: Packet) {
        let to = packet.path.0;
        let Some(to_host) = self.slots.get(to as usize).map(|there| there.host) else { return };
        let here = self.slots[from as usize].host;
        if let Body::Control(_) = packet.datagram.body
            && let ControlPlane::Beside { delay } = self.setup.control
        {
            let body = self.bodies.put(packet, from, to);
            self.load(body);
            return self.agenda.push((self.now + delay).as_nanos(), Event::Deliver { body });
        }
        let mut frame = SimFrame {
            body: 0,
            len: self.setup.sizes.of(&packet),
            trimmed_len: if matches!(packet.datagram.body, Body::Symbol(_)) { 64 } else { 0 },
            class: packet.datagram.class,
            ecn: packet.ecn,
            to: to_host,
            hash: hash(packet.datagram.flow, from, to),
        };
        frame.body = self.bodies.put(packet, from, to);
        self.load(frame.body);
        if to_host == here {
            return self.agenda.push(self.now.as_nanos(), Event::Deliver { body: frame.body });
        }
        let mut at = self.now;
        if self.setup.jitter != Jitter::None {
            // Later by a random part of the jitter, but never before what the host sent earlier: so the queue of its NIC
            // may be told at once.
            let most = self.jitter(here, to_host);
            let drawn = self.rng.random_range(0..=most);
            let last = &mut self.launched[here as usize];
            *last = (*last).max(self.now.as_nanos() + drawn);
            at = Time::from_nanos(*last);
        }
        let World { network, agenda, bodies, .. } = self;
        network.launch(at, here, frame, agenda, bodies);
    }

    /// The most that a packet from one host to another is held back, nanoseconds.
    #[inline]
    fn jitter(&mut self, from: u32, to: u32) -> u64 {
        let hosts = self.launched.len();
        let place = from as usize * hosts + to as usize;
        match self.setup.jitter {
            Jitter::None => 0,
            Jitter::UpTo(most) => most.as_nanos(),
            Jitter::PacketOnPath => {
                if self.jitters[place] == u32::MAX {
                    self.jitters[place] =
                        self.setup.packet_on_path(from, to).as_nanos().min(u64::from(u32::MAX - 1)) as u32;
                }
                u64::from(self.jitters[place])
            }
        }
    }

    /// Puts true bytes to a message if this run carries them.
    #[inline]
    fn load(&mut self, body: u32) {
        if let Some(cargo) = &mut self.cargo {
            cargo.sent(body, &self.bodies.get(body).packet);
        }
    }

    // ---- tasks

    fn start(&mut self, task: u32) {
        let running = &self.tasks[task as usize];
        if running.finished.is_some() || !running.receivers.is_empty() {
            return; // It was broken off, or its host restarted, before its request was made again.
        }
        let plan = self.setup.tasks[task as usize].clone();
        match self.setup.transport.clone() {
            Transport::Ppush(ppush) => self.start_receiver(task, &plan, &ppush),
            Transport::Baseline { sender, receiver } => {
                let of = plan.sources.len() as u64;
                for (index, &source) in plan.sources.iter().enumerate() {
                    // An equal part from each source, rounded up (catalogue, "Choices").
                    let packets = plan.packets.div_ceil(of);
                    let flow = FlowId(u64::from(task) << 8 | index as u64);
                    let there = self.slots.len() as u32;
                    let sink = baseline::Receiver::new(receiver, flow, PathId(there + 1), packets);
                    let sink = self.add(Machine::Sink(Box::new(sink)), plan.receiver, task);
                    let from = baseline::Sender::new(sender, flow, PathId(sink), packets);
                    let from = self.add(Machine::Sender(Box::new(from)), source, task);
                    let running = &mut self.tasks[task as usize];
                    running.receivers.push(sink);
                    running.senders.push(from);
                    running.flows.push(Flowing { flow, source, start: self.now, last: None });
                    running.unfinished += 1;
                    running.open += 1;
                    self.drain(sink);
                    self.drain(from);
                }
            }
        }
    }

    fn start_receiver(&mut self, task: u32, plan: &TaskPlan, ppush: &PpushSetup) {
        let receiver = self.receiver(task, plan, ppush);
        let endpoint = self.add(receiver, plan.receiver, task);
        let running = &mut self.tasks[task as usize];
        running.receivers = vec![endpoint];
        running.unfinished = 1;
        self.drain(endpoint);
    }

    fn receiver(&self, task: u32, plan: &TaskPlan, ppush: &PpushSetup) -> Machine {
        use headwater_transport::ppush::receiver::ReceiverConfig;
        let controller = PathId(self.controller.expect("made before the first task"));
        // The number of the request names the task in the script. A restarted receiver draws another, and one that asks
        // again counts on from it: it must not come to another task's number.
        let request = (u64::from(task) + 1) << 24 | (self.incarnations & 0xffff) << 8;
        let mut config = ReceiverConfig::new(name(task), node(plan.receiver), controller, request);
        config.room = ppush.symbol_size;
        config.spread = ppush.spread;
        config.max_sources = Some(plan.sources.len() as u8);
        config.receive_window = ppush.receive_window;
        config.blocks_in_flight = ppush.blocks_in_flight;
        config.max_ack_delay = ppush.max_ack_delay;
        config.source_patience = ppush.source_patience;
        config.patience = ppush.source_patience;
        Machine::Receiver(Box::new(Receiver::new(config)))
    }

    fn stop(&mut self, task: u32) {
        if self.tasks[task as usize].finished.is_some() {
            return;
        }
        self.note_end(task, true);
        for endpoint in self.tasks[task as usize].receivers.clone() {
            if let Machine::Receiver(_) = self.slots[endpoint as usize].machine {
                self.tell(endpoint, Command::Receiver(ReceiverCommand::Cancel));
            }
        }
        for endpoint in self.tasks[task as usize].senders.clone() {
            let command = SourceCommand::Withdraw { object: object(task) };
            self.tell(endpoint, Command::Source(command));
        }
    }

    // ---- what machines say

    fn on_event(&mut self, endpoint: u32, event: Said) {
        match event {
            Said::Source(event) => self.on_source(endpoint, event),
            Said::Receiver(event) => self.on_receiver(endpoint, event),
            Said::Controller(ControllerEvent::Persist(record)) => {
                self.kept.insert(record.task, *record);
            }
            Said::Controller(ControllerEvent::Forget { task, .. }) => {
                self.kept.remove(&task);
            }
            Said::Controller(_) => {}
        }
    }

    fn on_source(&mut self, endpoint: u32, event: SourceEvent) {
        match event {
            // A simulated disk is as fast as it takes to say so.
            SourceEvent::Prepare { flow, block, .. } => {
                let command = SourceCommand::BlockReady { flow, block, repair: true };
                if let Some(machine) = self.slots[endpoint as usize].machine.endpoint() {
                    machine.handle(self.now, Input::Command(Command::Source(command)));
                }
            }
            SourceEvent::Opened(opened) => {
                if let Some(cargo) = &mut self.cargo {
                    cargo.opened(opened.flow, opened.key, opened.object, opened.symbol_size);
                }
            }
            SourceEvent::Closed { .. } => {
                let task = self.slots[endpoint as usize].task;
                if task != u32::MAX {
                    let running = &mut self.tasks[task as usize];
                    running.open -= 1;
                    if running.open == 0 {
                        running.closed = Some(self.now);
                        self.over(task);
                    }
                }
            }
            SourceEvent::Release { .. } => {}
        }
    }

    fn on_receiver(&mut self, endpoint: u32, event: ReceiverEvent) {
        let task = self.slots[endpoint as usize].task;
        let running = &mut self.tasks[task as usize];
        match event {
            ReceiverEvent::Symbol { flow, symbol } => {
                running.useful += 1;
                if let Some(flowing) = running.flows.iter_mut().find(|f| f.flow == flow) {
                    flowing.last = Some(self.now);
                }
                if let Some(assembly) = &mut running.assembly {
                    let cargo = self.cargo.as_ref().map(|cargo| cargo.payload());
                    assembly.insert(flow, symbol, cargo);
                }
            }
            ReceiverEvent::Decode { block } => {
                let Some(assembly) = &mut running.assembly else { return };
                let took = assembly.latency(block, &self.setup.decode);
                let at = (self.now + took).as_nanos();
                self.agenda.push(at, Event::Decoded { endpoint, block: block.0 });
            }
            ReceiverEvent::Discard { block } => {
                if let Some(assembly) = &mut running.assembly {
                    assembly.discard(block);
                }
            }
            ReceiverEvent::Accepted { bytes, symbol_size, .. } => {
                let (overhead, true_bytes) = (self.setup.decode.overhead, self.cargo.is_some());
                let made = || Assembly::new(bytes, symbol_size, overhead, true_bytes);
                let assembly = running.assembly.get_or_insert_with(made);
                if assembly.symbol_size() != symbol_size {
                    assembly.recut(Geometry::new(bytes, symbol_size).expect("the receiver checked it"));
                }
                let (wanted, have) = (0..assembly.blocks(), assembly.have());
                self.tell_later(endpoint, ReceiverCommand::Start { wanted, have });
            }
            ReceiverEvent::Bind(bind) => {
                let (flow, host) = (bind.flow, host_of(bind.node));
                running.flows.push(Flowing { flow, source: host, start: self.now, last: None });
                if let (Some(cargo), Some(assembly)) = (&mut self.cargo, &running.assembly) {
                    // The task's own T: the controller fits it to the object.
                    cargo.opened(flow, bind.key, object(task), assembly.symbol_size());
                }
                let path = PathId(self.sources[host as usize]);
                self.tell_later(endpoint, ReceiverCommand::FlowPath { flow, path });
            }
            ReceiverEvent::Done => {
                running.unfinished = running.unfinished.saturating_sub(1);
                if let Some(at) = running.receivers.iter().position(|e| *e == endpoint)
                    && !running.senders.is_empty()
                {
                    running.flows[at].last = Some(self.now);
                }
                if running.unfinished == 0 {
                    self.note_end(task, false);
                }
            }
            ReceiverEvent::Failed(ReceiverFailure::Refused(Refusal::UnknownObject))
                if matches!(self.setup.control, ControlPlane::AtHost { .. })
                    && running.finished.is_none()
                    && self.now.since(self.setup.tasks[task as usize].at) < self.setup.patience() =>
            {
                // Inside the network a request may be there before those who hold the object: it is made again.
                running.receivers.clear();
                self.agenda.push((self.now + INTRODUCE_EVERY).as_nanos(), Event::Start { task });
            }
            ReceiverEvent::Failed(failure) => {
                if running.finished.is_none() {
                    running.failure = Some(failure);
                    self.note_end(task, true);
                }
            }
            ReceiverEvent::Unbind { .. } | ReceiverEvent::Distrusted { .. } => {}
        }
    }

    /// A command in answer to an event: handled at once, polled by the loop that is running.
    fn tell_later(&mut self, endpoint: u32, command: ReceiverCommand) {
        if let Some(machine) = self.slots[endpoint as usize].machine.endpoint() {
            machine.handle(self.now, Input::Command(Command::Receiver(command)));
        }
    }

    fn on_decoded(&mut self, endpoint: u32, block: BlockIndex) {
        let task = self.slots[endpoint as usize].task;
        let running = &mut self.tasks[task as usize];
        // The decoder of a receiver that has restarted since is gone with it.
        let here = running.receivers.contains(&endpoint);
        let Some(assembly) = running.assembly.as_mut().filter(|_| here) else { return };
        let truth = self.cargo.as_ref().map(|cargo| (cargo, object(task)));
        let command = assembly.finish(block, truth);
        let corrupt =
            matches!(command, ReceiverCommand::DecodeFailed { failure: DecodeFailure::Corrupt, .. });
        self.corrupt += u64::from(corrupt);
        self.tell(endpoint, Command::Receiver(command));
    }

    /// The receivers of a task have all they wanted, or gave up.
    fn note_end(&mut self, task: u32, failed: bool) {
        let now = self.now;
        let running = &mut self.tasks[task as usize];
        running.finished = Some(now);
        running.failed = failed;
        let pushes = matches!(self.setup.transport, Transport::Ppush(_));
        self.note_flows(task);
        if pushes || failed {
            self.over(task);
        }
    }

    /// Nothing more is expected of a task, though its senders may still close.
    fn over(&mut self, task: u32) {
        if std::mem::replace(&mut self.tasks[task as usize].over, true) {
            return;
        }
        let plan = &self.setup.tasks[task as usize];
        let running = &self.tasks[task as usize];
        self.records.tasks.push(TaskRow {
            task,
            name: plan.name.clone(),
            arrival: plan.at,
            finish: if running.failed { None } else { running.finished },
            failure: running.failure.clone(),
            blocks_done: running.assembly.as_ref().map_or(0, |assembly| assembly.have().len() as u32),
            blocks: running.assembly.as_ref().map(Assembly::blocks),
            closed: running.closed,
            packets: plan.packets,
            useful: running.useful,
            receiver: plan.receiver,
            sources: plan.sources.len() as u32,
        });
        self.left -= 1;
    }

    /// What each flow of a task did, before the machines forget.
    fn note_flows(&mut self, task: u32) {
        let running = &self.tasks[task as usize];
        let mut rows = Vec::new();
        for (index, &Flowing { flow, source: host, start, last }) in running.flows.iter().enumerate() {
            let mut row = FlowRow { task, flow, source: host, start, last, ..FlowRow::default() };
            if let Some(&sender) = running.senders.get(index) {
                if let Machine::Sender(sender) = &self.slots[sender as usize].machine {
                    let stats = sender.stats();
                    (row.sent, row.lost, row.marked) = (stats.sent, stats.lost, stats.marked);
                    row.timeouts = stats.timeouts;
                }
                if let Machine::Sink(sink) = &self.slots[running.receivers[index] as usize].machine {
                    row.useful = sink.stats().distinct;
                }
            } else if let Some(&source) = self.sources.get(host as usize)
                && let Machine::Source(source) = &self.slots[source as usize].machine
                && let Some(stats) = source.flow(flow)
            {
                row.sent = stats.counters.sent.get();
                row.lost = stats.counters.lost.get();
                row.marked = stats.counters.marked.get();
                row.timeouts = stats.counters.timeouts;
                row.theta = stats.theta.get();
            }
            rows.push(row);
        }
        if running.senders.is_empty()
            && let Some(&endpoint) = running.receivers.first()
            && let Machine::Receiver(receiver) = &mut self.slots[endpoint as usize].machine
        {
            for stats in receiver.stats(self.now).flows {
                if let Some(row) = rows.iter_mut().find(|row| row.flow == stats.flow) {
                    row.useful = stats.useful;
                }
            }
        }
        let total: u64 = rows.iter().map(|row| row.useful).sum();
        for row in &mut rows {
            row.share = row.useful as f64 / total.max(1) as f64;
        }
        self.records.flows.extend(rows);
    }

    // ---- what happens from outside

    fn change(&mut self, index: u32) {
        self.changes_left -= 1;
        match self.setup.changes[index as usize].1.clone() {
            Change::Link(link, change) => {
                let World { network, agenda, bodies, .. } = self;
                network.change(self.now, link.0, change, agenda, bodies);
            }
            Change::Paused(host, paused) => {
                self.paused[host as usize] = paused;
                self.slots.iter_mut().filter(|slot| slot.host == host).for_each(|slot| slot.paused = paused);
                if !paused {
                    let here = (0..self.slots.len() as u32).filter(|&e| self.slots[e as usize].host == host);
                    for endpoint in here.collect::<Vec<_>>() {
                        self.slots[endpoint as usize].wake = u64::MAX;
                        self.drain(endpoint);
                    }
                }
            }
            Change::Restart(host) => self.restart(host),
            Change::RestartController => self.restart_controller(),
        }
    }

    fn restart(&mut self, host: u32) {
        let Transport::Ppush(ppush) = self.setup.transport.clone() else { return };
        self.incarnations += 1;
        self.starts[host as usize] = self.incarnations;
        let endpoint = self.sources[host as usize];
        // A new start has new addresses: what is under way to the old one finds nobody.
        self.slots[endpoint as usize].machine = Machine::Nobody;
        let machine = self.source(&ppush, host);
        self.sources[host as usize] = self.add(machine, host, u32::MAX);
        for task in self.holds(host) {
            self.hold(host, task);
        }
        // A connection that breaks is seen at both ends; inside the network there are none.
        if let (Some(controller), ControlPlane::Beside { .. }) = (self.controller, self.setup.control) {
            let lost = ControllerCommand::PathLost { path: PathId(endpoint) };
            self.tell(controller, Command::Controller(lost));
        }
        self.introduce(host);
        for task in 0..self.tasks.len() as u32 {
            let plan = self.setup.tasks[task as usize].clone();
            let running = &mut self.tasks[task as usize];
            let begun = !running.receivers.is_empty();
            if plan.receiver != host || !begun {
                continue;
            }
            for old in std::mem::take(&mut running.receivers) {
                self.slots[old as usize].machine = Machine::Nobody;
            }
            if running.finished.is_some() {
                continue;
            }
            if let Some(assembly) = &mut running.assembly {
                assembly.restart();
            }
            running.flows.clear();
            self.start_receiver(task, &plan, &ppush);
        }
    }

    fn restart_controller(&mut self) {
        let Transport::Ppush(ppush) = self.setup.transport.clone() else { return };
        let Some(endpoint) = self.controller else { return };
        self.incarnations += 1;
        let fresh = self.new_controller(&ppush);
        self.slots[endpoint as usize].machine = Machine::Controller(Box::new(fresh));
        self.slots[endpoint as usize].wake = u64::MAX;
        for record in self.kept.values().cloned().collect::<Vec<_>>() {
            self.tell(endpoint, Command::Controller(ControllerCommand::Restore(Box::new(record))));
        }
        for host in 0..self.setup.topology.hosts().len() as u32 {
            self.introduce(host);
        }
    }

    // ---- looking

    fn sample(&mut self) {
        let Some(sampling) = self.setup.sample.clone() else { return };
        let t = self.now;
        self.agenda.push((t + sampling.every).as_nanos(), Event::Sample);
        for (name, link) in &sampling.queues {
            let value = self.network.queue_len(t, link.0) as f64;
            self.records.samples.push(SampleRow::new(t, name, "queue", value));
        }
        if !sampling.flows {
            return;
        }
        for task in 0..self.tasks.len() {
            let useful = self.useful(task);
            let gained = useful - std::mem::replace(&mut self.sampled[task], useful);
            let rate = gained as f64 / sampling.every.as_secs_f64();
            let running = &self.tasks[task];
            if running.receivers.is_empty() || running.finished.is_some_and(|at| at < t) {
                continue;
            }
            let name = &self.setup.tasks[task].name;
            self.records.samples.push(SampleRow::new(t, name, "goodput", rate));
            for (index, &Flowing { flow, source: host, .. }) in running.flows.iter().enumerate() {
                let entity = match running.flows.len() {
                    1 => name.clone(),
                    _ => format!("{name}.{}", index + 1),
                };
                let mut note = |quantity, value| {
                    self.records.samples.push(SampleRow::new(t, &entity, quantity, value));
                };
                if let Some(&sender) = running.senders.get(index) {
                    if let Machine::Sender(sender) = &self.slots[sender as usize].machine {
                        let stats = sender.stats();
                        note("window", stats.window.get());
                        note("mark_fraction", stats.mark_fraction);
                        note("in_flight", stats.in_flight as f64);
                        if let Some(rtt) = stats.rtt {
                            note("rtt", rtt.as_secs_f64());
                        }
                    }
                } else if let Some(&source) = self.sources.get(host as usize)
                    && let Machine::Source(source) = &self.slots[source as usize].machine
                    && let Some(stats) = source.flow(flow)
                {
                    note("window", stats.window.get());
                    note("mark_fraction", stats.mark_fraction);
                    note("theta", stats.theta.get());
                    note("in_flight", stats.in_flight as f64);
                    if let Some(rtt) = stats.rtt {
                        note("rtt", rtt.as_secs_f64());
                    }
                }
            }
        }
    }

    /// New symbols or packets that a task has received.
    fn useful(&self, task: usize) -> u64 {
        let running = &self.tasks[task];
        let sinks = running.receivers.iter().filter_map(|&e| match &self.slots[e as usize].machine {
            Machine::Sink(sink) => Some(sink.stats().distinct),
            _ => None,
        });
        running.useful + sinks.sum::<u64>()
    }

    fn finish(mut self) -> Records {
        for task in 0..self.tasks.len() as u32 {
            let running = &self.tasks[task as usize];
            if running.finished.is_none() && !running.receivers.is_empty() {
                self.note_flows(task);
            }
        }
        for task in 0..self.tasks.len() {
            self.tasks[task].useful = self.useful(task);
        }
        for row in &mut self.records.tasks {
            row.useful = self.tasks[row.task as usize].useful;
        }
        for task in 0..self.tasks.len() as u32 {
            if !self.tasks[task as usize].over {
                self.tasks[task as usize].failed = true;
                self.left += 1;
                self.over(task);
            }
        }
        self.records.tasks.sort_by_key(|row| row.task);
        self.records.flows.sort_by_key(|row| (row.task, row.flow));
        let mut counts = Counts {
            ended: self.now,
            events: self.events,
            faults: self.network.faults,
            corrupt: self.corrupt,
            under_way: self.bodies.len() as u64,
            pending: self.agenda.len() as u64,
            ..Counts::default()
        };
        for link in 0..self.network.link_count() {
            let stats = self.network.stats(self.now, link);
            counts.add(&stats);
            self.records.links.push(stats);
        }
        self.records.tallies = std::mem::take(&mut self.network.tallies);
        for (host, &endpoint) in self.sources.iter().enumerate() {
            if let Machine::Source(source) = &self.slots[endpoint as usize].machine {
                let flows = source.flows().map(|flow| (host as u32, flow.flow));
                self.records.flows_left.extend(flows);
            }
        }
        self.records.counts = counts;
        self.records
    }
}

fn check(setup: &Setup) -> Result<(), SetupError> {
    let hosts = setup.topology.hosts().len() as u32;
    let scripted = setup.tasks.iter().any(|t| t.thetas.is_some());
    if setup.carry_bytes && matches!(setup.transport, Transport::Baseline { .. }) {
        return Err(SetupError::NothingToCarry);
    }
    for plan in &setup.tasks {
        let strange = plan.sources.iter().chain([&plan.receiver]).find(|&&h| h >= hosts);
        if let Some(&host) = strange {
            return Err(SetupError::NoSuchHost { task: plan.name.clone(), host, hosts });
        }
        let thetas = plan.thetas.as_ref().map_or(plan.sources.len(), Vec::len);
        if !(1..=128).contains(&plan.sources.len()) || thetas != plan.sources.len() {
            let (task, sources) = (plan.name.clone(), plan.sources.len());
            return Err(SetupError::Weights { task, sources, thetas });
        }
        if scripted && plan.thetas.is_none() {
            return Err(SetupError::MixedWeights { task: plan.name.clone() });
        }
    }
    Ok(())
}

/// Spreads flows over the numbers; switches mix it further with salts of their own.
#[inline]
fn hash(flow: FlowId, from: u32, to: u32) -> u32 {
    let ends = (u64::from(from) << 32 | u64::from(to)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((flow.0 ^ ends).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}
