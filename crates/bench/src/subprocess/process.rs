//! Child processes that never outlive their maker.
//!
//! Each writes its log to a file and its standard output, line by line, to us as well. None is reaped before the end:
//! the kernel keeps what a dead child has used for as long as it is a zombie, and nobody else gets its number. Should
//! we die first, by whatever signal, a guard process sees its pipe close, kills them and removes the folder. A child
//! does nothing before the guard knows of it ([`held`]), so there is no moment at which our death leaves one behind.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use headwater_api::AppError;

/// Clock ticks per second of the times in `/proc`: USER_HZ is part of Linux's ABI.
const USER_HZ: f64 = 100.0;
/// Niceness of a process that goes before others.
const PREFERRED: i32 = -10;
/// Instead of the user's file of settings.
const NO_CONFIG: (&str, &str) = ("HEADWATER_CONFIG", "/dev/null");
/// How much of a log's end an error quotes.
const QUOTED_LINES: usize = 8;
/// Where in a log those are looked for.
const QUOTED_BYTES: u64 = 8192;
/// How long a process that closed its output may take to end.
const END: Duration = Duration::from_secs(10);

/// `+ pid` and `- pid` on its standard input; at the end of that, kills what is left and removes the folder `$1`.
const SCRIPT: &str = r#"
trap '' INT TERM HUP PIPE
pids=
while read -r verb pid; do
  case $verb in
    +) pids="$pids $pid" ;;
    -) left=
       for other in $pids; do [ "$other" = "$pid" ] || left="$left $other"; done
       pids=$left ;;
  esac
done
for pid in $pids; do kill -KILL "$pid"; done
[ -n "$1" ] || exit 0
# One that was killed in the middle of a system call may still make a file.
for try in 1 2 3 4 5 6 7 8 9 10; do
  rm -rf -- "$1" && exit 0
  sleep 0.1
done
"#;

/// Waits for a line on its standard input, then becomes the command `"$@"`; ends if there will be none.
const HELD: &str = r#"read -r _ && exec "$@""#;
/// The line that starts a command.
const GO: &str = "go";

/// The process that cleans up if we cannot.
#[derive(Clone)]
pub(crate) struct Guard {
    inner: Arc<GuardProcess>,
}

struct GuardProcess {
    child: Mutex<Child>,
    orders: Mutex<Option<ChildStdin>>,
}

impl Guard {
    /// Starts one; `folder` is what it removes, also if that is a file, or is made only later.
    pub(crate) fn start(folder: Option<&Path>) -> Result<Self, AppError> {
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(folder.unwrap_or(Path::new("")))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Its own group: Ctrl-C in a terminal reaches the foreground group only.
            .process_group(0)
            .spawn()
            .map_err(|source| AppError::Io { doing: "cannot start 'sh'".to_owned(), source })?;
        let orders = Mutex::new(child.stdin.take());
        Ok(Guard { inner: Arc::new(GuardProcess { child: Mutex::new(child), orders }) })
    }

    fn order(&self, verb: char, pid: u32) {
        let mut orders = self.inner.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(orders) = orders.as_mut() {
            // If the guard is gone, we still clean up ourselves.
            let _ = writeln!(orders, "{verb} {pid}");
        }
    }
}

impl Drop for GuardProcess {
    fn drop(&mut self) {
        drop(self.orders.lock().unwrap_or_else(PoisonError::into_inner).take());
        let _ = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait();
    }
}

/// A running child; dropping it kills it.
pub(crate) struct Process {
    /// For people: `the demo's source 2`.
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    log: PathBuf,
    lines: UnboundedReceiver<String>,
    guard: Guard,
}

impl Process {
    /// Starts `command`, which can be [told](Process::tell) lines; what it prints goes to `log`.
    ///
    /// # Errors
    /// [`AppError::Io`] if it does not start.
    pub(crate) fn start(name: &str, command: Command, log: PathBuf, guard: &Guard) -> Result<Self, AppError> {
        let failed = |source| AppError::Io { doing: format!("cannot start {name}"), source };
        let file = OpenOptions::new().create(true).append(true).open(&log).map_err(failed)?;
        let mut child = held(&command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(file.try_clone().map_err(failed)?)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        guard.order('+', child.id());
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (to, lines) = unbounded_channel();
        let pump = move || {
            let (mut file, output) = (file, output.into_iter().map(BufReader::new));
            for line in output.flat_map(|output| output.split(b'\n')) {
                let Ok(mut line) = line else { return };
                let text = String::from_utf8_lossy(&line).into_owned();
                line.push(b'\n');
                // The log is for people and the channel for the demo; neither must stop the other.
                let _ = file.write_all(&line);
                let _ = to.send(text);
            }
        };
        let mut process = Process { name: name.to_owned(), child, input, log, lines, guard: guard.clone() };
        process.tell(GO);
        std::thread::Builder::new().name("child-output".to_owned()).spawn(pump).map_err(failed)?;
        Ok(process)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The next line it prints; `None` once it has closed its output.
    pub(crate) async fn line(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    /// The next line that is a JSON object.
    pub(crate) async fn json(&mut self) -> Option<Value> {
        loop {
            if let Ok(value @ Value::Object(_)) = serde_json::from_str(&self.line().await?) {
                return Some(value);
            }
        }
    }

    /// A JSON object that it has printed already; `Err` once there will be no more.
    pub(crate) fn json_now(&mut self) -> Result<Option<Value>, Ended> {
        use tokio::sync::mpsc::error::TryRecvError;
        loop {
            match self.lines.try_recv() {
                Ok(line) => {
                    if let Ok(value @ Value::Object(_)) = serde_json::from_str(&line) {
                        return Ok(Some(value));
                    }
                }
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => return Err(Ended),
            }
        }
    }

    /// Waits until it has ended, without reaping it.
    ///
    /// # Errors
    /// It closed its output long ago and still runs.
    pub(crate) async fn ended(&self) -> Result<(), AppError> {
        let poll = async {
            while !self.has_ended() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(END, poll)
            .await
            .map_err(|_| self.failed("has closed its output and does not end"))
    }

    /// Whether it has; it is not reaped by asking.
    pub(crate) fn has_ended(&self) -> bool {
        is_zombie(self.child.id())
    }

    /// User and system seconds so far, or in all if it has ended.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        cpu_seconds(&self.child.id().to_string())
    }

    /// As [`cpu_seconds`](Process::cpu_seconds), with those of its children that it has waited for.
    pub(crate) fn cpu_seconds_with_children(&self) -> f64 {
        cpu_ticks(&self.child.id().to_string(), 4) / USER_HZ
    }

    /// Kills it, without reaping it.
    pub(crate) fn kill(&mut self) {
        // An error means that it has ended.
        let _ = self.child.kill();
    }

    /// Asks it to stop.
    pub(crate) fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Has it read its settings anew.
    pub(crate) fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// The most memory that it has had resident, in bytes; 0 if it has ended.
    pub(crate) fn peak_rss(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|it| it.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    }

    /// Stops it where it is; it forgets nothing.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on after [`freeze`](Process::freeze).
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        // It was not reaped, so the number is its own; one that has ended takes no signals.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Lets it go before the others where all want the processor; nothing where this user may not.
    pub(crate) fn prefer(&self) {
        let _ = rustix::process::setpriority_process(Some(Pid::from_child(&self.child)), PREFERRED);
    }

    /// Writes a line to its standard input; one that no longer listens is not told.
    pub(crate) fn tell(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}").and_then(|()| input.flush());
        }
    }

    /// Reaps it once it has [`ended`](Process::ended).
    pub(crate) fn reap(&mut self) -> io::Result<ExitStatus> {
        self.guard.order('-', self.child.id());
        self.child.wait()
    }

    /// An error about it that quotes the end of its log.
    pub(crate) fn failed(&self, how: &str) -> AppError {
        AppError::Failed(self.blame(how))
    }

    /// The text of [`failed`](Process::failed).
    pub(crate) fn blame(&self, how: &str) -> String {
        match last_lines(&self.log) {
            quoted if quoted.is_empty() => format!("{} {how}; it printed nothing", self.name),
            quoted => format!("{} {how}; the last it printed:\n{quoted}", self.name),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let _ = self.reap();
    }
}

/// The command, which begins only when it reads a line, and never if the holder of its standard input dies before.
fn held(command: &Command) -> Command {
    let mut held = Command::new("sh");
    held.args(["-c", HELD, "sh"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => held.env(name, value),
            None => held.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        held.current_dir(folder);
    }
    held
}

/// Takes away what the user has set up for real work: no child may be led astray by it.
pub(crate) fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("HEADWATER_")) {
            command.env_remove(name);
        }
    }
    command.env(NO_CONFIG.0, NO_CONFIG.1);
}

/// A process has closed its output.
#[derive(Debug)]
pub(crate) struct Ended;

/// User and system seconds of a process (`self` is this one), also of one that has ended and was not reaped; zero if
/// there is none.
pub(crate) fn cpu_seconds(pid: &str) -> f64 {
    cpu_ticks(pid, 2) / USER_HZ
}

/// The sum of the first of: user, system, user of children, system of children.
fn cpu_ticks(pid: &str, fields: usize) -> f64 {
    stat(pid).skip(11).take(fields).filter_map(|field| field.parse::<f64>().ok()).sum()
}

fn is_zombie(pid: u32) -> bool {
    stat(&pid.to_string()).next().is_none_or(|state| state == "Z")
}

/// The fields of `/proc/PID/stat` from the third on: state, parent and so on.
fn stat(pid: &str) -> impl Iterator<Item = String> + use<> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The command's name may hold anything, but the last bracket ends it.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    fields.split_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

fn last_lines(log: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(QUOTED_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(QUOTED_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    // Progress is what a program prints while nothing is wrong.
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.contains(r#""type":"progress""#))
        .collect();
    let from = lines.len().saturating_sub(QUOTED_LINES);
    lines[from..].iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn alive(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[tokio::test]
    async fn output_comes_line_by_line_and_the_log_has_everything() {
        let folder = tempfile::tempdir().unwrap();
        let (guard, log) = (Guard::start(None).unwrap(), folder.path().join("log"));
        let script = r#"echo '{"a":1}'; echo noise; echo '{"b":2}'; echo trouble >&2; exit 3"#;
        let mut process = Process::start("clerk", shell(script), log, &guard).unwrap();
        assert_eq!(process.json().await.unwrap()["a"], 1);
        assert_eq!(process.json().await.unwrap()["b"], 2);
        assert!(process.json().await.is_none());
        process.ended().await.unwrap();
        assert!(process.json_now().is_err());
        let error = process.failed("failed").to_string();
        assert!(
            error.contains("clerk failed") && error.contains("trouble") && error.contains("noise"),
            "{error}"
        );
        assert_eq!(process.reap().unwrap().code(), Some(3));
    }

    #[tokio::test]
    async fn what_a_killed_process_used_is_still_known() {
        let folder = tempfile::tempdir().unwrap();
        let guard = Guard::start(None).unwrap();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo '{}'; sleep 60";
        let mut process = Process::start("worker", shell(script), folder.path().join("log"), &guard).unwrap();
        process.json().await.unwrap();
        process.kill();
        process.ended().await.unwrap();
        assert!(process.cpu_seconds() > 0.0);
        assert_eq!(process.cpu_seconds_with_children(), process.cpu_seconds(), "a shell's loop is no child");
        let pid = process.child.id();
        drop(process);
        assert!(!alive(pid));
    }

    #[test]
    fn a_child_whose_maker_dies_before_the_guard_knows_of_it_does_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (trace, gone) = (folder.path().join("trace"), folder.path().join("gone"));
        let mut command = Command::new("touch");
        command.arg(&trace);
        let mut child = held(&command).stdin(Stdio::piped()).spawn().unwrap();
        // As the kernel does with the pipe of a killed process.
        drop(child.stdin.take());
        assert!(!child.wait().unwrap().success());
        assert!(!trace.exists());
        let mut command = Command::new("sh");
        command.args(["-c", r#"read -r line && echo "$line $WORD" > "$0""#]).arg(&gone).env("WORD", "there");
        let mut child = held(&command).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"go\nnot lost\n").unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(std::fs::read_to_string(gone).unwrap(), "not lost there\n");
    }

    #[test]
    fn the_guard_kills_and_removes_what_its_maker_left() {
        let folder = tempfile::tempdir().unwrap();
        let mine = folder.path().join("mine");
        std::fs::create_dir(&mine).unwrap();
        let guard = Guard::start(Some(&mine)).unwrap();
        let mut forgotten = Command::new("sleep").arg("60").spawn().unwrap();
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        guard.order('+', forgotten.id());
        guard.order('+', other.id());
        guard.order('-', other.id());
        drop(guard);
        assert!(!forgotten.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        assert!(!mine.exists());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
