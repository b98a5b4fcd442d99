override items0: u32 = 1u;
override items1: u32 = 1u;
override items2: u32 = 1u;
@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 5>;
@group(0) @binding(1) var<storage, read_write> wide_: array<f64>;
@group(0) @binding(2) var<storage, read_write> ints_: array<i32>;
@group(0) @binding(3) var<storage, read_write> data_: array<atomic<u32>>;
@group(0) @binding(4) var<storage, read_write> data_2: array<atomic<u32>>;

fn max_f32(a: f32, b: f32) -> f32 { return select(b, a, ((bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u) || (a > b)); }
fn i32_from_f32(x: f32) -> i32 {
    if (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u { return 0i; }
    if x >= 2147483648.0f { return 2147483647i; }
    if x <= -2147483648.0f { return (-2147483647i - 1i); }
    return i32(x);
}
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
    let t10: f64 = select(t7, wide_[t9], t8);
    let t11: bool = gid0 < ints_len;
    let t12: u32 = select(0u, ints_off + gid0, t11);
    var t13: u32 = 0u;
    let t14: u32 = t13;
    let t15: f32 = f32(t10);
    let t16: f64 = f64(t15);
    let t17: f32 = bitcast<f32>((bitcast<u32>(t15) - select(0u, 1u, abs(t10) < abs(t16))) | select(1u, 0u, t16 == t10));
    let t18: f32 = round_f16(round_f16(round_f16(t17) + round_f16(f32(select(0i, ints_[t12], t11)))) - scratch_[t14]);
    let t19: bool = gid0 < data_len;
    let t20: u32 = select(0u, data_off + gid0, t19);
    let t21: u32 = f16_bits(t18);
    if t19 { atomicAnd(&data_[t20 >> 1u], ~(0xffffu << ((t20 & 1u) << 4u))); atomicOr(&data_[t20 >> 1u], t21 << ((t20 & 1u) << 4u)); }
    let t22: f64 = bitcast<f64>(u64(zero));
    let t23: bool = gid0 < wide_len;
    let t24: u32 = select(0u, wide_off + gid0, t23);
    let t25: f64 = select(t22, wide_[t24], t23);
    let t26: bool = gid0 < ints_len;
    let t27: u32 = select(0u, ints_off + gid0, t26);
    var t28: u32 = 0u;
    let t29: u32 = t28;
    let t30: f32 = f32(t25);
    let t31: f64 = f64(t30);
    let t32: f32 = bitcast<f32>((bitcast<u32>(t30) - select(0u, 1u, abs(t25) < abs(t31))) | select(1u, 0u, t31 == t25));
    let t33: f32 = round_f16(round_f16(round_f16(t32) + round_f16(f32(select(0i, ints_[t27], t26)))) - scratch_[t29]);
    let t34: bool = gid0 < ints_len;
    let t35: u32 = select(0u, ints_off + gid0, t34);
    if t34 { ints_[t35] = bitcast<i32>(f16_bits(t33) & 0xffffu); }
    let t36: f64 = bitcast<f64>(u64(zero));
    let t37: bool = gid0 < wide_len;
    let t38: u32 = select(0u, wide_off + gid0, t37);
    let t39: f64 = select(t36, wide_[t38], t37);
    let t40: bool = gid0 < ints_len;
    let t41: u32 = select(0u, ints_off + gid0, t40);
    var t42: u32 = 0u;
    let t43: u32 = t42;
    let t44: f32 = f32(t39);
    let t45: f64 = f64(t44);
    let t46: f32 = bitcast<f32>((bitcast<u32>(t44) - select(0u, 1u, abs(t39) < abs(t45))) | select(1u, 0u, t45 == t39));
    let t47: f32 = round_f16(round_f16(round_f16(t46) + round_f16(f32(select(0i, ints_[t41], t40)))) - scratch_[t43]);
    let t48: bool = gid0 < wide_len;
    let t49: u32 = select(0u, wide_off + gid0, t48);
    if t48 { wide_[t49] = f64(t47); }
    let t50: f32 = bitcast<f32>(zero);
    let t51: bool = gid0 < data_2len;
    let t52: u32 = select(0u, data_2off + gid0, t51);
    let t53: f32 = select(t50, bf16_from_bits((atomicLoad(&data_2[t52 >> 1u]) >> ((t52 & 1u) << 4u)) & 0xffffu), t51);
    var t54: u32 = 0u;
    let t55: u32 = t54;
    scratch_2[t55] = max_f32(round_bf16(sqrt(round_bf16(round_bf16(t53 * scale_bf16_) + 0.5f))), 0.5f);
    let t56: f64 = bitcast<f64>(u64(zero));
    let t57: bool = gid0 < wide_len;
    let t58: u32 = select(0u, wide_off + gid0, t57);
    let t59: f64 = select(t56, wide_[t58], t57);
    let t60: bool = gid0 < ints_len;
    let t61: u32 = select(0u, ints_off + gid0, t60);
    let t62: i32 = select(0i, ints_[t61], t60);
    var t63: u32 = 0u;
    let t64: u32 = t63;
    let t65: f32 = f32(t59);
    let t66: f64 = f64(t65);
    let t67: f32 = bitcast<f32>((bitcast<u32>(t65) - select(0u, 1u, abs(t59) < abs(t66))) | select(1u, 0u, t66 == t59));
    let t68: f32 = f32(t62);
    let t69: i32 = i32_from_f32(t68);
    let t70: u32 = (bitcast<u32>(t68) - select(0u, 1u, select(t62 < t69, t69 < t62, t62 < 0i))) | select(1u, 0u, t69 == t62);
    let t71: bool = gid0 < data_2len;
    let t72: u32 = select(0u, data_2off + gid0, t71);
    let t73: u32 = bf16_bits(round_bf16(round_bf16(t67) + round_bf16(bitcast<f32>(t70))) - scratch_2[t64]);
    if t71 { atomicAnd(&data_2[t72 >> 1u], ~(0xffffu << ((t72 & 1u) << 4u))); atomicOr(&data_2[t72 >> 1u], t73 << ((t72 & 1u) << 4u)); }
    let t74: f64 = bitcast<f64>(u64(zero));
    let t75: bool = gid0 < wide_len;
    let t76: u32 = select(0u, wide_off + gid0, t75);
    let t77: f64 = select(t74, wide_[t76], t75);
    let t78: bool = gid0 < ints_len;
    let t79: u32 = select(0u, ints_off + gid0, t78);
    let t80: i32 = select(0i, ints_[t79], t78);
    var t81: u32 = 0u;
    let t82: u32 = t81;
    let t83: f32 = f32(t77);
    let t84: f64 = f64(t83);
    let t85: f32 = bitcast<f32>((bitcast<u32>(t83) - select(0u, 1u, abs(t77) < abs(t84))) | select(1u, 0u, t84 == t77));
    let t86: f32 = f32(t80);
    let t87: i32 = i32_from_f32(t86);
    let t88: u32 = (bitcast<u32>(t86) - select(0u, 1u, select(t80 < t87, t87 < t80, t80 < 0i))) | select(1u, 0u, t87 == t80);
    let t89: u32 = bf16_bits(round_bf16(round_bf16(t85) + round_bf16(bitcast<f32>(t88))) - scratch_2[t82]) & 0xffffu;
    let t90: bool = gid0 < ints_len;
    let t91: u32 = select(0u, ints_off + gid0, t90);
    if t90 { ints_[t91] = bitcast<i32>(t89); }
    let t92: f64 = bitcast<f64>(u64(zero));
    let t93: bool = gid0 < wide_len;
    let t94: u32 = select(0u, wide_off + gid0, t93);
    let t95: f64 = select(t92, wide_[t94], t93);
    let t96: bool = gid0 < ints_len;
    let t97: u32 = select(0u, ints_off + gid0, t96);
    let t98: i32 = select(0i, ints_[t97], t96);
    var t99: u32 = 0u;
    let t100: u32 = t99;
    let t101: f32 = f32(t95);
    let t102: f64 = f64(t101);
    let t103: f32 = bitcast<f32>((bitcast<u32>(t101) - select(0u, 1u, abs(t95) < abs(t102))) | select(1u, 0u, t102 == t95));
    let t104: f32 = f32(t98);
    let t105: i32 = i32_from_f32(t104);
    let t106: u32 = (bitcast<u32>(t104) - select(0u, 1u, select(t98 < t105, t105 < t98, t98 < 0i))) | select(1u, 0u, t105 == t98);
    let t107: bool = gid0 < wide_len;
    let t108: u32 = select(0u, wide_off + gid0, t107);
    if t107 { wide_[t108] = f64(round_bf16(round_bf16(round_bf16(t103) + round_bf16(bitcast<f32>(t106))) - scratch_2[t100])); }
}
