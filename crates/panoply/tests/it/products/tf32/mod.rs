//! f32 products in TF32 by the simulated cuBLASLt: when TF32 is used, and its error.

use panoply::{DType, Device, MathMode, Tensor, jit};
use panoply_driver_sim::{Control, library};

use crate::products::{CASES, CUBLASLT, agree, cpu, cuda, numbers};

/// Computes an f32 product on a device.
fn product_of(device: &Device, [a, b]: &[Vec<f32>; 2]) -> Vec<f32> {
    let [a, b] = [(a, [9, 40]), (b, [40, 6])].map(|(values, dims)| Tensor::from_slice(values, dims).to(device));
    a.eval().and(b.eval()).unwrap();
    a.matmul(&b).to_vec().unwrap()
}

/// Compares with the definition of TF32: factors with a mantissa of ten bits, sums in f32.
pub fn asked() {
    let (device, control) = (cuda(library()), Control::open());
    let factors = [numbers(9 * 40, 5), numbers(40 * 6, 6)];
    let short = factors.clone().map(|of| of.iter().map(|x| f32::from_bits(x.to_bits() & !0x1FFF)).collect());
    let sums = |[a, b]: &[Vec<f32>; 2], term: fn(f64) -> f64| -> Vec<f64> {
        let at = |i: usize| (0..40).map(|k| term(f64::from(a[i / 6 * 40 + k]) * f64::from(b[k * 6 + i % 6]))).sum();
        (0..54).map(at).collect()
    };
    let (exact, rounded, sizes) = (sums(&factors, |x| x), sums(&short, |x| x), sums(&factors, f64::abs));
    let far = |found: &[f32], from: &[f64]| {
        found.iter().zip(from).map(|(x, y)| (f64::from(*x) - y).abs()).fold(0.0, f64::max)
    };
    for math_mode in [MathMode::Standard, MathMode::Fast] {
        device.set_math_mode(math_mode);
        device.set_allow_tf32(false);
        assert!(far(&product_of(&device, &factors), &exact) < 1e-5, "TF32 without permission under {math_mode}");
        device.set_allow_tf32(true);
        // Also when the plan is replayed.
        for _ in 0..4 {
            let found = product_of(&device, &factors);
            assert!(far(&found, &rounded) < 1e-5 && far(&found, &exact) > 1e-5, "{math_mode}: {found:?}");
            let near = |((x, y), size): ((&f32, &f64), &f64)| (f64::from(*x) - y).abs() <= size * 2f64.powi(-9);
            assert!(found.iter().zip(&exact).zip(&sizes).all(near), "the error exceeds the documented bound");
        }
    }
    let calls = control.calls(CUBLASLT);
    device.set_math_mode(MathMode::Exact);
    assert!(far(&product_of(&device, &factors), &exact) < 1e-5, "exact math uses no library");
    assert_eq!(control.calls(CUBLASLT), calls);
    device.set_math_mode(MathMode::Standard);
    for dtype in [DType::F16, DType::BF16, DType::F64] {
        agree(&device, &CASES[0], dtype, 3);
    }
    // A captured function is traced again when the setting changes, and a product that fails in TF32 is computed in
    // f32.
    let [x, w] =
        [Tensor::from_slice(&factors[0], [9, 40]), Tensor::from_slice(&factors[1], [40, 6])].map(|x| x.to(&device));
    let captured = jit(|[x]| [x.matmul(&w)]);
    for allow in [true, false, true] {
        device.set_allow_tf32(allow);
        let [found] = captured.call([&x]).unwrap();
        let found: Vec<f32> = found.to_vec().unwrap();
        assert!(far(&found, if allow { &rounded } else { &exact }) < 1e-5, "{allow}: {found:?}");
    }
    control.fail(CUBLASLT, 14, 0, 1);
    assert!(far(&product_of(&device, &factors), &exact) < 1e-5, "the fallback is in f32");
}

/// The setting changes no bit on a GPU without TF32 nor on the CPU.
pub fn absent() {
    let factors = [numbers(9 * 40, 5), numbers(40 * 6, 6)];
    for device in [cuda(library()), cpu()] {
        let plain = product_of(&device, &factors);
        device.set_allow_tf32(true);
        assert_eq!(product_of(&device, &factors), plain, "{device}");
        assert!(device.is_tf32_allowed());
    }
}
