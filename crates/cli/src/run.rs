//! `panoply run MODEL PROMPT`: text from a language model.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use clap::Args;
use panoply::llm::{Message, Prompt};
use panoply::{Device, Error, Result};

use crate::bench::Limits;
use crate::generation_args::{Answer, GenerationArgs, write_piece};
use crate::output;

/// Seconds for which the bandwidth is measured.
const BANDWIDTH_SECONDS: f64 = 0.1;

/// Generate text with a language model.
#[derive(Args)]
pub struct RunCommand {
    #[command(flatten)]
    generation: GenerationArgs,
    /// The text to continue; read from standard input if absent or `-`.
    prompt: Option<String>,
    /// Answer the prompt with the model's chat template instead of continuing it; `--system` does so too.
    #[arg(long)]
    chat: bool,
    /// One JSON document on stdout when the text is complete.
    #[arg(long)]
    json: bool,
}

/// Opens the model and writes the text as it is generated.
pub fn run(arguments: &RunCommand) -> Result<ExitCode> {
    let settings = &arguments.generation;
    settings.apply()?;
    let prompt = prompt(arguments)?;
    let mut messages: Vec<Message> = settings.system.iter().map(|text| Message::new("system", text)).collect();
    messages.push(Message::new("user", &prompt));
    let is_chat = arguments.chat || settings.system.is_some();
    let prompt = if is_chat { Prompt::Chat(&messages) } else { Prompt::Text(&prompt) };
    let choice = settings.device.select()?;
    choice.device().scope(|| {
        let model = settings.open()?;
        let mut generation = model.generate(&settings.request(prompt))?;
        let write = |piece: &str| if arguments.json { Ok(()) } else { write_piece(piece) };
        let answer = Answer::collect(&mut generation, || true, write)?;
        if !arguments.json {
            write_piece("\n")?;
        }
        let (mut document, summary) = (answer.report(&generation), answer.summary(&generation));
        let bytes_per_second =
            answer.tokens_per_second(&generation).map(|rate| rate * model.weight_bytes_per_token() as f64);
        // The measurement allocates memory that the model would occupy.
        drop(generation);
        drop(model);
        // The text has been generated, so a measurement that fails, for example for lack of memory, is not an error.
        let fraction = bytes_per_second.and_then(|bytes| fraction_of_bandwidth(choice.device(), bytes).ok());
        if arguments.json {
            document["model"] = settings.model.to_string_lossy().into();
            document["fraction_of_bandwidth"] = fraction.into();
            output::print_json(&choice.document(document));
        } else {
            let percent = |fraction: f64| format!(", {:.0} % of the memory bandwidth", 100.0 * fraction);
            let fraction = fraction.map_or(String::new(), percent);
            note!("{} on {}: {summary}{fraction}", settings.model.display(), choice.device());
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns a rate in bytes per second as a fraction of the bandwidth of the device's memory, which is measured.
fn fraction_of_bandwidth(device: &Device, bytes_per_second: f64) -> Result<f64> {
    device.trim_memory();
    Ok(bytes_per_second / (Limits::new(device, BANDWIDTH_SECONDS).gbps()? * 1e9))
}

/// Returns the prompt of the command line or of standard input.
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
