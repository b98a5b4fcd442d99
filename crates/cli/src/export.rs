//! `panoply export MODEL`: writes a trained network as an ONNX file, or the weights of an ONNX file as a safetensors file.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use panoply::nn::data::reader::DataFormat;
use panoply::nn::{Module, checkpoint, checkpoint::TensorFile, onnx};
use panoply::{Device, Error, Result};
use serde_json::json;

use crate::protect;
use crate::train::manifest::Manifest;
use crate::train::model_file::{self, is_onnx};
use crate::train::run_dir;

/// Export a trained model to ONNX (opset 17), or the weights of an ONNX file to safetensors
#[derive(Args)]
pub struct ExportCommand {
    /// The model file that `panoply train` wrote, its run folder, or an ONNX file
    #[arg(value_parser = run_dir::model_file())]
    model: PathBuf,
    /// Output file [default: beside the model]. Of an ONNX file, FILE.safetensors receives its weights. Parameters of 2 GiB or more go to a second file beside it, FILE.onnx.data
    #[arg(short, long, visible_alias = "out", value_name = "FILE.onnx")]
    output: Option<PathBuf>,
    /// Print one JSON document on stdout
    #[arg(long)]
    json: bool,
}

/// Reads the model on the CPU and writes the file.
pub fn run(arguments: &ExportCommand) -> Result<ExitCode> {
    Device::get("cpu")?.scope(|| {
        if is_onnx(&arguments.model) {
            return export_onnx(arguments);
        }
        let file = TensorFile::read(&arguments.model)?;
        let manifest = Manifest::of_model(&file)?;
        let model = manifest.load(&file)?;
        let out = match &arguments.output {
            Some(out) => out.clone(),
            None if protect::is_stream(&arguments.model) => {
                return Err(Error::mistake("--output FILE.onnx is missing: it is required if the model is read from a pipe"));
            }
            None => arguments.model.with_extension("onnx"),
        };
        for out in [out.clone(), onnx::data_path(&out)] {
            protect::check_export(&out, &arguments.model, Path::new(&manifest.data.path))?;
        }
        // A pipe receives the network only.
        let stream = protect::is_stream(&out);
        let options = onnx::ExportOptions { metadata: metadata(&manifest), ..Default::default() };
        let saved = onnx::export_with_options(&model, &out, &options)?;
        let (input, output) = (&manifest.network.input, manifest.network.output_shape()?);
        if let DataFormat::Csv { sequence: Some(sequences), .. } = &manifest.data.format {
            note!("every sequence in the ONNX file has {} rows: valid lengths are not exported", sequences.max_len);
        }
        let offsets = manifest.data.offsets_by_name();
        for (name, offset) in &offsets {
            note!("in the ONNX file {name} is a difference from {offset}, because f32 has too few digits: subtract it from inputs in f64, or add it to outputs");
        }
        let external_data = saved.data.as_ref().map(|(path, bytes)| json!({"path": path.to_string_lossy(), "size_bytes": bytes}));
        let report = if arguments.json {
            let document = json!({
                "schema": 1, "model": arguments.model.to_string_lossy(), "path": out.to_string_lossy(), "size_bytes": saved.bytes,
                "data": external_data, "opset": saved.opset, "input_shape": input, "output_shape": output, "class_names": manifest.data.class_names,
                "loss": manifest.network.loss.kind.name(), "offsets": offsets,
            });
            format!("{document:#}")
        } else {
            let what = if manifest.network.loss.kind.is_regression() { "numbers" } else { "logits" };
            let external_data = saved.data.map_or_else(String::new, |(path, bytes)| {
                format!(", with parameters of {bytes} bytes in {}, which must stay beside it", path.display())
            });
            let (path, bytes, input, output) = (out.display(), saved.bytes, listed(input), listed(&output));
            format!("wrote {path}: {bytes} bytes{external_data}, input [batch, {input}], output [batch, {output}] of {what}")
        };
        if stream { eprintln!("{report}") } else { println!("{report}") }
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns the metadata of the ONNX file: names of classes, columns and categories, and scalings, as JSON. Programs need them to prepare
/// inputs and to name outputs.
fn metadata(manifest: &Manifest) -> BTreeMap<String, String> {
    let data = &manifest.data;
    let mut entries =
        vec![("class_names", json!(data.class_names)), ("loss", json!(manifest.network.loss.kind.name()))];
    let schema = (model_file::SCHEMA.to_string(), json!(data.schema()).to_string());
    if let DataFormat::Csv {
        feature_columns,
        label_columns,
        categories,
        offsets,
        scales,
        imputation,
        date_orders,
        ..
    } = &data.format
    {
        entries.extend([
            ("feature_columns", json!(feature_columns)),
            ("label_columns", json!(label_columns)),
            ("categories", json!(categories)),
            ("offsets", json!(offsets)),
            ("scales", json!(scales)),
            ("imputation", json!(imputation)),
            ("date_orders", json!(date_orders)),
        ]);
    }
    let named = entries.into_iter().map(|(key, value)| (format!("panoply.{key}"), value.to_string()));
    named.chain([schema]).collect()
}

/// Writes the weights of an ONNX file to a safetensors file, or the network to another ONNX file, which includes the tensors that the first
/// stores as external data.
fn export_onnx(arguments: &ExportCommand) -> Result<ExitCode> {
    let model = &arguments.model;
    let out = arguments.output.clone().unwrap_or_else(|| model.with_extension("safetensors"));
    let is_weights = out.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("safetensors"));
    if !is_weights && !is_onnx(&out) && !protect::is_stream(&out) {
        let message = format!("--output {}: an ONNX file is exported to FILE.safetensors or FILE.onnx", out.display());
        return Err(Error::mistake(message));
    }
    let network = onnx::Imported::open(model)?;
    protect::check_export(&out, model, model)?;
    let params = network.named_parameters();
    let (bytes, what) = if is_weights {
        if params.is_empty() {
            return Err(Error::mistake(format!("{} has no weights", model.display())));
        }
        checkpoint::save(&network, &out, HashMap::new())?;
        let bytes = std::fs::metadata(&out).map_or(0, |file| file.len());
        (bytes, format!("{} tensors", params.len()))
    } else {
        let saved = network.save(&out, &network.info.metadata)?;
        (saved.bytes, format!("ONNX opset {}", saved.opset))
    };
    let report = match arguments.json {
        true => format!(
            "{:#}",
            json!({
                "schema": 1, "model": model.to_string_lossy(), "path": out.to_string_lossy(), "size_bytes": bytes,
                "opset": network.info.opset, "tensors": params.len(),
            })
        ),
        false => format!("wrote {}: {bytes} bytes, {what}", out.display()),
    };
    if protect::is_stream(&out) {
        eprintln!("{report}")
    } else {
        println!("{report}")
    }
    Ok(ExitCode::SUCCESS)
}

fn listed(lengths: &[usize]) -> String {
    lengths.iter().map(usize::to_string).collect::<Vec<String>>().join(", ")
}
