//! Real daemons over a middle that carries shorter packets than the hosts' interfaces, and says nothing about it: a bridge
//! drops what is too long for its port, as a switch does, and as a router does whose ICMP is filtered.
//!
//! Needs root, or else is skipped with the reason.
#![allow(clippy::disallowed_methods, reason = "drives real processes on a real clock")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use headwater_testbed::netns::{Capability, HostSpec, Net, Spec};
use headwater_units::BitRate;
use serde_json::Value;

const SOURCE: usize = 0;
const RECEIVER: usize = 1;
const RATE: u64 = 200_000_000;
const BYTES: usize = 16 << 20;
/// IPv4, UDP and everything of ours that is not symbol.
const HEADERS: u64 = 20 + 8 + 48;

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lock that keeps networks apart; `None` where namespaces are not allowed.
fn alone() -> Option<MutexGuard<'static, ()>> {
    headwater_skips::alone(Capability::probe)
}

/// A source and a receiver with a folder each, and what is between them.
struct Pair {
    net: Net,
    folder: tempfile::TempDir,
    content: Vec<u8>,
    address: String,
    source: Option<Killed>,
}

impl Pair {
    fn build(host_mtu: u16) -> Pair {
        let host = HostSpec { uplink: Some(BitRate::new(RATE)), ..HostSpec::default() };
        let hosts = vec![host, HostSpec::default()];
        let net = Net::build(&Spec { hosts, mtu: host_mtu, ..Spec::default() }).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..BYTES).map(|i| (i * i / 7 % 251) as u8).collect();
        std::fs::write(folder.path().join("object.bin"), &content).unwrap();
        let address = format!("{}:7001", net.ipv4(SOURCE));
        Pair { net, folder, content, address, source: None }
    }

    /// Sets the rate of the source's link from now on, bit/s.
    fn limit(&self, rate: u64) {
        let uplink = headwater_testbed::netns::Link::Uplink(SOURCE);
        self.net.set_rate(uplink, Some(BitRate::new(rate))).unwrap();
    }

    /// The source's link to the core carries packets of this length from now on, both ways.
    fn narrow_middle(&self, mtu: u16) {
        for device in ["up0", "core0"] {
            set_mtu(&format!("{}-mid", self.net.run_id()), device, mtu);
        }
    }

    fn serve(&mut self) {
        let mut source = self.net.command(SOURCE, env!("CARGO_BIN_EXE_headwater")).unwrap();
        source.args(["serve", "object.bin", "--listen", &self.address, "--state", "s", "--json"]);
        let source = source.current_dir(&self.folder).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut source = Killed(source.spawn().unwrap());
        let mut ready = String::new();
        BufReader::new(source.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        self.source = Some(source);
    }

    fn start_get(&self, out: &str) -> Child {
        let mut get = self.net.command(RECEIVER, env!("CARGO_BIN_EXE_headwater")).unwrap();
        get.args(["get", "object.bin", "--from", &self.address, "-o", out, "--state", "r", "--json"]);
        get.args(["--progress", "none"]);
        get.current_dir(&self.folder).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Waits for the end: the object is there, whole, and the result is returned.
    fn finish(&self, get: Child, out: &str) -> Value {
        let ended = get.wait_with_output().unwrap();
        let log = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{log}");
        let arrived = std::fs::read(self.folder.path().join(Path::new(out))).unwrap();
        assert!(arrived == self.content, "the bytes are the object's");
        let text = String::from_utf8_lossy(&ended.stdout);
        let result: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        eprintln!("T {}, {} s, {}", result["symbol_size"], result["seconds"], log.trim());
        assert_eq!(result["verified"], true);
        result
    }

    fn get(&self, out: &str) -> Value {
        self.finish(self.start_get(out), out)
    }
}

fn set_mtu(namespace: &str, device: &str, mtu: u16) {
    let mut ip = Command::new("ip");
    ip.args(["-n", namespace, "link", "set", "dev", device, "mtu", &mtu.to_string()]);
    let done = ip.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Symbols fill packets of this length but for what the halving search and the cut into equal symbols leave.
fn fills(result: &Value, mtu: u64) {
    let symbol = result["symbol_size"].as_u64().unwrap();
    assert!(symbol + HEADERS <= mtu, "{symbol}");
    assert!((symbol + HEADERS) * 100 >= mtu * 96, "{symbol} bytes of symbol in packets of {mtu}");
}

/// The object did not come from timeout to timeout: that takes minutes, and a busy machine seconds.
fn does_not_crawl(result: &Value) {
    let ideal = BYTES as f64 * 8.0 * 1.08 / RATE as f64;
    let seconds = result["seconds"].as_f64().unwrap();
    assert!(seconds < ideal + 20.0, "{seconds} s where the link takes {ideal:.2} s");
}

#[test]
fn a_middle_of_1400_bytes_that_says_nothing_is_found_out_and_the_next_task_knows() {
    let Some(_alone) = alone() else { return };
    let mut pair = Pair::build(1500);
    pair.narrow_middle(1400);
    pair.serve();
    let result = pair.get("first.bin");
    fills(&result, 1400);
    does_not_crawl(&result);
    let result = pair.get("second.bin");
    fills(&result, 1400);
    does_not_crawl(&result);
}

#[test]
fn jumbo_hosts_behind_a_middle_of_1500_bytes_come_down_to_it() {
    let Some(_alone) = alone() else { return };
    let mut pair = Pair::build(9000);
    pair.narrow_middle(1500);
    pair.serve();
    let result = pair.get("out.bin");
    fills(&result, 1500);
    does_not_crawl(&result);
}

#[test]
fn jumbo_hosts_with_nothing_in_their_way_fill_their_packets() {
    let Some(_alone) = alone() else { return };
    let mut pair = Pair::build(9000);
    pair.serve();
    let result = pair.get("out.bin");
    fills(&result, 9000);
    does_not_crawl(&result);
}

/// The route changes while the object is under way, to one with a tunnel in it.
#[test]
fn a_middle_that_becomes_narrow_half_way_does_not_end_the_task() {
    let Some(_alone) = alone() else { return };
    let mut pair = Pair::build(1500);
    pair.serve();
    let get = slowly_half_way(&pair, "out.bin");
    pair.narrow_middle(1300);
    pair.limit(RATE);
    let result = pair.finish(get, "out.bin");
    fills(&result, 1300);
    does_not_crawl(&result);
}

/// The source's own kernel refuses from then on (EMSGSIZE).
#[test]
fn an_interface_whose_mtu_falls_half_way_does_not_end_the_task() {
    let Some(_alone) = alone() else { return };
    let mut pair = Pair::build(1500);
    pair.serve();
    let get = slowly_half_way(&pair, "out.bin");
    set_mtu(pair.net.namespace(SOURCE).unwrap(), "eth0", 1400);
    pair.limit(RATE);
    let result = pair.finish(get, "out.bin");
    fills(&result, 1400);
    does_not_crawl(&result);
}

/// Begins to fetch the object, at a tenth of the rate, and waits until a part of it has been sent: there are seconds until the rest has.
fn slowly_half_way(pair: &Pair, out: &str) -> Child {
    pair.limit(RATE / 10);
    let get = pair.start_get(out);
    let limit = Instant::now() + Duration::from_secs(30);
    let counters = || pair.net.counters(headwater_testbed::netns::Link::Uplink(SOURCE)).unwrap().bytes.get();
    while counters() < BYTES as u64 / 8 {
        assert!(Instant::now() < limit, "nothing is sent");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!pair.folder.path().join(out).exists(), "it is not through yet");
    get
}
