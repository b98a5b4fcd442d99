override items0: u32 = 1u;
override items1: u32 = 1u;
override items2: u32 = 1u;
@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 4>;
@group(0) @binding(1) var<storage, read_write> x_: array<f32>;
@group(0) @binding(2) var<storage, read_write> y_: array<f32>;
@group(0) @binding(3) var<storage, read_write> h_: array<atomic<u32>>;

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
fn round_f16(x: f32) -> f32 { return f16_from_bits(f16_bits(x)); }
@compute @workgroup_size(items0, items1, items2)
fn vectors_(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let x_off: u32 = launch[0].x;
    let x_len: u32 = launch[0].y;
    let y_off: u32 = launch[0].z;
    let y_len: u32 = launch[0].w;
    let h_off: u32 = launch[1].x;
    let h_len: u32 = launch[1].y;
    let size0: u32 = launch[1].z;
    let size1: u32 = launch[1].w;
    let size2: u32 = launch[2].x;
    let base0: u32 = launch[2].y;
    let base1: u32 = launch[2].z;
    let base2: u32 = launch[2].w;
    let zero: u32 = launch[3].x;
    let gid0: u32 = (workgroup.x + base0) * items0 + local.x;
    let gid1: u32 = (workgroup.y + base1) * items1 + local.y;
    let gid2: u32 = (workgroup.z + base2) * items2 + local.z;
    if (gid0 >= size0) || (gid1 >= size1) || (gid2 >= size2) { return; }
    let t1: u32 = gid0 * 4u;
    let t2: f32 = bitcast<f32>(zero);
    let t3: u32 = select(0u, x_len - t1, t1 < x_len);
    let t4: bool = 0u < t3;
    let t5: bool = 1u < t3;
    let t6: bool = 2u < t3;
    let t7: bool = 3u < t3;
    let t8: u32 = select(0u, x_off + t1, t4);
    let t9: u32 = select(0u, x_off + t1 + 1u, t5);
    let t10: u32 = select(0u, x_off + t1 + 2u, t6);
    let t11: u32 = select(0u, x_off + t1 + 3u, t7);
    var acc_l0: f32 = select(t2, x_[t8], t4);
    var acc_l1: f32 = select(t2, x_[t9], t5);
    var acc_l2: f32 = select(t2, x_[t10], t6);
    var acc_l3: f32 = select(t2, x_[t11], t7);
    let t12: u32 = gid0 * 4u;
    let t13: u32 = y_off + t12;
    let t14: u32 = y_off + t12 + 1u;
    let t15: u32 = y_off + t12 + 2u;
    let t16: u32 = y_off + t12 + 3u;
    let t17: f32 = y_[t13];
    let t18: f32 = y_[t14];
    let t19: f32 = y_[t15];
    let t20: f32 = y_[t16];
    let t21: f32 = select(acc_l0, acc_l0, acc_l0 < t17) + t17;
    let t22: f32 = select(acc_l0, acc_l1, acc_l1 < t18) + t18;
    let t23: f32 = select(acc_l0, acc_l2, acc_l2 < t19) + t19;
    let t24: f32 = select(acc_l0, acc_l3, acc_l3 < t20) + t20;
    acc_l0 = t21;
    acc_l1 = t22;
    acc_l2 = t23;
    acc_l3 = t24;
    let t25: u32 = gid0 * 4u;
    let t26: u32 = y_off + t25;
    y_[t26] = acc_l0;
    let t27: u32 = y_off + t25 + 1u;
    y_[t27] = acc_l1;
    let t28: u32 = y_off + t25 + 2u;
    y_[t28] = acc_l2;
    let t29: u32 = y_off + t25 + 3u;
    y_[t29] = acc_l3;
    let t30: u32 = select(0u, y_len - gid0, gid0 < y_len);
    let t31: bool = 0u < t30;
    let t32: bool = 1u < t30;
    let t33: bool = 2u < t30;
    let t34: bool = 3u < t30;
    let t35: u32 = select(0u, y_off + gid0, t31);
    if t31 { y_[t35] = acc_l0; }
    let t36: u32 = select(0u, y_off + gid0 + 1u, t32);
    if t32 { y_[t36] = acc_l1; }
    let t37: u32 = select(0u, y_off + gid0 + 2u, t33);
    if t33 { y_[t37] = acc_l2; }
    let t38: u32 = select(0u, y_off + gid0 + 3u, t34);
    if t34 { y_[t38] = acc_l3; }
    let t39: u32 = gid0 * 4u;
    let t40: u32 = h_off + t39;
    let t41: u32 = h_off + t39 + 1u;
    let t42: f32 = f16_from_bits((atomicLoad(&h_[t40 >> 1u]) >> ((t40 & 1u) << 4u)) & 0xffffu);
    let t43: f32 = f16_from_bits((atomicLoad(&h_[t41 >> 1u]) >> ((t41 & 1u) << 4u)) & 0xffffu);
    let t44: f32 = round_f16(t42 + t42);
    let t45: f32 = round_f16(t43 + t43);
    let t46: u32 = select(0u, h_len - t39, t39 < h_len);
    let t47: bool = 0u < t46;
    let t48: bool = 1u < t46;
    let t49: u32 = select(0u, h_off + t39, t47);
    let t50: u32 = f16_bits(t44);
    if t47 { atomicAnd(&h_[t49 >> 1u], ~(0xffffu << ((t49 & 1u) << 4u))); atomicOr(&h_[t49 >> 1u], t50 << ((t49 & 1u) << 4u)); }
    let t51: u32 = select(0u, h_off + t39 + 1u, t48);
    let t52: u32 = f16_bits(t45);
    if t48 { atomicAnd(&h_[t51 >> 1u], ~(0xffffu << ((t51 & 1u) << 4u))); atomicOr(&h_[t51 >> 1u], t52 << ((t51 & 1u) << 4u)); }
}
