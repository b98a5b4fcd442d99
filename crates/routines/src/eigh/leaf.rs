//! The leaves of the divide-and-conquer algorithm: eigenvectors of a small tridiagonal matrix by implicit QL iterations
//! with Wilkinson's shifts.
//!
//! Source: Bowdler, Martin, Reinsch and Wilkinson, The QR and QL Algorithms for Symmetric Matrices, 1968.

use panoply_host::isa::Simd;
use panoply_host::simd::{Real, Task};

use super::Rows;

/// Maximum number of rows.
pub const LEAF: usize = 32;

/// Maximum number of iterations per eigenvalue, after which the computation fails; two are common.
const MAX_STEPS: usize = 60;

/// A matrix whose elements are at most about 1. Its diagonal is overwritten by the eigenvalues, unsorted.
pub struct Leaf<'a, T> {
    pub diagonal: &'a mut [f64],
    /// The off-diagonal elements, followed by one element that is not part of the matrix and may be overwritten.
    pub off_diagonal: &'a mut [f64],
    /// Destination of the eigenvectors, as rows.
    pub vectors: Rows<T>,
    /// Set to true if all eigenvalues were found.
    pub found: &'a mut bool,
}

impl<T: Real> Task for Leaf<'_, T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let Leaf { diagonal, off_diagonal, vectors, found } = self;
        let size = diagonal.len();
        let mut rows = [[0.0; LEAF]; LEAF];
        rows.iter_mut().enumerate().for_each(|(at, row)| row[at] = 1.0);
        *found = (0..size).all(|first| value(diagonal, off_diagonal, &mut rows, first));
        for (at, row) in rows[..size].iter().enumerate() {
            // SAFETY: the caller's promise.
            let to = unsafe { std::slice::from_raw_parts_mut(vectors.at(at, 0), size) };
            to.iter_mut().zip(row).for_each(|(to, from)| *to = T::of(*from));
        }
    }
}

/// Iterates until the off-diagonal element of a row is negligible. Returns false if that is not reached.
#[inline(always)]
fn value(d: &mut [f64], e: &mut [f64], rows: &mut [[f64; LEAF]; LEAF], first: usize) -> bool {
    let tiny = f64::EPSILON * f64::EPSILON;
    for _ in 0..MAX_STEPS {
        let apart = |at: usize| e[at].abs() <= f64::EPSILON * (d[at].abs() + d[at + 1].abs()) + tiny;
        let last = (first..d.len() - 1).find(|at| apart(*at)).unwrap_or(d.len() - 1);
        if last == first {
            return true;
        }
        step(d, e, rows, [first, last]);
    }
    false
}

/// Performs one QL iteration on a range of rows.
#[inline(always)]
fn step(d: &mut [f64], e: &mut [f64], rows: &mut [[f64; LEAF]; LEAF], [first, last]: [usize; 2]) {
    let slope = (d[first + 1] - d[first]) / (2.0 * e[first]);
    let shift = d[first] - e[first] / (slope + slope.hypot(1.0).copysign(slope));
    let (mut g, mut sine, mut cosine, mut moved) = (d[last] - shift, 1.0, 1.0, 0.0);
    for at in (first..last).rev() {
        let (f, b) = (sine * e[at], cosine * e[at]);
        let square = f * f + g * g;
        // Squares close to underflow have lost digits.
        let length = if square > 2f64.powi(-900) { square.sqrt() } else { f.hypot(g) };
        e[at + 1] = length;
        if length == 0.0 {
            d[at + 1] -= moved;
            e[last] = 0.0;
            return;
        }
        (sine, cosine) = (f / length, g / length);
        g = d[at + 1] - moved;
        let both = (d[at] - g) * sine + 2.0 * cosine * b;
        moved = sine * both;
        d[at + 1] = g + moved;
        g = cosine * both - b;
        let (before, behind) = rows.split_at_mut(at + 1);
        for (x, y) in before[at].iter_mut().zip(&mut behind[0]) {
            (*x, *y) = (cosine * *x - sine * *y, sine * *x + cosine * *y);
        }
    }
    d[first] -= moved;
    e[first] = g;
    e[last] = 0.0;
}
