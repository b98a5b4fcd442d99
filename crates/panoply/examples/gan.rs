//! A generative adversarial network that learns to place points on a circle.
//!
//! `cargo run --release --example gan`

use std::f64::consts::TAU;

use panoply::nn::{Adam, ForwardContext, Layer, Mlp};
use panoply::prelude::*;
use panoply::{Rng, Tensor};

const BATCH: usize = 128;
const NOISE: usize = 4;
const STEPS: usize = 1000;

/// Draws points near the unit circle.
fn circle(rng: &mut Rng) -> Tensor {
    let angle = rng.uniform([BATCH, 1]) * TAU;
    Tensor::concat([angle.cos(), angle.sin()], 1) + rng.normal([BATCH, 2]) * 0.05
}

/// Trains both networks and checks where the generator places points.
pub fn main() -> Result<()> {
    let mut rng = Rng::seed_from_u64(0);
    let mut generator = Mlp::new(&[NOISE, 64, 64, 2], 0.0, &mut rng);
    let mut discriminator = Mlp::new(&[2, 64, 64, 1], 0.0, &mut rng);
    let mut generator_optimizer = Adam::new(5e-4).betas(0.5, 0.9);
    let mut discriminator_optimizer = Adam::new(2e-3).betas(0.5, 0.9);
    for step in 1..=STEPS {
        let real = circle(&mut rng);
        let noise = rng.normal([BATCH, NOISE]);
        let mut pass = ForwardContext::train(&mut rng);
        let fake = generator.forward(&noise, &mut pass).detach();
        let [real, fake] = [&real, &fake].map(|points| discriminator.forward(points, &mut pass));
        let loss = (-real).softplus().mean(..) + fake.softplus().mean(..);
        let discriminator_loss = discriminator_optimizer.step(&mut discriminator, loss, pass)?;

        let noise = rng.normal([BATCH, NOISE]);
        let mut pass = ForwardContext::train(&mut rng);
        let fake = generator.forward(&noise, &mut pass);
        let loss = (-discriminator.forward(&fake, &mut pass)).softplus().mean(..);
        let generator_loss = generator_optimizer.step(&mut generator, loss, pass)?;
        if step % 250 == 0 {
            println!("step {step}: discriminator {discriminator_loss:.3}, generator {generator_loss:.3}");
        }
    }
    let points = generator.forward(&rng.normal([1000, NOISE]), &mut ForwardContext::eval());
    let radius = points.norm(-1).mean(..).item::<f64>()?;
    let center = points.mean(0).norm(..).item::<f64>()?;
    println!("mean distance from the origin {radius:.3}, of the mean point {center:.3}");
    assert!((0.9..1.1).contains(&radius) && center < 0.3, "the points are not on the circle");
    Ok(())
}
