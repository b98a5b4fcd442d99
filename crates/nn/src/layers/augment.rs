//! Random data augmentation in training; the identity in evaluation. It runs on the device with the random numbers of the pass, so a
//! resumed run applies the same changes.

use panoply_tensor::{DType, Rng, Tensor};

use crate::layer::{ForwardContext, Layer};
use crate::module::module;

/// Shifts images `[batch, channels, lengths]` by up to `max_shift` points along each spatial axis, each example by a different amount;
/// vacated points are 0.
#[derive(Clone, Copy, Debug)]
pub struct RandomShift {
    /// Maximum shift in points.
    pub max_shift: usize,
}

impl Layer for RandomShift {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let shape = match input.shape() {
            Ok(shape) => shape.clone(),
            Err(error) => return Tensor::from_mistake(error),
        };
        if !pass.is_training() {
            return input.clone();
        }
        (2..shape.ndim()).fold(input.clone(), |x, axis| self.along(&x, axis, shape.dims(), pass))
    }
}

impl RandomShift {
    /// Shifts along one axis, by selecting per example among all shifted views of the padded input.
    fn along(&self, x: &Tensor, axis: usize, dims: &[usize], pass: &mut ForwardContext<'_>) -> Tensor {
        let shifts = 2 * self.max_shift + 1;
        let Some(drawn) = pass.draw(&one_for_each_example(dims), Rng::uniform_like) else { return x.clone() };
        let drawn = (drawn * shifts as f64).cast(DType::I32);
        let mut widths = vec![(0, 0); dims.len()];
        widths[axis] = (self.max_shift, self.max_shift);
        let padded = x.pad(&widths);
        let moved = |shift: usize| padded.narrow(axis as isize, shift, dims[axis]);
        (1..shifts)
            .fold(moved(0), |result, shift| moved(shift).where_self(&drawn.eq(&Tensor::scalar(shift as i32)), &result))
    }
}

module!(RandomShift {});

/// Returns a tensor with one element per example of a batch of this shape, and the same number of axes.
fn one_for_each_example(dims: &[usize]) -> Tensor {
    let mut shape = vec![1; dims.len()];
    shape[0] = dims[0];
    Tensor::zeros(shape, DType::F32)
}

/// Flips each example along its last axis with probability `p`.
#[derive(Clone, Copy, Debug)]
pub struct RandomHorizontalFlip {
    /// Probability of a flip.
    pub p: f64,
}

impl Layer for RandomHorizontalFlip {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let shape = match input.shape() {
            Ok(shape) => shape,
            Err(error) => return Tensor::from_mistake(error),
        };
        let Some(drawn) = pass.draw(&one_for_each_example(shape.dims()), Rng::uniform_like) else {
            return input.clone();
        };
        let turned = drawn.lt(&Tensor::scalar(self.p as f32));
        input.flip(-1).where_self(&turned, input)
    }
}

module!(RandomHorizontalFlip {});

/// Adds normally distributed noise.
#[derive(Clone, Copy, Debug)]
pub struct GaussianNoise {
    /// Standard deviation of the noise.
    pub stddev: f64,
}

impl Layer for GaussianNoise {
    #[track_caller]
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        match pass.draw(input, Rng::normal_like) {
            Some(drawn) => input + (drawn * self.stddev).cast(input.dtype()),
            None => input.clone(),
        }
    }
}

module!(GaussianNoise {});
