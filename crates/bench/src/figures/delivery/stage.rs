//! One run: its network, its processes, the clock, and the check of what arrived.
//!
//! The network is that of the demo, built anew for each run; where nothing is limited the hosts hang on one bridge. CPU
//! time is counted per side, from just before the receivers start until the last has ended, and so are the bytes that
//! the sources put on the wire. Work that the kernel does in soft interrupts is charged to the process that it
//! interrupts: trust the sum of the sides.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use headwater_api::AppError;
use headwater_testbed::netns::{HostSpec, Link, Net, NetError, Spec};
use headwater_testbed::soft_switch::in_namespace;
use headwater_units::{Bytes, ObjectId};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::cgroup::Group;
use super::peers::{Deployment, Layout, Part, Ready, Role};
use super::scenario::{MTU, Scenario, Scene};
use crate::demo::script::{Event, Happening};
use crate::figures::network;
use crate::subprocess::{Guard, Process, hash, without_settings};

/// How long sources may take to get ready, and per GiB that they have on top: some hash it first.
const READY: Duration = Duration::from_secs(60);
const READY_PER_GIB: f64 = 30.0;
/// How often it is looked whether they are.
const LOOK: Duration = Duration::from_millis(20);
/// Processor time (seconds) below which sources have settled that used it together in this time.
const SETTLED: (f64, Duration) = (0.02, Duration::from_millis(300));
/// Multiple of the ideal, and time on top, after which a run is stuck.
const STUCK: (f64, Duration) = (8.0, Duration::from_secs(30));
/// In place of the ideal where there is none: seconds per GiB.
const SLOW: f64 = 20.0;
/// How long a file may take to get its name after the clock has stopped, with peers that stop it at the sender.
const NAMED: Duration = Duration::from_secs(3);
/// Joins the group that `$1` names the members of, opens as many files as it may, and becomes the rest.
const ENTER: &str = r#"[ -z "$1" ] || echo $$ >"$1" || exit 97; ulimit -n "$(ulimit -Hn)"; shift; exec "$@""#;

/// Observations of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// From the start of the timed processes until the last has ended.
    pub(super) seconds: f64,
    /// Until the first has.
    pub(super) first_seconds: f64,
    pub(super) source_cpu: f64,
    pub(super) receiver_cpu: f64,
    /// Whether control groups counted them, or `/proc` in ticks of 10 ms.
    pub(super) by_group: bool,
    /// Bytes that the sources put on the wire.
    pub(super) sent: Bytes,
    /// The last JSON object that the last timed process to end has printed.
    pub(super) said: Option<Value>,
}

/// State that all runs share.
pub(super) struct Shared<'a> {
    /// This binary.
    pub(super) program: &'a Path,
    pub(super) guard: &'a Guard,
    /// Runs have their folder in here.
    pub(super) folder: &'a Path,
    /// The files of every source: where they are, and how they are called there.
    pub(super) files: &'a [(PathBuf, String)],
    /// The first of them.
    pub(super) object: ObjectId,
}

/// A file that is to be there in the end: its path below a receiver's folder, and what it must be.
pub(super) type Arrival = (String, ObjectId);

/// Everything of a run, in the order in which it must go.
struct Stage<'a> {
    shared: &'a Shared<'a>,
    layout: Layout<'a>,
    timed: JoinSet<Result<Ended, AppError>>,
    standing: Vec<(Role, Process)>,
    net: Arc<Net>,
    groups: Option<(Group, Group)>,
    _folder: Folder,
}

/// A timed process that has ended well.
struct Ended {
    role: Role,
    after: f64,
    cpu: f64,
    said: Option<Value>,
}

/// The folder of a run, which goes with all that was written into it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Files that cannot be removed go with the scratch folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs what `deployment` says once; every receiver must have `arrivals` then.
pub(super) async fn play(
    shared: &Shared<'_>,
    scene: &Scene,
    deployment: impl FnOnce(&Layout<'_>) -> Result<Deployment, AppError>,
    arrivals: &[Arrival],
) -> Result<Seen, AppError> {
    let mut stage = Stage::build(shared, scene).await?;
    let result = async {
        let deployment = deployment(&stage.layout)?;
        stage.get_ready(deployment.standing).await?;
        let seen = stage.run(deployment.timed).await?;
        stage.check(arrivals).await?;
        Ok(seen)
    };
    let result = result.await;
    stage.timed.shutdown().await;
    // Not on the runtime's threads: namespaces take a while to go.
    let Stage { standing, net, groups, _folder: folder, .. } = stage;
    let _ = tokio::task::spawn_blocking(move || drop((standing, net, groups, folder))).await;
    result
}

impl<'a> Stage<'a> {
    async fn build(shared: &'a Shared<'a>, scene: &'a Scene) -> Result<Self, AppError> {
        let folder = shared.folder.join("run");
        // One that resisted.
        let _ = fs::remove_dir_all(&folder);
        let (spec, cut) = network_of(scene);
        let net = blocking(move || network(&spec, cut)).await?;
        let hosts: Vec<Ipv4Addr> = (0..net.hosts()).map(|host| net.ipv4(host)).collect();
        let (sources, receivers) = hosts.split_at(scene.script.rates.len());
        let layout = Layout {
            scene,
            program: shared.program,
            folder: folder.clone(),
            sources: sources.to_vec(),
            receivers: receivers.to_vec(),
            object: shared.object,
        };
        let stage = Stage {
            shared,
            layout,
            timed: JoinSet::new(),
            standing: Vec::new(),
            net: Arc::new(net),
            groups: Group::create("source").zip(Group::create("receiver")),
            _folder: Folder(folder),
        };
        stage.furnish()?;
        Ok(stage)
    }

    /// Folders for all hosts, with the files in those of the sources: names of the same bytes, no copies.
    fn furnish(&self) -> Result<(), AppError> {
        let create = |role| {
            let home = self.layout.home(role);
            fs::create_dir_all(&home)
                .map_err(|error| AppError::io(format!("cannot create {}", home.display()), error))?;
            Ok::<_, AppError>(home)
        };
        for source in 0..self.layout.sources.len() {
            let home = create(Role::Source(source))?;
            for (path, name) in self.shared.files {
                fs::hard_link(path, home.join(name))
                    .map_err(|error| AppError::io(format!("cannot link {}", path.display()), error))?;
            }
        }
        (0..self.layout.receivers.len()).try_for_each(|n| create(Role::Receiver(n)).map(drop))
    }

    /// Starts a process of the run.
    fn start(&self, part: &Part) -> Result<Process, AppError> {
        let (home, name) = (self.layout.home(part.role), self.name_of(part));
        let host = match part.role {
            Role::Source(n) => n,
            Role::Receiver(n) => self.layout.sources.len() + n,
        };
        let members = match (&self.groups, part.role) {
            (Some((sources, _)), Role::Source(_)) => sources.members(),
            (Some((_, receivers)), Role::Receiver(_)) => receivers.members(),
            (None, _) => PathBuf::new(),
        };
        let mut command: Command = self.net.command(host, "sh").map_err(of_network)?;
        command.args(["-c", ENTER, "sh"]).arg(members).args(&part.command);
        without_settings(&mut command);
        // No settings of the user's for the others either.
        command.env("HOME", &home).env("XDG_CONFIG_HOME", home.join("config")).current_dir(&home);
        Process::start(&name, command, home.join("log"), self.shared.guard)
    }

    fn name_of(&self, part: &Part) -> String {
        let program = part.command.first().map(PathBuf::from).unwrap_or_default();
        let program = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match part.role {
            Role::Source(n) => format!("{program} on source {n}"),
            Role::Receiver(n) => format!("{program} on receiver {n}"),
        }
    }

    /// Starts what stands, and returns when all of it is ready and nobody has anything left to do.
    async fn get_ready(&mut self, standing: Vec<(Part, Ready)>) -> Result<(), AppError> {
        let gib = self.layout.scene.size * self.shared.files.len() as u64;
        let patience = READY + Duration::from_secs_f64(READY_PER_GIB * in_gib(gib));
        let mut waiting = Vec::new();
        for (part, ready) in standing {
            self.standing.push((part.role, self.start(&part)?));
            waiting.push(ready);
        }
        let net = self.net.clone();
        let sources = self.layout.sources.len();
        let all_ready = async {
            for ((role, process), ready) in self.standing.iter_mut().zip(waiting) {
                let host = match role {
                    Role::Source(n) => *n,
                    Role::Receiver(n) => sources + *n,
                };
                wait_until(ready, process, &net, host).await?;
            }
            Ok::<_, AppError>(())
        };
        let late = || AppError::Failed(format!("sources were not ready after {} s", patience.as_secs()));
        timeout(patience, all_ready).await.map_err(|_| late())??;
        let settled = async {
            loop {
                let before = self.cpu(&[]);
                sleep(SETTLED.1).await;
                let after = self.cpu(&[]);
                if after.0 + after.1 - before.0 - before.1 < SETTLED.0 {
                    return;
                }
            }
        };
        timeout(patience, settled).await.map_err(|_| late())
    }

    /// CPU seconds of the sources' side and of the receivers'.
    fn cpu(&self, ended: &[Ended]) -> (f64, f64) {
        let group = |group: &Group| group.cpu_seconds().unwrap_or(f64::NAN);
        if let Some((sources, receivers)) = &self.groups {
            return (group(sources), group(receivers));
        }
        let standing =
            self.standing.iter().map(|(role, process)| (role, process.cpu_seconds_with_children()));
        let all = standing.chain(ended.iter().map(|ended| (&ended.role, ended.cpu)));
        all.fold((0.0, 0.0), |(sources, receivers), (role, cpu)| match role {
            Role::Source(_) => (sources + cpu, receivers),
            Role::Receiver(_) => (sources, receivers + cpu),
        })
    }

    async fn sent(&self) -> Result<u64, AppError> {
        let (net, sources) = (self.net.clone(), self.layout.sources.len());
        in_net(move || (0..sources).map(|host| net.sent(host).map(Bytes::get)).sum()).await
    }

    /// Lets the timed processes run, and happen what is to happen meanwhile.
    async fn run(&mut self, timed: Vec<Part>) -> Result<Seen, AppError> {
        let scene = self.layout.scene;
        let ideal = scene.ideal_seconds().unwrap_or(in_gib(scene.size) * SLOW);
        let (cpu, sent) = (self.cpu(&[]), self.sent().await?);
        #[allow(clippy::disallowed_methods, reason = "this measures the machine")]
        let started = Instant::now();
        for part in &timed {
            let process = self.start(part)?;
            self.timed.spawn(follow(process, part.role, started));
        }
        let stuck = started + Duration::from_secs_f64(ideal * STUCK.0) + STUCK.1;
        let mut events = scene.script.events.iter();
        let mut next = events.next();
        let mut ended = Vec::new();
        loop {
            let due = next.map_or(stuck, |event| started + event.at.into());
            tokio::select! {
                done = self.timed.join_next() => match done {
                    Some(Ok(done)) => ended.push(done?),
                    Some(Err(error)) => return Err(AppError::Failed(error.to_string())),
                    None => break,
                },
                () = sleep_until(due) => match next.take() {
                    Some(event) => {
                        self.happen(event).await?;
                        next = events.next();
                    }
                    None => {
                        let seconds = started.elapsed().as_secs();
                        return Err(AppError::Failed(format!("not done after {seconds} s")));
                    }
                },
            }
        }
        let after = self.cpu(&ended);
        let by_time = |a: &&Ended, b: &&Ended| a.after.total_cmp(&b.after);
        let (Some(first), Some(last)) = (ended.iter().min_by(by_time), ended.iter().max_by(by_time)) else {
            return Err(AppError::Failed("nothing was to be run".to_owned()));
        };
        Ok(Seen {
            seconds: last.after,
            first_seconds: first.after,
            source_cpu: after.0 - cpu.0,
            receiver_cpu: after.1 - cpu.1,
            by_group: self.groups.is_some(),
            sent: Bytes::new(self.sent().await?.saturating_sub(sent)),
            said: last.said.clone(),
        })
    }

    async fn happen(&self, event: &Event) -> Result<(), AppError> {
        let (net, source) = (self.net.clone(), event.source);
        match event.what {
            // It takes the processes with it.
            Happening::Vanish => in_net(move || net.vanish(source)).await,
            Happening::Rerate(rate) => in_net(move || net.set_rate(Link::Uplink(source), Some(rate))).await,
            Happening::Join => unreachable!("no scenario has sources that join"),
        }
    }

    /// Compares what arrived with what it must be.
    async fn check(&self, arrivals: &[Arrival]) -> Result<(), AppError> {
        for receiver in 0..self.layout.receivers.len() {
            let home = self.layout.home(Role::Receiver(receiver));
            for (name, object) in arrivals {
                let path = home.join(name);
                let look = || {
                    let path = path.clone();
                    blocking(move || hash(&path))
                };
                let patient = async {
                    while look().await.ok() != Some(*object) {
                        sleep(LOOK).await;
                    }
                };
                if timeout(NAMED, patient).await.is_err() {
                    // A file that takes longer than that to read is given the time it needs.
                    let found = look().await?;
                    if found != *object {
                        let shown = path.display();
                        return Err(AppError::Verification(format!("{shown} is {found}, not {object}")));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The network of a scene, sources first, then receivers; and whether buffers are cut into packets.
fn network_of(scene: &Scene) -> (Spec, bool) {
    let fat = scene.scenario.is_fat();
    let sources = scene.script.rates.iter().map(|rate| HostSpec {
        uplink: (!fat).then_some(*rate),
        downlink: scene.access,
        rack: None,
    });
    let receiver = HostSpec { uplink: scene.access, downlink: scene.access, rack: None };
    let hosts = sources.chain(std::iter::repeat_n(receiver, scene.receivers)).collect();
    (Spec { hosts, mtu: MTU, edges: !fat, ..Spec::default() }, scene.scenario != Scenario::Fat)
}

async fn wait_until(
    ready: Ready,
    process: &mut Process,
    net: &Arc<Net>,
    host: usize,
) -> Result<(), AppError> {
    let (table, port) = match ready {
        Ready::Says => {
            while let Some(line) = process.json().await {
                if line["address"].is_string() {
                    return Ok(());
                }
            }
            return Err(process.failed("ended before it was ready"));
        }
        Ready::Tcp(port) => ("tcp", port),
        Ready::Udp(port) => ("udp", port),
    };
    loop {
        let (net, namespace) = (net.clone(), net.namespace(host).map_err(of_network)?.to_owned());
        let there = blocking(move || {
            // The network is there for as long as we ask.
            let _net = net;
            let tables =
                [table.to_owned(), format!("{table}6")].map(|t| format!("/proc/thread-self/net/{t}"));
            let read =
                || tables.iter().filter_map(|table| fs::read_to_string(table).ok()).collect::<String>();
            in_namespace(&namespace, read)
                .map_err(|error| AppError::io("cannot look into a namespace", error))
        });
        if is_bound(&there.await?, port, table == "tcp") {
            return Ok(());
        }
        // It may go on after it has closed its output, so that says nothing.
        if process.has_ended() {
            return Err(process.failed("ended before it was ready"));
        }
        sleep(LOOK).await;
    }
}

/// Whether a table of sockets, as the kernel prints them, has one on `port`; of TCP, one that listens.
fn is_bound(table: &str, port: u16, listening: bool) -> bool {
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let ours = fields.next().is_some_and(|local| local.ends_with(&port));
        ours && (!listening || fields.nth(1) == Some(LISTEN))
    })
}

/// Waits for the end of a timed process.
async fn follow(mut process: Process, role: Role, started: Instant) -> Result<Ended, AppError> {
    let mut said = None;
    while let Some(line) = process.json().await {
        said = Some(line);
    }
    process.ended().await?;
    let after = started.elapsed().as_secs_f64();
    let cpu = process.cpu_seconds_with_children();
    let failed = |source| AppError::io("cannot wait for a process", source);
    let status = process.reap().map_err(failed)?;
    if !status.success() {
        return Err(process.failed(&format!("failed ({status})")));
    }
    Ok(Ended { role, after, cpu, said })
}

pub(super) fn in_gib(bytes: Bytes) -> f64 {
    bytes.get() as f64 / Bytes::mib(1024).get() as f64
}

async fn in_net<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NetError> + Send + 'static,
) -> Result<T, AppError> {
    blocking(move || work().map_err(of_network)).await
}

fn of_network(error: NetError) -> AppError {
    AppError::Failed(format!("the bench's network: {error}"))
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AppError> + Send + 'static,
) -> Result<T, AppError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(AppError::Failed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_taken_when_somebody_listens_on_it_and_not_when_somebody_is_connected_from_it() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
            0: 00000000:1F90 00000000:0000 0A 00000000:00000000\n   \
            1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000\n";
        assert!(is_bound(table, 8080, true) && !is_bound(table, 8081, true) && is_bound(table, 8081, false));
        assert!(!is_bound(table, 80, false) && !is_bound("", 8080, false));
    }

    #[test]
    fn where_nothing_is_limited_all_hang_on_one_bridge() {
        let (limited, cut) = network_of(&Scene::of(Scenario::Multi, None));
        assert_eq!((limited.hosts.len(), limited.edges, cut), (4, true, true));
        assert!(limited.hosts.iter().all(|host| host.uplink.is_some() && host.downlink.is_some()));
        let (fat, cut) = network_of(&Scene::of(Scenario::Fat, None));
        assert_eq!((fat.hosts.len(), fat.edges, cut), (2, false, false));
        assert!(fat.hosts.iter().all(|host| *host == HostSpec::default()));
        let (fat_mtu, cut) = network_of(&Scene::of(Scenario::FatMtu, None));
        assert!(!fat_mtu.edges && cut);
    }
}
