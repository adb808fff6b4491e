//! Goal: every kernel gives what schoolbook multiplication gives, whatever the length, the place and the counts.

use super::*;

/// A product by long multiplication, without any table.
fn schoolbook(a: u8, b: u8) -> u8 {
    let mut product = 0u16;
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            product ^= u16::from(a) << bit;
        }
    }
    for bit in (8..16).rev() {
        if product >> bit & 1 == 1 {
            product ^= 0x11d << (bit - 8);
        }
    }
    product as u8
}

fn multiply(a: u8, b: u8) -> u8 {
    let halves = &HALVES[usize::from(a)];
    halves[usize::from(b & 15)] ^ halves[16 + usize::from(b >> 4)]
}

/// Bytes that look random.
fn bytes(len: usize, seed: usize) -> Vec<u8> {
    let mut state = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let step = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..len).map(step).collect()
}

/// Expected result of `combine` on `outputs`.
fn expected(outputs: &[Vec<u8>], inputs: &[&[u8]], coefficients: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut sums = outputs.to_vec();
    for (sum, row) in sums.iter_mut().zip(coefficients) {
        for (input, &coefficient) in inputs.iter().zip(row) {
            for (sum, &byte) in sum.iter_mut().zip(*input) {
                *sum ^= multiply(coefficient, byte);
            }
        }
    }
    sums
}

fn slices_of(strings: &[Vec<u8>]) -> Vec<&[u8]> {
    strings.iter().map(|string| &**string).collect()
}

#[test]
fn products_are_those_of_long_multiplication() {
    for (a, b) in (0..=255u8).flat_map(|a| (0..=255u8).map(move |b| (a, b))) {
        assert_eq!(multiply(a, b), schoolbook(a, b), "{a} * {b}");
    }
}

#[test]
fn every_element_but_zero_has_an_inverse() {
    assert!((1..=255).all(|a| schoolbook(a, inverse(a)) == 1));
}

#[test]
fn every_kernel_multiplies_every_byte_by_every_factor() {
    let all: Vec<u8> = (0..=255).collect();
    for kernel in Kernel::available() {
        for factor in 0..=255 {
            let mut product = vec![0; 256];
            kernel.combine(&mut [&mut product], &[&all], &[&[factor]]);
            assert!(
                product.iter().zip(&all).all(|(&p, &b)| p == schoolbook(factor, b)),
                "{kernel:?} {factor}"
            );
            let (mut scaled, mut scratch) = (all.clone(), Vec::new());
            kernel.scale(&mut scaled, factor, &mut scratch);
            assert_eq!(scaled, product, "{kernel:?}");
        }
    }
}

#[test]
fn every_kernel_is_right_at_every_length_and_place_and_touches_nothing_else() {
    const ROOM: usize = 400;
    let source = bytes(ROOM * 7, 1);
    for kernel in Kernel::available() {
        for len in 0..=300 {
            // Counts up to one more than a tile, and different places in each vector's length.
            for (inputs, outputs, place) in [(1, 1, 0), (2, 3, 1), (4, 4, 33), (5, 5, 63), (7, 2, len % 64)] {
                let input: Vec<_> = (0..inputs).map(|i| &source[i * ROOM + place + i..][..len]).collect();
                let coefficients: Vec<_> = (0..outputs).map(|o| bytes(inputs, len + o)).collect();
                let before: Vec<_> = (0..outputs).map(|o| bytes(ROOM, 100 + o)).collect();
                let span = |o: usize| place + 2 * o..place + 2 * o + len;
                let outs: Vec<_> = before.iter().enumerate().map(|(o, b)| b[span(o)].to_vec()).collect();
                let mut after = before.clone();
                let mut slices: Vec<_> =
                    after.iter_mut().enumerate().map(|(o, bytes)| &mut bytes[span(o)]).collect();
                kernel.combine(&mut slices, &input, &slices_of(&coefficients));
                let wanted = expected(&outs, &input, &coefficients);
                for (o, (mut all, wanted)) in before.into_iter().zip(wanted).enumerate() {
                    all[span(o)].copy_from_slice(&wanted);
                    assert!(
                        after[o] == all,
                        "{kernel:?}: output {o} of {outputs}, {inputs} x {len} at {place}"
                    );
                }
            }
        }
    }
}

#[test]
fn long_strings_are_cut_into_strips_without_a_seam() {
    for (len, outputs) in [(1376, 40), (4097, 1), (8192, 3), (9001, 30)] {
        let inputs: Vec<_> = (0..9).map(|i| bytes(len, i)).collect();
        let inputs = slices_of(&inputs);
        let coefficients: Vec<_> = (0..outputs).map(|o| bytes(9, 50 + o)).collect();
        let before = vec![vec![7; len]; outputs];
        let wanted = expected(&before, &inputs, &coefficients);
        for kernel in Kernel::available() {
            let mut after = before.clone();
            let mut slices: Vec<_> = after.iter_mut().map(|bytes| &mut **bytes).collect();
            kernel.combine(&mut slices, &inputs, &slices_of(&coefficients));
            assert!(after == wanted, "{kernel:?}: {outputs} outputs of {len}");
        }
    }
}

#[test]
fn nothing_added_up_is_nothing() {
    for kernel in Kernel::available() {
        kernel.combine(&mut [], &[], &[]);
        let mut untouched = [5; 70];
        kernel.combine(&mut [&mut untouched], &[], &[&[]]);
        assert_eq!(untouched, [5; 70]);
    }
}
