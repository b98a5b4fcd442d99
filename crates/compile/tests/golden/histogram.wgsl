@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 4>;
@group(0) @binding(1) var<storage, read_write> keys_: array<u32>;
@group(0) @binding(2) var<storage, read_write> counts_: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> extremes_: array<atomic<i32>>;
@group(0) @binding(4) var<storage, read_write> sums_: array<atomic<u32>>;
var<workgroup> local_: array<atomic<u32>, 256>;
var<workgroup> totals_: array<atomic<u32>, 1>;

@compute @workgroup_size(16, 2, 1)
fn histogram_(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let keys_off: u32 = launch[0].x;
    let keys_len: u32 = launch[0].y;
    let counts_off: u32 = launch[0].z;
    let counts_len: u32 = launch[0].w;
    let extremes_off: u32 = launch[1].x;
    let extremes_len: u32 = launch[1].y;
    let sums_off: u32 = launch[1].z;
    let sums_len: u32 = launch[1].w;
    let size0: u32 = launch[2].x;
    let size1: u32 = launch[2].y;
    let size2: u32 = launch[2].z;
    let base0: u32 = launch[2].w;
    let base1: u32 = launch[3].x;
    let base2: u32 = launch[3].y;
    let zero: u32 = launch[3].z;
    let gid0: u32 = (workgroup.x + base0) * 16u + local.x;
    let t1: bool = gid0 < keys_len;
    let t2: u32 = select(0u, keys_off + gid0, t1);
    let key_: u32 = select(0u, (keys_[t2 >> 2u] >> ((t2 & 3u) << 3u)) & 0xffu, t1);
    let t3: u32 = key_;
    let t4: u32 = t3;
    var old_: u32 = 0u;
    { old_ = atomicAdd(&local_[t4], 1u); }
    let t5: u32 = key_;
    let t6: bool = t5 < counts_len;
    let t7: u32 = select(0u, counts_off + t5, t6);
    var old_2: u32 = 0u;
    if t6 { old_2 = atomicAdd(&counts_[t7], old_); }
    let t8: u32 = key_;
    let t9: bool = t8 < counts_len;
    let t10: u32 = select(0u, counts_off + t8, t9);
    var old_3: u32 = 0u;
    if t9 { loop { let got = atomicCompareExchangeWeak(&counts_[t10], old_, 1u); old_3 = got.old_value; if got.exchanged || (got.old_value != old_) { break; } } }
    let t11: i32 = bitcast<i32>(key_);
    let t12: bool = 0u < extremes_len;
    let t13: u32 = select(0u, extremes_off + 0u, t12);
    var old_4: i32 = 0i;
    if t12 { old_4 = atomicMin(&extremes_[t13], t11); }
    let t14: i32 = bitcast<i32>(key_);
    let t15: bool = 0u < extremes_len;
    let t16: u32 = select(0u, extremes_off + 0u, t15);
    var old_5: i32 = 0i;
    if t15 { old_5 = atomicMax(&extremes_[t16], t14); }
    let t17: f32 = f32(key_);
    let t18: u32 = key_;
    let t19: bool = t18 < sums_len;
    let t20: u32 = select(0u, sums_off + t18, t19);
    var old_6: f32 = 0.0f;
    if t19 { var seen = atomicLoad(&sums_[t20]); loop { let got = atomicCompareExchangeWeak(&sums_[t20], seen, bitcast<u32>(bitcast<f32>(seen) + t17)); if got.exchanged { break; } seen = got.old_value; } old_6 = bitcast<f32>(seen); }
    let t21: f32 = f32(key_);
    var t22: u32 = 0u;
    let t23: u32 = t22;
    var old_7: f32 = 0.0f;
    { var seen = atomicLoad(&totals_[t23]); loop { let got = atomicCompareExchangeWeak(&totals_[t23], seen, bitcast<u32>(bitcast<f32>(seen) + t21)); if got.exchanged { break; } seen = got.old_value; } old_7 = bitcast<f32>(seen); }
    let t24: f32 = f32(key_);
    let t25: bool = 0u < sums_len;
    let t26: u32 = select(0u, sums_off + 0u, t25);
    var old_8: f32 = 0.0f;
    if t25 { old_8 = bitcast<f32>(atomicExchange(&sums_[t26], bitcast<u32>(t24))); }
}
