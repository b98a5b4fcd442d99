#pragma OPENCL FP_CONTRACT OFF
kernel __attribute__((reqd_work_group_size(64, 1, 1))) void tree_sum_(
    global const float *restrict in_, const ulong in_off, const ulong in_len,
    global float *restrict out_, const ulong out_off, const ulong out_len,
    const ulong size0, const ulong size1, const ulong size2)
{
    const ulong lid0 = get_local_id(0);
    const ulong gid0 = get_global_id(0);
    const ulong group0 = get_group_id(0);
    in_ += in_off;
    out_ += out_off;
    local float tile_[64];
    tile_[lid0] = gid0 < in_len ? in_[gid0] : 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (lid0 < 32UL) {
        tile_[lid0] = tile_[lid0] + tile_[lid0 + 32UL];
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (lid0 < 16UL) {
        tile_[lid0] = tile_[lid0] + tile_[lid0 + 16UL];
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (lid0 < 8UL) {
        tile_[lid0] = tile_[lid0] + tile_[lid0 + 8UL];
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (lid0 < 4UL) {
        tile_[lid0] = tile_[lid0] + tile_[lid0 + 4UL];
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (lid0 < 2UL) {
        tile_[lid0] = tile_[lid0] + tile_[lid0 + 2UL];
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (lid0 < 1UL) {
        tile_[lid0] = tile_[lid0] + tile_[lid0 + 1UL];
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (lid0 == 0UL) {
        if (group0 < out_len) out_[group0] = tile_[0UL];
    }
}
