//! Encodings of quantized weights as in ggml files, and their scalar decoders.
//!
//! A packed row is a sequence of blocks. A block contains a fixed number of elements as small integers with shared scales. The decoders
//! are the reference: exact, one element at a time, with the same order of f32 operations as ggml. They are independent of files and
//! tensors; `llm` decodes on devices with tensor expressions that are compared with these.
//!
//! Source: ggml's block layouts (ggml-common.h, ggml-quants.c), as the Python package `gguf` documents and decodes them.

mod codebook_decode;
mod codebooks;
mod decode;
mod encode;
mod interleave;

pub use self::interleave::INTERLEAVED_ROWS;

use self::codebooks::Codebook;
use crate::dtype::DType;

macro_rules! encodings {
    ($($variant:ident, $name:literal, $number:literal, $elems:literal, $bytes:literal, $decode:path, $elements:expr, $encode:expr;)*) => {
        /// Encoding of the elements of a row.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the variants are ggml's own names")]
        pub enum Encoding {
            $($variant,)*
        }

        impl Encoding {
            /// All encodings, by family.
            pub const ALL: [Encoding; [$($number),*].len()] = [$(Encoding::$variant),*];

            const fn facts(self) -> Facts {
                match self {
                    $(Encoding::$variant => Facts {
                        name: $name, ggml_type: $number, block_elems: $elems, block_bytes: $bytes, decode: $decode,
                        elements: $elements, encode: $encode,
                    },)*
                }
            }
        }
    };
}

// Name and number in ggml, elements and bytes of a block, its decoder, the meaning of its bits, and its encoder.
encodings! {
    F32, "F32", 0, 1, 4, floats::f32, Elements::Float(DType::F32), Some(encode::f32);
    F16, "F16", 1, 1, 2, floats::f16, Elements::Float(DType::F16), Some(encode::f16);
    BF16, "BF16", 30, 1, 2, floats::bf16, Elements::Float(DType::BF16), Some(encode::bf16);
    Q4_0, "Q4_0", 2, 32, 18, decode::q4_0, Elements::Integers, Some(encode::q4_0);
    Q4_1, "Q4_1", 3, 32, 20, decode::q4_1, Elements::Integers, None;
    Q5_0, "Q5_0", 6, 32, 22, decode::q5_0, Elements::Integers, Some(encode::q5_0);
    Q5_1, "Q5_1", 7, 32, 24, decode::q5_1, Elements::Integers, Some(encode::q5_1);
    Q8_0, "Q8_0", 8, 32, 34, decode::q8_0, Elements::Integers, Some(encode::q8_0);
    Q2K, "Q2_K", 10, 256, 84, decode::q2_k, Elements::Integers, None;
    Q3K, "Q3_K", 11, 256, 110, decode::q3_k, Elements::Integers, None;
    Q4K, "Q4_K", 12, 256, 144, decode::q4_k, Elements::Integers, Some(encode::q4_k);
    Q5K, "Q5_K", 13, 256, 176, decode::q5_k, Elements::Integers, Some(encode::q5_k);
    Q6K, "Q6_K", 14, 256, 210, decode::q6_k, Elements::Integers, Some(encode::q6_k);
    IQ2Xxs, "IQ2_XXS", 16, 256, 66, codebook_decode::iq2_xxs, Elements::Vectors(&codebooks::IQ2_XXS), None;
    IQ2Xs, "IQ2_XS", 17, 256, 74, codebook_decode::iq2_xs, Elements::Vectors(&codebooks::IQ2_XS), None;
    IQ2S, "IQ2_S", 22, 256, 82, codebook_decode::iq2_s, Elements::Vectors(&codebooks::IQ2_S), None;
    IQ3Xxs, "IQ3_XXS", 18, 256, 98, codebook_decode::iq3_xxs, Elements::Vectors(&codebooks::IQ3_XXS), None;
    IQ3S, "IQ3_S", 21, 256, 110, codebook_decode::iq3_s, Elements::Vectors(&codebooks::IQ3_S), None;
    IQ1S, "IQ1_S", 19, 256, 50, codebook_decode::iq1_s, Elements::Vectors(&codebooks::IQ1), None;
    IQ1M, "IQ1_M", 29, 256, 56, codebook_decode::iq1_m, Elements::Vectors(&codebooks::IQ1), None;
    IQ4Nl, "IQ4_NL", 20, 32, 18, decode::iq4_nl, Elements::Levels(&decode::IQ4_LEVELS), None;
    IQ4Xs, "IQ4_XS", 23, 256, 136, decode::iq4_xs, Elements::Levels(&decode::IQ4_LEVELS), None;
    TQ1_0, "TQ1_0", 34, 256, 54, decode::tq1_0, Elements::Integers, None;
    TQ2_0, "TQ2_0", 35, 256, 66, decode::tq2_0, Elements::Integers, None;
    MXFP4, "MXFP4", 39, 32, 17, decode::mxfp4, Elements::Levels(&decode::FP4_LEVELS), None;
    NVFP4, "NVFP4", 40, 64, 36, decode::nvfp4, Elements::Levels(&decode::FP4_LEVELS), None;
}

/// Encodes the elements of a block.
type Encode = fn(&[f32], &mut [u8]);

/// Constants of an encoding.
struct Facts {
    name: &'static str,
    ggml_type: u32,
    block_elems: usize,
    block_bytes: usize,
    decode: fn(&[u8], &mut [f32]),
    elements: Elements,
    encode: Option<Encode>,
}

/// Meaning of the bits of an element.
enum Elements {
    Float(DType),
    /// Integers with scales.
    Integers,
    /// Indices of numbers.
    Levels(&'static [i8; 16]),
    /// Indices of vectors.
    Vectors(&'static Codebook),
}

impl Encoding {
    /// The element type of an unquantized encoding; `None` for blocks of integers.
    pub fn float_dtype(self) -> Option<DType> {
        if let Elements::Float(dtype) = self.facts().elements { Some(dtype) } else { None }
    }

    /// Returns ggml's name: `F16`, `Q4_0`, `Q4_K`.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// Returns ggml's number of the tensor type.
    pub const fn ggml_type(self) -> u32 {
        self.facts().ggml_type
    }

    /// Returns the encoding with this ggml number, if it is supported.
    pub fn from_ggml_type(number: u32) -> Option<Encoding> {
        Encoding::ALL.into_iter().find(|encoding| encoding.ggml_type() == number)
    }

    /// Returns the number of elements of a block.
    pub const fn block_elems(self) -> usize {
        self.facts().block_elems
    }

    /// Returns the number of bytes of a block.
    pub const fn block_bytes(self) -> usize {
        self.facts().block_bytes
    }

    /// Returns the bytes of a row of `k` elements; `None` if `k` is not a whole number of blocks or the result overflows.
    pub fn row_bytes(self, k: usize) -> Option<usize> {
        let whole = k.is_multiple_of(self.block_elems());
        whole.then(|| (k / self.block_elems()).checked_mul(self.block_bytes())).flatten()
    }

    /// Returns the values that indices of a block stand for, i8 `[vectors, width]` row-major, and their width; `None` if the encoding has no
    /// table.
    pub fn codebook(self) -> Option<(Vec<i8>, usize)> {
        let codebook = match self.facts().elements {
            Elements::Float(_) | Elements::Integers => return None,
            Elements::Levels(levels) => return Some((levels.to_vec(), 1)),
            Elements::Vectors(codebook) => codebook,
        };
        let vectors = 0..codebook.codes.len();
        let elements = vectors.flat_map(|vector| (0..codebook.width).map(move |n| codebook.element(vector, n)));
        Some((elements.collect(), codebook.width))
    }

    /// Decodes whole blocks from `bytes` into `out`, which must have the same number of blocks.
    ///
    /// # Panics
    ///
    /// Panics if `bytes` and `out` do not have the same whole number of blocks.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        let Facts { name, block_elems, block_bytes, decode, .. } = self.facts();
        let is_whole = bytes.len() * block_elems == out.len() * block_bytes;
        assert!(is_whole, "{name}: bytes and elements have different numbers of blocks");
        for (block, out) in bytes.chunks_exact(block_bytes).zip(out.chunks_exact_mut(block_elems)) {
            decode(block, out);
        }
    }
}

impl Encoding {
    /// Returns true if values can be encoded.
    pub fn is_encodable(self) -> bool {
        self.facts().encode.is_some()
    }

    /// Encodes values in whole blocks, bit for bit as ggml's reference quantizer without an importance matrix. Values must be finite; the
    /// result for others is unspecified.
    ///
    /// # Panics
    ///
    /// Panics if the encoding is not [`Encoding::is_encodable`], or if `values` and `out` do not have the same whole number of blocks.
    pub fn encode(self, values: &[f32], out: &mut [u8]) {
        let Facts { name, block_elems, block_bytes, encode, .. } = self.facts();
        let encode = encode.unwrap_or_else(|| panic!("{name}: values cannot be encoded"));
        let is_whole = out.len() * block_elems == values.len() * block_bytes;
        assert!(is_whole, "{name}: values and bytes have different numbers of blocks");
        for (values, block) in values.chunks_exact(block_elems).zip(out.chunks_exact_mut(block_bytes)) {
            encode(values, block);
        }
    }
}

/// Decoders of single floats.
mod floats {
    use half::bf16;

    use super::decode::half;

    pub fn f32(bytes: &[u8], out: &mut [f32]) {
        out[0] = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }

    pub fn f16(bytes: &[u8], out: &mut [f32]) {
        out[0] = half(bytes, 0);
    }

    pub fn bf16(bytes: &[u8], out: &mut [f32]) {
        out[0] = bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
    }
}
