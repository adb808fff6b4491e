//! Background beside the workload: flows of other rules, long ones of its own, and requests that nobody waits for.

use headwater_units::{Duration, Time};
use serde::{Deserialize, Serialize};

use super::{DataClass, Scenario, Scheme};
use crate::text;
use crate::workload::{Access, Arriving, Network, TaskFlows, TaskPlan, Workload, WorkloadError};

/// A flow that sends as much as its rules let it, beside the workload and whatever its scheme.
///
/// It has a row among the flows and samples under its name, as the workload's have. It is no task: it has no row among the
/// tasks, no part in a run's `goodput` and completion times, and no run waits for its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// Name in the claims; no task's name.
    pub name: String,
    /// The host that sends.
    pub from: u32,
    /// The host that receives.
    pub to: u32,
    /// Its rules: `reno`, `cubic`, `bic`, `vegas`, `dctcp`, `dccp` or `ndp`.
    pub scheme: Scheme,
    /// When it starts; at once if absent.
    #[serde(default, with = "text::one")]
    pub start: Duration,
    /// When it stops; with the run if absent.
    #[serde(default, with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub stop: Option<Duration>,
}

/// Long flows beside the workload, for the whole run (SCDP §IV-A).
///
/// Each is a [`Background`] of the scenario's own scheme; they are called `background-0` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermutedBackground {
    /// Part of all hosts, drawn by the seed, that each send to one other of them and receive from one other; 0.3 in the
    /// paper.
    pub share: f64,
    /// They do nothing else: the workload is drawn from all other hosts, and meets the long flows within the network alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
    /// In which class their symbols queue where the scheme has no levels of its own; gentle.
    #[serde(default = "gentle", skip_serializing_if = "is_gentle")]
    pub class: DataClass,
}

/// Requests beside the workload that arrive as a Poisson process, for the whole run (SCDP §IV-B, §IV-C).
///
/// They are of the scenario's own scheme. Nobody waits for them, and they have no rows: a run has their goodput as a measure,
/// `requested_goodput`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrivingBackground {
    /// The part of all hosts' links that they ask for on average; 0.5 to 0.8 in the paper. Counted are bytes that come to
    /// somebody: those of a write once for each replica.
    pub load: f64,
    /// Of each request.
    pub packets: u64,
    /// Kinds of requests, each as often as the others. A write of one replica is a flow between random hosts.
    pub access: Vec<Access>,
    /// Copies of each block; 1 if absent.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub replicas: u32,
    /// In which class their symbols queue where the scheme has no levels of its own; gentle.
    #[serde(default = "gentle", skip_serializing_if = "is_gentle")]
    pub class: DataClass,
}

impl TaskPlan {
    /// A flow of background, in the same words: without an end but its stop.
    pub fn of_background(flow: &Background) -> TaskPlan {
        TaskPlan {
            name: flow.name.clone(),
            at: Time::ZERO + flow.start,
            packets: None,
            sources: vec![flow.from],
            receiver: flow.to,
            further: Vec::new(),
            relayed: false,
            theta: None,
            deadline: None,
            flows: TaskFlows::Scheme,
            stop: flow.stop.map(|stop| Time::ZERO + stop),
            awaited: false,
        }
    }
}

impl PermutedBackground {
    /// The flows of one seed, from and to.
    pub(crate) fn pairs(&self, network: &Network, seed: u64) -> Vec<(u32, u32)> {
        Workload::permuted_pairs(network, self.share, seed)
    }
}

impl Scenario {
    /// The workload's tasks of one seed.
    pub(crate) fn plan(&self, network: &Network, seed: u64) -> Result<Vec<TaskPlan>, WorkloadError> {
        let busy = self.permuted_background.filter(|it| it.apart).map(|it| it.pairs(network, seed));
        let busy: Vec<u32> = busy.into_iter().flatten().map(|(from, _)| from).collect();
        self.workload.plan_apart(network, &busy, seed)
    }
}

impl ArrivingBackground {
    /// Requests that arrive.
    pub(crate) fn arriving(&self) -> Arriving<'_> {
        Arriving { load: self.load, packets: self.packets, replicas: self.replicas, access: &self.access }
    }
}

fn gentle() -> DataClass {
    DataClass::Gentle
}

fn is_gentle(class: &DataClass) -> bool {
    *class == DataClass::Gentle
}

fn one() -> u32 {
    1
}

fn is_one(replicas: &u32) -> bool {
    *replicas == 1
}
