//! Objects that are pulled over switches that trim (SCDP), on real packets: what is cut off is asked for again, whatever is
//! left of its UDP header, flows drop from level to level, and a receiver with two cables uses both.

use std::path::Path;
use std::time::Duration;

use headwater_experiment::scenario::Scenario;
use headwater_testbed::emulate::{EmulatedNet, NetOptions};
use headwater_testbed::soft_switch::TRIM_SIZE;
use headwater_units::{BitRate, Bytes};
use headwater_wire::{Class, DSCP_TRIMMED, Delivery as By, class_of};

use super::cluster::{Process, random_file, text};
use super::common::{alone, conserved};
use super::nodes::{Delivery, node_with};
use super::pcap::captures::read;

/// Enough of a frame to see its code point.
const SNAP: usize = 64;

/// SCDP's ports (§III-C): headers and pulls in a queue of their own, a queue for each level, in all of which there is
/// room for `queue` symbols, and what finds none is trimmed.
fn network(fabric: &str, queue: u32, udp: &str) -> String {
    let level = |class: u8| format!("{{ of = [{class}], queue = \"{queue} packets\" }}");
    let levels = Class::LEVELS.map(|class| level(class as u8)).join(", ");
    format!(
        r#"
        fabric = {fabric}
        nic = {{ queue = "unlimited", mark_threshold = "none" }}
        [port]
        queue = "{queue} packets"
        mark_threshold = "none"
        when_full = "trim"
        trim = {{ udp = "{udp}" }}
        service = "first-against-rest"
        classes = [{{ of = [0], queue = "1000 packets", apart = true, weight = 10 }}, {levels}]
        "#
    )
}

/// A network whose ports are captured in this folder.
fn captured(network: &str, folder: &Path) -> EmulatedNet {
    let options = NetOptions { pcap: Some(folder.to_owned()), pcap_snap: SNAP, ..NetOptions::default() };
    EmulatedNet::build_with(&Scenario::of_network(network).unwrap(), 1, &options).unwrap()
}

/// Frames that have left the port of a link: whole ones by class, in the order of [`Class::ALL`], and those that were cut.
#[derive(Debug, Default)]
struct Carried {
    whole: [usize; Class::ALL.len()],
    cut: usize,
}

impl Carried {
    fn read(folder: &Path, link: &str) -> Carried {
        let mut carried = Carried::default();
        for packet in read(&folder.join(format!("{link}.pcap")), SNAP) {
            // Hosts greet each other by IPv6.
            if packet.kept[12..14] != [0x08, 0x00] {
                continue;
            }
            let dscp = packet.kept[15] >> 2;
            if dscp == DSCP_TRIMMED {
                assert_eq!(packet.len, usize::from(TRIM_SIZE));
                carried.cut += 1;
            } else {
                carried.whole[class_of(dscp) as usize] += 1;
            }
        }
        carried
    }

    fn of(&self, class: Class) -> usize {
        self.whole[class as usize]
    }
}

/// Four lines that are each ten times as fast as the receiver's.
const INCAST: &str = r#"{ kind = "dumbbell", left = 4, right = 1, rate = "10 Mbit/s", edge_rate = "100 Mbit/s", delay = "500 us" }"#;

/// Goal: four sources push more than the switch has room for, and whatever it cuts is seen and asked for again; nothing is
/// dropped, and no flow stays in the level that it began in.
#[test]
fn what_a_switch_trims_of_four_sources_is_pulled_again_whether_its_udp_header_is_stale_or_repaired() {
    const SOURCES: usize = 4;
    // Even one source that is alone at first has more to push than there is room for.
    const BY: By = By::Pull { initial_window: 30 };
    let Some(_alone) = alone() else { return };
    for form in ["stale", "repaired"] {
        let folder = tempfile::tempdir().unwrap();
        let net = captured(&network(INCAST, 20, form), folder.path());
        let source = |host| {
            // All levels within an object that comes in two seconds, each of more symbols than all that a burst loses.
            let levels = [80, 160, 240, 320].map(|kb| Bytes::new(kb * 1000));
            node_with(&net, host, |config| config.source.pull.demotion = Some(levels))
        };
        let receiver =
            node_with(&net, SOURCES, |config| config.receivers.pull.rate = BitRate::new(10_000_000));
        let delivery = Delivery::begin_by(BY, (0..SOURCES).map(source).collect(), receiver, Bytes::mib(2));
        let (receiver, counted) = delivery.end_counted();
        let seen = net.stop().unwrap();
        conserved(&seen);
        let carried = Carried::read(folder.path(), "left-right");
        let on_switch: u64 = seen.links.iter().map(|link| link.port.trimmed).sum();
        println!("{form}: {on_switch} trimmed, {} seen, {carried:?}", receiver.trimmed);

        assert!(receiver.pulls && receiver.sees_trimmed, "{receiver:?}");
        assert!(counted.corrupt == 0 && counted.flows.iter().all(|flow| flow.useful > 0), "{counted:?}");
        assert_eq!(seen.links.iter().map(|link| link.port.dropped).sum::<u64>(), 0);
        assert_eq!(carried.cut as u64, on_switch);
        // The last ones may come when their flow is over.
        assert!(receiver.trimmed > 0 && receiver.trimmed <= on_switch, "{on_switch} {receiver:?}");
        assert!(receiver.trimmed + receiver.strays >= on_switch, "{on_switch} {receiver:?}");
        for level in Class::LEVELS {
            assert!(carried.of(level) > 0, "nothing left in {level:?}: {carried:?}");
        }
    }
}

/// BCube(2,1): host 0 has a cable to the switch of host 1, and one to the switch of host 2.
const TWO_CABLES: &str = r#"{ kind = "bcube", n = 2, levels = 1, rate = "100 Mbit/s", delay = "200 us" }"#;
/// Cables that lead to host 0.
const CABLES: [&str; 2] = ["sw0.0-h0", "sw1.0-h0"];

/// Goal: of two sources, one behind each cable of a receiver, each brings its half over its own cable, although the receiver
/// paces its pulls for both together and the switches of both trim.
#[test]
fn a_receiver_with_two_cables_pulls_half_by_each() {
    const PATIENCE: Duration = Duration::from_secs(60);
    const BYTES: usize = 12 << 20;
    let Some(_alone) = alone() else { return };
    let captures = tempfile::tempdir().unwrap();
    let net = captured(&network(TWO_CABLES, 8, "stale"), captures.path());
    for cable in CABLES {
        net.fault(cable, &["rate", "20Mbit/s"].map(str::to_owned)).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let content = random_file(&folder.path().join("object.bin"), BYTES, 1);
    let process = |host: usize, name: &str, arguments: &[&str]| {
        let state = text(&folder.path().join(name));
        // The switches know pulls and headers by it.
        let arguments = [arguments, &["--state", &state, "--dscp-control", "48"]].concat();
        let command = net.command(host, env!("CARGO_BIN_EXE_headwater")).unwrap();
        Process::start_by(folder.path(), name, command, &arguments)
    };
    let object = text(&folder.path().join("object.bin"));
    let at = [(1, 0), (2, 1)].map(|(host, cable)| (host, format!("{}:7001", net.ipv4_on(host, cable))));
    let _sources = at.each_ref().map(|(host, at)| {
        let arguments = ["serve", &object, "--listen", at, "--uplink", "100Mbit/s"];
        let mut source = process(*host, &format!("source{host}"), &arguments);
        source.line(PATIENCE);
        source
    });
    let from = at.map(|(_, at)| at).join(",");
    let output = text(&folder.path().join("out.bin"));
    // Of both cables together.
    let arguments = ["get", "object.bin", "--from", &from, "-o", &output, "--transport", "pull"];
    let arguments = [&arguments[..], &["--downlink", "40Mbit/s", "--progress", "none"]].concat();
    let ended = process(0, "receiver", &arguments).end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let result = ended.last.unwrap();
    assert_eq!(result["verified"], true, "{result:#}");
    assert!(std::fs::read(&output).unwrap() == content, "the bytes are the object's");

    let links = net.status().unwrap().links;
    let seen = net.stop().unwrap();
    let carried = CABLES.map(|cable| Carried::read(captures.path(), cable));
    let bytes = CABLES.map(|cable| links.iter().find(|link| link.link == cable).unwrap().bytes as f64);
    println!("{bytes:?} bytes, {carried:?}, {} s: {}", result["seconds"], result["sources"]);
    conserved(&seen);
    for (place, carried) in carried.iter().enumerate() {
        let share = bytes[place] / bytes.iter().sum::<f64>();
        assert!((0.4..=0.6).contains(&share), "{bytes:?}");
        let of_object = result["sources"][place]["share"].as_f64().unwrap();
        assert!((0.4..=0.6).contains(&of_object), "{result:#}");
        // Only flows that are pulled have levels, and what each pushes at first is three times what there is room for.
        assert!(carried.of(Class::First) > 0 && carried.of(Class::Third) > 0, "{carried:?}");
        assert!(carried.cut > 0, "{carried:?}");
    }
}
