//! All decisions of a host, as one machine: the owner of each datagram, what its source, its receivers and its trees learn of each
//! other, and the order of their turns.
//!
//! ```text
//!                 driver: sockets, files, encoders, decoders, time
//!       on_datagram, on_control, tell_* |             ^ poll: NodeAction
//!   ------------------------------------v-------------|-----------------
//!     Flows ---> Source <--- PassingOn <--- Receivers        GroupProbes
//!                   ^ Ask                       ^ Deliver
//!                   `---------- Trees ----------'
//! ```
//! Bytes never pass through: the driver moves what is kept of a datagram and what is sent. A packet of a tree is a [`Parcel`], which
//! the driver makes, and gets back once for each neighbour that the packet goes to.
//!
//! **After each input, poll until there is nothing more**, and then again at [`Node::wake`]. If an action asks for a call in answer
//! (for a path or a parcel), make that call before the next poll.
//!
//! `S` and `R` are a [`Source`](headwater_transport::source::Source) and
//! [`Receivers`](headwater_transport::receiver::Receivers), or what a driver wraps around them; `A` is an address by which a
//! node is reached.

mod actions;
mod polling;

use core::net::SocketAddr;
use std::collections::VecDeque;

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_transport::{Arriving, FromFetch, ReceiverCommand, SourceCommand, SourceEvent, ToFetch};
use headwater_units::{Bytes, Duration, FetchId, FlowId, ObjectId, PathId, SymbolId, Time};
use headwater_wire::{
    Body, Control, Datagram, Delivery, Ecn, FlowSecret, GroupQuestion, HeaderKey, Parsed, Spoiled,
    ToReceiver, parse, peek_flow,
};

pub use actions::{By, NodeAction, SingleDatagram, To};

use crate::flows::may_receive;
use crate::passing_on::arriving;
use crate::reports::Reports;
use crate::{
    Flows, For, GroupProbes, GroupProbesConfig, PassingOn, ProbeId, Read, Trees, Unread, Unreadable,
};

/// Packets of trees come by no path: their machines never look where from.
const BY_TREE: PathId = PathId(0);

/// A packet of a tree, as a driver keeps it. It is cloned where the tree branches.
pub trait Parcel: Clone {
    /// Content of the datagram and length of its payload, if it was sealed with this key.
    fn open(&self, key: &HeaderKey) -> Option<(Datagram, usize)>;
    /// One hop more, of an interest ([`headwater_wire::count_hop`]).
    fn count_hop(&mut self);
}

/// A datagram as the network has brought it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrived<'a, A> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Where it comes from.
    pub from: A,
    /// Its ECN field.
    pub ecn: Ecn,
    /// It has the code point of what switches have cut.
    pub trimmed: bool,
}

/// How much the driver can take from the source now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Everything.
    Free,
    /// Nothing yet: more datagrams are at hand, and the answers to all of them leave together.
    Gathering,
    /// Nothing: it could not be sent. Symbols are named when they leave.
    Full,
}

/// Counters of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// Datagrams that belong to nobody, or that nobody may get.
    pub strays: u64,
    /// Headers of symbols whose payload a switch has cut off.
    pub trimmed: u64,
    /// Symbols came that are the first of a flow whose receiver pulls.
    pub pulls: bool,
}

/// A machine, and when it is to be polled.
struct Driven<M> {
    machine: M,
    due: Option<Time>,
}

impl<M: Endpoint> Driven<M> {
    #[inline]
    fn handle(&mut self, now: Time, input: Input<M::Command>) {
        self.machine.handle(now, input);
        self.due = Some(now);
    }

    #[inline]
    fn is_due(&self, now: Time) -> bool {
        self.due.is_some_and(|at| at <= now)
    }

    /// It has said all that it had to say until then. A wish for a time that has passed would never let the poll end.
    #[inline]
    fn rest(&mut self, now: Time, until: Option<Time>) {
        self.due = until.map(|at| at.max(now + Duration::from_nanos(1)));
    }
}

/// A host's decisions, as one machine.
pub struct Node<S, R, P, A> {
    source: Driven<S>,
    receivers: Driven<R>,
    flows: Flows,
    passing_on: PassingOn,
    reports: Reports,
    trees: Trees<P>,
    probes: GroupProbes<PathId, A>,
    /// When trees or probes have something to do by themselves.
    rarely_due: Option<Time>,
    /// Packets from trees, until the receivers can be told.
    delivered: VecDeque<(FlowId, P)>,
    /// The parcel that the last command to the receivers belongs to, if it is not from a datagram that the driver has
    /// at hand.
    parcel: Option<P>,
    out: VecDeque<NodeAction<P, A>>,
    stats: NodeStats,
    wants_trimmed: bool,
}

impl<S, R, P, A> Node<S, R, P, A>
where
    S: Endpoint<Command = SourceCommand, Event = SourceEvent>,
    R: Endpoint<Command = ToFetch, Event = FromFetch>,
    P: Parcel,
    A: Copy + From<SocketAddr> + Into<SocketAddr>,
{
    /// A node with these machines, which have been told nothing yet.
    pub fn new(source: S, receivers: R, probes: GroupProbesConfig) -> Self {
        Node {
            source: Driven { machine: source, due: None },
            receivers: Driven { machine: receivers, due: None },
            flows: Flows::default(),
            passing_on: PassingOn::default(),
            reports: Reports::default(),
            trees: Trees::default(),
            probes: GroupProbes::new(probes),
            rarely_due: None,
            delivered: VecDeque::new(),
            parcel: None,
            out: VecDeque::new(),
            stats: NodeStats::default(),
            wants_trimmed: false,
        }
    }

    // ---- what a driver may look at

    /// The source.
    #[inline]
    pub fn source(&self) -> &S {
        &self.source.machine
    }

    /// The same, for changes that no other machine can see.
    #[inline]
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source.machine
    }

    /// The receivers.
    #[inline]
    pub fn receivers(&self) -> &R {
        &self.receivers.machine
    }

    /// The same, for changes that no other machine can see.
    #[inline]
    pub fn receivers_mut(&mut self) -> &mut R {
        &mut self.receivers.machine
    }

    /// The key of a flow.
    #[inline]
    pub fn key(&mut self, flow: FlowId) -> Option<&HeaderKey> {
        self.flows.key(flow)
    }

    /// The key of a tree.
    pub fn tree_key(&self, tree: FlowId) -> Option<&HeaderKey> {
        self.trees.key(tree)
    }

    /// Whether trees lead through this node.
    pub fn has_trees(&self) -> bool {
        !self.trees.is_empty()
    }

    /// Its counters.
    pub fn stats(&self) -> NodeStats {
        self.stats
    }

    /// Whether a fetch was accepted that can use headers of trimmed symbols: all but those of overlays and trees, whose
    /// senders know by ACKs and interests what is missing.
    pub fn wants_trimmed(&self) -> bool {
        self.wants_trimmed
    }

    /// When to poll again.
    pub fn wake(&self, room: Room) -> Option<Time> {
        let source = if room == Room::Full { None } else { self.source.due };
        self.receivers.due.into_iter().chain(source).chain(self.rarely_due).min()
    }

    // ---- what comes in

    /// The network has brought a datagram. `path` is the one that it came by, asked for once it is known to be authentic; `parcel`
    /// makes of a packet of a tree what is handed on.
    ///
    /// Gives back the payload, if the receivers were told something: poll before the next datagram. A [`NodeAction::Keep`] that names
    /// no parcel means these bytes.
    #[inline]
    pub fn on_datagram<'a>(
        &mut self,
        now: Time,
        arrived: Arrived<'a, A>,
        path: impl FnOnce() -> PathId,
        parcel: impl FnOnce(&Datagram) -> P,
    ) -> Option<&'a [u8]> {
        let Arrived { bytes, from, ecn, trimmed } = arrived;
        let Some(flow) = peek_flow(bytes) else {
            self.stats.strays += 1;
            return None;
        };
        if self.trees.has(flow) {
            match self.trees.key(flow).map(|key| parse(bytes, key)) {
                Some(Ok(Parsed { datagram, .. })) => {
                    let len = Bytes::new(bytes.len() as u64);
                    self.on_tree_packet(now, from, &datagram, len, || parcel(&datagram));
                }
                _ => self.stats.strays += 1,
            }
            return Some(&[]);
        }
        match self.flows.read(flow, bytes, trimmed, from) {
            Ok(Read { datagram, payload, whose }) => {
                self.stats.trimmed += u64::from(trimmed);
                let packet = Packet { path: path(), ecn, datagram };
                self.hand_in(now, packet, whose).then_some(payload)
            }
            Err(Unread::Stray) => {
                self.stats.strays += 1;
                None
            }
            Err(Unread::Unknown) => self.on_rare_datagram(now, flow, bytes, from).then_some(&[]),
        }
    }

    /// The same of a packet in a network that carries no payloads and brings to each only what was sent to it; `bytes` is the
    /// datagram's length. Whether the receivers were told something.
    pub fn on_packet(
        &mut self,
        now: Time,
        from: A,
        packet: Packet,
        bytes: Bytes,
        parcel: impl FnOnce(&Datagram) -> P,
    ) -> bool {
        let Packet { datagram, .. } = &packet;
        if self.trees.has(datagram.flow) {
            self.on_tree_packet(now, from, datagram, bytes, || parcel(datagram));
            return true;
        }
        match self.flows.whose(datagram.flow, &datagram.body, from) {
            Ok(whose) => {
                self.stats.trimmed += u64::from(datagram.body.is_trimmed());
                self.hand_in(now, packet, whose)
            }
            Err(_) => {
                self.stats.strays += 1;
                false
            }
        }
    }

    /// Something may be handed to its machine. Whether that was the receivers'.
    #[inline]
    fn hand_in(&mut self, now: Time, packet: Packet, whose: For) -> bool {
        match whose {
            For::Source { vouched } => {
                if vouched {
                    let Packet { path, datagram: Datagram { flow, .. }, .. } = packet;
                    self.tell_source(now, SourceCommand::FlowPath { flow, path });
                }
                self.source.handle(now, Input::Packet(packet));
                false
            }
            For::Receivers => {
                self.parcel = None;
                self.hand_to_receivers(now, packet);
                true
            }
        }
    }

    #[inline]
    fn hand_to_receivers(&mut self, now: Time, packet: Packet) {
        if let Body::Symbol(header) = &packet.datagram.body {
            self.stats.pulls |= header.syn;
        }
        self.receivers.handle(now, Input::Packet(packet));
    }

    /// A datagram of a tree that leads through this node.
    fn on_tree_packet(
        &mut self,
        now: Time,
        from: A,
        datagram: &Datagram,
        bytes: Bytes,
        parcel: impl FnOnce() -> P,
    ) {
        let body = &datagram.body;
        let parcel = || {
            let mut parcel = parcel();
            if matches!(body, Body::Interest(_)) {
                parcel.count_hop();
            }
            parcel
        };
        let is_its = self.trees.on_datagram(now, datagram.flow, from.into(), body, bytes, parcel);
        self.stats.strays += u64::from(!is_its);
    }

    /// A datagram of a flow that is no transfer's. Whether it is one of signals or of probes.
    #[cold]
    fn on_rare_datagram(&mut self, now: Time, flow: FlowId, bytes: &[u8], from: A) -> bool {
        let is_known = self.trees.on_signal_datagram(now, flow, bytes, from.into())
            || self.probes.on_datagram(now, flow, bytes, from);
        self.stats.strays += u64::from(!is_known);
        self.plan_rare();
        is_known
    }

    /// A controller or a node says something over a control link.
    pub fn on_control(&mut self, now: Time, path: PathId, control: Control) {
        match control {
            Control::Node(order) => {
                // An order about something else is for nobody here.
                self.stats.strays += u64::from(self.trees.on_control(now, path, order).is_some());
                self.plan_rare();
            }
            Control::Source(_) => self.source.handle(now, Input::Packet(Packet::control(path, control))),
            Control::Receiver(word) => {
                self.reports.on_receiver(&word);
                self.wants_trimmed |= wants_trimmed(&word);
                self.receivers.handle(now, Input::Packet(Packet::control(path, word)));
            }
            // No machine here is a controller.
            Control::Controller(_) => self.stats.strays += 1,
        }
    }

    /// Tells the source something that its driver knows.
    pub fn tell_source(&mut self, now: Time, command: SourceCommand) {
        match command {
            SourceCommand::Hold { object, .. } => self.passing_on.hold(object),
            SourceCommand::Withdraw { object } => self.passing_on.withdraw(object),
            _ => {}
        }
        self.source.handle(now, Input::Command(command));
    }

    /// Tells a fetch something that its driver knows.
    pub fn tell_fetch(&mut self, now: Time, fetch: FetchId, command: ReceiverCommand) {
        if let ReceiverCommand::Start { have, .. } = &command {
            if let Some(relaying) = self.passing_on.begin(fetch, have) {
                self.out.push_back(NodeAction::Coming { fetch, object: relaying.object });
                self.source.handle(now, Input::Command(SourceCommand::Relay(relaying)));
            }
        } else if let Some(command) = self.passing_on.on_command(fetch, &command) {
            self.source.handle(now, Input::Command(command));
        }
        self.receivers.handle(now, Input::Command(ToFetch(fetch, command)));
    }

    /// Answers [`NodeAction::Keep`], unless the symbol was left out.
    #[inline]
    pub fn kept(&mut self, now: Time, fetch: FetchId, symbol: SymbolId) {
        if let Some(command) = self.passing_on.kept(fetch, symbol) {
            self.source.handle(now, Input::Command(command));
        }
    }

    /// Answers [`NodeAction::Wrap`]; `bytes` is the datagram's length.
    pub fn from_here(&mut self, datagram: &Datagram, bytes: usize, parcel: P) {
        self.trees.from_here(datagram.flow, &datagram.body, Bytes::new(bytes as u64), parcel);
    }

    /// A block that a flow is to send cannot be read.
    pub fn unreadable(&mut self, now: Time, flow: FlowId, how: Spoiled) {
        match self.passing_on.unreadable(flow) {
            Unreadable::Held(object) => {
                self.out.push_back(NodeAction::Spoiled { object, how });
                self.source.handle(now, Input::Command(SourceCommand::Withdraw { object }));
            }
            Unreadable::Coming(object) => self.end_passing_on(now, object),
            Unreadable::Neither => {}
        }
    }

    /// Nothing that is not held is passed on any more: receivers that are served are told, and so are controllers, so
    /// that others serve them.
    pub fn hand_over(&mut self, now: Time) {
        for object in self.passing_on.hand_over() {
            self.end_passing_on(now, object);
        }
    }

    fn end_passing_on(&mut self, now: Time, object: ObjectId) {
        self.out.push_back(NodeAction::Gone { object });
        self.source.handle(now, Input::Command(arriving(object, Arriving::Over)));
    }

    // ---- groups

    /// From now on answers probes on the flow `asked`, on the flow `own`.
    pub fn answer_probes(&mut self, asked: &FlowSecret, own: &FlowSecret) {
        self.probes.answer(asked, own);
    }

    /// Undoes [`Node::answer_probes`].
    pub fn ignore_probes(&mut self, asked: FlowId) {
        self.probes.ignore(asked);
    }

    /// Finds out which members of the group behind this path hear it: [`NodeAction::Heard`].
    pub fn probe_group(&mut self, now: Time, group: PathId, question: &GroupQuestion) -> ProbeId {
        let id = self.probes.probe(now, group, question);
        self.plan_rare();
        id
    }

    fn plan_rare(&mut self) {
        self.rarely_due = self.probes.wake().into_iter().chain(self.trees.wake()).min();
    }
}

fn wants_trimmed(word: &ToReceiver) -> bool {
    match word {
        ToReceiver::Accepted { delivery, .. } => {
            !matches!(delivery, Delivery::Overlay { .. } | Delivery::Trees { .. })
        }
        _ => false,
    }
}
