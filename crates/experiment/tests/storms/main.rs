//! Storms: hosts with the product's nodes and controller on a network, one object to be had, and whatever may go wrong. In `small` ones
//! a few hosts meet every kind of fault and lie; `large` ones are casts to up to 200 receivers. What must hold afterwards is in `oracle`.
//!
//! `HEADWATER_STORMS` says how many (`make storms`: 10000 small ones and 2000 large ones), `HEADWATER_STORM` which single one.

mod excuses;
mod large;
mod oracle;
#[path = "../../../testkit/storms.rs"]
mod runner;
mod small;

use headwater_experiment::run::{CastSpec, run_cast};
use oracle::Tally;
use runner::{Played, Storms};

/// A storm's text says all of it; what is drawn in its run is always drawn from this.
const SEED: u64 = 1;

/// One storm, and what is wrong with it.
fn storm(text: &str) -> Result<Tally, String> {
    let spec = CastSpec::of_text(text).map_err(|error| error.to_string())?;
    let outcome = run_cast(&spec, SEED).map_err(|error| error.to_string())?;
    oracle::judge(&spec, &outcome)
}

/// Plays storms of these texts, and prints what became of them.
fn play(storms: &Storms, text: fn(u64) -> String) -> (Tally, Played<Tally>) {
    let played = storms.play(|seed| storm(&text(seed)));
    let mut sum = Tally::default();
    played.outcomes.iter().for_each(|(_, tally)| sum.add(tally.clone()));
    println!("{} storms: {sum:#?}", played.count());
    played.assert_none_wrong(|seed| {
        format!(
            "\nThe text of storm {seed}, for `cargo run -p headwater-experiment --example casts FILE`:\n\n{}",
            text(seed)
        )
    });
    (sum, played)
}

#[test]
fn everybody_has_it_or_knows_why_not_and_then_all_is_at_rest() {
    let test = "-p headwater-experiment --test storms everybody_has_it";
    let (sum, played) = play(&Storms { test, usual: 1000 }, small::text);
    if played.count() >= 1000 {
        let (delivered, all) = (sum.ends["delivered"], sum.ends.values().sum::<u64>());
        assert!(delivered * 10 > all * 7 && delivered < all, "most have it, and some cannot: {sum:?}");
        for route in ["Unicast", "Multicast", "Overlay", "Trees", "get Push", "get Pull"] {
            assert!(sum.routes.contains_key(route), "nothing went by {route}: {sum:?}");
        }
        assert!(sum.faults.len() == 16, "a kind of fault is missing: {:?}", sum.faults);
        assert!(sum.found_out > 0, "no liar was found out: {sum:?}");
    }
}

/// Goal: a receiver that lives, and to which a way leads from a living host with the object, has it in the end, in casts to up to 200.
#[test]
fn casts_to_up_to_200_receivers_outlive_deaths_cuts_and_joins() {
    let test = "-p headwater-experiment --test storms casts_to_up_to_200";
    let (sum, played) = play(&Storms { test, usual: 40 }, large::text);
    if played.count() >= 40 {
        let (delivered, all) = (sum.ends["delivered"], sum.ends.values().sum::<u64>());
        assert!(delivered * 10 > all * 7 && delivered < all, "most have it, and some cannot: {sum:?}");
        for what in ["Overlay", "racks told", "further cast to the same", "get as the controller likes"] {
            assert!(sum.routes.contains_key(what), "no {what}: {sum:?}");
        }
        assert!(sum.largest >= 100, "no storm was large: {sum:?}");
    }
}
