//! Quantized weight matrices in the encoding of their file, and products with them.
//!
//! A product is a composite operation that decodes with tensor operations, so it runs on every device. This module does not depend on
//! files.

use panoply_ir::Encoding;
use panoply_ir::routine::{QuantizedMatmul, Routine};
use panoply_tensor::call_attrs::CallAttrs;
use panoply_tensor::{DType, Error, Result, Tensor};

/// A matrix `[rows, k]` whose rows are stored as blocks of an [`Encoding`].
#[derive(Clone, Debug)]
pub struct Packed {
    /// u8 `[rows, row bytes]` for block encodings, the float type `[rows, k]` otherwise.
    weight: Tensor,
    encoding: Encoding,
    rows: usize,
    k: usize,
}

/// Encoding and row length, the key of a traced call.
#[derive(Clone, Copy)]
struct Layout(Encoding, usize);

impl CallAttrs for Layout {
    fn write_key(&self, words: &mut Vec<u64>) {
        words.extend([u64::from(self.0.ggml_type()), self.1 as u64]);
    }
}

impl Packed {
    /// Creates a matrix from the bytes of its rows.
    ///
    /// # Errors
    ///
    /// If `k` is not a whole number of blocks or `bytes` does not hold `rows` rows.
    pub fn new(bytes: &[u8], encoding: Encoding, rows: usize, k: usize) -> Result<Packed> {
        let row_bytes = encoding.row_bytes(k).filter(|row| row.checked_mul(rows) == Some(bytes.len()));
        let Some(row_bytes) = row_bytes else {
            let name = encoding.name();
            return Err(Error::mistake(format!("{} bytes are not {rows} rows of {k} elements in {name}", bytes.len())));
        };
        let weight = match encoding.float_dtype() {
            Some(dtype) => Tensor::from_bytes(bytes, [rows, k], dtype),
            None => Tensor::from_bytes(bytes, [rows, row_bytes], DType::U8),
        };
        weight.check()?;
        Ok(Packed { weight, encoding, rows, k })
    }

    /// Returns the encoding of the rows.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of elements per row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Returns the product of `x` `[…, k]`, f32, f16 or bf16, with each row: `[…, rows]` in the type of `x`.
    ///
    /// A device may round activations to bytes with a scale for 32 of them, see [`QuantizedMatmul`], unless the math mode is exact.
    #[track_caller]
    pub fn matmul(&self, x: &Tensor) -> Tensor {
        let layout = Layout(self.encoding, self.k);
        let body: fn([&Tensor; 2], &Layout) -> [Tensor; 1] = |[x, weight], layout| {
            let product = x.cast(DType::F32).matmul(&unpack(weight, *layout).t());
            [product.cast(x.dtype())]
        };
        let [product] = Tensor::call_with_routine("quantized_matmul", [x, &self.weight], layout, body, routine);
        product
    }

    /// Returns decoded rows by index: indices i32 `[n]`, result f32 `[n, k]`.
    #[track_caller]
    pub fn index_select(&self, ids: &Tensor) -> Tensor {
        let layout = Layout(self.encoding, self.k);
        Tensor::call("quantized_rows", [&self.weight, ids], layout, |[weight, ids], layout| {
            unpack(&weight.index_select(0, ids), *layout)
        })
    }

    /// Returns the decoded matrix, f32 `[rows, k]`.
    #[track_caller]
    pub fn unpack(&self) -> Tensor {
        Tensor::call("unpack", [&self.weight], Layout(self.encoding, self.k), |[weight], layout| {
            unpack(weight, *layout)
        })
    }
}

/// Returns the routine that multiplies activations with packed rows.
fn routine([x, weight]: [&Tensor; 2], Layout(encoding, k): &Layout) -> Option<Routine> {
    let (x_shape, weight_shape) = (x.shape().ok()?, weight.shape().ok()?);
    let m = x_shape.dims().split_last()?.1.iter().product();
    let n = *weight_shape.dims().first()?;
    let dtype = x.dtype();
    let taken = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    taken.then_some(Routine::QuantizedMatmul(QuantizedMatmul { dtype, encoding: *encoding, m, n, k: *k }))
}

/// Decodes rows to f32 `[rows, k]`, with the same order of f32 operations as [`Encoding::decode`].
fn unpack(weight: &Tensor, Layout(encoding, k): Layout) -> Tensor {
    let blocks = |weight: &Tensor| Blocks(weight.unflatten(-1, &[k / encoding.block_elems(), encoding.block_bytes()]));
    let values = match encoding {
        Encoding::F32 | Encoding::F16 | Encoding::BF16 => return weight.cast(DType::F32),
        Encoding::Q4_0 => q4_0(&blocks(weight)),
        Encoding::Q4_1 => q4_1(&blocks(weight)),
        Encoding::Q5_0 => q5_0(&blocks(weight)),
        Encoding::Q5_1 => q5_1(&blocks(weight)),
        Encoding::Q8_0 => q8_0(&blocks(weight)),
        Encoding::Q2K => q2_k(&blocks(weight)),
        Encoding::Q3K => q3_k(&blocks(weight)),
        Encoding::Q4K => q4_k(&blocks(weight)),
        Encoding::Q5K => q5_k(&blocks(weight)),
        Encoding::Q6K => q6_k(&blocks(weight)),
    };
    values.flatten(-2)
}

/// Rows as blocks, u8 `[rows, blocks, block bytes]`.
struct Blocks(Tensor);

impl Blocks {
    /// Returns bytes as i32, `[rows, blocks, count]`.
    fn bytes(&self, start: usize, count: usize) -> Tensor {
        self.0.narrow(-1, start, count).cast(DType::I32)
    }

    /// Returns signed bytes as f32, `[rows, blocks, count]`.
    fn signed(&self, start: usize, count: usize) -> Tensor {
        self.0.narrow(-1, start, count).bitcast(DType::I8).cast(DType::F32)
    }

    /// Returns an f16 as f32, `[rows, blocks, 1]`.
    fn half(&self, start: usize) -> Tensor {
        let byte = |at| self.0.narrow(-1, at, 1).cast(DType::U16);
        let bits = byte(start) + byte(start + 1) * 256.0;
        bits.bitcast(DType::F16).cast(DType::F32)
    }
}

/// Returns `count` bits of integers, starting at bit `shift`.
fn bits(x: &Tensor, shift: i32, count: u32) -> Tensor {
    let shifted = if shift == 0 { x.clone() } else { x.bitwise_right_shift(&Tensor::full([], shift)) };
    shifted.bitwise_and(&Tensor::full([], (1i32 << count) - 1))
}

/// Returns the low and then the high nibbles of bytes `[…, n]`, as `[…, 2 n]`.
fn nibbles(bytes: &Tensor) -> Tensor {
    Tensor::concat(&[bits(bytes, 0, 4), bits(bytes, 4, 4)], -1)
}

/// Returns the bits of four little-endian bytes, `[…, 4]` to `[…, 32]`.
fn word_bits(bytes: &Tensor) -> Tensor {
    let shifts = Tensor::arange(8);
    bytes.unsqueeze(-1).bitwise_right_shift(&shifts).bitwise_and(&Tensor::full([], 1i32)).flatten(-2)
}

/// Returns elements `[…, n]` as f32 `[…, groups, n / groups]`.
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

/// Returns the 2-bit values of `halves` times 32 bytes `[…, 32 halves]` in the order of the elements, `[…, 128 halves]`.
fn crumbs(bytes: &Tensor, halves: usize) -> Tensor {
    let parts = bytes.unflatten(-1, &[halves, 32]);
    let groups = [0, 2, 4, 6].map(|shift| bits(&parts, shift, 2));
    Tensor::stack(&groups, -2).flatten(-3)
}

fn q2_k(block: &Blocks) -> Tensor {
    let scales = block.bytes(0, 16);
    let scale = block.half(80) * bits(&scales, 0, 4).cast(DType::F32);
    let min = block.half(82) * bits(&scales, 4, 4).cast(DType::F32);
    let q = grouped(&crumbs(&block.bytes(16, 64), 2), 16, 16);
    (scale.unsqueeze(-1) * q - min.unsqueeze(-1)).flatten(-2)
}

fn q3_k(block: &Blocks) -> Tensor {
    let (low, high) = (nibbles(&block.bytes(96, 8)), block.bytes(104, 4));
    let high = Tensor::concat([0, 2, 4, 6].map(|shift| bits(&high, shift, 2)), -1);
    let scale = block.half(108) * ((low + high * 16.0).cast(DType::F32) - 32.0);
    // Bit j of the 32 bytes belongs to the j-th group of 32 elements.
    let shifts = Tensor::arange(8).unsqueeze(-1);
    let is_high = block.bytes(0, 32).unsqueeze(-2).bitwise_right_shift(&shifts).bitwise_and(&Tensor::full([], 1i32));
    let q = crumbs(&block.bytes(32, 64), 2) + is_high.flatten(-2) * 4.0;
    (scale.unsqueeze(-1) * (grouped(&q, 16, 16) - 4.0)).flatten(-2)
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
    nibbles(&bytes.unflatten(-1, &[4, 32])).flatten(-2)
}

fn q4_k(block: &Blocks) -> Tensor {
    let [scale, min] = scales_and_minimums(block, 4);
    (scale * grouped(&nibbles_of_64(&block.bytes(16, 128)), 8, 32) - min).flatten(-2)
}

fn q5_k(block: &Blocks) -> Tensor {
    let [scale, min] = scales_and_minimums(block, 4);
    let shifts = Tensor::arange(8).unsqueeze(-1);
    let high = block.bytes(16, 32).unsqueeze(-2).bitwise_right_shift(&shifts).bitwise_and(&Tensor::full([], 1i32));
    let q = nibbles_of_64(&block.bytes(48, 128)) + high.flatten(-2) * 16.0;
    (scale * grouped(&q, 8, 32) - min).flatten(-2)
}

fn q6_k(block: &Blocks) -> Tensor {
    let scale = block.half(208) * block.signed(192, 16);
    // 128 elements at a time: 64 low nibbles, then 64 high nibbles.
    let low = nibbles(&block.bytes(0, 128).unflatten(-1, &[2, 64])).flatten(-2);
    let q = low + crumbs(&block.bytes(128, 64), 2) * 16.0;
    (scale.unsqueeze(-1) * (grouped(&q, 16, 16) - 32.0)).flatten(-2)
}
