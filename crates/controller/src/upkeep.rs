//! What is done without being asked: orders said again, tasks kept, told, paused and given up, weights planned.

use headwater_units::{FlowId, NodeId, TaskId, Time};
use headwater_wire::{FlowRole, Outcome, Push, ToReceiver, ToSource};

use super::tasks::{FlowState, Pace, Retry, Task};
use super::timers::Subject;
use super::{Controller, Ending, offered};

impl Controller {
    /// Brings everything that the last input or timer touched into order: facts kept and told, weights planned, tasks
    /// looked after. Afterwards nothing is due before the timers say so.
    pub(super) fn settle(&mut self, now: Time) {
        loop {
            while let Some(id) = self.changed.pop_first() {
                self.refill(now, id); // Whatever it changes belongs into the same version.
                self.changed.remove(&id);
                self.announce(now, id);
            }
            if self.plan_due {
                self.plan(now);
            }
            match self.touched.pop_first() {
                Some(id) => self.tick_task(now, id),
                None if self.changed.is_empty() && !self.plan_due => return,
                None => {}
            }
        }
    }

    /// The facts of a task have changed: keep them, and tell the receiver its flows.
    fn announce(&mut self, now: Time, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.version = task.version.saturating_add(1);
        task.list = Some(Retry::at(now, self.config.retry_first));
        self.persist(id);
        self.touched.insert(id);
        self.plan_due = true;
    }

    /// Looks after one task, and sets its next wake-up.
    fn tick_task(&mut self, now: Time, id: TaskId) {
        let config = &self.config;
        let Some(task) = self.tasks.get_mut(id) else { return };
        if now >= task.heard + config.receiver_gone {
            self.end_task(now, id, Outcome::Failed);
            return;
        }
        if now >= task.heard + config.receiver_silent && !task.is_paused() {
            task.pace = Pace::Paused { said: Retry::at(now, config.retry_first) };
            // What it said last is no measurement of the present.
            for view in task.flows.iter_mut().filter_map(|flow| flow.view.as_mut()) {
                (view.rate, view.silent) = Default::default();
            }
            self.stats.pauses += 1;
            self.plan_due = true;
        }
        task.barred.retain(|_, until| *until > now);
        self.refill(now, id);
        self.reorder_silent(now, id);
        self.say_due(now, id);
        let deadline = self.tasks.get(id).map(|task| self.deadline(now, task));
        self.timers.set(Subject::Task(id), deadline);
    }

    /// A flow that stays silent with nobody to take its place is ordered anew, now and then: its source may have lost
    /// it, or our word to go on.
    fn reorder_silent(&mut self, now: Time, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id).filter(|task| !task.is_paused()) else { return };
        for flow in &mut task.flows {
            let again = now >= flow.reordered + self.config.retry_longest;
            if matches!(flow.state, FlowState::Pushing) && flow.silent() > self.config.silent_limit && again {
                flow.reordered = now;
                flow.state = offered(now, &self.config);
                task.pace = Pace::Resuming { said: Retry::at(now, self.config.retry_first), times: 1 };
                self.stats.flows_reordered += 1;
            }
        }
    }

    /// Says whatever of a task is due to be said.
    fn say_due(&mut self, now: Time, id: TaskId) {
        let longest = self.config.retry_longest;
        let Some(task) = self.tasks.get_mut(id) else { return };
        // Where it is known how a flow may begin, its receiver need not be asked whether it is where it says.
        let proven = self.registry.node(task.receiver).map(|node| node.info.proven()).unwrap_or_default();
        let mut says: Vec<(NodeId, ToSource)> = Vec::new();
        for flow in &mut task.flows {
            let FlowState::Offered { push, .. } = &mut flow.state else { continue };
            if !push.fire(now, longest) {
                continue;
            }
            (flow.pushed, flow.told) = (true, now);
            says.push((
                flow.facts.node,
                ToSource::Push(Push {
                    task: id,
                    flow: flow.facts.flow,
                    object: task.object,
                    bytes: task.bytes,
                    symbol_size: task.symbol_size,
                    key: flow.facts.key,
                    theta: flow.theta,
                    class: task.class,
                    receiver: task.receiver,
                    delivery: task.delivery,
                    index: flow.facts.index,
                    of: task.classes,
                    at: flow.start.map_or_else(Vec::new, |_| proven.clone()),
                    start: flow.start,
                    role: match &flow.facts.group {
                        None if flow.facts.relays => FlowRole::Relay,
                        None => FlowRole::Single,
                        Some(group) => FlowRole::Member { group: group.flow },
                    },
                }),
            ));
        }
        let flows = || task.flows.iter().map(|flow| (flow.facts.node, flow.facts.flow));
        match &mut task.pace {
            Pace::Running => {}
            Pace::Paused { said } => {
                if said.fire(now, longest) {
                    says.extend(flows().map(|(node, flow)| (node, ToSource::Pause { flow })));
                }
            }
            Pace::Resuming { said, times } => {
                if said.fire(now, longest) {
                    says.extend(flows().map(|(node, flow)| (node, ToSource::Resume { flow })));
                    *times -= 1;
                    if *times == 0 {
                        task.pace = Pace::Running;
                    }
                }
            }
        }
        let list = task.list.as_mut().is_some_and(|list| list.fire(now, longest));
        if let (true, Some(path)) = (list, task.path) {
            let task = self.tasks.get(id).expect("looked up above");
            match task.anew {
                Some(_) => self.accept(path, id),
                None => {
                    let flows =
                        ToReceiver::Flows { task: id, version: task.version, flows: self.grants(task) };
                    self.send(path, flows);
                }
            }
        }
        says.into_iter().for_each(|(node, control)| self.send_to(node, control));
    }

    /// When a task needs to be looked after next, if nothing happens before.
    fn deadline(&self, now: Time, task: &Task) -> Time {
        let config = &self.config;
        let mut next = task.heard + config.receiver_gone;
        let mut at = |time: Time| {
            if time > now {
                next = next.min(time);
            }
        };
        at(task.heard + config.receiver_silent);
        match task.pace {
            Pace::Running => {}
            Pace::Paused { said } | Pace::Resuming { said, .. } => at(said.due()),
        }
        task.list.iter().for_each(|list| at(list.due()));
        task.barred.values().for_each(|until| at(*until));
        for flow in &task.flows {
            match flow.state {
                FlowState::Offered { since, push } => {
                    at(push.due());
                    at(since + config.silent_limit);
                }
                FlowState::Away { replace_after } | FlowState::Over { replace_after } => at(replace_after),
                FlowState::Pushing => {}
            }
        }
        next
    }

    /// Plans all weights (PPUSH Alg. 1) and tells those that changed; in a moment, if the last plan is very young.
    fn plan(&mut self, now: Time) {
        self.plan_due = false;
        if let Some(next) = self.planned.map(|last| last + self.config.replan_gap).filter(|next| *next > now)
        {
            self.timers.set(Subject::Plan, Some(next));
            return;
        }
        self.planned = Some(now);
        self.stats.plans += 1;
        let weights = match self.config.fixed_theta {
            Some(theta) => {
                let flows = self.tasks.iter().flat_map(|task| &task.flows);
                flows.map(|flow| (flow.facts.flow, theta)).collect()
            }
            None => self.planner.weights(now, &self.tasks, &self.registry, &self.config),
        };
        for (id, theta) in weights {
            let flow = self.tasks.flow_mut(id).expect("only known flows are planned");
            if !flow.pushed {
                flow.theta = theta; // The first Push will tell it.
            } else if (theta.get() - flow.theta.get()).abs() > self.config.theta_step * flow.theta.get() {
                (flow.theta, flow.told) = (theta, now);
                let node = flow.facts.node;
                self.stats.thetas_told += 1;
                self.send_to(node, ToSource::SetTheta { flow: id, theta });
            }
        }
        let running = self.tasks.iter().any(|task| !task.is_paused());
        self.timers.set(Subject::Plan, running.then(|| now + self.config.replan_every));
    }

    /// Has a source stop a flow, now or when it is back.
    pub(super) fn stop_flow(&mut self, now: Time, node: NodeId, flow: FlowId, incarnation: u64) {
        if self.ending.len() >= self.config.max_ending {
            self.stats.stops_given_up += 1;
            self.send_to(node, ToSource::Stop { flow });
            return;
        }
        let stop = Retry::at(now, self.config.retry_first);
        self.ending.insert((node, flow), Ending { incarnation, stop, until: now + self.config.stop_for });
        self.tick_ending(now, node, flow);
    }

    /// Looks after a flow that is being stopped, and sets its next wake-up.
    pub(super) fn tick_ending(&mut self, now: Time, node: NodeId, flow: FlowId) {
        let here = self.registry.path_of(node).is_some();
        let Some(ending) = self.ending.get_mut(&(node, flow)) else { return };
        if now >= ending.until {
            self.forget_ending(node, flow);
            self.stats.stops_given_up += 1;
            return;
        }
        let say = here && ending.stop.fire(now, self.config.retry_longest);
        let next = if here { ending.stop.due().min(ending.until) } else { ending.until };
        self.timers.set(Subject::Ending(node, flow), Some(next));
        if say {
            self.send_to(node, ToSource::Stop { flow });
        }
    }

    pub(super) fn forget_ending(&mut self, node: NodeId, flow: FlowId) {
        if self.ending.remove(&(node, flow)).is_some() {
            self.timers.set(Subject::Ending(node, flow), None);
        }
    }

    /// The flows that are being stopped at a node.
    pub(super) fn endings_of(&self, node: NodeId) -> impl Iterator<Item = FlowId> + '_ {
        let flows = (node, FlowId(0))..=(node, FlowId(u64::MAX));
        self.ending.range(flows).map(|((_, flow), _)| *flow)
    }
}
