//! The README's cluster, as printed there: its lines are read from the README and run on four machines, with nothing said about
//! addresses but what the lines say.
//!
//! Needs root, or else is skipped with the reason.
#![allow(clippy::disallowed_methods, reason = "drives real processes on a real clock")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use headwater_testbed::netns::{Capability, HostSpec, Net, Spec};
use headwater_units::BitRate;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

const RATE: u64 = 200_000_000;
const BYTES: usize = 16 << 20;
/// The first machine, as the README has it, and the three others.
const MACHINES: [&str; 4] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];

/// Which addresses machines have.
#[derive(Clone, Copy, PartialEq)]
enum Family {
    Four,
    Six,
    Both,
}

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

/// The lines of the README's cluster, without their comments.
fn readme_lines() -> Vec<String> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(readme).unwrap();
    let mut blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.find(|block| block.lines().any(|line| command_of(line) == "headwater up"));
    let block = block.expect("the README says how to begin with `headwater up`");
    block.lines().map(command_of).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn command_of(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

/// Four machines on 200 Mbit/s links, each with a home of its own.
struct Cluster {
    net: Net,
    folder: tempfile::TempDir,
    family: Family,
    daemons: Vec<Killed>,
    lines: Vec<String>,
}

impl Cluster {
    fn build(family: Family) -> Cluster {
        let host = HostSpec { uplink: Some(BitRate::new(RATE)), ..HostSpec::default() };
        let net = Net::build(&Spec { hosts: vec![host; MACHINES.len()], ..Spec::default() }).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let cluster = Cluster { net, folder, family, daemons: Vec::new(), lines: readme_lines() };
        let hosts = 0..MACHINES.len();
        let macs: Vec<String> = hosts.clone().map(|host| cluster.mac(host)).collect();
        for host in hosts.clone() {
            std::fs::create_dir(cluster.home(host)).unwrap();
            let ip = |line: &str| cluster.ip(host, line);
            // The README's addresses in place of the network's own.
            ip("-4 addr flush dev eth0");
            if family == Family::Four {
                let off = "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > $f; done";
                let mut sh = cluster.net.command(host, "sh").unwrap();
                assert!(sh.args(["-c", off]).status().unwrap().success());
            }
            if family != Family::Six {
                ip(&format!("addr add {}/24 dev eth0", MACHINES[host]));
                for peer in hosts.clone().filter(|peer| *peer != host) {
                    ip(&format!(
                        "neigh replace {} lladdr {} dev eth0 nud permanent",
                        MACHINES[peer], macs[peer]
                    ));
                }
            }
        }
        cluster
    }

    fn ip(&self, host: usize, line: &str) {
        let namespace = self.net.namespace(host).unwrap();
        let done = Command::new("ip").args(["-n", namespace]).args(line.split(' ')).output().unwrap();
        assert!(done.status.success(), "ip {line}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn mac(&self, host: usize) -> String {
        let namespace = self.net.namespace(host).unwrap();
        let shown =
            Command::new("ip").args(["-n", namespace, "-j", "link", "show", "dev", "eth0"]).output().unwrap();
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        shown[0]["address"].as_str().unwrap().to_owned()
    }

    /// How a machine is reached by the family that it has.
    fn address(&self, host: usize) -> String {
        match self.family {
            Family::Six => self.net.ipv6(host).unwrap().to_string(),
            Family::Four | Family::Both => MACHINES[host].to_owned(),
        }
    }

    /// The control address of its node, as `status` shows it.
    fn node(&self, host: usize) -> String {
        let port = if host == 0 { 7000 } else { 7001 };
        match self.family {
            Family::Six => format!("[{}]:{port}", self.address(host)),
            Family::Four | Family::Both => format!("{}:{port}", self.address(host)),
        }
    }

    fn home(&self, host: usize) -> PathBuf {
        self.folder.path().join(format!("machine{host}"))
    }

    /// The README's line that begins so.
    fn line(&self, beginning: &str) -> String {
        let mut found = self.lines.iter().filter(|line| line.starts_with(beginning));
        let line = found.next().unwrap_or_else(|| panic!("the README has a line `{beginning} ...`"));
        assert!(found.next().is_none(), "only one");
        line.replace(MACHINES[0], &self.address(0))
    }

    fn command(&self, host: usize, line: &str) -> Command {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[0], "headwater");
        let home = self.home(host);
        let mut command = self.net.command(host, env!("CARGO_BIN_EXE_headwater")).unwrap();
        command.args(&words[1..]).current_dir(&home).env("HOME", &home);
        for (variable, _) in
            std::env::vars().filter(|(name, _)| name.starts_with("HEADWATER_") || name.starts_with("XDG_"))
        {
            command.env_remove(variable);
        }
        command
    }

    /// Starts a daemon and waits until it says that it listens.
    fn start(&mut self, host: usize, line: &str) {
        let log = std::fs::File::create(self.home(host).join("daemon.log")).unwrap();
        let mut child = self.command(host, line).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        out.read_line(&mut ready).unwrap();
        assert!(!ready.is_empty(), "{line}: {}", self.log(host));
        std::thread::spawn(move || out.lines().for_each(drop));
        self.daemons.push(Killed(child));
    }

    fn log(&self, host: usize) -> String {
        std::fs::read_to_string(self.home(host).join("daemon.log")).unwrap_or_default()
    }

    fn try_run(&self, host: usize, line: &str) -> Output {
        self.command(host, line).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a line to its end, and returns what it printed.
    fn run(&self, host: usize, line: &str) -> String {
        let done = self.try_run(host, line);
        let said = String::from_utf8_lossy(&done.stderr);
        let logs: Vec<String> = (0..MACHINES.len()).map(|host| self.log(host)).collect();
        assert!(done.status.success(), "on machine {host}: {line}\n{said}\n{}", logs.join("----\n"));
        String::from_utf8(done.stdout).unwrap()
    }

    /// The last JSON line of the same.
    fn json(&self, host: usize, line: &str) -> Value {
        let out = self.run(host, &format!("{line} --json"));
        serde_json::from_str(out.lines().last().unwrap()).unwrap()
    }

    /// Waits until `nodes` nodes are connected to the controller, asked on a machine.
    fn wait_for(&self, asked: usize, nodes: usize) {
        let limit = Instant::now() + Duration::from_secs(30);
        let up = || {
            let status = self.json(asked, &self.line("headwater status"));
            status["nodes"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|node| node["up"] == true && node["keeps"] == true)
                .count()
        };
        while up() < nodes {
            assert!(Instant::now() < limit, "nodes did not join: {}", self.log(1));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn file(&self, host: usize, name: &str) -> PathBuf {
        self.home(host).join(name)
    }
}

fn content(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Parts of a `get` by source, each with its address.
fn shares(result: &Value) -> Vec<(String, f64)> {
    let sources = result["sources"].as_array().unwrap();
    let share = |it: &Value| (it["node"].as_str().unwrap().to_owned(), it["share"].as_f64().unwrap());
    sources.iter().map(share).filter(|(_, share)| *share > 0.0).collect()
}

fn the_lines_work(family: Family) {
    let Some(_alone) = alone() else { return };
    let mut cluster = Cluster::build(family);
    if family != Family::Four && cluster.net.ipv6(0).is_none() {
        headwater_skips::cannot("no IPv6 here");
        return;
    }
    cluster.start(0, &cluster.line("headwater up"));
    for host in 1..MACHINES.len() {
        cluster.start(host, &cluster.line("headwater node"));
    }
    cluster.wait_for(0, MACHINES.len());
    let c = &cluster;
    let (put, get, cast) = (c.line("headwater put"), c.line("headwater get"), c.line("headwater cast"));
    let model = content(1);

    // From the first machine to another: it is the only one that has it.
    std::fs::write(c.file(0, "model.bin"), &model).unwrap();
    c.run(0, &put);
    let alone = c.json(3, &get);
    assert!(std::fs::read(c.file(3, "model.bin")).unwrap() == model);
    assert_eq!(shares(&alone), [(c.node(0), 1.0)]);

    // Beside two others it carries its part.
    for host in [1, 2] {
        std::fs::write(c.file(host, "model.bin"), &model).unwrap();
        c.run(host, &put);
    }
    std::fs::remove_file(c.file(3, "model.bin")).unwrap();
    let together = c.json(3, &get);
    let shares = shares(&together);
    eprintln!("alone {} MB/s; together {} MB/s: {shares:?}", alone["mb_per_s"], together["mb_per_s"]);
    let first = shares.iter().find(|(node, _)| *node == c.node(0));
    assert_eq!(shares.len(), 3, "{shares:?}");
    assert!(first.is_some_and(|(_, share)| *share > 0.1), "{shares:?}");

    // To every node at once.
    for host in [1, 2] {
        c.run(host, "headwater rm model");
    }
    let everywhere = c.json(0, &cast);
    eprintln!("cast: {}", everywhere["via"]);
    assert_eq!(everywhere["complete"], true, "{everywhere:#}");
    assert_eq!(everywhere["receivers"].as_array().unwrap().len(), 3);
    assert_eq!(everywhere["via"], "multicast", "{everywhere:#}");

    // From another machine to the first, by name and by cast.
    let other = content(2);
    std::fs::write(c.file(1, "other.bin"), &other).unwrap();
    c.run(1, "headwater put other.bin --name other");
    let to_first = c.json(0, "headwater get other -o other.bin");
    assert!(std::fs::read(c.file(0, "other.bin")).unwrap() == other);
    assert_eq!(to_first["sources"][0]["node"], c.node(1).as_str());
    let back = c.json(2, "headwater cast other --all");
    assert_eq!(back["complete"], true, "{back:#}");
    assert_eq!(back["via"], "multicast", "{back:#}");

    // Everybody is somewhere.
    for host in [0, 3] {
        let line = c.line("headwater status");
        let (text, status) = (c.run(host, &line), c.json(host, &line));
        let mut nodes: Vec<&str> =
            status["nodes"].as_array().unwrap().iter().map(|node| node["listen"].as_str().unwrap()).collect();
        nodes.sort_unstable();
        assert_eq!(nodes, [0, 1, 2, 3].map(|host| c.node(host)), "asked on machine {host}");
        let objects = status["objects"].as_array().unwrap();
        let holders: Vec<usize> = objects.iter().map(|it| it["holders"].as_array().unwrap().len()).collect();
        assert_eq!(holders, [4, 4]);
        for said in [text, status.to_string()] {
            assert!(!said.contains("[::]") && !said.contains("0.0.0.0"), "{said}");
        }
    }

    // And no more on the first.
    c.run(0, "headwater rm model");
    let status = c.json(3, &c.line("headwater status"));
    let model = status["objects"].as_array().unwrap().iter().find(|it| it["name"] == "model").unwrap();
    assert!(!model["holders"].as_array().unwrap().contains(&Value::String(c.node(0))), "{model}");
}

#[test]
fn the_readmes_cluster_delivers_with_ipv4_and_ipv6() {
    the_lines_work(Family::Both);
}

#[test]
fn the_readmes_cluster_delivers_with_ipv4_alone() {
    the_lines_work(Family::Four);
}

#[test]
fn the_readmes_cluster_delivers_with_ipv6_alone() {
    the_lines_work(Family::Six);
}

/// Controller and node as two processes of one machine, which meet over loopback: others reach both where they reach the machine.
#[test]
fn a_node_beside_its_controller_is_reached_from_elsewhere() {
    let Some(_alone) = alone() else { return };
    let mut cluster = Cluster::build(Family::Both);
    cluster.start(0, "headwater controller");
    cluster.start(0, "headwater node --join 127.0.0.1");
    for host in [1, 2] {
        cluster.start(host, &cluster.line("headwater node"));
    }
    cluster.wait_for(0, 3);
    let c = &cluster;
    let (here, there) = (content(1), content(2));
    std::fs::write(c.file(0, "here.bin"), &here).unwrap();
    std::fs::write(c.file(1, "there.bin"), &there).unwrap();
    c.run(0, "headwater put here.bin");
    c.run(1, "headwater put there.bin");
    let got = c.json(2, "headwater get here.bin");
    assert!(std::fs::read(c.file(2, "here.bin")).unwrap() == here);
    assert_eq!(shares(&got), [("10.0.0.1:7001".to_owned(), 1.0)]);
    c.run(0, "headwater get there.bin");
    assert!(std::fs::read(c.file(0, "there.bin")).unwrap() == there);
    // Nodes 0 and 2 receive, and pass on to each other what comes.
    let cast = c.json(2, "headwater cast there.bin --all --via overlay");
    assert_eq!(cast["complete"], true, "{cast:#}");
    let status = c.json(2, &c.line("headwater status")).to_string();
    assert!(
        status.contains("10.0.0.1:7001") && !status.contains("[::]") && !status.contains("127.0.0.1"),
        "{status}"
    );
}

/// A controller's machine gets another address, and its name leads there from then on: its nodes find it.
#[test]
fn a_controller_that_moved_is_found_by_its_name() {
    let Some(_alone) = alone() else { return };
    let mut cluster = Cluster::build(Family::Four);
    let hosts = cluster.folder.path().join("hosts");
    std::fs::write(&hosts, format!("127.0.0.1 localhost\n{} first.example\n", MACHINES[0])).unwrap();
    cluster.start(0, "headwater up");
    // As machine 1 has it: /etc/hosts of its own.
    let log = std::fs::File::create(cluster.home(1).join("daemon.log")).unwrap();
    let mut node = cluster.net.command(1, "unshare").unwrap();
    let script = r#"mount --bind "$0" /etc/hosts && exec "$@""#;
    node.args(["--mount", "sh", "-c", script]).arg(&hosts).arg(env!("CARGO_BIN_EXE_headwater"));
    node.args(["node", "--join", "first.example"]).env("HOME", cluster.home(1)).env("RUST_LOG", "info");
    cluster.daemons.push(Killed(node.stdout(Stdio::null()).stderr(log).spawn().unwrap()));
    let is_up = |cluster: &Cluster| {
        let status = cluster.json(0, "headwater status");
        let nodes = status["nodes"].as_array().unwrap();
        nodes.iter().any(|node| node["listen"] == cluster.node(1).as_str() && node["up"] == true)
    };
    let wait = |cluster: &Cluster, up: bool| {
        let limit = Instant::now() + Duration::from_secs(60);
        while is_up(cluster) != up {
            assert!(Instant::now() < limit, "up should be {up}; the node says: {}", cluster.log(1));
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    wait(&cluster, true);
    cluster.ip(0, &format!("addr del {}/24 dev eth0", MACHINES[0]));
    cluster.ip(0, "addr add 10.0.0.99/24 dev eth0");
    cluster.ip(0, &format!("neigh replace {} lladdr {} dev eth0 nud permanent", MACHINES[1], cluster.mac(1)));
    cluster.ip(1, &format!("neigh replace 10.0.0.99 lladdr {} dev eth0 nud permanent", cluster.mac(0)));
    wait(&cluster, false);
    std::fs::write(&hosts, "127.0.0.1 localhost\n10.0.0.99 first.example\n").unwrap();
    wait(&cluster, true);
}
