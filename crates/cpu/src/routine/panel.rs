//! Matrices in panels of a few columns, one after the other in scratch memory: rows of a panel are whole vectors of every machine, and
//! threads that have panels of their own share nothing but what they read.

use std::marker::PhantomData;
use std::ops::Range;

use super::{PARALLEL_FLOPS, Shared, in_numbers};
use crate::pool::Pool;
use crate::simd::{Real, Vector};
use crate::vm::isa::Machine;

/// Columns of a panel.
pub const PANEL: usize = 32;

/// Calls `f` with each matrix of so much work: each is a thread's, or the panels of one after the other are, where there are fewer
/// matrices than threads.
pub fn each_matrix(pool: &Pool, count: usize, work: usize, f: impl Fn(usize) + Sync) {
    if count < pool.threads() && work >= PARALLEL_FLOPS {
        (0..count).for_each(f);
    } else {
        in_numbers(pool, count, work.saturating_mul(count), f);
    }
}

/// A matrix in panels.
#[derive(Clone, Copy)]
pub struct Panels<T> {
    start: Shared,
    /// Its rows.
    pub rows: usize,
    columns: usize,
    elem: PhantomData<T>,
}

impl<T: Real> Panels<T> {
    /// Elements of all panels.
    pub fn elems(rows: usize, columns: usize) -> usize {
        rows * columns.next_multiple_of(PANEL)
    }

    /// In so much memory from here on.
    pub fn new(start: *mut T, rows: usize, columns: usize) -> Panels<T> {
        Panels { start: Shared(start.cast()), rows, columns, elem: PhantomData }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.columns.div_ceil(PANEL)
    }

    /// The columns of a panel.
    pub fn columns(&self, panel: usize) -> Range<usize> {
        panel * PANEL..self.columns.min((panel + 1) * PANEL)
    }

    /// A row of a panel.
    pub fn at(&self, panel: usize, row: usize) -> *mut T {
        self.start.at((panel * self.rows + row) * PANEL * size_of::<T>()).cast()
    }

    /// Writes the matrix row by row.
    ///
    /// # Safety
    /// Both are valid for all rows and columns, and apart.
    pub unsafe fn store(&self, pool: &Pool, to: Shared) {
        self.each(pool, 0..self.count(), |panel| {
            let columns = self.columns(panel);
            for row in 0..self.rows {
                let to = to.at((row * self.columns + columns.start) * size_of::<T>()).cast::<T>();
                // SAFETY: the caller's promise; panels are apart.
                unsafe { to.copy_from_nonoverlapping(self.at(panel, row), columns.len()) };
            }
        });
    }

    /// Calls `f` with each of some panels, on several threads if multiplying as many by one is worth it.
    pub fn each(&self, pool: &Pool, panels: Range<usize>, f: impl Fn(usize) + Sync) {
        in_numbers(pool, panels.len(), panels.len() * self.rows * PANEL * PANEL, |at| f(panels.start + at));
    }
}

/// Subtracts a multiple of what stands elsewhere, in whole vectors.
///
/// # Safety
/// The machine has the instructions; both are valid for so many elements.
#[inline(always)]
pub unsafe fn subtract<T: Real, M: Machine>(from: *mut T, factor: T, what: *const T, length: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let factor = T::Vector::<M>::splat(T::sub(T::default(), factor));
        for at in (0..length).step_by(T::Vector::<M>::LANES) {
            let value = T::Vector::<M>::load(from.add(at));
            factor.mul_add(T::Vector::<M>::load(what.add(at)), value).store(from.add(at));
        }
    }
}
