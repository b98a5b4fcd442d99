//! Configurations from GGUF metadata, as llama.cpp's converter writes them.
//!
//! Source: llama.cpp, convert_hf_to_gguf.py and src/llama-model.cpp, for constants that files do not hold.

use panoply_tensor::{Result, RopeStyle};

use crate::config::{
    Activation, Biases, BlockConfig, Config, Experts, FeedForward, LongFactors, MAX_BLOCKS, Norm, NormKind, Rotary,
};
use crate::gguf::{Gguf, Value};
use crate::keys::Keys;

/// Keys that do not change what a text model computes.
pub(super) const HARMLESS: &[&str] = &["mm.tokens_per_image", "rope.scaling.finetuned", "tensor_data_layout"];

/// The common part of all architectures: RMS norms, rotary positions, gated feed-forward layers with SiLU.
fn base(keys: &Keys, file: &Gguf, style: RopeStyle) -> Result<Config> {
    let (hidden, heads) = (keys.size("embedding_length")?, keys.size("attention.head_count")?);
    let head_dim = keys.optional_size("attention.key_length")?.unwrap_or(hidden / heads);
    if let Some(other) = keys.optional_size("attention.value_length")?.filter(|other| *other != head_dim) {
        return Err(keys.unsupported(&format!("values of width {other} beside keys of width {head_dim}")));
    }
    let tokens = file.required("tokenizer.ggml.tokens", "an array", Value::as_array)?.len();
    let vocab = keys.optional_size("vocab_size")?.unwrap_or(tokens);
    if vocab != tokens {
        return Err(keys.wrong(&format!("vocab_size is {vocab}, but there are {tokens} tokens")));
    }
    let blocks = keys.size("block_count")?;
    if blocks > MAX_BLOCKS {
        return Err(keys.wrong(&format!("{blocks} blocks; at most {MAX_BLOCKS} are allowed")));
    }
    let has = |name: &str| file.tensors.contains_key(name);
    let biases = Biases {
        query_key_value: has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias"),
        attention_output: has("blk.0.attn_output.bias"),
        feed_forward: has("blk.0.ffn_down.bias"),
    };
    let epsilon = match keys.optional_number("attention.layer_norm_rms_epsilon")? {
        Some(epsilon) => epsilon,
        None => keys.number("attention.layer_norm_epsilon")?,
    };
    let block = BlockConfig { window: None, rotary: Some(0), feed_forward: feed_forward(keys)? };
    Ok(Config {
        vocab,
        hidden,
        heads,
        kv_heads: keys.optional_size("attention.head_count_kv")?.unwrap_or(heads),
        head_dim,
        context_length: keys.size("context_length")?,
        norm: Norm { kind: NormKind::Rms, epsilon, adds_one: false },
        post_norms: false,
        query_key_norm: false,
        biases,
        attention_scale: 1.0 / (head_dim as f64).sqrt(),
        attention_soft_cap: None,
        logit_soft_cap: None,
        embedding_scale: 1.0,
        is_tied: !has("output.weight"),
        has_position_embedding: false,
        rotaries: vec![rotary(keys, file, head_dim, style)?],
        activation: Activation::Silu,
        is_gated: true,
        blocks: vec![block; blocks],
    })
}

fn feed_forward(keys: &Keys) -> Result<FeedForward> {
    let width = keys.optional_size("feed_forward_length")?;
    let count = keys.count("expert_count")?;
    let used = keys.count("expert_used_count")?;
    let missing = || keys.wrong("feed_forward_length is missing");
    if count == 0 {
        return Ok(FeedForward::Dense(width.ok_or_else(missing)?));
    }
    let own = keys.optional_size("expert_feed_forward_length")?;
    Ok(FeedForward::Experts(Experts {
        count,
        used,
        width: own.or(width).ok_or_else(missing)?,
        is_normalized: true,
        shared: keys.optional_size("expert_shared_feed_forward_length")?,
    }))
}

fn rotary(keys: &Keys, file: &Gguf, head_dim: usize, style: RopeStyle) -> Result<Rotary> {
    let width = keys.optional_size("rope.dimension_count")?.unwrap_or(head_dim);
    let base = keys.optional_number("rope.freq_base")?.unwrap_or(10_000.0);
    let mut rotary = Rotary::new(width, base, style);
    let factor = keys.optional_number("rope.scaling.factor")?.or(keys.optional_number("rope.scale_linear")?);
    match keys.text("rope.scaling.type")? {
        None if factor.is_none() => {}
        None | Some("linear") => rotary.scale = factor.unwrap_or(1.0),
        Some("none" | "longrope") => {}
        Some(other) => {
            return Err(
                keys.unsupported(&format!("rope.scaling.type {other:?} is not supported; linear and longrope are"))
            );
        }
    }
    rotary.factors = factors(file, "rope_freqs.weight")?;
    let (short, long) = (factors(file, "rope_factors_short.weight")?, factors(file, "rope_factors_long.weight")?);
    // The factors of LLaMA 3 are in a tensor already, so this only tells which ones of two serve a context.
    let original = keys.optional_size("rope.scaling.original_context_length")?;
    if !long.is_empty() {
        let original = original.ok_or_else(|| keys.wrong("rope.scaling.original_context_length is missing"))?;
        if short.is_empty() {
            return Err(keys.wrong("tensor rope_factors_short.weight is missing"));
        }
        rotary.factors = short;
        rotary.long = Some(LongFactors { original, factors: long });
    }
    rotary.magnitude = keys.optional_number("rope.scaling.attn_factor")?.unwrap_or(1.0);
    Ok(rotary)
}

/// Numbers of a tensor; none if it is not there.
fn factors(file: &Gguf, name: &str) -> Result<Vec<f64>> {
    let Some(tensor) = file.tensors.get(name) else { return Ok(Vec::new()) };
    let mut values = vec![0.0; tensor.k * tensor.rows];
    tensor.encoding.decode(file.bytes(tensor), &mut values);
    Ok(values.into_iter().map(f64::from).collect())
}

pub(super) fn llama(keys: &Keys, file: &Gguf) -> Result<Config> {
    let mut config = base(keys, file, RopeStyle::Interleaved)?;
    let window = Some(keys.count("attention.sliding_window")?).filter(|window| *window > 0);
    config.blocks.iter_mut().for_each(|block| block.window = window);
    Ok(config)
}

pub(super) fn qwen2(keys: &Keys, file: &Gguf) -> Result<Config> {
    base(keys, file, RopeStyle::RotateHalf)
}

pub(super) fn qwen3(keys: &Keys, file: &Gguf) -> Result<Config> {
    Ok(Config { query_key_norm: true, ..base(keys, file, RopeStyle::RotateHalf)? })
}

/// The weights of chosen experts are not scaled to sum to 1.
pub(super) fn qwen2_moe(keys: &Keys, file: &Gguf) -> Result<Config> {
    let mut config = base(keys, file, RopeStyle::RotateHalf)?;
    for block in &mut config.blocks {
        if let FeedForward::Experts(experts) = &mut block.feed_forward {
            experts.is_normalized = false;
        }
    }
    Ok(config)
}

pub(super) fn qwen3_moe(keys: &Keys, file: &Gguf) -> Result<Config> {
    qwen3(keys, file)
}

/// The converter has added one to the weights of norms.
pub(super) fn gemma(keys: &Keys, file: &Gguf) -> Result<Config> {
    let config = base(keys, file, RopeStyle::RotateHalf)?;
    Ok(Config { activation: Activation::GeluTanh, embedding_scale: (config.hidden as f64).sqrt(), ..config })
}

/// `blocks` of the largest model, which divides scores by the square root of the hidden size's part of a head.
fn scaled_gemma(keys: &Keys, file: &Gguf, largest: usize) -> Result<Config> {
    let mut config = Config { post_norms: true, ..gemma(keys, file)? };
    if config.blocks.len() == largest {
        config.attention_scale = 1.0 / (config.hidden as f64 / config.heads as f64).sqrt();
    }
    config.attention_soft_cap = keys.optional_number("attn_logit_softcapping")?;
    config.logit_soft_cap = keys.optional_number("final_logit_softcapping")?;
    Ok(config)
}

pub(super) fn gemma2(keys: &Keys, file: &Gguf) -> Result<Config> {
    let mut config = scaled_gemma(keys, file, 46)?;
    let window = Some(keys.size("attention.sliding_window")?);
    config.blocks.iter_mut().step_by(2).for_each(|block| block.window = window);
    Ok(config)
}

/// Five of six blocks have a window and rotary positions of their own.
pub(super) fn gemma3(keys: &Keys, file: &Gguf) -> Result<Config> {
    let mut config = Config { query_key_norm: true, ..scaled_gemma(keys, file, 62)? };
    if !keys.has("rope.freq_base") {
        config.rotaries[0].base = 1_000_000.0;
    }
    let window = Some(keys.size("attention.sliding_window")?);
    let pattern = keys.optional_size("attention.sliding_window_pattern")?.unwrap_or(6);
    let local = keys.optional_number("rope.freq_base_swa")?.unwrap_or(10_000.0);
    config.rotaries.push(Rotary::new(config.rotaries[0].width, local, RopeStyle::RotateHalf));
    for (n, block) in config.blocks.iter_mut().enumerate() {
        if (n + 1) % pattern != 0 {
            (block.window, block.rotary) = (window, Some(1));
        }
    }
    Ok(config)
}

pub(super) fn phi3(keys: &Keys, file: &Gguf) -> Result<Config> {
    let mut config = base(keys, file, RopeStyle::RotateHalf)?;
    let window = Some(keys.count("attention.sliding_window")?).filter(|window| *window > 0);
    config.blocks.iter_mut().for_each(|block| block.window = window);
    Ok(config)
}

pub(super) fn gpt2(keys: &Keys, file: &Gguf) -> Result<Config> {
    let mut config = base(keys, file, RopeStyle::RotateHalf)?;
    config.norm.kind = NormKind::Layer;
    config.activation = Activation::GeluTanh;
    (config.is_gated, config.has_position_embedding) = (false, true);
    config.rotaries.clear();
    config.blocks.iter_mut().for_each(|block| block.rotary = None);
    Ok(config)
}
