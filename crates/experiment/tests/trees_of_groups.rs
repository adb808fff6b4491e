//! Disjoint trees in broken networks, from the file to the verdict, and that the verdicts can fail.

mod common;

use std::collections::BTreeMap;

use common::experiment;
use headwater_experiment::claim::Outcome;
use headwater_experiment::experiment::{Engine, Experiment, Job, Scale};
use headwater_experiment::run::{RunError, run_job};
use headwater_experiment::table::{Column, Tables};

fn ran(job: &Job) -> Tables {
    run_job(job, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"))
}

fn measure(tables: &Tables, name: &str) -> f64 {
    let (names, values) = (tables.measures.column("name").unwrap(), tables.measures.column("value").unwrap());
    let row = (0..names.len()).find(|row| names.is(*row, name)).unwrap_or_else(|| panic!("no {name}"));
    values.number(row).unwrap()
}

/// The verdicts at small scale, each run's measures changed first.
fn verdicts(mut change: impl FnMut(&str, f64) -> f64) -> BTreeMap<String, Outcome> {
    let fig5 = experiment("datacast/fig5");
    let mut all = Tables::gathering();
    for job in fig5.jobs(Engine::Trees, Scale::Small, None).unwrap() {
        let mut tables = ran(&job);
        let names = tables.measures.column("name").unwrap().clone();
        let values = tables.measures.columns.iter_mut().find(|(name, _)| name == "value").unwrap();
        let Column::F64(values) = &mut values.1 else { panic!("values are numbers") };
        values.iter_mut().enumerate().for_each(|(row, value)| *value = change(&names.text(row), *value));
        job.gather(tables, &mut all).unwrap();
    }
    fig5.judge(Engine::Trees, Scale::Small, &all).into_iter().map(|it| (it.claim, it.verdict)).collect()
}

#[test]
fn trees_come_near_the_bound_and_never_to_nothing() {
    let verdicts = verdicts(|_, value| value);
    for claim in ["D-5b", "D-5b/one-left", "D-5b/disjoint", "D-5c/small"] {
        assert_eq!(verdicts[claim], Outcome::Pass, "{claim}");
    }
    assert!(verdicts.values().all(|it| [Outcome::Pass, Outcome::Report].contains(it)), "{verdicts:?}");
}

#[test]
fn fewer_trees_shared_links_and_groups_without_a_tree_are_misses() {
    let fewer = verdicts(|name, value| if name == "shortfall" { value + 0.05 } else { value });
    assert_eq!(fewer["D-5b"], Outcome::Miss);
    let shared = verdicts(|name, value| if name == "link_stress" { 2.0 } else { value });
    assert_eq!(shared["D-5b/disjoint"], Outcome::Miss);
    let mut first = true;
    let without = verdicts(
        |name, value| {
            if name == "without_tree" && std::mem::take(&mut first) { 1.0 } else { value }
        },
    );
    assert_eq!(without["D-5b/one-left"], Outcome::Miss);
    let deep = verdicts(|name, value| if name == "max_depth" { value * 1.5 } else { value });
    assert_eq!(deep["D-5c/small"], Outcome::Miss);
}

/// A link that fails at one rate fails at every higher one, and groups grow: so trees become fewer, run by run.
#[test]
fn more_failures_and_more_receivers_leave_a_lower_bound() {
    let fig5 = experiment("datacast/fig5");
    let mut bounds: BTreeMap<(String, String, String, u64), f64> = BTreeMap::new();
    for job in fig5.jobs(Engine::Trees, Scale::Small, None).unwrap() {
        let label = |axis: &str| job.point.iter().find(|(name, _)| name == axis).unwrap().1.clone();
        let place = (label("network"), label("lfr"), label("members"), job.seed);
        let tables = ran(&job);
        assert_eq!(tables, ran(&job), "the same every time");
        let trees = measure(&tables, "trees");
        assert!(trees >= 1.0 && trees <= measure(&tables, "bound"), "{place:?}");
        assert!(measure(&tables, "depth") <= measure(&tables, "max_depth"));
        bounds.insert(place, measure(&tables, "bound"));
    }
    for ((network, lfr, members, seed), bound) in &bounds {
        if network.starts_with("Fattree") {
            assert_eq!(*bound, 1.0);
            continue;
        }
        // Where a host is cut off another joins in its place: only networks whose hosts have many cables are compared.
        let before = &bounds[&(network.clone(), "0".to_owned(), members.clone(), *seed)];
        assert!(bound <= before, "{network}, {lfr}, {members}, {seed}");
    }
}

#[test]
fn only_groups_have_trees_and_only_trees_live_in_broken_networks() {
    let of = |engine: &str, scheme: &str, rest: &str| {
        let text = format!(
            "title = 't'\nsource = 's'\nengines = ['{engine}']\nschemes = ['{scheme}']\n[scale.small]\nseeds = 1\n\
             [scenario]\nfabric = {{ kind = 'torus', n = 3, d = 2, rate = '1 Gbit/s', delay = '5 us' }}\n{rest}"
        );
        let jobs = Experiment::parse("x/trees", &text)?.jobs(engine_of(engine), Scale::Small, None)?;
        Ok::<_, headwater_experiment::experiment::ExperimentError>(run_job(&jobs[0], &mut |_| ()))
    };
    let group = "workload = { kind = 'group', members = 9, packets = 10 }";
    assert_eq!(measure(&of("trees", "datacast", group).unwrap().unwrap(), "trees"), 4.0);
    let broken = format!("link_failure_rate = 0.1\n{group}");
    assert!(of("trees", "datacast", &broken).unwrap().is_ok());
    for (engine, scheme, rest, why) in [
        ("packet", "ndp", broken.as_str(), "link_failure_rate"),
        ("flow", "ppush(1,1)", broken.as_str(), "link_failure_rate"),
        ("packet", "datacast", broken.as_str(), "link_failure_rate"),
        (
            "trees",
            "datacast",
            "workload = { kind = 'incast', senders = 2, receiver = 0, packets = 7 }",
            "group",
        ),
    ] {
        let error = of(engine, scheme, rest).unwrap().unwrap_err();
        assert!(matches!(error, RunError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let everything_fails = format!("link_failure_rate = 1.0\n{group}");
    let error = of("trees", "datacast", &everything_fails).unwrap().unwrap_err();
    assert!(error.to_string().contains("9 hosts, but there are 1"), "{error}");
    for (rest, why) in [
        ("workload = { kind = 'group', members = 10, packets = 10 }", "10 hosts"),
        ("workload = { kind = 'group', members = 1, packets = 10 }", "at least 2"),
        ("link_failure_rate = 1.5\nworkload = { kind = 'group', members = 3, packets = 10 }", "0 to 1"),
    ] {
        let error = of("trees", "datacast", rest).err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
    }
}

fn engine_of(name: &str) -> Engine {
    Engine::ALL.into_iter().find(|engine| engine.name() == name).unwrap()
}
