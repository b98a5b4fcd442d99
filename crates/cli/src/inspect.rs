//! `panoply inspect MODEL`: what a file of parameters holds.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use panoply::nn::checkpoint::Arrays;
use panoply::nn::data::source::Source;
use panoply::{DType, Device, Result, Tensor};
use serde_json::json;

use crate::output;
use crate::train::{folder, manifest::Manifest, outcome};

/// Layers, shapes, element types, sizes, and whether all numbers are finite.
#[derive(Args)]
pub struct Arguments {
    /// A file of parameters: safetensors, of `panoply train` or of anybody; or a run's folder.
    #[arg(value_parser = folder::model_file)]
    model: PathBuf,
    /// One JSON document on stdout.
    #[arg(long)]
    json: bool,
}

/// One array of the file.
struct Entry {
    name: String,
    dtype: DType,
    dims: Vec<usize>,
    bytes: usize,
    not_finite: usize,
}

/// Reads the file on the CPU and prints what is in it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    Device::get("cpu")?.scope(|| {
        let file = Arrays::read(&arguments.model)?;
        let mut digest = xxhash_rust::xxh3::Xxh3::new();
        let mut entries = Vec::new();
        for (name, tensor) in &file.arrays {
            digest.update(name.as_bytes());
            digest.update(&tensor.to_bytes()?);
            entries.push(Entry::of(name, tensor)?);
        }
        let digest = format!("{:032x}", digest.digest128());
        let manifest = Manifest::of_model(&arguments.model).ok();
        let summary = manifest.as_ref().map(|manifest| manifest.load(&arguments.model)?.summary()).transpose()?;
        let sum = |value: fn(&Entry) -> usize| entries.iter().map(value).sum::<usize>();
        let (elems, bytes) = (sum(|entry| entry.dims.iter().product()), sum(|entry| entry.bytes));
        let not_finite = sum(|entry| entry.not_finite);
        if arguments.json {
            let rows: Vec<_> = entries
                .iter()
                .map(|entry| {
                    let Entry { name, dtype, dims, bytes, not_finite } = entry;
                    json!({"name": name, "dtype": dtype.to_string(), "shape": dims, "bytes": bytes, "not_finite": not_finite})
                })
                .collect();
            output::print_json(&json!({
                "schema": 1, "model": arguments.model, "arrays": rows, "numbers": elems, "bytes": bytes,
                "not_finite": not_finite, "digest": digest, "summary": summary, "manifest": manifest,
                "metadata": if manifest.is_none() { Some(&file.metadata) } else { None },
            }));
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(manifest) = &manifest {
            let (data, settings) = (&manifest.data, &manifest.settings);
            println!("{} trained on {} by panoply {}", settings.model, data.path, manifest.panoply);
            let named = !data.classes.is_empty() && !matches!(data.source, Source::Text { .. });
            let classes = if named { format!(": {}", shortened(&data.classes)) } else { String::new() };
            println!("{}{classes}", data.learned());
            println!("by {}; the loss {}", settings.in_words(), manifest.network.loss);
            if let Some(result) = &manifest.result {
                println!("{}", outcome::headline(manifest, &result.best));
            }
        }
        summary.iter().for_each(|summary| println!("\n{summary}"));
        let width = entries.iter().map(|entry| entry.name.chars().count()).max().unwrap_or(0);
        for Entry { name, dtype, dims, bytes, not_finite } in &entries {
            let wrong = if *not_finite > 0 { format!("  {not_finite} not finite") } else { String::new() };
            println!("{name:width$}  {:<20}  {bytes:>10} bytes{wrong}", format!("{dtype}{dims:?}"));
        }
        println!("{} arrays, {elems} numbers, {bytes} bytes, {not_finite} NaN or infinite; digest {digest}", entries.len());
        Ok(ExitCode::SUCCESS)
    })
}

impl Entry {
    fn of(name: &str, tensor: &Tensor) -> Result<Entry> {
        let dims = tensor.shape()?.dims().to_vec();
        let bytes = dims.iter().product::<usize>() * tensor.dtype().bytes();
        let not_finite = match tensor.dtype().is_float() {
            true => tensor.cast(DType::F64).to_vec::<f64>()?.iter().filter(|number| !number.is_finite()).count(),
            false => 0,
        };
        Ok(Entry { name: name.to_string(), dtype: tensor.dtype(), dims, bytes, not_finite })
    }
}

fn shortened(classes: &[String]) -> String {
    match classes {
        [first @ .., _] if first.len() >= 12 => format!("{}, …", first[..12].join(", ")),
        all => all.join(", "),
    }
}
