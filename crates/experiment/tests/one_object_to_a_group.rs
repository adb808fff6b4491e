//! One object to a group on the rate model, from the file to the verdict; that verdicts can fail, and what is refused.

mod common;

use std::collections::BTreeMap;

use common::{experiment, shipped};
use headwater_experiment::claim::Outcome;
use headwater_experiment::experiment::{Engine, Experiment, Job, Scale};
use headwater_experiment::run::run_job;
use headwater_experiment::table::Tables;

fn measure(tables: &Tables, name: &str) -> f64 {
    let (names, values) = (tables.measures.column("name").unwrap(), tables.measures.column("value").unwrap());
    let row = (0..names.len()).find(|row| names.is(*row, name)).unwrap_or_else(|| panic!("no {name}"));
    values.number(row).unwrap()
}

fn ran(job: &Job) -> Tables {
    run_job(job, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"))
}

/// The verdicts at small scale, each job changed first.
fn judged(id: &str, change: impl Fn(&mut Job)) -> BTreeMap<String, Outcome> {
    let experiment = experiment(id);
    let mut all = Tables::gathering();
    for mut job in experiment.jobs(Engine::Flow, Scale::Small, None).unwrap() {
        change(&mut job);
        job.gather(ran(&job), &mut all).unwrap();
    }
    let verdicts = experiment.judge(Engine::Flow, Scale::Small, &all);
    verdicts.into_iter().map(|it| (it.claim, it.verdict)).collect()
}

fn verdicts(change: impl Fn(&mut Job)) -> BTreeMap<String, Outcome> {
    judged("datacast/fig9", change)
}

const JUDGED: [&str; 6] =
    ["D-9/stress-least", "D-9/stress-most", "D-9/time-least", "D-9/time-most", "D-9/nearer", "D-9i/rates"];

#[test]
fn trees_are_as_fast_as_they_can_be_and_swarms_are_behind_as_published() {
    let verdicts = verdicts(|_| ());
    for claim in JUDGED {
        assert_eq!(verdicts[claim], Outcome::Pass, "{claim}");
    }
    assert!(verdicts.values().all(|it| [Outcome::Pass, Outcome::Report].contains(it)), "{verdicts:?}");
}

/// An object that is one block goes down one tree, whatever there are others for.
#[test]
fn without_blocks_there_is_one_tree_and_the_claims_on_time_are_missed() {
    let verdicts = verdicts(|job| job.scenario.transport.block_symbols = 33_334);
    for (claim, expected) in
        [("D-9i/rates", Outcome::Miss), ("D-9/time-least", Outcome::Miss), ("D-9/nearer", Outcome::Pass)]
    {
        assert_eq!(verdicts[claim], expected, "{claim}");
    }
}

#[test]
fn swarms_of_one_peer_each_are_slower_than_published() {
    let verdicts = verdicts(|job| job.scenario.transport.swarm.peers = 1);
    assert_eq!(verdicts["D-9/time-most"], Outcome::Miss);
    assert_eq!(verdicts["D-9i/rates"], Outcome::Pass, "trees have no peers");
}

#[test]
fn hubs_and_large_blocks_slow_swarms_down_as_published() {
    let choices = judged("datacast/fig9-choices", |_| ());
    for claim in ["D-9/cliques", "D-9/blocks-small"] {
        assert_eq!(choices[claim], Outcome::Pass, "{claim}");
    }
    let of_one_peer = judged("datacast/fig9-choices", |job| {
        if job.scheme == "bt-cornet" {
            job.scenario.transport.swarm.peers = 1;
        }
    });
    assert_eq!(of_one_peer["D-9/cliques"], Outcome::Miss, "chains are slower still");
}

#[test]
fn all_schemes_have_the_same_group_and_the_same_ideal() {
    let fig9 = experiment("datacast/fig9");
    let mut groups = BTreeMap::new();
    for job in fig9.jobs(Engine::Flow, Scale::Small, None).unwrap() {
        let tables = ran(&job);
        let ideal = measure(&tables, "ideal_s");
        let receiver = tables.tasks.column("receiver").unwrap().number(0).unwrap();
        let finish = tables.tasks.column("finish_s").unwrap().number(0).unwrap();
        assert!(finish >= ideal && finish == measure(&tables, "finish_s"), "{:?}", job.point);
        let first = groups.entry((job.point.clone(), job.seed)).or_insert((ideal, receiver));
        assert_eq!(*first, (ideal, receiver), "{:?}", job.point);
        if job.scheme == "datacast" {
            assert_eq!(measure(&tables, "link_stress"), 1.0);
        }
        if job.point[1].1 == "8" {
            assert_eq!(tables.measures, ran(&job).measures, "the same every time");
        }
    }
}

/// Eight hosts on a switch: a tree has nine links at the most, and each carries the object once.
#[test]
fn bytes_are_counted_by_the_link() {
    let of = |scheme: &str| {
        let text = format!(
            "title = 't'\nsource = 's'\nengines = ['flow']\nschemes = ['{scheme}']\n[scale.small]\nseeds = 1\n\
             [scenario]\nfabric = {{ kind = 'big-switch', hosts = 8, rate = '1 Gbit/s', delay = '5 us' }}\n\
             packet = {{ data = '1000 B' }}\nworkload = {{ kind = 'group', members = 8, packets = 1000 }}"
        );
        ran(&Experiment::parse("x/group", &text).unwrap().jobs(Engine::Flow, Scale::Small, None).unwrap()[0])
    };
    assert_eq!(measure(&of("datacast"), "network_stress"), 8.0 * 1e6, "up once, down to seven");
    let swarm = of("bt-cornet");
    assert_eq!(measure(&swarm, "network_stress"), 14.0 * 1e6, "up and down for each of seven");
    assert_eq!(measure(&swarm, "events"), 7.0 * 10.0, "1 MB is ten blocks of 108 KB");
    assert_eq!(measure(&swarm, "ideal_s"), 0.008);
}

/// Each hop of a chain costs a block's time, and each link carries the object once.
#[test]
fn a_chain_takes_a_block_longer_for_each_hop() {
    let text = "title = 't'\nsource = 's'\nengines = ['flow']\nschemes = ['chain']\n[scale.small]\nseeds = 3\n\
                [scenario]\nfabric = { kind = 'leaf-spine', leaves = 2, hosts_per_leaf = 8, spines = 2, rate = '1 Gbit/s', \
                fabric_rate = '8 Gbit/s', delay = '5 us' }\npacket = { data = '1000 B' }\n\
                workload = { kind = 'group', members = 16, packets = 10800 }";
    for job in Experiment::parse("x/chain", text).unwrap().jobs(Engine::Flow, Scale::Small, None).unwrap() {
        let chain = ran(&job);
        // 100 blocks, and 14 hops after the first.
        let expected = 1.14 * measure(&chain, "ideal_s");
        let finish = measure(&chain, "finish_s");
        assert!((finish / expected - 1.0).abs() < 0.005, "{finish} {expected}");
        // Two links within a rack, two more to the other rack and, if the source is not the last of its own, back.
        let links = measure(&chain, "network_stress") / 10.8e6;
        assert!(links == 32.0 || links == 34.0, "{links}");
    }
}

#[test]
fn what_rates_of_a_group_do_not_know_is_refused() {
    let (_, text) = shipped().into_iter().find(|(id, _)| id == "datacast/fig9").unwrap();
    let group = "workload = { kind = \"group\", members = 8, packets = 333334 }";
    let tasks = |tasks: &str| format!("workload = {{ kind = \"task-list\", tasks = [{tasks}] }}");
    let one = "{ name = \"a\", packets = 9, sources = [0], receiver = 1 }";
    let error = |to: &str| {
        let text = text.replace(group, to).replace("members = [8, 16, 32]", "members = [8]");
        // Without the axis that other workloads have no place for.
        let (before, rest) = text.split_once("[[vary]]\nname = \"members\"").unwrap();
        let (_, scenario) = rest.split_once("[scenario]").unwrap();
        let (scenario, _) = scenario.split_once("[[claim]]").unwrap();
        let text = format!("{before}[scenario]{scenario}")
            .replace(", members = [8]", "")
            .replace("set = { \"workload.packets\" = 33334, \"transport.block_symbols\" = 67 }\n", "");
        let experiment = Experiment::parse("x/group", &text).unwrap_or_else(|error| panic!("{error}"));
        let jobs =
            experiment.jobs(Engine::Flow, Scale::Small, None).unwrap_or_else(|error| panic!("{error}"));
        run_job(&jobs[0], &mut |_| ()).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(error(&tasks(one)), "", "a task with one source is a group");
    let two = format!("{one}, {}", one.replace("\"a\"", "\"b\""));
    for (scenario, why) in [
        (tasks(&two), "one group"),
        (tasks(&one.replace("[0]", "[0, 2]")), "one source"),
        (format!("until = \"1 s\"\n{}", tasks(one)), "takes no samples"),
        (format!("lead = \"1 s\"\n{}", tasks(one)), "begins with the run"),
        (format!("routing = \"spray\"\n{}", tasks(one)), "ecmp"),
        (format!("carry_bytes = true\n{}", tasks(one)), "true bytes"),
        (format!("link_failure_rate = 0.1\n{}", tasks(one)), "link_failure_rate"),
    ] {
        let error = error(&scenario);
        assert!(error.contains(why), "{why}: {error}");
    }
}
