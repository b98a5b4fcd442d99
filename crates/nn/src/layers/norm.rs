//! Normalization layers, and standardization with statistics of the training data.

use panoply_tensor::{DType, Error, Result, Tensor};

use crate::data::Dataset;
use crate::layer::{ForwardContext, Layer};
use crate::module::{Module, Param, ParamVisitor, ParamVisitorMut, module};

fn ones(size: usize) -> Param {
    Param::new(filled(size, 1.0))
}

fn zeros(size: usize) -> Param {
    Param::new(filled(size, 0.0))
}

/// Returns a new tensor on the current device. Each call allocates, so parameters with equal values do not alias.
fn filled(size: usize, value: f32) -> Tensor {
    Tensor::from_slice(&vec![value; size], [size])
}

/// Returns f16 and bf16 inputs as f32, since statistics need more digits, and the original element type.
fn widened(input: &Tensor) -> (DType, Tensor) {
    match input.dtype() {
        DType::F16 | DType::BF16 => (input.dtype(), input.cast(DType::F32)),
        other => (other, input.clone()),
    }
}

/// Returns a mistake if an axis of a norm's input does not have the length of its scale.
#[track_caller]
fn misfit(name: &str, axis: isize, weight: &Param, input: &Tensor, pass: &mut ForwardContext<'_>) -> Option<Tensor> {
    let [width] = weight.tensor().dims::<1>().ok()?;
    pass.misfit(input, (axis, width), (weight, "weight"), &|| format!("{name}({width})"))
}

/// Layer normalization: zero mean and unit variance along the last axis. [Ba et al. 2016]
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// Scale, `[width]`.
    pub weight: Param,
    /// Shift, `[width]`.
    pub bias: Param,
    /// Constant added to the variance.
    pub epsilon: f64,
}

impl LayerNorm {
    /// Creates a layer with scale 1, shift 0 and epsilon 1e-5.
    pub fn new(width: usize) -> LayerNorm {
        LayerNorm { weight: ones(width), bias: zeros(width), epsilon: 1e-5 }
    }
}

impl Layer for LayerNorm {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        if let Some(misfit) = misfit("LayerNorm", -1, &self.weight, input, pass) {
            return misfit;
        }
        let (dtype, input) = widened(input);
        (input.layer_norm(self.epsilon) * self.weight.tensor() + self.bias.tensor()).cast(dtype)
    }
}

module!(LayerNorm { weight, bias });

/// Root mean square normalization: unit mean square along the last axis. [Zhang and Sennrich 2019]
#[doc(alias = "RMSNorm")]
#[derive(Clone, Debug)]
pub struct RmsNorm {
    /// Scale, `[width]`.
    pub weight: Param,
    /// Constant added to the mean square.
    pub epsilon: f64,
}

impl RmsNorm {
    /// Creates a layer with scale 1 and epsilon 1e-5.
    pub fn new(width: usize) -> RmsNorm {
        RmsNorm { weight: ones(width), epsilon: 1e-5 }
    }
}

impl Layer for RmsNorm {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        if let Some(misfit) = misfit("RmsNorm", -1, &self.weight, input, pass) {
            return misfit;
        }
        let (dtype, input) = widened(input);
        (input.rms_norm(self.epsilon) * self.weight.tensor()).cast(dtype)
    }
}

module!(RmsNorm { weight });

/// Group normalization: zero mean and unit variance over groups of channels of `[batch, channels, …]`. [Wu and He 2018]
#[doc(alias = "InstanceNorm")]
#[derive(Clone, Debug)]
pub struct GroupNorm {
    /// Scale, `[channels]`.
    pub weight: Param,
    /// Shift, `[channels]`.
    pub bias: Param,
    /// Number of channel groups.
    pub num_groups: usize,
    /// Constant added to the variance.
    pub epsilon: f64,
}

impl GroupNorm {
    /// Creates a layer with scale 1, shift 0 and epsilon 1e-5.
    pub fn new(num_groups: usize, num_channels: usize) -> GroupNorm {
        GroupNorm { weight: ones(num_channels), bias: zeros(num_channels), num_groups, epsilon: 1e-5 }
    }
}

impl Layer for GroupNorm {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        if let Some(misfit) = misfit("GroupNorm", 1, &self.weight, input, pass) {
            return misfit;
        }
        let (dtype, input) = widened(input);
        let scaled =
            input.group_norm(self.num_groups, self.epsilon) * self.weight.tensor().unsqueeze_like_channels(&input);
        (scaled + self.bias.tensor().unsqueeze_like_channels(&input)).cast(dtype)
    }
}

module!(GroupNorm { weight, bias });

/// Fails for inputs `[batch, channels, …]` with fewer than two values per channel, whose variance has no unbiased estimate.
fn has_variance(input: &Tensor) -> Result<()> {
    let shape = input.shape()?;
    let values: usize =
        shape.dims().iter().enumerate().filter(|(axis, _)| *axis != 1).map(|(_, length)| length).product();
    if values > 1 {
        return Ok(());
    }
    let message = format!("batch norm: expected more than 1 value per channel when training, got {input:?}");
    Err(Error::mistake(message).note("use batches of at least two examples, or another norm"))
}

/// Batch normalization: zero mean and unit variance of each channel of `[batch, channels, …]`. Training uses the statistics of the batch,
/// evaluation the running statistics. [Ioffe and Szegedy 2015]
///
/// Training on one value per channel is an error, as in PyTorch.
#[doc(alias = "BatchNorm1d")]
#[doc(alias = "BatchNorm2d")]
#[doc(alias = "BatchNorm3d")]
#[derive(Clone, Debug)]
pub struct BatchNorm {
    /// Scale, `[channels]`.
    pub weight: Param,
    /// Shift, `[channels]`.
    pub bias: Param,
    /// Running mean, `[channels]`; a buffer.
    pub running_mean: Param,
    /// Running variance (unbiased estimate), `[channels]`; a buffer.
    pub running_var: Param,
    /// Weight of the batch's statistics in the update of the running ones.
    pub momentum: f64,
    /// Constant added to the variance.
    pub epsilon: f64,
}

impl BatchNorm {
    /// Creates a layer with scale 1, shift 0, running mean 0, running variance 1, momentum 0.1 and epsilon 1e-5.
    pub fn new(num_features: usize) -> BatchNorm {
        BatchNorm {
            weight: ones(num_features),
            bias: zeros(num_features),
            running_mean: Param::state(filled(num_features, 0.0)),
            running_var: Param::state(filled(num_features, 1.0)),
            momentum: 0.1,
            epsilon: 1e-5,
        }
    }
}

impl Layer for BatchNorm {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        if let Some(misfit) = misfit("BatchNorm", 1, &self.weight, input, pass) {
            return misfit;
        }
        let (dtype, input) = &widened(input);
        let (mean, variance) = if pass.is_training() {
            let fits = self.running_mean.tensor().unsqueeze_like_channels(input);
            if fits.check().is_err() {
                return fits;
            }
            if let Err(error) = has_variance(input) {
                return Tensor::from_mistake(error);
            }
            let rows = input.transpose(0, 1).flatten(1, -1);
            let (mean, variance, count) = (rows.mean(1), rows.var(1, 0), rows.dim_size(1).cast(rows.dtype()));
            let unbiased = &variance * (&count / (&count - 1.0));
            let moved = |old: Tensor, new: &Tensor| old * (1.0 - self.momentum) + new * self.momentum;
            pass.update(&self.running_mean, moved(pass.state(&self.running_mean), &mean));
            pass.update(&self.running_var, moved(pass.state(&self.running_var), &unbiased));
            (mean, variance)
        } else {
            (self.running_mean.tensor().clone(), self.running_var.tensor().clone())
        };
        let normal = input.batch_norm(&mean, &variance, self.epsilon);
        (normal * self.weight.tensor().unsqueeze_like_channels(input)
            + self.bias.tensor().unsqueeze_like_channels(input))
        .cast(*dtype)
    }
}

module!(BatchNorm { weight, bias, running_mean, running_var });

/// Standardization of inputs: (x − mean) / std, elementwise, with statistics measured before training.
#[derive(Clone, Debug)]
pub struct Standardize {
    /// Mean in the shape of an example; a buffer.
    pub mean: Param,
    /// Standard deviation in the shape of an example; a buffer. It is 1 where inputs are constant.
    pub std: Param,
}

impl Standardize {
    /// Creates the identity (mean 0, deviation 1) for examples of this shape; [`Standardize::fit`] measures a data set.
    pub fn new(lengths: &[usize]) -> Standardize {
        let elems = lengths.iter().product();
        let whole = |value: f32| Param::state(Tensor::from_slice(&vec![value; elems], lengths));
        Standardize { mean: whole(0.0), std: whole(1.0) }
    }

    /// Measures mean and deviation of a data set whose examples have this shape: per element in general; per feature for sequences with
    /// valid lengths; per channel for images `[channels, rows, columns]` with values in 0 ..= 1.
    ///
    /// # Errors
    /// If statistics cannot be read back from the device.
    pub fn fit(data: &Dataset, lengths: &[usize]) -> Result<Standardize> {
        let images = matches!(data.example_shape[..], [_, (2..), (2..)])
            && data.features.iter().all(|x| (0.0..=1.0).contains(x));
        let Some(times) = &data.seq_lengths else {
            return match images {
                true => Ok(Standardize::by_channel(data, lengths)),
                false => Ok(Standardize::from_rows(&data.features, lengths)),
            };
        };
        let [time, features] = [data.example_shape[0], data.num_features / data.example_shape[0]];
        let counted = |(row, times): (&[f32], &i32)| row[..*times as usize * features].to_vec();
        let rows: Vec<f32> = data.features.chunks_exact(data.num_features).zip(times).flat_map(counted).collect();
        let each = Standardize::from_rows(&rows, &[features]);
        let along = |state: &Param| -> Result<Param> {
            let values = state.tensor().to_vec::<f32>()?.repeat(time);
            Ok(Param::state(Tensor::from_slice(&values, lengths)))
        };
        Ok(Standardize { mean: along(&each.mean)?, std: along(&each.std)? })
    }

    /// Measures mean and deviation of each channel, which is the first axis.
    fn by_channel(data: &Dataset, lengths: &[usize]) -> Standardize {
        let (channels, points) = (data.example_shape[0], data.num_features / data.example_shape[0]);
        let each: Vec<(f32, f32)> = (0..channels)
            .map(|channel| {
                let plane = |image: &[f32]| image[channel * points..][..points].to_vec();
                let values: Vec<f32> = data.features.chunks_exact(data.num_features).flat_map(plane).collect();
                mean_and_deviation(&values)
            })
            .collect();
        let state = |value: fn(&(f32, f32)) -> f32| {
            let values: Vec<f32> = each.iter().flat_map(|each| std::iter::repeat_n(value(each), points)).collect();
            Param::state(Tensor::from_slice(&values, lengths))
        };
        Standardize { mean: state(|each| each.0), std: state(|each| each.1) }
    }

    /// Measures mean and deviation of each element over rows of `lengths.product()` numbers.
    pub fn from_rows(rows: &[f32], lengths: &[usize]) -> Standardize {
        let width = lengths.iter().product::<usize>().max(1);
        let count = (rows.len() / width).max(1) as f64;
        let mut mean = vec![0f64; width];
        rows.chunks_exact(width).for_each(|row| row.iter().zip(&mut mean).for_each(|(x, sum)| *sum += f64::from(*x)));
        mean.iter_mut().for_each(|sum| *sum /= count);
        let mut square = vec![0f64; width];
        for row in rows.chunks_exact(width) {
            row.iter().zip(&mean).zip(&mut square).for_each(|((x, mean), sum)| *sum += (f64::from(*x) - mean).powi(2));
        }
        let deviation = square.iter().zip(&mean).map(|(sum, mean)| {
            let d = (sum / count).sqrt();
            if varies(d, *mean) { d as f32 } else { 1.0 }
        });
        let state = |values: Vec<f32>| Param::state(Tensor::from_slice(&values, lengths));
        Standardize { mean: state(mean.iter().map(|mean| *mean as f32).collect()), std: state(deviation.collect()) }
    }
}

/// Returns mean and standard deviation of all values; the deviation is 1 for constant values.
fn mean_and_deviation(values: &[f32]) -> (f32, f32) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
    let deviation = (values.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>() / count).sqrt();
    (mean as f32, if varies(deviation, mean) { deviation as f32 } else { 1.0 })
}

/// Returns true if a deviation exceeds the rounding error of the mean of equal numbers.
fn varies(deviation: f64, mean: f64) -> bool {
    deviation > 1e-12 * mean.abs() && deviation >= f64::from(f32::MIN_POSITIVE)
}

impl Layer for Standardize {
    #[track_caller]
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        match self.is_for_longer(input) {
            // All time steps have the same statistics.
            true => (input - self.mean.tensor().slice((0..1,))) / self.std.tensor().slice((0..1,)),
            false => (input - self.mean.tensor()) / self.std.tensor(),
        }
    }
}

impl Standardize {
    /// True for sequences with more time steps than those that were measured.
    fn is_for_longer(&self, input: &Tensor) -> bool {
        let (Ok(input), Ok(own)) = (input.shape(), self.mean.tensor().shape()) else { return false };
        let (input, own) = (input.dims(), own.dims());
        own.len() == 2 && input.len() == 3 && input[1] > own[0] && input[2] == own[1]
    }
}

module!(Standardize { mean, std });

/// Inverse of [`Standardize`]: x · std + mean, in f32. The last layer of a regression network with targets of any scale.
#[derive(Clone, Debug)]
pub struct InverseStandardize(pub Standardize);

impl Layer for InverseStandardize {
    #[track_caller]
    fn forward(&self, input: &Tensor, _: &mut ForwardContext<'_>) -> Tensor {
        let (_, input) = widened(input);
        input * self.0.std.tensor() + self.0.mean.tensor()
    }
}

impl Module for InverseStandardize {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) {
        self.0.visit(visitor);
    }

    fn visit_mut(&mut self, visitor: &mut ParamVisitorMut<'_>) -> Result<()> {
        self.0.visit_mut(visitor)
    }
}
