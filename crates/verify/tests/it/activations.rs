//! Bounds of element-wise functions: on random intervals they contain densely sampled values computed in f64 by other formulas, and the f32
//! values of the device; lines are nearly as tight as the best ones.

use panoply_tensor::{DType, Device, Result, Rng, Tensor, program};
use panoply_verify::attack::uniform;
use panoply_verify::backward::{Rows, lower, tightened};
use panoply_verify::fuse;
use panoply_verify::steps::{Step, Steps};
use panoply_verify::{Arithmetic, Interval, Verdict};

use super::{answer, property};

/// Name, function, the same in f64, and the largest interval of inputs.
type Function = (&'static str, fn(&Tensor) -> Result<Tensor>, fn(f64) -> f64, (f64, f64));

/// Integrates the density by Simpson's rule.
fn erf(x: f64) -> f64 {
    let (count, density) = (2000, |t: f64| std::f64::consts::FRAC_2_SQRT_PI * (-t * t).exp());
    let step = x / f64::from(count);
    let weight = |n: i32| if n == 0 || n == count { 1.0 } else { f64::from(2 + 2 * (n % 2)) };
    (0..=count).map(|n| weight(n) * density(f64::from(n) * step)).sum::<f64>() * step / 3.0
}

/// Rounds to f32, as the constants of a function are.
fn single(x: f64) -> f64 {
    f64::from(x as f32)
}

fn gelu_tanh(x: f64) -> f64 {
    x * sigmoid(single((8.0 / std::f64::consts::PI).sqrt()) * (x + single(0.044715) * x.powi(3)))
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

const FUNCTIONS: &[Function] = &[
    ("sigmoid", |x| Ok(x.sigmoid()), sigmoid, (-120.0, 120.0)),
    ("tanh", |x| Ok(x.tanh()), f64::tanh, (-9.0, 9.0)),
    ("gelu", |x| Ok(x.gelu()), |x| 0.5 * x * (1.0 + erf(x * single(std::f64::consts::FRAC_1_SQRT_2))), (-6.0, 6.0)),
    ("gelu tanh", |x| Ok(x.gelu_tanh()), gelu_tanh, (-6.0, 6.0)),
    ("silu", |x| Ok(x.silu()), |x| x * sigmoid(x), (-30.0, 30.0)),
    ("softplus", |x| Ok(x.softplus()), softplus, (-20.0, 20.0)),
    ("mish", |x| Ok(x.mish()), |x| x * softplus(x).tanh(), (-9.0, 9.0)),
    ("exp", |x| Ok(x.exp()), f64::exp, (-9.0, 9.0)),
    ("log", |x| Ok(x.log()), f64::ln, (0.05, 9.0)),
    ("sqrt", |x| Ok(x.sqrt()), f64::sqrt, (0.0, 9.0)),
    ("reciprocal", |x| Ok(x.reciprocal()), |x| 1.0 / x, (0.1, 9.0)),
    ("quotient", |x| Ok((x - 1.0) / (x.square() + 1.0)), |x| (x - 1.0) / (x * x + 1.0), (-9.0, 9.0)),
    ("square", |x| Ok(x.square()), |x| x * x, (-9.0, 9.0)),
    ("cube", |x| Ok(x.pow(3.0)), |x| x.powi(3), (-4.0, 4.0)),
    ("power", |x| Ok(x.pow(1.7)), |x| x.powf(single(1.7)), (0.1, 4.0)),
    ("power of a sum", |x| Ok((x.abs() + 0.5).pow(0.3)), |x| (x.abs() + 0.5).powf(single(0.3)), (-4.0, 4.0)),
    ("root of a magnitude", |x| Ok((x.abs() * 2.0).sqrt()), |x| (x.abs() * 2.0).sqrt(), (0.01, 4.0)),
    ("abs", |x| Ok(x.abs()), f64::abs, (-9.0, 9.0)),
    ("clamp", |x| Ok(x.clamp(-0.5, 0.7)), |x| x.clamp(-0.5, single(0.7)), (-3.0, 3.0)),
    ("leaky relu", |x| Ok(x.leaky_relu(0.1)), |x| if x > 0.0 { x } else { single(0.1) * x }, (-9.0, 9.0)),
    ("elu", |x| Ok(x.elu()), |x| if x > 0.0 { x } else { x.exp_m1() }, (-9.0, 9.0)),
    ("hard swish", |x| Ok(x.hardswish()), |x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0, (-6.0, 6.0)),
    ("softsign", |x| Ok(x.softsign()), |x| x / (1.0 + x.abs()), (-9.0, 9.0)),
    ("sine", |x| Ok(x.sin() * 2.0 + x), |x| 2.0 * x.sin() + x, (-9.0, 9.0)),
    ("arc tangent", |x| Ok(x.atan()), f64::atan, (-9.0, 9.0)),
    (
        "a user's bump",
        |x| Ok((-(x - 0.3).square()).exp() * x.relu()),
        |x| (-(x - single(0.3)).powi(2)).exp() * x.max(0.0),
        (-3.0, 3.0),
    ),
    (
        "a jump",
        |x| Ok((x + 1.0).where_self(&x.lt(0.0), &(x - 1.0))),
        |x| if x < 0.0 { x + 1.0 } else { x - 1.0 },
        (-2.0, 2.0),
    ),
    ("steps", |x| Ok((x * 2.0).floor() + x), |x| (2.0 * x).floor() + x, (-2.0, 2.0)),
];

fn compiled(run: &dyn Fn(&Tensor) -> Result<Tensor>, inputs: usize, arithmetic: Arithmetic) -> Steps {
    let zeros = Tensor::from_slice(&vec![0f32; inputs], [inputs]);
    fuse::compile(&program(|x| Ok(vec![run(&x[0])?]), &[&zeros]).unwrap(), arithmetic).unwrap()
}

/// Returns the slope of the first input, the constant, and the interval of a function's lower line; the upper one is that of -y.
fn lines(steps: &Steps, input: Interval) -> ([[f64; 2]; 2], Interval) {
    let (bounds, _) = tightened(steps, &[input], &[]);
    let rows = Rows { count: 2, output: vec![1.0, -1.0], input: Vec::new() };
    let found = lower(steps, &bounds, steps.output, rows);
    let line = |row: usize| {
        let slope = found.slopes[row];
        [slope, found.bounds[row] - slope * if slope > 0.0 { input.lo } else { input.hi }]
    };
    ([line(0), line(1)], bounds[steps.output].elements[0])
}

#[test]
fn bounds_contain_dense_samples_and_are_tight() {
    let mut rng = Rng::seed_from_u64(23);
    for (name, run, value, (lo, hi)) in FUNCTIONS {
        let [real, float] = [Arithmetic::Real, Arithmetic::Float].map(|arithmetic| compiled(run, 1, arithmetic));
        assert!(real.unknown.is_none() && matches!(real.steps[real.output].step, Step::Univariate(..)), "{name}");
        let (mut found, mut best) = (0.0, 0.0);
        for n in 0..60 {
            // Wide and narrow intervals.
            let width = (hi - lo) * 0.5f64.powi(n % 8);
            let at = lo + uniform(&mut rng) * (hi - lo - width);
            let input = Interval::new(at, (at + width).min(*hi));
            let points: Vec<f64> = (0..=600).map(|n| input.lo + (input.hi - input.lo) * f64::from(n) / 600.0).collect();
            let values: Vec<f64> = points.iter().map(|x| value(x.clamp(input.lo, input.hi))).collect();
            let size = values.iter().fold(1.0, |most: f64, y| most.max(y.abs()));
            for (steps, tolerance) in [(&real, 1e-12 * size), (&float, 1e-12 * size)] {
                let ([below, above], interval) = lines(steps, input);
                for (x, y) in points.iter().zip(&values) {
                    let context = || format!("{name}: f({x}) = {y}, {input:?}, {below:?}, {above:?}, {interval:?}");
                    assert!(interval.lo <= y + tolerance && y - tolerance <= interval.hi, "{}", context());
                    assert!(below[0] * x + below[1] <= y + tolerance, "{}", context());
                    assert!(above[0] * x + above[1] <= -y + tolerance, "{}", context());
                }
            }
            let ([below, above], interval) = lines(&real, input);
            let middle = 0.5 * (input.lo + input.hi);
            found += (-(above[0] + below[0]) * middle - above[1] - below[1]) / size;
            best += (-hull(&points, &values, -1.0) - hull(&points, &values, 1.0)) / size;
            let range = values.iter().fold((f64::MAX, f64::MIN), |(lo, hi), y| (lo.min(*y), hi.max(*y)));
            let width = interval.hi - interval.lo;
            // A product at a step can be rounded below it.
            let is_tight = width <= 1.02 * (range.1 - range.0) + 1e-3 * size;
            assert!(is_tight || *name == "steps", "{name}: {interval:?} of {range:?} on {input:?}");
        }
        // Samples do not see all of a jump.
        let factor = if name.starts_with("a jump") || *name == "steps" { 1.2 } else { 1.02 };
        assert!(found <= factor * best + 1e-9, "{name}: the mean gap is {found}, that of the best lines {best}");
    }
}

/// Returns the value in the middle of the convex hull of sign·y: the largest of all lines that are below.
fn hull(points: &[f64], values: &[f64], sign: f64) -> f64 {
    let middle = 0.5 * (points[0] + points[points.len() - 1]);
    let mut least = f64::INFINITY;
    for (x, y) in points.iter().zip(values).filter(|(x, _)| **x <= middle) {
        for (other, z) in points.iter().zip(values).filter(|(x, _)| **x > middle) {
            least = least.min(sign * (y + (z - y) * (middle - x) / (other - x)));
        }
    }
    least
}

/// The f32 values of the device are within the bounds of Float, also of a single point.
#[test]
fn float_bounds_contain_the_values_of_the_device() {
    Device::get("cpu").unwrap().scope(|| {
        let mut rng = Rng::seed_from_u64(29);
        for (name, run, _, (lo, hi)) in FUNCTIONS {
            let steps = compiled(run, 1, Arithmetic::Float);
            let points: Vec<f32> = (0..2000).map(|_| (lo + uniform(&mut rng) * (hi - lo)) as f32).collect();
            let results = run(&Tensor::from_slice(&points, [points.len()])).unwrap().to_vec::<f32>().unwrap();
            for (x, y) in points.iter().zip(results) {
                let (x, y) = (f64::from(*x).clamp(*lo, *hi), f64::from(y));
                let ([below, above], interval) = lines(&steps, Interval::new(x, x));
                assert!(interval.lo <= y && y <= interval.hi, "{name}: f({x}) = {y}, {interval:?}");
                assert!(below[0] * x + below[1] <= y + 1e-12 * y.abs().max(1.0), "{name}: f({x}) = {y}, {below:?}");
                assert!(above[0] * x + above[1] <= -y + 1e-12 * y.abs().max(1.0), "{name}: f({x}) = {y}, {above:?}");
                let size = y.abs().max(1.0);
                assert!(interval.hi - interval.lo < 2e-3 * size, "{name}: f({x}) has the bounds {interval:?}");
            }
        }
    });
}

/// Undefined values in an interval have no bounds, and nothing is proven of them.
#[test]
fn undefined_values_are_unknown() {
    Device::get("cpu").unwrap().scope(|| {
        for run in [
            |x: &Tensor| Ok(x.log()),
            |x: &Tensor| Ok(x.sqrt()),
            |x: &Tensor| Ok(x.reciprocal()),
            |x: &Tensor| Ok((x * 1000.0).exp()),
            |x: &Tensor| Ok(x.pow(0.5)),
            |x: &Tensor| Ok(x.cast(DType::F16).exp().cast(DType::F32)),
        ] {
            let steps = compiled(&run, 1, Arithmetic::Float);
            let (bounds, interval) = lines(&steps, Interval::new(-1.0, 1.0));
            assert_eq!(interval, Interval::ENTIRE);
            assert!(bounds.iter().all(|line| line[1].is_nan() || line[1] == f64::NEG_INFINITY), "{bounds:?}");
            let zero = |x: &Tensor| Ok(run(x)?.unsqueeze(0).matmul(&Tensor::from_slice(&[0f32], [1, 1])).squeeze(0));
            let property = property(1, 1, (-1.0, 1.0), "(assert (>= Y_0 10))");
            let options = panoply_verify::Options { seconds: 0.3, ..Default::default() };
            let verdict = super::report(&zero, &property, &options).verdict;
            assert!(matches!(verdict, Verdict::Undecided(_)), "{verdict:?}");
        }
    });
}

/// Networks of smooth layers: verdicts about thresholds above and below the largest output of a dense grid.
#[test]
fn verdicts_of_smooth_networks_agree_with_a_grid() {
    Device::get("cpu").unwrap().scope(|| {
        let activations: [fn(&Tensor) -> Tensor; 6] =
            [Tensor::sigmoid, Tensor::tanh, Tensor::gelu, Tensor::silu, Tensor::softplus, Tensor::elu];
        let (mut proven, mut found) = (0, 0);
        for seed in 0..12 {
            let mut rng = Rng::seed_from_u64(seed);
            let network = super::Mlp::random(&[2, 6, 5, 2], &mut rng);
            let activation = activations[seed as usize % activations.len()];
            let run = |x: &Tensor| {
                let mut value = x.unsqueeze(0);
                for (n, (weight, bias)) in network.layers.iter().enumerate() {
                    let hidden = if n == 0 { value } else { activation(&value) };
                    let sizes = [weight.len() / bias.len(), bias.len()];
                    value = hidden.matmul(&Tensor::from_slice(weight, sizes)) + Tensor::from_slice(bias, [bias.len()]);
                }
                Ok(value.squeeze(0))
            };
            let at = |n: usize| (n as f32 / 40.0 * 2.0) - 1.0;
            let points: Vec<f32> = (0..41 * 41).flat_map(|n| [at(n / 41), at(n % 41)]).collect();
            let grid = Tensor::from_slice(&points, [41 * 41, 2]);
            let outputs = Tensor::vmap([&grid], |x: [&Tensor; 1]| [run(x[0]).unwrap()])[0].to_vec::<f32>().unwrap();
            let first = outputs.chunks_exact(2).map(|y| f64::from(y[0]));
            let (lo, hi) = first.fold((f64::MAX, f64::MIN), |(lo, hi), y| (lo.min(y), hi.max(y)));
            for threshold in [hi + 0.1 * (hi - lo), hi - 0.05 * (hi - lo)] {
                let property = property(2, 2, (-1.0, 1.0), &format!("(assert (>= Y_0 {threshold}))"));
                match answer(&run, &property, Arithmetic::Float) {
                    Verdict::Proven => {
                        assert!(threshold > hi, "seed {seed}: proven, but {hi} ≥ {threshold}");
                        proven += 1;
                    }
                    Verdict::Counterexample(point) => {
                        let y = run(&Tensor::from_slice(&point.input, [2])).unwrap().to_vec::<f32>().unwrap();
                        assert!(f64::from(y[0]) >= threshold, "seed {seed}: {point:?}");
                        found += 1;
                    }
                    Verdict::Undecided(why) => panic!("seed {seed}, threshold {threshold}: {why}"),
                }
            }
        }
        assert!(proven >= 10 && found >= 10, "{proven} proven, {found} counterexamples");
    });
}
