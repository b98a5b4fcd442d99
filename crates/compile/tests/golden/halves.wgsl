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
    let t1: f32 = bitcast<f32>(zero);
    let t2: bool = gid0 < data_len;
    let t3: u32 = select(0u, data_off + gid0, t2);
    let t4: f32 = round_f16(select(t1, f16_from_bits((atomicLoad(&data_[t3 >> 1u]) >> ((t3 & 1u) << 4u)) & 0xffffu), t2) * scale_f16_);
    var t5: u32 = 0u;
    let t6: u32 = t5;
    scratch_[t6] = max_f32(round_f16(sqrt(round_f16(t4 + 0.5f))), 0.5f);
    let t7: f64 = bitcast<f64>(u64(zero));
    let t8: bool = gid0 < wide_len;
    let t9: u32 = select(0u, wide_off + gid0, t8);
    let t10: bool = gid0 < ints_len;
    let t11: u32 = select(0u, ints_off + gid0, t10);
    let t12: f32 = round_f16(round_f16(f32(select(t7, wide_[t9], t8))) + round_f16(f32(select(0i, ints_[t11], t10))));
    var t13: u32 = 0u;
    let t14: u32 = t13;
    let t15: bool = gid0 < data_len;
    let t16: u32 = select(0u, data_off + gid0, t15);
    let t17: u32 = f16_bits(t12 - scratch_[t14]);
    if t15 { atomicAnd(&data_[t16 >> 1u], ~(0xffffu << ((t16 & 1u) << 4u))); atomicOr(&data_[t16 >> 1u], t17 << ((t16 & 1u) << 4u)); }
    let t18: f64 = bitcast<f64>(u64(zero));
    let t19: bool = gid0 < wide_len;
    let t20: u32 = select(0u, wide_off + gid0, t19);
    let t21: bool = gid0 < ints_len;
    let t22: u32 = select(0u, ints_off + gid0, t21);
    let t23: f32 = round_f16(round_f16(f32(select(t18, wide_[t20], t19))) + round_f16(f32(select(0i, ints_[t22], t21))));
    var t24: u32 = 0u;
    let t25: u32 = t24;
    let t26: bool = gid0 < ints_len;
    let t27: u32 = select(0u, ints_off + gid0, t26);
    if t26 { ints_[t27] = bitcast<i32>(f16_bits(t23 - scratch_[t25]) & 0xffffu); }
    let t28: f64 = bitcast<f64>(u64(zero));
    let t29: bool = gid0 < wide_len;
    let t30: u32 = select(0u, wide_off + gid0, t29);
    let t31: bool = gid0 < ints_len;
    let t32: u32 = select(0u, ints_off + gid0, t31);
    let t33: f32 = round_f16(round_f16(f32(select(t28, wide_[t30], t29))) + round_f16(f32(select(0i, ints_[t32], t31))));
    var t34: u32 = 0u;
    let t35: u32 = t34;
    let t36: bool = gid0 < wide_len;
    let t37: u32 = select(0u, wide_off + gid0, t36);
    if t36 { wide_[t37] = f64(round_f16(t33 - scratch_[t35])); }
    let t38: f32 = bitcast<f32>(zero);
    let t39: bool = gid0 < data_2len;
    let t40: u32 = select(0u, data_2off + gid0, t39);
    let t41: f32 = select(t38, bf16_from_bits((atomicLoad(&data_2[t40 >> 1u]) >> ((t40 & 1u) << 4u)) & 0xffffu), t39);
    var t42: u32 = 0u;
    let t43: u32 = t42;
    scratch_2[t43] = max_f32(round_bf16(sqrt(round_bf16(round_bf16(t41 * scale_bf16_) + 0.5f))), 0.5f);
    let t44: f64 = bitcast<f64>(u64(zero));
    let t45: bool = gid0 < wide_len;
    let t46: u32 = select(0u, wide_off + gid0, t45);
    let t47: bool = gid0 < ints_len;
    let t48: u32 = select(0u, ints_off + gid0, t47);
    let t49: f32 = round_bf16(round_bf16(f32(select(t44, wide_[t46], t45))) + round_bf16(f32(select(0i, ints_[t48], t47))));
    var t50: u32 = 0u;
    let t51: u32 = t50;
    let t52: bool = gid0 < data_2len;
    let t53: u32 = select(0u, data_2off + gid0, t52);
    let t54: u32 = bf16_bits(t49 - scratch_2[t51]);
    if t52 { atomicAnd(&data_2[t53 >> 1u], ~(0xffffu << ((t53 & 1u) << 4u))); atomicOr(&data_2[t53 >> 1u], t54 << ((t53 & 1u) << 4u)); }
    let t55: f64 = bitcast<f64>(u64(zero));
    let t56: bool = gid0 < wide_len;
    let t57: u32 = select(0u, wide_off + gid0, t56);
    let t58: bool = gid0 < ints_len;
    let t59: u32 = select(0u, ints_off + gid0, t58);
    let t60: f32 = round_bf16(round_bf16(f32(select(t55, wide_[t57], t56))) + round_bf16(f32(select(0i, ints_[t59], t58))));
    var t61: u32 = 0u;
    let t62: u32 = t61;
    let t63: bool = gid0 < ints_len;
    let t64: u32 = select(0u, ints_off + gid0, t63);
    if t63 { ints_[t64] = bitcast<i32>(bf16_bits(t60 - scratch_2[t62]) & 0xffffu); }
    let t65: f64 = bitcast<f64>(u64(zero));
    let t66: bool = gid0 < wide_len;
    let t67: u32 = select(0u, wide_off + gid0, t66);
    let t68: bool = gid0 < ints_len;
    let t69: u32 = select(0u, ints_off + gid0, t68);
    let t70: f32 = round_bf16(round_bf16(f32(select(t65, wide_[t67], t66))) + round_bf16(f32(select(0i, ints_[t69], t68))));
    var t71: u32 = 0u;
    let t72: u32 = t71;
    let t73: bool = gid0 < wide_len;
    let t74: u32 = select(0u, wide_off + gid0, t73);
    if t73 { wide_[t74] = f64(round_bf16(t70 - scratch_2[t72])); }
}
