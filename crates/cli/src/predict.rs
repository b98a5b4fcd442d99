//! `panoply predict MODEL`: a trained network reads digits, shown as a person would see them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use panoply::nn::data::{Dataset, digits};
use panoply::nn::{Layer, Pass};
use panoply::{DType, Error, Result, Rng, Tensor};
use serde_json::json;

use crate::output::{self, DeviceChoice};
use crate::train;

/// Let a trained network read some digits.
#[derive(Args)]
pub struct Arguments {
    /// The model file that `panoply train` wrote.
    model: PathBuf,
    /// How many digits to show.
    #[arg(long, default_value_t = 4)]
    count: usize,
    /// Which digits: another seed, others.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    device: DeviceChoice,
    /// One JSON document on stdout.
    #[arg(long)]
    json: bool,
}

/// Reads the model, takes digits at random, and prints what the model sees in them.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let choice = arguments.device.select()?;
    choice.device().scope(|| {
        let model = train::load(&arguments.model)?;
        let data = digits::load()?;
        let order = Rng::seed(arguments.seed).permutation(data.len());
        let shown = data.select(&order[..arguments.count.min(data.len())]);
        if shown.is_empty() {
            return Err(Error::mistake("--count 0: there is nothing to show"));
        }
        let inputs = Tensor::from_slice(&shown.features, [shown.len(), shown.width]);
        let shares = model.forward(&inputs, &mut Pass::eval()).softmax(-1);
        let (best, share) = (shares.argmax(-1), shares.max(-1));
        let (best, share) = (best.to_vec::<i32>()?, share.cast(DType::F32).to_vec::<f32>()?);
        if arguments.json {
            let rows: Vec<_> = (0..shown.len())
                .map(|i| json!({"digit": order[i], "label": shown.labels[i], "read": best[i], "confidence": share[i]}))
                .collect();
            output::print_json(&json!({"schema": 1, "device": choice.device().to_string(), "predictions": rows}));
        } else {
            (0..shown.len()).for_each(|i| show(&shown, i, best[i], share[i]));
        }
        Ok(choice.exit_code())
    })
}

fn show(data: &Dataset, example: usize, read: i32, share: f32) {
    const INK: [char; 5] = [' ', '░', '▒', '▓', '█'];
    let points = &data.features[example * data.width..(example + 1) * data.width];
    for row in points.chunks(8) {
        let line: String =
            row.iter().map(|point| INK[(point * 4.0).round() as usize]).flat_map(|ink| [ink, ink]).collect();
        println!("  {line}");
    }
    let verdict = if read == data.labels[example] { "right" } else { "wrong" };
    println!("  reads {read} ({:.1} %), is {}: {verdict}\n", share * 100.0, data.labels[example]);
}
