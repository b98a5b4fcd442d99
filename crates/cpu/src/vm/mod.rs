//! The vector machine: runs kernels without a compiler, a block of work-items at a time.
//!
//! In the order the data flows: [`compile`] makes a [`program`] of a kernel; [`launch`] divides a grid into blocks and
//! these among threads; [`exec`] runs the program on a block, calling the loops of [`ops`], which exist for every
//! [`isa`]. A [`lane`] is what one work-item has in a register.

pub mod compile;
mod dump;
pub mod exec;
pub mod isa;
pub mod lane;
pub mod launch;
pub mod ops;
pub mod program;
