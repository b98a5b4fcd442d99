//! HIP C++ that hiprtc and clang accept without headers: the compiler's builtins replace the declarations of HIP's
//! headers.
//!
//! The driver builds with `-ffp-contract=off`, and the text contains the equivalent pragma; divisions are correctly
//! rounded by default. Only exact functions of the device are used: the square root is corrected, the remainder is
//! computed here, and transcendental functions were expanded before.

use panoply_ir::kernel::{AtomicOp, Builtin};
use panoply_ir::{Alu, DType};

use super::c_dialect::{CDialect, Extensions};

pub(super) const DIALECT: CDialect = CDialect {
    preamble,
    types: [
        (DType::Bool, "bool"),
        (DType::I8, "i8"),
        (DType::I16, "i16"),
        (DType::I32, "i32"),
        (DType::I64, "i64"),
        (DType::U8, "u8"),
        (DType::U16, "u16"),
        (DType::U32, "u32"),
        (DType::U64, "u64"),
        (DType::F32, "f32"),
        (DType::F64, "f64"),
    ],
    vector: |name, lanes| format!("vec<{name}, {lanes}>"),
    suffix_64: ["ll", "ull"],
    global: "",
    shared: "__attribute__((shared)) ",
    restrict: "__restrict__ ",
    function: "static __attribute__((device)) ",
    entry,
    builtin,
    barrier: "barrier();",
    shuffle: |value, lane| format!("shuffle({value}, {lane})"),
    math: &[
        (Alu::Abs, "__builtin_fabs"),
        (Alu::PopCount, "__builtin_popcountll"),
        (Alu::Floor, "__builtin_floor"),
        (Alu::Ceil, "__builtin_ceil"),
        (Alu::Round, "__builtin_rint"),
        (Alu::Trunc, "__builtin_trunc"),
        (Alu::Fma, "__builtin_fma"),
        (Alu::Sqrt, "exact_sqrt"),
        (Alu::Rem, "exact_rem"),
    ],
    math_f32: "f",
    bits_as: [
        (DType::I32, "as<i32>"),
        (DType::I64, "as<i64>"),
        (DType::U32, "as<u32>"),
        (DType::U64, "as<u64>"),
        (DType::F32, "as<f32>"),
        (DType::F64, "as<f64>"),
    ],
    // Every device has these conversions; half-precision instructions are older than the oldest supported device.
    f16: |_| {
        "static __attribute__((device)) f32 f16_from_bits(u16 bits) { return as<_Float16>(bits); }\n\
         static __attribute__((device)) u16 f16_bits(f32 x) { return as<u16>((_Float16)x); }\n"
    },
    max_lanes: 16,
    load_vector: |lanes, pointer| format!("load<{lanes}>({pointer})"),
    store_vector: |_, lanes, pointer| format!("store({pointer}, {});", lanes.join(", ")),
    lane: |lane| format!(".at[{lane}]"),
    atomic,
    library: LIBRARY,
};

fn preamble(_: &Extensions) -> String {
    "#pragma clang fp contract(off)\n\
     typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;\n\
     typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;\n\
     typedef float f32; typedef double f64;\n"
        .to_string()
}

fn entry(group: Option<[u32; 3]>, _: &Extensions) -> String {
    let items = group.map(|[x, y, z]| x * y * z);
    let size = items.map(|items| format!("__attribute__((amdgpu_flat_work_group_size({items}, {items}))) "));
    format!("extern \"C\" __attribute__((global)) {}void", size.unwrap_or_default())
}

/// Returns the expression for a builtin. A launch has fewer than 2³² work-items along an axis, so 32 bits hold every
/// id.
fn builtin(builtin: Builtin, group: Option<[u32; 3]>) -> String {
    let of = |what: &str, axis: u8| format!("__builtin_amdgcn_{what}_{}()", ["x", "y", "z"][axis as usize]);
    let width =
        |axis: u8| group.map_or_else(|| of("workgroup_size", axis), |group| format!("{}u", group[axis as usize]));
    match builtin {
        Builtin::GlobalId(axis) => {
            format!("{} * {} + {}", of("workgroup_id", axis), width(axis), of("workitem_id", axis))
        }
        Builtin::LocalId(axis) => of("workitem_id", axis),
        Builtin::GroupId(axis) => of("workgroup_id", axis),
        Builtin::GroupSize(axis) => width(axis),
        Builtin::GroupCount(axis) => format!("{} / {}", of("grid_size", axis), width(axis)),
        // Counts the lanes with smaller ids; with 32 lanes the second count adds nothing.
        Builtin::SubgroupLane => "__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u))".to_string(),
        Builtin::GlobalSize(_) | Builtin::SubgroupSize => unreachable!("sizes are arguments or constants"),
    }
}

fn atomic(op: AtomicOp, _: DType) -> Option<&'static str> {
    Some(match op {
        AtomicOp::Add => "atomic_add",
        AtomicOp::Min => "atomic_min",
        AtomicOp::Max => "atomic_max",
        AtomicOp::Exchange => "atomic_exchange",
        AtomicOp::CompareExchange => "atomic_compare_exchange",
    })
}

/// Defines an atomic read-modify-write function.
macro_rules! fetch {
    ($name:literal) => {
        (
            concat!("atomic_", $name, "("),
            concat!(
                "template <class T, class X> static __attribute__((device)) T atomic_",
                $name,
                "(T *at, X x) {\n    return __hip_atomic_fetch_",
                $name,
                "(at, (T)x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);\n}\n"
            ),
        )
    };
}

/// Functions that the language lacks, with the text by which programs mention them; each can mention earlier ones.
const LIBRARY: &[(&str, &str)] = &[
    (
        "as<",
        "\
template <class To, class From> static __attribute__((device)) To as(From x) { return __builtin_bit_cast(To, x); }
",
    ),
    (
        "load<",
        "\
template <class T, int N> struct vec { T at[N]; };
template <int N, class T> static __attribute__((device)) vec<T, N> load(const T *from) {
    vec<T, N> to;
    __builtin_memcpy(&to, from, sizeof to);
    return to;
}
",
    ),
    (
        "store(",
        "\
template <class T, class... Lanes> static __attribute__((device)) void store(T *to, Lanes... lanes) {
    const T from[] = {(T)lanes...};
    __builtin_memcpy(to, from, sizeof from);
}
",
    ),
    (
        "barrier(",
        "\
static __attribute__((device)) void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\");
}
",
    ),
    (
        "shuffle(",
        "\
template <class T> static __attribute__((device)) T shuffle(T value, u32 lane) {
    return as<T>(__builtin_amdgcn_ds_bpermute(lane << 2, as<i32>(value)));
}
",
    ),
    fetch!("add"),
    fetch!("min"),
    fetch!("max"),
    (
        "atomic_exchange(",
        "\
template <class T, class X> static __attribute__((device)) T atomic_exchange(T *at, X x) {
    return __hip_atomic_exchange(at, (T)x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
",
    ),
    (
        "atomic_compare_exchange(",
        "\
template <class T, class E, class X> static __attribute__((device)) T atomic_compare_exchange(T *at, E expected, X x) {
    T seen = expected;
    __hip_atomic_compare_exchange_strong(at, &seen, (T)x, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    return seen;
}
",
    ),
    (
        "exact_sqrtf(",
        "\
static __attribute__((device)) f32 exact_sqrtf(f32 x) {
    // The device's root is off by one unit in the last place at most, and knows no denormals.
    const bool tiny = x < 0x1p-96f;
    const f32 y = tiny ? x * 0x1p+32f : x;
    const f32 near = __builtin_amdgcn_sqrtf(y);
    const f32 below = as<f32>(as<u32>(near) - 1), above = as<f32>(as<u32>(near) + 1);
    const f32 root = __builtin_fmaf(-below, near, y) <= 0.0f ? below : __builtin_fmaf(-above, near, y) > 0.0f ? above : near;
    return y == 0.0f || y == __builtin_inff() ? y : tiny ? root * 0x1p-16f : root;
}
",
    ),
    (
        "exact_sqrt(",
        "\
static __attribute__((device)) f64 exact_sqrt(f64 x) {
    // Goldschmidt's iteration from the device's reciprocal root, which has half the bits and knows no denormals.
    const bool tiny = x < 0x1p-767;
    const f64 y = tiny ? x * 0x1p+256 : x;
    const f64 seed = __builtin_amdgcn_rsq(y);
    const f64 near = y * seed, half = 0.5 * seed, error = __builtin_fma(-half, near, 0.5);
    const f64 slope = __builtin_fma(half, error, half), first = __builtin_fma(near, error, near);
    const f64 second = __builtin_fma(__builtin_fma(-first, first, y), slope, first);
    const f64 root = __builtin_fma(__builtin_fma(-second, second, y), slope, second);
    return y == 0.0 || y == __builtin_inf() ? y : tiny ? root * 0x1p-128 : root;
}
",
    ),
    (
        "exact_rem",
        "\
static __attribute__((device)) f64 exact_rem(f64 x, f64 y) {
    // By integer division of the significands, 11 bits of the quotient at a time.
    const u64 infinity = 0x7ffull << 52, leading = 1ull << 52;
    const u64 sign = as<u64>(x) & 1ull << 63, a = as<u64>(x) ^ sign, b = as<u64>(y) & ~(1ull << 63);
    if (a >= infinity || b > infinity || b == 0) return as<f64>(infinity | 1ull << 51);
    if (a < b) return x;
    i32 exponent = (i32)(b >> 52), distance = (i32)(a >> 52);
    const u64 divisor = exponent ? (b & (leading - 1)) | leading : b;
    u64 rest = (distance ? (a & (leading - 1)) | leading : a) % divisor;
    exponent += exponent == 0;
    for (distance += (distance == 0) - exponent; distance > 0; distance -= 11) {
        rest = (rest << (distance < 11 ? distance : 11)) % divisor;
    }
    if (rest == 0) return as<f64>(sign);
    const i32 missing = __builtin_clzll(rest) - 11, shift = missing < exponent - 1 ? missing : exponent - 1;
    // The leading bit, where there is one, adds 1 to the exponent.
    return as<f64>(sign | (((u64)(exponent - 1 - shift) << 52) + (rest << shift)));
}
static __attribute__((device)) f32 exact_remf(f32 x, f32 y) { return (f32)exact_rem(x, y); }
",
    ),
];
