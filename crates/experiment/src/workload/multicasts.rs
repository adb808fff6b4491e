//! Files that go from one host to several each: replication of data, and deployment from registries (PAM §V).
//!
//! Arrivals, sizes, places, deadlines and what becomes of a task come from streams of their own, so that a change of the one leaves the
//! others as they are.

use headwater_units::{Duration, Time};
use serde::{Deserialize, Serialize};

use super::bounds::{count, rate};
use super::draw::{Draw, Stream};
use super::{Deadline, Network, Sizes, TaskFlows, TaskPlan, WorkloadError, plain};

/// Most receivers of a scheme's group.
const MOST_RECEIVERS: u32 = 64;

/// Sender and receivers of each task.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Spread {
    /// Any host sends to others, all drawn for each task (PAM §V: data replication).
    Replication {
        /// Receivers of a task; 3 in the paper.
        fanout: u32,
    },
    /// The first hosts are registries, one of which sends to any others (PAM §V: service deployment).
    Deployment {
        /// Number of registries; 3 in the paper.
        registries: u32,
        /// Mean number of receivers of a task, which is distributed geometrically: the exponential distribution in whole numbers; 3 in the
        /// paper.
        mean_fanout: f64,
    },
}

/// Each task should be done within `(times + z) c`, where c is what it takes in an empty network and z is distributed exponentially (PAM
/// §V-A2).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrawnDeadlines {
    /// 2 in the paper.
    pub times: f64,
    /// Mean of z; 1 in the paper.
    pub mean: f64,
}

/// Tasks that are flows of TCP NewReno instead, each to the receiver with the lowest number (PAM §V-B, "Impact on TCP").
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replaced {
    /// Part of all tasks; 0.5 in the paper.
    pub share: f64,
    /// The other tasks are left out.
    #[serde(default)]
    pub alone: bool,
}

/// See [`super::Workload::Multicasts`].
pub(super) struct Multicasts<'a> {
    pub(super) count: u32,
    pub(super) load: f64,
    pub(super) sizes: &'a Sizes,
    pub(super) spread: Spread,
    pub(super) deadlines: Option<DrawnDeadlines>,
    pub(super) replaced: Option<Replaced>,
}

impl Multicasts<'_> {
    pub(super) fn plan(&self, network: &Network, seed: u64) -> Result<Vec<TaskPlan>, WorkloadError> {
        count("count", self.count)?;
        within("load", self.load, self.load > 0.0 && self.load <= 10.0, "above 0 and at most 10")?;
        let (drawn, mean) = (self.sizes.drawn()?, self.sizes.mean()?);
        let senders = self.spread.senders(network)?;
        let per_second = self.load * f64::from(senders) * rate(network)? / mean;
        if let Some(DrawnDeadlines { times, mean }) = self.deadlines {
            within("deadlines.times", times, times >= 1.0 && times.is_finite(), "at least 1")?;
            within("deadlines.mean", mean, mean >= 0.0 && mean.is_finite(), "not negative")?;
        }
        if let Some(Replaced { share, .. }) = self.replaced {
            within("replaced.share", share, (0.0..=1.0).contains(&share), "a share, 0 to 1")?;
        }
        let stream = |stream| Draw::new(seed, stream);
        let (mut arrivals, mut of_size) = (stream(Stream::Arrivals), stream(Stream::Sizes));
        let (mut of_deadline, mut of_fate) = (stream(Stream::Deadlines), stream(Stream::Replaced));
        let mut at = 0.0;
        let task = |n: u32| {
            at += arrivals.gap(per_second);
            let (source, mut receivers) = self.spread.of_task(network, seed, n);
            let slack = self.deadlines.map(|it| it.times + of_deadline.gap(1.0) * it.mean);
            let by_tcp = self.replaced.is_some_and(|it| of_fate.unit() < it.share);
            if by_tcp {
                receivers = receivers.into_iter().min().into_iter().collect();
            }
            let first = receivers.remove(0);
            TaskPlan {
                packets: Some(drawn.at(of_size.unit())),
                further: receivers,
                deadline: slack.map(Deadline::TimesUnloaded),
                flows: if by_tcp { TaskFlows::Reno } else { TaskFlows::Scheme },
                ..plain(format!("t{n}"), Time::ZERO + Duration::from_secs_f64(at), vec![source], first)
            }
        };
        let tasks: Vec<TaskPlan> = (0..self.count).map(task).collect();
        let alone = self.replaced.is_some_and(|it| it.alone);
        Ok(tasks.into_iter().filter(|task| !alone || task.flows == TaskFlows::Reno).collect())
    }
}

impl Spread {
    /// How many hosts send.
    fn senders(self, network: &Network) -> Result<u32, WorkloadError> {
        let few = |what, needed: u32| WorkloadError::TooFewHosts {
            what,
            needed: needed.into(),
            there: network.hosts.into(),
        };
        match self {
            Spread::Replication { fanout } => {
                let ok = (1..=MOST_RECEIVERS).contains(&fanout);
                within("spread.fanout", fanout.into(), ok, "1 to 64")?;
                if fanout >= network.hosts {
                    return Err(few("spread.fanout (and the sender)", fanout + 1));
                }
                Ok(network.hosts)
            }
            Spread::Deployment { registries, mean_fanout } => {
                count("spread.registries", registries)?;
                if registries >= network.hosts {
                    return Err(few("spread.registries (and a receiver)", registries.saturating_add(1)));
                }
                let ok = (1.0..=64.0).contains(&mean_fanout);
                within("spread.mean_fanout", mean_fanout, ok, "1 to 64")?;
                Ok(registries)
            }
        }
    }

    /// Sender and receivers of the n-th task.
    fn of_task(self, network: &Network, seed: u64, n: u32) -> (u32, Vec<u32>) {
        let mut draw = Draw::new(seed, Stream::Task(n));
        match self {
            Spread::Replication { fanout } => {
                let mut hosts = draw.several(network.hosts, fanout + 1);
                (hosts.remove(0), hosts)
            }
            Spread::Deployment { registries, mean_fanout } => {
                let source = draw.below(registries);
                let others = network.hosts - registries;
                // P(fanout > k) = (1 - 1 / mean)^k.
                let beyond = (1.0 - draw.unit()).ln() / (1.0 - 1.0 / mean_fanout).ln();
                let fanout = if mean_fanout > 1.0 { beyond as u32 + 1 } else { 1 };
                let receivers = draw.several(others, fanout.min(others).min(MOST_RECEIVERS));
                (source, receivers.into_iter().map(|place| registries + place).collect())
            }
        }
    }
}

fn within(what: &'static str, value: f64, ok: bool, must: &'static str) -> Result<(), WorkloadError> {
    if ok { Ok(()) } else { Err(WorkloadError::OutOfRange { what, value, must }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes::Fixed { packets: 1000 };

    fn network(hosts: u32) -> Network {
        Network { hosts, host_rate: 100_000.0, pods: Vec::new(), racks: Vec::new() }
    }

    fn multicasts(spread: Spread) -> Multicasts<'static> {
        Multicasts { count: 4000, load: 0.9, sizes: &SIZES, spread, deadlines: None, replaced: None }
    }

    #[test]
    fn the_senders_uplinks_carry_the_load() {
        for (spread, senders) in [
            (Spread::Replication { fanout: 3 }, 48.0),
            (Spread::Deployment { registries: 3, mean_fanout: 3.0 }, 3.0),
        ] {
            let plans = multicasts(spread).plan(&network(48), 1).unwrap();
            let span = plans.last().unwrap().at.as_secs_f64();
            let load = 4000.0 * 1000.0 / span / senders / 100_000.0;
            assert!((0.85..0.95).contains(&load), "{spread:?}: {load}");
        }
    }

    #[test]
    fn registries_send_to_three_others_in_the_mean_and_never_to_each_other() {
        let spread = Spread::Deployment { registries: 3, mean_fanout: 3.0 };
        let plans = multicasts(spread).plan(&network(48), 1).unwrap();
        let receivers: Vec<usize> = plans.iter().map(|plan| plan.further.len() + 1).collect();
        let mean = receivers.iter().sum::<usize>() as f64 / 4000.0;
        assert!((2.9..3.1).contains(&mean), "{mean}");
        let alone = receivers.iter().filter(|count| **count == 1).count();
        assert!((1250..1420).contains(&alone), "a third: {alone}");
        assert!(plans.iter().all(|plan| plan.sources[0] < 3 && plan.receiver >= 3));
        assert!(plans.iter().all(|plan| plan.further.iter().all(|host| *host >= 3)));
    }

    #[test]
    fn deadlines_are_twice_the_least_time_and_more() {
        let spread = Spread::Replication { fanout: 3 };
        let drawn =
            Multicasts { deadlines: Some(DrawnDeadlines { times: 2.0, mean: 1.0 }), ..multicasts(spread) };
        let plans = drawn.plan(&network(48), 1).unwrap();
        let slacks: Vec<f64> = plans
            .iter()
            .map(|plan| match plan.deadline {
                Some(Deadline::TimesUnloaded(times)) => times,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(slacks.iter().all(|slack| *slack >= 2.0));
        let mean = slacks.iter().sum::<f64>() / 4000.0;
        assert!((2.9..3.1).contains(&mean), "{mean}");
        let without = multicasts(spread).plan(&network(48), 1).unwrap();
        assert!(plans.iter().zip(&without).all(|(a, b)| (a.at, &a.further) == (b.at, &b.further)));
    }

    #[test]
    fn half_of_the_tasks_are_flows_to_the_lowest_of_their_receivers() {
        let spread = Spread::Replication { fanout: 3 };
        let plan = |alone| {
            let replaced = Some(Replaced { share: 0.5, alone });
            Multicasts { replaced, ..multicasts(spread) }.plan(&network(48), 1).unwrap()
        };
        let (all, alone) = (plan(false), plan(true));
        let flows: Vec<&TaskPlan> = all.iter().filter(|plan| plan.flows == TaskFlows::Reno).collect();
        assert!((1900..2100).contains(&flows.len()) && all.len() == 4000);
        assert!(flows.iter().copied().eq(&alone), "the same flows at the same times");
        let before = multicasts(spread).plan(&network(48), 1).unwrap();
        for (now, before) in all.iter().zip(&before) {
            let lowest = before.further.iter().chain([&before.receiver]).min().unwrap();
            assert!(now.flows == TaskFlows::Scheme || now.receiver == *lowest && now.further.is_empty());
        }
    }
}
