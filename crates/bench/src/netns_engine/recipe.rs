//! Processes that a scenario needs: the role of each, its host, and its options.

use std::collections::BTreeMap;
use std::path::Path;

use headwater_experiment::run::{HostFacts, Stage};
use headwater_experiment::scenario::{DataClass, Machines, Scenario, Scheme};
use headwater_sim::packet::TaskPlan;
use headwater_units::{BitRate, BlockIndex, Bytes, Geometry};
use headwater_wire::SCHEDULING;

use super::Trouble;
use headwater_driver::room_in;

/// Objects of one run, each stored twice at most.
const MOST_BYTES: Bytes = Bytes::mib(4096);
/// An Ethernet header.
pub(super) const ETHERNET: u64 = 14;

/// The option that gives processes the constants of a paper; the product has none.
pub(super) fn tuning(scenario: &Scenario, stage: &Stage, folder: &Path) -> Result<Option<String>, Trouble> {
    if scenario.transport.machines == Machines::Product {
        return Ok(None);
    }
    let path = folder.join("tuning.toml");
    let mut constants = scenario.transport.clone();
    constants.theta_ceiling.get_or_insert(stage.theta_ceiling);
    let text = toml::to_string(&constants).map_err(|e| Trouble::Failed(e.to_string()))?;
    std::fs::write(&path, text)
        .map_err(|e| Trouble::Failed(format!("cannot write {}: {e}", path.display())))?;
    Ok(Some(format!("--tuning={}", path.display())))
}

/// Flags by which a host states its links to the controller, as its operator would if he is to.
pub(super) fn facts(scenario: &Scenario, host: &HostFacts) -> Vec<String> {
    if !scenario.transport.states_rates {
        return Vec::new();
    }
    let rate = |rate: BitRate| format!("{}bit/s", rate.get());
    let mut flags =
        vec![format!("--uplink={}", rate(host.uplink)), format!("--downlink={}", rate(host.downlink))];
    flags.extend(host.rack.as_ref().map(|(name, carries)| format!("--rack={name}={}", rate(*carries))));
    flags
}

/// Processes that the scenario needs.
pub(super) struct Recipe {
    pub(super) mtu: u64,
    /// The kernel's congestion control, for each task that is TCP's.
    pub(super) tcp: Vec<Option<&'static str>>,
    /// The object of each task that is not.
    pub(super) sizes: Vec<Option<Bytes>>,
    /// Tasks of which a host has the object.
    pub(super) holdings: BTreeMap<usize, Vec<usize>>,
    /// Where the controller runs, if one is needed.
    pub(super) controller: Option<usize>,
    pub(super) equal_theta: bool,
    pub(super) equal_parts: bool,
    /// Receivers pull (SCDP).
    pub(super) pull: bool,
    pub(super) gentle: bool,
    pub(super) most_sources: usize,
}

impl Recipe {
    pub(super) fn of(scenario: &Scenario, stage: &Stage) -> Result<Self, Trouble> {
        let tasks = stage.tasks.len() - stage.background.len();
        let schemes = std::iter::repeat_n(scenario.scheme, tasks).chain(stage.background.iter().copied());
        let tcp = schemes.map(congestion).collect::<Result<Vec<_>, _>>()?;
        let (equal_parts, weigh) = match scenario.scheme {
            Scheme::Ppush { pool, weigh } => (!pool, weigh),
            Scheme::Scdp => (false, true),
            _ => (true, false),
        };
        let mtu = scenario.packet.data.get().saturating_sub(ETHERNET);
        let room = room_in(u16::try_from(mtu).unwrap_or(u16::MAX), ([10, 0, 0, 1], 1).into());
        let room = if scenario.scheme == Scheme::Pam { room - SCHEDULING as u16 } else { room };
        let push = |place: &usize| tcp[*place].is_none();
        let sizes: Vec<Option<Bytes>> = (0..stage.tasks.len())
            .map(|place| push(&place).then(|| object_of(stage.tasks[place].packets, room)))
            .collect();
        let total: Bytes = sizes.iter().flatten().copied().sum();
        if total > MOST_BYTES {
            return Err(Trouble::Unsupported(format!("objects of {total} in all, more than {MOST_BYTES}")));
        }
        let mut holdings: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for place in (0..stage.tasks.len()).filter(push) {
            let sources = &stage.tasks[place].sources;
            sources.iter().for_each(|host| holdings.entry(*host as usize).or_default().push(place));
        }
        let weighed = (0..stage.tasks.len()).filter(push).find(|place| stage.tasks[*place].thetas.is_none());
        Ok(Recipe {
            mtu,
            tcp,
            sizes,
            holdings,
            // Where data comes in, it is in nobody's way.
            controller: weighed.map(|place| stage.tasks[place].receiver as usize),
            equal_theta: !weigh,
            equal_parts,
            pull: scenario.scheme == Scheme::Scdp,
            gentle: scenario.transport.class == DataClass::Gentle,
            most_sources: stage.tasks.iter().map(|task| task.sources.len()).max().unwrap_or(1).max(1),
        })
    }

    /// Those that are TCP's, or the others, with their places.
    pub(super) fn tasks<'s>(&self, stage: &'s Stage, tcp: bool) -> Vec<(usize, &'s TaskPlan)> {
        let all = stage.tasks.iter().enumerate();
        all.filter(|(place, _)| self.tcp[*place].is_some() == tcp).collect()
    }
}

/// The kernel's name of a scheme; none where the scheme is ours.
fn congestion(scheme: Scheme) -> Result<Option<&'static str>, Trouble> {
    const KNOWN: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let name = match scheme {
        // A shuffle has no tasks: its connections are told what they run.
        Scheme::Ppush { .. } | Scheme::Scdp | Scheme::Pam | Scheme::Cast | Scheme::Shuffle { .. } => {
            return Ok(None);
        }
        Scheme::Reno => "reno",
        Scheme::Cubic => "cubic",
        Scheme::Bic => "bic",
        Scheme::Vegas => "vegas",
        Scheme::Dctcp => "dctcp",
        other => return Err(Trouble::Unsupported(format!("there is no real {other} here"))),
    };
    let known = std::fs::read_to_string(KNOWN).unwrap_or_default();
    match known.split_whitespace().any(|it| it == name) {
        true => Ok(Some(name)),
        false => Err(Trouble::Unsupported(format!("this kernel has no TCP {name}, only {}", known.trim()))),
    }
}

/// The size of an object of `packets` symbols, each as large as fits the room.
fn object_of(packets: u64, room: u16) -> Bytes {
    // Whole blocks decide T, and less than one is cut alike.
    let geometry = Geometry::fitting(Bytes::mib(1), room);
    let (block, symbols) =
        (geometry.layout().len(BlockIndex(0)), u64::from(geometry.source_symbols(BlockIndex(0))));
    let rest = (packets % symbols) * u64::from(geometry.symbol_size());
    Bytes::new((packets / symbols) * block.get() + rest.min(block.get())).max(Bytes::new(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_object_has_as_many_symbols_as_the_task_has_packets(packets in 1_u64..100_000, room in 64_u16..9000) {
            let object = object_of(packets, room);
            prop_assert_eq!(Geometry::fitting(object, room).total_symbols().get(), packets);
        }
    }
}
