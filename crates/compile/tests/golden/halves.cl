#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
static float max_f32(float a, float b) { return a != a || a > b ? a : b; }
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
    const float t2 = round_f16(round_f16((float)(gid0 < wide_len ? wide_[gid0] : 0.0)) + round_f16((float)(gid0 < ints_len ? ints_[gid0] : 0)));
    if (gid0 < data_len) data_[gid0] = f16_bits(t2 - f16_from_bits(scratch_[0UL]));
    const float t3 = round_f16(round_f16((float)(gid0 < wide_len ? wide_[gid0] : 0.0)) + round_f16((float)(gid0 < ints_len ? ints_[gid0] : 0)));
    if (gid0 < ints_len) ints_[gid0] = (int)(ushort)f16_bits(round_f16(t3 - f16_from_bits(scratch_[0UL])));
    const float t4 = round_f16(round_f16((float)(gid0 < wide_len ? wide_[gid0] : 0.0)) + round_f16((float)(gid0 < ints_len ? ints_[gid0] : 0)));
    if (gid0 < wide_len) wide_[gid0] = (double)round_f16(t4 - f16_from_bits(scratch_[0UL]));
    const float t5 = round_bf16(round_bf16((gid0 < data_2len ? bf16_from_bits(data_2[gid0]) : 0.0f) * scale_bf16_) + 0.5f);
    scratch_2[0UL] = bf16_bits(max_f32(round_bf16(sqrt(t5)), 0.5f));
    const float t6 = round_bf16(round_bf16((float)(gid0 < wide_len ? wide_[gid0] : 0.0)) + round_bf16((float)(gid0 < ints_len ? ints_[gid0] : 0)));
    if (gid0 < data_2len) data_2[gid0] = bf16_bits(t6 - bf16_from_bits(scratch_2[0UL]));
    const float t7 = round_bf16(round_bf16((float)(gid0 < wide_len ? wide_[gid0] : 0.0)) + round_bf16((float)(gid0 < ints_len ? ints_[gid0] : 0)));
    if (gid0 < ints_len) ints_[gid0] = (int)(ushort)bf16_bits(round_bf16(t7 - bf16_from_bits(scratch_2[0UL])));
    const float t8 = round_bf16(round_bf16((float)(gid0 < wide_len ? wide_[gid0] : 0.0)) + round_bf16((float)(gid0 < ints_len ? ints_[gid0] : 0)));
    if (gid0 < wide_len) wide_[gid0] = (double)round_bf16(t8 - bf16_from_bits(scratch_2[0UL]));
}
