//! Hosts that are the network.

use super::common::{Printed, alone, asks, folder, it};

/// In a BCube(2,1), host 3 is two switches and another host away from host 0.
const EXPERIMENT: &str = r#"
title = "One task through a host that forwards"
source = "This test"
engines = ["netns"]
schemes = ["ppush(1,1)"]

[scale.small]
seeds = 1

[scenario]
fabric = { kind = "bcube", n = 2, levels = 1, rate = "4 Mbit/s", delay = "200 us" }
packet = { data = "1507 B" }
port = { queue = "100 packets", mark_threshold = "30 packets" }
transport = { initial_window = 10.0, min_rto = "50 ms", assignment = "listed", loss_response = "guarded" }
workload = { kind = "task-list", tasks = [{ name = "t", packets = 1000, sources = [0], receiver = 3 }] }
"#;

/// Goal: tasks are played in networks whose hosts forward for others, at the rate of their cables.
#[test]
fn a_task_is_played_through_a_host_that_forwards() {
    let Some(_alone) = alone() else { return };
    let folder =
        folder(&(EXPERIMENT.to_owned() + &asks("time", "{}", r#"{ kind = "column", column = "tct_s" }"#)));
    let Some(time) = Printed::by(it(&folder)).ends_well().value("time") else { return };
    let ideal = 1000.0 * 1507.0 * 8.0 / 4e6;
    assert!((1.0..1.2).contains(&(time / ideal)), "{time} s of {ideal}");
}
