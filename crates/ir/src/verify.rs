//! Verification: what holds for every kernel that anything downstream sees.
//!
//! [`verify`] is the only way to make a [`Verified<Kernel>`], and every pass, renderer and device takes nothing else. The
//! checklist:
//!
//! **Tables**
//! - Every id lies in its table; operands of an expression come before it.
//! - The first memories are the buffer parameters in their order; the rest are shared and private arrays of at least one
//!   element. Shared arrays need a group size; a group's shared memory and a work-item's private memory each stay
//!   within 1 GiB.
//! - The group size, if there is one, is at least 1 along each axis and at most [`MAX_GROUP_ITEMS`] in all.
//! - Every scalar parameter and local has a legal type; a parameter is no vector. Vectors have 2, 4, 8 or 16 lanes.
//! - A known line belongs to a known file.
//!
//! **Expressions** ([`typing`])
//! - Every expression has the type that recomputing it gives; constants hold only bits their type has.
//! - A buffer that is only written ([`Access::Out`]) is never read.
//! - `LocalId`, `GroupId`, `GroupSize`, `GroupCount` and the subgroup builtins need a group size.
//! - No access is marked [`Guard::Proven`]: only the optimizer proves bounds, and it uses [`verify_proven`], for which a constant
//!   index into an array of known length must be in range.
//!
//! **Statements**
//! - A local is introduced at most once, read only where it is in scope, and assigned only if it is mutable.
//! - Values have the type of what takes them; conditions are bools; a loop counts in one integer or index type, its
//!   counter is immutable and a constant step is at least 1.
//! - Nothing writes a buffer that is only read ([`Access::In`]); atomics act on a readable and writable buffer or a
//!   shared array, of u32 or i32, or f32 for addition and exchange; only a compare-exchange has an expected value.
//! - Collectives take one element that is no bool (a broadcast takes any); a broadcast names a work-item of the group, or
//!   item 0 of a subgroup, whose size no kernel knows. A product of matrices is a group's, of a multiple of 32 work-items, takes
//!   words (u32) of f16 or bf16 and adds to f32x4.
//! - Break and continue stand in a loop; blocks nest at most [`MAX_DEPTH`] deep; barriers and collectives need a group size.
//!
//! **Uniformity** ([`uniformity`])
//! - Barriers and collectives, those of subgroups included, stand where either all work-items of a group come or none.
//!   [`Kernel::unchecked`] waives this and nothing else.
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

/// Blocks inside blocks, the body included.
pub const MAX_DEPTH: usize = 64;

/// Work-items of a group.
pub const MAX_GROUP_ITEMS: u64 = 1 << 16;

/// A value that passed its verifier; only verifiers make one.
#[derive(Clone, Debug)]
pub struct Verified<T>(T);

impl<T> std::ops::Deref for Verified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Verified<T> {
    /// The value, free to be changed and verified again.
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// Checks a kernel against the list above. The first rule it breaks is the error, with the line that breaks it.
pub fn verify(kernel: Kernel) -> Result<Verified<Kernel>> {
    let kernel = verify_rules(kernel)?;
    refuse_proven(&kernel)?;
    Ok(kernel)
}

/// [`verify`] for a kernel whose guards were proven: accesses marked [`Guard::Proven`] are accepted.
///
/// # Safety
///
/// In every launch of the kernel each access marked [`Guard::Proven`] lies inside its memory, whatever other threads write to the
/// buffers meanwhile. Back ends make no comparison for it.
#[allow(unsafe_code, reason = "a declaration: it takes over the proof of bounds from its caller, the compiler")]
pub unsafe fn verify_proven(kernel: Kernel) -> Result<Verified<Kernel>> {
    verify_rules(kernel)
}

/// All rules but the one that no guard is marked proven.
pub(crate) fn verify_rules(kernel: Kernel) -> Result<Verified<Kernel>> {
    tables::check(&kernel)?;
    typing::check(&kernel)?;
    statements::check(&kernel)?;
    uniformity::check(&kernel)?;
    Ok(Verified(kernel))
}

/// Refuses accesses that claim a proof which nothing made.
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
            "an access to {name} is marked proven, which only the optimizer may do; make it checked, or unchecked and launch it with `unsafe`"
        ),
    ))
}

/// A broken rule, at a line if it is known.
fn broken(kernel: &Kernel, at: Loc, message: impl std::fmt::Display) -> Error {
    let error = Error::mistake(format!("kernel {}: {message}", kernel.name));
    match kernel.place(at) {
        Some(place) => error.note(place),
        None => error,
    }
}
