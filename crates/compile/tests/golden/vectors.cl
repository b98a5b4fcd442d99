#pragma OPENCL FP_CONTRACT OFF
static float f16_from_bits(ushort bits) { return vload_half(0, (const half *)&bits); }
static ushort f16_bits(float x) { ushort bits; vstore_half_rte(x, 0, (half *)&bits); return bits; }
static float round_f16(float x) { return f16_from_bits(f16_bits(x)); }
kernel void vectors_(
    global const float *restrict x_, const ulong x_off, const ulong x_len,
    global float *restrict y_, const ulong y_off, const ulong y_len,
    global ushort *restrict h_, const ulong h_off, const ulong h_len,
    const ulong size0, const ulong size1, const ulong size2)
{
    const ulong gid0 = get_global_id(0);
    const ulong gid1 = get_global_id(1);
    const ulong gid2 = get_global_id(2);
    if (gid0 >= size0 || gid1 >= size1 || gid2 >= size2) return;
    x_ += x_off;
    y_ += y_off;
    h_ += h_off;
    const ulong t1 = gid0 * 4UL;
    const ulong t2 = t1 < x_len ? x_len - t1 : 0UL;
    float acc_l0 = 0 < t2 ? x_[t1] : 0.0f;
    float acc_l1 = 1 < t2 ? x_[t1 + 1] : 0.0f;
    float acc_l2 = 2 < t2 ? x_[t1 + 2] : 0.0f;
    float acc_l3 = 3 < t2 ? x_[t1 + 3] : 0.0f;
    const ulong t3 = gid0 * 4UL;
    const float4 t4 = vload4(0, y_ + t3);
    {
        const float next_acc_l0 = ((acc_l0 < t4.s0) ? acc_l0 : acc_l0) + t4.s0;
        const float next_acc_l1 = ((acc_l1 < t4.s1) ? acc_l1 : acc_l0) + t4.s1;
        const float next_acc_l2 = ((acc_l2 < t4.s2) ? acc_l2 : acc_l0) + t4.s2;
        const float next_acc_l3 = ((acc_l3 < t4.s3) ? acc_l3 : acc_l0) + t4.s3;
        acc_l0 = next_acc_l0;
        acc_l1 = next_acc_l1;
        acc_l2 = next_acc_l2;
        acc_l3 = next_acc_l3;
    }
    const ulong t5 = gid0 * 4UL;
    vstore4((float4)(acc_l0, acc_l1, acc_l2, acc_l3), 0, y_ + t5);
    const ulong t6 = gid0 < y_len ? y_len - gid0 : 0UL;
    if (0 < t6) y_[gid0] = acc_l0;
    if (1 < t6) y_[gid0 + 1] = acc_l1;
    if (2 < t6) y_[gid0 + 2] = acc_l2;
    if (3 < t6) y_[gid0 + 3] = acc_l3;
    const ulong t7 = gid0 * 4UL;
    const float t8_0 = f16_from_bits(h_[t7]);
    const float t8_1 = f16_from_bits(h_[t7 + 1]);
    const float t9_0 = round_f16(t8_0 + t8_0);
    const float t9_1 = round_f16(t8_1 + t8_1);
    const ulong t10 = t7 < h_len ? h_len - t7 : 0UL;
    if (0 < t10) h_[t7] = f16_bits(t9_0);
    if (1 < t10) h_[t7 + 1] = f16_bits(t9_1);
}
