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
template <class T, class... Lanes> static __attribute__((device)) void store(T *to, Lanes... lanes) {
    const T from[] = {(T)lanes...};
    __builtin_memcpy(to, from, sizeof from);
}
static __attribute__((device)) f32 f16_from_bits(u16 bits) { return as<_Float16>(bits); }
static __attribute__((device)) u16 f16_bits(f32 x) { return as<u16>((_Float16)x); }
static __attribute__((device)) f32 round_f16(f32 x) { return f16_from_bits(f16_bits(x)); }
extern "C" __attribute__((global)) void vectors_(
    const f32 *__restrict__ x_, const u64 x_off, const u64 x_len,
    f32 *__restrict__ y_, const u64 y_off, const u64 y_len,
    u16 *__restrict__ h_, const u64 h_off, const u64 h_len,
    const u64 size0, const u64 size1, const u64 size2)
{
    const u64 gid0 = __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
    const u64 gid1 = __builtin_amdgcn_workgroup_id_y() * __builtin_amdgcn_workgroup_size_y() + __builtin_amdgcn_workitem_id_y();
    const u64 gid2 = __builtin_amdgcn_workgroup_id_z() * __builtin_amdgcn_workgroup_size_z() + __builtin_amdgcn_workitem_id_z();
    if (gid0 >= size0 || gid1 >= size1 || gid2 >= size2) return;
    x_ += x_off;
    y_ += y_off;
    h_ += h_off;
    const u64 t1 = gid0 * 4ull;
    const u64 t2 = t1 < x_len ? x_len - t1 : 0ull;
    f32 acc_l0 = 0 < t2 ? x_[t1] : 0.0f;
    f32 acc_l1 = 1 < t2 ? x_[t1 + 1] : 0.0f;
    f32 acc_l2 = 2 < t2 ? x_[t1 + 2] : 0.0f;
    f32 acc_l3 = 3 < t2 ? x_[t1 + 3] : 0.0f;
    const u64 t3 = gid0 * 4ull;
    const vec<f32, 4> t4 = load<4>(y_ + t3);
    {
        const f32 next_acc_l0 = ((acc_l0 < t4.at[0]) ? acc_l0 : acc_l0) + t4.at[0];
        const f32 next_acc_l1 = ((acc_l1 < t4.at[1]) ? acc_l1 : acc_l0) + t4.at[1];
        const f32 next_acc_l2 = ((acc_l2 < t4.at[2]) ? acc_l2 : acc_l0) + t4.at[2];
        const f32 next_acc_l3 = ((acc_l3 < t4.at[3]) ? acc_l3 : acc_l0) + t4.at[3];
        acc_l0 = next_acc_l0;
        acc_l1 = next_acc_l1;
        acc_l2 = next_acc_l2;
        acc_l3 = next_acc_l3;
    }
    const u64 t5 = gid0 * 4ull;
    store(y_ + t5, acc_l0, acc_l1, acc_l2, acc_l3);
    const u64 t6 = gid0 < y_len ? y_len - gid0 : 0ull;
    if (0 < t6) y_[gid0] = acc_l0;
    if (1 < t6) y_[gid0 + 1] = acc_l1;
    if (2 < t6) y_[gid0 + 2] = acc_l2;
    if (3 < t6) y_[gid0 + 3] = acc_l3;
    const u64 t7 = gid0 * 4ull;
    const f32 t8_0 = f16_from_bits(h_[t7]);
    const f32 t8_1 = f16_from_bits(h_[t7 + 1]);
    const f32 t9_0 = round_f16(t8_0 + t8_0);
    const f32 t9_1 = round_f16(t8_1 + t8_1);
    const u64 t10 = t7 < h_len ? h_len - t7 : 0ull;
    if (0 < t10) h_[t7] = f16_bits(t9_0);
    if (1 < t10) h_[t7 + 1] = f16_bits(t9_1);
}
