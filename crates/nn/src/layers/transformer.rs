//! Blocks of the transformer. [Vaswani et al. 2017; norm first: Xiong et al. 2020]

use panoply_tensor::{AttentionOptions, Rng, Tensor};
use serde::{Deserialize, Serialize};

use crate::layer::{ForwardContext, Layer};
use crate::layers::attention::{seen, seen_from};
use crate::layers::{DropoutExt, LayerNorm, Linear, MultiHeadAttention};
use crate::module::module;

/// The activation between the dense layers of a block. PyTorch's blocks have relu unless another one is named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// max(x, 0).
    Relu,
    /// x · Φ(x).
    #[default]
    Gelu,
}

/// Two dense layers with an activation between.
#[derive(Clone, Debug)]
pub struct FeedForward {
    /// From the width to the inner one.
    pub up: Linear,
    /// Back.
    pub down: Linear,
    /// Between both.
    pub activation: Activation,
}

impl FeedForward {
    /// Between these widths, with gelu.
    pub fn new(width: usize, inner: usize, rng: &mut Rng) -> FeedForward {
        let (up, down) = (Linear::new(width, inner, rng), Linear::new(inner, width, rng));
        FeedForward { up, down, activation: Activation::Gelu }
    }
}

impl Layer for FeedForward {
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let inner = self.up.forward(input, pass);
        let inner = match self.activation {
            Activation::Relu => inner.relu(),
            Activation::Gelu => inner.gelu(),
        };
        self.down.forward(&inner, pass)
    }
}

module!(FeedForward { up, down });

/// What both kinds of block share: width, heads, inner width, and where the norms stand.
#[derive(Clone, Copy, Debug)]
pub struct TransformerConfig {
    /// Numbers for each position.
    pub d_model: usize,
    /// Heads of attention; they divide the width.
    pub num_heads: usize,
    /// Width between the dense layers.
    pub dim_feedforward: usize,
    /// Whether norms stand before attention and dense layers, not after what they add.
    pub norm_first: bool,
    /// Whether, without another word, each position sees only those up to itself.
    pub is_causal: bool,
    /// Probability of dropping what is added in training.
    pub dropout: f64,
}

/// Self-attention and dense layers, each added to its input: `[batch, length, width]`.
#[derive(Clone, Debug)]
pub struct TransformerEncoderLayer {
    /// Positions look at each other.
    pub attention: MultiHeadAttention,
    /// The dense layers.
    pub dense: FeedForward,
    /// Around attention and around the dense layers.
    pub norms: Vec<LayerNorm>,
    /// Settings.
    pub shape: TransformerConfig,
}

impl TransformerEncoderLayer {
    /// A block at the start of training, with gelu and epsilon 1e-5.
    pub fn new(shape: TransformerConfig, rng: &mut Rng) -> TransformerEncoderLayer {
        TransformerEncoderLayer {
            attention: MultiHeadAttention::new(shape.d_model, shape.num_heads, rng),
            dense: FeedForward::new(shape.d_model, shape.dim_feedforward, rng),
            norms: vec![LayerNorm::new(shape.d_model); 2],
            shape,
        }
    }

    /// With this activation between the dense layers.
    #[must_use]
    pub fn activation(mut self, activation: Activation) -> TransformerEncoderLayer {
        self.dense.activation = activation;
        self
    }

    /// With this number added to the variance in all norms.
    #[must_use]
    pub fn epsilon(mut self, epsilon: f64) -> TransformerEncoderLayer {
        self.norms.iter_mut().for_each(|norm| norm.epsilon = epsilon);
        self
    }

    /// The block with some positions hidden from others.
    pub fn attend(&self, input: &Tensor, attention: &AttentionOptions<'_>, pass: &mut ForwardContext<'_>) -> Tensor {
        let seen =
            added(&self.shape, &self.norms[0], input, pass, |x, pass| self.attention.attend(x, x, attention, pass));
        added(&self.shape, &self.norms[1], &seen, pass, |x, pass| self.dense.forward(x, pass))
    }
}

impl Layer for TransformerEncoderLayer {
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let mask = seen(input, pass);
        self.attend(
            input,
            &AttentionOptions {
                is_causal: self.shape.is_causal,
                attn_mask: mask.as_ref(),
                ..AttentionOptions::default()
            },
            pass,
        )
    }
}

module!(TransformerEncoderLayer { attention, dense, norms });

/// Self-attention, attention to another sequence, and dense layers, each added to its input.
#[derive(Clone, Debug)]
pub struct TransformerDecoderLayer {
    /// Positions look at each other.
    pub attention: MultiHeadAttention,
    /// Positions look at the other sequence.
    pub cross: MultiHeadAttention,
    /// The dense layers.
    pub dense: FeedForward,
    /// Around each of the three.
    pub norms: Vec<LayerNorm>,
    /// Settings.
    pub shape: TransformerConfig,
}

impl TransformerDecoderLayer {
    /// A block at the start of training, with gelu and epsilon 1e-5.
    pub fn new(shape: TransformerConfig, rng: &mut Rng) -> TransformerDecoderLayer {
        TransformerDecoderLayer {
            attention: MultiHeadAttention::new(shape.d_model, shape.num_heads, rng),
            cross: MultiHeadAttention::new(shape.d_model, shape.num_heads, rng),
            dense: FeedForward::new(shape.d_model, shape.dim_feedforward, rng),
            norms: vec![LayerNorm::new(shape.d_model); 3],
            shape,
        }
    }

    /// With this activation between the dense layers.
    #[must_use]
    pub fn activation(mut self, activation: Activation) -> TransformerDecoderLayer {
        self.dense.activation = activation;
        self
    }

    /// With this number added to the variance in all norms.
    #[must_use]
    pub fn epsilon(mut self, epsilon: f64) -> TransformerDecoderLayer {
        self.norms.iter_mut().for_each(|norm| norm.epsilon = epsilon);
        self
    }

    /// Each position sees the ones up to itself, and all of `source` that counts.
    pub fn forward_with_memory(&self, input: &Tensor, source: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let causal = AttentionOptions { is_causal: true, ..AttentionOptions::default() };
        let mask = seen_from(input, source, pass);
        let all = AttentionOptions { attn_mask: mask.as_ref(), ..AttentionOptions::default() };
        let own = added(&self.shape, &self.norms[0], input, pass, |x, pass| self.attention.attend(x, x, &causal, pass));
        let seen = added(&self.shape, &self.norms[1], &own, pass, |x, pass| self.cross.attend(x, source, &all, pass));
        added(&self.shape, &self.norms[2], &seen, pass, |x, pass| self.dense.forward(x, pass))
    }
}

module!(TransformerDecoderLayer { attention, cross, dense, norms });

/// The input plus what a layer makes of it, with a norm before the layer or after the sum.
fn added<'a>(
    shape: &TransformerConfig,
    norm: &LayerNorm,
    input: &Tensor,
    pass: &mut ForwardContext<'a>,
    layer: impl Fn(&Tensor, &mut ForwardContext<'a>) -> Tensor,
) -> Tensor {
    let into = if shape.norm_first { norm.forward(input, pass) } else { input.clone() };
    let sum = input + layer(&into, pass).dropout(shape.dropout, pass).cast(input.dtype());
    if shape.norm_first { sum } else { norm.forward(&sum, pass) }
}
