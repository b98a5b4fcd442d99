//! Products with the matrices of chosen experts: the rows of each expert are gathered, multiplied at once, and scattered to the output.

use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::routine::ExpertMatmul;

use super::run;
use crate::{Shared, in_numbers};

/// True if the CPU takes such products.
pub fn offers(of: &ExpertMatmul) -> bool {
    let rows = of.m.checked_mul(of.used);
    // Each row of an expert is copied, and so is its output.
    let scratch = rows.and_then(|rows| rows.checked_mul(of.k.checked_add(of.n)?)?.checked_mul(8));
    scratch.is_some() && rows.is_some_and(|rows| super::offers(&of.of_one(rows)))
}

/// Computes the products.
///
/// # Safety
/// As [`crate::run`].
pub unsafe fn run_experts(pool: &Pool, isa: Isa, of: &ExpertMatmul, buffers: &[*mut u8]) {
    let ExpertMatmul { m, slots, used, experts, n, k, .. } = *of;
    let (x, weight, out) = (Shared(buffers[0]), buffers[1], Shared(buffers[3]));
    // SAFETY: the caller's promise.
    let ids = unsafe { std::slice::from_raw_parts(buffers[2].cast::<i32>(), m * used) };
    // Sorted by expert; the number of a pair is i · used + u. Ids that name none come last.
    let expert = |pair: usize| usize::try_from(ids[pair]).ok().filter(|id| *id < experts).unwrap_or(experts);
    let mut pairs: Vec<usize> = (0..m * used).collect();
    pairs.sort_by_key(|pair| expert(*pair));
    let (row, result) = (k * of.dtype.bytes(), n * of.dtype.bytes());
    let matrix = of.of_one(1).row_bytes().expect("offered products have whole blocks") * n;
    let source = |pair: usize| if slots == 1 { pair / used } else { pair };
    for group in pairs.chunk_by(|a, b| expert(*a) == expert(*b)) {
        let (id, count) = (expert(group[0]), group.len());
        if id == experts {
            // SAFETY: the caller's promise: outputs are valid, and only this thread writes.
            group.iter().for_each(|pair| unsafe { out.at(pair * result).write_bytes(0, result) });
            continue;
        }
        let weight = weight.wrapping_add(id * matrix);
        if count == 1 {
            let buffers = [x.at(source(group[0]) * row), weight, out.at(group[0] * result)];
            // SAFETY: the caller's promise: these are a row, a matrix and an output.
            unsafe { run(pool, isa, &of.of_one(1), &buffers) };
            continue;
        }
        let mut gathered = pool.scratch().take::<i32>((count * (row + result)).div_ceil(4) + 1);
        let start = Shared(gathered.start().cast::<u8>());
        // Elements of the outputs are aligned, as rows have whole elements of the same type.
        let outputs = Shared(start.at(count * row));
        in_numbers(pool, count, count * row, |n| {
            // SAFETY: rows are valid, and apart from the scratch, of which each number has a part of its own.
            unsafe { std::ptr::copy_nonoverlapping(x.at(source(group[n]) * row), start.at(n * row), row) }
        });
        // SAFETY: the scratch is as long as the rows and outputs; the matrix is valid by the caller's promise.
        unsafe { run(pool, isa, &of.of_one(count), &[start.at(0), weight, outputs.at(0)]) };
        in_numbers(pool, count, count * result, |n| {
            // SAFETY: as above; each pair has an output of its own.
            unsafe { std::ptr::copy_nonoverlapping(outputs.at(n * result), out.at(group[n] * result), result) }
        });
    }
}
