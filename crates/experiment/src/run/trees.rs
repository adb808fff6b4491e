//! A group's disjoint trees in a network of which a part has failed (Datacast §VI-A).
//!
//! Nothing is sent. Cables fail as the seed draws, source and receivers are drawn among the hosts that still reach one
//! another ("we ignore the cases when the network is not connected"; of a fat-tree's 3456 hosts, each on one cable, some are
//! always cut off), and [`trees::repair`] makes the most of the trees that the whole network would have given.

use headwater_fabric::trees::{self, Group};
use headwater_fabric::{HostId, LinkId, Topology};

use super::common;
use super::{Progress, RunError};
use crate::engine::Engine;
use crate::scenario::{Scenario, ScenarioError};
use crate::table::{MeasureRow, Tables};
use crate::workload::{Network, Workload, WorkloadError, failing, group_order};

/// Runs it.
pub(super) fn run(
    scenario: &Scenario,
    seed: u64,
    watch: &mut dyn FnMut(Progress),
) -> Result<Tables, RunError> {
    let search = TreeSearch::new(scenario, seed, Engine::Trees)?;
    let repair = search.run();
    watch(Progress { done: 1.0, events: repair.trees.len() as u64 });
    Ok(tables(&repair, trees::bound(&search.topology, &search.group)))
}

/// Input of a search for trees: a group, and its network before and after a part of it failed.
#[derive(Debug)]
pub struct TreeSearch {
    whole: Topology,
    topology: Topology,
    group: Group,
}

impl TreeSearch {
    /// As a scenario and a seed have it, for an engine that looks at trees alone.
    ///
    /// # Errors
    /// [`RunError`] if there is something in the scenario that has nothing to do with trees, or no such group.
    pub fn new(scenario: &Scenario, seed: u64, engine: Engine) -> Result<TreeSearch, RunError> {
        let Workload::Group { members, .. } = scenario.workload else {
            return Err(common::unsupported(engine, "trees are those of a workload of kind 'group'"));
        };
        if scenario.has_faults() {
            return Err(common::unsupported(engine, "faults come while something is sent; nothing is"));
        }
        let whole = scenario.topology().map_err(ScenarioError::from)?;
        let topology = after_failures(&whole, scenario.link_failure_rate, seed);
        let network = Network::of(&whole, scenario.packet.data);
        // For its errors: which hosts it is depends on what has failed.
        scenario.workload.plan(&network, seed).map_err(ScenarioError::from)?;
        let order = group_order(&network, seed);
        let group = connected(&topology, &order, members).map_err(ScenarioError::from)?;
        Ok(TreeSearch { whole, topology, group })
    }

    /// Computes the trees: those of the whole network, and what repair makes of them in what is left of it.
    pub fn run(&self) -> trees::Repair {
        trees::repair(&self.topology, &self.group, trees::disjoint(&self.whole, &self.group))
    }
}

/// The network without the cables that the seed lets fail.
fn after_failures(whole: &Topology, rate: f64, seed: u64) -> Topology {
    let mut topology = whole.clone();
    let fabric = whole.fabric();
    let of_cable = |link: &LinkId| fabric.link(*link).and_then(|it| it.back).is_none_or(|back| *link < back);
    let cables = common::links(whole).filter(of_cable);
    for (cable, fails) in cables.zip(failing(seed, rate)) {
        if fails {
            topology.set_cable_down(cable, true);
        }
    }
    topology
}

/// A group of `members` hosts in the order in which they join, the source first; it reaches all others.
fn connected(topology: &Topology, order: &[u32], members: u32) -> Result<Group, WorkloadError> {
    let mut most = 0;
    for source in order {
        let others: Vec<HostId> = order.iter().filter(|it| *it != source).copied().map(HostId).collect();
        let Ok(everyone) = Group::new(topology, HostId(*source), &others) else { break };
        let cut_off = trees::unreachable(topology, &everyone);
        let reached = others.iter().filter(|host| cut_off.binary_search(host).is_err()).copied();
        let receivers: Vec<HostId> = reached.take((members as usize).saturating_sub(1)).collect();
        most = most.max(receivers.len() + 1);
        if most >= members as usize {
            let group = Group::new(topology, HostId(*source), &receivers);
            return Ok(group.expect("other hosts of the network are receivers of a group"));
        }
    }
    Err(WorkloadError::TooFewHosts { what: "members", needed: members.into(), there: most as u64 })
}

fn tables(repair: &trees::Repair, bound: usize) -> Tables {
    let all = &repair.trees;
    let count = all.len() as f64;
    let mean = |sum: usize| sum as f64 / count;
    let depths = || all.iter().map(|tree| tree.depth() as usize);
    let mut tables = common::empty_tables();
    for (name, value) in [
        ("trees", count),
        ("bound", bound as f64),
        ("shortfall", 1.0 - count / bound as f64),
        ("without_tree", f64::from(u8::from(all.is_empty()))),
        ("rebuilt", repair.rebuilt.len() as f64),
        ("depth", mean(depths().sum())),
        ("max_depth", depths().max().unwrap_or(0) as f64),
        ("tree_links", mean(all.iter().map(|tree| tree.links().len()).sum())),
        ("branching_nodes", mean(all.iter().map(|tree| tree.branching_nodes().len()).sum())),
        ("link_stress", trees::link_stress(all) as f64),
    ] {
        MeasureRow { name: name.to_owned(), value }.push(&mut tables.measures);
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Outcome;
    use crate::engine::Scale;
    use crate::experiment::Experiment;

    /// The verdict on D-5b if `trees` says which trees a search ends with.
    fn d_5b(trees: impl Fn(&TreeSearch) -> trees::Repair) -> (Option<f64>, Outcome) {
        let text = include_str!("../../../../experiments/datacast/fig5.toml");
        let experiment = Experiment::parse("datacast/fig5", text).unwrap();
        let mut all = Tables::gathering();
        for job in experiment.jobs(Engine::Trees, Scale::Small, None).unwrap() {
            let search = TreeSearch::new(&job.scenario, job.seed, Engine::Trees).unwrap();
            let tables = tables(&trees(&search), trees::bound(&search.topology, &search.group));
            job.gather(tables, &mut all).unwrap();
        }
        let verdicts = experiment.judge(Engine::Trees, Scale::Small, &all);
        let verdict = verdicts.into_iter().find(|verdict| verdict.claim == "D-5b").unwrap();
        (verdict.measured, verdict.verdict)
    }

    #[test]
    fn trees_that_are_not_repaired_turn_d_5b_to_miss() {
        let (repaired, verdict) = d_5b(TreeSearch::run);
        assert_eq!(verdict, Outcome::Pass, "{repaired:?}");
        let (left, verdict) = d_5b(|search| {
            let is_whole =
                |tree: &trees::SteinerTree| !tree.links().iter().any(|it| search.topology.is_down(it.link));
            let trees = trees::disjoint(&search.whole, &search.group).into_iter().filter(is_whole).collect();
            trees::Repair { trees, rebuilt: Vec::new(), given_up: Vec::new() }
        });
        assert!(verdict == Outcome::Miss && left > repaired, "{left:?}, {repaired:?} with repair");
    }
}
