//! Sorting against the standard library's stable sort: every type, both directions, partial sorts, rows for one thread
//! and for several.

use std::cmp::Ordering;
use std::fmt::Debug;

use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::routine::{Routine, Sort};
use panoply_ir::{Element, bf16, f16};
use panoply_routines::{offers, run};

fn words(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 20
    }
}

/// Checks sorts; `bits` maps elements to bits, so that NaNs can be compared.
fn check<T: Element + Debug>(of: impl Fn(u64) -> T, order: fn(&T, &T) -> Ordering, bits: fn(T) -> u64) {
    let mut word = words(1);
    for (rows, length, count) in
        [(1, 1, 1), (7, 5, 5), (40, 33, 9), (3, 1000, 1000), (1, 50_000, 50_000), (2, 40_000, 7)]
    {
        let input: Vec<T> = (0..rows * length).map(|_| of(word())).collect();
        for (descending, threads) in [(false, 1), (true, 1), (false, 3), (true, 4)] {
            let routine = Routine::Sort(Sort { dtype: T::DTYPE, rows, length, count, descending });
            assert!(offers(&routine));
            let (mut from, mut values, mut places) =
                (input.clone(), vec![of(0); rows * count], vec![-1i32; rows * count]);
            let buffers = [from.as_mut_ptr().cast(), values.as_mut_ptr().cast(), places.as_mut_ptr().cast()];
            // SAFETY: the vectors have the lengths of the routine.
            unsafe { run(&Pool::new(threads), Isa::best(), &routine, &buffers) };
            for row in 0..rows {
                let line = &input[row * length..][..length];
                let mut want: Vec<usize> = (0..length).collect();
                want.sort_by(|a, b| {
                    let order = order(&line[*a], &line[*b]);
                    if descending { order.reverse() } else { order }
                });
                for (at, want) in want[..count].iter().enumerate() {
                    let (value, place) = (values[row * count + at], places[row * count + at]);
                    assert_eq!(place as usize, *want, "{routine}: place {at} of row {row}");
                    assert_eq!(bits(value), bits(line[*want]), "{routine}: {value:?}");
                }
            }
        }
    }
}

/// Compares floats: NaN is greater than everything, and both zeros are equal.
fn floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Returns few different numbers, so that many are equal, and special values.
fn float(word: u64) -> f64 {
    let special = [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e-310, -1e-42];
    if word.is_multiple_of(5) { special[(word / 5 % 8) as usize] } else { (word % 2001) as f64 - 1000.0 }
}

#[test]
fn floats_are_sorted() {
    check(|word| float(word) as f32, |a, b| floats((*a).into(), (*b).into()), |x| x.to_bits().into());
    check(float, |a, b| floats(*a, *b), f64::to_bits);
    check(|word| f16::from_f64(float(word)), |a, b| floats((*a).into(), (*b).into()), |x| x.to_bits().into());
    check(|word| bf16::from_f64(float(word)), |a, b| floats((*a).into(), (*b).into()), |x| x.to_bits().into());
}

#[test]
fn integers_are_sorted() {
    check(|word| word as i32, i32::cmp, |x| x as u64);
    check(|word| word as i32 % 50, i32::cmp, |x| x as u64);
    check(|word| (word << 21) as i64, i64::cmp, |x| x as u64);
    check(|word| word as i8, i8::cmp, |x| x as u64);
    check(|word| word as i16, i16::cmp, |x| x as u64);
    check(|word| word as u8, u8::cmp, u64::from);
    check(|word| word as u16, u16::cmp, u64::from);
    check(|word| word as u32, u32::cmp, u64::from);
    check(|word| word << 20, u64::cmp, |x| x);
}
