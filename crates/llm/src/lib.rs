//! Language models: reads GGUF files, runs the decoder and samples tokens.
//!
//! In the order of data flow: [`gguf`] (metadata and tensors of a file), [`Config`] (configuration of the decoder), [`Packed`] (a weight
//! matrix in the encoding of its file), [`decoder`] (a step of the network with a key-value cache), [`tokenizer`] (text to token ids and
//! back), [`Sampling`] (logits to a token), [`Model`] (all of it). This crate does not depend on HTTP or the command line.
//!
//! Supported: GGUF versions 2 and 3 in one file, the architecture `llama` without RoPE scaling, the encodings of [`Encoding`], and
//! byte-level BPE vocabularies of GPT-2. Anything else is an error that names it.

#![forbid(unsafe_code)]

mod config;
pub mod decoder;
pub mod gguf;
mod model;
mod packed;
mod sampling;
pub mod tokenizer;

pub use config::Config;
pub use model::{FinishReason, Generation, Model, ModelOptions, Request};
pub use packed::Packed;
pub use panoply_ir::Encoding;
pub use sampling::Sampling;
