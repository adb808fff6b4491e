//! A client that speaks the control protocol with a key of its own and says whatever it likes: to a controller, to nodes, and all at
//! once. Each attempt is refused or bounded, and an honest `get` beside them gets the right bytes.

#![allow(clippy::disallowed_methods, reason = "these tests drive processes and wait for them")]

mod cluster;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cluster::{Ended, Process, free_port, random_file, text, wait_until};
use headwater_control::{ControlConfig, ControlEndpoint, ControlError, Expect, Identity, Link, Pins};
use headwater_units::{
    BitRate, BlockIndex, Bytes, Duration as Time, FlowId, FlowKey, NodeId, ObjectId, Symbols, TaskId, Theta,
};
use headwater_wire::*;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
/// How long a refused message may take to be counted, and one that is not to have an effect.
const SOON: Duration = Duration::from_secs(1);
/// The stranger is on this machine, and yet not at the address of honest nodes.
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const BYTES: usize = 12 << 20;
/// An honest get takes some two seconds: longer than the processor, which the attacks want too, takes for it.
const LIMIT: &str = "50Mbit/s";

/// A controller with a store, and a node that has joined it.
struct Cluster {
    folder: tempfile::TempDir,
    at: SocketAddr,
    node_at: SocketAddr,
    pages: [String; 2],
    up: Process,
    _node: Process,
    content: Vec<u8>,
    object: String,
}

/// The result of a command that went well.
fn done(ended: Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    ended.last.unwrap_or_default()
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

impl Cluster {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let [at, node_at] = [local(free_port()), local(free_port())];
        let pages = [local(free_port()), local(free_port())].map(|page| page.to_string());
        let content = random_file(&path.join("model"), BYTES, 5);
        let (home, controller, listen) = (text(&path.join("up")), at.to_string(), node_at.to_string());
        let up = ["up", "--listen", &controller, "--state", &home, "--metrics", &pages[0], "--limit", LIMIT];
        let mut up = Process::start(path, "up", &up);
        up.line(PATIENCE);
        let file = text(&path.join("model"));
        let put = ["put", &file, "--name", "model", "--state", &home];
        let put = done(Process::start(path, "put", &put).end(PATIENCE));
        let object = put["object"].as_str().unwrap().to_owned();
        let home = text(&path.join("node"));
        let join =
            ["node", "--join", &controller, "--listen", &listen, "--state", &home, "--metrics", &pages[1]];
        let mut node = Process::start(path, "node", &join);
        node.line(PATIENCE);
        let cluster = Cluster { folder, at, node_at, pages, up, _node: node, content, object };
        wait_until("both nodes are there", PATIENCE, || {
            cluster.status()["nodes"].as_array().is_some_and(|nodes| nodes.len() == 2)
        });
        cluster
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn status(&self) -> Value {
        let state = text(&self.path().join("asker"));
        let args = ["status", "--controller", &self.at.to_string(), "--state", &state];
        Process::start(self.path(), "status", &args).end(PATIENCE).last.unwrap_or_default()
    }

    fn begin_get(&self, what: &str, name: &str) -> Process {
        let (out, state) = (text(&self.path().join(name)), text(&self.path().join("receiver")));
        let (at, to) = (self.at.to_string(), ["-o", &out, "--state", &state]);
        let args = [&["get", what, "--controller", &at, "--progress", "json"][..], &to].concat();
        Process::start(self.path(), name, &args)
    }

    /// Whether what was fetched is what was put.
    fn is_whole(&self, name: &str) -> bool {
        std::fs::read(self.path().join(name)).unwrap() == self.content
    }

    /// A counter of the controller's process (0) or the node's (1).
    fn counter(&self, of: usize, name: &str) -> f64 {
        let mut stream = TcpStream::connect(&self.pages[of]).unwrap();
        write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("{name} in {page}"))
    }

    fn refused(&self, of: usize) -> f64 {
        self.counter(of, "headwater_control_messages_refused_total")
    }

    fn peak(&self, process: &Process) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    }
}

/// A program that knows the protocol and has a key of its own.
struct Stranger {
    endpoint: ControlEndpoint,
    node: NodeId,
    _state: tempfile::TempDir,
}

impl Stranger {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let identity = Arc::new(Identity::ephemeral().unwrap());
        let node = identity.node();
        let pins = Pins::open(state.path()).unwrap();
        let config = ControlConfig { max_links: 0, ..ControlConfig::default() };
        let endpoint = ControlEndpoint::bind((STRANGER, 0).into(), identity, pins, config).unwrap();
        Stranger { endpoint, node, _state: state }
    }

    async fn dial(&self, at: SocketAddr) -> Result<Link, ControlError> {
        self.endpoint.dial(at, Expect::Pinned).await
    }

    fn info(&self) -> NodeInfo {
        NodeInfo { data: vec![(STRANGER, 9).into()], ..NodeInfo::new(self.node, "a friend", 1400) }
    }

    fn request(&self, receiver: NodeId, name: &str) -> ToController {
        ToController::Request(Request {
            request: 1,
            name: name.into(),
            receiver,
            room: 1400,
            class: Class::Bulk,
            spread: SpreadRule::Listed,
            max_sources: None,
            delivery: None,
            trims: false,
            passes_on: false,
        })
    }
}

async fn say(link: &Link, control: impl Into<Control>) {
    link.send(control.into().to_bytes()).await.unwrap();
}

/// Messages that come over a link for a while.
async fn heard(link: &Link) -> Vec<Control> {
    let mut all = Vec::new();
    let hearing = async {
        while let Some(frame) = link.recv().await {
            all.push(Control::parse(&frame).unwrap());
        }
    };
    let _ = tokio::time::timeout(SOON, hearing).await;
    all
}

fn secret(flow: u64) -> FlowSecret {
    FlowSecret { flow: FlowId(flow), key: FlowKey([7; 32]) }
}

fn tree(parent: SocketAddr, heartbeat: Time) -> ToNode {
    ToNode::InstallTree(Box::new(TreeOrder {
        tree: secret(77),
        version: 1,
        symbol_size: 1400,
        parent: Some(parent),
        branches: vec![vec![parent]],
        receives: true,
        store: Bytes::mib(1),
        heartbeat,
        signals: secret(78),
    }))
}

fn push(receiver: NodeId, object: ObjectId, at: Vec<SocketAddr>, role: FlowRole) -> ToSource {
    ToSource::Push(Push {
        task: TaskId(1),
        flow: FlowId(99),
        object,
        bytes: Bytes::new(BYTES as u64),
        symbol_size: 1400,
        key: FlowKey([7; 32]),
        theta: Theta::ONE,
        class: Class::Bulk,
        receiver,
        delivery: Delivery::Push,
        index: 0,
        of: 1,
        at,
        start: Some(Start { rate: BitRate::new(1_000_000_000), rtt: Time::from_millis(1) }),
        role,
    })
}

/// Orders that only the controller of a node may give.
fn orders(object: ObjectId, node: NodeId, victim: SocketAddr) -> Vec<Control> {
    let invitation = Invitation {
        request: 5,
        name: "model".into(),
        object: ObjectId([9; 32]),
        class: Class::Bulk,
        group: None,
    };
    vec![
        tree(victim, Time::from_nanos(1)).into(),
        ToNode::RemoveTree { tree: FlowId(77) }.into(),
        ToNode::Fetch(Box::new(invitation)).into(),
        ToNode::StopFetch { request: 5 }.into(),
        push(node, object, vec![victim], FlowRole::Single).into(),
        push(NodeId([3; 32]), object, vec![victim], FlowRole::Relay).into(),
        ToReceiver::UnknownTask { task: TaskId(1) }.into(),
        ToReceiver::FinAck { task: TaskId(1) }.into(),
        ToReceiver::Flows { task: TaskId(1), version: 9, flows: Vec::new() }.into(),
    ]
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn orders_of_a_stranger_are_refused_and_counted_and_nothing_comes_of_them() {
    let cluster = Cluster::new();
    let stranger_runtime = runtime();
    stranger_runtime.block_on(async {
        let stranger = Stranger::new();
        let victim = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 3), 0)).unwrap();
        victim.set_nonblocking(true).unwrap();
        let object: ObjectId = cluster.object.parse().unwrap();
        for (of, at) in [(0, cluster.at), (1, cluster.node_at)] {
            let before = cluster.refused(of);
            let link = stranger.dial(at).await.unwrap();
            let orders = orders(object, link.peer(), victim.local_addr().unwrap());
            let count = orders.len();
            for order in orders {
                say(&link, order).await;
            }
            wait_until("they are counted", PATIENCE, || cluster.refused(of) - before >= count as f64);
            assert_eq!(cluster.refused(of) - before, count as f64, "no honest message is refused");
            // A flow to the caller itself is no order; the flow's third address is.
            let own = push(stranger.node, object, vec![victim.local_addr().unwrap()], FlowRole::Single);
            say(&link, own).await;
            say(&link, ToSource::SetTheta { flow: FlowId(1), theta: Theta::new(1e9) }).await;
            heard(&link).await;
        }
        let sent = victim.recv_from(&mut [0; 2048]);
        assert!(sent.is_err(), "a third party was sent to: {sent:?}");
    });
}

#[test]
fn tasks_keys_and_names_of_others_are_not_a_strangers() {
    let cluster = Cluster::new();
    let mut get = cluster.begin_get("model", "first");
    wait_until("some of it has come", PATIENCE, || get.bytes_done() > 0);
    let status = cluster.status();
    let task = TaskId(status["tasks"][0]["task"].as_str().unwrap().parse().unwrap());
    let stranger_runtime = runtime();
    stranger_runtime.block_on(async {
        let stranger = Stranger::new();
        let link = stranger.dial(cluster.at).await.unwrap();
        // The receiver's word: progress, an end, a complaint about the source.
        let source: NodeId = status["nodes"][0]["id"].as_str().unwrap().parse().unwrap();
        for outcome in [Outcome::Done, Outcome::Cancelled, Outcome::Failed] {
            say(&link, ToController::Fin { task, outcome }).await;
        }
        say(&link, ToController::Distrust { task, node: source }).await;
        let feedback = ToController::Feedback {
            task,
            first_undecoded: BlockIndex(0),
            needed: Symbols::new(1),
            flows_version: 0,
            flows: Vec::new(),
            held_up: false,
        };
        say(&link, feedback.clone()).await;
        // In another's name.
        say(&link, stranger.request(source, "model")).await;
        say(&link, ToController::Hello(NodeInfo { node: source, ..stranger.info() })).await;
        // A name that is taken, and an id as a name.
        say(&link, ToController::Hello(stranger.info())).await;
        let forged = ObjectId([9; 32]);
        for name in ["model", &cluster.object] {
            let (bytes, name) = (Bytes::new(1000), name.to_owned());
            say(&link, ToController::Hold(Holding { object: forged, bytes, name: Some(name.clone()) })).await;
            let claim = |rule| Claim { number: 7, name: name.clone(), object: forged, at_least: 9, rule };
            for rule in [ClaimRule::Copy, ClaimRule::Give, ClaimRule::Replace] {
                say(&link, ToController::Claim(claim(rule))).await;
            }
            let generation = u64::MAX;
            let naming = Naming { name, object: forged, generation, owner: stranger.node };
            say(&link, ToController::Named(naming)).await;
        }
        say(&link, feedback).await;
        for word in heard(&link).await {
            let keys = match &word {
                Control::Receiver(ToReceiver::Accepted { flows, .. } | ToReceiver::Flows { flows, .. }) => {
                    flows.len()
                }
                _ => 0,
            };
            assert_eq!(keys, 0, "keys of another's task: {word:?}");
        }
    });
    let ended = get.end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(cluster.is_whole("first"));
    for (what, name) in [("model", "by name"), (&cluster.object[..], "by id")] {
        done(cluster.begin_get(what, name).end(PATIENCE));
        assert!(cluster.is_whole(name), "{what}");
    }
}

/// Begins handshakes and does not go on with any: each datagram is the first of another connection, and no answer arrives.
fn half_open_links(towards: SocketAddr, stop: Arc<AtomicBool>, sent: Arc<AtomicU64>) {
    let hole = UdpSocket::bind((STRANGER, 0)).unwrap();
    let hole_at = hole.local_addr().unwrap();
    hole.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let forward = std::thread::spawn({
        let stop = stop.clone();
        move || {
            let sockets: Vec<UdpSocket> = (0..64).map(|_| UdpSocket::bind((STRANGER, 0)).unwrap()).collect();
            let mut datagram = [0; 2048];
            while !stop.load(Ordering::Relaxed) {
                let Ok(len) = hole.recv(&mut datagram) else { continue };
                let number = sent.fetch_add(1, Ordering::Relaxed) as usize;
                let _ = sockets[number % sockets.len()].send_to(&datagram[..len], towards);
            }
        }
    });
    runtime().block_on(async {
        let mut strangers = Vec::new();
        while !stop.load(Ordering::Relaxed) && strangers.len() < 10_000 {
            let stranger = Arc::new(Stranger::new());
            let dialling = (0..100).map(|_| {
                let stranger = stranger.clone();
                tokio::spawn(async move { stranger.dial(hole_at).await.map(drop) })
            });
            strangers.extend(dialling);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    forward.join().unwrap();
}

/// As many links as are accepted, each with requests that are long, and more names than anybody has.
fn flood(towards: SocketAddr, stop: Arc<AtomicBool>, links: Arc<AtomicU64>, names: Arc<AtomicU64>) {
    let stopped = |stop: Arc<AtomicBool>| async move {
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    runtime().block_on(async {
        let stranger = Arc::new(Stranger::new());
        let mut running = tokio::task::JoinSet::new();
        let namer = stranger.dial(towards).await.unwrap();
        let (info, stop_naming) = (stranger.info(), stopped(stop.clone()));
        running.spawn(async move {
            tokio::select! {
                () = name_without_end(&namer, info, &names) => {}
                () = stop_naming => {}
            }
        });
        for _ in 0..20 {
            let mut dialling = tokio::task::JoinSet::new();
            for _ in 0..50 {
                let stranger = stranger.clone();
                dialling.spawn(async move { stranger.dial(towards).await });
            }
            // Not all are let in.
            let dialled = dialling.join_all().await;
            for link in dialled.into_iter().flatten() {
                links.fetch_add(1, Ordering::Relaxed);
                let stop = stopped(stop.clone());
                running.spawn(async move {
                    tokio::select! {
                        () = ask_at_length(&link) => {}
                        () = stop => {}
                    }
                });
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        while running.join_next().await.is_some() {}
    });
}

async fn name_without_end(link: &Link, info: NodeInfo, names: &AtomicU64) {
    say(link, ToController::Hello(info)).await;
    for n in 0_u64.. {
        let mut object = [1; 32];
        object[..8].copy_from_slice(&n.to_be_bytes());
        let (object, bytes, name) = (ObjectId(object), Bytes::new(1), Some(format!("{n:01000}")));
        let hold = Control::from(ToController::Hold(Holding { object, bytes, name }));
        if link.send(hold.to_bytes()).await.is_err() {
            return;
        }
        names.fetch_add(1, Ordering::Relaxed);
    }
}

/// Requests of 1 MiB, one after the other; each is refused as soon as its length is known.
async fn ask_at_length(link: &Link) {
    let long = vec![1; 1 << 20];
    loop {
        if let Err(ControlError::Closed { .. }) = link.request(&long, Bytes::mib(1)).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn an_honest_get_goes_on_beside_floods_and_memory_stays_bounded() {
    let cluster = Cluster::new();
    let alone = Instant::now();
    done(cluster.begin_get("model", "alone").end(PATIENCE));
    let alone = alone.elapsed();
    assert!(cluster.is_whole("alone"));

    let stop = Arc::new(AtomicBool::new(false));
    let [opened, links, names] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
    let floods = {
        let (at, stop) = (cluster.at, stop.clone());
        let (opened, links, names) = (opened.clone(), links.clone(), names.clone());
        let again = stop.clone();
        [
            std::thread::spawn(move || half_open_links(at, stop, opened)),
            std::thread::spawn(move || flood(at, again, links, names)),
        ]
    };
    wait_until("the floods are under way", PATIENCE, || {
        opened.load(Ordering::Relaxed) > 2000
            && links.load(Ordering::Relaxed) > 100
            && names.load(Ordering::Relaxed) > 1000
    });
    let beside = Instant::now();
    let ended = cluster.begin_get("model", "beside").end(PATIENCE);
    let beside = beside.elapsed();
    let code = ended.code;
    wait_until("ten thousand half-open links", PATIENCE, || opened.load(Ordering::Relaxed) > 10_000);
    let peak = cluster.peak(&cluster.up);
    stop.store(true, Ordering::Relaxed);
    floods.into_iter().for_each(|flood| flood.join().unwrap());
    println!(
        "alone {:.2} s, beside floods {:.2} s ({:.2}); {} half-open links, {} links with long requests, {} names; peak memory {} MiB",
        alone.as_secs_f64(),
        beside.as_secs_f64(),
        beside.as_secs_f64() / alone.as_secs_f64(),
        opened.load(Ordering::Relaxed),
        links.load(Ordering::Relaxed),
        names.load(Ordering::Relaxed),
        peak >> 20,
    );
    assert_eq!(code, Some(0), "{}", ended.log);
    assert!(cluster.is_whole("beside"));
    assert!(peak < 300 << 20, "{peak} bytes resident");
    // An honest node still gets in, and the cluster still works.
    done(cluster.begin_get("model", "after").end(PATIENCE));
    assert!(cluster.is_whole("after"));
}
