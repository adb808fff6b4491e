//! Properties that must hold after a storm.

use std::collections::{BTreeMap, BTreeSet};

use headwater_fabric::{HostId, LinkId, PointId};
use headwater_sim::packet::{Change, ControlPlane, LinkChange, Records, Seen, TaskRow};
use headwater_transport::ReceiverFailure;
use headwater_units::{Bytes, Geometry};
use headwater_wire::{Refusal, SpreadRule};

use super::Facts;

/// How the tasks of a storm ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) delivered: u32,
    pub(crate) no_source: u32,
    pub(crate) no_controller: u32,
    pub(crate) refused: u32,
    /// Its receiver was paused for good.
    pub(crate) mute: u32,
}

impl Outcome {
    pub(crate) fn tasks(&self) -> u32 {
        self.delivered + self.no_source + self.no_controller + self.refused + self.mute
    }

    pub(crate) fn plus(self, other: Outcome) -> Outcome {
        Outcome {
            delivered: self.delivered + other.delivered,
            no_source: self.no_source + other.no_source,
            no_controller: self.no_controller + other.no_controller,
            refused: self.refused + other.refused,
            mute: self.mute + other.mute,
        }
    }
}

/// Faults that stay when everything that passes has passed.
struct Aftermath<'a> {
    facts: &'a Facts,
    paused: BTreeSet<u32>,
    down: BTreeSet<LinkId>,
}

impl<'a> Aftermath<'a> {
    fn new(facts: &'a Facts) -> Self {
        let (mut paused, mut down) = (BTreeMap::new(), BTreeMap::new());
        for (_, change) in &facts.changes {
            match *change {
                Change::Paused(host, is) => drop(paused.insert(host, is)),
                Change::Link(link, LinkChange::Down(is)) => drop(down.insert(link, is)),
                _ => {}
            }
        }
        let paused = paused.into_iter().filter(|(_, is)| *is).map(|(host, _)| host).collect();
        let down = down.into_iter().filter(|(_, is)| *is).map(|(link, _)| link).collect();
        Aftermath { facts, paused, down }
    }

    /// Whether two hosts can talk by whatever path switches choose.
    fn whole(&self, a: u32, b: u32) -> bool {
        let Facts { topology, routes, .. } = self.facts;
        let paths = |from, to| routes.paths(topology, HostId(from), HostId(to), 64);
        let fine =
            |from, to| paths(from, to).iter().all(|path| path.links().iter().all(|l| !self.down.contains(l)));
        !self.paused.contains(&a) && !self.paused.contains(&b) && (a == b || (fine(a, b) && fine(b, a)))
    }

    fn hears_controller(&self, host: u32) -> bool {
        match self.facts.control {
            ControlPlane::Beside { .. } => !self.paused.contains(&host),
            ControlPlane::AtHost { host: controller } => self.whole(host, controller),
        }
    }

    /// Whether nothing that stays broken keeps a task from its end.
    fn is_possible(&self, task: usize) -> bool {
        let plan = &self.facts.tasks[task];
        let usable = |s: &&u32| self.whole(**s, plan.receiver) && self.hears_controller(**s);
        let usable = plan.sources.iter().filter(usable).count();
        let needed = if self.facts.spread == SpreadRule::Equal { plan.sources.len() } else { 1 };
        self.hears_controller(plan.receiver) && usable >= needed
    }
}

/// Checks everything; the error says what is wrong.
pub(crate) fn judge(records: &Records, facts: &Facts) -> Result<Outcome, String> {
    let aftermath = Aftermath::new(facts);
    let mut outcome = Outcome::default();
    if records.tasks.len() != facts.tasks.len() {
        return Err(format!("{} tasks planned, {} recorded", facts.tasks.len(), records.tasks.len()));
    }
    for (index, row) in records.tasks.iter().enumerate() {
        outcome =
            outcome.plus(ended(row, index, &aftermath).map_err(|what| format!("task {}: {what}", row.name))?);
    }
    if records.counts.corrupt > 0 {
        return Err(format!("{} blocks decoded to wrong bytes", records.counts.corrupt));
    }
    if records.counts.in_flight > 0 {
        return Err(format!("{} messages are under way for ever", records.counts.in_flight));
    }
    for (host, flow) in &records.flows_left {
        if aftermath.hears_controller(*host) {
            return Err(format!("host {host} still has flow {flow:?}"));
        }
    }
    conserved(records, facts)?;
    Ok(outcome)
}

/// A task was delivered, or its failure has a reason, and the reason is true.
fn ended(row: &TaskRow, index: usize, aftermath: &Aftermath<'_>) -> Result<Outcome, String> {
    let plan = &aftermath.facts.tasks[index];
    let bytes = plan.bytes.expect("every storm states sizes");
    let blocks = Geometry::fitting(bytes, 1024).layout().block_count();
    if row.finish.is_some() {
        return match (row.blocks, row.blocks_done) == (Some(blocks), blocks) {
            true => Ok(Outcome { delivered: 1, ..Outcome::default() }),
            false => Err(format!("finished with {} of {blocks} blocks", row.blocks_done)),
        };
    }
    let possible = aftermath.is_possible(index);
    let inside = matches!(aftermath.facts.control, ControlPlane::AtHost { .. });
    let Some(failure) = &row.failure else {
        return match aftermath.paused.contains(&row.receiver) {
            true => Ok(Outcome { mute: 1, ..Outcome::default() }),
            false => Err("neither delivered nor reported failed".to_owned()),
        };
    };
    if possible {
        return Err(format!("reported {failure:?}, although nothing that stays broken is in its way"));
    }
    match failure {
        ReceiverFailure::NoSource { missing } if *missing == blocks - row.blocks_done => {
            Ok(Outcome { no_source: 1, ..Outcome::default() })
        }
        ReceiverFailure::NoController if inside => Ok(Outcome { no_controller: 1, ..Outcome::default() }),
        ReceiverFailure::Refused(Refusal::NoSource | Refusal::UnknownObject) if inside => {
            Ok(Outcome { refused: 1, ..Outcome::default() })
        }
        _ => Err(format!(
            "reported {failure:?} with {} of {blocks} blocks, which is not true",
            row.blocks_done
        )),
    }
}

/// In = out + queued + dropped at every port, in frames and bytes; what leaves one end of a link comes to the other, is lost
/// there or doubled; what comes to a switch leaves it. Ports and link ends are counted apart.
pub(crate) fn conserved(records: &Records, facts: &Facts) -> Result<(), String> {
    let fabric = facts.topology.fabric();
    if records.tallies.len() != fabric.link_count() || records.links.len() != fabric.link_count() {
        return Err("not every link was counted".to_owned());
    }
    for (link, (port, ends)) in records.links.iter().zip(&records.tallies).enumerate() {
        let same = |what: &str, left: Seen, right: Seen| match left == right {
            true => Ok(()),
            false => Err(format!("link {link}: {what}: {left:?} and {right:?}\n{port:?}\n{ends:?}")),
        };
        same("offered and in", ends.offered, seen(port.frames_in, port.bytes_in))?;
        let gone =
            seen(port.frames_out + port.dropped, port.bytes_out + port.bytes_dropped + port.bytes_trimmed);
        same("in = out + dropped, and no queue", ends.offered, gone)?;
        let out = plus(seen(port.frames_out, port.bytes_out), ends.duplicated);
        same("out + doubled = arrived + lost", out, plus(ends.arrived, ends.lost))?;
    }
    for point in (0..fabric.point_count() as u32).map(PointId) {
        if facts.topology.hosts().contains(&point) {
            continue;
        }
        let ends = |link: &LinkId| records.tallies[link.0 as usize];
        let [mut come, mut gone] = [Seen::default(); 2];
        for link in fabric.entering(point) {
            come = plus(come, plus(ends(link).arrived, ends(link).copied));
            gone = plus(gone, ends(link).stray);
        }
        for link in fabric.leaving(point) {
            gone = plus(gone, ends(link).offered);
        }
        if come != gone {
            return Err(format!("{:?}: {come:?} come and {gone:?} gone", facts.topology.name(point)));
        }
    }
    Ok(())
}

fn seen(frames: u64, bytes: Bytes) -> Seen {
    Seen { frames, bytes: bytes.get() }
}

fn plus(a: Seen, b: Seen) -> Seen {
    Seen { frames: a.frames + b.frames, bytes: a.bytes + b.bytes }
}
