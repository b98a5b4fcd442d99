//! Verdicts on random networks compared with dense grids, and verdicts that must not be given.

use panoply_tensor::{Device, Rng, Tensor};
use panoply_verify::attack::uniform;
use panoply_verify::{Arithmetic, Options, Verdict, verify};

use super::{Mlp, answer, property, report};

/// A function to verify.
type Run = dyn Fn(&Tensor) -> panoply_tensor::Result<Tensor>;

/// Returns all points of a grid over [-1, 1]² with their outputs.
fn grid(network: &Mlp, points: usize) -> Vec<([f64; 2], Vec<f64>)> {
    let at = |n: usize| n as f64 / (points - 1) as f64 * 2.0 - 1.0;
    let all = (0..points).flat_map(|a| (0..points).map(move |b| [at(a), at(b)]));
    all.map(|point| (point, network.output(&point))).collect()
}

#[test]
fn verdicts_agree_with_a_dense_grid() {
    Device::get("cpu").unwrap().scope(|| {
        let (mut proven, mut found) = (0, 0);
        for seed in 0..30 {
            let network = Mlp::random(&[2, 10, 8, 2], &mut Rng::seed_from_u64(seed));
            let run = |x: &Tensor| network.forward(x);
            let outputs = grid(&network, 81);
            let largest = outputs.iter().map(|(_, y)| y[0]).fold(f64::NEG_INFINITY, f64::max);
            let least = outputs.iter().map(|(_, y)| y[0]).fold(f64::INFINITY, f64::min);
            let size = largest - least;
            // From far above all outputs down to a value that many points exceed.
            for threshold in [largest + size, largest + 0.1 * size, largest - 1e-3 * size, largest - 0.2 * size] {
                let property = property(2, 2, (-1.0, 1.0), &format!("(assert (>= Y_0 {threshold}))"));
                for arithmetic in [Arithmetic::Real, Arithmetic::Float] {
                    match answer(&run, &property, arithmetic) {
                        Verdict::Proven => {
                            assert!(threshold > largest, "seed {seed}: proven, but {largest} ≥ {threshold}");
                            proven += 1;
                        }
                        Verdict::Counterexample(point) => {
                            let x: Vec<f64> = point.input.iter().map(|x| f64::from(*x)).collect();
                            assert!(x.iter().all(|x| x.abs() <= 1.0), "seed {seed}: {x:?} is outside");
                            assert!(network.output(&x)[0] >= threshold, "seed {seed}: {x:?} is not a counterexample");
                            found += 1;
                        }
                        Verdict::Undecided(why) => panic!("seed {seed}, threshold {threshold}: {why}"),
                    }
                }
            }
        }
        assert!(proven >= 60 && found >= 120, "{proven} proven, {found} counterexamples");
    });
}

/// Conjunctions and alternatives: comparisons between outputs, over two boxes.
#[test]
fn comparisons_of_outputs_agree_with_a_grid() {
    Device::get("cpu").unwrap().scope(|| {
        let (mut proven, mut found) = (0, 0);
        for seed in 100..140 {
            let network = Mlp::random(&[2, 9, 6, 3], &mut Rng::seed_from_u64(seed));
            let boxes = "(assert (or (and (<= X_0 -0.2) (<= X_1 0.1)) (and (>= X_0 0.3) (>= X_1 -0.5))))";
            let forbidden =
                "(assert (or (and (>= Y_0 (+ Y_1 2)) (>= Y_0 Y_2)) (and (>= Y_1 (+ Y_0 2.5 X_0)) (>= Y_2 Y_0))))";
            let property = property(2, 3, (-1.0, 1.0), &format!("{boxes}{forbidden}"));
            let in_set = |x: &[f64]| (x[0] <= -0.2 && x[1] <= 0.1) || (x[0] >= 0.3 && x[1] >= -0.5);
            let violates = |x: &[f64], y: &[f64]| {
                (y[0] >= y[1] + 2.0 && y[0] >= y[2]) || (y[1] >= y[0] + 2.5 + x[0] && y[2] >= y[0])
            };
            let violated = grid(&network, 81).iter().any(|(x, y)| in_set(x) && violates(x, y));
            match answer(&|x| network.forward(x), &property, Arithmetic::Float) {
                Verdict::Proven => {
                    assert!(!violated, "seed {seed}: proven, but the grid has a counterexample");
                    proven += 1;
                }
                Verdict::Counterexample(point) => {
                    let x: Vec<f64> = point.input.iter().map(|x| f64::from(*x)).collect();
                    assert!(in_set(&x) && violates(&x, &network.output(&x)), "seed {seed}: {x:?}");
                    found += 1;
                }
                Verdict::Undecided(why) => assert!(!violated, "seed {seed}: {why}"),
            }
        }
        assert!(proven >= 5 && found >= 5, "{proven} proven, {found} counterexamples");
    });
}

/// (x + 10⁸) - 10⁸ is x in real arithmetic, and 0 or 8 in f32.
#[test]
fn proof_in_real_arithmetic_does_not_cover_f32() {
    Device::get("cpu").unwrap().scope(|| {
        let run = |x: &Tensor| Ok((x + 1e8) - 1e8);
        let property = property(1, 1, (0.0, 4.5), "(assert (>= Y_0 6))");
        assert_eq!(answer(&run, &property, Arithmetic::Real), Verdict::Proven);
        let options = Options { seconds: 1.0, ..Options::default() };
        let verdict = report(&run, &property, &options).verdict;
        assert!(matches!(verdict, Verdict::Undecided(_)), "{verdict:?}");
    });
}

#[test]
fn nan_and_unknown_operations_are_never_proven() {
    Device::get("cpu").unwrap().scope(|| {
        let property = property(2, 2, (-1.0, 1.0), "(assert (>= Y_0 1000))");
        let with = |weight: f32| move |x: &Tensor| Ok(x * Tensor::from_slice(&[weight, 1.0], [2]) * 0.0);
        let unknown = |x: &Tensor| Ok(x.cumsum(0));
        let root = |x: &Tensor| Ok(x.sqrt().relu() * 0.0);
        let overflow = |x: &Tensor| Ok(x * 3e38 * 3e38 * 0.0);
        let options = Options { seconds: 0.5, ..Options::default() };
        let functions: [&Run; 5] = [&with(f32::NAN), &with(f32::INFINITY), &unknown, &root, &overflow];
        for (n, run) in functions.into_iter().enumerate() {
            let verdict = report(run, &property, &options).verdict;
            let Verdict::Undecided(why) = verdict else { panic!("function {n}: {verdict:?}") };
            assert!(n != 2 || why.starts_with("no bounds are known for the operation `running sum"), "{why}");
        }
        let fine = |x: &Tensor| Ok(x * 0.0);
        assert_eq!(report(&fine, &property, &options).verdict, Verdict::Proven);
    });
}

#[test]
fn time_limit_is_respected() {
    Device::get("cpu").unwrap().scope(|| {
        let network = Mlp::random(&[12, 40, 40, 40, 2], &mut Rng::seed_from_u64(5));
        // Not reachable by random points, nor by a few thousand splits of twelve inputs.
        let property = property(12, 2, (-1.0, 1.0), "(assert (>= Y_0 9))");
        for seconds in [0.0, 0.3] {
            let report = report(&|x| network.forward(x), &property, &Options { seconds, ..Options::default() });
            assert_eq!(
                report.verdict,
                Verdict::Undecided(format!("the time limit of {seconds} s is reached")),
                "{report:?}"
            );
            assert!(
                (0.0..1.0).contains(&report.progress.proven) && report.progress.seconds < seconds + 20.0,
                "{report:?}"
            );
        }
    });
}

#[test]
fn mismatched_sizes_are_rejected() {
    Device::get("cpu").unwrap().scope(|| {
        let property = property(2, 2, (-1.0, 1.0), "(assert (>= Y_0 1))");
        let message = |shape: usize, run: &Run| {
            let result = verify(run, [shape], &property, &Options::default(), &mut |_| {});
            result.map(|_| ()).unwrap_err().message().to_string()
        };
        assert_eq!(message(3, &|x| Ok(x.clone())), "the property has 2 inputs, but the network has 3");
        assert_eq!(
            message(2, &|x| Ok(x.sum(0).unsqueeze(0))),
            "the property has 2 f32 outputs, but the network has 1 of f32"
        );
        assert_eq!(
            message(2, &|_| Ok(Tensor::from_slice(&[1f32, 2.0], [2]))),
            "the output does not depend on the input"
        );
    });
}

/// Properties of two constraints, which linear programs decide where few ReLUs are undecided, in networks with few and with many inputs.
#[test]
fn verdicts_about_several_constraints_agree_with_a_grid() {
    Device::get("cpu").unwrap().scope(|| {
        let (mut proven, mut found) = (0, 0);
        for seed in 0..24 {
            let mut rng = Rng::seed_from_u64(seed);
            let network = Mlp::random(&[2, 8, 6, 2], &mut rng);
            // Every other network reads the means of twelve inputs each.
            let inputs = if seed % 2 == 0 { 2 } else { 24 };
            let means: Vec<f32> =
                (0..2 * inputs).map(|n| if n / 2 * 2 / inputs == n % 2 { 2.0 / inputs as f32 } else { 0.0 }).collect();
            let mean = |x: &Tensor| x.unsqueeze(0).matmul(&Tensor::from_slice(&means, [inputs, 2])).squeeze(0);
            let run = |x: &Tensor| if inputs == 2 { network.forward(x) } else { network.forward(&mean(x)) };
            let at = |n: usize| n as f64 / 60.0 * 2.0 - 1.0;
            let grid: Vec<Vec<f64>> = (0..61 * 61).map(|n| network.output(&[at(n / 61), at(n % 61)])).collect();
            let largest = |k: usize| grid.iter().map(|y| y[k]).fold(f64::MIN, f64::max);
            let least = |k: usize| grid.iter().map(|y| y[k]).fold(f64::MAX, f64::min);
            let near = &grid[(uniform(&mut rng) * grid.len() as f64) as usize];
            let limit = |k: usize, by: f64| near[k] - by * (largest(k) - least(k));
            let limits = [limit(0, uniform(&mut rng) * 0.4 - 0.05), limit(1, uniform(&mut rng) * 0.4 - 0.05)];
            let asserted = format!("(assert (<= Y_0 {:.6})) (assert (<= Y_1 {:.6}))", limits[0], limits[1]);
            let satisfies = |y: &[f64], slack: f64| y[0] <= limits[0] + slack && y[1] <= limits[1] + slack;
            match answer(&run, &property(inputs, 2, (-1.0, 1.0), &asserted), Arithmetic::Float) {
                Verdict::Proven => {
                    assert!(!grid.iter().any(|y| satisfies(y, -1e-5)), "seed {seed}");
                    proven += 1;
                }
                Verdict::Counterexample(point) => {
                    let half = |part: &[f32]| part.iter().map(|x| f64::from(*x)).sum::<f64>() / part.len() as f64;
                    let (first, second) = point.input.split_at(inputs / 2);
                    assert!(satisfies(&network.output(&[half(first), half(second)]), 1e-5), "seed {seed}: {point:?}");
                    found += 1;
                }
                Verdict::Undecided(_) => {}
            }
        }
        println!("{proven} proven, {found} counterexamples");
        assert!(proven >= 4 && found >= 4 && proven + found >= 20, "{proven} proven, {found} counterexamples");
    });
}
