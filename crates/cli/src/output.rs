//! Output: one place decides what is written to which stream.
//!
//! | | standard output | standard error |
//! |---|---|---|
//! | usual | tables, ids, what was asked for | bars, logs, summaries, errors |
//! | `--json` | JSON, one object per line, the result last | bars, logs, errors once more in words |
//! | `get -o -`, `debug decode` | the bytes, nothing else | everything else, with `--json` the JSON |
//!
//! `--progress json` lines go where the JSON result goes, and to standard error without `--json`.

pub(crate) mod bar;

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use headwater_api::{AppError, LeftOut, Progress, Watch};
use indicatif::{MultiProgress, ProgressDrawTarget};
use serde::Serialize;
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use self::bar::{Bar, Lines};
use super::logging::{Log, Wanted};
use super::settings::Settings;
use super::values::ProgressMode;

/// A text of others as it may be shown on a terminal: on one line, and nothing in it moves the cursor.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The two streams and what the user wants to see on them.
#[derive(Clone, Debug)]
pub(crate) struct Terminal {
    json: bool,
    data_on_stdout: bool,
    quiet: bool,
    progress: ProgressMode,
    bars: MultiProgress,
    log: Option<Log>,
}

impl Terminal {
    pub(crate) fn new(json: bool, data_on_stdout: bool, quiet: bool, progress: ProgressMode) -> Self {
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        Terminal { json, data_on_stdout, quiet, progress, bars, log: None }
    }

    /// Whether results are JSON.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Prints something that was asked for: as one JSON object, or in words on standard output.
    pub(crate) fn result(&self, value: &impl Serialize, words: impl FnOnce() -> String) -> io::Result<()> {
        if self.json { self.json_line(value) } else { self.out(&words()) }
    }

    /// Prints what happened: as one JSON object, or in words on standard error.
    pub(crate) fn summary(&self, value: &impl Serialize, words: impl FnOnce() -> String) -> io::Result<()> {
        if self.json {
            self.json_line(value)
        } else {
            if !self.quiet {
                self.err(words().trim_end());
            }
            Ok(())
        }
    }

    /// One object on one line, to wherever JSON goes.
    pub(crate) fn json_line(&self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        let json_on_stdout = self.json && !self.data_on_stdout;
        self.bars.suspend(|| {
            if json_on_stdout {
                let mut out = io::stdout().lock();
                out.write_all(&line)?;
                out.flush()
            } else {
                io::stderr().lock().write_all(&line)
            }
        })
    }

    /// Text on standard output, ended by a line end.
    pub(crate) fn out(&self, text: &str) -> io::Result<()> {
        self.bars.suspend(|| {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())?;
            if !text.ends_with('\n') && !text.is_empty() {
                out.write_all(b"\n")?;
            }
            out.flush()
        })
    }

    /// A line on standard error that does not tear the bars.
    pub(crate) fn err(&self, line: &str) {
        // The line may contain text from other machines.
        let line: Vec<String> = line.split('\n').map(printable).collect();
        // Nobody is left to hear that standard error is gone.
        self.bars.suspend(|| drop(writeln!(io::stderr().lock(), "{}", line.join("\n"))));
    }

    /// A remark, unless the user wants quiet.
    pub(crate) fn note(&self, line: &str) {
        if !self.quiet {
            self.err(line);
        }
    }

    /// Says why a command failed, in words and, with `--json`, as an object.
    pub(crate) fn failure(&self, error: &AppError) {
        let left_out = match error {
            AppError::Undeliverable { left_out, .. } => left_out.as_slice(),
            _ => &[],
        };
        self.fail(error, error.kind(), error.exit_code(), left_out);
    }

    /// The same of one of several objects: the JSON object says which.
    pub(crate) fn failure_of(&self, what: &str, error: &AppError) {
        if self.json {
            let (kind, code) = (error.kind(), error.exit_code());
            let words = json!({"kind": kind, "message": error.to_string(), "exit_code": code});
            drop(self.json_line(&json!({ "name": what, "error": words })));
        }
        self.err(&format!("error: {what}: {error}"));
    }

    /// Says what is wrong with the command line or its settings.
    pub(crate) fn usage(&self, error: &impl Display) {
        self.fail(error, "usage", super::exit::USAGE, &[]);
        self.err("\nFor more information, try '--help'.");
    }

    /// Says what is wrong with a command line that does not parse, to programs.
    pub(crate) fn misuse_as_json(&self, message: &str) {
        self.fail_as_json(&message, "usage", super::exit::USAGE, &[]);
    }

    fn fail_as_json(&self, error: &impl Display, kind: &str, exit_code: u8, left_out: &[LeftOut]) {
        let mut error = json!({"kind": kind, "message": error.to_string(), "exit_code": exit_code});
        if !left_out.is_empty() {
            error["left_out"] = json!(left_out);
        }
        // A user who closed standard output still gets the words and the exit code.
        drop(self.json_line(&json!({ "error": error })));
    }

    fn fail(&self, error: &impl Display, kind: &str, exit_code: u8, left_out: &[LeftOut]) {
        if self.json {
            self.fail_as_json(error, kind, exit_code, left_out);
        }
        self.err(&format!("error: {error}"));
    }

    /// Removes what the bars left on the screen.
    pub(crate) fn clear(&self) {
        drop(self.bars.clear());
    }

    /// Begins a new picture of something that is shown again and again.
    pub(crate) fn new_picture(&self) -> io::Result<()> {
        // Home, then erase to the end: less flicker than erasing first.
        if !self.json && io::stdout().is_terminal() { self.out("\x1b[H\x1b[J") } else { Ok(()) }
    }

    /// Progress display that the user wants.
    pub(crate) fn watch(&self) -> Box<dyn Watch> {
        match self.shown() {
            Shown::Json => Box::new(JsonWatch { terminal: self.clone(), pace: Pace::new(JSON_INTERVAL) }),
            Shown::Lines => Box::new(Lines::new(self.clone())),
            Shown::Bar => Box::new(Bar::new(self.clone(), &self.bars)),
            Shown::Nothing => Box::new(Silent(self.clone())),
        }
    }

    /// How progress is shown here.
    pub(crate) fn shown(&self) -> Shown {
        let on_terminal = io::stderr().is_terminal();
        match self.progress {
            ProgressMode::Json => Shown::Json,
            ProgressMode::Bar if !on_terminal => Shown::Lines,
            ProgressMode::Bar => Shown::Bar,
            ProgressMode::Auto if on_terminal && !self.quiet => Shown::Bar,
            ProgressMode::Auto | ProgressMode::None => Shown::Nothing,
        }
    }

    #[cfg(feature = "laboratory")]
    /// Where bars are drawn.
    pub(crate) fn bars(&self) -> &MultiProgress {
        &self.bars
    }

    /// Sends logs to standard error.
    pub(crate) fn start_logging(&mut self, daemon: bool, verbose: u8, settings: &Settings) {
        let wanted = Wanted { daemon, verbose, quiet: self.quiet };
        self.log = Some(Log::start(wanted, settings, BehindBars(self.bars.clone())));
    }

    /// Takes over the level of new settings, unless the command line has the say.
    pub(crate) fn set_log_level(&self, settings: &Settings) {
        if let Some(log) = &self.log {
            log.set_level(settings);
        }
    }
}

/// Ways of showing progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// A bar on a terminal.
    Bar,
    /// A plain line now and then, for a log file.
    Lines,
    /// JSON lines, for a program.
    Json,
    /// Nothing but remarks.
    Nothing,
}

/// Writes to standard error without tearing the bars. One event is one write.
#[derive(Clone)]
struct BehindBars(MultiProgress);

impl Write for BehindBars {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().lock().write_all(event))?;
        Ok(event.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for BehindBars {
    type Writer = BehindBars;
    fn make_writer(&'a self) -> BehindBars {
        self.clone()
    }
}

/// Often enough for a program that draws its own bar.
pub(crate) const JSON_INTERVAL: Duration = Duration::from_millis(100);

/// Lets something happen at most once in an interval.
#[derive(Debug)]
pub(crate) struct Pace {
    interval: Duration,
    last: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(interval: Duration) -> Self {
        Pace { interval, last: None }
    }

    /// Whether it is time; the first time always is.
    #[allow(
        clippy::disallowed_methods,
        reason = "how often a person is told something is not up to a machine"
    )]
    pub(crate) fn due(&mut self) -> bool {
        let now = Instant::now();
        let due = self.last.is_none_or(|last| now.duration_since(last) >= self.interval);
        if due {
            self.last = Some(now);
        }
        due
    }
}

/// Progress as JSON lines.
struct JsonWatch {
    terminal: Terminal,
    pace: Pace,
}

impl Watch for JsonWatch {
    fn progress(&mut self, progress: &Progress) {
        #[derive(Serialize)]
        struct Line<'a> {
            r#type: &'static str,
            #[serde(flatten)]
            progress: &'a Progress,
        }
        if self.pace.due() {
            // A reader that went away is told by the result's write, which fails the command.
            drop(self.terminal.json_line(&Line { r#type: "progress", progress }));
        }
    }

    fn note(&mut self, line: &str) {
        self.terminal.note(line);
    }
}

/// Remarks only.
struct Silent(Terminal);

impl Watch for Silent {
    fn progress(&mut self, _: &Progress) {}

    fn note(&mut self, line: &str) {
        self.0.note(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_paced_happens_at_once_and_then_not_too_often() {
        let mut never_again = Pace::new(Duration::from_secs(3600));
        assert!(never_again.due() && !never_again.due());
        let mut always = Pace::new(Duration::ZERO);
        assert!(always.due() && always.due());
    }
}
