#pragma clang fp contract(off)
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef float f32; typedef double f64;
template <class To, class From> static __attribute__((device)) To as(From x) { return __builtin_bit_cast(To, x); }
template <class T, int N> struct vec { T at[N]; };
template <int N, class T> static __attribute__((device)) vec<T, N> load(const T *from) {
    vec<T, N> to;
    __builtin_memcpy(&to, from, sizeof to);
    return to;
}
static __attribute__((device)) void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
static __attribute__((device)) u64 div_u64(u64 a, u64 b) { return b == 0 ? 0 : (u64)(a / (b == 0 ? 1 : b)); }
static __attribute__((device)) u64 rem_u64(u64 a, u64 b) { return b == 0 ? a : (u64)(a % (b == 0 ? 1 : b)); }
static __attribute__((device)) f32 f16_from_bits(u16 bits) { return as<_Float16>(bits); }
static __attribute__((device)) u16 f16_bits(f32 x) { return as<u16>((_Float16)x); }
static __attribute__((device)) f32 bf16_from_bits(u16 bits) { return as<f32>((u32)bits << 16); }
static __attribute__((device)) u16 bf16_bits(f32 x) {
    const u32 u = as<u32>(x);
    return x != x ? (u >> 16) | 64 : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}
extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(64, 64))) void mma_(
    const u32 *__restrict__ a_, const u64 a_off, const u64 a_len,
    const u32 *__restrict__ b_, const u64 b_off, const u64 b_len,
    f32 *__restrict__ c_, const u64 c_off, const u64 c_len,
    const u64 size0, const u64 size1, const u64 size2)
{
    const u64 gid0 = __builtin_amdgcn_workgroup_id_x() * 64u + __builtin_amdgcn_workitem_id_x();
    const u64 lid0 = __builtin_amdgcn_workitem_id_x();
    a_ += a_off;
    b_ += b_off;
    c_ += c_off;
    __attribute__((shared)) u32 left_[256];
    __attribute__((shared)) u32 right_[128];
    f32 sums_[4];
    const u64 item_ = lid0;
    const u64 line_ = ((div_u64(item_, 32ull) * 16ull) + div_u64(rem_u64(item_, 32ull), 4ull)) * 8ull;
    const u64 line_2 = ((div_u64(item_, 32ull) * 8ull) + div_u64(rem_u64(item_, 32ull), 4ull)) * 8ull;
    const u64 line_3 = ((div_u64(item_, 32ull) * 8ull) + (rem_u64(rem_u64(item_, 32ull), 4ull) * 2ull)) * 8ull;
    const u64 word_ = rem_u64(rem_u64(item_, 32ull), 4ull);
    const u64 t1 = 4ull * gid0;
    const u64 t2 = t1 < c_len ? c_len - t1 : 0ull;
    const f32 sums_2l0 = 0 < t2 ? c_[t1] : 0.0f;
    const f32 sums_2l1 = 1 < t2 ? c_[t1 + 1] : 0.0f;
    const f32 sums_2l2 = 2 < t2 ? c_[t1 + 2] : 0.0f;
    const f32 sums_2l3 = 3 < t2 ? c_[t1 + 3] : 0.0f;
    left_[(line_ + word_) + 0ull] = gid0 < a_len ? a_[gid0] : 0u;
    const u64 t3 = gid0 + 64ull;
    left_[(line_ + word_) + 64ull] = t3 < a_len ? a_[t3] : 0u;
    const u64 t4 = gid0 + 4ull;
    left_[(line_ + word_) + 4ull] = t4 < a_len ? a_[t4] : 0u;
    const u64 t5 = gid0 + 68ull;
    left_[(line_ + word_) + 68ull] = t5 < a_len ? a_[t5] : 0u;
    right_[(line_2 + word_) + 0ull] = gid0 < b_len ? b_[gid0] : 0u;
    const u64 t6 = gid0 + 4ull;
    right_[(line_2 + word_) + 4ull] = t6 < b_len ? b_[t6] : 0u;
    f32 sum_ = sums_2l0;
    f32 sum_2 = sums_2l1;
    f32 sum_3 = sums_2l2;
    f32 sum_4 = sums_2l3;
    barrier();
    for (u64 pair_ = 0ull; pair_ < 8ull; pair_ += 1ull) {
        const u32 pair_2 = left_[(line_ + pair_) + 0ull];
        const u32 pair_3 = left_[(line_ + pair_) + 64ull];
        const u32 pair_4 = right_[(line_3 + pair_) + 0ull];
        const u32 pair_5 = right_[(line_3 + pair_) + 8ull];
        const f32 pair_6 = bf16_from_bits((u16)(u16)pair_2);
        const f32 pair_7 = bf16_from_bits((u16)(u16)pair_3);
        const f32 pair_8 = bf16_from_bits((u16)(u16)pair_4);
        const f32 pair_9 = bf16_from_bits((u16)(u16)pair_5);
        sum_ = sum_ + (pair_6 * pair_8);
        sum_2 = sum_2 + (pair_6 * pair_9);
        sum_3 = sum_3 + (pair_7 * pair_8);
        sum_4 = sum_4 + (pair_7 * pair_9);
        const f32 pair_10 = bf16_from_bits((u16)(u16)(pair_2 >> 16));
        const f32 pair_11 = bf16_from_bits((u16)(u16)(pair_3 >> 16));
        const f32 pair_12 = bf16_from_bits((u16)(u16)(pair_4 >> 16));
        const f32 pair_13 = bf16_from_bits((u16)(u16)(pair_5 >> 16));
        sum_ = sum_ + (pair_10 * pair_12);
        sum_2 = sum_2 + (pair_10 * pair_13);
        sum_3 = sum_3 + (pair_11 * pair_12);
        sum_4 = sum_4 + (pair_11 * pair_13);
    }
    barrier();
    sums_[0ull] = sum_;
    sums_[1ull] = sum_2;
    sums_[2ull] = sum_3;
    sums_[3ull] = sum_4;
    const vec<f32, 4> t7 = load<4>(sums_ + 0ull);
    const f32 first_l0 = t7.at[0];
    const f32 first_l1 = t7.at[1];
    const f32 first_l2 = t7.at[2];
    const f32 first_l3 = t7.at[3];
    left_[(line_ + word_) + 0ull] = 0ull < a_len ? a_[0ull] : 0u;
    left_[(line_ + word_) + 64ull] = 1ull < a_len ? a_[1ull] : 0u;
    left_[(line_ + word_) + 4ull] = 2ull < a_len ? a_[2ull] : 0u;
    left_[(line_ + word_) + 68ull] = 1006648320u;
    right_[(line_2 + word_) + 0ull] = 0ull < b_len ? b_[0ull] : 0u;
    right_[(line_2 + word_) + 4ull] = 1ull < b_len ? b_[1ull] : 0u;
    f32 sum_5 = first_l0;
    f32 sum_6 = first_l1;
    f32 sum_7 = first_l2;
    f32 sum_8 = first_l3;
    barrier();
    for (u64 pair_14 = 0ull; pair_14 < 8ull; pair_14 += 1ull) {
        const u32 pair_15 = left_[(line_ + pair_14) + 0ull];
        const u32 pair_16 = left_[(line_ + pair_14) + 64ull];
        const u32 pair_17 = right_[(line_3 + pair_14) + 0ull];
        const u32 pair_18 = right_[(line_3 + pair_14) + 8ull];
        const f32 pair_19 = f16_from_bits((u16)(u16)pair_15);
        const f32 pair_20 = f16_from_bits((u16)(u16)pair_16);
        const f32 pair_21 = f16_from_bits((u16)(u16)pair_17);
        const f32 pair_22 = f16_from_bits((u16)(u16)pair_18);
        sum_5 = sum_5 + (pair_19 * pair_21);
        sum_6 = sum_6 + (pair_19 * pair_22);
        sum_7 = sum_7 + (pair_20 * pair_21);
        sum_8 = sum_8 + (pair_20 * pair_22);
        const f32 pair_23 = f16_from_bits((u16)(u16)(pair_15 >> 16));
        const f32 pair_24 = f16_from_bits((u16)(u16)(pair_16 >> 16));
        const f32 pair_25 = f16_from_bits((u16)(u16)(pair_17 >> 16));
        const f32 pair_26 = f16_from_bits((u16)(u16)(pair_18 >> 16));
        sum_5 = sum_5 + (pair_23 * pair_25);
        sum_6 = sum_6 + (pair_23 * pair_26);
        sum_7 = sum_7 + (pair_24 * pair_25);
        sum_8 = sum_8 + (pair_24 * pair_26);
    }
    barrier();
    sums_[0ull] = sum_5;
    sums_[1ull] = sum_6;
    sums_[2ull] = sum_7;
    sums_[3ull] = sum_8;
    const vec<f32, 4> t8 = load<4>(sums_ + 0ull);
    const f32 both_l0 = t8.at[0];
    const f32 both_l1 = t8.at[1];
    const f32 both_l2 = t8.at[2];
    const f32 both_l3 = t8.at[3];
    const u64 t9 = 4ull * gid0;
    const u64 t10 = t9 < c_len ? c_len - t9 : 0ull;
    if (0 < t10) c_[t9] = both_l0;
    if (1 < t10) c_[t9 + 1] = both_l1;
    if (2 < t10) c_[t9 + 2] = both_l2;
    if (3 < t10) c_[t9 + 3] = both_l3;
}
