//! Verifies kernels whose bounds this crate proved. The only module with `unsafe` code.
//!
//! A guard is marked proven by the passes of [`crate::opt`], whose proofs hold in every launch, and by the lowering of
//! a plan ([`crate::lower`]), whose proofs hold for the grid and the buffer sizes of the plan. Kernels from
//! outside are verified by [`panoply_ir::verify::verify`], which rejects proven guards.

use panoply_ir::kernel::Kernel;
use panoply_ir::{Result, Verified};

/// Verifies a kernel written by a pass or by lowering.
#[allow(unsafe_code, reason = "the passes and the lowering prove the bounds")]
pub(crate) fn verify(kernel: Kernel) -> Result<Verified<Kernel>> {
    // SAFETY: a pass marks a guard proven only if the index is below the length for every launch and all contents of
    // memory, and keeps it proven only where the same value is used; lowering marks a guard proven only for indices
    // derived from the shapes of its plan, which is launched over buffers of those shapes.
    unsafe { panoply_ir::verify::verify_proven(kernel) }
}
