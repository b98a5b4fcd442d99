//! Bounds contain the values, and are as tight as those computed by hand.

use panoply_tensor::{Result, Rng, Tensor, program};
use panoply_verify::attack::uniform;
use panoply_verify::backward::{Rows, lower, tightened};
use panoply_verify::fuse;
use panoply_verify::steps::{Step, Steps};
use panoply_verify::{Arithmetic, Interval, values};

use super::Mlp;

fn compiled(run: &dyn Fn(&Tensor) -> Result<Tensor>, inputs: usize, arithmetic: Arithmetic) -> Steps {
    let zeros = Tensor::from_slice(&vec![0f32; inputs], [inputs]);
    fuse::compile(&program(|x| Ok(vec![run(&x[0])?]), &[&zeros]).unwrap(), arithmetic).unwrap()
}

fn boxed(inputs: usize, rng: &mut Rng) -> Vec<Interval> {
    let range = |_| {
        let (a, b) = (uniform(rng) * 4.0 - 2.0, uniform(rng) * 4.0 - 2.0);
        Interval::new(a, b)
    };
    (0..inputs).map(range).collect()
}

/// Name, number of inputs and function of a rule.
type Rule = (&'static str, usize, fn(&Tensor) -> Result<Tensor>);

fn constant(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, [values.len()])
}

/// Each rule where backward propagation passes it: before and after a ReLU.
const RULES: &[Rule] = &[
    ("add", 3, |x| Ok((x + x.flip(0)).relu() + x)),
    ("sub", 3, |x| Ok((x - x.flip(0)).relu() - x)),
    ("neg", 3, |x| Ok(-(-x).relu())),
    ("mul", 3, |x| Ok((x * constant(&[2.0, -3.0, 0.1])).relu() * -1.7)),
    ("div", 3, |x| Ok((x / constant(&[2.0, -3.0, 0.1])).relu() / 3.0)),
    ("matmul", 3, |x| {
        let weight = Tensor::from_slice(&[1f32, -2.0, 0.5, 0.25, 3.0, -1.0], [3, 2]);
        let again = Tensor::from_slice(&[0.3f32, -2.0, 1.0, 1.0], [2, 2]);
        Ok(x.unsqueeze(0).matmul(&weight).relu().matmul(&again).relu().squeeze(0))
    }),
    ("batched matmul", 8, |x| {
        let weight = Tensor::from_slice(&(0..12).map(|n| (n as f32 * 0.37).sin()).collect::<Vec<f32>>(), [2, 2, 3]);
        Ok(x.reshape([2, 2, 2]).matmul(&weight).relu().sum(0))
    }),
    ("constant on the left", 3, |x| {
        let weight = Tensor::from_slice(&[1f32, -2.0, 0.5, 0.25, 3.0, -1.0], [2, 3]);
        Ok(weight.matmul(&x.unsqueeze(1)).relu().squeeze(1))
    }),
    ("product of two", 3, |x| Ok((x * x.flip(0)).relu() - x)),
    ("matmul of two", 4, |x| {
        let square = x.reshape([2, 2]);
        Ok(square.matmul(&square.t()).relu().flatten(0, -1))
    }),
    ("movement", 6, |x| {
        let grid = x.reshape([2, 3]).t().relu();
        let moved = grid.pad(&[(1, 0), (0, 1)]).narrow(0, 1, 2);
        Ok((moved.flip(1) - moved.t().flatten(0, -1).unflatten(0, &[2, 3])).flatten(0, -1) - 1.0)
    }),
    ("concat", 4, |x| {
        let grid = x.reshape([2, 2]);
        let parts = [grid.relu(), grid.sum(1).unsqueeze(1) - 0.3, Tensor::from_slice(&[0.5f32, -0.5], [2, 1])];
        Ok((Tensor::concat(&parts, 1).relu() - 0.1).flatten(0, -1))
    }),
    ("concat of many", 2, |x| {
        let parts: Vec<Tensor> = (0..40).map(|n| x * (n as f32 * 0.1 - 2.0)).collect();
        Ok(Tensor::concat(&parts, 0).relu().reshape([8, 10]).sum(1))
    }),
    ("write", 4, |x| Ok(x.relu().slice_scatter(&(x.narrow(0, 0, 2) * 2.0), 0, &Tensor::scalar(1i32)) - x)),
    ("expand", 2, |x| Ok((x.unsqueeze(1) - x.unsqueeze(0)).relu().flatten(0, -1))),
    ("sum", 6, |x| Ok(x.reshape([2, 3]).relu().sum(1) - x.sum(0))),
    ("largest", 6, |x| Ok(x.reshape([2, 3]).max(1) - x.min(0))),
    ("leaky relu", 3, |x| Ok(x.leaky_relu(0.1).relu() - x)),
    ("clamp", 3, |x| Ok(x.clamp(-0.5, 0.7) + x.abs())),
    ("smaller and larger", 3, |x| Ok(x.minimum(&x.flip(0)) - x.maximum(&constant(&[0.0, 0.5, -0.5])))),
    ("rounding", 3, |x| Ok(x.floor() + (x * 2.0).round() - x.ceil())),
    ("root", 3, |x| Ok((x.abs() + 0.5).sqrt() - x)),
    ("reuse", 3, |x| {
        let hidden = (x * 2.0 - 0.3).relu();
        Ok((&hidden + x).relu() - &hidden + (hidden.flip(0) - x).relu())
    }),
    ("call", 3, |x| Ok(x.relu6() - x)),
    ("gated", 4, |x| Ok((x.silu() * x.flip(0).sigmoid()).relu() - x)),
    ("quotient of two", 3, |x| Ok(x / (x.flip(0).square() + 0.5) - x.exp())),
    ("softmax", 3, |x| Ok(x.softmax(0) * 2.0 + x)),
    ("layer norm", 4, |x| {
        let centered = x - x.mean(0);
        Ok(&centered / ((&centered * &centered).mean(0) + 0.1).sqrt())
    }),
    ("smooth layers", 3, |x| {
        let weight = Tensor::from_slice(&[1f32, -2.0, 0.5, 0.25, 3.0, -1.0, 0.3, 0.1, -0.7], [3, 3]);
        Ok(x.unsqueeze(0).matmul(&weight).tanh().matmul(&weight).gelu().matmul(&weight).softplus().squeeze(0))
    }),
];

/// At random points of random boxes, the value of each step is within its bounds, and the value of each row is above its linear bound.
#[test]
fn bounds_contain_values() {
    let mut rng = Rng::seed_from_u64(11);
    for (name, inputs, run) in RULES {
        for arithmetic in [Arithmetic::Real, Arithmetic::Float] {
            let steps = compiled(run, *inputs, arithmetic);
            let real = compiled(run, *inputs, Arithmetic::Real);
            assert_eq!(steps.unknown, None, "{name}");
            for _ in 0..40 {
                contained(name, &steps, &real, &boxed(*inputs, &mut rng), &mut rng);
            }
        }
    }
    for seed in 0..20 {
        let mut rng = Rng::seed_from_u64(seed);
        let network = Mlp::random(&[3, 12, 9, 7, 4], &mut rng);
        let steps = compiled(&|x| network.forward(x), 3, Arithmetic::Float);
        let real = compiled(&|x| network.forward(x), 3, Arithmetic::Real);
        (0..10).for_each(|_| contained("network", &steps, &real, &boxed(3, &mut rng), &mut rng));
    }
}

fn contained(name: &str, steps: &Steps, real: &Steps, input: &[Interval], rng: &mut Rng) {
    let (bounds, _) = tightened(steps, input, &[]);
    let (outputs, count) = (steps.steps[steps.output].numel, 3);
    let coefficient = |_| uniform(rng) * 2.0 - 1.0;
    let output: Vec<f64> = (0..count * outputs).map(coefficient).collect();
    let extra: Vec<f64> = (0..count * input.len()).map(|_| uniform(rng) - 0.5).collect();
    let rows = Rows { count, output: output.clone(), input: extra.clone() };
    let found = lower(steps, &bounds, steps.output, rows);
    for _ in 0..30 {
        let inside = |x: &Interval| (x.lo + uniform(rng) * (x.hi - x.lo)).clamp(x.lo, x.hi);
        let point: Vec<f64> = input.iter().map(inside).collect();
        let points: Vec<Interval> = point.iter().map(|x| Interval::point(*x)).collect();
        let exact = values::forward(real, &points);
        for (id, (bound, exact)) in bounds.iter().zip(&exact).enumerate() {
            for (bound, exact) in bound.elements.iter().zip(exact.elements.iter()) {
                let within = bound.lo <= exact.hi && exact.lo <= bound.hi;
                assert!(within, "{name}: step {id} {:?}: {exact:?} is not in {bound:?}", steps.steps[id].step);
            }
        }
        let y = &exact[real.output].elements;
        for row in 0..count {
            let of =
                |coefficients: &[f64], values: &[f64]| coefficients.iter().zip(values).map(|(a, x)| a * x).sum::<f64>();
            let middles: Vec<f64> = y.iter().map(|y| 0.5 * (y.lo + y.hi)).collect();
            let value = of(&output[row * outputs..][..outputs], &middles)
                + of(&extra[row * input.len()..][..input.len()], &point);
            let slopes = &found.slopes[row * input.len()..][..input.len()];
            let corner = |(x, slope): (&Interval, &f64)| if *slope > 0.0 { x.lo } else { x.hi };
            let corners = input.iter().zip(slopes).map(corner);
            let rise: f64 =
                point.iter().zip(corners).zip(slopes).map(|((x, corner), slope)| slope * (x - corner)).sum();
            let bound = found.bounds[row] + rise;
            assert!(bound <= value + 1e-9, "{name}: row {row}: the bound {bound} is above the value {value}");
        }
    }
}

/// y = relu(x₀ + x₁) + relu(x₀ - x₁) on [-1, 1]²: both ReLUs are below 0.5·z + 1, so y ≤ x₀ + 2, while intervals give y ≤ 4.
#[test]
fn linear_bounds_computed_by_hand() {
    let run = |x: &Tensor| {
        let sums = Tensor::from_slice(&[1f32, 1.0, 1.0, -1.0], [2, 2]);
        Ok(x.unsqueeze(0).matmul(&sums).relu().sum(1))
    };
    let steps = compiled(&run, 2, Arithmetic::Real);
    let input = [Interval { lo: -1.0, hi: 1.0 }; 2];
    let (bounds, _) = tightened(&steps, &input, &[]);
    let rows = |coefficient| Rows { count: 1, output: vec![coefficient], input: Vec::new() };
    let above = lower(&steps, &bounds, steps.output, rows(-1.0));
    assert!((above.bounds[0] + 3.0).abs() < 1e-12 && above.bounds[0] < -3.0, "{above:?}");
    assert_eq!(above.slopes, [-1.0, 0.0]);
    let below = lower(&steps, &bounds, steps.output, rows(1.0));
    assert!(below.bounds[0].abs() < 1e-12 && below.bounds[0] < 0.0, "{below:?}");
    let plain = bounds[steps.output].elements[0];
    assert!((plain.hi - 4.0).abs() < 1e-12 && plain.hi > 4.0 && plain.lo.abs() < 1e-12, "{plain:?}");
}

/// The bounds of the second layer come from backward propagation, not from intervals: 2·relu(x) - relu(x) - relu(x) is 0.
#[test]
fn operands_of_relus_are_tightened() {
    let run = |x: &Tensor| Ok((x.relu() * 2.0 - x.relu() - x.relu()).relu());
    let steps = compiled(&run, 1, Arithmetic::Real);
    let (bounds, known) = tightened(&steps, &[Interval { lo: 0.5, hi: 1.0 }], &[]);
    assert!(bounds[steps.output].elements[0].hi < 1e-12, "{:?}", bounds[steps.output]);
    assert!(known.last().unwrap()[0].magnitude() < 1e-12);
}

/// f32 sums in any order stay within the bounds of Float: 1 + 2⁻²⁴ + … loses or keeps the small terms.
#[test]
fn float_bounds_contain_every_order_of_a_sum() {
    let tiny = f64::from(f32::EPSILON) / 2.0;
    let terms: Vec<f32> = std::iter::once(1.0).chain((0..64).map(|_| tiny as f32)).collect();
    let run = |x: &Tensor| Ok((x * Tensor::from_slice(&[1f32; 65], [65])).sum(0).unsqueeze(0));
    let steps = compiled(&run, 65, Arithmetic::Float);
    let input: Vec<Interval> = terms.iter().map(|x| Interval::point(f64::from(*x))).collect();
    let bounds = values::forward(&steps, &input);
    let sum = bounds[steps.output].elements[0];
    let forwards = terms.iter().fold(0f32, |sum, x| sum + x);
    let backwards = terms.iter().rev().fold(0f32, |sum, x| sum + x);
    assert!(forwards != backwards);
    for value in [f64::from(forwards), f64::from(backwards), 1.0 + 64.0 * tiny] {
        assert!(sum.lo <= value && value <= sum.hi, "{value} is not in {sum:?}");
    }
    assert!(sum.hi - sum.lo < 1e-4, "{sum:?}");
    // In real arithmetic there is one sum.
    let real = compiled(&run, 65, Arithmetic::Real);
    let sum = values::forward(&real, &input)[real.output].elements[0];
    assert!(sum.hi - sum.lo < 1e-12 && sum.lo <= 1.0 + 64.0 * tiny && sum.hi >= 1.0 + 64.0 * tiny);
}

/// Half precision and functions without a rule are unknown, and the operation is named.
#[test]
fn operations_without_a_rule_are_unknown() {
    let half = |x: &Tensor| Ok((x.cast(panoply_tensor::DType::F16) * 2.0).cast(panoply_tensor::DType::F32));
    let steps = compiled(&half, 1, Arithmetic::Float);
    let bounds = values::forward(&steps, &[Interval::point(1.0)]);
    assert_eq!(bounds[steps.output].elements[0], Interval::ENTIRE);
    let steps = compiled(&|x: &Tensor| Ok(x.cumsum(0)), 1, Arithmetic::Real);
    assert!(steps.unknown.is_some());
    assert!(matches!(steps.steps[steps.output].step, Step::Unknown));
}
