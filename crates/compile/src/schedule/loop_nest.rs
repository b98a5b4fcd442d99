//! Loop nests: kernels before they are mapped to a target, as scalar values over loop variables.
//!
//! A [`LoopNest`] has **rows**, one for each combination of its outer variables, and inside a row consecutive
//! **loops**. Values that depend on a loop's variables are computed in each iteration, other values once per row. A
//! [`Value::Reduce`] combines a value over all iterations of a loop, a [`Value::Scan`] over the iterations so far.
//! Movement operations no longer exist: they became the indices of loads.

use std::collections::HashMap;
use std::fmt;

use panoply_ir::alu::Alu;
use panoply_ir::graph::{Graph, NodeId, Op};
use panoply_ir::reduce::ReduceOp;
use panoply_ir::{DType, Scalar};

use super::affine::{AffineExpr, AffineTerm, LoopVar};
use super::decompose;
use super::fusion_group::{self, FusionGroup};
use super::index_map::{self, BoundsCheck, IndexExprs};

/// Identifier of a nest's value: its index in [`LoopNest::values`].
pub type ValueId = usize;

/// Rows, the loops inside them, and the values computed and stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LoopNest {
    /// Variables of the rows: one row for each combination.
    pub outer: Vec<LoopVar>,
    /// Variables of each loop inside a row, outermost first.
    pub loops: Vec<Vec<LoopVar>>,
    /// Values with their types: operands precede users, and no two are equal.
    pub values: Vec<(Value, DType)>,
    /// True for values that can be computed unconditionally. A value behind a mask can read out of bounds where the
    /// mask is false, so it must stay inside the selection.
    pub speculatable: Vec<bool>,
    /// Value of each [`super::affine::AffineTerm::Read`].
    pub reads: Vec<ValueId>,
    /// Stores.
    pub stores: Vec<Store>,
    /// For an update in place: the node whose memory it updates, and the node that is the result. Other elements stay
    /// unchanged.
    pub updates_in_place: Option<(NodeId, NodeId)>,
    /// Nodes that it reads, each with a node that it writes to the same memory. Each element is loaded before it is
    /// stored.
    pub aliases: Vec<(NodeId, NodeId)>,
}

/// A scalar computed in a nest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// An element of a stored node.
    Load(NodeId, AffineExpr),
    /// A constant.
    Const(Scalar),
    /// A scalar slot, passed at launch.
    ScalarInput(u32),
    /// An index as i32.
    Index(AffineExpr),
    /// True if an index is within bounds.
    InBounds(BoundsCheck),
    /// A scalar operation.
    Alu(Alu, Vec<ValueId>),
    /// Conversion with the semantics of Rust's `as`.
    Cast(ValueId),
    /// Bit reinterpretation as another type.
    Bitcast(ValueId),
    /// Reduction over all iterations of a loop, accumulated in the (possibly wider) type of the operand.
    Reduce(ReduceOp, ValueId, usize),
    /// Inclusive scan over the iterations of a loop.
    Scan(ReduceOp, ValueId, usize),
}

/// A value written to a node's memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    /// Destination.
    pub node: NodeId,
    /// Index of the element.
    pub at: AffineExpr,
    /// Value to write.
    pub value: ValueId,
    /// Loop in each iteration of which the value is added to the element; `None` if the value replaces the element. The
    /// number of additions cannot be derived from what the operands depend on.
    pub accumulate: Option<usize>,
    /// Boolean value that enables the store; `None` if it is unconditional.
    pub condition: Option<ValueId>,
}

impl Value {
    /// Returns the operands, without the values that its index loads.
    pub fn operands(&self) -> &[ValueId] {
        match self {
            Value::Load(..) | Value::Const(_) | Value::ScalarInput(_) | Value::Index(_) | Value::InBounds(_) => &[],
            Value::Alu(_, operands) => operands,
            Value::Cast(x) | Value::Bitcast(x) | Value::Reduce(_, x, _) | Value::Scan(_, x, _) => {
                std::slice::from_ref(x)
            }
        }
    }

    /// Returns the index expression, if the value has one.
    pub fn index_expr(&self) -> Option<&AffineExpr> {
        match self {
            Value::Load(_, index) | Value::Index(index) => Some(index),
            Value::InBounds(bound) => Some(&bound.index),
            Value::Const(_) | Value::ScalarInput(_) | Value::Alu(..) | Value::Cast(_) | Value::Bitcast(_) => None,
            Value::Reduce(..) | Value::Scan(..) => None,
        }
    }
}

/// Builds the loop nest of a fusion group.
pub fn nest(graph: &Graph, mut group: FusionGroup) -> LoopNest {
    let visits = std::mem::take(&mut group.visits);
    let (values, speculatable) = (Vec::new(), Vec::new());
    let mut builder = LoopNestBuilder {
        graph,
        group,
        values,
        speculatable,
        known: HashMap::new(),
        made: HashMap::new(),
        positions: Vec::new(),
    };
    // A node's inputs precede it in the graph.
    let loads = std::mem::take(&mut builder.group.loads);
    let mut nodes: Vec<(NodeId, Vec<IndexExprs>, bool)> = Vec::new();
    nodes.extend(loads.into_iter().map(|(id, places)| (id, places, true)));
    nodes.extend(visits.into_iter().map(|(id, places)| (id, places, false)));
    nodes.sort_by_key(|(id, ..)| *id);
    for (id, places, loaded) in nodes {
        for coords in places.into_iter().filter(|coords| is_read(graph, id, coords)) {
            let value = if loaded { builder.load(id, &coords) } else { builder.compute(id, &coords) };
            builder.speculatable[value] |= index_map::is_within(&coords, &graph.node(id).shape);
            builder.made.insert((id, coords), value);
        }
    }
    builder.finish()
}

/// Returns true if an element is read there; the base of an update is only bound.
fn is_read(graph: &Graph, id: NodeId, coords: &IndexExprs) -> bool {
    coords.len() == graph.node(id).shape.ndim()
}

struct LoopNestBuilder<'a> {
    graph: &'a Graph,
    group: FusionGroup,
    values: Vec<(Value, DType)>,
    speculatable: Vec<bool>,
    known: HashMap<(Value, DType), ValueId>,
    /// Value of each node at coordinates.
    made: HashMap<(NodeId, IndexExprs), ValueId>,
    /// Indices that were computed, numbered after those that the group loads.
    positions: Vec<ValueId>,
}

impl LoopNestBuilder<'_> {
    /// Adds a value, or returns an equal one. It is speculatable if it is defined everywhere, and its operands and
    /// indices are speculatable.
    fn add(&mut self, value: Value, dtype: DType) -> ValueId {
        if let Some(known) = self.known.get(&(value.clone(), dtype)) {
            return *known;
        }
        let operands = value.operands().iter().all(|operand| self.speculatable[*operand]);
        let may_fault =
            |term: &AffineTerm| matches!(term, AffineTerm::Read(number, _) if !self.is_safe_position(*number));
        let positions = !value.index_expr().is_some_and(|index| index.any_term(&mut |term| may_fault(term)));
        let alone = match &value {
            Value::Load(..) => false,
            // Indices are unsigned, so a negative index is undefined.
            Value::Index(index) => index.guaranteed_range().is_some_and(|(low, _)| low >= 0),
            _ => true,
        };
        self.speculatable.push(operands && positions && alone);
        self.values.push((value.clone(), dtype));
        self.known.insert((value, dtype), self.values.len() - 1);
        self.values.len() - 1
    }

    /// Returns true if the value of an [`AffineTerm::Read`], which can be created later, is speculatable.
    fn is_safe_position(&self, number: u32) -> bool {
        let (number, reads) = (number as usize, &self.group.reads);
        match reads.get(number) {
            Some((id, coords)) => index_map::is_within(coords, &self.graph.node(*id).shape),
            None => self.speculatable[self.positions[number - reads.len()]],
        }
    }

    fn load(&mut self, id: NodeId, coords: &IndexExprs) -> ValueId {
        let node = self.graph.node(id);
        self.add(Value::Load(id, index_map::linear(coords, &node.shape)), node.dtype)
    }

    fn compute(&mut self, id: NodeId, coords: &IndexExprs) -> ValueId {
        let graph = self.graph;
        let node = graph.node(id);
        let from = self.group.inputs(graph, id, coords);
        let read = from.iter().filter(|(id, coords)| is_read(graph, *id, coords));
        let inputs: Vec<ValueId> = read.map(|place| self.made[place]).collect();
        match &node.op {
            Op::Const(value) => self.add(Value::Const(*value), node.dtype),
            Op::ScalarInput(n) => self.add(Value::ScalarInput(*n), node.dtype),
            Op::Iota => self.add(Value::Index(coords[0].clone()), node.dtype),
            Op::Alu(alu) => self.add(Value::Alu(*alu, inputs), node.dtype),
            Op::Cast => self.add(Value::Cast(inputs[0]), node.dtype),
            Op::Bitcast => self.add(Value::Bitcast(inputs[0]), node.dtype),
            Op::Reshape | Op::Permute(_) | Op::Expand | Op::Slice(_) => inputs[0],
            Op::Pad(_) => {
                let (_, bounds) = index_map::index_map(node, &graph.node(node.inputs[0]).shape, coords);
                self.within(bounds, inputs[0], node.dtype)
            }
            Op::Gather(axis) => {
                let length = graph.node(node.inputs[0]).shape.dims()[*axis];
                self.at_position(inputs[0], inputs[1], length, node.dtype)
            }
            Op::Reduce(op, axes) => {
                let lengths: Vec<u64> =
                    axes.iter().map(|axis| graph.node(node.inputs[0]).shape.dims()[*axis] as u64).collect();
                let fits = |vars: &Vec<LoopVar>| vars.iter().map(|var| var.extent).eq(lengths.iter().copied());
                let number = self.group.loops.iter().position(fits).expect("the group has the reduction's loop");
                self.combine(Value::Reduce, *op, inputs[0], number, node.dtype)
            }
            Op::Scan(op, _) => self.combine(Value::Scan, *op, inputs[0], 0, node.dtype),
            // The result is memory: see `scattered` and `written`.
            Op::ScatterAdd(_) | Op::SliceScatter(_) => inputs[0],
            Op::Input(_) | Op::MatMul | Op::Call(..) | Op::CustomCall(..) | Op::ControlDependency => {
                unreachable!("not computed inside a nest")
            }
        }
    }

    /// Adds a reduction or scan, accumulated in a sufficiently wide type and rounded at the end.
    fn combine(
        &mut self,
        kind: impl Fn(ReduceOp, ValueId, usize) -> Value,
        op: ReduceOp,
        input: ValueId,
        number: usize,
        dtype: DType,
    ) -> ValueId {
        let wide = super::decompose::accumulator(dtype);
        let input = if wide == dtype { input } else { self.add(Value::Cast(input), wide) };
        let combined = self.add(kind(op, input, number), wide);
        if wide == dtype { combined } else { self.add(Value::Cast(combined), dtype) }
    }

    /// Returns a value within bounds, and zero outside.
    fn within(&mut self, bounds: Vec<BoundsCheck>, value: ValueId, dtype: DType) -> ValueId {
        let inside = bounds.into_iter().map(Value::InBounds).collect();
        self.masked(inside, value, dtype)
    }

    /// Returns a gathered value where the loaded position is in range, and zero elsewhere.
    fn at_position(&mut self, value: ValueId, position: ValueId, length: usize, dtype: DType) -> ValueId {
        let inside = self.in_range(position, length);
        self.masked(inside, value, dtype)
    }

    /// Returns the conditions that a position is not negative and below a length.
    fn in_range(&mut self, position: ValueId, length: usize) -> Vec<Value> {
        let ty = self.values[position].1;
        let zero = self.add(Value::Const(Scalar::from_i128(ty, 0)), ty);
        let mut inside = vec![Value::Alu(Alu::Le, vec![zero, position])];
        let beyond = Scalar::from_i128(ty, length as i128);
        // A length that the type cannot represent is above every position.
        if beyond.to_i128() == length as i128 {
            let beyond = self.add(Value::Const(beyond), ty);
            inside.push(Value::Alu(Alu::Lt, vec![position, beyond]));
        }
        inside
    }

    /// Returns the conjunction of the conditions, or `None` if there are none.
    fn all(&mut self, conditions: Vec<Value>) -> Option<ValueId> {
        let mut all = None;
        for condition in conditions {
            let condition = self.add(condition, DType::Bool);
            all = Some(match all {
                None => condition,
                Some(before) => self.add(Value::Alu(Alu::And, vec![before, condition]), DType::Bool),
            });
        }
        all
    }

    fn masked(&mut self, inside: Vec<Value>, value: ValueId, dtype: DType) -> ValueId {
        let Some(all) = self.all(inside) else { return value };
        let zero = self.add(Value::Const(Scalar { dtype, bits: 0 }), dtype);
        self.add(Value::Alu(Alu::Select, vec![all, value, zero]), dtype)
    }

    fn finish(mut self) -> LoopNest {
        let (mut stores, mut changes) = (Vec::new(), None);
        for (node, at) in std::mem::take(&mut self.group.stores) {
            match self.graph.node(node).op {
                Op::ScatterAdd(axis) => {
                    stores.extend(self.scattered(node, axis));
                    continue;
                }
                Op::SliceScatter(axis) => {
                    stores.extend(self.written(node, axis));
                    changes =
                        (!decompose::overwrites_all(self.graph, node)).then(|| (self.graph.node(node).inputs[0], node));
                    continue;
                }
                _ => {}
            }
            let dims = &self.graph.node(node).shape;
            let found =
                self.made.iter().filter(|((id, coords), _)| *id == node && index_map::linear(coords, dims) == at);
            let value = found.map(|(_, value)| *value).min().expect("stored values were computed");
            stores.push(Store { node, at, value, accumulate: None, condition: None });
        }
        let LoopNestBuilder { group, values, speculatable, made, positions, .. } = self;
        let reads = group.reads.iter().map(|read| made[read]).chain(positions).collect();
        LoopNest {
            outer: group.outer,
            loops: group.loops,
            values,
            speculatable,
            reads,
            stores,
            updates_in_place: changes,
            aliases: Vec::new(),
        }
    }

    /// Returns the stores of a scatter: first every element of a column unchanged, then the rows added at their
    /// positions.
    fn scattered(&mut self, id: NodeId, axis: usize) -> [Store; 2] {
        let node = self.graph.node(id);
        let coords = self.group.scatter_coords();
        let [base, place, row] =
            <[_; 3]>::try_from(self.group.inputs(self.graph, id, &coords)).expect("a scatter has 3 inputs");
        let extent = node.shape.dims()[axis] as u64;
        let number =
            self.group.reads.iter().position(|read| *read == place).expect("the scatter's positions are loaded");
        let mut target = base.1.clone();
        target[axis] = AffineExpr::read(number as u32, extent);
        let value = |place: &(NodeId, IndexExprs)| self.made[place];
        let (base_value, row_value, position) = (value(&base), value(&row), value(&place));
        let inside = self.in_range(position, extent as usize);
        let condition = self.all(inside);
        let at = |coords: &IndexExprs| index_map::linear(coords, &node.shape);
        [
            Store { node: id, at: at(&base.1), value: base_value, accumulate: None, condition: None },
            Store { node: id, at: at(&target), value: row_value, accumulate: Some(fusion_group::POSITIONS), condition },
        ]
    }

    /// Returns the stores of a write: each element of a part goes to its own position plus the part's start.
    fn written(&mut self, id: NodeId, axis: usize) -> Vec<Store> {
        let coords = self.group.written_coords();
        let parts = self.graph.node(id).inputs.len() / 2;
        let from = self.group.inputs(self.graph, id, &coords);
        let pairs = from.chunks_exact(2).take(parts).map(|pair| (self.made[&pair[0]], self.made[&pair[1]]));
        let pairs: Vec<(ValueId, ValueId)> = pairs.collect();
        pairs.into_iter().map(|(value, start)| self.placed(id, axis, value, start)).collect()
    }

    fn placed(&mut self, id: NodeId, axis: usize, value: ValueId, start: ValueId) -> Store {
        let (node, coords) = (self.graph.node(id), self.group.written_coords());
        let (length, ty) = (node.shape.dims()[axis], self.values[start].1);
        let mut target = coords.clone();
        let condition = if let Value::Const(at) = self.values[start].0 {
            target[axis] = coords[axis].add_const(at.to_i128() as i64);
            let bounds = index_map::open_bounds(&target, &node.shape);
            self.all(bounds.into_iter().map(Value::InBounds).collect())
        } else {
            let own = self.add(Value::Index(coords[axis].clone()), DType::I32);
            let own = if ty == DType::I32 { own } else { self.add(Value::Cast(own), ty) };
            let position = self.add(Value::Alu(Alu::Add, vec![start, own]), ty);
            // The sum is a loaded index, because an index expression must never be negative, not even in a
            // subexpression.
            target[axis] = AffineExpr::read((self.group.reads.len() + self.positions.len()) as u32, length as u64);
            self.positions.push(position);
            let inside = self.in_range(position, length);
            self.all(inside)
        };
        Store { node: id, at: index_map::linear(&target, &node.shape), value, accumulate: None, condition }
    }
}

impl fmt::Display for LoopNest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |vars: &[LoopVar]| {
            let vars: Vec<String> = vars.iter().map(|var| format!("v{} < {}", var.id, var.extent)).collect();
            vars.join(", ")
        };
        writeln!(f, "  rows {}", if self.outer.is_empty() { "one".to_string() } else { list(&self.outer) })?;
        for (number, vars) in self.loops.iter().enumerate() {
            writeln!(f, "  loop {number}: {}", list(vars))?;
        }
        for (id, (value, dtype)) in self.values.iter().enumerate() {
            write!(f, "  %{id} = ")?;
            match value {
                Value::Load(node, index) => write!(f, "n{}[{index}]", node.0)?,
                Value::Const(scalar) => write!(f, "{scalar}")?,
                Value::ScalarInput(n) => write!(f, "slot {n}")?,
                Value::Index(index) => write!(f, "position {index}")?,
                Value::InBounds(bound) => write!(f, "0 <= {} < {}", bound.index, bound.extent)?,
                Value::Alu(alu, operands) => {
                    let operands: Vec<String> = operands.iter().map(|operand| format!("%{operand}")).collect();
                    write!(f, "{} {}", alu.name(), operands.join(", "))?;
                }
                Value::Cast(x) => write!(f, "cast %{x}")?,
                Value::Bitcast(x) => write!(f, "bitcast %{x}")?,
                Value::Reduce(op, x, number) => write!(f, "{} of %{x} over loop {number}", op.name())?,
                Value::Scan(op, x, number) => write!(f, "running {} of %{x} along loop {number}", op.name())?,
            }
            writeln!(f, ": {dtype}")?;
        }
        for store in &self.stores {
            let (node, at, value) = (store.node.0, &store.at, store.value);
            let sign = if store.accumulate.is_some() { "+=" } else { "=" };
            let only = store.condition.map_or(String::new(), |condition| format!(" where %{condition}"));
            writeln!(f, "  n{node}[{at}] {sign} %{value}{only}")?;
        }
        Ok(())
    }
}
