//! A pool of block buffers.
//!
//! A fresh buffer costs zeroing and a page fault for every 4 KiB of it, at each block. A used one costs nothing, since its old
//! contents are overwritten anyway. The pool is bounded in bytes, and emptied when no transfer runs.

use headwater_units::Bytes;

/// Most bytes of the spare buffers of all flows together: the blocks of the usual size that one receiver may have under
/// way (`ReceiverConfig::blocks_in_flight`). Where hashing lags behind for a moment, as many are needed again and
/// again.
const MOST: Bytes = Bytes::mib(64);

/// Below that, looking for what the system could have back costs more than it is worth: a small object is over in less time.
const MUCH: Bytes = Bytes::mib(8);

/// Buffers that wait for the next block. Belongs to the data thread; jobs carry theirs along.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    spare: Vec<Vec<u8>>,
    bytes: u64,
}

impl Buffers {
    /// A buffer of any length with anything in it, the one that was used last; an empty one if none is spare.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let buffer = self.spare.pop().unwrap_or_default();
        self.bytes -= buffer.capacity() as u64;
        buffer
    }

    /// Keeps a buffer for later, if there is room.
    pub(crate) fn put(&mut self, buffer: Vec<u8>) {
        let bytes = buffer.capacity() as u64;
        if bytes > 0 && self.bytes + bytes <= MOST.get() {
            self.bytes += bytes;
            self.spare.push(buffer);
        }
    }

    /// Gives the memory back, to the system too where it is much.
    pub(crate) fn clear(&mut self) {
        let much = self.bytes >= MUCH.get();
        *self = Buffers::default();
        if much {
            trim();
        }
    }
}

/// glibc keeps what was freed below something that is still in use, and after the first block it no longer maps blocks by
/// themselves (its threshold grows with what is freed): an idle node would hold the most that it ever needed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
fn trim() {
    // SAFETY: it takes a number, may be called at any time, and moves nothing that is in use.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_buffer_used_comes_back_as_it_was() {
        let mut buffers = Buffers::default();
        assert_eq!(buffers.take().capacity(), 0);
        buffers.put(vec![1; 10]);
        buffers.put(vec![2; 20]);
        assert_eq!(buffers.take(), [2; 20]);
        assert_eq!(buffers.take(), [1; 10]);
        assert_eq!(buffers.bytes, 0);
    }

    #[test]
    fn no_more_than_the_bound_is_kept() {
        let mut buffers = Buffers::default();
        let block = 1 << 20;
        (0..80).for_each(|_| buffers.put(Vec::with_capacity(block)));
        assert_eq!(buffers.spare.len() as u64, MOST.get() / block as u64);
        buffers.clear();
        assert_eq!((buffers.take().capacity(), buffers.bytes), (0, 0));
    }
}
