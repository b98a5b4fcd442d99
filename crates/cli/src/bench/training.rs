//! `panoply bench training`: whole training steps, forward, backward, update and the loss read back.

use std::process::ExitCode;
use std::time::Instant;

use panoply::nn::{AdamW, Layer, Mlp, Module, Pass};
use panoply::{DType, Device, Profile, Result, Rng, Tensor, eval};
use serde_json::json;

use super::Options;

/// A network with a batch to learn.
struct Row {
    name: &'static str,
    run: fn(&mut Bench<'_>) -> Result<()>,
}

const ROWS: &[Row] = &[
    Row { name: "MLP 784-512-256-10, batch 64", run: |bench| bench.mlp(64) },
    Row { name: "MLP 784-512-256-10, batch 1024", run: |bench| bench.mlp(1024) },
];

/// One row under way.
struct Bench<'a> {
    device: &'a Device,
    budget: f64,
    profile: bool,
    rng: Rng,
    times: Vec<f64>,
    params: usize,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let choice = options.device.select()?;
    choice.explain();
    let device = choice.device();
    device.scope(|| {
        ROWS.iter().try_for_each(|row| {
            let rng = Rng::seed(1);
            let mut bench =
                Bench { device, budget: options.seconds, profile: options.profile, rng, times: Vec::new(), params: 0 };
            (row.run)(&mut bench)?;
            bench.times.sort_by(f64::total_cmp);
            let seconds = bench.times[bench.times.len() / 2];
            let steps = 1.0 / seconds;
            if options.json {
                let (name, device) = (row.name, device.spelling());
                let row = json!({
                    "schema": 1, "name": name, "device": device, "dtype": "f32", "seconds": seconds,
                    "parameters": bench.params,
                });
                println!("{row}");
            } else {
                println!("{:<34} {:>9.3} ms a step, {steps:>8.0} steps/s", row.name, seconds * 1e3);
            }
            Ok(())
        })
    })?;
    Ok(choice.exit_code())
}

impl Bench<'_> {
    fn mlp(&mut self, batch: usize) -> Result<()> {
        let model = Mlp::new(&[784, 512, 256, 10], 0.0, &mut self.rng);
        self.classifier(model, &[batch, 784], 10)
    }

    /// Steps of Adam on random examples that stay on the device.
    fn classifier(&mut self, mut model: impl Layer + Module, input: &[usize], classes: usize) -> Result<()> {
        let x = self.rng.normal(input);
        let y = (self.rng.uniform([input[0]]) * classes as f64).cast(DType::I32);
        eval(&[&x, &y])?;
        let (x, y): (Tensor, Tensor) = (x.detach(), y.detach());
        let mut optimiser = AdamW::new(1e-3);
        self.params = model.param_count();
        let mut step = || -> Result<f64> {
            let start = Instant::now();
            let mut pass = Pass::train(&mut self.rng);
            let loss = model.forward(&x, &mut pass).cross_entropy(&y);
            optimiser.step(&mut model, &loss, pass)?;
            self.device.synchronize()?;
            Ok(start.elapsed().as_secs_f64())
        };
        for _ in 0..3 {
            step()?;
        }
        if self.profile {
            let profile = Profile::start(self.device)?;
            step()?;
            eprintln!("{}", profile.finish()?);
        }
        while self.times.len() < 10_000 && self.times.iter().sum::<f64>() < self.budget {
            self.times.push(step()?);
        }
        Ok(())
    }
}
