//! What every device must learn: the first steps of a dense network on the digits.
//!
//! That operations are right says `panoply_tensor`'s suite; this says that a training of them is: gradients, an optimizer that writes
//! over what it read, and plans that are recorded and replayed, step after step. So few steps that rounding has no time to grow, so small
//! a network that a simulator of a GPU gets through. The oracle is another executor: the CPU, and of the CPU its checked form.

use panoply_tensor::conformance::{Outcome, Worst};
use panoply_tensor::{Device, Result, Rng};

use crate::data::digits;
use crate::layer::{ForwardContext, Layer};
use crate::layers::Mlp;
use crate::module::Module;
use crate::optim::AdamW;
use crate::readback::{WaitMode, finished};

/// Steps that are compared.
pub const STEPS: usize = 20;

/// Examples of a step.
const BATCH: usize = 8;

/// How far losses may be apart, as a share of the largest; they are sums of few numbers.
const LOSSES: f64 = 1e-5;

/// How far parameters may be apart: Adam follows the sign of a gradient however small that is, at most the learning rate a step.
const PARAMETERS: f64 = 1e-3;

/// What came of the first steps on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstSteps {
    /// The loss of each step.
    pub losses: Vec<f64>,
    /// All parameters after the last.
    pub parameters: Vec<f64>,
}

impl FirstSteps {
    /// Makes them.
    pub fn run(device: &Device) -> Result<FirstSteps> {
        finished(FirstSteps::made(device, WaitMode::Blocking))
    }

    /// [`FirstSteps::run`] where nothing may wait, as in browsers.
    pub async fn run_async(device: &Device) -> Result<FirstSteps> {
        FirstSteps::made(device, WaitMode::Async).await
    }

    async fn made(device: &Device, arrival: WaitMode) -> Result<FirstSteps> {
        let mut rng = Rng::seed_from_u64(5);
        let data = digits::load()?.select(&(0..STEPS * BATCH).collect::<Vec<usize>>());
        let mut model = Mlp::new(&[64, 32, 10], 0.0, &mut rng);
        let mut optimizer = AdamW::new(1e-2).clip_grad_norm(1.0);
        let mut losses = Vec::with_capacity(STEPS);
        let mut batches = data.batches(BATCH, &mut rng);
        // Everything else is where the examples are.
        while let Some(batch) = device.scope(|| batches.next()) {
            let (x, y) = batch?;
            let mut pass = ForwardContext::train(&mut rng);
            let loss = model.forward(&x, &mut pass).cross_entropy(&y);
            losses.push(match arrival {
                WaitMode::Blocking => optimizer.step(&mut model, loss, pass)?,
                WaitMode::Async => optimizer.step_async(&mut model, loss, pass).await?,
            });
        }
        let mut parameters = Vec::new();
        for (_, param) in model.named_parameters() {
            parameters.extend(arrival.numbers(param.tensor()).await?.into_iter().map(f64::from));
        }
        Ok(FirstSteps { losses, parameters })
    }

    /// How far they are from those of another device.
    pub fn compare(&self, other: &FirstSteps) -> [Outcome; 2] {
        let outcome = |name: &str, limit, have: &[f64], want: &[f64]| Outcome {
            name: format!("{name} of {STEPS} steps on the digits"),
            unit: "of the largest",
            limit,
            worst: Worst::relative(&[have.to_vec()], &[want.to_vec()]),
        };
        [
            outcome("losses", LOSSES, &self.losses, &other.losses),
            outcome("parameters", PARAMETERS, &self.parameters, &other.parameters),
        ]
    }
}

/// Whose first steps those of a device are compared with: the CPU's, and of the CPU itself its checked form's.
pub fn oracle(device: &Device) -> Result<Device> {
    let cpu = Device::get("cpu")?;
    if *device == cpu { Device::get("cpu:checked") } else { Ok(cpu) }
}

/// How far the first steps on a device are from the oracle's.
pub fn first_steps(device: &Device) -> Result<[Outcome; 2]> {
    Ok(FirstSteps::run(device)?.compare(&FirstSteps::run(&oracle(device)?)?))
}
