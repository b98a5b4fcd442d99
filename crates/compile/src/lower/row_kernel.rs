//! Row kernels: the lowering of nests that are neither tiled matrix products nor transposes.
//!
//! The kernel's body computes one row of the nest, by one work-item or by a work-group whose work-items (lanes) share the
//! iterations of its loops ([`ThreadMapping`]). Loops follow one another in the order of their phases ([`ComputeLevels`]).
//! Loop-invariant values are computed before a loop, and its reductions are available to the row after it.

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

/// Emits the kernel of a nest, with the work-items assigned by `mapping`.
///
/// # Errors
///
/// Returns an error if the kernel cannot be built.
pub fn emit(graph: &Graph, nest: &LoopNest, levels: &ComputeLevels, mapping: &ThreadMapping) -> Result<EmittedKernel> {
    let (mut emitter, arguments) = ScalarEmitter::new(graph, nest, levels);
    emitter.lanes = mapping.lanes;
    let mut rows = RowEmitter { e: emitter, nest, mapping, open: 0, unrolled: BTreeMap::new() };
    let grid = rows.begin();
    let last = levels.phase.iter().copied().max().unwrap_or(0);
    (0..=last).for_each(|phase| rows.phase(phase));
    rows.end();
    Ok(EmittedKernel { kernel: rows.e.b.finish()?, grid, arguments })
}

/// State of the emission of a row kernel.
pub(super) struct RowEmitter<'a> {
    /// Emits the values; `e.b` is the builder of the kernel.
    pub e: ScalarEmitter<'a>,
    pub nest: &'a LoopNest,
    pub mapping: &'a ThreadMapping,
    /// Number of blocks that enclose the entire body and are closed at its end.
    pub open: usize,
    /// For unrolled loops, by their index: the expressions of the values of each iteration, reused by the same loop in later
    /// phases.
    unrolled: BTreeMap<usize, Vec<Vec<Option<ExprId>>>>,
}

/// Maximum iterations of a loop that is unrolled if several phases run it: values then stay in registers between the
/// phases.
pub(super) const MAX_UNROLLED_ITERATIONS: u64 = 8;
/// Maximum number of values of all iterations of such a loop, which registers must hold.
const MAX_UNROLLED_VALUES: u64 = 512;

impl<'a> RowEmitter<'a> {
    /// Emits the values of the outer variables from the work-item's position, and returns the grid.
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
            let level = ComputeLevel::Iteration(number);
            let reduced: Vec<ValueId> = (0..self.nest.values.len())
                .filter(|id| matches!(self.nest.values[*id].0, Value::Reduce(_, _, along) if along == number))
                .filter(|id| self.e.levels.phase[*id] == phase + 1)
                .collect();
            let stores: Vec<&Store> = self.stores(phase, level);
            if !reduced.is_empty() || !stores.is_empty() {
                sums.extend(self.inner_loop(number, &reduced, &stores));
            }
        }
        // Accumulators are combined across lanes only after all loops of the phase, so that the collectives are adjacent and
        // need only one synchronization. No result is used before the next phase.
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
        // Later phases can use these values too, so they are computed outside the branch of the first work-item.
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

    /// Emits several rows, one for each value of a sequential outer variable: first the values of all rows, then all stores, so
    /// that the loads of all rows are in flight together.
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

    /// Returns the stores of a phase and level.
    fn stores(&self, phase: usize, level: ComputeLevel) -> Vec<&'a Store> {
        let (nest, levels) = (self.nest, self.e.levels);
        nest.stores.iter().filter(|store| levels.of_store(nest, store) == (level, phase)).collect()
    }

    /// Emits a loop that computes reductions and stores. Returns each work-item's accumulators of the reductions.
    fn inner_loop(
        &mut self,
        number: usize,
        reduced: &[ValueId],
        stores: &[&Store],
    ) -> Vec<(ValueId, ReduceOp, LocalId)> {
        let inputs = reduced.iter().map(|id| self.nest.values[*id].0.operands()[0]);
        let roots: Vec<ValueId> =
            inputs.chain(stores.iter().flat_map(|store| compute_at::store_dependencies(self.nest, store))).collect();
        self.e.before_loop(&roots);
        let sums: Vec<(ReduceOp, LocalId)> = reduced.iter().map(|id| self.e.declare_accumulator(*id, "sum")).collect();
        self.iterations(number, &mut |e| {
            for ((op, sum), id) in sums.iter().zip(reduced) {
                let next = e.value(e.nest.values[*id].0.operands()[0]);
                e.accumulate(*sum, *op, next);
            }
            stores.iter().for_each(|store| e.store(store));
        });
        self.e.iteration.fill(None);
        self.e.scans.clear();
        sums.into_iter().zip(reduced).map(|((op, sum), id)| (*id, op, sum)).collect()
    }

    /// Emits all iterations of a loop, unrolled or as loops over its variables. `iteration` emits the body.
    fn iterations(&mut self, number: usize, iteration: &mut dyn FnMut(&mut ScalarEmitter<'a>)) {
        let Some(iterations) = self.unrolled_iterations(number) else { return self.loop_vars(number, 0, iteration) };
        let (var, kind) = self.mapping.loops[number][0];
        let nothing = vec![None; self.nest.values.len()];
        let mut unrolled = self.unrolled.remove(&number).unwrap_or_else(|| vec![nothing.clone(); iterations as usize]);
        for (round, values) in unrolled.iter_mut().enumerate() {
            let first = self.e.b.index(round as u64 * self.mapping.lanes.map_or(1, u64::from));
            let at = match kind {
                AxisBinding::Lane => {
                    let lane = self.e.b.builtin(Builtin::LocalId(0));
                    self.e.b.alu(Alu::Add, &[first, lane])
                }
                AxisBinding::Sequential | AxisBinding::Group | AxisBinding::Grid(_) => first,
            };
            self.e.vars.insert(var.id, at);
            std::mem::swap(&mut self.e.iteration, values);
            iteration(&mut self.e);
            std::mem::swap(&mut self.e.iteration, values);
        }
        self.unrolled.insert(number, unrolled);
    }

    /// Returns the number of iterations of each work-item if the loop is to be unrolled: if it is short and runs more than once.
    fn unrolled_iterations(&self, number: usize) -> Option<u64> {
        let [(var, kind)] = self.mapping.loops[number][..] else { return None };
        let step = if kind == AxisBinding::Lane { self.mapping.lanes.map_or(1, u64::from) } else { 1 };
        let iterations = var.extent / step;
        let reduces = |value: &Value| matches!(value, Value::Reduce(_, _, along) if *along == number);
        let values = &self.nest.values;
        let passes = values.iter().filter(|(value, _)| reduces(value)).count()
            + self
                .nest
                .stores
                .iter()
                .filter(|store| self.e.levels.of_store(self.nest, store).0 == ComputeLevel::Iteration(number))
                .count();
        let scans = values.iter().any(|(value, _)| matches!(value, Value::Scan(..)));
        let fits = iterations <= MAX_UNROLLED_ITERATIONS
            && var.extent.is_multiple_of(step)
            && iterations * values.len() as u64 <= MAX_UNROLLED_VALUES;
        (fits && passes > 1 && !scans).then_some(iterations)
    }

    /// Emits the loops over a loop's variables from index `from` on, with the iteration's body inside.
    fn loop_vars(&mut self, number: usize, from: usize, iteration: &mut dyn FnMut(&mut ScalarEmitter<'a>)) {
        let vars = &self.mapping.loops[number][from..];
        match vars.first() {
            None => self.iteration(iteration),
            Some((var, AxisBinding::Sequential)) => {
                let (start, end, step) = (self.e.b.index(0), self.e.b.index(var.extent), self.e.b.index(1));
                let counter = self.e.b.begin_for("t", start, end, step);
                self.e.vars.insert(var.id, counter);
                self.loop_vars(number, from + 1, iteration);
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

    /// Distributes the iterations over a group's work-items: rounds in which all take part, then a round of some.
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
