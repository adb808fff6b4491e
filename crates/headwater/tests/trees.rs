//! One object to many nodes down the trees of a network that is known (Datacast), in namespaces around a software switch.
//!
//! Needs the right to make namespaces, or else is skipped with the reason.
#![allow(clippy::disallowed_methods, reason = "drives real processes on a real clock")]

#[path = "cluster/casting.rs"]
mod casting;
mod cluster;

use std::sync::MutexGuard;
use std::time::Duration;

use cluster::{Process, complete, number, random_file, text};
use headwater_experiment::scenario::Scenario;
use headwater_fabric::HostId;
use headwater_fabric::trees::{self, Group};
use headwater_switch::LinkChange;
use headwater_testbed::emulate::{EmulatedNet, NetOptions};
use headwater_units::{BitRate, Bytes};
use serde_json::Value;

const MIB: usize = 1 << 20;
/// Ethernet frames of full packets over the payload that they carry.
const FRAMES: f64 = 1514.0 / 1424.0;
/// The emulated switch counts frames without preamble, check sequence and gap.
const FRAMING: &str = "framing = 14\n";
const PATIENCE: Duration = Duration::from_secs(60);

/// The lock that keeps measurements apart; `None` where networks cannot be emulated.
fn alone() -> Option<MutexGuard<'static, ()>> {
    headwater_skips::alone(EmulatedNet::probe)
}

/// A controller that knows the network, on the host behind the last one on the trees, and a node on each of the others.
type Cluster = casting::Cluster<EmulatedNet>;

impl Cluster {
    /// A cluster of `hosts` around one switch of 100 Mbit/s; host 0 has an object of `bytes`.
    fn around_a_switch(hosts: usize, bytes: usize) -> Cluster {
        let fabric = |hosts| {
            format!(r#"{{ kind = "big-switch", hosts = {hosts}, rate = "100 Mbit/s", delay = "50 us" }}"#)
        };
        let port = r#"port = { queue = "100 packets", mark_threshold = "30 packets" }"#;
        let scenario = Scenario::of_network(&format!("fabric = {}\n{port}", fabric(hosts + 1))).unwrap();
        let net = EmulatedNet::build(&scenario, 1).unwrap();
        let addresses: Vec<String> = (0..hosts).map(|host| format!("\"{}\"", net.ipv4(host))).collect();
        let topology = format!("fabric = {}\nhosts = [{}]\n{FRAMING}", fabric(hosts), addresses.join(", "));
        Cluster::start(net, hosts, bytes, &topology, &[])
    }

    /// `more` is for all of them.
    fn start(net: EmulatedNet, hosts: usize, bytes: usize, topology: &str, more: &[&str]) -> Cluster {
        let forward = net.hosts() == hosts;
        let on = if forward { 0 } else { hosts };
        let mut cluster = Cluster::empty(net, on, bytes);
        std::fs::write(cluster.folder.path().join("topology.toml"), topology).unwrap();
        cluster.start_knowing(on, more);
        for host in 0..hosts {
            // With several cables a node is reached by an address on each.
            let own = if forward { "0.0.0.0:7001".to_owned() } else { cluster.node_at(host) };
            cluster.start_node_on(host, &own, more);
        }
        cluster.begin();
        cluster
    }

    /// Starts the controller, which gets the network's description.
    fn start_knowing(&mut self, on: usize, more: &[&str]) {
        let topology = text(&self.folder.path().join("topology.toml"));
        self.start_controller(on, &[&["--topology", &topology], more].concat());
    }

    /// Symbols that have crossed each link: frames are long or they are not.
    fn symbols_carried(&self) -> Vec<f64> {
        let links = self.net.switch().snapshot().unwrap().links;
        let carried = |frames: u64, bytes: u64| (bytes as f64 - 76.0 * frames as f64) / (1514.0 - 76.0);
        // Interests and heartbeats have 74 bytes on the line, what is said to the controller a little more.
        links.iter().map(|link| carried(link.port.frames_out, link.port.bytes_out.get())).collect()
    }
}

/// Goal: around a plain switch every node hands on what comes to it, so that each symbol leaves each host once.
#[test]
fn nodes_hand_on_to_each_other_what_comes_down_a_tree() {
    let Some(_alone) = alone() else { return };
    let cluster = Cluster::around_a_switch(5, 16 * MIB);
    let ended = cluster.cast(&["--all"]).end(PATIENCE);
    assert!(ended.log.contains("by a tree, at most 4 hops to 4 receivers"), "{}", ended.log);
    let result = complete(ended);
    let ideal = cluster.content.len() as f64 * 8.0 * FRAMES / 100e6;
    let (copies, last) = (number(&result["copies"]), number(&result["last_seconds"]) / ideal);
    println!("{copies:.4} copies, last at {last:.3} of ideal; {}", result["why"]);
    assert_eq!(result["via"], "trees");
    // A host that is late repeats some, on a busy machine half of them; a source that sends to each sends four.
    assert!((1.0..2.0).contains(&copies), "{result:#}");
    (1..5).for_each(|host| assert!(cluster.has(host), "host {host}"));
}

/// BCube(4,1) with `mbps` Mbit/s and `delay` microseconds on each cable, whose switches keep what passes on trees; host
/// 0 has the object, and the controller.
fn bcube((mbps, delay): (u32, u32), bytes: usize, more: &str, arguments: &[&str]) -> Cluster {
    let fabric =
        format!(r#"{{ kind = "bcube", n = 4, levels = 1, rate = "{mbps} Mbit/s", delay = "{delay} us" }}"#);
    let scenario =
        Scenario::of_network(&format!("fabric = {fabric}\nport = {{ queue = \"100 packets\" }}")).unwrap();
    let options = NetOptions { tree_store: Some(Bytes::new(512_000)), ..NetOptions::default() };
    let net = EmulatedNet::build_with(&scenario, 1, &options).unwrap();
    let of = |host| {
        format!("[\"{}\", \"{}\", \"{}\"]", net.ipv4_on(host, 0), net.ipv4_on(host, 1), net.ipv4(host))
    };
    let hosts: Vec<String> = (0..net.hosts()).map(of).collect();
    let topology =
        format!("fabric = {fabric}\nswitches = \"stores\"\nhosts = [{}]\n{FRAMING}{more}", hosts.join(", "));
    Cluster::start(net, 16, bytes, &topology, arguments)
}

/// Result of a cast over the BCube.
#[derive(Debug)]
struct Measured {
    result: Value,
    /// Symbols over links, for each symbol and link of its tree.
    link_stress: f64,
    /// Payload of the last receiver over what its links carry of it.
    goodput: f64,
    valid: bool,
}

impl Cluster {
    /// Nothing is lost in switches that keep and copy that is not counted.
    fn conserved(&self) {
        let seen = self.net.switch().snapshot().unwrap();
        let (counts, queued) = (seen.counts, seen.links.iter().map(|link| link.queue).sum::<u64>());
        let made = counts.injected.frames + counts.copied.frames + counts.duplicated.frames;
        let gone =
            counts.delivered.frames + counts.dropped.frames + counts.lost.frames + counts.unroutable.frames;
        assert_eq!(made, gone + counts.gathered.frames + queued + seen.in_flight, "{counts:?}");
        assert!(counts.gathered.frames > 1000, "interests end at switches: {counts:?}");
    }

    /// Casts to all, down `trees` trees, each of whose links carries `rate` bit/s.
    fn measured(&self, trees: usize, rate: f64) -> Measured {
        let group =
            Group::new(self.net.topology(), HostId(0), &(1..16).map(HostId).collect::<Vec<_>>()).unwrap();
        let links = trees::disjoint(self.net.topology(), &group)[0].links().len() as f64;
        let before = self.symbols_carried();
        self.net.switch().forget_lateness().unwrap();
        let result = complete(self.cast(&["--all"]).end(PATIENCE * 3));
        let validity = self.net.switch().snapshot().unwrap().validity;
        let symbols = (self.content.len() as f64 / 1424.0).ceil();
        let carried: Vec<f64> =
            self.symbols_carried().iter().zip(before).map(|(now, before)| now - before).collect();
        let link_stress = carried.iter().sum::<f64>() / (symbols * links);
        let of_tree = carried.iter().map(|carried| carried / symbols).filter(|share| *share > 0.1);
        println!("by link: {:.3?}", of_tree.collect::<Vec<_>>());
        let ideal = self.content.len() as f64 * 8.0 * FRAMES / (rate * trees as f64);
        let goodput = ideal / number(&result["last_seconds"]);
        println!("{}; {validity:?}", result["why"]);
        println!(
            "link stress {link_stress:.4}, repeated {:.3} % at the source, goodput of the last {:.2} % of its links, first after {:.2} s, last after {:.2} s of {ideal:.2}",
            100.0 * (number(&result["copies"]) - 1.0),
            100.0 * goodput,
            number(&result["first_seconds"]),
            number(&result["last_seconds"]),
        );
        Measured { result, link_stress, goodput, valid: validity.valid }
    }
}

/// Goal: hosts with two cables hand on to each other, and an object comes to all down two trees, each symbol about once over each link.
#[test]
fn two_trees_of_a_bcube_bring_an_object_through_switches_that_keep_and_copy() {
    let Some(_alone) = alone() else { return };
    let cluster = bcube((20, 5), 4 * MIB, "", &[]);
    let Measured { result, link_stress, valid, .. } = cluster.measured(2, 20e6);
    assert_eq!(result["via"], "trees");
    assert!(result["why"].as_str().unwrap().contains("2 trees that share no link"), "{result:#}");
    // Connections of all kinds are in it, and what is asked for again where the switch was late. Sent to each, a symbol crosses two
    // links to 6 of the hosts and four to the other 9: 48 instead of the tree's 20.
    let most = if valid { 1.3 } else { 2.0 };
    assert!((0.99..most).contains(&link_stress), "{link_stress}");
    cluster.conserved();
    [1, 6, 15].into_iter().for_each(|host| assert!(cluster.has(host), "host {host}"));
}

/// Theorem 2 of Datacast. `rise` is delta over T.
fn theorem_2(rise: f64, rate: f64, round_trip: f64) -> f64 {
    let packet = 1514.0 * 8.0;
    rise / (rise + rate / (2.0 * packet / rate + round_trip))
}

/// Measures up to three times, until all is within the limits; what is beyond them counts only where the switch kept time.
fn within_limits(rise: f64, (rate, round_trip): (f64, f64), least: f64, measure: impl Fn() -> Measured) {
    let bound = theorem_2(rise, rate, round_trip);
    for attempt in 1..=3 {
        let measured = measure();
        let repeated = number(&measured.result["copies"]) - 1.0;
        println!("attempt {attempt}: repeated {repeated:.4}, Theorem 2 allows {bound:.4}");
        if measured.link_stress <= 1.02 && measured.goodput >= least && repeated <= bound {
            return;
        }
        assert!(!measured.valid || attempt < 3, "{measured:?}");
    }
    headwater_skips::too_busy("all attempts");
}

/// Goal (Datacast Table I at a fiftieth of its rates, where time goes by a fiftieth as fast): link stress and goodput of two trees.
#[test]
#[ignore = "measures: wants the machine for itself"]
fn two_trees_carry_each_symbol_once_at_the_rate_of_their_links() {
    let Some(_alone) = alone() else { return };
    // 16 fill a cable for 10 ms only, and of the programs that hand on here each may be woken as late.
    let tuning = "feedback_every = '100 ms'\ndatacast = { increase = '2500 kbit/s', interval = '50 ms', credit = 48, cache = '512 KB', initial_rate = '10 Mbit/s' }";
    // One tree's data and the interests for the other's share a cable: 74 bytes for each frame of 1514.
    let least = 0.98 * 1514.0 / (1514.0 + 74.0);
    within_limits(2.5e6 / 0.05, (20e6, 60e-6), least, || {
        bcube((20, 5), 64 * MIB, "", &["--tuning", tuning]).measured(2, 20e6)
    });
}

/// Goal (Datacast §VII-B1 at a tenth of its rates, where time goes by a tenth as fast): one tree goes as fast as the slowest receiver's
/// link, and repeats no more than Theorem 2 allows. The testbed's 350 us of round trip are 3.5 ms here: twelve cables of 290 us.
#[test]
#[ignore = "measures: wants the machine for itself"]
fn one_tree_goes_at_the_rate_of_its_slow_link_and_repeats_little() {
    let Some(_alone) = alone() else { return };
    let tuning = "feedback_every = '100 ms'\ndatacast = { increase = '500 kbit/s', interval = '10 ms', credit = 8, cache = '128 KB', initial_rate = '50 Mbit/s' }";
    within_limits(500e3 / 0.01, (10e6, 3.5e-3), 0.98, || {
        let cluster = bcube((100, 290), 16 * MIB, "trees = 1\n", &["--tuning", tuning]);
        let slow = cluster.net.link("sw0.0-h2").unwrap();
        cluster.net.switch().change(slow, LinkChange::Rate(BitRate::new(10_000_000))).unwrap();
        cluster.measured(1, 10e6)
    });
}

/// Casts over a BCube whose nodes are told in this way, cuts a link of a tree meanwhile, and says how that ended; first the repairs.
fn cut_link(signalling: &str) -> (Vec<Value>, cluster::Ended) {
    let cluster = bcube((20, 5), 8 * MIB, &format!("signalling = \"{signalling}\"\n"), &[]);
    let mut cast = cluster.cast(&["--all"]);
    cluster::wait_until("some of it", PATIENCE, || cast.bytes_done() > MIB as u64);
    // The path back stays, since connections take it.
    let link = cluster.net.link("sw1.1-h1").unwrap();
    cluster.net.switch().change(link, LinkChange::Down(true)).unwrap();
    let ended = cast.end(PATIENCE);
    assert!(ended.code != Some(0) || cluster.has(1), "what was said to be complete is there");
    let repairs = ended.last.as_ref().and_then(|result| result["repairs"].as_array()).cloned();
    repairs.iter().flatten().for_each(|repair| println!("{signalling}: {repair}"));
    (repairs.filter(|repairs| !repairs.is_empty()).expect("the cut is noticed"), ended)
}

/// Goal: a link of a tree that is cut is noticed, the tree is rerouted, everybody concerned is told, and all have the object;
/// whether nodes are told by each other or by the controller.
#[test]
fn a_cut_link_is_noticed_and_its_tree_rerouted() {
    let Some(_alone) = alone() else { return };
    for signalling in ["tree", "direct"] {
        let (repairs, ended) = cut_link(signalling);
        complete(ended);
        let repair = &repairs[0];
        assert!(number(&repair["silent_seconds"]) > 0.0, "{repair:#}");
        // A repair that another one overtakes is never told of as such.
        assert!(repairs.iter().any(|repair| repair["told_seconds"].is_number()), "{repairs:#?}");
        assert_eq!(number(&repair["signalled"]) > 1.0, signalling == "tree", "{repair:#}");
    }
}

/// Goal: when a node that hands on to others is killed, they get the object all the same, and it is said who does not have it.
#[test]
fn the_others_have_it_although_one_that_handed_on_was_killed() {
    let Some(_alone) = alone() else { return };
    let mut cluster = Cluster::around_a_switch(5, 32 * MIB);
    let mut cast = cluster.cast(&["--all"]);
    cluster::wait_until("some of it", PATIENCE, || cast.bytes_done() > 4 * MIB as u64);
    cluster.nodes[2].kill();
    let ended = cast.end(PATIENCE);
    let result = ended.last.unwrap_or_default();
    println!("{:#}", result["repairs"]);
    assert_eq!((ended.code, &result["complete"]), (Some(1), &Value::Bool(false)), "{result:#} {}", ended.log);
    let states = result["receivers"].as_array().unwrap().iter().map(|it| it["state"].as_str().unwrap());
    assert_eq!(states.filter(|state| *state == "done").count(), 3, "{result:#}");
    [1, 3, 4].into_iter().for_each(|host| assert!(cluster.has(host), "host {host}"));
}

/// Goal: trees do not outlast their controller. When it is started anew, receivers go on by themselves with what they
/// have, nodes forget the trees, and the asker hears that all have the object.
#[test]
fn a_cast_by_trees_goes_on_one_by_one_when_its_controller_is_started_anew() {
    let Some(_alone) = alone() else { return };
    let mut cluster = Cluster::around_a_switch(4, 32 * MIB);
    let mut cast = cluster.cast(&["--all", "--via", "trees"]);
    cluster::wait_until("some of it", PATIENCE, || cast.bytes_done() > 4 * MIB as u64);
    cluster.controller.as_mut().unwrap().kill();
    cluster.start_knowing(4, &[]);
    let ended = cast.end(PATIENCE);
    let result = complete(ended);
    println!("last after {} s; {}", result["seconds"], result["why"]);
    (1..4).for_each(|host| assert!(cluster.has(host), "host {host}"));
}

/// Goal: a user who insists on trees where the controller knows of no network is told what to do.
#[test]
fn trees_need_a_controller_that_knows_the_network() {
    let folder = tempfile::tempdir().unwrap();
    let (at, state) = (format!("127.0.0.1:{}", cluster::free_port()), text(&folder.path().join("state")));
    let mut up = Process::start(folder.path(), "up", &["up", "--listen", &at, "--state", &state]);
    up.line(PATIENCE);
    random_file(&folder.path().join("model"), MIB, 1);
    let run = |name, arguments: &[&str]| {
        Process::start(folder.path(), name, &[arguments, &["--state", &state]].concat()).end(PATIENCE)
    };
    assert_eq!(run("put", &["put", &text(&folder.path().join("model"))]).code, Some(0));
    let ended = run("cast", &["cast", "model", "--all", "--via", "trees", "--controller", &at]);
    let said = format!("{} {}", ended.last.unwrap_or_default(), ended.log);
    assert!(ended.code != Some(0) && said.contains("headwater controller --topology FILE"), "{said}");
}
