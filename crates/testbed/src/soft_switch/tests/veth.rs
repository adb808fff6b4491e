//! Frames between real interfaces: two hosts in namespaces, and the switch's ports in a third.
//!
//! Needs the right to make namespaces, or else is skipped with the reason.
#![allow(clippy::disallowed_methods, reason = "drives real sockets on a real clock")]

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use std::{io, thread};

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use headwater_switch::{Destination, Frame as _};
use headwater_udp::{PathAddr, RecvBatch, SendBatch, SocketOptions, UdpPort};
use headwater_units::Duration;
use headwater_wire::{Class, DSCP_TRIMMED, Ecn};

use super::super::{
    AddressBook, FramePool, FramePort, MAX_FRAME, PORT_BATCH, PacketPort, RawBuffer, RawFrame, RingConfig,
    TRIM_SIZE, in_namespace, offloads_off, wait,
};

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0x10], [2, 0, 0, 0, 0, 0x11]];
/// Destination of the hosts' frames; nobody has it.
const SOMEBODY: &str = "02:00:00:00:00:99";

/// Host n is in namespace n with `eth0`, whose far end is `port<n>` in the middle.
struct Lab {
    hosts: [String; 2],
    middle: String,
}

impl Lab {
    fn build(mtu: u32) -> Option<Lab> {
        static NEXT: AtomicU32 = AtomicU32::new(7000);
        let run = format!("hw-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let lab = Lab { hosts: [format!("{run}-h0"), format!("{run}-h1")], middle: format!("{run}-mid") };
        let mut script = "set -e\n".to_owned();
        for namespace in [&lab.middle, &lab.hosts[0], &lab.hosts[1]] {
            script += &format!("ip netns add {namespace}\n");
        }
        let quiet = "for f in all default; do echo 1 > /proc/sys/net/ipv6/conf/$f/disable_ipv6; done";
        script += &format!("nsenter --net=/run/netns/{} sh -c '{quiet}'\n", lab.middle);
        for (n, host) in lab.hosts.iter().enumerate() {
            let (middle, other) = (&lab.middle, 1 - n);
            script += &format!(
                "ip -n {middle} link add port{n} mtu {mtu} type veth peer name eth0 mtu {mtu} \
                   address 02:00:00:00:00:1{n} netns {host}\n\
                 ip -n {middle} link set port{n} up\n\
                 ip -n {host} link set eth0 up\n\
                 ip -n {host} addr add 10.98.0.1{n}/24 dev eth0\n\
                 ip -n {host} addr add fd98::1{n}/64 dev eth0 nodad\n\
                 ip -n {host} neigh add 10.98.0.1{other} lladdr {SOMEBODY} dev eth0 nud permanent\n\
                 ip -n {host} neigh add fd98::1{other} lladdr {SOMEBODY} dev eth0 nud permanent\n"
            );
        }
        let built = Command::new("sh").args(["-c", &script]).stderr(Stdio::piped()).output().unwrap();
        if built.status.success() {
            return Some(lab);
        }
        headwater_skips::cannot(format_args!(
            "no namespaces here: {}",
            String::from_utf8_lossy(&built.stderr).trim()
        ));
        None
    }

    fn offloads_off(&self) {
        for host in &self.hosts {
            in_namespace(host, || offloads_off("eth0")).unwrap().unwrap();
        }
    }

    fn port(&self, number: usize, config: RingConfig) -> PacketPort {
        in_namespace(&self.middle, || PacketPort::open(&format!("port{number}"), config)).unwrap().unwrap()
    }

    /// A host's own interface as a port, to send and receive any bytes.
    fn host_port(&self, host: usize) -> PacketPort {
        in_namespace(&self.hosts[host], || PacketPort::open("eth0", RingConfig::default())).unwrap().unwrap()
    }

    fn udp(&self, host: usize, address: IpAddr) -> UdpPort {
        let bind = || UdpPort::bind(SocketAddr::new(address, 9000), &SocketOptions::default());
        in_namespace(&self.hosts[host], bind).unwrap().unwrap()
    }

    fn link(&self, namespace: &str, device: &str, to: &str) {
        let set = ["-n", namespace, "link", "set", device, to];
        assert!(Command::new("ip").args(set).status().unwrap().success());
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for namespace in self.hosts.iter().chain([&self.middle]) {
            let _ = Command::new("ip").args(["netns", "delete", namespace]).stderr(Stdio::null()).status();
        }
    }
}

fn v4(host: u8) -> IpAddr {
    [10, 98, 0, 10 + host].into()
}

fn v6(host: u16) -> IpAddr {
    [0xfd98, 0, 0, 0, 0, 0, 0, 0x10 + host].into()
}

fn book() -> AddressBook {
    let mut book = AddressBook::new();
    for host in 0..2 {
        book.insert_host(v4(host as u8), host).unwrap();
        book.insert_host(v6(host as u16), host).unwrap();
    }
    book
}

/// Length of datagram `n`, and its bytes: a number, then what follows from it.
fn content(n: u32) -> Vec<u8> {
    let len = [1400, 4, 731, 1452, 64][n as usize % 5];
    let body = (0..len).map(|at| (n.wrapping_mul(2_654_435_761).wrapping_add(at * 7) >> 3) as u8);
    n.to_be_bytes().into_iter().chain(body.skip(4)).collect()
}

/// Whether the other library finds the UDP checksum right.
fn has_right_checksum(frame: &RawFrame) -> bool {
    let packet = SlicedPacket::from_ethernet(frame.bytes()).unwrap();
    let Some(TransportSlice::Udp(udp)) = packet.transport else { panic!("all of it is UDP") };
    let header = udp.to_header();
    let expected = match packet.net.unwrap() {
        NetSlice::Ipv4(ip) => header.calc_checksum_ipv4(&ip.header().to_header(), udp.payload()),
        NetSlice::Ipv6(ip) => header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload()),
        _ => panic!("all of it is IP"),
    };
    expected.unwrap() == header.checksum
}

/// Receives until `enough`, for at most five seconds.
fn receive_until(
    port: &mut PacketPort,
    pool: &FramePool,
    mut enough: impl FnMut(&[RawBuffer]) -> bool,
) -> Vec<RawBuffer> {
    let (mut frames, start) = (Vec::new(), Instant::now());
    while !enough(&frames) && start.elapsed().as_secs() < 5 {
        wait([&*port], Some(Duration::from_millis(10))).unwrap();
        assert!(port.receive(pool, &mut frames).unwrap() <= PORT_BATCH);
    }
    frames
}

fn udp_frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(MACS[0], MACS[1])
        .ipv4([10, 98, 0, 10], [10, 98, 0, 11], 64)
        .udp(9000, 9000)
        .write(&mut frame, payload)
        .unwrap();
    frame
}

/// Sends `count` datagrams from host 0 to host 1 through the two ports and compares each; every 16th is marked.
fn carry(lab: &Lab, from: IpAddr, to: IpAddr, count: u32) {
    let (mut sender, mut receiver) = (lab.udp(0, from), lab.udp(1, to));
    let (mut left, mut right) = (lab.port(0, RingConfig::default()), lab.port(1, RingConfig::default()));
    let (pool, book) = (FramePool::new(512), book());
    let (mut out, mut inbox) = (SendBatch::new(1 << 20, 64), RecvBatch::new(8));
    let (mut buffers, mut frames) = (Vec::new(), Vec::<RawFrame>::new());
    let (mut sent, mut forwarded, mut seen, mut marks, mut other) = (0, 0, 0, 0, 0);
    let mut warm = None;
    let start = Instant::now();
    while seen < count {
        assert!(
            start.elapsed().as_secs() < 60,
            "{sent} sent, {forwarded} forwarded, {seen} seen: {:?}",
            left.stats()
        );
        while sent < count && sent - seen < 200 {
            let bytes = content(sent);
            let Some(room) = out.push(PathAddr::to(SocketAddr::new(to, 9000)), Ecn::Ect0 as u8, bytes.len())
            else {
                break;
            };
            room.copy_from_slice(&bytes);
            sent += 1;
        }
        assert_eq!(sender.flush(&mut out).unwrap().lost, 0);
        wait([&left], Some(Duration::from_millis(1))).unwrap();
        left.receive(&pool, &mut buffers).unwrap();
        for buffer in buffers.drain(..) {
            match RawFrame::parse(buffer, &book) {
                Ok(mut frame) if frame.destination() == Destination::Host(1) => {
                    assert!(has_right_checksum(&frame));
                    assert_eq!((frame.class(), frame.ecn()), (Class::Bulk, Ecn::Ect0));
                    if forwarded % 16 == 0 {
                        frame.mark();
                    }
                    frame.set_destination_mac(MACS[1]);
                    frames.push(frame);
                    forwarded += 1;
                }
                // The hosts' own IPv6 chatter.
                _ => other += 1,
            }
        }
        let done = right.send(&frames).unwrap();
        frames.drain(..done);
        while receiver.recv(&mut inbox).unwrap() > 0 {
            for datagram in inbox.datagrams() {
                assert_eq!(datagram.bytes, content(seen), "datagram {seen}");
                let expected = if seen % 16 == 0 { Ecn::Ce } else { Ecn::Ect0 };
                assert_eq!(datagram.tos.map(Ecn::from_tos), Some(expected));
                marks += u32::from(expected == Ecn::Ce);
                seen += 1;
            }
        }
        if warm.is_none() && seen > 1000 {
            warm = Some(pool.allocated());
        }
    }
    let (left, right) = (left.stats().unwrap(), right.stats().unwrap());
    assert_eq!((left.kernel_drops, left.without_checksum, left.too_long), (0, 0, 0));
    assert_eq!((left.received, right.sent), (u64::from(count) + other, u64::from(count)));
    assert_eq!((marks, right.refused), (count.div_ceil(16), 0));
    assert!(pool.allocated() <= 200 + PORT_BATCH as u64, "the pool grew with the traffic: {pool:?}");
    println!(
        "{to}: {seen} datagrams unchanged, {marks} marked, {other} other frames, {:?} buffers after 1000 and {} in the end, {:?}",
        warm,
        pool.allocated(),
        start.elapsed()
    );
}

#[test]
fn ten_thousand_datagrams_arrive_unchanged_and_those_marked_are_marked() {
    let Some(lab) = Lab::build(1500) else { return };
    lab.offloads_off();
    carry(&lab, v4(0), v4(1), 10_000);
    carry(&lab, v6(0), v6(1), 10_000);
}

#[test]
fn trimmed_datagram_arrives_as_an_ip_packet_on_its_own_code_point() {
    let Some(lab) = Lab::build(1500) else { return };
    let (mut sender, mut left, mut right) =
        (lab.host_port(0), lab.port(0, RingConfig::default()), lab.port(1, RingConfig::default()));
    let mut receiver = lab.host_port(1);
    let (pool, book) = (FramePool::new(64), book());
    let whole = udp_frame(&content(0));
    assert_eq!(sender.send(&vec![whole.clone(); 20]).unwrap(), 20);
    let ours = |frames: &[RawBuffer]| {
        let parsed = frames.iter().filter_map(|it| RawFrame::parse(it.clone(), &book).ok());
        parsed.filter(|it| it.destination() == Destination::Host(1)).collect::<Vec<RawFrame>>()
    };
    let mut frames = ours(&receive_until(&mut left, &pool, |it| ours(it).len() == 20));
    assert_eq!(frames.len(), 20);
    for frame in &mut frames {
        assert!(frame.trim());
        frame.set_destination_mac(MACS[1]);
    }
    assert_eq!(right.send(&frames).unwrap(), 20);
    let arrived = ours(&receive_until(&mut receiver, &pool, |it| ours(it).len() == 20));
    assert_eq!(arrived.len(), 20);
    for frame in arrived {
        assert_eq!((frame.dscp(), frame.len().get()), (DSCP_TRIMMED, u64::from(TRIM_SIZE)));
        assert_eq!(frame.bytes()[42..], whole[42..usize::from(TRIM_SIZE)], "what is left of the payload");
    }
}

#[test]
fn tag_that_the_kernel_took_out_is_put_back() {
    let Some(lab) = Lab::build(1500) else { return };
    let (mut sender, mut left) = (lab.host_port(0), lab.port(0, RingConfig::default()));
    let plain = udp_frame(&content(0));
    let tagged = [&plain[..12], &[0x81, 0, 0x60, 42], &plain[12..]].concat();
    sender.send(&[&tagged, &plain]).unwrap();
    let pool = FramePool::new(64);
    let is = |frames: &[RawBuffer], wanted: &[u8]| frames.iter().any(|it| it.bytes() == wanted);
    let frames = receive_until(&mut left, &pool, |it| is(it, &tagged) && is(it, &plain));
    assert!(is(&frames, &tagged) && is(&frames, &plain), "{:?}", left.stats());
    assert!(RawFrame::parse(pool.gather(&[&tagged]).unwrap(), &book()).is_ok());
}

#[test]
fn frames_whose_checksum_was_left_to_hardware_are_counted_and_not_forwarded() {
    let Some(lab) = Lab::build(1500) else { return };
    let bind = || UdpSocket::bind(SocketAddr::new(v4(0), 0));
    let sender = in_namespace(&lab.hosts[0], bind).unwrap().unwrap();
    let mut left = lab.port(0, RingConfig::default());
    let pool = FramePool::new(64);
    let send = || (0..10).for_each(|n| _ = sender.send_to(&content(n), (v4(1), 9000)).unwrap());
    let udp = |frames: &[RawBuffer]| frames.iter().filter(|it| it.bytes()[12..14] == [8, 0]).count();

    send();
    // Frames that will not come cannot be waited for; 50 ms are many times what a veth takes.
    let start = Instant::now();
    let frames = receive_until(&mut left, &pool, |_| start.elapsed().as_millis() > 50);
    assert_eq!((udp(&frames), left.stats().unwrap().without_checksum), (0, 10));
    lab.offloads_off();
    send();
    let frames = receive_until(&mut left, &pool, |it| udp(it) == 10);
    assert_eq!((udp(&frames), left.stats().unwrap().without_checksum), (10, 10));
}

#[test]
fn full_ring_drops_and_says_so() {
    let Some(lab) = Lab::build(1500) else { return };
    let (mut sender, mut left) = (lab.host_port(0), lab.port(0, RingConfig { slots: 1, max_frame: 1518 }));
    let sent = sender.send(&vec![udp_frame(&content(0)); 300]).unwrap();
    assert_eq!(sent, 300);
    let pool = FramePool::new(64);
    let start = Instant::now();
    let mut frames = Vec::new();
    // The last of them may still be on their way through the kernel.
    while (left.stats().unwrap().kernel_drops + frames.len() as u64) < 300 && start.elapsed().as_secs() < 5 {
        thread::sleep(std::time::Duration::from_millis(20));
        while left.receive(&pool, &mut frames).unwrap() > 0 {}
    }
    let stats = left.stats().unwrap();
    // One block of 64 KiB has 41 such slots.
    assert!(frames.len() >= 41 && stats.kernel_drops > 0, "{} frames, {stats:?}", frames.len());
    assert_eq!(stats.received, frames.len() as u64);
}

#[test]
fn jumbo_frames_pass_and_too_long_ones_are_refused_one_by_one() {
    let Some(lab) = Lab::build((MAX_FRAME - 14) as u32) else { return };
    let mut sender = lab.host_port(0);
    let (mut wide, mut narrow) =
        (lab.port(0, RingConfig { slots: 64, max_frame: MAX_FRAME }), lab.port(0, RingConfig::default()));
    let jumbo = udp_frame(&vec![7; MAX_FRAME - 42]);
    let (too_long, small) = (udp_frame(&vec![7; MAX_FRAME]), udp_frame(&[1]));
    assert_eq!(jumbo.len(), MAX_FRAME);
    assert_eq!(sender.send(&[&small, &too_long, &jumbo, &vec![0; 3], &small]).unwrap(), 5);
    let stats = sender.stats().unwrap();
    assert_eq!((stats.sent, stats.refused), (3, 2));

    let pool = FramePool::new(64);
    let count = |frames: &[RawBuffer], wanted: &[u8]| frames.iter().filter(|it| it.bytes() == wanted).count();
    let frames = receive_until(&mut wide, &pool, |it| count(it, &small) == 2);
    assert_eq!((count(&frames, &small), count(&frames, &jumbo)), (2, 1));
    let frames = receive_until(&mut narrow, &pool, |it| count(it, &small) == 2);
    assert_eq!((count(&frames, &small), count(&frames, &jumbo)), (2, 0));
    assert_eq!(narrow.stats().unwrap().too_long, 1);
}

#[test]
fn port_does_not_hear_itself_and_says_when_its_interface_goes() {
    let Some(lab) = Lab::build(1500) else { return };
    let mut left = lab.port(0, RingConfig::default());
    // Another port on the same interface, as a second switch would have it, must not hear it either.
    let mut second = lab.port(0, RingConfig::default());
    let pool = FramePool::new(64);
    assert_eq!(left.send(&vec![udp_frame(&[1, 2]); 10]).unwrap(), 10);
    thread::sleep(std::time::Duration::from_millis(50));
    for port in [&mut left, &mut second] {
        let mut frames = Vec::new();
        port.receive(&pool, &mut frames).unwrap();
        assert!(!frames.iter().any(|it| it.bytes() == udp_frame(&[1, 2])));
    }

    lab.link(&lab.middle, "port0", "down");
    let told = wait([&left], Some(Duration::from_secs(5))).unwrap_err();
    assert_eq!(told.raw_os_error(), Some(libc::ENETDOWN));
    assert_eq!(left.send(&[udp_frame(&[1])]).unwrap_err().raw_os_error(), Some(libc::ENETDOWN));
    lab.link(&lab.middle, "port0", "up");
    assert_eq!(left.send(&[udp_frame(&[1])]).unwrap(), 1);

    let missing = in_namespace(&lab.middle, || PacketPort::open("port7", RingConfig::default())).unwrap();
    let missing = missing.err().map(|error: io::Error| error.to_string()).unwrap();
    assert!(missing.contains("port7"), "{missing}");
    assert!(PacketPort::open("lo", RingConfig { slots: 0, max_frame: 1518 }).is_err());
}
