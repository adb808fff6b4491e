//! A controller and nodes that cast, on hosts in namespaces, whatever the network between these.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use headwater_testbed::emulate::EmulatedNet;
use serde_json::Value;
use tempfile::TempDir;

use crate::cluster::{Ended, Process, random_file, text, wait_until};

const PATIENCE: Duration = Duration::from_secs(120);

/// In memory, where there is room for what a score of hosts receive: they would have a disk each, and this machine has one.
fn folder_for(bytes: usize) -> TempDir {
    let wanted = bytes as u64 * 20 + (64 << 20);
    match rustix::fs::statvfs("/dev/shm") {
        Ok(memory) if memory.f_bavail * memory.f_frsize > wanted => tempfile::tempdir_in("/dev/shm"),
        _ => tempfile::tempdir(),
    }
    .unwrap()
}

/// Hosts in namespaces.
pub(crate) trait Network {
    /// A command of `headwater` on a host.
    fn headwater(&self, host: usize) -> Command;

    /// Where a host is.
    fn address(&self, host: usize) -> Ipv4Addr;
}

impl Network for EmulatedNet {
    fn headwater(&self, host: usize) -> Command {
        self.command(host, env!("CARGO_BIN_EXE_headwater")).unwrap()
    }

    fn address(&self, host: usize) -> Ipv4Addr {
        self.ipv4(host)
    }
}

/// A node on each of the first hosts, and a controller: `headwater up` on host 0 is both, if there is no other. Host 0 has the object
/// `model`.
pub(crate) struct Cluster<N> {
    // Before the network and the files, which they use.
    pub(crate) nodes: Vec<Process>,
    /// If it is not the node's on host 0.
    pub(crate) controller: Option<Process>,
    /// Where the controller listens.
    pub(crate) at: String,
    pub(crate) net: N,
    pub(crate) folder: TempDir,
    pub(crate) content: Vec<u8>,
}

impl<N: Network> Cluster<N> {
    /// Nobody is there yet; the controller is to be on this host, and the object has `bytes` bytes.
    pub(crate) fn empty(net: N, controller: usize, bytes: usize) -> Cluster<N> {
        let folder = folder_for(bytes);
        let content = random_file(&folder.path().join("model"), bytes, 1);
        let at = format!("{}:7000", net.address(controller));
        Cluster { nodes: Vec::new(), controller: None, at, net, folder, content }
    }

    /// The address of a host's node.
    pub(crate) fn node_at(&self, host: usize) -> String {
        format!("{}:7001", self.net.address(host))
    }

    /// Starts a host's node with `more` flags.
    pub(crate) fn start_node(&mut self, host: usize, more: &[&str]) {
        self.start_node_on(host, &self.node_at(host), more);
    }

    /// The same for a node that listens on this address.
    pub(crate) fn start_node_on(&mut self, host: usize, own: &str, more: &[&str]) {
        let arguments: &[&str] = match host {
            0 if self.controller.is_none() => &["up", "--listen", &self.at],
            _ => &["node", "--join", &self.at, "--listen", own],
        };
        let mut node = self.process(host, &format!("node{host}"), &[arguments, more].concat());
        node.line(PATIENCE);
        self.nodes.insert(host, node);
    }

    /// Starts a controller with `more` flags on a host; the one before it has been killed, if there was one.
    pub(crate) fn start_controller(&mut self, host: usize, more: &[&str]) {
        let arguments = [&["controller", "--listen", &self.at], more].concat();
        let mut controller = self.process(host, "controller", &arguments);
        controller.line(PATIENCE);
        self.controller = Some(controller);
    }

    /// Host 0 takes in the object; returns when the controller knows of all nodes.
    pub(crate) fn begin(&self) {
        let model = text(&self.folder.path().join("model"));
        assert_eq!(self.run(0, "put", &["put", &model]).code, Some(0));
        self.wait_for_nodes();
    }

    pub(crate) fn wait_for_nodes(&self) {
        wait_until("the nodes to be known", PATIENCE, || {
            let status = self.status();
            let up = |node: &&Value| node["up"] == true;
            status["nodes"].as_array().unwrap().iter().filter(up).count() == self.nodes.len()
        });
    }

    pub(crate) fn status(&self) -> Value {
        let ended = self.run(0, "status", &["status", "--controller", &self.at, "--timeout", "60s"]);
        ended.last.unwrap_or_else(|| panic!("no status: {}", ended.log))
    }

    /// Starts `headwater ARGUMENTS` on a host, with the state of its node.
    pub(crate) fn process(&self, host: usize, name: &str, arguments: &[&str]) -> Process {
        let state = text(&self.folder.path().join(format!("state{host}")));
        let arguments = [arguments, &["--state", &state]].concat();
        Process::start_by(self.folder.path(), name, self.net.headwater(host), &arguments)
    }

    pub(crate) fn run(&self, host: usize, name: &str, arguments: &[&str]) -> Ended {
        self.process(host, name, arguments).end(PATIENCE)
    }

    /// Starts a cast of the object, to the receivers of the flags.
    pub(crate) fn cast(&self, flags: &[&str]) -> Process {
        let words = ["cast", "model", "--controller", &self.at, "--progress", "json"];
        self.process(0, "cast", &[&words, flags].concat())
    }

    /// Whether a node has the object, byte for byte.
    pub(crate) fn has(&self, host: usize) -> bool {
        let to = self.folder.path().join(format!("got{host}"));
        let arguments = ["get", "model", "--from", &self.node_at(host), "-o", &text(&to), "--force"];
        self.run(host, &format!("get{host}"), &arguments).code == Some(0)
            && std::fs::read(to).unwrap() == self.content
    }
}
