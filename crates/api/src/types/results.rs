//! Results that each command prints when it is ready or finished.

use std::net::SocketAddr;
use std::path::PathBuf;

use headwater_units::{Duration, NodeId};
use serde::{Deserialize, Serialize};

use super::ObjectLine;
use super::written::as_text;

/// A daemon or source is ready. `--json` prints it as one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listening {
    /// The control address: what others pass to `--controller`, `--join` or `--from`.
    pub address: SocketAddr,
    /// Where data packets go; a controller has none.
    pub data_address: Option<SocketAddr>,
    /// Fingerprint that others pass to `--pin`.
    #[serde(with = "as_text")]
    pub fingerprint: NodeId,
    /// Objects that can be fetched from here now.
    pub objects: Vec<ObjectLine>,
    /// With `--skip-special`: what of the folders is not offered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// An agent is ready. `--json` prints it as one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgentListening {
    /// Where other agents dial.
    pub address: SocketAddr,
    /// The socket of this host's programs.
    pub socket: PathBuf,
    /// Its key's fingerprint, which belongs into the other hosts' lists.
    #[serde(with = "as_text")]
    pub fingerprint: NodeId,
    /// Congestion control of its connections.
    pub congestion: String,
}

/// Something in a folder that cannot be delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The whole path.
    pub path: String,
    /// The reason.
    pub reason: String,
}

impl std::fmt::Display for LeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.path, self.reason)
    }
}

/// The end of a `forget`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ForgetResult {
    /// The node's name.
    pub name: String,
    /// Its fingerprint.
    #[serde(with = "as_text")]
    pub id: NodeId,
    /// Its control address.
    pub address: String,
}

/// One source's share of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceShare {
    /// Its control address.
    pub node: String,
    /// Useful bytes of symbols from it.
    pub bytes: u64,
    /// Its part of all useful bytes, 0..=1.
    pub share: f64,
    /// Useful symbols from it.
    pub symbols: u64,
    /// Symbols it sent that never arrived.
    pub lost: u64,
    /// Its fingerprint.
    #[serde(default)]
    pub id: String,
    /// Of its bytes, those that came by a multicast group.
    #[serde(default)]
    pub group_bytes: u64,
}

/// The end of a `get`, and of a `demo`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GetResult {
    /// Its id.
    pub object: String,
    /// Bytes of the object, or of the range asked for.
    pub bytes: u64,
    /// From the first request until the object is verified under its final name.
    pub seconds: f64,
    /// Bytes over the sum of the sources' rates, with kills and rate changes counted in, where the rates are known.
    pub ideal_seconds: Option<f64>,
    /// `seconds / ideal_seconds`.
    pub ratio: Option<f64>,
    /// T, bytes of a symbol: the longest that the paths carry; that of the last part where one turned out narrow meanwhile.
    #[serde(default)]
    pub symbol_size: u16,
    /// Bytes on the wire per byte of symbol: what no transfer with this packet size goes below.
    pub wire_floor: f64,
    /// Bytes per second, in millions.
    pub mb_per_s: f64,
    /// Every block and the whole were checked against the id.
    pub verified: bool,
    /// Repair symbols used / source symbols.
    pub repair_share: f64,
    /// Useless arrivals / arrivals.
    pub duplicate_share: f64,
    /// Times that a source was asked again because nothing had come from it, where this end pulls.
    #[serde(default)]
    pub timeouts: u64,
    /// The most memory this process had resident.
    pub peak_rss_bytes: u64,
    /// User and system time: of this process, in `demo` of all of them.
    pub cpu_seconds: f64,
    /// The congestion signal that the flows went by: `ecn`, `delay`, `mixed` or `unknown`.
    pub mark_signal: String,
    /// Bottleneck of the task most of the time: `source`, `path`, `disk` or `cpu`.
    pub limited_by: String,
    /// One for each that brought something, in no order.
    pub sources: Vec<SourceShare>,
    /// The object's name, if it has one.
    #[serde(default)]
    pub name: Option<String>,
    /// With `--sha256`.
    #[serde(default)]
    pub sha256: Option<String>,
    /// Bytes that were here already from an interrupted run.
    #[serde(default)]
    pub resumed_bytes: u64,
    /// Where the object is: a file, or the store's folder; `None` for standard output.
    #[serde(default)]
    pub output: Option<String>,
    /// Transport that decided when symbols left: `push` (their sources), `overlay` (the same, in stripes), `pull` (this
    /// end, which asked for each), `trees`, or `mixed`; `none` if none had to come.
    #[serde(default)]
    pub transport: String,
    /// Symbols dropped by this process itself, in a drill.
    #[serde(default)]
    pub dropped_on_purpose: Option<u64>,
    /// Useful bytes of symbols that came by a multicast group, of those of all sources.
    #[serde(default)]
    pub group_bytes: u64,
    /// Useful bytes of symbols that other receivers have passed on, of those of all sources.
    #[serde(default)]
    pub relayed_bytes: u64,
    /// When the first request was made, nanoseconds of CLOCK_MONOTONIC: a clock that all processes of a machine share.
    #[serde(default)]
    pub start_ns: u64,
    /// When the last block was decoded and verified, on the same clock.
    #[serde(default)]
    pub received_ns: u64,
    /// When the object was there under its final name, on the same clock.
    #[serde(default)]
    pub finish_ns: u64,
    /// Whether it was there by the deadline that was asked for, if one was.
    #[serde(default)]
    pub deadline_met: Option<bool>,
}

impl GetResult {
    /// The same, of one that was first requested then and had this deadline.
    pub(crate) fn begun(self, start_ns: u64, deadline: Option<Duration>) -> Self {
        let deadline_met = deadline.map(|deadline| self.seconds <= deadline.as_secs_f64());
        GetResult { start_ns, deadline_met, ..self }
    }
}

/// The end of a `put`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PutResult {
    /// Its id.
    pub object: String,
    /// Its name.
    pub name: Option<String>,
    /// Its size; of a folder, that of its files together.
    pub bytes: u64,
    /// How it came into the store: `copied`, `reflinked`, `linked`, `known` (it was there already) or `healed` (it was there, but rotten).
    pub placed: String,
    /// How often the name has been given to another object, as the controller counts; `None` while no controller was asked.
    pub generation: Option<u64>,
    /// Object that the name stood for here before, if another one; it stays, by its id.
    pub replaced: Option<String>,
    /// With `--skip-special`: what of the folder is not in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// The end of an `rm`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RmResult {
    /// The id of what was removed.
    pub object: String,
    /// Its name, if it had one.
    pub name: Option<String>,
    /// Bytes set free; zero if another name still points at the object, or a folder needs it.
    pub freed_bytes: u64,
    /// Objects that are gone: it, and of a folder the files that nothing else needs.
    pub objects: u64,
}

/// The end of a `gc`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GcResult {
    /// Nothing was removed: this is what would be.
    pub dry_run: bool,
    /// Files of folders that nothing needs any more.
    pub objects: Vec<String>,
    /// Bytes that they and the transfers took.
    pub freed_bytes: u64,
    /// Transfers that nobody goes on with.
    pub partials: u64,
    /// Their part of it.
    pub partial_bytes: u64,
    /// Folders that cannot be read; as long as there are any, no file of a folder is removed.
    pub unreadable: Vec<String>,
}

/// The end of a `debug replay`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplayResult {
    /// Inputs fed.
    pub inputs: u64,
    /// Outputs compared.
    pub outputs: u64,
    /// Every output was the recorded one.
    pub identical: bool,
    /// The first one that was not, in words.
    pub difference: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_lists_its_fields_in_the_order_of_the_manual() {
        let text = serde_json::to_string(&GetResult::default()).unwrap();
        let order =
            ["object", "bytes", "seconds", "ideal_seconds", "ratio", "wire_floor", "mb_per_s", "verified"];
        let places: Vec<_> = order.iter().map(|key| text.find(&format!("\"{key}\":")).expect(key)).collect();
        assert!(places.is_sorted(), "{text}");
    }
}
