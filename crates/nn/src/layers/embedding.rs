//! Embeddings of integers and of positions.

use panoply_tensor::{DType, Rng, Tensor};

use crate::layer::{ForwardContext, Layer, is_sequence};
use crate::module::{Param, module};

/// Lookup table of vectors: integers `[…]` become `[…, embedding_dim]`. Float inputs are cast to i32.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// Table, `[num_embeddings, embedding_dim]`.
    pub weight: Param,
}

impl Embedding {
    /// Creates a table for the indices 0 .. `num_embeddings` with standard normal elements.
    pub fn new(num_embeddings: usize, embedding_dim: usize, rng: &mut Rng) -> Embedding {
        Embedding { weight: Param::new(rng.normal([num_embeddings, embedding_dim])) }
    }
}

impl Layer for Embedding {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let places = if input.dtype().is_float() { &input.cast(DType::I32) } else { input };
        pass.cast(&self.weight.tensor().index_select(0, places))
    }
}

module!(Embedding { weight });

/// Returns the sinusoidal encoding of positions 0 .. length, `[length, d_model]`, sines and cosines interleaved; `d_model` is even. [Vaswani et
/// al. 2017]
pub fn sinusoidal_positional_encoding(length: usize, d_model: usize) -> Tensor {
    sinusoids(&Tensor::arange(length), d_model)
}

fn sinusoids(positions: &Tensor, width: usize) -> Tensor {
    let half = width / 2;
    let place = Tensor::arange(half).cast(DType::F32);
    let speeds = (place * (-(10000f64.log2()) / half.max(1) as f64)).exp2();
    let angles = positions.cast(DType::F32).unsqueeze(1) * speeds;
    Tensor::stack([angles.sin(), angles.cos()], -1).flatten(1, -1)
}

/// Adds the sinusoidal positional encoding to `[batch, time, features]`.
#[derive(Clone, Copy, Debug)]
pub struct PositionalEncoding;

impl Layer for PositionalEncoding {
    #[track_caller]
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        match is_sequence(input).and_then(|()| input.size(2)) {
            Ok(features) => input + sinusoids(&input.arange_like(1), features).cast(input.dtype()),
            Err(error) => Tensor::from_mistake(error),
        }
    }
}

module!(PositionalEncoding {});
