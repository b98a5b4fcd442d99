//! Linear programs at boxes where at most a few ReLUs are undecided.
//!
//! There the linear bounds of a case's constraints, and those of the splits, are exact or nearly so, but bounds of single constraints do not
//! exclude a case whose constraints only contradict each other. By duality no input of the box satisfies all of them if and only if a combination
//! with multipliers of at least 0 is positive in the whole box. Simplex methods (crate `microlp`) find these multipliers, or an input.
//!
//! Nothing depends on the solver's word: [`Leaf::is_excluded_by`] bounds the combination by backward propagation, with all errors of
//! rounding, as it bounds a single constraint. Other multipliers can prevent a proof, and never cause a wrong one.

use std::time::Duration;

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem, Solution, Variable};

use crate::backward::{Lower, Rows, lower, lower_with};
use crate::interval::Interval;
use crate::property::{Case, Constraint};
use crate::split::{Duals, Split};
use crate::steps::{Step, StepId, Steps};
use crate::values::Bounds;

/// Number of undecided ReLUs up to which boxes are decided by linear programs.
pub const MAX_UNDECIDED: usize = 4;
/// Maximum number of coefficients of a linear program.
const MAX_COEFFICIENTS: usize = 1 << 17;
/// Time limit of a linear program.
const LIMIT: Duration = Duration::from_millis(200);
/// Coefficients of the scaled functions below which the solver takes 0.
const NEGLIGIBLE: f64 = 1e-9;

/// A box of inputs with splits of ReLUs, and the bounds of all steps for the inputs that satisfy them.
pub struct Leaf<'r, 'a> {
    /// The network.
    pub steps: &'r Steps,
    /// Bounds of all steps.
    pub bounds: &'r [Bounds<'a>],
    /// The box.
    pub input: &'r [Interval],
    /// Signs of operands of ReLUs.
    pub splits: &'r [Split],
}

/// Result of the linear programs of a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// No input satisfies the case.
    Excluded,
    /// An input that satisfies the linear bounds, or violates them the least. Whether it satisfies the case is not known.
    Point(Vec<f64>),
    /// The programs were not solved.
    Unsolved,
}

/// Returns the number of elements of ReLUs whose operands can have either sign.
pub fn undecided(steps: &Steps, bounds: &[Bounds<'_>]) -> usize {
    let of = |step: &Step| match step {
        Step::Relu(x) => bounds[*x].elements.iter().filter(|x| !(x.lo >= 0.0 || x.hi <= 0.0)).count(),
        _ => 0,
    };
    steps.steps.iter().map(|entry| of(&entry.step)).sum()
}

impl Leaf<'_, '_> {
    /// Decides a case, if it has several constraints or there are splits: a single linear bound is decided without a program.
    pub fn decide(&self, case: &Case) -> Decision {
        if case.constraints.len() + self.splits.len() < 2 {
            return Decision::Unsolved;
        }
        let Some(functions) = self.functions(case) else { return Decision::Unsolved };
        let Some((least, multipliers)) = functions.multipliers() else { return Decision::Unsolved };
        if least > 0.0 && self.is_excluded_by(case, &multipliers) {
            return Decision::Excluded;
        }
        functions.point().map_or(Decision::Unsolved, |scaled| Decision::Point(self.unscaled(&scaled)))
    }

    /// Returns true if the combination of the constraints of a case and the splits with these multipliers proves that no input satisfies the
    /// case. The multipliers are those of the constraints, then those of the splits; they can come from anywhere.
    pub fn is_excluded_by(&self, case: &Case, multipliers: &[f64]) -> bool {
        let is_valid = |multiplier: &f64| *multiplier >= 0.0 && multiplier.is_finite();
        #[cfg(test)]
        let is_valid = |multiplier: &f64| is_valid(multiplier) || crate::fault::is(crate::fault::Fault::Combination);
        if multipliers.len() != case.constraints.len() + self.splits.len() || !multipliers.iter().all(is_valid) {
            return false;
        }
        let (of_constraints, of_splits) = multipliers.split_at(case.constraints.len());
        let Some(combined) = combination(&case.constraints, of_constraints) else { return false };
        let mut duals = Duals::new(self.steps, self.bounds, self.splits, 1);
        for (split, multiplier) in self.splits.iter().zip(of_splits) {
            if let Some(layer) = duals.layers.iter_mut().find(|layer| layer.relu == split.relu) {
                layer.beta[split.element] = *multiplier as f32;
            }
        }
        let rows = Rows::of(&[&combined]);
        let (found, _) = lower_with(self.steps, self.bounds, self.steps.output, rows, Some(&duals));
        combined.at_least(found.bounds[0], self.input, &self.bounds[self.steps.output].elements) > 0.0
    }

    /// Returns linear functions of the scaled inputs that are at most 0 for every input that satisfies the case and the splits; `None` if
    /// one is not bounded, or they are too large.
    fn functions(&self, case: &Case) -> Option<Functions> {
        let varying: Vec<usize> = (0..self.input.len()).filter(|n| self.input[*n].lo < self.input[*n].hi).collect();
        if (case.constraints.len() + self.splits.len()) * varying.len().max(1) > MAX_COEFFICIENTS {
            return None;
        }
        let half = |n: usize| 0.5 * (self.input[n].hi - self.input[n].lo);
        let mut functions =
            Functions { width: varying.len(), coefficients: Vec::new(), constants: Vec::new(), scales: Vec::new() };
        let mut add = |least: f64, coefficients: &[f64]| {
            let scaled: Vec<f64> = varying.iter().map(|n| coefficients[*n] * half(*n)).collect();
            functions.add(least, scaled)
        };
        let inputs = self.input.len();
        let row = |found: &Lower, at: usize| found.slopes[at * inputs..][..inputs].to_vec();

        let constraints: Vec<&Constraint> = case.constraints.iter().collect();
        let duals = Duals::new(self.steps, self.bounds, self.splits, constraints.len());
        let (found, _) = lower_with(self.steps, self.bounds, self.steps.output, Rows::of(&constraints), Some(&duals));
        let outputs = &self.bounds[self.steps.output].elements;
        for (at, constraint) in constraints.iter().enumerate() {
            add(constraint.at_least(found.bounds[at], self.input, outputs), &row(&found, at))?;
        }
        let mut of_splits: Vec<Option<(f64, Vec<f64>)>> = vec![None; self.splits.len()];
        let mut relus: Vec<StepId> = self.splits.iter().map(|split| split.relu).collect();
        relus.sort_unstable();
        relus.dedup();
        for relu in relus {
            let some: Vec<usize> = (0..self.splits.len()).filter(|n| self.splits[*n].relu == relu).collect();
            let Step::Relu(operand) = self.steps.steps[relu].step else { return None };
            let numel = self.steps.steps[operand].numel;
            let mut output = vec![0.0; some.len() * numel];
            for (at, split) in some.iter().map(|n| self.splits[*n]).enumerate() {
                output[at * numel + split.element] = if split.is_positive { -1.0 } else { 1.0 };
            }
            let rows = Rows { count: some.len(), output, input: Vec::new() };
            let found = lower(self.steps, self.bounds, operand, rows);
            some.iter().enumerate().for_each(|(at, n)| of_splits[*n] = Some((found.bounds[at], row(&found, at))));
        }
        for found in of_splits {
            let (least, coefficients) = found?;
            add(least, &coefficients)?;
        }
        Some(functions)
    }

    /// Returns the inputs at a point of the varying inputs, each scaled to -1 to 1.
    fn unscaled(&self, scaled: &[f64]) -> Vec<f64> {
        let mut scaled = scaled.iter();
        let value = |x: &Interval| match x.lo < x.hi {
            true => {
                let at = 0.5 * (1.0 + scaled.next().copied().unwrap_or(0.0));
                (x.lo + at * (x.hi - x.lo)).clamp(x.lo, x.hi)
            }
            false => x.lo,
        };
        self.input.iter().map(value).collect()
    }
}

/// Returns the sum of constraints with multipliers of at least 0.
fn combination(constraints: &[Constraint], multipliers: &[f64]) -> Option<Constraint> {
    let first = constraints.first()?;
    let zeros = |of: &[Interval]| vec![Interval::point(0.0); of.len()];
    let mut sum = Constraint {
        input: zeros(&first.input),
        output: zeros(&first.output),
        constant: Interval::point(0.0),
        is_strict: false,
    };
    for (constraint, multiplier) in constraints.iter().zip(multipliers) {
        let zero = Interval::point(0.0);
        let factor = Interval::point(*multiplier);
        let add = |sum: &mut Interval, x: &Interval| {
            if *x != zero {
                *sum = *sum + *x * factor;
            }
        };
        sum.input.iter_mut().zip(&constraint.input).for_each(|(sum, x)| add(sum, x));
        sum.output.iter_mut().zip(&constraint.output).for_each(|(sum, x)| add(sum, x));
        add(&mut sum.constant, &constraint.constant);
    }
    Some(sum)
}

/// Linear functions of inputs from -1 to 1, each scaled to a largest coefficient or constant of 1.
struct Functions {
    /// Number of inputs.
    width: usize,
    /// Coefficients, row by row.
    coefficients: Vec<f64>,
    /// Value of each function at 0.
    constants: Vec<f64>,
    /// Factor by which each function was multiplied.
    scales: Vec<f64>,
}

impl Functions {
    /// Adds a function by its minimum and its coefficients; `None` if it is not finite.
    fn add(&mut self, least: f64, coefficients: Vec<f64>) -> Option<()> {
        let constant = least + coefficients.iter().map(|coefficient| coefficient.abs()).sum::<f64>();
        let largest = coefficients.iter().fold(constant.abs(), |largest, coefficient| largest.max(coefficient.abs()));
        let scale = if largest > 0.0 { 1.0 / largest } else { 1.0 };
        if !(constant.is_finite()
            && scale.is_finite()
            && coefficients.iter().all(|coefficient| coefficient.is_finite()))
        {
            return None;
        }
        self.coefficients.extend(coefficients.iter().map(|coefficient| coefficient * scale));
        self.constants.push(constant * scale);
        self.scales.push(scale);
        Some(())
    }

    /// Returns the coefficients of an input in all functions with their indices, without negligible ones.
    fn column(&self, input: usize) -> impl Iterator<Item = (usize, f64)> {
        let column = (0..self.constants.len()).map(move |n| (n, self.coefficients[n * self.width + input]));
        column.filter(|(_, coefficient)| coefficient.abs() > NEGLIGIBLE)
    }

    /// Returns the largest minimum of a combination of the functions, and its multipliers of the functions before they were scaled.
    /// With multipliers μ of sum 1 the minimum is Σ μ·constant - Σ |Σ μ·coefficient|, where each |v| is p + n with v = p - n.
    fn multipliers(&self) -> Option<(f64, Vec<f64>)> {
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let add = |constant: &f64| problem.add_var(*constant, (0.0, 1.0));
        let multipliers: Vec<Variable> = self.constants.iter().map(add).collect();
        problem.add_constraint(multipliers.iter().map(|variable| (*variable, 1.0)), ComparisonOp::Eq, 1.0);
        for input in 0..self.width {
            let [positive, negative] = [(); 2].map(|()| problem.add_var(-1.0, (0.0, f64::INFINITY)));
            let mut sum: LinearExpr =
                self.column(input).map(|(n, coefficient)| (multipliers[n], coefficient)).collect();
            sum.add(positive, -1.0);
            sum.add(negative, 1.0);
            problem.add_constraint(sum, ComparisonOp::Eq, 0.0);
        }
        let solution = solve(problem)?;
        let found = multipliers.iter().zip(&self.scales);
        let found: Vec<f64> = found.map(|(variable, scale)| (solution.var_value(*variable) * scale).max(0.0)).collect();
        let largest = found.iter().fold(0.0, |largest: f64, multiplier| largest.max(*multiplier));
        Some((solution.objective(), found.iter().map(|multiplier| multiplier / largest).collect()))
    }

    /// Returns the inputs at which the largest of the functions is least.
    fn point(&self) -> Option<Vec<f64>> {
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let inputs: Vec<Variable> = (0..self.width).map(|_| problem.add_var(0.0, (-1.0, 1.0))).collect();
        let largest = problem.add_var(1.0, (f64::NEG_INFINITY, f64::INFINITY));
        for (coefficients, constant) in self.coefficients.chunks_exact(self.width.max(1)).zip(&self.constants) {
            let terms = inputs.iter().zip(coefficients).filter(|(_, coefficient)| coefficient.abs() > NEGLIGIBLE);
            let mut sum: LinearExpr = terms.map(|(variable, coefficient)| (*variable, *coefficient)).collect();
            sum.add(largest, -1.0);
            problem.add_constraint(sum, ComparisonOp::Le, -constant);
        }
        let solution = solve(problem)?;
        Some(inputs.iter().map(|variable| solution.var_value(*variable)).collect())
    }
}

fn solve(mut problem: Problem) -> Option<Solution> {
    problem.set_time_limit(LIMIT);
    problem.solve().ok()?.into_solution().ok()
}

#[cfg(test)]
mod tests {
    use panoply_tensor::{Device, Result, Rng, Tensor, program};

    use super::*;
    use crate::attack::uniform;
    use crate::backward::{tightened, tightened_with};
    use crate::fuse;
    use crate::region::{Open, Region};
    use crate::values::{self, Arithmetic};

    fn compiled(inputs: usize, run: &dyn Fn(&Tensor) -> Result<Tensor>) -> Steps {
        let zeros = Tensor::from_slice(&vec![0f32; inputs], [inputs]);
        fuse::compile(&program(|x| Ok(vec![run(&x[0])?]), &[&zeros]).unwrap(), Arithmetic::Real).unwrap()
    }

    fn constraint(output: &[f64], inputs: usize, constant: f64) -> Constraint {
        Constraint {
            input: vec![Interval::point(0.0); inputs],
            output: output.iter().map(|x| Interval::point(*x)).collect(),
            constant: Interval::point(constant),
            is_strict: false,
        }
    }

    fn numbers(rng: &mut Rng, count: usize) -> Vec<f32> {
        (0..count).map(|_| (uniform(rng) * 2.0 - 1.0) as f32).collect()
    }

    /// Outputs max(u, 0) + v and -v with u = a·x + `offset` and v = b·x, of 24 inputs.
    fn sums(offset: f32) -> Steps {
        let mut rng = Rng::seed_from_u64(5);
        let (a, b) = (numbers(&mut rng, 24), numbers(&mut rng, 24));
        let run = move |x: &Tensor| {
            let sum = |weights: &[f32]| (x * Tensor::from_slice(weights, [24])).sum(0).unsqueeze(0);
            let (u, v) = (sum(&a) + offset, sum(&b));
            Ok(Tensor::concat([&(u.relu() + &v), &-&v], 0))
        };
        Device::get("cpu").unwrap().scope(|| compiled(24, &run))
    }

    fn relu(steps: &Steps) -> StepId {
        steps.steps.iter().position(|entry| matches!(entry.step, Step::Relu(_))).unwrap()
    }

    /// Both outputs are at most -0.01, although their sum is at least 0.
    fn contradiction() -> Case {
        let constraints = vec![constraint(&[1.0, 0.0], 24, 0.01), constraint(&[0.0, 1.0], 24, 0.01)];
        Case { ranges: Vec::new(), constraints }
    }

    /// Returns the number of boxes that bounds of single constraints leave after this many splits of inputs.
    fn boxes_left(steps: &Steps, case: &Case, splits: usize) -> usize {
        let input = vec![Interval { lo: -1.0, hi: 1.0 }; 24];
        let whole = vec![2.0; 24].into();
        let (cases, known, duals) = (vec![0], Default::default(), None);
        let first = Region { input, cases, volume: 1.0, whole, depth: 0, known, splits: Vec::new(), first: 0, duals };
        let mut regions = vec![first];
        for depth in 0..=splits {
            let mut next = Vec::new();
            for region in &regions {
                let (bounds, known) = tightened(steps, &region.input, &[]);
                let rows = Rows::of(&case.constraints.iter().collect::<Vec<&Constraint>>());
                let found = lower(steps, &bounds, steps.output, rows);
                let outputs = &bounds[steps.output].elements;
                let row = |(n, constraint): (usize, &Constraint)| {
                    let least = constraint.at_least(found.bounds[n], &region.input, outputs);
                    (least, &found.slopes[24 * n..][..24])
                };
                let rows = case.constraints.iter().enumerate().map(row).collect();
                let left: Vec<Open<'_>> = Open::of(0, rows, &region.input).into_iter().collect();
                next.extend(region.split(&left, known).into_iter().flat_map(|halves| *halves));
            }
            if depth == splits {
                return next.len() / 2;
            }
            regions = next;
        }
        0
    }

    #[test]
    fn constraints_that_contradict_each_other_are_excluded() {
        let (steps, case) = (sums(-1.0), contradiction());
        // Splits of inputs leave most boxes: those around v = 0.
        assert!(boxes_left(&steps, &case, 8) >= 128);
        let input = vec![Interval { lo: -1.0, hi: 1.0 }; 24];
        let (bounds, _) = tightened(&steps, &input, &[]);
        assert_eq!(undecided(&steps, &bounds), 1);
        let leaf = Leaf { steps: &steps, bounds: &bounds, input: &input, splits: &[] };
        assert_eq!(leaf.decide(&case), Decision::Excluded);
        assert!(leaf.is_excluded_by(&case, &[1.0, 1.0]) && leaf.is_excluded_by(&case, &[0.3, 0.3]));
        let wrong: [&[f64]; 9] = [
            &[0.0, 0.0],
            &[1.0, 0.0],
            &[0.0, 1.0],
            &[1.0, 1.5],
            &[-1.0, -1.0],
            &[f64::NAN, 1.0],
            &[f64::INFINITY, f64::INFINITY],
            &[1.0],
            &[1.0, 1.0, 1.0],
        ];
        for multipliers in wrong {
            assert!(!leaf.is_excluded_by(&case, multipliers), "{multipliers:?}");
        }
        // Without the contradiction the program finds an input, where the ReLU is decided.
        let (_, known) = tightened(&steps, &input, &[]);
        let splits = [Split { relu: relu(&steps), element: 0, is_positive: false }];
        let (bounds, _) = tightened_with(&steps, &input, &known, &splits, 0).unwrap();
        let leaf = Leaf { steps: &steps, bounds: &bounds, input: &input, splits: &splits };
        let constraints = vec![constraint(&[1.0, 0.0], 24, 0.01), constraint(&[0.0, 1.0], 24, -0.02)];
        let satisfied = Case { ranges: Vec::new(), constraints };
        let Decision::Point(point) = leaf.decide(&satisfied) else { panic!("no point") };
        let points: Vec<Interval> = point.iter().map(|x| Interval::point(*x)).collect();
        let outputs = &values::forward(&steps, &points)[steps.output].elements;
        assert!(outputs[0].hi <= -0.01 && outputs[1].hi <= 0.02, "{outputs:?}");
    }

    /// The multiplier of a split is needed: above it, the sum of the outputs is u.
    #[test]
    fn splits_have_multipliers() {
        let (steps, case) = (sums(1.0), contradiction());
        let input = vec![Interval { lo: -1.0, hi: 1.0 }; 24];
        let (_, known) = tightened(&steps, &input, &[]);
        let relu = relu(&steps);
        for (is_positive, multiplier) in [(true, 1.0), (false, 0.0)] {
            let splits = [Split { relu, element: 0, is_positive }];
            let (bounds, _) = tightened_with(&steps, &input, &known, &splits, 0).unwrap();
            let leaf = Leaf { steps: &steps, bounds: &bounds, input: &input, splits: &splits };
            assert_eq!(leaf.decide(&case), Decision::Excluded, "{is_positive}");
            assert!(leaf.is_excluded_by(&case, &[1.0, 1.0, multiplier]));
            assert_eq!(leaf.is_excluded_by(&case, &[1.0, 1.0, 0.0]), !is_positive);
            assert!(!leaf.is_excluded_by(&case, &[1.0, 1.0, -1.0]) && !leaf.is_excluded_by(&case, &[1.0, 1.0, 3.0]));
        }
    }

    /// Random networks, splits and constraints: a case with an input is excluded by no multipliers, also by wrong ones.
    #[test]
    fn no_multipliers_exclude_an_input_that_satisfies_a_case() {
        let (mut excluded, mut satisfied, mut points) = (0, 0, 0);
        for seed in 0..150 {
            let mut rng = Rng::seed_from_u64(seed);
            let (first, second) = (numbers(&mut rng, 4 * 6), numbers(&mut rng, 6 * 3));
            let run = |x: &Tensor| {
                let hidden = x.unsqueeze(0).matmul(&Tensor::from_slice(&first, [4, 6])).relu();
                Ok(hidden.matmul(&Tensor::from_slice(&second, [6, 3])).squeeze(0))
            };
            let steps = Device::get("cpu").unwrap().scope(|| compiled(4, &run));
            let input: Vec<Interval> =
                (0..4).map(|_| Interval::new(uniform(&mut rng) - 1.0, uniform(&mut rng))).collect();
            let relu = relu(&steps);
            let Step::Relu(operand) = steps.steps[relu].step else { unreachable!() };
            let at = |rng: &mut Rng| -> Vec<f64> {
                input.iter().map(|x| (x.lo + uniform(rng) * (x.hi - x.lo)).clamp(x.lo, x.hi)).collect()
            };
            let values_at = |point: &[f64]| {
                let points: Vec<Interval> = point.iter().map(|x| Interval::point(*x)).collect();
                let values = values::forward(&steps, &points);
                (values[operand].elements.to_vec(), values[steps.output].elements.to_vec())
            };
            // Signs and constraints as at an input; some constants exclude it.
            let center = at(&mut rng);
            let (hidden, outputs) = values_at(&center);
            let split = |element: usize| Split { relu, element, is_positive: hidden[element].lo >= 0.0 };
            let splits: Vec<Split> = (0..6).filter(|_| uniform(&mut rng) < 0.5).map(split).collect();
            let (_, known) = tightened(&steps, &input, &[]);
            let Some((bounds, _)) = tightened_with(&steps, &input, &known, &splits, 0) else { continue };
            let constraints = (0..2 + seed as usize % 2).map(|_| {
                let weights: Vec<f64> = numbers(&mut rng, 3).iter().map(|x| f64::from(*x)).collect();
                let value: f64 = weights.iter().zip(&outputs).map(|(weight, y)| weight * y.lo).sum();
                constraint(&weights, 4, -value + 0.8 * (uniform(&mut rng) - 0.3))
            });
            let case = Case { ranges: Vec::new(), constraints: constraints.collect() };
            let satisfies = |point: &[f64], slack: f64| {
                let (hidden, outputs) = values_at(point);
                let is_split = |split: &Split| {
                    let x = hidden[split.element];
                    if split.is_positive { x.lo >= -slack } else { x.hi <= slack }
                };
                let zeros = [Interval::point(0.0); 4];
                splits.iter().all(is_split)
                    && case.constraints.iter().all(|constraint| constraint.value(&zeros, &outputs).hi <= slack)
            };
            let has_input = (0..200).any(|_| satisfies(&at(&mut rng), 0.0));
            let leaf = Leaf { steps: &steps, bounds: &bounds, input: &input, splits: &splits };
            match leaf.decide(&case) {
                Decision::Excluded => {
                    assert!(!has_input, "seed {seed}");
                    excluded += 1;
                }
                Decision::Point(point) => points += usize::from(satisfies(&point, 1e-6)),
                Decision::Unsolved => {}
            }
            satisfied += usize::from(has_input);
            for n in 0..40 {
                let multiplier = |_| match n % 4 {
                    0 => uniform(&mut rng) * 2.0 - 1.0,
                    1 => (uniform(&mut rng) * 40.0).exp2(),
                    _ => (uniform(&mut rng) * 3.0 - 1.0).max(0.0),
                };
                let multipliers: Vec<f64> = (0..case.constraints.len() + splits.len()).map(multiplier).collect();
                assert!(!(has_input && leaf.is_excluded_by(&case, &multipliers)), "seed {seed}: {multipliers:?}");
            }
        }
        println!("{excluded} excluded, {satisfied} satisfied, {points} points");
        assert!(excluded >= 10 && satisfied >= 20 && points >= 15, "{excluded}, {satisfied}, {points}");
    }
}
