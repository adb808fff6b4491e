//! Shuffles: by a connection for each flow, and by agents, with and without a controller that orders them.

use super::common::{Printed, alone, asks, folder, it};

/// Two jobs of three mappers and three reducers, one of each on each of three hosts: six flows of each job cross the network.
const EXPERIMENT: &str = r#"
title = "Two small shuffles"
source = "This test"
engines = ["netns"]
schemes = ["hadoop", "courier", "sincronia+courier"]

[scale.small]
seeds = 1

[scenario]
fabric = { kind = "big-switch", hosts = 3, rate = "4 Mbit/s", delay = "200 us" }
packet = { data = "1514 B", ack = "66 B" }
port = { queue = "150 packets", mark_threshold = "20 packets" }
transport = { initial_window = 10.0, min_rto = "200 ms" }
workload = { kind = "shuffle", jobs = { from = "all-to-all", mappers = 3, reducers = 3, bytes = "60 KB", sizes = [1, 3], gap = "50 ms" }, slots = 0, fetches = 0, combiner = false, max_num = 10, congestion = "reno" }
"#;

#[test]
fn shuffles_are_played_by_connections_of_their_own_and_by_agents_in_order_or_not() {
    let Some(_alone) = alone() else { return };
    let measure = |name: &str, scheme: &str, of: &str| {
        let on = format!("{{ scheme = \"{scheme}\" }}");
        asks(name, &on, &format!("{{ kind = \"measure\", name = \"{of}\" }}"))
    };
    let claims = [
        measure("connections", "hadoop", "connections"),
        measure("lanes", "courier", "connections"),
        measure("lanes-in-order", "sincronia+courier", "connections"),
        measure("flows", "courier", "flows"),
        measure("mean", "hadoop", "cct_mean_s"),
        measure("mean-of-agents", "courier", "cct_mean_s"),
        measure("mean-in-order", "sincronia+courier", "cct_mean_s"),
    ];
    let folder = folder(&(EXPERIMENT.to_owned() + &claims.concat()));
    let said = Printed::by(it(&folder)).ends_well();
    let is = |name: &str, wanted: f64| {
        if let Some(measured) = said.value(name) {
            assert!((measured - wanted).abs() < 0.5, "{name} {measured}");
        }
    };
    // One for each flow; one for each pair of hosts.
    is("connections", 12.0);
    is("lanes", 6.0);
    is("lanes-in-order", 6.0);
    is("flows", 12.0);
    // Each host receives 120 KB and 360 KB: 0.24 s and 0.72 s of its link.
    for name in ["mean", "mean-of-agents", "mean-in-order"] {
        if let Some(mean) = said.value(name) {
            assert!((0.4..3.0).contains(&mean), "{name} {mean}");
        }
    }
}
