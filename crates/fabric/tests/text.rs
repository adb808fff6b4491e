//! Networks are read from a few lines and written back; whatever is written there, nothing panics.

use headwater_fabric::{
    B4Delays, B4Form, B4Spec, BCubeSpec, BigSwitchSpec, ChainSpec, DumbbellSpec, FabricSpec, FatTreeSpec,
    GraphHost, GraphLink, GraphSpec, LeafSpineSpec, LinkDelay, LinkRate, TorusSpec,
};
use headwater_units::{BitRate, Bytes, Duration};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;

fn rate() -> impl Strategy<Value = LinkRate> {
    prop_oneof![
        (0u64..1 << 53).prop_map(|bits| LinkRate::Bits(BitRate::new(bits))),
        (1u64..200_000_000_000).prop_map(|bits| LinkRate::Bits(BitRate::new(bits))),
        (1e-3f64..1e9).prop_map(LinkRate::Packets),
    ]
}

fn delay() -> impl Strategy<Value = LinkDelay> {
    prop_oneof![0u64..1 << 53, 0u64..100_000_000].prop_map(|nanos| LinkDelay(Duration::from_nanos(nanos)))
}

/// Mostly small enough to be built, at times anything.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0u32..9, 1 => any::<u32>(), 1 => Just(u32::MAX)]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![8 => "[a-e]", 1 => "[ -~]{0,6}"]
}

/// A name that can stand in a line of text.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![8 => "[a-e]", 1 => "[!-+.-~]{1,6}"]
}

fn host() -> impl Strategy<Value = GraphHost> {
    (word(), of((word(), rate(), delay()))).prop_map(|(name, on)| GraphHost { name, on })
}

fn spec() -> impl Strategy<Value = FabricSpec> {
    let rates = || btree_map("h?[0-9]", rate(), 0..3);
    let big_switch =
        (number(), rate(), delay(), rates(), rates()).prop_map(|(hosts, rate, delay, uplinks, downlinks)| {
            FabricSpec::BigSwitch(BigSwitchSpec { hosts, rate, delay, uplinks, downlinks })
        });
    let dumbbell = (number(), number(), rate(), of(rate()), delay(), delay()).prop_map(
        |(left, right, rate, edge_rate, delay, edge_delay)| {
            FabricSpec::Dumbbell(DumbbellSpec { left, right, rate, edge_rate, delay, edge_delay })
        },
    );
    let lists = (1usize..4).prop_flat_map(|n| {
        let off = 0..2usize;
        (vec(number(), n), vec(rate(), n - 1), vec(delay(), n - 1), vec(name(), 0..=n), off)
    });
    let chain = (lists, of(rate()), delay()).prop_map(
        |((hosts, mut rates, delays, names, off), edge_rate, edge_delay)| {
            rates.truncate(rates.len() - off.min(rates.len()));
            FabricSpec::Chain(ChainSpec { hosts, names, rates, delays, edge_rate, edge_delay })
        },
    );
    let link =
        (name(), name(), rate(), delay()).prop_map(|(a, b, rate, delay)| GraphLink { a, b, rate, delay });
    let graph = (vec(name(), 0..4), vec(host(), 0..4), vec(link, 0..5), any::<bool>()).prop_map(
        |(switches, hosts, links, hosts_forward)| {
            FabricSpec::Graph(GraphSpec { switches, hosts, links, hosts_forward })
        },
    );
    let leaf_spine = (number(), number(), number(), rate(), of(rate()), delay(), of(delay())).prop_map(
        |(leaves, hosts_per_leaf, spines, rate, fabric_rate, delay, fabric_delay)| {
            FabricSpec::LeafSpine(LeafSpineSpec {
                leaves,
                hosts_per_leaf,
                spines,
                rate,
                fabric_rate,
                delay,
                fabric_delay,
            })
        },
    );
    let fat_tree = (number(), of(number()), rate(), delay(), of(delay()), of(delay())).prop_map(
        |(k, hosts_per_edge, rate, delay, aggregation_delay, core_delay)| {
            let spec = FatTreeSpec { k, hosts_per_edge, rate, delay, aggregation_delay, core_delay };
            FabricSpec::FatTree(spec)
        },
    );
    let small = || prop_oneof![6 => 0u32..5, 1 => any::<u32>()];
    let bcube = (small(), small(), rate(), delay())
        .prop_map(|(n, levels, rate, delay)| FabricSpec::BCube(BCubeSpec { n, levels, rate, delay }));
    let torus = (small(), small(), rate(), delay())
        .prop_map(|(n, d, rate, delay)| FabricSpec::Torus(TorusSpec { n, d, rate, delay }));
    let form = prop_oneof![Just(B4Form::Sites18), Just(B4Form::Sites12)];
    let delays = of(prop_oneof![Just(B4Delays::Traced), Just(B4Delays::ByContinent)]);
    let b4 = ((form, delays), rate(), [of(delay()), of(delay()), of(delay())], number(), of(rate()), delay())
        .prop_map(
            |(
                (form, delays),
                rate,
                [delay, intra_delay, inter_delay],
                hosts_per_site,
                edge_rate,
                edge_delay,
            )| {
                FabricSpec::B4(B4Spec {
                    form,
                    rate,
                    delays,
                    delay,
                    intra_delay,
                    inter_delay,
                    hosts_per_site,
                    edge_rate,
                    edge_delay,
                })
            },
        );
    prop_oneof![big_switch, dumbbell, chain, graph, leaf_spine, fat_tree, bcube, torus, b4]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_spec_survives_being_written_and_read(spec in spec()) {
        let text = toml::to_string(&spec).unwrap();
        prop_assert_eq!(toml::from_str::<FabricSpec>(&text).unwrap(), spec, "{}", text);
    }

    #[test]
    fn whatever_is_asked_for_is_built_whole_or_refused(spec in spec(), packet in prop_oneof![0u64..2_000, any::<u64>()]) {
        // Sizes near the bound are built too, so a few seconds in all.
        match spec.build(Bytes::new(packet)) {
            Err(error) => prop_assert!(!error.to_string().is_empty()),
            Ok(topology) => {
                let fabric = topology.fabric();
                prop_assert!(!topology.hosts().is_empty() && fabric.point_count() <= 1_000_000);
                for link in (0..).map(headwater_fabric::LinkId).take(fabric.link_count()) {
                    let link = fabric.link(link).unwrap();
                    prop_assert!(link.from != link.to);
                    prop_assert!(link.capacity.is_some_and(|rate| rate > BitRate::ZERO));
                    let back = fabric.link(link.back.unwrap()).unwrap();
                    prop_assert_eq!((back.from, back.to, back.delay), (link.to, link.from, link.delay));
                }
                let connected = !matches!(spec, FabricSpec::Graph(_));
                prop_assert!(!connected || topology.hosts().len() > 500 || topology.diameter().is_some());
            }
        }
    }

    #[test]
    fn any_text_is_a_host_or_an_error(text in "[a-z0-9 ,]{0,8}( on )?[ -~]{0,20}") {
        if let Ok(host) = text.parse::<GraphHost>() {
            prop_assert_eq!(host.to_string().parse(), Ok(host));
        }
    }
}

#[test]
fn what_may_be_left_out_is_not_written() {
    let text = "kind = \"b4\"\nform = \"18\"\nrate = \"10000 pps\"\n";
    assert_eq!(toml::to_string(&toml::from_str::<FabricSpec>(text).unwrap()).unwrap(), text);
    let text = "kind = \"dumbbell\"\nleft = 2\nright = 1\nrate = \"20 Mbit/s\"\ndelay = \"40 us\"\n";
    assert_eq!(toml::to_string(&toml::from_str::<FabricSpec>(text).unwrap()).unwrap(), text);
}

#[test]
fn what_cannot_be_read_says_how_to_write_it() {
    for (text, hint) in [
        ("kind = 'ring'\nhosts = 3", "unknown variant `ring`"),
        ("kind = 'big-switch'\nhosts = 3\nrate = 10\ndelay = '1 us'", "\"200000 pps\""),
        ("kind = 'big-switch'\nhosts = 3\nrate = '10 Gbit/s'\ndelay = 1", "a delay in quotes"),
        ("kind = 'big-switch'\nhosts = 3\nrate = 'fast'\ndelay = '1 us'", "50Mbit/s"),
        ("kind = 'big-switch'\nhosts = -3\nrate = '1Gbit/s'\ndelay = '1 us'", "-3"),
        ("kind = 'big-switch'\nhosts = 3\nrate = '1Gbit/s'", "missing field `delay`"),
        (
            "kind = 'big-switch'\nhosts = 3\nrate = '1Gbit/s'\ndelay = '1 us'\nracks = 2",
            "unknown field `racks`",
        ),
        ("kind = 'graph'\nhosts = ['h0 on s0']", "with commas"),
        ("kind = 'graph'\nhosts = ['h0 on s0, 1Gbit/s, soon']", "'soon'"),
        ("kind = 'graph'\nhosts = ['h 0']", "without spaces"),
        ("kind = 'b4'\nform = '42'\nrate = '1Gbit/s'", "unknown variant `42`"),
        ("hosts = 3", "kind"),
    ] {
        let error = toml::from_str::<FabricSpec>(text).expect_err(text).to_string();
        assert!(error.contains(hint), "{text}: {error}");
    }
}
