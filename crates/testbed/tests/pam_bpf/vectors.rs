//! Test vectors: frames that come to a port, what leaves it, and what each of them, and the control program, changes in its registers.
//!
//! A file has a line of tables, a line of registers at the beginning, and a line per step.

use std::collections::BTreeMap;

use etherparse::PacketBuilder;
use headwater_switch::{
    AllocatorVariant, Claim, HardwareState, HardwareTables, RateAllocator, RateAllocatorConfig,
};
use headwater_units::{BitRate, Bytes, Duration, Rank, Time};
use headwater_wire::{SCHEDULING_AT, lower_offer, peek_scheduling};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use serde_json::json;

/// Array and place of a register.
pub(crate) type Place = (String, u32);
/// The fields of each register.
pub(crate) type Registers = BTreeMap<Place, Vec<u64>>;

/// The arrays, as the program names them; `active` is a field of `port_of`.
pub(crate) const REGISTERS: [&str; 15] = [
    "active",
    "available_of",
    "count_a",
    "count_b",
    "critical_heard",
    "critical_of",
    "critical_rate",
    "filter_a0",
    "filter_a1",
    "filter_a2",
    "filter_b0",
    "filter_b1",
    "filter_b2",
    "loads",
    "reservation_of",
];

/// Events at a port.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    line: u64,
    round_trip: Duration,
    filter_cells: u32,
    ipv6: bool,
    transfers: u64,
    steps: u32,
    /// Whether everybody sends and nobody ends, so that the tables fill.
    fills: bool,
}

pub(crate) const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "slow-line",
        line: 500_000,
        round_trip: Duration::from_millis(100),
        filter_cells: 64,
        ipv6: false,
        transfers: 12,
        steps: 400,
        fills: false,
    },
    Scenario {
        name: "gigabit",
        line: 1_000_000_000,
        round_trip: Duration::from_micros(100),
        filter_cells: 256,
        ipv6: true,
        transfers: 40,
        steps: 400,
        fills: false,
    },
    Scenario {
        name: "hundred-gigabit",
        line: 100_000_000_000,
        round_trip: Duration::from_micros(20),
        filter_cells: 256,
        ipv6: false,
        transfers: 20,
        steps: 300,
        fills: false,
    },
    Scenario {
        name: "many",
        line: 10_000_000_000,
        round_trip: Duration::from_millis(1),
        filter_cells: 1 << 15,
        ipv6: false,
        transfers: 1 << 40,
        steps: 2500,
        fills: true,
    },
];

/// A register is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Write {
    pub(crate) array: String,
    pub(crate) at: u32,
    pub(crate) value: Vec<u64>,
}

impl Write {
    pub(crate) fn new(place: &Place, value: &[u64]) -> Write {
        Write { array: place.0.clone(), at: place.1, value: value.to_vec() }
    }
}

/// One after the other.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The control program writes.
    Control { at: Time, writes: Vec<Write> },
    /// A frame comes, leaves as it is or with another offer, and changes registers.
    Packet { at: Time, frame: Vec<u8>, sent: Option<Vec<u8>>, writes: Vec<Write> },
}

pub(crate) struct Vectors {
    pub(crate) tables: HardwareTables,
    pub(crate) begin: Registers,
    pub(crate) steps: Vec<Step>,
}

impl Vectors {
    pub(crate) fn of(scenario: &Scenario) -> Vectors {
        let line = BitRate::new(scenario.line);
        let variant = AllocatorVariant::Hardware { shifts: 4, filter_cells: scenario.filter_cells };
        let config = RateAllocatorConfig {
            port: scenario.steps,
            ..RateAllocatorConfig::new(variant, scenario.round_trip)
        };
        let mut allocator = RateAllocator::new(&config, line).unwrap();
        let (tables, state) = allocator.hardware().unwrap();
        let mut registers = flat(&state);
        let (begin, mut steps) = (registers.clone(), Vec::new());
        let mut rng = ChaCha8Rng::seed_from_u64(scenario.steps.into());
        let mut now = Time::ZERO + Duration::from_nanos(1);
        for number in 0..scenario.steps {
            let pause = if rng.random_ratio(1, 40) { 15 } else { 1 };
            let most = scenario.round_trip.as_nanos() / if scenario.fills { 200 } else { 8 } * pause;
            now += Duration::from_nanos(rng.random_range(0..most.max(1)));
            allocator.catch_up(now);
            let writes = changed(&mut registers, &allocator);
            if !writes.is_empty() {
                steps.push(Step::Control { at: now, writes });
            }
            let payload = payload(&mut rng, scenario, number);
            // UDP in IPv4 may leave its checksum out.
            let is_summed = scenario.ipv6 || rng.random_ratio(3, 4);
            let bytes = frame(scenario.ipv6, is_summed, &payload);
            let claim = peek_scheduling(&payload).filter(|(_, kind, _)| kind.is_negotiated());
            let claim = claim.map(|(flow, kind, scheduling)| Claim::new(flow, kind, &scheduling));
            let queued = Bytes::new(rng.random_range(0..20_000));
            let offer = allocator.pass(now, Bytes::new(bytes.len() as u64), queued, claim.as_ref());
            let mut lowered = payload.clone();
            if let Some(offer) = offer {
                lower_offer(&mut lowered, offer);
            }
            let sent = Some(frame(scenario.ipv6, is_summed, &lowered)).filter(|sent| *sent != bytes);
            let writes = changed(&mut registers, &allocator);
            steps.push(Step::Packet { at: now, frame: bytes, sent, writes });
        }
        Vectors { tables, begin, steps }
    }

    /// As it stands in a file.
    pub(crate) fn text(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let entries = |table: &[[u8; 8]]| table.iter().map(|entry| hex(entry)).collect::<Vec<_>>().join(" ");
        let tables = &self.tables;
        let head = json!({
            "hash_key": tables.hash_key,
            "filter_cells": tables.filter_cells,
            "settling_ns": tables.settling.as_nanos(),
            "unit": tables.unit,
            "line": tables.line,
            "division": entries(&tables.division),
            "division_log": entries(&tables.division_log),
        });
        let list = |writes: &[Write]| -> Vec<serde_json::Value> {
            writes.iter().map(|write| json!([write.array, write.at, write.value])).collect()
        };
        let begin: Vec<Write> = self.begin.iter().map(|(place, value)| Write::new(place, value)).collect();
        let begin: Vec<Write> =
            begin.into_iter().filter(|write| write.value.iter().any(|field| *field != 0)).collect();
        let mut lines = vec![json!({ "tables": head }), json!({ "begin": list(&begin) })];
        lines.extend(self.steps.iter().map(|step| match step {
            Step::Control { at, writes } => json!({ "at_ns": at.as_nanos(), "control": list(writes) }),
            Step::Packet { at, frame, sent, writes } => json!({
                "at_ns": at.as_nanos(),
                "frame": hex(frame),
                "changed": sent.as_ref().map(|sent| patch(frame, sent)),
                "registers": list(writes),
            }),
        }));
        lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// The bytes that differ, from the first to the last of each stretch, with their place.
fn patch(frame: &[u8], sent: &[u8]) -> Vec<serde_json::Value> {
    let differing: Vec<usize> = (0..frame.len()).filter(|at| frame[*at] != sent[*at]).collect();
    let stretches = differing.chunk_by(|a, b| b - a == 1);
    stretches
        .map(|it| json!([it[0], it.iter().map(|at| format!("{:02x}", sent[*at])).collect::<String>()]))
        .collect()
}

/// Registers that differ from before, which is now as it is.
fn changed(registers: &mut Registers, allocator: &RateAllocator) -> Vec<Write> {
    let now = flat(&allocator.hardware().unwrap().1);
    let writes = now.iter().filter(|(place, value)| registers.get(*place) != Some(*value));
    let writes = writes.map(|(place, value)| Write::new(place, value)).collect();
    *registers = now;
    writes
}

fn flat(state: &HardwareState) -> Registers {
    let mut all = Registers::new();
    let mut put = |array: &str, at: usize, value: &[u64]| {
        all.insert((array.to_owned(), at as u32), value.to_vec());
    };
    put("active", 0, &[state.active.into()]);
    put("available_of", 0, &[state.available.into()]);
    state.loads.iter().enumerate().for_each(|(at, load)| put("loads", at, &[(*load).into()]));
    for (filter, name) in ["a", "b"].into_iter().enumerate() {
        put(&format!("count_{name}"), 0, &[state.counts[filter].into()]);
        for (array, words) in state.filters[filter].iter().enumerate() {
            words
                .iter()
                .enumerate()
                .for_each(|(at, word)| put(&format!("filter_{name}{array}"), at, &[*word]));
        }
    }
    let (transfer, rank) = state.critical.map_or((0, Rank::LAST), |(transfer, rank)| (transfer.0, rank));
    put("critical_of", 0, &[transfer, rank.get().into()]);
    put("critical_rate", 0, &[state.critical_rate.into()]);
    put("critical_heard", 0, &[state.critical_heard.as_nanos()]);
    let held = state.reservation.map_or([0; 5], |(transfer, rank, rate, until)| {
        [transfer.0, rate.get(), until.as_nanos(), rank.get().into(), 1]
    });
    put("reservation_of", 0, &held);
    all
}

/// A payload of UDP: mostly a scheduled datagram, by the bytes.
fn payload(rng: &mut ChaCha8Rng, scenario: &Scenario, number: u32) -> Vec<u8> {
    let most = if scenario.fills { SCHEDULING_AT + 12 } else { 90 };
    let mut bytes: Vec<u8> = (0..rng.random_range(SCHEDULING_AT + 10..most)).map(|_| rng.random()).collect();
    let transfer =
        if scenario.fills { u64::from(number) * 77 } else { rng.random_range(1..=scenario.transfers) };
    // Data, last, probe, fin, feedback, nack, and one that there is not.
    let kind = match rng.random_range(0..100) {
        _ if scenario.fills && number > 20 && !number.is_multiple_of(10) => 0,
        0..40 => 0,
        40..45 => 1,
        45..75 => 2,
        75..85 => 3,
        85..88 => 4,
        88..90 => 5,
        90..92 => 6,
        // Something else.
        _ => return bytes,
    };
    (bytes[0], bytes[1]) = if kind < 2 { (0x11, 0x10 | (bytes[1] & 0x0f)) } else { (0x10, bytes[1]) };
    bytes[4..12].copy_from_slice(&transfer.to_be_bytes());
    let excess = (64 - scenario.line.leading_zeros()).saturating_sub(24) as u8;
    // Now and then another unit than the port's.
    let unit = if rng.random_ratio(1, 10) { (excess + 3).min(31) } else { excess };
    bytes[SCHEDULING_AT] = kind << 5 | unit;
    let rank: u32 = match rng.random_range(0..20) {
        0 => Rank::LAST.get(),
        // Often the same as another's.
        _ => (transfer as u32 % 7) << 16 | rng.random_range(0..2),
    };
    let whole = (scenario.line >> unit) as u32;
    let rate = rng.random_range(0..=whole);
    let offer = if rng.random_ratio(2, 3) { whole } else { rng.random_range(0..=whole) };
    for (field, value) in [rank, rate, offer].into_iter().enumerate() {
        let at = SCHEDULING_AT + 1 + 3 * field;
        bytes[at..at + 3].copy_from_slice(&value.to_be_bytes()[1..]);
    }
    bytes
}

/// UDP in IP in Ethernet, with all checksums or without UDP's.
fn frame(ipv6: bool, is_summed: bool, payload: &[u8]) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [1, 0, 0x5e, 1, 1, 1]);
    let ip = match ipv6 {
        false => ethernet.ipv4([10, 0, 0, 1], [239, 1, 1, 1], 64),
        true => ethernet.ipv6([0xfd; 16], [0xff; 16], 64),
    };
    let udp = ip.udp(7000, 7000);
    let mut bytes = Vec::with_capacity(udp.size(payload.len()));
    udp.write(&mut bytes, payload).unwrap();
    if !is_summed {
        let at = bytes.len() - payload.len() - 2;
        bytes[at..at + 2].fill(0);
    }
    bytes
}
