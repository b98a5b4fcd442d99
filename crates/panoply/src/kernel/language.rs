//! Functions and traits that every kernel can use without importing them.
//!
//! They are real functions, so that rustc can check a kernel, and a `#[kernel_fn]` can be called on the host. There
//! each of them behaves as in a launch of one work-item.

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
    /// Returns the index of this work-item in a one-dimensional launch: `global_id(0)`.
    global_index() = 0;
    /// Returns the linear index of this work-item in its group; the first axis varies fastest.
    local_index() = 0;
    /// Returns the index of this work-item in the launch, along an axis.
    global_id(axis) = 0;
    /// Returns the index of this work-item in its group, along an axis.
    local_id(axis) = 0;
    /// Returns the index of this group, along an axis.
    group_id(axis) = 0;
    /// Returns the requested number of work-items, along an axis; whole groups can extend beyond it.
    global_size(axis) = 1;
    /// Returns the number of work-items in a group, along an axis.
    group_size(axis) = 1;
    /// Returns the number of groups, along an axis.
    num_groups(axis) = 1;
    /// Returns the lane of this work-item in its subgroup.
    subgroup_lane_id() = 0;
    /// Returns the number of work-items in a subgroup; 1 on devices without subgroups.
    subgroup_size() = 1;
}

/// Waits for all work-items of the group and makes their earlier writes visible. All work-items of the group must reach
/// it.
pub const fn barrier() {}

/// Returns an array of `len` elements in the shared memory of the work-group. Its initial contents are undefined.
///
/// `let mut tile = shared::<f32>(N * N);`
pub fn shared<T: Number>(len: usize) -> Box<[T]> {
    vec![T::ZERO; len].into_boxed_slice()
}

/// Returns `a` if the condition holds, else `b`; both are evaluated.
pub fn select<T: KernelValue>(condition: bool, a: T, b: T) -> T {
    if condition { a } else { b }
}

/// Returns the smaller value; NaN if either is NaN, unlike `min`.
pub fn minimum<T: Number>(a: T, b: T) -> T {
    computed(Alu::Min, &[a, b])
}

/// Returns the larger value; NaN if either is NaN, unlike `max`.
pub fn maximum<T: Number>(a: T, b: T) -> T {
    computed(Alu::Max, &[a, b])
}

/// Returns the Gauss error function of `x`.
pub fn erf<T: Float>(x: T) -> T {
    computed(Alu::Math(Math::Erf), &[x])
}

/// Converts as Rust's `as` does, also from and to type parameters and half-precision floats: `cast::<T>(0.5)`.
pub fn cast<T: KernelValue>(value: impl KernelValue) -> T {
    T::from_constant(value.to_constant())
}

fn computed<T: Element + KernelValue>(op: Alu, operands: &[T]) -> T {
    let operands: Vec<Scalar> = operands.iter().map(|operand| (*operand).into()).collect();
    T::from_constant(KernelConstant::Element(scalar::alu(op, &operands)))
}

macro_rules! collectives {
    ($($scope:literal, $all:ident $inclusive:ident $exclusive:ident = $what:literal, $alone:ident;)*) => {$(
        #[doc = concat!("Returns the ", $what, " over all work-items of the ", $scope, ". All of them must reach it.")]
        pub fn $all<T: Number>(value: T) -> T {
            value
        }

        #[doc = concat!("Returns the ", $what, " over the work-items of the ", $scope, " up to and including this one, by `local_index`.")]
        #[doc = "All of them must reach it."]
        pub fn $inclusive<T: Number>(value: T) -> T {
            value
        }

        #[doc = concat!("Returns the ", $what, " over the work-items of the ", $scope, " before this one, by `local_index`.")]
        #[doc = "All of them must reach it."]
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

/// Returns the value of the group's work-item with the `local_index` `item`, a constant. All work-items of the group
/// must reach it.
pub fn group_broadcast<T: KernelValue>(value: T, item: usize) -> T {
    let _ = item;
    value
}

/// Returns the value of the subgroup's lane `item`, a constant. All work-items of the subgroup must reach it.
pub fn subgroup_broadcast<T: KernelValue>(value: T, item: usize) -> T {
    let _ = item;
    value
}

/// Returns the value of the subgroup's lane `lane`, or the work-item's own value if there is no such lane. All
/// work-items of the subgroup must reach it.
pub fn subgroup_shuffle<T: KernelValue>(value: T, lane: u32) -> T {
    let _ = lane;
    value
}

/// Four elements of a 16 × 8 f32 matrix that is distributed over 32 work-items; see [`mma_m16n8k16_f16`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MmaFragment([f32; 4]);

/// Returns a fragment of zeros.
pub const fn mma_fragment_zero() -> MmaFragment {
    MmaFragment([0.0; 4])
}

/// Returns element `number` (a constant, 0 to 3) of a fragment.
pub fn mma_fragment_get(fragment: MmaFragment, number: usize) -> f32 {
    fragment.0[number % 4]
}

macro_rules! products {
    ($($(#[$doc:meta])* $name:ident($float:ident);)*) => {$(
        $(#[$doc])*
        #[allow(clippy::too_many_arguments, reason = "fragments of three matrices")]
        pub fn $name(sums: MmaFragment, a0: u32, a1: u32, a2: u32, a3: u32, b0: u32, b1: u32) -> MmaFragment {
            let halves = |word: u32| [word as u16, (word >> 16) as u16].map(|bits| $float::from_bits(bits).to_f32());
            let product = |sum: f32, a: u32, b: u32| {
                let ([a, next_a], [b, next_b]) = (halves(a), halves(b));
                sum + a * b + next_a * next_b
            };
            // The other work-items of the 32 contribute zeros.
            let [first, second, third, fourth] = sums.0;
            let (first, third) = (product(first, a0, b0), product(third, a1, b0));
            MmaFragment([product(first, a2, b1), second, product(third, a3, b1), fourth])
        }
    )*};
}

products! {
    /// Matrix multiply-accumulate: adds the product of a 16 × 16 f16 matrix A and a 16 × 8 f16 matrix B to a 16 × 8 f32
    /// accumulator.
    ///
    /// Every 32 consecutive work-items of the group, by `local_index`, multiply separate matrices, so the group size
    /// must be a multiple of 32. All work-items of the group must reach it. GPUs with suitable tensor cores execute it
    /// as one instruction; elsewhere it takes 24 bytes of shared memory for each work-item.
    ///
    /// A u32 holds two elements, the first in its low half. With l the work-item's index among the 32, g = l / 4 and t
    /// = l % 4:
    ///
    /// | matrix | held by the work-item | position of the n-th element or pair |
    /// |---|---|---|
    /// | A | `a0` to `a3` | row g + 8 (n % 2), columns 2 t + 8 (n / 2) and the next |
    /// | B | `b0`, `b1` | column g, rows 2 t + 8 n and the next |
    /// | accumulator | four elements | row g + 8 (n / 2), column 2 t + n % 2 |
    ///
    /// The order of additions depends on the device.
    mma_m16n8k16_f16(f16);
    /// Matrix multiply-accumulate like [`mma_m16n8k16_f16`], for bf16 matrices.
    mma_m16n8k16_bf16(bf16);
}

/// Atomically adds to an element and returns its previous value.
pub fn atomic_add<T: Atomic>(place: &mut T, value: T) -> T {
    let sum = computed(Alu::Add, &[*place, value]);
    std::mem::replace(place, sum)
}

/// Atomically replaces an element by the minimum of it and `value`, and returns its previous value.
pub fn atomic_min<T: AtomicInt>(place: &mut T, value: T) -> T {
    let least = minimum(*place, value);
    std::mem::replace(place, least)
}

/// Atomically replaces an element by the maximum of it and `value`, and returns its previous value.
pub fn atomic_max<T: AtomicInt>(place: &mut T, value: T) -> T {
    let most = maximum(*place, value);
    std::mem::replace(place, most)
}

/// Atomically replaces an element and returns its previous value.
pub fn atomic_exchange<T: Atomic>(place: &mut T, value: T) -> T {
    std::mem::replace(place, value)
}

/// Atomically replaces an element if it equals `expected`, and returns its previous value.
pub fn atomic_compare_exchange<T: AtomicInt>(place: &mut T, expected: T, value: T) -> T {
    if *place == expected { std::mem::replace(place, value) } else { *place }
}
