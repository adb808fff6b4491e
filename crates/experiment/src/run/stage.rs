//! A scenario for engines outside the models: which host wants which object, what to look at, and how records become
//! the tables that all engines write.

use headwater_fabric::{LinkId, Topology};
use headwater_units::{BitRate, Duration, Time};

use super::RunError;
use super::common::{self, Ground};
use super::packet::{self, Report};
use crate::engine::Engine;
use crate::scenario::{Scenario, Scheme};
use crate::table::Tables;
use crate::workload::{self, Deadline};
use headwater_sim::packet::{Records, TaskPlan};

/// Facts that the packet engine has of a run before it begins, but for the machines.
pub struct Stage {
    /// By arrival; behind them the flows of the background. Those without an end have more packets than can be sent.
    pub tasks: Vec<TaskPlan>,
    /// The schemes of the background's flows, which are the last of the tasks.
    pub background: Vec<Scheme>,
    /// The run ends then, whatever is left to do; with its last task if absent.
    pub until: Option<Time>,
    /// How often flows and queues are looked at, if they are.
    pub every: Option<Duration>,
    /// The queues that are looked at, by the names of their links.
    pub queues: Vec<(String, LinkId)>,
    /// The largest sum of weights on a link (PPUSH Eq. 20), as stated or by the slowest link.
    pub theta_ceiling: f64,
    /// Facts that the controller is told of each host.
    pub hosts: Vec<HostFacts>,
    report: Report,
}

/// Facts that the controller is told of a host: Algorithm 1 must know the links that flows share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// Capacity of its links away from it.
    pub uplink: BitRate,
    /// See [`HostFacts::uplink`].
    pub downlink: BitRate,
    /// The switch that it shares with others where that carries less than their links together, and what it carries.
    pub rack: Option<(String, BitRate)>,
}

impl Stage {
    /// Stage of a scenario with this seed.
    ///
    /// # Errors
    /// [`RunError`] if it cannot be run at all.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<Self, RunError> {
        let ground = Ground::new(scenario, seed)?;
        if !scenario.workload.join_windows().is_empty() {
            return Err(common::unsupported(Engine::Netns, "flows that join until a queue is stable"));
        }
        if scenario.permuted_background.is_some() || scenario.arriving_background.is_some() {
            return Err(common::unsupported(Engine::Netns, "background that the seed draws"));
        }
        if scenario.scheme != Scheme::Pam && ground.plans.iter().any(|plan| !plan.further.is_empty()) {
            return Err(common::unsupported(Engine::Netns, "tasks of several receivers"));
        }
        if ground.plans.iter().any(|plan| !plan.awaited) {
            return Err(common::unsupported(Engine::Netns, "tasks that nobody waits for"));
        }
        let background = scenario.background.iter().map(workload::TaskPlan::of_background);
        let plans = ground.plans.iter().cloned().chain(background);
        let tasks = plans.map(|plan| packet::task(&plan, &ground.network, ground.until));
        let mut tasks: Vec<TaskPlan> = tasks.collect();
        let mut report = Report::new(scenario, &ground, 1);
        if scenario.scheme == Scheme::Pam {
            for (task, plan) in tasks.iter_mut().zip(&ground.plans) {
                task.deadline = plan.deadline.map(after_arrival).transpose()?;
            }
            report.expect(&tasks[..ground.plans.len()]);
        }
        let theta_ceiling = packet::theta_ceiling(scenario, &ground.topology, ground.network.host_rate);
        Ok(Stage {
            tasks,
            background: scenario.background.iter().map(|flow| flow.scheme).collect(),
            until: ground.until,
            every: scenario.sample.as_ref().map(|sample| sample.every),
            queues: common::watched(scenario, &ground.topology),
            theta_ceiling,
            hosts: hosts(&ground.topology),
            report,
        })
    }

    /// The tables that claims read. Samples are the values of their moments; those of queues and goodput are means since
    /// the moment before.
    pub fn tables(&self, records: &Records) -> Tables {
        self.report.tables(records)
    }
}

fn after_arrival(deadline: Deadline) -> Result<Duration, RunError> {
    match deadline {
        Deadline::After(span) => Ok(span),
        Deadline::TimesUnloaded(_) => {
            Err(common::unsupported(Engine::Netns, "deadlines by what a task takes in an empty network"))
        }
    }
}

fn hosts(topology: &Topology) -> Vec<HostFacts> {
    let hosts = packet::lines(topology).into_iter().zip(packet::racks(topology));
    hosts.map(|((uplink, downlink), rack)| HostFacts { uplink, downlink, rack }).collect()
}
