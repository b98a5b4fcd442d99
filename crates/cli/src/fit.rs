//! `panoply fit MODEL`: memory and speed of a language model, from its headers.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use panoply::Result;
use panoply::llm::{self, Fit, ModelOptions};
use panoply::runtime::byte_size::human;
use serde_json::json;

use crate::bench::Limits;
use crate::output::{self, DeviceArgs};

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
    #[arg(long, default_value_t = 1, value_name = "N")]
    sequences: usize,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print one JSON document on stdout
    #[arg(long)]
    json: bool,
}

/// Seconds for which the bandwidth is measured.
const BANDWIDTH_SECONDS: f64 = 0.3;

/// Prints the estimate.
pub fn run(arguments: &FitCommand) -> Result<ExitCode> {
    let choice = arguments.device.select()?;
    let device = choice.device();
    let options = ModelOptions { context_length: arguments.context_length };
    let fit = llm::fit(&arguments.model, &options, arguments.sequences, device)?;
    let gbps = Limits::new(device, BANDWIDTH_SECONDS).gbps()?;
    let tokens_per_second = gbps * 1e9 / fit.weights_per_token.max(1) as f64;
    if arguments.json {
        output::print_json(&choice.document(json!({
            "model": arguments.model.to_string_lossy(),
            "context_length": fit.context_length, "sequences": fit.sequences, "fits": fit.fits(),
            "weights_bytes": fit.weights, "cache_bytes": fit.cache, "scratch_bytes": fit.scratch,
            "total_bytes": fit.total(), "available_bytes": fit.available, "largest_context_length": fit.largest_context,
            "weights_bytes_per_token": fit.weights_per_token, "gb_per_s": gbps,
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
    println!("weights   {}", human(fit.weights));
    println!("cache     {}, {caches}{context_length} tokens", human(fit.cache));
    println!("scratch   {}", human(fit.scratch));
    let verdict = if fit.fits() { "fits" } else { "does not fit" };
    println!("total     {} {verdict} {} of free memory", human(fit.total()), human(fit.available));
    match fit.largest_context {
        Some(largest) => println!("context   at most {largest} tokens for each sequence"),
        None => println!("context   none fits; use a smaller model or a lower-bit encoding (`panoply quantize`)"),
    }
}
