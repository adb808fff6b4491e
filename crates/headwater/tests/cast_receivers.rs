//! Receivers and sources of casts: labels, racks, several sources, and resumed casts after a failure. On loopback,
//! where the sources are held back so that receivers have time to pass on.

#![allow(clippy::disallowed_methods, reason = "these tests drive processes and wait for them")]

mod cluster;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use cluster::{Process, complete, free_port, number, random_file, text, wait_until};
use serde_json::Value;
use tempfile::TempDir;

const MIB: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(120);

/// `headwater up`, which has the object `model`, and nodes by name: each carries its own as the label `name`.
struct Cluster {
    // Before the folder, which they use.
    nodes: BTreeMap<&'static str, Process>,
    folder: TempDir,
    controller: String,
    content: Vec<u8>,
}

impl Cluster {
    fn start(bytes: usize, limit: &str) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let content = random_file(&folder.path().join("model"), bytes, 1);
        let controller = format!("127.0.0.1:{}", free_port());
        let mut cluster = Cluster { nodes: BTreeMap::new(), folder, controller, content };
        let listen = cluster.controller.clone();
        let up =
            cluster.process("up", &["up", "--listen", &listen, "--limit", limit, "--label", "name=up"], "up");
        cluster.add("up", up);
        cluster.put("up");
        cluster
    }

    fn state(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("state-{name}"))
    }

    fn process(&self, name: &str, arguments: &[&str], state: &str) -> Process {
        let state = text(&self.state(state));
        Process::start(self.folder.path(), name, &[arguments, &["--state", &state]].concat())
    }

    fn add(&mut self, name: &'static str, mut process: Process) {
        process.line(PATIENCE);
        self.nodes.insert(name, process);
    }

    fn node(&mut self, name: &'static str, more: &[&str]) {
        let label = format!("name={name}");
        let listen = format!("127.0.0.1:{}", free_port());
        let arguments = ["node", "--join", &self.controller, "--listen", &listen, "--label", &label];
        let process = self.process(name, &[&arguments, more].concat(), name);
        self.add(name, process);
    }

    /// A node takes the object into its store.
    fn put(&self, name: &str) {
        let model = text(&self.folder.path().join("model"));
        let ended = self.process("put", &["put", &model], name).end(PATIENCE);
        assert_eq!(ended.code, Some(0), "{}", ended.log);
    }

    fn status(&self) -> Value {
        self.process("status", &["status", "--controller", &self.controller], "asker")
            .end(PATIENCE)
            .last
            .unwrap()
    }

    /// Waits until `nodes` nodes are up, and `holders` have the object.
    fn wait_for(&self, nodes: usize, holders: usize) {
        wait_until("the nodes to be known", PATIENCE, || {
            let status = self.status();
            let up = status["nodes"].as_array().unwrap().iter().filter(|node| node["up"] == true).count();
            let model = status["objects"].as_array().unwrap().iter().find(|it| it["name"] == "model");
            let held = model.map_or(0, |it| it["holders"].as_array().unwrap().len());
            (up, held) == (nodes, holders)
        });
    }

    fn cast(&self, more: &[&str]) -> Process {
        let arguments = ["cast", "model", "--controller", &self.controller, "--progress", "json"];
        self.process("cast", &[&arguments, more].concat(), "asker")
    }

    /// Their control addresses, by the label `name`.
    fn addresses(&self) -> BTreeMap<String, String> {
        let status = self.status();
        let nodes = status["nodes"].as_array().unwrap().iter().filter(|node| node["up"] == true);
        nodes.map(|node| (string(&node["labels"]["name"]), string(&node["listen"]))).collect()
    }

    /// Whether a node has the object, byte for byte.
    fn has(&self, name: &str) -> bool {
        let to = self.folder.path().join("got");
        let from = self.addresses()[name].clone();
        let arguments = ["get", "model", "--from", &from, "-o", &text(&to), "--force"];
        let ended = self.process("get", &arguments, "asker").end(PATIENCE);
        ended.code == Some(0) && std::fs::read(to).unwrap() == self.content
    }

    /// The receivers of a result, by the label `name`.
    fn receivers(&self, result: &Value) -> BTreeMap<String, Value> {
        let addresses = self.addresses();
        let name = |at: &Value| addresses.iter().find(|(_, its)| *its == at).map(|(name, _)| name.clone());
        let receivers = result["receivers"].as_array().unwrap().iter();
        receivers.map(|it| (name(&it["node"]).unwrap_or_else(|| string(&it["node"])), it.clone())).collect()
    }
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// Goal: labels choose the receivers; those of a rack pass on to each other, so that a byte enters the rack about once; `status` shows
/// labels and the running cast.
#[test]
fn labels_choose_the_receivers_and_racks_get_each_byte_about_once() {
    let mut cluster = Cluster::start(16 * MIB, "60Mbit/s");
    for (name, rack) in [("a1", "r1"), ("a2", "r1"), ("a3", "r1"), ("b1", "r2"), ("b2", "r2"), ("b3", "r2")] {
        cluster.node(name, &["--label", &format!("rack={rack}"), "--label", "zone=eu"]);
    }
    cluster.node("other", &["--rack", "r1", "--label", "zone=us"]);
    cluster.wait_for(8, 1);

    let unknown = cluster.cast(&["--label", "zone=asia"]).end(PATIENCE);
    let error = unknown.last.unwrap();
    let message = string(&error["error"]["message"]);
    assert!(unknown.code != Some(0) && message.contains("no node carries zone=asia"), "{error:#}");
    assert!(message.contains("zone=eu (6), zone=us (1)") && message.contains("rack=r1 (4)"), "{error:#}");

    let mut cast = cluster.cast(&["--label", "zone=eu", "--via", "overlay"]);
    wait_until("some of it", PATIENCE, || cast.bytes_done() > 0);
    let status = cluster.status();
    let ended = cast.end(PATIENCE);
    assert!(ended.log.contains("to 6 nodes that carry zone=eu"), "{}", ended.log);
    let result = complete(ended);
    println!(
        "{:.3} copies, {:.3} between racks, {:.3} over the busiest link, last after {} s",
        number(&result["copies"]),
        number(&result["between_racks_bytes"]) / (16 * MIB) as f64,
        number(&result["link_stress"]),
        result["last_seconds"]
    );
    assert!(string(&result["why"]).contains("once into each of 2 racks"), "{result:#}");
    let receivers = cluster.receivers(&result);
    assert_eq!(
        receivers.keys().map(String::as_str).collect::<Vec<_>>(),
        ["a1", "a2", "a3", "b1", "b2", "b3"]
    );
    // Not told of racks, two would enter each.
    assert!(number(&result["between_racks_bytes"]) < 2.6 * (16 * MIB) as f64, "{result:#}");
    assert!(number(&result["copies"]) < 1.5 && number(&result["link_stress"]) >= 1.0, "{result:#}");
    let passed_on: f64 = receivers.values().map(|it| number(&it["passed_on_bytes"])).sum();
    assert_eq!(passed_on, number(&result["relayed_bytes"]), "each byte that was passed on is somebody's");

    let [running] = &status["casts"].as_array().unwrap()[..] else { panic!("{status:#}") };
    assert_eq!((&running["via"], &running["receivers"]), (&"overlay".into(), &6.into()), "{status:#}");
    assert_eq!((&running["name"], &running["failed"]), (&"model".into(), &0.into()), "{status:#}");
    let nodes = status["nodes"].as_array().unwrap();
    let other = nodes.iter().find(|node| node["labels"]["name"] == "other").unwrap();
    assert_eq!((&other["rack"], &other["labels"]["rack"]), (&"r1".into(), &"r1".into()), "{status:#}");
    assert_eq!(cluster.status()["casts"], Value::Array(Vec::new()));
    assert!(!cluster.addresses().is_empty() && cluster.has("b3"));
}

/// Goal: two that have it send about half each to four that do not.
#[test]
fn two_sources_send_half_each() {
    let mut cluster = Cluster::start(16 * MIB, "60Mbit/s");
    cluster.node("second", &["--limit", "60Mbit/s"]);
    cluster.put("second");
    for name in ["w1", "w2", "w3", "w4"] {
        cluster.node(name, &["--label", "role=worker"]);
    }
    cluster.wait_for(6, 2);
    let result = complete(cluster.cast(&["--label", "role=worker", "--via", "overlay"]).end(PATIENCE));
    let sources = result["sources"].as_array().unwrap();
    println!("{sources:?}, {} copies", result["copies"]);
    assert_eq!(sources.len(), 2, "{result:#}");
    let sent: Vec<f64> = sources.iter().map(|source| number(&source["bytes"])).collect();
    let share = sent[0] / (sent[0] + sent[1]);
    assert!((0.35..0.65).contains(&share), "{share}: {result:#}");
    assert!(number(&result["copies"]) < 2.0, "{result:#}");
    ["w1", "w4"].into_iter().for_each(|name| assert!(cluster.has(name), "{name}"));
}

/// Goal: a cast that has lost a receiver in the middle says so and fails; the same command again serves that one alone, and it does not
/// fetch again what it had.
#[test]
fn a_receiver_that_was_lost_is_all_that_the_same_command_serves_again() {
    let mut cluster = Cluster::start(24 * MIB, "60Mbit/s");
    for name in ["w1", "w2", "w3"] {
        cluster.node(name, &[]);
    }
    cluster.wait_for(4, 1);
    let to: Vec<String> =
        cluster.addresses().into_iter().filter(|(name, _)| name != "up").map(|(_, at)| at).collect();
    let to = format!("--to={}", to.join(","));
    let mut cast = cluster.cast(&[&to, "--via", "overlay"]);
    let half = (12 * MIB) as u64;
    wait_until("half of it", PATIENCE, || cast.bytes_done() >= half);
    let lost = cluster.addresses()["w3"].clone();
    cluster.nodes.remove("w3").unwrap().kill();
    let ended = cast.end(PATIENCE);
    let result = ended.last.unwrap();
    assert_eq!((ended.code, &result["complete"]), (Some(1), &Value::Bool(false)), "{result:#} {}", ended.log);
    assert!(
        ended.log.contains("1 of 3 receivers do not have it; run the same command again"),
        "{}",
        ended.log
    );
    let receivers = cluster.receivers(&result);
    assert_eq!([&receivers["w1"]["state"], &receivers["w2"]["state"]], ["done", "done"], "{result:#}");
    assert_eq!((&receivers[&lost]["state"], receivers[&lost]["reason"].is_string()), (&"away".into(), true));

    let port = lost.rsplit(':').next().unwrap();
    let listen = format!("127.0.0.1:{port}");
    let arguments =
        ["node", "--join", &cluster.controller, "--listen", &listen, "--label", "name=w3"].map(str::to_owned);
    let process = cluster.process("w3", &arguments.each_ref().map(String::as_str), "w3");
    cluster.add("w3", process);
    cluster.wait_for(4, 3);
    let again = complete(cluster.cast(&[&to, "--via", "overlay"]).end(PATIENCE));
    let receivers = cluster.receivers(&again);
    let states = ["w1", "w2", "w3"].map(|name| string(&receivers[name]["state"]));
    assert_eq!(states, ["had", "had", "done"], "{again:#}");
    let came = number(&receivers["w3"]["unicast_bytes"]) + number(&receivers["w3"]["relayed_bytes"]);
    println!("{:.3} of the object came again to the one that was lost", came / (24 * MIB) as f64);
    assert!(came < 0.75 * (24 * MIB) as f64, "{again:#}");
    assert!(cluster.has("w3"));
}

/// Goal: a rollout ends before the wave that would follow too many failures; the same command resumes it, and serves nobody twice.
#[test]
fn a_rollout_goes_from_wave_to_wave_and_stops_at_failures() {
    let mut cluster = Cluster::start(MIB, "200Mbit/s");
    for name in ["a", "b", "c", "d"] {
        cluster.node(name, &["--name", name]);
    }
    cluster.wait_for(5, 1);
    let states = |result: &Value| -> Vec<String> {
        let receivers = result["receivers"].as_array().unwrap();
        let mut states: Vec<(String, String)> =
            receivers.iter().map(|it| (string(&it["name"]), string(&it["state"]))).collect();
        states.sort();
        states.into_iter().map(|(_, state)| state).collect()
    };
    let to = ["--to", "a,b,c,d"];
    cluster.nodes.remove("b").unwrap().kill();
    cluster.wait_for(4, 1);

    let ended = cluster.cast(&[&to[..], &["--waves", "2,100%"]].concat()).end(PATIENCE);
    let result = ended.last.unwrap();
    assert_eq!((ended.code, &result["complete"]), (Some(1), &Value::Bool(false)), "{result:#} {}", ended.log);
    assert_eq!(states(&result), ["done", "away", "waiting", "waiting"], "{result:#}");
    assert_eq!(result["waves"].as_array().unwrap().len(), 1, "{result:#}");
    assert!(string(&result["stopped"]).contains("after wave 1 of 2, as more receivers failed"), "{result:#}");
    assert!(
        ended.log.contains("the rollout was stopped after wave 1 of 2")
            && ended.log.contains("3 of 4 receivers do not have it"),
        "{}",
        ended.log
    );
    cluster.wait_for(4, 2);

    let more = ["--waves", "2,100%", "--max-failures", "1", "--pause", "100ms"];
    let ended = cluster.cast(&[&to[..], &more[..]].concat()).end(PATIENCE);
    let result = ended.last.unwrap();
    assert_eq!(states(&result), ["had", "away", "done", "done"], "{result:#}");
    let waves = result["waves"].as_array().unwrap();
    let counts = |wave: &Value| ["receivers", "done", "had", "failed"].map(|it| wave[it].as_u64().unwrap());
    assert_eq!(waves.iter().map(counts).collect::<Vec<_>>(), [[2, 0, 1, 1], [2, 2, 0, 0]], "{result:#}");
    assert!(ended.log.contains("wave 2 of 2: receivers 3 to 4 of 4"), "{}", ended.log);
    assert_eq!((ended.code, &result["stopped"]), (Some(1), &Value::Null), "one is away: {result:#}");

    let wrong = cluster.cast(&["--all", "--waves", "25%,5%"]).end(PATIENCE);
    let error = wrong.last.unwrap();
    assert!(string(&error["error"]["message"]).contains("they grow"), "{error:#}");
}

/// Goal: a node that joins after a standing cast was asked for gets the object by itself, also after the controller has started anew; it
/// ends when that is said.
#[test]
fn a_standing_cast_supplies_nodes_that_join_later() {
    let mut cluster = Cluster::start(MIB, "200Mbit/s");
    cluster.node("a", &["--label", "zone=eu"]);
    cluster.wait_for(2, 1);
    let ended = cluster.cast(&["--label", "zone=eu", "--to-new"]).end(PATIENCE);
    assert!(ended.log.contains("nodes that join later are sent it too"), "{}", ended.log);
    complete(ended);
    cluster.node("b", &["--label", "zone=us"]);
    cluster.node("c", &["--label", "zone=eu"]);
    cluster.wait_for(4, 3);
    assert!(cluster.has("c"));
    let standing = cluster.status()["standing"].clone();
    assert_eq!(standing, serde_json::json!([{"name": "model", "labels": {"zone": "eu"}}]));

    let listen = cluster.controller.clone();
    cluster.nodes.remove("up").unwrap().kill();
    let up = cluster.process(
        "up",
        &["up", "--listen", &listen, "--limit", "200Mbit/s", "--label", "name=up"],
        "up",
    );
    cluster.add("up", up);
    cluster.wait_for(4, 3);
    cluster.node("d", &["--label", "zone=eu"]);
    cluster.wait_for(5, 4);

    let off = cluster.cast(&["--label", "zone=eu", "--to-new=off"]).end(PATIENCE);
    assert_eq!((off.code, &off.last.unwrap()["stands"]), (Some(0), &Value::Bool(false)), "{}", off.log);
    assert_eq!(cluster.status()["standing"], serde_json::json!([]));
}
