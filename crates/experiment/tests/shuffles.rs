//! Statements of Courier's figure 1 and equation 1 hold at small scale, and fail where what they are about is taken
//! away.

mod common;

use common::experiment;
use headwater_experiment::claim::{Outcome, Verdict};
use headwater_experiment::experiment::{Engine, Experiment, Scale};
use headwater_experiment::run::run_job;
use headwater_experiment::scenario::Scenario;
use headwater_experiment::table::Tables;
use headwater_experiment::workload::{ShuffleText, Workload};

/// The verdicts at small scale if each scenario is changed so.
fn verdicts(id: &str, change: impl Fn(&mut Scenario)) -> Vec<Verdict> {
    let experiment: Experiment = experiment(id);
    let mut tables = Tables::gathering();
    for mut job in experiment.jobs(Engine::Packet, Scale::Small, None).unwrap() {
        change(&mut job.scenario);
        job.gather(run_job(&job, &mut |_| ()).unwrap(), &mut tables).unwrap();
    }
    experiment.judge(Engine::Packet, Scale::Small, &tables)
}

fn outcome(verdicts: &[Verdict], claim: &str) -> Outcome {
    verdicts.iter().find(|verdict| verdict.claim == claim).expect("it is claimed").verdict
}

fn text(scenario: &mut Scenario) -> &mut ShuffleText {
    let Workload::Shuffle(text) = &mut scenario.workload else { panic!("it is a shuffle") };
    text
}

#[test]
fn flows_of_a_pair_become_one_and_only_because_they_are_merged() {
    let claims = ["C-conc", "C-conc/without", "C-conc/done"];
    let paper = verdicts("courier/fig1", |_| ());
    assert!(claims.iter().all(|claim| outcome(&paper, claim) == Outcome::Pass), "{paper:?}");
    // Four lanes for each pair are four flows for each pair.
    let split = |scenario: &mut Scenario| {
        text(scenario).max_per_pair = 4;
        text(scenario).min_size = headwater_units::Bytes::kib(64);
    };
    assert_eq!(outcome(&verdicts("courier/fig1", split), "C-conc"), Outcome::Miss);
    // Hadoop's combiner makes fewer flows of Fig. 1a, its slots and fetches fewer at once.
    let combined = verdicts("courier/fig1", |scenario| text(scenario).combiner = true);
    assert_eq!(outcome(&combined, "C-conc/without"), Outcome::Miss);
    let slots = verdicts("courier/fig1", |scenario| text(scenario).slots = 1);
    assert_eq!(outcome(&slots, "C-conc/without"), Outcome::Miss);
}

#[test]
fn the_longest_queue_of_dctcp_grows_by_a_packet_with_each_flow() {
    let verdicts = verdicts("courier/eq1", |_| ());
    assert!(verdicts.iter().all(|verdict| verdict.verdict == Outcome::Pass), "{verdicts:?}");
}
