//! LU decomposition with partial pivoting, by panels of columns: eliminate the panel, swap the same rows in every other
//! panel, and update the panels to the right with one matrix product.
//!
//! Source: Golub and Van Loan, Matrix Computations, 4th ed. 2013, section 3.4.

use panoply_host::isa::{Isa, Simd};
use panoply_host::pool::Pool;
use panoply_host::simd::{self, Real, Task};
use panoply_ir::routine::Lu;

use super::Shared;
use super::panel::{PANEL, Panels, each_matrix, subtract};
use super::tile::Product;

/// Computes the LU decomposition of matrices, with partial pivoting.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn lu<T: Real>(pool: &Pool, isa: Isa, of: &Lu, buffers: &[*mut u8]) {
    let [a, packed, order] = [0, 1, 2].map(|at| Shared(buffers[at]));
    let Lu { batch, size, .. } = *of;
    let work = [size, size / 3].into_iter().fold(size, usize::saturating_mul);
    each_matrix(pool, batch, work, |matrix| {
        let at = |buffer: Shared| Shared(buffer.at(matrix * size * size * size_of::<T>()));
        // SAFETY: the caller's promise; matrices do not overlap.
        unsafe {
            let order = std::slice::from_raw_parts_mut(order.at(matrix * size * size_of::<i32>()).cast::<i32>(), size);
            eliminated::<T>(pool, isa, at(a), at(packed), order);
        }
    });
}

/// Decomposes one matrix.
///
/// # Safety
/// As [`super::run`].
unsafe fn eliminated<T: Real>(pool: &Pool, isa: Isa, a: Shared, packed: Shared, order: &mut [i32]) {
    let size = order.len();
    let mut scratch = pool.scratch().take::<T>(Panels::<T>::elems(size, size));
    let panels = Panels::new(scratch.start(), size, size);
    order.iter_mut().zip(0..).for_each(|(order, row)| *order = row);
    // SAFETY: the caller's promise; the scratch memory has the length of the panels, which do not overlap.
    unsafe {
        panels.each(pool, 0..panels.count(), |panel| {
            let columns = panels.columns(panel);
            for at in 0..size {
                let to = std::slice::from_raw_parts_mut(panels.at(panel, at), PANEL);
                let from = std::slice::from_raw_parts(
                    a.at((at * size + columns.start) * size_of::<T>()).cast::<T>(),
                    columns.len(),
                );
                to[..columns.len()].copy_from_slice(from);
                to[columns.len()..].fill(T::default());
            }
        });
        for panel in 0..panels.count() {
            let columns = panels.columns(panel);
            let (first, width) = (columns.start, columns.len());
            let mut pivots = [0; PANEL];
            let own = Eliminate { panel: panels.at(panel, first), rows: size - first, pivots: &mut pivots[..width] };
            simd::run(isa, own);
            let pivots = &pivots[..width];
            pivots.iter().enumerate().for_each(|(at, pivot)| order.swap(first + at, first + pivot));
            panels.each(pool, 0..panels.count() - 1, |other| {
                let other = other + usize::from(other >= panel);
                let behind = (other > panel).then_some(panels.at(panel, first).cast_const());
                simd::run(isa, Follow { target: panels.at(other, first), rows: size - first, pivots, behind });
            });
        }
        panels.store(pool, packed);
    }
}

/// Eliminates a panel from its diagonal on.
struct Eliminate<'a, T> {
    panel: *mut T,
    rows: usize,
    /// The row swapped with each diagonal row, relative to the first of these rows.
    pivots: &'a mut [usize],
}

impl<T: Real> Task for Eliminate<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Eliminate { panel, rows, pivots } = self;
        let width = pivots.len();
        for (column, pivot) in pivots.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                let at = |row: usize| panel.add(row * PANEL);
                let (mut largest, mut place) = (T::of(-1.0), column);
                for row in column..rows {
                    let magnitude = (*at(row).add(column)).abs();
                    if magnitude > largest {
                        (largest, place) = (magnitude, row);
                    }
                }
                *pivot = place;
                exchange(panel, [column, place]);
                let value = *at(column).add(column);
                // Whole vectors are subtracted; elements at and before the column are not changed because the
                // multiplier row is zero there.
                let mut behind = [T::default(); PANEL];
                (column + 1..width).for_each(|c| behind[c] = *at(column).add(c));
                for row in column + 1..rows {
                    let mine = at(row);
                    let above = *mine.add(column);
                    let factor = if value == T::default() { T::default() } else { T::div(above, value) };
                    *mine.add(column) = factor;
                    subtract::<T, M>(mine, factor, behind.as_ptr(), PANEL);
                }
            }
        }
    }
}

/// Swaps two rows of a panel.
#[inline(always)]
unsafe fn exchange<T>(panel: *mut T, [one, other]: [usize; 2]) {
    if one != other {
        // SAFETY: the caller's promise; the rows are different.
        unsafe { std::ptr::swap_nonoverlapping(panel.add(one * PANEL), panel.add(other * PANEL), PANEL) };
    }
}

/// Applies the elimination of a panel to another one.
struct Follow<'a, T> {
    /// The other panel, starting at the same row.
    target: *mut T,
    rows: usize,
    pivots: &'a [usize],
    /// The eliminated panel, if the other one is to its right.
    behind: Option<*const T>,
}

impl<T: Real> Task for Follow<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Follow { target, rows, pivots, behind } = self;
        let width = pivots.len();
        // SAFETY: the caller's promise.
        unsafe {
            pivots.iter().enumerate().for_each(|(at, pivot)| exchange(target, [at, *pivot]));
            let Some(panel) = behind else { return };
            for row in 1..width {
                for before in 0..row {
                    let factor = *panel.add(row * PANEL + before);
                    subtract::<T, M>(target.add(row * PANEL), factor, target.add(before * PANEL), PANEL);
                }
            }
            let negated = |at: usize| T::sub(T::default(), *target.add(at));
            let upper: [T; PANEL * PANEL] = std::array::from_fn(negated);
            let multiples = Product {
                left: panel.add(width * PANEL),
                left_row: PANEL,
                left_column: 1,
                right: upper.as_ptr(),
                right_row: PANEL,
                depth: width,
                result: target.add(width * PANEL),
                result_row: PANEL,
                adds: true,
            };
            multiples.run::<M>(rows - width, PANEL);
        }
    }
}
