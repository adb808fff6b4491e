//! Casts at the rate that switches compute (PAM), in namespaces around a software switch whose ports, and those of the hosts, grant rates.
//!
//! Needs the right to make namespaces, or else is skipped with the reason. Only causes and counts are asserted: how fast a cast is depends
//! on what else this machine does, and is printed. A switch that does not keep time loses what no queue has dropped, and delays what no queue
//! has held: nothing follows from a cast that has gone back to pulls then, which is skipped as "machine too busy".
#![allow(clippy::disallowed_methods, reason = "drives real processes on a real clock")]

#[path = "cluster/casting.rs"]
mod casting;
mod cluster;

use std::sync::MutexGuard;
use std::time::Duration;

use cluster::{Ended, Process, complete, number, random_file, text};
use headwater_experiment::scenario::Scenario;
use headwater_testbed::emulate::EmulatedNet;
use serde_json::Value;

const MIB: usize = 1 << 20;
/// Receivers; host 0 has the objects, and the controller is on the host behind them.
const RECEIVERS: usize = 4;
/// Ethernet frames of full packets over the payload that they carry, with the headers of scheduled ones.
const FRAMES: f64 = 1514.0 / 1414.0;
const PATIENCE: Duration = Duration::from_secs(120);
/// A look is a process of its own, beside those that it looks at: without pauses the looks take 15 % of the rate on two processors.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Every port grants rates. Offers take some milliseconds on a host that has other things to do.
const GRANTS: &str = r#"allocator = { variant = "simple", round_trip = "8 ms", queue_target = "45 KB" }"#;

/// The lock that keeps measurements apart; `None` where networks cannot be emulated.
fn alone() -> Option<MutexGuard<'static, ()>> {
    headwater_skips::alone(EmulatedNet::probe)
}

/// A controller that knows the network, on the host behind the last one, and a node on each of the others.
type Cluster = casting::Cluster<EmulatedNet>;

impl Cluster {
    /// Around one switch of `mbps` Mbit/s; host 0 has an object of `bytes` bytes. `grants`: what the ports do; `said`:
    /// what their operator says that they do.
    fn around(mbps: u32, bytes: usize, grants: &str, said: bool) -> Cluster {
        let hosts = RECEIVERS + 1;
        let fabric = |hosts: usize| {
            format!(r#"{{ kind = "big-switch", hosts = {hosts}, rate = "{mbps} Mbit/s", delay = "50 us" }}"#)
        };
        let port = format!(r#"port = {{ queue = "300 packets", mark_threshold = "none", {grants} }}"#);
        let scenario = Scenario::of_network(&format!("fabric = {}\n{port}", fabric(hosts + 1))).unwrap();
        let net = EmulatedNet::build(&scenario, 1).unwrap();
        let addresses: Vec<String> = (0..hosts).map(|host| format!("\"{}\"", net.ipv4(host))).collect();
        let topology = format!(
            "fabric = {}\nhosts = [{}]\nframing = 14\ncomputes_rates = {said}\n",
            fabric(hosts),
            addresses.join(", ")
        );
        let mut cluster = Cluster::empty(net, hosts, bytes);
        let file = cluster.folder.path().join("topology.toml");
        std::fs::write(&file, topology).unwrap();
        cluster.start_controller(hosts, &["--topology", &text(&file)]);
        (0..hosts).for_each(|host| cluster.start_node(host, &[]));
        cluster.begin();
        cluster
    }

    /// One more object at host 0.
    fn put(&self, name: &str, bytes: usize, seed: u64) {
        let file = self.folder.path().join(name);
        random_file(&file, bytes, seed);
        assert_eq!(self.run(0, "put-more", &["put", &text(&file)]).code, Some(0));
    }

    /// Starts a cast of this object to all receivers.
    fn cast_of(&self, name: &str, flags: &[&str]) -> Process {
        let words = ["cast", name, "--all", "--controller", &self.at, "--progress", "none"];
        self.process(0, &format!("cast-{name}"), &[&words, flags].concat())
    }

    /// Whether a cast went at computed rates all the way, or has another reason to stop than that the switch did not keep time.
    fn counts(&self, result: &Value) -> bool {
        result["unscheduled"].is_null() || self.kept_time()
    }

    /// Whether the switch kept time.
    fn kept_time(&self) -> bool {
        let validity = self.net.switch().snapshot().unwrap().validity;
        if !validity.valid {
            eprintln!("skipped: machine too busy: {validity:?}");
        }
        validity.valid
    }

    /// Looks at a cast while another one runs.
    fn wait_of(&self, name: &str, (other, running): (&str, &mut Process)) -> Wait {
        let mut wait = Wait::default();
        while running.is_running() {
            // A short cast has to be seen eight times.
            std::thread::sleep(LOOK_EVERY / 2);
            let status = self.status();
            let line_of = |name: &str| status["casts"].as_array()?.iter().find(|line| line["name"] == name);
            let Some(line) = line_of(name) else { continue };
            let is_sent = line_of(other)
                .is_some_and(|it| it["rate"].as_u64() > Some(0) && !it["paused_seconds"].is_number());
            wait.looks += 1;
            // How long is the switch's affair: now and then it has a little to spare, and the wait begins anew.
            let paused = line["paused_seconds"].is_number();
            wait.paused |= paused;
            match line["behind"] == other {
                true => wait.told += 1,
                false => wait.untold += u32::from(paused && is_sent),
            }
        }
        wait
    }

    fn dropped(&self) -> u64 {
        self.net.switch().snapshot().unwrap().links.iter().map(|link| link.port.dropped).sum()
    }
}

/// Observations of a cast that waits for another one.
#[derive(Debug, Default)]
struct Wait {
    looks: u32,
    paused: bool,
    /// Looks at which the status named the other one as the reason to wait.
    told: u32,
    /// Looks at which it was paused and the other one was being sent, but the status did not name that.
    untold: u32,
}

impl Wait {
    /// Whether the status named the reason whenever there was one. Where the switch kept time, there was; on a busy
    /// machine each of the two may wait whenever the other one does, and there may be no time to look.
    fn is_said(&self, kept_time: bool) -> bool {
        self.untold == 0 && (!kept_time || self.looks < 8 || self.paused && self.told > 0)
    }
}

fn seconds(ended: Ended) -> f64 {
    number(&complete(ended)["last_seconds"])
}

/// Goal: each symbol leaves the source once, no queue drops anything, and all have the object; the switch names the
/// cast that it has favoured. HEADWATER_RATES_MIB says how large the object is: in 32 MiB, which take 1.4 s, a tenth is how a cast begins
/// and ends.
#[test]
fn all_have_it_at_the_rate_that_the_switch_grants() {
    let Some(_alone) = alone() else { return };
    let bytes = MIB * std::env::var("HEADWATER_RATES_MIB").map_or(32, |mib| mib.parse().unwrap());
    let cluster = Cluster::around(200, bytes, GRANTS, true);
    let before = cluster.dropped();
    let mut cast = cluster.cast(&["--all"]);
    let (mut rates, mut favoured) = (Vec::new(), false);
    while cast.is_running() {
        std::thread::sleep(LOOK_EVERY);
        let links = cluster.net.status().unwrap().links;
        favoured |= links.iter().filter_map(|it| it.allocator.as_ref()).any(|it| it.critical.is_some());
        let status = cluster.status();
        let line = status["casts"].as_array().and_then(|casts| casts.first()).cloned();
        rates.extend(line.filter(|line| line["via"] == "rates").and_then(|line| line["rate"].as_u64()));
    }
    let result = complete(cast.end(PATIENCE));
    let copies = number(&result["copies"]);
    let ideal = bytes as f64 * 8.0 * FRAMES / 200e6;
    let last = number(&result["last_seconds"]) / ideal;
    println!("{copies:.4} copies, last at {last:.3} of ideal, rates said {rates:?}; {}", result["why"]);
    (1..=RECEIVERS).for_each(|host| assert!(cluster.has(host), "host {host}"));
    if !cluster.counts(&result) {
        return;
    }
    assert_eq!((&result["via"], &result["unscheduled"]), (&Value::from("rates"), &Value::Null));
    assert!((1.0..1.1).contains(&copies), "{result:#}");
    assert!(!cluster.kept_time() || cluster.dropped() == before, "no queue drops anything");
    assert!(favoured, "some port has favoured the transfer while it ran");
    let links = cluster.net.status().unwrap().links;
    assert!(links.iter().all(|link| link.allocator.is_some()), "hosts' own ports grant rates too");
}

/// Goal: of two casts that begin together the smaller one has its turn first, and the other one's source waits meanwhile.
#[test]
fn the_smaller_of_two_goes_first() {
    let Some(_alone) = alone() else { return };
    let larger = 10 * MIB;
    let smaller = larger * 8 / 10;
    let cluster = Cluster::around(40, larger, GRANTS, true);
    cluster.put("solo", smaller, 2);
    cluster.put("smaller", smaller, 3);
    let solo = seconds(cluster.cast_of("solo", &[]).end(PATIENCE));
    let (big, small) = (cluster.cast_of("model", &[]), cluster.cast_of("smaller", &[]));
    let mut small = small;
    let wait = cluster.wait_of("model", ("smaller", &mut small));
    let [small, big] = [small, big].map(|cast| complete(cast.end(PATIENCE)));
    let count = [&small, &big].into_iter().all(|result| cluster.counts(result));
    let [small, big] = [small, big].map(|result| number(&result["last_seconds"]));
    println!("smaller {small:.2} s, {:.2} of {solo:.2} s alone; larger {big:.2} s", small / solo);
    if !count {
        return;
    }
    assert!(small < big, "{small} and {big}");
    assert!(
        !cluster.kept_time() || wait.is_said(true),
        "the larger one has waited for the smaller one, and said so: {wait:?}"
    );
}

/// Two casts whose sizes are as 2 : 1. The first one has all the time there is, the second one must be there in the time that it takes
/// alone and half of that again.
struct WithDeadline {
    /// Exit code and result of the second one.
    urgent: (Option<i32>, Value),
    /// How the first one waited for it.
    wait: Wait,
    /// The run's times tell something.
    kept_time: bool,
}

/// Such a run, if it counts.
fn with_a_deadline(policy: &str) -> Option<WithDeadline> {
    let cluster = Cluster::around(40, 12 * MIB, GRANTS, true);
    cluster.put("urgent", 6 * MIB, 2);
    let policy = ["--policy", policy];
    let long = cluster.cast_of("model", &policy);
    // It is being sent.
    while cluster.status()["casts"][0]["multicast_bytes"].as_u64().unwrap_or(0) == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut urgent = cluster.cast_of("urgent", &[&policy[..], &["--deadline", "2.3s"]].concat());
    let wait = cluster.wait_of("model", ("urgent", &mut urgent));
    let urgent = urgent.end(PATIENCE);
    let (long, result) = (complete(long.end(PATIENCE)), urgent.last.unwrap());
    let counts = cluster.counts(&long) && cluster.counts(&result);
    let kept_time = cluster.kept_time();
    counts.then_some(WithDeadline { urgent: (urgent.code, result), wait, kept_time })
}

/// Goal: with earliest deadline first a cast is in time that is late where all share alike, since the other one waits for it; the exit
/// code says so.
#[test]
fn a_deadline_is_kept_that_fair_sharing_misses() {
    let Some(_alone) = alone() else { return };
    let [Some(edf), Some(fair)] = ["edf", "fair"].map(with_a_deadline) else { return };
    let last = |result: &Value| number(&result["last_seconds"]);
    println!("edf {:.2} s, fair {:.2} s, deadline 2.3 s", last(&edf.urgent.1), last(&fair.urgent.1));
    for WithDeadline { urgent: (code, result), .. } in [&edf, &fair] {
        let met = last(result) <= 2.3;
        assert_eq!((*code, &result["deadline_met"]), (Some(if met { 0 } else { 8 }), &Value::from(met)));
        assert_eq!((&result["complete"], &result["via"]), (&Value::from(true), &Value::from("rates")));
    }
    // On a busy machine the deadline passes, and a late cast goes last.
    let in_time = edf.urgent.0 == Some(0);
    assert!(!in_time || edf.wait.is_said(edf.kept_time), "{:?}", edf.wait);
    assert!(!fair.kept_time || fair.wait.told == 0, "{:?}", fair.wait);
    assert!(!(edf.kept_time && fair.kept_time) || last(&edf.urgent.1) < last(&fair.urgent.1));
}

/// Goal: where no port grants rates although the operator has said so, the cast loses, falls back to pulls, and says so.
#[test]
fn a_network_that_does_not_keep_its_word_is_found_out() {
    let Some(_alone) = alone() else { return };
    let cluster = Cluster::around(20, 8 * MIB, "", true);
    let slow = ["rate", "5Mbit/s"].map(str::to_owned);
    cluster.net.fault("switch-h3", &slow).unwrap();
    let ended = cluster.cast(&["--all"]).end(PATIENCE);
    let said = ended.log.clone();
    let result = complete(ended);
    println!("{}: {}", result["why"], result["unscheduled"]);
    assert!(said.contains("not every switch on the way computes rates"), "{said}");
    assert_eq!(result["via"], "multicast");
    assert!(result["unscheduled"].is_string(), "{result:#}");
    (1..=RECEIVERS).for_each(|host| assert!(cluster.has(host), "host {host}"));
}

#[test]
fn whoever_insists_on_rates_is_told_why_there_are_none() {
    let Some(_alone) = alone() else { return };
    let cluster = Cluster::around(20, MIB, GRANTS, false);
    let ended = cluster.cast(&["--all", "--via", "rates"]).end(PATIENCE);
    assert_eq!(ended.code, Some(2), "{}", ended.log);
    assert!(ended.log.contains("computes_rates = true"), "{}", ended.log);
}

/// Goodput of a TCP flow from host 0 to host 1 in some seconds, Mbit/s, beside whatever `meanwhile` begins.
fn tcp_goodput(
    cluster: &Cluster,
    congestion: &str,
    meanwhile: impl FnOnce() -> Vec<Process>,
) -> (f64, Vec<Process>) {
    let listen = format!("{}:9000", cluster.net.ipv4(1));
    let start = |host: usize, name: &str, args: &[&str]| {
        let command = cluster.net.command(host, env!("CARGO_BIN_EXE_headwater")).unwrap();
        Process::start_by(cluster.folder.path(), name, command, args)
    };
    let mut receiver = start(1, "tcp-receive", &["debug", "tcp", "receive", "--listen", &listen]);
    receiver.line(PATIENCE);
    let begun = meanwhile();
    let args = ["debug", "tcp", "send", "--to", &listen, "--for", "4s", "--congestion", congestion];
    let sent = start(0, "tcp-send", &args).end(PATIENCE);
    receiver.interrupt();
    (number(&sent.last.unwrap()["goodput_bit_per_s"]) / 1e6, begun)
}

/// Goal: transfers leave the link to the kernel's TCP, and go on when it is done.
#[test]
fn casts_leave_the_link_to_tcp() {
    let Some(_alone) = alone() else { return };
    for congestion in ["reno", "cubic"] {
        let cluster = Cluster::around(50, 16 * MIB, GRANTS, true);
        cluster.put("other", 16 * MIB, 2);
        let (solo, _) = tcp_goodput(&cluster, congestion, Vec::new);
        let (beside, casts) = tcp_goodput(&cluster, congestion, || {
            let casts = vec![cluster.cast_of("model", &[]), cluster.cast_of("other", &[])];
            std::thread::sleep(Duration::from_millis(700));
            casts
        });
        let lasts: Vec<f64> = casts.into_iter().map(|cast| seconds(cast.end(PATIENCE))).collect();
        println!(
            "{congestion}: {beside:.1} Mbit/s beside two casts, {solo:.1} alone ({:.3}); casts {lasts:.2?} s",
            beside / solo
        );
        assert!(beside > 0.5 * solo, "{congestion}: {beside} of {solo}");
    }
}

/// Goal: where no port grants rates although the operator has said so, TCP keeps half of its equal share of the link, before the cast has
/// found out and after.
#[test]
fn tcp_keeps_half_its_share_beside_a_network_that_does_not_keep_its_word() {
    let Some(_alone) = alone() else { return };
    let cluster = Cluster::around(20, 16 * MIB, "", true);
    let (solo, _) = tcp_goodput(&cluster, "cubic", Vec::new);
    let (beside, mut casts) = tcp_goodput(&cluster, "cubic", || {
        let cast = cluster.cast_of("model", &[]);
        std::thread::sleep(Duration::from_millis(700));
        vec![cast]
    });
    let was_there = casts[0].is_running();
    let result = complete(casts.remove(0).end(PATIENCE));
    println!("{beside:.1} Mbit/s beside the cast, {solo:.1} alone; {}", result["unscheduled"]);
    (1..=RECEIVERS).for_each(|host| assert!(cluster.has(host), "host {host}"));
    assert!(!was_there || !cluster.kept_time() || beside > 0.25 * solo, "{beside} of {solo}");
}
