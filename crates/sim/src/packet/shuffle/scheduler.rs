//! When a coflow scheduler is asked, and what it is told.
//!
//! A scheduler of rates is told the flows that are open: capacity that it gave to others would stay idle. One of ranks is told all
//! that is left of all jobs that have arrived, since it goes by sizes.

use headwater_policy::coflow::{
    Aalo, DjangoLike, Port, PortCoflow, PortDemand, PortFlow, PortPlan, Ports, Sincronia,
};
use headwater_policy::{PlanError, Policy, Wakes};
use headwater_units::{BitRate, Bytes, Duration, FlowId, FluidRate, Rank, TaskId, Time};

use super::hadoop::{Flow, Hadoop};
use super::setup::Order;

/// A scheduler and what it knows.
pub(super) struct Scheduler {
    rule: Rule,
    /// By job: what it is known to have sent.
    known_sent: Vec<u64>,
    /// By job: its rank.
    ranks: Vec<Rank>,
    /// By flow: its rate.
    rates: Vec<FluidRate>,
    /// By flow: the rate that its host was told last, and whether that has changed by more than 1 % (Courier's signature).
    told: Vec<(f64, bool)>,
    pub(super) plans: u64,
}

enum Rule {
    None,
    Rates { policy: Box<dyn Policy<PortDemand, PortPlan>>, period: Duration },
    Ranks { policy: Sincronia, inverted: bool },
}

/// Kind of a plan.
pub(super) enum Planned {
    Nothing,
    /// Every open flow has a rate.
    Rates,
    /// Every job has a rank.
    Ranks,
}

impl Scheduler {
    pub(super) fn new(order: &Order, hosts: u16, rate: BitRate, hadoop: &Hadoop) -> Result<Self, PlanError> {
        let ports = Ports::even(hosts, rate);
        let rule = match order {
            Order::None => Rule::None,
            Order::Aalo(queues) => {
                let policy = Aalo { queues: queues.clone(), ..Aalo::new(ports) };
                Rule::Rates { policy: Box::new(policy), period: queues.period }
            }
            Order::Sincronia => Rule::Ranks { policy: Sincronia, inverted: false },
            Order::SincroniaInverted => Rule::Ranks { policy: Sincronia, inverted: true },
            Order::DjangoLike { flows, period } => {
                Rule::Rates { policy: Box::new(DjangoLike::new(ports, *flows)?), period: *period }
            }
        };
        Ok(Scheduler {
            rule,
            known_sent: vec![0; hadoop.jobs.len()],
            ranks: vec![Rank::LAST; hadoop.jobs.len()],
            rates: vec![FluidRate::ZERO; hadoop.flows.len()],
            told: vec![(f64::NAN, false); hadoop.flows.len()],
            plans: 0,
        })
    }

    /// Whether open flows have rates.
    pub(super) fn gives_rates(&self) -> bool {
        matches!(self.rule, Rule::Rates { .. })
    }

    /// Whether jobs have ranks.
    pub(super) fn gives_ranks(&self) -> bool {
        matches!(self.rule, Rule::Ranks { .. })
    }

    /// Whether it is asked when flows begin and end: at once, whatever the policy's period is.
    pub(super) fn follows_flows(&self) -> bool {
        self.wakes().is_some_and(|wakes| wakes.flow_end)
    }

    /// Whether it is asked when jobs come and go; one that follows flows knows of jobs by these.
    pub(super) fn follows_jobs(&self) -> bool {
        self.wakes().is_some_and(|wakes| wakes.arrival && wakes.coflow_end && !wakes.flow_end)
    }

    fn wakes(&self) -> Option<Wakes> {
        match &self.rule {
            Rule::None => None,
            Rule::Rates { policy, .. } => Some(policy.wakes()),
            Rule::Ranks { policy, .. } => Some(policy.wakes()),
        }
    }

    /// How often it hears what coflows have sent: as set up, shrunk with the trace, which a policy's own period is not.
    pub(super) fn period(&self) -> Option<Duration> {
        match &self.rule {
            Rule::Rates { period, .. } => Some(*period),
            Rule::None | Rule::Ranks { .. } => None,
        }
    }

    pub(super) fn rank(&self, job: u32) -> Rank {
        self.ranks[job as usize]
    }

    pub(super) fn rate(&self, flow: u32) -> FluidRate {
        self.rates[flow as usize]
    }

    /// Whether the last plan changed the rate of an open flow.
    pub(super) fn is_news(&self, flow: u32) -> bool {
        self.told[flow as usize].1
    }

    /// It hears what coflows have sent; whether that may change its plan.
    pub(super) fn hear(&mut self, hadoop: &Hadoop) -> bool {
        let Rule::Rates { policy, .. } = &self.rule else { return false };
        let mut matters = false;
        for (known, job) in self.known_sent.iter_mut().zip(&hadoop.jobs) {
            if !job.is_running() || *known == job.sent {
                continue;
            }
            let limit = policy.next_threshold(Bytes::new(*known));
            matters |= limit.is_none_or(|limit| Bytes::new(job.sent) >= limit);
            *known = job.sent;
        }
        matters
    }

    /// Asks.
    pub(super) fn plan(&mut self, now: Time, hadoop: &Hadoop) -> Planned {
        self.plans += 1;
        match &self.rule {
            Rule::None => Planned::Nothing,
            Rule::Rates { policy, .. } => {
                let demand = self.open_flows(hadoop);
                let plan = policy.plan(now, &demand).expect("the demand is in order");
                let PortPlan::Rates(rates) = plan else { panic!("a policy of rates gives rates") };
                for ((_, flow), rate) in demand.flows().zip(rates) {
                    let at = flow.flow.0 as usize;
                    self.rates[at] = rate;
                    let (told, is_news) = &mut self.told[at];
                    // A rate that was never told is NaN.
                    *is_news = told.is_nan() || (rate.get() - *told).abs() > 0.01 * *told;
                    if *is_news {
                        *told = rate.get();
                    }
                }
                Planned::Rates
            }
            Rule::Ranks { policy, inverted } => {
                let demand = all_left(hadoop);
                let plan = policy.plan(now, &demand).expect("the demand is in order");
                let PortPlan::Ranks(ranks) = plan else { panic!("a policy of ranks gives ranks") };
                let last = ranks.iter().flatten().max().copied().unwrap_or(Rank::LAST);
                for ((at, _), rank) in demand.flows().zip(ranks) {
                    let job = demand.coflows[at].task.0 as usize;
                    let turned = |rank: Rank| Rank::new(last.get() - rank.get());
                    let rank = if *inverted { rank.map(turned) } else { rank };
                    self.ranks[job] = rank.unwrap_or(Rank::LAST);
                }
                Planned::Ranks
            }
        }
    }

    fn open_flows(&self, hadoop: &Hadoop) -> PortDemand {
        let mut demand = PortDemand::default();
        for (job, from, to, number) in &hadoop.active {
            let Flow { left, .. } = hadoop.flows[*number as usize];
            let flow = PortFlow {
                flow: FlowId(u64::from(*number)),
                remaining: Some(Bytes::new(left.max(1))),
                source: Port(*from),
                receiver: Port(*to),
            };
            match demand.coflows.last_mut().filter(|coflow| coflow.task.0 == u64::from(*job)) {
                Some(coflow) => coflow.flows.push(flow),
                None => demand.coflows.push(PortCoflow {
                    task: TaskId(u64::from(*job)),
                    arrival: hadoop.jobs[*job as usize].row.arrival,
                    weight: 1.0,
                    sent: Bytes::new(self.known_sent[*job as usize]),
                    flows: vec![flow],
                }),
            }
        }
        in_order(demand)
    }
}

/// Coflows by arrival, as policies want them: jobs that wait for others do not arrive in the order of their numbers.
fn in_order(mut demand: PortDemand) -> PortDemand {
    demand.coflows.sort_by_key(|coflow| (coflow.arrival, coflow.task));
    demand
}

/// One flow for all that is left of a job between two hosts.
fn all_left(hadoop: &Hadoop) -> PortDemand {
    let running = (0..).zip(&hadoop.jobs).filter(|(_, job)| job.is_running());
    let coflows = running.map(|(number, job)| {
        let left = job.left.iter().filter(|(_, left)| **left > 0);
        let flow = |((from, to), left): (&(u16, u16), &u64)| PortFlow {
            flow: FlowId(u64::from(*from) << 16 | u64::from(*to)),
            remaining: Some(Bytes::new(*left)),
            source: Port(*from),
            receiver: Port(*to),
        };
        PortCoflow {
            task: TaskId(number),
            arrival: job.row.arrival,
            weight: 1.0,
            sent: Bytes::new(job.sent),
            flows: left.map(flow).collect(),
        }
    });
    in_order(PortDemand { coflows: coflows.filter(|coflow| !coflow.flows.is_empty()).collect() })
}
