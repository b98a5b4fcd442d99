#pragma clang fp contract(off)
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef float f32; typedef double f64;
extern "C" __attribute__((global)) void saxpy_(
    const f32 a_,
    const f32 *__restrict__ x_, const u64 x_off, const u64 x_len,
    f32 *__restrict__ y_, const u64 y_off, const u64 y_len,
    const u64 size0, const u64 size1, const u64 size2)
{
    const u64 gid0 = __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
    const u64 gid1 = __builtin_amdgcn_workgroup_id_y() * __builtin_amdgcn_workgroup_size_y() + __builtin_amdgcn_workitem_id_y();
    const u64 gid2 = __builtin_amdgcn_workgroup_id_z() * __builtin_amdgcn_workgroup_size_z() + __builtin_amdgcn_workitem_id_z();
    if (gid0 >= size0 || gid1 >= size1 || gid2 >= size2) return;
    x_ += x_off;
    y_ += y_off;
    const u64 i_ = gid0;
    if (i_ < y_len) {
        y_[i_] = (a_ * (i_ < x_len ? x_[i_] : 0.0f)) + y_[i_];
    }
}
