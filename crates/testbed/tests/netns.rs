//! The network of namespaces does what the demo relies on: it limits in the middle, loses at random, goes silent and
//! leaves nothing behind.
//!
//! Needs root, or else is skipped with the reason. Senders and receivers on the hosts are this very test binary,
//! started again to run [`traffic`] alone.
#![allow(clippy::disallowed_methods, reason = "drives real sockets on a real clock")]

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use headwater_testbed::netns::{self, Capability, HostSpec, Link, Net, NetError, RackSpec, Spec};
use headwater_units::BitRate;

/// UDP payload that fills a 1500-byte IPv4 packet, and its frame as token buckets count it.
const PAYLOAD: usize = 1472;
const FRAME: usize = PAYLOAD + 8 + 20 + 14;
const PORT: u16 = 9000;
/// Environment variable with the task of the helper process; see [`traffic`].
const ROLE: &str = "HEADWATER_NETNS_TEST";

/// The lock that keeps measurements apart; `None` where namespaces are not allowed.
fn alone() -> Option<MutexGuard<'static, ()>> {
    headwater_skips::alone(Capability::probe)
}

fn mbit(n: u64) -> Option<BitRate> {
    Some(BitRate::new(n * 1_000_000))
}

fn spec(hosts: Vec<HostSpec>) -> Spec {
    Spec { hosts, ..Spec::default() }
}

/// A sender and a receiver; the sender's uplink is limited to `uplink` Mbit/s.
fn pair(uplink: Option<BitRate>) -> Net {
    Net::build(&spec(vec![HostSpec { uplink, ..HostSpec::default() }, HostSpec::default()])).unwrap()
}

/// A sender's counts.
#[derive(Debug)]
struct Sent {
    packets: u64,
}

/// A receiver's counts; the rate counts Ethernet headers and runs from the first packet to the last.
#[derive(Debug)]
struct Received {
    packets: u64,
    mbit_per_s: f64,
}

/// This test binary again, as a sender or receiver on `host`.
fn helper(net: &Net, host: usize, role: String) -> Child {
    net.command(host, std::env::current_exe().unwrap())
        .unwrap()
        .args(["traffic", "--exact", "--ignored", "--nocapture"])
        .env(ROLE, role)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn results(child: Child) -> Vec<f64> {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.split("RESULT ").nth(1).unwrap_or_else(|| panic!("no result in: {text}"));
    line.lines().next().unwrap().split(' ').map(|number| number.parse().unwrap()).collect()
}

fn receiver(net: &Net, host: usize, port: u16) -> Child {
    let child = helper(net, host, format!("receive {port}"));
    // Ready as soon as the port is bound.
    let bound = || {
        let listed = net.command(host, "cat").unwrap().args(["/proc/net/udp", "/proc/net/udp6"]).output();
        String::from_utf8_lossy(&listed.unwrap().stdout).contains(&format!(":{port:04X} "))
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while !bound() {
        assert!(Instant::now() < deadline, "the receiver never bound port {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

fn received(child: Child) -> Received {
    let numbers = results(child);
    Received { packets: numbers[0] as u64, mbit_per_s: numbers[1] }
}

/// Starts a sender of `rate` Mbit/s for `seconds`, in buffers of `batch` packets that the kernel cuts.
fn sender(net: &Net, host: usize, to: SocketAddr, batch: usize, rate: u64, seconds: f64) -> Child {
    helper(net, host, format!("send {to} {batch} {rate} {seconds}"))
}

fn sent(child: Child) -> Sent {
    let numbers = results(child);
    Sent { packets: numbers[0] as u64 }
}

/// Sends from host 0 to host 1 and returns what both saw.
fn exchange(net: &Net, to: IpAddr, batch: usize, rate: u64, seconds: f64) -> (Sent, Received) {
    let at_receiver = receiver(net, 1, PORT);
    let at_sender = sender(net, 0, SocketAddr::new(to, PORT), batch, rate, seconds);
    (sent(at_sender), received(at_receiver))
}

/// Counters also see the few packets that IPv6 says hello with.
fn assert_about(counted: u64, expected: u64) {
    assert!(counted.abs_diff(expected) <= 40, "counted {counted}, expected {expected}");
}

/// Not a test of its own: what [`helper`] runs on a host.
#[test]
#[ignore = "the helper process of the other tests"]
fn traffic() {
    let role = std::env::var(ROLE).unwrap_or_default();
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["send", to, batch, rate, seconds] => send(
            to.parse().unwrap(),
            batch.parse().unwrap(),
            rate.parse().unwrap(),
            Duration::from_secs_f64(seconds.parse().unwrap()),
        ),
        ["receive", port] => receive(port.parse().unwrap()),
        ["build", "and", "wait"] => {
            let net = pair(None);
            println!("RESULT {}", net.run_id());
            std::thread::sleep(Duration::from_secs(60));
        }
        _ => println!("nothing to do"),
    }
}

fn send(to: SocketAddr, batch: usize, mbit_per_s: u64, lasting: Duration) {
    let any: IpAddr = if to.is_ipv4() { "0.0.0.0" } else { "::" }.parse().unwrap();
    let socket = UdpSocket::bind((any, 0)).unwrap();
    socket.connect(to).unwrap();
    // IPv6 headers are 20 bytes longer.
    let payload = if to.is_ipv4() { PAYLOAD } else { PAYLOAD - 20 };
    if batch > 1 {
        set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, payload).unwrap();
    }
    let buffer = vec![0; payload * batch];
    let start = Instant::now();
    let mut packets = 0;
    while start.elapsed() < lasting {
        socket.send(&buffer).unwrap();
        packets += batch;
        let due = Duration::from_secs_f64((packets * FRAME * 8) as f64 / (mbit_per_s as f64 * 1e6));
        std::thread::sleep(due.saturating_sub(start.elapsed()));
    }
    println!("RESULT {packets}");
}

#[allow(unsafe_code)]
fn set_option(socket: &UdpSocket, level: i32, option: i32, value: usize) -> std::io::Result<()> {
    use std::os::fd::AsRawFd as _;
    let size = libc::c_int::try_from(value).unwrap();
    // SAFETY: the descriptor is open for the length of the call and the value is a c_int of the size given.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(&size).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Counts until nothing has come for half a second.
fn receive(port: u16) {
    let socket = UdpSocket::bind(("::", port)).or_else(|_| UdpSocket::bind(("0.0.0.0", port))).unwrap();
    // Packets that the network brought are not lost here, although this process may have to wait for a processor. In a
    // user namespace nobody may ask for that much.
    let _ = set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20);
    let mut buffer = [0; 2048];
    let (mut packets, mut first, mut last) = (0_u64, None, Instant::now());
    socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    while socket.recv(&mut buffer).is_ok() {
        last = Instant::now();
        first = first.or_else(|| {
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            Some(last)
        });
        packets += 1;
    }
    // The first packet starts the clock, so it does not count as carried.
    let seconds = first.map_or(0.0, |first| (last - first).as_secs_f64());
    let rate = if seconds > 0.0 { ((packets - 1) * FRAME as u64 * 8) as f64 / seconds / 1e6 } else { 0.0 };
    println!("RESULT {packets} {rate}");
}

/// Not more came than a limit of `mbit` lets through, with its bucket and a receiver whose clock may start late. How much less came is
/// a matter of how busy the machine is.
fn limited_to(mbit: f64, received: &Received) {
    assert!(received.packets > 10 && received.mbit_per_s < mbit * 1.15, "{received:?}");
}

/// The wire carries its rate, the rest is dropped, and the sender never notices: what a real network does.
#[test]
fn overloaded_uplink_carries_its_rate_and_drops_the_rest_without_blocking_the_sender() {
    let Some(_alone) = alone() else { return };
    let net = pair(mbit(50));
    for batch in [1, 20] {
        let before = net.counters(Link::Uplink(0)).unwrap();
        let (sent, received) = exchange(&net, net.ipv4(1).into(), batch, 100, 2.0);
        let after = net.counters(Link::Uplink(0)).unwrap();
        eprintln!("batches of {batch}: {sent:?} {received:?}");
        limited_to(50.0, &received);
        assert!(sent.packets > received.packets * 5 / 4, "the sender was held up: {sent:?} {received:?}");
        // Every packet counts as one packet, not every buffer.
        assert_about(after.packets - before.packets, received.packets);
        assert_about(after.dropped - before.dropped, sent.packets - received.packets);
    }
}

#[test]
fn downlink_limits_what_several_senders_bring_together() {
    let Some(_alone) = alone() else { return };
    let fast = HostSpec { uplink: mbit(40), ..HostSpec::default() };
    let slow = HostSpec { downlink: mbit(30), ..HostSpec::default() };
    let net = Net::build(&spec(vec![fast, slow, fast])).unwrap();
    let to = SocketAddr::new(net.ipv4(1).into(), PORT);
    let at_receiver = receiver(&net, 1, PORT);
    let senders = [0, 2].map(|host| sender(&net, host, to, 1, 40, 2.0));
    for sender in senders {
        sent(sender);
    }
    let received = received(at_receiver);
    limited_to(30.0, &received);
    assert!(net.counters(Link::Downlink(1)).unwrap().dropped > 0);
}

/// Two senders in one rack share its uplink; a sender outside does not.
#[test]
fn rack_uplink_is_shared_by_its_hosts() {
    let Some(_alone) = alone() else { return };
    let inside = HostSpec { rack: Some(0), ..HostSpec::default() };
    let outside = HostSpec::default();
    let racks = vec![RackSpec { uplink: mbit(20), downlink: None }, RackSpec::default()];
    let elsewhere = HostSpec { rack: Some(1), ..HostSpec::default() };
    let hosts = vec![inside, outside, inside, elsewhere];
    let net = Net::build(&Spec { hosts, racks, ..Spec::default() }).unwrap();
    let to = SocketAddr::new(net.ipv4(1).into(), PORT);
    let at_receiver = receiver(&net, 1, PORT);
    let senders = [0, 2].map(|host| sender(&net, host, to, 1, 20, 2.0));
    let all: u64 = senders.map(sent).iter().map(|sent| sent.packets).sum();
    let received_from_rack = received(at_receiver);
    limited_to(20.0, &received_from_rack);
    let uplink = net.counters(Link::RackUplink(0)).unwrap();
    assert_about(uplink.packets + uplink.dropped, all);

    // Between neighbours in the rack, and from rack to rack the other way round, nothing is limited.
    for (from, to) in [(0, 2), (3, 2)] {
        let at_receiver = receiver(&net, to, PORT);
        let address = SocketAddr::new(net.ipv4(to).into(), PORT);
        let sent = sent(sender(&net, from, address, 1, 40, 1.0));
        assert_eq!(received(at_receiver).packets, sent.packets, "host {from} to host {to}");
    }
}

#[test]
fn rate_changes_while_packets_flow_and_a_limit_can_be_taken_away() {
    let Some(_alone) = alone() else { return };
    let net = pair(None);
    for limit in [20, 40] {
        net.set_rate(Link::Uplink(0), mbit(limit)).unwrap();
        let (sent, received) = exchange(&net, net.ipv4(1).into(), 1, 60, 1.0);
        limited_to(limit as f64, &received);
        assert!(received.packets < sent.packets, "{received:?} of {sent:?}");
    }
    net.set_rate(Link::Uplink(0), None).unwrap();
    let (sent, received) = exchange(&net, net.ipv4(1).into(), 1, 60, 1.0);
    assert_eq!(received.packets, sent.packets, "no limit drops anything");
    net.set_rate(Link::Uplink(0), None).unwrap();
}

#[test]
fn hosts_on_one_bridge_reach_each_other_and_have_no_uplinks_to_limit() {
    let Some(_alone) = alone() else { return };
    let hosts = vec![HostSpec::default(), HostSpec { downlink: mbit(20), ..HostSpec::default() }];
    let net = Net::build(&Spec { hosts, edges: false, ..Spec::default() }).unwrap();
    let before = net.sent(0).unwrap();
    let (sent, received) = exchange(&net, net.ipv4(1).into(), 1, 10, 0.5);
    assert!(received.packets > 0 && received.packets <= sent.packets, "{received:?} of {sent:?}");
    let bytes = (net.sent(0).unwrap() - before).get();
    assert_about(bytes / FRAME as u64, sent.packets);
    let refused = net.set_rate(Link::Uplink(0), mbit(10)).unwrap_err();
    assert!(matches!(refused, NetError::OneBridge { .. }), "{refused}");
    net.set_rate(Link::Downlink(1), mbit(10)).unwrap();
    net.link_down(0).unwrap();
    let (sent, received) = exchange(&net, net.ipv4(1).into(), 1, 10, 0.5);
    assert!(sent.packets > 0 && received.packets == 0, "silence, and the sender is not told");
    net.link_up(0).unwrap();
    assert!(exchange(&net, net.ipv4(1).into(), 1, 10, 0.5).1.packets > 0);
}

/// 5 standard deviations of a fair coin of this weight: a false alarm in two million runs.
#[test]
fn loss_takes_its_share_of_the_packets_one_by_one() {
    let Some(_alone) = alone() else { return };
    if !Capability::probe().unwrap().loss {
        headwater_skips::cannot("no random loss in this kernel's nftables, or no nft");
        return;
    }
    let net = pair(None);
    for link in [Link::Downlink(1), Link::Uplink(0)] {
        let probability = 0.05;
        net.loss(link, probability).unwrap();
        let (sent, received) = exchange(&net, net.ipv4(1).into(), 20, 60, 1.0);
        let lost = sent.packets - received.packets;
        assert_about(net.counters(link).unwrap().lost, lost);
        let expected = sent.packets as f64 * probability;
        let deviation = (expected * (1.0 - probability)).sqrt();
        assert!((lost as f64 - expected).abs() < 5.0 * deviation, "{link:?}: {lost} lost, not {expected}");
        net.loss(link, 0.0).unwrap();
    }
    let (sent, received) = exchange(&net, net.ipv4(1).into(), 1, 20, 0.5);
    assert_eq!(sent.packets, received.packets, "no loss after it was ended");
    assert!(matches!(net.loss(Link::Uplink(0), 1.5), Err(NetError::Probability { .. })));
}

#[test]
fn cut_off_host_is_silent_and_comes_back() {
    let Some(_alone) = alone() else { return };
    let net = pair(mbit(100));
    net.link_down(0).unwrap();
    let (sent, received) = exchange(&net, net.ipv4(1).into(), 1, 10, 0.5);
    assert!(sent.packets > 0, "the sender is not told");
    assert_eq!(received.packets, 0);
    net.link_up(0).unwrap();
    let (sent, received) = exchange(&net, net.ipv4(1).into(), 1, 10, 0.5);
    assert_eq!(received.packets, sent.packets);
}

#[test]
fn vanished_host_takes_its_processes_along() {
    let Some(_alone) = alone() else { return };
    let net = pair(None);
    let mut sleeper = net.command(0, "sleep").unwrap().arg("60").spawn().unwrap();
    let mut survivor = net.command(1, "sleep").unwrap().arg("60").spawn().unwrap();
    // Until `nsenter` has entered, the process still counts as ours.
    std::thread::sleep(Duration::from_millis(200));
    net.vanish(0).unwrap();
    assert!(!sleeper.wait().unwrap().success());
    assert!(survivor.try_wait().unwrap().is_none(), "the other host lives on");
    drop(net);
    assert!(!survivor.wait().unwrap().success(), "until the network goes");
}

#[test]
fn hosts_reach_each_other_over_ipv6() {
    let Some(_alone) = alone() else { return };
    let net = pair(None);
    let Some(address) = net.ipv6(1) else {
        headwater_skips::cannot("no IPv6 in this kernel");
        return;
    };
    let (sent, received) = exchange(&net, address.into(), 4, 20, 0.5);
    assert_eq!(received.packets, sent.packets);
}

#[test]
fn unknown_hosts_and_racks_are_named_in_the_error() {
    let Some(_alone) = alone() else { return };
    let net = pair(None);
    assert!(matches!(net.link_down(2), Err(NetError::UnknownHost { host: 2, hosts: 2 })));
    assert!(matches!(net.set_rate(Link::Uplink(9), None), Err(NetError::UnknownHost { .. })));
    assert!(matches!(net.counters(Link::RackUplink(0)), Err(NetError::UnknownRack { rack: 0, racks: 0 })));
    assert!(net.command(7, "true").is_err());
    let error = net.set_rate(Link::Uplink(0), Some(BitRate::ZERO)).unwrap_err().to_string();
    assert!(error.contains("tc -n") && error.contains("up0"), "the failing command is shown: {error}");
}

fn names_of(run_id: &str) -> Vec<PathBuf> {
    let prefix = format!("{run_id}-");
    std::fs::read_dir("/run/netns")
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect::<Vec<_>>())
        .unwrap_or_default()
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)))
        .collect()
}

#[test]
fn dropped_network_leaves_nothing_and_runs_in_parallel_do_not_meet() {
    let Some(_alone) = alone() else { return };
    let (one, other) = (pair(mbit(10)), pair(None));
    assert_ne!(one.run_id(), other.run_id());
    assert_eq!(names_of(one.run_id()).len(), 3);
    let (id, other_id) = (one.run_id().to_owned(), other.run_id().to_owned());
    drop(one);
    assert_eq!(names_of(&id), Vec::<PathBuf>::new());
    assert_eq!(names_of(&other_id).len(), 3);
    let (sent, received) = exchange(&other, other.ipv4(1).into(), 1, 20, 0.3);
    assert_eq!(received.packets, sent.packets);
}

/// Ctrl-C and SIGKILL: the maker gets no chance to clean up itself.
#[test]
fn killed_maker_leaves_nothing() {
    use std::io::{BufRead as _, BufReader};
    let Some(_alone) = alone() else { return };
    for signal in ["-INT", "-KILL"] {
        let mut maker = Command::new(std::env::current_exe().unwrap())
            .args(["traffic", "--exact", "--ignored", "--nocapture"])
            .env(ROLE, "build and wait")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(maker.stdout.take().unwrap()).lines();
        let run_id = lines
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("RESULT ")?.1.to_owned()))
            .expect("the maker names its run");
        assert_eq!(names_of(&run_id).len(), 3);
        let kill =
            Command::new("sh").args(["-c", "kill $1 $2", "sh", signal, &maker.id().to_string()]).status();
        assert!(kill.unwrap().success());
        maker.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !names_of(&run_id).is_empty() {
            assert!(Instant::now() < deadline, "{signal}: still there: {:?}", names_of(&run_id));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn leftovers_of_dead_runs_are_removed_and_living_runs_stay() {
    let Some(_alone) = alone() else { return };
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let dead = format!("hw-{}-0-h1", ended.id());
    let living = format!("hw-{}-999-h1", std::process::id());
    let foreign = format!("hwx-{}-0-h1", ended.id());
    let ip = |verb: &str, name: &str| {
        assert!(Command::new("ip").args(["netns", verb, name]).status().unwrap().success());
    };
    for name in [&dead, &living, &foreign] {
        ip("add", name);
    }
    let removed = netns::clean().unwrap();
    let exists = |name: &str| Path::new("/run/netns").join(name).exists();
    let (dead_stays, living_stays, foreign_stays) = (exists(&dead), exists(&living), exists(&foreign));
    for name in [&living, &foreign] {
        ip("delete", name);
    }
    assert!(removed.contains(&dead), "{removed:?}");
    assert!(!dead_stays && living_stays && foreign_stays);
}

/// The way that users without privilege take.
#[test]
fn user_namespace_lets_networks_be_built() {
    let allowed = netns::in_user_namespace("true").output().is_ok_and(|output| output.status.success());
    if !allowed {
        headwater_skips::cannot("user namespaces are not allowed here");
        return;
    }
    let output = netns::in_user_namespace(std::env::current_exe().unwrap())
        .args(["traffic_in_user_namespace", "--exact", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("RESULT"), "{text} {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "the helper process of the other tests"]
fn traffic_in_user_namespace() {
    if std::env::var_os("HEADWATER_NETNS_TEST").is_some() {
        return;
    }
    let net = match Net::build(&spec(vec![HostSpec { uplink: mbit(50), ..HostSpec::default() }; 2])) {
        Ok(net) => net,
        Err(why) => {
            println!("RESULT skipped: {why}");
            return;
        }
    };
    let (sent, received) = exchange(&net, net.ipv4(1).into(), 1, 20, 0.5);
    // How many of them the receiving process gets depends on when it runs: here its socket holds some 90 packets at most.
    assert!(received.packets > 0, "{received:?} of {sent:?}");
    let uplink = net.counters(Link::Uplink(0)).unwrap();
    assert_about(uplink.packets + uplink.dropped, sent.packets);
    println!("RESULT works");
}
