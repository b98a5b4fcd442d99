//! Scalar encoders of blocks, bit for bit as ggml's reference quantizers without an importance matrix.
//!
//! Sums are in f32 and in the order of the elements, as in ggml. Values must be finite.
//!
//! Source: ggml-quants.c of llama.cpp, `quantize_row_*_ref`, `make_qx_quants` and `make_qkx2_quants`.

use half::{bf16, f16};

use super::decode::{half, scale_min};

/// Groups of weights whose largest magnitude is below this are quantized to zero.
const GROUP_EPSILON: f32 = 1e-15;

pub fn f32(x: &[f32], block: &mut [u8]) {
    block.copy_from_slice(&x[0].to_le_bytes());
}

pub fn f16(x: &[f32], block: &mut [u8]) {
    set_half(block, 0, x[0]);
}

pub fn bf16(x: &[f32], block: &mut [u8]) {
    block.copy_from_slice(&bf16::from_f32(x[0]).to_le_bytes());
}

fn set_half(block: &mut [u8], at: usize, value: f32) {
    block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}

/// Returns 1 / x, or 0 if x is 0.
fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// Returns the element of the largest magnitude, the first of equals.
fn max_magnitude(x: &[f32]) -> f32 {
    x.iter().fold(0.0f32, |largest, x| if largest.abs() < x.abs() { *x } else { largest })
}

/// Rounds a number below 2²² in magnitude to the nearest integer, ties to even.
fn nearest(x: f32) -> i32 {
    ((x + 12_582_912.0).to_bits() as i32 & 0x007f_ffff) - 0x0040_0000
}

/// Writes elements 0 to 15 to the low and 16 to 31 to the high nibbles of 16 bytes, and their fifth bits to `high`, if there is one.
fn set_nibbles(q: &[u8; 32], nibbles: &mut [u8], high: Option<&mut [u8]>) {
    for (n, byte) in nibbles.iter_mut().enumerate() {
        *byte = q[n] & 15 | (q[n + 16] & 15) << 4;
    }
    if let Some(high) = high {
        let bits = q.iter().enumerate().fold(0u32, |bits, (n, q)| bits | u32::from(q >> 4) << n);
        high.copy_from_slice(&bits.to_le_bytes());
    }
}

/// Returns the scale that maps the element of the largest magnitude to `-offset`, and the elements as unsigned integers with that offset.
fn quantize_with_offset(x: &[f32], offset: f32) -> (f32, [u8; 32]) {
    let d = max_magnitude(x) / -offset;
    let inverse = inverse(d);
    let most = 2 * offset as u8 - 1;
    (d, std::array::from_fn(|n| ((x[n] * inverse + (offset + 0.5)) as i8 as u8).min(most)))
}

pub fn q4_0(x: &[f32], block: &mut [u8]) {
    let (d, q) = quantize_with_offset(x, 8.0);
    set_half(block, 0, d);
    set_nibbles(&q, &mut block[2..], None);
}

pub fn q5_0(x: &[f32], block: &mut [u8]) {
    let (d, q) = quantize_with_offset(x, 16.0);
    set_half(block, 0, d);
    let (high, nibbles) = block[2..].split_at_mut(4);
    set_nibbles(&q, nibbles, Some(high));
}

pub fn q5_1(x: &[f32], block: &mut [u8]) {
    let (min, max) = x.iter().fold((f32::MAX, -f32::MAX), |(min, max), x| (min.min(*x), max.max(*x)));
    let d = (max - min) / 31.0;
    let inverse = inverse(d);
    set_half(block, 0, d);
    set_half(block, 2, min);
    let q = std::array::from_fn(|n| ((x[n] - min) * inverse + 0.5) as u8);
    let (high, nibbles) = block[4..].split_at_mut(4);
    set_nibbles(&q, nibbles, Some(high));
}

pub fn q8_0(x: &[f32], block: &mut [u8]) {
    let d = max_magnitude(x).abs() / 127.0;
    let inverse = inverse(d);
    set_half(block, 0, d);
    for (q, x) in block[2..].iter_mut().zip(x) {
        *q = (x * inverse).round() as i8 as u8;
    }
}

/// Scale and minimum of a group, and its elements as unsigned integers: x ≈ scale · q − min.
struct Affine {
    scale: f32,
    /// The negated minimum.
    min: f32,
    q: [u8; 32],
}

/// Returns the scale and minimum with the least weighted squared error among `steps + 1` candidates, which map the largest element to
/// `most + low + step / 10`.
fn affine(x: &[f32], weights: &[f32; 32], most: i32, low: f32, steps: i32) -> Affine {
    let (mut min, mut max) = (x[0], x[0]);
    let (mut sum_w, mut sum_x) = (weights[0], weights[0] * x[0]);
    for (x, w) in x.iter().zip(weights).skip(1) {
        min = min.min(*x);
        max = max.max(*x);
        sum_w += w;
        sum_x += w * x;
    }
    min = min.min(0.0);
    if max == min {
        return Affine { scale: 0.0, min: -min, q: [0; 32] };
    }
    let rounded = |inverse: f32, min: f32| -> [u8; 32] {
        std::array::from_fn(|n| nearest(inverse * (x[n] - min)).clamp(0, most) as u8)
    };
    let error = |scale: f32, min: f32, q: &[u8; 32]| {
        x.iter().zip(q).zip(weights).fold(0.0f32, |sum, ((x, q), w)| {
            let off = scale * f32::from(*q) + min - x;
            sum + w * (off * off)
        })
    };
    let start = min;
    let inverse = most as f32 / (max - start);
    let (mut q, mut scale) = (rounded(inverse, start), 1.0 / inverse);
    let mut best = error(scale, min, &q);
    for step in 0..=steps {
        // Searched from the minimum that the last improvement found, as in ggml.
        let inverse = (low + 0.1 * step as f32 + most as f32) / (max - min);
        let other = rounded(inverse, min);
        let (mut sum_l, mut sum_l2, mut sum_xl) = (0.0f32, 0.0f32, 0.0f32);
        for ((x, q), w) in x.iter().zip(&other).zip(weights) {
            let l = f32::from(*q);
            sum_l += w * l;
            sum_l2 += w * l * l;
            sum_xl += w * l * x;
        }
        let determinant = sum_w * sum_l2 - sum_l * sum_l;
        if determinant <= 0.0 {
            continue;
        }
        let mut new_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
        let mut new_min = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
        if new_min > 0.0 {
            (new_min, new_scale) = (0.0, sum_xl / sum_l2);
        }
        let new_error = error(new_scale, new_min, &other);
        if new_error < best {
            (best, scale, min, q) = (new_error, new_scale, new_min, other);
        }
    }
    Affine { scale, min: -min, q }
}

/// Writes the scales of a block of Q4_K or Q5_K; returns the elements as unsigned integers.
fn affine_block(x: &[f32], block: &mut [u8], most: i32, low: f32, steps: i32) -> [u8; 256] {
    let mut groups: [Affine; 8] = std::array::from_fn(|j| {
        let x = &x[32 * j..32 * (j + 1)];
        let norm = (x.iter().fold(0.0f32, |sum, x| sum + x * x) / 32.0).sqrt();
        affine(x, &std::array::from_fn(|n| norm + x[n].abs()), most, low, steps)
    });
    let max_scale = groups.iter().fold(0.0f32, |max, group| max.max(group.scale));
    let max_min = groups.iter().fold(0.0f32, |max, group| max.max(group.min));
    let of = |max: f32| if max > 0.0 { 63.0 / max } else { 0.0 };
    let (scale_inverse, min_inverse) = (of(max_scale), of(max_min));
    set_half(block, 0, max_scale / 63.0);
    set_half(block, 2, max_min / 63.0);
    let (d, dmin) = (half(block, 0), half(block, 2));
    let scales = &mut block[4..16];
    for (j, group) in groups.iter().enumerate() {
        let scale = (nearest(scale_inverse * group.scale) as u8).min(63);
        let min = (nearest(min_inverse * group.min) as u8).min(63);
        if j < 4 {
            (scales[j], scales[j + 4]) = (scale, min);
        } else {
            scales[j + 4] = scale & 15 | (min & 15) << 4;
            scales[j - 4] |= scale >> 4 << 6;
            scales[j] |= min >> 4 << 6;
        }
    }
    for (j, group) in groups.iter_mut().enumerate() {
        let (scale, min) = scale_min(scales, j);
        let (scale, min) = (d * f32::from(scale), dmin * f32::from(min));
        if scale != 0.0 {
            group.q = std::array::from_fn(|n| nearest((x[32 * j + n] + min) / scale).clamp(0, most) as u8);
        }
    }
    std::array::from_fn(|n| groups[n / 32].q[n % 32])
}

/// Writes the low four bits of 256 elements: each 32 bytes hold 64 elements, the low nibbles first.
fn set_nibbles_of_64(q: &[u8; 256], nibbles: &mut [u8]) {
    for (n, byte) in nibbles.iter_mut().enumerate() {
        let at = n / 32 * 64 + n % 32;
        *byte = q[at] & 15 | (q[at + 32] & 15) << 4;
    }
}

pub fn q4_k(x: &[f32], block: &mut [u8]) {
    let q = affine_block(x, block, 15, -1.0, 20);
    set_nibbles_of_64(&q, &mut block[16..]);
}

pub fn q5_k(x: &[f32], block: &mut [u8]) {
    let q = affine_block(x, block, 31, -0.5, 15);
    for (n, byte) in block[16..48].iter_mut().enumerate() {
        *byte = (0..8).fold(0, |bits, j| bits | (q[32 * j + n] >> 4) << j);
    }
    set_nibbles_of_64(&q, &mut block[48..]);
}

/// Returns the scale of 16 elements with the least squared error, weighted by their squares, and the elements as unsigned integers with the
/// offset 32.
fn symmetric(x: &[f32]) -> (f32, [u8; 16]) {
    let max = max_magnitude(x);
    if max.abs() < GROUP_EPSILON {
        return (0.0, [0; 16]);
    }
    let rounded = |inverse: f32| -> [i32; 16] { std::array::from_fn(|n| nearest(inverse * x[n]).clamp(-32, 31)) };
    let sums = |q: &[i32; 16]| {
        x.iter().zip(q).fold((0.0f32, 0.0f32), |(xl, l2), (x, q)| {
            let (w, l) = (x * x, *q as f32);
            (xl + w * x * l, l2 + w * l * l)
        })
    };
    let mut q = rounded(-32.0 / max);
    let (sum_xl, sum_l2) = sums(&q);
    let mut scale = if sum_l2 == 0.0 { 0.0 } else { sum_xl / sum_l2 };
    let mut best = scale * sum_xl;
    for step in (-9..=9).filter(|step| *step != 0) {
        let other = rounded(-(32.0 + 0.1 * step as f32) / max);
        let (sum_xl, sum_l2) = sums(&other);
        if sum_l2 > 0.0 && sum_xl * sum_xl > best * sum_l2 {
            (q, scale) = (other, sum_xl / sum_l2);
            best = scale * sum_xl;
        }
    }
    (scale, q.map(|q| (q + 32) as u8))
}

pub fn q6_k(x: &[f32], block: &mut [u8]) {
    let mut groups: [(f32, [u8; 16]); 16] = std::array::from_fn(|j| symmetric(&x[16 * j..16 * (j + 1)]));
    let scales: [f32; 16] = std::array::from_fn(|j| groups[j].0);
    let max_scale = max_magnitude(&scales);
    if max_scale.abs() < GROUP_EPSILON {
        return block.fill(0);
    }
    let inverse = -128.0 / max_scale;
    set_half(block, 208, 1.0 / inverse);
    let d = half(block, 208);
    for (j, (scale, q)) in groups.iter_mut().enumerate() {
        let rounded = nearest(inverse * *scale).min(127) as i8;
        block[192 + j] = rounded as u8;
        let scale = d * f32::from(rounded);
        if scale != 0.0 {
            *q = std::array::from_fn(|n| (nearest(x[16 * j + n] / scale).clamp(-32, 31) + 32) as u8);
        }
    }
    let q = |n: usize| groups[n / 16].1[n % 16];
    for (n, byte) in block[..128].iter_mut().enumerate() {
        // 128 elements at a time: 64 low nibbles, then 64 high nibbles.
        let at = n / 64 * 128 + n % 64;
        *byte = q(at) & 15 | (q(at + 64) & 15) << 4;
    }
    for n in 0..64 {
        let at = n / 32 * 128 + n % 32;
        block[128 + n] = (0..4).fold(0, |bits, quarter| bits | (q(at + 32 * quarter) >> 4) << (2 * quarter));
    }
}
