//! When each device has its next departure.

use std::collections::BTreeSet;

use headwater_units::Time;

/// At most one time for each device.
#[derive(Clone, Debug)]
pub(super) struct Due {
    order: BTreeSet<(Time, usize)>,
    of: Vec<Option<Time>>,
}

impl Due {
    /// Nothing is due.
    pub(super) fn new(devices: usize) -> Self {
        Due { order: BTreeSet::new(), of: vec![None; devices] }
    }
    /// The device's next departure is then, or there is none.
    pub(super) fn set(&mut self, device: usize, at: Option<Time>) {
        let before = std::mem::replace(&mut self.of[device], at);
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, device));
        }
        self.order.extend(at.map(|at| (at, device)));
    }
    /// The earliest; of equal ones that of the first device.
    pub(super) fn first(&self) -> Option<(Time, usize)> {
        self.order.first().copied()
    }
}
