//! The sections of a module, and the function being rendered.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;

use panoply_ir::kernel::{Builtin, Kernel};
use panoply_ir::{DType, Scalar};

use super::entry::FIRST;
use crate::render::assembler::Value;
use crate::render::names::Names;

/// The module being rendered, with the names of its entities.
///
/// Names that come from the kernel end in an underscore, or in an underscore and digits. Names of types and constants
/// do not, and those of results are numbers, so they never collide.
pub(super) struct Writer<'k> {
    pub kernel: &'k Kernel,
    /// Index type: u32 or u64.
    pub index: DType,
    /// True if f16 conversions are native.
    pub native_f16: bool,
    pub names: Names,
    pub capabilities: BTreeSet<&'static str>,
    pub extensions: BTreeSet<&'static str>,
    pub decorations: Vec<String>,
    /// Types, constants and variables outside the function.
    pub globals: Vec<String>,
    /// Name of the global with each definition.
    known: HashMap<String, String>,
    /// Variables of the function.
    pub variables: Vec<String>,
    pub lines: Vec<String>,
    /// Number of results so far.
    results: u32,
    /// Number of labels so far.
    labels: u32,
    /// Label of the current block.
    pub block: String,
    /// True if the current block has been terminated.
    terminated: bool,
    /// Start of every buffer, and variable of every array.
    pub bases: Vec<String>,
    /// Length of every memory.
    pub lens: Vec<String>,
    /// Value of every scalar parameter; `None` for buffers.
    pub params: Vec<Option<String>>,
    /// Values of every local, or its variables if it is mutable, one per lane.
    pub locals: Vec<Value>,
    /// Values of the launch builtins that the kernel uses.
    pub builtins: HashMap<Builtin, String>,
    /// Targets of `continue` and `break` of the enclosing loops.
    pub loops: Vec<(String, String)>,
}

impl<'k> Writer<'k> {
    pub fn new(kernel: &'k Kernel, index: DType, native_f16: bool) -> Writer<'k> {
        Writer {
            kernel,
            index,
            native_f16,
            names: Names::default(),
            capabilities: ["Addresses", "Kernel"].into(),
            extensions: BTreeSet::new(),
            decorations: Vec::new(),
            globals: Vec::new(),
            known: HashMap::new(),
            variables: Vec::new(),
            lines: Vec::new(),
            results: 0,
            labels: 0,
            block: FIRST.to_string(),
            terminated: false,
            bases: Vec::new(),
            lens: Vec::new(),
            params: Vec::new(),
            locals: vec![Vec::new(); kernel.locals.len()],
            builtins: HashMap::new(),
            loops: Vec::new(),
        }
    }

    /// Returns the type or constant with this definition, creating it if needed.
    pub fn global(&mut self, name: impl FnOnce() -> String, definition: String) -> String {
        if let Some(known) = self.known.get(&definition) {
            return known.clone();
        }
        let name = format!("%{}", name());
        self.globals.push(format!("{name} = {definition}"));
        self.known.insert(definition, name.clone());
        name
    }

    fn simple(&mut self, name: &str, definition: &str) -> String {
        self.global(|| name.into(), definition.into())
    }

    /// Returns the type of a register that holds an element.
    pub fn ty(&mut self, dtype: DType) -> String {
        match dtype {
            DType::Bool => self.simple("bool", "OpTypeBool"),
            DType::I8 | DType::U8 => {
                self.capabilities.insert("Int8");
                self.simple("uchar", "OpTypeInt 8 0")
            }
            DType::I16 | DType::U16 => {
                self.capabilities.insert("Int16");
                self.simple("ushort", "OpTypeInt 16 0")
            }
            DType::I32 | DType::U32 => self.simple("uint", "OpTypeInt 32 0"),
            DType::I64 | DType::U64 => {
                self.capabilities.insert("Int64");
                self.simple("ulong", "OpTypeInt 64 0")
            }
            DType::F16 | DType::BF16 | DType::F32 => self.simple("float", "OpTypeFloat 32"),
            DType::F64 => {
                self.capabilities.insert("Float64");
                self.simple("double", "OpTypeFloat 64")
            }
        }
    }

    /// Returns the void type.
    pub fn void(&mut self) -> String {
        self.simple("void", "OpTypeVoid")
    }

    /// Returns the 16-bit float type. It is used only in conversions, or only behind pointers if the device lacks it.
    pub fn half(&mut self) -> String {
        self.capabilities.insert(if self.native_f16 { "Float16" } else { "Float16Buffer" });
        self.simple("half", "OpTypeFloat 16")
    }

    /// Returns a vector type.
    pub fn vector(&mut self, element: &str, lanes: u8) -> String {
        if lanes > 4 {
            self.capabilities.insert("Vector16");
        }
        self.global(|| format!("v{lanes}{}", &element[1..]), format!("OpTypeVector {element} {lanes}"))
    }

    /// Returns an array type.
    pub fn array(&mut self, element: &str, len: u32) -> String {
        let count = self.int(DType::U32, len.max(1).into());
        self.global(|| format!("array{len}{}", &element[1..]), format!("OpTypeArray {element} {count}"))
    }

    /// Returns the type of pointers to a storage class.
    pub fn pointer(&mut self, class: &str, to: &str) -> String {
        self.global(|| format!("ptr{class}{}", &to[1..]), format!("OpTypePointer {class} {to}"))
    }

    /// Returns a constant of an integer type or bool.
    pub fn int(&mut self, dtype: DType, value: u64) -> String {
        self.constant(Scalar::from_i128(dtype, value.into()))
    }

    /// Returns a constant in its register representation.
    pub fn constant(&mut self, value: Scalar) -> String {
        let ty = self.ty(value.dtype);
        let text = match value.dtype {
            DType::Bool => {
                let word = if value.is_true() { "True" } else { "False" };
                return self.global(|| word.to_lowercase(), format!("OpConstant{word} {ty}"));
            }
            DType::F16 | DType::BF16 | DType::F32 => {
                let value = value.to_f64() as f32;
                float(value.is_finite().then(|| format!("{value:?}")), value.to_bits().into(), 23)
            }
            DType::F64 => {
                let value = f64::from_bits(value.bits);
                float(value.is_finite().then(|| format!("{value:?}")), value.to_bits(), 52)
            }
            _ => value.bits.to_string(),
        };
        let name = text.replace('-', "n").replace(['.', '+'], "_");
        self.global(|| format!("{name}_{}", &ty[1..]), format!("OpConstant {ty} {text}"))
    }

    /// Allocates a result id.
    pub fn result(&mut self) -> String {
        self.results += 1;
        format!("%{}", self.results)
    }

    /// Allocates a label.
    pub fn label(&mut self) -> String {
        self.labels += 1;
        format!("%L{}", self.labels)
    }

    /// Appends an instruction.
    pub fn line(&mut self, text: impl Display) {
        if self.terminated {
            // Instructions after a jump are unreachable, but must still be in a block.
            let unreached = self.label();
            self.bind_label(&unreached);
        }
        self.lines.push(text.to_string());
    }

    /// Appends the terminator of a block.
    fn end(&mut self, text: impl Display) {
        self.line(text);
        self.terminated = true;
    }

    /// Branches to a label.
    pub fn jump(&mut self, label: &str) {
        self.end(format_args!("OpBranch {label}"));
    }

    /// Branches to one of two labels.
    pub fn branch(&mut self, condition: &str, yes: &str, no: &str) {
        self.end(format_args!("OpBranchConditional {condition} {yes} {no}"));
    }

    /// Branches to a label, unless the block is already terminated.
    pub fn fall_through(&mut self, label: &str) {
        if !self.terminated {
            self.jump(label);
        }
    }

    /// Ends the function.
    pub fn finish(&mut self) {
        if !self.terminated {
            self.emit_return();
        }
    }

    /// Returns from the kernel.
    pub fn emit_return(&mut self) {
        self.end("OpReturn");
    }

    /// Begins a block; the previous one falls through unless it is terminated.
    pub fn bind_label(&mut self, label: &str) {
        self.fall_through(label);
        self.terminated = false;
        self.block = label.to_string();
        self.lines.push(format!("{label} = OpLabel"));
    }

    /// Emits an instruction with a result.
    pub fn op(&mut self, ty: &str, instruction: &str, operands: &[&str]) -> String {
        let result = self.result();
        self.line(format_args!("{result} = {instruction} {ty} {}", operands.join(" ")));
        result
    }

    /// Emits a comparison or another instruction with a bool result.
    pub fn compare(&mut self, instruction: &str, operands: &[&str]) -> String {
        let ty = self.ty(DType::Bool);
        self.op(&ty, instruction, operands)
    }

    /// Emits a select between two values of a type.
    pub fn select(&mut self, ty: &str, condition: &str, yes: &str, no: &str) -> String {
        self.op(ty, "OpSelect", &[condition, yes, no])
    }

    /// Emits a call of a function of OpenCL.std.
    pub fn call(&mut self, ty: &str, function: &str, operands: &[&str]) -> String {
        let result = self.result();
        self.line(format_args!("{result} = OpExtInst {ty} %opencl {function} {}", operands.join(" ")));
        result
    }

    /// Declares a variable of the function for values of a type.
    pub fn variable(&mut self, ty: &str) -> String {
        let (pointer, name) = (self.pointer("Function", ty), self.result());
        self.variables.push(format!("{name} = OpVariable {pointer} Function"));
        name
    }

    /// Emits a conditional computation: the result of `yes` if the condition holds, otherwise the existing value `no`.
    pub fn when(&mut self, condition: &str, ty: &str, no: &str, yes: impl FnOnce(&mut Self) -> String) -> String {
        let (then, end) = (self.label(), self.label());
        let before = self.block.clone();
        self.branch(condition, &then, &end);
        self.bind_label(&then);
        let value = yes(self);
        let after = self.block.clone();
        self.bind_label(&end);
        self.op(ty, "OpPhi", &[&value, &after, no, &before])
    }

    /// Emits code that runs only if a condition holds.
    pub fn if_then(&mut self, condition: &str, then: impl FnOnce(&mut Self)) {
        let (inside, end) = (self.label(), self.label());
        self.branch(condition, &inside, &end);
        self.bind_label(&inside);
        then(self);
        self.bind_label(&end);
    }
}

/// Returns a float's literal: decimal if finite, otherwise hexadecimal with an exponent one above the largest, which
/// encodes infinity and NaN.
fn float(decimal: Option<String>, bits: u64, fraction_bits: u32) -> String {
    let Some(decimal) = decimal else {
        let (exponent, sign) = if fraction_bits == 23 { (128, bits >> 31) } else { (1024, bits >> 63) };
        let fraction = bits & ((1 << fraction_bits) - 1);
        let digits = format!("{:x}", fraction << (52 - fraction_bits));
        let digits = format!("{digits:0>13}");
        let digits = digits.trim_end_matches('0');
        let point = if digits.is_empty() { "" } else { "." };
        return format!("{}0x1{point}{digits}p+{exponent}", if sign == 1 { "-" } else { "" });
    };
    decimal
}
