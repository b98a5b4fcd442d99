//! The layers, one file each.

mod activation;
mod attention;
mod augment;
mod checkpoint;
mod conv;
mod decoder;
mod dropout;
mod embedding;
mod linear;
mod mlp;
mod norm;
mod pool;
mod recurrent;
mod residual;
mod sequential;
mod time;
mod transformer;

pub use activation::LeakyRelu;
pub use attention::MultiHeadAttention;
pub use augment::{Flip, Noise, Shift};
pub use checkpoint::Checkpoint;
pub use conv::{Conv1d, Conv2d, Conv3d, Convolution, TransposedConvolution};
pub use decoder::{CrossAttention, Decoder};
pub use dropout::{Dropout, DropoutLayer};
pub use embedding::{Embedding, Positions, sinusoidal_positions};
pub use linear::Linear;
pub use mlp::Mlp;
pub use norm::{BatchNorm, GroupNorm, LayerNorm, Restore, RmsNorm, Standardise};
pub use pool::{AdaptiveAveragePool, AdaptiveMaxPool, AveragePool, Flatten, MaxPool, Narrow, Reshape, Unflatten};
pub use recurrent::{Cell, Depth, Direction, Memory, Recurrent};
pub use residual::Residual;
pub use sequential::{Map, Sequential, Stage};
pub use time::{Last, MeanOverTime};
pub use transformer::{Activation, BlockShape, DecoderBlock, EncoderBlock, FeedForward};
