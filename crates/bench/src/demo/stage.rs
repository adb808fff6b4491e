//! The demo ready to begin: the object, the network, the controller, the sources.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use headwater_api::{AppError, Watch, source_label};
use headwater_units::{NodeId, ObjectId};
use serde_json::Value;

use super::environment::{Environment, Role};
use super::progress::error_of;
use super::{Network, Run, blocking, sending_flags};
use crate::subprocess::{Guard, Process, Scratch, write_random};

/// The object's name.
pub(super) const NAME: &str = "demo.bin";
/// How long everybody may take to get ready.
const READY: Duration = Duration::from_secs(60);
/// Interval between questions to the controller for the holders of the object.
const ASK: Duration = Duration::from_millis(50);

/// Everything that must go afterwards, in this order: processes, network, files; the guard last.
pub(super) struct Stage {
    pub(super) sources: Vec<Source>,
    pub(super) controller: Controller,
    pub(super) environment: Environment,
    pub(super) scratch: Scratch,
    pub(super) guard: Guard,
    /// The BLAKE3 of what the sources have.
    pub(super) object: ObjectId,
}

/// Where the controller runs and how to reach it.
pub(super) struct Controller {
    pub(super) process: Process,
    pub(super) address: String,
}

/// A source, there or yet to come.
#[derive(Default)]
pub(super) struct Source {
    /// `None` before it joins.
    pub(super) process: Option<Process>,
    /// Its control address, once it listens.
    pub(super) address: Option<String>,
    /// Its name at a receiver that has only heard of its key, once it listens.
    pub(super) label: Option<String>,
    /// It may end: it was killed, or its end has been told already.
    pub(super) dismissed: bool,
}

impl Source {
    /// Takes in the line that says that it listens.
    pub(super) fn listens(&mut self, line: &Value) {
        self.address = line["address"].as_str().map(str::to_owned);
        let key: Option<NodeId> = line["fingerprint"].as_str().and_then(|text| text.parse().ok());
        self.label = key.map(source_label);
    }

    /// Whether the receiver means this one by `node`.
    pub(super) fn is_called(&self, node: &str) -> bool {
        self.address.as_deref() == Some(node) || self.label.as_deref() == Some(node)
    }
}

impl Stage {
    /// Returns once the controller knows of every source that is to be there from the start.
    pub(super) async fn prepare(run: &Run<'_>, watch: &mut dyn Watch) -> Result<Self, AppError> {
        let options = run.options;
        if run.network == Network::Loopback && !options.rerates.is_empty() {
            return Err(AppError::Usage(
                "--rerate changes a link, and on loopback there is none; network namespaces need root"
                    .to_owned(),
            ));
        }
        let (scratch, guard) = Scratch::create_guarded("demo", options.size, options.keep)?;
        let environment = match run.network {
            Network::Namespaces { loss } => Environment::namespaces(&run.script, options.loss, loss).await?,
            Network::Loopback => Environment::Loopback,
        };
        watch.note(&opening(run, &environment));
        let (file, size, seed) = (scratch.path().join(NAME), options.size, options.seed);
        let object = blocking(move || write_random(&file, size, seed)).await?;
        match tokio::time::timeout(READY, get_ready(run, environment, scratch, guard, object)).await {
            Ok(stage) => stage,
            Err(_) => Err(AppError::Failed(format!(
                "controller and sources were not ready after {} s; --keep leaves their logs behind",
                READY.as_secs()
            ))),
        }
    }

    /// A command of this program for `role`, with a state folder of its own.
    pub(super) fn start(
        &self,
        run: &Run<'_>,
        role: Role,
        name: &str,
        arguments: &[String],
    ) -> Result<Process, AppError> {
        start(run, &self.environment, &self.scratch, &self.guard, role, name, arguments)
    }

    /// Starts a source; it is not ready yet.
    pub(super) fn start_source(&mut self, run: &Run<'_>, source: usize) -> Result<(), AppError> {
        let (role, listen) = (Role::Source(source), self.environment.listen(Role::Source(source)));
        let file = self.scratch.path().join(NAME);
        let mut arguments = vec!["serve".to_owned(), file.display().to_string()];
        arguments.extend([format!("--controller={}", self.controller.address), format!("--listen={listen}")]);
        arguments.extend(sending_flags(&run.options.common));
        if self.environment.sources_cap_themselves() {
            arguments.push(format!("--limit={}bit/s", run.script.rates[source].get()));
        }
        let process = self.start(run, role, &format!("source {source}"), &arguments)?;
        self.sources[source].process = Some(process);
        Ok(())
    }

    /// Where files and logs stay, if they do.
    pub(super) fn kept(&self) -> Option<String> {
        self.scratch.is_kept().then(|| self.scratch.path().display().to_string())
    }

    /// Waits until the controller lists every source that has been started as one that has the object.
    async fn wait_until_known(&mut self, run: &Run<'_>) -> Result<(), AppError> {
        for source in &mut self.sources {
            if let Some(process) = &mut source.process {
                let line = listening(process).await?;
                source.listens(&line);
            }
        }
        let object = self.object.to_string();
        loop {
            let known = self.holders(run, &object).await?;
            let mut missing = self.sources.iter().filter_map(|source| source.address.as_ref());
            if missing.all(|address| known.contains(address)) {
                return Ok(());
            }
            tokio::time::sleep(ASK).await;
        }
    }

    /// Holders of the object, by the controller's list; none while it does not answer.
    async fn holders(&self, run: &Run<'_>, object: &str) -> Result<Vec<String>, AppError> {
        let mut command = self.environment.command(Role::Controller, &run.program)?;
        command
            .args(["ls", "--json", "--controller", &self.controller.address, "--timeout=5s", "--state"])
            .arg(self.scratch.path().join("asking"))
            .stdin(Stdio::null());
        let output = blocking(move || {
            command
                .output()
                .map_err(|source| AppError::Io { doing: "cannot ask the controller".to_owned(), source })
        })
        .await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let ours = lines.filter(|line| line["object"] == object);
        let holders = ours.flat_map(|line| line["holders"].as_array().cloned().unwrap_or_default());
        Ok(holders.filter_map(|holder| holder.as_str().map(str::to_owned)).collect())
    }
}

async fn get_ready(
    run: &Run<'_>,
    environment: Environment,
    scratch: Scratch,
    guard: Guard,
    object: ObjectId,
) -> Result<Stage, AppError> {
    let arguments = [
        "controller".to_owned(),
        format!("--listen={}", environment.listen(Role::Controller)),
        // Everybody is to take part, also who joins.
        format!("--max-sources={}", run.script.rates.len().min(usize::from(u8::MAX))),
    ];
    let mut process = start(run, &environment, &scratch, &guard, Role::Controller, "controller", &arguments)?;
    let line = listening(&mut process).await?;
    let address = line["address"].as_str().unwrap_or_default().to_owned();
    let controller = Controller { process, address };
    let sources = run.script.rates.iter().map(|_| Source::default()).collect();
    let mut stage = Stage { sources, controller, environment, scratch, guard, object };
    for source in 0..run.script.present {
        stage.start_source(run, source)?;
    }
    stage.wait_until_known(run).await?;
    Ok(stage)
}

fn start(
    run: &Run<'_>,
    environment: &Environment,
    scratch: &Scratch,
    guard: &Guard,
    role: Role,
    name: &str,
    arguments: &[String],
) -> Result<Process, AppError> {
    let file_name = name.replace(' ', "-");
    let home: &Path = &scratch.path().join(&file_name);
    let mut command = environment.command(role, &run.program)?;
    command.args(arguments).arg("--json").arg("--state").arg(home);
    if role == Role::Receiver {
        environment.lose(&mut command, run.options.loss, run.options.seed);
    }
    Process::start(
        &format!("the demo's {name}"),
        command,
        scratch.path().join(format!("{file_name}.log")),
        guard,
    )
}

/// Waits until a daemon listens; returns the line that says so.
async fn listening(process: &mut Process) -> Result<Value, AppError> {
    while let Some(line) = process.json().await {
        if line["address"].is_string() {
            return Ok(line);
        }
        if let Some((_, message)) = error_of(&line) {
            return Err(AppError::Failed(format!("{} failed: {message}", process.name())));
        }
    }
    Err(process.failed("ended before it was ready"))
}

fn opening(run: &Run<'_>, environment: &Environment) -> String {
    let rates: Vec<String> = run.script.rates[..run.script.present].iter().map(ToString::to_string).collect();
    let how = match environment {
        Environment::Namespaces { .. } => "in network namespaces, limited in the middle",
        Environment::Loopback => "on loopback, where sources cap themselves",
    };
    format!("{} from sources of {}, {how}", run.options.size, rates.join(", "))
}
