//! Tiles where the device multiplies fragments of 16-bit floats, in the layout of [`panoply_ir::collective`].
//!
//! Every 32 work-items, eight lines of four, own 16 rows: in each result fragment a work-item holds two adjacent
//! columns of two rows. Shared memory holds words of two elements that are adjacent along the sum: along the width for
//! rows multiplied with rows, and down the columns for rows summed with weights. Weights are a result's fragments
//! converted to a narrower type, and never leave the registers.

use panoply_ir::alu::Alu;
use panoply_ir::kernel::{CollectiveOp, ExprId, Guard, LocalId, Mma, Scope};
use panoply_ir::{DType, Scalar};

use super::super::tiling::{UNIT, padded, words};
use super::{MatrixRef, SharedTile, Tiles};

impl Tiles {
    /// Returns the index of a work-item's n-th row.
    pub(super) fn fragment_row(&mut self, n: u64) -> ExprId {
        let (set, own) = self.split(self.line, 8);
        let first = self.times(set, Mma::ROWS.into());
        let row = self.b.alu(Alu::Add, &[first, own]);
        self.plus(row, 8 * n)
    }

    /// Returns the index of a work-item's n-th column.
    pub(super) fn fragment_column(&mut self, n: u64) -> ExprId {
        let pair = self.times(self.column, 2);
        self.plus(pair, u64::from(Mma::COLUMNS) * (n / 2) + n % 2)
    }

    /// Loads words of two elements into shared memory.
    pub(super) fn bring_words(&mut self, from: MatrixRef, first: ExprId, to: SharedTile) {
        let words = (words(to.width), to.rows / 2, padded(to.width));
        let (count, fast) = if to.transposed { (words.1 * words.2, words.2) } else { (to.rows * words.0, words.0) };
        self.for_each(count, |tiles, at| {
            let (slow, quick) = tiles.split(at, fast);
            let (slow, quick) = (tiles.b.bind("slow", slow), tiles.b.bind("quick", quick));
            let pair = tiles.times(if to.transposed { slow } else { quick }, 2);
            let next = tiles.plus(pair, 1);
            let places = [pair, next].map(|at| if to.transposed { [first, at, quick] } else { [first, slow, at] });
            let elements = places.map(|place| tiles.element(from, place, to));
            let word = tiles.word(tiles.b.mem_dtype(from.mem), elements);
            let (line, within) = if to.transposed { (quick, slow) } else { (slow, quick) };
            let before = tiles.times(line, to.pitch(tiles.t));
            let at = tiles.b.alu(Alu::Add, &[before, within]);
            tiles.b.store(to.mem, at, word, Guard::Proven);
        });
    }

    /// Packs two elements into a word.
    fn word(&mut self, dtype: DType, elements: [ExprId; 2]) -> ExprId {
        let [low, high] = elements.map(|element| {
            let narrow = self.b.cast(dtype, element);
            let bits = self.b.bitcast(DType::U16, narrow);
            self.b.cast(DType::U32, bits)
        });
        let by = self.b.constant(Scalar::from(16u32));
        let high = self.b.alu(Alu::Shl, &[high, by]);
        self.b.alu(Alu::Or, &[low, high])
    }

    /// Loads fragment words for a step: for each line of a tile, the word `apart` words after the work-item's own.
    fn words<const N: usize>(
        &mut self,
        tile: SharedTile,
        lines: [ExprId; N],
        apart: [u64; N],
        step: ExprId,
    ) -> [ExprId; N] {
        let at = self.b.alu(Alu::Add, &[step, self.column]);
        std::array::from_fn(|n| {
            let before = self.times(lines[n], tile.pitch(self.t));
            let at = self.b.alu(Alu::Add, &[before, at]);
            let at = self.plus(at, apart[n]);
            let word = self.b.load(tile.mem, at, Guard::Proven);
            self.b.bind("r", word)
        })
    }

    /// Loads the words of B for the n-th fragment along its columns.
    fn right(&mut self, tile: SharedTile, n: u64, step: ExprId) -> [ExprId; 2] {
        let (_, own) = self.split(self.line, 8);
        let line = self.plus(own, n * u64::from(Mma::COLUMNS));
        self.words(tile, [line; 2], [0, 4], step)
    }

    fn add(&mut self, dtype: DType, a: [ExprId; 4], b: [ExprId; 2], to: ExprId) -> ExprId {
        self.b.collective(CollectiveOp::Mma(Mma { dtype, a, b }), Scope::Group, to)
    }

    fn nothing(&mut self) -> ExprId {
        let zero = self.number(0.0);
        self.b.splat(zero, Mma::ELEMENTS)
    }

    pub(super) fn dots_of_fragments(&mut self, dtype: DType, left: SharedTile, right: SharedTile) -> Vec<ExprId> {
        let count = self.columns() / 2;
        let nothing = self.nothing();
        let sums: Vec<LocalId> = (0..count).map(|_| self.b.declare("dot", nothing, true)).collect();
        let [start, end, step] = [0, words(left.width), UNIT / 2].map(|number| self.b.index(number));
        let step = self.b.begin_for("step", start, end, step);
        let lines = [0, 1, 0, 1].map(|n| self.owned_row(n));
        let a = self.words(left, lines, [0, 0, 4, 4], step);
        for (n, sum) in (0..).zip(&sums) {
            let b = self.right(right, n, step);
            let before = self.b.get(*sum);
            let after = self.add(dtype, a, b, before);
            self.b.assign(*sum, after);
        }
        self.b.end();
        let (rows, columns) = (self.rows(), self.columns());
        let mut products = Vec::with_capacity((rows * columns) as usize);
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            let sum = self.b.get(sums[column as usize / 2]);
            let product = self.b.extract(sum, (2 * row + column % 2) as u8);
            products.push(self.b.bind("product", product));
        }
        products
    }

    pub(super) fn add_fragments(
        &mut self,
        dtype: DType,
        weights: &[ExprId],
        rows: SharedTile,
        shrunk: &[ExprId],
        sums: &[LocalId],
    ) {
        let columns = self.columns() as usize;
        let mut left: Vec<[ExprId; 4]> = Vec::new();
        for first in (0..columns).step_by(4) {
            left.push([(0, 0), (1, 0), (0, 2), (1, 2)].map(|(row, behind)| {
                let at = row * columns + first + behind;
                let word = self.word(dtype, [weights[at], weights[at + 1]]);
                self.b.bind("weights", word)
            }));
        }
        let across = sums.len() / self.rows() as usize;
        for n in 0..across / 2 {
            let mut sum = self.nothing();
            for (step, a) in (0..).zip(&left) {
                let step = self.b.index(step * UNIT / 2);
                let b = self.right(rows, n as u64, step);
                sum = self.add(dtype, *a, b, sum);
            }
            for (row, column) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let own = sums[row * across + 2 * n + column];
                let (before, new) = (self.b.get(own), self.b.extract(sum, (2 * row + column) as u8));
                let after = match shrunk.get(row) {
                    Some(shrunk) => self.product(before, *shrunk, new),
                    None => self.b.alu(Alu::Add, &[before, new]),
                };
                self.b.assign(own, after);
            }
        }
    }
}
