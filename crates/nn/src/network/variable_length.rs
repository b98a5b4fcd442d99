//! Which layers may stand over sequences that end before the last time, and where their times go.

use panoply_tensor::{Error, Result};

use super::layer_spec::LayerSpec;
use super::{Network, shape};

/// What becomes of the ends of sequences in a layer.
enum Ends {
    /// Each time is looked at alone, or only those that count are.
    Kept,
    /// No times come out.
    Gone,
    /// What stands behind an end would be looked at.
    Mixed,
}

impl Network {
    /// A mistake that names the first layer in which what stands behind the end of a sequence would count.
    pub fn check_variable_lengths(&self) -> Result<()> {
        let shapes = self.layer_shapes()?;
        for (at, layer) in self.layers.iter().enumerate() {
            match layer.ends(&shapes[at]) {
                Ends::Kept => {}
                Ends::Gone => return Ok(()),
                Ends::Mixed => {
                    let what = "it mixes the times of sequences, which here end at times of their own";
                    return Err(Error::mistake(shape::complaint(&self.layers, at, what))
                        .note("before `last_time_step` or `time_mean` stand recurrent layers, encoders, attention and what looks at each time alone"));
                }
            }
        }
        Ok(())
    }
}

impl LayerSpec {
    fn ends(&self, input: &[usize]) -> Ends {
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
            | TransformerEncoderLayer(_) => Ends::Kept,
            // Over the last axis, which is the time where there is no other.
            Linear { .. } | LayerNorm { .. } | RmsNorm { .. } | Softmax {} | LogSoftmax {} if input.len() > 1 => {
                Ends::Kept
            }
            MultiHeadAttention { memory: source, .. } if source.is_empty() => Ends::Kept,
            Residual { layers, shortcut } if kept(layers, input) && kept(shortcut, input) => Ends::Kept,
            ActivationCheckpoint { layers } if kept(layers, input) => Ends::Kept,
            LastTimeStep {} | TimeMean {} => Ends::Gone,
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
            | RandomHorizontalFlip { .. } => Ends::Mixed,
        }
    }
}

fn kept(layers: &[LayerSpec], input: &[usize]) -> bool {
    let shapes = shape::through(layers, input).unwrap_or_default();
    layers.iter().zip(&shapes).all(|(layer, input)| matches!(layer.ends(input), Ends::Kept))
}
