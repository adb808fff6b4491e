//! The pass in plain Rust: what the others are held against, and what runs where none of them does.

use std::ops::Range;

use super::{Backend, HALVES, Speed};

pub(super) static BACKEND: Backend =
    Backend { name: "portable", inputs: 4, speed: Speed { many: 2.8, one: 2.7 }, pass };

fn pass(outputs: &mut [&mut [u8]], inputs: &[&[u8]], bytes: Range<usize>, rows: &[&[u8]], from: usize) {
    for (output, row) in outputs.iter_mut().zip(rows) {
        let sums = &mut output[bytes.clone()];
        for (input, &coefficient) in inputs.iter().zip(&row[from..]) {
            let (low, high) = HALVES[usize::from(coefficient)].split_at(16);
            for (sum, &byte) in sums.iter_mut().zip(&input[bytes.clone()]) {
                *sum ^= low[usize::from(byte & 15)] ^ high[usize::from(byte >> 4)];
            }
        }
    }
}
