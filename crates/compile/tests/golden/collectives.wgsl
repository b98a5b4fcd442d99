@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 4>;
@group(0) @binding(1) var<storage, read_write> x_: array<f32>;
@group(0) @binding(2) var<storage, read_write> sums_: array<f32>;
@group(0) @binding(3) var<storage, read_write> places_: array<u32>;
var<workgroup> scratch_: array<f32, 12>;
var<workgroup> scratch_2: array<u32, 12>;

@compute @workgroup_size(6, 2, 1)
fn collectives_(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let x_off: u32 = launch[0].x;
    let x_len: u32 = launch[0].y;
    let sums_off: u32 = launch[0].z;
    let sums_len: u32 = launch[0].w;
    let places_off: u32 = launch[1].x;
    let places_len: u32 = launch[1].y;
    let size0: u32 = launch[1].z;
    let size1: u32 = launch[1].w;
    let size2: u32 = launch[2].x;
    let base0: u32 = launch[2].y;
    let base1: u32 = launch[2].z;
    let base2: u32 = launch[2].w;
    let zero: u32 = launch[3].x;
    let gid0: u32 = (workgroup.x + base0) * 6u + local.x;
    let lid1: u32 = local.y;
    let lid0: u32 = local.x;
    let lane_: u32 = lid0 + (lid1 * 6u);
    let t1: bool = gid0 < x_len;
    let t2: u32 = select(0u, x_off + gid0, t1);
    let value_: f32 = select(0.0f, x_[t2], t1);
    let t3: u32 = lane_;
    scratch_[t3] = value_;
    storageBarrier();
    workgroupBarrier();
    if (lane_ < 4u) {
        let t4: u32 = lane_;
        let t5: u32 = lane_ + 8u;
        let t6: u32 = t5;
        let t7: u32 = lane_;
        scratch_[t7] = scratch_[t4] + scratch_[t6];
    }
    storageBarrier();
    workgroupBarrier();
    if (lane_ < 4u) {
        let t8: u32 = lane_;
        let t9: u32 = lane_ + 4u;
        let t10: u32 = t9;
        let t11: u32 = lane_;
        scratch_[t11] = scratch_[t8] + scratch_[t10];
    }
    storageBarrier();
    workgroupBarrier();
    if (lane_ < 2u) {
        let t12: u32 = lane_;
        let t13: u32 = lane_ + 2u;
        let t14: u32 = t13;
        let t15: u32 = lane_;
        scratch_[t15] = scratch_[t12] + scratch_[t14];
    }
    storageBarrier();
    workgroupBarrier();
    if (lane_ < 1u) {
        let t16: u32 = lane_;
        let t17: u32 = lane_ + 1u;
        let t18: u32 = t17;
        let t19: u32 = lane_;
        scratch_[t19] = scratch_[t16] + scratch_[t18];
    }
    storageBarrier();
    workgroupBarrier();
    var t20: u32 = 0u;
    let t21: u32 = t20;
    let total_: f32 = scratch_[t21];
    storageBarrier();
    workgroupBarrier();
    let t22: bool = gid0 < places_len;
    let t23: u32 = select(0u, places_off + gid0, t22);
    var scan_: u32 = select(0u, places_[t23], t22);
    let t24: u32 = lane_;
    scratch_2[t24] = scan_;
    storageBarrier();
    workgroupBarrier();
    if (1u <= lane_) {
        let t25: u32 = lane_ - 1u;
        let t26: u32 = t25;
        scan_ = scratch_2[t26] + scan_;
    }
    storageBarrier();
    workgroupBarrier();
    let t27: u32 = lane_;
    scratch_2[t27] = scan_;
    storageBarrier();
    workgroupBarrier();
    if (2u <= lane_) {
        let t28: u32 = lane_ - 2u;
        let t29: u32 = t28;
        scan_ = scratch_2[t29] + scan_;
    }
    storageBarrier();
    workgroupBarrier();
    let t30: u32 = lane_;
    scratch_2[t30] = scan_;
    storageBarrier();
    workgroupBarrier();
    if (4u <= lane_) {
        let t31: u32 = lane_ - 4u;
        let t32: u32 = t31;
        scan_ = scratch_2[t32] + scan_;
    }
    storageBarrier();
    workgroupBarrier();
    let t33: u32 = lane_;
    scratch_2[t33] = scan_;
    storageBarrier();
    workgroupBarrier();
    if (8u <= lane_) {
        let t34: u32 = lane_ - 8u;
        let t35: u32 = t34;
        scan_ = scratch_2[t35] + scan_;
    }
    storageBarrier();
    workgroupBarrier();
    let t36: u32 = lane_;
    scratch_2[t36] = scan_;
    storageBarrier();
    workgroupBarrier();
    let t37: u32 = lane_ - 1u;
    let t38: bool = t37 < 12u;
    let t39: u32 = select(0u, t37, t38);
    let before_: u32 = select(select(0u, scratch_2[t39], t38), 0u, lane_ == 0u);
    storageBarrier();
    workgroupBarrier();
    let t40: bool = gid0 < places_len;
    let t41: u32 = select(0u, places_off + gid0, t40);
    var scan_2: u32 = select(0u, places_[t41], t40);
    let t42: u32 = lane_;
    scratch_2[t42] = scan_2;
    storageBarrier();
    workgroupBarrier();
    if (1u <= lane_) {
        let t43: u32 = lane_ - 1u;
        let t44: u32 = t43;
        scan_2 = max(scratch_2[t44], scan_2);
    }
    storageBarrier();
    workgroupBarrier();
    let t45: u32 = lane_;
    scratch_2[t45] = scan_2;
    storageBarrier();
    workgroupBarrier();
    if (2u <= lane_) {
        let t46: u32 = lane_ - 2u;
        let t47: u32 = t46;
        scan_2 = max(scratch_2[t47], scan_2);
    }
    storageBarrier();
    workgroupBarrier();
    let t48: u32 = lane_;
    scratch_2[t48] = scan_2;
    storageBarrier();
    workgroupBarrier();
    if (4u <= lane_) {
        let t49: u32 = lane_ - 4u;
        let t50: u32 = t49;
        scan_2 = max(scratch_2[t50], scan_2);
    }
    storageBarrier();
    workgroupBarrier();
    let t51: u32 = lane_;
    scratch_2[t51] = scan_2;
    storageBarrier();
    workgroupBarrier();
    if (8u <= lane_) {
        let t52: u32 = lane_ - 8u;
        let t53: u32 = t52;
        scan_2 = max(scratch_2[t53], scan_2);
    }
    storageBarrier();
    workgroupBarrier();
    let upto_: u32 = scan_2;
    storageBarrier();
    workgroupBarrier();
    if (lane_ == 3u) {
        var t54: u32 = 0u;
        let t55: u32 = t54;
        scratch_[t55] = value_;
    }
    storageBarrier();
    workgroupBarrier();
    var t56: u32 = 0u;
    let t57: u32 = t56;
    let third_: f32 = scratch_[t57];
    storageBarrier();
    workgroupBarrier();
    let alone_: f32 = value_;
    var t58: u32 = 0xff800000u;
    let t59: f32 = bitcast<f32>(t58);
    let none_: f32 = t59;
    let t60: bool = gid0 < places_len;
    let t61: u32 = select(0u, places_off + gid0, t60);
    if t60 { places_[t61] = before_ + upto_; }
    let t62: bool = gid0 < sums_len;
    let t63: u32 = select(0u, sums_off + gid0, t62);
    if t62 { sums_[t63] = (value_ + third_) / (total_ + (alone_ + none_)); }
}
