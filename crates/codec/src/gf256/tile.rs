//! The loop of a tile, a few inputs times a few outputs, written once for all vector instructions.

/// Defines `pass`, the one of a [`super::Backend`], in the module of one instruction set.
///
/// The module has `VECTOR` (bytes of a vector), `INPUTS` and `OUTPUTS` of a tile, `Factor`, and, for the same target
/// features: `factor(u8) -> Factor`, `multiply_add(sum, vector, Factor)`, `load_part(&[u8])` and `store_part` for less
/// than a vector (the rest reads as zero), and, on pointers and for that reason unsafe, `load` and `store`.
macro_rules! tile {
    ($features:literal) => {
        #[target_feature(enable = $features)]
        fn pass(
            outputs: &mut [&mut [u8]],
            inputs: &[&[u8]],
            bytes: Range<usize>,
            rows: &[&[u8]],
            from: usize,
        ) {
            if let [input] = inputs {
                return tiles(outputs, [&input[bytes.clone()]], bytes, rows, from..from + 1);
            }
            let mut pieces: [&[u8]; INPUTS] = [&inputs[0][bytes.clone()]; INPUTS];
            // Inputs that lack are stood in for by the first, with coefficients of zero.
            for (piece, input) in pieces.iter_mut().zip(inputs) {
                *piece = &input[bytes.clone()];
            }
            tiles(outputs, pieces, bytes, rows, from..from + inputs.len());
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn tiles<const INPUTS: usize>(
            outputs: &mut [&mut [u8]],
            inputs: [&[u8]; INPUTS],
            bytes: Range<usize>,
            rows: &[&[u8]],
            columns: Range<usize>,
        ) {
            for (outputs, rows) in outputs.chunks_mut(OUTPUTS).zip(rows.chunks(OUTPUTS)) {
                match outputs {
                    [a] => tile([a], &inputs, &bytes, rows, &columns),
                    [a, b] => tile([a, b], &inputs, &bytes, rows, &columns),
                    [a, b, c] => tile([a, b, c], &inputs, &bytes, rows, &columns),
                    [a, b, c, d] => tile([a, b, c, d], &inputs, &bytes, rows, &columns),
                    _ => unreachable!("a tile has at most four outputs"),
                }
            }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn tile<const OUTPUTS: usize, const INPUTS: usize>(
            outputs: [&mut [u8]; OUTPUTS],
            inputs: &[&[u8]; INPUTS],
            bytes: &Range<usize>,
            rows: &[&[u8]],
            columns: &Range<usize>,
        ) {
            let len = bytes.len();
            let mut factors = [[factor(0); INPUTS]; OUTPUTS];
            let mut sources = [std::ptr::null(); INPUTS];
            let mut sums = [std::ptr::null_mut(); OUTPUTS];
            for i in 0..INPUTS {
                assert!(inputs[i].len() == len, "an input of another length");
                sources[i] = inputs[i].as_ptr();
            }
            for o in 0..OUTPUTS {
                let row = &rows[o][columns.clone()];
                for i in 0..INPUTS {
                    factors[o][i] = factor(row.get(i).copied().unwrap_or(0));
                }
                sums[o] = outputs[o][bytes.clone()].as_mut_ptr();
            }
            let whole = len - len % VECTOR;
            for at in (0..whole).step_by(VECTOR) {
                // SAFETY: all pointers are to `len` bytes, of which a vector's are left from `at` on. The outputs were
                // borrowed for writing, so none of them overlaps anything else.
                unsafe {
                    let mut vectors = [load(sums[0].add(at)); OUTPUTS];
                    for o in 1..OUTPUTS {
                        vectors[o] = load(sums[o].add(at));
                    }
                    for i in 0..INPUTS {
                        let source = load(sources[i].add(at));
                        for o in 0..OUTPUTS {
                            vectors[o] = multiply_add(vectors[o], source, factors[o][i]);
                        }
                    }
                    for o in 0..OUTPUTS {
                        store(vectors[o], sums[o].add(at));
                    }
                }
            }
            if whole < len {
                for o in 0..OUTPUTS {
                    let part = &mut outputs[o][bytes.start + whole..bytes.end];
                    let mut sum = load_part(part);
                    for i in 0..INPUTS {
                        sum = multiply_add(sum, load_part(&inputs[i][whole..]), factors[o][i]);
                    }
                    store_part(sum, part);
                }
            }
        }
    };
}
