//! Properties that must hold after a storm. Whether a receiver may have failed is in [`excuses`](super::excuses).

use std::collections::BTreeMap;

use headwater_experiment::run::CastSpec;
use headwater_experiment::scenario::Action;
use headwater_sim::packet::cast::CastOutcome;
use headwater_units::Time;

use super::excuses::{Excuses, hosts, lies};

/// Bytes that hosts may send for each receiver, in copies of the object: one; once more what was on its way to a receiver that began anew,
/// or from one that died; and lost packets again.
const MOST_COPIES: f64 = 3.0;
/// Bytes beside these: requests, acknowledgements, heartbeats and probes.
const MOST_BESIDE: f64 = 65_536.0;

/// Counts of the outcomes of storms.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Receivers by how they ended.
    pub(crate) ends: BTreeMap<String, u64>,
    /// Casts and gets by how they travelled.
    pub(crate) routes: BTreeMap<String, u64>,
    /// Faults by their kind.
    pub(crate) faults: BTreeMap<String, u64>,
    /// Liars that somebody has found out.
    pub(crate) found_out: u64,
    /// Receivers of the largest.
    pub(crate) largest: usize,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        let Tally { ends, routes, faults, found_out, largest } = other;
        let into = [&mut self.ends, &mut self.routes, &mut self.faults];
        for (sum, part) in into.into_iter().zip([ends, routes, faults]) {
            part.into_iter().for_each(|(what, n)| *sum.entry(what).or_default() += n);
        }
        self.found_out += found_out;
        self.largest = self.largest.max(largest);
    }
}

fn count(sum: &mut BTreeMap<String, u64>, what: impl ToString) {
    *sum.entry(what.to_string()).or_default() += 1;
}

/// The first word of what is printed of a value.
fn word(of: &impl std::fmt::Debug) -> String {
    let text = format!("{of:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// Outcome of a storm.
///
/// # Errors
/// The property that was violated.
pub(crate) fn judge(spec: &CastSpec, outcome: &CastOutcome) -> Result<Tally, String> {
    let liars = hosts(spec, lies);
    let mut tally = Tally { largest: outcome.receivers.len(), ..Tally::default() };
    spec.network.faults.iter().for_each(|fault| count(&mut tally.faults, word(&fault.what)));
    outcome.route.iter().for_each(|route| count(&mut tally.routes, word(route)));
    for cast in &spec.cast.further {
        let named = |host: &u32| {
            outcome.receivers.iter().any(|row| row.host == *host && row.from < Time::ZERO + cast.at)
        };
        count(
            &mut tally.routes,
            if cast.receivers.iter().any(named) { "further cast to the same" } else { "further cast" },
        );
    }
    if spec.cast.states_racks {
        count(&mut tally.routes, "racks told");
    }
    for get in &spec.cast.gets {
        let by = get.by.map_or("as the controller likes".to_owned(), |by| word(&by));
        count(&mut tally.routes, format!("get {by}"));
    }
    for (how, times) in [
        ("gets that come to be an overlay", outcome.controller.swarms_overlaid),
        ("gets that join an overlay", outcome.controller.overlays_joined),
    ] {
        *tally.routes.entry(how.to_owned()).or_default() += times;
    }
    let excuses = Excuses::new(spec, outcome);
    for row in &outcome.receivers {
        match (&row.finished, &row.failed) {
            (Some(_), _) => count(&mut tally.ends, "delivered"),
            (None, Some(reason)) => {
                excuses.check(row, reason).map_err(|what| format!("host {}: {what}", row.host))?;
                count(&mut tally.ends, reason.split(['{', '"']).next().unwrap_or_default().trim_end());
            }
            (None, None) => return Err(format!("host {} neither has it nor knows why not", row.host)),
        }
    }
    for (by, whom) in &outcome.distrusted {
        match liars.contains(whom) || liars.contains(by) {
            true => tally.found_out += 1,
            false => return Err(format!("host {by} distrusts {whom}, which is honest")),
        }
    }
    if !outcome.left.is_empty() {
        return Err(format!("not all is at rest: {:?}", outcome.left));
    }
    if outcome.unrest > 0 {
        return Err(format!("{} packets and messages are sent after all have come to rest", outcome.unrest));
    }
    let meddles =
        |what: &Action| lies(what, false) || matches!(what, Action::Corrupt { .. } | Action::Replay { .. });
    let copy = spec.cast.one_copy().get() as f64;
    let (sent, wanting) = (outcome.all_copies * copy, outcome.receivers.len() as f64);
    if !hosts_forward(spec)
        && sent > wanting * (MOST_COPIES * copy + MOST_BESIDE)
        && !spec.network.faults.iter().any(|fault| meddles(&fault.what))
    {
        return Err(format!("{sent} bytes were sent for {wanting} copies of {copy} bytes"));
    }
    Ok(tally)
}

/// Whether hosts have several cables, and forward packets of others: what leaves them then are not their copies alone.
fn hosts_forward(spec: &CastSpec) -> bool {
    let topology = spec.network.topology().expect("it is one");
    topology.hosts().iter().any(|host| topology.fabric().leaving(*host).len() > 1)
}
