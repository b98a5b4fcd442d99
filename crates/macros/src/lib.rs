//! The macros of Panoply: `#[kernel]`, `#[kernel_fn]`, and three independent ones, `#[derive(Module)]` (`module`),
//! `sequential!` (`sequential`) and `prove!` (`prove`).
//!
//! A marked function becomes a function that *builds* a kernel: its Rust statements become calls of the facade's
//! emitter. rustc remains the type checker: the original body is kept next to the building code as a closure that is
//! never called, so rustc reports unknown names, wrong types and borrow errors at the original code. Inferred types
//! reach the building code through *probes*: zero-sized values around a literal or a call in the closure, which get
//! its type by inference. The building code queries them when the kernel is built.
//!
//! In the order of the data flow: `options` (the attribute), `signature` (parameters), `lower` (statements and
//! expressions; `language` is the table of callable functions, `hints` the messages about everything else), `expand`
//! (the generated items). Nothing here depends on the kernel IR: the generated code calls only methods of the
//! emitter.

#![forbid(unsafe_code)]

mod expand;
mod hints;
mod language;
mod lower;
mod module;
mod options;
mod prove;
mod sequential;
mod signature;

use proc_macro::TokenStream;

/// Turns a function into a kernel: `saxpy(a, &x, &mut y)` prepares a launch, `saxpy::build()` returns the kernel
/// itself.
///
/// Options: `group_size = 256`, `group_size = (16, 16)`, `unchecked`, `crate = path::to::panoply`. The language is described in
/// the facade's `kernel` module.
#[proc_macro_attribute]
pub fn kernel(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::kernel(options.into(), item.into()).into()
}

/// Makes a function callable from kernels, where it is inlined; it also remains an ordinary function.
///
/// Option: `crate = path::to::panoply`.
#[proc_macro_attribute]
pub fn kernel_fn(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::kernel_fn(options.into(), item.into()).into()
}

/// Implements `Module` for a struct: visits its fields by name.
///
/// Option: `#[module(crate = path::to::panoply)]`.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(item: TokenStream) -> TokenStream {
    module::derive(item.into()).unwrap_or_else(|mistake| mistake.into_compile_error()).into()
}

/// Describes a network layer by layer; literal sizes are checked at compile time: `sequential![Linear(784, 128),
/// relu, Linear(128, 10)]`.
///
/// Expands to an `nn::Network`, which is then built with random numbers. If the first layer is not `Linear`, `input =
/// [lengths]` must precede it. Convolutions have no padding; `Conv2d(1, 8, [3, 3], padding = "same")` keeps the
/// lengths, `padding = [1, 1]` sets the zeros of each axis. Sizes that are not literals are checked when the network
/// is built.
#[proc_macro]
pub fn sequential(input: TokenStream) -> TokenStream {
    sequential::expand(input.into()).unwrap_or_else(|mistake| mistake.into_compile_error()).into()
}

/// Proves that a condition holds for all inputs of a set, or returns an error with a counterexample: `prove!(|x in
/// InputBox::ball(&x0, 0.01)| model(x).argmax(-1) == 3)?`.
///
/// `x` is a `&Tensor` in the condition, and several variables are separated by commas: `|x in a, d in b|`. A condition is
/// a comparison of tensors or numbers by `<=`, `<`, `>=` or `>`, which holds for all elements, `y.argmax(axis) == class`,
/// where the largest element is the only one, or `y.is_finite()`. Conditions are joined by `&&`, and a block can define
/// names before them. A second argument gives the `verify::Options`. The result is a `Result<verify::Report>`.
#[proc_macro]
pub fn prove(input: TokenStream) -> TokenStream {
    prove::expand(input.into()).unwrap_or_else(|mistake| mistake.into_compile_error()).into()
}
