//! Where hosts are the network (BCube, torus), they forward what is for others, whatever brings it.

use headwater_experiment::run::packet_setup;
use headwater_experiment::scenario::Scenario;
use headwater_sim::packet;

/// 2000 packets of 1500 B at 100 Mbit/s.
const IDEAL: f64 = 2000.0 * 1500.0 * 8.0 / 100e6;

fn finishes(scheme: &str, fabric: &str, tasks: &str) -> Vec<f64> {
    let text = format!(
        r#"
        scheme = "{scheme}"
        fabric = {{ {fabric}, rate = "100 Mbit/s", delay = "20 us" }}
        packet = {{ data = "1500 B" }}
        port = {{ queue = "100 packets", mark_threshold = "30 packets" }}
        workload = {{ kind = "task-list", tasks = [{tasks}] }}
        "#
    );
    let scenario: Scenario = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    scenario.check().unwrap();
    let records = packet::run(packet_setup(&scenario, 1).unwrap(), &mut |_| {}).unwrap();
    records.tasks.iter().map(|task| task.finish.expect("it finishes").as_secs_f64()).collect()
}

#[test]
fn tasks_go_through_hosts_at_the_rate_of_their_cables() {
    // Two switches and another host away; two hosts away.
    for (fabric, receiver) in
        [("kind = 'bcube', n = 4, levels = 1", 15), ("kind = 'torus', n = 4, d = 2", 10)]
    {
        let task = format!("{{ name = 't', packets = 2000, sources = [0], receiver = {receiver} }}");
        for scheme in ["ppush(1,1)", "dctcp", "scdp"] {
            let ratio = finishes(scheme, fabric, &task)[0] / IDEAL;
            assert!((1.0..1.15).contains(&ratio), "{scheme} in {fabric}: {ratio}");
        }
    }
}

/// Goal: two sources on two cables of one receiver bring twice what a cable carries, whether they push or are pulled.
#[test]
fn a_receiver_with_two_cables_takes_from_both_at_once() {
    // Host 14 shares one switch with host 15, host 11 the other.
    let task = "{ name = 't', packets = 2000, sources = [14, 11], receiver = 15 }";
    for scheme in ["ppush(1,1)", "scdp", "ndp"] {
        let ratio = finishes(scheme, "kind = 'bcube', n = 4, levels = 1", task)[0] / (IDEAL / 2.0);
        assert!((1.0..1.15).contains(&ratio), "{scheme}: {ratio}");
    }
}
