//! Elementwise operations with NumPy's broadcasting.
//!
//! Operands must have one element type: nothing is promoted, and a mix is a mistake whose message names the cast. A
//! Rust number takes the tensor's type and is an argument of the program: changing it does not recompile.
//!
//! On the right of an operator a number can have any type. On the left it is an `f64`, an `i32`, a `bool` for `&`, `|` and
//! `^`, or a [`Scalar`] of any type: with a second float or integer type there, rustc could not infer the type of the
//! literal in `(1.0 - &x).log()`.

use panoply_ir::alu::Domain;
use panoply_ir::graph::Op;
use panoply_ir::{Alu, DType, Error, Math, Scalar, bf16, f16};

use super::operand::Operand;
use crate::tensor::Tensor;

impl Tensor {
    /// Applies a scalar operation elementwise after broadcasting.
    #[track_caller]
    pub(crate) fn alu(op: Alu, operands: &[&Tensor]) -> Tensor {
        if let Some(mistake) = Tensor::leftmost(operands.iter().copied()) {
            return mistake;
        }
        let values = if op == Alu::Select { &operands[1..] } else { operands };
        let dtype = values[0].dtype();
        if let Some(other) = values.iter().find(|other| other.dtype() != dtype) {
            let message = format!("{}: element types {dtype} and {} differ", op.name(), other.dtype());
            let note = format!("left {:?}, right {other:?}; cast one with `.cast(DType::…)`", values[0]);
            return Tensor::mistake(Error::mistake(message).note(note));
        }
        if op == Alu::Select && operands[0].dtype() != DType::Bool {
            return Tensor::mistake(Error::mistake(format!("select: the condition is {:?}, not bool", operands[0])));
        }
        if dtype == DType::Bool
            && let Some(result) = Tensor::alu_of_bools(op, operands)
        {
            return result;
        }
        let fits = match op.domain() {
            Domain::Float => dtype.is_float(),
            Domain::Number => dtype != DType::Bool,
            Domain::Int => dtype.is_int(),
            Domain::Bits => !dtype.is_float(),
            Domain::Any => true,
        };
        if !fits {
            let message = format!("{} is not defined for {dtype}", op.name());
            return Tensor::mistake(Error::mistake(message).note(format!("operand {:?}", values[0])));
        }
        let mut shape = operands[0].0.shape.clone();
        for operand in &operands[1..] {
            shape = match shape.broadcast(&operand.0.shape) {
                Ok(shape) => shape,
                Err(_) => {
                    let message = format!("{}: shapes {shape} and {} do not broadcast", op.name(), operand.0.shape);
                    let note = format!("left {:?}, right {operand:?}", operands[0]);
                    return Tensor::mistake(Error::mistake(message).note(note));
                }
            };
        }
        let mut inputs = Vec::with_capacity(operands.len());
        for operand in operands {
            inputs.push(operand.expanded(&shape));
        }
        let result = if op.is_comparison() { DType::Bool } else { dtype };
        Tensor::primitive_of(Op::Alu(op), inputs, shape, result)
    }

    /// Computes comparisons and extremes of bools, false before true, by logical operations; `None` for other
    /// operations.
    #[track_caller]
    fn alu_of_bools(op: Alu, operands: &[&Tensor]) -> Option<Tensor> {
        let &[x, y] = operands else { return None };
        let logical = |op: Alu, x: &Tensor| Some(Tensor::alu(op, &[x, y]));
        if op == Alu::Min || op == Alu::Max {
            return logical(if op == Alu::Min { Alu::And } else { Alu::Or }, x);
        }
        if op == Alu::Lt || op == Alu::Le {
            return logical(if op == Alu::Lt { Alu::And } else { Alu::Or }, &Tensor::alu(Alu::Not, &[x]));
        }
        None
    }

    /// Converts the elements as Rust's `as`: floats saturate to integers, NaN becomes 0.
    #[doc(alias = "to")]
    #[doc(alias = "type")]
    #[doc(alias = "astype")]
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Tensor {
        if self.is_mistake() || self.dtype() == dtype {
            return self.clone();
        }
        Tensor::primitive(Op::Cast, &[self], self.0.shape.clone(), dtype)
    }

    /// Reinterprets the bits as another element type of the same width.
    #[doc(alias = "view")]
    #[track_caller]
    pub fn bitcast(&self, dtype: DType) -> Tensor {
        if self.is_mistake() || self.dtype() == dtype {
            return self.clone();
        }
        if self.dtype().bits() != dtype.bits() {
            return Tensor::mistake(Error::mistake(format!("bitcast: the bits of {self:?} cannot be read as {dtype}")));
        }
        Tensor::primitive(Op::Bitcast, &[self], self.0.shape.clone(), dtype)
    }

    /// Broadcasts both tensors to their common shape, for VJPs that do not broadcast; on error a tensor with the
    /// mistake.
    #[track_caller]
    pub(crate) fn broadcast_with(&self, other: &Tensor) -> Result<[Tensor; 2], Tensor> {
        let sum = Tensor::alu(Alu::Add, &[self, other]);
        if sum.is_mistake() {
            return Err(sum);
        }
        Ok([self, other].map(|tensor| tensor.expanded(&sum.0.shape)))
    }

    /// Returns `self` where the condition holds, `other` elsewhere.
    #[doc(alias = "where")]
    #[track_caller]
    pub fn where_self(&self, condition: &Tensor, other: impl Into<Operand>) -> Tensor {
        Tensor::alu(Alu::Select, &[condition, self, &other.into().beside(self)])
    }

    /// Returns `other - self`.
    #[track_caller]
    pub fn rsub(&self, other: impl Into<Operand>) -> Tensor {
        Tensor::alu(Alu::Sub, &[&other.into().beside(self), self])
    }

    /// Returns x^y. Exponents that are numbers such as 2, 3, 0.5 or -1 compile to a square, cube, root or reciprocal.
    #[track_caller]
    pub fn pow(&self, exponent: impl Into<Operand>) -> Tensor {
        let exponent = match exponent.into() {
            Operand::Tensor(exponent) => exponent,
            Operand::Number(number) if number.to_f64() == 2.0 => return self.square(),
            Operand::Number(number) => match self.number_like(number) {
                Ok(number) => Tensor::constant_or_scalar(number),
                Err(mistake) => return mistake,
            },
        };
        Tensor::alu(Alu::Pow, &[self, &exponent])
    }

    /// Returns x · x.
    #[track_caller]
    pub fn square(&self) -> Tensor {
        Tensor::alu(Alu::Mul, &[self, self])
    }

    /// Returns 1 / x.
    #[track_caller]
    pub fn reciprocal(&self) -> Tensor {
        Tensor::alu(Alu::Div, &[&self.literal(1.0), self])
    }

    /// Returns 1 / sqrt(x).
    #[track_caller]
    pub fn rsqrt(&self) -> Tensor {
        self.sqrt().reciprocal()
    }

    /// Returns the sign: -1, 0 or 1.
    #[track_caller]
    pub fn sign(&self) -> Tensor {
        let body = |[x]: [&Tensor; 1], (): &()| {
            let zero = x.literal(0.0);
            let below = x.literal(-1.0).where_self(&Tensor::alu(Alu::Lt, &[x, &zero]), x);
            x.literal(1.0).where_self(&Tensor::alu(Alu::Lt, &[&zero, x]), &below)
        };
        Tensor::call_with_vjp("sign", [self], (), body, |[x], _, _, ()| [Some(x.zeros_like())])
    }

    /// Clamps to `low ..= high`, numbers or tensors that broadcast. The gradient is 0 at and beyond the bounds; NaN is
    /// propagated.
    #[doc(alias = "clip")]
    #[track_caller]
    pub fn clamp(&self, min: impl Into<Operand>, max: impl Into<Operand>) -> Tensor {
        self.clamp_min(min).clamp_max(max)
    }

    /// Replaces elements below `min` by it. The gradient is 0 there and at `min`; NaN is propagated.
    #[track_caller]
    pub fn clamp_min(&self, min: impl Into<Operand>) -> Tensor {
        let min = min.into().beside(self);
        min.where_self(&self.le(&min), self)
    }

    /// Replaces elements above `max` by it. The gradient is 0 there and at `max`; NaN is propagated.
    #[track_caller]
    pub fn clamp_max(&self, max: impl Into<Operand>) -> Tensor {
        let max = max.into().beside(self);
        max.where_self(&max.le(self), self)
    }

    /// Returns true where x > y.
    #[track_caller]
    pub fn gt(&self, other: impl Into<Operand>) -> Tensor {
        Tensor::alu(Alu::Lt, &[&other.into().beside(self), self])
    }

    /// Returns true where x ≥ y.
    #[track_caller]
    pub fn ge(&self, other: impl Into<Operand>) -> Tensor {
        Tensor::alu(Alu::Le, &[&other.into().beside(self), self])
    }

    /// Returns the quotient rounded towards negative infinity; the operator `/` of integers rounds towards zero. An
    /// integer divided by 0 is 0. For floats the quotient is that of x - [`Tensor::remainder`], which is exact, and an
    /// element divided by 0 is infinite or NaN. The gradient is 0.
    #[track_caller]
    pub fn floor_divide(&self, other: impl Into<Operand>) -> Tensor {
        let other = other.into().beside(self);
        let (rest, known) = (self % &other, other.ne(self.literal(0.0)));
        let below = (self.has_other_sign(&rest, &other) & &known).cast(self.dtype());
        if !self.dtype().is_float() {
            return self / other - below;
        }
        (((self - rest) / &other).round() - below).where_self(&known, self / other)
    }

    /// Returns the remainder with the sign of the divisor, Python's `%`; the operator `%` has the sign of the dividend.
    /// The remainder of an integer divided by 0 is the integer, and that of a float is NaN.
    #[doc(alias = "mod")]
    #[track_caller]
    pub fn remainder(&self, other: impl Into<Operand>) -> Tensor {
        let other = other.into().beside(self);
        let rest = self % &other;
        (&rest + &other).where_self(&self.has_other_sign(&rest, &other), &rest)
    }

    /// Returns true where a remainder is not 0 and has another sign than its divisor.
    #[track_caller]
    fn has_other_sign(&self, rest: &Tensor, divisor: &Tensor) -> Tensor {
        let zero = self.literal(0.0);
        rest.ne(&zero) & rest.lt(&zero).ne(divisor.lt(&zero))
    }

    /// Replaces NaN by `nan`, infinity by `posinf` and negative infinity by `neginf`; without these two, by the largest
    /// and smallest finite number of the element type. The gradient is 0 where an element is replaced. Integers and
    /// bools stay.
    #[track_caller]
    pub fn nan_to_num(&self, nan: f64, posinf: Option<f64>, neginf: Option<f64>) -> Tensor {
        let most = match self.dtype() {
            DType::F16 => f16::MAX.to_f64(),
            DType::BF16 => bf16::MAX.to_f64(),
            DType::F32 => f32::MAX.into(),
            _ => f64::MAX,
        };
        if !self.dtype().is_float() {
            return self.clone();
        }
        let number = |value: f64| Tensor::constant_or_scalar(Scalar::from_f64(self.dtype(), value));
        let infinite = self.literal(f64::INFINITY);
        let above = number(posinf.unwrap_or(most)).where_self(&self.eq(&infinite), self);
        let below = number(neginf.unwrap_or(-most)).where_self(&self.eq(-infinite), above);
        number(nan).where_self(&self.is_nan(), below)
    }
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident $alu:expr;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self) -> Tensor {
                Tensor::alu($alu, &[self])
            }
        )*}
    };
}

unary! {
    /// Returns the absolute value.
    abs Alu::Abs;
    /// Returns e^x.
    exp Alu::Math(Math::Exp);
    /// Returns 2^x.
    exp2 Alu::Math(Math::Exp2);
    /// Returns the natural logarithm.
    #[doc(alias = "ln")]
    log Alu::Math(Math::Log);
    /// Returns the logarithm to base 2.
    log2 Alu::Math(Math::Log2);
    /// Returns ln(1 + x), accurate near 0.
    log1p Alu::Math(Math::Log1p);
    /// Returns exp(x) - 1, accurate near 0.
    expm1 Alu::Math(Math::Expm1);
    /// Returns the sine of x radians.
    sin Alu::Math(Math::Sin);
    /// Returns the cosine of x radians.
    cos Alu::Math(Math::Cos);
    /// Returns the tangent of x radians.
    tan Alu::Math(Math::Tan);
    /// Returns the arc tangent.
    atan Alu::Math(Math::Atan);
    /// Returns the hyperbolic tangent.
    tanh Alu::Math(Math::Tanh);
    /// Returns the Gauss error function.
    erf Alu::Math(Math::Erf);
    /// Returns the square root.
    sqrt Alu::Sqrt;
    /// Returns the largest integer not above x.
    floor Alu::Floor;
    /// Returns the smallest integer not below x.
    ceil Alu::Ceil;
    /// Returns the nearest integer, ties to even.
    round Alu::Round;
    /// Rounds towards zero.
    trunc Alu::Trunc;
    /// Inverts the bits; logical not for bools.
    #[doc(alias = "logical_not")]
    bitwise_not Alu::Not;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident $alu:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self, other: impl Into<Operand>) -> Tensor {
                Tensor::alu(Alu::$alu, &[self, &other.into().beside(self)])
            }
        )*}
    };
}

binary! {
    /// Returns the smaller element; NaN if one is NaN.
    minimum Min;
    /// Returns the larger element; NaN if one is NaN.
    maximum Max;
    /// Returns the bitwise and; logical for bools.
    #[doc(alias = "logical_and")]
    bitwise_and And;
    /// Returns the bitwise or; logical for bools.
    #[doc(alias = "logical_or")]
    bitwise_or Or;
    /// Returns the bitwise exclusive or.
    #[doc(alias = "logical_xor")]
    bitwise_xor Xor;
    /// Shifts the bits to the left.
    bitwise_left_shift Shl;
    /// Shifts the bits to the right.
    bitwise_right_shift Shr;
    /// Returns true where x < y.
    lt Lt;
    /// Returns true where x ≤ y.
    le Le;
    /// Returns true where x = y.
    eq Eq;
    /// Returns true where x ≠ y.
    ne Ne;
}

macro_rules! operator {
    ($($trait:ident $method:ident $alu:ident, $assign:ident $assigned:ident, $($left:ty)*;)*) => {$(
        operator!(@tensor $trait $method $alu, Tensor);
        operator!(@tensor $trait $method $alu, &Tensor);
        $(
            operator!(@number $trait $method $alu, $left, Tensor);
            operator!(@number $trait $method $alu, $left, &Tensor);
        )*

        /// Replaces the handle by a new tensor; other handles keep the old value.
        impl<R: Into<Operand>> std::ops::$assign<R> for Tensor {
            #[track_caller]
            fn $assigned(&mut self, right: R) {
                *self = std::ops::$trait::$method(&*self, right);
            }
        }
    )*};
    (@tensor $trait:ident $method:ident $alu:ident, $left:ty) => {
        impl<R: Into<Operand>> std::ops::$trait<R> for $left {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, right: R) -> Tensor {
                let left: &Tensor = &self;
                Tensor::alu(Alu::$alu, &[left, &right.into().beside(left)])
            }
        }
    };
    (@number $trait:ident $method:ident $alu:ident, $left:ty, $tensor:ty) => {
        impl std::ops::$trait<$tensor> for $left {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, right: $tensor) -> Tensor {
                Tensor::alu(Alu::$alu, &[&right.scalar_like(self), &right])
            }
        }
    };
}

operator! {
    Add add Add, AddAssign add_assign, f64 i32 Scalar;
    Sub sub Sub, SubAssign sub_assign, f64 i32 Scalar;
    Mul mul Mul, MulAssign mul_assign, f64 i32 Scalar;
    Div div Div, DivAssign div_assign, f64 i32 Scalar;
    Rem rem Rem, RemAssign rem_assign, f64 i32 Scalar;
    BitAnd bitand And, BitAndAssign bitand_assign, i32 bool Scalar;
    BitOr bitor Or, BitOrAssign bitor_assign, i32 bool Scalar;
    BitXor bitxor Xor, BitXorAssign bitxor_assign, i32 bool Scalar;
    Shl shl Shl, ShlAssign shl_assign, i32 Scalar;
    Shr shr Shr, ShrAssign shr_assign, i32 Scalar;
}

macro_rules! prefix_operator {
    ($($trait:ident $method:ident $alu:ident, $tensor:ty;)*) => {$(
        impl std::ops::$trait for $tensor {
            type Output = Tensor;

            #[track_caller]
            fn $method(self) -> Tensor {
                let operand: &Tensor = &self;
                Tensor::alu(Alu::$alu, &[operand])
            }
        }
    )*};
}

prefix_operator! {
    Neg neg Neg, Tensor;
    Neg neg Neg, &Tensor;
    Not not Not, Tensor;
    Not not Not, &Tensor;
}
