//! Determines where in its loop nest each value is computed, as Halide's `compute_at`: once per row or in each iteration
//! of a loop, and after which loops.
//!
//! The loops of a row run one after the other. A value that depends on a reduction belongs to a later **phase** than the
//! loop that computes the reduction.

use crate::schedule::affine::{AffineExpr, AffineTerm};
use crate::schedule::loop_nest::{LoopNest, Store, Value, ValueId};

/// Loop level at which a value is computed or stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeLevel {
    /// Once per row.
    Row,
    /// Once per iteration of a loop, given by its index in [`LoopNest::loops`].
    Iteration(usize),
}

/// Levels, phases and use counts of a nest's values.
pub struct ComputeLevels {
    /// Loop level of each value.
    pub level: Vec<ComputeLevel>,
    /// Phase of each value: the length of the longest chain of reductions that it depends on. A reduction itself counts,
    /// because its result is available only after its loop.
    pub phase: Vec<usize>,
    /// Number of uses of each value.
    pub uses: Vec<usize>,
}

impl ComputeLevels {
    /// Computes levels and phases of all values. A loaded index can follow its user in the list, so dependencies are visited
    /// depth first.
    pub fn new(nest: &LoopNest) -> ComputeLevels {
        let count = nest.values.len();
        let mut levels =
            ComputeLevels { level: vec![ComputeLevel::Row; count], phase: vec![0; count], uses: vec![0; count] };
        let mut done = vec![false; count];
        for root in 0..count {
            let mut stack = vec![root];
            while let Some(id) = stack.last().copied() {
                let deps = dependencies(nest, id);
                let missing = deps.iter().find(|dep| !done[**dep]);
                match missing {
                    _ if done[id] => drop(stack.pop()),
                    Some(dep) => stack.push(*dep),
                    None => {
                        levels.assign(nest, id, &deps);
                        done[id] = true;
                        stack.pop();
                    }
                }
            }
        }
        nest.stores.iter().flat_map(|store| store_dependencies(nest, store)).for_each(|dep| levels.uses[dep] += 1);
        levels
    }

    /// Sets the level and phase of a value, given those of its dependencies.
    fn assign(&mut self, nest: &LoopNest, id: ValueId, deps: &[ValueId]) {
        deps.iter().for_each(|dep| self.uses[*dep] += 1);
        let after = deps.iter().map(|dep| self.phase[*dep]).max().unwrap_or(0);
        let inherited = deps.iter().map(|dep| self.level[*dep]).find(|level| *level != ComputeLevel::Row);
        let own = nest.values[id].0.index_expr().and_then(|index| iteration_of(nest, index));
        (self.level[id], self.phase[id]) = match nest.values[id].0 {
            Value::Reduce(..) => (ComputeLevel::Row, after + 1),
            Value::Scan(_, _, along) => (ComputeLevel::Iteration(along), after),
            _ => (own.or(inherited).unwrap_or(ComputeLevel::Row), after),
        };
    }

    /// Returns the level and phase of a store.
    pub fn of_store(&self, nest: &LoopNest, store: &Store) -> (ComputeLevel, usize) {
        let deps = store_dependencies(nest, store);
        let inherited = deps.iter().map(|dep| self.level[*dep]).find(|level| *level != ComputeLevel::Row);
        // An accumulation runs in every iteration of its loop, even if neither its index nor its value depends on the loop.
        let adds = store.accumulate.map(ComputeLevel::Iteration);
        let level = adds.or(iteration_of(nest, &store.at)).or(inherited).unwrap_or(ComputeLevel::Row);
        (level, deps.iter().map(|dep| self.phase[*dep]).max().unwrap_or(0))
    }
}

/// Returns the values that a store uses directly: its value and condition, and the indices it loads.
pub fn store_dependencies(nest: &LoopNest, store: &Store) -> Vec<ValueId> {
    let mut deps = loaded_indices(nest, &store.at);
    deps.push(store.value);
    deps.extend(store.condition);
    deps
}

/// Returns the values that another uses directly: its operands, and the indices it loads.
pub fn dependencies(nest: &LoopNest, id: ValueId) -> Vec<ValueId> {
    let value = &nest.values[id].0;
    let mut deps = value.operands().to_vec();
    deps.extend(value.index_expr().into_iter().flat_map(|index| loaded_indices(nest, index)));
    deps
}

/// Returns the values of the indices that an index expression loads from memory.
fn loaded_indices(nest: &LoopNest, index: &AffineExpr) -> Vec<ValueId> {
    let mut read = Vec::new();
    index.any_term(&mut |term| {
        if let AffineTerm::Read(number, _) = term {
            read.push(nest.reads[*number as usize]);
        }
        false
    });
    read
}

/// Returns the level of the first loop that an index depends on; `None` if it depends on no loop.
fn iteration_of(nest: &LoopNest, index: &AffineExpr) -> Option<ComputeLevel> {
    let used = |vars: &Vec<_>| vars.iter().any(|var| index.uses(*var));
    nest.loops.iter().position(used).map(ComputeLevel::Iteration)
}
