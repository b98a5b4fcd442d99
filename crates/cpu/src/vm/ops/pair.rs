//! Fused pairs of operations in one loop: the intermediate result stays in a register. Each operation is rounded
//! separately. `Square` is a product whose operands are the same and loaded once.

use std::marker::PhantomData;

use panoply_host::isa::{Simd, VecFn};
use panoply_ir::Alu;

use super::alu::Mode;
use super::loops::{Binary, Ivs, Ivv, Ternary, Unary, V, Vs, Vsi, Vss, Vsv, Vv, Vvi, Vvs, Vvv};
use super::number::{Bits, Number};
use crate::vm::lane::Lane;

/// A pair of operations on a, b and c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pair {
    /// `a * b + c`.
    MulAdd,
    /// `a * b - c`.
    MulSub,
    /// `c - a * b`.
    SubMul,
    /// `(a + b) + c`.
    AddAdd,
    /// `(a - b) + c`.
    SubAdd,
    /// `a + b < c`.
    AddLt,
    /// `a + b <= c`.
    AddLe,
    /// `a ^ b ^ c`.
    XorXor,
    /// `b < c` where the bool `a` holds.
    AndLt,
    /// `b <= c` where the bool `a` holds.
    AndLe,
    /// `a * a`.
    Square,
    /// The u64 product of the u32 `a` and `b`.
    WideMul,
    /// The upper half, a u32, of the u64 `a`.
    High,
}

impl Pair {
    /// Returns the pair that computes `outer` of the result of `inner` and of c, or of c and that result if `inner` is
    /// the right operand.
    pub fn of(inner: Alu, outer: Alu, inner_is_right: bool) -> Option<Pair> {
        Some(match (inner, outer, inner_is_right) {
            (Alu::Mul, Alu::Add, _) => Pair::MulAdd,
            (Alu::Mul, Alu::Sub, false) => Pair::MulSub,
            (Alu::Mul, Alu::Sub, true) => Pair::SubMul,
            (Alu::Add, Alu::Add, _) => Pair::AddAdd,
            (Alu::Sub, Alu::Add, _) => Pair::SubAdd,
            (Alu::Add, Alu::Lt, false) => Pair::AddLt,
            (Alu::Add, Alu::Le, false) => Pair::AddLe,
            (Alu::Xor, Alu::Xor, _) => Pair::XorXor,
            (Alu::Lt, Alu::And, _) => Pair::AndLt,
            (Alu::Le, Alu::And, _) => Pair::AndLe,
            _ => return None,
        })
    }

    /// Returns true if a and b may be swapped.
    pub fn is_commutative(self) -> bool {
        !matches!(self, Pair::SubAdd | Pair::AndLt | Pair::AndLe)
    }

    /// Returns the number of operands.
    pub fn arity(self) -> usize {
        match self {
            Pair::MulAdd | Pair::MulSub | Pair::SubMul | Pair::AddAdd | Pair::SubAdd => 3,
            Pair::AddLt | Pair::AddLe | Pair::XorXor | Pair::AndLt | Pair::AndLe => 3,
            Pair::WideMul => 2,
            Pair::High | Pair::Square => 1,
        }
    }

    /// Returns the name in a dump.
    pub fn name(self) -> &'static str {
        match self {
            Pair::MulAdd => "mul+add",
            Pair::MulSub => "mul-sub",
            Pair::SubMul => "sub-mul",
            Pair::AddAdd => "add+add",
            Pair::SubAdd => "sub+add",
            Pair::AddLt => "add+lt",
            Pair::AddLe => "add+le",
            Pair::XorXor => "xor+xor",
            Pair::AndLt => "and+lt",
            Pair::AndLe => "and+le",
            Pair::Square => "square",
            Pair::WideMul => "widemul",
            Pair::High => "high",
        }
    }
}

macro_rules! pairs {
    ($bound:ident -> $result:ty, $find:ident in $mode:ident: $($name:ident |$a:ident, $b:ident, $c:ident| $value:expr;)*) => {
        $(
            struct $name<T>(PhantomData<T>);
            impl<T: $bound> Ternary for $name<T> {
                type A = T;
                type B = T;
                type R = $result;
                #[inline(always)]
                fn apply<M: Simd>($a: T, $b: T, $c: T) -> $result {
                    $value
                }
            }
        )*

        fn $find<M: Simd, T: $bound>(pair: Pair, mode: Mode) -> Option<VecFn> {
            match pair {
                $(Pair::$name => $mode::<M, $name<T>>(mode),)*
                _ => None,
            }
        }
    };
}

pairs! { Number -> T, of_numbers in any_mode:
    MulAdd |a, b, c| a.mul(b).add(c);
    MulSub |a, b, c| a.mul(b).sub(c);
    SubMul |a, b, c| c.sub(a.mul(b));
    AddAdd |a, b, c| a.add(b).add(c);
    SubAdd |a, b, c| a.sub(b).add(c);
}

pairs! { Number -> u8, comparing in fresh_mode:
    AddLt |a, b, c| u8::from(a.add(b) < c);
    AddLe |a, b, c| u8::from(a.add(b) <= c);
}

pairs! { Bits -> T, of_bits in any_mode:
    XorXor |a, b, c| a.xor(b).xor(c);
}

/// Comparisons combined with a bool.
macro_rules! conditions {
    ($($name:ident |$b:ident, $c:ident| $value:expr;)*) => {
        $(
            struct $name<T>(PhantomData<T>);
            impl<T: Number> Ternary for $name<T> {
                type A = u8;
                type B = T;
                type R = u8;
                #[inline(always)]
                fn apply<M: Simd>(a: u8, $b: T, $c: T) -> u8 {
                    a & u8::from($value)
                }
            }
        )*

        fn conditional<M: Simd, T: Number>(pair: Pair, mode: Mode) -> Option<VecFn> {
            match pair {
                $(Pair::$name => fresh_mode::<M, $name<T>>(mode),)*
                _ => None,
            }
        }
    };
}

conditions! {
    AndLt |b, c| b < c;
    AndLe |b, c| b <= c;
}

struct Square<T>(PhantomData<T>);

impl<T: Number> Unary for Square<T> {
    type A = T;
    type R = T;
    #[inline(always)]
    fn apply<M: Simd>(a: T) -> T {
        a.mul(a)
    }
}

struct WideMul;

impl Binary for WideMul {
    type A = u32;
    type R = u64;
    #[inline(always)]
    fn apply<M: Simd>(a: u32, b: u32) -> u64 {
        u64::from(a) * u64::from(b)
    }
}

struct High;

impl Unary for High {
    type A = u64;
    type R = u32;
    #[inline(always)]
    fn apply<M: Simd>(a: u64) -> u32 {
        (a >> 32) as u32
    }
}

/// Returns the loop for a pair with operands in a mode; `None` if there is no such loop.
pub fn find<M: Simd>(pair: Pair, lane: Lane, mode: Mode) -> Option<VecFn> {
    match (lane, pair, mode) {
        (Lane::F32, ..) => of_floats::<M, f32>(pair, mode),
        (Lane::F64, ..) => of_floats::<M, f64>(pair, mode),
        (Lane::U32, Pair::WideMul, Mode::Vv) => Some(M::compile::<Vv<WideMul>>()),
        (Lane::U32, Pair::WideMul, Mode::Vs) => Some(M::compile::<Vs<WideMul>>()),
        (Lane::U64, Pair::High, Mode::V) => Some(M::compile::<V<High>>()),
        (Lane::I32, Pair::AndLt | Pair::AndLe, _) => conditional::<M, i32>(pair, mode),
        (Lane::U32, Pair::AndLt | Pair::AndLe, _) => conditional::<M, u32>(pair, mode),
        (Lane::I32 | Lane::U32, ..) => of_bits::<M, u32>(pair, mode),
        (Lane::I64 | Lane::U64, ..) => of_bits::<M, u64>(pair, mode),
        (Lane::Bool | Lane::I8 | Lane::I16 | Lane::U8 | Lane::U16, ..) => None,
    }
}

fn of_floats<M: Simd, T: Number>(pair: Pair, mode: Mode) -> Option<VecFn> {
    match (pair, mode) {
        (Pair::Square, Mode::V) => Some(M::compile::<V<Square<T>>>()),
        (Pair::AndLt | Pair::AndLe, _) => conditional::<M, T>(pair, mode),
        _ => of_numbers::<M, T>(pair, mode).or_else(|| comparing::<M, T>(pair, mode)),
    }
}

fn fresh_mode<M: Simd, O: Ternary>(mode: Mode) -> Option<VecFn> {
    match mode {
        Mode::Vvv => Some(M::compile::<Vvv<O>>()),
        Mode::Vvs => Some(M::compile::<Vvs<O>>()),
        Mode::Vsv => Some(M::compile::<Vsv<O>>()),
        Mode::Vss => Some(M::compile::<Vss<O>>()),
        _ => None,
    }
}

fn any_mode<M: Simd, O: Ternary<A = <O as Ternary>::R, B = <O as Ternary>::R>>(mode: Mode) -> Option<VecFn> {
    match mode {
        Mode::Vvi => Some(M::compile::<Vvi<O>>()),
        Mode::Vsi => Some(M::compile::<Vsi<O>>()),
        Mode::Ivv => Some(M::compile::<Ivv<O>>()),
        Mode::Ivs => Some(M::compile::<Ivs<O>>()),
        _ => fresh_mode::<M, O>(mode),
    }
}
