//! A stranger on the data and control ports, and strange datagrams: a transfer never stops, grows or goes wrong.

#![allow(clippy::disallowed_methods, reason = "these tests drive processes and wait for them")]

mod cluster;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cluster::{Process, random_file, text};
use headwater_units::{BlockIndex, Esi, FlowId, FlowKey, PacketNumber, SymbolId};
use headwater_wire::{Assign, Assignment, Body, Class, Datagram, HeaderKey, SymbolHeader, Work, emit};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

const BYTES: usize = 12 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends junk to both ports until told to stop: noise, and well-formed headers with wild fields under wrong keys.
fn attack(ports: [u16; 3], stop: &AtomicBool, sent: &AtomicU64) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let mut replay: Vec<Vec<u8>> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        for port in ports.into_iter().filter(|&p| p != 0) {
            let bytes = match rng.random_range(0..4) {
                0 => {
                    let mut noise = vec![0; rng.random_range(0..1472)];
                    rng.fill_bytes(&mut noise);
                    noise
                }
                1 => wild_symbol(&mut rng),
                2 => wild_assignment(&mut rng),
                _ if replay.is_empty() => continue,
                _ => replay[rng.random_range(0..replay.len())].clone(),
            };
            // Towards loopback only; errors (a port that closed) do not matter.
            let _ = socket.send_to(&bytes, ("127.0.0.1", port));
            sent.fetch_add(1, Ordering::Relaxed);
            if replay.len() < 64 {
                replay.push(bytes);
            }
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn seal(rng: &mut ChaCha8Rng, body: Body, symbol_size: u16) -> Vec<u8> {
    let mut key = [0; 32];
    rng.fill_bytes(&mut key);
    let datagram = Datagram { class: Class::Bulk, key_epoch: rng.random(), flow: FlowId(rng.random()), body };
    let mut bytes = vec![0; datagram.len(symbol_size)];
    emit(&datagram, symbol_size, &HeaderKey::new(&FlowKey(key)), &mut bytes);
    bytes
}

fn wild_symbol(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let header = SymbolHeader {
        number: PacketNumber(rng.random::<u32>().into()),
        symbol: SymbolId { block: BlockIndex(rng.random()), esi: Esi(rng.random_range(0..1 << 24)) },
        ack_interval: rng.random_range(1..=255),
        ack_now: rng.random(),
        assignment: rng.random(),
        starved: rng.random(),
        syn: false,
        trimmed: false,
    };
    let size = rng.random_range(1..1400);
    seal(rng, Body::Symbol(header), size)
}

fn wild_assignment(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let work = Work::Blocks {
        first: BlockIndex(rng.random_range(0..1 << 30)),
        count: u16::MAX,
        attempt: rng.random(),
    };
    let assign = Assign {
        version: rng.random(),
        nonce: Some(rng.random()),
        receive_window: rng.random(),
        first_undecoded: BlockIndex(rng.random()),
        assignment: Assignment::Listed(vec![work; 90]),
        padded: false,
    };
    seal(rng, Body::Assign(Box::new(assign)), 0)
}

fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_stranger_on_the_ports_does_not_stop_corrupt_or_bloat_a_transfer() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content = random_file(&folder.join("object.bin"), BYTES, 5);
    let (file, state) = (text(&folder.join("object.bin")), text(&folder.join("source")));
    let serve = ["serve", &file, "--listen", "127.0.0.1:0", "--state", &state, "--limit", "60Mbit/s"];
    let mut source = Process::start(folder, "source", &serve);
    let ready = source.line(PATIENCE);
    let port =
        |key: &str| -> u16 { ready[key].as_str().unwrap().rsplit_once(':').unwrap().1.parse().unwrap() };
    let receiver_port = cluster::free_port();
    let ports = [port("address"), port("data_address"), receiver_port];
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let attacker = {
        let (stop, sent) = (stop.clone(), sent.clone());
        std::thread::spawn(move || attack(ports, &stop, &sent))
    };
    let (out, state) = (text(&folder.join("out.bin")), text(&folder.join("receiver")));
    let (from, data_port) = (format!("127.0.0.1:{}", ports[0]), receiver_port.to_string());
    let get =
        ["get", "object.bin", "--from", &from, "-o", &out, "--state", &state, "--data-port", &data_port];
    let ended = Process::start(folder, "receiver", &get).end(PATIENCE);
    let memory = resident(source.id());
    stop.store(true, Ordering::Relaxed);
    attacker.join().unwrap();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert_eq!(std::fs::read(folder.join("out.bin")).unwrap(), content);
    let result = ended.last.unwrap();
    assert_eq!(result["duplicate_share"].as_f64().map(|share| share < 0.01), Some(true), "{result}");
    let peak = result["peak_rss_bytes"].as_u64().unwrap().max(memory);
    println!("{} strange datagrams; peak memory {} MiB", sent.load(Ordering::Relaxed), peak >> 20);
    assert!(sent.load(Ordering::Relaxed) > 1000);
    assert!(peak < 200 << 20, "{peak} bytes resident");
}
