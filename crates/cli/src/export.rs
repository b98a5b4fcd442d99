//! `panoply export MODEL`: a trained network as an ONNX file, for programs of others.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use panoply::nn::data::source::Source;
use panoply::nn::{checkpoint::TensorFile, onnx};
use panoply::{Device, Error, Result};
use serde_json::json;

use crate::protect;
use crate::train::{folder, manifest::Manifest};

/// Write a trained network as an ONNX file (opset 17).
#[derive(Args)]
pub struct Arguments {
    /// The model file that `panoply train` wrote, or its run's folder.
    #[arg(value_parser = folder::model_file())]
    model: PathBuf,
    /// Output file; by default beside the model. Parameters of 2 GiB and more go to a second file beside it, FILE.onnx.data.
    #[arg(long, value_name = "FILE.onnx")]
    out: Option<PathBuf>,
    /// One JSON document on stdout.
    #[arg(long)]
    json: bool,
}

/// Reads the model on the CPU and writes the file.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    Device::get("cpu")?.scope(|| {
        let file = TensorFile::read(&arguments.model)?;
        let manifest = Manifest::of_model(&file)?;
        let model = manifest.load(&file)?;
        let out = match &arguments.out {
            Some(out) => out.clone(),
            None if protect::is_stream(&arguments.model) => {
                return Err(Error::mistake("--out FILE.onnx is missing: a model that is read from a pipe has no folder"));
            }
            None => arguments.model.with_extension("onnx"),
        };
        for out in [out.clone(), onnx::data_path(&out)] {
            protect::check_export(&out, &arguments.model, Path::new(&manifest.data.path))?;
        }
        // What a pipe carries is the network alone.
        let stream = protect::is_stream(&out);
        let saved = onnx::save(&model, &out)?;
        let (input, output) = (&manifest.network.input, manifest.network.output()?);
        if let Source::Csv { sequences: Some(sequences), .. } = &manifest.data.source {
            eprintln!("in the file every sequence has {} rows: ONNX knows nothing of ends before that", sequences.time);
        }
        let offsets = manifest.data.offsets_by_name();
        for (name, offset) in &offsets {
            eprintln!("in the file {name} is a difference from {offset}, since f32 does not hold its digits: subtract it from inputs in f64, or add it to outputs");
        }
        let second = saved.data.as_ref().map(|(path, bytes)| json!({"path": path.to_string_lossy(), "bytes": bytes}));
        let report = if arguments.json {
            let document = json!({
                "schema": 1, "model": arguments.model.to_string_lossy(), "out": out.to_string_lossy(), "bytes": saved.bytes,
                "data": second, "opset": 17, "input": input, "output": output, "classes": manifest.data.classes,
                "loss": manifest.network.loss.kind.name(), "offsets": offsets,
            });
            format!("{document:#}")
        } else {
            let what = if manifest.network.loss.kind.is_of_differences() { "numbers" } else { "logits" };
            let second = saved.data.map_or_else(String::new, |(path, bytes)| {
                format!(", its parameters are {bytes} bytes in {}, which belongs to it", path.display())
            });
            let (path, bytes, input, output) = (out.display(), saved.bytes, listed(input), listed(&output));
            format!("wrote {path}: {bytes} bytes{second}, input [batch, {input}], output [batch, {output}] of {what}")
        };
        if stream { eprintln!("{report}") } else { println!("{report}") }
        Ok(ExitCode::SUCCESS)
    })
}

fn listed(lengths: &[usize]) -> String {
    lengths.iter().map(usize::to_string).collect::<Vec<String>>().join(", ")
}
