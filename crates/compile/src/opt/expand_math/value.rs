//! Expressions with operators, so that functions are written like arithmetic on numbers.

use std::cell::RefCell;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Sub};

use panoply_ir::kernel::{Args, Expr, ExprId, Kernel};
use panoply_ir::{Alu, DType, Scalar, Type};

use super::{KernelExt, like};

/// The kernel to which functions are added.
pub(super) struct Math(RefCell<Kernel>);

/// A float, integer or bool of a kernel, or a vector of them.
#[derive(Clone, Copy)]
pub(super) struct V<'m> {
    math: &'m Math,
    pub id: ExprId,
}

impl Math {
    pub fn new(kernel: Kernel) -> Math {
        Math(RefCell::new(kernel))
    }

    pub fn finish(self) -> Kernel {
        self.0.into_inner()
    }

    pub fn expr(&self, id: ExprId) -> Expr {
        self.0.borrow().exprs.get(id)
    }

    pub fn value(&self, id: ExprId) -> V<'_> {
        V { math: self, id }
    }

    pub fn add(&self, expr: Expr) -> V<'_> {
        let id = self.0.borrow_mut().expr(expr);
        self.value(id)
    }
}

impl<'m> V<'m> {
    pub fn ty(self) -> Type {
        self.math.0.borrow().exprs.ty(self.id)
    }

    pub fn dtype(self) -> DType {
        self.ty().dtype().expect("operands of functions have an element type")
    }

    /// Returns a constant with the same number of lanes.
    fn lanes_of(self, value: Scalar) -> V<'m> {
        let constant = self.math.add(Expr::Const(value));
        match self.ty().lanes() {
            1 => constant,
            lanes => self.math.add(Expr::Splat(constant.id, lanes)),
        }
    }

    /// Returns a constant of this type.
    pub fn number(self, value: f64) -> V<'m> {
        self.lanes_of(Scalar::from_f64(self.dtype(), value))
    }

    /// Returns a constant of this integer type.
    pub fn integer(self, value: i128) -> V<'m> {
        self.lanes_of(Scalar::from_i128(self.dtype(), value))
    }

    fn alu(self, op: Alu, others: &[V<'m>]) -> V<'m> {
        let ids: Vec<ExprId> = std::iter::once(self.id).chain(others.iter().map(|other| other.id)).collect();
        self.math.add(Expr::Alu(op, Args::new(&ids)))
    }

    pub fn cast(self, dtype: DType) -> V<'m> {
        let ty = like(self.ty(), dtype);
        if ty == self.ty() { self } else { self.math.add(Expr::Cast(ty, self.id)) }
    }

    /// Reinterprets the bits as another type.
    pub fn bits_as(self, dtype: DType) -> V<'m> {
        self.math.add(Expr::Bitcast(like(self.ty(), dtype), self.id))
    }

    /// Returns the bits of a float.
    pub fn bits(self) -> V<'m> {
        self.bits_as(if self.dtype() == DType::F64 { DType::U64 } else { DType::U32 })
    }

    /// Returns the float with these bits.
    pub fn float(self) -> V<'m> {
        self.bits_as(if self.dtype().bytes() == 8 { DType::F64 } else { DType::F32 })
    }

    /// Returns `self * b + c` with one rounding.
    pub fn mad(self, b: V<'m>, c: V<'m>) -> V<'m> {
        self.alu(Alu::Fma, &[b, c])
    }

    /// Evaluates the polynomial with these coefficients, lowest first, by Horner's rule.
    pub fn poly<C: Into<f64> + Copy>(self, coefficients: &[C]) -> V<'m> {
        let (last, others) = coefficients.split_last().expect("a polynomial has at least one coefficient");
        others.iter().rfold(self.number((*last).into()), |sum, next| sum.mad(self, self.number((*next).into())))
    }

    pub fn abs(self) -> V<'m> {
        self.alu(Alu::Abs, &[])
    }

    pub fn round(self) -> V<'m> {
        self.alu(Alu::Round, &[])
    }

    pub fn trunc(self) -> V<'m> {
        self.alu(Alu::Trunc, &[])
    }

    pub fn shl(self, places: i128) -> V<'m> {
        self.alu(Alu::Shl, &[self.integer(places)])
    }

    /// Shifts left by `places`.
    pub fn shl_by(self, places: V<'m>) -> V<'m> {
        self.alu(Alu::Shl, &[places])
    }

    pub fn shr(self, places: i128) -> V<'m> {
        self.alu(Alu::Shr, &[self.integer(places)])
    }

    pub fn lt(self, other: V<'m>) -> V<'m> {
        self.alu(Alu::Lt, &[other])
    }

    pub fn less(self, value: f64) -> V<'m> {
        self.lt(self.number(value))
    }

    pub fn more(self, value: f64) -> V<'m> {
        self.number(value).lt(self)
    }

    pub fn equal(self, other: V<'m>) -> V<'m> {
        self.alu(Alu::Eq, &[other])
    }

    pub fn is(self, value: f64) -> V<'m> {
        self.equal(self.number(value))
    }

    pub fn is_nan(self) -> V<'m> {
        self.alu(Alu::Ne, &[self])
    }

    pub fn not(self) -> V<'m> {
        self.alu(Alu::Not, &[])
    }

    /// Returns `a` where this bool is true, otherwise `b`.
    pub fn then(self, a: V<'m>, b: V<'m>) -> V<'m> {
        self.alu(Alu::Select, &[a, b])
    }

    /// Clamps to bounds; NaN remains NaN.
    pub fn clamp(self, low: f64, high: f64) -> V<'m> {
        let x = self.less(low).then(self.number(low), self);
        x.more(high).then(self.number(high), x)
    }

    /// Returns the minimum of this and a bound; NaN becomes the bound.
    pub fn at_most(self, bound: f64) -> V<'m> {
        self.less(bound).then(self, self.number(bound))
    }

    /// Returns the sign bit.
    fn sign_bit(self) -> V<'m> {
        self.bits() & self.bits().integer(1 << (self.dtype().bits() - 1))
    }

    /// Returns this with the sign of `of`.
    pub fn copysign(self, of: V<'m>) -> V<'m> {
        let magnitude = self.bits() & self.bits().integer((1 << (self.dtype().bits() - 1)) - 1);
        (magnitude | of.sign_bit()).float()
    }

    /// Negates this where `of` is negative.
    pub fn flip_with(self, of: V<'m>) -> V<'m> {
        (self.bits() ^ of.sign_bit()).float()
    }
}

impl Neg for V<'_> {
    type Output = Self;

    fn neg(self) -> Self {
        self.alu(Alu::Neg, &[])
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident),*) => {$(
        impl $trait for V<'_> {
            type Output = Self;

            fn $method(self, other: Self) -> Self {
                self.alu(Alu::$op, &[other])
            }
        }
    )*};
}

operators!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div, BitAnd bitand And, BitOr bitor Or, BitXor bitxor Xor);

macro_rules! with_numbers {
    ($($trait:ident $method:ident),*) => {$(
        impl $trait<f64> for V<'_> {
            type Output = Self;

            fn $method(self, other: f64) -> Self {
                self.$method(self.number(other))
            }
        }
    )*};
}

with_numbers!(Add add, Sub sub, Mul mul, Div div);
