//! Branch and bound by ReLUs: verdicts about networks with many inputs, compared with exact values.

use panoply_tensor::{Device, Rng, Tensor};
use panoply_verify::attack::uniform;
use panoply_verify::{Arithmetic, Options, Verdict};

use super::{Mlp, answer, property, report};

/// Networks with 24 inputs that read three sums of eight each, so that a grid over the sums is exact.
#[test]
fn verdicts_about_many_inputs_agree_with_a_grid_over_their_sums() {
    Device::get("cpu").unwrap().scope(|| {
        let (mut proven, mut found) = (0, 0);
        for seed in 0..16 {
            let network = Mlp::random(&[3, 12, 8, 2], &mut Rng::seed_from_u64(seed));
            // Means of eight inputs from -1 to 1 take every value from -1 to 1.
            let means: Vec<f32> = (0..72).map(|n| if n / 3 / 8 == n % 3 { 0.125 } else { 0.0 }).collect();
            let run =
                |x: &Tensor| network.forward(&x.unsqueeze(0).matmul(&Tensor::from_slice(&means, [24, 3])).squeeze(0));
            let at = |n: usize| n as f64 / 24.0 * 2.0 - 1.0;
            let grid = (0..25usize.pow(3)).map(|n| network.output(&[at(n / 625), at(n / 25 % 25), at(n % 25)])[0]);
            let (lo, hi) = grid.fold((f64::MAX, f64::MIN), |(lo, hi), y| (lo.min(y), hi.max(y)));
            for threshold in [hi + 0.05 * (hi - lo), hi - 0.02 * (hi - lo)] {
                let property = property(24, 2, (-1.0, 1.0), &format!("(assert (>= Y_0 {threshold}))"));
                match answer(&run, &property, Arithmetic::Float) {
                    Verdict::Proven => {
                        assert!(threshold > hi, "seed {seed}: proven, but {hi} reaches {threshold}");
                        proven += 1;
                    }
                    Verdict::Counterexample(point) => {
                        let mean =
                            |k: usize| point.input[8 * k..][..8].iter().map(|x| f64::from(*x)).sum::<f64>() / 8.0;
                        let y = network.output(&[mean(0), mean(1), mean(2)])[0];
                        assert!(y >= threshold - 1e-9, "seed {seed}: {y} is below {threshold}");
                        found += 1;
                    }
                    Verdict::Undecided(_) => {}
                }
            }
        }
        println!("{proven} proven, {found} counterexamples of 16 each");
        assert!(proven >= 14 && found >= 14, "{proven} proven, {found} counterexamples");
    });
}

/// Σ |xᵢ| of 30 inputs needs splits of ReLUs: 2¹ of them for each input that the bound has to know the sign of.
#[test]
fn sums_of_magnitudes_are_bounded_by_splits() {
    Device::get("cpu").unwrap().scope(|| {
        let mut rng = Rng::seed_from_u64(41);
        let weights: Vec<f32> = (0..30).map(|n| if n < 4 { 1.0 } else { 0.05 * uniform(&mut rng) as f32 }).collect();
        let run = |x: &Tensor| {
            let weighted = x * Tensor::from_slice(&weights, [30]);
            Ok((weighted.relu() - (-&weighted).relu() * -1.0).sum(0).unsqueeze(0))
        };
        let largest: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let options = Options { seconds: 20.0, ..Options::default() };
        let verdict = |threshold: f64| {
            let property = property(30, 1, (-1.0, 1.0), &format!("(assert (>= Y_0 {threshold}))"));
            report(&run, &property, &options).verdict
        };
        assert_eq!(verdict(largest + 0.01), Verdict::Proven);
        assert!(matches!(verdict(largest - 0.3), Verdict::Counterexample(_)));
    });
}

/// Outputs max(u, 0) + v and -v of 24 inputs, whose sum is at least 0. Constraints on both contradict each other, and each alone is satisfied
/// in most boxes, so that splits of inputs would need more than 2²⁰ of them.
#[test]
fn constraints_that_contradict_each_other_are_decided_by_linear_programs() {
    Device::get("cpu").unwrap().scope(|| {
        let mut rng = Rng::seed_from_u64(5);
        let mut weights = || -> Vec<f32> { (0..24).map(|_| (uniform(&mut rng) * 2.0 - 1.0) as f32).collect() };
        let (a, b) = (weights(), weights());
        let run = |x: &Tensor| {
            let sum = |weights: &[f32]| (x * Tensor::from_slice(weights, [24])).sum(0).unsqueeze(0);
            let (u, v) = (sum(&a) + 1.0, sum(&b));
            Ok(Tensor::concat([&(u.relu() + &v), &-&v], 0))
        };
        let options = Options { seconds: 20.0, ..Options::default() };
        let answer = |highest: f64| {
            let asserted = format!("(assert (<= Y_0 -0.01)) (assert (<= Y_1 {highest}))");
            report(&run, &property(24, 2, (-1.0, 1.0), &asserted), &options)
        };
        let found = answer(-0.01);
        assert_eq!(found.verdict, Verdict::Proven);
        assert!(found.progress.boxes <= 16, "{} boxes", found.progress.boxes);
        // Here the sum can be 0.02.
        let Verdict::Counterexample(found) = answer(0.03).verdict else { panic!("no counterexample") };
        let sum = |weights: &[f32]| -> f64 {
            weights.iter().zip(&found.input).map(|(weight, x)| f64::from(*weight) * f64::from(*x)).sum()
        };
        let (u, v) = (sum(&a) + 1.0, sum(&b));
        assert!(u.max(0.0) + v <= -0.01 + 1e-5 && -v <= 0.03 + 1e-5, "{u}, {v}");
    });
}
