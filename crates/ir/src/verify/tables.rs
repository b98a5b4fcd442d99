//! Checks of a kernel's tables, before any id in them is used.

use super::{MAX_GROUP_ITEMS, broken};
use crate::dtype::Type;
use crate::error::Result;
use crate::kernel::*;

/// Maximum bytes of shared memory per work-group and of private memory per work-item: more than any device has, and small enough that sums
/// cannot overflow.
const MAX_ARRAY_BYTES: u64 = 1 << 30;

/// Checks the work-group size, memories, parameters and locals.
pub(super) fn check(kernel: &Kernel) -> Result<()> {
    let fail = |message: String| Err(broken(kernel, Loc::default(), message));
    if let Some(group) = kernel.group_size {
        let items: u64 = group.iter().fold(1, |items: u64, size| items.saturating_mul(*size as u64));
        if items == 0 {
            return fail(format!("a group of {} x {} x {} is empty", group[0], group[1], group[2]));
        }
        if items > MAX_GROUP_ITEMS {
            return fail(format!("a group of {items} work-items; the maximum is {MAX_GROUP_ITEMS}"));
        }
    }
    if let Err(message) = memories(kernel) {
        return fail(message);
    }
    for param in &kernel.params {
        if let Param::Scalar { name, ty } = param
            && ty.lanes() > 1
        {
            return fail(format!("parameter {name} is {ty}; pass a buffer instead of a vector"));
        }
    }
    for local in &kernel.locals {
        if !legal(local.ty) {
            return fail(format!("local {} is {}; vectors have 2, 4, 8 or 16 lanes", local.name, local.ty));
        }
    }
    Ok(())
}

/// Returns true if the type is legal: vectors have 2, 4, 8 or 16 lanes.
pub(super) fn legal(ty: Type) -> bool {
    match ty {
        Type::Scalar(_) | Type::Index => true,
        Type::Vector(_, lanes) => matches!(lanes, 2 | 4 | 8 | 16),
    }
}

fn memories(kernel: &Kernel) -> Result<(), String> {
    let mut next = 0;
    for param in &kernel.params {
        let Param::Buffer(mem) = param else { continue };
        if mem.index() != next {
            return Err(format!("buffer parameter {next} is memory {}; buffers come first, in order", mem.0));
        }
        match kernel.mems.get(next).map(|memory| memory.space) {
            Some(Space::Buffer(_)) => next += 1,
            Some(Space::Shared(_) | Space::Private(_)) | None => {
                return Err(format!("parameter memory {next} is not a buffer"));
            }
        }
    }
    let (mut shared, mut private) = (0, 0);
    for memory in &kernel.mems[next..] {
        let (len, total) = match memory.space {
            Space::Buffer(_) => return Err(format!("buffer {} is not a parameter", memory.name)),
            Space::Shared(_) if kernel.group_size.is_none() => {
                return Err(format!("shared array {} in a kernel without a group size; fix one", memory.name));
            }
            Space::Shared(len) => (len, &mut shared),
            Space::Private(len) => (len, &mut private),
        };
        if len == 0 {
            return Err(format!("array {} has no elements", memory.name));
        }
        *total += len as u64 * memory.dtype.bytes() as u64;
        if *total > MAX_ARRAY_BYTES {
            return Err(format!(
                "array {} increases the total size of its memory space to {total} bytes; at most 1 GiB",
                memory.name
            ));
        }
    }
    Ok(())
}
