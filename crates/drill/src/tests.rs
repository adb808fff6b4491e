//! Drills on made-up engines, and the shipped ones in the simulator.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use headwater_experiment::experiment::Job;
use headwater_experiment::scenario::Machines;
use headwater_experiment::table::{MeasureRow, Tables, TaskRow};
use headwater_lab::{ModelError, RunContext, Shipped};

use super::*;

const DRILL: &str = r#"
title = "Something goes wrong"
source = "here"
about = ["Something."]
choices = ["None."]
engines = ["netns", "packet"]
schemes = ["ppush(1,1)"]

[scale.small]
seeds = 1

[scenario]
fabric = { kind = "dumbbell", left = 1, right = 1, rate = "20 Mbit/s", delay = "40 us" }
workload = { kind = "task-list", tasks = [{ name = "t", packets = 100, sources = [0], receiver = 1 }] }
until = "10 s"

[[claim]]
id = "d"
about = "of the ideal time"
source = "goal"
within = "at most 1.15"
metric = { kind = "ratio", of = { kind = "column", column = "tct_s" }, over = { kind = "constant", value = 2 } }

[[claim]]
id = "d/arrived"
about = "the object arrived, verified"
source = "goal"
within = "shape"
metric = { kind = "finished", schemes = ["ppush(1,1)"] }
"#;

/// A made-up engine.
struct Fake {
    /// Answer of each run, in their order: completion time, or why there is none; the first where there is no other.
    answers: Vec<Result<f64, ModelError>>,
    ran: AtomicUsize,
    engines: Mutex<Vec<Engine>>,
}

impl Models for Fake {
    fn run(&self, job: &Job, _: &RunContext, watch: &mut dyn FnMut(f64)) -> Result<Tables, ModelError> {
        let number = self.ran.fetch_add(1, Ordering::SeqCst);
        self.engines.lock().unwrap().push(job.engine());
        watch(0.5);
        let tct_s = self.answers.get(number).or(self.answers.first()).unwrap().clone()?;
        let mut tables = Tables::default();
        TaskRow {
            task: "t".into(),
            arrival_s: 0.0,
            finish_s: tct_s,
            tct_s,
            normalised: 1.0,
            packets: 100,
            receiver: 1,
            fanout: 1,
            timeouts: 0,
            ..TaskRow::default()
        }
        .push(&mut tables.tasks);
        MeasureRow { name: "invalid_tries".into(), value: 1.0 }.push(&mut tables.measures);
        Ok(tables)
    }

    fn code(&self, _: Engine) -> &str {
        "c0de"
    }
}

#[derive(Default)]
struct Heard {
    begun: Vec<(String, usize, usize)>,
    parts: usize,
    over: Vec<Outcome>,
}

impl DrillWatch for Heard {
    fn begun(&mut self, drill: &Drill, number: usize, of: usize) {
        self.begun.push((drill.name.clone(), number, of));
    }
    fn progress(&mut self, _: f64) {
        self.parts += 1;
    }
    fn over(&mut self, finding: &Finding) {
        self.over.push(finding.outcome);
    }
}

/// Three drills: `first`, `second` and `tenth`.
struct Sandbox {
    folder: tempfile::TempDir,
    catalogue: Catalogue,
}

impl Sandbox {
    fn new() -> Sandbox {
        let folder = tempfile::tempdir().unwrap();
        let files = ["drill/1-first", "drill/2-second", "drill/10-tenth", "mine/other"];
        for name in files {
            let path = folder.path().join(format!("experiments/{name}.toml"));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, DRILL).unwrap();
        }
        let catalogue = Catalogue::at(&folder.path().join("experiments")).unwrap();
        Sandbox { folder, catalogue }
    }

    fn options(&self) -> DrillOptions {
        DrillOptions {
            names: Vec::new(),
            engine: Engine::Netns,
            limit: Duration::from_secs(180),
            out: self.folder.path().join("out"),
            commit: None,
        }
    }

    fn run(&self, answers: Vec<Result<f64, ModelError>>) -> Vec<Finding> {
        let models = models(answers);
        let nothing = || Vec::new();
        run(&self.options(), &self.catalogue, &models, &nothing, &|| false, &mut Heard::default()).unwrap()
    }
}

fn models(answers: Vec<Result<f64, ModelError>>) -> Arc<dyn Models> {
    Arc::new(Fake { answers, ran: 0.into(), engines: Mutex::default() })
}

fn outcomes(findings: &[Finding]) -> Vec<Outcome> {
    findings.iter().map(|finding| finding.outcome).collect()
}

#[test]
fn a_drill_within_its_goal_passes_and_one_beyond_it_fails() {
    let sandbox = Sandbox::new();
    let findings = sandbox.run(vec![Ok(2.0), Ok(2.29), Ok(2.31)]);
    assert_eq!(outcomes(&findings), [Outcome::Passed, Outcome::Passed, Outcome::Failed]);
    let last = &findings[2];
    assert_eq!((last.drill.as_str(), last.experiment.as_str()), ("tenth", "drill/10-tenth"));
    assert_eq!((last.of.as_str(), last.goal.as_str()), ("of the ideal time", "at most 1.15"));
    assert!(last.measured.is_some_and(|measured| (measured - 1.155).abs() < 1e-9), "{last:?}");
    assert_eq!((last.reasons.len(), last.invalid_tries), (0, 1));
    assert!(last.folder.as_ref().is_some_and(|folder| folder.join("tasks.arrow").exists()), "{last:?}");
}

#[test]
fn an_object_that_never_arrives_fails_whatever_the_figure() {
    let finding = Sandbox::new().run(vec![Ok(f64::NAN)]).remove(0);
    assert_eq!((finding.outcome, finding.measured), (Outcome::Failed, None));
    let reasons = finding.reasons.join("; ");
    assert!(reasons.contains("unfinished tasks") && reasons.contains("0 of 1 tasks"), "{reasons}");
}

#[test]
fn what_the_machine_cannot_do_is_skipped_with_the_reason_and_the_others_go_on() {
    let busy = ModelError::Skipped("invalid: machine too busy (p99 900 us)".into());
    let unknown = ModelError::NotModelled("the netns engine has no trains".into());
    let findings = Sandbox::new().run(vec![Err(busy), Err(unknown), Ok(2.0)]);
    assert_eq!(outcomes(&findings), [Outcome::Skipped, Outcome::Skipped, Outcome::Passed]);
    assert_eq!(findings[0].reasons, ["invalid: machine too busy (p99 900 us)"]);
    assert!(findings[1].reasons[0].contains("no trains"), "{findings:?}");
    assert_eq!(findings[0].measured, None);
}

#[test]
fn a_run_that_goes_wrong_fails_with_the_reason() {
    let findings =
        Sandbox::new().run(vec![Err(ModelError::Failed("the receiver exited with 5".into())), Ok(2.0)]);
    assert_eq!(findings[0].outcome, Outcome::Failed);
    assert!(findings[0].reasons[0].contains("exited with 5"), "{findings:?}");
    assert_eq!(findings[1].outcome, Outcome::Passed);
}

#[test]
fn a_drill_that_leaves_something_behind_fails_and_only_that_one() {
    let sandbox = Sandbox::new();
    let calls = AtomicUsize::new(0);
    // Something of an earlier run is there from the start; after the second drill there is more.
    let left = || {
        let mut names = vec!["hw-1-0-mid".to_owned()];
        if calls.fetch_add(1, Ordering::SeqCst) >= 3 {
            names.push("hw-2-0-mid".to_owned());
        }
        names
    };
    let models = models(vec![Ok(2.0)]);
    let findings =
        run(&sandbox.options(), &sandbox.catalogue, &models, &left, &|| false, &mut Heard::default())
            .unwrap();
    assert_eq!(outcomes(&findings), [Outcome::Passed, Outcome::Failed, Outcome::Passed]);
    assert_eq!(findings[1].reasons, ["left behind on this machine: hw-2-0-mid"]);
}

#[test]
fn drills_are_told_of_in_their_order_and_run_on_the_engine_that_was_asked_for() {
    let sandbox = Sandbox::new();
    let fake = Arc::new(Fake { answers: vec![Ok(2.0)], ran: 0.into(), engines: Mutex::default() });
    let models: Arc<dyn Models> = fake.clone();
    let mut heard = Heard::default();
    run(&sandbox.options(), &sandbox.catalogue, &models, &|| Vec::new(), &|| false, &mut heard).unwrap();
    let at = |name: &str, number| (name.to_owned(), number, 3);
    assert_eq!(heard.begun, [at("first", 1), at("second", 2), at("tenth", 3)]);
    assert_eq!((heard.over.len(), heard.parts > 0), (3, true));
    assert_eq!(*fake.engines.lock().unwrap(), [Engine::Netns; 3]);
    // Of yesterday's run nothing is taken.
    run(&sandbox.options(), &sandbox.catalogue, &models, &|| Vec::new(), &|| false, &mut heard).unwrap();
    assert_eq!(fake.ran.load(Ordering::SeqCst), 6);
}

#[test]
fn drills_are_chosen_by_name_or_id_and_a_misspelt_one_names_all() {
    let sandbox = Sandbox::new();
    let named = |names: &[&str]| {
        let options =
            DrillOptions { names: names.iter().map(|&name| name.to_owned()).collect(), ..sandbox.options() };
        let models = models(vec![Ok(2.0)]);
        run(&options, &sandbox.catalogue, &models, &|| Vec::new(), &|| false, &mut Heard::default())
    };
    let chosen: Vec<String> = named(&["tenth", "drill/1-first", "first"])
        .unwrap()
        .into_iter()
        .map(|finding| finding.drill)
        .collect();
    assert_eq!(chosen, ["first", "tenth"]);
    let error = named(&["third"]).unwrap_err().to_string();
    assert!(error.contains("'third'") && error.contains("first, second, tenth"), "{error}");
    assert!(!error.contains("other"), "an experiment is no drill: {error}");
}

#[test]
fn no_drill_begins_that_might_be_late() {
    let sandbox = Sandbox::new();
    let options = DrillOptions { limit: Duration::from_secs(9), ..sandbox.options() };
    let models = models(vec![Ok(2.0)]);
    let findings =
        run(&options, &sandbox.catalogue, &models, &|| Vec::new(), &|| false, &mut Heard::default()).unwrap();
    assert_eq!(outcomes(&findings), [Outcome::Skipped; 3]);
    assert!(findings[0].reasons[0].contains("limit"), "{findings:?}");
}

#[test]
fn a_stop_ends_the_drills_where_they_are() {
    let sandbox = Sandbox::new();
    let fake = Arc::new(Fake { answers: vec![Ok(2.0)], ran: 0.into(), engines: Mutex::default() });
    let models: Arc<dyn Models> = fake.clone();
    let enough = || fake.ran.load(Ordering::SeqCst) > 0;
    let mut heard = Heard::default();
    let stopped = run(&sandbox.options(), &sandbox.catalogue, &models, &|| Vec::new(), &enough, &mut heard)
        .unwrap_err();
    let DrillError::Stopped { done, all } = stopped else { panic!("{stopped}") };
    // Whether the first was over when the stop was seen is chance.
    assert!(done <= 1 && all == 3 && heard.over.len() == done, "{done} of {all}");
}

#[test]
fn every_shipped_drill_says_what_it_does_and_meets_its_goal_in_the_simulator() {
    let sandbox = Sandbox::new();
    let catalogue = Catalogue::shipped();
    let listed = drills(&catalogue).unwrap();
    assert!(listed.len() >= 10, "{} drills", listed.len());
    let names: BTreeMap<&str, &Drill> = listed.iter().map(|drill| (drill.name.as_str(), drill)).collect();
    assert_eq!(names.len(), listed.len(), "names differ");
    for experiment in catalogue.drills() {
        let experiment = experiment.unwrap();
        assert_eq!(experiment.engines.first(), Some(&Engine::Netns), "{}", experiment.id);
        for job in experiment.jobs(Engine::Netns, Scale::Small, None).unwrap() {
            assert_eq!(job.scenario.transport.machines, Machines::Product, "{}", experiment.id);
        }
        assert!(experiment.claims.len() > 1 && !experiment.about.is_empty(), "{}", experiment.id);
        let arrived = experiment.claims.iter().any(|claim| claim.id.ends_with("/arrived"));
        assert!(arrived, "{}: nobody asks whether the object arrived", experiment.id);
    }
    let simulated =
        catalogue.drills().into_iter().flatten().filter(|it| it.engines.contains(&Engine::Packet));
    let options = DrillOptions {
        names: simulated.map(|experiment| experiment.id).collect(),
        engine: Engine::Packet,
        limit: Duration::from_secs(3600),
        ..sandbox.options()
    };
    let models: Arc<dyn Models> = Arc::new(Shipped);
    let findings =
        run(&options, &catalogue, &models, &|| Vec::new(), &|| false, &mut Heard::default()).unwrap();
    assert!(findings.len() >= 10);
    for finding in &findings {
        assert_eq!(finding.outcome, Outcome::Passed, "{finding:?}");
        // Much faster than the ideal, and the ideal in the file is wrong.
        assert!(finding.measured.is_some_and(|measured| measured > 0.99), "{finding:?}");
    }
}
