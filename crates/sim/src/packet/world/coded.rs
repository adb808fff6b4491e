//! Hosts of PPUSH, SCDP, Datacast and PAM: sources and a controller before the first task, introductions, receivers, restarts.

use std::collections::BTreeMap;

use headwater_controller::{Controller, ControllerCommand};
use headwater_machine::Packet;
use headwater_transport::pull::SessionConfig;
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::receiver::{HostReceiverConfig, Receivers};
use headwater_transport::source::Source;
use headwater_transport::{ReceiverCommand, SourceCommand};
use headwater_units::{Bytes, Duration, FlowId, Geometry, PathId, Theta};
use headwater_wire::{Class, Control, Holding, NodeInfo, ToController};
use rand::Rng;

use super::machine::Command;
use super::{INTRODUCE_EVERY, Machine, Reception, Tally, World, address, fetch_of, name, node, object};
use crate::packet::Event;
use crate::packet::director::{Director, FlowPlace, Part};
use crate::packet::setup::{CodedSetup, ControlPlane, Flows, SetupError, TaskPlan, Transport};

impl World {
    pub(super) fn prepare_coded(&mut self, coded: &CodedSetup) -> Result<(), SetupError> {
        let hosts = self.setup.topology.hosts().len() as u32;
        let controller_host = match self.setup.control {
            ControlPlane::AtHost { host } => host,
            ControlPlane::Beside { .. } => hosts,
        };
        let scripted = coded.is_scripted() || self.setup.tasks.iter().any(|t| t.thetas.is_some());
        let mut parts = BTreeMap::new();
        if let Some(trees) = &coded.trees {
            self.find_trees(trees)?;
        }
        for host in 0..hosts {
            let endpoint = self.add(self.source(coded, host), host, u32::MAX);
            self.sources.push(endpoint);
        }
        let mut holders: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let tasks = self.setup.tasks.iter().zip(0u32..);
        for (plan, index) in tasks.filter(|(plan, _)| self.setup.is_coded(plan)) {
            let bytes = plan.object_bytes(coded.symbol_size);
            Geometry::new(bytes, coded.symbol_size).map_err(|why| SetupError::Object {
                task: plan.name.clone(),
                packets: plan.packets,
                symbol: coded.symbol_size,
                why,
            })?;
            if let Some(cargo) = &mut self.delivery.cargo {
                cargo.exists(object(index), bytes);
            }
            for &source in &plan.sources {
                holders.entry(source).or_default().push(index);
            }
            if scripted {
                let thetas = plan.thetas.iter().flatten().copied().chain(std::iter::repeat(Theta::ONE));
                let flows = plan.sources.iter().zip(thetas);
                let flows = flows.map(|(&s, theta)| (node(s), PathId(self.sources[s as usize]), theta));
                let part = Part {
                    object: object(index),
                    bytes,
                    symbol_size: coded.symbol_size,
                    flows: flows.collect(),
                    receivers: plan.receivers().map(node).collect(),
                    trees: self.rates_of_trees(index),
                };
                parts.insert(name(index), part);
            }
        }
        let machine = if scripted {
            Machine::Director(Box::new(Director::new(parts, coded.controller.feedback_every)))
        } else {
            Machine::Controller(Box::new(self.new_controller(coded)))
        };
        self.controller = Some(self.add(machine, controller_host, u32::MAX));
        for host in 0..hosts {
            for &task in holders.get(&host).into_iter().flatten() {
                self.hold(host, task);
            }
            match self.setup.control {
                // The script knows everybody.
                _ if coded.is_scripted() => {}
                ControlPlane::Beside { .. } => self.introduce(host),
                ControlPlane::AtHost { .. } => self.introduce_soon(host, INTRODUCE_EVERY / 64),
            }
        }
        Ok(())
    }

    fn source(&self, coded: &CodedSetup, host: u32) -> Machine {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.setup.seed.to_be_bytes());
        seed[8..12].copy_from_slice(&host.to_be_bytes());
        seed[12..20].copy_from_slice(&self.incarnations.to_be_bytes());
        let mut config = coded.source.clone();
        if let (Some(most), Some(_)) = (self.fastest_link(host), &coded.trees) {
            config.trees.rate.most = config.trees.rate.most.min(most);
        }
        if let (Some(link), Some(_)) = (self.fastest_link(host), &coded.rates) {
            config.rate.link = link;
        }
        Machine::Source(Box::new(Source::new(config, seed)))
    }

    fn new_controller(&self, coded: &CodedSetup) -> Controller {
        let mut seed = [1; 32];
        seed[..8].copy_from_slice(&self.setup.seed.to_be_bytes());
        seed[8..16].copy_from_slice(&self.incarnations.to_be_bytes());
        Controller::new(coded.controller.clone(), seed)
    }

    /// A host's source is told that it holds the object of a task.
    fn hold(&mut self, host: u32, task: u32) {
        let Transport::Coded(coded) = &self.setup.transport else { return };
        let bytes = self.setup.tasks[task as usize].object_bytes(coded.symbol_size);
        let command = SourceCommand::Hold { object: object(task), bytes };
        self.tell(self.sources[host as usize], Command::Source(command));
    }

    /// The tasks whose objects a host holds.
    fn holds(&self, host: u32) -> Vec<u32> {
        let tasks = self.setup.tasks.iter().zip(0u32..).filter(|(plan, _)| self.setup.is_coded(plan));
        tasks.filter(|(plan, _)| plan.sources.contains(&host)).map(|(_, task)| task).collect()
    }

    /// A host says to the controller who it is and what it holds, as nodes do when they connect.
    pub(super) fn introduce(&mut self, host: u32) {
        let (Transport::Coded(coded), Some(controller)) = (&self.setup.transport, self.controller) else {
            return;
        };
        // Hosts that use what others state say where they are and how far it is to the controller.
        let states = coded.controller.begin_at_stated_rates;
        let (at, own) = (address(host), coded.lines.get(host as usize));
        let info = NodeInfo {
            node: node(host),
            name: format!("host {host}"),
            listen: None,
            data: if states { vec![at] } else { Vec::new() },
            uplink: own.map(|lines| lines.0).or(coded.host_rate),
            downlink: own.map(|lines| lines.1).or(coded.host_rate),
            rack: coded.racks.get(host as usize).cloned().flatten().map(|(name, rate)| (name, Some(rate))),
            room: coded.symbol_size,
            incarnation: self.starts[host as usize],
            rtt: self.setup.control.delay().filter(|_| states).map(|delay| delay * 2),
            seen: states.then(|| at.ip()),
            labels: Default::default(),
        };
        let symbol = coded.symbol_size;
        let mut words = vec![Control::Controller(ToController::Hello(info))];
        words.extend(self.holds(host).into_iter().map(|task| {
            let bytes = self.setup.tasks[task as usize].object_bytes(symbol);
            Control::Controller(ToController::Hold(Holding {
                object: object(task),
                bytes,
                name: Some(name(task)),
            }))
        }));
        let from = self.sources[host as usize];
        self.open_path(from, host);
        for control in words {
            match self.setup.control {
                // Connections are made at once: the control plane beside the network has a delay for messages alone.
                ControlPlane::Beside { .. } => {
                    self.hear(controller, Packet::control(PathId(from), control));
                }
                ControlPlane::AtHost { .. } if self.paused[host as usize] => {}
                ControlPlane::AtHost { .. } => {
                    let packet = Packet::control(PathId(controller), control);
                    self.delivery.send(&self.setup, self.now, from, packet);
                }
            }
        }
    }

    /// At a random time: of hosts that speak all at once the same ones would find the controller's queue full each time.
    pub(super) fn introduce_soon(&mut self, host: u32, within: Duration) {
        let wait = self.delivery.rng.random_range(0..within.as_nanos());
        self.delivery.agenda.push(self.now.as_nanos() + wait, Event::Introduce { host });
    }

    /// Every receiver of a task begins.
    pub(super) fn start_coded(&mut self, task: u32, plan: &TaskPlan, coded: &CodedSetup, class: Class) {
        let receivers = 1 + plan.further.len();
        for host in plan.receivers() {
            let endpoint = self.settle_fetch(task, host, coded);
            self.tasks[task as usize].receivers.push(endpoint);
        }
        let running = &mut self.tasks[task as usize];
        running.unfinished = receivers as u32;
        running.receptions.resize_with(receivers, Reception::default);
        if coded.pull.is_some() || coded.rates.is_some() {
            // One more tally for a group.
            running.tallies.resize(plan.sources.len() * receivers + 1, Tally::default());
        }
        if let Some(trees) = &coded.trees {
            self.install_trees(task, plan, trees);
            let running = &mut self.tasks[task as usize];
            running.tallies.resize(running.trees.len(), Tally::default());
        }
        for place in 0..receivers {
            self.fetch(task, place, plan, coded, class);
        }
    }

    /// An endpoint of a host's receiving machine. As if each fetch had a port of its own: switches spread the flows of a host's
    /// tasks over paths.
    fn settle_fetch(&mut self, task: u32, host: u32, coded: &CodedSetup) -> u32 {
        let slot = self.receivers_of(host, coded);
        let endpoint = self.settle(slot, task);
        self.open_path(endpoint, host);
        endpoint
    }

    /// The controller learns whose an endpoint is, as from the key of a connection.
    fn open_path(&mut self, endpoint: u32, host: u32) {
        if let Some(controller) = self.controller {
            let opened =
                ControllerCommand::PathOpened { path: PathId(endpoint), node: node(host), network: None };
            self.tell(controller, Command::Controller(opened));
        }
    }

    /// A receiver of a task asks for it.
    fn fetch(&mut self, task: u32, place: usize, plan: &TaskPlan, coded: &CodedSetup, class: Class) {
        let host = plan.receivers().nth(place).expect("the caller counts them");
        let config = self.receiver_config(task, host, plan, coded);
        let endpoint = self.tasks[task as usize].receivers[place];
        let begin = ReceiverCommand::Fetch(Box::new(ReceiverConfig { class, ..config }));
        self.tell(endpoint, Command::Receiver(fetch_of(endpoint), begin));
    }

    /// Where the source of a flow sends to that is pulled, goes down a tree or is scheduled: nobody has told it before the first symbols leave.
    pub(super) fn path_of_pulled(&mut self, flow: FlowId) -> Option<PathId> {
        let (Transport::Coded(coded), task) = (&self.setup.transport, task_of(flow)?) else { return None };
        if coded.trees.is_some() {
            return self.path_of_tree(task, flow, None);
        }
        if !coded.is_scripted() {
            return None;
        }
        let (plan, running) = (self.setup.tasks.get(task as usize)?, self.tasks.get(task as usize)?);
        match FlowPlace::of(flow, plan.sources.len(), running.receivers.len()) {
            FlowPlace::Between { receiver, .. } => Some(PathId(*running.receivers.get(receiver)?)),
            FlowPlace::Group => Some(self.delivery.group(&running.receivers)),
        }
    }

    /// The slot of a host's receiving machine, which is there from its first task on.
    fn receivers_of(&mut self, host: u32, coded: &CodedSetup) -> u32 {
        if let Some(slot) = self.receivers[host as usize] {
            return slot;
        }
        let headroom = coded.pull.map_or(Bytes::ZERO, |pull| pull.headroom);
        let config = HostReceiverConfig { pull: self.pull_config(host, headroom) };
        let slot = self.install(Machine::Receivers(Box::new(Receivers::new(config))), host);
        self.receivers[host as usize] = Some(slot);
        slot
    }

    fn receiver_config(&self, task: u32, host: u32, plan: &TaskPlan, coded: &CodedSetup) -> ReceiverConfig {
        let controller = PathId(self.controller.expect("made before the first task"));
        // The number of the request names the task in the script. A restarted receiver draws another, and one that asks
        // again counts on from it: it must not come to another task's number.
        let request = (u64::from(task) + 1) << REQUESTS | (self.incarnations & 0xffff) << 8;
        let mut config = ReceiverConfig::new(name(task), node(host), controller, request);
        config.room = coded.symbol_size;
        config.spread = coded.spread;
        config.delivery = Some(coded.delivery(plan));
        if let Some(pull) = coded.pull {
            config.pull = pull.session;
        }
        if let Some(trees) = coded.trees {
            config.trees = trees.receiver;
        }
        if let Some(rates) = coded.rates {
            (config.rate, config.pull) = (rates, SessionConfig::data_centre());
        }
        config.max_sources = Some(plan.sources.len() as u8);
        config.receive_window = coded.receive_window;
        config.blocks_in_flight = coded.blocks_in_flight;
        config.max_ack_delay = coded.max_ack_delay;
        config.source_patience = coded.source_patience;
        config.patience = coded.source_patience;
        config
    }

    pub(super) fn restart(&mut self, host: u32) {
        let Transport::Coded(coded) = self.setup.transport.clone() else { return };
        self.incarnations += 1;
        self.starts[host as usize] = self.incarnations;
        let endpoint = self.sources[host as usize];
        // A new start has new addresses: what is in flight to the old one finds nobody.
        *self.machine_mut(endpoint) = Machine::Nobody;
        if let Some(slot) = self.receivers[host as usize].take() {
            self.slots[slot as usize].machine = Machine::Nobody;
        }
        let machine = self.source(&coded, host);
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
            let Flows::Coded(class) = self.setup.flows_of(&plan) else {
                // Neither end of a connection outlives the other.
                if begun && (plan.receiver == host || plan.sources.contains(&host)) {
                    self.stop(task);
                }
                continue;
            };
            let Some(place) = plan.receivers().position(|receiver| receiver == host).filter(|_| begun) else {
                continue;
            };
            if running.finished.is_some() || running.receptions[place].done {
                continue;
            }
            if let Some(assembly) = &mut running.receptions[place].assembly {
                assembly.restart();
            }
            running.flows.retain(|flowing| flowing.receiver != Some(place));
            let endpoint = self.settle_fetch(task, host, &coded);
            self.tasks[task as usize].receivers[place] = endpoint;
            self.fetch(task, place, &plan, &coded, class);
        }
    }

    pub(super) fn restart_controller(&mut self) {
        let Transport::Coded(coded) = self.setup.transport.clone() else { return };
        // A script forgets nothing.
        let Some(endpoint) = self.controller.filter(|_| !coded.is_scripted()) else { return };
        self.incarnations += 1;
        let fresh = self.new_controller(&coded);
        let slot = &mut self.slots[self.endpoints[endpoint as usize].slot as usize];
        slot.machine = Machine::Controller(Box::new(fresh));
        slot.wake = u64::MAX;
        self.tell(endpoint, Command::Controller(ControllerCommand::Returned));
        for record in self.kept.values().cloned().collect::<Vec<_>>() {
            self.tell(endpoint, Command::Controller(ControllerCommand::Restore(Box::new(record))));
        }
        for task in 0..self.tasks.len() {
            let hosts = self.setup.tasks[task].receivers().collect::<Vec<_>>();
            let endpoints = self.tasks[task].receivers.clone();
            endpoints.into_iter().zip(hosts).for_each(|(endpoint, host)| self.open_path(endpoint, host));
        }
        for host in 0..self.setup.topology.hosts().len() as u32 {
            self.introduce(host);
        }
    }
}

/// Number of bits for the requests of a task.
const REQUESTS: u32 = 24;

/// The task of a flow of the script: it numbers them within each request.
fn task_of(flow: FlowId) -> Option<u32> {
    u32::try_from((flow.0 >> (REQUESTS + 8)).checked_sub(1)?).ok()
}
