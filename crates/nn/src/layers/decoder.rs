//! Layers that attend to a second sequence, which sublayers compute from the same input.

use panoply_tensor::{AttentionOptions, Tensor};

use crate::layer::{ForwardContext, Layer};
use crate::layers::attention::seen_from;
use crate::layers::{MultiHeadAttention, Sequential, TransformerDecoderLayer};
use crate::module::module;

/// Cross-attention from the input to `memory(input)`, `[batch, length, width]` both.
#[derive(Clone, Debug)]
pub struct CrossAttention {
    /// The attention layer.
    pub attention: MultiHeadAttention,
    /// Layers that compute the attended sequence from the input.
    pub memory: Sequential,
}

impl Layer for CrossAttention {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let source = self.memory.forward(input, pass);
        let mask = seen_from(input, &source, pass);
        self.attention.attend(
            input,
            &source,
            &AttentionOptions { attn_mask: mask.as_ref(), ..AttentionOptions::default() },
            pass,
        )
    }
}

module!(CrossAttention { attention, memory });

/// A transformer decoder: a stack of blocks that all attend to one memory sequence. [Vaswani et al. 2017]
#[derive(Clone, Debug)]
pub struct TransformerDecoder {
    /// Layers that compute the decoded sequence from the input.
    pub target: Sequential,
    /// Layers that compute the memory from the input.
    pub memory: Sequential,
    /// Decoder blocks, in order.
    pub layers: Vec<TransformerDecoderLayer>,
}

impl Layer for TransformerDecoder {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let source = self.memory.forward(input, pass);
        let start = self.target.forward(input, pass);
        self.layers.iter().fold(start, |x, block| block.forward_with_memory(&x, &source, pass))
    }
}

module!(TransformerDecoder { target, memory, layers });
