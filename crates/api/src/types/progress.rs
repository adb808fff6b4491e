//! The progress of a command, and its listener.

use headwater_units::{BitRate, Duration};
use serde::{Deserialize, Serialize};

use super::written::optional_seconds;

/// Phase of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Reading a file to name it.
    Hashing,
    /// Waiting for the controller's or the sources' answer.
    #[default]
    Asking,
    /// Checking what an interrupted run left.
    Checking,
    /// Symbols are coming in.
    Receiving,
    /// Everything is here; syncing and renaming.
    Finishing,
}

/// One source, now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgressSource {
    /// Its control address.
    pub node: String,
    /// Its rate.
    pub rate: BitRate,
    /// Its part of all useful bytes so far, 0..=1.
    pub share: f64,
    /// Its weight, where known.
    pub theta: Option<f64>,
    /// Whether it still answers.
    pub live: bool,
}

/// One receiver of a cast, now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgressReceiver {
    /// Its control address.
    pub node: String,
    /// Bytes of the object that it has.
    pub bytes_done: u64,
    /// `waiting`, `receiving`, `done`, `failed` or `away`.
    pub state: String,
}

/// A task, now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The object's name or id.
    pub object: String,
    /// Verified, or hashed.
    pub bytes_done: u64,
    /// Total bytes; zero while unknown.
    pub bytes_total: u64,
    /// The rate now.
    pub rate: BitRate,
    /// Remaining time at this rate.
    #[serde(rename = "eta_seconds", with = "optional_seconds")]
    pub eta: Option<Duration>,
    /// In the order in which they came.
    pub sources: Vec<ProgressSource>,
    /// Of a cast, in the order of their addresses; then there are no sources here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receivers: Vec<ProgressReceiver>,
    /// The current phase.
    pub phase: Phase,
}

/// Receives the progress of a command: a bar, JSON lines, or nothing.
///
/// Call as often as convenient, 10 times a second or so; the printing side leaves out what would be too much.
pub trait Watch: Send {
    /// How often it wants to know. 100 ms; where nobody looks, less often: where many nodes share a machine, ten wake-ups a second of each
    /// add up.
    fn interval(&self) -> std::time::Duration {
        std::time::Duration::from_millis(100)
    }
    /// Reports progress.
    fn progress(&mut self, progress: &Progress);
    /// Tells the user something, in one line.
    fn note(&mut self, line: &str);
}
