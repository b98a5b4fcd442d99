override items0: u32 = 1u;
override items1: u32 = 1u;
override items2: u32 = 1u;
@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 6>;
@group(0) @binding(1) var<storage, read_write> data_i8_: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> data_i16_: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> data_i32_: array<i32>;
@group(0) @binding(4) var<storage, read_write> data_i64_: array<i64>;
@group(0) @binding(5) var<storage, read_write> data_u8_: array<atomic<u32>>;
@group(0) @binding(6) var<storage, read_write> data_u16_: array<atomic<u32>>;
@group(0) @binding(7) var<storage, read_write> data_u32_: array<u32>;
@group(0) @binding(8) var<storage, read_write> data_u64_: array<u64>;

fn min_i64(a: i64, b: i64) -> i64 { return select(b, a, ((bitcast<u64>(a) ^ 9223372036854775808lu) < (bitcast<u64>(b) ^ 9223372036854775808lu))); }
fn min_u64(a: u64, b: u64) -> u64 { return select(b, a, (a < b)); }
fn max_i64(a: i64, b: i64) -> i64 { return select(b, a, ((bitcast<u64>(a) ^ 9223372036854775808lu) > (bitcast<u64>(b) ^ 9223372036854775808lu))); }
fn max_u64(a: u64, b: u64) -> u64 { return select(b, a, (a > b)); }
fn abs_i64(a: i64) -> i64 { return select(a, -a, (bitcast<u64>(a) ^ 9223372036854775808lu) < 9223372036854775808lu); }
fn count_ones_u64(x: u64) -> u64 { return u64(countOneBits(u32(x)) + countOneBits(u32(x >> 32u))); }
fn div_i32(a: i32, b: i32) -> i32 {
    let d = select(b, 1i, (b == 0i) || (b == -1i));
    return select(select(a / d, 0i - a, b == -1i), 0i, b == 0i);
}
fn div_i64(a: i64, b: i64) -> i64 {
    let d = select(b, 1li, (b == 0li) || (b == -1li));
    return select(select(a / d, 0li - a, b == -1li), 0li, b == 0li);
}
fn div_u32(a: u32, b: u32) -> u32 { return select(a / select(b, 1u, b == 0u), 0u, b == 0u); }
fn div_u64(a: u64, b: u64) -> u64 { return select(a / select(b, 1lu, b == 0lu), 0lu, b == 0lu); }
fn rem_i32(a: i32, b: i32) -> i32 {
    let d = select(b, 1i, (b == 0i) || (b == -1i));
    return select(select(a % d, 0i, b == -1i), a, b == 0i);
}
fn rem_i64(a: i64, b: i64) -> i64 {
    let d = select(b, 1li, (b == 0li) || (b == -1li));
    return select(select(a % d, 0li, b == -1li), a, b == 0li);
}
fn rem_u32(a: u32, b: u32) -> u32 { return select(a % select(b, 1u, b == 0u), a, b == 0u); }
fn rem_u64(a: u64, b: u64) -> u64 { return select(a % select(b, 1lu, b == 0lu), a, b == 0lu); }
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
    let t6: i32 = (i32(select(0li, data_i64_[t5], t4)) << 24u) >> 24u;
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
    let t41: i64 = bitcast<i64>(u64(select(0u, data_u32_[t40], t39)));
    let t42: i64 = rem_i64(div_i64(((abs_i64(~(0li - select(0li, data_i64_[t38], t37))) + t41) - t41) * t41, t41), t41);
    let t43: i64 = ((((max_i64(min_i64(t42, t41), t41) & t41) | t41) ^ t41) << (u32(t41) & 63u)) >> (u32(t41) & 63u);
    var t44: i64 = -9223372036854775807li - 1li;
    let t45: i64 = select(t43 << 3u, t43 / 3li, (bitcast<u64>(t43) ^ 9223372036854775808lu) < (bitcast<u64>(t44) ^ 9223372036854775808lu));
    let t46: bool = gid0 < data_i64_len;
    let t47: u32 = select(0u, data_i64_off + gid0, t46);
    if t46 { data_i64_[t47] = t45; }
    let t48: bool = gid0 < data_u8_len;
    let t49: u32 = select(0u, data_u8_off + gid0, t48);
    let t50: u32 = (0u - select(0u, (atomicLoad(&data_u8_[t49 >> 2u]) >> ((t49 & 3u) << 3u)) & 0xffu, t48)) & 0xffu;
    let t51: bool = gid0 < data_u64_len;
    let t52: u32 = select(0u, data_u64_off + gid0, t51);
    let t53: u32 = u32(select(0lu, data_u64_[t52], t51)) & 0xffu;
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
    let t65: i32 = (i32(select(0li, data_i64_[t64], t63)) << 24u) >> 24u;
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
    let t107: u64 = bitcast<u64>(i64(select(t103 << 3u, t103 / 3i, t103 < t104)));
    let t108: u64 = rem_u64(div_u64((((~(0lu - select(0lu, data_u64_[t106], t105))) + t107) - t107) * t107, t107), t107);
    let t109: u64 = ((((max_u64(min_u64(t108, t107), t107) & t107) | t107) ^ t107) << (u32(t107) & 63u)) >> (u32(t107) & 63u);
    let t110: bool = gid0 < data_u64_len;
    let t111: u32 = select(0u, data_u64_off + gid0, t110);
    if t110 { data_u64_[t111] = select(t109 << 3u, t109 / 3lu, t109 < 9223372036854775808lu); }
    let t112: bool = gid0 < data_i8_len;
    let t113: u32 = select(0u, data_i8_off + gid0, t112);
    let t114: i32 = select(0i, (bitcast<i32>(atomicLoad(&data_i8_[t113 >> 2u]) >> ((t113 & 3u) << 3u)) << 24u) >> 24u, t112);
    let t115: bool = gid0 < data_i8_len;
    let t116: u32 = select(0u, data_i8_off + gid0, t115);
    let t117: u32 = bitcast<u32>(bitcast<i32>(countOneBits(bitcast<u32>(t114) & 0xffu))) & 0xffu;
    if t115 { atomicAnd(&data_i8_[t116 >> 2u], ~(0xffu << ((t116 & 3u) << 3u))); atomicOr(&data_i8_[t116 >> 2u], t117 << ((t116 & 3u) << 3u)); }
    let t118: bool = gid0 < data_i16_len;
    let t119: u32 = select(0u, data_i16_off + gid0, t118);
    let t120: i32 = select(0i, (bitcast<i32>(atomicLoad(&data_i16_[t119 >> 1u]) >> ((t119 & 1u) << 4u)) << 16u) >> 16u, t118);
    let t121: bool = gid0 < data_i16_len;
    let t122: u32 = select(0u, data_i16_off + gid0, t121);
    let t123: u32 = bitcast<u32>(bitcast<i32>(countOneBits(bitcast<u32>(t120) & 0xffffu))) & 0xffffu;
    if t121 { atomicAnd(&data_i16_[t122 >> 1u], ~(0xffffu << ((t122 & 1u) << 4u))); atomicOr(&data_i16_[t122 >> 1u], t123 << ((t122 & 1u) << 4u)); }
    let t124: bool = gid0 < data_i32_len;
    let t125: u32 = select(0u, data_i32_off + gid0, t124);
    let t126: bool = gid0 < data_i32_len;
    let t127: u32 = select(0u, data_i32_off + gid0, t126);
    if t126 { data_i32_[t127] = bitcast<i32>(countOneBits(bitcast<u32>(select(0i, data_i32_[t125], t124)))); }
    let t128: bool = gid0 < data_i64_len;
    let t129: u32 = select(0u, data_i64_off + gid0, t128);
    let t130: bool = gid0 < data_i64_len;
    let t131: u32 = select(0u, data_i64_off + gid0, t130);
    if t130 { data_i64_[t131] = bitcast<i64>(count_ones_u64(bitcast<u64>(select(0li, data_i64_[t129], t128)))); }
    let t132: bool = gid0 < data_u8_len;
    let t133: u32 = select(0u, data_u8_off + gid0, t132);
    let t134: u32 = countOneBits(select(0u, (atomicLoad(&data_u8_[t133 >> 2u]) >> ((t133 & 3u) << 3u)) & 0xffu, t132));
    let t135: bool = gid0 < data_u8_len;
    let t136: u32 = select(0u, data_u8_off + gid0, t135);
    let t137: u32 = t134;
    if t135 { atomicAnd(&data_u8_[t136 >> 2u], ~(0xffu << ((t136 & 3u) << 3u))); atomicOr(&data_u8_[t136 >> 2u], t137 << ((t136 & 3u) << 3u)); }
    let t138: bool = gid0 < data_u16_len;
    let t139: u32 = select(0u, data_u16_off + gid0, t138);
    let t140: u32 = countOneBits(select(0u, (atomicLoad(&data_u16_[t139 >> 1u]) >> ((t139 & 1u) << 4u)) & 0xffffu, t138));
    let t141: bool = gid0 < data_u16_len;
    let t142: u32 = select(0u, data_u16_off + gid0, t141);
    let t143: u32 = t140;
    if t141 { atomicAnd(&data_u16_[t142 >> 1u], ~(0xffffu << ((t142 & 1u) << 4u))); atomicOr(&data_u16_[t142 >> 1u], t143 << ((t142 & 1u) << 4u)); }
    let t144: bool = gid0 < data_u32_len;
    let t145: u32 = select(0u, data_u32_off + gid0, t144);
    let t146: bool = gid0 < data_u32_len;
    let t147: u32 = select(0u, data_u32_off + gid0, t146);
    if t146 { data_u32_[t147] = countOneBits(select(0u, data_u32_[t145], t144)); }
    let t148: bool = gid0 < data_u64_len;
    let t149: u32 = select(0u, data_u64_off + gid0, t148);
    let t150: bool = gid0 < data_u64_len;
    let t151: u32 = select(0u, data_u64_off + gid0, t150);
    if t150 { data_u64_[t151] = count_ones_u64(select(0lu, data_u64_[t149], t148)); }
    let t152: u32 = countOneBits(gid0);
    let t153: bool = t152 < data_u32_len;
    let t154: u32 = select(0u, data_u32_off + t152, t153);
    if t153 { data_u32_[t154] = 0u; }
}
