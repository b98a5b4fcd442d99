override items0: u32 = 1u;
override items1: u32 = 1u;
override items2: u32 = 1u;
@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 4>;
@group(0) @binding(1) var<storage, read_write> wide_: array<f64>;
@group(0) @binding(2) var<storage, read_write> ints_: array<i32>;
@group(0) @binding(3) var<storage, read_write> data_: array<atomic<u32>>;
@group(0) @binding(4) var<storage, read_write> data_2: array<atomic<u32>>;

fn max_f32(a: f32, b: f32) -> f32 { return select(b, a, ((bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u) || (a > b)); }
fn f16_from_bits(bits: u32) -> f32 {
    let sign = (bits & 0x8000u) << 16u;
    let rest = bits & 0x7fffu;
    if rest >= 0x7c00u { return bitcast<f32>(sign | 0x7f800000u | (rest << 13u)); }
    if rest >= 0x400u { return bitcast<f32>(sign | ((rest << 13u) + 0x38000000u)); }
    return bitcast<f32>(sign | bitcast<u32>(f32(rest) * 5.9604645e-8f));
}
fn f16_bits(x: f32) -> u32 {
    let u = bitcast<u32>(x);
    let sign = (u >> 16u) & 0x8000u;
    let a = u & 0x7fffffffu;
    if a > 0x7f800000u { return sign | 0x7e00u; }
    if a >= 0x477ff000u { return sign | 0x7c00u; }
    if a >= 0x38800000u { return sign | ((a - 0x38000000u + 0xfffu + ((a >> 13u) & 1u)) >> 13u); }
    let exponent = a >> 23u;
    if exponent < 102u { return sign; }
    let significand = (a & 0x7fffffu) | 0x800000u;
    let shift = 126u - exponent;
    let kept = significand >> shift;
    let lost = significand << (32u - shift);
    return sign | (kept + u32((lost > 0x80000000u) || ((lost == 0x80000000u) && ((kept & 1u) == 1u))));
}
fn bf16_from_bits(bits: u32) -> f32 { return bitcast<f32>(bits << 16u); }
fn bf16_bits(x: f32) -> u32 {
    let u = bitcast<u32>(x);
    let rounded = (u + 0x7fffu + ((u >> 16u) & 1u)) >> 16u;
    return select(rounded, (u >> 16u) | 64u, (u & 0x7fffffffu) > 0x7f800000u);
}
fn round_f16(x: f32) -> f32 { return f16_from_bits(f16_bits(x)); }
fn round_bf16(x: f32) -> f32 { return bf16_from_bits(bf16_bits(x)); }
@compute @workgroup_size(items0, items1, items2)
fn halves_(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let wide_off: u32 = launch[0].x;
    let wide_len: u32 = launch[0].y;
    let ints_off: u32 = launch[0].z;
    let ints_len: u32 = launch[0].w;
    let data_off: u32 = launch[1].x;
    let data_len: u32 = launch[1].y;
    let data_2off: u32 = launch[1].z;
    let data_2len: u32 = launch[1].w;
    let scale_f16_: f32 = f16_from_bits(launch[2].x & 0xffffu);
    let scale_bf16_: f32 = bf16_from_bits(launch[2].y & 0xffffu);
    let size0: u32 = launch[2].z;
    let size1: u32 = launch[2].w;
    let size2: u32 = launch[3].x;
    let base0: u32 = launch[3].y;
    let base1: u32 = launch[3].z;
    let base2: u32 = launch[3].w;
    let gid0: u32 = (workgroup.x + base0) * items0 + local.x;
    let gid1: u32 = (workgroup.y + base1) * items1 + local.y;
    let gid2: u32 = (workgroup.z + base2) * items2 + local.z;
    if (gid0 >= size0) || (gid1 >= size1) || (gid2 >= size2) { return; }
    var scratch_: array<f32, 4>;
    var scratch_2: array<f32, 4>;
    let t1: bool = gid0 < data_len;
    let t2: u32 = select(0u, data_off + gid0, t1);
    let t3: f32 = round_f16(select(0.0f, f16_from_bits((atomicLoad(&data_[t2 >> 1u]) >> ((t2 & 1u) << 4u)) & 0xffffu), t1) * scale_f16_);
    let t4: u32 = 0u;
    let t5: u32 = t4;
    scratch_[t5] = max_f32(round_f16(sqrt(round_f16(t3 + 0.5f))), 0.5f);
    let t6: bool = gid0 < wide_len;
    let t7: u32 = select(0u, wide_off + gid0, t6);
    let t8: bool = gid0 < ints_len;
    let t9: u32 = select(0u, ints_off + gid0, t8);
    let t10: f32 = round_f16(round_f16(f32(select(0.0lf, wide_[t7], t6))) + round_f16(f32(select(0i, ints_[t9], t8))));
    let t11: u32 = 0u;
    let t12: u32 = t11;
    let t13: bool = gid0 < data_len;
    let t14: u32 = select(0u, data_off + gid0, t13);
    if t13 { atomicAnd(&data_[t14 >> 1u], ~(0xffffu << ((t14 & 1u) << 4u))); atomicOr(&data_[t14 >> 1u], f16_bits(t10 - scratch_[t12]) << ((t14 & 1u) << 4u)); }
    let t15: bool = gid0 < wide_len;
    let t16: u32 = select(0u, wide_off + gid0, t15);
    let t17: bool = gid0 < ints_len;
    let t18: u32 = select(0u, ints_off + gid0, t17);
    let t19: f32 = round_f16(round_f16(f32(select(0.0lf, wide_[t16], t15))) + round_f16(f32(select(0i, ints_[t18], t17))));
    let t20: u32 = 0u;
    let t21: u32 = t20;
    let t22: bool = gid0 < ints_len;
    let t23: u32 = select(0u, ints_off + gid0, t22);
    if t22 { ints_[t23] = bitcast<i32>(f16_bits(t19 - scratch_[t21]) & 0xffffu); }
    let t24: bool = gid0 < wide_len;
    let t25: u32 = select(0u, wide_off + gid0, t24);
    let t26: bool = gid0 < ints_len;
    let t27: u32 = select(0u, ints_off + gid0, t26);
    let t28: f32 = round_f16(round_f16(f32(select(0.0lf, wide_[t25], t24))) + round_f16(f32(select(0i, ints_[t27], t26))));
    let t29: u32 = 0u;
    let t30: u32 = t29;
    let t31: bool = gid0 < wide_len;
    let t32: u32 = select(0u, wide_off + gid0, t31);
    if t31 { wide_[t32] = f64(round_f16(t28 - scratch_[t30])); }
    let t33: bool = gid0 < data_2len;
    let t34: u32 = select(0u, data_2off + gid0, t33);
    let t35: f32 = select(0.0f, bf16_from_bits((atomicLoad(&data_2[t34 >> 1u]) >> ((t34 & 1u) << 4u)) & 0xffffu), t33);
    let t36: u32 = 0u;
    let t37: u32 = t36;
    scratch_2[t37] = max_f32(round_bf16(sqrt(round_bf16(round_bf16(t35 * scale_bf16_) + 0.5f))), 0.5f);
    let t38: bool = gid0 < wide_len;
    let t39: u32 = select(0u, wide_off + gid0, t38);
    let t40: bool = gid0 < ints_len;
    let t41: u32 = select(0u, ints_off + gid0, t40);
    let t42: f32 = round_bf16(round_bf16(f32(select(0.0lf, wide_[t39], t38))) + round_bf16(f32(select(0i, ints_[t41], t40))));
    let t43: u32 = 0u;
    let t44: u32 = t43;
    let t45: bool = gid0 < data_2len;
    let t46: u32 = select(0u, data_2off + gid0, t45);
    if t45 { atomicAnd(&data_2[t46 >> 1u], ~(0xffffu << ((t46 & 1u) << 4u))); atomicOr(&data_2[t46 >> 1u], bf16_bits(t42 - scratch_2[t44]) << ((t46 & 1u) << 4u)); }
    let t47: bool = gid0 < wide_len;
    let t48: u32 = select(0u, wide_off + gid0, t47);
    let t49: bool = gid0 < ints_len;
    let t50: u32 = select(0u, ints_off + gid0, t49);
    let t51: f32 = round_bf16(round_bf16(f32(select(0.0lf, wide_[t48], t47))) + round_bf16(f32(select(0i, ints_[t50], t49))));
    let t52: u32 = 0u;
    let t53: u32 = t52;
    let t54: bool = gid0 < ints_len;
    let t55: u32 = select(0u, ints_off + gid0, t54);
    if t54 { ints_[t55] = bitcast<i32>(bf16_bits(t51 - scratch_2[t53]) & 0xffffu); }
    let t56: bool = gid0 < wide_len;
    let t57: u32 = select(0u, wide_off + gid0, t56);
    let t58: bool = gid0 < ints_len;
    let t59: u32 = select(0u, ints_off + gid0, t58);
    let t60: f32 = round_bf16(round_bf16(f32(select(0.0lf, wide_[t57], t56))) + round_bf16(f32(select(0i, ints_[t59], t58))));
    let t61: u32 = 0u;
    let t62: u32 = t61;
    let t63: bool = gid0 < wide_len;
    let t64: u32 = select(0u, wide_off + gid0, t63);
    if t63 { wide_[t64] = f64(round_bf16(t60 - scratch_2[t62])); }
}
