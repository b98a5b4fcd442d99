//! Renders expressions as WGSL, each shared node once; the traversal is that of the C family.

use std::collections::BTreeMap;

use panoply_ir::kernel::{Args, Builtin, Expr, ExprId, Guard, Kernel, LocalId, MemId, Space};
use panoply_ir::{DType, Scalar, Target, Type};

use super::super::expr::{LONG, Value, builtin_name, uses};
use super::super::names::Names;
use super::super::ops::bare;
use super::int64::PAIR;
use super::memory::Mem;
use super::soft_float::Soft;

/// The program being rendered, with the names of its entities.
pub(super) struct Writer<'k> {
    pub kernel: &'k Kernel,
    /// Index type: u32 or u64.
    pub index: DType,
    /// True if the device has f64.
    pub f64: bool,
    /// True if the device has 64-bit integers; otherwise they are emulated by pairs of words.
    pub int64: bool,
    /// Work-items of a subgroup.
    pub subgroup: u32,
    pub names: Names,
    pub mems: Vec<Mem>,
    /// Value of every scalar parameter; `None` for buffers.
    pub params: Vec<Option<Value>>,
    /// Names of every local introduced so far, one per lane.
    pub locals: Vec<Vec<String>>,
    pub soft: Soft,
    pub lines: Vec<String>,
    pub depth: usize,
    temporaries: usize,
}

impl<'k> Writer<'k> {
    pub fn new(kernel: &'k Kernel, target: &Target, index: DType, names: Names, mems: Vec<Mem>) -> Writer<'k> {
        let locals = vec![Vec::new(); kernel.locals.len()];
        let (params, soft, lines) = (Vec::new(), Soft::default(), Vec::new());
        let Target { f64, int64, .. } = *target;
        let subgroup = target.subgroup_of(kernel.group_size);
        Writer {
            kernel,
            index,
            f64,
            int64,
            subgroup,
            names,
            mems,
            params,
            locals,
            soft,
            lines,
            depth: 1,
            temporaries: 0,
        }
    }

    /// Appends a line.
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.lines.push(format!("{:1$}{2}", "", 4 * self.depth, text.as_ref()));
    }

    /// Assigns a value to a named constant.
    pub fn name(&mut self, ty: &str, text: &str) -> String {
        let name = self.next_temporary();
        self.line(format!("let {name}: {ty} = {};", bare(text)));
        name
    }

    /// Assigns a constant to a variable, to prevent constant evaluation by the compiler: a variable is never a constant
    /// expression, while some compilers look through `let`.
    pub fn opaque(&mut self, ty: &str, text: &str) -> String {
        let name = self.next_temporary();
        self.line(format!("var {name}: {ty} = {};", bare(text)));
        name
    }

    pub fn next_temporary(&mut self) -> String {
        self.temporaries += 1;
        format!("t{}", self.temporaries)
    }

    /// Returns the only lane of a value as a name or literal.
    pub fn named(&mut self, ty: &str, value: &Value) -> String {
        if value.atom { value.lanes[0].clone() } else { self.name(ty, &value.lanes[0]) }
    }

    /// Returns the type of a register that holds an element; for an index the index type.
    pub fn register(&self, dtype: Option<DType>) -> DType {
        match dtype {
            None => self.index,
            Some(DType::I8 | DType::I16) => DType::I32,
            Some(DType::U8 | DType::U16) => DType::U32,
            Some(DType::F16 | DType::BF16) => DType::F32,
            Some(dtype) => dtype,
        }
    }

    /// Returns the name of the type that holds an element.
    pub fn type_name(&self, dtype: DType) -> &'static str {
        match self.register(Some(dtype)) {
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::F32 => "f32",
            DType::I64 | DType::U64 if !self.int64 => PAIR,
            DType::I64 => "i64",
            DType::U64 => "u64",
            DType::F64 => "f64",
            _ => "bool",
        }
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
    pub fn temporary(&mut self, id: ExprId, value: Value) -> Value {
        let ty = self.register_name(self.kernel.exprs.ty(id));
        let lanes = value.lanes.iter().map(|text| self.name(ty, text)).collect();
        Value { lanes, atom: true, fixed: true }
    }

    fn node(&mut self, id: ExprId, values: &mut BTreeMap<ExprId, Value>) -> Value {
        let exprs = &self.kernel.exprs;
        let dtype = exprs.ty(id).dtype();
        match exprs.get(id) {
            Expr::Const(value) => Value::atom(self.literal(value)),
            Expr::Index(value) => Value::atom(self.index_literal(value)),
            Expr::Param(position) => self.params[position as usize].clone().expect("a scalar parameter has a value"),
            Expr::Local(local) => {
                let fixed = !self.kernel.local(local).mutable;
                Value { lanes: self.locals[local.index()].clone(), atom: true, fixed }
            }
            Expr::Builtin(builtin) => Value::atom(self.builtin(builtin)),
            Expr::Len(mem) => Value::atom(self.len(mem)),
            Expr::Load { mem, index, lanes, guard } => self.load_node(mem, index, lanes, guard, values),
            Expr::Alu(op, args) => {
                // The relevant type of a comparison is that of its operands, and of a select that of its alternatives.
                let ty = exprs.ty(args[args.len() - 1]).dtype();
                self.lanewise(&args, values, |writer, texts| writer.alu(op, ty, texts))
            }
            Expr::Cast(_, x) => {
                let from = exprs.ty(x).dtype();
                self.lanewise(&Args::new(&[x]), values, |writer, texts| writer.cast(from, dtype, &texts[0]))
            }
            Expr::Bitcast(_, x) => {
                let from = exprs.ty(x).dtype();
                self.lanewise(&Args::new(&[x]), values, |writer, texts| writer.bitcast(from, dtype, &texts[0]))
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

    fn load_node(
        &mut self,
        mem: MemId,
        index: ExprId,
        lanes: u8,
        guard: Guard,
        values: &mut BTreeMap<ExprId, Value>,
    ) -> Value {
        let index = self.atom(index, values).lanes.swap_remove(0);
        self.load(mem, &index, lanes, guard)
    }

    /// Applies an operation to each lane. If all operands are constants, the first is assigned to a variable: compilers
    /// evaluate constant expressions and reject overflow.
    fn lanewise(
        &mut self,
        args: &Args,
        values: &BTreeMap<ExprId, Value>,
        mut op: impl FnMut(&mut Self, &[String]) -> String,
    ) -> Value {
        let count = args.iter().map(|arg| values[arg].lanes.len()).max().unwrap_or(1);
        let mut lanes = Vec::with_capacity(count);
        for lane in 0..count {
            let mut texts: Vec<String> = args.iter().map(|arg| values[arg].lanes[lane].clone()).collect();
            if texts.iter().all(|text| is_literal(text)) {
                let ty = self.register_name(self.kernel.exprs.ty(args[0]));
                texts[0] = self.opaque(ty, &texts[0]);
            }
            lanes.push(op(self, &texts));
        }
        Value { lanes, atom: false, fixed: false }
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

    /// Returns the constant in the type of its register, as a name or literal.
    pub fn literal(&mut self, value: Scalar) -> String {
        match value.dtype {
            DType::Bool => value.is_true().to_string(),
            DType::F16 | DType::BF16 | DType::F32 => {
                let single = value.to_f64() as f32;
                let bits = single.to_bits();
                match single.classify() {
                    std::num::FpCategory::Normal if single > 0.0 => format!("{single:?}f"),
                    std::num::FpCategory::Zero => {
                        let sign = if bits == 0 { "" } else { " | 0x80000000u" };
                        self.name("f32", &format!("bitcast<f32>(zero{sign})"))
                    }
                    _ => {
                        let bits = self.opaque("u32", &format!("{bits:#x}u"));
                        self.name("f32", &format!("bitcast<f32>({bits})"))
                    }
                }
            }
            DType::F64 => {
                let double = f64::from_bits(value.bits);
                if double.is_normal() && double > 0.0 {
                    return format!("{double:?}lf");
                }
                if double == 0.0 {
                    let sign = if value.bits == 0 { "" } else { " | 0x8000000000000000lu" };
                    return self.name("f64", &format!("bitcast<f64>(u64(zero){sign})"));
                }
                let bits = self.opaque("u64", &format!("{:#x}lu", value.bits));
                self.name("f64", &format!("bitcast<f64>({bits})"))
            }
            DType::I64 | DType::U64 if !self.int64 => {
                let bits = value.to_i128() as u64;
                format!("vec2<u32>({}u, {}u)", bits as u32, bits >> 32)
            }
            DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
                let register = self.register(Some(value.dtype));
                match int_literal(register, value.to_i128()) {
                    literal if literal.contains(" - ") => self.opaque(self.type_name(register), &literal),
                    literal => literal,
                }
            }
        }
    }

    /// Returns the literal for zero in an element's register.
    pub fn zero(&self, dtype: DType) -> &'static str {
        match self.register(Some(dtype)) {
            DType::I32 => "0i",
            DType::U32 => "0u",
            DType::F32 => "0.0f",
            DType::I64 | DType::U64 if !self.int64 => "vec2<u32>()",
            DType::I64 => "0li",
            DType::U64 => "0lu",
            DType::F64 => "0.0lf",
            _ => "false",
        }
    }

    /// Returns the literal for one in an element's register.
    pub fn one(&self, dtype: DType) -> &'static str {
        match self.register(Some(dtype)) {
            DType::I32 => "1i",
            DType::U32 => "1u",
            DType::F32 => "1.0f",
            DType::I64 | DType::U64 if !self.int64 => "vec2<u32>(1u, 0u)",
            DType::I64 => "1li",
            DType::U64 => "1lu",
            DType::F64 => "1.0lf",
            _ => "true",
        }
    }

    pub fn index_literal(&self, value: u64) -> String {
        if self.index == DType::U32 { format!("{}u", value as u32) } else { format!("{value}lu") }
    }

    /// Returns the length of a memory in elements.
    pub fn len(&self, mem: MemId) -> String {
        match self.kernel.mem(mem).space {
            Space::Buffer(_) => format!("{}len", self.mems[mem.index()].name),
            Space::Shared(len) | Space::Private(len) => self.index_literal(u64::from(len)),
        }
    }

    fn builtin(&self, builtin: Builtin) -> String {
        match (builtin, self.kernel.group_size) {
            (Builtin::GroupSize(axis), Some(group)) => self.index_literal(u64::from(group[axis as usize])),
            _ => builtin_name(builtin),
        }
    }

    /// Allocates names for a local.
    pub fn introduce(&mut self, local: LocalId) -> Vec<String> {
        let known = self.kernel.local(local);
        let name = self.names.pick(&known.name);
        let names: Vec<String> = match known.ty.lanes() {
            1 => vec![name],
            lanes => (0..lanes).map(|lane| format!("{name}l{lane}")).collect(),
        };
        self.locals[local.index()].clone_from(&names);
        names
    }

    /// Assigns the lanes of a value to temporaries.
    pub fn name_lanes(&mut self, ty: Type, value: &Value) -> Value {
        let ty = self.register_name(ty);
        let lanes = value.lanes.iter().map(|text| self.name(ty, text)).collect();
        Value { lanes, atom: true, fixed: true }
    }
}

/// Returns true if a text is a literal, with which compilers could compute.
pub(super) fn is_literal(text: &str) -> bool {
    let unsigned = bare(text).trim_start_matches('-');
    unsigned.starts_with(|c: char| c.is_ascii_digit()) && !unsigned.contains(' ') || text == "true" || text == "false"
}

fn int_literal(dtype: DType, value: i128) -> String {
    let suffix = match dtype {
        DType::U32 => "u",
        DType::I64 => "li",
        DType::U64 => "lu",
        _ => "i",
    };
    // The minimum has no literal: the number after the minus sign is too large for the type.
    let least = -(1i128 << (dtype.bits() - 1));
    match value {
        _ if value >= 0 => format!("{value}{suffix}"),
        _ if value == least => format!("({}{suffix} - 1{suffix})", value + 1),
        _ => format!("({value}{suffix})"),
    }
}
