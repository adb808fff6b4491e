//! Shuffles on real packets: on each host a program that fetches for every job, and what it fetches from: plain TCP servers, or
//! agents, with a controller where coflows are ordered.
//!
//! Connections between agents are there before the first job arrives, as those of agents that have run for a while are. All hosts use
//! ECN (`net.ipv4.tcp_ecn=1`).

use std::collections::BTreeMap;

use headwater_experiment::run::{ShuffleStage, Stage};
use headwater_experiment::scenario::ShuffleOrder;
use headwater_experiment::table::Tables;
use headwater_lab::RunContext;
use headwater_sim::packet::shuffle::{JobRow, ReducerPlan};
use headwater_testbed::emulate::EmulatedNet;
use headwater_testbed::soft_switch::Snapshot;
use headwater_units::{Bytes, Time};
use serde_json::Value;

use super::Trouble;
use super::deployment::{CONTROLLER_PORT, Deployment, Part, SOURCE_PORT, error_in};
use super::play::{LONGEST, Played, rest};
use crate::agents::{Agent, write_list};
use crate::shuffle::{Plan, PlannedCoflow, PlannedFlow, Via};

/// A flow between two hosts.
struct Flow {
    job: usize,
    from: usize,
    to: usize,
    /// Which partition of its source's output it is.
    partition: u32,
    bytes: u64,
}

/// Refuses shuffles that real processes cannot run.
fn check(shuffle: &ShuffleStage<'_>) -> Result<(), Trouble> {
    let text = shuffle.text;
    let refused = match (shuffle.courier, shuffle.order) {
        _ if text.slots > 0 || text.fetches > 0 => {
            "bounds on reducers and fetches (slots and fetches must be 0)"
        }
        _ if shuffle.jobs.iter().any(|job| job.after.is_some()) => "jobs that wait for others",
        _ if text.max_per_pair == 0 || text.max_num == 0 => "agents without a bound on lanes",
        (_, ShuffleOrder::None) | (true, ShuffleOrder::Aalo | ShuffleOrder::Sincronia) => return Ok(()),
        _ => "an order without agents, or the stand-in for Django",
    };
    Err(Trouble::Unsupported(refused.to_owned()))
}

/// All flows that cross the network, as the simulator counts them.
fn flows(shuffle: &ShuffleStage<'_>) -> Vec<Flow> {
    let mut partitions: BTreeMap<usize, u32> = BTreeMap::new();
    let mut all = Vec::new();
    for (job, plan) in shuffle.jobs.iter().enumerate() {
        for reducer in &plan.reducers {
            let to = reducer.host as usize;
            for (from, bytes) in outputs(reducer, shuffle.text.combiner) {
                if from != to && bytes > 0 {
                    let next = partitions.entry(from).or_default();
                    all.push(Flow { job, from, to, partition: *next, bytes });
                    *next += 1;
                }
            }
        }
    }
    all
}

fn outputs(reducer: &ReducerPlan, combines: bool) -> Vec<(usize, u64)> {
    let outputs = reducer.outputs.iter().map(|(host, bytes)| (*host as usize, bytes.get()));
    if !combines {
        return outputs.collect();
    }
    let mut by_host = BTreeMap::new();
    outputs.for_each(|(host, bytes)| *by_host.entry(host).or_insert(0) += bytes);
    by_host.into_iter().collect()
}

/// The name of a host's agent.
fn name(host: usize) -> String {
    format!("h{host}")
}

impl Deployment<'_> {
    /// Puts servers or agents in place, and programs that wait for their start.
    pub(super) fn prepare_shuffle(
        &mut self,
        shuffle: &ShuffleStage<'_>,
        hosts: usize,
        context: &RunContext,
    ) -> Result<(), Trouble> {
        check(shuffle)?;
        let flows = flows(shuffle);
        for host in 0..hosts {
            self.use_ecn(host)?;
        }
        let agents = match shuffle.courier {
            true => self.start_agents(shuffle, hosts, context)?,
            false => {
                self.start_servers(shuffle, hosts, context)?;
                Vec::new()
            }
        };
        for host in 0..hosts {
            let plan = self.plan(shuffle, &flows, host, &agents);
            let file = self.folder().join(format!("plan-{host}.json"));
            let text = serde_json::to_string(&plan).map_err(|error| Trouble::Failed(error.to_string()))?;
            std::fs::write(&file, text)
                .map_err(|error| Trouble::Failed(format!("cannot write {}: {error}", file.display())))?;
            let mut arguments: Vec<String> = ["debug", "shuffle", "fetch"].map(str::to_owned).into();
            arguments.push(file.display().to_string());
            self.enter(Part::ShuffleFetch(host), host, format!("reducers-{host}"), arguments)?;
        }
        self.wait_for(context, "ready", |part| matches!(part, Part::ShuffleFetch(_))).map(drop)
    }

    fn use_ecn(&self, host: usize) -> Result<(), Trouble> {
        let failed = |what: String| Trouble::Failed(format!("cannot switch ECN on at host {host}: {what}"));
        let mut command = self.net.command(host, "sh").map_err(|error| failed(error.to_string()))?;
        command.args(["-c", "echo 1 > /proc/sys/net/ipv4/tcp_ecn"]);
        let status = command.status().map_err(|error| failed(error.to_string()))?;
        if status.success() { Ok(()) } else { Err(failed(status.to_string())) }
    }

    fn start_servers(
        &mut self,
        shuffle: &ShuffleStage<'_>,
        hosts: usize,
        context: &RunContext,
    ) -> Result<(), Trouble> {
        for host in 0..hosts {
            let mut arguments: Vec<String> = ["debug", "shuffle", "serve"].map(str::to_owned).into();
            arguments.push(format!("--listen={}:{SOURCE_PORT}", self.net.ipv4(host)));
            arguments.extend(shuffle.text.congestion.iter().map(|name| format!("--congestion={name}")));
            self.enter(Part::ShuffleServe, host, format!("outputs-{host}"), arguments)?;
        }
        self.wait_for(context, "listening", |part| part == Part::ShuffleServe).map(drop)
    }

    /// Starts agents that know each other.
    fn start_agents(
        &mut self,
        shuffle: &ShuffleStage<'_>,
        hosts: usize,
        context: &RunContext,
    ) -> Result<Vec<Agent>, Trouble> {
        let order = match shuffle.order {
            ShuffleOrder::Aalo => Some("aalo"),
            ShuffleOrder::Sincronia => Some("sincronia"),
            ShuffleOrder::None | ShuffleOrder::DjangoLike => None,
        };
        let controller = format!("{}:{CONTROLLER_PORT}", self.net.ipv4(0));
        if let Some(order) = order {
            let arguments = [
                "controller".to_owned(),
                format!("--listen={controller}"),
                format!("--coflow-order={order}"),
            ];
            self.enter(Part::Controller, 0, "controller".to_owned(), arguments.into())?;
            self.wait_for(context, "address", |part| part == Part::Controller)?;
        }
        let peers = self.folder().join("agents.toml");
        write_list(&peers, [])?;
        for host in 0..hosts {
            let root = self.held(host);
            std::fs::create_dir_all(&root)
                .map_err(|error| Trouble::Failed(format!("cannot make {}: {error}", root.display())))?;
            let mut arguments =
                vec!["agent".to_owned(), format!("--listen={}:{SOURCE_PORT}", self.net.ipv4(host))];
            arguments.push(format!("--peers={}", peers.display()));
            arguments.push(format!("--root={}", root.display()));
            arguments.push(format!("--lanes={}", shuffle.text.max_num));
            arguments.push(format!("--lanes-per-pair={}", shuffle.text.max_per_pair));
            arguments.extend(shuffle.text.congestion.iter().map(|name| format!("--congestion={name}")));
            arguments.extend(order.map(|_| format!("--controller={controller}")));
            self.enter(Part::Agent, host, format!("agent-{host}"), arguments)?;
        }
        let said = self.wait_for(context, "address", |part| part == Part::Agent)?;
        let agent = |(host, said): (usize, &Value)| {
            Agent::of(&name(host), said)
                .ok_or_else(|| Trouble::Failed(format!("the agent of host {host} does not say where it is")))
        };
        let agents: Vec<Agent> = said.iter().enumerate().map(agent).collect::<Result<_, _>>()?;
        write_list(&peers, &agents)?;
        self.actors
            .iter()
            .filter(|actor| actor.part == Part::Agent)
            .for_each(|actor| actor.process.hang_up());
        Ok(agents)
    }

    /// Where a host's outputs are.
    fn held(&self, host: usize) -> std::path::PathBuf {
        self.folder().join(format!("outputs-{host}"))
    }

    fn plan(&self, shuffle: &ShuffleStage<'_>, flows: &[Flow], host: usize, agents: &[Agent]) -> Plan {
        let via = match agents.get(host) {
            None => Via::Tcp { congestion: shuffle.text.congestion.clone() },
            Some(agent) => Via::Agent {
                socket: agent.socket.clone(),
                file: self.held(host).join("outputs"),
                partitions: flows.iter().filter(|it| it.from == host).map(|it| it.bytes).collect(),
                others: (0..agents.len()).filter(|other| *other != host).map(name).collect(),
            },
        };
        let from = |flow: &Flow| match agents.is_empty() {
            true => format!("{}:{SOURCE_PORT}", self.net.ipv4(flow.from)),
            false => name(flow.from),
        };
        let coflows = shuffle.jobs.iter().enumerate().map(|(job, plan)| {
            let its = flows.iter().filter(|flow| flow.job == job && flow.to == host);
            let flows =
                its.map(|it| PlannedFlow { from: from(it), partition: it.partition, bytes: it.bytes });
            PlannedCoflow { coflow: job as u32, at_ns: plan.at.as_nanos(), flows: flows.collect() }
        });
        Plan { via, coflows: coflows.filter(|coflow| !coflow.flows.is_empty()).collect() }
    }
}

/// Result of a shuffle.
pub(super) struct Shuffled {
    pub(super) played: Played,
    jobs: Vec<JobRow>,
    flows: u64,
    /// Connections, segments sent again and timeouts of all hosts.
    counts: [u64; 3],
}

/// Plays it to its end.
pub(super) fn play(
    deployment: &mut Deployment<'_>,
    shuffle: &ShuffleStage<'_>,
    stage: &Stage,
    context: &RunContext,
    watch: &mut dyn FnMut(f64),
) -> Result<Shuffled, Trouble> {
    let flows = flows(shuffle);
    let row = |(job, plan): (usize, &headwater_sim::packet::shuffle::JobPlan)| {
        let bytes = flows.iter().filter(|flow| flow.job == job).map(|flow| flow.bytes).sum();
        JobRow {
            task: plan.task,
            arrival: plan.at,
            finished: None,
            bytes: Bytes::new(bytes),
            last_timed_out: false,
        }
    };
    let mut jobs: Vec<JobRow> = shuffle.jobs.iter().enumerate().map(row).collect();
    let first = deployment.net.switch().snapshot()?;
    let begin = deployment.net.begin()?;
    deployment.net.switch().forget_lateness()?;
    let fetching = |part: Part| matches!(part, Part::ShuffleFetch(_));
    let mut left = 0;
    for actor in deployment.actors.iter_mut().filter(|actor| fetching(actor.part)) {
        actor.process.tell("start");
        left += 1;
    }
    let mut counts = [0; 3];
    let mut played = Played::nothing(begin.monotonic_ns, first);
    let until = stage.until.unwrap_or(Time::ZERO + LONGEST);
    while left > 0 {
        for actor in &mut deployment.actors {
            while let Some(line) = actor.heard()? {
                if let Some(message) = error_in(&line) {
                    return Err(Trouble::Failed(actor.process.blame(&format!("failed: {message}"))));
                }
                let number = |key: &str| line[key].as_u64().unwrap_or(0);
                match line["type"].as_str() {
                    Some("ended") => {
                        let at = Time::from_nanos(number("at_ns").saturating_sub(begin.monotonic_ns));
                        let job = &mut jobs[number("coflow") as usize];
                        job.finished = job.finished.max(Some(at));
                        played.ended = played.ended.max(at);
                    }
                    Some("done") => {
                        for (sum, key) in counts.iter_mut().zip(["connections", "resent", "timeouts"]) {
                            *sum += number(key);
                        }
                        (actor.dismissed, left) = (true, left - 1);
                    }
                    _ => {}
                }
            }
        }
        let ended = jobs.iter().filter(|job| job.finished.is_some()).count();
        watch(ended as f64 / jobs.len().max(1) as f64);
        if context.stop() {
            return Err(Trouble::Stopped);
        }
        if played.now() >= until {
            return Err(Trouble::Failed(format!("not done after {until}")));
        }
        rest();
    }
    // Of jobs without flows nothing is heard.
    jobs.iter_mut().filter(|job| job.bytes == Bytes::ZERO).for_each(|job| job.finished = Some(job.arrival));
    played.last = deployment.net.switch().snapshot()?;
    Ok(Shuffled { played, jobs, flows: flows.len() as u64, counts })
}

/// The tables of a shuffle that was played.
pub(super) fn tables(shuffle: &ShuffleStage<'_>, net: &EmulatedNet, shuffled: &Shuffled) -> Tables {
    let Shuffled { played, jobs, flows, counts: [connections, resent, timeouts] } = shuffled;
    let of_all = |count: fn(&Snapshot, usize) -> u64, links: &[usize]| -> u64 {
        links.iter().map(|link| count(&played.last, *link) - count(&played.first, *link)).sum()
    };
    let all: Vec<usize> = (0..played.last.links.len()).collect();
    let fabric = net.topology().fabric();
    let from_hosts: Vec<usize> = net
        .topology()
        .hosts()
        .iter()
        .flat_map(|host| fabric.leaving(*host))
        .map(|link| link.0 as usize)
        .collect();
    let dropped = of_all(|seen, link| seen.links[link].port.dropped, &all);
    let sent = of_all(|seen, link| seen.links[link].port.frames_in, &from_hosts);
    let longest = played.last.links.iter().map(|link| link.port.high_water).max().unwrap_or(0);
    let measures = [
        ("loss_rate", dropped as f64 / sent.max(1) as f64),
        ("drops", dropped as f64),
        ("sent", sent as f64),
        ("resent", *resent as f64),
        ("timeouts", *timeouts as f64),
        ("queue_max", longest as f64),
        ("flows", *flows as f64),
        ("connections", *connections as f64),
    ];
    shuffle.tables(jobs, &measures)
}
