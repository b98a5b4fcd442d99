//! Training conformance test of a device: the first steps of a multi-layer perceptron on the digits.
//!
//! `panoply_tensor`'s suite checks single operations. This test checks training: gradients, an optimizer that updates in place, and plans
//! that are captured and replayed. The steps are few, so rounding errors stay small, and the network is small enough for a GPU simulator.
//! The reference is another executor: the CPU, or for the CPU its checked mode.

use panoply_tensor::conformance::{Outcome, Worst};
use panoply_tensor::{Device, Result, Rng};

use crate::data::digits;
use crate::layer::{ForwardContext, Layer};
use crate::layers::Mlp;
use crate::module::Module;
use crate::optim::AdamW;
use crate::readback::{WaitMode, finished};

/// Number of steps that are compared.
pub const STEPS: usize = 20;

/// Batch size.
const BATCH: usize = 8;

/// Tolerance of losses, relative to the largest; losses are sums of few numbers.
const LOSSES: f64 = 1e-5;

/// Tolerance of parameters: Adam follows the sign of even tiny gradients, by at most the learning rate per step.
const PARAMETERS: f64 = 1e-3;

/// Losses and parameters of the first steps on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstSteps {
    /// Loss of each step.
    pub losses: Vec<f64>,
    /// All parameters after the last step.
    pub parameters: Vec<f64>,
}

impl FirstSteps {
    /// Runs the steps on a device.
    ///
    /// # Errors
    /// If a step fails.
    pub fn run(device: &Device) -> Result<FirstSteps> {
        finished(FirstSteps::run_with(device, WaitMode::Blocking))
    }

    /// [`FirstSteps::run`] without blocking, as browsers require.
    ///
    /// # Errors
    /// As for [`FirstSteps::run`].
    pub async fn run_async(device: &Device) -> Result<FirstSteps> {
        FirstSteps::run_with(device, WaitMode::Async).await
    }

    async fn run_with(device: &Device, wait_mode: WaitMode) -> Result<FirstSteps> {
        let mut rng = Rng::seed_from_u64(5);
        let data = digits::load()?.select(&(0..STEPS * BATCH).collect::<Vec<usize>>());
        let mut model = Mlp::new(&[64, 32, 10], 0.0, &mut rng);
        let mut optimizer = AdamW::new(1e-2).clip_grad_norm(1.0);
        let mut losses = Vec::with_capacity(STEPS);
        let mut batches = data.batches(BATCH, &mut rng);
        // Parameters and state follow the device of the examples.
        while let Some(batch) = device.scope(|| batches.next()) {
            let batch = batch?;
            let mut pass = ForwardContext::train(&mut rng);
            let loss = model.forward(&batch.inputs, &mut pass).cross_entropy(&batch.targets);
            losses.push(match wait_mode {
                WaitMode::Blocking => optimizer.step(&mut model, loss, pass)?,
                WaitMode::Async => optimizer.step_async(&mut model, loss, pass).await?,
            });
        }
        let mut parameters = Vec::new();
        for (_, param) in model.named_parameters() {
            parameters.extend(wait_mode.numbers(param.tensor()).await?.into_iter().map(f64::from));
        }
        Ok(FirstSteps { losses, parameters })
    }

    /// Compares losses and parameters with those of another device.
    pub fn compare(&self, other: &FirstSteps) -> [Outcome; 2] {
        let outcome = |name: &str, limit, have: &[f64], want: &[f64]| Outcome {
            name: format!("{name} of {STEPS} steps on the digits"),
            unit: "relative to the largest element",
            limit,
            worst: Worst::relative(&[have.to_vec()], &[want.to_vec()]),
        };
        [
            outcome("losses", LOSSES, &self.losses, &other.losses),
            outcome("parameters", PARAMETERS, &self.parameters, &other.parameters),
        ]
    }
}

/// Returns the reference device: the CPU, or for the CPU its checked mode.
///
/// # Errors
/// If that device is not available.
pub fn oracle(device: &Device) -> Result<Device> {
    let cpu = Device::get("cpu")?;
    if *device == cpu { Device::get("cpu:checked") } else { Ok(cpu) }
}

/// Compares the first steps on a device with those on its [`oracle`].
///
/// # Errors
/// If a step fails on one of them.
pub fn first_steps(device: &Device) -> Result<[Outcome; 2]> {
    Ok(FirstSteps::run(device)?.compare(&FirstSteps::run(&oracle(device)?)?))
}
