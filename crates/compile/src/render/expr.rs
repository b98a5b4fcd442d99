//! Renders expressions as C, each shared node once.
//!
//! A statement's expressions form a graph. Its nodes are visited in the order of their ids, operands before users,
//! without recursion. A node with several users, or with long text, is assigned to a temporary before the statement.

use std::collections::BTreeMap;

use panoply_ir::Type;
use panoply_ir::kernel::{Args, Builtin, Expr, ExprId, Guard, Kernel, MemId, Space};

use super::literal::literal;
use super::names::Names;
use super::ops::{Ops, bare, in_memory};

/// Length from which text is assigned to a temporary: lines stay readable, and nesting of parentheses stays within
/// compiler limits.
pub(super) const LONG: usize = 96;

/// A rendered expression.
#[derive(Clone, Debug)]
pub(super) struct Value {
    /// Text of each lane.
    pub lanes: Vec<String>,
    /// True if the texts are names or literals, which can be repeated.
    pub atom: bool,
    /// True if they have the same value for the rest of the block.
    pub fixed: bool,
}

impl Value {
    pub fn atom(text: impl Into<String>) -> Value {
        Value { lanes: vec![text.into()], atom: true, fixed: true }
    }

    fn composite(lanes: Vec<String>) -> Value {
        Value { lanes, atom: false, fixed: false }
    }

    /// Returns the text of the only lane, without enclosing parentheses.
    pub fn bare(&self) -> &str {
        bare(&self.lanes[0])
    }
}

/// The program being rendered, with the names of its entities.
pub(super) struct Writer<'k> {
    pub kernel: &'k Kernel,
    pub ops: Ops,
    pub names: Names,
    /// Name of every memory.
    pub mems: Vec<String>,
    /// Value of every scalar parameter; `None` for buffers.
    pub params: Vec<Option<Value>>,
    /// Names of every local introduced so far, one per lane.
    pub locals: Vec<Vec<String>>,
    pub lines: Vec<String>,
    pub depth: usize,
    pub temporaries: usize,
}

impl Writer<'_> {
    /// Appends a line.
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.lines.push(format!("{:1$}{2}", "", 4 * self.depth, text.as_ref()));
    }

    /// Evaluates expressions at the current position, writing the temporaries they need.
    pub fn evaluate<const N: usize>(&mut self, roots: [ExprId; N]) -> [Value; N] {
        let mut nodes = uses(self.kernel, &roots);
        let mut values: BTreeMap<ExprId, Value> = BTreeMap::new();
        while let Some((id, uses)) = nodes.pop_first() {
            let mut value = self.node(id, &mut values);
            let long = value.lanes.iter().any(|lane| lane.len() > LONG);
            if !value.atom && (uses > 1 || long) {
                value = self.temporary(id, value);
            }
            values.insert(id, value);
        }
        roots.map(|root| values[&root].clone())
    }

    /// Evaluates a scalar expression.
    pub fn scalar(&mut self, root: ExprId) -> Value {
        let [value] = self.evaluate([root]);
        value
    }

    /// Evaluates a scalar expression to a name or literal whose value does not change.
    pub fn fixed(&mut self, root: ExprId) -> String {
        let mut value = self.scalar(root);
        if !value.fixed {
            value = self.temporary(root, value);
        }
        value.lanes.swap_remove(0)
    }

    /// Assigns the value of an expression to a temporary.
    fn temporary(&mut self, id: ExprId, value: Value) -> Value {
        self.name_value(self.kernel.exprs.ty(id), value)
    }

    /// Assigns a value to a temporary.
    pub fn name_value(&mut self, ty: Type, value: Value) -> Value {
        let ty = self.ops.register(ty.dtype());
        let name = self.next_temporary();
        let many = value.lanes.len() > 1;
        let named = |lane: usize| if many { format!("{name}_{lane}") } else { name.clone() };
        let lanes: Vec<String> = (0..value.lanes.len()).map(named).collect();
        for (lane, text) in lanes.iter().zip(&value.lanes) {
            let line = format!("const {} {lane} = {};", self.ops.name(ty), bare(text));
            self.line(line);
        }
        Value { lanes, atom: true, fixed: true }
    }

    fn next_temporary(&mut self) -> String {
        self.temporaries += 1;
        format!("t{}", self.temporaries)
    }

    fn node(&mut self, id: ExprId, values: &mut BTreeMap<ExprId, Value>) -> Value {
        let exprs = &self.kernel.exprs;
        let dtype = exprs.ty(id).dtype();
        match exprs.get(id) {
            Expr::Const(value) => Value::atom(literal(self.ops.dialect, value)),
            Expr::Index(value) => Value::atom(self.index_literal(value)),
            Expr::Param(position) => self.params[position as usize].clone().expect("a scalar parameter has a value"),
            Expr::Local(local) => {
                let fixed = !self.kernel.local(local).mutable;
                Value { lanes: self.locals[local.index()].clone(), atom: true, fixed }
            }
            Expr::Builtin(builtin) => Value::atom(self.builtin(builtin)),
            Expr::Len(mem) => Value::atom(self.len(mem)),
            Expr::Load { mem, index, lanes, guard } => self.load(mem, index, lanes, guard, values),
            Expr::Alu(op, args) => {
                // The relevant type of a comparison is that of its operands, and of a select that of its alternatives.
                let ty = exprs.ty(args[args.len() - 1]);
                Value::composite(self.lanewise(&args, values, |ops, texts| ops.alu(op, ty.dtype(), texts)))
            }
            Expr::Cast(_, x) => {
                let from = exprs.ty(x).dtype();
                let whole = values[&x].atom && from == dtype;
                let lanes = self.lanewise(&Args::new(&[x]), values, |ops, texts| ops.cast(from, dtype, &texts[0]));
                Value { lanes, atom: whole, fixed: whole && values[&x].fixed }
            }
            Expr::Bitcast(_, x) => {
                let from = exprs.ty(x).dtype();
                Value::composite(
                    self.lanewise(&Args::new(&[x]), values, |ops, texts| ops.bitcast(from, dtype, &texts[0])),
                )
            }
            Expr::Splat(x, lanes) => {
                let x = self.atom(x, values);
                Value { lanes: vec![x.lanes[0].clone(); lanes as usize], ..x }
            }
            Expr::Extract(x, lane) => {
                let x = &values[&x];
                Value { lanes: vec![x.lanes[lane as usize].clone()], ..*x }
            }
        }
    }

    /// Applies an operation to each lane.
    fn lanewise(
        &mut self,
        args: &Args,
        values: &BTreeMap<ExprId, Value>,
        mut op: impl FnMut(&mut Ops, &[String]) -> String,
    ) -> Vec<String> {
        let count = args.iter().map(|arg| values[arg].lanes.len()).max().unwrap_or(1);
        let lane = |lane: usize| -> Vec<String> { args.iter().map(|arg| values[arg].lanes[lane].clone()).collect() };
        (0..count).map(|at| op(&mut self.ops, &lane(at))).collect()
    }

    /// Returns the value of an operand as a name or literal.
    fn atom(&mut self, id: ExprId, values: &mut BTreeMap<ExprId, Value>) -> Value {
        let value = values[&id].clone();
        if value.atom {
            return value;
        }
        let value = self.temporary(id, value);
        values.insert(id, value.clone());
        value
    }

    pub fn index_literal(&self, value: u64) -> String {
        if self.ops.index == panoply_ir::DType::U32 {
            format!("{}u", value as u32)
        } else {
            format!("{value}{}", self.ops.dialect.suffix_64[1])
        }
    }

    /// Returns the length of a memory in elements.
    pub fn len(&self, mem: MemId) -> String {
        match self.kernel.mem(mem).space {
            Space::Buffer(_) => format!("{}len", self.mems[mem.index()]),
            Space::Shared(len) | Space::Private(len) => self.index_literal(len as u64),
        }
    }

    fn builtin(&self, builtin: Builtin) -> String {
        match (builtin, self.kernel.group_size) {
            (Builtin::GroupSize(axis), Some(group)) => self.index_literal(group[axis as usize] as u64),
            _ => builtin_name(builtin),
        }
    }

    fn load(
        &mut self,
        mem: MemId,
        index: ExprId,
        lanes: u8,
        guard: Guard,
        values: &mut BTreeMap<ExprId, Value>,
    ) -> Value {
        let dtype = self.kernel.mem(mem).dtype;
        let name = self.mems[mem.index()].clone();
        match guard {
            Guard::Proven | Guard::Unchecked if lanes == 1 => {
                let text = self.ops.convert_loaded(dtype, format!("{name}[{}]", values[&index].bare()));
                Value::composite(vec![text])
            }
            Guard::Proven | Guard::Unchecked => {
                let index = self.atom(index, values);
                self.load_lanes(mem, &index.lanes[0], lanes)
            }
            Guard::Checked => {
                let index = self.atom(index, values).lanes.swap_remove(0);
                let room = if lanes > 1 { self.room(mem, &index) } else { String::new() };
                let zero = literal(self.ops.dialect, panoply_ir::Scalar::from_i128(dtype, 0));
                let text = |lane: u8, writer: &mut Self| {
                    let inside = if lanes > 1 { format!("{lane} < {room}") } else { writer.inside(mem, &index) };
                    let value = writer.ops.convert_loaded(dtype, format!("{name}[{}]", plus(&index, lane)));
                    format!("({inside} ? {value} : {zero})")
                };
                Value::composite((0..lanes).map(|lane| text(lane, self)).collect())
            }
        }
    }

    /// Returns the condition that an index, given as a name or literal, is in bounds of a memory.
    pub fn inside(&self, mem: MemId, index: &str) -> String {
        format!("{index} < {}", self.len(mem))
    }

    /// Returns a temporary with the number of elements from an index on. The condition `index + lane < len` could wrap.
    pub fn room(&mut self, mem: MemId, index: &str) -> String {
        let (name, len) = (self.next_temporary(), self.len(mem));
        let ty = self.ops.name(self.ops.index);
        let zero = self.index_literal(0);
        let line = format!("const {ty} {name} = {index} < {len} ? {len} - {index} : {zero};");
        self.line(line);
        name
    }

    fn load_lanes(&mut self, mem: MemId, index: &str, lanes: u8) -> Value {
        let dtype = self.kernel.mem(mem).dtype;
        let name = self.mems[mem.index()].clone();
        if in_memory(dtype) != dtype {
            // The elements are bits that must be converted individually.
            let text = |lane| self.ops.convert_loaded(dtype, format!("{name}[{}]", plus(index, lane)));
            return Value::composite((0..lanes).map(text).collect());
        }
        let width = lanes.min(self.ops.dialect.max_lanes);
        let mut texts = Vec::new();
        for first in (0..lanes).step_by(width as usize) {
            let vector = self.next_temporary();
            let ty = self.ops.dialect.vector_name(dtype, width);
            let pointer = format!("{name} + {}", plus(index, first));
            let line = format!("const {ty} {vector} = {};", (self.ops.dialect.load_vector)(width, &pointer));
            self.line(line);
            texts.extend((0..width).map(|lane| format!("{vector}{}", (self.ops.dialect.lane)(lane))));
        }
        Value { lanes: texts, atom: true, fixed: true }
    }
}

/// Counts the uses of all nodes reachable from the roots.
pub(super) fn uses(kernel: &Kernel, roots: &[ExprId]) -> BTreeMap<ExprId, u32> {
    let mut uses = BTreeMap::new();
    let mut pending = roots.to_vec();
    while let Some(id) = pending.pop() {
        let count = uses.entry(id).or_insert(0);
        *count += 1;
        if *count == 1 {
            pending.extend(kernel.exprs.get(id).operands().iter());
        }
    }
    uses
}

/// Returns the variable that holds a launch builtin.
pub(super) fn builtin_name(builtin: Builtin) -> String {
    match builtin {
        Builtin::GlobalId(axis) => format!("gid{axis}"),
        Builtin::LocalId(axis) => format!("lid{axis}"),
        Builtin::GroupId(axis) => format!("group{axis}"),
        Builtin::GlobalSize(axis) => format!("size{axis}"),
        Builtin::GroupSize(axis) => format!("width{axis}"),
        Builtin::GroupCount(axis) => format!("groups{axis}"),
        Builtin::SubgroupLane => "lane".to_string(),
        Builtin::SubgroupSize => "lanes".to_string(),
    }
}

/// Returns the text of an index plus a lane.
pub(super) fn plus(index: &str, lane: u8) -> String {
    if lane == 0 { index.to_string() } else { format!("{index} + {lane}") }
}
