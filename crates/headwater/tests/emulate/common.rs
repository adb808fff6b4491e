//! Networks to measure on, one at a time, and traffic.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use headwater_experiment::scenario::Scenario;
use headwater_testbed::emulate::EmulatedNet;
use headwater_testbed::soft_switch::{Snapshot, in_namespace};
use headwater_udp::{PathAddr, RecvBatch, SendBatch, SocketOptions, UdpPort};
use headwater_wire::Ecn;

/// 20 Mbit/s in the middle, 200 at the edges, 10 ms one way.
pub(crate) const DUMBBELL: &str = r#"
    fabric = { kind = "dumbbell", left = 1, right = 1, rate = "20 Mbit/s", delay = "10 ms" }
    port = { queue = "100 packets", mark_threshold = "30 packets" }
"#;
/// The middle's rate, bit/s.
pub(crate) const RATE: f64 = 20e6;
/// UDP payload that fills a 1500-byte IPv4 packet, and its frame as links count it.
pub(crate) const PAYLOAD: usize = 1472;
const FRAME: usize = PAYLOAD + 8 + 20 + 14;
const PORT: u16 = 9000;

/// The lock that keeps measurements apart; `None` where networks cannot be emulated.
pub(crate) fn alone() -> Option<MutexGuard<'static, ()>> {
    headwater_skips::alone(EmulatedNet::probe)
}

pub(crate) fn net(text: &str) -> EmulatedNet {
    EmulatedNet::build(&Scenario::of_network(text).unwrap(), 1).unwrap()
}

/// How late a thread of this test is woken, nine times of ten, while something is measured.
pub(crate) fn wake_lateness<T>(measure: impl FnOnce() -> T) -> (Duration, T) {
    const NAP: Duration = Duration::from_millis(1);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let naps = scope.spawn(|| {
            let mut late = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                thread::sleep(NAP);
                late.push(begun.elapsed().saturating_sub(NAP));
            }
            late.sort();
            late.get(late.len() * 9 / 10).copied().unwrap_or_default()
        });
        let measured = measure();
        is_over.store(true, Ordering::Relaxed);
        (naps.join().unwrap(), measured)
    })
}

/// Nothing is lost that is not counted.
pub(crate) fn conserved(seen: &Snapshot) {
    let (counts, queued) = (seen.counts, seen.links.iter().map(|link| link.queue).sum::<u64>());
    assert_eq!(
        counts.injected.frames + counts.copied.frames + counts.duplicated.frames,
        counts.delivered.frames
            + counts.dropped.frames
            + counts.lost.frames
            + counts.unroutable.frames
            + counts.gathered.frames
            + queued
            + seen.in_flight,
        "{seen:?}"
    );
    let read: u64 = seen.ports.iter().map(|port| port.received).sum();
    assert_eq!(read, counts.injected.frames + seen.not_forwarded.iter().sum::<u64>(), "{seen:?}");
    let sent: u64 = seen.ports.iter().map(|port| port.sent + port.refused).sum();
    assert_eq!(counts.delivered.frames, sent + seen.unsent, "{seen:?}");
}

/// A socket on a host, by the namespace's name; reads wait for 50 ms at most.
pub(crate) fn udp(namespace: &str, address: IpAddr) -> UdpSocket {
    let socket = in_namespace(namespace, || UdpSocket::bind((address, PORT))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    socket
}

pub(crate) fn at(address: IpAddr) -> SocketAddr {
    SocketAddr::new(address, PORT)
}

/// Datagrams that arrive until none has for `quiet`.
pub(crate) fn drain(socket: &UdpSocket, quiet: Duration) -> Vec<Vec<u8>> {
    let (mut got, mut last, mut buffer) = (Vec::new(), Instant::now(), [0; 9216]);
    while last.elapsed() < quiet {
        match socket.recv(&mut buffer) {
            Ok(len) => {
                got.push(buffer[..len].to_vec());
                last = Instant::now();
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}")
            }
        }
    }
    got
}

/// Bytes that follow from a number, which they begin with.
pub(crate) fn content(number: u32, len: usize) -> Vec<u8> {
    let byte = |at: usize| (number.wrapping_mul(2_654_435_761).wrapping_add(at as u32 * 7) >> 3) as u8;
    number.to_be_bytes().into_iter().chain((4..len).map(byte)).collect()
}

/// A receiver's counts of a flood.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flood {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) marked: u64,
    /// From the first to the last, Ethernet headers included.
    pub(crate) bit_per_s: f64,
}

/// Full packets with ECT(0) from host 0 to host 1, evenly at a rate; each that arrives is compared.
pub(crate) fn flood(net: &EmulatedNet, bit_per_s: f64, span: Duration) -> Flood {
    let port = |host: usize| {
        let bind = || UdpPort::bind(at(net.ipv4(host).into()), &SocketOptions::default());
        in_namespace(net.namespace(host).unwrap(), bind).unwrap().unwrap()
    };
    let (mut sender, mut receiver) = (port(0), port(1));
    let to = PathAddr::to(at(net.ipv4(1).into()));
    let done = AtomicBool::new(false);
    let mut flood = Flood::default();
    thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let (mut inbox, mut seen) = (RecvBatch::new(64), Flood::default());
            let (mut first, mut last) = (None, Instant::now());
            while !done.load(Ordering::Relaxed) || last.elapsed() < Duration::from_millis(200) {
                if receiver.recv(&mut inbox).unwrap() == 0 {
                    thread::sleep(Duration::from_micros(500));
                    continue;
                }
                last = Instant::now();
                first.get_or_insert(last);
                for datagram in inbox.datagrams() {
                    let number = u32::from_be_bytes(datagram.bytes[..4].try_into().unwrap());
                    assert_eq!(datagram.bytes, content(number, PAYLOAD));
                    seen.received += 1;
                    seen.marked += u64::from(datagram.tos.map(Ecn::from_tos) == Some(Ecn::Ce));
                }
            }
            let took = first.map_or(0.0, |first| (last - first).as_secs_f64());
            seen.bit_per_s = (seen.received.saturating_sub(1) as usize * FRAME * 8) as f64 / took.max(1e-9);
            seen
        });
        let (start, mut batch, mut sent) = (Instant::now(), SendBatch::new(1 << 20, 64), 0_u32);
        while start.elapsed() < span {
            let due = (start.elapsed().as_secs_f64() * bit_per_s / (FRAME * 8) as f64) as u32;
            while sent < due {
                // One at a time, as a pacing sender does: no bursts but those of a late wake-up.
                batch.push(to, Ecn::Ect0 as u8, PAYLOAD).unwrap().copy_from_slice(&content(sent, PAYLOAD));
                assert_eq!(sender.flush(&mut batch).unwrap().lost, 0);
                sent += 1;
            }
            thread::sleep(Duration::from_micros(300));
        }
        done.store(true, Ordering::Relaxed);
        flood = Flood { sent: sent.into(), ..counting.join().unwrap() };
    });
    flood
}
