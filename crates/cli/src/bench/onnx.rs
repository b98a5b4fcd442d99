//! `panoply bench onnx`: latency of an ONNX network that is compiled for inference, from inputs in host memory to outputs in host memory.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use panoply::nn::data::npy::{self, Array};
use panoply::nn::onnx::Imported;
use panoply::nn::{CompiledOnnx, compile};
use panoply::runtime::Backend;
use panoply::{Device, Error, Profiler, Result, Tensor};
use serde_json::json;

use super::{ProfiledArgs, duration, median_time};
use crate::console::escaped;
use crate::generation_args::ThreadArgs;
use crate::output;

#[derive(Args)]
pub struct BenchOnnxCommand {
    /// The network: an ONNX file
    model: PathBuf,
    /// Read an input from a NumPy file; once for each input, in the order of the network [default: random numbers, with 1 for dynamic
    /// lengths]
    #[arg(long, value_name = "FILE.npy")]
    input: Vec<PathBuf>,
    /// Write the first output to a NumPy file
    #[arg(long, value_name = "FILE.npy")]
    save_output: Option<PathBuf>,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    profiled: ProfiledArgs,
}

/// The times of a network in seconds.
struct Measured {
    load: f64,
    /// Compilation and the first run, which plans the network.
    first: f64,
    /// Median of a run.
    median: f64,
    folded_batch_norms: usize,
}

/// Prints the median time of a run.
pub fn run(arguments: &BenchOnnxCommand) -> Result<ExitCode> {
    let BenchOnnxCommand { model, input, save_output, threads, profiled } = arguments;
    let written = input.iter().chain(save_output).chain([model]).map(|path| &**path);
    output::check_paths(profiled.options.jsonl, written)?;
    save_output.as_deref().map_or(Ok(()), output::check_writable)?;
    threads.apply()?;
    let choice = profiled.options.device.select()?;
    let device = choice.device();
    let Measured { load, first, median, folded_batch_norms } = device.scope(|| measure(arguments, device))?;
    let threads = (device.info().kind == Backend::Cpu).then(|| device.info().compute_units);
    if profiled.options.jsonl {
        output::print_json_line(&choice.document(json!({
            "model": model.to_string_lossy(), "threads": threads,
            "load_seconds": load, "first_run_seconds": first, "seconds": median, "folded_batch_norms": folded_batch_norms,
        })));
    } else {
        let threads = threads.map_or_else(String::new, |threads| format!(", {threads} threads"));
        println!("{}  {}{threads}", escaped(&model.to_string_lossy()), choice.summary());
        println!("load        {}", duration(load));
        println!("first run   {}, with compilation", duration(first));
        println!("run         {}", duration(median));
        if folded_batch_norms > 0 {
            let noun = if folded_batch_norms == 1 { "batch norm" } else { "batch norms" };
            println!("folded      {folded_batch_norms} {noun} into convolutions");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(arguments: &BenchOnnxCommand, device: &Device) -> Result<Measured> {
    let BenchOnnxCommand { model, input, save_output, profiled, .. } = arguments;
    let files = input.iter().map(|path| Array::read(path)).collect::<Result<Vec<Array>>>()?;
    let started = Instant::now();
    let network = Imported::open(model)?;
    let load = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let compiled = compile(&network, &Default::default())?;
    let compilation = started.elapsed().as_secs_f64();
    let inputs = if files.is_empty() { random(&compiled)? } else { files };
    let count = compiled.inputs().len();
    if inputs.len() != count {
        let (given, files) = (inputs.len(), if inputs.len() == 1 { "file is" } else { "files are" });
        let noun = if count == 1 { "input" } else { "inputs" };
        let message = format!("--input: {} has {count} {noun}, but {given} {files} given", model.display());
        return Err(Error::mistake(message));
    }
    let started = Instant::now();
    let outputs = once(&compiled, &inputs)?;
    let first = compilation + started.elapsed().as_secs_f64();
    if let (Some(path), Some(output)) = (save_output, outputs.first()) {
        npy::save(output, path)?;
    }
    if profiled.profile {
        let profile = Profiler::start(device)?;
        once(&compiled, &inputs)?;
        eprintln!("{}", profile.finish()?);
    }
    let median = median_time(profiled.options.min_time, || {
        let start = Instant::now();
        once(&compiled, &inputs)?;
        Ok(start.elapsed().as_secs_f64())
    })?;
    Ok(Measured { load, first, median, folded_batch_norms: compiled.folded_batch_norms() })
}

/// Runs the network on inputs in host memory, and reads the outputs back.
fn once(compiled: &CompiledOnnx, inputs: &[Array]) -> Result<Vec<Tensor>> {
    let inputs = inputs.iter().map(Array::to_tensor).collect::<Result<Vec<Tensor>>>()?;
    let outputs = compiled.run(&inputs)?;
    outputs.iter().try_for_each(|output| output.to_bytes().map(drop))?;
    Ok(outputs)
}

/// Returns random inputs in host memory.
fn random(compiled: &CompiledOnnx) -> Result<Vec<Array>> {
    let array = |input: &Tensor| {
        Ok(Array { dtype: input.dtype(), dims: input.shape()?.dims().to_vec(), bytes: input.to_bytes()? })
    };
    compiled.random_inputs().iter().map(array).collect()
}
