//! `headwater drill`: its options, a line per drill, and what to do about those that failed. The work is done by
//! [`headwater_drill`].

use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use headwater_api::{AppError, Shutdown};
use headwater_bench::AllEngines;
use headwater_drill::{self as drill, Drill, DrillError, DrillOptions, DrillWatch, Finding, Outcome};
use headwater_experiment::experiment::Engine;
use headwater_lab::{self as lab, Catalogue, Checkout, Models};
use headwater_testbed::netns;
use headwater_units::Duration;
use indicatif::ProgressBar;
use serde_json::json;

use super::Failure;
use super::inside::with_networks;
use super::output::bar::{LINE_INTERVAL, WITH_END, restyle, span};
use super::output::{JSON_INTERVAL, Pace, Shown, Terminal};
use super::tables::Table;
use super::usage::UsageError;

/// Three minutes: what a user waits for without leaving.
const LIMIT: Duration = Duration::from_secs(180);

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  headwater drill                   all of them, within three minutes
  headwater drill --list            what each does, and its goal
  headwater drill clean burst       these only
  headwater drill killed --keep     and keep the logs of all processes and the rows of the run
  headwater drill --json | jq -r 'select(.outcome == \"failed\") | .drill'

Every drill is a small network of namespaces with our switch between them and this binary's own processes in them, in real
time: nothing outside of this machine is touched. It needs root or a user namespace. A drill in which the switch was too
late because the machine was busy is tried three times and then skipped: it says nothing about the product.

With --json, one line per drill: drill, experiment, outcome (passed, failed or skipped), measured, of, goal, reasons,
invalid_tries, seconds, folder; the last line has type \"total\", passed, failed, skipped, seconds and folder.

Exit code: 0 if none failed, 3 if one did.")]
pub(crate) struct DrillArgs {
    /// Only these [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Say what each does and what its goal is, and run none
    #[arg(long)]
    list: bool,
    /// Keep logs and rows even if none fails
    #[arg(long)]
    keep: bool,
    /// Begin no drill that might not be over by then
    #[arg(long, value_name = "TIME", default_value_t = LIMIT)]
    limit: Duration,
}

impl From<DrillError> for Failure {
    fn from(error: DrillError) -> Self {
        match error {
            DrillError::Unknown { .. } => Failure::Usage(UsageError::Options(error.to_string())),
            DrillError::Stopped { .. } => Failure::App(AppError::Interrupted { resumable: false }),
            DrillError::Lab(error) => error.into(),
            _ => Failure::App(AppError::Failed(error.to_string())),
        }
    }
}

/// Does what was asked; waits, so this is for a thread that may.
pub(crate) fn act(args: &DrillArgs, terminal: &Terminal, shutdown: &Shutdown) -> Result<(), Failure> {
    // Nothing else goes on in this runtime but the waiting for signals.
    tokio::task::block_in_place(|| match args.list {
        true => list(args, terminal),
        false => run(args, terminal, shutdown),
    })
}

fn list(args: &DrillArgs, terminal: &Terminal) -> Result<(), Failure> {
    let drills = drill::choose(drill::drills(&Catalogue::shipped())?, &args.names)?;
    if terminal.json() {
        drills.iter().try_for_each(|drill| terminal.json_line(drill))?;
    } else {
        terminal.out(&list_text(&drills))?;
    }
    Ok(())
}

fn list_text(drills: &[Drill]) -> String {
    let mut table = Table::new(&["DRILL", "GOAL", "WHAT"]);
    for drill in drills {
        table.row([drill.name.clone(), drill.goal.clone(), drill.title.clone()]);
    }
    let mut text = table.render("");
    for drill in drills {
        let _ = write!(text, "\n{}: {}\n", drill.name, drill.about.join(" "));
    }
    text
}

#[allow(clippy::disallowed_methods, reason = "drills take the user's time")]
fn run(args: &DrillArgs, terminal: &Terminal, shutdown: &Shutdown) -> Result<(), Failure> {
    with_networks(terminal, shutdown)?;
    let folder = folder()?;
    let checkout = std::env::current_dir().ok().and_then(|here| Checkout::around(&here));
    let options = DrillOptions {
        names: args.names.clone(),
        engine: Engine::Netns,
        limit: args.limit,
        out: folder.clone(),
        commit: checkout.and_then(|checkout| checkout.commit()),
    };
    let models: Arc<dyn Models> = Arc::new(AllEngines);
    let start = Instant::now();
    let mut shown = Lines::new(terminal);
    let stop = || shutdown.is_set();
    let done = drill::run(&options, &Catalogue::shipped(), &models, &netns::left_behind, &stop, &mut shown);
    let printed = shown.finish();
    let none = [];
    let findings = done.as_deref().unwrap_or(&none);
    let count = |outcome: Outcome| findings.iter().filter(|finding| finding.outcome == outcome).count();
    let keep = args.keep || count(Outcome::Failed) > 0;
    if !keep {
        // It is in the folder for temporary files: what resists goes with the others there.
        drop(fs::remove_dir_all(&folder));
    }
    if let Err(error) = done {
        if matches!(error, DrillError::Stopped { .. }) {
            terminal.note(&error.to_string());
        }
        return Err(error.into());
    }
    printed?;
    let (passed, failed, skipped) = (count(Outcome::Passed), count(Outcome::Failed), count(Outcome::Skipped));
    let seconds = start.elapsed().as_secs_f64();
    if terminal.json() {
        let folder = keep.then_some(&folder);
        terminal.json_line(&json!({
            "type": "total",
            "passed": passed,
            "failed": failed,
            "skipped": skipped,
            "seconds": seconds,
            "folder": folder,
        }))?;
    } else {
        let took = span(Duration::from_secs_f64(seconds));
        terminal.out(&format!("{passed} passed, {failed} failed, {skipped} skipped in {took}"))?;
    }
    advice(findings, keep.then_some(&*folder)).iter().for_each(|line| terminal.note(line));
    if failed > 0 { Err(Failure::Missed) } else { Ok(()) }
}

/// A new folder that nobody else reads.
fn folder() -> Result<PathBuf, Failure> {
    let path = std::env::temp_dir().join(format!("headwater-drill-{}", std::process::id()));
    let failed =
        |source: io::Error| AppError::Io { doing: format!("cannot create {}", path.display()), source };
    match fs::remove_dir_all(&path) {
        // A dead run with the same process id may have left one behind.
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error).into()),
    }
    DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
    Ok(path)
}

/// Advice about drills that did not pass.
fn advice(findings: &[Finding], folder: Option<&Path>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(failed) = findings.iter().find(|finding| finding.outcome == Outcome::Failed) {
        let (name, id) = (&failed.drill, &failed.experiment);
        lines.push(format!(
            "The same without kernel, driver and disk:  headwater lab run {id} --engine packet\n\
             If that passes, look at what the machine adds: other load, a kernel or a veth driver with offloads that \
             cannot be turned off, a slow disk under $TMPDIR.\n\
             The packets of every port:  headwater lab run {id} --engine netns --fresh --pcap DIR\n\
             Once more:  headwater drill {name} --keep"
        ));
    }
    if findings.iter().any(|finding| finding.outcome == Outcome::Skipped) {
        lines.push("What was skipped says nothing about the product: the reason is beside it.".to_owned());
    }
    if let Some(folder) = folder {
        lines.push(format!("Logs and rows: {}", folder.display()));
    }
    lines
}

/// Shows a drill while it runs, and a line when it is over.
struct Lines<'a> {
    terminal: &'a Terminal,
    shown: Shown,
    bar: Option<ProgressBar>,
    pace: Pace,
    /// The drill at hand, and where among all.
    at: String,
    /// Whether what was found could be printed.
    printed: io::Result<()>,
}

/// Steps of a bar whose end is 1.
const STEPS: u64 = 1_000;
/// Room for the names of drills.
const NAME: usize = 12;

impl<'a> Lines<'a> {
    fn new(terminal: &'a Terminal) -> Self {
        let shown = terminal.shown();
        let interval = if shown == Shown::Json { JSON_INTERVAL } else { LINE_INTERVAL };
        Lines { terminal, shown, bar: None, pace: Pace::new(interval), at: String::new(), printed: Ok(()) }
    }

    /// Takes the bar away; says whether everything could be printed.
    fn finish(mut self) -> io::Result<()> {
        self.clear();
        std::mem::replace(&mut self.printed, Ok(()))
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
            self.terminal.bars().remove(&bar);
        }
    }
}

impl DrillWatch for Lines<'_> {
    fn begun(&mut self, drill: &Drill, number: usize, of: usize) {
        self.at = drill.name.clone();
        if self.shown == Shown::Bar {
            let bar = self.terminal.bars().add(ProgressBar::new(STEPS));
            restyle(&bar, WITH_END);
            bar.set_prefix(format!("{number} of {of}"));
            bar.set_message(format!("{}: {}", drill.name, drill.title));
            self.bar = Some(bar);
        }
    }

    fn progress(&mut self, part: f64) {
        match self.shown {
            Shown::Bar => {
                if let Some(bar) = &self.bar {
                    bar.set_position((part * STEPS as f64) as u64);
                }
            }
            Shown::Lines if self.pace.due() => {
                self.terminal.err(&format!("{}: {:.0} %", self.at, part * 100.0))
            }
            Shown::Json if self.pace.due() => {
                // A reader that went away is told by the result's write, which fails the command.
                drop(self.terminal.json_line(&json!({ "type": "progress", "drill": self.at, "part": part })));
            }
            Shown::Lines | Shown::Json | Shown::Nothing => {}
        }
    }

    fn over(&mut self, finding: &Finding) {
        self.clear();
        // The first failure stays; the drills go on.
        if self.printed.is_ok() {
            self.printed = if self.terminal.json() {
                self.terminal.json_line(finding)
            } else {
                self.terminal.out(&line(finding))
            };
        }
    }
}

impl Drop for Lines<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// `PASSED   burst         1.07 of the ideal time, goal at most 1.15 (4 s)`.
fn line(finding: &Finding) -> String {
    let word = match finding.outcome {
        Outcome::Passed => "PASSED",
        Outcome::Failed => "FAILED",
        Outcome::Skipped => "SKIPPED",
    };
    let mut said = Vec::new();
    if let Some(measured) = finding.measured {
        said.push(format!("{} {}, goal {}", lab::digits(measured), finding.of, finding.goal));
    }
    said.extend(finding.reasons.iter().cloned());
    let took = span(Duration::from_secs_f64(finding.seconds));
    let tries = match finding.invalid_tries {
        0 => String::new(),
        1 => ", 1 try invalid".to_owned(),
        n => format!(", {n} tries invalid"),
    };
    format!("{word:<8} {:<NAME$} {} ({took}{tries})", finding.drill, said.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(outcome: Outcome) -> Finding {
        Finding {
            drill: "burst".into(),
            experiment: "drill/04-burst".into(),
            outcome,
            measured: Some(1.0712),
            of: "of the ideal time".into(),
            goal: "at most 1.15".into(),
            reasons: Vec::new(),
            invalid_tries: 0,
            seconds: 4.2,
            folder: None,
        }
    }

    #[test]
    fn a_line_has_the_verdict_the_figure_and_the_goal_or_the_reason() {
        let passed = line(&finding(Outcome::Passed));
        assert_eq!(passed, "PASSED   burst        1.071 of the ideal time, goal at most 1.15 (4 s)");
        let reasons = vec!["left behind on this machine: hw-1-0-mid".to_owned()];
        let failed =
            line(&Finding { reasons: reasons.clone(), invalid_tries: 1, ..finding(Outcome::Failed) });
        assert!(
            failed.starts_with("FAILED   burst") && failed.contains("goal at most 1.15; left behind"),
            "{failed}"
        );
        assert!(failed.ends_with("(4 s, 1 try invalid)"), "{failed}");
        let skipped =
            Finding { measured: None, reasons: vec!["machine too busy".into()], ..finding(Outcome::Skipped) };
        assert_eq!(line(&skipped), "SKIPPED  burst        machine too busy (4 s)");
    }

    #[test]
    fn advice_is_given_where_something_is_to_be_done() {
        assert_eq!(advice(&[finding(Outcome::Passed)], None), Vec::<String>::new());
        let folder = Path::new("/tmp/x");
        let lines = advice(&[finding(Outcome::Passed), finding(Outcome::Failed)], Some(folder)).join("\n");
        assert!(
            lines.contains("lab run drill/04-burst --engine packet") && lines.contains("/tmp/x"),
            "{lines}"
        );
        assert!(advice(&[finding(Outcome::Skipped)], None)[0].contains("says nothing about the product"));
    }

    #[test]
    fn the_list_names_every_shipped_drill_with_its_goal() {
        let drills = drill::drills(&Catalogue::shipped()).unwrap();
        let text = list_text(&drills);
        for drill in &drills {
            assert!(text.contains(&drill.goal) && text.contains(&drill.about[0]), "{}: {text}", drill.name);
            assert!(drill.name.len() < NAME, "{}", drill.name);
        }
    }
}
