//! The only file that knows the `raptorq` crate, which panics on fields out of range: everything here is given values
//! that a [`BlockShape`] has checked.
//!
//! Version 2 of that crate is bit-equal to RFC 6330; version 1 labels repair symbols with the internal symbol id
//! (§5.3.1 of the RFC: ISI = ESI + K' - K) where K is no value of Table 2.

use headwater_units::Esi;
use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, PayloadId, SourceBlockDecoder, SourceBlockEncoder,
};

use crate::BlockShape;

/// A block is an object with one source block (Z = 1, number 0) and one sub-block (N = 1); then Al does not matter
/// and is one byte, so that any T will do (§4.4.1.2).
fn transmission_information(shape: BlockShape) -> ObjectTransmissionInformation {
    ObjectTransmissionInformation::new(shape.padded_len() as u64, shape.symbol_size(), 1, 1, 1)
}

/// The intermediate symbols of a block (§5.3.3), from which any repair symbol follows.
pub(crate) struct Intermediate(SourceBlockEncoder);

impl Intermediate {
    /// Computes them: about 1 ms per MB once a block with the same K has been seen. The crate keeps the elimination
    /// of the last 64 different K in a table of its own (about 0.7 MB each at K = 1000, 0.1 MB at K = 185). `padded`
    /// has K * T bytes.
    pub(crate) fn of(shape: BlockShape, padded: &[u8]) -> Self {
        debug_assert_eq!(padded.len(), shape.padded_len());
        Intermediate(SourceBlockEncoder::new(0, &transmission_information(shape), padded))
    }

    /// Writes the repair symbol with this ESI, which is in K..2^24 (§5.3.4), to `out`, which has T bytes.
    pub(crate) fn repair(&self, shape: BlockShape, esi: Esi, out: &mut [u8]) {
        for packet in self.0.repair_packets(esi.0 - shape.source_symbols(), 1) {
            debug_assert_eq!(packet.payload_id().encoding_symbol_id(), esi.0);
            out.copy_from_slice(packet.data());
        }
    }
}

/// Solves for the block (§5.4.2); `None` if the symbols' equations are dependent.
///
/// ESIs are distinct and below 2^24, and each symbol has T bytes. Gives K * T bytes. Which ESIs these are and what the
/// symbols hold cannot make it panic: the solver was driven with ESIs picked for their degree and their neighbours.
pub(crate) fn decode<'a>(
    shape: BlockShape,
    symbols: impl Iterator<Item = (Esi, &'a [u8])>,
) -> Option<Vec<u8>> {
    let mut decoder = SourceBlockDecoder::new(0, &transmission_information(shape), shape.padded_len() as u64);
    decoder.decode(symbols.map(|(esi, bytes)| EncodingPacket::new(PayloadId::new(0, esi.0), bytes.to_vec())))
}
