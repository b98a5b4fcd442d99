//! Layers, one file for each family.

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
mod sequence_pooling;
mod sequential;
mod transformer;

pub use activation::LeakyRelu;
pub use attention::MultiHeadAttention;
pub use augment::{GaussianNoise, RandomHorizontalFlip, RandomShift};
pub use checkpoint::ActivationCheckpoint;
pub use conv::{Conv1d, Conv2d, Conv3d, ConvNd, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, ConvTransposeNd};
pub use decoder::{CrossAttention, TransformerDecoder};
pub use dropout::{Dropout, DropoutExt};
pub use embedding::{Embedding, PositionalEncoding, sinusoidal_positional_encoding};
pub use linear::Linear;
pub use mlp::Mlp;
pub use norm::{BatchNorm, GroupNorm, InverseStandardize, LayerNorm, RmsNorm, Standardize};
pub use pool::{
    AdaptiveAvgPool, AdaptiveMaxPool, AvgPool, AvgPool1d, AvgPool2d, AvgPool3d, Flatten, MaxPool, MaxPool1d, MaxPool2d,
    MaxPool3d, Narrow, Reshape, Unflatten,
};
pub use recurrent::{
    Gru, GruCell, Lstm, LstmCell, Nonlinearity, RecurrentCell, Rnn, RnnBase, RnnCell, RnnLayer, RnnOptions, RnnState,
    RnnWeights,
};
pub use residual::Residual;
pub use sequence_pooling::{LastTimeStep, TimeMean};
pub use sequential::{Lambda, Sequential, SequentialLayer};
pub use transformer::{Activation, FeedForward, TransformerConfig, TransformerDecoderLayer, TransformerEncoderLayer};
