#pragma OPENCL FP_CONTRACT OFF
kernel void saxpy_(
    const float a_,
    global const float *restrict x_, const ulong x_off, const ulong x_len,
    global float *restrict y_, const ulong y_off, const ulong y_len,
    const ulong size0, const ulong size1, const ulong size2)
{
    const ulong gid0 = get_global_id(0);
    const ulong gid1 = get_global_id(1);
    const ulong gid2 = get_global_id(2);
    if (gid0 >= size0 || gid1 >= size1 || gid2 >= size2) return;
    x_ += x_off;
    y_ += y_off;
    const ulong i_ = gid0;
    if (i_ < y_len) {
        y_[i_] = (a_ * (i_ < x_len ? x_[i_] : 0.0f)) + y_[i_];
    }
}
