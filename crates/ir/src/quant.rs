//! Encodings of quantized weights as in ggml files, and their scalar decoders.
//!
//! A packed row is a sequence of blocks. A block contains a fixed number of elements as small integers with shared scales. The decoders
//! are the reference: exact, one element at a time, with the same order of f32 operations as ggml. They are independent of files and
//! tensors; `llm` decodes on devices with tensor expressions that are compared with these.
//!
//! Source: ggml's block layouts (ggml-common.h, ggml-quants.c), as the Python package `gguf` documents and decodes them.

use half::{bf16, f16};

use crate::dtype::DType;

/// Encoding of the elements of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the variants are ggml's own names")]
pub enum Encoding {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

impl Encoding {
    /// All encodings, in the order of ggml's numbers within a family.
    pub const ALL: [Encoding; 13] = [
        Encoding::F32,
        Encoding::F16,
        Encoding::BF16,
        Encoding::Q4_0,
        Encoding::Q4_1,
        Encoding::Q5_0,
        Encoding::Q5_1,
        Encoding::Q8_0,
        Encoding::Q2K,
        Encoding::Q3K,
        Encoding::Q4K,
        Encoding::Q5K,
        Encoding::Q6K,
    ];

    /// The element type of an unquantized encoding; `None` for blocks of integers.
    pub fn float_dtype(self) -> Option<DType> {
        match self {
            Encoding::F32 => Some(DType::F32),
            Encoding::F16 => Some(DType::F16),
            Encoding::BF16 => Some(DType::BF16),
            Encoding::Q4_0
            | Encoding::Q4_1
            | Encoding::Q5_0
            | Encoding::Q5_1
            | Encoding::Q8_0
            | Encoding::Q2K
            | Encoding::Q3K
            | Encoding::Q4K
            | Encoding::Q5K
            | Encoding::Q6K => None,
        }
    }

    /// Returns ggml's name: `F16`, `Q4_0`, `Q4_K`.
    pub const fn name(self) -> &'static str {
        match self {
            Encoding::F32 => "F32",
            Encoding::F16 => "F16",
            Encoding::BF16 => "BF16",
            Encoding::Q4_0 => "Q4_0",
            Encoding::Q4_1 => "Q4_1",
            Encoding::Q5_0 => "Q5_0",
            Encoding::Q5_1 => "Q5_1",
            Encoding::Q8_0 => "Q8_0",
            Encoding::Q2K => "Q2_K",
            Encoding::Q3K => "Q3_K",
            Encoding::Q4K => "Q4_K",
            Encoding::Q5K => "Q5_K",
            Encoding::Q6K => "Q6_K",
        }
    }

    /// Returns ggml's number of the tensor type.
    pub const fn ggml_type(self) -> u32 {
        match self {
            Encoding::F32 => 0,
            Encoding::F16 => 1,
            Encoding::BF16 => 30,
            Encoding::Q4_0 => 2,
            Encoding::Q4_1 => 3,
            Encoding::Q5_0 => 6,
            Encoding::Q5_1 => 7,
            Encoding::Q8_0 => 8,
            Encoding::Q2K => 10,
            Encoding::Q3K => 11,
            Encoding::Q4K => 12,
            Encoding::Q5K => 13,
            Encoding::Q6K => 14,
        }
    }

    /// Returns the encoding with this ggml number, if it is supported.
    pub fn from_ggml_type(number: u32) -> Option<Encoding> {
        Encoding::ALL.into_iter().find(|encoding| encoding.ggml_type() == number)
    }

    /// Returns the number of elements of a block.
    pub const fn block_elems(self) -> usize {
        match self {
            Encoding::F32 | Encoding::F16 | Encoding::BF16 => 1,
            Encoding::Q4_0 | Encoding::Q4_1 | Encoding::Q5_0 | Encoding::Q5_1 | Encoding::Q8_0 => 32,
            Encoding::Q2K | Encoding::Q3K | Encoding::Q4K | Encoding::Q5K | Encoding::Q6K => 256,
        }
    }

    /// Returns the number of bytes of a block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Encoding::F32 => 4,
            Encoding::F16 | Encoding::BF16 => 2,
            Encoding::Q4_0 => 18,
            Encoding::Q4_1 => 20,
            Encoding::Q5_0 => 22,
            Encoding::Q5_1 => 24,
            Encoding::Q8_0 => 34,
            Encoding::Q2K => 84,
            Encoding::Q3K => 110,
            Encoding::Q4K => 144,
            Encoding::Q5K => 176,
            Encoding::Q6K => 210,
        }
    }

    /// Returns the bytes of a row of `k` elements; `None` if `k` is not a whole number of blocks or the result overflows.
    pub fn row_bytes(self, k: usize) -> Option<usize> {
        let whole = k.is_multiple_of(self.block_elems());
        whole.then(|| (k / self.block_elems()).checked_mul(self.block_bytes())).flatten()
    }

    /// Decodes whole blocks from `bytes` into `out`, which must have the same number of blocks.
    ///
    /// # Panics
    ///
    /// Panics if `bytes` and `out` do not have the same whole number of blocks.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        let (elems, size) = (self.block_elems(), self.block_bytes());
        assert_eq!(
            bytes.len() * elems,
            out.len() * size,
            "{}: bytes and elements have different numbers of blocks",
            self.name()
        );
        for (block, out) in bytes.chunks_exact(size).zip(out.chunks_exact_mut(elems)) {
            match self {
                Encoding::F32 => out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]),
                Encoding::F16 => out[0] = half(block, 0),
                Encoding::BF16 => out[0] = bf16::from_le_bytes([block[0], block[1]]).to_f32(),
                Encoding::Q4_0 => q4_0(block, out),
                Encoding::Q4_1 => q4_1(block, out),
                Encoding::Q5_0 => q5_0(block, out),
                Encoding::Q5_1 => q5_1(block, out),
                Encoding::Q8_0 => q8_0(block, out),
                Encoding::Q2K => q2_k(block, out),
                Encoding::Q3K => q3_k(block, out),
                Encoding::Q4K => q4_k(block, out),
                Encoding::Q5K => q5_k(block, out),
                Encoding::Q6K => q6_k(block, out),
            }
        }
    }
}

fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Returns nibble `n` of 16 bytes: the low halves are elements 0 to 15, the high halves 16 to 31.
fn nibble(bytes: &[u8], n: usize) -> u8 {
    (bytes[n % 16] >> (4 * (n / 16))) & 15
}

/// Returns bit `n` of a little-endian 32-bit word.
fn bit(bytes: &[u8], n: usize) -> u8 {
    (bytes[n / 8] >> (n % 8)) & 1
}

fn q4_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (n, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(nibble(&block[2..], n) as i8 - 8);
    }
}

fn q4_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    for (n, out) in out.iter_mut().enumerate() {
        *out = d * f32::from(nibble(&block[4..], n)) + m;
    }
}

fn q5_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (n, out) in out.iter_mut().enumerate() {
        let q = nibble(&block[6..], n) | bit(&block[2..6], n) << 4;
        *out = d * f32::from(q as i8 - 16);
    }
}

fn q5_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    for (n, out) in out.iter_mut().enumerate() {
        let q = nibble(&block[8..], n) | bit(&block[4..8], n) << 4;
        *out = d * f32::from(q) + m;
    }
}

fn q8_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (out, q) in out.iter_mut().zip(&block[2..]) {
        *out = d * f32::from(*q as i8);
    }
}

/// Returns the two bits of element `n`; each 32 bytes hold four groups of 32 elements.
fn crumb(bytes: &[u8], n: usize) -> u8 {
    (bytes[n / 128 * 32 + n % 32] >> (2 * (n / 32 % 4))) & 3
}

fn q2_k(block: &[u8], out: &mut [f32]) {
    let (scales, qs) = (&block[..16], &block[16..80]);
    let (d, dmin) = (half(block, 80), half(block, 82));
    for (n, out) in out.iter_mut().enumerate() {
        let scale = scales[n / 16];
        *out = d * f32::from(scale & 15) * f32::from(crumb(qs, n)) - dmin * f32::from(scale >> 4);
    }
}

fn q3_k(block: &[u8], out: &mut [f32]) {
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
fn scale_min(scales: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        return (scales[j] & 63, scales[j + 4] & 63);
    }
    (scales[j + 4] & 15 | scales[j - 4] >> 6 << 4, scales[j + 4] >> 4 | scales[j] >> 6 << 4)
}

/// Returns the nibble of element `n`; each 32 bytes hold 64 elements, the low halves first.
fn nibble_of_64(qs: &[u8], n: usize) -> u8 {
    (qs[n / 64 * 32 + n % 32] >> (4 * (n / 32 % 2))) & 15
}

fn q4_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half(block, 0), half(block, 2));
    for (n, out) in out.iter_mut().enumerate() {
        let (scale, min) = scale_min(&block[4..16], n / 32);
        *out = d * f32::from(scale) * f32::from(nibble_of_64(&block[16..], n)) - dmin * f32::from(min);
    }
}

fn q5_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half(block, 0), half(block, 2));
    let (high, qs) = (&block[16..48], &block[48..]);
    for (n, out) in out.iter_mut().enumerate() {
        let (scale, min) = scale_min(&block[4..16], n / 32);
        let q = nibble_of_64(qs, n) | ((high[n % 32] >> (n / 32)) & 1) << 4;
        *out = d * f32::from(scale) * f32::from(q) - dmin * f32::from(min);
    }
}

fn q6_k(block: &[u8], out: &mut [f32]) {
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
