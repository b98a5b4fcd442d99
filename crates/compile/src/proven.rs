//! Verification of kernels whose bounds this crate proved: its one `unsafe` place.
//!
//! A guard is marked proven by the passes of [`crate::opt`], whose proofs hold in every launch, and by the lowering of a plan
//! ([`crate::lower`], `whole`), whose proofs hold for the grid and the buffer sizes that the plan states. Kernels from outside come
//! through [`panoply_ir::verify::verify`], which accepts no such guard.

use panoply_ir::kernel::Kernel;
use panoply_ir::{Result, Verified};

/// Verifies a kernel that a pass or the lowering wrote.
#[allow(unsafe_code, reason = "it answers for the proofs of the passes and of the lowering")]
pub(crate) fn verify(kernel: Kernel) -> Result<Verified<Kernel>> {
    // SAFETY: a pass marks a guard proven only if the index is below the length whatever the launch and whatever memory holds, and
    // keeps it proven only where the same value is used; the lowering does so only for indices it derives from the shapes of its plan,
    // which is launched over buffers of those shapes.
    unsafe { panoply_ir::verify::verify_proven(kernel) }
}
