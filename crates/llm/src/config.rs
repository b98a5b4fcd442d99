//! Configuration of a decoder, read from the metadata of a file.

use panoply_tensor::{Error, Result};

use crate::gguf::{Gguf, Value};

/// Sizes and constants of a LLaMA decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Vocabulary size.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of transformer blocks.
    pub blocks: usize,
    /// Inner width of the gated feed-forward layers.
    pub feed_forward: usize,
    /// Number of attention heads of the queries.
    pub heads: usize,
    /// Number of attention heads of keys and values; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Epsilon of the RMS norms.
    pub norm_eps: f64,
    /// Base of the rotary position embedding.
    pub rope_base: f64,
    /// Context length that the model was trained for.
    pub context_length: usize,
}

/// Supported metadata keys, without the prefix `llama.`. Any other key can change the computation and is an error.
const KNOWN: &[&str] = &[
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "vocab_size",
];

/// Upper bound of all sizes, which keeps products of sizes from overflowing.
const MAX_SIZE: usize = 1 << 24;

impl Config {
    /// Reads the configuration of a file.
    ///
    /// # Errors
    ///
    /// If the architecture is not `llama`, a key is missing or inconsistent with another, or a key is not supported.
    pub fn from_gguf(file: &Gguf) -> Result<Config> {
        let architecture = file.required("general.architecture", "a string", Value::as_str)?;
        if architecture != "llama" {
            return Err(unsupported(file, &format!("architecture {architecture:?} is not supported; llama is")));
        }
        let unknown = file.metadata.keys().filter_map(|key| key.strip_prefix("llama."));
        if let Some(key) = unknown.clone().find(|key| !KNOWN.contains(key)) {
            return Err(unsupported(file, &format!("metadata key llama.{key} is not supported")));
        }
        let size = |key: &str| -> Result<usize> {
            let key = format!("llama.{key}");
            let size = file.required(&key, "a size", Value::as_usize)?;
            if size == 0 || size > MAX_SIZE {
                return Err(contradiction(file, &format!("{key} is {size}, not between 1 and {MAX_SIZE}")));
            }
            Ok(size)
        };
        let optional_size = |key: &str| file.optional(&format!("llama.{key}"), "a size", Value::as_usize);
        let (hidden, heads) = (size("embedding_length")?, size("attention.head_count")?);
        let kv_heads = optional_size("attention.head_count_kv")?.unwrap_or(heads);
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) || !hidden.is_multiple_of(heads) {
            let what =
                format!("{heads} heads do not divide {hidden} elements or are not a multiple of {kv_heads} key heads");
            return Err(contradiction(file, &what));
        }
        let head_dim = hidden / heads;
        for key in ["attention.key_length", "attention.value_length", "rope.dimension_count"] {
            if let Some(other) = optional_size(key)?.filter(|other| *other != head_dim) {
                let what =
                    format!("llama.{key} {other} differs from the head width {head_dim}, which is not supported");
                return Err(unsupported(file, &what));
            }
        }
        let tokens = file.required("tokenizer.ggml.tokens", "an array", Value::as_array)?.len();
        let vocab = optional_size("vocab_size")?.unwrap_or(tokens);
        if vocab != tokens {
            return Err(contradiction(file, &format!("vocab_size is {vocab}, but there are {tokens} tokens")));
        }
        let number = |key: &str| file.optional(&format!("llama.{key}"), "a number", Value::as_f64);
        let config = Config {
            vocab,
            hidden,
            blocks: size("block_count")?,
            feed_forward: size("feed_forward_length")?,
            heads,
            kv_heads,
            head_dim,
            norm_eps: file.required("llama.attention.layer_norm_rms_epsilon", "a number", Value::as_f64)?,
            rope_base: number("rope.freq_base")?.unwrap_or(10_000.0),
            context_length: size("context_length")?,
        };
        let positive = |number: f64| number.is_finite() && number > 0.0;
        if !positive(config.norm_eps) || !positive(config.rope_base) {
            return Err(contradiction(file, "the norm's epsilon and the base of rotary positions must be positive"));
        }
        Ok(config)
    }
}

fn unsupported(file: &Gguf, what: &str) -> Error {
    Error::unsupported(format!("{}: {what}", file.path().display()))
}

fn contradiction(file: &Gguf, what: &str) -> Error {
    Error::corrupt(format!("{}: {what}", file.path().display()))
}
