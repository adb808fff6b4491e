//! Who may end a storm without the object, and why.
//!
//! A host that runs and is honest has the object in the end where an honest host runs that has it, and a way leads there.

use std::collections::{BTreeMap, BTreeSet};

use headwater_experiment::run::CastSpec;
use headwater_experiment::scenario::{Action, Target};
use headwater_experiment::workload::Wish;
use headwater_fabric::LinkId;
use headwater_sim::packet::cast::{CastOutcome, ReceiverRow};
use headwater_units::{Duration, Time};

/// Time within which hosts find a controller again that has begun anew.
const FOUND_AGAIN: Duration = Duration::from_secs(1);
/// Time after which the asker asks once more for its casts that such a controller does not know.
const ASKED_AGAIN: Duration = Duration::from_secs(2);

/// What excuses the receivers of one storm.
pub(crate) struct Excuses<'a> {
    spec: &'a CastSpec,
    /// Hosts that are of no use to others in the end, or may not have been.
    unfit: BTreeSet<u32>,
    liars: BTreeSet<u32>,
    /// Hosts whose process ended, and those that have no other since.
    ended: BTreeSet<u32>,
    dead: BTreeSet<u32>,
    /// Hosts whose disk was full.
    full: BTreeSet<u32>,
    /// Hosts that have the object from the beginning.
    holders: Vec<u32>,
    /// Receivers that have it in the end, and since when.
    finished: Vec<(u32, Time)>,
    parts: Vec<usize>,
    /// More than single hosts are cut off for good.
    is_split: bool,
}

/// Hosts to which this happens.
pub(crate) fn hosts(spec: &CastSpec, is: impl Fn(&Action, bool) -> bool) -> BTreeSet<u32> {
    let host = |on: &Target| if let Target::Host(host) = on { Some(*host) } else { None };
    let faults = spec.network.faults.iter().filter(|fault| is(&fault.what, fault.until.is_some()));
    faults.filter_map(|fault| host(&fault.on)).collect()
}

/// Whether anything a host does or says may be wrong.
pub(crate) fn lies(what: &Action, _: bool) -> bool {
    matches!(what, Action::WrongSymbols { .. } | Action::ForgedFeedback { .. })
}

impl<'a> Excuses<'a> {
    pub(crate) fn new(spec: &'a CastSpec, outcome: &CastOutcome) -> Self {
        let is_unfit = |what: &Action, passes: bool| match what {
            Action::HostKill => !passes,
            Action::DiskUnreadable => true,
            what => lies(what, passes),
        };
        let parts = parts(spec);
        let mut sizes: BTreeMap<usize, u32> = BTreeMap::new();
        parts.iter().for_each(|part| *sizes.entry(*part).or_default() += 1);
        Excuses {
            spec,
            unfit: hosts(spec, is_unfit),
            liars: hosts(spec, lies),
            ended: hosts(spec, |what, _| matches!(what, Action::HostKill | Action::HostRestart)),
            dead: hosts(spec, |what, passes| *what == Action::HostKill && !passes),
            full: hosts(spec, |what, _| matches!(what, Action::DiskFull)),
            holders: std::iter::once(spec.cast.source).chain(spec.cast.holders.iter().copied()).collect(),
            finished: outcome.receivers.iter().filter_map(|row| Some((row.host, row.finished?))).collect(),
            parts,
            is_split: sizes.values().filter(|size| **size > 1).count() > 1,
        }
    }

    /// Whether a receiver may have failed for this reason.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn check(&self, row: &ReceiverRow, reason: &str) -> Result<(), String> {
        let is_excused = self.nobody_has_it(row, reason)
            || self.by_itself(row.host, reason)
            || self.was_away(row, reason)
            || self.is_spoiled(reason)
            || self.is_forgotten(reason)
            || self.insists_on_trees(row);
        match is_excused {
            true => Ok(()),
            false => Err(format!("it has failed ({reason}), and nothing that lasts is in its way")),
        }
    }

    /// Nobody is left who has it and can be reached, or was while this one waited.
    fn nobody_has_it(&self, row: &ReceiverRow, reason: &str) -> bool {
        let is_of_use = |host: u32| {
            !self.unfit.contains(&host) && self.parts[host as usize] == self.parts[row.host as usize]
        };
        let is_in_time = |since: Time| row.failed_at.is_none_or(|at| since < at);
        let holds = self.holders.iter().any(|host| is_of_use(*host));
        let has_it =
            holds || self.finished.iter().any(|(host, since)| is_of_use(*host) && is_in_time(*since));
        // The controller hears all nodes, and knows nothing of who reaches whom but their racks: where a part of the network is cut off for
        // good, it sends receivers to those whom they do not reach, until their patience ends.
        let is_lost = self.is_split && !(holds && self.spec.cast.states_racks);
        // Nothing keeps anybody from the controller but what passes.
        reason != "NoController" && (!has_it || is_lost)
    }

    fn by_itself(&self, host: u32, reason: &str) -> bool {
        let ends = ["it died", "it is dead", "its process ended"].contains(&reason);
        (self.ended.contains(&host) && ends)
            || self.dead.contains(&host)
            || self.liars.contains(&host)
            || (self.full.contains(&host) && reason == "the disk is full")
    }

    /// A receiver that is away when a cast begins, perhaps anew, is not waited for; and nothing begins while all are away that have the
    /// object.
    fn was_away(&self, row: &ReceiverRow, reason: &str) -> bool {
        let named = self.spec.cast.further.iter().filter(|cast| cast.receivers.contains(&row.host));
        let restarts = self.spec.network.faults.iter().filter(|fault| fault.on == Target::Controller);
        let asked: Vec<Duration> = (named.map(|cast| cast.at))
            .chain(restarts.map(|fault| fault.at + ASKED_AGAIN))
            .chain([row.from.since(Time::ZERO)])
            .collect();
        let may_be_away = |host: u32| asked.iter().any(|at| self.may_be_away(host, *at));
        match reason {
            "Refused(NoSource)" | "Refused(UnknownObject)" | "NoSource" | "UnknownObject" => {
                self.holders.iter().all(|host| may_be_away(*host))
            }
            "the cast is over: Some(Away)" => may_be_away(row.host),
            _ => false,
        }
    }

    /// Whether the controller may take a host to be away: it neither hears nor says anything, or has begun anew, and messages take time.
    fn may_be_away(&self, host: u32, at: Duration) -> bool {
        let late = self.spec.cast.control_delay * 4;
        self.spec.network.faults.iter().any(|fault| {
            let until = match (&fault.on, &fault.what) {
                (Target::Host(it), Action::HostKill | Action::HostPause) if *it == host => fault.until,
                (Target::Host(it), Action::HostRestart) if *it == host => Some(fault.at),
                (Target::Controller, _) => Some(fault.at + FOUND_AGAIN),
                _ => return false,
            };
            fault.at <= at + late && until.is_none_or(|until| at <= until + late)
        })
    }

    /// What a liar or a bad disk holds nobody is sent any more, until somebody else has it.
    fn is_spoiled(&self, reason: &str) -> bool {
        let is_spoiled = ["Refused(Spoiled", "Corrupt"].iter().any(|word| reason.starts_with(word));
        is_spoiled && self.holders.iter().all(|host| self.unfit.contains(host))
    }

    /// A controller that remembers nothing takes itself for new, and does not wait for nodes that knew another one.
    fn is_forgotten(&self, reason: &str) -> bool {
        let forgets = |what: &Action| matches!(what, Action::ControllerRestart { forgets: true });
        let unknown = ["UnknownObject", "NoSource", "Refused(", "the cast is over: Some(Away)"];
        self.spec.network.faults.iter().any(|fault| forgets(&fault.what))
            && unknown.iter().any(|word| reason.starts_with(word) && !reason.contains("missing"))
    }

    /// A cast that insists on trees gets nothing by another route: for it the first failure is one.
    fn insists_on_trees(&self, row: &ReceiverRow) -> bool {
        let cast = &self.spec.cast;
        let gets = cast.gets.iter().any(|get| get.host == row.host);
        cast.wish == Wish::Trees && !gets && !self.spec.network.faults.is_empty()
    }
}

/// By host: a number that all hosts have which can reach each other in the end, both ways.
fn parts(spec: &CastSpec) -> Vec<usize> {
    let topology = spec.network.topology().expect("it is one");
    let fabric = topology.fabric();
    let lasting = spec.network.faults.iter().filter(|it| it.what == Action::LinkDown && it.until.is_none());
    let cut: BTreeSet<&str> =
        lasting.filter_map(|it| if let Target::Link(link) = &it.on { Some(&**link) } else { None }).collect();
    let name = |point| topology.name(point).expect("every point has a name");
    let mut part: Vec<usize> = (0..fabric.point_count()).collect();
    for link in (0..fabric.link_count() as u32).filter_map(|link| fabric.link(LinkId(link))) {
        let (from, to) = (name(link.from), name(link.to));
        // Who is not heard gets nothing, and who hears nothing does not either.
        if cut.contains(&*format!("{from}-{to}")) || cut.contains(&*format!("{to}-{from}")) {
            continue;
        }
        let (one, other) = (part[link.from.index()], part[link.to.index()]);
        part.iter_mut().filter(|it| **it == other).for_each(|it| *it = one);
    }
    topology.hosts().iter().map(|host| part[host.index()]).collect()
}
