//! Buffers that frames live in, and the pool that they go back to when they are dropped.
//!
//! A steady state allocates nothing: a dropped buffer's memory is the next frame's. Two sizes, since a queue of ordinary
//! frames in jumbo buffers would be six times as large as what it holds.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest frame, in bytes from the destination MAC address on, without FCS: what common switches call jumbo.
pub const MAX_FRAME: usize = 9216;

/// Room for a frame of 1500 bytes of IP with its tag, and what a power of two leaves beyond.
const SMALL: usize = 2048;
const SIZES: [usize; 2] = [SMALL, MAX_FRAME];

/// A store of empty buffers, shared by everything that holds frames. Clones are the same pool.
///
/// It never refuses: when it is empty it allocates, because how many frames may be held is the queues' business. The
/// number of buffers that it keeps for later is bounded.
#[derive(Clone)]
pub struct FramePool {
    shelves: Arc<Mutex<Shelves>>,
}

struct Shelves {
    /// By size.
    free: [Vec<Box<[u8]>>; SIZES.len()],
    keep: usize,
    allocated: u64,
    lent: u64,
}

impl FramePool {
    /// A pool that keeps at most `keep` unused buffers of either size, and has none so far.
    pub fn new(keep: usize) -> Self {
        let shelves = Shelves { free: [Vec::new(), Vec::new()], keep, allocated: 0, lent: 0 };
        FramePool { shelves: Arc::new(Mutex::new(shelves)) }
    }

    /// A buffer that holds a copy of `parts`, one after another; none if that is more than [`MAX_FRAME`].
    pub fn gather(&self, parts: &[&[u8]]) -> Option<RawBuffer> {
        let len = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.len()))?;
        if len > MAX_FRAME {
            return None;
        }
        let mut memory = self.take(len);
        let mut rest = &mut memory[..len];
        for part in parts {
            let (here, after) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = after;
        }
        Some(RawBuffer { memory, len, home: self.clone() })
    }

    /// How many buffers were ever allocated; constant in a steady state.
    pub fn allocated(&self) -> u64 {
        self.shelves().allocated
    }

    /// How many buffers are in somebody's hands.
    pub fn lent(&self) -> u64 {
        self.shelves().lent
    }

    fn take(&self, len: usize) -> Box<[u8]> {
        let shelf = usize::from(len > SMALL);
        let mut shelves = self.shelves();
        shelves.lent += 1;
        shelves.free[shelf].pop().unwrap_or_else(|| {
            shelves.allocated += 1;
            vec![0; SIZES[shelf]].into()
        })
    }

    fn give_back(&self, memory: Box<[u8]>) {
        let mut shelves = self.shelves();
        shelves.lent -= 1;
        let keep = shelves.keep;
        if let Some(shelf) = SIZES.iter().position(|&size| size == memory.len())
            && shelves.free[shelf].len() < keep
        {
            shelves.free[shelf].push(memory);
        }
    }

    /// A thread that panicked with the lock held left at worst one buffer too few.
    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for FramePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shelves = self.shelves();
        let free: Vec<usize> = shelves.free.iter().map(Vec::len).collect();
        f.debug_struct("FramePool").field("free", &free).field("allocated", &shelves.allocated).finish()
    }
}

/// A frame's bytes, owned. Dropped, its memory goes back to the pool it came from.
pub struct RawBuffer {
    memory: Box<[u8]>,
    len: usize,
    home: FramePool,
}

impl RawBuffer {
    /// The frame's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    /// The frame's bytes, to change.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.len]
    }

    /// Cuts off what lies beyond `len`; nothing if it is not that long.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl AsRef<[u8]> for RawBuffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Clone for RawBuffer {
    fn clone(&self) -> Self {
        self.home.gather(&[self.bytes()]).expect("a copy is no longer than what it is a copy of")
    }
}

impl Drop for RawBuffer {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.memory));
    }
}

impl fmt::Debug for RawBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawBuffer({} bytes)", self.len)
    }
}

impl PartialEq for RawBuffer {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for RawBuffer {}
