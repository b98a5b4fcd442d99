//! The macros of Panoply: `#[kernel]`, `#[kernel_fn]`, and two that stand alone, `#[derive(Module)]` (`module`) and
//! `sequential!` (`sequential`).
//!
//! A marked function becomes a function that *builds* a kernel: its Rust statements turn into calls of the facade's
//! emitter. rustc stays the type checker: the function's own body is kept beside the building code as a closure that is
//! never called, so unknown names, wrong types and broken borrows are reported by rustc at the author's own words. What
//! rustc inferred reaches the building code through *probes*: zero-sized values that stand around a literal or a call in
//! the closure, share its type by inference, and are asked for it when the kernel is built.
//!
//! In the order the data flows: `options` (the attribute), `signature` (parameters), `lower` (statements and
//! expressions; `language` is the table of what may be called, `hints` what to say about the rest), `expand` (the
//! items that are emitted). Nothing here knows the kernel IR: the emitted code names methods of the emitter only.

#![forbid(unsafe_code)]

mod expand;
mod hints;
mod language;
mod lower;
mod module;
mod options;
mod sequential;
mod signature;

use proc_macro::TokenStream;

/// Makes a function a kernel: `saxpy(a, &x, &mut y)` prepares a launch, `saxpy::build()` gives the kernel itself.
///
/// Options: `group_size = 256`, `group_size = (16, 16)`, `unchecked`, `crate = path::to::panoply`. The language is described in
/// the facade's `kernel` module.
#[proc_macro_attribute]
pub fn kernel(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::kernel(options.into(), item.into()).into()
}

/// Makes a function callable from kernels, where it is inlined; it stays an ordinary function besides.
///
/// Option: `crate = path::to::panoply`.
#[proc_macro_attribute]
pub fn kernel_fn(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::kernel_fn(options.into(), item.into()).into()
}

/// Shows the fields of a struct as the parts of a network, under their names.
///
/// Option: `#[module(crate = path::to::panoply)]`.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(item: TokenStream) -> TokenStream {
    module::derive(item.into()).unwrap_or_else(|mistake| mistake.into_compile_error()).into()
}

/// A network layer by layer, whose literal sizes are checked at compile time: `sequential![Linear(784, 128), relu,
/// Linear(128, 10)]`.
///
/// It gives a `nn::Network`, to be built with random numbers. If the first layer is not `Linear`, `input = [lengths]` stands
/// before it. Filters keep the lengths if theirs are odd. What is no literal is checked when the network is built.
#[proc_macro]
pub fn sequential(input: TokenStream) -> TokenStream {
    sequential::expand(input.into()).unwrap_or_else(|mistake| mistake.into_compile_error()).into()
}
