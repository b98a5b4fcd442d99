//! Q of the QR decomposition by blocked Householder reflections, one panel of columns at a time: reduce the panel, then apply
//! its reflections to each panel to the right by three matrix products (compact WY form), as LAPACK's `geqrf`. The product of
//! all reflections is computed the same way, from the last panel to the first, as by `orgqr`. Each panel is separate in scratch memory, a few vectors
//! wide, so that threads share only what they read.
//!
//! Source: Golub and Van Loan, Matrix Computations, 4th ed. 2013, section 5.2.

use panoply_host::isa::{Isa, Simd};
use panoply_host::pool::Pool;
use panoply_host::simd::{self, Real, Task};
use panoply_ir::routine::Qr;

use super::Shared;
use super::panel::{PANEL, Panels, each_matrix};
use super::reflections::{ApplyReflector, BlockReflector, inner_products};
use super::tile::Product;

/// Computes the first `columns` columns of Q of matrices. `buffers` are the operands of [`Qr`]: the matrices and their Q, both
/// `[batch, rows, columns]`.
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

/// Computes Q of one matrix `[rows, columns]`.
///
/// # Safety
/// As [`super::run`].
unsafe fn orthonormal<T: Real>(pool: &Pool, isa: Isa, [rows, columns]: [usize; 2], a: Shared, q: Shared) {
    let (all, panels) = (Panels::<T>::elems(rows, columns), columns.div_ceil(PANEL));
    let mut scratch = pool.scratch().take::<T>(2 * all + panels * PANEL * PANEL);
    // The matrix, overwritten by the reflection vectors; Q; and the triangular factor of each panel's reflections.
    let [matrix, q_panels, t_factor] = [0, all, 2 * all].map(|first| scratch.start().wrapping_add(first));
    let [matrix, q_panels] = [matrix, q_panels].map(|start| Panels::new(start, rows, columns));
    let t_factor = Panels::<T>::new(t_factor, PANEL, columns);
    let apply = |panel: usize, target: *mut T, last_first: bool| ApplyReflector {
        vectors: matrix.at(panel, panel * PANEL).cast_const(),
        t_factor: t_factor.at(panel, 0).cast_const(),
        rows: rows - panel * PANEL,
        target,
        last_first,
    };
    // SAFETY: the caller's promise; the scratch memory has this length, and panels do not overlap.
    unsafe {
        matrix.each(pool, 0..panels, |panel| {
            let columns_of = matrix.columns(panel);
            let from = a.at(columns_of.start * size_of::<T>()).cast::<T>().cast_const();
            simd::run(isa, Scale { from, row: columns, rows, count: columns_of.len(), to: matrix.at(panel, 0) });
            let to = q_panels.at(panel, 0);
            (0..rows * PANEL).for_each(|at| *to.add(at) = T::default());
            columns_of.enumerate().for_each(|(at, column)| *q_panels.at(panel, column).add(at) = T::of(1.0));
        });
        for panel in 0..panels {
            let (first, count) = (panel * PANEL, matrix.columns(panel).len());
            let own =
                Reflect { panel: matrix.at(panel, first), rows: rows - first, count, t_factor: t_factor.at(panel, 0) };
            simd::run(isa, own);
            matrix.each(pool, panel + 1..panels, |trailing| {
                simd::run(isa, apply(panel, matrix.at(trailing, first), false));
            });
        }
        for panel in (0..panels).rev() {
            q_panels.each(pool, panel..panels, |trailing| {
                simd::run(isa, apply(panel, q_panels.at(trailing, panel * PANEL), true));
            });
        }
        q_panels.store(pool, q);
    }
}

/// Copies a panel of a matrix with each column divided by its largest magnitude, so that squares neither overflow nor
/// underflow. Q does not change, because only the columns of R are scaled.
struct Scale<T> {
    from: *const T,
    /// Elements from one row of `from` to the next.
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
        let mut scales = [T::default(); PANEL];
        // SAFETY: the caller's promise.
        unsafe {
            for at in 0..rows {
                let from = std::slice::from_raw_parts(from.add(at * row), count);
                for (scale, value) in scales.iter_mut().zip(from) {
                    *scale = if value.abs() > *scale { value.abs() } else { *scale };
                }
            }
            for scale in &mut scales {
                let finite = T::sub(*scale, *scale) == T::default();
                *scale = if finite && *scale > T::default() { *scale } else { T::of(1.0) };
            }
            for at in 0..rows {
                let from = std::slice::from_raw_parts(from.add(at * row), count);
                let (to, rest) = std::slice::from_raw_parts_mut(to.add(at * PANEL), PANEL).split_at_mut(count);
                to.iter_mut().zip(from).zip(&scales).for_each(|((to, from), scale)| *to = T::div(*from, *scale));
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
    t_factor: *mut T,
}

impl<T: Real> Task for Reflect<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Reflect { panel, rows, count, t_factor } = self;
        // SAFETY: the caller's promise.
        unsafe {
            (0..count).for_each(|column| reflect::<T, M>(panel, rows, column));
            for row in 0..count {
                (row + 1..PANEL).for_each(|c| *panel.add(row * PANEL + c) = T::default());
            }
            BlockReflector { vectors: panel, rows, t_factor }.run::<M>();
        }
    }
}

/// Computes the Householder vector v of a column (LAPACK's `larfg`), scaled so that the reflection is I - v·vᵀ, and applies the
/// reflection to the columns to its right.
#[inline(always)]
unsafe fn reflect<T: Real, M: Simd>(panel: *mut T, rows: usize, column: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let (vector, rows) = (panel.add(column * PANEL + column), rows - column);
        let below = |from: T, f: &dyn Fn(T, T) -> T| (1..rows).fold(from, |sum, row| f(sum, *vector.add(row * PANEL)));
        let square = below(T::default(), &|sum, value| T::add(sum, T::mul(value, value)));
        let head = *vector;
        let length = T::add(T::mul(head, head), square).sqrt();
        let pivot = if head < T::default() { T::sub(head, length) } else { T::add(head, length) };
        // This threshold is far below the rounding error of a column whose largest magnitude is 1, and 2 divided by it
        // does not overflow.
        let min_square = T::of(2f64.powi(if size_of::<T>() == size_of::<f64>() { -900 } else { -100 }));
        let factor = T::div(T::of(2.0), T::add(T::mul(pivot, pivot), square)).sqrt();
        let factor = if square < min_square { T::default() } else { factor };
        *vector = T::mul(pivot, factor);
        (1..rows).for_each(|row| *vector.add(row * PANEL) = T::mul(*vector.add(row * PANEL), factor));

        let trailing = panel.add(column * PANEL);
        let mut products = [T::default(); PANEL];
        inner_products(vector, rows, trailing, products.as_mut_ptr()).run::<M>(1, PANEL);
        let negated = |c: usize| if c > column { T::sub(T::default(), products[c]) } else { T::default() };
        let products: [T; PANEL] = std::array::from_fn(negated);
        let update = Product {
            left: vector.cast_const(),
            left_row: PANEL,
            left_column: 1,
            right: products.as_ptr(),
            right_row: PANEL,
            depth: 1,
            result: trailing,
            result_row: PANEL,
            adds: true,
        };
        update.run::<M>(rows, PANEL);
    }
}
