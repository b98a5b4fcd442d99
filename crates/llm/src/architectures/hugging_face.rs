//! Configurations from Hugging Face's `config.json`, of `transformers` 4 and 5.

use panoply_tensor::{Result, RopeStyle};

use crate::config::{
    Activation, Biases, BlockConfig, Config, Experts, FeedForward, LongFactors, MAX_BLOCKS, Norm, NormKind, Rotary,
};
use crate::keys::Keys;

/// Keys that do not change what a trained model computes.
pub(super) const HARMLESS: &[&str] = &[
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "attn_pdrop",
    "auto_map",
    "bos_token_id",
    "cache_implementation",
    "dtype",
    "embd_pdrop",
    "eos_token_id",
    "gradient_checkpointing",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "is_llama_config",
    "label2id",
    "max_window_layers",
    "model_type",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "reorder_and_upcast_attn",
    "resid_pdrop",
    "rope_theta",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "torch_dtype",
    "transformers_version",
    "unk_token_id",
    "use_cache",
];

fn activation(keys: &Keys, key: &str, default: Activation) -> Result<Activation> {
    Ok(match keys.text(key)? {
        None => default,
        Some("silu" | "swish") => Activation::Silu,
        Some("gelu") => Activation::Gelu,
        Some("gelu_new" | "gelu_pytorch_tanh" | "gelu_fast") => Activation::GeluTanh,
        Some("relu") => Activation::Relu,
        Some(other) => return Err(keys.unsupported(&format!("{key} {other:?} is not supported"))),
    })
}

/// The common part of LLaMA and its relatives.
fn base(keys: &Keys) -> Result<Config> {
    let (hidden, heads) = (keys.size("hidden_size")?, keys.size("num_attention_heads")?);
    let head_dim = keys.optional_size("head_dim")?.unwrap_or(hidden / heads);
    let context_length = keys.size("max_position_embeddings")?;
    let has_biases = keys.flag("attention_bias")?;
    if keys.flag("rope_interleaved")? {
        return Err(keys.unsupported("rope_interleaved is not supported"));
    }
    let blocks = keys.size("num_hidden_layers")?;
    if blocks > MAX_BLOCKS {
        return Err(keys.wrong(&format!("{blocks} blocks; at most {MAX_BLOCKS} are allowed")));
    }
    let block = BlockConfig {
        window: None,
        rotary: Some(0),
        feed_forward: FeedForward::Dense(keys.size("intermediate_size")?),
    };
    let shape = RotaryShape { head_dim, context_length };
    Ok(Config {
        vocab: keys.size("vocab_size")?,
        hidden,
        heads,
        kv_heads: keys.optional_size("num_key_value_heads")?.unwrap_or(heads),
        head_dim,
        context_length,
        norm: Norm { kind: NormKind::Rms, epsilon: keys.number("rms_norm_eps")?, adds_one: false },
        post_norms: false,
        query_key_norm: false,
        biases: Biases { query_key_value: has_biases, attention_output: has_biases, feed_forward: false },
        attention_scale: 1.0 / (head_dim as f64).sqrt(),
        attention_soft_cap: None,
        logit_soft_cap: None,
        embedding_scale: 1.0,
        is_tied: keys.flag("tie_word_embeddings")?,
        has_position_embedding: false,
        rotaries: rotaries(keys, shape)?,
        activation: activation(keys, "hidden_act", Activation::Silu)?,
        is_gated: true,
        blocks: vec![block; blocks],
    })
}

/// Sizes that rotary embeddings depend on.
#[derive(Clone, Copy)]
struct RotaryShape {
    head_dim: usize,
    context_length: usize,
}

/// One rotary embedding, or those of full and of sliding attention.
fn rotaries(keys: &Keys, shape: RotaryShape) -> Result<Vec<Rotary>> {
    let theta = keys.optional_number("rope_theta")?;
    let partial = keys.optional_number("partial_rotary_factor")?;
    let original = keys.optional_size("original_max_position_embeddings")?;
    let parameters = match keys.nested("rope_parameters")? {
        Some(parameters) => Some(parameters),
        None => keys.nested("rope_scaling")?,
    };
    let Some(parameters) = parameters else {
        let width = rotary_width(keys, shape, partial)?;
        return Ok(vec![Rotary::new(width, theta.unwrap_or(10_000.0), RopeStyle::RotateHalf)]);
    };
    let one = |parameters: &Keys| rotary(parameters, shape, [theta, partial], original);
    let Some(full) = parameters.nested("full_attention")? else { return Ok(vec![one(&parameters)?]) };
    let local = parameters.nested("sliding_attention")?;
    parameters.finish(&[])?;
    let local = local.ok_or_else(|| keys.wrong("rope_parameters.sliding_attention is missing"))?;
    Ok(vec![one(&full)?, one(&local)?])
}

/// Elements of a head that turn, as a fraction of its width.
fn rotary_width(keys: &Keys, shape: RotaryShape, partial: Option<f64>) -> Result<usize> {
    let partial = partial.unwrap_or(1.0);
    if !(0.0..=1.0).contains(&partial) {
        return Err(keys.wrong(&format!("partial_rotary_factor is {partial}, not between 0 and 1")));
    }
    Ok((shape.head_dim as f64 * partial) as usize)
}

fn rotary(
    keys: &Keys,
    shape: RotaryShape,
    [theta, partial]: [Option<f64>; 2],
    original: Option<usize>,
) -> Result<Rotary> {
    let base = keys.optional_number("rope_theta")?.or(theta).unwrap_or(10_000.0);
    let width = rotary_width(keys, shape, keys.optional_number("partial_rotary_factor")?.or(partial))?;
    let mut rotary = Rotary::new(width, base, RopeStyle::RotateHalf);
    let original = keys.optional_size("original_max_position_embeddings")?.or(original);
    let kind = match keys.text("rope_type")? {
        Some(kind) => Some(kind),
        None => keys.text("type")?,
    };
    match kind.unwrap_or("default") {
        "default" => {}
        "linear" => rotary.scale = keys.number("factor")?,
        "llama3" => {
            let original = original.ok_or_else(|| keys.wrong("original_max_position_embeddings is missing"))?;
            rotary.factors = llama3_factors(keys, &rotary, original)?;
        }
        "longrope" | "su" => {
            let original = original.unwrap_or(shape.context_length);
            let factors = |key: &str| -> Result<Vec<f64>> {
                keys.numbers(key)?.ok_or_else(|| keys.wrong(&format!("{key} of rotary positions is missing")))
            };
            (rotary.factors, rotary.long) =
                (factors("short_factor")?, Some(LongFactors { original, factors: factors("long_factor")? }));
            let given = keys.optional_number("factor")?;
            let factor = if original == shape.context_length { given } else { None };
            let factor = factor.unwrap_or(shape.context_length as f64 / original as f64);
            let usual = if factor > 1.0 { (1.0 + factor.ln() / (original as f64).ln()).sqrt() } else { 1.0 };
            rotary.magnitude = keys.optional_number("attention_factor")?.unwrap_or(usual);
        }
        other => {
            let what = format!(
                "rotary positions of type {other:?} are not supported; default, linear, llama3 and longrope are"
            );
            return Err(keys.unsupported(&what));
        }
    }
    keys.finish(&["type"])?;
    Ok(rotary)
}

/// Low frequencies are divided by a factor, high ones stay, those between are interpolated.
///
/// Source: Llama 3.1's `apply_scaling`.
fn llama3_factors(keys: &Keys, rotary: &Rotary, original: usize) -> Result<Vec<f64>> {
    let factor = keys.number("factor")?;
    let (low, high) = (keys.number("low_freq_factor")?, keys.number("high_freq_factor")?);
    let divisor = |n: usize| {
        let frequency = rotary.base.powf(-2.0 * n as f64 / rotary.width as f64);
        let turns = original as f64 * frequency / std::f64::consts::TAU;
        if turns > high {
            return 1.0;
        }
        if turns < low {
            return factor;
        }
        let smooth = (turns - low) / (high - low);
        1.0 / ((1.0 - smooth) / factor + smooth)
    };
    Ok((0..rotary.width / 2).map(divisor).collect())
}

/// Sets the window of blocks whose layer type says so, or of all from `first` on where there are no layer types.
fn set_windows(keys: &Keys, config: &mut Config, window: Option<usize>, first: usize) -> Result<()> {
    let kinds = keys.texts("layer_types")?;
    if let Some(kinds) = &kinds
        && kinds.len() != config.blocks.len()
    {
        return Err(keys.wrong(&format!("{} layer_types for {} layers", kinds.len(), config.blocks.len())));
    }
    for (n, block) in config.blocks.iter_mut().enumerate() {
        let is_local = match kinds.as_ref().map(|kinds| kinds[n]) {
            None => n >= first,
            Some("sliding_attention") => true,
            Some("full_attention") => false,
            Some(other) => return Err(keys.unsupported(&format!("layer type {other:?} is not supported"))),
        };
        if is_local {
            block.window = window;
        }
    }
    Ok(())
}

pub(super) fn llama(keys: &Keys) -> Result<Config> {
    let mut config = base(keys)?;
    config.biases.feed_forward = keys.flag("mlp_bias")?;
    Ok(config)
}

pub(super) fn mistral(keys: &Keys) -> Result<Config> {
    let mut config = base(keys)?;
    let window = keys.optional_size("sliding_window")?;
    set_windows(keys, &mut config, window, 0)?;
    Ok(config)
}

pub(super) fn mixtral(keys: &Keys) -> Result<Config> {
    let mut config = mistral(keys)?;
    let FeedForward::Dense(width) = config.blocks[0].feed_forward else { return Ok(config) };
    let experts = Experts {
        count: keys.size("num_local_experts")?,
        used: keys.size("num_experts_per_tok")?,
        width,
        is_normalized: true,
        shared: None,
    };
    config.blocks.iter_mut().for_each(|block| block.feed_forward = FeedForward::Experts(experts));
    Ok(config)
}

/// Queries, keys and values have biases, the attention's output has none.
pub(super) fn qwen2(keys: &Keys) -> Result<Config> {
    let mut config = qwen3(keys)?;
    config.query_key_norm = false;
    config.biases.query_key_value = keys.optional_flag("qkv_bias")?.unwrap_or(true);
    Ok(config)
}

pub(super) fn qwen3(keys: &Keys) -> Result<Config> {
    let mut config = Config { query_key_norm: true, ..base(keys)? };
    let window = Some(keys.count("sliding_window")?).filter(|window| *window > 0);
    let is_used = keys.flag("use_sliding_window")?;
    let first = keys.count("max_window_layers")?;
    set_windows(keys, &mut config, window.filter(|_| is_used), first)?;
    Ok(config)
}

pub(super) fn qwen2_moe(keys: &Keys) -> Result<Config> {
    let shared = keys.size("shared_expert_intermediate_size")?;
    let config = qwen2(keys)?;
    with_experts(keys, config, Some(shared))
}

pub(super) fn qwen3_moe(keys: &Keys) -> Result<Config> {
    let config = qwen3(keys)?;
    with_experts(keys, config, None)
}

/// Every `decoder_sparse_step`-th block has experts, but for those of `mlp_only_layers`.
fn with_experts(keys: &Keys, mut config: Config, shared: Option<usize>) -> Result<Config> {
    let count = match keys.optional_size("num_experts")? {
        Some(count) => count,
        None => keys.size("num_local_experts")?,
    };
    let experts = Experts {
        count,
        used: keys.size("num_experts_per_tok")?,
        width: keys.size("moe_intermediate_size")?,
        is_normalized: keys.flag("norm_topk_prob")?,
        shared,
    };
    let step = keys.optional_size("decoder_sparse_step")?.unwrap_or(1);
    let dense = keys.counts("mlp_only_layers")?.unwrap_or_default();
    for (n, block) in config.blocks.iter_mut().enumerate() {
        if (n + 1) % step == 0 && !dense.contains(&n) {
            block.feed_forward = FeedForward::Experts(experts);
        }
    }
    Ok(config)
}

pub(super) fn gemma(keys: &Keys) -> Result<Config> {
    let config = base(keys)?;
    refuse_bidirectional(keys)?;
    // Early files name the exact function in `hidden_act` and mean this one.
    Ok(Config {
        norm: Norm { adds_one: true, ..config.norm },
        activation: activation(keys, "hidden_activation", Activation::GeluTanh)?,
        embedding_scale: (config.hidden as f64).sqrt(),
        is_tied: keys.optional_flag("tie_word_embeddings")?.unwrap_or(true),
        ..config
    })
}

fn refuse_bidirectional(keys: &Keys) -> Result<()> {
    match keys.flag("use_bidirectional_attention")? {
        true => Err(keys.unsupported("use_bidirectional_attention is not supported")),
        false => Ok(()),
    }
}

/// Every second block has a window, the first too.
pub(super) fn gemma2(keys: &Keys) -> Result<Config> {
    let mut config = capped_gemma(keys)?;
    let window = Some(keys.size("sliding_window")?);
    if keys.has("layer_types") {
        set_windows(keys, &mut config, window, 0)?;
    } else {
        config.blocks.iter_mut().step_by(2).for_each(|block| block.window = window);
    }
    Ok(config)
}

fn capped_gemma(keys: &Keys) -> Result<Config> {
    let config = gemma(keys)?;
    Ok(Config {
        post_norms: true,
        attention_scale: 1.0 / keys.number("query_pre_attn_scalar")?.sqrt(),
        attention_soft_cap: keys.optional_number("attn_logit_softcapping")?,
        logit_soft_cap: keys.optional_number("final_logit_softcapping")?,
        ..config
    })
}

/// Blocks with a window have rotary positions of their own.
pub(super) fn gemma3(keys: &Keys) -> Result<Config> {
    let mut config = Config { query_key_norm: true, ..capped_gemma(keys)? };
    let window = Some(keys.size("sliding_window")?);
    let pattern = keys.optional_size("sliding_window_pattern")?.or(keys.optional_size("_sliding_window_pattern")?);
    if keys.has("layer_types") {
        set_windows(keys, &mut config, window, 0)?;
    } else {
        let pattern = pattern.unwrap_or(6);
        let local = config.blocks.iter_mut().enumerate().filter(|(n, _)| (n + 1) % pattern != 0);
        local.for_each(|(_, block)| block.window = window);
    }
    let local = keys.optional_number("rope_local_base_freq")?.unwrap_or(10_000.0);
    if config.rotaries.len() == 1 {
        if !keys.has("rope_theta") && !keys.has("rope_parameters") {
            config.rotaries[0].base = 1_000_000.0;
        }
        config.rotaries.push(Rotary::new(config.head_dim, local, RopeStyle::RotateHalf));
    }
    config.blocks.iter_mut().filter(|block| block.window.is_some()).for_each(|block| block.rotary = Some(1));
    Ok(config)
}

pub(super) fn phi3(keys: &Keys) -> Result<Config> {
    mistral(keys)
}

/// Names of sizes differ from those of the others.
pub(super) fn gpt2(keys: &Keys) -> Result<Config> {
    let (hidden, heads) = (keys.size("n_embd")?, keys.size("n_head")?);
    let head_dim = hidden / heads;
    if head_dim * heads != hidden {
        return Err(keys.wrong(&format!("{heads} heads do not divide {hidden} elements")));
    }
    let positions = keys.size("n_positions")?;
    let inner = keys.optional_size("n_inner")?.unwrap_or(4 * hidden);
    let refused = ["add_cross_attention", "scale_attn_by_inverse_layer_idx"];
    for key in refused {
        if keys.flag(key)? {
            return Err(keys.unsupported(&format!("{key} is not supported")));
        }
    }
    let is_scaled = keys.optional_flag("scale_attn_weights")?.unwrap_or(true);
    // `n_ctx` says the same as `n_positions`.
    keys.optional_size("n_ctx")?;
    let blocks = keys.size("n_layer")?;
    if blocks > MAX_BLOCKS {
        return Err(keys.wrong(&format!("{blocks} blocks; at most {MAX_BLOCKS} are allowed")));
    }
    let block = BlockConfig { window: None, rotary: None, feed_forward: FeedForward::Dense(inner) };
    Ok(Config {
        vocab: keys.size("vocab_size")?,
        hidden,
        heads,
        kv_heads: heads,
        head_dim,
        context_length: positions,
        norm: Norm {
            kind: NormKind::Layer,
            epsilon: keys.optional_number("layer_norm_epsilon")?.unwrap_or(1e-5),
            adds_one: false,
        },
        post_norms: false,
        query_key_norm: false,
        biases: Biases { query_key_value: true, attention_output: true, feed_forward: true },
        attention_scale: if is_scaled { 1.0 / (head_dim as f64).sqrt() } else { 1.0 },
        attention_soft_cap: None,
        logit_soft_cap: None,
        embedding_scale: 1.0,
        is_tied: keys.optional_flag("tie_word_embeddings")?.unwrap_or(true),
        has_position_embedding: true,
        rotaries: Vec::new(),
        activation: activation(keys, "activation_function", Activation::GeluTanh)?,
        is_gated: false,
        blocks: vec![block; blocks],
    })
}
