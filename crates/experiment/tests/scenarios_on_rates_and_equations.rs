//! Shipped experiments on the rate model and the fluid model, from the file to the verdict, and what those two refuse.

mod common;

use common::{experiment, shipped};
use headwater_experiment::claim::{Outcome, Verdict};
use headwater_experiment::experiment::{Engine, Experiment, Job, Scale};
use headwater_experiment::run::{RunError, run_job};
use headwater_experiment::table::{Column, Tables};

fn tables(experiment: &Experiment, engine: Engine) -> Tables {
    let mut tables = Tables::gathering();
    for job in experiment.jobs(engine, Scale::Small, None).unwrap() {
        let of_job = run_job(&job, &mut |_| ()).unwrap_or_else(|error| panic!("{}: {error}", experiment.id));
        job.gather(of_job, &mut tables).unwrap();
    }
    tables
}

fn verdicts(experiment: &Experiment, engine: Engine) -> Vec<Verdict> {
    experiment.judge(engine, Scale::Small, &tables(experiment, engine))
}

#[test]
fn every_experiment_that_names_the_rate_or_the_fluid_model_runs_on_it_and_all_its_claims_are_judged() {
    let mut judged = 0;
    for (id, text) in shipped() {
        let experiment = Experiment::parse(&id, &text).unwrap();
        for engine in [Engine::Flow, Engine::Fluid].into_iter().filter(|e| experiment.engines.contains(e)) {
            // What an experiment leaves out at this size is none of this test's business.
            let is_left_out = |verdict: &Verdict| verdict.note.contains("is not part of this scale");
            for verdict in verdicts(&experiment, engine).into_iter().filter(|it| !is_left_out(it)) {
                assert_ne!(verdict.verdict, Outcome::Pending, "{} {}", verdict.claim, verdict.note);
                assert!(verdict.measured.is_some_and(f64::is_finite), "{} {}", verdict.claim, verdict.note);
                judged += 1;
            }
        }
    }
    assert!(judged >= 30, "{judged} claims");
}

/// The paper's own numeric model: Fig. 2 by Eq. 3-8, Fig. 3 with a second link.
#[test]
fn the_fluid_model_passes_the_claims_on_figures_2_and_3() {
    let mut verdicts = verdicts(&experiment("ppush/fig2"), Engine::Fluid);
    verdicts.extend(self::verdicts(&experiment("ppush/fig3"), Engine::Fluid));
    for claim in ["P-2", "P-2q", "P-2w", "P-2a1", "P-2a2", "P-3", "P-3/b-c", "P-3/alone"] {
        let verdict = verdicts.iter().find(|verdict| verdict.claim == claim).unwrap();
        assert_eq!(verdict.verdict, Outcome::Pass, "{claim}: {:?}", verdict.measured);
    }
    let alpha = |claim: &str| verdicts.iter().find(|v| v.claim == claim).unwrap().measured.unwrap();
    assert!((alpha("P-2a1") - 0.262).abs() < 0.001 && (alpha("P-2a2") - 0.573).abs() < 0.001);
}

#[test]
fn fluid_samples_are_of_running_flows_and_watched_links_at_the_interval_asked_for() {
    let job = job_of("ppush/fig2", Engine::Fluid, "", "");
    let samples = run_job(&job, &mut |_| ()).unwrap().samples;
    let Some(Column::F64(times)) = samples.column("t_s") else { panic!("times") };
    let column = |name: &str| samples.column(name).unwrap();
    let of = |entity: &str, quantity: &str| -> Vec<f64> {
        let rows = (0..samples.rows())
            .filter(|&row| column("entity").is(row, entity) && column("quantity").is(row, quantity));
        rows.map(|row| times[row]).collect()
    };
    for quantity in ["window", "rtt", "mark_fraction", "goodput"] {
        let (f1, f2) = (of("f1", quantity), of("f2", quantity));
        assert_eq!((f1.len(), f2.len()), (800, 400), "{quantity}: 8 s and 4 s of 10 ms");
        assert!((f1[0] - 0.01).abs() < 1e-9 && (f2[0] - 2.01).abs() < 1e-9 && (f2[399] - 6.0).abs() < 1e-9);
    }
    assert_eq!(of("left-right", "queue").len(), 800);
}

/// The first job of a shipped experiment after a change of its text.
fn job_of(id: &str, engine: Engine, from: &str, to: &str) -> Job {
    let (_, text) = shipped().into_iter().find(|(found, _)| found == id).unwrap();
    assert!(text.contains(from), "nothing to replace: {from}");
    let text = text.replacen(from, to, 1);
    let experiment = Experiment::parse(id, &text).unwrap_or_else(|error| panic!("{error}"));
    experiment.jobs(engine, Scale::Small, Some(1)).unwrap().remove(0)
}

#[test]
fn what_the_models_do_not_know_is_refused_with_a_sentence() {
    let port = "port = { queue = \"100 packets\"";
    let fig6 = [
        ("schemes = [\"ppush(1,1)\"]", "schemes = [\"dctcp\"]", "dctcp"),
        (port, "port = { when_full = \"trim\", queue = \"100 packets\"", "trimmed"),
        (port, "routing = \"spray\"\nport = { queue = \"100 packets\"", "spraying"),
        (port, "carry_bytes = true\nport = { queue = \"100 packets\"", "true bytes"),
        (
            port,
            "sample = { every = \"1 ms\", what = [\"queue\"] }\nport = { queue = \"100 packets\"",
            "queue",
        ),
        (
            port,
            "faults = [{ on = \"host 0\", what = { kind = \"host-pause\" } }]\nport = { queue = \"100 packets\"",
            "faults",
        ),
    ];
    let fig2 = [
        ("schemes = [\"ppush(0,0)\"]", "schemes = [\"reno\"]", "reno"),
        ("stop = \"8 s\", theta = 1.0", "theta = 1.0, packets = 500", "'f1'"),
        (", theta = 4.0", "", "1 of 2"),
        ("what = [\"window\"", "what = [\"rate\", \"window\"", "rate"),
        (port, "transport = { initial_window = 10.0 }\nport = { queue = \"100 packets\"", "10"),
        ("delay = \"10 us\" }", "delay = \"10 us\" }\ncarry_bytes = true", "true bytes"),
    ];
    let cases = fig6.map(|case| ("ppush/fig6", Engine::Flow, case));
    for (id, engine, (from, to, word)) in
        cases.into_iter().chain(fig2.map(|case| ("ppush/fig2", Engine::Fluid, case)))
    {
        match run_job(&job_of(id, engine, from, to), &mut |_| ()) {
            Err(error @ RunError::Unsupported { .. }) => {
                let text = error.to_string();
                assert!(text.contains(word) && text.contains(engine.name()), "{to}: {text}");
            }
            other => panic!("{to}: {other:?}"),
        }
    }
}

#[test]
fn flows_of_different_delays_are_too_much_for_the_fluid_model_unless_queues_dwarf_the_difference() {
    let far = job_of("ppush/fig3", Engine::Fluid, "delays = [\"10 us\"", "delays = [\"10 ms\"");
    let error = run_job(&far, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("one propagation delay"), "{error}");
}

/// Two flows from one leaf to another over two spines, each as fast as a host: on one spine they take twice as long.
#[test]
fn a_seed_draws_one_way_for_each_flow_whatever_the_scheme() {
    let text = r#"
        title = "t"
        source = "s"
        engines = ["flow"]
        schemes = ["ppush(0,0)", "ppush(1,0)"]
        [scale.small]
        seeds = 20
        [scenario]
        fabric = { kind = "leaf-spine", leaves = 2, hosts_per_leaf = 2, spines = 2, rate = "1000 pps", fabric_rate = "1000 pps", delay = "1 us" }
        [scenario.workload]
        kind = "task-list"
        tasks = [
            { name = "a", packets = 1000, sources = [0], receiver = 2 },
            { name = "b", packets = 1000, sources = [1], receiver = 3 },
        ]
        [[claim]]
        id = "X-1"
        about = "time"
        source = "here"
        within = "report"
        on = { scheme = "ppush(0,0)" }
        metric = { kind = "column", column = "tct_s" }
    "#;
    let jobs = Experiment::parse("x/ways", text).unwrap().jobs(Engine::Flow, Scale::Small, None).unwrap();
    let times = |scheme: &str| -> Vec<f64> {
        let jobs = jobs.iter().filter(|job| job.scheme == scheme);
        let tasks = jobs.map(|job| run_job(job, &mut |_| ()).unwrap().tasks);
        tasks.map(|tasks| tasks.column("tct_s").unwrap().number(0).unwrap().round()).collect()
    };
    let drawn = times("ppush(0,0)");
    assert_eq!(drawn, times("ppush(1,0)"));
    let together = drawn.iter().filter(|seconds| **seconds == 2.0).count();
    let apart = drawn.iter().filter(|seconds| **seconds == 1.0).count();
    assert!(together + apart == 20 && (4..=16).contains(&together), "{together} of 20 on one spine");
}
