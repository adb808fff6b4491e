//! Observers around the machines of this node: recordings, a last sample of flows before they end, deliberate loss, and the rows of the
//! timeline. When none of them is used, each costs one comparison.

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_transport::receiver::Receivers;
use headwater_transport::source::{FlowStats, Source};
use headwater_transport::{FromFetch, ReceiverEvent, SourceCommand, SourceEvent, ToFetch};
use headwater_units::{FetchId, FlowId, Time};
use headwater_wire::{Body, Datagram};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Engine;
use crate::Lossy;
use crate::receiving::{Fetches, Receiving};
use crate::tape::Taped;
use crate::timeline::{Ending, Receives};

/// The source.
pub(crate) struct SourceHere {
    taped: Taped<Source>,
    /// If a timeline wants to know.
    ending: Option<Ending>,
}

impl SourceHere {
    /// `watched`: there is a timeline.
    pub(crate) fn new(taped: Taped<Source>, watched: bool) -> Self {
        SourceHere { taped, ending: watched.then(Ending::default) }
    }

    #[inline]
    pub(super) fn machine(&self) -> &Source {
        &self.taped.machine
    }

    /// Packets of a flow that leave at once.
    #[inline]
    pub(super) fn quantum(&mut self, flow: FlowId) -> usize {
        self.taped.machine.quantum(flow) as usize
    }

    /// Last counters of a flow that has ended.
    fn ended(&mut self, flow: FlowId) -> Option<FlowStats> {
        self.ending.as_mut()?.take(flow)
    }
}

impl Endpoint for SourceHere {
    type Command = SourceCommand;
    type Event = SourceEvent;

    #[inline]
    fn handle(&mut self, now: Time, input: Input<SourceCommand>) {
        if let Some(ending) = self.ending.as_mut().filter(|_| may_end_flows(&input)) {
            ending.keep(self.taped.machine.flows());
        }
        self.taped.handle(now, input);
    }

    #[inline]
    fn poll(&mut self, now: Time) -> Output<SourceEvent> {
        self.taped.poll(now)
    }
}

/// Everything but the most frequent inputs, of which it is certain that they do not.
fn may_end_flows(input: &Input<SourceCommand>) -> bool {
    !matches!(
        input,
        Input::Packet(Packet { datagram: Datagram { body: Body::Ack(_), .. }, .. })
            | Input::Command(SourceCommand::BlockReady { .. })
    )
}

/// The receivers.
pub(crate) struct ReceiversHere {
    taped: Taped<Receivers>,
    lossy: Option<(ChaCha8Rng, f64)>,
    dropped: u64,
}

impl ReceiversHere {
    /// Receivers to which some symbols do not come, if asked for.
    pub(crate) fn new(taped: Taped<Receivers>, lossy: Option<Lossy>) -> Self {
        let lossy = lossy.map(|lossy| (ChaCha8Rng::seed_from_u64(lossy.seed), lossy.probability));
        ReceiversHere { taped, lossy, dropped: 0 }
    }

    #[inline]
    pub(super) fn machine(&self) -> &Receivers {
        &self.taped.machine
    }

    /// For its counters alone.
    pub(super) fn machine_mut(&mut self) -> &mut Receivers {
        &mut self.taped.machine
    }

    /// Symbols dropped on purpose.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Has everything in its record that was recorded so far.
    pub(super) fn flush(&mut self) {
        self.taped.flush();
    }
}

impl Endpoint for ReceiversHere {
    type Command = ToFetch;
    type Event = FromFetch;

    #[inline]
    fn handle(&mut self, now: Time, input: Input<ToFetch>) {
        if let Some((rng, probability)) = &mut self.lossy
            && let Input::Packet(Packet { datagram: Datagram { body, .. }, .. }) = &input
            && body.symbol().is_some()
            && rng.random_bool(*probability)
        {
            self.dropped += 1;
            return;
        }
        self.taped.handle(now, input);
    }

    #[inline]
    fn poll(&mut self, now: Time) -> Output<FromFetch> {
        self.taped.poll(now)
    }
}

impl Engine {
    /// Looks at every flow if it is time to: a sample that is due belongs before the last rows of what an input ends.
    #[inline]
    pub(super) fn sample_if_due(&mut self, now: Time) {
        let Some(timeline) = self.timeline.as_mut().filter(|t| t.wake().is_some_and(|at| at <= now)) else {
            return;
        };
        let receiving = all_receive(self.node.receivers().machine(), &self.fetches);
        timeline.sample(now, self.node.source().machine().flows(), receiving);
    }

    pub(super) fn watch_source(&mut self, now: Time, event: &SourceEvent) {
        let Some(timeline) = &mut self.timeline else { return };
        match event {
            SourceEvent::Opened(_) => timeline.arm(now),
            SourceEvent::Closed { flow } => {
                timeline.closed(now, *flow, self.node.source_mut().ended(*flow));
            }
            SourceEvent::Prepare { .. } | SourceEvent::Release { .. } | SourceEvent::FellBack { .. } => {}
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
        let (Some(timeline), Some(receiving)) = (&mut self.timeline, self.fetches.running.get(&id)) else {
            return;
        };
        if let Some(object) = receiving.watched() {
            let useful = self.node.receivers().machine().useful_of_ended(id, flow).unwrap_or(0);
            timeline.received(now, std::iter::once(Receives { object, flow, useful }));
        }
    }

    /// A task is over.
    fn all_received(&mut self, now: Time, id: FetchId) {
        let (Some(timeline), Some(receiving)) = (&mut self.timeline, self.fetches.running.get_mut(&id))
        else {
            return;
        };
        timeline.received(now, receives(self.node.receivers().machine(), id, receiving));
        receiving.over = true;
    }

    /// The process ends: the last rows of all that still flows.
    pub(super) fn end_timeline(&mut self, now: Time) {
        let Some(mut timeline) = self.timeline.take() else { return };
        for flow in self.node.source().machine().flows() {
            timeline.closed(now, flow.flow, Some(flow));
        }
        timeline.received(now, all_receive(self.node.receivers().machine(), &self.fetches));
    }
}

fn all_receive<'a>(machine: &'a Receivers, fetches: &'a Fetches) -> impl Iterator<Item = Receives> + use<'a> {
    fetches.running.iter().flat_map(|(&id, receiving)| receives(machine, id, receiving))
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
