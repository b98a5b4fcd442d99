//! Attention and rotary position embeddings. A device can compute attention and its backward pass with a library
//! routine.
//!
//! Sources: Vaswani et al., Attention Is All You Need, 2017; Ainslie et al., GQA, 2023; Su et al., RoFormer, 2021.

use std::panic::Location;

use panoply_ir::kernel::ReduceOp;
use panoply_ir::routine::{self, Mask, Routine};
use panoply_ir::{DType, Error, Scalar, Shape};

use crate::call::CompositeOp;
use crate::dynamic_dim;
use crate::tensor::Tensor;

/// Options of [`Tensor::scaled_dot_product_attention`].
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionOptions<'a> {
    /// True if query i attends only to keys 0 ..= `past_len` + i.
    pub is_causal: bool,
    /// Number of keys before the first query, as in a KV cache.
    pub past_len: usize,
    /// Mask, broadcast to `[…, heads, queries, keys]`: a bool is true where a key takes part, a float is added to the
    /// scores.
    pub attn_mask: Option<&'a Tensor>,
    /// Factor of the scores; the default is 1/√width.
    pub scale: Option<f64>,
}

/// Pairing of the elements that [`Tensor::rope`] rotates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// Elements i and i + width/2, as in GPT-NeoX and Hugging Face's LLaMA.
    RotateHalf,
    /// Elements 2i and 2i + 1, as in the RoFormer paper.
    Interleaved,
}

/// Options of [`Tensor::rope`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeOptions {
    /// Base of the wavelengths; 10000 by default.
    pub base: f64,
    /// Elements of a pair.
    pub style: RopeStyle,
}

impl Default for RopeOptions {
    fn default() -> RopeOptions {
        RopeOptions { base: 10_000.0, style: RopeStyle::RotateHalf }
    }
}

impl Tensor {
    /// Returns softmax(queries · keysᵀ · scale) · values. Queries (`self`) are `[…, heads, queries, width]`, keys
    /// `[…, key_heads, keys, width]`, values `[…, key_heads, keys, depth]`; the result is `[…, heads, queries,
    /// depth]`.
    ///
    /// `heads` is a multiple of `key_heads`; consecutive heads share keys (grouped-query attention). A query without
    /// keys gives zeros.
    #[doc(alias = "sdpa")]
    #[track_caller]
    pub fn scaled_dot_product_attention(
        &self,
        keys: &Tensor,
        values: &Tensor,
        attention: &AttentionOptions<'_>,
    ) -> Tensor {
        let operands = [Some(self), Some(keys), Some(values), attention.attn_mask];
        if let Some(mistake) = operands.into_iter().flatten().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        let (q, k, v) = (self.0.shape.dims(), keys.0.shape.dims(), values.0.shape.dims());
        let rank = q.len();
        let place = Location::caller();
        let wrong = |what: &str| {
            let note = format!("queries {self:?}, keys {keys:?}, values {values:?}");
            Tensor::mistake(Error::mistake(format!("attention: {what}")).note(note).with_location(place))
        };
        if rank < 3 || k.len() != rank || v.len() != rank {
            return wrong("needs [heads, length, width] and equal leading axes on all three");
        }
        if q[rank - 1] != k[rank - 1] || k[..rank - 1] != v[..rank - 1] || q[..rank - 3] != k[..rank - 3] {
            return wrong("lengths of queries, keys and values do not fit");
        }
        let (heads, shared, width) = (q[rank - 3], k[rank - 3], q[rank - 1]);
        if heads == 0 || shared == 0 {
            return wrong(&format!("{heads} heads and {shared} key heads; each must be at least 1"));
        }
        if !heads.is_multiple_of(shared) {
            return wrong(&format!("{heads} heads are not a multiple of {shared} key heads"));
        }
        let dtype = self.dtype();
        if !dtype.is_float() || keys.dtype() != dtype || values.dtype() != dtype {
            return wrong("queries, keys and values must be floats of one type");
        }
        if let Some(mask) = attention.attn_mask {
            let scores = Shape::new([&q[..rank - 1], &[k[rank - 2]]].concat());
            let fits = mask.0.shape.broadcast(&scores).is_ok_and(|shape| shape == scores);
            if !fits || ![DType::Bool, dtype].contains(&mask.dtype()) {
                return wrong(&format!("the mask {mask:?} must be bool or {dtype} and broadcast to scores {scores}"));
            }
        }
        if let Err(mistake) = self.ends_with(keys, values) {
            return mistake;
        }
        let scale = attention.scale.unwrap_or(1.0 / (width.max(1) as f64).sqrt());
        // A larger `past_len` than the number of keys has no effect.
        let settings = (attention.is_causal, attention.past_len.min(k[rank - 2]), scale);
        let [output, _] = attended([self, keys, values], attention.attn_mask, settings);
        output
    }

    /// Checks that dynamic lengths of matching queries, keys and values agree, and that heads and widths are static.
    #[track_caller]
    fn ends_with(&self, keys: &Tensor, values: &Tensor) -> Result<(), Tensor> {
        let rank = self.0.shape.ndim();
        for operand in [self, keys, values] {
            operand.check_static("attention", [rank - 3, rank - 1])?;
        }
        let lead = (0..rank - 3).map(|axis| vec![(self, axis), (keys, axis), (values, axis)]);
        for axes in lead.chain([vec![(keys, rank - 2), (values, rank - 2)]]) {
            dynamic_dim::meet("attention", &axes).map_err(Tensor::mistake)?;
        }
        Ok(())
    }

    /// Merges the queries, or tensors of their shape, of heads that share keys into one axis, so that keys are not
    /// repeated. With a dynamic number of queries the heads are interleaved, so that the valid queries of all heads
    /// come first.
    fn joined(&self, keys: &Tensor) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let (q, rank) = (self.0.shape.dims(), self.0.shape.ndim());
        let shared = keys.0.shape.dims()[rank - 3];
        let (heads, length, width) = (q[rank - 3] / shared, q[rank - 2], q[rank - 1]);
        let joined = [&q[..rank - 3], &[shared, heads * length, width]].concat();
        if self.valid_length(rank - 2).is_none() {
            return self.reshaped(joined.into());
        }
        let apart = [&q[..rank - 3], &[shared, heads, length, width]].concat();
        self.reshaped(apart.into()).transpose(-3, -2).reshaped(joined.into())
    }

    /// Multiplies this, for each of `heads`, by a matrix that heads share.
    fn times_shared(&self, shared: &Tensor, heads: &Tensor) -> Tensor {
        let (h, rank) = (heads.0.shape.dims(), heads.0.shape.ndim());
        let product = self.joined(shared).matmul(shared);
        if product.is_mistake() {
            return product;
        }
        let (width, shared) = (product.0.shape.dims()[rank - 1], product.0.shape.dims()[rank - 3]);
        let whole = [&h[..rank - 1], &[width]].concat();
        if product.valid_length(rank - 2).is_none() {
            return product.reshaped(whole.into());
        }
        let apart = [&h[..rank - 3], &[shared, h[rank - 2], h[rank - 3] / shared, width]].concat();
        product.reshaped(apart.into()).transpose(-3, -2).reshaped(whole.into())
    }

    /// Returns the scores of queries and keys, -∞ where masked.
    fn scores(&self, keys: &Tensor, mask: Option<&Tensor>, (causal, past, scale): (bool, usize, f64)) -> Tensor {
        let scores = self.times_shared(&keys.t(), self);
        (&scores * scores.scalar_like(scale)).masked(mask, causal.then_some(past))
    }

    /// Masks scores `[…, queries, keys]` with -∞.
    fn masked(&self, mask: Option<&Tensor>, past: Option<usize>) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let mut scores = self.clone();
        let never = self.literal(f64::NEG_INFINITY);
        match mask {
            Some(mask) if mask.dtype() == DType::Bool => scores = scores.where_self(mask, &never),
            Some(mask) => scores += mask,
            None => {}
        }
        let Some(past) = past else { return scores };
        let dims = self.0.shape.dims();
        let last = Tensor::arange(dims[dims.len() - 2]) + Tensor::constant((past as i32).into());
        scores.where_self(&Tensor::arange(dims[dims.len() - 1]).le(&last.unsqueeze(1)), &never)
    }

    /// Returns the softmax along the last axis and the logsumexp; zeros and -∞ where every score is -∞.
    #[track_caller]
    fn softmax_with_logsumexp(&self) -> [Tensor; 2] {
        let top = self.reduce_keepdim(ReduceOp::Max, -1).detach();
        let blind = top.eq(&top.literal(f64::NEG_INFINITY));
        let base = top.literal(0.0).where_self(&blind, &top);
        let powers = (self - &base).exp();
        let sum = powers.reduce_keepdim(ReduceOp::Sum, -1);
        let logarithm = (base + sum.log()).squeeze(-1);
        [powers / sum.literal(1.0).where_self(&blind, &sum), logarithm]
    }

    /// Applies rotary position embeddings: rotates pairs of elements of `[…, length, width]` by position ·
    /// base^(-2i/width). `positions` are `[length]` integers. [Su et al. 2021]
    #[doc(alias = "apply_rotary_pos_emb")]
    #[track_caller]
    pub fn rope(&self, positions: &Tensor, &RopeOptions { base, style }: &RopeOptions) -> Tensor {
        if let Some(mistake) = [self, positions].into_iter().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        let (dims, rank) = (self.0.shape.dims(), self.0.shape.ndim());
        let fits =
            rank >= 2 && dims[rank - 1].is_multiple_of(2) && positions.0.shape.dims() == &dims[rank - 2..rank - 1];
        if !fits || !positions.dtype().is_int() {
            let message = format!("rope: needs [length, even width] and integer positions [length], not {self:?}");
            return Tensor::mistake(Error::mistake(message).note(format!("positions {positions:?}")));
        }
        let half = dims[rank - 1] / 2;
        let halves = style == RopeStyle::RotateHalf;
        // bf16 cannot represent all positions above 256.
        self.in_f32(|x| {
            let exponents = Tensor::arange(half).cast(x.dtype());
            let speeds = (&exponents * exponents.literal(-base.log2() / half as f64)).exp2();
            let angles = positions.cast(x.dtype()).unsqueeze(1) * speeds;
            let (cosines, sines) = (angles.cos(), angles.sin());
            let split = x.unflatten(-1, if halves { [2, half] } else { [half, 2] });
            let axis = if halves { -2 } else { -1 };
            let part = |i: usize| split.narrow(axis, i, 1).squeeze(axis);
            let (a, b) = (part(0), part(1));
            let turned = [&a * &cosines - &b * &sines, &a * &sines + &b * &cosines];
            Tensor::stack(&turned, axis).flatten(-2, -1)
        })
    }
}

/// `is_causal`, `past_len` and the scale.
type Rule = (bool, usize, f64);

/// Returns the output and the logsumexp of the scores. The operands have matching shapes.
#[track_caller]
fn attended([q, k, v]: [&Tensor; 3], mask: Option<&Tensor>, rule: Rule) -> [Tensor; 2] {
    fn body([q, k, v]: [&Tensor; 3], mask: Option<&Tensor>, rule: Rule) -> [Tensor; 2] {
        let [probabilities, logsumexp] = q.scores(k, mask, rule).softmax_with_logsumexp();
        [probabilities.times_shared(v, q), logsumexp]
    }
    match mask {
        None => CompositeOp {
            name: "attention",
            body: |[q, k, v], rule: &Rule| body([q, k, v], None, *rule),
            gradient: Some(|[q, k, v], y, g, rule| backward([q, k, v], None, y, g, *rule).map(Some)),
            routine: |[q, k, v], rule| routine([q, k, v], None, *rule).map(Routine::Attention),
        }
        .apply_batched([q, k, v], rule),
        Some(mask) => CompositeOp {
            name: "attention",
            body: |[q, k, v, mask], rule: &Rule| body([q, k, v], Some(mask), *rule),
            gradient: Some(|[q, k, v, mask], y, g, rule| {
                let [to_q, to_k, to_v] = backward([q, k, v], Some(mask), y, g, *rule).map(Some);
                [to_q, to_k, to_v, mask.dtype().is_float().then(|| grad_mask([q, k, v], mask, g, *rule))]
            }),
            routine: |[q, k, v, mask], rule| routine([q, k, v], Some(mask), *rule).map(Routine::Attention),
        }
        .apply([q, k, v, mask], rule),
    }
}

/// Returns the gradients of queries, keys and values given the cotangent `g` of the output `y`.
#[track_caller]
fn backward([q, k, v]: [&Tensor; 3], mask: Option<&Tensor>, y: &Tensor, g: &Tensor, rule: Rule) -> [Tensor; 3] {
    // Routines read the forward results; bodies recompute the attention weights, which common subexpression
    // elimination merges with the forward pass.
    fn body([q, k, v, g]: [&Tensor; 4], mask: Option<&Tensor>, rule: Rule) -> [Tensor; 3] {
        let [probabilities, to_scores] = grad_scores([q, k, v, g], mask, rule);
        let to_products = &to_scores * to_scores.scalar_like(rule.2);
        let to_q = to_products.times_shared(k, q);
        let to_k = to_products.joined(k).t().matmul(&q.joined(k));
        [to_q, to_k, probabilities.joined(k).t().matmul(&g.joined(k))]
    }
    let [_, logsumexp] = attended([q, k, v], mask, rule);
    match mask {
        None => CompositeOp {
            name: "attention_gradient",
            body: |[q, k, v, _, _, g], rule: &Rule| body([q, k, v, g], None, *rule),
            gradient: None,
            routine: |[q, k, v, ..], rule| routine([q, k, v], None, *rule).map(Routine::AttentionBackward),
        }
        .apply_batched([q, k, v, y, &logsumexp, g], rule),
        Some(mask) => CompositeOp {
            name: "attention_gradient",
            body: |[q, k, v, mask, _, _, g], rule: &Rule| body([q, k, v, g], Some(mask), *rule),
            gradient: None,
            routine: |[q, k, v, mask, ..], rule| routine([q, k, v], Some(mask), *rule).map(Routine::AttentionBackward),
        }
        .apply([q, k, v, mask, y, &logsumexp, g], rule),
    }
}

/// Returns the attention weights, and the gradient of the scaled scores.
fn grad_scores([q, k, v, g]: [&Tensor; 4], mask: Option<&Tensor>, rule: Rule) -> [Tensor; 2] {
    let [probabilities, _] = q.scores(k, mask, rule).softmax_with_logsumexp();
    let grad_probabilities = g.times_shared(&v.t(), g);
    let mean = (&grad_probabilities * &probabilities).reduce_keepdim(ReduceOp::Sum, -1);
    let to_scores = &probabilities * (grad_probabilities - mean);
    [probabilities, to_scores]
}

/// Returns the gradient of a mask that is added to the scores.
fn grad_mask([q, k, v]: [&Tensor; 3], mask: &Tensor, g: &Tensor, rule: Rule) -> Tensor {
    let [_, to_scores] = grad_scores([q, k, v, g], Some(mask), rule);
    let (dims, all) = (mask.0.shape.dims(), to_scores.0.shape.dims().to_vec());
    let lead = all.len() - dims.len();
    let repeats = |axis: &usize| *axis < lead || dims[axis - lead] != all[*axis];
    let axes: Vec<usize> = (0..all.len()).filter(repeats).collect();
    to_scores.reduced(ReduceOp::Sum, axes).reshaped(mask.0.shape.clone())
}

/// Returns the equivalent routine; `None` if strides cannot express the broadcast of the mask.
fn routine([q, k, v]: [&Tensor; 3], mask: Option<&Tensor>, (causal, past, scale): Rule) -> Option<routine::Attention> {
    let (dims, keys, rank) = (q.0.shape.dims(), k.0.shape.dims(), q.0.shape.ndim());
    let dtype = q.dtype();
    let mask = match mask {
        None => None,
        Some(mask) => {
            let scores = [&dims[..rank - 1], &keys[rank - 2..rank - 1]].concat();
            Some(distances(mask, &scores).filter(|mask| mask.dtype == DType::Bool || mask.dtype == dtype)?)
        }
    };
    Some(routine::Attention {
        dtype,
        batch: dims[..rank - 3].iter().product(),
        heads: dims[rank - 3],
        key_heads: keys[rank - 3],
        queries: dims[rank - 2],
        keys: keys[rank - 2],
        width: dims[rank - 1],
        depth: v.0.shape.dims()[rank - 1],
        past: causal.then_some(past),
        scale: Scalar::from_f64(dtype, scale),
        mask,
    })
}

/// Returns the strides of a mask that is broadcast to the shape of the scores.
fn distances(mask: &Tensor, scores: &[usize]) -> Option<Mask> {
    let own = mask.0.shape.dims();
    let missing = scores.len().checked_sub(own.len())?;
    let dims = [vec![1; missing], own.to_vec()].concat();
    let fits = dims.iter().zip(scores).all(|(own, all)| own == all || *own == 1);
    let lead = scores.len() - 3;
    let (repeated, whole) = (dims[..lead].iter().all(|dim| *dim == 1), dims[..lead] == scores[..lead]);
    let behind = |axis: usize| dims[axis + 1..].iter().product::<usize>();
    let distance = |axis: usize| if dims[axis] == 1 { 0 } else { behind(axis) };
    (fits && (repeated || whole)).then(|| Mask {
        dtype: mask.dtype(),
        batch: if repeated { 0 } else { dims[lead..].iter().product() },
        head: distance(lead),
        query: distance(lead + 1),
        key: distance(lead + 2),
    })
}
