//! A row of the op table: an operation and its test inputs.

use panoply_ir::{DType, Result, Shape};

use super::oracle::both;
use super::{Outcome, Worst};
use crate::{Device, Tensor};

/// An input of a row.
#[derive(Clone, Copy)]
pub struct Input {
    /// Lengths of the axes.
    pub shape: &'static [usize],
    /// Minimum value.
    pub low: f64,
    /// Upper bound of the values.
    pub high: f64,
    /// True if the values are i32.
    pub whole: bool,
}

/// An operation with its test inputs.
pub struct Row {
    /// Name in messages.
    pub name: &'static str,
    /// The test inputs.
    pub inputs: &'static [Input],
    /// The operation.
    pub op: fn(&[Tensor]) -> Tensor,
    /// True if it has a gradient with respect to every float input.
    pub differentiable: bool,
    /// Maximum error in f32, relative to the largest result.
    pub tolerance: f64,
}

/// Creates an input of floats in `low .. high`.
pub const fn within(shape: &'static [usize], low: f64, high: f64) -> Input {
    Input { shape, low, high, whole: false }
}

/// Creates an input of floats in -2 .. 2.
pub const fn any(shape: &'static [usize]) -> Input {
    within(shape, -2.0, 2.0)
}

/// Creates an input of integers in 0 .. `high`.
pub const fn whole(shape: &'static [usize], high: f64) -> Input {
    Input { shape, low: 0.0, high, whole: true }
}

/// Creates a row with gradients.
pub const fn smooth(name: &'static str, inputs: &'static [Input], op: fn(&[Tensor]) -> Tensor) -> Row {
    Row { name, inputs, op, differentiable: true, tolerance: 2e-6 }
}

/// Creates a row without gradients.
pub const fn flat(name: &'static str, inputs: &'static [Input], op: fn(&[Tensor]) -> Tensor) -> Row {
    Row { name, inputs, op, differentiable: false, tolerance: 2e-6 }
}

impl Input {
    /// Returns pseudo-random numbers for this input, the same on every run.
    pub fn numbers(&self, salt: u64) -> Vec<f64> {
        let mut state = 0x9E37_79B9_7F4A_7C15u64.wrapping_mul(salt + 1);
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1u64 << 24) as f64
        };
        let elems: usize = self.shape.iter().product();
        (0..elems)
            .map(|_| self.low + (self.high - self.low) * next())
            .map(|x| if self.whole { x.floor() } else { x })
            .collect()
    }

    /// Converts numbers to a tensor, of `float` (f32 or f64) unless the input is of integers.
    pub fn tensor(&self, numbers: &[f64], float: DType) -> Tensor {
        let shape = Shape::from(self.shape);
        match (self.whole, float) {
            (true, _) => Tensor::from_slice(&numbers.iter().map(|x| *x as i32).collect::<Vec<i32>>(), shape),
            (false, DType::F64) => Tensor::from_slice(numbers, shape),
            (false, _) => Tensor::from_slice(&numbers.iter().map(|x| *x as f32).collect::<Vec<f32>>(), shape),
        }
    }
}

impl Row {
    /// Creates the test inputs.
    pub fn tensors(&self, float: DType) -> Vec<Tensor> {
        let tensor = |(salt, input): (usize, &Input)| input.tensor(&input.numbers(salt as u64), float);
        self.inputs.iter().enumerate().map(tensor).collect()
    }

    /// Evaluates the operation on a device and compares with the oracle.
    pub fn value(&self, device: &Device) -> Outcome {
        self.outcome(self.name.to_string(), self.tolerance, || {
            device.scope(|| {
                let result = (self.op)(&self.tensors(DType::F32));
                let (have, want) = both(&[&result])?;
                Worst::relative(&have, &want)
            })
        })
    }

    /// Evaluates the gradient with respect to every float input and compares with the oracle; `None` if the row has
    /// no gradient.
    pub fn gradient(&self, device: &Device) -> Option<Outcome> {
        let measure = || {
            device.scope(|| {
                let inputs = self.tensors(DType::F32);
                let wanted: Vec<&Tensor> = inputs.iter().filter(|input| input.dtype().is_float()).collect();
                let gradients = weighted(&(self.op)(&inputs))?.gradients(&wanted)?;
                let (have, want) = both(&gradients.iter().collect::<Vec<&Tensor>>())?;
                Worst::relative(&have, &want)
            })
        };
        let name = || format!("gradient of {}", self.name);
        self.differentiable.then(|| self.outcome(name(), 4.0 * self.tolerance, measure))
    }

    fn outcome(&self, name: String, limit: f64, measure: impl FnOnce() -> Result<Worst>) -> Outcome {
        Outcome { name, unit: "relative to the largest element", limit, worst: measure() }
    }
}

/// Reduces a tensor to a number by a sum with a different weight for each element.
///
/// # Errors
/// The tensor carries a mistake.
pub fn weighted(tensor: &Tensor) -> Result<Tensor> {
    let elems = tensor.shape()?.numel();
    // Small arguments: the sine of a large f32 is inaccurate.
    let weights = ((Tensor::arange(elems) % Tensor::scalar(97i32)).cast(tensor.dtype()) * 0.37 + 0.5).sin();
    Ok((tensor.reshape([-1]) * weights).sum(..))
}
