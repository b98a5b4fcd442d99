//! Kernels of factorizations: blocks of at most [`BLOCK`] rows or columns, with one work-group for each matrix or one
//! work-item for each column.

use panoply_ir::builder::Builder;
use panoply_ir::kernel::{Access, Builtin, CollectiveOp, ExprId, Guard, Kernel, LocalId, MemId, ReduceOp, Scope};
use panoply_ir::{Alu, DType, Element, Result, Scalar, Type};

use super::epsilon;

/// Rows and columns of a block. A tile of f64 takes 8.25 KiB of shared memory; every device has at least 16 KiB.
pub const BLOCK: usize = 32;

/// Selects the kernel for f32 or f64.
pub fn of(dtype: DType, single: fn() -> Result<Kernel>, double: fn() -> Result<Kernel>) -> fn() -> Result<Kernel> {
    if dtype == DType::F64 { double } else { single }
}

/// A kernel builder with shorter methods.
pub(super) struct Writer {
    pub b: Builder,
    pub dtype: DType,
}

impl Writer {
    pub fn new<T: Element>(name: &str) -> Writer {
        Writer { b: Builder::new(name), dtype: T::DTYPE }
    }

    pub fn add(&mut self, x: ExprId, y: ExprId) -> ExprId {
        self.b.alu(Alu::Add, &[x, y])
    }

    pub fn sub(&mut self, x: ExprId, y: ExprId) -> ExprId {
        self.b.alu(Alu::Sub, &[x, y])
    }

    pub fn mul(&mut self, x: ExprId, y: ExprId) -> ExprId {
        self.b.alu(Alu::Mul, &[x, y])
    }

    pub fn div(&mut self, x: ExprId, y: ExprId) -> ExprId {
        self.b.alu(Alu::Div, &[x, y])
    }

    pub fn less(&mut self, x: ExprId, y: ExprId) -> ExprId {
        self.b.alu(Alu::Lt, &[x, y])
    }

    pub fn select(&mut self, condition: ExprId, yes: ExprId, no: ExprId) -> ExprId {
        self.b.alu(Alu::Select, &[condition, yes, no])
    }

    /// Returns a constant of the elements' type.
    pub fn float(&mut self, value: f64) -> ExprId {
        self.b.constant(Scalar::from_f64(self.dtype, value))
    }

    /// Returns a scalar argument as an index.
    pub fn size(&mut self, name: &str) -> ExprId {
        let value = self.b.scalar(name, DType::U32);
        let value = self.b.cast(Type::Index, value);
        self.b.bind(&format!("{name}_elems"), value)
    }

    /// Returns the position `first + row · width + column`.
    pub fn at(&mut self, first: ExprId, row: ExprId, width: ExprId, column: ExprId) -> ExprId {
        let row = self.mul(row, width);
        let row = self.add(first, row);
        self.add(row, column)
    }

    pub fn load(&mut self, memory: MemId, at: ExprId) -> ExprId {
        self.b.load(memory, at, Guard::Checked)
    }

    pub fn store(&mut self, memory: MemId, at: ExprId, value: ExprId) {
        self.b.store(memory, at, value, Guard::Checked);
    }

    /// Swaps two elements.
    fn swap(&mut self, memory: MemId, one: ExprId, other: ExprId) {
        let (x, y) = (self.load(memory, one), self.load(memory, other));
        let (x, y) = (self.b.bind("one", x), self.b.bind("other", y));
        self.store(memory, one, y);
        self.store(memory, other, x);
    }

    /// Begins a loop over the pairs of a round for this work-item, and returns the pair's index and its rows. Each
    /// row is in one pair (a round-robin tournament in which one stays and the others rotate); if the number is odd,
    /// one row has no pair.
    fn begin_pair(&mut self, [lane, pairs, round, rounds, n]: [ExprId; 5]) -> (ExprId, [ExprId; 2]) {
        let k = self.each("k", lane, pairs, BLOCK as u64);
        let zero = self.b.index(0);
        let (up, around) = (self.add(round, k), self.add(round, rounds));
        let down = self.sub(around, k);
        let (up, down) = (self.b.alu(Alu::Rem, &[up, rounds]), self.b.alu(Alu::Rem, &[down, rounds]));
        let stays = self.b.alu(Alu::Eq, &[k, zero]);
        let p = self.select(stays, rounds, up);
        let (p, q) = (self.b.bind("p", p), self.b.bind("q", down));
        let there = self.less(p, n);
        self.b.begin_if(there);
        (k, [p, q])
    }

    fn end_pair(&mut self) {
        self.b.end();
        self.b.end();
    }

    /// Rotates the vector of two elements by an angle given by its sine and the tangent of its half, so that a small
    /// angle makes a small change. [Rutishauser 1966]
    fn turn(&mut self, memory: MemId, [one, other]: [ExprId; 2], [sine, half]: [ExprId; 2]) {
        let (x, y) = (self.load(memory, one), self.load(memory, other));
        let (x, y) = (self.b.bind("one", x), self.b.bind("other", y));
        let (across, along) = (self.mul(half, x), self.mul(half, y));
        let (across, along) = (self.add(y, across), self.sub(x, along));
        let (across, along) = (self.mul(sine, across), self.mul(sine, along));
        let (before, after) = (self.sub(x, across), self.add(y, along));
        self.store(memory, one, before);
        self.store(memory, other, after);
    }

    /// Begins a loop over `start .. end`.
    pub fn each(&mut self, name: &str, start: ExprId, end: ExprId, step: u64) -> ExprId {
        let step = self.b.index(step);
        self.b.begin_for(name, start, end, step)
    }

    /// Updates the largest magnitude.
    fn most(&mut self, most: LocalId, value: ExprId) {
        let (size, before) = (self.b.alu(Alu::Abs, &[value]), self.b.get(most));
        let after = self.b.alu(Alu::Max, &[before, size]);
        self.b.assign(most, after);
    }

    /// Declares an accumulator.
    pub fn sum(&mut self, name: &str) -> LocalId {
        let zero = self.float(0.0);
        self.b.declare(name, zero, true)
    }

    /// Adds a product to an accumulator.
    pub fn accumulate(&mut self, sum: LocalId, x: ExprId, y: ExprId) {
        let (product, before) = (self.mul(x, y), self.b.get(sum));
        let after = self.add(before, product);
        self.b.assign(sum, after);
    }
}

/// Builds the kernel for L of symmetric matrices `a`, `n × n`: a work-group for each matrix, a work-item for each
/// row, column by column. NaN from the first pivot on that is not positive.
pub fn cholesky<T: Element>() -> Result<Kernel> {
    let mut w = Writer::new::<T>("cholesky_block");
    w.b.group_size([BLOCK as u32, 1, 1]);
    let (l, a) = (w.b.buffer("l", T::DTYPE, Access::Out), w.b.buffer("a", T::DTYPE, Access::In));
    let n = w.size("n");
    let tile = w.b.shared("tile", T::DTYPE, (BLOCK * (BLOCK + 1)) as u32);
    let (zero, pitch) = (w.b.index(0), w.b.index(BLOCK as u64 + 1));
    let (row, matrix) = (w.b.builtin(Builtin::LocalId(0)), w.b.builtin(Builtin::GroupId(0)));
    let elems = w.mul(n, n);
    let first = w.mul(matrix, elems);
    let inside = w.less(row, n);

    let column = w.each("column", zero, n, 1);
    let (from, to, nothing) = (w.at(first, row, n, column), w.at(zero, row, pitch, column), w.float(0.0));
    let value = w.load(a, from);
    let value = w.select(inside, value, nothing);
    w.store(tile, to, value);
    w.b.end();

    let j = w.each("j", zero, n, 1);
    w.b.barrier();
    let (sum, square) = (w.sum("sum"), w.sum("square"));
    let k = w.each("k", zero, j, 1);
    let (mine, theirs) = (w.at(zero, row, pitch, k), w.at(zero, j, pitch, k));
    let (mine, theirs) = (w.load(tile, mine), w.load(tile, theirs));
    w.accumulate(sum, mine, theirs);
    w.accumulate(square, theirs, theirs);
    w.b.end();
    let (mine, corner) = (w.at(zero, row, pitch, j), w.at(zero, j, pitch, j));
    let (value, pivot) = (w.load(tile, mine), w.load(tile, corner));
    let (sum, square) = (w.b.get(sum), w.b.get(square));
    let (value, pivot) = (w.sub(value, sum), w.sub(pivot, square));
    let (none, minus) = (w.float(0.0), w.float(-1.0));
    let positive = w.less(none, pivot);
    let pivot = w.select(positive, pivot, minus);
    let pivot = w.b.alu(Alu::Sqrt, &[pivot]);
    let (value, pivot) = (w.b.bind("value", value), w.b.bind("pivot", pivot));
    w.b.barrier();
    let below = w.b.alu(Alu::Le, &[j, row]);
    w.b.begin_if(below);
    let (quotient, diagonal) = (w.div(value, pivot), w.b.alu(Alu::Eq, &[row, j]));
    let value = w.select(diagonal, pivot, quotient);
    w.store(tile, mine, value);
    w.b.end();
    w.b.end();

    w.b.begin_if(inside);
    let column = w.each("column", zero, n, 1);
    let (from, to, nothing) = (w.at(zero, row, pitch, column), w.at(first, row, n, column), w.float(0.0));
    let (value, below) = (w.load(tile, from), w.b.alu(Alu::Le, &[column, row]));
    let value = w.select(below, value, nothing);
    w.store(l, to, value);
    w.b.end();
    w.b.end();
    w.b.finish()
}

/// Builds the kernel for X of lower triangular matrices `l`, `n × n`, and right sides `n × m`: a work-item for each
/// column.
pub fn forward<T: Element>() -> Result<Kernel> {
    let mut w = Writer::new::<T>("forward_block");
    let x = w.b.buffer("x", T::DTYPE, Access::Out);
    let (l, right) = (w.b.buffer("l", T::DTYPE, Access::In), w.b.buffer("right", T::DTYPE, Access::In));
    let (n, m) = (w.size("n"), w.size("m"));
    let known = w.b.private("known", T::DTYPE, BLOCK as u32);
    let (zero, item) = (w.b.index(0), w.b.builtin(Builtin::GlobalId(0)));
    let (matrix, column) = (w.div(item, m), w.b.alu(Alu::Rem, &[item, m]));
    let (triangle, sides) = (w.mul(n, n), w.mul(n, m));
    let (first, side) = (w.mul(matrix, triangle), w.mul(matrix, sides));
    let (first, side) = (w.b.bind("first", first), w.b.bind("side", side));
    // Items beyond the last column would read elements that no item wrote.
    let count = w.b.len(right);
    let inside = w.less(side, count);
    w.b.begin_if(inside);
    let i = w.each("i", zero, n, 1);
    let sum = w.sum("sum");
    let k = w.each("k", zero, i, 1);
    let factor = w.at(first, i, n, k);
    let (factor, value) = (w.load(l, factor), w.load(known, k));
    w.accumulate(sum, factor, value);
    w.b.end();
    let (here, corner) = (w.at(side, i, m, column), w.at(first, i, n, i));
    let (value, pivot, sum) = (w.load(right, here), w.load(l, corner), w.b.get(sum));
    let value = w.sub(value, sum);
    let value = w.div(value, pivot);
    let value = w.b.bind("value", value);
    w.store(known, i, value);
    w.store(x, here, value);
    w.b.end();
    w.b.end();
    w.b.finish()
}

/// Builds the kernel that replaces matrices `a`, `m × n` with m ≥ n ≤ [`BLOCK`], by Householder vectors in place.
/// Column j contains from row j on the v of the reflection I - v·vᵀ that clears it below the diagonal; zeros where it
/// is clear already. A work-group for each matrix.
pub fn reflect<T: Element>() -> Result<Kernel> {
    let mut w = Writer::new::<T>("reflect_block");
    w.b.group_size([BLOCK as u32, 1, 1]);
    let a = w.b.buffer("a", T::DTYPE, Access::InOut);
    let (m, n) = (w.size("m"), w.size("n"));
    let (zero, one) = (w.b.index(0), w.b.index(1));
    let (lane, matrix) = (w.b.builtin(Builtin::LocalId(0)), w.b.builtin(Builtin::GroupId(0)));
    let elems = w.mul(m, n);
    let first = w.mul(matrix, elems);

    let j = w.each("j", zero, n, 1);
    w.b.barrier();
    let square = w.sum("square");
    let (below, corner) = (w.add(j, one), w.at(first, j, n, j));
    let start = w.add(below, lane);
    let i = w.each("i", start, m, BLOCK as u64);
    let here = w.at(first, i, n, j);
    let value = w.load(a, here);
    w.accumulate(square, value, value);
    w.b.end();
    let square = w.b.get(square);
    let square = w.b.collective(CollectiveOp::Reduce(ReduceOp::Sum), Scope::Group, square);
    let head = w.load(a, corner);
    let head = w.b.bind("head", head);
    w.b.barrier();
    let (head, factor) = reflection(&mut w, head, square);
    let i = w.each("i", start, m, BLOCK as u64);
    let here = w.at(first, i, n, j);
    let value = w.load(a, here);
    let value = w.mul(value, factor);
    w.store(a, here, value);
    w.b.end();
    let single = w.b.alu(Alu::Eq, &[lane, zero]);
    w.b.begin_if(single);
    w.store(a, corner, head);
    w.b.end();
    w.b.barrier();

    // The remaining columns, one for each work-item.
    let inside = w.less(start, n);
    w.b.begin_if(inside);
    let sum = w.sum("sum");
    let i = w.each("i", j, m, 1);
    let (mine, theirs) = (w.at(first, i, n, start), w.at(first, i, n, j));
    let (mine, theirs) = (w.load(a, mine), w.load(a, theirs));
    w.accumulate(sum, mine, theirs);
    w.b.end();
    let i = w.each("i", j, m, 1);
    let (place, theirs) = (w.at(first, i, n, start), w.at(first, i, n, j));
    let (mine, theirs, sum) = (w.load(a, place), w.load(a, theirs), w.b.get(sum));
    let share = w.mul(sum, theirs);
    let mine = w.sub(mine, share);
    w.store(a, place, mine);
    w.b.end();
    w.b.end();
    w.b.end();
    w.b.finish()
}

/// Returns the first element of the vector that reflects a column, with this head and this sum of squares below, onto
/// its first axis, and the factor of the other elements. Both are zero if there is nothing to clear.
fn reflection(w: &mut Writer, head: ExprId, square: ExprId) -> (ExprId, ExprId) {
    let (zero, two) = (w.float(0.0), w.float(2.0));
    let whole = w.mul(head, head);
    let whole = w.add(whole, square);
    let length = w.b.alu(Alu::Sqrt, &[whole]);
    let (negative, less, more) = (w.less(head, zero), w.sub(head, length), w.add(head, length));
    let moved = w.select(negative, less, more);
    let norm = w.mul(moved, moved);
    let norm = w.add(norm, square);
    let factor = w.div(two, norm);
    let factor = w.b.alu(Alu::Sqrt, &[factor]);
    // The largest element of a column was 1 before all reflections. This bound is far below rounding errors, and 2
    // divided by it does not overflow.
    let least = w.float(if w.dtype == DType::F64 { 2f64.powi(-900) } else { 2f64.powi(-100) });
    let clear = w.less(square, least);
    let factor = w.select(clear, zero, factor);
    let factor = w.b.bind("factor", factor);
    let head = w.mul(moved, factor);
    (w.b.bind("head_after", head), factor)
}

/// Builds the kernel for Gaussian elimination of matrices `a`, `m × n` with n ≤ [`BLOCK`], in place: below the
/// diagonal the multipliers, on and above it the reduced rows. In each column the row with the largest element is
/// swapped to the top. `order` contains the row indices at the start, and the source of each row at the end. A
/// work-group for each matrix.
pub fn pivot<T: Element>() -> Result<Kernel> {
    let mut w = Writer::new::<T>("pivot_block");
    w.b.group_size([BLOCK as u32, 1, 1]);
    let (a, order) = (w.b.buffer("a", T::DTYPE, Access::InOut), w.b.buffer("order", DType::I32, Access::InOut));
    let (m, n) = (w.size("m"), w.size("n"));
    let (zero, one) = (w.b.index(0), w.b.index(1));
    let (lane, matrix) = (w.b.builtin(Builtin::LocalId(0)), w.b.builtin(Builtin::GroupId(0)));
    let (elems, rows) = (w.mul(m, n), w.mul(matrix, m));
    let first = w.mul(matrix, elems);

    let j = w.each("j", zero, n, 1);
    w.b.barrier();
    let largest = largest_below(&mut w, a, [first, m, n, j, lane]);
    w.b.barrier();
    let inside = w.less(lane, n);
    w.b.begin_if(inside);
    let (upper, lower) = (w.at(first, j, n, lane), w.at(first, largest, n, lane));
    w.swap(a, upper, lower);
    w.b.end();
    let single = w.b.alu(Alu::Eq, &[lane, zero]);
    w.b.begin_if(single);
    let (upper, lower) = (w.add(rows, j), w.add(rows, largest));
    w.swap(order, upper, lower);
    w.b.end();
    w.b.barrier();

    let (below, corner) = (w.add(j, one), w.at(first, j, n, j));
    let pivot = w.load(a, corner);
    let pivot = w.b.bind("pivot", pivot);
    let (start, nothing) = (w.add(below, lane), w.float(0.0));
    let singular = w.b.alu(Alu::Eq, &[pivot, nothing]);
    let i = w.each("i", start, m, BLOCK as u64);
    let here = w.at(first, i, n, j);
    let value = w.load(a, here);
    let quotient = w.div(value, pivot);
    let factor = w.select(singular, nothing, quotient);
    let factor = w.b.bind("factor", factor);
    w.store(a, here, factor);
    let c = w.each("c", below, n, 1);
    let (place, theirs) = (w.at(first, i, n, c), w.at(first, j, n, c));
    let (mine, theirs) = (w.load(a, place), w.load(a, theirs));
    let share = w.mul(factor, theirs);
    let mine = w.sub(mine, share);
    w.store(a, place, mine);
    w.b.end();
    w.b.end();
    w.b.end();
    w.b.finish()
}

/// Returns the row from j on with the largest magnitude in column j, or j if there is none; uniform in the
/// work-group.
fn largest_below(w: &mut Writer, a: MemId, [first, m, n, j, lane]: [ExprId; 5]) -> ExprId {
    let (least, here) = (w.float(-1.0), w.b.cast(DType::U32, j));
    let (most, place) = (w.b.declare("most", least, true), w.b.declare("place", here, true));
    let start = w.add(j, lane);
    let i = w.each("i", start, m, BLOCK as u64);
    let at = w.at(first, i, n, j);
    let value = w.load(a, at);
    let value = w.b.alu(Alu::Abs, &[value]);
    let value = w.b.bind("magnitude", value);
    let before = w.b.get(most);
    let more = w.less(before, value);
    w.b.begin_if(more);
    w.b.assign(most, value);
    let row = w.b.cast(DType::U32, i);
    w.b.assign(place, row);
    w.b.end();
    w.b.end();
    let (mine, place) = (w.b.get(most), w.b.get(place));
    let best = w.b.collective(CollectiveOp::Reduce(ReduceOp::Max), Scope::Group, mine);
    let (hit, beyond) = (w.b.alu(Alu::Eq, &[mine, best]), w.b.constant(u32::MAX));
    let candidate = w.select(hit, place, beyond);
    let found = w.b.collective(CollectiveOp::Reduce(ReduceOp::Min), Scope::Group, candidate);
    let found = w.b.cast(Type::Index, found);
    w.b.bind("largest", found)
}

/// Builds the kernel for Jacobi rotations of symmetric matrices `a`, `n × n`, in place. Each sweep rotates every pair
/// of rows and columns once so that their common element vanishes. It ends after a sweep in which all these elements
/// are small relative to the diagonal, or after `sweeps`. Then the diagonal contains the eigenvalues. The columns of
/// `v`, the identity at the start, are the eigenvectors at the end. `turns` contains two numbers for each pair of a
/// round, in which no two pairs share a row. A work-group for each matrix.
pub fn jacobi<T: Element>() -> Result<Kernel> {
    let mut w = Writer::new::<T>("jacobi");
    w.b.group_size([BLOCK as u32, 1, 1]);
    let (a, v) = (w.b.buffer("a", T::DTYPE, Access::InOut), w.b.buffer("v", T::DTYPE, Access::InOut));
    let turns = w.b.buffer("turns", T::DTYPE, Access::InOut);
    let (n, sweeps) = (w.size("n"), w.size("sweeps"));
    let (zero, one, two) = (w.b.index(0), w.b.index(1), w.b.index(2));
    let (lane, matrix) = (w.b.builtin(Builtin::LocalId(0)), w.b.builtin(Builtin::GroupId(0)));
    let (elems, odd) = (w.mul(n, n), w.b.alu(Alu::Rem, &[n, two]));
    let (first, even) = (w.mul(matrix, elems), w.add(n, odd));
    let (rounds, pairs) = (w.sub(even, one), w.div(even, two));
    let turned = w.mul(matrix, even);

    let (sweep, never) = (w.b.declare("sweep", zero, true), w.b.constant(Scalar::from(false)));
    let done = w.b.declare("done", never, true);
    let (swept, ended) = (w.b.get(sweep), w.b.get(done));
    let (more, open) = (w.less(swept, sweeps), w.b.alu(Alu::Not, &[ended]));
    let goes_on = w.b.alu(Alu::And, &[more, open]);
    w.b.begin_while(goes_on);
    let (largest, scale) = (w.sum("largest"), w.sum("scale"));
    let round = w.each("round", zero, rounds, 1);
    w.b.barrier();
    let (k, [p, q]) = w.begin_pair([lane, pairs, round, rounds, n]);
    let corners = [[p, p], [q, q], [p, q]].map(|[row, column]| w.at(first, row, n, column));
    let corners = corners.map(|at| w.load(a, at));
    let [upper, lower, beside] = corners;
    [(largest, beside), (scale, upper), (scale, lower)].into_iter().for_each(|(most, value)| w.most(most, value));
    let turn = rotation(&mut w, corners);
    let at = w.at(turned, k, two, zero);
    let places = [at, w.add(at, one)];
    places.into_iter().zip(turn).for_each(|(at, value)| w.store(turns, at, value));
    w.end_pair();
    w.b.barrier();
    for rows in [true, false] {
        let (k, [p, q]) = w.begin_pair([lane, pairs, round, rounds, n]);
        let at = w.at(turned, k, two, zero);
        let next = w.add(at, one);
        let turn = [at, next].map(|at| w.load(turns, at));
        let turn = turn.map(|value| w.b.bind("turn", value));
        let i = w.each("i", zero, n, 1);
        let places = [p, q].map(|x| if rows { w.at(first, x, n, i) } else { w.at(first, i, n, x) });
        w.turn(a, places, turn);
        if !rows {
            w.turn(v, places, turn);
        }
        w.b.end();
        w.end_pair();
        if rows {
            w.b.barrier();
        }
    }
    w.b.end();
    let [largest, scale] = [largest, scale].map(|most| {
        let mine = w.b.get(most);
        w.b.collective(CollectiveOp::Reduce(ReduceOp::Max), Scope::Group, mine)
    });
    let rounding = w.float(epsilon(w.dtype));
    let small = w.mul(rounding, scale);
    let small = w.b.alu(Alu::Le, &[largest, small]);
    w.b.assign(done, small);
    let next = w.add(swept, one);
    w.b.assign(sweep, next);
    w.b.end();
    w.b.finish()
}

/// Builds the kernel for Jacobi rotations of the rows of matrices `a`, `n × n`, in place, until they are orthogonal. Each
/// sweep rotates every pair of rows once. It ends after a sweep in which all cosines of angles between rows are rounding
/// errors, or after `sweeps`. The rows of `v`, the identity at the start, are rotated alike. A work-group for each
/// matrix.
pub fn orthogonalize<T: Element>() -> Result<Kernel> {
    let mut w = Writer::new::<T>("one_sided_jacobi");
    w.b.group_size([BLOCK as u32, 1, 1]);
    let (a, v) = (w.b.buffer("a", T::DTYPE, Access::InOut), w.b.buffer("v", T::DTYPE, Access::InOut));
    let (n, sweeps) = (w.size("n"), w.size("sweeps"));
    let (zero, one, two) = (w.b.index(0), w.b.index(1), w.b.index(2));
    let (lane, matrix) = (w.b.builtin(Builtin::LocalId(0)), w.b.builtin(Builtin::GroupId(0)));
    let (elems, odd) = (w.mul(n, n), w.b.alu(Alu::Rem, &[n, two]));
    let (first, even) = (w.mul(matrix, elems), w.add(n, odd));
    let (rounds, pairs) = (w.sub(even, one), w.div(even, two));

    let (sweep, never) = (w.b.declare("sweep", zero, true), w.b.constant(Scalar::from(false)));
    let done = w.b.declare("done", never, true);
    let (swept, ended) = (w.b.get(sweep), w.b.get(done));
    let (more, open) = (w.less(swept, sweeps), w.b.alu(Alu::Not, &[ended]));
    let goes_on = w.b.alu(Alu::And, &[more, open]);
    w.b.begin_while(goes_on);
    let (largest, nothing) = (w.sum("largest"), w.float(0.0));
    let round = w.each("round", zero, rounds, 1);
    w.b.barrier();
    let (_, rows) = w.begin_pair([lane, pairs, round, rounds, n]);
    let products = ["upper", "lower", "beside"].map(|name| w.sum(name));
    let i = w.each("i", zero, n, 1);
    let [x, y] = rows.map(|row| w.at(first, row, n, i)).map(|at| w.load(a, at));
    let (x, y) = (w.b.bind("x", x), w.b.bind("y", y));
    products.into_iter().zip([(x, x), (y, y), (x, y)]).for_each(|(sum, (x, y))| w.accumulate(sum, x, y));
    w.b.end();
    let products = products.map(|sum| w.b.get(sum)).map(|value| w.b.bind("product", value));
    let [upper, lower, beside] = products;
    let lengths = [upper, lower].map(|square| w.b.alu(Alu::Sqrt, &[square]));
    let scale = w.mul(lengths[0], lengths[1]);
    let (some, cosine) = (w.less(nothing, scale), w.div(beside, scale));
    let cosine = w.select(some, cosine, nothing);
    w.most(largest, cosine);
    let turn = rotation(&mut w, products).map(|value| w.b.bind("turn", value));
    let i = w.each("i", zero, n, 1);
    let places = rows.map(|row| w.at(first, row, n, i));
    w.turn(a, places, turn);
    w.turn(v, places, turn);
    w.b.end();
    w.end_pair();
    w.b.end();
    let mine = w.b.get(largest);
    let largest = w.b.collective(CollectiveOp::Reduce(ReduceOp::Max), Scope::Group, mine);
    // The rounding error of a scalar product of n elements.
    let (size, unit) = (w.b.cast(w.dtype, n), epsilon(w.dtype));
    let (root, unit) = (w.b.alu(Alu::Sqrt, &[size]), w.float(unit));
    let rounding = w.mul(root, unit);
    let small = w.b.alu(Alu::Le, &[largest, rounding]);
    w.b.assign(done, small);
    let next = w.add(swept, one);
    w.b.assign(sweep, next);
    w.b.end();
    w.b.finish()
}

/// Returns the sine of the rotation and the tangent of its half, given both diagonal elements and the off-diagonal
/// element that becomes 0. [Golub and Van Loan, 8.5]
fn rotation(w: &mut Writer, [upper, lower, beside]: [ExprId; 3]) -> [ExprId; 2] {
    let (zero, one, minus) = (w.float(0.0), w.float(1.0), w.float(-1.0));
    let (apart, double) = (w.sub(lower, upper), w.add(beside, beside));
    let slope = w.div(apart, double);
    let (size, square) = (w.b.alu(Alu::Abs, &[slope]), w.mul(slope, slope));
    let (negative, whole) = (w.less(slope, zero), w.add(one, square));
    let root = w.b.alu(Alu::Sqrt, &[whole]);
    let (sign, length) = (w.select(negative, minus, one), w.add(size, root));
    let tangent = w.div(sign, length);
    let done = w.b.alu(Alu::Eq, &[beside, zero]);
    let tangent = w.select(done, zero, tangent);
    let tangent = w.b.bind("tangent", tangent);
    let square = w.mul(tangent, tangent);
    let whole = w.add(one, square);
    let root = w.b.alu(Alu::Sqrt, &[whole]);
    let sine = w.div(tangent, root);
    let whole = w.add(one, root);
    [w.b.bind("sine", sine), w.div(tangent, whole)]
}
