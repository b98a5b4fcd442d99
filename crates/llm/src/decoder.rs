//! A LLaMA decoder: weights, key-value cache, and the step function.
//!
//! Source: Touvron et al., LLaMA, 2023; tensor names and the order of rotary pairs follow GGUF.

use std::collections::BTreeSet;

use panoply_tensor::{AttentionOptions, DType, Error, Result, RopeStyle, Tensor};

use crate::config::Config;
use crate::gguf::Gguf;
use crate::packed::Packed;

/// Keys and values of each block, f32 `[kv heads, context, head width]`.
pub type Cache = Vec<[Tensor; 2]>;

/// The weights of a decoder.
#[derive(Debug)]
pub struct Weights {
    embedding: Packed,
    blocks: Vec<Block>,
    output_norm: Tensor,
    /// Output matrix; the embedding matrix if the file has none.
    output: Packed,
}

#[derive(Debug)]
struct Block {
    attention_norm: Tensor,
    query: Packed,
    key: Packed,
    value: Packed,
    attention_output: Packed,
    feed_forward_norm: Tensor,
    gate: Packed,
    up: Packed,
    down: Packed,
}

impl Weights {
    /// Reads the weights of a file onto the current device.
    ///
    /// # Errors
    ///
    /// If a tensor is missing, its shape differs from the configuration, or it is not part of the architecture.
    pub fn load(file: &Gguf, config: &Config) -> Result<Weights> {
        let mut reader = WeightReader { file, read: BTreeSet::new() };
        let (hidden, kv) = (config.hidden, config.kv_heads * config.head_dim);
        let embedding = reader.matrix("token_embd.weight", config.vocab, hidden)?;
        let mut blocks = Vec::new();
        for n in 0..config.blocks {
            blocks.push(reader.block(n, (hidden, kv, config.feed_forward))?);
        }
        let output_norm = reader.vector("output_norm.weight", hidden)?;
        let output = match file.tensors.contains_key("output.weight") {
            true => reader.matrix("output.weight", config.vocab, hidden)?,
            false => embedding.clone(),
        };
        if let Some(name) = file.tensors.keys().find(|name| !reader.read.contains(*name)) {
            let message = format!("{}: tensor {name} is not part of a LLaMA supported here", file.path().display());
            return Err(Error::unsupported(message));
        }
        Ok(Weights { embedding, blocks, output_norm, output })
    }

    /// Runs the decoder on the tokens `ids` i32 `[n]` at positions `position ..`, i32 `[]`. Writes their keys and values into the cache and
    /// returns the logits after the last token, f32 `[vocab]`.
    pub fn step(&self, config: &Config, cache: &mut Cache, [ids, position]: [&Tensor; 2]) -> Tensor {
        let count = match ids.shape() {
            Ok(shape) => shape.numel(),
            Err(error) => return Tensor::from_mistake(error),
        };
        let positions = Tensor::arange(count) + position;
        let mut x = self.embedding.index_select(ids);
        for (block, cache) in self.blocks.iter().zip(cache) {
            x = &x + block.attention(&norm(&x, &block.attention_norm, config), config, cache, [position, &positions]);
            x = &x + block.feed_forward(&norm(&x, &block.feed_forward_norm, config));
        }
        let last = norm(&x.narrow(0, count.saturating_sub(1), 1), &self.output_norm, config);
        self.output.matmul(&last).flatten(0)
    }
}

/// Returns an empty cache for `context` positions on the current device.
pub fn empty_cache(config: &Config, context: usize) -> Cache {
    let zeros = || Tensor::zeros([config.kv_heads, context, config.head_dim], DType::F32);
    (0..config.blocks).map(|_| [zeros(), zeros()]).collect()
}

fn norm(x: &Tensor, weight: &Tensor, config: &Config) -> Tensor {
    x.rms_norm(config.norm_eps) * weight
}

impl Block {
    /// Computes grouped-query attention of `x` `[n, hidden]` over the cache, after adding its keys and values.
    fn attention(
        &self,
        x: &Tensor,
        config: &Config,
        [keys, values]: &mut [Tensor; 2],
        [position, positions]: [&Tensor; 2],
    ) -> Tensor {
        let heads = |packed: &Packed, heads| packed.matmul(x).unflatten(-1, &[heads, config.head_dim]).transpose(0, 1);
        let rotated = |x: Tensor| x.rope(positions, config.rope_base, RopeStyle::Interleaved);
        let query = rotated(heads(&self.query, config.heads));
        *keys = keys.slice_scatter(1, position, &rotated(heads(&self.key, config.kv_heads)));
        *values = values.slice_scatter(1, position, &heads(&self.value, config.kv_heads));
        let context = match keys.shape() {
            Ok(shape) => shape.dims()[1],
            Err(error) => return Tensor::from_mistake(error),
        };
        // Later positions are in the future or not yet written.
        let mask = Tensor::arange(context).le(&positions.unsqueeze(1));
        let attended = query.scaled_dot_product_attention(
            keys,
            values,
            &AttentionOptions { attn_mask: Some(&mask), ..AttentionOptions::default() },
        );
        self.attention_output.matmul(&attended.transpose(0, 1).flatten(1))
    }

    /// Computes the gated feed-forward layer with SiLU.
    fn feed_forward(&self, x: &Tensor) -> Tensor {
        self.down.matmul(&(self.gate.matmul(x).silu() * self.up.matmul(x)))
    }
}

/// Reads tensors by name and records their names.
struct WeightReader<'a> {
    file: &'a Gguf,
    read: BTreeSet<String>,
}

impl WeightReader<'_> {
    fn block(&mut self, n: usize, (hidden, kv, feed_forward): (usize, usize, usize)) -> Result<Block> {
        let name = |part: &str| format!("blk.{n}.{part}.weight");
        Ok(Block {
            attention_norm: self.vector(&name("attn_norm"), hidden)?,
            query: self.matrix(&name("attn_q"), hidden, hidden)?,
            key: self.matrix(&name("attn_k"), kv, hidden)?,
            value: self.matrix(&name("attn_v"), kv, hidden)?,
            attention_output: self.matrix(&name("attn_output"), hidden, hidden)?,
            feed_forward_norm: self.vector(&name("ffn_norm"), hidden)?,
            gate: self.matrix(&name("ffn_gate"), feed_forward, hidden)?,
            up: self.matrix(&name("ffn_up"), feed_forward, hidden)?,
            down: self.matrix(&name("ffn_down"), hidden, feed_forward)?,
        })
    }

    fn matrix(&mut self, name: &str, rows: usize, k: usize) -> Result<Packed> {
        let path = self.file.path().display();
        let tensor = self.file.tensors.get(name);
        let tensor = tensor.ok_or_else(|| Error::corrupt(format!("{path}: tensor {name} is missing")))?;
        if (tensor.rows, tensor.k) != (rows, k) {
            let (other_rows, other_k) = (tensor.rows, tensor.k);
            return Err(Error::corrupt(format!(
                "{path}: tensor {name} is [{other_rows}, {other_k}]; the metadata require [{rows}, {k}]"
            )));
        }
        self.read.insert(name.to_string());
        Packed::new(self.file.bytes(tensor), tensor.encoding, rows, k)
    }

    fn vector(&mut self, name: &str, length: usize) -> Result<Tensor> {
        Ok(self.matrix(name, 1, length)?.unpack().flatten(0))
    }
}
