//! Loops that reduce lanes to one by halves: each lane of the first half of a power of two is combined with its partner
//! in the second half, then the same with the first half, and so on. The interpreter and the GPU work-groups use the
//! same order.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::slice;

use panoply_host::half;
use panoply_host::isa::{LoopBody, Simd, VecFn};
use panoply_ir::kernel::ReduceOp;

use super::number::Number;
use crate::vm::lane::{Lane, Round};

/// Returns the loop that reduces the `n` lanes of `a` into `dst`; for f32 lanes each intermediate result is rounded.
pub fn find<M: Simd>(op: ReduceOp, lane: Lane, round: Round) -> VecFn {
    match (lane, round) {
        (Lane::Bool | Lane::U8, _) => of_type::<M, u8, Exact>(op),
        (Lane::I8, _) => of_type::<M, i8, Exact>(op),
        (Lane::I16, _) => of_type::<M, i16, Exact>(op),
        (Lane::I32, _) => of_type::<M, i32, Exact>(op),
        (Lane::I64, _) => of_type::<M, i64, Exact>(op),
        (Lane::U16, _) => of_type::<M, u16, Exact>(op),
        (Lane::U32, _) => of_type::<M, u32, Exact>(op),
        (Lane::U64, _) => of_type::<M, u64, Exact>(op),
        (Lane::F64, _) => of_type::<M, f64, Exact>(op),
        (Lane::F32, Round::None) => of_type::<M, f32, Exact>(op),
        (Lane::F32, Round::F16) => of_type::<M, f32, ToF16>(op),
        (Lane::F32, Round::BF16) => of_type::<M, f32, ToBf16>(op),
    }
}

fn of_type<M: Simd, T: Number + Default, R: Rounding<T>>(op: ReduceOp) -> VecFn {
    match op {
        ReduceOp::Sum => M::compile::<Halves<Sum, T, R>>(),
        ReduceOp::Prod => M::compile::<Halves<Prod, T, R>>(),
        ReduceOp::Max => M::compile::<Halves<Max, T, R>>(),
        ReduceOp::Min => M::compile::<Halves<Min, T, R>>(),
    }
}

trait Combine: 'static {
    fn apply<T: Number>(a: T, b: T) -> T;
}

macro_rules! combine {
    ($($name:ident $method:ident)*) => {$(
        struct $name;

        impl Combine for $name {
            #[inline(always)]
            fn apply<T: Number>(a: T, b: T) -> T {
                a.$method(b)
            }
        }
    )*};
}

combine!(Sum add Prod mul Max max Min min);

trait Rounding<T>: 'static {
    fn round(value: T) -> T;
}

struct Exact;

impl<T> Rounding<T> for Exact {
    #[inline(always)]
    fn round(value: T) -> T {
        value
    }
}

struct ToF16;

impl Rounding<f32> for ToF16 {
    #[inline(always)]
    fn round(value: f32) -> f32 {
        half::f16_to_f32(half::f32_to_f16(value))
    }
}

struct ToBf16;

impl Rounding<f32> for ToBf16 {
    #[inline(always)]
    fn round(value: f32) -> f32 {
        half::bf16_to_f32(half::f32_to_bf16(value))
    }
}

struct Halves<O, T, R>(PhantomData<(O, T, R)>);

impl<O: Combine, T: Number + Default, R: Rounding<T>> LoopBody for Halves<O, T, R> {
    #[inline(always)]
    unsafe fn run<M: Simd>(n: usize, dst: *mut u8, a: *const u8, _: *const u8, _: *const u8) {
        // SAFETY: the caller promises `n` lanes and one result that does not overlap them.
        let (result, given) = unsafe { (&mut *dst.cast::<T>(), slice::from_raw_parts(a.cast::<T>(), n)) };
        *result = halved(given, |a, b| R::round(O::apply(a, b)));
    }
}

/// Number of lanes that are combined in registers.
const LAST: usize = 16;

#[inline(always)]
fn halved<T: Copy + Default>(given: &[T], combine: impl Fn(T, T) -> T) -> T {
    /// Number of lanes that need no allocation: half of the usual size of a block.
    const HALF: usize = 512;
    let mut width = given.len().next_power_of_two() / 2;
    if width < LAST {
        return few(given, width, combine);
    }
    let (mut some, mut many) = ([const { MaybeUninit::uninit() }; HALF], Vec::new());
    let kept = match some.get_mut(..width) {
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
    // SAFETY: all of them were initialized above.
    let kept = unsafe { slice::from_raw_parts_mut(kept.as_mut_ptr().cast::<T>(), width) };
    while width > LAST {
        width /= 2;
        let (low, high) = kept[..2 * width].split_at_mut(width);
        low.iter_mut().zip(&*high).for_each(|(low, high)| *low = combine(*low, *high));
    }
    let mut last: [T; LAST] = std::array::from_fn(|lane| kept[lane]);
    (0..8).for_each(|lane| last[lane] = combine(last[lane], last[lane + 8]));
    (0..4).for_each(|lane| last[lane] = combine(last[lane], last[lane + 4]));
    combine(combine(last[0], last[2]), combine(last[1], last[3]))
}

#[inline(always)]
fn few<T: Copy + Default>(given: &[T], mut width: usize, combine: impl Fn(T, T) -> T) -> T {
    let mut kept = [T::default(); 2 * LAST];
    kept[..given.len()].copy_from_slice(given);
    let mut count = given.len();
    while width > 0 {
        for lane in 0..count - width.min(count) {
            kept[lane] = combine(kept[lane], kept[lane + width]);
        }
        (count, width) = (width, width / 2);
    }
    kept[0]
}
