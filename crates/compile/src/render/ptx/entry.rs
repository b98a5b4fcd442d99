//! Renders the program around a kernel's statements: versions, the entry point with its arguments, arrays, launch
//! builtins.

use panoply_ir::kernel::{Access, Builtin, Expr, Kernel, Memory, Param, Space};
use panoply_ir::{DType, Scalar};

use super::super::GeneratedSource;
use super::super::names::Names;
use super::writer::{Class, Writer};
use crate::opt::walk::live_exprs;
use crate::render::assembler::Assembler;

/// Compute capabilities with a separate target, and the PTX version that introduced each.
const KNOWN: [(u32, &str); 18] = [
    (50, "4.0"),
    (52, "4.1"),
    (53, "4.2"),
    (60, "5.0"),
    (61, "5.0"),
    (62, "5.0"),
    (70, "6.0"),
    (72, "6.1"),
    (75, "6.3"),
    (80, "7.0"),
    (86, "7.1"),
    (87, "7.4"),
    (89, "7.8"),
    (90, "7.8"),
    (100, "8.6"),
    (103, "8.8"),
    (120, "8.7"),
    (121, "8.8"),
];

/// Alignment of arrays in bytes: the longest vector load.
pub(super) const ARRAY_ALIGN: usize = 16;

pub(super) fn program(kernel: &Kernel, capability: u32, index_bits: u32) -> GeneratedSource {
    let index = if index_bits == 32 { DType::U32 } else { DType::U64 };
    let mut names = Names::default();
    let entry = names.pick(&kernel.name);
    let mut writer = Writer::new(kernel, capability, index);
    let mut arrays = String::new();
    for mem in &kernel.mems {
        arrays += &array(mem, &mut names, &mut writer);
    }
    let params = writer.arguments();
    writer.numbers();
    writer.block(&kernel.body);
    writer.line("ret");
    let (level, version) = KNOWN.iter().rfind(|(level, _)| *level <= capability).unwrap_or(&KNOWN[0]);
    let group = kernel.group_size.map_or(String::new(), |[x, y, z]| format!(".reqntid {x}, {y}, {z}\n"));
    let source = format!(
        ".version {version}\n.target sm_{level}\n.address_size 64\n\n.visible .entry {entry}(\n    {}\n)\n{group}{{\n{}{arrays}{}\n}}\n",
        params.join(",\n    "),
        writer.declarations(),
        writer.lines.join("\n"),
    );
    GeneratedSource { source, entry, index_bits }
}

/// Returns an array's declaration, empty for a buffer.
fn array(mem: &Memory, names: &mut Names, writer: &mut Writer<'_>) -> String {
    let (space, len) = match mem.space {
        Space::Buffer(_) => {
            writer.bases.push(String::new());
            writer.lens.push(String::new());
            return String::new();
        }
        Space::Shared(len) => ("shared", len),
        Space::Private(len) => ("local", len),
    };
    let name = names.pick(&mem.name);
    let bytes = (len as u64 * mem.dtype.bytes() as u64).max(1);
    let text = format!("    .{space} .align {ARRAY_ALIGN} .b8 {name}[{bytes}];\n");
    writer.bases.push(name);
    writer.lens.push(len.to_string());
    text
}

impl Writer<'_> {
    /// Emits loads of the arguments, as described by `Signature` in the crate `device`, and returns their declarations.
    fn arguments(&mut self) -> Vec<String> {
        let mut declared = Vec::new();
        let kernel = self.kernel;
        let index = if self.index == DType::U32 { "u32" } else { "u64" };
        for (position, param) in kernel.params.iter().enumerate() {
            match param {
                Param::Buffer(mem) => {
                    let name = format!("p{position}");
                    declared.push(format!(".param .u64 {name}, .param .{index} {name}off, .param .{index} {name}len"));
                    let pointer = self.op(Class::B64, "ld.param.u64", &[&format!("[{name}]")]);
                    let global = self.op(Class::B64, "cvta.to.global.u64", &[&pointer]);
                    let offset = self.argument(self.index, &format!("{name}off"));
                    self.lens[mem.index()] = self.argument(self.index, &format!("{name}len"));
                    let bytes = kernel.mem(*mem).dtype.bytes() as u64;
                    self.bases[mem.index()] = self.advance(&global, &offset, bytes);
                    self.params.push(None);
                }
                Param::Scalar { ty, .. } => {
                    let (dtype, name) = (self.element(ty.dtype()), format!("p{position}"));
                    declared.push(format!(".param .{} {name}", in_memory(dtype)));
                    let value = self.argument(dtype, &name);
                    self.params.push(Some(value));
                }
            }
        }
        declared.push([0, 1, 2].map(|axis| format!(".param .{index} size{axis}")).join(", "));
        declared.push([1, 2].map(|axis| format!(".param .u32 base{axis}")).join(", "));
        declared
    }

    /// Loads an argument into a register.
    fn argument(&mut self, dtype: DType, name: &str) -> String {
        self.read("param", dtype, &format!("[{name}]"))
    }

    /// Computes the launch builtins that the kernel uses, and exits work-items beyond an exact grid size.
    fn numbers(&mut self) {
        let mut wanted: Vec<Builtin> = Vec::new();
        if self.kernel.group_size.is_none() {
            for axis in 0..3 {
                wanted.extend([Builtin::GlobalSize(axis), Builtin::GlobalId(axis)]);
            }
        }
        for id in live_exprs(self.kernel) {
            match self.kernel.exprs.get(id) {
                Expr::Builtin(builtin) if !wanted.contains(&builtin) => wanted.push(builtin),
                _ => {}
            }
        }
        for builtin in wanted {
            let value = self.number(builtin);
            self.builtins.insert(builtin, value);
        }
        if self.kernel.group_size.is_none() {
            // Launches are rounded up to whole groups, but this kernel has an exact grid size.
            for axis in 0..3 {
                let (id, size) = (&self.builtins[&Builtin::GlobalId(axis)], &self.builtins[&Builtin::GlobalSize(axis)]);
                let (id, size) = (id.clone(), size.clone());
                let compare = format!("setp.ge.{}", super::writer::int_name(self.index));
                let beyond = self.compare(&compare, &[&id, &size]);
                self.line(format_args!("@{beyond} ret"));
            }
        }
    }

    fn number(&mut self, builtin: Builtin) -> String {
        let axis_name = |axis: u8| ["x", "y", "z"][axis as usize];
        match (builtin, self.kernel.group_size) {
            (Builtin::GlobalSize(axis), _) => self.argument(self.index, &format!("size{axis}")),
            (Builtin::GroupSize(axis), Some(group)) => group[axis as usize].to_string(),
            (Builtin::GroupSize(axis), None) => self.special("ntid", axis_name(axis)),
            (Builtin::LocalId(axis), _) => self.special("tid", axis_name(axis)),
            (Builtin::GroupId(axis), _) => {
                let group = self.group_id(axis);
                self.as_index(group)
            }
            (Builtin::GroupCount(0), _) => self.special("nctaid", "x"),
            (Builtin::GroupCount(axis), group) => {
                // A launch can be one of several along this axis.
                let width = group.map_or(1, |group| group[axis as usize]);
                let (ty, class) = (super::writer::int_name(self.index), Class::of(self.index));
                let size = self.argument(self.index, &format!("size{axis}"));
                let most = self.op(class, &format!("add.{ty}"), &[&size, &(width - 1).to_string()]);
                self.op(class, &format!("div.{ty}"), &[&most, &width.to_string()])
            }
            (Builtin::SubgroupLane, _) => {
                let lane = self.op(Class::B32, "mov.u32", &["%laneid"]);
                self.as_index(lane)
            }
            (Builtin::SubgroupSize, _) => unreachable!("the subgroup size is a constant"),
            (Builtin::GlobalId(axis), _) => {
                let group = self.group_id(axis);
                let raw = ["ntid", "tid"].map(|name| format!("%{name}.{}", axis_name(axis)));
                let [size, item] = raw.map(|name| self.op(Class::B32, "mov.u32", &[&name]));
                if self.index == DType::U32 {
                    return self.op(Class::B32, "mad.lo.u32", &[&group, &size, &item]);
                }
                let item = self.op(Class::B64, "cvt.u64.u32", &[&item]);
                self.op(Class::B64, "mad.wide.u32", &[&group, &size, &item])
            }
        }
    }

    /// Returns the group id among all launches along an axis, in 32 bits.
    fn group_id(&mut self, axis: u8) -> String {
        let name = ["x", "y", "z"][axis as usize];
        let group = self.op(Class::B32, "mov.u32", &[&format!("%ctaid.{name}")]);
        if axis == 0 {
            return group;
        }
        let base = self.argument(DType::U32, &format!("base{axis}"));
        self.op(Class::B32, "add.u32", &[&group, &base])
    }

    /// Returns a special register as an index.
    fn special(&mut self, name: &str, axis: &str) -> String {
        let value = self.op(Class::B32, "mov.u32", &[&format!("%{name}.{axis}")]);
        self.as_index(value)
    }

    fn as_index(&mut self, value: String) -> String {
        if self.index == DType::U32 { value } else { self.op(Class::B64, "cvt.u64.u32", &[&value]) }
    }

    /// Returns true if a memory is read-only, so that loads can use the non-coherent cache.
    pub fn is_constant(&self, space: Space) -> bool {
        space == Space::Buffer(Access::In)
    }
}

/// Returns the type of an element in memory.
pub(super) fn in_memory(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool | DType::U8 => "u8",
        DType::I8 => "s8",
        DType::I16 => "s16",
        DType::U16 | DType::BF16 => "u16",
        DType::F16 => "b16",
        DType::I32 => "s32",
        DType::U32 => "u32",
        DType::I64 => "s64",
        DType::U64 => "u64",
        DType::F32 => "f32",
        DType::F64 => "f64",
    }
}

/// Renders a constant as an operand, except for bools: predicates have no literals.
pub(super) fn literal(value: Scalar) -> String {
    match value.dtype {
        DType::F64 => format!("0d{:016X}", value.bits),
        DType::F32 => format!("0f{:08X}", value.bits),
        DType::F16 | DType::BF16 => format!("0f{:08X}", (value.to_f64() as f32).to_bits()),
        DType::Bool => unreachable!("a bool is a predicate"),
        _ => value.to_i128().to_string(),
    }
}
