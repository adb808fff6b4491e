//! Faults of a run, and their times.

use std::str::FromStr;

use headwater_fabric::LinkRate;
use headwater_units::Duration;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text;

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When, since the run began; at once if absent.
    #[serde(default, with = "text::one")]
    pub at: Duration,
    /// When it is over, where it lasts; never if absent.
    #[serde(default, with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub until: Option<Duration>,
    /// Target of the fault.
    pub on: Target,
    /// Fault.
    pub what: Action,
}

/// Faults of hosts that the seed draws, each at a time of its own. Hosts that hold a cast's object from the start are spared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrawnFaults {
    /// The hosts that it happens to, as a part of all, 0..=1; a part of a host counts as one.
    pub share: f64,
    /// The earliest time, since the run began; at once if absent.
    #[serde(default, with = "text::one")]
    pub from: Duration,
    /// The latest time.
    #[serde(with = "text::one")]
    pub to: Duration,
    /// Fault; for good.
    pub what: Action,
}

/// Where something goes wrong; written `link a-b`, `host 3`, `rack 0` or `controller`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// The link from one point to another, by their names in the fabric; one direction.
    Link(String),
    /// A host, by its number.
    Host(u32),
    /// A rack, by its number in the fabric.
    Rack(u32),
    /// The controller (casts).
    Controller,
}

/// A text that is not a [`Target`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{0}' is not a place for a fault; write for example \"link s0-s1\", \"host 3\", \"rack 0\" or \"controller\""
)]
pub struct ParseTargetError(String);

/// Kinds of faults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Action {
    /// The next packets on the link are lost, one after the other.
    DropRun {
        /// How many.
        packets: u32,
    },
    /// Every packet is lost with this probability, each by itself.
    RandomLoss {
        /// 0..=1.
        p: f64,
        /// Before the queue, so that a lost packet takes no room on the line, or after it.
        #[serde(default)]
        place: LossPlace,
    },
    /// Packets are held back, each with this probability, so that later ones overtake them.
    Reorder {
        /// 0..=1.
        p: f64,
        /// How long they are held back.
        #[serde(with = "text::one")]
        by: Duration,
    },
    /// Every packet arrives twice with this probability.
    Duplicate {
        /// 0..=1.
        p: f64,
    },
    /// The link has another rate.
    SetRate {
        /// From now on, or until the fault is over.
        rate: LinkRate,
    },
    /// The link carries nothing, and what its port holds is lost.
    LinkDown,
    /// No link into or out of the rack carries anything, and what their ports hold is lost. In casts, messages between the rack's hosts
    /// and the controller wait until it is over.
    RackCut,
    /// The host neither sends nor receives, and forgets nothing.
    HostPause,
    /// The host loses all its state and starts anew.
    HostRestart,
    /// The host is gone, and says goodbye to nobody. When the fault is over it starts anew, without what it knew.
    HostKill,
    /// Simulated casts: the controller starts anew. Its links are lost, and hosts find it again within a second.
    ControllerRestart {
        /// Without the tasks and names that it has written down.
        #[serde(default)]
        forgets: bool,
    },
    /// Simulated casts: the host's disk is full, so that no block can be written.
    DiskFull,
    /// Simulated casts: nothing can be read from the host's disk.
    DiskUnreadable,
    /// Simulated casts: whatever the host's disk does takes longer.
    DiskLate {
        /// By this.
        #[serde(with = "text::one")]
        by: Duration,
    },
    /// Simulated casts: the host lies; each symbol that it sends or passes on has wrong bytes with this probability.
    WrongSymbols {
        /// 0..=1.
        p: f64,
    },
    /// Simulated casts: the host lies; each ACK, assignment, pull, receipt and interest that it sends says with this probability what
    /// is not so.
    ForgedFeedback {
        /// 0..=1.
        p: f64,
    },
    /// Simulated casts: each datagram that reaches the host has a wrong byte in its header with this probability.
    Corrupt {
        /// 0..=1.
        p: f64,
    },
    /// Simulated casts: each datagram that reaches the host, and each message between it and the controller, comes once more with this
    /// probability.
    Replay {
        /// 0..=0.5.
        p: f64,
        /// Delay.
        #[serde(with = "text::one")]
        by: Duration,
    },
}

impl Action {
    /// To what it happens: the word that its place begins with.
    pub fn place(&self) -> &'static str {
        match self {
            Action::DropRun { .. }
            | Action::RandomLoss { .. }
            | Action::Reorder { .. }
            | Action::Duplicate { .. }
            | Action::SetRate { .. }
            | Action::LinkDown => "link",
            Action::HostPause
            | Action::HostRestart
            | Action::HostKill
            | Action::DiskFull
            | Action::DiskUnreadable
            | Action::DiskLate { .. }
            | Action::WrongSymbols { .. }
            | Action::ForgedFeedback { .. }
            | Action::Corrupt { .. }
            | Action::Replay { .. } => "host",
            Action::RackCut => "rack",
            Action::ControllerRestart { .. } => "controller",
        }
    }

    /// Its probability, if it has one, and the most that this may be.
    pub fn probability(&self) -> Option<(f64, f64)> {
        match *self {
            Action::RandomLoss { p, .. }
            | Action::Reorder { p, .. }
            | Action::Duplicate { p }
            | Action::WrongSymbols { p }
            | Action::ForgedFeedback { p }
            | Action::Corrupt { p } => Some((p, 1.0)),
            Action::Replay { p, .. } => Some((p, 0.5)),
            _ => None,
        }
    }
}

/// Where on a link packets are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossPlace {
    /// After the queue: a lost packet has used the line.
    #[default]
    AfterQueue,
    /// Before the queue: a lost packet has not.
    BeforeQueue,
}

impl Target {
    /// The word that it begins with.
    pub fn kind(&self) -> &'static str {
        match self {
            Target::Link(_) => "link",
            Target::Host(_) => "host",
            Target::Rack(_) => "rack",
            Target::Controller => "controller",
        }
    }
}

impl FromStr for Target {
    type Err = ParseTargetError;
    fn from_str(text: &str) -> Result<Self, ParseTargetError> {
        let fail = || ParseTargetError(text.to_owned());
        if text.trim() == "controller" {
            return Ok(Target::Controller);
        }
        let (kind, name) = text.trim().split_once(' ').ok_or_else(fail)?;
        match (kind, name.trim()) {
            ("link", name) if name.contains('-') => Ok(Target::Link(name.to_owned())),
            ("host", name) => name.parse().map(Target::Host).map_err(|_| fail()),
            ("rack", name) => name.parse().map(Target::Rack).map_err(|_| fail()),
            _ => Err(fail()),
        }
    }
}
impl TryFrom<String> for Target {
    type Error = ParseTargetError;
    fn try_from(text: String) -> Result<Self, ParseTargetError> {
        text.parse()
    }
}
impl From<Target> for String {
    fn from(target: Target) -> String {
        match target {
            Target::Link(name) => format!("link {name}"),
            Target::Host(host) => format!("host {host}"),
            Target::Rack(rack) => format!("rack {rack}"),
            Target::Controller => "controller".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_faults_are_read_and_written() {
        for target in [Target::Link("s0-s1".into()), Target::Host(3), Target::Rack(0), Target::Controller] {
            assert_eq!(Target::try_from(String::from(target.clone())), Ok(target));
        }
        for bad in ["", "link", "link s0", "host x", "rack", "port 3"] {
            assert!(bad.parse::<Target>().unwrap_err().to_string().contains("host 3"), "{bad}");
        }
    }
}
