//! Access locks: at any time an allocation is used by any number of submissions that read it, or by one that writes it.
//!
//! [`crate::queue::hazard`] orders pending work, which is not enough. A device that executes synchronously, as the CPU does, leaves
//! nothing pending, and another thread can interleave between the query of pending work and the record of a submission. So each
//! allocation has a lock. A submission or a host copy holds the locks of the allocations that it accesses until it is submitted and
//! recorded: shared where it reads, exclusive where it writes. Slices of one allocation share its lock.

use std::ptr;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use panoply_ir::kernel::Access;
use panoply_ir::{Error, Result};

use super::storage::StorageAccess;

/// A lock guard, held until dropped.
#[expect(dead_code, reason = "a guard is held, not read")]
pub(crate) enum AccessLock<'s> {
    Shared(RwLockReadGuard<'s, ()>),
    Exclusive(RwLockWriteGuard<'s, ()>),
}

/// Locks the allocations that one submission accesses, each once, in order of address, so that submissions cannot deadlock. Fails if it
/// writes memory that is read-only.
pub(crate) fn lock<'s>(accesses: impl Iterator<Item = StorageAccess<'s>>) -> Result<Vec<AccessLock<'s>>> {
    let wanted = accesses.map(|(storage, access)| match access != Access::In {
        true if storage.is_read_only() => Err(Error::mistake(format!(
            "{storage:?} is host memory that is used in place and cannot be written; copy it with `.to(&device)`"
        ))),
        writes => Ok((storage.access_lock(), writes)),
    });
    let mut wanted = wanted.collect::<Result<Vec<(&'s RwLock<()>, bool)>>>()?;
    let address = |lock: &'s RwLock<()>| ptr::from_ref(lock).addr();
    // The exclusive entry of an allocation sorts before its shared ones, which are then removed as duplicates.
    wanted.sort_unstable_by_key(|(lock, writes)| (address(lock), !writes));
    wanted.dedup_by_key(|(lock, _)| address(lock));
    let acquire = |(lock, writes): (&'s RwLock<()>, bool)| match writes {
        false => AccessLock::Shared(lock.read().unwrap_or_else(PoisonError::into_inner)),
        true => AccessLock::Exclusive(lock.write().unwrap_or_else(PoisonError::into_inner)),
    };
    Ok(wanted.into_iter().map(acquire).collect())
}
