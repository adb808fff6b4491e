//! Linear combinations of byte strings over GF(256) with the field polynomial of RFC 6330 §5.7 (0x11d).
//!
//! [`Kernel::combine`] adds `inputs` times a matrix of coefficients to `outputs`. It walks the inputs once, a few at a
//! time, and keeps the outputs in the cache; what such a *pass* is made of differs from machine to machine and is
//! picked at run time, once. Multiplication by a constant is linear over GF(2), so a byte is multiplied either by an 8x8
//! bit matrix (the affine instruction of GFNI, whose own multiplication has another polynomial) or by two 16-entry
//! tables of its halves (Plank, Greenan, Miller, "Screaming Fast Galois Field Arithmetic Using Intel SIMD Instructions",
//! FAST 2013). Every pass must give what the portable one gives. Knows nothing of symbols and blocks.

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

#[macro_use]
mod tile;

#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Most bytes of a strip of inputs and outputs that is worked on at once, so that the inputs of a pass and the outputs
/// at hand (four of either) stay in a first-level cache of 32 KiB. Shorter strips were slower with 25 and with 100
/// outputs, by 10 to 30 %: a pass has work of its own before its first byte.
const LONGEST_STRIP: usize = 4096;

/// One way to multiply and add.
struct Backend {
    name: &'static str,
    /// Inputs that a pass takes at most.
    inputs: usize,
    speed: Speed,
    pass: Pass,
}

/// Adds to the same part of each output the same part of each input, each times a coefficient: `rows[o][from + i]` for
/// output `o` and input `i`. At least one input, and no more than the backend takes.
type Pass = fn(outputs: &mut [&mut [u8]], inputs: &[&[u8]], part: Range<usize>, rows: &[&[u8]], from: usize);

/// How fast a kernel is, for the choice between it and the sparse solver: measured on one core of a Zen 5 machine,
/// whose sparse solver that choice knows too; elsewhere both are slower together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed {
    /// Bytes multiplied and added in a nanosecond with many outputs (100 of 8192 bytes from 1000 inputs).
    pub(crate) many: f64,
    /// The same with one output, where reading the inputs takes longest.
    pub(crate) one: f64,
}

/// Multiplies and adds byte strings over GF(256): the instructions that do it.
#[derive(Clone, Copy)]
pub struct Kernel(&'static Backend);

impl Kernel {
    /// The fastest that this machine has. Found out once.
    pub fn fastest() -> Kernel {
        static FASTEST: OnceLock<Kernel> = OnceLock::new();
        *FASTEST.get_or_init(|| Kernel::available().next().expect("the portable kernel runs anywhere"))
    }

    /// All that this machine has, the fastest first, the portable one last.
    pub fn available() -> impl Iterator<Item = Kernel> {
        #[cfg(target_arch = "x86_64")]
        let native = x86::available();
        #[cfg(target_arch = "aarch64")]
        let native = [&neon::BACKEND];
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let native = [];
        native.into_iter().chain([&portable::BACKEND]).map(Kernel)
    }

    /// `avx512+gfni`, `avx2+gfni`, `avx512`, `avx2`, `neon` or `portable`.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    pub(crate) fn speed(self) -> Speed {
        self.0.speed
    }

    /// Adds to each output the sum of the inputs, each times a coefficient: `rows[o][i]` for output `o` and input `i`.
    /// All outputs and inputs are equally long.
    pub(crate) fn combine(self, outputs: &mut [&mut [u8]], inputs: &[&[u8]], rows: &[&[u8]]) {
        let Some(len) = outputs.first().map(|output| output.len()) else { return };
        assert!(
            outputs.iter().all(|output| output.len() == len) && inputs.iter().all(|input| input.len() == len),
            "what is added up has one length"
        );
        assert!(outputs.len() == rows.len(), "each output has its coefficients");
        let strip = strip_len(len);
        for start in (0..len).step_by(strip) {
            let part = start..len.min(start + strip);
            for (from, inputs) in (0..).step_by(self.0.inputs).zip(inputs.chunks(self.0.inputs)) {
                (self.0.pass)(outputs, inputs, part.clone(), rows, from);
            }
        }
    }

    /// Multiplies `bytes` by `factor`. `scratch` is overwritten.
    pub(crate) fn scale(self, bytes: &mut [u8], factor: u8, scratch: &mut Vec<u8>) {
        scratch.clear();
        scratch.extend_from_slice(bytes);
        // Adding is its own opposite: f x = x + (f + 1) x.
        self.combine(&mut [bytes], &[scratch], &[&[factor ^ 1]]);
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How much of each output is made before the next part of any is begun.
fn strip_len(len: usize) -> usize {
    // Equal strips, of whole vectors: no short one is left over.
    let strips = len.div_ceil(LONGEST_STRIP).max(1);
    len.div_ceil(strips).next_multiple_of(64).max(64)
}

/// Powers of 2, which generates the field's multiplicative group (RFC 6330 §5.7.3), twice over.
static POWERS: [u8; 510] = powers();

/// The exponent of each element but 0 (RFC 6330 §5.7.4).
static EXPONENTS: [u8; 256] = exponents();

/// The two tables of each factor: it times 0..16, and it times 0, 16, 32 .. 240.
static HALVES: [[u8; 32]; 256] = halves();

const fn powers() -> [u8; 510] {
    let (mut powers, mut i, mut value) = ([0; 510], 0, 1u16);
    while i < 510 {
        powers[i] = value as u8;
        value <<= 1;
        if value & 0x100 != 0 {
            value ^= 0x11d;
        }
        i += 1;
    }
    powers
}

const fn exponents() -> [u8; 256] {
    let (powers, mut exponents, mut i) = (powers(), [0; 256], 0);
    while i < 255 {
        exponents[powers[i] as usize] = i as u8;
        i += 1;
    }
    exponents
}

const fn halves() -> [[u8; 32]; 256] {
    let (powers, exponents) = (powers(), exponents());
    let (mut halves, mut factor) = ([[0; 32]; 256], 1);
    while factor < 256 {
        let mut half = 1;
        while half < 16 {
            let exponent = exponents[factor] as usize;
            halves[factor][half] = powers[exponent + exponents[half] as usize];
            halves[factor][16 + half] = powers[exponent + exponents[half << 4] as usize];
            half += 1;
        }
        factor += 1;
    }
    halves
}

/// The inverse of `a`: the product of both is 1. `a` is not 0.
pub(crate) fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    POWERS[255 - usize::from(EXPONENTS[usize::from(a)])]
}

#[cfg(test)]
mod tests;
