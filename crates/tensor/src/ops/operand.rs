//! The second operand of an operation: a tensor, or a Rust number that takes the tensor's element type.

use panoply_ir::{DType, Error, Scalar, bf16, f16};

use crate::tensor::Tensor;

/// A tensor or a number of any Rust type, as operators and methods such as [`Tensor::maximum`] take them.
///
/// A number is converted to the element type of the tensor beside it and is an argument of the program: changing it does
/// not recompile. Floats round; an integer type must be able to represent the number, and a bool goes only with bools.
///
/// ```
/// # use panoply_tensor::Tensor;
/// let (x, n) = (Tensor::from_slice(&[1.0f32, 2.0], [2]), 3usize);
/// assert_eq!((&x * n - 1).to_vec::<f32>()?, [2.0, 5.0]);
/// assert_eq!((1.0 - x.maximum(1.5f32)).to_vec::<f32>()?, [-0.5, -1.0]);
/// assert_eq!(((Tensor::arange(4) & 1).eq(0)).to_vec::<bool>()?, [true, false, true, false]);
/// # Ok::<(), panoply_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub enum Operand {
    /// A tensor.
    Tensor(Tensor),
    /// A number.
    Number(Scalar),
}

impl Operand {
    /// Returns the tensor, or the number with the element type of `beside` and shape `[]`.
    #[track_caller]
    pub fn beside(self, beside: &Tensor) -> Tensor {
        match self {
            Operand::Tensor(tensor) => tensor,
            Operand::Number(number) => beside.scalar_like(number),
        }
    }
}

impl From<Tensor> for Operand {
    fn from(tensor: Tensor) -> Operand {
        Operand::Tensor(tensor)
    }
}

impl From<&Tensor> for Operand {
    fn from(tensor: &Tensor) -> Operand {
        Operand::Tensor(tensor.clone())
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl From<$number> for Operand {
            fn from(number: $number) -> Operand {
                Operand::Number(number.into())
            }
        }
    )*};
}

numbers!(f16 bf16 f32 f64 i8 i16 i32 i64 isize u8 u16 u32 u64 usize bool Scalar);

impl Tensor {
    /// Creates an argument of the program with this tensor's element type and shape `[]`, as operators do for a
    /// number next to a tensor. An integer type must be able to represent the number; infinities become its bounds.
    #[track_caller]
    pub fn scalar_like(&self, value: impl Into<Scalar>) -> Tensor {
        match self.number_like(value.into()) {
            Ok(number) => Tensor::scalar(number),
            Err(mistake) => mistake,
        }
    }

    /// Creates a tensor of this shape and element type, filled with a number.
    #[track_caller]
    pub fn full_like(&self, value: impl Into<Scalar>) -> Tensor {
        match self.number_like(value.into()) {
            Ok(number) => Tensor::constant_or_scalar(number).expanded(&self.0.shape).with_lengths_of(self),
            Err(mistake) => mistake,
        }
    }

    /// Converts a number to this tensor's element type, or returns a tensor with the mistake.
    #[track_caller]
    pub(crate) fn number_like(&self, value: Scalar) -> Result<Scalar, Tensor> {
        if self.is_mistake() {
            return Err(self.clone());
        }
        let dtype = self.dtype();
        if value.dtype == DType::Bool && dtype != DType::Bool {
            let message = format!("{} is not a number: use 1 or 0 beside {self:?}", value.is_true());
            return Err(Tensor::mistake(Error::mistake(message)));
        }
        if value.dtype.is_float() {
            let number = value.to_f64();
            let fits = number.fract() == 0.0 && Scalar::from_i128(dtype, number as i128).to_i128() == number as i128;
            return match dtype.is_float() || number.is_infinite() || fits {
                true => Ok(Scalar::from_f64(dtype, number)),
                false => Err(self.has_no(&number.to_string())),
            };
        }
        let (number, converted) = (value.to_i128(), Scalar::from_i128(dtype, value.to_i128()));
        match dtype.is_float() || converted.to_i128() == number {
            true => Ok(converted),
            false => Err(self.has_no(&number.to_string())),
        }
    }

    #[track_caller]
    fn has_no(&self, number: &str) -> Tensor {
        let message =
            format!("{number} is not a valid {}: cast {self:?} first to a type that can represent it", self.dtype());
        Tensor::mistake(Error::mistake(message))
    }
}
