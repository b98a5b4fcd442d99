//! Quantized weight matrices in the encoding of their file, and products with them.
//!
//! A product is a composite operation that decodes with tensor operations, so it runs on every device. This module does not depend on
//! files.

mod codebook;
mod unpack;

use panoply_ir::routine::{ExpertMatmul, QuantizedMatmul, Routine};
use panoply_ir::{Encoding, INTERLEAVED_ROWS};
use panoply_tensor::call_attrs::CallAttrs;
use panoply_tensor::{DType, Device, Error, MathMode, Result, Storage, Tensor};

use self::unpack::unpack;

/// A matrix `[rows, k]` whose rows are stored as blocks of an [`Encoding`].
#[derive(Clone, Debug)]
pub struct Packed {
    /// u8 `[rows, row bytes]` for block encodings, the float type `[rows, k]` otherwise.
    weight: Tensor,
    /// i8 `[vectors, width]`, or `[vectors]` for a width of one.
    codebook: Option<Tensor>,
    encoding: Encoding,
    rows: usize,
    k: usize,
    /// True if the rows are interleaved by [`Encoding::interleave`].
    interleaved: bool,
}

/// Encoding, row length, and whether rows are interleaved, the key of a traced call.
#[derive(Clone, Copy)]
struct Layout(Encoding, usize, bool);

impl CallAttrs for Layout {
    fn write_key(&self, words: &mut Vec<u64>) {
        words.extend([u64::from(self.0.ggml_type()), self.1 as u64, u64::from(self.2)]);
    }
}

/// Layout, number of experts and rows of each, the key of a traced call.
#[derive(Clone, Copy)]
struct ExpertLayout {
    layout: Layout,
    experts: usize,
    rows: usize,
}

impl CallAttrs for ExpertLayout {
    fn write_key(&self, words: &mut Vec<u64>) {
        self.layout.write_key(words);
        words.extend([self.experts as u64, self.rows as u64]);
    }
}

impl Packed {
    /// Creates a matrix from the bytes of its rows, which are copied to the current device.
    ///
    /// # Errors
    ///
    /// If `k` is not a whole number of blocks, `bytes` does not hold `rows` rows, or the device fails.
    pub fn new(bytes: &[u8], encoding: Encoding, rows: usize, k: usize) -> Result<Packed> {
        check_size(bytes.len() as u64, encoding, rows, k)?;
        Packed::from_storage(Device::current()?.upload(bytes)?, encoding, [rows, k], false)
    }

    /// Creates a matrix in memory of a device that holds its rows, which may be interleaved by [`Encoding::interleave`].
    ///
    /// # Errors
    ///
    /// If `k` is not a whole number of blocks, `storage` does not hold `rows` rows, or such rows are not interleaved.
    pub fn from_storage(
        storage: Storage,
        encoding: Encoding,
        [rows, k]: [usize; 2],
        interleaved: bool,
    ) -> Result<Packed> {
        if interleaved && !encoding.can_interleave(rows) {
            return Err(Error::mistake(format!("{rows} rows in {} cannot be interleaved", encoding.name())));
        }
        let row_bytes = check_size(storage.bytes(), encoding, rows, k)?;
        let device = storage.device().clone();
        let weight = match encoding.float_dtype() {
            Some(dtype) => Tensor::from_storage(storage, [rows, k], dtype),
            None => Tensor::from_storage(storage, [rows, row_bytes], DType::U8),
        };
        weight.check()?;
        let codebook = encoding.codebook().map(|(values, width)| match width {
            1 => Tensor::from_slice_on(&device, &values, [values.len()]),
            _ => Tensor::from_slice_on(&device, &values, [values.len() / width, width]),
        });
        Ok(Packed { weight, codebook, encoding, rows, k, interleaved })
    }

    /// Returns the encoding of the rows.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    fn layout(&self) -> Layout {
        Layout(self.encoding, self.k, self.interleaved)
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
        let (name, layout) = ("quantized_matmul", self.layout());
        let [product] = match &self.codebook {
            None => {
                let body: fn([&Tensor; 2], &Layout) -> [Tensor; 1] =
                    |[x, weight], layout| [product(x, weight, None, layout)];
                Tensor::call_with_routine(name, [x, &self.weight], layout, body, |[x, weight], of| {
                    routine(x, weight, of)
                })
            }
            Some(codebook) => {
                let body: fn([&Tensor; 3], &Layout) -> [Tensor; 1] =
                    |[x, weight, codebook], layout| [product(x, weight, Some(codebook), layout)];
                let inputs = [x, &self.weight, codebook];
                Tensor::call_with_routine(name, inputs, layout, body, |[x, weight, _], of| routine(x, weight, of))
            }
        };
        product
    }

    /// Returns products with the matrices of chosen experts, of which each has the same number of rows, one after another: `x`
    /// `[n, slots, k]`, where slots is 1 or `used`, ids i32 `[n, used]`, result `[n, used, rows / experts]`.
    ///
    /// A device that has the routine multiplies the rows of an expert at once; others decode its matrix for each row. Activations are
    /// rounded as by [`Packed::matmul`].
    #[track_caller]
    pub fn expert_matmul(&self, x: &Tensor, ids: &Tensor, experts: usize) -> Tensor {
        if experts == 0 || !self.rows.is_multiple_of(experts) {
            return Tensor::from_mistake(Error::mistake(format!(
                "{} rows are not those of {experts} experts",
                self.rows
            )));
        }
        let of = ExpertLayout { layout: self.layout(), experts, rows: self.rows / experts };
        let name = "expert_matmul";
        let [product] = match &self.codebook {
            None => {
                let body: fn([&Tensor; 3], &ExpertLayout) -> [Tensor; 1] =
                    |[x, weight, ids], of| [expert_product(x, weight, ids, None, of)];
                Tensor::call_with_routine(name, [x, &self.weight, ids], of, body, |[x, _, ids], of| {
                    expert_routine(x, ids, of)
                })
            }
            Some(codebook) => {
                let body: fn([&Tensor; 4], &ExpertLayout) -> [Tensor; 1] =
                    |[x, weight, ids, codebook], of| [expert_product(x, weight, ids, Some(codebook), of)];
                let inputs = [x, &self.weight, ids, codebook];
                Tensor::call_with_routine(name, inputs, of, body, |[x, _, ids, _], of| expert_routine(x, ids, of))
            }
        };
        product
    }

    /// Returns decoded rows by index: indices i32 `[n]`, result f32 `[n, k]`.
    #[track_caller]
    pub fn index_select(&self, ids: &Tensor) -> Tensor {
        let (name, layout) = ("quantized_rows", self.layout());
        match &self.codebook {
            None => Tensor::call(name, [&self.weight, ids], layout, |[weight, ids], layout| {
                unpack(&stored(weight, *layout).index_select(0, ids), None, layout.0, layout.1)
            }),
            Some(codebook) => {
                Tensor::call(name, [&self.weight, ids, codebook], layout, |[weight, ids, codebook], layout| {
                    unpack(&stored(weight, *layout).index_select(0, ids), Some(codebook), layout.0, layout.1)
                })
            }
        }
    }

    /// Returns the decoded matrix, f32 `[rows, k]`.
    #[track_caller]
    pub fn unpack(&self) -> Tensor {
        self.index_select(&Tensor::arange(self.rows))
    }
}

/// Returns the bytes of a row if `bytes` bytes are whole rows.
fn check_size(bytes: u64, encoding: Encoding, rows: usize, k: usize) -> Result<usize> {
    let is_whole = |row: &usize| row.checked_mul(rows).is_some_and(|all| all as u64 == bytes);
    encoding.row_bytes(k).filter(is_whole).ok_or_else(|| {
        Error::mistake(format!("{bytes} bytes are not {rows} rows of {k} elements in {}", encoding.name()))
    })
}

/// Returns rows as a file stores them, u8 `[rows, row bytes]`.
fn stored(weight: &Tensor, Layout(encoding, k, interleaved): Layout) -> Tensor {
    let Some((half, words)) = encoding.interleaved_parts().filter(|_| interleaved) else { return weight.clone() };
    let (rows, bytes) = (INTERLEAVED_ROWS, encoding.block_bytes());
    let blocks = k / encoding.block_elems();
    let groups = weight.reshape([-1, blocks as isize, (rows * bytes) as isize]);
    // Pieces of a row's block, each with its first byte in the stored block.
    let mut pieces: Vec<(usize, Tensor)> = Vec::new();
    let mut at = 0;
    let mut piece = |first: usize, length: usize, unit: usize| {
        let part = groups.narrow(-1, at, rows * length).unflatten(-1, &[length / unit, rows, unit]);
        at += rows * length;
        pieces.push((first, part.permute(&[0, 3, 1, 2, 4]).flatten(-2, -1)));
    };
    if let Some(half) = half {
        piece(half, 2, 2);
    }
    words.iter().for_each(|[first, length]| piece(*first, *length, 4));
    pieces.sort_by_key(|(first, _)| *first);
    let pieces = pieces.into_iter().map(|(_, piece)| piece);
    Tensor::concat(pieces, -1).reshape([-1, (blocks * bytes) as isize])
}

/// Returns the product with decoded rows.
fn product(x: &Tensor, weight: &Tensor, codebook: Option<&Tensor>, layout: &Layout) -> Tensor {
    let weight = unpack(&stored(weight, *layout), codebook, layout.0, layout.1);
    let product = x.cast(DType::F32).matmul(&weight.t());
    product.cast(x.dtype())
}

/// Returns the routine that multiplies activations with packed rows.
fn routine(x: &Tensor, weight: &Tensor, Layout(encoding, k, interleaved): &Layout) -> Option<Routine> {
    let (x_shape, weight_shape) = (x.shape().ok()?, weight.shape().ok()?);
    let m = x_shape.dims().split_last()?.1.iter().product();
    let n = *weight_shape.dims().first()?;
    let dtype = x.dtype();
    let taken = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let of = QuantizedMatmul { dtype, encoding: *encoding, m, n, k: *k, interleaved: *interleaved };
    taken.then_some(Routine::QuantizedMatmul(of))
}

/// Returns the products with decoded matrices, one for each row and expert.
fn expert_product(x: &Tensor, weight: &Tensor, ids: &Tensor, codebook: Option<&Tensor>, of: &ExpertLayout) -> Tensor {
    let ExpertLayout { layout, rows, .. } = *of;
    let chosen = ids.unsqueeze(-1) * rows as f64 + Tensor::arange(rows);
    let used = match ids.shape() {
        Ok(shape) => shape.dims().last().copied().unwrap_or(0),
        Err(error) => return Tensor::from_mistake(error),
    };
    let chosen = stored(weight, layout).index_select(0, &chosen.flatten(0, -1));
    let matrices = unpack(&chosen, codebook, layout.0, layout.1);
    let matrices = matrices.reshape([-1, used as isize, rows as isize, layout.1 as isize]);
    matrices.matmul(&x.cast(DType::F32).unsqueeze(-1)).squeeze(-1).cast(x.dtype())
}

/// Returns the routine that multiplies activations with the matrices of chosen experts.
fn expert_routine(x: &Tensor, ids: &Tensor, of: &ExpertLayout) -> Option<Routine> {
    let ExpertLayout { layout: Layout(encoding, k, interleaved), experts, rows } = *of;
    let (x_shape, ids_shape) = (x.shape().ok()?, ids.shape().ok()?);
    let (&[m, slots, _], &[_, used]) = (x_shape.dims(), ids_shape.dims()) else { return None };
    let dtype = x.dtype();
    let taken = matches!(dtype, DType::F32 | DType::F16 | DType::BF16) && ids.dtype() == DType::I32 && !interleaved;
    taken.then_some(Routine::ExpertMatmul(ExpertMatmul { dtype, encoding, m, slots, used, experts, n: rows, k }))
}

/// Returns true if the device multiplies with interleaved rows as fast as with stored ones or faster.
pub(crate) fn prefers_interleaved(device: &Device) -> bool {
    let (dtype, encoding) = (DType::F32, Encoding::Q4_0);
    let of = QuantizedMatmul { dtype, encoding, m: 1, n: INTERLEAVED_ROWS, k: 32, interleaved: true };
    device.math_mode() != MathMode::Exact && device.supports_routine(&Routine::QuantizedMatmul(of))
}

/// Returns true if the device multiplies the rows of an expert at once, so that the memory of a step does not grow with its matrices.
pub(crate) fn groups_by_expert(device: &Device) -> bool {
    let (dtype, encoding) = (DType::F32, Encoding::F32);
    let of = ExpertMatmul { dtype, encoding, m: 2, slots: 1, used: 1, experts: 1, n: 1, k: 1 };
    device.math_mode() != MathMode::Exact && device.supports_routine(&Routine::ExpertMatmul(of))
}
