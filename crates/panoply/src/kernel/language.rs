//! The functions and traits that every kernel sees without importing them.
//!
//! They are real functions, so that rustc can check a kernel, and a `#[kernel_fn]` can be called on the host: there each
//! of them does what it does in a launch of one work-item.

use panoply_ir::dtype::Scalar;
use panoply_ir::interpret::scalar;
use panoply_ir::{Alu, Element, Math};

pub use super::number::{Atomic, AtomicInt, Float, Int, Number};
use super::number::{KernelConstant, KernelValue};
pub use panoply_ir::{bf16, f16};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($($axis:ident)?) = $alone:literal;)*) => {$(
        $(#[$doc])*
        pub const fn $name($($axis: usize)?) -> usize {
            $(let _ = $axis;)?
            $alone
        }
    )*};
}

ids! {
    /// This work-item among all, in a launch of one axis: `global_id(0)`.
    global_index() = 0;
    /// This work-item within its group, counted over all axes, the first one fastest.
    local_index() = 0;
    /// This work-item among all, along an axis.
    global_id(axis) = 0;
    /// This work-item within its group, along an axis.
    local_id(axis) = 0;
    /// This group among all, along an axis.
    group_id(axis) = 0;
    /// Work-items that were asked for, along an axis; whole groups may reach beyond.
    global_size(axis) = 1;
    /// Work-items of a group, along an axis.
    group_size(axis) = 1;
    /// Groups, along an axis.
    num_groups(axis) = 1;
    /// This work-item within its subgroup.
    subgroup_lane_id() = 0;
    /// Work-items of a subgroup; 1 on devices without subgroups.
    subgroup_size() = 1;
}

/// Waits for all work-items of the group; what they wrote before is seen after. All of them must come here.
pub const fn barrier() {}

/// An array of `len` elements that the work-items of a group share. Its contents are undefined at the start.
///
/// `let mut tile = shared::<f32>(N * N);`
pub fn shared<T: Number>(len: usize) -> Box<[T]> {
    vec![T::ZERO; len].into_boxed_slice()
}

/// `a` if the condition holds, else `b`; both are computed.
pub fn select<T: KernelValue>(condition: bool, a: T, b: T) -> T {
    if condition { a } else { b }
}

/// The smaller; NaN if either is NaN, unlike `min`.
pub fn minimum<T: Number>(a: T, b: T) -> T {
    computed(Alu::Min, &[a, b])
}

/// The larger; NaN if either is NaN, unlike `max`.
pub fn maximum<T: Number>(a: T, b: T) -> T {
    computed(Alu::Max, &[a, b])
}

/// The Gauss error function.
pub fn erf<T: Float>(x: T) -> T {
    computed(Alu::Math(Math::Erf), &[x])
}

/// Conversion as Rust's `as`, also to and from a type parameter and the half floats: `cast::<T>(0.5)`.
pub fn cast<T: KernelValue>(value: impl KernelValue) -> T {
    T::from_constant(value.to_constant())
}

fn computed<T: Element + KernelValue>(op: Alu, operands: &[T]) -> T {
    let operands: Vec<Scalar> = operands.iter().map(|operand| (*operand).into()).collect();
    T::from_constant(KernelConstant::Element(scalar::alu(op, &operands)))
}

macro_rules! collectives {
    ($($scope:literal, $all:ident $inclusive:ident $exclusive:ident = $what:literal, $alone:ident;)*) => {$(
        #[doc = concat!("The ", $what, " over all work-items of the ", $scope, ". All of them must come here.")]
        pub fn $all<T: Number>(value: T) -> T {
            value
        }

        #[doc = concat!("The ", $what, " over the work-items of the ", $scope, " up to this one, by `local_index`.")]
        #[doc = "All of them must come here."]
        pub fn $inclusive<T: Number>(value: T) -> T {
            value
        }

        #[doc = concat!("The ", $what, " over the work-items of the ", $scope, " before this one, by `local_index`.")]
        #[doc = "All of them must come here."]
        pub fn $exclusive<T: Number>(value: T) -> T {
            let _ = value;
            T::$alone
        }
    )*};
}

collectives! {
    "group", group_sum group_inclusive_sum group_exclusive_sum = "sum", ZERO;
    "group", group_product group_inclusive_product group_exclusive_product = "product", ONE;
    "group", group_min group_inclusive_min group_exclusive_min = "minimum", MAX_VALUE;
    "group", group_max group_inclusive_max group_exclusive_max = "maximum", MIN_VALUE;
    "subgroup", subgroup_sum subgroup_inclusive_sum subgroup_exclusive_sum = "sum", ZERO;
    "subgroup", subgroup_product subgroup_inclusive_product subgroup_exclusive_product = "product", ONE;
    "subgroup", subgroup_min subgroup_inclusive_min subgroup_exclusive_min = "minimum", MAX_VALUE;
    "subgroup", subgroup_max subgroup_inclusive_max subgroup_exclusive_max = "maximum", MIN_VALUE;
}

/// The value of the work-item of the group with this `local_index`, which is constant. All of them must come here.
pub fn group_broadcast<T: KernelValue>(value: T, item: usize) -> T {
    let _ = item;
    value
}

/// The value of the work-item at this place of the subgroup, which is constant. All of them must come here.
pub fn subgroup_broadcast<T: KernelValue>(value: T, item: usize) -> T {
    let _ = item;
    value
}

/// The value of the work-item of the subgroup whose `subgroup_lane_id` this is; one's own where there is none. All of them must
/// come here.
pub fn subgroup_shuffle<T: KernelValue>(value: T, lane: u32) -> T {
    let _ = lane;
    value
}

/// A work-item's four elements of a matrix of 16 × 8 f32 that 32 work-items hold together; see [`mma_m16n8k16_f16`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MmaFragment([f32; 4]);

/// A fragment of zeros.
pub const fn mma_fragment_zero() -> MmaFragment {
    MmaFragment([0.0; 4])
}

/// An element of a fragment, 0 to 3, which is constant.
pub fn mma_fragment_get(fragment: MmaFragment, number: usize) -> f32 {
    fragment.0[number % 4]
}

macro_rules! products {
    ($($(#[$doc:meta])* $name:ident($float:ident);)*) => {$(
        $(#[$doc])*
        #[allow(clippy::too_many_arguments, reason = "what a work-item holds of three matrices")]
        pub fn $name(sums: MmaFragment, a0: u32, a1: u32, a2: u32, a3: u32, b0: u32, b1: u32) -> MmaFragment {
            let halves = |word: u32| [word as u16, (word >> 16) as u16].map(|bits| $float::from_bits(bits).to_f32());
            let product = |sum: f32, a: u32, b: u32| {
                let ([a, next_a], [b, next_b]) = (halves(a), halves(b));
                sum + a * b + next_a * next_b
            };
            // All others bring zeros.
            let [first, second, third, fourth] = sums.0;
            let (first, third) = (product(first, a0, b0), product(third, a1, b0));
            MmaFragment([product(first, a2, b1), second, product(third, a3, b1), fourth])
        }
    )*};
}

products! {
    /// Adds the product of a matrix A of 16 × 16 elements of f16 and a matrix B of 16 × 8 to a matrix of 16 × 8 sums in f32. Every 32
    /// work-items of the group, by `local_index`, multiply matrices of their own, so the group has a multiple of 32. All of them
    /// must come here. GPUs with tensor cores for it do it in one instruction; elsewhere it takes 24 bytes of
    /// shared memory for each work-item.
    ///
    /// A word is two elements, the first in its low half. With l the work-item's number among the 32, g = l / 4 and t = l % 4:
    ///
    /// | of | the work-item holds | n-th of them |
    /// |---|---|---|
    /// | A | `a0` to `a3` | row g + 8 (n % 2), columns 2 t + 8 (n / 2) and the next |
    /// | B | `b0`, `b1` | column g, rows 2 t + 8 n and the next |
    /// | the sums | four elements | row g + 8 (n / 2), column 2 t + n % 2 |
    ///
    /// The order of additions is the device's.
    mma_m16n8k16_f16(f16);
    /// As [`mma_m16n8k16_f16`], of bf16.
    mma_m16n8k16_bf16(bf16);
}

/// Adds to an element that other work-items change too, and gives what it was.
pub fn atomic_add<T: Atomic>(place: &mut T, value: T) -> T {
    let sum = computed(Alu::Add, &[*place, value]);
    std::mem::replace(place, sum)
}

/// Lowers an element that other work-items change too, and gives what it was.
pub fn atomic_min<T: AtomicInt>(place: &mut T, value: T) -> T {
    let least = minimum(*place, value);
    std::mem::replace(place, least)
}

/// Raises an element that other work-items change too, and gives what it was.
pub fn atomic_max<T: AtomicInt>(place: &mut T, value: T) -> T {
    let most = maximum(*place, value);
    std::mem::replace(place, most)
}

/// Replaces an element that other work-items change too, and gives what it was.
pub fn atomic_exchange<T: Atomic>(place: &mut T, value: T) -> T {
    std::mem::replace(place, value)
}

/// Replaces an element that other work-items change too if it is `expected`, and gives what it was.
pub fn atomic_compare_exchange<T: AtomicInt>(place: &mut T, expected: T, value: T) -> T {
    if *place == expected { std::mem::replace(place, value) } else { *place }
}
