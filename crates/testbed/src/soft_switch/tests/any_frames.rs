//! Any frames into a whole network: see [`storm`].

use proptest::prelude::*;
use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::super::{NotForwarded, storm};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn any_frames_and_faults_leave_every_frame_accounted_for(
        bytes in prop::collection::vec(any::<u8>(), 0..4_000),
    ) {
        storm::run(&bytes);
    }
}

/// Goal: what storms check does occur in them.
#[test]
fn storms_meet_everything_that_can_become_of_a_frame() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut met, mut refused) = ([0; 9], [0; NotForwarded::ALL.len()]);
    for _ in 0..1_000 {
        let mut bytes = [0; 4_000];
        rng.fill_bytes(&mut bytes);
        let storm::Reached { counts, marked, trimmed, not_forwarded } = storm::run(&bytes);
        let seen = [
            counts.copied,
            counts.duplicated,
            counts.delivered,
            counts.dropped,
            counts.lost,
            counts.unroutable,
        ];
        let of_each = seen.map(|it| it.frames).into_iter().chain([counts.reordered, marked, trimmed]);
        met.iter_mut().zip(of_each).for_each(|(sum, more)| *sum += more);
        refused.iter_mut().zip(not_forwarded).for_each(|(sum, more)| *sum += more);
    }
    assert!(met.iter().chain(&refused).all(|count| *count >= 100), "{met:?} {refused:?}");
}
