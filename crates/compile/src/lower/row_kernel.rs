//! Row kernels, the lowering of most nests.
//!
//! The kernel's body computes one row. Loops follow one another in the order of their phases. Loop-invariant values are
//! computed before a loop, and its reductions are available to the row after it.

use std::collections::BTreeMap;

use panoply_ir::Result;
use panoply_ir::alu::Alu;
use panoply_ir::graph::Graph;
use panoply_ir::kernel::{Builtin, CollectiveOp, ExprId, Kernel, LocalId, Scope};
use panoply_ir::reduce::ReduceOp;

use super::compute_at::{self, ComputeLevel, ComputeLevels};
use super::emit_scalar::{Argument, ScalarEmitter};
use super::thread_mapping::{AxisBinding, ThreadMapping};
use crate::schedule::affine::LoopVar;
use crate::schedule::loop_nest::{LoopNest, Store, Value, ValueId};

/// A kernel with its grid and arguments.
pub struct EmittedKernel {
    /// The kernel.
    pub kernel: Kernel,
    /// Work-items along each axis.
    pub grid: [u64; 3],
    /// Arguments, in the order of the parameters.
    pub arguments: Vec<Argument>,
}

/// Emits the kernel of a nest.
///
/// # Errors
///
/// Returns an error if the kernel cannot be built.
pub fn emit(graph: &Graph, nest: &LoopNest, levels: &ComputeLevels, mapping: &ThreadMapping) -> Result<EmittedKernel> {
    let (mut emitter, arguments) = ScalarEmitter::new(graph, nest, levels);
    emitter.lanes = mapping.lanes;
    let mut rows = RowEmitter { e: emitter, nest, mapping, open: 0, kept: BTreeMap::new() };
    let grid = rows.begin();
    let last = levels.phase.iter().copied().max().unwrap_or(0);
    (0..=last).for_each(|phase| rows.phase(phase));
    rows.end();
    Ok(EmittedKernel { kernel: rows.e.b.finish()?, grid, arguments })
}

pub(super) struct RowEmitter<'a> {
    pub e: ScalarEmitter<'a>,
    pub nest: &'a LoopNest,
    pub mapping: &'a ThreadMapping,
    /// Number of open blocks that enclose the entire body.
    pub open: usize,
    /// For unrolled loops, the values of each iteration, reused by the same loop in later phases.
    kept: BTreeMap<usize, Vec<Vec<Option<ExprId>>>>,
}

/// Maximum iterations of a loop that is unrolled if several phases run it: values then stay in registers between the
/// phases.
pub(super) const FEW_ITERATIONS: u64 = 8;
/// Maximum number of values kept this way.
const MAX_KEPT: u64 = 512;

impl<'a> RowEmitter<'a> {
    /// Assigns the outer variables, and returns the grid.
    fn begin(&mut self) -> [u64; 3] {
        let on = |kind: AxisBinding| -> Vec<LoopVar> {
            self.mapping.outer.iter().filter(|(_, other)| *other == kind).map(|(var, _)| *var).collect()
        };
        let mut grid = [1; 3];
        if let Some(lanes) = self.mapping.lanes {
            self.e.b.group_size([lanes, 1, 1]);
            let rows = on(AxisBinding::Group);
            grid[0] = rows.iter().map(|var| var.extent).product::<u64>() * lanes as u64;
            let group = self.e.b.builtin(Builtin::GroupId(0));
            self.e.delinearize(group, &rows);
            return grid;
        }
        for axis in 0..3 {
            let vars = on(AxisBinding::Grid(axis));
            grid[axis as usize] = vars.iter().map(|var| var.extent).product();
            let id = self.e.b.builtin(Builtin::GlobalId(axis));
            self.e.delinearize(id, &vars);
        }
        if let Some(tile) = &self.mapping.tile {
            self.stage(tile, grid);
        }
        grid
    }

    fn end(&mut self) {
        (0..self.open).for_each(|_| self.e.b.end());
    }

    /// Emits everything that can be computed once the loops of earlier phases have finished.
    fn phase(&mut self, phase: usize) {
        let mut sums = Vec::new();
        for number in 0..self.nest.loops.len() {
            let place = ComputeLevel::Iteration(number);
            let reduced: Vec<ValueId> = (0..self.nest.values.len())
                .filter(|id| matches!(self.nest.values[*id].0, Value::Reduce(_, _, along) if along == number))
                .filter(|id| self.e.levels.phase[*id] == phase + 1)
                .collect();
            let stores: Vec<&Store> = self.stores(phase, place);
            if !reduced.is_empty() || !stores.is_empty() {
                sums.extend(self.inner_loop(number, &reduced, &stores));
            }
        }
        // The sums are not used before the next phase. Combined together, they need only one synchronization.
        for (id, op, sum) in sums {
            let sum = self.e.b.get(sum);
            self.e.row[id] = Some(match self.mapping.lanes {
                Some(_) => self.e.b.collective(CollectiveOp::Reduce(op), Scope::Group, sum),
                None => sum,
            });
        }
        let stores = self.stores(phase, ComputeLevel::Row);
        if stores.is_empty() {
            return;
        }
        if let Some((var, AxisBinding::Sequential)) = self.mapping.outer.first() {
            return self.interleave(*var, &stores);
        }
        // Later phases can use these values too, so they are computed where all work-items see them.
        for store in &stores {
            self.e.value(store.value);
            store.condition.iter().for_each(|condition| _ = self.e.value(*condition));
        }
        if self.mapping.lanes.is_some() {
            let (lane, zero) = (self.e.b.builtin(Builtin::LocalId(0)), self.e.b.index(0));
            let first = self.e.b.alu(Alu::Eq, &[lane, zero]);
            self.e.b.begin_if(first);
        }
        stores.iter().for_each(|store| self.e.store(store));
        if self.mapping.lanes.is_some() {
            self.e.b.end();
        }
    }

    /// Computes the values for each value of an outer variable before it stores any, so that their loads are in flight together.
    fn interleave(&mut self, var: LoopVar, stores: &[&Store]) {
        let rounds: Vec<(ExprId, Vec<Option<ExprId>>)> = (0..var.extent)
            .map(|round| {
                let at = self.e.b.index(round);
                self.e.vars.insert(var.id, at);
                self.e.clear();
                for store in stores {
                    let value = self.e.value(store.value);
                    self.e.row[store.value] = Some(self.e.b.bind("v", value));
                }
                (at, self.e.row.clone())
            })
            .collect();
        for (at, row) in rounds {
            self.e.vars.insert(var.id, at);
            self.e.row = row;
            stores.iter().for_each(|store| self.e.store(store));
        }
    }

    fn stores(&self, phase: usize, place: ComputeLevel) -> Vec<&'a Store> {
        let (nest, levels) = (self.nest, self.e.levels);
        nest.stores.iter().filter(|store| levels.of_store(nest, store) == (place, phase)).collect()
    }

    /// Emits a loop, and returns each work-item's accumulators.
    fn inner_loop(
        &mut self,
        number: usize,
        reduced: &[ValueId],
        stores: &[&Store],
    ) -> Vec<(ValueId, ReduceOp, LocalId)> {
        let inputs = reduced.iter().map(|id| self.nest.values[*id].0.operands()[0]);
        let roots: Vec<ValueId> =
            inputs.chain(stores.iter().flat_map(|store| compute_at::store_needs(self.nest, store))).collect();
        self.e.before_loop(&roots);
        let sums: Vec<(ReduceOp, LocalId)> = reduced.iter().map(|id| self.e.start_running(*id, "sum")).collect();
        self.walk(number, &mut |e| {
            for ((op, sum), id) in sums.iter().zip(reduced) {
                let next = e.value(e.nest.values[*id].0.operands()[0]);
                e.accumulate(*sum, *op, next);
            }
            stores.iter().for_each(|store| e.store(store));
        });
        self.e.iteration.fill(None);
        self.e.running.clear();
        sums.into_iter().zip(reduced).map(|((op, sum), id)| (*id, op, sum)).collect()
    }

    /// Emits all iterations of a loop.
    fn walk(&mut self, number: usize, iteration: &mut dyn FnMut(&mut ScalarEmitter<'a>)) {
        let Some(iterations) = self.few_iterations(number) else { return self.walk_from(number, 0, iteration) };
        let (var, kind) = self.mapping.loops[number][0];
        let nothing = vec![None; self.nest.values.len()];
        let mut kept = self.kept.remove(&number).unwrap_or_else(|| vec![nothing.clone(); iterations as usize]);
        for (round, kept) in kept.iter_mut().enumerate() {
            let first = self.e.b.index(round as u64 * self.mapping.lanes.map_or(1, u64::from));
            let at = match kind {
                AxisBinding::Lane => {
                    let lane = self.e.b.builtin(Builtin::LocalId(0));
                    self.e.b.alu(Alu::Add, &[first, lane])
                }
                AxisBinding::Sequential | AxisBinding::Group | AxisBinding::Grid(_) => first,
            };
            self.e.vars.insert(var.id, at);
            std::mem::swap(&mut self.e.iteration, kept);
            iteration(&mut self.e);
            std::mem::swap(&mut self.e.iteration, kept);
        }
        self.kept.insert(number, kept);
    }

    /// Returns the number of iterations if the loop is to be unrolled.
    fn few_iterations(&self, number: usize) -> Option<u64> {
        let [(var, kind)] = self.mapping.loops[number][..] else { return None };
        let step = if kind == AxisBinding::Lane { self.mapping.lanes.map_or(1, u64::from) } else { 1 };
        let iterations = var.extent / step;
        let combines = |value: &Value| matches!(value, Value::Reduce(_, _, along) if *along == number);
        let values = &self.nest.values;
        let passes = values.iter().filter(|(value, _)| combines(value)).count()
            + self
                .nest
                .stores
                .iter()
                .filter(|store| self.e.levels.of_store(self.nest, store).0 == ComputeLevel::Iteration(number))
                .count();
        let scans = values.iter().any(|(value, _)| matches!(value, Value::Scan(..)));
        let fits = iterations <= FEW_ITERATIONS
            && var.extent.is_multiple_of(step)
            && iterations * values.len() as u64 <= MAX_KEPT;
        (fits && passes > 1 && !scans).then_some(iterations)
    }

    /// Emits the loops over the variables from index `from` on, with the iteration's body inside.
    fn walk_from(&mut self, number: usize, from: usize, iteration: &mut dyn FnMut(&mut ScalarEmitter<'a>)) {
        let vars = &self.mapping.loops[number][from..];
        match vars.first() {
            None => self.iteration(iteration),
            Some((var, AxisBinding::Sequential)) => {
                let (start, end, step) = (self.e.b.index(0), self.e.b.index(var.extent), self.e.b.index(1));
                let counter = self.e.b.begin_for("t", start, end, step);
                self.e.vars.insert(var.id, counter);
                self.walk_from(number, from + 1, iteration);
                self.e.b.end();
            }
            Some(_) => {
                let vars: Vec<LoopVar> = vars.iter().map(|(var, _)| *var).collect();
                self.across_lanes(&vars, iteration);
            }
        }
    }

    fn iteration(&mut self, iteration: &mut dyn FnMut(&mut ScalarEmitter<'a>)) {
        self.e.iteration.fill(None);
        iteration(&mut self.e);
    }

    /// Distributes the iterations over a group's work-items: full rounds of all, then a partial round.
    fn across_lanes(&mut self, vars: &[LoopVar], iteration: &mut dyn FnMut(&mut ScalarEmitter<'a>)) {
        let lanes = self.mapping.lanes.expect("a lane binding implies a group") as u64;
        let count: u64 = vars.iter().map(|var| var.extent).product();
        let full = count / lanes * lanes;
        let lane = self.e.b.builtin(Builtin::LocalId(0));
        if full == lanes {
            self.e.delinearize(lane, vars);
            self.iteration(iteration);
        } else if full > 0 {
            let (start, end, step) = (self.e.b.index(0), self.e.b.index(full), self.e.b.index(lanes));
            let round = self.e.b.begin_for("t", start, end, step);
            let at = self.e.b.alu(Alu::Add, &[round, lane]);
            self.e.delinearize(at, vars);
            self.iteration(iteration);
            self.e.b.end();
        }
        if full < count {
            let left = self.e.b.index(count - full);
            let some = self.e.b.alu(Alu::Lt, &[lane, left]);
            self.e.b.begin_if(some);
            let start = self.e.b.index(full);
            let at = self.e.b.alu(Alu::Add, &[start, lane]);
            self.e.delinearize(at, vars);
            self.iteration(iteration);
            self.e.b.end();
        }
    }
}
