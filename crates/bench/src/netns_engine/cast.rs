//! Casts on real packets: a controller, a node on each host, and `headwater cast`.
//!
//! The run begins when the cast's request is sent. `copies` is what left the source over one copy, as in the models, and here it
//! includes what the source's node says to the controller.

use std::path::Path;

use headwater_experiment::run::{CastStage, Repair, Stage};
use headwater_experiment::scenario::Scenario;
use headwater_experiment::table::Tables;
use headwater_experiment::workload::Wish;
use headwater_lab::RunContext;
use headwater_testbed::emulate::EmulatedNet;
use headwater_testbed::soft_switch::Snapshot;
use headwater_units::{Duration, Time};
use serde_json::Value;
use toml::Table;

use super::Trouble;
use super::deployment::{CONTROLLER_PORT, Deployment, Part, SOURCE_PORT};
use super::play::{Play, Played};
use super::recipe::{ETHERNET, facts};
use crate::subprocess::write_random;

/// Name of the object in the cast.
const NAME: &str = "object";

/// How a wish is written for `headwater cast --via`.
fn via(wish: Wish) -> &'static str {
    match wish {
        Wish::Best => "best",
        Wish::Overlay => "overlay",
        Wish::Unicast => "unicast",
        Wish::Multicast => "multicast",
        Wish::Trees => "trees",
        Wish::Rates => "rates",
    }
}

/// The name of a host's node.
fn name(host: u32) -> String {
    format!("h{host}")
}

impl Deployment<'_> {
    /// Puts a controller and nodes in place; the source's has the object.
    pub(super) fn prepare_cast(
        &mut self,
        scenario: &Scenario,
        casting: &CastStage<'_>,
        stage: &Stage,
        seed: u64,
        context: &RunContext,
    ) -> Result<(), Trouble> {
        let cast = casting.cast;
        let on = cast.controller(casting.hosts) as usize;
        let at = format!("{}:{CONTROLLER_PORT}", self.net.ipv4(on));
        let mut arguments = vec!["controller".to_owned(), format!("--listen={at}")];
        if !cast.multicast && !matches!(cast.wish, Wish::Multicast | Wish::Rates) {
            arguments.push("--groups=none".to_owned());
        }
        if cast.knows_network || matches!(cast.wish, Wish::Trees | Wish::Rates) {
            let file = self.folder().join("topology.toml");
            write_topology(&file, scenario, casting, &self.net)?;
            arguments.push(format!("--topology={}", file.display()));
        }
        self.enter(Part::Controller, on, "controller".to_owned(), arguments)?;
        self.wait_for(context, "address", |part| part == Part::Controller)?;

        let forwards = self.net.topology().hosts().iter().any(|point| self.net.topology().forwards(*point));
        let gets = |host: u32| cast.gets.iter().any(|get| get.host == host);
        let mtu = format!("--mtu={}", scenario.packet.data.get().saturating_sub(ETHERNET));
        let takes_part =
            |host: &u32| !gets(*host) && (forwards || *host as usize != on || *host == cast.source);
        for host in (0..casting.hosts).filter(takes_part) {
            // With several cables a node is reached by an address on each.
            let ip = if forwards { "0.0.0.0".to_owned() } else { self.net.ipv4(host as usize).to_string() };
            let mut arguments = vec!["node".to_owned(), "--drain=0".to_owned(), format!("--join={at}")];
            arguments.extend([
                format!("--listen={ip}:{SOURCE_PORT}"),
                format!("--name={}", name(host)),
                mtu.clone(),
            ]);
            if cast.states_rates {
                arguments.extend(facts(scenario, &stage.hosts[host as usize]));
            }
            self.enter(Part::Node, host as usize, format!("node-{host}"), arguments)?;
        }
        self.wait_for(context, "address", |part| part == Part::Node)?;

        let file = self.folder().join(NAME);
        self.objects = vec![write_random(&file, cast.object, seed)?.to_string()];
        let state = self.folder().join(format!("node-{}.state", cast.source));
        let (file, state) = (file.display().to_string(), state.display().to_string());
        self.ask(cast.source as usize, &["put", &file, "--json", "--state", &state])?;
        self.wait_until(context, || {
            let status =
                self.ask(on, &["status", "--json", "--controller", &at, "--state", &self.asker()])?;
            let nodes = status.iter().filter_map(|line| line["nodes"].as_array()).flatten();
            let up = nodes.filter(|node| node["up"] == true).count();
            let known = self.actors.iter().filter(|actor| actor.part == Part::Node).count();
            Ok((up >= known).then_some(()).ok_or_else(|| format!("{up} of {known} nodes are known")))
        })?;

        for (place, task) in stage.tasks.iter().enumerate().filter(|(_, task)| gets(task.receiver)) {
            let mut arguments = vec!["get".to_owned(), NAME.to_owned(), format!("--controller={at}")];
            arguments.push(format!("--output={}", self.folder().join(format!("received-{place}")).display()));
            arguments.extend(["--wait-for-start".to_owned(), mtu.clone()]);
            self.enter(Part::Get(place), task.receiver as usize, format!("task-{place}"), arguments)?;
        }
        self.wait_for(context, "ready", |part| matches!(part, Part::Get(_))).map(drop)
    }

    /// Asks for the cast.
    pub(super) fn begin_cast(&mut self, casting: &CastStage<'_>) -> Result<(), Trouble> {
        let cast = casting.cast;
        let on = cast.controller(casting.hosts) as usize;
        let to: Vec<String> = cast.receivers(casting.hosts).into_iter().map(name).collect();
        let mut arguments = vec!["cast".to_owned(), NAME.to_owned(), format!("--to={}", to.join(","))];
        arguments.push(format!("--controller={}:{CONTROLLER_PORT}", self.net.ipv4(on)));
        arguments.push(format!("--via={}", via(cast.wish)));
        self.enter(Part::Asker, on, "cast".to_owned(), arguments)
    }
}

impl Play {
    /// Handles the end of the cast: each receiver's time is from the request, which so is known.
    pub(super) fn hear_cast(&mut self, stage: &Stage, line: &Value) -> bool {
        let (Some(receivers), Some(seconds)) = (line["receivers"].as_array(), line["seconds"].as_f64())
        else {
            return false;
        };
        let seconds_after = |from: Time, seconds: f64| from + Duration::from_secs_f64(seconds);
        let now = self.now();
        let requested = Time::ZERO + now.since(seconds_after(Time::ZERO, seconds));
        self.requested = requested;
        self.repairs = line["repairs"].as_array().into_iter().flatten().filter_map(repair).collect();
        for (place, task) in stage.tasks.iter().enumerate() {
            let found = receivers.iter().find(|it| it["name"] == name(task.receiver).as_str());
            let Some(receiver) = found else { continue };
            match (receiver["state"].as_str(), receiver["seconds"].as_f64()) {
                (Some("done" | "had"), Some(seconds)) => {
                    self.finished[place] = Some(seconds_after(requested, seconds));
                }
                _ => self.stopped[place] = Some(now),
            }
        }
        true
    }
}

/// The tables of a cast that was played.
pub(super) fn tables(casting: &CastStage<'_>, stage: &Stage, net: &EmulatedNet, played: &Played) -> Tables {
    let since = |at: Time| Time::ZERO + at.since(played.requested);
    let rows = stage.tasks.iter().zip(&played.finished);
    let rows = rows.map(|(task, finished)| {
        let from = if task.at == Time::ZERO { Time::ZERO } else { since(task.at) };
        (task.receiver, from, finished.map(since))
    });
    let source = net.topology().hosts()[casting.cast.source as usize];
    let left: u64 = net
        .topology()
        .fabric()
        .leaving(source)
        .iter()
        .map(|link| {
            let out = |seen: &Snapshot| seen.links[link.0 as usize].port.bytes_out.get();
            out(&played.last) - out(&played.first)
        })
        .sum();
    casting.tables(rows.collect(), left as f64 / casting.cast.one_copy().get() as f64, &played.repairs)
}

fn repair(line: &Value) -> Option<Repair> {
    Some(Repair {
        silent_s: line["silent_seconds"].as_f64()?,
        decided_s: line["decided_seconds"].as_f64()?,
        told_s: line["told_seconds"].as_f64(),
    })
}

/// The network, for `headwater controller --topology`.
fn write_topology(
    file: &Path,
    scenario: &Scenario,
    casting: &CastStage<'_>,
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
    let hosts: Vec<Vec<String>> = (0..casting.hosts as usize).map(addresses).collect();
    let mut table = Table::new();
    let fabric = toml::Value::try_from(&scenario.fabric).map_err(|error| failed(error.to_string()))?;
    table.insert("fabric".to_owned(), fabric);
    let hosts = toml::Value::try_from(hosts).map_err(|error| failed(error.to_string()))?;
    table.insert("hosts".to_owned(), hosts);
    table.insert("framing".to_owned(), toml::Value::Integer(casting.cast.framing.get() as i64));
    let signalling =
        toml::Value::try_from(casting.cast.signalling).map_err(|error| failed(error.to_string()))?;
    table.insert("signalling".to_owned(), signalling);
    table.insert("computes_rates".to_owned(), toml::Value::Boolean(scenario.grants_rates()));
    std::fs::write(file, table.to_string()).map_err(|error| failed(error.to_string()))
}
