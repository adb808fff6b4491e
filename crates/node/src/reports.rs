//! Reports of the source on flows of large overlays, of which a controller wants few: all nodes together would say more than it can hear.
//!
//! A controller that wants few reports of a receiver says so when it grants its object. It then gets as few of what the node sends of
//! that object on. Nothing is decided by these: they are for those who look at a running cast, and they show a controller that has
//! started anew which flows there are.

use std::collections::BTreeMap;

use headwater_machine::Packet;
use headwater_units::{Duration, FlowId, ObjectId, Time};
use headwater_wire::{Body, Control, ToController, ToReceiver};

/// Longest reporting interval of a receiver that counts as one of few.
const OFTEN: Duration = Duration::from_millis(100);
/// Number of reports of a receiver for one report on the flow.
const RATIO: u64 = 10;
/// Number of objects to remember of which few reports are wanted.
const REMEMBERED: usize = 64;

/// Which reports leave.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// By object: the interval between reports on one of its flows.
    every: BTreeMap<ObjectId, Duration>,
    /// Flows of these objects, and when each is reported on next.
    next: BTreeMap<FlowId, (ObjectId, Time)>,
}

impl Reports {
    /// A receiver is told how often its controller wants to hear of it.
    pub(crate) fn on_receiver(&mut self, word: &ToReceiver) {
        let ToReceiver::Accepted { object, feedback_every, .. } = word else { return };
        if *feedback_every <= OFTEN {
            self.every.remove(object);
        } else {
            self.every.insert(*object, *feedback_every * RATIO);
            if self.every.len() > REMEMBERED {
                self.every.pop_first();
            }
        }
    }

    /// The source has a flow.
    pub(crate) fn opened(&mut self, now: Time, flow: FlowId, object: ObjectId) {
        self.next.insert(flow, (object, now));
    }

    /// The flow has ended.
    pub(crate) fn closed(&mut self, flow: FlowId) {
        if let Some((object, _)) = self.next.remove(&flow)
            && self.every.contains_key(&object)
            && self.next.values().all(|(its, _)| *its != object)
        {
            self.every.remove(&object);
        }
    }

    /// Whether there are reports that do not leave.
    #[inline]
    pub(crate) fn is_thinning(&self) -> bool {
        !self.every.is_empty()
    }

    /// Takes out of a report those flows of which no word is due. Whether anything is left to say.
    pub(crate) fn thin(&mut self, now: Time, packet: &mut Packet) -> bool {
        let Body::Control(control) = &mut packet.datagram.body else { return true };
        let Control::Controller(ToController::Report { flows }) = &mut **control else { return true };
        flows.retain(|report| {
            let Some((object, next)) = self.next.get_mut(&report.flow) else { return true };
            let Some(every) = self.every.get(object) else { return true };
            let is_due = now >= *next;
            if is_due {
                *next = now + *every;
            }
            is_due
        });
        !flows.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::{Bytes, Packets, PathId, Symbols, TaskId, Theta};
    use headwater_wire::{Delivery, FlowReport, MarkSignal};

    use super::*;

    const OBJECT: ObjectId = ObjectId([9; 32]);
    const OTHER: ObjectId = ObjectId([8; 32]);

    fn accepted(feedback_every: Duration) -> ToReceiver {
        let (request, task, version, flows) = (1, TaskId(1), 0, Vec::new());
        let (bytes, symbol_size, delivery) = (Bytes::mib(1), 1000, Delivery::Overlay { window: 6 });
        ToReceiver::Accepted {
            request,
            task,
            object: OBJECT,
            bytes,
            symbol_size,
            feedback_every,
            version,
            flows,
            delivery,
        }
    }

    fn reported(reports: &mut Reports, at: u64, flows: &[u64]) -> Vec<u64> {
        let report = |flow: &u64| FlowReport {
            flow: FlowId(*flow),
            theta: Theta::ONE,
            window: Packets::new(6.0),
            rtt: None,
            mark_fraction: 0.0,
            signal: MarkSignal::Unknown,
            lost: Symbols::ZERO,
            starved: false,
        };
        let word = ToController::Report { flows: flows.iter().map(report).collect() };
        let mut packet = Packet::control(PathId(1), word);
        let leaves = reports.thin(Time::ZERO + Duration::from_millis(at), &mut packet);
        let Body::Control(control) = packet.datagram.body else { unreachable!("it is one") };
        let Control::Controller(ToController::Report { flows }) = *control else { unreachable!("it is one") };
        assert_eq!(leaves, !flows.is_empty());
        flows.iter().map(|report| report.flow.0).collect()
    }

    #[test]
    fn flows_of_a_large_overlay_are_reported_on_seldom_and_all_others_as_ever() {
        let mut reports = Reports::default();
        reports.opened(Time::ZERO, FlowId(1), OBJECT);
        reports.opened(Time::ZERO, FlowId(2), OTHER);
        reports.on_receiver(&accepted(Duration::from_millis(100)));
        assert!(!reports.is_thinning(), "few receivers report as often");
        reports.on_receiver(&accepted(Duration::from_millis(500)));
        assert!(reports.is_thinning());
        assert_eq!(reported(&mut reports, 200, &[1, 2]), [1, 2], "the first word of each leaves");
        assert_eq!(reported(&mut reports, 400, &[1, 2]), [2]);
        assert_eq!(reported(&mut reports, 5_100, &[1]), []);
        assert_eq!(reported(&mut reports, 5_200, &[1, 2, 3]), [1, 2, 3]);
        reports.closed(FlowId(1));
        assert!(!reports.is_thinning());
    }
}
