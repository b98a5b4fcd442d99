//! Matrices in memory, and packing their elements into contiguous lanes.

use panoply_host::isa::Simd;
use panoply_host::simd::Vector;

use crate::element_format::Format;

/// Number of lanes of the widest vector.
pub const MAX_LANES: usize = 16;

/// A matrix in memory, or a part of one; distances are in elements.
pub struct Matrix<T> {
    pub start: *mut T,
    pub row: usize,
    pub column: usize,
}

impl<T> Clone for Matrix<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Matrix<T> {}

impl<T> Matrix<T> {
    /// Returns the submatrix that starts at an element.
    #[inline(always)]
    pub fn from(self, row: usize, column: usize) -> Matrix<T> {
        Matrix { start: self.start.wrapping_add(row * self.row + column * self.column), ..self }
    }

    /// Returns the transposed matrix.
    #[inline(always)]
    pub fn transposed(self) -> Matrix<T> {
        Matrix { start: self.start, row: self.column, column: self.row }
    }
}

/// Packs rows of a matrix into lanes, each row contiguous.
///
/// # Safety
/// Both are valid for these extents; the machine has the instructions.
#[inline(always)]
pub unsafe fn rows<M: Simd, F: Format>(from: Matrix<F::Elem>, rows: usize, depth: usize, to: Matrix<F::Sum>) {
    let lanes = F::Vector::<M>::LANES;
    let [high, deep] = squares::<M, F>(from.row, rows, depth);
    // SAFETY: the caller's promise.
    unsafe {
        for at in (0..deep).step_by(lanes) {
            for row in (0..high).step_by(lanes) {
                let from = from.from(row, at * F::DEPTH);
                square::<M, F>(|i| across::<M, F>(from.from(0, i * F::DEPTH).start, from.column), to.from(row, at));
            }
        }
        for row in 0..rows {
            let done = if row < high { deep } else { 0 };
            let (from, depth) = (from.from(row, done * F::DEPTH), depth - done * F::DEPTH);
            along::<F>(from.start, from.column, depth, to.from(row, done).start);
        }
    }
}

/// Packs columns of a matrix into lanes, side by side and followed by zeros up to `width`.
///
/// # Safety
/// Both are valid for these extents; the machine has the instructions.
#[inline(always)]
pub unsafe fn columns<M: Simd, F: Format>(
    from: Matrix<F::Elem>,
    depth: usize,
    columns: usize,
    to: Matrix<F::Sum>,
    width: usize,
) {
    let lanes = F::Vector::<M>::LANES;
    let [wide, deep] = squares::<M, F>(from.row, columns, depth);
    // SAFETY: the caller's promise.
    unsafe {
        for column in (0..wide).step_by(lanes) {
            for at in (0..deep).step_by(lanes) {
                let from = from.from(at * F::DEPTH, column);
                square::<M, F>(|i| vector::<M, F>(from.from(0, i).start, lanes * F::DEPTH), to.from(at, column));
            }
        }
        // Elements that are lanes are copied by whole vectors.
        let is_plain = F::step(1).is_some() && F::DEPTH == 1 && from.column == 1;
        let whole = if is_plain { columns / lanes * lanes } else { 0 };
        for (at, row) in (0..depth).step_by(F::DEPTH).enumerate() {
            let done = if at < deep { wide } else { whole };
            for column in (0..if at < deep { 0 } else { whole }).step_by(lanes) {
                across::<M, F>(from.from(row, column).start, from.row).store(to.from(at, column).start);
            }
            let next = if row + F::DEPTH > depth { None } else { paired::<F>(from.row) };
            let to = to.from(at, 0).start;
            line::<F>(from.from(row, done).start, from.column, next, columns - done, to.add(done));
            (columns..width).for_each(|i| *to.add(i) = F::Sum::default());
        }
    }
}

/// Returns the number of elements and of lanes along `k` that form whole squares. Squares are transposed in registers
/// if the elements of different sums are contiguous in memory; otherwise the counts are 0.
#[inline(always)]
fn squares<M: Simd, F: Format>(distance: usize, count: usize, depth: usize) -> [usize; 2] {
    let lanes = F::Vector::<M>::LANES;
    if distance == 1 { [count / lanes * lanes, depth / (lanes * F::DEPTH) * lanes] } else { [0, 0] }
}

/// Transposes a square of lanes.
///
/// # Safety
/// There is room for it; the machine has the instructions.
#[inline(always)]
pub unsafe fn square<M: Simd, F: Format>(line: impl Fn(usize) -> F::Vector<M>, to: Matrix<F::Sum>) {
    let lanes = F::Vector::<M>::LANES;
    // SAFETY: the caller's promise.
    unsafe {
        let mut all = [F::Vector::<M>::splat(F::Sum::default()); MAX_LANES];
        (0..lanes).for_each(|i| all[i] = line(i));
        // Each round doubles the distance between lanes that were adjacent.
        for _ in 0..lanes.ilog2() {
            let before = all;
            for i in 0..lanes / 2 {
                [all[2 * i], all[2 * i + 1]] = before[i].zip(before[i + lanes / 2]);
            }
        }
        (0..lanes).for_each(|i| all[i].store(to.from(i, 0).start));
    }
}

/// Returns a vector of `depth` elements that are contiguous along `k`, followed by zeros.
///
/// # Safety
/// The elements are valid for reads; the machine has the instructions.
#[inline(always)]
pub unsafe fn vector<M: Simd, F: Format>(from: *const F::Elem, depth: usize) -> F::Vector<M> {
    let whole = F::Vector::<M>::LANES * F::DEPTH;
    // SAFETY: the caller's promise.
    unsafe {
        if F::step(1).is_some() && depth == whole {
            return F::Vector::<M>::load(from.cast());
        }
        let mut lanes = [F::Sum::default(); MAX_LANES];
        along::<F>(from, 1, depth, lanes.as_mut_ptr());
        F::Vector::<M>::load(lanes.as_ptr())
    }
}

/// Returns a vector of lanes whose elements have the same position along `k`.
#[inline(always)]
unsafe fn across<M: Simd, F: Format>(from: *const F::Elem, next: usize) -> F::Vector<M> {
    // SAFETY: the caller's promise.
    unsafe {
        if F::step(1).is_some() && F::DEPTH == 1 {
            return F::Vector::<M>::load(from.cast());
        }
        let mut lanes = [F::Sum::default(); MAX_LANES];
        line::<F>(from, 1, paired::<F>(next), F::Vector::<M>::LANES, lanes.as_mut_ptr());
        F::Vector::<M>::load(lanes.as_ptr())
    }
}

/// Packs elements at a fixed distance along `k` into lanes.
#[inline(always)]
unsafe fn along<F: Format>(from: *const F::Elem, distance: usize, depth: usize, to: *mut F::Sum) {
    let whole = depth / F::DEPTH;
    // SAFETY: the caller's promise.
    unsafe {
        line::<F>(from, distance * F::DEPTH, paired::<F>(distance), whole, to);
        if const { F::DEPTH > 1 } && whole * F::DEPTH < depth {
            *to.add(whole) = lane::<F>(from.add((depth - 1) * distance), None);
        }
    }
}

/// Packs `count` lanes of elements at a fixed distance.
#[inline(always)]
unsafe fn line<F: Format>(from: *const F::Elem, by: usize, next: Option<usize>, count: usize, to: *mut F::Sum) {
    #[inline(always)]
    unsafe fn each<F: Format>(from: *const F::Elem, by: usize, next: Option<usize>, count: usize, to: *mut F::Sum) {
        // SAFETY: the caller's promise.
        (0..count).for_each(|i| unsafe { *to.add(i) = lane::<F>(from.add(i * by), next) });
    }
    // Constant distances allow the compiler to vectorize.
    // SAFETY: the caller's promise.
    unsafe {
        match (by, next) {
            (1, None) => each::<F>(from, 1, None, count, to),
            (1, Some(next)) => each::<F>(from, 1, Some(next), count, to),
            (2, Some(1)) => each::<F>(from, 2, Some(1), count, to),
            (by, next) => each::<F>(from, by, next, count, to),
        }
    }
}

/// Returns the lane of an element and of the next one along `k`, if it is used.
#[inline(always)]
unsafe fn lane<F: Format>(from: *const F::Elem, next: Option<usize>) -> F::Sum {
    // SAFETY: the caller's promise.
    unsafe { F::lane(*from, next.map_or(F::Elem::default(), |next| *from.add(next))) }
}

/// Returns the distance of a lane's second element, if it has one.
#[inline(always)]
fn paired<F: Format>(distance: usize) -> Option<usize> {
    (F::DEPTH > 1).then_some(distance)
}
