#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
static float max_f32(float a, float b) { return a != a || a > b ? a : b; }
static int i32_from_f32(float x) { return x >= 2147483600.0f ? 2147483647 : x <= -2147483600.0f ? (-2147483647 - 1) : x != x ? 0 : (int)x; }
static float f16_from_bits(ushort bits) { return vload_half(0, (const half *)&bits); }
static ushort f16_bits(float x) { ushort bits; vstore_half_rte(x, 0, (half *)&bits); return bits; }
static float round_f16(float x) { return f16_from_bits(f16_bits(x)); }
static float bf16_from_bits(ushort bits) { return as_float((uint)bits << 16); }
static ushort bf16_bits(float x) {
    const uint u = as_uint(x);
    return x != x ? (u >> 16) | 64 : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}
static float round_bf16(float x) { return bf16_from_bits(bf16_bits(x)); }
kernel void halves_(
    global double *restrict wide_, const ulong wide_off, const ulong wide_len,
    global int *restrict ints_, const ulong ints_off, const ulong ints_len,
    global ushort *restrict data_, const ulong data_off, const ulong data_len,
    global ushort *restrict data_2, const ulong data_2off, const ulong data_2len,
    const ushort scale_f16_bits,
    const ushort scale_bf16_bits,
    const ulong size0, const ulong size1, const ulong size2)
{
    const ulong gid0 = get_global_id(0);
    const ulong gid1 = get_global_id(1);
    const ulong gid2 = get_global_id(2);
    if (gid0 >= size0 || gid1 >= size1 || gid2 >= size2) return;
    wide_ += wide_off;
    ints_ += ints_off;
    data_ += data_off;
    data_2 += data_2off;
    ushort scratch_[4];
    ushort scratch_2[4];
    const float scale_f16_ = f16_from_bits(scale_f16_bits);
    const float scale_bf16_ = bf16_from_bits(scale_bf16_bits);
    const float t1 = round_f16(sqrt(round_f16(round_f16((gid0 < data_len ? f16_from_bits(data_[gid0]) : 0.0f) * scale_f16_) + 0.5f)));
    scratch_[0UL] = f16_bits(max_f32(t1, 0.5f));
    const double t2 = gid0 < wide_len ? wide_[gid0] : 0.0;
    const float t3 = (float)t2;
    const double t4 = (double)t3;
    const float t5 = round_f16(round_f16(as_float((as_uint(t3) - ((fabs(t2) < fabs(t4)) ? 1u : 0u)) | ((t4 == t2) ? 0u : 1u))) + round_f16((float)(gid0 < ints_len ? ints_[gid0] : 0)));
    if (gid0 < data_len) data_[gid0] = f16_bits(t5 - f16_from_bits(scratch_[0UL]));
    const double t6 = gid0 < wide_len ? wide_[gid0] : 0.0;
    const float t7 = (float)t6;
    const double t8 = (double)t7;
    const float t9 = round_f16(round_f16(as_float((as_uint(t7) - ((fabs(t6) < fabs(t8)) ? 1u : 0u)) | ((t8 == t6) ? 0u : 1u))) + round_f16((float)(gid0 < ints_len ? ints_[gid0] : 0)));
    if (gid0 < ints_len) ints_[gid0] = (int)(ushort)f16_bits(round_f16(t9 - f16_from_bits(scratch_[0UL])));
    const double t10 = gid0 < wide_len ? wide_[gid0] : 0.0;
    const float t11 = (float)t10;
    const double t12 = (double)t11;
    const float t13 = round_f16(as_float((as_uint(t11) - ((fabs(t10) < fabs(t12)) ? 1u : 0u)) | ((t12 == t10) ? 0u : 1u)));
    const float t14 = round_f16(round_f16(t13 + round_f16((float)(gid0 < ints_len ? ints_[gid0] : 0))) - f16_from_bits(scratch_[0UL]));
    if (gid0 < wide_len) wide_[gid0] = (double)t14;
    const float t15 = round_bf16(round_bf16((gid0 < data_2len ? bf16_from_bits(data_2[gid0]) : 0.0f) * scale_bf16_) + 0.5f);
    scratch_2[0UL] = bf16_bits(max_f32(round_bf16(sqrt(t15)), 0.5f));
    const double t16 = gid0 < wide_len ? wide_[gid0] : 0.0;
    const int t17 = gid0 < ints_len ? ints_[gid0] : 0;
    const float t18 = (float)t16;
    const double t19 = (double)t18;
    const float t20 = round_bf16(as_float((as_uint(t18) - ((fabs(t16) < fabs(t19)) ? 1u : 0u)) | ((t19 == t16) ? 0u : 1u)));
    const float t21 = (float)t17;
    const int t22 = i32_from_f32(t21);
    const uint t23 = (as_uint(t21) - (((t17 < 0) ? (t22 < t17) : (t17 < t22)) ? 1u : 0u)) | ((t22 == t17) ? 0u : 1u);
    if (gid0 < data_2len) data_2[gid0] = bf16_bits(round_bf16(t20 + round_bf16(as_float(t23))) - bf16_from_bits(scratch_2[0UL]));
    const double t24 = gid0 < wide_len ? wide_[gid0] : 0.0;
    const int t25 = gid0 < ints_len ? ints_[gid0] : 0;
    const float t26 = (float)t24;
    const double t27 = (double)t26;
    const float t28 = round_bf16(as_float((as_uint(t26) - ((fabs(t24) < fabs(t27)) ? 1u : 0u)) | ((t27 == t24) ? 0u : 1u)));
    const float t29 = (float)t25;
    const int t30 = i32_from_f32(t29);
    const uint t31 = (as_uint(t29) - (((t25 < 0) ? (t30 < t25) : (t25 < t30)) ? 1u : 0u)) | ((t30 == t25) ? 0u : 1u);
    const ushort t32 = (ushort)bf16_bits(round_bf16(round_bf16(t28 + round_bf16(as_float(t31))) - bf16_from_bits(scratch_2[0UL])));
    if (gid0 < ints_len) ints_[gid0] = (int)t32;
    const double t33 = gid0 < wide_len ? wide_[gid0] : 0.0;
    const int t34 = gid0 < ints_len ? ints_[gid0] : 0;
    const float t35 = (float)t33;
    const double t36 = (double)t35;
    const float t37 = round_bf16(as_float((as_uint(t35) - ((fabs(t33) < fabs(t36)) ? 1u : 0u)) | ((t36 == t33) ? 0u : 1u)));
    const float t38 = (float)t34;
    const int t39 = i32_from_f32(t38);
    const uint t40 = (as_uint(t38) - (((t34 < 0) ? (t39 < t34) : (t34 < t39)) ? 1u : 0u)) | ((t39 == t34) ? 0u : 1u);
    if (gid0 < wide_len) wide_[gid0] = (double)round_bf16(round_bf16(t37 + round_bf16(as_float(t40))) - bf16_from_bits(scratch_2[0UL]));
}
