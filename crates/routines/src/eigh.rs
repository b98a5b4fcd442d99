//! Eigendecomposition of symmetric matrices: Householder reflections reduce them to tridiagonal form, divide and
//! conquer finds the eigenvectors of that, and the reflections transform them back. Scalars of the tridiagonal problem are f64;
//! matrices have the element type.
//!
//! The result does not depend on the number of threads: they divide rows, roots and panels, never a sum.

mod leaf;
mod merge;
mod secular;
mod tridiagonal;

use std::marker::PhantomData;

use panoply_host::isa::{Isa, Simd};
use panoply_host::pool::Pool;
use panoply_host::simd::{self, Real, Task};
use panoply_ir::routine::Eigh;

use super::panel::{PANEL, Panels, each_matrix};
use super::reflections::ApplyReflector;
use super::{Shared, in_numbers};

/// Multiple to which rows are padded, in elements: the longest vector of any type.
const LANES: usize = 16;
/// Bytes of a cache line.
const LINE: usize = 64;

/// The rows of a matrix in scratch memory, each padded to whole vectors.
#[derive(Clone, Copy)]
struct Rows<T> {
    start: Shared,
    /// Elements from one row to the next.
    row: usize,
    elem: PhantomData<T>,
}

impl<T: Real> Rows<T> {
    /// Returns the elements from one row to the next: an odd number of pairs of cache lines, so that equal columns of
    /// many rows do not map to the same cache set.
    fn distance(columns: usize) -> usize {
        let step = LANES.max(2 * LINE / size_of::<T>());
        (columns.div_ceil(step) | 1) * step
    }

    fn new(start: *mut T, row: usize) -> Rows<T> {
        Rows { start: Shared(start.cast()), row, elem: PhantomData }
    }

    /// Returns the address of an element.
    fn at(&self, row: usize, column: usize) -> *mut T {
        self.start.at((row * self.row + column) * size_of::<T>()).cast()
    }

    /// Returns the submatrix that starts at an element.
    fn from(&self, row: usize, column: usize) -> Rows<T> {
        Rows::new(self.at(row, column), self.row)
    }
}

/// Computes the eigenvectors and eigenvalues of matrices.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn eigh<T: Real>(pool: &Pool, isa: Isa, of: &Eigh, buffers: &[*mut u8]) {
    let [a, vectors, values] = [0, 1, 2].map(|at| Shared(buffers[at]));
    let Eigh { batch, size, .. } = *of;
    let work = [size, size, 4].into_iter().fold(size, usize::saturating_mul);
    each_matrix(pool, batch, work, |matrix| {
        let at = |buffer: Shared, elems: usize| Shared(buffer.at(matrix * elems * size_of::<T>()));
        let [a, vectors, values] = [at(a, size * size), at(vectors, size * size), at(values, size)];
        // SAFETY: the caller's promise; matrices do not overlap.
        unsafe {
            if !decomposed::<T>(pool, isa, size, [a, vectors, values]) {
                let nan = |of: Shared, elems: usize| {
                    (0..elems).for_each(|at| *of.at(0).cast::<T>().add(at) = T::of(f64::NAN))
                };
                nan(vectors, size * size);
                nan(values, size);
            }
        }
    });
}

/// Computes the eigenvectors and eigenvalues of one matrix. Returns false if the matrix has elements that are not
/// finite or the iteration fails.
///
/// # Safety
/// As [`super::run`].
unsafe fn decomposed<T: Real>(pool: &Pool, isa: Isa, size: usize, [a, vectors, values]: [Shared; 3]) -> bool {
    let row = Rows::<T>::distance(size);
    let (panelled, small) = (Panels::<T>::elems(size, size), PANEL * size.next_multiple_of(PANEL));
    // Each block holds panels and rows at different times.
    let square = panelled.max(size * row);
    let mut scratch = pool.scratch().take::<T>(4 * square + small + 4 * PANEL * row);
    let mut next = scratch.start();
    let mut part = |elems: usize| {
        let behind = next.wrapping_add(elems);
        std::mem::replace(&mut next, behind)
    };
    let [matrix, rotated, spare] = [(); 3].map(|()| Rows::new(part(square), row));
    let reflections = Panels::new(part(square), size, size - 1);
    let t_factor = Panels::new(part(small), PANEL, size - 1);
    let sides = [(); 2].map(|()| Rows::new(part(2 * PANEL * row), row));
    let (mut diagonal, mut off_diagonal) = (vec![0.0; size], vec![0.0; size]);
    // SAFETY: the caller's promise; the parts of the scratch memory have these lengths and do not overlap.
    unsafe {
        let a = std::slice::from_raw_parts(a.at(0).cast::<T>(), size * size);
        let mut largest = f64::NAN;
        simd::run(isa, Largest { of: a, result: &mut largest });
        if !largest.is_finite() {
            return false;
        }
        // Scaling by a power of two is exact, and squares neither overflow nor underflow.
        let scale = if largest == 0.0 { 1.0 } else { 2f64.powi((-largest.log2().floor()).min(1000.0) as i32) };
        in_numbers(pool, size.div_ceil(PANEL), size * size, |block| {
            let rows = block * PANEL..size.min((block + 1) * PANEL);
            simd::run(isa, Scale { a, size, scale, rows, matrix });
        });
        tridiagonal::reduce(
            pool,
            isa,
            [matrix, sides[0], sides[1]],
            &reflections,
            &t_factor,
            [&mut diagonal, &mut off_diagonal],
        );
        let Some(order) = merge::vectors(pool, isa, [rotated, matrix, spare], &mut diagonal, &mut off_diagonal) else {
            return false;
        };
        for (at, from) in order.iter().enumerate() {
            *values.at(0).cast::<T>().add(at) = T::of(diagonal[*from] / scale);
        }
        // The matrix's memory is free again.
        let columns = Panels::<T>::new(matrix.at(0, 0), size, size);
        transform_back(pool, isa, [&reflections, &t_factor, &columns], rotated, &order);
        columns.store(pool, vectors);
    }
    true
}

/// Applies the reflections to rows in an order and stores the results as columns.
///
/// # Safety
/// The instruction set is available; all operands have the size of the matrix.
unsafe fn transform_back<T: Real>(
    pool: &Pool,
    isa: Isa,
    [reflections, t_factor, columns]: [&Panels<T>; 3],
    from: Rows<T>,
    order: &[usize],
) {
    columns.each(pool, 0..columns.count(), |panel| {
        let target = columns.at(panel, 0);
        // SAFETY: the caller's promise; panels do not overlap.
        unsafe {
            simd::run(isa, Columns { from, order: &order[columns.columns(panel)], size: order.len(), to: target });
            for of in 0..reflections.count() {
                let (vectors, t_factor) = (reflections.at(of, 0).cast_const(), t_factor.at(of, 0).cast_const());
                let rows = reflections.columns(of).end;
                simd::run(isa, ApplyReflector { vectors, t_factor, rows, target, last_first: false });
            }
        }
    });
}

/// Computes the largest magnitude; NaN if an element is not finite.
struct Largest<'a, T> {
    of: &'a [T],
    result: &'a mut f64,
}

impl<T: Real> Task for Largest<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let (mut largest, mut nothing) = ([T::default(); 2 * LANES], [T::default(); 2 * LANES]);
        let mut look = |values: &[T]| {
            for ((largest, nothing), value) in largest.iter_mut().zip(&mut nothing).zip(values) {
                *largest = if value.abs() > *largest { value.abs() } else { *largest };
                *nothing = T::add(*nothing, T::sub(*value, *value));
            }
        };
        let (chunks, rest) = self.of.as_chunks::<{ 2 * LANES }>();
        chunks.iter().for_each(|chunk| look(chunk));
        look(rest);
        let finite = nothing.iter().all(|nothing| *nothing == T::default());
        let largest = largest.iter().map(|value| value.wide()).fold(0.0, f64::max);
        *self.result = if finite { largest } else { f64::NAN };
    }
}

/// Scales rows of a matrix and pads each row with zeros.
struct Scale<'a, T> {
    a: &'a [T],
    size: usize,
    scale: f64,
    rows: std::ops::Range<usize>,
    matrix: Rows<T>,
}

impl<T: Real> Task for Scale<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Scale { a, size, scale, rows, matrix } = self;
        for row in rows {
            // SAFETY: the caller's promise.
            unsafe {
                let from = &a[row * size..][..size];
                let (to, rest) = std::slice::from_raw_parts_mut(matrix.at(row, 0), matrix.row).split_at_mut(size);
                to.iter_mut().zip(from).for_each(|(to, from)| *to = T::of(from.wide() * scale));
                rest.fill(T::default());
            }
        }
    }
}

/// Stores rows in an order as the columns of a panel, followed by zeros.
struct Columns<'a, T> {
    from: Rows<T>,
    order: &'a [usize],
    size: usize,
    to: *mut T,
}

impl<T: Real> Task for Columns<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Columns { from, order, size, to } = self;
        for first in (0..size).step_by(LANES) {
            let rows = first..size.min(first + LANES);
            for column in 0..PANEL {
                let from = order.get(column).map(|row| from.at(*row, 0));
                for row in rows.clone() {
                    // SAFETY: the caller's promise.
                    unsafe { *to.add(row * PANEL + column) = from.map_or(T::default(), |from| *from.add(row)) };
                }
            }
        }
    }
}
