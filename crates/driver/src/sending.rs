//! The bytes behind the source: files that can be sent, and the blocks that are ready for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use headwater_codec::{BlockEncoder, BlockShape};
use headwater_machine::SortedMap;
use headwater_store::{SourceFile, StoreError};
use headwater_units::{BlockIndex, Bytes, FlowId, Geometry, ObjectId, SymbolId};

use super::buffers::Buffers;
use super::receiving::BlockSink;

/// A block as one symbol size cuts it.
type BlockKey = (ObjectId, u16, BlockIndex);

/// One flow's view of its object.
struct Sending {
    object: ObjectId,
    geometry: Geometry,
    /// None: the object is being received, or was when the flow began.
    file: Option<Arc<SourceFile>>,
    ready: SortedMap<BlockIndex, Arc<BlockEncoder>>,
}

/// The objects that the source's flows send.
#[derive(Default)]
pub(crate) struct Sources {
    files: BTreeMap<ObjectId, Arc<SourceFile>>,
    /// Objects that are being received: where their blocks are, as long as the fetch has them.
    coming: BTreeMap<ObjectId, Weak<dyn BlockSink>>,
    flows: SortedMap<FlowId, Box<Sending>>,
    /// Flows that send the same block share its bytes.
    shared: BTreeMap<BlockKey, Weak<BlockEncoder>>,
}

/// A block read (and prepared for repair) by a worker, or why not.
pub(crate) type Prepared = Result<Arc<BlockEncoder>, StoreError>;

impl Sources {
    pub(crate) fn hold(&mut self, object: ObjectId, file: Arc<SourceFile>) {
        self.files.insert(object, file);
        self.relay_no_more(object);
    }

    pub(crate) fn withdraw(&mut self, object: ObjectId) {
        self.files.remove(&object);
    }

    pub(crate) fn is_sending(&self) -> bool {
        !self.flows.is_empty()
    }

    pub(crate) fn object_of(&self, flow: FlowId) -> Option<ObjectId> {
        self.flows.get(&flow).map(|f| f.object)
    }

    /// An object is being received: its blocks will be there.
    pub(crate) fn relay(&mut self, object: ObjectId, blocks: &Arc<dyn BlockSink>) {
        self.coming.insert(object, Arc::downgrade(blocks));
    }

    /// The object is no longer being received.
    pub(crate) fn relay_no_more(&mut self, object: ObjectId) {
        self.coming.remove(&object);
    }

    /// Which object a flow sends, and how it is cut.
    pub(crate) fn cut_of(&self, flow: FlowId) -> Option<(ObjectId, u16)> {
        self.flows.get(&flow).map(|it| (it.object, it.geometry.symbol_size()))
    }

    pub(crate) fn open(&mut self, flow: FlowId, object: ObjectId, bytes: Bytes, symbol_size: u16) {
        let file = self.files.get(&object).cloned();
        let Ok(geometry) = Geometry::new(bytes, symbol_size) else { return };
        let sending = Sending { object, geometry, file, ready: SortedMap::default() };
        self.flows.insert(flow, Box::new(sending));
    }

    pub(crate) fn close(&mut self, flow: FlowId, buffers: &mut Buffers) {
        if let Some(mut sending) = self.flows.remove(&flow) {
            sending.ready.drain().for_each(|(_, block)| recycle(block, buffers));
        }
        self.shared.retain(|_, block| block.strong_count() > 0);
    }

    /// The job that reads a block, unless another flow has it ready.
    pub(crate) fn prepare(
        &mut self,
        flow: FlowId,
        block: BlockIndex,
        repair: bool,
        buffers: &mut Buffers,
    ) -> Option<impl FnOnce() -> Prepared + Send + use<>> {
        let sending = self.flows.get(&flow)?;
        let key = (sending.object, sending.geometry.symbol_size(), block);
        let known = sending.ready.get(&block).cloned().or_else(|| self.shared.get(&key)?.upgrade());
        let held = sending.file.as_ref().or_else(|| self.files.get(&sending.object)).cloned();
        let coming = self.coming.get(&sending.object).and_then(Weak::upgrade);
        let geometry = sending.geometry;
        let buffer = if known.is_none() { buffers.take() } else { Vec::new() };
        Some(move || {
            let encoder = match known {
                Some(encoder) => encoder,
                None => Arc::new(read(held, coming, &geometry, block, buffer)?),
            };
            if repair {
                encoder.prepare_repair();
            }
            Ok(encoder)
        })
    }

    pub(crate) fn on_prepared(
        &mut self,
        flow: FlowId,
        block: BlockIndex,
        encoder: Arc<BlockEncoder>,
        buffers: &mut Buffers,
    ) {
        let Some(sending) = self.flows.get_mut(&flow) else { return recycle(encoder, buffers) };
        let key = (sending.object, sending.geometry.symbol_size(), block);
        self.shared.insert(key, Arc::downgrade(&encoder));
        if let Some(before) = sending.ready.insert(block, encoder) {
            recycle(before, buffers);
        }
    }

    pub(crate) fn release(&mut self, flow: FlowId, block: BlockIndex, buffers: &mut Buffers) {
        let Some(sending) = self.flows.get_mut(&flow) else { return };
        if let Some(block) = sending.ready.remove(&block) {
            recycle(block, buffers);
        }
        let key = (sending.object, sending.geometry.symbol_size(), block);
        if self.shared.get(&key).is_some_and(|b| b.strong_count() == 0) {
            self.shared.remove(&key);
        }
    }

    /// The block that a symbol of this flow comes from; `None` if it is not ready, which the machine does not let
    /// happen.
    pub(crate) fn block(&mut self, flow: FlowId, symbol: SymbolId) -> Option<&BlockEncoder> {
        self.flows.get_mut(&flow)?.ready.get_mut(&symbol.block).map(|block| &**block)
    }
}

/// Keeps the block's buffer if nobody else uses it.
fn recycle(block: Arc<BlockEncoder>, buffers: &mut Buffers) {
    if let Some(encoder) = Arc::into_inner(block) {
        buffers.put(encoder.into_block());
    }
}

fn read(
    held: Option<Arc<SourceFile>>,
    coming: Option<Arc<dyn BlockSink>>,
    geometry: &Geometry,
    block: BlockIndex,
    mut bytes: Vec<u8>,
) -> Result<BlockEncoder, StoreError> {
    match (held, coming) {
        (Some(file), _) => file.read_block(block, &mut bytes)?,
        (None, Some(blocks)) => blocks.read(block, &mut bytes)?,
        (None, None) => return Err(StoreError::BlockMissing { block }),
    }
    let shape = BlockShape::of(geometry, block).expect("the machine names blocks of the object");
    debug_assert_eq!(Bytes::new(bytes.len() as u64), geometry.layout().len(block));
    Ok(BlockEncoder::new(shape, bytes).expect("a block has the length of its shape"))
}
