//! Flows at the rates that a policy gave them, until it gives others. Capacity that a flow leaves of its ports stays
//! idle.

use headwater_units::FluidRate;

use super::state::{FlowNumber, Flows, MOMENT};

/// Everybody with a rate above zero.
pub(super) struct Rated {
    running: Vec<Running>,
    since: f64,
    /// When the first of them ends.
    first_end: f64,
    /// When the first coflow ends of which no flow waits.
    coflow_end: f64,
}

struct Running {
    flow: FlowNumber,
    /// Bits per nanosecond.
    rate: f64,
    end: f64,
}

impl Rated {
    /// From now on; `shares` are flows and their rates, coflow by coflow.
    pub(super) fn new(
        now: f64,
        flows: &mut Flows,
        shares: impl Iterator<Item = (FlowNumber, FluidRate)>,
    ) -> Rated {
        let mut rated =
            Rated { running: Vec::new(), since: now, first_end: f64::INFINITY, coflow_end: f64::INFINITY };
        let (mut coflow, mut ends, mut waits) = (None, 0.0, true);
        for (flow, rate) in shares {
            let own = flows.coflow[flow as usize];
            if coflow != Some(own) {
                rated.coflow_ends(ends, waits);
                (coflow, ends, waits) = (Some(own), 0.0, false);
            }
            // A policy's zero may come with a sign.
            let rate = rate.get() / 1e9;
            if rate <= 0.0 {
                waits = true;
                continue;
            }
            let end = flows.grid.end(now + flows.left[flow as usize] / rate);
            flows.speed[own as usize] += rate;
            rated.first_end = rated.first_end.min(end);
            ends = f64::max(ends, end);
            rated.running.push(Running { flow, rate, end });
        }
        rated.coflow_ends(ends, waits);
        rated
    }

    fn coflow_ends(&mut self, end: f64, waits: bool) {
        if !waits {
            self.coflow_end = self.coflow_end.min(end);
        }
    }

    /// When the next flow ends.
    pub(super) fn first_end(&self) -> f64 {
        self.first_end
    }

    /// When the next coflow ends, if nothing is planned anew before.
    pub(super) fn coflow_end(&self) -> f64 {
        self.coflow_end
    }

    /// Moves everybody on to `now`.
    pub(super) fn advance(&mut self, now: f64, flows: &mut Flows) {
        let passed = now - self.since;
        self.since = now;
        let (mut first_end, mut any) = (f64::INFINITY, false);
        for running in &self.running {
            if running.end <= now + MOMENT {
                flows.end(running.flow, running.end);
                flows.speed[flows.coflow[running.flow as usize] as usize] -= running.rate;
                any = true;
            } else {
                flows.send(running.flow, running.rate * passed);
                first_end = first_end.min(running.end);
            }
        }
        self.first_end = first_end;
        if any {
            self.running.retain(|running| running.end > now + MOMENT);
        }
        if self.coflow_end <= now + MOMENT {
            self.coflow_end = f64::INFINITY;
        }
    }
}
