//! What goes wrong in a run, and when.

use std::str::FromStr;

use headwater_fabric::LinkRate;
use headwater_units::Duration;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::text;

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
    /// Where.
    pub on: Target,
    /// What.
    pub what: Action,
}

/// Where something goes wrong; written `link a-b` or `host 3`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// The link from one point to another, by their names in the fabric; one direction.
    Link(String),
    /// A host, by its number.
    Host(u32),
}

/// A text that is not a [`Target`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no place for a fault; write for example \"link s0-s1\" or \"host 3\"")]
pub struct ParseTargetError(String);

/// What goes wrong.
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
        place: Place,
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
    /// The host neither sends nor receives, and forgets nothing.
    HostPause,
    /// The host loses all its state and starts anew.
    HostRestart,
    /// The host is gone, and says goodbye to nobody. When the fault is over it starts anew, without what it knew.
    HostKill,
}

impl Action {
    /// Whether it happens to a host and not to a link.
    pub fn is_of_host(&self) -> bool {
        matches!(self, Action::HostPause | Action::HostRestart | Action::HostKill)
    }
}

/// Where on a link packets are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// After the queue: a lost packet has used the line.
    #[default]
    AfterQueue,
    /// Before the queue: a lost packet has not.
    BeforeQueue,
}

impl FromStr for Target {
    type Err = ParseTargetError;
    fn from_str(text: &str) -> Result<Self, ParseTargetError> {
        let fail = || ParseTargetError(text.to_owned());
        let (kind, name) = text.trim().split_once(' ').ok_or_else(fail)?;
        match (kind, name.trim()) {
            ("link", name) if name.contains('-') => Ok(Target::Link(name.to_owned())),
            ("host", name) => name.parse().map(Target::Host).map_err(|_| fail()),
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_faults_are_read_and_written() {
        for target in [Target::Link("s0-s1".into()), Target::Host(3)] {
            assert_eq!(Target::try_from(String::from(target.clone())), Ok(target));
        }
        for bad in ["", "link", "link s0", "host x", "port 3"] {
            assert!(bad.parse::<Target>().unwrap_err().to_string().contains("host 3"), "{bad}");
        }
    }
}
