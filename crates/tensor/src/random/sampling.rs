//! Random integers, permutations and samples of distributions.

use panoply_ir::{DType, Error, Shape};

use super::Rng;
use crate::ops::sort::SortOrder;
use crate::tensor::Tensor;

/// Sampling with or without replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// With replacement: draws are independent.
    Yes,
    /// Without replacement: each element is drawn at most once.
    No,
}

impl Rng {
    /// Draws i32 integers from `low .. high` in this shape. They are 32 random bits modulo high - low, as in PyTorch, so
    /// their probabilities differ by at most 2⁻³².
    #[track_caller]
    pub fn randint(&mut self, low: i32, high: i32, shape: impl Into<Shape>) -> Tensor {
        if low >= high {
            let message = format!("randint: low must be less than high, got low {low} and high {high}");
            return Tensor::mistake(Error::mistake(message));
        }
        // u32 arithmetic wraps around, so the two's complement of negative integers is correct.
        let range = high.wrapping_sub(low) as u32;
        (self.bits(shape) % range + low as u32).bitcast(DType::I32)
    }

    /// Draws a permutation of `0 .. len`, as i32 `[len]`, on the device; [`Rng::permutation`] draws on the host. It sorts
    /// by random 32-bit keys, as JAX's `random.permutation` does, and repeats this for a long permutation, because equal
    /// keys keep their order and so favor some permutations.
    #[track_caller]
    pub fn randperm(&mut self, len: usize) -> Tensor {
        let rounds = (3.0 * (len.max(1) as f64).ln() / f64::from(u32::MAX).ln()).ceil() as usize;
        (0..rounds).fold(Tensor::arange(len), |order, _| {
            order.index_select(0, &self.bits([len]).argsort(0, SortOrder::Ascending))
        })
    }

    /// Draws 1 with these probabilities and 0 otherwise, in the shape and float type of `probabilities`, which are clamped
    /// to 0 … 1.
    #[track_caller]
    pub fn bernoulli(&mut self, probabilities: &Tensor) -> Tensor {
        if let Err(mistake) = probabilities.check_float("bernoulli") {
            return mistake;
        }
        let wide = probabilities.widened();
        let drawn = self.uniform_of(wide.0.shape.clone(), wide.dtype()).with_lengths_of(&wide);
        drawn.lt(&wide).cast(probabilities.dtype())
    }

    /// Draws indices (i32) along the last axis with probabilities proportional to `weights`: `[…, n]` gives
    /// `[…, num_samples]`. Weights are finite and not negative, need not sum to 1, and at least one is positive; without
    /// replacement at least `num_samples` are. Indices without replacement are in the order of the draws.
    ///
    /// Sources: inverse transform sampling; without replacement Efraimidis and Spirakis, Weighted Random Sampling with a
    /// Reservoir, 2006.
    #[track_caller]
    pub fn multinomial(&mut self, weights: &Tensor, num_samples: usize, replacement: Replacement) -> Tensor {
        if let Err(mistake) = weights.check_float("multinomial") {
            return mistake;
        }
        if let Err(mistake) = weights.static_axis("multinomial", -1) {
            return mistake;
        }
        if let Err(mistake) = weights.check_static("multinomial", 0..weights.0.shape.ndim()) {
            return mistake;
        }
        let (lead, n) = match weights.0.shape.dims() {
            [lead @ .., n] if *n > 0 && (replacement == Replacement::Yes || num_samples <= *n) => (lead, *n),
            _ => {
                let message = format!("multinomial: {weights:?} has too few elements for {num_samples} samples");
                return Tensor::mistake(Error::mistake(message));
            }
        };
        let weights = weights.widened();
        let (zero, is_positive) = (weights.literal(0.0), weights.gt(weights.literal(0.0)));
        if replacement == Replacement::No {
            // The logarithm of u^(1 / weight), for u in (0, 1].
            let drawn = (1.0 - self.uniform_of(weights.0.shape.clone(), weights.dtype())).log();
            let keys = (drawn / &weights).where_self(&is_positive, f64::NEG_INFINITY);
            return keys.topk(num_samples, -1).indices;
        }
        // The running maximum gives an element of weight 0 exactly the sum of its predecessor, so that it is never drawn;
        // rounding can make the sums differ.
        let sums = weights.cumsum(-1).where_self(&is_positive, &zero).cummax(-1);
        let drawn = self.uniform_of([lead, &[num_samples]].concat(), weights.dtype());
        let drawn = drawn * sums.narrow(-1, n - 1, 1);
        sums.unsqueeze(-2).le(drawn.unsqueeze(-1)).cast(DType::I32).sum(-1)
    }
}
