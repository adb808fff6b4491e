//! Periodic work on tasks: orders are repeated, tasks are stored, paused and given up.

use headwater_units::{NodeId, TaskId, Time};
use headwater_wire::{FlowRole, Outcome, Push, ToReceiver, ToSource};

use super::requests::{accept, persist};
use super::{Deliveries, offered};
use crate::ControllerConfig;
use crate::catalog::Catalog;
use crate::retry::Retry;
use crate::tasks::{Flow, FlowState, Pace, Task};
use crate::timers::Subject;
use crate::turn::Turn;

impl Deliveries {
    /// Keeps and tells the facts of tasks that have changed. Whatever a refill changes belongs into the same version.
    pub(super) fn announce_changed(&mut self, turn: &mut Turn<'_>, catalog: &Catalog) {
        while let Some(id) = self.agenda.changed.pop_first() {
            self.refill(turn, catalog, id);
            self.agenda.changed.remove(&id);
            let Some(task) = self.tasks.get_mut(id) else { continue };
            task.facts.flows_version = task.facts.flows_version.saturating_add(1);
            task.list = Some(turn.retry());
            persist(turn, task);
            self.agenda.touched.insert(id);
            self.agenda.plan = true;
        }
    }

    /// Looks after one task, and sets its next wake-up.
    pub(super) fn tick_task(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, id: TaskId) {
        let (now, config) = (turn.now, turn.config);
        let Some(task) = self.tasks.get_mut(id) else { return };
        if now >= task.heard + config.receiver_gone {
            self.end_task(turn, catalog, id, Outcome::Failed);
            return;
        }
        if now >= task.heard + config.receiver_silent && !task.is_paused() {
            task.pace = Pace::Paused { said: turn.retry() };
            // Its last report is no measurement of the present.
            for view in task.flows.iter_mut().filter_map(|flow| flow.view.as_mut()) {
                (view.rate, view.silent) = Default::default();
            }
            turn.stats.pauses += 1;
            self.agenda.plan = true;
        }
        task.barred.retain(|_, until| *until > now);
        self.refill(turn, catalog, id);
        let Some(task) = self.tasks.get_mut(id) else { return };
        reorder_silent(turn, task);
        say_due(turn, catalog, task);
        turn.wake(Subject::Task(id), Some(deadline(now, config, task)));
    }
}

/// A flow that stays silent with nobody to take its place is ordered anew, now and then: its source may have lost
/// it, or our word to go on.
fn reorder_silent(turn: &mut Turn<'_>, task: &mut Task) {
    if task.is_paused() {
        return;
    }
    let (now, config) = (turn.now, turn.config);
    for flow in &mut task.flows {
        let again = now >= flow.reordered + config.retry_longest;
        if matches!(flow.state, FlowState::Pushing) && flow.silent() > config.silent_limit && again {
            flow.reordered = now;
            flow.state = offered(now, config);
            task.pace = Pace::Resuming { said: Retry::at(now, config.retry_first), times: 1 };
            turn.stats.flows_reordered += 1;
        }
    }
}

/// Says whatever of a task is due to be said: its list of flows to its receiver, and each flow to its source.
fn say_due(turn: &mut Turn<'_>, catalog: &Catalog, task: &mut Task) {
    let (now, longest) = (turn.now, turn.config.retry_longest);
    let mut says: Vec<(NodeId, ToSource)> = Vec::new();
    for place in 0..task.flows.len() {
        let flow = &mut task.flows[place];
        let FlowState::Offered { push, .. } = &mut flow.state else { continue };
        if push.fire(now, longest) {
            (flow.pushed, flow.told) = (true, now);
            let flow = &task.flows[place];
            says.push((flow.facts.node, ToSource::Push(order(catalog, task, flow))));
        }
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
        match task.anew {
            Some(_) => accept(turn, path, task),
            None => {
                let (version, flows) = (task.facts.flows_version, task.grants());
                turn.answer(path, ToReceiver::Flows { task: task.id(), version, flows });
            }
        }
    }
    says.into_iter().for_each(|(node, control)| turn.tell(node, control));
}

/// Order to push, for the source of a flow.
fn order(catalog: &Catalog, task: &Task, flow: &Flow) -> Push {
    // A receiver whose connection has proved its address need not be asked.
    let proven = catalog.node(task.facts.receiver).map(|node| node.info.proven()).unwrap_or_default();
    Push {
        task: task.id(),
        flow: flow.facts.flow,
        object: task.facts.object,
        bytes: task.facts.bytes,
        symbol_size: task.facts.symbol_size,
        key: flow.facts.key,
        theta: flow.theta,
        class: task.facts.class,
        receiver: task.facts.receiver,
        delivery: task.facts.delivery,
        index: flow.facts.index,
        of: task.facts.residue_classes,
        at: proven,
        start: flow.start,
        role: match &flow.facts.group {
            None if flow.facts.relays => FlowRole::Relay,
            None => FlowRole::Single,
            Some(group) => FlowRole::Member { group: group.flow },
        },
    }
}

/// When a task needs to be looked after next, if nothing happens before.
fn deadline(now: Time, config: &ControllerConfig, task: &Task) -> Time {
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
    task.barred.values().chain(&task.mend_at).for_each(|time| at(*time));
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
