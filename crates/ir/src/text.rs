//! The text form of kernels, for `explain`, tests and hashing.
//!
//! [`print()`] and [`parse()`] are inverse: parsing printed text and printing it again gives the same text with the same locations. Not
//! preserved are the order of the tables and what the body does not use (unreachable expressions, locals without a value, files without
//! a line). [`parse()`] recomputes types but checks nothing else; [`crate::verify`] does.
//!
//! ```text
//! kernel saxpy(a: f32, x: &[f32], y: &mut [f32]) {
//!     let i: index = global_id.x //@ src/x.rs:2
//!     if lt(i, len(y)) { //@ src/x.rs:3
//!         y[i] = fma(a, x[i], y[i]) //@ src/x.rs:4
//!     }
//! }
//! ```
//!
//! The grammar follows. A `name` is an identifier, or a string in double quotes if it is a keyword or not an identifier. Repeated names are
//! numbered (`x.0`, `x.1`):
//!
//! ```text
//! kernel     = ["unchecked"] "kernel" name "(" [param {"," param}] ")" ["group" "(" n "," n "," n ")"] "{" {array} {line} "}"
//! param      = name ":" (type | "&" ["mut" | "out"] "[" dtype "]")                In, InOut, Out buffers
//! type       = "index" | dtype | dtype "x" lanes
//! array      = ("shared" | "private") name ":" "[" dtype ";" n "]"
//! line       = "%" n ":=" expr | stmt [place]
//! place      = "//@" file ":" n                    up to the end of the line; after "{" for a statement with blocks
//! stmt       = "let" ["mut"] name ":" type "=" (expr | atomic | collective)
//!            | name "=" expr | access "=" expr | atomic | "barrier" "(" ")" | "break" | "continue" | "return"
//!            | "if" expr block ["else" block] | "while" expr block
//!            | "for" name ":" type "in" expr ".." expr ["step" expr] block        the step is 1 if it is left out
//! access     = name "[" ["proven" | "unchecked"] expr [";" lanes] "]"
//! atomic     = "atomic_" op "(" access "," expr ["," expr] ")"                  the expected value, then the new one
//! collective = ("group_" | "subgroup_") ["inclusive_" | "exclusive_"] op  ["<" (item | dtype) ">"] "(" expr {"," expr} ")"
//! expr       = number [dtype] | "true" | "false" | dtype "::" ("INFINITY" | "NEG_INFINITY" | "NAN" | "from_bits" "(" hex ")")
//!            | name | "%" n | access | "len" "(" name ")" | builtin "." ("x" | "y" | "z") | builtin "(" ")"
//!            | alu "(" expr {"," expr} ")" | ("cast" | "bitcast") "<" type ">" "(" expr ")" | ("splat" | "extract") "<" n ">" "(" expr ")"
//! ```
//!
//! `%3 := …` names an expression for the rest of the text, so that a shared or deep expression is written once. It has no location and no
//! effect: each use evaluates it in place. A number without a type is an index. `//` starts a comment.

mod lex;
mod names;
mod parse;
mod print;

pub use parse::parse;
pub use print::print;

use std::fmt;

use crate::kernel::Kernel;

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self))
    }
}

/// Returns the hash of a kernel's text without locations. It is equal on every machine, and for kernels that differ only in source
/// locations.
pub fn hash(kernel: &Kernel) -> u128 {
    xxhash_rust::xxh3::xxh3_128(print::without_places(kernel).as_bytes())
}

const ATOMICS: [(crate::kernel::AtomicOp, &str); 5] = {
    use crate::kernel::AtomicOp::*;
    [
        (Add, "atomic_add"),
        (Min, "atomic_min"),
        (Max, "atomic_max"),
        (Exchange, "atomic_exchange"),
        (CompareExchange, "atomic_compare_exchange"),
    ]
};

/// Constructor of a builtin along an axis.
type OfAxis = fn(u8) -> crate::kernel::Builtin;

const BUILTINS: [(OfAxis, &str); 6] = {
    use crate::kernel::Builtin::*;
    [
        (GlobalId, "global_id"),
        (LocalId, "local_id"),
        (GroupId, "group_id"),
        (GlobalSize, "global_size"),
        (GroupSize, "group_size"),
        (GroupCount, "num_groups"),
    ]
};
