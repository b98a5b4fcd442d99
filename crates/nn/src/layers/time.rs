//! What is left of sequences `[batch, time, features]` when their times go.

use panoply_tensor::{DType, Tensor};

use crate::layer::{Layer, Pass};
use crate::module::module;

/// The last time, of sequences that end earlier the last that counts.
#[derive(Clone, Copy, Debug)]
pub struct Last;

impl Layer for Last {
    fn forward(&self, input: &Tensor, pass: &mut Pass<'_>) -> Tensor {
        let Some(times) = pass.take_times() else { return input.slice((.., -1)) };
        input.index(&[&input.positions(0), &(times.cast(DType::I32) - Tensor::scalar(1i32))])
    }
}

module!(Last {});

/// The mean over the times that count.
#[derive(Clone, Copy, Debug)]
pub struct MeanOverTime;

impl Layer for MeanOverTime {
    fn forward(&self, input: &Tensor, pass: &mut Pass<'_>) -> Tensor {
        let counted = pass.counted(input);
        let (Some(counted), Some(times)) = (counted, pass.take_times()) else { return input.mean(1) };
        let kept = input.where_(&counted.unsqueeze(2), &input.zeros_like());
        kept.sum(1) / times.cast(input.dtype()).unsqueeze(1)
    }
}

module!(MeanOverTime {});
