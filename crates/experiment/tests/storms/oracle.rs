//! Properties that must hold after a storm.

use std::collections::{BTreeMap, BTreeSet};

use headwater_experiment::run::CastSpec;
use headwater_experiment::scenario::{Action, Target};
use headwater_experiment::workload::Wish;
use headwater_sim::packet::cast::{CastOutcome, ReceiverRow};

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
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        let Tally { ends, routes, faults, found_out } = other;
        let into = [&mut self.ends, &mut self.routes, &mut self.faults];
        for (sum, part) in into.into_iter().zip([ends, routes, faults]) {
            part.into_iter().for_each(|(what, n)| *sum.entry(what).or_default() += n);
        }
        self.found_out += found_out;
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

/// Hosts to which this happens.
fn hosts(spec: &CastSpec, is: impl Fn(&Action, bool) -> bool) -> BTreeSet<u32> {
    let host = |on: &Target| if let Target::Host(host) = on { Some(*host) } else { None };
    let faults = spec.network.faults.iter().filter(|fault| is(&fault.what, fault.until.is_some()));
    faults.filter_map(|fault| host(&fault.on)).collect()
}

/// Whether anything a host does or says may be wrong.
fn lies(what: &Action, _: bool) -> bool {
    matches!(what, Action::WrongSymbols { .. } | Action::ForgedFeedback { .. })
}

/// Outcome of a storm.
///
/// # Errors
/// The property that was violated.
pub(crate) fn judge(spec: &CastSpec, outcome: &CastOutcome) -> Result<Tally, String> {
    let liars = hosts(spec, lies);
    let mut tally = Tally::default();
    spec.network.faults.iter().for_each(|fault| count(&mut tally.faults, word(&fault.what)));
    outcome.route.iter().for_each(|route| count(&mut tally.routes, word(route)));
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
    for row in &outcome.receivers {
        match (&row.finished, &row.failed) {
            (Some(_), _) => count(&mut tally.ends, "delivered"),
            (None, Some(reason)) => {
                excused(spec, row, reason).map_err(|what| format!("host {}: {what}", row.host))?;
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
    Ok(tally)
}

fn forgets(spec: &CastSpec) -> bool {
    let forgets = |what: &Action| matches!(what, Action::ControllerRestart { forgets: true });
    spec.network.faults.iter().any(|fault| forgets(&fault.what))
}

/// A host that runs and is honest has the object in the end where an honest host runs that holds it.
fn excused(spec: &CastSpec, row: &ReceiverRow, reason: &str) -> Result<(), String> {
    let ended = |what: &Action, passes: bool| match what {
        Action::HostKill => !passes,
        Action::DiskUnreadable => true,
        what => lies(what, passes),
    };
    let (unfit, liars) = (hosts(spec, ended), hosts(spec, lies));
    let restarted = hosts(spec, |what, _| matches!(what, Action::HostKill | Action::HostRestart));
    let full = hosts(spec, |what, _| matches!(what, Action::DiskFull));
    let mut holders = std::iter::once(&spec.cast.source).chain(&spec.cast.holders);
    // Nothing keeps anybody from the controller but what passes.
    let nobody_has_it = reason != "NoController" && holders.all(|holder| unfit.contains(holder));
    let its_own = (restarted.contains(&row.host)
        && ["it died", "it is dead", "its process ended"].contains(&reason))
        || liars.contains(&row.host)
        || (full.contains(&row.host) && reason == "the disk is full");
    // A cast that insists on trees gets nothing by another route: for it the first failure is one.
    let cut_off = spec.cast.wish == Wish::Trees && spec.cast.gets.iter().all(|get| get.host != row.host);
    // A controller that remembers nothing takes itself for new, and does not wait for nodes that knew another one.
    let unknown = ["UnknownObject", "NoSource", "Refused(", "the cast is over: Some(Away)"];
    let forgotten =
        forgets(spec) && unknown.iter().any(|word| reason.starts_with(word) && !reason.contains("missing"));
    let excused = nobody_has_it || its_own || forgotten || (cut_off && !spec.network.faults.is_empty());
    match excused {
        true => Ok(()),
        false => Err(format!("it has failed ({reason}), and nothing that lasts is in its way")),
    }
}
