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

fn min_i64(a: i64, b: i64) -> i64 { return select(b, a, (a < b)); }
fn min_u64(a: u64, b: u64) -> u64 { return select(b, a, (a < b)); }
fn max_i64(a: i64, b: i64) -> i64 { return select(b, a, (a > b)); }
fn max_u64(a: u64, b: u64) -> u64 { return select(b, a, (a > b)); }
fn abs_i64(a: i64) -> i64 { return select(a, -a, a < 0li); }
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
    let t45: bool = gid0 < data_i64_len;
    let t46: u32 = select(0u, data_i64_off + gid0, t45);
    if t45 { data_i64_[t46] = select(t43 << 3u, t43 / 3li, t43 < t44); }
    let t47: bool = gid0 < data_u8_len;
    let t48: u32 = select(0u, data_u8_off + gid0, t47);
    let t49: u32 = (0u - select(0u, (atomicLoad(&data_u8_[t48 >> 2u]) >> ((t48 & 3u) << 3u)) & 0xffu, t47)) & 0xffu;
    let t50: bool = gid0 < data_u64_len;
    let t51: u32 = select(0u, data_u64_off + gid0, t50);
    let t52: u32 = u32(select(0lu, data_u64_[t51], t50)) & 0xffu;
    let t53: u32 = div_u32(((((((((~t49) & 0xffu) & 0xffu) + t52) & 0xffu) - t52) & 0xffu) * t52) & 0xffu, t52) & 0xffu;
    let t54: u32 = ((((max(min(rem_u32(t53, t52) & 0xffu, t52) & 0xffu, t52) & 0xffu) & t52) & 0xffu) | t52) & 0xffu;
    let t55: u32 = (((((t54 ^ t52) & 0xffu) << (t52 & 7u)) & 0xffu) >> (t52 & 7u)) & 0xffu;
    let t56: bool = gid0 < data_u8_len;
    let t57: u32 = select(0u, data_u8_off + gid0, t56);
    let t58: u32 = select((t55 << 3u) & 0xffu, (t55 / 3u) & 0xffu, t55 < 128u);
    if t56 { atomicAnd(&data_u8_[t57 >> 2u], ~(0xffu << ((t57 & 3u) << 3u))); atomicOr(&data_u8_[t57 >> 2u], t58 << ((t57 & 3u) << 3u)); }
    let t59: bool = gid0 < data_i8_len;
    let t60: u32 = select(0u, data_i8_off + gid0, t59);
    let t61: i32 = select(0i, (bitcast<i32>(atomicLoad(&data_i8_[t60 >> 2u]) >> ((t60 & 3u) << 3u)) << 24u) >> 24u, t59);
    let t62: bool = gid0 < data_i64_len;
    let t63: u32 = select(0u, data_i64_off + gid0, t62);
    let t64: i32 = (i32(select(0li, data_i64_[t63], t62)) << 24u) >> 24u;
    let t65: i32 = (((((((abs(((~(((0i - t61) << 24u) >> 24u)) << 24u) >> 24u) << 24u) >> 24u) + t64) << 24u) >> 24u) - t64) << 24u) >> 24u;
    let t66: i32 = (min((rem_i32((div_i32(((t65 * t64) << 24u) >> 24u, t64) << 24u) >> 24u, t64) << 24u) >> 24u, t64) << 24u) >> 24u;
    let t67: i32 = ((((((((((max(t66, t64) << 24u) >> 24u) & t64) << 24u) >> 24u) | t64) << 24u) >> 24u) ^ t64) << 24u) >> 24u;
    let t68: i32 = (((((t67 << (u32(t64) & 7u)) << 24u) >> 24u) >> (u32(t64) & 7u)) << 24u) >> 24u;
    let t69: bool = gid0 < data_u16_len;
    let t70: u32 = select(0u, data_u16_off + gid0, t69);
    let t71: u32 = (0u - select(0u, (atomicLoad(&data_u16_[t70 >> 1u]) >> ((t70 & 1u) << 4u)) & 0xffffu, t69)) & 0xffffu;
    let t72: u32 = bitcast<u32>(select(((t68 << 3u) << 24u) >> 24u, ((t68 / 3i) << 24u) >> 24u, t68 < (-128i))) & 0xffffu;
    let t73: u32 = div_u32(((((((((~t71) & 0xffffu) & 0xffffu) + t72) & 0xffffu) - t72) & 0xffffu) * t72) & 0xffffu, t72) & 0xffffu;
    let t74: u32 = ((((max(min(rem_u32(t73, t72) & 0xffffu, t72) & 0xffffu, t72) & 0xffffu) & t72) & 0xffffu) | t72) & 0xffffu;
    let t75: u32 = (((((t74 ^ t72) & 0xffffu) << (t72 & 15u)) & 0xffffu) >> (t72 & 15u)) & 0xffffu;
    let t76: bool = gid0 < data_u16_len;
    let t77: u32 = select(0u, data_u16_off + gid0, t76);
    let t78: u32 = select((t75 << 3u) & 0xffffu, (t75 / 3u) & 0xffffu, t75 < 32768u);
    if t76 { atomicAnd(&data_u16_[t77 >> 1u], ~(0xffffu << ((t77 & 1u) << 4u))); atomicOr(&data_u16_[t77 >> 1u], t78 << ((t77 & 1u) << 4u)); }
    let t79: bool = gid0 < data_i16_len;
    let t80: u32 = select(0u, data_i16_off + gid0, t79);
    let t81: i32 = select(0i, (bitcast<i32>(atomicLoad(&data_i16_[t80 >> 1u]) >> ((t80 & 1u) << 4u)) << 16u) >> 16u, t79);
    let t82: bool = gid0 < data_u8_len;
    let t83: u32 = select(0u, data_u8_off + gid0, t82);
    let t84: i32 = (bitcast<i32>(select(0u, (atomicLoad(&data_u8_[t83 >> 2u]) >> ((t83 & 3u) << 3u)) & 0xffu, t82)) << 16u) >> 16u;
    let t85: i32 = (((((((abs(((~(((0i - t81) << 16u) >> 16u)) << 16u) >> 16u) << 16u) >> 16u) + t84) << 16u) >> 16u) - t84) << 16u) >> 16u;
    let t86: i32 = (min((rem_i32((div_i32(((t85 * t84) << 16u) >> 16u, t84) << 16u) >> 16u, t84) << 16u) >> 16u, t84) << 16u) >> 16u;
    let t87: i32 = ((((((((((max(t86, t84) << 16u) >> 16u) & t84) << 16u) >> 16u) | t84) << 16u) >> 16u) ^ t84) << 16u) >> 16u;
    let t88: i32 = (((((t87 << (u32(t84) & 15u)) << 16u) >> 16u) >> (u32(t84) & 15u)) << 16u) >> 16u;
    let t89: bool = gid0 < data_u32_len;
    let t90: u32 = select(0u, data_u32_off + gid0, t89);
    let t91: u32 = bitcast<u32>(select(((t88 << 3u) << 16u) >> 16u, ((t88 / 3i) << 16u) >> 16u, t88 < (-32768i)));
    let t92: u32 = min(rem_u32(div_u32((((~(0u - select(0u, data_u32_[t90], t89))) + t91) - t91) * t91, t91), t91), t91);
    let t93: u32 = ((((max(t92, t91) & t91) | t91) ^ t91) << (t91 & 31u)) >> (t91 & 31u);
    let t94: bool = gid0 < data_u32_len;
    let t95: u32 = select(0u, data_u32_off + gid0, t94);
    if t94 { data_u32_[t95] = select(t93 << 3u, t93 / 3u, t93 < 2147483648u); }
    let t96: bool = gid0 < data_i32_len;
    let t97: u32 = select(0u, data_i32_off + gid0, t96);
    let t98: bool = gid0 < data_u16_len;
    let t99: u32 = select(0u, data_u16_off + gid0, t98);
    let t100: i32 = bitcast<i32>(select(0u, (atomicLoad(&data_u16_[t99 >> 1u]) >> ((t99 & 1u) << 4u)) & 0xffffu, t98));
    let t101: i32 = rem_i32(div_i32(((abs(~(0i - select(0i, data_i32_[t97], t96))) + t100) - t100) * t100, t100), t100);
    let t102: i32 = ((((max(min(t101, t100), t100) & t100) | t100) ^ t100) << (u32(t100) & 31u)) >> (u32(t100) & 31u);
    var t103: i32 = -2147483647i - 1i;
    let t104: bool = gid0 < data_u64_len;
    let t105: u32 = select(0u, data_u64_off + gid0, t104);
    let t106: u64 = bitcast<u64>(i64(select(t102 << 3u, t102 / 3i, t102 < t103)));
    let t107: u64 = rem_u64(div_u64((((~(0lu - select(0lu, data_u64_[t105], t104))) + t106) - t106) * t106, t106), t106);
    let t108: u64 = ((((max_u64(min_u64(t107, t106), t106) & t106) | t106) ^ t106) << (u32(t106) & 63u)) >> (u32(t106) & 63u);
    let t109: bool = gid0 < data_u64_len;
    let t110: u32 = select(0u, data_u64_off + gid0, t109);
    if t109 { data_u64_[t110] = select(t108 << 3u, t108 / 3lu, t108 < 9223372036854775808lu); }
    let t111: bool = gid0 < data_i8_len;
    let t112: u32 = select(0u, data_i8_off + gid0, t111);
    let t113: i32 = select(0i, (bitcast<i32>(atomicLoad(&data_i8_[t112 >> 2u]) >> ((t112 & 3u) << 3u)) << 24u) >> 24u, t111);
    let t114: bool = gid0 < data_i8_len;
    let t115: u32 = select(0u, data_i8_off + gid0, t114);
    let t116: u32 = bitcast<u32>(bitcast<i32>(countOneBits(bitcast<u32>(t113) & 0xffu))) & 0xffu;
    if t114 { atomicAnd(&data_i8_[t115 >> 2u], ~(0xffu << ((t115 & 3u) << 3u))); atomicOr(&data_i8_[t115 >> 2u], t116 << ((t115 & 3u) << 3u)); }
    let t117: bool = gid0 < data_i16_len;
    let t118: u32 = select(0u, data_i16_off + gid0, t117);
    let t119: i32 = select(0i, (bitcast<i32>(atomicLoad(&data_i16_[t118 >> 1u]) >> ((t118 & 1u) << 4u)) << 16u) >> 16u, t117);
    let t120: bool = gid0 < data_i16_len;
    let t121: u32 = select(0u, data_i16_off + gid0, t120);
    let t122: u32 = bitcast<u32>(bitcast<i32>(countOneBits(bitcast<u32>(t119) & 0xffffu))) & 0xffffu;
    if t120 { atomicAnd(&data_i16_[t121 >> 1u], ~(0xffffu << ((t121 & 1u) << 4u))); atomicOr(&data_i16_[t121 >> 1u], t122 << ((t121 & 1u) << 4u)); }
    let t123: bool = gid0 < data_i32_len;
    let t124: u32 = select(0u, data_i32_off + gid0, t123);
    let t125: bool = gid0 < data_i32_len;
    let t126: u32 = select(0u, data_i32_off + gid0, t125);
    if t125 { data_i32_[t126] = bitcast<i32>(countOneBits(bitcast<u32>(select(0i, data_i32_[t124], t123)))); }
    let t127: bool = gid0 < data_i64_len;
    let t128: u32 = select(0u, data_i64_off + gid0, t127);
    let t129: bool = gid0 < data_i64_len;
    let t130: u32 = select(0u, data_i64_off + gid0, t129);
    if t129 { data_i64_[t130] = bitcast<i64>(count_ones_u64(bitcast<u64>(select(0li, data_i64_[t128], t127)))); }
    let t131: bool = gid0 < data_u8_len;
    let t132: u32 = select(0u, data_u8_off + gid0, t131);
    let t133: u32 = countOneBits(select(0u, (atomicLoad(&data_u8_[t132 >> 2u]) >> ((t132 & 3u) << 3u)) & 0xffu, t131));
    let t134: bool = gid0 < data_u8_len;
    let t135: u32 = select(0u, data_u8_off + gid0, t134);
    let t136: u32 = t133;
    if t134 { atomicAnd(&data_u8_[t135 >> 2u], ~(0xffu << ((t135 & 3u) << 3u))); atomicOr(&data_u8_[t135 >> 2u], t136 << ((t135 & 3u) << 3u)); }
    let t137: bool = gid0 < data_u16_len;
    let t138: u32 = select(0u, data_u16_off + gid0, t137);
    let t139: u32 = countOneBits(select(0u, (atomicLoad(&data_u16_[t138 >> 1u]) >> ((t138 & 1u) << 4u)) & 0xffffu, t137));
    let t140: bool = gid0 < data_u16_len;
    let t141: u32 = select(0u, data_u16_off + gid0, t140);
    let t142: u32 = t139;
    if t140 { atomicAnd(&data_u16_[t141 >> 1u], ~(0xffffu << ((t141 & 1u) << 4u))); atomicOr(&data_u16_[t141 >> 1u], t142 << ((t141 & 1u) << 4u)); }
    let t143: bool = gid0 < data_u32_len;
    let t144: u32 = select(0u, data_u32_off + gid0, t143);
    let t145: bool = gid0 < data_u32_len;
    let t146: u32 = select(0u, data_u32_off + gid0, t145);
    if t145 { data_u32_[t146] = countOneBits(select(0u, data_u32_[t144], t143)); }
    let t147: bool = gid0 < data_u64_len;
    let t148: u32 = select(0u, data_u64_off + gid0, t147);
    let t149: bool = gid0 < data_u64_len;
    let t150: u32 = select(0u, data_u64_off + gid0, t149);
    if t149 { data_u64_[t150] = count_ones_u64(select(0lu, data_u64_[t148], t147)); }
    let t151: u32 = countOneBits(gid0);
    let t152: bool = t151 < data_u32_len;
    let t153: u32 = select(0u, data_u32_off + t151, t152);
    if t152 { data_u32_[t153] = 0u; }
}
