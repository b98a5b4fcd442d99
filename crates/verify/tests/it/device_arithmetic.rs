//! Proofs about the arithmetic of devices: what a device can compute, according to the standards of its languages, must not be excluded.
//! Each claim holds for real numbers and not for some device.

use std::time::{Duration, Instant};

use panoply_tensor::{DType, Device, Result, Tensor};
use panoply_verify::{Arithmetic, InputBox, Options, Property, Verdict, prove};

use super::{answer, property, report};

/// Checks that a claim is proven for real numbers, and not for the arithmetic of devices.
fn only_real(name: &str, run: &dyn Fn(&Tensor) -> Result<Tensor>, property: &Property) {
    Device::get("cpu").unwrap().scope(|| {
        assert_eq!(answer(run, property, Arithmetic::Real), Verdict::Proven, "{name}");
        let options = Options { arithmetic: Arithmetic::Float, seconds: 1.0, threads: Some(1), seed: 7 };
        let verdict = report(run, property, &options).verdict;
        assert!(matches!(verdict, Verdict::Undecided(_)), "{name}: {verdict:?}");
    });
}

/// Devices can replace subnormal operands by 0 (OpenCL 1.2, section 7.5.3; WGSL, section 15.7.2).
#[test]
fn subnormal_operands_can_be_zero() {
    let at_least_half = "(assert (<= Y_0 0.5))";
    let scaled = |x: &Tensor| Ok(x * 1e38f32);
    only_real("input", &|x| Ok(scaled(x)? * 10.0), &property(1, 1, (1e-39, 2e-39), at_least_half));
    only_real("a branch", &|x| Ok(x.gt(0.0).cast(DType::F32)), &property(1, 1, (1e-39, 2e-39), at_least_half));
    only_real("rounded up", &|x| Ok(x.ceil()), &property(1, 1, (1e-39, 2e-39), at_least_half));
    let tiny = || Tensor::from_slice(&[1e-39f32], [1]);
    only_real("a constant", &move |x| Ok(x * tiny() * 10.0), &property(1, 1, (1e38, 2e38), "(assert (<= Y_0 0.5))"));
    let weight = || Tensor::from_slice(&[1e-39f32, 1e-38], [2, 1]);
    let product = move |x: &Tensor| Ok(x.unsqueeze(0).matmul(&weight()).squeeze(0));
    only_real("a weight", &product, &property(2, 1, (1e37, 2e37), "(assert (<= Y_0 0.05))"));
}

/// Each result that reads a number can read another one of its two values.
#[test]
fn uses_of_a_subnormal_number_can_differ() {
    let large = || Tensor::from_slice(&[1e38f32, 1e38], [1, 2]);
    let difference = || Tensor::from_slice(&[1f32, -1.0], [2, 1]);
    let run = move |x: &Tensor| Ok(x.unsqueeze(0).matmul(&large()).matmul(&difference()).squeeze(0));
    only_real("a product", &run, &property(1, 1, (1e-39, 1e-38), "(assert (>= Y_0 0.5))"));
}

/// A comparison can flush what the selection returns: minima and maxima are `if a < b { a } else { b }`.
#[test]
fn minima_of_subnormal_numbers_can_be_either() {
    let scaled = |x: Tensor| x * 1e38f32;
    let other = || Tensor::from_slice(&[2e-39f32], [1]);
    let least = move |x: &Tensor| Ok(scaled(x.minimum(&other())));
    only_real("minimum", &least, &property(1, 1, (1e-39, 1.1e-39), "(assert (>= Y_0 0.15))"));
    let rows = move |x: &Tensor| Ok(scaled(x.reshape([1, 2]).max(1)));
    only_real("row maximum", &rows, &property(2, 1, (-1.1e-39, -1e-39), "(assert (<= Y_0 -0.15))"));
    let positive = move |x: &Tensor| Ok(scaled(x.maximum(0.0)));
    only_real("maximum", &positive, &property(1, 1, (-1e-38, 0.0), "(assert (<= Y_0 -0.5))"));
}

/// Other numbers are proven as tightly as before.
#[test]
fn normal_operands_and_kinks_at_zero_are_tight() {
    Device::get("cpu").unwrap().scope(|| {
        let leaky = |x: &Tensor| Ok(x.where_self(&x.gt(0.0), x * 0.5));
        for (set, asserted) in [((-1.0, 1.0), "(assert (>= Y_0 1.00001))"), ((-1.0, 1.0), "(assert (<= Y_0 -0.50001))")]
        {
            assert_eq!(answer(&leaky, &property(1, 1, set, asserted), Arithmetic::Float), Verdict::Proven);
        }
        let elu = |x: &Tensor| Ok(x.elu());
        assert_eq!(
            answer(&elu, &property(1, 1, (-1.0, 0.0), "(assert (>= Y_0 1e-6))"), Arithmetic::Float),
            Verdict::Proven
        );
        let scaled = |x: &Tensor| Ok(x * 1e38f32);
        let normal = property(1, 1, (1.2e-38, 2e-38), "(assert (<= Y_0 1))");
        assert_eq!(answer(&scaled, &normal, Arithmetic::Float), Verdict::Proven);
    });
}

/// f32 represents integers up to 2^24: 2^24 + 1 becomes 2^24.
#[test]
fn large_integers_are_rounded() {
    let number = |n: i32| Tensor::from_slice(&[n], [1]).cast(DType::F32);
    let above = |n: i32| move |x: &Tensor| Ok(x * 0.0 + (number(n) - (n - 1) as f32));
    let asserted = "(assert (<= Y_0 0.5))";
    only_real("2^24 + 1", &above(16_777_217), &property(1, 1, (0.0, 1.0), asserted));
    Device::get("cpu").unwrap().scope(|| {
        let small = property(1, 1, (0.0, 1.0), asserted);
        assert_eq!(answer(&above(16_777_216), &small, Arithmetic::Float), Verdict::Proven);
    });
}

/// The functions of f64 have no tested error bound.
#[test]
fn functions_of_f64_have_no_bound() {
    let run = |x: &Tensor| Ok(x.cast(DType::F64).exp().cast(DType::F32));
    only_real("exp", &run, &property(1, 1, (0.0, 1.0), "(assert (>= Y_0 3))"));
    // Its basic operations do.
    Device::get("cpu").unwrap().scope(|| {
        let sum = |x: &Tensor| Ok((x.cast(DType::F64) + 1.0).cast(DType::F32));
        let below = property(1, 1, (0.0, 1.0), "(assert (>= Y_0 2.001))");
        assert_eq!(answer(&sum, &below, Arithmetic::Float), Verdict::Proven);
    });
}

/// In real arithmetic nothing overflows.
#[test]
fn finite_outputs_are_no_claim_about_real_numbers() {
    let mut claim = property(1, 1, (0.0, 1.0), "(assert (>= Y_0 1e39))");
    claim.requires_finite = true;
    let options = Options { arithmetic: Arithmetic::Real, ..Options::default() };
    let error = panoply_verify::verify(&|x| Ok(x * 2.0), [1], &claim, &options, &mut |_| {}).unwrap_err();
    assert!(error.message().starts_with("whether outputs are finite"), "{}", error.message());
}

/// The comparison of outputs with their bounds ends with the time limit.
#[test]
fn slow_functions_keep_the_time_limit() {
    Device::get("cpu").unwrap().scope(|| {
        let slow = |x: &Tensor| {
            let started = Instant::now();
            while started.elapsed() < Duration::from_millis(150) {
                std::hint::spin_loop();
            }
            Ok(x * 2.0)
        };
        let claim = property(1, 1, (0.0, 1.0), "(assert (>= Y_0 3))");
        let options = Options { seconds: 1.0, threads: Some(1), ..Options::default() };
        let started = Instant::now();
        let report = panoply_verify::verify(&slow, [1], &claim, &options, &mut |_| {}).unwrap();
        assert_eq!(report.verdict, Verdict::Proven);
        assert!(started.elapsed().as_secs_f64() < 2.0, "{:?}", started.elapsed());
    });
}

#[test]
fn claims_too_large_for_memory_are_errors() {
    let all = InputBox::new([1 << 20, 1 << 20], 0.0, 1.0);
    let no_condition = |_: &[Tensor]| unreachable!("the set is refused first");
    let error = prove("large", &[("x", all)], &no_condition, &Options::default()).unwrap_err();
    assert!(error.message().starts_with("a box of 1099511627776 elements"), "{}", error.message());
    let claim = panoply_verify::claim::parse("[[claim]]\ninputs = [[0, 1]]\nholds = 'within 0..1'").unwrap().remove(0);
    let error = claim.property(10_000, None, &vec![0.0; 10_000]).unwrap_err();
    assert!(error.message().contains("are too many for one claim"), "{}", error.message());
}
