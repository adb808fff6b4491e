//! What must hold after a storm.

use std::collections::{BTreeMap, BTreeSet};

use headwater_experiment::run::CastSpec;
use headwater_experiment::scenario::{Action, Target};
use headwater_experiment::workload::Wish;
use headwater_sim::packet::cast::{CastOutcome, ReceiverRow};

/// What storms came to, by what it was.
pub(crate) type Tally = BTreeMap<String, u64>;

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

/// What a storm came to.
///
/// # Errors
/// What is wrong.
pub(crate) fn judge(spec: &CastSpec, outcome: &CastOutcome) -> Result<Tally, String> {
    let liars = hosts(spec, lies);
    let mut tally = Tally::new();
    let mut count = |what: String| *tally.entry(what).or_default() += 1;
    for row in &outcome.receivers {
        match (&row.finished, &row.failed) {
            (Some(_), _) => count("delivered".to_owned()),
            (None, Some(reason)) => {
                excused(spec, row, reason).map_err(|what| format!("host {}: {what}", row.host))?;
                count(format!("failed: {}", reason.split([' ', '(', '{']).next().unwrap_or_default()));
            }
            (None, None) => return Err(format!("host {} neither has it nor knows why not", row.host)),
        }
    }
    for (by, whom) in &outcome.distrusted {
        match liars.contains(whom) || liars.contains(by) {
            true => count("liars found out".to_owned()),
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

/// Whoever runs and is honest has the object in the end where somebody honest runs that holds it.
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
    let nobody_has_it = holders.all(|holder| unfit.contains(holder));
    let its_own = (restarted.contains(&row.host)
        && ["it died", "it is dead", "its process ended"].contains(&reason))
        || liars.contains(&row.host)
        || (full.contains(&row.host) && reason == "the disk is full");
    // Whoever insists on trees gets nothing by another way: for them the first failure is one.
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
