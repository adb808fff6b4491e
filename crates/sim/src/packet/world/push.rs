//! What PPUSH needs of its hosts: sources and a controller before the first task, introductions, receivers, new starts.

use std::collections::BTreeMap;

use headwater_transport::host::{HostReceiverConfig, Receivers};
use headwater_transport::ppush::controller::Controller;
use headwater_transport::ppush::receiver::ReceiverConfig;
use headwater_transport::source::Source;
use headwater_transport::{Command, ControllerCommand, Input, Packet, ReceiverCommand, SourceCommand};
use headwater_units::{Bytes, Duration, Geometry, PathId};
use headwater_wire::{Control, Holding, NodeInfo};
use rand::Rng;

use super::{INTRODUCE_EVERY, Machine, World, fetch_of, name, node, object};
use crate::packet::Event;
use crate::packet::director::{Director, Part};
use crate::packet::setup::{ControlPlane, PpushSetup, SetupError, TaskPlan, Transport};

impl World {
    pub(super) fn prepare_ppush(&mut self, ppush: &PpushSetup) -> Result<(), SetupError> {
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
        let tasks = self.setup.tasks.iter().zip(0u32..).filter(|(plan, _)| plan.background.is_none());
        for (plan, index) in tasks {
            let bytes = plan.object_bytes(ppush.symbol_size);
            Geometry::new(bytes, ppush.symbol_size).map_err(|why| SetupError::Object {
                task: plan.name.clone(),
                packets: plan.packets,
                symbol: ppush.symbol_size,
                why,
            })?;
            if let Some(cargo) = &mut self.post.cargo {
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

    /// A host's source is told that it holds the object of a task.
    fn hold(&mut self, host: u32, task: u32) {
        let Transport::Ppush(ppush) = &self.setup.transport else { return };
        let bytes = self.setup.tasks[task as usize].object_bytes(ppush.symbol_size);
        let command = SourceCommand::Hold { object: object(task), bytes };
        self.tell(self.sources[host as usize], Command::Source(command));
    }

    /// The tasks whose objects a host holds.
    fn holds(&self, host: u32) -> Vec<u32> {
        let tasks = self.setup.tasks.iter().zip(0u32..).filter(|(plan, _)| plan.background.is_none());
        tasks.filter(|(plan, _)| plan.sources.contains(&host)).map(|(_, task)| task).collect()
    }

    /// A host says to the controller who it is and what it holds, as nodes do when they connect.
    pub(super) fn introduce(&mut self, host: u32) {
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
                ControlPlane::AtHost { .. } => {
                    let packet = Packet::control(PathId(controller), control);
                    self.post.send(&self.setup, self.now, from, packet);
                }
            }
        }
    }

    /// At a random time: of hosts that speak all at once the same ones would find the controller's queue full each time.
    pub(super) fn introduce_soon(&mut self, host: u32, within: Duration) {
        let wait = self.post.rng.random_range(0..within.as_nanos());
        self.post.agenda.push(self.now.as_nanos() + wait, Event::Introduce { host });
    }

    pub(super) fn start_receiver(&mut self, task: u32, plan: &TaskPlan, ppush: &PpushSetup) {
        let config = self.receiver_config(task, plan, ppush);
        let slot = self.receivers_of(plan.receiver);
        // As if each fetch had a port of its own: switches spread the flows of a host's tasks over paths.
        let endpoint = self.settle(slot, task);
        let running = &mut self.tasks[task as usize];
        running.receivers = vec![endpoint];
        running.unfinished = 1;
        let begin = ReceiverCommand::Fetch(Box::new(config));
        self.tell(endpoint, Command::Receiver(fetch_of(endpoint), begin));
    }

    /// The slot of a host's receiving machine, which is there from its first task on.
    fn receivers_of(&mut self, host: u32) -> u32 {
        if let Some(slot) = self.receivers[host as usize] {
            return slot;
        }
        let config = HostReceiverConfig { pull: self.pull_config(host, Bytes::ZERO) };
        let slot = self.install(Machine::Receivers(Box::new(Receivers::new(config))), host);
        self.receivers[host as usize] = Some(slot);
        slot
    }

    fn receiver_config(&self, task: u32, plan: &TaskPlan, ppush: &PpushSetup) -> ReceiverConfig {
        let controller = PathId(self.controller.expect("made before the first task"));
        // The number of the request names the task in the script. A restarted receiver draws another, and one that asks
        // again counts on from it: it must not come to another task's number.
        let request = (u64::from(task) + 1) << 24 | (self.incarnations & 0xffff) << 8;
        let mut config = ReceiverConfig::new(name(task), node(plan.receiver), controller, request);
        config.room = ppush.symbol_size;
        config.spread = ppush.spread;
        config.class = ppush.class;
        config.max_sources = Some(plan.sources.len() as u8);
        config.receive_window = ppush.receive_window;
        config.blocks_in_flight = ppush.blocks_in_flight;
        config.max_ack_delay = ppush.max_ack_delay;
        config.source_patience = ppush.source_patience;
        config.patience = ppush.source_patience;
        config
    }

    pub(super) fn restart(&mut self, host: u32) {
        let Transport::Ppush(ppush) = self.setup.transport.clone() else { return };
        self.incarnations += 1;
        self.starts[host as usize] = self.incarnations;
        let endpoint = self.sources[host as usize];
        // A new start has new addresses: what is under way to the old one finds nobody.
        *self.machine_mut(endpoint) = Machine::Nobody;
        if let Some(slot) = self.receivers[host as usize].take() {
            self.slots[slot as usize].machine = Machine::Nobody;
        }
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
            if plan.background.is_some() {
                // Neither end of a connection outlives the other.
                if begun && (plan.receiver == host || plan.sources.contains(&host)) {
                    self.stop(task);
                }
                continue;
            }
            if plan.receiver != host || !begun {
                continue;
            }
            running.receivers.clear();
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

    pub(super) fn restart_controller(&mut self) {
        let Transport::Ppush(ppush) = self.setup.transport.clone() else { return };
        let Some(endpoint) = self.controller else { return };
        self.incarnations += 1;
        let fresh = self.new_controller(&ppush);
        let slot = &mut self.slots[self.places[endpoint as usize].slot as usize];
        slot.machine = Machine::Controller(Box::new(fresh));
        slot.wake = u64::MAX;
        for record in self.kept.values().cloned().collect::<Vec<_>>() {
            self.tell(endpoint, Command::Controller(ControllerCommand::Restore(Box::new(record))));
        }
        for host in 0..self.setup.topology.hosts().len() as u32 {
            self.introduce(host);
        }
    }
}
