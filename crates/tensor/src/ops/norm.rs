//! Normalization.

use panoply_ir::{Error, Shape};

use super::axes::KeepDim;
use crate::tensor::Tensor;

impl Tensor {
    /// Normalizes to mean 0 and variance 1 along the last axis; `epsilon` is added to the variance. [Ba et al. 2016]
    #[track_caller]
    pub fn layer_norm(&self, epsilon: f64) -> Tensor {
        if let Err(mistake) = self.axis("layer_norm", -1) {
            return mistake;
        }
        Tensor::call("layer norm", [self], epsilon, |[x], epsilon| {
            x.in_f32(|x| {
                let centered = x - x.mean(KeepDim(-1));
                let variance = centered.square().mean(KeepDim(-1));
                &centered * (&variance + variance.literal(*epsilon)).rsqrt()
            })
        })
    }

    /// Normalizes to mean square 1 along the last axis; `epsilon` is added to the mean square. [Zhang and Sennrich
    /// 2019]
    #[track_caller]
    pub fn rms_norm(&self, epsilon: f64) -> Tensor {
        if let Err(mistake) = self.axis("rms_norm", -1) {
            return mistake;
        }
        Tensor::call("rms norm", [self], epsilon, |[x], epsilon| {
            x.in_f32(|x| {
                let power = x.square().mean(KeepDim(-1));
                x * (&power + power.literal(*epsilon)).rsqrt()
            })
        })
    }

    /// Normalizes to mean 0 and variance 1 over each of `num_groups` groups of the channels of `[batch, channels, …]`.
    /// [Wu and He 2018] One group for each channel is instance normalization.
    #[doc(alias = "instance_norm")]
    #[track_caller]
    pub fn group_norm(&self, num_groups: usize, epsilon: f64) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let dims = self.0.shape.dims();
        if dims.len() < 2 || num_groups == 0 || !dims[1].is_multiple_of(num_groups) {
            let message = format!("group_norm: the channels of {self:?} are not a multiple of {num_groups} groups");
            return Tensor::mistake(Error::mistake(message));
        }
        let part = dims[1] / num_groups * dims[2..].iter().product::<usize>();
        let rows = self.reshaped([dims[0], num_groups, part].into());
        rows.layer_norm(epsilon).reshaped(self.0.shape.clone())
    }

    /// Normalizes `[batch, channels, …]` with a given mean and variance for each channel, both `[channels]`. [Ioffe
    /// and Szegedy 2015]
    #[track_caller]
    pub fn batch_norm(&self, mean: &Tensor, variance: &Tensor, epsilon: f64) -> Tensor {
        Tensor::call("batch norm", [self, mean, variance], epsilon, |[x, mean, variance], epsilon| {
            let scale = (variance + variance.literal(*epsilon)).rsqrt();
            (x - mean.unsqueeze_like_channels(x)) * scale.unsqueeze_like_channels(x)
        })
    }

    /// Adds trailing axes of length 1 to `[channels]`, so that it broadcasts to `[batch, channels, …]`.
    #[track_caller]
    pub fn unsqueeze_like_channels(&self, input: &Tensor) -> Tensor {
        if let Some(mistake) = [input, self].into_iter().find(|operand| operand.is_mistake()) {
            return mistake.clone();
        }
        match (self.0.shape.dims(), input.0.shape.dims()) {
            (&[own], &[_, channels, ref rest @ ..]) if own == channels => {
                self.reshaped(Shape::new([&[own], &vec![1; rest.len()][..]].concat()))
            }
            _ => Tensor::mistake(Error::mistake(format!("{self:?} is not one number for each channel of {input:?}"))),
        }
    }
}
