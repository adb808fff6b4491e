//! Groups: one datagram leaves the sender, and every member gets it once.

use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use headwater_experiment::scenario::Scenario;
use headwater_testbed::emulate::{EmulatedNet, NetOptions};
use headwater_testbed::soft_switch::{Groups, in_namespace, offloads_off};
use headwater_udp::{GroupAddr, Multicast, PathAddr, RecvBatch, SendBatch, SocketOptions, UdpPort};
use headwater_units::{FlowId, FlowKey};
use headwater_wire::{Ecn, FlowSecret, GroupQuestion};

use super::common::{alone, conserved, content, net};
use super::nodes::{OnHost, node};

/// Two racks of three hosts; nothing is ever dropped.
const FABRIC: &str = r#"
    fabric = { kind = "leaf-spine", leaves = 2, spines = 2, hosts_per_leaf = 3, rate = "1 Gbit/s", delay = "10 us" }
    port = { queue = "unlimited", mark_threshold = "none" }
"#;
const HOSTS: usize = 6;
const MEMBERS: [usize; 4] = [1, 2, 3, 5];
const PORT: u16 = 9100;
const COUNT: u32 = 1000;

fn group(text: &str, own: IpAddr) -> GroupAddr {
    GroupAddr::new(SocketAddr::new(text.parse().unwrap(), PORT), Some(own)).unwrap()
}

/// A member's socket on a host, by its namespace's name.
fn member(namespace: &str, text: &str, own: IpAddr) -> UdpPort {
    let join = || UdpPort::join(&group(text, own), &SocketOptions::default());
    in_namespace(namespace, join).unwrap().unwrap()
}

/// A socket to send by, and the path to the group.
fn sender(namespace: &str, text: &str, own: IpAddr) -> (UdpPort, PathAddr) {
    let multicast = Multicast { hops: 2, to_this_host: false };
    let options = SocketOptions { multicast, ..SocketOptions::default() };
    let bind = || {
        let port = UdpPort::bind(SocketAddr::new(own, 0), &options).unwrap();
        (port, group(text, own).path())
    };
    in_namespace(namespace, bind).unwrap()
}

/// Sends numbers `from..to` in bursts that the kernel cuts up, a little slower than a gigabit.
fn send(sender: &mut UdpPort, to: PathAddr, numbers: std::ops::Range<u32>) {
    let mut out = SendBatch::new(1 << 20, 64);
    for number in numbers {
        let bytes = content(number, 1400);
        out.push(to, 27 << 2 | Ecn::Ect0 as u8, 1400).unwrap().copy_from_slice(&bytes);
        if number % 20 == 19 {
            let flush = sender.flush(&mut out).unwrap();
            assert_eq!((flush.lost, flush.blocked), (0, false), "{:?}", out.soft_errors());
            std::thread::sleep(Duration::from_micros(500));
        }
    }
    assert_eq!(sender.flush(&mut out).unwrap().lost, 0);
}

/// Numbers that a member gets until nothing has come for 300 ms, in their order.
fn received(member: &mut UdpPort, from: SocketAddr) -> Vec<u32> {
    let (mut numbers, mut inbox, mut last) = (Vec::new(), RecvBatch::new(8), Instant::now());
    while last.elapsed() < Duration::from_millis(300) {
        if member.recv(&mut inbox).unwrap() == 0 {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        last = Instant::now();
        for datagram in inbox.datagrams() {
            let number = u32::from_be_bytes(datagram.bytes[..4].try_into().unwrap());
            assert_eq!(datagram.bytes, content(number, 1400));
            assert_eq!(datagram.tos, Some(27 << 2 | Ecn::Ect0 as u8));
            assert_eq!(datagram.from.remote, from);
            numbers.push(number);
        }
    }
    numbers
}

/// Waits until the switch knows this many memberships.
fn until_known(net: &EmulatedNet, memberships: u64) {
    let start = Instant::now();
    while net.switch().snapshot().unwrap().memberships != memberships {
        assert!(start.elapsed().as_secs() < 5, "{:?}", net.switch().snapshot());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn out_of_host(net: &EmulatedNet, host: usize) -> u64 {
    let seen = net.switch().snapshot().unwrap();
    let point = net.topology().hosts()[host];
    let link = net.topology().fabric().leaving(point)[0];
    seen.links[link.index()].port.frames_out
}

fn joins_and_leaves(net: &EmulatedNet, text: &str, own: impl Fn(usize) -> IpAddr) {
    let namespace = |host: usize| net.namespace(host).unwrap();
    let known = net.switch().snapshot().unwrap().memberships;
    let mut members: Vec<UdpPort> =
        MEMBERS.iter().map(|&host| member(namespace(host), text, own(host))).collect();
    until_known(net, known + 4);
    let (mut from, to) = sender(namespace(0), text, own(0));

    let (before, copied) = (out_of_host(net, 0), net.switch().snapshot().unwrap().counts.copied.frames);
    send(&mut from, to, 0..COUNT);
    for member in &mut members {
        assert_eq!(received(member, from.local_addr()), (0..COUNT).collect::<Vec<_>>());
    }
    assert_eq!(out_of_host(net, 0) - before, u64::from(COUNT), "each once on the sender's line");
    let seen = net.switch().snapshot().unwrap();
    // Four members need three copies, wherever they are made.
    assert_eq!(seen.counts.copied.frames - copied, 3 * u64::from(COUNT));
    conserved(&seen);

    // A member that leaves gets nothing more; and only the others' copies are made.
    drop(members.remove(1));
    until_known(net, known + 3);
    let before = net.switch().snapshot().unwrap().counts.delivered.frames;
    send(&mut from, to, 0..100);
    for member in &mut members {
        assert_eq!(received(member, from.local_addr()).len(), 100);
    }
    assert_eq!(net.switch().snapshot().unwrap().counts.delivered.frames - before, 300);
    drop(members);
    until_known(net, known);
    conserved(&net.switch().snapshot().unwrap());
}

/// Goal: the switch learns members from their kernels' reports, and each gets each datagram once, over IPv4 and IPv6.
#[test]
fn each_member_gets_each_datagram_once_and_the_sender_sends_it_once() {
    let Some(_alone) = alone() else { return };
    let net = net(FABRIC);
    joins_and_leaves(&net, "239.5.5.5", |host| net.ipv4(host).into());
    if net.ipv6(0).is_some() {
        joins_and_leaves(&net, "ff05::55", |host| net.ipv6(host).unwrap().into());
    }
}

/// Goal: a switch that floods gives it to all, and only members' sockets see it.
#[test]
fn a_switch_that_floods_needs_no_reports() {
    let Some(_alone) = alone() else { return };
    let options = NetOptions { groups: Groups::Flooded, ..NetOptions::default() };
    let net = EmulatedNet::build_with(&Scenario::of_network(FABRIC).unwrap(), 1, &options).unwrap();
    let namespace = |host: usize| net.namespace(host).unwrap();
    let mut members: Vec<UdpPort> =
        MEMBERS.iter().map(|&host| member(namespace(host), "239.5.5.5", net.ipv4(host).into())).collect();
    let (mut from, to) = sender(namespace(0), "239.5.5.5", net.ipv4(0).into());
    send(&mut from, to, 0..200);
    for member in &mut members {
        assert_eq!(received(member, from.local_addr()), (0..200).collect::<Vec<_>>());
    }
    let seen = net.switch().snapshot().unwrap();
    assert_eq!((seen.counts.delivered.frames, seen.groups), ((HOSTS as u64 - 1) * 200, 1));
    conserved(&seen);
}

/// Goal: after a cable is cut, copies go around it.
#[test]
fn copies_go_around_a_link_that_is_down() {
    let Some(_alone) = alone() else { return };
    let net = net(FABRIC);
    let mut far = member(net.namespace(5).unwrap(), "239.5.5.5", net.ipv4(5).into());
    until_known(&net, 1);
    let (mut from, to) = sender(net.namespace(0).unwrap(), "239.5.5.5", net.ipv4(0).into());
    for spine in 0..2 {
        send(&mut from, to, 0..20);
        assert_eq!(received(&mut far, from.local_addr()).len(), 20);
        for link in [format!("leaf0-spine{spine}"), format!("spine{spine}-leaf0")] {
            net.fault(&link, &["down".to_owned()]).unwrap();
        }
    }
    // Now there is no path left.
    send(&mut from, to, 0..20);
    assert!(received(&mut far, from.local_addr()).is_empty());
    conserved(&net.switch().snapshot().unwrap());
}

fn secret(number: u8) -> FlowSecret {
    FlowSecret { flow: FlowId(number.into()), key: FlowKey([number; 32]) }
}

/// Goal: who asks whether a group works learns which members it reaches, with datagrams of which length.
#[test]
fn a_probe_tells_which_members_a_group_reaches() {
    let Some(_alone) = alone() else { return };
    let net = net(FABRIC);
    let nodes: Vec<OnHost> = (0..HOSTS).map(|host| node(&net, host)).collect();
    let group = |host: usize| group("239.7.7.7", net.ipv4(host).into());
    let join = |host: usize| {
        in_namespace(net.namespace(host).unwrap(), || nodes[host].join(group(host))).unwrap().unwrap();
    };
    for (host, node) in nodes.iter().enumerate().skip(1) {
        // Host 4 knows the question and is not in the group; host 5 has another key.
        let asked = FlowSecret { key: FlowKey([if host == 5 { 99 } else { 100 }; 32]), ..secret(100) };
        node.answer_probes(asked, secret(host as u8));
        if host != 4 {
            join(host);
        }
    }
    until_known(&net, 4);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ask = |bytes: u16, members: std::ops::RangeInclusive<u8>| {
        let at = SocketAddr::from(([239, 7, 7, 7], group(0).at().port()));
        let towards = SocketAddr::new(net.ipv4(1).into(), at.port());
        let members = members.map(secret).collect();
        let question = GroupQuestion { at, towards, asked: secret(100), members, bytes };
        let mut heard = runtime.block_on(nodes[0].probe_group(group(0), question));
        heard.sort_unstable();
        heard.iter().map(|flow| flow.0).collect::<Vec<_>>()
    };
    assert_eq!(ask(1472, 1..=5), [1, 2, 3]);
    assert_eq!(ask(100, 1..=3), [1, 2, 3]);
    assert!(ask(1473, 1..=3).is_empty(), "longer than any packet here");

    // A member that has joined twice leaves twice.
    join(2);
    nodes[2].leave(group(2));
    assert_eq!(ask(1472, 1..=3), [1, 2, 3]);
    nodes[2].leave(group(2));
    until_known(&net, 3);
    assert_eq!(ask(1472, 1..=3), [1, 3]);
    nodes[1].ignore_probes(FlowId(100));
    assert_eq!(ask(1472, 1..=3), [3]);
}

/// Hosts in namespaces on one bridge of the kernel.
struct Bridge {
    run: String,
}

impl Bridge {
    fn build(hosts: usize) -> Bridge {
        let bridge = Bridge { run: format!("hw-{}-9900", std::process::id()) };
        let middle = bridge.namespace(hosts);
        let mut script = format!(
            "set -e\nip netns add {middle}\nip -n {middle} link add br0 type bridge\nip -n {middle} link set br0 up\n"
        );
        for host in 0..hosts {
            let (here, own) = (bridge.namespace(host), host + 1);
            script += &format!(
                "ip netns add {here}\n\
                 ip -n {middle} link add port{host} type veth peer name eth0 netns {here}\n\
                 ip -n {middle} link set port{host} master br0\n\
                 ip -n {middle} link set port{host} up\n\
                 ip -n {here} link set eth0 up\n\
                 ip -n {here} addr add 10.97.0.{own}/24 dev eth0\n"
            );
        }
        let built = Command::new("sh").args(["-c", &script]).stderr(Stdio::piped()).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        bridge
    }

    fn namespace(&self, host: usize) -> String {
        format!("{}-h{host}", self.run)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        for host in 0..=5 {
            let _ = Command::new("ip").args(["netns", "delete", &self.namespace(host)]).status();
        }
    }
}

/// Goal: the same on a bridge that is not ours.
#[test]
fn a_plain_bridge_gives_it_to_each_member_once() {
    let Some(_alone) = alone() else { return };
    let bridge = Bridge::build(5);
    let own = |host: usize| IpAddr::from([10, 97, 0, host as u8 + 1]);
    for host in 0..5 {
        in_namespace(&bridge.namespace(host), || offloads_off("eth0")).unwrap().unwrap();
    }
    let mut members: Vec<UdpPort> =
        (1..5).map(|host| member(&bridge.namespace(host), "239.5.5.5", own(host))).collect();
    // The bridge learns from reports too; there is nobody to ask when it has.
    std::thread::sleep(Duration::from_millis(500));
    let (mut from, to) = sender(&bridge.namespace(0), "239.5.5.5", own(0));
    let sent = || {
        let count = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let table = in_namespace(&bridge.namespace(0), count).unwrap();
        let line = table.lines().find_map(|line| line.trim().strip_prefix("eth0:")).unwrap();
        line.split_whitespace().nth(9).unwrap().parse::<u64>().unwrap()
    };
    let before = sent();
    send(&mut from, to, 0..COUNT);
    for member in &mut members {
        assert_eq!(received(member, from.local_addr()), (0..COUNT).collect::<Vec<_>>());
    }
    let sent = sent() - before;
    assert!((u64::from(COUNT)..u64::from(COUNT) + 20).contains(&sent), "{sent} on the sender's line");
}
