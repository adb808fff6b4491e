//! Programs and peers that are not what they should be: refused, and bounded in what they cost.

#[allow(dead_code)]
mod common;

use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use common::{Cluster, contents, equal, fetch, path_of, take};
use headwater_agent::client::{ClientError, Event};
use headwater_agent::client_frames::{FromAgent, FromProgram, Heard, Index};
use headwater_agent::{Name, Peer, Peers, Refusal};
use headwater_control::Identity;

const MIB: u64 = 1 << 20;

fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Refusal {
    match result.unwrap_err() {
        ClientError::Refused(refusal) => refusal,
        other => panic!("{other}"),
    }
}

#[test]
fn a_forged_token_opens_neither_an_application_here_nor_its_outputs_elsewhere() {
    let cluster = Cluster::new(2, |_| {});
    let (_held, _) = cluster.output(0, "map_0", 1, 1000);
    let forged = b"not the token of it";
    assert_eq!(refused(cluster.connect(0, "job", forged)), Refusal::NotYours);
    // Where nobody of the application has been, anybody may be the first; it opens nothing elsewhere.
    let mut client = cluster.connect(1, "job", forged).unwrap();
    client.fetch(&fetch(1, "h0", "map_0", 0, MIB)).unwrap();
    assert_eq!(take(&mut client, 1), Err(Refusal::Unknown));
    let mut other = cluster.connect(1, "another", common::TOKEN).unwrap();
    other.fetch(&fetch(1, "h0", "map_0", 0, MIB)).unwrap();
    assert_eq!(take(&mut other, 1), Err(Refusal::Unknown), "the token is that of one application");
    assert_eq!(refused(cluster.connect(1, "job", common::TOKEN)), Refusal::NotYours);
}

#[test]
fn paths_outside_the_roots_and_links_are_refused() {
    let cluster = Cluster::new(1, |_| {});
    let (mut client, inside) = cluster.output(0, "map_0", 1, 1000);
    let folder = cluster.hosts[0].folder.path();
    std::fs::write(folder.join("secret"), [1; 1000]).unwrap();
    symlink(folder.join("secret"), folder.join("data/link")).unwrap();
    let mut register = |path: &std::path::Path| refused(client.register("x", path_of(path), equal(1, 1000)));
    assert_eq!(register(&folder.join("secret")), Refusal::OutsideRoots);
    assert_eq!(register(&folder.join("data/../secret")), Refusal::OutsideRoots);
    assert_eq!(register(&folder.join("data/link")), Refusal::OutsideRoots);
    assert_eq!(register("/etc/passwd".as_ref()), Refusal::OutsideRoots);
    // The index is a file that is named as well.
    let index = Index::Spark(path_of(&folder.join("secret")).to_owned());
    assert_eq!(refused(client.register("x", path_of(&inside), index)), Refusal::OutsideRoots);
    assert_eq!(refused(client.register("x", path_of(&inside), equal(2, 1000))), Refusal::Truncated);
    assert_eq!(cluster.status(0).outputs, 1);
}

#[test]
fn the_socket_is_for_user_and_group_alone() {
    let cluster = Cluster::new(1, |_| {});
    let mode = std::fs::metadata(&cluster.hosts[0].config.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
}

#[test]
fn frames_that_break_the_protocol_end_the_connection_and_nothing_else() {
    let cluster = Cluster::new(1, |_| {});
    let endless = [0xff, 0xff, 0xff, 0xff, 1];
    let unknown = [0, 0, 0, 1, 99];
    let early = {
        let mut bytes = Vec::new();
        FromProgram::Drop { request: 1 }.emit(&mut bytes);
        bytes
    };
    let zero = [0, 0, 0, 0, 0];
    let cases: [(&[u8], Refusal); 4] = [
        (&endless, Refusal::Malformed),
        (&unknown, Refusal::Malformed),
        (&zero, Refusal::Malformed),
        (&early, Refusal::NotYours),
    ];
    for (bytes, expected) in cases {
        let mut stream = UnixStream::connect(&cluster.hosts[0].config.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // The connection ends, so this does.
        stream.read_to_end(&mut answer).unwrap();
        match Heard::parse(&answer).unwrap() {
            Heard::Frame(FromAgent::Refused { request: 0, refusal, .. }) => assert_eq!(refusal, expected),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(cluster.status(0).malformed, 3);
    cluster.client(0);
}

#[test]
fn withheld_credit_costs_no_memory_and_delays_nobody() {
    let cluster = Cluster::new(2, |config| config.memory = headwater_units::Bytes::mib(4));
    let (_held, _) = cluster.output(0, "map_0", 301, 200_000);
    let mut withholds = cluster.client(1);
    for flow in 0..300 {
        withholds.fetch(&fetch(flow, "h0", "map_0", flow as u32, 0)).unwrap();
    }
    for _ in 0..300 {
        assert!(matches!(withholds.next().unwrap(), Event::Opened { .. }));
    }
    let mut client = cluster.client(1);
    client.fetch(&fetch(1, "h0", "map_0", 300, MIB)).unwrap();
    assert_eq!(take(&mut client, 1).unwrap().len(), 200_000);
    assert_eq!(cluster.settled(1).coflows[0].stalled, 300);
}

#[test]
fn programs_have_flows_of_their_own_and_no_more_than_their_quota() {
    let cluster = Cluster::new(2, |config| config.quotas.flows = 2);
    let (_held, _) = cluster.output(0, "map_0", 3, 100_000);
    let (mut one, mut other) = (cluster.client(1), cluster.client(1));
    one.fetch(&fetch(1, "h0", "map_0", 0, 0)).unwrap();
    assert!(matches!(one.next().unwrap(), Event::Opened { flow: 1, .. }));
    other.fetch(&fetch(1, "h0", "map_0", 1, 0)).unwrap();
    assert!(matches!(other.next().unwrap(), Event::Opened { flow: 1, .. }), "its own flow 1");
    other.fetch(&fetch(1, "h0", "map_0", 1, 0)).unwrap();
    assert!(matches!(other.next().unwrap(), Event::Broken { refusal: Refusal::Exists, .. }));
    other.fetch(&fetch(2, "h0", "map_0", 2, 0)).unwrap();
    assert!(matches!(other.next().unwrap(), Event::Broken { refusal: Refusal::Quota, .. }));
    other.cancel(1).unwrap();
    one.credit(1, 100_000).unwrap();
    assert_eq!(take(&mut one, 1).unwrap(), contents("map_0", 300_000)[..100_000]);
    drop(one);
    other.fetch(&fetch(3, "h0", "map_0", 2, MIB)).unwrap();
    assert_eq!(take(&mut other, 3).unwrap().len(), 100_000, "what was cancelled or has ended does not count");
}

#[test]
fn a_host_that_is_not_in_the_list_is_served_nothing() {
    let mut cluster = Cluster::new(2, |config| config.patience = headwater_units::Duration::from_millis(300));
    let (_held, _) = cluster.output(0, "map_0", 1, 1000);
    // Host 0 has a list of its own from now on, in which host 1 is missing.
    cluster.stop(0);
    let own = Peers::default();
    cluster.hosts[0].config.peers = own.clone();
    cluster.start(0);
    let (_held, _) = cluster.output(0, "map_0", 1, 1000);
    let mut client = cluster.client(1);
    client.fetch(&fetch(1, "h0", "map_0", 0, MIB)).unwrap();
    assert_eq!(take(&mut client, 1), Err(Refusal::Unreachable));
    assert!(cluster.status(0).strangers > 0);
    let node = cluster.hosts[1].identity.node();
    let address = cluster.hosts[1].config.listen;
    own.set([(Name::new("h1").unwrap(), Peer { node, address })]);
    client.fetch(&fetch(2, "h0", "map_0", 0, MIB)).unwrap();
    assert_eq!(take(&mut client, 2).unwrap().len(), 1000);
}

#[test]
fn whoever_answers_with_another_key_is_asked_for_nothing() {
    let cluster = Cluster::new(2, |config| config.patience = headwater_units::Duration::from_millis(300));
    let (_held, _) = cluster.output(0, "map_0", 1, 1000);
    let expected = Arc::new(Identity::ephemeral().unwrap()).node();
    let address = cluster.hosts[0].config.listen;
    cluster.peers.set([(Name::new("h0").unwrap(), Peer { node: expected, address })]);
    let mut client = cluster.client(1);
    client.fetch(&fetch(1, "h0", "map_0", 0, MIB)).unwrap();
    assert_eq!(take(&mut client, 1), Err(Refusal::Unreachable));
    client.fetch(&fetch(2, "nobody", "map_0", 0, MIB)).unwrap();
    assert_eq!(take(&mut client, 2), Err(Refusal::UnknownHost));
}
