//! Pooling of sequences `[batch, time, features]` over time.

use panoply_tensor::{DType, Tensor};

use crate::layer::{ForwardContext, Layer};
use crate::module::module;

/// The last valid time step of each sequence, `[batch, features]`.
#[derive(Clone, Copy, Debug)]
pub struct LastTimeStep;

impl Layer for LastTimeStep {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let Some(times) = pass.take_seq_lengths() else { return input.slice((.., -1)) };
        input.index(&[&input.arange_like(0), &(times.cast(DType::I32) - Tensor::scalar(1i32))])
    }
}

module!(LastTimeStep {});

/// The mean over the valid time steps of each sequence, `[batch, features]`.
#[derive(Clone, Copy, Debug)]
pub struct TimeMean;

impl Layer for TimeMean {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let counted = pass.valid_mask(input);
        let (Some(counted), Some(times)) = (counted, pass.take_seq_lengths()) else { return input.mean(1) };
        let kept = input.where_self(&counted.unsqueeze(2), &input.zeros_like());
        kept.sum(1) / times.cast(input.dtype()).unsqueeze(1)
    }
}

module!(TimeMean {});
