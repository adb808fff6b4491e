//! A run is a function of its file and its seed: again, and beside others on any number of threads, it gives the same
//! tables, bit by bit.

mod common;

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::shipped;
use headwater_experiment::experiment::{Engine, Experiment, Job, Scale};
use headwater_experiment::run::run_job;

/// Of the small jobs of every shipped experiment on the packet engine the first, the last and every eighth.
fn jobs() -> Vec<Job> {
    let mut jobs = Vec::new();
    for (id, text) in shipped() {
        let experiment = Experiment::parse(&id, &text).unwrap_or_else(|error| panic!("{error}"));
        if !experiment.engines.contains(&Engine::Packet) {
            continue;
        }
        let mut all = experiment.jobs(Engine::Packet, Scale::Small, None).unwrap();
        let last = all.pop();
        jobs.extend(all.into_iter().step_by(8).chain(last));
    }
    jobs
}

/// Every table with every bit: NaN equals itself here, and the text of a number names exactly one.
fn rendered(job: &Job) -> String {
    match run_job(job, &mut |_| {}) {
        Ok(tables) => format!("{tables:?}"),
        Err(error) => error.to_string(),
    }
}

/// The jobs' tables in the order of the jobs, from `threads` threads that each take the next job when they are free.
fn on_threads(threads: usize, jobs: &[Job]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(at) else { return done };
            done.push((at, rendered(job)));
        }
    };
    let mut all: Vec<(usize, String)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|w| w.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    all.sort();
    all.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn every_experiment_gives_the_same_tables_again_and_on_another_number_of_threads() {
    let jobs = jobs();
    let first = on_threads(2, &jobs);
    assert_eq!(first.len(), jobs.len());
    let filled = first.iter().filter(|text| text.len() > 1000).count();
    assert!(
        filled * 10 >= jobs.len() * 8,
        "only {filled} of {} jobs gave tables worth comparing",
        jobs.len()
    );
    // Again, beside others and in another order.
    for (job, (before, after)) in jobs.iter().zip(first.iter().zip(on_threads(3, &jobs))) {
        assert!(*before == after, "{:?} {} differs on 3 threads", job.point, job.key());
    }
}

#[test]
fn another_seed_gives_other_tables() {
    let experiment = common::experiment("ppush/fig8");
    let jobs = experiment.jobs(Engine::Packet, Scale::Small, Some(2)).unwrap();
    assert_ne!(rendered(&jobs[0]), rendered(&jobs[1]), "what is compared shows what happened");
}
