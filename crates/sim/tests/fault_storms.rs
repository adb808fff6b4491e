//! Random small networks on which links lose, hold back, double and break, hosts pause and restart: every object arrives
//! byte for byte, or it is said why it cannot; then all is quiet, and nothing is missing.
//!
//! `HEADWATER_STORMS` says how many (100; `make storms` runs 1000), `HEADWATER_STORM` which single one.

mod storm;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use storm::{Outcome, Storm, judge};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name} = {text}: {error}")))
}

/// One storm, and what is wrong with it.
fn weather(seed: u64) -> Result<Outcome, String> {
    let run = catch_unwind(AssertUnwindSafe(|| {
        let (records, facts) = Storm::new(seed).run();
        judge(&records, &facts).map_err(|what| format!("{what}\n{facts}"))
    }));
    run.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        Err(said.or(panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default())
    })
}

#[test]
fn every_object_arrives_or_it_is_said_why_not_and_then_all_is_quiet() {
    let seeds = match number("HEADWATER_STORM") {
        Some(seed) => seed..seed + 1,
        None => 0..number("HEADWATER_STORMS").unwrap_or(100),
    };
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let (mut sum, mut wrong) = (Outcome::default(), Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return (sum, wrong);
            }
            match weather(seed) {
                Ok(outcome) => sum = sum.plus(outcome),
                Err(what) => wrong.push((seed, what)),
            }
        }
    };
    let parts: Vec<_> = std::thread::scope(|scope| {
        let workers = [(); 2].map(|()| scope.spawn(work));
        workers.into_iter().map(|worker| worker.join().expect("storms catch their panics")).collect()
    });
    let sum = parts.iter().fold(Outcome::default(), |sum, (part, _)| sum.plus(*part));
    let mut wrong: Vec<&(u64, String)> = parts.iter().flat_map(|(_, wrong)| wrong).collect();
    wrong.sort();
    println!("{} storms, {} tasks: {sum:?}", seeds.end - seeds.start, sum.tasks());
    for (seed, what) in &wrong {
        println!(
            "storm {seed}: {what}\n  HEADWATER_STORM={seed} cargo test -p headwater-sim --test fault_storms -- --nocapture"
        );
    }
    assert!(wrong.is_empty(), "{} of {} storms went wrong", wrong.len(), seeds.end - seeds.start);
    let single = seeds.end - seeds.start < 50;
    assert!(single || sum.delivered * 10 >= sum.tasks() * 7, "most objects can be delivered: {sum:?}");
    assert!(single || sum.no_source + sum.no_controller + sum.refused > 0, "some cannot: {sum:?}");
}
