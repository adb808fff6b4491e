//! `--pcap` of a run: what went over each link, as the measures have it.

use std::path::{Path, PathBuf};

use etherparse::{LaxNetSlice, LaxSlicedPacket};
use headwater_testbed::soft_switch::SNAP;

use super::common::{Printed, alone, asks, it, tiny};

#[path = "../captures/mod.rs"]
mod captures;
use captures::{Packet, read};

/// Size of a frame with a symbol in it, and the number of such frames of the task that is captured here.
const FULL: usize = 1507;
const PACKETS: u64 = 400;
/// The link in the middle, bit/s.
const RATE: f64 = 4e6;

/// The folder of the only run.
fn only(folder: &Path) -> PathBuf {
    let entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [one] = &entries[..] else { panic!("{entries:?}") };
    one.clone()
}

fn is_marked(packet: &Packet) -> bool {
    let parsed = LaxSlicedPacket::from_ethernet(&packet.kept).unwrap();
    matches!(parsed.net, Some(LaxNetSlice::Ipv4(ip)) if ip.header().ecn().value() == 3)
}

/// Goal: each port has its file; in that of the bottleneck are all of the task's packets, as many as were counted, with the
/// marks that were counted, and no more bytes than setting up explains.
#[test]
fn captures_of_a_run_hold_what_its_measures_say() {
    let Some(_alone) = alone() else { return };
    let measure = |name: &str| asks(name, "{}", &format!("{{ kind = \"measure\", name = \"{name}\" }}"));
    let claims = [
        asks("packets", "{}", r#"{ kind = "column", table = "flows", column = "packets" }"#),
        ["marks", "hops", "span_s", "utilisation left-right"].map(measure).concat(),
    ];
    let folder = tiny(PACKETS, &claims.concat());
    let mut command = it(&folder);
    command.arg("--pcap").arg(folder.path().join("captures"));
    let said = Printed::by(command).ends_well();
    let captured = only(&only(&folder.path().join("captures")));
    let files = ["h0-left", "left-right", "right-h1", "h1-right", "right-left", "left-h0"]
        .map(|link| read(&captured.join(format!("{link}.pcap")), SNAP));
    for packets in &files {
        assert!(packets.is_sorted_by_key(|packet| packet.at));
    }
    let Some(packets) = said.value("packets") else { return };
    assert!(files.iter().all(|packets| packets.len() > 100), "ACKs at least");
    let middle = &files[1];
    let value = |claim: &str| said.value(claim).unwrap();
    assert_eq!(packets, PACKETS as f64);
    assert_eq!(middle.iter().filter(|packet| packet.len == FULL).count() as u64, PACKETS);
    // Where the switch is late, the first link marks too, and a packet that both mark is counted twice.
    let marked = |packets: &[Packet]| packets.iter().filter(|packet| is_marked(packet)).count() as f64;
    let counted = value("marks");
    assert!((marked(middle)..=marked(middle) + marked(&files[0])).contains(&counted), "{counted} marks");
    // Measures begin with the task and end with it; captures are of everything.
    let all: usize = files.iter().map(Vec::len).sum();
    assert!((1.0..1.2).contains(&(all as f64 / value("hops"))), "{all} frames, {} hops", value("hops"));
    let carried = value("utilisation left-right") * RATE * value("span_s") / 8.0;
    let bytes = middle.iter().map(|packet| packet.len).sum::<usize>() as f64;
    assert!((1.0..1.05).contains(&(bytes / carried)), "{bytes} captured, {carried} carried");
}
