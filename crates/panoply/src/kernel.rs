//! Kernels in Rust: the language of [`#[kernel]`](macro@crate::kernel).
//!
//! A kernel describes the work of **one work-item**; a launch runs it once for each work-item of the grid.
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
//! `saxpy(…)` prepares a [`Launch`](crate::Launch). `saxpy::build()` returns the [`Kernel`] itself, whose `Display`
//! prints its IR. rustc checks the unmodified body of the function, so a wrong type or name is reported where it was
//! written. Rust that is outside the kernel language is a compile error that names the construct.
//!
//! # The language
//!
//! **Parameters** are numbers and bools, `&[T]` (read) and `&mut [T]` (read and written; no other argument may alias
//! it). A launch passes `&x` and `&mut y` of buffers or of their slices, `&mut y.slice_mut(1..3)?`. Kernels can be
//! generic over `T: Float`, [`Int`], [`Number`] or any [`Element`](crate::Element), and over `const N: usize`. Each
//! instantiation is a separate kernel: `transpose::build::<f32, 32>()`.
//!
//! **Values** are `bool`, `i8` … `i64`, `u8` … `u64`, `usize`, `f16`, `bf16`, `f32` and `f64`. Operators, `as` and the
//! methods of Rust's numbers have Rust's semantics, except that a work-item cannot panic: integers wrap, `x / 0` is 0
//! and `x % 0` is x. There is no implicit type promotion. `f32` arithmetic is IEEE 754 and never contracted; `mul_add`
//! is one fused operation.
//!
//! **Memory.** `x[i]` out of bounds reads zero and writes nothing. `let mut a = [0.0f32; 8];` is a private array of the
//! work-item. `let mut tile = shared::<f32>(N * N);` is an array in the shared memory of the work-group, uninitialized
//! at the start.
//!
//! **Statements** are `let`, assignment, `if`, `for i in a..b` (also `.step_by(s)` and `.rev()`), `while`, `loop`,
//! `break`, `continue`, `return`, `const` and `use`. `if … else …` and blocks are expressions; `let (a, b) = …`
//! destructures tuples.
//!
//! **Functions** marked [`#[kernel_fn]`](macro@crate::kernel_fn) are inlined. They remain ordinary functions: on the
//! host, the functions of the language, such as [`global_index`], behave as in a launch of one work-item. A function of
//! another crate or trait with the name of a language function or of a method of Rust's numbers is a compile error; it
//! is never mistaken for the built-in one.
//!
//! | purpose | functions |
//! |---|---|
//! | indices | [`global_index`], [`global_id`], [`local_index`], [`local_id`], [`group_id`], [`subgroup_lane_id`] |
//! | sizes | [`global_size`], [`group_size`], [`num_groups`], [`subgroup_size`], `x.len()` |
//! | work-group operations | [`shared`], [`barrier`], [`group_sum`], [`group_max`], [`group_inclusive_sum`], [`group_broadcast`] … |
//! | matrix products (32 work-items) | [`mma_m16n8k16_f16`], [`mma_m16n8k16_bf16`], [`mma_fragment_zero`], [`mma_fragment_get`] |
//! | subgroup operations | [`subgroup_sum`], [`subgroup_exclusive_sum`], [`subgroup_broadcast`], [`subgroup_shuffle`] … |
//! | atomics | [`atomic_add`], [`atomic_min`], [`atomic_max`], [`atomic_exchange`], [`atomic_compare_exchange`] |
//! | numbers | [`select`], [`minimum`], [`maximum`], [`erf`], [`cast`] |
//!
//! # Work-groups
//!
//! Operations of a work-group need a known group size: `#[kernel(group_size = 256)]`, `#[kernel(group_size = (N, N))]`.
//! Such a kernel always runs whole groups, so the last one can extend beyond the requested number of work-items.
//! Barriers and collectives must be reached by all work-items of a group or by none; this is checked when the kernel is
//! first used.
//!
//! # Unchecked
//!
//! `#[kernel(unchecked)]` drops the bounds checks and the check that barriers are reached uniformly. The caller must
//! then guarantee both: `unsafe { gather(&x, &mut y).launch_unchecked(n) }?`.

#[doc(hidden)]
pub mod argument;
#[doc(hidden)]
pub mod emit;
pub mod language;
pub mod number;

#[doc(inline)]
pub use language::*;
pub use panoply_ir::kernel::Kernel;
