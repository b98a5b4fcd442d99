override items0: u32 = 1u;
override items1: u32 = 1u;
override items2: u32 = 1u;
@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 6>;
@group(0) @binding(1) var<storage, read_write> data_i8_: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> data_i16_: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> data_i32_: array<i32>;
@group(0) @binding(4) var<storage, read_write> data_i64_: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> data_u8_: array<atomic<u32>>;
@group(0) @binding(6) var<storage, read_write> data_u16_: array<atomic<u32>>;
@group(0) @binding(7) var<storage, read_write> data_u32_: array<u32>;
@group(0) @binding(8) var<storage, read_write> data_u64_: array<vec2<u32>>;

fn div_i32(a: i32, b: i32) -> i32 {
    let d = select(b, 1i, (b == 0i) || (b == -1i));
    return select(select(a / d, 0i - a, b == -1i), 0i, b == 0i);
}
fn div_u32(a: u32, b: u32) -> u32 { return select(a / select(b, 1u, b == 0u), 0u, b == 0u); }
fn rem_i32(a: i32, b: i32) -> i32 {
    let d = select(b, 1i, (b == 0i) || (b == -1i));
    return select(select(a % d, 0i, b == -1i), a, b == 0i);
}
fn rem_u32(a: u32, b: u32) -> u32 { return select(a % select(b, 1u, b == 0u), a, b == 0u); }
fn pair_from_i32(x: i32) -> vec2<u32> { return bitcast<vec2<u32>>(vec2<i32>(x, x >> 31u)); }
fn pair_less(a: vec2<u32>, b: vec2<u32>) -> bool { return (a.y < b.y) || ((a.y == b.y) && (a.x < b.x)); }
fn pair_less_signed(a: vec2<u32>, b: vec2<u32>) -> bool {
    return (bitcast<i32>(a.y) < bitcast<i32>(b.y)) || ((a.y == b.y) && (a.x < b.x));
}
fn pair_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + u32(low < a.x));
}
fn pair_sub(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return vec2<u32>(a.x - b.x, a.y - b.y - u32(a.x < b.x)); }
fn pair_mul(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = (a.x & 0xffffu) * (b.x & 0xffffu);
    let middle = (a.x >> 16u) * (b.x & 0xffffu) + (low >> 16u);
    let other = (a.x & 0xffffu) * (b.x >> 16u) + (middle & 0xffffu);
    let high = (a.x >> 16u) * (b.x >> 16u) + (middle >> 16u) + (other >> 16u);
    return vec2<u32>((other << 16u) | (low & 0xffffu), high + a.x * b.y + a.y * b.x);
}
fn pair_shl(a: vec2<u32>, amount: vec2<u32>) -> vec2<u32> {
    let n = amount.x & 31u;
    let low = a.x << n;
    return select(vec2<u32>(low, (a.y << n) | ((a.x >> 1u) >> (31u - n))), vec2<u32>(0u, low), (amount.x & 32u) != 0u);
}
fn pair_shr(a: vec2<u32>, amount: vec2<u32>) -> vec2<u32> {
    let n = amount.x & 31u;
    let high = a.y >> n;
    return select(vec2<u32>((a.x >> n) | ((a.y << 1u) << (31u - n)), high), vec2<u32>(high, 0u), (amount.x & 32u) != 0u);
}
fn pair_shr_signed(a: vec2<u32>, amount: vec2<u32>) -> vec2<u32> {
    let n = amount.x & 31u;
    let high = bitcast<u32>(bitcast<i32>(a.y) >> n);
    let sign = bitcast<u32>(bitcast<i32>(a.y) >> 31u);
    return select(vec2<u32>((a.x >> n) | ((a.y << 1u) << (31u - n)), high), vec2<u32>(high, sign), (amount.x & 32u) != 0u);
}
fn pair_abs(a: vec2<u32>) -> vec2<u32> { return select(a, pair_sub(vec2<u32>(), a), a.y > 0x7fffffffu); }
fn pair_count_ones(a: vec2<u32>) -> vec2<u32> { return vec2<u32>(countOneBits(a.x) + countOneBits(a.y), 0u); }
fn pair_divide(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
    if (b.x | b.y) == 0u { return vec4<u32>(0u, 0u, a); }
    var q = a;
    var r = vec2<u32>();
    for (var i = 0; i < 64; i = i + 1) {
        let beyond = r.y > 0x7fffffffu;
        r = vec2<u32>((r.x << 1u) | (q.y >> 31u), (r.y << 1u) | (r.x >> 31u));
        q = vec2<u32>(q.x << 1u, (q.y << 1u) | (q.x >> 31u));
        if beyond || !pair_less(r, b) {
            r = pair_sub(r, b);
            q.x = q.x | 1u;
        }
    }
    return vec4<u32>(q, r);
}
fn pair_div(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return pair_divide(a, b).xy; }
fn pair_rem(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return pair_divide(a, b).zw; }
fn pair_div_signed(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let q = pair_divide(pair_abs(a), pair_abs(b)).xy;
    return select(q, pair_sub(vec2<u32>(), q), (a.y ^ b.y) > 0x7fffffffu);
}
fn pair_rem_signed(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let r = pair_divide(pair_abs(a), pair_abs(b)).zw;
    return select(r, pair_sub(vec2<u32>(), r), a.y > 0x7fffffffu);
}
fn pair_min(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, pair_less(b, a)); }
fn pair_max(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, pair_less(a, b)); }
fn pair_min_signed(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, pair_less_signed(b, a)); }
fn pair_max_signed(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, pair_less_signed(a, b)); }
@compute @workgroup_size(items0, items1, items2)
fn integers_(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let data_i8_off: u32 = launch[0].x;
    let data_i8_len: u32 = launch[0].y;
    let data_i16_off: u32 = launch[0].z;
    let data_i16_len: u32 = launch[0].w;
    let data_i32_off: u32 = launch[1].x;
    let data_i32_len: u32 = launch[1].y;
    let data_i64_off: u32 = launch[1].z;
    let data_i64_len: u32 = launch[1].w;
    let data_u8_off: u32 = launch[2].x;
    let data_u8_len: u32 = launch[2].y;
    let data_u16_off: u32 = launch[2].z;
    let data_u16_len: u32 = launch[2].w;
    let data_u32_off: u32 = launch[3].x;
    let data_u32_len: u32 = launch[3].y;
    let data_u64_off: u32 = launch[3].z;
    let data_u64_len: u32 = launch[3].w;
    let size0: u32 = launch[4].x;
    let size1: u32 = launch[4].y;
    let size2: u32 = launch[4].z;
    let base0: u32 = launch[4].w;
    let base1: u32 = launch[5].x;
    let base2: u32 = launch[5].y;
    let zero: u32 = launch[5].z;
    let gid0: u32 = (workgroup.x + base0) * items0 + local.x;
    let gid1: u32 = (workgroup.y + base1) * items1 + local.y;
    let gid2: u32 = (workgroup.z + base2) * items2 + local.z;
    if (gid0 >= size0) || (gid1 >= size1) || (gid2 >= size2) { return; }
    let t1: bool = gid0 < data_i8_len;
    let t2: u32 = select(0u, data_i8_off + gid0, t1);
    let t3: i32 = select(0i, (bitcast<i32>(atomicLoad(&data_i8_[t2 >> 2u]) >> ((t2 & 3u) << 3u)) << 24u) >> 24u, t1);
    let t4: bool = gid0 < data_i64_len;
    let t5: u32 = select(0u, data_i64_off + gid0, t4);
    let t6: i32 = (bitcast<i32>(select(vec2<u32>(0u, 0u), data_i64_[t5], t4).x) << 24u) >> 24u;
    let t7: i32 = (((((((abs(((~(((0i - t3) << 24u) >> 24u)) << 24u) >> 24u) << 24u) >> 24u) + t6) << 24u) >> 24u) - t6) << 24u) >> 24u;
    let t8: i32 = (min((rem_i32((div_i32(((t7 * t6) << 24u) >> 24u, t6) << 24u) >> 24u, t6) << 24u) >> 24u, t6) << 24u) >> 24u;
    let t9: i32 = ((((((((((max(t8, t6) << 24u) >> 24u) & t6) << 24u) >> 24u) | t6) << 24u) >> 24u) ^ t6) << 24u) >> 24u;
    let t10: i32 = (((((t9 << (u32(t6) & 7u)) << 24u) >> 24u) >> (u32(t6) & 7u)) << 24u) >> 24u;
    let t11: bool = gid0 < data_i8_len;
    let t12: u32 = select(0u, data_i8_off + gid0, t11);
    let t13: u32 = bitcast<u32>(select(((t10 << 3u) << 24u) >> 24u, ((t10 / 3i) << 24u) >> 24u, t10 < (-128i))) & 0xffu;
    if t11 { atomicAnd(&data_i8_[t12 >> 2u], ~(0xffu << ((t12 & 3u) << 3u))); atomicOr(&data_i8_[t12 >> 2u], t13 << ((t12 & 3u) << 3u)); }
    let t14: bool = gid0 < data_i16_len;
    let t15: u32 = select(0u, data_i16_off + gid0, t14);
    let t16: i32 = select(0i, (bitcast<i32>(atomicLoad(&data_i16_[t15 >> 1u]) >> ((t15 & 1u) << 4u)) << 16u) >> 16u, t14);
    let t17: bool = gid0 < data_u8_len;
    let t18: u32 = select(0u, data_u8_off + gid0, t17);
    let t19: i32 = (bitcast<i32>(select(0u, (atomicLoad(&data_u8_[t18 >> 2u]) >> ((t18 & 3u) << 3u)) & 0xffu, t17)) << 16u) >> 16u;
    let t20: i32 = (((((((abs(((~(((0i - t16) << 16u) >> 16u)) << 16u) >> 16u) << 16u) >> 16u) + t19) << 16u) >> 16u) - t19) << 16u) >> 16u;
    let t21: i32 = (min((rem_i32((div_i32(((t20 * t19) << 16u) >> 16u, t19) << 16u) >> 16u, t19) << 16u) >> 16u, t19) << 16u) >> 16u;
    let t22: i32 = ((((((((((max(t21, t19) << 16u) >> 16u) & t19) << 16u) >> 16u) | t19) << 16u) >> 16u) ^ t19) << 16u) >> 16u;
    let t23: i32 = (((((t22 << (u32(t19) & 15u)) << 16u) >> 16u) >> (u32(t19) & 15u)) << 16u) >> 16u;
    let t24: bool = gid0 < data_i16_len;
    let t25: u32 = select(0u, data_i16_off + gid0, t24);
    let t26: u32 = bitcast<u32>(select(((t23 << 3u) << 16u) >> 16u, ((t23 / 3i) << 16u) >> 16u, t23 < (-32768i))) & 0xffffu;
    if t24 { atomicAnd(&data_i16_[t25 >> 1u], ~(0xffffu << ((t25 & 1u) << 4u))); atomicOr(&data_i16_[t25 >> 1u], t26 << ((t25 & 1u) << 4u)); }
    let t27: bool = gid0 < data_i32_len;
    let t28: u32 = select(0u, data_i32_off + gid0, t27);
    let t29: bool = gid0 < data_u16_len;
    let t30: u32 = select(0u, data_u16_off + gid0, t29);
    let t31: i32 = bitcast<i32>(select(0u, (atomicLoad(&data_u16_[t30 >> 1u]) >> ((t30 & 1u) << 4u)) & 0xffffu, t29));
    let t32: i32 = min(rem_i32(div_i32(((abs(~(0i - select(0i, data_i32_[t28], t27))) + t31) - t31) * t31, t31), t31), t31);
    let t33: i32 = ((((max(t32, t31) & t31) | t31) ^ t31) << (u32(t31) & 31u)) >> (u32(t31) & 31u);
    var t34: i32 = -2147483647i - 1i;
    let t35: bool = gid0 < data_i32_len;
    let t36: u32 = select(0u, data_i32_off + gid0, t35);
    if t35 { data_i32_[t36] = select(t33 << 3u, t33 / 3i, t33 < t34); }
    let t37: bool = gid0 < data_i64_len;
    let t38: u32 = select(0u, data_i64_off + gid0, t37);
    let t39: bool = gid0 < data_u32_len;
    let t40: u32 = select(0u, data_u32_off + gid0, t39);
    let t41: vec2<u32> = vec2<u32>(select(0u, data_u32_[t40], t39), 0u);
    let t42: vec2<u32> = pair_sub(pair_add(pair_abs(~pair_sub(vec2<u32>(), select(vec2<u32>(0u, 0u), data_i64_[t38], t37))), t41), t41);
    let t43: vec2<u32> = pair_max_signed(pair_min_signed(pair_rem_signed(pair_div_signed(pair_mul(t42, t41), t41), t41), t41), t41);
    let t44: vec2<u32> = pair_shr_signed(pair_shl(((t43 & t41) | t41) ^ t41, t41), t41);
    let t45: vec2<u32> = select(pair_shl(t44, vec2<u32>(3u, 0u)), pair_div_signed(t44, vec2<u32>(3u, 0u)), pair_less_signed(t44, vec2<u32>(0u, 2147483648u)));
    let t46: bool = gid0 < data_i64_len;
    let t47: u32 = select(0u, data_i64_off + gid0, t46);
    if t46 { data_i64_[t47] = t45; }
    let t48: bool = gid0 < data_u8_len;
    let t49: u32 = select(0u, data_u8_off + gid0, t48);
    let t50: u32 = (0u - select(0u, (atomicLoad(&data_u8_[t49 >> 2u]) >> ((t49 & 3u) << 3u)) & 0xffu, t48)) & 0xffu;
    let t51: bool = gid0 < data_u64_len;
    let t52: u32 = select(0u, data_u64_off + gid0, t51);
    let t53: u32 = select(vec2<u32>(0u, 0u), data_u64_[t52], t51).x & 0xffu;
    let t54: u32 = div_u32(((((((((~t50) & 0xffu) & 0xffu) + t53) & 0xffu) - t53) & 0xffu) * t53) & 0xffu, t53) & 0xffu;
    let t55: u32 = ((((max(min(rem_u32(t54, t53) & 0xffu, t53) & 0xffu, t53) & 0xffu) & t53) & 0xffu) | t53) & 0xffu;
    let t56: u32 = (((((t55 ^ t53) & 0xffu) << (t53 & 7u)) & 0xffu) >> (t53 & 7u)) & 0xffu;
    let t57: bool = gid0 < data_u8_len;
    let t58: u32 = select(0u, data_u8_off + gid0, t57);
    let t59: u32 = select((t56 << 3u) & 0xffu, (t56 / 3u) & 0xffu, t56 < 128u);
    if t57 { atomicAnd(&data_u8_[t58 >> 2u], ~(0xffu << ((t58 & 3u) << 3u))); atomicOr(&data_u8_[t58 >> 2u], t59 << ((t58 & 3u) << 3u)); }
    let t60: bool = gid0 < data_i8_len;
    let t61: u32 = select(0u, data_i8_off + gid0, t60);
    let t62: i32 = select(0i, (bitcast<i32>(atomicLoad(&data_i8_[t61 >> 2u]) >> ((t61 & 3u) << 3u)) << 24u) >> 24u, t60);
    let t63: bool = gid0 < data_i64_len;
    let t64: u32 = select(0u, data_i64_off + gid0, t63);
    let t65: i32 = (bitcast<i32>(select(vec2<u32>(0u, 0u), data_i64_[t64], t63).x) << 24u) >> 24u;
    let t66: i32 = (((((((abs(((~(((0i - t62) << 24u) >> 24u)) << 24u) >> 24u) << 24u) >> 24u) + t65) << 24u) >> 24u) - t65) << 24u) >> 24u;
    let t67: i32 = (min((rem_i32((div_i32(((t66 * t65) << 24u) >> 24u, t65) << 24u) >> 24u, t65) << 24u) >> 24u, t65) << 24u) >> 24u;
    let t68: i32 = ((((((((((max(t67, t65) << 24u) >> 24u) & t65) << 24u) >> 24u) | t65) << 24u) >> 24u) ^ t65) << 24u) >> 24u;
    let t69: i32 = (((((t68 << (u32(t65) & 7u)) << 24u) >> 24u) >> (u32(t65) & 7u)) << 24u) >> 24u;
    let t70: bool = gid0 < data_u16_len;
    let t71: u32 = select(0u, data_u16_off + gid0, t70);
    let t72: u32 = (0u - select(0u, (atomicLoad(&data_u16_[t71 >> 1u]) >> ((t71 & 1u) << 4u)) & 0xffffu, t70)) & 0xffffu;
    let t73: u32 = bitcast<u32>(select(((t69 << 3u) << 24u) >> 24u, ((t69 / 3i) << 24u) >> 24u, t69 < (-128i))) & 0xffffu;
    let t74: u32 = div_u32(((((((((~t72) & 0xffffu) & 0xffffu) + t73) & 0xffffu) - t73) & 0xffffu) * t73) & 0xffffu, t73) & 0xffffu;
    let t75: u32 = ((((max(min(rem_u32(t74, t73) & 0xffffu, t73) & 0xffffu, t73) & 0xffffu) & t73) & 0xffffu) | t73) & 0xffffu;
    let t76: u32 = (((((t75 ^ t73) & 0xffffu) << (t73 & 15u)) & 0xffffu) >> (t73 & 15u)) & 0xffffu;
    let t77: bool = gid0 < data_u16_len;
    let t78: u32 = select(0u, data_u16_off + gid0, t77);
    let t79: u32 = select((t76 << 3u) & 0xffffu, (t76 / 3u) & 0xffffu, t76 < 32768u);
    if t77 { atomicAnd(&data_u16_[t78 >> 1u], ~(0xffffu << ((t78 & 1u) << 4u))); atomicOr(&data_u16_[t78 >> 1u], t79 << ((t78 & 1u) << 4u)); }
    let t80: bool = gid0 < data_i16_len;
    let t81: u32 = select(0u, data_i16_off + gid0, t80);
    let t82: i32 = select(0i, (bitcast<i32>(atomicLoad(&data_i16_[t81 >> 1u]) >> ((t81 & 1u) << 4u)) << 16u) >> 16u, t80);
    let t83: bool = gid0 < data_u8_len;
    let t84: u32 = select(0u, data_u8_off + gid0, t83);
    let t85: i32 = (bitcast<i32>(select(0u, (atomicLoad(&data_u8_[t84 >> 2u]) >> ((t84 & 3u) << 3u)) & 0xffu, t83)) << 16u) >> 16u;
    let t86: i32 = (((((((abs(((~(((0i - t82) << 16u) >> 16u)) << 16u) >> 16u) << 16u) >> 16u) + t85) << 16u) >> 16u) - t85) << 16u) >> 16u;
    let t87: i32 = (min((rem_i32((div_i32(((t86 * t85) << 16u) >> 16u, t85) << 16u) >> 16u, t85) << 16u) >> 16u, t85) << 16u) >> 16u;
    let t88: i32 = ((((((((((max(t87, t85) << 16u) >> 16u) & t85) << 16u) >> 16u) | t85) << 16u) >> 16u) ^ t85) << 16u) >> 16u;
    let t89: i32 = (((((t88 << (u32(t85) & 15u)) << 16u) >> 16u) >> (u32(t85) & 15u)) << 16u) >> 16u;
    let t90: bool = gid0 < data_u32_len;
    let t91: u32 = select(0u, data_u32_off + gid0, t90);
    let t92: u32 = bitcast<u32>(select(((t89 << 3u) << 16u) >> 16u, ((t89 / 3i) << 16u) >> 16u, t89 < (-32768i)));
    let t93: u32 = min(rem_u32(div_u32((((~(0u - select(0u, data_u32_[t91], t90))) + t92) - t92) * t92, t92), t92), t92);
    let t94: u32 = ((((max(t93, t92) & t92) | t92) ^ t92) << (t92 & 31u)) >> (t92 & 31u);
    let t95: bool = gid0 < data_u32_len;
    let t96: u32 = select(0u, data_u32_off + gid0, t95);
    if t95 { data_u32_[t96] = select(t94 << 3u, t94 / 3u, t94 < 2147483648u); }
    let t97: bool = gid0 < data_i32_len;
    let t98: u32 = select(0u, data_i32_off + gid0, t97);
    let t99: bool = gid0 < data_u16_len;
    let t100: u32 = select(0u, data_u16_off + gid0, t99);
    let t101: i32 = bitcast<i32>(select(0u, (atomicLoad(&data_u16_[t100 >> 1u]) >> ((t100 & 1u) << 4u)) & 0xffffu, t99));
    let t102: i32 = rem_i32(div_i32(((abs(~(0i - select(0i, data_i32_[t98], t97))) + t101) - t101) * t101, t101), t101);
    let t103: i32 = ((((max(min(t102, t101), t101) & t101) | t101) ^ t101) << (u32(t101) & 31u)) >> (u32(t101) & 31u);
    var t104: i32 = -2147483647i - 1i;
    let t105: bool = gid0 < data_u64_len;
    let t106: u32 = select(0u, data_u64_off + gid0, t105);
    let t107: vec2<u32> = pair_from_i32(select(t103 << 3u, t103 / 3i, t103 < t104));
    let t108: vec2<u32> = pair_sub(pair_add(~pair_sub(vec2<u32>(), select(vec2<u32>(0u, 0u), data_u64_[t106], t105)), t107), t107);
    let t109: vec2<u32> = (pair_max(pair_min(pair_rem(pair_div(pair_mul(t108, t107), t107), t107), t107), t107) & t107) | t107;
    let t110: vec2<u32> = pair_shr(pair_shl(t109 ^ t107, t107), t107);
    let t111: vec2<u32> = select(pair_shl(t110, vec2<u32>(3u, 0u)), pair_div(t110, vec2<u32>(3u, 0u)), pair_less(t110, vec2<u32>(0u, 2147483648u)));
    let t112: bool = gid0 < data_u64_len;
    let t113: u32 = select(0u, data_u64_off + gid0, t112);
    if t112 { data_u64_[t113] = t111; }
    let t114: bool = gid0 < data_i8_len;
    let t115: u32 = select(0u, data_i8_off + gid0, t114);
    let t116: i32 = select(0i, (bitcast<i32>(atomicLoad(&data_i8_[t115 >> 2u]) >> ((t115 & 3u) << 3u)) << 24u) >> 24u, t114);
    let t117: bool = gid0 < data_i8_len;
    let t118: u32 = select(0u, data_i8_off + gid0, t117);
    let t119: u32 = bitcast<u32>(bitcast<i32>(countOneBits(bitcast<u32>(t116) & 0xffu))) & 0xffu;
    if t117 { atomicAnd(&data_i8_[t118 >> 2u], ~(0xffu << ((t118 & 3u) << 3u))); atomicOr(&data_i8_[t118 >> 2u], t119 << ((t118 & 3u) << 3u)); }
    let t120: bool = gid0 < data_i16_len;
    let t121: u32 = select(0u, data_i16_off + gid0, t120);
    let t122: i32 = select(0i, (bitcast<i32>(atomicLoad(&data_i16_[t121 >> 1u]) >> ((t121 & 1u) << 4u)) << 16u) >> 16u, t120);
    let t123: bool = gid0 < data_i16_len;
    let t124: u32 = select(0u, data_i16_off + gid0, t123);
    let t125: u32 = bitcast<u32>(bitcast<i32>(countOneBits(bitcast<u32>(t122) & 0xffffu))) & 0xffffu;
    if t123 { atomicAnd(&data_i16_[t124 >> 1u], ~(0xffffu << ((t124 & 1u) << 4u))); atomicOr(&data_i16_[t124 >> 1u], t125 << ((t124 & 1u) << 4u)); }
    let t126: bool = gid0 < data_i32_len;
    let t127: u32 = select(0u, data_i32_off + gid0, t126);
    let t128: bool = gid0 < data_i32_len;
    let t129: u32 = select(0u, data_i32_off + gid0, t128);
    if t128 { data_i32_[t129] = bitcast<i32>(countOneBits(bitcast<u32>(select(0i, data_i32_[t127], t126)))); }
    let t130: bool = gid0 < data_i64_len;
    let t131: u32 = select(0u, data_i64_off + gid0, t130);
    let t132: bool = gid0 < data_i64_len;
    let t133: u32 = select(0u, data_i64_off + gid0, t132);
    if t132 { data_i64_[t133] = pair_count_ones(select(vec2<u32>(0u, 0u), data_i64_[t131], t130)); }
    let t134: bool = gid0 < data_u8_len;
    let t135: u32 = select(0u, data_u8_off + gid0, t134);
    let t136: u32 = countOneBits(select(0u, (atomicLoad(&data_u8_[t135 >> 2u]) >> ((t135 & 3u) << 3u)) & 0xffu, t134));
    let t137: bool = gid0 < data_u8_len;
    let t138: u32 = select(0u, data_u8_off + gid0, t137);
    let t139: u32 = t136;
    if t137 { atomicAnd(&data_u8_[t138 >> 2u], ~(0xffu << ((t138 & 3u) << 3u))); atomicOr(&data_u8_[t138 >> 2u], t139 << ((t138 & 3u) << 3u)); }
    let t140: bool = gid0 < data_u16_len;
    let t141: u32 = select(0u, data_u16_off + gid0, t140);
    let t142: u32 = countOneBits(select(0u, (atomicLoad(&data_u16_[t141 >> 1u]) >> ((t141 & 1u) << 4u)) & 0xffffu, t140));
    let t143: bool = gid0 < data_u16_len;
    let t144: u32 = select(0u, data_u16_off + gid0, t143);
    let t145: u32 = t142;
    if t143 { atomicAnd(&data_u16_[t144 >> 1u], ~(0xffffu << ((t144 & 1u) << 4u))); atomicOr(&data_u16_[t144 >> 1u], t145 << ((t144 & 1u) << 4u)); }
    let t146: bool = gid0 < data_u32_len;
    let t147: u32 = select(0u, data_u32_off + gid0, t146);
    let t148: bool = gid0 < data_u32_len;
    let t149: u32 = select(0u, data_u32_off + gid0, t148);
    if t148 { data_u32_[t149] = countOneBits(select(0u, data_u32_[t147], t146)); }
    let t150: bool = gid0 < data_u64_len;
    let t151: u32 = select(0u, data_u64_off + gid0, t150);
    let t152: bool = gid0 < data_u64_len;
    let t153: u32 = select(0u, data_u64_off + gid0, t152);
    if t152 { data_u64_[t153] = pair_count_ones(select(vec2<u32>(0u, 0u), data_u64_[t151], t150)); }
    let t154: u32 = countOneBits(gid0);
    let t155: bool = t154 < data_u32_len;
    let t156: u32 = select(0u, data_u32_off + t154, t155);
    if t155 { data_u32_[t156] = 0u; }
}
