//! Groups of receivers, whose members have flows of their own: what a member says to its group, and what becomes of a group's members.

use std::collections::BTreeMap;

use headwater_units::{FlowId, PathId, Time};
use headwater_wire::{Body, MAX_FLOWS, Refusal, ToController, TransferReport};

use super::{Source, SourceEvent};
use crate::WhyFallback;
use crate::transports::Flow;

impl Source {
    /// A flow has heard this, and its group may be concerned.
    #[inline]
    pub(super) fn tell_groups(&mut self, now: Time, flow: FlowId, body: &Body) {
        if let Some(group) = self.common.rate.answered.take() {
            self.with_flow(group, |f, common, _| {
                if let Flow::Rate(f) = f {
                    f.on_member(now, flow, body, &mut common.shared, &mut common.rate);
                }
            });
        }
        if let Some((flow, why)) = self.common.rate.fell_back.take() {
            self.fall_back(flow, why);
        }
        if let Some((group, says)) = self.common.pull.says.take() {
            self.with_flow(group, |f, common, _| {
                if let Flow::Pull(f) = f {
                    f.on_member(flow, &says, &mut common.shared);
                }
            });
            self.tell_detached(now);
        }
    }

    /// A scheduled flow sends nothing more, as its network does not compute rates. The controller is to find another transport.
    fn fall_back(&mut self, flow: FlowId, why: WhyFallback) {
        self.event(SourceEvent::FellBack { flow, why });
        if let Some(controller) = self.flows.get(&flow).map(|held| held.controller) {
            self.refuse(controller, flow, Refusal::Unscheduled(why.to_wire()));
        }
    }

    /// Tells controllers how scheduled transfers do.
    pub(super) fn report_transfers(&mut self, now: Time) {
        let mut by_controller: BTreeMap<PathId, Vec<TransferReport>> = BTreeMap::new();
        for held in self.flows.values() {
            if let Flow::Rate(flow) = &held.flow
                && let Some(report) = flow.report(now)
            {
                by_controller.entry(held.controller).or_default().push(report);
            }
        }
        for (path, reports) in by_controller {
            for transfers in reports.chunks(MAX_FLOWS) {
                self.tell(path, ToController::Transfers { transfers: transfers.to_vec() });
            }
        }
    }

    /// Groups have gone on without some of their members.
    #[inline]
    pub(super) fn tell_detached(&mut self, now: Time) {
        while let Some(flow) = self.common.shared.detached.pop() {
            self.with_flow(flow, |f, common, _| f.detach(now, &mut common.shared));
        }
    }

    /// A member of a group is gone; the group's flow goes with the last one.
    pub(super) fn leave(&mut self, now: Time, group: FlowId, member: FlowId) {
        let mut is_empty = false;
        if self.flows.contains_key(&group) {
            self.with_flow(group, |f, _, _| is_empty = f.on_leave(now, member));
        }
        if is_empty && let Some(controller) = self.close(now, group) {
            self.tell(controller, ToController::Stopped { flow: group });
        }
    }
}
