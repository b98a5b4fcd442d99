//! Layers that look at a second sequence, which layers of their own make of the same input.

use panoply_tensor::{Attention, Tensor};

use crate::layer::{Layer, Pass};
use crate::layers::attention::seen_from;
use crate::layers::{DecoderBlock, MultiHeadAttention, Sequential};
use crate::module::module;

/// Each position looks at what other layers make of all of them: `[batch, length, width]` both.
#[derive(Clone, Debug)]
pub struct CrossAttention {
    /// How they look.
    pub attention: MultiHeadAttention,
    /// What makes the sequence that is looked at.
    pub source: Sequential,
}

impl Layer for CrossAttention {
    fn forward(&self, input: &Tensor, pass: &mut Pass<'_>) -> Tensor {
        let source = self.source.forward(input, pass);
        let mask = seen_from(input, &source, pass);
        self.attention.attend(input, &source, &Attention { mask: mask.as_ref(), ..Attention::default() }, pass)
    }
}

module!(CrossAttention { attention, source });

/// A transformer's decoder: blocks one over the other that all look at one sequence. [Vaswani et al. 2017]
#[derive(Clone, Debug)]
pub struct Decoder {
    /// What makes of the input the sequence that is decoded.
    pub layers: Sequential,
    /// What makes of the input the sequence that is looked at.
    pub source: Sequential,
    /// In order.
    pub blocks: Vec<DecoderBlock>,
}

impl Layer for Decoder {
    fn forward(&self, input: &Tensor, pass: &mut Pass<'_>) -> Tensor {
        let source = self.source.forward(input, pass);
        let start = self.layers.forward(input, pass);
        self.blocks.iter().fold(start, |x, block| block.decode(&x, &source, pass))
    }
}

module!(Decoder { layers, source, blocks });
