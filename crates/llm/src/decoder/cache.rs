//! The key-value cache, and attention of tokens to it.
//!
//! A cache has slots of equal length, one sequence in each, so a row number identifies sequence and position. Pages of 16 rows, as in
//! vLLM, would let sequences share prefixes and take only the memory they need, but a request could run out of pages while it is answered.

use panoply_ir::routine::{CachedAttention, Routine};
use panoply_ir::{DType, Scalar};
use panoply_tensor::call_attrs::CallAttrs;
use panoply_tensor::{AttentionOptions, Tensor};

use super::soft_capped;
use crate::config::Config;

/// Keys and values of each block: f32 `[kv heads, slots · slot rows, head width]` both.
pub type Cache = Vec<[Tensor; 2]>;

/// Returns an empty cache of `slots` sequences of up to `slot_rows` positions on the current device.
pub fn empty_cache(config: &Config, slots: usize, slot_rows: usize) -> Cache {
    let zeros = || Tensor::zeros([config.kv_heads, slots * slot_rows, config.head_dim], DType::F32);
    config.blocks.iter().map(|_| [zeros(), zeros()]).collect()
}

/// Rows of the cache for the tokens of a step.
#[derive(Debug)]
pub(super) struct Rows {
    /// Number of tokens of the first sequence; each further token belongs to a separate sequence.
    pub piece: usize,
    /// Number of sequences.
    pub sequences: usize,
    /// Row of the first token of each sequence, i32 `[sequences]`.
    starts: Tensor,
    /// Row of each token, i32 `[tokens]`.
    all: Tensor,
    slot_rows: usize,
}

impl Rows {
    /// Returns the rows of `tokens` tokens whose sequences start at the rows `starts`, i32 `[sequences]`.
    pub fn new(starts: &Tensor, tokens: usize, sequences: usize, slot_rows: usize) -> Rows {
        let piece = tokens + 1 - sequences;
        let first = || Tensor::arange(piece) + starts.narrow(0, 0, 1);
        let all = match (piece, sequences) {
            (1, _) => starts.clone(),
            (_, 1) => first(),
            _ => Tensor::concat([first(), starts.narrow(0, 1, sequences - 1)], 0),
        };
        Rows { piece, sequences, starts: starts.clone(), all, slot_rows }
    }

    /// Returns the position of each token in its sequence, i32 `[tokens]`.
    pub fn positions(&self) -> Tensor {
        &self.all % self.slot_rows as f64
    }

    /// Returns a cache's keys or values with those of the tokens, `[kv heads, tokens, head width]`. Rows out of range are dropped.
    pub fn write(&self, cache: &Tensor, new: &Tensor) -> Tensor {
        let write = |cache: &Tensor, sequence: usize, first: usize, count: usize| {
            let start = self.starts.narrow(0, sequence, 1).squeeze(0);
            cache.slice_scatter(&new.narrow(1, first, count), 1, &start)
        };
        let cache = write(cache, 0, 0, self.piece);
        (1..self.sequences).fold(cache, |cache, n| write(&cache, n, self.piece + n - 1, 1))
    }

    /// Returns the attention of queries `[tokens, heads, head width]` to the rows of their own sequences up to their own row.
    pub fn attention(&self, config: &Config, window: Option<usize>, queries: &Tensor, cache: &[Tensor; 2]) -> Tensor {
        let [keys, values] = cache;
        let attrs = Attrs {
            slot_rows: self.slot_rows,
            scale: config.attention_scale,
            soft_cap: config.attention_soft_cap,
            window: window.filter(|window| *window < self.slot_rows),
        };
        let inputs = [queries, keys, values, &self.all];
        let [output] = Tensor::call_with_routine("cached_attention", inputs, attrs, body, routine);
        output
    }
}

/// Settings of attention to a cache.
#[derive(Clone, Copy)]
struct Attrs {
    slot_rows: usize,
    scale: f64,
    soft_cap: Option<f64>,
    window: Option<usize>,
}

impl CallAttrs for Attrs {
    fn write_key(&self, words: &mut Vec<u64>) {
        self.slot_rows.write_key(words);
        self.scale.write_key(words);
        self.soft_cap.write_key(words);
        self.window.write_key(words);
    }
}

fn routine([queries, keys, ..]: [&Tensor; 4], attrs: &Attrs) -> Option<Routine> {
    let (queries, keys) = (queries.shape().ok()?, keys.shape().ok()?);
    let (&[tokens, heads, width], &[key_heads, rows, _]) = (queries.dims(), keys.dims()) else { return None };
    let Attrs { slot_rows, scale, soft_cap, window } = *attrs;
    let number = |number: f64| Scalar::from_f64(DType::F32, number);
    Some(Routine::CachedAttention(CachedAttention {
        tokens,
        heads,
        key_heads,
        slots: rows / slot_rows,
        slot_rows,
        width,
        scale: number(scale),
        soft_cap: soft_cap.map(number),
        window,
    }))
}

/// Computes the attention with tensor operations over all rows of a slot: of the only slot for all tokens, or of a copy of its slot for each token.
fn body([queries, keys, values, rows]: [&Tensor; 4], attrs: &Attrs) -> [Tensor; 1] {
    let cache_rows = match keys.shape() {
        Ok(shape) => shape.dims()[1],
        Err(error) => return [Tensor::from_mistake(error)],
    };
    let number = |number: usize| Tensor::full([], number as i32);
    let (all, own) = (Tensor::arange(attrs.slot_rows), (rows % attrs.slot_rows as f64).unsqueeze(1));
    let is_inside = rows.ge(&number(0)).bitwise_and(&rows.lt(&number(cache_rows)));
    let mut mask = all.le(&own).bitwise_and(&is_inside.unsqueeze(1));
    if let Some(window) = attrs.window {
        mask = mask.bitwise_and(&all.gt(&(own - window as f64)));
    }
    if cache_rows == attrs.slot_rows {
        return [attended([&queries.transpose(0, 1), keys, values], &mask, attrs).transpose(0, 1)];
    }
    let slot = rows / attrs.slot_rows as f64;
    let of_tokens = |cache: &Tensor| {
        let slots = cache.unflatten(1, &[cache_rows / attrs.slot_rows, attrs.slot_rows]);
        slots.index_select(1, &slot).transpose(0, 1)
    };
    let mask = mask.unsqueeze(1).unsqueeze(1);
    [attended([&queries.unsqueeze(2), &of_tokens(keys), &of_tokens(values)], &mask, attrs).squeeze(2)]
}

/// Returns the masked attention of queries `[…, heads, n, width]` to keys `[…, kv heads, rows, width]`; zeros for a query without keys.
fn attended([queries, keys, values]: [&Tensor; 3], mask: &Tensor, attrs: &Attrs) -> Tensor {
    if attrs.soft_cap.is_none() {
        let options =
            AttentionOptions { attn_mask: Some(mask), scale: Some(attrs.scale), ..AttentionOptions::default() };
        return queries.scaled_dot_product_attention(keys, values, &options);
    }
    let (shape, key_shape) = match (queries.shape(), keys.shape()) {
        (Ok(shape), Ok(key_shape)) => (shape.dims(), key_shape.dims()),
        (Err(error), _) | (_, Err(error)) => return Tensor::from_mistake(error),
    };
    let axis = shape.len() - 3;
    let queries = queries.unflatten(axis as isize, &[key_shape[axis], shape[axis] / key_shape[axis]]);
    let scores = queries.matmul(&keys.unsqueeze(-3).transpose(-1, -2)) * attrs.scale;
    let scores = soft_capped(scores, attrs.soft_cap);
    let mask = if axis > 0 { mask.unsqueeze(1) } else { mask.clone() };
    let weights = scores.where_self(&mask, &Tensor::full([], f32::NEG_INFINITY)).softmax(-1);
    let weights = weights.where_self(&mask, &Tensor::full([], 0.0f32));
    let output = weights.matmul(&values.unsqueeze(-3));
    let [heads, width] = [shape[axis], shape[axis + 2]].map(|dim| dim as isize);
    if axis > 0 { output.reshape([-1, heads, 1, width]) } else { output.reshape([heads, -1, width]) }
}
