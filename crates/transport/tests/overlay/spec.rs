//! How a net is made.

use headwater_units::{BitRate, Duration};

/// Hosts, their links, and who comes when.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// The hosts behind the sources.
    pub(crate) receivers: usize,
    /// Of everybody's link, each way.
    pub(crate) rate: BitRate,
    /// Of each link, one way; a packet crosses two.
    pub(crate) delay: Duration,
    /// Packets that wait before a line, each way.
    pub(crate) queue: usize,
    pub(crate) loss: f64,
    pub(crate) reorder: f64,
    /// These are not there before then, and ask by themselves.
    pub(crate) late: Vec<(usize, Duration)>,
    /// Time for which a host that asks by itself stays when it has the object, or until nobody is served by it any
    /// more. It keeps nothing.
    pub(crate) drains: Option<Duration>,
    /// In which rack hosts stand, from host 0 on; those behind the end in none.
    pub(crate) racks: &'static [&'static str],
    /// Whether hosts state their racks.
    pub(crate) told: bool,
    /// Capacity of each rack's own link, each way.
    pub(crate) rack_rate: Option<BitRate>,
    /// Number of first hosts that have the object.
    pub(crate) sources: usize,
}

impl Default for Spec {
    fn default() -> Self {
        let rate = BitRate::new(100_000_000);
        Spec {
            receivers: 4,
            rate,
            delay: super::net::DELAY,
            queue: 100,
            loss: 0.0,
            reorder: 0.0,
            late: Vec::new(),
            drains: None,
            racks: &[],
            told: true,
            rack_rate: None,
            sources: 1,
        }
    }
}
