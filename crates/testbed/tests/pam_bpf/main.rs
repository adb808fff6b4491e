//! `p4/pam.bpf.c` does what the hardware variant of the rate allocator does, packet by packet and register by register.
//!
//! `HEADWATER_WRITE_VECTORS=1 cargo test -p headwater-testbed --test pam_bpf` writes the vectors anew.

mod kernel;
mod vectors;

use std::path::PathBuf;

use kernel::Kernel;
use vectors::{SCENARIOS, Step, Vectors};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../p4")
}

#[test]
fn the_vectors_are_what_the_hardware_variant_does() {
    for scenario in &SCENARIOS {
        let path = folder().join("vectors").join(format!("{}.jsonl", scenario.name));
        let text = Vectors::of(scenario).text();
        if std::env::var_os("HEADWATER_WRITE_VECTORS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap();
        assert!(kept == text, "{} is of another allocator; see the top of this test", path.display());
    }
}

#[test]
fn the_vectors_reach_every_way_through_the_pipeline() {
    let all: Vec<Vectors> = SCENARIOS.iter().map(Vectors::of).collect();
    let steps = || all.iter().flat_map(|vectors| &vectors.steps);
    let lowered = steps().filter(|step| matches!(step, Step::Packet { sent: Some(_), .. })).count();
    assert!(lowered > 300, "{lowered} offers are lowered");
    for array in vectors::REGISTERS {
        let by_packets = |step: &&Step| matches!(step, Step::Packet { writes, .. } if writes.iter().any(|it| it.array == array));
        let by_control = |step: &&Step| matches!(step, Step::Control { writes, .. } if writes.iter().any(|it| it.array == array));
        match array {
            "active" | "available_of" => assert!(steps().any(|step| by_control(&step)), "{array}"),
            _ => assert!(steps().any(|step| by_packets(&step)), "{array}"),
        }
    }
    let counts = steps().filter_map(|step| match step {
        Step::Packet { writes, .. } => {
            writes.iter().filter(|it| it.array.starts_with("count")).map(|it| it.value[0]).max()
        }
        Step::Control { .. } => None,
    });
    assert!(counts.max() > Some(2100), "the table of logarithms divides");
}

#[test]
fn the_program_has_no_multiplication_no_division_and_no_way_back() {
    let Some(object) = kernel::compiled(&folder().join("pam.bpf.c")) else { return };
    let instructions = kernel::instructions(&object);
    assert!(instructions.len() > 500, "{} instructions", instructions.len());
    for (at, [opcode, _, offset_low, offset_high, ..]) in instructions.iter().enumerate() {
        let (class, operation) = (opcode & 0x07, opcode & 0xf0);
        let is_arithmetic = matches!(class, 0x04 | 0x07);
        assert!(
            !(is_arithmetic && [0x20, 0x30, 0x90].contains(&operation)),
            "instruction {at} multiplies or divides"
        );
        let is_jump = matches!(class, 0x05 | 0x06) && ![0x80, 0x90].contains(&operation);
        let offset = i16::from_le_bytes([*offset_low, *offset_high]);
        assert!(!(is_jump && offset < 0), "instruction {at} jumps back");
    }
}

#[test]
fn the_kernel_runs_every_vector_as_the_switch_does() {
    let Some(object) = kernel::compiled(&folder().join("pam.bpf.c")) else { return };
    for scenario in &SCENARIOS {
        let vectors = Vectors::of(scenario);
        let mut kernel = match Kernel::load(&object, &vectors.tables) {
            Ok(kernel) => kernel,
            Err(why) => return headwater_skips::cannot(why),
        };
        let mut expected = vectors.begin.clone();
        kernel.write(
            &expected.iter().map(|(place, value)| vectors::Write::new(place, value)).collect::<Vec<_>>(),
        );
        for (number, step) in vectors.steps.iter().enumerate() {
            let writes = match step {
                Step::Control { writes, .. } => {
                    kernel.write(writes);
                    writes
                }
                Step::Packet { at, frame, sent, writes } => {
                    let out = kernel.run(*at, frame);
                    let sent = sent.as_ref().unwrap_or(frame);
                    assert!(out == *sent, "{} step {number}: another frame was sent", scenario.name);
                    writes
                }
            };
            writes.iter().for_each(|write| {
                drop(expected.insert((write.array.clone(), write.at), write.value.clone()))
            });
            // Words of filters by those that were written; all of them now and then.
            let all = number % 64 == 0;
            for (place, value) in &expected {
                let is_named = writes.iter().any(|write| (&write.array, write.at) == (&place.0, place.1));
                if all || is_named || !place.0.starts_with("filter") {
                    assert_eq!(kernel.read(place), *value, "{} step {number}: {place:?}", scenario.name);
                }
            }
        }
    }
}
