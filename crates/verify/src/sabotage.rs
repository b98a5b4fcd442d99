//! Mutation tests: with any one rule of bounding made wrong, a comparison with densely sampled values fails.

use panoply_ir::Alu;
use panoply_ir::alu::Math;
use panoply_ir::reduce::ReduceOp;
use panoply_tensor::{DType, Device, Result, Rng, Tensor, program};

use crate::attack::uniform;
use crate::backward::{Rows, lower, tightened, tightened_with};
use crate::dual;
use crate::fault::{self, Fault, Rule};
use crate::fuse;
use crate::interval::Interval;
use crate::leaf::Leaf;
use crate::property::{self, Constraint};
use crate::region::Open;
use crate::split::{Duals, Split};
use crate::steps::{self, Step, Steps};
use crate::values::{self, Arithmetic};

/// Name, number of inputs and function.
type Case = (&'static str, usize, fn(&Tensor) -> Result<Tensor>);

fn constant(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, [values.len()])
}

/// Functions that together use every rule, each in a place where a wrong bound is visible in the output.
const CASES: &[Case] = &[
    ("move", 3, |x| Ok(x.flip(0))),
    ("concat", 2, |x| Ok(Tensor::concat([&(x * 0.5), x], 0))),
    ("relu", 2, |x| Ok(x.relu())),
    ("relus", 2, |x| {
        let sums = Tensor::from_slice(&[1f32, 1.0, 1.0, -1.0], [2, 2]);
        Ok((x.unsqueeze(0).matmul(&sums) + 0.3).relu().matmul(&sums).relu().sum(1))
    }),
    ("cast", 2, |x| Ok(x.cast(DType::F64).cast(DType::F32))),
    ("neg", 2, |x| Ok(-x)),
    ("abs", 2, |x| Ok(x.abs())),
    ("floor", 2, |x| Ok((x * 4.0).floor())),
    ("ceil", 2, |x| Ok((x * 4.0).ceil())),
    ("round", 2, |x| Ok((x * 4.0).round())),
    ("trunc", 2, |x| Ok((x * 4.0).trunc())),
    ("sqrt", 2, |x| Ok((x.abs() + 0.1).sqrt())),
    ("root of a negative number", 2, |x| Ok(x.sqrt() + x)),
    ("add", 2, |x| Ok(x + x.flip(0) + 0.7)),
    ("sub", 2, |x| Ok(x - x.flip(0) - 0.7)),
    ("mul", 2, |x| Ok(x * 1.7)),
    ("mul of two", 2, |x| Ok(x * x.flip(0))),
    ("div", 2, |x| Ok(x / constant(&[0.3, -0.7]))),
    ("min", 2, |x| Ok(x.minimum(&x.flip(0)))),
    ("max", 2, |x| Ok(x.maximum(&x.flip(0)))),
    ("lt", 2, |x| Ok(x.lt(&x.flip(0)).cast(DType::F32))),
    ("le", 2, |x| Ok(x.le(&x.flip(0)).cast(DType::F32))),
    ("eq", 2, |x| Ok((x * 2.0).floor().eq(&(x.flip(0) * 2.0).floor()).cast(DType::F32))),
    ("ne", 2, |x| Ok((x * 2.0).floor().ne(&(x.flip(0) * 2.0).floor()).cast(DType::F32))),
    ("select", 2, |x| Ok(x.where_self(&x.lt(&x.flip(0)), &(x * 3.0)))),
    ("sum", 4, |x| Ok(x.reshape([2, 2]).sum(1))),
    ("largest", 4, |x| Ok(x.reshape([2, 2]).max(1))),
    ("smallest", 4, |x| Ok(x.reshape([2, 2]).min(1))),
    ("matmul", 3, |x| {
        let weight = Tensor::from_slice(&[1f32, -2.0, 0.5, 0.25, 3.0, -1.0], [3, 2]);
        Ok(x.unsqueeze(0).matmul(&weight).squeeze(0))
    }),
    ("pow", 2, |x| Ok((x.abs() + 0.1).pow(1.7))),
    ("exp", 2, |x| Ok(x.exp())),
    ("exp2", 2, |x| Ok(x.exp2())),
    ("expm1", 2, |x| Ok(x.expm1())),
    ("log", 2, |x| Ok((x.abs() + 0.1).log())),
    ("log2", 2, |x| Ok((x.abs() + 0.1).log2())),
    ("log1p", 2, |x| Ok((x.abs() + 0.1).log1p())),
    ("sin", 2, |x| Ok(x.sin())),
    ("cos", 2, |x| Ok(x.cos())),
    ("tan", 2, |x| Ok((x * 0.5).tan())),
    ("atan", 2, |x| Ok(x.atan())),
    ("tanh", 2, |x| Ok(x.tanh())),
    ("erf", 2, |x| Ok(x.erf())),
    ("compositions", 2, |x| {
        let steep = x.clamp(-1.5, 1.2) * x;
        Ok(((steep.relu() - x.abs()) / (x.square() + 0.5)).minimum(x)
            + x.cast(DType::F64).exp().cast(DType::F32).maximum(x))
    }),
    ("root of a wave", 2, |x| Ok(((x * 3.0).sin() + 1.2).sqrt())),
    ("power of a wave", 2, |x| Ok(((x * 3.0).sin() + 1.2).pow(1.7))),
    ("jump", 2, |x| Ok((x + 1.0).where_self(&x.lt(0.0), &(x - 1.0)))),
    ("activations", 2, |x| Ok(x.silu() + x.gelu().tanh() - x.softplus())),
    ("matmul of two", 4, |x| {
        let square = x.reshape([2, 2]);
        Ok(square.matmul(&square.t()).flatten(0, -1))
    }),
];

fn faults() -> Vec<Fault> {
    let scalar = [
        Alu::Neg,
        Alu::Abs,
        Alu::Floor,
        Alu::Ceil,
        Alu::Round,
        Alu::Trunc,
        Alu::Sqrt,
        Alu::Add,
        Alu::Sub,
        Alu::Mul,
        Alu::Div,
        Alu::Min,
        Alu::Max,
        Alu::Lt,
        Alu::Le,
        Alu::Eq,
        Alu::Ne,
        Alu::Select,
        Alu::Pow,
    ];
    let functions = Math::ALL.map(Alu::Math);
    let reduced = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min];
    let mut rules = vec![Rule::Move, Rule::Relu, Rule::Cast, Rule::Linear, Rule::MatMul];
    rules.extend(scalar.into_iter().chain(functions).map(Rule::Alu));
    rules.extend(reduced.map(Rule::Reduce));
    let linear = [Alu::Neg, Alu::Add, Alu::Sub, Alu::Mul, Alu::Div].map(Rule::Alu);
    let linear = linear.into_iter().chain([
        Rule::Move,
        Rule::Cast,
        Rule::Linear,
        Rule::Relu,
        Rule::Univariate,
        Rule::Reduce(ReduceOp::Sum),
    ]);
    let others =
        [Fault::UpperLine, Fault::LowerLine, Fault::Inactive, Fault::Constants, Fault::Constraint, Fault::Clip];
    let intervals = rules.into_iter().flat_map(|rule| [Fault::Low(rule), Fault::High(rule)]);
    let inner = [Alu::Neg, Alu::Abs, Alu::Add, Alu::Sub, Alu::Mul, Alu::Div, Alu::Min, Alu::Max, Alu::Sqrt, Alu::Pow];
    let inner = inner.into_iter().chain(functions).map(Rule::Alu).chain([Rule::Relu, Rule::Cast]);
    let joint = [Alu::Mul, Alu::Min, Alu::Max].into_iter().flat_map(|op| [Fault::LowPlane(op), Fault::HighPlane(op)]);
    let others = others.into_iter().chain([
        Fault::Infinite,
        Fault::FloatError,
        Fault::Limit,
        Fault::Ends,
        Fault::Multiplier,
        Fault::Split,
        Fault::Combination,
    ]);
    intervals
        .chain(linear.map(Fault::Coefficients))
        .chain(inner.map(Fault::Derivative))
        .chain(joint)
        .chain(others)
        .collect()
}

/// Compiles all functions, with and without fusion; without a fault, because constants are folded.
fn compiled() -> Vec<(&'static str, Steps)> {
    let compile = |(name, inputs, run): &Case| {
        let zeros = Tensor::from_slice(&vec![0f32; *inputs], [*inputs]);
        let traced = program(|x| Ok(vec![run(&x[0])?]), &[&zeros]).unwrap();
        let fused = fuse::compile(&traced, Arithmetic::Real).unwrap();
        [(*name, steps::compile(&traced, Arithmetic::Real).unwrap()), (*name, fused)]
    };
    Device::get("cpu").unwrap().scope(|| CASES.iter().flat_map(compile).collect())
}

/// Returns the first contradiction between bounds and values at random points and corners of random boxes.
fn contradiction(steps: &Steps, rng: &mut Rng) -> Option<String> {
    let inputs = steps.steps[steps.input].numel;
    let outputs = steps.steps[steps.output].numel;
    for _ in 0..12 {
        let end = |rng: &mut Rng| uniform(rng) * 4.0 - 2.0;
        let input: Vec<Interval> = (0..inputs).map(|_| Interval::new(end(rng), end(rng))).collect();
        let (bounds, _) = tightened(steps, &input, &[]);
        let row = |sign: f64, at: usize| (0..outputs).map(move |n| if n == at { sign } else { 0.0 });
        let output = (0..outputs).flat_map(|at| row(1.0, at).chain(row(-1.0, at))).collect();
        let found = lower(steps, &bounds, steps.output, Rows { count: 2 * outputs, output, input: Vec::new() });
        for n in 0..60 {
            let at = |(axis, x): (usize, &Interval)| match n {
                0..16 if n >> axis & 1 == 0 => x.lo,
                0..16 => x.hi,
                _ => (x.lo + uniform(rng) * (x.hi - x.lo)).clamp(x.lo, x.hi),
            };
            let point: Vec<f64> = input.iter().enumerate().map(at).collect();
            if let Some(why) = at_point(steps, &bounds[steps.output].elements, &found, &input, &point) {
                return Some(why);
            }
        }
    }
    None
}

/// Compares bounds of outputs, and the linear bounds of y and -y, with the exact values at a point. The values are computed without fault.
fn at_point(
    steps: &Steps,
    outputs: &[Interval],
    found: &crate::backward::Lower,
    input: &[Interval],
    point: &[f64],
) -> Option<String> {
    let points: Vec<Interval> = point.iter().map(|x| Interval::point(*x)).collect();
    let exact = values::forward(steps, &points);
    for (n, (bound, exact)) in outputs.iter().zip(exact[steps.output].elements.iter()).enumerate() {
        if !exact.is_finite() {
            continue;
        }
        if bound.lo > exact.hi + 1e-9 || bound.hi < exact.lo - 1e-9 {
            return Some(format!("{exact:?} is not in {bound:?} at {point:?}"));
        }
        for (sign, row) in [(1.0, 2 * n), (-1.0, 2 * n + 1)] {
            let slopes = &found.slopes[row * input.len()..][..input.len()];
            let rise = |((x, range), slope): ((&f64, &Interval), &f64)| {
                slope * (x - if *slope > 0.0 { range.lo } else { range.hi })
            };
            let bound = found.bounds[row] + point.iter().zip(input).zip(slopes).map(rise).sum::<f64>();
            let value = (sign * exact.lo).max(sign * exact.hi);
            if bound > value + 1e-9 {
                return Some(format!("the linear bound {bound} is above {value} at {point:?}"));
            }
        }
    }
    None
}

/// Returns a contradiction between clipped boxes, or bounds of constraints, and points that satisfy them.
fn wrong_region(rng: &mut Rng) -> Option<String> {
    let constraint = Constraint {
        input: vec![Interval::point(0.0)],
        output: vec![Interval { lo: 0.9, hi: 1.1 }],
        constant: Interval { lo: -0.5, hi: 0.5 },
        is_strict: false,
    };
    // The row's bound is that of 1·y for y in 1..2; the least value is 0.9 - 0.5.
    let least = constraint.at_least(1.0, &[Interval::point(0.0)], &[Interval { lo: 1.0, hi: 2.0 }]);
    if least > 0.4 {
        return Some(format!("{least} is above 0.4"));
    }
    let unknown = constraint.at_least(f64::NEG_INFINITY, &[Interval::point(0.0)], &[Interval::ENTIRE]);
    if unknown > 0.0 {
        return Some(format!("an unknown value has the bound {unknown}"));
    }
    for _ in 0..200 {
        let (lo, slope, constant) = (uniform(rng) - 1.0, uniform(rng) - 0.5, uniform(rng) - 0.5);
        let input = [Interval { lo, hi: lo + 1.0 }];
        let least = constant + if slope > 0.0 { slope * lo } else { slope * (lo + 1.0) } - 1e-12;
        let slopes = [slope];
        let open = Open::of(0, vec![(least, &slopes[..])], &input);
        for n in 0..=50 {
            let x = lo + f64::from(n) / 50.0;
            let is_kept = open.as_ref().is_some_and(|open| open.input[0].lo <= x && x <= open.input[0].hi);
            if constant + slope * x <= 0.0 && x <= input[0].hi && !is_kept {
                return Some(format!("{x} is clipped from {input:?} by {constant} + {slope}·x <= 0"));
            }
        }
    }
    None
}

/// Returns a contradiction between bounds of the inputs that satisfy splits of ReLUs, and the values at such inputs.
fn wrong_split(steps: &Steps, rng: &mut Rng) -> Option<String> {
    let operand = |id: usize| match steps.steps[id].step {
        Step::Relu(x) => Some((id, x)),
        _ => None,
    };
    let relus: Vec<(usize, usize)> = (0..steps.steps.len()).filter_map(operand).collect();
    let outputs = steps.steps[steps.output].numel;
    for _ in 0..30 {
        let inputs = steps.steps[steps.input].numel;
        let end = |rng: &mut Rng| uniform(rng) * 4.0 - 2.0;
        let input: Vec<Interval> = (0..inputs).map(|_| Interval::new(end(rng), end(rng))).collect();
        let (_, known) = tightened(steps, &input, &[]);
        let split = |(relu, x): &(usize, usize)| {
            let element = (uniform(rng) * steps.steps[*x].numel as f64) as usize;
            Split { relu: *relu, element, is_positive: uniform(rng) < 0.5 }
        };
        let splits: Vec<Split> = relus.iter().map(split).collect();
        let found = tightened_with(steps, &input, &known, &splits, 0);
        let row = |sign: f64, at: usize| (0..outputs).map(move |n| if n == at { sign } else { 0.0 });
        let output = (0..outputs).flat_map(|at| row(1.0, at).chain(row(-1.0, at))).collect();
        let rows = Rows { count: 2 * outputs, output, input: Vec::new() };
        let optimized = found.as_ref().map(|(bounds, _)| {
            let mut duals = Duals::new(steps, bounds, &splits, rows.count);
            duals.layers.iter_mut().for_each(|layer| layer.beta.fill(0.7));
            dual::optimize(steps, bounds, &rows, duals, 3, &|_| false)
        });
        for _ in 0..60 {
            let point: Vec<f64> =
                input.iter().map(|x| (x.lo + uniform(rng) * (x.hi - x.lo)).clamp(x.lo, x.hi)).collect();
            let points: Vec<Interval> = point.iter().map(|x| Interval::point(*x)).collect();
            let exact = values::forward(steps, &points);
            let satisfies = |split: &Split| {
                let x = exact[operand(split.relu).map_or(0, |(_, x)| x)].elements[split.element];
                if split.is_positive { x.lo > 0.0 } else { x.hi < 0.0 }
            };
            if !splits.iter().all(satisfies) {
                continue;
            }
            let Some(((bounds, _), optimized)) = found.as_ref().zip(optimized.as_ref()) else {
                return Some(format!("the splits exclude {point:?}"));
            };
            let contradiction = at_point(steps, &bounds[steps.output].elements, &optimized.lower, &input, &point);
            if contradiction.is_some() {
                return contradiction;
            }
        }
    }
    None
}

/// Returns a contradiction between a proof by a combination of constraints and the inputs, all of which satisfy them: -2 ≤ x ≤ 1 for x in 0..1.
fn wrong_combination(steps: &Steps) -> Option<String> {
    let input = [Interval::new(0.0, 1.0); 2];
    let (bounds, _) = tightened(steps, &input, &[]);
    let constraint = |sign: f64, constant: f64| Constraint {
        input: vec![Interval::point(0.0); 2],
        output: vec![Interval::point(sign), Interval::point(0.0)],
        constant: Interval::point(constant),
        is_strict: false,
    };
    let case = property::Case { ranges: Vec::new(), constraints: vec![constraint(1.0, -2.0), constraint(-1.0, -1.0)] };
    let leaf = Leaf { steps, bounds: &bounds, input: &input, splits: &[] };
    let wrong = [[-1.0, 0.0], [0.0, -1.0], [-1.0, -1.0], [1.0, 1.0]];
    let found = wrong.iter().find(|multipliers| leaf.is_excluded_by(&case, *multipliers));
    found.map(|multipliers| format!("the multipliers {multipliers:?} exclude inputs that satisfy the case"))
}

/// Returns a contradiction between the bounds of Float and f32 arithmetic: |x| + 3·10⁵, inside a function, loses most digits of x.
fn wrong_error(rng: &mut Rng) -> Option<String> {
    let run = |x: &Tensor| Ok((x.abs() + 3e5).abs() - 3e5);
    let traced = program(|x| Ok(vec![run(&x[0])?]), &[&Tensor::from_slice(&[0f32], [1])]).unwrap();
    let steps = fuse::compile(&traced, Arithmetic::Float).unwrap();
    for _ in 0..100 {
        let x = uniform(rng) as f32;
        let (value, near) = (f64::from((x.abs() + 3e5).abs() - 3e5), f64::from(x));
        for half_width in [0.0, 1e-3] {
            let bounds = values::forward(&steps, &[Interval::new(near - half_width, near + half_width)]);
            let bound = bounds[steps.output].elements[0];
            if value < bound.lo || value > bound.hi {
                return Some(format!("{value} is not in {bound:?}"));
            }
        }
    }
    None
}

/// Returns the first contradiction with a fault, or without one.
fn check(compiled: &[(&'static str, Steps)], fault: Option<Fault>) -> Option<String> {
    let mut rng = Rng::seed_from_u64(17);
    let mut all = || {
        let found =
            compiled.iter().find_map(|(name, steps)| Some(format!("{name}: {}", contradiction(steps, &mut rng)?)));
        let splits =
            compiled.iter().find(|(name, _)| *name == "relus").and_then(|(_, steps)| wrong_split(steps, &mut rng));
        let combined = compiled.iter().find(|(name, _)| *name == "neg").and_then(|(_, steps)| wrong_combination(steps));
        found.or(splits).or(combined).or_else(|| wrong_region(&mut rng)).or_else(|| wrong_error(&mut rng))
    };
    match fault {
        Some(fault) => fault::with(fault, all),
        None => all(),
    }
}

#[test]
fn correct_rules_have_no_contradiction() {
    assert_eq!(check(&compiled(), None), None);
}

#[test]
fn every_wrong_rule_is_caught() {
    let (compiled, faults) = (compiled(), faults());
    assert!(faults.len() >= 120, "{}", faults.len());
    let missed: Vec<&Fault> = faults.iter().filter(|fault| check(&compiled, Some(**fault)).is_none()).collect();
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
