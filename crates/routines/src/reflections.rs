//! Block Householder reflections: the vectors of reflections I - v·vᵀ are the columns of a panel, and all of them are
//! applied to another panel at once, by three matrix products (LAPACK's `larft` and `larfb`).
//!
//! Source: Schreiber and Van Loan, A Storage-Efficient WY Representation for Products of Householder Transformations,
//! 1989; Joffrain, Low, Quintana-Ortí, van de Geijn and Van Zee, Accumulating Householder Transformations, Revisited,
//! 2006.

use panoply_host::isa::Simd;
use panoply_host::simd::{Real, Task};

use super::panel::{PANEL, subtract};
use super::tile::Product;

/// Computes the triangular factor T of a panel's reflections (LAPACK's `larft`).
pub struct BlockReflector<T> {
    /// The reflection vectors; unused columns are zero.
    pub vectors: *const T,
    /// Rows of the panel.
    pub rows: usize,
    /// The result: minus the inverse of L, where L has ones on the diagonal and Vᵀ·V below it, and V holds all vectors.
    /// The product that applies the first reflection first is I - V·L⁻¹·Vᵀ, and the one that applies the last first is
    /// I - V·L⁻ᵀ·Vᵀ.
    pub t_factor: *mut T,
}

impl<T: Real> Task for BlockReflector<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let BlockReflector { vectors, rows, t_factor } = self;
        let mut inner = [T::default(); PANEL * PANEL];
        // SAFETY: the caller's promise.
        unsafe {
            inner_products(vectors, rows, vectors, inner.as_mut_ptr()).run::<M>(PANEL, PANEL);
            for row in 0..PANEL {
                let mine = t_factor.add(row * PANEL);
                (0..PANEL).for_each(|c| *mine.add(c) = if c == row { T::of(-1.0) } else { T::default() });
                for before in 0..row {
                    subtract::<T, M>(mine, inner[row * PANEL + before], t_factor.add(before * PANEL), PANEL);
                }
            }
        }
    }
}

/// Returns the product Vᵀ·X of the vectors and another panel, both of `rows` rows.
pub fn inner_products<T>(vectors: *const T, rows: usize, beside: *const T, result: *mut T) -> Product<T> {
    Product {
        left: vectors,
        left_row: 1,
        left_column: PANEL,
        right: beside,
        right_row: PANEL,
        depth: rows,
        result,
        result_row: PANEL,
        adds: false,
    }
}

/// Applies the reflections of a panel to another panel (LAPACK's `larfb`).
pub struct ApplyReflector<T> {
    /// The vectors, as columns of a panel.
    pub vectors: *const T,
    /// The triangular factor, as in [`BlockReflector`].
    pub t_factor: *const T,
    /// Rows of both panels.
    pub rows: usize,
    /// The other panel.
    pub target: *mut T,
    /// True if the last reflection is applied first.
    pub last_first: bool,
}

impl<T: Real> Task for ApplyReflector<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let ApplyReflector { vectors, t_factor, rows, target, last_first } = self;
        let (mut products, mut factors) = ([T::default(); PANEL * PANEL], [T::default(); PANEL * PANEL]);
        let (products, factors) = (products.as_mut_ptr(), factors.as_mut_ptr());
        let product = Product {
            left: t_factor,
            left_row: if last_first { 1 } else { PANEL },
            left_column: if last_first { PANEL } else { 1 },
            right: products.cast_const(),
            right_row: PANEL,
            depth: PANEL,
            result: factors,
            result_row: PANEL,
            adds: false,
        };
        // SAFETY: the caller's promise.
        unsafe {
            inner_products(vectors, rows, target, products).run::<M>(PANEL, PANEL);
            product.run::<M>(PANEL, PANEL);
            let moved = Product {
                left: vectors,
                left_row: PANEL,
                left_column: 1,
                right: factors.cast_const(),
                result: target,
                adds: true,
                ..product
            };
            moved.run::<M>(rows, PANEL);
        }
    }
}
