//! Printer of the text form. It never fails or panics, so that invalid kernels can be inspected; ids outside of their table are printed as
//! `?`.

use std::fmt::Write;

use super::names::{Names, quote, word};
use super::{ATOMICS, BUILTINS};
use crate::dtype::Scalar;
use crate::kernel::*;

/// Shared expressions are named if they are larger than this.
const SHARED_SIZE: u32 = 8;
/// All expressions are named if they have at least this size …
const LARGE: u32 = 32;
/// … or at least this depth.
const DEEP: u32 = 16;

/// Returns the text form of a kernel.
pub fn print(kernel: &Kernel) -> String {
    Printer::new(kernel, true).kernel()
}

/// Returns the text form of a kernel without source locations.
pub(super) fn without_places(kernel: &Kernel) -> String {
    Printer::new(kernel, false).kernel()
}

struct Printer<'k> {
    kernel: &'k Kernel,
    names: Names,
    places: bool,
    /// Name state of each expression, with its number once it is defined.
    named: Vec<Name>,
    next_name: u32,
    out: String,
    indent: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Name {
    Inline,
    Wanted,
    Numbered(u32),
}

impl<'k> Printer<'k> {
    fn new(kernel: &'k Kernel, places: bool) -> Printer<'k> {
        let (names, named) = (Names::of(kernel), choose_named(kernel));
        Printer { kernel, names, places, named, next_name: 0, out: String::new(), indent: 1 }
    }

    fn kernel(mut self) -> String {
        let kernel = self.kernel;
        if kernel.unchecked {
            self.out.push_str("unchecked ");
        }
        let params: Vec<String> = kernel.params.iter().enumerate().map(|(i, param)| self.param(i, param)).collect();
        self.put(format_args!("kernel {}({})", word(&kernel.name), params.join(", ")));
        if let Some([x, y, z]) = kernel.group_size {
            self.put(format_args!(" group({x}, {y}, {z})"));
        }
        self.out.push_str(" {\n");
        for (memory, name) in kernel.mems.iter().zip(std::mem::take(&mut self.names.mems)) {
            match memory.space {
                Space::Buffer(_) => {}
                Space::Shared(len) => self.put(format_args!("    shared {name}: [{}; {len}]\n", memory.dtype)),
                Space::Private(len) => self.put(format_args!("    private {name}: [{}; {len}]\n", memory.dtype)),
            }
            self.names.mems.push(name);
        }
        self.block(&kernel.body);
        self.out.push_str("}\n");
        self.out
    }

    fn param(&self, position: usize, param: &Param) -> String {
        match param {
            Param::Scalar { ty, .. } => format!("{}: {ty}", self.names.param(position as u32)),
            Param::Buffer(mem) => {
                let (access, dtype) = match self.kernel.mems.get(mem.index()) {
                    Some(Memory { space: Space::Buffer(access), dtype, .. }) => (*access, dtype.name()),
                    Some(_) | None => (Access::In, "?"),
                };
                let access = match access {
                    Access::In => "",
                    Access::Out => "out ",
                    Access::InOut => "mut ",
                };
                format!("{}: &{access}[{dtype}]", self.names.mem(*mem))
            }
        }
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.out.write_fmt(text).expect("writing to a string");
    }

    fn start_line(&mut self) {
        self.out.extend(std::iter::repeat_n("    ", self.indent));
    }

    fn block(&mut self, block: &Block) {
        for stmt in block {
            for operand in stmt.op.operands() {
                self.definitions(operand);
            }
            self.start_line();
            self.statement(stmt);
        }
    }

    /// Defines the unnamed subexpressions that need a name, one per line, operands first.
    fn definitions(&mut self, root: ExprId) {
        let mut pending = vec![(root, false)];
        let mut seen = std::collections::HashSet::new();
        while let Some((id, operands_done)) = pending.pop() {
            let Some(name) = self.named.get(id.index()).copied() else { continue };
            if operands_done {
                if name == Name::Wanted {
                    let (text, number) = (self.composed(id), self.next_name);
                    self.start_line();
                    self.put(format_args!("%{number} := {text}\n"));
                    self.named[id.index()] = Name::Numbered(number);
                    self.next_name += 1;
                }
            } else if !matches!(name, Name::Numbered(_)) && seen.insert(id) {
                pending.push((id, true));
                let operands = self.kernel.exprs.get(id).operands();
                pending.extend(operands.iter().rev().filter(|operand| **operand < id).map(|operand| (*operand, false)));
            }
        }
    }

    fn statement(&mut self, stmt: &Stmt) {
        match &stmt.op {
            Op::Let { local, value } => {
                let text = format!("{} = {}", self.new_local(*local), self.expr(*value));
                self.line(&text, stmt.at);
            }
            Op::Assign { local, value } => {
                let text = format!("{} = {}", self.names.local(*local), self.expr(*value));
                self.line(&text, stmt.at);
            }
            Op::Store { mem, index, value, guard } => {
                let text = format!("{} = {}", self.access(*mem, *index, 1, *guard), self.expr(*value));
                self.line(&text, stmt.at);
            }
            Op::Atomic { op, mem, index, value, expected, old, guard } => {
                let name = ATOMICS.iter().find(|(known, _)| known == op).expect("every atomic has a name").1;
                let mut operands = vec![self.access(*mem, *index, 1, *guard)];
                operands.extend(expected.map(|expected| self.expr(expected)));
                operands.push(self.expr(*value));
                let old = old.map_or(String::new(), |old| self.new_local(old) + " = ");
                self.line(&format!("{old}{name}({})", operands.join(", ")), stmt.at);
            }
            Op::Collective { op, scope, value, result } => {
                let name = collective(*op, *scope);
                let mut operands = self.expr(*value);
                op.operands().into_iter().for_each(|operand| operands += &format!(", {}", self.expr(operand)));
                let text = format!("{} = {name}({operands})", self.new_local(*result));
                self.line(&text, stmt.at);
            }
            Op::Barrier => self.line("barrier()", stmt.at),
            Op::If { condition, then, otherwise } => {
                let text = format!("if {} {{", self.expr(*condition));
                self.line(&text, stmt.at);
                self.inner(then);
                if !otherwise.is_empty() {
                    self.out.push_str("} else {\n");
                    self.inner(otherwise);
                }
                self.out.push_str("}\n");
            }
            Op::For { counter, start, end, step, body } => {
                let ty = self.local_type(*counter);
                let range = format!("{}..{}", self.expr(*start), self.expr(*end));
                let step = if self.is_one(*step) { String::new() } else { format!(" step {}", self.expr(*step)) };
                let text = format!("for {}: {ty} in {range}{step} {{", self.names.local(*counter));
                self.line(&text, stmt.at);
                self.inner(body);
                self.out.push_str("}\n");
            }
            Op::While { condition, body } => {
                let text = format!("while {} {{", self.expr(*condition));
                self.line(&text, stmt.at);
                self.inner(body);
                self.out.push_str("}\n");
            }
            Op::Break => self.line("break", stmt.at),
            Op::Continue => self.line("continue", stmt.at),
            Op::Return => self.line("return", stmt.at),
        }
    }

    /// Prints a nested block, up to the position of its closing brace.
    fn inner(&mut self, block: &Block) {
        self.indent += 1;
        self.block(block);
        self.indent -= 1;
        self.start_line();
    }

    fn line(&mut self, text: &str, at: Loc) {
        self.out.push_str(text);
        if let (true, Some(file)) = (self.places && at.line > 0, self.kernel.files.get(at.file as usize)) {
            let bare = !file.is_empty() && file.chars().all(|c| c.is_ascii_graphic() && c != '"');
            let file = if bare { file.clone() } else { quote(file) };
            self.put(format_args!(" //@ {file}:{}", at.line));
        }
        self.out.push('\n');
    }

    fn new_local(&self, local: LocalId) -> String {
        let mutable = self.kernel.locals.get(local.index()).is_some_and(|local| local.mutable);
        let mutable = if mutable { "mut " } else { "" };
        format!("let {mutable}{}: {}", self.names.local(local), self.local_type(local))
    }

    fn local_type(&self, local: LocalId) -> String {
        self.kernel.locals.get(local.index()).map_or("?".to_string(), |local| local.ty.to_string())
    }

    fn is_one(&self, id: ExprId) -> bool {
        id.index() < self.kernel.exprs.len()
            && match self.kernel.exprs.get(id) {
                Expr::Index(value) => value == 1,
                Expr::Const(value) => value.dtype.is_int() && value.bits == 1,
                _ => false,
            }
    }

    /// Returns an expression at its use: its name if it has one.
    fn expr(&self, id: ExprId) -> String {
        match self.named.get(id.index()) {
            None => "?".to_string(),
            Some(Name::Numbered(number)) => format!("%{number}"),
            Some(Name::Inline | Name::Wanted) => self.composed(id),
        }
    }

    /// Returns an expression written out.
    fn composed(&self, id: ExprId) -> String {
        let expr = self.kernel.exprs.get(id);
        let operand = |operand: ExprId| if operand < id { self.expr(operand) } else { "?".to_string() };
        match expr {
            Expr::Const(value) => constant(value),
            Expr::Index(value) => value.to_string(),
            Expr::Param(position) => self.names.param(position).to_string(),
            Expr::Local(local) => self.names.local(local).to_string(),
            Expr::Builtin(builtin) => builtin_name(builtin),
            Expr::Len(mem) => format!("len({})", self.names.mem(mem)),
            Expr::Load { index, .. } if index >= id => "?".to_string(),
            Expr::Load { mem, index, lanes, guard } => self.access(mem, index, lanes, guard),
            Expr::Alu(op, args) => {
                let operands: Vec<String> = args.iter().map(|arg| operand(*arg)).collect();
                format!("{}({})", op.name(), operands.join(", "))
            }
            Expr::Cast(ty, value) => format!("cast<{ty}>({})", operand(value)),
            Expr::Bitcast(ty, value) => format!("bitcast<{ty}>({})", operand(value)),
            Expr::Splat(value, lanes) => format!("splat<{lanes}>({})", operand(value)),
            Expr::Extract(value, lane) => format!("extract<{lane}>({})", operand(value)),
        }
    }

    fn access(&self, mem: MemId, index: ExprId, lanes: u8, guard: Guard) -> String {
        let guard = match guard {
            Guard::Checked => "",
            Guard::Proven => "proven ",
            Guard::Unchecked => "unchecked ",
        };
        let lanes = if lanes == 1 { String::new() } else { format!("; {lanes}") };
        format!("{}[{guard}{}{lanes}]", self.names.mem(mem), self.expr(index))
    }
}

/// Chooses the expressions to name: those that would make the text longer than linear, or deep.
fn choose_named(kernel: &Kernel) -> Vec<Name> {
    let exprs = &kernel.exprs;
    let mut uses = vec![0_u32; exprs.len()];
    kernel.walk(&mut |stmt| {
        for operand in stmt.op.operands() {
            if let Some(uses) = uses.get_mut(operand.index()) {
                *uses += 1;
            }
        }
    });
    for index in (0..exprs.len()).rev() {
        if uses[index] > 0 {
            for operand in exprs.get(ExprId(index as u32)).operands().iter().filter(|operand| operand.index() < index) {
                uses[operand.index()] += 1;
            }
        }
    }
    let mut named = vec![Name::Inline; exprs.len()];
    let mut inline: Vec<(u32, u32)> = Vec::with_capacity(exprs.len());
    for (id, expr, _) in exprs.iter() {
        let (mut size, mut depth) = (1, 1);
        for operand in expr.operands().iter().filter(|operand| **operand < id) {
            let (operand_size, operand_depth) = inline[operand.index()];
            size += operand_size;
            depth = depth.max(operand_depth + 1);
        }
        if depth >= DEEP || size >= LARGE || uses[id.index()] > 1 && size > SHARED_SIZE {
            named[id.index()] = Name::Wanted;
            (size, depth) = (1, 1);
        }
        inline.push((size, depth));
    }
    named
}

fn builtin_name(builtin: Builtin) -> String {
    let (Builtin::GlobalId(axis)
    | Builtin::LocalId(axis)
    | Builtin::GroupId(axis)
    | Builtin::GlobalSize(axis)
    | Builtin::GroupSize(axis)
    | Builtin::GroupCount(axis)) = builtin
    else {
        return if builtin == Builtin::SubgroupLane { "subgroup_lane_id()" } else { "subgroup_size()" }.to_string();
    };
    let name = BUILTINS.iter().find(|(make, _)| make(axis) == builtin).expect("every builtin has a name").1;
    let axis = ["x", "y", "z"].get(axis as usize).unwrap_or(&"?");
    format!("{name}.{axis}")
}

fn collective(op: CollectiveOp, scope: Scope) -> String {
    let scope = match scope {
        Scope::Group => "group",
        Scope::Subgroup => "subgroup",
    };
    match op {
        CollectiveOp::Reduce(op) => format!("{scope}_{}", op.name()),
        CollectiveOp::InclusiveScan(op) => format!("{scope}_inclusive_{}", op.name()),
        CollectiveOp::ExclusiveScan(op) => format!("{scope}_exclusive_{}", op.name()),
        CollectiveOp::Broadcast(item) => format!("{scope}_broadcast<{item}>"),
        CollectiveOp::Shuffle(_) => format!("{scope}_shuffle"),
        CollectiveOp::Mma(mma) => format!("{scope}_mma<{}>", mma.dtype),
    }
}

fn constant(value: Scalar) -> String {
    let Scalar { dtype, bits } = value;
    if !dtype.is_float() || value.to_f64().is_finite() {
        return value.to_string();
    }
    let named = |known: f64| Scalar::from_f64(dtype, known) == value;
    if named(f64::INFINITY) {
        format!("{dtype}::INFINITY")
    } else if named(f64::NEG_INFINITY) {
        format!("{dtype}::NEG_INFINITY")
    } else if named(f64::NAN) {
        format!("{dtype}::NAN")
    } else {
        format!("{dtype}::from_bits({bits:#x})")
    }
}
