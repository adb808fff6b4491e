//! The tile for 64-bit Arm; all `unsafe` of this architecture: vectors to and from memory.

#![allow(unsafe_code)]

use std::arch::aarch64::*;
use std::ops::Range;

use super::{Backend, HALVES, Speed};

const VECTOR: usize = 16;
const INPUTS: usize = 2;
const OUTPUTS: usize = 4;
/// The tables of the lower and of the upper half.
type Factor = (uint8x16_t, uint8x16_t);

/// Every 64-bit Arm has it.
pub(super) static BACKEND: Backend = Backend {
    name: "neon",
    inputs: INPUTS,
    // Not measured: less than half of what 32-byte vectors do by the same means.
    speed: Speed { many: 30.0, one: 20.0 },
    // SAFETY: NEON is part of the architecture's base.
    pass: |outputs, inputs, bytes, rows, from| unsafe { pass(outputs, inputs, bytes, rows, from) },
};

tile!("neon");

#[target_feature(enable = "neon")]
#[inline]
unsafe fn load(bytes: *const u8) -> uint8x16_t {
    // SAFETY: the caller points to 16 bytes; this load asks for no alignment.
    unsafe { vld1q_u8(bytes) }
}

#[target_feature(enable = "neon")]
#[inline]
unsafe fn store(vector: uint8x16_t, bytes: *mut u8) {
    // SAFETY: the caller points to 16 bytes of its own; this store asks for no alignment.
    unsafe { vst1q_u8(bytes, vector) }
}

#[target_feature(enable = "neon")]
#[inline]
fn load_part(bytes: &[u8]) -> uint8x16_t {
    let mut whole = [0; VECTOR];
    whole[..bytes.len()].copy_from_slice(bytes);
    // SAFETY: as many bytes as a vector has.
    unsafe { load(whole.as_ptr()) }
}

#[target_feature(enable = "neon")]
#[inline]
fn store_part(vector: uint8x16_t, bytes: &mut [u8]) {
    let mut whole = [0; VECTOR];
    // SAFETY: as many bytes as a vector has.
    unsafe { store(vector, whole.as_mut_ptr()) };
    bytes.copy_from_slice(&whole[..bytes.len()]);
}

#[target_feature(enable = "neon")]
#[inline]
fn factor(coefficient: u8) -> Factor {
    let tables = HALVES[usize::from(coefficient)].as_ptr();
    // SAFETY: 16 bytes are read at the front and in the middle of 32.
    unsafe { (vld1q_u8(tables), vld1q_u8(tables.add(16))) }
}

#[target_feature(enable = "neon")]
#[inline]
fn multiply_add(sum: uint8x16_t, vector: uint8x16_t, (low, high): Factor) -> uint8x16_t {
    let low = vqtbl1q_u8(low, vandq_u8(vector, vdupq_n_u8(15)));
    let high = vqtbl1q_u8(high, vshrq_n_u8::<4>(vector));
    veorq_u8(sum, veorq_u8(low, high))
}
