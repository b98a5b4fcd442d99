//! Creation of tensors.

use panoply_ir::graph::Op;
use panoply_ir::{DType, Element, Error, Scalar, Shape};

use crate::tensor::Tensor;

/// Number of positions from 0 that an i32 can hold.
const MAX_POSITIONS: usize = 1 << 31;

/// Largest half-integer that is a constant of the program: exponents that become products and roots, factors, small
/// counts.
const MAX_CONSTANT: f64 = 16.0;

/// Returns true if the compiler can simplify programs with this number.
fn simplifies(value: Scalar) -> bool {
    let number = value.to_f64();
    let halves = (number * 2.0).fract() == 0.0 && number.abs() <= MAX_CONSTANT;
    value.dtype == DType::Bool || !number.is_finite() || halves
}

/// Returns the number of steps from `start` until `end` is reached; `None` if that never happens.
fn step_count(start: Scalar, end: Scalar, step: Scalar) -> Option<usize> {
    if step.dtype.is_float() {
        let count = ((end.to_f64() - start.to_f64()) / step.to_f64()).ceil();
        return count.is_finite().then_some(count.max(0.0) as usize);
    }
    let (length, step) = (end.to_i128() - start.to_i128(), step.to_i128());
    if step == 0 || start.dtype == DType::Bool {
        return None;
    }
    let (length, step) = if step < 0 { (-length, -step) } else { (length, step) };
    usize::try_from((length.max(0) + step - 1) / step).ok()
}

impl Tensor {
    /// Creates a tensor filled with `value`. Numbers that allow simplifications, such as 0, 1 and 2.5, are constants
    /// of the program. Any other number is an argument of the program, so that a value that changes in each step does
    /// not recompile.
    #[track_caller]
    pub fn full(shape: impl Into<Shape>, value: impl Into<Scalar>) -> Tensor {
        Tensor::constant_or_scalar(value.into()).expanded(&shape.into())
    }

    /// Creates a number of shape `[]`: a constant of the program if it allows simplifications, an argument otherwise.
    #[track_caller]
    pub(crate) fn constant_or_scalar(value: Scalar) -> Tensor {
        if simplifies(value) { Tensor::constant(value) } else { Tensor::scalar(value) }
    }

    /// Creates a tensor of zeros.
    #[track_caller]
    pub fn zeros(shape: impl Into<Shape>, dtype: DType) -> Tensor {
        Tensor::full(shape, Scalar::from_i128(dtype, 0))
    }

    /// Creates a tensor of ones.
    #[track_caller]
    pub fn ones(shape: impl Into<Shape>, dtype: DType) -> Tensor {
        Tensor::full(shape, Scalar::from_i128(dtype, 1))
    }

    /// Creates an i32 tensor 0, 1, … len - 1. The last number must fit in an i32. [`Tensor::arange_step`] has a start, a
    /// step and other types.
    #[track_caller]
    pub fn arange(end: usize) -> Tensor {
        if end > MAX_POSITIONS {
            let message = format!("arange: {end} numbers are more than the {MAX_POSITIONS} that an i32 can hold");
            return Tensor::mistake(Error::mistake(message));
        }
        Tensor::primitive(Op::Iota, &[], [end], DType::I32)
    }

    /// Creates the numbers from `start` up to but not including `end`, `step` apart, of the type of the arguments. A
    /// negative step counts down. [`Tensor::linspace`] includes the end.
    ///
    /// ```
    /// # use panoply_tensor::Tensor;
    /// assert_eq!(Tensor::arange_step(10, 0, -4).to_vec::<i32>()?, [10, 6, 2]);
    /// assert_eq!(Tensor::arange_step(0.5f32, 2.0, 0.5).to_vec::<f32>()?, [0.5, 1.0, 1.5]);
    /// # Ok::<(), panoply_tensor::Error>(())
    /// ```
    #[track_caller]
    pub fn arange_step<T: Element>(start: T, end: T, step: T) -> Tensor {
        let [start, end, step]: [Scalar; 3] = [start, end, step].map(Into::into);
        let Some(count) = step_count(start, end, step).filter(|count| *count <= MAX_POSITIONS) else {
            let message = format!("arange_step: there are no numbers from {start} to {end} in steps of {step}");
            let note = format!("it needs finite numbers, a step other than 0, and at most {MAX_POSITIONS} steps");
            return Tensor::mistake(Error::mistake(message).note(note));
        };
        // f16 and bf16 cannot represent every index.
        let wide = if matches!(T::DTYPE, DType::F16 | DType::BF16) { DType::F32 } else { T::DTYPE };
        let places = Tensor::arange(count).cast(wide);
        (&places * step + start).cast(T::DTYPE)
    }

    /// Creates `steps` equally spaced numbers from `start` to `end`, both included; a single number is `start`.
    #[track_caller]
    pub fn linspace(start: f64, end: f64, steps: usize, dtype: DType) -> Tensor {
        if !dtype.is_float() {
            return Tensor::mistake(Error::mistake(format!(
                "linspace: {dtype} has no fractions; use f32 and cast the result"
            )));
        }
        if steps > MAX_POSITIONS {
            let message = format!("linspace: {steps} numbers are more than the {MAX_POSITIONS} that an i32 can count");
            return Tensor::mistake(Error::mistake(message).note("create shorter parts and concatenate their uses"));
        }
        // f16 and bf16 cannot represent every index.
        let wide = if dtype == DType::F64 { dtype } else { DType::F32 };
        let number = |value: f64| Tensor::constant_or_scalar(Scalar::from_f64(wide, value));
        let places = Tensor::arange(steps);
        let (first, step) = (places.cast(wide), number((end - start) / steps.saturating_sub(1).max(1) as f64));
        // Computed from the nearer end, so that the last number is exactly `end`.
        let left = (places.literal(steps as f64 - 1.0) - &places).cast(wide);
        let (rising, falling) = (number(start) + first * &step, number(end) - left * step);
        rising.where_self(&places.lt(&places.literal(steps.div_ceil(2) as f64)), &falling).cast(dtype)
    }

    /// Creates a constant of this tensor's element type and shape `[]`.
    #[track_caller]
    pub(crate) fn literal(&self, value: f64) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        Tensor::constant(Scalar::from_f64(self.dtype(), value))
    }

    /// Creates 0, 1, … len - 1 as i32, or as i64 if a product with `factor` might not fit in an i32.
    #[track_caller]
    pub(crate) fn places(len: usize, factor: usize) -> Tensor {
        let fits = len.saturating_add(1).checked_mul(factor).is_some_and(|most| i32::try_from(most).is_ok());
        Tensor::arange(len).cast(if fits { DType::I32 } else { DType::I64 })
    }

    /// Creates zeros of this tensor's shape and element type.
    #[track_caller]
    pub fn zeros_like(&self) -> Tensor {
        self.literal(0.0).expanded(&self.0.shape).with_lengths_of(self)
    }

    /// Creates ones of this tensor's shape and element type.
    #[track_caller]
    pub fn ones_like(&self) -> Tensor {
        self.literal(1.0).expanded(&self.0.shape).with_lengths_of(self)
    }
}
