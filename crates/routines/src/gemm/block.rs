//! A part of a matrix product on one thread.
//!
//! A band of the right operand's columns is packed in blocks of `k` that stay in the L2 cache. For each block, every
//! panel of a few rows of the left operand is multiplied. Such a panel is read in place if its elements already have
//! lane format, and is otherwise packed into the L1 cache. Sums stay in scratch memory until the last block, so that
//! the next step gets whole rows. Every sum is computed in the order of `k`, independent of its position in the result.
//!
//! Source: Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008 (blocking).

use std::cell::RefCell;

use panoply_host::isa::Simd;
use panoply_host::pool::Pool;
use panoply_host::simd::{Task, Vector};

use super::super::tile::{self, MAX_VECTORS, Tile, most_rows, most_vectors, row_blocks, vector_parts};
use super::dot_kernel;
use super::pack::{self, Matrix};
use crate::RunChunk;
use crate::element_format::Format;

/// Lanes along `k` of a block.
const BLOCK_DEPTH: usize = 512;
/// Tiles side by side in a band: with a block's depth at most half of the L2 cache.
const BAND_TILES: usize = 5;
/// Rows of a band, which bounds the sums in scratch memory.
const BAND_ROWS: usize = 512;
/// Number of rows up to which packing the right operand costs more than reading it in place.
const FEW_ROWS: usize = 64;
/// Lanes along `k` of the right operand that are packed together if its rows are contiguous.
const PACKED_ROWS: usize = 8;
/// Rows of the left operand that are packed together: whole cache lines if its columns are contiguous.
const GROUP_ROWS: usize = 64;
/// Lanes along `k` of a block, and tiles of a band, for a product with few rows: the rows of its right operand are
/// best read to their end.
const THIN_DEPTH: usize = 32;
const THIN_TILES: usize = 20;

/// A part of a product: `m × k` times `k × n`.
pub struct GemmBlock<'a, F: Format> {
    pub pool: &'a Pool,
    /// True if the product has few rows, all of which are in this part.
    pub few: bool,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Matrix<F::Elem>,
    pub b: Matrix<F::Elem>,
    pub c: Matrix<F::Result>,
    /// The epilogue.
    pub end: Option<RefCell<EpilogueSink<'a, F::Result>>>,
}

/// An epilogue, applied to the results of a part row by row.
pub struct EpilogueSink<'a, T> {
    /// Address of the whole result, from which elements are numbered.
    pub result: *mut T,
    /// Runs the epilogue on consecutive elements, given the number of the first.
    pub run: &'a mut RunChunk<'a>,
    /// True if the results are written to memory too.
    pub keep_output: bool,
}

impl<F: Format> Task for GemmBlock<'_, F> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        if self.few && self.a.column == 1 && self.b.row == 1 {
            // SAFETY: the caller's promise.
            return unsafe { dot_kernel::write::<M, F>(&self) };
        }
        let lanes = F::Vector::<M>::LANES;
        let transposes = self.transposes(lanes);
        let part = if transposes { self.transposed() } else { self };
        // SAFETY: the caller's promise.
        unsafe { part.bands::<M>(transposes) }
    }
}

impl<F: Format> GemmBlock<'_, F> {
    /// Returns true if it is better to compute the transposed product, with the right operand read in place as the left
    /// one. That is so if packing it costs more than multiplying it by few rows. These rows become columns and must
    /// fill at least four fifths of the vectors.
    fn transposes(&self, lanes: usize) -> bool {
        let filled = self.m.next_multiple_of(lanes) * 4 <= self.m * 5;
        let lies = self.b.row == 1 && self.b.column > 1 && F::step(1).is_some() && self.k.is_multiple_of(F::DEPTH);
        lies && filled && self.m <= FEW_ROWS && self.n >= self.m
    }

    /// Returns the transposed product.
    fn transposed(self) -> Self {
        GemmBlock {
            m: self.n,
            n: self.m,
            a: self.b.transposed(),
            b: self.a.transposed(),
            c: self.c.transposed(),
            ..self
        }
    }

    /// # Safety
    /// As [`Task::run`].
    #[inline(always)]
    unsafe fn bands<M: Simd>(self, transposed: bool) {
        let lanes = F::Vector::<M>::LANES;
        let vectors = self.n.div_ceil(lanes);
        let thin = self.few && self.b.column == 1;
        let (tiles, block) = if thin { (THIN_TILES, THIN_DEPTH) } else { (BAND_TILES, BLOCK_DEPTH) };
        let most = tiles * most_vectors::<F::Vector<M>>();
        let height = self.m.min(BAND_ROWS);
        let depth = block.min(self.k.div_ceil(F::DEPTH)).max(1);
        // The epilogue benefits from long rows, for which there is room if `k` is small.
        let most = if self.end.is_some() { most * (block / depth).clamp(1, 2) } else { most };
        let width = lanes * vectors.div_ceil(vectors.div_ceil(most).max(1));
        let whole = depth * F::DEPTH >= self.k && !transposed;
        let summed = if whole { most_rows::<F::Vector<M>>() } else { height.next_multiple_of(lanes) };
        let (lines_numel, length) = if transposed { (lanes * summed, summed) } else { (0, width) };
        let ended = if self.end.is_some() { length } else { 0 };
        let sizes = [width * depth, GROUP_ROWS.min(self.m) * depth, width * summed, lines_numel, ended];
        let mut scratch = self.pool.scratch().take::<F::Sum>(sizes.iter().sum());
        let right = scratch.start();
        let left = right.wrapping_add(sizes[0]);
        let sums = Matrix { start: left.wrapping_add(sizes[1]), row: if whole { 0 } else { width }, column: 1 };
        let lines = sums.start.wrapping_add(sizes[2]);
        for column in (0..self.n).step_by(width.max(1)) {
            let columns = width.min(self.n - column);
            for row in (0..self.m).step_by(BAND_ROWS) {
                let band = Band::<'_, '_, F> {
                    rows: height.min(self.m - row),
                    columns,
                    width,
                    depth: self.k,
                    block: depth,
                    a: self.a.from(row, 0),
                    b: self.b.from(0, column),
                    c: self.c.from(row, column),
                    left,
                    right,
                    sums,
                    transposed: transposed.then_some(Matrix { start: lines, row: summed, column: 1 }),
                    ended: lines.wrapping_add(lines_numel).cast(),
                    end: self.end.as_ref(),
                };
                // SAFETY: the caller's promise; the scratch memory has this length.
                unsafe { band.run::<M>() };
            }
        }
    }
}

/// Some rows and columns of the result.
struct Band<'a, 'e, F: Format> {
    rows: usize,
    columns: usize,
    /// Columns that scratch memory has room for: whole vectors.
    width: usize,
    depth: usize,
    /// Lanes along `k` of a block.
    block: usize,
    a: Matrix<F::Elem>,
    b: Matrix<F::Elem>,
    c: Matrix<F::Result>,
    /// Packed rows of the left operand.
    left: *mut F::Sum,
    /// A packed block of the right operand: parts of a few vectors side by side, each with its rows one after the other.
    right: *mut F::Sum,
    sums: Matrix<F::Sum>,
    /// If the product is transposed: room for a few columns of its sums, which are rows of the result.
    transposed: Option<Matrix<F::Sum>>,
    /// A row of results for the epilogue.
    ended: *mut F::Result,
    end: Option<&'a RefCell<EpilogueSink<'e, F::Result>>>,
}

impl<F: Format> Band<'_, '_, F> {
    #[inline(always)]
    unsafe fn run<M: Simd>(&self) {
        let step = self.block * F::DEPTH;
        for first in (0..self.depth.max(1)).step_by(step) {
            let depth = step.min(self.depth - first);
            // Rows that are contiguous are read whole, a few at a time: the part of a row is one to three cache lines.
            let rows = if self.b.column == 1 { PACKED_ROWS * F::DEPTH } else { depth.max(1) };
            for at in (0..depth).step_by(rows) {
                for part in self.right(first, depth).parts::<F::Vector<M>>().filter(|part| !part.lies) {
                    let from = self.b.from(first + at, part.column);
                    let to = Matrix { start: part.start.cast_mut(), row: part.row, column: 1 }.from(at / F::DEPTH, 0);
                    let columns = part.width.min(self.columns - part.column);
                    // SAFETY: the caller's promise.
                    unsafe { pack::columns::<M, F>(from, rows.min(depth - at), columns, to, part.width) };
                }
            }
            for row in (0..self.rows).step_by(GROUP_ROWS) {
                let block = Block { first, depth, row, rows: GROUP_ROWS.min(self.rows - row) };
                // SAFETY: the caller's promise.
                unsafe { self.group::<M>(&block) };
            }
        }
        if let Some(lines) = self.transposed {
            // SAFETY: the caller's promise.
            unsafe { self.finish_transposed::<M>(lines) };
        }
    }

    /// Adds a block's products to the sums of its rows, and writes the results after the last block.
    #[inline(always)]
    unsafe fn group<M: Simd>(&self, block: &Block) {
        let Block { first, depth, .. } = *block;
        let a = self.a.from(block.row, first);
        let packed = depth.div_ceil(F::DEPTH);
        let few = self.columns <= MAX_VECTORS * F::Vector::<M>::LANES;
        let lies = F::step(a.column).filter(|step| depth % F::DEPTH == 0 && (*step == 1 || few));
        // SAFETY: the caller's promise, for all of them.
        unsafe {
            if lies.is_none() {
                let to = Matrix { start: self.left, row: packed, column: 1 };
                pack::rows::<M, F>(a, block.rows, depth, to);
            }
            for (row, rows) in row_blocks(block.rows, most_rows::<F::Vector<M>>()) {
                let left = match lies {
                    Some(step) => (a.from(row, 0).start.cast_const().cast(), a.row * size_of::<F::Elem>(), step),
                    None => (self.left.cast_const().wrapping_add(row * packed), packed * size_of::<F::Sum>(), 1),
                };
                let panel = Block { row: block.row + row, rows, ..*block };
                self.add::<M>(&panel, left);
                if first + depth == self.depth && self.transposed.is_none() {
                    self.finish(&panel);
                }
            }
        }
    }

    /// Returns the right operand's columns in a block of `k`.
    #[inline(always)]
    fn right(&self, first: usize, depth: usize) -> RightBlock<F::Sum> {
        // For a few rows, contiguous lanes need not be packed.
        let lie = F::DEPTH == 1 && F::step(1).is_some() && self.b.column == 1 && self.rows <= FEW_ROWS;
        RightBlock {
            columns: self.columns,
            depth: depth.div_ceil(F::DEPTH),
            packed: self.right,
            in_place: lie.then(|| (self.b.from(first, 0).start.cast_const().cast(), self.b.row)),
        }
    }

    /// Adds a panel's products to its sums. The left operand is given by its start, bytes from row to row, and lanes along `k`.
    #[inline(always)]
    unsafe fn add<M: Simd>(&self, panel: &Block, (left, left_row, step): (*const F::Sum, usize, usize)) {
        let Block { first, depth, row, rows } = *panel;
        let panel = PanelTiles::<F::Packed> {
            rows,
            left,
            left_row,
            step,
            right: self.right(first, depth),
            result: self.sums.from(row, 0).start,
            result_row: self.width,
            adds: first > 0,
        };
        // SAFETY: the caller's promise.
        unsafe { M::run(&panel) };
    }

    /// Writes a panel's results.
    #[inline(always)]
    unsafe fn finish(&self, panel: &Block) {
        for row in 0..panel.rows {
            let sums = self.sums.from(panel.row, 0).start.wrapping_add(row * self.width);
            // SAFETY: the caller's promise.
            unsafe { self.finish_row(sums, self.c.from(panel.row + row, 0), self.columns) };
        }
    }

    /// Writes the results of a transposed product: its sums are transposed in squares, a few rows of the result at a time.
    #[inline(always)]
    unsafe fn finish_transposed<M: Simd>(&self, lines: Matrix<F::Sum>) {
        let lanes = F::Vector::<M>::LANES;
        for column in (0..self.columns).step_by(lanes) {
            // SAFETY: the caller's promise; sums are stored in whole squares.
            unsafe {
                for row in (0..self.rows).step_by(lanes) {
                    let sums = self.sums.from(row, column);
                    pack::square::<M, F>(|i| F::Vector::<M>::load(sums.from(i, 0).start), lines.from(0, row));
                }
                for line in 0..lanes.min(self.columns - column) {
                    self.finish_row(lines.from(line, 0).start, self.c.transposed().from(column + line, 0), self.rows);
                }
            }
        }
    }

    /// Writes `count` consecutive results.
    #[inline(always)]
    unsafe fn finish_row(&self, sums: *const F::Sum, c: Matrix<F::Result>, count: usize) {
        let end = self.end.map(RefCell::borrow_mut);
        // SAFETY: the caller's promise.
        unsafe {
            if end.as_ref().is_none_or(|end| end.keep_output) {
                match c.column {
                    1 => (0..count).for_each(|at| *c.start.add(at) = F::narrow(*sums.add(at))),
                    by => (0..count).for_each(|at| *c.start.add(at * by) = F::narrow(*sums.add(at))),
                }
            }
            if let Some(mut end) = end {
                (0..count).for_each(|at| *self.ended.add(at) = F::narrow(*sums.add(at)));
                let first = (c.start.addr() - end.result.addr()) / size_of::<F::Result>();
                (end.run)(first as u64, count, self.ended.cast());
            }
        }
    }
}

/// Columns of the right operand, packed or in place.
struct Columns<T> {
    /// The first column, and the number of columns in whole vectors.
    column: usize,
    width: usize,
    /// True if they are read in place.
    lies: bool,
    start: *const T,
    row: usize,
}

/// The right operand's columns in a block of `k`.
#[derive(Clone, Copy)]
struct RightBlock<T> {
    columns: usize,
    /// Lanes along `k`.
    depth: usize,
    /// Packed columns.
    packed: *mut T,
    /// The start and the distance of the rows if whole vectors of columns are read in place.
    in_place: Option<(*const T, usize)>,
}

impl<T> RightBlock<T> {
    /// Returns the columns in parts with the width of a tile.
    #[inline(always)]
    fn parts<V: Vector>(self) -> impl Iterator<Item = Columns<T>> {
        let lanes = V::LANES;
        vector_parts(self.columns.div_ceil(lanes), most_vectors::<V>()).map(move |(vector, width)| {
            let (column, width) = (vector * lanes, width * lanes);
            match self.in_place.filter(|_| column + width <= self.columns) {
                Some((start, row)) => Columns { column, width, lies: true, start: start.wrapping_add(column), row },
                None => {
                    let start = self.packed.wrapping_add(column * self.depth).cast_const();
                    Columns { column, width, lies: false, start, row: width }
                }
            }
        })
    }
}

/// Some rows of the result, and a range of `k`.
#[derive(Clone, Copy)]
struct Block {
    first: usize,
    depth: usize,
    row: usize,
    rows: usize,
}

/// The tiles of a panel of rows. They are a function of their own, which formats that are packed alike share.
struct PanelTiles<F: Format> {
    rows: usize,
    left: *const F::Sum,
    /// Bytes from one row to the next.
    left_row: usize,
    /// Lanes from one column to the next.
    step: usize,
    right: RightBlock<F::Sum>,
    result: *mut F::Sum,
    result_row: usize,
    adds: bool,
}

impl<F: Format> Task for &PanelTiles<F> {
    #[inline(always)]
    unsafe fn run<M: Simd>(self) {
        let lanes = F::Vector::<M>::LANES;
        for part in self.right.parts::<F::Vector<M>>() {
            let factors = Factors::<F> {
                left: self.left,
                left_row: self.left_row,
                step: self.step,
                right: part.start,
                right_row: part.row,
                depth: self.right.depth,
                result: self.result.wrapping_add(part.column),
                result_row: self.result_row,
                adds: self.adds,
            };
            // SAFETY: the caller's promise.
            unsafe { tile::with_extents::<M, F::Vector<M>, _>(self.rows, part.width / lanes, &factors) };
        }
    }
}

/// The operands of a tile of the result.
struct Factors<F: Format> {
    left: *const F::Sum,
    /// Bytes from one row to the next.
    left_row: usize,
    /// Lanes from one column to the next.
    step: usize,
    right: *const F::Sum,
    right_row: usize,
    depth: usize,
    result: *mut F::Sum,
    result_row: usize,
    adds: bool,
}

impl<F: Format> Tile for Factors<F> {
    #[inline(always)]
    unsafe fn run<M: Simd, const R: usize, const C: usize>(&self) {
        let left: [*const F::Sum; R] = tile::each_row(|row| self.left.wrapping_byte_add(row * self.left_row));
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = match self.adds {
                true => tile::load::<F::Vector<M>, R, C>(self.result, self.result_row),
                false => tile::zeros::<F::Vector<M>, R, C>(),
            };
            tile::rows(&mut sums, left, self.step, self.right, self.right_row, self.depth);
            tile::store(sums, self.result, self.result_row);
        }
    }
}
