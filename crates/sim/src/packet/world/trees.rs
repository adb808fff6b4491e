//! Groups that are served by trees (Datacast): their trees, orders to their ends, and their results.

use headwater_fabric::HostId;
use headwater_fabric::trees::{self, Group, PacketSizes, Switches, TreeLink};
use headwater_transport::tree::TreeStats;
use headwater_units::{BitRate, Bytes, FlowId, PathId};

use super::{Machine, World};
use crate::packet::director::tree_of;
use crate::packet::records::TreeRow;
use crate::packet::segments::TreeInstaller;
use crate::packet::setup::{SetupError, TaskPlan, TreeSetup};

/// Trees of a group are numbered in eight bits.
const MOST: usize = 256;

impl World {
    /// Finds the trees of every task's group.
    pub(super) fn find_trees(&mut self, setup: &TreeSetup) -> Result<(), SetupError> {
        let topology = &self.setup.topology;
        let tasks = self.setup.tasks.iter().zip(0u32..);
        for (plan, task) in tasks.filter(|(plan, _)| self.setup.is_coded(plan)) {
            let receivers: Vec<HostId> = plan.receivers().map(HostId).collect();
            let group = Group::new(topology, HostId(plan.sources[0]), &receivers);
            let mut found = group.map(|group| trees::disjoint(topology, &group)).unwrap_or_default();
            // Nobody could ask along a link without a twin.
            let has_twin =
                |it: &TreeLink| topology.fabric().link(it.link).is_some_and(|link| link.back.is_some());
            found.retain(|tree| tree.links().iter().all(has_twin));
            found.truncate(setup.most.min(MOST));
            if found.is_empty() {
                return Err(SetupError::NoTree { task: plan.name.clone() });
            }
            self.trees_to_install.insert(task, found);
        }
        Ok(())
    }

    /// The trees of a task get their places, now that its receivers have endpoints.
    pub(super) fn install_trees(&mut self, task: u32, plan: &TaskPlan, setup: &TreeSetup) {
        let Some(found) = self.trees_to_install.remove(&task) else { return };
        let topology = &self.setup.topology;
        let point = |host: u32| topology.point_of(HostId(host)).expect("the set-up was checked");
        let running = &mut self.tasks[task as usize];
        let receivers: Vec<_> = plan.receivers().map(point).zip(running.receivers.iter().copied()).collect();
        let source = self.sources[plan.sources[0] as usize];
        let mut installer = TreeInstaller {
            topology,
            segments: &mut self.delivery.network.segments,
            nodes: &mut self.delivery.nodes,
            store: setup.store,
        };
        let installed = found.iter().map(|tree| installer.install(tree, source, &receivers));
        running.trees = installed.map(|tree| tree.expect("each of its links has a twin")).collect();
    }

    /// The path of a tree's packets from its source, or to it from a receiver by its place in the task.
    pub(super) fn path_of_tree(&self, task: u32, flow: FlowId, receiver: Option<usize>) -> Option<PathId> {
        let tree = self.tasks.get(task as usize)?.trees.get(tree_of(flow))?;
        match receiver {
            Some(place) => tree.receivers.get(place).copied(),
            None => Some(tree.source),
        }
    }

    /// Capacity of the fastest link that leaves a host.
    pub(super) fn fastest_link(&self, host: u32) -> Option<BitRate> {
        let fabric = self.setup.topology.fabric();
        let leaving = self.setup.topology.point_of(HostId(host)).map_or(&[][..], |at| fabric.leaving(at));
        leaving.iter().filter_map(|link| fabric.link(*link)?.capacity).max()
    }

    /// Rate of each tree of a task beside the others, before any is installed, as far as the source knows: all links as
    /// fast as its own. The source finds out which one is the slowest (Datacast §V-B); no rule finds out the load of
    /// others' interests: without room for them queues would only grow.
    pub(super) fn rates_of_trees(&self, task: u32) -> Vec<Option<BitRate>> {
        let Some(trees) = self.trees_to_install.get(&task) else { return Vec::new() };
        let rate = self.fastest_link(self.setup.tasks[task as usize].sources[0]);
        let symbol = self.setup.sizes.data.unwrap_or(Bytes::new(1500));
        let interest = self.setup.sizes.ack.unwrap_or(self.setup.sizes.around);
        let sizes = PacketSizes { counted: symbol, symbol, interest };
        trees::rates(&self.setup.topology, trees, Switches::Stores, sizes, |_| rate)
    }

    /// Counters of a tree's source.
    fn tree_stats(&self, task: usize, tree: usize) -> Option<TreeStats> {
        let flow = self.tasks[task].flows.iter().find(|flowing| tree_of(flowing.flow) == tree)?;
        match self.machine(self.sources[flow.source as usize]) {
            Machine::Source(source) => source.flow(flow.flow)?.tree,
            _ => None,
        }
    }

    /// Half of the run is over: what is counted from here on is not the beginning's any more.
    pub(super) fn note_midway(&mut self) {
        for task in 0..self.tasks.len() {
            let trees = 0..self.tasks[task].trees.len();
            let counts = trees.map(|tree| self.tree_stats(task, tree).unwrap_or_default());
            let midway = counts.map(|stats| (stats.new, stats.repeated)).collect();
            let running = &mut self.tasks[task];
            running.midway = midway;
            running.receptions.iter_mut().for_each(|reception| reception.midway = reception.useful);
        }
    }

    /// Records the results of each tree.
    pub(super) fn note_trees(&mut self) {
        for task in 0..self.tasks.len() {
            for (tree, installed) in self.tasks[task].trees.iter().enumerate() {
                let TreeStats { new, repeated, duplicates, .. } =
                    self.tree_stats(task, tree).unwrap_or_default();
                let running = &self.tasks[task];
                let slowest = |count: fn(&super::Reception) -> u64| {
                    running.receptions.iter().map(count).min().unwrap_or(0)
                };
                self.records.trees.push(TreeRow {
                    task: task as u32,
                    tree: tree as u32,
                    links: installed.links,
                    carried: self.delivery.network.segments.carried(installed.number),
                    new,
                    repeated,
                    duplicates,
                    midway: running.midway.get(tree).copied(),
                    settled: slowest(|reception| reception.useful - reception.midway),
                    nodes: installed.stats(&self.delivery.nodes),
                });
            }
        }
    }
}
