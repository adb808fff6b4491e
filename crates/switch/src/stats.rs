//! Counters that anyone may read; nothing here decides anything.

use headwater_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::Frame;

/// Counters of a port, up to the last call that told it the time.
///
/// Nothing gets lost: `frames_in = frames_out + dropped + frames queued now`, and
/// `bytes_in = bytes_out + bytes_dropped + bytes_trimmed + bytes queued now`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStats {
    /// Frames offered, whatever became of them.
    pub frames_in: u64,
    /// Their length on arrival.
    pub bytes_in: Bytes,
    /// Frames whose last bit has left the line, collected or not.
    pub frames_out: u64,
    /// Their length as it left.
    pub bytes_out: Bytes,
    /// Frames that found no room, or were here when the link went down.
    pub dropped: u64,
    /// The length of the dropped ones: on arrival, or as they stood in the queue.
    pub bytes_dropped: Bytes,
    /// Frames taken in and given CE here; those that came with CE and were due it again are among them.
    pub marked: u64,
    /// Frames whose payload was cut off, and whose header found room.
    pub trimmed: u64,
    /// The payload that was cut off.
    pub bytes_trimmed: Bytes,
    /// The most frames that were ever here at once, the one in transmission included.
    pub high_water: u64,
}

/// Counters of a switch outside its ports.
///
/// `frames_in + copies` is what all ports were offered by forwarding, plus `unroutable`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStats {
    /// Frames handed to [`Switch::handle`](crate::Switch::handle).
    pub frames_in: u64,
    /// Frames made beyond the first of each multicast.
    pub copies: u64,
    /// Frames for nobody: an unknown destination, no port up, or a group whose only port they came in by.
    pub unroutable: u64,
}

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many.
    pub frames: u64,
    /// Their length, at the place where they were seen.
    pub bytes: u64,
}

impl Seen {
    /// Counts one more.
    #[inline]
    pub fn note(&mut self, frame: &impl Frame) {
        self.add(1, frame.len().get());
    }
    /// Counts `frames` more, of `bytes_each` each.
    #[inline]
    pub fn add(&mut self, frames: u64, bytes_each: u64) {
        self.frames += frames;
        self.bytes = self.bytes.saturating_add(frames.saturating_mul(bytes_each));
    }
}
