//! Determines the loop level and the phase at which each value of a nest is computed.

use crate::schedule::affine::{AffineExpr, AffineTerm};
use crate::schedule::loop_nest::{LoopNest, Store, Value, ValueId};

/// Loop level at which a value is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeLevel {
    /// Once per row.
    Row,
    /// Once per iteration of a loop.
    Iteration(usize),
}

/// Levels, phases and use counts of a nest's values.
pub struct ComputeLevels {
    /// Loop level of each value.
    pub place: Vec<ComputeLevel>,
    /// Number of consecutive loops that must have finished before each value can be computed.
    pub phase: Vec<usize>,
    /// Number of uses of each value.
    pub uses: Vec<usize>,
}

impl ComputeLevels {
    /// Computes levels and phases of all values. Operands and loaded indices can be at any position in the list.
    pub fn new(nest: &LoopNest) -> ComputeLevels {
        let count = nest.values.len();
        let mut levels =
            ComputeLevels { place: vec![ComputeLevel::Row; count], phase: vec![0; count], uses: vec![0; count] };
        let mut done = vec![false; count];
        for start in 0..count {
            let mut open = vec![start];
            while let Some(id) = open.last().copied() {
                let needs = needs(nest, id);
                let missing = needs.iter().find(|need| !done[**need]);
                match missing {
                    _ if done[id] => drop(open.pop()),
                    Some(need) => open.push(*need),
                    None => {
                        levels.settle(nest, id, &needs);
                        done[id] = true;
                        open.pop();
                    }
                }
            }
        }
        nest.stores.iter().flat_map(|store| store_needs(nest, store)).for_each(|need| levels.uses[need] += 1);
        levels
    }

    fn settle(&mut self, nest: &LoopNest, id: ValueId, needs: &[ValueId]) {
        needs.iter().for_each(|need| self.uses[*need] += 1);
        let after = needs.iter().map(|need| self.phase[*need]).max().unwrap_or(0);
        let inherited = needs.iter().map(|need| self.place[*need]).find(|place| *place != ComputeLevel::Row);
        let own = nest.values[id].0.form().and_then(|form| iteration_of(nest, form));
        (self.place[id], self.phase[id]) = match nest.values[id].0 {
            Value::Reduce(..) => (ComputeLevel::Row, after + 1),
            Value::Scan(_, _, along) => (ComputeLevel::Iteration(along), after),
            _ => (own.or(inherited).unwrap_or(ComputeLevel::Row), after),
        };
    }

    /// Returns the level of a store, and the number of loops that must have finished before it.
    pub fn of_store(&self, nest: &LoopNest, store: &Store) -> (ComputeLevel, usize) {
        let needs = store_needs(nest, store);
        let inherited = needs.iter().map(|need| self.place[*need]).find(|place| *place != ComputeLevel::Row);
        // An accumulation runs in every iteration of its loop, independent of its position and value.
        let adds = store.accumulate.map(ComputeLevel::Iteration);
        let place = adds.or(iteration_of(nest, &store.at)).or(inherited).unwrap_or(ComputeLevel::Row);
        (place, needs.iter().map(|need| self.phase[*need]).max().unwrap_or(0))
    }
}

/// Returns all values that must be computed before a store.
pub fn store_needs(nest: &LoopNest, store: &Store) -> Vec<ValueId> {
    let mut needs = read_by(nest, &store.at);
    needs.push(store.value);
    needs.extend(store.condition);
    needs
}

/// Returns all values that must be computed before another.
pub fn needs(nest: &LoopNest, id: ValueId) -> Vec<ValueId> {
    let value = &nest.values[id].0;
    let mut needs = value.operands().to_vec();
    needs.extend(value.form().into_iter().flat_map(|form| read_by(nest, form)));
    needs
}

/// Returns the values of the indices that an expression loads.
fn read_by(nest: &LoopNest, form: &AffineExpr) -> Vec<ValueId> {
    let mut read = Vec::new();
    form.any_atom(&mut |atom| {
        if let AffineTerm::Read(number, _) = atom {
            read.push(nest.reads[*number as usize]);
        }
        false
    });
    read
}

fn iteration_of(nest: &LoopNest, form: &AffineExpr) -> Option<ComputeLevel> {
    let used = |vars: &Vec<_>| vars.iter().any(|var| form.uses(*var));
    nest.loops.iter().position(used).map(ComputeLevel::Iteration)
}
