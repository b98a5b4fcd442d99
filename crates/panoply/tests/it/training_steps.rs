//! The first steps of a training, which must agree with the CPU on every device: of a network with norms, and of the
//! digits model.

use panoply::nn::conformance::first_steps;
use panoply::nn::{AdamW, BatchNorm, ForwardContext, Lambda, Layer, LayerNorm, Linear, Module, Sequential};
use panoply::{Device, Rng, Tensor};

/// Number of compared steps; over so few steps rounding errors have little time to grow.
const STEPS: usize = 20;

/// Returns the losses and the trained parameters.
fn train(device: &Device) -> (Vec<f64>, Vec<f64>) {
    device.scope(|| {
        let mut rng = Rng::seed_from_u64(3);
        let mut model = Sequential::new()
            // The gradient of a bias before this norm is only rounding error, which Adam would scale to full steps.
            .add(Linear::new(12, 9, &mut rng).without_bias())
            .add(BatchNorm::new(9))
            .add(Lambda(Tensor::gelu))
            .add(LayerNorm::new(9))
            .add(Linear::new(9, 4, &mut rng));
        let x = rng.normal([10, 12]);
        let labels: Vec<i32> = (0..10).map(|i| i % 4).collect();
        let y = Tensor::from_slice(&labels, [10]);
        let mut optimizer = AdamW::new(1e-2).clip_grad_norm(1.0);
        let step = |_| {
            let mut pass = ForwardContext::train(&mut rng);
            let loss = model.forward(&x, &mut pass).cross_entropy(&y);
            optimizer.step(&mut model, loss, pass).unwrap()
        };
        let losses = (0..STEPS).map(step).collect();
        let params = model.named_parameters();
        let numbers = params.iter().flat_map(|(_, param)| param.tensor().to_vec::<f32>().unwrap());
        (losses, numbers.map(f64::from).collect())
    })
}

/// Trains the digits model alone, which even the least capable device supports.
#[track_caller]
pub fn learn_digits(device: &Device) {
    for outcome in first_steps(device).unwrap() {
        assert!(outcome.passed(), "{} on {device}: {outcome}", outcome.name);
    }
}

/// Panics unless the training steps on this device agree with the CPU.
#[track_caller]
pub fn agree(device: &Device) {
    learn_digits(device);
    norms_agree(device);
}

/// Compares the network with norms alone, which fits into the smallest buffers.
#[track_caller]
pub fn norms_agree(device: &Device) {
    let ((losses, params), (want_losses, want_params)) = (train(device), train(&Device::get("cpu").unwrap()));
    let near = |a: f64, b: f64, tolerance: f64| (a - b).abs() <= tolerance * (1.0 + b.abs());
    for (step, (have, want)) in losses.iter().zip(&want_losses).enumerate() {
        assert!(near(*have, *want, 1e-5), "step {step} on {device}: {have}, expected {want}");
    }
    assert!(losses[STEPS - 1] < 0.8 * losses[0], "the loss does not decrease: {losses:?}");
    assert_eq!(params.len(), want_params.len());
    for (have, want) in params.iter().zip(&want_params) {
        assert!(near(*have, *want, 1e-3), "{have} on {device}, expected {want}");
    }
}
