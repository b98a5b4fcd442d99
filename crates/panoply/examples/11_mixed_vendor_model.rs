//! A model whose layers are on different devices, such as GPUs of two vendors: activations and gradients are copied between them.
//!
//! `cargo run --release --example 11_mixed_vendor_model`; `PANOPLY_DEVICE=cpu` chooses the first device. The second stage is on an OpenCL device
//! if there is one, otherwise on the interpreter `cpu:checked`.

use panoply::nn::data::digits;
use panoply::nn::{AdamW, Lambda, Linear, ModelParallel, Sequential};
use panoply::prelude::*;
use panoply::{Rng, Tensor};

/// Number of steps.
const STEPS: usize = 30;

/// Trains the model on a batch of digits.
pub fn main() -> Result<()> {
    let first = Device::current()?;
    let second = Device::get("opencl:0").or_else(|_| Device::get("cpu:checked"))?;
    let mut rng = Rng::seed_from_u64(1);
    let model = [
        (first.clone(), Sequential::new().add(Linear::new(64, 32, &mut rng)).add(Lambda(Tensor::relu))),
        (second, Sequential::new().add(Linear::new(32, 16, &mut rng)).add(Lambda(Tensor::relu))),
        (first, Sequential::new().add(Linear::new(16, 10, &mut rng))),
    ];
    let mut model = ModelParallel::new(model)?;
    let devices: Vec<String> = model.stages().iter().map(|stage| stage.device.device_string().to_string()).collect();
    println!("stages on {}", devices.join(", "));
    let batch = digits::load()?.select(&(0..128).collect::<Vec<usize>>()).full_batch();
    let mut optimizers = [AdamW::new(1e-2), AdamW::new(1e-2), AdamW::new(1e-2)];
    let mut losses = Vec::new();
    for _ in 0..STEPS {
        let loss = |logits: &Tensor| logits.cross_entropy(&batch.targets);
        losses.push(model.step(&mut optimizers, &batch.inputs, loss, &mut rng)?);
    }
    let (start, end) = (losses[0], losses[STEPS - 1]);
    println!("loss {start:.3} → {end:.3} in {STEPS} steps");
    assert!(end < 0.7 * start, "the loss fell from {start} only to {end}");
    Ok(())
}
