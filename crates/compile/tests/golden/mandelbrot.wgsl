override items0: u32 = 1u;
override items1: u32 = 1u;
override items2: u32 = 1u;
@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 3>;
@group(0) @binding(1) var<storage, read_write> out_: array<u32>;

override fused_f32: bool = false;
fn leading_fma_f32(x: u32) -> u32 { return countLeadingZeros(x); }
fn shifted_f32(v: vec2<u32>, n: u32) -> vec2<u32> {
    // To the right; what is lost sets the last bit.
    if n == 0u { return v; }
    if n < 32u {
        let lost = u32((v.x << (32u - n)) != 0u);
        return vec2<u32>((v.x >> n) | (v.y << (32u - n)) | lost, v.y >> n);
    }
    if n == 32u { return vec2<u32>(v.y | u32(v.x != 0u), 0u); }
    if n < 2u * 32u {
        let lost = u32((v.x | (v.y << (2u * 32u - n))) != 0u);
        return vec2<u32>((v.y >> (n - 32u)) | lost, 0u);
    }
    return vec2<u32>(u32((v.x | v.y) != 0u), 0u);
}
fn fma_f32(a: f32, b: f32, c: f32) -> f32 {
    if fused_f32 { return fma(a, b, c); }
    let ua = bitcast<u32>(a) & 0x7fffffffu;
    let ub = bitcast<u32>(b) & 0x7fffffffu;
    let uc = bitcast<u32>(c) & 0x7fffffffu;
    // The product is exact, or too small beside the addend whatever it is.
    if (ua == 0u) || (ub == 0u) || (ua >= 0x7f800000u) || (ub >= 0x7f800000u) { return a * b + c; }
    if uc >= 0x7f800000u { return c; }
    let product_sign = (bitcast<u32>(a) ^ bitcast<u32>(b)) & ~0x7fffffffu;
    let c_sign = bitcast<u32>(c) & ~0x7fffffffu;
    var ea = i32(ua >> 23u);
    var eb = i32(ub >> 23u);
    var ec = i32(uc >> 23u);
    let ma = (ua & 0x7fffffu) | select(0x800000u, 0u, ea == 0);
    let mb = (ub & 0x7fffffu) | select(0x800000u, 0u, eb == 0);
    let mc = (uc & 0x7fffffu) | select(0x800000u, 0u, ec == 0);
    // Normalised, so that no bit of a small product gets lost before the sum.
    let sa = leading_fma_f32(ma) - (32u - 1u - 23u);
    let sb = leading_fma_f32(mb) - (32u - 1u - 23u);
    ea = max(ea, 1) - i32(sa);
    eb = max(eb, 1) - i32(sb);
    ec = max(ec, 1);
    let na = ma << sa;
    let nb = mb << sb;
    let low = (na & 0xffffu) * (nb & 0xffffu);
    let middle = (na >> 16u) * (nb & 0xffffu) + (low >> 16u);
    let other = (na & 0xffffu) * (nb >> 16u) + (middle & 0xffffu);
    let high = (na >> 16u) * (nb >> 16u) + (middle >> 16u) + (other >> 16u);
    let bottom = (other << 16u) | (low & 0xffffu);
    var p = vec2<u32>(bottom << 14u, (high << 14u) | (bottom >> (32u - 14u)));
    var q = vec2<u32>(0u, mc << 6u);
    let ep = ea + eb - 2 * 150 - 14;
    let eq = ec - 150 - 6 - 32;
    let distance = ep - eq;
    var e = ep;
    if distance >= 0 { q = shifted_f32(q, u32(min(distance, 1000))); } else {
        p = shifted_f32(p, u32(min(-distance, 1000)));
        e = eq;
    }
    var sign = product_sign;
    var r = p;
    if product_sign == c_sign {
        let sum = p.x + q.x;
        r = vec2<u32>(sum, p.y + q.y + u32(sum < p.x));
    } else {
        if (p.y < q.y) || ((p.y == q.y) && (p.x < q.x)) {
            let kept = p;
            p = q;
            q = kept;
            sign = c_sign;
        }
        r = vec2<u32>(p.x - q.x, p.y - q.y - u32(p.x < q.x));
        if (r.x | r.y) == 0u { return bitcast<f32>(0u); }
    }
    if r.y == 0u {
        r = vec2<u32>(0u, r.x);
        e = e - 32;
    }
    let lead = leading_fma_f32(r.y);
    if lead > 0u {
        r = vec2<u32>(r.x << lead, (r.y << lead) | (r.x >> (32u - lead)));
        e = e - i32(lead);
    }
    // The leading bit is the first now; this is its exponent as the float has it.
    var exponent = e + 2 * 32 - 1 + 150 - 23;
    if exponent >= 255 { return bitcast<f32>(sign | 0x7f800000u); }
    if exponent < 1 {
        r = shifted_f32(r, u32(min(1 - exponent, 1000)));
        exponent = 1;
    }
    let unused = 32u - 1u - 23u;
    let kept = r.y >> unused;
    let lost = r.y << (32u - unused);
    let half = 0x800000u << (32u - 1u - 23u);
    let up = (lost > half) || ((lost == half) && ((r.x != 0u) || ((kept & 1u) == 1u)));
    return bitcast<f32>(sign | (((u32(exponent) - 1u) << 23u) + kept + u32(up)));
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
