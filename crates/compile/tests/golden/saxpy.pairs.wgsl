override items0: u32 = 1u;
override items1: u32 = 1u;
override items2: u32 = 1u;
@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 3>;
@group(0) @binding(1) var<storage, read_write> x_: array<f32>;
@group(0) @binding(2) var<storage, read_write> y_: array<f32>;

@compute @workgroup_size(items0, items1, items2)
fn saxpy_(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let a_: f32 = bitcast<f32>(launch[0].x);
    let x_off: u32 = launch[0].y;
    let x_len: u32 = launch[0].z;
    let y_off: u32 = launch[0].w;
    let y_len: u32 = launch[1].x;
    let size0: u32 = launch[1].y;
    let size1: u32 = launch[1].z;
    let size2: u32 = launch[1].w;
    let base0: u32 = launch[2].x;
    let base1: u32 = launch[2].y;
    let base2: u32 = launch[2].z;
    let zero: u32 = launch[2].w;
    let gid0: u32 = (workgroup.x + base0) * items0 + local.x;
    let gid1: u32 = (workgroup.y + base1) * items1 + local.y;
    let gid2: u32 = (workgroup.z + base2) * items2 + local.z;
    if (gid0 >= size0) || (gid1 >= size1) || (gid2 >= size2) { return; }
    let i_: u32 = gid0;
    if (i_ < y_len) {
        let t1: f32 = bitcast<f32>(zero);
        let t2: bool = i_ < x_len;
        let t3: u32 = select(0u, x_off + i_, t2);
        let t4: u32 = y_off + i_;
        let t5: u32 = y_off + i_;
        y_[t5] = (a_ * select(t1, x_[t3], t2)) + y_[t4];
    }
}
