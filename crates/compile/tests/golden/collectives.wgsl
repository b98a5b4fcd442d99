@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 4>;
@group(0) @binding(1) var<storage, read_write> x_: array<f32>;
@group(0) @binding(2) var<storage, read_write> sums_: array<f32>;
@group(0) @binding(3) var<storage, read_write> places_: array<u32>;
var<workgroup> scratch_: array<f32, 12>;
var<workgroup> scratch_2: array<u32, 12>;

fn quotient(a: f32, b: f32) -> f32 {
    let scale = select(1.0f, 0.25f, abs(b) > 8.507059e37f);
    return (a * scale) / (b * scale);
}
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
    let item_: u32 = lid0 + (lid1 * 6u);
    let t1: f32 = bitcast<f32>(zero);
    let t2: bool = gid0 < x_len;
    let t3: u32 = select(0u, x_off + gid0, t2);
    let value_: f32 = select(t1, x_[t3], t2);
    let t4: u32 = item_;
    scratch_[t4] = value_;
    storageBarrier();
    workgroupBarrier();
    if (item_ < 4u) {
        let t5: u32 = item_;
        let t6: u32 = item_ + 8u;
        let t7: u32 = t6;
        let t8: u32 = item_;
        scratch_[t8] = scratch_[t5] + scratch_[t7];
    }
    storageBarrier();
    workgroupBarrier();
    if (item_ < 4u) {
        let t9: u32 = item_;
        let t10: u32 = item_ + 4u;
        let t11: u32 = t10;
        let t12: u32 = item_;
        scratch_[t12] = scratch_[t9] + scratch_[t11];
    }
    storageBarrier();
    workgroupBarrier();
    if (item_ < 2u) {
        let t13: u32 = item_;
        let t14: u32 = item_ + 2u;
        let t15: u32 = t14;
        let t16: u32 = item_;
        scratch_[t16] = scratch_[t13] + scratch_[t15];
    }
    storageBarrier();
    workgroupBarrier();
    if (item_ < 1u) {
        let t17: u32 = item_;
        let t18: u32 = item_ + 1u;
        let t19: u32 = t18;
        let t20: u32 = item_;
        scratch_[t20] = scratch_[t17] + scratch_[t19];
    }
    storageBarrier();
    workgroupBarrier();
    var t21: u32 = 0u;
    let t22: u32 = t21;
    let total_: f32 = scratch_[t22];
    storageBarrier();
    workgroupBarrier();
    let t23: bool = gid0 < places_len;
    let t24: u32 = select(0u, places_off + gid0, t23);
    var scan_: u32 = select(0u, places_[t24], t23);
    let t25: u32 = item_;
    scratch_2[t25] = scan_;
    storageBarrier();
    workgroupBarrier();
    if (1u <= item_) {
        let t26: u32 = item_ - 1u;
        let t27: u32 = t26;
        scan_ = scratch_2[t27] + scan_;
    }
    storageBarrier();
    workgroupBarrier();
    let t28: u32 = item_;
    scratch_2[t28] = scan_;
    storageBarrier();
    workgroupBarrier();
    if (2u <= item_) {
        let t29: u32 = item_ - 2u;
        let t30: u32 = t29;
        scan_ = scratch_2[t30] + scan_;
    }
    storageBarrier();
    workgroupBarrier();
    let t31: u32 = item_;
    scratch_2[t31] = scan_;
    storageBarrier();
    workgroupBarrier();
    if (4u <= item_) {
        let t32: u32 = item_ - 4u;
        let t33: u32 = t32;
        scan_ = scratch_2[t33] + scan_;
    }
    storageBarrier();
    workgroupBarrier();
    let t34: u32 = item_;
    scratch_2[t34] = scan_;
    storageBarrier();
    workgroupBarrier();
    if (8u <= item_) {
        let t35: u32 = item_ - 8u;
        let t36: u32 = t35;
        scan_ = scratch_2[t36] + scan_;
    }
    storageBarrier();
    workgroupBarrier();
    let t37: u32 = item_;
    scratch_2[t37] = scan_;
    storageBarrier();
    workgroupBarrier();
    let t38: u32 = item_ - 1u;
    let t39: bool = t38 < 12u;
    let t40: u32 = select(0u, t38, t39);
    let before_: u32 = select(select(0u, scratch_2[t40], t39), 0u, item_ == 0u);
    storageBarrier();
    workgroupBarrier();
    let t41: bool = gid0 < places_len;
    let t42: u32 = select(0u, places_off + gid0, t41);
    var scan_2: u32 = select(0u, places_[t42], t41);
    let t43: u32 = item_;
    scratch_2[t43] = scan_2;
    storageBarrier();
    workgroupBarrier();
    if (1u <= item_) {
        let t44: u32 = item_ - 1u;
        let t45: u32 = t44;
        scan_2 = max(scratch_2[t45], scan_2);
    }
    storageBarrier();
    workgroupBarrier();
    let t46: u32 = item_;
    scratch_2[t46] = scan_2;
    storageBarrier();
    workgroupBarrier();
    if (2u <= item_) {
        let t47: u32 = item_ - 2u;
        let t48: u32 = t47;
        scan_2 = max(scratch_2[t48], scan_2);
    }
    storageBarrier();
    workgroupBarrier();
    let t49: u32 = item_;
    scratch_2[t49] = scan_2;
    storageBarrier();
    workgroupBarrier();
    if (4u <= item_) {
        let t50: u32 = item_ - 4u;
        let t51: u32 = t50;
        scan_2 = max(scratch_2[t51], scan_2);
    }
    storageBarrier();
    workgroupBarrier();
    let t52: u32 = item_;
    scratch_2[t52] = scan_2;
    storageBarrier();
    workgroupBarrier();
    if (8u <= item_) {
        let t53: u32 = item_ - 8u;
        let t54: u32 = t53;
        scan_2 = max(scratch_2[t54], scan_2);
    }
    storageBarrier();
    workgroupBarrier();
    let upto_: u32 = scan_2;
    storageBarrier();
    workgroupBarrier();
    if (item_ == 3u) {
        var t55: u32 = 0u;
        let t56: u32 = t55;
        scratch_[t56] = value_;
    }
    storageBarrier();
    workgroupBarrier();
    var t57: u32 = 0u;
    let t58: u32 = t57;
    let third_: f32 = scratch_[t58];
    storageBarrier();
    workgroupBarrier();
    let alone_: f32 = value_;
    var t59: u32 = 0xff800000u;
    let t60: f32 = bitcast<f32>(t59);
    let none_: f32 = t60;
    let t61: bool = gid0 < places_len;
    let t62: u32 = select(0u, places_off + gid0, t61);
    if t61 { places_[t62] = before_ + upto_; }
    let t63: bool = gid0 < sums_len;
    let t64: u32 = select(0u, sums_off + gid0, t63);
    if t63 { sums_[t64] = quotient(value_ + third_, total_ + (alone_ + none_)); }
}
