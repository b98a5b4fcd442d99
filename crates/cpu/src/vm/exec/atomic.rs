//! Atomic operations: executed lane by lane in order, with atomic instructions only where other threads could interfere.

use std::sync::atomic::{AtomicU32, Ordering};

use panoply_ir::kernel::AtomicOp;

use super::mask::Lanes;
use super::{Mem, Runner};
use crate::vm::lane::Lane;
use crate::vm::ops::number::Number;
use crate::vm::program::Atomic;

impl Runner<'_> {
    pub(super) fn atomic(&self, atomic: &Atomic) {
        let Mem { ptr, len, contended, .. } = self.mems[atomic.access.mem.0 as usize];
        let Lanes { lo, hi, .. } = self.now;
        for lane in lo..hi {
            if !self.is_active(lane) {
                continue;
            }
            // SAFETY: indices are u64 lanes or a slot; values are 4 bytes wide.
            let (index, value, expected) = unsafe {
                (
                    *self.address(atomic.index, lane).cast::<u64>(),
                    *self.address(atomic.value, lane).cast::<u32>(),
                    *self.address(atomic.expected, lane).cast::<u32>(),
                )
            };
            let change = Change { op: atomic.op, lane: atomic.lane, value, expected };
            // An out-of-bounds atomic does nothing regardless of its guard: the comparison is cheap in relation to the rest.
            let old = if index < len {
                let element = ptr.wrapping_add(index as usize * 4).cast::<u32>();
                // SAFETY: the element is within the length; while other threads can access it, all accesses are atomic.
                unsafe { if contended { change.apply_atomically(element) } else { change.apply(element) } }
            } else {
                0
            };
            if let Some(dst) = atomic.old {
                // SAFETY: the register has lanes of 4 bytes.
                unsafe { *self.address(dst, lane).cast::<u32>() = old };
            }
        }
    }
}

/// An update of one element.
struct Change {
    op: AtomicOp,
    lane: Lane,
    value: u32,
    expected: u32,
}

impl Change {
    /// Returns the updated element.
    fn next(&self, old: u32) -> u32 {
        let value = self.value;
        match (self.op, self.lane) {
            (AtomicOp::Add, Lane::F32) => (f32::from_bits(old) + f32::from_bits(value)).to_bits(),
            (AtomicOp::Add, _) => old.wrapping_add(value),
            (AtomicOp::Min, Lane::F32) => Number::min(f32::from_bits(old), f32::from_bits(value)).to_bits(),
            (AtomicOp::Max, Lane::F32) => Number::max(f32::from_bits(old), f32::from_bits(value)).to_bits(),
            (AtomicOp::Min, Lane::I32) => Number::min(old as i32, value as i32) as u32,
            (AtomicOp::Max, Lane::I32) => Number::max(old as i32, value as i32) as u32,
            (AtomicOp::Min, _) => Number::min(old, value),
            (AtomicOp::Max, _) => Number::max(old, value),
            (AtomicOp::Exchange, _) => value,
            (AtomicOp::CompareExchange, _) => {
                if old == self.expected {
                    value
                } else {
                    old
                }
            }
        }
    }

    /// # Safety
    /// The element is valid, aligned, and no other thread accesses it.
    unsafe fn apply(&self, element: *mut u32) -> u32 {
        // SAFETY: as promised.
        unsafe {
            let old = *element;
            *element = self.next(old);
            old
        }
    }

    /// # Safety
    /// The element is valid, aligned, and other threads access it only atomically.
    unsafe fn apply_atomically(&self, element: *mut u32) -> u32 {
        // SAFETY: as promised.
        let element = unsafe { AtomicU32::from_ptr(element) };
        let order = Ordering::Relaxed;
        match (self.op, self.lane) {
            (AtomicOp::Add, Lane::U32 | Lane::I32) => element.fetch_add(self.value, order),
            (AtomicOp::Exchange, _) => element.swap(self.value, order),
            _ => {
                let update = |old| Some(self.next(old));
                element.fetch_update(order, order, update).unwrap_or_else(|old| old)
            }
        }
    }
}
