//! Agents that die, connections that break and files that shrink in the middle of a flow: right bytes, or an error.

#[allow(dead_code)]
mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use common::{Cluster, TOKEN, contents, equal, fetch, path_of, take};
use headwater_agent::client::{Client, Event};
use headwater_agent::{Name, Peer, Refusal};
use headwater_units::Bytes;

const MIB: u64 = 1 << 20;

/// Takes this much of a flow, granting as much.
fn take_some(client: &mut Client, flow: u64, bytes: usize, got: &mut Vec<u8>) {
    let end = got.len() + bytes;
    while got.len() < end {
        match client.next().unwrap() {
            Event::Data { bytes, offset, .. } => {
                assert_eq!(offset, got.len() as u64);
                got.extend_from_slice(bytes);
                let more = bytes.len() as u64;
                client.credit(flow, more).unwrap();
            }
            Event::Opened { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Takes the rest of it.
fn take_rest(client: &mut Client, flow: u64, got: &mut Vec<u8>) -> Result<(), Refusal> {
    loop {
        match client.next().unwrap() {
            Event::Data { bytes, offset, .. } => {
                assert_eq!(offset, got.len() as u64);
                got.extend_from_slice(bytes);
                let more = bytes.len() as u64;
                client.credit(flow, more).unwrap();
            }
            Event::End { .. } => return Ok(()),
            Event::Broken { refusal, .. } => return Err(refusal),
            Event::Opened { .. } => {}
        }
    }
}

/// Stands between two agents, cuts what it carries, or lets it wait.
struct Wire {
    address: SocketAddr,
    carried: Arc<Mutex<Vec<TcpStream>>>,
    frozen: Arc<(Mutex<bool>, Condvar)>,
}

impl Wire {
    fn to(target: SocketAddr) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let carried: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let frozen: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let (all, held) = (carried.clone(), frozen.clone());
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(target)) else { return };
                near.set_nodelay(true).and_then(|()| far.set_nodelay(true)).unwrap();
                let clone = |of: &TcpStream| of.try_clone().unwrap();
                all.lock().unwrap().extend([clone(&near), clone(&far)]);
                for (from, to) in [(clone(&near), clone(&far)), (far, near)] {
                    let held = held.clone();
                    std::thread::spawn(move || carry(from, to, &held));
                }
            }
        });
        Wire { address, carried, frozen }
    }

    fn cut(&self) {
        for stream in self.carried.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// As a host that stands still: its connections stay, and nothing comes.
    fn freeze(&self, frozen: bool) {
        *self.frozen.0.lock().unwrap() = frozen;
        self.frozen.1.notify_all();
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, (frozen, thaws): &(Mutex<bool>, Condvar)) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        drop(thaws.wait_while(frozen.lock().unwrap(), |frozen| *frozen).unwrap());
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

#[test]
fn a_flow_goes_on_by_its_offset_after_each_reset_of_its_lane() {
    let cluster = Cluster::new(2, |_| {});
    let (_held, _) = cluster.output(0, "map_0", 1, 24 << 20);
    let wire = Wire::to(cluster.hosts[0].config.listen);
    let node = cluster.hosts[0].identity.node();
    let far = (Name::new("h0").unwrap(), Peer { node, address: wire.address });
    let own = Peer { node: cluster.hosts[1].identity.node(), address: cluster.hosts[1].config.listen };
    cluster.peers.set([far, (Name::new("h1").unwrap(), own)]);
    let mut client = cluster.client(1);
    client.fetch(&fetch(1, "h0", "map_0", 0, MIB)).unwrap();
    let mut got = Vec::new();
    for _ in 0..6 {
        take_some(&mut client, 1, 3 << 20, &mut got);
        wire.cut();
    }
    take_rest(&mut client, 1, &mut got).unwrap();
    assert!(got == contents("map_0", 24 << 20));
    let status = cluster.status(1);
    assert!(status.resets >= 3, "{status:?}");
    assert_eq!((status.flows_done, status.flows_broken, status.lanes.len()), (1, 0, 1));
}

#[test]
fn a_peer_that_stands_still_delays_its_own_flows_alone() {
    let memory = Bytes::mib(8);
    let cluster = Cluster::new(3, |config| config.memory = memory);
    let (_far, _) = cluster.output(0, "map_0", 1, 24 << 20);
    let (_near, _) = cluster.output(1, "map_1", 1, 24 << 20);
    let wire = Wire::to(cluster.hosts[0].config.listen);
    let peer = |at: usize| {
        let host = &cluster.hosts[at];
        let address = if at == 0 { wire.address } else { host.config.listen };
        (Name::new(format!("h{at}")).unwrap(), Peer { node: host.identity.node(), address })
    };
    cluster.peers.set((0..3).map(peer));
    let (mut slow, mut quick) = (cluster.client(2), cluster.client(2));
    slow.fetch(&fetch(1, "h0", "map_0", 0, 8 * MIB)).unwrap();
    let mut got = Vec::new();
    take_some(&mut slow, 1, 2 << 20, &mut got);
    wire.freeze(true);
    // All of it comes while the other waits.
    quick.fetch(&fetch(1, "h1", "map_1", 0, 8 * MIB)).unwrap();
    assert!(take(&mut quick, 1).unwrap() == contents("map_1", 24 << 20));
    let status = cluster.status(2);
    assert!(status.memory_most <= memory.get() && status.coflows[0].left > 0, "{status:?}");
    wire.freeze(false);
    take_rest(&mut slow, 1, &mut got).unwrap();
    assert!(got == contents("map_0", 24 << 20));
    let status = cluster.status(2);
    assert_eq!((status.flows_done, status.flows_broken, status.resets), (2, 0, 0), "{status:?}");
}

#[test]
fn a_flow_goes_on_when_its_source_s_agent_is_back() {
    let mut cluster = Cluster::new(2, |_| {});
    let (held, path) = cluster.output(0, "map_0", 1, 16 << 20);
    let mut client = cluster.client(1);
    client.fetch(&fetch(1, "h0", "map_0", 0, MIB)).unwrap();
    let mut got = Vec::new();
    take_some(&mut client, 1, 5 << 20, &mut got);
    // Nobody finds it before its programs have told it again what they have.
    cluster.peers.set([]);
    cluster.stop(0);
    drop(held);
    cluster.start(0);
    let mut held = cluster.client(0);
    held.register("map_0", path_of(&path), equal(1, 16 << 20)).unwrap();
    cluster.introduce();
    take_rest(&mut client, 1, &mut got).unwrap();
    assert!(got == contents("map_0", 16 << 20));
}

#[test]
fn a_source_that_is_back_without_the_output_breaks_the_flow_and_one_that_stays_away_does_too() {
    let mut cluster = Cluster::new(2, |config| config.patience = headwater_units::Duration::from_millis(500));
    let (held, _) = cluster.output(0, "map_0", 1, 16 << 20);
    let mut client = cluster.client(1);
    client.fetch(&fetch(1, "h0", "map_0", 0, MIB)).unwrap();
    take_some(&mut client, 1, MIB as usize, &mut Vec::new());
    cluster.stop(0);
    drop(held);
    let mut got = vec![0; MIB as usize];
    assert_eq!(take_rest(&mut client, 1, &mut got), Err(Refusal::Unreachable));
    cluster.start(0);
    client.fetch(&fetch(2, "h0", "map_0", 0, MIB)).unwrap();
    assert_eq!(take(&mut client, 2), Err(Refusal::Unknown));
    cluster.settled(1);
}

#[test]
fn an_agent_that_starts_again_knows_no_outputs_and_serves_nothing_else_in_their_place() {
    let mut cluster = Cluster::new(2, |_| {});
    let (held, path) = cluster.output(0, "map_0", 1, 8 << 20);
    let mut client = cluster.client(1);
    client.fetch(&fetch(1, "h0", "map_0", 0, MIB)).unwrap();
    let mut got = Vec::new();
    take_some(&mut client, 1, 2 << 20, &mut got);
    cluster.stop(0);
    drop(held);
    cluster.start(0);
    let status = cluster.status(0);
    assert_eq!((status.applications, status.outputs), (0, 0));
    // Somebody else is the first to name the application there.
    let other = cluster.hosts[0].config.roots[0].join("other");
    std::fs::write(&other, contents("other", 8 << 20)).unwrap();
    let mut first = cluster.connect(0, "job", b"the token of another").unwrap();
    first.register("map_0", path_of(&other), equal(1, 8 << 20)).unwrap();
    assert_eq!(take_rest(&mut client, 1, &mut got), Err(Refusal::Unknown));
    assert!(got[..] == contents("map_0", 8 << 20)[..got.len()], "what came is right");
    client.fetch(&fetch(2, "h0", "map_0", 0, MIB)).unwrap();
    assert_eq!(take(&mut client, 2), Err(Refusal::Unknown));
    first.drop_outputs().unwrap();
    drop(first);
    // Its session ends after its socket.
    while cluster.status(0).applications > 0 {}
    let mut held = cluster.client(0);
    held.register("map_0", path_of(&path), equal(1, 8 << 20)).unwrap();
    client.fetch(&fetch(3, "h0", "map_0", 0, MIB)).unwrap();
    assert!(take(&mut client, 3).unwrap() == contents("map_0", 8 << 20));
    let status = cluster.settled(1);
    assert_eq!((status.flows_done, status.flows_broken), (1, 2));
}

#[test]
fn a_file_that_is_cut_off_or_written_anew_under_a_flow_breaks_it() {
    let cluster = Cluster::new(2, |_| {});
    let (mut held, path) = cluster.output(0, "map_0", 1, 16 << 20);
    let mut client = cluster.client(1);
    client.fetch(&fetch(1, "h0", "map_0", 0, MIB)).unwrap();
    let mut got = Vec::new();
    take_some(&mut client, 1, 2 << 20, &mut got);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(8 << 20).unwrap();
    assert_eq!(take_rest(&mut client, 1, &mut got), Err(Refusal::Truncated));
    assert!(got[..] == contents("map_0", 16 << 20)[..got.len()], "what came is right");
    client.fetch(&fetch(2, "h0", "map_0", 0, MIB)).unwrap();
    assert_eq!(take(&mut client, 2), Err(Refusal::Changed));
    // Registered again, it is another output of the same name.
    held.register("map_0", path_of(&path), equal(1, 8 << 20)).unwrap();
    client.fetch(&fetch(3, "h0", "map_0", 0, MIB)).unwrap();
    assert_eq!(take(&mut client, 3).unwrap().len(), 8 << 20);
}

/// Whoever was to drop the outputs was killed, or no program of the application was left on this host when it ended.
#[test]
fn outputs_that_nobody_uses_or_drops_are_closed_some_time_and_who_has_a_program_keeps_its_own() {
    let cluster = Cluster::new(2, |config| config.keep_unused = headwater_units::Duration::from_millis(50));
    let (held, path) = cluster.output(0, "map_0", 1, 100_000);
    let mut living = cluster.connect(0, "living", TOKEN).unwrap();
    living.register("map_0", path_of(&path), equal(1, 100_000)).unwrap();
    assert_eq!((cluster.status(0).applications, cluster.status(0).outputs), (2, 2));
    drop(held);
    #[allow(clippy::disallowed_methods, reason = "a limit of patience")]
    let began = std::time::Instant::now();
    while cluster.status(0).outputs != 1 {
        assert!(began.elapsed().as_secs() < 60, "{:?}", cluster.status(0));
    }
    assert_eq!(cluster.status(0).applications, 1);
    let mut client = cluster.client(1);
    client.fetch(&fetch(1, "h0", "map_0", 0, MIB)).unwrap();
    assert_eq!(take(&mut client, 1), Err(Refusal::Unknown));
    let mut client = cluster.connect(1, "living", TOKEN).unwrap();
    client.fetch(&fetch(1, "h0", "map_0", 0, MIB)).unwrap();
    assert_eq!(take(&mut client, 1).unwrap(), contents("map_0", 100_000));
}

#[test]
fn a_program_that_dies_leaves_nothing_behind() {
    let cluster = Cluster::new(2, |_| {});
    let (_held, _) = cluster.output(0, "map_0", 2, 8 << 20);
    // Blocks may land between the moment when a program is gone and the moment when the hub hears of it.
    for _ in 0..20 {
        let mut client = cluster.client(1);
        client.fetch(&fetch(1, "h0", "map_0", 0, 8 * MIB)).unwrap();
        take_some(&mut client, 1, MIB as usize, &mut Vec::new());
    }
    let mut other = cluster.client(1);
    other.fetch(&fetch(1, "h0", "map_0", 1, MIB)).unwrap();
    assert_eq!(take(&mut other, 1).unwrap().len(), 8 << 20);
    drop(other);
    #[allow(clippy::disallowed_methods, reason = "a limit of patience")]
    let began = std::time::Instant::now();
    loop {
        let status = cluster.status(1);
        if status.memory_used == 0 && status.coflows.is_empty() && status.applications == 0 {
            return;
        }
        assert!(began.elapsed().as_secs() < 10, "{status:?}");
    }
}
