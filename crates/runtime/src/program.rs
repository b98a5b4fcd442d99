//! Turns a verified kernel into a program of the device.
//!
//! The stages are `cache` (in-memory lookup), `limits` (checks against the device's limits), [`compiled_kernel`] (the programs that a
//! kernel needs), optimization and rendering in `panoply-compile`, and [`compiler`] with `disk` (on-disk cache, else the device
//! compiles). `parallel` compiles the kernels of a plan on several threads.
//!
//! User-supplied programs enter as an [`external_kernel`] and join the pipeline at [`compiled_kernel`]. `build_log` shows a
//! compiler's error with the source line that it refers to.

mod build_log;
pub(crate) mod cache;
pub mod compiled_kernel;
pub mod compiler;
mod conformance;
mod disk;
pub mod external_kernel;
mod limits;
mod program_form;
