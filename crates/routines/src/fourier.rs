//! Fourier transforms. Rows are read and written directly; columns are copied in groups to scratch memory, so that the
//! array is never transposed as a whole. The transform of one line is in [`mod@line`].

pub mod line;

use std::slice;
use std::sync::LazyLock;

use line::{Element, FftPlan, FftPlans};
use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::routine::Fourier;

use super::{Shared, in_numbers};

/// Plans of this process.
static PLANS: LazyLock<FftPlans> = LazyLock::new(FftPlans::default);

/// Elements of a thread's part if lines are short.
const PART: usize = 1 << 13;

/// Bytes of adjacent columns that are copied together: a few cache lines of each row.
const COLUMNS_BYTES: usize = 128;

/// Extra elements between two columns in scratch memory: with a distance of a power of two they would compete for the
/// same cache sets.
const APART: usize = 16;

/// Transforms an array along an axis.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn transform<T: Element>(pool: &Pool, isa: Isa, of: &Fourier, buffers: &[*mut u8]) {
    let line = T::line(&PLANS, isa, of.kind, of.length);
    let all = All {
        pool,
        line: &line,
        of,
        scale: T::of(of.scale.to_f64()),
        from: Shared(buffers[0]),
        to: Shared(buffers[1]),
    };
    let work = of.flops().map_or(usize::MAX, |flops| flops as usize);
    if of.inner == 1 {
        let each = (PART / of.length).max(1);
        // SAFETY: the caller's promise; rows do not overlap.
        return in_numbers(pool, of.outer.div_ceil(each), work, |part| unsafe { all.rows(part * each, each) });
    }
    let each = (COLUMNS_BYTES / (2 * size_of::<T>())).min(of.inner);
    let parts = of.inner.div_ceil(each);
    // SAFETY: the caller's promise; columns do not overlap.
    in_numbers(pool, of.outer * parts, work, |part| unsafe { all.columns(part / parts, part % parts * each, each) });
}

/// All transforms of a routine.
struct All<'a, T: Element> {
    pool: &'a Pool,
    line: &'a FftPlan<T>,
    of: &'a Fourier,
    scale: T,
    from: Shared,
    to: Shared,
}

impl<T: Element> All<'_, T> {
    /// Transforms up to `each` rows, starting at `first`.
    ///
    /// # Safety
    /// As [`super::run`]; only this call writes these rows.
    unsafe fn rows(&self, first: usize, each: usize) {
        let [read, written] = self.of.kind.elems(self.of.length);
        let mut scratch = self.pool.scratch().take::<T>(self.line.scratch());
        for row in first..(first + each).min(self.of.outer) {
            // SAFETY: the caller's promise.
            let (from, to, scratch) = unsafe {
                (
                    slice::from_raw_parts(self.from.at(row * read * size_of::<T>()).cast::<T>(), read),
                    slice::from_raw_parts_mut(self.to.at(row * written * size_of::<T>()).cast::<T>(), written),
                    slice::from_raw_parts_mut(scratch.start(), self.line.scratch()),
                )
            };
            self.line.transform(from, to, self.scale, scratch);
        }
    }

    /// Transforms up to `each` columns, starting at `first`.
    ///
    /// # Safety
    /// As [`super::run`]; only this call writes these columns.
    unsafe fn columns(&self, outer: usize, first: usize, each: usize) {
        let Fourier { kind, length, inner, .. } = *self.of;
        let ([read, written], [wide, narrow]) = (kind.elems(length), self.line.parts());
        let count = each.min(inner - first);
        let (from_row, to_row) = (read.next_multiple_of(2) + APART, written.next_multiple_of(2) + APART);
        let mut memory = self.pool.scratch().take::<T>(each * (from_row + to_row) + self.line.scratch());
        // SAFETY: the block has this length.
        let memory =
            unsafe { slice::from_raw_parts_mut(memory.start(), each * (from_row + to_row) + self.line.scratch()) };
        let (lines, rest) = memory.split_at_mut(each * from_row);
        let (results, scratch) = rest.split_at_mut(each * to_row);
        let at = |buffer: Shared, elems: usize, parts: usize| {
            buffer.at((outer * elems * inner + first * parts) * size_of::<T>()).cast::<T>()
        };
        // SAFETY: the caller's promise.
        unsafe { gather(at(self.from, read, wide), inner, lines, from_row, [read / wide, count], wide) };
        for (line, result) in lines.chunks_exact(from_row).zip(results.chunks_exact_mut(to_row)).take(count) {
            self.line.transform(&line[..read], &mut result[..written], self.scale, scratch);
        }
        // SAFETY: the caller's promise.
        unsafe { scatter(results, to_row, at(self.to, written, narrow), inner, [written / narrow, count], narrow) };
    }
}

/// Copies columns to lines; a number has `parts` elements.
///
/// # Safety
/// The array has the given rows and columns, and `inner` numbers from row to row.
unsafe fn gather<T: Element>(
    from: *const T,
    inner: usize,
    lines: &mut [T],
    pitch: usize,
    [rows, columns]: [usize; 2],
    parts: usize,
) {
    for row in 0..rows {
        // SAFETY: the caller's promise.
        let numbers = unsafe { slice::from_raw_parts(from.add(row * inner * parts), columns * parts) };
        match parts {
            1 => numbers.iter().enumerate().for_each(|(column, x)| lines[column * pitch + row] = *x),
            _ => numbers.as_chunks::<2>().0.iter().enumerate().for_each(|(column, pair)| {
                lines[column * pitch + 2 * row..][..2].copy_from_slice(pair);
            }),
        }
    }
}

/// Copies lines to columns; a number has `parts` elements.
///
/// # Safety
/// As [`gather`]; only this call writes these columns.
unsafe fn scatter<T: Element>(
    lines: &[T],
    pitch: usize,
    to: *mut T,
    inner: usize,
    [rows, columns]: [usize; 2],
    parts: usize,
) {
    for row in 0..rows {
        // SAFETY: the caller's promise.
        let numbers = unsafe { slice::from_raw_parts_mut(to.add(row * inner * parts), columns * parts) };
        match parts {
            1 => numbers.iter_mut().enumerate().for_each(|(column, x)| *x = lines[column * pitch + row]),
            _ => numbers.as_chunks_mut::<2>().0.iter_mut().enumerate().for_each(|(column, pair)| {
                pair.copy_from_slice(&lines[column * pitch + 2 * row..][..2]);
            }),
        }
    }
}
