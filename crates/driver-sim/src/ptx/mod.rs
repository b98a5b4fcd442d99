//! PTX interpreter.
//!
//! [`parse`] parses a module into tokens with line numbers. [`decode`] turns each instruction into a function pointer and register numbers,
//! and checks the types as the PTX ISA demands. [`run`] executes a grid, one block after the other, and the threads of a block in turns
//! between barriers. [`matrix`] implements matrix fragments. Registers, shared and local memory are initialized with garbage, so that reads
//! of uninitialized values are detected. Results that the ISA leaves unspecified, such as that of a division by zero, are garbage too.
//!
//! Floating-point instructions must carry `.rn` and must not carry `.ftz`: without `.rn` a product can be fused with a sum.

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
