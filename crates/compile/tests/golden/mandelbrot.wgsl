override items0: u32 = 1u;
override items1: u32 = 1u;
override items2: u32 = 1u;
@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 3>;
@group(0) @binding(1) var<storage, read_write> out_: array<u32>;

override fused_f32: bool = false;
fn fma_f32(a: f32, b: f32, c: f32) -> f32 {
    if fused_f32 { return fma(a, b, c); }
    let p = f64(a) * f64(b);
    let q = f64(c);
    let sum = p + q;
    let part = sum - p;
    let lost = (p - (sum - part)) + (q - part);
    let bits = bitcast<u64>(sum);
    let inexact = ((lost > 0.0lf) || (lost < 0.0lf)) && ((bits & 1lu) == 0lu);
    let odd = select(bits - 1lu, bits + 1lu, (lost > 0.0lf) == (sum > 0.0lf));
    return f32(bitcast<f64>(select(bits, odd, inexact)));
}
@compute @workgroup_size(items0, items1, items2)
fn mandelbrot_(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let out_off: u32 = launch[0].x;
    let out_len: u32 = launch[0].y;
    let width_: u32 = launch[0].z;
    let scale_: f32 = bitcast<f32>(launch[0].w);
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
    let cx_: f32 = f32(gid0) * scale_;
    let cy_: f32 = f32(gid1) * scale_;
    let t1: f32 = bitcast<f32>(zero);
    var re_: f32 = t1;
    let t2: f32 = bitcast<f32>(zero);
    var im_: f32 = t2;
    var count_: u32 = 0u;
    loop {
        if !(((re_ * re_) + (im_ * im_)) <= 4.0f) { break; }
        if (count_ == 100u) {
            break;
        }
        let real_: f32 = ((re_ * re_) - (im_ * im_)) + cx_;
        im_ = fma_f32(2.0f, re_ * im_, cy_);
        re_ = real_;
        count_ = count_ + 1u;
    }
    let t3: u32 = (gid1 * width_) + gid0;
    let t4: bool = t3 < out_len;
    let t5: u32 = select(0u, out_off + t3, t4);
    if t4 { out_[t5] = count_; }
}
