//! Q of the QR decomposition by Householder reflections, one panel of columns at a time: reduce the panel, then apply
//! its reflections to each panel to the right by three matrix products (WY form). The product of all reflections is
//! computed the same way, from the last panel to the first. Each panel is separate in scratch memory, a few vectors
//! wide, so that threads share only what they read.
//!
//! Source: Golub and Van Loan, Matrix Computations, 4th ed. 2013, section 5.2.

use panoply_host::isa::{Isa, Simd};
use panoply_host::pool::Pool;
use panoply_host::simd::{self, Real, Task};
use panoply_ir::routine::Qr;

use super::Shared;
use super::panel::{PANEL, Panels, each_matrix};
use super::reflections::{ApplyReflector, BlockReflector, across};
use super::tile::Product;

/// Computes Q of matrices.
///
/// # Safety
/// As [`super::run`].
pub unsafe fn qr<T: Real>(pool: &Pool, isa: Isa, of: &Qr, buffers: &[*mut u8]) {
    let [a, q] = [0, 1].map(|at| Shared(buffers[at]));
    let Qr { batch, rows, columns, .. } = *of;
    let work = [columns, columns].into_iter().fold(rows, usize::saturating_mul);
    each_matrix(pool, batch, work, |matrix| {
        let at = |buffer: Shared| Shared(buffer.at(matrix * rows * columns * size_of::<T>()));
        // SAFETY: the caller's promise; matrices do not overlap.
        unsafe { orthonormal::<T>(pool, isa, [rows, columns], at(a), at(q)) };
    });
}

/// Computes Q of one matrix.
///
/// # Safety
/// As [`super::run`].
unsafe fn orthonormal<T: Real>(pool: &Pool, isa: Isa, [rows, columns]: [usize; 2], a: Shared, q: Shared) {
    let (all, panels) = (Panels::<T>::elems(rows, columns), columns.div_ceil(PANEL));
    let mut scratch = pool.scratch().take::<T>(2 * all + panels * PANEL * PANEL);
    // The matrix, overwritten by the reflections; their product; and the triangular factors of each panel's reflections.
    let [matrix, product, together] = [0, all, 2 * all].map(|first| scratch.start().wrapping_add(first));
    let [matrix, product] = [matrix, product].map(|start| Panels::new(start, rows, columns));
    let together = Panels::<T>::new(together, PANEL, columns);
    let apply = |panel: usize, target: *mut T, backwards: bool| ApplyReflector {
        vectors: matrix.at(panel, panel * PANEL).cast_const(),
        together: together.at(panel, 0).cast_const(),
        rows: rows - panel * PANEL,
        target,
        backwards,
    };
    // SAFETY: the caller's promise; the scratch memory has this length, and panels do not overlap.
    unsafe {
        matrix.each(pool, 0..panels, |panel| {
            let columns_of = matrix.columns(panel);
            let from = a.at(columns_of.start * size_of::<T>()).cast::<T>().cast_const();
            simd::run(isa, Scale { from, row: columns, rows, count: columns_of.len(), to: matrix.at(panel, 0) });
            let to = product.at(panel, 0);
            (0..rows * PANEL).for_each(|at| *to.add(at) = T::default());
            columns_of.enumerate().for_each(|(at, column)| *product.at(panel, column).add(at) = T::of(1.0));
        });
        for panel in 0..panels {
            let (first, count) = (panel * PANEL, matrix.columns(panel).len());
            let own =
                Reflect { panel: matrix.at(panel, first), rows: rows - first, count, together: together.at(panel, 0) };
            simd::run(isa, own);
            matrix.each(pool, panel + 1..panels, |behind| {
                simd::run(isa, apply(panel, matrix.at(behind, first), false));
            });
        }
        for panel in (0..panels).rev() {
            product.each(pool, panel..panels, |behind| {
                simd::run(isa, apply(panel, product.at(behind, panel * PANEL), true));
            });
        }
        product.store(pool, q);
    }
}

/// Copies a panel of a matrix with each column divided by its largest magnitude, so that squares neither overflow nor
/// underflow. Q does not change.
struct Scale<T> {
    from: *const T,
    /// Elements from one row to the next.
    row: usize,
    rows: usize,
    /// Number of columns present; the others are filled with zeros.
    count: usize,
    to: *mut T,
}

impl<T: Real> Task for Scale<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Scale { from, row, rows, count, to } = self;
        let mut sizes = [T::default(); PANEL];
        // SAFETY: the caller's promise.
        unsafe {
            for at in 0..rows {
                let from = std::slice::from_raw_parts(from.add(at * row), count);
                for (size, value) in sizes.iter_mut().zip(from) {
                    *size = if value.abs() > *size { value.abs() } else { *size };
                }
            }
            for size in &mut sizes {
                let finite = T::sub(*size, *size) == T::default();
                *size = if finite && *size > T::default() { *size } else { T::of(1.0) };
            }
            for at in 0..rows {
                let from = std::slice::from_raw_parts(from.add(at * row), count);
                let (to, rest) = std::slice::from_raw_parts_mut(to.add(at * PANEL), PANEL).split_at_mut(count);
                to.iter_mut().zip(from).zip(&sizes).for_each(|((to, from), size)| *to = T::div(*from, *size));
                rest.fill(T::default());
            }
        }
    }
}

/// Computes the Householder reflections I - v·vᵀ that clear the columns of a panel below its diagonal, and their block form.
struct Reflect<T> {
    /// The panel from its diagonal on; overwritten by the vectors, with zeros above.
    panel: *mut T,
    rows: usize,
    count: usize,
    /// The triangular factor, as in [`BlockReflector`].
    together: *mut T,
}

impl<T: Real> Task for Reflect<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Reflect { panel, rows, count, together } = self;
        // SAFETY: the caller's promise.
        unsafe {
            (0..count).for_each(|column| reflect::<T, M>(panel, rows, column));
            for row in 0..count {
                (row + 1..PANEL).for_each(|c| *panel.add(row * PANEL + c) = T::default());
            }
            BlockReflector { vectors: panel, rows, together }.run::<M>();
        }
    }
}

/// Computes the reflection vector of a column, and reflects the columns to its right.
#[inline(always)]
unsafe fn reflect<T: Real, M: Simd>(panel: *mut T, rows: usize, column: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let (vector, rows) = (panel.add(column * PANEL + column), rows - column);
        let below = |from: T, f: &dyn Fn(T, T) -> T| (1..rows).fold(from, |sum, row| f(sum, *vector.add(row * PANEL)));
        let square = below(T::default(), &|sum, value| T::add(sum, T::mul(value, value)));
        let head = *vector;
        let length = T::add(T::mul(head, head), square).sqrt();
        let moved = if head < T::default() { T::sub(head, length) } else { T::add(head, length) };
        // This threshold is far below the rounding error of a column whose largest magnitude is 1, and 2 divided by it
        // does not overflow.
        let least = T::of(2f64.powi(if size_of::<T>() == size_of::<f64>() { -900 } else { -100 }));
        let factor = T::div(T::of(2.0), T::add(T::mul(moved, moved), square)).sqrt();
        let factor = if square < least { T::default() } else { factor };
        *vector = T::mul(moved, factor);
        (1..rows).for_each(|row| *vector.add(row * PANEL) = T::mul(*vector.add(row * PANEL), factor));

        let behind = panel.add(column * PANEL);
        let mut products = [T::default(); PANEL];
        across(vector, rows, behind, products.as_mut_ptr()).run::<M>(1, PANEL);
        let negated = |c: usize| if c > column { T::sub(T::default(), products[c]) } else { T::default() };
        let products: [T; PANEL] = std::array::from_fn(negated);
        let moved = Product {
            left: vector.cast_const(),
            left_row: PANEL,
            left_column: 1,
            right: products.as_ptr(),
            right_row: PANEL,
            depth: 1,
            result: behind,
            result_row: PANEL,
            adds: true,
        };
        moved.run::<M>(rows, PANEL);
    }
}
