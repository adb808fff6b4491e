//! Remaining bits of every flow and coflow, and the grid of moments at which something may end.

use headwater_policy::coflow::{Port, Ports};
use headwater_units::{Duration, FluidRate, Time};

use super::{Clock, CoflowSpec};

/// Events nearer to each other than this, in nanoseconds, are one.
pub(super) const MOMENT: f64 = 0.5;

/// Nanoseconds a second: rates in here are in bits per nanosecond.
const NANOS: f64 = 1e9;

/// A flow's number among all flows of a run, which is also the policy's name for it.
pub(super) type FlowNumber = u32;

/// Everything about flows that movers change. Times are floats of nanoseconds, sizes of bits.
pub(super) struct Flows {
    /// Bits left of each.
    pub(super) left: Vec<f64>,
    /// The position of its coflow.
    pub(super) coflow: Vec<u32>,
    pub(super) source: Vec<Port>,
    pub(super) receiver: Vec<Port>,
    /// Bits that each coflow's flows have sent, by position.
    pub(super) sent: Vec<f64>,
    /// At what rate each coflow sends now.
    pub(super) speed: Vec<f64>,
    /// Load of ports, in bits per nanosecond.
    pub(super) egress: Vec<f64>,
    pub(super) ingress: Vec<f64>,
    pub(super) grid: Grid,
    /// Flows that have ended since the engine last looked, with the moment of each.
    pub(super) ended: Vec<(FlowNumber, f64)>,
}

impl Flows {
    /// All flows that travel, by coflow, then source, receiver and position; and where each coflow's begin.
    pub(super) fn of(ports: &Ports, coflows: &[CoflowSpec], clock: Clock) -> (Flows, Vec<FlowNumber>) {
        let per_nano = |rates: &[FluidRate]| rates.iter().map(|rate| rate.get() / NANOS).collect();
        let mut flows = Flows {
            left: Vec::new(),
            coflow: Vec::new(),
            source: Vec::new(),
            receiver: Vec::new(),
            sent: vec![0.0; coflows.len()],
            speed: vec![0.0; coflows.len()],
            egress: per_nano(ports.egress()),
            ingress: per_nano(ports.ingress()),
            grid: Grid::of(clock),
            ended: Vec::new(),
        };
        let mut starts = vec![0];
        for (position, coflow) in (0..).zip(coflows) {
            let travels = |flow: &&super::FlowSpec| flow.source != flow.receiver && flow.bytes.get() > 0;
            let mut own: Vec<_> = coflow.flows.iter().filter(travels).collect();
            // The sort is stable: equal pairs keep the order in which they were given.
            own.sort_by_key(|flow| (flow.source, flow.receiver));
            for flow in own {
                flows.left.push(flow.bytes.get() as f64 * 8.0);
                flows.coflow.push(position);
                flows.source.push(flow.source);
                flows.receiver.push(flow.receiver);
            }
            starts.push(flows.left.len() as FlowNumber);
        }
        (flows, starts)
    }

    /// Takes from a flow what it has sent.
    pub(super) fn send(&mut self, flow: FlowNumber, bits: f64) {
        let left = &mut self.left[flow as usize];
        let bits = bits.min(*left);
        *left -= bits;
        self.sent[self.coflow[flow as usize] as usize] += bits;
    }

    /// Ends a flow.
    pub(super) fn end(&mut self, flow: FlowNumber, at: f64) {
        let left = std::mem::take(&mut self.left[flow as usize]);
        self.sent[self.coflow[flow as usize] as usize] += left;
        self.ended.push((flow, at));
    }
}

/// The moments at which a flow may end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Grid {
    Exact,
    /// Only at whole multiples of a step, in nanoseconds; coflows are admitted by epochs.
    Steps {
        epoch: u64,
        step: f64,
    },
}

impl Grid {
    fn of(clock: Clock) -> Grid {
        match clock {
            Clock::Exact => Grid::Exact,
            Clock::Epochs { epoch, step } => {
                Grid::Steps { epoch: epoch.as_nanos(), step: step.as_nanos() as f64 }
            }
        }
    }

    /// When a flow ends whose last byte comes at this time.
    pub(super) fn end(self, at: f64) -> f64 {
        match self {
            Grid::Exact => at,
            Grid::Steps { step, .. } => multiple(at, step),
        }
    }

    /// When a coflow is admitted that arrives at this time.
    pub(super) fn admission(self, arrival: Time) -> Time {
        match self {
            Grid::Exact => arrival,
            Grid::Steps { epoch, .. } => {
                let begun = arrival.as_nanos().div_ceil(epoch).saturating_sub(1);
                Time::from_nanos(begun * epoch)
            }
        }
    }
}

/// The first whole multiple of a period that is not before this time.
pub(super) fn next_tick(at: f64, period: Duration) -> f64 {
    multiple(at, period.as_nanos().max(1) as f64)
}

fn multiple(at: f64, period: f64) -> f64 {
    // A moment after a multiple is that multiple: it is there by rounding.
    ((at - MOMENT) / period).ceil().max(0.0) * period
}
