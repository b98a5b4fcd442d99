//! The single table of functions and methods that a kernel can call.
//!
//! Each entry is a method of the emitter with the same name. It is also a real Rust function, of the facade's
//! `kernel` module or of the type itself, which rustc uses to check the call.

use syn::{Ident, Path};

/// Category of a function of the language.
#[derive(Clone, Copy, PartialEq)]
pub enum Function {
    /// Returns a value and has no side effects.
    Pure,
    /// Like [`Function::Pure`], with negligible cost.
    Cheap,
    /// Returns a number of the launch.
    LaunchValue,
    /// Returns a number of the launch for an axis, which must be constant.
    LaunchValueOfAxis,
    /// Converts a value to another type, which can be given explicitly.
    Cast,
    /// Modifies an element atomically; the first argument is `&mut x[i]`.
    Atomic,
    /// Must be called by all work-items of a group or subgroup.
    Collective,
    /// Like [`Function::Collective`]; the second argument, the lane to broadcast, must be constant.
    Broadcast,
    /// Synchronizes the group.
    Barrier,
    /// Declares a shared array; allowed only as the value of a `let`.
    Shared,
}

const FUNCTIONS: &[(&str, Function)] = &[
    ("global_index", Function::LaunchValue),
    ("local_index", Function::LaunchValue),
    ("global_id", Function::LaunchValueOfAxis),
    ("local_id", Function::LaunchValueOfAxis),
    ("group_id", Function::LaunchValueOfAxis),
    ("global_size", Function::LaunchValueOfAxis),
    ("group_size", Function::LaunchValueOfAxis),
    ("num_groups", Function::LaunchValueOfAxis),
    ("subgroup_lane_id", Function::LaunchValue),
    ("subgroup_size", Function::LaunchValue),
    ("select", Function::Cheap),
    ("minimum", Function::Cheap),
    ("maximum", Function::Cheap),
    ("erf", Function::Pure),
    ("cast", Function::Cast),
    ("shared", Function::Shared),
    ("barrier", Function::Barrier),
    ("group_sum", Function::Collective),
    ("group_product", Function::Collective),
    ("group_min", Function::Collective),
    ("group_max", Function::Collective),
    ("group_inclusive_sum", Function::Collective),
    ("group_inclusive_product", Function::Collective),
    ("group_inclusive_min", Function::Collective),
    ("group_inclusive_max", Function::Collective),
    ("group_exclusive_sum", Function::Collective),
    ("group_exclusive_product", Function::Collective),
    ("group_exclusive_min", Function::Collective),
    ("group_exclusive_max", Function::Collective),
    ("group_broadcast", Function::Broadcast),
    ("subgroup_sum", Function::Collective),
    ("subgroup_product", Function::Collective),
    ("subgroup_min", Function::Collective),
    ("subgroup_max", Function::Collective),
    ("subgroup_inclusive_sum", Function::Collective),
    ("subgroup_inclusive_product", Function::Collective),
    ("subgroup_inclusive_min", Function::Collective),
    ("subgroup_inclusive_max", Function::Collective),
    ("subgroup_exclusive_sum", Function::Collective),
    ("subgroup_exclusive_product", Function::Collective),
    ("subgroup_exclusive_min", Function::Collective),
    ("subgroup_exclusive_max", Function::Collective),
    ("subgroup_broadcast", Function::Broadcast),
    ("subgroup_shuffle", Function::Collective),
    ("mma_fragment_zero", Function::LaunchValue),
    ("mma_fragment_get", Function::Pure),
    ("mma_m16n8k16_f16", Function::Collective),
    ("mma_m16n8k16_bf16", Function::Collective),
    ("atomic_add", Function::Atomic),
    ("atomic_min", Function::Atomic),
    ("atomic_max", Function::Atomic),
    ("atomic_exchange", Function::Atomic),
    ("atomic_compare_exchange", Function::Atomic),
];

/// Methods of numbers: name, number of arguments besides the receiver, and true if the cost is negligible.
const METHODS: &[(&str, usize, bool)] = &[
    ("sqrt", 0, false),
    ("exp", 0, false),
    ("exp2", 0, false),
    ("exp_m1", 0, false),
    ("ln", 0, false),
    ("ln_1p", 0, false),
    ("log2", 0, false),
    ("sin", 0, false),
    ("cos", 0, false),
    ("tan", 0, false),
    ("atan", 0, false),
    ("tanh", 0, false),
    ("powf", 1, false),
    ("powi", 1, false),
    ("pow", 1, false),
    ("mul_add", 2, true),
    ("recip", 0, false),
    ("abs", 0, true),
    ("signum", 0, false),
    ("copysign", 1, false),
    ("floor", 0, true),
    ("ceil", 0, true),
    ("round", 0, false),
    ("round_ties_even", 0, true),
    ("trunc", 0, true),
    ("fract", 0, true),
    ("min", 1, true),
    ("max", 1, true),
    ("clamp", 2, true),
    ("rem_euclid", 1, false),
    ("is_nan", 0, true),
    ("is_finite", 0, true),
    ("is_infinite", 0, true),
    ("is_sign_negative", 0, true),
    ("is_sign_positive", 0, true),
    ("to_bits", 0, true),
    ("to_f32", 0, true),
    ("to_f64", 0, true),
    ("wrapping_add", 1, true),
    ("wrapping_sub", 1, true),
    ("wrapping_mul", 1, true),
    ("wrapping_neg", 0, true),
    ("wrapping_shl", 1, true),
    ("wrapping_shr", 1, true),
    ("saturating_add", 1, true),
    ("saturating_sub", 1, true),
    ("rotate_left", 1, true),
    ("rotate_right", 1, true),
    ("abs_diff", 1, true),
    ("div_ceil", 1, false),
    ("next_multiple_of", 1, false),
    ("is_power_of_two", 0, true),
    ("count_ones", 0, false),
    ("count_zeros", 0, false),
    ("leading_zeros", 0, false),
    ("trailing_zeros", 0, false),
];

/// Returns the function that a path names: its bare name, or `kernel::name`.
pub fn function(path: &Path) -> Option<Function> {
    let last = path.segments.last()?;
    let module = path.segments.iter().rev().nth(1);
    if module.is_some_and(|module| module.ident != "kernel") {
        return None;
    }
    FUNCTIONS.iter().find(|(name, _)| last.ident == name).map(|(_, function)| *function)
}

/// Returns true if the language has a function of this name.
pub fn has_function(name: &Ident) -> bool {
    FUNCTIONS.iter().any(|(known, _)| name == known)
}

/// Returns true if a call has no side effects.
pub fn is_pure(path: &Path) -> bool {
    use Function::*;
    match function(path) {
        Some(Pure | Cheap | LaunchValue | LaunchValueOfAxis | Cast) => true,
        Some(Atomic | Collective | Broadcast | Barrier | Shared) => false,
        None => is_of_a_type(path),
    }
}

/// Returns true if a pure call has negligible cost.
pub fn is_cheap(path: &Path) -> bool {
    use Function::*;
    matches!(function(path), Some(Cheap | LaunchValue | LaunchValueOfAxis | Cast))
}

/// Returns true if a call declares a shared array.
pub fn is_shared(path: &Path) -> bool {
    function(path) == Some(Function::Shared)
}

/// Returns true if a call needs a kernel with a group size.
pub fn needs_group(path: &Path) -> bool {
    use Function::*;
    let local = path.segments.last().is_some_and(|last| {
        ["local_index", "local_id", "group_id", "group_size", "num_groups"].iter().any(|name| last.ident == name)
    });
    local || matches!(function(path), Some(Collective | Broadcast | Barrier | Shared))
}

/// Returns true if the path is an associated function of a type, such as `f32::max`: the segment before the name
/// begins with a capital or is a primitive type.
pub fn is_of_a_type(path: &Path) -> bool {
    path.segments.iter().rev().nth(1).is_some_and(|ty| {
        let text = ty.ident.to_string();
        text.starts_with(char::is_uppercase) || PRIMITIVES.contains(&text.as_str())
    })
}

const PRIMITIVES: &[&str] = &[
    "bool", "i8", "i16", "i32", "i64", "isize", "u8", "u16", "u32", "u64", "usize", "f16", "bf16", "f32", "f64", "str",
    "char",
];

/// Returns true if numbers have this method with this number of arguments besides the receiver.
pub fn is_method(name: &str, arguments: usize) -> bool {
    METHODS.iter().any(|(known, count, _)| *known == name && *count == arguments)
}

/// Returns true if the method has negligible cost.
pub fn is_cheap_method(name: &str) -> bool {
    name == "len" || METHODS.iter().any(|(known, _, cheap)| *known == name && *cheap)
}
