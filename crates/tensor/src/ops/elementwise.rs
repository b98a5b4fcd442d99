//! Element by element, with NumPy's broadcasting.
//!
//! Operands have one element type: nothing is promoted, a mix is a mistake that names the cast. A Rust number takes the
//! tensor's type and is a slot: changing it never recompiles.

use panoply_ir::alu::Domain;
use panoply_ir::graph::Op;
use panoply_ir::{Alu, DType, Error, Math, Scalar};

use crate::tensor::Tensor;

impl Tensor {
    /// Applies a scalar operation to elements at equal positions after broadcasting.
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

    /// Order and extremes of bools, false before true, by logical operations; none for another operation.
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

    /// Converts the elements as Rust's `as`: floats saturate to integers, NaN gives 0.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Tensor {
        if self.is_mistake() || self.dtype() == dtype {
            return self.clone();
        }
        Tensor::primitive(Op::Cast, &[self], self.0.shape.clone(), dtype)
    }

    /// The same bits as another element type of the same width.
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

    /// Both in the shape that they broadcast to, for a rule that knows no broadcasting; or why there is none.
    #[track_caller]
    pub(crate) fn broadcast_with(&self, other: &Tensor) -> Result<[Tensor; 2], Tensor> {
        let sum = Tensor::alu(Alu::Add, &[self, other]);
        if sum.is_mistake() {
            return Err(sum);
        }
        Ok([self, other].map(|tensor| tensor.expanded(&sum.0.shape)))
    }

    /// `self` where the condition holds, `other` elsewhere.
    #[track_caller]
    pub fn where_self(&self, condition: &Tensor, other: &Tensor) -> Tensor {
        Tensor::alu(Alu::Select, &[condition, self, other])
    }

    /// `number - self`, which says the same.
    #[track_caller]
    pub fn rsub(&self, number: f64) -> Tensor {
        number - self
    }

    /// x to a power of the program, for which a square, cube, root or reciprocal costs no more than that. [`Tensor::pow`] takes a tensor.
    #[track_caller]
    pub fn powf(&self, exponent: f64) -> Tensor {
        if self.is_mistake() {
            self.clone()
        } else {
            self.pow(&Tensor::constant_or_scalar(Scalar::from_f64(self.dtype(), exponent)))
        }
    }

    /// x times x.
    #[track_caller]
    pub fn square(&self) -> Tensor {
        Tensor::alu(Alu::Mul, &[self, self])
    }

    /// 1 / x.
    #[track_caller]
    pub fn reciprocal(&self) -> Tensor {
        Tensor::alu(Alu::Div, &[&self.literal(1.0), self])
    }

    /// 1 / sqrt(x).
    #[track_caller]
    pub fn rsqrt(&self) -> Tensor {
        self.sqrt().reciprocal()
    }

    /// -1, 0 or 1.
    #[track_caller]
    pub fn sign(&self) -> Tensor {
        let body = |[x]: [&Tensor; 1], (): &()| {
            let zero = x.literal(0.0);
            let below = x.literal(-1.0).where_self(&Tensor::alu(Alu::Lt, &[x, &zero]), x);
            x.literal(1.0).where_self(&Tensor::alu(Alu::Lt, &[&zero, x]), &below)
        };
        Tensor::call_with_vjp("sign", [self], (), body, |[x], _, _, ()| [Some(x.zeros_like())])
    }

    /// Limited to `low ..= high`, with slope 0 at both; NaN stays.
    #[track_caller]
    pub fn clamp(&self, low: f64, high: f64) -> Tensor {
        let (low, high) = (self.scalar_like(low), self.scalar_like(high));
        let raised = low.where_self(&self.le(&low), self);
        high.where_self(&high.le(&raised), &raised)
    }

    /// Whether x > y.
    #[track_caller]
    pub fn gt(&self, other: &Tensor) -> Tensor {
        Tensor::alu(Alu::Lt, &[other, self])
    }

    /// Whether x ≥ y.
    #[track_caller]
    pub fn ge(&self, other: &Tensor) -> Tensor {
        Tensor::alu(Alu::Le, &[other, self])
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
    /// Magnitude.
    abs Alu::Abs;
    /// e to the x.
    exp Alu::Math(Math::Exp);
    /// 2 to the x.
    exp2 Alu::Math(Math::Exp2);
    /// Natural logarithm.
    log Alu::Math(Math::Log);
    /// Logarithm to base 2.
    log2 Alu::Math(Math::Log2);
    /// ln(1 + x), accurate near 0.
    log1p Alu::Math(Math::Log1p);
    /// exp(x) - 1, accurate near 0.
    expm1 Alu::Math(Math::Expm1);
    /// Sine of radians.
    sin Alu::Math(Math::Sin);
    /// Cosine of radians.
    cos Alu::Math(Math::Cos);
    /// Tangent of radians.
    tan Alu::Math(Math::Tan);
    /// Arc tangent.
    atan Alu::Math(Math::Atan);
    /// Hyperbolic tangent.
    tanh Alu::Math(Math::Tanh);
    /// Gauss error function.
    erf Alu::Math(Math::Erf);
    /// Square root.
    sqrt Alu::Sqrt;
    /// Largest integer not above x.
    floor Alu::Floor;
    /// Smallest integer not below x.
    ceil Alu::Ceil;
    /// Nearest integer, ties to even.
    round Alu::Round;
    /// Towards zero.
    trunc Alu::Trunc;
    /// Bits inverted; logical not for bools.
    bitwise_not Alu::Not;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident $alu:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self, other: &Tensor) -> Tensor {
                Tensor::alu(Alu::$alu, &[self, other])
            }
        )*}
    };
}

binary! {
    /// The smaller; NaN wins.
    minimum Min;
    /// The larger; NaN wins.
    maximum Max;
    /// x to the y.
    pow Pow;
    /// Bitwise and; logical for bools.
    bitwise_and And;
    /// Bitwise or; logical for bools.
    bitwise_or Or;
    /// Bitwise exclusive or.
    bitwise_xor Xor;
    /// Left shift.
    bitwise_left_shift Shl;
    /// Right shift.
    bitwise_right_shift Shr;
    /// Whether x < y.
    lt Lt;
    /// Whether x ≤ y.
    le Le;
    /// Whether x = y.
    eq Eq;
    /// Whether x ≠ y.
    ne Ne;
}

macro_rules! operator {
    ($($trait:ident $method:ident $alu:ident, $assign:ident $assigned:ident;)*) => {$(
        operator!(@pair $trait $method $alu, Tensor, Tensor, |right| &right);
        operator!(@pair $trait $method $alu, Tensor, &Tensor, |right| right);
        operator!(@pair $trait $method $alu, &Tensor, Tensor, |right| &right);
        operator!(@pair $trait $method $alu, &Tensor, &Tensor, |right| right);
        operator!(@number $trait $method $alu, $assign $assigned, Tensor);
        operator!(@number $trait $method $alu, $assign $assigned, &Tensor);
        operator!(@assign $trait $method, $assign $assigned, f64);
    )*};
    (@pair $trait:ident $method:ident $alu:ident, $left:ty, $right:ty, |$value:ident| $borrow:expr) => {
        impl std::ops::$trait<$right> for $left {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, $value: $right) -> Tensor {
                let left: &Tensor = &self;
                Tensor::alu(Alu::$alu, &[left, $borrow])
            }
        }
    };
    (@number $trait:ident $method:ident $alu:ident, $assign:ident $assigned:ident, $tensor:ty) => {
        impl std::ops::$trait<f64> for $tensor {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, right: f64) -> Tensor {
                Tensor::alu(Alu::$alu, &[&self, &self.scalar_like(right)])
            }
        }

        impl std::ops::$trait<$tensor> for f64 {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, right: $tensor) -> Tensor {
                Tensor::alu(Alu::$alu, &[&right.scalar_like(self), &right])
            }
        }

        operator!(@assign $trait $method, $assign $assigned, $tensor);
    };
    (@assign $trait:ident $method:ident, $assign:ident $assigned:ident, $right:ty) => {
        /// The tensor of this name becomes another; who holds the one before keeps it.
        impl std::ops::$assign<$right> for Tensor {
            #[track_caller]
            fn $assigned(&mut self, right: $right) {
                *self = std::ops::$trait::$method(&*self, right);
            }
        }
    };
}

operator! {
    Add add Add, AddAssign add_assign;
    Sub sub Sub, SubAssign sub_assign;
    Mul mul Mul, MulAssign mul_assign;
    Div div Div, DivAssign div_assign;
    Rem rem Rem, RemAssign rem_assign;
}

impl std::ops::Neg for &Tensor {
    type Output = Tensor;

    #[track_caller]
    fn neg(self) -> Tensor {
        Tensor::alu(Alu::Neg, &[self])
    }
}

impl std::ops::Neg for Tensor {
    type Output = Tensor;

    #[track_caller]
    fn neg(self) -> Tensor {
        Tensor::alu(Alu::Neg, &[&self])
    }
}
