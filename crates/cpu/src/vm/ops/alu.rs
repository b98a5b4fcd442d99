//! The table of loops for [`Alu`] operations: operation × lane type × operand mode.

use std::marker::PhantomData;

use panoply_host::isa::{Simd, VecFn};
use panoply_ir::{Alu, Math};

use super::loops::{Binary, Is, Iv, Sv, Ternary, Unary, V, Vs, Vsi, Vss, Vsv, Vv, Vvi, Vvs, Vvv};
use super::number::{Bits, Float, Number};
use super::quotient::{Quotient, Remainder};
use crate::vm::lane::Lane;

/// The operand mode of a loop: `V` is a vector of lanes, `S` one value for all lanes, `I` the destination itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the letters are defined above")]
pub enum Mode {
    V,
    Vv,
    Vs,
    Sv,
    Iv,
    Is,
    Vvv,
    Vvs,
    Vsv,
    Vss,
    Vvi,
    Vsi,
    Ivv,
    Ivs,
}

macro_rules! operations {
    (unary $bound:ident: $($name:ident |$a:ident| $value:expr;)*) => {$(
        struct $name<T>(PhantomData<T>);
        impl<T: $bound> Unary for $name<T> {
            type A = T;
            type R = T;
            #[inline(always)]
            fn apply<M: Simd>($a: T) -> T {
                $value
            }
        }
    )*};
    (binary $bound:ident: $($name:ident |$a:ident, $b:ident| $value:expr;)*) => {$(
        struct $name<T>(PhantomData<T>);
        impl<T: $bound> Binary for $name<T> {
            type A = T;
            type R = T;
            #[inline(always)]
            fn apply<M: Simd>($a: T, $b: T) -> T {
                $value
            }
        }
    )*};
    (comparison $bound:ident: $($name:ident |$a:ident, $b:ident| $value:expr;)*) => {$(
        struct $name<T>(PhantomData<T>);
        impl<T: $bound + 'static> Binary for $name<T> {
            type A = T;
            type R = u8;
            #[inline(always)]
            fn apply<M: Simd>($a: T, $b: T) -> u8 {
                u8::from($value)
            }
        }
    )*};
}

operations! { unary Number:
    Neg |a| a.neg();
    Abs |a| a.abs();
}

operations! { unary Bits:
    Not |a| a.not();
    CountOnes |a| a.count_ones();
}

operations! { unary Float:
    Exp |a| a.exp::<M>();
    Exp2 |a| a.exp2::<M>();
    Ln |a| a.ln::<M>();
    Log2 |a| a.log2::<M>();
    Log1p |a| a.log1p::<M>();
    Expm1 |a| a.expm1::<M>();
    Sin |a| a.sin::<M>();
    Cos |a| a.cos::<M>();
    Tan |a| a.tan::<M>();
    Atan |a| a.atan::<M>();
    Tanh |a| a.tanh::<M>();
    Erf |a| a.erf::<M>();
    Sqrt |a| a.sqrt::<M>();
    Floor |a| a.floor::<M>();
    Ceil |a| a.ceil::<M>();
    Round |a| a.round::<M>();
    Trunc |a| a.trunc::<M>();
}

operations! { binary Number:
    Add |a, b| a.add(b);
    Sub |a, b| a.sub(b);
    Mul |a, b| a.mul(b);
    Div |a, b| a.div(b);
    Rem |a, b| a.rem(b);
    Min |a, b| a.min(b);
    Max |a, b| a.max(b);
}

operations! { binary Bits:
    And |a, b| a.and(b);
    Or |a, b| a.or(b);
    Xor |a, b| a.xor(b);
    Shl |a, b| a.shl(b);
    Shr |a, b| a.shr(b);
}

operations! { binary Float:
    Pow |a, b| a.pow::<M>(b);
}

trait Ordered: Copy + PartialOrd {}
impl<T: Copy + PartialOrd> Ordered for T {}

operations! { comparison Ordered:
    Lt |a, b| a < b;
    Le |a, b| a <= b;
    Eq |a, b| a == b;
    Ne |a, b| a != b;
}

/// Logical not of a bool, which is 0 or 1.
struct NotBool;

impl Unary for NotBool {
    type A = u8;
    type R = u8;
    #[inline(always)]
    fn apply<M: Simd>(a: u8) -> u8 {
        a ^ 1
    }
}

struct Fma<T>(PhantomData<T>);

impl<T: Float> Ternary for Fma<T> {
    type A = T;
    type B = T;
    type R = T;
    #[inline(always)]
    fn apply<M: Simd>(a: T, b: T, c: T) -> T {
        a.fma::<M>(b, c)
    }
}

/// Selection of bits by a bool; the same loop serves all lane types of a width.
struct Select<T>(PhantomData<T>);

impl<T: Copy + 'static> Ternary for Select<T> {
    type A = u8;
    type B = T;
    type R = T;
    #[inline(always)]
    fn apply<M: Simd>(condition: u8, a: T, b: T) -> T {
        if condition != 0 { a } else { b }
    }
}

/// Returns the loop for an operation with operands in a mode; `None` if there is no such loop.
///
/// `lane` is the lane type of the operands (for `Select`, of the values).
pub fn find<M: Simd>(alu: Alu, lane: Lane, mode: Mode) -> Option<VecFn> {
    if alu == Alu::Select {
        return match lane.bytes() {
            1 => select::<M, u8>(mode),
            2 => select::<M, u16>(mode),
            4 => select::<M, u32>(mode),
            _ => select::<M, u64>(mode),
        };
    }
    match lane {
        Lane::F32 => float::<M, f32>(alu, mode),
        Lane::F64 => float::<M, f64>(alu, mode),
        Lane::Bool => boolean::<M>(alu, mode),
        Lane::I8 | Lane::I16 | Lane::I32 | Lane::I64 | Lane::U8 | Lane::U16 | Lane::U32 | Lane::U64 => {
            // Operations that wrap or compare bits need one loop for both signs.
            match if is_sign_agnostic(alu) { lane.unsigned() } else { lane } {
                Lane::I8 => ordered_integer::<M, i8>(alu, mode),
                Lane::I16 => ordered_integer::<M, i16>(alu, mode),
                Lane::I32 => ordered_integer::<M, i32>(alu, mode),
                Lane::I64 => ordered_integer::<M, i64>(alu, mode),
                Lane::U8 => ordered_integer::<M, u8>(alu, mode).or_else(|| wrapping::<M, u8>(alu, mode)),
                Lane::U16 => ordered_integer::<M, u16>(alu, mode).or_else(|| wrapping::<M, u16>(alu, mode)),
                Lane::U32 => ordered_integer::<M, u32>(alu, mode).or_else(|| wrapping::<M, u32>(alu, mode)),
                _ if (alu, mode) == (Alu::Div, Mode::Vs) => Some(M::compile::<Quotient>()),
                _ if (alu, mode) == (Alu::Rem, Mode::Vs) => Some(M::compile::<Remainder>()),
                _ => ordered_integer::<M, u64>(alu, mode).or_else(|| wrapping::<M, u64>(alu, mode)),
            }
        }
    }
}

fn is_sign_agnostic(alu: Alu) -> bool {
    use Alu::*;
    matches!(alu, Neg | Not | PopCount | Add | Sub | Mul | And | Or | Xor | Shl | Eq | Ne)
}

fn float<M: Simd, T: Float>(alu: Alu, mode: Mode) -> Option<VecFn> {
    match alu {
        Alu::Neg => unary::<M, Neg<T>>(mode),
        Alu::Abs => unary::<M, Abs<T>>(mode),
        Alu::Math(Math::Exp) => unary::<M, Exp<T>>(mode),
        Alu::Math(Math::Exp2) => unary::<M, Exp2<T>>(mode),
        Alu::Math(Math::Log) => unary::<M, Ln<T>>(mode),
        Alu::Math(Math::Log2) => unary::<M, Log2<T>>(mode),
        Alu::Math(Math::Log1p) => unary::<M, Log1p<T>>(mode),
        Alu::Math(Math::Expm1) => unary::<M, Expm1<T>>(mode),
        Alu::Math(Math::Sin) => unary::<M, Sin<T>>(mode),
        Alu::Math(Math::Cos) => unary::<M, Cos<T>>(mode),
        Alu::Math(Math::Tan) => unary::<M, Tan<T>>(mode),
        Alu::Math(Math::Atan) => unary::<M, Atan<T>>(mode),
        Alu::Math(Math::Tanh) => unary::<M, Tanh<T>>(mode),
        Alu::Math(Math::Erf) => unary::<M, Erf<T>>(mode),
        Alu::Sqrt => unary::<M, Sqrt<T>>(mode),
        Alu::Floor => unary::<M, Floor<T>>(mode),
        Alu::Ceil => unary::<M, Ceil<T>>(mode),
        Alu::Round => unary::<M, Round<T>>(mode),
        Alu::Trunc => unary::<M, Trunc<T>>(mode),
        Alu::Add => commutative::<M, Add<T>>(mode),
        Alu::Sub => binary::<M, Sub<T>>(mode),
        Alu::Mul => commutative::<M, Mul<T>>(mode),
        Alu::Div => binary::<M, Div<T>>(mode),
        Alu::Rem => only_vectors::<M, Rem<T>>(mode),
        Alu::Min => commutative::<M, Min<T>>(mode),
        Alu::Max => commutative::<M, Max<T>>(mode),
        Alu::Pow => only_vectors::<M, Pow<T>>(mode),
        Alu::Lt => comparison::<M, Lt<T>>(mode),
        Alu::Le => comparison::<M, Le<T>>(mode),
        Alu::Eq => comparison::<M, Eq<T>>(mode),
        Alu::Ne => comparison::<M, Ne<T>>(mode),
        Alu::Fma => fma::<M, T>(mode),
        Alu::PopCount | Alu::Not | Alu::And | Alu::Or | Alu::Xor | Alu::Shl | Alu::Shr | Alu::Select => None,
    }
}

fn ordered_integer<M: Simd, T: Number + Bits>(alu: Alu, mode: Mode) -> Option<VecFn> {
    match alu {
        Alu::Abs => unary::<M, Abs<T>>(mode),
        Alu::Div => division::<M, Div<T>>(mode),
        Alu::Rem => division::<M, Rem<T>>(mode),
        Alu::Min => commutative::<M, Min<T>>(mode),
        Alu::Max => commutative::<M, Max<T>>(mode),
        Alu::Shr => division::<M, Shr<T>>(mode),
        Alu::Lt => comparison::<M, Lt<T>>(mode),
        Alu::Le => comparison::<M, Le<T>>(mode),
        _ => None,
    }
}

fn wrapping<M: Simd, T: Number + Bits>(alu: Alu, mode: Mode) -> Option<VecFn> {
    match alu {
        Alu::Neg => unary::<M, Neg<T>>(mode),
        Alu::Not => unary::<M, Not<T>>(mode),
        Alu::PopCount => unary::<M, CountOnes<T>>(mode),
        Alu::Add => commutative::<M, Add<T>>(mode),
        Alu::Sub => binary::<M, Sub<T>>(mode),
        Alu::Mul => commutative::<M, Mul<T>>(mode),
        Alu::And => commutative::<M, And<T>>(mode),
        Alu::Or => commutative::<M, Or<T>>(mode),
        Alu::Xor => commutative::<M, Xor<T>>(mode),
        Alu::Shl => division::<M, Shl<T>>(mode),
        Alu::Eq => comparison::<M, Eq<T>>(mode),
        Alu::Ne => comparison::<M, Ne<T>>(mode),
        _ => None,
    }
}

fn boolean<M: Simd>(alu: Alu, mode: Mode) -> Option<VecFn> {
    match alu {
        Alu::Not => unary::<M, NotBool>(mode),
        Alu::And | Alu::Or | Alu::Xor | Alu::Eq | Alu::Ne => wrapping::<M, u8>(alu, mode),
        _ => None,
    }
}

fn unary<M: Simd, O: Unary>(mode: Mode) -> Option<VecFn> {
    (mode == Mode::V).then(|| M::compile::<V<O>>())
}

fn binary<M: Simd, O: Binary<R = <O as Binary>::A>>(mode: Mode) -> Option<VecFn> {
    match mode {
        Mode::Sv => Some(M::compile::<Sv<O>>()),
        _ => commutative::<M, O>(mode),
    }
}

fn commutative<M: Simd, O: Binary<R = <O as Binary>::A>>(mode: Mode) -> Option<VecFn> {
    match mode {
        Mode::Vv => Some(M::compile::<Vv<O>>()),
        Mode::Vs => Some(M::compile::<Vs<O>>()),
        Mode::Iv => Some(M::compile::<Iv<O>>()),
        Mode::Is => Some(M::compile::<Is<O>>()),
        _ => None,
    }
}

/// Loops of operations whose right operand is often uniform, and that are so slow that an extra copy does not matter.
fn division<M: Simd, O: Binary>(mode: Mode) -> Option<VecFn> {
    match mode {
        Mode::Vv => Some(M::compile::<Vv<O>>()),
        Mode::Vs => Some(M::compile::<Vs<O>>()),
        _ => None,
    }
}

fn comparison<M: Simd, O: Binary>(mode: Mode) -> Option<VecFn> {
    match mode {
        Mode::Vv => Some(M::compile::<Vv<O>>()),
        Mode::Vs => Some(M::compile::<Vs<O>>()),
        Mode::Sv => Some(M::compile::<Sv<O>>()),
        _ => None,
    }
}

fn only_vectors<M: Simd, O: Binary>(mode: Mode) -> Option<VecFn> {
    (mode == Mode::Vv).then(|| M::compile::<Vv<O>>())
}

fn fma<M: Simd, T: Float>(mode: Mode) -> Option<VecFn> {
    match mode {
        Mode::Vvi => Some(M::compile::<Vvi<Fma<T>>>()),
        Mode::Vsi => Some(M::compile::<Vsi<Fma<T>>>()),
        _ => ternary::<M, Fma<T>>(mode),
    }
}

fn select<M: Simd, T: Copy + 'static>(mode: Mode) -> Option<VecFn> {
    ternary::<M, Select<T>>(mode)
}

fn ternary<M: Simd, O: Ternary>(mode: Mode) -> Option<VecFn> {
    match mode {
        Mode::Vvv => Some(M::compile::<Vvv<O>>()),
        Mode::Vvs => Some(M::compile::<Vvs<O>>()),
        Mode::Vsv => Some(M::compile::<Vsv<O>>()),
        Mode::Vss => Some(M::compile::<Vss<O>>()),
        _ => None,
    }
}
