//! Renders the program around a kernel's statements: bindings, functions, the entry point, launch builtins.
//!
//! Binding 0 of group 0 holds the launch's arguments as 32-bit words; buffers follow from binding 1 on. The words are,
//! in the order of the parameters: a buffer's offset and length in elements; a scalar's bits. They are followed by the
//! three global sizes, then as `u32` the first group along each axis (a launch can be one of several), and a word that
//! is always zero. A 64-bit value is two words, the low one first.

use panoply_ir::kernel::{Builtin, Kernel, Param, Space};
use panoply_ir::{DType, Target, Type};

use super::super::GeneratedSource;
use super::super::entry::builtins;
use super::super::expr::{Value, builtin_name};
use super::super::names::Names;
use super::expr::{Writer, is_literal};
use super::int64::PAIR;
use super::memory::{ElementStorage, Mem};
use crate::opt::walk::live_exprs;

pub(super) fn program(kernel: &Kernel, target: &Target, index_bits: u32) -> GeneratedSource {
    let index = if index_bits == 32 { DType::U32 } else { DType::U64 };
    let mut names = Names::default();
    let entry = names.pick(&kernel.name);
    let mems = kernel.mems.iter().enumerate();
    let mems = mems
        .map(|(i, mem)| Mem { name: names.pick(&mem.name), held: ElementStorage::of(kernel, target, i, mem) })
        .collect();
    let mut writer = Writer::new(kernel, target, index, names, mems);
    let words = writer.arguments();
    writer.numbers(&builtins(kernel, &live_exprs(kernel)));
    let private = |mem: &&panoply_ir::kernel::Memory| matches!(mem.space, Space::Private(_));
    for (position, _) in kernel.mems.iter().enumerate().filter(|(_, mem)| private(mem)) {
        let declaration = writer.array(position);
        writer.line(format!("var {declaration};"));
    }
    writer.block(&kernel.body);
    let [x, y, z] = match kernel.group_size {
        Some(group) => group.map(|width| width.to_string()),
        None => [0, 1, 2].map(|axis| format!("items{axis}")),
    };
    let own = if writer.soft.shuffles() { ", @builtin(subgroup_invocation_id) own: u32" } else { "" };
    let source = format!(
        "{}\n{}@compute @workgroup_size({x}, {y}, {z})\nfn {entry}(@builtin(workgroup_id) workgroup: vec3<u32>, \
         @builtin(local_invocation_id) local: vec3<u32>{own}) {{\n{}\n}}\n",
        writer.declarations(words),
        writer.soft.source(),
        writer.lines.join("\n"),
    );
    GeneratedSource { source, entry, index_bits }
}

const AXES: [&str; 3] = ["x", "y", "z"];

impl Writer<'_> {
    /// Returns the declarations before the functions.
    fn declarations(&self, words: u32) -> String {
        let halves = self.mems.iter().any(|mem| mem.held == ElementStorage::Halves);
        let mut text = if halves { "enable f16;\n".to_string() } else { String::new() };
        if self.kernel.group_size.is_none() {
            for axis in 0..3 {
                text += &format!("override items{axis}: u32 = 1u;\n");
            }
        }
        text += &format!("@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, {}>;\n", words.div_ceil(4));
        let mut binding = 0;
        for param in &self.kernel.params {
            let Param::Buffer(mem) = param else { continue };
            binding += 1;
            let Mem { name, held } = &self.mems[mem.index()];
            let element = held.element();
            text += &format!("@group(0) @binding({binding}) var<storage, read_write> {name}: array<{element}>;\n");
        }
        for (position, mem) in self.kernel.mems.iter().enumerate() {
            if matches!(mem.space, Space::Shared(_)) {
                text += &format!("var<workgroup> {};\n", self.array(position));
            }
        }
        text
    }

    /// Returns an array's name and type.
    fn array(&self, position: usize) -> String {
        let (Space::Shared(len) | Space::Private(len)) = self.kernel.mems[position].space else {
            unreachable!("the memory is an array")
        };
        let Mem { name, held } = &self.mems[position];
        format!("{name}: array<{}, {}>", held.element(), len.max(1))
    }

    /// Emits loads of the arguments, and returns how many words they occupy.
    fn arguments(&mut self) -> u32 {
        let index = self.index;
        let mut next = 0;
        for param in &self.kernel.params {
            match param {
                Param::Buffer(mem) => {
                    for part in ["off", "len"] {
                        let name = format!("{}{part}", self.mems[mem.index()].name);
                        self.argument(&name, index, &mut next);
                    }
                    self.params.push(None);
                }
                Param::Scalar { name, ty } => {
                    let name = self.names.pick(name);
                    self.argument(&name, ty.dtype().unwrap_or(index), &mut next);
                    self.params.push(Some(Value::atom(name)));
                }
            }
        }
        for axis in 0..3 {
            self.argument(&format!("size{axis}"), index, &mut next);
        }
        for axis in 0..3 {
            self.argument(&format!("base{axis}"), DType::U32, &mut next);
        }
        self.argument("zero", DType::U32, &mut next);
        next
    }

    /// Names an argument stored in the next word or two.
    fn argument(&mut self, name: &str, dtype: DType, next: &mut u32) {
        let mut word = || {
            *next += 1;
            format!("launch[{}].{}", (*next - 1) / 4, ["x", "y", "z", "w"][((*next - 1) % 4) as usize])
        };
        let text = if dtype.bytes() == 8 {
            let (low, high) = (word(), word());
            let pair = self.is_pair(dtype);
            let long = format!("(u64({low}) | (u64({high}) << 32u))");
            if pair {
                format!("{PAIR}({low}, {high})")
            } else if dtype == DType::U64 {
                long
            } else {
                format!("bitcast<{}>({long})", self.type_name(dtype))
            }
        } else {
            let word = word();
            self.read_word(dtype, &word, "0u")
        };
        let ty = self.type_name(self.register(Some(dtype)));
        self.line(format!("let {name}: {ty} = {text};"));
    }

    /// Computes the launch builtins that the kernel uses, and exits work-items beyond an exact grid size.
    fn numbers(&mut self, wanted: &[Builtin]) {
        let index = self.type_name(self.index);
        for builtin in wanted {
            let text = self.number(*builtin);
            let keyword = if is_literal(&text) { "var" } else { "let" };
            self.line(format!("{keyword} {}: {index} = {text};", builtin_name(*builtin)));
        }
        if self.kernel.group_size.is_none() {
            // Launches are rounded up to whole groups, but this kernel has an exact grid size.
            self.line("if (gid0 >= size0) || (gid1 >= size1) || (gid2 >= size2) { return; }");
        }
    }

    fn number(&self, builtin: Builtin) -> String {
        let wide = |text: String| if self.index == DType::U32 { text } else { format!("u64({text})") };
        let width = |axis: u8| match self.kernel.group_size {
            Some(group) => format!("{}u", group[axis as usize]),
            None => format!("items{axis}"),
        };
        let part = |of: &str, axis: u8| format!("{of}.{}", AXES[axis as usize]);
        let group = |axis: u8| format!("{} + base{axis}", part("workgroup", axis));
        match builtin {
            Builtin::GlobalId(axis) => {
                let (group, width) = (wide(group(axis)), wide(width(axis)));
                format!("({group}) * {width} + {}", wide(part("local", axis)))
            }
            Builtin::LocalId(axis) => wide(part("local", axis)),
            Builtin::GroupId(axis) => wide(group(axis)),
            Builtin::GroupSize(axis) => wide(width(axis)),
            // A launch can be one of several, so the API's builtin for the group count is not usable.
            Builtin::GroupCount(axis) => {
                let width = wide(width(axis));
                format!("(size{axis} + ({width} - {})) / {width}", self.index_literal(1))
            }
            // Groups with subgroups are one-dimensional.
            Builtin::SubgroupLane => wide(format!("{} & {}u", part("local", 0), self.subgroup - 1)),
            Builtin::SubgroupSize => unreachable!("the subgroup size is a constant"),
            Builtin::GlobalSize(_) => unreachable!("sizes are arguments"),
        }
    }

    /// Returns the type of a local or temporary.
    pub fn register_name(&self, ty: Type) -> &'static str {
        self.type_name(self.register(ty.dtype()))
    }
}
