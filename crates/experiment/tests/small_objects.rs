//! Small objects begin at the rate that their lines are stated to carry: the goals of `scdp/small`, at small scale.

mod common;

use common::experiment;
use headwater_experiment::claim::Outcome;
use headwater_experiment::experiment::{Engine, Scale};
use headwater_experiment::run::run_job;
use headwater_experiment::table::Tables;

#[test]
fn an_object_of_100_kb_takes_two_round_trips_at_1_gbit_and_hardly_longer_than_its_link_below() {
    let small = experiment("scdp/small");
    let mut all = Tables::gathering();
    for job in small.jobs(Engine::Packet, Scale::Small, None).unwrap() {
        job.gather(run_job(&job, &mut |_| {}).unwrap(), &mut all).unwrap();
    }
    let verdicts = small.judge(Engine::Packet, Scale::Small, &all);
    let (goals, others): (Vec<_>, Vec<_>) =
        verdicts.into_iter().partition(|verdict| verdict.verdict != Outcome::Report);
    assert_eq!((goals.len(), others.len()), (8, 8));
    for verdict in goals {
        assert_eq!(
            verdict.verdict,
            Outcome::Pass,
            "{} {:?}: {}",
            verdict.claim,
            verdict.measured,
            verdict.note
        );
    }
}
