//! Language models: reads GGUF files and Hugging Face folders, and generates text.
//!
//! In the order the data flows: [`gguf`] and [`folder`] (the file: metadata and tensors), `architectures` (metadata to a [`Config`] and
//! names of tensors), [`Packed`] (a weight matrix in the encoding of its file), [`decoder`] (one step of the network over a key-value
//! cache), [`tokenizer`] (text to token ids and back), [`chat`] (conversations to
//! text), [`Sampling`] (logits to a token), [`Model`] (all of these), [`Engine`] (many requests
//! at once). This crate does not depend on HTTP or the command line.
//!
//! Supported: GGUF versions 2 and 3, in one file or in shards, with the encodings of [`Encoding`], folders of safetensors files, and the
//! architectures of `architectures.rs`. Other models are rejected with an error that names the unsupported feature. Files are mapped, see
//! [`panoply_tensor::HostBytes`]; of what a CPU multiplies with, only rows that it interleaves are copied.

#![forbid(unsafe_code)]

mod architectures;
pub mod chat;
pub mod config;
pub mod decoder;
mod engine;
mod fit;
pub mod folder;
mod generation;
pub mod gguf;
mod keys;
mod model;
mod packed;
mod quantize;
mod sampling;
mod stop;
pub mod tokenizer;
mod weight_reader;

pub use chat::Message;
pub use config::Config;
pub use engine::{Completion, Engine, EngineOptions, EngineStats, Event, EventStream, SubmitError, Ticket};
pub use fit::{Fit, fit};
pub use generation::{FinishReason, Generation, Prompt, Request, Session};
pub use model::{ContextLengthError, Model, ModelOptions};
pub use packed::Packed;
pub use panoply_ir::Encoding;
pub use quantize::{QuantizedSize, QuantizedType, quantize};
pub use sampling::{Sampling, TokenLogprob};
