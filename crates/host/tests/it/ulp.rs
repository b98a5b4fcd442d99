//! Maximum errors of the functions of `math` in units in the last place, and their special values as in Annex F of C.
//!
//! The oracle is the platform's C library as `std` calls it, in f64 for both widths; for f64 it is itself up to 1 ULP off.
//! By default a sample is taken. With `PANOPLY_TEST_FULL=1` every f32 is tried, and many more f64. The maxima are printed
//! either way: `cargo test -p panoply-cpu --test it ulp -- --nocapture`.

#[allow(dead_code)]
mod blocks;
mod ulps;

use blocks::{Level, Unary};
use panoply_host::math::{double, single};
use ulps::{Worst, random, ulps_f32, ulps_f64};

/// Number of values computed at a time.
const BLOCK: usize = 4096;

/// The maximum errors promised for f32 and f64.
const LIMIT_F32: f64 = 2.0;
const LIMIT_F64: f64 = 4.0;

unsafe extern "C" {
    safe fn erf(x: f64) -> f64;
}

fn full() -> bool {
    std::env::var("PANOPLY_TEST_FULL").is_ok_and(|value| value == "1")
}

/// Returns the reference function, and the maximum ULP if it is less than the promised one.
fn oracle(name: &str) -> (fn(f64) -> f64, Option<f64>) {
    match name {
        "exp" => (f64::exp, None),
        "exp2" => (f64::exp2, None),
        "expm1" => (f64::exp_m1, None),
        "ln" => (f64::ln, None),
        "log2" => (f64::log2, None),
        "log1p" => (f64::ln_1p, None),
        "sin" | "sin_near" => (f64::sin, None),
        "cos" | "cos_near" => (f64::cos, None),
        "tan" | "tan_near" => (f64::tan, None),
        "atan" => (f64::atan, None),
        "tanh" => (f64::tanh, None),
        "erf" => (|x| erf(x), None),
        "rsqrt" => (|x| 1.0 / x.sqrt(), None),
        "sqrt" => (f64::sqrt, Some(0.5)),
        "floor" => (f64::floor, Some(0.0)),
        "ceil" => (f64::ceil, Some(0.0)),
        "round" => (f64::round_ties_even, Some(0.0)),
        "trunc" => (f64::trunc, Some(0.0)),
        _ => panic!("no oracle for {name}"),
    }
}

/// Returns the magnitude below which a function is accurate.
fn reach(name: &str, near: f64) -> f64 {
    if name.ends_with("_near") { near } else { f64::INFINITY }
}

/// Returns true if x is within reach; NaN always is.
fn within(x: f64, reach: f64) -> bool {
    reach == f64::INFINITY || x.abs() < reach || x.is_nan()
}

/// Returns numbers at which the behavior changes: special values, overflow, underflow, and boundaries of intervals.
fn edges() -> Vec<f64> {
    let mut edges = vec![0.0, f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE, 5e-324, 1e-310];
    edges.extend([f32::MAX as f64, f32::MIN_POSITIVE as f64, f32::from_bits(1) as f64, 1e-40]);
    edges.extend([0.414_213_56, 2.414_213_6, 0.6, 0.92, 1.0, 0.5, 0.25, 2.0, 4.0, 5.95, 6.0, 9.0, 10.0, 18.0, 38.0]);
    edges
        .extend([87.3, 88.7, 89.0, 103.9, 104.0, 708.3, 709.7, 710.0, 745.1, 746.0, 126.0, 127.0, 128.0, 149.0, 150.0]);
    edges.extend([1022.0, 1023.0, 1024.0, 1074.0, 1075.0, 1076.0, 262_144.0, 32_768.0, 8_388_608.0, 1e9, 1e18, 1e22]);
    edges.extend((1..40).map(|n| n as f64 * std::f64::consts::FRAC_PI_4));
    edges.extend((1..40).map(|n| n as f64 * 0.5 * std::f64::consts::LN_2));
    // The f32 closest to a multiple of pi / 2.
    edges.push(16_367_173.0 * 2f64.powi(72));
    edges.extend((-1074..1024).map(|n| 2f64.powi(n)));
    let neighbors =
        |x: f64| [x, x.next_up(), x.next_down(), (x as f32).next_up() as f64, (x as f32).next_down() as f64];
    edges.iter().flat_map(|x| neighbors(*x)).flat_map(|x| [x, -x]).collect()
}

/// Tests one f32 function on the bit patterns `first, first + step ..`.
fn sweep_f32(name: &str, levels: &[Level], block: Unary<f32>, first: u64, step: u64, worst: &mut [Worst]) {
    let (truth, _) = oracle(name);
    let reach = reach(name, single::NEAR as f64);
    let mut x = Vec::with_capacity(BLOCK);
    for start in (first..1 << 32).step_by(step as usize * BLOCK) {
        let patterns = (start..1 << 32).step_by(step as usize).take(BLOCK);
        x.clear();
        x.extend(patterns.map(|bits| f32::from_bits(bits as u32)).filter(|x| within(*x as f64, reach)));
        compare_f32(truth, levels, block, &x, worst);
    }
}

fn compare_f32(truth: fn(f64) -> f64, levels: &[Level], block: Unary<f32>, x: &[f32], worst: &mut [Worst]) {
    let (mut out, mut exact) = ([0f32; BLOCK], [0f64; BLOCK]);
    let (out, exact) = (&mut out[..x.len()], &mut exact[..x.len()]);
    for (x, exact) in x.iter().zip(&mut *exact) {
        *exact = truth(*x as f64);
    }
    for (level, worst) in levels.iter().zip(worst) {
        block(*level, x, out);
        let most = out.iter().zip(&*exact).map(|(y, exact)| ulps_f32(*y, *exact)).fold(0.0, f64::max);
        if most > worst.ulps {
            let at = (0..x.len()).find(|at| ulps_f32(out[*at], exact[*at]) == most).expect("it is in the block");
            let (x, y, exact) = (x[at], out[at], exact[at]);
            worst.see(most, || format!("{x:e} ({:#010x}): {y:e}, exactly {exact:e}", x.to_bits()));
        }
    }
}

#[test]
fn f32_functions_are_within_the_promised_ulp() {
    let levels = Level::available();
    let threads = if full() { 2 } else { 1 };
    let step = if full() { threads } else { 4099 };
    println!("f32, {}: maximum ULP on {levels:?}", if full() { "all values" } else { "every 4099th value" });
    let mut failures = Vec::new();
    for (name, block) in blocks::unary_f32() {
        let (truth, own) = oracle(name);
        let mut worst = vec![Worst::default(); levels.len()];
        let edges: Vec<f32> = edges().iter().map(|x| *x as f32).collect();
        for x in edges.chunks(BLOCK) {
            let reach = reach(name, single::NEAR as f64);
            let x: Vec<f32> = x.iter().copied().filter(|x| within(*x as f64, reach)).collect();
            compare_f32(truth, &levels, block, &x, &mut worst);
        }
        let parts: Vec<Vec<Worst>> = std::thread::scope(|scope| {
            let levels = &levels;
            let workers: Vec<_> = (0..threads)
                .map(|first| {
                    scope.spawn(move || {
                        let mut worst = vec![Worst::default(); levels.len()];
                        sweep_f32(name, levels, block, first, step, &mut worst);
                        worst
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().expect("a sweep does not panic")).collect()
        });
        for part in parts {
            worst.iter_mut().zip(part).for_each(|(worst, part)| worst.merge(part));
        }
        report(name, &levels, &worst, own.unwrap_or(LIMIT_F32), &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn f64_functions_are_within_the_promised_ulp() {
    let levels = Level::available();
    let rounds = if full() { 8192 } else { 32 };
    let seed = 7;
    println!("f64, {} random values, seed {seed}: maximum ULP on {levels:?}", rounds * BLOCK);
    let mut failures = Vec::new();
    for (name, block) in blocks::unary_f64() {
        let (truth, own) = oracle(name);
        let mut worst = vec![Worst::default(); levels.len()];
        let mut state = seed;
        let edges = edges();
        let mut try_all = |x: &mut dyn Iterator<Item = f64>| {
            let reach = reach(name, double::NEAR);
            let x: Vec<f64> = x.filter(|x| within(*x, reach)).collect();
            let mut y = vec![0f64; x.len()];
            let exact: Vec<f64> = x.iter().map(|x| truth(*x)).collect();
            for (level, worst) in levels.iter().zip(&mut worst) {
                block(*level, &x, &mut y);
                for ((x, y), exact) in x.iter().zip(&y).zip(&exact) {
                    worst.see(ulps_f64(*y, *exact), || {
                        format!("{x:e} ({:#018x}): {y:e}, exactly {exact:e}", x.to_bits())
                    });
                }
            }
        };
        try_all(&mut edges.iter().copied());
        for _ in 0..rounds {
            try_all(&mut (0..BLOCK).map(|n| random::float(&mut state, n)));
        }
        report(name, &levels, &worst, own.unwrap_or(LIMIT_F64), &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn pow_is_within_the_promised_ulp_including_special_cases() {
    let levels = Level::available();
    let rounds = if full() { 65_536 } else { 128 };
    let seed = 11;
    println!("pow, {} random pairs, seed {seed}: maximum ULP on {levels:?}", rounds * BLOCK);
    let mut specials =
        vec![0.0, 1.0, 0.5, 2.0, 3.0, 2.5, 1e30, 1e-30, 8_388_609.0, 16_777_217.0, 4_503_599_627_370_497.0];
    specials.extend([f64::INFINITY, f64::NAN, f32::MAX as f64, f32::MIN_POSITIVE as f64, 1e-40, 1e300, 1e-310]);
    specials.extend([1.0 + f64::EPSILON, 1.0 - f64::EPSILON, 1.0 + f32::EPSILON as f64, 1.0 - f32::EPSILON as f64]);
    let specials: Vec<f64> = specials.into_iter().flat_map(|x| [x, -x]).collect();
    let pairs = || specials.iter().flat_map(|x| specials.iter().map(move |y| (*x, *y)));
    let (mut worst_f32, mut worst_f64) = (vec![Worst::default(); levels.len()], vec![Worst::default(); levels.len()]);
    let mut state = seed;
    for round in 0..=rounds {
        let all: Vec<(f64, f64)> =
            if round == 0 { pairs().collect() } else { (0..BLOCK).map(|n| random::powers(&mut state, n)).collect() };
        pow_f32(&levels, &all, &mut worst_f32);
        pow_f64(&levels, &all, &mut worst_f64);
    }
    let mut failures = Vec::new();
    report("pow f32", &levels, &worst_f32, LIMIT_F32, &mut failures);
    report("pow f64", &levels, &worst_f64, LIMIT_F64, &mut failures);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn pow_f32(levels: &[Level], pairs: &[(f64, f64)], worst: &mut [Worst]) {
    let (x, y): (Vec<f32>, Vec<f32>) = pairs.iter().map(|(x, y)| (*x as f32, *y as f32)).unzip();
    let mut z = vec![0f32; x.len()];
    let block = find(&blocks::binary_f32(), "pow");
    for (level, worst) in levels.iter().zip(worst) {
        block(*level, &x, &y, &mut z);
        for ((x, y), z) in x.iter().zip(&y).zip(&z) {
            let exact = (*x as f64).powf(*y as f64);
            worst.see(ulps_f32(*z, exact), || format!("{x:e} to {y:e}: {z:e}, exactly {exact:e}"));
        }
    }
}

fn pow_f64(levels: &[Level], pairs: &[(f64, f64)], worst: &mut [Worst]) {
    let (x, y): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let mut z = vec![0f64; x.len()];
    let block = find(&blocks::binary_f64(), "pow");
    for (level, worst) in levels.iter().zip(worst) {
        block(*level, &x, &y, &mut z);
        for ((x, y), z) in x.iter().zip(&y).zip(&z) {
            let exact = x.powf(*y);
            worst.see(ulps_f64(*z, exact), || format!("{x:e} to {y:e}: {z:e}, exactly {exact:e}"));
        }
    }
}

/// The C library's `fma` is exact, so the results must be equal.
#[test]
fn fma_rounds_once() {
    let mut state = 13;
    let rounds = if full() { 16_384 } else { 64 };
    let (_, block) = blocks::ternary_f32()[0];
    for _ in 0..rounds {
        // Exponents are close together, so that the sum cancels, rounds halfway and becomes denormal.
        let (mut a, mut b, mut c, mut out) = (vec![], vec![], vec![], vec![0f32; BLOCK]);
        for n in 0..BLOCK {
            let [x, y, z] = random::products(&mut state, n);
            a.push(x);
            b.push(y);
            c.push(z);
        }
        for level in Level::available() {
            block(level, &a, &b, &c, &mut out);
            for i in 0..BLOCK {
                let want = a[i].mul_add(b[i], c[i]);
                let same = out[i].to_bits() == want.to_bits() || out[i].is_nan() && want.is_nan();
                assert!(same, "{level:?}: fma({:e}, {:e}, {:e}) is {want:e}, not {:e}", a[i], b[i], c[i], out[i]);
            }
        }
    }
}

/// The near variants may replace the others for a whole block, so their results must not differ.
#[test]
fn near_variants_agree() {
    let mut state = 17;
    for name in ["sin", "cos", "tan"] {
        let numbers: Vec<f64> = (0..1 << 18).map(|n| random::float(&mut state, n)).chain(edges()).collect();
        let (single, double) = (numbers.iter().map(|x| *x as f32).collect::<Vec<_>>(), numbers);
        let single: Vec<f32> = single.into_iter().filter(|x| x.abs() < single::NEAR).collect();
        let double: Vec<f64> = double.into_iter().filter(|x| x.abs() < double::NEAR).collect();
        agree(name, &blocks::unary_f32(), &single, |x| x.to_bits() as u64);
        agree(name, &blocks::unary_f64(), &double, |x| x.to_bits());
    }
}

fn agree<T: Copy + Default + std::fmt::Debug>(name: &str, blocks: &[(&str, Unary<T>)], x: &[T], bits: fn(T) -> u64) {
    let (mut far, mut near) = (vec![T::default(); x.len()], vec![T::default(); x.len()]);
    for level in Level::available() {
        find(blocks, name)(level, x, &mut far);
        find(blocks, &format!("{name}_near"))(level, x, &mut near);
        let differ = (0..x.len()).find(|at| bits(far[*at]) != bits(near[*at]));
        assert!(differ.is_none(), "{name} on {level:?}: {:?}", differ.map(|at| (x[at], far[at], near[at])));
    }
}

/// The f64 closest to a multiple of pi / 2, and its cosine, from J.-M. Muller's book, table 11.1. The C library's result is wrong.
#[test]
fn the_hardest_angle_is_reduced_exactly() {
    let x = [6_381_956_970_095_103.0 * 2f64.powi(797)];
    for level in Level::available() {
        let mut y = [0.0];
        find(&blocks::unary_f64(), "cos")(level, &x, &mut y);
        assert!(ulps_f64(y[0], -4.687_165_924_254_628e-19) <= 1.0, "{level:?}: {:e}", y[0]);
    }
}

/// The remainder is exact in both implementations.
#[test]
fn rem_is_exact() {
    let mut state = 19;
    let rounds = if full() { 16_384 } else { 128 };
    let (far, specials) = (find(&blocks::binary_f32(), "rem"), edges());
    for round in 0..rounds {
        let (mut x, mut y, mut out) = (vec![], vec![], vec![0f32; BLOCK]);
        for n in 0..BLOCK {
            let special = specials[(round * BLOCK + n) / 4 % specials.len()];
            x.push(if n % 7 == 0 { special } else { random::float(&mut state, n) } as f32);
            y.push(if n % 5 == 0 { special } else { random::float(&mut state, n / 4) } as f32);
        }
        for level in Level::available() {
            far(level, &x, &y, &mut out);
            check_rem(level, &x, &y, &out);
        }
        let near = |n: &usize| x[*n].abs() <= single::NEAR_QUOTIENT * y[*n].abs();
        let (x, y): (Vec<f32>, Vec<f32>) = (0..BLOCK).filter(near).map(|n| (x[n], y[n])).unzip();
        for level in Level::available() {
            blocks::REM_NEAR(level, &x, &y, &mut out[..x.len()]);
            check_rem(level, &x, &y, &out[..x.len()]);
        }
    }
}

fn check_rem(level: Level, x: &[f32], y: &[f32], out: &[f32]) {
    for ((x, y), out) in x.iter().zip(y).zip(out) {
        let want = x % y;
        let same = out.to_bits() == want.to_bits() || out.is_nan() && want.is_nan();
        assert!(same, "{level:?}: {x:e} % {y:e} is {want:e}, not {out:e}");
    }
}

fn find<F: Copy>(table: &[(&str, F)], name: &str) -> F {
    table.iter().find(|(own, _)| *own == name).expect("the table has this function").1
}

fn report(name: &str, levels: &[Level], worst: &[Worst], limit: f64, failures: &mut Vec<String>) {
    let row: Vec<String> = worst.iter().map(|worst| format!("{:.3}", worst.ulps)).collect();
    println!("| {name} | {} |", row.join(" | "));
    for (level, worst) in levels.iter().zip(worst) {
        if worst.ulps > limit {
            failures.push(format!("{name} on {level:?}: {:.3} ULP, {limit} allowed, at {}", worst.ulps, worst.place));
        }
    }
}
