//! Datagrams on their way out: their bytes, their addresses, the TOS byte.

use headwater_transport::Packet;
use headwater_wire::{Body, Class};

use super::Engine;
use crate::node::{Said, paths};

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
            let block = match symbol.map(|s| self.sources.block(datagram.flow, s)) {
                Some(None) => {
                    debug_assert!(false, "a symbol of a block that is not ready");
                    self.unsendable += 1;
                    return;
                }
                block => block.flatten(),
            };
            if !self.out.has_room(&address, tos, len) {
                match self.port.flush(&mut self.out) {
                    Ok(flush) => self.blocked = flush.blocked,
                    Err(error) => {
                        tracing::warn!(%error, "sending failed");
                        self.out.clear();
                    }
                }
            }
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
            Class::Bulk => self.dscp,
            Class::Gentle => DSCP_LOWER_EFFORT,
        }
    }

    pub(super) fn flush(&mut self) {
        if self.out.is_empty() {
            return;
        }
        match self.port.flush(&mut self.out) {
            Ok(flush) => self.blocked = flush.blocked,
            Err(error) => {
                tracing::warn!(%error, "sending failed");
                self.out.clear();
            }
        }
    }
}
