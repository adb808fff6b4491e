//! Processes of the real binary on loopback: a controller, sources, and receivers, each killable.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

/// A running `headwater`, killed when dropped.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<Value>,
    log: PathBuf,
    done: u64,
}

/// How a process ended, and what it said on standard output.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) last: Option<Value>,
    pub(crate) log: String,
}

impl Process {
    /// Starts `headwater ARGS`, reading the JSON lines of `json_on` (standard output, or error for progress).
    pub(crate) fn start(folder: &Path, name: &str, args: &[&str]) -> Process {
        Self::start_with(folder, name, args, &[])
    }

    pub(crate) fn start_with(
        folder: &Path,
        name: &str,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Process {
        Self::spawn(folder, name, args, variables, Stdio::null())
    }

    /// Starts one that will be [told](Process::say) something on standard input.
    pub(crate) fn start_listening(folder: &Path, name: &str, args: &[&str]) -> Process {
        Self::spawn(folder, name, args, &[], Stdio::piped())
    }

    fn spawn(folder: &Path, name: &str, args: &[&str], variables: &[(&str, &str)], input: Stdio) -> Process {
        let command = Command::new(env!("CARGO_BIN_EXE_headwater"));
        Self::run(folder, name, command, args, variables, input)
    }

    /// The same by a command that starts `headwater` elsewhere.
    pub(crate) fn start_by(folder: &Path, name: &str, command: Command, args: &[&str]) -> Process {
        Self::run(folder, name, command, args, &[], Stdio::null())
    }

    fn run(
        folder: &Path,
        name: &str,
        mut command: Command,
        args: &[&str],
        variables: &[(&str, &str)],
        input: Stdio,
    ) -> Process {
        let log = folder.join(format!("{name}.log"));
        let errors = std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let mut child = command
            .args(args)
            .arg("--json")
            .envs(variables.iter().copied())
            .env("XDG_CONFIG_HOME", folder.join("config"))
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        Process { child, lines, log, done: 0 }
    }

    /// Waits for the next line of standard output.
    pub(crate) fn line(&mut self, within: Duration) -> Value {
        match self.lines.recv_timeout(within) {
            Ok(line) => line,
            Err(_) => panic!("said nothing within {within:?}; its log:\n{}", self.text()),
        }
    }

    pub(crate) fn text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Bytes that were verified and on the disk by the progress said so far.
    pub(crate) fn bytes_done(&mut self) -> u64 {
        while let Ok(line) = self.lines.try_recv() {
            self.done = line["bytes_done"].as_u64().unwrap_or(self.done);
        }
        self.done
    }

    /// Writes a line to its standard input.
    pub(crate) fn say(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("it was started listening");
        writeln!(input, "{line}").unwrap();
    }

    /// Ends its standard input.
    pub(crate) fn say_no_more(&mut self) {
        self.child.stdin = None;
    }

    /// SIGKILL: no goodbye.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end, as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        let kill = format!("kill -INT {}", self.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end.
    pub(crate) fn end(mut self, within: Duration) -> Ended {
        let limit = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                let mut last = None;
                while let Ok(line) = self.lines.recv_timeout(Duration::from_millis(200)) {
                    last = Some(line);
                }
                return Ended { code: status.code(), last, log: self.text() };
            }
            if Instant::now() > limit {
                self.kill();
                panic!("did not end within {within:?}; its log:\n{}", self.text());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The result of a cast that all receivers have heard of.
pub(crate) fn complete(ended: Ended) -> Value {
    let result = ended.last.unwrap_or_default();
    assert_eq!((ended.code, &result["complete"]), (Some(0), &Value::Bool(true)), "{result:#} {}", ended.log);
    result
}

pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// A port that nobody uses, and that nobody else is given while this process lives: below those that the kernel hands
/// out by itself, and kept from tests in other processes by a TCP listener on an address that serves nothing else.
pub(crate) fn free_port() -> u16 {
    static KEPT: Mutex<Vec<TcpListener>> = Mutex::new(Vec::new());
    const LOWEST: u16 = 2000;
    const LOCK: Ipv4Addr = Ipv4Addr::new(127, 77, 77, 77);
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let given: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
    assert!(given > LOWEST, "the kernel gives all ports from {given} on: there is none that it does not");
    let count = given - LOWEST;
    let first = (std::process::id() % u32::from(count)) as u16;
    let free = |port: &u16| {
        let Ok(lock) = TcpListener::bind((LOCK, *port)) else { return false };
        let is_free = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok()
            && TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
        KEPT.lock().unwrap().push(lock);
        is_free
    };
    let mut ports = (0..count).map(|n| LOWEST + (first + n) % count);
    ports.find(free).expect("a port is free")
}

/// A file of random bytes.
pub(crate) fn random_file(path: &Path, bytes: usize, seed: u64) -> Vec<u8> {
    let mut content = vec![0; bytes];
    ChaCha8Rng::seed_from_u64(seed).fill_bytes(&mut content);
    std::fs::write(path, &content).unwrap();
    content
}

/// Path as text.
pub(crate) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Waits until `there` holds.
pub(crate) fn wait_until(what: &str, within: Duration, mut there: impl FnMut() -> bool) {
    let limit = Instant::now() + within;
    while !there() {
        assert!(Instant::now() < limit, "{what} did not happen within {within:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
