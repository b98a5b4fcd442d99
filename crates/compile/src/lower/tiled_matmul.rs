//! Matrix products on a GPU, tiled through shared memory.
//!
//! A nest is a product if its only reduction is the sum along one loop of `a × b`, where `a` does not depend on some
//! outer variables (the *columns*) and `b` not on others (the *rows*). Every group computes a tile of rows × columns.
//! It loads or computes both operands into shared memory, `k_tile` steps of the inner dimension at a time, and every work-item
//! accumulates a small block of the tile in registers. Values computed from the sums, such as bias and activation, are computed and stored
//! in the same kernel.
//!
//! Rows, columns and the inner dimension can each combine several variables. So a convolution is a product too, and so
//! are its gradients: of filters by windows, whose elements are gathered, and masked at the edges, while they are
//! written to shared memory.
//!
//! Where the device has matrix units for f16 and bf16, a tile is composed of their fragments ([`fragments`]).

mod fragments;

use panoply_ir::alu::Alu;
use panoply_ir::graph::Graph;
use panoply_ir::kernel::{Builtin, ExprId, Guard, LocalId, MemId, Mma};
use panoply_ir::reduce::ReduceOp;
use panoply_ir::target::Style;
use panoply_ir::{DType, MathMode, Result, Scalar, Target};

use super::compute_at::{self, ComputeLevel, ComputeLevels};
use super::emit_scalar::ScalarEmitter;
use super::row_kernel::EmittedKernel;
use crate::opt::contract;
use crate::schedule::affine::LoopVar;
use crate::schedule::loop_nest::{LoopNest, Value, ValueId};

/// Tiling of a matrix product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatmulTiling {
    sum: ValueId,
    a: ValueId,
    b: ValueId,
    /// Variables on which only `a` depends.
    row: Axis,
    /// Variables on which only `b` depends.
    column: Axis,
    /// Variables of the sum.
    inner: Axis,
    /// The other outer variables: one product for each combination.
    batch: Axis,
    /// Work-items of a group along columns and along rows; for fragments, warps of 32 work-items.
    items: [u64; 2],
    /// Columns and rows of a work-item's block; for fragments, the number of fragments.
    block: [u64; 2],
    /// Steps along the inner dimension held in shared memory at a time.
    k_tile: u64,
    dtype: DType,
    /// True if multiply-adds are fused, with a single rounding.
    fused: bool,
    /// Element type of the device's matrix fragments, if used.
    fragments: Option<DType>,
}

/// Variables with a common linear index, the last one fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Axis(Vec<LoopVar>);

impl Axis {
    /// Returns the number of combinations.
    fn extent(&self) -> u64 {
        self.0.iter().map(|var| var.extent).product()
    }
}

/// Padding between rows of a tile in shared memory, in elements, so that work-items that write a column use different banks.
const SMEM_PADDING: u64 = 4;

/// Length of the runs of consecutive rows or columns that a work-item owns; blocks consist of whole runs.
const ELEMS_PER_ITEM: u64 = 4;

/// Bytes of a tile in shared memory that a work-item loads at once: at most one run, and its rows consist of whole vectors.
const VECTOR_BYTES: u64 = 16;

/// Work-items of a group, block of each work-item, and the minimum number of groups for which the tile is chosen
/// without measurement.
type Shape = ([u64; 2], [u64; 2], Option<u64>);

/// Tile shapes, the largest first.
const TILES: [Shape; 6] = [
    ([16, 16], [8, 8], Some(128)),
    ([16, 16], [8, 4], None),
    ([16, 16], [4, 8], None),
    ([16, 16], [4, 4], Some(32)),
    ([8, 8], [8, 8], None),
    ([8, 8], [4, 4], Some(0)),
];

/// Maximum bytes of a work-item's block, limited by its registers.
const BLOCK_BYTES: u64 = 256;

/// Minimum rows, columns and inner steps; fewer would leave most of a tile empty.
pub(super) const MIN_EXTENT: u64 = 16;

/// Returns tilings of a nest that is a sufficiently large product, the best estimate first. The order of summation is
/// the same in all.
pub fn tilings(nest: &LoopNest, levels: &ComputeLevels, target: &Target, math_mode: MathMode) -> Vec<MatmulTiling> {
    let fused = contract::in_sums(target, math_mode);
    let whole = if target.style == Style::Gpu { product(nest, levels, fused) } else { None };
    let fragments = target.mma && math_mode != MathMode::Exact;
    let whole =
        whole.map(|tiling| if fragments && tiling.dtype == DType::F32 { tiling.of_fragments(nest) } else { tiling });
    whole.map_or(Vec::new(), |tiling| tiling.sized(target))
}

/// Recognizes a nest as a product, with a provisional tiling.
fn product(nest: &LoopNest, levels: &ComputeLevels, fused: bool) -> Option<MatmulTiling> {
    let [inner] = &nest.loops[..] else { return None };
    let combined = |value: &Value| matches!(value, Value::Reduce(..) | Value::Scan(..));
    let mut sums = (0..nest.values.len()).filter(|id| combined(&nest.values[*id].0));
    let (sum, None) = (sums.next()?, sums.next()) else { return None };
    let Value::Reduce(ReduceOp::Sum, product, _) = nest.values[sum].0 else { return None };
    let Value::Alu(Alu::Mul, operands) = &nest.values[product].0 else { return None };
    let (a, b, dtype) = (operands[0], operands[1], nest.values[sum].1);
    let stores = nest.stores.iter().all(|store| levels.of_store(nest, store).0 == ComputeLevel::Row);
    let (in_a, in_b) = (outer_vars(nest, a), outer_vars(nest, b));
    let only =
        |this: &[LoopVar], other: &[LoopVar]| Axis(this.iter().copied().filter(|var| !other.contains(var)).collect());
    let (left, right) = (only(&in_a, &in_b), only(&in_b, &in_a));
    // The columns are the inner variables, along which results are contiguous.
    let innermost = |axis: &Axis| nest.outer.iter().rposition(|var| axis.0.contains(var));
    let swapped = innermost(&left) > innermost(&right);
    let (row, column, a, b) = if swapped { (right, left, b, a) } else { (left, right, a, b) };
    let shared = |var: &&LoopVar| !row.0.contains(var) && !column.0.contains(var);
    let batch = Axis(nest.outer.iter().filter(shared).copied().collect());
    let inner = Axis(inner.clone());
    let large = row.extent() >= MIN_EXTENT && column.extent() >= MIN_EXTENT && inner.extent() >= MIN_EXTENT;
    if !stores || !large || !matches!(dtype, DType::F32 | DType::F64) {
        return None;
    }
    let (items, block) = ([16, 16], [4, 4]);
    Some(MatmulTiling { sum, a, b, row, column, inner, batch, items, block, k_tile: 16, dtype, fused, fragments: None })
}

/// Returns the outer variables on which a value depends, in the nest's order.
fn outer_vars(nest: &LoopNest, id: ValueId) -> Vec<LoopVar> {
    let (mut open, mut seen) = (vec![id], vec![false; nest.values.len()]);
    let mut used = vec![false; nest.outer.len()];
    while let Some(next) = open.pop() {
        if std::mem::replace(&mut seen[next], true) {
            continue;
        }
        if let Some(index) = nest.values[next].0.index_expr() {
            nest.outer.iter().zip(&mut used).for_each(|(var, used)| *used |= index.uses(*var));
        }
        open.extend(compute_at::dependencies(nest, next));
    }
    nest.outer.iter().zip(used).filter(|(_, used)| *used).map(|(var, _)| *var).collect()
}

impl MatmulTiling {
    /// Returns the tilings that fit the device's limits: first the largest with enough groups, then all others.
    fn sized(&self, target: &Target) -> Vec<MatmulTiling> {
        let (mut fit, mut best) = (Vec::new(), None);
        let shapes = if self.fragments.is_some() { &fragments::TILES[..] } else { &TILES };
        for (items, block, least) in shapes.iter().copied() {
            let sized = MatmulTiling { items, block, ..self.clone() };
            let [columns, rows] = sized.tile();
            let tiles = self.column.extent().div_ceil(columns) * self.row.extent().div_ceil(rows);
            let groups = self.batch.extent() * tiles;
            let bytes = (sized.shared_tile_elems(columns) + sized.shared_tile_elems(rows)) * self.dtype.bytes() as u64;
            let items = sized.group();
            let block_bytes = block[0] * block[1] * self.dtype.bytes() as u64;
            let fits = (self.fragments.is_some() || block_bytes <= BLOCK_BYTES)
                && items[0] * items[1] <= target.max_group_items
                && items.iter().zip(target.max_group).all(|(items, most)| *items <= most)
                && bytes <= target.shared_bytes as u64;
            if fits {
                best = best.or(least.is_some_and(|least| groups >= least).then_some(fit.len()));
                fit.push(sized);
            }
        }
        match best {
            Some(best) => fit[..=best].rotate_right(1),
            None => fit.clear(),
        }
        fit
    }

    /// Returns columns and rows of a tile.
    fn tile(&self) -> [u64; 2] {
        let unit = self.fragments.map_or([1; 2], |_| [Mma::COLUMNS, Mma::ROWS].map(u64::from));
        [0, 1].map(|axis| self.items[axis] * self.block[axis] * unit[axis])
    }

    /// Returns work-items of a group along columns and along rows.
    fn group(&self) -> [u32; 2] {
        let [columns, rows] = self.items.map(|items| items as u32);
        if self.fragments.is_some() { [columns * rows * Mma::LANES, 1] } else { [columns, rows] }
    }

    /// Returns elements of shared memory for an operand tile with `count` rows or columns. For fragments an element is a word of
    /// two 16-bit floats.
    fn shared_tile_elems(&self, count: u64) -> u64 {
        if self.fragments.is_some() {
            count * (self.k_tile / 2 + SMEM_PADDING)
        } else {
            self.k_tile * (count + SMEM_PADDING)
        }
    }
}

/// Emits the kernel of a product.
///
/// # Errors
///
/// Returns an error if the kernel cannot be built.
pub fn emit(graph: &Graph, nest: &LoopNest, levels: &ComputeLevels, tiling: &MatmulTiling) -> Result<EmittedKernel> {
    let (e, arguments) = ScalarEmitter::new(graph, nest, levels);
    let mut tiles = Tiles { e, t: tiling, own: None };
    let grid = tiles.write();
    Ok(EmittedKernel { kernel: tiles.e.b.finish()?, grid, arguments })
}

struct Tiles<'a> {
    e: ScalarEmitter<'a>,
    t: &'a MatmulTiling,
    /// Position of the work-item's fragments, if fragments are used.
    own: Option<fragments::FragmentOwnership>,
}

/// An operand of the product that is staged in shared memory.
#[derive(Clone, Copy)]
struct Operand<'a> {
    value: ValueId,
    /// Variables of its rows or columns.
    axis: &'a Axis,
    /// First row or column of the tile.
    first: ExprId,
    /// Rows or columns of the tile.
    count: u64,
    /// The tile in shared memory.
    shared_tile: MemId,
}

impl<'a> Tiles<'a> {
    fn write(&mut self) -> [u64; 3] {
        let t = self.t;
        let [columns, rows] = t.tile();
        let [x, y] = t.group();
        self.e.b.group_size([x, y, 1]);
        let batch = self.e.b.builtin(Builtin::GroupId(2));
        self.e.delinearize(batch, &t.batch.0);
        let first = |tiles: &mut Self, axis: u8, size: u64| {
            let group = tiles.e.b.builtin(Builtin::GroupId(axis));
            let first = tiles.times(group, size);
            tiles.e.b.bind("tile", first)
        };
        let (column, row) = (first(self, 0, columns), first(self, 1, rows));
        let held = t.fragments.map_or(t.dtype, |_| DType::U32);
        let shared =
            |tiles: &mut Self, name: &str, count: u64| tiles.e.b.shared(name, held, t.shared_tile_elems(count) as u32);
        let (shared_a, shared_b) = (shared(self, "a", rows), shared(self, "b", columns));
        let a = Operand { value: t.a, axis: &t.row, first: row, count: rows, shared_tile: shared_a };
        let b = Operand { value: t.b, axis: &t.column, first: column, count: columns, shared_tile: shared_b };
        let mut zero = self.e.b.constant(Scalar { dtype: t.dtype, bits: 0 });
        if t.fragments.is_some() {
            self.own = Some(self.own());
            zero = self.e.b.splat(zero, Mma::ELEMENTS);
        }
        let sums: Vec<LocalId> = (0..t.block[0] * t.block[1]).map(|_| self.e.b.declare("sum", zero, true)).collect();
        let (start, end, step) = (self.e.b.index(0), self.e.b.index(t.inner.extent()), self.e.b.index(t.k_tile));
        let k = self.e.b.begin_for("slab", start, end, step);
        self.load_tile(a, k);
        self.load_tile(b, k);
        self.e.b.barrier();
        match (t.fragments, self.own) {
            (Some(dtype), Some(own)) => self.multiply_fragments(dtype, own, a, b, &sums),
            _ => self.multiply(a, b, &sums),
        }
        self.e.b.barrier();
        self.e.b.end();
        self.finish(a, b, &sums);
        let [x, y] = t.group().map(u64::from);
        [t.column.extent().div_ceil(columns) * x, t.row.extent().div_ceil(rows) * y, t.batch.extent()]
    }

    fn times(&mut self, value: ExprId, by: u64) -> ExprId {
        let by = self.e.b.index(by);
        self.e.b.alu(Alu::Mul, &[value, by])
    }

    fn plus(&mut self, value: ExprId, by: u64) -> ExprId {
        let by = self.e.b.index(by);
        self.e.b.alu(Alu::Add, &[value, by])
    }

    /// Loads a tile of an operand, from index `k` of the inner dimension on, into shared memory as `tile[step][position]`, or for fragments as
    /// `tile[position][word]`.
    fn load_tile(&mut self, operand: Operand<'a>, k: ExprId) {
        let t = self.t;
        let [x, y] = t.group().map(u64::from);
        let (items, steps) = (x * y, if t.fragments.is_some() { t.k_tile / 2 } else { t.k_tile });
        let (column, row) = (self.e.b.builtin(Builtin::LocalId(0)), self.e.b.builtin(Builtin::LocalId(1)));
        let before = self.times(row, x);
        let item = if y > 1 { self.e.b.alu(Alu::Add, &[before, column]) } else { column };
        // Neighboring work-items load neighboring elements.
        let along_inner = self.runs_along_inner(operand.value);
        let fast = if along_inner { steps } else { operand.count };
        for round in 0..(steps * operand.count).div_ceil(items) {
            // If rounds are whole lines, their addresses have constant distances.
            let lines = if t.fragments.is_some() && items.is_multiple_of(fast) { items / fast } else { 0 };
            let number = if lines > 0 { item } else { self.plus(item, round * items) };
            let fast_extent = self.e.b.index(fast);
            let quick = self.e.b.alu(Alu::Rem, &[number, fast_extent]);
            let slow = self.e.b.alu(Alu::Div, &[number, fast_extent]);
            let slow = if lines > 0 { self.plus(slow, round * lines) } else { slow };
            let (step, position) = if along_inner { (quick, slow) } else { (slow, quick) };
            let (step, position) = (self.e.b.bind("step", step), self.e.b.bind("at", position));
            let first = if t.fragments.is_some() { self.times(step, 2) } else { step };
            let inner = self.e.b.alu(Alu::Add, &[k, first]);
            let outer = self.e.b.alu(Alu::Add, &[operand.first, position]);
            let (value, row, within) = if t.fragments.is_some() {
                (self.word(operand, inner, outer), self.times(position, steps + SMEM_PADDING), step)
            } else {
                (self.checked(operand, inner, outer), self.times(step, operand.count + SMEM_PADDING), position)
            };
            let to = self.e.b.alu(Alu::Add, &[row, within]);
            self.e.b.store(operand.shared_tile, to, value, Guard::Proven);
        }
    }

    /// Returns an element of an operand, zero beyond its extents; for fragments its bits.
    fn checked(&mut self, operand: Operand<'a>, inner: ExprId, outer: ExprId) -> ExprId {
        let t = self.t;
        self.e.clear();
        self.e.delinearize(inner, &t.inner.0);
        self.e.delinearize(outer, &operand.axis.0);
        let open_inner = !t.inner.extent().is_multiple_of(t.k_tile);
        let open_outer = !operand.axis.extent().is_multiple_of(operand.count);
        self.e.vars_can_exceed = open_inner || open_outer;
        let mut value = self.e.value(operand.value);
        self.e.vars_can_exceed = false;
        if t.fragments.is_some() {
            value = self.e.b.bitcast(DType::U16, value);
        }
        let mut inside = None;
        for (open, at, extent) in [(open_inner, inner, t.inner.extent()), (open_outer, outer, operand.axis.extent())] {
            if open {
                let extent = self.e.b.index(extent);
                let one = self.e.b.alu(Alu::Lt, &[at, extent]);
                inside = Some(inside.map_or(one, |other| self.e.b.alu(Alu::And, &[other, one])));
            }
        }
        let zero = self.e.b.constant(Scalar { dtype: t.fragments.map_or(t.dtype, |_| DType::U16), bits: 0 });
        inside.map_or(value, |inside| self.e.b.alu(Alu::Select, &[inside, value, zero]))
    }

    /// Returns true if most loads of an operand are contiguous along the inner variable.
    fn runs_along_inner(&self, operand: ValueId) -> bool {
        let (nest, fastest) = (self.e.nest, self.t.inner.0.last());
        let (mut open, mut score) = (vec![operand], 0);
        while let Some(next) = open.pop() {
            if let Value::Load(_, index) = &nest.values[next].0 {
                let by_one = fastest.is_some_and(|var| index.coefficient(*var) == Some(1));
                score += if by_one { 1 } else { -1 };
            }
            open.extend(nest.values[next].0.operands());
        }
        score > 0
    }

    /// Adds the products of the tiles in shared memory to a work-item's sums.
    fn multiply(&mut self, a: Operand<'a>, b: Operand<'a>, sums: &[LocalId]) {
        let t = self.t;
        let (start, end, step) = (self.e.b.index(0), self.e.b.index(t.k_tile), self.e.b.index(1));
        let inner = self.e.b.begin_for("step", start, end, step);
        let left = self.registers(a, 1, inner);
        let right = self.registers(b, 0, inner);
        let pairs = left.iter().flat_map(|left| right.iter().map(move |right| (*left, *right)));
        for ((left, right), sum) in pairs.zip(sums) {
            let before = self.e.b.get(*sum);
            let after = match self.t.fused {
                true => self.e.b.alu(Alu::Fma, &[left, right, before]),
                false => {
                    let product = self.e.b.alu(Alu::Mul, &[left, right]);
                    self.e.b.alu(Alu::Add, &[before, product])
                }
            };
            self.e.b.assign(*sum, after);
        }
        self.e.b.end();
    }

    /// Loads the elements of a row of a tile in shared memory that a work-item's block needs.
    fn registers(&mut self, operand: Operand<'a>, axis: u8, inner: ExprId) -> Vec<ExprId> {
        let row = self.times(inner, operand.count + SMEM_PADDING);
        let lanes = VECTOR_BYTES / self.t.dtype.bytes() as u64;
        let mut registers = Vec::new();
        for first in (0..self.t.block[axis as usize]).step_by(lanes as usize) {
            let within = self.place(axis, first);
            let at = self.e.b.alu(Alu::Add, &[row, within]);
            let vector = self.e.b.load_vector(operand.shared_tile, at, lanes as u8, Guard::Proven);
            let vector = self.e.b.bind("r", vector);
            registers.extend((0..lanes as u8).map(|lane| self.e.b.extract(vector, lane)));
        }
        registers
    }

    /// Returns the column (axis 0) or row (axis 1) of the tile for the n-th element of a work-item's block. Elements
    /// are in runs, so that neighboring work-items load neighboring runs.
    fn place(&mut self, axis: u8, number: u64) -> ExprId {
        let local = self.e.b.builtin(Builtin::LocalId(axis));
        let run = self.times(local, ELEMS_PER_ITEM);
        self.plus(run, number / ELEMS_PER_ITEM * ELEMS_PER_ITEM * self.t.items[axis as usize] + number % ELEMS_PER_ITEM)
    }

    /// Computes and stores the values that depend on the sums.
    fn finish(&mut self, a: Operand<'a>, b: Operand<'a>, sums: &[LocalId]) {
        let elements = self.own.map_or(1, |_| Mma::ELEMENTS);
        for (number, sum) in (0..).zip(sums) {
            for element in 0..elements {
                self.e.clear();
                let [x, y] = [number % self.t.block[0], number / self.t.block[0]];
                let sum = self.e.b.get(*sum);
                let (row, column, sum) = match self.own {
                    Some(own) => self.element(own, [x, y], element, sum),
                    None => (self.place(1, y), self.place(0, x), sum),
                };
                let row = self.e.b.alu(Alu::Add, &[a.first, row]);
                let column = self.e.b.alu(Alu::Add, &[b.first, column]);
                let mut open = 0;
                for (at, operand) in [(row, a), (column, b)] {
                    let extent = operand.axis.extent();
                    if !extent.is_multiple_of(operand.count) {
                        let extent = self.e.b.index(extent);
                        let inside = self.e.b.alu(Alu::Lt, &[at, extent]);
                        self.e.b.begin_if(inside);
                        open += 1;
                    }
                    self.e.delinearize(at, &operand.axis.0);
                }
                self.e.row[self.t.sum] = Some(sum);
                let nest = self.e.nest;
                nest.stores.iter().for_each(|store| self.e.store(store));
                (0..open).for_each(|_| self.e.b.end());
            }
        }
    }
}
