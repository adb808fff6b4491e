//! An object divided among disjoint trees block by block (Datacast §IV-B), at the rates of its source (§V-B).
//!
//! A tree that is done with a block gets the next one. Trees that share no link do not slow each other down, so each
//! goes as fast as its slowest link, and no faster than its source's rate has come: that begins somewhere and grows
//! by delta every T while no interest comes twice. As none does: all receivers of a tree get the same rate. The next
//! block is announced before the last one is through, so no tree waits (§IV-B does not say so; with a signalling round trip in
//! between every block would cost one).
//!
//! No packets: no caches, no duplicates, no losses. The rate's reaction to these is in [`crate::fluid::datacast`] and
//! in the packet engine.

use headwater_units::{BitRate, Bytes, Duration, Time};

use super::FlowError;

/// How fast the source sends down a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ramp {
    /// Initial rate (r0).
    pub initial: BitRate,
    /// By how much it grows each time (delta).
    pub increase: BitRate,
    /// How often (T).
    pub interval: Duration,
}

/// A tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Rate of its slowest link.
    pub rate: BitRate,
    /// From a packet's last bit at the source to its last bit at the last receiver.
    pub latency: Duration,
}

/// Result of dealing an object to trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dealt {
    /// When the last receiver had everything.
    pub finish: Time,
    /// By tree: the bytes it had.
    pub bytes: Vec<Bytes>,
}

/// Deals it; of trees that are free at the same time the first has the block.
///
/// # Errors
/// [`FlowError::NoBlocks`] if there is nothing to deal, or nothing to cut it into; [`FlowError::NoFlow`] if there is no tree, or one
/// over which nothing would ever come.
pub fn deal(object: Bytes, block: Bytes, ramp: Ramp, trees: &[Line]) -> Result<Dealt, FlowError> {
    if object == Bytes::ZERO || block == Bytes::ZERO {
        return Err(FlowError::NoBlocks { object, block });
    }
    let stuck = ramp.initial == BitRate::ZERO && ramp.growth() == 0.0;
    if trees.is_empty() || stuck || trees.iter().any(|tree| tree.rate == BitRate::ZERO) {
        return Err(FlowError::NoFlow);
    }
    let mut bytes = vec![Bytes::ZERO; trees.len()];
    let mut free = vec![0.0; trees.len()];
    let mut left = object;
    while left > Bytes::ZERO {
        let next = (0..trees.len()).min_by(|a, b| f64::total_cmp(&free[*a], &free[*b]));
        let next = next.expect("there are trees");
        let dealt = left.min(block);
        left -= dealt;
        bytes[next] += dealt;
        free[next] = ramp.time(bytes[next], trees[next].rate);
    }
    let used = (0..trees.len()).filter(|tree| bytes[*tree] > Bytes::ZERO);
    let last = used.map(|tree| free[tree] + trees[tree].latency.as_secs_f64()).fold(0.0, f64::max);
    Ok(Dealt { finish: Time::ZERO + Duration::from_secs_f64(last), bytes })
}

impl Ramp {
    /// Bits per second each second.
    fn growth(self) -> f64 {
        match self.interval.as_secs_f64() {
            0.0 => 0.0,
            interval => self.increase.get() as f64 / interval,
        }
    }

    /// Time that the first `bytes` take, seconds, over links of the rate `most`.
    fn time(self, bytes: Bytes, most: BitRate) -> f64 {
        let (bits, most, growth) = (bytes.get() as f64 * 8.0, most.get() as f64, self.growth());
        let initial = (self.initial.get() as f64).min(most);
        if growth == 0.0 || initial == most {
            return bits / initial;
        }
        let growing = (most - initial) / growth;
        let until_full = (initial + most) / 2.0 * growing;
        match bits <= until_full {
            true => ((initial * initial + 2.0 * growth * bits).sqrt() - initial) / growth,
            false => growing + (bits - until_full) / most,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Ramp = Ramp {
        initial: BitRate::new(1_000_000_000),
        increase: BitRate::ZERO,
        interval: Duration::from_millis(1),
    };
    const TREE: Line = Line { rate: BitRate::new(1_000_000_000), latency: Duration::ZERO };

    /// Datacast §VI-C: 4, 1 and 0.67 s over one, four and six trees of 1 Gbit/s.
    #[test]
    fn five_hundred_megabytes_take_as_long_as_published() {
        for (trees, blocks, expected) in [(1, 500, 4.0), (4, 125, 1.0), (6, 84, 0.672)] {
            let dealt =
                deal(Bytes::new(500_000_000), Bytes::new(1_000_000), FULL, &vec![TREE; trees]).unwrap();
            assert_eq!(dealt.finish, Time::ZERO + Duration::from_secs_f64(expected));
            assert_eq!(dealt.bytes[0], Bytes::new(1_000_000) * blocks);
            assert_eq!(dealt.bytes.iter().copied().sum::<Bytes>(), Bytes::new(500_000_000));
        }
    }

    #[test]
    fn a_faster_tree_has_more_blocks_and_the_last_packet_counts_where_it_arrives() {
        let fast = Line { rate: BitRate::new(3_000_000_000), latency: Duration::from_millis(7) };
        let dealt = deal(Bytes::new(400_000_000), Bytes::new(1_000_000), FULL, &[TREE, fast]).unwrap();
        // The fast one goes no faster than the source's rate.
        assert_eq!(dealt.bytes, [Bytes::new(200_000_000); 2]);
        assert_eq!(dealt.finish, Time::ZERO + Duration::from_millis(1_607));
        let faster = Ramp { initial: BitRate::new(3_000_000_000), ..FULL };
        let dealt = deal(Bytes::new(400_000_000), Bytes::new(1_000_000), faster, &[TREE, fast]).unwrap();
        assert_eq!(dealt.bytes, [Bytes::new(100_000_000), Bytes::new(300_000_000)]);
        assert_eq!(dealt.finish, Time::ZERO + Duration::from_millis(807));
    }

    /// From 500 Mbit/s by 125 Mbit/s every ms, 4 ms long: half a millisecond's worth of each is missing.
    #[test]
    fn a_rate_that_has_to_grow_costs_half_of_what_it_lacks() {
        let ramp = Ramp {
            initial: BitRate::new(500_000_000),
            increase: BitRate::new(125_000_000),
            interval: Duration::from_millis(1),
        };
        let time = |bytes| ramp.time(Bytes::new(bytes), TREE.rate);
        assert!((time(375_000) - 0.004).abs() < 1e-12, "{}", time(375_000));
        assert!((time(125_000_000) - 1.001).abs() < 1e-12);
        // Halfway up: 500 Mbit/s for 2 ms and the triangle above it.
        assert!((time((1_000_000 + 250_000) / 8) - 0.002).abs() < 1e-12);
        assert_eq!(ramp.time(Bytes::new(125), BitRate::new(1_000_000)), 0.001, "slower links have no ramp");
    }

    #[test]
    fn what_would_never_end_is_refused() {
        let (object, block) = (Bytes::new(10), Bytes::new(3));
        let error = |object, block, ramp, trees: &[Line]| deal(object, block, ramp, trees).unwrap_err();
        let zero = Bytes::ZERO;
        assert_eq!(error(zero, block, FULL, &[TREE]), FlowError::NoBlocks { object: zero, block });
        assert_eq!(error(object, zero, FULL, &[TREE]), FlowError::NoBlocks { object, block: zero });
        assert_eq!(error(object, block, FULL, &[]), FlowError::NoFlow);
        assert_eq!(
            error(object, block, FULL, &[TREE, Line { rate: BitRate::ZERO, ..TREE }]),
            FlowError::NoFlow
        );
        let nothing = Ramp { initial: BitRate::ZERO, ..FULL };
        assert_eq!(error(object, block, nothing, &[TREE]), FlowError::NoFlow);
        let growing = Ramp { increase: BitRate::new(8_000), ..nothing };
        assert!(deal(object, block, growing, &[TREE]).is_ok());
    }
}
