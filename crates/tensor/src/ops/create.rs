//! Tensors made of nothing.

use panoply_ir::graph::Op;
use panoply_ir::{DType, Error, Scalar, Shape};

use crate::tensor::Tensor;

/// How many positions from 0 on an i32 holds.
const MOST_POSITIONS: usize = 1 << 31;

/// Half-integers up to this one are constants: exponents that become products and roots, factors, small counts.
const MOST_CONSTANT: f64 = 16.0;

/// Whether a number is one that programs are simplified by.
fn simplifies(value: Scalar) -> bool {
    let number = value.to_f64();
    let halves = (number * 2.0).fract() == 0.0 && number.abs() <= MOST_CONSTANT;
    value.dtype == DType::Bool || !number.is_finite() || halves
}

impl Tensor {
    /// Every element is `value`. Numbers that programs are simplified by, such as 0, 1 and 2.5, are part of the program; another number is
    /// passed when it runs, so that one that differs in each step is not compiled anew.
    #[track_caller]
    pub fn full(shape: impl Into<Shape>, value: impl Into<Scalar>) -> Tensor {
        Tensor::constant_or_scalar(value.into()).expanded(&shape.into())
    }

    /// A user's number, of shape `[]`: a constant of the program if programs are simplified by it, an argument otherwise.
    #[track_caller]
    pub(crate) fn constant_or_scalar(value: Scalar) -> Tensor {
        if simplifies(value) { Tensor::constant(value) } else { Tensor::scalar(value) }
    }

    /// Zeros.
    #[track_caller]
    pub fn zeros(shape: impl Into<Shape>, dtype: DType) -> Tensor {
        Tensor::full(shape, Scalar::from_i128(dtype, 0))
    }

    /// Ones.
    #[track_caller]
    pub fn ones(shape: impl Into<Shape>, dtype: DType) -> Tensor {
        Tensor::full(shape, Scalar::from_i128(dtype, 1))
    }

    /// i32 0, 1, … len - 1, of which an i32 must hold the last.
    #[track_caller]
    pub fn arange(len: usize) -> Tensor {
        if len > MOST_POSITIONS {
            let message = format!("iota: {len} numbers from 0 on are more than the {MOST_POSITIONS} that an i32 holds");
            return Tensor::mistake(Error::mistake(message));
        }
        Tensor::primitive(Op::Iota, &[], [len], DType::I32)
    }

    /// So many numbers from `start` to `end`, equally far apart; both ends are among them, one number is `start`.
    #[track_caller]
    pub fn linspace(start: f64, end: f64, steps: usize, dtype: DType) -> Tensor {
        if !dtype.is_float() {
            return Tensor::mistake(Error::mistake(format!(
                "linspace: {dtype} has no fractions; take f32 and cast it"
            )));
        }
        if steps > MOST_POSITIONS {
            let message = format!("linspace: {steps} numbers are more than the {MOST_POSITIONS} that can be counted");
            return Tensor::mistake(Error::mistake(message).note("make shorter parts and use them one after another"));
        }
        // Halves do not know every place.
        let wide = if dtype == DType::F64 { dtype } else { DType::F32 };
        let number = |value: f64| Tensor::constant_or_scalar(Scalar::from_f64(wide, value));
        let places = Tensor::arange(steps);
        let (first, step) = (places.cast(wide), number((end - start) / steps.saturating_sub(1).max(1) as f64));
        // From the nearer end, so that the last is what was asked for.
        let left = (places.literal(steps as f64 - 1.0) - &places).cast(wide);
        let (rising, falling) = (number(start) + first * &step, number(end) - left * step);
        rising.where_self(&places.lt(&places.literal(steps.div_ceil(2) as f64)), &falling).cast(dtype)
    }

    /// A constant of this tensor's element type and shape `[]`.
    #[track_caller]
    pub(crate) fn literal(&self, value: f64) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        Tensor::constant(Scalar::from_f64(self.dtype(), value))
    }

    /// A number of this tensor's element type and shape `[]`, as operators make one of the number beside a tensor: not part of the
    /// program. Of an integer type only what it holds, and infinities for its bounds.
    #[track_caller]
    pub fn scalar_like(&self, value: f64) -> Tensor {
        if self.is_mistake() {
            return self.clone();
        }
        let number = Scalar::from_f64(self.dtype(), value);
        if !self.dtype().is_float() && !value.is_infinite() && number.to_f64() != value {
            let message = format!("{value} is no {}: cast {self:?} to a type that holds it first", self.dtype());
            return Tensor::mistake(Error::mistake(message));
        }
        Tensor::scalar(number)
    }

    /// i32 0, 1, … len - 1, or i64 if some number of them may be multiplied by `factor` and not fit.
    #[track_caller]
    pub(crate) fn places(len: usize, factor: usize) -> Tensor {
        let fits = len.saturating_add(1).checked_mul(factor).is_some_and(|most| i32::try_from(most).is_ok());
        Tensor::arange(len).cast(if fits { DType::I32 } else { DType::I64 })
    }

    /// Zeros of this tensor's shape and element type.
    #[track_caller]
    pub fn zeros_like(&self) -> Tensor {
        self.literal(0.0).expanded(&self.0.shape).with_lengths_of(self)
    }

    /// Ones of this tensor's shape and element type.
    #[track_caller]
    pub fn ones_like(&self) -> Tensor {
        self.literal(1.0).expanded(&self.0.shape).with_lengths_of(self)
    }
}
