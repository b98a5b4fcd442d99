//! Gradient clipping.

use std::panic::Location;

use panoply_tensor::{DType, Error, Scalar, Tensor};

use super::{Optimizer, UpdateRule};

/// Limit of the gradients of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GradClip {
    /// Maximum norm of all gradients taken as one vector.
    #[doc(alias = "clip_grad_norm_")]
    Norm(f64),
    /// Maximum magnitude of each element.
    #[doc(alias = "clip_grad_value_")]
    Value(f64),
}

/// Gradients after clipping.
pub(super) struct ClippedGrads {
    pub gradients: Vec<Tensor>,
    /// The gradients before clipping and, for clipping by norm, the norm: all must be finite.
    pub finite_checks: Vec<Tensor>,
}

impl<R: UpdateRule> Optimizer<R> {
    /// Clips the norm of all gradients, taken as one vector, to `max_norm`. Excludes [`Optimizer::clip_grad_value`]: with both, every step
    /// fails.
    #[doc(alias = "clip_grad_norm_")]
    #[must_use]
    #[track_caller]
    pub fn clip_grad_norm(self, max_norm: f64) -> Optimizer<R> {
        self.clipped_by(GradClip::Norm(max_norm))
    }

    /// Clips each element of the gradients to ±`clip_value`. Excludes [`Optimizer::clip_grad_norm`]: with both, every step fails.
    #[doc(alias = "clip_grad_value_")]
    #[must_use]
    #[track_caller]
    pub fn clip_grad_value(self, clip_value: f64) -> Optimizer<R> {
        self.clipped_by(GradClip::Value(clip_value))
    }

    #[track_caller]
    fn clipped_by(mut self, clip: GradClip) -> Optimizer<R> {
        match self.grad_clip.replace(clip) {
            Some(other) if std::mem::discriminant(&other) != std::mem::discriminant(&clip) => {
                let message = "the optimizer has both clip_grad_norm and clip_grad_value; use one of them";
                self.conflict.get_or_insert(Error::mistake(message).with_location(Location::caller()));
            }
            _ => {}
        }
        self
    }

    /// Applies gradient clipping.
    pub(super) fn clipped(&self, gradients: Vec<Tensor>) -> ClippedGrads {
        match self.grad_clip {
            None => ClippedGrads { finite_checks: gradients.clone(), gradients },
            Some(GradClip::Value(largest)) => {
                let limited = gradients.iter().map(|gradient| gradient.clamp(-largest, largest)).collect();
                ClippedGrads { gradients: limited, finite_checks: gradients }
            }
            Some(GradClip::Norm(longest)) => {
                let mut finite_checks = gradients.clone();
                let is_wide = gradients.iter().any(|gradient| gradient.dtype() == DType::F64);
                let wide = if is_wide { DType::F64 } else { DType::F32 };
                let squares = gradients.iter().map(|gradient| gradient.cast(wide).square().sum(..));
                let Some(total) = squares.reduce(|sum, square| sum + square) else {
                    return ClippedGrads { gradients, finite_checks };
                };
                let length = total.sqrt();
                // As PyTorch's clip_grad_norm_: limit / (norm + 1e-6), never above 1.
                let factor =
                    ((&length + 1e-6).reciprocal() * longest).minimum(&Tensor::scalar(Scalar::from_f64(wide, 1.0)));
                let shrunk = |gradient: &Tensor| (gradient.cast(wide) * &factor).cast(gradient.dtype());
                let gradients = gradients.iter().map(shrunk).collect();
                finite_checks.push(length);
                ClippedGrads { gradients, finite_checks }
            }
        }
    }
}
