//! A random walk over equally good ways that takes every one once per round (SCDP §III-C, NDP).
//!
//! What sprays packets, switch or source, has one walk for each destination. Over any stretch of packets no way is used more
//! than once more than another, and yet nobody else's walk is in step with it.

use rand_chacha::rand_core::RngCore;

/// Where one destination's spraying stands.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// The ways, in this round's order.
    order: Vec<u16>,
    next: usize,
}

impl Walk {
    /// One of `0..of`; zero if there is none. Rounds begin anew, in another order, when all ways were taken or their number is
    /// another one than before.
    #[inline]
    pub fn step(&mut self, of: u16, rng: &mut impl RngCore) -> u16 {
        if self.order.len() != usize::from(of) {
            // Other ways: a round begun on the old ones is not worth finishing.
            self.order = (0..of).collect();
            self.next = usize::from(of);
        }
        if self.next == self.order.len() {
            shuffle(&mut self.order, rng);
            self.next = 0;
        }
        let way = self.order.get(self.next).copied().unwrap_or_default();
        self.next += 1;
        way
    }
}

/// Fisher and Yates. The bias of a 32-bit draw over at most 65,535 places is below 2^-16.
fn shuffle(order: &mut [u16], rng: &mut impl RngCore) {
    for last in (1..order.len()).rev() {
        let other = (u64::from(rng.next_u32()) * (last as u64 + 1)) >> 32;
        order.swap(last, other as usize);
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn each_round_takes_every_way_once_and_no_two_walks_are_alike() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (mut one, mut other) = (Walk::default(), Walk::default());
        let mut round = |walk: &mut Walk| (0..16).map(|_| walk.step(16, &mut rng)).collect::<Vec<_>>();
        for _ in 0..50 {
            let (mut a, b) = (round(&mut one), round(&mut other));
            assert_ne!(a, b, "16! orders are hardly ever the same");
            a.sort_unstable();
            assert_eq!(a, (0..16).collect::<Vec<_>>());
        }
    }

    #[test]
    fn no_way_is_way_zero() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut walk = Walk::default();
        assert_eq!((walk.step(0, &mut rng), walk.step(0, &mut rng), walk.step(1, &mut rng)), (0, 0, 0));
    }
}
