//! Scenarios: the holders of the object, the links' capacities, the events meanwhile, and the ideal time.

use headwater_units::{BitRate, Bytes, Duration};
use serde::Serialize;

use crate::demo::script::{Event, Happening, Script};

/// A setting to compare deliveries in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// One receiver; sources of 100, 100 and 300 Mbit/s that all have the object.
    Multi,
    /// The same, and the host of the fastest source is silent after two seconds.
    MultiKill,
    /// The same, and the fastest source's uplink drops to 20 Mbit/s after two seconds.
    MultiRerate,
    /// One source of 200 Mbit/s, four receivers that begin together.
    Fanout,
    /// 16 receivers that begin together; every host has 20 Mbit/s in each direction.
    #[serde(rename = "fanout-16")]
    Fanout16,
    /// The same with 32 receivers.
    #[serde(rename = "fanout-32")]
    Fanout32,
    /// One source, one receiver, no limits: what the processor allows.
    Fat,
    /// The same packet by packet, as on a wire without offloads.
    FatMtu,
    /// Many objects into one node at the same time, from three sources.
    Many,
}

impl Scenario {
    /// All of them, in the order in which tables have them.
    pub const ALL: [Scenario; 9] = [
        Scenario::Multi,
        Scenario::MultiKill,
        Scenario::MultiRerate,
        Scenario::Fanout,
        Scenario::Fanout16,
        Scenario::Fanout32,
        Scenario::Fat,
        Scenario::FatMtu,
        Scenario::Many,
    ];

    /// As on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Scenario::Multi => "multi",
            Scenario::MultiKill => "multi-kill",
            Scenario::MultiRerate => "multi-rerate",
            Scenario::Fanout => "fanout",
            Scenario::Fanout16 => "fanout-16",
            Scenario::Fanout32 => "fanout-32",
            Scenario::Fat => "fat",
            Scenario::FatMtu => "fat-mtu",
            Scenario::Many => "many",
        }
    }

    /// Whether no link is limited, so that the processor is.
    pub(super) fn is_fat(self) -> bool {
        matches!(self, Scenario::Fat | Scenario::FatMtu)
    }

    /// Receivers that begin together.
    pub(super) fn receivers(self) -> usize {
        match self {
            Scenario::Fanout => 4,
            Scenario::Fanout16 => 16,
            Scenario::Fanout32 => 32,
            _ => 1,
        }
    }

    /// How large the object is, unless the user says otherwise; of [`Scenario::Many`], each.
    pub(super) fn usual_size(self) -> Bytes {
        match self {
            Scenario::Fat | Scenario::FatMtu => Bytes::mib(1024),
            Scenario::Many => Bytes::mib(10),
            Scenario::Fanout16 | Scenario::Fanout32 => Bytes::mib(32),
            _ => Bytes::mib(256),
        }
    }
}

impl std::fmt::Display for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// When the fastest source changes.
const HAPPENS: Duration = Duration::from_secs(2);
/// Rate left of its uplink then.
const LEFT: BitRate = mbit(20);
/// Both directions of a receiver's link, and the downlinks of sources.
const RECEIVER: BitRate = mbit(1000);
/// Both directions of every link where there are many receivers.
const MANY_RECEIVERS: BitRate = mbit(20);
/// The largest packet; Ethernet headers come on top.
pub(super) const MTU: u16 = 1500;

const fn mbit(n: u64) -> BitRate {
    BitRate::new(n * 1_000_000)
}

/// A scenario with its numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scene {
    pub(super) scenario: Scenario,
    /// Uplinks of the sources and what happens to them; in `fat` they are not limited, and the rates mean nothing.
    pub(super) script: Script,
    pub(super) receivers: usize,
    /// Limit of every link but the sources' uplinks.
    pub(super) access: Option<BitRate>,
    /// Of the object.
    pub(super) size: Bytes,
}

impl Scene {
    pub(super) fn of(scenario: Scenario, size: Option<Bytes>) -> Self {
        let rates = match scenario {
            Scenario::Multi | Scenario::MultiKill | Scenario::MultiRerate => {
                vec![mbit(100), mbit(100), mbit(300)]
            }
            Scenario::Fanout => vec![mbit(200)],
            Scenario::Fanout16 | Scenario::Fanout32 => vec![MANY_RECEIVERS],
            Scenario::Fat | Scenario::FatMtu => vec![BitRate::ZERO],
            Scenario::Many => vec![RECEIVER; 3],
        };
        let what = match scenario {
            Scenario::MultiKill => Some(Happening::Vanish),
            Scenario::MultiRerate => Some(Happening::Rerate(LEFT)),
            _ => None,
        };
        let events = what.map(|what| Event { at: HAPPENS, source: rates.len() - 1, what });
        Scene {
            scenario,
            script: Script { present: rates.len(), rates, events: events.into_iter().collect() },
            receivers: scenario.receivers(),
            access: match scenario {
                Scenario::Fat | Scenario::FatMtu => None,
                Scenario::Fanout16 | Scenario::Fanout32 => Some(MANY_RECEIVERS),
                _ => Some(RECEIVER),
            },
            size: size.unwrap_or(scenario.usual_size()),
        }
    }

    /// How long it takes if every source sends at its rate from the first instant and each byte crosses an uplink once;
    /// `None` where no link is limited.
    pub(super) fn ideal_seconds(&self) -> Option<f64> {
        self.script.ideal_seconds(self.size, Some(self.access?))
    }

    /// The source that has the fastest uplink at first; the first of equals.
    pub(super) fn best_source(&self) -> usize {
        let rates = &self.script.rates;
        (0..rates.len()).rev().max_by_key(|source| rates[*source]).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ideal(scenario: Scenario, size: Option<u64>) -> Option<f64> {
        Scene::of(scenario, size.map(Bytes::new)).ideal_seconds()
    }

    #[test]
    fn the_ideal_counts_what_happens_to_the_fastest_source() {
        // 2 s at 500 Mbit/s are 125 MB; 62.5 MB more are 500 Mbit.
        assert_eq!(ideal(Scenario::Multi, Some(187_500_000)), Some(3.0));
        assert_eq!(ideal(Scenario::MultiKill, Some(187_500_000)), Some(2.0 + 500.0 / 200.0));
        assert_eq!(ideal(Scenario::MultiRerate, Some(187_500_000)), Some(2.0 + 500.0 / 220.0));
        // It was over before.
        assert_eq!(ideal(Scenario::MultiKill, Some(62_500_000)), Some(1.0));
    }

    #[test]
    fn one_source_and_one_copy_set_the_ideal_of_a_fanout_and_the_receiver_that_of_many() {
        assert_eq!(ideal(Scenario::Fanout, Some(25_000_000)), Some(1.0));
        assert_eq!(ideal(Scenario::Fanout32, Some(25_000_000)), Some(10.0), "as long as to one receiver");
        assert_eq!(ideal(Scenario::Many, Some(125_000_000)), Some(1.0));
    }

    #[test]
    fn without_limits_there_is_no_ideal() {
        assert_eq!(ideal(Scenario::Fat, None), None);
        assert_eq!(ideal(Scenario::FatMtu, None), None);
    }

    #[test]
    fn usual_sizes_give_the_usual_ideals() {
        assert!((ideal(Scenario::Multi, None).unwrap() - 4.295).abs() < 1e-3);
        assert!((ideal(Scenario::MultiKill, None).unwrap() - 7.737).abs() < 1e-3);
        assert!((ideal(Scenario::Fanout, None).unwrap() - 10.737).abs() < 1e-3);
    }

    #[test]
    fn who_takes_one_source_takes_the_fastest() {
        assert_eq!(Scene::of(Scenario::Multi, None).best_source(), 2);
        assert_eq!(Scene::of(Scenario::Many, None).best_source(), 0);
    }
}
