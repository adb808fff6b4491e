//! What the data thread does for trees that lead through this node: it moves their bytes, as [`Trees`] says.

use std::collections::VecDeque;
use std::sync::Arc;

use headwater_machine::{Input, Packet};
use headwater_node::{TreeAction, Trees};
use headwater_transport::SourceCommand;
use headwater_units::{Bytes, FlowId, PathId, Time};
use headwater_wire::{
    Body, Class, Control, Datagram, Ecn, HeaderKey, Probe, ToController, ToNode, emit, parse,
};

use super::{Came, Engine};
use crate::Said;
use headwater_udp::PathAddr;

/// A datagram as it came.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Copy {
    tos: u8,
    bytes: Arc<[u8]>,
}

/// The trees of a node.
#[derive(Default)]
pub(super) struct TreesHere {
    pub(super) machine: Trees<Copy>,
    /// What the own receivers have asked for and was kept here, until their machine can be told.
    held: VecDeque<(FlowId, Copy)>,
    handing: bool,
}

impl Engine {
    /// What a controller says of trees.
    pub(super) fn on_tree_order(&mut self, now: Time, path: PathId, order: ToNode) {
        // What is about something else is for nobody here.
        self.strays += u64::from(self.trees.machine.on_control(now, path, order).is_some());
        self.tend_trees(now);
        // The source may speak by a tree that has just been installed.
        self.drive_source(now);
    }

    /// A datagram of a tree that leads through this node has come.
    pub(super) fn on_tree_datagram(&mut self, now: Time, tree: FlowId, bytes: &[u8], from: PathAddr) {
        let Some(Ok(parsed)) = self.trees.machine.key(tree).map(|key| parse(bytes, key)) else {
            self.strays += 1;
            return;
        };
        let Datagram { class, body, .. } = parsed.datagram;
        let len = Bytes::new(bytes.len() as u64);
        let copy = || Copy { tos: self.dscp.of(class) << 2, bytes: bytes.into() };
        let is_its = self.trees.machine.on_datagram(now, tree, from.remote, &body, len, copy);
        self.strays += u64::from(!is_its);
        self.tend_trees(now);
    }

    /// A datagram of a flow that is no tree's and no transfer's; whether it is one of signals.
    pub(super) fn on_signal_datagram(
        &mut self,
        now: Time,
        flow: FlowId,
        bytes: &[u8],
        from: PathAddr,
    ) -> bool {
        let is_signal = self.trees.machine.on_signal_datagram(now, flow, bytes, from.remote);
        if is_signal {
            self.tend_trees(now);
            self.drive_source(now);
        }
        is_signal
    }

    /// What a machine of this node says on a tree.
    pub(super) fn say_in_tree(&mut self, datagram: &Datagram) {
        let tree = datagram.flow;
        let block = match &datagram.body {
            Body::Symbol(header) => match self.sources.block(tree, header.symbol) {
                Some(block) => Some((block, header.symbol.esi)),
                None => {
                    debug_assert!(false, "a symbol of a block that is not ready");
                    self.unsendable += 1;
                    return;
                }
            },
            _ => None,
        };
        let Some(key) = self.trees.machine.key(tree) else { return };
        let symbol_size = block.map_or(0, |(block, _)| block.shape().symbol_size());
        let mut bytes = vec![0; datagram.len(symbol_size)];
        let room = emit(datagram, symbol_size, key, &mut bytes);
        if let Some((block, esi)) = block {
            block.symbol(esi, room).expect("the machine names symbols of the block");
        }
        let (len, tos) = (Bytes::new(bytes.len() as u64), self.dscp.of(datagram.class) << 2);
        let copy = Copy { tos, bytes: bytes.into() };
        self.trees.machine.from_here(tree, &datagram.body, len, copy);
        let from_source = !matches!(datagram.body, Body::Interest(_));
        self.do_as_trees_say(self.now());
        // A machine that is just being polled is told when it has said all that it had to say.
        if from_source {
            self.hand_held(self.now());
        }
    }

    /// Does whatever the trees' machine wants done, and hands on what came for this node.
    pub(super) fn tend_trees(&mut self, now: Time) {
        self.do_as_trees_say(now);
        self.hand_held(now);
    }

    fn do_as_trees_say(&mut self, now: Time) {
        while let Some(action) = self.trees.machine.poll() {
            match action {
                TreeAction::Forward { to, packet } => self.send_copy(PathAddr::to(to), &packet),
                TreeAction::Deliver { tree, packet } => self.trees.held.push_back((tree, packet)),
                TreeAction::Ask { tree, packet } => {
                    if let Some(Ok(parsed)) =
                        self.trees.machine.key(tree).map(|key| parse(&packet.bytes, key))
                    {
                        let path = PathId(0);
                        let packet = Packet { path, ecn: Ecn::NotEct, datagram: parsed.datagram };
                        self.hand_to_source(now, Input::Packet(packet));
                    }
                }
                TreeAction::Lead { tree } => {
                    let path = self.paths.towards(&[]);
                    let command = SourceCommand::FlowPath { flow: tree, path };
                    self.hand_to_source(now, Input::Command(command));
                }
                TreeAction::Beat { tree, to } => {
                    if let Some(key) = self.trees.machine.key(tree).cloned() {
                        let probe = Probe { number: 0, bytes: Probe::SHORTEST, fits: None };
                        self.send_alone(PathAddr::to(to), tree, Body::Probe(probe), &key);
                    }
                }
                TreeAction::Signal { to, datagram } => {
                    let tos = self.dscp.of(Class::Control) << 2;
                    self.send_copy(PathAddr::to(to), &Copy { tos, bytes: datagram });
                }
                TreeAction::Answer { to, answer } => {
                    let flow = answer.flow;
                    if let Some(key) = self.trees.machine.answer_key(flow).cloned() {
                        let body =
                            Body::Control(Box::new(Control::Controller(ToController::Signalled(answer))));
                        self.send_alone(PathAddr::to(to), flow, body, &key);
                    }
                }
                TreeAction::Tell { controller, control } => {
                    let _ = self.said.send(Said::Control(controller, control.into()));
                }
            }
        }
    }

    fn send_copy(&mut self, to: PathAddr, copy: &Copy) {
        if !self.out.has_room(&to, copy.tos, copy.bytes.len()) {
            self.flush();
        }
        match self.out.push(to, copy.tos, copy.bytes.len()) {
            Some(room) => room.copy_from_slice(&copy.bytes),
            // The socket is full: it is asked for again.
            None => self.unsendable += 1,
        }
    }

    /// A datagram of no flow that a machine knows.
    pub(super) fn send_alone(&mut self, to: PathAddr, flow: FlowId, body: Body, key: &HeaderKey) {
        let datagram = Datagram { class: Class::Control, key_epoch: 0, flow, body };
        let tos = self.dscp.of(datagram.class) << 2 | Ecn::NotEct as u8;
        let len = datagram.len(0);
        if !self.out.has_room(&to, tos, len) {
            self.flush();
        }
        match self.out.push(to, tos, len) {
            Some(out) => _ = emit(&datagram, 0, key, out),
            None => self.unsendable += 1,
        }
    }

    /// Gives the own receivers what came for them, or was kept here.
    pub(super) fn hand_held(&mut self, now: Time) {
        if self.trees.held.is_empty() || std::mem::replace(&mut self.trees.handing, true) {
            return;
        }
        while let Some((tree, copy)) = self.trees.held.pop_front() {
            let machine = &self.trees.machine;
            let (Some(key), Some(symbol_size)) = (machine.key(tree), machine.symbol_size(tree)) else {
                continue;
            };
            let Ok(parsed) = parse(&copy.bytes, key) else { continue };
            let packet = Packet { path: PathId(0), ecn: Ecn::NotEct, datagram: parsed.datagram };
            let came = Came { payload: parsed.payload, passed_on: true };
            self.receivers_get(now, packet, came, symbol_size);
        }
        self.trees.handing = false;
    }
}
