//! A host's store in a simulation without bytes.

use headwater_machine::Bits;
use headwater_units::{BlockIndex, Bytes, FetchId, ObjectId};

/// By number, so that a packet need not look an object up: what is here of each that was ever heard of.
#[derive(Default)]
pub(super) struct Shelves(pub(super) Vec<Shelf>);

/// Blocks of an object that are here.
pub(super) struct Shelf {
    pub(super) object: ObjectId,
    pub(super) bytes: Bytes,
    pub(super) name: Option<String>,
    /// All of it, and it is offered.
    pub(super) held: bool,
    /// It is passed on as it comes.
    pub(super) coming: bool,
    pub(super) whole: Bits,
    /// As many as `whole` has places for.
    pub(super) blocks: u32,
    /// The fetch that fills it.
    pub(super) fetch: Option<FetchId>,
}

impl Shelves {
    pub(super) fn number(&mut self, object: ObjectId) -> usize {
        self.0.iter().position(|shelf| shelf.object == object).unwrap_or_else(|| {
            self.0.push(Shelf::empty(object));
            self.0.len() - 1
        })
    }

    pub(super) fn of(&mut self, object: ObjectId) -> &mut Shelf {
        let number = self.number(object);
        &mut self.0[number]
    }

    pub(super) fn held(&self) -> impl Iterator<Item = &Shelf> {
        self.0.iter().filter(|shelf| shelf.held)
    }
}

impl Shelf {
    pub(super) fn empty(object: ObjectId) -> Self {
        let whole = Bits::new(0);
        Shelf {
            object,
            bytes: Bytes::ZERO,
            name: None,
            held: false,
            coming: false,
            whole,
            blocks: 0,
            fetch: None,
        }
    }

    /// All of it is here.
    pub(super) fn hold(&mut self, bytes: Bytes, name: Option<String>) {
        *self = Shelf { bytes, name, held: true, ..Shelf::empty(self.object) };
    }

    #[inline]
    pub(super) fn is_whole(&self, block: BlockIndex) -> bool {
        self.held || (block.0 < self.blocks && self.whole.get(block.0))
    }

    /// Notes the number of the object's blocks.
    pub(super) fn cut(&mut self, bytes: Bytes, blocks: u32) {
        self.bytes = bytes;
        if self.blocks != blocks {
            (self.blocks, self.whole) = (blocks, Bits::new(blocks));
        }
    }

    /// Blocks that are here, ascending.
    pub(super) fn have(&self) -> Vec<BlockIndex> {
        (0..self.blocks).map(BlockIndex).filter(|block| self.is_whole(*block)).collect()
    }
}
