#pragma clang fp contract(off)
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef float f32; typedef double f64;
static __attribute__((device)) i8 min_i8(i8 a, i8 b) { return a < b ? a : b; }
static __attribute__((device)) i16 min_i16(i16 a, i16 b) { return a < b ? a : b; }
static __attribute__((device)) i32 min_i32(i32 a, i32 b) { return a < b ? a : b; }
static __attribute__((device)) i64 min_i64(i64 a, i64 b) { return a < b ? a : b; }
static __attribute__((device)) u8 min_u8(u8 a, u8 b) { return a < b ? a : b; }
static __attribute__((device)) u16 min_u16(u16 a, u16 b) { return a < b ? a : b; }
static __attribute__((device)) u32 min_u32(u32 a, u32 b) { return a < b ? a : b; }
static __attribute__((device)) u64 min_u64(u64 a, u64 b) { return a < b ? a : b; }
static __attribute__((device)) i8 max_i8(i8 a, i8 b) { return a > b ? a : b; }
static __attribute__((device)) i16 max_i16(i16 a, i16 b) { return a > b ? a : b; }
static __attribute__((device)) i32 max_i32(i32 a, i32 b) { return a > b ? a : b; }
static __attribute__((device)) i64 max_i64(i64 a, i64 b) { return a > b ? a : b; }
static __attribute__((device)) u8 max_u8(u8 a, u8 b) { return a > b ? a : b; }
static __attribute__((device)) u16 max_u16(u16 a, u16 b) { return a > b ? a : b; }
static __attribute__((device)) u32 max_u32(u32 a, u32 b) { return a > b ? a : b; }
static __attribute__((device)) u64 max_u64(u64 a, u64 b) { return a > b ? a : b; }
static __attribute__((device)) i8 abs_i8(i8 a) { return a < 0 ? (i8)(0 - (u32)a) : a; }
static __attribute__((device)) i16 abs_i16(i16 a) { return a < 0 ? (i16)(0 - (u32)a) : a; }
static __attribute__((device)) i32 abs_i32(i32 a) { return a < 0 ? (i32)(0 - (u32)a) : a; }
static __attribute__((device)) i64 abs_i64(i64 a) { return a < 0 ? (i64)(0 - (u64)a) : a; }
static __attribute__((device)) i8 div_i8(i8 a, i8 b) {
    const i8 d = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? 0 : b == -1 ? (i8)(0 - (u32)a) : (i8)(a / d);
}
static __attribute__((device)) i16 div_i16(i16 a, i16 b) {
    const i16 d = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? 0 : b == -1 ? (i16)(0 - (u32)a) : (i16)(a / d);
}
static __attribute__((device)) i32 div_i32(i32 a, i32 b) {
    const i32 d = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? 0 : b == -1 ? (i32)(0 - (u32)a) : (i32)(a / d);
}
static __attribute__((device)) i64 div_i64(i64 a, i64 b) {
    const i64 d = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? 0 : b == -1 ? (i64)(0 - (u64)a) : (i64)(a / d);
}
static __attribute__((device)) u8 div_u8(u8 a, u8 b) { return b == 0 ? 0 : (u8)(a / (b == 0 ? 1 : b)); }
static __attribute__((device)) u16 div_u16(u16 a, u16 b) { return b == 0 ? 0 : (u16)(a / (b == 0 ? 1 : b)); }
static __attribute__((device)) u32 div_u32(u32 a, u32 b) { return b == 0 ? 0 : (u32)(a / (b == 0 ? 1 : b)); }
static __attribute__((device)) u64 div_u64(u64 a, u64 b) { return b == 0 ? 0 : (u64)(a / (b == 0 ? 1 : b)); }
static __attribute__((device)) i8 rem_i8(i8 a, i8 b) {
    const i8 d = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? a : b == -1 ? 0 : (i8)(a % d);
}
static __attribute__((device)) i16 rem_i16(i16 a, i16 b) {
    const i16 d = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? a : b == -1 ? 0 : (i16)(a % d);
}
static __attribute__((device)) i32 rem_i32(i32 a, i32 b) {
    const i32 d = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? a : b == -1 ? 0 : (i32)(a % d);
}
static __attribute__((device)) i64 rem_i64(i64 a, i64 b) {
    const i64 d = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? a : b == -1 ? 0 : (i64)(a % d);
}
static __attribute__((device)) u8 rem_u8(u8 a, u8 b) { return b == 0 ? a : (u8)(a % (b == 0 ? 1 : b)); }
static __attribute__((device)) u16 rem_u16(u16 a, u16 b) { return b == 0 ? a : (u16)(a % (b == 0 ? 1 : b)); }
static __attribute__((device)) u32 rem_u32(u32 a, u32 b) { return b == 0 ? a : (u32)(a % (b == 0 ? 1 : b)); }
static __attribute__((device)) u64 rem_u64(u64 a, u64 b) { return b == 0 ? a : (u64)(a % (b == 0 ? 1 : b)); }
extern "C" __attribute__((global)) void integers_(
    i8 *__restrict__ data_i8_, const u64 data_i8_off, const u64 data_i8_len,
    i16 *__restrict__ data_i16_, const u64 data_i16_off, const u64 data_i16_len,
    i32 *__restrict__ data_i32_, const u64 data_i32_off, const u64 data_i32_len,
    i64 *__restrict__ data_i64_, const u64 data_i64_off, const u64 data_i64_len,
    u8 *__restrict__ data_u8_, const u64 data_u8_off, const u64 data_u8_len,
    u16 *__restrict__ data_u16_, const u64 data_u16_off, const u64 data_u16_len,
    u32 *__restrict__ data_u32_, const u64 data_u32_off, const u64 data_u32_len,
    u64 *__restrict__ data_u64_, const u64 data_u64_off, const u64 data_u64_len,
    const u64 size0, const u64 size1, const u64 size2)
{
    const u64 gid0 = __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
    const u64 gid1 = __builtin_amdgcn_workgroup_id_y() * __builtin_amdgcn_workgroup_size_y() + __builtin_amdgcn_workitem_id_y();
    const u64 gid2 = __builtin_amdgcn_workgroup_id_z() * __builtin_amdgcn_workgroup_size_z() + __builtin_amdgcn_workitem_id_z();
    if (gid0 >= size0 || gid1 >= size1 || gid2 >= size2) return;
    data_i8_ += data_i8_off;
    data_i16_ += data_i16_off;
    data_i32_ += data_i32_off;
    data_i64_ += data_i64_off;
    data_u8_ += data_u8_off;
    data_u16_ += data_u16_off;
    data_u32_ += data_u32_off;
    data_u64_ += data_u64_off;
    const i8 t1 = (i8)(gid0 < data_i64_len ? data_i64_[gid0] : 0ll);
    const i8 t2 = (i8)((u32)(i8)((u32)abs_i8((i8)(~(i8)(0 - (u32)(gid0 < data_i8_len ? data_i8_[gid0] : 0)))) + (u32)t1) - (u32)t1);
    const i8 t3 = (i8)((u32)(((max_i8(min_i8(rem_i8(div_i8((i8)((u32)t2 * (u32)t1), t1), t1), t1), t1) & t1) | t1) ^ t1) << (t1 & 7));
    const i8 t4 = t3 >> (t1 & 7);
    if (gid0 < data_i8_len) data_i8_[gid0] = (t4 < (-127 - 1)) ? (t4 / 3) : (i8)((u32)t4 << 3);
    const i16 t5 = (i16)(gid0 < data_u8_len ? data_u8_[gid0] : 0);
    const i16 t6 = (i16)((u32)abs_i16((i16)(~(i16)(0 - (u32)(gid0 < data_i16_len ? data_i16_[gid0] : 0)))) + (u32)t5);
    const i16 t7 = max_i16(min_i16(rem_i16(div_i16((i16)((u32)(i16)((u32)t6 - (u32)t5) * (u32)t5), t5), t5), t5), t5);
    const i16 t8 = (i16)((u32)(((t7 & t5) | t5) ^ t5) << (t5 & 15)) >> (t5 & 15);
    if (gid0 < data_i16_len) data_i16_[gid0] = (t8 < (-32767 - 1)) ? (t8 / 3) : (i16)((u32)t8 << 3);
    const i32 t9 = (i32)(gid0 < data_u16_len ? data_u16_[gid0] : 0);
    const i32 t10 = (i32)((u32)(i32)((u32)abs_i32(~(i32)(0 - (u32)(gid0 < data_i32_len ? data_i32_[gid0] : 0))) + (u32)t9) - (u32)t9);
    const i32 t11 = ((max_i32(min_i32(rem_i32(div_i32((i32)((u32)t10 * (u32)t9), t9), t9), t9), t9) & t9) | t9) ^ t9;
    const i32 t12 = (i32)((u32)t11 << (t9 & 31)) >> (t9 & 31);
    if (gid0 < data_i32_len) data_i32_[gid0] = (t12 < (-2147483647 - 1)) ? (t12 / 3) : (i32)((u32)t12 << 3);
    const i64 t13 = (i64)(gid0 < data_u32_len ? data_u32_[gid0] : 0u);
    const i64 t14 = (i64)((u64)(i64)((u64)abs_i64(~(i64)(0 - (u64)(gid0 < data_i64_len ? data_i64_[gid0] : 0ll))) + (u64)t13) - (u64)t13);
    const i64 t15 = (max_i64(min_i64(rem_i64(div_i64((i64)((u64)t14 * (u64)t13), t13), t13), t13), t13) & t13) | t13;
    const i64 t16 = (i64)((u64)(t15 ^ t13) << (t13 & 63)) >> (t13 & 63);
    if (gid0 < data_i64_len) data_i64_[gid0] = (t16 < (-9223372036854775807ll - 1)) ? div_i64(t16, 3ll) : (i64)((u64)t16 << (3ll & 63));
    const u8 t17 = (u8)(gid0 < data_u64_len ? data_u64_[gid0] : 0ull);
    const u8 t18 = (u8)((u32)(u8)((u32)(u8)(~(u8)(0 - (u32)(gid0 < data_u8_len ? data_u8_[gid0] : 0))) + (u32)t17) - (u32)t17);
    const u8 t19 = ((max_u8(min_u8(rem_u8(div_u8((u8)((u32)t18 * (u32)t17), t17), t17), t17), t17) & t17) | t17) ^ t17;
    const u8 t20 = (u8)((u32)t19 << (t17 & 7)) >> (t17 & 7);
    if (gid0 < data_u8_len) data_u8_[gid0] = (t20 < 128) ? (t20 / 3) : (u8)((u32)t20 << 3);
    const i8 t21 = (i8)(gid0 < data_i64_len ? data_i64_[gid0] : 0ll);
    const i8 t22 = (i8)((u32)(i8)((u32)abs_i8((i8)(~(i8)(0 - (u32)(gid0 < data_i8_len ? data_i8_[gid0] : 0)))) + (u32)t21) - (u32)t21);
    const i8 t23 = ((max_i8(min_i8(rem_i8(div_i8((i8)((u32)t22 * (u32)t21), t21), t21), t21), t21) & t21) | t21) ^ t21;
    const i8 t24 = (i8)((u32)t23 << (t21 & 7)) >> (t21 & 7);
    const u16 t25 = (u16)((t24 < (-127 - 1)) ? (t24 / 3) : (i8)((u32)t24 << 3));
    const u16 t26 = (u16)((u32)(u16)((u32)(u16)(~(u16)(0 - (u32)(gid0 < data_u16_len ? data_u16_[gid0] : 0))) + (u32)t25) - (u32)t25);
    const u16 t27 = (max_u16(min_u16(rem_u16(div_u16((u16)((u32)t26 * (u32)t25), t25), t25), t25), t25) & t25) | t25;
    const u16 t28 = (u16)((u32)(t27 ^ t25) << (t25 & 15)) >> (t25 & 15);
    if (gid0 < data_u16_len) data_u16_[gid0] = (t28 < 32768) ? (t28 / 3) : (u16)((u32)t28 << 3);
    const i16 t29 = (i16)(gid0 < data_u8_len ? data_u8_[gid0] : 0);
    const i16 t30 = (i16)((u32)abs_i16((i16)(~(i16)(0 - (u32)(gid0 < data_i16_len ? data_i16_[gid0] : 0)))) + (u32)t29);
    const i16 t31 = max_i16(min_i16(rem_i16(div_i16((i16)((u32)(i16)((u32)t30 - (u32)t29) * (u32)t29), t29), t29), t29), t29);
    const i16 t32 = (i16)((u32)(((t31 & t29) | t29) ^ t29) << (t29 & 15)) >> (t29 & 15);
    const u32 t33 = (u32)((t32 < (-32767 - 1)) ? (t32 / 3) : (i16)((u32)t32 << 3));
    const u32 t34 = rem_u32(div_u32((((~(0 - (gid0 < data_u32_len ? data_u32_[gid0] : 0u))) + t33) - t33) * t33, t33), t33);
    const u32 t35 = ((((max_u32(min_u32(t34, t33), t33) & t33) | t33) ^ t33) << (t33 & 31)) >> (t33 & 31);
    if (gid0 < data_u32_len) data_u32_[gid0] = (t35 < 2147483648u) ? (t35 / 3u) : (t35 << 3);
    const i32 t36 = (i32)(gid0 < data_u16_len ? data_u16_[gid0] : 0);
    const i32 t37 = (i32)((u32)(i32)((u32)abs_i32(~(i32)(0 - (u32)(gid0 < data_i32_len ? data_i32_[gid0] : 0))) + (u32)t36) - (u32)t36);
    const i32 t38 = (max_i32(min_i32(rem_i32(div_i32((i32)((u32)t37 * (u32)t36), t36), t36), t36), t36) & t36) | t36;
    const i32 t39 = (i32)((u32)(t38 ^ t36) << (t36 & 31)) >> (t36 & 31);
    const u64 t40 = (u64)((t39 < (-2147483647 - 1)) ? (t39 / 3) : (i32)((u32)t39 << 3));
    const u64 t41 = rem_u64(div_u64((((~(0 - (gid0 < data_u64_len ? data_u64_[gid0] : 0ull))) + t40) - t40) * t40, t40), t40);
    const u64 t42 = ((((max_u64(min_u64(t41, t40), t40) & t40) | t40) ^ t40) << (t40 & 63)) >> (t40 & 63);
    if (gid0 < data_u64_len) data_u64_[gid0] = (t42 < 9223372036854775808ull) ? div_u64(t42, 3ull) : (t42 << (3ull & 63));
    if (gid0 < data_i8_len) data_i8_[gid0] = (i8)__builtin_popcountll((u8)(gid0 < data_i8_len ? data_i8_[gid0] : 0));
    if (gid0 < data_i16_len) data_i16_[gid0] = (i16)__builtin_popcountll((u16)(gid0 < data_i16_len ? data_i16_[gid0] : 0));
    if (gid0 < data_i32_len) data_i32_[gid0] = (i32)__builtin_popcountll((u32)(gid0 < data_i32_len ? data_i32_[gid0] : 0));
    if (gid0 < data_i64_len) data_i64_[gid0] = (i64)__builtin_popcountll((u64)(gid0 < data_i64_len ? data_i64_[gid0] : 0ll));
    if (gid0 < data_u8_len) data_u8_[gid0] = (u8)__builtin_popcountll(gid0 < data_u8_len ? data_u8_[gid0] : 0);
    if (gid0 < data_u16_len) data_u16_[gid0] = (u16)__builtin_popcountll(gid0 < data_u16_len ? data_u16_[gid0] : 0);
    if (gid0 < data_u32_len) data_u32_[gid0] = (u32)__builtin_popcountll(gid0 < data_u32_len ? data_u32_[gid0] : 0u);
    if (gid0 < data_u64_len) data_u64_[gid0] = (u64)__builtin_popcountll(gid0 < data_u64_len ? data_u64_[gid0] : 0ull);
    const u64 t43 = (u64)__builtin_popcountll(gid0);
    if (t43 < data_u32_len) data_u32_[t43] = 0u;
}
