//! Transformer blocks. [Vaswani et al. 2017; norm first: Xiong et al. 2020]

use panoply_tensor::{AttentionOptions, Rng, Tensor};
use serde::{Deserialize, Serialize};

use crate::layer::{ForwardContext, Layer};
use crate::layers::attention::{seen, seen_from};
use crate::layers::{DropoutExt, LayerNorm, Linear, MultiHeadAttention};
use crate::module::module;

/// Activation of a block's feed-forward network. PyTorch's default is ReLU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// Rectified linear unit, max(x, 0).
    Relu,
    /// Gaussian error linear unit, x · Φ(x), with Φ of the standard normal distribution.
    #[default]
    Gelu,
}

/// Feed-forward network: two linear layers with an activation between them.
#[derive(Clone, Debug)]
pub struct FeedForward {
    /// Projection to the inner width.
    pub up: Linear,
    /// Projection back.
    pub down: Linear,
    /// Activation between both.
    pub activation: Activation,
}

impl FeedForward {
    /// Creates a feed-forward network between these widths, with GELU.
    pub fn new(d_model: usize, dim_feedforward: usize, rng: &mut Rng) -> FeedForward {
        let (up, down) = (Linear::new(d_model, dim_feedforward, rng), Linear::new(dim_feedforward, d_model, rng));
        FeedForward { up, down, activation: Activation::Gelu }
    }
}

impl Layer for FeedForward {
    #[track_caller]
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

/// Settings common to encoder and decoder blocks. The defaults differ from PyTorch's where pre-norm blocks train better:
///
/// | setting | default | PyTorch |
/// |---|---|---|
/// | `d_model`, `num_heads`, `dim_feedforward` | 512, 8, 2048 | 512, 8, 2048 (of `nn.Transformer`) |
/// | `norm_first` | true | false |
/// | `is_causal` | false | false |
/// | `dropout` | 0 | 0.1 |
/// | activation of the feed-forward network | GELU | ReLU |
/// | epsilon of the norms | 1e-5 | 1e-5 |
///
/// Network files have the same defaults for the fields that they do not name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransformerConfig {
    /// Number of features of each position.
    pub d_model: usize,
    /// Number of attention heads; a divisor of `d_model`.
    pub num_heads: usize,
    /// Inner width of the feed-forward network.
    pub dim_feedforward: usize,
    /// True for pre-norm blocks (norms before attention and feed-forward), false for post-norm (norms after the residual sums).
    pub norm_first: bool,
    /// True if an encoder block applies a causal mask in [`Layer::forward`]. Decoder blocks always do.
    pub is_causal: bool,
    /// Dropout probability of each residual branch.
    pub dropout: f64,
}

impl Default for TransformerConfig {
    /// The base model of Vaswani et al. 2017 with norms first and without dropout.
    fn default() -> TransformerConfig {
        TransformerConfig {
            d_model: 512,
            num_heads: 8,
            dim_feedforward: 2048,
            norm_first: true,
            is_causal: false,
            dropout: 0.0,
        }
    }
}

/// Transformer encoder block: self-attention and a feed-forward network, each with a residual connection. Sequences are `[batch, length,
/// width]`.
#[derive(Clone, Debug)]
pub struct TransformerEncoderLayer {
    /// Self-attention.
    pub attention: MultiHeadAttention,
    /// Feed-forward network.
    pub dense: FeedForward,
    /// Norms of attention and of the feed-forward network.
    pub norms: Vec<LayerNorm>,
    /// Settings.
    pub config: TransformerConfig,
}

impl TransformerEncoderLayer {
    /// Creates a block with initial weights, GELU and epsilon 1e-5.
    pub fn new(config: TransformerConfig, rng: &mut Rng) -> TransformerEncoderLayer {
        TransformerEncoderLayer {
            attention: MultiHeadAttention::new(config.d_model, config.num_heads, rng),
            dense: FeedForward::new(config.d_model, config.dim_feedforward, rng),
            norms: vec![LayerNorm::new(config.d_model); 2],
            config,
        }
    }

    /// Sets the activation of the feed-forward network.
    #[must_use]
    pub fn activation(mut self, activation: Activation) -> TransformerEncoderLayer {
        self.dense.activation = activation;
        self
    }

    /// Sets the constant added to the variance in all norms.
    #[must_use]
    pub fn epsilon(mut self, epsilon: f64) -> TransformerEncoderLayer {
        self.norms.iter_mut().for_each(|norm| norm.epsilon = epsilon);
        self
    }

    /// Runs the block with these attention options, such as a mask.
    #[track_caller]
    pub fn attend(&self, input: &Tensor, attention: &AttentionOptions<'_>, pass: &mut ForwardContext<'_>) -> Tensor {
        let seen =
            added(&self.config, &self.norms[0], input, pass, |x, pass| self.attention.attend(x, x, attention, pass));
        added(&self.config, &self.norms[1], &seen, pass, |x, pass| self.dense.forward(x, pass))
    }
}

impl Layer for TransformerEncoderLayer {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let mask = seen(input, pass);
        self.attend(
            input,
            &AttentionOptions {
                is_causal: self.config.is_causal,
                attn_mask: mask.as_ref(),
                ..AttentionOptions::default()
            },
            pass,
        )
    }
}

module!(TransformerEncoderLayer { attention, dense, norms });

/// Transformer decoder block: causal self-attention, cross-attention to another sequence, and a feed-forward network, each with a residual
/// connection.
#[derive(Clone, Debug)]
pub struct TransformerDecoderLayer {
    /// Self-attention.
    pub attention: MultiHeadAttention,
    /// Cross-attention.
    pub cross: MultiHeadAttention,
    /// Feed-forward network.
    pub dense: FeedForward,
    /// Norms of the three sublayers.
    pub norms: Vec<LayerNorm>,
    /// Settings.
    pub config: TransformerConfig,
}

impl TransformerDecoderLayer {
    /// Creates a block with initial weights, GELU and epsilon 1e-5.
    pub fn new(config: TransformerConfig, rng: &mut Rng) -> TransformerDecoderLayer {
        TransformerDecoderLayer {
            attention: MultiHeadAttention::new(config.d_model, config.num_heads, rng),
            cross: MultiHeadAttention::new(config.d_model, config.num_heads, rng),
            dense: FeedForward::new(config.d_model, config.dim_feedforward, rng),
            norms: vec![LayerNorm::new(config.d_model); 3],
            config,
        }
    }

    /// Sets the activation of the feed-forward network.
    #[must_use]
    pub fn activation(mut self, activation: Activation) -> TransformerDecoderLayer {
        self.dense.activation = activation;
        self
    }

    /// Sets the constant added to the variance in all norms.
    #[must_use]
    pub fn epsilon(mut self, epsilon: f64) -> TransformerDecoderLayer {
        self.norms.iter_mut().for_each(|norm| norm.epsilon = epsilon);
        self
    }

    /// Runs the block: causal self-attention, then cross-attention to the valid positions of `source`.
    #[track_caller]
    pub fn forward_with_memory(&self, input: &Tensor, source: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let causal = AttentionOptions { is_causal: true, ..AttentionOptions::default() };
        let mask = seen_from(input, source, pass);
        let all = AttentionOptions { attn_mask: mask.as_ref(), ..AttentionOptions::default() };
        let own =
            added(&self.config, &self.norms[0], input, pass, |x, pass| self.attention.attend(x, x, &causal, pass));
        let seen = added(&self.config, &self.norms[1], &own, pass, |x, pass| self.cross.attend(x, source, &all, pass));
        added(&self.config, &self.norms[2], &seen, pass, |x, pass| self.dense.forward(x, pass))
    }
}

module!(TransformerDecoderLayer { attention, cross, dense, norms });

/// Returns the input plus the layer's output, with the norm before the layer or after the sum.
#[track_caller]
fn added<'a>(
    config: &TransformerConfig,
    norm: &LayerNorm,
    input: &Tensor,
    pass: &mut ForwardContext<'a>,
    layer: impl Fn(&Tensor, &mut ForwardContext<'a>) -> Tensor,
) -> Tensor {
    pass.at_caller(|pass| {
        let into = if config.norm_first { norm.forward(input, pass) } else { input.clone() };
        let sum = input + layer(&into, pass).dropout(config.dropout, pass).cast(input.dtype());
        if config.norm_first { sum } else { norm.forward(&sum, pass) }
    })
}
