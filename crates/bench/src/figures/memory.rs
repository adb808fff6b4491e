//! How fast this machine copies memory: the measure of everything that touches each byte.

use std::hint::black_box;
use std::time::Instant;

use headwater_units::Bytes;

/// Size of the areas to copy from and to: far more than any cache holds.
const AREA: Bytes = Bytes::mib(128);
/// Copied at a time, as much as a block has.
const PIECE: usize = 256 << 10;

/// Two areas and nothing else.
pub struct Copier {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Default for Copier {
    fn default() -> Self {
        Copier::new()
    }
}

impl Copier {
    /// With every page touched, so that copying asks the kernel for none.
    pub fn new() -> Self {
        let size = usize::try_from(AREA.get()).expect("a constant that fits");
        Copier { from: vec![1; size], to: vec![2; size] }
    }

    /// Copies all once, in pieces of 256 KiB; returns megabytes per second.
    #[allow(clippy::disallowed_methods, reason = "this measures the machine")]
    pub fn mb_per_s(&mut self) -> f64 {
        let start = Instant::now();
        for (to, from) in self.to.chunks_exact_mut(PIECE).zip(self.from.chunks_exact(PIECE)) {
            to.copy_from_slice(black_box(from));
            black_box(to);
        }
        AREA.get() as f64 / start.elapsed().as_secs_f64() / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_copied_at_a_speed_that_memory_has() {
        let mut copier = Copier::new();
        let speed = copier.mb_per_s();
        assert!(copier.to.iter().all(|byte| *byte == 1));
        assert!((100.0..1e6).contains(&speed), "{speed} MB/s");
    }
}
