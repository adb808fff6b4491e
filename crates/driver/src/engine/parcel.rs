//! Packets of trees, as they travel.

use std::sync::Arc;

use headwater_node::Parcel;
use headwater_wire::{Datagram, HeaderKey, SEAL, SYMBOL_OVERHEAD, count_hop, parse};

/// A datagram as it came, or as it is sent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Copy {
    pub(super) tos: u8,
    pub(super) bytes: Arc<[u8]>,
}

impl Copy {
    /// The payload, if it is a whole symbol.
    pub(super) fn payload(&self) -> &[u8] {
        &self.bytes[SYMBOL_OVERHEAD - SEAL..self.bytes.len() - SEAL]
    }
}

impl Parcel for Copy {
    fn open(&self, key: &HeaderKey) -> Option<(Datagram, usize)> {
        parse(&self.bytes, key).ok().map(|parsed| (parsed.datagram, parsed.payload.len()))
    }

    fn count_hop(&mut self) {
        count_hop(Arc::make_mut(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::{BlockIndex, Esi, FlowId, FlowKey, PacketNumber, SymbolId};
    use headwater_wire::{Body, Class, SymbolHeader, emit};

    use super::*;

    #[test]
    fn the_payload_is_what_the_datagram_says() {
        let symbol = SymbolId { block: BlockIndex(1), esi: Esi(2) };
        let body = Body::Symbol(SymbolHeader::new(PacketNumber(3), symbol));
        let datagram = Datagram { class: Class::Bulk, key_epoch: 0, flow: FlowId(4), body };
        let key = HeaderKey::new(&FlowKey([5; 32]));
        let mut bytes = vec![0; datagram.len(100)];
        emit(&datagram, 100, &key, &mut bytes).fill(7);
        let copy = Copy { tos: 0, bytes: bytes.into() };
        assert_eq!((copy.open(&key), copy.payload()), (Some((datagram, 100)), &[7; 100][..]));
        assert_eq!(copy.open(&HeaderKey::new(&FlowKey([6; 32]))), None);
    }
}
