//! Reports of sources about the flows of tasks.

use headwater_units::{FlowId, NodeId, TaskId};
use headwater_wire::{Delivery, FlowReport, Refusal, ToSource};

use super::Deliveries;
use crate::catalog::Catalog;
use crate::selection::{FlowPlan, Placement};
use crate::tasks::{Flow, FlowState};
use crate::turn::Turn;

/// A weight is as told if it differs by no more than this, relatively; it travels as an exact number.
const SAME_THETA: f64 = 1e-9;
/// How fast a flow's round-trip time follows its reports, which are smoothed themselves: 1/4.
const RTT_GAIN: f64 = 0.25;

impl Deliveries {
    /// A source says that it has a flow, which is confirmed by that. `None` if it is another's, or of no task: then it is stopped.
    fn confirm(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        node: NodeId,
        flow: FlowId,
    ) -> Option<&mut Flow> {
        let Some(id) = self.tasks.of_flow(flow) else {
            self.stop_unknown(turn, catalog, node, flow);
            return None;
        };
        let flow = self.tasks.flow_mut(flow)?;
        if flow.facts.node != node {
            turn.stats.strangers += 1;
            return None;
        }
        self.agenda.touched.insert(id);
        if let FlowState::Offered { since, .. } = flow.state {
            self.answers.on_answer(turn.now.since(since));
            flow.state = FlowState::Pushing;
        }
        Some(flow)
    }

    /// A source pushes, as it was told.
    pub(crate) fn pushing(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, node: NodeId, flow: FlowId) {
        self.confirm(turn, catalog, node, flow);
    }

    /// A source does not push.
    pub(crate) fn push_refused(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &mut Catalog,
        (node, flow): (NodeId, FlowId),
        reason: &Refusal,
    ) {
        self.endings.forget(turn, node, flow);
        let Some(task) = self.tasks.of_flow(flow).and_then(|id| self.tasks.get_mut(id)) else { return };
        if task.flow_mut(flow).is_none_or(|its| its.facts.node != node) {
            turn.stats.strangers += 1;
            return;
        }
        turn.stats.pushes_refused += 1;
        task.barred.insert(node, turn.now + turn.config.bar);
        let (id, object) = (task.id(), task.facts.object);
        if matches!(reason, Refusal::Gone | Refusal::UnknownObject) {
            catalog.unhold(node, object);
            self.overlays.lose(object, node);
        }
        self.close_flow(turn, catalog, flow, false);
        self.agenda.changed.insert(id);
        if matches!(reason, Refusal::Unscheduled(_)) {
            self.pull_instead(turn, catalog, id, None);
        }
    }

    /// A task that came at computed rates goes on by pulls, with what it has: as one of a group, or else from nodes
    /// that can serve it.
    pub(crate) fn pull_instead(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        id: TaskId,
        place: Option<Placement>,
    ) {
        let initial_window = turn.config.cast_window;
        let Some(task) = self.tasks.get_mut(id) else { return };
        if !matches!(task.facts.delivery, Delivery::Rate { .. }) {
            return;
        }
        task.facts.delivery = Delivery::Pull { initial_window };
        task.anew = Some(task.facts.flows_version.saturating_add(1));
        task.barred.clear();
        task.classes_used.clear();
        let before: Vec<FlowId> = task.flows.iter().map(|flow| flow.facts.flow).collect();
        before.into_iter().for_each(|flow| self.close_flow(turn, catalog, flow, true));
        if let Some(Placement::Group { node, flow, group, .. }) = place {
            let plan = FlowPlan { group: Some(group), ..FlowPlan::of_source(node, 0) };
            self.open_flow_as(turn, catalog, id, flow, (plan, None));
        }
        turn.stats.tasks_unscheduled += 1;
        self.agenda.changed.insert(id);
    }

    /// A source has ended a flow, told or not.
    pub(crate) fn stopped(&mut self, turn: &mut Turn<'_>, node: NodeId, flow: FlowId) {
        self.endings.forget(turn, node, flow);
        let (Some(id), Some(entry)) = (self.tasks.of_flow(flow), self.tasks.flow_mut(flow)) else { return };
        if entry.facts.node != node {
            turn.stats.strangers += 1;
        } else if !entry.is_over() {
            entry.state = FlowState::Over { replace_after: turn.now + turn.config.silent_limit };
            self.agenda.touched.insert(id);
        }
    }

    /// A source's report on a flow.
    pub(crate) fn report(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        node: NodeId,
        report: FlowReport,
    ) {
        let Some(flow) = self.confirm(turn, catalog, node, report.flow) else { return };
        if let Some(rtt) = report.rtt {
            flow.rtt = Some(flow.rtt.map_or(rtt, |old| old.mul_f64(1.0 - RTT_GAIN) + rtt.mul_f64(RTT_GAIN)));
        }
        let misheard = (report.theta.get() - flow.theta.get()).abs() > SAME_THETA * flow.theta.get();
        let again = misheard && flow.pushed && turn.now >= flow.told + turn.config.retry_first;
        let (id, theta) = (report.flow, flow.theta);
        flow.report = Some(report);
        if again {
            flow.told = turn.now;
            turn.tell(node, ToSource::SetTheta { flow: id, theta });
        }
    }
}
