//! `panoply quantize IN OUT`: a language model with fewer bits per weight.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use panoply::llm::{QuantizedType, quantize};
use panoply::runtime::byte_size::human;
use panoply::{Error, Result};
use serde_json::json;

use crate::load_progress::LoadProgress;
use crate::output;

/// Quantize a language model: encode its weights in fewer bits, as llama.cpp does without an importance matrix
#[derive(Args)]
pub struct QuantizeCommand {
    /// GGUF file of F32, F16 or BF16; any shard of several
    input: PathBuf,
    /// GGUF file to write
    output: PathBuf,
    /// Encoding of the weights
    #[arg(long = "type", value_name = "TYPE", default_value = "q4_k_m")]
    kind: Kind,
    /// Overwrite the output if it exists
    #[arg(long)]
    force: bool,
    /// Print one JSON document on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Kind {
    /// 8.5 bits per weight
    #[value(name = "q8_0")]
    Q8_0,
    /// 4.5 bits per weight
    #[value(name = "q4_0")]
    Q4_0,
    /// 4.5 bits per weight, 6.6 for the most sensitive
    #[value(name = "q4_k_m")]
    Q4KM,
}

/// Writes the quantized model.
pub fn run(arguments: &QuantizeCommand) -> Result<ExitCode> {
    let QuantizeCommand { input, output, .. } = arguments;
    if output.exists() && !arguments.force {
        let message = format!("{} exists; choose another name, or pass --force to overwrite it", output.display());
        return Err(Error::mistake(message));
    }
    let kind = match arguments.kind {
        Kind::Q8_0 => QuantizedType::Q8_0,
        Kind::Q4_0 => QuantizedType::Q4_0,
        Kind::Q4KM => QuantizedType::Q4KM,
    };
    let mut progress = LoadProgress::new("quantizing");
    let size = quantize(input, output, kind, &mut |done, all| progress.show(done, all))?;
    drop(progress);
    if arguments.json {
        output::print_json(&json!({
            "schema": 1, "input": input.to_string_lossy(), "output": output.to_string_lossy(), "type": kind.name(),
            "weight_bytes_before": size.before, "weight_bytes": size.after,
        }));
    } else {
        let (before, after) = (human(size.before), human(size.after));
        println!("{}: {before} of weights became {after} in {}", output.display(), kind.name());
    }
    Ok(ExitCode::SUCCESS)
}
