//! Peers to compare: the commands of each, what it needs installed, and where it takes part.
//!
//! All use what a user would type, with their own defaults; where a peer has a switch for several sources or connections, it
//! is used. uftp is told the rate of the link, which the others have to find.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use headwater_api::AppError;
use headwater_units::ObjectId;
use serde::Serialize;

use super::scenario::{MTU, Scenario, Scene};
use super::torrent::torrent;

/// A way to deliver an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Peer {
    /// `headwater serve` and `headwater get --from`; to several receivers with `headwater controller`, by which they pass on to each other.
    #[serde(rename = "headwater")]
    Headwater,
    /// curl from nginx; verifies nothing and takes one source, the fastest.
    #[serde(rename = "curl")]
    Curl,
    /// The same, then `b3sum` of the file, compared: verified, as Headwater does.
    #[serde(rename = "curl+b3sum")]
    CurlB3sum,
    /// aria2 over HTTP from all sources; verifies nothing.
    #[serde(rename = "aria2")]
    Aria2,
    /// rqbit, a BitTorrent client; verifies pieces with SHA-1.
    #[serde(rename = "rqbit")]
    Rqbit,
    /// libtorrent, what most BitTorrent clients stand on; verifies pieces with SHA-1.
    #[serde(rename = "libtorrent")]
    Libtorrent,
    /// uftp, multicast at a given rate.
    #[serde(rename = "uftp")]
    Uftp,
    /// iperf3, TCP: bytes only, no disk.
    #[serde(rename = "iperf3")]
    Iperf3,
}

/// Where programs of each peer listen.
const CONTROL_PORT: u16 = 7000;
const SERVE_PORT: u16 = 7001;
const HTTP_PORT: u16 = 8080;
const TORRENT_PORT: u16 = 6881;
const UFTP_PORT: u16 = 1044;
const IPERF_PORT: u16 = 5201;
/// Part of the uplink that uftp may fill: its rate counts payload alone.
const UFTP_FILL: f64 = 0.93;
/// IPv4, UDP and uftp's own headers.
const UFTP_HEADERS: u16 = 28 + 52;
/// Ethernet; IPv4, TCP and its timestamps.
const FRAME: f64 = 14.0;
const TCP_HEADERS: f64 = 20.0 + 32.0;
/// Name of the object everywhere.
pub(super) const NAME: &str = "object.bin";
/// Connections to one source, where a peer may have several.
const CONNECTIONS: usize = 4;

impl Peer {
    /// All, in the order in which they take turns.
    pub const ALL: [Peer; 8] = [
        Peer::Headwater,
        Peer::Curl,
        Peer::CurlB3sum,
        Peer::Aria2,
        Peer::Rqbit,
        Peer::Libtorrent,
        Peer::Uftp,
        Peer::Iperf3,
    ];

    /// As on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Peer::Headwater => "headwater",
            Peer::Curl => "curl",
            Peer::CurlB3sum => "curl+b3sum",
            Peer::Aria2 => "aria2",
            Peer::Rqbit => "rqbit",
            Peer::Libtorrent => "libtorrent",
            Peer::Uftp => "uftp",
            Peer::Iperf3 => "iperf3",
        }
    }

    /// Programs, each with what brings it.
    fn tools(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Peer::Headwater => &[],
            Peer::Curl => &[("nginx", "nginx-light"), ("curl", "curl")],
            Peer::CurlB3sum => &[("nginx", "nginx-light"), ("curl", "curl"), ("b3sum", "b3sum")],
            Peer::Aria2 => &[("nginx", "nginx-light"), ("aria2c", "aria2")],
            Peer::Rqbit => {
                &[("rqbit", "cargo install rqbit --no-default-features --features rust-tls, no package")]
            }
            Peer::Libtorrent => &[("python3", "python3")],
            Peer::Uftp => &[("uftp", "uftp"), ("uftpd", "uftp")],
            Peer::Iperf3 => &[("iperf3", "iperf3")],
        }
    }

    /// Programs of it that are not installed, and how to get them.
    pub(super) fn missing(self) -> Option<String> {
        let missing: Vec<String> = self
            .tools()
            .iter()
            .filter(|(tool, _)| find(tool).is_none())
            .map(|(tool, package)| format!("{tool} ({package})"))
            .collect();
        if self == Peer::Libtorrent && missing.is_empty() && python_with_libtorrent().is_none() {
            return Some("not installed: libtorrent for Python (python3-libtorrent)".to_owned());
        }
        (!missing.is_empty()).then(|| format!("not installed: {}", missing.join(", ")))
    }

    /// Whether it can do what the scenario asks for.
    pub(super) fn plays(self, scenario: Scenario) -> bool {
        match self {
            Peer::Headwater => true,
            Peer::Aria2 | Peer::Rqbit | Peer::Libtorrent => scenario != Scenario::Many,
            // Its one source is the one that vanishes, or is hardly there any more.
            Peer::Curl => !matches!(scenario, Scenario::MultiKill | Scenario::MultiRerate | Scenario::Many),
            Peer::CurlB3sum | Peer::Iperf3 => scenario.is_fat(),
            Peer::Uftp => scenario.is_fat() || scenario.receivers() > 1,
        }
    }

    /// Bytes of packets per byte of data, by the headers alone; `None` where it tells us itself.
    pub(super) fn wire_floor(self) -> Option<f64> {
        let packet = f64::from(MTU) + FRAME;
        match self {
            Peer::Headwater => None,
            Peer::Uftp => Some(packet / f64::from(MTU - UFTP_HEADERS)),
            _ => Some(packet / (f64::from(MTU) - TCP_HEADERS)),
        }
    }

    /// Whether a file is there in the end.
    pub(super) fn writes(self) -> bool {
        self != Peer::Iperf3
    }
}

/// Program that [`Peer::Libtorrent`] runs.
const LIBTORRENT: &[u8] = include_bytes!("libtorrent_peer.py");

/// The Python that finds it: the first of `PATH`, or the system's, which packages are for.
fn python_with_libtorrent() -> Option<&'static str> {
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let mut python = std::process::Command::new(python);
        python.args(["-c", "import libtorrent"]).stdin(std::process::Stdio::null());
        python.output().is_ok_and(|output| output.status.success())
    })
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// The file of a program, in `PATH` or where system programs are.
fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]);
    folders.map(|folder| folder.join(tool)).find(|file| file.is_file())
}

/// On which host something runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Source(usize),
    Receiver(usize),
}

/// How to see that a program is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    /// It prints a JSON object that has an address.
    Says,
    /// Somebody listens on this TCP port of its host.
    Tcp(u16),
    /// Somebody has this UDP port of its host.
    Udp(u16),
}

/// A program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) role: Role,
    /// The program, then its arguments.
    pub(super) command: Vec<OsString>,
}

/// All that a peer runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Deployment {
    /// Are there before the clock starts, and stay.
    pub(super) standing: Vec<(Part, Ready)>,
    /// Are started by the clock; it stops when the last has ended.
    pub(super) timed: Vec<Part>,
}

/// Where everything is.
pub(super) struct Layout<'a> {
    pub(super) scene: &'a Scene,
    /// This binary.
    pub(super) program: &'a Path,
    /// Of the run; every host has a folder of its own in it.
    pub(super) folder: PathBuf,
    pub(super) sources: Vec<Ipv4Addr>,
    pub(super) receivers: Vec<Ipv4Addr>,
    pub(super) object: ObjectId,
}

impl Layout<'_> {
    /// A host's folder.
    pub(super) fn home(&self, role: Role) -> PathBuf {
        self.folder.join(match role {
            Role::Source(n) => format!("source-{n}"),
            Role::Receiver(n) => format!("receiver-{n}"),
        })
    }

    /// The object as a source has it, or as a receiver will.
    pub(super) fn file(&self, role: Role) -> PathBuf {
        self.home(role).join(NAME)
    }

    fn roles(&self) -> (impl Iterator<Item = Role>, impl Iterator<Item = Role>) {
        ((0..self.sources.len()).map(Role::Source), (0..self.receivers.len()).map(Role::Receiver))
    }

    fn url(&self, source: usize) -> String {
        format!("http://{}:{HTTP_PORT}/{NAME}", self.sources[source])
    }

    fn at_sources(&self, port: u16) -> String {
        self.sources.iter().map(|at| format!("{at}:{port}")).collect::<Vec<_>>().join(",")
    }

    /// Programs that `peer` runs; writes the files that they want.
    pub(super) fn deployment(&self, peer: Peer) -> Result<Deployment, AppError> {
        match peer {
            Peer::Headwater => Ok(self.headwater()),
            Peer::Curl => self.with_nginx(|role| self.curl(role)),
            Peer::CurlB3sum => self.with_nginx(|role| self.curl_and_hash(role)),
            Peer::Aria2 => self.with_nginx(|role| self.aria2(role)),
            Peer::Rqbit => self.rqbit(),
            Peer::Libtorrent => self.libtorrent(),
            Peer::Uftp => Ok(self.uftp()),
            Peer::Iperf3 => Ok(self.iperf3()),
        }
    }

    /// One receiver asks the sources; several ask a controller beside the first source, by which they pass on to each other.
    fn headwater(&self) -> Deployment {
        let (sources, receivers) = self.roles();
        let state = |role, of: &str| self.home(role).join(of);
        let controller = format!("{}:{CONTROL_PORT}", self.sources[0]);
        let by_controller: [&dyn Word; 2] = [&"--controller", &controller];
        let is_cluster = self.receivers.len() > 1;
        let mut standing = Vec::new();
        if is_cluster {
            let (first, kept) = (Role::Source(0), state(Role::Source(0), "controller"));
            let command: [&dyn Word; 7] =
                [&self.program, &"controller", &"--listen", &controller, &"--json", &"--state", &kept];
            standing.push((self.part(first, &command), Ready::Says));
        }
        let joins: &[&dyn Word] = if is_cluster { &by_controller } else { &[] };
        standing.extend(sources.zip(&self.sources).map(|(role, at)| {
            let (listen, kept) = (format!("{at}:{SERVE_PORT}"), state(role, "state"));
            let command: [&dyn Word; 8] = [
                &self.program,
                &"serve",
                &self.file(role),
                &"--listen",
                &listen,
                &"--json",
                &"--state",
                &kept,
            ];
            (self.part(role, &[&command[..], joins].concat()), Ready::Says)
        }));
        let sources = self.at_sources(SERVE_PORT);
        let from: [&dyn Word; 2] = [&"--from", &sources];
        let asked = if is_cluster { &by_controller } else { &from };
        let get = |role| {
            let (kept, file) = (state(role, "state"), self.file(role));
            let command: [&dyn Word; 8] =
                [&self.program, &"get", &NAME, &"-o", &file, &"--json", &"--state", &kept];
            self.part(role, &[&command[..], asked].concat())
        };
        Deployment { standing, timed: receivers.map(get).collect() }
    }

    fn with_nginx(&self, client: impl Fn(Role) -> Part) -> Result<Deployment, AppError> {
        let (sources, receivers) = self.roles();
        let standing = sources.map(|role| {
            let home = self.home(role);
            let (file, log) = (home.join("nginx.conf"), home.join("nginx.err"));
            write(&file, nginx_config(&home).as_bytes())?;
            Ok((self.part(role, &[&"nginx", &"-e", &log, &"-c", &file]), Ready::Tcp(HTTP_PORT)))
        });
        Ok(Deployment {
            standing: standing.collect::<Result<_, AppError>>()?,
            timed: receivers.map(client).collect(),
        })
    }

    fn curl(&self, role: Role) -> Part {
        let url = self.url(self.scene.best_source());
        self.part(role, &[&"curl", &"-q", &"-sS", &"-f", &"-o", &self.file(role), &url])
    }

    fn curl_and_hash(&self, role: Role) -> Part {
        let script = r#"curl -q -sS -f -o "$1" "$2" && [ "$(b3sum --no-names "$1")" = "$3" ]"#;
        let (url, object) = (self.url(self.scene.best_source()), self.object.to_string());
        self.part(role, &[&"sh", &"-c", &script, &"sh", &self.file(role), &url, &object])
    }

    fn aria2(&self, role: Role) -> Part {
        let n = if self.sources.len() > 1 { self.sources.len() } else { CONNECTIONS };
        let (split, most) = (format!("-s{n}"), format!("-x{n}"));
        let mut command: Vec<OsString> = ["aria2c", "-q", "--no-conf", "-k1M", "--file-allocation=none"]
            .into_iter()
            .map(OsString::from)
            .collect();
        command.extend([split, most, "-o".to_owned(), NAME.to_owned(), "-d".to_owned()].map(OsString::from));
        command.push(self.home(role).into());
        command.extend((0..self.sources.len()).map(|source| self.url(source).into()));
        Part { role, command }
    }

    fn rqbit(&self) -> Result<Deployment, AppError> {
        let (sources, receivers) = self.roles();
        let file = self.folder.join("object.torrent");
        write(&file, &torrent(&self.file(Role::Source(0)), NAME)?)?;
        let port = TORRENT_PORT.to_string();
        let common: [&dyn Word; 12] = [
            &"rqbit",
            &"-v",
            &"warn",
            &"--disable-dht",
            &"--disable-lsd",
            &"--ipv4-only",
            &"--listen-ip",
            &"0.0.0.0",
            &"--listen-port",
            &port,
            &"download",
            &"--disable-http-api",
        ];
        let seed = |role| {
            let home = self.home(role);
            let own: [&dyn Word; 4] = [&"--overwrite", &"-o", &home, &file];
            (self.part(role, &[&common[..], &own].concat()), Ready::Tcp(TORRENT_PORT))
        };
        // Each is told everybody: without a tracker nobody would find the other receivers.
        let all = self.sources.iter().chain(&self.receivers).map(|at| format!("{at}:{TORRENT_PORT}"));
        let all = all.collect::<Vec<_>>().join(",");
        let get = |role| {
            let home = self.home(role);
            let own: [&dyn Word; 6] = [&"-e", &"-o", &home, &"--initial-peers", &all, &file];
            self.part(role, &[&common[..], &own].concat())
        };
        Ok(Deployment { standing: sources.map(seed).collect(), timed: receivers.map(get).collect() })
    }

    fn libtorrent(&self) -> Result<Deployment, AppError> {
        let (sources, receivers) = self.roles();
        let (file, script) = (self.folder.join("object.torrent"), self.folder.join("libtorrent_peer.py"));
        write(&file, &torrent(&self.file(Role::Source(0)), NAME)?)?;
        write(&script, LIBTORRENT)?;
        let python = python_with_libtorrent().unwrap_or("python3");
        let part = |role, verb: &str| {
            let (home, port) = (self.home(role), TORRENT_PORT.to_string());
            let mut command: Vec<OsString> = vec![python.into(), script.clone().into()];
            command.extend([verb, &port].map(OsString::from));
            command.extend([file.clone(), home].map(OsString::from));
            // As with rqbit, each is told everybody.
            command.extend(self.sources.iter().chain(&self.receivers).map(|at| at.to_string().into()));
            Part { role, command }
        };
        Ok(Deployment {
            standing: sources.map(|role| (part(role, "seed"), Ready::Tcp(TORRENT_PORT))).collect(),
            timed: receivers.map(|role| part(role, "get")).collect(),
        })
    }

    fn uftp(&self) -> Deployment {
        let (_, receivers) = self.roles();
        let listen = |role| {
            let home = self.home(role);
            let log = home.join("uftpd.log");
            let command: [&dyn Word; 10] =
                [&"uftpd", &"-d", &"-I", &"eth0", &"-B", &"4194304", &"-D", &home, &"-L", &log];
            (self.part(role, &command), Ready::Udp(UFTP_PORT))
        };
        let rate = match self.scene.access {
            Some(_) => (self.scene.script.rates[0].get() as f64 * UFTP_FILL / 1e3) as i64,
            None => -1,
        };
        let (rate, block, source) = (rate.to_string(), (MTU - UFTP_HEADERS).to_string(), Role::Source(0));
        let file = self.file(source);
        let command: [&dyn Word; 12] =
            [&"uftp", &"-R", &rate, &"-B", &"4194304", &"-b", &block, &"-I", &"eth0", &"-t", &"1", &file];
        Deployment { standing: receivers.map(listen).collect(), timed: vec![self.part(source, &command)] }
    }

    fn iperf3(&self) -> Deployment {
        let (source, receiver) = (Role::Source(0), Role::Receiver(0));
        let serve = self.part(source, &[&"iperf3", &"-s", &"-1"]);
        let (at, size) = (self.sources[0].to_string(), self.scene.size.get().to_string());
        // The other way round, so that it is the receiver who begins and ends.
        let get = self.part(receiver, &[&"iperf3", &"-c", &at, &"-R", &"-n", &size]);
        Deployment { standing: vec![(serve, Ready::Tcp(IPERF_PORT))], timed: vec![get] }
    }

    fn part(&self, role: Role, command: &[&dyn Word]) -> Part {
        Part { role, command: command.iter().map(|word| word.word()).collect() }
    }
}

/// A word of a command line: text or a path.
trait Word {
    fn word(&self) -> OsString;
}

impl Word for &str {
    fn word(&self) -> OsString {
        (*self).into()
    }
}

impl Word for String {
    fn word(&self) -> OsString {
        self.into()
    }
}

impl Word for PathBuf {
    fn word(&self) -> OsString {
        self.into()
    }
}

impl Word for &Path {
    fn word(&self) -> OsString {
        (*self).into()
    }
}

/// One process that serves `home` and keeps all its files there. Its user is named: in a user namespace it could not give
/// folders to the usual one.
fn nginx_config(home: &Path) -> String {
    let at = home.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("  {what}_temp_path {at}/{what};\n"))
        .concat();
    format!(
        "user root;\ndaemon off;\nmaster_process off;\nworker_processes 1;\npid {at}/nginx.pid;\nerror_log {at}/nginx.err;\n\
         events {{ worker_connections 256; }}\nhttp {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n{temporary}  \
         server {{ listen {HTTP_PORT}; root {at}; }}\n}}\n"
    )
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), AppError> {
    std::fs::write(path, bytes)
        .map_err(|error| AppError::io(format!("cannot write {}", path.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(peer: Peer, scenario: Scenario) -> (Vec<String>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let scene = Scene::of(scenario, None);
        let (sources, receivers) = (scene.script.rates.len(), scene.receivers);
        let layout = Layout {
            scene: &scene,
            program: Path::new("/bin/headwater"),
            folder: folder.path().to_owned(),
            sources: (1..=sources).map(|n| Ipv4Addr::new(10, 0, 0, n as u8)).collect(),
            receivers: (1..=receivers).map(|n| Ipv4Addr::new(10, 0, 1, n as u8)).collect(),
            object: ObjectId([7; 32]),
        };
        for source in 0..sources {
            std::fs::create_dir(layout.home(Role::Source(source))).unwrap();
            std::fs::write(layout.file(Role::Source(source)), b"object").unwrap();
        }
        let deployment = layout.deployment(peer).unwrap();
        let base = folder.path().display().to_string();
        let text = |part: &Part| {
            let words: Vec<_> = part.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            words.join(" ").replace(&base, "")
        };
        (
            deployment.standing.iter().map(|(part, _)| text(part)).collect(),
            deployment.timed.iter().map(text).collect(),
        )
    }

    #[test]
    fn headwater_and_aria2_are_told_all_sources_and_curl_the_fastest() {
        let (standing, timed) = lines(Peer::Headwater, Scenario::Multi);
        assert_eq!(standing.len(), 3);
        assert_eq!(
            standing[2],
            "/bin/headwater serve /source-2/object.bin --listen 10.0.0.3:7001 --json --state /source-2/state"
        );
        assert_eq!(
            timed,
            ["/bin/headwater get object.bin -o /receiver-0/object.bin --json --state /receiver-0/state \
              --from 10.0.0.1:7001,10.0.0.2:7001,10.0.0.3:7001"]
        );
        let (standing, timed) = lines(Peer::Aria2, Scenario::Multi);
        assert_eq!(standing[0], "nginx -e /source-0/nginx.err -c /source-0/nginx.conf");
        assert!(timed[0].contains("-s3 -x3") && timed[0].ends_with("http://10.0.0.3:8080/object.bin"));
        let (_, timed) = lines(Peer::Curl, Scenario::Multi);
        assert_eq!(timed, ["curl -q -sS -f -o /receiver-0/object.bin http://10.0.0.3:8080/object.bin"]);
    }

    #[test]
    fn every_receiver_of_a_fanout_has_a_client_and_uftp_sends_to_all_at_once() {
        for peer in [Peer::Headwater, Peer::Curl, Peer::Aria2, Peer::Rqbit, Peer::Libtorrent] {
            for (scenario, receivers) in
                [(Scenario::Fanout, 4), (Scenario::Fanout16, 16), (Scenario::Fanout32, 32)]
            {
                let (standing, timed) = lines(peer, scenario);
                let standing_there = if peer == Peer::Headwater { 2 } else { 1 };
                assert_eq!((standing.len(), timed.len()), (standing_there, receivers), "{peer}");
            }
        }
        let (_, timed) = lines(Peer::Libtorrent, Scenario::Fanout);
        let all = "10.0.0.1 10.0.1.1 10.0.1.2 10.0.1.3 10.0.1.4";
        assert!(timed[1].contains("python3 /libtorrent_peer.py get 6881 /object.torrent /receiver-1 "));
        assert!(timed[1].ends_with(all), "{}", timed[1]);
        let (standing, timed) = lines(Peer::Uftp, Scenario::Fanout);
        assert_eq!((standing.len(), timed.len()), (4, 1));
        assert!(timed[0].starts_with("uftp -R 186000 "), "93 % of 200 Mbit/s in kbit/s: {}", timed[0]);
        assert!(lines(Peer::Uftp, Scenario::Fat).1[0].starts_with("uftp -R -1 "));
    }

    #[test]
    fn the_verified_download_compares_with_the_object_s_own_hash() {
        let (_, timed) = lines(Peer::CurlB3sum, Scenario::Fat);
        assert!(
            timed[0].contains("b3sum --no-names") && timed[0].ends_with(&"07".repeat(32)),
            "{}",
            timed[0]
        );
    }

    #[test]
    fn a_peer_takes_part_only_where_it_can_win() {
        assert!(Peer::ALL.iter().filter(|peer| peer.plays(Scenario::Many)).eq([&Peer::Headwater]));
        assert!(!Peer::Curl.plays(Scenario::MultiKill) && Peer::Curl.plays(Scenario::Multi));
        assert!(!Peer::Uftp.plays(Scenario::Multi) && !Peer::Iperf3.plays(Scenario::Multi));
    }

    #[test]
    fn tcp_cannot_go_below_its_headers() {
        assert!((Peer::Curl.wire_floor().unwrap() - 1.0456).abs() < 1e-4);
        assert_eq!(Peer::Headwater.wire_floor(), None);
    }

    #[test]
    fn what_is_not_installed_is_named() {
        assert_eq!(Peer::Headwater.missing(), None);
        assert!(find("sh").is_some() && find("no-such-program-anywhere").is_none());
    }
}
