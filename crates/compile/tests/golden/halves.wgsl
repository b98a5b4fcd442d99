override items0: u32 = 1u;
override items1: u32 = 1u;
override items2: u32 = 1u;
@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 5>;
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
    let zero: u32 = launch[4].x;
    let gid0: u32 = (workgroup.x + base0) * items0 + local.x;
    let gid1: u32 = (workgroup.y + base1) * items1 + local.y;
    let gid2: u32 = (workgroup.z + base2) * items2 + local.z;
    if (gid0 >= size0) || (gid1 >= size1) || (gid2 >= size2) { return; }
    var scratch_: array<f32, 4>;
    var scratch_2: array<f32, 4>;
    let t1: bool = gid0 < data_len;
    let t2: u32 = select(0u, data_off + gid0, t1);
    let t3: f32 = round_f16(select(0.0f, f16_from_bits((atomicLoad(&data_[t2 >> 1u]) >> ((t2 & 1u) << 4u)) & 0xffffu), t1) * scale_f16_);
    var t4: u32 = 0u;
    let t5: u32 = t4;
    scratch_[t5] = max_f32(round_f16(sqrt(round_f16(t3 + 0.5f))), 0.5f);
    let t6: bool = gid0 < wide_len;
    let t7: u32 = select(0u, wide_off + gid0, t6);
    let t8: bool = gid0 < ints_len;
    let t9: u32 = select(0u, ints_off + gid0, t8);
    let t10: f32 = round_f16(round_f16(f32(select(0.0lf, wide_[t7], t6))) + round_f16(f32(select(0i, ints_[t9], t8))));
    var t11: u32 = 0u;
    let t12: u32 = t11;
    let t13: bool = gid0 < data_len;
    let t14: u32 = select(0u, data_off + gid0, t13);
    let t15: u32 = f16_bits(t10 - scratch_[t12]);
    if t13 { atomicAnd(&data_[t14 >> 1u], ~(0xffffu << ((t14 & 1u) << 4u))); atomicOr(&data_[t14 >> 1u], t15 << ((t14 & 1u) << 4u)); }
    let t16: bool = gid0 < wide_len;
    let t17: u32 = select(0u, wide_off + gid0, t16);
    let t18: bool = gid0 < ints_len;
    let t19: u32 = select(0u, ints_off + gid0, t18);
    let t20: f32 = round_f16(round_f16(f32(select(0.0lf, wide_[t17], t16))) + round_f16(f32(select(0i, ints_[t19], t18))));
    var t21: u32 = 0u;
    let t22: u32 = t21;
    let t23: bool = gid0 < ints_len;
    let t24: u32 = select(0u, ints_off + gid0, t23);
    if t23 { ints_[t24] = bitcast<i32>(f16_bits(t20 - scratch_[t22]) & 0xffffu); }
    let t25: bool = gid0 < wide_len;
    let t26: u32 = select(0u, wide_off + gid0, t25);
    let t27: bool = gid0 < ints_len;
    let t28: u32 = select(0u, ints_off + gid0, t27);
    let t29: f32 = round_f16(round_f16(f32(select(0.0lf, wide_[t26], t25))) + round_f16(f32(select(0i, ints_[t28], t27))));
    var t30: u32 = 0u;
    let t31: u32 = t30;
    let t32: bool = gid0 < wide_len;
    let t33: u32 = select(0u, wide_off + gid0, t32);
    if t32 { wide_[t33] = f64(round_f16(t29 - scratch_[t31])); }
    let t34: bool = gid0 < data_2len;
    let t35: u32 = select(0u, data_2off + gid0, t34);
    let t36: f32 = select(0.0f, bf16_from_bits((atomicLoad(&data_2[t35 >> 1u]) >> ((t35 & 1u) << 4u)) & 0xffffu), t34);
    var t37: u32 = 0u;
    let t38: u32 = t37;
    scratch_2[t38] = max_f32(round_bf16(sqrt(round_bf16(round_bf16(t36 * scale_bf16_) + 0.5f))), 0.5f);
    let t39: bool = gid0 < wide_len;
    let t40: u32 = select(0u, wide_off + gid0, t39);
    let t41: bool = gid0 < ints_len;
    let t42: u32 = select(0u, ints_off + gid0, t41);
    let t43: f32 = round_bf16(round_bf16(f32(select(0.0lf, wide_[t40], t39))) + round_bf16(f32(select(0i, ints_[t42], t41))));
    var t44: u32 = 0u;
    let t45: u32 = t44;
    let t46: bool = gid0 < data_2len;
    let t47: u32 = select(0u, data_2off + gid0, t46);
    let t48: u32 = bf16_bits(t43 - scratch_2[t45]);
    if t46 { atomicAnd(&data_2[t47 >> 1u], ~(0xffffu << ((t47 & 1u) << 4u))); atomicOr(&data_2[t47 >> 1u], t48 << ((t47 & 1u) << 4u)); }
    let t49: bool = gid0 < wide_len;
    let t50: u32 = select(0u, wide_off + gid0, t49);
    let t51: bool = gid0 < ints_len;
    let t52: u32 = select(0u, ints_off + gid0, t51);
    let t53: f32 = round_bf16(round_bf16(f32(select(0.0lf, wide_[t50], t49))) + round_bf16(f32(select(0i, ints_[t52], t51))));
    var t54: u32 = 0u;
    let t55: u32 = t54;
    let t56: bool = gid0 < ints_len;
    let t57: u32 = select(0u, ints_off + gid0, t56);
    if t56 { ints_[t57] = bitcast<i32>(bf16_bits(t53 - scratch_2[t55]) & 0xffffu); }
    let t58: bool = gid0 < wide_len;
    let t59: u32 = select(0u, wide_off + gid0, t58);
    let t60: bool = gid0 < ints_len;
    let t61: u32 = select(0u, ints_off + gid0, t60);
    let t62: f32 = round_bf16(round_bf16(f32(select(0.0lf, wide_[t59], t58))) + round_bf16(f32(select(0i, ints_[t61], t60))));
    var t63: u32 = 0u;
    let t64: u32 = t63;
    let t65: bool = gid0 < wide_len;
    let t66: u32 = select(0u, wide_off + gid0, t65);
    if t65 { wide_[t66] = f64(round_bf16(t62 - scratch_2[t64])); }
}
