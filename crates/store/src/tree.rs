//! BLAKE3 over an object, cut at its blocks (docs/decisions/0017).
//!
//! A block is 2^n KiB at a multiple of its own size, so its bytes are one complete subtree of the BLAKE3 tree and one
//! chaining value proves it. The chaining values of all blocks merge to the ordinary BLAKE3 hash of the object:
//! ```text
//!            object id                 root of 4 blocks
//!           /         \
//!        parent      parent            merged here
//!        /    \      /    \
//!       0      1    2      3           BlockHashes: one chaining value per block
//! ```
//! An object of one block has no parent node: its only "chaining value" is the object id itself. An empty object has
//! no block at all. The size is not part of the hash list: a peer that lies about it is found out at the last block,
//! which then never verifies; nothing false is ever accepted.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use blake3::hazmat::{self, HasherExt, Mode};
use headwater_units::{BlockIndex, BlockLayout, Bytes, ObjectId};

use crate::StoreError;

/// The hash of one BLAKE3 subtree.
pub type ChainingValue = hazmat::ChainingValue;

/// How much is read at a time when hashing or copying a file.
pub(crate) const READ_SIZE: usize = 1 << 20;

/// The chaining values of all blocks of one object, known to merge to its id. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct BlockHashes {
    id: ObjectId,
    layout: BlockLayout,
    hashes: Arc<[ChainingValue]>,
}

impl std::fmt::Debug for BlockHashes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockHashes({:?}, {} in {} blocks)", self.id, self.size(), self.hashes.len())
    }
}

impl BlockHashes {
    /// Hashes everything a reader gives, in one pass and constant memory (32 bytes per block aside).
    ///
    /// `progress` hears how many bytes are hashed so far, about once per MiB.
    /// # Errors
    /// [`StoreError::Io`] when reading fails; `path` is only for its message.
    pub fn of_reader(
        reader: &mut dyn Read,
        path: &Path,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<Self, StoreError> {
        let mut hasher = BlockHasher::new();
        let mut buffer = vec![0; READ_SIZE];
        loop {
            let n = read_full(reader, &mut buffer).map_err(|e| StoreError::io("read", path, e))?;
            if n == 0 {
                return Ok(hasher.finish());
            }
            hasher.update(&buffer[..n]);
            progress(hasher.len());
        }
    }

    /// Hashes a file from its beginning, wherever `path` points now. See [`crate::SourceFile::hash`] for a file that
    /// is to be served.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn of_file(path: &Path, progress: &mut dyn FnMut(Bytes)) -> Result<Self, StoreError> {
        let mut file = File::open(path).map_err(|e| StoreError::io("open", path, e))?;
        BlockHashes::of_reader(&mut file, path, progress)
    }

    /// Hashes bytes in memory.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let mut hasher = BlockHasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Takes a list of hashes from an untrusted place.
    ///
    /// # Errors
    /// [`StoreError::HashesMismatch`] unless there is exactly one per block of the layout of `size` and they merge to
    /// `id`.
    pub fn verified(id: ObjectId, size: Bytes, hashes: Vec<ChainingValue>) -> Result<Self, StoreError> {
        let layout = BlockLayout::of(size);
        let fail = |reason: String| StoreError::HashesMismatch { id, reason };
        // Past 4 PiB the block index is full; the layout then no longer covers the object.
        if layout.block_bytes() * u64::from(layout.block_count()) < size {
            return Err(fail(format!("an object of {size} has too many blocks")));
        }
        if hashes.len() != layout.block_count() as usize {
            let (n, want) = (hashes.len(), layout.block_count());
            return Err(fail(format!("{n} hashes for {want} blocks")));
        }
        if merged_root(&hashes) != id {
            return Err(fail("they do not merge to its id".to_owned()));
        }
        Ok(BlockHashes { id, layout, hashes: hashes.into() })
    }

    /// The object's id: the ordinary BLAKE3 hash of its bytes.
    pub fn root(&self) -> ObjectId {
        self.id
    }
    /// How the object is cut into blocks.
    pub fn layout(&self) -> BlockLayout {
        self.layout
    }
    /// The object's size.
    pub fn size(&self) -> Bytes {
        self.layout.object_bytes()
    }
    /// One chaining value per block, in block order; what [`BlockHashes::verified`] takes.
    pub fn as_slice(&self) -> &[ChainingValue] {
        &self.hashes
    }

    /// Whether these bytes are that block, to the last bit and with the right length.
    pub fn verify_block(&self, block: BlockIndex, bytes: &[u8]) -> bool {
        let Some(expected) = self.hashes.get(block.0 as usize) else { return false };
        if bytes.len() as u64 != self.layout.len(block).get() {
            return false;
        }
        let mut hasher = blake3::Hasher::new();
        let found = if self.hashes.len() == 1 {
            *hasher.update(bytes).finalize().as_bytes()
        } else {
            hasher.set_input_offset(self.layout.offset(block).get()).update(bytes).finalize_non_root()
        };
        found == *expected
    }
}

/// Whether the file at `path` holds exactly that object. A missing file does not.
///
/// The size is compared first, so a file of another size is not read.
/// # Errors
/// [`StoreError::Io`] when the file is there but cannot be read.
pub fn holds(
    path: &Path,
    id: ObjectId,
    size: Bytes,
    progress: &mut dyn FnMut(Bytes),
) -> Result<bool, StoreError> {
    match std::fs::metadata(path) {
        Ok(m) if m.is_file() && m.len() == size.get() => {
            Ok(BlockHashes::of_file(path, progress)?.root() == id)
        }
        Ok(_) => Ok(false),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(StoreError::io("look at", path, e)),
    }
}

/// Hashes a stream of unknown length into [`BlockHashes`].
///
/// The block size depends on the length: it begins with the smallest and merges neighbours once the stream is so long
/// that its blocks must be larger, so memory stays at 32 bytes per block of the final layout (twice that at most).
pub struct BlockHasher {
    /// Of the block being filled; the first one can still become the root.
    current: blake3::Hasher,
    filled: u64,
    block_bytes: u64,
    done: Vec<ChainingValue>,
    len: u64,
    /// The block size for a length, never falling as the length grows.
    block_bytes_for: fn(u64) -> u64,
}

impl Default for BlockHasher {
    fn default() -> Self {
        BlockHasher::new()
    }
}

impl BlockHasher {
    /// Nothing hashed yet.
    pub fn new() -> Self {
        BlockHasher::with_layout(|len| BlockLayout::of(Bytes::new(len)).block_bytes().get())
    }

    fn with_layout(block_bytes_for: fn(u64) -> u64) -> Self {
        BlockHasher {
            current: blake3::Hasher::new(),
            filled: 0,
            block_bytes: block_bytes_for(0),
            done: Vec::new(),
            len: 0,
            block_bytes_for,
        }
    }

    /// How many bytes were hashed.
    pub fn len(&self) -> Bytes {
        Bytes::new(self.len)
    }
    /// Whether nothing was hashed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Hashes the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            // A full block is closed only when more follows: the first may turn out to be the whole object.
            if self.filled == self.block_bytes {
                self.close_block();
            }
            let room = usize::try_from(self.block_bytes - self.filled).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.current.update(now);
            self.filled += now.len() as u64;
            self.len += now.len() as u64;
            bytes = later;
        }
    }

    fn close_block(&mut self) {
        self.done.push(self.current.finalize_non_root());
        if self.done.len().is_multiple_of(2) && (self.block_bytes_for)(self.len) > self.block_bytes {
            self.merge_neighbours();
        }
        self.current = blake3::Hasher::new();
        self.current.set_input_offset(self.len);
        self.filled = 0;
    }

    /// Halves the list. A block without a right neighbour is its own subtree in the larger layout, too.
    fn merge_neighbours(&mut self) {
        let merged = self.done.chunks(2).map(|pair| match pair {
            [left, right] => hazmat::merge_subtrees_non_root(left, right, Mode::Hash),
            rest => rest[0],
        });
        self.done = merged.collect();
        self.block_bytes *= 2;
    }

    /// The hashes of everything given.
    pub fn finish(self) -> BlockHashes {
        let layout = BlockLayout::of(self.len());
        let (id, hashes) = self.into_parts();
        BlockHashes { id, layout, hashes: hashes.into() }
    }

    fn into_parts(mut self) -> (ObjectId, Vec<ChainingValue>) {
        if self.done.is_empty() {
            let root = *self.current.finalize().as_bytes();
            let hashes = if self.len == 0 { Vec::new() } else { vec![root] };
            return (ObjectId(root), hashes);
        }
        self.done.push(self.current.finalize_non_root());
        while (self.block_bytes_for)(self.len) > self.block_bytes {
            self.merge_neighbours();
        }
        (merged_root(&self.done), self.done)
    }
}

/// Merges the chaining values of consecutive blocks, all but the last of equal size, to the hash of the whole.
fn merged_root(hashes: &[ChainingValue]) -> ObjectId {
    match hashes {
        [] => ObjectId(*blake3::hash(b"").as_bytes()),
        [only] => ObjectId(*only),
        _ => {
            let (left, right) = hashes.split_at(left_count(hashes.len()));
            let root = hazmat::merge_subtrees_root(&merged(left), &merged(right), Mode::Hash);
            ObjectId(*root.as_bytes())
        }
    }
}

fn merged(hashes: &[ChainingValue]) -> ChainingValue {
    if let [only] = hashes {
        return *only;
    }
    let (left, right) = hashes.split_at(left_count(hashes.len()));
    hazmat::merge_subtrees_non_root(&merged(left), &merged(right), Mode::Hash)
}

/// The largest power of two below `count` (which is at least 2): BLAKE3's left subtree.
fn left_count(count: usize) -> usize {
    1 << (count - 1).ilog2()
}

/// Reads until the buffer is full or the stream ends.
pub(crate) fn read_full(reader: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match reader.read(&mut buffer[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bao_tree::io::outboard::PreOrderMemOutboard;
    use proptest::prelude::*;

    fn content(len: usize) -> Vec<u8> {
        (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29) as u8).collect()
    }

    const SIZES: &[usize] = &[
        0,
        1,
        1023,
        1024,
        1025,
        (256 << 10) - 1,
        256 << 10,
        (256 << 10) + 1,
        512 << 10,
        (512 << 10) + 1,
        (768 << 10) + 777,
        1 << 20,
        (3 << 20) + 1,
        (5 << 20) - 1023,
        7_654_321,
    ];

    #[test]
    fn the_root_is_the_plain_blake3_hash_of_any_size() {
        for &size in SIZES {
            let bytes = content(size);
            let hashes = BlockHashes::of_reader(&mut &bytes[..], Path::new("memory"), &mut |_| {}).unwrap();
            assert_eq!(hashes.root().0, *blake3::hash(&bytes).as_bytes(), "{size} bytes");
            assert_eq!(hashes.as_slice().len(), size.div_ceil(256 << 10));
            let again =
                BlockHashes::verified(hashes.root(), Bytes::new(size as u64), hashes.as_slice().to_vec());
            assert_eq!(again.unwrap(), hashes);
        }
    }

    #[test]
    fn bao_tree_finds_the_same_nodes() {
        for &size in SIZES {
            let bytes = content(size);
            // Chunk groups of 2^8 chunks are our 256 KiB blocks; its leaves' parents hold their chaining values.
            let oracle = PreOrderMemOutboard::create(&bytes, bao_tree::BlockSize::from_chunk_log(8));
            let ours = BlockHashes::of_bytes(&bytes);
            assert_eq!(ours.root().0, *oracle.root.as_bytes());
            if ours.as_slice().len() < 2 {
                continue;
            }
            for cv in ours.as_slice() {
                assert!(
                    oracle.data.chunks(32).any(|node| node == cv),
                    "{size} bytes: block hash unknown to bao"
                );
            }
        }
    }

    #[test]
    fn every_block_verifies_alone_and_no_other_bytes_do() {
        for &size in SIZES {
            let bytes = content(size);
            let hashes = BlockHashes::of_bytes(&bytes);
            for (i, block) in bytes.chunks(256 << 10).enumerate() {
                let index = BlockIndex(i as u32);
                assert!(hashes.verify_block(index, block));
                assert!(!hashes.verify_block(index, &block[1..]));
                assert!(!hashes.verify_block(BlockIndex(i as u32 + 1), block));
                let mut bad = block.to_vec();
                bad[block.len() / 2] ^= 1;
                assert!(!hashes.verify_block(index, &bad));
            }
            assert!(!hashes.verify_block(BlockIndex(u32::MAX), b""));
        }
    }

    #[test]
    fn hashes_that_are_not_the_objects_are_refused() {
        let bytes = content(1_000_000);
        let hashes = BlockHashes::of_bytes(&bytes);
        let (id, size, list) = (hashes.root(), hashes.size(), hashes.as_slice().to_vec());
        let refused = |id, size: u64, list: &[ChainingValue]| {
            let result = BlockHashes::verified(id, Bytes::new(size), list.to_vec());
            assert!(matches!(result, Err(StoreError::HashesMismatch { .. })));
        };
        refused(ObjectId([3; 32]), size.get(), &list);
        refused(id, size.get() * 2, &list);
        refused(id, u64::MAX, &list);
        refused(id, 0, &[]);
        refused(id, size.get(), &list[..3]);
        let mut swapped = list.clone();
        swapped.swap(0, 1);
        refused(id, size.get(), &swapped);
    }

    /// Blocks of 1 KiB, doubled as long as there would be more than four: the real rule in small.
    fn small_blocks(len: u64) -> u64 {
        let mut block = 1024;
        while block < 16 << 10 && len.div_ceil(block) > 4 {
            block *= 2;
        }
        block
    }

    proptest! {
        #[test]
        fn a_stream_of_unknown_length_ends_with_the_layout_of_its_length(
            len in 0usize..100 << 10, step in 1usize..5000,
        ) {
            let bytes = content(len);
            let mut hasher = BlockHasher::with_layout(small_blocks);
            bytes.chunks(step).for_each(|part| hasher.update(part));
            let (id, hashes) = hasher.into_parts();
            prop_assert_eq!(id.0, *blake3::hash(&bytes).as_bytes());
            let block = small_blocks(len as u64) as usize;
            prop_assert_eq!(hashes.len(), len.div_ceil(block));
            if hashes.len() > 1 {
                for (i, (part, cv)) in bytes.chunks(block).zip(&hashes).enumerate() {
                    let mut alone = blake3::Hasher::new();
                    alone.set_input_offset((i * block) as u64).update(part);
                    prop_assert_eq!(&alone.finalize_non_root(), cv);
                }
            }
        }
    }
}
