//! Attention and rotary positions, composed.
//!
//! Sources: Vaswani et al., Attention Is All You Need, 2017; Ainslie et al., GQA, 2023; Su et al., RoFormer, 2021.

use panoply_ir::kernel::ReduceOp;
use panoply_ir::{DType, Error, Shape};

use crate::tensor::Tensor;

/// Who may look at whom.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attention<'a> {
    /// Whether query i sees only keys 0 ..= `past` + i.
    pub causal: bool,
    /// Keys that stand before the first query, as in a cache.
    pub past: usize,
    /// Broadcast over `[…, heads, queries, keys]`: a bool says who is seen, a float is added to the scores.
    pub mask: Option<&'a Tensor>,
    /// Factor of the scores; 1/√width if none is given.
    pub scale: Option<f64>,
}

/// Which two elements of a head [`Tensor::rope`] turns together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotary {
    /// i and i + width/2, as GPT-NeoX and Hugging Face's LLaMA store them.
    Halves,
    /// 2i and 2i + 1, as the RoFormer paper has it.
    Pairs,
}

impl Tensor {
    /// softmax(queries · keysᵀ · scale) · values: `[…, heads, queries, width]` with `[…, key_heads, keys, width]`.
    ///
    /// `heads` is a multiple of `key_heads`, neighbouring ones share keys. A query that sees no key gives zeros.
    #[track_caller]
    pub fn attention(&self, keys: &Tensor, values: &Tensor, attention: &Attention<'_>) -> Tensor {
        let operands = [Some(self), Some(keys), Some(values), attention.mask];
        if let Some(mistake) = operands.into_iter().flatten().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        let (q, k, v) = (self.0.shape.dims(), keys.0.shape.dims(), values.0.shape.dims());
        let rank = q.len();
        let wrong = |what: &str| {
            let note = format!("queries {self:?}, keys {keys:?}, values {values:?}");
            Tensor::mistake(Error::mistake(format!("attention: {what}")).note(note))
        };
        if rank < 3 || k.len() != rank || v.len() != rank {
            return wrong("needs [heads, length, width] and equal leading axes on all three");
        }
        if q[rank - 1] != k[rank - 1] || k[..rank - 1] != v[..rank - 1] || q[..rank - 3] != k[..rank - 3] {
            return wrong("lengths of queries, keys and values do not fit");
        }
        let (heads, shared, width) = (q[rank - 3], k[rank - 3], q[rank - 1]);
        if shared == 0 || !heads.is_multiple_of(shared) {
            return wrong(&format!("{heads} heads are not a multiple of {shared} key heads"));
        }
        let scale = attention.scale.unwrap_or(1.0 / (width.max(1) as f64).sqrt());
        let settings = (attention.causal, attention.past, scale);
        match attention.mask {
            None => Tensor::call("attention", [self, keys, values], settings, |[q, k, v], settings| {
                q.attended(k, v, None, *settings)
            }),
            Some(mask) => {
                Tensor::call("attention", [self, keys, values, mask], settings, |[q, k, v, mask], settings| {
                    q.attended(k, v, Some(mask), *settings)
                })
            }
        }
    }

    /// [`Tensor::attention`] of what fits.
    fn attended(
        &self,
        keys: &Tensor,
        values: &Tensor,
        mask: Option<&Tensor>,
        (causal, past, scale): (bool, usize, f64),
    ) -> Tensor {
        let (q, k, v) = (self.0.shape.dims(), keys.0.shape.dims(), values.0.shape.dims());
        let rank = q.len();
        let (heads, shared, width) = (q[rank - 3], k[rank - 3], q[rank - 1]);
        // Queries of heads that share keys stand one after another, so that no key is repeated.
        let (queries, count, lead) = (q[rank - 2], k[rank - 2], &q[..rank - 3]);
        let joined = Shape::new([lead, &[shared, heads / shared * queries, width]].concat());
        let apart = Shape::new([lead, &[heads, queries, count]].concat());
        let scores = self.reshaped(joined).matmul(&keys.t()).reshaped(apart) * self.slot(scale);
        let shares = scores.masked(mask, causal.then_some(past)).shares();
        let folded = Shape::new([lead, &[shared, heads / shared * queries, count]].concat());
        let result = Shape::new([lead, &[heads, queries, v[rank - 1]]].concat());
        shares.reshaped(folded).matmul(values).reshaped(result)
    }

    /// Scores `[…, queries, keys]` with minus infinity where a key is not seen.
    fn masked(&self, mask: Option<&Tensor>, past: Option<usize>) -> Tensor {
        let mut scores = self.clone();
        let never = self.literal(f64::NEG_INFINITY);
        match mask {
            Some(mask) if mask.dtype() == DType::Bool => scores = scores.where_(mask, &never),
            Some(mask) => scores = scores + mask,
            None => {}
        }
        if scores.is_mistake() || scores.0.shape != self.0.shape {
            let message = format!("attention: the mask {:?} does not broadcast to the scores", mask);
            return Tensor::mistake(Error::mistake(message).note(format!("scores {self:?}")));
        }
        let Some(past) = past else { return scores };
        let dims = self.0.shape.dims();
        let last = Tensor::iota(dims[dims.len() - 2]) + Tensor::constant((past as i32).into());
        scores.where_(&Tensor::iota(dims[dims.len() - 1]).le(&last.unsqueeze(1)), &never)
    }

    /// The softmax of the last axis; zeros where every score is minus infinity.
    #[track_caller]
    fn shares(&self) -> Tensor {
        let top = self.reduce_keep(ReduceOp::Max, -1).detach();
        let blind = top.eq(&top.literal(f64::NEG_INFINITY));
        let powers = (self - top.literal(0.0).where_(&blind, &top)).exp();
        let sum = powers.reduce_keep(ReduceOp::Sum, -1);
        powers / sum.literal(1.0).where_(&blind, &sum)
    }

    /// Rotary positions: pairs of elements of `[…, length, width]` turned by position · base^(-2i/width).
    /// `positions` are `[length]` integers.
    #[track_caller]
    pub fn rope(&self, positions: &Tensor, base: f64, rotary: Rotary) -> Tensor {
        if let Some(mistake) = [self, positions].into_iter().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        let (dims, rank) = (self.0.shape.dims(), self.0.shape.rank());
        let fits =
            rank >= 2 && dims[rank - 1].is_multiple_of(2) && positions.0.shape.dims() == &dims[rank - 2..rank - 1];
        if !fits || !positions.dtype().is_int() {
            let message = format!("rope: needs [length, even width] and integer positions [length], not {self:?}");
            return Tensor::mistake(Error::mistake(message).note(format!("positions {positions:?}")));
        }
        let half = dims[rank - 1] / 2;
        let exponents = Tensor::iota(half).cast(self.dtype());
        let speeds = (&exponents * exponents.literal(-base.log2() / half as f64)).exp2();
        let angles = positions.cast(self.dtype()).unsqueeze(1) * speeds;
        let (cosines, sines) = (angles.cos(), angles.sin());
        let halves = rotary == Rotary::Halves;
        let split = self.unflatten(-1, &if halves { [2, half] } else { [half, 2] });
        let axis = if halves { -2 } else { -1 };
        let part = |i: usize| split.narrow(axis, i, 1).squeeze(axis);
        let (a, b) = (part(0), part(1));
        let turned = [&a * &cosines - &b * &sines, &a * &sines + &b * &cosines];
        Tensor::stack(&turned, axis).flatten(-2)
    }
}
