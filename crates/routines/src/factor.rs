//! Triangular solves and Cholesky factors, by blocks of rows: one matrix product with all previous rows, then
//! elimination within the block. Rows in scratch memory are padded to whole vectors.
//!
//! Source: Golub and Van Loan, Matrix Computations, 4th ed. 2013, sections 3.1 and 4.2.

use panoply_host::isa::{Isa, Simd};
use panoply_host::pool::Pool;
use panoply_host::simd::{self, Real, Task, Vector};
use panoply_ir::routine::{Cholesky, Triangular};

use super::tile::Product;
use super::{Shared, in_numbers};

/// Rows of a block: those of the highest tile.
const BLOCK: usize = 8;
/// Columns of a thread's part of the right side: a multiple of all vector lengths, and few enough for all rows to stay
/// in the L2 cache.
const WIDTH: usize = 192;
const LANES: usize = 16;

/// Solves triangular systems; each thread computes some columns.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn solve<T: Real>(pool: &Pool, isa: Isa, of: &Triangular, buffers: &[*mut u8]) {
    let [a, b, x] = [0, 1, 2].map(|at| Shared(buffers[at]));
    let Triangular { batch, size, columns, lower, .. } = *of;
    let share = columns.div_ceil(pool.threads().div_ceil(batch)).next_multiple_of(LANES);
    let width = share.div_ceil(share.div_ceil(WIDTH)).next_multiple_of(LANES);
    let parts = columns.div_ceil(width);
    let work = [size, size, columns].into_iter().fold(batch, usize::saturating_mul);
    in_numbers(pool, batch * parts, work, |number| {
        let (matrix, first) = (number / parts, number % parts * width);
        let at = |buffer: Shared, elems: usize| buffer.at(elems * size_of::<T>()).cast::<T>();
        let sides = matrix * size * columns + first;
        let (a, b, x) = (at(a, matrix * size * size), at(b, sides), at(x, sides));
        let count = width.min(columns - first);
        // SAFETY: the caller's promise; parts of the solution do not overlap.
        unsafe { simd::run(isa, Columns { pool, size, lower, a, b, x, row: columns, count }) };
    });
}

/// Some columns of a system.
struct Columns<'a, T> {
    pool: &'a Pool,
    size: usize,
    lower: bool,
    a: *const T,
    b: *const T,
    x: *mut T,
    /// Elements from row to row of the right side and the solution.
    row: usize,
    count: usize,
}

impl<T: Real> Task for Columns<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Columns { pool, size, lower, a, b, x, row, count } = self;
        let width = count.next_multiple_of(T::Vector::<M>::LANES);
        let mut scratch = pool.scratch().take::<T>((width + BLOCK) * size);
        // The negated solution, in the order of computation, so that products are only added.
        let solved = scratch.start();
        let left = solved.wrapping_add(width * size);
        let place = |at: usize| if lower { at } else { size - 1 - at };
        // SAFETY: the caller's promise; the scratch memory has this length.
        unsafe {
            for first in (0..size).step_by(BLOCK) {
                let rows = BLOCK.min(size - first);
                let block = solved.add(first * width);
                for at in 0..rows {
                    let (from, to) = (b.add(place(first + at) * row), block.add(at * width));
                    (0..count).for_each(|c| *to.add(c) = *from.add(c));
                    (count..width).for_each(|c| *to.add(c) = T::default());
                    let (from, to) = (a.add(place(first + at) * size), left.add(at * size));
                    (0..=first + at).for_each(|k| *to.add(k) = *from.add(place(k)));
                }
                let before = Product {
                    left: left.cast_const(),
                    left_row: size,
                    left_column: 1,
                    right: solved.cast_const(),
                    right_row: width,
                    depth: first,
                    result: block,
                    result_row: width,
                    adds: true,
                };
                before.run::<M>(rows, width);
                for at in 0..rows {
                    let (mine, factors) = (block.add(at * width), left.add(at * size + first));
                    for k in 0..at {
                        let (factor, theirs) = (*factors.add(k), block.add(k * width));
                        (0..width).for_each(|c| *mine.add(c) = T::add(*mine.add(c), T::mul(factor, *theirs.add(c))));
                    }
                    let pivot = *factors.add(at);
                    (0..width).for_each(|c| *mine.add(c) = T::sub(T::default(), T::div(*mine.add(c), pivot)));
                }
            }
            for at in 0..size {
                let (from, to) = (solved.add(at * width), x.add(place(at) * row));
                (0..count).for_each(|c| *to.add(c) = T::sub(T::default(), *from.add(c)));
            }
        }
    }
}

/// Computes Cholesky factors, one thread per matrix.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn cholesky<T: Real>(pool: &Pool, isa: Isa, of: &Cholesky, buffers: &[*mut u8]) {
    let [a, l] = [0, 1].map(|at| Shared(buffers[at]));
    let Cholesky { batch, size, .. } = *of;
    let work = [size, size, size / 3].into_iter().fold(batch, usize::saturating_mul);
    in_numbers(pool, batch, work, |matrix| {
        let at = |buffer: Shared| buffer.at(matrix * size * size * size_of::<T>()).cast::<T>();
        // SAFETY: the caller's promise; matrices do not overlap.
        unsafe { simd::run(isa, Factor { pool, size, a: at(a), l: at(l) }) };
    });
}

/// Computes the Cholesky factor of a matrix.
struct Factor<'a, T> {
    pool: &'a Pool,
    size: usize,
    a: *const T,
    l: *mut T,
}

impl<T: Real> Task for Factor<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Factor { pool, size, a, l } = self;
        let lanes = T::Vector::<M>::LANES;
        // A row may start within a vector and is read and written to the end of one.
        let width = size.next_multiple_of(lanes) + lanes;
        let mut scratch = pool.scratch().take::<T>((width + BLOCK) * size);
        // The transposed factor, whose rows are contiguous.
        let upper = scratch.start();
        let left = upper.wrapping_add(width * size);
        // SAFETY: the caller's promise; the scratch memory has this length.
        unsafe {
            for first in (0..size).step_by(BLOCK) {
                let rows = BLOCK.min(size - first);
                let block = upper.add(first * width);
                for c in first..size {
                    (0..rows).for_each(|at| *block.add(at * width + c) = *a.add(c * size + first + at));
                }
                for k in 0..first {
                    let from = upper.add(k * width + first);
                    (0..rows).for_each(|at| *left.add(at * size + k) = T::sub(T::default(), *from.add(at)));
                }
                let before = Product {
                    left: left.cast_const(),
                    left_row: size,
                    left_column: 1,
                    right: upper.add(first).cast_const(),
                    right_row: width,
                    depth: first,
                    result: block.add(first),
                    result_row: width,
                    adds: true,
                };
                before.run::<M>(rows, size - first);
                for at in 0..rows {
                    let mine = block.add(at * width);
                    let pivot = *mine.add(first + at);
                    let root = if pivot > T::default() { pivot.sqrt() } else { T::of(f64::NAN) };
                    *mine.add(first + at) = root;
                    (first + at + 1..size).for_each(|c| *mine.add(c) = T::div(*mine.add(c), root));
                    for other in at + 1..rows {
                        let (factor, theirs) = (*mine.add(first + other), block.add(other * width));
                        let less = |c: usize| *theirs.add(c) = T::sub(*theirs.add(c), T::mul(factor, *mine.add(c)));
                        (first + other..size).for_each(less);
                    }
                }
            }
            // Copied in square blocks, so that whole cache lines are used.
            for first in (0..size).step_by(LANES) {
                for c in 0..size {
                    for row in first..size.min(first + LANES) {
                        *l.add(row * size + c) = if c <= row { *upper.add(c * width + row) } else { T::default() };
                    }
                }
            }
        }
    }
}
