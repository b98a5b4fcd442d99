#pragma clang fp contract(off)
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef float f32; typedef double f64;
static __attribute__((device)) u32 rem_u32(u32 a, u32 b) { return b == 0 ? a : (u32)(a % (b == 0 ? 1 : b)); }
extern "C" __attribute__((global)) void float_(
    i32 *__restrict__ kernel_, const u32 kernel_off, const u32 kernel_len,
    const i32 int_,
    const u32 x_,
    const u32 size0, const u32 size1, const u32 size2)
{
    const u32 gid0 = __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
    const u32 gid1 = __builtin_amdgcn_workgroup_id_y() * __builtin_amdgcn_workgroup_size_y() + __builtin_amdgcn_workitem_id_y();
    const u32 gid2 = __builtin_amdgcn_workgroup_id_z() * __builtin_amdgcn_workgroup_size_z() + __builtin_amdgcn_workitem_id_z();
    if (gid0 >= size0 || gid1 >= size1 || gid2 >= size2) return;
    kernel_ += kernel_off;
    i32 x_2 = 0;
    for (i32 i_ = 0; i_ < int_; i_ += 1) {
        x_2 = (i32)((u32)x_2 + (u32)i_);
    }
    const i32 t1 = x_2;
    for (i32 i_2 = int_; i_2 < t1; i_2 = (u32)t1 - (u32)i_2 > (u32)2 ? i_2 + 2 : t1) {
        if ((i_2 % 2) == 0) {
            continue;
        } else {
            x_2 = (i32)((u32)x_2 * (u32)i_2);
        }
    }
    for (u32 place_ = gid0; place_ < kernel_len; place_ += size0) {
        const u32 t2 = rem_u32(place_, x_);
        if (t2 < kernel_len) kernel_[t2] = x_2;
    }
    return;
}
