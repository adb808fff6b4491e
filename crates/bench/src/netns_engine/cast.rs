//! Casts on real packets: a controller, a node on each host, and `headwater cast`.
//!
//! The run begins when the cast's request is sent. `copies` is what left the source over one copy, as in the models, and here it
//! includes what the source's node says to the controller.

use headwater_experiment::run::{CastStage, Repair, Stage};
use headwater_experiment::scenario::Scenario;
use headwater_experiment::table::Tables;
use headwater_experiment::workload::Wish;
use headwater_lab::RunContext;
use headwater_testbed::emulate::EmulatedNet;
use headwater_testbed::soft_switch::Snapshot;
use headwater_units::{Duration, Time};
use serde_json::Value as Json;
use toml::Value;

use super::Trouble;
use super::cluster::{framing, node_name};
use super::deployment::{CONTROLLER_PORT, Deployment, Part};
use super::play::{Play, Played};
use super::recipe::{ETHERNET, facts};

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
        let mut arguments = Vec::new();
        if !cast.multicast && !matches!(cast.wish, Wish::Multicast | Wish::Rates) {
            arguments.push("--groups=none".to_owned());
        }
        if cast.knows_network || matches!(cast.wish, Wish::Trees | Wish::Rates) {
            let mut lines = framing(cast.framing);
            let signalling = Value::try_from(cast.signalling);
            let signalling = signalling.map_err(|error| Trouble::Failed(error.to_string()))?;
            lines.insert("signalling".to_owned(), signalling);
            arguments.push(self.network_file(scenario, casting.hosts, lines)?);
        }
        self.start_controller(on, arguments, context)?;

        let forwards = self.net.topology().hosts().iter().any(|point| self.net.topology().forwards(*point));
        let gets = |host: u32| cast.gets.iter().any(|get| get.host == host);
        let mtu = format!("--mtu={}", scenario.packet.data.get().saturating_sub(ETHERNET));
        let takes_part =
            |host: &u32| !gets(*host) && (forwards || *host as usize != on || *host == cast.source);
        for host in (0..casting.hosts).filter(takes_part) {
            // With several cables a node is reached by an address on each.
            let ip = if forwards { "0.0.0.0".to_owned() } else { self.net.ipv4(host as usize).to_string() };
            let mut arguments = vec![mtu.clone()];
            if cast.states_rates {
                arguments.extend(facts(scenario, &stage.hosts[host as usize]));
            }
            self.start_node(host, &ip, &at, arguments)?;
        }
        self.wait_for(context, "address", |part| part == Part::Node)?;
        self.put(cast.source, NAME, cast.object, seed)?;
        self.wait_for_nodes(on, &at, context)?;

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
        let to: Vec<String> = cast.receivers(casting.hosts).into_iter().map(node_name).collect();
        let mut arguments = vec!["cast".to_owned(), NAME.to_owned(), format!("--to={}", to.join(","))];
        arguments.push(format!("--controller={}:{CONTROLLER_PORT}", self.net.ipv4(on)));
        arguments.push(format!("--via={}", via(cast.wish)));
        self.enter(Part::Asker, on, "cast".to_owned(), arguments)
    }
}

impl Play {
    /// Handles the end of the cast: each receiver's time is from the request, which so is known.
    pub(super) fn hear_cast(&mut self, stage: &Stage, line: &Json) -> bool {
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
            let found = receivers.iter().find(|it| it["name"] == node_name(task.receiver).as_str());
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

fn repair(line: &Json) -> Option<Repair> {
    Some(Repair {
        silent_s: line["silent_seconds"].as_f64()?,
        decided_s: line["decided_seconds"].as_f64()?,
        told_s: line["told_seconds"].as_f64(),
    })
}
