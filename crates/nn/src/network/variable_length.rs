//! Check of which layers support sequences with valid lengths.

use panoply_tensor::{Error, Result};

use super::layer_spec::LayerSpec;
use super::{Network, shape};

/// Effect of a layer on valid lengths.
enum LengthEffect {
    /// The layer acts on each time step alone, or masks the padding.
    Kept,
    /// The output has no time axis.
    Removed,
    /// The layer would mix padding into valid outputs.
    Mixed,
}

impl Network {
    /// Fails if a layer would mix the padding of sequences into valid outputs, and names the first such layer.
    ///
    /// # Errors
    /// If there is such a layer, or a layer does not fit.
    pub fn check_variable_lengths(&self) -> Result<()> {
        let shapes = self.layer_shapes()?;
        for (at, layer) in self.layers.iter().enumerate() {
            match layer.length_effect(&shapes[at]) {
                LengthEffect::Kept => {}
                LengthEffect::Removed => return Ok(()),
                LengthEffect::Mixed => {
                    let what = "it mixes time steps, so it does not support sequences of different lengths";
                    return Err(Error::mistake(shape::complaint(&self.layers, at, what))
                        .note("before `last_time_step` or `time_mean`, use only recurrent layers, encoder layers, self-attention and layers that act on each time step alone"));
                }
            }
        }
        Ok(())
    }
}

impl LayerSpec {
    fn length_effect(&self, input: &[usize]) -> LengthEffect {
        use LayerSpec::*;
        match self {
            Relu {}
            | Relu6 {}
            | LeakyRelu { .. }
            | Elu {}
            | Selu {}
            | Gelu {}
            | GeluTanh {}
            | Silu {}
            | Mish {}
            | Softplus {}
            | Softsign {}
            | Sigmoid {}
            | Logsigmoid {}
            | Hardsigmoid {}
            | Hardswish {}
            | Tanh {}
            | Dropout { .. }
            | GaussianNoise { .. }
            | Standardize {}
            | InverseStandardize {}
            | Embedding { .. }
            | PositionalEncoding {}
            | Rnn(_)
            | Lstm(_)
            | Gru(_)
            | TransformerEncoderLayer(_) => LengthEffect::Kept,
            // These act on the last axis, which is the time axis if there is no other.
            Linear { .. } | LayerNorm { .. } | RmsNorm { .. } | Softmax {} | LogSoftmax {} if input.len() > 1 => {
                LengthEffect::Kept
            }
            MultiHeadAttention { memory: source, .. } if source.is_empty() => LengthEffect::Kept,
            Residual { layers, shortcut } if kept(layers, input) && kept(shortcut, input) => LengthEffect::Kept,
            ActivationCheckpoint { layers } if kept(layers, input) => LengthEffect::Kept,
            LastTimeStep {} | TimeMean {} => LengthEffect::Removed,
            Linear { .. }
            | LayerNorm { .. }
            | RmsNorm { .. }
            | Softmax {}
            | LogSoftmax {}
            | MultiHeadAttention { .. }
            | Residual { .. }
            | ActivationCheckpoint { .. }
            | TransformerDecoder(_)
            | Narrow { .. }
            | Onnx(_)
            | Flatten {}
            | Reshape { .. }
            | Conv { .. }
            | ConvTranspose(_)
            | MaxPool(_)
            | AvgPool(_)
            | AdaptiveAvgPool { .. }
            | AdaptiveMaxPool { .. }
            | GlobalAvgPool {}
            | GlobalMaxPool {}
            | BatchNorm { .. }
            | GroupNorm { .. }
            | RandomShift { .. }
            | RandomHorizontalFlip { .. } => LengthEffect::Mixed,
        }
    }
}

fn kept(layers: &[LayerSpec], input: &[usize]) -> bool {
    let shapes = shape::through(layers, input).unwrap_or_default();
    layers.iter().zip(&shapes).all(|(layer, input)| matches!(layer.length_effect(input), LengthEffect::Kept))
}
