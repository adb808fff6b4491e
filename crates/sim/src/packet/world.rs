//! Endpoints on hosts, driven by events: the third driver of the loop that sockets and tests run.

mod check;
mod coded;
mod events;
mod machine;
mod outside;
mod pull;
mod sampling;
mod trees;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use headwater_baseline::SenderCommand;
use headwater_controller::TaskRecord;
use headwater_fabric::trees::SteinerTree;
use headwater_machine::Packet;
use headwater_switch::Frame;
use headwater_transport::{ReceiverCommand, ReceiverFailure};
use headwater_units::{BlockIndex, Duration, FetchId, FlowId, NodeId, ObjectId, TaskId, Time};
use headwater_wire::{Body, Ecn};

use super::assembly::Assembly;
use super::delivery::Delivery;
use super::frame::{Carried, SimFrame};
use super::records::Records;
use super::segments::{End, InstalledTree};
use super::setup::{Change, Flows, Setup, SetupError, Transport};
use super::{Event, Ran};
pub(super) use machine::Machine;
use machine::{Command, MachineEvent};

/// Mean interval at which hosts introduce themselves, where nobody acknowledges it.
const INTRODUCE_EVERY: Duration = Duration::from_millis(500);

/// Number of steps that lines have for their last frames.
const LAST_FRAMES: u32 = 100;
const LAST_FRAMES_STEP: Duration = Duration::from_millis(100);

/// A machine in its place.
struct Slot {
    machine: Machine,
    /// Where packets reach it; of a host's receiving machine, whose fetches have an endpoint each, none.
    endpoint: u32,
    host: u32,
    /// When it is woken next; `u64::MAX`: never.
    wake: u64,
    /// Its host is paused.
    paused: bool,
}

/// Where packets come to, numbered in order: a machine, or one fetch of a host's receiving machine.
#[derive(Clone, Copy)]
struct EndpointEntry {
    slot: u32,
    /// Its task, if it serves only one.
    task: u32,
}

/// The endpoint of slots that have none.
const NOWHERE: u32 = u32::MAX;

/// A fetch goes by the number of its endpoint.
fn fetch_of(endpoint: u32) -> FetchId {
    FetchId(u64::from(endpoint))
}

fn endpoint_of(fetch: FetchId) -> u32 {
    u32::try_from(fetch.0).expect("fetches have the numbers of endpoints")
}

/// A task as it goes.
struct Running {
    /// Endpoints of its receivers: one, or one per sub-flow of a baseline, which may be the same.
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
    /// Of coded symbols, by receiver.
    receptions: Vec<Reception>,
    /// Of pulled ones, by the flow's number in its task.
    tallies: Vec<Tally>,
    /// Symbols or packets that were new.
    useful: u64,
    /// Flows that its receiver was given, in order.
    flows: Vec<Flowing>,
    /// The trees of its group, once it has begun.
    trees: Vec<InstalledTree>,
    /// By tree: symbols that its source had sent for the first time, and again, when half of the run was over.
    midway: Vec<(u64, u64)>,
}

/// State of one receiver of a task.
#[derive(Default)]
struct Reception {
    assembly: Option<Assembly>,
    /// All that it wanted.
    done: bool,
    /// Symbols that were new to it, and those of them that had come when half of the run was over.
    useful: u64,
    midway: u64,
}

/// Counts of one flow, also after its receiver had all that it wanted: the machine does not look at packets then.
#[derive(Clone, Copy, Default)]
struct Tally {
    whole: u64,
    trimmed: u64,
    useful: u64,
    lost: u64,
    timeouts: u64,
}

/// A flow of a task.
struct Flowing {
    flow: FlowId,
    /// Host.
    source: u32,
    /// Which of the task's receivers; none if it goes to all of them.
    receiver: Option<usize>,
    start: Time,
    /// When its last useful packet came.
    last: Option<Time>,
}

/// The simulated world.
pub(super) struct World {
    setup: Setup,
    now: Time,
    delivery: Delivery,
    slots: Vec<Slot>,
    /// By endpoint.
    endpoints: Vec<EndpointEntry>,
    tasks: Vec<Running>,
    /// The source endpoint of each host (PPUSH).
    sources: Vec<u32>,
    controller: Option<u32>,
    /// The endpoint of each host that pulls, once it has a flow.
    pullers: Vec<Option<u32>>,
    /// The slot of each host's receiving machine, once it has a task.
    receivers: Vec<Option<u32>>,
    /// The trees of tasks that have not begun.
    trees_to_install: BTreeMap<u32, Vec<SteinerTree>>,
    /// Records that the controller asked to be kept.
    kept: BTreeMap<TaskId, TaskRecord>,
    /// Starts of anything so far: seeds and numbers of a new start are new.
    incarnations: u64,
    /// Which of them was each host's last.
    starts: Vec<u64>,
    /// By host; one more for slots at none.
    paused: Vec<bool>,
    /// No messages are sent or heard any more; what is in flight still arrives.
    muted: bool,
    /// Changes that have not happened yet.
    changes_left: usize,
    corrupt: u64,
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

pub(super) fn host_of(node: NodeId) -> u32 {
    u32::from_be_bytes(node.0[..4].try_into().expect("4 bytes")).wrapping_sub(1)
}

/// The object of a task.
fn object(task: u32) -> ObjectId {
    let mut id = [7; 32];
    id[..4].copy_from_slice(&task.to_be_bytes());
    ObjectId(id)
}

/// The task of an object.
fn task_of(object: ObjectId) -> u32 {
    u32::from_be_bytes(*object.0.first_chunk().expect("an id has 32 bytes"))
}

/// Where a host says that it is. Packets of a run go by number; this is for those who compare addresses.
fn address(host: u32) -> SocketAddr {
    let [_, b, c, d] = host.to_be_bytes();
    SocketAddr::from(([10, b, c, d], 1))
}

fn name(task: u32) -> String {
    format!("object-{task}")
}

impl World {
    pub(super) fn new(setup: Setup) -> Result<Self, SetupError> {
        check::check(&setup)?;
        let hosts = setup.topology.hosts().len();
        let mut delivery = Delivery::new(&setup)?;
        for (_, change) in &setup.changes {
            if let Change::Link(link, super::LinkChange::Rate(_) | super::LinkChange::Down(_)) = change {
                delivery.network.keep_frames(link.0);
            }
        }
        let mut world = World {
            now: Time::ZERO,
            delivery,
            slots: Vec::new(),
            endpoints: Vec::new(),
            tasks: Vec::new(),
            sources: Vec::new(),
            controller: None,
            pullers: vec![None; hosts],
            receivers: vec![None; hosts],
            trees_to_install: BTreeMap::new(),
            kept: BTreeMap::new(),
            incarnations: 1,
            starts: vec![1; hosts],
            paused: vec![false; hosts + 1],
            muted: false,
            changes_left: setup.changes.len(),
            corrupt: 0,
            left: setup.tasks.iter().filter(|plan| plan.is_awaited()).count(),
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
            self.delivery.agenda.push(plan.at.as_nanos(), Event::Start { task: index as u32 });
            if let Some(stop) = plan.stop {
                self.delivery.agenda.push(stop.as_nanos(), Event::Stop { task: index as u32 });
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
                receptions: Vec::new(),
                tallies: Vec::new(),
                useful: 0,
                flows: Vec::new(),
                trees: Vec::new(),
                midway: Vec::new(),
            });
        }
        for (index, (at, _)) in self.setup.changes.iter().enumerate() {
            self.delivery.agenda.push(at.as_nanos(), Event::Change { index: index as u32 });
        }
        if let Some(sampling) = &self.setup.sample {
            self.delivery.agenda.push(sampling.every.as_nanos(), Event::Sample);
        }
        if let Transport::Coded(coded) = &self.setup.transport {
            if let (Some(until), Some(_)) = (self.setup.until, &coded.trees) {
                self.delivery.agenda.push(until.as_nanos() / 2, Event::Midway);
            }
            let coded = (**coded).clone();
            self.prepare_coded(&coded)?;
        }
        Ok(())
    }

    /// A machine with an endpoint, of which it says the number.
    fn add(&mut self, machine: Machine, host: u32, task: u32) -> u32 {
        let slot = self.install(machine, host);
        let endpoint = self.settle(slot, task);
        self.slots[slot as usize].endpoint = endpoint;
        endpoint
    }

    /// A machine, and the number of its slot.
    fn install(&mut self, machine: Machine, host: u32) -> u32 {
        let paused = self.paused[host as usize];
        self.slots.push(Slot { machine, endpoint: NOWHERE, host, wake: u64::MAX, paused });
        (self.slots.len() - 1) as u32
    }

    /// One more endpoint, that leads to this slot.
    fn settle(&mut self, slot: u32, task: u32) -> u32 {
        self.delivery.settle(self.slots[slot as usize].host);
        self.endpoints.push(EndpointEntry { slot, task });
        (self.endpoints.len() - 1) as u32
    }

    /// The machine that an endpoint leads to.
    fn machine(&self, endpoint: u32) -> &Machine {
        &self.slots[self.endpoints[endpoint as usize].slot as usize].machine
    }

    fn machine_mut(&mut self, endpoint: u32) -> &mut Machine {
        &mut self.slots[self.endpoints[endpoint as usize].slot as usize].machine
    }

    // ---- the loop

    /// Runs to the end. Calls `watch` now and then with the simulated time and the tasks done.
    // Called at one place, where the world is a variable of the caller: the loop needs no register for where it is.
    #[inline(always)]
    pub(super) fn run(mut self, watch: &mut dyn FnMut(Ran)) -> Records {
        let until = self.setup.until.map_or(u64::MAX, Time::as_nanos);
        while self.left > 0 || self.setup.until.is_some() {
            let Some((at, event)) = self.delivery.agenda.advance() else { break };
            if at > until {
                self.now = Time::from_nanos(until);
                break;
            }
            self.now = Time::from_nanos(at);
            self.events += 1;
            if self.events & 0xf_ffff == 0 {
                let tasks = self.setup.tasks.iter().filter(|plan| plan.is_awaited()).count();
                watch(Ran { at: self.now, tasks_done: tasks - self.left, tasks, events: self.events });
            }
            match *event {
                Event::Arrive { link, frame } => self.arrive(link, frame),
                rarer => self.happen(rarer),
            }
        }
        if let Some(longest) = self.setup.drain {
            self.rest(longest);
        }
        self.finish()
    }

    /// Goes on until all machines are at rest, or for the time `longest`; then nobody says anything more, and what is
    /// in flight arrives.
    fn rest(&mut self, longest: Duration) {
        let until = (self.now + longest).as_nanos();
        while !self.muted || self.delivery.bodies.len() > 0 {
            let Some((at, event)) = self.delivery.agenda.advance() else { break };
            let event = *event;
            self.now = Time::from_nanos(at);
            self.events += 1;
            self.muted |= at > until;
            self.happen(event);
            self.muted |= self.is_at_rest();
        }
        // A frame that its link will lose is forgotten when it is queued; its line is busy with it a moment longer.
        let links = 0..self.delivery.network.link_count();
        for _ in 0..LAST_FRAMES {
            if links.clone().all(|link| self.delivery.network.queue_len(self.now, link) == 0) {
                break;
            }
            self.now += LAST_FRAMES_STEP;
        }
    }

    /// Whether nothing is in flight, no source has a flow, the controller no task, and every receiver has said its
    /// farewells. Hosts that will not wake up again do not count.
    fn is_at_rest(&self) -> bool {
        let awake = |slot: &&Slot| !self.paused[slot.host as usize];
        self.delivery.bodies.len() == 0
            && self.changes_left == 0
            && self.slots.iter().filter(awake).all(|slot| match &slot.machine {
                Machine::Source(source) => source.flows().next().is_none(),
                Machine::Receivers(receivers) => receivers.is_empty(),
                Machine::Controller(controller) => controller.running_tasks() == 0,
                _ => true,
            })
    }

    // Once for every hop of every packet; a call costs a seventh of what it does.
    #[inline(always)]
    fn arrive(&mut self, link: u32, frame: SimFrame) {
        if self.delivery.arrive(self.now, link, frame) {
            self.deliver(frame.body(), link, frame.ecn(), !frame.is_whole());
        }
    }

    /// Not inlined, so that what happens for every hop of every packet stays small.
    #[inline(never)]
    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { link, frame } => self.arrive(link, frame),
            Event::Wake { slot } => {
                let waiting = &mut self.slots[slot as usize];
                if waiting.wake == self.now.as_nanos() {
                    waiting.wake = u64::MAX;
                    self.drain_slot(slot);
                }
            }
            Event::Serve { link } => {
                if let Some(frame) = self.delivery.serve(self.now, link) {
                    self.arrive(link, frame);
                }
            }
            Event::Deliver { body } => self.deliver(body, u32::MAX, Ecn::NotEct, false),
            Event::Start { task } => self.start(task),
            Event::Stop { task } => self.stop(task),
            Event::Decoded { endpoint, block } => self.on_decoded(endpoint, BlockIndex(block)),
            Event::Change { index } => self.change(index),
            Event::Link { .. } => unreachable!("only casts lose control links"),
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
            Event::Midway => self.note_midway(),
        }
    }

    /// A message has come to its end, over this link if over any.
    #[inline(never)]
    fn deliver(&mut self, body: u32, link: u32, ecn: Ecn, cut: bool) {
        // It is looked at where it is, and moved once.
        let Carried { packet, to, .. } = self.delivery.bodies.get(body);
        let (to, flow) = (*to, packet.datagram.flow);
        let endpoint = match self.delivery.end(to, link) {
            Some(End::Endpoint(endpoint)) => endpoint,
            Some(End::Node(node)) => {
                let packet = self.delivery.take(body, ecn, cut);
                return self.delivery.pass_on(self.now, node, to, packet);
            }
            None => return drop(self.delivery.take(body, ecn, cut)),
        };
        let cut = match packet.datagram.body {
            Body::Symbol(header) => {
                self.tally(endpoint, flow, cut || header.trimmed);
                cut
            }
            Body::ScheduledSymbol(header) => {
                self.records.negotiation.symbols += 1;
                self.tally(endpoint, flow, cut || header.trimmed);
                cut
            }
            ref body => {
                self.records.negotiation.note(body);
                false
            }
        };
        if self.delivery.cargo.is_some() {
            let packet = self.delivery.take(body, ecn, cut);
            return self.hear(endpoint, packet);
        }
        let packet = self.delivery.bodies.take(body, ecn, cut);
        self.hear_inline(endpoint, packet);
    }

    /// A symbol, or its header, has come to somebody.
    #[inline]
    fn tally(&mut self, endpoint: u32, flow: FlowId, trimmed: bool) {
        let Some(running) = self.tasks.get_mut(self.endpoints[endpoint as usize].task as usize) else {
            return;
        };
        if let Some(tally) = running.tallies.get_mut((flow.0 & 0xff) as usize) {
            *(if trimmed { &mut tally.trimmed } else { &mut tally.whole }) += 1;
        }
    }

    /// A packet comes to an endpoint.
    #[inline(never)]
    fn hear(&mut self, endpoint: u32, packet: Packet) {
        self.hear_inline(endpoint, packet);
    }

    /// The same for a caller that does so for every packet, since a call would copy it.
    #[inline(always)]
    fn hear_inline(&mut self, endpoint: u32, packet: Packet) {
        let place = self.endpoints[endpoint as usize].slot;
        let Slot { machine, endpoint, paused, .. } = &mut self.slots[place as usize];
        // Packets that the network brings to a paused host are gone; its own disk and decoder wait for it.
        if self.muted || *paused {
            return;
        }
        let (now, delivery, setup) = (self.now, &mut self.delivery, &self.setup);
        let polled = machine.hear(now, packet, |speaker, packet| {
            delivery.send(setup, now, speaker.map_or(*endpoint, endpoint_of), packet);
        });
        if let Some(event) = self.waits(place, polled) {
            self.on_event(place, event);
            self.drain_slot(place);
        }
    }

    fn tell(&mut self, endpoint: u32, command: Command) {
        let place = self.endpoints[endpoint as usize].slot;
        if self.muted {
            return;
        }
        self.slots[place as usize].machine.tell(self.now, command);
        self.drain_slot(place);
    }

    /// Polls the machine behind an endpoint until it waits.
    fn drain(&mut self, endpoint: u32) {
        self.drain_slot(self.endpoints[endpoint as usize].slot);
    }

    /// Polls a machine until it waits.
    // One call for all polls that follow each other: a call for each costs a third of what it does.
    #[inline(never)]
    fn drain_slot(&mut self, slot: u32) {
        while let Some(event) = self.poll(slot) {
            self.on_event(slot, event);
        }
    }

    /// Polls a machine until it waits or has something to say to its driver.
    #[inline(always)]
    fn poll(&mut self, slot: u32) -> Option<MachineEvent> {
        let Slot { machine, endpoint, paused, .. } = &mut self.slots[slot as usize];
        if self.muted || *paused {
            return None;
        }
        let (now, delivery, setup) = (self.now, &mut self.delivery, &self.setup);
        let polled = machine.poll(now, |speaker, packet| {
            delivery.send(setup, now, speaker.map_or(*endpoint, endpoint_of), packet);
        });
        self.waits(slot, polled)
    }

    /// A machine was polled until it waits, and is woken then, or until it has something to say.
    #[inline(always)]
    fn waits(&mut self, slot: u32, polled: Result<Option<Time>, MachineEvent>) -> Option<MachineEvent> {
        match polled {
            Ok(None) => {}
            Ok(Some(at)) => {
                let at = at.max(self.now).as_nanos();
                let wake = &mut self.slots[slot as usize].wake;
                if at < *wake {
                    *wake = at;
                    self.delivery.agenda.push(at, Event::Wake { slot });
                }
            }
            Err(said) => return Some(said),
        }
        None
    }

    // ---- tasks

    fn start(&mut self, task: u32) {
        let running = &self.tasks[task as usize];
        if running.finished.is_some() || !running.receivers.is_empty() {
            return; // It was broken off, or its host restarted, before its request was made again.
        }
        let plan = self.setup.tasks[task as usize].clone();
        match (self.setup.flows_of(&plan), self.setup.transport.clone()) {
            (Flows::Baseline(sender), _) => self.start_baseline(task, &plan, sender),
            (Flows::Coded(class), Transport::Coded(coded)) => self.start_coded(task, &plan, &coded, class),
            (Flows::Coded(_), Transport::Baseline { .. }) => unreachable!("the set-up was checked"),
        }
    }

    fn stop(&mut self, task: u32) {
        if self.tasks[task as usize].finished.is_some() {
            return;
        }
        self.note_end(task, true);
        for endpoint in self.tasks[task as usize].receivers.clone() {
            if let Machine::Receivers(_) = self.machine(endpoint) {
                self.tell(endpoint, Command::Receiver(fetch_of(endpoint), ReceiverCommand::Cancel));
            }
        }
        self.abandon(task);
        for endpoint in self.tasks[task as usize].senders.clone() {
            self.tell(endpoint, Command::Sender(SenderCommand::Withdraw));
        }
    }
}
