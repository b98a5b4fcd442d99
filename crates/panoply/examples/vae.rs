//! A variational autoencoder of handwritten digits, which then draws new ones.
//!
//! `cargo run --release --example vae`

use panoply::nn::data::digits;
use panoply::nn::{Adam, ForwardContext, Layer, Mlp};
use panoply::prelude::*;
use panoply::{BceOptions, Module, Reduction, Rng, Tensor};

const LATENT: usize = 8;
const EPOCHS: usize = 20;

#[derive(Module, Clone)]
struct Vae {
    encoder: Mlp,
    decoder: Mlp,
}

impl Vae {
    fn new(rng: &mut Rng) -> Vae {
        Vae { encoder: Mlp::new(&[64, 128, 2 * LATENT], 0.0, rng), decoder: Mlp::new(&[LATENT, 128, 64], 0.0, rng) }
    }

    /// Returns the negative evidence lower bound (ELBO) of images, in nats per image.
    fn loss(&self, images: &Tensor, pass: &mut ForwardContext<'_>) -> Tensor {
        let encoded = self.encoder.forward(images, pass);
        let (mean, log_var) = (encoded.slice((.., ..LATENT)), encoded.slice((.., LATENT..)));
        let noise = pass.rng().map_or_else(|| mean.zeros_like(), |rng| rng.normal_like(&mean));
        let logits = self.decoder.forward(&(&mean + (&log_var * 0.5).exp() * noise), pass);
        let options = BceOptions { reduction: Reduction::None, ..BceOptions::default() };
        let reconstruction = logits.binary_cross_entropy_with_logits(images, &options).sum(-1);
        let kl = (log_var.exp() + mean.square() - 1 - &log_var).sum(-1) * 0.5;
        (reconstruction + kl).mean(..)
    }
}

/// Trains the autoencoder and prints a digit that it draws.
pub fn main() -> Result<()> {
    let (digits, mut rng) = (digits::load()?, Rng::seed_from_u64(0));
    let mut model = Vae::new(&mut rng);
    let mut optimizer = Adam::new(2e-3);
    let mut mean_loss = f64::NAN;
    for epoch in 1..=EPOCHS {
        let mut sum = 0.0;
        for batch in digits.batches(64, &mut rng) {
            let batch = batch?;
            let mut pass = ForwardContext::train(&mut rng);
            let loss = model.loss(&batch.inputs, &mut pass);
            sum += optimizer.step(&mut model, loss, pass)? * batch.len()? as f64;
        }
        mean_loss = sum / digits.len() as f64;
        if epoch % 10 == 0 {
            println!("epoch {epoch}: loss {mean_loss:.2}");
        }
    }
    let image = model.decoder.forward(&rng.normal([1, LATENT]), &mut ForwardContext::eval()).sigmoid();
    for row in image.to_vec::<f32>()?.chunks(8) {
        println!("{}", row.iter().map(|&light| b" .:-=+*#%@"[(light * 9.99) as usize] as char).collect::<String>());
    }
    assert!(mean_loss < 26.0, "the loss is {mean_loss}");
    Ok(())
}
