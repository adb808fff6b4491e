//! Outgoing datagrams: their bytes, their addresses, the TOS byte.

use headwater_machine::Packet;
use headwater_transport::SourceCommand;
use headwater_wire::{Body, Datagram, Ecn, emit};

use super::Engine;
use super::parcel::Copy;
use super::sockets::fits;
use crate::paths;

impl Engine {
    /// Writes a datagram where the kernel will read it, once for each address of its path.
    #[inline]
    pub(super) fn transmit(&mut self, packet: Packet) {
        let Packet { path, ecn, datagram } = packet;
        let Engine { node, sockets, sources, fetches, paths, .. } = self;
        debug_assert!(!paths::is_control(path), "datagrams of a flow have a data path");
        let (mut symbol_size, mut symbol, mut coming, mut block) = (0, None, None, None);
        if let Some(id) = datagram.body.symbol() {
            // A driver that is late finds several quanta due at once. They leave one behind the other.
            sockets.out.set_max_group(node.source_mut().quantum(datagram.flow));
            let Some((object, size)) = sources.cut_of(datagram.flow) else { return sockets.unsendable += 1 };
            (symbol_size, symbol) = (size, Some(id));
            block = sources.block(datagram.flow, id);
            if block.is_none() {
                // It is passed on before its block is whole.
                coming = fetches.symbol(object, size, id);
                if coming.is_none() {
                    debug_assert!(false, "a symbol of a block that is not ready");
                    return sockets.unsendable += 1;
                }
            }
        }
        let Some(key) = node.key(datagram.flow) else { return sockets.unsendable += 1 };
        let (len, tos) = (datagram.len(symbol_size), sockets.tos(datagram.class, ecn));
        for address in paths.addresses(path) {
            // The socket may be full. Symbols are not asked for then; an ACK that is lost here is followed by another.
            let Some(out) = sockets.push(*address, tos, len) else { continue };
            let room = emit(&datagram, symbol_size, key, out);
            if let (Some(symbol), Some(block)) = (symbol, block) {
                block.symbol(symbol.esi, room).expect("the machine names symbols of the block");
            } else if let Some(payload) = coming {
                room.copy_from_slice(payload);
            }
        }
    }

    /// Writes what a machine of this node says on a tree.
    pub(super) fn wrap(&mut self, datagram: &Datagram) {
        let Engine { node, sockets, sources, .. } = self;
        let tree = datagram.flow;
        let mut block = None;
        if let Body::Symbol(header) = &datagram.body {
            block = sources.block(tree, header.symbol).map(|block| (block, header.symbol.esi));
            if block.is_none() {
                debug_assert!(false, "a symbol of a block that is not ready");
                return sockets.unsendable += 1;
            }
        }
        let Some(key) = node.tree_key(tree) else { return };
        let symbol_size = block.map_or(0, |(block, _)| block.shape().symbol_size());
        let mut bytes = vec![0; datagram.len(symbol_size)];
        let room = emit(datagram, symbol_size, key, &mut bytes);
        if let Some((block, esi)) = block {
            block.symbol(esi, room).expect("the machine names symbols of the block");
        }
        let (len, tos) = (bytes.len(), sockets.tos(datagram.class, Ecn::NotEct));
        node.from_here(datagram, len, Copy { tos, bytes: bytes.into() });
    }

    /// Tells the source on which paths this host refuses its datagrams; whether there were any. Called between flushes,
    /// so that a machine is never told in the middle of its own output.
    pub(super) fn tell_too_long(&mut self) -> bool {
        let refused = self.sockets.take_too_long();
        if refused.is_empty() {
            return false;
        }
        let now = self.now();
        for to in &refused {
            if let (Some(path), Some(fits)) = (self.paths.find(to), fits(to)) {
                self.node.tell_source(now, SourceCommand::TooLong { path, fits });
            }
        }
        self.drive(now);
        true
    }
}
