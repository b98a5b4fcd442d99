//! `panoply run MODEL PROMPT`: generates text with a language model.

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use panoply::llm::{FinishReason, Generation, Model, ModelOptions, Request, Sampling};
use panoply::{Error, Result};
use serde_json::json;

use crate::console::printable;
use crate::output::{self, DeviceArgs, DeviceSelection};

/// Generate text with a language model from a GGUF file.
#[derive(Args)]
pub struct RunCommand {
    /// The model: a GGUF file with the architecture `llama`
    model: PathBuf,
    /// The text to continue; read from standard input if absent or `-`
    prompt: Option<String>,
    /// Maximum number of tokens to generate [default: until the model ends the text or the context is full]
    #[arg(long, short = 'n', value_name = "N")]
    max_tokens: Option<usize>,
    /// Sampling temperature; 0 always takes the most likely token
    #[arg(long, default_value_t = Sampling::default().temperature, allow_negative_numbers = true)]
    temperature: f32,
    /// Sample from this number of the most likely tokens; 0 for all
    #[arg(long, default_value_t = Sampling::default().top_k)]
    top_k: usize,
    /// Sample from the smallest set of most likely tokens whose probabilities sum to this; 1 for all
    #[arg(long, default_value_t = Sampling::default().top_p, allow_negative_numbers = true)]
    top_p: f32,
    /// Sample from tokens whose probability is at least this fraction of the highest; 0 for all
    #[arg(long, default_value_t = Sampling::default().min_p, allow_negative_numbers = true)]
    min_p: f32,
    /// Random seed: the same seed and prompt give the same text
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Capacity of the key-value cache in tokens, prompt included [default: the context length of the model]
    #[arg(long, value_name = "N")]
    context_length: Option<usize>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print one JSON document on stdout when the text is complete
    #[arg(long)]
    json: bool,
}

/// Opens the model and writes the text as it is generated.
pub fn run(arguments: &RunCommand) -> Result<ExitCode> {
    let sampling = Sampling {
        temperature: arguments.temperature,
        top_k: arguments.top_k,
        top_p: arguments.top_p,
        min_p: arguments.min_p,
    };
    sampling.check()?;
    let prompt = prompt(arguments)?;
    let choice = arguments.device.select()?;
    choice.device().scope(|| {
        let options = ModelOptions { context_length: arguments.context_length };
        let model = Model::open(&arguments.model, &options)?;
        let request =
            Request { max_tokens: arguments.max_tokens, sampling, seed: arguments.seed, ..Request::new(&prompt) };
        let started = Instant::now();
        let mut generation = model.generate(&request)?;
        let (mut text, mut first) = (String::new(), None);
        for piece in &mut generation {
            let piece = piece?;
            first.get_or_insert_with(|| started.elapsed());
            if !arguments.json {
                write_piece(&piece)?;
            }
            text.push_str(&piece);
        }
        let seconds = started.elapsed().as_secs_f64();
        let first = first.map_or(seconds, |first| first.as_secs_f64());
        report(arguments, &choice, &generation, (&text, first, seconds))?;
        Ok(choice.exit_code())
    })
}

/// Returns the prompt from the command line or standard input.
fn prompt(arguments: &RunCommand) -> Result<String> {
    match arguments.prompt.as_deref() {
        Some(prompt) if prompt != "-" => Ok(prompt.to_string()),
        None if std::io::stdin().is_terminal() => {
            Err(Error::mistake("missing prompt; pass it as the second argument or on standard input"))
        }
        Some(_) | None => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| Error::io("cannot read the prompt from standard input", error))?;
            Ok(text)
        }
    }
}

fn write_piece(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(printable(text).as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| Error::io("cannot write to standard output", error))
}

/// Ends the text and reports the timing: `first` seconds to the first piece, `seconds` in total.
fn report(
    arguments: &RunCommand,
    choice: &DeviceSelection,
    generation: &Generation<'_>,
    (text, first, seconds): (&str, f64, f64),
) -> Result<()> {
    let (prompt_tokens, tokens) = (generation.prompt_tokens(), generation.tokens().len());
    let finish = match generation.finish_reason() {
        Some(FinishReason::Stop) => "stop",
        Some(FinishReason::Length) | None => "length",
    };
    // The first token is computed together with the prompt.
    let rate = tokens.saturating_sub(1) as f64 / (seconds - first).max(1e-9);
    if arguments.json {
        output::print_json(&json!({
            "schema": 1, "device": choice.device().to_string(), "model": arguments.model.to_string_lossy(), "text": text,
            "finish_reason": finish, "prompt_tokens": prompt_tokens, "completion_tokens": tokens,
            "first_token_seconds": first, "seconds": seconds,
        }));
        return Ok(());
    }
    write_piece("\n")?;
    eprintln!(
        "{} on {}: {prompt_tokens} prompt tokens, first token after {first:.2} s, {tokens} tokens at {rate:.1} tokens/s",
        arguments.model.display(),
        choice.device()
    );
    Ok(())
}
