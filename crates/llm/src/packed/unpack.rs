//! Decoding of packed rows as tensor expressions.

use panoply_ir::Encoding;
use panoply_tensor::{DType, Tensor};

use super::codebook;

/// Decodes rows to f32 `[rows, k]`, with the same order of f32 operations as [`Encoding::decode`].
///
/// `codebook` is that of [`Encoding::codebook`], if the encoding has one: i8 `[vectors, width]`, or `[vectors]` for a width of one.
pub(super) fn unpack(weight: &Tensor, codebook: Option<&Tensor>, encoding: Encoding, k: usize) -> Tensor {
    let block = || Blocks(weight.unflatten(-1, &[k / encoding.block_elems(), encoding.block_bytes()]));
    let codebook = || codebook.expect("a weight in an encoding with a codebook comes with it");
    let values = match encoding {
        Encoding::F32 | Encoding::F16 | Encoding::BF16 => return weight.cast(DType::F32),
        Encoding::Q4_0 => q4_0(&block()),
        Encoding::Q4_1 => q4_1(&block()),
        Encoding::Q5_0 => q5_0(&block()),
        Encoding::Q5_1 => q5_1(&block()),
        Encoding::Q8_0 => q8_0(&block()),
        Encoding::Q2K => q2_k(&block()),
        Encoding::Q3K => q3_k(&block()),
        Encoding::Q4K => q4_k(&block()),
        Encoding::Q5K => q5_k(&block()),
        Encoding::Q6K => q6_k(&block()),
        Encoding::IQ2Xxs => codebook::iq2_xxs(&block(), codebook()),
        Encoding::IQ2Xs => codebook::iq2_xs(&block(), codebook()),
        Encoding::IQ2S => codebook::iq2_s(&block(), codebook()),
        Encoding::IQ3Xxs => codebook::iq3_xxs(&block(), codebook()),
        Encoding::IQ3S => codebook::iq3_s(&block(), codebook()),
        Encoding::IQ1S => codebook::iq1_s(&block(), codebook()),
        Encoding::IQ1M => codebook::iq1_m(&block(), codebook()),
        Encoding::IQ4Nl => codebook::iq4_nl(&block(), codebook()),
        Encoding::IQ4Xs => codebook::iq4_xs(&block(), codebook()),
        Encoding::TQ1_0 => tq1_0(&block()),
        Encoding::TQ2_0 => tq2_0(&block()),
        Encoding::MXFP4 => codebook::mxfp4(&block(), codebook()),
        Encoding::NVFP4 => codebook::nvfp4(&block(), codebook()),
    };
    values.flatten(-2, -1)
}

/// Rows divided into blocks, u8 `[rows, blocks, block bytes]`.
pub(super) struct Blocks(Tensor);

impl Blocks {
    /// Returns bytes as i32, `[rows, blocks, count]`.
    pub fn bytes(&self, start: usize, count: usize) -> Tensor {
        self.0.narrow(-1, start, count).cast(DType::I32)
    }

    /// Returns signed bytes as f32, `[rows, blocks, count]`.
    pub fn signed(&self, start: usize, count: usize) -> Tensor {
        self.0.narrow(-1, start, count).bitcast(DType::I8).cast(DType::F32)
    }

    /// Returns an f16 as f32, `[rows, blocks, 1]`.
    pub fn half(&self, start: usize) -> Tensor {
        half_of_bits(&self.words(start, 1))
    }

    /// Returns 16-bit words as i32, `[rows, blocks, count]`.
    pub fn words(&self, start: usize, count: usize) -> Tensor {
        let pairs = self.bytes(start, 2 * count).unflatten(-1, &[count, 2]);
        let byte = |at| pairs.narrow(-1, at, 1).squeeze(-1);
        byte(0) + byte(1) * 256.0
    }
}

/// Returns `count` bits of integers, starting at bit `shift`.
pub(super) fn bits(x: &Tensor, shift: i32, count: u32) -> Tensor {
    let shifted = if shift == 0 { x.clone() } else { x.bitwise_right_shift(&Tensor::full([], shift)) };
    shifted.bitwise_and(&Tensor::full([], (1i32 << count) - 1))
}

/// Returns the low and then the high nibbles of bytes `[…, n]`, as `[…, 2 n]`.
pub(super) fn nibbles(bytes: &Tensor) -> Tensor {
    Tensor::concat(&[bits(bytes, 0, 4), bits(bytes, 4, 4)], -1)
}

/// Returns the f16 in the low 16 bits of an i32, as f32.
pub(super) fn half_of_bits(bits: &Tensor) -> Tensor {
    bits.cast(DType::U16).bitcast(DType::F16).cast(DType::F32)
}

/// Returns the bits of bytes `[…, n]`, the lowest first: `[…, n, 8]`.
pub(super) fn byte_bits(bytes: &Tensor) -> Tensor {
    let shifts = Tensor::arange(8);
    bytes.unsqueeze(-1).bitwise_right_shift(&shifts).bitwise_and(&Tensor::full([], 1i32))
}

/// Returns the bits of bytes in one axis, `[…, n]` to `[…, 8 n]`.
fn word_bits(bytes: &Tensor) -> Tensor {
    byte_bits(bytes).flatten(-2, -1)
}

/// Returns elements `[…, groups · size]` as f32 `[…, groups, size]`.
fn grouped(x: &Tensor, groups: usize, size: usize) -> Tensor {
    x.cast(DType::F32).unflatten(-1, &[groups, size])
}

fn q4_0(block: &Blocks) -> Tensor {
    block.half(0) * (nibbles(&block.bytes(2, 16)).cast(DType::F32) - 8.0)
}

fn q4_1(block: &Blocks) -> Tensor {
    block.half(0) * nibbles(&block.bytes(4, 16)).cast(DType::F32) + block.half(2)
}

fn q5_0(block: &Blocks) -> Tensor {
    let q = nibbles(&block.bytes(6, 16)) + word_bits(&block.bytes(2, 4)) * 16.0;
    block.half(0) * (q.cast(DType::F32) - 16.0)
}

fn q5_1(block: &Blocks) -> Tensor {
    let q = nibbles(&block.bytes(8, 16)) + word_bits(&block.bytes(4, 4)) * 16.0;
    block.half(0) * q.cast(DType::F32) + block.half(2)
}

fn q8_0(block: &Blocks) -> Tensor {
    block.half(0) * block.signed(2, 32)
}

/// Returns the 2-bit values of bytes `[…, 32 · halves]` in the order of the elements, `[…, 128 · halves]`.
fn two_bit_values(bytes: &Tensor, halves: usize) -> Tensor {
    let parts = bytes.unflatten(-1, &[halves, 32]);
    let groups = [0, 2, 4, 6].map(|shift| bits(&parts, shift, 2));
    Tensor::stack(&groups, -2).flatten(-3, -1)
}

fn q2_k(block: &Blocks) -> Tensor {
    let scales = block.bytes(0, 16);
    let scale = block.half(80) * bits(&scales, 0, 4).cast(DType::F32);
    let min = block.half(82) * bits(&scales, 4, 4).cast(DType::F32);
    let q = grouped(&two_bit_values(&block.bytes(16, 64), 2), 16, 16);
    (scale.unsqueeze(-1) * q - min.unsqueeze(-1)).flatten(-2, -1)
}

fn q3_k(block: &Blocks) -> Tensor {
    let (low, high) = (nibbles(&block.bytes(96, 8)), block.bytes(104, 4));
    let high = Tensor::concat([0, 2, 4, 6].map(|shift| bits(&high, shift, 2)), -1);
    let scale = block.half(108) * ((low + high * 16.0).cast(DType::F32) - 32.0);
    // Bit j of the 32 bytes belongs to the j-th group of 32 elements.
    let shifts = Tensor::arange(8).unsqueeze(-1);
    let is_high = block.bytes(0, 32).unsqueeze(-2).bitwise_right_shift(&shifts).bitwise_and(&Tensor::full([], 1i32));
    let q = two_bit_values(&block.bytes(32, 64), 2) + is_high.flatten(-2, -1) * 4.0;
    (scale.unsqueeze(-1) * (grouped(&q, 16, 16) - 4.0)).flatten(-2, -1)
}

/// Returns the scales and minimums of 8 sub-blocks from 12 bytes at `start`, times d and dmin: f32 `[rows, blocks, 8, 1]` each.
fn scales_and_minimums(block: &Blocks, start: usize) -> [Tensor; 2] {
    let part = |n: usize| block.bytes(start + 4 * n, 4);
    let (a, b, c) = (part(0), part(1), part(2));
    let joined = |first: &Tensor, nibble: Tensor| {
        Tensor::concat(&[bits(first, 0, 6), nibble + bits(first, 6, 2) * 16.0], -1).cast(DType::F32)
    };
    let scale = block.half(0) * joined(&a, bits(&c, 0, 4));
    let min = block.half(2) * joined(&b, bits(&c, 4, 4));
    [scale.unsqueeze(-1), min.unsqueeze(-1)]
}

/// Returns the nibbles of 128 bytes in the order of 256 elements: each 32 bytes hold 64 elements, the low nibbles first.
fn nibbles_of_64(bytes: &Tensor) -> Tensor {
    nibbles(&bytes.unflatten(-1, &[4, 32])).flatten(-2, -1)
}

fn q4_k(block: &Blocks) -> Tensor {
    let [scale, min] = scales_and_minimums(block, 4);
    (scale * grouped(&nibbles_of_64(&block.bytes(16, 128)), 8, 32) - min).flatten(-2, -1)
}

fn q5_k(block: &Blocks) -> Tensor {
    let [scale, min] = scales_and_minimums(block, 4);
    let shifts = Tensor::arange(8).unsqueeze(-1);
    let high = block.bytes(16, 32).unsqueeze(-2).bitwise_right_shift(&shifts).bitwise_and(&Tensor::full([], 1i32));
    let q = nibbles_of_64(&block.bytes(48, 128)) + high.flatten(-2, -1) * 16.0;
    (scale * grouped(&q, 8, 32) - min).flatten(-2, -1)
}

fn q6_k(block: &Blocks) -> Tensor {
    let scale = block.half(208) * block.signed(192, 16);
    // 128 elements at a time: 64 low nibbles, then 64 high nibbles.
    let low = nibbles(&block.bytes(0, 128).unflatten(-1, &[2, 64])).flatten(-2, -1);
    let q = low + two_bit_values(&block.bytes(128, 64), 2) * 16.0;
    (scale.unsqueeze(-1) * (grouped(&q, 16, 16) - 32.0)).flatten(-2, -1)
}

/// Returns the base-3 digits of bytes `[…, n]`, the highest digit first: `[…, digits · n]`. A byte is the number of its digits scaled from
/// 0 .. 243 to 0 .. 256.
fn trits(bytes: &Tensor, digits: i32) -> Tensor {
    let powers = (0..digits).map(|digit| bytes * f64::from(3i32.pow(digit as u32)));
    let fractions = bits(&Tensor::stack(powers.collect::<Vec<_>>(), -2).flatten(-2, -1), 0, 8);
    bits(&(fractions * 3.0), 8, 2)
}

fn tq1_0(block: &Blocks) -> Tensor {
    let parts = [trits(&block.bytes(0, 32), 5), trits(&block.bytes(32, 16), 5), trits(&block.bytes(48, 4), 4)];
    block.half(52) * (Tensor::concat(&parts, -1).cast(DType::F32) - 1.0)
}

fn tq2_0(block: &Blocks) -> Tensor {
    block.half(64) * (two_bit_values(&block.bytes(0, 64), 2).cast(DType::F32) - 1.0)
}
