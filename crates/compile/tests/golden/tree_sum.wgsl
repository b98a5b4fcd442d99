@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 3>;
@group(0) @binding(1) var<storage, read_write> in_: array<f32>;
@group(0) @binding(2) var<storage, read_write> out_: array<f32>;
var<workgroup> tile_: array<f32, 64>;

@compute @workgroup_size(64, 1, 1)
fn tree_sum_(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let in_off: u32 = launch[0].x;
    let in_len: u32 = launch[0].y;
    let out_off: u32 = launch[0].z;
    let out_len: u32 = launch[0].w;
    let size0: u32 = launch[1].x;
    let size1: u32 = launch[1].y;
    let size2: u32 = launch[1].z;
    let base0: u32 = launch[1].w;
    let base1: u32 = launch[2].x;
    let base2: u32 = launch[2].y;
    let zero: u32 = launch[2].z;
    let lid0: u32 = local.x;
    let gid0: u32 = (workgroup.x + base0) * 64u + local.x;
    let group0: u32 = workgroup.x + base0;
    let t1: bool = gid0 < in_len;
    let t2: u32 = select(0u, in_off + gid0, t1);
    let t3: u32 = lid0;
    tile_[t3] = select(0.0f, in_[t2], t1);
    storageBarrier();
    workgroupBarrier();
    if (lid0 < 32u) {
        let t4: u32 = lid0;
        let t5: u32 = lid0 + 32u;
        let t6: u32 = t5;
        let t7: u32 = lid0;
        tile_[t7] = tile_[t4] + tile_[t6];
    }
    storageBarrier();
    workgroupBarrier();
    if (lid0 < 16u) {
        let t8: u32 = lid0;
        let t9: u32 = lid0 + 16u;
        let t10: u32 = t9;
        let t11: u32 = lid0;
        tile_[t11] = tile_[t8] + tile_[t10];
    }
    storageBarrier();
    workgroupBarrier();
    if (lid0 < 8u) {
        let t12: u32 = lid0;
        let t13: u32 = lid0 + 8u;
        let t14: u32 = t13;
        let t15: u32 = lid0;
        tile_[t15] = tile_[t12] + tile_[t14];
    }
    storageBarrier();
    workgroupBarrier();
    if (lid0 < 4u) {
        let t16: u32 = lid0;
        let t17: u32 = lid0 + 4u;
        let t18: u32 = t17;
        let t19: u32 = lid0;
        tile_[t19] = tile_[t16] + tile_[t18];
    }
    storageBarrier();
    workgroupBarrier();
    if (lid0 < 2u) {
        let t20: u32 = lid0;
        let t21: u32 = lid0 + 2u;
        let t22: u32 = t21;
        let t23: u32 = lid0;
        tile_[t23] = tile_[t20] + tile_[t22];
    }
    storageBarrier();
    workgroupBarrier();
    if (lid0 < 1u) {
        let t24: u32 = lid0;
        let t25: u32 = lid0 + 1u;
        let t26: u32 = t25;
        let t27: u32 = lid0;
        tile_[t27] = tile_[t24] + tile_[t26];
    }
    storageBarrier();
    workgroupBarrier();
    if (lid0 == 0u) {
        var t28: u32 = 0u;
        let t29: u32 = t28;
        let t30: bool = group0 < out_len;
        let t31: u32 = select(0u, out_off + group0, t30);
        if t30 { out_[t31] = tile_[t29]; }
    }
}
