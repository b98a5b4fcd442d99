//! Layers that look at a second sequence, which layers of their own make of the same input.

use panoply_tensor::{AttentionOptions, Tensor};

use crate::layer::{ForwardContext, Layer};
use crate::layers::attention::seen_from;
use crate::layers::{MultiHeadAttention, Sequential, TransformerDecoderLayer};
use crate::module::module;

/// Each position looks at what other layers make of all of them: `[batch, length, width]` both.
#[derive(Clone, Debug)]
pub struct CrossAttention {
    /// How they look.
    pub attention: MultiHeadAttention,
    /// What makes the sequence that is looked at.
    pub memory: Sequential,
}

impl Layer for CrossAttention {
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

/// A transformer's decoder: blocks one over the other that all look at one sequence. [Vaswani et al. 2017]
#[derive(Clone, Debug)]
pub struct TransformerDecoder {
    /// What makes of the input the sequence that is decoded.
    pub target: Sequential,
    /// What makes of the input the sequence that is looked at.
    pub memory: Sequential,
    /// In order.
    pub layers: Vec<TransformerDecoderLayer>,
}

impl Layer for TransformerDecoder {
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let source = self.memory.forward(input, pass);
        let start = self.target.forward(input, pass);
        self.layers.iter().fold(start, |x, block| block.forward_with_memory(&x, &source, pass))
    }
}

module!(TransformerDecoder { target, memory, layers });
