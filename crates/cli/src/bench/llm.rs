//! `panoply bench llm`: tokens per second of a language model in prefill and decode, relative to the memory bandwidth.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use clap::Args;
use panoply::llm::{Engine, EngineOptions, Event, Model, Prompt, Request};
use panoply::nn::data::npy;
use panoply::runtime::Backend;
use panoply::{Device, Error, Profiler, Result, Tensor};
use serde_json::json;

use super::{Limits, rss};
use crate::generation_args::{ThreadArgs, concurrent_sequences, open_model, with_context_note};
use crate::output::{self, DeviceArgs};
use crate::train::train_args::parse_count;

#[derive(Args)]
pub struct BenchLlmCommand {
    /// Model: a GGUF file or a Hugging Face folder
    model: PathBuf,
    /// Tokens of the prompt
    #[arg(long, default_value_t = 512, value_name = "N", value_parser = parse_count)]
    prefill: usize,
    /// Tokens generated after the prompt
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = parse_count)]
    decode: usize,
    /// Runs, of which the median is reported, after one that is not measured
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = parse_count)]
    repeats: usize,
    /// Also measure this many sequences decoded at once, as the server does
    #[arg(long, value_name = "N", value_parser = concurrent_sequences)]
    streams: Option<usize>,
    /// Write the logits after the prompt, a vector of f32, to a NumPy file
    #[arg(long, value_name = "FILE.npy")]
    save_logits: Option<PathBuf>,
    /// Also print the time of each kernel of a further run's decode to stderr, and the time a token takes outside of kernels: the difference of
    /// two runs, useful for small models only
    #[arg(long)]
    profile: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print a JSON line on stdout
    #[arg(long, visible_alias = "json")]
    jsonl: bool,
}

/// Seconds for which the bandwidth is measured.
const BANDWIDTH_SECONDS: f64 = 0.5;

/// Prints the rates.
pub fn run(arguments: &BenchLlmCommand) -> Result<ExitCode> {
    let BenchLlmCommand { prefill, decode, .. } = *arguments;
    arguments.save_logits.as_deref().map_or(Ok(()), output::check_writable)?;
    arguments.threads.apply()?;
    let choice = arguments.device.select()?;
    let device = choice.device();
    device.scope(|| {
        let gbps = Limits::new(device, BANDWIDTH_SECONDS).gbps()?;
        device.trim_memory();
        let (measured, peak_rss) = rss::growth(|| measure(arguments, device))?;
        let Measured { load_seconds, weight_bytes_per_token, times, kernel_seconds, logits, stream_rate } = measured;
        if let Some(path) = &arguments.save_logits {
            npy::save(&Tensor::from_slice(&logits, [logits.len()]), path)?;
        }
        let median = |of: fn(&[f64; 2]) -> f64| {
            let mut seconds: Vec<f64> = times.iter().map(of).collect();
            seconds.sort_by(f64::total_cmp);
            (seconds[(seconds.len() - 1) / 2] + seconds[seconds.len() / 2]) / 2.0
        };
        let rates = [prefill as f64 / median(|times| times[0]), decode as f64 / median(|times| times[1])];
        let host_seconds = kernel_seconds.map(|kernels| (median(|times| times[1]) - kernels) / decode as f64);
        let share = rates[1] * weight_bytes_per_token as f64 / (gbps * 1e9);
        let threads = device.info().compute_units;
        if arguments.jsonl {
            output::print_json_line(&choice.document(json!({
                "model": arguments.model.to_string_lossy(),
                "threads": threads, "load_seconds": load_seconds,
                "prefill_tokens": prefill, "prefill_tokens_per_second": rates[0],
                "decode_tokens": decode, "decode_tokens_per_second": rates[1],
                "streams": arguments.streams, "streams_tokens_per_second": stream_rate,
                "weight_bytes_per_token": weight_bytes_per_token, "gb_per_s": gbps, "fraction_of_bandwidth": share,
                "host_seconds_per_token": host_seconds, "peak_rss_bytes": peak_rss,
            })));
        } else {
            let threads =
                if device.info().kind == Backend::Cpu { format!(", {threads} threads") } else { String::new() };
            println!("{}  {}{threads}", arguments.model.display(), choice.summary());
            println!("load        {load_seconds:>8.3} s");
            println!("prefill {prefill:<4}{:>8.1} tokens/s", rates[0]);
            let share = 100.0 * share;
            println!("decode {decode:<5}{:>8.1} tokens/s  {share:.0} % of the bandwidth, {gbps:.1} GB/s", rates[1]);
            if let Some(host_seconds) = host_seconds {
                println!("outside of kernels {:.0} µs a token", host_seconds * 1e6);
            }
            if let (Some(count), Some(rate)) = (arguments.streams, stream_rate) {
                println!("{count:<3} streams {rate:>8.1} tokens/s  {:.2} times one", rate / rates[1]);
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

struct Measured {
    load_seconds: f64,
    weight_bytes_per_token: u64,
    /// Seconds of prefill and decode of each run.
    times: Vec<[f64; 2]>,
    /// Seconds of all kernels of a further decode, if profiled.
    kernel_seconds: Option<f64>,
    /// After the prompt.
    logits: Vec<f32>,
    /// Tokens per second of all sequences that are decoded at once.
    stream_rate: Option<f64>,
}

fn measure(arguments: &BenchLlmCommand, device: &Device) -> Result<Measured> {
    let started = Instant::now();
    let BenchLlmCommand { prefill, decode, streams, .. } = *arguments;
    let of_one = prefill.saturating_add(decode);
    // Sequences that are decoded at once begin one after the other, and go on until the last has all its tokens.
    let of_streams = streams.map_or(0, |count| decode.saturating_add((count + 1) * STREAM_PROMPT));
    let model = open_model(&arguments.model, Some(of_one.max(of_streams))).map_err(|error| {
        let note = match streams {
            Some(count) if of_streams > of_one => format!("--streams {count} and --decode {decode} need it"),
            _ => format!("it is the sum of --prefill {prefill} and --decode {decode}"),
        };
        with_context_note(error, format!("{note}; use smaller numbers"))
    })?;
    let load_seconds = started.elapsed().as_secs_f64();
    let vocab = model.config().vocab;
    let tokens: Vec<u32> = (0..arguments.prefill).map(|n| (n * 7919 % vocab) as u32).collect();
    let (mut times, mut after_prompt) = (Vec::new(), Vec::new());
    for _ in 0..=arguments.repeats {
        let mut cache = model.new_cache();
        let started = Instant::now();
        after_prompt = model.logits(&mut cache, &tokens, 0)?;
        let seconds = started.elapsed().as_secs_f64();
        decode_tokens(&model, &mut cache, &after_prompt, arguments)?;
        times.push([seconds, started.elapsed().as_secs_f64() - seconds]);
    }
    times.remove(0);
    let kernel_seconds = if arguments.profile {
        let mut cache = model.new_cache();
        model.logits(&mut cache, &tokens, 0)?;
        let profiler = Profiler::start(device)?;
        decode_tokens(&model, &mut cache, &after_prompt, arguments)?;
        let report = profiler.finish()?;
        eprintln!("{report}");
        Some(report.work.iter().map(|work| work.time.as_secs_f64()).sum())
    } else {
        None
    };
    let (weight_bytes_per_token, model) = (model.weight_bytes_per_token(), Arc::new(model));
    let stream_rate = arguments.streams.map(|count| measure_streams(&model, count, arguments.decode)).transpose()?;
    Ok(Measured { load_seconds, weight_bytes_per_token, times, kernel_seconds, logits: after_prompt, stream_rate })
}

/// Decodes the tokens of a run after the prompt, the most probable token each time.
fn decode_tokens(
    model: &Model,
    cache: &mut Vec<[Tensor; 2]>,
    after_prompt: &[f32],
    arguments: &BenchLlmCommand,
) -> Result<()> {
    let most_probable =
        |logits: &[f32]| (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap_or(0);
    let mut token = most_probable(after_prompt);
    for n in 0..arguments.decode {
        token = most_probable(&model.logits(cache, &[token as u32], arguments.prefill + n)?);
    }
    Ok(())
}

/// Tokens of the prompt of each of several sequences.
const STREAM_PROMPT: usize = 16;

/// Decodes several sequences at once, at least `decode` tokens each; returns the tokens per second of all sequences together.
fn measure_streams(model: &Arc<Model>, count: usize, decode: usize) -> Result<f64> {
    let vocab = model.config().vocab as u32;
    let engine = Engine::start(model.clone(), EngineOptions { max_concurrent: count, max_queue: 0 })?;
    engine.wait_until_warm()?;
    // When each sequence received each token: events are read later than they happen.
    let times = Arc::new(Mutex::new(vec![Vec::new(); count]));
    let (ended, ends) = channel();
    let submit = |number: usize| {
        let prompt: Vec<u32> = (0..STREAM_PROMPT as u32).map(|n| (n * 7919 + number as u32) % vocab).collect();
        let mut request = Request::new("");
        // Every token is an event of its own, and no token ends a sequence.
        (request.prompt, request.logprobs, request.sampling.temperature) = (Prompt::Tokens(&prompt), Some(0), 0.0);
        request.max_tokens = Some(STREAM_PROMPT * count + decode);
        let stops = (0..vocab).filter(|token| model.tokenizer().is_end(*token));
        request.logit_bias = stops.map(|token| (token, f32::NEG_INFINITY)).collect();
        let (times, ended) = (times.clone(), ended.clone());
        let sink = move |event| {
            let result = match event {
                Event::Text { .. } => {
                    let mut times: MutexGuard<'_, Vec<Vec<Instant>>> =
                        times.lock().unwrap_or_else(PoisonError::into_inner);
                    return times[number].push(Instant::now());
                }
                Event::Finished(_) => Ok(()),
                Event::Failed(error) => Err(error),
            };
            // The receiver is gone only after another sequence failed.
            let _ = ended.send(result);
        };
        engine.submit(&request, sink).map_err(|error| Error::mistake(error.to_string()))
    };
    let tickets = (0..count).map(submit).collect::<Result<Vec<_>>>()?;
    drop(ended);
    ends.iter().collect::<Result<()>>()?;
    drop(tickets);
    let times = times.lock().unwrap_or_else(PoisonError::into_inner);
    // From the first token of the last sequence to the last token of the first one that ends.
    let start = times.iter().filter_map(|times| times.first()).max();
    let end = times.iter().filter_map(|times| times.last()).min();
    let (Some(start), Some(end)) = (start.copied(), end.copied().filter(|end| Some(end) > start)) else {
        return Err(Error::mistake("the sequences were not decoded at the same time; choose a larger --decode"));
    };
    let tokens = times.iter().flatten().filter(|time| **time > start && **time <= end).count();
    Ok(tokens as f64 / (end - start).as_secs_f64())
}
