//! The runner of storms: one run for each seed, on all processors; a failure names the seed that repeats it.
//!
//! Tests include this file by its path: `testkit` is a machine like those that it tests, and has neither threads nor an environment.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// The storms of one test.
pub(crate) struct Storms {
    /// What repeats one of them, but for its number: a package, a test target, and the test's name.
    pub(crate) test: &'static str,
    /// Number of storms in an ordinary run of the tests.
    pub(crate) usual: u64,
}

/// What became of storms.
pub(crate) struct Played<T> {
    /// The outcomes of those that went well, by seed.
    pub(crate) outcomes: Vec<(u64, T)>,
    /// The others, and what is wrong with each.
    pub(crate) wrong: Vec<(u64, String)>,
    test: &'static str,
}

impl Storms {
    /// Runs as many storms as `HEADWATER_STORMS` says, or the one of `HEADWATER_STORM`. A panic is what is wrong with its storm.
    pub(crate) fn play<T: Send>(&self, storm: impl Fn(u64) -> Result<T, String> + Sync) -> Played<T> {
        let seeds = match number("HEADWATER_STORM") {
            Some(seed) => seed..seed + 1,
            None => 0..number("HEADWATER_STORMS").unwrap_or(self.usual),
        };
        let next = AtomicU64::new(seeds.start);
        let work = || {
            let (mut outcomes, mut wrong) = (Vec::new(), Vec::new());
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    return (outcomes, wrong);
                }
                match caught(|| storm(seed)) {
                    Ok(outcome) => outcomes.push((seed, outcome)),
                    Err(what) => wrong.push((seed, what)),
                }
            }
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let (mut outcomes, mut wrong) = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            for worker in workers {
                let (its, errors) = worker.join().expect("storms catch their panics");
                outcomes.extend(its);
                wrong.extend(errors);
            }
        });
        outcomes.sort_by_key(|(seed, _)| *seed);
        wrong.sort();
        Played { outcomes, wrong, test: self.test }
    }
}

impl<T> Played<T> {
    /// Number of storms.
    pub(crate) fn count(&self) -> usize {
        self.outcomes.len() + self.wrong.len()
    }

    /// Prints every storm that went wrong, and how to repeat it; `text` says more about the first one.
    ///
    /// # Panics
    /// If there is one.
    pub(crate) fn assert_none_wrong(&self, text: impl Fn(u64) -> String) {
        for (seed, what) in &self.wrong {
            println!("storm {seed}: {what}");
            println!("    HEADWATER_STORM={seed} cargo test {} -- --nocapture", self.test);
        }
        if let Some((seed, _)) = self.wrong.first() {
            println!("{}", text(*seed));
        }
        assert!(self.wrong.is_empty(), "{} of {} storms went wrong", self.wrong.len(), self.count());
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name} = {text}: {error}")))
}

/// A panic as an error.
fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        Err(said.or(panic.downcast_ref::<&str>().map(|said| (*said).to_owned())).unwrap_or_default())
    })
}
