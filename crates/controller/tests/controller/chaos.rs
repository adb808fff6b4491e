//! Control messages lost, doubled, delayed and out of order; sources and the controller restarted: afterwards all agree.

use std::collections::{BTreeMap, BTreeSet};

use headwater_controller::{
    Controller, ControllerCommand, ControllerConfig, ControllerEvent, FlowStanding, TaskRecord,
};
use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_testkit::Agenda;
use headwater_units::{BlockIndex, Duration, FlowId, NodeId, PathId, Symbols, TaskId, Theta, Time};
use headwater_wire::{Body, Control, NodeInfo, Outcome, ToController, ToReceiver, ToSource};
use proptest::prelude::*;

use crate::harness::{delivering, holding, info, ms, node, path, report, request};

/// As a source keeps flows: idempotent, forgetful only when restarted.
#[derive(Default)]
struct FakeSource {
    life: u64,
    flows: BTreeMap<FlowId, (TaskId, Theta, bool)>,
}

/// As a receiver keeps its task.
#[derive(Default)]
struct FakeReceiver {
    number: u64,
    task: Option<TaskId>,
    version: u32,
    flows: BTreeSet<FlowId>,
    /// The user has seen enough: Fin until FinAck.
    leaving: bool,
    gone: bool,
}

/// Draws from a fixed list, round and round, so that a failing case shrinks.
struct Dice {
    faces: Vec<u8>,
    at: usize,
}

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.at += 1;
        // Mix the position in, or short lists would repeat the same fate for ever.
        let face = self.faces[self.at % self.faces.len()];
        (u64::from(face) ^ (self.at as u64).wrapping_mul(0x9e37_79b9) >> 7) % below
    }
}

struct World {
    controller: Controller,
    records: BTreeMap<TaskId, TaskRecord>,
    sources: BTreeMap<u8, FakeSource>,
    receivers: BTreeMap<u8, FakeReceiver>,
    /// Towards the controller or not, over which path, what.
    air: Agenda<(bool, PathId, Control)>,
    dice: Dice,
    calm: bool,
    now: Time,
    wake: Option<Time>,
    /// Everything the controller said, for comparison of two runs.
    log: Vec<String>,
}

const SOURCES: [u8; 5] = [1, 2, 3, 4, 5];
const RECEIVERS: [u8; 2] = [8, 9];

impl World {
    fn new(faces: Vec<u8>) -> Self {
        let receivers = RECEIVERS.map(|n| (n, FakeReceiver { number: 1, ..Default::default() }));
        World {
            controller: Controller::new(ControllerConfig::default(), [3; 32]),
            records: BTreeMap::new(),
            sources: SOURCES.map(|n| (n, FakeSource { life: 1, ..Default::default() })).into(),
            receivers: receivers.into(),
            air: Agenda::default(),
            dice: Dice { faces, at: 0 },
            calm: false,
            now: Time::ZERO,
            wake: None,
            log: Vec::new(),
        }
    }

    fn throw(&mut self, to_controller: bool, path: PathId, control: Control) {
        let copies = if self.calm { 1 } else { [0, 1, 1, 1, 2, 2, 0, 1][self.dice.roll(8) as usize] };
        for _ in 0..copies {
            let delay = if self.calm { 1 } else { 1 + self.dice.roll(400) };
            self.air.at(self.now + ms(delay), (to_controller, path, control.clone()));
        }
    }

    fn drain(&mut self) {
        for _ in 0..100_000 {
            let output = self.controller.poll(self.now);
            self.log.push(format!("{:?} {output:?}", self.now));
            match output {
                Output::Transmit(p) => {
                    let Body::Control(control) = p.datagram.body else { panic!("control messages only") };
                    self.throw(false, p.path, *control);
                }
                Output::Event(ControllerEvent::Persist(record)) => {
                    self.records.insert(record.task, *record);
                }
                Output::Event(ControllerEvent::Forget { task, .. }) => {
                    self.records.remove(&task);
                }
                Output::Event(_) => {}
                Output::Wake(at) => {
                    self.wake = at;
                    return;
                }
            }
        }
        panic!("the controller does not come to rest");
    }

    fn tell(&mut self, input: Input<ControllerCommand>) {
        self.controller.handle(self.now, input);
        self.drain();
    }

    fn deliver(&mut self, to_controller: bool, path: PathId, control: Control) {
        if to_controller {
            let node = node(path.0 as u8);
            self.tell(Input::Command(ControllerCommand::PathOpened { path, node, network: None }));
            return self.tell(Input::Packet(Packet::control(path, control)));
        }
        let n = path.0 as u8;
        let mut answers = Vec::new();
        if let Some(source) = self.sources.get_mut(&n) {
            match control {
                Control::Source(ToSource::Push(push)) => {
                    source.flows.entry(push.flow).or_insert((push.task, push.theta, false));
                    answers.push(Control::Controller(ToController::Pushing { flow: push.flow }));
                }
                Control::Source(ToSource::Stop { flow }) => {
                    source.flows.remove(&flow);
                    answers.push(Control::Controller(ToController::Stopped { flow }));
                }
                Control::Source(ToSource::SetTheta { flow, theta }) => {
                    source.flows.entry(flow).and_modify(|f| f.1 = theta);
                }
                Control::Source(ToSource::Pause { flow }) => {
                    source.flows.entry(flow).and_modify(|f| f.2 = true);
                }
                Control::Source(ToSource::Resume { flow }) => {
                    source.flows.entry(flow).and_modify(|f| f.2 = false);
                }
                other => panic!("a source is not told {other:?}"),
            }
        } else if let Some(receiver) = self.receivers.get_mut(&n) {
            match control {
                Control::Receiver(ToReceiver::Accepted { request, task, flows, .. })
                    if request == receiver.number && receiver.task.is_none() =>
                {
                    (receiver.task, receiver.version) = (Some(task), 0);
                    receiver.flows = flows.iter().map(|f| f.flow).collect();
                }
                Control::Receiver(ToReceiver::Flows { task, version, flows })
                    if receiver.task == Some(task) && version > receiver.version =>
                {
                    receiver.version = version;
                    receiver.flows = flows.iter().map(|f| f.flow).collect();
                }
                Control::Receiver(ToReceiver::UnknownTask { task })
                    if receiver.task == Some(task) && !receiver.leaving =>
                {
                    (receiver.task, receiver.number) = (None, receiver.number + 1);
                }
                Control::Receiver(ToReceiver::FinAck { task })
                    if receiver.task == Some(task) && receiver.leaving =>
                {
                    receiver.gone = true;
                }
                _ => {}
            }
        }
        answers.into_iter().for_each(|answer| self.throw(true, path, answer));
    }

    /// Messages that nodes send by themselves. Sources say who they are every second, as a simulator's hosts do.
    fn tick(&mut self, round: u64) {
        for n in SOURCES {
            let source = &self.sources[&n];
            let hello =
                Control::Controller(ToController::Hello(NodeInfo { incarnation: source.life, ..info(n) }));
            let reports: Vec<Control> = source
                .flows
                .iter()
                .map(|(flow, (_, theta, _))| report(*flow, theta.get(), Some(ms(2 + u64::from(n)))))
                .collect();
            if round % 10 == u64::from(n) {
                self.throw(true, path(n), hello);
                self.throw(true, path(n), Control::Controller(ToController::Hold(holding(1))));
            }
            if round.is_multiple_of(5) {
                reports.into_iter().for_each(|report| self.throw(true, path(n), report));
            }
        }
        for n in RECEIVERS {
            let receiver = &self.receivers[&n];
            let (task, version) = (receiver.task, receiver.version);
            // A flow delivers if its source runs it.
            let runs = |flow: &FlowId| self.sources.values().any(|s| s.flows.get(flow).is_some_and(|f| !f.2));
            let views = receiver.flows.iter().map(|flow| match runs(flow) {
                true => delivering(*flow, 8_000_000),
                false => headwater_wire::FlowView { silent: ms(2_000), ..delivering(*flow, 0) },
            });
            let flows = views.collect();
            match task {
                _ if receiver.gone => {}
                None if round.is_multiple_of(5) && !receiver.leaving => {
                    let request = request(n, receiver.number, "object-1");
                    self.throw(true, path(n), Control::Controller(ToController::Request(request)));
                }
                None => {}
                Some(task) if receiver.leaving => {
                    self.throw(
                        true,
                        path(n),
                        Control::Controller(ToController::Fin { task, outcome: Outcome::Done }),
                    );
                }
                Some(task) => {
                    let needed = Symbols::new(100 * u64::from(n));
                    let first_undecoded = BlockIndex(0);
                    let feedback = Control::Controller(ToController::Feedback {
                        task,
                        first_undecoded,
                        needed,
                        flows_version: version,
                        flows,
                        held_up: false,
                    });
                    self.throw(true, path(n), feedback);
                }
            }
        }
        // Now and then something breaks.
        if !self.calm && self.dice.roll(12) == 0 {
            match self.dice.roll(8) {
                0 => self.restart_controller(),
                1..=3 => {
                    let n = SOURCES[self.dice.roll(5) as usize];
                    let life = self.sources[&n].life + 1;
                    self.sources.insert(n, FakeSource { life, ..Default::default() });
                }
                _ => {
                    let n = SOURCES[self.dice.roll(5) as usize];
                    self.tell(Input::Command(ControllerCommand::PathLost { path: path(n) }));
                }
            }
        }
    }

    fn restart_controller(&mut self) {
        let seed = [self.dice.at as u8; 32];
        self.controller = Controller::new(ControllerConfig::default(), seed);
        self.tell(Input::Command(ControllerCommand::Returned));
        for record in self.records.clone().into_values() {
            self.tell(Input::Command(ControllerCommand::Restore(Box::new(record))));
        }
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        let mut next_tick = self.now;
        while self.now < end {
            let next = [self.air.due(), self.wake].into_iter().flatten().fold(next_tick, Time::min);
            self.now = self.now.max(next);
            if next == next_tick {
                next_tick += ms(100);
                self.tick(self.now.as_nanos() / 100_000_000);
            }
            self.drain();
            while self.air.due().is_some_and(|at| at <= self.now) {
                let (to_controller, path, control) = self.air.pop().expect("it is due");
                self.deliver(to_controller, path, control);
            }
        }
    }

    /// Controller, receivers and sources mean the same flows, and the same weights.
    fn assert_agreement(&self) {
        let view = self.controller.view(self.now);
        let mut expected: BTreeMap<NodeId, BTreeSet<FlowId>> = BTreeMap::new();
        for (n, receiver) in &self.receivers {
            let task = view.tasks.iter().filter(|t| t.receiver == node(*n)).collect::<Vec<_>>();
            if receiver.gone {
                assert!(task.is_empty(), "receiver {n} is through");
                continue;
            }
            assert_eq!(task.len(), 1, "receiver {n} has one task");
            assert_eq!(Some(task[0].task), receiver.task);
            let flows: BTreeSet<FlowId> = task[0].flows.iter().map(|f| f.flow).collect();
            assert_eq!(flows, receiver.flows, "receiver {n} knows its flows");
            assert_eq!(flows.len(), 3, "all holders are here");
            for flow in &task[0].flows {
                assert_eq!(flow.standing, FlowStanding::Pushing);
                let (task_there, theta, paused) = self.sources[&flow.node.0[0]].flows[&flow.flow];
                assert_eq!((task_there, paused), (task[0].task, false));
                // The theta that a source reports counts as the same up to this (it is not told again).
                let (there, here) = (theta.get(), flow.theta.get());
                assert!((there - here).abs() <= SAME_THETA * here, "{there} at the source, {here} here");
                expected.entry(flow.node).or_default().insert(flow.flow);
            }
        }
        for (n, source) in &self.sources {
            let flows: BTreeSet<FlowId> = source.flows.keys().copied().collect();
            assert_eq!(
                flows,
                expected.remove(&node(*n)).unwrap_or_default(),
                "source {n} runs its flows only"
            );
        }
    }
}

/// By how much a weight may differ from what the controller means, of that, without being said again.
const SAME_THETA: f64 = 1e-9;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn after_chaos_everybody_agrees_and_after_the_end_nothing_is_left(
        faces in prop::collection::vec(any::<u8>(), 1..200), seconds in 1u64..20,
    ) {
        let mut world = World::new(faces);
        world.run(Duration::from_secs(seconds));
        world.calm = true;
        // Barred sources return after 10 s, orders are said again at least every 8 s; an orphaned task takes 60 s.
        world.run(Duration::from_secs(90));
        world.assert_agreement();
        world.calm = false;
        world.receivers.values_mut().for_each(|r| r.leaving = true);
        world.run(Duration::from_secs(3));
        world.calm = true;
        world.run(Duration::from_secs(30));
        prop_assert!(world.receivers.values().all(|r| r.gone));
        world.assert_agreement();
        prop_assert!(world.records.is_empty());
    }

    #[test]
    fn the_same_inputs_at_the_same_times_give_the_same_outputs(faces in prop::collection::vec(any::<u8>(), 1..50)) {
        let logs = [(); 2].map(|()| {
            let mut world = World::new(faces.clone());
            world.run(Duration::from_secs(5));
            world.log
        });
        prop_assert!(logs[0].len() > 100);
        prop_assert_eq!(&logs[0], &logs[1]);
    }
}
