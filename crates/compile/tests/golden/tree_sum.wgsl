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
    let t1: f32 = bitcast<f32>(zero);
    let t2: bool = gid0 < in_len;
    let t3: u32 = select(0u, in_off + gid0, t2);
    let t4: u32 = lid0;
    tile_[t4] = select(t1, in_[t3], t2);
    storageBarrier();
    workgroupBarrier();
    if (lid0 < 32u) {
        let t5: u32 = lid0;
        let t6: u32 = lid0 + 32u;
        let t7: u32 = t6;
        let t8: u32 = lid0;
        tile_[t8] = tile_[t5] + tile_[t7];
    }
    storageBarrier();
    workgroupBarrier();
    if (lid0 < 16u) {
        let t9: u32 = lid0;
        let t10: u32 = lid0 + 16u;
        let t11: u32 = t10;
        let t12: u32 = lid0;
        tile_[t12] = tile_[t9] + tile_[t11];
    }
    storageBarrier();
    workgroupBarrier();
    if (lid0 < 8u) {
        let t13: u32 = lid0;
        let t14: u32 = lid0 + 8u;
        let t15: u32 = t14;
        let t16: u32 = lid0;
        tile_[t16] = tile_[t13] + tile_[t15];
    }
    storageBarrier();
    workgroupBarrier();
    if (lid0 < 4u) {
        let t17: u32 = lid0;
        let t18: u32 = lid0 + 4u;
        let t19: u32 = t18;
        let t20: u32 = lid0;
        tile_[t20] = tile_[t17] + tile_[t19];
    }
    storageBarrier();
    workgroupBarrier();
    if (lid0 < 2u) {
        let t21: u32 = lid0;
        let t22: u32 = lid0 + 2u;
        let t23: u32 = t22;
        let t24: u32 = lid0;
        tile_[t24] = tile_[t21] + tile_[t23];
    }
    storageBarrier();
    workgroupBarrier();
    if (lid0 < 1u) {
        let t25: u32 = lid0;
        let t26: u32 = lid0 + 1u;
        let t27: u32 = t26;
        let t28: u32 = lid0;
        tile_[t28] = tile_[t25] + tile_[t27];
    }
    storageBarrier();
    workgroupBarrier();
    if (lid0 == 0u) {
        var t29: u32 = 0u;
        let t30: u32 = t29;
        let t31: bool = group0 < out_len;
        let t32: u32 = select(0u, out_off + group0, t31);
        if t31 { out_[t32] = tile_[t30]; }
    }
}
