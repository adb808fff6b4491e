//! A packet that a switch has trimmed arrives as trimmed, whatever is left of its UDP header, and nobody can pretend.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use headwater_testbed::emulate::EmulatedNet;
use headwater_testbed::soft_switch::{FramePort, PacketPort, RingConfig, in_namespace};
use headwater_udp::{
    GroupAddr, PathAddr, RecvBatch, SendBatch, SocketOptions, TrimmedBatch, TrimmedPort, UdpPort,
};
use headwater_units::{BlockIndex, Bytes, Esi, FlowId, FlowKey, PacketNumber, SymbolId};
use headwater_wire::{
    Body, Class, DSCP_TRIMMED, Datagram, Ecn, HeaderKey, SymbolHeader, emit, mark_trimmed, parse,
    parse_trimmed,
};

use super::common::{alone, at, conserved, net, udp};
use super::nodes::{Delivery, FLOW, KEY, node};

/// Full packets of an IPv4 path.
const SYMBOL: u16 = 1424;
const SYMBOLS: u32 = 400;

/// Headers are never dropped; of what comes faster than 20 Mbit/s only some wait.
pub(crate) fn network(udp: &str, queue: u32) -> String {
    format!(
        r#"
        fabric = {{ kind = "dumbbell", left = 1, right = 1, rate = "20 Mbit/s", edge_rate = "1 Gbit/s", delay = "1 ms" }}
        nic = {{ queue = "unlimited", mark_threshold = "none" }}
        [port]
        queue = "unlimited"
        mark_threshold = "none"
        when_full = "trim"
        trim = {{ udp = "{udp}" }}
        classes = [{{ of = [0], queue = "1000 packets" }}, {{ of = [1, 2, 3, 4, 5], queue = "{queue} packets" }}]
        "#
    )
}

fn header(number: u32) -> SymbolHeader {
    let symbol = SymbolId { block: BlockIndex(number / 100), esi: Esi(number % 100) };
    SymbolHeader { syn: number < 10, ..SymbolHeader::new(PacketNumber(number.into()), symbol) }
}

/// A group, by a host's own address.
fn group(own: IpAddr) -> GroupAddr {
    GroupAddr::new("239.9.9.9:9200".parse().unwrap(), Some(own)).unwrap()
}

/// One symbol after another, as fast as the host can, and each is there once: whole, or cut; also if they are for a group.
fn each_arrives_whole_or_cut(net: &EmulatedNet, [near, far]: [IpAddr; 2], repaired: bool, grouped: bool) {
    let options = SocketOptions::default();
    let bind = || UdpPort::bind(at(near), &options);
    let mut sender = in_namespace(net.namespace(0).unwrap(), bind).unwrap().unwrap();
    let path = if grouped { group(near).path() } else { PathAddr::to(at(far)) };
    let open = || {
        let receiver =
            if grouped { UdpPort::join(&group(far), &options) } else { UdpPort::bind(at(far), &options) };
        let mut trimmed = TrimmedPort::open(at(far), DSCP_TRIMMED).unwrap();
        trimmed.set_ports([at(far).port(), path.remote.port()].into_iter()).unwrap();
        (receiver.unwrap(), trimmed)
    };
    let (mut receiver, mut trimmed) = in_namespace(net.namespace(1).unwrap(), open).unwrap();
    while grouped && net.switch().snapshot().unwrap().memberships == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let key = HeaderKey::new(&KEY);
    let before = trims(net);

    // IPv6 has 20 bytes less for it.
    let size = if far.is_ipv4() { SYMBOL } else { SYMBOL - 24 };
    let mut out = SendBatch::new(1 << 20, 64);
    for number in 0..SYMBOLS {
        let body = Body::Symbol(header(number));
        let datagram = Datagram { class: Class::First, key_epoch: 0, flow: FLOW, body };
        let (tos, len) = (27 << 2 | Ecn::Ect0 as u8, datagram.len(size));
        if !out.has_room(&path, tos, len) {
            assert_eq!(sender.flush(&mut out).unwrap().lost, 0);
        }
        let bytes = out.push(path, tos, len).expect("it was emptied");
        emit(&datagram, size, &key, bytes).fill(number as u8);
    }
    assert_eq!(sender.flush(&mut out).unwrap().lost, 0);

    let (mut whole, mut cut) = (Vec::new(), Vec::new());
    let (mut inbox, mut headers, start) = (RecvBatch::new(8), TrimmedBatch::default(), Instant::now());
    let check = |datagram: Datagram, from: PathAddr, tos: u8| {
        // Nothing can be answered from a group.
        let local = (!grouped || tos >> 2 != DSCP_TRIMMED || repaired).then_some(far);
        assert_eq!((from.remote, from.local), (at(near), local));
        assert_eq!(Ecn::from_tos(tos), Ecn::Ect0);
        let Body::Symbol(is) = datagram.body else { panic!("symbols were sent: {datagram:?}") };
        let number = is.number.0 as u32;
        assert_eq!(is, SymbolHeader { trimmed: tos >> 2 == DSCP_TRIMMED, ..header(number) });
        number
    };
    while whole.len() + cut.len() < SYMBOLS as usize && start.elapsed().as_secs() < 5 {
        receiver.recv(&mut inbox).unwrap();
        for datagram in inbox.datagrams() {
            let tos = datagram.tos.unwrap();
            if tos >> 2 == DSCP_TRIMMED {
                assert!(repaired, "UDP has no way to see it");
                cut.push(check(parse_trimmed(datagram.bytes, &key).unwrap(), datagram.from, tos));
            } else {
                let parsed = parse(datagram.bytes, &key).unwrap();
                assert_eq!(parsed.payload, vec![parsed.payload[0]; size.into()]);
                whole.push(check(parsed.datagram, datagram.from, tos));
            }
        }
        trimmed.recv(&mut headers).unwrap();
        for datagram in headers.datagrams() {
            assert!(!repaired, "it would be there twice");
            assert!((56..128).contains(&datagram.bytes.len()), "{}", datagram.bytes.len());
            cut.push(check(parse_trimmed(datagram.bytes, &key).unwrap(), datagram.from, datagram.tos));
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    println!("{far}: {} whole, {} cut, {:?}", whole.len(), cut.len(), trimmed.stats());
    assert!(cut.len() > 100 && whole.len() > 10);
    assert_eq!(cut.len() as u64, trims(net) - before);
    let mut all = [whole, cut].concat();
    all.sort_unstable();
    assert_eq!(all, (0..SYMBOLS).collect::<Vec<_>>(), "each once");
    assert_eq!(trimmed.stats().kernel_dropped + trimmed.stats().unusable, 0, "{:?}", trimmed.stats());
    conserved(&net.switch().snapshot().unwrap());
}

fn trims(net: &EmulatedNet) -> u64 {
    net.switch().snapshot().unwrap().links.iter().map(|link| link.port.trimmed).sum()
}

/// Goal: every symbol arrives once, whole or as a header with its number and its sender, over IPv4 and IPv6.
#[test]
fn trimmed_symbols_arrive_as_trimmed_whether_their_udp_header_is_stale_or_repaired() {
    let Some(_alone) = alone() else { return };
    for (form, repaired) in [("stale", false), ("repaired", true)] {
        let net = net(&network(form, 20));
        let v4 = [net.ipv4(0), net.ipv4(1)].map(IpAddr::from);
        each_arrives_whole_or_cut(&net, v4, repaired, false);
        each_arrives_whole_or_cut(&net, v4, repaired, true);
        if let Some(addresses) = net.ipv6(0).zip(net.ipv6(1)) {
            each_arrives_whole_or_cut(&net, [addresses.0, addresses.1].map(IpAddr::from), repaired, false);
        }
    }
}

/// Goal: a node tells its machines of what was trimmed, and what it did not lose arrives.
#[test]
fn a_delivery_over_a_switch_that_trims_sees_what_was_trimmed() {
    let Some(_alone) = alone() else { return };
    for form in ["stale", "repaired"] {
        let net = net(&network(form, 6));
        let delivery = Delivery::begin(&net, Bytes::mib(2));
        let receiver = delivery.end();
        let on_switch = trims(&net);
        println!("{form}: {on_switch} trimmed, {} seen", receiver.trimmed);
        assert!(receiver.sees_trimmed && !receiver.pulls);
        // The last ones may come when the flow is over.
        assert!(receiver.trimmed > 0 && receiver.trimmed <= on_switch, "{on_switch} {receiver:?}");
        assert!(receiver.trimmed + receiver.strays >= on_switch, "{on_switch} {receiver:?}");
    }
}

/// A frame from host 0 to host 1 as a switch might leave it: cut to 128 bytes, with UDP's length as it was.
fn forged(from: u16, port: u16, payload: &[u8], dscp: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    let ip = PacketBuilder::ethernet2([2; 6], [2; 6]).ipv4([10, 99, 0, 1], [10, 99, 0, 2], 64);
    ip.udp(from, port).write(&mut frame, payload).unwrap();
    let slice = etherparse::Ipv4HeaderSlice::from_slice(&frame[14..]).unwrap();
    let mut header = slice.to_header();
    header.dscp = dscp.try_into().unwrap();
    let udp_len = frame.len() - 34 + 500;
    header.header_checksum = header.calc_header_checksum();
    frame.splice(14..34, header.to_bytes());
    frame[38..40].copy_from_slice(&(udp_len as u16).to_be_bytes());
    frame
}

/// Goal: what only looks trimmed is counted as a stray if it is for this node, and not seen at all if not; a flag that
/// anybody can set says nothing.
#[test]
fn forged_headers_are_strays() {
    let Some(_alone) = alone() else { return };
    let net = net(&network("stale", 100));
    let receiver = node(&net, 1);
    let port = receiver.data_address().port();
    let open = || PacketPort::open("eth0", RingConfig { slots: 1, max_frame: 64 });
    let mut wire = in_namespace(net.namespace(0).unwrap(), open).unwrap().unwrap();

    let symbol = |key: &FlowKey, flow: FlowId| {
        let datagram = Datagram { class: Class::Bulk, key_epoch: 0, flow, body: Body::Symbol(header(3)) };
        let mut bytes = vec![0; datagram.len(SYMBOL)];
        emit(&datagram, SYMBOL, &HeaderKey::new(key), &mut bytes);
        bytes.truncate(86);
        bytes
    };
    let other_key = symbol(&FlowKey([9; 32]), FLOW);
    let strays = [
        forged(7, port, &other_key, DSCP_TRIMMED),
        forged(7, port, &symbol(&KEY, FlowId(77)), DSCP_TRIMMED),
        forged(7, port, &other_key[..31], DSCP_TRIMMED),
        forged(7, port, &[], DSCP_TRIMMED),
        forged(7, port, &[0xff; 86], DSCP_TRIMMED),
    ];
    // UDP's length says more than is there, so that no socket sees them: another port, another code point.
    let unseen = [forged(7, port ^ 1, &other_key, DSCP_TRIMMED), forged(7, port, &other_key, 0)];
    // As a switch would leave it, of a flow that the node has; and by an ordinary socket, with the flag that says so.
    let mut flagged = symbol(&KEY, FLOW);
    mark_trimmed(&mut flagged).unwrap();
    let ordinary = udp(net.namespace(0).unwrap(), net.ipv4(0).into());

    let delivery = Delivery::begin_at(&net, receiver, Bytes::kib(100));
    let genuine = forged(delivery.source_port(), port, &symbol(&KEY, FLOW), DSCP_TRIMMED);
    for _ in 0..20 {
        assert_eq!(wire.send(&strays).unwrap(), strays.len());
        assert_eq!(wire.send(std::slice::from_ref(&genuine)).unwrap(), 1);
        ordinary.send_to(&flagged, (net.ipv4(1), port)).unwrap();
        assert_eq!(wire.send(&unseen).unwrap(), unseen.len());
    }
    let start = Instant::now();
    while delivery.receiver_now().strays < 120 && start.elapsed().as_secs() < 5 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let now = delivery.receiver_now();
    assert_eq!((now.strays, now.trimmed), (120, 20), "{now:?}");
    // It has done no harm.
    assert_eq!(delivery.end().trimmed, 20);
}
