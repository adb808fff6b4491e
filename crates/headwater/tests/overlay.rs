//! One object to many nodes on a network that carries unicast only: the receivers pass on to each other what comes.
//!
//! In namespaces on a bridge of the kernel's. Needs the right to make them, or else is skipped with the reason.
#![allow(clippy::disallowed_methods, reason = "drives real processes on a real clock")]

mod cluster;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::{Process, random_file, text};
use headwater::netns::{Capability, HostSpec, Link, Net, Spec};
use headwater_units::BitRate;
use serde_json::Value;
use tempfile::TempDir;

const MIB: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(120);

/// The lock that keeps measurements apart; `None` where there are no namespaces.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let lock = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    Capability::probe().inspect_err(|why| eprintln!("skipped: {why}")).is_ok().then_some(lock)
}

/// `headwater up` on host 0, which has the object, and a node on each other host.
struct Cluster {
    // Before the network and the files, which they use.
    nodes: Vec<Process>,
    net: Net,
    folder: TempDir,
    content: Vec<u8>,
    rate: f64,
}

impl Cluster {
    /// Every link carries so many Mbit/s.
    fn start(receivers: usize, mbit: u64, bytes: usize) -> Cluster {
        let rate = Some(BitRate::new(mbit * 1_000_000));
        let host = HostSpec { uplink: rate, downlink: rate, rack: None };
        let net = Net::build(&Spec { hosts: vec![host; receivers + 1], ..Spec::default() }).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let content = random_file(&folder.path().join("model"), bytes, 1);
        let mut cluster = Cluster { nodes: Vec::new(), net, folder, content, rate: mbit as f64 * 1e6 };
        let controller = cluster.controller();
        for host in 0..=receivers {
            let listen = format!("{}:7001", cluster.net.ipv4(host));
            let arguments: &[&str] = match host {
                0 => &["up", "--listen", &controller],
                _ => &["node", "--join", &controller, "--listen", &listen],
            };
            let mut node = cluster.process(host, &format!("node{host}"), arguments);
            node.line(PATIENCE);
            cluster.nodes.push(node);
        }
        let model = text(&cluster.folder.path().join("model"));
        assert_eq!(cluster.run(0, "put", &["put", &model]).code, Some(0));
        cluster::wait_until("the nodes to be known", PATIENCE, || {
            let status = cluster.run(0, "status", &["status", "--controller", &controller]).last.unwrap();
            let up = |node: &&Value| node["up"] == true;
            status["nodes"].as_array().unwrap().iter().filter(up).count() == receivers + 1
        });
        cluster
    }

    fn controller(&self) -> String {
        format!("{}:7000", self.net.ipv4(0))
    }

    fn process(&self, host: usize, name: &str, arguments: &[&str]) -> Process {
        let command = self.net.command(host, env!("CARGO_BIN_EXE_headwater")).unwrap();
        let state = text(&self.folder.path().join(format!("state{host}")));
        Process::start_by(self.folder.path(), name, command, &[arguments, &["--state", &state]].concat())
    }

    fn run(&self, host: usize, name: &str, arguments: &[&str]) -> cluster::Ended {
        self.process(host, name, arguments).end(PATIENCE)
    }

    fn cast(&self, more: &[&str]) -> Process {
        let controller = self.controller();
        let words = ["cast", "model", "--all", "--controller", &controller, "--progress", "json"];
        self.process(0, "cast", &[&words, more].concat())
    }

    /// Whether a node has the object, byte for byte.
    fn has(&self, host: usize) -> bool {
        let to = self.folder.path().join(format!("got{host}"));
        let from = format!("{}:7001", self.net.ipv4(host));
        let arguments = ["get", "model", "--from", &from, "-o", &text(&to), "--force"];
        self.run(host, &format!("get{host}"), &arguments).code == Some(0)
            && std::fs::read(to).unwrap() == self.content
    }

    /// Seconds that payload alone takes over one link.
    fn ideal(&self) -> f64 {
        self.content.len() as f64 * 8.0 / self.rate
    }

    /// What the source has put on the wire so far, over the object's size.
    fn copies(&self) -> f64 {
        self.net.sent(0).unwrap().get() as f64 / self.content.len() as f64
    }
}

/// What came of a cast.
#[derive(Debug)]
struct Seen {
    /// By host, from 1: its end over the ideal; none where it did not get it.
    ratios: Vec<Option<f64>>,
    /// Wire bytes of the source over the object's size.
    copies: f64,
    result: Value,
}

impl Seen {
    fn last(&self) -> f64 {
        self.ratios.iter().flatten().copied().fold(0.0, f64::max)
    }
}

/// Casts, perhaps with something that happens in the middle.
fn cast(cluster: &mut Cluster, middle: impl FnOnce(&mut Cluster)) -> Seen {
    let before = cluster.copies();
    let mut cast = cluster.cast(&["--via", "overlay"]);
    let half = cluster.content.len() as u64 / 2;
    cluster::wait_until("half of it", PATIENCE, || cast.bytes_done() >= half);
    middle(cluster);
    let ended = cast.end(PATIENCE);
    let result = ended.last.unwrap_or_default();
    assert_eq!(result["via"], "overlay", "{result:#} {}", ended.log);
    let copies = cluster.copies() - before;
    let ideal = cluster.ideal();
    let ratio = |host: usize| {
        let at = format!("{}:7001", cluster.net.ipv4(host));
        let its = result["receivers"].as_array()?.iter().find(|it| it["node"] == at.as_str())?;
        (its["state"] == "done").then(|| its["seconds"].as_f64().unwrap() / ideal)
    };
    let ratios = (1..cluster.nodes.len()).map(ratio).collect();
    let seen = Seen { ratios, copies, result };
    println!(
        "{:.3?} of ideal, {:.3} copies on the source's wire, {} by its account",
        seen.ratios, copies, seen.result["copies"]
    );
    seen
}

/// Goal: the source sends about one copy, and all have it, verified.
#[test]
fn the_source_sends_about_one_copy_and_everybody_has_it() {
    let Some(_alone) = alone() else { return };
    let mut cluster = Cluster::start(4, 50, 16 * MIB);
    let seen = cast(&mut cluster, |_| {});
    assert_eq!(seen.result["complete"], true, "{seen:?}");
    assert!(seen.copies < 2.0, "{seen:?}");
    assert!(seen.result["relayed_bytes"].as_u64().unwrap() > 2 * cluster.content.len() as u64, "{seen:?}");
    (1..=4).for_each(|host| assert!(cluster.has(host), "host {host}"));
}

/// Goal: a relay that is killed in the middle costs the others no byte, the command fails and names it.
#[test]
fn a_relay_that_is_killed_is_done_without() {
    let Some(_alone) = alone() else { return };
    let mut cluster = Cluster::start(4, 50, 16 * MIB);
    let seen = cast(&mut cluster, |cluster| cluster.nodes[2].kill());
    assert_eq!(seen.result["complete"], false, "{seen:?}");
    assert_eq!(seen.ratios.iter().flatten().count(), 3, "{seen:?}");
    [1, 3, 4].into_iter().for_each(|host| assert!(cluster.has(host), "host {host}"));
}

/// Measures up to three times, until it is within the limits.
fn within(
    receivers: usize,
    mbit: u64,
    bytes: usize,
    happens: impl Fn(&mut Cluster),
    limits: impl Fn(&Seen) -> bool,
    before: impl Fn(&Cluster),
) {
    let mut all = Vec::new();
    for _ in 0..3 {
        let mut cluster = Cluster::start(receivers, mbit, bytes);
        before(&cluster);
        let seen = cast(&mut cluster, &happens);
        if limits(&seen) {
            return;
        }
        all.push((seen.ratios, seen.copies));
    }
    panic!("{all:?}");
}

/// Goal: 256 MiB at 200 Mbit/s to 4 receivers: the last one within 1.2 of what payload alone takes, in 1.12 copies.
#[test]
#[ignore = "measures: wants the machine for itself"]
fn four_receivers_have_it_within_a_fifth_of_one_copy() {
    let Some(_alone) = alone() else { return };
    within(4, 200, 256 * MIB, |_| {}, |seen| seen.last() <= 1.2 && seen.copies <= 1.12, |_| {});
}

/// Goal: with one receiver at 50 Mbit/s the other three are within 1.3 of theirs.
#[test]
#[ignore = "measures: wants the machine for itself"]
fn three_receivers_do_not_wait_for_a_slow_fourth() {
    let Some(_alone) = alone() else { return };
    let slow = |cluster: &Cluster| {
        for link in [Link::Uplink(4), Link::Downlink(4)] {
            cluster.net.set_rate(link, Some(BitRate::new(50_000_000))).unwrap();
        }
    };
    let others = |seen: &Seen| seen.ratios[..3].iter().flatten().all(|ratio| *ratio <= 1.3);
    within(4, 200, 256 * MIB, |_| {}, others, slow);
}

/// Goal: with a relay killed in the middle everybody else is within 1.35.
#[test]
#[ignore = "measures: wants the machine for itself"]
fn three_receivers_do_without_a_killed_fourth() {
    let Some(_alone) = alone() else { return };
    let kill = |cluster: &mut Cluster| cluster.nodes[2].kill();
    let others = |seen: &Seen| seen.ratios.iter().flatten().count() == 3 && seen.last() <= 1.35;
    within(4, 200, 256 * MIB, kill, others, |_| {});
}

/// Goal: 8 and 16 receivers at 50 Mbit/s are within 1.3.
#[test]
#[ignore = "measures: wants the machine for itself"]
fn eight_and_sixteen_receivers_have_it_in_little_more_than_one_copy() {
    let Some(_alone) = alone() else { return };
    for receivers in [8, 16] {
        within(receivers, 50, 64 * MIB, |_| {}, |seen| seen.last() <= 1.3, |_| {});
    }
}
