#pragma clang fp contract(off)
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef float f32; typedef double f64;
template <class To, class From> static __attribute__((device)) To as(From x) { return __builtin_bit_cast(To, x); }
static __attribute__((device)) f32 exact_sqrtf(f32 x) {
    // The device's root is off by one unit in the last place at most, and knows no denormals.
    const bool tiny = x < 0x1p-96f;
    const f32 y = tiny ? x * 0x1p+32f : x;
    const f32 near = __builtin_amdgcn_sqrtf(y);
    const f32 below = as<f32>(as<u32>(near) - 1), above = as<f32>(as<u32>(near) + 1);
    const f32 root = __builtin_fmaf(-below, near, y) <= 0.0f ? below : __builtin_fmaf(-above, near, y) > 0.0f ? above : near;
    return y == 0.0f || y == __builtin_inff() ? y : tiny ? root * 0x1p-16f : root;
}
static __attribute__((device)) f32 max_f32(f32 a, f32 b) { return a != a || a > b ? a : b; }
static __attribute__((device)) i32 i32_from_f32(f32 x) { return x >= 2147483600.0f ? 2147483647 : x <= -2147483600.0f ? (-2147483647 - 1) : x != x ? 0 : (i32)x; }
static __attribute__((device)) f32 f16_from_bits(u16 bits) { return as<_Float16>(bits); }
static __attribute__((device)) u16 f16_bits(f32 x) { return as<u16>((_Float16)x); }
static __attribute__((device)) f32 round_f16(f32 x) { return f16_from_bits(f16_bits(x)); }
static __attribute__((device)) f32 bf16_from_bits(u16 bits) { return as<f32>((u32)bits << 16); }
static __attribute__((device)) u16 bf16_bits(f32 x) {
    const u32 u = as<u32>(x);
    return x != x ? (u >> 16) | 64 : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}
static __attribute__((device)) f32 round_bf16(f32 x) { return bf16_from_bits(bf16_bits(x)); }
extern "C" __attribute__((global)) void halves_(
    f64 *__restrict__ wide_, const u64 wide_off, const u64 wide_len,
    i32 *__restrict__ ints_, const u64 ints_off, const u64 ints_len,
    u16 *__restrict__ data_, const u64 data_off, const u64 data_len,
    u16 *__restrict__ data_2, const u64 data_2off, const u64 data_2len,
    const u16 scale_f16_bits,
    const u16 scale_bf16_bits,
    const u64 size0, const u64 size1, const u64 size2)
{
    const u64 gid0 = __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
    const u64 gid1 = __builtin_amdgcn_workgroup_id_y() * __builtin_amdgcn_workgroup_size_y() + __builtin_amdgcn_workitem_id_y();
    const u64 gid2 = __builtin_amdgcn_workgroup_id_z() * __builtin_amdgcn_workgroup_size_z() + __builtin_amdgcn_workitem_id_z();
    if (gid0 >= size0 || gid1 >= size1 || gid2 >= size2) return;
    wide_ += wide_off;
    ints_ += ints_off;
    data_ += data_off;
    data_2 += data_2off;
    u16 scratch_[4];
    u16 scratch_2[4];
    const f32 scale_f16_ = f16_from_bits(scale_f16_bits);
    const f32 scale_bf16_ = bf16_from_bits(scale_bf16_bits);
    const f32 t1 = round_f16(exact_sqrtf(round_f16(round_f16((gid0 < data_len ? f16_from_bits(data_[gid0]) : 0.0f) * scale_f16_) + 0.5f)));
    scratch_[0ull] = f16_bits(max_f32(t1, 0.5f));
    const f64 t2 = gid0 < wide_len ? wide_[gid0] : 0.0;
    const f32 t3 = (f32)t2;
    const f64 t4 = (f64)t3;
    const f32 t5 = as<f32>((as<u32>(t3) - ((__builtin_fabs(t2) < __builtin_fabs(t4)) ? 1u : 0u)) | ((t4 == t2) ? 0u : 1u));
    const f32 t6 = round_f16(round_f16(round_f16(t5) + round_f16((f32)(gid0 < ints_len ? ints_[gid0] : 0))) - f16_from_bits(scratch_[0ull]));
    if (gid0 < data_len) data_[gid0] = f16_bits(t6);
    const f64 t7 = gid0 < wide_len ? wide_[gid0] : 0.0;
    const f32 t8 = (f32)t7;
    const f64 t9 = (f64)t8;
    const f32 t10 = as<f32>((as<u32>(t8) - ((__builtin_fabs(t7) < __builtin_fabs(t9)) ? 1u : 0u)) | ((t9 == t7) ? 0u : 1u));
    const f32 t11 = round_f16(round_f16(round_f16(t10) + round_f16((f32)(gid0 < ints_len ? ints_[gid0] : 0))) - f16_from_bits(scratch_[0ull]));
    if (gid0 < ints_len) ints_[gid0] = (i32)(u16)f16_bits(t11);
    const f64 t12 = gid0 < wide_len ? wide_[gid0] : 0.0;
    const f32 t13 = (f32)t12;
    const f64 t14 = (f64)t13;
    const u32 t15 = (as<u32>(t13) - ((__builtin_fabs(t12) < __builtin_fabs(t14)) ? 1u : 0u)) | ((t14 == t12) ? 0u : 1u);
    const f32 t16 = round_f16(round_f16(round_f16(as<f32>(t15)) + round_f16((f32)(gid0 < ints_len ? ints_[gid0] : 0))) - f16_from_bits(scratch_[0ull]));
    if (gid0 < wide_len) wide_[gid0] = (f64)t16;
    const f32 t17 = round_bf16(round_bf16((gid0 < data_2len ? bf16_from_bits(data_2[gid0]) : 0.0f) * scale_bf16_) + 0.5f);
    scratch_2[0ull] = bf16_bits(max_f32(round_bf16(exact_sqrtf(t17)), 0.5f));
    const f64 t18 = gid0 < wide_len ? wide_[gid0] : 0.0;
    const i32 t19 = gid0 < ints_len ? ints_[gid0] : 0;
    const f32 t20 = (f32)t18;
    const f64 t21 = (f64)t20;
    const u32 t22 = (as<u32>(t20) - ((__builtin_fabs(t18) < __builtin_fabs(t21)) ? 1u : 0u)) | ((t21 == t18) ? 0u : 1u);
    const f32 t23 = (f32)t19;
    const i32 t24 = i32_from_f32(t23);
    const u32 t25 = (as<u32>(t23) - (((t19 < 0) ? (t24 < t19) : (t19 < t24)) ? 1u : 0u)) | ((t24 == t19) ? 0u : 1u);
    const f32 t26 = round_bf16(round_bf16(round_bf16(as<f32>(t22)) + round_bf16(as<f32>(t25))) - bf16_from_bits(scratch_2[0ull]));
    if (gid0 < data_2len) data_2[gid0] = bf16_bits(t26);
    const f64 t27 = gid0 < wide_len ? wide_[gid0] : 0.0;
    const i32 t28 = gid0 < ints_len ? ints_[gid0] : 0;
    const f32 t29 = (f32)t27;
    const f64 t30 = (f64)t29;
    const u32 t31 = (as<u32>(t29) - ((__builtin_fabs(t27) < __builtin_fabs(t30)) ? 1u : 0u)) | ((t30 == t27) ? 0u : 1u);
    const f32 t32 = (f32)t28;
    const i32 t33 = i32_from_f32(t32);
    const u32 t34 = (as<u32>(t32) - (((t28 < 0) ? (t33 < t28) : (t28 < t33)) ? 1u : 0u)) | ((t33 == t28) ? 0u : 1u);
    const f32 t35 = round_bf16(round_bf16(round_bf16(as<f32>(t31)) + round_bf16(as<f32>(t34))) - bf16_from_bits(scratch_2[0ull]));
    if (gid0 < ints_len) ints_[gid0] = (i32)(u16)bf16_bits(t35);
    const f64 t36 = gid0 < wide_len ? wide_[gid0] : 0.0;
    const i32 t37 = gid0 < ints_len ? ints_[gid0] : 0;
    const f32 t38 = (f32)t36;
    const f64 t39 = (f64)t38;
    const u32 t40 = (as<u32>(t38) - ((__builtin_fabs(t36) < __builtin_fabs(t39)) ? 1u : 0u)) | ((t39 == t36) ? 0u : 1u);
    const f32 t41 = (f32)t37;
    const i32 t42 = i32_from_f32(t41);
    const u32 t43 = (as<u32>(t41) - (((t37 < 0) ? (t42 < t37) : (t37 < t42)) ? 1u : 0u)) | ((t42 == t37) ? 0u : 1u);
    const f32 t44 = round_bf16(round_bf16(round_bf16(as<f32>(t40)) + round_bf16(as<f32>(t43))) - bf16_from_bits(scratch_2[0ull]));
    if (gid0 < wide_len) wide_[gid0] = (f64)t44;
}
