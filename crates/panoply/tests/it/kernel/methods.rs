//! The methods of Rust's numbers.

use panoply::kernel::Float;
use panoply::kernel_fn;
use panoply_ir::{bf16, f16};

const FLOATS: [f32; 14] = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.5,
    -1.5,
    2.5,
    0.49999997,
    -8388609.0,
    1e-42,
    3.0e38,
    f32::INFINITY,
    f32::NEG_INFINITY,
    -7.25,
];
const WITH_NAN: [f32; 5] = [0.0, 1.0, -3.5, f32::INFINITY, f32::NAN];
const WORDS: [u32; 9] = [0, 1, 2, 3, 0x80, 0xffff, 0x8000_0000, 0x1234_5678, u32::MAX];
const INTS: [i32; 8] = [0, 1, -1, 7, -100, i32::MAX, i32::MIN, 0x1234_5678];

/// Horner's scheme, for every float.
#[kernel_fn]
fn polynomial<T: Float>(x: T) -> T {
    let mut sum = T::ONE;
    for _ in 0..3 {
        sum = sum * x + cast::<T>(0.25);
    }
    sum.max(T::ZERO).sqrt()
}

as_rust! {
    fn rounding(x: f32 = FLOATS) -> f32 {
        x.floor() + 3.0 * x.ceil().min(9.0) - x.trunc() / 2.0 + x.round_ties_even()
    }

    fn rounding_half_away(x: f32 = FLOATS) -> f32 {
        x.round()
    }

    fn fractions(x: f32 = [0.0, 1.25, -1.25, 1e9]) -> f32 {
        x.fract() + x.abs().sqrt() + x.recip().clamp(-1.0, 1.0)
    }

    fn minima(a: f32 = WITH_NAN, b: f32 = WITH_NAN) -> u32 {
        // Rust specifies neither which NaN nor which zero is returned.
        let m = a.min(b);
        if m.is_nan() { 1 } else { (m + 0.0).to_bits() }
    }

    fn maxima(a: f32 = WITH_NAN, b: f32 = WITH_NAN) -> u32 {
        let m = f32::max(a, b);
        if m.is_nan() { 1 } else { (m + 0.0).to_bits() }
    }

    fn propagating(a: f32 = WITH_NAN, b: f32 = WITH_NAN) -> u32 {
        let m = minimum(a, b) - maximum(a, b);
        if m.is_nan() { 1 } else { m.to_bits() }
    }

    fn clamps(x: f32 = FLOATS) -> f32 {
        x.clamp(-0.5, 2.0)
    }

    fn signs(x: f32 = FLOATS, y: f32 = [1.0, -0.0]) -> f32 {
        x.signum() + x.copysign(y) * 2.0 + (x.is_sign_negative() as u32 + 2 * y.is_sign_positive() as u32) as f32
    }

    fn classes(x: f32 = WITH_NAN) -> u32 {
        x.is_nan() as u32 + 2 * x.is_finite() as u32 + 4 * x.is_infinite() as u32
    }

    fn fused(a: f32 = FLOATS, b: f32 = [0.1, -3.0]) -> f32 {
        let product = a.mul_add(b, 0.3);
        if product.is_nan() { 0.0 } else { product }
    }

    fn bit_patterns(x: f32 = FLOATS) -> f32 {
        f32::from_bits(x.to_bits() ^ 1)
    }

    fn powers(x: f32 = [1.5, -2.0, 0.25]) -> f32 {
        x.powi(0) + x.powi(1) + x.powi(2) + x.powi(-1)
    }

    fn powers_with_runtime_exponents(
        x: f32 = [-1.0, 1.0009766, -2.0, 0.0, -0.0, f32::INFINITY, 1e-3],
        n: i32 = [0, 1, -1, 5, -6, 16777217, -16777217, i32::MIN, i32::MAX]
    ) -> f32 {
        x.powi(n)
    }

    fn powers_of_halves(x: f32 = [-1.0, 1.0078125, 0.99, 3.0], n: i32 = [257, 511, 2049, -2049, 3]) -> f32 {
        bf16::from_f32(x).powi(n).to_f32() + f16::from_f32(x).powi(n).to_f32() * 0.5 + f16::from_f32(x).powi(3).to_f32()
    }

    fn powers_in_conditions(x: f64 = [1.5, -1.1], n: i32 = [1, 2, 3]) -> u32 {
        let mut count = 0;
        let mut power = n;
        while x.powi(power) < 30.0 && power < 100 && (power < 5 || x.powi(power + 1) != 7.0) {
            power += n;
            count += 1;
        }
        count
    }

    fn extremes_of_bools(a: u32 = [0, 1], b: u32 = [0, 1]) -> u32 {
        let (p, q) = (a == 1, b == 1);
        (p.min(q)) as u32 + 2 * (bool::max(p, q) as u32)
    }

    fn integer_powers(x: u32 = [0, 1, 3, 10]) -> u32 {
        x.pow(5) + x.pow(0)
    }

    fn euclid(a: i32 = [7, -7, 0], b: i32 = [3, -3]) -> i32 {
        a.rem_euclid(b)
    }

    fn float_euclid(a: f32 = [7.5, -7.5], b: f32 = [2.0, -2.0]) -> f32 {
        a.rem_euclid(b)
    }

    fn unsigned_extremes(a: u32 = WORDS, b: u32 = WORDS) -> u32 {
        a.min(b).wrapping_mul(3) ^ a.max(b) ^ a.clamp(3, 500)
    }

    fn signed_extremes(a: i32 = INTS, b: i32 = INTS) -> i32 {
        a.min(b).wrapping_mul(3) ^ a.max(b) ^ a.signum() ^ a.wrapping_neg()
    }

    fn saturation(a: u32 = WORDS, b: u32 = WORDS) -> u32 {
        a.saturating_add(b) ^ a.saturating_sub(b).rotate_left(1)
    }

    fn signed_saturation(a: i32 = INTS, b: i32 = INTS) -> i32 {
        a.saturating_add(b) ^ a.saturating_sub(b).rotate_right(3)
    }

    fn rotation(a: u32 = WORDS, n: u32 = [0, 1, 31]) -> u32 {
        a.rotate_left(n) ^ a.rotate_right(n + 2) ^ a.wrapping_shl(n) ^ a.wrapping_shr(n)
    }

    fn rotation_of_small_integers(a: u32 = WORDS) -> u32 {
        (a as u8).rotate_left(3) as u32 ^ (a as i16).rotate_right(5) as u32
    }

    fn differences(a: i32 = INTS, b: i32 = INTS) -> u32 {
        a.abs_diff(b) ^ (a as u32).abs_diff(b as u32)
    }

    fn rounding_division(a: u32 = WORDS, b: u32 = [1, 3, 64]) -> u32 {
        a.div_ceil(b) ^ (a % 1000).next_multiple_of(b) ^ a.is_power_of_two() as u32
    }

    fn counted_bits(a: u32 = WORDS) -> u32 {
        a.count_ones() + 100 * a.leading_zeros() + 10000 * a.trailing_zeros() + a.count_zeros()
    }

    fn counted_bits_of_other_widths(a: u32 = WORDS) -> u32 {
        let wide = a as u64 * 0x1_0000_0001;
        let half = a as u16;
        let byte = a as i8;
        wide.count_ones() + wide.leading_zeros() * 2 + wide.trailing_zeros() * 3 + half.count_ones() * 5
            + half.leading_zeros() * 7 + byte.count_ones() * 11 + byte.leading_zeros() * 13 + byte.trailing_zeros() * 17
    }

    fn counted_bits_of_signed_integers(a: i32 = INTS) -> u32 {
        a.count_ones() + 33 * (a as i64).count_ones() + 2200 * (a as i16).count_ones() + 40000 * (a as i8).count_ones()
    }

    fn wrapping(a: i32 = INTS, b: i32 = INTS) -> i32 {
        a.wrapping_add(b) ^ a.wrapping_sub(b) ^ a.wrapping_mul(b)
    }

    fn doubles(a: f64 = [0.1, -2.5, 1e300]) -> f64 {
        polynomial(a) + a.round() + f64::from_bits(a.to_bits() | 1)
    }

    fn singles(a: f32 = [0.1, -2.5]) -> f32 {
        polynomial(a) + polynomial::<f32>(1.0)
    }

    fn halves(a: f32 = [0.1, -2.5, 1e5, 1e-7]) -> f32 {
        let x = f16::from_f32(a);
        let y = bf16::from_f32(a);
        let sum = x + f16::from_f32(0.5);
        f32::from(polynomial(sum)) + y.to_f32() + f32::from(y.max(bf16::ZERO)) + cast::<f16>(a).to_f32()
    }
}

#[test]
fn transcendentals_are_close_to_rusts() {
    #[kernel_fn]
    fn function(x: f32, which: usize) -> f32 {
        if which == 0 {
            x.exp()
        } else if which == 1 {
            x.ln()
        } else if which == 2 {
            x.sin() + x.cos()
        } else if which == 3 {
            x.tanh() + x.atan()
        } else if which == 4 {
            x.exp2() + x.log2()
        } else if which == 5 {
            x.ln_1p() + x.exp_m1()
        } else if which == 6 {
            x.tan()
        } else if which == 7 {
            erf(x)
        } else {
            x.powf(1.7)
        }
    }

    #[panoply::kernel]
    fn run(x: &[f32], which: usize, out: &mut [f32]) {
        let i = global_index();
        out[i] = function(x[i], which);
    }

    let x: Vec<f32> = (1..40).map(|i| i as f32 * 0.07).collect();
    for which in 0..9 {
        let (input, mut out) = (crate::kernel::oracle::bytes(&x), vec![0; x.len() * 4]);
        let mut args = [
            panoply_ir::interpret::Arg::Read(&input),
            panoply_ir::interpret::Arg::Index(which),
            panoply_ir::interpret::Arg::Write(&mut out),
        ];
        crate::kernel::oracle::interpret(run::build().unwrap(), [x.len() as u64, 1, 1], &mut args);
        for (x, bits) in x.iter().zip(crate::kernel::oracle::bits(&out, 4)) {
            let (have, want) = (f32::from_bits(bits as u32), function(*x, which as usize));
            assert!((have - want).abs() <= 1e-6 * want.abs().max(1.0), "function {which} of {x}: {have}, rustc {want}");
        }
    }
}
