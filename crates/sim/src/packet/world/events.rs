//! Events of machines, and the progress of tasks that follows from them.

use headwater_baseline::{SenderEvent, SinkEvent};
use headwater_controller::ControllerEvent;
use headwater_transport::{
    DecodeFailure, ReceiverCommand, ReceiverEvent, ReceiverFailure, SourceCommand, SourceEvent,
};
use headwater_units::{BlockIndex, Geometry, PathId};
use headwater_wire::Refusal;

use super::machine::{Command, MachineEvent};
use super::{Flowing, INTRODUCE_EVERY, World, endpoint_of, fetch_of, host_of, object, task_of};
use crate::packet::Event;
use crate::packet::assembly::Assembly;
use crate::packet::director::FlowPlace;
use crate::packet::records::TaskRow;
use crate::packet::setup::ControlPlane;

impl World {
    /// Handles an event of the machine in this slot.
    // Not inlined, so that a poll without an event stays small.
    #[inline(never)]
    pub(super) fn on_event(&mut self, slot: u32, event: MachineEvent) {
        match event {
            MachineEvent::Source(event) => self.on_source(self.slots[slot as usize].endpoint, event),
            MachineEvent::Receiver(fetch, event) => self.on_receiver(endpoint_of(fetch), event),
            MachineEvent::Sender(SenderEvent::Closed { .. }) => {
                self.on_closed(self.slots[slot as usize].endpoint)
            }
            MachineEvent::Sink(event) => self.on_sink(self.slots[slot as usize].endpoint, event),
            MachineEvent::Controller(ControllerEvent::Persist(record)) => {
                self.kept.insert(record.task, *record);
            }
            MachineEvent::Controller(ControllerEvent::Forget { task, .. }) => {
                self.kept.remove(&task);
            }
            MachineEvent::Controller(_) => {}
        }
    }

    fn on_source(&mut self, endpoint: u32, event: SourceEvent) {
        match event {
            // A simulated disk is as fast as it takes to say so.
            SourceEvent::Prepare { flow, block, .. } => {
                let command = SourceCommand::BlockReady { flow, block, repair: true };
                self.tell_later(endpoint, Command::Source(command));
            }
            SourceEvent::Opened(opened) => {
                let flow = opened.flow;
                if let Some(cargo) = &mut self.delivery.cargo {
                    cargo.opened(flow, opened.key, opened.object, opened.symbol_size);
                }
                if let Some(path) = self.path_of_pulled(flow) {
                    self.tell_later(endpoint, Command::Source(SourceCommand::FlowPath { flow, path }));
                }
                let receiver = self.tasks[task_of(opened.object) as usize].receivers.first();
                if let Some(&receiver) = receiver.filter(|_| !opened.at.is_empty()) {
                    let command = SourceCommand::FlowPath { flow: opened.flow, path: PathId(receiver) };
                    self.tell_later(endpoint, Command::Source(command));
                }
            }
            SourceEvent::Closed { .. } | SourceEvent::Release { .. } | SourceEvent::FellBack { .. } => {}
        }
    }

    /// The sending end of a baseline's flow has nothing more to do.
    fn on_closed(&mut self, endpoint: u32) {
        let task = self.endpoints[endpoint as usize].task;
        let running = &mut self.tasks[task as usize];
        running.open -= 1;
        if running.open == 0 {
            running.closed = Some(self.now);
            self.over(task);
        }
    }

    #[expect(clippy::too_many_lines, reason = "one flat match")]
    fn on_receiver(&mut self, endpoint: u32, event: ReceiverEvent) {
        let task = self.endpoints[endpoint as usize].task;
        let running = &mut self.tasks[task as usize];
        // It restarts with another endpoint, and what it said before that is nothing any more.
        let Some(place) = running.receivers.iter().position(|it| *it == endpoint) else { return };
        let reception = &mut running.receptions[place];
        match event {
            ReceiverEvent::Symbol { flow, symbol } => {
                running.useful += 1;
                reception.useful += 1;
                if let Some(tally) = running.tallies.get_mut((flow.0 & 0xff) as usize) {
                    tally.useful += 1;
                }
                if let Some(flowing) = running.flows.iter_mut().find(|f| f.flow == flow) {
                    flowing.last = Some(self.now);
                }
                if let Some(assembly) = &mut reception.assembly {
                    let cargo = self.delivery.cargo.as_ref().map(|cargo| cargo.payload());
                    assembly.insert(flow, symbol, cargo);
                }
            }
            ReceiverEvent::Decode { block } => {
                let Some(assembly) = &mut reception.assembly else { return };
                let took = assembly.latency(block, &self.setup.decode);
                let at = (self.now + took).as_nanos();
                self.delivery.agenda.push(at, Event::Decoded { endpoint, block: block.0 });
            }
            ReceiverEvent::Discard { block } => {
                if let Some(assembly) = &mut reception.assembly {
                    assembly.discard(block);
                }
            }
            ReceiverEvent::Accepted { bytes, symbol_size, .. } => {
                let (overhead, true_bytes) = (self.setup.decode.overhead, self.delivery.cargo.is_some());
                let made = || Assembly::new(bytes, symbol_size, overhead, true_bytes);
                let assembly = reception.assembly.get_or_insert_with(made);
                if assembly.symbol_size() != symbol_size {
                    assembly.recut(Geometry::new(bytes, symbol_size).expect("the receiver checked it"));
                }
                let (wanted, have) = (0..assembly.blocks(), assembly.have());
                self.tell_fetch(endpoint, ReceiverCommand::Start { wanted, have });
            }
            ReceiverEvent::Bind(bind) => {
                let (flow, source) = (bind.flow, host_of(bind.node));
                let goes_to_all = !running.trees.is_empty()
                    || running.receivers.len() > 1
                        && FlowPlace::of(
                            flow,
                            self.setup.tasks[task as usize].sources.len(),
                            running.receivers.len(),
                        ) == FlowPlace::Group;
                // Each of a group is told of the flow that goes to all.
                if !goes_to_all || running.flows.iter().all(|flowing| flowing.flow != flow) {
                    let receiver = (!goes_to_all).then_some(place);
                    running.flows.push(Flowing { flow, source, receiver, start: self.now, last: None });
                }
                if let (Some(cargo), Some(assembly)) = (&mut self.delivery.cargo, &reception.assembly) {
                    // The task's own T: the controller fits it to the object.
                    cargo.opened(flow, bind.key, object(task), assembly.symbol_size());
                }
                let path = self.path_of_tree(task, flow, Some(place));
                let path = path.unwrap_or(PathId(self.sources[source as usize]));
                self.tell_fetch(endpoint, ReceiverCommand::FlowPath { flow, path });
            }
            ReceiverEvent::Done => {
                reception.done = true;
                running.unfinished = running.unfinished.saturating_sub(1);
                let is_last = running.unfinished == 0;
                self.note_receiver(task, place);
                if is_last {
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
                self.delivery.agenda.push((self.now + INTRODUCE_EVERY).as_nanos(), Event::Start { task });
            }
            ReceiverEvent::Failed(failure) => self.on_failure(task, failure),
            ReceiverEvent::Moved(_)
            | ReceiverEvent::Unbind { .. }
            | ReceiverEvent::Distrusted { .. }
            | ReceiverEvent::Ended => {}
        }
    }

    /// The receiving end of a baseline's flow has something to say.
    fn on_sink(&mut self, endpoint: u32, event: SinkEvent) {
        let task = self.endpoints[endpoint as usize].task;
        match event {
            SinkEvent::Progress { flow, packets } => self.on_progress(flow, packets),
            SinkEvent::Complete { flow } => self.on_complete(flow),
            SinkEvent::Done => {
                let running = &mut self.tasks[task as usize];
                running.unfinished = running.unfinished.saturating_sub(1);
                if let Some(at) = running.receivers.iter().position(|e| *e == endpoint) {
                    running.flows[at].last = Some(self.now);
                }
                if running.unfinished == 0 {
                    self.note_end(task, false);
                }
            }
            SinkEvent::Failed(failure) => self.on_failure(task, failure),
        }
    }

    fn on_failure(&mut self, task: u32, failure: ReceiverFailure) {
        let running = &mut self.tasks[task as usize];
        if running.finished.is_none() {
            running.failure = Some(failure);
            self.note_end(task, true);
        }
    }

    /// A command in answer to an event: handled at once, polled by the loop that is running.
    pub(super) fn tell_later(&mut self, endpoint: u32, command: Command) {
        let now = self.now;
        self.machine_mut(endpoint).tell(now, command);
    }

    fn tell_fetch(&mut self, endpoint: u32, command: ReceiverCommand) {
        self.tell_later(endpoint, Command::Receiver(fetch_of(endpoint), command));
    }

    pub(super) fn on_decoded(&mut self, endpoint: u32, block: BlockIndex) {
        let task = self.endpoints[endpoint as usize].task;
        let running = &mut self.tasks[task as usize];
        // The decoder of a receiver that has restarted since is gone with it.
        let Some(place) = running.receivers.iter().position(|it| *it == endpoint) else { return };
        let Some(assembly) = &mut running.receptions[place].assembly else { return };
        let truth = self.delivery.cargo.as_ref().map(|cargo| (cargo, object(task)));
        let command = assembly.finish(block, truth);
        let corrupt =
            matches!(command, ReceiverCommand::DecodeFailed { failure: DecodeFailure::Corrupt, .. });
        self.corrupt += u64::from(corrupt);
        self.tell(endpoint, Command::Receiver(fetch_of(endpoint), command));
    }

    /// The receivers of a task have all they wanted, or gave up.
    pub(super) fn note_end(&mut self, task: u32, failed: bool) {
        let now = self.now;
        let running = &mut self.tasks[task as usize];
        running.finished = Some(now);
        running.failed = failed;
        self.note_flows(task);
        // A baseline's senders may still close.
        if failed || self.setup.is_coded(&self.setup.tasks[task as usize]) {
            self.over(task);
        }
    }

    /// Nothing more is expected of a task, though its senders may still close.
    pub(super) fn over(&mut self, task: u32) {
        if std::mem::replace(&mut self.tasks[task as usize].over, true) {
            return;
        }
        let plan = &self.setup.tasks[task as usize];
        let running = &self.tasks[task as usize];
        let assemblies = || running.receptions.iter().filter_map(|reception| reception.assembly.as_ref());
        self.records.tasks.push(TaskRow {
            task,
            name: plan.name.clone(),
            arrival: plan.at,
            finish: if running.failed { None } else { running.finished },
            failure: running.failure.clone(),
            blocks_done: assemblies().map(|assembly| assembly.have().len() as u32).sum(),
            blocks: assemblies().map(Assembly::blocks).reduce(|all, blocks| all + blocks),
            closed: running.closed,
            packets: plan.packets,
            useful: running.useful,
            receiver: plan.receiver,
            sources: plan.sources.len() as u32,
        });
        self.left -= usize::from(plan.is_awaited());
    }
}
