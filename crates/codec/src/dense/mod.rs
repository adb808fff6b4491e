//! Few losses and few repair symbols without RFC 6330's elimination, which costs the same whatever is lost.
//!
//! A repair symbol is the sum of all source symbols, each times a coefficient that K and the ESI fix ([`Rows`]). So m
//! missing source symbols are the solution of m such equations: their m x m part is solved for the coefficients alone
//! ([`Elimination`]), and then one pass over the block makes every missing symbol in its place from the symbols at
//! hand. The first repair symbols of a block are one such sum each, too. Bit-equal to the sparse solver, which is
//! faster from some number on ([`Choice`]).

mod choice;
mod elimination;
mod rows;

use headwater_units::Esi;

pub use choice::Method;
pub(crate) use choice::pass_cost;
use elimination::Elimination;
pub(crate) use rows::Rows;

use crate::BlockShape;
use crate::gf256::Kernel;

/// Fills in the source symbols of `block` that are not `present`; false if the equations are dependent.
///
/// `block` has K * T bytes; `repair` are distinct, as many as are missing or more, T bytes each.
pub(crate) fn fill_in<'r>(
    kernel: Kernel,
    shape: BlockShape,
    block: &mut [u8],
    present: impl Fn(u32) -> bool,
    repair: impl Iterator<Item = (Esi, &'r [u8])>,
) -> bool {
    let mut inputs: Vec<&[u8]> = Vec::with_capacity(shape.source_symbols() as usize);
    let mut outputs: Vec<&mut [u8]> = Vec::new();
    let (mut known, mut missing) = (Vec::with_capacity(inputs.capacity()), Vec::new());
    for (index, symbol) in block.chunks_exact_mut(usize::from(shape.symbol_size())).enumerate() {
        if present(index as u32) {
            known.push(index);
            inputs.push(symbol);
        } else {
            missing.push(index);
            outputs.push(symbol);
        }
    }

    let rows = Rows::of(shape.source_symbols());
    let mut elimination = Elimination::new(kernel, known, missing);
    for (esi, symbol) in repair {
        if elimination.is_solved() {
            break;
        }
        if elimination.add(&rows.row(esi)) {
            inputs.push(symbol);
        }
    }
    if !elimination.is_solved() {
        return false;
    }
    outputs.iter_mut().for_each(|output| output.fill(0));
    let solution = elimination.solution();
    kernel.combine(&mut outputs, &inputs, &solution.chunks_exact(inputs.len()).collect::<Vec<_>>());
    true
}

/// Writes the repair symbols with the coefficients `rows` to `outputs` of T bytes each. `block` may lack its padding.
pub(crate) fn repair(
    kernel: Kernel,
    shape: BlockShape,
    block: &[u8],
    rows: &[&[u8]],
    outputs: &mut [&mut [u8]],
) {
    let symbols = block.chunks_exact(usize::from(shape.symbol_size()));
    let (last, inputs) = (symbols.remainder(), symbols.collect::<Vec<_>>());
    outputs.iter_mut().for_each(|output| output.fill(0));
    kernel.combine(outputs, &inputs, rows);
    if !last.is_empty() {
        let mut outputs: Vec<_> = outputs.iter_mut().map(|output| &mut output[..last.len()]).collect();
        let rows: Vec<_> = rows.iter().map(|row| &row[inputs.len()..]).collect();
        kernel.combine(&mut outputs, &[last], &rows);
    }
}
