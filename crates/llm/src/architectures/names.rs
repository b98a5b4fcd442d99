//! Names of tensors, without `.weight` and `.bias`. `{}` is the number of the block, `{e}` that of the expert; experts without `{e}` are
//! stacked in one tensor. An empty name means that the format has no such tensor.

/// Names of the tensors of a decoder.
#[derive(Debug)]
pub(crate) struct Names {
    /// Prefix of all names; files can omit it.
    pub prefix: &'static str,
    pub embedding: &'static str,
    pub position_embedding: &'static str,
    pub output_norm: &'static str,
    /// Name that never has the prefix.
    pub output: &'static str,
    pub attention_norm: &'static str,
    pub query: &'static str,
    pub key: &'static str,
    pub value: &'static str,
    /// Fused query, key and value projection.
    pub query_key_value: &'static str,
    pub query_norm: &'static str,
    pub key_norm: &'static str,
    pub attention_output: &'static str,
    pub attention_post_norm: &'static str,
    pub feed_forward_norm: &'static str,
    pub feed_forward_post_norm: &'static str,
    pub gate: &'static str,
    pub up: &'static str,
    /// Fused gate and up projection.
    pub gate_up: &'static str,
    pub down: &'static str,
    pub router: &'static str,
    pub expert_gate: &'static str,
    pub expert_up: &'static str,
    pub expert_down: &'static str,
    pub shared_router: &'static str,
    pub shared_gate: &'static str,
    pub shared_up: &'static str,
    pub shared_down: &'static str,
    /// True if the matrices of blocks are stored as `[inputs, outputs]`.
    pub is_transposed: bool,
    /// Suffixes of tensors that are not weights.
    pub ignored: &'static [&'static str],
}

/// Names of GGUF, for every architecture.
pub(crate) const GGUF_NAMES: Names = Names {
    prefix: "",
    embedding: "token_embd",
    position_embedding: "position_embd",
    output_norm: "output_norm",
    output: "output",
    attention_norm: "blk.{}.attn_norm",
    query: "blk.{}.attn_q",
    key: "blk.{}.attn_k",
    value: "blk.{}.attn_v",
    query_key_value: "blk.{}.attn_qkv",
    query_norm: "blk.{}.attn_q_norm",
    key_norm: "blk.{}.attn_k_norm",
    attention_output: "blk.{}.attn_output",
    attention_post_norm: "blk.{}.post_attention_norm",
    feed_forward_norm: "blk.{}.ffn_norm",
    feed_forward_post_norm: "blk.{}.post_ffw_norm",
    gate: "blk.{}.ffn_gate",
    up: "blk.{}.ffn_up",
    // Where there is no gate's tensor, it is the first half of this.
    gate_up: "blk.{}.ffn_up",
    down: "blk.{}.ffn_down",
    router: "blk.{}.ffn_gate_inp",
    expert_gate: "blk.{}.ffn_gate_exps",
    expert_up: "blk.{}.ffn_up_exps",
    expert_down: "blk.{}.ffn_down_exps",
    shared_router: "blk.{}.ffn_gate_inp_shexp",
    shared_gate: "blk.{}.ffn_gate_shexp",
    shared_up: "blk.{}.ffn_up_shexp",
    shared_down: "blk.{}.ffn_down_shexp",
    is_transposed: false,
    // Factors of rotary frequencies are part of the configuration.
    ignored: &["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"],
};

/// Names of LLaMA, Mistral, Qwen and Gemma in Hugging Face's files.
pub(super) const LLAMA: Names = Names {
    prefix: "model.",
    embedding: "embed_tokens",
    position_embedding: "",
    output_norm: "norm",
    output: "lm_head",
    attention_norm: "layers.{}.input_layernorm",
    query: "layers.{}.self_attn.q_proj",
    key: "layers.{}.self_attn.k_proj",
    value: "layers.{}.self_attn.v_proj",
    query_key_value: "layers.{}.self_attn.qkv_proj",
    query_norm: "layers.{}.self_attn.q_norm",
    key_norm: "layers.{}.self_attn.k_norm",
    attention_output: "layers.{}.self_attn.o_proj",
    attention_post_norm: "",
    feed_forward_norm: "layers.{}.post_attention_layernorm",
    feed_forward_post_norm: "",
    gate: "layers.{}.mlp.gate_proj",
    up: "layers.{}.mlp.up_proj",
    gate_up: "layers.{}.mlp.gate_up_proj",
    down: "layers.{}.mlp.down_proj",
    router: "layers.{}.mlp.gate",
    expert_gate: "layers.{}.mlp.experts.{e}.gate_proj",
    expert_up: "layers.{}.mlp.experts.{e}.up_proj",
    expert_down: "layers.{}.mlp.experts.{e}.down_proj",
    shared_router: "layers.{}.mlp.shared_expert_gate",
    shared_gate: "layers.{}.mlp.shared_expert.gate_proj",
    shared_up: "layers.{}.mlp.shared_expert.up_proj",
    shared_down: "layers.{}.mlp.shared_expert.down_proj",
    is_transposed: false,
    ignored: &["rotary_emb.inv_freq"],
};

pub(super) const MIXTRAL: Names = Names {
    router: "layers.{}.block_sparse_moe.gate",
    expert_gate: "layers.{}.block_sparse_moe.experts.{e}.w1",
    expert_up: "layers.{}.block_sparse_moe.experts.{e}.w3",
    expert_down: "layers.{}.block_sparse_moe.experts.{e}.w2",
    ..LLAMA
};

pub(super) const GEMMA2: Names = Names {
    attention_post_norm: "layers.{}.post_attention_layernorm",
    feed_forward_norm: "layers.{}.pre_feedforward_layernorm",
    feed_forward_post_norm: "layers.{}.post_feedforward_layernorm",
    ..LLAMA
};

pub(super) const GPT2: Names = Names {
    prefix: "transformer.",
    embedding: "wte",
    position_embedding: "wpe",
    output_norm: "ln_f",
    attention_norm: "h.{}.ln_1",
    query_key_value: "h.{}.attn.c_attn",
    attention_output: "h.{}.attn.c_proj",
    feed_forward_norm: "h.{}.ln_2",
    up: "h.{}.mlp.c_fc",
    down: "h.{}.mlp.c_proj",
    is_transposed: true,
    // Causal masks of old files.
    ignored: &[".attn.bias", ".attn.masked_bias"],
    ..LLAMA
};
