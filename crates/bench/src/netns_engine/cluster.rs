//! A controller and nodes, as casts need them.

use std::path::Path;

use headwater_experiment::scenario::Scenario;
use headwater_lab::RunContext;
use headwater_testbed::emulate::EmulatedNet;
use headwater_units::Bytes;
use toml::{Table, Value};

use super::Trouble;
use super::deployment::{CONTROLLER_PORT, Deployment, Part, SOURCE_PORT};
use crate::subprocess::write_random;

/// The name of a host's node.
pub(super) fn node_name(host: u32) -> String {
    format!("h{host}")
}

/// The line of a network's description that says what is around an IP packet.
pub(super) fn framing(bytes: Bytes) -> Table {
    Table::from_iter([("framing".to_owned(), Value::Integer(bytes.get() as i64))])
}

impl Deployment<'_> {
    /// Starts the controller on this host, and waits until it listens.
    pub(super) fn start_controller(
        &mut self,
        on: usize,
        options: Vec<String>,
        context: &RunContext,
    ) -> Result<(), Trouble> {
        let at = format!("{}:{CONTROLLER_PORT}", self.net.ipv4(on));
        let mut arguments = vec!["controller".to_owned(), format!("--listen={at}")];
        arguments.extend(options);
        self.enter(Part::Controller, on, "controller".to_owned(), arguments)?;
        self.wait_for(context, "address", |part| part == Part::Controller).map(drop)
    }

    /// Starts a host's node at this address, which joins the controller at `at`.
    pub(super) fn start_node(
        &mut self,
        host: u32,
        ip: &str,
        at: &str,
        options: Vec<String>,
    ) -> Result<(), Trouble> {
        let mut arguments = vec!["node".to_owned(), "--drain=0".to_owned(), format!("--join={at}")];
        arguments.push(format!("--listen={ip}:{SOURCE_PORT}"));
        arguments.push(format!("--name={}", node_name(host)));
        arguments.extend(options);
        self.enter(Part::Node, host as usize, format!("node-{host}"), arguments)
    }

    /// Gives a host's node an object of random bytes.
    pub(super) fn put(&mut self, host: u32, name: &str, size: Bytes, seed: u64) -> Result<(), Trouble> {
        let file = self.folder().join(name);
        let object = write_random(&file, size, seed)?.to_string();
        self.objects.push(object);
        let state = self.folder().join(format!("node-{host}.state"));
        let (file, state) = (file.display().to_string(), state.display().to_string());
        self.ask(host as usize, &["put", &file, "--json", "--state", &state]).map(drop)
    }

    /// Waits until the controller at `at`, on host `on`, knows all nodes.
    pub(super) fn wait_for_nodes(&self, on: usize, at: &str, context: &RunContext) -> Result<(), Trouble> {
        self.wait_until(context, || {
            let status = self.ask(on, &["status", "--json", "--controller", at, "--state", &self.asker()])?;
            let nodes = status.iter().filter_map(|line| line["nodes"].as_array()).flatten();
            let up = nodes.filter(|node| node["up"] == true).count();
            let known = self.actors.iter().filter(|actor| actor.part == Part::Node).count();
            Ok((up >= known).then_some(()).ok_or_else(|| format!("{up} of {known} nodes are known")))
        })
    }

    /// Writes a description of the network, with these lines besides; the option by which the controller reads it.
    pub(super) fn network_file(
        &self,
        scenario: &Scenario,
        hosts: u32,
        lines: Table,
    ) -> Result<String, Trouble> {
        let file = self.folder().join("topology.toml");
        write_topology(&file, scenario, hosts, lines, &self.net)?;
        Ok(format!("--topology={}", file.display()))
    }
}

/// The network, for `headwater controller --topology`.
fn write_topology(
    file: &Path,
    scenario: &Scenario,
    hosts: u32,
    lines: Table,
    net: &EmulatedNet,
) -> Result<(), Trouble> {
    let failed = |what: String| Trouble::Failed(format!("cannot write {}: {what}", file.display()));
    let cables = |host: usize| {
        let point = net.topology().hosts()[host];
        net.topology().fabric().leaving(point).len()
    };
    let addresses = |host: usize| match cables(host) {
        0 | 1 => vec![net.ipv4(host).to_string()],
        cables => {
            let by_cable = (0..cables).map(|cable| net.ipv4_on(host, cable).to_string());
            by_cable.chain([net.ipv4(host).to_string()]).collect()
        }
    };
    let hosts: Vec<Vec<String>> = (0..hosts as usize).map(addresses).collect();
    let mut table = lines;
    let fabric = Value::try_from(&scenario.fabric).map_err(|error| failed(error.to_string()))?;
    table.insert("fabric".to_owned(), fabric);
    let hosts = Value::try_from(hosts).map_err(|error| failed(error.to_string()))?;
    table.insert("hosts".to_owned(), hosts);
    table.insert("computes_rates".to_owned(), Value::Boolean(scenario.grants_rates()));
    let queue = format!("{} ns", scenario.tolerated_queue().as_nanos());
    table.insert("tolerated_queue".to_owned(), Value::String(queue));
    std::fs::write(file, table.to_string()).map_err(|error| failed(error.to_string()))
}
