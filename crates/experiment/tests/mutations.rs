//! What makes a claim pass is in the machines: with it taken out, real runs miss the claim.

mod common;

use std::collections::BTreeMap;

use common::experiment;
use headwater_experiment::claim::{Outcome, Verdict};
use headwater_experiment::experiment::{Engine, Job, Scale};
use headwater_experiment::run::run_job;
use headwater_experiment::scenario::{LossResponse, Scenario, Scheme};
use headwater_experiment::table::Tables;
use headwater_units::Duration;

/// Runs the small jobs that `is_meant`, changed by `mutate`, and judges them as `scale` demands.
fn judged(
    id: &str,
    scale: Scale,
    is_meant: impl Fn(&Job) -> bool,
    mutate: impl Fn(&mut Job),
) -> BTreeMap<String, Verdict> {
    judged_of(id, (Scale::Small, scale), is_meant, mutate)
}

/// The same with the jobs of the first scale, judged as the second demands.
fn judged_of(
    id: &str,
    (of, scale): (Scale, Scale),
    is_meant: impl Fn(&Job) -> bool,
    mutate: impl Fn(&mut Job),
) -> BTreeMap<String, Verdict> {
    let experiment = experiment(id);
    let mut tables = Tables::gathering();
    for mut job in experiment.jobs(Engine::Packet, of, None).unwrap() {
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

/// Sets a key of a job's scenario, as a file would.
fn set(job: &mut Job, key: &str, value: impl Into<toml::Value>) {
    let mut scenario = toml::Value::try_from(&job.scenario).unwrap();
    let (path, last) = key.rsplit_once('.').unwrap();
    let table = path.split('.').fold(&mut scenario, |table, part| table.get_mut(part).unwrap());
    table.as_table_mut().unwrap().insert(last.to_owned(), value.into());
    // Written for "any number", which a file says by leaving it out.
    if scenario["workload"].get("max_num").and_then(toml::Value::as_integer) == Some(0) {
        scenario["workload"].as_table_mut().unwrap().remove("max_num");
    }
    job.scenario = scenario.try_into::<Scenario>().unwrap();
}

fn at(job: &Job, axis: &str, label: &str) -> bool {
    job.point.iter().any(|(name, at)| name == axis && at == label)
}

#[test]
fn equal_shares_make_the_gain_of_p_8e_one() {
    let is_meant =
        |job: &Job| at(job, "network", "fat-tree") && ["ppush(0,0)", "ppush(1,1)"].contains(&&*job.scheme);
    let weighed = judged("ppush/fig8", Scale::Paper, is_meant, |_| {});
    assert!(weighed["P-8e"].measured.is_some_and(|gain| gain > 1.0), "{:?}", weighed["P-8e"]);
    let forced = judged("ppush/fig8", Scale::Paper, is_meant, |job| {
        job.scenario.scheme = Scheme::Ppush { pool: false, weigh: false };
    });
    assert_eq!((forced["P-8e"].measured, forced["P-8e"].verdict), (Some(1.0), Outcome::Miss));
}

#[test]
fn switches_that_drop_what_they_would_trim_turn_s_11a_to_miss() {
    let is_meant = |job: &Job| job.scheme == "scdp" && at(job, "senders", "40");
    let trimmed = judged("scdp/fig11", Scale::Small, is_meant, |_| {});
    assert_eq!(trimmed["S-11a/timeouts-small"].verdict, Outcome::Pass, "{trimmed:?}");
    let dropped = judged("scdp/fig11", Scale::Small, is_meant, |job| set(job, "port.when_full", "drop"));
    let timeouts = &dropped["S-11a/timeouts-small"];
    assert!(
        timeouts.measured.is_some_and(|it| it > 0.0) && timeouts.verdict == Outcome::Miss,
        "{timeouts:?}"
    );
}

#[test]
fn ports_that_never_fill_turn_s_12b_to_miss() {
    let is_meant = |job: &Job| job.scheme == "scdp" && at(job, "window", "20");
    let queues = judged("scdp/fig12-trims", Scale::Paper, is_meant, |_| {});
    assert!(queues["S-12b/20"].measured.is_some_and(|trimmed| trimmed > 1.0), "{:?}", queues["S-12b/20"]);
    let endless = judged("scdp/fig12-trims", Scale::Paper, is_meant, |job| {
        set(job, "port.queue", "unlimited");
        let port = &mut job.scenario.port;
        port.classes.iter_mut().for_each(|class| class.queue = port.queue);
    });
    let trims = &endless["S-12b/20"];
    assert_eq!((trims.measured, trims.verdict), (Some(0.0), Outcome::Miss), "{trims:?}");
}

#[test]
fn srsf_that_shares_fairly_turns_a_8c_to_miss() {
    let is_meant =
        |job: &Job| at(job, "switch", "simple") && (at(job, "policy", "srsf") || at(job, "policy", "fair"));
    let ranked = judged("pam/fig8", Scale::Small, is_meant, |_| {});
    assert_eq!(ranked["A-8c/gain"].verdict, Outcome::Pass, "{:?}", ranked["A-8c/gain"]);
    let shared = judged("pam/fig8", Scale::Small, is_meant, |job| set(job, "transport.pam.policy", "fair"));
    assert_eq!((shared["A-8c/gain"].measured, shared["A-8c/gain"].verdict), (Some(0.0), Outcome::Miss));
}

#[test]
fn an_alpha_that_stays_turns_a_3b_to_miss() {
    let is_meant =
        |job: &Job| at(job, "alpha", "by-load") && at(job, "switch", "simple") && at(job, "begin", "apart");
    let adapted = judged("pam/fig3", Scale::Small, is_meant, |_| {});
    assert_eq!(adapted["A-3b/packets"].verdict, Outcome::Pass, "{:?}", adapted["A-3b/packets"]);
    let fixed = judged("pam/fig3", Scale::Small, is_meant, |job| set(job, "port.allocator.adapts", false));
    assert_eq!(fixed["A-3b/packets"].verdict, Outcome::Miss, "{:?}", fixed["A-3b/packets"]);
}

#[test]
fn flows_that_are_not_merged_turn_c_4o_to_miss() {
    let is_meant = |job: &Job| job.scheme == "courier";
    let merged = judged("courier/fig4", Scale::Small, is_meant, |_| {});
    assert_eq!(merged["C-4o"].verdict, Outcome::Pass, "{:?}", merged["C-4o"]);
    let apart = judged("courier/fig4", Scale::Small, is_meant, |job| set(job, "workload.unmerged", true));
    assert!(apart["C-4o"].measured.is_some_and(|drops| drops > 0.0), "{:?}", apart["C-4o"]);
    assert_eq!(apart["C-4o"].verdict, Outcome::Miss, "{:?}", apart["C-4o"]);
}

/// Courier §II-B: Hadoop's few large flows are what one fetch at a time cannot fill a link with.
#[test]
fn outputs_that_are_not_combined_turn_c_2_to_miss() {
    let combined = judged("courier/fig2", Scale::Small, |_| true, |_| {});
    assert_eq!(combined["C-2"].verdict, Outcome::Pass, "{:?}", combined["C-2"]);
    let single = judged("courier/fig2", Scale::Small, |_| true, |job| set(job, "workload.combiner", false));
    assert_eq!(single["C-2"].verdict, Outcome::Miss, "{:?}", single["C-2"]);
}

/// Courier §II-B: with one fetch of a reducer nothing is lost, as long as a host runs only so many of them.
#[test]
fn reducers_without_bound_turn_c_2_no_loss_to_miss() {
    let is_meant = |job: &Job| at(job, "fetches", "1");
    // So many jobs that the bound matters, each so small that all take seconds.
    let more = |job: &mut Job| {
        set(job, "workload.jobs.first", 300);
        set(job, "workload.shrink", 1024.0);
    };
    let bound = judged("courier/fig2", Scale::Small, is_meant, more);
    assert_eq!(bound["C-2/no-loss"].verdict, Outcome::Pass, "{:?}", bound["C-2/no-loss"]);
    let unbound = judged("courier/fig2", Scale::Small, is_meant, |job| {
        more(job);
        set(job, "workload.slots", 0);
    });
    assert_eq!(unbound["C-2/no-loss"].verdict, Outcome::Miss, "{:?}", unbound["C-2/no-loss"]);
}

#[test]
fn ranks_turned_about_turn_c_8d_to_miss() {
    let is_meant = |job: &Job| ["sincronia+hadoop", "django-like"].contains(&&*job.scheme);
    // All loads, which the claim is the mean of, with the jobs of the small scale.
    let small = |job: &mut Job| {
        set(job, "workload.jobs.first", 40);
        set(job, "workload.shrink", 256.0);
    };
    let ranked = judged_of("courier/fig8", (Scale::Paper, Scale::Paper), is_meant, small);
    assert_eq!(ranked["C-8d/sincronia"].verdict, Outcome::Pass, "{:?}", ranked["C-8d/sincronia"]);
    let inverted = judged_of("courier/fig8", (Scale::Paper, Scale::Paper), is_meant, |job| {
        small(job);
        set(job, "workload.inverted", true);
    });
    assert_eq!(inverted["C-8d/sincronia"].verdict, Outcome::Miss, "{:?}", inverted["C-8d/sincronia"]);
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
