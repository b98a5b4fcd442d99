//! Kernels in Rust: what `#[kernel]` makes of a function, and the kernels that ship.
//!
//! The oracle of the language is rustc: a `#[kernel_fn]` is an ordinary function besides, so each one is run by rustc's own
//! code and by the IR's interpreter on the same values, and the bits must agree.

#![allow(
    clippy::let_and_return,
    clippy::needless_ifs,
    clippy::needless_return,
    clippy::unnecessary_cast,
    reason = "the programs under test are as clumsy as programs can be"
)]

#[macro_use]
mod oracle;

mod building;
mod checked;
mod expressions;
mod groups;
mod launching;
mod methods;
mod shipped;
mod statements;
