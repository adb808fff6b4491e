//! Fig. 8's big switch, from the file to the verdict, with rates for an engine: the shipped workload and claims give the
//! published gains, and lose them when what they are about is taken away.

mod common;

use std::collections::BTreeMap;

use common::{experiment, task};
use headwater_experiment::claim::{Outcome, Verdict};
use headwater_experiment::experiment::{Engine, Job, Scale};
use headwater_experiment::scenario::Amount;
use headwater_experiment::table::{FlowRow, Tables};
use headwater_experiment::workload::Network;
use headwater_fabric::{HostId, LinkId};
use headwater_sim::flow::{Allocation, Network as Rates, Task, Work, run, weigh};
use headwater_units::{Bytes, Packets, TaskId};

/// Part of the scheme that is taken away.
#[derive(Clone, Copy, PartialEq)]
enum Mutation {
    None,
    ThetaIsOne,
    NoPool,
}

fn simulated(job: &Job, mutation: Mutation) -> Tables {
    let scenario = &job.scenario;
    let topology = scenario.topology().unwrap();
    let packet = scenario.packet.data;
    let network = Network::of(&topology, packet);
    let plan = scenario.workload.plan(&network, job.seed).unwrap();
    let normaliser = scenario.workload.normaliser_s(&network).unwrap().unwrap();
    let links = (0..topology.fabric().link_count() as u32).map(LinkId);
    let capacities = links.map(|link| topology.fabric().link(link).unwrap().capacity.unwrap());
    let rates = Rates::new(capacities.collect()).unwrap();
    let pool = job.scheme.contains("(1,") && mutation != Mutation::NoPool;
    let tasks: Vec<Task> = plan
        .iter()
        .zip(0..)
        .map(|(task, id)| {
            let bytes = packet * task.packets.unwrap();
            let path = |source: &u32| topology.paths(HostId(*source), HostId(task.receiver), 1).remove(0);
            Task {
                task: TaskId(id),
                arrival: task.at,
                work: if pool { Work::Pooled(bytes) } else { Work::Equal(bytes) },
                paths: task.sources.iter().map(path).collect(),
            }
        })
        .collect();
    let Amount::Packets(threshold) = scenario.port.mark_threshold else { panic!("marks in packets") };
    let threshold = Packets::new(threshold.into());
    let bounds = weigh::theta_bounds(&rates, scenario.transport.base_rtt.unwrap(), threshold, packet);
    let done = match job.scheme.contains(",1)") && mutation != Mutation::ThetaIsOne {
        true => run(&rates, &tasks, Allocation::WeightedMaxMin, &mut weigh::thetas(bounds)),
        false => run(&rates, &tasks, Allocation::MaxMin, &mut weigh::equal),
    };
    let mut tables = Tables::default();
    for (planned, done) in plan.iter().zip(done.unwrap()) {
        let tct = done.finish.since(planned.at).as_secs_f64();
        let mut row = task(&planned.name, tct);
        row.normalised = tct / normaliser;
        row.push(&mut tables.tasks);
        let whole: Bytes = done.brought.iter().copied().sum();
        for (place, brought) in done.brought.iter().enumerate() {
            let row = FlowRow {
                task: planned.name.clone(),
                flow: format!("{}.{place}", planned.name),
                source: planned.sources[place].into(),
                receiver: planned.receiver.into(),
                packets: brought.get() / packet.get(),
                share: brought.get() as f64 / whole.get() as f64,
                start_s: planned.at.as_secs_f64(),
                finish_s: done.finish.as_secs_f64(),
                timeouts: 0,
                losses: 0,
                marks: 0,
            };
            row.push(&mut tables.flows);
        }
    }
    tables
}

fn judged(id: &str, mutation: Mutation) -> BTreeMap<String, Verdict> {
    let experiment = experiment(id);
    let mut tables = Tables::gathering();
    for job in experiment.jobs(Engine::Flow, Scale::Paper, Some(8)).unwrap() {
        if job.point.iter().all(|(_, label)| label == "obs") {
            job.gather(simulated(&job, mutation), &mut tables).unwrap();
        }
    }
    let verdicts = experiment.judge(Engine::Flow, Scale::Paper, &tables);
    for verdict in &verdicts {
        println!("{} {:?} {:?} {:?}", verdict.claim, verdict.verdict, verdict.measured, verdict.ci95);
    }
    verdicts.into_iter().map(|verdict| (verdict.claim.clone(), verdict)).collect()
}

#[test]
fn rates_alone_give_gains_near_the_published_ones() {
    let verdicts = judged("ppush/fig8", Mutation::None);
    // Gains of a plain model of rates on the same reading of the paper, 8 seeds: 1.62, 1.47, 1.45.
    for (claim, expected) in [("P-8a", 1.62), ("P-8b", 1.47), ("P-8c", 1.45)] {
        let measured = verdicts[claim].measured.unwrap();
        assert!((measured / expected - 1.0).abs() < 0.08, "{claim}: {measured}");
    }
    assert_eq!((verdicts["P-8a"].verdict, verdicts["P-8b"].verdict), (Outcome::Pass, Outcome::Pass));
    assert_eq!(verdicts["P-8d"].verdict, Outcome::Pending, "the leaf-spine was not run");
}

#[test]
fn theta_forced_to_one_in_the_model_turns_p_8c_to_miss() {
    let verdicts = judged("ppush/fig8", Mutation::ThetaIsOne);
    assert_eq!((verdicts["P-8c"].verdict, verdicts["P-8c"].measured), (Outcome::Miss, Some(1.0)));
    assert_eq!(verdicts["P-8b"].verdict, Outcome::Pass);
}

#[test]
fn no_pool_in_the_model_turns_p_8b_and_p_9_to_miss() {
    let verdicts = judged("ppush/fig8", Mutation::NoPool);
    assert_eq!((verdicts["P-8b"].verdict, verdicts["P-8b"].measured), (Outcome::Miss, Some(1.0)));
    let verdicts = judged("ppush/fig9", Mutation::NoPool);
    assert_eq!(verdicts["P-9/equal"].verdict, Outcome::Pass);
    for claim in ["P-9/pool-40", "P-9/pool-60", "P-9/both-60"] {
        assert_eq!(verdicts[claim].verdict, Outcome::Miss, "{claim}");
    }
}

#[test]
fn pooled_flows_divide_a_task_as_fig_9_has_it_in_kind() {
    let verdicts = judged("ppush/fig9", Mutation::None);
    let share = |claim: &str| verdicts[claim].measured.unwrap();
    assert!(share("P-9/pool-40") > 0.1 && share("P-9/both-60") > share("P-9/pool-60"));
}
