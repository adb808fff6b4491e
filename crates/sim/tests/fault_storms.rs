//! Random small networks on which links lose, hold back, double and break, hosts pause and restart: every object arrives
//! byte for byte, or it is said why it cannot; then all is quiet, and nothing is missing.
//!
//! `HEADWATER_STORMS` says how many (100; `make storms` runs 1000), `HEADWATER_STORM` which single one.

#[path = "../../testkit/storms.rs"]
mod runner;
mod storm;

use runner::Storms;
use storm::{Outcome, Storm, judge};

/// One storm, and what is wrong with it.
fn weather(seed: u64) -> Result<Outcome, String> {
    let (records, facts) = Storm::new(seed).run();
    judge(&records, &facts).map_err(|what| format!("{what}\n{facts}"))
}

#[test]
fn every_object_arrives_or_it_is_said_why_not_and_then_all_is_quiet() {
    let storms = Storms { test: "-p headwater-sim --test fault_storms", usual: 100 };
    let played = storms.play(weather);
    let sum = played.outcomes.iter().fold(Outcome::default(), |sum, (_, outcome)| sum.plus(*outcome));
    println!("{} storms, {} tasks: {sum:?}", played.count(), sum.tasks());
    played.assert_none_wrong(|_| String::new());
    let few = played.count() < 50;
    assert!(few || sum.delivered * 10 >= sum.tasks() * 7, "most objects can be delivered: {sum:?}");
    assert!(few || sum.no_source + sum.no_controller + sum.refused > 0, "some cannot: {sum:?}");
}
