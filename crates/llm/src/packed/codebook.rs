//! Decoding of blocks that contain indices into a codebook, as tensor expressions.
//!
//! The f32 operations have the order of the scalar decoders in `panoply_ir::quant`.

use panoply_tensor::{DType, Tensor};

use super::unpack::{Blocks, bits, byte_bits, half_of_bits, nibbles};

/// Returns the values of indices.
fn levels(codebook: &Tensor, indices: &Tensor) -> Tensor {
    codebook.index_select(0, indices).cast(DType::F32)
}

/// Returns fields of `count` bits at equal distances of words `[…]`: `[…, fields]`.
fn fields(words: &Tensor, fields: usize, distance: usize, count: u32) -> Tensor {
    let shifts = Tensor::arange(fields) * distance as f64;
    bits(&words.unsqueeze(-1).bitwise_right_shift(&shifts), 0, count)
}

/// Returns the nibbles of bytes, those of a byte side by side: `[…, n]` to `[…, 2 n]`.
fn nibble_pairs(bytes: &Tensor) -> Tensor {
    fields(bytes, 2, 4, 4).flatten(-2, -1)
}

/// Returns 32-bit words from bytes `[…, 4]`: `[…]`.
fn words(bytes: &Tensor) -> Tensor {
    let byte = |n: usize| bytes.narrow(-1, n, 1).squeeze(-1).bitwise_left_shift(&Tensor::full([], 8 * n as i32));
    byte(0).bitwise_or(&byte(1)).bitwise_or(&byte(2)).bitwise_or(&byte(3))
}

/// Returns bytes of eight sign bits from seven of them: the number of minus signs is even.
fn even_signs(seven: &Tensor) -> Tensor {
    let folded = |x: &Tensor, by: i32| x.bitwise_xor(&x.bitwise_right_shift(&Tensor::full([], by)));
    let parity = bits(&folded(&folded(&folded(seven, 4), 2), 1), 0, 1);
    seven + parity * 128.0
}

/// Returns vectors of a codebook with signs and scales: scales f32 `[rows, blocks, groups]`, indices `[rows, blocks, groups, n]`, signs as
/// bytes of eight `[rows, blocks, groups, m]`.
fn signed(codebook: &Tensor, scales: &Tensor, indices: &Tensor, signs: &Tensor, [n, width]: [usize; 2]) -> Tensor {
    let magnitudes = scales.unsqueeze(-1).unsqueeze(-1) * levels(codebook, indices);
    let signs = byte_bits(signs).flatten(-2, -1).unflatten(-1, &[n, width]).cast(DType::F32);
    (magnitudes * (signs * -2.0 + 1.0)).flatten(-3, -1)
}

/// Returns d · (½ + x) · factor.
fn half_steps(block: &Blocks, x: &Tensor, factor: f64) -> Tensor {
    block.half(0) * (x.cast(DType::F32) + 0.5) * factor
}

pub fn iq2_xxs(block: &Blocks, codebook: &Tensor) -> Tensor {
    let parts = block.bytes(2, 64).unflatten(-1, &[8, 8]);
    let high = words(&parts.narrow(-1, 4, 4));
    let scales = half_steps(block, &bits(&high, 28, 4), 0.25);
    signed(codebook, &scales, &parts.narrow(-1, 0, 4), &even_signs(&fields(&high, 4, 7, 7)), [4, 8])
}

pub fn iq2_xs(block: &Blocks, codebook: &Tensor) -> Tensor {
    let words = block.words(2, 32).unflatten(-1, &[16, 2]);
    let scales = half_steps(block, &nibble_pairs(&block.bytes(66, 8)), 0.25);
    signed(codebook, &scales, &bits(&words, 0, 9), &even_signs(&bits(&words, 9, 7)), [2, 8])
}

pub fn iq2_s(block: &Blocks, codebook: &Tensor) -> Tensor {
    let high = fields(&block.bytes(66, 8), 4, 2, 2).flatten(-2, -1);
    let indices = (block.bytes(2, 32) + high * 256.0).unflatten(-1, &[16, 2]);
    let scales = half_steps(block, &nibble_pairs(&block.bytes(74, 8)), 0.25);
    signed(codebook, &scales, &indices, &block.bytes(34, 32).unflatten(-1, &[16, 2]), [2, 8])
}

pub fn iq3_xxs(block: &Blocks, codebook: &Tensor) -> Tensor {
    let words = words(&block.bytes(66, 32).unflatten(-1, &[8, 4]));
    let scales = half_steps(block, &bits(&words, 28, 4), 0.5);
    let indices = block.bytes(2, 64).unflatten(-1, &[8, 8]);
    signed(codebook, &scales, &indices, &even_signs(&fields(&words, 4, 7, 7)), [8, 4])
}

pub fn iq3_s(block: &Blocks, codebook: &Tensor) -> Tensor {
    let high = byte_bits(&block.bytes(66, 8)).flatten(-2, -1);
    let indices = (block.bytes(2, 64) + high * 256.0).unflatten(-1, &[8, 8]);
    let scales = block.half(0) * (nibble_pairs(&block.bytes(106, 4)).cast(DType::F32) * 2.0 + 1.0);
    signed(codebook, &scales, &indices, &block.bytes(74, 32).unflatten(-1, &[8, 4]), [8, 4])
}

/// Returns d · (2 x + 1).
fn odd_steps(d: &Tensor, x: &Tensor) -> Tensor {
    d * (x.cast(DType::F32) * 2.0 + 1.0)
}

/// Returns an eighth, negative where the bit is one.
fn eighths(bits: &Tensor) -> Tensor {
    bits.cast(DType::F32) * -0.25 + 0.125
}

pub fn iq1_s(block: &Blocks, codebook: &Tensor) -> Tensor {
    let words = block.words(34, 8);
    let indices = block.bytes(2, 32).unflatten(-1, &[8, 4]) + fields(&words, 4, 3, 3) * 256.0;
    let scales = odd_steps(&block.half(0), &bits(&words, 12, 3)).unsqueeze(-1).unsqueeze(-1);
    let shifts = eighths(&bits(&words, 15, 1)).unsqueeze(-1).unsqueeze(-1);
    (scales * (levels(codebook, &indices) + shifts)).flatten(-3, -1)
}

pub fn iq1_m(block: &Blocks, codebook: &Tensor) -> Tensor {
    let high = nibble_pairs(&block.bytes(32, 16));
    let indices = (block.bytes(0, 32) + bits(&high, 0, 3) * 256.0).unflatten(-1, &[16, 2]);
    let shifts = eighths(&bits(&high, 3, 1)).unflatten(-1, &[16, 2]).unsqueeze(-1);
    let words = block.words(48, 4);
    let nibble = |n: usize| bits(&words.narrow(-1, n, 1), 12, 4) * f64::from(1 << (4 * n));
    let d = half_of_bits(&(nibble(0) + nibble(1) + nibble(2) + nibble(3)));
    let scales = odd_steps(&d, &fields(&words, 4, 3, 3).flatten(-2, -1)).unsqueeze(-1).unsqueeze(-1);
    (scales * (levels(codebook, &indices) + shifts)).flatten(-3, -1)
}

pub fn iq4_nl(block: &Blocks, codebook: &Tensor) -> Tensor {
    block.half(0) * levels(codebook, &nibbles(&block.bytes(2, 16)))
}

pub fn iq4_xs(block: &Blocks, codebook: &Tensor) -> Tensor {
    let high = fields(&block.words(2, 1), 8, 2, 2).flatten(-2, -1);
    let scales = (nibble_pairs(&block.bytes(4, 4)) + high * 16.0).cast(DType::F32) - 32.0;
    let scales = (block.half(0) * scales).unsqueeze(-1);
    (scales * levels(codebook, &nibbles(&block.bytes(8, 128).unflatten(-1, &[8, 16])))).flatten(-2, -1)
}

pub fn mxfp4(block: &Blocks, codebook: &Tensor) -> Tensor {
    let exponent = block.bytes(0, 1);
    // Half of a power of two: below 2 it is subnormal.
    let subnormal = &exponent * 2_097_152.0 + 2_097_152.0;
    let normal = (&exponent - 1.0).bitwise_left_shift(&Tensor::full([], 23i32));
    let is_subnormal = exponent.lt(&Tensor::full([], 2i32));
    let d = subnormal.where_self(&is_subnormal, &normal).bitcast(DType::F32);
    d * levels(codebook, &nibbles(&block.bytes(1, 16)))
}

pub fn nvfp4(block: &Blocks, codebook: &Tensor) -> Tensor {
    let bytes = block.bytes(0, 4);
    let (exponent, mantissa) = (bits(&bytes, 3, 4), bits(&bytes, 0, 3).cast(DType::F32));
    let power = (&exponent + 116.0).bitwise_left_shift(&Tensor::full([], 23i32)).bitcast(DType::F32);
    let subnormal = &mantissa * (1.0 / 1024.0);
    let d = subnormal.where_self(&exponent.eq(&Tensor::full([], 0i32)), &((&mantissa + 8.0) * power));
    // The byte of NaN counts as zero, as in ggml.
    let d = Tensor::full([], 0.0f32).where_self(&bytes.eq(&Tensor::full([], 127i32)), &d).unsqueeze(-1);
    (d * levels(codebook, &nibbles(&block.bytes(4, 32).unflatten(-1, &[4, 8])))).flatten(-2, -1)
}
