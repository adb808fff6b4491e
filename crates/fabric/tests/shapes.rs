//! Every shape has the hosts, switches, links, distances and names that its definition says.

use headwater_fabric::{FabricError, FabricSpec, HostId, Place, PointId, PointKind, Topology};
use headwater_units::{BitRate, Bytes, Duration};

const PACKET: Bytes = Bytes::new(1_500);

fn build(text: &str) -> Topology {
    let spec: FabricSpec = toml::from_str(text).unwrap();
    spec.build(PACKET).unwrap()
}

/// Hosts, switches, cables, diameter in links.
fn size(topology: &Topology) -> (usize, usize, usize, Option<u32>) {
    let (hosts, points) = (topology.hosts().len(), topology.fabric().point_count());
    assert_eq!(topology.fabric().link_count() % 2, 0, "every cable has two links");
    (hosts, points - hosts, topology.fabric().link_count() / 2, topology.diameter())
}

fn points(topology: &Topology) -> impl Iterator<Item = PointId> {
    (0..).map(PointId).take(topology.fabric().point_count())
}

fn degree(topology: &Topology, point: PointId) -> usize {
    assert_eq!(topology.fabric().leaving(point).len(), topology.fabric().entering(point).len());
    topology.fabric().leaving(point).len()
}

fn rate_and_delay(topology: &Topology, from: &str, to: &str) -> (u64, u64) {
    let link = topology.link_between(from, to).unwrap_or_else(|| panic!("{from} and {to} are neighbours"));
    let link = topology.fabric().link(link).unwrap();
    (link.capacity.unwrap().get(), link.delay.as_nanos())
}

#[test]
fn shapes_have_the_sizes_of_their_definitions() {
    let both = "rate = '1 Gbit/s'\ndelay = '1 us'\n";
    for (text, expected) in [
        ("kind = 'big-switch'\nhosts = 100", (100, 1, 100, Some(2))),
        ("kind = 'big-switch'\nhosts = 1", (1, 1, 1, Some(0))),
        ("kind = 'dumbbell'\nleft = 3\nright = 2", (5, 2, 6, Some(3))),
        // Racks x hosts, leaves + spines; PPUSH's 100 hosts with 4 and with 10 spines.
        ("kind = 'leaf-spine'\nleaves = 10\nhosts_per_leaf = 10\nspines = 4", (100, 14, 140, Some(4))),
        ("kind = 'leaf-spine'\nleaves = 10\nhosts_per_leaf = 10\nspines = 10", (100, 20, 200, Some(4))),
        // k^3/4 hosts, 5k^2/4 switches, 3k^3/4 cables.
        ("kind = 'fat-tree'\nk = 2", (2, 5, 6, Some(6))),
        ("kind = 'fat-tree'\nk = 4", (16, 20, 48, Some(6))),
        ("kind = 'fat-tree'\nk = 8", (128, 80, 384, Some(6))),
        // SCDP: 250 servers, 25 cores, 50 aggregation and 50 rack switches.
        ("kind = 'fat-tree'\nk = 10", (250, 125, 750, Some(6))),
        ("kind = 'fat-tree'\nk = 4\nhosts_per_edge = 6", (48, 20, 80, Some(6))),
        // n^(k+1) hosts, (k+1) n^k switches, diameter 2(k+1) links.
        ("kind = 'bcube'\nn = 4\nlevels = 1", (16, 8, 32, Some(4))),
        ("kind = 'bcube'\nn = 4\nk = 2", (64, 48, 192, Some(6))),
        ("kind = 'bcube'\nn = 3\nlevels = 0", (3, 1, 3, Some(2))),
        // n^d hosts, d n^d cables, diameter d floor(n/2).
        ("kind = 'torus'\nn = 4\nd = 3", (64, 0, 192, Some(6))),
        ("kind = 'torus'\nn = 5\nd = 2", (25, 0, 50, Some(4))),
        ("kind = 'torus'\nn = 3\nd = 1", (3, 0, 3, Some(1))),
        ("kind = 'torus'\nn = 2\nd = 3", (8, 0, 12, Some(3))),
        ("kind = 'b4'\nform = '12'", (12, 12, 31, Some(7))),
    ] {
        assert_eq!(size(&build(&format!("{text}\n{both}"))), expected, "{text}");
    }
    assert_eq!(size(&build("kind = 'b4'\nrate = '10000 pps'")), (18, 18, 58, Some(7)));
}

/// The sizes of Datacast §VI; a diameter of 4096 hosts takes a while, so it is left to the smaller ones above.
#[test]
fn datacasts_networks_have_its_numbers_of_servers() {
    let both = "rate = '1 Gbit/s'\ndelay = '5 us'\n";
    for (text, hosts, switches, cables) in [
        ("kind = 'fat-tree'\nk = 24", 3_456, 720, 10_368),
        ("kind = 'bcube'\nn = 8\nlevels = 3", 4_096, 2_048, 16_384),
        ("kind = 'torus'\nn = 16\nd = 3", 4_096, 0, 12_288),
    ] {
        let topology = build(&format!("{text}\n{both}"));
        assert_eq!(topology.hosts().len(), hosts);
        assert_eq!(topology.fabric().point_count(), hosts + switches);
        assert_eq!(topology.fabric().link_count(), 2 * cables);
    }
}

#[test]
fn every_port_of_a_regular_shape_is_used() {
    let cases = [("fat-tree", "k = 6", [1, 6]), ("bcube", "n = 5\nlevels = 2", [3, 5])];
    for (kind, text, [host, switch]) in cases {
        let topology = build(&format!("kind = '{kind}'\n{text}\nrate = '1 Gbit/s'\ndelay = '1 us'"));
        for point in points(&topology) {
            let expected = match topology.place(point).unwrap().kind {
                PointKind::Host(_) => host,
                PointKind::Switch => switch,
            };
            assert_eq!(degree(&topology, point), expected, "{kind} {:?}", topology.name(point));
        }
    }
    for (n, d, expected) in [(5, 3, 6), (2, 4, 4), (3, 1, 2)] {
        let topology = build(&format!("kind = 'torus'\nn = {n}\nd = {d}\nrate = '1Gbit/s'\ndelay = '1 us'"));
        assert!(points(&topology).all(|point| degree(&topology, point) == expected));
    }
}

#[test]
fn bcube_neighbours_differ_in_one_digit() {
    // Datacast Fig. 6: switch <0,0> joins the servers 00 to 03, switch <1,2> the servers 02, 12, 22 and 32.
    let topology = build("kind = 'bcube'\nn = 4\nlevels = 1\nrate = '1 Gbit/s'\ndelay = '5 us'");
    let members = |switch: &str| -> Vec<&str> {
        let leaving = topology.fabric().leaving(topology.point(switch).unwrap()).iter();
        leaving.map(|link| topology.name(topology.fabric().link(*link).unwrap().to).unwrap()).collect()
    };
    assert_eq!(members("sw0.0"), ["h0", "h1", "h2", "h3"]);
    assert_eq!(members("sw1.2"), ["h2", "h6", "h10", "h14"]);
    let topology = build("kind = 'bcube'\nn = 3\nlevels = 2\nrate = '1 Gbit/s'\ndelay = '5 us'");
    for point in points(&topology).skip(27) {
        let members: Vec<u32> = topology
            .fabric()
            .leaving(point)
            .iter()
            .map(|link| topology.fabric().link(*link).unwrap().to.0)
            .collect();
        let stride = 3u32.pow(topology.place(point).unwrap().tier - 1);
        assert_eq!([members[1] - members[0], members[2] - members[1]], [stride, stride]);
        assert_eq!(members[0] / stride % 3, 0);
    }
}

#[test]
fn torus_neighbours_differ_by_one_step_in_one_dimension() {
    let topology = build("kind = 'torus'\nn = 4\nd = 2\nrate = '1 Gbit/s'\ndelay = '5 us'");
    for (from, to) in [("h0", "h1"), ("h0", "h3"), ("h0", "h4"), ("h0", "h12"), ("h15", "h12"), ("h6", "h10")]
    {
        assert!(topology.link_between(from, to).is_some(), "{from}-{to}");
        assert!(topology.link_between(to, from).is_some(), "{to}-{from}");
    }
    for (from, to) in [("h0", "h5"), ("h0", "h2"), ("h3", "h4"), ("h15", "h0")] {
        assert_eq!(topology.link_between(from, to), None, "{from}-{to}");
    }
    assert!(points(&topology).all(|point| topology.forwards(point)));
}

#[test]
fn points_have_names_places_racks_and_pods() {
    let topology = build("kind = 'fat-tree'\nk = 8\nrate = '100 Gbit/s'\ndelay = '1 us'");
    assert_eq!((topology.rack_of(HostId(127)), topology.pod_of(HostId(127))), (Some(31), Some(7)));
    assert_eq!((topology.rack_of(HostId(16)), topology.pod_of(HostId(16))), (Some(4), Some(1)));
    assert_eq!((topology.rack_of(HostId(128)), topology.pod_of(HostId(128))), (None, None));
    assert_eq!(topology.point_of(HostId(127)), topology.point("h127"));
    for (from, to) in [("h127", "rack31"), ("rack31", "agg7.3"), ("agg7.3", "core15"), ("core4", "agg0.1")] {
        assert!(topology.link_between(from, to).is_some(), "{from}-{to}");
    }
    let place = |name: &str| *topology.place(topology.point(name).unwrap()).unwrap();
    let (kind, rack, pod) = (PointKind::Switch, None, Some(2));
    assert_eq!(place("agg2.1"), Place { kind, tier: 2, rack, pod });
    assert_eq!(place("rack9"), Place { kind, tier: 1, rack: Some(9), pod });
    assert_eq!(place("core0"), Place { kind, tier: 3, rack, pod: None });
    assert!(
        !topology.forwards(topology.point("h0").unwrap())
            && topology.forwards(topology.point("core0").unwrap())
    );
    assert_eq!(topology.point("core16"), None);
    assert!(points(&topology).all(|point| topology.point(topology.name(point).unwrap()) == Some(point)));

    let topology = build(
        "kind = 'leaf-spine'\nleaves = 3\nhosts_per_leaf = 2\nspines = 2\nrate = '1 Gbit/s'\ndelay = '1 us'",
    );
    assert_eq!((topology.rack_of(HostId(3)), topology.pod_of(HostId(3))), (Some(1), None));
    let topology = build("kind = 'big-switch'\nhosts = 2\nrate = '1 Gbit/s'\ndelay = '1 us'");
    assert_eq!((topology.rack_of(HostId(0)), topology.name(PointId(2))), (None, Some("switch")));
}

#[test]
fn rates_and_delays_stand_where_they_were_given() {
    // Packets of 1500 bytes: 12,000 bits.
    let topology = build(
        "kind = 'big-switch'\nhosts = 12\nrate = '200000 pps'\ndelay = '20 us'\n\
         uplinks = { h0 = '50000 pps', 11 = '1 Mbit/s' }\ndownlinks = { '3' = '2 Mbit/s' }",
    );
    assert_eq!(rate_and_delay(&topology, "h0", "switch"), (600_000_000, 20_000));
    assert_eq!(rate_and_delay(&topology, "switch", "h0"), (2_400_000_000, 20_000));
    assert_eq!(rate_and_delay(&topology, "h11", "switch").0, 1_000_000);
    assert_eq!(rate_and_delay(&topology, "switch", "h3").0, 2_000_000);
    assert_eq!(rate_and_delay(&topology, "h3", "switch").0, 2_400_000_000);

    let topology = build("kind = 'dumbbell'\nleft = 2\nright = 1\nrate = '20 Mbit/s'\ndelay = '40 us'");
    assert_eq!(rate_and_delay(&topology, "left", "right"), (20_000_000, 40_000));
    assert_eq!(rate_and_delay(&topology, "h1", "left"), (200_000_000, 0));
    assert_eq!((topology.rack_of(HostId(1)), topology.rack_of(HostId(2))), (Some(0), Some(1)));
    let topology = build(
        "kind = 'dumbbell'\nleft = 2\nright = 1\nrate = '20 Mbit/s'\ndelay = '40 us'\n\
         edge_rate = '1 Gbit/s'\nedge_delay = '3 us'",
    );
    assert_eq!(rate_and_delay(&topology, "right", "h2"), (1_000_000_000, 3_000));

    // PPUSH Fig. 3.
    let topology = build(
        "kind = 'chain'\nnames = ['A', 'B', 'C']\nhosts = [2, 1, 1]\nrates = ['20 Mbit/s', '5 Mbit/s']\n\
         delays = ['40 us', '50 us']",
    );
    assert_eq!(rate_and_delay(&topology, "A", "B"), (20_000_000, 40_000));
    assert_eq!(rate_and_delay(&topology, "C", "B"), (5_000_000, 50_000));
    assert_eq!(rate_and_delay(&topology, "h3", "C"), (200_000_000, 0));
    assert_eq!((size(&topology), topology.rack_of(HostId(2))), ((4, 3, 6, Some(4)), Some(1)));
    let topology = build("kind = 'chain'\nhosts = [3]\nrates = []\ndelays = []\nedge_rate = '1 Gbit/s'");
    assert_eq!((size(&topology), topology.name(PointId(3))), ((3, 1, 3, Some(2)), Some("s0")));

    let topology = build(
        "kind = 'leaf-spine'\nleaves = 10\nhosts_per_leaf = 10\nspines = 4\nrate = '200000 pps'\n\
         fabric_rate = '800000 pps'\ndelay = '1 us'\nfabric_delay = '2 us'",
    );
    assert_eq!(rate_and_delay(&topology, "h99", "leaf9"), (2_400_000_000, 1_000));
    assert_eq!(rate_and_delay(&topology, "spine3", "leaf9"), (9_600_000_000, 2_000));

    let topology = build(
        "kind = 'fat-tree'\nk = 4\nrate = '1 Gbit/s'\ndelay = '1 us'\naggregation_delay = '2 us'\ncore_delay = '3 us'",
    );
    assert_eq!(rate_and_delay(&topology, "h0", "rack0").1, 1_000);
    assert_eq!(rate_and_delay(&topology, "agg0.0", "rack0").1, 2_000);
    assert_eq!(rate_and_delay(&topology, "agg0.0", "core1").1, 3_000);
}

#[test]
fn a_graph_is_what_it_lists() {
    // PPUSH Fig. 6: two sources on disjoint paths, 10^6 packets per second in all.
    let topology = build(
        "kind = 'graph'\nswitches = ['s1', 's2']\n\
         hosts = ['one on s1, 1 Mpps, 20 us', 'two on s2, 1 Mpps, 20 us', 'receiver']\n\
         links = [{ a = 's1', b = 'receiver', rate = '750 kpps', delay = '20 us' },\n\
                  { a = 's2', b = 'receiver', rate = '250 kpps', delay = '20 us' }]",
    );
    assert_eq!(size(&topology), (3, 2, 4, None), "the sources reach the receiver, not each other");
    for source in [HostId(0), HostId(1)] {
        let paths = topology.paths(source, HostId(2), 9);
        assert_eq!((paths.len(), paths[0].links().len()), (1, 2));
    }
    assert_eq!(rate_and_delay(&topology, "s2", "receiver"), (3_000_000_000, 20_000));
    assert_eq!(topology.point_of(HostId(2)), topology.point("receiver"));
    assert_eq!([0, 1, 2].map(|host| topology.rack_of(HostId(host))), [Some(0), Some(1), Some(0)]);
    assert!(!topology.connected(HostId(0), HostId(1)), "there is a path only through the receiver");
}

#[test]
fn b4_has_the_sites_links_and_continents_of_its_data() {
    let topology = build("kind = 'b4'\nrate = '10000 pps'\nhosts_per_site = 2\nedge_rate = '1 Gbit/s'");
    assert_eq!((topology.hosts().len(), topology.fabric().point_count()), (36, 54));
    let fabric = topology.fabric();
    let pod = |point| topology.place(point).unwrap().pod.unwrap();
    let between_sites: Vec<_> = points(&topology)
        .skip(36)
        .flat_map(|site| fabric.leaving(site))
        .map(|link| fabric.link(*link).unwrap())
        .filter(|link| link.to.0 >= 36)
        .collect();
    let intra: Vec<_> = between_sites.iter().filter(|link| pod(link.from) == pod(link.to)).collect();
    assert_eq!((between_sites.len() / 2, intra.len() / 2), (40, 28));
    assert!(intra.iter().all(|link| link.delay == Duration::from_millis(1)));
    let inter = between_sites.iter().filter(|link| pod(link.from) != pod(link.to));
    assert!(inter.clone().count() == 24 && inter.clone().all(|link| link.delay == Duration::from_millis(10)));
    assert!(between_sites.iter().all(|link| link.capacity == Some(BitRate::new(120_000_000))));
    let sites_of = |pod: u32| (0..36).filter(|host| topology.pod_of(HostId(*host)) == Some(pod)).count() / 2;
    assert_eq!([0, 1, 2, 3, 4].map(sites_of), [5, 7, 1, 5, 0]);
    assert_eq!((topology.rack_of(HostId(35)), topology.name(PointId(53))), (Some(17), Some("site17")));
    assert_eq!(rate_and_delay(&topology, "h35", "site17"), (1_000_000_000, 1_000));

    let topology =
        build("kind = 'b4'\nform = '18'\nrate = '10000 pps'\ndelays = 'traced'\nedge_delay = '5 us'");
    assert_eq!(rate_and_delay(&topology, "site14", "site15"), (120_000_000, 1_384_000));
    assert_eq!(rate_and_delay(&topology, "site5", "site1"), (120_000_000, 51_170_000));
    assert_eq!(rate_and_delay(&topology, "h0", "site0"), (120_000_000, 5_000));
    // The links that the data calls intra are those within a continent: only links below 30 ms stay inside.
    for link in (0..).map(PointId).take(36).flat_map(|p| topology.fabric().leaving(p)) {
        let link = topology.fabric().link(*link).unwrap();
        let pod = |point| topology.place(point).unwrap().pod;
        assert_eq!(pod(link.from) == pod(link.to), link.delay < Duration::from_millis(30));
    }

    let topology = build("kind = 'b4'\nrate = '1Gbit/s'\nintra_delay = '2 ms'\ninter_delay = '30 ms'");
    assert_eq!(rate_and_delay(&topology, "site0", "site1").1, 2_000_000);
    assert_eq!(rate_and_delay(&topology, "site3", "site5").1, 30_000_000);

    let topology = build("kind = 'b4'\nform = '12'\nrate = '10000 pps'\ndelay = '7 ms'");
    let between = topology.fabric().link_count() / 2 - 12;
    assert_eq!((topology.hosts().len(), between, topology.pod_of(HostId(0))), (12, 19, None));
    assert_eq!(rate_and_delay(&topology, "site11", "site12").1, 7_000_000);
    assert_eq!(topology.rack_of(HostId(11)), Some(11));
}

#[test]
fn the_round_trip_of_an_empty_network_is_serialisation_and_propagation() {
    let rtt = |topology: &Topology, to: u32, packet: u64, ack: u64| {
        topology.unloaded_rtt(HostId(0), HostId(to), Bytes::new(packet), Bytes::new(ack)).unwrap().as_nanos()
    };
    // 10 Gbit/s: 1200 ns and 32 ns per link; 5 us of propagation each of 4 times.
    let star = build("kind = 'big-switch'\nhosts = 3\nrate = '10 Gbit/s'\ndelay = '5 us'");
    assert_eq!(rtt(&star, 1, 1_500, 40), 4 * 5_000 + 2 * 1_200 + 2 * 32);
    assert_eq!(rtt(&star, 0, 1_500, 40), 0);
    // Six links each way between pods of a fat-tree, four within one, two within a rack; 3.2 ns per ACK.
    let tree = build("kind = 'fat-tree'\nk = 8\nrate = '100 Gbit/s'\ndelay = '1 us'");
    assert_eq!(rtt(&tree, 127, 1_500, 40), 12_000 + 6 * 120 + 19);
    assert_eq!(rtt(&tree, 4, 1_500, 40), 8_000 + 4 * 120 + 13);
    assert_eq!(rtt(&tree, 1, 1_500, 40), 4_000 + 2 * 120 + 6);
    assert_eq!(star.unloaded_rtt(HostId(0), HostId(3), PACKET, PACKET), None);
}

#[test]
fn what_makes_no_sense_is_refused_with_a_hint() {
    let error = |text: &str| -> FabricError {
        toml::from_str::<FabricSpec>(text).unwrap().build(PACKET).expect_err(text)
    };
    let both = "rate = '1 Gbit/s'\ndelay = '1 us'\n";
    for (text, hint) in [
        ("kind = 'fat-tree'\nk = 7", "k must be even, got 7"),
        ("kind = 'fat-tree'\nk = 0", "k must be at least 2, got 0"),
        ("kind = 'fat-tree'\nk = 4\nhosts_per_edge = 0", "hosts_per_edge must be at least 1, got 0"),
        ("kind = 'fat-tree'\nk = 200", "at most 1000000 points"),
        ("kind = 'fat-tree'\nk = 4294967294", "are too many"),
        ("kind = 'big-switch'\nhosts = 0", "hosts must be at least 1"),
        ("kind = 'big-switch'\nhosts = 1000000", "1000001 points and 1000000 cables are too many"),
        ("kind = 'big-switch'\nhosts = 3\nuplinks = { h3 = '1 Mbit/s' }", "uplinks names 'h3'"),
        ("kind = 'big-switch'\nhosts = 3\ndownlinks = { hh1 = '1 Mbit/s' }", "downlinks names 'hh1'"),
        ("kind = 'big-switch'\nhosts = 3\nuplinks = { '+1' = '1 Mbit/s' }", "uplinks names '+1'"),
        ("kind = 'big-switch'\nhosts = 3\nuplinks = { h1 = '0 bit/s' }", "uplinks.h1 comes to 0 bit/s"),
        ("kind = 'dumbbell'\nleft = 0\nright = 1", "left must be at least 1"),
        ("kind = 'dumbbell'\nleft = 1\nright = 1\nedge_delay = '1 h'", "edge_delay is 3600.0 s"),
        ("kind = 'leaf-spine'\nleaves = 400000\nhosts_per_leaf = 1\nspines = 100000", "40000400000 cables"),
        ("kind = 'leaf-spine'\nleaves = 1\nhosts_per_leaf = 1\nspines = 0", "spines must be at least 1"),
        ("kind = 'bcube'\nn = 1\nlevels = 2", "n must be at least 2"),
        ("kind = 'bcube'\nn = 4\nlevels = 4294967295", "are too many"),
        ("kind = 'torus'\nn = 2\nd = 0", "d must be at least 1"),
        ("kind = 'torus'\nn = 4294967295\nd = 4294967295", "are too many"),
        ("kind = 'b4'\nhosts_per_site = 0", "hosts_per_site must be at least 1"),
        ("kind = 'b4'\nintra_delay = '1 ms'", "either delay or intra_delay"),
        ("kind = 'b4'\ndelays = 'traced'", "either delay or delays"),
    ] {
        let message = error(&format!("{both}{text}")).to_string();
        assert!(message.contains(hint), "{text}: {message}");
    }
    for (text, hint) in [
        ("kind = 'big-switch'\nhosts = 2\nrate = '0 bit/s'\ndelay = '1 us'", "rate comes to 0 bit/s"),
        ("kind = 'big-switch'\nhosts = 2\nrate = '0.00001 pps'\ndelay = '1 us'", "rate comes to 0 bit/s"),
        ("kind = 'big-switch'\nhosts = 2\nrate = '1e300 pps'\ndelay = '1 us'", "rate comes to"),
        (
            "kind = 'dumbbell'\nleft = 1\nright = 1\nrate = '90000 Gbit/s'\ndelay = '1 us'",
            "edge_rate (10 times rate)",
        ),
        ("kind = 'big-switch'\nhosts = 2\nrate = '1Gbit/s'\ndelay = '131 s'", "must be at most 130.0 s"),
        ("kind = 'chain'\nhosts = []\nrates = []\ndelays = []", "length of hosts"),
        ("kind = 'chain'\nhosts = [0, 0]\nrates = ['1Gbit/s']\ndelays = ['1us']", "the number of hosts"),
        ("kind = 'chain'\nhosts = [1, 1]\nrates = []\ndelays = ['1us']", "rates has 0 entries and needs 1"),
        (
            "kind = 'chain'\nhosts = [1, 1]\nrates = ['1Gbit/s']\ndelays = []",
            "delays has 0 entries and needs 1",
        ),
        ("kind = 'chain'\nhosts = [1]\nrates = []\ndelays = []", "edge_rate is missing"),
        ("kind = 'chain'\nhosts = [1]\nnames = ['a', 'b']\nrates = []\ndelays = []", "names has 2 entries"),
        ("kind = 'chain'\nhosts = [1]\nnames = ['a b']\nrates = []\ndelays = []", "'a b' cannot be a name"),
        (
            "kind = 'chain'\nhosts = [1]\nnames = ['h0']\nrates = []\ndelays = []\nedge_rate = '1Gbit/s'",
            "two points are named 'h0'",
        ),
        ("kind = 'graph'\nhosts = []", "the number of hosts"),
        ("kind = 'graph'\nhosts = ['a', 'a']", "two points are named 'a'"),
        ("kind = 'graph'\nhosts = ['a on b, 1Gbit/s, 1us']", "hosts names 'b'"),
        (
            "kind = 'graph'\nhosts = ['a']\nlinks = [{ a = 'a', b = 'c', rate = '1Gbit/s', delay = '1us' }]",
            "links names 'c'",
        ),
        ("kind = 'graph'\nhosts = ['a on a, 1Gbit/s, 1us']", "to itself"),
        ("kind = 'graph'\nhosts = ['a']\nswitches = ['']", "'' cannot be a name"),
        (
            "kind = 'graph'\nhosts = ['a on b, 0 bit/s, 1us']\nswitches = ['b']",
            "hosts: rate of a-b comes to 0",
        ),
        ("kind = 'b4'\nform = '12'\nrate = '1Gbit/s'", "delay is missing"),
        ("kind = 'b4'\nform = '12'\nrate = '1Gbit/s'\ndelays = 'traced'", "delays is not known here"),
        ("kind = 'b4'\nrate = '1Gbit/s'\ndelays = 'traced'\ninter_delay = '1 ms'", "not both"),
    ] {
        let message = error(text).to_string();
        assert!(message.contains(hint), "{text}: {message}");
    }
}
