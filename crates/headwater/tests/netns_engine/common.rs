//! Small experiments, one at a time, and what `lab run` says of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::MutexGuard;
use std::thread;
use std::time::{Duration, Instant};

use headwater_testbed::emulate::{EmulateError, EmulatedNet};
use serde_json::Value;
use tempfile::TempDir;

/// Links are so slow that a switch which is late by a millisecond still keeps time: about 330 packets per second.
const TINY: &str = r#"
title = "One task over one link"
source = "This test"
engines = ["netns"]
schemes = ["ppush(1,1)"]

[scale.small]
seeds = 1

[scenario]
fabric = { kind = "dumbbell", left = 1, right = 1, rate = "4 Mbit/s", edge_rate = "40 Mbit/s", delay = "200 us" }
packet = { data = "1507 B" }
port = { queue = "100 packets", mark_threshold = "30 packets" }
transport = { initial_window = 10.0, min_rto = "50 ms", assignment = "listed", loss_response = "guarded" }
workload = { kind = "task-list", tasks = [{ name = "t", packets = PACKETS, sources = [0], receiver = 1 }] }
"#;

/// The lock that keeps runs apart; `None` where the engine cannot work, not even in a user namespace.
pub(crate) fn alone() -> Option<MutexGuard<'static, ()>> {
    headwater_skips::alone(|| match EmulatedNet::probe() {
        Err(EmulateError::Unavailable(why)) if why.user_namespace => Ok(()),
        probed => probed,
    })
}

/// [`alone`], where namespaces can be made without a user namespace around them, so that others see their names.
pub(crate) fn alone_and_seen() -> Option<MutexGuard<'static, ()>> {
    let lock = alone()?;
    EmulatedNet::probe().inspect_err(|why| headwater_skips::cannot(why)).is_ok().then_some(lock)
}

/// A claim without a pass line: what is measured is what is asked for.
pub(crate) fn asks(name: &str, on: &str, metric: &str) -> String {
    format!(
        "[[claim]]\nid = \"{name}\"\nabout = \"{name}\"\nsource = \"This test\"\nwithin = \"report\"\non = {on}\nmetric = {metric}\n"
    )
}

/// A folder with an experiment in `it.toml`: one task of `packets` packets, and its completion time.
pub(crate) fn tiny(packets: u64, claims: &str) -> TempDir {
    let time = asks("time", "{}", r#"{ kind = "column", column = "tct_s" }"#);
    folder(&(TINY.replace("PACKETS", &packets.to_string()) + &time + claims))
}

/// The same at an eighth of the rate: for runs that have to share a processor, whose switches are late by milliseconds.
pub(crate) fn slow(packets: u64, claims: &str) -> TempDir {
    let folder = tiny(packets, claims);
    let file = folder.path().join("it.toml");
    let text = fs::read_to_string(&file).unwrap();
    let slower = [("4 Mbit/s", "500 kbit/s"), ("40 Mbit/s", "5 Mbit/s"), ("50 ms", "400 ms")];
    let text = slower.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}: {text}");
        text.replace(from, to)
    });
    fs::write(file, text).unwrap();
    folder
}

/// A folder with an experiment in `it.toml`.
pub(crate) fn folder(experiment: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("it.toml"), experiment).unwrap();
    folder
}

/// `lab run FILE --json` with results in `folder`.
pub(crate) fn lab_run(folder: &Path, file: &Path, engine: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.args(["lab", "run", "--json", "--scale", "small", "--engine", engine]);
    command.arg(file).arg("--out").arg(folder.join(engine)).current_dir(folder);
    command.env("HOME", folder).env("XDG_CONFIG_HOME", folder.join("config")).stdin(Stdio::null());
    command
}

/// The same for `it.toml` on real packets.
pub(crate) fn it(folder: &TempDir) -> Command {
    lab_run(folder.path(), Path::new("it.toml"), "netns")
}

/// Output of `lab run`.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) code: Option<i32>,
    /// By claim; those that nothing was measured for are left out.
    pub(crate) measured: BTreeMap<String, (f64, String)>,
    /// Reasons of skipped runs.
    pub(crate) skipped: Vec<String>,
    pub(crate) err: String,
}

impl Printed {
    pub(crate) fn by(mut command: Command) -> Printed {
        Printed::of(&command.output().unwrap())
    }

    pub(crate) fn of(output: &Output) -> Printed {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let mut said = Printed {
            code: output.status.code(),
            measured: BTreeMap::new(),
            skipped: Vec::new(),
            err: err.into_owned(),
        };
        for line in out.lines() {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {out}"));
            let word = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
            if line["type"] == "skipped" {
                said.skipped.push(format!("{}: {}", word("run"), word("reason")));
            } else if let Some(measured) = line["measured"].as_f64() {
                said.measured.insert(word("claim"), (measured, word("verdict")));
            }
        }
        said
    }

    /// It ended well.
    #[track_caller]
    pub(crate) fn ends_well(self) -> Printed {
        assert_eq!(self.code, Some(0), "{}\n{:?}", self.err, self.measured);
        self.ends_judged()
    }

    /// It ended well, whether or not claims are misses. Prints what was skipped, for that is not looked at.
    #[track_caller]
    pub(crate) fn ends_judged(self) -> Printed {
        assert!(matches!(self.code, Some(0 | 3)), "{}\n{:?}", self.err, self.measured);
        for reason in &self.skipped {
            assert!(reason.contains("machine too busy"), "{reason}");
            headwater_skips::too_busy(reason);
        }
        self
    }

    /// Measured value of a claim, unless its run was skipped.
    #[track_caller]
    pub(crate) fn value(&self, claim: &str) -> Option<f64> {
        let measured = self.measured.get(claim).map(|(measured, _)| *measured);
        assert!(measured.is_some() || !self.skipped.is_empty(), "{claim}: {self:?}");
        measured
    }
}

/// Looks until there is something, and fails after `patience`.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, patience: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < patience, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A run in the background; dropping it kills it.
pub(crate) struct Running {
    pub(crate) process: Child,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        Running { process: command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The names of its namespaces.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        entries("/run/netns", &format!("hw-{}-", self.pid()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Entries of a folder whose names begin with `beginning`.
pub(crate) fn entries(folder: impl AsRef<Path>, beginning: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(beginning)).collect()
}
