//! Which path frames take: hashes that spread and do not polarise, sprayed rounds, copies, ports that are down.

use std::collections::{BTreeMap, BTreeSet};

use headwater_switch::{Branch, Choice, Destination, Egress, Forwarding, ForwardingError, PortIndex};
use proptest::prelude::*;

fn ports(numbers: impl IntoIterator<Item = u16>) -> Vec<PortIndex> {
    numbers.into_iter().map(PortIndex).collect()
}

/// One host, behind these ports.
fn table(numbers: impl IntoIterator<Item = u16>, choice: Choice) -> Forwarding {
    let mut table = Forwarding::new(1).with_choice(choice);
    table.set_routes(0, &ports(numbers)).unwrap();
    table
}

fn one(table: &mut Forwarding, host: u32, hash: u32) -> Option<u16> {
    match table.egress(PortIndex::OWN, Destination::Host(host), hash) {
        Egress::One(port) => Some(port.0),
        Egress::None => None,
        Egress::Copies(ports) => panic!("one host needs no copies: {ports:?}"),
    }
}

/// Five standard deviations around an even share: a fair spread leaves it once in a million and more.
fn assert_even(counts: &BTreeMap<u16, u32>, kinds: usize) {
    let total = f64::from(counts.values().sum::<u32>());
    let share = 1.0 / kinds as f64;
    let band = 5.0 * (total * share * (1.0 - share)).sqrt();
    assert_eq!(counts.len(), kinds, "{counts:?}");
    for (kind, &count) in counts {
        assert!((f64::from(count) - total * share).abs() < band, "{kind} comes {count} times in {total}");
    }
}

fn count(choices: impl Iterator<Item = u16>) -> BTreeMap<u16, u32> {
    choices.fold(BTreeMap::new(), |mut counts, port| {
        *counts.entry(port).or_default() += 1;
        counts
    })
}

#[test]
fn hashes_spread_flows_evenly_over_all_ports() {
    for salt in [0, 1, 0xdead_beef] {
        for width in [2, 3, 4, 5, 16] {
            let mut table = table(0..width, Choice::Hash { salt });
            // Hashes one after the other are the hardest case, and what a simulator's flow numbers give.
            assert_even(&count((0..20_000).map(|hash| one(&mut table, 0, hash).unwrap())), width.into());
            let strided = (0..20_000).map(|n| one(&mut table, 0, n * 65_536).unwrap());
            assert_even(&count(strided), width.into());
        }
    }
}

#[test]
fn flows_that_one_switch_sends_the_same_port_are_spread_again_by_the_next() {
    let mut first = table(0..4, Choice::Hash { salt: 1 });
    let same_port: Vec<u32> = (0..40_000).filter(|&hash| one(&mut first, 0, hash) == Some(2)).collect();
    let mut second = table(0..4, Choice::Hash { salt: 2 });
    assert_even(&count(same_port.iter().map(|&hash| one(&mut second, 0, hash).unwrap())), 4);
    let mut unsalted = table(0..4, Choice::Hash { salt: 1 });
    let polarised = count(same_port.iter().map(|&hash| one(&mut unsalted, 0, hash).unwrap()));
    assert_eq!(polarised.len(), 1, "that is what the salt is for");
}

#[test]
fn sprayed_orders_differ_by_round_by_destination_and_by_seed() {
    let orders = |seed| {
        let mut table = Forwarding::new(2).with_choice(Choice::Spray { seed });
        for host in 0..2 {
            table.set_routes(host, &ports(0..8)).unwrap();
        }
        let mut round = |host| (0..8).map(|_| one(&mut table, host, 0).unwrap()).collect::<Vec<_>>();
        (0..10).map(|_| (round(0), round(1))).collect::<Vec<_>>()
    };
    let seen = orders(7);
    let distinct: BTreeSet<&Vec<u16>> = seen.iter().flat_map(|(a, b)| [a, b]).collect();
    assert!(distinct.len() > 15, "20 orders of 40,320 are hardly ever the same: {}", distinct.len());
    assert_eq!(seen, orders(7));
    assert_ne!(seen, orders(8));
}

/// Rounds are shuffled fairly: each of the six orders of three ports is as likely as any.
#[test]
fn sprayed_rounds_come_in_every_order() {
    let mut table = table(0..3, Choice::Spray { seed: 3 });
    let orders = (0..20_000).map(|_| (0..3).fold(0, |order, _| order * 3 + one(&mut table, 0, 0).unwrap()));
    assert_even(&count(orders), 6);
}

/// A fat-tree's 16 paths between pods: the rack's switch reads the last digit of the path's number, the one above it the next.
#[test]
fn switches_read_a_digit_each_of_the_path_that_the_source_chose() {
    let mut rack = table(0..4, Choice::Path { divisor: 1 });
    let mut above = table(4..8, Choice::Path { divisor: 4 });
    let paths: BTreeSet<(u16, u16)> =
        (0..16).map(|path| (one(&mut rack, 0, path).unwrap(), one(&mut above, 0, path).unwrap())).collect();
    assert_eq!(paths.len(), 16);
    assert_eq!((one(&mut rack, 0, 6), one(&mut above, 0, 6)), (Some(2), Some(5)));
    rack.set_port_up(PortIndex(2), false);
    assert_eq!(one(&mut rack, 0, 6), Some(0), "among those that are up");
    let mut any = table(0..3, Choice::Path { divisor: 0 });
    assert_eq!(one(&mut any, 0, u32::MAX), Some(0));
}

#[test]
fn first_choice_is_the_lowest_port_that_is_up() {
    let mut table = table([5, 3, 9], Choice::First);
    assert_eq!(one(&mut table, 0, 77), Some(3));
    table.set_port_up(PortIndex(3), false);
    assert_eq!(one(&mut table, 0, 77), Some(5));
    assert!(!table.is_port_up(PortIndex(3)));
    table.set_port_up(PortIndex(3), true);
    assert_eq!(one(&mut table, 0, 77), Some(3));
}

#[test]
fn host_without_a_port_is_unreachable() {
    for choice in [Choice::default(), Choice::Spray { seed: 1 }, Choice::First] {
        let mut table = table([4], choice);
        assert_eq!(one(&mut table, 1, 0), None, "never heard of");
        assert_eq!(one(&mut table, u32::MAX, 0), None);
        table.set_port_up(PortIndex(4), false);
        assert_eq!(one(&mut table, 0, 0), None, "no port is up");
        table.set_port_up(PortIndex(4), true);
        assert_eq!(one(&mut table, 0, 0), Some(4));
        table.set_routes(0, &[]).unwrap();
        assert_eq!(one(&mut table, 0, 0), None, "no port at all");
    }
}

#[test]
fn route_beyond_the_table_is_refused() {
    let mut table = Forwarding::new(3);
    assert_eq!(table.set_routes(3, &ports([0])), Err(ForwardingError::UnknownHost { host: 3, hosts: 3 }));
}

#[test]
fn routes_are_a_set() {
    let mut table = table([9, 2, 9, 4], Choice::First);
    assert_eq!(table.routes(0), ports([2, 4, 9]));
    table.set_port_up(PortIndex(4), false);
    assert_eq!(table.routes(0), ports([2, 9]));
    assert_eq!(table.routes(1), ports([]));
}

proptest! {
    #[test]
    fn one_flow_keeps_one_port(hash: u32, salt: u64, width in 1u16..64) {
        let mut table = table(0..width, Choice::Hash { salt });
        let port = one(&mut table, 0, hash).unwrap();
        prop_assert!(port < width);
        prop_assert_eq!(one(&mut table, 0, hash), Some(port));
    }

    #[test]
    fn spraying_takes_every_port_once_per_round(
        seed: u64, width in 1u16..20, rounds in 1usize..8, down in 0u16..20,
    ) {
        let mut table = table(0..width, Choice::Spray { seed });
        for _ in 0..rounds {
            let round: BTreeSet<u16> = (0..width).map(|_| one(&mut table, 0, 0).unwrap()).collect();
            prop_assert_eq!(round.len(), usize::from(width));
        }
        table.set_port_up(PortIndex(down), false);
        let left: BTreeSet<u16> = (0..width).filter(|&port| port != down).collect();
        let round: BTreeSet<u16> = left.iter().map(|_| one(&mut table, 0, 0).unwrap()).collect();
        prop_assert_eq!(round, left, "a port that is down is left out at once");
    }

    #[test]
    fn copies_go_everywhere_but_back(
        members in prop::collection::btree_set(0u16..12, 0..8), ingress in 0u16..12,
        down in prop::collection::btree_set(0u16..12, 0..4),
    ) {
        let mut table = Forwarding::new(0);
        table.set_group(9, &ports(members.iter().copied()));
        for &port in &down {
            table.set_port_up(PortIndex(port), false);
        }
        let expected: Vec<PortIndex> =
            ports(members.into_iter().filter(|port| *port != ingress && !down.contains(port)));
        match table.egress(PortIndex(ingress), Destination::Group(9), 0) {
            Egress::Copies(copies) => prop_assert_eq!(copies, expected),
            other => prop_assert!(other == Egress::None && expected.is_empty()),
        }
        prop_assert_eq!(table.egress(PortIndex(ingress), Destination::Group(8), 0), Egress::None);
        table.set_group(9, &[]);
        prop_assert_eq!(table.egress(PortIndex(ingress), Destination::Group(9), 0), Egress::None);
    }

    /// A table agrees with a plain list of sets, through any sequence of changes.
    #[test]
    fn table_holds_what_was_set(
        changes in prop::collection::vec(
            (0u8..3, 0u32..6, prop::collection::vec(0u16..6, 0..5), any::<bool>()), 1..60),
    ) {
        let mut table = Forwarding::new(6).with_choice(Choice::First);
        let mut routes = vec![BTreeSet::new(); 6];
        let mut down = BTreeSet::new();
        for (kind, host, set, up) in changes {
            if kind == 0 {
                table.set_port_up(PortIndex(host as u16), up);
                if up { down.remove(&(host as u16)) } else { down.insert(host as u16) };
            } else {
                table.set_routes(host, &ports(set.iter().copied())).unwrap();
                routes[host as usize] = set.into_iter().collect();
            }
            for host in 0..6 {
                let expected: Vec<u16> = routes[host as usize].difference(&down).copied().collect();
                prop_assert_eq!(table.routes(host), ports(expected.iter().copied()));
                prop_assert_eq!(one(&mut table, host, 5), expected.first().copied());
            }
        }
    }
}

/// Hosts 0 and 1 behind ports 0 and 1, hosts 2 to 4 behind any of ports 2 and 3, host 5 behind port 4; nobody knows host 9.
fn rack(choice: Choice) -> Forwarding {
    let mut table = Forwarding::new(6).with_choice(choice);
    for (host, behind) in
        [(0, vec![0]), (1, vec![1]), (2, vec![2, 3]), (3, vec![2, 3]), (4, vec![2, 3]), (5, vec![4])]
    {
        table.set_routes(host, &ports(behind)).unwrap();
    }
    table
}

#[test]
fn copies_part_as_late_as_they_can() {
    let hosts = [1, 2, 4, 0, 9, 3];
    for choice in
        [Choice::First, Choice::Spray { seed: 1 }, Choice::Hash { salt: 1 }, Choice::Path { divisor: 1 }]
    {
        let mut table = rack(choice);
        let mut ports = BTreeSet::new();
        for hash in 0..50 {
            let branches = table.branches(&hosts, 0b11_1111, hash).to_vec();
            // Those on the way up together, whichever it is; the one nobody knows nowhere.
            let [own, up, other] = branches[..] else { panic!("{branches:?}") };
            assert_eq!(
                (own, other),
                (Branch { port: PortIndex(1), hosts: 1 }, Branch { port: PortIndex(0), hosts: 8 })
            );
            assert_eq!(up.hosts, 0b10_0110);
            ports.insert(up.port.0);
        }
        let all = if choice == Choice::First { vec![2] } else { vec![2, 3] };
        assert_eq!(ports.into_iter().collect::<Vec<_>>(), all, "{choice:?}");
        assert_eq!(table.branches(&hosts, 0b10, 0).len(), 1, "only those who are meant");
        assert!(table.branches(&hosts, 0, 0).is_empty() && table.branches(&hosts, 1 << 63, 0).is_empty());
    }
}

#[test]
fn hosts_behind_one_port_for_different_reasons_share_a_copy() {
    let mut table = rack(Choice::First);
    table.set_routes(5, &ports([2])).unwrap();
    assert_eq!(table.branches(&[2, 5], 3, 0), [Branch { port: PortIndex(2), hosts: 3 }]);
    // With port 2 down the one takes another path, and the other none.
    table.set_port_up(PortIndex(2), false);
    assert_eq!(table.branches(&[2, 5], 3, 0), [Branch { port: PortIndex(3), hosts: 1 }]);
}
