//! Fourier transforms against the sums of their definition in f64: various lengths, all kinds of transforms, rows and
//! columns, every instruction set, one thread and several.

use std::f64::consts::TAU;

use panoply_host::isa::Isa;
use panoply_host::pool::Pool;
use panoply_ir::routine::{Fourier, FourierKind, Routine};
use panoply_ir::{Element, Scalar};
use panoply_routines::{offers, run};

/// Returns pseudo-random numbers from -1 to 1.
fn numbers(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed;
    let mut number = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    (0..count).map(|_| number()).collect()
}

/// Computes the definition for one line.
fn sums(kind: FourierKind, n: usize, x: &[f64]) -> Vec<f64> {
    let pair = |k: usize| [x[2 * k], x[2 * k + 1]];
    let real = |k: usize| if n - k < k { [pair(n - k)[0], -pair(n - k)[1]] } else { pair(k) };
    // The imaginary part of these numbers is ignored.
    let whole = |k: usize| if k == 0 || 2 * k == n { [pair(k)[0], 0.0] } else { real(k) };
    let (given, sign): (Vec<[f64; 2]>, f64) = match kind {
        FourierKind::Forward => ((0..n).map(pair).collect(), -1.0),
        FourierKind::Backward => ((0..n).map(pair).collect(), 1.0),
        FourierKind::RealToComplex => (x.iter().map(|x| [*x, 0.0]).collect(), -1.0),
        FourierKind::ComplexToReal => ((0..n).map(whole).collect(), 1.0),
    };
    let roots: Vec<(f64, f64)> = (0..n).map(|k| (sign * TAU * k as f64 / n as f64).sin_cos()).collect();
    let sum = |k: usize| {
        given.iter().enumerate().fold([0.0; 2], |[a, b], (j, [re, im])| {
            let (sine, cosine) = roots[j * k % n];
            [a + re * cosine - im * sine, b + re * sine + im * cosine]
        })
    };
    match kind {
        FourierKind::Forward | FourierKind::Backward => (0..n).flat_map(sum).collect(),
        FourierKind::RealToComplex => (0..=n / 2).flat_map(sum).collect(),
        FourierKind::ComplexToReal => (0..n).map(|k| sum(k)[0]).collect(),
    }
}

/// Computes the definition along the middle axis.
fn want(of: &Fourier, x: &[f64]) -> Vec<f64> {
    let Fourier { kind, length, outer, inner, .. } = *of;
    let [read, written] = kind.elems(length);
    let (wide, narrow) = (
        if kind == FourierKind::RealToComplex { 1 } else { 2 },
        if kind == FourierKind::ComplexToReal { 1 } else { 2 },
    );
    let mut result = vec![0.0; outer * written * inner];
    for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
        let place = |elems: usize, parts: usize, at: usize| {
            o * elems * inner + at / parts * inner * parts + i * parts + at % parts
        };
        let line: Vec<f64> = (0..read).map(|at| x[place(read, wide, at)]).collect();
        for (at, sum) in sums(kind, length, &line).into_iter().enumerate() {
            result[place(written, narrow, at)] = sum * of.scale.to_f64();
        }
    }
    result
}

/// Checks that the largest difference, relative to the root mean square, is within a limit.
fn check<T: Element>(pool: &Pool, isa: Isa, of: Fourier, rounded: fn(f64) -> T, limit: f64) {
    let routine = Routine::Fourier(of);
    assert!(offers(&routine), "{routine}");
    let [read, written] = of.kind.elems(of.length).map(|elems| of.outer * elems * of.inner);
    let value = |x: &T| Into::<Scalar>::into(*x).to_f64();
    let mut from: Vec<T> = numbers(of.length as u64, read).into_iter().map(rounded).collect();
    let mut to = vec![rounded(f64::NAN); written];
    let exact: Vec<f64> = from.iter().map(value).collect();
    let want = want(&of, &exact);
    // SAFETY: the vectors have the lengths of the routine.
    unsafe { run(pool, isa, &routine, &[from.as_mut_ptr().cast(), to.as_mut_ptr().cast()]) };
    let scale = (want.iter().map(|x| x * x).sum::<f64>() / want.len() as f64).sqrt();
    for (at, (have, want)) in to.iter().zip(&want).enumerate() {
        let have = value(have);
        assert!((have - want).abs() <= limit * scale, "{routine} on {isa}: element {at} is {have}, not {want}");
    }
    assert!(from.iter().map(value).eq(exact), "{routine} on {isa} changed its input");
}

const KINDS: [FourierKind; 4] =
    [FourierKind::Forward, FourierKind::Backward, FourierKind::RealToComplex, FourierKind::ComplexToReal];

fn both(pool: &Pool, isa: Isa, kind: FourierKind, [outer, length, inner]: [usize; 3], scale: f64) {
    let of = |scale: Scalar| Fourier { dtype: scale.dtype, kind, outer, length, inner, scale };
    check(pool, isa, of((scale as f32).into()), |x| x as f32, 2e-6);
    check(pool, isa, of(scale.into()), |x| x, 2e-14);
}

#[test]
fn lines_of_all_lengths_equal_the_definition() {
    let pool = Pool::new(1);
    let lengths =
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 16, 17, 97, 100, 127, 128, 131, 200, 257, 262, 1000, 1013, 1024];
    for (n, kind) in lengths.into_iter().flat_map(|n| KINDS.map(|kind| (n, kind))) {
        for isa in Isa::available() {
            both(&pool, isa, kind, [1, n, 1], 1.0);
        }
    }
}

#[test]
fn rows_and_columns_equal_the_definition() {
    for (threads, kind) in [1, 3].into_iter().flat_map(|threads| KINDS.map(|kind| (threads, kind))) {
        let pool = Pool::new(threads);
        for shape in [[700, 3, 1], [300, 130, 1], [3, 64, 5], [2, 75, 33], [5, 1, 7], [1, 256, 100], [40, 2, 50]] {
            both(&pool, Isa::best(), kind, shape, 0.3);
        }
    }
}

#[test]
fn a_long_wave_has_one_frequency() {
    for (threads, n, at) in [(1, 1 << 16, 12345), (2, 1 << 17, 77), (3, 30_011, 29_000), (2, 1 << 16 | 2, 9)] {
        let pool = Pool::new(threads);
        let wave = |j: usize| {
            let (sine, cosine) = (TAU * (j * at % n) as f64 / n as f64).sin_cos();
            [cosine, sine]
        };
        let mut from: Vec<f64> = (0..n).flat_map(wave).collect();
        let mut to = vec![f64::NAN; 2 * n];
        let (dtype, kind) = (f64::DTYPE, FourierKind::Forward);
        let routine = Routine::Fourier(Fourier { dtype, kind, outer: 1, length: n, inner: 1, scale: 1.0.into() });
        // SAFETY: the vectors have the lengths of the routine.
        unsafe { run(&pool, Isa::best(), &routine, &[from.as_mut_ptr().cast(), to.as_mut_ptr().cast()]) };
        for (k, pair) in to.as_chunks::<2>().0.iter().enumerate() {
            let want = if k == at { n as f64 } else { 0.0 };
            assert!((pair[0] - want).hypot(pair[1]) < 1e-11 * n as f64, "{n}: frequency {k} is {pair:?}");
        }
    }
}
