//! The first steps of a training, which every device makes as the CPU does: of a network with norms, and of the digits'.

use panoply::nn::conformance::first_steps;
use panoply::nn::{AdamW, BatchNorm, ForwardContext, Lambda, Layer, LayerNorm, Linear, Module, Sequential};
use panoply::{Device, Rng, Tensor};

/// Steps that are compared: in them rounding has little time to grow.
const STEPS: usize = 20;

/// The losses and what was learned.
fn train(device: &Device) -> (Vec<f64>, Vec<f64>) {
    device.scope(|| {
        let mut rng = Rng::seed_from_u64(3);
        let mut model = Sequential::new()
            // A bias before this norm has no gradient but its rounding, of which Adam would make whole steps.
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

/// The digits alone: what the poorest device gets through.
#[track_caller]
pub fn learn_digits(device: &Device) {
    for outcome in first_steps(device).unwrap() {
        assert!(outcome.passed(), "{} on {device}: {outcome}", outcome.name);
    }
}

/// Fails unless this device makes them as the CPU does.
#[track_caller]
pub fn agree(device: &Device) {
    learn_digits(device);
    norms_agree(device);
}

/// The network with norms alone: what fits into the smallest buffers.
#[track_caller]
pub fn norms_agree(device: &Device) {
    let ((losses, params), (want_losses, want_params)) = (train(device), train(&Device::get("cpu").unwrap()));
    let near = |a: f64, b: f64, tolerance: f64| (a - b).abs() <= tolerance * (1.0 + b.abs());
    for (step, (have, want)) in losses.iter().zip(&want_losses).enumerate() {
        assert!(near(*have, *want, 1e-5), "step {step} on {device}: {have}, not {want}");
    }
    assert!(losses[STEPS - 1] < 0.8 * losses[0], "it learns: {losses:?}");
    assert_eq!(params.len(), want_params.len());
    for (have, want) in params.iter().zip(&want_params) {
        assert!(near(*have, *want, 1e-3), "{have} on {device}, not {want}");
    }
}
