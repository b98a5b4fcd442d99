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
    if t11 { atomicAnd(&data_i8_[t12 >> 2u], ~(0xffu << ((t12 & 3u) << 3u))); atomicOr(&data_i8_[t12 >> 2u], (bitcast<u32>(select(((t10 << 3u) << 24u) >> 24u, ((t10 / 3i) << 24u) >> 24u, t10 < (-128i))) & 0xffu) << ((t12 & 3u) << 3u)); }
    let t13: bool = gid0 < data_i16_len;
    let t14: u32 = select(0u, data_i16_off + gid0, t13);
    let t15: i32 = select(0i, (bitcast<i32>(atomicLoad(&data_i16_[t14 >> 1u]) >> ((t14 & 1u) << 4u)) << 16u) >> 16u, t13);
    let t16: bool = gid0 < data_u8_len;
    let t17: u32 = select(0u, data_u8_off + gid0, t16);
    let t18: i32 = (bitcast<i32>(select(0u, (atomicLoad(&data_u8_[t17 >> 2u]) >> ((t17 & 3u) << 3u)) & 0xffu, t16)) << 16u) >> 16u;
    let t19: i32 = (((((((abs(((~(((0i - t15) << 16u) >> 16u)) << 16u) >> 16u) << 16u) >> 16u) + t18) << 16u) >> 16u) - t18) << 16u) >> 16u;
    let t20: i32 = (min((rem_i32((div_i32(((t19 * t18) << 16u) >> 16u, t18) << 16u) >> 16u, t18) << 16u) >> 16u, t18) << 16u) >> 16u;
    let t21: i32 = ((((((((((max(t20, t18) << 16u) >> 16u) & t18) << 16u) >> 16u) | t18) << 16u) >> 16u) ^ t18) << 16u) >> 16u;
    let t22: i32 = (((((t21 << (u32(t18) & 15u)) << 16u) >> 16u) >> (u32(t18) & 15u)) << 16u) >> 16u;
    let t23: bool = gid0 < data_i16_len;
    let t24: u32 = select(0u, data_i16_off + gid0, t23);
    if t23 { atomicAnd(&data_i16_[t24 >> 1u], ~(0xffffu << ((t24 & 1u) << 4u))); atomicOr(&data_i16_[t24 >> 1u], (bitcast<u32>(select(((t22 << 3u) << 16u) >> 16u, ((t22 / 3i) << 16u) >> 16u, t22 < (-32768i))) & 0xffffu) << ((t24 & 1u) << 4u)); }
    let t25: bool = gid0 < data_i32_len;
    let t26: u32 = select(0u, data_i32_off + gid0, t25);
    let t27: bool = gid0 < data_u16_len;
    let t28: u32 = select(0u, data_u16_off + gid0, t27);
    let t29: i32 = bitcast<i32>(select(0u, (atomicLoad(&data_u16_[t28 >> 1u]) >> ((t28 & 1u) << 4u)) & 0xffffu, t27));
    let t30: i32 = min(rem_i32(div_i32(((abs(~(0i - select(0i, data_i32_[t26], t25))) + t29) - t29) * t29, t29), t29), t29);
    let t31: i32 = ((((max(t30, t29) & t29) | t29) ^ t29) << (u32(t29) & 31u)) >> (u32(t29) & 31u);
    let t32: bool = gid0 < data_i32_len;
    let t33: u32 = select(0u, data_i32_off + gid0, t32);
    if t32 { data_i32_[t33] = select(t31 << 3u, t31 / 3i, t31 < (-2147483647i - 1i)); }
    let t34: bool = gid0 < data_i64_len;
    let t35: u32 = select(0u, data_i64_off + gid0, t34);
    let t36: bool = gid0 < data_u32_len;
    let t37: u32 = select(0u, data_u32_off + gid0, t36);
    let t38: i64 = bitcast<i64>(u64(select(0u, data_u32_[t37], t36)));
    let t39: i64 = rem_i64(div_i64(((abs_i64(~(0li - select(0li, data_i64_[t35], t34))) + t38) - t38) * t38, t38), t38);
    let t40: i64 = ((((max_i64(min_i64(t39, t38), t38) & t38) | t38) ^ t38) << (u32(t38) & 63u)) >> (u32(t38) & 63u);
    let t41: bool = gid0 < data_i64_len;
    let t42: u32 = select(0u, data_i64_off + gid0, t41);
    if t41 { data_i64_[t42] = select(t40 << 3u, t40 / 3li, t40 < (-9223372036854775807li - 1li)); }
    let t43: bool = gid0 < data_u8_len;
    let t44: u32 = select(0u, data_u8_off + gid0, t43);
    let t45: u32 = (0u - select(0u, (atomicLoad(&data_u8_[t44 >> 2u]) >> ((t44 & 3u) << 3u)) & 0xffu, t43)) & 0xffu;
    let t46: bool = gid0 < data_u64_len;
    let t47: u32 = select(0u, data_u64_off + gid0, t46);
    let t48: u32 = u32(select(0lu, data_u64_[t47], t46)) & 0xffu;
    let t49: u32 = div_u32(((((((((~t45) & 0xffu) & 0xffu) + t48) & 0xffu) - t48) & 0xffu) * t48) & 0xffu, t48) & 0xffu;
    let t50: u32 = ((((max(min(rem_u32(t49, t48) & 0xffu, t48) & 0xffu, t48) & 0xffu) & t48) & 0xffu) | t48) & 0xffu;
    let t51: u32 = (((((t50 ^ t48) & 0xffu) << (t48 & 7u)) & 0xffu) >> (t48 & 7u)) & 0xffu;
    let t52: bool = gid0 < data_u8_len;
    let t53: u32 = select(0u, data_u8_off + gid0, t52);
    if t52 { atomicAnd(&data_u8_[t53 >> 2u], ~(0xffu << ((t53 & 3u) << 3u))); atomicOr(&data_u8_[t53 >> 2u], select((t51 << 3u) & 0xffu, (t51 / 3u) & 0xffu, t51 < 128u) << ((t53 & 3u) << 3u)); }
    let t54: bool = gid0 < data_i8_len;
    let t55: u32 = select(0u, data_i8_off + gid0, t54);
    let t56: i32 = select(0i, (bitcast<i32>(atomicLoad(&data_i8_[t55 >> 2u]) >> ((t55 & 3u) << 3u)) << 24u) >> 24u, t54);
    let t57: bool = gid0 < data_i64_len;
    let t58: u32 = select(0u, data_i64_off + gid0, t57);
    let t59: i32 = (i32(select(0li, data_i64_[t58], t57)) << 24u) >> 24u;
    let t60: i32 = (((((((abs(((~(((0i - t56) << 24u) >> 24u)) << 24u) >> 24u) << 24u) >> 24u) + t59) << 24u) >> 24u) - t59) << 24u) >> 24u;
    let t61: i32 = (min((rem_i32((div_i32(((t60 * t59) << 24u) >> 24u, t59) << 24u) >> 24u, t59) << 24u) >> 24u, t59) << 24u) >> 24u;
    let t62: i32 = ((((((((((max(t61, t59) << 24u) >> 24u) & t59) << 24u) >> 24u) | t59) << 24u) >> 24u) ^ t59) << 24u) >> 24u;
    let t63: i32 = (((((t62 << (u32(t59) & 7u)) << 24u) >> 24u) >> (u32(t59) & 7u)) << 24u) >> 24u;
    let t64: bool = gid0 < data_u16_len;
    let t65: u32 = select(0u, data_u16_off + gid0, t64);
    let t66: u32 = (0u - select(0u, (atomicLoad(&data_u16_[t65 >> 1u]) >> ((t65 & 1u) << 4u)) & 0xffffu, t64)) & 0xffffu;
    let t67: u32 = bitcast<u32>(select(((t63 << 3u) << 24u) >> 24u, ((t63 / 3i) << 24u) >> 24u, t63 < (-128i))) & 0xffffu;
    let t68: u32 = div_u32(((((((((~t66) & 0xffffu) & 0xffffu) + t67) & 0xffffu) - t67) & 0xffffu) * t67) & 0xffffu, t67) & 0xffffu;
    let t69: u32 = ((((max(min(rem_u32(t68, t67) & 0xffffu, t67) & 0xffffu, t67) & 0xffffu) & t67) & 0xffffu) | t67) & 0xffffu;
    let t70: u32 = (((((t69 ^ t67) & 0xffffu) << (t67 & 15u)) & 0xffffu) >> (t67 & 15u)) & 0xffffu;
    let t71: bool = gid0 < data_u16_len;
    let t72: u32 = select(0u, data_u16_off + gid0, t71);
    if t71 { atomicAnd(&data_u16_[t72 >> 1u], ~(0xffffu << ((t72 & 1u) << 4u))); atomicOr(&data_u16_[t72 >> 1u], select((t70 << 3u) & 0xffffu, (t70 / 3u) & 0xffffu, t70 < 32768u) << ((t72 & 1u) << 4u)); }
    let t73: bool = gid0 < data_i16_len;
    let t74: u32 = select(0u, data_i16_off + gid0, t73);
    let t75: i32 = select(0i, (bitcast<i32>(atomicLoad(&data_i16_[t74 >> 1u]) >> ((t74 & 1u) << 4u)) << 16u) >> 16u, t73);
    let t76: bool = gid0 < data_u8_len;
    let t77: u32 = select(0u, data_u8_off + gid0, t76);
    let t78: i32 = (bitcast<i32>(select(0u, (atomicLoad(&data_u8_[t77 >> 2u]) >> ((t77 & 3u) << 3u)) & 0xffu, t76)) << 16u) >> 16u;
    let t79: i32 = (((((((abs(((~(((0i - t75) << 16u) >> 16u)) << 16u) >> 16u) << 16u) >> 16u) + t78) << 16u) >> 16u) - t78) << 16u) >> 16u;
    let t80: i32 = (min((rem_i32((div_i32(((t79 * t78) << 16u) >> 16u, t78) << 16u) >> 16u, t78) << 16u) >> 16u, t78) << 16u) >> 16u;
    let t81: i32 = ((((((((((max(t80, t78) << 16u) >> 16u) & t78) << 16u) >> 16u) | t78) << 16u) >> 16u) ^ t78) << 16u) >> 16u;
    let t82: i32 = (((((t81 << (u32(t78) & 15u)) << 16u) >> 16u) >> (u32(t78) & 15u)) << 16u) >> 16u;
    let t83: bool = gid0 < data_u32_len;
    let t84: u32 = select(0u, data_u32_off + gid0, t83);
    let t85: u32 = bitcast<u32>(select(((t82 << 3u) << 16u) >> 16u, ((t82 / 3i) << 16u) >> 16u, t82 < (-32768i)));
    let t86: u32 = min(rem_u32(div_u32((((~(0u - select(0u, data_u32_[t84], t83))) + t85) - t85) * t85, t85), t85), t85);
    let t87: u32 = ((((max(t86, t85) & t85) | t85) ^ t85) << (t85 & 31u)) >> (t85 & 31u);
    let t88: bool = gid0 < data_u32_len;
    let t89: u32 = select(0u, data_u32_off + gid0, t88);
    if t88 { data_u32_[t89] = select(t87 << 3u, t87 / 3u, t87 < 2147483648u); }
    let t90: bool = gid0 < data_i32_len;
    let t91: u32 = select(0u, data_i32_off + gid0, t90);
    let t92: bool = gid0 < data_u16_len;
    let t93: u32 = select(0u, data_u16_off + gid0, t92);
    let t94: i32 = bitcast<i32>(select(0u, (atomicLoad(&data_u16_[t93 >> 1u]) >> ((t93 & 1u) << 4u)) & 0xffffu, t92));
    let t95: i32 = min(rem_i32(div_i32(((abs(~(0i - select(0i, data_i32_[t91], t90))) + t94) - t94) * t94, t94), t94), t94);
    let t96: i32 = ((((max(t95, t94) & t94) | t94) ^ t94) << (u32(t94) & 31u)) >> (u32(t94) & 31u);
    let t97: bool = gid0 < data_u64_len;
    let t98: u32 = select(0u, data_u64_off + gid0, t97);
    let t99: u64 = bitcast<u64>(i64(select(t96 << 3u, t96 / 3i, t96 < (-2147483647i - 1i))));
    let t100: u64 = min_u64(rem_u64(div_u64((((~(0lu - select(0lu, data_u64_[t98], t97))) + t99) - t99) * t99, t99), t99), t99);
    let t101: u64 = ((((max_u64(t100, t99) & t99) | t99) ^ t99) << (u32(t99) & 63u)) >> (u32(t99) & 63u);
    let t102: bool = gid0 < data_u64_len;
    let t103: u32 = select(0u, data_u64_off + gid0, t102);
    if t102 { data_u64_[t103] = select(t101 << 3u, t101 / 3lu, t101 < 9223372036854775808lu); }
}
