//! Register tiles of matrix products: a few rows of sums, a few vectors wide.
//!
//! All routines that multiply use one of two loops. In [`taps`] the vectors are at given offsets, in [`rows`] at a fixed distance.

use panoply_host::isa::Simd;
use panoply_host::simd::{Real, Task, Vector};

/// Maximum width of a tile in vectors on any machine.
pub const MAX_VECTORS: usize = 3;

/// Returns the maximum number of rows of a tile on a machine.
pub const fn most_rows<V: Vector>() -> usize {
    if V::HAS_32_REGISTERS { 8 } else { 6 }
}

/// Returns the maximum width of a tile in vectors on a machine. Of 16 registers, 12 hold the sums of 6 rows; LLVM keeps two elements of the
/// rows in registers at once, so that 4 rows of 3 vectors do not fit: on Zen 3 they were computed at half of the rate.
pub const fn most_vectors<V: Vector>() -> usize {
    if V::HAS_32_REGISTERS { MAX_VECTORS } else { 2 }
}

/// A tile whose extents are known at compile time.
pub trait Tile {
    /// Computes R rows of C vectors. Implementations must be `#[inline(always)]`.
    ///
    /// # Safety
    /// The machine has the instructions, and the tile's own requirements hold.
    unsafe fn run<M: Simd, const R: usize, const C: usize>(&self);
}

/// Runs a tile with these extents: those of [`row_blocks`] and [`vector_parts`].
///
/// # Safety
/// As [`Tile::run`].
#[inline(always)]
pub unsafe fn with_extents<M: Simd, V: Vector, T: Tile>(rows: usize, vectors: usize, tile: &T) {
    // SAFETY: the caller's promise.
    unsafe {
        match (rows, vectors) {
            (8, 3) if V::HAS_32_REGISTERS => tile.run::<M, 8, 3>(),
            (8, 2) if V::HAS_32_REGISTERS => tile.run::<M, 8, 2>(),
            (8, 1) if V::HAS_32_REGISTERS => tile.run::<M, 8, 1>(),
            (6, 2) if !V::HAS_32_REGISTERS => tile.run::<M, 6, 2>(),
            (6, 1) if !V::HAS_32_REGISTERS => tile.run::<M, 6, 1>(),
            (4, 3) if V::HAS_32_REGISTERS => tile.run::<M, 4, 3>(),
            (4, 2) => tile.run::<M, 4, 2>(),
            (4, 1) => tile.run::<M, 4, 1>(),
            (2, 3) if V::HAS_32_REGISTERS => tile.run::<M, 2, 3>(),
            (2, 2) => tile.run::<M, 2, 2>(),
            (2, 1) => tile.run::<M, 2, 1>(),
            (1, 3) if V::HAS_32_REGISTERS => tile.run::<M, 1, 3>(),
            (1, 2) => tile.run::<M, 1, 2>(),
            (1, 1) => tile.run::<M, 1, 1>(),
            _ => unreachable!("no tile of {rows} rows and {vectors} vectors"),
        }
    }
}

/// Runs a tile with a number of rows of [`row_blocks`] that is one vector wide.
///
/// # Safety
/// As [`Tile::run`].
#[inline(always)]
pub unsafe fn with_rows<M: Simd, V: Vector, T: Tile>(rows: usize, tile: &T) {
    // SAFETY: the caller's promise.
    unsafe {
        match rows {
            8 if V::HAS_32_REGISTERS => tile.run::<M, 8, 1>(),
            6 if !V::HAS_32_REGISTERS => tile.run::<M, 6, 1>(),
            4 => tile.run::<M, 4, 1>(),
            2 => tile.run::<M, 2, 1>(),
            1 => tile.run::<M, 1, 1>(),
            _ => unreachable!("no tile of {rows} rows"),
        }
    }
}

/// Returns `f(0), f(1), …` for the rows of a tile. It compiles faster than `std::array::from_fn`, which is several generic
/// functions for each closure.
#[inline(always)]
pub fn each_row<T: Copy, const R: usize>(f: impl Fn(usize) -> T) -> [T; R] {
    let mut rows = [f(0); R];
    let mut row = 1;
    while row < R {
        rows[row] = f(row);
        row += 1;
    }
    rows
}

/// Divides rows into blocks that have a tile of at most [`most_rows`]; yields the first row and the number of rows of each.
#[inline(always)]
pub fn row_blocks(count: usize, most: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
    let mut at = 0;
    std::iter::from_fn(move || {
        let left = count - at;
        (left > 0).then(|| {
            let rows = [most, 4, 2].into_iter().find(|rows| *rows <= left).unwrap_or(1);
            at += rows;
            (at - rows, rows)
        })
    })
}

/// Divides vectors into parts that have a tile of at most [`most_vectors`], as even as possible; yields the first vector and the number of
/// vectors of each.
#[inline(always)]
pub fn vector_parts(count: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let (mut at, mut parts) = (0, count.div_ceil(most));
    std::iter::from_fn(move || {
        (parts > 0).then(|| {
            let width = (count - at).div_ceil(parts);
            (at, parts) = (at + width, parts - 1);
            (at - width, width)
        })
    })
}

/// Sums in registers.
pub type Sums<V, const R: usize, const C: usize> = [[V; C]; R];

/// Returns sums of zero.
///
/// # Safety
/// The machine has the instructions.
#[inline(always)]
pub unsafe fn zeros<V: Vector, const R: usize, const C: usize>() -> Sums<V, R, C> {
    // SAFETY: the caller's promise.
    [[unsafe { V::splat(V::Elem::default()) }; C]; R]
}

/// Loads sums from memory; `row` is the distance between rows.
///
/// # Safety
/// The machine has the instructions; all rows are valid for reads of C vectors.
#[inline(always)]
pub unsafe fn load<V: Vector, const R: usize, const C: usize>(from: *const V::Elem, row: usize) -> Sums<V, R, C> {
    // SAFETY: the caller's promise.
    let mut sums = unsafe { zeros::<V, R, C>() };
    for (r, sums) in sums.iter_mut().enumerate() {
        for (c, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *sum = unsafe { V::load(from.add(r * row + c * V::LANES)) };
        }
    }
    sums
}

/// Stores sums to memory; `row` is the distance between rows.
///
/// # Safety
/// The machine has the instructions; all rows are valid for writes of C vectors.
#[inline(always)]
pub unsafe fn store<V: Vector, const R: usize, const C: usize>(sums: Sums<V, R, C>, to: *mut V::Elem, row: usize) {
    for (r, sums) in sums.into_iter().enumerate() {
        for (c, sum) in sums.into_iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { sum.store(to.add(r * row + c * V::LANES)) };
        }
    }
}

/// The positions of the vectors of [`taps`].
#[derive(Clone, Copy)]
pub struct Taps<'a> {
    /// Number of channels to sum over.
    pub channels: usize,
    /// Elements from one channel to the next.
    pub channel: usize,
    /// Offsets of the taps of a channel, from its first element.
    pub offsets: &'a [usize],
}

/// Adds to row r, for every channel and tap, `weights[r]` times the vectors at the tap. The weights of a row are `step` elements apart.
///
/// # Safety
/// The machine has the instructions; each row has a weight for each tap of each channel, and there are C vectors at each tap.
#[inline(always)]
pub unsafe fn taps<V: Vector, const R: usize, const C: usize>(
    sums: &mut Sums<V, R, C>,
    weights: [*const V::Elem; R],
    step: usize,
    mut source: *const V::Elem,
    taps: Taps<'_>,
) {
    let mut at = 0;
    for _ in 0..taps.channels {
        for offset in taps.offsets {
            // SAFETY: the caller's promise, here and below.
            unsafe {
                let mut vectors = [V::splat(V::Elem::default()); C];
                for (c, vector) in vectors.iter_mut().enumerate() {
                    *vector = V::load(source.add(offset + c * V::LANES));
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let weight = V::splat(*weights[r].add(at));
                    for (c, sum) in sums.iter_mut().enumerate() {
                        *sum = weight.mul_add(vectors[c], *sum);
                    }
                }
            }
            at += step;
        }
        source = source.wrapping_add(taps.channel);
    }
}

/// Adds to row r, for every k below `depth`, `left[r][k · step]` times the vectors at `right[k · distance]`.
///
/// # Safety
/// The machine has the instructions; all these elements are valid for reads, aligned or not.
#[inline(always)]
pub unsafe fn rows<V: Vector, const R: usize, const C: usize>(
    sums: &mut Sums<V, R, C>,
    left: [*const V::Elem; R],
    step: usize,
    right: *const V::Elem,
    distance: usize,
    depth: usize,
) {
    for k in 0..depth {
        // SAFETY: the caller's promise.
        unsafe {
            let mut vectors = [V::splat(V::Elem::default()); C];
            for (c, vector) in vectors.iter_mut().enumerate() {
                *vector = V::load(right.add(k * distance + c * V::LANES));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let number = V::splat(left[r].add(k * step).read_unaligned());
                for (c, sum) in sums.iter_mut().enumerate() {
                    *sum = number.mul_add(vectors[c], *sum);
                }
            }
        }
    }
}

/// A product of two matrices, stored or added to the result: row r of the result is the sum over k of `left[r, k]`
/// times row k of `right`.
#[derive(Clone, Copy)]
pub struct Product<T> {
    /// The left matrix.
    pub left: *const T,
    /// Elements from one row of the left matrix to the next.
    pub left_row: usize,
    /// Elements from one column of the left matrix to the next.
    pub left_column: usize,
    /// The right matrix; its rows may be read to the end of a vector.
    pub right: *const T,
    /// Elements from one row of the right matrix to the next.
    pub right_row: usize,
    /// Number of columns of the left matrix and of rows of the right one.
    pub depth: usize,
    /// The result; its rows are written to the end of a vector.
    pub result: *mut T,
    /// Elements from one row of the result to the next.
    pub result_row: usize,
    /// True if the product is added to the result.
    pub adds: bool,
}

impl<T: Real> Product<T> {
    /// Computes `height` rows and `columns` columns of the result. It is a function of its own, compiled once for each machine
    /// and element type: its tiles are much code, and many tasks multiply.
    ///
    /// # Safety
    /// The machine has the instructions; the matrices are valid for these extents, and the result overlaps nothing else.
    #[inline(always)]
    pub unsafe fn run<M: Simd>(&self, height: usize, columns: usize) {
        // SAFETY: the caller's promise.
        unsafe { M::run(&ProductTiles { product: *self, height, columns }) }
    }
}

/// All tiles of a product.
struct ProductTiles<T> {
    product: Product<T>,
    height: usize,
    columns: usize,
}

impl<T: Real> Task for &ProductTiles<T> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let ProductTiles { product, height, columns } = *self;
        let lanes = <T::Vector<M> as Vector>::LANES;
        for (vector, width) in vector_parts(columns.div_ceil(lanes), most_vectors::<T::Vector<M>>()) {
            for (row, rows) in row_blocks(height, most_rows::<T::Vector<M>>()) {
                let part = Product {
                    left: product.left.wrapping_add(row * product.left_row),
                    right: product.right.wrapping_add(vector * lanes),
                    result: product.result.wrapping_add(row * product.result_row + vector * lanes),
                    ..product
                };
                // SAFETY: the caller's promise.
                unsafe { with_extents::<M, T::Vector<M>, _>(rows, width, &part) };
            }
        }
    }
}

impl<T: Real> Tile for Product<T> {
    #[inline(always)]
    unsafe fn run<M: Simd, const R: usize, const C: usize>(&self) {
        let left: [*const T; R] = each_row(|row| self.left.wrapping_add(row * self.left_row));
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = match self.adds {
                true => load::<T::Vector<M>, R, C>(self.result, self.result_row),
                false => zeros::<T::Vector<M>, R, C>(),
            };
            rows(&mut sums, left, self.left_column, self.right, self.right_row, self.depth);
            store(sums, self.result, self.result_row);
        }
    }
}
