//! Result of a cast, as `--json` prints it.

use headwater_units::Duration;
use serde::Serialize;

use crate::requests::Cast;

/// The result of a cast.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CastResult {
    /// The object's id.
    pub object: String,
    /// The name that was asked for, if it was a name.
    pub name: Option<String>,
    /// The object's size; of a folder, that of its manifest and of all its files, as far as a receiver could say.
    pub bytes: u64,
    /// From the request to the last receiver's end.
    pub seconds: f64,
    /// How its symbols travelled: `multicast`, `trees`, `overlay` or `unicast`.
    pub via: String,
    /// Why so, in words.
    pub why: String,
    /// The group's address.
    pub group: Option<String>,
    /// The control address of the node that sent it to the group, or that was the first to be found to have it.
    pub source: String,
    /// Sources of the cast: the group's first, then by id.
    pub sources: Vec<CastSource>,
    /// Payload that the source has sent to the group, each symbol counted once.
    pub multicast_bytes: u64,
    /// Useful payload that receivers got from its sources by flows of their own, all together.
    pub unicast_bytes: u64,
    /// Useful payload that receivers have passed on to each other.
    pub relayed_bytes: u64,
    /// Bytes that came by the group and from sources over that size: how many copies of it left its sources.
    pub copies: f64,
    /// The same of the link that carried most of it, of those at which its sources and receivers are: their uplinks, and the receivers'
    /// downlinks. Useful payload only, and what went to the group.
    pub link_stress: f64,
    /// Useful payload that receivers got by flows of their own from another rack; absent if none says in which it stands.
    pub between_racks_bytes: Option<u64>,
    /// When the first receiver that had to be sent something had finished.
    pub first_seconds: Option<f64>,
    /// When half of them had finished.
    pub median_seconds: Option<f64>,
    /// When the last one had finished.
    pub last_seconds: Option<f64>,
    /// Repairs of trees.
    pub repairs: Vec<CastRepair>,
    /// All receivers have it.
    pub complete: bool,
    /// Why it went no longer at the rate that switches compute, if it had begun so.
    pub unscheduled: Option<String>,
    /// The deadline that was asked for.
    pub deadline_seconds: Option<f64>,
    /// Whether all receivers had it by then; absent without a deadline.
    pub deadline_met: Option<bool>,
    /// The waves of a rollout that have begun; empty if all receivers were served at once. Then `seconds` includes the pauses, times of
    /// receivers are from the beginning of their wave, and the route is that of the last wave.
    pub waves: Vec<CastWave>,
    /// Why a rollout has ended before its last wave.
    pub stopped: Option<String>,
    /// By address.
    pub receivers: Vec<CastReceiver>,
}

impl CastResult {
    /// The same, with what the asker thinks of it.
    pub(super) fn judged(self, asked: &Cast) -> Self {
        let deadline = asked.urgency.and_then(|urgency| urgency.deadline);
        let Some(deadline) = deadline.map(Duration::as_secs_f64) else { return self };
        let in_time = |it: &CastReceiver| it.state == "had" || it.state == "done" && it.seconds <= deadline;
        let met = self.receivers.iter().all(in_time);
        CastResult { deadline_seconds: Some(deadline), deadline_met: Some(met), ..self }
    }
}

/// A wave of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CastWave {
    /// Its receivers.
    pub receivers: usize,
    /// Those that have the object now and did not before.
    pub done: usize,
    /// Those that had it.
    pub had: usize,
    /// Those that failed or are away.
    pub failed: usize,
    /// From its beginning to its last receiver's end.
    pub seconds: f64,
}

/// Trees that were rerouted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CastRepair {
    /// When a neighbour was first said to be silent, from the request on.
    pub after_seconds: f64,
    /// For how long it had been silent then.
    pub silent_seconds: f64,
    /// From that word to the new trees.
    pub decided_seconds: f64,
    /// From then on until all nodes had confirmed them.
    pub told_seconds: Option<f64>,
    /// Cables that count as cut.
    pub cut: u16,
    /// Trees that were rerouted.
    pub rebuilt: u16,
    /// Trees that share the path of another.
    pub shared: u16,
    /// Nodes that were told down a tree of nodes.
    pub signalled: u16,
    /// Of these, the ones that did not answer the signal, and were then told by their own connection.
    pub unanswered: u16,
}

/// One receiver of a cast.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CastReceiver {
    /// Its control address.
    pub node: String,
    /// Its name.
    pub name: String,
    /// Its fingerprint.
    pub id: String,
    /// `done`: it has the object now, verified; `had`: it had it before; `failed`; `away`: not connected; `waiting`: its wave has not
    /// begun.
    pub state: String,
    /// Why it failed.
    pub reason: Option<String>,
    /// How long it took.
    pub seconds: f64,
    /// Bytes of the object that it has.
    pub bytes: u64,
    /// Useful payload that came by the group.
    pub multicast_bytes: u64,
    /// Useful payload that came from sources by flows of its own: of a receiver that was in the group, what it had missed.
    pub unicast_bytes: u64,
    /// Useful payload that other receivers have passed on.
    pub relayed_bytes: u64,
    /// Useful payload that others got of it by flows of their own.
    pub passed_on_bytes: u64,
}

impl CastReceiver {
    /// Useful payload that came to it, however.
    pub(super) fn came(&self) -> u64 {
        self.multicast_bytes.saturating_add(self.unicast_bytes).saturating_add(self.relayed_bytes)
    }
}

/// A source of a cast.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CastSource {
    /// Its control address.
    pub node: String,
    /// Bytes that it sent to the group, and useful payload that receivers got of it by flows of their own.
    pub bytes: u64,
    /// The same over the object's size.
    pub copies: f64,
}
