//! What differs between the languages of the C family.
//!
//! A dialect is data: spellings, and a few one-line functions for what is no fixed word. It holds no knowledge of the IR
//! beyond the operation it spells.

use panoply_ir::kernel::{AtomicOp, Builtin};
use panoply_ir::{Alu, DType};

/// One language of the C family.
pub(super) struct CDialect {
    /// What stands before everything.
    pub preamble: fn(&Extensions) -> String,
    /// The types of elements. There are none for f16 and bf16, whose bits are u16 and whose values are f32.
    pub types: [(DType, &'static str); 11],
    /// The type of a vector of elements of a type.
    pub vector: fn(name: &str, lanes: u8) -> String,
    /// What ends an i64 and a u64 literal.
    pub suffix_64: [&'static str; 2],
    /// What stands before a pointer or array in buffer memory.
    pub global: &'static str,
    /// What stands before a pointer or array in shared memory.
    pub shared: &'static str,
    /// What says that a pointer's memory is reached by no other.
    pub restrict: &'static str,
    /// What stands before a function that kernels call.
    pub function: &'static str,
    /// What stands before an entry point's name, given its group size.
    pub entry: fn(group: Option<[u32; 3]>, &Extensions) -> String,
    /// A number of the launch, given its group size if it is fixed. Never asked for sizes, which are passed or constant.
    pub builtin: fn(Builtin, group: Option<[u32; 3]>) -> String,
    /// Waits for the group; shared memory and buffers are seen by all after it.
    pub barrier: &'static str,
    /// The 32-bit value of the work-item of the subgroup with this lane. Never asked for where a target has no subgroups.
    pub shuffle: fn(value: &str, lane: &str) -> String,
    /// The functions that are not called what the IR calls them.
    pub math: &'static [(Alu, &'static str)],
    /// What ends the name of a function of f32.
    pub math_f32: &'static str,
    /// The functions that read the bits of their operand as this type of the same width.
    pub bits_as: [(DType, &'static str); 6],
    /// The functions `f16_from_bits(u16) -> f32` and `f16_bits(f32) -> u16`, rounding to nearest even.
    pub f16: fn(native: bool) -> &'static str,
    /// Most lanes of a vector read or write.
    pub max_lanes: u8,
    /// A vector of elements from a pointer, which is aligned to one element only.
    pub load_vector: fn(lanes: u8, pointer: &str) -> String,
    /// A statement that writes elements to a pointer, which is aligned to one element only.
    pub store_vector: fn(vector: &str, lanes: &[String], pointer: &str) -> String,
    /// What follows a vector to name a lane.
    pub lane: fn(u8) -> String,
    /// The function that changes an element of this type at a pointer, and gives the old one; none asks for the loop of
    /// compare and exchange (f32 addition only).
    pub atomic: fn(AtomicOp, DType) -> Option<&'static str>,
    /// Functions that this table spells and the language lacks: how a program mentions each, and its text, which may mention
    /// those before it. No name of a kernel can be taken for one.
    pub library: &'static [(&'static str, &'static str)],
}

/// What a program uses that not every program may.
pub(super) struct Extensions {
    /// Whether f64 is used.
    pub f64: bool,
    /// Whether f16 conversions are the device's own.
    pub f16: bool,
    /// Work-items of a subgroup, if the program depends on it.
    pub subgroup: Option<u32>,
}

impl CDialect {
    /// The type of an element.
    pub fn type_name(&self, dtype: DType) -> &'static str {
        find(&self.types, dtype)
    }

    /// The type of a vector of an element type.
    pub fn vector_name(&self, dtype: DType, lanes: u8) -> String {
        (self.vector)(self.type_name(dtype), lanes)
    }

    /// The function that reads the bits of its operand as this type of the same width.
    pub fn bits_as(&self, dtype: DType) -> &'static str {
        find(&self.bits_as, dtype)
    }

    /// The function of one, two or three f32 or f64, or of unsigned integers.
    pub fn math(&self, op: Alu, dtype: DType) -> String {
        let known = self.math.iter().find(|(known, _)| *known == op);
        let name = known.map_or(op.name(), |(_, name)| *name);
        format!("{name}{}", if dtype == DType::F32 { self.math_f32 } else { "" })
    }
}

/// The functions of the library that a program mentions, and those that they do.
pub(super) fn mentioned(library: &[(&str, &str)], program: &str) -> String {
    let mut text = String::new();
    for (name, function) in library.iter().rev() {
        if program.contains(name) || text.contains(name) {
            text.insert_str(0, function);
        }
    }
    text
}

fn find(table: &[(DType, &'static str)], dtype: DType) -> &'static str {
    let entry = table.iter().find(|(known, _)| *known == dtype);
    entry.unwrap_or_else(|| panic!("{dtype} is rendered as another type here")).1
}
