//! From a scenario of the simulator to the same network under real frames.

use headwater_experiment::run::packet_setup;
use headwater_experiment::scenario::Scenario;
use headwater_fabric::HostId;
use headwater_sim::packet::Change;
use headwater_testbed::soft_switch::{DropReason, EmulatedFabric};

use super::common::{LATE, Net, TestFrame, drops, ns, poll};

const SCENARIO: &str = r#"
    scheme = "ppush(1,1)"
    fabric = { kind = "dumbbell", left = 1, right = 1, rate = "100000 pps", delay = "10 us" }
    port = { queue = "100 packets", mark_threshold = "30 packets" }
    nic = { queue = "unlimited", mark_threshold = "none" }
    until = "1 s"
    [workload]
    kind = "long-flows"
    flows = [{ name = "f1", from = 0, to = 1, theta = 1.0 }]
    [[faults]]
    at = "2 ms"
    on = "link left-right"
    what = { kind = "drop-run", packets = 5 }
"#;

#[test]
fn a_scenario_gives_the_network_its_ports_and_its_faults() {
    let scenario: Scenario = toml::from_str(SCENARIO).unwrap();
    let setup = packet_setup(&scenario, 1).unwrap();
    let mut net: Net =
        EmulatedFabric::new(&setup.topology, &setup.routes, &*setup.port, &*setup.choice, setup.seed)
            .unwrap();
    let middle = setup.topology.link_between("left", "right");
    // Ten times as fast as they leave the middle: number 34 is the first to find 30 there and number 112 the first to find
    // 100; after that, one in ten finds room.
    for id in 0..300 {
        net.inject(ns(0), HostId(0), TestFrame::symbol(id, 1210, 1));
    }
    let full = drops(&mut net, ns(2_000_000));
    assert_eq!(full[0], (middle, DropReason::Full, 111));
    assert_eq!(full.len(), 171);
    for (at, change) in &setup.changes {
        if let Change::Link(link, change) = change {
            net.change(*at, *link, *change).unwrap();
        }
    }
    for id in 300..310 {
        net.inject(ns(2_000_000), HostId(0), TestFrame::symbol(id, 1210, 1));
    }
    let _ = poll(&mut net, LATE);
    let stats = net.stats(LATE, middle.unwrap());
    assert_eq!((stats.high_water, stats.dropped, stats.marked), (100, 171, 300 - 33 - 171));
    assert_eq!((net.counts().lost.frames, net.counts().delivered.frames), (5, 310 - 171 - 5));
}
