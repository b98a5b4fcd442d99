//! Multi-head attention. [Vaswani et al. 2017]

use panoply_tensor::{AttentionOptions, Error, Rng, Tensor};

use crate::layer::{ForwardContext, Layer, is_sequence};
use crate::layers::Linear;
use crate::module::module;

/// Multi-head attention over sequences `[batch, length, width]`.
#[doc(alias = "MultiheadAttention")]
#[derive(Clone, Debug)]
pub struct MultiHeadAttention {
    /// Query projection.
    pub query: Linear,
    /// Key projection.
    pub key: Linear,
    /// Value projection.
    pub value: Linear,
    /// Output projection of the concatenated heads.
    pub output: Linear,
    /// Number of query heads.
    pub num_heads: usize,
    /// Number of key and value heads; a divisor of `num_heads`.
    pub num_kv_heads: usize,
    /// True if [`Layer::forward`] applies a causal mask: each position attends only to itself and earlier ones.
    pub is_causal: bool,
}

impl MultiHeadAttention {
    /// Creates attention with the same number of query and key heads; `embed_dim` is a multiple of `num_heads`.
    pub fn new(embed_dim: usize, num_heads: usize, rng: &mut Rng) -> MultiHeadAttention {
        MultiHeadAttention::with_kv_heads(embed_dim, num_heads, num_heads, rng)
    }

    /// Creates grouped-query attention: neighboring query heads share keys and values. [Ainslie et al. 2023]
    pub fn with_kv_heads(embed_dim: usize, num_heads: usize, num_kv_heads: usize, rng: &mut Rng) -> MultiHeadAttention {
        let shared = embed_dim / num_heads.max(1) * num_kv_heads;
        let mut linear = |outputs: usize| Linear::new(embed_dim, outputs, rng);
        let (query, key, value, output) = (linear(embed_dim), linear(shared), linear(shared), linear(embed_dim));
        MultiHeadAttention { query, key, value, output, num_heads, num_kv_heads, is_causal: false }
    }

    /// Attends from `queries` to `source`, `[batch, length, width]` each, and projects the result.
    #[track_caller]
    pub fn attend(
        &self,
        queries: &Tensor,
        source: &Tensor,
        attention: &AttentionOptions<'_>,
        pass: &mut ForwardContext<'_>,
    ) -> Tensor {
        let query = apart(self.query.forward(queries, pass), self.num_heads);
        let key = apart(self.key.forward(source, pass), self.num_kv_heads);
        let value = apart(self.value.forward(source, pass), self.num_kv_heads);
        if query.check().is_err() {
            // The mistake of all three is reported once.
            let _ = (key.check(), value.check());
        }
        let joined = query.scaled_dot_product_attention(&key, &value, attention).transpose(1, 2).flatten(2, -1);
        self.output.forward(&joined, pass)
    }
}

/// Splits `[batch, length, heads · width]` into `[batch, heads, length, width]`.
#[track_caller]
fn apart(x: Tensor, heads: usize) -> Tensor {
    let width = match is_sequence(&x).and_then(|()| x.size(2)) {
        Ok(width) => width,
        Err(error) => return Tensor::from_mistake(error),
    };
    if heads == 0 || !width.is_multiple_of(heads) {
        return Tensor::from_mistake(Error::mistake(format!(
            "attention: the width {width} is not divisible by {heads} heads"
        )));
    }
    x.unflatten(2, &[heads, width / heads]).transpose(1, 2)
}

/// Returns the padding mask of the keys of a sequence, broadcastable to `[batch, heads, queries, keys]`, or `None` without padding.
pub(super) fn seen(input: &Tensor, pass: &ForwardContext<'_>) -> Option<Tensor> {
    pass.valid_mask(input).map(|counted| counted.unsqueeze(1).unsqueeze(1))
}

/// Returns the padding mask of `source` for queries from `input`, or `None` without padding. The valid lengths apply to `source` only if
/// both sequences have the same length.
pub(super) fn seen_from(input: &Tensor, source: &Tensor, pass: &ForwardContext<'_>) -> Option<Tensor> {
    pass.seq_lengths()?;
    match (input.size(1), source.size(1)) {
        (Ok(times), Ok(others)) if times != others => {
            let message = format!(
                "cross-attention: valid lengths are given for sequences of {times} time steps, the memory has {others}"
            );
            Some(Tensor::from_mistake(
                Error::mistake(message)
                    .note("use a memory of the same length, or omit `ForwardContext::with_seq_lengths`"),
            ))
        }
        _ => seen(source, pass),
    }
}

impl Layer for MultiHeadAttention {
    /// Applies self-attention; padding and, if `is_causal`, later positions are masked.
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let mask = seen(input, pass);
        self.attend(
            input,
            input,
            &AttentionOptions { is_causal: self.is_causal, attn_mask: mask.as_ref(), ..AttentionOptions::default() },
            pass,
        )
    }
}

module!(MultiHeadAttention { query, key, value, output });
