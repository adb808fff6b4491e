//! Status of a controller, as `ls` and `status` print it.

use std::collections::BTreeMap;

use headwater_units::{BitRate, Bytes, Duration, NodeId, ObjectId, TaskId};
use serde::{Deserialize, Serialize};

use super::written::{as_text, optional_seconds};

/// An object and its holders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectLine {
    /// Its id.
    #[serde(with = "as_text")]
    pub object: ObjectId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its size.
    pub bytes: Bytes,
    /// Control addresses (`ip:port`) of the nodes that have all of it.
    pub holders: Vec<String>,
}

/// A node as its controller knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeLine {
    /// Its name.
    pub name: String,
    /// Its fingerprint.
    #[serde(with = "as_text")]
    pub id: NodeId,
    /// Its control address.
    pub listen: String,
    /// Rate that it may send at: stated, else measured, else unknown.
    pub uplink: Option<BitRate>,
    /// Rate that it may receive at: stated, else measured, else unknown.
    pub downlink: Option<BitRate>,
    /// Its rack.
    pub rack: Option<String>,
    /// Its labels, including its rack.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Whether it can be a receiver of casts.
    #[serde(default)]
    pub keeps: bool,
    /// Number of its objects.
    pub objects: u64,
    /// Whether it was heard of lately.
    pub up: bool,
    /// Statistics of its data socket; absent if it did not answer, has none, or is one of more than 256 nodes.
    #[serde(default)]
    pub data_path: Option<DataPath>,
}

/// Statistics of a node's data socket, since the node started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DataPath {
    /// One send becomes many datagrams (UDP GSO).
    pub segmentation: bool,
    /// Many datagrams become one receive buffer (UDP GRO), if they come close enough.
    pub merging: bool,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Messages that carried them, each of one or more datagrams.
    pub messages_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Buffers that they came in, each of one or more.
    pub buffers_received: u64,
    /// Of all datagrams; absent before the first. ACKs and what comes slowly pull it down.
    pub datagrams_per_buffer: Option<f64>,
    /// Of long datagrams that came at a high rate: at least 512 bytes on average, and 10,000 per second. Absent until
    /// 1,000 did.
    pub datagrams_per_buffer_at_speed: Option<f64>,
    /// System calls that sent.
    pub send_calls: u64,
    /// System calls that received.
    pub receive_calls: u64,
    /// System calls that waited.
    pub waits: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full.
    pub dropped_by_kernel: u64,
    /// Times that the send buffer was full.
    pub sends_blocked: u64,
    /// Datagrams that could not be sent: no memory, a full device queue, or refused for their destination.
    pub sends_failed: u64,
    /// Buffers whose control messages were cut off, so that their marks are lost: always a fault of this program.
    pub control_truncated: u64,
    /// Datagrams of nobody, or that failed their header tag.
    pub strays: u64,
    /// Headers of symbols whose payload a switch has cut off.
    pub trimmed: u64,
    /// Whether those are seen whose UDP header the switch has left as it was.
    pub sees_trimmed: bool,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
}

/// One source of a running task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSource {
    /// Its control address.
    pub node: String,
    /// Its part of the useful bytes so far, 0..=1.
    pub share: f64,
    /// Its rate.
    pub rate: BitRate,
    /// Its weight.
    pub theta: f64,
    /// Its congestion signal: `ecn`, `delay` or `unknown`.
    pub mark_signal: String,
    /// Smoothed round-trip time, if measured.
    #[serde(rename = "rtt_seconds", with = "optional_seconds")]
    pub rtt: Option<Duration>,
    /// Its window in packets.
    pub window: f64,
    /// Waits for its own disk or encoder rather than for the network.
    pub starved: bool,
}

/// A running task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskLine {
    /// Its number. In JSON a text: it has 64 bits, of which many readers keep 53.
    #[serde(with = "as_text")]
    pub task: TaskId,
    /// The wanted object.
    #[serde(with = "as_text")]
    pub object: ObjectId,
    /// The object's name, if it has one.
    pub name: Option<String>,
    /// Name or address of the receiver.
    pub receiver: String,
    /// Wanted bytes.
    pub bytes: Bytes,
    /// Verified bytes of it.
    pub done: Bytes,
    /// Current rate.
    pub rate: BitRate,
    /// Remaining time at this rate.
    #[serde(rename = "eta_seconds", with = "optional_seconds")]
    pub eta: Option<Duration>,
    /// The bottleneck: `source`, `path`, `disk` or `cpu`.
    pub limited_by: String,
    /// T, bytes of a symbol.
    #[serde(default)]
    pub symbol_size: u16,
    /// In the order in which they came.
    pub sources: Vec<TaskSource>,
}

/// A running cast.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CastLine {
    /// Its number, drawn by the node that asked for it. In JSON a text, as that of a task.
    #[serde(with = "as_text")]
    pub cast: u64,
    /// The id of the object.
    pub object: String,
    /// The object's name, if that was asked for.
    pub name: Option<String>,
    /// The object's size.
    pub bytes: Bytes,
    /// The control address of the node that sends it to the group, or that was the first to be found to have it.
    pub source: String,
    /// Its route: `multicast`, `trees`, `overlay`, `unicast`, or `undecided` while that is found out.
    pub via: String,
    /// Why so, in words.
    pub why: String,
    /// Number of receivers.
    pub receivers: u64,
    /// Receivers that have it.
    pub done: u64,
    /// Receivers that failed.
    pub failed: u64,
    /// Payload that the source has sent to the group, each symbol counted once.
    pub multicast_bytes: Bytes,
    /// Since it was asked for.
    pub age_seconds: f64,
    /// Rate at which the source sends, where switches compute that; zero while it waits for an offer.
    #[serde(default)]
    pub rate: Option<BitRate>,
    /// The receiver whose path grants least, where switches compute rates.
    #[serde(default)]
    pub least_receiver: Option<String>,
    /// Its grant.
    #[serde(default)]
    pub least_offer: Option<BitRate>,
    /// Time for which the source has waited for an offer.
    #[serde(default)]
    pub paused_seconds: Option<f64>,
    /// The cast that goes before it and is being sent, while it waits.
    #[serde(default)]
    pub behind: Option<String>,
    /// From the request until all will have it, at this rate.
    #[serde(default)]
    pub finish_seconds: Option<f64>,
    /// From the request until all should have it, if that was asked for.
    #[serde(default)]
    pub deadline_seconds: Option<f64>,
    /// Why it goes no longer at the rate that switches compute, if it did.
    #[serde(default)]
    pub unscheduled: Option<String>,
}

#[cfg(test)]
impl NodeLine {
    /// A node of tests, which is here and keeps objects.
    pub(crate) fn example(n: u8, name: &str) -> Self {
        NodeLine {
            name: name.to_owned(),
            id: NodeId([n; 32]),
            listen: format!("10.0.0.{n}:7001"),
            uplink: None,
            downlink: None,
            rack: None,
            labels: BTreeMap::new(),
            keeps: true,
            objects: 0,
            up: true,
            data_path: None,
        }
    }
}

/// A cast that goes on for nodes that join later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StandingLine {
    /// Object that they are sent: its name or id.
    pub name: String,
    /// The labels that they must carry; none: every node that keeps objects is meant.
    pub labels: BTreeMap<String, String>,
}

/// A coflow that agents fetch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoflowLine {
    /// Its application.
    pub application: String,
    /// Its number there.
    pub coflow: u64,
    /// The smaller, the more important.
    pub rank: Option<u32>,
    /// Bytes of it that have come, at all hosts.
    pub here: Bytes,
    /// Bytes left of it, if that is known of all its flows.
    pub left: Option<Bytes>,
    /// Hosts that fetch it.
    pub receivers: Vec<String>,
    /// Hosts that they wait for.
    pub sources: Vec<String>,
}

/// Everything a controller knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// Its address.
    pub controller: String,
    /// By name.
    pub nodes: Vec<NodeLine>,
    /// By name.
    pub objects: Vec<ObjectLine>,
    /// By number.
    pub tasks: Vec<TaskLine>,
    /// By number.
    #[serde(default)]
    pub casts: Vec<CastLine>,
    /// Casts that go on for nodes that join later, by name.
    #[serde(default)]
    pub standing: Vec<StandingLine>,
    /// Coflows that agents fetch, the most important first.
    #[serde(default)]
    pub coflows: Vec<CoflowLine>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_json_and_ids_are_hex_there() {
        let (object, id) = (ObjectId([0xab; 32]), NodeId([1; 32]));
        let report = StatusReport {
            controller: "10.0.0.1:7000".into(),
            nodes: vec![NodeLine {
                name: "a".into(),
                id,
                listen: "10.0.0.2:7001".into(),
                uplink: Some(BitRate::new(100_000_000)),
                downlink: None,
                rack: Some("r1".into()),
                labels: [("rack".into(), "r1".into())].into(),
                keeps: true,
                objects: 1,
                up: true,
                data_path: Some(DataPath { datagrams_per_buffer: Some(1.5), ..DataPath::default() }),
            }],
            objects: vec![ObjectLine { object, name: None, bytes: Bytes::kib(1), holders: vec![] }],
            tasks: vec![TaskLine {
                task: TaskId(u64::MAX),
                object,
                name: Some("model".into()),
                receiver: "b".into(),
                bytes: Bytes::kib(2),
                done: Bytes::kib(1),
                rate: BitRate::new(8000),
                eta: Some(Duration::from_millis(1500)),
                limited_by: "path".into(),
                symbol_size: 1424,
                sources: vec![],
            }],
            casts: vec![CastLine { cast: 9, via: "overlay".into(), age_seconds: 1.5, ..CastLine::default() }],
            standing: vec![StandingLine {
                name: "model".into(),
                labels: [("zone".into(), "eu".into())].into(),
            }],
            coflows: vec![CoflowLine { application: "job".into(), rank: Some(1), ..CoflowLine::default() }],
        };
        let text = serde_json::to_string(&report).unwrap();
        assert!(text.contains(&format!(r#""object":"{}""#, "ab".repeat(32))), "{text}");
        assert!(text.contains(r#""eta_seconds":1.5"#), "{text}");
        assert!(
            text.contains(r#""task":"18446744073709551615""#) && text.contains(r#""cast":"9""#),
            "{text}"
        );
        assert!(text.contains(r#""uplink":100000000"#), "{text}");
        assert_eq!(serde_json::from_str::<StatusReport>(&text).unwrap(), report);
        let wire = postcard::to_stdvec(&report).unwrap();
        assert_eq!(postcard::from_bytes::<StatusReport>(&wire).unwrap(), report);
    }
}
