//! Scalar decoders of blocks whose elements are small integers with scales.
//!
//! Source: ggml-quants.c of llama.cpp, `dequantize_row_*`.

use half::f16;

/// Returns an f16 at a byte.
pub fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Returns nibble `n` of 16 bytes: the low halves are elements 0 to 15, the high halves 16 to 31.
pub fn nibble(bytes: &[u8], n: usize) -> u8 {
    (bytes[n % 16] >> (4 * (n / 16))) & 15
}

/// Returns bit `n` of little-endian bytes.
pub fn bit(bytes: &[u8], n: usize) -> u8 {
    (bytes[n / 8] >> (n % 8)) & 1
}

pub fn q4_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (n, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(nibble(&block[2..], n) as i8 - 8);
    }
}

pub fn q4_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    for (n, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(nibble(&block[4..], n)) + m;
    }
}

pub fn q5_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (n, out) in out.iter_mut().enumerate() {
        let q = nibble(&block[6..], n) | bit(&block[2..6], n) << 4;
        *out = d * f32::from(q as i8 - 16);
    }
}

pub fn q5_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    for (n, out) in out.iter_mut().enumerate() {
        let q = nibble(&block[8..], n) | bit(&block[4..8], n) << 4;
        *out = d * f32::from(q) + m;
    }
}

pub fn q8_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (out, q) in out.iter_mut().zip(&block[2..]) {
        *out = d * f32::from(*q as i8);
    }
}

/// Returns the two bits of element `n`; each 32 bytes hold four groups of 32 elements.
pub fn crumb(bytes: &[u8], n: usize) -> u8 {
    (bytes[n / 128 * 32 + n % 32] >> (2 * (n / 32 % 4))) & 3
}

pub fn q2_k(block: &[u8], out: &mut [f32]) {
    let (scales, qs) = (&block[..16], &block[16..80]);
    let (d, dmin) = (half(block, 80), half(block, 82));
    for (n, out) in out.iter_mut().enumerate() {
        let scale = scales[n / 16];
        *out = d * f32::from(scale & 15) * f32::from(crumb(qs, n)) - dmin * f32::from(scale >> 4);
    }
}

pub fn q3_k(block: &[u8], out: &mut [f32]) {
    let (high, qs, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let d = half(block, 108);
    for (n, out) in out.iter_mut().enumerate() {
        let group = n / 16;
        let low = (scales[group % 8] >> (4 * (group / 8))) & 15;
        let scale = low | ((scales[8 + group % 4] >> (2 * (group / 4))) & 3) << 4;
        let is_high = (high[n % 32] >> (n / 32)) & 1;
        let q = crumb(qs, n) as i8 - 4 * (1 - is_high as i8);
        *out = d * f32::from(scale as i8 - 32) * f32::from(q);
    }
}

/// Returns the 6-bit scale and minimum of sub-block `j` of 8, packed in 12 bytes.
pub fn scale_min(scales: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        return (scales[j] & 63, scales[j + 4] & 63);
    }
    (scales[j + 4] & 15 | scales[j - 4] >> 6 << 4, scales[j + 4] >> 4 | scales[j] >> 6 << 4)
}

/// Returns the nibble of element `n`; each 32 bytes hold 64 elements, the low halves first.
fn nibble_of_64(qs: &[u8], n: usize) -> u8 {
    (qs[n / 64 * 32 + n % 32] >> (4 * (n / 32 % 2))) & 15
}

pub fn q4_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half(block, 0), half(block, 2));
    for (n, out) in out.iter_mut().enumerate() {
        let (scale, min) = scale_min(&block[4..16], n / 32);
        *out = d * f32::from(scale) * f32::from(nibble_of_64(&block[16..], n)) - dmin * f32::from(min);
    }
}

pub fn q5_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half(block, 0), half(block, 2));
    let (high, qs) = (&block[16..48], &block[48..]);
    for (n, out) in out.iter_mut().enumerate() {
        let (scale, min) = scale_min(&block[4..16], n / 32);
        let q = nibble_of_64(qs, n) | ((high[n % 32] >> (n / 32)) & 1) << 4;
        *out = d * f32::from(scale) * f32::from(q) - dmin * f32::from(min);
    }
}

pub fn q6_k(block: &[u8], out: &mut [f32]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = half(block, 208);
    for (n, out) in out.iter_mut().enumerate() {
        // 128 elements at a time, in quarters of 32: the first two are low nibbles, the last two high nibbles.
        let (part, quarter, l) = (n / 128, n / 32 % 4, n % 32);
        let nibble = (low[part * 64 + quarter % 2 * 32 + l] >> (4 * (quarter / 2))) & 15;
        let q = nibble | ((high[part * 32 + l] >> (2 * quarter)) & 3) << 4;
        *out = d * f32::from(scales[n / 16] as i8) * f32::from(q as i8 - 32);
    }
}

/// Multiplies a block's scale with the trits of `qs` and `qh`: a byte holds five of them as a fraction of 243, times 256.
pub fn tq1_0(block: &[u8], out: &mut [f32]) {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    let d = half(block, 52);
    for (n, out) in out.iter_mut().enumerate() {
        let (byte, power) = match n {
            0..160 => (n % 32, n / 32),
            160..240 => (32 + n % 16, (n - 160) / 16),
            _ => (48 + n % 4, (n - 240) / 4),
        };
        let trit = (u16::from(block[byte].wrapping_mul(POWERS[power])) * 3) >> 8;
        *out = d * (f32::from(trit) - 1.0);
    }
}

pub fn tq2_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 64);
    for (n, out) in out.iter_mut().enumerate() {
        *out = d * (f32::from(crumb(block, n)) - 1.0);
    }
}

/// Values of the nibbles of IQ4_NL and IQ4_XS.
pub const IQ4_LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// Twice the values of the nibbles of MXFP4 and NVFP4, which are floats of two exponent bits and one mantissa bit (OCP Microscaling Formats).
pub const FP4_LEVELS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

pub fn iq4_nl(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (n, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(IQ4_LEVELS[usize::from(nibble(&block[2..], n))]);
    }
}

pub fn iq4_xs(block: &[u8], out: &mut [f32]) {
    let (d, high, low) = (half(block, 0), [block[2], block[3]], &block[4..8]);
    let high = u16::from_le_bytes(high);
    for (j, out) in out.chunks_exact_mut(32).enumerate() {
        let scale = (low[j / 2] >> (4 * (j % 2))) & 15 | (((high >> (2 * j)) & 3) as u8) << 4;
        let d = d * f32::from(scale as i8 - 32);
        for (n, out) in out.iter_mut().enumerate() {
            *out = d * f32::from(IQ4_LEVELS[usize::from(nibble(&block[8 + 16 * j..], n))]);
        }
    }
}

/// Returns half of the power of two that a byte stands for (E8M0), as the levels are doubled.
fn half_power(exponent: u8) -> f32 {
    let bits = if exponent < 2 { 0x0020_0000 << exponent } else { (u32::from(exponent) - 1) << 23 };
    f32::from_bits(bits)
}

pub fn mxfp4(block: &[u8], out: &mut [f32]) {
    let d = half_power(block[0]);
    for (n, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(FP4_LEVELS[usize::from(nibble(&block[1..], n))]);
    }
}

/// Returns half of an unsigned float of four exponent bits and three mantissa bits (E4M3); zero for NaN, as in ggml.
fn half_e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = ((byte >> 3) & 15, f32::from(byte & 7));
    match (byte, exponent) {
        (0x7f, _) => 0.0,
        (_, 0) => mantissa / 1024.0,
        _ => (8.0 + mantissa) * f32::from_bits((u32::from(exponent) + 127 - 11) << 23),
    }
}

pub fn nvfp4(block: &[u8], out: &mut [f32]) {
    for (j, out) in out.chunks_exact_mut(16).enumerate() {
        let (d, qs) = (half_e4m3(block[j]), &block[4 + 8 * j..12 + 8 * j]);
        for (n, out) in out.iter_mut().enumerate() {
            *out = d * f32::from(FP4_LEVELS[usize::from((qs[n % 8] >> (4 * (n / 8))) & 15)]);
        }
    }
}
