//! Operators and the methods of Rust's numbers, composed of several IR operations where the IR lacks them.
//!
//! Every method behaves as Rust documents it, except that integer overflow wraps and division by zero follows the IR,
//! because a work-item cannot panic.

use panoply_ir::dtype::{DType, Scalar, Type};
use panoply_ir::kernel::{Expr, ExprId};
use panoply_ir::{Alu, Math, kernel::ReduceOp};

use super::Emitter;
use crate::kernel::number::KernelValue;

macro_rules! unary {
    ($($name:ident => $alu:expr;)*) => {$(
        #[doc = concat!("`x.", stringify!($name), "()`.")]
        pub fn $name(&self, x: ExprId) -> ExprId {
            self.alu($alu, &[x])
        }
    )*};
}

macro_rules! binary {
    ($($name:ident => $alu:ident;)*) => {$(
        #[doc = concat!("`a.", stringify!($name), "(b)`.")]
        pub fn $name(&self, a: ExprId, b: ExprId) -> ExprId {
            self.alu(Alu::$alu, &[a, b])
        }
    )*};
}

/// Operators.
impl Emitter {
    unary! { neg => Alu::Neg; not => Alu::Not; }

    binary! {
        add => Add; sub => Sub; mul => Mul; div => Div; rem => Rem; and => And; or => Or; xor => Xor;
        eq => Eq; ne => Ne;
    }

    /// `a < b`; for bools, `false` is less than `true`.
    pub fn lt(&self, a: ExprId, b: ExprId) -> ExprId {
        if self.ty(a).is_bool() { self.and(self.not(a), b) } else { self.alu(Alu::Lt, &[a, b]) }
    }

    /// `a <= b`; for bools, `false` is less than `true`.
    pub fn le(&self, a: ExprId, b: ExprId) -> ExprId {
        if self.ty(a).is_bool() { self.or(self.not(a), b) } else { self.alu(Alu::Le, &[a, b]) }
    }

    /// `a > b`.
    pub fn gt(&self, a: ExprId, b: ExprId) -> ExprId {
        self.lt(b, a)
    }

    /// `a >= b`.
    pub fn ge(&self, a: ExprId, b: ExprId) -> ExprId {
        self.le(b, a)
    }

    /// `a << b`; the types can differ.
    pub fn shl(&self, a: ExprId, b: ExprId) -> ExprId {
        let b = self.cast_to(self.ty(a), b);
        self.alu(Alu::Shl, &[a, b])
    }

    /// `a >> b`; the types can differ.
    pub fn shr(&self, a: ExprId, b: ExprId) -> ExprId {
        let b = self.cast_to(self.ty(a), b);
        self.alu(Alu::Shr, &[a, b])
    }
}

/// Methods of floats.
impl Emitter {
    unary! {
        sqrt => Alu::Sqrt;
        exp => Alu::Math(Math::Exp);
        exp2 => Alu::Math(Math::Exp2);
        exp_m1 => Alu::Math(Math::Expm1);
        ln => Alu::Math(Math::Log);
        ln_1p => Alu::Math(Math::Log1p);
        log2 => Alu::Math(Math::Log2);
        sin => Alu::Math(Math::Sin);
        cos => Alu::Math(Math::Cos);
        tan => Alu::Math(Math::Tan);
        atan => Alu::Math(Math::Atan);
        tanh => Alu::Math(Math::Tanh);
        abs => Alu::Abs;
        floor => Alu::Floor;
        ceil => Alu::Ceil;
        round_ties_even => Alu::Round;
        trunc => Alu::Trunc;
    }

    binary! { powf => Pow; }

    /// `a.mul_add(b, c)`.
    pub fn mul_add(&self, a: ExprId, b: ExprId, c: ExprId) -> ExprId {
        self.alu(Alu::Fma, &[a, b, c])
    }

    /// `x.recip()`.
    pub fn recip(&self, x: ExprId) -> ExprId {
        self.div(self.one(x), x)
    }

    /// `x.powi(n)` by repeated squaring, as in rustc's own implementation; f16 and bf16 are computed in f32 and rounded
    /// once.
    pub fn powi(&self, x: ExprId, n: ExprId) -> ExprId {
        let ty = self.ty(x);
        let wide = if ty.dtype().is_some_and(|dtype| dtype.bytes() == 2) { DType::F32.into() } else { ty };
        let x = self.cast_to(wide, x);
        let power = match self.expr(n) {
            Expr::Const(n) => {
                let n = n.to_i128();
                let power = self.power(x, n.unsigned_abs());
                if n < 0 { self.recip(power) } else { power }
            }
            _ => self.squared_while(x, n),
        };
        self.cast_to(ty, power)
    }

    /// Computes `x` to a power known only at launch: a loop of at most 32 iterations.
    fn squared_while(&self, x: ExprId, n: ExprId) -> ExprId {
        let n = self.hold(n);
        let bits = Type::from(DType::U32);
        let (zero, one) = (self.zero(bits), self.bits(DType::U32, 1));
        let below = self.lt(n, self.zero(self.ty(n)));
        let magnitude = self.bitcast(bits, self.select(below, self.neg(n), n));
        let (left, square) = (self.declare("power", magnitude), self.declare("square", x));
        let result = self.declare("result", self.one(x));
        self.begin_while(self.ne(self.get(left), zero));
        let odd = self.ne(self.and(self.get(left), one), zero);
        let product = self.mul(self.get(result), self.get(square));
        self.assign(result, self.select(odd, product, self.get(result)));
        self.assign(square, self.mul(self.get(square), self.get(square)));
        self.assign(left, self.alu(Alu::Shr, &[self.get(left), one]));
        self.end();
        let power = self.get(result);
        self.select(below, self.recip(power), power)
    }

    /// `x.round()`: halfway cases round away from zero.
    pub fn round(&self, x: ExprId) -> ExprId {
        // The difference is exact, so the comparison with one half is too.
        let whole = self.trunc(x);
        let half = self.ge(self.abs(self.sub(x, whole)), self.number(x, 0.5));
        let next = self.add(whole, self.copysign(self.one(x), x));
        self.select(half, next, whole)
    }

    /// `x.fract()`.
    pub fn fract(&self, x: ExprId) -> ExprId {
        self.sub(x, self.trunc(x))
    }

    /// `x.copysign(sign)`.
    pub fn copysign(&self, x: ExprId, sign: ExprId) -> ExprId {
        let Some((bits, top)) = self.sign_bit(x) else { return x };
        let magnitude = self.and(self.bitcast(bits, x), self.not(top));
        let sign = self.and(self.bitcast(bits, sign), top);
        self.bitcast(self.ty(x), self.or(magnitude, sign))
    }

    /// `x.signum()`: for floats 1 or -1 by the sign bit, NaN for NaN; for integers 1, 0 or -1.
    pub fn signum(&self, x: ExprId) -> ExprId {
        let one = self.one(x);
        if self.ty(x).is_float() {
            return self.select(self.is_nan(x), x, self.copysign(one, x));
        }
        let zero = self.zero(self.ty(x));
        let below = self.select(self.lt(x, zero), self.neg(one), zero);
        self.select(self.gt(x, zero), one, below)
    }

    /// `x.is_nan()`.
    pub fn is_nan(&self, x: ExprId) -> ExprId {
        self.ne(x, x)
    }

    /// `x.is_finite()`.
    pub fn is_finite(&self, x: ExprId) -> ExprId {
        self.lt(self.abs(x), self.number(x, f64::INFINITY))
    }

    /// `x.is_infinite()`.
    pub fn is_infinite(&self, x: ExprId) -> ExprId {
        self.eq(self.abs(x), self.number(x, f64::INFINITY))
    }

    /// `x.is_sign_negative()`.
    pub fn is_sign_negative(&self, x: ExprId) -> ExprId {
        let Some((bits, top)) = self.sign_bit(x) else { return self.host(false) };
        self.ne(self.and(self.bitcast(bits, x), top), self.zero(bits))
    }

    /// `x.is_sign_positive()`.
    pub fn is_sign_positive(&self, x: ExprId) -> ExprId {
        self.not(self.is_sign_negative(x))
    }

    /// `x.to_bits()`.
    pub fn to_bits(&self, x: ExprId) -> ExprId {
        match self.sign_bit(x) {
            Some((bits, _)) => self.bitcast(bits, x),
            None => x,
        }
    }

    /// `T::from_bits(x)`.
    pub fn from_bits<T: KernelValue>(&self, x: ExprId) -> ExprId {
        self.bitcast(T::TYPE, x)
    }

    /// `x.to_f32()` of f16 and bf16.
    pub fn to_f32(&self, x: ExprId) -> ExprId {
        self.cast::<f32>(x)
    }

    /// `x.to_f64()` of f16 and bf16.
    pub fn to_f64(&self, x: ExprId) -> ExprId {
        self.cast::<f64>(x)
    }

    /// Returns the unsigned type of a float's width, and its highest bit.
    fn sign_bit(&self, x: ExprId) -> Option<(Type, ExprId)> {
        let dtype = self.ty(x).dtype().filter(|dtype| dtype.is_float());
        match dtype.map(DType::unsigned) {
            Some(bits) => Some((bits.into(), self.bits(bits, 1 << (bits.bits() - 1)))),
            None => {
                self.mistake(format!("cannot take the sign bit of {}: it is not a float", self.ty(x)));
                None
            }
        }
    }
}

/// Methods of floats and integers.
impl Emitter {
    /// `a.min(b)`; for floats, if one operand is NaN, the other one.
    pub fn min(&self, a: ExprId, b: ExprId) -> ExprId {
        self.extreme(Alu::Min, a, b, self.lt(a, b))
    }

    /// `a.max(b)`; for floats, if one operand is NaN, the other one.
    pub fn max(&self, a: ExprId, b: ExprId) -> ExprId {
        self.extreme(Alu::Max, a, b, self.gt(a, b))
    }

    /// The IR's min and max return NaN if either operand is NaN; Rust's return the other operand.
    fn extreme(&self, op: Alu, a: ExprId, b: ExprId, first: ExprId) -> ExprId {
        if self.ty(a).is_bool() {
            return if op == Alu::Min { self.and(a, b) } else { self.or(a, b) };
        }
        if !self.ty(a).is_float() {
            return self.alu(op, &[a, b]);
        }
        let first = self.or(first, self.is_nan(b));
        self.select(first, a, b)
    }

    /// `x.clamp(least, most)`; NaN is kept.
    pub fn clamp(&self, x: ExprId, least: ExprId, most: ExprId) -> ExprId {
        let raised = self.select(self.lt(x, least), least, x);
        self.select(self.gt(raised, most), most, raised)
    }

    /// `a.rem_euclid(b)`.
    pub fn rem_euclid(&self, a: ExprId, b: ExprId) -> ExprId {
        let rest = self.rem(a, b);
        if !self.ty(a).dtype().is_some_and(DType::is_signed) {
            return rest;
        }
        let raised = self.add(rest, self.abs(b));
        self.select(self.lt(rest, self.zero(self.ty(a))), raised, rest)
    }
}

/// Methods of integers.
impl Emitter {
    binary! { wrapping_add => Add; wrapping_sub => Sub; wrapping_mul => Mul; }
    unary! { wrapping_neg => Alu::Neg; }

    /// `a.wrapping_shl(b)`.
    pub fn wrapping_shl(&self, a: ExprId, b: ExprId) -> ExprId {
        self.shl(a, b)
    }

    /// `a.wrapping_shr(b)`.
    pub fn wrapping_shr(&self, a: ExprId, b: ExprId) -> ExprId {
        self.shr(a, b)
    }

    /// `x.pow(n)` for a constant `n`.
    pub fn pow(&self, x: ExprId, n: ExprId) -> ExprId {
        match self.expr(n) {
            Expr::Const(n) => self.power(x, n.to_i128().unsigned_abs()),
            _ => {
                self.mistake("`pow` needs a constant exponent; write a loop instead");
                x
            }
        }
    }

    /// `a.saturating_add(b)`.
    pub fn saturating_add(&self, a: ExprId, b: ExprId) -> ExprId {
        let sum = self.add(a, b);
        let Some(dtype) = self.integer("saturating_add", a) else { return sum };
        let most = self.constant(ReduceOp::Min.identity(dtype));
        if !dtype.is_signed() {
            return self.select(self.lt(sum, a), most, sum);
        }
        self.saturated(dtype, a, sum, self.and(self.xor(a, sum), self.xor(b, sum)))
    }

    /// `a.saturating_sub(b)`.
    pub fn saturating_sub(&self, a: ExprId, b: ExprId) -> ExprId {
        let difference = self.sub(a, b);
        match self.ty(a).dtype().filter(|dtype| dtype.is_signed()) {
            Some(dtype) => self.saturated(dtype, a, difference, self.and(self.xor(a, b), self.xor(a, difference))),
            None => self.select(self.lt(a, b), self.zero(self.ty(a)), difference),
        }
    }

    /// Returns the limit of the range on `a`'s side if `overflow` is negative, else the result.
    fn saturated(&self, dtype: DType, a: ExprId, result: ExprId, overflow: ExprId) -> ExprId {
        let zero = self.zero(dtype.into());
        let (least, most) =
            (self.constant(ReduceOp::Max.identity(dtype)), self.constant(ReduceOp::Min.identity(dtype)));
        let end = self.select(self.lt(a, zero), least, most);
        self.select(self.lt(overflow, zero), end, result)
    }

    /// `x.rotate_left(n)`.
    pub fn rotate_left(&self, x: ExprId, n: ExprId) -> ExprId {
        self.rotated(x, n, Alu::Shl, Alu::Shr)
    }

    /// `x.rotate_right(n)`.
    pub fn rotate_right(&self, x: ExprId, n: ExprId) -> ExprId {
        self.rotated(x, n, Alu::Shr, Alu::Shl)
    }

    fn rotated(&self, x: ExprId, n: ExprId, there: Alu, back: Alu) -> ExprId {
        let Some(dtype) = self.integer("rotate", x) else { return x };
        let bits = Type::from(dtype.unsigned());
        let (value, n) = (self.bitcast(bits, x), self.cast_to(bits, n));
        // Shift counts are taken modulo the width, so the negated count is the complementary shift.
        let parts = [self.alu(there, &[value, n]), self.alu(back, &[value, self.neg(n)])];
        self.bitcast(self.ty(x), self.or(parts[0], parts[1]))
    }

    /// `a.abs_diff(b)`, unsigned.
    pub fn abs_diff(&self, a: ExprId, b: ExprId) -> ExprId {
        let difference = self.select(self.lt(a, b), self.sub(b, a), self.sub(a, b));
        match self.ty(a).dtype().filter(|dtype| dtype.is_signed()) {
            Some(dtype) => self.bitcast(dtype.unsigned(), difference),
            None => difference,
        }
    }

    /// `a.div_ceil(b)` of unsigned numbers.
    pub fn div_ceil(&self, a: ExprId, b: ExprId) -> ExprId {
        let zero = self.zero(self.ty(a));
        let more = self.select(self.ne(self.rem(a, b), zero), self.one(a), zero);
        self.add(self.div(a, b), more)
    }

    /// `a.next_multiple_of(b)` of unsigned numbers.
    pub fn next_multiple_of(&self, a: ExprId, b: ExprId) -> ExprId {
        self.mul(self.div_ceil(a, b), b)
    }

    /// `x.is_power_of_two()`.
    pub fn is_power_of_two(&self, x: ExprId) -> ExprId {
        let zero = self.zero(self.ty(x));
        let lower = self.and(x, self.sub(x, self.one(x)));
        self.and(self.ne(x, zero), self.eq(lower, zero))
    }

    /// `x.count_ones()`.
    pub fn count_ones(&self, x: ExprId) -> ExprId {
        let Some(_) = self.integer("count_ones", x) else { return x };
        self.cast::<u32>(self.alu(Alu::PopCount, &[x]))
    }

    /// `x.count_zeros()`.
    pub fn count_zeros(&self, x: ExprId) -> ExprId {
        self.count_ones(self.not(x))
    }

    /// `x.leading_zeros()`: counts the zeros after every bit below the highest one is set.
    pub fn leading_zeros(&self, x: ExprId) -> ExprId {
        let Some(dtype) = self.integer("leading_zeros", x) else { return x };
        let bits = dtype.unsigned();
        let mut filled = self.bitcast(bits, x);
        let mut by = 1;
        while by < bits.bits() {
            filled = self.or(filled, self.alu(Alu::Shr, &[filled, self.bits(bits, by.into())]));
            by *= 2;
        }
        self.count_zeros(filled)
    }

    /// `x.trailing_zeros()`: counts the bits below the lowest one.
    pub fn trailing_zeros(&self, x: ExprId) -> ExprId {
        let Some(_) = self.integer("trailing_zeros", x) else { return x };
        let below = self.and(self.not(x), self.sub(x, self.one(x)));
        self.count_ones(below)
    }

    /// Computes `x` to a constant power by repeated squaring.
    fn power(&self, x: ExprId, mut n: u128) -> ExprId {
        let (mut result, mut square) = (None, x);
        while n > 0 {
            if n & 1 == 1 {
                result = Some(result.map_or(square, |result| self.mul(result, square)));
            }
            n >>= 1;
            if n > 0 {
                square = self.mul(square, square);
            }
        }
        result.unwrap_or_else(|| self.one(x))
    }

    /// Returns the element type of an integer; reports a mistake for `usize`, whose width is unknown while a kernel is
    /// built.
    fn integer(&self, method: &str, x: ExprId) -> Option<DType> {
        let dtype = self.ty(x).dtype();
        if dtype.is_none() {
            self.mistake(format!(
                "`{method}` is not available for usize, whose width differs between devices; convert first: `x as u64`"
            ));
        }
        dtype
    }

    pub(super) fn bitcast(&self, ty: impl Into<Type>, x: ExprId) -> ExprId {
        let ty = ty.into();
        match (self.expr(x), ty) {
            (Expr::Const(scalar), Type::Scalar(dtype)) if dtype.bits() == scalar.dtype.bits() => {
                self.constant(Scalar { dtype, bits: scalar.bits })
            }
            _ if self.ty(x) == ty => x,
            _ => self.builder.borrow_mut().bitcast(ty, x),
        }
    }
}
