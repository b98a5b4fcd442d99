//! The list of scalar operations.
//!
//! The tensor graph, the kernel IR, the renderers, the vector machine, the interpreters and the gradients share it; each has one
//! exhaustive match over it. The semantics of an operation are documented once, at its variant. Everything else (sigmoid, GELU, leaky
//! ReLU …) is composed of these.
//!
//! Integers wrap. Floats follow IEEE 754 with round to nearest even and keep denormals. f16 and bf16 are storage formats: their
//! arithmetic, including `Fma` and casts, is that of f32, rounded after each operation. There is no type promotion: operands have one
//! type, and comparisons return `bool`. [`crate::interpret::scalar`] implements the same semantics.

use crate::dtype::Type;

/// A scalar operation, applied to each lane of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Alu {
    // One operand.
    /// `-x`; wraps for integers.
    Neg,
    /// Bits inverted; logical not for bools.
    Not,
    /// Magnitude; wraps for the smallest integer.
    Abs,
    /// Number of bits set. Integer.
    PopCount,
    /// A transcendental function. Float.
    Math(Math),
    /// Square root, correctly rounded; NaN below 0. Float.
    Sqrt,
    /// Largest integer not above x. Float.
    Floor,
    /// Smallest integer not below x. Float.
    Ceil,
    /// Nearest integer, ties to even. Float.
    Round,
    /// Rounded towards zero. Float.
    Trunc,
    // Two operands.
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient; integers truncate towards zero, x / 0 is 0 and MIN / -1 wraps to MIN.
    Div,
    /// Remainder with the sign of the dividend (`fmod`); integers: x % 0 is x and MIN % -1 is 0.
    Rem,
    /// The smaller; NaN if either is NaN (IEEE 754-2019 `minimum`, but -0 and 0 are equal).
    Min,
    /// The larger; NaN if either is NaN (IEEE 754-2019 `maximum`, but -0 and 0 are equal).
    Max,
    /// x to the y, as C's `pow`. Float.
    Pow,
    /// Bitwise and; logical for bools.
    And,
    /// Bitwise or; logical for bools.
    Or,
    /// Bitwise exclusive or; logical for bools.
    Xor,
    /// Left shift by the right operand modulo the width.
    Shl,
    /// Right shift by the right operand modulo the width; arithmetic for signed, logical for unsigned.
    Shr,
    /// Less than; false if either is NaN.
    Lt,
    /// Less or equal; false if either is NaN.
    Le,
    /// Equal; false if either is NaN.
    Eq,
    /// Not equal; true if either is NaN.
    Ne,
    // Three operands.
    /// `condition ? a : b`, lane by lane; both sides are evaluated.
    Select,
    /// a × b + c with one rounding. Float.
    Fma,
}

/// A transcendental function of one float. Every executor has its own implementation, within the numeric contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Math {
    /// e to the x.
    Exp,
    /// 2 to the x.
    Exp2,
    /// Natural logarithm; NaN below 0, -inf at 0.
    Log,
    /// Logarithm to base 2.
    Log2,
    /// ln(1 + x), accurate near 0.
    Log1p,
    /// exp(x) - 1, accurate near 0.
    Expm1,
    /// Sine of radians.
    Sin,
    /// Cosine of radians.
    Cos,
    /// Tangent of radians.
    Tan,
    /// Arc tangent in (-pi/2, pi/2).
    Atan,
    /// Hyperbolic tangent.
    Tanh,
    /// Gauss error function.
    Erf,
}

impl Math {
    /// All functions, in declaration order.
    pub const ALL: [Math; 12] = {
        use Math::*;
        [Exp, Exp2, Log, Log2, Log1p, Expm1, Sin, Cos, Tan, Atan, Tanh, Erf]
    };

    /// Returns the name in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Math::Exp => "exp",
            Math::Exp2 => "exp2",
            Math::Log => "ln",
            Math::Log2 => "log2",
            Math::Log1p => "log1p",
            Math::Expm1 => "expm1",
            Math::Sin => "sin",
            Math::Cos => "cos",
            Math::Tan => "tan",
            Math::Atan => "atan",
            Math::Tanh => "tanh",
            Math::Erf => "erf",
        }
    }
}

/// Operand types of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Floats.
    Float,
    /// Integers, indices and floats.
    Number,
    /// Integers and indices.
    Int,
    /// Integers, indices and bools.
    Bits,
    /// Any type.
    Any,
}

impl Alu {
    /// All operations, in declaration order.
    #[rustfmt::skip]
    pub const ALL: [Alu; 40] = {
        use self::Math::*;
        [
            Alu::Neg, Alu::Not, Alu::Abs, Alu::PopCount, Alu::Math(Exp), Alu::Math(Exp2), Alu::Math(Log), Alu::Math(Log2),
            Alu::Math(Log1p), Alu::Math(Expm1), Alu::Math(Sin), Alu::Math(Cos), Alu::Math(Tan), Alu::Math(Atan),
            Alu::Math(Tanh), Alu::Math(Erf), Alu::Sqrt, Alu::Floor, Alu::Ceil, Alu::Round, Alu::Trunc, Alu::Add,
            Alu::Sub, Alu::Mul, Alu::Div, Alu::Rem, Alu::Min, Alu::Max, Alu::Pow, Alu::And, Alu::Or, Alu::Xor, Alu::Shl,
            Alu::Shr, Alu::Lt, Alu::Le, Alu::Eq, Alu::Ne, Alu::Select, Alu::Fma,
        ]
    };

    /// Returns the number of operands: 1, 2 or 3.
    pub const fn arity(self) -> usize {
        match self {
            Alu::Neg | Alu::Not | Alu::Abs | Alu::Math(_) | Alu::Sqrt | Alu::Floor | Alu::Ceil | Alu::Round => 1,
            Alu::Trunc | Alu::PopCount => 1,
            Alu::Add | Alu::Sub | Alu::Mul | Alu::Div | Alu::Rem | Alu::Min | Alu::Max | Alu::Pow => 2,
            Alu::And | Alu::Or | Alu::Xor | Alu::Shl | Alu::Shr | Alu::Lt | Alu::Le | Alu::Eq | Alu::Ne => 2,
            Alu::Select | Alu::Fma => 3,
        }
    }

    /// Returns true if every executor has its own implementation, within the numeric contract.
    pub const fn is_transcendental(self) -> bool {
        matches!(self, Alu::Math(_) | Alu::Pow)
    }

    /// Returns true if the result is a bool for all operand types.
    pub const fn is_comparison(self) -> bool {
        matches!(self, Alu::Lt | Alu::Le | Alu::Eq | Alu::Ne)
    }

    /// Returns true if the operands can be swapped.
    pub const fn is_commutative(self) -> bool {
        matches!(self, Alu::Add | Alu::Mul | Alu::Min | Alu::Max | Alu::And | Alu::Or | Alu::Xor | Alu::Eq | Alu::Ne)
    }

    /// Returns the operand types. `Select` additionally takes a bool condition.
    pub const fn domain(self) -> Domain {
        use Alu::*;
        match self {
            Math(_) | Sqrt | Floor | Ceil | Round | Trunc | Pow | Fma => Domain::Float,
            Neg | Abs | Add | Sub | Mul | Div | Rem | Min | Max | Lt | Le => Domain::Number,
            PopCount | Shl | Shr => Domain::Int,
            Not | And | Or | Xor => Domain::Bits,
            Eq | Ne | Select => Domain::Any,
        }
    }

    /// Returns the name in the text form.
    pub fn name(self) -> &'static str {
        use Alu::*;
        match self {
            Neg => "neg",
            Not => "not",
            Abs => "abs",
            PopCount => "count_ones",
            Math(function) => function.name(),
            Sqrt => "sqrt",
            Floor => "floor",
            Ceil => "ceil",
            Round => "round",
            Trunc => "trunc",
            Add => "add",
            Sub => "sub",
            Mul => "mul",
            Div => "div",
            Rem => "rem",
            Min => "min",
            Max => "max",
            Pow => "pow",
            And => "and",
            Or => "or",
            Xor => "xor",
            Shl => "shl",
            Shr => "shr",
            Lt => "lt",
            Le => "le",
            Eq => "eq",
            Ne => "ne",
            Select => "select",
            Fma => "fma",
        }
    }

    /// Returns the operation with this name.
    pub fn from_name(name: &str) -> Option<Alu> {
        Alu::ALL.into_iter().find(|alu| alu.name() == name)
    }

    /// Returns the type of the result.
    ///
    /// # Errors
    /// The violated rule, if the operand types do not fit.
    pub fn result_type(self, operands: &[Type]) -> Result<Type, String> {
        if operands.len() != self.arity() {
            return Err(format!("{} takes {} operands, not {}", self.name(), self.arity(), operands.len()));
        }
        let values = if self == Alu::Select { &operands[1..] } else { operands };
        let ty = values[0];
        if let Some(other) = values.iter().find(|other| **other != ty) {
            return Err(format!("{}: operand types {ty} and {other} differ", self.name()));
        }
        if self == Alu::Select && (!operands[0].is_bool() || operands[0].lanes() != ty.lanes()) {
            return Err(format!("select: the condition is {}, not a bool of {} lanes", operands[0], ty.lanes()));
        }
        let fits = match self.domain() {
            Domain::Float => ty.is_float(),
            Domain::Number => !ty.is_bool(),
            Domain::Int => ty.is_int(),
            Domain::Bits => !ty.is_float(),
            Domain::Any => true,
        };
        if !fits {
            return Err(format!("{} is not defined for {ty}", self.name()));
        }
        Ok(if self.is_comparison() { ty.with_dtype(crate::DType::Bool) } else { ty })
    }
}
