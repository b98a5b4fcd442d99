//! The sections of a module, and the function being written.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;

use panoply_ir::kernel::{Builtin, Kernel};
use panoply_ir::{DType, Scalar};

use super::entry::FIRST;
use crate::render::assembler::Value;
use crate::render::names::Names;

/// The module being written, and what its names stand for.
///
/// Names that come from the kernel end in an underscore or in one and digits; those of types and constants do not and those of results
/// are numbers, so none can be taken for another.
pub(super) struct Writer<'k> {
    pub kernel: &'k Kernel,
    /// What an index is: u32 or u64.
    pub index: DType,
    /// Whether f16 conversions are the device's own.
    pub native_f16: bool,
    pub names: Names,
    pub capabilities: BTreeSet<&'static str>,
    pub extensions: BTreeSet<&'static str>,
    pub decorations: Vec<String>,
    /// Types, constants and variables outside the function.
    pub globals: Vec<String>,
    /// The global of each definition.
    known: HashMap<String, String>,
    /// Variables of the function.
    pub variables: Vec<String>,
    pub lines: Vec<String>,
    /// Results so far.
    results: u32,
    /// Labels so far.
    labels: u32,
    /// The label of the block being written.
    pub block: String,
    /// Whether the block being written has ended.
    ended: bool,
    /// The first byte of every buffer, the variable of every array.
    pub bases: Vec<String>,
    /// The length of every memory.
    pub lens: Vec<String>,
    /// The value of every scalar parameter; buffers have none.
    pub params: Vec<Option<String>>,
    /// The values of every local, or its variables if it is mutable, one for each lane.
    pub locals: Vec<Value>,
    /// The launch's numbers that the kernel asks for.
    pub builtins: HashMap<Builtin, String>,
    /// Where `continue` and `break` of the loops around lead.
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
            ended: false,
            bases: Vec::new(),
            lens: Vec::new(),
            params: Vec::new(),
            locals: vec![Vec::new(); kernel.locals.len()],
            builtins: HashMap::new(),
            loops: Vec::new(),
        }
    }

    /// The type or constant with this definition.
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

    /// The type of a register that holds an element.
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

    /// The type of no value.
    pub fn void(&mut self) -> String {
        self.simple("void", "OpTypeVoid")
    }

    /// A float of 16 bits, which is only converted, or only pointed at where the device has none.
    pub fn half(&mut self) -> String {
        self.capabilities.insert(if self.native_f16 { "Float16" } else { "Float16Buffer" });
        self.simple("half", "OpTypeFloat 16")
    }

    /// Elements side by side.
    pub fn vector(&mut self, element: &str, lanes: u8) -> String {
        if lanes > 4 {
            self.capabilities.insert("Vector16");
        }
        self.global(|| format!("v{lanes}{}", &element[1..]), format!("OpTypeVector {element} {lanes}"))
    }

    /// Elements in memory, one after another.
    pub fn array(&mut self, element: &str, len: u32) -> String {
        let count = self.int(DType::U32, len.max(1).into());
        self.global(|| format!("array{len}{}", &element[1..]), format!("OpTypeArray {element} {count}"))
    }

    /// A pointer to memory of a storage class.
    pub fn pointer(&mut self, class: &str, to: &str) -> String {
        self.global(|| format!("ptr{class}{}", &to[1..]), format!("OpTypePointer {class} {to}"))
    }

    /// A constant of an integer type, or a condition.
    pub fn int(&mut self, dtype: DType, value: u64) -> String {
        self.constant(Scalar::from_i128(dtype, value.into()))
    }

    /// A constant as its register holds it.
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

    /// A result nobody has.
    pub fn result(&mut self) -> String {
        self.results += 1;
        format!("%{}", self.results)
    }

    /// A label nobody has.
    pub fn label(&mut self) -> String {
        self.labels += 1;
        format!("%L{}", self.labels)
    }

    /// Adds an instruction.
    pub fn line(&mut self, text: impl Display) {
        if self.ended {
            // What follows a jump is never reached, and must stand in a block all the same.
            let unreached = self.label();
            self.place(&unreached);
        }
        self.lines.push(text.to_string());
    }

    /// Adds the last instruction of a block.
    fn end(&mut self, text: impl Display) {
        self.line(text);
        self.ended = true;
    }

    /// Goes to a label.
    pub fn jump(&mut self, label: &str) {
        self.end(format_args!("OpBranch {label}"));
    }

    /// Goes to one of two labels.
    pub fn branch(&mut self, condition: &str, yes: &str, no: &str) {
        self.end(format_args!("OpBranchConditional {condition} {yes} {no}"));
    }

    /// Goes to a label, unless the block ended before.
    pub fn go_on(&mut self, label: &str) {
        if !self.ended {
            self.jump(label);
        }
    }

    /// Ends the function.
    pub fn finish(&mut self) {
        if !self.ended {
            self.leave();
        }
    }

    /// Ends the work-item.
    pub fn leave(&mut self) {
        self.end("OpReturn");
    }

    /// Begins a block, to which the one before leads if it has not ended.
    pub fn place(&mut self, label: &str) {
        self.go_on(label);
        self.ended = false;
        self.block = label.to_string();
        self.lines.push(format!("{label} = OpLabel"));
    }

    /// An instruction with a result.
    pub fn op(&mut self, ty: &str, instruction: &str, operands: &[&str]) -> String {
        let result = self.result();
        self.line(format_args!("{result} = {instruction} {ty} {}", operands.join(" ")));
        result
    }

    /// A comparison or another test.
    pub fn test(&mut self, instruction: &str, operands: &[&str]) -> String {
        let ty = self.ty(DType::Bool);
        self.op(&ty, instruction, operands)
    }

    /// One of two values of a type.
    pub fn choose(&mut self, ty: &str, condition: &str, yes: &str, no: &str) -> String {
        self.op(ty, "OpSelect", &[condition, yes, no])
    }

    /// A function of OpenCL.std.
    pub fn call(&mut self, ty: &str, function: &str, operands: &[&str]) -> String {
        let result = self.result();
        self.line(format_args!("{result} = OpExtInst {ty} %opencl {function} {}", operands.join(" ")));
        result
    }

    /// A variable of the function that holds values of a type.
    pub fn variable(&mut self, ty: &str) -> String {
        let (pointer, name) = (self.pointer("Function", ty), self.result());
        self.variables.push(format!("{name} = OpVariable {pointer} Function"));
        name
    }

    /// What one of two ways computes, the second of which computes nothing: `yes` if the condition holds, else a value at hand.
    pub fn when(&mut self, condition: &str, ty: &str, no: &str, yes: impl FnOnce(&mut Self) -> String) -> String {
        let (then, end) = (self.label(), self.label());
        let before = self.block.clone();
        self.branch(condition, &then, &end);
        self.place(&then);
        let value = yes(self);
        let after = self.block.clone();
        self.place(&end);
        self.op(ty, "OpPhi", &[&value, &after, no, &before])
    }

    /// Does something if a condition holds.
    pub fn only_if(&mut self, condition: &str, then: impl FnOnce(&mut Self)) {
        let (inside, end) = (self.label(), self.label());
        self.branch(condition, &inside, &end);
        self.place(&inside);
        then(self);
        self.place(&end);
    }
}

/// A float's literal: decimal, or if it is none, hexadecimal with the largest exponent and one, which stands for infinity and NaN.
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
