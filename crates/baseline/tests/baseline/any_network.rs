//! Whatever the network does, a flow that is not cut off completes, and nothing is counted twice.

use headwater_baseline::{DctcpConfig, Scheme, SenderConfig};
use headwater_units::{Packets, Time};
use proptest::prelude::*;

use crate::bench::{Bench, us};
use crate::net::{Link, Net, Weather, queue};

fn weather() -> impl Strategy<Value = Weather> {
    (0.0..0.3, 0.0..0.3, 0.0..0.2, 0.0..1.0, 1u64..2000).prop_map(|(loss, late, twice, marked, by)| Weather {
        loss,
        late,
        twice,
        marked,
        by: us(by),
    })
}

fn scheme() -> impl Strategy<Value = Scheme> {
    prop_oneof![
        Just(Scheme::NewReno),
        Just(Scheme::Bic),
        Just(Scheme::Vegas),
        (0.0..=1.0).prop_map(|initial_mark_fraction| {
            Scheme::Dctcp(DctcpConfig { initial_mark_fraction, ..DctcpConfig::default() })
        }),
        any::<bool>().prop_map(|ecn| Scheme::Ccid2 { ecn }),
    ]
}

/// False statements of a lying peer about packets around the newest one sent.
#[derive(Clone, Copy, Debug)]
enum Lie {
    Cumulative { back: i64, echo: bool },
    Block { back: i64, from: u32, len: u32 },
    Vector { back: i64, received: u32, marked: u32 },
    Silence(u64),
}

fn lie() -> impl Strategy<Value = Lie> {
    let back = || prop_oneof![8 => -1i64..40, 1 => -1i64..5000, 1 => any::<i64>()];
    prop_oneof![
        (back(), any::<bool>()).prop_map(|(back, echo)| Lie::Cumulative { back, echo }),
        (back(), 1u32..100, 1u32..100).prop_map(|(back, from, len)| Lie::Block { back, from, len }),
        (back(), any::<u32>(), any::<u32>()).prop_map(|(back, received, marked)| Lie::Vector {
            back,
            received,
            marked
        }),
        (0u64..30_000).prop_map(Lie::Silence),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_flow_completes_and_nothing_is_counted_twice(
        (scheme, sack) in (scheme(), any::<bool>()),
        packets in 0u64..600,
        (window, limit) in (1.0f64..40.0, 1.0f64..200.0),
        (per_packet, room, mark_above) in (0u64..3, 5usize..200, 0usize..60),
        (there, back) in (weather(), weather()),
        seed: u64,
    ) {
        let config = SenderConfig {
            initial_window: Packets::new(window),
            window_limit: Packets::new(limit),
            sack,
            ..SenderConfig::data_centre(scheme)
        };
        let mut net = Net::new(
            config,
            packets,
            queue(us(per_packet), room, mark_above, us(40)).with_faults(there.faults(seed)),
            Link::new(us(40)).with_faults(back.faults(!seed)),
        );
        net.finish();
        let (sent, got) = (net.sender(0).stats(), net.host().stats());
        prop_assert_eq!(got.distinct, packets);
        prop_assert!(net.reached.len() as u64 >= packets);
        prop_assert!(sent.acked >= packets && sent.acked <= net.reached.len() as u64);
        prop_assert!(net.most_in_flight <= limit as u64, "{} out, {limit} allowed", net.most_in_flight);
        prop_assert_eq!(sent.sent, net.there().carried + net.there().dropped);
        prop_assert_eq!((sent.unexpected, got.unexpected), (0, 0));
        match scheme {
            Scheme::Ccid2 { .. } => {
                prop_assert_eq!(sent.resent, 0);
                prop_assert!(net.sent[0].iter().map(|&(_, number)| number).eq(0..sent.sent));
            }
            _ => {
                prop_assert_eq!(net.reached.len() as u64, packets);
                prop_assert_eq!(sent.sent, packets + sent.resent);
                prop_assert_eq!((got.next, got.outside, sent.in_flight), (packets, 0, 0));
            }
        }
    }

    /// ACKs for anything in any order: no panic, no wake in the past, no more in flight than allowed, nothing after the end.
    #[test]
    fn a_peer_that_lies_cannot_break_a_sender(
        (scheme, sack) in (scheme(), any::<bool>()),
        limit in 1.0f64..300.0,
        lies in proptest::collection::vec(lie(), 0..400),
    ) {
        let config = SenderConfig { window_limit: Packets::new(limit), sack, ..SenderConfig::data_centre(scheme) };
        let mut bench = Bench::new(config);
        bench.drain();
        for lie in lies {
            let newest = bench.stats().sent as i64;
            match lie {
                Lie::Cumulative { back, echo: false } => bench.ack(newest.saturating_sub(back) as u64),
                Lie::Cumulative { back, echo: true } => bench.echo(newest.saturating_sub(back) as u64),
                Lie::Block { back, from, len } => {
                    bench.raw_block(newest.saturating_sub(back) as u64, (from, from + len))
                }
                Lie::Vector { back, received, marked } => {
                    bench.raw_vector(newest.saturating_sub(back) as u64, received, marked)
                }
                Lie::Silence(span) => bench.pass(us(span)),
            };
            let stats = bench.stats();
            prop_assert!(stats.in_flight <= limit as u64 && stats.window.get() >= 1.0);
            prop_assert!(stats.window.get() <= limit.floor() && stats.resent <= stats.sent);
            prop_assert!(bench.wake.is_none_or(|at: Time| at > bench.now));
        }
    }
}
