//! Random numbers by position: an element depends on the seed and its position in the array, not on blocks or devices.

use panoply_tensor::{DType, Rng, Tensor};

use super::layout::strides;
use super::lengths;
use crate::span::Span;

/// Returns the f32 numbers from [0, 1) of a region of an array, as [`Rng::uniform`] draws them.
pub fn uniform(seed: u64, shape: &[usize], region: &[Span]) -> Tensor {
    let positions = positions(shape, region);
    Rng::seed_from_u64(seed).uniform_at(&positions).reshape(lengths(region))
}

/// Returns the f32 numbers of a region with mean 0 and variance 1, as [`Rng::normal`] draws them.
pub fn normal(seed: u64, shape: &[usize], region: &[Span]) -> Tensor {
    let positions = positions(shape, region);
    Rng::seed_from_u64(seed).normal_at(&positions, shape.iter().product()).reshape(lengths(region))
}

/// Returns the row-major positions of the elements of a region, u32 with one axis.
fn positions(shape: &[usize], region: &[Span]) -> Tensor {
    // At least one axis, so that there is a position.
    let mut positions = Tensor::zeros([1], DType::U32);
    for ((axis, span), stride) in region.iter().enumerate().zip(strides(shape)) {
        let along: Vec<u32> = (0..span.len).map(|index| (span.at(index) * stride) as u32).collect();
        let mut around = vec![1; region.len()];
        around[axis] = span.len;
        positions += Tensor::from_slice(&along, around);
    }
    positions.broadcast_to(lengths(region)).flatten(0, -1)
}
