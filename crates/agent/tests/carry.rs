//! Programs of one host fetch from others by their agents: bytes, order, lengths, connections, and a program that does not read.

#[allow(dead_code)]
mod common;

use common::{Cluster, contents, equal, fetch, path_of, take};
use headwater_agent::Refusal;
use headwater_agent::client::Event;
use headwater_agent::client_frames::Index;

const MIB: u64 = 1 << 20;

#[test]
fn what_is_fetched_is_what_was_registered() {
    let cluster = Cluster::new(2, |_| {});
    let (_held, _) = cluster.output(0, "map_0", 3, 700_001);
    let mut client = cluster.client(1);
    for first in 0..3_u32 {
        client.fetch(&fetch(u64::from(first), "h0", "map_0", first, MIB)).unwrap();
        let got = take(&mut client, u64::from(first)).unwrap();
        let all = contents("map_0", 3 * 700_001);
        let start = first as usize * 700_001;
        assert!(got == all[start..start + 700_001], "partition {first}");
    }
    let status = cluster.settled(1);
    assert_eq!(status.host.as_ref().map(headwater_agent::Name::as_str), Some("h1"));
    assert_eq!((status.flows_done, status.flows_broken), (3, 0));
    assert_eq!((status.lanes.len(), status.bytes_received), (1, 3 * 700_001));
}

#[test]
fn a_flow_says_its_length_before_there_is_credit_for_it() {
    let cluster = Cluster::new(2, |_| {});
    let (_held, _) = cluster.output(0, "map_0", 4, 200_000);
    let mut client = cluster.client(1);
    client.fetch(&fetch(9, "h0", "map_0", 3, 0)).unwrap();
    assert_eq!(client.next().unwrap(), Event::Opened { flow: 9, length: 200_000, info: 3 });
    client.credit(9, 200_000).unwrap();
    assert_eq!(take(&mut client, 9).unwrap().len(), 200_000);
}

#[test]
fn many_flows_of_a_pair_come_by_one_connection() {
    let cluster = Cluster::new(3, |_| {});
    let held: Vec<_> = (0..2).map(|at| cluster.output(at, &format!("map_{at}"), 40, 30_000)).collect();
    let mut client = cluster.client(2);
    for flow in 0..80_u32 {
        let from = flow % 2;
        let fetch = fetch(
            u64::from(flow),
            ["h0", "h1"][from as usize],
            ["map_0", "map_1"][from as usize],
            flow / 2,
            MIB,
        );
        client.fetch(&fetch).unwrap();
    }
    let mut done = 0;
    while done < 80 {
        match client.next().unwrap() {
            Event::End { .. } => done += 1,
            Event::Broken { flow, refusal, text } => panic!("{flow}: {refusal} {text}"),
            Event::Data { .. } | Event::Opened { .. } => {}
        }
    }
    assert_eq!(cluster.status(2).lanes.len(), 2, "one from each host");
    assert_eq!([0, 1].map(|at| cluster.status(at).serving), [1, 1]);
    drop(held);
}

#[test]
fn a_program_that_does_not_read_holds_up_nobody_and_no_more_than_its_part_of_memory() {
    let cluster = Cluster::new(2, |config| config.memory = headwater_units::Bytes::mib(16));
    let (_held, _) = cluster.output(0, "map_0", 2, 24 << 20);
    let mut stuck = cluster.client(1);
    stuck.fetch(&fetch(1, "h0", "map_0", 0, 24 * MIB)).unwrap();
    let mut reads = cluster.client(1);
    reads.fetch(&fetch(1, "h0", "map_0", 1, 24 * MIB)).unwrap();
    assert_eq!(take(&mut reads, 1).unwrap().len(), 24 << 20);
    let status = cluster.status(1);
    assert!(status.memory_most <= 16 * MIB && status.memory_used < MIB, "{status:?}");
    assert_eq!(take(&mut stuck, 1).unwrap().len(), 24 << 20, "and it can go on");
}

#[test]
fn partitions_behind_each_other_come_as_one_flow_and_empty_ones_end_at_once() {
    let cluster = Cluster::new(2, |_| {});
    let root = cluster.hosts[0].config.roots[0].clone();
    let bytes = contents("spark", 1000);
    std::fs::write(root.join("shuffle.data"), &bytes).unwrap();
    let index: Vec<u8> = [0_u64, 400, 400, 1000].iter().flat_map(|it| it.to_be_bytes()).collect();
    std::fs::write(root.join("shuffle.index"), index).unwrap();
    let mut writer = cluster.client(0);
    let index = Index::Spark(path_of(&root.join("shuffle.index")).to_owned());
    writer.register("shuffle_0_0", path_of(&root.join("shuffle.data")), index).unwrap();
    let mut client = cluster.client(1);
    let mut wanted = fetch(1, "h0", "shuffle_0_0", 0, MIB);
    wanted.count = 3;
    client.fetch(&wanted).unwrap();
    assert_eq!(take(&mut client, 1).unwrap(), bytes);
    client.fetch(&fetch(2, "h0", "shuffle_0_0", 1, 0)).unwrap();
    assert_eq!(take(&mut client, 2).unwrap(), b"");
}

#[test]
fn an_output_outlives_its_program_and_its_name_until_it_is_let_go_of() {
    let cluster = Cluster::new(2, |_| {});
    let (held, path) = cluster.output(0, "map_0", 1, 100_000);
    drop(held);
    std::fs::remove_file(path).unwrap();
    let mut client = cluster.client(1);
    client.fetch(&fetch(1, "h0", "map_0", 0, MIB)).unwrap();
    assert_eq!(take(&mut client, 1).unwrap(), contents("map_0", 100_000));
    let mut driver = cluster.client(0);
    driver.drop_outputs().unwrap();
    client.fetch(&fetch(2, "h0", "map_0", 0, MIB)).unwrap();
    assert_eq!(take(&mut client, 2), Err(Refusal::Unknown));
}

#[test]
fn a_host_may_fetch_from_itself() {
    let cluster = Cluster::new(1, |_| {});
    let (mut client, _) = cluster.output(0, "map_0", 2, 150_000);
    client.fetch(&fetch(1, "h0", "map_0", 1, MIB)).unwrap();
    assert_eq!(take(&mut client, 1).unwrap(), contents("map_0", 300_000)[150_000..]);
    client.unregister("map_0").unwrap();
    let again = client.unregister("map_0").unwrap_err();
    assert_eq!(again.to_string(), format!("the agent refuses: {}", Refusal::Unknown));
    let _ = equal(1, 1);
}
