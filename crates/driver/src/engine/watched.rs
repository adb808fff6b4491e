//! What the data thread tells its timeline. Without one nothing here costs more than a look whether there is one.

use headwater_machine::{Endpoint, Input, Packet};
use headwater_transport::receiver::Receivers;
use headwater_transport::{ReceiverEvent, SourceCommand, SourceEvent};
use headwater_units::{FetchId, FlowId, Time};
use headwater_wire::{Body, Datagram};

use super::Engine;
use crate::receiving::{Fetches, Receiving};
use crate::timeline::Receives;

impl Engine {
    /// Looks at every flow if it is time to.
    pub(super) fn sample_if_due(&mut self, now: Time) {
        let Some(timeline) = self.timeline.as_mut().filter(|t| t.wake().is_some_and(|at| at <= now)) else {
            return;
        };
        timeline.sample(now, self.sources.taped.machine.flows(), all_receive(&self.fetches));
    }

    /// Hands the source machine an input.
    pub(super) fn hand_to_source(&mut self, now: Time, input: Input<SourceCommand>) {
        if self.timeline.is_some() && may_end_flows(&input) {
            // A sample that is due belongs before the last rows of what ends now.
            self.sample_if_due(now);
            if let Some(timeline) = &mut self.timeline {
                timeline.before_ending(self.sources.taped.machine.flows());
            }
        }
        self.sources.taped.handle(now, input);
    }

    pub(super) fn watch_source(&mut self, now: Time, event: &SourceEvent) {
        let Some(timeline) = &mut self.timeline else { return };
        match event {
            SourceEvent::Opened(_) => timeline.arm(now),
            SourceEvent::Closed { flow } => timeline.closed(now, *flow),
            SourceEvent::Prepare { .. } | SourceEvent::Release { .. } | SourceEvent::Wanted { .. } => {}
        }
    }

    pub(super) fn watch_receiver(&mut self, now: Time, id: FetchId, event: &ReceiverEvent) {
        let Some(timeline) = &mut self.timeline else { return };
        match event {
            ReceiverEvent::Bind(_) => timeline.arm(now),
            ReceiverEvent::Unbind { flow } => {
                self.sample_if_due(now);
                self.flow_received(now, id, *flow);
            }
            ReceiverEvent::Done | ReceiverEvent::Failed(_) => {
                self.sample_if_due(now);
                self.all_received(now, id);
            }
            _ => {}
        }
    }

    /// A flow is over before its task is.
    fn flow_received(&mut self, now: Time, id: FetchId, flow: FlowId) {
        let Fetches { taped, running, .. } = &self.fetches;
        let (Some(timeline), Some(receiving)) = (&mut self.timeline, running.get(&id)) else { return };
        if let Some(object) = receiving.watched() {
            let useful = taped.machine.useful_of_ended(id, flow).unwrap_or(0);
            timeline.received(now, std::iter::once(Receives { object, flow, useful }));
        }
    }

    /// A task is over.
    fn all_received(&mut self, now: Time, id: FetchId) {
        let Fetches { taped, running, .. } = &mut self.fetches;
        let (Some(timeline), Some(receiving)) = (&mut self.timeline, running.get_mut(&id)) else { return };
        timeline.received(now, receives(&taped.machine, id, receiving));
        receiving.over = true;
    }

    /// The process ends: the last rows of all that still flows.
    pub(super) fn end_timeline(&mut self, now: Time) {
        let Some(mut timeline) = self.timeline.take() else { return };
        let flowing = || self.sources.taped.machine.flows();
        timeline.before_ending(flowing());
        flowing().for_each(|flow| timeline.closed(now, flow.flow));
        timeline.received(now, all_receive(&self.fetches));
    }
}

fn all_receive(fetches: &Fetches) -> impl Iterator<Item = Receives> + '_ {
    let Fetches { taped, running, .. } = fetches;
    running.iter().flat_map(|(&id, receiving)| receives(&taped.machine, id, receiving))
}

fn receives<'a>(
    machine: &'a Receivers,
    id: FetchId,
    receiving: &Receiving,
) -> impl Iterator<Item = Receives> + use<'a> {
    let flows = receiving
        .watched()
        .map(|object| machine.useful(id).map(move |(flow, useful)| Receives { object, flow, useful }));
    flows.into_iter().flatten()
}

/// Everything but the most frequent inputs, of which it is certain that they do not.
fn may_end_flows(input: &Input<SourceCommand>) -> bool {
    !matches!(
        input,
        Input::Packet(Packet { datagram: Datagram { body: Body::Ack(_), .. }, .. })
            | Input::Command(SourceCommand::BlockReady { .. })
    )
}
