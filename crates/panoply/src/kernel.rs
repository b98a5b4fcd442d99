//! Kernels in Rust: the language of [`#[kernel]`](macro@crate::kernel).
//!
//! A kernel says what **one work-item** does; a launch runs it once for each of as many as are asked for.
//!
//! ```
//! use panoply::{Device, kernel};
//!
//! /// y += a x
//! #[kernel]
//! fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
//!     let i = global_index();
//!     if i < y.len() {
//!         y[i] += a * x[i];
//!     }
//! }
//!
//! let device = Device::get("cpu")?;
//! let x = device.buffer(&[1.0f32, 2.0, 3.0])?;
//! let mut y = device.buffer(&[10.0f32, 20.0, 30.0])?;
//! saxpy(2.0, &x, &mut y).launch(3)?;
//! assert_eq!(y.to_vec()?, [12.0, 24.0, 36.0]);
//! # Ok::<(), panoply::Error>(())
//! ```
//!
//! `saxpy(…)` prepares a [`Launch`](crate::Launch); `saxpy::build()` gives the [`Kernel`] itself, whose `Display` is its
//! text. rustc checks the function's body as it stands, so a wrong type or name is reported where it was written; what is
//! Rust but not in the language is a compile error that names it.
//!
//! # The language
//!
//! **Parameters** are numbers and bools, `&[T]` (read) and `&mut [T]` (read and written; no other argument may share its
//! memory). A launch passes `&x` and `&mut y` of buffers or of their slices, `&mut y.slice_mut(1..3)?`. Generic over `T: Float`, [`Int`], [`Number`] or any [`Element`](crate::Element), and over `const N: usize`;
//! each choice is a kernel of its own: `transpose::build::<f32, 32>()`.
//!
//! **Values** are `bool`, `i8` … `i64`, `u8` … `u64`, `usize`, `f16`, `bf16`, `f32` and `f64`. Operators, `as` and the
//! methods of Rust's numbers mean what they mean in Rust, except that a work-item cannot panic: integers wrap, `x / 0` is
//! 0 and `x % 0` is x. Nothing is promoted. `f32` is IEEE 754 and never contracted; `mul_add` is one operation.
//!
//! **Memory.** `x[i]` beyond the length reads zero and writes nothing. `let mut a = [0.0f32; 8];` is an array of the
//! work-item's own; `let mut tile = shared::<f32>(N * N);` is one of the group's, undefined at the start.
//!
//! **Statements** are `let`, assignment, `if`, `for i in a..b` (also `.step_by(s)` and `.rev()`), `while`, `loop`, `break`,
//! `continue`, `return`, `const` and `use`. `if … else …` and blocks have values; `let (a, b) = …` takes tuples apart.
//!
//! **Functions** marked [`#[kernel_fn]`](macro@crate::kernel_fn) are inlined. They remain ordinary functions; the
//! functions of the language, such as [`global_index`], behave on the host as in a launch of one work-item. A function of another crate
//! or trait that has the name of one of the language's, or of a method of Rust's numbers, is a compile error and never taken for it.
//!
//! | what | functions |
//! |---|---|
//! | where am I | [`global_index`], [`global_id`], [`local_index`], [`local_id`], [`group_id`], [`subgroup_lane_id`] |
//! | how many | [`global_size`], [`group_size`], [`num_groups`], [`subgroup_size`], `x.len()` |
//! | a group together | [`shared`], [`barrier`], [`group_sum`], [`group_max`], [`group_inclusive_sum`], [`group_broadcast`] … |
//! | 32 together | [`mma_m16n8k16_f16`], [`mma_m16n8k16_bf16`]: small matrices, with [`mma_fragment_zero`], [`mma_fragment_get`] |
//! | a subgroup together | [`subgroup_sum`], [`subgroup_exclusive_sum`], [`subgroup_broadcast`], [`subgroup_shuffle`] … |
//! | the same element at once | [`atomic_add`], [`atomic_min`], [`atomic_max`], [`atomic_exchange`], [`atomic_compare_exchange`] |
//! | numbers | [`select`], [`minimum`], [`maximum`], [`erf`], [`cast`] |
//!
//! # Groups
//!
//! What a group does together needs a group of known size: `#[kernel(group_size = 256)]`, `#[kernel(group_size = (N, N))]`. Such a
//! kernel runs whole groups, the last of which may reach beyond the work-items that were asked for; barriers and
//! collectives must be reached by all work-items of a group or by none, which is checked when the kernel is first used.
//!
//! # Unchecked
//!
//! `#[kernel(unchecked)]` drops the comparisons with the length (and the check on barriers). It is then the caller who
//! promises: `unsafe { gather(&x, &mut y).launch_unchecked(n) }?`.

#[doc(hidden)]
pub mod argument;
#[doc(hidden)]
pub mod emit;
pub mod language;
pub mod number;

#[doc(inline)]
pub use language::*;
pub use panoply_ir::kernel::Kernel;
