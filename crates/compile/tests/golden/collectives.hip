#pragma clang fp contract(off)
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef float f32; typedef double f64;
template <class To, class From> static __attribute__((device)) To as(From x) { return __builtin_bit_cast(To, x); }
static __attribute__((device)) void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
template <class T> static __attribute__((device)) T shuffle(T value, u32 lane) {
    return as<T>(__builtin_amdgcn_ds_bpermute(lane << 2, as<i32>(value)));
}
static __attribute__((device)) u32 min_u32(u32 a, u32 b) { return a < b ? a : b; }
static __attribute__((device)) u32 max_u32(u32 a, u32 b) { return a > b ? a : b; }
static __attribute__((device)) f32 max_f32(f32 a, f32 b) { return a != a || a > b ? a : b; }
extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(12, 12))) void collectives_(
    const f32 *__restrict__ x_, const u64 x_off, const u64 x_len,
    f32 *__restrict__ sums_, const u64 sums_off, const u64 sums_len,
    u32 *__restrict__ places_, const u64 places_off, const u64 places_len,
    const u64 size0, const u64 size1, const u64 size2)
{
    const u64 gid0 = __builtin_amdgcn_workgroup_id_x() * 6u + __builtin_amdgcn_workitem_id_x();
    const u64 lid1 = __builtin_amdgcn_workitem_id_y();
    const u64 lid0 = __builtin_amdgcn_workitem_id_x();
    const u64 lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
    x_ += x_off;
    sums_ += sums_off;
    places_ += places_off;
    __attribute__((shared)) f32 scratch_[12];
    __attribute__((shared)) u32 scratch_2[12];
    const u64 item_ = lid0 + (lid1 * 6ull);
    const f32 value_ = gid0 < x_len ? x_[gid0] : 0.0f;
    scratch_[item_] = value_;
    barrier();
    if (item_ < 4ull) {
        scratch_[item_] = scratch_[item_] + scratch_[item_ + 8ull];
    }
    barrier();
    if (item_ < 4ull) {
        scratch_[item_] = scratch_[item_] + scratch_[item_ + 4ull];
    }
    barrier();
    if (item_ < 2ull) {
        scratch_[item_] = scratch_[item_] + scratch_[item_ + 2ull];
    }
    barrier();
    if (item_ < 1ull) {
        scratch_[item_] = scratch_[item_] + scratch_[item_ + 1ull];
    }
    barrier();
    const f32 total_ = scratch_[0ull];
    barrier();
    u32 scan_ = gid0 < places_len ? places_[gid0] : 0u;
    scratch_2[item_] = scan_;
    barrier();
    if (1ull <= item_) {
        scan_ = scratch_2[item_ - 1ull] + scan_;
    }
    barrier();
    scratch_2[item_] = scan_;
    barrier();
    if (2ull <= item_) {
        scan_ = scratch_2[item_ - 2ull] + scan_;
    }
    barrier();
    scratch_2[item_] = scan_;
    barrier();
    if (4ull <= item_) {
        scan_ = scratch_2[item_ - 4ull] + scan_;
    }
    barrier();
    scratch_2[item_] = scan_;
    barrier();
    if (8ull <= item_) {
        scan_ = scratch_2[item_ - 8ull] + scan_;
    }
    barrier();
    scratch_2[item_] = scan_;
    barrier();
    const u64 t1 = item_ - 1ull;
    const u32 before_ = (item_ == 0ull) ? 0u : (t1 < 12ull ? scratch_2[t1] : 0u);
    barrier();
    u32 scan_2 = gid0 < places_len ? places_[gid0] : 0u;
    scratch_2[item_] = scan_2;
    barrier();
    if (1ull <= item_) {
        scan_2 = max_u32(scratch_2[item_ - 1ull], scan_2);
    }
    barrier();
    scratch_2[item_] = scan_2;
    barrier();
    if (2ull <= item_) {
        scan_2 = max_u32(scratch_2[item_ - 2ull], scan_2);
    }
    barrier();
    scratch_2[item_] = scan_2;
    barrier();
    if (4ull <= item_) {
        scan_2 = max_u32(scratch_2[item_ - 4ull], scan_2);
    }
    barrier();
    scratch_2[item_] = scan_2;
    barrier();
    if (8ull <= item_) {
        scan_2 = max_u32(scratch_2[item_ - 8ull], scan_2);
    }
    barrier();
    const u32 upto_ = scan_2;
    barrier();
    if (item_ == 3ull) {
        scratch_[0ull] = value_;
    }
    barrier();
    const f32 third_ = scratch_[0ull];
    barrier();
    const f32 part_ = value_;
    const u32 t2 = (u32)lane;
    const u32 t3 = t2 ^ 32u;
    const f32 theirs_ = shuffle(part_, (t3 < min_u32(64u, 12u - ((u32)item_ - t2))) ? t3 : t2);
    const u32 t4 = (u32)lane;
    const f32 part_2 = ((t4 ^ 32u) < min_u32(64u, 12u - ((u32)item_ - t4))) ? (part_ + theirs_) : part_;
    const u32 t5 = (u32)lane;
    const u32 t6 = t5 ^ 16u;
    const f32 theirs_2 = shuffle(part_2, (t6 < min_u32(64u, 12u - ((u32)item_ - t5))) ? t6 : t5);
    const u32 t7 = (u32)lane;
    const f32 part_3 = ((t7 ^ 16u) < min_u32(64u, 12u - ((u32)item_ - t7))) ? (part_2 + theirs_2) : part_2;
    const u32 t8 = (u32)lane;
    const u32 t9 = t8 ^ 8u;
    const f32 theirs_3 = shuffle(part_3, (t9 < min_u32(64u, 12u - ((u32)item_ - t8))) ? t9 : t8);
    const u32 t10 = (u32)lane;
    const f32 part_4 = ((t10 ^ 8u) < min_u32(64u, 12u - ((u32)item_ - t10))) ? (part_3 + theirs_3) : part_3;
    const u32 t11 = (u32)lane;
    const u32 t12 = t11 ^ 4u;
    const f32 theirs_4 = shuffle(part_4, (t12 < min_u32(64u, 12u - ((u32)item_ - t11))) ? t12 : t11);
    const u32 t13 = (u32)lane;
    const f32 part_5 = ((t13 ^ 4u) < min_u32(64u, 12u - ((u32)item_ - t13))) ? (part_4 + theirs_4) : part_4;
    const u32 t14 = (u32)lane;
    const u32 t15 = t14 ^ 2u;
    const f32 theirs_5 = shuffle(part_5, (t15 < min_u32(64u, 12u - ((u32)item_ - t14))) ? t15 : t14);
    const u32 t16 = (u32)lane;
    const f32 part_6 = ((t16 ^ 2u) < min_u32(64u, 12u - ((u32)item_ - t16))) ? (part_5 + theirs_5) : part_5;
    const u32 t17 = (u32)lane;
    const u32 t18 = t17 ^ 1u;
    const f32 theirs_6 = shuffle(part_6, (t18 < min_u32(64u, 12u - ((u32)item_ - t17))) ? t18 : t17);
    const u32 t19 = (u32)lane;
    const f32 part_7 = ((t19 ^ 1u) < min_u32(64u, 12u - ((u32)item_ - t19))) ? (part_6 + theirs_6) : part_6;
    const f32 theirs_7 = shuffle(part_7, 0u);
    const f32 alone_ = theirs_7;
    const f32 part_8 = value_;
    const u32 t20 = (u32)lane;
    const f32 theirs_8 = shuffle(part_8, (t20 < 1u) ? t20 : (t20 - 1u));
    const f32 part_9 = ((u32)lane < 1u) ? part_8 : max_f32(theirs_8, part_8);
    const u32 t21 = (u32)lane;
    const f32 theirs_9 = shuffle(part_9, (t21 < 2u) ? t21 : (t21 - 2u));
    const f32 part_10 = ((u32)lane < 2u) ? part_9 : max_f32(theirs_9, part_9);
    const u32 t22 = (u32)lane;
    const f32 theirs_10 = shuffle(part_10, (t22 < 4u) ? t22 : (t22 - 4u));
    const f32 part_11 = ((u32)lane < 4u) ? part_10 : max_f32(theirs_10, part_10);
    const u32 t23 = (u32)lane;
    const f32 theirs_11 = shuffle(part_11, (t23 < 8u) ? t23 : (t23 - 8u));
    const f32 part_12 = ((u32)lane < 8u) ? part_11 : max_f32(theirs_11, part_11);
    const u32 t24 = (u32)lane;
    const f32 theirs_12 = shuffle(part_12, (t24 < 16u) ? t24 : (t24 - 16u));
    const f32 part_13 = ((u32)lane < 16u) ? part_12 : max_f32(theirs_12, part_12);
    const u32 t25 = (u32)lane;
    const f32 theirs_13 = shuffle(part_13, (t25 < 32u) ? t25 : (t25 - 32u));
    const f32 part_14 = ((u32)lane < 32u) ? part_13 : max_f32(theirs_13, part_13);
    const u32 t26 = (u32)lane;
    const f32 theirs_14 = shuffle(part_14, (t26 < 1u) ? t26 : (t26 - 1u));
    const f32 none_ = ((u32)lane < 1u) ? as<f32>(0xff800000u) : theirs_14;
    if (gid0 < places_len) places_[gid0] = before_ + upto_;
    if (gid0 < sums_len) sums_[gid0] = (value_ + third_) / (total_ + (alone_ + none_));
}
