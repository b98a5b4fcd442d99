//! Every operation on every element type, compared with plain Rust.

use panoply_ir::interpret::scalar::{alu, bitcast, cast};
use panoply_ir::{Alu, DType, Element, Math, Scalar, bf16, f16};

fn check(op: Alu, operands: &[Scalar], expected: Scalar) {
    let found = alu(op, operands);
    let nan = |value: Scalar| value.dtype.is_float() && value.to_f64().is_nan();
    let equal = found == expected || found.dtype == expected.dtype && nan(found) && nan(expected);
    assert!(equal, "{} of {operands:?} is {found}, expected {expected}", op.name());
}

fn check_compare<T: Element + PartialOrd>(a: T, b: T) {
    let both = [a.into(), b.into()];
    check(Alu::Lt, &both, (a < b).into());
    check(Alu::Le, &both, (a <= b).into());
    check(Alu::Eq, &both, (a == b).into());
    check(Alu::Ne, &both, (a != b).into());
    check(Alu::Select, &[true.into(), a.into(), b.into()], a.into());
    check(Alu::Select, &[false.into(), a.into(), b.into()], b.into());
}

macro_rules! integers {
    ($($ty:ident, $abs:expr;)*) => {$(
        #[test]
        fn $ty() {
            let mut values: Vec<$ty> = vec![0, 1, 2, 3, 7, 8, 31, 33, 63, 65, 100, $ty::MIN, $ty::MIN + 1, $ty::MAX, $ty::MAX - 1];
            values.extend([$ty::MAX / 2, $ty::MAX / 3, $ty::MIN / 3, !0, !1, !6]);
            for a in &values {
                let abs: fn($ty) -> $ty = $abs;
                check(Alu::Neg, &[(*a).into()], a.wrapping_neg().into());
                check(Alu::Not, &[(*a).into()], (!a).into());
                check(Alu::Abs, &[(*a).into()], abs(*a).into());
                check(Alu::PopCount, &[(*a).into()], (a.count_ones() as $ty).into());
                for b in &values {
                    let (a, b) = (*a, *b);
                    let both = [a.into(), b.into()];
                    let places = (b as u64 % $ty::BITS as u64) as u32;
                    check(Alu::Add, &both, a.wrapping_add(b).into());
                    check(Alu::Sub, &both, a.wrapping_sub(b).into());
                    check(Alu::Mul, &both, a.wrapping_mul(b).into());
                    check(Alu::Div, &both, if b == 0 { 0 } else { a.wrapping_div(b) }.into());
                    check(Alu::Rem, &both, if b == 0 { a } else { a.wrapping_rem(b) }.into());
                    check(Alu::Min, &both, a.min(b).into());
                    check(Alu::Max, &both, a.max(b).into());
                    check(Alu::And, &both, (a & b).into());
                    check(Alu::Or, &both, (a | b).into());
                    check(Alu::Xor, &both, (a ^ b).into());
                    check(Alu::Shl, &both, (a << places).into());
                    check(Alu::Shr, &both, (a >> places).into());
                    check_compare(a, b);
                }
            }
        }
    )*};
}

integers! {
    i8, i8::wrapping_abs;
    i16, i16::wrapping_abs;
    i32, i32::wrapping_abs;
    i64, i64::wrapping_abs;
    u8, |x| x;
    u16, |x| x;
    u32, |x| x;
    u64, |x| x;
}

#[test]
fn bools() {
    for a in [false, true] {
        check(Alu::Not, &[a.into()], (!a).into());
        for b in [false, true] {
            let both = [a.into(), b.into()];
            check(Alu::And, &both, (a & b).into());
            check(Alu::Or, &both, (a | b).into());
            check(Alu::Xor, &both, (a ^ b).into());
            check(Alu::Eq, &both, (a == b).into());
            check(Alu::Ne, &both, (a != b).into());
            check(Alu::Select, &[a.into(), b.into(), (!b).into()], (if a { b } else { !b }).into());
        }
    }
}

/// IEEE 754-2019 `minimum` and `maximum`, except for the sign of zero, which is unspecified.
fn check_least<T: Element + PartialOrd>(a: T, b: T, zero: T, nan: T) {
    let both = [a.into(), b.into()];
    if a == zero && b == zero {
        return;
    }
    let nan = (a.partial_cmp(&b).is_none()).then_some(nan);
    check(Alu::Min, &both, nan.unwrap_or(if a < b { a } else { b }).into());
    check(Alu::Max, &both, nan.unwrap_or(if a > b { a } else { b }).into());
}

macro_rules! floats {
    ($($ty:ident;)*) => {$(
        #[test]
        fn $ty() {
            let mut values: Vec<$ty> = vec![0.0, -0.0, 0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 3.0, 1e-3, 0.1, -0.7, 1e10, 123456.79];
            values.extend([$ty::MAX, $ty::MIN, $ty::MIN_POSITIVE, $ty::MIN_POSITIVE / 4.0, $ty::EPSILON, 1.0 + $ty::EPSILON]);
            values.extend([$ty::INFINITY, $ty::NEG_INFINITY, $ty::NAN, 8388608.5, 4503599627370497.5]);
            for a in &values {
                let one = [(*a).into()];
                check(Alu::Neg, &one, (-a).into());
                check(Alu::Abs, &one, a.abs().into());
                check(Alu::Sqrt, &one, a.sqrt().into());
                check(Alu::Floor, &one, a.floor().into());
                check(Alu::Ceil, &one, a.ceil().into());
                check(Alu::Round, &one, a.round_ties_even().into());
                check(Alu::Trunc, &one, a.trunc().into());
                for b in &values {
                    let (a, b) = (*a, *b);
                    let both = [a.into(), b.into()];
                    check(Alu::Add, &both, (a + b).into());
                    check(Alu::Sub, &both, (a - b).into());
                    check(Alu::Mul, &both, (a * b).into());
                    check(Alu::Div, &both, (a / b).into());
                    check(Alu::Rem, &both, (a % b).into());
                    check_least(a, b, 0.0, $ty::NAN);
                    check_compare(a, b);
                    for c in [1.0, -0.1, $ty::MAX] {
                        check(Alu::Fma, &[a.into(), b.into(), c.into()], a.mul_add(b, c).into());
                    }
                }
            }
        }
    )*};
}

floats! {
    f32;
    f64;
}

/// f64 represents sums and products of two f16 or bf16 exactly, and quotients and roots with enough bits to round them once.
macro_rules! halves {
    ($($test:ident, $ty:ident;)*) => {$(
        #[test]
        fn $test() {
            let all: Vec<$ty> = (0..=u16::MAX).map($ty::from_bits).collect();
            for a in &all {
                let one = [(*a).into()];
                let x = a.to_f64();
                check(Alu::Neg, &one, $ty::from_bits(a.to_bits() ^ 0x8000).into());
                check(Alu::Abs, &one, $ty::from_bits(a.to_bits() & 0x7fff).into());
                check(Alu::Sqrt, &one, $ty::from_f64(x.sqrt()).into());
                check(Alu::Floor, &one, $ty::from_f64(x.floor()).into());
                check(Alu::Ceil, &one, $ty::from_f64(x.ceil()).into());
                check(Alu::Round, &one, $ty::from_f64(x.round_ties_even()).into());
                check(Alu::Trunc, &one, $ty::from_f64(x.trunc()).into());
                check(Alu::Math(Math::Tanh), &one, $ty::from_f64(x.tanh()).into());
            }
            for (i, a) in all.iter().enumerate().step_by(97) {
                for b in all[i % 61..].iter().step_by(61) {
                    let (a, b) = (*a, *b);
                    let (x, y) = (a.to_f64(), b.to_f64());
                    let both = [a.into(), b.into()];
                    check(Alu::Add, &both, $ty::from_f64(x + y).into());
                    check(Alu::Sub, &both, $ty::from_f64(x - y).into());
                    check(Alu::Mul, &both, $ty::from_f64(x * y).into());
                    check(Alu::Div, &both, $ty::from_f64(x / y).into());
                    check(Alu::Rem, &both, $ty::from_f64(x % y).into());
                    check_least(a, b, $ty::ZERO, $ty::NAN);
                    check_compare(a, b);
                    let sum = $ty::from_f32((x as f32).mul_add(y as f32, 0.75));
                    check(Alu::Fma, &[a.into(), b.into(), $ty::from_f32(0.75).into()], sum.into());
                }
            }
        }
    )*};
}

halves! {
    every_f16, f16;
    every_bf16, bf16;
}

/// Compares with the C library, which is independent of the interpreter's library, within one unit in the last place.
#[test]
fn transcendentals_match_the_c_library() {
    fn near(found: Scalar, expected: f64, what: &str) {
        let value = found.to_f64();
        if expected.is_nan() || expected.is_infinite() || expected == 0.0 {
            assert!(value == expected || value.is_nan() && expected.is_nan(), "{what}: {found}, expected {expected}");
            return;
        }
        let ulp = match found.dtype {
            DType::F64 => f64::EPSILON,
            _ => f32::EPSILON as f64,
        };
        let error = (value - expected).abs() / expected.abs().max(f32::MIN_POSITIVE as f64);
        assert!(error <= ulp, "{what}: {found}, expected {expected:?}");
    }
    type Function = fn(f64) -> f64;
    let functions: [(Alu, Function); 12] = [
        (Alu::Math(Math::Exp), f64::exp),
        (Alu::Math(Math::Exp2), f64::exp2),
        (Alu::Math(Math::Log), f64::ln),
        (Alu::Math(Math::Log2), f64::log2),
        (Alu::Math(Math::Log1p), f64::ln_1p),
        (Alu::Math(Math::Expm1), f64::exp_m1),
        (Alu::Math(Math::Sin), f64::sin),
        (Alu::Math(Math::Cos), f64::cos),
        (Alu::Math(Math::Tan), f64::tan),
        (Alu::Math(Math::Atan), f64::atan),
        (Alu::Math(Math::Tanh), f64::tanh),
        (Alu::Pow, |x| x.powf(2.5)),
    ];
    let special = [0.0, -1.0, 1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.25];
    let values =
        (-200..200).map(|i| i as f64 * 0.37 + 0.015625).chain((-30..3).map(|i| 2.0_f64.powi(i))).chain(special);
    for x in values {
        for (op, expected) in functions {
            let (single, double) = (Scalar::from(x as f32), Scalar::from(x));
            let operands = |x: Scalar| if op == Alu::Pow { vec![x, Scalar::from_f64(x.dtype, 2.5)] } else { vec![x] };
            let far = if x as f32 as f64 == x { 0.0 } else { x as f32 as f64 - x };
            let expected_single = expected(x + far);
            let flushed = expected_single.abs() > f32::MAX as f64 || expected_single.abs() < f32::MIN_POSITIVE as f64;
            if !flushed || expected_single == 0.0 {
                near(alu(op, &operands(single)), expected_single, &format!("{} of {single}", op.name()));
            }
            near(alu(op, &operands(double)), expected(x), &format!("{} of {double}", op.name()));
        }
    }
}

#[test]
fn erf_matches_published_values() {
    for (x, expected) in [
        (0.0, 0.0),
        (0.001, 0.0011283787909692363),
        (0.5, 0.5204998778130465),
        (1.0, 0.8427007929497149),
        (-1.0, -0.8427007929497149),
        (2.0, 0.9953222650189527),
        (3.5, 0.9999992569016276),
        (9.0, 1.0),
        (f64::INFINITY, 1.0),
    ] {
        let found = alu(Alu::Math(Math::Erf), &[Scalar::from(x)]).to_f64();
        assert!((found - expected).abs() <= 2e-16, "erf({x}) is {found:?}");
        check(Alu::Math(Math::Erf), &[Scalar::from(x as f32)], Scalar::from(expected as f32));
    }
}

macro_rules! casts {
    ($value:expr => $($to:ident)*) => {$(
        let found = cast($to::DTYPE, $value.into());
        let expected: Scalar = ($value as $to).into();
        let nan = found.dtype.is_float() && found.to_f64().is_nan() && expected.to_f64().is_nan();
        assert!(nan || found == expected, "{:?} as {} is {found}, expected {expected}", $value, $to::DTYPE);
    )*};
}

#[test]
fn casts_match_rust() {
    macro_rules! from {
        ($($ty:ident: $values:expr;)*) => {$(
            for value in $values {
                let value: $ty = value;
                casts!(value => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64);
                let single = Scalar::from(value as f32);
                assert_eq!(cast(DType::F16, value.into()), cast(DType::F16, single));
                assert_eq!(cast(DType::BF16, value.into()), cast(DType::BF16, single));
                assert_eq!(cast(DType::Bool, value.into()), (value != 0 as $ty).into());
            }
        )*};
    }
    from! {
        i8: [0, 1, -1, i8::MIN, i8::MAX];
        i16: [0, 1, -1, 200, i16::MIN, i16::MAX];
        i32: [0, -1, 70000, 16777217, 2147483583, i32::MIN, i32::MAX];
        i64: [0, -1, 70000, 1 << 24 | 1, 1 << 53 | 1, 0x20_0000_1000_0001, -0x20_0000_1000_0001, i64::MIN, i64::MAX];
        u8: [0, 1, 200, u8::MAX];
        u16: [0, 1, 40000, u16::MAX];
        u32: [0, 1, 16777217, 1 << 31, u32::MAX];
        u64: [0, 1, 1 << 53 | 1, 0x20_0000_1000_0001, 1 << 63, u64::MAX];
        f32: [0.0, -0.0, 0.5, -0.5, 1.5, 254.9, 255.5, -129.0, 3e9, -3e9, 2e19, 1e38, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        f64: [0.0, -0.0, 0.9, -0.9, 255.5, 4294967295.5, 1.8446744073709552e19, 9.3e18, 1e300, 1e-300, 0.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    }
    for value in [false, true] {
        casts!(value => i8 i16 i32 i64 u8 u16 u32 u64);
        assert_eq!(cast(DType::F32, value.into()), (value as u8 as f32).into());
        assert_eq!(cast(DType::F16, value.into()), f16::from_f32(value as u8 as f32).into());
    }
    for bits in 0..=u16::MAX {
        for (half, value) in [
            (Scalar::from(f16::from_bits(bits)), f16::from_bits(bits).to_f64()),
            (Scalar::from(bf16::from_bits(bits)), bf16::from_bits(bits).to_f64()),
        ] {
            assert_eq!(cast(DType::I8, half), (value as i8).into());
            assert_eq!(cast(DType::U64, half), (value as u64).into());
            let back = cast(half.dtype, cast(DType::F32, half));
            assert!(back == half || value.is_nan() && back.to_f64().is_nan());
        }
    }
    assert_eq!(cast(DType::Bool, Scalar::from(f32::NAN)), true.into());
    assert_eq!(bitcast(DType::U32, Scalar::from(1.0_f32)), 0x3f80_0000_u32.into());
    assert_eq!(bitcast(DType::BF16, Scalar::from(-1_i16)), bf16::from_bits(0xffff).into());
}
