//! The ports of a switch, and what is left of them while a policy hands out rates.

use headwater_units::{BitRate, FluidRate};

use super::PortFlow;

/// A host's place at the switch, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u16);

/// Rest of a port that counts as nothing, as a part of its capacity.
const ROUNDING: f64 = 1e-9;

/// Rates at which every host can send and receive.
#[derive(Clone, Debug, PartialEq)]
pub struct Ports {
    egress: Vec<FluidRate>,
    ingress: Vec<FluidRate>,
}

impl Ports {
    /// Ports of `hosts` hosts, each with the same rate in both directions.
    pub fn even(hosts: u16, rate: BitRate) -> Ports {
        let all = vec![FluidRate::from(rate); usize::from(hosts)];
        Ports { egress: all.clone(), ingress: all }
    }

    /// Hosts with an egress and an ingress rate each.
    pub fn new(hosts: impl IntoIterator<Item = (BitRate, BitRate)>) -> Ports {
        let pair = |(egress, ingress)| (FluidRate::from(egress), FluidRate::from(ingress));
        let (egress, ingress) = hosts.into_iter().map(pair).unzip();
        Ports { egress, ingress }
    }

    /// How many hosts there are.
    pub fn len(&self) -> usize {
        self.egress.len()
    }

    /// Whether there is no host.
    pub fn is_empty(&self) -> bool {
        self.egress.is_empty()
    }

    /// Rate at which each host can send, by port.
    pub fn egress(&self) -> &[FluidRate] {
        &self.egress
    }

    /// Rate at which each host can receive, by port.
    pub fn ingress(&self) -> &[FluidRate] {
        &self.ingress
    }
}

/// Capacity left of all ports, in bits per second.
#[derive(Clone, Debug)]
pub(super) struct Residual {
    pub(super) egress: Vec<f64>,
    pub(super) ingress: Vec<f64>,
}

/// A number per egress and per ingress port.
pub(super) type PerPort = (Vec<f64>, Vec<f64>);

impl Residual {
    /// Everything.
    pub(super) fn of(ports: &Ports) -> Residual {
        Residual::part(ports, 1.0)
    }

    /// This part of everything.
    pub(super) fn part(ports: &Ports, part: f64) -> Residual {
        let part = |list: &[FluidRate]| list.iter().map(|rate| rate.get() * part).collect();
        Residual { egress: part(&ports.egress), ingress: part(&ports.ingress) }
    }

    /// Zero for each port.
    pub(super) fn zeros(ports: &Ports) -> PerPort {
        (vec![0.0; ports.len()], vec![0.0; ports.len()])
    }

    /// The most that a flow can get now.
    pub(super) fn room(&self, flow: &PortFlow) -> f64 {
        self.egress[usize::from(flow.source.0)].min(self.ingress[usize::from(flow.receiver.0)])
    }

    /// Takes a flow's rate from both its ports.
    pub(super) fn take(&mut self, ports: &Ports, flow: &PortFlow, rate: f64) {
        let (source, receiver) = (usize::from(flow.source.0), usize::from(flow.receiver.0));
        self.egress[source] = less(self.egress[source], rate, ports.egress[source]);
        self.ingress[receiver] = less(self.ingress[receiver], rate, ports.ingress[receiver]);
    }

    /// Takes from every port what was used of it.
    pub(super) fn take_all(&mut self, ports: &Ports, used: &PerPort) {
        for (port, used) in used.0.iter().enumerate() {
            self.egress[port] = less(self.egress[port], *used, ports.egress[port]);
        }
        for (port, used) in used.1.iter().enumerate() {
            self.ingress[port] = less(self.ingress[port], *used, ports.ingress[port]);
        }
    }
}

fn less(left: f64, taken: f64, capacity: FluidRate) -> f64 {
    let left = left - taken;
    if left > capacity.get() * ROUNDING { left } else { 0.0 }
}
