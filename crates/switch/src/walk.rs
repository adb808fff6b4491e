//! A random walk over equally good paths that takes every one once per round (SCDP §III-C, NDP).
//!
//! A switch or source that sprays packets has one walk for each destination. Over any stretch of packets no path is
//! used more than once more than another, and yet nobody else's walk is in step with it.

use rand_chacha::rand_core::RngCore;

/// Where one destination's spraying stands.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    order: Order,
    paths: u16,
    next: u16,
}

/// The paths, in this round's order. A switch has a walk for each host: where the paths are few it is in one piece, so that a
/// step fetches nothing else.
#[derive(Clone, Debug)]
enum Order {
    /// Four bits each, the first one lowest.
    Few(u64),
    Many(Box<[u16]>),
}

impl Default for Order {
    fn default() -> Self {
        Order::Few(0)
    }
}

/// Most paths whose numbers, of four bits each, fit.
const FEW: u16 = 16;

impl Walk {
    /// One of `0..of`; zero if there is none. Rounds begin anew, in another order, when all paths were taken or their number is
    /// another one than before.
    #[inline]
    pub fn step(&mut self, of: u16, rng: &mut impl RngCore) -> u16 {
        if self.paths != of {
            // Other paths: a round begun on the old ones is not worth finishing.
            *self = Walk { order: Order::of(of), paths: of, next: of };
        }
        if self.next == of {
            if of == 0 {
                return 0;
            }
            self.order.shuffle(of, rng);
            self.next = 0;
        }
        let path = self.order.at(self.next);
        self.next += 1;
        path
    }
}

impl Order {
    fn of(paths: u16) -> Self {
        match paths {
            ..=FEW => Order::Few(0xfedc_ba98_7654_3210),
            _ => Order::Many((0..paths).collect()),
        }
    }
    #[inline]
    fn at(&self, place: u16) -> u16 {
        match self {
            Order::Few(order) => (order >> (4 * place) & 15) as u16,
            Order::Many(order) => order[usize::from(place)],
        }
    }
    /// Fisher and Yates. The bias of a 32-bit draw over at most 65,535 places is below 2^-16.
    fn shuffle(&mut self, paths: u16, rng: &mut impl RngCore) {
        for last in (1..paths).rev() {
            let other = ((u64::from(rng.next_u32()) * (u64::from(last) + 1)) >> 32) as u16;
            match self {
                Order::Few(order) => {
                    let (last, other) = (4 * last, 4 * other);
                    let differs = (*order >> last ^ *order >> other) & 15;
                    *order ^= differs << last | differs << other;
                }
                Order::Many(order) => order.swap(usize::from(last), usize::from(other)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn each_round_takes_every_path_once_and_no_two_walks_are_alike() {
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

    /// Both paths to keep an order, by what the last of sixteen and the first of seventeen are.
    #[test]
    fn few_and_many_paths_are_shuffled_alike() {
        for paths in [1, 2, 5, 15, 16, 17, 300] {
            let (mut rng, mut same) = (ChaCha8Rng::seed_from_u64(9), ChaCha8Rng::seed_from_u64(9));
            let (mut walk, mut order) = (Walk::default(), Vec::from_iter(0..paths));
            for _ in 0..20 {
                for last in (1..order.len()).rev() {
                    let other = (u64::from(same.next_u32()) * (last as u64 + 1)) >> 32;
                    order.swap(last, other as usize);
                }
                let round: Vec<u16> = (0..paths).map(|_| walk.step(paths, &mut rng)).collect();
                assert_eq!(round, order);
            }
        }
    }

    #[test]
    fn no_path_is_path_zero() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut walk = Walk::default();
        assert_eq!((walk.step(0, &mut rng), walk.step(0, &mut rng), walk.step(1, &mut rng)), (0, 0, 0));
    }
}
