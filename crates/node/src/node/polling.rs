//! The turns of a node's machines, and their output.
//!
//! Pending output goes first, then trees and probes, whose packets are for others. The receivers come before the source, and are at
//! rest before the next packet is handed to them: a symbol is kept before its bytes are gone.

use super::*;
use crate::{GroupAction, TreeAction};
use headwater_transport::ReceiverEvent;
use headwater_wire::{Probe, ToController};

impl<S, R, P, A> Node<S, R, P, A>
where
    S: Endpoint<Command = SourceCommand, Event = SourceEvent>,
    R: Endpoint<Command = ToFetch, Event = FromFetch>,
    P: Parcel,
    A: Copy + From<SocketAddr> + Into<SocketAddr>,
{
    /// Returns the next action. Timers that are due fire here.
    // Inlined where it is driven: most of what it gives is a packet, and to move that costs as much as to decide on it.
    #[inline(always)]
    pub fn poll(&mut self, now: Time, room: Room) -> Option<NodeAction<P, A>> {
        loop {
            if self.has_rare(now)
                && let Some(action) = self.poll_rare(now)
            {
                return Some(action);
            }
            if self.receivers.is_due(now) {
                match self.receivers.machine.poll(now) {
                    Output::Transmit(packet) => return Some(self.says(By::Receivers, packet)),
                    Output::Event(FromFetch(fetch, ReceiverEvent::Symbol { flow, symbol })) => {
                        return Some(NodeAction::Keep { fetch, flow, symbol, parcel: self.parcel.take() });
                    }
                    Output::Event(FromFetch(fetch, event)) => {
                        return Some(self.on_fetch_event(now, fetch, event));
                    }
                    Output::Wake(until) => self.receivers.rest(now, until),
                }
            } else if let Some((tree, parcel)) = self.delivered.pop_front() {
                self.deliver(now, tree, parcel);
            } else if room == Room::Free && self.source.is_due(now) {
                match self.source.machine.poll(now) {
                    Output::Transmit(mut packet) => {
                        if !self.reports.is_thinning() || self.reports.thin(now, &mut packet) {
                            return Some(self.says(By::Source, packet));
                        }
                    }
                    Output::Event(event) => return Some(self.on_source_event(now, event)),
                    Output::Wake(until) => self.source.rest(now, until),
                }
            } else {
                return None;
            }
        }
    }

    /// Whether there is something that there mostly is not.
    #[inline(always)]
    fn has_rare(&self, now: Time) -> bool {
        !self.out.is_empty()
            || self.trees.has_actions()
            || self.probes.has_actions()
            || self.rarely_due.is_some_and(|at| at <= now)
    }

    #[inline(never)]
    fn poll_rare(&mut self, now: Time) -> Option<NodeAction<P, A>> {
        loop {
            if let Some(action) = self.out.pop_front() {
                return Some(action);
            }
            if let Some(action) = self.trees.poll() {
                if let Some(action) = self.on_tree_action(now, action) {
                    return Some(action);
                }
            } else if let Some(action) = self.probes.poll() {
                return Some(on_group_action(action));
            } else if self.rarely_due.is_some_and(|at| at <= now) {
                self.probes.tick(now);
                self.trees.tick(now);
                self.plan_rare();
            } else {
                return None;
            }
        }
    }

    /// A datagram of either machine, by where it goes.
    #[inline(always)]
    fn says(&self, by: By, packet: Packet) -> NodeAction<P, A> {
        if self.trees.has(packet.datagram.flow) {
            return NodeAction::Wrap(packet.datagram);
        }
        match packet.datagram.body {
            Body::Control(control) => NodeAction::Tell { by, path: packet.path, control },
            _ => NodeAction::Transmit { by, packet },
        }
    }

    // ---- the source

    fn on_source_event(&mut self, now: Time, event: SourceEvent) -> NodeAction<P, A> {
        match &event {
            SourceEvent::Opened(opened) => {
                self.passing_on.opened(opened.flow, opened.object);
                self.reports.opened(now, opened.flow, opened.object);
                self.flows.send(opened.flow, &opened.key, opened.at.clone());
                self.trees.source_opened(opened.flow);
            }
            SourceEvent::Closed { flow } => {
                self.passing_on.closed(*flow);
                self.reports.closed(*flow);
                self.flows.retire(*flow);
                self.trees.source_closed(*flow);
            }
            SourceEvent::Prepare { .. } | SourceEvent::Release { .. } | SourceEvent::FellBack { .. } => {}
        }
        NodeAction::Source(event)
    }

    // ---- the receivers

    fn on_fetch_event(&mut self, now: Time, fetch: FetchId, event: ReceiverEvent) -> NodeAction<P, A> {
        while let Some(command) = self.passing_on.withdraw_parts(fetch, &event) {
            self.source.handle(now, Input::Command(command));
        }
        if let Some(object) = self.passing_on.on_event(fetch, &event) {
            self.end_passing_on(now, object);
        }
        match &event {
            ReceiverEvent::Bind(bind) => {
                let cut = self.passing_on.cut(fetch).expect("a flow is granted with its object");
                self.flows.receive(bind.flow, &bind.key, cut.symbol_size);
            }
            ReceiverEvent::Unbind { flow } => self.flows.forget(*flow),
            _ => {}
        }
        NodeAction::Fetch(fetch, event)
    }

    // ---- trees and probes

    fn on_tree_action(&mut self, now: Time, action: TreeAction<P>) -> Option<NodeAction<P, A>> {
        Some(match action {
            TreeAction::Forward { to, packet } => NodeAction::Forward { to: to.into(), parcel: packet },
            TreeAction::Deliver { tree, packet } => {
                self.delivered.push_back((tree, packet));
                return None;
            }
            TreeAction::Ask { tree, packet } => {
                let (datagram, _) = packet.open(self.trees.key(tree)?)?;
                let packet = Packet { path: BY_TREE, ecn: Ecn::NotEct, datagram };
                self.source.handle(now, Input::Packet(packet));
                return None;
            }
            TreeAction::Lead { tree } => NodeAction::Lead { tree },
            TreeAction::Heartbeat { tree, to } => {
                let key = self.trees.key(tree)?.clone();
                let body = Body::Probe(Probe { number: 0, bytes: Probe::SHORTEST, fits: None });
                datagram(To::Node(to.into()), tree, key, body)
            }
            TreeAction::Signal { to, datagram } => NodeAction::Signal { to: to.into(), datagram },
            TreeAction::Answer { to, answer } => {
                let (flow, key) = (answer.flow, self.trees.answer_key(answer.flow)?.clone());
                datagram(
                    To::Node(to.into()),
                    flow,
                    key,
                    Body::Control(Box::new(Control::Controller(ToController::Signalled(answer)))),
                )
            }
            TreeAction::Tell { controller, control } => {
                NodeAction::Tell { by: By::Node, path: controller, control: Box::new(control.into()) }
            }
        })
    }

    /// Delivers a packet that came for the receivers by a tree, or was kept in the tree at this node.
    fn deliver(&mut self, now: Time, tree: FlowId, parcel: P) {
        let (Some(key), Some(symbol_size)) = (self.trees.key(tree), self.trees.symbol_size(tree)) else {
            return;
        };
        let Some((datagram, payload)) = parcel.open(key) else { return };
        if !may_receive(&datagram.body, payload, symbol_size) {
            self.stats.strays += 1;
            return;
        }
        self.parcel = Some(parcel);
        let packet = Packet { path: BY_TREE, ecn: Ecn::NotEct, datagram };
        self.hand_to_receivers(now, packet);
    }
}

fn on_group_action<P, A>(action: GroupAction<PathId, A>) -> NodeAction<P, A> {
    match action {
        GroupAction::Probe { group, flow, key, probe } => {
            datagram(To::Group(group), flow, key, Body::Probe(probe))
        }
        GroupAction::Answer { to, flow, key, ack } => datagram(To::Node(to), flow, key, Body::ProbeAck(ack)),
        GroupAction::Heard { id, members } => NodeAction::Heard { id, members },
    }
}

fn datagram<P, A>(to: To<A>, flow: FlowId, key: HeaderKey, body: Body) -> NodeAction<P, A> {
    NodeAction::Send(Box::new(SingleDatagram { to, flow, key, body }))
}
