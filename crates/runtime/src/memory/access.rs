//! Which submissions may touch an allocation at the same time: any number that read it, or one that writes it.
//!
//! The uses that [`crate::queue::hazard`] keeps order pending work. They are not enough: a device that works while it is asked, as the CPU
//! does, leaves nothing pending, and between asking what is pending and recording what was submitted another thread may do the
//! same. So each allocation has a lock. Whoever submits work, or copies to or from the host, holds the locks of what it touches until the
//! work is submitted and recorded: shared where it reads, exclusive where it writes. Slices of one allocation share its lock.

use std::ptr;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use panoply_ir::kernel::Access;

use super::storage::Touch;

/// A lock that is held until it is dropped.
#[expect(dead_code, reason = "a guard is held, not read")]
pub(crate) enum AccessLock<'s> {
    Shared(RwLockReadGuard<'s, ()>),
    Exclusive(RwLockWriteGuard<'s, ()>),
}

/// Locks the allocations that one submission touches, each once, in the order of their addresses: two submissions never wait for each
/// other.
pub(crate) fn lock<'s>(touches: impl Iterator<Item = Touch<'s>>) -> Vec<AccessLock<'s>> {
    let mut wanted: Vec<(&'s RwLock<()>, bool)> =
        touches.map(|(storage, access)| (storage.access_lock(), access != Access::In)).collect();
    let address = |lock: &'s RwLock<()>| ptr::from_ref(lock).addr();
    // A writer comes before the readers of the same allocation, and stands for them.
    wanted.sort_unstable_by_key(|(lock, writes)| (address(lock), !writes));
    wanted.dedup_by_key(|(lock, _)| address(lock));
    let acquire = |(lock, writes): (&'s RwLock<()>, bool)| match writes {
        false => AccessLock::Shared(lock.read().unwrap_or_else(PoisonError::into_inner)),
        true => AccessLock::Exclusive(lock.write().unwrap_or_else(PoisonError::into_inner)),
    };
    wanted.into_iter().map(acquire).collect()
}
