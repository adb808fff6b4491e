//! A run that is ready to begin: the network, objects on disk, and a process for each part.

use std::path::{Path, PathBuf};
use std::time::{Duration as Patience, Instant};

use headwater_experiment::run::Stage;
use headwater_experiment::scenario::Scenario;
use headwater_lab::RunContext;
use headwater_sim::packet::TaskPlan;
use headwater_switch::LinkChange;
use headwater_testbed::emulate::{EmulatedNet, NetOptions};
use headwater_units::{Bytes, Duration};
use headwater_wire::DSCP_CONTROL;
use serde_json::Value;

use super::recipe::{ETHERNET, Recipe, facts, tuning};
use super::{Kind, Trouble};
use crate::subprocess::{Ended, Guard, Process, Scratch, without_settings, write_random};

/// Ports of the parts.
pub(super) const CONTROLLER_PORT: u16 = 7000;
pub(super) const SOURCE_PORT: u16 = 7001;
const TCP_PORT: u16 = 7100;
/// The option of processes that write about their flows.
const SAMPLED: &str = "--timeline-every";
/// More processes than this would want more processor time than there is.
const MOST_PARTS: usize = 128;
/// How long everybody may take to get ready, and to end.
const READY: Patience = Patience::from_secs(60);
const GONE: Patience = Patience::from_secs(5);
/// How often processes are looked at meanwhile.
const LOOK: Patience = Patience::from_millis(2);
/// Interval between looks at flows where the scenario takes no samples: for their totals.
const SELDOM: Duration = Duration::from_millis(50);
/// And where it matters when a flow begins.
const BEGINNING: Duration = Duration::from_millis(10);
/// IPv4 and TCP headers with timestamps.
const TCP_HEADERS: u64 = 20 + 32;

/// Role of a process in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Weighs the flows.
    Controller,
    /// `headwater serve`: the source of a host.
    Serve,
    /// `headwater node`, where an object is cast.
    Node,
    /// `headwater cast`.
    Asker,
    /// `headwater cast` of a task, by its place.
    Cast(usize),
    /// `headwater get` of a task, by its place.
    Get(usize),
    /// `headwater debug tcp receive` of a task.
    TcpReceive(usize),
    /// `headwater debug tcp send`: a task and the place among its sources.
    TcpSend(usize, usize),
    /// `headwater agent`.
    Agent,
    /// `headwater debug shuffle serve`.
    ShuffleServe,
    /// `headwater debug shuffle fetch` of a host.
    ShuffleFetch(usize),
}

impl Part {
    /// Whether it is what begins and ends a task.
    pub(super) fn asks_for(self, task: usize) -> bool {
        matches!(self, Part::Get(of) | Part::TcpSend(of, _) if of == task)
    }
}

/// A command that begins with its task.
pub(super) struct Ask {
    pub(super) host: usize,
    pub(super) arguments: Vec<String>,
}

/// A process in a host.
pub(super) struct Actor {
    pub(super) part: Part,
    pub(super) host: usize,
    pub(super) process: Process,
    /// Its command line, for a restart.
    arguments: Vec<String>,
    name: String,
    /// Time series of its flows; several after restarts.
    pub(super) timelines: Vec<PathBuf>,
    /// It may end.
    pub(super) dismissed: bool,
    /// A fault has killed it.
    pub(super) killed: bool,
    /// It has closed its output.
    pub(super) ended: bool,
}

impl Actor {
    /// Whether it shares its host's fate. A controller does not: it is no part of the scenario, and only lodges there.
    pub(super) fn fails_with(&self, host: usize) -> bool {
        self.host == host && self.part != Part::Controller
    }

    /// The next line that it has said, if there is one. A process that ends before it may has failed.
    pub(super) fn heard(&mut self) -> Result<Option<Value>, Trouble> {
        if self.ended {
            return Ok(None);
        }
        match self.process.json_now() {
            Ok(line) => Ok(line),
            Err(Ended) => {
                self.ended = true;
                match self.dismissed || self.killed {
                    true => Ok(None),
                    false => Err(Trouble::Failed(self.process.blame("has ended"))),
                }
            }
        }
    }
}

/// A scenario deployed: its network, its files and its processes.
pub(super) struct Deployment<'a> {
    // In the order in which they must go: processes, network, files; the guard last.
    pub(super) actors: Vec<Actor>,
    pub(super) net: EmulatedNet,
    scratch: Scratch,
    guard: Guard,
    /// The object of each task, in hex; the name of its connections where the scheme is TCP.
    pub(super) objects: Vec<String>,
    /// Casts that are asked for when their tasks arrive.
    pub(super) asks: Vec<Option<Ask>>,
    program: PathBuf,
    /// How often flows are looked at.
    pub(super) every: Duration,
    logs: Option<&'a Path>,
}

impl<'a> Deployment<'a> {
    /// Returns once everybody waits for the beginning.
    pub(super) fn ready(
        scenario: &Scenario,
        stage: &Stage,
        kind: Kind<'_>,
        seed: u64,
        processor: Option<usize>,
        context: &'a RunContext,
    ) -> Result<Self, Trouble> {
        let recipe = Recipe::of(scenario, stage)?;
        let options = NetOptions {
            pcap: context.pcap.clone(),
            hold_faults: true,
            host_jitter: true,
            processor,
            ..NetOptions::default()
        };
        let net = EmulatedNet::build_with(scenario, seed, &options)?;
        let total: Bytes = recipe.sizes.iter().flatten().copied().sum();
        let (scratch, guard) = Scratch::create_guarded("experiment", total, false)?;
        let program = std::env::current_exe()
            .map_err(|error| Trouble::Failed(format!("cannot find this program's own file: {error}")))?;
        let mut deployment = Deployment {
            actors: Vec::new(),
            net,
            scratch,
            guard,
            objects: Vec::new(),
            asks: Vec::new(),
            program,
            every: match kind {
                // A task begins with its flow.
                Kind::Groups => BEGINNING,
                _ => stage.every.unwrap_or(SELDOM),
            },
            logs: context.logs.as_deref(),
        };
        match kind {
            Kind::Cast(casting) => deployment.prepare_cast(scenario, casting, stage, seed, context)?,
            Kind::Shuffle(shuffle) => deployment.prepare_shuffle(shuffle, stage.hosts.len(), context)?,
            Kind::Groups => deployment.prepare_groups(scenario, stage, &recipe, seed, context)?,
            Kind::Tasks => {
                deployment.prepare_push(scenario, stage, &recipe, seed, context)?;
                deployment.prepare_tcp(scenario, stage, &recipe, context)?;
            }
        }
        Ok(deployment)
    }

    fn prepare_push(
        &mut self,
        scenario: &Scenario,
        stage: &Stage,
        recipe: &Recipe,
        seed: u64,
        context: &RunContext,
    ) -> Result<(), Trouble> {
        let folder = self.scratch.path().to_owned();
        let file = |task: usize| folder.join(format!("object-{task}"));
        for (task, size) in recipe.sizes.iter().enumerate() {
            // Not the same bytes twice: an object is named by them.
            self.objects.push(match size {
                Some(size) => {
                    write_random(&file(task), *size, seed.wrapping_mul(1 << 20) + task as u64)?.to_string()
                }
                None => format!("task-{task}"),
            });
        }
        let common = tuning(scenario, stage, &folder)?;
        let mut data = vec![format!("--mtu={}", recipe.mtu)];
        data.push(self.sampled());
        // Where ports have classes, that of ACKs is known by its code point.
        data.extend((!scenario.port.classes.is_empty()).then(|| format!("--dscp-control={DSCP_CONTROL}")));

        let controller = recipe.controller.map(|host| format!("{}:{CONTROLLER_PORT}", self.net.ipv4(host)));
        if let (Some(host), Some(address)) = (recipe.controller, &controller) {
            let mut arguments = vec!["controller".to_owned(), format!("--listen={address}")];
            arguments.extend(recipe.equal_theta.then(|| "--equal-theta".to_owned()));
            arguments.push(format!("--max-sources={}", recipe.most_sources));
            arguments.extend(common.iter().cloned());
            self.enter(Part::Controller, host, "controller".to_owned(), arguments)?;
            self.wait_for(context, "address", |part| part == Part::Controller)?;
        }
        for (host, tasks) in &recipe.holdings {
            // Everybody ends when told to: what is measured is over then.
            let mut arguments = vec!["serve".to_owned(), "--drain=0".to_owned()];
            arguments.extend(tasks.iter().map(|task| file(*task).display().to_string()));
            arguments.push(format!("--listen={}:{SOURCE_PORT}", self.net.ipv4(*host)));
            arguments.extend(controller.iter().map(|address| format!("--controller={address}")));
            arguments.extend(common.iter().chain(&data).cloned());
            arguments.extend(facts(scenario, &stage.hosts[*host]));
            self.enter(Part::Serve, *host, format!("source-{host}"), arguments)?;
        }
        self.wait_for(context, "address", |part| part == Part::Serve)?;
        if let (Some(host), Some(address)) = (recipe.controller, &controller) {
            self.wait_until_known(host, address, recipe, context)?;
        }
        for (place, task) in recipe.tasks(stage, false) {
            let mut arguments = vec!["get".to_owned(), self.objects[place].clone(), "--overwrite".to_owned()];
            arguments.push(format!("--output={}", folder.join(format!("received-{place}")).display()));
            match (&task.thetas, &controller) {
                (Some(thetas), _) => {
                    arguments.extend(thetas.first().map(|theta| format!("--theta={}", theta.get())));
                    arguments.push(format!("--from={}", self.sources_of(task)));
                }
                (None, Some(address)) => arguments.push(format!("--controller={address}")),
                (None, None) => arguments.push(format!("--from={}", self.sources_of(task))),
            }
            arguments.push(format!("--max-sources={}", task.sources.len().max(1)));
            arguments.extend(recipe.equal_parts.then(|| "--spread=equal".to_owned()));
            arguments.push(format!("--transport={}", if recipe.pull { "pull" } else { "push" }));
            arguments.extend(recipe.gentle.then(|| "--gentle".to_owned()));
            arguments.push("--wait-for-start".to_owned());
            arguments.extend(common.iter().chain(&data).cloned());
            arguments.extend(facts(scenario, &stage.hosts[task.receiver as usize]));
            self.enter(Part::Get(place), task.receiver as usize, format!("task-{place}"), arguments)?;
        }
        self.wait_for(context, "ready", |part| matches!(part, Part::Get(_))).map(drop)
    }

    fn prepare_tcp(
        &mut self,
        scenario: &Scenario,
        stage: &Stage,
        recipe: &Recipe,
        context: &RunContext,
    ) -> Result<(), Trouble> {
        let payload = scenario.packet.data.get().saturating_sub(ETHERNET + TCP_HEADERS).max(1);
        let every = self.sampled();
        let at = |deployment: &Self, place: usize, task: &TaskPlan| {
            format!("{}:{}", deployment.net.ipv4(task.receiver as usize), TCP_PORT + place as u16)
        };
        for (place, task) in recipe.tasks(stage, true) {
            let congestion = recipe.tcp[place].unwrap_or_default();
            let mut arguments: Vec<String> = ["debug", "tcp", "receive"].map(str::to_owned).into();
            arguments.push(format!("--listen={}", at(self, place, task)));
            arguments.extend([format!("--congestion={congestion}"), format!("--packet-bytes={payload}")]);
            arguments.push(every.clone());
            self.enter(Part::TcpReceive(place), task.receiver as usize, format!("task-{place}"), arguments)?;
        }
        self.wait_for(context, "listening", |part| matches!(part, Part::TcpReceive(_)))?;
        for (place, task) in recipe.tasks(stage, true) {
            let congestion = recipe.tcp[place].unwrap_or_default();
            for (nth, source) in task.sources.iter().enumerate() {
                // Equal parts, rounded up.
                let part = task.packets.div_ceil(task.sources.len() as u64) * payload;
                let mut arguments: Vec<String> = ["debug", "tcp", "send"].map(str::to_owned).into();
                arguments.extend([
                    format!("--to={}", at(self, place, task)),
                    format!("--bytes={part}B"),
                    format!("--congestion={congestion}"),
                    format!("--name=task-{place}.{nth}"),
                    "--wait-for-start".to_owned(),
                    every.clone(),
                ]);
                let name = format!("task-{place}-source-{nth}");
                self.enter(Part::TcpSend(place, nth), *source as usize, name, arguments)?;
            }
        }
        self.wait_for(context, "ready", |part| matches!(part, Part::TcpSend(..))).map(drop)
    }

    /// The option by which a process writes about its flows.
    pub(super) fn sampled(&self) -> String {
        format!("{SAMPLED}={}ns", self.every.as_nanos())
    }

    fn sources_of(&self, task: &TaskPlan) -> String {
        let addresses =
            task.sources.iter().map(|host| format!("{}:{SOURCE_PORT}", self.net.ipv4(*host as usize)));
        addresses.collect::<Vec<_>>().join(",")
    }

    pub(super) fn enter(
        &mut self,
        part: Part,
        host: usize,
        name: String,
        arguments: Vec<String>,
    ) -> Result<(), Trouble> {
        if self.actors.len() >= MOST_PARTS {
            return Err(Trouble::Unsupported(format!("more than {MOST_PARTS} processes")));
        }
        let (process, timeline) = self.start(host, &name, &arguments, 0)?;
        self.actors.push(Actor {
            part,
            host,
            process,
            arguments,
            name,
            timelines: timeline.into_iter().collect(),
            dismissed: false,
            killed: false,
            ended: false,
        });
        Ok(())
    }

    fn start(
        &self,
        host: usize,
        name: &str,
        arguments: &[String],
        life: usize,
    ) -> Result<(Process, Option<PathBuf>), Trouble> {
        let folder = self.scratch.path();
        let mut command =
            self.net.command(host, &self.program).map_err(|e| Trouble::Failed(e.to_string()))?;
        without_settings(&mut command);
        command.args(arguments).arg("--json");
        if arguments[0] != "debug" {
            command.arg("--state").arg(folder.join(format!("{name}.state")));
        }
        // Others have no flows of their own, or nobody reads of them.
        let is_sampled = arguments.iter().any(|it| it.starts_with(SAMPLED)) || arguments[0] == "get";
        let timeline = is_sampled.then(|| folder.join(format!("{name}.{life}.csv")));
        if let Some(timeline) = &timeline {
            command.arg("--timeline").arg(timeline);
        }
        let process = Process::start(name, command, folder.join(format!("{name}.log")), &self.guard)?;
        if arguments[0] == "controller" {
            // It is to be as quick as one with a machine of its own: else it hears too late that nodes live.
            process.prefer();
        }
        Ok((process, timeline))
    }

    /// Kills what runs on a host and starts it anew; a `get` that has begun goes on by itself.
    pub(super) fn restart(&mut self, host: usize, begun: impl Fn(usize) -> bool) -> Result<(), Trouble> {
        self.connect(host, true)?;
        for index in 0..self.actors.len() {
            let actor = &mut self.actors[index];
            // An actor that is done, or was told to stop, is not started once more.
            if !actor.fails_with(host) || actor.dismissed || actor.ended && !actor.killed {
                continue;
            }
            actor.process.kill();
            // Else its successor may find its port and its state taken.
            let reaped = actor.process.reap();
            reaped.map_err(|e| Trouble::Failed(format!("cannot wait for {}: {e}", actor.name)))?;
            if matches!(actor.part, Part::Get(task) if begun(task)) {
                actor.arguments.retain(|argument| argument != "--wait-for-start");
            }
            let (name, arguments, life) =
                (actor.name.clone(), actor.arguments.clone(), actor.timelines.len());
            let (process, timeline) = self.start(host, &name, &arguments, life)?;
            let actor = &mut self.actors[index];
            (actor.process, actor.killed, actor.ended) = (process, false, false);
            actor.timelines.extend(timeline);
        }
        Ok(())
    }

    /// A host is gone without a goodbye.
    pub(super) fn kill(&mut self, host: usize) -> Result<(), Trouble> {
        // Else its kernel would tell everybody that nobody listens there any more.
        self.connect(host, false)?;
        for actor in self.actors.iter_mut().filter(|actor| actor.fails_with(host) && !actor.ended) {
            actor.process.kill();
            actor.killed = true;
        }
        Ok(())
    }

    /// Cuts the cables of a host, or mends them.
    fn connect(&self, host: usize, whole: bool) -> Result<(), Trouble> {
        let topology = self.net.topology();
        let point = topology.hosts()[host];
        let fabric = topology.fabric();
        for link in fabric.leaving(point).iter().chain(fabric.entering(point)) {
            self.net.switch().change(*link, LinkChange::Down(!whole))?;
        }
        Ok(())
    }

    /// Waits until every process of a part has printed an object with this field, or of this type; these objects.
    pub(super) fn wait_for(
        &mut self,
        context: &RunContext,
        word: &str,
        of: impl Fn(Part) -> bool,
    ) -> Result<Vec<Value>, Trouble> {
        let (deadline, mut said) = (deadline(READY), Vec::new());
        for actor in self.actors.iter_mut().filter(|actor| of(actor.part)) {
            loop {
                match actor.process.json_now() {
                    Ok(Some(line)) if line[word].is_string() || line["type"] == word => {
                        break said.push(line);
                    }
                    Ok(Some(line)) => {
                        if let Some(message) = error_in(&line) {
                            return Err(Trouble::Failed(format!("{} failed: {message}", actor.name)));
                        }
                    }
                    Ok(None) => pause(context, deadline, || actor.process.blame("is not ready"))?,
                    Err(Ended) => {
                        return Err(Trouble::Failed(actor.process.blame("ended before it was ready")));
                    }
                }
            }
        }
        Ok(said)
    }

    /// Asks for a task's cast, if it is one.
    pub(super) fn ask_for(&mut self, task: usize) -> Result<(), Trouble> {
        match self.asks.get_mut(task).and_then(Option::take) {
            Some(Ask { host, arguments }) => {
                self.enter(Part::Cast(task), host, format!("cast-{task}"), arguments)
            }
            None => Ok(()),
        }
    }

    /// Waits until the controller knows who holds what.
    fn wait_until_known(
        &self,
        host: usize,
        address: &str,
        recipe: &Recipe,
        context: &RunContext,
    ) -> Result<(), Trouble> {
        let wanted: usize = recipe.holdings.values().map(Vec::len).sum();
        self.wait_until(context, || {
            let ask = ["ls", "--json", "--timeout=5s", "--controller", address, "--state", &self.asker()];
            let lines = self.ask(host, &ask)?;
            let known: usize = lines.iter().map(|line| line["holders"].as_array().map_or(0, Vec::len)).sum();
            let missing = || format!("the controller knows {known} of {wanted} copies");
            Ok(if known >= wanted { Ok(()) } else { Err(missing()) })
        })
    }

    /// Asks until it is so; the error names what is missing if it never is.
    pub(super) fn wait_until(
        &self,
        context: &RunContext,
        mut is_so: impl FnMut() -> Result<Result<(), String>, Trouble>,
    ) -> Result<(), Trouble> {
        let deadline = deadline(READY);
        while let Err(missing) = is_so()? {
            pause(context, deadline, || missing)?;
        }
        Ok(())
    }

    /// Runs a command on a host to its end; the objects that it prints.
    pub(super) fn ask(&self, host: usize, arguments: &[&str]) -> Result<Vec<Value>, Trouble> {
        let mut command =
            self.net.command(host, &self.program).map_err(|e| Trouble::Failed(e.to_string()))?;
        without_settings(&mut command);
        let output = command.args(arguments).stdin(std::process::Stdio::null()).output();
        let output =
            output.map_err(|e| Trouble::Failed(format!("cannot run headwater {}: {e}", arguments[0])))?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// The state of the asker.
    pub(super) fn asker(&self) -> String {
        self.folder().join("asking").display().to_string()
    }

    /// Where all files of the run are.
    pub(super) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Lets everybody end, then reads nothing more of them. Returns where each wrote about its flows.
    pub(super) fn leave(&mut self) -> Result<Vec<(Part, usize, PathBuf)>, Trouble> {
        // A frozen process hears nothing.
        self.actors.iter().for_each(|actor| actor.process.thaw());
        // Receivers first: sources then hear that they may stop, and write their totals.
        for receivers in [true, false] {
            let now = |part: Part| matches!(part, Part::Get(_) | Part::TcpSend(..)) == receivers;
            let asked: Vec<&mut Actor> =
                self.actors.iter_mut().filter(|actor| now(actor.part) && !actor.ended).collect();
            asked.iter().for_each(|actor| actor.process.interrupt());
            let deadline = deadline(GONE);
            for actor in asked {
                while actor.process.json_now().is_ok() && before(deadline) {
                    wait_a_little();
                }
                actor.ended = true;
            }
        }
        if let Some(logs) = self.logs {
            self.keep_logs(logs)?;
        }
        let written = self.actors.iter().flat_map(|actor| {
            actor.timelines.iter().map(|timeline| (actor.part, actor.host, timeline.clone()))
        });
        Ok(written.collect())
    }

    /// Ends the network; captures are whole then.
    pub(super) fn close(self) -> Result<(), Trouble> {
        let Deployment { actors, net, .. } = self;
        drop(actors);
        net.stop()?;
        Ok(())
    }

    /// Copies logs and timelines to where the user wants them.
    fn keep_logs(&self, to: &Path) -> Result<(), Trouble> {
        let failed = |error| Trouble::Failed(format!("cannot write to {}: {error}", to.display()));
        std::fs::create_dir_all(to).map_err(failed)?;
        for entry in std::fs::read_dir(self.scratch.path()).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|it| it == "log" || it == "csv" || it == "toml")
                && let Some(name) = path.file_name()
            {
                std::fs::copy(&path, to.join(name)).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// The message of a line that tells of an error.
pub(super) fn error_in(line: &Value) -> Option<String> {
    Some(line.get("error")?["message"].as_str().unwrap_or("no reason given").to_owned())
}

fn pause(context: &RunContext, deadline: Instant, blame: impl FnOnce() -> String) -> Result<(), Trouble> {
    if context.stop() {
        return Err(Trouble::Stopped);
    }
    if !before(deadline) {
        return Err(Trouble::Failed(format!("not ready after {} s: {}", READY.as_secs(), blame())));
    }
    wait_a_little();
    Ok(())
}

#[allow(clippy::disallowed_methods, reason = "real processes need real time")]
fn wait_a_little() {
    std::thread::sleep(LOOK);
}

#[allow(clippy::disallowed_methods, reason = "real processes need real time")]
pub(super) fn deadline(patience: Patience) -> Instant {
    Instant::now() + patience
}

#[allow(clippy::disallowed_methods, reason = "real processes need real time")]
pub(super) fn before(deadline: Instant) -> bool {
    Instant::now() < deadline
}
