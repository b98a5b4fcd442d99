//! Maps loop variables to the grid, work-groups, lanes and sequential loops.
//!
//! The shape of a kernel is decided here, from the target's style and from which variables access memory with stride 1;
//! the emitters follow it.

use panoply_ir::alu::Alu;
use panoply_ir::reduce::ReduceOp;
use panoply_ir::target::Style;
use panoply_ir::{DType, MathMode, Target};

use super::compute_at::{ComputeLevel, ComputeLevels};
use super::loop_transforms::{self, InnerExtent};
use crate::schedule::affine::{AffineExpr, LoopVar};
use crate::schedule::loop_nest::{LoopNest, Store, Value, ValueId};

/// Execution resource that iterates over a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisBinding {
    /// Work-items along this axis of the grid. Several variables on one axis are computed from its index by division and remainder.
    Grid(u8),
    /// Work-groups: all work-items of a group share the value.
    Group,
    /// Work-items of a group, each with every n-th value for n work-items.
    Lane,
    /// A loop within one work-item.
    Sequential,
}

/// The binding of every variable of a nest, in the nest's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadMapping {
    /// Outer variables.
    pub outer: Vec<(LoopVar, AxisBinding)>,
    /// Variables of each loop.
    pub loops: Vec<Vec<(LoopVar, AxisBinding)>>,
    /// Work-items per group, if groups share rows.
    pub lanes: Option<u32>,
    /// Tile of work-items along the grid's first two axes, if the kernel is a transpose.
    pub tile: Option<TransposeTile>,
}

/// A square tile for a transpose: elements are contiguous along one axis where they are loaded, and along the other
/// where they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransposeTile {
    /// Work-items along each side.
    pub side: u32,
    /// Loads that are staged in shared memory.
    pub staged: Vec<ValueId>,
}

/// Rows shorter than this are processed by one work-item each.
pub(super) const SHORT_ROW: u64 = 48;
/// Rows at least this long are shared by a group even with strided access, if there are few rows.
pub(super) const LONG_ROW: u64 = 4 * SHORT_ROW;
/// Number of rows that keep a GPU busy with one work-item each.
pub(super) const BUSY_ROWS: u64 = 2048;
/// Maximum group size used on a GPU.
pub(super) const MAX_GPU_GROUP_SIZE: u32 = 256;

/// Number of elements from which a work-item of a GPU computes several; the remaining work-items still keep the largest device busy.
pub(super) const INTERLEAVED: u64 = 1 << 20;
/// Number of elements that such a work-item computes: the first of these that divides the outermost extent.
const ELEMENTS_PER_ITEM: [u64; 2] = [4, 2];

/// Rows shorter than this do not fill a CPU's block even if entire planes are merged.
pub(super) const SHORTEST_ROW: u64 = 4;

/// Chooses a mapping.
pub fn map(nest: &LoopNest, levels: &ComputeLevels, target: &Target, math_mode: MathMode) -> ThreadMapping {
    let longest = nest.loops.iter().map(|vars| extent(vars)).max().unwrap_or(1);
    let scan_extent = nest.values.iter().find_map(|(value, _)| match value {
        Value::Scan(_, _, along) => Some(extent(&nest.loops[*along])),
        _ => None,
    });
    let scatters = nest.stores.iter().any(|store| store.accumulate.is_some());
    let rows = extent(&nest.outer);
    let underfilled = match target.style {
        Style::Gpu => rows < BUSY_ROWS,
        Style::Cpu { block } => rows < block as u64 / 4,
    };
    let contiguous = loops_are_contiguous(nest, levels);
    let grouped = longest >= SHORT_ROW && !scatters && (contiguous || (underfilled && longest >= LONG_ROW));
    let grouped = grouped && !(math_mode == MathMode::Exact && sums_floats(nest));
    if grouped {
        let mapping = by_group(nest, target, longest);
        // A CPU's groups scan in order, in full rounds only; on a GPU their work-items would wait for each other. Exact
        // mode uses the order that every device uses.
        let even = |length: u64| length.is_multiple_of(mapping.lanes.map_or(1, u64::from));
        let in_order = matches!(target.style, Style::Cpu { .. }) && contiguous && math_mode != MathMode::Exact;
        if scan_extent.is_none_or(|length| in_order && even(length)) {
            return mapping;
        }
    }
    by_item(nest, target)
}

/// Splits the outermost variable of a large elementwise nest on a GPU, so that each work-item computes elements that are far apart: one load
/// at a time for each work-item does not reach the memory bandwidth. Returns the nest and its mapping; `None` if it does not apply.
pub fn interleaved(nest: &LoopNest, mapping: &ThreadMapping, target: &Target) -> Option<(LoopNest, ThreadMapping)> {
    let is_elementwise = nest.loops.is_empty() && mapping.lanes.is_none() && mapping.tile.is_none();
    let is_plain = |store: &Store| store.condition.is_none() && store.accumulate.is_none();
    let applies = matches!(target.style, Style::Gpu) && is_elementwise && nest.stores.iter().all(is_plain);
    if !applies || extent(&nest.outer) < INTERLEAVED || is_bias(nest) || exceeds_binding(nest, target) {
        return None;
    }
    let nest = ELEMENTS_PER_ITEM.iter().find_map(|elements| loop_transforms::split_outermost(nest, *elements))?;
    let mut mapping = by_item(&LoopNest { outer: nest.outer[1..].to_vec(), ..nest.clone() }, target);
    mapping.outer.insert(0, (nest.outer[0], AxisBinding::Sequential));
    mapping.tile.is_none().then_some((nest, mapping))
}

/// Returns true for the sum of two arrays of which one is broadcast: a plan replaces it by the bias of a library's product, if it has the
/// grid of the result.
fn is_bias(nest: &LoopNest) -> bool {
    let mut sums = nest.values.iter().filter(|(value, _)| !matches!(value, Value::Load(..)));
    let is_sum = matches!(sums.next(), Some((Value::Alu(Alu::Add, _), _))) && sums.next().is_none();
    is_sum && nest.outer.len() > 1
}

/// Returns true if an array can be larger than a binding of the device. The runtime then launches the grid in parts whose work-items access
/// a part of the array.
fn exceeds_binding(nest: &LoopNest, target: &Target) -> bool {
    let exceeds = |index: &AffineExpr, dtype: DType| {
        let end = index.guaranteed_range().map_or(i64::MAX, |(_, high)| high.saturating_add(1));
        (end as u64).saturating_mul(dtype.bytes() as u64) > target.max_binding_bytes
    };
    let loads =
        nest.values.iter().any(|(value, dtype)| matches!(value, Value::Load(_, index) if exceeds(index, *dtype)));
    loads || nest.stores.iter().any(|store| exceeds(&store.at, nest.values[store.value].1))
}

/// Returns true if the order of a reduction's iterations affects the result.
fn sums_floats(nest: &LoopNest) -> bool {
    let sums = |op: ReduceOp| match op {
        ReduceOp::Sum | ReduceOp::Prod => true,
        ReduceOp::Max | ReduceOp::Min => false,
    };
    nest.values.iter().any(|(value, dtype)| matches!(value, Value::Reduce(op, ..) if sums(*op)) && dtype.is_float())
}

impl ThreadMapping {
    /// Returns candidate extents of the innermost outer variable if it is so short that a CPU's blocks would be mostly
    /// empty: the best estimate first, the unchanged extent last. Returns an empty vector if it is long enough.
    pub fn inner_extents(&self, nest: &LoopNest, target: &Target) -> Vec<InnerExtent> {
        let Style::Cpu { block } = target.style else { return Vec::new() };
        let block = block as u64;
        let alone = self.lanes.is_none() && self.tile.is_none();
        let short = nest.outer.len() > 1 && nest.outer.last().is_some_and(|last| last.extent < block / 4);
        let merged = |short: u64| InnerExtent { wanted: block / 2, short };
        if alone && short { vec![merged(SHORTEST_ROW), merged(SHORT_ROW), InnerExtent::UNCHANGED] } else { Vec::new() }
    }
}

/// Returns true if iterating along the loops accesses neighboring elements more often than iterating across rows.
fn loops_are_contiguous(nest: &LoopNest, levels: &ComputeLevels) -> bool {
    let steps_by_one = |index: &AffineExpr, var: Option<&LoopVar>| {
        var.is_some_and(|var| matches!(index.coefficient(*var), Some(1 | -1)))
    };
    let mut score = 0;
    let mut vote = |index: &AffineExpr, level: ComputeLevel| {
        if let ComputeLevel::Iteration(number) = level {
            score += i32::from(steps_by_one(index, nest.loops[number].last()));
            score -= i32::from(steps_by_one(index, nest.outer.last()));
        }
    };
    for (id, (value, _)) in nest.values.iter().enumerate() {
        if let Value::Load(_, index) = value {
            vote(index, levels.level[id]);
        }
    }
    nest.stores.iter().for_each(|store| vote(&store.at, levels.of_store(nest, store).0));
    score > 0
}

/// Maps a group of work-items to each row.
fn by_group(nest: &LoopNest, target: &Target, longest: u64) -> ThreadMapping {
    // A CPU's blocks can have any length: contiguous elements are then accessed with constant strides, without divisions.
    let last = nest.loops.iter().filter_map(|vars| vars.last()).map(|var| var.extent).max().unwrap_or(1);
    let along_last = matches!(target.style, Style::Cpu { .. }) && last >= SHORT_ROW;
    let lanes = lanes(target, if along_last { last } else { longest });
    let along = |vars: &Vec<LoopVar>| -> Vec<(LoopVar, AxisBinding)> {
        // A last variable much shorter than the group would leave most work-items idle.
        let flat = vars.last().is_some_and(|var| var.extent * 2 < lanes as u64);
        let last = vars.len() - 1;
        let kind = |at: usize| if flat || at == last { AxisBinding::Lane } else { AxisBinding::Sequential };
        vars.iter().enumerate().map(|(at, var)| (*var, kind(at))).collect()
    };
    ThreadMapping {
        outer: nest.outer.iter().map(|var| (*var, AxisBinding::Group)).collect(),
        loops: nest.loops.iter().map(along).collect(),
        lanes: Some(lanes),
        tile: None,
    }
}

/// Returns the group size for rows of a length, preferably a divisor of it.
fn lanes(target: &Target, length: u64) -> u32 {
    let limit = target.max_group_items.min(target.max_group[0]);
    match target.style {
        Style::Cpu { block } => {
            let most = (block.min(limit) as u64).min(length);
            (most.div_ceil(2)..=most).rev().find(|lanes| length.is_multiple_of(*lanes)).unwrap_or(most) as u32
        }
        Style::Gpu => {
            let most = MAX_GPU_GROUP_SIZE.min(limit);
            let fits = |lanes: &u32| length.is_multiple_of(*lanes as u64);
            let even = [most, most / 2, most / 4].into_iter().filter(|lanes| *lanes >= 32).find(fits);
            even.unwrap_or_else(|| most.min(length.next_power_of_two() as u32))
        }
    }
}

/// Maps a work-item to each row. The innermost variables get separate grid axes; those beyond the grid's three axes
/// share the last, and are computed from its index by division and remainder.
fn by_item(nest: &LoopNest, target: &Target) -> ThreadMapping {
    let mut order: Vec<usize> = (0..nest.outer.len()).rev().collect();
    let transpose = transpose_tile(nest, target);
    if let Some((across, _)) = transpose {
        order.retain(|at| *at != across);
        order.insert(1, across);
    }
    let axis = |at: usize| order.iter().position(|other| *other == at).map_or(2, |axis| axis.min(2));
    let sequential = |vars: &Vec<LoopVar>| vars.iter().map(|var| (*var, AxisBinding::Sequential)).collect();
    ThreadMapping {
        outer: nest.outer.iter().enumerate().map(|(at, var)| (*var, AxisBinding::Grid(axis(at) as u8))).collect(),
        loops: nest.loops.iter().map(sequential).collect(),
        lanes: None,
        tile: transpose.map(|(_, tile)| tile),
    }
}

/// Returns, for a transposing nest without loops, the outer variable along which most of the strided loads are
/// contiguous, and the tile for the transpose.
fn transpose_tile(nest: &LoopNest, target: &Target) -> Option<(usize, TransposeTile)> {
    let (last, others) = nest.outer.split_last().filter(|_| nest.loops.is_empty())?;
    let loads = nest.values.iter().enumerate().filter_map(|(id, (value, dtype))| match value {
        Value::Load(_, index) if nest.speculatable[id] && index.uses(*last) => Some((id, index, dtype.bytes() as u32)),
        _ => None,
    });
    let steps_by_one = |index: &AffineExpr, var: LoopVar| index.coefficient(var) == Some(1);
    let moved: Vec<(ValueId, &AffineExpr, u32)> = loads.filter(|(_, index, _)| !steps_by_one(index, *last)).collect();
    let along = |at: usize| moved.iter().filter(move |(_, index, _)| steps_by_one(index, others[at]));
    let best = (0..others.len()).max_by_key(|at| along(*at).count())?;
    let side = if target.max_group_items >= 1024 && target.max_group[0] >= 32 { 32 } else { 16 };
    let mut room = target.shared_bytes;
    let mut staged = Vec::new();
    for (id, _, bytes) in along(best) {
        if side * (side + 1) * bytes <= room {
            room -= side * (side + 1) * bytes;
            staged.push(*id);
        }
    }
    let fits = side * side <= target.max_group_items && side <= target.max_group[0] && side <= target.max_group[1];
    let large = last.extent >= 16 && others[best].extent >= 16;
    (fits && large && !staged.is_empty()).then_some((best, TransposeTile { side, staged }))
}

/// Returns the product of the variables' extents.
pub fn extent(vars: &[LoopVar]) -> u64 {
    vars.iter().map(|var| var.extent).product()
}
