//! Shuffles packet by packet: every carrier and scheduler brings all that is wanted, within Hadoop's and Courier's limits.

use headwater_baseline::{Scheme, SenderConfig};
use headwater_fabric::{FabricSpec, Metric, Routes};
use headwater_policy::coflow::Queues;
use headwater_policy::coflow::courier::Limits;
use headwater_sim::packet::shuffle::{
    self, After, Carrier, Classes, JobPlan, Order, ReducerPlan, ShuffleOutcome, ShuffleSetup,
};
use headwater_sim::packet::{Jitter, SetupError};
use headwater_switch::{Choice, Limit, PortConfig, QueueConfig, Threshold};
use headwater_transport::courier::CourierConfig;
use headwater_units::{BitRate, Bytes, Duration, Packets, TaskId, Time};

const HOSTS: u32 = 6;

/// Eight jobs with reducers on all hosts, two mappers on each of three hosts, sizes that differ.
fn jobs() -> Vec<JobPlan> {
    let job = |number: u32| JobPlan {
        task: TaskId(u64::from(number)),
        at: Time::from_nanos(u64::from(number) * 40_000),
        after: None,
        reducers: (0..HOSTS)
            .map(|host| ReducerPlan {
                host,
                outputs: (0..6)
                    .map(|mapper| ((number + mapper) % 3, Bytes::new(u64::from(1 + number * mapper) * 7_000)))
                    .collect(),
            })
            .collect(),
    };
    (0..8).map(job).collect()
}

fn port(rate: BitRate, classes: u8, is_nic: bool) -> PortConfig {
    let room = (!is_nic).then_some(Limit::Bytes(Bytes::new(225_000)));
    let mark = Some(Threshold::Bytes(Bytes::new(30_000)));
    let plain = PortConfig::fifo(rate, room, mark);
    if classes == 1 {
        return plain;
    }
    let pool = room.is_some();
    let data = QueueConfig { limit: None, mark_threshold: mark, shares_pool: pool };
    let mut queues = vec![QueueConfig { limit: room, mark_threshold: None, shares_pool: false }];
    queues.extend(vec![data; classes.into()]);
    PortConfig { queues, pool: room, limit: None, ..plain }
}

fn setup(order: Order, courier: bool, change: impl Fn(&mut ShuffleSetup)) -> ShuffleSetup {
    let text = format!("kind = 'big-switch'\nhosts = {HOSTS}\nrate = '1 Gbit/s'\ndelay = '1 us'");
    let spec: FabricSpec = toml::from_str(&text).unwrap();
    let topology = spec.build(Bytes::new(1500)).unwrap();
    let routes = Routes::all(&topology, Metric::Hops).unwrap();
    let classes = match order {
        Order::Sincronia => Classes { count: 8, restart_window: true },
        _ => Classes::ONE,
    };
    let rate = BitRate::new(1_000_000_000);
    let mut sender = SenderConfig::data_centre(Scheme::DCTCP);
    sender.initial_window = Packets::new(1.0);
    sender.rtt.min_rto = Duration::from_micros(200);
    let carrier = match courier {
        false => Carrier::Flows,
        true => Carrier::Courier {
            limits: Limits {
                max_num: 100,
                max_per_pair: Some(1),
                block: Bytes::new(8_760),
                ..Limits::default()
            },
            agent: CourierConfig { block: Bytes::new(8_760), pipeline: 3, ..CourierConfig::paper() },
            pinned: false,
            per_class: false,
            merges: true,
        },
    };
    let mut setup = ShuffleSetup {
        topology,
        routes,
        port: Box::new(move |_, is_nic| port(rate, classes.count, is_nic)),
        choice: Box::new(|_| Choice::First),
        data: Bytes::new(1500),
        ack: Bytes::new(40),
        payload: Bytes::new(1460),
        jitter: Jitter::UpTo(Duration::from_micros(1)),
        delay: Duration::from_micros(2),
        sender,
        jobs: jobs(),
        slots: Some(2),
        fetches: Some(2),
        combiner: true,
        order,
        classes,
        carrier,
        until: Some(Time::from_nanos(60_000_000_000)),
        seed: 1,
    };
    change(&mut setup);
    setup
}

fn run(order: Order, courier: bool, change: impl Fn(&mut ShuffleSetup)) -> ShuffleOutcome {
    shuffle::run(setup(order, courier, change), &mut |_, _| ()).unwrap()
}

fn orders() -> [Order; 4] {
    let queues = Queues { first: Bytes::kib(64), period: Duration::from_micros(300), ..Queues::default() };
    let django = Order::DjangoLike { flows: 2, period: Duration::from_millis(1) };
    [Order::None, Order::Aalo(queues), Order::Sincronia, django]
}

#[test]
fn every_job_ends_by_every_scheduler_with_courier_and_without() {
    for (order, courier) in orders().into_iter().flat_map(|order| [(order.clone(), false), (order, true)]) {
        let outcome = run(order.clone(), courier, |_| ());
        let unfinished = outcome.jobs.iter().filter(|job| job.finished.is_none()).count();
        assert_eq!(unfinished, 0, "{order:?}, courier {courier}: {outcome:?}");
        // Six reducers of eight jobs fetch from the three hosts of mappers, half of them from two only.
        assert_eq!(outcome.flows, 8 * (3 * 3 + 3 * 2), "{order:?}");
        let wanted: u64 = outcome.jobs.iter().map(|job| job.bytes.get()).sum();
        let fresh = (outcome.sent - outcome.resent) * 1460;
        assert!(fresh >= wanted, "{order:?}: {fresh} of {wanted} bytes crossed");
        // Courier's blocks end with a short packet each, fetches with one.
        assert!(fresh <= wanted + wanted / 10 + outcome.flows * 2 * 1460, "{order:?}: {fresh} of {wanted}");
        // At most the line's rate into each host.
        let last = outcome.jobs.iter().filter_map(|job| job.finished).max().unwrap();
        let least = wanted as f64 / f64::from(HOSTS) * 8.0 / 1e9;
        assert!(last.as_secs_f64() > least, "{order:?} ends at {last:?}, before {least} s");
    }
}

#[test]
fn a_job_that_waits_for_another_begins_when_that_has_ended() {
    let pause = Duration::from_micros(70);
    let chained = |setup: &mut ShuffleSetup| {
        setup.jobs.iter_mut().enumerate().skip(1).for_each(|(number, job)| {
            job.after = Some(After { job: number - 1, pause });
        });
    };
    for (order, courier) in orders().into_iter().flat_map(|order| [(order.clone(), false), (order, true)]) {
        let outcome = run(order, courier, chained);
        for two in outcome.jobs.windows(2) {
            assert_eq!(two[1].arrival, two[0].finished.unwrap() + pause);
        }
        assert!(outcome.jobs.iter().all(|job| job.finished.is_some()), "{outcome:?}");
    }
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    for courier in [false, true] {
        let first = run(Order::Sincronia, courier, |_| ());
        assert_eq!(first, run(Order::Sincronia, courier, |_| ()));
        let other = run(Order::Sincronia, courier, |setup| setup.seed = 2);
        assert_ne!(first.jobs, other.jobs);
    }
}

#[test]
fn courier_has_one_connection_for_a_pair_and_hadoop_one_for_a_flow() {
    let courier = run(Order::None, true, |_| ());
    assert_eq!(courier.connections, 3 * 5, "three hosts of mappers to five others each");
    assert!(courier.most_lanes <= 3);
    let hadoop = run(Order::None, false, |_| ());
    assert_eq!(hadoop.connections, hadoop.flows);
}

#[test]
fn slots_and_fetches_bound_the_flows_and_none_are_bounds_of_nothing() {
    for courier in [false, true] {
        let one = |setup: &mut ShuffleSetup| (setup.slots, setup.fetches) = (Some(1), Some(1));
        assert!(run(Order::None, courier, one).most_flows <= u64::from(HOSTS));
        let all_at_once = |setup: &mut ShuffleSetup| {
            (setup.slots, setup.fetches) = (None, None);
            setup.jobs.iter_mut().for_each(|job| job.at = Time::ZERO);
        };
        let outcome = run(Order::None, courier, all_at_once);
        assert_eq!(outcome.most_flows, outcome.flows);
    }
}

#[test]
fn without_the_combiner_each_map_output_is_a_flow() {
    let outcome = run(Order::None, false, |setup| setup.combiner = false);
    assert_eq!(outcome.flows, 8 * 2 * (3 * 3 + 3 * 2));
}

#[test]
fn the_most_important_coflow_is_faster_by_rank_than_without() {
    // The last job to arrive is the smallest of all that are left.
    let small = |setup: &mut ShuffleSetup| {
        (setup.slots, setup.fetches) = (None, None);
        let last = setup.jobs.last_mut().unwrap();
        for reducer in &mut last.reducers {
            reducer.outputs.iter_mut().for_each(|(_, bytes)| *bytes = Bytes::new(3_000));
        }
    };
    for courier in [false, true] {
        let time = |order| {
            let job = *run(order, courier, small).jobs.last().unwrap();
            job.finished.unwrap().since(job.arrival)
        };
        let (ranked, unranked) = (time(Order::Sincronia), time(Order::None));
        assert!(ranked < unranked, "courier {courier}: {ranked:?} by rank, {unranked:?} without");
    }
}

#[test]
fn limits_that_stop_everything_are_refused() {
    let no_lanes = |setup: &mut ShuffleSetup| {
        let Carrier::Courier { limits, .. } = &mut setup.carrier else { panic!("it is Courier's") };
        limits.max_num = 0;
    };
    let error = shuffle::run(setup(Order::None, true, no_lanes), &mut |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("MaxNum"), "{error}");
}

#[test]
fn bytes_that_cannot_be_counted_are_refused() {
    for bytes in [u64::MAX, 1 << 53, (1 << 52) + 1] {
        let huge = |setup: &mut ShuffleSetup| {
            let outputs = &mut setup.jobs[0].reducers[0].outputs;
            outputs.iter_mut().take(2).for_each(|(_, size)| *size = Bytes::new(bytes));
        };
        let error = shuffle::run(setup(Order::None, false, huge), &mut |_, _| ()).unwrap_err();
        assert!(matches!(error, SetupError::TooManyBytes), "{bytes}: {error}");
        assert!(error.to_string().contains("smaller map outputs"), "{error}");
    }
}
