//! Nodes that come, go and drop objects, and what that means for their flows.

use headwater_units::{FlowId, NodeId, ObjectId, PathId, TaskId, Time};
use headwater_wire::{NodeInfo, Outcome};

use super::tasks::{FlowState, Pace, Retry};
use super::{Controller, offered};
use crate::ControllerEvent;

impl Controller {
    pub(super) fn hello(&mut self, now: Time, path: PathId, info: NodeInfo) {
        let node = info.node;
        let tasks = &self.tasks;
        let busy = |node| tasks.load(node) > 0;
        let Some(greeting) = self.registry.greet(now, path, info.clone(), &self.config, busy) else {
            self.stats.nodes_refused += 1;
            return;
        };
        if let Some(other) = greeting.displaced {
            self.node_down(now, other);
        }
        if greeting.changed {
            self.planner.forget_topology();
        }
        let stops: Vec<FlowId> = self.endings_of(node).collect();
        for flow in stops {
            let ending = self.ending.get_mut(&(node, flow)).expect("listed just now");
            if ending.incarnation != info.incarnation {
                self.forget_ending(node, flow);
            } else if greeting.new_path {
                ending.stop = Retry::at(now, self.config.retry_first);
                self.tick_ending(now, node, flow);
            }
        }
        let flows: Vec<FlowId> = self.tasks.flows_of(node).collect();
        for flow in flows {
            let id = self.tasks.of_flow(flow).expect("flows and sources agree");
            self.touched.insert(id);
            let task = self.tasks.get_mut(id).expect("a flow belongs to a task");
            let entry = task.flows.iter_mut().find(|f| f.facts.flow == flow).expect("a task lists its flows");
            if entry.facts.incarnation != info.incarnation {
                self.close_flow(now, flow, false);
                self.changed.insert(id);
                continue;
            }
            if entry.at != info.data {
                entry.at.clone_from(&info.data);
                self.changed.insert(id);
            }
            let away = matches!(entry.state, FlowState::Away { .. });
            let open = matches!(entry.state, FlowState::Offered { .. } | FlowState::Pushing);
            if away || (open && greeting.new_path) {
                entry.state = offered(now, &self.config);
                // What was said of its pace may be lost with the old path.
                let anew = Retry::at(now, self.config.retry_first);
                match &mut task.pace {
                    Pace::Paused { said } => *said = anew,
                    pace => *pace = Pace::Resuming { said: anew, times: 2 },
                }
            }
        }
        if greeting.new_path {
            let held = self.tasks.wanted().filter(|object| self.registry.holds(node, *object));
            self.touched.extend(held.flat_map(|object| self.tasks.wanting(object)));
        }
        if greeting.new_path || greeting.changed {
            self.event(ControllerEvent::NodeUp(Box::new(info)));
        }
    }

    pub(super) fn path_lost(&mut self, now: Time, path: PathId) {
        self.forget_early(path);
        for task in self.tasks.iter_mut().filter(|task| task.path == Some(path)) {
            task.path = None;
        }
        if let Some(node) = self.registry.lose(now, path) {
            self.node_down(now, node);
        }
    }

    /// The process behind a path has ended, and said so: what it was fetching is over, where it was not invited to it. A cast waits
    /// for its receivers.
    pub(super) fn path_left(&mut self, now: Time, path: PathId) {
        let of_it = self.tasks.iter().filter(|task| task.path == Some(path));
        let asked = of_it.filter(|task| self.casts.of_request((task.receiver, task.request)).is_none());
        let over: Vec<TaskId> = asked.map(|task| task.id).collect();
        over.into_iter().for_each(|task| self.end_task(now, task, Outcome::Cancelled));
        self.path_lost(now, path);
    }

    /// Nothing can be said to a node any more. Its flows may go on, but others are taken instead where there are any.
    pub(super) fn node_down(&mut self, now: Time, node: NodeId) {
        let flows: Vec<FlowId> = self.tasks.flows_of(node).collect();
        for flow in flows {
            self.touched.extend(self.tasks.of_flow(flow));
            let flow = self.tasks.flow_mut(flow).expect("flows and sources agree");
            if matches!(flow.state, FlowState::Offered { .. } | FlowState::Pushing) {
                flow.state = FlowState::Away { replace_after: now };
            }
        }
        let stops: Vec<FlowId> = self.endings_of(node).collect();
        stops.into_iter().for_each(|flow| self.tick_ending(now, node, flow));
        self.event(ControllerEvent::NodeDown { node });
    }

    /// A node is about to stop. Its tasks go to others where there are any; those of which it is the only source it goes on with.
    pub(super) fn leaving(&mut self, node: NodeId) {
        self.registry.leaving(node);
        let tasks: Vec<_> = self.tasks.flows_of(node).filter_map(|flow| self.tasks.of_flow(flow)).collect();
        self.touched.extend(tasks);
    }

    pub(super) fn drop_object(&mut self, now: Time, node: NodeId, object: ObjectId) {
        self.registry.unhold(node, object);
        let flows: Vec<FlowId> = self.tasks.flows_of(node).collect();
        for flow in flows {
            let id = self.tasks.of_flow(flow).expect("flows and sources agree");
            if self.tasks.get(id).is_some_and(|task| task.object == object) {
                self.close_flow(now, flow, true);
                self.changed.insert(id);
            }
        }
    }

    /// A node that is away is not expected back: its flows are over, what only it held is unknown from now on, and so is the node.
    pub(super) fn forget_node(&mut self, now: Time, node: NodeId) {
        if self.registry.path_of(node).is_some() {
            self.stats.unexpected += 1;
            return;
        }
        let flows: Vec<FlowId> = self.tasks.flows_of(node).collect();
        for flow in flows {
            self.changed.extend(self.tasks.of_flow(flow));
            self.close_flow(now, flow, false);
        }
        let stops: Vec<FlowId> = self.endings_of(node).collect();
        stops.into_iter().for_each(|flow| self.forget_ending(node, flow));
        let tasks = &self.tasks;
        let names = self.registry.forget_with_objects(node, |object| tasks.wanting(object).next().is_some());
        names.into_iter().for_each(|record| self.event(ControllerEvent::NameChanged(Box::new(record))));
        self.planner.forget_topology();
        self.plan_due = true;
    }
}
