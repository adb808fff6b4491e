//! Push flows of the gentle class with the yielding rule that the product's hosts have, through the whole of their machines, over one
//! drop-tail queue that neither marks nor knows classes: beside TCP (NewReno), beside each other and alone.

use std::collections::BTreeMap;

use headwater_experiment::run::packet_setup;
use headwater_experiment::scenario::Scenario;
use headwater_sim::packet::{self, Transport};
use headwater_transport::push::yielding::YieldingConfig;

const SECONDS: u64 = 10;
/// Packets of 1514 bytes that 100 Mbit/s carry in that time.
const LINK: f64 = 100e6 / 8.0 / 1514.0 * SECONDS as f64;
const TCP: &str = "{ name = 'tcp', from = 2, to = 5, scheme = 'reno' }";
const PUSH: &str = "{ name = 'push', from = 0, to = 3 }";
const OTHER: &str = "{ name = 'other', from = 1, to = 4 }";

/// Useful packets of each flow by name, of what the link carries: a queue of `queue` packets (8 are a millisecond).
fn run(queue: u64, class: &str, flows: &str, background: &str) -> BTreeMap<String, f64> {
    let text = format!(
        r#"
        scheme = "ppush(1,1)"
        fabric = {{ kind = "dumbbell", left = 3, right = 3, rate = "100 Mbit/s", delay = "100 us" }}
        packet = {{ data = "1514 B" }}
        port = {{ queue = "{queue} packets" }}
        transport = {{ machines = "product", class = "{class}" }}
        background = [{background}]
        until = "{SECONDS} s"
        workload = {{ kind = "long-flows", flows = [{flows}] }}
        "#
    );
    let scenario: Scenario = toml::from_str(&text).unwrap();
    let mut setup = packet_setup(&scenario, 1).unwrap();
    let Transport::Coded(coded) = &mut setup.transport else { panic!("push flows are no baseline") };
    coded.source.push.yielding = Some(YieldingConfig::default());
    let names: Vec<String> = setup.tasks.iter().map(|task| task.name.clone()).collect();
    let records = packet::run(setup, &mut |_| {}).unwrap();
    let mut useful = BTreeMap::new();
    for row in &records.flows {
        *useful.entry(names[row.task as usize].clone()).or_default() += row.useful as f64 / LINK;
    }
    useful
}

/// Goal: TCP keeps nine tenths of its goodput in queues of 5 and of 50 ms, and beside an ordinary push flow it does not.
#[test]
fn tcp_keeps_its_goodput_beside_a_gentle_flow_in_a_plain_fifo() {
    for queue in [40, 400] {
        let alone = run(queue, "gentle", "", TCP)["tcp"];
        let kept = |class: &str| run(queue, class, PUSH, TCP)["tcp"] / alone;
        let (gentle, bulk) = (kept("gentle"), kept("bulk"));
        println!(
            "{queue} packets: TCP keeps {gentle:.3} beside a gentle flow, {bulk:.3} beside an ordinary one"
        );
        assert!(gentle >= 0.9, "{queue} packets: {gentle}");
        assert!(bulk < gentle, "{queue} packets: {bulk}");
    }
}

#[test]
fn gentle_flows_fill_an_idle_link_alone_and_together() {
    for queue in [40, 400] {
        let alone = run(queue, "gentle", PUSH, "")["push"];
        let two = run(queue, "gentle", &format!("{PUSH}, {OTHER}"), "");
        println!("{queue} packets: alone {alone:.3}, two {two:?}");
        assert!(alone >= 0.9, "{queue} packets: {alone}");
        let ratio = two["push"] / two["other"];
        assert!(two["push"] + two["other"] >= 0.9 && (0.5..2.0).contains(&ratio), "{queue} packets: {two:?}");
    }
}

/// Behind TCP in a switch with classes the flow has seen round trips of a second; it delivers its 0.2 s of packets soon after TCP's end.
#[test]
fn a_gentle_flow_comes_back_when_a_class_above_it_falls_silent() {
    let text = r#"
        scheme = "ppush(1,1)"
        fabric = { kind = "dumbbell", left = 2, right = 2, rate = "30 Mbit/s", delay = "1 ms" }
        packet = { data = "1507 B", ack = "78 B" }
        transport = { machines = "product", block_symbols = 184, class = "gentle" }
        background = [{ name = "tcp", from = 1, to = 3, scheme = "reno", stop = "2500 ms" }]
        until = "5500 ms"
        workload = { kind = "task-list", tasks = [{ name = "push", packets = 500, sources = [0], receiver = 2 }] }
        [port]
        queue = "unlimited"
        mark_threshold = "30 packets"
        classes = [{ of = [0], queue = "100 packets" }, { of = [1], queue = "100 packets" }, { of = [2], queue = "100 packets" }]
    "#;
    let mut setup = packet_setup(&toml::from_str(text).unwrap(), 1).unwrap();
    let Transport::Coded(coded) = &mut setup.transport else { panic!("push flows are no baseline") };
    coded.source.push.yielding = Some(YieldingConfig::default());
    let records = packet::run(setup, &mut |_| {}).unwrap();
    let finish = records.tasks[0].finish.map(|at| at.as_secs_f64());
    println!("it ended after {finish:?} s");
    assert!(finish.is_some_and(|at| at < 5.5), "{:?}", records.tasks);
}

/// The rule is for real hosts to switch on: experiments run what their results were made with.
#[test]
fn simulated_products_do_not_yield_unless_they_are_told() {
    let text = r#"
        scheme = "ppush(1,1)"
        fabric = { kind = "dumbbell", left = 1, right = 1, rate = "100 Mbit/s", delay = "100 us" }
        transport = { machines = "product", class = "gentle" }
        workload = { kind = "long-flows", flows = [{ name = "push", from = 0, to = 1 }] }
        until = "1 s"
    "#;
    let setup = packet_setup(&toml::from_str(text).unwrap(), 1).unwrap();
    let Transport::Coded(coded) = setup.transport else { panic!("push flows are no baseline") };
    assert_eq!(coded.source.push.yielding, None);
}
