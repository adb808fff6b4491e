//! Small runs whose times can be computed by hand.

use headwater_policy::coflow::{Aalo, Fair, Fifo, Port, PortDemand, PortPlan, Ports, Queues, Varys};
use headwater_policy::{PlanError, Policy};
use headwater_sim::coflow::{Clock, CoflowError, CoflowSpec, FlowSpec, Sizes, run};
use headwater_units::{BitRate, Bytes, Duration, Rank, TaskId, Time};

use super::cases::BYTE_PER_NS;

fn spec(task: u64, arrival: u64, flows: &[(u16, u16, u64)]) -> CoflowSpec {
    let flow = |&(source, receiver, bytes): &(u16, u16, u64)| FlowSpec {
        source: Port(source),
        receiver: Port(receiver),
        bytes: Bytes::new(bytes),
    };
    CoflowSpec {
        task: TaskId(task),
        arrival: Time::from_nanos(arrival),
        weight: 1.0,
        flows: flows.iter().map(flow).collect(),
    }
}

fn ports(hosts: u16) -> Ports {
    Ports::even(hosts, BitRate::new(BYTE_PER_NS))
}

fn finishes(specs: &[CoflowSpec], policy: &dyn Policy<PortDemand, PortPlan>, clock: Clock) -> Vec<u64> {
    let done = run(&ports(4), specs, policy, Sizes::Known, clock).unwrap();
    done.iter().map(|done| done.finish.as_nanos()).collect()
}

#[test]
fn a_flow_takes_its_bytes_over_the_rate_and_a_local_or_empty_one_no_time() {
    let specs = [spec(1, 500, &[(0, 1, 1_000)]), spec(2, 700, &[(2, 2, 1_000), (3, 1, 0)])];
    assert_eq!(finishes(&specs, &Fair, Clock::Exact), [1_500, 700]);
}

/// Both share host 0's egress until the shorter is through; the third flow shares nothing.
#[test]
fn fair_flows_share_a_port_and_take_what_others_leave() {
    let specs =
        [spec(1, 0, &[(0, 1, 1_000)]), spec(2, 0, &[(0, 2, 500)]), spec(3, 0, &[(3, 3, 9), (2, 3, 800)])];
    assert_eq!(finishes(&specs, &Fair, Clock::Exact), [1_500, 1_000, 800]);
}

#[test]
fn the_first_coflow_is_served_first_and_the_next_takes_idle_ports() {
    let specs = [spec(1, 0, &[(0, 1, 1_000)]), spec(2, 10, &[(0, 2, 500), (3, 1, 100), (3, 2, 100)])];
    // 3 to 2 at once, from 10 to 110; then 0 to 2 and 3 to 1 once the first is through.
    assert_eq!(finishes(&specs, &Fifo, Clock::Exact), [1_000, 1_500]);
}

/// All flows of a coflow end with its bottleneck; the other port keeps half of its capacity.
#[test]
fn minimum_rates_end_all_flows_of_a_coflow_together() {
    let specs = [spec(1, 0, &[(0, 1, 1_000), (2, 3, 500)]), spec(2, 0, &[(2, 1, 10_000)])];
    let done = finishes(&specs, &Varys::minimum_rates(ports(4)), Clock::Exact);
    assert_eq!(done, [1_000, 11_000]);
}

/// A coflow that has sent more than a queue holds goes behind a new one, at the next round of the coordinator.
#[test]
fn aalo_puts_a_coflow_behind_others_once_it_has_sent_its_queues_limit() {
    let queues = Queues {
        first: Bytes::new(1_000),
        factor: 10,
        period: Duration::from_nanos(400),
        ..Queues::default()
    };
    let policy = Aalo { queues, ..Aalo::new(ports(4)) };
    let specs = [spec(1, 0, &[(0, 1, 3_000)]), spec(2, 1, &[(0, 2, 600)])];
    // The limit is passed at 1,001, the coordinator speaks at 1,200; the second is through at 1,800.
    assert_eq!(finishes(&specs, &policy, Clock::Exact), [3_600, 1_800]);
}

/// As CoflowSim goes on: admitted with the epoch before its arrival, and over with a step.
#[test]
fn epochs_admit_early_and_end_with_a_step() {
    let clock = Clock::Epochs { epoch: Duration::from_nanos(1_000), step: Duration::from_nanos(100) };
    let specs = [spec(1, 0, &[(0, 1, 250)]), spec(2, 1_700, &[(0, 1, 100), (0, 2, 110)])];
    let done = run(&ports(4), &specs, &Fifo, Sizes::Hidden, clock).unwrap();
    let starts: Vec<u64> = done.iter().map(|done| done.start.as_nanos()).collect();
    let ends: Vec<u64> = done.iter().map(|done| done.finish.as_nanos()).collect();
    // The second flow of the second coflow begins at 1,100 and needs two steps.
    assert_eq!((starts, ends), (vec![0, 1_000], vec![300, 1_300]));
    let exact = run(&ports(4), &specs, &Fifo, Sizes::Hidden, Clock::Exact).unwrap();
    assert_eq!(exact[1].completion_time(), Duration::from_nanos(210));
}

/// Lets everybody wait.
struct Never;

impl Policy<PortDemand, PortPlan> for Never {
    fn plan(&self, _now: Time, demand: &PortDemand) -> Result<PortPlan, PlanError> {
        Ok(PortPlan::Ranks(vec![None::<Rank>; demand.len()]))
    }
}

#[test]
fn what_cannot_be_run_is_refused_with_what_is_wrong() {
    let fails = |specs: &[CoflowSpec], policy: &dyn Policy<PortDemand, PortPlan>, sizes, clock| {
        run(&ports(4), specs, policy, sizes, clock).unwrap_err()
    };
    let one = [spec(1, 0, &[(0, 1, 10)])];
    let beyond = fails(&[spec(7, 0, &[(0, 4, 1)])], &Fair, Sizes::Known, Clock::Exact);
    assert_eq!(beyond, CoflowError::NoSuchPort { task: TaskId(7), port: 4, ports: 4 });
    let twice = fails(&[one[0].clone(), one[0].clone()], &Fair, Sizes::Known, Clock::Exact);
    assert_eq!(twice, CoflowError::Twice(TaskId(1)));
    let hidden = fails(&one, &Varys::new(ports(4)), Sizes::Hidden, Clock::Exact);
    assert_eq!(hidden, CoflowError::Plan(PlanError::UnknownSize(TaskId(1))));
    assert_eq!(fails(&one, &Never, Sizes::Known, Clock::Exact), CoflowError::Stuck { flows: 1 });
    let (epoch, step) = (Duration::from_nanos(10), Duration::from_nanos(3));
    let clock = Clock::Epochs { epoch, step };
    assert_eq!(fails(&one, &Fair, Sizes::Known, clock), CoflowError::Epochs { epoch, step });
    let dead = Ports::new([(BitRate::new(1), BitRate::ZERO), (BitRate::new(1), BitRate::new(1))]);
    let dead = run(&dead, &one, &Fair, Sizes::Known, Clock::Exact);
    assert_eq!(dead, Err(CoflowError::DeadPort(0)));
}
