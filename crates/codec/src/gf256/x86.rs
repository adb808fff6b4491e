//! Tiles for x86-64; all `unsafe` of this architecture: vectors to and from memory, and calls that need a feature.

#![allow(unsafe_code)]

use std::ops::Range;

use super::{Backend, HALVES, Speed};

/// Those that this machine can run, the fastest first.
pub(super) fn available() -> impl IntoIterator<Item = &'static Backend> {
    let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    let avx2 = is_x86_feature_detected!("avx2");
    let gfni = is_x86_feature_detected!("gfni");
    [
        (avx512 && gfni, &avx512_gfni::BACKEND),
        (avx512, &avx512_shuffle::BACKEND),
        (avx2 && gfni, &avx2_gfni::BACKEND),
        (avx2, &avx2_shuffle::BACKEND),
    ]
    .into_iter()
    .filter_map(|(present, backend)| present.then_some(backend))
}

/// Each factor's multiplication as the bit matrix of the affine instruction: the row of bit 0 in the highest byte.
static MATRICES: [u64; 256] = {
    let (halves, mut matrices, mut factor) = (super::halves(), [0; 256], 0);
    while factor < 256 {
        let mut column = 0;
        while column < 8 {
            // The factor times the byte whose only bit is `column`.
            let product = halves[factor][if column < 4 { 1 << column } else { 16 + (1 << (column - 4)) }];
            let mut row = 0;
            while row < 8 {
                matrices[factor] |= ((product >> row & 1) as u64) << (8 * (7 - row) + column);
                row += 1;
            }
            column += 1;
        }
        factor += 1;
    }
    matrices
};

/// Loads and stores of the wide vectors.
macro_rules! memory_512 {
    ($features:literal) => {
        #[target_feature(enable = $features)]
        #[inline]
        unsafe fn load(bytes: *const u8) -> __m512i {
            // SAFETY: the caller points to 64 bytes; this load asks for no alignment.
            unsafe { _mm512_loadu_si512(bytes.cast()) }
        }

        #[target_feature(enable = $features)]
        #[inline]
        unsafe fn store(vector: __m512i, bytes: *mut u8) {
            // SAFETY: the caller points to 64 bytes of its own; this store asks for no alignment.
            unsafe { _mm512_storeu_si512(bytes.cast(), vector) }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn load_part(bytes: &[u8]) -> __m512i {
            // SAFETY: the mask has a bit for each byte of the slice and no other; bytes outside it are not touched.
            unsafe { _mm512_maskz_loadu_epi8(mask(bytes.len()), bytes.as_ptr().cast()) }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn store_part(vector: __m512i, bytes: &mut [u8]) {
            // SAFETY: as for the load.
            unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask(bytes.len()), vector) }
        }

        fn mask(len: usize) -> __mmask64 {
            assert!(len < VECTOR, "only a part of a vector is masked");
            (1 << len) - 1
        }
    };
}

/// Loads and stores of the narrower vectors.
macro_rules! memory_256 {
    ($features:literal) => {
        #[target_feature(enable = $features)]
        #[inline]
        unsafe fn load(bytes: *const u8) -> __m256i {
            // SAFETY: the caller points to 32 bytes; this load asks for no alignment.
            unsafe { _mm256_loadu_si256(bytes.cast()) }
        }

        #[target_feature(enable = $features)]
        #[inline]
        unsafe fn store(vector: __m256i, bytes: *mut u8) {
            // SAFETY: the caller points to 32 bytes of its own; this store asks for no alignment.
            unsafe { _mm256_storeu_si256(bytes.cast(), vector) }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn load_part(bytes: &[u8]) -> __m256i {
            let mut whole = [0; VECTOR];
            whole[..bytes.len()].copy_from_slice(bytes);
            // SAFETY: as many bytes as a vector has.
            unsafe { load(whole.as_ptr()) }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn store_part(vector: __m256i, bytes: &mut [u8]) {
            let mut whole = [0; VECTOR];
            // SAFETY: as many bytes as a vector has.
            unsafe { store(vector, whole.as_mut_ptr()) };
            bytes.copy_from_slice(&whole[..bytes.len()]);
        }
    };
}

mod avx512_gfni {
    use std::arch::x86_64::*;

    use super::*;

    const VECTOR: usize = 64;
    const INPUTS: usize = 4;
    const OUTPUTS: usize = 4;
    type Factor = __m512i;

    pub(super) static BACKEND: Backend = Backend {
        name: "avx512+gfni",
        inputs: INPUTS,
        speed: Speed { many: 230.0, one: 60.0 },
        // SAFETY: given out by `available` only where these features are.
        pass: |outputs, inputs, bytes, rows, from| unsafe { pass(outputs, inputs, bytes, rows, from) },
    };

    memory_512!("avx512f,avx512bw,gfni");
    tile!("avx512f,avx512bw,gfni");

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    #[inline]
    fn factor(coefficient: u8) -> Factor {
        _mm512_set1_epi64(super::MATRICES[usize::from(coefficient)].cast_signed())
    }

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    #[inline]
    fn multiply_add(sum: __m512i, vector: __m512i, factor: Factor) -> __m512i {
        _mm512_xor_si512(sum, _mm512_gf2p8affine_epi64_epi8::<0>(vector, factor))
    }
}

mod avx2_gfni {
    use std::arch::x86_64::*;

    use super::*;

    const VECTOR: usize = 32;
    const INPUTS: usize = 2;
    const OUTPUTS: usize = 4;
    type Factor = __m256i;

    pub(super) static BACKEND: Backend = Backend {
        name: "avx2+gfni",
        inputs: INPUTS,
        speed: Speed { many: 115.0, one: 60.0 },
        // SAFETY: given out by `available` only where these features are.
        pass: |outputs, inputs, bytes, rows, from| unsafe { pass(outputs, inputs, bytes, rows, from) },
    };

    memory_256!("avx2,gfni");
    tile!("avx2,gfni");

    #[target_feature(enable = "avx2,gfni")]
    #[inline]
    fn factor(coefficient: u8) -> Factor {
        _mm256_set1_epi64x(super::MATRICES[usize::from(coefficient)].cast_signed())
    }

    #[target_feature(enable = "avx2,gfni")]
    #[inline]
    fn multiply_add(sum: __m256i, vector: __m256i, factor: Factor) -> __m256i {
        _mm256_xor_si256(sum, _mm256_gf2p8affine_epi64_epi8::<0>(vector, factor))
    }
}

mod avx512_shuffle {
    use std::arch::x86_64::*;

    use super::*;

    const VECTOR: usize = 64;
    const INPUTS: usize = 2;
    const OUTPUTS: usize = 4;
    /// The tables of the lower and of the upper half.
    type Factor = (__m512i, __m512i);

    pub(super) static BACKEND: Backend = Backend {
        name: "avx512",
        inputs: INPUTS,
        speed: Speed { many: 140.0, one: 60.0 },
        // SAFETY: given out by `available` only where these features are.
        pass: |outputs, inputs, bytes, rows, from| unsafe { pass(outputs, inputs, bytes, rows, from) },
    };

    memory_512!("avx512f,avx512bw");
    tile!("avx512f,avx512bw");

    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn factor(coefficient: u8) -> Factor {
        let tables = HALVES[usize::from(coefficient)].as_ptr();
        // SAFETY: 16 bytes are read at the front and in the middle of 32; these loads ask for no alignment.
        let (low, high) = unsafe { (_mm_loadu_si128(tables.cast()), _mm_loadu_si128(tables.add(16).cast())) };
        (_mm512_broadcast_i32x4(low), _mm512_broadcast_i32x4(high))
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn multiply_add(sum: __m512i, vector: __m512i, (low, high): Factor) -> __m512i {
        let mask = _mm512_set1_epi8(15);
        let low = _mm512_shuffle_epi8(low, _mm512_and_si512(vector, mask));
        let high = _mm512_shuffle_epi8(high, _mm512_and_si512(_mm512_srli_epi64::<4>(vector), mask));
        _mm512_xor_si512(sum, _mm512_xor_si512(low, high))
    }
}

mod avx2_shuffle {
    use std::arch::x86_64::*;

    use super::*;

    const VECTOR: usize = 32;
    const INPUTS: usize = 2;
    const OUTPUTS: usize = 2;
    /// The tables of the lower and of the upper half.
    type Factor = (__m256i, __m256i);

    pub(super) static BACKEND: Backend = Backend {
        name: "avx2",
        inputs: INPUTS,
        speed: Speed { many: 70.0, one: 50.0 },
        // SAFETY: given out by `available` only where these features are.
        pass: |outputs, inputs, bytes, rows, from| unsafe { pass(outputs, inputs, bytes, rows, from) },
    };

    memory_256!("avx2");
    tile!("avx2");

    #[target_feature(enable = "avx2")]
    #[inline]
    fn factor(coefficient: u8) -> Factor {
        let tables = HALVES[usize::from(coefficient)].as_ptr();
        // SAFETY: 16 bytes are read at the front and in the middle of 32; these loads ask for no alignment.
        let (low, high) = unsafe { (_mm_loadu_si128(tables.cast()), _mm_loadu_si128(tables.add(16).cast())) };
        (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn multiply_add(sum: __m256i, vector: __m256i, (low, high): Factor) -> __m256i {
        let mask = _mm256_set1_epi8(15);
        let low = _mm256_shuffle_epi8(low, _mm256_and_si256(vector, mask));
        let high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi64::<4>(vector), mask));
        _mm256_xor_si256(sum, _mm256_xor_si256(low, high))
    }
}
