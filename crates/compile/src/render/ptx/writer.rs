//! Registers, labels and lines.

use std::collections::HashMap;
use std::fmt::Display;

use panoply_ir::DType;
use panoply_ir::kernel::{Builtin, Kernel, MemId};

use crate::opt::alignment::KnownAlignment;

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Pred,
    B16,
    B32,
    B64,
    F32,
    F64,
}

impl Class {
    pub const ALL: [Class; 6] = [Class::Pred, Class::B16, Class::B32, Class::B64, Class::F32, Class::F64];

    /// The class of an element's register.
    pub fn of(dtype: DType) -> Class {
        match dtype {
            DType::Bool => Class::Pred,
            DType::I8 | DType::I16 | DType::I32 | DType::U8 | DType::U16 | DType::U32 => Class::B32,
            DType::I64 | DType::U64 => Class::B64,
            DType::F16 | DType::BF16 | DType::F32 => Class::F32,
            DType::F64 => Class::F64,
        }
    }

    /// The type without a meaning, as declarations, moves and selections take it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Pred => "pred",
            Class::B16 => "b16",
            Class::B32 => "b32",
            Class::B64 => "b64",
            Class::F32 => "f32",
            Class::F64 => "f64",
        }
    }

    pub fn prefix(self) -> &'static str {
        match self {
            Class::Pred => "%p",
            Class::B16 => "%h",
            Class::B32 => "%r",
            Class::B64 => "%rd",
            Class::F32 => "%f",
            Class::F64 => "%fd",
        }
    }
}

/// The program being written, and what its names stand for.
pub(super) struct Writer<'k> {
    pub kernel: &'k Kernel,
    /// Ten times the device's compute capability.
    pub capability: u32,
    /// What an index is: u32 or u64.
    pub index: DType,
    pub lines: Vec<String>,
    /// Registers of each class so far.
    counts: [u32; 6],
    labels: u32,
    /// The first byte of every memory: a register or a name.
    pub bases: Vec<String>,
    /// The length of every memory: a register or a literal.
    pub lens: Vec<String>,
    /// The value of every scalar parameter; buffers have none.
    pub params: Vec<Option<String>>,
    /// The registers of every local, one for each lane.
    pub locals: Vec<Vec<String>>,
    /// The bits, as they were read, of 16-bit floats that are held as f32: who asks for bits again needs no rounding.
    pub read: HashMap<String, String>,
    /// The launch's numbers that the kernel asks for.
    pub builtins: HashMap<Builtin, String>,
    /// What indices are multiples of.
    pub multiples: KnownAlignment,
    /// Where `continue` and `break` of the loops around lead.
    pub loops: Vec<(String, String)>,
}

impl<'k> Writer<'k> {
    pub fn new(kernel: &'k Kernel, capability: u32, index: DType) -> Writer<'k> {
        Writer {
            kernel,
            capability,
            index,
            lines: Vec::new(),
            counts: [0; 6],
            labels: 0,
            bases: Vec::new(),
            lens: Vec::new(),
            params: Vec::new(),
            locals: vec![Vec::new(); kernel.locals.len()],
            read: HashMap::new(),
            builtins: HashMap::new(),
            multiples: KnownAlignment::of(kernel),
            loops: Vec::new(),
        }
    }

    /// A register nobody has.
    pub fn register(&mut self, class: Class) -> String {
        let count = &mut self.counts[class as usize];
        *count += 1;
        format!("{}{}", class.prefix(), *count)
    }

    /// A label nobody has.
    pub fn label(&mut self) -> String {
        self.labels += 1;
        format!("$L{}", self.labels)
    }

    /// Adds a line.
    pub fn line(&mut self, text: impl Display) {
        self.lines.push(format!("    {text};"));
    }

    /// Puts a label here.
    pub fn place(&mut self, label: &str) {
        self.lines.push(format!("{label}:"));
    }

    /// An instruction whose result is a new register.
    pub fn op(&mut self, class: Class, instruction: &str, operands: &[&str]) -> String {
        let result = self.register(class);
        self.line(format_args!("{instruction} {result}, {}", operands.join(", ")));
        result
    }

    /// A comparison or another test.
    pub fn test(&mut self, instruction: &str, operands: &[&str]) -> String {
        self.op(Class::Pred, instruction, operands)
    }

    /// Copies a register or literal into a register.
    pub fn set(&mut self, class: Class, to: &str, from: &str) {
        if to != from {
            self.line(format_args!("mov.{} {to}, {from}", class.name()));
        }
    }

    /// A value as a register: some instructions take no literals, or none of another type.
    pub fn in_register(&mut self, class: Class, value: &str) -> String {
        match value.starts_with('%') {
            true => value.to_string(),
            false => self.op(class, &format!("mov.{}", class.name()), &[value]),
        }
    }

    /// Goes to a label if a predicate is (or is not) true.
    pub fn branch(&mut self, predicate: &str, when: bool, label: &str) {
        let not = if when { "" } else { "!" };
        self.line(format_args!("@{not}{predicate} bra {label}"));
    }

    /// The declarations of all registers.
    pub fn declarations(&self) -> String {
        let mut text = String::new();
        for class in Class::ALL {
            let count = self.counts[class as usize];
            if count > 0 {
                text += &format!("    .reg .{} {}<{}>;\n", class.name(), class.prefix(), count + 1);
            }
        }
        text
    }

    /// The first byte of a memory.
    pub fn base(&self, mem: MemId) -> &str {
        &self.bases[mem.index()]
    }
}

/// The type under which an integer is computed: as wide as its register, signed or not.
pub(super) fn int_name(dtype: DType) -> &'static str {
    match dtype {
        DType::I8 | DType::I16 | DType::I32 => "s32",
        DType::I64 => "s64",
        DType::U64 => "u64",
        DType::U8 | DType::U16 | DType::U32 | DType::Bool => "u32",
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => unreachable!("{dtype} is no integer"),
    }
}

/// f32 or f64: what a float is computed in.
pub(super) fn float_name(dtype: DType) -> &'static str {
    if dtype == DType::F64 { "f64" } else { "f32" }
}
