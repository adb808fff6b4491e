//! The receiving disk and decoder of one task: counted blocks, or true bytes.

use std::collections::BTreeSet;

use headwater_codec::{Assembler, BlockShape, Decoder, PhantomAssembler, drawn_overhead};
use headwater_machine::SortedMap;
use headwater_transport::{DecodeFailure, ReceiverCommand};
use headwater_units::{BlockIndex, Bytes, Duration, FlowId, Geometry, ObjectId, SymbolId};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::carry::Cargo;
use super::setup::DecodeModel;

/// Blocks in reception and blocks that are done.
pub(super) struct Assembly {
    geometry: Geometry,
    overhead: Option<u32>,
    true_bytes: bool,
    /// Looked up with every symbol.
    open: SortedMap<u32, Box<dyn Decoder>>,
    done: BTreeSet<u32>,
    rng: ChaCha8Rng,
}

impl Assembly {
    pub(super) fn new(bytes: Bytes, symbol_size: u16, overhead: Option<u32>, true_bytes: bool) -> Self {
        let geometry = Geometry::new(bytes, symbol_size).expect("the set-up was checked");
        let rng = ChaCha8Rng::seed_from_u64(bytes.get() ^ u64::from(symbol_size));
        Assembly { geometry, overhead, true_bytes, open: SortedMap::default(), done: BTreeSet::new(), rng }
    }

    /// T.
    pub(super) fn symbol_size(&self) -> u16 {
        self.geometry.symbol_size()
    }

    /// The object is cut into symbols of another size from now on: only what was finished still counts.
    pub(super) fn recut(&mut self, geometry: Geometry) {
        self.open = SortedMap::default();
        self.geometry = geometry;
    }

    pub(super) fn blocks(&self) -> u32 {
        self.geometry.layout().block_count()
    }

    /// Blocks that are finished, ascending.
    pub(super) fn have(&self) -> Vec<BlockIndex> {
        self.done.iter().copied().map(BlockIndex).collect()
    }

    /// The host starts anew: only what was finished is still there.
    pub(super) fn restart(&mut self) {
        self.open = SortedMap::default();
    }

    /// The machine wants this symbol kept.
    pub(super) fn insert(&mut self, _flow: FlowId, symbol: SymbolId, payload: Option<&[u8]>) {
        let Assembly { open, geometry, overhead, true_bytes, rng, .. } = self;
        let decoder = open.get_or_insert_with(symbol.block.0, || {
            let shape = BlockShape::of(geometry, symbol.block).expect("the machine knows its blocks");
            match *true_bytes {
                true => Box::new(Assembler::new(shape)) as Box<dyn Decoder>,
                false => {
                    let drawn = || drawn_overhead(rng.random());
                    Box::new(PhantomAssembler::new(shape, overhead.unwrap_or_else(drawn)))
                }
            }
        });
        decoder.insert(symbol.esi, payload.unwrap_or(&[])).expect("the machine lets only sound symbols pass");
    }

    /// Drops the symbols of a block that is wrong or not wanted any more.
    pub(super) fn discard(&mut self, block: BlockIndex) {
        self.open.remove(&block.0);
    }

    /// How long the block takes to decode.
    pub(super) fn latency(&self, block: BlockIndex, model: &DecodeModel) -> Duration {
        let Some(decoder) = self.open.get(&block.0) else { return Duration::ZERO };
        let per_byte =
            if decoder.is_systematic_complete() { model.ns_per_byte_whole } else { model.ns_per_byte };
        let bytes = decoder.shape().block_bytes().get();
        Duration::from_nanos((bytes as f64 * per_byte) as u64)
    }

    /// Decodes, and compares with the truth where there is one.
    pub(super) fn finish(&mut self, block: BlockIndex, truth: Option<(&Cargo, ObjectId)>) -> ReceiverCommand {
        let failed = |failure| ReceiverCommand::DecodeFailed { block, failure };
        let Some(decoder) = self.open.get_mut(&block.0) else { return failed(DecodeFailure::NeedMore) };
        match decoder.finish() {
            Err(_) => failed(DecodeFailure::NeedMore),
            Ok(bytes) => {
                if truth.is_some_and(|(cargo, object)| !cargo.is_block(object, &self.geometry, block, bytes))
                {
                    return failed(DecodeFailure::Corrupt);
                }
                self.open.remove(&block.0);
                self.done.insert(block.0);
                ReceiverCommand::BlockDecoded { block }
            }
        }
    }
}
