//! With `machines = "product"` the simulator runs what the product ships, and nothing of the paper's.

use headwater_controller::ControllerConfig;
use headwater_experiment::experiment::{Engine, Experiment, Scale};
use headwater_experiment::run::{RunError, packet_setup, run_job};
use headwater_experiment::scenario::Scenario;
use headwater_sim::packet::{CodedSetup, Transport};
use headwater_transport::flow::rtt::RttConfig;
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::source::SourceConfig;
use headwater_units::{NodeId, Packets, PathId};

fn scenario(scheme: &str, transport: &str) -> Scenario {
    let text = format!(
        r#"
        scheme = "{scheme}"
        fabric = {{ kind = "dumbbell", left = 1, right = 1, rate = "20 Mbit/s", delay = "1 ms" }}
        transport = {{ {transport} }}
        workload = {{ kind = "task-list", tasks = [{{ name = "t", packets = 1000, sources = [0], receiver = 1 }}] }}
        "#
    );
    toml::from_str(&text).unwrap()
}

fn transport(scheme: &str, transport: &str) -> Transport {
    packet_setup(&scenario(scheme, transport), 1).unwrap().transport
}

fn ppush(constants: &str) -> Box<CodedSetup> {
    match transport("ppush(1,1)", constants) {
        Transport::Coded(setup) => setup,
        Transport::Baseline { .. } => panic!("push flows are no baseline"),
    }
}

#[test]
fn simulated_hosts_have_the_products_settings_and_limits() {
    let product = ppush("machines = 'product'");
    assert_eq!(product.source, SourceConfig::default());
    // Symbols without bytes may be smaller than any socket would have them.
    let controller = ControllerConfig { smallest_room: 8, ..ControllerConfig::default() };
    assert_eq!(product.controller, controller);
    let receiver = ReceiverConfig::new("t", NodeId([0; 32]), PathId(0), 0);
    assert_eq!(product.spread, receiver.spread);
    assert_eq!((product.receive_window, product.blocks_in_flight), (4096, 256));
    assert_eq!(
        (product.max_ack_delay, product.source_patience),
        (receiver.max_ack_delay, receiver.source_patience)
    );
    let paper = ppush("");
    assert!(paper.source != product.source && paper.receive_window == u32::MAX);
    assert!(paper.controller.theta_ceiling.is_some() && product.controller.theta_ceiling.is_none());
}

#[test]
fn tcp_beside_the_product_has_its_first_window_and_timeouts() {
    let sender = |constants| match transport("reno", constants) {
        Transport::Baseline { sender, .. } => sender,
        Transport::Coded(_) => panic!("reno is a baseline"),
    };
    let product = sender("machines = 'product'");
    assert_eq!((product.initial_window, product.rtt), (Packets::new(10.0), RttConfig::default()));
    assert_eq!(sender("").initial_window, Packets::new(1.0));
}

#[test]
fn the_equations_are_the_papers_and_refuse_the_product() {
    let text = r#"
        title = "t"
        source = "s"
        engines = ["fluid"]
        schemes = ["ppush(0,0)"]
        [scale.small]
        seeds = 1
        [scenario]
        fabric = { kind = "dumbbell", left = 1, right = 1, rate = "20 Mbit/s", delay = "1 ms" }
        transport = { machines = "product" }
        workload = { kind = "long-flows", flows = [{ name = "f", from = 0, to = 1, theta = 1.0 }] }
        until = "1 s"
    "#;
    let experiment = Experiment::parse("x/y", text).unwrap();
    let job = &experiment.jobs(Engine::Fluid, Scale::Small, None).unwrap()[0];
    let error = run_job(job, &mut |_| {}).unwrap_err();
    assert!(matches!(&error, RunError::Unsupported { what, .. } if what.contains("product")), "{error}");
}
