//! What receivers say (PPUSH §III-A): requests, feedback, distrust, and that they are through.

use headwater_units::{FlowId, NodeId, PathId, TaskId, Time};
use headwater_wire::{FlowView, Outcome, Request, Spoiled, ToController, ToReceiver};

use super::Controller;
use super::selection::Place;
use super::tasks::{FlowState, Pace, Retry};

impl Controller {
    pub(super) fn request(&mut self, now: Time, path: PathId, request: Request) {
        let key = (request.receiver, request.request);
        if let Some(id) = self.tasks.of_request(key.0, key.1) {
            if self.hear(now, path, id) {
                self.accept(path, id);
            }
            return;
        }
        if !self.is_from(path, request.receiver) {
            self.stats.strangers += 1;
            return;
        }
        if self.finished_set.contains(&key) {
            self.stats.requests_late += 1;
            return;
        }
        if self.casts.of_request(key).is_some() {
            return self.asked_for_cast(now, path, request);
        }
        if self.is_early(now, &request.name) {
            return self.hold_back(path, request.name.clone(), ToController::Request(request));
        }
        let (request, place) = self.joins(request);
        if let Some(id) = self.answer(now, path, &request, place)
            && let Some(task) = self.tasks.get(id)
        {
            self.watch_for_swarm(now, task.object);
        }
    }

    /// Makes a task of a request and says so, or why not.
    pub(super) fn answer(
        &mut self,
        now: Time,
        path: PathId,
        request: &Request,
        place: Option<Place>,
    ) -> Option<TaskId> {
        match self.begin(now, path, request, place) {
            Ok(id) => {
                self.stats.tasks_accepted += 1;
                self.persist(id);
                self.accept(path, id);
                self.touched.insert(id);
                self.plan_due = true;
                Some(id)
            }
            Err(reason) => {
                self.stats.requests_refused += 1;
                self.send(path, ToReceiver::Refused { request: request.request, reason });
                None
            }
        }
    }

    pub(super) fn accept(&mut self, path: PathId, id: TaskId) {
        let task = self.tasks.get(id).expect("accepted tasks are known");
        let accepted = ToReceiver::Accepted {
            request: task.request,
            task: id,
            object: task.object,
            bytes: task.bytes,
            symbol_size: task.symbol_size,
            feedback_every: self.config.feedback_every,
            version: task.version,
            flows: self.grants(task),
            delivery: task.delivery,
        };
        self.send(path, accepted);
    }

    /// The receiver of a task says something. False if there is no such task or the sender is somebody else.
    pub(super) fn hear(&mut self, now: Time, path: PathId, id: TaskId) -> bool {
        let Some(task) = self.tasks.get(id) else { return false };
        if !self.is_from(path, task.receiver) {
            self.stats.strangers += 1;
            return false;
        }
        let task = self.tasks.get_mut(id).expect("looked up just now");
        if let (true, Some(list)) = (task.path != Some(path), &mut task.list) {
            *list = Retry::at(now, self.config.retry_first);
        }
        (task.heard, task.path) = (now, Some(path));
        if task.is_paused() {
            task.pace = Pace::Resuming { said: Retry::at(now, self.config.retry_first), times: 4 };
            self.plan_due = true;
        }
        self.touched.insert(id);
        true
    }

    pub(super) fn feedback(&mut self, now: Time, id: TaskId, version: u32, views: &[FlowView]) {
        let config = &self.config;
        let task = self.tasks.get_mut(id).expect("heard of just now");
        if version == task.version {
            task.list = None;
        } else if version > task.version {
            // The record that we were restored from was older than what the receiver had been told.
            task.version = version;
            self.changed.insert(id);
        } else if task.list.is_none() {
            task.list = Some(Retry::at(now, config.retry_first));
        }
        task.anew = task.anew.filter(|anew| version < *anew);
        for view in views {
            let Some(flow) = task.flows.iter_mut().find(|f| f.facts.flow == view.flow) else { continue };
            let grown = flow.view.map_or(0, |before| before.bytes.get()) < view.bytes.get();
            flow.view = Some(*view);
            if grown && matches!(flow.state, FlowState::Offered { .. }) && flow.pushed {
                flow.state = FlowState::Pushing;
            }
        }
    }

    pub(super) fn distrust(&mut self, now: Time, path: PathId, id: TaskId, node: NodeId) {
        if !self.hear(now, path, id) {
            return;
        }
        let task = self.tasks.get_mut(id).expect("heard of just now");
        if task.distrusted.len() >= self.config.max_distrusted || !task.distrusted.insert(node) {
            return;
        }
        let flows: Vec<FlowId> =
            task.flows.iter().filter(|f| f.facts.node == node).map(|f| f.facts.flow).collect();
        flows.into_iter().for_each(|flow| self.close_flow(now, flow, true));
        self.registry.distrust(node);
        self.stats.distrusts += 1;
        self.changed.insert(id);
        self.give_up_spoiled(now, id, node, Spoiled::Wrong);
    }

    pub(super) fn fin(&mut self, now: Time, path: PathId, id: TaskId, outcome: Outcome) {
        let Some(task) = self.tasks.get(id) else {
            self.send(path, ToReceiver::FinAck { task: id });
            return;
        };
        let key = (task.receiver, task.request);
        if !self.hear(now, path, id) {
            return;
        }
        self.send(path, ToReceiver::FinAck { task: id });
        self.end_task(now, id, outcome);
        if self.config.max_finished > 0 && self.finished_set.insert(key) {
            self.finished.push_back(key);
            if self.finished.len() > self.config.max_finished {
                let oldest = self.finished.pop_front().expect("it is longer than its bound");
                self.finished_set.remove(&oldest);
            }
        }
    }
}
