//! The emulated network as traffic sees it.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use headwater_fabric::HostId;
use headwater_testbed::emulate::EmulatedNet;
use headwater_testbed::soft_switch::{Snapshot, Validity, in_namespace};
use headwater_units::Duration as Span;

use super::common::{
    DUMBBELL, PAYLOAD, alone, at, conserved, content, drain, flood, net, udp, wake_lateness,
};

/// [`DUMBBELL`] with a middle so slow that a busy machine's switch is in time: a packet takes 3 ms, and 30 may wait unmarked.
const SLOW: &str = r#"
    fabric = { kind = "dumbbell", left = 1, right = 1, rate = "4 Mbit/s", delay = "10 ms" }
    port = { queue = "100 packets", mark_threshold = "30 packets" }
"#;
/// The slow middle's rate, bit/s.
const RATE: f64 = 4e6;
const FOR: Duration = Duration::from_secs(5);
/// The time of the 30 packets that may wait unmarked. A switch that is late by less changes nothing of what is judged.
const LATE: Span = Span::from_millis(90);
/// Number of tries of measurements that do not count.
const ATTEMPTS: u32 = 3;

/// Measures until the switch was never later than that, then judges.
fn timed<T>(mut measure: impl FnMut() -> (Validity, T), judge: impl FnOnce(T)) {
    for attempt in 1..=ATTEMPTS {
        let (validity, measured) = measure();
        eprintln!("attempt {attempt}: {validity:?}");
        if validity.max.max(validity.read_p99) <= LATE {
            return judge(measured);
        }
    }
    headwater_skips::too_busy("all attempts");
}

/// Goal: more than the middle carries gets its rate, no more than its queue waits, and what is more is dropped.
#[test]
fn an_overloaded_link_carries_its_rate_drops_the_rest_and_marks_above_its_threshold() {
    let Some(_alone) = alone() else { return };
    let net = net(SLOW);
    let middle = net.link("left-right").unwrap();
    // A sender that was late sends a burst, of which its own line marks some.
    let all_marked = |seen: &Snapshot| seen.links.iter().map(|link| link.port.marked).sum::<u64>();
    let measure = || {
        net.switch().forget_lateness().unwrap();
        let earlier = net.switch().snapshot().unwrap();
        let before = earlier.links[middle.index()].port;
        let flood = flood(&net, 1.5 * RATE, FOR);
        let seen = net.switch().snapshot().unwrap();
        conserved(&seen);
        // However late anything was.
        let link = seen.links[middle.index()].port;
        assert!(link.high_water <= 100 && flood.received <= flood.sent, "{flood:?} {link:?}");
        assert!(flood.marked <= all_marked(&seen) - all_marked(&earlier), "{flood:?} {seen:?}");
        (seen.validity, (flood, link.dropped - before.dropped, link.high_water))
    };
    timed(measure, |(flood, dropped, longest)| {
        println!("{flood:?}, {dropped} dropped, longest queue {longest}");
        assert!((flood.bit_per_s / RATE - 1.0).abs() < 0.05, "{flood:?}");
        assert_eq!((flood.received + dropped, longest), (flood.sent, 100));
        // The queue passes 30 after some 5 % of the time and stays above.
        assert!(flood.marked as f64 > 0.9 * flood.received as f64, "{flood:?}");
    });
}

/// Goal: below the rate nothing is dropped, marked or held up.
#[test]
fn a_link_that_is_not_full_drops_and_marks_nothing() {
    let Some(_alone) = alone() else { return };
    let net = net(SLOW);
    let measure = || {
        net.switch().forget_lateness().unwrap();
        let flood = flood(&net, 0.5 * RATE, FOR);
        let seen = net.switch().snapshot().unwrap();
        conserved(&seen);
        (seen.validity, flood)
    };
    timed(measure, |flood| {
        println!("{flood:?}");
        assert_eq!((flood.received, flood.marked), (flood.sent, 0), "{flood:?}");
    });
}

/// Goal: a round trip takes what the links' delays add up to and what the switch says that it was late, over IPv4 and IPv6.
#[test]
fn an_idle_path_takes_its_delays_and_little_more() {
    let Some(_alone) = alone() else { return };
    let net = net(DUMBBELL);
    net.switch().forget_lateness().unwrap();
    let families = [[net.ipv4(0), net.ipv4(1)].map(IpAddr::from)].into_iter();
    let families = families.chain(net.ipv6(0).zip(net.ipv6(1)).map(|(a, b)| [a.into(), b.into()]));
    let measure = || families.map(|of| round_trips(&net, of)).collect::<Vec<Vec<Duration>>>();
    let (woken, trips) = wake_lateness(measure);
    let seen = net.switch().snapshot().unwrap();
    conserved(&seen);
    // Each trip is read twice, sent twice and wakes this test twice.
    let switch = seen.validity.read_p99 + seen.validity.p99;
    let late = 2 * (Duration::from_nanos(switch.as_nanos()) + woken);
    for mut of in trips {
        of.sort();
        println!("round trips of 20 ms: {:?} to {:?}, late by {late:?}", of[0], of[of.len() - 1]);
        assert!(of[0] >= Duration::from_millis(20), "{of:?}");
        assert!(of[of.len() / 2] < Duration::from_millis(22) + late, "late by {late:?}: {of:?}");
    }
}

fn round_trips(net: &EmulatedNet, [here, there]: [IpAddr; 2]) -> Vec<Duration> {
    let near = udp(net.namespace(0).unwrap(), here);
    let far = udp(net.namespace(1).unwrap(), there);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 2048];
            for _ in 0..20 {
                let (len, from) = loop {
                    match far.recv_from(&mut buffer) {
                        Ok(got) => break got,
                        Err(_) => continue,
                    }
                };
                far.send_to(&buffer[..len], from).unwrap();
            }
        });
        let trip = |number| {
            let (sent, mut buffer) = (content(number, 100), [0; 2048]);
            let start = Instant::now();
            near.send_to(&sent, at(there)).unwrap();
            let len = loop {
                match near.recv(&mut buffer) {
                    Ok(len) => break len,
                    Err(_) => assert!(start.elapsed().as_secs() < 5, "no answer"),
                }
            };
            assert_eq!(buffer[..len], sent);
            start.elapsed()
        };
        (0..20).map(trip).collect()
    })
}

/// Goal: the kernel's own TCP gets a file over unchanged, at nearly the rate of the link.
#[test]
fn tcp_fills_the_link_and_its_bytes_arrive_unchanged() {
    let Some(_alone) = alone() else { return };
    let net = net(SLOW);
    // 4 s: the first round trips do not count for much.
    let bytes = content(7, 2_000_000);
    let measure = || {
        net.switch().forget_lateness().unwrap();
        let bit_per_s = transfer(&net, &bytes);
        let seen = net.switch().snapshot().unwrap();
        conserved(&seen);
        (seen.validity, bit_per_s)
    };
    timed(measure, |bit_per_s| {
        println!("TCP: {:.2} Mbit/s of payload over 4 Mbit/s", bit_per_s / 1e6);
        assert!(bit_per_s > 0.8 * RATE, "{bit_per_s}");
    });
}

fn transfer(net: &EmulatedNet, bytes: &[u8]) -> f64 {
    let address = (IpAddr::from(net.ipv4(1)), 9001);
    let listener = in_namespace(net.namespace(1).unwrap(), || TcpListener::bind(address)).unwrap().unwrap();
    thread::scope(|scope| {
        let receiving = scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            got
        });
        let start = Instant::now();
        let connect = || TcpStream::connect(address);
        let mut stream = in_namespace(net.namespace(0).unwrap(), connect).unwrap().unwrap();
        stream.write_all(bytes).unwrap();
        drop(stream);
        assert!(receiving.join().unwrap() == bytes, "the bytes changed on the way");
        bytes.len() as f64 * 8.0 / start.elapsed().as_secs_f64()
    })
}

/// Goal: networks beside each other have the same addresses and nothing else in common.
#[test]
fn two_networks_side_by_side_do_not_touch() {
    let Some(_alone) = alone() else { return };
    let nets = [net(DUMBBELL), net(DUMBBELL)];
    assert_ne!(nets[0].run_id(), nets[1].run_id());
    let ends = nets
        .each_ref()
        .map(|net| [0, 1].map(|host| udp(net.namespace(host).unwrap(), net.ipv4(host).into())));
    for number in 0..50 {
        for (which, ([near, _], net)) in (0..).zip(ends.iter().zip(&nets)) {
            near.send_to(&content(1000 * which + number, PAYLOAD), at(net.ipv4(1).into())).unwrap();
        }
    }
    for (which, [_, far]) in (0..).zip(&ends) {
        let wanted: Vec<Vec<u8>> = (0..50).map(|number| content(1000 * which + number, PAYLOAD)).collect();
        assert_eq!(drain(far, Duration::from_millis(500)), wanted);
    }
    drop(ends);
    let [first, second] = nets;
    let first = first.stop().unwrap();
    conserved(&first);
    assert_eq!(first.counts.delivered.frames, 50);
    // The other one goes on.
    assert_eq!(second.switch().snapshot().unwrap().counts.delivered.frames, 50);
}

/// Goal: a datagram to a group gets to each of its members, once, and to nobody else.
#[test]
fn a_group_gets_what_is_sent_to_it() {
    let Some(_alone) = alone() else { return };
    let net = net(r#"fabric = { kind = "big-switch", hosts = 4, rate = "20 Mbit/s", delay = "1 ms" }"#);
    let group = Ipv4Addr::new(239, 1, 1, 1);
    net.switch().set_group(group.into(), 0, vec![HostId(1), HostId(2)]).unwrap();
    let ends: Vec<UdpSocket> = (0..4)
        .map(|host| {
            let namespace = net.namespace(host).unwrap();
            let socket = udp(namespace, Ipv4Addr::UNSPECIFIED.into());
            let join = || socket.join_multicast_v4(&group, &net.ipv4(host));
            in_namespace(namespace, join).unwrap().unwrap();
            socket.set_multicast_loop_v4(false).unwrap();
            socket
        })
        .collect();
    let wanted: Vec<Vec<u8>> = (0..20).map(|number| content(number, 500)).collect();
    wanted.iter().for_each(|bytes| _ = ends[0].send_to(bytes, at(group.into())).unwrap());
    for (host, end) in ends.iter().enumerate() {
        let got = drain(end, Duration::from_millis(300));
        // A kernel's messages about its own groups go nowhere, and no socket would read them.
        assert_eq!(got, if host == 1 || host == 2 { wanted.clone() } else { vec![] }, "host {host}");
    }
    conserved(&net.switch().snapshot().unwrap());
    let taken = net.switch().set_group([10, 99, 0, 1].into(), 1, vec![]).unwrap_err().to_string();
    assert!(taken.contains("10.99.0.1"), "{taken}");
}
