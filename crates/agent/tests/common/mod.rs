//! Agents of several hosts in one process, and files for them to carry.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_agent::client::{Client, ClientError, Event, Fetch};
use headwater_agent::client_frames::{Index, Range};
use headwater_agent::{Agent, AgentConfig, Name, Peer, Peers, Refusal};
use headwater_control::Identity;
use headwater_units::Bytes;
use tokio::runtime::Runtime;

pub(crate) const TOKEN: &[u8] = b"a token of the job";

/// A host with its agent.
pub(crate) struct Host {
    pub(crate) agent: Option<Agent>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) config: AgentConfig,
}

/// Some hosts, whose agents know each other.
pub(crate) struct Cluster {
    pub(crate) runtime: Runtime,
    pub(crate) peers: Peers,
    pub(crate) hosts: Vec<Host>,
}

impl Cluster {
    /// Hosts `h0`, `h1` and so on, each with settings that `change` has changed.
    pub(crate) fn new(count: usize, change: impl Fn(&mut AgentConfig)) -> Cluster {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let peers = Peers::default();
        let host = |_| {
            let folder = tempfile::tempdir().unwrap();
            let mut config =
                AgentConfig::new("127.0.0.1:0".parse().unwrap(), folder.path().join("agent.sock"));
            config.roots = vec![folder.path().join("data")];
            std::fs::create_dir(&config.roots[0]).unwrap();
            config.peers = peers.clone();
            change(&mut config);
            Host { agent: None, identity: Arc::new(Identity::ephemeral().unwrap()), folder, config }
        };
        let mut cluster = Cluster { hosts: (0..count).map(host).collect(), runtime, peers };
        (0..count).for_each(|at| cluster.start(at));
        cluster.introduce();
        cluster
    }

    /// Starts a host's agent, at the address that it had before if it had one.
    pub(crate) fn start(&mut self, at: usize) {
        let _inside = self.runtime.enter();
        let host = &mut self.hosts[at];
        let agent = Agent::open(host.config.clone(), host.identity.clone()).unwrap();
        host.config.listen = agent.address();
        host.agent = Some(agent);
    }

    pub(crate) fn stop(&mut self, at: usize) {
        let agent = self.hosts[at].agent.take().unwrap();
        self.runtime.block_on(agent.end());
    }

    /// Everybody knows everybody.
    pub(crate) fn introduce(&self) {
        let peers = self.hosts.iter().enumerate().map(|(at, host)| {
            let peer = Peer { node: host.identity.node(), address: host.config.listen };
            (Name::new(format!("h{at}")).unwrap(), peer)
        });
        self.peers.set(peers);
    }

    pub(crate) fn client(&self, at: usize) -> Client {
        self.connect(at, "job", TOKEN).unwrap()
    }

    pub(crate) fn connect(&self, at: usize, application: &str, token: &[u8]) -> Result<Client, ClientError> {
        let client = Client::connect(&self.hosts[at].config.socket, application, token)?;
        client.patience(Some(std::time::Duration::from_secs(30)))?;
        Ok(client)
    }

    /// An agent's status when it has given back what its programs have taken: they have the last bytes before it counts them as written.
    pub(crate) fn settled(&self, at: usize) -> headwater_agent::AgentStatus {
        let settled = (0..10_000).map(|_| self.status(at)).find(|status| status.memory_used == 0);
        settled.expect("memory is given back")
    }

    pub(crate) fn status(&self, at: usize) -> headwater_agent::AgentStatus {
        self.runtime.block_on(self.hosts[at].agent.as_ref().unwrap().status())
    }

    /// Writes an output of equal partitions on a host and registers it.
    pub(crate) fn output(&self, at: usize, name: &str, partitions: usize, each: usize) -> (Client, PathBuf) {
        let path = self.hosts[at].config.roots[0].join(name);
        std::fs::write(&path, contents(name, partitions * each)).unwrap();
        let mut client = self.client(at);
        client.register(name, path.to_str().unwrap(), equal(partitions, each)).unwrap();
        (client, path)
    }
}

pub(crate) fn equal(partitions: usize, each: usize) -> Index {
    let range = |at: usize| Range {
        offset: Bytes::new((at * each) as u64),
        length: Bytes::new(each as u64),
        info: at as u64,
    };
    Index::Ranges((0..partitions).map(range).collect())
}

/// Bytes that differ from place to place and from file to file.
pub(crate) fn contents(name: &str, len: usize) -> Vec<u8> {
    let seed = name.bytes().fold(17_u64, |hash, byte| hash.wrapping_mul(31) ^ u64::from(byte));
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed).to_be_bytes()[1]).collect()
}

pub(crate) fn fetch<'a>(flow: u64, host: &'a str, output: &'a str, first: u32, credit: u64) -> Fetch<'a> {
    Fetch { flow, coflow: 1, host, output, first, count: 1, credit }
}

/// Takes all of one flow, granting as much as it takes.
pub(crate) fn take(client: &mut Client, wanted: u64) -> Result<Vec<u8>, Refusal> {
    let mut got = Vec::new();
    loop {
        match client.next().unwrap() {
            Event::Data { flow, offset, bytes } if flow == wanted => {
                assert_eq!(offset, got.len() as u64, "in order");
                got.extend_from_slice(bytes);
                let more = bytes.len() as u64;
                client.credit(wanted, more).unwrap();
            }
            Event::End { flow } if flow == wanted => return Ok(got),
            Event::Broken { flow, refusal, .. } if flow == wanted => return Err(refusal),
            _ => {}
        }
    }
}

pub(crate) fn path_of(path: &Path) -> &str {
    path.to_str().unwrap()
}
