//! From a verified kernel to a program of the device.
//!
//! `cache` (is it here already?) → `limits` (can this device run it at all?) → [`compiled_kernel`] (which programs does it need?) →
//! `translate` (optimize, render) → [`compiler`] (did an earlier process compile it, or must the device?) with `disk`. Those of a plan go
//! this way `together`.
//!
//! Programs of a user's own come as a [`external_kernel`], and join at [`compiled_kernel`]; a `refusal` is shown with the line of the source.

mod build_log;
pub(crate) mod cache;
pub mod compiled_kernel;
pub mod compiler;
mod conformance;
mod disk;
pub mod external_kernel;
mod limits;
pub(crate) mod parallel;
mod program_form;
