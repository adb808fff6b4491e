//! Two sources in a rack, two receivers and a controller outside, in namespaces: all data shares the rack's uplink.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use headwater_testbed::netns::{Capability, HostSpec, Link, Net, RackSpec, Spec};
use headwater_units::{BitRate, Bytes};
use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use tempfile::TempDir;

/// Capacity of the rack's uplink.
pub(crate) const UPLINK: BitRate = BitRate::new(100_000_000);
const RACK: &str = "--rack=r0=100Mbit/s";

/// The hosts.
pub(crate) const SOURCES: [usize; 2] = [0, 1];
pub(crate) const RECEIVERS: [usize; 2] = [2, 3];
const CONTROLLER: usize = 4;
const PORT: u16 = 7001;

pub(crate) struct Rack {
    // Before the network and the files, which it uses.
    daemons: Vec<Process>,
    net: Net,
    folder: TempDir,
}

impl Rack {
    /// `None` where namespaces are not allowed; says why.
    pub(crate) fn build() -> Option<Rack> {
        if let Err(why) = Capability::probe() {
            headwater_skips::cannot(why);
            return None;
        }
        let inside = HostSpec { rack: Some(0), ..HostSpec::default() };
        let outside = HostSpec::default();
        let hosts = vec![inside, inside, outside, outside, outside];
        let racks = vec![RackSpec { uplink: Some(UPLINK), downlink: None }];
        let net = Net::build(&Spec { hosts, racks, ..Spec::default() }).unwrap();
        Some(Rack { daemons: Vec::new(), net, folder: tempfile::tempdir().unwrap() })
    }

    /// A file of random bytes.
    pub(crate) fn file(&self, name: &str, size: Bytes) -> PathBuf {
        let path = self.folder.path().join(name);
        let mut content = vec![0; usize::try_from(size.get()).unwrap()];
        ChaCha8Rng::seed_from_u64(size.get()).fill_bytes(&mut content);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Where a host listens.
    pub(crate) fn address(&self, host: usize) -> String {
        format!("{}:{PORT}", self.net.ipv4(host))
    }

    pub(crate) fn start_controller(&mut self, flags: &[&str]) -> String {
        let listen = self.address(CONTROLLER);
        self.daemon(CONTROLLER, "controller", &[&["controller", "--listen", &listen], flags].concat());
        listen
    }

    /// Serves `file` from a source.
    pub(crate) fn serve(&mut self, source: usize, file: &Path, flags: &[&str]) {
        let listen = self.address(source);
        let file = file.to_str().unwrap();
        self.daemon(
            source,
            &format!("source{source}"),
            &[&["serve", file, "--listen", &listen, RACK], flags].concat(),
        );
    }

    fn daemon(&mut self, host: usize, name: &str, arguments: &[&str]) {
        let daemon = self.start(host, name, arguments);
        daemon
            .next(Duration::from_secs(30))
            .unwrap_or_else(|| panic!("{name} did not start: {}", daemon.log()));
        self.daemons.push(daemon);
    }

    /// Waits until the controller knows `count` objects.
    pub(crate) fn wait_for_objects(&self, controller: &str, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let asked = self.start(CONTROLLER, "ls", &["ls", "--controller", controller]);
            let mut known = 0;
            while let Some(line) = asked.next(Duration::from_secs(10)) {
                known += usize::from(line["holders"].as_array().is_some_and(|holders| !holders.is_empty()));
            }
            if known >= count {
                return;
            }
            assert!(Instant::now() < deadline, "the controller knows {known} objects");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts a `get` whose output nobody keeps.
    pub(crate) fn get(&self, receiver: usize, name: &str, flags: &[&str]) -> Process {
        let output = self.folder.path().join(format!("out{receiver}-{name}"));
        let _ = std::fs::remove_file(&output);
        let output = output.to_str().unwrap();
        let arguments = [&["get", name, "-o", output, "--progress", "json"], flags].concat();
        self.start(receiver, &format!("receiver{receiver}-{name}"), &arguments)
    }

    fn start(&self, host: usize, name: &str, arguments: &[&str]) -> Process {
        let mut command = self.net.command(host, env!("CARGO_BIN_EXE_headwater")).unwrap();
        let state = self.folder.path().join(format!("{name}.state"));
        command.args(arguments).arg("--json").arg("--state").arg(state).env("HEADWATER_CONFIG", "/dev/null");
        Process::start(command, self.folder.path().join(format!("{name}.log")))
    }

    /// Bytes that have left the rack, with Ethernet headers.
    pub(crate) fn sent(&self) -> u64 {
        self.net.counters(Link::RackUplink(0)).unwrap().bytes.get()
    }
}

/// A child that prints JSON lines; dropping it kills it.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<(Instant, Value)>,
    log: PathBuf,
}

impl Process {
    fn start(mut command: Command, log: PathBuf) -> Process {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = to.send((Instant::now(), serde_json::from_str(&line).unwrap_or_default()));
            }
        });
        Process { child, lines, log }
    }

    fn next(&self, within: Duration) -> Option<Value> {
        self.lines.recv_timeout(within).ok().map(|(_, line)| line)
    }

    /// Everything it has said since the last time, and when.
    pub(crate) fn said(&self) -> Vec<(Instant, Value)> {
        self.lines.try_iter().collect()
    }

    /// The result, once it has ended.
    pub(crate) fn result(mut self, within: Duration) -> Value {
        let deadline = Instant::now() + within;
        let mut last = Value::Null;
        while let Ok((_, line)) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            last = line;
        }
        assert!(Instant::now() < deadline, "not done within {within:?}: {}", self.log());
        assert!(self.child.wait().unwrap().success(), "{}: {last} {}", self.log.display(), self.log());
        last
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
