//! Kernel verification: the invariants of every kernel that later stages see.
//!
//! [`verify`] is the only safe way to create a [`Verified<Kernel>`], which every pass, renderer and device requires. The rules:
//!
//! **Tables**
//! - Every id is in range of its table; operands of an expression come before it.
//! - The first memories are the buffer parameters in order; the rest are shared and private arrays of at least one element. Shared arrays
//!   need a work-group size. The shared memory of a work-group and the private memory of a work-item are at most 1 GiB each.
//! - The work-group size, if fixed, is at least 1 along each axis and at most [`MAX_GROUP_ITEMS`] in total.
//! - Every scalar parameter and local has a legal type; a parameter is not a vector. Vectors have 2, 4, 8 or 16 lanes.
//! - A known line belongs to a known file.
//!
//! **Expressions** ([`typing`])
//! - Every expression has the type that is recomputed from its operands; constants have no bits outside of their type.
//! - A write-only buffer ([`Access::Out`]) is never read.
//! - `LocalId`, `GroupId`, `GroupSize`, `GroupCount` and the subgroup builtins need a work-group size.
//! - No access is marked [`Guard::Proven`]. Only the optimizer proves bounds; it uses [`verify_proven`], which requires constant indices
//!   into arrays of known length to be in range.
//!
//! **Statements**
//! - A local is declared at most once, read only in scope, and assigned only if it is mutable.
//! - Values have the required types and conditions are bools. A loop counts in one integer or index type, its counter is immutable, and a
//!   constant step is at least 1.
//! - A read-only buffer ([`Access::In`]) is never written. Atomics act on a read-write buffer or a shared array, of u32 or i32, or f32 for
//!   addition and exchange. Only a compare-exchange has an expected value.
//! - Collectives take one element that is not a bool (a broadcast takes any). A broadcast names a work-item of the work-group, or item 0 of
//!   a subgroup, whose size is unknown to the kernel. A matrix product has work-group scope with a multiple of 32 work-items, takes words
//!   (u32) of f16 or bf16, and accumulates into f32x4.
//! - Break and continue are inside a loop; blocks nest at most [`MAX_DEPTH`] deep; barriers and collectives need a work-group size.
//!
//! **Uniformity** ([`uniformity`])
//! - Barriers and collectives, including those of subgroups, are reached by all work-items of a work-group or by none.
//!   [`Kernel::unchecked`] waives only this rule.
//!
//! [`Access::Out`]: crate::kernel::Access::Out
//! [`Access::In`]: crate::kernel::Access::In
//! [`Guard::Proven`]: crate::kernel::Guard::Proven
//! [`Kernel::unchecked`]: crate::kernel::Kernel::unchecked

mod statements;
mod tables;
pub mod typing;
pub mod uniformity;

use crate::error::{Error, Result};
use crate::kernel::{Expr, Guard, Kernel, Loc, Op};

/// Maximum nesting depth of blocks, including the body.
pub const MAX_DEPTH: usize = 64;

/// Maximum number of work-items in a work-group.
pub const MAX_GROUP_ITEMS: u64 = 1 << 16;

/// A value that passed its verifier; only verifiers create it.
#[derive(Clone, Debug)]
pub struct Verified<T>(T);

impl<T> std::ops::Deref for Verified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Verified<T> {
    /// Returns the value, which can be changed and verified again.
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// Verifies a kernel against the rules above.
///
/// # Errors
/// The first violated rule, with the line that violates it.
pub fn verify(kernel: Kernel) -> Result<Verified<Kernel>> {
    let kernel = verify_rules(kernel)?;
    refuse_proven(&kernel)?;
    Ok(kernel)
}

/// Like [`verify`], but accepts accesses marked [`Guard::Proven`].
///
/// # Errors
/// As of [`verify`].
///
/// # Safety
///
/// In every launch of the kernel, each access marked [`Guard::Proven`] must be in bounds of its memory, even if other threads write to
/// the buffers at the same time. Backends emit no comparison for it.
#[allow(unsafe_code, reason = "a declaration: its caller, the compiler, has proven the bounds")]
pub unsafe fn verify_proven(kernel: Kernel) -> Result<Verified<Kernel>> {
    verify_rules(kernel)
}

/// Applies all rules except the one that rejects [`Guard::Proven`].
pub(crate) fn verify_rules(kernel: Kernel) -> Result<Verified<Kernel>> {
    tables::check(&kernel)?;
    typing::check(&kernel)?;
    statements::check(&kernel)?;
    uniformity::check(&kernel)?;
    Ok(Verified(kernel))
}

/// Rejects accesses that are marked as proven.
fn refuse_proven(kernel: &Kernel) -> Result<()> {
    let mut wrong = kernel.exprs.iter().find_map(|(_, expr, _)| match expr {
        Expr::Load { mem, guard: Guard::Proven, .. } => Some((mem, Loc::default())),
        _ => None,
    });
    kernel.walk(&mut |stmt| {
        if let Op::Store { mem, guard: Guard::Proven, .. } | Op::Atomic { mem, guard: Guard::Proven, .. } = &stmt.op {
            wrong = wrong.or(Some((*mem, stmt.at)));
        }
    });
    let Some((mem, at)) = wrong else { return Ok(()) };
    let name = &kernel.mem(mem).name;
    Err(broken(
        kernel,
        at,
        format!(
            "an access to {name} is marked proven, which only the optimizer can do; make it checked, or unchecked and launch it with `unsafe`"
        ),
    ))
}

/// Creates the error for a violated rule, with the line if it is known.
fn broken(kernel: &Kernel, at: Loc, message: impl std::fmt::Display) -> Error {
    let error = Error::mistake(format!("kernel {}: {message}", kernel.name));
    match kernel.place(at) {
        Some(place) => error.note(place),
        None => error,
    }
}
