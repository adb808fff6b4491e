//! Any network, any schedule: every block is decoded once, and everything ends.

use headwater_transport::DecodeFailure;
use headwater_transport::pull::{PullFlowConfig, SessionConfig};
use headwater_transport::source::SourceConfig;
use headwater_wire::Body;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use crate::net::*;

/// A network's faults, in percent of packets.
#[derive(Clone, Copy, Debug)]
struct Weather {
    lost: u32,
    trimmed: u32,
    late: u32,
    twice: u32,
    /// Largest delay, in microseconds.
    by: u64,
}

fn weather() -> impl Strategy<Value = Weather> {
    (0u32..15, 0u32..20, 0u32..30, 0u32..10, 1u64..400).prop_map(|(lost, trimmed, late, twice, by)| Weather {
        lost,
        trimmed,
        late,
        twice,
        by,
    })
}

fn fates(weather: Weather, seed: u64) -> Faults<Addressed> {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    Box::new(move |_, it: &mut Addressed| {
        let Weather { lost, trimmed, late, twice, by } = weather;
        let (dice, by) = (rng.random_range(0..100), us(rng.random_range(0..by)));
        let is_symbol = matches!(it.packet.datagram.body, Body::Symbol(_));
        match dice {
            _ if dice < lost => Fate::Lost,
            _ if dice < lost + trimmed && is_symbol => Fate::Trimmed,
            _ if dice < lost + trimmed + late => Fate::Late(by),
            _ if dice < lost + trimmed + late + twice => Fate::Twice(by),
            _ => Fate::Arrives,
        }
    })
}

fn source() -> SourceConfig {
    let mut source = SourceConfig { pull: PullFlowConfig::data_centre(), ..SourceConfig::default() };
    (source.pull.detach_after, source.pull.retell) = (ms(30), ms(2));
    source
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_block_is_decoded_once_from_any_number_of_sources(
        (there, back) in (weather(), weather()),
        (sources, blocks, window) in (1usize..5, 1u64..7, 1u16..80),
        (room, trims, opens_flows) in (2usize..60, any::<bool>(), any::<bool>()),
        (reordering, open_blocks, disk, decoder) in (1u16..80, 1u32..6, 0u64..300, 0u64..2000),
        (doubtful, dies, seed) in (0u32..3, prop::option::of(0u64..6000), any::<u64>()),
    ) {
        let session = SessionConfig { reordering, open_blocks, opens_flows, ..SessionConfig::data_centre() };
        let mut net = Setup { sources, window, session, source: source(), ..Setup::blocks(blocks) }.net();
        net.set_room(room);
        net.set_trims(trims);
        net.there(fates(there, seed));
        net.back(fates(back, seed ^ 1));
        (net.disk, net.decoder) = (us(disk), us(decoder));
        // Some blocks do not decode at first, some are wrong once, whichever source sent them.
        net.verdict = Box::new(move |block, try_, senders| match (block + seed as u32) % 5 {
            0 if try_ <= doubtful => Err(DecodeFailure::NeedMore),
            1 if try_ == 1 && doubtful > 0 && senders.len() > 1 => Err(DecodeFailure::Corrupt),
            _ => Ok(()),
        });
        if let Some(at) = dies.filter(|_| sources > 1) {
            net.call(us(at), |net| net.sources[0].dead = true);
        }
        net.finish_receivers();
        prop_assert!(net.receivers[0].got.distrusted.is_empty() || doubtful > 0);
        let stats = net.receivers[0].session.stats();
        let sent: usize = (0..sources).map(|source| net.sent(source, flow(source, 0)).len()).sum();
        // Nobody pours: what is sent beyond what is needed has a reason.
        let reasons = stats.lost + stats.trimmed + stats.useless + stats.surplus + stats.timeouts;
        let thrown = u64::from(net.receivers[0].got.discarded) * 2 * u64::from(K);
        let most = blocks * u64::from(K) + 2 * blocks + 2 * stats.need_more + thrown + 2 * reasons;
        prop_assert!(sent as u64 <= most + 2 * u64::from(window) * sources as u64, "{sent} {most} {stats:?}");
    }

    #[test]
    fn every_member_of_a_group_decodes_every_block_once(
        (there, back) in (weather(), weather()),
        (receivers, blocks, window, room) in (1usize..5, 1u64..5, 1u16..40, 2usize..60),
        (freezes, thaws, seed) in (0u64..3000, 0u64..80_000, any::<u64>()),
    ) {
        let setup = Setup { receivers, group: true, window, source: source(), ..Setup::blocks(blocks) };
        let mut net = setup.net();
        net.set_room(room);
        net.there(fates(there, seed));
        net.back(fates(back, seed ^ 1));
        net.call(us(freezes), |net| net.receivers[0].frozen = true);
        net.call(us(freezes + thaws), |net| net.thaw(0));
        net.finish_receivers();
    }

    /// The same run is the same, to the last packet.
    #[test]
    fn a_run_is_a_function_of_its_seed(weather in weather(), seed: u64) {
        let run = || {
            let mut net = Setup { sources: 2, source: source(), ..Setup::blocks(2) }.net();
            net.there(fates(weather, seed));
        net.back(fates(weather, seed ^ 1));
            net.finish_receivers();
            (net.now(), net.receivers[0].session.stats(), net.receivers[0].pulled.len())
        };
        prop_assert_eq!(run(), run());
    }
}
