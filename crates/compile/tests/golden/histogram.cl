#pragma OPENCL FP_CONTRACT OFF
static float atomic_add_f32(volatile global float *p, float x) {
    volatile global uint *bits = (volatile global uint *)p;
    uint seen = *bits;
    for (;;) {
        const uint old = atomic_cmpxchg(bits, seen, as_uint(as_float(seen) + x));
        if (old == seen) return as_float(old);
        seen = old;
    }
}
static float atomic_add_f32_shared(volatile local float *p, float x) {
    volatile local uint *bits = (volatile local uint *)p;
    uint seen = *bits;
    for (;;) {
        const uint old = atomic_cmpxchg(bits, seen, as_uint(as_float(seen) + x));
        if (old == seen) return as_float(old);
        seen = old;
    }
}
kernel __attribute__((reqd_work_group_size(16, 2, 1))) void histogram_(
    global const uchar *restrict keys_, const ulong keys_off, const ulong keys_len,
    global uint *restrict counts_, const ulong counts_off, const ulong counts_len,
    global int *restrict extremes_, const ulong extremes_off, const ulong extremes_len,
    global float *restrict sums_, const ulong sums_off, const ulong sums_len,
    const ulong size0, const ulong size1, const ulong size2)
{
    const ulong gid0 = get_global_id(0);
    keys_ += keys_off;
    counts_ += counts_off;
    extremes_ += extremes_off;
    sums_ += sums_off;
    local uint local_[256];
    local float totals_[1];
    const uchar key_ = gid0 < keys_len ? keys_[gid0] : 0;
    const ulong t1 = (ulong)key_;
    const uint old_ = atomic_add(local_ + t1, 1u);
    const ulong t2 = (ulong)key_;
    uint old_2 = 0u;
    if (t2 < counts_len) old_2 = atomic_add(counts_ + t2, old_);
    const ulong t3 = (ulong)key_;
    uint old_3 = 0u;
    if (t3 < counts_len) old_3 = atomic_cmpxchg(counts_ + t3, old_, 1u);
    const int t4 = (int)key_;
    int old_4 = 0;
    if (0UL < extremes_len) old_4 = atomic_min(extremes_ + 0UL, t4);
    const int t5 = (int)key_;
    int old_5 = 0;
    if (0UL < extremes_len) old_5 = atomic_max(extremes_ + 0UL, t5);
    const float t6 = (float)key_;
    const ulong t7 = (ulong)key_;
    float old_6 = 0.0f;
    if (t7 < sums_len) old_6 = atomic_add_f32(sums_ + t7, t6);
    const float t8 = (float)key_;
    const float old_7 = atomic_add_f32_shared(totals_ + 0UL, t8);
    const float t9 = (float)key_;
    float old_8 = 0.0f;
    if (0UL < sums_len) old_8 = atomic_xchg(sums_ + 0UL, t9);
}
