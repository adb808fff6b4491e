//! Datacast's micro benchmarks on the fluid model, from the file to the verdict; that verdicts can fail, and what is refused.

mod common;

use std::collections::BTreeMap;

use common::{experiment, shipped};
use headwater_experiment::claim::Outcome;
use headwater_experiment::experiment::{Engine, Experiment, Job, Scale};
use headwater_experiment::run::{RunError, run_job};
use headwater_experiment::table::Tables;
use headwater_units::Bytes;

/// The verdicts at small scale, each job changed first.
fn verdicts(id: &str, change: impl Fn(&mut Job)) -> BTreeMap<String, Outcome> {
    let experiment = experiment(id);
    let mut all = Tables::gathering();
    for mut job in experiment.jobs(Engine::Fluid, Scale::Small, None).unwrap() {
        change(&mut job);
        let tables = run_job(&job, &mut |_| ()).unwrap_or_else(|error| panic!("{id}: {error}"));
        job.gather(tables, &mut all).unwrap();
    }
    let verdicts = experiment.judge(Engine::Fluid, Scale::Small, &all);
    verdicts.into_iter().map(|it| (it.claim, it.verdict)).collect()
}

#[test]
fn the_micro_benchmarks_come_out_as_published() {
    for id in ["datacast/fig7a", "datacast/fig7b", "datacast/fig7c"] {
        let verdicts = verdicts(id, |_| ());
        assert!(
            verdicts.values().all(|it| [Outcome::Pass, Outcome::Report].contains(it)),
            "{id}: {verdicts:?}"
        );
        assert!(verdicts.values().any(|it| *it == Outcome::Pass), "{id}");
    }
}

#[test]
fn without_caches_the_slowest_receiver_waits_and_the_claim_is_missed() {
    let verdicts = verdicts("datacast/fig7a", |job| job.scenario.transport.datacast.cache = Bytes::ZERO);
    assert_eq!(verdicts["D-6/7a/above-16"], Outcome::Miss);
    assert_eq!(verdicts["D-6/7a/formula-16"], Outcome::Pass, "a formula knows no run");
}

#[test]
fn what_the_equations_do_not_know_is_refused() {
    let (_, text) = shipped().into_iter().find(|(id, _)| id == "datacast/fig7c").unwrap();
    let error = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        let experiment =
            Experiment::parse("x/fluid", &text.replace(from, to)).unwrap_or_else(|e| panic!("{e}"));
        run_job(experiment.jobs(Engine::Fluid, Scale::Paper, None).unwrap().last().unwrap(), &mut |_| ())
            .unwrap_err()
    };
    for (from, to, why) in [
        (", further = [2]", "", "further"),
        ("sources = [0], receiver = 1, further = [2]", "sources = [0, 2], receiver = 1", "one source"),
        ("\nuntil = \"4 s\"", "", "until"),
        ("until = \"4 s\"", "until = \"4 s\"\ncarry_bytes = true", "true bytes"),
        (
            "until = \"4 s\"",
            "until = \"4 s\"\nsample = { every = \"1 ms\", what = [\"window\"] }",
            "goodput and rate",
        ),
    ] {
        let error = error(from, to).to_string();
        assert!(error.contains(why), "{error}");
    }
    let credit = error("credit = 32", "credit = 1");
    assert!(matches!(credit, RunError::Datacast(_)), "{credit}");
}

#[test]
fn samples_are_those_that_are_asked_for() {
    let mut job = experiment("datacast/fig7c").jobs(Engine::Fluid, Scale::Small, None).unwrap().remove(0);
    let plain = run_job(&job, &mut |_| ()).unwrap();
    assert_eq!(plain.samples.rows(), 0);
    let sample = toml::from_str("every = '10 ms'\nwhat = ['goodput', 'rate']").unwrap();
    job.scenario.sample = Some(sample);
    let tables = run_job(&job, &mut |_| ()).unwrap();
    let rows = tables.samples.rows();
    assert!((398..=402).contains(&rows), "two quantities, 2 s: {rows}");
    assert_eq!(tables.samples, run_job(&job, &mut |_| ()).unwrap().samples);
}
