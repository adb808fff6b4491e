//! Foundations of the claims on coflows: with one taken out, the claims fail.

use std::collections::BTreeSet;

use headwater_experiment::workload::coflow_trace::CoflowTrace;
use headwater_policy::coflow::courier::{Address, Schedule, Scheduled, merge};
use headwater_policy::coflow::{Aalo, Fair, Port, PortDemand, PortPlan, Ports, Sincronia};
use headwater_policy::{PlanError, Policy};
use headwater_sim::coflow::{Clock, CoflowSpec, Sizes, run};
use headwater_units::{BitRate, Bytes, FlowId, PathId, Rank, Time};

/// The first coflows of the public trace, on its ports.
fn part() -> (Ports, Vec<CoflowSpec>) {
    let mut trace = CoflowTrace::parse(include_bytes!("../data/fb2010-1hr-150-0.txt")).unwrap();
    trace.coflows.truncate(120);
    (Ports::even(trace.ports, BitRate::new(1_000_000_000)), trace.specs(trace.ports))
}

fn mean(policy: &dyn Policy<PortDemand, PortPlan>, sizes: Sizes) -> f64 {
    let (ports, specs) = part();
    let done = run(&ports, &specs, policy, sizes, Clock::Exact).unwrap();
    done.iter().map(|done| done.completion_time().as_secs_f64()).sum::<f64>() / done.len() as f64
}

/// The most important last.
struct Inverted<P>(P);

impl<P: Policy<PortDemand, PortPlan>> Policy<PortDemand, PortPlan> for Inverted<P> {
    fn plan(&self, now: Time, demand: &PortDemand) -> Result<PortPlan, PlanError> {
        let PortPlan::Ranks(ranks) = self.0.plan(now, demand)? else {
            panic!("a policy by rank is inverted")
        };
        let inverted =
            ranks.into_iter().map(|rank| Some(Rank::new(Rank::LAST.get() - 1 - rank?.get()))).collect();
        Ok(PortPlan::Ranks(inverted))
    }
}

#[test]
fn inverted_ranks_turn_the_claim_that_sincronia_is_faster_than_aalo_and_fair_sharing() {
    let (ports, _) = part();
    let (aalo, fair) = (mean(&Aalo::new(ports), Sizes::Hidden), mean(&Fair, Sizes::Hidden));
    let claim = |ours: f64| ours < aalo && aalo < fair;
    let (right, wrong) = (mean(&Sincronia, Sizes::Known), mean(&Inverted(Sincronia), Sizes::Known));
    assert!(claim(right), "{right}, aalo {aalo}, fair {fair}");
    assert!(!claim(wrong) && wrong > fair, "{wrong}, aalo {aalo}, fair {fair}");
}

/// Courier Fig. 1 (C-conc): n coflows of m mappers and r reducers on four hosts make n m r flows, and four with Courier. What stands for
/// a Courier that does not merge is one that pins each flow to a path of its own.
#[test]
fn without_merging_the_claim_of_one_flow_per_pair_of_hosts_fails() {
    let (coflows, mappers, reducers) = (3, 4, 6);
    let schedule = |merges: bool| {
        let flow = |number: u32| {
            let (mapper, reducer) = (number / reducers % mappers, number % reducers);
            Scheduled {
                flow: FlowId(u64::from(number)),
                address: Address {
                    source: Port((mapper % 2) as u16),
                    receiver: Port((2 + reducer % 2) as u16),
                    path: (!merges).then_some(PathId(number)),
                },
                size: Bytes::new(1_000),
            }
        };
        Schedule::Even((0..coflows * mappers * reducers).map(flow).collect())
    };
    let flows = |merges: bool| merge(&schedule(merges)).len();
    let claim = |flows: usize| flows == 4;
    assert!(claim(flows(true)));
    assert!(!claim(flows(false)) && flows(false) == (coflows * mappers * reducers) as usize);
    let pairs: BTreeSet<_> =
        merge(&schedule(false)).iter().map(|it| (it.address.source, it.address.receiver)).collect();
    assert_eq!(pairs.len(), 4);
}
