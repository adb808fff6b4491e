//! Datagrams on their way out: their bytes, their addresses, the TOS byte.

use headwater_transport::{Packet, SourceCommand};
use headwater_wire::{Body, Class};

use super::Engine;
use crate::node::{Said, paths};
use crate::socket::path_mtu;

/// RFC 8622: lower effort.
const DSCP_LOWER_EFFORT: u8 = 1;

impl Engine {
    pub(super) fn transmit(&mut self, packet: Packet) {
        let Packet { path, ecn, datagram } = packet;
        if let Body::Control(control) = datagram.body {
            let _ = self.said.send(Said::Control(path, *control));
            return;
        }
        debug_assert!(!paths::is_control(path), "datagrams of a flow have a data path");
        let Some(key) = self.flows.get(&datagram.flow).map(|entry| entry.key.clone()) else {
            self.unsendable += 1;
            return;
        };
        let symbol = match &datagram.body {
            Body::Symbol(header) => Some(header.symbol),
            _ => None,
        };
        let symbol_size = match symbol {
            Some(_) => self.sources.symbol_size(datagram.flow).unwrap_or(0),
            None => 0,
        };
        let tos = (self.dscp_of(datagram.class) << 2) | ecn as u8;
        let len = datagram.len(symbol_size);
        for nth in 0..self.paths.addresses(path).len() {
            let address = self.paths.addresses(path)[nth];
            if !self.out.has_room(&address, tos, len) {
                self.flush();
            }
            let block = match symbol.map(|s| self.sources.block(datagram.flow, s)) {
                Some(None) => {
                    debug_assert!(false, "a symbol of a block that is not ready");
                    self.unsendable += 1;
                    return;
                }
                block => block.flatten(),
            };
            let Some(out) = self.out.push(address, tos, len) else {
                // The socket is full. Symbols are not asked for then; an ACK that is lost here is followed by another.
                self.unsendable += 1;
                continue;
            };
            let room = headwater_wire::emit(&datagram, symbol_size, &key, out);
            if let (Some(symbol), Some(block)) = (symbol, block) {
                block.symbol(symbol.esi, room).expect("the machine names symbols of the block");
            }
        }
    }

    fn dscp_of(&self, class: Class) -> u8 {
        match class {
            Class::Control => self.dscp_control,
            // The levels above bulk have no code points of their own: nobody sends by levels here.
            Class::First | Class::Second | Class::Third | Class::Bulk => self.dscp,
            Class::Gentle => DSCP_LOWER_EFFORT,
        }
    }

    pub(super) fn flush(&mut self) {
        if self.out.is_empty() {
            return;
        }
        match self.port.flush(&mut self.out) {
            Ok(flush) => {
                self.blocked = flush.blocked;
                if flush.lost > 0 {
                    self.note_too_long();
                }
            }
            Err(error) => {
                tracing::warn!(%error, "sending failed");
                self.out.clear();
            }
        }
    }

    fn note_too_long(&mut self) {
        let refused = self.out.soft_errors().iter().filter(|error| error.is_too_long());
        self.too_long.extend(refused.map(|error| error.to));
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
