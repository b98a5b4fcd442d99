#pragma clang fp contract(off)
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef float f32; typedef double f64;
static __attribute__((device)) void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(64, 64))) void tree_sum_(
    const f32 *__restrict__ in_, const u64 in_off, const u64 in_len,
    f32 *__restrict__ out_, const u64 out_off, const u64 out_len,
    const u64 size0, const u64 size1, const u64 size2)
{
    const u64 lid0 = __builtin_amdgcn_workitem_id_x();
    const u64 gid0 = __builtin_amdgcn_workgroup_id_x() * 64u + __builtin_amdgcn_workitem_id_x();
    const u64 group0 = __builtin_amdgcn_workgroup_id_x();
    in_ += in_off;
    out_ += out_off;
    __attribute__((shared)) f32 tile_[64];
    tile_[lid0] = gid0 < in_len ? in_[gid0] : 0.0f;
    barrier();
    if (lid0 < 32ull) {
        tile_[lid0] = tile_[lid0] + tile_[lid0 + 32ull];
    }
    barrier();
    if (lid0 < 16ull) {
        tile_[lid0] = tile_[lid0] + tile_[lid0 + 16ull];
    }
    barrier();
    if (lid0 < 8ull) {
        tile_[lid0] = tile_[lid0] + tile_[lid0 + 8ull];
    }
    barrier();
    if (lid0 < 4ull) {
        tile_[lid0] = tile_[lid0] + tile_[lid0 + 4ull];
    }
    barrier();
    if (lid0 < 2ull) {
        tile_[lid0] = tile_[lid0] + tile_[lid0 + 2ull];
    }
    barrier();
    if (lid0 < 1ull) {
        tile_[lid0] = tile_[lid0] + tile_[lid0 + 1ull];
    }
    barrier();
    if (lid0 == 0ull) {
        if (group0 < out_len) out_[group0] = tile_[0ull];
    }
}
