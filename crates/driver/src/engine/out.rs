//! Datagrams on their way out: their bytes, their addresses, the TOS byte.

use headwater_machine::Packet;
use headwater_transport::SourceCommand;
use headwater_udp::{PathAddr, SendBatch, UdpPort, path_mtu};
use headwater_wire::Body;

use super::Engine;
use crate::{Said, paths};

impl Engine {
    /// Writes a datagram where the kernel will read it, once for each address of its path.
    pub(super) fn transmit(&mut self, packet: Packet) {
        if self.trees.machine.has(packet.datagram.flow) {
            return self.say_in_tree(&packet.datagram);
        }
        let Packet { path, ecn, datagram } = packet;
        let tos = (self.dscp.of(datagram.class) << 2) | ecn as u8;
        let Engine { sources, fetches, flows, paths, out, port, blocked, unsendable, too_long, .. } = self;
        let symbol = match datagram.body {
            Body::Control(control) => {
                let _ = self.said.send(Said::Control(path, *control));
                return;
            }
            Body::Symbol(header) => Some(header.symbol),
            _ => None,
        };
        debug_assert!(!paths::is_control(path), "datagrams of a flow have a data path");
        let Some(entry) = flows.get_mut(&datagram.flow) else {
            *unsendable += 1;
            return;
        };
        if symbol.is_some() {
            // A driver that is late finds several quanta due at once. They leave one behind the other.
            out.set_max_group(sources.taped.machine.quantum(datagram.flow) as usize);
        }
        let (mut symbol_size, mut coming) = (0, None);
        if let Some(symbol) = symbol {
            let Some((object, size)) = sources.cut_of(datagram.flow) else { return *unsendable += 1 };
            symbol_size = size;
            if sources.passes_on(object) {
                coming = fetches.symbol(object, size, symbol);
            }
        }
        let block = symbol.filter(|_| coming.is_none()).map(|symbol| sources.block(datagram.flow, symbol));
        let block = match block {
            Some(None) => {
                debug_assert!(false, "a symbol of a block that is not ready");
                *unsendable += 1;
                return;
            }
            block => block.flatten(),
        };
        let len = datagram.len(symbol_size);
        for address in paths.addresses(path) {
            if !out.has_room(address, tos, len) {
                *blocked = flush(port, out, too_long);
            }
            let Some(out) = out.push(*address, tos, len) else {
                // The socket is full. Symbols are not asked for then; an ACK that is lost here is followed by another.
                *unsendable += 1;
                continue;
            };
            let room = headwater_wire::emit(&datagram, symbol_size, &entry.key, out);
            if let (Some(symbol), Some(block)) = (symbol, block) {
                block.symbol(symbol.esi, room).expect("the machine names symbols of the block");
            } else if let Some(payload) = coming {
                room.copy_from_slice(payload);
            }
        }
    }

    pub(super) fn flush(&mut self) {
        if !self.out.is_empty() {
            self.blocked = flush(&mut self.port, &mut self.out, &mut self.too_long);
        }
    }

    /// Tells the source which ways this host refuses its datagrams on; whether there were any. Called between flushes,
    /// so that a machine is never told in the middle of its own output.
    pub(super) fn tell_too_long(&mut self) -> bool {
        let mut refused = std::mem::take(&mut self.too_long);
        refused.dedup();
        let now = self.now();
        for to in &refused {
            let fits = path_mtu(to.remote).map(|bytes| u16::try_from(bytes.get()).unwrap_or(u16::MAX));
            if let (Some(path), Ok(fits)) = (self.paths.find(to), fits) {
                self.tell_source(now, SourceCommand::TooLong { path, fits });
            }
        }
        !refused.is_empty()
    }
}

/// Sends what waits; true if some of it has to wait on, because the socket is full. Where this host refuses datagrams for
/// their length is added to `too_long`.
fn flush(port: &mut UdpPort, out: &mut SendBatch, too_long: &mut Vec<PathAddr>) -> bool {
    match port.flush(out) {
        Ok(flush) => {
            if flush.lost > 0 {
                let refused = out.soft_errors().iter().filter(|error| error.is_too_long());
                too_long.extend(refused.map(|error| error.to));
            }
            flush.blocked
        }
        Err(error) => {
            tracing::warn!(%error, "sending failed");
            out.clear();
            false
        }
    }
}
