enable f16;
override items0: u32 = 1u;
override items1: u32 = 1u;
override items2: u32 = 1u;
@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 7>;
@group(0) @binding(1) var<storage, read_write> wide_: array<f64>;
@group(0) @binding(2) var<storage, read_write> ints_: array<i32>;
@group(0) @binding(3) var<storage, read_write> data_: array<f16>;
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
    let wide_off: u64 = (u64(launch[0].x) | (u64(launch[0].y) << 32u));
    let wide_len: u64 = (u64(launch[0].z) | (u64(launch[0].w) << 32u));
    let ints_off: u64 = (u64(launch[1].x) | (u64(launch[1].y) << 32u));
    let ints_len: u64 = (u64(launch[1].z) | (u64(launch[1].w) << 32u));
    let data_off: u64 = (u64(launch[2].x) | (u64(launch[2].y) << 32u));
    let data_len: u64 = (u64(launch[2].z) | (u64(launch[2].w) << 32u));
    let data_2off: u64 = (u64(launch[3].x) | (u64(launch[3].y) << 32u));
    let data_2len: u64 = (u64(launch[3].z) | (u64(launch[3].w) << 32u));
    let scale_f16_: f32 = f16_from_bits(launch[4].x & 0xffffu);
    let scale_bf16_: f32 = bf16_from_bits(launch[4].y & 0xffffu);
    let size0: u64 = (u64(launch[4].z) | (u64(launch[4].w) << 32u));
    let size1: u64 = (u64(launch[5].x) | (u64(launch[5].y) << 32u));
    let size2: u64 = (u64(launch[5].z) | (u64(launch[5].w) << 32u));
    let base0: u32 = launch[6].x;
    let base1: u32 = launch[6].y;
    let base2: u32 = launch[6].z;
    let zero: u32 = launch[6].w;
    let gid0: u64 = (u64(workgroup.x + base0)) * u64(items0) + u64(local.x);
    let gid1: u64 = (u64(workgroup.y + base1)) * u64(items1) + u64(local.y);
    let gid2: u64 = (u64(workgroup.z + base2)) * u64(items2) + u64(local.z);
    if (gid0 >= size0) || (gid1 >= size1) || (gid2 >= size2) { return; }
    var scratch_: array<f32, 4>;
    var scratch_2: array<f32, 4>;
    let t1: f32 = bitcast<f32>(zero);
    let t2: bool = gid0 < data_len;
    let t3: u32 = select(0u, u32(data_off + gid0), t2);
    let t4: f32 = max_f32(round_f16(sqrt(round_f16(round_f16(select(t1, f32(data_[t3]), t2) * scale_f16_) + 0.5f))), 0.5f);
    var t5: u64 = 0lu;
    let t6: u32 = u32(t5);
    scratch_[t6] = t4;
    let t7: f64 = bitcast<f64>(u64(zero));
    let t8: bool = gid0 < wide_len;
    let t9: u32 = select(0u, u32(wide_off + gid0), t8);
    let t10: bool = gid0 < ints_len;
    let t11: u32 = select(0u, u32(ints_off + gid0), t10);
    let t12: f32 = round_f16(round_f16(f32(select(t7, wide_[t9], t8))) + round_f16(f32(select(0i, ints_[t11], t10))));
    var t13: u64 = 0lu;
    let t14: u32 = u32(t13);
    let t15: bool = gid0 < data_len;
    let t16: u32 = select(0u, u32(data_off + gid0), t15);
    if t15 { data_[t16] = f16(round_f16(t12 - scratch_[t14])); }
    let t17: f64 = bitcast<f64>(u64(zero));
    let t18: bool = gid0 < wide_len;
    let t19: u32 = select(0u, u32(wide_off + gid0), t18);
    let t20: bool = gid0 < ints_len;
    let t21: u32 = select(0u, u32(ints_off + gid0), t20);
    let t22: f32 = round_f16(round_f16(f32(select(t17, wide_[t19], t18))) + round_f16(f32(select(0i, ints_[t21], t20))));
    var t23: u64 = 0lu;
    let t24: u32 = u32(t23);
    let t25: bool = gid0 < ints_len;
    let t26: u32 = select(0u, u32(ints_off + gid0), t25);
    if t25 { ints_[t26] = bitcast<i32>(f16_bits(t22 - scratch_[t24]) & 0xffffu); }
    let t27: f64 = bitcast<f64>(u64(zero));
    let t28: bool = gid0 < wide_len;
    let t29: u32 = select(0u, u32(wide_off + gid0), t28);
    let t30: bool = gid0 < ints_len;
    let t31: u32 = select(0u, u32(ints_off + gid0), t30);
    let t32: f32 = round_f16(round_f16(f32(select(t27, wide_[t29], t28))) + round_f16(f32(select(0i, ints_[t31], t30))));
    var t33: u64 = 0lu;
    let t34: u32 = u32(t33);
    let t35: bool = gid0 < wide_len;
    let t36: u32 = select(0u, u32(wide_off + gid0), t35);
    if t35 { wide_[t36] = f64(round_f16(t32 - scratch_[t34])); }
    let t37: f32 = bitcast<f32>(zero);
    let t38: bool = gid0 < data_2len;
    let t39: u32 = select(0u, u32(data_2off + gid0), t38);
    let t40: f32 = select(t37, bf16_from_bits((atomicLoad(&data_2[t39 >> 1u]) >> ((t39 & 1u) << 4u)) & 0xffffu), t38);
    var t41: u64 = 0lu;
    let t42: u32 = u32(t41);
    scratch_2[t42] = max_f32(round_bf16(sqrt(round_bf16(round_bf16(t40 * scale_bf16_) + 0.5f))), 0.5f);
    let t43: f64 = bitcast<f64>(u64(zero));
    let t44: bool = gid0 < wide_len;
    let t45: u32 = select(0u, u32(wide_off + gid0), t44);
    let t46: bool = gid0 < ints_len;
    let t47: u32 = select(0u, u32(ints_off + gid0), t46);
    let t48: f32 = round_bf16(round_bf16(f32(select(t43, wide_[t45], t44))) + round_bf16(f32(select(0i, ints_[t47], t46))));
    var t49: u64 = 0lu;
    let t50: u32 = u32(t49);
    let t51: bool = gid0 < data_2len;
    let t52: u32 = select(0u, u32(data_2off + gid0), t51);
    let t53: u32 = bf16_bits(t48 - scratch_2[t50]);
    if t51 { atomicAnd(&data_2[t52 >> 1u], ~(0xffffu << ((t52 & 1u) << 4u))); atomicOr(&data_2[t52 >> 1u], t53 << ((t52 & 1u) << 4u)); }
    let t54: f64 = bitcast<f64>(u64(zero));
    let t55: bool = gid0 < wide_len;
    let t56: u32 = select(0u, u32(wide_off + gid0), t55);
    let t57: bool = gid0 < ints_len;
    let t58: u32 = select(0u, u32(ints_off + gid0), t57);
    let t59: f32 = round_bf16(round_bf16(f32(select(t54, wide_[t56], t55))) + round_bf16(f32(select(0i, ints_[t58], t57))));
    var t60: u64 = 0lu;
    let t61: u32 = u32(t60);
    let t62: bool = gid0 < ints_len;
    let t63: u32 = select(0u, u32(ints_off + gid0), t62);
    if t62 { ints_[t63] = bitcast<i32>(bf16_bits(t59 - scratch_2[t61]) & 0xffffu); }
    let t64: f64 = bitcast<f64>(u64(zero));
    let t65: bool = gid0 < wide_len;
    let t66: u32 = select(0u, u32(wide_off + gid0), t65);
    let t67: bool = gid0 < ints_len;
    let t68: u32 = select(0u, u32(ints_off + gid0), t67);
    let t69: f32 = round_bf16(round_bf16(f32(select(t64, wide_[t66], t65))) + round_bf16(f32(select(0i, ints_[t68], t67))));
    var t70: u64 = 0lu;
    let t71: u32 = u32(t70);
    let t72: bool = gid0 < wide_len;
    let t73: u32 = select(0u, u32(wide_off + gid0), t72);
    if t72 { wide_[t73] = f64(round_bf16(t69 - scratch_2[t71])); }
}
