//! The running switch under frames of every kind, right and wrong ones, beside a flow that minds its own business.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use headwater_fabric::HostId;
use headwater_testbed::emulate::EmulatedNet;
use headwater_testbed::soft_switch::{FramePort, MAX_FRAME, PacketPort, RingConfig, Snapshot, in_namespace};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::common::{alone, at, conserved, content, drain, net, udp};

#[path = "../../../testbed/tests/frames/mod.rs"]
mod frames;
use frames::{Kind, Network, PORTS};

/// Jumbo frames pass; no link is ever full.
const NETWORK: &str = r#"
    fabric = { kind = "big-switch", hosts = 4, rate = "1 Gbit/s", delay = "100 us" }
    packet = { data = "9014 B" }
    port = { queue = "unlimited", mark_threshold = "none" }
"#;
/// Host that storms; the good flow is from host 0 to host 1.
const STORMER: u32 = 2;
/// Frames of each half of the storm.
const HALF: u32 = 20_000;
/// Frames that are sent at once, and what is between these.
const BURST: usize = 8;
const GAP: Duration = Duration::from_millis(1);
/// Most bytes by which the memory of the process after both halves may differ: buffers for a burst that the first half
/// did not see. If one in ten frames were kept somewhere, it would be more than that.
const GROWTH: u64 = 4 << 20;

/// Goal: nothing that a host sends stops the switch, takes its memory, falls out of its counts, or harms others.
#[test]
fn a_storm_of_any_frames_is_survived_and_accounted_for_and_harms_nobody() {
    let Some(_alone) = alone() else { return };
    let net = net(NETWORK);
    net.switch().set_group([239, 1, 1, 0].into(), 0, vec![HostId(1), HostId(3)]).unwrap();
    let stormer = net.namespace(STORMER as usize).unwrap();
    // It only sends, so its ring is small and soon full.
    let open = || PacketPort::open("eth0", RingConfig { slots: 1, max_frame: 64 });
    let mut port = in_namespace(stormer, open).unwrap().unwrap();
    let [near, far] = [0, 1].map(|host| udp(net.namespace(host).unwrap(), net.ipv4(host).into()));
    // The receiver may be held up by whatever else the machine does.
    let _ = socket2::SockRef::from(&far).set_recv_buffer_size(16 << 20);
    assert!(PORTS < u32::from(near.local_addr().unwrap().port()));

    let before = (quiet(&net), sent_by_hosts(&net));
    let (stop, mut storm) = (AtomicBool::new(false), Storm::new());
    let (sent, received, memory) = thread::scope(|scope| {
        let sending = scope.spawn(|| flow(&near, &net, &stop));
        let receiving = scope.spawn(|| receive(&far, &stop));
        let memory = [0, 1].map(|_| {
            storm.half(&mut port);
            thread::sleep(Duration::from_millis(100));
            resident()
        });
        stop.store(true, Ordering::Relaxed);
        (sending.join().unwrap(), receiving.join().unwrap(), memory)
    });
    let seen = quiet(&net);
    let stormed: u32 = storm.sent.iter().sum();
    println!("{stormed} stormed, {sent} of the good flow, memory {memory:?}, {:?}", seen.validity);

    assert_eq!(sent, received, "the good flow: {seen:?}");
    assert!(sent > 1_000 && storm.sent.iter().all(|of| *of > 500), "{sent} {:?}", storm.sent);
    assert!(memory[1] <= memory[0] + GROWTH, "{memory:?}");

    // Whatever hosts put on their cables was read, or counted as not; and each that was read has an end.
    conserved(&seen);
    let now = sent_by_hosts(&net);
    for (host, (port, before_port)) in seen.ports.iter().zip(&before.0.ports).enumerate() {
        let read = |it: &headwater_testbed::soft_switch::RingStats| {
            it.received + it.kernel_drops + it.too_long + it.without_checksum
        };
        assert_eq!(now[host] - before.1[host], read(port) - read(before_port), "host {host}: {port:?}");
    }
    let status = net.status().unwrap();
    assert_eq!(
        status.injected + status.copied + status.duplicated,
        status.delivered + status.dropped + status.lost + status.unroutable,
        "{status:?}"
    );
    assert_eq!(status.not_forwarded.len(), seen.not_forwarded.len(), "every reason: {status:?}");
    assert!(status.copied > 0 && status.unroutable > 0);
    assert_eq!((status.dropped, status.lost), (0, 0));
    // Nothing is inside, so no frame has a buffer.
    assert_eq!((seen.in_flight, seen.buffers), (0, 0));
    assert_eq!(seen.links.iter().map(|link| link.queue).sum::<u64>(), 0);
    net.stop().unwrap();
}

struct Storm {
    rng: ChaCha8Rng,
    /// By kind, of which more than the kernel takes are not: some it refuses.
    sent: [u32; Kind::ALL.len()],
}

impl Storm {
    fn new() -> Storm {
        Storm { rng: ChaCha8Rng::seed_from_u64(4), sent: [0; Kind::ALL.len()] }
    }

    fn half(&mut self, port: &mut PacketPort) {
        // A cable with tags carries longer frames; that there is a length at which it ends is tested elsewhere.
        let network = Network { hosts: 4, groups: 2, longest: 9014 };
        let before: u32 = self.sent.iter().sum();
        let mut next = Instant::now();
        while self.sent.iter().sum::<u32>() < before + HALF {
            let burst: Vec<(usize, Vec<u8>)> = (0..BURST)
                .map(|_| {
                    let kind = self.rng.random_range(0..Kind::ALL.len());
                    let mut pick = |end: u32| self.rng.random_range(0..end.max(1));
                    (kind, frames::frame(Kind::ALL[kind], network, STORMER, &mut pick))
                })
                // The kernel sends nothing shorter than this, and nothing longer.
                .filter(|(_, bytes)| (15..MAX_FRAME.min(network.longest + 4)).contains(&bytes.len()))
                .collect();
            let bytes: Vec<&[u8]> = burst.iter().map(|(_, bytes)| &bytes[..]).collect();
            let done = port.send(&bytes).unwrap();
            burst[..done].iter().for_each(|(kind, _)| self.sent[*kind] += 1);
            next += GAP;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// A datagram each millisecond; how many.
fn flow(socket: &UdpSocket, net: &EmulatedNet, stop: &AtomicBool) -> u32 {
    let to = at(net.ipv4(1).into());
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        socket.send_to(&content(sent, 1000), to).unwrap();
        sent += 1;
        thread::sleep(Duration::from_millis(1));
    }
    sent
}

/// Those that arrive, in order and unchanged; how many.
fn receive(socket: &UdpSocket, stop: &AtomicBool) -> u32 {
    let mut received = 0;
    let mut check = |bytes: &[u8]| {
        assert!(bytes == content(received, 1000), "datagram {received} is another");
        received += 1;
    };
    let mut buffer = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        if let Ok(len) = socket.recv(&mut buffer) {
            check(&buffer[..len]);
        }
    }
    drain(socket, Duration::from_millis(300)).iter().for_each(|bytes| check(bytes));
    received
}

/// The counts when nothing moves any more.
fn quiet(net: &EmulatedNet) -> Snapshot {
    let start = Instant::now();
    let mut last = net.switch().snapshot().unwrap();
    loop {
        thread::sleep(Duration::from_millis(200));
        let now = net.switch().snapshot().unwrap();
        if now.in_flight == 0 && now.ports == last.ports {
            return now;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "it does not come to rest: {now:?}");
        last = now;
    }
}

/// By host, how many frames its kernel has put on the cable.
fn sent_by_hosts(net: &EmulatedNet) -> Vec<u64> {
    let of = |host| {
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let table = in_namespace(net.namespace(host).unwrap(), read).unwrap();
        let line = table.lines().find_map(|line| line.trim().strip_prefix("eth0:")).unwrap();
        // Eight columns of what was received, then bytes and packets sent.
        line.split_whitespace().nth(9).unwrap().parse().unwrap()
    };
    (0..net.hosts()).map(of).collect()
}

/// Memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}
