//! Layers that change examples at random in training and do nothing in use. They run on the device and draw from the pass's random
//! numbers, so a resumed run sees the same changes.

use panoply_tensor::{DType, Rng, Tensor};

use crate::layer::{Layer, Pass};
use crate::module::module;

/// Images `[batch, channels, lengths]` moved by up to `by` points along each length, each example by its own; zeros where
/// nothing was.
#[derive(Clone, Copy, Debug)]
pub struct Shift {
    /// The most points.
    pub by: usize,
}

impl Layer for Shift {
    fn forward(&self, input: &Tensor, pass: &mut Pass<'_>) -> Tensor {
        let shape = match input.shape() {
            Ok(shape) => shape.clone(),
            Err(error) => return Tensor::from_mistake(error),
        };
        let (Some(rng), [batch, _, _, ..]) = (pass.rng(), shape.dims()) else { return input.clone() };
        (2..shape.rank()).fold(input.clone(), |x, axis| self.along(&x, axis, *batch, shape.dims(), rng))
    }
}

impl Shift {
    /// Element i of an axis becomes element i + shift, by a comparison of places: shift is one number for each example.
    fn along(&self, x: &Tensor, axis: usize, batch: usize, dims: &[usize], rng: &mut Rng) -> Tensor {
        let ways = 2 * self.by + 1;
        let mut around = vec![1; dims.len()];
        around[0] = batch;
        let drawn = (rng.uniform(around) * ways as f64).cast(DType::I32);
        let mut widths = vec![(0, 0); dims.len()];
        widths[axis] = (self.by, self.by);
        let padded = x.pad(&widths);
        let moved = |way: usize| padded.narrow(axis as isize, way, dims[axis]);
        (1..ways).fold(moved(0), |result, way| moved(way).where_(&drawn.eq(&Tensor::scalar(way as i32)), &result))
    }
}

module!(Shift {});

/// Examples turned round along their last axis, each with this probability.
#[derive(Clone, Copy, Debug)]
pub struct Flip {
    /// How likely.
    pub probability: f64,
}

impl Layer for Flip {
    fn forward(&self, input: &Tensor, pass: &mut Pass<'_>) -> Tensor {
        let shape = match input.shape() {
            Ok(shape) => shape,
            Err(error) => return Tensor::from_mistake(error),
        };
        let Some(rng) = pass.rng() else { return input.clone() };
        let mut around = vec![1; shape.rank()];
        around[0] = shape.dims()[0];
        let turned = rng.uniform(around).lt(&Tensor::scalar(self.probability as f32));
        input.flip(-1).where_(&turned, input)
    }
}

module!(Flip {});

/// Normal random numbers added.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    /// Their deviation.
    pub deviation: f64,
}

impl Layer for Noise {
    fn forward(&self, input: &Tensor, pass: &mut Pass<'_>) -> Tensor {
        match pass.rng() {
            Some(rng) => input + (rng.normal_like(input) * self.deviation).cast(input.dtype()),
            None => input.clone(),
        }
    }
}

module!(Noise {});
