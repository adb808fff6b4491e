//! Pauses and restarts, one at a time: what fault storms found first.

mod storm;

use headwater_baseline as baseline;
use headwater_fabric::{FabricSpec, Metric, Routes};
use headwater_sim::packet::{
    self, Change, ControlPlane, Flows, Records, Setup, SetupError, TaskPlan, Transport,
};
use headwater_switch::{Choice, PortConfig};
use headwater_transport::source::SourceConfig;
use headwater_units::{BitRate, Bytes, Duration, Time};
use headwater_wire::SpreadRule;
use storm::Storm;

/// Four hosts on one switch at 100 Mbit/s, nothing wrong; host 1 sends host 2 an object of `bytes` bytes.
fn calm(bytes: u64) -> Setup {
    let text = "kind = 'big-switch'\nhosts = 4\nrate = '100 Mbit/s'\ndelay = '20 us'";
    let spec: FabricSpec = toml::from_str(text).unwrap();
    let topology = spec.build(Bytes::new(1500)).unwrap();
    let task = TaskPlan {
        name: "t0".into(),
        at: at_ms(1),
        stop: Some(at_ms(200_000)),
        packets: bytes.div_ceil(1424),
        bytes: Some(Bytes::new(bytes)),
        sources: vec![1],
        receiver: 2,
        further: Vec::new(),
        relayed: false,
        thetas: None,
        deadline: None,
        awaited: true,
        background: None,
    };
    let mut setup = Storm::new(0).setup;
    setup.routes = Routes::all(&topology, Metric::Hops).unwrap();
    setup.topology = topology;
    setup.port = Box::new(|_, _| PortConfig::fifo(BitRate::new(100_000_000), None, None));
    setup.choice = Box::new(|_| Choice::First);
    setup.control = ControlPlane::Beside { delay: Duration::from_micros(100) };
    (setup.tasks, setup.changes) = (vec![task], Vec::new());
    (setup.decode.ns_per_byte, setup.decode.ns_per_byte_whole) = (0.0, 0.0);
    let Transport::Coded(ppush) = &mut setup.transport else { panic!("storms are of push flows") };
    (ppush.symbol_size, ppush.spread, ppush.source) = (1424, SpreadRule::Listed, SourceConfig::default());
    ppush.source_patience = Duration::from_secs(30);
    setup.sizes.symbol = 1424;
    setup
}

fn at_ms(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

fn run(setup: Setup) -> Records {
    packet::run(setup, &mut |_| {}).unwrap()
}

fn assert_delivered(records: &Records) {
    for row in &records.tasks {
        assert!(row.finish.is_some(), "{row:?}");
        assert_eq!(Some(row.blocks_done), row.blocks);
    }
    assert_eq!((records.flows_left.len(), records.counts.corrupt, records.counts.in_flight), (0, 0, 0));
}

#[test]
fn objects_of_any_size_arrive_in_symbols_that_fit_them() {
    for bytes in [0, 1, 9, 1425, 100_001, 262_145] {
        assert_delivered(&run(calm(bytes)));
    }
}

#[test]
fn a_block_decoded_while_its_host_is_paused_is_there_when_it_goes_on() {
    let mut setup = calm(200_000);
    setup.decode.ns_per_byte_whole = 1_000.0; // 200 ms, after 17 ms on the line.
    setup.changes = vec![(at_ms(60), Change::Paused(2, true)), (at_ms(900), Change::Paused(2, false))];
    let records = run(setup);
    assert_delivered(&records);
    assert!(records.tasks[0].finish >= Some(at_ms(900)), "{:?}", records.tasks[0]);
}

#[test]
fn a_decoder_of_before_a_restart_says_nothing_to_the_receiver_after_it() {
    let mut setup = calm(200_000);
    setup.decode.ns_per_byte_whole = 1_000.0;
    setup.changes = vec![(at_ms(190), Change::Restart(2))];
    assert_delivered(&run(setup));
}

#[test]
fn finished_blocks_outlive_a_restart_of_their_host() {
    let whole = run(calm(1 << 20)).tasks[0].useful;
    let mut setup = calm(1 << 20);
    setup.changes = vec![(at_ms(70), Change::Restart(2))];
    let records = run(setup);
    assert_delivered(&records);
    let useful = records.tasks[0].useful;
    assert!(
        useful > whole && useful < whole * 2 - whole / 4,
        "{useful} symbols kept, {whole} without a restart"
    );
}

/// One machine receives them all: what was under way on the host begins anew, and so does what had not begun.
#[test]
fn all_tasks_of_a_host_outlive_its_restart() {
    let mut setup = calm(1 << 20);
    let first = setup.tasks[0].clone();
    setup.tasks.extend([(3, 20), (0, 90)].into_iter().zip(1..).map(|((source, ms), n)| TaskPlan {
        name: format!("t{n}"),
        at: at_ms(ms),
        sources: vec![source],
        ..first.clone()
    }));
    setup.changes = vec![(at_ms(70), Change::Restart(2))];
    let records = run(setup);
    assert_delivered(&records);
    assert_eq!(records.tasks.len(), 3);
    let end = records.tasks.iter().filter_map(|row| row.finish).max();
    assert!(end > Some(at_ms(250)), "one downlink has 3 MiB and more to carry: {end:?}");
}

#[test]
fn a_restart_of_the_controller_is_none_of_the_sources() {
    let mut setup = calm(1 << 20);
    setup.changes = vec![(at_ms(30), Change::RestartController)];
    let records = run(setup);
    assert_delivered(&records);
    assert_eq!(records.flows.len(), 1, "the flow goes on: {:?}", records.flows);
}

#[test]
fn a_controller_beside_the_network_is_at_no_host() {
    let mut setup = calm(100_000);
    setup.changes = vec![(Time::ZERO, Change::Paused(0, true))];
    assert_delivered(&run(setup));
}

#[test]
fn a_source_that_restarts_while_it_is_paused_still_holds_its_objects() {
    let mut setup = calm(100_000);
    let (pause, resume) = (Change::Paused(1, true), Change::Paused(1, false));
    setup.changes = vec![(Time::ZERO, pause), (at_ms(5), Change::Restart(1)), (at_ms(50), resume)];
    assert_delivered(&run(setup));
}

#[test]
fn a_baseline_that_is_broken_off_is_over_once() {
    let mut setup = calm(10_000_000);
    let sender = baseline::SenderConfig::data_centre(baseline::Scheme::NewReno);
    let receiver = baseline::ReceiverConfig::of(&sender);
    setup.transport = Transport::Baseline { sender, receiver };
    setup.tasks[0].stop = Some(at_ms(20));
    assert!(matches!(packet::run(setup, &mut |_| {}), Err(SetupError::NothingToCarry)));
    let mut setup = calm(10_000_000);
    setup.transport = Transport::Baseline { sender, receiver };
    (setup.tasks[0].stop, setup.carry_bytes) = (Some(at_ms(20)), false);
    let records = run(setup);
    assert_eq!((records.tasks.len(), records.tasks[0].finish), (1, None));
}

/// Two sources and a killed one: what is not there goes on being sent by the other.
#[test]
fn a_killed_source_is_done_without() {
    let mut setup = calm(2 << 20);
    setup.tasks[0].sources = vec![1, 3];
    setup.changes = vec![(at_ms(40), Change::Killed(3))];
    let records = run(setup);
    let row = &records.tasks[0];
    assert_eq!((row.finish.is_some(), Some(row.blocks_done)), (true, row.blocks), "{row:?}");
    assert!(row.finish > Some(at_ms(150)), "one uplink has most of 168 ms to carry: {row:?}");
}

#[test]
fn a_host_that_was_killed_is_of_use_again_once_it_has_restarted() {
    let mut setup = calm(1 << 20);
    setup.changes = vec![
        (at_ms(30), Change::Killed(1)),
        (at_ms(500), Change::Restart(1)),
        (at_ms(500), Change::Paused(1, false)),
    ];
    let records = run(setup);
    assert_delivered(&records);
    assert!(records.tasks[0].finish > Some(at_ms(500)), "{:?}", records.tasks[0]);
}

/// TCP has no second life: a host that restarts knows nothing of its connections.
#[test]
fn background_ends_with_a_restart_of_either_end() {
    for host in [0, 3] {
        let mut setup = calm(1 << 20);
        (setup.carry_bytes, setup.drain) = (false, None);
        let tcp = TaskPlan {
            name: "tcp".into(),
            at: Time::ZERO,
            stop: None,
            packets: u64::MAX,
            bytes: None,
            sources: vec![0],
            receiver: 3,
            further: Vec::new(),
            relayed: false,
            thetas: None,
            deadline: None,
            awaited: false,
            background: Some(Flows::Baseline(baseline::SenderConfig::data_centre(baseline::Scheme::NewReno))),
        };
        setup.tasks.push(tcp);
        setup.until = Some(at_ms(500));
        setup.changes = vec![(at_ms(200), Change::Restart(host))];
        let records = run(setup);
        assert!(records.tasks[0].finish.is_some(), "{:?}", records.tasks[0]);
        // 100 Mbit/s for 200 ms, in frames of 1514 bytes.
        let useful = records.flows.iter().find(|flow| flow.task == 1).unwrap().useful;
        assert!((1000..1700).contains(&useful), "{useful} packets in 200 of 500 ms");
    }
}
