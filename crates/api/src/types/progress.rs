//! How far a command is, and whom it tells.

use headwater_units::{BitRate, Duration};
use serde::{Deserialize, Serialize};

use super::written::optional_seconds;

/// What a task is doing.
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
    /// What it delivers.
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
    /// How much of the object is there.
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
    /// Of so many; zero while unknown.
    pub bytes_total: u64,
    /// The rate now.
    pub rate: BitRate,
    /// How long it will go on at this rate.
    #[serde(rename = "eta_seconds", with = "optional_seconds")]
    pub eta: Option<Duration>,
    /// In the order in which they came.
    pub sources: Vec<ProgressSource>,
    /// Of a cast, in the order of their addresses; then there are no sources here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receivers: Vec<ProgressReceiver>,
    /// What is going on.
    pub phase: Phase,
}

/// Whom a command tells how far it is: a bar, JSON lines, or nobody.
///
/// Call as often as convenient, 10 times a second or so; whoever prints leaves out what would be too much.
pub trait Watch: Send {
    /// How far it is.
    fn progress(&mut self, progress: &Progress);
    /// Something the user should know now, one line.
    fn note(&mut self, line: &str);
}
