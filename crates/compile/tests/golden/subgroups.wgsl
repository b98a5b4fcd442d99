@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 3>;
@group(0) @binding(1) var<storage, read_write> x_: array<f32>;
@group(0) @binding(2) var<storage, read_write> y_: array<i64>;
var<workgroup> scratch_: array<f32, 32>;

override subgroups_consecutive: bool = false;
var<workgroup> words_of_all: array<u32, 32>;
fn shuffled(word: u32, lane: u32, item: u32, own: u32) -> u32 {
    if subgroups_consecutive { return subgroupShuffle(word, (own & 0xfffffff8u) | lane); }
    words_of_all[item] = word;
    workgroupBarrier();
    let theirs = words_of_all[(item & 0xfffffff8u) | lane];
    workgroupBarrier();
    return theirs;
}
@compute @workgroup_size(32, 1, 1)
fn shuffling_(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>, @builtin(subgroup_invocation_id) own: u32) {
    let x_off: u32 = launch[0].x;
    let x_len: u32 = launch[0].y;
    let y_off: u32 = launch[0].z;
    let y_len: u32 = launch[0].w;
    let size0: u32 = launch[1].x;
    let size1: u32 = launch[1].y;
    let size2: u32 = launch[1].z;
    let base0: u32 = launch[1].w;
    let base1: u32 = launch[2].x;
    let base2: u32 = launch[2].y;
    let zero: u32 = launch[2].z;
    let gid0: u32 = (workgroup.x + base0) * 32u + local.x;
    let lane: u32 = local.x & 7u;
    let lid0: u32 = local.x;
    let item_: u32 = lid0;
    let t1: f32 = bitcast<f32>(zero);
    let t2: bool = gid0 < x_len;
    let t3: u32 = select(0u, x_off + gid0, t2);
    let t4: u32 = item_;
    scratch_[t4] = select(t1, x_[t3], t2);
    storageBarrier();
    workgroupBarrier();
    if (item_ < 16u) {
        let t5: u32 = item_;
        let t6: u32 = item_ + 16u;
        let t7: u32 = t6;
        let t8: u32 = item_;
        scratch_[t8] = scratch_[t5] + scratch_[t7];
    }
    storageBarrier();
    workgroupBarrier();
    if (item_ < 8u) {
        let t9: u32 = item_;
        let t10: u32 = item_ + 8u;
        let t11: u32 = t10;
        let t12: u32 = item_;
        scratch_[t12] = scratch_[t9] + scratch_[t11];
    }
    storageBarrier();
    workgroupBarrier();
    let t13: u32 = item_;
    let part_: f32 = scratch_[t13];
    let theirs_: f32 = bitcast<f32>(shuffled(bitcast<u32>(part_), lane ^ 4u, local.x, own));
    let part_2: f32 = part_ + theirs_;
    let theirs_2: f32 = bitcast<f32>(shuffled(bitcast<u32>(part_2), lane ^ 2u, local.x, own));
    let part_3: f32 = part_2 + theirs_2;
    let theirs_3: f32 = bitcast<f32>(shuffled(bitcast<u32>(part_3), lane ^ 1u, local.x, own));
    let part_4: f32 = part_3 + theirs_3;
    let theirs_4: f32 = bitcast<f32>(shuffled(bitcast<u32>(part_4), 0u, local.x, own));
    if (item_ == 0u) {
        var t14: u32 = 0u;
        let t15: u32 = t14;
        scratch_[t15] = theirs_4;
    }
    storageBarrier();
    workgroupBarrier();
    var t16: u32 = 0u;
    let t17: u32 = t16;
    let sum_: f32 = scratch_[t17];
    storageBarrier();
    workgroupBarrier();
    let t18: bool = gid0 < y_len;
    let t19: u32 = select(0u, y_off + gid0, t18);
    let t20: u32 = lane;
    let t21: u32 = t20 ^ 5u;
    let theirs_5: u32 = shuffled(u32(bitcast<u64>(select(0li, y_[t19], t18))), select(t20, t21, t21 < 8u), local.x, own);
    let t22: bool = gid0 < y_len;
    let t23: u32 = select(0u, y_off + gid0, t22);
    let t24: u32 = lane;
    let t25: u32 = t24 ^ 5u;
    let theirs_6: u32 = shuffled(u32(bitcast<u64>(select(0li, y_[t23], t22)) >> 32u), select(t24, t25, t25 < 8u), local.x, own);
    let other_: i64 = bitcast<i64>((u64(theirs_6) << 32u) | u64(theirs_5));
    let t26: bool = gid0 < x_len;
    let t27: u32 = select(0u, x_off + gid0, t26);
    if t26 { x_[t27] = sum_; }
    var t28: u32 = 8u;
    let t29: bool = gid0 < y_len;
    let t30: u32 = select(0u, y_off + gid0, t29);
    if t29 { y_[t30] = other_ + bitcast<i64>(u64(t28)); }
}
