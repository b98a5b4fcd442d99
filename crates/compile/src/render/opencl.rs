//! The OpenCL C 1.2 dialect.
//!
//! The driver builds with `-cl-std=CL1.2` and, where the device supports it, `-cl-fp32-correctly-rounded-divide-sqrt`.
//! It never requests relaxed math.

use panoply_ir::kernel::{AtomicOp, Builtin};
use panoply_ir::{Alu, DType, Math};

use super::c_dialect::{CDialect, Extensions};

pub(super) const DIALECT: CDialect = CDialect {
    preamble,
    types: [
        (DType::Bool, "bool"),
        (DType::I8, "char"),
        (DType::I16, "short"),
        (DType::I32, "int"),
        (DType::I64, "long"),
        (DType::U8, "uchar"),
        (DType::U16, "ushort"),
        (DType::U32, "uint"),
        (DType::U64, "ulong"),
        (DType::F32, "float"),
        (DType::F64, "double"),
    ],
    vector: |name, lanes| format!("{name}{lanes}"),
    suffix_64: ["L", "UL"],
    global: "global ",
    shared: "local ",
    restrict: "restrict ",
    function: "static ",
    entry,
    builtin,
    barrier: "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    shuffle: |value, lane| format!("intel_sub_group_shuffle({value}, {lane})"),
    math: &[
        (Alu::Abs, "fabs"),
        (Alu::PopCount, "popcount"),
        (Alu::Math(Math::Log), "log"),
        (Alu::Round, "rint"),
        (Alu::Rem, "fmod"),
    ],
    math_f32: "",
    bits_as: [
        (DType::I32, "as_int"),
        (DType::I64, "as_long"),
        (DType::U32, "as_uint"),
        (DType::U64, "as_ulong"),
        (DType::F32, "as_float"),
        (DType::F64, "as_double"),
    ],
    f16,
    max_lanes: 16,
    load_vector: |lanes, pointer| format!("vload{lanes}(0, {pointer})"),
    store_vector: |vector, lanes, pointer| {
        format!("vstore{}(({vector})({}), 0, {pointer});", lanes.len(), lanes.join(", "))
    },
    lane: |lane| format!(".s{lane:x}"),
    atomic,
    library: &[],
};

fn preamble(extensions: &Extensions) -> String {
    let mut text = String::new();
    if extensions.f64 {
        text += "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n";
    }
    if extensions.f16 {
        text += "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n";
    }
    if extensions.subgroup.is_some() {
        text += "#pragma OPENCL EXTENSION cl_intel_subgroups : enable\n";
    }
    text + "#pragma OPENCL FP_CONTRACT OFF\n"
}

fn entry(group: Option<[u32; 3]>, extensions: &Extensions) -> String {
    let mut text = "kernel ".to_string();
    if let Some([x, y, z]) = group {
        text += &format!("__attribute__((reqd_work_group_size({x}, {y}, {z}))) ");
    }
    if let Some(size) = extensions.subgroup {
        text += &format!("__attribute__((intel_reqd_sub_group_size({size}))) ");
    }
    text + "void"
}

fn builtin(builtin: Builtin, _: Option<[u32; 3]>) -> String {
    match builtin {
        Builtin::GlobalId(axis) => format!("get_global_id({axis})"),
        Builtin::LocalId(axis) => format!("get_local_id({axis})"),
        Builtin::GroupId(axis) => format!("get_group_id({axis})"),
        Builtin::GroupSize(axis) => format!("get_local_size({axis})"),
        Builtin::GroupCount(axis) => format!("get_num_groups({axis})"),
        Builtin::SubgroupLane => "get_sub_group_local_id()".to_string(),
        Builtin::GlobalSize(_) | Builtin::SubgroupSize => unreachable!("sizes are arguments or constants"),
    }
}

fn f16(native: bool) -> &'static str {
    if native {
        "static float f16_from_bits(ushort bits) { return (float)as_half(bits); }\n\
         static ushort f16_bits(float x) { return as_ushort((half)x); }\n"
    } else {
        "static float f16_from_bits(ushort bits) { return vload_half(0, (const half *)&bits); }\n\
         static ushort f16_bits(float x) { ushort bits; vstore_half_rte(x, 0, (half *)&bits); return bits; }\n"
    }
}

fn atomic(op: AtomicOp, dtype: DType) -> Option<&'static str> {
    match op {
        AtomicOp::Add if dtype == DType::F32 => None,
        AtomicOp::Add => Some("atomic_add"),
        AtomicOp::Min => Some("atomic_min"),
        AtomicOp::Max => Some("atomic_max"),
        AtomicOp::Exchange => Some("atomic_xchg"),
        AtomicOp::CompareExchange => Some("atomic_cmpxchg"),
    }
}
