//! A scheduler's word: who goes first, and for how long it counts.

#[allow(dead_code)]
mod common;

use common::{Cluster, fetch};
use headwater_agent::Name;
use headwater_agent::client::Event;
use headwater_units::{Bytes, Rank};

const EACH: u64 = 6 << 20;

#[test]
fn the_coflow_that_is_ranked_first_ends_first_and_silence_ends_the_order() {
    let cluster = Cluster::new(2, |_| {});
    let (_held, _) = cluster.output(0, "map_0", 4, EACH as usize);
    let mut client = cluster.client(1);
    for flow in 0..4 {
        let mut fetch = fetch(flow, "h0", "map_0", flow as u32, 0);
        fetch.coflow = 10 + flow;
        client.fetch(&fetch).unwrap();
    }
    for _ in 0..4 {
        assert!(matches!(client.next().unwrap(), Event::Opened { .. }));
    }
    let agent = cluster.hosts[1].agent.as_ref().unwrap();
    let demand = cluster.runtime.block_on(agent.demand());
    assert_eq!(demand.len(), 4);
    let host = Name::new("h0").unwrap();
    assert_eq!(demand[0].from.get(&host), Some(&Some(Bytes::new(EACH))));
    // The last goes first.
    let job = Name::new("job").unwrap();
    let ranks = |it: u64| ((job.clone(), 10 + it), Rank::new(3 - it as u32));
    cluster.runtime.block_on(agent.order((0..4).map(ranks)));
    let status = cluster.status(1);
    assert!(status.ordered);
    let order: Vec<(u64, Option<u32>)> = status.coflows.iter().map(|it| (it.coflow, it.rank)).collect();
    assert_eq!(order, [(13, Some(0)), (12, Some(1)), (11, Some(2)), (10, Some(3))]);
    for flow in 0..4 {
        client.credit(flow, EACH).unwrap();
    }
    let mut ended = Vec::new();
    while ended.len() < 4 {
        if let Event::End { flow } = client.next().unwrap() {
            ended.push(flow);
        }
    }
    assert_eq!(ended, [3, 2, 1, 0]);
    #[allow(clippy::disallowed_methods, reason = "silence takes time")]
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    assert!(!cluster.status(1).ordered);
    client.fetch(&fetch(9, "h0", "map_0", 0, EACH)).unwrap();
    while !matches!(client.next().unwrap(), Event::End { flow: 9 }) {}
}
