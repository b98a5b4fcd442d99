//! Matrix tiles in shared memory and their products in registers: the common part of kernels over two matrices.
//!
//! A group owns some rows of one matrix and iterates over tiles of rows of another. Its work-items are arranged in
//! lines. Those of a line share some of the group's owned rows, and divide the streamed rows and the columns of a result
//! among them. Each work-item holds the products of its owned rows with its streamed rows, and its columns of the sums of a
//! third matrix' rows weighted by such products.
//!
//! Where the device has matrix units for 16-bit floats, products are composed of their fragments ([`fragments`]), and a
//! line is the four work-items that hold the same rows of a fragment.

mod fragments;

use panoply_ir::alu::Alu;
use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Builtin, ExprId, Guard, LocalId, MemId};
use panoply_ir::{DType, Scalar};

use super::tiling::{Tiling, UNIT, padded};

/// Unrolled steps of a product.
const STEPS: u64 = 4;

/// A tile of matrix rows in shared memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SharedTile {
    mem: MemId,
    rows: u64,
    width: u64,
    /// True if fragments hold elements that are adjacent in a column, that is, the tile is transposed.
    transposed: bool,
}

impl SharedTile {
    /// Returns the elements from one row to the next, or for transposed tiles from one column to the next.
    fn pitch(self, t: Tiling) -> u64 {
        t.pitch([self.rows, self.width], self.transposed)
    }
}

/// A row-major matrix in a buffer.
#[derive(Clone, Copy)]
pub(super) struct MatrixRef {
    pub mem: MemId,
    /// Index of its first element.
    pub start: ExprId,
    pub rows: u64,
    pub width: u64,
}

/// A kernel under construction.
pub(super) struct Tiles {
    pub b: Builder,
    pub t: Tiling,
    /// Accumulation type.
    pub sum: DType,
    /// True if multiply-adds are fused, with a single rounding.
    fused: bool,
    /// Position of the work-item in its line.
    pub column: ExprId,
    line: ExprId,
    item: ExprId,
}

impl Tiles {
    pub fn new(name: &str, t: Tiling, sum: DType, fused: bool) -> Tiles {
        let mut b = Builder::new(name);
        let [x, y] = t.items;
        b.group_size([x as u32, y as u32, 1]);
        let (column, line, length) = (b.builtin(Builtin::LocalId(0)), b.builtin(Builtin::LocalId(1)), b.index(x));
        let before = b.alu(Alu::Mul, &[line, length]);
        let item = b.alu(Alu::Add, &[before, column]);
        let item = b.bind("item", item);
        Tiles { b, t, sum, fused, column, line, item }
    }

    pub fn times(&mut self, value: ExprId, by: u64) -> ExprId {
        let by = self.b.index(by);
        self.b.alu(Alu::Mul, &[value, by])
    }

    pub fn plus(&mut self, value: ExprId, by: u64) -> ExprId {
        let by = self.b.index(by);
        self.b.alu(Alu::Add, &[value, by])
    }

    /// Returns quotient and remainder.
    pub fn split(&mut self, number: ExprId, size: u64) -> (ExprId, ExprId) {
        let size = self.b.index(size);
        (self.b.alu(Alu::Div, &[number, size]), self.b.alu(Alu::Rem, &[number, size]))
    }

    /// Returns a constant of the accumulation type.
    pub fn number(&mut self, value: f64) -> ExprId {
        self.b.constant(Scalar::from_f64(self.sum, value))
    }

    /// Allocates shared memory for rows in their own layout.
    pub fn shared_tile(&mut self, name: &str, rows: u64, width: u64) -> SharedTile {
        let length = self.t.length([rows, width], false);
        let mem = self.b.shared(name, self.t.held(self.sum), length as u32);
        SharedTile { mem, rows, width, transposed: false }
    }

    /// Allocates the same rows in the layout for [`Tiles::add_weighted`]: transposed, if that differs.
    pub fn transposed(&mut self, name: &str, of: SharedTile) -> SharedTile {
        if self.t.fragments.is_none() {
            return of;
        }
        let length = self.t.length([of.rows, of.width], true);
        SharedTile { mem: self.b.shared(name, DType::U32, length as u32), transposed: true, ..of }
    }

    /// Allocates shared memory used for rows in their own layout and, at other times, for transposed rows of another
    /// matrix.
    pub fn either(&mut self, name: &str, rows: u64, width: u64, transposed_width: u64) -> [SharedTile; 2] {
        let [whole, transposed] = [(width, false), (transposed_width, true)];
        let length = self.t.length([rows, whole.0], whole.1).max(self.t.length([rows, transposed.0], transposed.1));
        let mem = self.b.shared(name, self.t.held(self.sum), length as u32);
        [whole, transposed].map(|(width, transposed)| SharedTile {
            mem,
            rows,
            width,
            transposed: transposed && self.t.fragments.is_some(),
        })
    }

    /// Allocates shared memory for the weights of each owned row with each streamed row, unless weights stay in registers.
    pub fn weights(&mut self, name: &str) -> Option<SharedTile> {
        let (own, other) = (self.t.owned(), self.t.streamed());
        self.t.fragments.is_none().then(|| self.shared_tile(name, own, other))
    }

    /// Returns the index in the group of a work-item's n-th owned row.
    pub fn owned_row(&mut self, n: u64) -> ExprId {
        match self.t.fragments {
            None => self.plus(self.line, n * self.t.items[1]),
            Some(_) => self.fragment_row(n),
        }
    }

    /// Returns the index of a work-item's n-th streamed row, or column of a result.
    pub fn streamed_row(&mut self, n: u64) -> ExprId {
        match self.t.fragments {
            None => self.plus(self.column, n * self.t.line()),
            Some(_) => self.fragment_column(n),
        }
    }

    /// Returns the number of a work-item's owned rows.
    pub fn rows(&self) -> u64 {
        self.t.block[1]
    }

    /// Returns the number of a work-item's streamed rows.
    pub fn columns(&self) -> u64 {
        self.t.block[0]
    }

    /// Returns the number of a work-item's columns of a result.
    fn across(&self, width: u64) -> u64 {
        match self.t.fragments {
            None => width.div_ceil(self.t.line()),
            Some(_) => padded(width) / self.t.line(),
        }
    }

    /// Declares `count` locals, initialized to zero.
    pub fn zeros(&mut self, name: &str, count: u64) -> Vec<LocalId> {
        let zero = self.number(0.0);
        (0..count).map(|_| self.b.declare(name, zero, true)).collect()
    }

    /// Declares a work-item's accumulators for a result of this width, owned row by owned row.
    pub fn result(&mut self, width: u64) -> Vec<LocalId> {
        let count = self.rows() * self.across(width);
        self.zeros("sum", count)
    }

    /// Loads rows of a matrix from `first` on into shared memory, with zeros beyond its rows and width.
    pub fn load_tile(&mut self, from: MatrixRef, first: ExprId, to: SharedTile) {
        if self.t.fragments.is_some() {
            return self.bring_words(from, first, to);
        }
        let width = to.width.next_multiple_of(self.t.line());
        self.for_each(to.rows * width, |tiles, at| {
            let (row, column) = tiles.split(at, width);
            let (row, column) = (tiles.b.bind("row", row), tiles.b.bind("column", column));
            let value = tiles.element(from, [first, row, column], to);
            let before = tiles.times(row, to.pitch(tiles.t));
            let at = tiles.b.alu(Alu::Add, &[before, column]);
            tiles.b.store(to.mem, at, value, Guard::Proven);
        });
    }

    /// Distributes `count` items of work among the group's work-items.
    fn for_each(&mut self, count: u64, each: impl FnOnce(&mut Tiles, ExprId)) {
        let items = self.t.items[0] * self.t.items[1];
        let [start, end, step] = [0, count.next_multiple_of(items), items].map(|number| self.b.index(number));
        let round = self.b.begin_for("round", start, end, step);
        let at = self.b.alu(Alu::Add, &[round, self.item]);
        let at = self.b.bind("at", at);
        let inside = self.below(&[(!count.is_multiple_of(items)).then_some((at, count))]);
        inside.iter().for_each(|inside| self.b.begin_if(*inside));
        each(self, at);
        inside.iter().for_each(|_| self.b.end());
        self.b.end();
    }

    /// Returns an element in the accumulation type, `row` rows after `first`; zero out of range.
    fn element(&mut self, from: MatrixRef, [first, row, column]: [ExprId; 3], to: SharedTile) -> ExprId {
        let place = self.b.alu(Alu::Add, &[first, row]);
        let rows = (!from.rows.is_multiple_of(to.rows)).then_some((place, from.rows));
        let unit = if self.t.fragments.is_some() { UNIT } else { self.t.line() };
        let columns = (!from.width.is_multiple_of(unit)).then_some((column, from.width));
        let inside = self.below(&[rows, columns]);
        let before = self.times(place, from.width);
        let before = self.b.alu(Alu::Add, &[from.start, before]);
        let at = self.b.alu(Alu::Add, &[before, column]);
        self.read(from.mem, at, inside)
    }

    /// Returns the condition that all of the given numbers are below their bounds; `None` if no check is needed.
    pub fn below(&mut self, numbers: &[Option<(ExprId, u64)>]) -> Option<ExprId> {
        let mut all = None;
        for (number, bound) in numbers.iter().flatten() {
            let bound = self.b.index(*bound);
            let one = self.b.alu(Alu::Lt, &[*number, bound]);
            all = self.both(all, one);
        }
        all
    }

    /// Returns the conjunction with another condition.
    pub fn both(&mut self, known: Option<ExprId>, one: ExprId) -> Option<ExprId> {
        Some(known.map_or(one, |known| self.b.alu(Alu::And, &[known, one])))
    }

    /// Loads an element of a buffer in the accumulation type, zero where `inside` is false.
    pub fn read(&mut self, mem: MemId, at: ExprId, inside: Option<ExprId>) -> ExprId {
        let guard = if inside.is_some() { Guard::Checked } else { Guard::Proven };
        let value = self.b.load(mem, at, guard);
        let value = self.b.cast(self.sum, value);
        let Some(inside) = inside else { return value };
        let zero = self.number(0.0);
        self.b.alu(Alu::Select, &[inside, value, zero])
    }

    /// Returns the products of a work-item's owned rows with its streamed rows along their width, owned row by owned row.
    pub fn outer_products(&mut self, left: SharedTile, right: SharedTile) -> Vec<ExprId> {
        if let Some(dtype) = self.t.fragments {
            return self.dots_of_fragments(dtype, left, right);
        }
        let (rows, columns) = (self.rows(), self.columns());
        let sums = self.zeros("dot", rows * columns);
        let lefts: Vec<ExprId> = (0..rows).map(|n| self.owned_row(n)).collect();
        let rights: Vec<ExprId> = (0..columns).map(|n| self.streamed_row(n)).collect();
        let (lefts, rights) = (self.starts(&lefts, left), self.starts(&rights, right));
        self.unrolled_loop(left.width, |tiles, step| {
            let (left, right) = (tiles.load_at(left.mem, &lefts, step), tiles.load_at(right.mem, &rights, step));
            tiles.multiply(&left, &right, &sums);
        });
        sums.into_iter().map(|sum| self.b.get(sum)).collect()
    }

    /// Multiplies sums by a factor for each owned row, if factors are given, and adds the streamed rows weighted by
    /// `weights`, which holds one weight per owned row and streamed row of the work-item.
    ///
    /// If weights are exchanged through shared memory, a barrier is needed between storing and using them.
    pub fn add_weighted(
        &mut self,
        through: Option<SharedTile>,
        weights: &[ExprId],
        rows: SharedTile,
        shrunk: &[ExprId],
        sums: &[LocalId],
    ) {
        let Some(through) = through else {
            let dtype = self.t.fragments.expect("only fragments keep weights in registers");
            return self.add_fragments(dtype, weights, rows, shrunk, sums);
        };
        let across = self.across(rows.width);
        for (shrunk, sums) in shrunk.iter().zip(sums.chunks(across as usize)) {
            for sum in sums {
                let before = self.b.get(*sum);
                let after = self.b.alu(Alu::Mul, &[before, *shrunk]);
                self.b.assign(*sum, after);
            }
        }
        let own: Vec<ExprId> = (0..self.rows()).map(|n| self.owned_row(n)).collect();
        let starts = self.starts(&own, through);
        let columns: Vec<ExprId> = (0..across).map(|n| self.streamed_row(n)).collect();
        self.unrolled_loop(through.width, |tiles, step| {
            let left = tiles.load_at(through.mem, &starts, step);
            let before = tiles.times(step, rows.pitch(tiles.t));
            let before = tiles.b.bind("row", before);
            let right = tiles.load_at(rows.mem, &columns, before);
            tiles.multiply(&left, &right, sums);
        });
    }

    /// Stores a work-item's weights for the group, if they are exchanged through shared memory.
    pub fn store_weights(&mut self, through: Option<SharedTile>, weights: &[ExprId]) {
        let Some(through) = through else { return };
        for (n, weight) in (0..).zip(weights) {
            let (row, column) = (self.owned_row(n / self.columns()), self.streamed_row(n % self.columns()));
            let before = self.times(row, through.pitch(self.t));
            let at = self.b.alu(Alu::Add, &[before, column]);
            self.b.store(through.mem, at, *weight, Guard::Proven);
        }
    }

    /// Returns the start index of each row.
    fn starts(&mut self, rows: &[ExprId], tile: SharedTile) -> Vec<ExprId> {
        let mut starts = Vec::with_capacity(rows.len());
        for row in rows {
            let start = self.times(*row, tile.pitch(self.t));
            starts.push(self.b.bind("start", start));
        }
        starts
    }

    /// Emits a partially unrolled loop.
    fn unrolled_loop(&mut self, count: u64, mut each: impl FnMut(&mut Tiles, ExprId)) {
        let by = if count.is_multiple_of(STEPS) { STEPS } else { 1 };
        let [start, end, step] = [0, count, by].map(|number| self.b.index(number));
        let counter = self.b.begin_for("step", start, end, step);
        for n in 0..by {
            let step = self.plus(counter, n);
            each(self, step);
        }
        self.b.end();
    }

    /// Loads the element `behind` elements after each of these indices.
    fn load_at(&mut self, mem: MemId, places: &[ExprId], behind: ExprId) -> Vec<ExprId> {
        let mut values = Vec::with_capacity(places.len());
        for place in places {
            let at = self.b.alu(Alu::Add, &[*place, behind]);
            let value = self.b.load(mem, at, Guard::Proven);
            values.push(self.b.bind("r", value));
        }
        values
    }

    /// Adds the products of all pairs.
    fn multiply(&mut self, left: &[ExprId], right: &[ExprId], sums: &[LocalId]) {
        let pairs = left.iter().flat_map(|left| right.iter().map(move |right| (*left, *right)));
        for ((left, right), sum) in pairs.zip(sums) {
            let before = self.b.get(*sum);
            let after = self.product(left, right, before);
            self.b.assign(*sum, after);
        }
    }

    /// Returns `to + left · right`.
    fn product(&mut self, left: ExprId, right: ExprId, to: ExprId) -> ExprId {
        if self.fused {
            return self.b.alu(Alu::Fma, &[left, right, to]);
        }
        let product = self.b.alu(Alu::Mul, &[left, right]);
        self.b.alu(Alu::Add, &[to, product])
    }

    /// Stores `finish(row, sum)` for each of a work-item's sums that is in range, where `row` is the number of the own
    /// row.
    pub fn store(
        &mut self,
        to: MatrixRef,
        first: ExprId,
        sums: &[LocalId],
        mut finish: impl FnMut(&mut Tiles, usize, ExprId) -> ExprId,
    ) {
        let across = self.across(to.width) as usize;
        let dtype = self.b.mem_dtype(to.mem);
        for (n, sums) in sums.chunks(across).enumerate() {
            let row = self.owned_row(n as u64);
            let row = self.b.alu(Alu::Add, &[first, row]);
            let open = !to.rows.is_multiple_of(self.t.owned());
            let inside = self.below(&[open.then_some((row, to.rows))]);
            inside.iter().for_each(|inside| self.b.begin_if(*inside));
            let before = self.times(row, to.width);
            let before = self.b.alu(Alu::Add, &[to.start, before]);
            for (m, sum) in (0..).zip(sums) {
                let column = self.streamed_row(m);
                let last = match self.t.fragments {
                    None => (m + 1) * self.t.line(),
                    Some(_) => padded(m * self.t.line() + 1),
                };
                let within = self.below(&[(last > to.width).then_some((column, to.width))]);
                within.iter().for_each(|within| self.b.begin_if(*within));
                let sum = self.b.get(*sum);
                let value = finish(self, n, sum);
                let value = self.b.cast(dtype, value);
                let at = self.b.alu(Alu::Add, &[before, column]);
                self.b.store(to.mem, at, value, Guard::Proven);
                within.iter().for_each(|_| self.b.end());
            }
            inside.iter().for_each(|_| self.b.end());
        }
    }
}
