#pragma OPENCL FP_CONTRACT OFF
static uint max_u32(uint a, uint b) { return a > b ? a : b; }
kernel __attribute__((reqd_work_group_size(6, 2, 1))) void collectives_(
    global const float *restrict x_, const ulong x_off, const ulong x_len,
    global float *restrict sums_, const ulong sums_off, const ulong sums_len,
    global uint *restrict places_, const ulong places_off, const ulong places_len,
    const ulong size0, const ulong size1, const ulong size2)
{
    const ulong gid0 = get_global_id(0);
    const ulong lid1 = get_local_id(1);
    const ulong lid0 = get_local_id(0);
    x_ += x_off;
    sums_ += sums_off;
    places_ += places_off;
    local float scratch_[12];
    local uint scratch_2[12];
    const ulong item_ = lid0 + (lid1 * 6UL);
    const float value_ = gid0 < x_len ? x_[gid0] : 0.0f;
    scratch_[item_] = value_;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (item_ < 4UL) {
        scratch_[item_] = scratch_[item_] + scratch_[item_ + 8UL];
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (item_ < 4UL) {
        scratch_[item_] = scratch_[item_] + scratch_[item_ + 4UL];
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (item_ < 2UL) {
        scratch_[item_] = scratch_[item_] + scratch_[item_ + 2UL];
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (item_ < 1UL) {
        scratch_[item_] = scratch_[item_] + scratch_[item_ + 1UL];
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    const float total_ = scratch_[0UL];
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    uint scan_ = gid0 < places_len ? places_[gid0] : 0u;
    scratch_2[item_] = scan_;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (1UL <= item_) {
        scan_ = scratch_2[item_ - 1UL] + scan_;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    scratch_2[item_] = scan_;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (2UL <= item_) {
        scan_ = scratch_2[item_ - 2UL] + scan_;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    scratch_2[item_] = scan_;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (4UL <= item_) {
        scan_ = scratch_2[item_ - 4UL] + scan_;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    scratch_2[item_] = scan_;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (8UL <= item_) {
        scan_ = scratch_2[item_ - 8UL] + scan_;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    scratch_2[item_] = scan_;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    const ulong t1 = item_ - 1UL;
    const uint before_ = (item_ == 0UL) ? 0u : (t1 < 12UL ? scratch_2[t1] : 0u);
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    uint scan_2 = gid0 < places_len ? places_[gid0] : 0u;
    scratch_2[item_] = scan_2;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (1UL <= item_) {
        scan_2 = max_u32(scratch_2[item_ - 1UL], scan_2);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    scratch_2[item_] = scan_2;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (2UL <= item_) {
        scan_2 = max_u32(scratch_2[item_ - 2UL], scan_2);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    scratch_2[item_] = scan_2;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (4UL <= item_) {
        scan_2 = max_u32(scratch_2[item_ - 4UL], scan_2);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    scratch_2[item_] = scan_2;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (8UL <= item_) {
        scan_2 = max_u32(scratch_2[item_ - 8UL], scan_2);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    const uint upto_ = scan_2;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (item_ == 3UL) {
        scratch_[0UL] = value_;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    const float third_ = scratch_[0UL];
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    const float alone_ = value_;
    const float none_ = as_float(0xff800000u);
    if (gid0 < places_len) places_[gid0] = before_ + upto_;
    if (gid0 < sums_len) sums_[gid0] = (value_ + third_) / (total_ + (alone_ + none_));
}
