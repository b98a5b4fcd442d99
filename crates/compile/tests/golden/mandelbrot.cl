#pragma OPENCL FP_CONTRACT OFF
kernel void mandelbrot_(
    global uint *restrict out_, const ulong out_off, const ulong out_len,
    const ulong width_,
    const float scale_,
    const ulong size0, const ulong size1, const ulong size2)
{
    const ulong gid0 = get_global_id(0);
    const ulong gid1 = get_global_id(1);
    const ulong gid2 = get_global_id(2);
    if (gid0 >= size0 || gid1 >= size1 || gid2 >= size2) return;
    out_ += out_off;
    const float cx_ = (float)gid0 * scale_;
    const float cy_ = (float)gid1 * scale_;
    float re_ = 0.0f;
    float im_ = 0.0f;
    uint count_ = 0u;
    while (((re_ * re_) + (im_ * im_)) <= 4.0f) {
        if (count_ == 100u) {
            break;
        }
        const float real_ = ((re_ * re_) - (im_ * im_)) + cx_;
        im_ = fma(2.0f, re_ * im_, cy_);
        re_ = real_;
        count_ = count_ + 1u;
    }
    const ulong t1 = (gid1 * width_) + gid0;
    if (t1 < out_len) out_[t1] = count_;
}
