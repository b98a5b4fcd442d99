//! Attention of several heads. [Vaswani et al. 2017]

use panoply_tensor::{AttentionOptions, Error, Rng, Tensor};

use crate::layer::{ForwardContext, Layer, is_sequence};
use crate::layers::Linear;
use crate::module::module;

/// Heads that look at one sequence from another: `[batch, length, width]`.
#[derive(Clone, Debug)]
pub struct MultiHeadAttention {
    /// What each position looks for.
    pub query: Linear,
    /// What each position offers.
    pub key: Linear,
    /// What is taken from it.
    pub value: Linear,
    /// From the heads, side by side, back to the width.
    pub output: Linear,
    /// Heads of the queries.
    pub num_heads: usize,
    /// Heads of keys and values; a divisor of `heads`.
    pub num_kv_heads: usize,
    /// Whether, without another word, each position sees only those up to itself.
    pub causal: bool,
}

impl MultiHeadAttention {
    /// As many key heads as heads; the width is a multiple of them.
    pub fn new(width: usize, heads: usize, rng: &mut Rng) -> MultiHeadAttention {
        MultiHeadAttention::with_kv_heads(width, heads, heads, rng)
    }

    /// Neighboring heads share keys and values. [Ainslie et al. 2023]
    pub fn with_kv_heads(width: usize, heads: usize, key_heads: usize, rng: &mut Rng) -> MultiHeadAttention {
        let shared = width / heads.max(1) * key_heads;
        let mut linear = |outputs: usize| Linear::new(width, outputs, rng);
        let (query, key, value, output) = (linear(width), linear(shared), linear(shared), linear(width));
        MultiHeadAttention { query, key, value, output, num_heads: heads, num_kv_heads: key_heads, causal: false }
    }

    /// What `queries` take from `source`, each with one row for each position.
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
        let joined = query.scaled_dot_product_attention(&key, &value, attention).transpose(1, 2).flatten(2);
        self.output.forward(&joined, pass)
    }
}

/// `[batch, length, heads · width]` as `[batch, heads, length, width]`.
fn apart(x: Tensor, heads: usize) -> Tensor {
    let width = match is_sequence(&x).and_then(|()| x.size(2)) {
        Ok(width) => width,
        Err(error) => return Tensor::from_mistake(error),
    };
    if heads == 0 || !width.is_multiple_of(heads) {
        return Tensor::from_mistake(Error::mistake(format!("{heads} heads do not divide a width of {width}")));
    }
    x.unflatten(2, &[heads, width / heads]).transpose(1, 2)
}

/// Which positions of a sequence may be looked at, `[batch, heads, queries, keys]` but for lengths of 1, if not all may.
pub(super) fn seen(input: &Tensor, pass: &ForwardContext<'_>) -> Option<Tensor> {
    pass.valid_mask(input).map(|counted| counted.unsqueeze(1).unsqueeze(1))
}

/// Which positions of `source` may be looked at from `input`, if not all may: where it ends is known if both have as many times.
pub(super) fn seen_from(input: &Tensor, source: &Tensor, pass: &ForwardContext<'_>) -> Option<Tensor> {
    pass.seq_lengths()?;
    match (input.size(1), source.size(1)) {
        (Ok(times), Ok(others)) if times != others => {
            let message = format!("it is known where sequences of {times} times end, not where those of {others} do");
            Some(Tensor::from_mistake(Error::mistake(message).note("look at as many times, or leave out `Pass::over`")))
        }
        _ => seen(source, pass),
    }
}

impl Layer for MultiHeadAttention {
    /// Every position looks at every position that counts, or at those up to itself.
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let mask = seen(input, pass);
        self.attend(
            input,
            input,
            &AttentionOptions { is_causal: self.causal, attn_mask: mask.as_ref(), ..AttentionOptions::default() },
            pass,
        )
    }
}

module!(MultiHeadAttention { query, key, value, output });
