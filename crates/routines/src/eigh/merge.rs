//! Eigenvectors of a tridiagonal matrix by divide and conquer: without one off-diagonal element it splits into two
//! matrices, and that element is a rank-one update of both. Where the update vector is zero or eigenvalues are equal,
//! eigenvectors are unchanged (deflation).
//!
//! Source: Cuppen, A Divide and Conquer Method for the Symmetric Tridiagonal Eigenproblem, 1981; Rutter, A Serial
//! Implementation of Cuppen's Divide and Conquer Algorithm, 1994, for the deflation.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_host::simd::{self, Real};
use panoply_ir::DType;
use panoply_ir::routine::{Gemm, Layout};

use super::super::{PARALLEL_FLOPS, Shared, gemm, in_numbers};
use super::Rows;
use super::leaf::{LEAF, Leaf};
use super::secular::{Exact, Find, Roots, Secular, Vectors};

/// Number of roots that a thread finds at a time.
const ROOTS: usize = 16;

/// Computes the eigenvectors of a tridiagonal matrix as rows, and returns their order, the smallest eigenvalue first.
/// `diagonal` is overwritten by the eigenvalues. Returns `None` if an iteration did not converge.
///
/// # Safety
/// The instruction set is available. All three buffers have the dimensions of the matrix; the last two are scratch
/// memory.
pub unsafe fn vectors<T: Real>(
    pool: &Pool,
    isa: Isa,
    [vectors, gathered, shares]: [Rows<T>; 3],
    diagonal: &mut [f64],
    off_diagonal: &mut [f64],
) -> Option<Vec<usize>> {
    let size = diagonal.len();
    let depth = (0..).find(|depth| size.div_ceil(1 << depth) <= LEAF).expect("halving terminates");
    let bound = |part: usize, depth: u32| (part * size) >> depth;
    let couplings: Vec<f64> = off_diagonal.to_vec();
    for at in (1..1 << depth).map(|part| bound(part, depth)) {
        diagonal[at - 1] -= couplings[at - 1].abs();
        diagonal[at] -= couplings[at - 1].abs();
    }
    let leaf = |leaf: usize| bound(leaf, depth)..bound(leaf + 1, depth);
    // SAFETY: the caller's promise; leaves do not overlap.
    unsafe { leaves(pool, isa, vectors, [&mut *diagonal, off_diagonal], 1 << depth, leaf) }.then_some(())?;
    let values = Numbers(Shared(diagonal.as_mut_ptr().cast()));
    for depth in (0..depth).rev() {
        let merge = |number: usize| {
            let rows = bound(number, depth)..bound(number + 1, depth);
            let split = bound(2 * number + 1, depth + 1) - rows.start;
            let (coupling, start) = (couplings[rows.start + split - 1], rows.start);
            let (vectors, shares) = (vectors.from(start, start), shares.from(start, 0));
            // SAFETY: the caller's promise; parts do not overlap.
            unsafe {
                let values = values.part(rows);
                Merge { pool, isa, split, coupling, values, vectors, gathered: gathered.at(start, 0), shares }.run();
            }
        };
        let count = 1 << depth;
        if count < pool.threads() { (0..count).for_each(merge) } else { in_numbers(pool, count, PARALLEL_FLOPS, merge) }
    }
    let mut order: Vec<usize> = (0..size).collect();
    order.sort_by(|a, b| diagonal[*a].total_cmp(&diagonal[*b]));
    Some(order)
}

/// Computes the eigenvectors of `count` leaves, with zeros elsewhere in their rows. Returns true if all were found.
///
/// # Safety
/// As [`vectors`]; leaves do not overlap.
unsafe fn leaves<T: Real>(
    pool: &Pool,
    isa: Isa,
    vectors: Rows<T>,
    numbers: [&mut [f64]; 2],
    count: usize,
    leaf: impl Fn(usize) -> Range<usize> + Sync,
) -> bool {
    let size = numbers[0].len();
    let missing = AtomicBool::new(false);
    let numbers = numbers.map(|of| Numbers(Shared(of.as_mut_ptr().cast())));
    in_numbers(pool, count, size * LEAF * LEAF, |number| {
        let rows = leaf(number);
        let mut found = false;
        // SAFETY: the caller's promise.
        unsafe {
            for row in rows.clone() {
                std::slice::from_raw_parts_mut(vectors.at(row, 0), size).fill(T::default());
            }
            let [diagonal, off_diagonal] = numbers.map(|of| of.part(rows.clone()));
            let vectors = vectors.from(rows.start, rows.start);
            simd::run(isa, Leaf { diagonal, off_diagonal, vectors, found: &mut found });
        }
        missing.fetch_or(!found, Ordering::Relaxed);
    });
    !missing.into_inner()
}

/// An array of numbers that threads divide among themselves.
#[derive(Clone, Copy)]
struct Numbers(Shared);

impl Numbers {
    /// Returns a part of the array.
    ///
    /// # Safety
    /// The range is inside the array, and nothing else accesses these numbers.
    unsafe fn part<'a>(self, range: Range<usize>) -> &'a mut [f64] {
        let start = self.0.at(range.start * size_of::<f64>()).cast::<f64>();
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(start, range.len()) }
    }
}

/// The merge of two adjacent parts whose eigenvectors are known.
struct Merge<'a, T> {
    pool: &'a Pool,
    isa: Isa,
    /// Number of rows of the first part.
    split: usize,
    /// The off-diagonal element between both parts, which was subtracted from their diagonals.
    coupling: f64,
    values: &'a mut [f64],
    vectors: Rows<T>,
    /// Scratch memory for as many elements as the eigenvectors of both parts.
    gathered: *mut T,
    shares: Rows<T>,
}

/// The half in which a row of the eigenvectors is nonzero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Half {
    First,
    Both,
    Second,
}

/// The result of deflation.
struct Deflation {
    /// Eigenvectors that change, by eigenvalue, without equal eigenvalues.
    rows: Vec<usize>,
    stay: Vec<usize>,
    halves: Vec<Half>,
}

impl<T: Real> Merge<'_, T> {
    /// # Safety
    /// The instruction set is available; all memory has these lengths, and nothing else accesses it.
    unsafe fn run(mut self) {
        let size = self.values.len();
        // SAFETY: the caller's promise.
        unsafe {
            let mut z: Vec<f64> = (0..size).map(|row| self.across(row)).collect();
            let rho = 2.0 * self.coupling.abs();
            let Deflation { rows, stay, halves } = self.deflate(rho, &mut z);
            let poles: Vec<f64> = rows.iter().map(|row| self.values[*row]).collect();
            let mut z: Vec<f64> = rows.iter().map(|row| z[*row] * rho.sqrt()).collect();
            let [origins, distances] = self.roots(&poles, &mut z);
            // Sorted for the products: rows that are zero in one half are at one end.
            let mut order: Vec<usize> = (0..rows.len()).collect();
            order.sort_by_key(|at| halves[rows[*at]]);
            let sorted = |of: &[f64]| order.iter().map(|at| of[*at]).collect::<Vec<f64>>();
            let (sorted_poles, sorted_z) = (sorted(&poles), sorted(&z));
            let (shares, roots) = (self.shares, Roots { origins: &origins, distances: &distances });
            let isa = self.isa;
            in_numbers(self.pool, rows.len().div_ceil(ROOTS), 8 * rows.len() * rows.len(), |number| {
                let range = number * ROOTS..rows.len().min((number + 1) * ROOTS);
                simd::run(isa, Vectors { poles: &sorted_poles, z: &sorted_z, roots, range, to: shares });
            });
            let ordered: Vec<usize> = order.iter().map(|at| rows[*at]).collect();
            self.multiply(&ordered, &stay, &halves);
            let stayed = stay.iter().map(|row| self.values[*row]);
            let found = origins.iter().zip(&distances).map(|(origin, distance)| origin + distance);
            let values: Vec<f64> = found.chain(stayed).collect();
            self.values.copy_from_slice(&values);
        }
    }

    /// Returns the element of an eigenvector at the split, divided by the square root of 2.
    unsafe fn across(&self, row: usize) -> f64 {
        let sign = if row < self.split { 1.0 } else { 1f64.copysign(self.coupling) };
        let column = if row < self.split { self.split - 1 } else { self.split };
        // SAFETY: the caller's promise.
        unsafe { (*self.vectors.at(row, column)).wide() * sign * std::f64::consts::FRAC_1_SQRT_2 }
    }

    /// Finds the eigenvectors that do not change, and rotates those of nearly equal eigenvalues so that one of each two
    /// does not change.
    unsafe fn deflate(&mut self, rho: f64, z: &mut [f64]) -> Deflation {
        let (size, split) = (self.values.len(), self.split);
        let mut halves: Vec<Half> = (0..size).map(|row| if row < split { Half::First } else { Half::Second }).collect();
        let mut ascending: Vec<usize> = (0..size).collect();
        ascending.sort_by(|a, b| self.values[*a].total_cmp(&self.values[*b]));
        let rounding = if size_of::<T>() == size_of::<f64>() { 4.0 * f64::EPSILON } else { f64::from(f32::EPSILON) };
        let limit = rounding * self.values.iter().fold(rho, |most, value| value.abs().max(most));
        let (mut rows, mut stay): (Vec<usize>, Vec<usize>) = (Vec::with_capacity(size), Vec::new());
        for row in ascending {
            if rho * z[row].abs() <= limit {
                stay.push(row);
                continue;
            }
            if let Some(before) = rows.last().copied() {
                let length = z[row].hypot(z[before]);
                let (cosine, sine) = (z[row] / length, -z[before] / length);
                let (low, high) = (self.values[before], self.values[row]);
                if ((high - low) * cosine * sine).abs() <= limit {
                    (z[row], z[before]) = (length, 0.0);
                    let (c, s) = (cosine * cosine, sine * sine);
                    (self.values[before], self.values[row]) = (low * c + high * s, low * s + high * c);
                    if halves[before] != halves[row] {
                        (halves[before], halves[row]) = (Half::Both, Half::Both);
                    }
                    // SAFETY: the caller's promise; the rows are different.
                    unsafe {
                        let [x, y] =
                            [before, row].map(|row| std::slice::from_raw_parts_mut(self.vectors.at(row, 0), size));
                        rotate(x, y, [cosine, sine].map(T::of));
                    }
                    stay.push(before);
                    rows.pop();
                }
            }
            rows.push(row);
        }
        Deflation { rows, stay, halves }
    }

    /// Finds the roots, and replaces z by the vector for which they are exact.
    unsafe fn roots(&self, poles: &[f64], z: &mut [f64]) -> [Vec<f64>; 2] {
        let (count, isa) = (poles.len(), self.isa);
        let weights: Vec<f64> = z.iter().map(|z| z * z).collect();
        let (mut origins, mut distances) = (vec![0.0; count], vec![0.0; count]);
        let places = [&mut origins[..], &mut distances, z].map(|of| Numbers(Shared(of.as_mut_ptr().cast())));
        let range = |number: usize| number * ROOTS..count.min((number + 1) * ROOTS);
        in_numbers(self.pool, count.div_ceil(ROOTS), 32 * count * count, |number| {
            // SAFETY: the caller's promise; ranges do not overlap.
            unsafe {
                let [origins, distances] = [0, 1].map(|of| places[of].part(range(number)));
                let of = Secular { poles, weights: &weights };
                simd::run(isa, Find { of, first: number * ROOTS, origins, distances });
            }
        });
        let roots = Roots { origins: &origins, distances: &distances };
        in_numbers(self.pool, count.div_ceil(ROOTS), 8 * count * count, |number| {
            // SAFETY: as above.
            unsafe {
                let z = places[2].part(range(number));
                simd::run(isa, Exact { poles, roots, first: number * ROOTS, z });
            }
        });
        [origins, distances]
    }

    /// Computes the new eigenvectors, and stores the unchanged ones after them.
    unsafe fn multiply(&self, rows: &[usize], stay: &[usize], halves: &[Half]) {
        let (size, split, count) = (self.values.len(), self.split, rows.len());
        let first = rows.iter().filter(|row| halves[**row] == Half::First).count();
        let second = rows.iter().filter(|row| halves[**row] == Half::Second).count();
        let (upper, lower) = (count - second, count - first);
        let [left, right, rest] =
            [0, upper * split, upper * split + lower * (size - split)].map(|at| self.gathered.wrapping_add(at));
        let copy = |row: usize, column: usize, to: *mut T, length: usize| {
            // SAFETY: the caller's promise.
            unsafe { to.copy_from_nonoverlapping(self.vectors.at(row, column), length) }
        };
        rows[..upper].iter().enumerate().for_each(|(at, row)| copy(*row, 0, left.wrapping_add(at * split), split));
        let width = size - split;
        rows[first..].iter().enumerate().for_each(|(at, row)| copy(*row, split, right.wrapping_add(at * width), width));
        stay.iter().enumerate().for_each(|(at, row)| copy(*row, 0, rest.wrapping_add(at * size), size));
        // SAFETY: the caller's promise: the gathered rows fit, because a row that is in one half is not in the other.
        unsafe {
            self.product([count, upper, split], self.shares.at(0, 0), left, self.vectors.at(0, 0));
            self.product([count, lower, width], self.shares.at(0, first), right, self.vectors.at(0, split));
            for at in 0..stay.len() {
                self.vectors.at(count + at, 0).copy_from_nonoverlapping(rest.add(at * size), size);
            }
        }
    }

    /// Multiplies the coefficients by the gathered rows.
    unsafe fn product(&self, [m, k, n]: [usize; 3], shares: *mut T, gathered: *mut T, result: *mut T) {
        if m == 0 {
            return;
        }
        let layout = |row: usize| Layout { offset: 0, batch: 0, row, column: 1 };
        let dtype = if size_of::<T>() == size_of::<f64>() { DType::F64 } else { DType::F32 };
        let (a, b, c) = (layout(self.shares.row), layout(n), layout(self.vectors.row));
        let of = Gemm { dtype, tf32: false, bias: false, batch: 1, m, n, k, a, b, c };
        // SAFETY: the caller's promise.
        unsafe { gemm::run(self.pool, self.isa, &of, [shares, gathered, result].map(<*mut T>::cast), None) };
    }
}

/// Rotates two rows.
fn rotate<T: Real>(x: &mut [T], y: &mut [T], [cosine, sine]: [T; 2]) {
    for (x, y) in x.iter_mut().zip(y) {
        let rotated = T::add(T::mul(cosine, *x), T::mul(sine, *y));
        (*y, *x) = (T::sub(T::mul(cosine, *y), T::mul(sine, *x)), rotated);
    }
}
