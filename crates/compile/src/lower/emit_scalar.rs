//! Emits the values of a nest as kernel IR.
//!
//! A [`ScalarEmitter`] records the kernel expression of each value, for the entire row or only for the current iteration
//! ([`ComputeLevel`]). A value is emitted on first use, after its operands. A value with several uses, or shared by the
//! iterations of a loop, becomes a local. A value that could read out of bounds is not speculatable: it remains an
//! expression inside the `select` that checks the bounds.
//!
//! Loads that are always within their buffer need no guard ([`Guard::Proven`]): a plan binds each buffer with exactly its node's
//! elements and launches exactly the mapped grid.

use std::collections::{BTreeMap, BTreeSet};

use panoply_ir::alu::Alu;
use panoply_ir::builder::Builder;
use panoply_ir::graph::{Graph, NodeId};
use panoply_ir::kernel::{Access, Builtin, CollectiveOp, ExprId, Guard, LocalId, MemId, Scope};
use panoply_ir::reduce::ReduceOp;
use panoply_ir::{DType, Type};

use super::compute_at::{self, ComputeLevel, ComputeLevels};
use crate::schedule::affine::{AffineExpr, AffineTerm, LoopVar};
use crate::schedule::index_map::{self, BoundsCheck};
use crate::schedule::loop_nest::{LoopNest, Store, Value, ValueId};

/// Argument that a plan passes for a kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Argument {
    /// The buffer of a node.
    Node(NodeId),
    /// A scalar slot, passed at launch.
    ScalarInput(u32),
}

/// Emits one kernel, and records the expressions of the nest's values in it.
pub struct ScalarEmitter<'a> {
    /// Graph with the nest's nodes.
    pub graph: &'a Graph,
    /// Nest that is emitted.
    pub nest: &'a LoopNest,
    /// Loop levels and phases of its values.
    pub levels: &'a ComputeLevels,
    /// Builder of the kernel.
    pub b: Builder,
    /// Expression of each loop variable that is currently in scope, by its id.
    pub vars: BTreeMap<u32, ExprId>,
    /// Expressions of values of level [`ComputeLevel::Row`], valid for the rest of the row.
    pub row: Vec<Option<ExprId>>,
    /// Expressions of values of level [`ComputeLevel::Iteration`], valid in the current iteration.
    pub iteration: Vec<Option<ExprId>>,
    /// Accumulators of the current loop's scans.
    pub scans: BTreeMap<ValueId, LocalId>,
    /// Work-items of the group that shares the row; `None` if each work-item has its own row.
    pub lanes: Option<u32>,
    /// True while variables can exceed their extents, as in the last tile of a tiled loop: loads are then guarded and stay
    /// inside the `select` that checks the variables.
    pub vars_can_exceed: bool,
    mems: BTreeMap<NodeId, MemId>,
    slots: BTreeMap<u32, ExprId>,
}

impl<'a> ScalarEmitter<'a> {
    /// Creates a kernel with parameters but without statements. Returns its arguments in the order of the parameters: loaded nodes, stored
    /// nodes, scalars.
    pub fn new(graph: &'a Graph, nest: &'a LoopNest, levels: &'a ComputeLevels) -> (ScalarEmitter<'a>, Vec<Argument>) {
        let count = nest.values.len();
        let mut emitter = ScalarEmitter {
            graph,
            nest,
            levels,
            b: Builder::new(name(nest)),
            vars: BTreeMap::new(),
            row: vec![None; count],
            iteration: vec![None; count],
            scans: BTreeMap::new(),
            lanes: None,
            vars_can_exceed: false,
            mems: BTreeMap::new(),
            slots: BTreeMap::new(),
        };
        let arguments = emitter.parameters();
        (emitter, arguments)
    }

    fn parameters(&mut self) -> Vec<Argument> {
        let (mut loads, mut slots) = (BTreeSet::new(), BTreeSet::new());
        for (value, _) in &self.nest.values {
            match value {
                Value::Load(node, _) => drop(loads.insert(*node)),
                Value::ScalarInput(n) => drop(slots.insert(*n)),
                _ => {}
            }
        }
        let stores: BTreeSet<NodeId> = self.nest.stores.iter().map(|store| store.node).collect();
        let updates = |store: &&Store| {
            store.accumulate.is_some() || self.nest.updates_in_place.is_some_and(|(_, node)| node == store.node)
        };
        let read_and_written = self.nest.stores.iter().filter(updates).map(|store| store.node);
        let read_and_written: Vec<NodeId> =
            read_and_written.chain(self.nest.aliases.iter().map(|(_, after)| *after)).collect();
        self.nest.aliases.iter().for_each(|(before, _)| _ = loads.remove(before));
        let mut arguments = Vec::new();
        for (kind, nodes) in [("x", loads), ("y", stores)] {
            for (number, node) in nodes.into_iter().enumerate() {
                let access = match kind {
                    "x" => Access::In,
                    _ if read_and_written.contains(&node) => Access::InOut,
                    _ => Access::Out,
                };
                let mem = self.b.buffer(&format!("{kind}{number}"), self.graph.node(node).dtype, access);
                self.mems.insert(node, mem);
                let aliases = self.nest.aliases.iter().filter(|(_, after)| *after == node);
                self.mems.extend(aliases.map(|(before, _)| (*before, mem)));
                arguments.push(Argument::Node(node));
            }
        }
        for (number, slot) in slots.into_iter().enumerate() {
            let of_slot = |(value, _): &&(Value, DType)| *value == Value::ScalarInput(slot);
            let dtype = self.nest.values.iter().find(of_slot).expect("every slot is a value of the nest").1;
            let value = self.b.scalar(&format!("s{number}"), dtype);
            self.slots.insert(slot, value);
            arguments.push(Argument::ScalarInput(slot));
        }
        arguments
    }

    /// Emits the values of variables from a row-major linear index over their combinations.
    pub fn delinearize(&mut self, number: ExprId, vars: &[LoopVar]) {
        let mut rest = number;
        for (at, var) in vars.iter().enumerate().rev() {
            let extent = self.b.index(var.extent);
            let value = if at == 0 { rest } else { self.b.alu(Alu::Rem, &[rest, extent]) };
            let value = if vars.len() == 1 { value } else { self.b.bind("i", value) };
            self.vars.insert(var.id, value);
            rest = self.b.alu(Alu::Div, &[rest, extent]);
        }
    }

    /// Emits what precedes a loop that computes the values `roots`: the loop-invariant values that they need, and the
    /// accumulators of scans.
    pub fn before_loop(&mut self, roots: &[ValueId]) {
        let mut seen = BTreeSet::new();
        let mut stack = roots.to_vec();
        while let Some(id) = stack.pop() {
            if !seen.insert(id) {
                continue;
            }
            if self.levels.level[id] == ComputeLevel::Row {
                self.value(id);
                continue;
            }
            if let Value::Scan(..) = self.nest.values[id].0 {
                let (_, accumulator) = self.declare_accumulator(id, "running");
                self.scans.insert(id, accumulator);
            }
            stack.extend(compute_at::dependencies(self.nest, id));
        }
    }

    /// Declares the accumulator of a reduction or scan, initialized with the identity of the operation.
    pub fn declare_accumulator(&mut self, id: ValueId, name: &str) -> (ReduceOp, LocalId) {
        let (value, dtype) = &self.nest.values[id];
        let (Value::Reduce(op, ..) | Value::Scan(op, ..)) = value else {
            unreachable!("the value is a reduction or scan")
        };
        let identity = self.b.constant(op.identity(*dtype));
        (*op, self.b.declare(name, identity, true))
    }

    /// Combines an accumulator with the next value.
    pub fn accumulate(&mut self, accumulator: LocalId, op: ReduceOp, next: ExprId) {
        let before = self.b.get(accumulator);
        let after = self.b.alu(op.alu(), &[before, next]);
        self.b.assign(accumulator, after);
    }

    /// Emits one step of a scan whose iterations are distributed over a work-group, one per work-item in lane order. Returns the work-item's
    /// element of the inclusive scan, and assigns that of the last work-item to the accumulator.
    fn scan_across_lanes(&mut self, accumulator: LocalId, op: ReduceOp, next: ExprId, lanes: u32) -> ExprId {
        let (before, lane, zero) = (self.b.get(accumulator), self.b.builtin(Builtin::LocalId(0)), self.b.index(0));
        let first = self.b.alu(Alu::Eq, &[lane, zero]);
        let joined = self.b.alu(op.alu(), &[before, next]);
        let from = self.b.alu(Alu::Select, &[first, joined, next]);
        let scanned = self.b.collective(CollectiveOp::InclusiveScan(op), Scope::Group, from);
        let last = self.b.collective(CollectiveOp::Broadcast(lanes - 1), Scope::Group, scanned);
        self.b.assign(accumulator, last);
        scanned
    }

    /// Forgets the expressions of all values, before another row is emitted.
    pub fn clear(&mut self) {
        self.row.fill(None);
        self.iteration.fill(None);
    }

    /// Emits a store.
    pub fn store(&mut self, store: &Store) {
        let (mut value, mem) = (self.value(store.value), self.mems[&store.node]);
        let condition = store.condition.map(|condition| self.value(condition));
        if let Some(condition) = condition {
            self.b.begin_if(condition);
        }
        let at = self.index_expr(&store.at);
        // The condition proves that the index is in bounds. A loaded index still needs a guard: memory could have changed
        // since the comparison.
        let checked = condition.is_some() && !store.at.reads();
        let proven = checked || index_map::stays_below(&store.at, self.numel(store.node));
        let guard = if proven { Guard::Proven } else { Guard::Checked };
        if store.accumulate.is_some() {
            let before = self.b.load(mem, at, guard);
            value = self.b.alu(Alu::Add, &[before, value]);
        }
        self.b.store(mem, at, value, guard);
        if condition.is_some() {
            self.b.end();
        }
    }

    /// Returns the expression of a value; emits it and its dependencies if they have none yet.
    pub fn value(&mut self, id: ValueId) -> ExprId {
        let mut stack = vec![id];
        while let Some(next) = stack.last().copied() {
            let missing = compute_at::dependencies(self.nest, next).into_iter().find(|dep| self.cached(*dep).is_none());
            match missing {
                _ if self.cached(next).is_some() => drop(stack.pop()),
                Some(dep) => stack.push(dep),
                None => {
                    let expr = self.compute(next);
                    match self.levels.level[next] {
                        ComputeLevel::Row => self.row[next] = Some(expr),
                        ComputeLevel::Iteration(_) => self.iteration[next] = Some(expr),
                    }
                }
            }
        }
        self.cached(id).expect("the value was just computed")
    }

    fn cached(&self, id: ValueId) -> Option<ExprId> {
        match self.levels.level[id] {
            ComputeLevel::Row => self.row[id],
            ComputeLevel::Iteration(_) => self.iteration[id],
        }
    }

    fn compute(&mut self, id: ValueId) -> ExprId {
        let (value, dtype) = &self.nest.values[id];
        let operand = |at: usize| self.cached(value.operands()[at]).expect("operands are computed first");
        let expr = match value {
            Value::Const(scalar) => return self.b.constant(*scalar),
            Value::ScalarInput(n) => return self.slots[n],
            Value::Load(node, index) => {
                let at = self.index_expr(index);
                let guard = if self.vars_can_exceed { Guard::Checked } else { guard(index, self.numel(*node)) };
                self.b.load(self.mems[node], at, guard)
            }
            Value::Index(index) => {
                let at = self.index_expr(index);
                self.b.cast(Type::Scalar(DType::I32), at)
            }
            Value::InBounds(bound) => self.bounds_check(bound),
            Value::Alu(alu, operands) => {
                let operands: Vec<ExprId> = (0..operands.len()).map(operand).collect();
                self.b.alu(*alu, &operands)
            }
            Value::Cast(_) => {
                let from = operand(0);
                self.b.cast(*dtype, from)
            }
            Value::Bitcast(_) => {
                let from = operand(0);
                self.b.bitcast(*dtype, from)
            }
            Value::Scan(op, ..) => {
                let (accumulator, next) = (self.scans[&id], operand(0));
                if let Some(lanes) = self.lanes {
                    return self.scan_across_lanes(accumulator, *op, next, lanes);
                }
                self.accumulate(accumulator, *op, next);
                return self.b.get(accumulator);
            }
            Value::Reduce(..) => unreachable!("the reduction's loop has ended"),
        };
        let outside_loops = self.levels.level[id] == ComputeLevel::Row && !self.nest.loops.is_empty();
        let bind = self.nest.speculatable[id] && !self.vars_can_exceed && (self.levels.uses[id] > 1 || outside_loops);
        if bind { self.b.bind("v", expr) } else { expr }
    }

    /// Emits a bounds check without subtractions, which could wrap: `0 <= a - s < extent` becomes `s <= a` and
    /// `a < s + extent`. A comparison that the ranges of the variables imply is omitted.
    fn bounds_check(&mut self, bound: &BoundsCheck) -> ExprId {
        let (added, subtracted) = self.split_signs(&bound.index);
        let (low, high) = bound.index.guaranteed_range().unwrap_or((i64::MIN, i64::MAX));
        let extent = self.b.index(bound.extent);
        let end = subtracted.map_or(extent, |subtracted| self.b.alu(Alu::Add, &[subtracted, extent]));
        let above = subtracted.filter(|_| low < 0).map(|subtracted| self.b.alu(Alu::Le, &[subtracted, added]));
        let below = (high >= bound.extent as i64).then(|| self.b.alu(Alu::Lt, &[added, end]));
        match (above, below) {
            (Some(above), Some(below)) => self.b.alu(Alu::And, &[above, below]),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => self.b.constant(true),
        }
    }

    /// Emits an index expression, as the sum of its positive terms minus the sum of its negative terms.
    fn index_expr(&mut self, index: &AffineExpr) -> ExprId {
        let (added, subtracted) = self.split_signs(index);
        subtracted.map_or(added, |subtracted| self.b.alu(Alu::Sub, &[added, subtracted]))
    }

    /// Emits the sum of the positive terms, and the sum of the absolute values of the negative terms if there are any.
    fn split_signs(&mut self, index: &AffineExpr) -> (ExprId, Option<ExprId>) {
        let (mut added, mut subtracted) = (None, None);
        let constant = self.b.index(index.offset().unsigned_abs());
        let constants = (index.offset() != 0).then_some((constant, index.offset() > 0));
        let terms: Vec<(ExprId, bool)> =
            index.terms().iter().map(|(term, factor)| (self.term(term, factor.unsigned_abs()), *factor > 0)).collect();
        for (term, is_added) in terms.into_iter().chain(constants) {
            let side = if is_added { &mut added } else { &mut subtracted };
            *side = Some(side.map_or(term, |sum| self.b.alu(Alu::Add, &[sum, term])));
        }
        (added.unwrap_or_else(|| self.b.index(0)), subtracted)
    }

    /// Emits `factor · term`.
    fn term(&mut self, term: &AffineTerm, factor: u64) -> ExprId {
        let value = match term {
            AffineTerm::Var(var) => self.vars[&var.id],
            AffineTerm::Read(number, _) => {
                let index = self.cached(self.nest.reads[*number as usize]).expect("loaded indices are computed first");
                self.b.cast(Type::Index, index)
            }
            AffineTerm::Div(inner, n) => {
                let (inner, n) = (self.index_expr(inner), self.b.index(*n));
                self.b.alu(Alu::Div, &[inner, n])
            }
            AffineTerm::Rem(inner, n) => {
                let (inner, n) = (self.index_expr(inner), self.b.index(*n));
                self.b.alu(Alu::Rem, &[inner, n])
            }
        };
        if factor == 1 {
            return value;
        }
        let factor = self.b.index(factor);
        self.b.alu(Alu::Mul, &[value, factor])
    }

    fn numel(&self, node: NodeId) -> u64 {
        self.graph.node(node).shape.numel() as u64
    }
}

/// Returns the guard of an index into a buffer with this number of elements.
fn guard(index: &AffineExpr, numel: u64) -> Guard {
    if index_map::stays_below(index, numel) { Guard::Proven } else { Guard::Checked }
}

/// Returns a kernel name from up to five different operations of a nest, such as `mul_sum`; `copy` if it has none.
fn name(nest: &LoopNest) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for (value, _) in &nest.values {
        let part = match value {
            Value::Alu(alu, _) => alu.name(),
            Value::Reduce(op, ..) => op.name(),
            Value::Scan(..) => "scan",
            Value::Cast(_) => "cast",
            Value::Load(..) | Value::Const(_) | Value::ScalarInput(_) | Value::Index(_) => continue,
            Value::InBounds(_) | Value::Bitcast(_) => continue,
        };
        if !parts.contains(&part) && parts.len() < 5 {
            parts.push(part);
        }
    }
    if parts.is_empty() { "copy".to_string() } else { parts.join("_") }
}
