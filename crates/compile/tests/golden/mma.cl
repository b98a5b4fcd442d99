#pragma OPENCL FP_CONTRACT OFF
static float f16_from_bits(ushort bits) { return vload_half(0, (const half *)&bits); }
static ushort f16_bits(float x) { ushort bits; vstore_half_rte(x, 0, (half *)&bits); return bits; }
static float bf16_from_bits(ushort bits) { return as_float((uint)bits << 16); }
static ushort bf16_bits(float x) {
    const uint u = as_uint(x);
    return x != x ? (u >> 16) | 64 : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}
kernel __attribute__((reqd_work_group_size(64, 1, 1))) void mma_(
    global const uint *restrict a_, const ulong a_off, const ulong a_len,
    global const uint *restrict b_, const ulong b_off, const ulong b_len,
    global float *restrict c_, const ulong c_off, const ulong c_len,
    const ulong size0, const ulong size1, const ulong size2)
{
    const ulong gid0 = get_global_id(0);
    const ulong lid0 = get_local_id(0);
    a_ += a_off;
    b_ += b_off;
    c_ += c_off;
    local uint left_[256];
    local uint right_[128];
    float sums_[4];
    const ulong item_ = lid0;
    const ulong line_ = (((item_ / 32UL) * 16UL) + ((item_ % 32UL) / 4UL)) * 8UL;
    const ulong line_2 = (((item_ / 32UL) * 8UL) + ((item_ % 32UL) / 4UL)) * 8UL;
    const ulong line_3 = (((item_ / 32UL) * 8UL) + (((item_ % 32UL) % 4UL) * 2UL)) * 8UL;
    const ulong word_ = (item_ % 32UL) % 4UL;
    const ulong t1 = 4UL * gid0;
    const ulong t2 = t1 < c_len ? c_len - t1 : 0UL;
    const float sums_2l0 = 0 < t2 ? c_[t1] : 0.0f;
    const float sums_2l1 = 1 < t2 ? c_[t1 + 1] : 0.0f;
    const float sums_2l2 = 2 < t2 ? c_[t1 + 2] : 0.0f;
    const float sums_2l3 = 3 < t2 ? c_[t1 + 3] : 0.0f;
    left_[(line_ + word_) + 0UL] = gid0 < a_len ? a_[gid0] : 0u;
    const ulong t3 = gid0 + 64UL;
    left_[(line_ + word_) + 64UL] = t3 < a_len ? a_[t3] : 0u;
    const ulong t4 = gid0 + 4UL;
    left_[(line_ + word_) + 4UL] = t4 < a_len ? a_[t4] : 0u;
    const ulong t5 = gid0 + 68UL;
    left_[(line_ + word_) + 68UL] = t5 < a_len ? a_[t5] : 0u;
    right_[(line_2 + word_) + 0UL] = gid0 < b_len ? b_[gid0] : 0u;
    const ulong t6 = gid0 + 4UL;
    right_[(line_2 + word_) + 4UL] = t6 < b_len ? b_[t6] : 0u;
    float sum_ = sums_2l0;
    float sum_2 = sums_2l1;
    float sum_3 = sums_2l2;
    float sum_4 = sums_2l3;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    for (ulong pair_ = 0UL; pair_ < 8UL; pair_ += 1UL) {
        const uint pair_2 = left_[(line_ + pair_) + 0UL];
        const uint pair_3 = left_[(line_ + pair_) + 64UL];
        const uint pair_4 = right_[(line_3 + pair_) + 0UL];
        const uint pair_5 = right_[(line_3 + pair_) + 8UL];
        const float pair_6 = bf16_from_bits((ushort)(ushort)pair_2);
        const float pair_7 = bf16_from_bits((ushort)(ushort)pair_3);
        const float pair_8 = bf16_from_bits((ushort)(ushort)pair_4);
        const float pair_9 = bf16_from_bits((ushort)(ushort)pair_5);
        sum_ = sum_ + (pair_6 * pair_8);
        sum_2 = sum_2 + (pair_6 * pair_9);
        sum_3 = sum_3 + (pair_7 * pair_8);
        sum_4 = sum_4 + (pair_7 * pair_9);
        const float pair_10 = bf16_from_bits((ushort)(ushort)(pair_2 >> 16));
        const float pair_11 = bf16_from_bits((ushort)(ushort)(pair_3 >> 16));
        const float pair_12 = bf16_from_bits((ushort)(ushort)(pair_4 >> 16));
        const float pair_13 = bf16_from_bits((ushort)(ushort)(pair_5 >> 16));
        sum_ = sum_ + (pair_10 * pair_12);
        sum_2 = sum_2 + (pair_10 * pair_13);
        sum_3 = sum_3 + (pair_11 * pair_12);
        sum_4 = sum_4 + (pair_11 * pair_13);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    sums_[0UL] = sum_;
    sums_[1UL] = sum_2;
    sums_[2UL] = sum_3;
    sums_[3UL] = sum_4;
    const float4 t7 = vload4(0, sums_ + 0UL);
    const float first_l0 = t7.s0;
    const float first_l1 = t7.s1;
    const float first_l2 = t7.s2;
    const float first_l3 = t7.s3;
    left_[(line_ + word_) + 0UL] = 0UL < a_len ? a_[0UL] : 0u;
    left_[(line_ + word_) + 64UL] = 1UL < a_len ? a_[1UL] : 0u;
    left_[(line_ + word_) + 4UL] = 2UL < a_len ? a_[2UL] : 0u;
    left_[(line_ + word_) + 68UL] = 1006648320u;
    right_[(line_2 + word_) + 0UL] = 0UL < b_len ? b_[0UL] : 0u;
    right_[(line_2 + word_) + 4UL] = 1UL < b_len ? b_[1UL] : 0u;
    float sum_5 = first_l0;
    float sum_6 = first_l1;
    float sum_7 = first_l2;
    float sum_8 = first_l3;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    for (ulong pair_14 = 0UL; pair_14 < 8UL; pair_14 += 1UL) {
        const uint pair_15 = left_[(line_ + pair_14) + 0UL];
        const uint pair_16 = left_[(line_ + pair_14) + 64UL];
        const uint pair_17 = right_[(line_3 + pair_14) + 0UL];
        const uint pair_18 = right_[(line_3 + pair_14) + 8UL];
        const float pair_19 = f16_from_bits((ushort)(ushort)pair_15);
        const float pair_20 = f16_from_bits((ushort)(ushort)pair_16);
        const float pair_21 = f16_from_bits((ushort)(ushort)pair_17);
        const float pair_22 = f16_from_bits((ushort)(ushort)pair_18);
        sum_5 = sum_5 + (pair_19 * pair_21);
        sum_6 = sum_6 + (pair_19 * pair_22);
        sum_7 = sum_7 + (pair_20 * pair_21);
        sum_8 = sum_8 + (pair_20 * pair_22);
        const float pair_23 = f16_from_bits((ushort)(ushort)(pair_15 >> 16));
        const float pair_24 = f16_from_bits((ushort)(ushort)(pair_16 >> 16));
        const float pair_25 = f16_from_bits((ushort)(ushort)(pair_17 >> 16));
        const float pair_26 = f16_from_bits((ushort)(ushort)(pair_18 >> 16));
        sum_5 = sum_5 + (pair_23 * pair_25);
        sum_6 = sum_6 + (pair_23 * pair_26);
        sum_7 = sum_7 + (pair_24 * pair_25);
        sum_8 = sum_8 + (pair_24 * pair_26);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    sums_[0UL] = sum_5;
    sums_[1UL] = sum_6;
    sums_[2UL] = sum_7;
    sums_[3UL] = sum_8;
    const float4 t8 = vload4(0, sums_ + 0UL);
    const float both_l0 = t8.s0;
    const float both_l1 = t8.s1;
    const float both_l2 = t8.s2;
    const float both_l3 = t8.s3;
    const ulong t9 = 4UL * gid0;
    const ulong t10 = t9 < c_len ? c_len - t9 : 0UL;
    if (0 < t10) c_[t9] = both_l0;
    if (1 < t10) c_[t9 + 1] = both_l1;
    if (2 < t10) c_[t9 + 2] = both_l2;
    if (3 < t10) c_[t9 + 3] = both_l3;
}
