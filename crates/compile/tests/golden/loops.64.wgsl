override items0: u32 = 1u;
override items1: u32 = 1u;
override items2: u32 = 1u;
@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 5>;
@group(0) @binding(1) var<storage, read_write> kernel_: array<i32>;

fn rem_u64(a: u64, b: u64) -> u64 { return select(a % select(b, 1lu, b == 0lu), a, b == 0lu); }
@compute @workgroup_size(items0, items1, items2)
fn float_(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let kernel_off: u64 = (u64(launch[0].x) | (u64(launch[0].y) << 32u));
    let kernel_len: u64 = (u64(launch[0].z) | (u64(launch[0].w) << 32u));
    let int_: i32 = bitcast<i32>(launch[1].x);
    let x_: u64 = (u64(launch[1].y) | (u64(launch[1].z) << 32u));
    let size0: u64 = (u64(launch[1].w) | (u64(launch[2].x) << 32u));
    let size1: u64 = (u64(launch[2].y) | (u64(launch[2].z) << 32u));
    let size2: u64 = (u64(launch[2].w) | (u64(launch[3].x) << 32u));
    let base0: u32 = launch[3].y;
    let base1: u32 = launch[3].z;
    let base2: u32 = launch[3].w;
    let zero: u32 = launch[4].x;
    let gid0: u64 = (u64(workgroup.x + base0)) * u64(items0) + u64(local.x);
    let gid1: u64 = (u64(workgroup.y + base1)) * u64(items1) + u64(local.y);
    let gid2: u64 = (u64(workgroup.z + base2)) * u64(items2) + u64(local.z);
    if (gid0 >= size0) || (gid1 >= size1) || (gid2 >= size2) { return; }
    var x_2: i32 = 0i;
    for (var i_: i32 = 0i; (i_ < int_); i_ = i_ + 1i) {
        x_2 = x_2 + i_;
    }
    let t1: i32 = x_2;
    for (var i_2: i32 = int_; (i_2 < t1); i_2 = select(t1, i_2 + 2i, (bitcast<u32>(t1) - bitcast<u32>(i_2) > bitcast<u32>(2i)))) {
        if ((i_2 % 2i) == 0i) {
            continue;
        } else {
            x_2 = x_2 * i_2;
        }
    }
    for (var place_: u64 = gid0; (place_ < kernel_len); place_ = place_ + size0) {
        let t2: u64 = rem_u64(place_, x_);
        let t3: bool = t2 < kernel_len;
        let t4: u32 = select(0u, u32(kernel_off + t2), t3);
        if t3 { kernel_[t4] = x_2; }
    }
    return;
}
