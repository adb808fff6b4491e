//! Engines that compute a run, and the scales of runs.

use serde::{Deserialize, Serialize};

/// Engine that computes a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Discrete events, packet by packet, with the true machines.
    Packet,
    /// Rates.
    Flow,
    /// Equations of one bottleneck.
    Fluid,
    /// Disjoint trees of a group: the graph alone.
    Trees,
    /// Computations of the product itself, and how long they take on this machine.
    Timed,
    /// Network namespaces, with the true machines on sockets.
    Netns,
}

/// How large a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Small enough for the test suite.
    Small,
    /// As the paper has it.
    Paper,
}

impl Engine {
    /// All engines.
    pub const ALL: [Engine; 6] =
        [Engine::Packet, Engine::Flow, Engine::Fluid, Engine::Trees, Engine::Timed, Engine::Netns];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Packet => "packet",
            Engine::Flow => "flow",
            Engine::Fluid => "fluid",
            Engine::Trees => "trees",
            Engine::Timed => "timed",
            Engine::Netns => "netns",
        }
    }

    /// Whether its runs take the time that they measure: each needs the machine for itself, and no two are the same.
    pub fn is_real_time(self) -> bool {
        matches!(self, Engine::Timed | Engine::Netns)
    }
}

impl Scale {
    /// Both scales.
    pub const ALL: [Scale; 2] = [Scale::Small, Scale::Paper];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Small => "small",
            Scale::Paper => "paper",
        }
    }
}

impl std::fmt::Display for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
impl std::fmt::Display for Scale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
