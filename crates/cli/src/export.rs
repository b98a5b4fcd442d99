//! `panoply export MODEL`: a trained network as an ONNX file, for programs of others.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use panoply::nn::data::source::Source;
use panoply::nn::onnx;
use panoply::{Device, Error, Result};
use serde_json::json;

use crate::output;
use crate::train::{folder, manifest::Manifest};

/// Write a trained network as an ONNX file (opset 17).
#[derive(Args)]
pub struct Arguments {
    /// The model file that `panoply train` wrote, or its run's folder.
    #[arg(value_parser = folder::model_file)]
    model: PathBuf,
    /// Where to; beside the model if nothing is said.
    #[arg(long, value_name = "FILE.onnx")]
    out: Option<PathBuf>,
    /// One JSON document on stdout.
    #[arg(long)]
    json: bool,
}

/// Reads the model on the CPU and writes the file.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    Device::get("cpu")?.scope(|| {
        let manifest = Manifest::of_model(&arguments.model)?;
        let model = manifest.load(&arguments.model)?;
        let out = arguments.out.clone().unwrap_or_else(|| arguments.model.with_extension("onnx"));
        if out == arguments.model {
            return Err(Error::mistake(format!("--out {} is the model itself", out.display())));
        }
        let bytes = onnx::to_bytes(&model)?;
        panoply::nn::checkpoint::write_whole(&out, &bytes)?;
        let (input, output) = (&manifest.network.input, manifest.network.output()?);
        if let Source::Csv { sequences: Some(sequences), .. } = &manifest.data.source {
            eprintln!("in the file every sequence has {} rows: ONNX knows nothing of ends before that", sequences.time);
        }
        if arguments.json {
            output::print_json(&json!({
                "schema": 1, "model": arguments.model, "out": out, "bytes": bytes.len(), "opset": 17, "input": input, "output": output,
                "classes": manifest.data.classes, "loss": manifest.network.loss.kind.name(),
            }));
        } else {
            let what = if manifest.network.loss.kind.is_of_differences() { "numbers" } else { "logits" };
            println!("wrote {}: {} bytes, input [batch, {}], output [batch, {}] of {what}", out.display(), bytes.len(), listed(input), listed(&output));
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn listed(lengths: &[usize]) -> String {
    lengths.iter().map(usize::to_string).collect::<Vec<String>>().join(", ")
}
