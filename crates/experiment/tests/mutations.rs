//! What makes a claim pass is in the machines: with it taken out, real runs miss the claim.

mod common;

use std::collections::BTreeMap;

use common::experiment;
use headwater_experiment::claim::{Outcome, Verdict};
use headwater_experiment::experiment::{Engine, Job, Scale};
use headwater_experiment::run::run_job;
use headwater_experiment::scenario::{LossResponse, Scheme};
use headwater_experiment::table::Tables;
use headwater_units::Duration;

/// Runs the small jobs that `is_meant`, changed by `mutate`, and judges them as `scale` demands.
fn judged(
    id: &str,
    scale: Scale,
    is_meant: impl Fn(&Job) -> bool,
    mutate: impl Fn(&mut Job),
) -> BTreeMap<String, Verdict> {
    let experiment = experiment(id);
    let mut tables = Tables::gathering();
    for mut job in experiment.jobs(Engine::Packet, Scale::Small, None).unwrap() {
        if is_meant(&job) {
            mutate(&mut job);
            job.gather(run_job(&job, &mut |_| {}).unwrap(), &mut tables).unwrap();
        }
    }
    let verdicts = experiment.judge(Engine::Packet, scale, &tables);
    verdicts.into_iter().map(|verdict| (verdict.claim.clone(), verdict)).collect()
}

#[test]
fn theta_forced_to_one_makes_the_gain_of_p_8c_one() {
    let is_meant = |job: &Job| {
        job.point.iter().all(|(_, label)| label == "obs")
            && ["ppush(0,0)", "ppush(0,1)"].contains(&&*job.scheme)
    };
    let weighed = judged("ppush/fig8", Scale::Paper, is_meant, |_| {});
    assert!(weighed["P-8c"].measured.is_some_and(|gain| gain != 1.0), "{:?}", weighed["P-8c"]);
    let forced = judged("ppush/fig8", Scale::Paper, is_meant, |job| {
        job.scenario.scheme = Scheme::Ppush { pool: false, weigh: false };
    });
    assert_eq!((forced["P-8c"].measured, forced["P-8c"].verdict), (Some(1.0), Outcome::Miss));
}

#[test]
fn a_window_that_loss_cuts_turns_p_4b_to_miss() {
    let is_meant = |job: &Job| job.scheme == "ppush(0,0)";
    // Long enough that the start, when timeouts rule, does not decide.
    let longer = Some(Duration::from_millis(300));
    let blind = judged("ppush/fig4b", Scale::Small, is_meant, |job| job.scenario.until = longer);
    assert_eq!(blind["P-4b"].verdict, Outcome::Pass, "{:?}", blind["P-4b"]);
    let cut = judged("ppush/fig4b", Scale::Small, is_meant, |job| {
        job.scenario.until = longer;
        job.scenario.transport.loss_response = LossResponse::Guarded;
    });
    assert_eq!(cut["P-4b"].verdict, Outcome::Miss, "{:?}", cut["P-4b"]);
    assert_eq!(cut["P-4b/below"].verdict, Outcome::Miss, "{:?}", cut["P-4b/below"]);
}
