//! Tasks of several receivers at the rates that ports grant (PAM): a controller that knows the network, a node on each host that has a
//! part in a task, and `headwater cast` of an object of its own when the task arrives.
//!
//! A task's time counts from the moment at which its source has the transfer and may ask for a rate: the models know of no invitations.
//! The time before that is a measure, `signalling_s`. All constants of sources and receivers are the product's.

use std::collections::BTreeSet;
use std::time::Duration as Patience;

use headwater_experiment::run::Stage;
use headwater_experiment::scenario::Scenario;
use headwater_lab::RunContext;
use headwater_sim::packet::{Records, TaskPlan};
use headwater_units::{Bytes, Duration, Time};
use serde_json::Value as Json;

use super::Trouble;
use super::cluster::{framing, node_name};
use super::deployment::{Ask, CONTROLLER_PORT, Deployment, Part, before, deadline};
use super::play::Play;
use super::recipe::{ETHERNET, Recipe};

/// Nodes have run for a while when the first task arrives: on slow links it takes them that long to find how long packets may be.
const SETTLED: Patience = Patience::from_secs(3);

impl Deployment<'_> {
    /// Puts a controller and nodes in place; sources have their objects.
    pub(super) fn prepare_groups(
        &mut self,
        scenario: &Scenario,
        stage: &Stage,
        recipe: &Recipe,
        seed: u64,
        context: &RunContext,
    ) -> Result<(), Trouble> {
        let unsupported = |what: &str| Trouble::Unsupported(what.to_owned());
        if stage.tasks.iter().any(|task| task.sources.len() != 1) {
            return Err(unsupported("casts of several sources"));
        }
        let hosts = stage.hosts.len() as u32;
        let busy: BTreeSet<u32> =
            stage.tasks.iter().flat_map(|task| task.sources.iter().copied().chain(receivers(task))).collect();
        let on = (0..hosts).rev().find(|host| !busy.contains(host));
        let on = on.ok_or_else(|| unsupported("casts without a host for the controller"))? as usize;
        let at = format!("{}:{CONTROLLER_PORT}", self.net.ipv4(on));
        let network = self.network_file(scenario, hosts, framing(Bytes::new(ETHERNET)))?;
        self.start_controller(on, vec![network], context)?;
        for host in busy {
            let ip = self.net.ipv4(host as usize).to_string();
            self.start_node(host, &ip, &at, vec![format!("--mtu={}", recipe.mtu), self.sampled()])?;
        }
        self.wait_for(context, "address", |part| part == Part::Node)?;
        for (place, (task, size)) in stage.tasks.iter().zip(&recipe.sizes).enumerate() {
            let Some(size) = *size else { return Err(unsupported("background beside casts")) };
            self.put(task.sources[0], &object(place), size, seed.wrapping_mul(1 << 20) + place as u64)?;
        }
        self.wait_for_nodes(on, &at, context)?;
        let settled = deadline(SETTLED);
        self.wait_until(context, || {
            Ok(if before(settled) { Err("it has just joined".to_owned()) } else { Ok(()) })
        })?;
        let rules = &scenario.transport.pam;
        let policy =
            toml::Value::try_from(rules.policy).map_err(|error| Trouble::Failed(error.to_string()))?;
        let policy = policy.as_str().map_or_else(|| policy.to_string(), str::to_owned);
        let ask = |(place, task): (usize, &TaskPlan)| {
            let to: Vec<String> = receivers(task).map(node_name).collect();
            let mut arguments = vec!["cast".to_owned(), object(place), format!("--to={}", to.join(","))];
            arguments.extend([format!("--controller={at}"), "--via=rates".to_owned()]);
            arguments.push(format!("--policy={policy}"));
            arguments.extend(task.deadline.map(|span| format!("--deadline={}ns", span.as_nanos())));
            arguments.extend(rules.drops_late.then(|| "--drop-late".to_owned()));
            Ask { host: on, arguments }
        };
        self.asks = stage.tasks.iter().enumerate().map(|it| Some(ask(it))).collect();
        Ok(())
    }
}

/// Mean time from the arrival of a task until its source has it, seconds.
pub(super) fn signalling(stage: &Stage, records: &Records) -> f64 {
    let spans = stage.tasks.iter().zip(&records.tasks).map(|(task, row)| row.arrival.since(task.at));
    spans.map(|span| span.as_secs_f64()).sum::<f64>() / stage.tasks.len().max(1) as f64
}

impl Play {
    /// Handles the end of a task's cast.
    pub(super) fn hear_group(&mut self, task: usize, line: &Json) -> bool {
        let (Some(receivers), Some(seconds)) = (line["receivers"].as_array(), line["seconds"].as_f64())
        else {
            return false;
        };
        let now = self.now();
        let requested = Time::ZERO + now.since(Time::ZERO + Duration::from_secs_f64(seconds));
        let ends = receivers.iter().map(|receiver| match receiver["state"].as_str() {
            Some("done" | "had") => receiver["seconds"].as_f64(),
            _ => None,
        });
        let last = ends.collect::<Option<Vec<f64>>>().and_then(|ends| ends.into_iter().reduce(f64::max));
        match last {
            Some(last) => self.finished[task] = Some(requested + Duration::from_secs_f64(last)),
            None => self.stopped[task] = Some(now),
        }
        true
    }
}

fn receivers(task: &TaskPlan) -> impl Iterator<Item = u32> {
    std::iter::once(task.receiver).chain(task.further.iter().copied())
}

fn object(place: usize) -> String {
    format!("object-{place}")
}
