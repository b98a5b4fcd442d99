#pragma OPENCL FP_CONTRACT OFF
static ulong rem_u64(ulong a, ulong b) { return b == 0 ? a : (ulong)(a % (b == 0 ? 1 : b)); }
kernel void float_(
    global int *restrict kernel_, const ulong kernel_off, const ulong kernel_len,
    const int int_,
    const ulong x_,
    const ulong size0, const ulong size1, const ulong size2)
{
    const ulong gid0 = get_global_id(0);
    const ulong gid1 = get_global_id(1);
    const ulong gid2 = get_global_id(2);
    if (gid0 >= size0 || gid1 >= size1 || gid2 >= size2) return;
    kernel_ += kernel_off;
    int x_2 = 0;
    for (int i_ = 0; i_ < int_; i_ += 1) {
        x_2 = (int)((uint)x_2 + (uint)i_);
    }
    const int t1 = x_2;
    for (int i_2 = int_; i_2 < t1; i_2 = (uint)t1 - (uint)i_2 > (uint)2 ? i_2 + 2 : t1) {
        if ((i_2 % 2) == 0) {
            continue;
        } else {
            x_2 = (int)((uint)x_2 * (uint)i_2);
        }
    }
    for (ulong place_ = gid0; place_ < kernel_len; place_ += size0) {
        const ulong t2 = rem_u64(place_, x_);
        if (t2 < kernel_len) kernel_[t2] = x_2;
    }
    return;
}
