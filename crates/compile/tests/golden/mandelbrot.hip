#pragma clang fp contract(off)
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef float f32; typedef double f64;
extern "C" __attribute__((global)) void mandelbrot_(
    u32 *__restrict__ out_, const u64 out_off, const u64 out_len,
    const u64 width_,
    const f32 scale_,
    const u64 size0, const u64 size1, const u64 size2)
{
    const u64 gid0 = __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
    const u64 gid1 = __builtin_amdgcn_workgroup_id_y() * __builtin_amdgcn_workgroup_size_y() + __builtin_amdgcn_workitem_id_y();
    const u64 gid2 = __builtin_amdgcn_workgroup_id_z() * __builtin_amdgcn_workgroup_size_z() + __builtin_amdgcn_workitem_id_z();
    if (gid0 >= size0 || gid1 >= size1 || gid2 >= size2) return;
    out_ += out_off;
    const f32 cx_ = (f32)gid0 * scale_;
    const f32 cy_ = (f32)gid1 * scale_;
    f32 re_ = 0.0f;
    f32 im_ = 0.0f;
    u32 count_ = 0u;
    while (((re_ * re_) + (im_ * im_)) <= 4.0f) {
        if (count_ == 100u) {
            break;
        }
        const f32 real_ = ((re_ * re_) - (im_ * im_)) + cx_;
        im_ = __builtin_fmaf(2.0f, re_ * im_, cy_);
        re_ = real_;
        count_ = count_ + 1u;
    }
    const u64 t1 = (gid1 * width_) + gid0;
    if (t1 < out_len) out_[t1] = count_;
}
