//! `headwater lab`: its options, its bar and its tables. The work is done by [`headwater_lab`].

mod coflow;

use std::fmt::Write;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use headwater_api::{AppError, Shutdown};
use headwater_bench::AllEngines;
use headwater_experiment::claim::{Outcome, Published, Verdict};
use headwater_experiment::experiment::{Engine, Scale};
use headwater_lab::{
    self as lab, Catalogue, Checkout, ExperimentLine, ExperimentRun, LabError, LabProgress, LabWatch,
    ReportOptions, RunOptions, SkippedRun, Variation,
};
use headwater_units::Duration;
use indicatif::ProgressBar;
use serde_json::json;

use super::Failure;
use super::inside::with_networks;
use super::output::bar::{LINE_INTERVAL, WITH_END, restyle, span};
use super::output::{JSON_INTERVAL, Pace, Shown, Terminal};
use super::tables::Table;
use super::usage::UsageError;

/// Where raw results go unless told otherwise.
const OUT: &str = "lab-results";

/// Experiments of the papers in a simulated network: list, run, report.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// List the experiments, what they claim, how many runs they take, and what is stored of them
    List(ListArgs),
    /// Run experiments and judge their claims
    Run(Box<RunArgs>),
    /// Compute anew, and store, the results at paper scale that are of other code than today's
    Rerun(RerunArgs),
    /// Write the page of every claim beside ours, with plots, from stored results
    Report(ReportArgs),
    /// Compare coflow policies on a trace: completion times by width and length, as a table and a plot
    Coflow(coflow::CoflowArgs),
}

/// Which experiments there are.
#[derive(Clone, Debug, Args)]
struct From {
    /// Take experiments from this folder or file instead of those that this binary brings along
    #[arg(long, value_name = "DIR|FILE", value_hint = ValueHint::AnyPath)]
    experiments: Option<PathBuf>,

    /// Folder of stored results [default: experiments/results of the checkout around the current folder]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    results: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater lab list
  headwater lab list fig8
  headwater lab list --json | jq -r '.claims[].claim'

With --json, one line per experiment: experiment, title, source, engines, jobs (per scale), claims (each with its id,
published value, tolerance and stored verdicts).")]
pub(crate) struct ListArgs {
    /// Only these: an experiment's id or the last part of it, or a claim's id
    #[arg(value_name = "ID")]
    what: Vec<String>,
    #[command(flatten)]
    from: From,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater lab run ppush/fig2                             an experiment, small: seconds
  headwater lab run P-8a --scale paper               the experiment that claims it, as large as the paper's
  headwater lab run my.toml --engine flow --seeds 3  a file of your own
  headwater lab run ppush/fig2 --engine netns              real processes and packets, in real time
  headwater lab run scdp/fig1 --scale paper --set workload.count=2000 --only access=write-1,write-3,chain-3
                                                     a fifth of the requests, three of five points
  headwater lab run --all --json                     everything, one object per claim

Every finished run is kept in OUT/EXPERIMENT/ENGINE-SCALE/jobs. A run that was stopped or killed goes on from there when
the same command is given again; nothing is computed twice unless the experiment or the code has changed. Beside jobs/
the rows of all runs are in tasks.arrow, flows.arrow, samples.arrow and measures.arrow (Arrow IPC files:
polars.read_ipc, pandas.read_feather), and the verdicts in verdicts.json. All but the file `times` is the same, byte for
byte, for the same experiment, seeds and code, whatever the number of threads. `headwater lab report OUT` makes a page of it,
with all engines that were run in one table and one plot per quantity.

On the netns engine every host is a network namespace with the product's own processes, and our switch is between them. Its
runs take the time that they measure, so they are made one at a time, whatever --jobs says, and nothing else should keep the
machine busy. Where there are two processors or more, the switch has one for itself and all processes share the others. A run
in which it was too late all the same is tried again, three times and for ten seconds at least, and then skipped. A skipped run
counts for nothing, neither as a pass nor as a miss; the same command tries it again.

With --json, one line per claim: experiment, claim, engine, scale, seeds, published, measured, ci95, range (lowest and
highest seed), tolerance, verdict (pass, miss, undecided, report or pending), note, commit. A skipped run is a line of its own, with
type \"skipped\", experiment, engine, run and reason.

Exit code: 0 if no claim misses, 3 if one does, 1 if a run went wrong.")]
pub(crate) struct RunArgs {
    /// Experiments to run: a file (.toml), an experiment's id or the last part of it, or a claim's id, which stands for the
    /// whole experiment
    #[arg(value_name = "FILE|ID", value_hint = ValueHint::FilePath)]
    what: Vec<String>,
    /// Run every experiment there is
    #[arg(long, conflicts_with = "what")]
    all: bool,
    /// Engine that computes the runs [default: the first that the experiment names]
    #[arg(long, value_name = "ENGINE")]
    engine: Option<EngineName>,
    /// How large: `small` takes seconds, `paper` is as the paper has it and may take hours
    #[arg(long, value_name = "SCALE", default_value = "small")]
    scale: ScaleName,
    /// Run seeds 1 to N at every point [default: as the experiment says]
    #[arg(long, value_name = "N")]
    seeds: Option<NonZero<u32>>,
    /// Another value for a key of the scenario: `workload.count=2000`. Such results are not stored
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment, conflicts_with = "store")]
    set: Vec<(String, String)>,
    /// Only these points of an axis: `access=write-1,write-3`. Such results are not stored
    #[arg(long, value_name = "AXIS=LABELS", value_parser = assignment, conflicts_with = "store")]
    only: Vec<(String, String)>,
    /// Number of runs to compute at once [default: one per processor]
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Folder for everything that is written
    #[arg(long, value_name = "DIR", default_value = OUT, value_hint = ValueHint::DirPath)]
    out: PathBuf,
    /// Compute finished runs again
    #[arg(long)]
    fresh: bool,
    /// Keep the packets of every port in DIR/EXPERIMENT/RUN/, as they left it; netns engine only
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pcap: Option<PathBuf>,
    /// Keep verdicts and a summary beside the experiments, where `lab report` reads them; only at paper scale
    #[arg(long)]
    store: bool,
    #[command(flatten)]
    from: From,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater lab rerun --stale --list                 what would be computed anew, and why
  headwater lab rerun --stale                        all of it, the cheapest first
  headwater lab rerun --stale --engine netns         results of real packets, in real time

A result is stale if the code has changed since and no longer computes the same tables at small scale, if other runs are asked
for, or if a claim is newer. One that lacks runs, which were skipped, is completed. Each is stored as soon as it is there, with a
line in attempts.jsonl. A command that was stopped or killed goes on when it is given again: finished runs are kept in OUT.

With --json, one line per claim, as of `lab run`; with --list, one per result: experiment, engine, reason, events.

Exit code: 0 if no claim misses, 3 if one does, 1 if a run went wrong.")]
pub(crate) struct RerunArgs {
    /// Results that are stale, lack runs or are not there; nothing else can be asked for yet
    #[arg(long, required = true)]
    stale: bool,
    /// Only of these: an experiment's id or the last part of it, or a claim's id
    #[arg(value_name = "ID")]
    what: Vec<String>,
    /// Only what this computes [default: all that take no real time]
    #[arg(long, value_name = "ENGINE")]
    engine: Option<EngineName>,
    /// Say what would be computed, and stop
    #[arg(long)]
    list: bool,
    /// Number of runs to compute at once [default: one per processor]
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Folder for everything that is written but the results
    #[arg(long, value_name = "DIR", default_value = OUT, value_hint = ValueHint::DirPath)]
    out: PathBuf,
    #[command(flatten)]
    from: From,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater lab report lab-results                   what `lab run` left there, as lab-results/report.md and pictures
  headwater lab report                               docs/reproduction.md and docs/reproduction/*.svg, *.png
  headwater lab report --html                        the same as docs/reproduction.html, in one file
  headwater lab report --json                        every stored verdict and every row of the papers; writes nothing
  headwater lab report --results r --out page        outside a checkout

Without a folder, results come from `headwater lab run ... --scale paper --store`, and text about misses from
RESULTS/notes/EXPERIMENT.md. The same results give the same page and pictures, byte for byte.

With --json, one line per stored verdict, then one per row of the papers (row, verdict, passed, claims, seeds, seeds_wanted,
size, size_wanted, stale), and last {\"catalogue\": {rows, pass, miss, undecided, report, absent, stale}}.")]
pub(crate) struct ReportArgs {
    /// Report what `lab run` wrote to this folder, instead of what is stored beside the experiments
    #[arg(value_name = "FOLDER", conflicts_with_all = ["experiments", "results"], value_hint = ValueHint::DirPath)]
    folder: Option<PathBuf>,
    /// Folder for the page and its pictures [default: FOLDER, else docs of the checkout around the current folder]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
    /// Write reproduction.html too: the same in one page that needs nothing beside it
    #[arg(long, conflicts_with = "folder")]
    html: bool,
    #[command(flatten)]
    from: From,
}

/// Engines that compute runs here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EngineName {
    /// Packet by packet, with the machines that run on sockets
    Packet,
    /// Rates that share links
    Flow,
    /// Equations of one bottleneck
    Fluid,
    /// Disjoint trees of a group, by the graph alone
    Trees,
    /// Computations of the product itself, by the clock of this machine
    Timed,
    /// Real processes and packets in network namespaces, in real time
    Netns,
}

/// How large a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ScaleName {
    /// Small enough for a test
    Small,
    /// As the paper has it
    Paper,
}

impl EngineName {
    fn engine(self) -> Engine {
        match self {
            EngineName::Packet => Engine::Packet,
            EngineName::Flow => Engine::Flow,
            EngineName::Fluid => Engine::Fluid,
            EngineName::Trees => Engine::Trees,
            EngineName::Timed => Engine::Timed,
            EngineName::Netns => Engine::Netns,
        }
    }
}

impl ScaleName {
    fn scale(self) -> Scale {
        match self {
            ScaleName::Small => Scale::Small,
            ScaleName::Paper => Scale::Paper,
        }
    }
}

impl From {
    fn catalogue(&self) -> Result<Catalogue, LabError> {
        self.experiments.as_deref().map_or_else(|| Ok(Catalogue::shipped()), Catalogue::at)
    }

    fn results(&self, checkout: Option<&Checkout>) -> Option<PathBuf> {
        self.results.clone().or_else(|| checkout.map(Checkout::results))
    }
}

/// Why a command of the lab did not do what was asked: how it is told, and its exit code.
impl std::convert::From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        let text = error.to_string();
        match error {
            LabError::Nothing
            | LabError::StoreSmall
            | LabError::NoCheckout { .. }
            | LabError::PlotName { .. }
            | LabError::Captures { .. } => Failure::Usage(UsageError::Options(text)),
            LabError::Write { path, source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Failure::App(AppError::Io { doing: format!("cannot write {}", path.display()), source })
            }
            LabError::Stopped { .. } => Failure::App(AppError::Interrupted { resumable: true }),
            LabError::CoflowsStopped => Failure::App(AppError::Interrupted { resumable: false }),
            _ => Failure::App(AppError::Failed(text)),
        }
    }
}

/// Does what was asked. Runs take long, so this is for a thread that may wait.
pub(crate) fn act(command: &LabCommand, terminal: &Terminal, shutdown: &Shutdown) -> Result<(), Failure> {
    // Nothing else goes on in this runtime but the waiting for signals.
    tokio::task::block_in_place(|| match command {
        LabCommand::List(args) => list(args, terminal),
        LabCommand::Run(args) => run(args, terminal, shutdown),
        LabCommand::Rerun(args) => rerun(args, terminal, shutdown),
        LabCommand::Report(args) => report(args, terminal),
        LabCommand::Coflow(args) => coflow::act(args, terminal, shutdown),
    })
}

fn checkout() -> Option<Checkout> {
    Checkout::around(&std::env::current_dir().ok()?)
}

fn list(args: &ListArgs, terminal: &Terminal) -> Result<(), Failure> {
    let catalogue = args.from.catalogue()?;
    let results = args.from.results(checkout().as_ref());
    let mut lines = lab::list(&catalogue, results.as_deref())?;
    if !args.what.is_empty() {
        let mut wanted = Vec::new();
        for word in &args.what {
            wanted.extend(catalogue.find(word)?.into_iter().map(|chosen| chosen.experiment.id));
        }
        lines.retain(|line| wanted.contains(&line.experiment));
    }
    if terminal.json() {
        lines.iter().try_for_each(|line| terminal.json_line(line))?;
    } else {
        terminal.out(&list_text(&lines))?;
    }
    Ok(())
}

fn run(args: &RunArgs, terminal: &Terminal, shutdown: &Shutdown) -> Result<(), Failure> {
    if args.engine.map(EngineName::engine).is_some_and(Engine::is_real_time) {
        with_networks(terminal, shutdown)?;
    }
    let checkout = checkout();
    let store = match (args.store, args.from.results(checkout.as_ref())) {
        (true, None) => {
            return Err(LabError::NoCheckout { hint: "say where to --store with --results DIR" }.into());
        }
        (true, some) => some,
        (false, _) => None,
    };
    let options = RunOptions {
        what: args.what.clone(),
        all: args.all,
        engine: args.engine.map(EngineName::engine),
        scale: args.scale.scale(),
        seeds: args.seeds.map(NonZero::get),
        threads: threads(args.jobs),
        out: args.out.clone(),
        fresh: args.fresh,
        pcap: args.pcap.clone(),
        store,
        commit: checkout.and_then(|checkout| checkout.commit()),
    };
    let labels = |list: &str| list.split(',').map(str::to_owned).collect();
    let only = args.only.iter().map(|(axis, list)| (axis.clone(), labels(list)));
    let variation = Variation { set: args.set.clone(), only: only.collect() };
    let catalogue = args.from.catalogue()?.varied(variation, args.scale.scale());
    if compute(&options, &catalogue, terminal, shutdown)? > 0 { Err(Failure::Missed) } else { Ok(()) }
}

fn rerun(args: &RerunArgs, terminal: &Terminal, shutdown: &Shutdown) -> Result<(), Failure> {
    let checkout = checkout();
    let results = args
        .from
        .results(checkout.as_ref())
        .ok_or(LabError::NoCheckout { hint: "say where the results are with --results DIR" })?;
    let catalogue = args.from.catalogue()?;
    let engine = args.engine.map(EngineName::engine);
    let mut stale = lab::stale(&results, &catalogue, engine, &AllEngines)?;
    if !args.what.is_empty() {
        let mut wanted = Vec::new();
        for word in &args.what {
            wanted.extend(catalogue.find(word)?.into_iter().map(|chosen| chosen.experiment.id));
        }
        stale.retain(|it| wanted.contains(&it.experiment));
    }
    if args.list {
        return list_stale(&stale, terminal);
    }
    if stale.iter().any(|it| it.engine.is_real_time()) {
        with_networks(terminal, shutdown)?;
    }
    let commit = checkout.and_then(|checkout| checkout.commit());
    let (all, mut misses) = (stale.len(), 0);
    for (number, it) in stale.into_iter().enumerate() {
        terminal.note(&format!("{} of {all}: {} ({}): {}", number + 1, it.experiment, it.engine, it.reason));
        let options = RunOptions {
            what: vec![it.experiment],
            all: false,
            engine: Some(it.engine),
            scale: Scale::Paper,
            seeds: None,
            threads: threads(args.jobs),
            out: args.out.clone(),
            fresh: false,
            pcap: None,
            store: Some(results.clone()),
            commit: commit.clone(),
        };
        misses += compute(&options, &catalogue, terminal, shutdown)?;
    }
    if misses > 0 { Err(Failure::Missed) } else { Ok(()) }
}

fn list_stale(stale: &[lab::Stale], terminal: &Terminal) -> Result<(), Failure> {
    if terminal.json() {
        stale.iter().try_for_each(|it| terminal.json_line(it))?;
        return Ok(());
    }
    let mut table = Table::new(&["EXPERIMENT", "ENGINE", " EVENTS", "WHY"]);
    for it in stale {
        let events = it.events.map_or_else(|| "-".to_owned(), |events| events.to_string());
        table.row([it.experiment.clone(), it.engine.name().to_owned(), events, it.reason.to_owned()]);
    }
    let text = if stale.is_empty() { "every result is fresh".to_owned() } else { table.render("") };
    Ok(terminal.out(&text)?)
}

/// `KEY=VALUE`.
fn assignment(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    if key.trim().is_empty() {
        Err("write it as KEY=VALUE".to_owned())
    } else {
        Ok((key.trim().to_owned(), value.trim().to_owned()))
    }
}

fn threads(jobs: Option<NonZero<usize>>) -> usize {
    jobs.or(std::thread::available_parallelism().ok()).map_or(1, NonZero::get)
}

/// Runs experiments and shows what comes of them; says how many claims miss.
fn compute(
    options: &RunOptions,
    catalogue: &Catalogue,
    terminal: &Terminal,
    shutdown: &Shutdown,
) -> Result<usize, Failure> {
    let mut shown = Progress::new(terminal);
    let stop = || shutdown.is_set();
    let done = lab::run(options, catalogue, Arc::new(AllEngines), &stop, &mut shown);
    let printed = shown.finish();
    let done = done.inspect_err(|error| {
        if matches!(error, LabError::Stopped { .. }) {
            terminal.note(&error.to_string());
        }
    })?;
    printed?;
    let skipped: Vec<&SkippedRun> = done.iter().flat_map(|experiment| &experiment.skipped).collect();
    if let Some(first) = skipped.first() {
        let runs: usize = done.iter().map(ExperimentRun::runs).sum();
        terminal.note(&format!(
            "{} of {runs} runs skipped: they count for nothing, and the same command tries them again; the first: {first}",
            skipped.len()
        ));
    }
    let failed: Vec<&String> = done.iter().flat_map(|experiment| &experiment.failures).collect();
    if let Some(first) = failed.first() {
        return Err(AppError::Failed(format!(
            "{} of the runs went wrong, so nothing is judged by them; the first: {first}",
            failed.len()
        ))
        .into());
    }
    Ok(done.iter().map(ExperimentRun::misses).sum())
}

fn report(args: &ReportArgs, terminal: &Terminal) -> Result<(), Failure> {
    if let Some(folder) = &args.folder {
        return report_runs(folder, args.out.as_ref(), terminal);
    }
    let checkout = checkout();
    let catalogue = args.from.catalogue()?;
    let results = args
        .from
        .results(checkout.as_ref())
        .ok_or(LabError::NoCheckout { hint: "say where the results are with --results DIR" })?;
    let out = match (&args.out, terminal.json()) {
        (Some(out), _) => Some(out.clone()),
        // A user who asks for JSON asks a question.
        (None, true) => None,
        (None, false) => {
            let docs = checkout.map(|checkout| checkout.docs());
            Some(docs.ok_or(LabError::NoCheckout { hint: "say where to write with --out DIR" })?)
        }
    };
    if let Some(out) = out {
        let written = lab::report(
            &ReportOptions { results: results.clone(), out, html: args.html },
            &catalogue,
            &AllEngines,
        )?;
        if !terminal.json() {
            terminal.note(&written_text(&written));
        }
    }
    if terminal.json() {
        let standing = lab::standing(&results, &catalogue, &AllEngines)?;
        standing.verdicts.iter().try_for_each(|judged| terminal.json_line(judged))?;
        standing.rows.iter().try_for_each(|row| terminal.json_line(row))?;
        terminal.json_line(&json!({ "catalogue": standing.counts }))?;
    }
    Ok(())
}

/// Of a folder of `lab run`.
fn report_runs(folder: &Path, out: Option<&PathBuf>, terminal: &Terminal) -> Result<(), Failure> {
    // A user who asks for JSON asks a question.
    if !terminal.json() || out.is_some() {
        let written = lab::report_runs(folder, out.map_or(folder, PathBuf::as_path))?;
        if !terminal.json() {
            terminal.note(&written_text(&written));
        }
    }
    if terminal.json() {
        lab::verdicts_of_runs(folder)?.iter().try_for_each(|judged| terminal.json_line(judged))?;
    }
    Ok(())
}

fn written_text(written: &lab::Report) -> String {
    let counts = written.counts;
    format!(
        "{}: {} plots; {} pass, {} miss, {} undecided, {} report, {} pending",
        written.page.display(),
        written.plots,
        counts.pass,
        counts.miss,
        counts.undecided,
        counts.report,
        counts.pending
    )
}

/// How far the runs are, as the user wants to see it.
struct Progress<'a> {
    terminal: &'a Terminal,
    shown: Shown,
    bar: Option<ProgressBar>,
    pace: Pace,
    /// Whether what was judged could be printed.
    printed: io::Result<()>,
}

/// Steps of a bar whose end is 1.
const STEPS: u64 = 10_000;

impl<'a> Progress<'a> {
    fn new(terminal: &'a Terminal) -> Self {
        let shown = terminal.shown();
        let interval = if shown == Shown::Json { JSON_INTERVAL } else { LINE_INTERVAL };
        Progress { terminal, shown, bar: None, pace: Pace::new(interval), printed: Ok(()) }
    }

    /// Takes the bar away; says whether everything could be printed.
    fn finish(mut self) -> io::Result<()> {
        std::mem::replace(&mut self.printed, Ok(()))
    }
}

impl LabWatch for Progress<'_> {
    fn progress(&mut self, progress: &LabProgress) {
        match self.shown {
            Shown::Bar => {
                let bar = self.bar.get_or_insert_with(|| {
                    let bar = self.terminal.bars().add(ProgressBar::new(STEPS));
                    restyle(&bar, WITH_END);
                    bar
                });
                bar.set_prefix(progress.experiment.clone());
                bar.set_message(amounts(progress));
                bar.set_position((progress.part * STEPS as f64) as u64);
            }
            Shown::Lines => {
                if self.pace.due() {
                    let percent = progress.part * 100.0;
                    let line = format!("{}: {percent:.0} %, {}", progress.experiment, amounts(progress));
                    self.terminal.err(&line);
                }
            }
            Shown::Json => {
                if self.pace.due() {
                    let line = json!({
                        "type": "progress",
                        "experiment": progress.experiment,
                        "runs": progress.runs,
                        "runs_done": progress.done,
                        "runs_skipped": progress.skipped,
                        "part": progress.part,
                        "eta_seconds": progress.left,
                    });
                    // A reader that went away is told by the result's write, which fails the command.
                    drop(self.terminal.json_line(&line));
                }
            }
            Shown::Nothing => {}
        }
    }

    fn note(&mut self, line: &str) {
        self.terminal.note(line);
    }

    fn concluded(&mut self, run: &ExperimentRun) {
        // The first failure stays; the runs go on and are kept.
        if self.printed.is_ok() {
            self.printed = if self.terminal.json() {
                let (experiment, engine) = (&run.experiment, run.engine);
                let skipped = run.skipped.iter().try_for_each(|run| {
                    let line = json!({
                        "type": "skipped",
                        "experiment": experiment,
                        "engine": engine,
                        "run": run.run,
                        "reason": run.reason,
                    });
                    self.terminal.json_line(&line)
                });
                skipped
                    .and_then(|()| run.verdicts.iter().try_for_each(|judged| self.terminal.json_line(judged)))
            } else {
                self.terminal.out(&run_text(run))
            };
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
            self.terminal.bars().remove(&bar);
        }
    }
}

/// `12 of 400 runs, 1 h 02 m left`.
fn amounts(progress: &LabProgress) -> String {
    let mut text = format!("{} of {} runs", progress.done, progress.runs);
    if progress.skipped > 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, " ({} skipped)", progress.skipped);
    }
    if let Some(left) = progress.left.filter(|_| progress.done < progress.runs) {
        let _ = write!(text, ", {} left", span(Duration::from_secs_f64(left)));
    }
    text
}

fn list_text(lines: &[ExperimentLine]) -> String {
    if lines.is_empty() {
        return "no experiments".to_owned();
    }
    let mut text = String::new();
    for line in lines {
        let engines: Vec<&str> = line.engines.iter().map(|engine| engine.name()).collect();
        let jobs: Vec<String> =
            line.jobs.iter().map(|count| format!("{} runs at {} scale", count.jobs, count.scale)).collect();
        let _ = writeln!(text, "{}: {}", line.experiment, line.title);
        let _ = writeln!(text, "  {}; {}; {}", line.source, engines.join(", "), jobs.join(", "));
        if line.claims.is_empty() {
            text.push('\n');
            continue;
        }
        let mut table = Table::new(&["CLAIM", " PUBLISHED", "WITHIN", "STORED", "WHAT"]);
        for claim in &line.claims {
            let stored = claim.stored.iter().map(|stored| {
                let ours = stored.measured.map_or_else(String::new, |ours| format!(" {}", lab::digits(ours)));
                format!("{}{ours} ({})", word(stored.verdict), stored.engine)
            });
            let stored: Vec<String> = stored.collect();
            let stored = if stored.is_empty() { "-".to_owned() } else { stored.join(", ") };
            table.row([
                claim.claim.clone(),
                published(claim.published.as_ref()),
                claim.tolerance.clone(),
                stored,
                claim.about.clone(),
            ]);
        }
        text += &table.render("  ");
        text.push('\n');
    }
    text
}

fn run_text(run: &ExperimentRun) -> String {
    let mut text = format!("{}: {}\n", run.experiment, run.title);
    let seeds = if run.seeds == 1 { "1 seed".to_owned() } else { format!("{} seeds", run.seeds) };
    let _ = write!(text, "{} engine, {} scale, {seeds}: ", run.engine, run.scale);
    let took = |seconds: f64| span(Duration::from_secs_f64(seconds));
    let (whole, added) = (took(run.seconds), took(run.added_seconds));
    let _ = write!(text, "{} runs computed in {whole} ({added} added up)", run.ran);
    if run.kept > 0 {
        let _ = write!(text, ", {} kept", run.kept);
    }
    if run.not_modelled > 0 {
        let _ = write!(text, ", {} not modelled", run.not_modelled);
    }
    if run.invalid_tries > 0 {
        let tries = if run.invalid_tries == 1 { "try" } else { "tries" };
        let _ = write!(text, ", {} {tries} invalid", run.invalid_tries);
    }
    if !run.skipped.is_empty() {
        let _ = write!(text, ", {} SKIPPED", run.skipped.len());
    }
    let _ = writeln!(text, "; {}", shown(&run.folder));
    if let Some(stored) = &run.stored {
        let _ = writeln!(text, "stored in {}", shown(stored));
    }
    text.push('\n');
    if !run.verdicts.is_empty() {
        let headings = ["CLAIM", " PUBLISHED", " OURS", "95 %", "WITHIN", "VERDICT", "WHAT"];
        let mut table = Table::new(&headings);
        for judged in &run.verdicts {
            let verdict = &judged.verdict;
            table.row([
                verdict.claim.clone(),
                published(verdict.published.as_ref()),
                ours(verdict),
                verdict
                    .ci95
                    .map_or_else(String::new, |(a, b)| format!("{}..{}", lab::digits(a), lab::digits(b))),
                verdict.tolerance.clone(),
                word(verdict.verdict).to_owned(),
                if verdict.note.is_empty() {
                    verdict.about.clone()
                } else {
                    format!("{} ({})", verdict.about, verdict.note)
                },
            ]);
        }
        text += &table.render("  ");
        text.push('\n');
    }
    text
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn published(value: Option<&Published>) -> String {
    match value {
        None => "-".to_owned(),
        Some(Published::Number(value)) => value.to_string(),
        Some(Published::Words(words)) => words.clone(),
    }
}

fn ours(verdict: &Verdict) -> String {
    match verdict.measured {
        None => "-".to_owned(),
        Some(truth) if verdict.tolerance == "order" || verdict.tolerance == "shape" => {
            if truth == 1.0 { "holds" } else { "does not" }.to_owned()
        }
        Some(value) => lab::digits(value),
    }
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "pass",
        Outcome::Miss => "MISS",
        Outcome::Undecided => "undecided",
        Outcome::Report => "report",
        Outcome::Pending => "pending",
    }
}
