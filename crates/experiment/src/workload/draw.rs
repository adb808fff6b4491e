//! Random numbers of a seed, in streams for one purpose each.
//!
//! Numbers are made from the generator's words in here, so that they do not change with a library's version.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Use of a stream of random numbers.
pub(super) enum Stream {
    Arrivals,
    Sizes,
    Storage,
    Background,
    Task(u32),
    /// When background arrives.
    BackgroundArrivals,
    /// One request of it.
    BackgroundTask(u32),
    /// Which cables are down.
    Failures,
    /// When tasks should be done.
    Deadlines,
    /// Which tasks are others instead.
    Replaced,
    /// Which hosts a fault happens to, and when: that of this number.
    Faults(u32),
}

/// Random numbers of one stream of a seed.
pub(super) struct Draw(ChaCha12Rng);

impl Draw {
    pub(super) fn new(seed: u64, stream: Stream) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut rng = ChaCha12Rng::from_seed(bytes);
        rng.set_stream(match stream {
            Stream::Arrivals => 1,
            Stream::Sizes => 2,
            Stream::Storage => 3,
            Stream::Background => 4,
            Stream::BackgroundArrivals => 5,
            Stream::Failures => 6,
            Stream::Deadlines => 7,
            Stream::Replaced => 8,
            Stream::Faults(n) => (1 << 41) + u64::from(n),
            Stream::Task(n) => 1000 + u64::from(n),
            Stream::BackgroundTask(n) => (1 << 40) + u64::from(n),
        });
        Draw(rng)
    }

    /// In [0, 1), of 53 bits.
    pub(super) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From one arrival of a Poisson process to the next, seconds.
    pub(super) fn gap(&mut self, per_second: f64) -> f64 {
        -(1.0 - self.unit()).ln() / per_second
    }

    /// In 0..n. The bias is below n / 2^64.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        ((u128::from(self.0.next_u64()) * u128::from(n)) >> 64) as u32
    }

    /// In 0..n, but not this one. There must be two.
    pub(super) fn another(&mut self, n: u32, than: u32) -> u32 {
        let drawn = self.below(n - 1);
        drawn + u32::from(drawn >= than)
    }

    /// A number `many` of different values in 0..n, in random order; all of them if `many` is more than there are.
    pub(super) fn several(&mut self, n: u32, many: u32) -> Vec<u32> {
        let mut all: Vec<u32> = (0..n).collect();
        let many = many.min(n);
        for i in 0..many {
            let other = i + self.below(n - i);
            all.swap(i as usize, other as usize);
        }
        all.truncate(many as usize);
        all
    }
}
