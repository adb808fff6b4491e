//! Captures of a network's ports, read back.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use headwater_experiment::scenario::{Scenario, link_name};
use headwater_testbed::emulate::{EmulatedNet, NetOptions};
use headwater_testbed::soft_switch::{Snapshot, TRIM_SIZE};
use headwater_wire::{DSCP_TRIMMED, Ecn};

use super::common::{DUMBBELL, PAYLOAD, RATE, alone, conserved, flood};

#[path = "../captures/mod.rs"]
pub(crate) mod captures;
use captures::{Packet, read};

/// DSCP and ECN, of what is UDP to the port of floods.
fn traffic_class(packet: &Packet) -> Option<u8> {
    // Its payload may be cut off, by the capture or a switch.
    let parsed = etherparse::LaxSlicedPacket::from_ethernet(&packet.kept).unwrap();
    let Some(TransportSlice::Udp(udp)) = &parsed.transport else { return None };
    assert_eq!(udp.destination_port(), 9000);
    match parsed.net {
        Some(etherparse::LaxNetSlice::Ipv4(ip)) => {
            Some(ip.header().dcp().value() << 2 | ip.header().ecn().value())
        }
        _ => None,
    }
}

/// A flood at one and a half times the rate of the middle through a network whose ports are captured, and what was.
fn captured(text: &str, snap: usize, folder: &Path) -> (Snapshot, Vec<(String, Vec<Packet>)>) {
    let options = NetOptions { pcap: Some(folder.to_owned()), pcap_snap: snap, ..NetOptions::default() };
    let net = EmulatedNet::build_with(&Scenario::of_network(text).unwrap(), 1, &options).unwrap();
    let names: Vec<String> = (0..net.topology().fabric().link_count() as u32)
        .map(|link| link_name(net.topology(), headwater_fabric::LinkId(link)).unwrap())
        .collect();
    flood(&net, 1.5 * RATE, Duration::from_secs(1));
    let told = net.status().unwrap().capture.unwrap();
    assert_eq!((told.folder.as_path(), told.missed), (folder, 0));
    let seen = net.stop().unwrap();
    conserved(&seen);
    let files: Vec<(String, Vec<Packet>)> =
        names.into_iter().map(|name| (name.clone(), read(&folder.join(name + ".pcap"), snap))).collect();
    let all: usize = files.iter().map(|(_, packets)| packets.len()).sum();
    assert_eq!(seen.captured.map(|it| (it.frames, it.missed)), Some((all as u64, 0)));
    (seen, files)
}

/// Goal: every port has its file, in which are the frames that it has sent, marked as they were then, at the times at which
/// its line was done with them.
#[test]
fn captures_are_what_left_each_port_and_when() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let (seen, files) = captured(DUMBBELL, 128, folder.path());
    let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    for ((name, packets), link) in files.iter().zip(&seen.links) {
        assert_eq!(packets.len() as u64, link.port.frames_out, "{name}");
        assert_eq!(packets.iter().map(|it| it.len as u64).sum::<u64>(), link.port.bytes_out.get(), "{name}");
        assert!(packets.is_sorted_by_key(|it| it.at), "{name}");
        assert!(packets.iter().all(|it| (before..after).contains(&it.at)), "{name}");
    }
    let of = |wanted: &str| &files.iter().find(|(name, _)| name == wanted).unwrap().1;
    let marked = |packets: &[Packet]| {
        let classes = packets.iter().filter_map(traffic_class);
        classes.filter(|class| Ecn::from_tos(*class) == Ecn::Ce).count() as u64
    };
    let port = |wanted: &str| seen.links[files.iter().position(|(name, _)| name == wanted).unwrap()].port;
    let link = port("left-right");
    assert!(link.marked > 1000 && link.dropped > 100, "{link:?}");
    // A sender that was late sends a burst, of which its own line marks some; the middle counts what it marks anew.
    let [first, middle, last] = [of("h0-left"), of("left-right"), of("right-h1")].map(|it| marked(it));
    assert_eq!((first, last), (port("h0-left").marked, middle + port("right-h1").marked));
    assert!((link.marked..=link.marked + first).contains(&middle), "{middle} marked, {link:?}");
    // 1514 bytes at 20 Mbit/s and at 200; the queue in the middle is never empty while the flood lasts.
    let gaps = |packets: &[Packet]| packets.windows(2).map(|of| of[1].at - of[0].at).collect::<Vec<_>>();
    let middle = gaps(of("left-right"));
    assert!(middle.iter().all(|gap| *gap >= 605_600), "{:?}", middle.iter().min());
    let exact = middle.iter().filter(|gap| **gap == 605_600).count();
    assert!(exact * 100 > middle.len() * 95, "{exact} of {}", middle.len());
    assert!(gaps(of("h0-left")).iter().all(|gap| *gap >= 60_560));
    // A frame that left the middle reaches the last line 10 ms later and is through it 60.56 us after that.
    for (there, here) in of("right-h1").iter().zip(of("left-right")) {
        assert_eq!((there.at - here.at, &there.kept), (10_060_560, &here.kept));
    }
}

const TRIMS: &str = r#"
    fabric = { kind = "dumbbell", left = 1, right = 1, rate = "20 Mbit/s", delay = "1 ms" }
    nic = { queue = "unlimited", mark_threshold = "none" }
    [port]
    queue = "unlimited"
    mark_threshold = "none"
    when_full = "trim"
    classes = [{ of = [0], queue = "100 packets" }, { of = [1, 2, 3], queue = "20 packets" }]
"#;

/// Goal: what was trimmed is in the file as it left, and long packets are there as a whole if that is asked for.
#[test]
fn captures_show_what_was_trimmed_and_whole_packets() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (seen, files) = captured(TRIMS, 2000, folder.path());
    let middle = files.iter().position(|(name, _)| name == "left-right").unwrap();
    let is_cut = |it: &&Packet| traffic_class(it).is_some_and(|class| class >> 2 == DSCP_TRIMMED);
    let (cut, whole): (Vec<&Packet>, Vec<&Packet>) = files[middle].1.iter().partition(is_cut);
    assert_eq!(cut.len() as u64, seen.links[middle].port.trimmed);
    assert!(cut.len() > 300 && cut.iter().all(|it| it.len == usize::from(TRIM_SIZE)), "{}", cut.len());
    for packet in whole.into_iter().filter(|it| traffic_class(it).is_some()) {
        let parsed = SlicedPacket::from_ethernet(&packet.kept).unwrap();
        let (Some(NetSlice::Ipv4(_)), Some(TransportSlice::Udp(udp))) = (parsed.net, parsed.transport) else {
            panic!("not what was sent")
        };
        assert_eq!(udp.payload().len(), PAYLOAD);
    }
}
