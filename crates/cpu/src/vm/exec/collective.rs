//! Combinations over the lanes of a group, in the order that [`CollectiveOp`] and the interpreter have: reductions by
//! halves, which is also what SIMD is good at, scans in order of the linear local id.

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
        match collective.op {
            CollectiveOp::Reduce(op) => {
                let items = self.shape[0] * self.shape[1] * self.shape[2];
                let all = self.now.dense && self.now.lo == 0 && self.now.hi == items;
                let there = |lane: usize| (self.now.lo..self.now.hi).contains(&lane) && self.is_active(lane);
                let given = |lane: usize| if all || there(lane) { read(lane) } else { so_far };
                let total = match (op, collective.round) {
                    (ReduceOp::Sum, Round::None) => halved(items, given, T::add),
                    (ReduceOp::Prod, Round::None) => halved(items, given, T::mul),
                    (ReduceOp::Max, Round::None) => halved(items, given, T::max),
                    (ReduceOp::Min, Round::None) => halved(items, given, T::min),
                    (op, rounding) => halved(items, given, |a, b| round(apply(op, a, b), rounding)),
                };
                write(0, total);
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

/// The combination of what each of so many lanes gives.
#[inline(always)]
fn halved<T: Copy>(lanes: usize, given: impl Fn(usize) -> T, combine: impl Fn(T, T) -> T) -> T {
    const HALF: usize = 512;
    let mut kept = [given(0); HALF];
    let mut width = lanes.next_power_of_two() / 2;
    if width == 0 {
        return kept[0];
    }
    let mut more = Vec::new();
    let kept: &mut [T] = if width > HALF {
        more.resize(width, kept[0]);
        &mut more
    } else {
        &mut kept[..width]
    };
    for (lane, kept) in kept.iter_mut().enumerate() {
        *kept = if lane + width < lanes { combine(given(lane), given(lane + width)) } else { given(lane) };
    }
    while width > 1 {
        width /= 2;
        let (low, high) = kept.split_at_mut(width);
        low.iter_mut().zip(high).for_each(|(low, high)| *low = combine(*low, *high));
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
