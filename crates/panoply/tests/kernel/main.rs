//! Kernels in Rust: what `#[kernel]` makes of a function, and the kernels that ship.
//!
//! The oracle of the language is rustc: a `#[kernel_fn]` is an ordinary function besides, so each one is run by rustc's own
//! code and by the IR's interpreter on the same values, and the bits must agree.

#[macro_use]
mod oracle;

mod building;
mod expressions;
mod groups;
mod methods;
mod shipped;
mod statements;
