//! Reduces a symmetric matrix to tridiagonal form, from the last row to the first: each row is reflected onto the
//! element before its diagonal, and the updates of the previous rows are delayed until a panel of reflections is full.
//!
//! Source: Dongarra, Sorensen and Hammarling, Block Reduction of Matrices to Condensed Forms for Eigenvalue Computations, 1989.

use std::ops::Range;

use panoply_host::isa::{Isa, Simd};
use panoply_host::pool::Pool;
use panoply_host::simd::{self, Real, Task, Vector};

use super::super::panel::{PANEL, Panels};
use super::super::reflections::BlockReflector;
use super::super::tile::{Product, Tile, each_row, most_rows, row_blocks, with_rows};
use super::{LANES, Rows};

/// Number of elements of a matrix from which its product with a vector is divided among threads.
const PARALLEL_ELEMS: usize = 1 << 15;

/// Reduces a matrix. Reflection r has components 0 to r, is stored as column r of `reflections`, and clears the
/// elements of row r + 1 before the off-diagonal one.
///
/// With p = A·v and w = p - v·(vᵀp)/2, a reflection changes A to A - v·wᵀ - w·vᵀ. `right` holds w and v of each pending
/// reflection and `left` holds -v and -w, so that the pending update is the product of the columns of `left` and the
/// rows of `right`.
///
/// # Safety
/// The instruction set is available. All operands have the size of the matrix, with zeros after the end of their rows,
/// and `left` and `right` have two rows for each column of a panel.
pub unsafe fn reduce<T: Real>(
    pool: &Pool,
    isa: Isa,
    [matrix, left, right]: [Rows<T>; 3],
    reflections: &Panels<T>,
    t_factor: &Panels<T>,
    [diagonal, off_diagonal]: [&mut [f64]; 2],
) {
    let step = |r: usize, waiting: usize| ReflectionStep { matrix, left, right, r, waiting };
    // SAFETY: the caller's promise; threads have disjoint rows.
    unsafe {
        for panel in (0..reflections.count()).rev() {
            let columns = reflections.columns(panel);
            for r in columns.clone().rev() {
                let step = step(r, columns.end - 1 - r);
                simd::run(isa, Reflect { step, diagonal: &mut diagonal[r + 1], off_diagonal: &mut off_diagonal[r] });
                divided(pool, r + 1, (r + 1) * (r + 1), |rows| simd::run(isa, Times { step, rows }));
                simd::run(isa, Follow { step });
            }
            let size = columns.start + 1;
            divided(pool, size, size * size, |rows| {
                simd::run(isa, Update { step: step(columns.start, columns.len()), rows })
            });
            simd::run(isa, Store { right, columns: columns.clone(), to: reflections.at(panel, 0) });
            let vectors = reflections.at(panel, 0).cast_const();
            simd::run(isa, BlockReflector { vectors, rows: columns.end, t_factor: t_factor.at(panel, 0) });
        }
        diagonal[0] = (*matrix.at(0, 0)).wide();
    }
}

/// Calls `f` with ranges of rows, one for each thread if there are enough elements. With one part per thread, a
/// thread is likely to find its rows in its cache again.
fn divided(pool: &Pool, rows: usize, elems: usize, f: impl Fn(Range<usize>) + Sync) {
    if elems < PARALLEL_ELEMS {
        return f(0..rows);
    }
    let part = rows.div_ceil(pool.threads()).next_multiple_of(8);
    pool.run(rows.div_ceil(part), &|number| f(number * part..rows.min((number + 1) * part)));
}

/// The index of a reflection, and the number of pending ones.
#[derive(Clone, Copy)]
struct ReflectionStep<T> {
    matrix: Rows<T>,
    left: Rows<T>,
    right: Rows<T>,
    r: usize,
    waiting: usize,
}

impl<T: Real> ReflectionStep<T> {
    /// Returns the reflection's v in `right`.
    fn vector(&self) -> *mut T {
        self.right.at(2 * self.waiting + 1, 0)
    }

    /// Returns the reflection's w in `right`, which holds p before.
    fn moved(&self) -> *mut T {
        self.right.at(2 * self.waiting, 0)
    }

    /// Returns the pending update of the rows of the matrix from `row` on.
    fn update(&self, row: usize) -> Product<T> {
        Product {
            left: self.left.at(0, row),
            left_row: 1,
            left_column: self.left.row,
            right: self.right.at(0, 0),
            right_row: self.right.row,
            depth: 2 * self.waiting,
            result: self.matrix.at(row, 0),
            result_row: self.matrix.row,
            adds: true,
        }
    }

    /// Writes zeros after the last component, to the end of a vector.
    #[inline(always)]
    unsafe fn end(&self, of: *mut T) {
        let size = self.r + 1;
        // SAFETY: the caller's promise: rows are whole vectors.
        unsafe { (size..size.next_multiple_of(LANES)).for_each(|at| *of.add(at) = T::default()) };
    }
}

/// Updates row r + 1 and computes its reflection.
struct Reflect<'a, T> {
    step: ReflectionStep<T>,
    diagonal: &'a mut f64,
    off_diagonal: &'a mut f64,
}

impl<T: Real> Task for Reflect<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Reflect { step, diagonal, off_diagonal } = self;
        let r = step.r;
        // SAFETY: the caller's promise.
        unsafe {
            step.update(r + 1).run::<M>(1, r + 2);
            let row = step.matrix.at(r + 1, 0);
            *diagonal = (*row.add(r + 1)).wide();
            let before = std::slice::from_raw_parts(row.cast_const(), r);
            // Computed in f64: a vector whose length is wrong by a rounding error would make the errors of the following ones grow.
            let (head, square) = ((*row.add(r)).wide(), square(before));
            let length = (head * head + square).sqrt().copysign(head);
            let moved = head + length;
            // This threshold is far below the rounding error of elements of about 1, and 2 divided by it does not overflow.
            let clear = square < 2f64.powi(-900);
            let factor = if clear { 0.0 } else { (2.0 / (moved * moved + square)).sqrt() };
            *off_diagonal = if clear { head } else { -length };
            let (vector, minus) = (step.vector(), step.left.at(2 * step.waiting, 0));
            (0..r).for_each(|at| *vector.add(at) = T::of((*row.add(at)).wide() * factor));
            *vector.add(r) = T::of(moved * factor);
            step.end(vector);
            (0..(r + 1).next_multiple_of(LANES)).for_each(|at| *minus.add(at) = T::sub(T::default(), *vector.add(at)));
        }
    }
}

/// Returns the sum of squares.
#[inline(always)]
fn square<T: Real>(of: &[T]) -> f64 {
    let mut sums = [0.0; LANES];
    let mut add = |values: &[T]| sums.iter_mut().zip(values).for_each(|(sum, x)| *sum += x.wide() * x.wide());
    let (chunks, rest) = of.as_chunks::<LANES>();
    chunks.iter().for_each(|chunk| add(chunk));
    add(rest);
    sums.iter().sum()
}

/// Computes some elements of p = A·v, for the part of A that is up to date.
struct Times<T> {
    step: ReflectionStep<T>,
    rows: Range<usize>,
}

impl<T: Real> Task for Times<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Times { step, rows } = self;
        let result = step.moved().wrapping_add(rows.start);
        let dots = Dots { rows: step.matrix.from(rows.start, 0), vector: step.vector(), length: step.r + 1, result };
        // SAFETY: the caller's promise.
        unsafe { dots.all::<M>(rows.len()) };
    }
}

/// Adds the pending update times v to p, and computes w from p.
struct Follow<T> {
    step: ReflectionStep<T>,
}

impl<T: Real> Task for Follow<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let step = self.step;
        let (length, vector, moved) = (step.r + 1, step.vector(), step.moved());
        let mut products = [T::default(); 2 * PANEL];
        // SAFETY: the caller's promise.
        unsafe {
            Dots { rows: step.right, vector, length, result: products.as_mut_ptr() }.all::<M>(2 * step.waiting);
            step.end(moved);
            let rest = Product {
                left: products.as_ptr(),
                left_row: 0,
                left_column: 1,
                right: step.left.at(0, 0),
                result: moved,
                ..step.update(0)
            };
            rest.run::<M>(1, length);
            step.end(moved);
            let mut half = T::default();
            Dots { rows: Rows::new(vector, 0), vector: moved, length, result: &raw mut half }.all::<M>(1);
            let half = T::mul(half, T::of(0.5));
            let minus = step.left.at(2 * step.waiting + 1, 0);
            for at in 0..length.next_multiple_of(LANES) {
                let value = T::sub(*moved.add(at), T::mul(half, *vector.add(at)));
                (*moved.add(at), *minus.add(at)) = (value, T::sub(T::default(), value));
            }
        }
    }
}

/// Updates rows of the remaining matrix.
struct Update<T> {
    step: ReflectionStep<T>,
    rows: Range<usize>,
}

impl<T: Real> Task for Update<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        // SAFETY: the caller's promise.
        unsafe { self.step.update(self.rows.start).run::<M>(self.rows.len(), self.step.r + 1) };
    }
}

/// Stores the vectors of a panel as its columns.
struct Store<T> {
    right: Rows<T>,
    columns: Range<usize>,
    to: *mut T,
}

impl<T: Real> Task for Store<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Store { right, columns, to } = self;
        for row in 0..columns.end {
            for column in 0..PANEL {
                let r = columns.start + column;
                // SAFETY: the caller's promise.
                unsafe {
                    let there = r < columns.end && row <= r;
                    let value = if there { *right.at(2 * (columns.end - 1 - r) + 1, row) } else { T::default() };
                    *to.add(row * PANEL + column) = value;
                }
            }
        }
    }
}

/// Dot products of rows with one vector. Whole SIMD vectors are read; after the end, the row or the vector is zero.
struct Dots<T> {
    rows: Rows<T>,
    vector: *const T,
    length: usize,
    result: *mut T,
}

impl<T: Real> Dots<T> {
    /// Computes the dot products of `count` rows, in a function of its own, which all tasks share.
    #[inline(always)]
    unsafe fn all<M: Simd>(self, count: usize) {
        // SAFETY: the caller's promise.
        unsafe { M::run(&AllDots { dots: self, count }) };
    }
}

/// Dot products of `count` rows.
struct AllDots<T> {
    dots: Dots<T>,
    count: usize,
}

impl<T: Real> Task for &AllDots<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let AllDots { dots, count } = self;
        for (row, count) in row_blocks(*count, most_rows::<T::Vector<M>>()) {
            let part = Dots { rows: dots.rows.from(row, 0), result: dots.result.wrapping_add(row), ..*dots };
            // SAFETY: the caller's promise.
            unsafe { with_rows::<M, T::Vector<M>, _>(count, &part) };
        }
    }
}

impl<T: Real> Tile for Dots<T> {
    #[inline(always)]
    unsafe fn run<M: Simd, const R: usize, const C: usize>(&self) {
        let lanes = T::Vector::<M>::LANES;
        let rows: [*const T; R] = each_row(|row| self.rows.at(row, 0).cast_const());
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = [T::Vector::<M>::splat(T::default()); R];
            for at in (0..self.length).step_by(lanes) {
                let with = T::Vector::<M>::load(self.vector.add(at));
                for (sum, row) in sums.iter_mut().zip(rows) {
                    *sum = T::Vector::<M>::load(row.add(at)).mul_add(with, *sum);
                }
            }
            for (row, sum) in sums.into_iter().enumerate() {
                let mut lane = [T::default(); LANES];
                sum.store(lane.as_mut_ptr());
                let mut half = lanes / 2;
                while half > 0 {
                    (0..half).for_each(|at| lane[at] = T::add(lane[at], lane[at + half]));
                    half /= 2;
                }
                *self.result.add(row) = lane[0];
            }
        }
    }
}
