//! `prove!`: claims in Rust against dense grids, counterexamples by variable, and claims that are not accepted.

use panoply::verify::{Arithmetic, InputBox, Options, prove};
use panoply::{DType, Device, Result, Tensor};

#[test]
fn invalid_conditions_are_reported_at_their_source() {
    crate::compile_fail::check("proofs");
}

fn on_cpu(work: impl FnOnce()) {
    Device::get("cpu").unwrap().scope(work);
}

/// A network of two inputs and three outputs.
fn network(x: &Tensor) -> Tensor {
    let weight = |rows: usize, columns: usize, phase: f32| {
        let values: Vec<f32> = (0..rows * columns).map(|n| (n as f32 * 1.3 + phase).sin()).collect();
        Tensor::from_slice(&values, [rows, columns])
    };
    (x.reshape([1, 2]).matmul(&weight(2, 9, 0.4)) + 0.1).relu().matmul(&weight(9, 3, 2.0)).flatten(0, -1)
}

/// Returns the outputs of the network on a grid over a square.
fn outputs(lo: f32, hi: f32) -> Vec<Vec<f32>> {
    let at = |n: usize| lo + (hi - lo) * n as f32 / 40.0;
    let points = (0..41 * 41).map(|n| [at(n / 41), at(n % 41)]);
    points.map(|point| network(&Tensor::from_slice(&point, [2])).to_vec::<f32>().unwrap()).collect()
}

#[test]
fn comparisons_agree_with_a_grid() {
    on_cpu(|| {
        let outputs = outputs(-1.0, 1.0);
        let largest = outputs.iter().flatten().fold(f32::NEG_INFINITY, |top, y| top.max(*y));
        let least = outputs.iter().flatten().fold(f32::INFINITY, |low, y| low.min(*y));
        let square = || InputBox::new([2], -1.0, 1.0);
        let (above, below) = (largest + 0.05, least - 0.05);
        prove!(|x in square()| network(x) < above && network(x) >= below).unwrap();
        prove!(|x in square()| {
            let y = network(x);
            let spread = y.max(0) - y.min(0);
            (below <= y) && above > y && spread <= 2.0 * (above - below)
        })
        .unwrap();
        let bound = largest - 0.05;
        let error = prove!(|x in square()| network(x) <= bound).unwrap_err();
        assert_eq!(error.message(), "network(x) <= bound: does not hold: a counterexample was found");
        let note = error.notes()[0].strip_prefix("x = [").and_then(|note| note.strip_suffix(']')).unwrap();
        let point: Vec<f32> = note.split(", ").map(|x| x.parse().unwrap()).collect();
        let found = network(&Tensor::from_slice(&point, [2])).to_vec::<f32>().unwrap();
        assert!(point.iter().all(|x| x.abs() <= 1.0) && found.iter().any(|y| *y > bound), "{error}");
        assert!(error.to_string().contains("proofs.rs"), "{error}");
    });
}

/// The class at a point holds in a small ball, and not in the whole square if the grid has another class.
#[test]
fn classes_agree_with_a_grid() {
    on_cpu(|| {
        let center = Tensor::from_slice(&[0.8f32, -0.6], [2]);
        let class = network(&center).argmax(0).item::<i64>().unwrap() as usize;
        prove!(|x in InputBox::ball(&center, 0.01)| network(x).argmax(0) == class).unwrap();
        prove!(|x in InputBox::ball(&center, 5.0).clip(0.79, 0.81)| network(x).argmax(-1) == class).unwrap_err();
        let is_class = |y: &Vec<f32>| (0..3).all(|n| n == class || y[class] > y[n]);
        assert!(!outputs(-1.0, 1.0).iter().all(is_class));
        let error = prove!(|x in InputBox::new([2], -1.0, 1.0)| class == network(x).argmax(0)).unwrap_err();
        assert!(error.message().ends_with("does not hold: a counterexample was found"), "{error}");
        // Rows of a batch, along the other axis.
        let rows = |x: &Tensor| Tensor::stack([network(&x.narrow(0, 0, 2)), network(&x.narrow(0, 2, 2))], 1);
        let twice = Tensor::concat([&center, &center], 0);
        prove!(|x in InputBox::ball(&twice, 0.01)| rows(x).argmax(0) == class).unwrap();
    });
}

/// Claims about two networks and about two inputs.
#[test]
fn several_variables_and_functions() {
    on_cpu(|| {
        let rounded = |x: &Tensor| (network(x) * 64.0).round() / 64.0;
        prove!(|x in InputBox::new([2], 0.0, 1.0)| (network(x) - rounded(x)).abs() <= 0.01).unwrap();
        let score = |x: &Tensor| x.narrow(0, 0, 1) * 2.0 + (x.narrow(0, 1, 1) * 0.5).tanh();
        let (inputs, increases) = (InputBox::new([2], -1.0, 1.0), InputBox::new([2], 0.01, 0.1));
        prove!(|x in inputs.clone(), d in increases| score(&(x + d)) > score(x)).unwrap();
        // Names of the caller, whatever they are.
        let (result, condition) = (score, 0.5);
        prove!(|inputs in inputs.clone()| result(inputs) <= condition + 5.0).unwrap();
        let shifts = InputBox::between(&Tensor::from_slice(&[-0.1f32], [1]), &Tensor::from_slice(&[0.1f32], [1]));
        let error = prove!(|x in inputs, d in shifts| score(&(x + d)) >= score(x)).unwrap_err();
        assert!(error.notes()[0].starts_with("x = [") && error.notes()[1].starts_with("d = [-"), "{error}");
    });
}

#[test]
fn real_and_float_arithmetic_differ() {
    on_cpu(|| {
        let cancelled = |x: &Tensor| (x + 1e8) - 1e8;
        let set = || InputBox::new([1], 0.0, 1.0);
        let real = Options { arithmetic: Arithmetic::Real, ..Options::default() };
        prove!(|x in set()| cancelled(x) <= 1.5, real).unwrap();
        let short = Options { seconds: 1.0, ..Options::default() };
        let error = prove!(|x in set()| cancelled(x) <= 1.5, short).unwrap_err();
        assert!(error.message().contains("undecided"), "{error}");
        prove!(|x in set()| x.exp().is_finite()).unwrap();
        let error = prove!(|x in InputBox::new([1], 0.0, 100.0)| x.exp().is_finite()).unwrap_err();
        let x: f32 = error.notes()[0].trim_matches(['x', ' ', '=', '[', ']']).parse().unwrap();
        assert!(x.exp().is_infinite(), "{error}");
        // The ReLU is never negative, without a margin.
        prove!(|x in InputBox::new([3], -1.0, 1.0)| x.relu() >= 0 && x.relu() <= 1.001).unwrap();
    });
}

#[test]
fn mistakes_are_named() {
    on_cpu(|| {
        let failed = |result: Result<panoply::verify::Report>, message: &str| {
            let error = result.unwrap_err();
            assert!(error.message().contains(message), "{error}");
        };
        let set = || InputBox::new([2], 0.0, 1.0);
        failed(prove!(|x in InputBox::new([2], 1.0, 0.0)| network(x) <= 1), "the range of element 0 of a box is empty");
        failed(prove!(|x in InputBox::new([2], 0.0, f64::NAN)| network(x) <= 1), "the range of element 0 of a box");
        failed(prove!(|x in InputBox::new([3], 0.0, 1.0)| network(x) <= 1), "reshape");
        failed(prove!(|x in set()| network(x) <= x), "broadcast");
        failed(prove!(|x in set()| network(x).argmax(1) == 0), "has no axis 1");
        failed(prove!(|x in set()| network(x).argmax(0) == 3), "none has the index 3");
        failed(prove!(|x in set()| network(x).cast(DType::F16) <= 1), "a condition on f16 elements");
        failed(prove!(|x in set()| network(x).is_finite() && network(x) <= 100), "prove them separately");
        failed(prove!(|x in set()| network(x) <= f64::INFINITY), "a number that is not finite");
        let center = Tensor::from_slice(&[1f64], [1]);
        failed(prove!(|x in InputBox::ball(&center, 0.1)| x.relu() <= 2), "f64");
    });
}
