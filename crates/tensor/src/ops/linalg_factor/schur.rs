//! Kernels of the eigendecomposition of general matrices: the Schur form and the eigenvectors of triangular matrices.
//!
//! Complex matrices are two planes, `[batch, 2, n, n]`: real parts, then imaginary parts. Elements are of magnitude
//! near 1 or less, so that squares do not overflow.

use panoply_ir::kernel::{Access, Builtin, CollectiveOp, ExprId, Kernel, MemId, ReduceOp, Scope};
use panoply_ir::{Alu, DType, Element, Result, Type};

use super::epsilon;
use super::kernels::{BLOCK, Writer};

/// A complex number: its real and imaginary parts.
type Complex = [ExprId; 2];

/// Square matrices of complex numbers in memory.
#[derive(Clone, Copy)]
struct Planes {
    memory: MemId,
    /// Position of the matrix's first real part.
    first: ExprId,
    /// Number of elements of a plane.
    elems: ExprId,
    n: ExprId,
}

impl Planes {
    fn places(self, w: &mut Writer, row: ExprId, column: ExprId) -> [ExprId; 2] {
        let real = w.at(self.first, row, self.n, column);
        let real = w.b.bind("real_at", real);
        [real, w.add(real, self.elems)]
    }

    fn load(self, w: &mut Writer, row: ExprId, column: ExprId) -> Complex {
        self.places(w, row, column).map(|at| {
            let value = w.load(self.memory, at);
            w.b.bind("part", value)
        })
    }

    fn store(self, w: &mut Writer, row: ExprId, column: ExprId, value: Complex) {
        let places = self.places(w, row, column);
        places.into_iter().zip(value).for_each(|(at, part)| w.store(self.memory, at, part));
    }
}

/// Builds the kernel for the Schur form Z · T · Zᴴ of matrices `h`, in place: T is upper triangular, with the eigenvalues on
/// its diagonal, and Z is unitary. `z` is the identity at the start. Rotations first clear what is below the
/// subdiagonal; QR steps with the shift of Wilkinson then make one subdiagonal element after another small. The diagonal is NaN
/// where `steps` of them do not suffice. A work-group for each matrix. [Golub and Van Loan, 7.4 and 7.5; exceptional shifts as
/// in LAPACK's `zlahqr`]
pub fn schur<T: Element>() -> Result<Kernel> {
    let mut w = Writer::new::<T>("schur");
    w.b.group_size([BLOCK as u32, 1, 1]);
    let (h, z) = (w.b.buffer("h", T::DTYPE, Access::InOut), w.b.buffer("z", T::DTYPE, Access::InOut));
    let (n, steps) = (w.size("n"), w.size("steps"));
    let (zero, one, two, ten) = (w.b.index(0), w.b.index(1), w.b.index(2), w.b.index(10));
    let (lane, matrix) = (w.b.builtin(Builtin::LocalId(0)), w.b.builtin(Builtin::GroupId(0)));
    let elems = w.mul(n, n);
    let elems = w.b.bind("elems", elems);
    let both = w.mul(elems, two);
    let first = w.mul(matrix, both);
    let first = w.b.bind("first", first);
    let [h, z] = [h, z].map(|memory| Planes { memory, first, elems, n });

    // Hessenberg form: from the last row up, each row clears the one below it.
    let column = w.each("column", zero, n, 1);
    let start = w.add(column, two);
    let step = w.each("step", start, n, 1);
    let beyond = w.add(n, one);
    let beyond = w.add(beyond, column);
    let lower = w.sub(beyond, step);
    let lower = w.b.bind("lower", lower);
    let upper = w.sub(lower, one);
    w.b.barrier();
    let pair = [upper, lower].map(|row| h.load(&mut w, row, column));
    let always = w.b.alu(Alu::Le, &[zero, column]);
    rotate(&mut w, [h, z], lane, Rotation { rows: [upper, lower], pair, start: column, end: n, clears: always });
    w.b.end();
    w.b.end();

    let last = w.sub(n, one);
    let (end, tried, since) =
        (w.b.declare("end", last, true), w.b.declare("tried", zero, true), w.b.declare("since", zero, true));
    let (more, count) = (w.b.get(end), w.b.get(tried));
    let (open, left) = (w.less(zero, more), w.less(count, steps));
    let goes_on = w.b.alu(Alu::And, &[open, left]);
    w.b.begin_while(goes_on);
    let (hi, waited) = (w.b.get(end), w.b.get(since));
    let (hi, waited) = (w.b.bind("hi", hi), w.b.bind("waited", waited));
    let after = w.add(hi, one);
    w.b.barrier();
    let lo = last_block(&mut w, h, [lane, after]);
    let shift = shift(&mut w, h, hi, waited, ten);
    w.b.barrier();
    // The element before the block is a rounding error.
    let (single, inner) = (w.b.alu(Alu::Eq, &[lane, zero]), w.less(zero, lo));
    let clears = w.b.alu(Alu::And, &[single, inner]);
    w.b.begin_if(clears);
    let before = w.sub(lo, one);
    let nothing = w.float(0.0);
    h.store(&mut w, lo, before, [nothing; 2]);
    w.b.end();

    let row = w.each("row", lo, hi, 1);
    let next = w.add(row, one);
    let begins = w.b.alu(Alu::Eq, &[row, lo]);
    let previous = w.b.alu(Alu::Max, &[row, one]);
    let previous = w.sub(previous, one);
    let column = w.select(begins, lo, previous);
    let column = w.b.bind("column", column);
    w.b.barrier();
    let [mut upper, lower] = [row, next].map(|row| h.load(&mut w, row, column));
    for (part, shift) in upper.iter_mut().zip(shift) {
        let shifted = w.sub(*part, shift);
        *part = w.select(begins, shifted, *part);
        *part = w.b.bind("shifted", *part);
    }
    let (two_below, inside) = (w.add(next, two), w.b.alu(Alu::Not, &[begins]));
    let end_of_rows = w.b.alu(Alu::Min, &[two_below, after]);
    let rotation =
        Rotation { rows: [row, next], pair: [upper, lower], start: column, end: end_of_rows, clears: inside };
    rotate(&mut w, [h, z], lane, rotation);
    w.b.end();

    let alone = w.b.alu(Alu::Eq, &[lo, hi]);
    let (fewer, counted, longer) = (w.sub(hi, one), w.add(count, one), w.add(waited, one));
    let (fewer, longer) = (w.select(alone, fewer, hi), w.select(alone, zero, longer));
    w.b.assign(end, fewer);
    w.b.assign(since, longer);
    w.b.assign(tried, counted);
    w.b.end();

    let rest = w.b.get(end);
    let rest = w.b.bind("rest", rest);
    w.b.barrier();
    let failed = w.less(zero, rest);
    w.b.begin_if(failed);
    let after = w.add(rest, one);
    let row = w.each("row", lane, after, BLOCK as u64);
    let nan = w.float(f64::NAN);
    h.store(&mut w, row, row, [nan; 2]);
    w.b.end();
    w.b.end();
    w.b.finish()
}

/// Returns the first row of the last block of a Hessenberg matrix that ends before row `after`: its subdiagonal element is a
/// rounding error of its neighbors on the diagonal. NaN counts as one, so that a matrix with NaN ends.
fn last_block(w: &mut Writer, h: Planes, [lane, after]: [ExprId; 2]) -> ExprId {
    let (one, none) = (w.b.index(1), w.b.constant(0u32));
    let start = w.add(lane, one);
    let found = w.b.declare("found", none, true);
    let row = w.each("row", start, after, BLOCK as u64);
    let before = w.sub(row, one);
    let [above, beside, here] = [[before, before], [row, before], [row, row]].map(|[row, column]| {
        let value = h.load(w, row, column);
        magnitude(w, value)
    });
    let rounding = w.float(epsilon(w.dtype));
    let scale = w.add(above, here);
    let rounding = w.mul(rounding, scale);
    let large = w.less(rounding, beside);
    let small = w.b.alu(Alu::Not, &[large]);
    w.b.begin_if(small);
    let row = w.b.cast(DType::U32, row);
    w.b.assign(found, row);
    w.b.end();
    w.b.end();
    let mine = w.b.get(found);
    let found = w.b.collective(CollectiveOp::Reduce(ReduceOp::Max), Scope::Group, mine);
    let found = w.b.cast(Type::Index, found);
    w.b.bind("lo", found)
}

/// Returns the eigenvalue of the last two rows and columns that is closer to the last element; every ten steps without
/// success another number, since some matrices repeat.
fn shift(w: &mut Writer, h: Planes, hi: ExprId, waited: ExprId, ten: ExprId) -> Complex {
    let one = w.b.index(1);
    let before = w.sub(hi, one);
    let before = w.b.bind("before", before);
    let places = [[before, before], [before, hi], [hi, before], [hi, hi]];
    let [a, b, c, d] = places.map(|[row, column]| h.load(w, row, column));
    let half = w.float(0.5);
    let x: Complex = std::array::from_fn(|part| {
        let apart = w.sub(a[part], d[part]);
        w.mul(apart, half)
    });
    let (square, product) = (times(w, x, x), times(w, b, c));
    let product = product.map(|part| w.b.bind("product", part));
    let inner = std::array::from_fn(|part| w.add(square[part], product[part]));
    let y = root(w, inner);
    // The root of the sign that adds to x.
    let (nothing, minus, plus) = (w.float(0.0), w.float(-1.0), w.float(1.0));
    let (along, across) = (w.mul(x[0], y[0]), w.mul(x[1], y[1]));
    let along = w.add(along, across);
    let opposite = w.less(along, nothing);
    let sign = w.select(opposite, minus, plus);
    let sum: Complex = std::array::from_fn(|part| {
        let signed = w.mul(sign, y[part]);
        w.add(x[part], signed)
    });
    let quotient = divided(w, product, sum);
    let step = magnitude(w, c);
    let (remainder, ninth) = (w.b.alu(Alu::Rem, &[waited, ten]), w.b.index(9));
    let exceptional = w.b.alu(Alu::Eq, &[remainder, ninth]);
    let near: Complex = std::array::from_fn(|part| w.sub(d[part], quotient[part]));
    let most = w.float(0.75);
    let step = w.mul(most, step);
    let far = [w.add(d[0], step), d[1]];
    std::array::from_fn(|part| {
        let value = w.select(exceptional, far[part], near[part]);
        w.b.bind("shift", value)
    })
}

/// A rotation of two rows and of the columns with their numbers.
struct Rotation {
    rows: [ExprId; 2],
    /// The elements of a column in these rows, of which the rotation clears the second.
    pair: [Complex; 2],
    /// Column from which on the rows are rotated.
    start: ExprId,
    /// Row before which the columns are rotated.
    end: ExprId,
    /// True if `pair` are the elements of column `start`.
    clears: ExprId,
}

/// Applies a rotation [[c, s], [-s̄, c]] from the left to `h` and its inverse from the right to `h` and `z`.
fn rotate(w: &mut Writer, [h, z]: [Planes; 2], lane: ExprId, rotation: Rotation) {
    let Rotation { rows: [upper, lower], pair: [f, g], start, end, clears } = rotation;
    let (nothing, one) = (w.float(0.0), w.float(1.0));
    // Scaled, since squares of small numbers vanish and the rotation would not be unitary.
    let size = [f[0], f[1], g[0], g[1]].map(|part| w.b.alu(Alu::Abs, &[part]));
    let size = size.into_iter().reduce(|most, part| w.b.alu(Alu::Max, &[most, part])).expect("there are four");
    let size = w.b.bind("size", size);
    let is_zero = w.b.alu(Alu::Eq, &[size, nothing]);
    let [f, g] = [f, g].map(|value| {
        value.map(|part| {
            let scaled = w.div(part, size);
            let scaled = w.select(is_zero, nothing, scaled);
            w.b.bind("scaled", scaled)
        })
    });
    let squares = [f, g].map(|[real, imaginary]| {
        let (real, imaginary) = (w.mul(real, real), w.mul(imaginary, imaginary));
        w.add(real, imaginary)
    });
    let whole = w.add(squares[0], squares[1]);
    let (length, norm) = (w.b.alu(Alu::Sqrt, &[squares[0]]), w.b.alu(Alu::Sqrt, &[whole]));
    let (length, norm) = (w.b.bind("length", length), w.b.bind("norm", norm));
    let (some, any) = (w.less(nothing, length), w.less(nothing, norm));
    // NaN stays NaN: only a norm of 0 leaves the rows as they are.
    let none = w.b.alu(Alu::Eq, &[norm, nothing]);
    let cosine = w.div(length, norm);
    let cosine = w.select(none, one, cosine);
    let cosine = w.b.bind("cosine", cosine);
    // f / |f| · ḡ / norm.
    let unit: Complex = std::array::from_fn(|part| {
        let default = if part == 0 { one } else { nothing };
        let quotient = w.div(f[part], length);
        w.select(some, quotient, default)
    });
    let (real, imaginary) = (w.div(g[0], norm), w.div(g[1], norm));
    let minus = w.sub(nothing, imaginary);
    let sine = times(w, unit, [real, minus]).map(|part| w.select(any, part, nothing));
    let sine = sine.map(|part| w.b.bind("sine", part));
    let across = w.sub(nothing, sine[1]);
    w.b.barrier();
    let from = w.add(start, lane);
    let column = w.each("c", from, h.n, BLOCK as u64);
    let [x, y] = [upper, lower].map(|row| h.load(w, row, column));
    let [x, mut y] = turned(w, [x, y], cosine, sine);
    let here = w.b.alu(Alu::Eq, &[column, start]);
    let cleared = w.b.alu(Alu::And, &[here, clears]);
    y = y.map(|part| w.select(cleared, nothing, part));
    h.store(w, upper, column, x);
    h.store(w, lower, column, y);
    w.b.end();
    w.b.barrier();
    for (planes, rows) in [(h, end), (z, h.n)] {
        let row = w.each("r", lane, rows, BLOCK as u64);
        let pair = [upper, lower].map(|column| planes.load(w, row, column));
        let [x, y] = turned(w, pair, cosine, [sine[0], across]);
        planes.store(w, row, upper, x);
        planes.store(w, row, lower, y);
        w.b.end();
    }
}

/// Returns c · x + s · y and c · y - s̄ · x.
fn turned(w: &mut Writer, [x, y]: [Complex; 2], cosine: ExprId, sine: Complex) -> [Complex; 2] {
    let zero = w.float(0.0);
    let minus = w.sub(zero, sine[1]);
    let (there, back) = (times(w, sine, y), times(w, [sine[0], minus], x));
    let first = std::array::from_fn(|part| {
        let own = w.mul(cosine, x[part]);
        w.add(own, there[part])
    });
    let second = std::array::from_fn(|part| {
        let own = w.mul(cosine, y[part]);
        w.sub(own, back[part])
    });
    [first, second].map(|pair: Complex| pair.map(|part| w.b.bind("turned", part)))
}

/// Builds the kernel for the eigenvectors of upper triangular matrices `t`: column j of `x`, zeros at the start, solves
/// (T - t[j, j]) · x = 0 with a diagonal of ones, up to its length. Equal eigenvalues count as one rounding error of theirs apart, as in
/// LAPACK's `ztrevc`, and at least the square of one apart, so that nothing overflows. A work-item for each column.
pub fn triangular_vectors<T: Element>() -> Result<Kernel> {
    let mut w = Writer::new::<T>("triangular_vectors");
    let (x, t) = (w.b.buffer("x", T::DTYPE, Access::InOut), w.b.buffer("t", T::DTYPE, Access::In));
    let n = w.size("n");
    let (zero, one, two) = (w.b.index(0), w.b.index(1), w.b.index(2));
    let item = w.b.builtin(Builtin::GlobalId(0));
    let (matrix, j) = (w.div(item, n), w.b.alu(Alu::Rem, &[item, n]));
    let (matrix, j) = (w.b.bind("matrix", matrix), w.b.bind("j", j));
    let elems = w.mul(n, n);
    let elems = w.b.bind("elems", elems);
    let both = w.mul(elems, two);
    let first = w.mul(matrix, both);
    let first = w.b.bind("first", first);
    // Items beyond the last column have no matrix.
    let count = w.b.len(x);
    let inside = w.less(first, count);
    let [x, t] = [x, t].map(|memory| Planes { memory, first, elems, n });
    w.b.begin_if(inside);
    let (unit, nothing) = (w.float(1.0), w.float(0.0));
    x.store(&mut w, j, j, [unit, nothing]);
    let value = t.load(&mut w, j, j);
    let after = w.add(j, one);
    let back = w.each("back", zero, j, 1);
    let unit = epsilon(w.dtype);
    let (last, size, least, unit) = (w.sub(j, one), magnitude(&mut w, value), w.float(unit * unit), w.float(unit));
    let rounding = w.mul(unit, size);
    let rounding = w.b.alu(Alu::Max, &[rounding, least]);
    let rounding = w.b.bind("rounding", rounding);
    let i = w.sub(last, back);
    let i = w.b.bind("i", i);
    let below = w.add(i, one);
    let sums = ["real", "imaginary"].map(|name| w.sum(name));
    let k = w.each("k", below, after, 1);
    let (factor, known) = (t.load(&mut w, i, k), x.load(&mut w, k, j));
    let product = times(&mut w, factor, known);
    for (sum, part) in sums.into_iter().zip(product) {
        let before = w.b.get(sum);
        let sum_after = w.add(before, part);
        w.b.assign(sum, sum_after);
    }
    w.b.end();
    let corner = t.load(&mut w, i, i);
    let apart: Complex = std::array::from_fn(|part| w.sub(value[part], corner[part]));
    let size = magnitude(&mut w, apart);
    let close = w.less(size, rounding);
    let apart = [w.select(close, rounding, apart[0]), w.select(close, nothing, apart[1])];
    let sum = sums.map(|sum| w.b.get(sum));
    let found = divided(&mut w, sum, apart).map(|part| w.b.bind("found", part));
    x.store(&mut w, i, j, found);
    let (size, limit) = (magnitude(&mut w, found), w.float(1e8));
    let large = w.less(limit, size);
    w.b.begin_if(large);
    let k = w.each("k", i, after, 1);
    let scaled = x.load(&mut w, k, j).map(|part| w.div(part, size));
    x.store(&mut w, k, j, scaled);
    w.b.end();
    w.b.end();
    w.b.end();
    w.b.end();
    w.b.finish()
}

/// Returns the sum of the magnitudes of both parts.
fn magnitude(w: &mut Writer, value: Complex) -> ExprId {
    let [real, imaginary] = value.map(|part| w.b.alu(Alu::Abs, &[part]));
    let sum = w.add(real, imaginary);
    w.b.bind("size", sum)
}

fn times(w: &mut Writer, x: Complex, y: Complex) -> Complex {
    let (one, other) = (w.mul(x[0], y[0]), w.mul(x[1], y[1]));
    let (along, across) = (w.mul(x[0], y[1]), w.mul(x[1], y[0]));
    [w.sub(one, other), w.add(along, across)]
}

/// Returns x / y, and 0 if y is 0. y is scaled, so that its square does not vanish.
fn divided(w: &mut Writer, x: Complex, y: Complex) -> Complex {
    let nothing = w.float(0.0);
    let size = magnitude(w, y);
    let some = w.less(nothing, size);
    let y = y.map(|part| {
        let scaled = w.div(part, size);
        w.b.bind("scaled", scaled)
    });
    let (one, other) = (w.mul(y[0], y[0]), w.mul(y[1], y[1]));
    let square = w.add(one, other);
    let minus = w.sub(nothing, y[1]);
    times(w, x, [y[0], minus]).map(|part| {
        let part = w.div(part, square);
        let part = w.div(part, size);
        w.select(some, part, nothing)
    })
}

/// Returns the square root with a real part of at least 0.
fn root(w: &mut Writer, value: Complex) -> Complex {
    let (nothing, half, minus, plus) = (w.float(0.0), w.float(0.5), w.float(-1.0), w.float(1.0));
    let (one, other) = (w.mul(value[0], value[0]), w.mul(value[1], value[1]));
    let square = w.add(one, other);
    let length = w.b.alu(Alu::Sqrt, &[square]);
    let size = w.b.alu(Alu::Abs, &[value[0]]);
    let sum = w.add(length, size);
    let mean = w.mul(sum, half);
    let larger = w.b.alu(Alu::Sqrt, &[mean]);
    let larger = w.b.bind("larger", larger);
    let (some, quotient) = (w.less(nothing, larger), w.div(value[1], larger));
    let smaller = w.mul(quotient, half);
    let smaller = w.select(some, smaller, nothing);
    let smaller = w.b.bind("smaller", smaller);
    let negative = w.less(value[0], nothing);
    let (down, size) = (w.less(value[1], nothing), w.b.alu(Alu::Abs, &[smaller]));
    let sign = w.select(down, minus, plus);
    let signed = w.mul(sign, larger);
    [w.select(negative, size, larger), w.select(negative, signed, smaller)]
}
