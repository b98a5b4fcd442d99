//! Differences between the languages of the C family.
//!
//! A dialect is data: spellings, and a few one-line functions where the spelling depends on arguments. It contains no
//! knowledge of the IR beyond the operation it spells.

use panoply_ir::kernel::{AtomicOp, Builtin};
use panoply_ir::{Alu, DType};

/// One language of the C family.
pub(super) struct CDialect {
    /// Text at the start of the program.
    pub preamble: fn(&Extensions) -> String,
    /// Element types. f16 and bf16 are omitted: their bits are stored as u16 and their values as f32.
    pub types: [(DType, &'static str); 11],
    /// Vector type with elements of a type.
    pub vector: fn(name: &str, lanes: u8) -> String,
    /// Suffixes of i64 and u64 literals.
    pub suffix_64: [&'static str; 2],
    /// Qualifier of a pointer or array in buffer memory.
    pub global: &'static str,
    /// Qualifier of a pointer or array in shared memory.
    pub shared: &'static str,
    /// Qualifier of a pointer without aliases.
    pub restrict: &'static str,
    /// Qualifiers of a function called by kernels.
    pub function: &'static str,
    /// Qualifiers of an entry point, given its group size.
    pub entry: fn(group: Option<[u32; 3]>, &Extensions) -> String,
    /// Expression for a launch builtin, given the group size if it is fixed. Not called for sizes, which are passed as
    /// arguments or constant.
    pub builtin: fn(Builtin, group: Option<[u32; 3]>) -> String,
    /// Statement for a barrier of the group, after which writes to shared memory and buffers are visible to the group.
    pub barrier: &'static str,
    /// Expression for the 32-bit value of the subgroup's work-item with this lane. Not called for targets without
    /// subgroups.
    pub shuffle: fn(value: &str, lane: &str) -> String,
    /// Math functions whose name differs from the IR's.
    pub math: &'static [(Alu, &'static str)],
    /// Suffix of f32 math functions.
    pub math_f32: &'static str,
    /// Functions that reinterpret the bits of their operand as this type of the same width.
    pub bits_as: [(DType, &'static str); 6],
    /// Definitions of the functions `f16_from_bits(u16) -> f32` and `f16_bits(f32) -> u16`, rounding to nearest even.
    pub f16: fn(native: bool) -> &'static str,
    /// Maximum lanes of a vector load or store.
    pub max_lanes: u8,
    /// Expression that loads a vector from a pointer, which is aligned to one element only.
    pub load_vector: fn(lanes: u8, pointer: &str) -> String,
    /// Statement that stores elements to a pointer, which is aligned to one element only.
    pub store_vector: fn(vector: &str, lanes: &[String], pointer: &str) -> String,
    /// Suffix that selects a lane of a vector.
    pub lane: fn(u8) -> String,
    /// Atomic function that updates an element of this type at a pointer and returns the old value. `None` selects a
    /// compare-and-exchange loop (f32 addition only).
    pub atomic: fn(AtomicOp, DType) -> Option<&'static str>,
    /// Functions that this table uses and the language lacks: the text by which a program mentions each, and its
    /// definition, which can mention earlier functions. No name of a kernel equals one of them.
    pub library: &'static [(&'static str, &'static str)],
}

/// Optional language features that a program uses.
pub(super) struct Extensions {
    /// True if f64 is used.
    pub f64: bool,
    /// True if f16 conversions are native.
    pub f16: bool,
    /// Work-items of a subgroup, if the program depends on it.
    pub subgroup: Option<u32>,
}

impl CDialect {
    /// Returns the name of an element type.
    pub fn type_name(&self, dtype: DType) -> &'static str {
        find(&self.types, dtype)
    }

    /// Returns the name of a vector type.
    pub fn vector_name(&self, dtype: DType, lanes: u8) -> String {
        (self.vector)(self.type_name(dtype), lanes)
    }

    /// Returns the function that reinterprets the bits of its operand as this type of the same width.
    pub fn bits_as(&self, dtype: DType) -> &'static str {
        find(&self.bits_as, dtype)
    }

    /// Returns the function for an operation on f32, f64 or unsigned integers.
    pub fn math(&self, op: Alu, dtype: DType) -> String {
        let known = self.math.iter().find(|(known, _)| *known == op);
        let name = known.map_or(op.name(), |(_, name)| *name);
        format!("{name}{}", if dtype == DType::F32 { self.math_f32 } else { "" })
    }
}

/// Returns the library functions that a program mentions, directly or through other library functions.
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
    entry.unwrap_or_else(|| panic!("{dtype} has no type of its own in this language")).1
}
