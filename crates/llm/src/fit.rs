//! Memory that a model needs, from its headers.
//!
//! The model is opened and stepped on a copy of the device that stores nothing ([`Device::dry_run`]), so weights are not read and the memory
//! of intermediate values is that of the real plans.

use std::path::Path;

use panoply_tensor::{Device, Error, Result};

use crate::config::{Config, FeedForward, NormKind};
use crate::folder::json_object;
use crate::keys::Keys;
use crate::model::{Model, ModelOptions, PIECES};

/// Tokens of the prompt whose steps are planned: one step of each size.
const PROMPT: usize = PIECES[0] + PIECES[1] + PIECES[2];

/// Memory that a model needs on a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Size of the key-value cache of each sequence in tokens.
    pub context_length: usize,
    /// Number of sequences, each with its own cache.
    pub sequences: usize,
    /// Size of the weights.
    pub weight_bytes: u64,
    /// Size of the key-value caches of all sequences.
    pub cache_bytes: u64,
    /// Size of the intermediate values of a step of one sequence.
    pub scratch_bytes: u64,
    /// Size of the weights that a generated token reads.
    pub weight_bytes_per_token: u64,
    /// Free memory of the device, or all of it if the device does not report how much is free.
    pub available_bytes: u64,
    /// Longest context length that fits, at most that of the model, accurate to 1 %; `None` if not even one token fits.
    pub largest_context_length: Option<usize>,
}

impl Fit {
    /// Returns the sum of weights, cache and intermediate values.
    pub fn total_bytes(&self) -> u64 {
        self.weight_bytes + self.cache_bytes + self.scratch_bytes
    }

    /// Returns true if the device has enough free memory.
    pub fn fits(&self) -> bool {
        self.total_bytes() <= self.available_bytes
    }
}

/// Memory for one context length, in bytes.
#[derive(Clone, Copy)]
struct Plan {
    weights: u64,
    /// Of one sequence.
    cache: u64,
    scratch: u64,
}

impl Plan {
    fn total(&self, sequences: usize) -> u64 {
        self.weights.saturating_add(self.cache.saturating_mul(sequences as u64)).saturating_add(self.scratch)
    }
}

/// Computes the memory that a GGUF file or a folder needs on a device, without reading its weights.
///
/// # Errors
///
/// As for [`Model::open`].
pub fn fit(path: &Path, options: &ModelOptions, sequences: usize, device: &Device) -> Result<Fit> {
    if sequences == 0 {
        return Err(Error::mistake("the number of sequences is 0; it is at least 1"));
    }
    let dry = device.dry_run();
    let planned = |context: usize| plan(path, context, &dry);
    let (config, context) = dry.scope(|| {
        let model = Model::open(path, options)?;
        Ok::<_, Error>((model.config().clone(), model.context_length()))
    })?;
    let Plan { weights, cache, scratch } = planned(context)?;
    let memory = device.memory();
    let available_bytes = memory.free.unwrap_or(memory.total);
    let fits = |context: usize| planned(context).map(|plan| plan.total(sequences) <= available_bytes);
    let largest_context_length = match fits(config.context_length)? {
        true => Some(config.context_length),
        false => largest(config.context_length, fits)?,
    };
    let [all, active] = config.weight_counts();
    Ok(Fit {
        context_length: context,
        sequences,
        weight_bytes: weights,
        cache_bytes: cache.saturating_mul(sequences as u64),
        scratch_bytes: scratch,
        weight_bytes_per_token: (weights as f64 * (active as f64 / all as f64)) as u64,
        available_bytes,
        largest_context_length,
    })
}

/// Returns the largest number below `end` that fits, accurate to 1 %; `None` if 1 does not fit.
fn largest(end: usize, fits: impl Fn(usize) -> Result<bool>) -> Result<Option<usize>> {
    if !fits(1)? {
        return Ok(None);
    }
    let (mut low, mut high) = (1, end);
    while high - low > (low / 100).max(1) {
        let middle = low + (high - low) / 2;
        if fits(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(Some(low))
}

/// Opens and steps a model on a device that stores nothing.
fn plan(path: &Path, context: usize, dry: &Device) -> Result<Plan> {
    dry.scope(|| {
        dry.trim_memory();
        dry.reset_peak_memory_stats();
        let before = dry.memory_stats().allocated;
        let model = Model::open(path, &ModelOptions { context_length: Some(context) })?;
        let prompt = PROMPT.min(context);
        let mut cache = model.new_cache();
        model.logits(&mut cache, &vec![0; prompt], 0)?;
        model.logits(&mut cache, &[0], context - 1)?;
        let peak = dry.memory_stats().peak_allocated - before;
        let held = dry.memory_stats().allocated - before;
        let cache_bytes = model.config().cache_bytes(model.slot_rows());
        Ok(Plan { weights: held - cache_bytes, cache: cache_bytes, scratch: peak - held })
    })
}

impl Config {
    /// Reads a `config.json` of Hugging Face.
    ///
    /// # Errors
    ///
    /// As for [`Config::from_gguf`].
    pub fn from_json_file(path: &Path) -> Result<Config> {
        Config::from_keys(&Keys::of_json(path.display().to_string(), &json_object(path)?))
    }

    /// Returns the bytes of the keys and values of one sequence.
    pub fn cache_bytes(&self, context: usize) -> u64 {
        let position = 2 * self.kv_heads * self.head_dim * size_of::<f32>();
        position as u64 * (context as u64 * self.blocks.len() as u64)
    }

    /// Returns the number of weights, and of those that a token is multiplied with: not the embeddings of other tokens, nor the experts that
    /// are not chosen.
    pub fn weight_counts(&self) -> [u64; 2] {
        let Config { vocab, hidden, heads, kv_heads, head_dim, .. } = *self;
        let [vocab, hidden, head_dim] = [vocab, hidden, head_dim].map(|size| size as u64);
        let (wide, narrow) = (heads as u64 * head_dim, kv_heads as u64 * head_dim);
        let norm = |width: u64| if self.norm.kind == NormKind::Layer { 2 * width } else { width };
        let head_norms = if self.query_key_norm { 2 * norm(head_dim) } else { 0 };
        let norms_per_block = if self.post_norms { 4 } else { 2 } * norm(hidden) + head_norms;
        let biases = u64::from(self.biases.query_key_value) * (wide + 2 * narrow)
            + u64::from(self.biases.attention_output) * hidden;
        let attention = hidden * (2 * wide + 2 * narrow) + biases;
        let matrices = if self.is_gated { 3 } else { 2 };
        let dense = |width: usize| {
            let width = width as u64;
            let biases = (matrices - 1) * width + hidden;
            matrices * hidden * width + u64::from(self.biases.feed_forward) * biases
        };
        let embedding = vocab * hidden;
        let mut counts =
            [if self.is_tied { embedding } else { 2 * embedding }, embedding].map(|count| count + norm(hidden));
        counts[0] += u64::from(self.has_position_embedding) * self.context_length as u64 * hidden;
        for block in &self.blocks {
            let [all, active] = match block.feed_forward {
                FeedForward::Dense(width) => [dense(width); 2],
                FeedForward::Experts(experts) => {
                    let shared = experts.shared.map_or(0, |width| dense(width) + hidden);
                    let every_token = hidden * experts.count as u64 + shared;
                    [experts.count, experts.used].map(|count| every_token + count as u64 * dense(experts.width))
                }
            };
            counts[0] += norms_per_block + attention + all;
            counts[1] += norms_per_block + attention + active;
        }
        counts
    }
}
