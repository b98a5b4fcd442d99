//! Scalar decoders of the IQ encodings: blocks of indices into codebooks, with signs and scales.
//!
//! Source: ggml-quants.c of llama.cpp, `dequantize_row_iq*`.

use super::codebooks::{self, Codebook};
use super::decode::{bit, half};

fn word16(bytes: &[u8], n: usize) -> u16 {
    u16::from_le_bytes([bytes[2 * n], bytes[2 * n + 1]])
}

fn word32(bytes: &[u8], n: usize) -> u32 {
    u32::from(word16(bytes, 2 * n)) | u32::from(word16(bytes, 2 * n + 1)) << 16
}

/// Returns nibble `n` of bytes, the low one of a byte first.
fn nibble(bytes: &[u8], n: usize) -> f32 {
    f32::from((bytes[n / 2] >> (4 * (n % 2))) & 15)
}

/// Returns the signs of eight elements from seven of them: the number of minus signs is even.
fn even_signs(seven: u32) -> u8 {
    let seven = (seven & 127) as u8;
    seven | ((seven.count_ones() as u8) & 1) << 7
}

/// Decodes a vector of a codebook, with bit n of `signs` set if element n is negative.
fn signed(codebook: &Codebook, index: usize, scale: f32, signs: u8, out: &mut [f32]) {
    for (n, out) in out.iter_mut().enumerate() {
        let magnitude = scale * f32::from(codebook.element(index, n));
        *out = if bit(&[signs], n) == 1 { -magnitude } else { magnitude };
    }
}

pub fn iq2_xxs(block: &[u8], out: &mut [f32]) {
    let (d, words) = (half(block, 0), &block[2..]);
    for (n, out) in out.chunks_exact_mut(8).enumerate() {
        let (j, l) = (n / 4, n % 4);
        let high = word32(words, 2 * j + 1);
        let scale = d * (0.5 + (high >> 28) as f32) * 0.25;
        signed(&codebooks::IQ2_XXS, words[8 * j + l].into(), scale, even_signs(high >> (7 * l)), out);
    }
}

pub fn iq2_xs(block: &[u8], out: &mut [f32]) {
    let (d, words, scales) = (half(block, 0), &block[2..66], &block[66..]);
    for (n, out) in out.chunks_exact_mut(8).enumerate() {
        let word = word16(words, n);
        let scale = d * (0.5 + nibble(scales, n / 2)) * 0.25;
        signed(&codebooks::IQ2_XS, (word & 511).into(), scale, even_signs((word >> 9).into()), out);
    }
}

pub fn iq2_s(block: &[u8], out: &mut [f32]) {
    let (d, low, signs, high, scales) = (half(block, 0), &block[2..34], &block[34..66], &block[66..74], &block[74..]);
    for (n, out) in out.chunks_exact_mut(8).enumerate() {
        let index = usize::from(low[n]) | usize::from((high[n / 4] >> (2 * (n % 4))) & 3) << 8;
        let scale = d * (0.5 + nibble(scales, n / 2)) * 0.25;
        signed(&codebooks::IQ2_S, index, scale, signs[n], out);
    }
}

pub fn iq3_xxs(block: &[u8], out: &mut [f32]) {
    let (d, indices, words) = (half(block, 0), &block[2..66], &block[66..]);
    for (n, out) in out.chunks_exact_mut(4).enumerate() {
        let word = word32(words, n / 8);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.5;
        let signs = even_signs(word >> (7 * (n / 2 % 4))) >> (4 * (n % 2));
        signed(&codebooks::IQ3_XXS, indices[n].into(), scale, signs, out);
    }
}

pub fn iq3_s(block: &[u8], out: &mut [f32]) {
    let (d, low, high, signs, scales) = (half(block, 0), &block[2..66], &block[66..74], &block[74..106], &block[106..]);
    for (n, out) in out.chunks_exact_mut(4).enumerate() {
        let index = usize::from(low[n]) | usize::from(bit(high, n)) << 8;
        let scale = d * (1.0 + 2.0 * nibble(scales, n / 8));
        signed(&codebooks::IQ3_S, index, scale, signs[n / 2] >> (4 * (n % 2)), out);
    }
}

/// Decodes a vector of the codebook of IQ1, shifted by an eighth.
fn shifted(index: usize, scale: f32, is_down: bool, out: &mut [f32]) {
    let shift = if is_down { -0.125 } else { 0.125 };
    for (n, out) in out.iter_mut().enumerate() {
        *out = scale * (f32::from(codebooks::IQ1.element(index, n)) + shift);
    }
}

pub fn iq1_s(block: &[u8], out: &mut [f32]) {
    let (d, low, high) = (half(block, 0), &block[2..34], &block[34..]);
    for (n, out) in out.chunks_exact_mut(8).enumerate() {
        let word = word16(high, n / 4);
        let index = usize::from(low[n]) | usize::from((word >> (3 * (n % 4))) & 7) << 8;
        let scale = d * f32::from(2 * ((word >> 12) & 7) + 1);
        shifted(index, scale, word & 0x8000 != 0, out);
    }
}

/// The f16 scale is in the highest nibbles of the four words of scales.
pub fn iq1_m(block: &[u8], out: &mut [f32]) {
    let (low, high, scales) = (&block[..32], &block[32..48], &block[48..]);
    let bits = (0..4).fold(0, |bits, n| bits | (word16(scales, n) >> 12) << (4 * n));
    let d = half(&bits.to_le_bytes(), 0);
    for (n, out) in out.chunks_exact_mut(8).enumerate() {
        let nibble = (high[n / 2] >> (4 * (n % 2))) & 15;
        let index = usize::from(low[n]) | usize::from(nibble & 7) << 8;
        let scale = d * f32::from(2 * ((word16(scales, n / 8) >> (3 * (n / 2 % 4))) & 7) + 1);
        shifted(index, scale, nibble & 8 != 0, out);
    }
}
