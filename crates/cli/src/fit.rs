//! `panoply fit MODEL`: memory and speed of a language model, from the headers of its files and a measurement of the memory bandwidth.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use panoply::Result;
use panoply::llm::{self, Fit, ModelOptions};
use panoply::runtime::byte_size::human;
use serde_json::json;

use crate::bench::Limits;
use crate::generation_args::{CONTEXT_NOTE, with_context_note};
use crate::output::{self, DeviceArgs};
use crate::train::train_args::parse_count;

/// Show the memory that a language model needs, whether it fits, and the expected speed
///
/// Exits with 1 if the model does not fit. Weights are not read.
#[derive(Args)]
pub struct FitCommand {
    /// Model: a GGUF file or a Hugging Face folder
    model: PathBuf,
    /// Size of the key-value cache of each sequence in tokens [default: the context length of the model]
    #[arg(long, value_name = "N")]
    context_length: Option<usize>,
    /// Number of sequences with a cache of their own
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = parse_count)]
    sequences: usize,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print one JSON document on stdout
    #[arg(long)]
    json: bool,
}

/// Seconds for which the bandwidth is measured.
const BANDWIDTH_SECONDS: f64 = 0.3;

/// Prints the memory and the highest speed, at which each token reads the weights once at the bandwidth of the device.
pub fn run(arguments: &FitCommand) -> Result<ExitCode> {
    let choice = arguments.device.select()?;
    let device = choice.device();
    let options = ModelOptions { context_length: arguments.context_length };
    let fit = llm::fit(&arguments.model, &options, arguments.sequences, device)
        .map_err(|error| with_context_note(error, CONTEXT_NOTE))?;
    let gbps = Limits::new(device, BANDWIDTH_SECONDS).gbps()?;
    let tokens_per_second = gbps * 1e9 / fit.weight_bytes_per_token.max(1) as f64;
    if arguments.json {
        output::print_json(&choice.document(json!({
            "model": arguments.model.to_string_lossy(),
            "context_length": fit.context_length, "sequences": fit.sequences, "fits": fit.fits(),
            "weight_bytes": fit.weight_bytes, "cache_bytes": fit.cache_bytes, "scratch_bytes": fit.scratch_bytes,
            "total_bytes": fit.total_bytes(), "available_bytes": fit.available_bytes, "largest_context_length": fit.largest_context_length,
            "weight_bytes_per_token": fit.weight_bytes_per_token, "gb_per_s": gbps,
            "expected_tokens_per_second": tokens_per_second,
        })));
    } else {
        print(&fit, &choice.summary());
        println!("speed     at most {tokens_per_second:.1} tokens/s for one sequence, at {gbps:.1} GB/s");
    }
    Ok(if fit.fits() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(fit: &Fit, device: &str) {
    let Fit { context_length, sequences, .. } = fit;
    let caches = if *sequences == 1 { String::new() } else { format!("{sequences} sequences of ") };
    println!("device    {device}");
    println!("weights   {}", human(fit.weight_bytes));
    println!("cache     {}, {caches}{context_length} tokens", human(fit.cache_bytes));
    println!("scratch   {}", human(fit.scratch_bytes));
    let verdict = if fit.fits() { "fits" } else { "does not fit" };
    println!("total     {} {verdict} {} of free memory", human(fit.total_bytes()), human(fit.available_bytes));
    match fit.largest_context_length {
        Some(largest) => println!("context   at most {largest} tokens for each sequence"),
        None => println!("context   none fits; use a smaller model or a lower-bit encoding (`panoply quantize`)"),
    }
}
