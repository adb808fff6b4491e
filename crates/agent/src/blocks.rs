//! Buffers for blocks, used again and again: the hot path allocates nothing.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// Unused buffers that are kept at most.
const KEPT: usize = 1024;

/// The unused buffers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    unused: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Pool {
    /// An empty buffer with room for this many bytes.
    pub(crate) fn take(&self, capacity: usize) -> Block {
        let unused = self.unused.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bytes = unused.unwrap_or_default();
        bytes.reserve_exact(capacity);
        Block { bytes, pool: self.clone() }
    }
}

/// A buffer that returns to its pool.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    pool: Pool,
}

impl Block {
    pub(crate) fn push(&mut self, more: &[u8]) {
        self.bytes.extend_from_slice(more);
    }
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let mut unused = self.pool.unused.lock().unwrap_or_else(PoisonError::into_inner);
        if unused.len() < KEPT {
            unused.push(bytes);
        }
    }
}
