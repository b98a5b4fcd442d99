#pragma clang fp contract(off)
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef float f32; typedef double f64;
template <class T, class X> static __attribute__((device)) T atomic_add(T *at, X x) {
    return __hip_atomic_fetch_add(at, (T)x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T, class X> static __attribute__((device)) T atomic_min(T *at, X x) {
    return __hip_atomic_fetch_min(at, (T)x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T, class X> static __attribute__((device)) T atomic_max(T *at, X x) {
    return __hip_atomic_fetch_max(at, (T)x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T, class X> static __attribute__((device)) T atomic_exchange(T *at, X x) {
    return __hip_atomic_exchange(at, (T)x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T, class E, class X> static __attribute__((device)) T atomic_compare_exchange(T *at, E expected, X x) {
    T seen = expected;
    __hip_atomic_compare_exchange_strong(at, &seen, (T)x, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    return seen;
}
extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(32, 32))) void histogram_(
    const u8 *__restrict__ keys_, const u64 keys_off, const u64 keys_len,
    u32 *__restrict__ counts_, const u64 counts_off, const u64 counts_len,
    i32 *__restrict__ extremes_, const u64 extremes_off, const u64 extremes_len,
    f32 *__restrict__ sums_, const u64 sums_off, const u64 sums_len,
    const u64 size0, const u64 size1, const u64 size2)
{
    const u64 gid0 = __builtin_amdgcn_workgroup_id_x() * 16u + __builtin_amdgcn_workitem_id_x();
    keys_ += keys_off;
    counts_ += counts_off;
    extremes_ += extremes_off;
    sums_ += sums_off;
    __attribute__((shared)) u32 local_[256];
    __attribute__((shared)) f32 totals_[1];
    const u8 key_ = gid0 < keys_len ? keys_[gid0] : 0;
    const u64 t1 = (u64)key_;
    const u32 old_ = atomic_add(local_ + t1, 1u);
    const u64 t2 = (u64)key_;
    u32 old_2 = 0u;
    if (t2 < counts_len) old_2 = atomic_add(counts_ + t2, old_);
    const u64 t3 = (u64)key_;
    u32 old_3 = 0u;
    if (t3 < counts_len) old_3 = atomic_compare_exchange(counts_ + t3, old_, 1u);
    const i32 t4 = (i32)key_;
    i32 old_4 = 0;
    if (0ull < extremes_len) old_4 = atomic_min(extremes_ + 0ull, t4);
    const i32 t5 = (i32)key_;
    i32 old_5 = 0;
    if (0ull < extremes_len) old_5 = atomic_max(extremes_ + 0ull, t5);
    const f32 t6 = (f32)key_;
    const u64 t7 = (u64)key_;
    f32 old_6 = 0.0f;
    if (t7 < sums_len) old_6 = atomic_add(sums_ + t7, t6);
    const f32 t8 = (f32)key_;
    const f32 old_7 = atomic_add(totals_ + 0ull, t8);
    const f32 t9 = (f32)key_;
    f32 old_8 = 0.0f;
    if (0ull < sums_len) old_8 = atomic_exchange(sums_ + 0ull, t9);
}
