//! Carries out the actions of the node.

use headwater_node::{NodeAction, SingleDatagram, To};
use headwater_transport::push::receiver::ReceiverStats;
use headwater_transport::{Bind, Opened, ReceiverCommand, ReceiverEvent, SourceCommand, SourceEvent};
use headwater_udp::PathAddr;
use headwater_units::{FetchId, SymbolId, Time};
use headwater_wire::{Class, Ecn};

use super::jobs::Outcome;
use super::parcel::Copy;
use super::{Engine, NodeEvent};
use crate::receiving::FetchEvent;

impl Engine {
    /// Has the node say all that it has to say.
    pub(super) fn drive(&mut self, now: Time) {
        while let Some(action) = self.node.poll(now, self.sockets.room(false)) {
            self.act(now, action, None);
        }
    }

    /// The same after a datagram with this payload, when more may follow.
    #[inline]
    pub(super) fn drive_with(&mut self, now: Time, payload: &[u8]) {
        while let Some(action) = self.node.poll(now, self.sockets.room(true)) {
            self.act(now, action, Some(payload));
        }
    }

    /// Carries out the frequent actions; the rest is out of line.
    #[inline(always)]
    fn act(&mut self, now: Time, action: NodeAction<Copy, PathAddr>, payload: Option<&[u8]>) {
        match action {
            NodeAction::Transmit { packet, .. } => self.transmit(packet),
            NodeAction::Keep { fetch, symbol, parcel: None, .. } => {
                let payload = payload.expect("a symbol is named right after its datagram was handed in");
                self.keep(now, fetch, symbol, payload);
            }
            action => self.act_rarely(now, action),
        }
    }

    #[inline(never)]
    fn act_rarely(&mut self, now: Time, action: NodeAction<Copy, PathAddr>) {
        match action {
            NodeAction::Keep { fetch, symbol, parcel, .. } => {
                if let Some(copy) = parcel {
                    self.keep(now, fetch, symbol, copy.payload());
                }
            }
            NodeAction::Transmit { packet, .. } => self.transmit(packet),
            NodeAction::Tell { path, control, .. } => {
                _ = self.events.send(NodeEvent::Control(path, *control))
            }
            NodeAction::Fetch(id, event) => self.on_receiver_event(now, id, event),
            NodeAction::Source(event) => self.on_source_event(now, event),
            NodeAction::Coming { fetch, object } => {
                let sink = self.fetches.running.get(&fetch).and_then(|it| it.sink.as_ref());
                if let Some(sink) = sink {
                    self.sources.relay(object, sink);
                }
            }
            NodeAction::Gone { object } => self.sources.relay_no_more(object),
            NodeAction::Spoiled { object, how } => {
                tracing::warn!(%object, "object withdrawn");
                self.sources.withdraw(object);
                let _ = self.events.send(NodeEvent::Unreadable(object, how));
            }
            NodeAction::Lead { tree } => {
                let path = self.paths.towards(&[]);
                self.node.tell_source(now, SourceCommand::FlowPath { flow: tree, path });
            }
            NodeAction::Wrap(datagram) => self.wrap(&datagram),
            NodeAction::Forward { to, parcel } => self.sockets.send_copy(to, parcel.tos, &parcel.bytes),
            NodeAction::Signal { to, datagram } => {
                let tos = self.sockets.tos(Class::Control, Ecn::NotEct);
                self.sockets.send_copy(to, tos, &datagram);
            }
            NodeAction::Send(datagram) => {
                let SingleDatagram { to, flow, key, body } = *datagram;
                let to = match to {
                    To::Node(node) => Some(node),
                    To::Group(path) => self.paths.addresses(path).first().copied(),
                };
                if let Some(to) = to {
                    self.sockets.send_single(to, flow, body, &key);
                }
            }
            NodeAction::Heard { id, members } => {
                if let Some(asker) = self.askers.remove(&id) {
                    // The asker may be gone.
                    let _ = asker.send(members);
                }
            }
        }
    }

    #[inline]
    fn keep(&mut self, now: Time, id: FetchId, symbol: SymbolId, payload: &[u8]) {
        if let Some(receiving) = self.fetches.running.get_mut(&id)
            && receiving.keep_symbol(symbol, payload, &mut self.jobs.buffers)
        {
            self.node.kept(now, id, symbol);
        }
    }

    fn on_receiver_event(&mut self, now: Time, id: FetchId, event: ReceiverEvent) {
        self.watch_receiver(now, id, &event);
        let Some(receiving) = self.fetches.running.get_mut(&id) else { return };
        match event {
            ReceiverEvent::Symbol { .. } => unreachable!("it is kept by an action of its own"),
            ReceiverEvent::Decode { block } => {
                if let Some(job) = receiving.assemble(block) {
                    self.jobs.submit(move || Outcome::Assembled(id, block, job()));
                }
            }
            ReceiverEvent::Discard { block } => receiving.discard(block, &mut self.jobs.buffers),
            ReceiverEvent::Accepted { object, bytes, symbol_size, .. } => {
                receiving.cut(object, bytes, symbol_size, &mut self.jobs.buffers);
                let _ = receiving.events.send(FetchEvent::Accepted { object, bytes, symbol_size });
            }
            ReceiverEvent::Bind(bind) | ReceiverEvent::Moved(bind) => {
                let Bind { flow, node, at, .. } = *bind;
                let path = self.paths.towards(&at);
                let _ = receiving.events.send(FetchEvent::Source { flow, node, at });
                self.node.tell_fetch(now, id, ReceiverCommand::FlowPath { flow, path });
            }
            ReceiverEvent::Unbind { flow } => {
                let _ = receiving.events.send(FetchEvent::SourceOver { flow });
            }
            ReceiverEvent::Distrusted { node } => {
                let _ = receiving.events.send(FetchEvent::Distrusted(node));
            }
            ReceiverEvent::Done => {
                let at_ns = self.clock.monotonic(now);
                self.tell_fetcher(now, id, |stats| FetchEvent::Done { stats, at_ns });
            }
            ReceiverEvent::Failed(failure) => {
                self.tell_fetcher(now, id, |stats| FetchEvent::Failed(failure, stats));
            }
            ReceiverEvent::Ended => {
                receiving.discard_all(&mut self.jobs.buffers);
                let _ = receiving.events.send(FetchEvent::Ended);
                self.fetches.running.remove(&id);
                // A process that has got what it wanted may end without waiting for this thread.
                self.node.receivers_mut().flush();
            }
        }
    }

    /// Tells the asker for an object what came of it.
    fn tell_fetcher(&mut self, now: Time, id: FetchId, event: impl FnOnce(Box<ReceiverStats>) -> FetchEvent) {
        let stats = Box::new(self.node.receivers_mut().machine_mut().stats(now, id).unwrap_or_default());
        if let Some(receiving) = self.fetches.running.get(&id) {
            let _ = receiving.events.send(event(stats));
        }
    }

    fn on_source_event(&mut self, now: Time, event: SourceEvent) {
        self.watch_source(now, &event);
        match event {
            SourceEvent::Opened(opened) => {
                let Opened { flow, object, bytes, symbol_size, at, .. } = *opened;
                self.sources.open(flow, object, bytes, symbol_size);
                if let Some(stats) = self.node.source().machine().flow(flow) {
                    let _ = self.events.send(NodeEvent::Sending { flow, object, receiver: stats.receiver });
                }
                if let Some(path) = self.group_path(&at) {
                    self.node.tell_source(now, SourceCommand::FlowPath { flow, path });
                }
            }
            SourceEvent::Closed { flow } => {
                let _ = self.events.send(NodeEvent::Sent(flow));
                self.sources.close(flow, &mut self.jobs.buffers);
            }
            SourceEvent::Prepare { flow, block, repair } => {
                if let Some(job) = self.sources.prepare(flow, block, repair, &mut self.jobs.buffers) {
                    self.jobs.submit(move || Outcome::Prepared(flow, block, repair, job()));
                }
            }
            SourceEvent::Release { flow, block } => {
                self.sources.release(flow, block, &mut self.jobs.buffers);
            }
            // The machine itself tells the controller.
            SourceEvent::FellBack { flow, why } => {
                tracing::warn!(
                    flow = flow.0,
                    ?why,
                    "switches compute no rates, as it seems: a scheduled flow stops"
                );
            }
        }
    }
}
