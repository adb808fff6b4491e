//! Workloads are deterministic, common to all schemes, and carry the load that they state.

mod common;

use std::collections::BTreeSet;

use common::experiment;
use headwater_experiment::experiment::{Engine, Scale};
use headwater_experiment::workload::{
    Access, LoadOn, Network, Placement, SizeTable, Sizes, TaskPlan, Workload, WorkloadError,
};
use headwater_units::{Bytes, Duration, Time};
use proptest::prelude::*;

const PAPER_SIZES: Sizes = Sizes::Table { table: SizeTable::Websearch, from: 2048, to: 204_800, times: 1.0 };

fn big_switch(hosts: u32) -> Network {
    Network { hosts, host_rate: 2e5, pods: Vec::new(), racks: Vec::new() }
}

fn storage(count: u32, load: f64, fanout: u32) -> Workload {
    let placement = Placement::Storage { nodes: 10, fanout, per_pod: false };
    Workload::Tasks { count, load, load_on: LoadOn::StorageUplinks, sizes: PAPER_SIZES, placement }
}

fn packets(tasks: &[TaskPlan]) -> f64 {
    tasks.iter().map(|task| task.packets.unwrap() as f64).sum()
}

#[test]
fn a_seed_gives_the_same_tasks_for_every_scheme() {
    let fig8 = experiment("ppush/fig8");
    let jobs = fig8.jobs(Engine::Packet, Scale::Paper, Some(2)).unwrap();
    for network in ["obs", "leaf-spine", "fat-tree"] {
        for seed in 1..=2 {
            let of_seed = jobs.iter().filter(|job| job.seed == seed && job.point[0].1 == network);
            let plans: Vec<Vec<TaskPlan>> = of_seed
                .map(|job| {
                    let topology = job.scenario.topology().unwrap();
                    let network = Network::of(&topology, job.scenario.packet.data);
                    job.scenario.workload.plan(&network, job.seed).unwrap()
                })
                .collect();
            assert_eq!(plans.len(), 7);
            assert!(plans.windows(2).all(|pair| pair[0] == pair[1]), "{network} {seed}");
        }
    }
}

#[test]
fn load_fanout_and_sizes_vary_without_moving_the_rest() {
    let network = big_switch(100);
    let base = storage(200, 0.9, 3).plan(&network, 1).unwrap();
    let lighter = storage(200, 0.45, 3).plan(&network, 1).unwrap();
    let wider = storage(200, 0.9, 5).plan(&network, 1).unwrap();
    for ((base, lighter), wider) in base.iter().zip(&lighter).zip(&wider) {
        assert_eq!((base.packets, &base.sources), (lighter.packets, &lighter.sources));
        let stretched = lighter.at.as_nanos() as f64 / base.at.as_nanos() as f64;
        assert!((stretched - 2.0).abs() < 1e-3, "half the load takes twice as long: {stretched}");
        assert_eq!((base.at, base.packets, base.receiver), (wider.at, wider.packets, wider.receiver));
        assert_eq!(base.sources[..], wider.sources[..3], "three sources are the first of five");
    }
    let other = storage(200, 0.9, 3).plan(&network, 2).unwrap();
    assert!(base.iter().zip(&other).all(|(a, b)| a.at != b.at));
}

#[test]
fn offered_load_is_what_was_asked_for() {
    // 40,000 tasks: the relative deviation of sum / time is about sqrt((1 + cv^2) / n) = 1 % with cv = 1.7.
    let network = big_switch(100);
    let tasks = storage(40_000, 0.9, 3).plan(&network, 7).unwrap();
    let seconds = tasks.last().unwrap().at.as_secs_f64();
    let load = packets(&tasks) / seconds / (10.0 * 2e5);
    assert!((load - 0.9).abs() < 0.03, "storage uplinks carry {load}");

    let random = Workload::Tasks {
        count: 40_000,
        load: 0.9,
        load_on: LoadOn::HostLinks,
        sizes: PAPER_SIZES,
        placement: Placement::RandomSources { fanout: 3 },
    };
    let tasks = random.plan(&network, 7).unwrap();
    let load = packets(&tasks) / tasks.last().unwrap().at.as_secs_f64() / (100.0 * 2e5);
    assert!((load - 0.9).abs() < 0.03, "host links carry {load}");
}

#[test]
fn the_normaliser_is_mean_size_over_host_rate() {
    let normaliser = storage(1, 0.9, 3).normaliser_s(&big_switch(100)).unwrap().unwrap();
    // 13,557 packets at 2 * 10^5 packets per second.
    assert!((normaliser - 0.067_787).abs() < 1e-5, "{normaliser}");
    let incast = Workload::Incast { senders: 3, drawn: false, receiver: 0, packets: 5 };
    assert_eq!(incast.normaliser_s(&big_switch(9)), Ok(None));
}

#[test]
fn storage_nodes_send_and_never_receive() {
    for seed in 1..=20 {
        let tasks = storage(200, 0.9, 3).plan(&big_switch(100), seed).unwrap();
        let senders: BTreeSet<u32> = tasks.iter().flat_map(|task| task.sources.clone()).collect();
        let receivers: BTreeSet<u32> = tasks.iter().map(|task| task.receiver).collect();
        assert_eq!(senders.len(), 10, "600 draws meet all ten");
        assert!(senders.is_disjoint(&receivers));
        assert!(receivers.len() > 70, "200 draws among 90 hosts");
    }
}

#[test]
fn a_fat_tree_has_a_storage_node_in_every_pod() {
    let pods: Vec<u32> = (0..128).map(|host| host / 16).collect();
    let network = Network { pods, ..big_switch(128) };
    let placement = Placement::Storage { nodes: 8, fanout: 3, per_pod: true };
    let workload = |placement| Workload::Tasks {
        count: 300,
        load: 0.9,
        load_on: LoadOn::StorageUplinks,
        sizes: PAPER_SIZES,
        placement,
    };
    let tasks = workload(placement).plan(&network, 3).unwrap();
    let senders: BTreeSet<u32> = tasks.iter().flat_map(|task| task.sources.clone()).collect();
    let of_pods: BTreeSet<u32> = senders.iter().map(|host| host / 16).collect();
    assert_eq!((senders.len(), of_pods.len()), (8, 8));
    let ten = Placement::Storage { nodes: 10, fanout: 3, per_pod: true };
    assert_eq!(workload(ten).plan(&network, 3), Err(WorkloadError::PerPod { pods: 8, nodes: 10 }));
}

#[test]
fn random_sources_draw_sources_and_receiver_from_everybody() {
    let workload = Workload::Tasks {
        count: 700,
        load: 0.9,
        load_on: LoadOn::HostLinks,
        sizes: PAPER_SIZES,
        placement: Placement::RandomSources { fanout: 9 },
    };
    let tasks = workload.plan(&big_switch(100), 1).unwrap();
    let senders: BTreeSet<u32> = tasks.iter().flat_map(|task| task.sources.clone()).collect();
    assert_eq!(senders.len(), 100);
    assert!(tasks.iter().all(|task| task.sources.len() == 9 && !task.sources.contains(&task.receiver)));
}

#[test]
fn a_lost_site_is_made_anew_from_survivors_elsewhere() {
    let sizes = Sizes::Table { table: SizeTable::Websearch, from: 10_000, to: 1_000_000, times: 1.0 };
    let workload = Workload::Redistribution { objects: 300, replicas: 5, fanout: 3, sizes };
    let mut numbers = Vec::new();
    let mut lost = BTreeSet::new();
    for seed in 1..=50 {
        let tasks = workload.plan(&big_switch(18), seed).unwrap();
        numbers.push(tasks.len() as f64);
        let met: BTreeSet<u32> =
            tasks.iter().flat_map(|task| task.sources.iter().copied().chain([task.receiver])).collect();
        let absent: Vec<u32> = (0..18).filter(|site| !met.contains(site)).collect();
        assert_eq!(absent.len(), 1, "only the lost site takes no part");
        lost.extend(absent);
        assert!(tasks.iter().all(|task| task.at == Time::ZERO && task.sources.len() == 3));
        assert!(tasks.iter().all(|task| (10_000..=1_000_000).contains(&task.packets.unwrap())));
    }
    // 300 * 5 / 18 = 83.3 objects per site; the mean of 50 seeds has a deviation of 1.1.
    let mean = numbers.iter().sum::<f64>() / 50.0;
    assert!((mean - 83.3).abs() < 4.0, "{mean}");
    assert!(lost.len() > 14, "50 draws lose most sites once: {lost:?}");
}

#[test]
fn flows_join_one_at_a_time_and_the_queue_is_watched_after_each() {
    let (settle, measure) = (Duration::from_millis(20), Duration::from_millis(10));
    let workload = Workload::JoiningFlows { flows: 3, source: 1, settle, measure };
    let tasks = workload.plan(&big_switch(3), 1).unwrap();
    let joined: Vec<(u64, u32)> =
        tasks.iter().map(|task| (task.at.as_nanos() / 1_000_000, task.receiver)).collect();
    assert_eq!(joined, [(0, 0), (30, 2), (60, 0)]);
    assert!(tasks.iter().all(|task| task.packets.is_none() && task.sources == [1]));
    let windows: Vec<(u32, u64, u64)> = workload
        .join_windows()
        .into_iter()
        .map(|(n, from, to)| (n, from.as_nanos() / 1_000_000, to.as_nanos() / 1_000_000))
        .collect();
    assert_eq!(windows, [(1, 20, 30), (2, 50, 60), (3, 80, 90)]);
}

#[test]
fn the_bench_jobs_are_a_permutation_and_an_incast() {
    let permutation = Workload::Permutation { multiplier: 37, offset: 53, packets: 1382 };
    let tasks = permutation.plan(&big_switch(128), 1).unwrap();
    assert_eq!(tasks.len(), 128);
    assert_eq!((tasks[3].sources[0], tasks[3].receiver), (3, (37 * 3 + 53) % 128));
    let receivers: BTreeSet<u32> = tasks.iter().map(|task| task.receiver).collect();
    assert_eq!(receivers.len(), 128);
    let even = Workload::Permutation { multiplier: 2, offset: 1, packets: 1 };
    assert_eq!(
        even.plan(&big_switch(128), 1),
        Err(WorkloadError::NoPermutation { multiplier: 2, hosts: 128 })
    );
    let incast = Workload::Incast { senders: 16, drawn: false, receiver: 16, packets: 6907 }
        .plan(&big_switch(17), 1)
        .unwrap();
    assert!(
        incast.len() == 16 && incast.iter().all(|task| task.receiver == 16 && task.packets == Some(6907))
    );
}

/// SCDP §IV-A: 250 servers in racks of five; HDFS's default policy.
#[test]
fn blocks_are_placed_and_read_as_hdfs_does() {
    let network = Network { racks: (0..250).map(|host| host / 5).collect(), ..big_switch(250) };
    let plan = |access| {
        let workload =
            Workload::Requests { count: 2000, per_second: 2000.0, packets: 697, replicas: 3, access };
        workload.plan(&network, 1).unwrap()
    };
    let rack = |host: u32| host / 5;
    let (writes, reads) = (plan(Access::Write), plan(Access::Read));
    let mut beside = 0;
    for ((write, chain), (read, all)) in
        writes.iter().zip(plan(Access::WriteChain)).zip(reads.iter().zip(plan(Access::ReadAll)))
    {
        let client = write.sources[0];
        let [second, third] = write.further[..] else { panic!("three copies") };
        assert_ne!(rack(write.receiver), rack(second), "another rack");
        assert_eq!(rack(second), rack(third), "beside the second");
        assert!(!write.relayed && chain.relayed);
        assert_eq!(
            (&chain.sources, chain.receiver, &chain.further),
            (&write.sources, write.receiver, &write.further)
        );
        // The same requests, read.
        let copies = [write.receiver, second, third];
        assert_eq!((all.receiver, &all.sources[..]), (client, &copies[..]));
        assert!(read.receiver == client && copies.contains(&read.sources[0]));
        if copies.iter().any(|copy| rack(*copy) == rack(client)) {
            assert_eq!(rack(read.sources[0]), rack(client));
            beside += 1;
        }
    }
    assert!((20..200).contains(&beside), "a copy beside the client in about two of fifty: {beside}");
    let last = writes.last().unwrap().at.as_secs_f64();
    assert!((last - 1.0).abs() < 0.1, "2000 requests at 2000 per second: {last} s");
    for ahead in plan(Access::ReadAhead) {
        let from: BTreeSet<u32> = ahead.sources.iter().copied().collect();
        assert!(from.len() == 3 && !from.contains(&ahead.receiver));
    }
    // Two racks of two: a reader always reads from the one beside it, so it cannot read from two.
    let small = Network { racks: vec![0, 0, 1, 1], ..big_switch(4) };
    let plan = |access| {
        let workload = Workload::Requests { count: 1, per_second: 1.0, packets: 1, replicas: 2, access };
        workload.plan(&small, 1)
    };
    assert!(plan(Access::ReadAll).is_ok());
    let refused = plan(Access::ReadAhead);
    assert!(matches!(refused, Err(WorkloadError::TooFewHosts { needed: 3, there: 2, .. })));
}

fn sessions(count: u32, sizes: Sizes, awaited: Option<u64>) -> Workload {
    Workload::Sessions { count, per_second: 2500.0, sizes, awaited }
}

/// SCDP §IV-B: sizes of web search at 2500 per second, between random hosts.
#[test]
fn sessions_arrive_at_their_rate_between_two_random_hosts_each() {
    let sizes = Sizes::Published { table: SizeTable::Websearch, payload: Bytes::new(1436) };
    let tasks = sessions(20_000, sizes.clone(), Some(6963)).plan(&big_switch(250), 1).unwrap();
    let seconds = tasks.last().unwrap().at.as_secs_f64();
    // A Poisson process of 20,000: the deviation is 0.7 %.
    assert!((seconds / 8.0 - 1.0).abs() < 0.03, "{seconds} s");
    let mean = packets(&tasks) / 20_000.0 * 1436.0;
    assert!((mean / 1.667e6 - 1.0).abs() < 0.06, "{mean} bytes");
    for ends in [|task: &TaskPlan| task.receiver, |task: &TaskPlan| task.sources[0]] {
        assert_eq!(tasks.iter().map(ends).collect::<BTreeSet<_>>().len(), 250);
    }
    assert!(tasks.iter().all(|task| task.sources.len() == 1 && task.sources[0] != task.receiver));
    // 3.7 % of web search is larger than 10 MB.
    let large: Vec<&TaskPlan> = tasks.iter().filter(|task| !task.awaited).collect();
    assert!(large.iter().all(|task| task.packets > Some(6963)));
    assert!((500..1000).contains(&large.len()), "{}", large.len());
    let all = sessions(20_000, sizes, None).plan(&big_switch(250), 1).unwrap();
    assert!(all.iter().zip(&tasks).all(|(a, b)| a.awaited && (a.at, a.packets) == (b.at, b.packets)));
    let refused = sessions(1, Sizes::Fixed { packets: 1 }, None).plan(&big_switch(1), 1);
    assert!(matches!(refused, Err(WorkloadError::TooFewHosts { .. })));
}

#[test]
fn drawn_senders_come_from_everywhere_and_are_others_with_another_seed() {
    let senders = |drawn, seed| {
        let incast = Workload::Incast { senders: 20, drawn, receiver: 7, packets: 5 };
        incast
            .plan(&big_switch(250), seed)
            .unwrap()
            .iter()
            .map(|task| task.sources[0])
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(senders(false, 1), senders(false, 2));
    assert_ne!(senders(true, 1), senders(true, 2));
    let drawn = senders(true, 1);
    assert!(drawn.len() == 20 && !drawn.contains(&7) && drawn.iter().any(|host| *host > 100));
}

proptest! {
    /// Places are drawn until they fit: no racks may leave it to draw for ever.
    #[test]
    fn reads_ahead_find_as_many_places_as_blocks_in_any_racks_or_say_why_not(
        racks in prop::collection::vec(0u32..5, 0..12),
        replicas in 1u32..6,
        seed in any::<u64>(),
    ) {
        let network = Network { racks: racks.clone(), ..big_switch(racks.len() as u32) };
        let access = Access::ReadAhead;
        let reads = Workload::Requests { count: 20, per_second: 1.0, packets: 1, replicas, access };
        for task in reads.plan(&network, seed).unwrap_or_default() {
            let met: BTreeSet<u32> = task.sources.iter().copied().chain([task.receiver]).collect();
            prop_assert_eq!(met.len(), replicas as usize + 1);
        }
    }

    #[test]
    fn any_numbers_give_tasks_that_make_sense_or_an_error(
        hosts in 0u32..40,
        count in 0u32..50,
        load in prop::num::f64::ANY,
        host_rate in prop::num::f64::ANY,
        (from, to) in any::<(u64, u64)>(),
        (nodes, fanout) in (0u32..40, 0u32..40),
        per_pod in any::<bool>(),
        random in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let placement = match random {
            true => Placement::RandomSources { fanout },
            false => Placement::Storage { nodes, fanout, per_pod },
        };
        let load_on = if random { LoadOn::HostLinks } else { LoadOn::StorageUplinks };
        let workload = Workload::Tasks { count, load, load_on, sizes: Sizes::Uniform { from, to }, placement };
        let groups = |of| (0..hosts).map(|host| host / of).collect();
        let network = Network { hosts, host_rate, pods: groups(4), racks: groups(2) };
        if let Ok(tasks) = workload.plan(&network, seed) {
            prop_assert_eq!(tasks.len(), count as usize);
            for task in tasks {
                let met: BTreeSet<u32> = task.sources.iter().copied().chain([task.receiver]).collect();
                prop_assert_eq!(met.len(), fanout as usize + 1);
                prop_assert!(met.iter().all(|host| *host < hosts));
                prop_assert!((from..=to).contains(&task.packets.unwrap()));
            }
        }
        let lost = Workload::Redistribution { objects: count, replicas: nodes, fanout, sizes: Sizes::Fixed { packets: to } };
        let _ = lost.plan(&network, seed);
        let access = [Access::Write, Access::WriteChain, Access::Read, Access::ReadAhead, Access::ReadAll];
        for access in access {
            let requests =
                Workload::Requests { count, per_second: load, packets: to, replicas: fanout, access };
            for task in requests.plan(&network, seed).unwrap_or_default() {
                let ends = task.sources.iter().chain([&task.receiver]).chain(&task.further);
                let met: BTreeSet<u32> = ends.clone().copied().collect();
                prop_assert_eq!(met.len(), ends.count());
            }
        }
        let _ = Workload::Permutation { multiplier: count, offset: fanout, packets: to }.plan(&network, seed);
        let any_sessions = Workload::Sessions {
            count,
            per_second: load,
            sizes: Sizes::Uniform { from, to },
            awaited: Some(host_rate as u64),
        };
        for task in any_sessions.plan(&network, seed).unwrap_or_default() {
            prop_assert!(task.sources[0] != task.receiver && task.sources[0] < hosts && task.receiver < hosts);
        }
        let _ = Workload::Incast { senders: fanout, drawn: per_pod, receiver: nodes, packets: to }.plan(&network, seed);
    }
}
