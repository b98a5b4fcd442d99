override items0: u32 = 1u;
override items1: u32 = 1u;
override items2: u32 = 1u;
@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 3>;
@group(0) @binding(1) var<storage, read_write> kernel_: array<i32>;

fn rem_u32(a: u32, b: u32) -> u32 { return select(a % select(b, 1u, b == 0u), a, b == 0u); }
@compute @workgroup_size(items0, items1, items2)
fn float_(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let kernel_off: u32 = launch[0].x;
    let kernel_len: u32 = launch[0].y;
    let int_: i32 = bitcast<i32>(launch[0].z);
    let x_: u32 = launch[0].w;
    let size0: u32 = launch[1].x;
    let size1: u32 = launch[1].y;
    let size2: u32 = launch[1].z;
    let base0: u32 = launch[1].w;
    let base1: u32 = launch[2].x;
    let base2: u32 = launch[2].y;
    let zero: u32 = launch[2].z;
    let gid0: u32 = (workgroup.x + base0) * items0 + local.x;
    let gid1: u32 = (workgroup.y + base1) * items1 + local.y;
    let gid2: u32 = (workgroup.z + base2) * items2 + local.z;
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
    for (var place_: u32 = gid0; (place_ < kernel_len); place_ = place_ + size0) {
        let t2: u32 = rem_u32(place_, x_);
        let t3: bool = t2 < kernel_len;
        let t4: u32 = select(0u, kernel_off + t2, t3);
        if t3 { kernel_[t4] = x_2; }
    }
    return;
}
