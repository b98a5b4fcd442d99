//! Collectives over the lanes of a group, in the order defined by [`CollectiveOp`] and the interpreter: reductions by
//! halves, which also suits SIMD, and scans in order of the linear local id.

use std::ptr;

use panoply_ir::kernel::{CollectiveOp, ReduceOp};

use super::{Runner, rounded};
use crate::vm::lane::{Lane, Round};
use crate::vm::ops::number::Number;
use crate::vm::program::Collective;

impl Runner<'_> {
    pub(super) fn collective(&self, collective: &Collective) {
        match collective.lane {
            Lane::Bool | Lane::U8 => self.combine::<u8>(collective, plain),
            Lane::I8 => self.combine::<i8>(collective, plain),
            Lane::I16 => self.combine::<i16>(collective, plain),
            Lane::I32 => self.combine::<i32>(collective, plain),
            Lane::I64 => self.combine::<i64>(collective, plain),
            Lane::U16 => self.combine::<u16>(collective, plain),
            Lane::U32 => self.combine::<u32>(collective, plain),
            Lane::U64 => self.combine::<u64>(collective, plain),
            Lane::F32 => self.combine::<f32>(collective, rounded),
            Lane::F64 => self.combine::<f64>(collective, plain),
        }
    }

    fn combine<T: Number>(&self, collective: &Collective, round: fn(T, Round) -> T) {
        // SAFETY: values and results are lanes, or slots, of `T`.
        let read = |lane: usize| unsafe { *self.address(collective.value, lane).cast::<T>() };
        // SAFETY: as above.
        let write = |lane: usize, value: T| unsafe { *self.address(collective.result, lane).cast::<T>() = value };
        let identity: *const u64 = &collective.identity;
        // SAFETY: the low bytes of the identity are a `T`; the identity is written as a u64 like a slot, and the crate
        // supports only little-endian targets.
        let mut so_far = unsafe { *identity.cast::<T>() };
        let lanes = (self.now.lo..self.now.hi).filter(|lane| self.is_active(*lane));
        let items = self.shape[0] * self.shape[1] * self.shape[2];
        let all = self.now.dense && self.now.lo == 0 && self.now.hi == items;
        let side_by_side = collective.value.step as usize == size_of::<T>();
        match collective.op {
            CollectiveOp::Reduce(_) => {
                let there = |lane: usize| (self.now.lo..self.now.hi).contains(&lane) && self.is_active(lane);
                let mut copied = Vec::new();
                let given = if all && side_by_side {
                    self.address(collective.value, 0).cast_const()
                } else {
                    copied.extend((0..items).map(|lane| if there(lane) { read(lane) } else { so_far }));
                    copied.as_ptr().cast()
                };
                let reduce = collective.reduce.expect("a reduction has a loop");
                // SAFETY: there is a lane for each work-item, and the result has one lane.
                unsafe { reduce(items, self.address(collective.result, 0), given, ptr::null(), ptr::null()) };
            }
            CollectiveOp::InclusiveScan(op) if all && side_by_side && collective.round == Round::None => {
                let given = self.address(collective.value, 0).cast::<T>();
                let scanned = self.address(collective.result, 0).cast::<T>();
                // SAFETY: both have a lane for each work-item.
                unsafe {
                    match op {
                        ReduceOp::Sum => scan(given, scanned, items, so_far, T::add),
                        ReduceOp::Prod => scan(given, scanned, items, so_far, T::mul),
                        ReduceOp::Max => scan(given, scanned, items, so_far, T::max),
                        ReduceOp::Min => scan(given, scanned, items, so_far, T::min),
                    }
                }
            }
            CollectiveOp::InclusiveScan(op) => lanes.for_each(|lane| {
                so_far = round(apply(op, so_far, read(lane)), collective.round);
                write(lane, so_far);
            }),
            CollectiveOp::ExclusiveScan(op) => lanes.for_each(|lane| {
                let before = so_far;
                so_far = round(apply(op, so_far, read(lane)), collective.round);
                write(lane, before);
            }),
            CollectiveOp::Shuffle(_) => unreachable!("the verifier allows shuffles only in subgroups"),
            CollectiveOp::Mma(_) => unreachable!("kernels with matrix products are rejected"),
            CollectiveOp::Broadcast(from) => {
                let from = from as usize;
                let there = (self.now.lo..self.now.hi).contains(&from) && self.is_active(from);
                self.set(crate::vm::program::Slot(collective.result.at / 8), 0);
                if there {
                    write(0, read(from));
                }
            }
        }
    }
}

/// Inclusive scan, in place or to another location.
///
/// # Safety
/// `given` and `scanned` point to `count` numbers.
#[inline(always)]
unsafe fn scan<T: Copy>(given: *const T, scanned: *mut T, count: usize, mut so_far: T, combine: impl Fn(T, T) -> T) {
    for at in 0..count {
        // SAFETY: `at` is below `count`.
        unsafe {
            so_far = combine(so_far, *given.add(at));
            *scanned.add(at) = so_far;
        }
    }
}

fn plain<T>(value: T, _: Round) -> T {
    value
}

#[inline(always)]
fn apply<T: Number>(op: ReduceOp, a: T, b: T) -> T {
    match op {
        ReduceOp::Sum => a.add(b),
        ReduceOp::Prod => a.mul(b),
        ReduceOp::Max => a.max(b),
        ReduceOp::Min => a.min(b),
    }
}
