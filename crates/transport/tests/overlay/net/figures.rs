//! Figures of a run.

use headwater_controller::ControllerStats;
use headwater_units::Time;

use super::{FETCH, Host, Net};

impl Net {
    /// Seconds from the cast to a receiver's end.
    pub(crate) fn finished(&self, host: usize) -> Option<f64> {
        Some(self.hosts[host].got.done()?.since(Time::ZERO).as_secs_f64())
    }

    /// Payload that left the sources, over the object's size.
    pub(crate) fn copies(&self) -> f64 {
        self.copies_of_each().into_iter().sum()
    }

    /// By source.
    pub(crate) fn copies_of_each(&self) -> Vec<f64> {
        (0..self.spec.sources).map(|source| self.copies_of(source)).collect()
    }

    /// The same of any host.
    pub(crate) fn copies_of(&self, host: usize) -> f64 {
        self.hosts[host].sent as f64 / self.bytes.get() as f64
    }

    /// How often a receiver's task has begun.
    pub(crate) fn begun(&self, host: usize) -> u32 {
        self.hosts[host].got.begun
    }

    /// Counters of the controller.
    pub(crate) fn controller(&self) -> &ControllerStats {
        self.controller.stats()
    }

    /// Payload that entered a rack, over the object's size.
    pub(crate) fn entered(&self, rack: &str) -> f64 {
        self.entered.get(rack).map_or(0.0, |entered| *entered as f64 / self.bytes.get() as f64)
    }

    /// Packets that queues have dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.network.links.iter().map(|link| link.dropped).sum()
    }

    /// Symbols that came and were of no use.
    pub(crate) fn useless(&mut self) -> u64 {
        let now = self.network.now();
        let stats = |host: &mut Host| host.receivers.stats(now, FETCH).map_or(0, |stats| stats.useless);
        self.hosts.iter_mut().map(stats).sum()
    }
}
