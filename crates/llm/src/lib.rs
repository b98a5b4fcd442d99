//! Language models: GGUF files are read, run and sampled.
//!
//! In the order the data flows: [`gguf`] (the file: metadata and tensors), [`Config`] (the shape of the decoder),
//! [`Packed`] (a weight matrix in the encoding of its file), [`decoder`] (one step of the network over a key-value cache),
//! [`tokenizer`] (text to token ids and back), [`Sampling`] (logits to a token), [`Model`] (all of it). Nothing here knows
//! HTTP or the command line.
//!
//! Supported today: GGUF versions 2 and 3 in one file, the architecture `llama` without RoPE scaling, the encodings of
//! [`Encoding`], and byte-level BPE vocabularies of GPT-2. Anything else is refused by name.

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
