//! Registers, labels and lines of a PTX program.

use std::collections::HashMap;
use std::fmt::Display;

use panoply_ir::DType;
use panoply_ir::kernel::{Builtin, Kernel, MemId};

use crate::opt::alignment::KnownAlignment;

/// Register class.
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

    /// Returns the register class of an element.
    pub fn of(dtype: DType) -> Class {
        match dtype {
            DType::Bool => Class::Pred,
            DType::I8 | DType::I16 | DType::I32 | DType::U8 | DType::U16 | DType::U32 => Class::B32,
            DType::I64 | DType::U64 => Class::B64,
            DType::F16 | DType::BF16 | DType::F32 => Class::F32,
            DType::F64 => Class::F64,
        }
    }

    /// Returns the untyped name used in declarations, moves and selections.
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

/// The program being rendered, with the names of its entities.
pub(super) struct Writer<'k> {
    pub kernel: &'k Kernel,
    /// Compute capability of the device times ten.
    pub capability: u32,
    /// Index type: u32 or u64.
    pub index: DType,
    pub lines: Vec<String>,
    /// Number of registers of each class so far.
    counts: [u32; 6],
    labels: u32,
    /// Start of every memory: a register or a name.
    pub bases: Vec<String>,
    /// Length of every memory: a register or a literal.
    pub lens: Vec<String>,
    /// Value of every scalar parameter; `None` for buffers.
    pub params: Vec<Option<String>>,
    /// Registers of every local, one per lane.
    pub locals: Vec<Vec<String>>,
    /// Original bits of loaded 16-bit floats, which are held as f32: converting back to bits then needs no rounding.
    pub read: HashMap<String, String>,
    /// Values of the launch builtins that the kernel uses.
    pub builtins: HashMap<Builtin, String>,
    /// Known alignment of indices.
    pub multiples: KnownAlignment,
    /// Targets of `continue` and `break` of the enclosing loops.
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

    /// Allocates a register.
    pub fn register(&mut self, class: Class) -> String {
        let count = &mut self.counts[class as usize];
        *count += 1;
        format!("{}{}", class.prefix(), *count)
    }

    /// Allocates a label.
    pub fn label(&mut self) -> String {
        self.labels += 1;
        format!("$L{}", self.labels)
    }

    /// Appends a line.
    pub fn line(&mut self, text: impl Display) {
        self.lines.push(format!("    {text};"));
    }

    /// Places a label at the current position.
    pub fn bind_label(&mut self, label: &str) {
        self.lines.push(format!("{label}:"));
    }

    /// Emits an instruction whose result is a new register.
    pub fn op(&mut self, class: Class, instruction: &str, operands: &[&str]) -> String {
        let result = self.register(class);
        self.line(format_args!("{instruction} {result}, {}", operands.join(", ")));
        result
    }

    /// Emits a comparison or another instruction with a predicate result.
    pub fn compare(&mut self, instruction: &str, operands: &[&str]) -> String {
        self.op(Class::Pred, instruction, operands)
    }

    /// Copies a register or literal into a register.
    pub fn set(&mut self, class: Class, to: &str, from: &str) {
        if to != from {
            self.line(format_args!("mov.{} {to}, {from}", class.name()));
        }
    }

    /// Returns a value in a register: some instructions accept no literals, or none of another type.
    pub fn in_register(&mut self, class: Class, value: &str) -> String {
        match value.starts_with('%') {
            true => value.to_string(),
            false => self.op(class, &format!("mov.{}", class.name()), &[value]),
        }
    }

    /// Branches to a label if a predicate is true, or false, depending on `when`.
    pub fn branch(&mut self, predicate: &str, when: bool, label: &str) {
        let not = if when { "" } else { "!" };
        self.line(format_args!("@{not}{predicate} bra {label}"));
    }

    /// Returns the declarations of all registers.
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

    /// Returns the start of a memory.
    pub fn base(&self, mem: MemId) -> &str {
        &self.bases[mem.index()]
    }
}

/// Returns the type in which an integer is computed: as wide as its register, signed or unsigned.
pub(super) fn int_name(dtype: DType) -> &'static str {
    match dtype {
        DType::I8 | DType::I16 | DType::I32 => "s32",
        DType::I64 => "s64",
        DType::U64 => "u64",
        DType::U8 | DType::U16 | DType::U32 | DType::Bool => "u32",
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => unreachable!("{dtype} is not an integer type"),
    }
}

/// Returns the type in which a float is computed: f32 or f64.
pub(super) fn float_name(dtype: DType) -> &'static str {
    if dtype == DType::F64 { "f64" } else { "f32" }
}
