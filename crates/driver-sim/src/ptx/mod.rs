//! PTX text to results.
//!
//! [`parse`] takes a module apart into tokens with their lines, [`decode`] turns each instruction into a function pointer and numbers
//! of registers and checks the types as the PTX ISA demands, [`run`] executes a grid, one block after the other, the threads of
//! a block in turns between barriers. [`matrix`] knows where fragments of matrices belong. Registers, shared and local memory begin with garbage, so what is read before it is written
//! shows. Division by zero and the like, which the ISA leaves to the machine, give garbage too.
//!
//! Floating-point instructions must carry `.rn` and may not carry `.ftz`: without the first a product may be fused with a sum.

mod decode;
mod lex;
mod matrix;
pub mod memory;
mod ops;
mod parse;
pub mod run;
mod types;

pub use parse::{Module, module};

#[cfg(test)]
mod tests;
