//! Matrices stored as panels of a few columns, one after the other in scratch memory. Rows of a panel are whole vectors
//! on every machine, and threads with separate panels share only what they read.

use std::marker::PhantomData;
use std::ops::Range;

use panoply_host::isa::Simd;
use panoply_host::pool::Pool;
use panoply_host::simd::{Real, Vector};

use super::{PARALLEL_FLOPS, Shared, in_numbers};

/// Number of columns of a panel.
pub const PANEL: usize = 32;

/// Calls `f` for each matrix, given the work per matrix. The matrices are divided among threads; if there are fewer
/// large matrices than threads, they run one after the other and `f` divides the panels instead.
pub fn each_matrix(pool: &Pool, count: usize, work: usize, f: impl Fn(usize) + Sync) {
    if count < pool.threads() && work >= PARALLEL_FLOPS {
        (0..count).for_each(f);
    } else {
        in_numbers(pool, count, work.saturating_mul(count), f);
    }
}

/// A matrix stored as panels.
#[derive(Clone, Copy)]
pub struct Panels<T> {
    start: Shared,
    /// Number of rows.
    pub rows: usize,
    columns: usize,
    elem: PhantomData<T>,
}

impl<T: Real> Panels<T> {
    /// Returns the number of elements of all panels.
    pub fn elems(rows: usize, columns: usize) -> usize {
        rows * columns.next_multiple_of(PANEL)
    }

    /// Creates a matrix in memory of [`Panels::elems`] elements at `start`.
    pub fn new(start: *mut T, rows: usize, columns: usize) -> Panels<T> {
        Panels { start: Shared(start.cast()), rows, columns, elem: PhantomData }
    }

    /// Returns the number of panels.
    pub fn count(&self) -> usize {
        self.columns.div_ceil(PANEL)
    }

    /// Returns the columns of a panel.
    pub fn columns(&self, panel: usize) -> Range<usize> {
        panel * PANEL..self.columns.min((panel + 1) * PANEL)
    }

    /// Returns the address of a row of a panel.
    pub fn at(&self, panel: usize, row: usize) -> *mut T {
        self.start.at((panel * self.rows + row) * PANEL * size_of::<T>()).cast()
    }

    /// Writes the matrix in row-major order.
    ///
    /// # Safety
    /// Both are valid for all rows and columns and do not overlap.
    pub unsafe fn store(&self, pool: &Pool, to: Shared) {
        self.each(pool, 0..self.count(), |panel| {
            let columns = self.columns(panel);
            for row in 0..self.rows {
                let to = to.at((row * self.columns + columns.start) * size_of::<T>()).cast::<T>();
                // SAFETY: the caller's promise; panels do not overlap.
                unsafe { to.copy_from_nonoverlapping(self.at(panel, row), columns.len()) };
            }
        });
    }

    /// Calls `f` for each of some panels, on several threads if a multiplication of all of them by one panel is large enough.
    pub fn each(&self, pool: &Pool, panels: Range<usize>, f: impl Fn(usize) + Sync) {
        in_numbers(pool, panels.len(), panels.len() * self.rows * PANEL * PANEL, |at| f(panels.start + at));
    }
}

/// Subtracts a multiple of a vector: `from -= factor · what`, by whole SIMD vectors.
///
/// # Safety
/// The machine has the instructions; both are valid for `length` elements, rounded up to whole vectors.
#[inline(always)]
pub unsafe fn subtract<T: Real, M: Simd>(from: *mut T, factor: T, what: *const T, length: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let factor = T::Vector::<M>::splat(T::sub(T::default(), factor));
        for at in (0..length).step_by(T::Vector::<M>::LANES) {
            let value = T::Vector::<M>::load(from.add(at));
            factor.mul_add(T::Vector::<M>::load(what.add(at)), value).store(from.add(at));
        }
    }
}
