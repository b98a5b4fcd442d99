//! Emits the values of a nest as kernel IR.
//!
//! A [`ScalarEmitter`] tracks where each value is available: some for the entire row, some only for the current
//! iteration. A value is computed on first use, after its operands. A value with several uses, or shared by the
//! iterations of a loop, becomes a local. A value that could read out of bounds remains an expression inside the
//! selection that checks it.
//!
//! Loads that are always within their buffer are marked as proven: a plan binds each buffer with exactly its node's
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

/// Value bound to a kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Argument {
    /// Memory of a node.
    Node(NodeId),
    /// A scalar slot, passed at launch.
    ScalarInput(u32),
}

/// Emitter of a kernel, with the expressions of the nest's values.
pub struct ScalarEmitter<'a> {
    /// Graph with the nest's nodes.
    pub graph: &'a Graph,
    /// Nest that is emitted.
    pub nest: &'a LoopNest,
    /// Loop levels of its values.
    pub levels: &'a ComputeLevels,
    /// Builder of the kernel.
    pub b: Builder,
    /// Expressions of loop variables.
    pub vars: BTreeMap<u32, ExprId>,
    /// Values available for the rest of the row.
    pub row: Vec<Option<ExprId>>,
    /// Values of the current iteration.
    pub iteration: Vec<Option<ExprId>>,
    /// Accumulators of the current loop's scans.
    pub running: BTreeMap<ValueId, LocalId>,
    /// Work-items of the group that shares the row; `None` if each work-item has its own row.
    pub lanes: Option<u32>,
    /// True if variables can exceed their extents, so that nothing can be read outside the selection that checks them.
    pub beyond: bool,
    mems: BTreeMap<NodeId, MemId>,
    slots: BTreeMap<u32, ExprId>,
}

impl<'a> ScalarEmitter<'a> {
    /// Creates a kernel without statements, and returns the arguments of its parameters.
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
            running: BTreeMap::new(),
            lanes: None,
            beyond: false,
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
        let changes = |store: &&Store| {
            store.accumulate.is_some() || self.nest.updates_in_place.is_some_and(|(_, node)| node == store.node)
        };
        let changed = self.nest.stores.iter().filter(changes).map(|store| store.node);
        let changed: Vec<NodeId> = changed.chain(self.nest.aliases.iter().map(|(_, after)| *after)).collect();
        self.nest.aliases.iter().for_each(|(before, _)| _ = loads.remove(before));
        let mut arguments = Vec::new();
        for (kind, nodes) in [("x", loads), ("y", stores)] {
            for (number, node) in nodes.into_iter().enumerate() {
                let access = match kind {
                    "x" => Access::In,
                    _ if changed.contains(&node) => Access::InOut,
                    _ => Access::Out,
                };
                let mem = self.b.buffer(&format!("{kind}{number}"), self.graph.node(node).dtype, access);
                self.mems.insert(node, mem);
                let same = self.nest.aliases.iter().filter(|(_, after)| *after == node);
                self.mems.extend(same.map(|(before, _)| (*before, mem)));
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

    /// Computes the values of variables from a linear index over their combinations.
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

    /// Computes the values shared by all iterations of a loop, and declares the accumulators of its scans.
    pub fn before_loop(&mut self, roots: &[ValueId]) {
        let mut seen = BTreeSet::new();
        let mut open = roots.to_vec();
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            if self.levels.place[id] == ComputeLevel::Row {
                self.value(id);
                continue;
            }
            if let Value::Scan(..) = self.nest.values[id].0 {
                let (_, running) = self.start_running(id, "running");
                self.running.insert(id, running);
            }
            open.extend(compute_at::needs(self.nest, id));
        }
    }

    /// Declares the accumulator of a reduction or scan.
    pub fn start_running(&mut self, id: ValueId, name: &str) -> (ReduceOp, LocalId) {
        let (value, dtype) = &self.nest.values[id];
        let (Value::Reduce(op, ..) | Value::Scan(op, ..)) = value else {
            unreachable!("the value is a reduction or scan")
        };
        let identity = self.b.constant(op.identity(*dtype));
        (*op, self.b.declare(name, identity, true))
    }

    /// Combines an accumulator with the next value.
    pub fn accumulate(&mut self, running: LocalId, op: ReduceOp, next: ExprId) {
        let before = self.b.get(running);
        let after = self.b.alu(op.alu(), &[before, next]);
        self.b.assign(running, after);
    }

    /// Combines an accumulator with the next values of a group's work-items in lane order, and returns the inclusive
    /// scan.
    fn advance_group(&mut self, running: LocalId, op: ReduceOp, next: ExprId, lanes: u32) -> ExprId {
        let (before, lane, zero) = (self.b.get(running), self.b.builtin(Builtin::LocalId(0)), self.b.index(0));
        let first = self.b.alu(Alu::Eq, &[lane, zero]);
        let joined = self.b.alu(op.alu(), &[before, next]);
        let from = self.b.alu(Alu::Select, &[first, joined, next]);
        let scanned = self.b.collective(CollectiveOp::InclusiveScan(op), Scope::Group, from);
        let last = self.b.collective(CollectiveOp::Broadcast(lanes - 1), Scope::Group, scanned);
        self.b.assign(running, last);
        scanned
    }

    /// Discards all values, for another row.
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
        let at = self.form(&store.at);
        // A condition proves the position unless it is loaded from memory, which could have changed since the
        // comparison.
        let compared = condition.is_some() && !store.at.reads();
        let proven = compared || index_map::stays_below(&store.at, self.elems(store.node));
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

    /// Returns the expression of a value, computing it if necessary.
    pub fn value(&mut self, id: ValueId) -> ExprId {
        let mut open = vec![id];
        while let Some(next) = open.last().copied() {
            let missing = compute_at::needs(self.nest, next).into_iter().find(|need| self.cached(*need).is_none());
            match missing {
                _ if self.cached(next).is_some() => drop(open.pop()),
                Some(need) => open.push(need),
                None => {
                    let expr = self.compute(next);
                    match self.levels.place[next] {
                        ComputeLevel::Row => self.row[next] = Some(expr),
                        ComputeLevel::Iteration(_) => self.iteration[next] = Some(expr),
                    }
                }
            }
        }
        self.cached(id).expect("the value was just computed")
    }

    fn cached(&self, id: ValueId) -> Option<ExprId> {
        match self.levels.place[id] {
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
            Value::Load(node, form) => {
                let at = self.form(form);
                let guard = if self.beyond { Guard::Checked } else { guard(form, self.elems(*node)) };
                self.b.load(self.mems[node], at, guard)
            }
            Value::Index(form) => {
                let at = self.form(form);
                self.b.cast(Type::Scalar(DType::I32), at)
            }
            Value::InBounds(bound) => self.inside(bound),
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
                let (running, next) = (self.running[&id], operand(0));
                if let Some(lanes) = self.lanes {
                    return self.advance_group(running, *op, next, lanes);
                }
                self.accumulate(running, *op, next);
                return self.b.get(running);
            }
            Value::Reduce(..) => unreachable!("the reduction's loop has ended"),
        };
        let outside_loops = self.levels.place[id] == ComputeLevel::Row && !self.nest.loops.is_empty();
        let kept = self.nest.speculatable[id] && !self.beyond && (self.levels.uses[id] > 1 || outside_loops);
        if kept { self.b.bind("v", expr) } else { expr }
    }

    /// Emits a bounds check without arithmetic that could wrap: subtracted terms move to the other side.
    fn inside(&mut self, bound: &BoundsCheck) -> ExprId {
        let (added, taken) = self.split_signs(&bound.form);
        let (low, high) = bound.form.guaranteed_range().unwrap_or((i64::MIN, i64::MAX));
        let extent = self.b.index(bound.extent);
        let end = taken.map_or(extent, |taken| self.b.alu(Alu::Add, &[taken, extent]));
        let above = taken.filter(|_| low < 0).map(|taken| self.b.alu(Alu::Le, &[taken, added]));
        let below = (high >= bound.extent as i64).then(|| self.b.alu(Alu::Lt, &[added, end]));
        match (above, below) {
            (Some(above), Some(below)) => self.b.alu(Alu::And, &[above, below]),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => self.b.constant(true),
        }
    }

    /// Emits an index expression.
    fn form(&mut self, form: &AffineExpr) -> ExprId {
        let (added, taken) = self.split_signs(form);
        taken.map_or(added, |taken| self.b.alu(Alu::Sub, &[added, taken]))
    }

    /// Emits the sum of positive terms, and the sum of subtracted terms if there are any.
    fn split_signs(&mut self, form: &AffineExpr) -> (ExprId, Option<ExprId>) {
        let (mut added, mut taken) = (None, None);
        let constant = self.b.index(form.offset().unsigned_abs());
        let constants = (form.offset() != 0).then_some((constant, form.offset() > 0));
        let terms: Vec<(ExprId, bool)> =
            form.terms().iter().map(|(atom, factor)| (self.term(atom, factor.unsigned_abs()), *factor > 0)).collect();
        for (term, is_added) in terms.into_iter().chain(constants) {
            let side = if is_added { &mut added } else { &mut taken };
            *side = Some(side.map_or(term, |sum| self.b.alu(Alu::Add, &[sum, term])));
        }
        (added.unwrap_or_else(|| self.b.index(0)), taken)
    }

    fn term(&mut self, atom: &AffineTerm, factor: u64) -> ExprId {
        let value = match atom {
            AffineTerm::Var(var) => self.vars[&var.id],
            AffineTerm::Read(number, _) => {
                let position = self.cached(self.nest.reads[*number as usize]).expect("index values are computed first");
                self.b.cast(Type::Index, position)
            }
            AffineTerm::Div(inner, n) => {
                let (inner, n) = (self.form(inner), self.b.index(*n));
                self.b.alu(Alu::Div, &[inner, n])
            }
            AffineTerm::Rem(inner, n) => {
                let (inner, n) = (self.form(inner), self.b.index(*n));
                self.b.alu(Alu::Rem, &[inner, n])
            }
        };
        if factor == 1 {
            return value;
        }
        let factor = self.b.index(factor);
        self.b.alu(Alu::Mul, &[value, factor])
    }

    fn elems(&self, node: NodeId) -> u64 {
        self.graph.node(node).shape.numel() as u64
    }
}

/// Returns the guard of an index into a buffer with this number of elements.
fn guard(form: &AffineExpr, elems: u64) -> Guard {
    if index_map::stays_below(form, elems) { Guard::Proven } else { Guard::Checked }
}

/// Returns a kernel name from the first few operations, in their order.
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
