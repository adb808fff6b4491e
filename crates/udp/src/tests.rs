//! Ports talking to each other over loopback.

use headwater_units::{Bytes, Duration};

use super::*;

const ECT0: u8 = 0b10;
const CE: u8 = 0b11;

fn options() -> SocketOptions {
    SocketOptions::default()
}

fn pair(addr: &str, from: SocketOptions, to: SocketOptions) -> (UdpPort, UdpPort) {
    let bind =
        |options: SocketOptions| UdpPort::bind(format!("{addr}:0").parse().unwrap(), &options).unwrap();
    (bind(from), bind(to))
}

fn path_to(port: &UdpPort) -> PathAddr {
    PathAddr::to(port.local_addr())
}

/// Datagram `n` of a test: its number, then bytes that follow from it.
fn fill(bytes: &mut [u8], n: u32) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (n as usize).wrapping_mul(31).wrapping_add(i * 7) as u8;
    }
    bytes[..4].copy_from_slice(&n.to_be_bytes());
}

fn check(bytes: &[u8], n: u32) {
    let mut expected = vec![0; bytes.len()];
    fill(&mut expected, n);
    assert_eq!(bytes, expected, "datagram {n}");
}

/// Size and TOS of a datagram of the mixed stream: runs of equal ones, with size and TOS changing between runs.
fn mixed(n: u32) -> (usize, u8) {
    let run = n / 37;
    let len = [1400, 1400, 64, 8900, 333][run as usize % 5];
    let dscp = [0, 46, 10][run as usize % 3] << 2;
    let ecn = if n % 37 == 11 || run % 7 == 3 { CE } else { ECT0 };
    (if n % 37 == 36 { len - 1 } else { len }, dscp | ecn)
}

/// Sends `count` mixed datagrams and receives them all, taking turns so that no buffer overflows.
fn mixed_stream(from: &mut UdpPort, to: &mut UdpPort, to_addr: PathAddr, count: u32) {
    let (mut out, mut inbox) = (SendBatch::new(256 << 10, 64), RecvBatch::new(8));
    let waker = Waker::new().unwrap();
    let (mut pushed, mut seen) = (0, 0);
    while seen < count {
        while pushed < count && pushed - seen < 150 {
            let (len, tos) = mixed(pushed);
            let Some(bytes) = out.push(to_addr, tos, len) else { break };
            fill(bytes, pushed);
            pushed += 1;
        }
        let flush = from.flush(&mut out).unwrap();
        assert!(flush.lost == 0, "{:?}", out.soft_errors());
        let ready = wait(to, &waker, Some(Duration::from_secs(5)), false).unwrap();
        assert!(ready.readable, "datagrams {seen}..{pushed} did not arrive");
        to.recv(&mut inbox).unwrap();
        for datagram in inbox.datagrams() {
            let (len, tos) = mixed(seen);
            assert_eq!((datagram.bytes.len(), datagram.tos), (len, Some(tos)), "datagram {seen}");
            check(datagram.bytes, seen);
            assert_eq!(datagram.from.remote.port(), from.local_addr().port());
            assert_eq!(datagram.from.local, Some(to_addr.remote.ip().to_canonical()));
            seen += 1;
        }
    }
    let bytes: u64 = (0..count).map(|n| mixed(n).0 as u64).sum();
    assert_eq!((from.stats().datagrams_sent, from.stats().bytes_sent), (u64::from(count), bytes));
    assert_eq!((to.stats().datagrams_received, to.stats().bytes_received), (u64::from(count), bytes));
    assert_eq!((to.stats().kernel_dropped, to.stats().control_truncated), (0, 0));
}

#[test]
fn mixed_sizes_and_marks_arrive_intact_and_in_order_over_ipv4_and_ipv6() {
    for addr in ["127.0.0.1", "[::1]"] {
        let (mut from, mut to) = pair(addr, options(), options());
        let addr = path_to(&to);
        mixed_stream(&mut from, &mut to, addr, 5000);
        if from.offload().segmentation && to.offload().merging {
            assert!(from.stats().messages_sent < 2500, "{:?}", from.stats());
            assert!(to.stats().datagrams_per_buffer().unwrap() > 2.0, "{:?}", to.stats());
        }
    }
}

#[test]
fn without_offload_the_same_datagrams_arrive() {
    let none = Offload { segmentation: false, merging: false };
    let one = Offload { segmentation: true, merging: false };
    for (send, receive) in [(none, none), (one, none), (none, Offload { segmentation: false, merging: true })]
    {
        let with = |offload| SocketOptions { offload, ..options() };
        let (mut from, mut to) = pair("127.0.0.1", with(send), with(receive));
        let addr = path_to(&to);
        mixed_stream(&mut from, &mut to, addr, 1500);
    }
}

#[test]
fn a_dual_stack_port_speaks_plain_ipv4() {
    let (mut four, mut six) = (
        UdpPort::bind("127.0.0.1:0".parse().unwrap(), &options()).unwrap(),
        UdpPort::bind("[::]:0".parse().unwrap(), &options()).unwrap(),
    );
    let six_addr = PathAddr::to(([127, 0, 0, 1], six.local_addr().port()).into());
    let four_addr = path_to(&four);
    mixed_stream(&mut four, &mut six, six_addr, 500);
    mixed_stream(&mut six, &mut four, four_addr, 500);
}

#[test]
fn replies_leave_from_the_address_that_was_asked() {
    for (any, asked) in [("0.0.0.0:0", "127.0.0.7"), ("[::]:0", "127.0.0.7"), ("[::]:0", "::1")] {
        let asked: std::net::IpAddr = asked.parse().unwrap();
        let home = if asked.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
        let mut client = UdpPort::bind(home.parse().unwrap(), &options()).unwrap();
        let mut server = UdpPort::bind(any.parse().unwrap(), &options()).unwrap();
        let (mut out, mut inbox) = (SendBatch::new(0, 4), RecvBatch::new(1));
        let waker = Waker::new().unwrap();

        let server_addr = PathAddr::to((asked, server.local_addr().port()).into());
        out.push(server_addr, ECT0, 5).unwrap().copy_from_slice(b"hello");
        assert_eq!(client.flush(&mut out).unwrap().datagrams, 1);
        wait(&server, &waker, Some(Duration::from_secs(5)), false).unwrap();
        assert_eq!(server.recv(&mut inbox).unwrap(), 1);
        let from = inbox.datagrams().next().unwrap().from;
        assert_eq!(from.local, Some(asked));

        out.push(from, ECT0, 5).unwrap().copy_from_slice(b"hi to");
        out.push(from, ECT0, 3).unwrap().copy_from_slice(b"you");
        assert_eq!(server.flush(&mut out).unwrap().datagrams, 2);
        wait(&client, &waker, Some(Duration::from_secs(5)), false).unwrap();
        assert_eq!(client.recv(&mut inbox).unwrap(), 2);
        assert!(inbox.datagrams().all(|d| d.from.remote == server_addr.remote));
    }
}

/// Set for the tests below that need the namespace their parent made; `--ignored` alone starts them without.
const IN_NAMESPACE: &str = "HEADWATER_TEST_IN_NAMESPACE";

/// Runs `test` (the name of an ignored test here) again in a network namespace of its own, after `setup` (a shell
/// command). Prints that and returns where namespaces are not allowed.
fn in_own_namespace(test: &str, setup: &str) {
    let output = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "sh", "-c"])
        .arg(format!("set -e; {{ ip link set lo up; {setup}; }} || exit 77; exec \"$0\" \"$@\""))
        .arg(std::env::current_exe().unwrap())
        .env(IN_NAMESPACE, "1")
        .args([&format!("{}::{test}", module_path!().split_once("::").unwrap().1), "--exact", "--ignored"])
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("1 passed"), "the inner test did not run:\n{said}");
        }
        Ok(output) if !output.stdout.starts_with(b"\nrunning") => {
            println!("skipped, no namespace here: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(output) => panic!("in its namespace:\n{}", String::from_utf8_lossy(&output.stdout)),
        Err(error) => println!("skipped, cannot run unshare: {error}"),
    }
}

#[test]
fn a_full_send_buffer_loses_nothing() {
    // Loopback takes everything at once; a shaper in front of it makes the send buffer fill up.
    in_own_namespace("behind_a_slow_link", "tc qdisc add dev lo root tbf rate 40mbit burst 16kb latency 10s");
}

#[test]
#[ignore = "run by a_full_send_buffer_loses_nothing, in a namespace"]
fn behind_a_slow_link() {
    if std::env::var_os(IN_NAMESPACE).is_none() {
        return;
    }
    for segmentation in [true, false] {
        let offload = Offload { segmentation, merging: true };
        let small = SocketOptions { send_buffer: Bytes::new(8192), offload, ..options() };
        let (mut from, mut to) = pair("127.0.0.1", small, options());
        let addr = path_to(&to);
        let (mut out, mut inbox) = (SendBatch::new(1 << 20, 64), RecvBatch::new(32));
        out.set_max_group(4);
        let count = 240;
        for n in 0..count {
            fill(out.push(addr, ECT0, 1000).unwrap(), n);
        }
        let waker = Waker::new().unwrap();
        let (mut seen, mut blocked) = (0, 0);
        while seen < count {
            let before = out.len();
            let flush = from.flush(&mut out).unwrap();
            assert_eq!((flush.lost, before - flush.datagrams), (0, out.len()));
            if flush.blocked {
                blocked += 1;
                let ready = wait(&from, &waker, Some(Duration::from_secs(5)), true).unwrap();
                assert!(ready.writable, "room comes as the link drains");
            } else {
                assert!(out.is_empty());
                assert!(wait(&to, &waker, Some(Duration::from_secs(5)), false).unwrap().readable);
            }
            to.recv(&mut inbox).unwrap();
            for datagram in inbox.datagrams() {
                check(datagram.bytes, seen);
                seen += 1;
            }
        }
        assert!(blocked > 5, "the test never filled the buffer");
        assert_eq!(from.stats().sends_blocked, blocked);
        assert_eq!(from.stats().datagrams_sent, u64::from(count));
    }
}

#[test]
fn a_datagram_longer_than_the_path_is_refused_and_not_fragmented() {
    in_own_namespace("behind_a_small_mtu", "ip link set lo mtu 1500");
}

#[test]
#[ignore = "run by a_datagram_longer_than_the_path_is_refused_and_not_fragmented, in a namespace"]
fn behind_a_small_mtu() {
    if std::env::var_os(IN_NAMESPACE).is_none() {
        return;
    }
    for (addr, longest) in [("127.0.0.1", 1472), ("[::1]", 1452)] {
        let (mut from, mut to) = pair(addr, options(), options());
        let addr = path_to(&to);
        assert_eq!(path_mtu(addr.remote).unwrap(), Bytes::new(longest as u64));
        let (mut out, mut inbox) = (SendBatch::new(1 << 20, 64), RecvBatch::new(32));
        for (len, tos) in [(longest, ECT0), (longest + 1, CE), (longest, ECT0)] {
            for n in 0..5 {
                fill(out.push(addr, tos, len).unwrap(), n);
            }
        }
        out.push(addr, CE, longest + 1).unwrap().fill(0);
        let flush = from.flush(&mut out).unwrap();
        assert_eq!((flush.datagrams, flush.lost), (10, 6), "{:?}", out.soft_errors());
        assert!(out.soft_errors().iter().all(|e| e.to == addr && e.errno == libc::EMSGSIZE));
        assert!(from.offload().segmentation);
        assert_eq!(to.recv(&mut inbox).unwrap(), 10);
    }
}

#[test]
fn refused_segmentation_falls_back_to_single_datagrams_for_good() {
    use std::os::fd::AsFd;
    let (mut from, mut to) = pair("127.0.0.1", options(), options());
    // The kernel refuses to segment where it may not write checksums.
    sys::set_option(from.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    let addr = path_to(&to);
    let (mut out, mut inbox) = (SendBatch::new(1 << 20, 64), RecvBatch::new(32));
    for n in 0..30 {
        fill(out.push(addr, CE, 700).unwrap(), n);
    }
    let flush = from.flush(&mut out).unwrap();
    assert_eq!((flush.messages, flush.datagrams, flush.lost), (30, 30, 0), "{:?}", out.soft_errors());
    assert!(!from.offload().segmentation);
    let mut seen = 0;
    while to.recv(&mut inbox).unwrap() > 0 {
        for datagram in inbox.datagrams() {
            assert_eq!(datagram.tos, Some(CE));
            check(datagram.bytes, seen);
            seen += 1;
        }
    }
    assert_eq!(seen, 30);
}

#[test]
fn an_overflowing_receive_buffer_is_counted_exactly() {
    let small = SocketOptions { receive_buffer: Bytes::new(8192), ..options() };
    let (mut from, mut to) = pair("127.0.0.1", options(), small);
    let addr = path_to(&to);
    let (mut out, mut inbox) = (SendBatch::new(1 << 20, 64), RecvBatch::new(32));
    out.set_max_group(1);
    let send = |from: &mut UdpPort, out: &mut SendBatch, count: u64| {
        for _ in 0..count {
            if out.push(addr, ECT0, 1000).is_none() {
                assert!(!from.flush(out).unwrap().blocked);
                out.push(addr, ECT0, 1000).unwrap();
            }
        }
        assert!(!from.flush(out).unwrap().blocked);
    };
    send(&mut from, &mut out, 200);
    while to.recv(&mut inbox).unwrap() > 0 {}
    // The count comes with the next datagram.
    send(&mut from, &mut out, 1);
    assert_eq!(to.recv(&mut inbox).unwrap(), 1);
    let stats = to.stats();
    assert!(stats.kernel_dropped > 100, "{stats:?}");
    assert_eq!(stats.kernel_dropped + stats.datagrams_received, 201, "{stats:?}");
}

#[test]
fn one_bad_destination_does_not_stop_the_others() {
    let (mut from, mut to) = pair("127.0.0.1", options(), options());
    let good = path_to(&to);
    let v6 = PathAddr::to("[::1]:9".parse().unwrap());
    let port_zero = PathAddr::to("127.0.0.1:0".parse().unwrap());
    let not_ours = PathAddr { local: Some("192.0.2.1".parse().unwrap()), ..good };
    let (mut out, mut inbox) = (SendBatch::new(1 << 20, 64), RecvBatch::new(32));
    for path in [good, v6, port_zero, good, not_ours, good] {
        for n in 0..3 {
            fill(out.push(path, ECT0, 100).unwrap(), n);
        }
    }
    let flush = from.flush(&mut out).unwrap();
    assert_eq!((flush.datagrams, flush.lost, flush.blocked), (9, 9, false), "{:?}", out.soft_errors());
    let failed: Vec<_> = out.soft_errors().iter().map(|e| (e.to, e.datagrams)).collect();
    assert_eq!(failed, [(v6, 3), (port_zero, 3), (not_ours, 3)], "{:?}", out.soft_errors());
    assert_eq!(from.stats().sends_refused, 9);
    assert!(from.offload().segmentation, "an error of one destination says nothing about offload");
    assert_eq!(to.recv(&mut inbox).unwrap(), 9);
}

#[test]
fn the_longest_datagram_arrives() {
    let (mut from, mut to) = pair("127.0.0.1", options(), options());
    let mut out = SendBatch::new(1 << 20, 64);
    let mut inbox = RecvBatch::new(2);
    out.push(path_to(&to), ECT0, MAX_DATAGRAM).unwrap().fill(7);
    assert_eq!(from.flush(&mut out).unwrap().datagrams, 1);
    assert_eq!(to.recv(&mut inbox).unwrap(), 1);
    assert_eq!(inbox.datagrams().next().unwrap().bytes, &[7; MAX_DATAGRAM][..]);
    assert!(inbox.datagrams().count() == 1 && !inbox.is_full());
}

#[test]
fn truncated_control_space_is_noticed_and_never_read_as_not_ect() {
    let (mut from, mut to) = pair("127.0.0.1", options(), options());
    let mut out = SendBatch::new(1 << 20, 64);
    let to_addr = path_to(&to);
    for n in 0..10 {
        fill(out.push(to_addr, CE, 500).unwrap(), n);
    }
    assert_eq!(from.flush(&mut out).unwrap().datagrams, 10);
    // Room for the segment size but not for address and TOS.
    let mut cramped = RecvBatch::with_control_space(4, 32);
    to.recv(&mut cramped).unwrap();
    assert!(to.stats().control_truncated >= 1, "{:?}", to.stats());
    assert!(cramped.datagrams().all(|d| d.tos.is_none()));
}

#[test]
fn empty_datagrams_are_counted_and_not_delivered() {
    let (_, mut to) = pair("127.0.0.1", options(), options());
    let plain = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for bytes in [&b""[..], b"x", b""] {
        plain.send_to(bytes, to.local_addr()).unwrap();
    }
    let mut inbox = RecvBatch::new(8);
    assert_eq!(to.recv(&mut inbox).unwrap(), 1);
    let datagram = inbox.datagrams().next().unwrap();
    assert_eq!((&*datagram.bytes, datagram.tos), (&b"x"[..], Some(0)));
    assert_eq!(to.stats().empty_received, 2);
}

#[test]
fn a_waker_wakes_once_for_many_wakes_and_again_for_the_next() {
    let port = UdpPort::bind("127.0.0.1:0".parse().unwrap(), &options()).unwrap();
    let waker = Waker::new().unwrap();
    let look = || wait(&port, &waker, Some(Duration::ZERO), false).unwrap();
    assert_eq!(look(), Ready::default());
    for _ in 0..3 {
        (0..5).for_each(|_| waker.wake());
        assert_eq!(look(), Ready { woken: true, ..Ready::default() });
        assert_eq!(look(), Ready::default());
    }
    let other = waker.clone();
    let thread = std::thread::spawn(move || other.wake());
    assert!(wait(&port, &waker, None, false).unwrap().woken);
    thread.join().unwrap();
}

#[test]
fn no_wake_is_lost_between_threads() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let port = UdpPort::bind("127.0.0.1:0".parse().unwrap(), &options()).unwrap();
    let waker = Waker::new().unwrap();
    let work = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    work.fetch_add(1, Ordering::Relaxed);
                    waker.wake();
                }
            });
        }
        while work.load(Ordering::Relaxed) < 40_000 {
            let ready = wait(&port, &waker, Some(Duration::from_secs(20)), false).unwrap();
            assert!(ready.woken, "lost a wake at {}", work.load(Ordering::Relaxed));
        }
    });
}

#[test]
#[allow(clippy::disallowed_methods, reason = "measures how precisely the kernel wakes us")]
fn short_timeouts_are_kept() {
    let port = UdpPort::bind("127.0.0.1:0".parse().unwrap(), &options()).unwrap();
    let waker = Waker::new().unwrap();
    std::thread::spawn(move || {
        sharpen_timers().unwrap();
        let mut late: Vec<_> = (0..101)
            .map(|_| {
                let start = std::time::Instant::now();
                wait(&port, &waker, Some(Duration::from_micros(200)), false).unwrap();
                let took = start.elapsed().as_micros();
                assert!(took >= 200, "woke {took} us after the start");
                took - 200
            })
            .collect();
        late.sort_unstable();
        println!("late by {} us (median), {} us (worst)", late[50], late[100]);
    })
    .join()
    .unwrap();
}

/// `cargo test --release -p headwater-udp -- --ignored --nocapture loopback_throughput`
#[test]
#[ignore = "a measurement, not a check"]
#[allow(clippy::disallowed_methods, reason = "measures wall time")]
fn loopback_throughput() {
    for (name, offload) in [
        ("GSO + GRO", Offload { segmentation: true, merging: true }),
        ("plain sendmmsg + recvmmsg", Offload { segmentation: false, merging: false }),
    ] {
        let (mut from, mut to) =
            pair("127.0.0.1", SocketOptions { offload, ..options() }, SocketOptions { offload, ..options() });
        let addr = path_to(&to);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let (datagrams, marked, seconds) = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut out, waker) = (SendBatch::new(512 << 10, 8), Waker::new().unwrap());
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    while let Some(bytes) = out.push(addr, ECT0, 1472) {
                        bytes[0] = 1;
                    }
                    if from.flush(&mut out).unwrap().blocked {
                        wait(&from, &waker, Some(Duration::from_millis(10)), true).unwrap();
                    }
                }
            });
            let (mut inbox, waker) = (RecvBatch::new(RecvBatch::DEFAULT_BUFFERS), Waker::new().unwrap());
            let (start, mut datagrams, mut ect) = (std::time::Instant::now(), 0_u64, 0_u64);
            while start.elapsed().as_secs_f64() < 3.0 {
                wait(&to, &waker, Some(Duration::from_millis(10)), false).unwrap();
                datagrams += to.recv(&mut inbox).unwrap() as u64;
                ect += inbox.datagrams().filter(|d| d.tos == Some(ECT0)).count() as u64;
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            (datagrams, ect, start.elapsed().as_secs_f64())
        });
        assert_eq!(datagrams, marked);
        println!(
            "{name}: {:.1} Gbit/s received, {:.1} datagrams per buffer, {} dropped of {} sent",
            datagrams as f64 * 1472.0 * 8.0 / seconds / 1e9,
            to.stats().datagrams_per_buffer().unwrap(),
            from.stats().datagrams_sent - datagrams,
            from.stats().datagrams_sent,
        );
    }
}

#[test]
fn members_of_a_group_get_what_is_sent_to_it_in_batches_with_its_marks() {
    let here: std::net::IpAddr = "127.0.0.1".parse().unwrap();
    let group = |last: u8| GroupAddr::new(([239, 255, 77, last], 46_001).into(), Some(here)).unwrap();
    let join = |last: u8| match UdpPort::join(&group(last), &options()) {
        Ok(port) => Some(port),
        Err(error) => {
            println!("skipped, loopback takes no groups here: {error}");
            None
        }
    };
    // Two programs of one host, and one in another group with the same port.
    let (Some(mut one), Some(mut two), Some(mut other)) = (join(1), join(1), join(2)) else { return };
    let (mut from, _) = pair("127.0.0.1", options(), options());
    let (mut out, mut inbox) = (SendBatch::new(1 << 20, 64), RecvBatch::new(32));
    let waker = Waker::new().unwrap();
    let count = 120;
    for n in 0..count {
        fill(out.push(group(1).path(), if n % 40 == 39 { CE } else { ECT0 }, 1000).unwrap(), n);
    }
    assert_eq!(from.flush(&mut out).unwrap().lost, 0, "{:?}", out.soft_errors());
    for member in [&mut one, &mut two] {
        let mut seen = 0;
        while seen < count {
            assert!(wait(member, &waker, Some(Duration::from_secs(5)), false).unwrap().readable, "{seen}");
            member.recv(&mut inbox).unwrap();
            for datagram in inbox.datagrams() {
                check(datagram.bytes, seen);
                assert_eq!(datagram.tos, Some(if seen % 40 == 39 { CE } else { ECT0 }));
                assert_eq!(datagram.from, PathAddr { remote: from.local_addr(), local: Some(here) });
                seen += 1;
            }
        }
        if from.offload().segmentation && member.offload().merging {
            assert!(member.stats().datagrams_per_buffer().unwrap() > 5.0, "{:?}", member.stats());
        }
        assert_eq!(member.recv(&mut inbox).unwrap(), 0, "each once");
    }
    assert_eq!(other.recv(&mut inbox).unwrap(), 0, "what is for another group");
}

#[test]
fn waiting_says_which_of_further_sockets_has_something() {
    let here: std::net::IpAddr = "127.0.0.1".parse().unwrap();
    let ready = |further: &[&UdpPort], of: &UdpPort| {
        use std::os::fd::AsFd;
        let waker = Waker::new().unwrap();
        let further = further.iter().map(|port| port.as_fd());
        wait_with(of, further, &waker, Some(Duration::from_millis(50)), false).unwrap().further
    };
    let (mut from, to) = pair("127.0.0.1", options(), options());
    let (_, third) = pair("127.0.0.1", options(), options());
    assert_eq!(ready(&[&to, &third], &from), 0);
    let mut out = SendBatch::new(0, 1);
    out.push(PathAddr::to((here, third.local_addr().port()).into()), ECT0, 9).unwrap().fill(1);
    assert_eq!(from.flush(&mut out).unwrap().datagrams, 1);
    assert_eq!(ready(&[&to, &third], &from), 0b10, "the second of them");
}
