//! Arguments and output that `run` and `chat` share: the model, sampling, and streaming of text.

use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use panoply::llm::{
    ContextLengthError, EngineOptions, FinishReason, Generation, Model, ModelOptions, Prompt, Request, Sampling,
};
use panoply::runtime::Registry;
use panoply::{Error, Result};
use serde_json::{Value, json};

use crate::console::printable;
use crate::load_progress::LoadProgress;
use crate::output::DeviceArgs;

/// A model and its generation settings.
#[derive(Args)]
pub struct GenerationArgs {
    /// Model: a GGUF file, or a Hugging Face folder with `config.json`, `tokenizer.json` and safetensors files
    pub model: PathBuf,
    /// Maximum number of tokens to generate [default: until the model ends the text or the context is full]
    #[arg(long, short = 'n', value_name = "N")]
    max_tokens: Option<usize>,
    /// Sampling temperature; 0 always takes the most likely token
    #[arg(long, default_value_t = Sampling::default().temperature, allow_negative_numbers = true,
        value_parser = sampling(|sampling| &mut sampling.temperature))]
    temperature: f32,
    /// Sample from this many of the most likely tokens; 0 for all
    #[arg(long, default_value_t = Sampling::default().top_k)]
    top_k: usize,
    /// Sample from the fewest most likely tokens whose probabilities add up to this; 1 for all
    #[arg(long, default_value_t = Sampling::default().top_p, allow_negative_numbers = true,
        value_parser = sampling(|sampling| &mut sampling.top_p))]
    top_p: f32,
    /// Sample from tokens with at least this fraction of the probability of the most likely one; 0 for all
    #[arg(long, default_value_t = Sampling::default().min_p, allow_negative_numbers = true,
        value_parser = sampling(|sampling| &mut sampling.min_p))]
    min_p: f32,
    /// Divide the logits of tokens that occur in the prompt or the answer by this; 1 for no penalty
    #[arg(long, default_value_t = Sampling::default().repetition_penalty, allow_negative_numbers = true,
        value_parser = sampling(|sampling| &mut sampling.repetition_penalty))]
    repetition_penalty: f32,
    /// Subtract this from the logits of tokens that occur in the answer
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true,
        value_parser = sampling(|sampling| &mut sampling.presence_penalty))]
    presence_penalty: f32,
    /// Subtract this from the logit of a token for each time it occurs in the answer
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true,
        value_parser = sampling(|sampling| &mut sampling.frequency_penalty))]
    frequency_penalty: f32,
    /// Add a number to the logit of a token id, such as `42=-5` or `42=-inf`; can be repeated
    #[arg(long, value_name = "ID=NUMBER", value_parser = logit_bias)]
    logit_bias: Vec<(u32, f32)>,
    /// End the answer before this text; can be repeated
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Seed of sampling; the same seed and prompt give the same text
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Size of the key-value cache in tokens, including the prompt [default: the context length of the model]
    #[arg(long, value_name = "N")]
    context_length: Option<usize>,
    /// System message: instructions before the conversation
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Note of an error about the context length of a command that has this option.
pub const CONTEXT_NOTE: &str = "choose another --context-length";

/// Threads of the CPU device.
#[derive(Args)]
pub struct ThreadArgs {
    /// Threads of the CPU [default: PANOPLY_THREADS or all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl ThreadArgs {
    /// Sets the number of threads, before a device is selected.
    pub fn apply(&self) -> Result<()> {
        if let Some(threads) = self.threads.and_then(|threads| NonZeroUsize::new(threads.into())) {
            Registry::global()?.set_cpu_threads(threads);
        }
        Ok(())
    }
}

/// Returns a parser of a sampling parameter, whose range is that of [`Sampling::check`].
fn sampling(
    parameter: fn(&mut Sampling) -> &mut f32,
) -> impl Fn(&str) -> std::result::Result<f32, String> + Clone + Send + Sync + 'static {
    move |text| {
        let value = text.parse().map_err(|_| "expected a number".to_string())?;
        let mut sampling = Sampling::default();
        *parameter(&mut sampling) = value;
        sampling.check().map_err(|error| error.message().to_string())?;
        Ok(value)
    }
}

/// Parses a number of sequences that are decoded at once, whose range is that of [`EngineOptions::check`].
pub fn concurrent_sequences(text: &str) -> std::result::Result<usize, String> {
    let max_concurrent = text.parse().map_err(|_| "expected a whole number".to_string())?;
    let options = EngineOptions { max_concurrent, ..EngineOptions::default() };
    options.check().map_err(|error| error.message().to_string())?;
    Ok(max_concurrent)
}

fn logit_bias(text: &str) -> std::result::Result<(u32, f32), String> {
    let (id, number) = text.split_once('=').ok_or("write a token id, `=` and a number")?;
    let id = id.trim().parse().map_err(|_| format!("`{id}` is not a token id"))?;
    let bias: f32 = number.trim().parse().map_err(|_| format!("`{number}` is not a number"))?;
    if bias.is_nan() || bias == f32::INFINITY {
        return Err(format!("the logit bias of token {id} is {bias}"));
    }
    Ok((id, bias))
}

/// Adds a note to the error of a context length that the model does not support.
pub fn with_context_note(error: Error, note: impl Into<String>) -> Error {
    let cause = std::error::Error::source(&error);
    if cause.is_some_and(|cause| cause.is::<ContextLengthError>()) { error.note(note) } else { error }
}

/// Opens a language model on the current device, with a progress bar.
pub fn open_model(path: &Path, context_length: Option<usize>) -> Result<Model> {
    let mut progress = LoadProgress::new("loading");
    let options = ModelOptions { context_length };
    Model::open_with_progress(path, &options, &mut |done, all| progress.show(done, all))
}

/// A text that was generated, and how long it took.
pub struct Answer {
    pub text: String,
    /// Time to the first piece of text.
    pub first_seconds: f64,
    pub seconds: f64,
    /// True if the caller interrupted it.
    pub is_interrupted: bool,
}

impl GenerationArgs {
    /// Applies the settings of the process, before a device is selected.
    pub fn apply(&self) -> Result<()> {
        self.threads.apply()
    }

    fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
        }
    }

    /// Opens the model on the current device.
    pub fn open(&self) -> Result<Model> {
        open_model(&self.model, self.context_length).map_err(|error| with_context_note(error, CONTEXT_NOTE))
    }

    /// A request with these settings.
    pub fn request<'a>(&self, prompt: Prompt<'a>) -> Request<'a> {
        Request {
            prompt,
            max_tokens: self.max_tokens,
            sampling: self.sampling(),
            seed: self.seed,
            stop: self.stop.clone(),
            logit_bias: BTreeMap::from_iter(self.logit_bias.iter().copied()),
            ..Request::new("")
        }
    }
}

impl Answer {
    /// Collects the text of a generation while `goes_on` returns true, and passes each piece to `piece`.
    pub fn collect(
        generation: &mut Generation<'_>,
        goes_on: impl Fn() -> bool,
        mut piece: impl FnMut(&str) -> Result<()>,
    ) -> Result<Answer> {
        let started = Instant::now();
        let (mut text, mut first, mut is_interrupted) = (String::new(), None, false);
        loop {
            if !goes_on() {
                is_interrupted = true;
                break;
            }
            let Some(next) = generation.next() else { break };
            let next = next?;
            first.get_or_insert_with(|| started.elapsed().as_secs_f64());
            piece(&next)?;
            text.push_str(&next);
        }
        let seconds = started.elapsed().as_secs_f64();
        Ok(Answer { text, first_seconds: first.unwrap_or(seconds), seconds, is_interrupted })
    }

    /// The reason for the end: `stop`, `length` or `interrupt`.
    pub fn finish_reason(&self, generation: &Generation<'_>) -> &'static str {
        match generation.finish_reason() {
            Some(FinishReason::Stop) => "stop",
            None if self.is_interrupted => "interrupt",
            Some(FinishReason::Length) | None => "length",
        }
    }

    /// Counts and times for `--json`.
    pub fn report(&self, generation: &Generation<'_>) -> Value {
        json!({
            "text": self.text, "finish_reason": self.finish_reason(generation),
            "prompt_tokens": generation.prompt_tokens(), "reused_tokens": generation.reused_tokens(),
            "completion_tokens": generation.tokens().len(), "first_token_seconds": self.first_seconds,
            "seconds": self.seconds,
        })
    }

    /// Returns the decode rate in tokens per second. The first token is left out, because prefill computes it; `None` for fewer than two
    /// tokens.
    pub fn tokens_per_second(&self, generation: &Generation<'_>) -> Option<f64> {
        let tokens = generation.tokens().len();
        (tokens > 1).then(|| (tokens - 1) as f64 / (self.seconds - self.first_seconds).max(1e-9))
    }

    /// Counts and times in a line.
    pub fn summary(&self, generation: &Generation<'_>) -> String {
        let (prompt, reused, tokens) =
            (generation.prompt_tokens(), generation.reused_tokens(), generation.tokens().len());
        let cached = if reused > 0 { format!(" ({reused} cached)") } else { String::new() };
        let first = self.first_seconds;
        let rate = self.tokens_per_second(generation);
        let seconds = rate.map_or(String::new(), |rate| format!(" at {rate:.1} tokens/s"));
        format!("{prompt} prompt tokens{cached}, first token after {first:.2} s, {tokens} tokens{seconds}")
    }
}

/// Writes a piece of text to stdout at once.
pub fn write_piece(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(printable(text).as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| Error::io("cannot write to stdout", error))
}
