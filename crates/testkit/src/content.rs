//! Datagrams as bytes, and what symbols are made of here.

use headwater_machine::Packet;
use headwater_units::{FlowKey, SymbolId};
use headwater_wire::{Body, Datagram, HeaderKey, emit, parse};

/// The bytes of a symbol: its name, again and again.
pub fn payload(symbol: SymbolId, symbol_size: u16) -> Vec<u8> {
    let name = [symbol.block.0.to_be_bytes(), symbol.esi.0.to_be_bytes()].concat();
    name.into_iter().cycle().take(usize::from(symbol_size)).collect()
}

/// A datagram as it travels, a symbol with its payload.
pub fn written(datagram: &Datagram, symbol_size: u16, key: &HeaderKey) -> Vec<u8> {
    let mut bytes = vec![0; datagram.len(symbol_size)];
    let room = emit(datagram, symbol_size, key, &mut bytes);
    if let Body::Symbol(header) = &datagram.body {
        room.copy_from_slice(&payload(header.symbol, room.len() as u16));
    }
    bytes
}

/// The packet as it arrives after the wire: the wire format cuts numbers to 32 bits, and bounds lists.
pub fn over_the_wire(packet: Packet) -> Packet {
    let key = HeaderKey::new(&FlowKey([0; 32]));
    let Packet { path, ecn, datagram } = packet;
    let mut bytes = vec![0; datagram.len(8)];
    emit(&datagram, 8, &key, &mut bytes);
    let datagram = parse(&bytes, &key).unwrap_or_else(|error| panic!("{error}: {datagram:?}")).datagram;
    Packet { path, ecn, datagram }
}
