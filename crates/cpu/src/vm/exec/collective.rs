//! Combinations over the lanes of a group, in the order that [`CollectiveOp`] and the interpreter have: reductions by
//! halves, which is also what SIMD is good at, scans in order of the linear local id.

use std::mem::MaybeUninit;
use std::slice;

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
        // SAFETY: the identity's low bytes are a `T`, on machines of either byte order because it was written as u64 and
        // slots are read the same way.
        let mut so_far = unsafe { *identity.cast::<T>() };
        let lanes = (self.now.lo..self.now.hi).filter(|lane| self.is_active(*lane));
        let items = self.shape[0] * self.shape[1] * self.shape[2];
        let all = self.now.dense && self.now.lo == 0 && self.now.hi == items;
        let side_by_side = collective.value.step as usize == size_of::<T>();
        match collective.op {
            CollectiveOp::Reduce(op) => {
                let there = |lane: usize| (self.now.lo..self.now.hi).contains(&lane) && self.is_active(lane);
                let mut copied = Vec::new();
                let given: &[T] = if all && side_by_side {
                    // SAFETY: the value has a lane for each work-item, and nothing changes them here.
                    unsafe { slice::from_raw_parts(self.address(collective.value, 0).cast::<T>(), items) }
                } else {
                    copied.extend((0..items).map(|lane| if there(lane) { read(lane) } else { so_far }));
                    &copied
                };
                let total = match (op, collective.round) {
                    (ReduceOp::Sum, Round::None) => halved(given, T::add),
                    (ReduceOp::Prod, Round::None) => halved(given, T::mul),
                    (ReduceOp::Max, Round::None) => halved(given, T::max),
                    (ReduceOp::Min, Round::None) => halved(given, T::min),
                    (op, rounding) => halved(given, |a, b| round(apply(op, a, b), rounding)),
                };
                write(0, total);
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
            CollectiveOp::Shuffle(_) => unreachable!("the verifier lets only subgroups shuffle"),
            CollectiveOp::Mma(_) => unreachable!("kernels with products of matrices are refused"),
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

/// What each lane and those before it come to; in place, or elsewhere.
///
/// # Safety
/// `given` and `scanned` point to so many numbers.
#[inline(always)]
unsafe fn scan<T: Copy>(given: *const T, scanned: *mut T, count: usize, mut so_far: T, combine: impl Fn(T, T) -> T) {
    for at in 0..count {
        // SAFETY: of the caller's numbers.
        unsafe {
            so_far = combine(so_far, *given.add(at));
            *scanned.add(at) = so_far;
        }
    }
}

/// The combination of lanes by halves.
#[inline(always)]
fn halved<T: Copy>(given: &[T], combine: impl Fn(T, T) -> T) -> T {
    /// Lanes that need no allocation: half of what a block usually has.
    const HALF: usize = 512;
    let mut width = given.len().next_power_of_two() / 2;
    if width == 0 {
        return given[0];
    }
    let (mut few, mut many) = ([const { MaybeUninit::uninit() }; HALF], Vec::new());
    let kept = match few.get_mut(..width) {
        Some(kept) => kept,
        None => {
            many.resize(width, MaybeUninit::uninit());
            &mut many
        }
    };
    let (low, high) = given.split_at(width);
    let pairs = kept.iter_mut().zip(low).zip(high);
    pairs.for_each(|((kept, low), high)| *kept = MaybeUninit::new(combine(*low, *high)));
    let alone = kept.iter_mut().zip(low).skip(high.len());
    alone.for_each(|(kept, low)| *kept = MaybeUninit::new(*low));
    // SAFETY: all of them were just given values.
    let kept = unsafe { slice::from_raw_parts_mut(kept.as_mut_ptr().cast::<T>(), width) };
    while width > 1 {
        width /= 2;
        let (low, high) = kept[..2 * width].split_at_mut(width);
        low.iter_mut().zip(&*high).for_each(|(low, high)| *low = combine(*low, *high));
    }
    kept[0]
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
