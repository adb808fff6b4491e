//! Tasks over time by hand, and that no byte is lost on the way.

use headwater_fabric::{LinkId, Path};
use headwater_sim::flow::weigh::{equal, smallest_first, theta_bounds, thetas};
use headwater_sim::flow::{
    ActiveTask, Allocation, Done, FlowError, Network, Share, Span, Task, Work, run, run_until,
};
use headwater_units::{BitRate, Bytes, Duration, Packets, TaskId, Time};
use proptest::prelude::*;

/// 8 Gbit/s, so that a byte takes a nanosecond.
const BYTE_PER_NS: u64 = 8_000_000_000;

fn network(capacities: &[u64]) -> Network {
    Network::new(capacities.iter().map(|&capacity| BitRate::new(capacity)).collect()).unwrap()
}

fn task(task: u64, arrival: u64, work: Work, paths: &[&[u32]]) -> Task {
    let path = |links: &&[u32]| links.iter().map(|&link| LinkId(link)).collect::<Path>();
    Task {
        task: TaskId(task),
        arrival: Time::from_nanos(arrival),
        work,
        paths: paths.iter().map(path).collect(),
    }
}

fn pooled(bytes: u64) -> Work {
    Work::Pooled(Bytes::new(bytes))
}

fn bytes(list: &[u64]) -> Vec<Bytes> {
    list.iter().map(|&bytes| Bytes::new(bytes)).collect()
}

fn finishes(done: &[Done]) -> Vec<u64> {
    done.iter().map(|done| done.finish.as_nanos()).collect()
}

#[test]
fn a_lone_task_takes_its_bytes_over_the_rate() {
    let done = run(
        &network(&[BYTE_PER_NS]),
        &[task(1, 500, pooled(1_000), &[&[0]])],
        Allocation::MaxMin,
        &mut equal,
    );
    assert_eq!(done.unwrap(), [Done { finish: Time::from_nanos(1_500), brought: bytes(&[1_000]) }]);
}

/// Half of the link each until the second is through, then the whole.
#[test]
fn the_smaller_of_two_tasks_leaves_its_half_to_the_larger() {
    let tasks = [task(1, 0, pooled(1_000), &[&[0]]), task(2, 0, pooled(500), &[&[0]])];
    let done = run(&network(&[BYTE_PER_NS]), &tasks, Allocation::MaxMin, &mut equal).unwrap();
    assert_eq!(finishes(&done), [1_500, 1_000]);
}

#[test]
fn a_late_task_takes_half_from_its_arrival_on() {
    let tasks = [task(1, 0, pooled(1_000), &[&[0]]), task(2, 600, pooled(1_000), &[&[0]])];
    let done = run(&network(&[BYTE_PER_NS]), &tasks, Allocation::MaxMin, &mut equal).unwrap();
    // The first has 400 left at 600 and takes 800 for them; the second then has 600 left.
    assert_eq!(finishes(&done), [1_400, 2_000]);
}

#[test]
fn weights_three_to_one_are_rates_three_to_one() {
    let tasks = [task(1, 0, pooled(900), &[&[0]]), task(2, 0, pooled(900), &[&[0]])];
    let mut three_to_one = |active: &[ActiveTask]| {
        let weight = |task: &ActiveTask| if task.task.task == TaskId(1) { 3.0 } else { 1.0 };
        Ok(active.iter().map(|task| Share { weight: weight(task), rank: 0 }).collect())
    };
    let done = run(&network(&[BYTE_PER_NS]), &tasks, Allocation::WeightedMaxMin, &mut three_to_one).unwrap();
    assert_eq!(finishes(&done), [1_200, 1_800]);
}

#[test]
fn by_strict_ranks_the_smallest_task_goes_first_and_a_smaller_newcomer_before_it() {
    let tasks = [
        task(1, 0, pooled(1_000), &[&[0]]),
        task(2, 0, pooled(2_000), &[&[0]]),
        task(3, 400, pooled(100), &[&[0]]),
    ];
    let done = run(&network(&[BYTE_PER_NS]), &tasks, Allocation::Priority, &mut smallest_first).unwrap();
    assert_eq!(finishes(&done), [1_100, 3_100, 500]);
}

/// PPUSH Fig. 6: one task over two disjoint paths ends at the same time whatever their ratio, and the flows' parts are in
/// that ratio.
#[test]
fn a_pool_uses_all_of_its_paths() {
    for ratio in 1..=20 {
        let slow = 21_000_000 / (ratio + 1);
        let network = network(&[slow * ratio, slow]);
        let bytes = slow * (ratio + 1) / 16;
        let tasks = [task(1, 0, pooled(bytes), &[&[0], &[1]])];
        let done = run(&network, &tasks, Allocation::MaxMin, &mut equal).unwrap();
        let parts: Vec<f64> = done[0].brought.iter().map(|part| part.get() as f64).collect();
        assert!((done[0].finish.as_secs_f64() - 0.5).abs() < 1e-6, "{:?} at {ratio}", done[0].finish);
        assert!((parts[0] / parts[1] / ratio as f64 - 1.0).abs() < 1e-4, "{parts:?} at {ratio}");
    }
}

/// Sizes that a float cannot hold to the byte are still told to the byte.
#[test]
fn no_byte_of_a_huge_pool_is_lost() {
    let huge = (1 << 60) + 1;
    let done = run(
        &network(&[u64::MAX, u64::MAX]),
        &[task(1, 0, pooled(huge), &[&[0], &[1]])],
        Allocation::MaxMin,
        &mut equal,
    );
    assert_eq!(done.unwrap()[0].brought, bytes(&[1 << 59, (1 << 59) + 1]));
}

#[test]
fn an_equal_split_waits_for_the_slowest_path() {
    let network = network(&[BYTE_PER_NS, BYTE_PER_NS / 4, BYTE_PER_NS]);
    let tasks = [task(1, 0, Work::Equal(Bytes::new(1_001)), &[&[0], &[1], &[2]])];
    let done = run(&network, &tasks, Allocation::MaxMin, &mut equal).unwrap();
    assert_eq!(done, [Done { finish: Time::from_nanos(334 * 4), brought: bytes(&[334, 334, 333]) }]);
}

#[test]
fn a_coflow_is_done_with_its_last_flow_and_empty_flows_need_no_time() {
    let tasks = [
        task(1, 100, Work::Own(bytes(&[300, 0, 50])), &[&[0], &[0], &[1]]),
        task(2, 70, Work::Own(bytes(&[0])), &[&[0]]),
    ];
    let done = run(&network(&[BYTE_PER_NS; 2]), &tasks, Allocation::MaxMin, &mut equal).unwrap();
    assert_eq!(done[0], Done { finish: Time::from_nanos(400), brought: bytes(&[300, 0, 50]) });
    assert_eq!(done[1], Done { finish: Time::from_nanos(70), brought: bytes(&[0]) });
}

/// PPUSH §V-A: 51 for the smallest of nine, 0.5 for the rest; 50.5 for a smaller tenth.
#[test]
fn thetas_are_assigned_anew_when_tasks_arrive_and_complete() {
    let packet = Bytes::new(1210);
    let network = network(&[1_000_000 * 1210 * 8]);
    let second = 1_000_000 * 1210;
    let mut tasks: Vec<Task> = (1..=9).map(|n| task(n, 0, pooled(second * (2 + n)), &[&[0]])).collect();
    tasks.push(task(10, 500_000_000, pooled(second / 2), &[&[0]]));
    let mut planned = thetas(theta_bounds(&network, Duration::from_micros(80), Packets::new(30.0), packet));
    let mut seen = Vec::new();
    let mut weigher = |active: &[ActiveTask]| {
        let shares = planned(active)?;
        seen.push(shares.iter().map(|share| share.weight).collect::<Vec<f64>>());
        Ok(shares)
    };
    run(&network, &tasks, Allocation::WeightedMaxMin, &mut weigher).unwrap();
    let floors = |n| vec![0.5; n];
    assert_eq!(seen[0], [vec![51.0], floors(8)].concat());
    assert_eq!(seen[1], [floors(9), vec![50.5]].concat());
    assert_eq!(seen[2], seen[0]);
    assert_eq!(seen.len(), 12, "two arrivals and ten completions, the last with nobody left");
}

#[test]
fn weighers_hear_what_is_left_and_who_still_brings_something() {
    let tasks = [
        task(1, 0, Work::Own(bytes(&[100, 1_000, 0])), &[&[0], &[1], &[1]]),
        task(2, 400, pooled(10), &[&[2], &[3]]),
    ];
    let mut seen = Vec::new();
    let mut weigher = |active: &[ActiveTask]| {
        seen.push(
            active.iter().map(|a| (a.task.task.0, a.remaining.get(), a.flows.clone())).collect::<Vec<_>>(),
        );
        equal(active)
    };
    run(&network(&[BYTE_PER_NS; 4]), &tasks, Allocation::MaxMin, &mut weigher).unwrap();
    // Flow 2 has nothing to bring, and that flow 0 is done at 100 is no reason to ask.
    assert_eq!(seen[0], [(1, 1_100, vec![0, 1])]);
    assert_eq!(seen[1], [(1, 600, vec![1]), (2, 10, vec![0, 1])]);
    assert_eq!(seen[2], [(1, 595, vec![1])]);
}

#[test]
fn what_cannot_be_run_is_refused() {
    let network = network(&[BYTE_PER_NS]);
    let refused = |task: Task| run(&network, &[task], Allocation::MaxMin, &mut equal).unwrap_err();
    assert_eq!(refused(task(7, 0, pooled(1), &[])), FlowError::NoFlows(TaskId(7)));
    assert!(matches!(refused(task(1, 0, pooled(1), &[&[1]])), FlowError::Path { links: 1, .. }));
    let error = refused(task(1, 0, Work::Own(bytes(&[1, 2])), &[&[0]]));
    assert_eq!(error, FlowError::Sizes { task: TaskId(1), sizes: 2, paths: 1 });
    let tasks = [task(1, 0, pooled(1), &[&[0]])];
    let silent = run(&network, &tasks, Allocation::MaxMin, &mut |_| Ok(Vec::new()));
    assert_eq!(silent, Err(FlowError::Shares { shares: 0, flows: 1 }));
    let twice = [tasks[0].clone(), tasks[0].clone()];
    let mut planned = thetas(theta_bounds(&network, Duration::ZERO, Packets::new(30.0), Bytes::new(1210)));
    let error = run(&network, &twice, Allocation::WeightedMaxMin, &mut planned).unwrap_err();
    assert!(matches!(error, FlowError::Plan(_)));
}

const LINKS: u32 = 6;

/// Arrival, paths with their sizes, kind of work.
type Drawn = (u64, Vec<(Vec<u32>, u64)>, u8);

fn any_tasks() -> impl Strategy<Value = Vec<Task>> {
    let path = || prop::sample::subsequence((0..LINKS).collect::<Vec<_>>(), 1..=3);
    let one = (0u64..5_000, prop::collection::vec((path(), 0u64..10_000), 1..5), 0u8..3);
    prop::collection::vec(one, 1..15).prop_map(|list| {
        let make = |(id, (arrival, flows, kind)): (u64, Drawn)| {
            let sizes: Vec<u64> = flows.iter().map(|(_, size)| *size).collect();
            let work = match kind {
                0 => pooled(sizes.iter().sum()),
                1 => Work::Equal(Bytes::new(sizes.iter().sum())),
                _ => Work::Own(bytes(&sizes)),
            };
            let paths: Vec<&[u32]> = flows.iter().map(|(path, _)| path.as_slice()).collect();
            task(id, arrival, work, &paths)
        };
        (0..).zip(list).map(make).collect()
    })
}

proptest! {
    #[test]
    fn every_byte_arrives_once_and_no_link_is_faster_than_it_is(
        tasks in any_tasks(), capacities in prop::collection::vec(BYTE_PER_NS / 8..BYTE_PER_NS, LINKS as usize),
    ) {
        let network = network(&capacities);
        let runs = [
            run(&network, &tasks, Allocation::MaxMin, &mut equal),
            run(&network, &tasks, Allocation::Priority, &mut smallest_first),
            run(&network, &tasks, Allocation::WeightedMaxMin,
                &mut thetas(theta_bounds(&network, Duration::from_micros(80), Packets::new(30.0), Bytes::new(100)))),
        ];
        for done in runs {
            let done = done.unwrap();
            prop_assert_eq!(done.len(), tasks.len());
            let mut carried = vec![0u64; LINKS as usize];
            let (mut first, mut last) = (u64::MAX, 0);
            for (done, task) in done.iter().zip(&tasks) {
                let brought: u64 = done.brought.iter().map(|part| part.get()).sum();
                match &task.work {
                    Work::Pooled(bytes) | Work::Equal(bytes) => prop_assert_eq!(brought, bytes.get()),
                    Work::Own(sizes) => prop_assert_eq!(&done.brought, sizes),
                }
                prop_assert!(done.finish >= task.arrival);
                for (path, part) in task.paths.iter().zip(&done.brought) {
                    path.links().iter().for_each(|link| carried[link.0 as usize] += part.get());
                }
                first = first.min(task.arrival.as_nanos());
                last = last.max(done.finish.as_nanos());
            }
            for (carried, capacity) in carried.into_iter().zip(&capacities) {
                // A flow's bytes are rounded to whole ones, and a finish to a whole nanosecond.
                let most = (last - first + 1) as f64 * *capacity as f64 / 8e9 + 60.0;
                prop_assert!(carried as f64 <= most, "{carried} bytes, at most {most}");
            }
        }
    }

    #[test]
    fn a_run_does_not_depend_on_the_order_in_which_tasks_are_listed(tasks in any_tasks()) {
        // Twin moments would be served in the order of the list, so each task gets its own.
        let tasks: Vec<Task> = (0..).zip(tasks)
            .map(|(n, task)| Task { arrival: Time::from_nanos(task.arrival.as_nanos() * 20 + n), ..task }).collect();
        let network = network(&[BYTE_PER_NS; LINKS as usize]);
        let forward = run(&network, &tasks, Allocation::MaxMin, &mut equal).unwrap();
        prop_assert_eq!(&forward, &run(&network, &tasks, Allocation::MaxMin, &mut equal).unwrap());
        let reversed: Vec<Task> = tasks.into_iter().rev().collect();
        let mut backward = run(&network, &reversed, Allocation::MaxMin, &mut equal).unwrap();
        backward.reverse();
        prop_assert_eq!(finishes(&forward), finishes(&backward));
    }
}

/// Two share a link until one is broken off at 400 ns with 200 of its bytes there; the other then has it alone.
#[test]
fn a_task_that_is_broken_off_keeps_what_came_and_frees_its_part() {
    let tasks =
        [task(1, 0, pooled(1_000), &[&[0]]), task(2, 0, Work::Own(bytes(&[700, 300])), &[&[0], &[1]])];
    let (mut spans, mut tenths) = (Vec::new(), 0.0);
    let mut watch = |span: &Span| {
        spans.push((span.from.as_nanos(), span.to.as_nanos(), span.tasks_done));
        let bits: f64 = span.flows.iter().map(|flowing| flowing.rate).sum();
        tenths += bits * span.to.since(span.from).as_secs_f64() / 80.0;
    };
    let stops = [Some(Time::from_nanos(400)), None];
    let network = network(&[BYTE_PER_NS, BYTE_PER_NS]);
    let done = run_until(&network, &tasks, &stops, Allocation::MaxMin, &mut equal, &mut watch).unwrap();
    assert_eq!(done[0], Done { finish: Time::from_nanos(400), brought: bytes(&[200]) });
    assert_eq!(done[1], Done { finish: Time::from_nanos(900), brought: bytes(&[700, 300]) });
    assert_eq!(spans, [(0, 0, 0), (0, 300, 0), (300, 400, 0), (400, 900, 1)]);
    assert!((tenths - 120.0).abs() < 1e-6, "what the spans show is what was brought: {tenths}");
}

#[test]
fn an_end_that_is_past_leaves_nothing_and_one_that_is_never_reached_changes_nothing() {
    let tasks = [task(1, 100, pooled(1_000), &[&[0]]), task(2, 100, pooled(500), &[&[0]])];
    let network = network(&[BYTE_PER_NS]);
    let ended = |stops: &[Option<Time>]| {
        run_until(&network, &tasks, stops, Allocation::MaxMin, &mut equal, &mut |_| ())
    };
    let done = ended(&[Some(Time::from_nanos(50)), None]).unwrap();
    assert_eq!(done[0], Done { finish: Time::from_nanos(100), brought: bytes(&[0]) });
    assert_eq!(finishes(&done), [100, 600]);
    let plain = run(&network, &tasks, Allocation::MaxMin, &mut equal);
    assert_eq!(ended(&[Some(Time::from_nanos(9_999)), Some(Time::from_nanos(1_100))]), plain);
    assert_eq!(ended(&[None]), Err(FlowError::Stops { stops: 1, tasks: 2 }));
}
