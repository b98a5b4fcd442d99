//! Layers that change examples at random in training and do nothing in use. They run on the device and draw from the pass's random
//! numbers, so a resumed run sees the same changes.

use panoply_tensor::{DType, Rng, Tensor};

use crate::layer::{ForwardContext, Layer};
use crate::module::module;

/// Images `[batch, channels, lengths]` moved by up to `max_shift` points along each length, each example by its own; zeros where
/// nothing was.
#[derive(Clone, Copy, Debug)]
pub struct RandomShift {
    /// The most points.
    pub max_shift: usize,
}

impl Layer for RandomShift {
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
    /// Element i of an axis becomes element i + shift, by a comparison of places: shift is one number for each example.
    fn along(&self, x: &Tensor, axis: usize, dims: &[usize], pass: &mut ForwardContext<'_>) -> Tensor {
        let ways = 2 * self.max_shift + 1;
        let Some(drawn) = pass.draw(&one_for_each_example(dims), Rng::uniform_like) else { return x.clone() };
        let drawn = (drawn * ways as f64).cast(DType::I32);
        let mut widths = vec![(0, 0); dims.len()];
        widths[axis] = (self.max_shift, self.max_shift);
        let padded = x.pad(&widths);
        let moved = |way: usize| padded.narrow(axis as isize, way, dims[axis]);
        (1..ways).fold(moved(0), |result, way| moved(way).where_self(&drawn.eq(&Tensor::scalar(way as i32)), &result))
    }
}

module!(RandomShift {});

/// A tensor with one element for each example of a batch of this shape, and as many axes.
fn one_for_each_example(dims: &[usize]) -> Tensor {
    let mut shape = vec![1; dims.len()];
    shape[0] = dims[0];
    Tensor::zeros(shape, DType::F32)
}

/// Examples turned round along their last axis, each with this probability.
#[derive(Clone, Copy, Debug)]
pub struct RandomHorizontalFlip {
    /// How likely.
    pub p: f64,
}

impl Layer for RandomHorizontalFlip {
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

/// Normal random numbers added.
#[derive(Clone, Copy, Debug)]
pub struct GaussianNoise {
    /// Their deviation.
    pub stddev: f64,
}

impl Layer for GaussianNoise {
    fn forward(&self, input: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        match pass.draw(input, Rng::normal_like) {
            Some(drawn) => input + (drawn * self.stddev).cast(input.dtype()),
            None => input.clone(),
        }
    }
}

module!(GaussianNoise {});
