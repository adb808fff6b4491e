//! What sources say of the flows of tasks.

use headwater_units::{FlowId, NodeId, Time};
use headwater_wire::{FlowReport, Refusal, ToSource};

use super::Controller;
use super::tasks::FlowState;

/// A weight is as told if it differs by no more than this, relatively; it travels as an exact number.
const SAME_THETA: f64 = 1e-9;
/// How fast a flow's round-trip time follows its reports, which are smoothed themselves: 1/4.
const RTT_GAIN: f64 = 0.25;

impl Controller {
    pub(super) fn confirm(&mut self, flow: FlowId) {
        self.touched.extend(self.tasks.of_flow(flow));
        let flow = self.tasks.flow_mut(flow).expect("checked to be the node's");
        if let FlowState::Offered { .. } = flow.state {
            flow.state = FlowState::Pushing;
        }
    }

    pub(super) fn push_refused(&mut self, now: Time, node: NodeId, flow: FlowId, reason: Refusal) {
        self.forget_ending(node, flow);
        let Some(id) = self.tasks.of_flow(flow) else { return };
        if self.tasks.flow(flow).is_none_or(|f| f.facts.node != node) {
            self.stats.strangers += 1;
            return;
        }
        self.stats.pushes_refused += 1;
        let task = self.tasks.get_mut(id).expect("a flow belongs to a task");
        task.barred.insert(node, now + self.config.bar);
        let object = task.object;
        if matches!(reason, Refusal::Gone | Refusal::UnknownObject) {
            self.registry.unhold(node, object);
        }
        self.close_flow(now, flow, false);
        self.changed.insert(id);
    }

    pub(super) fn stopped(&mut self, now: Time, node: NodeId, flow: FlowId) {
        self.forget_ending(node, flow);
        let Some(entry) = self.tasks.flow_mut(flow) else { return };
        if entry.facts.node != node {
            self.stats.strangers += 1;
        } else if !matches!(entry.state, FlowState::Over { .. }) {
            entry.state = FlowState::Over { replace_after: now + self.config.silent_limit };
            self.touched.extend(self.tasks.of_flow(flow));
        }
    }

    pub(super) fn report(&mut self, now: Time, node: NodeId, report: FlowReport) {
        if !self.is_flow_of(now, node, report.flow) {
            return;
        }
        self.confirm(report.flow);
        let flow = self.tasks.flow_mut(report.flow).expect("checked to be the node's");
        if let Some(rtt) = report.rtt {
            flow.rtt = Some(flow.rtt.map_or(rtt, |old| old.mul_f64(1.0 - RTT_GAIN) + rtt.mul_f64(RTT_GAIN)));
        }
        let misheard = (report.theta.get() - flow.theta.get()).abs() > SAME_THETA * flow.theta.get();
        let again = misheard && flow.pushed && now >= flow.told + self.config.retry_first;
        let (id, theta) = (report.flow, flow.theta);
        flow.report = Some(report);
        if again {
            flow.told = now;
            self.send_to(node, ToSource::SetTheta { flow: id, theta });
        }
    }

    /// Whether a flow is known and this node's. One that nobody knows any more is stopped.
    pub(super) fn is_flow_of(&mut self, now: Time, node: NodeId, flow: FlowId) -> bool {
        match self.tasks.flow(flow) {
            Some(known) if known.facts.node == node => true,
            Some(_) => {
                self.stats.strangers += 1;
                false
            }
            None => {
                let incarnation = self.registry.node(node).expect("it has a path").info.incarnation;
                if !self.ending.contains_key(&(node, flow)) {
                    self.stop_flow(now, node, flow, incarnation);
                }
                false
            }
        }
    }
}
