//! Storms: a few hosts with the product's nodes and controller on a small network, one object to be had, and whatever may go wrong
//! (`generate`). What must hold afterwards is in `oracle`.
//!
//! `HEADWATER_STORMS` says how many (`make storms`: 10000), `HEADWATER_STORM` which single one.

mod generate;
mod oracle;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use headwater_experiment::run::{CastSpec, run_cast};
use oracle::Tally;

/// Number of storms in an ordinary run of the tests.
const USUAL: u64 = 1000;
/// A storm's text says all of it; what is drawn in its run is always drawn from this.
const SEED: u64 = 1;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name} = {text}: {error}")))
}

/// One storm, and what is wrong with it.
fn storm(text: &str) -> Result<Tally, String> {
    let run = catch_unwind(AssertUnwindSafe(|| {
        let spec = CastSpec::of_text(text).map_err(|error| error.to_string())?;
        let outcome = run_cast(&spec, SEED).map_err(|error| error.to_string())?;
        oracle::judge(&spec, &outcome)
    }));
    run.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        Err(said.or(panic.downcast_ref::<&str>().map(|said| (*said).to_owned())).unwrap_or_default())
    })
}

#[test]
fn everybody_has_it_or_knows_why_not_and_then_all_is_at_rest() {
    let single = number("HEADWATER_STORM");
    let seeds = match single {
        Some(seed) => seed..seed + 1,
        None => 0..number("HEADWATER_STORMS").unwrap_or(USUAL),
    };
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let (mut sum, mut wrong) = (Tally::default(), Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return (sum, wrong);
            }
            match storm(&generate::text(seed)) {
                Ok(tally) => sum.add(tally),
                Err(what) => wrong.push((seed, what)),
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let parts: Vec<(Tally, Vec<(u64, String)>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("storms catch their panics")).collect()
    });
    let (mut sum, mut wrong) = (Tally::default(), Vec::new());
    for (part, its) in parts {
        sum.add(part);
        wrong.extend(its);
    }
    wrong.sort();
    println!("{} storms: {sum:#?}", seeds.end - seeds.start);
    for (seed, what) in &wrong {
        println!("storm {seed}: {what}");
        println!(
            "    HEADWATER_STORM={seed} cargo test -p headwater-experiment --test storms -- --nocapture"
        );
    }
    if let Some((seed, _)) = wrong.first() {
        println!(
            "\nThe text of storm {seed}, for `cargo run -p headwater-experiment --example casts FILE`:\n"
        );
        println!("{}", generate::text(*seed));
    }
    assert!(wrong.is_empty(), "{} of {} storms went wrong", wrong.len(), seeds.end - seeds.start);
    if single.is_none() {
        let (delivered, all) = (sum.ends["delivered"], sum.ends.values().sum::<u64>());
        assert!(delivered * 10 > all * 7 && delivered < all, "most have it, and some cannot: {sum:?}");
        for route in ["Unicast", "Multicast", "Overlay", "Trees", "get Push", "get Pull"] {
            assert!(sum.routes.contains_key(route), "nothing went by {route}: {sum:?}");
        }
        assert!(sum.faults.len() == 16, "a kind of fault is missing: {:?}", sum.faults);
        assert!(sum.found_out > 0, "no liar was found out: {sum:?}");
    }
}
