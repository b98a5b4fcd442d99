//! The vector machine: a bytecode interpreter for kernels, each instruction of which processes a block of work-items with SIMD loops.
//!
//! In the order of the data flow: [`compile`] compiles a kernel to a [`program`]; [`launch`] divides a grid into blocks
//! and the blocks among threads; [`exec`] runs the program on a block by calling the loops of [`ops`], which exist for
//! every [instruction set](panoply_host::isa). A [`lane`] is the part of a register that belongs to one work-item.

pub mod compile;
mod dump;
pub mod exec;
pub mod lane;
pub mod launch;
pub mod ops;
pub mod program;
