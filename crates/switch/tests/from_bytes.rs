//! Any bytes drive a switch without breaking its laws: the fuzz target `switch`, on random bytes and without a fuzzer.

mod common;
mod harness;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn random_bytes_break_no_law(bytes in prop::collection::vec(any::<u8>(), 0..3_000)) {
        harness::run(&bytes);
    }
}
