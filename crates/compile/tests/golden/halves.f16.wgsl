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
    let t10: f64 = select(t7, wide_[t9], t8);
    let t11: bool = gid0 < ints_len;
    let t12: u32 = select(0u, u32(ints_off + gid0), t11);
    var t13: u64 = 0lu;
    let t14: u32 = u32(t13);
    let t15: f32 = f32(t10);
    let t16: f64 = f64(t15);
    let t17: f32 = bitcast<f32>((bitcast<u32>(t15) - select(0u, 1u, abs(t10) < abs(t16))) | select(1u, 0u, t16 == t10));
    let t18: f32 = round_f16(round_f16(round_f16(t17) + round_f16(f32(select(0i, ints_[t12], t11)))) - scratch_[t14]);
    let t19: bool = gid0 < data_len;
    let t20: u32 = select(0u, u32(data_off + gid0), t19);
    if t19 { data_[t20] = f16(t18); }
    let t21: f64 = bitcast<f64>(u64(zero));
    let t22: bool = gid0 < wide_len;
    let t23: u32 = select(0u, u32(wide_off + gid0), t22);
    let t24: f64 = select(t21, wide_[t23], t22);
    let t25: bool = gid0 < ints_len;
    let t26: u32 = select(0u, u32(ints_off + gid0), t25);
    var t27: u64 = 0lu;
    let t28: u32 = u32(t27);
    let t29: f32 = f32(t24);
    let t30: f64 = f64(t29);
    let t31: f32 = bitcast<f32>((bitcast<u32>(t29) - select(0u, 1u, abs(t24) < abs(t30))) | select(1u, 0u, t30 == t24));
    let t32: f32 = round_f16(round_f16(round_f16(t31) + round_f16(f32(select(0i, ints_[t26], t25)))) - scratch_[t28]);
    let t33: bool = gid0 < ints_len;
    let t34: u32 = select(0u, u32(ints_off + gid0), t33);
    if t33 { ints_[t34] = bitcast<i32>(f16_bits(t32) & 0xffffu); }
    let t35: f64 = bitcast<f64>(u64(zero));
    let t36: bool = gid0 < wide_len;
    let t37: u32 = select(0u, u32(wide_off + gid0), t36);
    let t38: f64 = select(t35, wide_[t37], t36);
    let t39: bool = gid0 < ints_len;
    let t40: u32 = select(0u, u32(ints_off + gid0), t39);
    var t41: u64 = 0lu;
    let t42: u32 = u32(t41);
    let t43: f32 = f32(t38);
    let t44: f64 = f64(t43);
    let t45: f32 = bitcast<f32>((bitcast<u32>(t43) - select(0u, 1u, abs(t38) < abs(t44))) | select(1u, 0u, t44 == t38));
    let t46: f32 = round_f16(round_f16(round_f16(t45) + round_f16(f32(select(0i, ints_[t40], t39)))) - scratch_[t42]);
    let t47: bool = gid0 < wide_len;
    let t48: u32 = select(0u, u32(wide_off + gid0), t47);
    if t47 { wide_[t48] = f64(t46); }
    let t49: f32 = bitcast<f32>(zero);
    let t50: bool = gid0 < data_2len;
    let t51: u32 = select(0u, u32(data_2off + gid0), t50);
    let t52: f32 = select(t49, bf16_from_bits((atomicLoad(&data_2[t51 >> 1u]) >> ((t51 & 1u) << 4u)) & 0xffffu), t50);
    var t53: u64 = 0lu;
    let t54: u32 = u32(t53);
    scratch_2[t54] = max_f32(round_bf16(sqrt(round_bf16(round_bf16(t52 * scale_bf16_) + 0.5f))), 0.5f);
    let t55: f64 = bitcast<f64>(u64(zero));
    let t56: bool = gid0 < wide_len;
    let t57: u32 = select(0u, u32(wide_off + gid0), t56);
    let t58: f64 = select(t55, wide_[t57], t56);
    let t59: bool = gid0 < ints_len;
    let t60: u32 = select(0u, u32(ints_off + gid0), t59);
    let t61: i32 = select(0i, ints_[t60], t59);
    var t62: u64 = 0lu;
    let t63: u32 = u32(t62);
    let t64: f32 = f32(t58);
    let t65: f64 = f64(t64);
    let t66: f32 = bitcast<f32>((bitcast<u32>(t64) - select(0u, 1u, abs(t58) < abs(t65))) | select(1u, 0u, t65 == t58));
    let t67: f32 = f32(t61);
    let t68: i32 = i32_from_f32(t67);
    let t69: u32 = (bitcast<u32>(t67) - select(0u, 1u, select(t61 < t68, t68 < t61, t61 < 0i))) | select(1u, 0u, t68 == t61);
    let t70: bool = gid0 < data_2len;
    let t71: u32 = select(0u, u32(data_2off + gid0), t70);
    let t72: u32 = bf16_bits(round_bf16(round_bf16(t66) + round_bf16(bitcast<f32>(t69))) - scratch_2[t63]);
    if t70 { atomicAnd(&data_2[t71 >> 1u], ~(0xffffu << ((t71 & 1u) << 4u))); atomicOr(&data_2[t71 >> 1u], t72 << ((t71 & 1u) << 4u)); }
    let t73: f64 = bitcast<f64>(u64(zero));
    let t74: bool = gid0 < wide_len;
    let t75: u32 = select(0u, u32(wide_off + gid0), t74);
    let t76: f64 = select(t73, wide_[t75], t74);
    let t77: bool = gid0 < ints_len;
    let t78: u32 = select(0u, u32(ints_off + gid0), t77);
    let t79: i32 = select(0i, ints_[t78], t77);
    var t80: u64 = 0lu;
    let t81: u32 = u32(t80);
    let t82: f32 = f32(t76);
    let t83: f64 = f64(t82);
    let t84: f32 = bitcast<f32>((bitcast<u32>(t82) - select(0u, 1u, abs(t76) < abs(t83))) | select(1u, 0u, t83 == t76));
    let t85: f32 = f32(t79);
    let t86: i32 = i32_from_f32(t85);
    let t87: u32 = (bitcast<u32>(t85) - select(0u, 1u, select(t79 < t86, t86 < t79, t79 < 0i))) | select(1u, 0u, t86 == t79);
    let t88: u32 = bf16_bits(round_bf16(round_bf16(t84) + round_bf16(bitcast<f32>(t87))) - scratch_2[t81]) & 0xffffu;
    let t89: bool = gid0 < ints_len;
    let t90: u32 = select(0u, u32(ints_off + gid0), t89);
    if t89 { ints_[t90] = bitcast<i32>(t88); }
    let t91: f64 = bitcast<f64>(u64(zero));
    let t92: bool = gid0 < wide_len;
    let t93: u32 = select(0u, u32(wide_off + gid0), t92);
    let t94: f64 = select(t91, wide_[t93], t92);
    let t95: bool = gid0 < ints_len;
    let t96: u32 = select(0u, u32(ints_off + gid0), t95);
    let t97: i32 = select(0i, ints_[t96], t95);
    var t98: u64 = 0lu;
    let t99: u32 = u32(t98);
    let t100: f32 = f32(t94);
    let t101: f64 = f64(t100);
    let t102: f32 = bitcast<f32>((bitcast<u32>(t100) - select(0u, 1u, abs(t94) < abs(t101))) | select(1u, 0u, t101 == t94));
    let t103: f32 = f32(t97);
    let t104: i32 = i32_from_f32(t103);
    let t105: u32 = (bitcast<u32>(t103) - select(0u, 1u, select(t97 < t104, t104 < t97, t97 < 0i))) | select(1u, 0u, t104 == t97);
    let t106: bool = gid0 < wide_len;
    let t107: u32 = select(0u, u32(wide_off + gid0), t106);
    if t106 { wide_[t107] = f64(round_bf16(round_bf16(round_bf16(t102) + round_bf16(bitcast<f32>(t105))) - scratch_2[t99])); }
}
